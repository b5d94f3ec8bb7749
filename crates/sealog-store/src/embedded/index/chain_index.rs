//! What the store knows of each chain: its head, and where its events are.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Ulid};

use super::block::{BLOCK_EVENTS, Block, Entry, Hashing, MemoryRun, Probe};
use super::fields::{self, FieldColumn};
use super::filter::Key;
use super::sidecar::{Caches, FileRun};
use crate::query::ChainHead;
use crate::sync::{lock, read, write};
use crate::types::IdMap;

/// All chains of a log.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    by_id: RwLock<IdMap<ChainId, Arc<Chain>>>,
    late_loss: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Chain {
    pub id: ChainId,
    state: Mutex<ChainState>,
}

#[derive(Debug)]
pub(crate) struct ChainState {
    /// The last durable event. Never the one that is being written.
    pub durable: Head,
    /// The last event that the chain is known to have had; above `durable` only after a loss.
    pub recorded: Head,
    /// Whether `durable` cannot be proven to be the end, so that nothing may be sealed on it.
    pub unproven: bool,
    /// The last event that retention has dropped. The runs begin behind it.
    pub dropped: Head,
    /// Runs of sealed segments, oldest first. Replaced as a whole, so that readers keep what they began with.
    pub sealed: Arc<Vec<SealedRun>>,
    /// Runs of the active segment and of those whose index is being written; they come after all `sealed`.
    pub memory: Vec<MemoryRun>,
    /// First and last `chain_seq` of stretches whose records were found damaged when the index was built.
    pub damaged: Arc<Vec<(u64, u64)>>,
    /// Likewise of stretches that the disk did not give when the store was opened. Nothing can be said of
    /// them: a read that would pass over one fails.
    pub unreadable: Arc<Vec<(u64, u64)>>,
}

/// A run that will not grow.
#[derive(Clone, Debug)]
pub(crate) enum SealedRun {
    File(FileRun),
    /// Where the index file could not be written.
    Memory(MemoryRun),
}

impl SealedRun {
    pub(crate) fn run(&self) -> Run<'_> {
        match self {
            SealedRun::File(run) => Run::File(run),
            SealedRun::Memory(run) => Run::Memory(run),
        }
    }
}

impl Default for ChainState {
    fn default() -> ChainState {
        ChainState {
            durable: Head::EMPTY,
            recorded: Head::EMPTY,
            unproven: false,
            dropped: Head::EMPTY,
            sealed: Arc::default(),
            memory: Vec::new(),
            damaged: Arc::default(),
            unreadable: Arc::default(),
        }
    }
}

impl ChainState {
    fn ends(&self) -> ChainHead {
        ChainHead { durable: self.durable, recorded: self.recorded, dropped: self.dropped }
    }

    /// Forgets what stands from this seq on: damaged records whose loss was accepted. Their ids, for whoever
    /// counts events.
    fn cut(&mut self, end_seq: u64) -> Vec<Ulid> {
        let mut cut = Vec::new();
        let mut sealed = self.sealed.to_vec();
        sealed.retain_mut(|run| match run {
            // An index file is only ever of a segment without damage, and then all of it is durable.
            SealedRun::File(run) => run.first_seq < end_seq,
            SealedRun::Memory(run) => {
                let kept = usize::try_from(end_seq.saturating_sub(run.first_seq)).unwrap_or(usize::MAX);
                cut.extend(run.log_ids().skip(kept));
                run.truncate(end_seq);
                kept > 0
            }
        });
        self.sealed = Arc::new(sealed);
        self.damaged = Arc::new(self.damaged.iter().copied().filter(|(first, _)| *first < end_seq).collect());
        cut
    }
}

impl Chains {
    pub(crate) fn get(&self, id: ChainId) -> Option<Arc<Chain>> {
        read(&self.by_id).get(&id).cloned()
    }

