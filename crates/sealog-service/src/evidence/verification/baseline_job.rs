//! The job of the baseline: queued once behind each restore.

use sealog_control::Control;
use sealog_control::{JobId, NewJob};
use sealog_core::id::Uuid;
use sealog_store::StoreError;
use sealog_store::world::World;

pub(super) const BASELINE_KIND: &str = "baseline";
/// Later than any job is due.
const LATEST_MS: u64 = i64::MAX as u64;

/// Queues it behind a restore: what the copy holds without a record of it is sealed when it is started.
pub async fn queue_baseline(jobs: &Control, world: &dyn World) -> Result<(), StoreError> {
    let mut random = [0; 16];
    world.fill_random(&mut random);
    let new = NewJob {
        id: JobId(Uuid::from_random(random)),
        kind: BASELINE_KIND.into(),
        tenant_id: None,
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: world.now_ms(),
    };
    jobs.create_job(new).await.map(drop)
}

/// Whether a restore has queued one that is not sealed yet. Until then, differences have no record.
pub(super) async fn is_waiting(jobs: &Control) -> Result<bool, StoreError> {
    Ok(!jobs.due_jobs(BASELINE_KIND.into(), LATEST_MS, 1).await?.is_empty())
}
