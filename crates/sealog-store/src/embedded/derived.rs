//! Index and counts of a full segment, compared with the segment: [`crate::derived`] has the reason.
//!
//! One segment at a time: the segment, its index and its counts are in memory, and nothing else. The segment
//! that is written to has no derived files; what memory knows of it was made by this process.

use std::io;
use std::sync::Arc;

use sealog_core::id::Mode;
use tokio::sync::oneshot;

use super::contents::Contents;
use super::counting::file;
use super::counting::state::{SegmentCounts, count_frame};
use super::index::build::{self, Indexed};
use super::index::compare::{self, Compared};
use super::index::sidecar::{self, SegmentEnd};
use super::log::disk::{self, DiskFile};
use super::log::segment::{self, Piece, counts_path, index_path};
use super::open_log::Log;
use super::recovery::state::UNKNOWN_CHECKSUM;
use crate::bytes::Take;
use crate::derived::DerivedStep;
use crate::error::StoreError;
use crate::sync::lock;

/// Nobody waits for this, as for counts of old segments.
const NICENESS: i32 = 10;

/// The log and the last segment that was compared.
#[derive(Clone, Copy)]
struct Position {
    mode: Mode,
    segment: u64,
}

impl Position {
    const START: Position = Position { mode: Mode::Live, segment: 0 };

    fn encode(self) -> Vec<u8> {
        let mode = u8::from(self.mode == Mode::Test);
        [&[mode][..], &self.segment.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Position> {
        let mut take = Take(bytes);
        let mode = match take.u8()? {
            0 => Mode::Live,
            1 => Mode::Test,
            _ => return None,
        };
        Some(Position { mode, segment: take.u64()? })
    }
}

/// The next full segment, of the live log first, on a thread of its own: a place in the pool would be taken
/// for as long as a segment takes, and at the pool's priority.
pub(super) fn step(
    live: &Arc<Log>,
    test: &Arc<Log>,
    position: &[u8],
    heal: bool,
) -> Result<oneshot::Receiver<DerivedStep>, StoreError> {
    let (answer, step) = oneshot::channel();
    let at = Position::decode(position).unwrap_or(Position::START);
    let next = |log: &Arc<Log>, after: u64| Some((Arc::clone(log), log.contents.next_full(after)?));
    let found = match at.mode {
        Mode::Live => next(live, at.segment).or_else(|| next(test, 0)),
        Mode::Test => next(test, at.segment),
    };
    let Some((log, number)) = found else {
        let _ = answer.send(DerivedStep::default());
        return Ok(step);
    };
    let thread = std::thread::Builder::new().name("sealog-derived".into());
    let compare = move || {
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let contents = &log.contents;
        let mode = contents.mode;
        let (faults, events) = contents.check_derived(number, heal && !contents.options.read_only);
        let faults = faults.into_iter().map(|fault| format!("{} log: {fault}", mode.as_str())).collect();
        let next = Some(Position { mode, segment: number }.encode());
        let _ = answer.send(DerivedStep { next, faults, events });
    };
    thread.spawn(compare).map_err(|error| StoreError::Read(error.to_string()))?;
    Ok(step)
}

impl Contents {
    /// The first segment behind this one that is not written to any more.
    fn next_full(&self, after: u64) -> Option<u64> {
        let numbers = self.segment_numbers();
        numbers.into_iter().find(|number| *number > after && self.end_of(*number).is_some())
    }

    /// What does not match of what is derived from a full segment, and how many events it has.
    fn check_derived(&self, number: u64, heal: bool) -> (Vec<String>, u64) {
        let (mut faults, mut events) = (Vec::new(), 0);
        if let Err(error) = self.compare_segment(number, heal, &mut faults, &mut events) {
            self.read_failures.note(&error, self.mode, false);
            faults.push(format!("cannot compare the derived data of segment {number}: {error}"));
        }
        // Retention may have dropped it meanwhile, and its files with it.
        if number <= self.dropped_through() {
            faults.clear();
        }
        (faults, events)
    }

    fn compare_segment(
        &self,
        number: u64,
        heal: bool,
        faults: &mut Vec<String>,
        events: &mut u64,
    ) -> io::Result<()> {
        // Damage was named when it was found, and what is derived of it is in memory alone.
        if lock(&self.damaged_segments).contains(&number) {
            return Ok(());
        }
        let Some(end) = self.end_of(number) else { return Ok(()) };
        let Some((indexed, counts)) = self.derive(number, &end)? else { return Ok(()) };
        *events = indexed.index.runs.iter().map(|(_, run)| run.count() as u64).sum();
        if let Some((from, to)) = indexed.damage.first() {
            faults.push(format!("segment {number} is damaged from byte {from} to {to}"));
            // From now on its index is in memory, and says what is damaged.
            return if heal { self.rebuild_index(number, sidecar::next_id()) } else { Ok(()) };
        }
        if indexed.end != end.final_len || ![UNKNOWN_CHECKSUM, indexed.running].contains(&end.checksum) {
            faults.push(format!("the end of segment {number} does not match the next segment"));
        }
        if let Some(file) = self.open_derived(&index_path(&self.dir, number))? {
            match compare::compare(&*file, &indexed.index, &end, &self.salt)? {
                Compared::Same => {}
                Compared::Stale if heal => {
                    if let Err(error) = self.renew_index(number, sidecar::next_id()) {
                        faults.push(format!("the index of segment {number} was made with another salt and cannot be rebuilt: {error}"));
                    }
                }
                Compared::Stale => faults.push(format!("the index of segment {number} was made with another salt and was not compared; the next start of the server rebuilds it")),
                Compared::Other(what) => {
                    let rebuilt = heal.then(|| self.rebuild_index(number, sidecar::next_id()));
                    faults.push(format!(
                        "the index of segment {number} does not match its events: {}{}",
                        what.join(", "),
                        outcome(rebuilt)
                    ));
                }
            }
        }
        if let Some(file) = self.open_derived(&counts_path(&self.dir, number))?
            && !file::agrees(&*file, &end, &counts)?
        {
            // The thread that counts makes them again.
            let healed = heal.then(|| {
                lock(&self.counting.progress).damaged(number);
                Ok(())
            });
            faults.push(format!("the counts of segment {number} do not match its events{}", outcome(healed)));
        }
        Ok(())
    }

    /// Index and counts as the segment makes them; nothing for a segment that is not there.
    fn derive(&self, number: u64, end: &SegmentEnd) -> io::Result<Option<(Indexed, SegmentCounts)>> {
        let Some(segment) = self.segment(number) else { return Ok(None) };
        let content = disk::read_all(&*segment.file)?;
        let pieces = segment::walk(&content, end.final_len, &segment.salt, self.mode);
        let mut counts = SegmentCounts::default();
        for piece in &pieces {
            if let Piece::Intact(frame) = piece {
                count_frame(&mut counts, frame, |_| true);
            }
        }
        Ok(Some((build::index_pieces(number, &pieces, &self.salt), counts)))
    }

    /// The file as it is on the disk now, whatever is open. Nothing where there is none: then it is in
    /// memory, or is yet to be made.
    fn open_derived(&self, path: &std::path::Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        match self.disk.open_to_read(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn outcome(healed: Option<io::Result<()>>) -> String {
    match healed {
        None => String::new(),
        Some(Ok(())) => "; rebuilt from the segment".into(),
        Some(Err(error)) => format!("; cannot be rebuilt: {error}"),
    }
}
