//! Counts what the store writes to its log and how often it syncs it, from below: the store itself needs no
//! counters for this.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_store::embedded::disk::{Disk, DiskFile, RealDisk};

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    syncs: AtomicU64,
}

/// The real disk, with counters on the segments that are written to.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Counters>);

/// What was counted up to now.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub bytes: u64,
    pub syncs: u64,
}

impl Meter {
    pub fn read(&self) -> Counted {
        Counted { bytes: self.0.bytes.load(Ordering::Relaxed), syncs: self.0.syncs.load(Ordering::Relaxed) }
    }

    /// What was counted since.
    pub fn since(&self, before: Counted) -> Counted {
        let now = self.read();
        Counted { bytes: now.bytes - before.bytes, syncs: now.syncs - before.syncs }
    }
}

impl Disk for Meter {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = RealDisk.open(path)?;
        // A segment is opened under this name when its turn comes; filling it with zeros beforehand is not an
        // append.
        if path.file_name().is_some_and(|name| name == "next.seg") {
            return Ok(Box::new(MeteredFile { file, counters: Arc::clone(&self.0) }));
        }
        Ok(file)
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

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}

#[derive(Debug)]
struct MeteredFile {
    file: Box<dyn DiskFile>,
    counters: Arc<Counters>,
}

impl DiskFile for MeteredFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync()
    }
}
