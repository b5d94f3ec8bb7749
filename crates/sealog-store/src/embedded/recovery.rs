//! The one path by which a log is opened, after a clean stop as after a crash.
//!
//! t0: a group was written. t1: its sync failed, or the power went. t2: the process starts again and reads the group: the bytes may be in the page cache only, or half there.
//! So at every start the last segment is read whole, what was never acknowledged is cut, and a last group that the mark does not speak for is written again into a new
//! segment that is synced before anything is read or appended. Of old files only zeros are ever cut, at their end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid};
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};

use super::Options;
use super::cache::Cache;
use super::chain_index::{Chains, SealedRun};
use super::disk::{self, Disk, OpenFiles, ReadInPart};
use super::format::{
    self, Frame, FrameHeader, FrameWriter, HeaderError, Predecessor, SEGMENT_HEADER_LEN, Salt, SegmentHeader,
};
use super::index::{BLOCK_EVENTS, Entry, FieldHashes, MemoryRun};
use super::keys::Keys;
use super::mark::{Extent, MarkFile, Marked, Place};
use super::mutants::{self, Mutant};
use super::reader::Window;
use super::salt::IndexSalt;
use super::segment::{self, Piece, Segment, index_path, next_path, segment_path};
use super::sidecar::{Caches, KeyEntry, Opened, SegmentEnd, SegmentIndex, Sidecar, slot};
use super::writer::Plan;
use crate::loss::Loss;

/// Something that was wrong with the files. Named in the log and kept for whoever asks; never repaired in silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The end of the last group was not written completely. It was never acknowledged, and is gone.
    TornTail { segment: u64, offset: u64 },
    /// The files of these segments are gone.
    MissingSegments { first: u64, last: u64 },
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
    /// A chain goes on, but has another event where one was acknowledged: it was rewritten. Nothing is sealed on top of it.
    Rewritten { chain: ChainId, chain_seq: u64 },
    /// The last event of a chain has an id that no event can have. Nothing is sealed on top of it.
    ImpossibleId { chain: ChainId, chain_seq: u64 },
    /// A chain may have ended in a damaged place. Nothing is sealed on top of it.
    HeadUnproven { chain: ChainId },
    /// There are events but no readable mark, so a cut tail could not be noticed.
    NoMark,
    /// A record in the middle of the mark is damaged.
    MarkDamaged,
    /// The clock is behind the last events of some chains. They accept events, but their time stands still until the clock has caught up.
    ClockBehind { chains: usize, furthest: ChainId, by_ms: u64 },
    /// There was no room for a new segment at start. The store can only be read until there is.
    NoRoom { cause: String },
    /// Something could not be read or written at start; the store can only be read until it is started again.
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
            Finding::MissingSegments { first, last } => {
                write!(f, "segments {first} to {last} are missing: their files were deleted or moved")
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
            Finding::Rewritten { chain, chain_seq } => {
                write!(
                    f,
                    "event {chain_seq} of chain {chain} is not the one that was acknowledged: the log was rewritten; the chain accepts no more events"
                )
            }
            Finding::ImpossibleId { chain, chain_seq } => {
                write!(
                    f,
                    "event {chain_seq} of chain {chain} has an id that no event can have: the log was tampered with; the chain accepts no more events"
                )
            }
            Finding::HeadUnproven { chain } => {
                write!(f, "the last events of chain {chain} may be damaged; it accepts no more events")
            }
            Finding::NoMark => f.write_str(
                "there is no readable mark, so events that were cut off the end would not be noticed",
            ),
            Finding::MarkDamaged => f.write_str("the mark is damaged; what it said of some chains is lost"),
            Finding::ClockBehind { chains, furthest, by_ms } => {
                write!(
                    f,
                    "the clock is behind the last event of {chains} chains, by {} s for chain {furthest}: their time stands still until it has caught up; check the clock of this machine",
                    by_ms / 1000
                )
            }
            Finding::NoRoom { cause } => {
                write!(
                    f,
                    "the disk had no room for a new segment when the store was opened ({cause}); it accepts events as soon as there is"
                )
            }
            Finding::ReadOnly { cause } => {
                write!(f, "the store is read-only until it is started again: {cause}")
            }
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
    pub files: Arc<OpenFiles>,
    pub keys: Keys,
    pub usage: HashMap<(TenantId, Month), u64>,
    pub mark: MarkFile,
    /// Where the next group goes, and the number of the last one.
    pub plan: Plan,
    pub commit: u64,
    pub findings: Vec<Finding>,
    /// Segments whose index files can be read but should be made anew, and the ids of those.
    pub stale: Vec<(u64, u64)>,
    /// Whether chains that were never seen may have existed in a place that is lost.
    pub unknown_unproven: bool,
    /// Why not everything could be read.
    pub unreadable: Option<String>,
    /// Whether chains that were never seen may have events in a place that could not be read.
    pub unreadable_chains: bool,
}

/// In place of the running checksum of a segment that was damaged when the next one began. One that is zero by chance is not compared either, but its length is.
const UNKNOWN_CHECKSUM: u32 = 0;

/// Fewer zeros than this at the end of a segment are not worth looking for.
const TRIM_WORTH_BYTES: u64 = 1 << 20;

