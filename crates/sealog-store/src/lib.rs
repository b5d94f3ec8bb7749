//! Where sealed events are kept.
//!
//! [`Store`] is a seam of whole operations, never of rows: each store is free inside, and one conformance suite (`tests/conformance`) holds for all of them.

pub mod clock;
pub mod embedded;
pub mod feed;
pub mod loss;
pub mod pool;
pub mod postgres;
pub mod reference;
pub mod stats;
pub mod sync;
pub mod turns;
pub mod verify;
pub mod world;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::chain::Head;
use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Hash, TenantId, Ulid};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_core::verify::{Item, Verdict};

use crate::feed::{Follower, Scope, Start};
use crate::pool::FairPool;
use crate::stats::StoreStats;

/// A table by id. For ids that are made here, or are digests: nobody outside can choose them so that they collide.
pub type IdMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A head further ahead of the clock than this means that the clock was wrong, or is.
pub const HEAD_AHEAD_MS: u64 = 5 * 60 * 1000;

/// How long an idempotency key is kept after the request was received. Spec 4.1.
pub const IDEMPOTENCY_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// The contract of a store.
///
/// **What is durable when.** `append` and `import` return `Ok` only after the events, the idempotency record and the usage count are on stable storage,
/// in one atomic step: after a crash at any moment either all of a request is there or nothing of it. After `Err` the outcome is unknown to the caller
/// (the request may be there whole, or not at all), which is why a retry carries the same idempotency key.
///
/// **What is visible when.** An event can be read only once it is durable, and at once after its acknowledgement, by everyone. What was once shown never
/// disappears and never changes; a page that was read never grows.
///
/// **Who decides.** `log_id`, `timestamp`, `chain_seq`, `prev_hash`, `hash`, the idempotency outcome and the usage count are decided in one place, inside `append`.
/// In a chain `chain_seq` has no gaps, `log_id` strictly increases with it and `timestamp` never decreases, whatever the clock does, across restarts.
///
/// **Isolation.** Every operation names its chain, which includes the tenant; nothing of another chain is ever returned.
///
/// **Damage.** A record that fails its checksum is never returned as good: `list` leaves it out, `get` is an error, `range` says where it is.
pub trait Store: Send + Sync {
    /// Looks up an idempotency key and, if it is free, takes it for the caller. A key is in flight from here until its [`Reservation`] is dropped or the
    /// append that it was given to has ended; that state is never on disk, so it ends with the process.
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>>;

    /// Seals 1 to 100 events as the next of their chain, in order and without another event between them.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// One event by its id, if this chain has it.
    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>>;

    /// Events that match, newest first, below `before_seq`. The work of one call is bounded, whatever the filter and however the stored values were chosen: a call that has looked
    /// at enough returns what it has, possibly nothing, and where to go on. See [`Chunk`] for how a page becomes whole.
    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>>;

    /// What exists from `from` up to `to`, both included, in ascending order; missing events are simply not there.
    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>>;

    /// The chain's last event, and the last one it is known to have had. They differ only when the store has lost events.
    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>>;

    /// The heads of all chains that have events, system chains among them, in the order of their ids.
    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>>;

    /// Begins to follow what becomes durable: every chain, those of a tenant, or one. [`Follower`] says what can be relied on. A position that is not of this store, or is of another
    /// scope, is refused.
    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>>;

    /// Live events of a tenant that were sealed in a month, but for those of its system chain ([`ChainId::is_system`]).
    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Appends 1 to 100 events that were sealed elsewhere, as they are. They must continue the chain exactly: each is verified against its predecessor first,
    /// and on the first fault nothing is written. With the key of their request they are the whole request, and a retry of it is answered from them.
    /// For copies and restores; nothing else bypasses sealing.
    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>>;

    /// Idempotency keys of a chain, in the order of their events. Fewer than asked for means that there are no more. For copies.
    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>>;

