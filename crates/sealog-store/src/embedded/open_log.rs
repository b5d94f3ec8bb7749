//! One log: a directory of segments, the threads that write it, and what is known of it in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid};
use sealog_core::time::Month;

use super::Options;
use super::cache::Cache;
use super::feed::Feed;
use super::index::chain_index::{Chain, Chains, SealedRun};
use super::index::keys::{KeyPlace, Keys};
use super::index::salt::IndexSalt;
use super::index::sidecar::{self, Caches, Opened, SegmentEnd, SegmentIndex, SlotProbe, slot};
use super::log::disk::{self, Disk, OpenFiles};
use super::log::format::Frame;
use super::log::segment::{self, Preparer, Segment};
use super::read::reader::ReadFailures;
use super::recovery::high_water_mark::{Extent, MarkFile};
use super::recovery::recover::{self, Finding, Indexed, RecoveryError};
use super::write::writer::{Sealer, Shared};
use crate::append::{Appended, IdempotencyKey, Receipt, Reservation, Reserved};
use crate::clock::HEAD_AHEAD_MS;
use crate::error::StoreError;
use crate::loss;
use crate::stats::{Histogram, LogStats};
use crate::sync::{lock, wait_for, write};
use crate::world::World;

#[derive(Debug)]
pub(super) struct Log {
    pub mode: Mode,
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub world: Arc<dyn World>,
    pub options: Options,
    pub salt: IndexSalt,
    pub chains: Chains,
    pub segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    pub keys: Keys,
    pub usage: Mutex<HashMap<(TenantId, Month), u64>>,
    pub caches: Caches,
    pub shared: Mutex<Shared>,
    /// Wakes the writer threads.
    pub work: Condvar,
    /// Wakes the thread that seals large requests.
    pub ahead_due: Condvar,
    pub sealer: Mutex<Sealer>,
    pub active: Mutex<Arc<Segment>>,
    pub preparer: Preparer,
    pub files: Arc<OpenFiles>,
    /// Ends of all segments but the active one.
    ends: Mutex<BTreeMap<u64, SegmentEnd>>,
    upkeep: Mutex<Upkeep>,
    upkeep_due: Condvar,
    mark: Mutex<MarkFile>,
    /// Acceptances of a loss that are sealed, and that the mark may not know yet. Held while one is made.
    acceptances: Mutex<HashMap<ChainId, Receipt>>,
    /// Held while an index is built again. For each segment that this was done for, the id of the index that it has now.
    rebuilding: Mutex<BTreeMap<u64, u64>>,
    /// Segments whose index files can be read but should be made anew, and the ids of those; the next one last.
    stale: Mutex<Vec<(u64, u64)>>,
    unknown_unproven: bool,
    /// Why not everything could be read when the log was opened.
    pub unreadable: Option<String>,
    /// Whether there may be chains of which nothing could be read.
    pub unreadable_chains: bool,
    pub read_failures: ReadFailures,
    pub append_time: Histogram,
    pub sync_time: Histogram,
    /// Of the store: one for its logs.
    pub feed: Arc<Feed>,
}

/// Below that of those who answer requests.
const UPKEEP_NICENESS: i32 = 5;
/// Nobody waits for a new index where there is an old one.
const REINDEX_NICENESS: i32 = 19;

/// What the upkeep thread has to do.
#[derive(Debug, Default)]
struct Upkeep {
    /// Segments that were filled and need an index file.
    sealed: Vec<SegmentEnd>,
    /// Heads that changed since the last mark.
    heads: BTreeMap<ChainId, Head>,
    stop: bool,
}

