//! Segments as files: their names, how the next one is prepared, and a walk over everything in one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use sealog_core::id::Mode;

use super::disk::{Disk, DiskFile};
use super::format::{FRAME_MAGIC, Frame, FrameHeader, SEGMENT_HEADER_LEN, Salt};
use crate::sync::{lock, wait, wait_for};

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

pub(crate) fn index_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.idx"))
}

pub(crate) fn counts_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.cnt"))
}

pub(crate) fn next_path(dir: &Path) -> PathBuf {
    dir.join("next.seg")
}

/// The number in a segment's file name.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    ((8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// A segment that can be read.
#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u64,
    pub salt: Salt,
    pub file: Box<dyn DiskFile>,
}

impl Segment {
    /// As the file does it. An error says of which segment it is.
    pub(crate) fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let of_segment =
            |error: io::Error| io::Error::new(error.kind(), Unreadable { number: self.number, error });
        self.file.read_at(into, position).map_err(of_segment)
    }

    /// As many bytes as there are from here on, `length` at most. A buffer that was filled last time is used
    /// again; zeros for another one come from the allocator, which has them at hand.
    pub(crate) fn read_into(&self, buffer: &mut Vec<u8>, position: u64, length: usize) -> io::Result<()> {
        buffer.truncate(length);
        if buffer.len() < length {
            *buffer = vec![0; length];
        }
        let filled = self.read_at(buffer, position)?;
        buffer.truncate(filled);
        Ok(())
    }
}

/// A read of a segment that the disk did not answer.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub number: u64,
    error: io::Error,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "segment {} cannot be read: {}", self.number, self.error)
    }
}

impl std::error::Error for Unreadable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Part of a segment's content.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// All of it is right.
    Intact(Frame<'a>),
    /// Its header is right, something in it is not.
    Broken(Frame<'a>),
    /// No frame can be read here; from, to.
    Unreadable(u64, u64),
}

impl Piece<'_> {
    pub(crate) fn start(&self) -> u64 {
        match self {
            Piece::Intact(frame) | Piece::Broken(frame) => frame.header.position,
            Piece::Unreadable(from, _) => *from,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        match self {
            Piece::Intact(frame) | Piece::Broken(frame) => frame.header.end(),
            Piece::Unreadable(_, to) => *to,
        }
    }
}

/// Everything from the header to `end`, in order. Zeros at the end are no piece.
pub(crate) fn walk<'a>(content: &'a [u8], end: u64, salt: &'a Salt, mode: Mode) -> Vec<Piece<'a>> {
    walk_from(content, SEGMENT_HEADER_LEN as u64, end, salt, mode)
}

/// The same from an offset where a frame ends.
pub(crate) fn walk_from<'a>(
    content: &'a [u8],
    from: u64,
    end: u64,
    salt: &'a Salt,
    mode: Mode,
) -> Vec<Piece<'a>> {
    let end = usize::try_from(end).unwrap_or(usize::MAX).min(content.len());
    let content = &content[..end];
    let mut pieces = Vec::new();
    let mut at = usize::try_from(from).unwrap_or(usize::MAX).max(SEGMENT_HEADER_LEN);
    while at < content.len() {
        if let Some(frame) = Frame::decode(&content[at..], at as u64, salt, mode) {
            at += frame.header.length as usize;
            pieces.push(if frame.intact() { Piece::Intact(frame) } else { Piece::Broken(frame) });
            continue;
        }
        // Room for frames that never came: mostly, what is left of the last segment.
        if is_zero(&content[at..]) {
            break;
        }
        let next = find_frame(content, at + 1, salt, mode);
        let until = next.unwrap_or(content.len());
        pieces.push(Piece::Unreadable(at as u64, until as u64));
        at = until;
    }
    pieces
}

/// Whether there is nothing but zeros. Compares pieces, not bytes: a segment has room for megabytes of them.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|piece| *piece == ZEROS[..piece.len()])
}

/// The next place where a frame's header is right. A frame names its own position, so a client cannot put one
/// into a payload that would be found here.
fn find_frame(content: &[u8], from: usize, salt: &Salt, mode: Mode) -> Option<usize> {
    let mut at = from;
    loop {
        at += content.get(at..)?.iter().position(|byte| *byte == FRAME_MAGIC[0])?;
        if FrameHeader::decode(&content[at..], at as u64, salt, mode).is_some() {
            return Some(at);
        }
        at += 1;
    }
}

