//! The threads of the write path, and what they share.
//!
//! Two writer threads take turns. One seals a group while the other commits the group before it; a group is
//! written only after the sync before it has succeeded. So there is no timer: a lone request is written at
//! once, and under load a group is whatever came in during the last sync.
//!
//! t0: group 7 is being synced; group 8 is sealed on top of its heads, in memory. t1: the sync of 7 fails.
//! t2: 8 must not be written, since its first events name hashes that are on no disk; its requests fail with
//! those of 7, and no head of either is ever used again.
//!
//! # States and events
//!
//! A writer thread is idle, sealing, waiting for the disk, or committing. `sealing` and `committing` in
//! [`Shared`] say which of these places is taken; each has room for one.
//!
//! | State | Event | What happens | Next state |
//! |---|---|---|---|
//! | idle | a request is queued or a large one is ready; nobody seals | takes a slice | sealing |
//! | idle | the store closes, nothing waits and nobody seals | wakes the others | ended |
//! | sealing | sealed; the disk is free; small requests, or no growth | completes the group | committing |
//! | sealing | the slice is sealed; otherwise | takes the next slice | sealing |
//! | sealing | nothing more to take; the disk is free | the group is complete | committing |
//! | sealing | nothing more to take; the disk is busy | sleeps until either changes | waiting for the disk |
//! | waiting for the disk | a request is queued, or the commit before has ended | looks again | sealing |
//! | committing | the sync succeeds | publishes, announces, answers | idle |
//! | committing | a write or a sync fails | poisons the log: everything that waits fails, for good | idle |
//! | committing | no next segment | fails the group, begins a new generation | idle |
//! | committing | a poisoned log, or an earlier generation | fails the group, writes nothing | idle |
//! | any | the thread panics | poisons the log, frees the place that it had | ended |
//!
//! Beside them: the thread that seals large requests ([`LargeRequests`](super::ahead::LargeRequests) has its
//! states), the one that preallocates segments ([`Committer::prepare`]), the one that watches deadlines, and
//! upkeep.
//!
//! # Lock order
//!
//! A lock may be taken while those above it in the table are held, and not the other way round. Locks without
//! a number are taken alone or last, and nothing is taken under them.
//!
//! | # | Lock | Protects | Held during I/O |
//! |---|---|---|---|
//! | 1 | `Log::acceptances` | the acceptance of a loss in progress | yes: the append and the mark |
//! | 2 | `Upkeep::mark` | the file of the high-water mark | yes: its write and sync |
//! | 3 | `Writer::shared` | queue, admission, who seals and who commits | no |
//! | 4 | `Writer::sealer` | what sealing goes by | look-ups of idempotency keys |
//! | 5 | `Contents::rebuilding` | which indexes were built again | yes: a segment is read, an index written |
//! | | `Contents::counting` | how far events are counted. Taken alone | yes: a piece of a segment is read |
//! | 6 | `Committer::active` | the active segment. Never with 3, 4 or 5 | yes: write, sync, roll |
//! | | `Preparer::state`, `Upkeep::due` | the next segment; what upkeep has to do | no |
//! | | `Contents::*`, each chain, `Keys`, caches, `OpenFiles` | what is known of the log | no |
//! | | `Completions`, the feed's registry | what an event loop or a follower is told | no |
//!
//! One exception: the thread that seals keeps 4 and comes back to 3 with it. That is no deadlock, since
//! nobody waits for 4 while holding 3: 4 is only taken by a thread that has found `sealing` unset under 3,
//! and whoever keeps 4 beyond 3 has set `sealing` first and gives 4 back before it is unset.

use std::io;
use std::sync::{Arc, Condvar, Mutex, TryLockError};

use sealog_core::chain::Head;
use sealog_core::id::ChainId;

use super::admission::Admission;
use super::commit::{Committer, Failure};
use super::group::{Complete, NextSegment};
use super::publish::Publisher;
use super::queue::Queue;
use super::request::{Request, SealedAhead, Work};
use super::seal::{Known, Sealer, seal_on};
use crate::embedded::contents::Contents;
use crate::embedded::feed::recent::Feed;
use crate::embedded::log::segment::Segment;
use crate::embedded::upkeep::Upkeep;
use crate::error::StoreError;
use crate::stats::LogStats;
use crate::sync::{lock, wait};