pub(super) fn recover(
    dir: &Path,
    mode: Mode,
    options: &Options,
    salt: IndexSalt,
) -> Result<Recovered, RecoveryError> {
    let disk = &options.disk;
    disk.create_dir(dir)?;
    disk.sync_dir(dir.parent().unwrap_or(dir))?;
    let files = OpenFiles::new(Arc::clone(disk), options.open_files_max);
    let (mut mark, marked) = MarkFile::open(Arc::clone(disk), dir, mode)?;
    let marked_segment = marked.as_ref().map_or(0, |marked| marked.extent.segment);
    let found = find_segments(dir, mode, &**disk, &files, marked_segment)?;
    let mut recovery = Recovery {
        dir,
        mode,
        options,
        salt,
        files,
        unproven_to: marked.as_ref().and_then(|marked| marked.unproven_to),
        marked,
        findings: found.findings,
        chains: Chains::default(),
        keys: Keys::default(),
        usage: HashMap::new(),
        ends: BTreeMap::new(),
        runs: HashMap::new(),
        damaged_segments: Vec::new(),
        stale: Vec::new(),
        unreadable: found.unreadable.iter().map(|number| (*number, 0, u64::MAX)).collect(),
        trimmable: Vec::new(),
        read_error: found.read_error,
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
    let unreadable_chains =
        recovery.unreadable.iter().any(|(segment, _, to)| !recovery.is_marked(*segment, *to))
            || recovery.marked.as_ref().is_some_and(|marked| marked.damaged);
    recovery.build_chains(active.grows.then_some(active.plan.segment), &segments)?;
    mark.set_unproven(recovery.unproven_to);
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
        files: recovery.files,
        keys: recovery.keys,
        usage: recovery.usage,
        mark,
        plan: active.plan,
        commit: active.commit,
        findings: recovery.findings,
        stale: recovery.stale,
        unknown_unproven: recovery.unproven_to.is_some(),
        unreadable_chains: unreadable_chains && !recovery.unreadable.is_empty(),
        unreadable: (!recovery.unreadable.is_empty())
            .then(|| format!("not all of the log could be read at start: {}", cause(recovery.read_error))),
    })
}

/// A segment's file with a readable header.
struct Found {
    header: SegmentHeader,
    segment: Arc<Segment>,
}

struct FoundAll {
    /// Of all files that are segments, readable or not.
    numbers: Vec<u64>,
    segments: BTreeMap<u64, Found>,
    findings: Vec<Finding>,
    /// Numbers of those whose header the disk did not give.
    unreadable: Vec<u64>,
    read_error: Option<io::Error>,
}

fn cause(error: Option<io::Error>) -> String {
    error.map_or_else(String::new, |error| error.to_string())
}

fn find_segments(
    dir: &Path,
    mode: Mode,
    disk: &dyn Disk,
    files: &Arc<OpenFiles>,
    marked: u64,
) -> Result<FoundAll, RecoveryError> {
    let mut numbers: Vec<u64> = disk.list(dir)?.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.sort_unstable();
    let mut found = FoundAll {
        numbers: Vec::new(),
        segments: BTreeMap::new(),
        findings: Vec::new(),
        unreadable: Vec::new(),
        read_error: None,
    };
    for number in numbers {
        let file = files.file(segment_path(dir, number));
        let mut bytes = vec![0; SEGMENT_HEADER_LEN];
        let filled = match file.read_at(&mut bytes, 0) {
            Ok(filled) => filled,
            Err(error) => {
                tracing::error!(%error, segment = number, "the header of a segment cannot be read");
                found.read_error.get_or_insert(error);
                found.unreadable.push(number);
                found.numbers.push(number);
                continue;
            }
        };
        match SegmentHeader::decode(&bytes[..filled]) {
            Ok(header) if header.number == number && header.mode == mode => {
                let segment = Arc::new(Segment { number, salt: header.salt, file });
                found.segments.insert(number, Found { header, segment });
            }
            Err(HeaderError::UnknownVersion(version)) => return Err(RecoveryError::UnknownVersion(version)),
            _ if number > marked.max(found.numbers.last().copied().unwrap_or(0)) + 1 => {
                tracing::warn!(file = %segment_path(dir, number).display(), "a file that is not of this log is left alone");
                continue;
            }
            _ => found.findings.push(Finding::DamagedHeader { segment: number }),
        }
        found.numbers.push(number);
    }
    Ok(found)
}

struct Recovery<'a> {
    dir: &'a Path,
    mode: Mode,
    options: &'a Options,
    salt: IndexSalt,
    files: Arc<OpenFiles>,
    marked: Option<Marked>,
    findings: Vec<Finding>,
    chains: Chains,
    keys: Keys,
    usage: HashMap<(TenantId, Month), u64>,
    ends: BTreeMap<u64, SegmentEnd>,
    /// Runs by chain, in the order of the log.
    runs: HashMap<ChainId, Vec<SealedRun>>,
    /// The furthest place where events are damaged or missing that the mark says nothing of, found now or at an earlier start.
    unproven_to: Option<Place>,
    /// Segments with damage in them.
    damaged_segments: Vec<u64>,
    stale: Vec<(u64, u64)>,
    /// Places that the disk did not give: segment, from, to. That says nothing about what is on it, so nothing may be concluded from it, and nothing is written.
    unreadable: Vec<(u64, u64, u64)>,
    /// Segments that are not written to any more, and where their frames end.
    trimmable: Vec<(u64, u64)>,
    /// Why the disk did not give them.
    read_error: Option<io::Error>,
}

/// Where the writer goes on.
struct Active {
    segment: Arc<Segment>,
    plan: Plan,
    commit: u64,
    /// Whether anything will be written.
    grows: bool,
}

