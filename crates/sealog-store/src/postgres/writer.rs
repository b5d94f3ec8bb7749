//! Appending: each node groups what waits for a chain, and writes one group at a time in one transaction.
//!
//! ```text
//! t0  BEGIN; wait in the chain's queue; lock the chain's row; read the clock and the last event; look up the
//!     keys one round trip
//! t1  add the requests that arrived while the lock was waited for (their keys cost one more round trip), and
//!     seal, here, with the same functions as every store
//! t2  insert events, keys and usage; set the head; COMMIT one round trip
//! t3  answer
//! ```
//! Up to t2 nothing has happened: a failure leaves nothing. From the moment COMMIT was sent until its answer
//! the outcome is unknown, which the caller is told by an error; its key finds out. A node that is stopped
//! between t0 and t2 loses its lock when the server ends its session, and everything that it sends then
//! fails.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use futures_util::future::{join, maybe_done};
use sealog_core::canonical::EventText;
use sealog_core::chain::Head;
use sealog_core::event::{BATCH_EVENTS_MAX, Draft, SCHEMA_VERSION, StoredEvent};
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::time::Month;
use sealog_core::verify;
use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, SimpleQueryRow};

use super::chain_row;
use super::error::{unavailable, unsafe_storage};
use super::event_clock::EventClock;
use super::hub::Feed;
use super::loss::{self, Finding, Findings};
use super::options::Options;
use super::pool::{Pool, Prepared, Session};
use super::rows::{self, Digest32, EventColumns, Id, signed, unsigned};
use super::statements::{self, CommitPhase, LockPhase, Text, pieces};
use super::tenant_share::TenantShares;
use crate::append::{
    Append, Appended, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, Receipt, Reservation, check_schema,
};
use crate::error::StoreError;
use crate::loss::Loss;
use crate::stats::{Histogram, LogStats};

/// Events of one group. More would hold the chain's row for longer than it saves.
const GROUP_EVENTS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Writer {
    options: Options,
    lock_phase: LockPhase,
    commit_phase: CommitPhase,
    pool: Arc<Pool>,
    shared: Mutex<Shared>,
    /// Chains that could not be locked lately share half of the connections, so that the others keep the
    /// rest.
    contested: Semaphore,
    shares: TenantShares,
    /// Live and test.
    times: [Times; 2],
    findings: Arc<Findings>,
    clock: Arc<EventClock>,
    feed: Arc<Feed>,
}

#[derive(Debug)]
struct Times {
    append: Histogram,
    commit: Histogram,
}

#[derive(Debug, Default)]
struct Shared {
    queues: HashMap<ChainId, ChainQueue>,
    queued_bytes: usize,
    /// Chains that could not be locked the last time.
    contested: HashSet<ChainId>,
    closing: bool,
    /// The last heads that this node has acknowledged.
    acknowledged: HashMap<ChainId, Head>,
    /// Those of them that have changed since they were asked for.
    changed: HashMap<ChainId, Head>,
}

/// Requests that wait for a chain. The queue exists for as long as a driver works on it.
#[derive(Debug, Default)]
struct ChainQueue {
    requests: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    work: Work,
    events: usize,
    bytes: usize,
    queued: Instant,
}

#[derive(Debug)]
enum Work {
    Append {
        drafts: Vec<Draft>,
        idempotency: Option<(Reservation, Ulid)>,
        answer: oneshot::Sender<Result<Appended, StoreError>>,
    },
    Import {
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
        answer: oneshot::Sender<Result<Head, StoreError>>,
    },
}

/// What became of one request of a group.
enum Outcome {
    Appended(Appended),
    Imported(Head),
    Refused(StoreError),
}

impl Request {
    fn answer(self, outcome: Outcome) {
        match (self.work, outcome) {
            (Work::Append { idempotency, answer, .. }, outcome) => {
                // The key is free before its owner hears of it.
                drop(idempotency);
                let _ = answer.send(match outcome {
                    Outcome::Appended(appended) => Ok(appended),
                    Outcome::Refused(error) => Err(error),
                    Outcome::Imported(_) => unreachable!("an append is not answered with an import"),
                });
            }
            (Work::Import { answer, .. }, outcome) => {
                let _ = answer.send(match outcome {
                    Outcome::Imported(head) => Ok(head),
                    Outcome::Refused(error) => Err(error),
                    Outcome::Appended(_) => unreachable!("an import is not answered with an append"),
                });
            }
        }
    }

    fn key(&self) -> Option<&IdempotencyKey> {
        match &self.work {
            Work::Append { idempotency: Some((reservation, _)), .. } => Some(&reservation.key),
            _ => None,
        }
    }
}

