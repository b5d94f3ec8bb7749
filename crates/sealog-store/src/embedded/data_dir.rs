//! The data directory: who may use it, who can read it, and whether it is still the one that was opened.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::io::Errno;

use super::log::disk::{Disk, FILE_MODE};
use super::log::segment;
use super::mutants::{self, Mutant};
use super::options::OpenError;
use crate::sync::lock;

const LOCK: &str = "LOCK";

/// The data directory of an open store, for whoever keeps other files in it. The directory stays locked for
/// as long as this exists.
#[derive(Clone, Debug)]
pub struct Directory {
    disk: Arc<dyn Disk>,
    held: Arc<DataDir>,
    lost: Arc<OnceLock<String>>,
}

impl Directory {
    pub(super) fn new(held: DataDir, disk: Arc<dyn Disk>) -> Directory {
        Directory { disk, held: Arc::new(held), lost: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        &self.held.path
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Why nothing may be written any more: what stands under the path is not the directory that was opened.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    pub(super) fn hold(&self, path: &Path) -> io::Result<()> {
        self.held.hold(path)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.held.check()
    }

    pub(super) fn set_lost(&self, cause: &str) {
        let _ = self.lost.set(cause.to_owned());
    }
}

/// The directory, held against other processes and against being swapped.
///
/// The lock is on the directory itself, by device and inode: a file in it can be removed, and whoever makes a
/// new one of that name locks another file. Versions that knew nothing of this lock the file `LOCK`, so that
/// one is held too.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    dir: File,
    /// The directory and those in it, each with its device and inode.
    known: Mutex<Vec<(PathBuf, Identity)>>,
    lock_file: Mutex<File>,
}

type Identity = (u64, u64);

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

impl DataDir {
    pub(super) fn take(path: &Path) -> Result<DataDir, OpenError> {
        let io = |error| OpenError::Io { path: path.to_owned(), error };
        let dir = File::open(path).map_err(io)?;
        let id = identity(&dir.metadata().map_err(io)?);
        let locked = if mutants::on(Mutant::LockFileOnly) { Ok(()) } else { dir.try_lock() };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::Locked { holder: holder(path) }),
            // Network file systems cannot lock a directory. The file in it is what is left there.
            Err(TryLockError::Error(error)) if cannot_lock_directories(&error) => {
                tracing::warn!(%error, path = %path.display(), "the file system cannot lock a directory; only the file LOCK protects it from other processes");
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let lock_file = take_lock_file(path)?;
        // Between opening and locking it, the directory may have been swapped.
        let now = fs::metadata(path).map_err(io)?;
        if identity(&now) != id {
            return Err(io(io::Error::other("the data directory was replaced while it was being opened")));
        }
        let known = Mutex::new(vec![(path.to_owned(), id)]);
        Ok(DataDir { path: path.to_owned(), dir, known, lock_file: Mutex::new(lock_file) })
    }

    /// From now on this directory is expected to stay the same one, too.
    pub(super) fn hold(&self, path: &Path) -> io::Result<()> {
        let id = identity(&fs::metadata(path)?);
        lock(&self.known).push((path.to_owned(), id));
        Ok(())
    }

    /// Looks whether what stands under the path is still what was opened. An error is final: what is written
    /// from then on can be found by nobody.
    pub(super) fn check(&self) -> Result<(), String> {
        if mutants::on(Mutant::LockFileOnly) {
            return Ok(());
        }
        for (path, id) in lock(&self.known).iter() {
            match fs::metadata(path) {
                Ok(metadata) if identity(&metadata) == *id => {}
                Ok(_) => {
                    return Err(format!(
                        "{} is not the opened directory any more: it was replaced, or a file system was mounted over it",
                        path.display()
                    ));
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Err(format!("{} is missing: it was moved or deleted", path.display()));
                }
                // Not to be able to look says nothing about it.
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "cannot check the data directory; retrying");
                }
            }
        }
        self.keep_lock_file()
    }

    /// Where directories cannot be locked, `LOCK` alone keeps a second process out. If the file was removed
    /// it is made again, unless another process has it by now.
    fn keep_lock_file(&self) -> Result<(), String> {
        let path = self.path.join(LOCK);
        let mut held = lock(&self.lock_file);
        let ours = held.metadata().ok().map(|metadata| identity(&metadata));
        if fs::metadata(&path).ok().map(|metadata| identity(&metadata)) == ours && ours.is_some() {
            return Ok(());
        }
        match take_lock_file(&self.path) {
            Ok(file) => {
                tracing::warn!(path = %path.display(), "the lock file was removed while the store was running; created it again");
                *held = file;
                Ok(())
            }
            Err(OpenError::Locked { holder }) => {
                Err(format!("another process (process id {holder}) has locked the data directory"))
            }
            Err(error) => {
                tracing::warn!(%error, "the lock file was removed and cannot be created again");
                Ok(())
            }
        }
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // By name: a process that is just being started has a copy of every open file for a moment, and
        // closing ours alone would leave the lock with it.
        let _ = lock(&self.lock_file).unlock();
        let _ = self.dir.unlock();
    }
}

