//! The mark of a demo's data directory. What is in such a directory is made up, and a part of it is tampered
//! with: no other command serves it, and the demo touches no directory without the mark.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FILE: &str = "DEMO";
/// What follows this line is its state.
const LINE: &str = "sealog demo 1\n";
const UNFINISHED: &str = "unfinished\n";
const READY: &str = "ready\n";

/// What the store makes in its directory, by how the names begin.
const OF_THE_STORE: [&str; 7] = ["FORMAT", "LOCK", "index.salt", "control.", "admin.sock", "live", "test"];

/// What stands where the demo's directory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// Somebody makes it now, or has stopped midway.
    Unfinished,
    Ready,
}

/// For every command that serves a store.
pub(crate) fn refuse(data_dir: &Path) -> Result<(), String> {
    if !data_dir.join(FILE).exists() {
        return Ok(());
    }
    Err(format!(
        "{} is the directory of a demo: its events are invented, and one of its chains is tampered with. Start it with sealog demo --data-dir {0}, or choose another data_dir",
        data_dir.display()
    ))
}

/// An error for a directory that is somebody else's.
pub(crate) fn look(data_dir: &Path) -> Result<Found, String> {
    let failed = |error: io::Error| format!("{}: {error}", data_dir.display());
    match fs::read_to_string(data_dir.join(FILE)) {
        Ok(text) => match text.strip_prefix(LINE) {
            Some(READY) => return Ok(Found::Ready),
            Some(UNFINISHED) => return Ok(Found::Unfinished),
            _ => {
                return Err(format!(
                    "{} is the directory of a demo of another version; remove it, or choose another directory",
                    data_dir.display()
                ));
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    match fs::read_dir(data_dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(Found::Nothing),
            Some(_) => Err(format!(
                "{} is not the directory of a demo and not empty; give a new directory with --data-dir",
                data_dir.display()
            )),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(failed(error)),
    }
}

/// A directory that is being made. Whoever dies meanwhile leaves one that the next start makes again.
#[derive(Debug)]
pub(crate) struct Making(File);

/// Marks a directory as unfinished, and keeps others from making it at the same time. What an earlier attempt
/// has left there is removed.
pub(crate) fn begin(data_dir: &Path) -> Result<Making, String> {
    let failed = |error: io::Error| format!("{}: {error}", data_dir.display());
    // As the store makes it: for its owner alone.
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
    let mark =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(data_dir.join(FILE));
    let mut mark = mark.map_err(failed)?;
    if mark.try_lock().is_err() {
        return Err(format!("another process is creating the demo in {}", data_dir.display()));
    }
    for entry in fs::read_dir(data_dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| OF_THE_STORE.iter().any(|our| name.starts_with(our)));
        let is_dir = entry.file_type().map_err(failed)?.is_dir();
        match (is_ours, is_dir) {
            (true, true) => fs::remove_dir_all(entry.path()).map_err(failed)?,
            (true, false) => fs::remove_file(entry.path()).map_err(failed)?,
            (false, _) => {}
        }
    }
    write(&mut mark, UNFINISHED).map_err(failed)?;
    Ok(Making(mark))
}

impl Making {
    /// All of it is there and synced.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        write(&mut self.0, READY)
    }
}

fn write(mark: &mut File, state: &str) -> io::Result<()> {
    mark.set_len(0)?;
    mark.rewind()?;
    mark.write_all(LINE.as_bytes())?;
    mark.write_all(state.as_bytes())?;
    mark.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_again_until_it_was_finished_and_only_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("demo");
        assert_eq!(look(&data), Ok(Found::Nothing));
        let making = begin(&data).unwrap();
        assert_eq!(look(&data), Ok(Found::Unfinished));
        assert!(begin(&data).unwrap_err().contains("another process"));
        fs::create_dir(data.join("live")).unwrap();
        fs::write(data.join("live/00000001.log"), "half").unwrap();
        fs::write(data.join("control.db-wal"), "half").unwrap();
        fs::write(data.join("notes.txt"), "of somebody").unwrap();
        drop(making);
        let making = begin(&data).unwrap();
        assert!(!data.join("live").exists() && !data.join("control.db-wal").exists());
        assert!(data.join("notes.txt").exists(), "only what the store makes is removed");
        making.finish().unwrap();
        assert_eq!(look(&data), Ok(Found::Ready));
    }

    #[test]
    fn a_directory_without_the_mark_is_somebody_elses_unless_it_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!((look(dir.path()), refuse(dir.path())), (Ok(Found::Nothing), Ok(())));
        fs::write(dir.path().join("FORMAT"), "sealog embedded 1\n").unwrap();
        assert!(look(dir.path()).unwrap_err().contains("is not the directory of a demo"));
        fs::write(dir.path().join(FILE), "sealog demo 2\nready\n").unwrap();
        assert!(look(dir.path()).unwrap_err().contains("of another version"));
        assert!(refuse(dir.path()).unwrap_err().contains("sealog demo"));
    }
}
