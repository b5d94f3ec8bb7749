//! The write path: the critical section, and the group commit around it.
//!
//! Two threads take turns. One seals and encodes what is queued while the other writes and syncs the group before; a group is written only after the sync before it
//! succeeded. So there is no timer: a lone request is written at once, and under load a group is whatever came in during the last sync.
//!
//! t0: group 7 is being synced; group 8 is sealed on top of its heads, in memory. t1: the sync of 7 fails. t2: 8 must not be written, since its first events name hashes that
//! are on no disk; its requests fail with those of 7, and no head of either is ever used again.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use sealog_core::canonical::Preimage;
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{BATCH_EVENTS_MAX, Draft, StoredEvent};
use sealog_core::id::{ChainId, Hash, Ulid};
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};
use sealog_core::verify;
use tokio::sync::oneshot;

use super::chain_index::Chain;
use super::feed::Published;
use super::format::{
    self, FrameHeader, FrameWriter, Predecessor, SEGMENT_HEADER_LEN, Salt, SegmentHeader, StoredKey,
};
use super::hand_over::{self, Answers};
use super::index::{Entry, FieldHashes};
use super::log::Log;
use super::mutants::{self, Mutant};
use super::salt::IndexSalt;
use super::segment::{Segment, next_path, segment_path};
use super::sidecar::{KeyEntry, SegmentEnd, slot};
use super::sync::{lock, wait, write};
use crate::loss::{self, Loss};
use crate::turns::Turns;
use crate::{Append, Appended, IdMap, KeptKey, Receipt, Reservation, StoreError, check_schema};

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What waits to be written. It is moved many times on its way, so what is rare in it is boxed.
#[derive(Debug)]
pub(super) struct Request {
    chain: ChainId,
    work: Work,
    /// What it takes in the log at most.
    pub bytes: usize,
    queued: Instant,
    /// Where to leave the answer if an event loop waits for it.
    pub answers: Option<Arc<Answers>>,
    ahead: Option<Box<Ahead>>,
}

/// Events that were sealed before they had a place in the log.
#[derive(Debug)]
struct Ahead {
    /// On this head. If the chain has another one by then, they are sealed again.
    on: Head,
    now_ms: u64,
    sealed: Vec<Sealed>,
}

impl Request {
    /// Whether sealing it would hold up everyone else's events for too long.
    fn needs_sealing_ahead(&self, large_bytes: usize) -> bool {
        self.bytes >= large_bytes && self.ahead.is_none() && matches!(self.work, Work::Append { .. })
    }
}

#[derive(Debug)]
enum Work {
    Append { drafts: Vec<Draft>, idempotency: Option<Box<(Reservation, Ulid)>>, answer: Answer<Appended> },
    Import { events: Vec<StoredEvent>, key: Option<KeptKey>, answer: Answer<Head> },
    AcceptLoss { reason: String, answer: Answer<Receipt> },
}