/// The events of a segment, as far as they can be read, and which places are damaged.
pub(super) struct Indexed {
    pub index: SegmentIndex,
    pub damage: Vec<(u64, u64)>,
    running: u32,
    end: u64,
}

/// Builds the index of a segment from its pieces.
pub(super) fn index_pieces<'a>(
    number: u64,
    pieces: impl IntoIterator<Item = &'a Piece<'a>>,
    salt: &IndexSalt,
) -> Indexed {
    let mut indexed = Indexed {
        index: SegmentIndex::default(),
        damage: Vec::new(),
        running: 0,
        end: SEGMENT_HEADER_LEN as u64,
    };
    let mut open: HashMap<ChainId, usize> = HashMap::new();
    for piece in pieces {
        match piece {
            Piece::Intact(frame) => {
                let readable = indexed.add_frame(number, frame, &mut open, salt);
                indexed.running = frame.running_checksum(indexed.running);
                indexed.end = frame.header.end();
                if !readable {
                    // Whole, but not what this version writes. It must not be taken for absent.
                    indexed.damage.push((frame.header.position, frame.header.end()));
                }
            }
            Piece::Broken(frame) => {
                // Its header is right, so the records that are still whole can be found and read.
                indexed.add_frame(number, frame, &mut open, salt);
                indexed.damage.push((frame.header.position, frame.header.end()));
            }
            Piece::Unreadable(from, to) => indexed.damage.push((*from, *to)),
        }
    }
    indexed.index.count_usage();
    indexed
}

impl Indexed {
    /// Whether every record could be read.
    fn add_frame(
        &mut self,
        number: u64,
        frame: &Frame<'_>,
        open: &mut HashMap<ChainId, usize>,
        salt: &IndexSalt,
    ) -> bool {
        let header = &frame.header;
        let chain = header.chain;
        let runs = &mut self.index.runs;
        let mut readable = true;
        for record in frame.records() {
            let event = record.event(chain);
            readable &= event.is_some();
            let known =
                open.get(&chain).map(|at| &runs[*at].1).filter(|run| run.end_seq() == record.chain_seq);
            let (log_id, hashes) = match (&event, known) {
                (Some(event), _) => (event.sealed.log_id, FieldHashes::of(&event.text.fields(), salt)),
                // Where a record is damaged its id is unknown: it gets the lowest that it can have had, and no action.
                (None, Some(run)) => (Ulid(run.last_log_id().0.saturating_add(1)), FieldHashes::default()),
                // Nothing to go by: it counts as a hole.
                (None, None) => continue,
            };
            if known.is_none() {
                open.insert(chain, runs.len());
                runs.push((chain, MemoryRun::new(number, record.chain_seq)));
            }
            let run = &mut runs[open[&chain]].1;
            run.push(&Entry { log_id, position: record.offset, hashes });
            run.last_hash = record.raw_hash();
            if let Some(event) = event {
                run.head = event.head();
            }
        }
        if let (Some(stored), Ok(position)) = (frame.idempotency(), u32::try_from(header.position)) {
            let slot = slot(chain, stored.key.key_hash);
            self.index.keys.push(KeyEntry { slot, received_ms: header.received_ms, position });
        }
        readable
    }
}

/// The header of a frame whose header is right, whatever the rest of it is like.
fn header_of(piece: &Piece<'_>) -> Option<FrameHeader> {
    match piece {
        Piece::Intact(frame) | Piece::Broken(frame) => Some(frame.header),
        Piece::Unreadable(..) => None,
    }
}