    /// Verifies whole chains, each from its first event to its recorded head; the verdicts are in the order of the chains. Counts events as it checks them.
    /// A store that can use all cores for it does.
    fn audit(
        &self,
        chains: Vec<ChainId>,
        progress: Arc<AtomicU64>,
    ) -> BoxFuture<'_, Result<Vec<Verdict>, StoreError>> {
        Box::pin(async move {
            let mut verdicts = Vec::with_capacity(chains.len());
            for chain in chains {
                let verdict = verify::whole(self, chain).await?;
                progress.fetch_add(verdict.checked, Ordering::Relaxed);
                verdicts.push(verdict);
            }
            Ok(verdicts)
        })
    }

    /// What the store counts of itself. A store that counts nothing says nothing.
    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        Box::pin(async { Ok(StoreStats::default()) })
    }

    /// Lets a chain whose tail is proven lost go on without it. The acceptance is the next event after the last one that exists: action `sealog.loss_accepted`, a
    /// `log_id` above that of the recorded head, and `metadata` with `lost_from`, `lost_to`, `recorded_hash` and `reason`. From then on the recorded head is that event's.
    /// Refused, and nothing is changed, for a chain that has lost nothing. [`loss`] has the event.
    ///
    /// Where another event stands in place of the recorded one, everything that exists stays, and the recorded event is the one that is lost. Where a damaged place may have held
    /// more of the chain, `lost_to` is null. A crash in the middle leaves either the loss as it was or the acceptance in place, never neither.
    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        let _ = (chain, reason);
        Box::pin(async { Err(StoreError::Refused("this store cannot accept a loss".into())) })
    }

    /// What is degraded although events are accepted, in words that anybody may read (`/readyz` shows them).
    fn notices(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The threads for everything that must not run on an event loop. The store's own reads run there; callers parse, hash and render there.
    fn pool(&self) -> &FairPool;

    /// Whether events can be appended, or why not.
    fn ready(&self) -> Result<(), StoreError>;
}

/// A client's `Idempotency-Key` and what it stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// SHA-256 of the key.
    pub key_hash: Hash,
    /// SHA-256 over endpoint and body: what makes two requests the same.
    pub fingerprint: Hash,
}

/// A key that was used, as it is kept: with the answer that a retry gets, and what that answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptKey {
    pub key: IdempotencyKey,
    /// Of the answer.
    pub request_id: Ulid,
    /// Its 24 hours begin here.
    pub received_ms: u64,
    /// Of the request's first event.
    pub first_seq: u64,
    /// How many events the request had.
    pub events: usize,
}

impl KeptKey {
    /// A key with a part of its request would replay an answer that was never given.
    pub(crate) fn check(&self, events: &[StoredEvent]) -> Result<(), StoreError> {
        let first_seq = events.first().map(|event| event.sealed.chain_seq);
        if first_seq == Some(self.first_seq) && events.len() == self.events {
            return Ok(());
        }
        Err(StoreError::Refused("the idempotency key belongs to other events".into()))
    }
}

/// Which keys to read: of requests whose events begin at `from` or later and that were received after a time, at most so many.
#[derive(Clone, Copy, Debug)]
pub struct WantedKeys {
    pub from: u64,
    pub received_after_ms: u64,
    pub limit: usize,
}

#[derive(Debug)]
pub enum Reserved {
    /// The key is free and now the caller's.
    Fresh(Reservation),
    /// The same request was acknowledged within the last 24 hours.
    Replay(Receipt),
    /// The key was used for another request within the last 24 hours.
    Conflict,
    /// A request with this key is being processed.
    InFlight,
}

