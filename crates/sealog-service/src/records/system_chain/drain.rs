//! The drain: appends the records of changes to their tenants' system chains, in the order of the changes.
//!
//! There is one in every process, and on PostgreSQL several processes drain the same records. No node is in
//! charge, because none has to be:
//!
//! ```text
//! t0  nodes A and B read the oldest record of a tenant, r1; r2 waits behind it
//! t1  A appends r1 under its id as idempotency key
//! t2  B appends r1 under the same key: the chain answers with A's receipt, and has r1 once
//! t3  A removes r1, or dies before it does; B removes it, or finds it gone
//! t4  A and B read the oldest record again. Only now can it be r2
//! ```
//!
//! A record is removed only by somebody who knows that the chain has it, and a node appends nothing but the
//! oldest record that it has just read. So when r2 is appended, r1 is in the chain, whoever appended it: the
//! order holds with any number of nodes, and a crash at any moment leaves at worst a record that is appended
//! again and answered from the first time.
//!
//! Idempotency keys are kept for 24 hours. A record that is older than half of that may have been appended
//! before a crash whose key has gone since: the chain is asked for it first. Its event has the record's id,
//! and it is among the last of its action and resource, since nothing of the tenant was drained after it. (A
//! node that stops between that look and its append for more than a day, and whose connection to the database
//! survives it, would seal the record twice.)

