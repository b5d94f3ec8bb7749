//! The one path by which a log is opened, after a clean stop as after a crash.
//!
//! t0: a group was written. t1: its sync failed, or the power went. t2: the process starts again and reads the group: the bytes may be in the page cache only, or half there.
//! So at every start the last segment is read whole, what was never acknowledged is cut, and the last group is written again into a new segment that is synced before
//! anything is read or appended. Old files are never changed.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid};
use sealog_core::time::Month;

use super::Options;
use super::chain_index::{Chains, SealedRun};
use super::disk::{self, Disk};
use super::format::{
    Frame, FrameHeader, FrameWriter, HeaderError, Predecessor, SEGMENT_HEADER_LEN, Salt, SegmentHeader,
};
use super::index::{Entry, FieldHashes, MemoryRun};
use super::keys::Keys;
use super::mark::{Extent, MarkFile, Marked};
use super::segment::{self, Piece, Segment, index_path, next_path, segment_path};
use super::sidecar::{KeyEntry, SegmentEnd, SegmentIndex, Sidecar, slot};
use super::writer::Plan;

/// Something that was wrong with the files. Named in the log and kept for whoever asks; never repaired in silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The end of the last group was not written completely. It was never acknowledged, and is gone.
    TornTail { segment: u64, offset: u64 },
    /// A segment's file is gone.
    MissingSegment { number: u64 },
    /// A segment's header is damaged, so that nothing in it can be read.
    DamagedHeader { segment: u64 },
    /// Bytes of acknowledged events are damaged.
    Damaged { segment: u64, from: u64, to: u64 },
    /// A segment does not end as its successor says that it did.
    WrongEnd { segment: u64 },
    /// The log ends before a commit that it is known to have had.
    ShorterThanMark { commit: u64, marked: u64 },
    /// A chain ends before an event that it is known to have had, or has another event there. Nothing is sealed on top of it.
    HeadLost { chain: ChainId, durable: u64, recorded: u64 },
    /// A chain may have ended in a damaged place. Nothing is sealed on top of it.
    HeadUnproven { chain: ChainId },
    /// There are events but no readable mark, so a cut tail could not be noticed.
    NoMark,
    /// The last group could not be written again; the store can only be read until it is started again.
    ReadOnly { cause: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::TornTail { segment, offset } => {
                write!(
                    f,
                    "segment {segment} ends in a torn write at byte {offset}, which was never acknowledged; it was cut"
                )
            }
            Finding::MissingSegment { number } => {
                write!(f, "segment {number} is missing: its file was deleted or moved")
            }
            Finding::DamagedHeader { segment } => {
                write!(f, "the header of segment {segment} is damaged; its events cannot be read")
            }
            Finding::Damaged { segment, from, to } => {
                write!(f, "segment {segment} is damaged from byte {from} to {to}")
            }
            Finding::WrongEnd { segment } => {
                write!(f, "segment {segment} does not end as the segment after it says")
            }
            Finding::ShorterThanMark { commit, marked } => {
                write!(
                    f,
                    "the log ends at commit {commit}, but it is known to have reached {marked}: acknowledged events are lost"
                )
            }
            Finding::HeadLost { chain, durable, recorded } => {
                write!(
                    f,
                    "chain {chain} ends at event {durable}, but is known to have reached {recorded} with another content; it accepts no more events"
                )
            }
            Finding::HeadUnproven { chain } => {
                write!(f, "the last events of chain {chain} may be damaged; it accepts no more events")
            }
            Finding::NoMark => f.write_str(
                "there is no readable mark, so events that were cut off the end would not be noticed",
            ),
            Finding::ReadOnly { cause } => write!(
                f,
                "the last commit could not be written again ({cause}); the store is read-only until it is started again"
            ),
        }
    }
}

#[derive(Debug)]
pub(super) enum RecoveryError {
    UnknownVersion(u32),
    Io(io::Error),
}

