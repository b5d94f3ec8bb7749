//! How a verification is started, shown and cancelled.

use sealog_control::Control;
use std::sync::Arc;

use sealog_control::{JobId, ListPage, NewJob, PersonId};
use sealog_core::id::{ChainId, Uuid};
use sealog_core::query::SeqRange;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::json;

use super::run::{KIND, Run, parameters, subject};
use crate::records::system_chain::{Actor, Recorder, Wake, actions};

/// Verifications of a tenant that have not ended.
pub const UNENDED_MAX: usize = 4;

/// The same, where a person asks for all chains at once: they wait for each other.
pub const ALL_MAX: usize = 64;

/// Verifications, for those who ask on behalf of people. Who may ask is theirs to decide.
#[derive(Clone)]
pub struct Verifications {
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    /// Of the runner of this process.
    pub runner: Wake,
    /// Of the drain of this process.
    pub records: Wake,
}

/// Why none was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There are no events in the range.
    Nothing,
    /// The tenant has [`UNENDED_MAX`] that have not ended.
    TooMany,
    Store(StoreError),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> StartError {
        StartError::Store(error)
    }
}

impl Verifications {
    /// The range is cut to what the chain has, or is known to have had.
    pub async fn start(
        &self,
        person_id: PersonId,
        chain: ChainId,
        range: SeqRange,
    ) -> Result<Run, StartError> {
        self.start_within(person_id, chain, range, UNENDED_MAX).await
    }

    /// One for each chain that has events. How many were started, and whether that is all of them: a tenant
    /// has at most [`ALL_MAX`] that have not ended.
    pub async fn start_all(
        &self,
        person_id: PersonId,
        chains: Vec<(ChainId, SeqRange)>,
    ) -> Result<(usize, bool), StoreError> {
        let mut started = 0;
        for (chain, range) in chains {
            match self.start_within(person_id, chain, range, ALL_MAX).await {
                Ok(_) => started += 1,
                Err(StartError::Nothing) => {}
                Err(StartError::TooMany) => return Ok((started, false)),
                Err(StartError::Store(error)) => return Err(error),
            }
        }
        Ok((started, true))
    }

    async fn start_within(
        &self,
        person_id: PersonId,
        chain: ChainId,
        range: SeqRange,
        unended_max: usize,
    ) -> Result<Run, StartError> {
        let SeqRange { from, to } = range;
        let head = self.store.head(chain).await?;
        let to = to.min(head.end().chain_seq);
        // Of a test chain what was dropped for its age cannot be verified.
        let from = if from < 1 { from } else { from.max(head.first_seq()) };
        if from < 1 || from > to {
            return Err(StartError::Nothing);
        }
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let id = recorder.random_id();
        let metadata = json!({
            "project_id": chain.project_id.to_string(),
            "mode": chain.mode.as_str(),
            "first_seq": from,
            "last_seq": to,
        });
        let record = recorder.record(&actions::VERIFICATION_STARTED, &format!("verification/{id}"), metadata);
        let new = NewJob {
            id: JobId(id),
            kind: KIND.into(),
            tenant_id: Some(chain.tenant_id),
            person_id: Some(person_id),
            subject: Some(subject(chain)),
            parameters: parameters(chain, from, to).to_string(),
            created_at_ms: self.world.now_ms(),
        };
        let queued = self.control.queue_job(new, unended_max, vec![record]).await?;
        let job = queued.ok_or(StartError::TooMany)?;
        self.runner.wake();
        self.records.wake();
        Ok(Run::of(&job).expect("it is of this kind, and was written here"))
    }

    /// One of this chain; one of another is like one that does not exist.
    pub async fn run(&self, chain: ChainId, id: Uuid) -> Result<Option<Run>, StoreError> {
        let job = self.control.job(JobId(id)).await?;
        Ok(job.as_ref().and_then(Run::of).filter(|run| run.chain == chain))
    }

    /// Newest first, those that were started before `before`.
    pub async fn runs(
        &self,
        chain: ChainId,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, StoreError> {
        let page = ListPage { after: before, limit };
        let jobs = self.control.jobs_about(chain.tenant_id, KIND.into(), subject(chain), page).await?;
        Ok(jobs.iter().filter_map(Run::of).collect())
    }

    /// Whether it had not ended.
    pub async fn cancel(&self, person_id: PersonId, run: &Run) -> Result<bool, StoreError> {
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let metadata =
            json!({ "project_id": run.chain.project_id.to_string(), "mode": run.chain.mode.as_str() });
        let resource = format!("verification/{}", run.id);
        let record = recorder.record(&actions::VERIFICATION_CANCELLED, &resource, metadata);
        let cancelled = self.control.cancel_job(JobId(run.id), self.world.now_ms(), vec![record]).await?;
        self.records.wake();
        Ok(cancelled)
    }
}
