//! The contract that every store keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, TenantId, Ulid};
use sealog_core::time::Month;
use sealog_core::verify::{Item, Verdict};

use crate::append::{Append, Appended, IdempotencyKey, KeptKey, Receipt, Reserved, WantedKeys};
use crate::counts::{Counts, Days};
use crate::derived::DerivedStep;
use crate::error::StoreError;
use crate::feed::{Follower, Scope, Start};
use crate::loss::Loss;
use crate::pool::FairPool;
use crate::query::{ChainHead, Chunk, List, Range};
use crate::segments::Segments;
use crate::stats::StoreStats;
use crate::types::BoxFuture;
use crate::verify::{self, ChainReader};

/// The result of one step of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropStep {
    pub events: u64,
    /// There may be more to drop.
    pub more: bool,
}

/// The events that retention deletes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropPlan {
    pub before_ms: u64,
    /// The last event of each chain that goes, with everything before it. Nothing where nothing is old
    /// enough.
    pub chains: Vec<(ChainId, Head)>,
    /// The last segment that goes, of a store that has some.
    pub(crate) through: u64,
}

impl DropPlan {
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.through == 0
    }
}

/// The contract of a store.
///
/// **What is durable when.** `append` and `import` return `Ok` only after the events, the idempotency record
/// and the usage count are on stable storage, in one atomic step: after a crash at any moment either all of a
/// request is there or nothing of it. After `Err` the outcome is unknown to the caller (the request may be
/// there whole, or not at all), which is why a retry carries the same idempotency key.
///
/// **What is visible when.** An event can be read only once it is durable, and at once after its
/// acknowledgement, by everyone. What was once shown never disappears and never changes, but for test events
/// that are dropped for their age; a page that was read never grows.
///
/// **Who decides.** `log_id`, `timestamp`, `chain_seq`, `prev_hash`, `hash`, the idempotency outcome and the
/// usage count are decided in one place, inside `append`. In a chain `chain_seq` has no gaps, `log_id`
/// strictly increases with it and `timestamp` never decreases, whatever the clock does, across restarts.
///
/// **Isolation.** Every operation names its chain, which includes the tenant; nothing of another chain is
/// ever returned.
///
/// **Damage.** A record that fails its checksum is never returned as good: `list` leaves it out, `get` is an
/// error, `range` says where it is.
pub trait Store: Send + Sync {
    /// Looks up an idempotency key and, if it is free, takes it for the caller. A key is in flight from here
    /// until its [`Reservation`] is dropped or the append that it was given to has ended; that state is never
    /// on disk, so it ends with the process.
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>>;

    /// Seals 1 to 100 events as the next of their chain, in order and without another event between them.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>>;

    /// One event by its id, if this chain has it.
    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>>;

    /// Events that match, newest first, below `before_seq`. The work of one call is bounded, whatever the
    /// filter and however the stored values were chosen: a call that has looked at enough returns what it
    /// has, possibly nothing, and where to go on. See [`Chunk`] for how a page becomes whole.
    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>>;

    /// Returns the existing events from `from` to `to`, both included, in ascending order, without the
    /// missing ones.
    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>>;

    /// The chain's last event, and the last one it is known to have had. They differ only when the store has
    /// lost events.
    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>>;

    /// The heads of all chains that have events, system chains among them, in the order of their ids.
    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>>;

    /// Begins to follow what becomes durable: every chain, those of a tenant, or one. [`Follower`] says what
    /// can be relied on. A position that is not of this store, or is of another scope, is refused.
    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>>;

    /// Live events of a tenant that were sealed in a month, but for those of its system chain
    /// ([`ChainId::is_system`]).
    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Returns the counts of a chain for some days. The store updates them as events become durable and can
    /// rebuild them from the log. The work of one call is bounded by the days and by the part of the log that
    /// holds them, never by the number of events. [`Counts::uncounted`] is the number of events that are not
    /// counted yet.
    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>>;

    /// Appends 1 to 100 events that were sealed elsewhere, as they are. They must continue the chain exactly:
    /// each is verified against its predecessor first, and on the first fault nothing is written. With the
    /// key of their request they are the whole request, and a retry of it is answered from them. For copies
    /// and restores; nothing else bypasses sealing.
    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>>;

    /// Idempotency keys of a chain, in the order of their events. Fewer than asked for means that there are
    /// no more. For copies.
    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>>;

    /// Verifies whole chains, each from its first event to its recorded head; the verdicts are in the order
    /// of the chains. Counts events as it checks them. A store that can use all cores for it does.
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