impl From<io::Error> for RecoveryError {
    fn from(error: io::Error) -> RecoveryError {
        RecoveryError::Io(error)
    }
}

/// An opened log, ready for its writer.
#[derive(Debug)]
pub(super) struct Recovered {
    pub chains: Chains,
    pub segments: BTreeMap<u64, Arc<Segment>>,
    /// Of all segments but the active one.
    pub ends: BTreeMap<u64, SegmentEnd>,
    pub keys: Keys,
    pub usage: HashMap<(TenantId, Month), u64>,
    pub mark: MarkFile,
    /// Where the next group goes, and the number of the last one.
    pub plan: Plan,
    pub commit: u64,
    pub findings: Vec<Finding>,
    /// Whether chains that were never seen may have existed in a place that is lost.
    pub unknown_unproven: bool,
}

/// A segment's file with a readable header.
struct Found {
    header: SegmentHeader,
    segment: Arc<Segment>,
}

struct Recovery<'a> {
    dir: &'a Path,
    mode: Mode,
    options: &'a Options,
    marked: Option<Marked>,
    findings: Vec<Finding>,
    chains: Chains,
    keys: Keys,
    usage: HashMap<(TenantId, Month), u64>,
    ends: BTreeMap<u64, SegmentEnd>,
    /// Runs by chain, in the order of the log.
    runs: HashMap<ChainId, Vec<SealedRun>>,
    /// The furthest place, as segment and offset, where events are damaged or missing that the mark says nothing of.
    unproven_to: Option<(u64, u64)>,
    /// Segments with damage in them.
    damaged_segments: Vec<u64>,
}

/// The head of a chain that ends with this run.
fn head_of(run: &SealedRun) -> Head {
    let hash = match run {
        SealedRun::File(run) => run.last_hash,
        SealedRun::Memory(run) => run.last_hash,
    };
    let run = run.run();
    Head { chain_seq: run.end_seq() - 1, log_id: run.log_ids().1, hash }
}

pub(super) fn recover(dir: &Path, mode: Mode, options: &Options) -> Result<Recovered, RecoveryError> {
    let disk = &options.disk;
    disk.create_dir(dir)?;
    disk.sync_dir(dir.parent().unwrap_or(dir))?;
    let (mark, marked) = MarkFile::open(Arc::clone(disk), dir, mode)?;
    let found = find_segments(dir, mode, &**disk)?;
    let mut recovery = Recovery {
        dir,
        mode,
        options,
        marked,
        findings: found.findings,
        chains: Chains::default(),
        keys: Keys::default(),
        usage: HashMap::new(),
        ends: BTreeMap::new(),
        runs: HashMap::new(),
        unproven_to: None,
        damaged_segments: Vec::new(),
    };
    recovery.missing_segments(&found.numbers);
    let mut segments = BTreeMap::new();
    let last_number = found.segments.keys().next_back().copied();
    for (number, this) in &found.segments {
        segments.insert(*number, Arc::clone(&this.segment));
        if Some(*number) != last_number {
            let successor =
                found.segments.range(number + 1..).next().and_then(|(_, next)| next.header.before);
            let end = successor.filter(|before| before.number == *number);
            recovery.sealed_segment(*number, this, end)?;
        }
    }
    let last = last_number.map(|number| (number, &found.segments[&number]));
    let active = recovery.last_segment(last, found.numbers.last().copied().unwrap_or(0))?;
    segments.insert(active.plan.segment, Arc::clone(&active.segment));
    let unknown_unproven = recovery.build_chains(active.plan.segment);
    for finding in &recovery.findings {
        match finding {
            Finding::TornTail { .. } => tracing::warn!(log = mode.as_str(), "{finding}"),
            _ => tracing::error!(log = mode.as_str(), "{finding}"),
        }
    }
    Ok(Recovered {
        chains: recovery.chains,
        segments,
        ends: recovery.ends,
        keys: recovery.keys,
        usage: recovery.usage,
        mark,
        plan: active.plan,
        commit: active.commit,
        findings: recovery.findings,
        unknown_unproven,
    })
}