impl Writer {
    pub(super) fn new(
        options: &Options,
        (lock_phase, commit_phase): (LockPhase, CommitPhase),
        pool: Arc<Pool>,
        acknowledged: &BTreeMap<ChainId, Head>,
        findings: Arc<Findings>,
        clock: Arc<EventClock>,
        feed: Arc<Feed>,
    ) -> Arc<Writer> {
        let acknowledged = acknowledged.iter().map(|(chain, head)| (*chain, *head)).collect();
        let shared = Shared { acknowledged, ..Shared::default() };
        let contested = Semaphore::new((options.connections / 4).max(1));
        let times =
            Mode::ALL.map(|_| Times { append: Histogram::durations(), commit: Histogram::durations() });
        Arc::new(Writer {
            options: options.clone(),
            lock_phase,
            commit_phase,
            pool,
            shared: Mutex::new(shared),
            contested,
            shares: TenantShares::new(options.connections),
            times,
            findings,
            clock,
            feed,
        })
    }

    pub(super) fn append(
        self: &Arc<Writer>,
        append: Append,
        runtime: &tokio::runtime::Handle,
    ) -> Result<oneshot::Receiver<Result<Appended, StoreError>>, StoreError> {
        append.check_key()?;
        let Append { chain, drafts, idempotency } = append;
        let bytes = request_bytes(drafts.iter().map(|draft| &draft.text))?;
        let (answer, receiver) = oneshot::channel();
        let events = drafts.len();
        self.enqueue(chain, Work::Append { drafts, idempotency, answer }, events, bytes, runtime)?;
        Ok(receiver)
    }