/// How large a segment may be on a disk that is almost full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes of the disk that no segment takes: control data, high-water marks and indexes have to be written
    /// when no event can be.
    pub reserve: u64,
    /// A smaller segment than this is not worth its file.
    pub least: u64,
}

impl Room {
    /// What of `wanted` may be taken where `free` bytes are left. Half of what there is, so that the other
    /// log has some too, but not less than the least.
    fn size(&self, wanted: u64, free: u64) -> Option<u64> {
        let room = free.saturating_sub(self.reserve);
        let least = self.least.min(wanted);
        let size = match wanted.min((room / 2).max(least)) {
            size if size < wanted && size > least => (size - size % PIECE as u64).max(least),
            size => size,
        };
        (size <= room).then_some(size)
    }

    /// Whether a segment can be made, as far as the disk tells.
    pub(crate) fn is_there(&self, disk: &dyn Disk, dir: &Path) -> bool {
        disk.free_bytes(dir).is_ok_and(|free| self.size(self.least, free).is_some())
    }
}

/// The kernel keeps what was written at once in one piece of its cache, and a sync looks at the whole piece.
/// Larger ones make a small sync dearer, smaller ones a large one.
const PIECE: usize = 64 << 10;

/// Zeros are synced, and room is looked at, after so many bytes.
const STEP: u64 = 1 << 20;

/// Whether an error says that there is no room, and nothing else.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

pub(crate) fn no_room() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the free disk space is below the reserve")
}

/// Prepares segments in the background: writing to blocks that already hold zeros makes a sync much cheaper
/// than growing a file, and only the preparation can run out of room, never a write.
#[derive(Debug)]
pub(crate) struct Preparer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    room: Room,
    state: Mutex<Preparing>,
    changed: Condvar,
}

/// How far the zeros have to be ahead of the events for the thread to take its time, in thousandths of a
/// segment.
const ZEROS_AHEAD: u64 = 200;

#[derive(Debug, Default)]
struct Preparing {
    wanted: Option<u64>,
    /// What the one that is being made will hold.
    promised: Option<u64>,
    ready: Option<u64>,
    /// Why the last attempt failed.
    failed: Option<String>,
    /// Attempts that have failed.
    failures: u64,
    /// Someone needs a segment now and does not wait for the next look.
    urgent: bool,
    /// Someone waits for the one that is being made.
    awaited: bool,
    /// How full the active segment is, in thousandths, and how much of the next one is there.
    filled: u64,
    made: u64,
    stop: bool,
}

impl Preparer {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, room: Room) -> Preparer {
        Preparer { disk, dir, room, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn want(&self, capacity: u64) {
        let mut state = lock(&self.state);
        state.wanted = Some(capacity);
        state.promised = None;
        state.ready = None;
        state.made = 0;
        self.changed.notify_all();
    }

    /// Waits until the segment that was asked for is there or cannot be made; how much it holds, which is
    /// less than was asked for where there is no room for more. A failure of some time ago does not count:
    /// there may be room by now, and refusing an event is worth another look.
    pub(crate) fn take(&self) -> Result<u64, String> {
        let mut state = lock(&self.state);
        let before = state.failures;
        loop {
            if let Some(capacity) = state.ready.take() {
                state.awaited = false;
                return Ok(capacity);
            }
            if state.stop {
                return Err("the store is shutting down".into());
            }
            match &state.failed {
                Some(why) if state.failures > before => return Err(why.clone()),
                Some(_) => {
                    state.urgent = true;
                    self.changed.notify_all();
                }
                None => {}
            }
            if !std::mem::replace(&mut state.awaited, true) {
                self.changed.notify_all();
            }
            state = wait(&self.changed, state);
        }
    }

    /// What the next segment holds, as far as that is known.
    pub(crate) fn promised(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.ready.or(state.promised)
    }

    /// The active segment ends here now.
    pub(crate) fn note_filled(&self, end: u64, capacity: u64) {
        lock(&self.state).filled = end * 1000 / capacity.max(1);
    }

    /// Lets the disk go on with events for as long as the last zeros took it, unless someone waits for these
    /// or soon will: `made` thousandths are there. Whether it took the whole pause.
    fn step_back(&self, file: &dyn DiskFile, made: u64) -> io::Result<bool> {
        let begun = Instant::now();
        file.sync()?;
        let until = Instant::now() + begun.elapsed();
        let mut state = lock(&self.state);
        while !state.awaited && !state.stop && made >= (state.filled + ZEROS_AHEAD).min(1000) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            state = wait_for(&self.changed, state, left);
        }
        Ok(false)
    }

