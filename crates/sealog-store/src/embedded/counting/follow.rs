//! Counting behind the log: the segment that is written to, in pieces; then the ones before it that have no
//! counts.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::id::ChainId;

use super::file;
use super::state::{ChainCounts, Place, Progress, SegmentCounts, Stretches, count_frame};
use crate::counts::noted::Noted;
use crate::embedded::contents::Contents;
use crate::embedded::log::disk;
use crate::embedded::log::format::{Frame, FrameHeader};
use crate::embedded::log::segment::{self, Piece, counts_path};
use crate::sync::lock;

/// Read and counted at once, while whoever asks for counts waits.
const PIECE: usize = 1 << 20;
/// What is counted at a time: by the thread before it writes what it has, and by a question before it is
/// answered. The thread is behind by what is written in a second, which is less.
const CATCH_UP_BYTES: u64 = 64 << 20;
/// Nobody waits for counts of old segments.
const NICENESS: i32 = 10;
/// How long counts that could not be written stay in memory before that is tried again.
const RETRY_TICKS: u32 = 60;

impl Contents {
    /// The thread that counts. `pause` waits for so long, or until the end is near: then true.
    pub(crate) fn count(&self, pause: impl Fn(Duration) -> bool) {
        let _ = rustix::process::setpriority_process(None, NICENESS);
        // An earlier run may have panicked in the middle of a piece.
        lock(&self.counting.progress).begin_anew();
        loop {
            // In pieces of about a segment, so that what was counted is written and does not pile up.
            let is_at_end = self.count_new(CATCH_UP_BYTES);
            self.write_all_counts();
            let begun = Instant::now();
            let time = if !is_at_end {
                Duration::ZERO
            } else if self.count_old() {
                // Behind an old segment as long a pause as it took, so that at most half of a disk's time
                // goes into them.
                begun.elapsed()
            } else {
                self.options.tick
            };
            if pause(time) {
                // So that the next start does not have to read these segments.
                self.count_new(CATCH_UP_BYTES);
                self.write_all_counts();
                return;
            }
        }
    }

    /// Counts what has become durable, before a question about it is answered.
    pub(super) fn catch_up(&self) {
        self.count_new(CATCH_UP_BYTES);
    }

    /// Counts a group that has just become durable from what was noted of it, if counting has come to where
    /// it begins and nobody is at it: an append waits for nothing here. Otherwise it is read from the file
    /// later, like all that was written before a start.
    pub(crate) fn count_group(&self, segment: u64, written: Range<u64>, frames: &[(ChainId, Noted)]) {
        let Ok(mut progress) = self.counting.progress.try_lock() else { return };
        let is_counted = |number| self.end_of(number).is_some_and(|end| end.final_len == progress.position);
        if progress.segment + 1 == segment && is_counted(progress.segment) {
            progress.close();
        }
        if (progress.segment, progress.position) != (segment, written.start) {
            return;
        }
        for (chain, noted) in frames {
            let counts = progress.counts.entry(*chain).or_default();
            counts.events += noted.count(&mut counts.days);
        }
        progress.position = written.end;
    }

    /// Counts up to the durable end, at most about so many bytes; whether it has come to where it can go.
    fn count_new(&self, bytes_max: u64) -> bool {
        let mut left = bytes_max;
        while left > 0 {
            let mut progress = lock(&self.counting.progress);
            let before = progress.position;
            match self.count_piece(&mut progress) {
                Ok(true) => left = left.saturating_sub(progress.position.saturating_sub(before)),
                Ok(false) => return true,
                Err(error) => {
                    tracing::debug!(%error, log = self.mode.as_str(), "cannot read events to count; retrying");
                    return true;
                }
            }
        }
        false
    }

    /// Counts the next piece of the segment that is followed, or goes to the next one; false at the end.
    fn count_piece(&self, progress: &mut Progress) -> io::Result<bool> {
        let (plan, _) = self.durable();
        let end = if progress.segment == plan.segment {
            plan.end
        } else {
            // One that is not there was never begun.
            self.end_of(progress.segment).map_or(0, |end| end.final_len)
        };
        if progress.position >= end {
            if progress.segment >= plan.segment {
                return Ok(false);
            }
            progress.close();
            return Ok(true);
        }
        let Some(segment) = self.segment(progress.segment) else {
            progress.broken = true;
            progress.position = end;
            return Ok(true);
        };
        let Progress { position, counts, buffer, .. } = progress;
        let length = usize::try_from(end - *position).unwrap_or(usize::MAX);
        segment.read_into(buffer, *position, length.min(PIECE))?;
        if let Some(header) = FrameHeader::decode(buffer, *position, &segment.salt, self.mode)
            && header.length as usize > buffer.len()
        {
            segment.read_into(buffer, *position, length.min(header.length as usize))?;
        }
        let mut at = 0;
        while let Some(frame) = Frame::decode(&buffer[at..], *position + at as u64, &segment.salt, self.mode)
        {
            count_frame(counts, &frame, |_| true);
            at += frame.header.length as usize;
        }
        if at == 0 {
            // Durable and not readable. When the segment is full it is looked at as a whole.
            progress.broken = true;
            progress.position = end;
        } else {
            *position += at as u64;
        }
        Ok(true)
    }