use sealog_control::Control;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sealog_control::PendingRecord;
use sealog_core::event::{self, StoredEvent};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Ulid};
use sealog_core::json::{self, Members};
use sealog_core::query::Filter;
use sealog_store::shares::TenantShares;
use sealog_store::world::World;
use sealog_store::{IDEMPOTENCY_RETENTION_MS, List, Store, StoreError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::actions;
use super::record::RECORD_ID;
use super::wake::Wake;
use crate::ingest::{Ingest, Once};
use crate::jobs::supervise::caught;

/// Tenants that are read at once, and those that are drained at once.
const PAGE: usize = 100;
const AT_ONCE: usize = 8;
/// Records of a tenant before others have their turn.
const VISIT_MAX: usize = 100;
/// One that hangs is left alone for a while; what it had under way is found out at the next visit.
const VISIT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a tenant waits after a failure. Doubled by each one that follows, up to the longest wait.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// A record that is younger cannot have been appended under a key that is no longer kept, even where clocks
/// differ.
const KEY_IS_KEPT_MS: u64 = IDEMPOTENCY_RETENTION_MS / 2;
/// Events of a record's action and resource that are compared with it.
const LOOK_BACK_MAX: usize = 1000;
const LOOK_BYTES_MAX: usize = 1 << 20;

/// Whose turn it is to drain a tenant, in this process. Two that drain it at once would find each other's
/// record in flight; the second waits, and mostly finds its own sealed with the first one's.
#[derive(Debug)]
pub struct Turns(TenantShares);

impl Default for Turns {
    fn default() -> Turns {
        Turns(TenantShares::of_each(1))
    }
}

/// What the drain goes by.
pub struct Drain {
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub ingest: Ingest,
    pub world: Arc<dyn World>,
    /// After a change in this process.
    pub wake: Wake,
    /// For what other processes have left, and for retries.
    pub every: Duration,
    pub turns: Turns,
}

/// Tenants that wait after a failure.
#[derive(Default)]
struct Resting(HashMap<TenantId, Rest>);

struct Rest {
    until: Instant,
    pause: Duration,
    /// Of the last round that has found it among those with records.
    round: u64,
}

/// What a round has come to.
#[derive(Default)]
struct Round {
    /// Some tenants have more records than one visit takes.
    more: bool,
    failed: usize,
    first_error: Option<StoreError>,
}

impl Drain {
    /// Goes on until it is dropped.
    pub async fn run(self: Arc<Drain>) {
        let (mut resting, mut number) = (Resting::default(), 0);
        loop {
            number += 1;
            let pause = match self.round(&mut resting, number).await {
                Ok(round) => {
                    if let Some(error) = round.first_error {
                        tracing::warn!(tenants = round.failed, %error, "failed to append records to system chains; retrying with backoff");
                    }
                    if round.more {
                        continue;
                    }
                    resting.next(self.every)
                }
                Err(error) => {
                    tracing::warn!(%error, retry_in_s = self.every.as_secs(), "failed to read the records for system chains; retrying");
                    self.every
                }
            };
            tokio::select! {
                () = self.wake.woken() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Visits every tenant that has records and does not rest.
    async fn round(self: &Arc<Drain>, resting: &mut Resting, number: u64) -> Result<Round, StoreError> {
        let (mut round, mut visits, mut after) = (Round::default(), JoinSet::new(), None);
        loop {
            let tenants = self.control.tenants_with_records(after, PAGE).await?;
            for &tenant_id in &tenants {
                if resting.rests(tenant_id, number) {
                    continue;
                }
                if visits.len() >= AT_ONCE
                    && let Some(Ok(visited)) = visits.join_next().await
                {
                    round.add(visited, resting, number);
                }
                let drain = Arc::clone(self);
                visits.spawn(async move {
                    // A panic is a failure of this tenant's visit: it rests, and is told of.
                    let visit = caught(tokio::time::timeout(VISIT_TIME_MAX, drain.visit(tenant_id))).await;
                    let panicked = |panic| {
                        Err(StoreError::Control(format!("the drain of {tenant_id} panicked: {panic}")))
                    };
                    (
                        tenant_id,
                        visit.map_or_else(panicked, |visit| visit.unwrap_or(Err(StoreError::Deadline))),
                    )
                });
            }
            match tenants.last() {
                Some(last) if tenants.len() == PAGE => after = Some(*last),
                _ => break,
            }
        }
        while let Some(visited) = visits.join_next().await {
            if let Ok(visited) = visited {
                round.add(visited, resting, number);
            }
        }
        // Those that another node has drained meanwhile.
        resting.0.retain(|_, rest| rest.round == number);
        Ok(round)
    }

    /// Appends a tenant's records, oldest first, until there are none, or enough. Whether there may be more.
    pub(super) async fn visit(&self, tenant_id: TenantId) -> Result<bool, StoreError> {
        let _turn = self.turns.0.acquire(tenant_id).await;
        let mut random = [0; 16];
        self.world.fill_random(&mut random);
        let reserved = self.control.system_project(tenant_id, ProjectId::system_from_random(random));
        let Some(project_id) = reserved.await? else {
            return Err(StoreError::Refused(format!("the tenant {tenant_id} does not exist")));
        };
        let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
        for _ in 0..VISIT_MAX {
            // Read again each time: what another node has removed is not to be appended any more.
            let oldest = self.control.pending_records(tenant_id, 1).await?;
            let Some(record) = oldest.first() else { return Ok(false) };
            if !self.has_record(chain, record).await? {
                self.append(chain, record).await?;
            }
            self.control.remove_record(record.id).await?;
        }
        Ok(true)
    }

    async fn append(&self, chain: ChainId, record: &PendingRecord) -> Result<(), StoreError> {
        let refused = |cause: String| StoreError::Refused(format!("the record {} {cause}", record.id));
        let parsed = event::parse_single(record.draft.as_bytes()).and_then(|draft| draft);
        let mut draft = parsed.map_err(|reject| refused(format!("is not a valid event: {reject}")))?;
        // One of a newer version is sealed as it is, without the two.
        if let Some(known) = json::decode(draft.text.fields().action).as_deref().and_then(actions::find) {
            draft.annotations.category = Some(known.category.into());
            draft.annotations.severity = Some(known.severity.into());
        }
        let request_id = Ulid::new(self.world.now_ms(), self.world.random80());
        let (key, fingerprint) = (record.id.to_string(), record.draft.as_bytes());
        match self.ingest.append_once(chain, &key, fingerprint, draft, request_id).await? {
            Once::Done => Ok(()),
            Once::InFlight => Err(refused("is being appended by another server".into())),
            Once::Conflict => Err(refused("has the id of another record".into())),
        }
    }

    /// Whether the chain has a record whose idempotency key it may have forgotten.
    async fn has_record(&self, chain: ChainId, record: &PendingRecord) -> Result<bool, StoreError> {
        let age_ms = self.world.now_ms().checked_sub(record.created_at_ms);
        if age_ms.is_some_and(|age_ms| age_ms < KEY_IS_KEPT_MS) {
            return Ok(false);
        }
        let Ok(Ok(draft)) = event::parse_single(record.draft.as_bytes()) else { return Ok(false) };
        let fields = draft.text.fields();
        let filter = Filter {
            action: Some(fields.action.to_owned()),
            resource: fields.resource.map(str::to_owned),
            ..Filter::default()
        };
        let id = format!("\"{}\"", record.id);
        let (mut before_seq, mut left) = (None, LOOK_BACK_MAX);
        while left > 0 {
            let list =
                List { filter: filter.clone(), before_seq, limit: left.min(100), bytes_max: LOOK_BYTES_MAX };
            let chunk = self.store.list(chain, list).await?;
            if chunk.items.iter().any(|event| record_id(event) == Some(id.as_str())) {
                return Ok(true);
            }
            left -= chunk.items.len().min(left);
            match chunk.resume {
                Some(resume) => before_seq = Some(resume),
                None => break,
            }
        }
        Ok(false)
    }
}

/// As JSON text.
fn record_id(event: &StoredEvent) -> Option<&str> {
    let name = format!("\"{RECORD_ID}\"");
    let metadata = event.text.fields().metadata?;
    Members::of(metadata).find(|(member, _)| *member == name).map(|(_, value)| value)
}

impl Round {
    fn add(
        &mut self,
        (tenant_id, visited): (TenantId, Result<bool, StoreError>),
        resting: &mut Resting,
        number: u64,
    ) {
        match visited {
            Ok(more) => {
                self.more |= more;
                resting.0.remove(&tenant_id);
            }
            Err(error) => {
                self.failed += 1;
                self.first_error.get_or_insert(error);
                resting.add(tenant_id, number);
            }
        }
    }
}

impl Resting {
    fn add(&mut self, tenant_id: TenantId, round: u64) {
        let before = self.0.get(&tenant_id).map(|rest| rest.pause);
        let pause = before.map_or(RETRY_FIRST, |pause| (pause * 2).min(RETRY_LONGEST));
        self.0.insert(tenant_id, Rest { until: Instant::now() + pause, pause, round });
    }

    fn rests(&mut self, tenant_id: TenantId, round: u64) -> bool {
        let Some(rest) = self.0.get_mut(&tenant_id) else { return false };
        rest.round = round;
        rest.until > Instant::now()
    }

    /// Until somebody has rested, and at most `longest`.
    fn next(&self, longest: Duration) -> Duration {
        let now = Instant::now();
        let next = self.0.values().map(|rest| rest.until.saturating_duration_since(now)).min();
        next.map_or(longest, |next| next.min(longest))
    }
}
