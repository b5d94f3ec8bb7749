//! The baseline: what a store holds without a record of it when this version first starts, sealed once.
//!
//! It is a job of the operator with a fixed id. Its row stays, so no later start seals another one: whoever forges
//! a drop and restarts the server does not get it covered. A second baseline in a system chain is one that
//! somebody has asked for, or a restore.

use std::sync::Arc;

use sealog_control::{Job, JobId, JobState, Jobs, NewJob};
use sealog_core::id::Uuid;
use sealog_store::world::World;
use sealog_store::{BoxFuture, Store, StoreError};

use crate::jobs::{Step, Work};
use crate::system_chain::{Actor, Drain, Recorder, actions, drops};

const KIND: &str = "baseline";
const ID: JobId = JobId(Uuid(*b"sealog-baseline1"));

/// Seals it.
pub struct Baseline {
    pub store: Arc<dyn Store>,
    pub drain: Arc<Drain>,
    pub world: Arc<dyn World>,
}

impl std::fmt::Debug for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Baseline")
    }
}

impl Work for Baseline {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// One tenant a step, in the order of their ids; the position is the last one that was done.
    fn step<'a>(&'a self, _: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let mut dropped = drops::dropped(&*self.store).await?;
            dropped.retain(|tenant_id, _| &tenant_id.0.0[..] > position);
            let Some((tenant_id, chains)) = dropped.pop_first() else {
                return Ok(Step::Done { position: Vec::new(), records: Vec::new() });
            };
            let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
            for record in drops::records(&recorder, &actions::BASELINE, &chains) {
                match self.drain.record_and_seal(tenant_id, record).await {
                    // A store that was restored may have chains of tenants that nobody knows.
                    Err(error @ (StoreError::Refused(_) | StoreError::Control(_))) => {
                        tracing::warn!(tenant = %tenant_id, %error, "the baseline of a tenant cannot be sealed");
                    }
                    sealed => sealed?,
                }
            }
            Ok(Step::More(tenant_id.0.0.to_vec()))
        })
    }
}

/// Queues it, unless that was ever done.
pub(crate) async fn queue(jobs: &dyn Jobs, world: &dyn World) -> Result<bool, StoreError> {
    let new = NewJob {
        id: ID,
        kind: KIND.into(),
        tenant_id: None,
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: world.now_ms(),
    };
    jobs.create_job_once(new).await
}

/// Whether it is sealed: before, drops of earlier versions have no record.
pub(crate) async fn is_sealed(jobs: &dyn Jobs) -> Result<bool, StoreError> {
    Ok(jobs.job(ID).await?.is_some_and(|job| job.state == JobState::Done))
}