    pub(crate) fn get_or_create(&self, id: ChainId) -> Arc<Chain> {
        if let Some(chain) = self.get(id) {
            return chain;
        }
        let mut chains = write(&self.by_id);
        let chain = chains.entry(id).or_insert_with(|| Arc::new(Chain { id, state: Mutex::default() }));
        Arc::clone(chain)
    }

    /// Notes that a chain is known to have had this event and does not have it.
    pub(crate) fn record_loss(&self, id: ChainId, known: Head) {
        self.late_loss.store(true, Ordering::SeqCst);
        self.get_or_create(id).with(|state| {
            if !state.unproven || state.recorded.chain_seq < known.chain_seq {
                state.recorded = known;
            }
            state.unproven = true;
        });
    }

    /// Whether a loss was found after the store was opened, of a chain that may have been sealed on since.
    pub(crate) fn has_late_loss(&self) -> bool {
        self.late_loss.load(Ordering::SeqCst)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Chain>> {
        let mut all: Vec<_> = read(&self.by_id).values().cloned().collect();
        all.sort_by_key(|chain| chain.id);
        all
    }
}

impl Chain {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut ChainState) -> T) -> T {
        act(&mut lock(&self.state))
    }

    pub(crate) fn head(&self) -> ChainHead {
        self.with(|state| state.ends())
    }

    /// Adds events that have just become durable. Returns the ids of damaged ones whose place they have
    /// taken.
    pub(crate) fn publish(
        &self,
        segment: u64,
        entries: &[Entry],
        fields: &FieldColumn,
        head: Head,
    ) -> Vec<Ulid> {
        self.with(|state| {
            let first_seq = state.durable.chain_seq + 1;
            // Nothing but the acceptance of its loss is sealed on such a chain.
            let replaced = if state.unproven { state.cut(first_seq) } else { Vec::new() };
            if state.memory.last().is_none_or(|run| run.segment != segment) {
                state.memory.push(MemoryRun::new(segment, first_seq));
            }
            let run = state.memory.last_mut().expect("one was pushed if there was none");
            assert_eq!(run.end_seq(), first_seq, "events are published in the order of their seqs");
            for (at, entry) in entries.iter().enumerate() {
                run.push(entry, fields.of(at));
            }
            run.head = head;
            run.last_hash = head.hash;
            state.durable = head;
            state.recorded = head;
            replaced
        })
    }

    /// Where the chain has changed last; nothing if it has no events.
    pub(crate) fn last_change(&self) -> Option<LastChange> {
        self.with(|state| {
            let of_memory = |run: &MemoryRun| {
                let last_seq = run.end_seq().checked_sub(1).filter(|_| run.count() > 0)?;
                let record = LastRecord::At(run.position(last_seq));
                Some(LastChange { segment: run.segment, record })
            };
            if state.durable.chain_seq == 0 {
                return None;
            }
            match (state.memory.last(), state.sealed.last()) {
                (Some(run), _) | (None, Some(SealedRun::Memory(run))) => of_memory(run),
                (None, Some(SealedRun::File(run))) => {
                    let record = LastRecord::InFile(Arc::clone(&state.sealed));
                    Some(LastChange { segment: run.segment(), record })
                }
                (None, None) => None,
            }
        })
    }

    /// What a reader works on, without holding up the writer.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.with(|state| Snapshot {
            head: state.ends(),
            sealed: Arc::clone(&state.sealed),
            memory: state.memory.clone(),
            damaged: Arc::clone(&state.damaged),
            unreadable: Arc::clone(&state.unreadable),
        })
    }

    /// What is found in memory, or else the sealed runs to look at without holding the lock.
    pub(crate) fn find_in_memory<T>(
        &self,
        find: impl FnOnce(&[MemoryRun]) -> Option<T>,
    ) -> Result<T, Arc<Vec<SealedRun>>> {
        self.with(|state| find(&state.memory).ok_or_else(|| Arc::clone(&state.sealed)))
    }
}

/// Where a chain's last record is.
pub(crate) struct LastChange {
    pub segment: u64,
    pub record: LastRecord,
}

