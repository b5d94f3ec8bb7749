//! A store so simple that it can be read for the rules: everything in memory, every question answered by
//! looking at everything.
//!
//! Tests compare other stores with it. It keeps nothing over a restart and must not be used for anything
//! else.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sealog_core::chain::Head;
use sealog_core::event::{Annotations, BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, TenantId, Ulid};
use sealog_core::time::Month;
use sealog_core::verify::{self, Item};

use crate::append::{
    Append, Appended, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, Receipt, Reservation, Reserved,
    WantedKeys, check_schema,
};
use crate::counts::event::count;
use crate::counts::{Counts, Days};
use crate::error::StoreError;
use crate::feed::{self, Change, Follower, Hub, Kind, Position, Registration, Scope, Source, Start};
use crate::loss::{self, Loss};
use crate::pool::FairPool;
use crate::query::{ChainHead, Chunk, List, Range};
use crate::store::{DropPlan, DropStep, Store};
use crate::types::BoxFuture;
use crate::world::World;

/// Events that do not match and that one list looks at. Small, so that every test that compares with this
/// store goes on behind pieces that end early.
const LIST_MISSES_MAX: usize = 50;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub struct ReferenceStore {
    world: Arc<dyn World>,
    state: Arc<Mutex<State>>,
    feed: Arc<Hub<()>>,
    /// Which store this is, for positions of its feed.
    id: u64,
    in_flight: Arc<Mutex<HashSet<(ChainId, Hash)>>>,
    /// Started when it is needed: most tests need none.
    pool: OnceLock<FairPool>,
}

#[derive(Debug, Default)]
struct State {
    chains: BTreeMap<ChainId, Vec<StoredEvent>>,
    keys: BTreeMap<(ChainId, [u8; 32]), UsedKey>,
    /// The last event that was dropped of each chain.
    dropped: BTreeMap<ChainId, Head>,
    /// Heads of chains that have lost their last events.
    lost: BTreeMap<ChainId, Head>,
    /// Each chain's last change, and how many there were in all.
    changed: BTreeMap<ChainId, u64>,
    changes: u64,
    /// Why no events are taken.
    rolled_back: Option<String>,
}

impl State {
    fn change(&mut self, chain: ChainId) {
        self.changes += 1;
        self.changed.insert(chain, self.changes);
    }
}

#[derive(Debug)]
struct UsedKey {
    fingerprint: Hash,
    received_ms: u64,
    receipt: Receipt,
}

impl ReferenceStore {
    pub fn new(world: Arc<dyn World>) -> ReferenceStore {
        ReferenceStore {
            world,
            state: Arc::default(),
            feed: Arc::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            in_flight: Arc::default(),
            pool: OnceLock::new(),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().expect("reference store lock"))
    }

    /// Followers that wait end.
    pub fn close(&self) {
        self.feed.close();
    }

    /// Tells followers of a change that succeeded.
    fn announced<T>(&self, chain: ChainId, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_ok() {
            self.feed.registry().wake(std::iter::once(chain));
        }
        done
    }

    /// Loses the events of a chain from this one on, as a disk might. For tests.
    pub fn lose_from(&self, chain: ChainId, chain_seq: u64) {
        self.with(|state| {
            let recorded = head_of(state, chain);
            let events = state.chains.entry(chain).or_default();
            events.retain(|event| event.sealed.chain_seq < chain_seq);
            state.keys.retain(|(of, _), used| *of != chain || used.receipt.last_seq() < chain_seq);
            state.lost.entry(chain).or_insert(recorded);
        });
    }