/// A log that was opened, and its threads.
#[derive(Debug)]
struct OpenLog {
    log: Arc<Log>,
    findings: Vec<Finding>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// An open log. One that was opened on a full disk can be read, and is opened once more when there is room.
#[derive(Debug)]
pub(super) struct Handle {
    first: OpenLog,
    again: Arc<Again>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Again {
    opened: OnceLock<OpenLog>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Handle {
    pub(super) fn open(
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) -> Result<Handle, RecoveryError> {
        let first = OpenLog::open(dir, mode, options, salt, feed)?;
        let again = Arc::new(Again::default());
        let mut thread = None;
        if first.lacks_room() {
            let (dir, options, again) = (dir.to_owned(), options.clone(), Arc::clone(&again));
            let feed = Arc::clone(feed);
            let named = std::thread::Builder::new().name(format!("sealog-{}-reopen", mode.as_str()));
            thread =
                Some(named.spawn(move || again.open_when_there_is_room(&dir, mode, &options, salt, &feed))?);
        }
        Ok(Handle { first, again, thread: Mutex::new(thread) })
    }

    fn now(&self) -> &OpenLog {
        self.again.opened.get().unwrap_or(&self.first)
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        &self.now().log
    }

    pub(super) fn findings(&self) -> &[Finding] {
        &self.now().findings
    }

    /// Writes what is queued, stops the threads, and leaves a mark that says so.
    pub(super) fn close(&self) {
        *lock(&self.again.stop) = true;
        self.again.stopped.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        self.now().close();
    }
}

impl Again {
    /// Opens the log once more, by the same path as at every start. Whoever reads from what was opened first can go on: its files are not changed by this.
    fn open_when_there_is_room(
        &self,
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) {
        let mut stop = lock(&self.stop);
        while !*stop {
            stop = wait_for(&self.stopped, stop, options.tick);
            if *stop || !options.room().is_there(&*options.disk, dir) {
                continue;
            }
            drop(stop);
            match OpenLog::open(dir, mode, options, salt, feed) {
                Ok(opened) if opened.lacks_room() => {}
                Ok(opened) => {
                    if opened.log.ready().is_ok() {
                        tracing::info!(log = mode.as_str(), "there is room again; events are accepted");
                    }
                    let set = self.opened.set(opened);
                    set.expect("nobody else sets it");
                    return;
                }
                Err(error) => {
                    tracing::warn!(?error, log = mode.as_str(), "cannot open the log again; trying again");
                }
            }
            stop = lock(&self.stop);
        }
    }
}

impl OpenLog {
    fn open(
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) -> Result<OpenLog, RecoveryError> {
        let recovered = recover::recover(dir, mode, options, salt)?;
        let mut findings = recovered.findings;
        let poisoned = findings.iter().find_map(|finding| match finding {
            Finding::ReadOnly { cause } => Some(StoreError::Poisoned(cause.clone())),
            Finding::NoRoom { .. } => Some(StoreError::NoRoom),
            _ => None,
        });
        let active = Arc::clone(&recovered.segments[&recovered.plan.segment]);
        let log = Arc::new(Log {
            mode,
            dir: dir.to_owned(),
            disk: Arc::clone(&options.disk),
            world: Arc::clone(&options.world),
            options: options.clone(),
            salt,
            chains: recovered.chains,
            segments: RwLock::new(recovered.segments),
            keys: recovered.keys,
            usage: Mutex::new(recovered.usage),
            caches: Caches {
                // A run's table has less than a tenth of the bytes of its blocks.
                tables: Cache::new(options.cache_bytes / 8),
                columns: Cache::new(options.cache_bytes / 8 * 7),
            },
            shared: Mutex::new(Shared::new(recovered.plan, recovered.commit, poisoned)),
            work: Condvar::new(),
            ahead_due: Condvar::new(),
            sealer: Mutex::new(Sealer::new(recovered.plan, recovered.commit, salt)),
            active: Mutex::new(active),
            preparer: Preparer::new(Arc::clone(&options.disk), dir.to_owned(), options.room()),
            ends: Mutex::new(recovered.ends),
            upkeep: Mutex::default(),
            upkeep_due: Condvar::new(),
            files: recovered.files,
            mark: Mutex::new(recovered.mark),
            acceptances: Mutex::default(),
            rebuilding: Mutex::default(),
            stale: Mutex::new(recovered.stale),
            unknown_unproven: recovered.unknown_unproven,
            unreadable: recovered.unreadable,
            unreadable_chains: recovered.unreadable_chains,
            read_failures: ReadFailures::default(),
            append_time: Histogram::durations(),
            sync_time: Histogram::durations(),
            feed: Arc::clone(feed),
        });
        if lock(&log.shared).accepts().is_ok()
            && let Err(error) = log.mark_all()
        {
            // Without a mark, lost events would go unnoticed; reading needs none.
            let cause = format!("the mark cannot be written: {error}");
            let (finding, error) = if segment::is_no_room(&error) {
                (Finding::NoRoom { cause }, StoreError::NoRoom)
            } else {
                (Finding::ReadOnly { cause }, StoreError::Poisoned(error.to_string()))
            };
            tracing::error!(log = mode.as_str(), "{finding}");
            findings.push(finding);
            lock(&log.shared).poison(error);
        }
        if let Some(finding) = log.clock_behind() {
            tracing::error!(log = mode.as_str(), "{finding}");
            findings.push(finding);
        }
        // Dropped on every way out of here, which stops and joins the threads that did start.
        let opened = OpenLog { log, findings, threads: Mutex::default() };
        if lock(&opened.log.shared).accepts().is_ok() {
            opened.log.preparer.want(opened.log.next_capacity(recovered.plan.capacity));
            opened.start("write-1", Log::write_thread)?;
            opened.start("write-2", Log::write_thread)?;
            opened.start("ahead", Log::ahead_thread)?;
            opened.start("prepare", Log::prepare_thread)?;
            opened.start("upkeep", Log::upkeep_thread)?;
            opened.start("deadlines", Log::deadline_thread)?;
            if !lock(&opened.log.stale).is_empty() {
                opened.start("reindex", Log::reindex_thread)?;
            }
        }
        Ok(opened)
    }

    fn lacks_room(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding, Finding::NoRoom { .. }))
    }
}

impl Log {
    pub(super) fn ready(&self) -> Result<(), StoreError> {
        lock(&self.shared).ready(self.options.queue_deadline)
    }

