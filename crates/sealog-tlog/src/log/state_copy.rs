//! The state copy: a small file that should lie outside of every backup, with the newest tree that this store
//! was about to sign. It is written and synced before a signature is made, under a lock, so that a restored
//! copy of the store, or a second server on an older copy, finds that there was a larger tree.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealog_trust::checkpoint::Checkpoint;

use super::keys::sync_dir;

const MODE: u32 = 0o600;
const BYTES_MAX: u64 = 64 << 10;
/// For another process that is about to sign.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCopy {
    path: PathBuf,
}

#[derive(Debug)]
pub struct CopyError {
    path: PathBuf,
    problem: String,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state copy {}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for CopyError {}

impl StateCopy {
    pub fn at(path: PathBuf) -> StateCopy {
        StateCopy { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other signers away from the file until the answer is dropped.
    pub(super) fn hold(&self) -> Result<Held<'_>, CopyError> {
        let path = beside(&self.path, "lock");
        let opened = OpenOptions::new().create(true).append(true).mode(MODE).open(&path);
        let lock = opened.map_err(|error| self.failed(&format!("cannot open its lock file: {error}")))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Held { copy: self, _lock: lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_POLL),
                Err(TryLockError::WouldBlock) => {
                    return Err(self.failed("another process holds its lock"));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(self.failed(&format!("cannot be locked: {error}")));
                }
            }
        }
    }

    fn failed(&self, problem: &str) -> CopyError {
        CopyError { path: self.path.clone(), problem: problem.to_owned() }
    }
}

/// The file, held against other signers.
#[derive(Debug)]
pub(super) struct Held<'a> {
    copy: &'a StateCopy,
    _lock: File,
}

impl Held<'_> {
    /// None if there is no file. A file that is no checkpoint is an error: it may have been one.
    pub(super) fn read(&self) -> Result<Option<Checkpoint>, CopyError> {
        let file = match File::open(&self.copy.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| self.copy.failed(&error.to_string()))?,
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| self.copy.failed(&error.to_string()))?;
        let checkpoint = Checkpoint::parse(&text).map_err(|error| self.copy.failed(&error.to_string()))?;
        Ok(Some(checkpoint))
    }

    /// Durable when it returns; after an error it has the old text or the new one.
    pub(super) fn write(&self, checkpoint: &Checkpoint) -> Result<(), CopyError> {
        let (path, unfinished) = (&self.copy.path, beside(&self.copy.path, "unfinished"));
        let written = || {
            match fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished)?;
            file.write_all(checkpoint.to_string().as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)?;
            sync_dir(path)
        };
        written().map_err(|error| self.copy.failed(&format!("cannot be written: {error}")))
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(".");
    path.push(ending);
    path.into()
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Hash;

    use super::*;

    #[test]
    fn a_state_copy_is_read_as_it_was_written_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let copy = StateCopy::at(dir.path().join("copy"));
        assert_eq!(copy.hold().unwrap().read().unwrap(), None);
        let checkpoint = Checkpoint { origin: "log".into(), size: 7, root: Hash([1; 32]) };
        copy.hold().unwrap().write(&checkpoint).unwrap();
        assert_eq!(copy.hold().unwrap().read().unwrap(), Some(checkpoint));
        for text in ["", "log\n7\n", "log\n7\nAAAA\n"] {
            fs::write(copy.path(), text).unwrap();
            assert!(copy.hold().unwrap().read().is_err(), "{text:?}");
        }
    }

    #[test]
    fn two_signers_do_not_hold_a_state_copy_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let copy = StateCopy::at(dir.path().join("copy"));
        let held = copy.hold().unwrap();
        let other = File::open(dir.path().join("copy.lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
    }
}
