//! One log: a directory of segments, the threads that write it, and what is known of it in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::time::Month;

use super::Options;
use super::chain_index::{Chains, SealedRun};
use super::disk::{self, Disk};
use super::format::Frame;
use super::index::{Cache, Entry};
use super::keys::{KeyPlace, Keys};
use super::mark::{Extent, MarkFile};
use super::recovery::{self, Finding, RecoveryError};
use super::segment::{self, Preparer, Segment};
use super::sidecar::{Caches, Opened, SegmentEnd, SegmentIndex, slot};
use super::writer::{Sealer, Shared};
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
    pub sealer: Mutex<Sealer>,
    pub active: Mutex<Arc<Segment>>,
    pub preparer: Preparer,
    /// Ends of all segments but the active one.
    ends: Mutex<BTreeMap<u64, SegmentEnd>>,
    upkeep: Mutex<Upkeep>,
    upkeep_due: Condvar,
    mark: Mutex<MarkFile>,
    unknown_unproven: bool,
}

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
        let poisoned = recovered.findings.iter().find_map(|finding| match finding {
            Finding::ReadOnly { cause } => Some(StoreError::Poisoned(cause.clone())),
            _ => None,
        });
        let read_only = poisoned.is_some();
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
                tables: Cache::new(options.cache_bytes / 2),
                columns: Cache::new(options.cache_bytes / 2),
            },
            shared: Mutex::new(Shared::new(recovered.plan, recovered.commit, poisoned)),
            work: Condvar::new(),
            sealer: Mutex::new(Sealer::new(recovered.plan, recovered.commit)),
            active: Mutex::new(active),
            preparer: Preparer::new(Arc::clone(&options.disk), dir.to_owned()),
            ends: Mutex::new(recovered.ends),
            upkeep: Mutex::default(),
            upkeep_due: Condvar::new(),
            mark: Mutex::new(recovered.mark),
            unknown_unproven: recovered.unknown_unproven,
        });
        let mut threads = Vec::new();
        if !read_only {
            log.mark_all()?;
            log.preparer.want(log.next_capacity(recovered.plan.capacity));
            let start = |name: &str, run: fn(&Log)| {
                let log = Arc::clone(&log);
                let thread = std::thread::Builder::new().name(format!("sealog-{}-{name}", mode.as_str()));
                thread.spawn(move || run(&log))
            };
            threads.push(start("write-1", Log::write_loop)?);
            threads.push(start("write-2", Log::write_loop)?);
            threads.push(start("prepare", |log| log.preparer.run(log.options.tick, || log.room()))?);
            threads.push(start("upkeep", Log::upkeep_loop)?);
        }
        Ok(Handle { log, findings: recovered.findings, threads: Mutex::new(threads) })
    }

    pub(super) fn ready(&self) -> Result<(), StoreError> {
        self.shared.lock().expect("writer lock").ready()
    }

    /// The durable head of a chain, and whether it cannot be proven to be the last.
    pub(super) fn durable_head(&self, chain: ChainId) -> (Head, bool) {
        match self.chains.get(chain) {
            Some(chain) => chain.with(|state| (state.durable, state.unproven)),
            None => (Head::EMPTY, self.unknown_unproven),
        }
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

    pub(super) fn count_usage(&self, chain: ChainId, entries: &[Entry]) {
        let mut usage = self.usage.lock().expect("usage lock");
        for entry in entries {
            *usage.entry((chain.tenant_id, Month::of(entry.log_id.timestamp_ms()))).or_default() += 1;
        }
    }

    /// A chain has a new durable head.
    pub(super) fn changed(&self, chain: ChainId, head: Head) {
        self.upkeep.lock().expect("upkeep lock").heads.insert(chain, head);
    }

    /// A segment is full.
    pub(super) fn sealed(&self, end: SegmentEnd) {
        self.ends.lock().expect("ends lock").insert(end.number, end);
        self.upkeep.lock().expect("upkeep lock").sealed.push(end);
        self.upkeep_due.notify_all();
    }

    /// Marks and index files are written here, away from the path of events.
    fn upkeep_loop(&self) {
        // Index files are written in the order of their segments, since readers expect runs on disk before runs in memory. One that fails is tried again.
        let mut sealed: VecDeque<SegmentEnd> = VecDeque::new();
        loop {
            let stop = {
                let mut upkeep = self.upkeep.lock().expect("upkeep lock");
                if upkeep.sealed.is_empty() && !upkeep.stop {
                    upkeep = self.upkeep_due.wait_timeout(upkeep, self.options.tick).expect("upkeep lock").0;
                }
                sealed.extend(std::mem::take(&mut upkeep.sealed));
                upkeep.stop
            };
            self.shared.lock().expect("writer lock").expire(self.options.queue_deadline);
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
        let mut mark = self.mark.lock().expect("mark lock");
        // The extent first: heads that come in between are then above it, which is the safe side.
        let (plan, commit) = self.shared.lock().expect("writer lock").durable();
        let heads = std::mem::take(&mut self.upkeep.lock().expect("upkeep lock").heads);
        if heads.is_empty() && !clean {
            return;
        }
        let extent = Extent { commit, segment: plan.segment, offset: plan.end };
        if let Err(error) = mark.write(extent, clean, &heads, self.world.now_ms()) {
            tracing::warn!(%error, log = self.mode.as_str(), "cannot write the mark; until it can be written, lost events at the end may go unnoticed");
            let mut upkeep = self.upkeep.lock().expect("upkeep lock");
            for (chain, head) in heads {
                upkeep.heads.entry(chain).or_insert(head);
            }
        }
    }

    /// At start: what recovery found is durable now, and a clean stop is no longer the last word.
    fn mark_all(&self) -> io::Result<()> {
        let mut mark = self.mark.lock().expect("mark lock");
        let (plan, commit) = self.shared.lock().expect("writer lock").durable();
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
        let opened = recovery::write_index(&*self.disk, &self.dir, &index, end, self.mode)?;
        self.install(end.number, &opened);
        Ok(())
    }

    /// From now on the runs of this segment are read through its index file.
    fn install(&self, segment: u64, opened: &Opened) {
        for (id, run) in &opened.runs {
            self.chains.get_or_create(*id).with(|state| {
                state.memory.retain(|run| run.segment != segment);
                let mut sealed: Vec<SealedRun> = state
                    .sealed
                    .iter()
                    .filter(|old| old.run().segment() != segment || old.run().first_seq() < run.first_seq)
                    .cloned()
                    .collect();
                sealed.push(SealedRun::File(run.clone()));
                let others = state
                    .sealed
                    .iter()
                    .filter(|old| old.run().first_seq() > run.first_seq && old.run().segment() != segment);
                sealed.extend(others.cloned());
                sealed.sort_by_key(|run| run.run().first_seq());
                sealed.dedup_by_key(|run| run.run().first_seq());
                state.sealed = Arc::new(sealed);
            });
        }
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.world.now_ms());
    }

    /// Builds the index file of a sealed segment again, from the segment.
    pub(super) fn rebuild_index(&self, number: u64) -> io::Result<()> {
        let gone = || io::Error::other("the segment is not there");
        let end = self.ends.lock().expect("ends lock").get(&number).copied().ok_or_else(gone)?;
        let segment = self.segment(number).ok_or_else(gone)?;
        let content = disk::read_all(&*segment.file)?;
        let pieces = segment::walk(&content, end.final_len, &segment.salt, self.mode);
        let indexed = recovery::index_pieces(number, &pieces);
        let opened = recovery::write_index(&*self.disk, &self.dir, &indexed.index, &end, self.mode)?;
        self.install(number, &opened);
        Ok(())
    }
}

impl Handle {
    /// Writes what is queued, stops the threads, and leaves a mark that says so.
    pub(super) fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().expect("threads lock"));
        if threads.is_empty() {
            return;
        }
        let log = &self.log;
        log.stop_writing();
        let mut threads = threads.into_iter();
        // The writers first, while a segment can still be prepared for what they have to write.
        for writer in threads.by_ref().take(2) {
            let _ = writer.join();
        }
        log.preparer.stop();
        log.upkeep.lock().expect("upkeep lock").stop = true;
        log.upkeep_due.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
        let shared = log.shared.lock().expect("writer lock");
        let (plan, _) = shared.durable();
        let healthy = matches!(shared.ready(), Err(StoreError::Closing));
        drop(shared);
        if healthy {
            // The zeros behind the last frame have served; without them a stopped log takes only what it holds.
            let active = log.active.lock().expect("active segment lock");
            let trimmed = active.file.set_len(plan.end).and_then(|()| active.file.sync());
            if let Err(error) = trimmed {
                tracing::warn!(%error, "cannot trim the last segment");
            }
            drop(active);
            log.mark_changes(true);
        }
    }
}