struct FoundAll {
    /// Of all files with a segment's name.
    numbers: Vec<u64>,
    segments: BTreeMap<u64, Found>,
    findings: Vec<Finding>,
}

fn find_segments(dir: &Path, mode: Mode, disk: &dyn Disk) -> Result<FoundAll, RecoveryError> {
    let mut numbers: Vec<u64> = disk.list(dir)?.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.sort_unstable();
    let mut found = FoundAll { numbers, segments: BTreeMap::new(), findings: Vec::new() };
    for number in &found.numbers {
        let file = disk.open(&segment_path(dir, *number))?;
        let mut bytes = vec![0; SEGMENT_HEADER_LEN];
        let filled = file.read_at(&mut bytes, 0)?;
        match SegmentHeader::decode(&bytes[..filled]) {
            Ok(header) if header.number == *number && header.mode == mode => {
                let segment = Arc::new(Segment { number: *number, salt: header.salt, file });
                found.segments.insert(*number, Found { header, segment });
            }
            Err(HeaderError::UnknownVersion(version)) => return Err(RecoveryError::UnknownVersion(version)),
            _ => found.findings.push(Finding::DamagedHeader { segment: *number }),
        }
    }
    Ok(found)
}

/// Where the writer goes on.
struct Active {
    segment: Arc<Segment>,
    plan: Plan,
    commit: u64,
}

/// The events of a segment, as far as they can be read, and which places are damaged.
pub(super) struct Indexed {
    pub index: SegmentIndex,
    pub damage: Vec<(u64, u64)>,
    pub running: u32,
    pub last: Option<FrameHeader>,
}

/// Builds the index of a segment from its pieces.
pub(super) fn index_pieces<'a>(number: u64, pieces: impl IntoIterator<Item = &'a Piece<'a>>) -> Indexed {
    let mut indexed = Indexed { index: SegmentIndex::default(), damage: Vec::new(), running: 0, last: None };
    let mut open: HashMap<ChainId, usize> = HashMap::new();
    for piece in pieces {
        match piece {
            Piece::Intact(frame) => {
                indexed.add_frame(number, frame, &mut open);
                indexed.running = frame.running_checksum(indexed.running);
                indexed.last = Some(frame.header);
            }
            Piece::Broken(frame) => {
                // Its header is right, so the records that are still whole can be found and read.
                indexed.add_frame(number, frame, &mut open);
                indexed.damage.push((frame.header.position, frame.header.end()));
            }
            Piece::Unreadable(from, to) => indexed.damage.push((*from, *to)),
        }
    }
    indexed.index.count_usage();
    indexed
}

impl Indexed {
    fn add_frame(&mut self, number: u64, frame: &Frame<'_>, open: &mut HashMap<ChainId, usize>) {
        let header = &frame.header;
        let chain = header.chain;
        let runs = &mut self.index.runs;
        for record in frame.records() {
            let event = record.event(chain);
            // Where a record is damaged its id is unknown: it gets the lowest that it can have had, and no action.
            let known =
                open.get(&chain).map(|at| &runs[*at]).filter(|(_, run)| run.end_seq() == record.chain_seq);
            let (log_id, hash, hashes) = match &event {
                Some(event) => {
                    (event.sealed.log_id, event.sealed.hash, FieldHashes::of(&event.text.fields()))
                }
                None => match known {
                    Some((_, run)) => (Ulid(run.last_log_id().0 + 1), run.last_hash, FieldHashes::default()),
                    // Nothing to go by: it counts as a hole.
                    None => continue,
                },
            };
            if known.is_none() {
                open.insert(chain, runs.len());
                runs.push((chain, MemoryRun::new(number, record.chain_seq)));
            }
            let (_, run) = &mut runs[open[&chain]];
            run.push(&Entry { log_id, position: record.offset, hashes });
            run.last_hash = hash;
        }
        if let Some(stored) = frame.idempotency() {
            let position = u32::try_from(header.position).expect("segments are smaller than 4 GiB");
            let slot = slot(chain, stored.key.key_hash);
            self.index.keys.push(KeyEntry { slot, received_ms: header.received_ms, position });
        }
    }
}