pub(crate) enum LastRecord {
    At(u32),
    /// Where the index says that is in a file, that of the last run.
    InFile(Arc<Vec<SealedRun>>),
}

pub(crate) struct Snapshot {
    pub head: ChainHead,
    sealed: Arc<Vec<SealedRun>>,
    memory: Vec<MemoryRun>,
    pub damaged: Arc<Vec<(u64, u64)>>,
    unreadable: Arc<Vec<(u64, u64)>>,
}

impl Snapshot {
    /// Oldest first.
    pub(crate) fn runs(&self) -> impl DoubleEndedIterator<Item = Run<'_>> {
        self.sealed.iter().map(SealedRun::run).chain(self.memory.iter().map(Run::Memory))
    }
}

impl Snapshot {
    /// Fails if events from `first` to `last` may exist that the disk did not give when the store was opened:
    /// to leave them out would be to say that they are not there.
    pub(crate) fn check_readable(&self, first: u64, last: u64) -> io::Result<()> {
        match self.unreadable.iter().find(|(from, to)| *from <= last && *to >= first) {
            None => Ok(()),
            Some((from, _)) => Err(io::Error::other(format!(
                "the disk did not give the events from {from} on when the store was started"
            ))),
        }
    }

    /// The first event of the damaged stretch that an id would lie in.
    pub(crate) fn damaged_around(&self, log_id: Ulid) -> Option<u64> {
        let in_stretch = |(first, last): &&(u64, u64)| {
            let below = self.runs().filter(|run| run.end_seq() == *first).all(|run| run.log_ids().1 < log_id);
            let above =
                self.runs().filter(|run| run.first_seq() == *last + 1).all(|run| log_id < run.log_ids().0);
            below && above
        };
        self.damaged.iter().find(in_stretch).map(|(first, _)| *first)
    }
}

/// A run, wherever its index is.
#[derive(Clone, Copy)]
pub(crate) enum Run<'a> {
    Memory(&'a MemoryRun),
    File(&'a FileRun),
}

/// The blocks of a run, ready to be looked at one by one.
pub(crate) enum Blocks<'a> {
    Memory(&'a MemoryRun),
    File(&'a FileRun, Arc<Vec<super::sidecar::BlockRef>>, &'a Caches),
}

/// A block, shared or borrowed.
pub(crate) enum BlockRead<'a> {
    Borrowed(&'a Block),
    Shared(Arc<Block>),
}

impl std::ops::Deref for BlockRead<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        match self {
            BlockRead::Borrowed(block) => block,
            BlockRead::Shared(block) => block,
        }
    }
}

impl<'a> Run<'a> {
    pub(crate) fn segment(&self) -> u64 {
        match self {
            Run::Memory(run) => run.segment,
            Run::File(run) => run.segment(),
        }
    }

    pub(crate) fn first_seq(&self) -> u64 {
        match self {
            Run::Memory(run) => run.first_seq,
            Run::File(run) => run.first_seq,
        }
    }

    /// One past the last `chain_seq`.
    pub(crate) fn end_seq(&self) -> u64 {
        match self {
            Run::Memory(run) => run.end_seq(),
            Run::File(run) => run.end_seq(),
        }
    }

    pub(crate) fn log_ids(&self) -> (Ulid, Ulid) {
        match self {
            Run::Memory(run) => (run.first_log_id(), run.last_log_id()),
            Run::File(run) => (run.first_log_id, run.last_log_id),
        }
    }

    /// Seq and position of an id, if it is in this run.
    pub(crate) fn find(&self, log_id: Ulid, caches: &Caches) -> io::Result<Option<(u64, u32)>> {
        let run = match self {
            Run::Memory(run) => {
                return Ok(run.find(log_id).map(|chain_seq| (chain_seq, run.position(chain_seq))));
            }
            Run::File(run) => run,
        };
        if log_id > run.last_log_id {
            return Ok(None);
        }
        let table = run.table(caches)?;
        let after = table.partition_point(|block| block.first_log_id <= log_id);
        let Some(number) = after.checked_sub(1) else { return Ok(None) };
        let block = run.block(caches, &table, number)?;
        let place = block.find(log_id);
        Ok(place.map(|place| (run.first_seq + (number * BLOCK_EVENTS + place) as u64, block.position(place))))
    }