    /// Whether the zeros are so far ahead of the events that a large request, which would shorten their lead,
    /// makes nobody wait for the next segment.
    pub(crate) fn keeps_up(&self) -> bool {
        let state = lock(&self.state);
        let on_the_way = state.wanted.is_some() && state.failed.is_none() && state.ready.is_none();
        !on_the_way || state.made >= (state.filled + ZEROS_AHEAD / 2).min(1000)
    }

    pub(crate) fn is_ready(&self) -> bool {
        lock(&self.state).ready.is_some()
    }

    /// The segment that was taken was not used after all.
    pub(crate) fn put_back(&self, capacity: u64) {
        lock(&self.state).ready = Some(capacity);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.changed.notify_all();
    }

    /// The thread: makes what is wanted; when there is no room, looks again every second. `on_progress` is
    /// told of each step, when one is ready, and when it cannot be made.
    pub(crate) fn run(&self, retry: std::time::Duration, on_progress: impl Fn()) {
        let mut unfinished = None;
        let mut state = lock(&self.state);
        while !state.stop {
            let Some(wanted) = state.wanted else {
                state = wait(&self.changed, state);
                continue;
            };
            state.urgent = false;
            drop(state);
            let made = self.make(wanted, &mut unfinished, &on_progress);
            state = lock(&self.state);
            match made {
                Ok(capacity) => {
                    state.wanted = None;
                    state.ready = Some(capacity);
                    state.failed = None;
                    self.changed.notify_all();
                    drop(state);
                    on_progress();
                    state = lock(&self.state);
                }
                Err(error) => {
                    if state.failed.is_none() {
                        tracing::error!(%error, wanted, "cannot prepare the next segment; retrying every second");
                    }
                    state.promised = None;
                    state.failed = Some(error.to_string());
                    state.failures += 1;
                    self.changed.notify_all();
                    drop(state);
                    // Who waits for the zeros to get further has to look for themselves whether there is
                    // room.
                    on_progress();
                    state = lock(&self.state);
                    if !state.urgent && !state.stop {
                        state = wait_for(&self.changed, state, retry);
                    }
                }
            }
        }
    }

    /// Makes a segment, or goes on with one that there was no room for.
    fn make(
        &self,
        wanted: u64,
        unfinished: &mut Option<Filling>,
        on_progress: &impl Fn(),
    ) -> io::Result<u64> {
        let mut filling = match unfinished.take() {
            Some(filling) => filling,
            None => Filling::begin(&*self.disk, &self.dir, wanted, self.room)?,
        };
        let capacity = filling.capacity;
        lock(&self.state).promised = Some(capacity);
        let filled = filling.fill(&*self.disk, &self.dir, self.room, |file, made| {
            let made = made * 1000 / capacity;
            lock(&self.state).made = made;
            on_progress();
            self.step_back(file, made).map(drop)
        });
        match filled {
            Ok(capacity) => Ok(capacity),
            Err(error) => {
                *unfinished = filling.keep(&*self.disk, &self.dir, &error);
                Err(error)
            }
        }
    }
}

/// A file that is being filled with zeros.
#[derive(Debug)]
struct Filling {
    file: Box<dyn DiskFile>,
    at: u64,
    capacity: u64,
    /// The disk said that there was room, and then refused a write for want of it: a quota, perhaps.
    refused: bool,
}

impl Filling {
    fn begin(disk: &dyn Disk, dir: &Path, wanted: u64, room: Room) -> io::Result<Filling> {
        let path = next_path(dir);
        // Never the file of an earlier attempt: a thread that is still filling that one must not reach this
        // one. And what it takes is room for this one.
        match disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Without room not a byte is written, however often it is tried.
        let capacity = room.size(wanted, disk.free_bytes(dir)?).ok_or_else(no_room)?;
        Ok(Filling { file: disk.create(&path)?, at: 0, capacity, refused: false })
    }

