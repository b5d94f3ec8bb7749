//! What a log holds, as far as memory knows it: its segments, the index of its chains and keys, counters, and
//! the end of what is durable. Readers, the writer and upkeep share it.
//!
//! Every lock in here but `rebuilding` and that of `counting` is held for a look or a change, and never
//! during I/O. `write/threads.rs` has the order of locks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid};
use sealog_core::time::Month;

use super::cache::Cache;
use super::counting::state::Counting;
use super::index::chain_index::{Chain, Chains};
use super::index::keys::Keys;
use super::index::salt::IndexSalt;
use super::index::sidecar::{Caches, SegmentEnd};
use super::log::disk::{Disk, OpenFiles};
use super::log::plan::Plan;
use super::log::segment::{Segment, Unreadable, no_room, segment_path};
use super::options::Options;
use super::read::failures::ReadFailures;
use super::recovery::dropped::Dropped;
use crate::error::StoreError;
use crate::loss::Loss;
use crate::query::ChainHead;
use crate::sync::{lock, read, write};
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Contents {
    pub mode: Mode,
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub world: Arc<dyn World>,
    pub options: Options,
    pub salt: IndexSalt,
    pub chains: Chains,
    pub keys: Keys,
    pub caches: Caches,
    pub files: Arc<OpenFiles>,
    pub counting: Counting,
    pub read_failures: ReadFailures,
    /// Why not everything could be read when the log was opened.
    pub unreadable: Option<String>,
    /// Whether there may be chains of which nothing could be read.
    pub unreadable_chains: bool,
    /// Held while an index is built again. For each segment that this was done for, the id of the index that
    /// it has now.
    pub rebuilding: Mutex<BTreeMap<u64, u64>>,
    /// What retention has dropped, as it is on disk.
    pub dropped: Mutex<Dropped>,
    /// The last segment of it. Changes before anything is forgotten: a read that fails looks whether it has.
    pub dropped_through: AtomicU64,
    /// Segments in which damage was found.
    pub damaged_segments: Mutex<BTreeSet<u64>>,
    unknown_unproven: bool,
    segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    /// Ends of all segments but the active one.
    ends: Mutex<BTreeMap<u64, SegmentEnd>>,
    usage: Mutex<HashMap<(TenantId, Month), u64>>,
    /// The end of what is durable, and the number of its commit.
    durable: Mutex<(Plan, u64)>,
}

/// What recovery has found.
#[derive(Debug)]
pub(crate) struct Parts {
    pub mode: Mode,
    pub dir: PathBuf,
    pub options: Options,
    pub salt: IndexSalt,
    pub chains: Chains,
    pub segments: BTreeMap<u64, Arc<Segment>>,
    /// Of all segments but the active one.
    pub ends: BTreeMap<u64, SegmentEnd>,
    pub files: Arc<OpenFiles>,
    pub keys: Keys,
    pub usage: HashMap<(TenantId, Month), u64>,
    /// Where the next group goes, and the number of the last one.
    pub end: (Plan, u64),
    /// Whether chains that were never seen may have existed in a place that is lost.
    pub unknown_unproven: bool,
    /// Why not everything could be read.
    pub unreadable: Option<String>,
    /// Whether chains that were never seen may have events in a place that could not be read.
    pub unreadable_chains: bool,
    pub dropped: Dropped,
    pub damaged_segments: BTreeSet<u64>,
}

impl Contents {
    pub(crate) fn new(parts: Parts) -> Contents {
        let options = parts.options;
        Contents {
            mode: parts.mode,
            dir: parts.dir,
            disk: Arc::clone(&options.disk),
            world: Arc::clone(&options.world),
            salt: parts.salt,
            chains: parts.chains,
            keys: parts.keys,
            caches: Caches {
                // A run's table has less than a tenth of the bytes of its blocks.
                tables: Cache::new(options.cache_bytes / 8),
                columns: Cache::new(options.cache_bytes / 8 * 6),
                field_tables: Cache::new(options.cache_bytes / 32),
                field_columns: Cache::new(options.cache_bytes / 32 * 3),
            },
            files: parts.files,
            counting: Counting::new(parts.end.0.segment),
            read_failures: ReadFailures::default(),
            unreadable: parts.unreadable,
            unreadable_chains: parts.unreadable_chains,
            rebuilding: Mutex::default(),
            dropped_through: AtomicU64::new(parts.dropped.through),
            dropped: Mutex::new(parts.dropped),
            damaged_segments: Mutex::new(parts.damaged_segments),
            unknown_unproven: parts.unknown_unproven,
            segments: RwLock::new(parts.segments),
            ends: Mutex::new(parts.ends),
            usage: Mutex::new(parts.usage),
            durable: Mutex::new(parts.end),
            options,
        }
    }

