//! Commit and roll: a group becomes durable with one write and one sync, in the active segment or at the
//! beginning of the next one.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::group::{Complete, NextSegment};
use crate::embedded::contents::Contents;
use crate::embedded::index::sidecar::SegmentEnd;
use crate::embedded::log::disk::Disk;
use crate::embedded::log::format::{Predecessor, SegmentHeader};
use crate::embedded::log::segment::{Preparer, Segment, next_path, segment_path};
use crate::embedded::mutants::{self, Mutant};
use crate::embedded::upkeep::Upkeep;
use crate::stats::{Histogram, HistogramView};
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Committer {
    contents: Arc<Contents>,
    upkeep: Arc<Upkeep>,
    /// Held while a group is written and synced.
    active: Mutex<Arc<Segment>>,
    preparer: Preparer,
    sync_time: Histogram,
}

/// Why a group did not become durable.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A write or a sync failed, so that nothing is known of what is on the disk.
    Unknown(io::Error),
    /// There is no next segment, and not a byte was written.
    NoRoom(String),
}

impl Committer {
    pub(crate) fn new(contents: Arc<Contents>, upkeep: Arc<Upkeep>, active: Arc<Segment>) -> Committer {
        let preparer =
            Preparer::new(Arc::clone(&contents.disk), contents.dir.clone(), contents.options.room());
        Committer {
            contents,
            upkeep,
            active: Mutex::new(active),
            preparer,
            sync_time: Histogram::durations(),
        }
    }

    /// Writes and syncs a group.
    pub(crate) fn commit(&self, group: &Complete) -> Result<(), Failure> {
        let mut active = lock(&self.active);
        if let Some(header) = &group.begins {
            *active = self.roll(header, group.after.capacity)?;
        }
        let begun = Instant::now();
        let written = active.file.write_all_at(&group.bytes, group.start);
        let synced = if mutants::on(Mutant::AckBeforeSync) {
            written
        } else {
            written.and_then(|()| active.file.sync())
        };
        self.sync_time.observe_duration(begun.elapsed());
        synced.map_err(Failure::Unknown)
    }

    /// Begins the next segment in the file that was preallocated for it. What was sealed for it counts on
    /// `planned` bytes.
    fn roll(&self, header: &SegmentHeader, planned: u64) -> Result<Arc<Segment>, Failure> {
        let capacity = self.preparer.take().map_err(Failure::NoRoom)?;
        if capacity < planned {
            // The disk has filled up while it was prepared. What comes next is planned for the room there is.
            self.preparer.put_back(capacity);
            return Err(Failure::NoRoom("the disk has space for a smaller segment only".into()));
        }
        let (disk, dir) = (&self.contents.disk, &self.contents.dir);
        let path = segment_path(dir, header.number);
        let file = match is_free(&**disk, &path).and_then(|()| disk.open(&next_path(dir))) {
            Ok(file) => file,
            Err(error) => {
                // Nothing was written, so nothing is unknown: a file stands in the way, which somebody can
                // move, or the process is out of file descriptors, and will have some again.
                self.preparer.put_back(capacity);
                return Err(Failure::NoRoom(error.to_string()));
            }
        };
        let begin = move || {
            file.write_all_at(&header.encode(), 0)?;
            file.sync()?;
            // Only a segment with its header on disk gets a segment's name.
            disk.rename(&next_path(dir), &path)?;
            disk.sync_dir(dir)?;
            Ok(Arc::new(Segment { number: header.number, salt: header.salt, file }))
        };
        let segment = begin().map_err(Failure::Unknown)?;
        self.contents.add_segment(&segment);
        if let Some(before) = header.before {
            let end =
                SegmentEnd { number: before.number, final_len: before.final_len, checksum: before.checksum };
            self.contents.close_segment(end);
            self.upkeep.note_full(end);
        }
        self.preparer.want(self.next_capacity(capacity));
        Ok(segment)
    }

    fn next_capacity(&self, capacity: u64) -> u64 {
        let options = &self.contents.options;
        (capacity * 2).min(options.segment_bytes_max).max(options.segment_bytes_first)
    }

    /// Asks for the segment after the active one.
    pub(crate) fn begin(&self) {
        let (plan, _) = self.contents.durable();
        self.preparer.want(self.next_capacity(plan.capacity));
    }

    /// The thread that preallocates segments. `on_progress` is told of each step.
    pub(crate) fn prepare(&self, on_progress: impl Fn()) {
        self.preparer.run(self.contents.options.tick, on_progress);
    }

    /// How full the active segment is by now.
    pub(crate) fn note_filled(&self, end: u64, capacity: u64) {
        self.preparer.note_filled(end, capacity);
    }

    /// Whether a segment is ready for the next roll.
    pub(crate) fn has_next(&self) -> bool {
        self.preparer.is_ready()
    }

    /// Nobody is to wait for a segment any more.
    pub(crate) fn stop(&self) {
        self.preparer.stop();
    }

    pub(crate) fn sync_time(&self) -> HistogramView {
        self.sync_time.view()
    }

    /// Looks whether the segment that is written to still has a name.
    pub(crate) fn check_active_file(&self) -> Result<(), String> {
        // Whoever holds it is writing; there will be another look.
        let Ok(active) = self.active.try_lock() else { return Ok(()) };
        if active.file.is_linked().unwrap_or(true) {
            return Ok(());
        }
        let path = segment_path(&self.contents.dir, active.number);
        Err(format!("{} was deleted during a write", path.display()))
    }

    /// Gives back the zeros behind the last frame, and the next segment: a log that is stopped takes only
    /// what it holds, and a start prepares its own.
    pub(crate) fn trim(&self) {
        let (plan, _) = self.contents.durable();
        let active = lock(&self.active);
        let trimmed = active.file.set_len(plan.end).and_then(|()| active.file.sync());
        if let Err(error) = trimmed {
            tracing::warn!(%error, "cannot trim the last segment");
        }
        drop(active);
        if let Err(error) = self.contents.disk.remove(&next_path(&self.contents.dir))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove the segment that was prepared");
        }
    }
}

impl NextSegment for Committer {
    fn keeps_up(&self) -> bool {
        self.preparer.keeps_up()
    }

    fn capacity(&self, active: u64) -> u64 {
        self.preparer.promised().unwrap_or_else(|| self.next_capacity(active))
    }

    fn header(&self, before: Predecessor, first_commit: u64) -> SegmentHeader {
        let mut salt = [0; 16];
        self.contents.world.fill_random(&mut salt);
        SegmentHeader {
            mode: self.contents.mode,
            recovered: false,
            number: before.number + 1,
            salt,
            first_commit,
            created_ms: self.contents.world.now_ms(),
            before: Some(before),
        }
    }
}

/// A rename takes the place of whatever has the name, and nothing that is in the directory is ever
/// overwritten: a file that a start has left alone, because its number was far ahead, may be somebody's.
/// Numbers have no gaps, so none is passed over either.
fn is_free(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.open_to_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "{} does not belong to this log and has the name of its next segment; move it out of the directory",
                path.display()
            ),
        )),
    }
}
