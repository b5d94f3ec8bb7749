//! One log: a directory of segments, the threads that write it, and what is known of it in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::time::Month;

use super::Options;
use super::cache::Cache;
use super::chain_index::{Chains, SealedRun};
use super::disk::{self, Disk, OpenFiles};
use super::format::Frame;
use super::keys::{KeyPlace, Keys};
use super::mark::{Extent, MarkFile};
use super::recovery::{self, Finding, RecoveryError};
use super::segment::{self, Preparer, Segment};
use super::sidecar::{Caches, Opened, SegmentEnd, SegmentIndex, slot};
use super::sync::{lock, wait_for, write};
use super::writer::{Sealer, Shared};
use crate::stats::{Histogram, LogStats};
use crate::world::World;
use crate::{Appended, IdempotencyKey, Receipt, Reservation, Reserved, StoreError};

#[derive(Debug)]
pub(super) struct Log {
    pub mode: Mode,
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub world: Arc<dyn World>,
    pub options: Options,
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
    /// Set with every request, for a thread that looks without the lock.
    pub arrived: AtomicBool,
    pub preparer: Preparer,
    pub files: Arc<OpenFiles>,
    /// Ends of all segments but the active one.
    ends: Mutex<BTreeMap<u64, SegmentEnd>>,
    upkeep: Mutex<Upkeep>,
    upkeep_due: Condvar,
    mark: Mutex<MarkFile>,
    /// Held while an index file is built again.
    rebuilding: Mutex<()>,
    unknown_unproven: bool,
    pub append_time: Histogram,
    pub sync_time: Histogram,
}

/// Below that of those who answer requests.
const UPKEEP_NICENESS: i32 = 5;

/// What the upkeep thread has to do.
#[derive(Debug, Default)]
struct Upkeep {
    /// Segments that were filled and need an index file.
    sealed: Vec<SegmentEnd>,
    /// Heads that changed since the last mark.
    heads: BTreeMap<ChainId, Head>,
    stop: bool,
}

