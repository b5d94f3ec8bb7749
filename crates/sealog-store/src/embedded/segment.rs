//! Segments as files: their names, how the next one is prepared, and a walk over everything in one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use sealog_core::id::Mode;

use super::disk::{Disk, DiskFile};
use super::format::{FRAME_MAGIC, Frame, FrameHeader, SEGMENT_HEADER_LEN, Salt};
use super::sync::{lock, wait, wait_for};

pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

pub(super) fn index_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.idx"))
}

pub(super) fn next_path(dir: &Path) -> PathBuf {
    dir.join("next.seg")
}

/// The number in a segment's file name.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    ((8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// A segment that can be read.
#[derive(Debug)]
pub(super) struct Segment {
    pub number: u64,
    pub salt: Salt,
    pub file: Box<dyn DiskFile>,
}

/// Part of a segment's content.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// All of it is right.
    Intact(Frame<'a>),
    /// Its header is right, something in it is not.
    Broken(Frame<'a>),
    /// No frame can be read here; from, to.
    Unreadable(u64, u64),
}

impl Piece<'_> {
    pub(super) fn start(&self) -> u64 {
        match self {
            Piece::Intact(frame) | Piece::Broken(frame) => frame.header.position,
            Piece::Unreadable(from, _) => *from,
        }
    }
}

/// Everything from the header to `end`, in order. Zeros at the end are no piece.
pub(super) fn walk<'a>(content: &'a [u8], end: u64, salt: &'a Salt, mode: Mode) -> Vec<Piece<'a>> {
    let end = usize::try_from(end).unwrap_or(usize::MAX).min(content.len());
    let content = &content[..end];
    let mut pieces = Vec::new();
    let mut at = SEGMENT_HEADER_LEN;
    while at < content.len() {
        if let Some(frame) = Frame::decode(&content[at..], at as u64, salt, mode) {
            at += frame.header.length as usize;
            pieces.push(if frame.intact() { Piece::Intact(frame) } else { Piece::Broken(frame) });
            continue;
        }
        let next = find_frame(content, at + 1, salt, mode);
        let until = next.unwrap_or(content.len());
        if next.is_none() && content[at..].iter().all(|byte| *byte == 0) {
            break;
        }
        pieces.push(Piece::Unreadable(at as u64, until as u64));
        at = until;
    }
    pieces
}

/// The next place where a frame's header is right. A frame names its own position, so a client cannot put one into a payload that would be found here.
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

/// Prepares segments in the background: writing to blocks that already hold zeros makes a sync much cheaper than growing a file,
/// and only the preparation can run out of room, never a write.
#[derive(Debug)]
pub(super) struct Preparer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<Preparing>,
    changed: Condvar,
}

/// How far the zeros have to be ahead of the events for the thread to take its time, in thousandths of a segment.
const ZEROS_AHEAD: u64 = 200;