    pub(crate) fn hashing(&self) -> Hashing {
        match self {
            Run::Memory(_) => Hashing::Salted,
            Run::File(run) => run.sidecar.hashing(),
        }
    }

    /// The blocks that may have events with these keys, oldest first. What is in memory is not filtered: it
    /// is looked through faster than a filter is kept up to date.
    pub(crate) fn candidates(&self, keys: &[Key]) -> io::Result<Vec<usize>> {
        match self {
            Run::Memory(run) => Ok((0..run.block_count()).collect()),
            Run::File(run) => run.candidates(keys),
        }
    }

    /// Takes blocks away that cannot have events with these members of `metadata`. Index files that know none
    /// take nothing away.
    pub(crate) fn retain_blocks(&self, blocks: &mut Vec<usize>, wanted: &[u32]) -> io::Result<()> {
        let Run::File(run) = self else { return Ok(()) };
        let keys: Vec<Key> = wanted.iter().map(|hash| Key::of_field(*hash)).collect();
        let Some(with_all) = run.field_candidates(&keys)? else { return Ok(()) };
        let with_any = run.field_candidates(&[Key::of_field(fields::ANY)])?.unwrap_or_default();
        blocks.retain(|block| with_all.binary_search(block).is_ok() || with_any.binary_search(block).is_ok());
        Ok(())
    }

    /// Whether a block may have an event with these members of `metadata`. Asked before the rest of the block
    /// is read: filters name some blocks by mistake.
    pub(crate) fn may_have_fields(&self, caches: &Caches, block: usize, wanted: &[u32]) -> io::Result<bool> {
        let Run::File(run) = self else { return Ok(true) };
        let column = run.field_column(caches, block)?;
        Ok(column.is_none_or(|column| column.may_have_anywhere(wanted)))
    }

    /// The same with the events of a block.
    pub(crate) fn retain_events(
        &self,
        caches: &Caches,
        block: usize,
        places: &mut Vec<usize>,
        wanted: &[u32],
    ) -> io::Result<()> {
        match self {
            Run::Memory(run) => {
                let column = run.block(block).fields();
                places.retain(|place| column.may_have(*place, wanted));
            }
            Run::File(run) => {
                if let Some(column) = run.field_column(caches, block)? {
                    places.retain(|place| column.may_have(*place, wanted));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn blocks(&self, caches: &'a Caches) -> io::Result<Blocks<'a>> {
        Ok(match *self {
            Run::Memory(run) => Blocks::Memory(run),
            Run::File(run) => Blocks::File(run, run.table(caches)?, caches),
        })
    }
}

impl<'a> Blocks<'a> {
    pub(crate) fn count(&self) -> usize {
        match self {
            Blocks::Memory(run) => run.block_count(),
            Blocks::File(_, table, _) => table.len(),
        }
    }

    /// Whether a block can have a match, as far as that is known without looking into it.
    pub(crate) fn may_match(&self, number: usize, probe: &Probe) -> bool {
        let first = |number: usize| match self {
            Blocks::Memory(run) => run.block(number).first_log_id(),
            Blocks::File(_, table, _) => table[number].first_log_id,
        };
        // The first event of the next block is later than all of this one.
        let after = if number + 1 < self.count() { first(number + 1) } else { Ulid(u128::MAX) };
        probe.may_match_times(first(number), after)
    }

    pub(crate) fn block(&self, number: usize) -> io::Result<BlockRead<'a>> {
        match self {
            Blocks::Memory(run) => Ok(BlockRead::Borrowed(run.block(number))),
            Blocks::File(run, table, caches) => run.block(caches, table, number).map(BlockRead::Shared),
        }
    }
}