    /// Writes the counts of segments that were followed to their end. What cannot be written is tried again
    /// later.
    fn write_all_counts(&self) {
        let unwritten = |place: &Place| match place {
            Place::Unwritten(counts) => Some(Arc::clone(counts)),
            _ => None,
        };
        let due: Vec<_> = {
            let progress = lock(&self.counting.progress);
            if progress.write_after.is_some_and(|after| Instant::now() < after) {
                return;
            }
            progress.places.iter().filter_map(|(number, place)| Some((*number, unwritten(place)?))).collect()
        };
        let mut failed = false;
        for (number, counts) in due {
            let place = self.write_counts(number, counts);
            failed |= matches!(place, Place::Unwritten(_));
            lock(&self.counting.progress).places.insert(number, place);
        }
        if !failed {
            lock(&self.counting.progress).write_after = None;
        }
    }

    /// Finds or makes the counts of one segment that was full before this start, or whose counts are damaged,
    /// the newest first; false when there is none.
    fn count_old(&self) -> bool {
        let (number, known) = {
            let mut progress = lock(&self.counting.progress);
            let Progress { segment, places, old, .. } = &mut *progress;
            if !old.is_begun() {
                let is_due = |number: &u64| {
                    number < segment && matches!(places.get(number), None | Some(Place::Damaged))
                };
                old.begin(self.segment_numbers().into_iter().filter(is_due));
            }
            let Some(number) = old.next() else { return false };
            if self.end_of(number).is_none() {
                // Not there, and nothing to be counted in it.
                old.done(number);
                return true;
            }
            (number, places.get(&number).cloned())
        };
        let place = match known {
            None if self.has_counts(number) => Place::File,
            // It was found damaged twice, and is made already.
            Some(known) if !matches!(known, Place::Damaged) => known,
            // They would pile up in memory. A question says that they are missing.
            _ if self.check_room_for(0).is_err() => return false,
            _ => self.make_counts(number),
        };
        let mut progress = lock(&self.counting.progress);
        progress.places.insert(number, place);
        progress.old.done(number);
        true
    }

    /// Whether an earlier start has left counts of a segment. What is in them is checked when it is read.
    fn has_counts(&self, number: u64) -> bool {
        let file = self.files.file(counts_path(&self.dir, number));
        self.end_of(number).is_some_and(|end| file::check(&*file, &end).is_ok())
    }

    fn make_counts(&self, number: u64) -> Place {
        match self.count_segment(number, |_, _| true) {
            Ok((counts, true)) => self.write_counts(number, Arc::new(counts)),
            Ok((counts, false)) => Place::Kept(Arc::new(counts)),
            Err(error) => {
                tracing::warn!(%error, segment = number, "cannot count the events of a segment; retrying at the next start");
                Place::Unreadable
            }
        }
    }

    fn write_counts(&self, number: u64, counts: Arc<SegmentCounts>) -> Place {
        let Some(end) = self.end_of(number) else { return Place::Kept(counts) };
        let path = counts_path(&self.dir, number);
        let bytes = file::encode(&end, &counts);
        let written =
            self.check_room_for(bytes.len()).and_then(|()| disk::replace(&*self.disk, &path, &bytes));
        self.files.forget(&path);
        match written {
            Ok(()) => Place::File,
            Err(error) => {
                let after = Instant::now() + self.options.tick * RETRY_TICKS;
                if lock(&self.counting.progress).write_after.replace(after).is_none() {
                    tracing::warn!(%error, segment = number, "cannot write counts; keeping them in memory and retrying");
                }
                Place::Unwritten(counts)
            }
        }
    }

    /// Counts a full segment from its file, as far as it can be read; whether that is all of it.
    fn count_segment(
        &self,
        number: u64,
        wanted: impl Fn(ChainId, u64) -> bool,
    ) -> io::Result<(SegmentCounts, bool)> {
        let (Some(segment), Some(end)) = (self.segment(number), self.end_of(number)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let content = disk::read_all(&*segment.file)?;
        let mut counts = SegmentCounts::default();
        let mut whole = true;
        for piece in segment::walk(&content, end.final_len, &segment.salt, self.mode) {
            whole &= matches!(piece, Piece::Intact(_));
            if let Piece::Intact(frame) | Piece::Broken(frame) = piece {
                count_frame(&mut counts, &frame, |seq| wanted(frame.header.chain, seq));
            }
        }
        Ok((counts, whole))
    }

    /// Counts some stretches of a chain in a full segment.
    pub(super) fn count_stretches(
        &self,
        number: u64,
        chain: ChainId,
        stretches: &Stretches,
    ) -> io::Result<ChainCounts> {
        let wanted = |of: ChainId, seq: u64| {
            of == chain && stretches.iter().any(|(first, end)| (*first..*end).contains(&seq))
        };
        let (mut counts, _) = self.count_segment(number, wanted)?;
        Ok(counts.remove(&chain).unwrap_or_default())
    }
}