#[derive(Debug, Default)]
struct Preparing {
    wanted: Option<u64>,
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
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Preparer {
        Preparer { disk, dir, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn want(&self, capacity: u64) {
        let mut state = lock(&self.state);
        state.wanted = Some(capacity);
        state.ready = None;
        state.made = 0;
        self.changed.notify_all();
    }

    /// Waits until the segment that was asked for is there or cannot be made. A failure of some time ago does not count: there may be room by now, and refusing an event is
    /// worth another look.
    pub(super) fn take(&self) -> Result<u64, String> {
        let mut state = lock(&self.state);
        let before = state.failures;
        loop {
            if let Some(capacity) = state.ready.take() {
                state.awaited = false;
                return Ok(capacity);
            }
            if state.stop {
                return Err("the store is closing".into());
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

    /// The active segment ends here now.
    pub(super) fn note_filled(&self, end: u64, capacity: u64) {
        lock(&self.state).filled = end * 1000 / capacity.max(1);
    }

    /// Lets the disk go on with events for as long as the last zeros took it, unless someone waits for these or soon will: `made` thousandths are there.
    fn step_back(&self, file: &dyn DiskFile, made: u64) -> io::Result<()> {
        let begun = Instant::now();
        file.sync()?;
        let until = Instant::now() + begun.elapsed();
        let mut state = lock(&self.state);
        while !state.awaited && !state.stop && made >= (state.filled + ZEROS_AHEAD).min(1000) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = wait_for(&self.changed, state, left);
        }
        Ok(())
    }

    /// Whether the zeros are so far ahead of the events that a large request, which would shorten their lead, makes nobody wait for the next segment.
    pub(super) fn keeps_up(&self) -> bool {
        let state = lock(&self.state);
        let on_the_way = state.wanted.is_some() && state.failed.is_none() && state.ready.is_none();
        !on_the_way || state.made >= (state.filled + ZEROS_AHEAD / 2).min(1000)
    }

    pub(super) fn is_ready(&self) -> bool {
        lock(&self.state).ready.is_some()
    }

    /// The segment that was taken was not used after all.
    pub(super) fn put_back(&self, capacity: u64) {
        lock(&self.state).ready = Some(capacity);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stop = true;
        self.changed.notify_all();
    }

    /// The thread: makes what is wanted; when there is no room, looks again every second. `on_progress` is told of each step, when one is ready, and when it cannot be made.
    pub(super) fn run(&self, retry: std::time::Duration, on_progress: impl Fn()) {
        let mut state = lock(&self.state);
        while !state.stop {
            let Some(capacity) = state.wanted else {
                state = wait(&self.changed, state);
                continue;
            };
            state.urgent = false;
            drop(state);
            let made = prepare(&*self.disk, &self.dir, capacity, |file, made| {
                let made = made * 1000 / capacity;
                lock(&self.state).made = made;
                on_progress();
                self.step_back(file, made)
            });
            state = lock(&self.state);
            match made {
                Ok(()) => {
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
                        tracing::error!(%error, capacity, "cannot prepare the next segment; looking again every second");
                    }
                    state.failed = Some(error.to_string());
                    state.failures += 1;
                    self.changed.notify_all();
                    drop(state);
                    // Who waits for the zeros to get further has to look for themselves whether there is room.
                    on_progress();
                    state = lock(&self.state);
                    if !state.urgent && !state.stop {
                        state = wait_for(&self.changed, state, retry);
                    }
                }
            }
        }
    }
}

/// Makes a file of zeros that is on stable storage when this returns. On failure nothing is left that takes room. `pause` is called after each mebibyte
/// with the number of bytes that are there: all the zeros of a large segment at once would make every event wait that is synced meanwhile.
pub(super) fn prepare(
    disk: &dyn Disk,
    dir: &Path,
    capacity: u64,
    pause: impl Fn(&dyn DiskFile, u64) -> io::Result<()>,
) -> io::Result<()> {
    const STEP: u64 = 1 << 20;
    // The kernel keeps what was written at once in one piece of its cache, and a sync looks at the whole piece. Larger ones make a small sync dearer, smaller ones a large one.
    const PIECE: usize = 64 << 10;
    let path = next_path(dir);
    let fill = || {
        let file = disk.create(&path)?;
        let zeros = vec![0; PIECE];
        let mut at = 0;
        while at < capacity {
            let length = usize::try_from(capacity - at).unwrap_or(PIECE).min(PIECE);
            file.write_all_at(&zeros[..length], at)?;
            at += length as u64;
            if at.is_multiple_of(STEP) && at < capacity {
                pause(&*file, at)?;
            }
        }
        file.sync()?;
        disk.sync_dir(dir)
    };
    // Never the file of an earlier attempt: a thread that is still filling that one must not reach this one.
    match disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fill().inspect_err(|_| {
        let _ = disk.remove(&path);
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::disk::RealDisk;
    use super::*;

    #[test]
    fn zeros_are_written_with_pauses_unless_someone_waits_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let preparer = Preparer::new(Arc::new(RealDisk), dir.path().to_owned());
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
        preparer.step_back(&slow, 500).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(200));

        // A lead of half as much is enough for others to go on; without a segment in the making, there is nothing to wait for.
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
        let hurried = |what: &str| {
            let begun = Instant::now();
            preparer.step_back(&slow, 500).unwrap();
            assert!(begun.elapsed() < Duration::from_millis(190), "{what}");
        };
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
        let preparer = Preparer::new(Arc::new(RealDisk), dir.clone());
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