impl Recovery<'_> {
    fn covered(&self) -> Extent {
        self.marked.as_ref().map_or(Extent::default(), |marked| marked.extent)
    }

    fn stopped_cleanly(&self) -> bool {
        self.marked.as_ref().is_some_and(|marked| marked.clean)
    }

    /// Whether the mark speaks for everything that stood in the segment up to `to`.
    fn is_marked(&self, segment: u64, to: u64) -> bool {
        let extent = self.covered();
        segment < extent.segment
            || segment == extent.segment && (to <= extent.offset || self.stopped_cleanly())
    }

    fn lost(&mut self, segment: u64, to: u64) {
        self.damaged_segments.push(segment);
        self.unproven(segment, to);
    }

    fn unproven(&mut self, segment: u64, to: u64) {
        if !self.is_marked(segment, to) {
            self.unproven_to = self.unproven_to.max(Some((segment, to)));
        }
    }

    /// Names the segments that are not there. Their numbers have no gaps, and the mark knows the last one.
    fn missing_segments(&mut self, numbers: &[u64]) {
        let after_last = numbers.last().copied().unwrap_or(0).max(self.covered().segment) + 1;
        let mut expected = 1;
        for number in numbers.iter().copied().chain([after_last]) {
            if number > expected {
                self.findings.push(Finding::MissingSegments { first: expected, last: number - 1 });
                self.unproven(number - 1, u64::MAX);
            }
            expected = number + 1;
        }
        let damaged = |finding: &Finding| {
            if let Finding::DamagedHeader { segment } = finding { Some(*segment) } else { None }
        };
        for segment in self.findings.iter().filter_map(damaged).collect::<Vec<_>>() {
            self.lost(segment, u64::MAX);
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
            match Sidecar::open(self.files.file(index_path(self.dir, number)), &end, self.mode, &self.salt) {
                Ok(opened) => {
                    self.ends.insert(number, end);
                    self.trimmable.push((number, end.final_len));
                    self.take_opened(opened);
                    return Ok(());
                }
                Err(error) => tracing::warn!(%error, segment = number, "building an index again"),
            }
        }
        let read = self.read(&found.segment)?;
        let limit = end.map_or(read.content.len() as u64, |end| end.final_len);
        let pieces = segment::walk(&read.content, limit, &found.header.salt, self.mode);
        let pieces = self.readable(number, &read, pieces);
        let indexed = index_pieces(number, &pieces, &self.salt);
        if let Some(end) = end
            && indexed.damage.is_empty()
            && read.error.is_none()
            && (indexed.end != end.final_len
                || end.checksum != UNKNOWN_CHECKSUM && indexed.running != end.checksum)
        {
            self.findings.push(Finding::WrongEnd { segment: number });
            self.lost(number, limit);
        }
        // Without a successor to say where the segment ends, nobody can tell whether an index is its own.
        let trusted = end.is_some() && read.error.is_none() && !self.damaged_segments.contains(&number);
        let end = SegmentEnd {
            number,
            final_len: limit,
            checksum: end.map_or(indexed.running, |end| end.checksum),
        };
        if trusted && indexed.damage.is_empty() {
            self.trimmable.push((number, limit));
        }
        self.take_indexed(number, indexed, &end, trusted);
        Ok(())
    }

    fn take_opened(&mut self, opened: Opened) {
        if opened.sidecar.is_stale() {
            self.stale.push((opened.sidecar.segment(), opened.sidecar.id()));
        }
        for (chain, run) in opened.runs {
            self.runs.entry(chain).or_default().push(SealedRun::File(run));
        }
        for (tenant_id, month, count) in opened.usage {
            *self.usage.entry((tenant_id, month)).or_default() += count;
        }
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.options.world.now_ms());
    }

    fn take_in_memory(&mut self, number: u64, index: SegmentIndex) {
        for (chain, run) in index.runs {
            self.runs.entry(chain).or_default().push(SealedRun::Memory(run));
        }
        for (key, count) in index.usage {
            *self.usage.entry(key).or_default() += count;
        }
        for key in index.keys {
            self.keys.insert(number, key);
        }
    }

    fn note_damage(&mut self, number: u64, indexed: &Indexed) {
        for (from, to) in &indexed.damage {
            self.findings.push(Finding::Damaged { segment: number, from: *from, to: *to });
            self.lost(number, *to);
        }
    }

    /// Takes a segment that was read. Its index is written, so that the next start need not read it; but never that of a damaged one, which must be found damaged again.
    fn take_indexed(&mut self, number: u64, indexed: Indexed, end: &SegmentEnd, trusted: bool) {
        self.note_damage(number, &indexed);
        self.ends.insert(number, *end);
        if !trusted || !indexed.damage.is_empty() {
            return self.take_in_memory(number, indexed.index);
        }
        match write_index(
            &*self.options.disk,
            &self.files,
            self.dir,
            &indexed.index,
            end,
            self.mode,
            &self.salt,
        ) {
            Ok(opened) => self.take_opened(opened),
            Err(error) => {
                tracing::warn!(%error, segment = number, "cannot write an index file; keeping it in memory");
                self.take_in_memory(number, indexed.index);
            }
        }
    }

    fn read(&mut self, segment: &Segment) -> io::Result<ReadInPart> {
        let read = disk::read_in_part(&*segment.file)?;
        if let Some(error) = &read.error {
            tracing::error!(%error, segment = segment.number, "a segment cannot be read whole");
            self.read_error.get_or_insert_with(|| io::Error::new(error.kind(), error.to_string()));
        }
        Ok(read)
    }

    /// The pieces that the disk gave whole, be they right or wrong. The others are noted as places that could not be read.
    fn readable<'p>(&mut self, number: u64, read: &ReadInPart, mut pieces: Vec<Piece<'p>>) -> Vec<Piece<'p>> {
        pieces.retain(|piece| {
            let (from, to) = (piece.start(), piece.end());
            let given = matches!(piece, Piece::Intact(_)) || !read.is_unreadable(from, to);
            if !given {
                self.unreadable.push((number, from, to));
            }
            given
        });
        pieces
    }

    /// The last segment: cuts what was never acknowledged, and moves a last group that is not known to be on disk into a new segment.
    fn last_segment(&mut self, last: Option<(u64, &Found)>, last_name: u64) -> Result<Active, RecoveryError> {
        let next_number = last_name.max(self.covered().segment) + 1;
        let Some((number, found)) = last else {
            if self.read_error.is_some() {
                let unreadable = Segment {
                    number: last_name,
                    salt: [0; 16],
                    file: self.files.file(segment_path(self.dir, last_name)),
                };
                return Ok(self.cannot_read(Arc::new(unreadable), 0));
            }
            self.check_length(0, next_number - 1);
            self.trim_zeros();
            return self.new_segment(next_number, None, &[], 0);
        };
        let read = self.read(&found.segment)?;
        let content = &read.content;
        let salt = &found.header.salt;
        let mut pieces = segment::walk(content, u64::MAX, salt, self.mode);
        if self.read_error.is_some() {
            let pieces = self.readable(number, &read, pieces);
            let indexed = index_pieces(number, &pieces, &self.salt);
            let end = SegmentEnd { number, final_len: content.len() as u64, checksum: indexed.running };
            self.take_indexed(number, indexed, &end, false);
            return Ok(self.cannot_read(Arc::clone(&found.segment), end.final_len));
        }
        // Of all of them, also those that are cut or moved below: they will not count any more, but they are left where they are.
        let written_to = pieces.iter().filter_map(header_of).map(|header| header.end()).max().unwrap_or(0);
        let covered = self.covered();
        if covered.segment == number {
            split_unreadable(&mut pieces, covered.offset, content);
        }
        if let Some(at) = self.torn_tail(number, &pieces) {
            self.findings.push(Finding::TornTail { segment: number, offset: pieces[at].start() });
            pieces.truncate(at);
        }
        let last_frame = pieces.iter().filter_map(header_of).next_back();
        let commit = last_frame.map_or(found.header.first_commit.saturating_sub(1), |frame| frame.commit);
        // The last group that the mark knows may be there and damaged, so that its number cannot be read.
        let reaches_mark = covered.segment == number && end_of(&pieces) >= covered.offset;
        let commit = if reaches_mark { commit.max(covered.commit) } else { commit };
        self.check_length(commit, number);
        if pieces.is_empty() && number + 1 == next_number {
            self.trimmable.push((number, end_of(&pieces)));
            self.trim_zeros();
            // Nothing was ever written to it: its place is taken, so that starting again and again leaves no trail.
            return match self.new_segment(number, found.header.before, &[], commit) {
                Err(RecoveryError::Io(error)) => {
                    Ok(self.cannot_begin(&error, Arc::clone(&found.segment), end_of(&[])))
                }
                result => result,
            };
        }
        // What the mark covers is known to be on disk. A group past it is only known to have been written.
        let unsure = commit > covered.commit;
        let of_group =
            |piece: &Piece<'_>| matches!(piece, Piece::Intact(frame) if frame.header.commit == commit);
        // Damage behind a group proves that the group was on disk: the mark speaks for the damage, or a later group does. So a group moves only from the very end.
        let moves = pieces
            .iter()
            .position(|piece| unsure && of_group(piece))
            .filter(|first| pieces[*first..].iter().all(of_group))
            .unwrap_or(pieces.len());
        let (stay, group) = pieces.split_at(moves);
        let indexed = index_pieces(number, stay, &self.salt);
        // The checksums of damaged frames are not known, and a restored file must not be held against those of the others.
        let checksum = if indexed.damage.is_empty() { indexed.running } else { UNKNOWN_CHECKSUM };
        let end = SegmentEnd { number, final_len: end_of(stay), checksum };
        self.take_indexed(number, indexed, &end, true);
        let frames: Vec<&Frame<'_>> = group
            .iter()
            .filter_map(|piece| if let Piece::Intact(frame) = piece { Some(frame) } else { None })
            .collect();
        let before = Predecessor { number, final_len: end.final_len, checksum: end.checksum };
        self.trimmable.push((number, written_to.max(end.final_len)));
        self.trim_zeros();
        match self.new_segment(next_number, Some(before), &frames, commit) {
            Err(RecoveryError::Io(error)) => {
                // Reading must go on. The group is shown from where it stands, and nothing is added to it.
                let indexed = index_pieces(number, group, &self.salt);
                self.note_damage(number, &indexed);
                self.take_in_memory(number, indexed.index);
                // An index that has to be built again is built of everything that is shown.
                let (final_len, checksum) =
                    (end_of(&pieces), index_pieces(number, &pieces, &self.salt).running);
                self.ends.insert(number, SegmentEnd { number, final_len, checksum });
                Ok(self.cannot_begin(&error, Arc::clone(&found.segment), final_len))
            }
            result => result,
        }
    }

    /// What can be read is shown, and nothing is written: not a segment, not a mark. If the disk gives everything at the next start, this one has left no trace.
    fn cannot_read(&mut self, segment: Arc<Segment>, end: u64) -> Active {
        let cause = self.read_error.as_ref().map_or(String::new(), io::Error::to_string);
        let cause = format!("the log cannot be read whole: {cause}");
        self.only_reads(Finding::ReadOnly { cause }, segment, end)
    }

    /// No new segment could be begun.
    fn cannot_begin(&mut self, error: &io::Error, segment: Arc<Segment>, end: u64) -> Active {
        let cause = error.to_string();
        let finding =
            if segment::is_no_room(error) { Finding::NoRoom { cause } } else { Finding::ReadOnly { cause } };
        self.only_reads(finding, segment, end)
    }

    fn only_reads(&mut self, finding: Finding, segment: Arc<Segment>, end: u64) -> Active {
        self.findings.push(finding);
        let plan = Plan { segment: segment.number, salt: segment.salt, end, capacity: 0, running: 0 };
        Active { segment, plan, commit: self.covered().commit, grows: false }
    }

    /// The first piece of a torn tail: what belongs to the last group and was not known to be durable. Everything else that is wrong is damage.
    ///
    /// A group is begun only after the sync of the one before, so any header of a later group, even of a frame that is itself torn, proves that what stands before it was on disk.
    fn torn_tail(&self, number: u64, pieces: &[Piece<'_>]) -> Option<usize> {
        let covered = self.covered();
        let last_commit = pieces.iter().filter_map(header_of).map(|header| header.commit).max().unwrap_or(0);
        pieces.iter().enumerate().position(|(at, piece)| {
            if self.is_marked(number, piece.start() + 1) {
                return false;
            }
            let next = || pieces[at + 1..].iter().find_map(header_of);
            let commit = match piece {
                Piece::Intact(_) => return false,
                Piece::Broken(frame) => frame.header.commit,
                Piece::Unreadable(from, _) => match next() {
                    // It may have begun in an earlier group, which was then on disk.
                    Some(next) if *from < next.group_start() => return false,
                    Some(next) => next.commit,
                    None => return true,
                },
            };
            commit == last_commit && commit > covered.commit
        })
    }

    fn check_length(&mut self, commit: u64, last: u64) {
        let marked = self.covered().commit;
        if commit < marked {
            self.findings.push(Finding::ShorterThanMark { commit, marked });
            if !self.stopped_cleanly() {
                // What came after the mark is lost too, and nothing tells whose it was.
                self.unproven_to = self.unproven_to.max(Some((last, u64::MAX)));
            }
        }
    }

    /// Gives back what was prepared for frames that never came: a crash leaves a whole segment of it. Before the next segment is begun, since on a full disk it is the room for that one.
    fn trim_zeros(&mut self) {
        let worth = TRIM_WORTH_BYTES.min(self.options.segment_bytes_first / 8);
        for (number, end) in std::mem::take(&mut self.trimmable) {
            // A place that is known to be damaged or unproven is left as it was found.
            if self.read_error.is_some() || self.damaged_segments.contains(&number) {
                continue;
            }
            match segment::trim(&*self.options.disk, &segment_path(self.dir, number), end, worth) {
                Ok(0) => {}
                Ok(bytes) => tracing::info!(segment = number, bytes, "gave back room that was not used"),
                Err(error) => {
                    tracing::warn!(%error, segment = number, "cannot give back room that was not used")
                }
            }
        }
    }

    /// Begins the segment that will be written to, with the last group in it, and makes both durable.
    fn new_segment(
        &mut self,
        number: u64,
        before: Option<Predecessor>,
        group: &[&Frame<'_>],
        commit: u64,
    ) -> Result<Active, RecoveryError> {
        let disk = &self.options.disk;
        let commit = commit.max(self.covered().commit);
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
        let wanted = self.options.segment_bytes_first.max(content.len() as u64 * 2);
        let mut room = self.options.room();
        room.least = room.least.max(content.len() as u64);
        let capacity = segment::prepare(&**disk, self.dir, wanted, room)?;
        let file = disk.open(&next_path(self.dir))?;
        file.write_all_at(&content, 0)?;
        file.sync()?;
        let path = segment_path(self.dir, number);
        disk.rename(&next_path(self.dir), &path)?;
        disk.sync_dir(self.dir)?;
        self.files.forget(&path);
        let pieces = segment::walk(&content, u64::MAX, &salt, self.mode);
        let indexed = index_pieces(number, &pieces, &self.salt);
        self.note_damage(number, &indexed);
        self.take_in_memory(number, indexed.index);
        let commit = if group.is_empty() { commit } else { commit + 1 };
        let plan = Plan { segment: number, salt, end: content.len() as u64, capacity, running };
        Ok(Active { segment: Arc::new(Segment { number, salt, file }), plan, commit, grows: true })
    }

    /// Puts the runs of each chain together, finds holes and heads.
    fn build_chains(
        &mut self,
        active: Option<u64>,
        segments: &BTreeMap<u64, Arc<Segment>>,
    ) -> Result<(), RecoveryError> {
        let mut runs = std::mem::take(&mut self.runs);
        match &self.marked {
            // Events are accepted only after the first mark, so there must be one.
            None if !runs.is_empty() => self.findings.push(Finding::NoMark),
            Some(marked) if marked.damaged => self.findings.push(Finding::MarkDamaged),
            _ => {}
        }
        let marked = self.marked.clone().unwrap_or_default();
        for chain in marked.heads.keys() {
            runs.entry(*chain).or_default();
        }
        let mut ids: Vec<ChainId> = runs.keys().copied().collect();
        ids.sort_unstable();
        let caches = Caches { tables: Cache::new(0), columns: Cache::new(0) };
        for id in ids {
            let (mut of_chain, doubled) = in_order(runs.remove(&id).unwrap_or_default());
            for log_id in doubled.into_iter().filter(|_| !id.is_system()) {
                let usage = self.usage.get_mut(&(id.tenant_id, Month::of(log_id.timestamp_ms())));
                *usage.expect("it was counted with its run") -= 1;
            }
            let recorded = marked.heads.get(&id).copied().unwrap_or(Head::EMPTY);
            let look = Look { chain: id, runs: &of_chain, segments, caches: &caches };
            let state = match ends_of(&of_chain, recorded).compare(&look, recorded) {
                Ok(state) => state,
                Err(error) => {
                    // What could not be compared is neither right nor wrong. The mark stays as it is, for the next start.
                    let cause = format!("an event cannot be held against the mark: {error}");
                    self.findings.push(Finding::ReadOnly { cause });
                    ends_of(&of_chain, recorded)
                }
            };
            // Asked of the disk only where it matters: a start must not look at every chain.
            let matters = self.unproven_to.is_some() || !self.unreadable.is_empty();
            let last_run = of_chain.last().filter(|_| matters);
            let last_place = last_run.map(|run| last_place(run, &caches)).transpose()?;
            let unproven = match (self.unproven_to, last_place) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(place), Some(last)) => last < place,
            };
            let unreadable = self.unreadable_stretches(&of_chain, last_place, &state.durable, &recorded);
            let end_unreadable = unreadable.last().is_some_and(|(_, last)| *last == u64::MAX);
            match state.fault {
                // The events may all be there.
                _ if end_unreadable => {}
                Some(Fault::Lost) => {
                    let (durable, recorded) = (state.durable.chain_seq, state.recorded.chain_seq);
                    self.findings.push(Finding::HeadLost { chain: id, durable, recorded });
                }
                Some(Fault::Impossible) => {
                    let chain_seq = state.durable.chain_seq;
                    self.findings.push(Finding::ImpossibleId { chain: id, chain_seq });
                }
                Some(Fault::Rewritten) => {
                    let chain_seq = state.recorded.chain_seq;
                    self.findings.push(Finding::Rewritten { chain: id, chain_seq });
                }
                None if unproven => self.findings.push(Finding::HeadUnproven { chain: id }),
                None => {}
            }
            let mut damaged = self.damaged_stretches(&of_chain);
            damaged.retain(|stretch| !unreadable.contains(stretch));
            self.chains.get_or_create(id).with(|chain| {
                chain.durable = state.durable;
                chain.recorded = state.recorded;
                chain.unproven = state.fault.is_some() || unproven;
                chain.damaged = Arc::new(damaged);
                chain.unreadable = Arc::new(unreadable);
                // The run of the segment that is written to next can grow. It is the last, and in memory.
                if let Some(SealedRun::Memory(run)) =
                    of_chain.pop_if(|run| Some(run.run().segment()) == active)
                {
                    chain.memory.push(run);
                }
                chain.sealed = Arc::new(of_chain);
            });
        }
        Ok(())
    }

    /// Holes between runs that lie in segments with damage: the records are there, but are not right.
    fn damaged_stretches(&self, runs: &[SealedRun]) -> Vec<(u64, u64)> {
        holes(runs, |between| self.damaged_segments.iter().any(|damaged| between.contains(damaged)))
    }

    /// Holes between runs where a place could not be read, and everything behind the last run if a later place may hold more of the chain.
    fn unreadable_stretches(
        &self,
        runs: &[SealedRun],
        last_place: Option<Place>,
        durable: &Head,
        recorded: &Head,
    ) -> Vec<(u64, u64)> {
        let mut stretches =
            holes(runs, |between| self.unreadable.iter().any(|(segment, ..)| between.contains(segment)));
        // The mark knows the head of every chain that has an event in what it covers.
        let ruled_out = |segment: u64, to: u64| {
            let whole = self.marked.as_ref().is_some_and(|marked| !marked.damaged);
            whole && self.is_marked(segment, to) && recorded.chain_seq <= durable.chain_seq
        };
        let behind = self.unreadable.iter().any(|(segment, _, to)| {
            last_place.is_none_or(|last| (*segment, *to) > last) && !ruled_out(*segment, *to)
        });
        if behind {
            stretches.push((runs.last().map_or(1, |run| run.run().end_seq()), u64::MAX));
        }
        stretches
    }
}