    pub(super) fn import(
        self: &Arc<Writer>,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<oneshot::Receiver<Result<Head, StoreError>>, StoreError> {
        let bytes = request_bytes(events.iter().map(|event| &event.text))?;
        if events.iter().any(|event| event.chain(chain.mode) != chain) {
            return Err(StoreError::Refused("an event belongs to another tenant or project".into()));
        }
        check_schema(&events)?;
        if let Some(key) = &key {
            key.check(&events)?;
        }
        let (answer, receiver) = oneshot::channel();
        let count = events.len();
        self.enqueue(chain, Work::Import { events, key, answer }, count, bytes, runtime)?;
        Ok(receiver)
    }

    fn enqueue(
        self: &Arc<Writer>,
        chain: ChainId,
        work: Work,
        events: usize,
        bytes: usize,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), StoreError> {
        let mut shared = self.lock();
        if shared.closing {
            return Err(StoreError::Closing);
        }
        if shared.queued_bytes + bytes > self.options.queue_bytes_max {
            return Err(StoreError::QueueFull);
        }
        shared.queued_bytes += bytes;
        let request = Request { work, events, bytes, queued: Instant::now() };
        if let Some(queue) = shared.queues.get_mut(&chain) {
            queue.requests.push_back(request);
            return Ok(());
        }
        let queue = ChainQueue { requests: VecDeque::from([request]) };
        shared.queues.insert(chain, queue);
        drop(shared);
        let work = Driver { writer: Arc::clone(self), chain, finished: false };
        runtime.spawn(async move { work.drive().await });
        Ok(())
    }

    /// Refuses what comes from now on.
    pub(super) fn close(&self) {
        self.lock().closing = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lock().queues.is_empty()
    }

    pub(super) fn stats(&self) -> Vec<LogStats> {
        let shared = self.lock();
        let of = |mode: Mode| {
            let waiting = || {
                let queues = shared.queues.iter().filter(move |(chain, _)| chain.mode == mode);
                queues.flat_map(|(_, queue)| &queue.requests)
            };
            LogStats {
                mode,
                append: self.times(mode).append.view(),
                sync: self.times(mode).commit.view(),
                queue_requests: waiting().count() as u64,
                queue_bytes: waiting().map(|request| request.bytes as u64).sum(),
            }
        };
        Mode::ALL.map(of).to_vec()
    }

    fn times(&self, mode: Mode) -> &Times {
        match mode {
            Mode::Live => &self.times[0],
            Mode::Test => &self.times[1],
        }
    }

    /// The last heads that this node has acknowledged in chains that it has written to since the last time.
    pub(super) fn changed_heads(&self) -> HashMap<ChainId, Head> {
        std::mem::take(&mut self.lock().changed)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what waits for a chain to a group, as far as it fits. If the group stays empty, the queue is
    /// removed. Whether the chain is contested.
    fn take(&self, chain: ChainId, group: &mut Vec<Request>) -> bool {
        let mut shared = self.lock();
        let now = Instant::now();
        let of_group = |of: fn(&Request) -> usize| group.iter().map(of).sum::<usize>();
        let (mut events, mut bytes) = (of_group(|request| request.events), of_group(|request| request.bytes));
        let (bytes_before, mut late) = (bytes, Vec::new());
        let queue = shared.queues.get_mut(&chain).expect("a queue is removed by its driver only");
        while let Some(next) = queue.requests.front() {
            let full =
                events + next.events > GROUP_EVENTS_MAX || bytes + next.bytes > self.options.group_bytes_max;
            if full && !group.is_empty() {
                break;
            }
            let request = queue.requests.pop_front().expect("it was looked at");
            if now.duration_since(request.queued) >= self.options.queue_deadline {
                late.push(request);
                continue;
            }
            events += request.events;
            bytes += request.bytes;
            group.push(request);
        }
        if group.is_empty() {
            shared.queues.remove(&chain);
        }
        shared.queued_bytes -= bytes - bytes_before + late.iter().map(|request| request.bytes).sum::<usize>();
        let contested = shared.contested.contains(&chain);
        drop(shared);
        for request in late {
            request.answer(Outcome::Refused(StoreError::Deadline));
        }
        contested
    }

    fn set_contested(&self, chain: ChainId, contested: bool) {
        let mut shared = self.lock();
        if contested {
            shared.contested.insert(chain);
        } else {
            shared.contested.remove(&chain);
        }
    }

    fn acknowledged(&self, chain: ChainId) -> Option<Head> {
        self.lock().acknowledged.get(&chain).copied()
    }

    fn acknowledge(&self, chain: ChainId, head: Head) {
        let mut shared = self.lock();
        // Ids rise in a chain whatever happens to it: an acceptance and an append that follows it may come
        // here in any order.
        if shared.acknowledged.get(&chain).is_none_or(|known| known.log_id < head.log_id) {
            shared.acknowledged.insert(chain, head);
            shared.changed.insert(chain, head);
        }
        drop(shared);
        // What other nodes append is found by asking; of its own a node knows at once.
        if self.feed.is_followed() {
            self.feed.registry().wake(std::iter::once(chain));
        }
    }

    /// See [`crate::Store::accept_loss`].
    pub(super) async fn accept_loss(&self, chain: ChainId, reason: &str) -> Result<Receipt, StoreError> {
        crate::loss::check_reason(reason)?;
        if self.lock().closing {
            return Err(StoreError::Closing);
        }
        let lease = self.pool.lease(self.options.queue_deadline).await?;
        let transaction =
            Transaction { writer: self, session: &lease.session, chain, id: Id::of_chain(chain) };
        let done = tokio::time::timeout(self.options.transaction_timeout, transaction.accept_loss(reason));
        let receipt = match done.await {
            Err(_) => return Err(StoreError::Unavailable("the database did not respond in time".into())),
            Ok(Err(Failed::Database(error))) => return Err(unavailable(&error)),
            Ok(Err(Failed::Store(error))) => return Err(error),
            Ok(Ok(receipt)) => receipt,
        };
        loss::announce(&lease.session).await;
        lease.give_back();
        Ok(receipt)
    }

    async fn write(
        &self,
        chain: ChainId,
        group: &mut Vec<Request>,
        contested: bool,
    ) -> Result<Vec<Outcome>, StoreError> {
        let deadline = self.options.queue_deadline;
        let _contested = match contested {
            true => {
                let permit = tokio::time::timeout(deadline, self.contested.acquire()).await;
                Some(permit.map_err(|_| StoreError::Deadline)?.map_err(|_| StoreError::Closing)?)
            }
            false => None,
        };
        let share = tokio::time::timeout(deadline, self.shares.acquire(chain.tenant_id)).await;
        let _share = share.map_err(|_| StoreError::Deadline)?.ok_or(StoreError::Closing)?;
        let lease = self.pool.lease(deadline).await?;
        let transaction =
            Transaction { writer: self, session: &lease.session, chain, id: Id::of_chain(chain) };
        let done = tokio::time::timeout(self.options.transaction_timeout, transaction.run(group)).await;
        let outcomes = match done {
            Err(_) => return Err(StoreError::Unavailable("the database did not respond in time".into())),
            Ok(Err(Failed::Database(error))) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                self.set_contested(chain, true);
                return Err(StoreError::Deadline);
            }
            Ok(Err(Failed::Database(error))) => return Err(unavailable(&error)),
            Ok(Err(Failed::Store(error))) => return Err(error),
            Ok(Ok(outcomes)) => outcomes,
        };
        if contested {
            self.set_contested(chain, false);
        }
        lease.give_back();
        Ok(outcomes)
    }
}

/// Works on one chain until nothing waits for it.
struct Driver {
    writer: Arc<Writer>,
    chain: ChainId,
    /// The queue was removed; if there is one by now, it has another driver.
    finished: bool,
}

impl Driver {
    async fn drive(mut self) {
        loop {
            let mut group = Vec::new();
            let contested = self.writer.take(self.chain, &mut group);
            if group.is_empty() {
                break;
            }
            match self.writer.write(self.chain, &mut group, contested).await {
                Ok(outcomes) => {
                    for (request, outcome) in group.into_iter().zip(outcomes) {
                        let times = self.writer.times(self.chain.mode);
                        times.append.observe_duration(request.queued.elapsed());
                        request.answer(outcome);
                    }
                }
                Err(error) => {
                    for request in group {
                        request.answer(Outcome::Refused(error.clone()));
                    }
                }
            }
        }
        self.finished = true;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Left behind by a panic, or at the end of the runtime; nobody would work on it again. Who waits
        // hears that their answer will not come.
        let mut shared = self.writer.lock();
        let left = shared.queues.remove(&self.chain).map_or(VecDeque::new(), |queue| queue.requests);
        shared.queued_bytes -= left.iter().map(|request| request.bytes).sum::<usize>();
        drop(shared);
        drop(left);
    }
}

#[derive(Debug)]
enum Failed {
    Database(Error),
    Store(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Database(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

struct Transaction<'a> {
    writer: &'a Writer,
    session: &'a Session,
    chain: ChainId,
    id: Id,
}

const KEYS: &str =
    "SELECT key_hash, fingerprint, request_id, first_seq, log_ids, hash, received_ms FROM sealog.idempotency
    WHERE chain_id = $1 AND key_hash = ANY ($2)";
/// Requests whose answer names an event past the end of the chain.
const FORGET_KEYS: &str =
    "DELETE FROM sealog.idempotency WHERE chain_id = $1 AND first_seq + octet_length(log_ids) / 16 - 1 > $2";

/// What is known once the chain's row is locked.
struct Locked {
    head: Head,
    now_ms: u64,
    keys: HashMap<[u8; 32], UsedKey>,
}

pub(super) struct UsedKey {
    pub fingerprint: [u8; 32],
    pub received_ms: u64,
    pub receipt: Receipt,
}

impl UsedKey {
    /// Nothing for a record that is damaged.
    pub(super) fn of(row: &Row) -> Option<([u8; 32], UsedKey)> {
        let log_ids: &[u8] = row.get("log_ids");
        if log_ids.is_empty() || !log_ids.len().is_multiple_of(16) {
            return None;
        }
        let receipt = Receipt {
            request_id: Some(row.get::<_, Id>("request_id").ulid()),
            log_ids: log_ids
                .chunks_exact(16)
                .filter_map(|id| Some(Ulid::from_bytes(id.try_into().ok()?)))
                .collect(),
            first_seq: unsigned(row.get("first_seq")),
            hash: rows::hash(row.get("hash"))?,
        };
        let used = UsedKey {
            fingerprint: row.get::<_, &[u8]>("fingerprint").try_into().ok()?,
            received_ms: unsigned(row.get("received_ms")),
            receipt,
        };
        Some((row.get::<_, &[u8]>("key_hash").try_into().ok()?, used))
    }

    /// What a request with this key is told; nothing when the key is free again.
    pub(super) fn decide(&self, key: &IdempotencyKey, now_ms: u64) -> Option<Appended> {
        if now_ms >= self.received_ms.saturating_add(IDEMPOTENCY_RETENTION_MS) {
            return None;
        }
        Some(if self.fingerprint == key.fingerprint.0 {
            Appended::Replayed(self.receipt.clone())
        } else {
            Appended::Conflict
        })
    }
}

impl Transaction<'_> {
    async fn run(&self, group: &mut Vec<Request>) -> Result<Vec<Outcome>, Failed> {
        let Locked { head, now_ms, mut keys } = self.lock(group).await?;
        // With several nodes the lock was long in coming, and what has come in the meantime would wait for as
        // long again.
        let before = group.len();
        self.writer.take(self.chain, group);
        let group: &[Request] = group;
        keys.extend(self.keys(&group[before..]).await?);
        let mut next = head;
        let mut outcomes = Vec::with_capacity(group.len());
        let mut events = EventColumns::default();
        let mut used: Vec<KeyRow> = Vec::new();
        let mut months: BTreeMap<u32, i64> = BTreeMap::new();
        for request in group {
            let outcome = match &request.work {
                Work::Append { drafts, idempotency, .. } => {
                    // Decided again here, where nothing can come in between, from no node.
                    let decided =
                        request.key().and_then(|key| keys.get(&key.key_hash.0)?.decide(key, now_ms));
                    match decided {
                        Some(decided) => Outcome::Appended(decided),
                        None => {
                            let receipt =
                                self.seal(&mut next, drafts, idempotency.as_ref(), now_ms, &mut events);
                            if let Some((reservation, request_id)) = idempotency {
                                let key = reservation.key;
                                put_key(&mut used, KeyRow::new(key, *request_id, &receipt, now_ms));
                                let of_key = UsedKey {
                                    fingerprint: key.fingerprint.0,
                                    received_ms: now_ms,
                                    receipt: receipt.clone(),
                                };
                                keys.insert(key.key_hash.0, of_key);
                            }
                            *months.entry(Month::of(next.log_id.timestamp_ms()).0).or_default() +=
                                signed(drafts.len() as u64);
                            Outcome::Appended(Appended::Sealed(receipt))
                        }
                    }
                }
                Work::Import { events: imported, key, .. } => match verify::continues(&next, imported) {
                    Ok(last) => {
                        for event in imported {
                            events.push(event.schema_version, &event.sealed, &event.text, &event.annotations);
                            *months.entry(Month::of(event.timestamp_ms).0).or_default() += 1;
                        }
                        if let Some(kept) = key {
                            let receipt = imported_receipt(kept, imported, last);
                            let row = KeyRow::new(kept.key, kept.request_id, &receipt, kept.received_ms);
                            put_key(&mut used, row);
                            // An append of the same group with this key is decided by it, as if it had come
                            // later.
                            let fingerprint = kept.key.fingerprint.0;
                            let of_key = UsedKey { fingerprint, received_ms: kept.received_ms, receipt };
                            keys.insert(kept.key.key_hash.0, of_key);
                        }
                        next = last;
                        Outcome::Imported(last)
                    }
                    Err(broken) => Outcome::Refused(StoreError::Refused(format!(
                        "event {} does not continue the chain at {}: {}",
                        broken.at,
                        next.chain_seq,
                        broken.reason.explain()
                    ))),
                },
            };
            outcomes.push(outcome);
        }
        if events.len() == 0 {
            self.session.client.batch_execute("ROLLBACK").await?;
            return Ok(outcomes);
        }
        if self.chain.mode == Mode::Test || self.chain.is_system() {
            months.clear();
        }
        self.store(head, next, &events, &used, &months).await?;
        self.writer.acknowledge(self.chain, next);
        self.writer.findings.proven(self.chain);
        Ok(outcomes)
    }

    /// Locks the chain's row and reads all that sealing needs.
    async fn lock(&self, group: &[Request]) -> Result<Locked, Failed> {
        // Asked for before the transaction begins, so that everything can be sent at once.
        self.session.prepare(KEYS, &[Type::UUID, Type::BYTEA_ARRAY]).await?;
        let lock_phase = &self.writer.lock_phase;
        if let Some(sql) = lock_phase.prepare_statements() {
            self.session.prepare_session(&sql).await?;
        }
        let known = self.writer.acknowledged(self.chain);
        let mut text = lock_phase.begin(self.id, known);
        loop {
            let (found, keys) = join(self.session.client.simple_query(&text), self.keys(group)).await;
            // The first error is the cause of those behind it.
            let (found, keys) = (found?, keys?);
            if let (Some(lock), Some(snapshot)) =
                (statements::row(&found, "recorded_seq"), statements::row(&found, "now_ms"))
            {
                return self.locked(known, lock, snapshot, keys).await;
            }
            self.create().await?;
            text = lock_phase.lock(self.id, known);
        }
    }

    /// Earlier uses of the keys of these requests.
    async fn keys(&self, requests: &[Request]) -> Result<HashMap<[u8; 32], UsedKey>, Failed> {
        let hashes: Vec<Digest32> =
            requests.iter().filter_map(Request::key).map(|key| Digest32(key.key_hash.0)).collect();
        if hashes.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.session.query(KEYS, &[Type::UUID, Type::BYTEA_ARRAY], &[&self.id, &hashes]).await?;
        let damaged = || StoreError::Unavailable("an idempotency record of the request is damaged".into());
        let keys: Option<_> = rows.iter().map(UsedKey::of).collect();
        Ok(keys.ok_or_else(damaged)?)
    }

    async fn locked(
        &self,
        known: Option<Head>,
        lock: &SimpleQueryRow,
        snapshot: &SimpleQueryRow,
        keys: HashMap<[u8; 32], UsedKey>,
    ) -> Result<Locked, Failed> {
        let (head, now_ms) = self.checked(lock, snapshot)?;
        if let Some(known) = known
            && !statements::has_event(snapshot, head, known)
            && !loss::is_dropped(self.session, self.chain, known.chain_seq).await?
            && loss::accepted(self.session, self.chain, known).await?.is_none()
        {
            return Err(self.lost(known).await?);
        }
        // Nothing is sealed on top of events that are not there.
        if lock.get("recorded_seq").is_some() && !self.is_repaired().await? {
            self.writer.findings.set_stale();
            return Err(self.unproven());
        }
        if !statements::proves(snapshot, head) && !self.proves_by_now(head).await? {
            let found = loss::at_or_before(self.session, self.chain, u64::MAX).await?;
            self.writer.findings.add(Finding { chain: self.chain, acknowledged: head, found });
            return Err(self.unproven());
        }
        Ok(Locked { head, now_ms, keys })
    }

    /// The head in the row that was locked, and the time.
    fn checked(&self, lock: &SimpleQueryRow, snapshot: &SimpleQueryRow) -> Result<(Head, u64), Failed> {
        let off = statements::unsafe_settings(snapshot);
        if !off.is_empty() && !self.writer.options.allow_unsafe_storage {
            return Err(unsafe_storage(&off).into());
        }
        if statements::chain(lock) != Some(self.chain) {
            return Err(StoreError::Refused("the chain's row belongs to another chain".into()).into());
        }
        let head = statements::head(lock).ok_or_else(|| self.unproven())?;
        if statements::is_forged(lock, self.chain, head) {
            self.writer.findings.set_stale();
            return Err(self.unproven());
        }
        let database_ms = statements::now_ms(snapshot)
            .ok_or_else(|| StoreError::Unavailable("the database returned no time".into()))?;
        Ok((head, self.writer.clock.read(database_ms).sealing_ms()?))
    }

    fn unproven(&self) -> Failed {
        StoreError::HeadUnproven { chain: self.chain }.into()
    }

    /// The database has gone back behind what this node has acknowledged, and may have other events there by
    /// now: a failover has lost events. The proof is kept, here and in the chain's row.
    async fn lost(&self, known: Head) -> Result<Failed, Failed> {
        let found = loss::at_or_before(self.session, self.chain, known.chain_seq).await?;
        tracing::error!(chain = %self.chain, acknowledged = known.chain_seq, found = found.chain_seq, "the database lost acknowledged events; the chain rejects events until you accept the loss");
        loss::note(self.session, self.chain, known).await?;
        self.session.client.batch_execute("COMMIT").await?;
        self.writer.findings.add(Finding { chain: self.chain, acknowledged: known, found });
        loss::announce(self.session).await;
        Ok(self.unproven())
    }

    /// Whether the events whose loss is noted in the row are there again. Then the note is taken back.
    async fn is_repaired(&self) -> Result<bool, Error> {
        let Some((_, Some(noted))) = self.row().await? else { return Ok(false) };
        if loss::at_or_before(self.session, self.chain, noted.chain_seq).await? != noted {
            return Ok(false);
        }
        tracing::warn!(chain = %self.chain, noted = noted.chain_seq, "lost events are back in the database; the chain accepts events again");
        loss::clear(self.session, self.chain).await?;
        Ok(true)
    }

    /// The head in the chain's row, and the one that is noted as lost.
    async fn row(&self) -> Result<Option<(Option<Head>, Option<Head>)>, Error> {
        let sql = "SELECT chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash FROM sealog.chains WHERE chain_id = $1";
        let rows = self.session.query(sql, &[Type::UUID], &[&self.id]).await?;
        Ok(rows.first().map(|row| {
            let noted = rows::head(row, "recorded_seq", "recorded_log_id", "recorded_hash");
            (rows::head(row, "chain_seq", "log_id", "hash"), noted)
        }))
    }

    /// Seals the acceptance of a loss behind the last event that exists, as the one change of its
    /// transaction.
    async fn accept_loss(&self, reason: &str) -> Result<Receipt, Failed> {
        let (session, chain) = (self.session, self.chain);
        let lock_phase = &self.writer.lock_phase;
        if let Some(sql) = lock_phase.prepare_statements() {
            session.prepare_session(&sql).await?;
        }
        let known = self.writer.acknowledged(chain);
        let found = session.client.simple_query(&lock_phase.begin(self.id, known)).await?;
        let nothing_lost = crate::loss::nothing_lost;
        let (Some(lock), Some(snapshot)) =
            (statements::row(&found, "recorded_seq"), statements::row(&found, "now_ms"))
        else {
            return Err(nothing_lost().into());
        };
        let (head, now_ms) = self.checked(lock, snapshot)?;
        let noted = self.row().await?.and_then(|(_, noted)| noted);
        let (kept, dropped) =
            (loss::at_or_before(session, chain, u64::MAX).await?, loss::last_dropped(session, chain).await?);
        // Of a chain that has lost all that was kept, the next event follows the last one that was dropped.
        let durable = if kept.chain_seq < dropped.chain_seq { dropped } else { kept };
        // Everything that the chain is known to have had: what its row says, what any node has noted there,
        // and what this node knows itself.
        let mut lost: Option<Head> = None;
        let mut last_id = durable.log_id;
        for had in [Some(head), noted, known].into_iter().flatten().filter(|had| had.chain_seq > 0) {
            last_id = last_id.max(had.log_id);
            if had.chain_seq <= dropped.chain_seq
                || loss::at_or_before(session, chain, had.chain_seq).await? == had
                || loss::accepted(session, chain, had).await?.is_some()
            {
                continue;
            }
            if lost.is_none_or(|lost| lost.chain_seq < had.chain_seq) {
                lost = Some(had);
            }
        }
        let lost = lost.ok_or_else(nothing_lost)?;
        let older = loss::older(session, chain, lost).await?;
        let loss = Loss {
            lost_from: (older.chain_seq.max(dropped.chain_seq) + 1).min(lost.chain_seq),
            lost_to: Some(lost.chain_seq),
            recorded_hash: lost.hash,
        };
        let drafts = [loss.draft(reason)];
        let mut next = Head { log_id: last_id, ..durable };
        let mut events = EventColumns::default();
        let receipt = self.seal(&mut next, &drafts, None, now_ms, &mut events);
        loss::clear(session, chain).await?;
        // A client that asks again is not told of an event that is lost: the event is stored then.
        session
            .execute(FORGET_KEYS, &[Type::UUID, Type::INT8], &[&self.id, &signed(durable.chain_seq)])
            .await?;
        self.store(head, next, &events, &[], &BTreeMap::new()).await?;
        self.writer.acknowledge(chain, next);
        self.writer.findings.accepted(chain);
        tracing::warn!(%chain, lost_from = loss.lost_from, lost_to = lost.chain_seq, reason, "accepted a loss; the chain accepts events again");
        Ok(receipt)
    }

    /// A writer that has locked the row without waiting in the queue may have appended after the statement
    /// began that waited for the row; that statement's snapshot is older. Another one sees all events.
    async fn proves_by_now(&self, head: Head) -> Result<bool, Error> {
        let found = self.session.client.simple_query(&self.writer.lock_phase.snapshot(self.id, None)).await?;
        Ok(statements::row(&found, "now_ms").is_some_and(|snapshot| statements::proves(snapshot, head)))
    }

    /// The first event of a chain. Whoever comes second finds the row.
    async fn create(&self) -> Result<(), Error> {
        chain_row::create(self.session, self.chain).await
    }

    fn seal<'d>(
        &self,
        next: &mut Head,
        drafts: &'d [Draft],
        idempotency: Option<&(Reservation, Ulid)>,
        now_ms: u64,
        events: &mut EventColumns<'d>,
    ) -> Receipt {
        let first_seq = next.chain_seq + 1;
        let mut log_ids = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let random = self.writer.options.world.random80();
            let sealed = next.seal(self.chain.tenant_id, &draft.text, now_ms, random);
            *next = sealed.head();
            log_ids.push(sealed.log_id);
            events.push(SCHEMA_VERSION, &sealed, &draft.text, &draft.annotations);
        }
        Receipt {
            request_id: idempotency.map(|(_, request_id)| *request_id),
            log_ids,
            first_seq,
            hash: next.hash,
        }
    }

