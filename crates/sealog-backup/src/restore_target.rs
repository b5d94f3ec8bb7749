//! The directory that a backup is restored into: what may stand in it before, and what is left after a
//! restore that ended early.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{make_dir_durably, sync_dir, write_new};
use sealog_core::id::Mode;
use sealog_engine::restoring_mark;

use super::rollback::Known;

/// What may stand in a target that counts as empty: what is left of an old store once its data is gone.
/// And what a restore leaves that was killed before it began.
const REMAINS: [&str; 6] = ["LOCK", "lost+found", "live", "test", OLD_MARKS, "RESTORING.tmp"];
/// High-water marks that were found in the target.
const OLD_MARKS: &str = "old-marks.tmp";

/// Looks at the target, and marks it as one that is being restored. Whoever has what it returns is alone in
/// there.
///
/// ```text
/// t0  the directory is locked, as a store locks it: no other process has it
/// t1  the mark is there, and locked
/// t2  the directory is free again, so that the store can be opened in the end
/// ```
/// Another restore finds the directory locked before t2 and when the store is open, and the mark locked in
/// between.
pub(super) fn prepare(to: &Path, known: &mut Known) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::of_path(to, &error);
    make_dir_durably(to).map_err(failed)?;
    let _directory = alone(to, to)?;
    let mark = restoring_mark::path(to);
    if mark.exists() {
        let lock = alone(to, &mark)?;
        // Of a restore that was interrupted. What it found of an old store stands in the mark's place until
        // the end.
        let kept = to.join(OLD_MARKS);
        if kept.exists() {
            known.add_old_data(&kept)?;
        }
        return empty(to).map(|()| lock).map_err(failed);
    }
    for entry in fs::read_dir(to).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !REMAINS.contains(&name.as_str()) {
            return Err(not_empty(to, &name));
        }
    }
    for mode in Mode::ALL {
        let dir = to.join(mode.as_str());
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name != "mark" {
                return Err(not_empty(to, &format!("{}/{name}", mode.as_str())));
            }
        }
    }
    // No log can stand here any more, so the mark says how old it is.
    known.add_old_data(to)?;
    let kept = || {
        // Left by a run that was killed behind t1 of `release`, or before RESTORING was there: older than
        // these.
        remove(&to.join(OLD_MARKS))?;
        for mode in Mode::ALL {
            let found = to.join(mode.as_str()).join("mark");
            if found.exists() {
                let dir = to.join(OLD_MARKS).join(mode.as_str());
                make_dir_durably(&dir)?;
                write_new(&dir.join("mark"), &fs::read(found)?)?;
            }
        }
        write_new(&mark, restoring_mark::LINE.as_bytes())
    };
    kept().map_err(failed)?;
    let lock = alone(to, &mark)?;
    empty(to).map(|()| lock).map_err(failed)
}

/// Locks a file or directory of the target.
fn alone(to: &Path, path: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::of_path(path, &error);
    let lock = File::open(path).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let busy = format!(
                "{}: another process uses this directory; wait for it, or give another directory",
                to.display()
            );
            Err(Failure::new(Exit::Unavailable, busy))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn not_empty(to: &Path, name: &str) -> Failure {
    Failure::usage(format!(
        "{}: the directory is not empty ({name}). Give a new one; or move the old one aside and give it with --old-data, so that lost events are detected",
        to.display()
    ))
}

/// Removes what an interrupted restore has left.
fn empty(to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == OLD_MARKS || name == "lost+found" || entry.path() == restoring_mark::path(to) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?
        } else {
            fs::remove_file(entry.path())?
        }
    }
    sync_dir(to)
}

/// Leaves the target as it was found: with the high-water marks that stood there, and nothing else. The
/// failure is handed on.
pub(super) fn abandon(to: &Path, failure: Failure) -> Failure {
    let left = || {
        empty(to)?;
        for mode in Mode::ALL {
            let kept = to.join(OLD_MARKS).join(mode.as_str()).join("mark");
            if kept.exists() {
                make_dir_durably(&to.join(mode.as_str()))?;
                write_new(&to.join(mode.as_str()).join("mark"), &fs::read(kept)?)?;
            }
        }
        release(to)
    };
    match left() {
        Ok(()) => failure,
        Err(error) => {
            let Failure { exit, message } = failure;
            Failure::new(exit, format!("{message}. Cannot empty {}: {error}", to.display()))
        }
    }
}

/// Ends a restore, whether it is complete or abandoned.
///
/// ```text
/// t0  RESTORING is there: a run that is killed here begins anew, and knows by OLD_MARKS what there was
/// t1  RESTORING is gone, durably: the store is complete, or the marks are back where they were found
/// t2  OLD_MARKS is gone
/// ```
/// In the other order a kill in between leaves RESTORING alone, and the next run knows of no event.
pub(super) fn release(to: &Path) -> io::Result<()> {
    fs::remove_file(restoring_mark::path(to))?;
    sync_dir(to)?;
    remove(&to.join(OLD_MARKS))?;
    sync_dir(to)
}

/// Removes a directory, where it is there.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Of a file that was verified, and is not what was verified any more.
pub(super) fn changed(what: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Broken, format!("{what}: the file changed during the restore"))
}