    fn accept_loss_now(&self, chain: ChainId, reason: &str) -> Result<Receipt, StoreError> {
        loss::check_reason(reason)?;
        self.with(|state| {
            let recorded = state.lost.remove(&chain).ok_or_else(loss::nothing_lost)?;
            let head =
                ChainHead { durable: head_of(state, chain), recorded, dropped: dropped_of(state, chain) };
            let draft = Loss::of(&head).draft(reason);
            let base = loss::base(&head);
            let sealed = base.seal(chain.tenant_id, &draft.text, self.world.now_ms(), self.world.random80());
            state.chains.entry(chain).or_default().push(StoredEvent::new(chain, sealed, draft));
            state.change(chain);
            Ok(Receipt {
                request_id: None,
                log_ids: vec![sealed.log_id],
                first_seq: sealed.chain_seq,
                hash: sealed.hash,
            })
        })
    }

    fn find_key(&self, state: &State, chain: ChainId, key: &IdempotencyKey) -> Option<Appended> {
        let used = state.keys.get(&(chain, key.key_hash.0))?;
        if self.world.now_ms() >= used.received_ms.saturating_add(IDEMPOTENCY_RETENTION_MS) {
            return None;
        }
        Some(if used.fingerprint == key.fingerprint {
            Appended::Replayed(used.receipt.clone())
        } else {
            Appended::Conflict
        })
    }

    fn append_now(&self, append: Append) -> Result<Appended, StoreError> {
        append.check_key()?;
        let Append { chain, drafts, idempotency } = append;
        check_count(drafts.len())?;
        self.with(|state| {
            if let Some((reservation, _)) = &idempotency
                && let Some(decided) = self.find_key(state, chain, &reservation.key)
            {
                return Ok(decided);
            }
            if let Some(why) = &state.rolled_back {
                return Err(StoreError::RolledBack(why.clone()));
            }
            if state.lost.contains_key(&chain) {
                return Err(StoreError::HeadUnproven { chain });
            }
            let received_ms = self.world.now_ms();
            let mut head = head_of(state, chain);
            let events = state.chains.entry(chain).or_default();
            let first_seq = head.chain_seq + 1;
            let mut log_ids = Vec::new();
            for draft in drafts {
                let sealed = head.seal(chain.tenant_id, &draft.text, received_ms, self.world.random80());
                head = sealed.head();
                log_ids.push(sealed.log_id);
                events.push(StoredEvent::new(chain, sealed, draft));
            }
            state.change(chain);
            let request_id = idempotency.as_ref().map(|(_, request_id)| *request_id);
            let receipt = Receipt { request_id, log_ids, first_seq, hash: head.hash };
            if let Some((reservation, _)) = &idempotency {
                let used = UsedKey {
                    fingerprint: reservation.key.fingerprint,
                    received_ms,
                    receipt: receipt.clone(),
                };
                state.keys.insert((chain, reservation.key.key_hash.0), used);
            }
            Ok(Appended::Sealed(receipt))
        })
    }

    fn list_now(&self, chain: ChainId, list: &List) -> Chunk<StoredEvent> {
        let mut chunk = Chunk { items: Vec::new(), resume: None };
        let (mut bytes, mut misses) = (0, 0);
        self.with(|state| {
            for event in state.chains.get(&chain).into_iter().flatten().rev() {
                let seq = event.sealed.chain_seq;
                if list.before_seq.is_some_and(|before| seq >= before) {
                    continue;
                }
                if !list.filter.matches(event) {
                    misses += 1;
                    if misses == LIST_MISSES_MAX {
                        chunk.resume = Some(seq);
                        break;
                    }
                    continue;
                }
                bytes += event.text.as_str().len();
                chunk.items.push(event.clone());
                if chunk.items.len() >= list.limit || bytes >= list.bytes_max {
                    chunk.resume = Some(seq);
                    break;
                }
            }
        });
        chunk
    }

    fn range_now(&self, chain: ChainId, range: Range) -> Chunk<Item> {
        let mut chunk = Chunk { items: Vec::new(), resume: None };
        let mut bytes = 0;
        self.with(|state| {
            for event in state.chains.get(&chain).into_iter().flatten() {
                let seq = event.sealed.chain_seq;
                if !(range.from..=range.to).contains(&seq) {
                    continue;
                }
                bytes += event.text.as_str().len();
                chunk.items.push(Item::Event(Box::new(event.clone())));
                if bytes >= range.bytes_max {
                    chunk.resume = Some(seq + 1);
                    break;
                }
            }
        });
        chunk
    }