/// First and last seq of what is missing between runs, where the segments in between are of some kind.
fn holes(runs: &[SealedRun], between: impl Fn(RangeInclusive<u64>) -> bool) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let (mut next_seq, mut segment) = (1, 0);
    for run in runs.iter().map(SealedRun::run) {
        let first = run.first_seq();
        if first > next_seq && between(segment..=run.segment()) {
            holes.push((next_seq, first - 1));
        }
        next_seq = run.end_seq();
        segment = run.segment();
    }
    holes
}

/// Runs in the order of the log, each event once: where a group was moved and the segment that says so is gone, the later copy counts. The ids of the earlier ones come second.
fn in_order(mut runs: Vec<SealedRun>) -> (Vec<SealedRun>, Vec<Ulid>) {
    runs.sort_by_key(|run| (run.run().segment(), run.run().first_seq()));
    let mut ordered: Vec<SealedRun> = Vec::with_capacity(runs.len());
    let mut doubled = Vec::new();
    for run in runs {
        let first_seq = run.run().first_seq();
        while let Some(earlier) = ordered.pop_if(|earlier| earlier.run().first_seq() >= first_seq) {
            if let SealedRun::Memory(earlier) = earlier {
                doubled.extend(earlier.log_ids());
            }
        }
        if let Some(SealedRun::Memory(earlier)) = ordered.last_mut() {
            let kept = usize::try_from(first_seq - earlier.first_seq).unwrap_or(usize::MAX);
            doubled.extend(earlier.log_ids().skip(kept));
            earlier.truncate(first_seq);
        }
        ordered.push(run);
    }
    (ordered, doubled)
}