/// Below that of the threads that answer requests.
const AHEAD_NICENESS: i32 = 10;

/// With so much in the queue the idle thread seals while the other one still syncs. With less, it would be
/// woken for a few microseconds of work; the syncing one does that itself when it is back, and no request
/// costs a switch between threads.
const SEAL_EARLY_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) contents: Arc<Contents>,
    upkeep: Arc<Upkeep>,
    shared: Mutex<Shared>,
    /// Wakes the writer threads.
    work: Condvar,
    /// Wakes the thread that seals large requests.
    ahead_due: Condvar,
    sealer: Mutex<Sealer>,
    committer: Committer,
    publisher: Publisher,
}

/// What the threads and the callers share.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    admission: Admission,
    /// A thread has the sealer.
    sealing: bool,
    /// A group is being written, synced and published.
    committing: bool,
    /// Counts up when what was sealed but not written has to be forgotten.
    generation: u64,
    /// Memory of a group that was written, for the next one.
    spare: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(
        contents: &Arc<Contents>,
        upkeep: &Arc<Upkeep>,
        feed: &Arc<Feed>,
        active: Arc<Segment>,
        poisoned: Option<StoreError>,
    ) -> Writer {
        let options = &contents.options;
        Writer {
            contents: Arc::clone(contents),
            upkeep: Arc::clone(upkeep),
            shared: Mutex::new(Shared {
                queue: Queue::new(options.large_bytes, options.queue_bytes_max),
                admission: Admission::new(poisoned),
                sealing: false,
                committing: false,
                generation: 0,
                spare: Vec::new(),
            }),
            work: Condvar::new(),
            ahead_due: Condvar::new(),
            sealer: Mutex::new(Sealer::new(contents.durable(), contents.salt)),
            committer: Committer::new(Arc::clone(contents), Arc::clone(upkeep), active),
            publisher: Publisher::new(Arc::clone(contents), Arc::clone(upkeep), Arc::clone(feed)),
        }
    }

    /// Asks for the first segment to be preallocated. Before the threads are started.
    pub(crate) fn begin(&self) {
        self.committer.begin();
    }

    /// Queues requests, or answers why they cannot be queued.
    pub(crate) fn enqueue(&self, requests: impl Iterator<Item = Request>) {
        let mut refused = Vec::new();
        let mut shared = lock(&self.shared);
        let admitted = shared.admission.check();
        for request in requests {
            match &admitted {
                Ok(()) => {
                    let given_back = shared.queue.push(request);
                    refused.extend(given_back.map(|request| (request, StoreError::QueueFull)));
                }
                Err(error) => refused.push((request, error.clone())),
            }
        }
        let asleep = !shared.sealing && !shared.committing;
        let wake = asleep || shared.queue.small_bytes() >= SEAL_EARLY_BYTES;
        let large = shared.queue.may_need_ahead();
        drop(shared);
        if wake {
            self.work.notify_one();
        }
        if large {
            self.ahead_due.notify_one();
        }
        for (request, error) in refused {
            request.fail(error);
        }
    }

    /// Whether requests may be queued.
    pub(crate) fn accepts(&self) -> Result<(), StoreError> {
        lock(&self.shared).admission.check()
    }

    /// Whether a request that came now could expect to be written.
    pub(crate) fn ready(&self) -> Result<(), StoreError> {
        lock(&self.shared).admission.is_ready(self.contents.options.queue_deadline)
    }

    pub(crate) fn stats(&self) -> LogStats {
        let (queue_requests, queue_bytes) = {
            let shared = lock(&self.shared);
            (shared.queue.len() as u64, shared.queue.bytes() as u64)
        };
        LogStats {
            mode: self.contents.mode,
            append: self.publisher.append_time(),
            sync: self.committer.sync_time(),
            queue_requests,
            queue_bytes,
        }
    }

    /// Looks whether the segment that is written to still has a name.
    pub(crate) fn check_active_file(&self) -> Result<(), String> {
        self.committer.check_active_file()
    }

    /// Runs one of the log's threads. If it panics, our own reasoning was wrong and what is in memory cannot
    /// be trusted: the log stops as after a failed write.
    pub(crate) fn panics(&self, thread: &str, run: impl FnOnce()) -> bool {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
        if panicked {
            self.poison(&io::Error::other(format!("the thread {thread} panicked")));
            // Nobody is to wait for what it would have made.
            self.committer.stop();
            self.work.notify_all();
        }
        panicked
    }

    pub(crate) fn write_thread(&self) {
        if self.panics("that writes", || self.write_loop()) {
            let mut shared = lock(&self.shared);
            // Whether the other one is sealing shows in the sealer, which nobody takes without this lock.
            shared.sealing = matches!(self.sealer.try_lock(), Err(TryLockError::WouldBlock));
            shared.committing = false;
            shared.admission.end_write();
            drop(shared);
            self.work.notify_all();
        }
    }

    /// A writer thread: seals a group, then writes it, while the other one does the same half a step apart.
    fn write_loop(&self) {
        let mut shared = lock(&self.shared);
        loop {
            while shared.sealing || !(shared.queue.sort_out() || self.can_take_large(&shared)) {
                if shared.admission.is_closing() && !shared.sealing && shared.queue.is_idle() {
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
            sealer.begin(shared.generation, || self.contents.durable());
            let mut group = sealer.new_group(std::mem::take(&mut shared.spare));
            // Goes on adding to the group for as long as the disk is busy with the one before, or the group
            // has nothing but large requests and there are more.
            loop {
                let bytes_max = self.contents.options.group_bytes_max;
                let requests = sealer.take(&mut group, &mut shared.queue, bytes_max, &self.committer);
                if requests.is_empty() {
                    if !shared.committing {
                        break;
                    }
                    self.note_heads(&mut shared, &sealer);
                    self.wake_ahead(&shared);
                    shared = wait(&self.work, shared);
                    continue;
                }
                drop(shared);
                let before = group.bytes();
                group.reserve(requests.len());
                // Behind the receipt of all of them.
                let now_ms = self.contents.world.clock().sealing_ms();
                for request in requests {
                    match &now_ms {
                        Ok(now_ms) => {
                            let known = self.known(&sealer, &request, *now_ms);
                            sealer
                                .seal(&mut group, request, known, *now_ms, || self.contents.world.random80());
                        }
                        Err(error) => request.fail(error.clone()),
                    }
                }
                shared = lock(&self.shared);
                // Whoever brings much gains by a large group, and whoever brings little by going at once.
                // What was refused makes it no larger.
                let grows = !group.has_small() && group.bytes() > before;
                if !shared.committing && !grows {
                    break;
                }
            }
            let group = sealer.complete(group, &mut shared.queue);
            self.note_heads(&mut shared, &sealer);
            drop(sealer);
            shared.committing = true;
            shared.admission.begin_write();
            shared.sealing = false;
            let wake = shared.admission.is_closing()
                || shared.queue.small_bytes() >= SEAL_EARLY_BYTES
                || shared.queue.has_ready();
            self.wake_ahead(&shared);
            drop(shared);
            if wake {
                self.work.notify_one();
            }
            let mut bytes = self.commit(group);
            bytes.clear();
            shared = lock(&self.shared);
            shared.committing = false;
            shared.admission.end_write();
            shared.spare = bytes;
            if shared.sealing || shared.admission.is_closing() {
                self.work.notify_one();
            }
        }
    }

    /// What the critical section has to know of a request: everything that takes a lock or a read to find
    /// out.
    fn known(&self, sealer: &Sealer, request: &Request, now_ms: u64) -> Known {
        let chain = request.chain;
        let (head, mut unproven) = self.last_sealed(sealer, chain);
        if self.contents.chains.has_late_loss() {
            let (durable, is_unproven) = self.contents.durable_head(chain);
            // An acceptance follows the last event that exists: it comes after those that are on their way.
            let is_early = head != durable && matches!(request.work, Work::AcceptLoss { .. });
            unproven = is_unproven && !is_early;
        }
        let key = match &request.work {
            Work::Append { idempotency: Some(idempotency), .. } if !unproven => Some(idempotency.0.key),
            _ => None,
        };
        Known {
            head,
            unproven,
            earlier: key.map_or(Ok(None), |key| self.contents.find_key(chain, &key, now_ms)),
            ends: matches!(request.work, Work::AcceptLoss { .. }).then(|| self.contents.heads_of(chain)),
        }
    }

    /// The last sealed event of a chain, durable or not yet, and whether nothing may be sealed on it.
    fn last_sealed(&self, sealer: &Sealer, chain: ChainId) -> (Head, bool) {
        sealer.head_of(chain).map_or_else(|| self.contents.durable_head(chain), |head| (head, false))
    }

    /// Notes what large requests are to be sealed on. Their chains are paused, so it stays true unless a
    /// group comes to nothing.
    fn note_heads(&self, shared: &mut Shared, sealer: &Sealer) {
        shared.queue.note_heads(|chain| self.last_sealed(sealer, chain).0);
    }

    fn can_take_large(&self, shared: &Shared) -> bool {
        shared.queue.has_ready() && self.committer.keeps_up()
    }

    fn wake_ahead(&self, shared: &Shared) {
        if shared.queue.is_ahead_due() {
            self.ahead_due.notify_one();
        }
    }

    /// The thread that seals large requests while the writers go on with other chains.
    pub(crate) fn ahead_thread(&self) {
        // As those who parse them. Of this thread alone; without it everything works as well, only less
        // evenly.
        let _ = rustix::process::setpriority_process(None, AHEAD_NICENESS);
        if self.panics("that seals large requests", || self.ahead_loop()) {
            lock(&self.shared).queue.abandon_ahead();
            self.work.notify_all();
        }
    }

    fn ahead_loop(&self) {
        let mut shared = lock(&self.shared);
        loop {
            // Nobody holds the sealer unless someone is sealing.
            if !shared.sealing {
                shared.queue.sort_out();
                let mut sealer = lock(&self.sealer);
                sealer.begin(shared.generation, || self.contents.durable());
                self.note_heads(&mut shared, &sealer);
            }
            let Some((mut request, on)) = shared.queue.begin_ahead() else {
                if shared.admission.is_closing() && shared.queue.is_idle() {
                    return;
                }
                shared = wait(&self.ahead_due, shared);
                continue;
            };
            drop(shared);
            if let Work::Append { drafts, .. } = &request.work {
                let now_ms = self.contents.world.now_ms();
                let sealed = seal_on(on, request.chain, drafts, now_ms, || self.contents.world.random80());
                request.ahead = Some(Box::new(SealedAhead { on, now_ms, sealed }));
            }
            shared = lock(&self.shared);
            shared.queue.finish_ahead(request);
            self.work.notify_one();
        }
    }

    /// Makes a group durable, then visible, then answers. Returns the group's memory.
    fn commit(&self, mut group: Complete) -> Vec<u8> {
        // A group whose requests were all refused writes nothing, but a segment that it was to begin must
        // still begin: the next group is planned into it.
        if group.frames.is_empty() && group.begins.is_none() {
            return group.bytes;
        }
        let committed = self
            .may_write(group.generation)
            .and_then(|()| self.committer.commit(&group).map_err(|failure| self.failed(failure)));
        let bytes = std::mem::take(&mut group.bytes);
        if let Err(error) = committed {
            for frame in group.frames {
                frame.outcome.fail(error.clone());
            }
            return bytes;
        }
        let after = group.after;
        let visible = self.publisher.publish(group);
        self.committer.note_filled(after.end, after.capacity);
        lock(&self.shared).admission.note_success();
        self.publisher.complete(visible);
        bytes
    }

    /// Not on top of a write that failed, nor of a group that came to nothing.
    fn may_write(&self, generation: u64) -> Result<(), StoreError> {
        let shared = lock(&self.shared);
        match shared.admission.poisoned() {
            Some(error) => Err(error.clone()),
            None if generation != shared.generation => Err(StoreError::NoRoom),
            None => Ok(()),
        }
    }

    fn failed(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Unknown(error) => self.poison(&error),
            Failure::NoRoom(cause) => self.no_room(&cause),
        }
    }

    /// A failed write or sync leaves it unknown what is on disk, and asking again would not tell. Nothing is
    /// written any more; the next start finds out.
    pub(crate) fn poison(&self, error: &io::Error) -> StoreError {
        let log = self.contents.mode.as_str();
        tracing::error!(%error, log, "a write failed; rejecting events until the server restarts");
        let error = StoreError::Poisoned(error.to_string());
        let mut shared = lock(&self.shared);
        shared.admission.poison(error.clone());
        for request in shared.queue.drain() {
            request.fail(error.clone());
        }
        drop(shared);
        // A writer that sleeps beside a large request which waits for its segment has nothing to wait for any
        // more; if the log is being closed, whoever closes it waits for that writer.
        self.work.notify_all();
        self.ahead_due.notify_all();
        error
    }

    /// No events are accepted, for this reason or an earlier one. Before the threads are started.
    pub(crate) fn refuse(&self, error: StoreError) {
        lock(&self.shared).admission.poison(error);
    }

    /// Refuses events from now on, since another store has the chains. What is queued is still written: it
    /// came before. Whether that is news.
    pub(crate) fn supersede(&self, epoch: u64) -> bool {
        lock(&self.shared).admission.supersede(epoch)
    }

    /// Refuses events until the reason is taken back. What is queued is still written.
    pub(crate) fn set_rolled_back(&self, why: Option<String>) {
        lock(&self.shared).admission.set_rolled_back(why);
    }

    /// Refuses events until there is another segment. What was sealed in the meantime is forgotten.
    fn no_room(&self, cause: &str) -> StoreError {
        let log = self.contents.mode.as_str();
        tracing::error!(cause, log, "no disk space for another segment; rejecting events until there is");
        let mut shared = lock(&self.shared);
        shared.admission.refuse_for_want_of_room();
        shared.generation += 1;
        StoreError::NoRoom
    }

    /// The thread that preallocates segments.
    pub(crate) fn prepare_thread(&self) {
        self.panics("that prepares segments", || self.committer.prepare(|| self.prepared_more()));
    }

    /// The next segment has grown or is there.
    fn prepared_more(&self) {
        self.look_for_room();
        let shared = lock(&self.shared);
        if self.can_take_large(&shared) {
            self.work.notify_one();
        }
    }

    /// Looks whether a segment was prepared, and if so accepts events again. Asked when one becomes ready and
    /// at every tick: between the writer's look and its verdict the preparer may have finished.
    fn look_for_room(&self) {
        if !self.committer.has_next() {
            return;
        }
        if lock(&self.shared).admission.note_room() {
            let log = self.contents.mode.as_str();
            tracing::info!(log, "disk space is available again; accepting events");
        }
    }

    /// Fails requests that have waited too long. A thread of its own, which never touches the disk: a disk
    /// that hangs is what deadlines are for.
    pub(crate) fn deadline_thread(&self) {
        self.panics("that watches deadlines", || self.deadline_loop());
    }

    fn deadline_loop(&self) {
        let options = &self.contents.options;
        let pause = (options.queue_deadline / 4).min(options.tick);
        while !self.upkeep.pause(pause) {
            let freed = {
                let mut shared = lock(&self.shared);
                let expired = shared.queue.expire(options.queue_deadline);
                let idle = shared.queue.is_idle();
                shared.admission.note_deadlines(expired.any, expired.late, idle);
                expired.freed
            };
            if freed {
                self.work.notify_one();
                self.ahead_due.notify_one();
            }
            self.look_for_room();
            // A leap is noticed when it comes, not with the next event.
            self.contents.world.clock();
        }
    }

    /// No more requests are taken; the writer threads end when they have written what waits.
    pub(crate) fn close(&self) {
        lock(&self.shared).admission.close();
        self.work.notify_all();
        self.ahead_due.notify_all();
    }

    /// The writer threads have ended: no more segments are needed.
    pub(crate) fn stop_preparing(&self) {
        self.committer.stop();
    }

    /// Everything has ended. Whether the log was closed without a failure, and takes no more room than it
    /// needs.
    pub(crate) fn finish(&self) -> bool {
        let clean = lock(&self.shared).admission.is_closed_cleanly();
        if clean {
            self.committer.trim();
        }
        clean
    }
}