    fn import_now(
        &self,
        chain: ChainId,
        events: &[StoredEvent],
        key: Option<KeptKey>,
    ) -> Result<Head, StoreError> {
        check_count(events.len())?;
        if let Some(key) = &key {
            key.check(events)?;
        }
        if events.iter().any(|event| event.chain(chain.mode) != chain) {
            return Err(StoreError::Refused("an event belongs to another tenant or project".into()));
        }
        check_schema(events)?;
        self.with(|state| {
            if state.lost.contains_key(&chain) {
                return Err(StoreError::HeadUnproven { chain });
            }
            let head = head_of(state, chain);
            let stored = state.chains.entry(chain).or_default();
            let last = verify::continues(&head, events).map_err(|broken| {
                StoreError::Refused(format!("event {} does not continue the chain", broken.at))
            })?;
            stored.extend(events.iter().cloned());
            state.change(chain);
            if let Some(KeptKey { key, request_id, received_ms, first_seq, .. }) = key {
                let log_ids = events.iter().map(|event| event.sealed.log_id).collect();
                let receipt = Receipt { request_id: Some(request_id), log_ids, first_seq, hash: last.hash };
                let used = UsedKey { fingerprint: key.fingerprint, received_ms, receipt };
                state.keys.insert((chain, key.key_hash.0), used);
            }
            Ok(last)
        })
    }

    fn kept_keys_now(&self, chain: ChainId, wanted: WantedKeys) -> Vec<KeptKey> {
        let mut kept: Vec<KeptKey> = self.with(|state| {
            let of_chain = state.keys.iter().filter(|((of, _), _)| *of == chain);
            let kept = of_chain.filter_map(|((_, key_hash), used)| {
                Some(KeptKey {
                    key: IdempotencyKey { key_hash: Hash(*key_hash), fingerprint: used.fingerprint },
                    request_id: used.receipt.request_id?,
                    received_ms: used.received_ms,
                    first_seq: used.receipt.first_seq,
                    events: used.receipt.log_ids.len(),
                })
            });
            kept.filter(|key| key.first_seq >= wanted.from && key.received_ms > wanted.received_after_ms)
                .collect()
        });
        kept.sort_by_key(|key| key.first_seq);
        kept.truncate(wanted.limit);
        kept
    }
}

impl ReferenceStore {
    fn locate(&self, position: &Position, scope: &Scope) -> Result<u64, StoreError> {
        let content = position.content(Kind::Reference, scope)?;
        let (id, after) = content.split_at_checked(8).ok_or_else(feed::malformed)?;
        if id != self.id.to_le_bytes() {
            return Err(feed::foreign());
        }
        after.try_into().map(u64::from_le_bytes).map_err(|_| feed::malformed())
    }
}

impl Drop for ReferenceStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Announces each chain whose last change is above a number, in the order of these.
#[derive(Debug)]
struct ReferenceFollower {
    state: Arc<Mutex<State>>,
    id: u64,
    scope: Scope,
    after: u64,
    /// Chains that had changed at the barrier and are not announced yet.
    before_barrier: BTreeSet<ChainId>,
    registration: Registration<()>,
}

impl Source for ReferenceFollower {
    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Change>, StoreError>> {
        Box::pin(async move {
            loop {
                let changes = self.changes(limit);
                if !changes.is_empty() {
                    return Ok(changes);
                }
                self.registration.wait().await?;
            }
        })
    }

    fn set_barrier(&mut self) {
        self.before_barrier = self.changed().into_iter().map(|(_, chain)| chain).collect();
    }

