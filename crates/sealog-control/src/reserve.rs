//! Room on the disk that is kept for control data: on a full disk keys must still be revocable.
//!
//! Segments leave a part of the disk alone, but they are not the only ones who write to it. So there is a
//! file that takes room and holds nothing. When less than a little is left, it is removed before a change
//! that may use it (see [`Room`](crate::db::Room)), and made again when there is room. Until then, all other
//! changes are refused: whoever comes first must not use it up.
//!
//! What a disk says of its room may be wrong: another program fills it in the same moment, or a quota ends
//! before the disk does. A change that may use the reserve and is refused is made a second time, with it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sealog_store::embedded::disk::Disk;

/// What it takes: some hundreds of changes.
const BYTES: u64 = 4 << 20;

/// A change of control data takes less than this.
const LOW_BYTES: u64 = 1 << 20;

/// What stays free where something large is kept: the events' reserve, ours, and some hundreds of changes.
const SPARE_BYTES: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    path: PathBuf,
    held: bool,
    /// The disk has refused a change although it says that it has room, as one with a quota does. Until it
    /// takes what is reserved again, it has none.
    is_refusing: bool,
}

impl Reserve {
    /// What an earlier process has left.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: PathBuf, name: &str) -> Reserve {
        let path = dir.join(format!("{name}.reserve"));
        let held = disk.open(&path).and_then(|file| file.length()).is_ok_and(|length| length == BYTES);
        Reserve { disk, dir, path, held, is_refusing: false }
    }

    /// Whether there is hardly room for a change.
    pub(crate) fn is_low(&self) -> bool {
        self.disk.free_bytes(&self.dir).is_ok_and(|free| free < LOW_BYTES)
    }

    /// Whether there is room for changes that are not for a full disk: what is reserved is there, and some
    /// more.
    pub(crate) fn is_for_all(&mut self) -> bool {
        if self.is_refusing {
            self.keep();
        }
        let wanted = if self.held { LOW_BYTES } else { 2 * BYTES };
        !self.is_refusing && self.disk.free_bytes(&self.dir).is_ok_and(|free| free >= wanted)
    }

    /// Whether something large leaves enough for events and for changes. A disk that does not say is taken at
    /// its word later.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.disk.free_bytes(&self.dir).is_ok_and(|free| free >= SPARE_BYTES.saturating_add(bytes))
    }

    /// Makes room for a change, if it takes that. Whether it has.
    pub(crate) fn release_if_low(&mut self) -> bool {
        self.is_low() && self.release()
    }

    /// Makes room for a change that the disk has refused. Whether it has.
    pub(crate) fn release_for_refused(&mut self) -> bool {
        self.is_refusing = true;
        self.release()
    }

    fn release(&mut self) -> bool {
        if !self.held {
            return false;
        }
        self.held = false;
        // With the directory synced, the room can be used by others.
        match self.disk.remove(&self.path).and_then(|()| self.disk.sync_dir(&self.dir)) {
            Ok(()) => {
                tracing::warn!("the disk is full; released the space that was reserved for control data")
            }
            Err(error) => {
                tracing::error!(%error, "failed to release the space that is reserved for control data; changes may fail until the disk has room")
            }
        }
        true
    }

    /// Takes the room, unless it is taken or there is none to spare.
    pub(crate) fn keep(&mut self) {
        if self.held || !self.disk.free_bytes(&self.dir).is_ok_and(|free| free >= 2 * BYTES) {
            return;
        }
        match self.take() {
            Ok(()) => (self.held, self.is_refusing) = (true, false),
            Err(error) => {
                tracing::warn!(%error, "failed to reserve space for control data; retrying with the next change");
                let _ = self.disk.remove(&self.path);
            }
        }
    }

    fn take(&self) -> io::Result<()> {
        // Written, not only allocated: a file system that compresses or shares blocks is not one to worry
        // about here, one without allocation is.
        let zeros = vec![0; 1 << 20];
        let file = self.disk.create(&self.path)?;
        for at in (0..BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync()?;
        self.disk.sync_dir(&self.dir)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use sealog_store::embedded::disk::{DiskFile, RealDisk};

    use super::*;

    const FILE: &str = "control.reserve";

    /// A disk that says what it is told of the room that it has.
    #[derive(Debug)]
    struct Told(AtomicU64);

    impl Disk for Told {
        fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            RealDisk.open(path)
        }
        fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            RealDisk.create(path)
        }
        fn create_dir(&self, path: &Path) -> io::Result<()> {
            RealDisk.create_dir(path)
        }
        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            RealDisk.list(dir)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealDisk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealDisk.remove(path)
        }
        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            RealDisk.sync_dir(dir)
        }
        fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
            Ok(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn room_is_reserved_used_when_the_disk_is_full_and_reserved_again() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(Told(AtomicU64::new(2 * BYTES - 1)));
        let taken = || std::fs::metadata(dir.path().join(FILE)).ok().map(|file| file.len());
        let open = || Reserve::open(Arc::clone(&disk) as Arc<dyn Disk>, dir.path().to_owned(), "control");
        let mut reserve = open();
        reserve.keep();
        assert_eq!(taken(), None, "not from what others need");
        disk.0.store(2 * BYTES, Ordering::SeqCst);
        reserve.keep();
        assert_eq!(taken(), Some(BYTES));
        disk.0.store(LOW_BYTES, Ordering::SeqCst);
        assert!(!reserve.release_if_low());
        assert_eq!(taken(), Some(BYTES), "there is room for a change");
        disk.0.store(LOW_BYTES - 1, Ordering::SeqCst);
        assert!(!reserve.has_room_for(0));
        disk.0.store(SPARE_BYTES + 10, Ordering::SeqCst);
        assert!(
            reserve.has_room_for(10) && !reserve.has_room_for(11),
            "what is large leaves room for the rest"
        );
        disk.0.store(LOW_BYTES - 1, Ordering::SeqCst);
        // Across a restart.
        let mut reserve = open();
        assert!(reserve.release_if_low());
        assert_eq!(taken(), None);
        reserve.keep();
        assert!(!reserve.release_if_low() && taken().is_none());
        disk.0.store(u64::MAX, Ordering::SeqCst);
        reserve.keep();
        assert_eq!(taken(), Some(BYTES));
        // One that a crash has left half made does not count.
        std::fs::write(dir.path().join(FILE), b"half").unwrap();
        let mut reserve = open();
        reserve.keep();
        assert_eq!(taken(), Some(BYTES));
    }
}