impl Recovery<'_> {
    fn covered(&self) -> Extent {
        self.marked.as_ref().map_or(Extent::default(), |marked| marked.extent)
    }

    /// Whether the mark speaks for what stood at this place.
    fn is_marked(&self, segment: u64, offset: u64) -> bool {
        let extent = self.covered();
        (segment, offset) < (extent.segment, extent.offset)
    }

    fn lost(&mut self, segment: u64, from: u64, to: u64) {
        self.damaged_segments.push(segment);
        if !self.is_marked(segment, from) {
            self.unproven_to = self.unproven_to.max(Some((segment, to)));
        }
    }

    /// Names the segments that are not there. Their numbers have no gaps, and the mark knows the last one.
    fn missing_segments(&mut self, numbers: &[u64]) {
        let marked = self.covered().segment;
        let last = numbers.last().copied().unwrap_or(0).max(marked);
        let missing: Vec<u64> = (1..=last).filter(|number| numbers.binary_search(number).is_err()).collect();
        for number in missing {
            self.findings.push(Finding::MissingSegment { number });
            // The mark says what the segment held up to it; only after a clean stop was that all.
            let known = self.is_marked(number, u64::MAX) || number == marked && self.stopped_cleanly();
            if !known {
                self.unproven_to = self.unproven_to.max(Some((number, u64::MAX)));
            }
        }
        let damaged: Vec<u64> =
            self.findings
                .iter()
                .filter_map(|finding| {
                    if let Finding::DamagedHeader { segment } = finding { Some(*segment) } else { None }
                })
                .collect();
        for segment in damaged {
            self.lost(segment, 0, u64::MAX);
        }
        if self.marked.is_none() && !numbers.is_empty() && numbers != [1] {
            self.findings.push(Finding::NoMark);
        }
    }

    /// A segment that is not the last one: its index, or the segment itself where that does not fit.
    fn sealed_segment(
        &mut self,
        number: u64,
        found: &Found,
        end: Option<Predecessor>,
    ) -> Result<(), RecoveryError> {
        if let Some(end) = end {
            let end = SegmentEnd { number, final_len: end.final_len, checksum: end.checksum };
            if let Ok(file) = self.options.disk.open(&index_path(self.dir, number)) {
                match Sidecar::open(file, &end, self.mode) {
                    Ok(opened) => {
                        self.ends.insert(number, end);
                        self.take_opened(opened);
                        return Ok(());
                    }
                    Err(error) => tracing::warn!(%error, segment = number, "building an index again"),
                }
            }
        }
        let content = disk::read_all(&*found.segment.file)?;
        let limit = end.map_or(content.len() as u64, |end| end.final_len);
        let pieces = segment::walk(&content, limit, &found.header.salt, self.mode);
        let indexed = index_pieces(number, &pieces);
        let reached = indexed.last.map_or(SEGMENT_HEADER_LEN as u64, |last| last.end());
        if end.is_some_and(|end| {
            indexed.damage.is_empty() && (reached != end.final_len || indexed.running != end.checksum)
        }) {
            self.findings.push(Finding::WrongEnd { segment: number });
            self.lost(number, reached, limit);
        }
        let end = SegmentEnd {
            number,
            final_len: limit,
            checksum: end.map_or(indexed.running, |end| end.checksum),
        };
        self.take_indexed(number, indexed, &end);
        Ok(())
    }

    fn take_opened(&mut self, opened: super::sidecar::Opened) {
        for (chain, run) in opened.runs {
            self.runs.entry(chain).or_default().push(SealedRun::File(run));
        }
        for (tenant_id, month, count) in opened.usage {
            *self.usage.entry((tenant_id, month)).or_default() += count;
        }
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.options.world.now_ms());
    }

    /// Takes a segment that was read, writing its index file so that the next start need not read it.
    fn take_indexed(&mut self, number: u64, indexed: Indexed, end: &SegmentEnd) {
        for (from, to) in &indexed.damage {
            self.findings.push(Finding::Damaged { segment: number, from: *from, to: *to });
            self.lost(number, *from, *to);
        }
        self.ends.insert(number, *end);
        match write_index(&*self.options.disk, self.dir, &indexed.index, end, self.mode) {
            Ok(opened) => self.take_opened(opened),
            Err(error) => {
                tracing::warn!(%error, segment = number, "cannot write an index file; keeping it in memory");
                for (chain, run) in indexed.index.runs {
                    self.runs.entry(chain).or_default().push(SealedRun::Memory(run));
                }
                for (key, count) in indexed.index.usage {
                    *self.usage.entry(key).or_default() += count;
                }
                for key in indexed.index.keys {
                    self.keys.insert(number, key);
                }
            }
        }
    }

    /// The last segment: cuts what was never acknowledged and writes the last group again into a new segment.
    fn last_segment(&mut self, last: Option<(u64, &Found)>, last_name: u64) -> Result<Active, RecoveryError> {
        let Some((number, found)) = last else {
            let commit = self.covered().commit;
            self.check_length(commit);
            return self.new_segment(last_name, None, &[], commit);
        };
        let content = disk::read_all(&*found.segment.file)?;
        let salt = &found.header.salt;
        let mut pieces = segment::walk(&content, u64::MAX, salt, self.mode);
        if let Some(at) = self.torn_tail(number, &pieces) {
            self.findings.push(Finding::TornTail { segment: number, offset: pieces[at].start() });
            pieces.truncate(at);
        }
        let intact =
            |piece: &Piece<'_>| if let Piece::Intact(frame) = piece { Some(frame.header) } else { None };
        let last_frame = pieces.iter().filter_map(intact).next_back();
        let commit = last_frame.map_or(found.header.first_commit.saturating_sub(1), |frame| frame.commit);
        self.check_length(commit);
        // What the mark covers is known to be on disk. A group past it is only known to have been written, so it moves.
        let group_start = last_frame.map_or(u64::MAX, |frame| frame.group_start());
        let unsure = commit > self.covered().commit;
        let moves = pieces.iter().position(|piece| {
            unsure
                && intact(piece)
                    .is_some_and(|header| header.position >= group_start && header.commit == commit)
        });
        let (stay, group) = pieces.split_at(moves.unwrap_or(pieces.len()));
        let indexed = index_pieces(number, stay);
        let end = SegmentEnd { number, final_len: stay_end(stay), checksum: indexed.running };
        let group: Vec<&Frame<'_>> = group
            .iter()
            .filter_map(|piece| if let Piece::Intact(frame) = piece { Some(frame) } else { None })
            .collect();
        self.take_indexed(number, indexed, &end);
        let before = Predecessor { number, final_len: end.final_len, checksum: end.checksum };
        match self.new_segment(last_name, Some(before), &group, commit) {
            Err(RecoveryError::Io(error)) => {
                // Reading must go on. The group is shown from where it stands, and nothing is added to it.
                self.findings.push(Finding::ReadOnly { cause: error.to_string() });
                let indexed = index_pieces(number, &pieces[moves.unwrap_or(pieces.len())..]);
                for (chain, run) in indexed.index.runs {
                    self.runs.entry(chain).or_default().push(SealedRun::Memory(run));
                }
                let plan = Plan { segment: number, salt: *salt, end: end.final_len, capacity: 0, running: 0 };
                Ok(Active { segment: Arc::clone(&found.segment), plan, commit })
            }
            result => result,
        }
    }

    /// The first piece of a torn tail: what belongs to the last group and was not known to be durable. Everything else that is wrong is damage.
    fn torn_tail(&self, number: u64, pieces: &[Piece<'_>]) -> Option<usize> {
        let covered = self.covered();
        let header = |piece: &Piece<'_>| match piece {
            Piece::Intact(frame) => Some(frame.header),
            _ => None,
        };
        let last_commit = pieces.iter().filter_map(header).map(|header| header.commit).max().unwrap_or(0);
        pieces.iter().enumerate().position(|(at, piece)| {
            let wrong_commit = match piece {
                Piece::Intact(_) => return false,
                Piece::Broken(frame) => Some(frame.header.commit),
                Piece::Unreadable(..) => None,
            };
            if self.is_marked(number, piece.start()) {
                return false;
            }
            let next = pieces[at..].iter().find_map(header);
            match (next, wrong_commit) {
                // A frame of the same, last group stands behind it: the two were being written together.
                (Some(next), _) => {
                    piece.start() >= next.group_start()
                        && next.commit == last_commit
                        && next.commit > covered.commit
                }
                (None, Some(commit)) => commit > covered.commit && commit >= last_commit,
                (None, None) => true,
            }
        })
    }

    fn check_length(&mut self, commit: u64) {
        let marked = self.covered().commit;
        if commit < marked {
            self.findings.push(Finding::ShorterThanMark { commit, marked });
            if !self.stopped_cleanly() {
                // What came after the mark is lost too, and nothing tells whose it was.
                self.unproven_to = Some((u64::MAX, 0));
            }
        }
    }

    fn stopped_cleanly(&self) -> bool {
        self.marked.as_ref().is_some_and(|marked| marked.clean)
    }

    /// Begins the segment that will be written to, with the last group in it, and makes both durable.
    fn new_segment(
        &mut self,
        last_name: u64,
        before: Option<Predecessor>,
        group: &[&Frame<'_>],
        commit: u64,
    ) -> Result<Active, RecoveryError> {
        let disk = &self.options.disk;
        let covered = self.covered();
        let number = last_name.max(covered.segment) + 1;
        let commit = commit.max(covered.commit);
        let mut salt: Salt = [0; 16];
        self.options.world.fill_random(&mut salt);
        let header = SegmentHeader {
            mode: self.mode,
            recovered: before.is_some(),
            number,
            salt,
            first_commit: commit + 1,
            created_ms: self.options.world.now_ms(),
            before,
        };
        let mut content = header.encode();
        let mut running = 0;
        for frame in group {
            running = copy_frame(frame, commit + 1, &salt, &mut content, running);
        }
        let capacity = self.options.segment_bytes_first.max(content.len() as u64 * 2);
        segment::prepare(&**disk, self.dir, capacity)?;
        let file = disk.open(&next_path(self.dir))?;
        file.write_all_at(&content, 0)?;
        file.sync()?;
        disk.rename(&next_path(self.dir), &segment_path(self.dir, number))?;
        disk.sync_dir(self.dir)?;
        let segment = Arc::new(Segment { number, salt, file });
        let pieces = segment::walk(&content, u64::MAX, &salt, self.mode);
        let indexed = index_pieces(number, &pieces);
        for (chain, run) in indexed.index.runs {
            self.runs.entry(chain).or_default().push(SealedRun::Memory(run));
        }
        for (key, count) in indexed.index.usage {
            *self.usage.entry(key).or_default() += count;
        }
        for key in indexed.index.keys {
            self.keys.insert(number, key);
        }
        let commit = if group.is_empty() { commit } else { commit + 1 };
        Ok(Active {
            segment,
            plan: Plan { segment: number, salt, end: content.len() as u64, capacity, running },
            commit,
        })
    }

    /// Puts the runs of each chain together, finds holes and heads. Returns whether a chain that nothing is known of may have existed.
    fn build_chains(&mut self, active: u64) -> bool {
        let mut runs = std::mem::take(&mut self.runs);
        let marked = self.marked.take().unwrap_or_default();
        for chain in marked.heads.keys() {
            runs.entry(*chain).or_default();
        }
        let mut ids: Vec<ChainId> = runs.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let mut of_chain = runs.remove(&id).unwrap_or_default();
            of_chain.sort_by_key(|run| (run.run().first_seq(), run.run().segment()));
            let durable = of_chain.last().map_or(Head::EMPTY, head_of);
            let recorded = marked.heads.get(&id).copied().unwrap_or(Head::EMPTY);
            let lost = recorded.chain_seq > durable.chain_seq
                || recorded.chain_seq == durable.chain_seq && recorded.hash != durable.hash;
            let last_place = of_chain.last().map_or((0, 0), |run| (run.run().segment(), u64::MAX));
            let unproven = self.unproven_to.is_some_and(|place| last_place < place);
            if lost {
                self.findings.push(Finding::HeadLost {
                    chain: id,
                    durable: durable.chain_seq,
                    recorded: recorded.chain_seq,
                });
            } else if unproven {
                self.findings.push(Finding::HeadUnproven { chain: id });
            }
            let damaged = self.damaged_stretches(&of_chain);
            self.chains.get_or_create(id).with(|state| {
                state.durable = durable;
                state.recorded = if lost { recorded } else { durable };
                state.unproven = lost || unproven;
                state.damaged = Arc::new(damaged);
                // Runs of the segment that is written to next can grow.
                let grows = of_chain.iter().position(|run| run.run().segment() == active);
                for run in of_chain.split_off(grows.unwrap_or(of_chain.len())) {
                    if let SealedRun::Memory(run) = run {
                        state.memory.push(run);
                    }
                }
                state.sealed = Arc::new(of_chain);
            });
        }
        self.unproven_to.is_some()
    }

    /// Holes between runs that lie in segments with damage: the records are there, but cannot be read.
    fn damaged_stretches(&self, runs: &[SealedRun]) -> Vec<(u64, u64)> {
        let mut stretches = Vec::new();
        let (mut next_seq, mut segment) = (1, 0);
        for run in runs.iter().map(SealedRun::run) {
            let first = run.first_seq();
            let in_damage =
                self.damaged_segments.iter().any(|damaged| (segment..=run.segment()).contains(damaged));
            if first > next_seq && in_damage {
                stretches.push((next_seq, first - 1));
            }
            next_seq = run.end_seq();
            segment = run.segment();
        }
        stretches
    }
}