    fn next_before_barrier(
        &mut self,
        limit: usize,
    ) -> BoxFuture<'_, Result<Option<Vec<Change>>, StoreError>> {
        let changes = if self.before_barrier.is_empty() { Vec::new() } else { self.changes(limit) };
        for change in &changes {
            self.before_barrier.remove(&change.chain);
        }
        Box::pin(async move { Ok((!changes.is_empty()).then_some(changes)) })
    }

    fn position(&self) -> Position {
        let content = [self.id.to_le_bytes(), self.after.to_le_bytes()].concat();
        Position::new(Kind::Reference, &self.scope, &content)
    }
}

impl ReferenceFollower {
    /// Chains that are to be announced, in the order of their last changes.
    fn changed(&self) -> Vec<(u64, ChainId)> {
        let state = self.state.lock().expect("reference store lock");
        let of_scope = state.changed.iter().filter(|(chain, _)| self.scope.contains(**chain));
        let changed = of_scope.map(|(chain, change)| (*change, *chain));
        let mut changed: Vec<_> = changed.filter(|(change, _)| *change > self.after).collect();
        changed.sort_unstable();
        changed
    }

    fn changes(&mut self, limit: usize) -> Vec<Change> {
        let mut changed = self.changed();
        changed.truncate(limit);
        self.after = changed.last().map_or(self.after, |(change, _)| *change);
        let state = self.state.lock().expect("reference store lock");
        changed.into_iter().map(|(_, chain)| Change { chain, head: head_of(&state, chain) }).collect()
    }
}

fn head_of(state: &State, chain: ChainId) -> Head {
    let last = state.chains.get(&chain).and_then(|events| events.last());
    last.map_or_else(|| dropped_of(state, chain), StoredEvent::head)
}

fn dropped_of(state: &State, chain: ChainId) -> Head {
    state.dropped.get(&chain).copied().unwrap_or(Head::EMPTY)
}

fn check_count(count: usize) -> Result<(), StoreError> {
    if (1..=BATCH_EVENTS_MAX).contains(&count) {
        return Ok(());
    }
    Err(StoreError::Refused(format!("a request must have 1 to {BATCH_EVENTS_MAX} events, not {count}")))
}