/// Holds an idempotency key while its request is processed; frees it when dropped.
pub struct Reservation {
    pub(crate) chain: ChainId,
    pub(crate) key: IdempotencyKey,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Reservation {
    pub(crate) fn new(
        chain: ChainId,
        key: IdempotencyKey,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Reservation {
        Reservation { chain, key, release: Some(Box::new(release)) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// A request to append.
#[derive(Debug)]
pub struct Append {
    pub chain: ChainId,
    pub drafts: Vec<Draft>,
    /// The key under which the answer is kept, and the `request_id` that the answer carries.
    pub idempotency: Option<(Reservation, Ulid)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    Sealed(Receipt),
    /// Between the reservation and here the same request was acknowledged.
    Replayed(Receipt),
    /// Between the reservation and here another request was acknowledged under the key.
    Conflict,
}

/// What an acknowledgement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Of the original answer; nothing for a request without an idempotency key.
    pub request_id: Option<Ulid>,
    pub log_ids: Vec<Ulid>,
    pub first_seq: u64,
    /// Of the last event.
    pub hash: Hash,
}

impl Receipt {
    pub fn last_seq(&self) -> u64 {
        self.first_seq + self.log_ids.len() as u64 - 1
    }
}

/// What to list.
#[derive(Clone, Debug)]
pub struct List {
    pub filter: Filter,
    pub before_seq: Option<u64>,
    pub limit: usize,
    pub bytes_max: usize,
}

/// What to read for a verification.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub from: u64,
    pub to: u64,
    pub bytes_max: usize,
}

/// An event of a later schema cannot be kept as it is by a program that does not know it, and must not be kept as something else.
pub(crate) fn check_schema(events: &[StoredEvent]) -> Result<(), StoreError> {
    match events.iter().find(|event| !event.has_known_schema()) {
        None => Ok(()),
        Some(event) => Err(StoreError::Refused(format!(
            "event {} has schema_version {}, which this version does not know; use a newer one",
            event.sealed.chain_seq, event.schema_version
        ))),
    }
}

/// What a look-up of one record counts in the thread pool, in bytes.
pub(crate) const LOOKUP_COST: usize = 4 << 10;
/// What a record among others counts, before its size is known.
const RECORD_COST: usize = 1 << 10;

impl List {
    /// In the thread pool: what an everyday page takes.
    pub(crate) fn cost(&self) -> usize {
        LOOKUP_COST + self.bytes_max.min(self.limit.saturating_mul(RECORD_COST))
    }
}

impl Range {
    pub(crate) fn cost(&self) -> usize {
        let events = usize::try_from(self.to.saturating_sub(self.from)).unwrap_or(usize::MAX);
        LOOKUP_COST + self.bytes_max.min(events.saturating_mul(RECORD_COST))
    }
}

/// A piece of an answer. An event can have two megabytes, so a page of a hundred must not stand in memory whole: a read stops when it has `bytes_max` bytes, and says where to
/// go on. Events never change and are only added above, so the pieces fit together.
///
/// Only `resume: None` says that there is no more. A range returns at least one item if there is any. A list may return fewer items than asked for, even none, with `resume` set: it has
/// looked at as many events as one call may. Each piece goes on strictly below (of a list) or above (of a range) where it began, so following `resume` always ends.
#[derive(Debug)]
pub struct Chunk<T> {
    pub items: Vec<T>,
    /// Where the next piece begins (`before_seq` of a list, `from` of a range), or nothing when there is no more.
    pub resume: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The last event that is there; [`Head::EMPTY`] for none.
    pub durable: Head,
    /// The last event that is known to have been there. Before `durable` when the chain has another event in its place by now.
    pub recorded: Head,
}

impl ChainHead {
    /// The last event that is there or is known to have been.
    pub fn end(&self) -> Head {
        if self.recorded.chain_seq < self.durable.chain_seq { self.durable } else { self.recorded }
    }
}

/// A failure that is not the client's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A write or sync failed. Appends stay refused until the process is started again; reads go on.
    Poisoned(String),
    /// There is no room for another segment. Appends resume by themselves when there is.
    NoRoom,
    /// Too much is waiting to be written.
    QueueFull,
    /// The disk has not finished a write for so long that requests fail by their deadline. Appends resume by themselves when it does.
    Stalled,
    /// The request waited too long for its turn and was not written.
    Deadline,
    /// The database cannot be reached, refuses or did not answer. Whether the request was written is unknown; appends resume by themselves.
    Unavailable(String),
    /// The chain's last events are known to be lost or damaged, so nothing can be sealed on top of them.
    HeadUnproven { chain: ChainId },
    /// The clock has leapt forward, and the setting `clock.strict` refuses to believe it. Appends resume by themselves when it is set right.
    ClockLeapt,
    /// The store is closing.
    Closing,
    /// A request that the store cannot hold, events that do not continue their chain, or a position that is not of this feed.
    Refused(String),
    /// The record of this event is damaged.
    Damaged { chain_seq: u64 },
    /// Reading failed.
    Read(String),
    /// A change of control data failed and was not made, or is not known to have been made.
    Control(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Poisoned(cause) => write!(
                f,
                "a write to the store failed earlier ({cause}); it accepts no more events until it is started again"
            ),
            StoreError::NoRoom => f.write_str("the disk has no room for another segment"),
            StoreError::QueueFull => f.write_str("too many events are waiting to be written"),
            StoreError::Stalled => {
                f.write_str("the disk has not finished a write for seconds; events wait for it or are refused")
            }
            StoreError::Deadline => f.write_str("the event waited too long to be written"),
            StoreError::Unavailable(cause) => write!(f, "the database cannot be used now: {cause}"),
            StoreError::HeadUnproven { chain } => write!(
                f,
                "the last events of chain {chain} are lost or damaged; nothing can be sealed on top of them"
            ),
            StoreError::ClockLeapt => f.write_str(
                "the clock has leapt forward by more than an hour and clock.strict is set; set the clock right, or start the server again if it is right",
            ),
            StoreError::Closing => f.write_str("the store is closing"),
            StoreError::Refused(why) => f.write_str(why),
            StoreError::Damaged { chain_seq } => write!(f, "the record of event {chain_seq} is damaged"),
            StoreError::Read(cause) => write!(f, "reading failed: {cause}"),
            StoreError::Control(cause) => write!(f, "the control data could not be changed: {cause}"),
        }
    }
}

impl std::error::Error for StoreError {}