    /// What is said of a clock that is behind the last events: their chains' time stands still until it has caught up.
    fn clock_behind(&self) -> Option<Finding> {
        let now_ms = self.world.now_ms();
        let ahead_ms = |chain: &Arc<Chain>| {
            // Of a chain that accepts nothing, the last id may be anything.
            let (head, unproven) = chain.with(|state| (state.durable, state.unproven));
            let head_ms = if unproven { 0 } else { head.log_id.timestamp_ms() };
            (head_ms > now_ms.saturating_add(HEAD_AHEAD_MS)).then(|| (head_ms - now_ms, chain.id))
        };
        let ahead: Vec<(u64, ChainId)> = self.chains.all().iter().filter_map(ahead_ms).collect();
        let (by_ms, furthest) = ahead.iter().copied().max()?;
        Some(Finding::ClockBehind { chains: ahead.len(), furthest, by_ms })
    }

    pub(super) fn stats(&self) -> LogStats {
        let (queue_requests, queue_bytes) = lock(&self.shared).waiting();
        LogStats {
            mode: self.mode,
            append: self.append_time.view(),
            sync: self.sync_time.view(),
            queue_requests,
            queue_bytes,
        }
    }

    /// Looks whether the segment that is written to still has a name.
    pub(super) fn check_active_file(&self) -> Result<(), String> {
        // Whoever holds it is writing; there will be another look.
        let Ok(active) = self.active.try_lock() else { return Ok(()) };
        if active.file.is_linked().unwrap_or(true) {
            return Ok(());
        }
        let path = segment::segment_path(&self.dir, active.number);
        Err(format!("{} was deleted while it was written to", path.display()))
    }