/// How a chain ends.
struct Ends {
    durable: Head,
    recorded: Head,
    /// Why nothing may be sealed on it.
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It has ended later, or otherwise.
    Lost,
    /// It goes on, with another event where one is on record.
    Rewritten,
    /// Nothing can be counted on from its last id.
    Impossible,
}

/// What is needed to look at single events of a chain.
struct Look<'a> {
    chain: ChainId,
    runs: &'a [SealedRun],
    segments: &'a BTreeMap<u64, Arc<Segment>>,
    caches: &'a Caches,
}

impl Look<'_> {
    /// Nothing if there is no such event or its record is damaged.
    fn event(&self, chain_seq: u64) -> io::Result<Option<StoredEvent>> {
        let mut runs = self.runs.iter().map(SealedRun::run);
        let Some(run) = runs.find(|run| (run.first_seq()..run.end_seq()).contains(&chain_seq)) else {
            return Ok(None);
        };
        let Some(segment) = self.segments.get(&run.segment()) else { return Ok(None) };
        let at = usize::try_from(chain_seq - run.first_seq()).unwrap_or(usize::MAX);
        let position = run.blocks(self.caches)?.block(at / BLOCK_EVENTS)?.position(at % BLOCK_EVENTS);
        let mut window = Window::single();
        let record = window.record(segment, position)?;
        Ok(record.and_then(|record| format::decode_record(record, &segment.salt, self.chain, chain_seq)))
    }
}