    async fn store(
        &self,
        before: Head,
        after: Head,
        events: &EventColumns<'_>,
        keys: &[KeyRow],
        months: &BTreeMap<u32, i64>,
    ) -> Result<(), Failed> {
        let commit_phase = &self.writer.commit_phase;
        let (id, tenant) = (self.id, Id(self.chain.tenant_id.0.0));
        let project = Id(self.chain.project_id.0.0);
        let (seq, last_id, hash) =
            (signed(after.chain_seq), Id::of_ulid(after.log_id), Digest32(after.hash.0));
        let seq_before = signed(before.chain_seq);
        let mut months: Vec<(i32, i64)> =
            months.iter().map(|(month, count)| (i32::try_from(*month).unwrap_or(i32::MAX), *count)).collect();
        let of_events: [&(dyn ToSql + Sync); 3] = [&id, &tenant, &project];
        let of_head: [&(dyn ToSql + Sync); 4] = [&seq, &last_id, &hash, &seq_before];

        // The last statement sets the head.
        let mut changes = Vec::new();
        let columns = KeyColumns::of(keys);
        match &commit_phase.combined {
            Some(_) if keys.is_empty() => {}
            Some(_) => {
                changes.push(self.change(&commit_phase.key_arrays, columns.params(&id).to_vec()).await?)
            }
            None => {
                for (size, piece) in pieces(0..keys.len()) {
                    let rows = keys[piece].iter().flat_map(KeyRow::params);
                    let params = std::iter::once(&id as &(dyn ToSql + Sync)).chain(rows).collect();
                    changes.push(self.change(&commit_phase.keys[size], params).await?);
                }
            }
        }
        // In general all events are of one month.
        let combined = commit_phase.combined.as_ref().map(|combined| {
            let month = if months.len() == 1 { months.pop() } else { None };
            (if events.len() == 1 { &combined.one } else { &combined.arrays }, month)
        });
        for (month, count) in &months {
            changes.push(self.change(&commit_phase.usage, vec![&id, month, &tenant, count]).await?);
        }
        match &combined {
            Some((texts, month)) => {
                let mut params = of_events.to_vec();
                match events.len() {
                    1 => params.extend(events.row(0)),
                    _ => params.extend(events.params()),
                }
                if let Some((month, count)) = month {
                    params.extend([month as &(dyn ToSql + Sync), count]);
                }
                params.extend(of_head);
                changes.push(self.change(&texts[usize::from(month.is_some())], params).await?);
            }
            None => {
                for (size, piece) in pieces(0..events.len()) {
                    let rows = piece.flat_map(|at| events.row(at));
                    let params = of_events.into_iter().chain(rows).collect();
                    changes.push(self.change(&commit_phase.events[size], params).await?);
                }
                let params = std::iter::once(&id as &(dyn ToSql + Sync)).chain(of_head).collect();
                changes.push(self.change(&commit_phase.head, params).await?);
            }
        }
        let begun = Instant::now();
        // Sent one behind the other, without waiting. If one fails, the server refuses the rest, and the
        // COMMIT does nothing.
        let changes = changes.iter().map(|(statement, params)| self.session.change(statement, params));
        let (changed, commit) =
            join(in_order(changes.collect()), self.session.client.batch_execute("COMMIT")).await;
        let mut head = 0;
        for changed in changed {
            head = changed?;
        }
        assert_eq!(head, 1, "the row is locked, so no other node has moved it");
        commit?;
        self.writer.times(self.chain.mode).commit.observe_duration(begun.elapsed());
        Ok(())
    }

