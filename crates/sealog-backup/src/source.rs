//! Where a backup comes from: a data directory on this machine, or a server elsewhere.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::manifest::{CONTROL, INDEX_SALT, STORE_LOG};

/// Why bytes of a segment could not be had.
#[derive(Debug)]
pub(super) enum Unread {
    /// It was dropped for its age meanwhile.
    Gone,
    Failed(String),
}

pub(super) trait Source {
    /// Exactly these bytes of a segment.
    fn read(&self, mode: &str, number: u64, from: u64, to: u64) -> Result<Vec<u8>, Unread>;

    /// Files beside the logs, with their paths in the data directory.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String>;
}

/// A data directory, whether or not a server has it open: what is durable in it never changes.
#[derive(Debug)]
pub(super) struct DataDir {
    data_dir: PathBuf,
    /// The copy of the control data, beside the backup. It is removed in the end.
    control: PathBuf,
    /// Likewise, of the store log.
    log: PathBuf,
}

impl DataDir {
    pub(super) fn new(data_dir: &Path, control: PathBuf) -> DataDir {
        let log = control.with_file_name("log.db.tmp");
        DataDir { data_dir: data_dir.to_owned(), control, log }
    }

    /// Copies the store log, if there is one. Before a moment is taken: what it says of events must be of
    /// events that the backup has.
    pub(super) fn copy_log(&self) -> Result<(), String> {
        let from = self.data_dir.join(STORE_LOG);
        let _ = fs::remove_file(&self.log);
        if !from.exists() {
            return Ok(());
        }
        sealog_control::copy_of_file(&from, &self.log).map_err(|error| format!("{}: {error}", from.display()))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // One that a killed command has left is removed by a later one.
        let _ = fs::remove_file(&self.control);
        let _ = fs::remove_file(&self.log);
    }
}

impl Source for DataDir {
    fn read(&self, mode: &str, number: u64, from: u64, to: u64) -> Result<Vec<u8>, Unread> {
        let path = self.data_dir.join(mode).join(format!("{number:08}.log"));
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(usize::MAX)];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, from));
        match read {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unread::Gone),
            Err(error) => Err(Unread::Failed(format!("{}: {error}", path.display()))),
        }
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut files = Vec::new();
        for (name, path) in [(CONTROL, self.control.clone()), (INDEX_SALT, self.data_dir.join(INDEX_SALT))] {
            let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            files.push((name.to_owned(), bytes));
        }
        if self.log.exists() {
            let bytes = fs::read(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))?;
            files.push((STORE_LOG.to_owned(), bytes));
        }
        Ok(files)
    }
}