impl Ends {
    /// Holds the chain against its recorded head: whoever rewrites a log and adds to it leaves a chain that is longer than the mark says and fits together. Looks at one
    /// event of a chain that has grown since the mark, and at none of the others.
    ///
    /// A loss that was accepted is none: the acceptance of exactly this head is then the last event, since nothing is sealed on it before the mark knows it.
    fn compare(self, look: &Look<'_>, recorded: Head) -> io::Result<Ends> {
        if mutants::on(Mutant::MarkWithoutHash) {
            return Ok(self);
        }
        let rewritten = match self.fault {
            Some(_) => false,
            None if recorded.chain_seq == 0 || recorded.chain_seq >= self.durable.chain_seq => {
                return Ok(self);
            }
            None => {
                let stored = match look.event(recorded.chain_seq)? {
                    Some(event) => Some(event.sealed.hash),
                    // The one behind it names its hash.
                    None => look.event(recorded.chain_seq + 1)?.map(|event| event.sealed.prev_hash),
                };
                stored.is_some_and(|hash| hash != recorded.hash)
            }
        };
        if self.fault.is_none() && !rewritten {
            return Ok(self);
        }
        let last = look.event(self.durable.chain_seq)?;
        if last.and_then(|event| Loss::accepted_by(&event)).is_some_and(|loss| loss.is_of(&recorded)) {
            return Ok(Ends { recorded: self.durable, fault: None, ..self });
        }
        if rewritten {
            return Ok(Ends { recorded, fault: Some(Fault::Rewritten), ..self });
        }
        Ok(self)
    }
}