/// Keeps writers out of a directory while it is read, and lets others read it too. Nothing is written for it,
/// not even a process id: a shared lock on what is there, which also works where nothing may be written.
#[derive(Debug)]
pub(super) struct ReadLock {
    dir: File,
    /// Nothing in a copy that came without it.
    lock_file: Option<File>,
}

impl ReadLock {
    pub(super) fn take(path: &Path) -> Result<ReadLock, OpenError> {
        let dir = File::open(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        share(&dir, path)?;
        let name = path.join(LOCK);
        let lock_file = match File::open(&name) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::Io { path: name, error }),
        };
        // On a file system that cannot lock directories, a writer has this one alone.
        if let Some(file) = &lock_file {
            share(file, path)?;
        }
        Ok(ReadLock { dir, lock_file })
    }
}

impl Drop for ReadLock {
    fn drop(&mut self) {
        // By name, as that of a writer.
        if let Some(file) = &self.lock_file {
            let _ = file.unlock();
        }
        let _ = self.dir.unlock();
    }
}

fn share(file: &File, dir: &Path) -> Result<(), OpenError> {
    match file.try_lock_shared() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { holder: holder(dir) }),
        // Reading does no harm to a server that goes unnoticed.
        Err(TryLockError::Error(error)) if cannot_lock_directories(&error) => {
            tracing::warn!(%error, path = %dir.display(), "the file system cannot lock; make sure that no server writes there");
            Ok(())
        }
        Err(TryLockError::Error(error)) => Err(OpenError::Io { path: dir.to_owned(), error }),
    }
}

fn cannot_lock_directories(error: &io::Error) -> bool {
    let kinds = [Errno::BADF, Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| kinds.contains(&errno))
}

/// The process that says it has the directory.
fn holder(dir: &Path) -> String {
    let Ok(mut file) = File::open(dir.join(LOCK)) else { return "unknown".into() };
    // A writer holds this file, too, and its id stands in it. Whoever only reads leaves the id of the last
    // writer there.
    if file.try_lock_shared().is_ok() {
        return "unknown: a reader such as `sealog verify --data`".into();
    }
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    if holder.trim().is_empty() { "unknown".into() } else { holder.trim().to_owned() }
}

fn take_lock_file(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK);
    let io = |error| OpenError::Io { path: path.clone(), error };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let mut file = options.open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(OpenError::Locked { holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    let written =
        file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
    match written {
        // The lock is held all the same; on a full disk its holder has no name.
        Err(error) if !segment::is_no_room(&error) => Err(io(error)),
        _ => Ok(file),
    }
}

/// Says which files and directories others than their owner can read or change, and how to end that. A copy
/// may have left them so.
pub(super) fn warn_about_wider_modes(dir: &Path) {
    let mut wider: Vec<(PathBuf, u32)> = Vec::new();
    let mut look = |path: PathBuf| {
        let Ok(metadata) = fs::symlink_metadata(&path) else { return };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 && !metadata.file_type().is_symlink() {
            wider.push((path, mode));
        }
    };
    look(dir.to_owned());
    for dir in [dir.to_owned(), dir.join("live"), dir.join("test")] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            look(entry.path());
        }
    }
    let Some((path, mode)) = wider.first() else { return };
    tracing::warn!(
        path = %path.display(),
        mode = format!("{mode:04o}"),
        others = wider.len() - 1,
        command = format!("chmod -R go-rwx {}", dir.display()),
        "other users of this machine can read stored events or keys; run this command to prevent it"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_free_once_it_is_closed_although_a_child_process_has_a_copy_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::take(dir.path()).unwrap();
        // What a child has between its fork and its exec: the same open files under other numbers.
        let _of_a_child = (held.dir.try_clone().unwrap(), lock(&held.lock_file).try_clone().unwrap());
        assert!(matches!(DataDir::take(dir.path()), Err(OpenError::Locked { .. })));
        drop(held);
        assert!(DataDir::take(dir.path()).is_ok());
    }

    fn held_by<T: std::fmt::Debug>(refused: Result<T, OpenError>) -> String {
        match refused {
            Err(OpenError::Locked { holder }) => holder,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn readers_share_a_directory_and_keep_writers_out_and_writers_keep_readers_out() {
        let dir = tempfile::tempdir().unwrap();
        let writer = DataDir::take(dir.path()).unwrap();
        assert_eq!(held_by(ReadLock::take(dir.path())), std::process::id().to_string());
        drop(writer);
        let readers = (ReadLock::take(dir.path()).unwrap(), ReadLock::take(dir.path()).unwrap());
        assert!(held_by(DataDir::take(dir.path())).contains("unknown: a reader"), "not the last writer's id");
        drop(readers.0);
        assert!(held_by(DataDir::take(dir.path())).contains("unknown: a reader"));
        drop(readers.1);
        assert!(DataDir::take(dir.path()).is_ok());
    }

    #[test]
    fn a_reader_makes_no_lock_file_and_heeds_one_that_only_an_older_version_holds() {
        let dir = tempfile::tempdir().unwrap();
        drop(ReadLock::take(dir.path()).unwrap());
        assert!(!dir.path().join(LOCK).exists());
        let older = take_lock_file(dir.path()).unwrap();
        assert_eq!(held_by(ReadLock::take(dir.path())), std::process::id().to_string());
        older.unlock().unwrap();
        assert!(ReadLock::take(dir.path()).is_ok());
    }
}
