//! Third step: the last segment. What was never acknowledged is cut, and a last group that is not known to be
//! on disk moves into a new segment.

use std::io;
use std::sync::Arc;

use super::finding::Finding;
use super::segments::Found;
use super::state::{Recovery, RecoveryError, UNKNOWN_CHECKSUM};
use crate::embedded::index::build::index_pieces;
use crate::embedded::index::sidecar::SegmentEnd;
use crate::embedded::log::format::{
    Frame, FrameHeader, FrameWriter, Predecessor, SEGMENT_HEADER_LEN, Salt, SegmentHeader,
};
use crate::embedded::log::plan::Plan;
use crate::embedded::log::read_only;
use crate::embedded::log::segment::{self, Piece, Segment, next_path, segment_path};

/// Fewer zeros than this at the end of a segment are not worth looking for.
const TRIM_WORTH_BYTES: u64 = 1 << 20;

/// Where the writer goes on.
pub(super) struct Active {
    pub(super) segment: Arc<Segment>,
    pub(super) plan: Plan,
    pub(super) commit: u64,
    /// Whether anything will be written.
    pub(super) grows: bool,
}

/// The header of a frame whose header is right, whatever the rest of it is like.
fn header_of(piece: &Piece<'_>) -> Option<FrameHeader> {
    match piece {
        Piece::Intact(frame) | Piece::Broken(frame) => Some(frame.header),
        Piece::Unreadable(..) => None,
    }
}

impl Recovery<'_> {
    /// The last segment: cuts what was never acknowledged, and moves a last group that is not known to be on
    /// disk into a new segment.
    pub(super) fn last_segment(
        &mut self,
        last: Option<(u64, &Found)>,
        last_name: u64,
    ) -> Result<Active, RecoveryError> {
        let next_number = last_name.max(self.covered().segment) + 1;
        let Some((number, found)) = last else {
            // Of one that is not there, or whose header cannot be read, nothing is ever asked.
            let unreadable = || {
                let file = self.files.file(segment_path(self.dir, last_name));
                Arc::new(Segment { number: last_name, salt: [0; 16], file })
            };
            if self.read_error.is_some() {
                let unreadable = unreadable();
                return Ok(self.cannot_read(unreadable, 0));
            }
            let unreadable = self.options.read_only.then(unreadable);
            self.check_length(0, next_number - 1);
            if let Some(unreadable) = unreadable {
                return Ok(self.only_reads(unreadable, 0));
            }
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
        // Of all of them, also those that are cut or moved below: they will not count any more, but they are
        // left where they are.
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
        // The last group that the high-water mark knows may be there and damaged, so that its number cannot
        // be read.
        let reaches_mark = covered.segment == number && end_of(&pieces) >= covered.offset;
        let commit = if reaches_mark { commit.max(covered.commit) } else { commit };
        self.check_length(commit, number);
        if pieces.is_empty() && number + 1 == next_number {
            self.trimmable.push((number, end_of(&pieces)));
            self.trim_zeros();
            // Nothing was ever written to it: its place is taken, so that starting again and again leaves no
            // trail.
            return match self.new_segment(number, found.header.before, &[], commit) {
                Err(RecoveryError::Io(error)) => {
                    Ok(self.cannot_begin(&error, Arc::clone(&found.segment), end_of(&[])))
                }
                result => result,
            };
        }
        // What the high-water mark covers is known to be on disk. A group past it is only known to have been
        // written.
        let unsure = commit > covered.commit;
        let of_group =
            |piece: &Piece<'_>| matches!(piece, Piece::Intact(frame) if frame.header.commit == commit);
        // Damage behind a group proves that the group was on disk: the high-water mark speaks for the damage,
        // or a later group does. So a group moves only from the very end.
        let moves = pieces
            .iter()
            .position(|piece| unsure && of_group(piece))
            .filter(|first| pieces[*first..].iter().all(of_group))
            .unwrap_or(pieces.len());
        let (stay, group) = pieces.split_at(moves);
        let indexed = index_pieces(number, stay, &self.salt);
        // The checksums of damaged frames are not known, and a restored file must not be held against those
        // of the others.
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

    /// What can be read is shown, and nothing is written: not a segment, not a high-water mark. If the disk
    /// gives everything at the next start, this one has left no trace.
    fn cannot_read(&mut self, segment: Arc<Segment>, end: u64) -> Active {
        let cause = self.read_error.as_ref().map_or(String::new(), io::Error::to_string);
        let cause = format!("cannot read the whole log: {cause}");
        self.findings.push(Finding::ReadOnly { cause });
        self.only_reads(segment, end)
    }

    /// No new segment could be begun. Where none was to be, that is no finding.
    fn cannot_begin(&mut self, error: &io::Error, segment: Arc<Segment>, end: u64) -> Active {
        let cause = error.to_string();
        if segment::is_no_room(error) {
            self.findings.push(Finding::NoRoom { cause });
        } else if !self.options.read_only {
            self.findings.push(Finding::ReadOnly { cause });
        }
        self.only_reads(segment, end)
    }

    fn only_reads(&self, segment: Arc<Segment>, end: u64) -> Active {
        let plan = Plan { segment: segment.number, salt: segment.salt, end, capacity: 0, running: 0 };
        Active { segment, plan, commit: self.covered().commit, grows: false }
    }

    /// The first piece of a torn tail: what belongs to the last group and was not known to be durable.
    /// Everything else that is wrong is damage.
    ///
    /// A group is begun only after the sync of the one before, so any header of a later group, even of a
    /// frame that is itself torn, proves that what stands before it was on disk.
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
                // What came after the high-water mark is lost too, and nothing tells whose it was.
                self.unproven_to = self.unproven_to.max(Some((last, u64::MAX)));
            }
        }
    }

    /// Gives back what was prepared for frames that never came: a crash leaves a whole segment of it. Before
    /// the next segment is begun, since on a full disk it is the room for that one.
    fn trim_zeros(&mut self) {
        let worth = TRIM_WORTH_BYTES.min(self.options.segment_bytes_first / 8);
        for (number, end) in std::mem::take(&mut self.trimmable) {
            // A place that is known to be damaged or unproven is left as it was found, and so is a log that
            // is only looked at.
            if self.options.read_only || self.read_error.is_some() || self.damaged_segments.contains(&number)
            {
                continue;
            }
            match segment::trim(&*self.options.disk, &segment_path(self.dir, number), end, worth) {
                Ok(0) => {}
                Ok(bytes) => tracing::info!(segment = number, bytes, "released unused space"),
                Err(error) => {
                    tracing::warn!(%error, segment = number, "cannot release unused space")
                }
            }
        }
    }

    /// Begins the segment that will be written to, with the last group in it, and makes both durable. Fails
    /// at once where nothing may be written: the log is then shown as it stands.
    fn new_segment(
        &mut self,
        number: u64,
        before: Option<Predecessor>,
        group: &[&Frame<'_>],
        commit: u64,
    ) -> Result<Active, RecoveryError> {
        if self.options.read_only {
            return Err(read_only::refused().into());
        }
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
}

fn end_of(pieces: &[Piece<'_>]) -> u64 {
    pieces.last().map_or(SEGMENT_HEADER_LEN as u64, Piece::end)
}

/// A group is known to end at `boundary`: what cannot be read before it and what cannot be read behind it are
/// two things.
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