    /// A statement that is ready to be sent, with its values.
    async fn change<'v>(&self, text: &Text, params: Values<'v>) -> Result<(Prepared, Values<'v>), Error> {
        Ok((self.session.prepare(&text.sql, &text.types).await?, params))
    }
}

/// The outcomes of all of them; each begins in the order in which they stand, which `join_all` does not
/// promise for many.
async fn in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Box::pin(maybe_done(future))).collect();
    poll_fn(|context| {
        let waiting =
            futures.iter_mut().filter_map(|future| future.as_mut().poll(context).is_pending().then_some(()));
        if waiting.count() == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.iter_mut().map(|future| future.as_mut().take_output().expect("it is done")).collect()
}

type Values<'v> = Vec<&'v (dyn ToSql + Sync)>;

/// An idempotency record on its way into the table.
struct KeyRow {
    key_hash: Digest32,
    fingerprint: Digest32,
    request_id: Id,
    first_seq: i64,
    log_ids: Vec<u8>,
    hash: Digest32,
    received_ms: i64,
}

impl KeyRow {
    fn new(key: IdempotencyKey, request_id: Ulid, receipt: &Receipt, received_ms: u64) -> KeyRow {
        KeyRow {
            key_hash: Digest32(key.key_hash.0),
            fingerprint: Digest32(key.fingerprint.0),
            request_id: Id::of_ulid(request_id),
            first_seq: signed(receipt.first_seq),
            log_ids: receipt.log_ids.iter().flat_map(|log_id| log_id.to_bytes()).collect(),
            hash: Digest32(receipt.hash.0),
            received_ms: signed(received_ms),
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 7] {
        [
            &self.key_hash,
            &self.fingerprint,
            &self.request_id,
            &self.first_seq,
            &self.log_ids,
            &self.hash,
            &self.received_ms,
        ]
    }
}

/// Adds a use of a key. One statement cannot set a row twice, and would fail for the whole group: the later
/// use counts.
fn put_key(used: &mut Vec<KeyRow>, row: KeyRow) {
    used.retain(|earlier| earlier.key_hash != row.key_hash);
    used.push(row);
}

/// The answer that an imported request had where it was sealed.
fn imported_receipt(kept: &KeptKey, events: &[StoredEvent], last: Head) -> Receipt {
    Receipt {
        request_id: Some(kept.request_id),
        log_ids: events.iter().map(|event| event.sealed.log_id).collect(),
        first_seq: kept.first_seq,
        hash: last.hash,
    }
}

/// Idempotency records, column by column.
#[derive(Default)]
struct KeyColumns<'a> {
    key_hash: Vec<Digest32>,
    fingerprint: Vec<Digest32>,
    request_id: Vec<Id>,
    first_seq: Vec<i64>,
    log_ids: Vec<&'a [u8]>,
    hash: Vec<Digest32>,
    received_ms: Vec<i64>,
}

impl<'a> KeyColumns<'a> {
    fn of(rows: &'a [KeyRow]) -> KeyColumns<'a> {
        let mut columns = KeyColumns::default();
        for row in rows {
            columns.key_hash.push(row.key_hash);
            columns.fingerprint.push(row.fingerprint);
            columns.request_id.push(row.request_id);
            columns.first_seq.push(row.first_seq);
            columns.log_ids.push(&row.log_ids);
            columns.hash.push(row.hash);
            columns.received_ms.push(row.received_ms);
        }
        columns
    }

    fn params<'b>(&'b self, chain: &'b Id) -> [&'b (dyn ToSql + Sync); 8] {
        [
            chain,
            &self.key_hash,
            &self.fingerprint,
            &self.request_id,
            &self.first_seq,
            &self.log_ids,
            &self.hash,
            &self.received_ms,
        ]
    }
}

/// What a request takes in memory, or why it cannot be stored.
fn request_bytes<'a>(events: impl Iterator<Item = &'a EventText>) -> Result<usize, StoreError> {
    const OVERHEAD: usize = 500;
    let (mut count, mut bytes) = (0, 0);
    for text in events {
        count += 1;
        bytes += text.as_str().len() + OVERHEAD;
        if !rows::storable(text) {
            return Err(StoreError::Refused("an event contains text that the database cannot store".into()));
        }
    }
    if !(1..=BATCH_EVENTS_MAX).contains(&count) {
        return Err(StoreError::Refused(format!(
            "a request must have 1 to {BATCH_EVENTS_MAX} events, not {count}"
        )));
    }
    Ok(bytes)
}