    /// Compares the next piece of derived data with its events: a full segment in the embedded store, a
    /// number of rows in a database. Start with an empty position and continue with [`DerivedStep::next`]; a
    /// position of another store starts over. With `heal`, the step rebuilds mismatches from the events;
    /// without it, it changes nothing. Work and memory of one step are bounded by a segment, and the step
    /// runs at a low priority. A store without derived data has nothing to compare.
    fn check_derived(&self, position: Vec<u8>, heal: bool) -> BoxFuture<'_, Result<DerivedStep, StoreError>> {
        let _ = (position, heal);
        Box::pin(async { Ok(DerivedStep::default()) })
    }

    /// Returns the store's own figures. A store without figures returns the defaults.
    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        Box::pin(async { Ok(StoreStats::default()) })
    }

    /// Accepts the proven loss of a chain's tail, so that the chain accepts events again. The acceptance is
    /// the next event after the last existing one: action `sealog.loss_accepted`, a `log_id` above that of
    /// the recorded head, and `metadata` with `lost_from`, `lost_to`, `recorded_hash` and `reason`. It
    /// becomes the recorded head. Fails without a change for a chain without a loss. `loss.rs` has the event.
    ///
    /// If another event replaced the recorded one, every existing event stays, and the recorded event is the
    /// lost one. If a damaged place may have held more events of the chain, `lost_to` is null. A crash in the
    /// middle leaves either the loss or the acceptance, never neither.
    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        let _ = (chain, reason);
        Box::pin(async { Err(StoreError::Refused("this store cannot accept a loss".into())) })
    }

    /// Returns the events that [`Store::drop_planned`] would delete: the oldest events of test chains that
    /// are older than this, up to a limit, never of live chains. It changes nothing. The caller must record
    /// the plan before the deletion, because a deletion without a record looks forged.
    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        let _ = before_ms;
        Box::pin(async { Err(StoreError::Refused("this store deletes no events".into())) })
    }

    /// Drops what is planned, as much as one step may: of the embedded store a segment, in which every event
    /// has to be older, of a database a number of rows; never more than the plan. A chain begins behind what
    /// was dropped of it ([`ChainHead::dropped`]): lists and verification do, and the next event follows as
    /// if nothing had been. Durable when it returns; a crash in the middle leaves the step undone or done.
    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        let _ = plan;
        Box::pin(async { Err(StoreError::Refused("this store deletes no events".into())) })
    }

    /// Plans and drops one step, without a record of it: for tests. A server goes by a plan that it has
    /// recorded.
    fn drop_test_events(&self, before_ms: u64) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        Box::pin(async move { self.drop_planned(self.plan_drop(before_ms).await?).await })
    }

    /// Records that a chain is known to have had this last event, and has lost it: from now on it accepts no
    /// events until the loss is accepted, and its verification misses what is lost. Its `log_id` may be 0 for
    /// unknown. The caller must have seen that the chain does not have it ([`lacks`]). It is not kept
    /// on disk by a store in a directory: whoever knows of the event records it at each start.
    ///
    /// [`lacks`]: crate::lacking::lacks
    fn record_loss(&self, chain: ChainId, known: Head) -> BoxFuture<'_, Result<(), StoreError>> {
        let _ = (chain, known);
        Box::pin(async { Err(StoreError::Refused("this store records no losses".into())) })
    }

    /// Refuses all events from now on, since the store was rolled back, for this reason; None accepts them
    /// again. What is queued is still written.
    fn set_rolled_back(&self, why: Option<String>) {
        let _ = why;
    }

    /// Chains that accept no events because those that they are known to have had last are lost, with what is
    /// lost, in the order of their ids: what [`Store::accept_loss`] lets go on.
    fn losses(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Loss)>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Known faults of the stored data, in words for the operator. They name files and chains, and quote
    /// nothing from events.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Degradations that do not stop events, in public words (`/readyz` shows them).
    fn notices(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Why that is, in words for the operator: files and errors are named.
    fn degraded(&self) -> Vec<String> {
        Vec::new()
    }

    /// Its files, for a copy. None for a store with its own backup tools.
    fn segments(&self) -> Option<&dyn Segments> {
        None
    }

    /// The threads for everything that must not run on an event loop. The store's own reads run there;
    /// callers parse, hash and render there.
    fn pool(&self) -> &FairPool;

    /// Returns Ok if events can be appended, otherwise the reason.
    fn ready(&self) -> Result<(), StoreError>;
}

/// Every store's chains can be verified.
impl<S: Store + ?Sized> ChainReader for S {
    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        Store::head(self, chain)
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        Store::range(self, chain, range)
    }

    fn pool(&self) -> &FairPool {
        Store::pool(self)
    }
}