    /// What its files take, as far as the disk tells.
    pub(super) fn storage_bytes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return 0 };
        entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
    }

    /// The durable head of a chain, and whether it cannot be proven to be the last.
    pub(super) fn durable_head(&self, chain: ChainId) -> (Head, bool) {
        match self.chains.get(chain) {
            Some(chain) => chain.with(|state| (state.durable, state.unproven)),
            None => (Head::EMPTY, self.unknown_unproven),
        }
    }

    /// Lets a chain go on whose last events are lost.
    ///
    /// t0: the acceptance is sealed and synced, the mark still has the recorded head. A crash here: the next start finds an acceptance of exactly that head at the end of the chain.
    /// t1: the mark has the acceptance. t2: the chain takes events. Until t1 nothing can follow the acceptance, so it is always where a start looks for it.
    pub(super) fn accept_loss(
        self: &Arc<Log>,
        chain: ChainId,
        reason: String,
    ) -> Result<Receipt, StoreError> {
        loss::check_reason(&reason)?;
        let mut acceptances = lock(&self.acceptances);
        let receipt = match acceptances.get(&chain) {
            // An earlier call came this far, and the mark could not be written.
            Some(receipt) => receipt.clone(),
            None => {
                let sealed = self.seal_acceptance(chain, reason)?.blocking_recv();
                let receipt = sealed.unwrap_or(Err(StoreError::Closing))?;
                acceptances.insert(chain, receipt.clone());
                receipt
            }
        };
        self.try_mark(false).map_err(|error| {
            let seq = receipt.first_seq;
            StoreError::Control(format!(
                "the acceptance is sealed as event {seq}, but the high-water mark cannot be written ({error}); accept the loss again to go on"
            ))
        })?;
        acceptances.remove(&chain);
        self.chains.get_or_create(chain).with(|state| state.unproven = false);
        Ok(receipt)
    }

    /// Takes a key of which memory alone can tell that it is in flight or was never used.
    pub(super) fn reserve_unused(&self, chain: ChainId, key: IdempotencyKey) -> Option<Reserved> {
        let slot = slot(chain, key.key_hash);
        let Some(release) = self.keys.take(slot) else { return Some(Reserved::InFlight) };
        let reservation = Reservation::new(chain, key, release);
        self.keys.is_unused(&SlotProbe::new(slot, &self.salt)).then_some(Reserved::Fresh(reservation))
    }

    pub(super) fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> Result<Reserved, StoreError> {
        // Taken before looking: whoever finds the key unused holds it.
        let Some(release) = self.keys.take(slot(chain, key.key_hash)) else { return Ok(Reserved::InFlight) };
        let reservation = Reservation::new(chain, key, release);
        Ok(match self.find_key(chain, &key, self.world.now_ms())? {
            None => Reserved::Fresh(reservation),
            Some(Appended::Conflict) => Reserved::Conflict,
            Some(Appended::Replayed(receipt) | Appended::Sealed(receipt)) => Reserved::Replay(receipt),
        })
    }

    /// What an earlier request under this key says of this one; nothing when there was none.
    pub(super) fn find_key(
        &self,
        chain: ChainId,
        key: &IdempotencyKey,
        now_ms: u64,
    ) -> Result<Option<Appended>, StoreError> {
        let probe = SlotProbe::new(slot(chain, key.key_hash), &self.salt);
        for place in self.with_rebuild(|| self.keys.find(&probe, now_ms))? {
            let decided = self.read_key(chain, key, place).map_err(|error| self.read_failed(&error))?;
            if decided.is_some() {
                return Ok(decided);
            }
        }
        Ok(None)
    }

    fn read_key(
        &self,
        chain: ChainId,
        key: &IdempotencyKey,
        place: KeyPlace,
    ) -> io::Result<Option<Appended>> {
        let lost =
            || io::Error::new(io::ErrorKind::InvalidInput, "the frame of an idempotency key cannot be read");
        let segment = self.segment(place.segment).ok_or_else(lost)?;
        let position = u64::from(place.entry.position);
        let mut bytes = vec![0; 64 << 10];
        let mut filled = segment.file.read_at(&mut bytes, position)?;
        if Frame::decode(&bytes[..filled], position, &segment.salt, self.mode).is_none() {
            bytes.resize(super::log::format::FRAME_LEN_MAX, 0);
            filled = segment.file.read_at(&mut bytes, position)?;
        }
        let frame = Frame::decode(&bytes[..filled], position, &segment.salt, self.mode).ok_or_else(lost)?;
        if !frame.intact() {
            // A loss that was accepted: another event stands in place of its last one, and whoever asks again is not told of what is gone.
            let header = &frame.header;
            let last_seq = header.first_seq + u64::from(header.count) - 1;
            let is_here = |(segment, at)| segment == place.segment && (position..header.end()).contains(&at);
            let replaced =
                header.chain == chain && self.place_of(chain, last_seq)?.is_some_and(|at| !is_here(at));
            return if replaced { Ok(None) } else { Err(lost()) };
        }
        let stored = frame.idempotency().ok_or_else(lost)?;
        if frame.header.chain != chain || stored.key.key_hash != key.key_hash {
            // Another key in the same slot.
            return Ok(None);
        }
        if stored.key.fingerprint != key.fingerprint {
            return Ok(Some(Appended::Conflict));
        }
        let events: Vec<_> = frame.records().filter_map(|record| record.event(chain)).collect();
        Ok(events.last().map(|last| {
            Appended::Replayed(Receipt {
                request_id: Some(stored.request_id),
                log_ids: events.iter().map(|event| event.sealed.log_id).collect(),
                first_seq: frame.header.first_seq,
                hash: last.sealed.hash,
            })
        }))
    }

    pub(super) fn count_usage(&self, counts: Vec<((TenantId, Month), u64)>) {
        let mut usage = lock(&self.usage);
        for (of, count) in counts {
            *usage.entry(of).or_default() += count;
        }
    }

    /// An event that was counted is not there any more.
    pub(super) fn uncount_usage(&self, tenant_id: TenantId, log_id: Ulid) {
        let mut usage = lock(&self.usage);
        if let Some(count) = usage.get_mut(&(tenant_id, Month::of(log_id.timestamp_ms()))) {
            *count = count.saturating_sub(1);
        }
    }

    /// Where a segment ends that is not written to any more.
    pub(super) fn end_of(&self, segment: u64) -> u64 {
        lock(&self.ends).get(&segment).map_or(u64::MAX, |end| end.final_len)
    }

    /// Chains have new durable heads.
    pub(super) fn changed(&self, heads: Vec<(ChainId, Head)>) {
        lock(&self.upkeep).heads.extend(heads);
    }

    /// A segment is full.
    pub(super) fn sealed(&self, end: SegmentEnd) {
        lock(&self.ends).insert(end.number, end);
        // It is only read from now on, and its descriptor can be used for others.
        let mut segments = write(&self.segments);
        if let Some(segment) = segments.get_mut(&end.number) {
            let file = self.files.file(segment::segment_path(&self.dir, end.number));
            *segment = Arc::new(Segment { number: end.number, salt: segment.salt, file });
        }
        drop(segments);
        lock(&self.upkeep).sealed.push(end);
        self.upkeep_due.notify_all();
    }

    fn prepare_thread(&self) {
        self.panics("that prepares segments", || {
            self.preparer.run(self.options.tick, || self.prepared_more());
        });
    }

    fn upkeep_thread(&self) {
        self.panics("that writes marks and index files", || self.upkeep_loop());
    }

    fn reindex_thread(&self) {
        self.panics("that rebuilds old index files", || self.reindex_loop());
    }

    /// Makes index files anew that an earlier version wrote, or whose salt is lost. Readers use the old ones until then, and a crash leaves one or the other.
    fn reindex_loop(&self) {
        let _ = rustix::process::setpriority_process(None, REINDEX_NICENESS);
        let segments = lock(&self.stale).len();
        tracing::info!(log = self.mode.as_str(), segments, "rebuilding old index files in the background");
        while let Some((segment, id)) = { lock(&self.stale).pop() } {
            let begun = Instant::now();
            if let Err(error) = self.renew_index(segment, id) {
                tracing::warn!(%error, segment, "cannot rebuild an old index file; using it as it is until the next start");
            }
            // As long a pause, so that at most half of a disk's time goes into this.
            let until = Instant::now() + begun.elapsed();
            let mut upkeep = lock(&self.upkeep);
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if upkeep.stop {
                    return;
                }
                if left.is_zero() {
                    break;
                }
                upkeep = wait_for(&self.upkeep_due, upkeep, left);
            }
        }
        tracing::info!(log = self.mode.as_str(), segments, "old index files are rebuilt");
    }

    fn deadline_thread(&self) {
        self.panics("that watches deadlines", || self.deadline_loop());
    }

    /// Fails requests that have waited too long. A thread of its own, which never touches the disk: a disk that hangs is what deadlines are for.
    fn deadline_loop(&self) {
        let pause = (self.options.queue_deadline / 4).min(self.options.tick);
        let mut upkeep = lock(&self.upkeep);
        while !upkeep.stop {
            upkeep = wait_for(&self.upkeep_due, upkeep, pause);
            drop(upkeep);
            if lock(&self.shared).expire(self.options.queue_deadline) {
                self.work.notify_one();
                self.ahead_due.notify_one();
            }
            self.look_for_room();
            // A leap is noticed when it comes, not with the next event.
            self.world.clock();
            upkeep = lock(&self.upkeep);
        }
    }

    /// Marks and index files are written here, away from the path of events.
    fn upkeep_loop(&self) {
        // Indexing a full segment is a lot of work that nobody waits for. Of this thread alone; without it everything works as well, only less evenly.
        let _ = rustix::process::setpriority_process(None, UPKEEP_NICENESS);
        // Index files are written in the order of their segments, since readers expect runs on disk before runs in memory. One that fails is tried again.
        let mut sealed: VecDeque<SegmentEnd> = VecDeque::new();
        loop {
            let stop = {
                let mut upkeep = lock(&self.upkeep);
                if upkeep.sealed.is_empty() && !upkeep.stop {
                    upkeep = wait_for(&self.upkeep_due, upkeep, self.options.tick);
                }
                sealed.extend(std::mem::take(&mut upkeep.sealed));
                upkeep.stop
            };
            while let Some(end) = sealed.front() {
                if let Err(error) = self.write_index_of(end) {
                    tracing::warn!(%error, segment = end.number, "cannot write an index file; trying again");
                    break;
                }
                sealed.pop_front();
            }
            self.mark_changes(false);
            if stop {
                return;
            }
        }
    }

    /// Records what has become durable since the last mark.
    fn mark_changes(&self, clean: bool) {
        if let Err(error) = self.try_mark(clean) {
            tracing::warn!(%error, log = self.mode.as_str(), "failed to persist the high-water mark; lost events at the end may go unnoticed until it can be written");
        }
    }

    fn try_mark(&self, clean: bool) -> io::Result<()> {
        let mut mark = lock(&self.mark);
        // The extent first: heads that come in between are then above it, which is the safe side.
        let (plan, commit) = lock(&self.shared).durable();
        let heads = std::mem::take(&mut lock(&self.upkeep).heads);
        let extent = Extent { commit, segment: plan.segment, offset: plan.end };
        // A mark that came between a group's heads and its end has taken the heads already.
        if heads.is_empty() && !clean && mark.marked().extent == extent {
            return Ok(());
        }
        let written = mark.write(extent, clean, &heads, self.world.now_ms());
        if written.is_err() {
            let mut upkeep = lock(&self.upkeep);
            for (chain, head) in heads {
                upkeep.heads.entry(chain).or_insert(head);
            }
        }
        written
    }

    /// At start: what recovery found is durable now, and a clean stop is no longer the last word.
    fn mark_all(&self) -> io::Result<()> {
        let mut mark = lock(&self.mark);
        let (plan, commit) = lock(&self.shared).durable();
        let heads: BTreeMap<ChainId, Head> = self
            .chains
            .all()
            .iter()
            // A chain that has lost its end keeps the head that is on record: it is the evidence.
            .filter(|chain| !chain.with(|state| state.unproven))
            .map(|chain| (chain.id, chain.head().durable))
            .filter(|(chain, head)| head.chain_seq > 0 && mark.marked().heads.get(chain) != Some(head))
            .collect();
        let extent = Extent { commit, segment: plan.segment, offset: plan.end };
        mark.write(extent, false, &heads, self.world.now_ms())
    }

    /// Moves the index of a full segment from memory to a file.
    fn write_index_of(&self, end: &SegmentEnd) -> io::Result<()> {
        let mut index = SegmentIndex { keys: self.keys.of_segment(end.number), ..SegmentIndex::default() };
        for chain in self.chains.all() {
            let runs = chain.with(|state| {
                state.memory.iter().filter(|run| run.segment == end.number).cloned().collect::<Vec<_>>()
            });
            index.runs.extend(runs.into_iter().map(|run| (chain.id, run)));
        }
        index.count_usage();
        self.install(self.write_index(&index, end)?);
        Ok(())
    }

    fn write_index(&self, index: &SegmentIndex, end: &SegmentEnd) -> io::Result<Opened> {
        recover::write_index(&*self.disk, &self.files, &self.dir, index, end, self.mode, &self.salt)
    }

    /// From now on the runs of a segment are read through its index file.
    fn install(&self, opened: Opened) {
        let segment = opened.sidecar.segment();
        let mut by_chain: BTreeMap<ChainId, Vec<SealedRun>> = BTreeMap::new();
        for (id, run) in opened.runs {
            by_chain.entry(id).or_default().push(SealedRun::File(run));
        }
        self.replace_runs(segment, by_chain);
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.world.now_ms());
    }

    /// Puts these runs of a segment in place of those that each chain has of it, in one step for a chain.
    fn replace_runs(&self, segment: u64, by_chain: BTreeMap<ChainId, Vec<SealedRun>>) {
        for (id, runs) in by_chain {
            self.chains.get_or_create(id).with(|state| {
                state.memory.retain(|run| run.segment != segment);
                let mut sealed: Vec<SealedRun> =
                    state.sealed.iter().filter(|old| old.run().segment() != segment).cloned().collect();
                sealed.extend(runs);
                sealed.sort_by_key(|run| run.run().first_seq());
                state.sealed = Arc::new(sealed);
            });
        }
    }

    /// Builds the index of a sealed segment again, from the segment, in place of a damaged one with this id. The index of a damaged segment stays in memory, so that it is found damaged
    /// again at the next start; and so does one that cannot be written, since it must not be missing.
    pub(super) fn rebuild_index(&self, number: u64, id: u64) -> io::Result<()> {
        let mut built = lock(&self.rebuilding);
        if built.get(&number).is_some_and(|newer| *newer > id) {
            // Another reader was faster, or the file was replaced while this one read it.
            return Ok(());
        }
        let (indexed, end) = self.index_sealed(number)?;
        if indexed.damage.is_empty() {
            match self.write_index(&indexed.index, &end) {
                Ok(opened) => {
                    built.insert(number, opened.sidecar.id());
                    self.install(opened);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(%error, segment = number, "cannot write an index file; keeping it in memory");
                }
            }
        }
        for (from, to) in &indexed.damage {
            tracing::error!(log = self.mode.as_str(), segment = number, from, to, "a segment is damaged");
        }
        let mut by_chain: BTreeMap<ChainId, Vec<SealedRun>> = BTreeMap::new();
        for (id, run) in indexed.index.runs {
            by_chain.entry(id).or_default().push(SealedRun::Memory(run));
        }
        self.add_damaged_stretches(number, &by_chain);
        self.replace_runs(number, by_chain);
        self.keys.move_to_memory(number, &indexed.index.keys);
        built.insert(number, sidecar::next_id());
        Ok(())
    }

    /// Writes an index file anew that can be read but is of an earlier version. Where that fails, or the segment is damaged, the old one goes on to serve.
    fn renew_index(&self, number: u64, id: u64) -> io::Result<()> {
        let mut built = lock(&self.rebuilding);
        if built.get(&number).is_some_and(|newer| *newer > id) {
            return Ok(());
        }
        let (indexed, end) = self.index_sealed(number)?;
        if let Some((from, to)) = indexed.damage.first() {
            return Err(io::Error::other(format!("the segment is damaged from byte {from} to {to}")));
        }
        let opened = self.write_index(&indexed.index, &end)?;
        built.insert(number, opened.sidecar.id());
        self.install(opened);
        Ok(())
    }

    /// Reads a sealed segment and makes its index, in memory. Fails if the disk does not give everything: what it does not give would be missing from the index.
    fn index_sealed(&self, number: u64) -> io::Result<(Indexed, SegmentEnd)> {
        let gone = || io::Error::other("the segment is not there");
        let end = lock(&self.ends).get(&number).copied().ok_or_else(gone)?;
        let segment = self.segment(number).ok_or_else(gone)?;
        let content = disk::read_all(&*segment.file)?;
        let pieces = segment::walk(&content, end.final_len, &segment.salt, self.mode);
        Ok((recover::index_pieces(number, &pieces, &self.salt), end))
    }

    /// What a chain had in a segment and is not among these runs cannot be read any more.
    fn add_damaged_stretches(&self, segment: u64, by_chain: &BTreeMap<ChainId, Vec<SealedRun>>) {
        for chain in self.chains.all() {
            let left: Vec<(u64, u64)> = by_chain
                .get(&chain.id)
                .into_iter()
                .flatten()
                .map(|run| (run.run().first_seq(), run.run().end_seq()))
                .collect();
            chain.with(|state| {
                let mut damaged = state.damaged.to_vec();
                for old in state.sealed.iter().map(SealedRun::run).filter(|run| run.segment() == segment) {
                    let mut next = old.first_seq();
                    for (first, end) in left
                        .iter()
                        .copied()
                        .filter(|(first, _)| (old.first_seq()..old.end_seq()).contains(first))
                        .chain([(old.end_seq(), old.end_seq())])
                    {
                        if first > next {
                            damaged.push((next, first - 1));
                        }
                        next = end;
                    }
                }
                damaged.sort_unstable();
                damaged.dedup();
                if left.is_empty() {
                    state.sealed = Arc::new(
                        state.sealed.iter().filter(|run| run.run().segment() != segment).cloned().collect(),
                    );
                }
                state.damaged = Arc::new(damaged);
            });
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl OpenLog {
    fn start(&self, name: &str, run: fn(&Log)) -> io::Result<()> {
        let log = Arc::clone(&self.log);
        let thread = std::thread::Builder::new().name(format!("sealog-{}-{name}", log.mode.as_str()));
        lock(&self.threads).push(thread.spawn(move || run(&log))?);
        Ok(())
    }

    fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return;
        }
        let log = &self.log;
        log.stop_writing();
        let mut threads = threads.into_iter();
        // The writers first, while a segment can still be prepared for what they have to write.
        for writer in threads.by_ref().take(3) {
            let _ = writer.join();
        }
        log.preparer.stop();
        lock(&log.upkeep).stop = true;
        log.upkeep_due.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
        let shared = lock(&log.shared);
        let (plan, _) = shared.durable();
        let healthy = matches!(shared.accepts(), Err(StoreError::Closing));
        drop(shared);
        if healthy {
            // The zeros behind the last frame have served; without them a stopped log takes only what it holds.
            let active = lock(&log.active);
            let trimmed = active.file.set_len(plan.end).and_then(|()| active.file.sync());
            if let Err(error) = trimmed {
                tracing::warn!(%error, "cannot trim the last segment");
            }
            drop(active);
            // So has the next segment. A start prepares its own.
            if let Err(error) = log.disk.remove(&segment::next_path(&log.dir))
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "cannot remove the segment that was prepared");
            }
            log.mark_changes(true);
        }
    }
}