impl Store for ReferenceStore {
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        Box::pin(async move {
            if !self.in_flight.lock().expect("reference store lock").insert((chain, key.key_hash)) {
                return Ok(Reserved::InFlight);
            }
            let in_flight = Arc::clone(&self.in_flight);
            let reservation = Reservation::new(chain, key, move || {
                in_flight.lock().expect("reference store lock").remove(&(chain, key.key_hash));
            });
            Ok(match self.with(|state| self.find_key(state, chain, &key)) {
                None => Reserved::Fresh(reservation),
                Some(Appended::Conflict) => Reserved::Conflict,
                Some(Appended::Replayed(receipt) | Appended::Sealed(receipt)) => Reserved::Replay(receipt),
            })
        })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let chain = append.chain;
        Box::pin(async move { self.announced(chain, self.append_now(append)) })
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        let found = self.with(|state| {
            state
                .chains
                .get(&chain)
                .into_iter()
                .flatten()
                .find(|event| event.sealed.log_id == log_id)
                .cloned()
        });
        Box::pin(async move { Ok(found) })
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        Box::pin(async move { Ok(self.list_now(chain, &list)) })
    }

    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        let chains = self.with(|state| {
            let tests = state.chains.iter().filter(|(chain, _)| chain.mode == Mode::Test);
            let last = |events: &Vec<StoredEvent>| {
                events.iter().take_while(|event| event.timestamp_ms < before_ms).last().map(StoredEvent::head)
            };
            tests.filter_map(|(chain, events)| Some((*chain, last(events)?))).collect()
        });
        Box::pin(async move { Ok(DropPlan { before_ms, chains, ..DropPlan::default() }) })
    }

    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        let events = self.with(|state| {
            let mut count = 0;
            for (chain, last) in plan.chains {
                let Some(events) = state.chains.get_mut(&chain) else { continue };
                let old = events.iter().take_while(|event| event.sealed.chain_seq <= last.chain_seq).count();
                events.drain(..old);
                state.dropped.insert(chain, last);
                count += old as u64;
            }
            count
        });
        Box::pin(async move { Ok(DropStep { events, more: false }) })
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        Box::pin(async move { Ok(self.range_now(chain, range)) })
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        let head = self.with(|state| {
            let durable = head_of(state, chain);
            let recorded = state.lost.get(&chain).copied().unwrap_or(durable);
            ChainHead { durable, recorded, dropped: dropped_of(state, chain) }
        });
        Box::pin(async move { Ok(head) })
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        let heads = self.with(|state| {
            let heads = state.chains.keys().map(|chain| (*chain, head_of(state, *chain)));
            heads.filter(|(_, head)| head.chain_seq > 0).collect()
        });
        Box::pin(async move { Ok(heads) })
    }

    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>> {
        let after = match &start {
            Start::Beginning => Ok(0),
            Start::Now => Ok(self.with(|state| state.changes)),
            Start::After(position) => self.locate(position, &scope),
        };
        let follower = after.map(|after| {
            Follower::new(ReferenceFollower {
                state: Arc::clone(&self.state),
                id: self.id,
                scope,
                after,
                before_barrier: BTreeSet::new(),
                registration: self.feed.register(scope),
            })
        });
        Box::pin(async move { follower })
    }

    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>> {
        let mut counts = Counts::default();
        self.with(|state| {
            for event in state.chains.get(&chain).into_iter().flatten() {
                let Annotations { severity, country, .. } = &event.annotations;
                let (severity, country) = (severity.as_deref(), country.as_deref());
                count(&mut counts.days, event.timestamp_ms, &event.text.fields(), severity, country);
            }
        });
        counts.days.retain(|day, _| days.range().contains(day));
        Box::pin(async move { Ok(counts) })
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        let count = self.with(|state| {
            let counts = |chain: ChainId| chain.mode == Mode::Live && !chain.is_system();
            let chains = state.chains.iter();
            chains
                .filter(|(chain, _)| chain.tenant_id == tenant_id && counts(**chain))
                .flat_map(|(_, events)| events)
                .filter(|event| Month::of(event.timestamp_ms) == month)
                .count()
        });
        Box::pin(async move { Ok(count as u64) })
    }

    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>> {
        Box::pin(async move { self.announced(chain, self.import_now(chain, &events, key)) })
    }

    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>> {
        Box::pin(async move { Ok(self.kept_keys_now(chain, wanted)) })
    }

    fn losses(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Loss)>, StoreError>> {
        let losses = self.with(|state| {
            let loss = |(chain, recorded): (&ChainId, &Head)| {
                let head = ChainHead {
                    durable: head_of(state, *chain),
                    recorded: *recorded,
                    dropped: dropped_of(state, *chain),
                };
                (*chain, Loss::of(&head))
            };
            state.lost.iter().map(loss).collect()
        });
        Box::pin(async move { Ok(losses) })
    }

    fn record_loss(&self, chain: ChainId, known: Head) -> BoxFuture<'_, Result<(), StoreError>> {
        self.with(|state| _ = state.lost.insert(chain, known));
        Box::pin(async { Ok(()) })
    }

    fn set_rolled_back(&self, why: Option<String>) {
        self.with(|state| state.rolled_back = why);
    }

    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        Box::pin(async move { self.announced(chain, self.accept_loss_now(chain, &reason)) })
    }

    fn pool(&self) -> &FairPool {
        self.pool.get_or_init(|| FairPool::with_threads(1, 1))
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.with(|state| state.rolled_back.clone().map_or(Ok(()), |why| Err(StoreError::RolledBack(why))))
    }
}
