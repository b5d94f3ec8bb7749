//! A disk that can only be read: below a store that must not change what it looks at, whatever its code would
//! do.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};

/// Refuses every call that could change a file, a name or a directory.
#[derive(Debug)]
pub(crate) struct ReadOnlyDisk(pub Arc<dyn Disk>);

/// The error that a file system mounted read-only has for a write.
pub(crate) fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(ReadOnlyFile(self.0.open_to_read(path)?)))
    }

    fn create(&self, _path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(refused())
    }

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.0.free_bytes(dir)
    }
}

#[derive(Debug)]
struct ReadOnlyFile(Box<dyn DiskFile>);

impl DiskFile for ReadOnlyFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(refused())
    }

    fn set_len(&self, _length: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }

    fn is_linked(&self) -> io::Result<bool> {
        self.0.is_linked()
    }
}