    pub(crate) fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        read(&self.segments).get(&number).cloned()
    }

    /// In order.
    pub(crate) fn segment_numbers(&self) -> Vec<u64> {
        read(&self.segments).keys().copied().collect()
    }

    /// Events are written to another segment from now on.
    pub(crate) fn add_segment(&self, segment: &Arc<Segment>) {
        write(&self.segments).insert(segment.number, Arc::clone(segment));
    }

    /// A segment is full.
    pub(crate) fn close_segment(&self, end: SegmentEnd) {
        lock(&self.ends).insert(end.number, end);
        // It is only read from now on, and its descriptor can be used for others.
        if let Some(segment) = write(&self.segments).get_mut(&end.number) {
            let file = self.files.file(segment_path(&self.dir, end.number));
            *segment = Arc::new(Segment { number: end.number, salt: segment.salt, file });
        }
    }

    /// A segment was dropped.
    pub(crate) fn forget_segment(&self, number: u64) {
        write(&self.segments).remove(&number);
        lock(&self.ends).remove(&number);
    }

    /// All segments up to this one were dropped.
    pub(crate) fn dropped_through(&self) -> u64 {
        self.dropped_through.load(Ordering::SeqCst)
    }

    /// The last segment that was dropped, and the file that says so. Nothing where none was.
    pub(crate) fn dropped_file(&self) -> (u64, Option<Vec<u8>>) {
        let dropped = lock(&self.dropped);
        (dropped.through, (dropped.through > 0).then(|| dropped.encode(self.world.now_ms())))
    }

    /// Whether a file that can be made at any time may be written: what it would take of the reserve is for
    /// files that have to be.
    pub(crate) fn check_room_for(&self, bytes: usize) -> io::Result<()> {
        let free = self.disk.free_bytes(&self.dir)?;
        if free < self.options.reserve_bytes.saturating_add(bytes as u64) { Err(no_room()) } else { Ok(()) }
    }

    /// Where a segment ends that is not written to any more.
    pub(crate) fn end_of(&self, segment: u64) -> Option<SegmentEnd> {
        lock(&self.ends).get(&segment).copied()
    }

    /// The end of what is durable, and the number of its commit.
    pub(crate) fn durable(&self) -> (Plan, u64) {
        *lock(&self.durable)
    }

    /// Moves the end. A group that only begins a segment has no commit of its own.
    pub(crate) fn set_durable(&self, end: Plan, commit: Option<u64>) {
        let mut durable = lock(&self.durable);
        *durable = (end, commit.unwrap_or(durable.1));
    }

    /// The durable head of a chain, and whether it cannot be proven to be the last.
    pub(crate) fn durable_head(&self, chain: ChainId) -> (Head, bool) {
        match self.chains.get(chain) {
            Some(chain) => chain.with(|state| (state.durable, state.unproven)),
            None => (Head::EMPTY, self.unknown_unproven),
        }
    }

    /// What is known of the ends of a chain.
    pub(crate) fn heads_of(&self, chain: ChainId) -> ChainHead {
        let empty = ChainHead { durable: Head::EMPTY, recorded: Head::EMPTY, dropped: Head::EMPTY };
        self.chains.get(chain).map_or(empty, |chain| chain.head())
    }

    /// The chains on which nothing is sealed until their loss is accepted.
    pub(crate) fn losses(&self) -> Vec<(ChainId, Loss)> {
        let lost = |chain: &Arc<Chain>| {
            let head = chain.head();
            chain.with(|state| state.unproven).then(|| (chain.id, Loss::of(&head)))
        };
        self.chains.all().iter().filter_map(lost).collect()
    }

    /// The chains whose last event is ahead of the clock by more than this, and by how much.
    pub(crate) fn chains_ahead_of(&self, now_ms: u64, by_ms: u64) -> Vec<(u64, ChainId)> {
        let ahead_ms = |chain: &Arc<Chain>| {
            // Of a chain that accepts nothing, the last id may be anything.
            let (head, unproven) = chain.with(|state| (state.durable, state.unproven));
            let head_ms = if unproven { 0 } else { head.log_id.timestamp_ms() };
            (head_ms > now_ms.saturating_add(by_ms)).then(|| (head_ms - now_ms, chain.id))
        };
        self.chains.all().iter().filter_map(ahead_ms).collect()
    }

    pub(crate) fn counted_usage(&self, tenant_id: TenantId, month: Month) -> u64 {
        lock(&self.usage).get(&(tenant_id, month)).copied().unwrap_or(0)
    }

    pub(crate) fn count_usage(&self, counts: Vec<((TenantId, Month), u64)>) {
        let mut usage = lock(&self.usage);
        for (of, count) in counts {
            *usage.entry(of).or_default() += count;
        }
    }

    /// An event that was counted is not there any more.
    pub(crate) fn uncount_usage(&self, tenant_id: TenantId, log_id: Ulid) {
        let mut usage = lock(&self.usage);
        if let Some(count) = usage.get_mut(&(tenant_id, Month::of(log_id.timestamp_ms()))) {
            *count = count.saturating_sub(1);
        }
    }

    /// A read has failed. Nothing is concluded from it about what is on the disk: it is counted, and shown to
    /// whoever watches.
    pub(crate) fn read_failed(&self, error: &io::Error) -> StoreError {
        let segment = error.get_ref().and_then(|cause| cause.downcast_ref::<Unreadable>());
        let is_active = segment.is_some_and(|segment| segment.number == self.durable().0.segment);
        self.read_failures.note(error, self.mode, is_active);
        StoreError::Read(error.to_string())
    }

    /// What its files take, as far as the disk tells.
    pub(crate) fn storage_bytes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return 0 };
        entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
    }
}
