//! A disk that waits for no sync: fifty thousand events one by one would take minutes otherwise. A power cut
//! leaves an unfinished directory, which is made again; whoever finishes one syncs all of it first.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use sealog_store::embedded::disk::{Disk, DiskFile, RealDisk};

#[derive(Debug)]
pub(super) struct Unsynced;

#[derive(Debug)]
struct UnsyncedFile(Box<dyn DiskFile>);

impl Disk for Unsynced {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(RealDisk.open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(RealDisk.create(path)?)))
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

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}

impl DiskFile for UnsyncedFile {
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
        Ok(())
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.0.is_linked()
    }
}

/// Everything below a directory, and the names of it.
pub(super) fn sync_all(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}