impl Work {
    fn fail(self, error: StoreError) {
        // Nobody may be waiting any more.
        match self {
            Work::Append { answer, idempotency, .. } => {
                drop(idempotency);
                drop(answer.send(Err(error)));
            }
            Work::Import { answer, .. } => drop(answer.send(Err(error))),
            Work::AcceptLoss { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

/// Where the next frame goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub segment: u64,
    pub salt: Salt,
    pub end: u64,
    pub capacity: u64,
    /// Running checksum up to `end`.
    pub running: u32,
}

/// What the two threads and the callers share.
#[derive(Debug)]
pub(super) struct Shared {
    /// By chain, and with what each will take in the log at most.
    queue: Turns<ChainId, Request>,
    /// Requests to be sealed ahead, each with the head to seal it on once that is known. Their chains are held from here until they are in a group.
    large: VecDeque<(Request, Option<Head>)>,
    /// Those that were, and that a group can take.
    ready: VecDeque<Request>,
    /// Of both, and of the one that is being sealed.
    large_bytes: usize,
    sealing_ahead: bool,
    /// The last group was such a request, so the next one is for the others.
    large_was_last: bool,
    sealing: bool,
    syncing: bool,
    /// A thread looks for requests by itself and needs no wake-up.
    looking: bool,
    stop: bool,
    /// Set by a failed write or sync, for good.
    poisoned: Option<StoreError>,
    no_room: bool,
    /// When the group that is being written and synced was begun.
    writing_since: Option<Instant>,
    /// At the last look, a request had waited for half of its deadline or longer.
    late: bool,
    /// A request has failed by its deadline, and none has succeeded since.
    expired: bool,
    /// Counts up when what was sealed but not written has to be forgotten.
    generation: u64,
    /// Memory of a group that was written, for the next one.
    spare: Vec<u8>,
    /// The end of what is durable.
    durable: Plan,
    durable_commit: u64,
}

impl Shared {
    pub(super) fn new(durable: Plan, durable_commit: u64, poisoned: Option<StoreError>) -> Shared {
        Shared {
            queue: Turns::default(),
            large: VecDeque::new(),
            ready: VecDeque::new(),
            large_bytes: 0,
            sealing_ahead: false,
            large_was_last: false,
            sealing: false,
            syncing: false,
            looking: false,
            stop: false,
            poisoned,
            no_room: false,
            writing_since: None,
            late: false,
            expired: false,
            generation: 0,
            spare: Vec::new(),
            durable,
            durable_commit,
        }
    }

    pub(super) fn durable(&self) -> (Plan, u64) {
        (self.durable, self.durable_commit)
    }

    /// Whether requests may be queued.
    pub(super) fn accepts(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(error) => Err(error.clone()),
            None if self.stop => Err(StoreError::Closing),
            None if self.no_room => Err(StoreError::NoRoom),
            None => Ok(()),
        }
    }

    /// Whether a request that came now could expect to be written. Not so while the disk has not finished a group for so long that what is behind it will fail by its deadline:
    /// it is queued all the same, since the disk may go on.
    pub(super) fn ready(&self, deadline: Duration) -> Result<(), StoreError> {
        self.accepts()?;
        let stuck = self.writing_since.is_some_and(|since| since.elapsed() >= deadline / 2);
        if stuck || self.late || self.expired { Err(StoreError::Stalled) } else { Ok(()) }
    }

    /// Requests and bytes in the queue.
    pub(super) fn waiting(&self) -> (u64, u64) {
        let large = self.large.len() + self.ready.len() + usize::from(self.sealing_ahead);
        ((self.queue.len() + large) as u64, self.bytes() as u64)
    }

    /// Whether there is something to seal in a group. What is too large for that waits apart from the queue.
    fn sort_out(&mut self, large_bytes: usize) -> bool {
        while let Some((_, request)) = self.queue.peek() {
            if !request.needs_sealing_ahead(large_bytes) {
                return true;
            }
            let chain = request.chain;
            self.large_bytes += request.bytes;
            self.large.extend(self.queue.pop().map(|request| (request, None)));
            self.queue.hold(chain);
        }
        false
    }

    /// What goes into a group by itself, unless others have waited while the last of its kind was written.
    fn take_ready(&mut self, others: bool) -> Option<Request> {
        if others && self.large_was_last {
            return None;
        }
        let request = self.ready.pop_front()?;
        self.large_bytes -= request.bytes;
        self.queue.release(request.chain);
        Some(request)
    }

    /// Of all that waits.
    fn bytes(&self) -> usize {
        self.queue.bytes() + self.large_bytes
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.large.is_empty() && self.ready.is_empty() && !self.sealing_ahead
    }

    /// No more events are accepted, for this reason or an earlier one.
    pub(super) fn poison(&mut self, error: StoreError) {
        self.poisoned.get_or_insert(error);
    }

    /// Fails what has waited too long. What the writer has taken is not touched: it will be answered when its fate is known. Whether a chain is free again by that.
    pub(super) fn expire(&mut self, deadline: Duration) -> bool {
        let expired_in_queue = self.queue.take_oldest(|request| request.queued.elapsed() >= deadline);
        self.expired |= !expired_in_queue.is_empty();
        for request in expired_in_queue {
            request.work.fail(StoreError::Deadline);
        }
        // These stand in the order of turns, not of age.
        let late = |request: &Request| request.queued.elapsed() >= deadline;
        let (large, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.large).into_iter().partition(|(request, _)| late(request));
        self.large = kept;
        let (mut expired, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.ready).into_iter().partition(late);
        self.ready = kept;
        expired.extend(large.into_iter().map(|(request, _)| request));
        let freed = !expired.is_empty();
        self.expired |= freed;
        for request in expired {
            self.large_bytes -= request.bytes;
            self.queue.release(request.chain);
            request.work.fail(StoreError::Deadline);
        }
        let waits = |request: &Request| request.queued.elapsed() >= deadline / 2;
        self.late = self.queue.oldest().any(waits)
            || self.large.iter().any(|(request, _)| waits(request))
            || self.ready.iter().any(waits);
        // With nothing under way there is nothing that could show that the disk is well again, and nothing that it keeps waiting.
        self.expired &= self.writing_since.is_some() || !self.is_idle();
        freed
    }
}

/// Below that of those who answer requests.
const AHEAD_NICENESS: i32 = 10;

/// How long a thread looks for the next request before it sleeps: about as long as a client on the same network needs for an answer and the next request.
pub(super) const STAY_AWAKE: Duration = Duration::from_micros(100);

/// After a larger group it sleeps at once: others have a lot to do with the answers, and would be kept from it.
const FEW_REQUESTS: usize = 4;

/// With so much in the queue the idle thread seals while the other one still syncs. With less, it would be woken for a few microseconds of work; the syncing one does
/// that itself when it is back, and no request costs a switch between threads.
const SEAL_EARLY_BYTES: usize = 64 << 10;

/// Room for so many requests is made at once when a group begins to take them.
const REQUESTS_EXPECTED: usize = 256;

/// A request that takes no more in the log is small: it is not to wait for much of someone else's.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// What is taken from the queue at a time. Between two times, who has come meanwhile can join the group.
const SLICE_BYTES: usize = 64 << 10;

/// What sealing goes by. Owned by whichever thread seals.
#[derive(Debug)]
pub(super) struct Sealer {
    generation: u64,
    /// The last sealed event of each chain, durable or not yet.
    heads: IdMap<ChainId, Head>,
    plan: Plan,
    commit: u64,
    index_salt: IndexSalt,
}

impl Sealer {
    pub(super) fn new(plan: Plan, commit: u64, index_salt: IndexSalt) -> Sealer {
        Sealer { generation: 0, heads: IdMap::default(), plan, commit, index_salt }
    }
}

/// Frames that are written and synced together.
#[derive(Debug)]
struct Group {
    generation: u64,
    commit: u64,
    /// Set when the group begins a new segment.
    begins: Option<SegmentHeader>,
    start: u64,
    bytes: Vec<u8>,
    /// Whose small requests are in it.
    small: Small,
    /// A large request that was sealed ahead: nobody joins it.
    alone: bool,
    /// Whose large requests did not join, so that small ones behind them can: these are held in the queue until the group is complete.
    passed_over: Vec<ChainId>,
    frames: Vec<SealedFrame>,
    /// Where the log ends once it is written.
    after: Plan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Small {
    OfNobody,
    Of(ChainId),
    OfSeveral,
}

/// A frame of a group, with everything that has to happen once it is durable.
#[derive(Debug)]
struct SealedFrame {
    chain: ChainId,
    entries: Vec<Entry>,
    head: Head,
    key: Option<KeyEntry>,
    queued: Instant,
    outcome: Outcome,
    answers: Option<Arc<Answers>>,
}

/// A request that is durable and visible, and not yet answered.
#[derive(Debug)]
struct Durable {
    head: Head,
    queued: Instant,
    outcome: Outcome,
    answers: Option<Arc<Answers>>,
}

/// What is said once a request is durable.
#[derive(Debug)]
pub(super) enum Outcome {
    Append { receipt: Receipt, idempotency: Option<Box<(Reservation, Ulid)>>, answer: Answer<Appended> },
    Import { answer: Answer<Head> },
    AcceptLoss { receipt: Receipt, answer: Answer<Receipt> },
}

impl Outcome {
    pub(super) fn succeed(self, head: Head) {
        match self {
            Outcome::Append { receipt, idempotency, answer } => {
                // The key is in the index by now, so it may leave the set of those in flight.
                drop(idempotency);
                drop(answer.send(Ok(Appended::Sealed(receipt))));
            }
            Outcome::Import { answer } => drop(answer.send(Ok(head))),
            Outcome::AcceptLoss { receipt, answer } => drop(answer.send(Ok(receipt))),
        }
    }

    fn fail(self, error: StoreError) {
        match self {
            Outcome::Append { answer, idempotency, .. } => {
                // The key first: whoever hears of the failure may try again at once.
                drop(idempotency);
                drop(answer.send(Err(error)));
            }
            Outcome::Import { answer } => drop(answer.send(Err(error))),
            Outcome::AcceptLoss { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

impl Log {
    pub(super) fn append(
        self: &Arc<Log>,
        append: Append,
    ) -> Result<oneshot::Receiver<Result<Appended, StoreError>>, StoreError> {
        let Append { chain, drafts, idempotency } = append;
        let events = drafts.iter().map(|draft| (draft.text.as_str(), &draft.annotations));
        let bytes = request_bytes(events)?;
        if idempotency.as_ref().is_some_and(|(reservation, _)| reservation.chain != chain) {
            return Err(StoreError::Refused("the idempotency key was reserved for another chain".into()));
        }
        let (answer, receiver) = oneshot::channel();
        let idempotency = idempotency.map(Box::new);
        self.hand_over(chain, Work::Append { drafts, idempotency, answer }, bytes)?;
        Ok(receiver)
    }

    pub(super) fn import(
        self: &Arc<Log>,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> Result<oneshot::Receiver<Result<Head, StoreError>>, StoreError> {
        let bytes = request_bytes(events.iter().map(|event| (event.text.as_str(), &event.annotations)))?;
        if let Some(event) = events.iter().find(|event| event.chain(chain.mode) != chain) {
            let at = event.sealed.chain_seq;
            return Err(StoreError::Refused(format!("event {at} belongs to another tenant or project")));
        }
        check_schema(&events)?;
        if let Some(key) = &key {
            key.check(&events)?;
        }
        let (answer, receiver) = oneshot::channel();
        self.hand_over(chain, Work::Import { events, key, answer }, bytes)?;
        Ok(receiver)
    }

    /// Queues the acceptance of a loss. When it is answered the event is durable and the chain still refuses others: the mark comes first.
    pub(super) fn seal_acceptance(
        self: &Arc<Log>,
        chain: ChainId,
        reason: String,
    ) -> Result<oneshot::Receiver<Result<Receipt, StoreError>>, StoreError> {
        // What is lost is decided with the seal; its numbers have at most so many digits.
        let longest = Loss { lost_from: u64::MAX, lost_to: Some(u64::MAX), recorded_hash: Hash::ZERO };
        let draft = longest.draft(&reason);
        let bytes = request_bytes(std::iter::once((draft.text.as_str(), &draft.annotations)))?;
        let (answer, receiver) = oneshot::channel();
        self.hand_over(chain, Work::AcceptLoss { reason, answer }, bytes)?;
        Ok(receiver)
    }

    fn hand_over(self: &Arc<Log>, chain: ChainId, work: Work, bytes: usize) -> Result<(), StoreError> {
        let too_large = bytes > format::FRAME_LEN_MAX
            || bytes as u64 + SEGMENT_HEADER_LEN as u64 > self.options.segment_bytes_first;
        if too_large {
            return Err(StoreError::Refused("the request is larger than a segment".into()));
        }
        let request = Request { chain, work, bytes, queued: Instant::now(), answers: None, ahead: None };
        if let Some(request) = hand_over::put_aside(self, request) {
            self.enqueue(std::iter::once(request));
        }
        Ok(())
    }

    /// Queues requests, or answers why they cannot be queued.
    pub(super) fn enqueue(&self, requests: impl Iterator<Item = Request>) {
        let mut refused = Vec::new();
        let mut shared = lock(&self.shared);
        let accepts = shared.accepts();
        for request in requests {
            match &accepts {
                Ok(()) if shared.bytes() + request.bytes <= self.options.queue_bytes_max => {
                    shared.queue.push(request.chain, request.bytes, request);
                }
                Ok(()) => refused.push((request, StoreError::QueueFull)),
                Err(error) => refused.push((request, error.clone())),
            }
        }
        self.arrived.store(true, Ordering::Release);
        let asleep = !shared.sealing && !shared.syncing && !shared.looking;
        let wake = asleep || shared.queue.bytes() >= SEAL_EARLY_BYTES;
        let large = shared.queue.bytes() >= self.options.large_bytes && !shared.sealing_ahead;
        drop(shared);
        if wake {
            self.work.notify_one();
        }
        if large {
            self.ahead_due.notify_one();
        }
        for (request, error) in refused {
            request.work.fail(error);
        }
    }

    /// Runs one of the log's threads. If it panics, our own reasoning was wrong and what is in memory cannot be trusted: the log stops as after a failed write.
    pub(super) fn panics(&self, thread: &str, run: impl FnOnce()) -> bool {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
        if panicked {
            self.poison(&io::Error::other(format!("the thread {thread} has panicked")));
            // Nobody is to wait for what it would have made.
            self.preparer.stop();
            self.work.notify_all();
        }
        panicked
    }

    pub(super) fn write_thread(&self) {
        if self.panics("that writes", || self.write_loop()) {
            let mut shared = lock(&self.shared);
            // Whether the other one is sealing shows in the sealer, which nobody takes without this lock.
            shared.sealing = matches!(self.sealer.try_lock(), Err(TryLockError::WouldBlock));
            shared.syncing = false;
            shared.writing_since = None;
            drop(shared);
            self.work.notify_all();
        }
    }

    /// A writer thread: seals a group, then writes it, while the other one does the same half a step apart.
    fn write_loop(&self) {
        let mut shared = lock(&self.shared);
        loop {
            while shared.sealing
                || !(shared.sort_out(self.options.large_bytes) || self.can_take_large(&shared))
            {
                if shared.stop && !shared.sealing && shared.is_idle() {
                    // The other threads may be waiting for the same.
                    self.work.notify_all();
                    self.ahead_due.notify_all();
                    return;
                }
                self.wake_ahead(&shared);
                shared = wait(&self.work, shared);
            }
            shared.sealing = true;
            let mut sealer = lock(&self.sealer);
            sealer.begin(&shared);
            let mut group = Group::new(&sealer, std::mem::take(&mut shared.spare));
            // Goes on adding to the group for as long as the disk is busy with the one before, or the group has nothing but large requests and there are more.
            loop {
                let requests = group.take_from(&mut shared, &mut sealer, self);
                if requests.is_empty() {
                    if !shared.syncing {
                        break;
                    }
                    self.note_heads(&mut shared, &sealer);
                    self.wake_ahead(&shared);
                    shared = wait(&self.work, shared);
                    continue;
                }
                drop(shared);
                let before = group.bytes.len();
                group.frames.reserve(requests.len());
                // Behind the receipt of all of them.
                let now_ms = self.world.clock().sealing_ms();
                for request in requests {
                    match &now_ms {
                        Ok(now_ms) => self.seal(&mut sealer, &mut group, request, *now_ms),
                        Err(error) => request.work.fail(error.clone()),
                    }
                }
                shared = lock(&self.shared);
                // Whoever brings much gains by a large group, and whoever brings little by going at once. What was refused makes it no larger.
                let grows = group.small == Small::OfNobody && group.bytes.len() > before;
                if !shared.syncing && !grows {
                    break;
                }
            }
            for chain in group.passed_over.drain(..).rev() {
                shared.queue.release_first(chain);
            }
            group.after = sealer.plan;
            self.note_heads(&mut shared, &sealer);
            drop(sealer);
            shared.syncing = true;
            shared.writing_since = Some(Instant::now());
            shared.sealing = false;
            let wake = shared.stop || shared.queue.bytes() >= SEAL_EARLY_BYTES || !shared.ready.is_empty();
            self.wake_ahead(&shared);
            drop(shared);
            if wake {
                self.work.notify_one();
            }
            let few = group.frames.len() <= FEW_REQUESTS;
            let mut bytes = self.commit(group);
            bytes.clear();
            shared = lock(&self.shared);
            shared.syncing = false;
            shared.writing_since = None;
            shared.spare = bytes;
            if few && shared.is_idle() && !shared.sealing && !shared.stop {
                shared = self.stay_awake(shared);
            }
            if shared.sealing || shared.stop {
                self.work.notify_one();
            }
        }
    }

    /// Looks for the next request for a moment before going to sleep. A client that sends one event after the other is back in less time than it takes to wake a thread
    /// twice, and whoever else wants the core gets it.
    fn stay_awake<'a>(&'a self, mut shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        shared.looking = true;
        self.arrived.store(false, Ordering::Relaxed);
        drop(shared);
        let begun = Instant::now();
        while !self.arrived.load(Ordering::Acquire) && begun.elapsed() < STAY_AWAKE {
            std::thread::yield_now();
        }
        let mut shared = lock(&self.shared);
        shared.looking = false;
        shared
    }

    /// Notes what large requests are to be sealed on. Their chains are held, so it stays true unless a group comes to nothing.
    fn note_heads(&self, shared: &mut Shared, sealer: &Sealer) {
        for (request, on) in &mut shared.large {
            *on = Some(self.last_sealed(sealer, request.chain).0);
        }
    }

    /// Large requests go at the pace at which segments can be prepared, so that it is them who wait and not everyone.
    fn can_take_large(&self, shared: &Shared) -> bool {
        !shared.ready.is_empty() && self.preparer.keeps_up()
    }

    fn wake_ahead(&self, shared: &Shared) {
        if !shared.large.is_empty() && !shared.sealing_ahead {
            self.ahead_due.notify_one();
        }
    }

    /// The thread that seals large requests while the writers go on with other chains.
    pub(super) fn ahead_thread(&self) {
        // As those who parse them. Of this thread alone; without it everything works as well, only less evenly.
        let _ = rustix::process::setpriority_process(None, AHEAD_NICENESS);
        if self.panics("that seals large requests", || self.ahead_loop()) {
            lock(&self.shared).sealing_ahead = false;
            self.work.notify_all();
        }
    }

    fn ahead_loop(&self) {
        let mut shared = lock(&self.shared);
        loop {
            // Nobody holds the sealer unless someone is sealing.
            if !shared.sealing {
                shared.sort_out(self.options.large_bytes);
                let mut sealer = lock(&self.sealer);
                sealer.begin(&shared);
                self.note_heads(&mut shared, &sealer);
            }
            if shared.large.front().is_none_or(|(_, on)| on.is_none()) {
                if shared.stop && shared.is_idle() {
                    return;
                }
                shared = wait(&self.ahead_due, shared);
                continue;
            }
            let Some((mut request, Some(on))) = shared.large.pop_front() else { continue };
            shared.sealing_ahead = true;
            drop(shared);
            if let Work::Append { drafts, .. } = &request.work {
                let now_ms = self.world.now_ms();
                let sealed = self.seal_on(on, request.chain, drafts, now_ms);
                request.ahead = Some(Box::new(Ahead { on, now_ms, sealed }));
            }
            shared = lock(&self.shared);
            shared.sealing_ahead = false;
            shared.ready.push_back(request);
            self.arrived.store(true, Ordering::Release);
            self.work.notify_one();
        }
    }

    fn seal_on(&self, head: Head, chain: ChainId, drafts: &[Draft], now_ms: u64) -> Vec<Sealed> {
        let (mut next, mut preimage) = (head, Preimage::default());
        let seal = |draft: &Draft| {
            let random = self.world.random80();
            let sealed = next.seal_with(&mut preimage, chain.tenant_id, &draft.text, now_ms, random);
            next = sealed.head();
            sealed
        };
        drafts.iter().map(seal).collect()
    }

    /// The last sealed event of a chain, durable or not yet, and whether nothing may be sealed on it.
    fn last_sealed(&self, sealer: &Sealer, chain: ChainId) -> (Head, bool) {
        match sealer.heads.get(&chain) {
            Some(head) => (*head, false),
            None => self.durable_head(chain),
        }
    }

    /// The critical section: decides everything about a request and encodes its frame.
    fn seal(&self, sealer: &mut Sealer, group: &mut Group, request: Request, now_ms: u64) {
        let Request { chain, work, queued, answers, ahead, .. } = request;
        let (head, unproven) = self.last_sealed(sealer, chain);
        if unproven != matches!(work, Work::AcceptLoss { .. }) {
            let error = if unproven { StoreError::HeadUnproven { chain } } else { loss::nothing_lost() };
            return work.fail(error);
        }
        match work {
            Work::Append { drafts, idempotency, answer } => {
                if let Some((reservation, _)) = idempotency.as_deref() {
                    // Decided again here, where nothing can come in between.
                    let decided = self.find_key(chain, &reservation.key, now_ms).transpose();
                    if let Some(decided) = decided {
                        drop(idempotency);
                        return drop(answer.send(decided));
                    }
                }
                // No event is older than the receipt of its request.
                let (sealed, received_ms) = match ahead {
                    Some(ahead) if ahead.on == head => (ahead.sealed, ahead.now_ms),
                    _ => (self.seal_on(head, chain, &drafts, now_ms), now_ms),
                };
                let next = sealed.last().map_or(head, Sealed::head);
                let records = sealed.iter().zip(drafts.iter().map(|draft| (&draft.text, &draft.annotations)));
                let stored = idempotency.as_deref().map(|(reservation, request_id)| StoredKey {
                    key: reservation.key,
                    request_id: *request_id,
                });
                let (entries, key) =
                    group.encode(sealer, chain, records, stored.as_ref(), false, received_ms);
                let receipt = Receipt {
                    request_id: stored.map(|stored| stored.request_id),
                    log_ids: sealed.iter().map(|sealed| sealed.log_id).collect(),
                    first_seq: head.chain_seq + 1,
                    hash: next.hash,
                };
                sealer.heads.insert(chain, next);
                group.frames.push(SealedFrame {
                    chain,
                    entries,
                    head: next,
                    key,
                    queued,
                    outcome: Outcome::Append { receipt, idempotency, answer },
                    answers,
                });
            }
            Work::Import { events, key, answer } => {
                let last = match verify::continues(&head, &events) {
                    Ok(last) => last,
                    Err(broken) => {
                        let why = format!(
                            "event {} does not continue the chain at {}: {}",
                            broken.at,
                            head.chain_seq,
                            broken.reason.explain()
                        );
                        return drop(answer.send(Err(StoreError::Refused(why))));
                    }
                };
                let records = events.iter().map(|event| (&event.sealed, (&event.text, &event.annotations)));
                let stored = key.map(|key| StoredKey { key: key.key, request_id: key.request_id });
                // The key's 24 hours began where it was first received.
                let received_ms = key.map_or(now_ms, |key| key.received_ms);
                let (entries, key) = group.encode(sealer, chain, records, stored.as_ref(), true, received_ms);
                sealer.heads.insert(chain, last);
                group.frames.push(SealedFrame {
                    chain,
                    entries,
                    head: last,
                    key,
                    queued,
                    outcome: Outcome::Import { answer },
                    answers,
                });
            }
            Work::AcceptLoss { reason, answer } => {
                let heads = self.heads_of(chain);
                if loss::base(&heads).log_id.timestamp_ms() > TIMESTAMP_MS_MAX {
                    let why = "the last event of the chain has an id that no event can have, and nothing can follow it";
                    return drop(answer.send(Err(StoreError::Refused(why.into()))));
                }
                let draft = Loss::of(&heads).draft(&reason);
                let sealed = self.seal_on(loss::base(&heads), chain, std::slice::from_ref(&draft), now_ms);
                let records = sealed.iter().map(|sealed| (sealed, (&draft.text, &draft.annotations)));
                let (entries, _) = group.encode(sealer, chain, records, None, false, now_ms);
                let head = sealed.last().map_or(head, Sealed::head);
                let receipt = Receipt {
                    request_id: None,
                    log_ids: vec![head.log_id],
                    first_seq: head.chain_seq,
                    hash: head.hash,
                };
                // Not among the sealer's heads: nothing is sealed on it before the mark knows it.
                let outcome = Outcome::AcceptLoss { receipt, answer };
                group.frames.push(SealedFrame { chain, entries, head, key: None, queued, outcome, answers });
            }
        }
    }

    /// Makes a group durable, then visible, then answers. In this order: an acknowledged event can be read at once, an event that can be read is never lost.
    /// Returns the group's memory.
    fn commit(&self, mut group: Group) -> Vec<u8> {
        let bytes = std::mem::take(&mut group.bytes);
        // A group whose requests were all refused writes nothing, but a segment that it was to begin must still begin: the next group is planned into it.
        if group.frames.is_empty() && group.begins.is_none() {
            return bytes;
        }
        if let Err(error) = self.write_group(&group, &bytes) {
            for frame in group.frames {
                frame.outcome.fail(error.clone());
            }
            return bytes;
        }
        let (after, commit) = (group.after, (!group.frames.is_empty()).then_some(group.commit));
        let start = group.start;
        let mut published = Published::begin(&self.feed, after.segment);
        let durable = self.publish(group, &mut published);
        {
            // Behind the heads, so that no mark claims more of the log than it knows the heads of.
            let mut shared = lock(&self.shared);
            shared.durable = after;
            shared.expired = false;
            self.preparer.note_filled(after.end, after.capacity);
            shared.durable_commit = commit.unwrap_or(shared.durable_commit);
        }
        // Behind the end of what is durable, which followers go by.
        self.announce(published, start);
        self.answer(durable);
        bytes
    }

    /// One by one, or in one piece to an event loop.
    fn answer(&self, durable: Vec<Durable>) {
        let now = Instant::now();
        let mut for_loops: Vec<(Arc<Answers>, Vec<_>)> = Vec::new();
        let all = durable.len();
        for Durable { head, queued, outcome, answers } in durable {
            self.append_time.observe_duration(now.duration_since(queued));
            let Some(answers) = answers else {
                outcome.succeed(head);
                continue;
            };
            match for_loops.iter_mut().find(|(of, _)| Arc::ptr_eq(of, &answers)) {
                Some((_, outcomes)) => outcomes.push((outcome, head)),
                None => {
                    let mut outcomes = Vec::with_capacity(all);
                    outcomes.push((outcome, head));
                    for_loops.push((answers, outcomes));
                }
            }
        }
        for (answers, outcomes) in for_loops {
            answers.leave(outcomes);
        }
    }

    fn write_group(&self, group: &Group, bytes: &[u8]) -> Result<(), StoreError> {
        {
            let shared = lock(&self.shared);
            if let Some(error) = &shared.poisoned {
                return Err(error.clone());
            }
            if group.generation != shared.generation {
                return Err(StoreError::NoRoom);
            }
        }
        let mut active = lock(&self.active);
        if let Some(header) = &group.begins {
            *active = self.roll(header, group.after.capacity)?;
        }
        let begun = Instant::now();
        let written = active.file.write_all_at(bytes, group.start);
        let synced = if mutants::on(Mutant::AckBeforeSync) {
            written
        } else {
            written.and_then(|()| active.file.sync())
        };
        self.sync_time.observe_duration(begun.elapsed());
        synced.map_err(|error| self.poison(&error))
    }

    /// A failed write or sync leaves it unknown what is on disk, and asking again would not tell. Nothing is written any more; the next start finds out.
    pub(super) fn poison(&self, error: &io::Error) -> StoreError {
        tracing::error!(%error, log = self.mode.as_str(), "writing failed; no more events are accepted until the process is started again");
        let error = StoreError::Poisoned(error.to_string());
        let mut shared = lock(&self.shared);
        shared.poison(error.clone());
        let waiting = shared.queue.take_oldest(|_| true);
        let large: Vec<Request> = shared.large.drain(..).map(|(request, _)| request).collect();
        let ready = std::mem::take(&mut shared.ready);
        shared.large_bytes -= large.iter().chain(&ready).map(|request| request.bytes).sum::<usize>();
        for request in waiting.into_iter().chain(large).chain(ready) {
            request.work.fail(error.clone());
        }
        error
    }

    /// Begins the next segment in the file that was prepared for it. What was sealed for it counts on `planned` bytes.
    fn roll(&self, header: &SegmentHeader, planned: u64) -> Result<Arc<Segment>, StoreError> {
        let capacity = match self.preparer.take() {
            Ok(capacity) => capacity,
            Err(cause) => return Err(self.no_room(&cause)),
        };
        if capacity < planned {
            // The disk has filled up while it was prepared. What comes next is planned for the room there is.
            self.preparer.put_back(capacity);
            return Err(self.no_room("there was room for a smaller segment only"));
        }
        let file = match self.disk.open(&next_path(&self.dir)) {
            Ok(file) => file,
            Err(error) => {
                // Nothing was written, so nothing is unknown: most likely the process is out of file descriptors, and will have some again.
                self.preparer.put_back(capacity);
                return Err(self.no_room(&error.to_string()));
            }
        };
        let begin = move || {
            file.write_all_at(&header.encode(), 0)?;
            file.sync()?;
            // Only a segment with its header on disk gets a segment's name.
            self.disk.rename(&next_path(&self.dir), &segment_path(&self.dir, header.number))?;
            self.disk.sync_dir(&self.dir)?;
            Ok(Arc::new(Segment { number: header.number, salt: header.salt, file }))
        };
        let segment = begin().map_err(|error| self.poison(&error))?;
        write(&self.segments).insert(header.number, Arc::clone(&segment));
        if let Some(before) = header.before {
            let end =
                SegmentEnd { number: before.number, final_len: before.final_len, checksum: before.checksum };
            self.sealed(end);
        }
        self.preparer.want(self.next_capacity(capacity));
        Ok(segment)
    }

    /// Refuses events until there is another segment. What was sealed in the meantime is forgotten.
    fn no_room(&self, cause: &str) -> StoreError {
        tracing::error!(
            cause,
            log = self.mode.as_str(),
            "no room for another segment; no events are accepted until there is"
        );
        let mut shared = lock(&self.shared);
        shared.no_room = true;
        shared.generation += 1;
        StoreError::NoRoom
    }

    /// Whether a request fits into the segment that is being prepared. On a disk that is almost full that may be a small one, and beginning it in vain would waste the room there is.
    fn fits_next_segment(&self, bytes: usize, sealer: &Sealer) -> bool {
        SEGMENT_HEADER_LEN as u64 + bytes as u64 <= self.promised_capacity(sealer.plan.capacity)
    }

    /// What the segment that is being prepared will hold.
    fn promised_capacity(&self, active: u64) -> u64 {
        self.preparer.promised().unwrap_or_else(|| self.next_capacity(active))
    }

    pub(super) fn next_capacity(&self, capacity: u64) -> u64 {
        (capacity * 2).min(self.options.segment_bytes_max).max(self.options.segment_bytes_first)
    }

    /// Makes a durable group visible. The answers are left to the caller.
    fn publish(&self, group: Group, published: &mut Published) -> Vec<Durable> {
        let segment = group.after.segment;
        let mut durable = Vec::with_capacity(group.frames.len());
        // Frames of one chain often follow each other, and then it is looked up once.
        let mut chain: Option<Arc<Chain>> = None;
        let (mut heads, mut counts) = (Vec::new(), Vec::new());
        for frame in group.frames {
            if chain.as_ref().is_none_or(|chain| chain.id != frame.chain) {
                chain = Some(self.chains.get_or_create(frame.chain));
                heads.push((frame.chain, frame.head));
            }
            let chain = chain.as_ref().expect("it was there or was put there");
            let counts_as_usage = !frame.chain.is_system();
            for replaced in chain.publish(segment, &frame.entries, frame.head) {
                if counts_as_usage {
                    self.uncount_usage(frame.chain.tenant_id, replaced);
                }
            }
            for entry in frame.entries.iter().filter(|_| counts_as_usage) {
                let of = (frame.chain.tenant_id, Month::of(entry.log_id.timestamp_ms()));
                match counts.last_mut() {
                    Some((last, count)) if *last == of => *count += 1,
                    _ => counts.push((of, 1)),
                }
            }
            if let Some(key) = frame.key {
                self.keys.insert(segment, key);
            }
            published.note(frame.chain, frame.entries.last().map(|entry| entry.position));
            if let Some((_, head)) = heads.last_mut() {
                *head = frame.head;
            }
            let SealedFrame { head, queued, outcome, answers, .. } = frame;
            durable.push(Durable { head, queued, outcome, answers });
        }
        self.count_usage(counts);
        self.changed(heads);
        durable
    }

    /// The next segment has grown or is there.
    pub(super) fn prepared_more(&self) {
        self.look_for_room();
        let shared = lock(&self.shared);
        if self.can_take_large(&shared) {
            self.work.notify_one();
        }
    }

    /// Looks whether a segment was prepared, and if so accepts events again. Asked when one becomes ready and at every tick: between the writer's look and its verdict
    /// the preparer may have finished.
    pub(super) fn look_for_room(&self) {
        if !self.preparer.is_ready() {
            return;
        }
        let mut shared = lock(&self.shared);
        if std::mem::replace(&mut shared.no_room, false) {
            tracing::info!(log = self.mode.as_str(), "there is room again; events are accepted");
        }
    }

    pub(super) fn stop_writing(&self) {
        lock(&self.shared).stop = true;
        self.work.notify_all();
        self.ahead_due.notify_all();
    }
}

/// What a request takes in the log at most, or why it cannot be held.
fn request_bytes<'a>(
    events: impl Iterator<Item = (&'a str, &'a sealog_core::event::Annotations)>,
) -> Result<usize, StoreError> {
    let (mut count, mut bytes) = (0, format::FRAME_OVERHEAD);
    for (text, annotations) in events {
        count += 1;
        bytes += format::record_len_of(text, annotations);
        if !format::annotations_fit(annotations) {
            return Err(StoreError::Refused("an annotation is too long".into()));
        }
    }
    if !(1..=BATCH_EVENTS_MAX).contains(&count) {
        return Err(StoreError::Refused(format!(
            "a request has 1 to {BATCH_EVENTS_MAX} events, not {count}"
        )));
    }
    Ok(bytes)
}

impl Sealer {
    /// Forgets what was sealed and then not written.
    fn begin(&mut self, shared: &Shared) {
        if self.generation != shared.generation {
            self.generation = shared.generation;
            self.heads.clear();
            self.plan = shared.durable;
            self.commit = shared.durable_commit;
        }
    }
}

impl Group {
    fn new(sealer: &Sealer, bytes: Vec<u8>) -> Group {
        Group {
            generation: sealer.generation,
            commit: sealer.commit + 1,
            begins: None,
            start: sealer.plan.end,
            bytes,
            small: Small::OfNobody,
            alone: false,
            passed_over: Vec::new(),
            frames: Vec::new(),
            after: sealer.plan,
        }
    }

    /// Whether small requests that are planned for the group would wait until too much of someone else's is sealed and written.
    fn would_wait_for(&self, chain: ChainId, bytes: usize, planned: usize) -> bool {
        let others_wait = match self.small {
            Small::OfNobody => false,
            Small::Of(small) => small != chain,
            Small::OfSeveral => true,
        };
        others_wait && bytes > SMALL_BYTES_MAX && planned + bytes > SLICE_BYTES
    }

    fn note_small(&mut self, chain: ChainId) {
        self.small = match self.small {
            Small::OfNobody => Small::Of(chain),
            Small::Of(small) if small == chain => Small::Of(chain),
            _ => Small::OfSeveral,
        };
    }

    /// Takes the requests that still fit. A group lies in one segment; the one that does not fit begins the next.
    fn take_from(&mut self, shared: &mut Shared, sealer: &mut Sealer, log: &Log) -> Vec<Request> {
        if self.alone {
            return Vec::new();
        }
        let mut requests = Vec::with_capacity(shared.queue.len().min(REQUESTS_EXPECTED));
        let mut planned = self.bytes.len();
        let others = shared.sort_out(log.options.large_bytes);
        if planned == 0
            && log.can_take_large(shared)
            && let Some(large) = shared.take_ready(others)
        {
            if self.start + large.bytes as u64 <= sealer.plan.capacity {
                return self.take_alone(shared, large);
            }
            if log.fits_next_segment(large.bytes, sealer) {
                self.begin_segment(sealer, log);
                return self.take_alone(shared, large);
            }
            large.work.fail(StoreError::NoRoom);
        }
        let most = self.bytes.len() + SLICE_BYTES;
        while shared.sort_out(log.options.large_bytes)
            && let Some((bytes, request)) = shared.queue.peek()
        {
            let chain = request.chain;
            let full = planned + bytes > log.options.group_bytes_max;
            if planned > 0 && (full || planned + bytes > most && !requests.is_empty()) {
                break;
            }
            if self.would_wait_for(chain, bytes, planned) {
                self.passed_over.push(chain);
                shared.queue.hold(chain);
                continue;
            }
            if self.start + (planned + bytes) as u64 > sealer.plan.capacity {
                if planned > 0 {
                    break;
                }
                if !log.fits_next_segment(bytes, sealer) {
                    if let Some(request) = shared.queue.pop() {
                        request.work.fail(StoreError::NoRoom);
                    }
                    continue;
                }
                self.begin_segment(sealer, log);
            }
            planned += bytes;
            if bytes <= SMALL_BYTES_MAX {
                self.note_small(chain);
            }
            requests.extend(shared.queue.pop());
            shared.large_was_last = false;
        }
        requests
    }

    fn take_alone(&mut self, shared: &mut Shared, large: Request) -> Vec<Request> {
        shared.large_was_last = true;
        self.alone = true;
        vec![large]
    }

    fn begin_segment(&mut self, sealer: &mut Sealer, log: &Log) {
        let before = Predecessor {
            number: sealer.plan.segment,
            final_len: sealer.plan.end,
            checksum: sealer.plan.running,
        };
        let mut salt = [0; 16];
        log.world.fill_random(&mut salt);
        sealer.plan = Plan {
            segment: before.number + 1,
            salt,
            end: SEGMENT_HEADER_LEN as u64,
            capacity: log.promised_capacity(sealer.plan.capacity),
            running: 0,
        };
        self.start = sealer.plan.end;
        self.begins = Some(SegmentHeader {
            mode: log.mode,
            recovered: false,
            number: sealer.plan.segment,
            salt,
            first_commit: self.commit,
            created_ms: log.world.now_ms(),
            before: Some(before),
        });
    }

    fn encode<'a>(
        &mut self,
        sealer: &mut Sealer,
        chain: ChainId,
        records: impl Iterator<
            Item = (&'a Sealed, (&'a sealog_core::canonical::EventText, &'a sealog_core::event::Annotations)),
        >,
        key: Option<&StoredKey>,
        imported: bool,
        received_ms: u64,
    ) -> (Vec<Entry>, Option<KeyEntry>) {
        let position = sealer.plan.end;
        let mut records = records.peekable();
        let header = FrameHeader {
            length: 0,
            idempotency: false,
            imported,
            count: 0,
            group_back: format::u32_len(self.bytes.len()),
            commit: self.commit,
            position,
            chain,
            first_seq: records.peek().map_or(0, |(sealed, _)| sealed.chain_seq),
            received_ms,
        };
        let before = self.bytes.len();
        let salt = sealer.plan.salt;
        let mut writer = FrameWriter::begin(&mut self.bytes, &salt, header);
        let entries = records
            .map(|(sealed, (text, annotations))| Entry {
                log_id: sealed.log_id,
                position: writer.record(sealed, text.as_str(), annotations),
                hashes: FieldHashes::of(&text.fields(), &sealer.index_salt),
            })
            .collect();
        let in_frame = key.filter(|_| !mutants::on(Mutant::KeyOutsideFrame));
        sealer.plan.running = writer.finish(in_frame, sealer.plan.running);
        sealer.plan.end += (self.bytes.len() - before) as u64;
        sealer.commit = self.commit;
        let position = u32::try_from(position).expect("segments are smaller than 4 GiB");
        (
            entries,
            key.map(|stored| KeyEntry { slot: slot(chain, stored.key.key_hash), received_ms, position }),
        )
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};

    use super::*;

    const LARGE: usize = 1000;

    fn shared() -> Shared {
        Shared::new(Plan { segment: 1, salt: [0; 16], end: 0, capacity: 0, running: 0 }, 0, None)
    }

    fn push(
        shared: &mut Shared,
        tenant: u8,
        bytes: usize,
        age: Duration,
    ) -> oneshot::Receiver<Result<Appended, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let chain = ChainId {
            tenant_id: TenantId(Uuid([tenant; 16])),
            project_id: ProjectId(Uuid([1; 16])),
            mode: Mode::Live,
        };
        let work = Work::Append { drafts: Vec::new(), idempotency: None, answer };
        let queued = Instant::now().checked_sub(age).expect("the machine has run for longer");
        shared.queue.push(chain, bytes, Request { chain, work, bytes, queued, answers: None, ahead: None });
        receiver
    }

    #[test]
    fn a_large_request_waits_apart_and_its_chain_with_it() {
        let mut shared = shared();
        let _answers: Vec<_> = [(1, LARGE), (1, 10), (2, LARGE), (3, 20)]
            .map(|(tenant, bytes)| push(&mut shared, tenant, bytes, Duration::ZERO))
            .into();
        while shared.sort_out(LARGE) {
            assert_eq!(shared.queue.pop().map(|request| request.bytes), Some(20));
        }
        assert_eq!(shared.large.len(), 2);
        assert_eq!(shared.waiting(), (3, 2 * LARGE as u64 + 10));
        assert!(!shared.is_idle());
    }

    #[test]
    fn a_small_request_does_not_wait_until_much_of_someone_elses_is_sealed_and_written() {
        let plan = Plan { segment: 1, salt: [0; 16], end: 0, capacity: 0, running: 0 };
        let chain = |tenant: u8| ChainId {
            tenant_id: TenantId(Uuid([tenant; 16])),
            project_id: ProjectId(Uuid([1; 16])),
            mode: Mode::Live,
        };
        let kib = 1 << 10;
        let mut group = Group::new(&Sealer::new(plan, 0, IndexSalt::new(&[0; 16])), Vec::new());
        // Nobody small is in it: it may become large, whoever it is from.
        for tenant in [1, 2] {
            assert!(!group.would_wait_for(chain(tenant), 60 * kib, 180 * kib));
        }
        group.note_small(chain(2));
        group.note_small(chain(2));
        for (tenant, bytes, planned, waits) in [
            (1, 60 * kib, kib, false),
            (1, 60 * kib, 60 * kib, true),
            // Small ones may always join, and of one's own there may be much.
            (1, kib, 180 * kib, false),
            (2, 60 * kib, 180 * kib, false),
        ] {
            assert_eq!(
                group.would_wait_for(chain(tenant), bytes, planned),
                waits,
                "{tenant} {bytes} {planned}"
            );
        }
        // With small ones of several, everyone is someone else to one of them.
        group.note_small(chain(1));
        for tenant in [1, 2, 3] {
            assert!(group.would_wait_for(chain(tenant), 60 * kib, 60 * kib));
            assert!(!group.would_wait_for(chain(tenant), kib, 180 * kib));
        }
    }

    #[test]
    fn after_a_large_request_the_others_go_first() {
        let mut shared = shared();
        let _answers = [1, 2].map(|tenant| push(&mut shared, tenant, LARGE, Duration::ZERO));
        assert!(!shared.sort_out(LARGE));
        shared.ready = std::mem::take(&mut shared.large).into_iter().map(|(request, _)| request).collect();
        assert!(shared.take_ready(true).is_some());
        shared.large_was_last = true;
        assert!(shared.take_ready(true).is_none(), "others wait, and it is their turn");
        assert!(shared.take_ready(false).is_some(), "nobody else waits");
        assert!(shared.is_idle());
    }

    #[test]
    fn a_large_request_that_has_waited_too_long_is_found_behind_a_younger_one() {
        let (mut shared, old, young) = (shared(), Duration::from_secs(10), Duration::ZERO);
        let [_, mut late, _, mut ready] = [(1, young), (2, old), (3, young), (4, old)]
            .map(|(tenant, age)| push(&mut shared, tenant, LARGE, age));
        assert!(!shared.sort_out(LARGE));
        shared.ready = shared.large.split_off(2).into_iter().map(|(request, _)| request).collect();
        assert!(shared.expire(Duration::from_secs(5)));
        for late in [&mut late, &mut ready] {
            assert!(matches!(late.try_recv(), Ok(Err(StoreError::Deadline))));
        }
        assert_eq!(shared.waiting(), (2, 2 * LARGE as u64));
    }

    #[test]
    fn a_large_request_that_has_waited_too_long_frees_its_chain() {
        let mut shared = shared();
        let mut late = push(&mut shared, 1, LARGE, Duration::from_secs(10));
        let mut behind = push(&mut shared, 1, 10, Duration::ZERO);
        assert!(!shared.sort_out(LARGE));
        assert!(!shared.expire(Duration::from_secs(60)));
        assert!(shared.expire(Duration::from_secs(5)));
        assert!(matches!(late.try_recv(), Ok(Err(StoreError::Deadline))));
        assert!(behind.try_recv().is_err() && shared.sort_out(LARGE));
        assert_eq!(shared.waiting(), (1, 10));
    }
}
