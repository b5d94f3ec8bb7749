//! Files that may be replaced while they are in use.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Tells one content of a file from another. Whoever keeps the time of a copy does not keep the time of its
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    pub bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub fn of(path: &Path) -> io::Result<Stamp> {
        let file = std::fs::metadata(path)?;
        Ok(Stamp {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