    /// Writes what is missing and makes it durable. Where room runs out on the way, the file stays as large
    /// as it is if that is enough for a segment. How much it holds.
    fn fill(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        room: Room,
        pause: impl Fn(&dyn DiskFile, u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let zeros = vec![0; PIECE];
        while self.at < self.capacity {
            let length = usize::try_from(self.capacity - self.at).unwrap_or(PIECE).min(PIECE);
            let written = self.file.write_all_at(&zeros[..length], self.at);
            self.refused = written.as_ref().is_err_and(is_no_room);
            let written = written.and_then(|()| {
                self.at += length as u64;
                let step = self.at.is_multiple_of(STEP) && self.at < self.capacity;
                if step && disk.free_bytes(dir)? < room.reserve { Err(no_room()) } else { Ok(step) }
            });
            match written {
                Ok(true) => pause(&*self.file, self.at)?,
                Ok(false) => {}
                Err(error) if is_no_room(&error) && self.at >= room.least.min(self.capacity) => {
                    self.file.set_len(self.at)?;
                    self.capacity = self.at;
                }
                Err(error) => return Err(error),
            }
        }
        self.file.sync()?;
        disk.sync_dir(dir)?;
        Ok(self.capacity)
    }

    /// After a failure. A file whose writes are refused for want of room is gone on with later: writing the
    /// same zeros again and again would wear out the disk for nothing. Everything else is removed, so that it
    /// takes no room; after a failed sync nothing is known of it.
    fn keep(self, disk: &dyn Disk, dir: &Path, error: &io::Error) -> Option<Filling> {
        if self.refused && is_no_room(error) {
            return Some(self);
        }
        let _ = disk.remove(&next_path(dir));
        None
    }
}

/// Makes a file of zeros that is on stable storage when this returns; how large it is. On failure nothing is
/// left that takes room.
pub(crate) fn prepare(disk: &dyn Disk, dir: &Path, wanted: u64, room: Room) -> io::Result<u64> {
    let mut filling = Filling::begin(disk, dir, wanted, room)?;
    filling.fill(disk, dir, room, |_, _| Ok(())).inspect_err(|_| {
        let _ = disk.remove(&next_path(dir));
    })
}

/// Cuts the zeros off the end of a segment that is not written to any more: they were room for frames that
/// never came. Nothing but zeros is cut, and nothing before `end`, where its frames end; whoever reads the
/// segment sees the same as before. How many bytes that gave back.
pub(crate) fn trim(disk: &dyn Disk, path: &Path, end: u64, worth: u64) -> io::Result<u64> {
    /// Zeros that are left: the last bytes of a frame may be some.
    const LEFT: u64 = 4096;
    let file = disk.open(path)?;
    let length = file.length()?;
    if length < end.saturating_add(worth) {
        return Ok(0);
    }
    let mut last = length;
    let mut piece = vec![0; PIECE];
    while last > end {
        let from = last.saturating_sub(PIECE as u64).max(end);
        let bytes = &mut piece[..usize::try_from(last - from).unwrap_or(PIECE)];
        if file.read_at(bytes, from)? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_zero(bytes) {
            last = from;
            continue;
        }
        if let Some(at) = bytes.iter().rposition(|byte| *byte != 0) {
            last = from + at as u64 + 1;
        }
        break;
    }
    let kept = (last + LEFT).next_multiple_of(LEFT).min(length);
    if length - kept < worth {
        return Ok(0);
    }
    // Not synced: if the zeros come back in a crash, they are cut again.
    file.set_len(kept)?;
    Ok(length - kept)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::disk::RealDisk;
    use super::*;

    const ROOM: Room = Room { reserve: 0, least: 4096 };

    #[test]
    fn a_segment_is_as_large_as_there_is_room_for_and_leaves_the_reserve_alone() {
        const MIB: u64 = 1 << 20;
        let room = Room { reserve: 8 * MIB, least: 4 * MIB };
        for (wanted, free, size) in [
            (64, 1000, Some(64)),
            (64, 136, Some(64)),
            // Half of what there is, as long as that is worth it.
            (64, 134, Some(63)),
            (64, 30, Some(11)),
            (64, 16, Some(4)),
            (64, 12, Some(4)),
            (64, 11, None),
            (64, 0, None),
            // One that is small by itself takes no more than it needs.
            (2, 10, Some(2)),
            (2, 9, None),
        ] {
            let size = size.map(|size| size * MIB);
            assert_eq!(room.size(wanted * MIB, free * MIB), size, "{wanted} of {free}");
        }
        assert_eq!(room.size(64 * MIB, 30 * MIB + 1), Some(11 * MIB), "whole pieces");
    }

    #[test]
    fn nothing_but_zeros_is_cut_off_a_segment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let trimmed = |content: &[u8], end: u64| {
            std::fs::write(&path, content).unwrap();
            let freed = trim(&RealDisk, &path, end, 4096).unwrap();
            let left = std::fs::read(&path).unwrap();
            assert_eq!(left.len() as u64 + freed, content.len() as u64);
            assert_eq!(left, content[..left.len()]);
            assert!(content[left.len()..].iter().all(|byte| *byte == 0));
            assert!(left.len() as u64 >= end);
            left.len()
        };
        let mut content = vec![0; 300_000];
        assert_eq!(trimmed(&content, 128), 8192);
        content[100_000] = 1;
        // A group that counts elsewhere, or a torn one, stays where it is.
        assert_eq!(trimmed(&content, 128), 106_496);
        assert_eq!(trimmed(&content, 200_000), 204_800);
        content[299_999] = 1;
        assert_eq!(trimmed(&content, 128), 300_000);
        assert_eq!(trimmed(&content[..100_000], 99_000), 100_000, "not worth it");
    }

