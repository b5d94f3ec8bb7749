//! Brings the events that cases leave into the live chains of their projects, as any other event goes there:
//! by the write path, under an idempotency key, counted.
//!
//! ```text
//! t0  a step of a case commits together with the event that tells of it
//! t1  the event is appended under a key made of case and step; or the process dies before, and another one
//!     finds it due
//! t2  its place in the chain is noted; or the process dies before: it is sent again, and the chain answers
//!     from the first time
//! ```
//!
//! Keys are kept for 24 hours, and an event may have been appended before a crash whose key has gone since:
//! the chain is asked for it first. What clients write stands for no event of a case: its key lies where
//! theirs do not reach (`own_key`), and an event of the chain counts where all of its text is the same and it
//! comes from here. Action, resource and step alone can be forged.

use sealog_control::Control;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealog_control::{CaseEvent, CaseEventOutcome, CaseEvents};
use sealog_core::catalog::FrameworkSet;
use sealog_core::event::{self, StoredEvent};
use sealog_core::id::{ChainId, Mode, RequestId, Ulid};
use sealog_core::plan::Plan;
use sealog_core::query::Filter;
use sealog_core::reject::Reject;
use sealog_store::world::World;
use sealog_store::{List, Store, StoreError};

use sealog_service::ingest::{Client, Endpoint, Ingest, IngestError, Producer, own_key};
use sealog_service::records::system_chain::Wake;

/// Events of one round.
const ROUND_MAX: usize = 100;
const RETRY_MS: u64 = 30_000;
/// Events of the same action and case that are compared.
const LOOK_BACK_MAX: usize = 100;
const LOOK_BYTES_MAX: usize = 1 << 20;
/// Where events of cases come from: this machine.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The member of `metadata` that says which step of its case an event tells of.
pub(super) const STEP: &str = "case_step";

pub struct CaseForward {
    pub events: Arc<dyn CaseEvents>,
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub ingest: Ingest,
    pub world: Arc<dyn World>,
    pub plans: Vec<Plan>,
    /// After a step in this process.
    pub wake: Wake,
    /// For what other processes have left, and for retries.
    pub every: Duration,
}

impl CaseForward {
    /// Goes on until it is dropped.
    pub async fn run(&self) {
        loop {
            match self.round().await {
                Ok(0) => {}
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(%error, retry_in_s = self.every.as_secs(), "failed to read pending case events; retrying");
                }
            }
            tokio::select! {
                () = self.wake.woken() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
    }

    /// Sends what is due. How many that were.
    pub async fn round(&self) -> Result<usize, StoreError> {
        let due = self.events.due_case_events(self.world.now_ms(), ROUND_MAX).await?;
        for event in &due {
            let outcome = match self.send(event).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    tracing::warn!(case = %event.case_id.0, %error, retry_in_s = RETRY_MS / 1000, "failed to append a case event; retrying");
                    let retry_at_ms = self.world.now_ms().saturating_add(RETRY_MS);
                    CaseEventOutcome::Failed { cause: error.to_string(), retry_at_ms }
                }
            };
            self.events.case_event_attempted(event.new.id, outcome).await?;
        }
        Ok(due.len())
    }

    async fn send(&self, event: &CaseEvent) -> Result<CaseEventOutcome, StoreError> {
        let now_ms = self.world.now_ms();
        let refused = |cause: String| Ok(CaseEventOutcome::Refused { cause, now_ms });
        let project = self.control.project(event.new.project_id).await?;
        let tenant = self.control.tenant(event.tenant_id).await?;
        let (Some(project), Some(tenant)) = (project, tenant) else {
            return refused("the project does not exist".into());
        };
        if !tenant.billing.allows_ingest(now_ms) {
            return refused(Reject::TrialExpired.to_string());
        }
        let chain = ChainId { tenant_id: tenant.id, project_id: project.id, mode: Mode::Live };
        if let Some(chain_seq) = self.sealed_before(chain, event).await? {
            return Ok(CaseEventOutcome::Sealed { chain_seq, now_ms });
        }
        let plan = self.plans.iter().find(|plan| plan.name == tenant.plan);
        let producer = Arc::new(Producer {
            chain,
            enabled: project.frameworks,
            ever_enabled: project.frameworks_ever,
            in_plan: plan.map_or(FrameworkSet::NONE, |plan| plan.frameworks),
            // Its actions are all of the catalog.
            custom: HashMap::new(),
            has_quota: plan.is_some_and(|plan| plan.events_per_month.is_some()),
        });
        let key = own_key(&event.new.key);
        let body = Bytes::from(event.new.body.clone());
        // It comes from this machine, and from nobody's place.
        let client = Client::new(HERE);
        let request_id = RequestId(Ulid::new(now_ms, self.world.random80()));
        let sent = self.ingest.ingest(&producer, Endpoint::Single, Some(key), body, client, request_id).await;
        match sent {
            Ok(ingested) => Ok(CaseEventOutcome::Sealed { chain_seq: ingested.receipt.first_seq, now_ms }),
            Err(IngestError::Reject(Reject::IdempotencyInFlight)) => {
                Err(StoreError::Unavailable("another request is appending it".into()))
            }
            Err(IngestError::Reject(reject) | IngestError::InBatch { reject, .. }) => {
                refused(reject.to_string())
            }
            Err(IngestError::Store(error)) => Err(error),
            Err(IngestError::Internal(cause)) => Err(StoreError::Unavailable(cause.into())),
        }
    }

    /// Where the chain has an event already.
    async fn sealed_before(&self, chain: ChainId, event: &CaseEvent) -> Result<Option<u64>, StoreError> {
        let Ok(Ok(draft)) = event::parse_single(event.new.body.as_bytes()) else { return Ok(None) };
        let fields = draft.text.fields();
        let here = HERE.to_string();
        let filter = Filter {
            action: Some(fields.action.to_owned()),
            resource: fields.resource.map(str::to_owned),
            ..Filter::default()
        };
        let (mut before_seq, mut left) = (None, LOOK_BACK_MAX);
        while left > 0 {
            let list = List { filter: filter.clone(), before_seq, limit: left, bytes_max: LOOK_BYTES_MAX };
            let chunk = self.store.list(chain, list).await?;
            let is_it = |known: &&StoredEvent| {
                known.text.as_str() == draft.text.as_str()
                    && known.annotations.ip_address.as_deref() == Some(here.as_str())
            };
            if let Some(known) = chunk.items.iter().find(is_it) {
                return Ok(Some(known.sealed.chain_seq));
            }
            left -= chunk.items.len().min(left);
            match chunk.resume {
                Some(resume) => before_seq = Some(resume),
                None => break,
            }
        }
        Ok(None)
    }
}