fn ends_of(runs: &[SealedRun], marked: Head) -> Ends {
    let (durable, last) = match runs.last() {
        None => (Head::EMPTY, Head::EMPTY),
        Some(SealedRun::File(run)) => {
            let head = Head { chain_seq: run.end_seq() - 1, log_id: run.last_log_id, hash: run.last_hash };
            (head, head)
        }
        Some(SealedRun::Memory(run)) => {
            (run.head, Head { chain_seq: run.end_seq() - 1, log_id: run.last_log_id(), hash: run.last_hash })
        }
    };
    if marked.chain_seq > durable.chain_seq
        || marked.chain_seq == durable.chain_seq
            && marked.hash != durable.hash
            && !mutants::on(Mutant::MarkWithoutHash)
    {
        return Ends {
            durable,
            recorded: if last.chain_seq > marked.chain_seq { last } else { marked },
            fault: Some(Fault::Lost),
        };
    }
    // Records behind the last intact one are there and damaged.
    let lost = last.chain_seq > durable.chain_seq;
    let impossible = durable.log_id.timestamp_ms() > TIMESTAMP_MS_MAX;
    let fault = impossible.then_some(Fault::Impossible).or(lost.then_some(Fault::Lost));
    Ends { durable, recorded: last, fault }
}

/// Where the last intact record of a run stands.
fn last_place(run: &SealedRun, caches: &Caches) -> io::Result<Place> {
    let position = match run {
        SealedRun::Memory(run) => run.position(run.head.chain_seq),
        SealedRun::File(run) => {
            let table = run.table(caches)?;
            let block = run.block(caches, &table, table.len() - 1)?;
            block.position(block.len() - 1)
        }
    };
    Ok((run.run().segment(), u64::from(position)))
}

fn end_of(pieces: &[Piece<'_>]) -> u64 {
    pieces.last().map_or(SEGMENT_HEADER_LEN as u64, Piece::end)
}

/// A group is known to end at `boundary`: what cannot be read before it and what cannot be read behind it are two things.
fn split_unreadable(pieces: &mut Vec<Piece<'_>>, boundary: u64, content: &[u8]) {
    let across = |piece: &Piece<'_>| matches!(piece, Piece::Unreadable(from, to) if *from < boundary && boundary < *to);
    let Some(at) = pieces.iter().position(across) else { return };
    let Piece::Unreadable(from, to) = pieces[at] else { return };
    pieces[at] = Piece::Unreadable(from, boundary);
    let behind = usize::try_from(boundary).unwrap_or(usize::MAX)..usize::try_from(to).unwrap_or(usize::MAX);
    let zeros = content.get(behind).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    // Zeros at the end are no piece.
    if !zeros || at + 1 < pieces.len() {
        pieces.insert(at + 1, Piece::Unreadable(boundary, to));
    }
}

/// Writes a frame again, at the end of `content`, as part of another commit.
fn copy_frame(frame: &Frame<'_>, commit: u64, salt: &Salt, content: &mut Vec<u8>, running: u32) -> u32 {
    let position = content.len() as u64;
    let group_back =
        u32::try_from(content.len() - SEGMENT_HEADER_LEN).expect("a group is far smaller than 4 GiB");
    let header = FrameHeader { position, group_back, commit, ..frame.header };
    let mut writer = FrameWriter::begin(content, salt, header);
    for record in frame.records() {
        writer.copy(&record);
    }
    writer.finish(frame.idempotency().as_ref(), running)
}

/// Writes a segment's index and opens it.
pub(super) fn write_index(
    disk: &dyn Disk,
    files: &Arc<OpenFiles>,
    dir: &Path,
    index: &SegmentIndex,
    end: &SegmentEnd,
    mode: Mode,
    salt: &IndexSalt,
) -> io::Result<Opened> {
    let path = index_path(dir, end.number);
    disk::replace(disk, &path, &index.encode(end, salt))?;
    files.forget(&path);
    Sidecar::open(files.file(path), end, mode, salt)
}