    #[test]
    fn zeros_are_written_with_pauses_unless_someone_waits_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let preparer = Preparer::new(Arc::new(RealDisk), dir.path().to_owned(), ROOM);
        let file = RealDisk.create(&dir.path().join("x")).unwrap();
        // A sync that takes a while, as far as `step_back` can tell.
        #[derive(Debug)]
        struct Slow(Box<dyn DiskFile>);
        impl DiskFile for Slow {
            fn length(&self) -> io::Result<u64> {
                self.0.length()
            }
            fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
                self.0.read_at(buffer, offset)
            }
            fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
                self.0.write_all_at(bytes, offset)
            }
            fn set_len(&self, length: u64) -> io::Result<()> {
                self.0.set_len(length)
            }
            fn sync(&self) -> io::Result<()> {
                std::thread::sleep(Duration::from_millis(100));
                Ok(())
            }
        }
        let slow = Slow(file);
        let begun = Instant::now();
        assert!(preparer.step_back(&slow, 500).unwrap(), "nobody waits");
        assert!(begun.elapsed() >= Duration::from_millis(200), "as long as the sync has taken");

        // A lead of half as much is enough for others to go on; without a segment in the making, there is
        // nothing to wait for.
        assert!(preparer.keeps_up());
        preparer.want(8 << 20);
        for (filled, made, keeps_up) in
            [(500, 500, false), (500, 600, true), (950, 999, false), (950, 1000, true)]
        {
            let mut state = lock(&preparer.state);
            (state.filled, state.made) = (filled, made);
            drop(state);
            assert_eq!(preparer.keeps_up(), keeps_up, "{filled} {made}");
        }
        lock(&preparer.state).failed = Some("no room".into());
        assert!(preparer.keeps_up(), "whether there is room is for others to say");
        lock(&preparer.state).failed = None;
        lock(&preparer.state).filled = 0;

        // It is taken as soon as it is there: nothing is left to wait for afterwards.
        preparer.want(8 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| preparer.run(Duration::from_secs(3600), || {}));
            assert_eq!(preparer.take(), Ok(8 << 20));
            assert!(!lock(&preparer.state).awaited);
            preparer.stop();
        });
        assert_eq!(std::fs::metadata(next_path(dir.path())).unwrap().len(), 8 << 20);

        lock(&preparer.state).stop = false;
        let hurried = |what: &str| assert!(!preparer.step_back(&slow, 500).unwrap(), "{what}");
        lock(&preparer.state).awaited = true;
        hurried("someone waits");
        lock(&preparer.state).awaited = false;
        preparer.note_filled(4 << 20, 10 << 20);
        hurried("someone soon will");
    }

    #[test]
    fn a_failure_of_some_time_ago_refuses_nothing_once_there_is_room() {
        // A directory that is not there yet is as good as a full disk.
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("log");
        let preparer = Preparer::new(Arc::new(RealDisk), dir.clone(), ROOM);
        preparer.want(4096);
        std::thread::scope(|scope| {
            // It would not look again by itself for an hour.
            scope.spawn(|| preparer.run(Duration::from_secs(3600), || {}));
            assert!(preparer.take().is_err());
            std::fs::create_dir_all(&dir).unwrap();
            assert_eq!(preparer.take(), Ok(4096));
            preparer.stop();
        });
    }
}