fn stay_end(stay: &[Piece<'_>]) -> u64 {
    stay.last().map_or(SEGMENT_HEADER_LEN as u64, |piece| match piece {
        Piece::Intact(frame) | Piece::Broken(frame) => frame.header.end(),
        Piece::Unreadable(_, to) => *to,
    })
}

/// Writes a frame again, at the end of `content`, as part of another commit.
fn copy_frame(frame: &Frame<'_>, commit: u64, salt: &Salt, content: &mut Vec<u8>, running: u32) -> u32 {
    let position = content.len() as u64;
    let group_back =
        u32::try_from(content.len() - SEGMENT_HEADER_LEN).expect("a group is far smaller than 4 GiB");
    let header = FrameHeader { position, group_back, commit, ..frame.header };
    let chain = header.chain;
    let mut writer = FrameWriter::begin(content, salt, header);
    for record in frame.records() {
        let event = record.event(chain).expect("the frame is intact");
        writer.record(&event.sealed, event.text.as_str(), &event.annotations);
    }
    writer.finish(frame.idempotency().as_ref(), running)
}

/// Writes a segment's index and opens it.
pub(super) fn write_index(
    disk: &dyn Disk,
    dir: &Path,
    index: &SegmentIndex,
    end: &SegmentEnd,
    mode: Mode,
) -> io::Result<super::sidecar::Opened> {
    let path = index_path(dir, end.number);
    disk::replace(disk, &path, &index.encode(end))?;
    Sidecar::open(disk.open(&path)?, end, mode)
}