/// An open log and its threads.
#[derive(Debug)]
pub(super) struct Handle {
    pub log: Arc<Log>,
    pub findings: Vec<Finding>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Log {
    pub(super) fn open(dir: &Path, mode: Mode, options: &Options) -> Result<Handle, RecoveryError> {
        let recovered = recovery::recover(dir, mode, options)?;
        let mut findings = recovered.findings;
        let poisoned = findings.iter().find_map(|finding| match finding {
            Finding::ReadOnly { cause } => Some(StoreError::Poisoned(cause.clone())),
            _ => None,
        });
        let active = Arc::clone(&recovered.segments[&recovered.plan.segment]);
        let log = Arc::new(Log {
            mode,
            dir: dir.to_owned(),
            disk: Arc::clone(&options.disk),
            world: Arc::clone(&options.world),
            options: options.clone(),
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
            sealer: Mutex::new(Sealer::new(recovered.plan, recovered.commit)),
            active: Mutex::new(active),
            arrived: AtomicBool::new(false),
            preparer: Preparer::new(Arc::clone(&options.disk), dir.to_owned()),
            ends: Mutex::new(recovered.ends),
            upkeep: Mutex::default(),
            upkeep_due: Condvar::new(),
            files: recovered.files,
            mark: Mutex::new(recovered.mark),
            rebuilding: Mutex::default(),
            unknown_unproven: recovered.unknown_unproven,
            append_time: Histogram::durations(),
            sync_time: Histogram::durations(),
        });
        if lock(&log.shared).ready().is_ok()
            && let Err(error) = log.mark_all()
        {
            // Without a mark, lost events would go unnoticed; reading needs none.
            let finding = Finding::ReadOnly { cause: format!("the mark cannot be written: {error}") };
            tracing::error!(log = mode.as_str(), "{finding}");
            findings.push(finding);
            lock(&log.shared).poison(StoreError::Poisoned(error.to_string()));
        }
        let mut threads = Vec::new();
        if lock(&log.shared).ready().is_ok() {
            log.preparer.want(log.next_capacity(recovered.plan.capacity));
            let start = |name: &str, run: fn(&Log)| {
                let log = Arc::clone(&log);
                let thread = std::thread::Builder::new().name(format!("sealog-{}-{name}", mode.as_str()));
                thread.spawn(move || run(&log))
            };
            threads.push(start("write-1", Log::write_thread)?);
            threads.push(start("write-2", Log::write_thread)?);
            threads.push(start("ahead", Log::ahead_thread)?);
            threads.push(start("prepare", Log::prepare_thread)?);
            threads.push(start("upkeep", Log::upkeep_thread)?);
            threads.push(start("deadlines", Log::deadline_thread)?);
        }
        Ok(Handle { log, findings, threads: Mutex::new(threads) })
    }

    pub(super) fn ready(&self) -> Result<(), StoreError> {
        lock(&self.shared).ready()
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

    /// Takes a key of which memory alone can tell that it is in flight or was never used.
    pub(super) fn reserve_unused(&self, chain: ChainId, key: IdempotencyKey) -> Option<Reserved> {
        let slot = slot(chain, key.key_hash);
        let Some(release) = self.keys.take(slot) else { return Some(Reserved::InFlight) };
        let reservation = Reservation::new(chain, key, release);
        self.keys.is_unused(&slot).then_some(Reserved::Fresh(reservation))
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
        let failed = |error: &io::Error| StoreError::Read(error.to_string());
        for place in self.keys.find(&slot(chain, key.key_hash), now_ms).map_err(|error| failed(&error))? {
            let decided = self.read_key(chain, key, place).map_err(|error| failed(&error))?;
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
            bytes.resize(super::format::FRAME_LEN_MAX, 0);
            filled = segment.file.read_at(&mut bytes, position)?;
        }
        let frame = Frame::decode(&bytes[..filled], position, &segment.salt, self.mode)
            .filter(Frame::intact)
            .ok_or_else(lost)?;
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
        let mut mark = lock(&self.mark);
        // The extent first: heads that come in between are then above it, which is the safe side.
        let (plan, commit) = lock(&self.shared).durable();
        let heads = std::mem::take(&mut lock(&self.upkeep).heads);
        let extent = Extent { commit, segment: plan.segment, offset: plan.end };
        // A mark that came between a group's heads and its end has taken the heads already.
        if heads.is_empty() && !clean && mark.marked().extent == extent {
            return;
        }
        if let Err(error) = mark.write(extent, clean, &heads, self.world.now_ms()) {
            tracing::warn!(%error, log = self.mode.as_str(), "cannot write the mark; until it can be written, lost events at the end may go unnoticed");
            let mut upkeep = lock(&self.upkeep);
            for (chain, head) in heads {
                upkeep.heads.entry(chain).or_insert(head);
            }
        }
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
        let opened = recovery::write_index(&*self.disk, &self.files, &self.dir, &index, end, self.mode)?;
        self.install(opened);
        Ok(())
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

    /// Builds the index of a sealed segment again, from the segment. The index of a damaged one stays in memory, so that it is found damaged again at the next start.
    pub(super) fn rebuild_index(&self, number: u64) -> io::Result<()> {
        let _one_at_a_time = lock(&self.rebuilding);
        let gone = || io::Error::other("the segment is not there");
        let end = lock(&self.ends).get(&number).copied().ok_or_else(gone)?;
        let segment = self.segment(number).ok_or_else(gone)?;
        let (content, error) = disk::read_all_there_is(&*segment.file)?;
        if let Some(error) = error {
            tracing::error!(%error, segment = number, "a segment cannot be read whole");
        }
        let pieces = segment::walk(&content, end.final_len, &segment.salt, self.mode);
        let indexed = recovery::index_pieces(number, &pieces);
        if indexed.damage.is_empty() {
            let opened =
                recovery::write_index(&*self.disk, &self.files, &self.dir, &indexed.index, &end, self.mode)?;
            self.install(opened);
            return Ok(());
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
        Ok(())
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

impl Handle {
    /// Writes what is queued, stops the threads, and leaves a mark that says so.
    pub(super) fn close(&self) {
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
        let healthy = matches!(shared.ready(), Err(StoreError::Closing));
        drop(shared);
        if healthy {
            // The zeros behind the last frame have served; without them a stopped log takes only what it holds.
            let active = lock(&log.active);
            let trimmed = active.file.set_len(plan.end).and_then(|()| active.file.sync());
            if let Err(error) = trimmed {
                tracing::warn!(%error, "cannot trim the last segment");
            }
            drop(active);
            log.mark_changes(true);
        }
    }
}
