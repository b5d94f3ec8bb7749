//! The job of the baseline: queued once in the life of a store, and once behind each restore.

use sealog_control::Control;
use sealog_control::{JobId, JobState, NewJob};
use sealog_core::id::Uuid;
use sealog_store::StoreError;
use sealog_store::world::World;

pub(super) const BASELINE_KIND: &str = "baseline";
/// Fixed, so that there is one.
const ID: JobId = JobId(Uuid(*b"sealog-baseline1"));

/// Queues it, unless that was ever done.
pub(crate) async fn queue(jobs: &Control, world: &dyn World) -> Result<bool, StoreError> {
    jobs.create_job_once(new(ID, world)).await
}

/// Queues another one, behind a restore: what the copy holds without a record of it is sealed when it is
/// started.
pub async fn queue_baseline(jobs: &Control, world: &dyn World) -> Result<(), StoreError> {
    let mut random = [0; 16];
    world.fill_random(&mut random);
    jobs.create_job(new(JobId(Uuid::from_random(random)), world)).await.map(drop)
}

fn new(id: JobId, world: &dyn World) -> NewJob {
    NewJob {
        id,
        kind: BASELINE_KIND.into(),
        tenant_id: None,
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: world.now_ms(),
    }
}

/// Whether it is sealed: before, drops of earlier versions have no record.
pub(crate) async fn is_sealed(jobs: &Control) -> Result<bool, StoreError> {
    Ok(jobs.job(ID).await?.is_some_and(|job| job.state == JobState::Done))
}
