//! Where events go, and how far they have come.
//!
//! ```text
//! t0  events are appended to the output file
//! t1  the file is synced
//! t2  a new cursor (last event, length of the file) is written beside the old one, synced, and takes its place
//! ```
//!
//! A crash before t2 leaves the old cursor and a file that is longer than it says: the rest is cut off and fetched again. A crash after t2 leaves both as they should be.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::exit::{Exit, Failure};
use super::super::format::Format;
use super::super::listing::Filters;
use super::super::output;

/// How far the chain was read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Position {
    pub chain: String,
    /// Everything up to this event was looked at.
    pub seq: u64,
    /// The last event that was written.
    pub last: Option<Noted>,
    /// The newest event that the service has shown, written or not; nothing in files of earlier versions.
    #[serde(default)]
    pub newest: Option<Noted>,
}

/// An event that the service had.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Noted {
    pub seq: u64,
    pub hash: String,
}

const VERSION: u32 = 1;

/// The cursor file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    sealog_follow: u32,
    position: Position,
    /// How long the output file was; nothing for a pipe.
    bytes: Option<u64>,
    format: String,
    filters: Vec<(String, String)>,
}

pub(super) struct Output {
    file: Option<(PathBuf, File)>,
    /// Of the file, what is synced.
    bytes: u64,
    pending: Vec<u8>,
    cursor: Option<PathBuf>,
    position: Option<Position>,
    format: Format,
    filters: Vec<(String, String)>,
    /// Held as long as this is used.
    _lock: Option<File>,
}

impl Output {
    /// Opens both files and cuts off what the last command had not committed.
    pub(super) fn open(
        path: Option<PathBuf>,
        cursor: Option<PathBuf>,
        format: Format,
        filters: &Filters,
    ) -> Result<Output, Failure> {
        let cursor = cursor.or_else(|| path.as_ref().map(|path| path.with_added_extension("cursor")));
        let lock = cursor.as_deref().map(lock).transpose()?;
        let filters: Vec<(String, String)> =
            filters.pairs().iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let kept = match &cursor {
            Some(cursor) => read_cursor(cursor)?,
            None => None,
        };
        if let (Some(kept), Some(cursor)) = (&kept, &cursor)
            && (kept.format != format.name()
                || kept.filters != filters
                || kept.bytes.is_some() != path.is_some())
        {
            return Err(Failure::usage(format!(
                "{} was begun with {}, and this command line asks for something else: give the same, or another cursor file and output",
                cursor.display(),
                described(kept)
            )));
        }
        let (file, bytes) = match path {
            None => (None, 0),
            Some(path) => {
                let (file, bytes) = open_file(&path, cursor.as_deref(), kept.as_ref())?;
                (Some((path, file)), bytes)
            }
        };
        let position = kept.map(|kept| kept.position);
        Ok(Output { file, bytes, pending: Vec::new(), cursor, position, format, filters, _lock: lock })
    }

    /// Where an earlier command has come to.
    pub(super) fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn put(&mut self, format: Format, event: &RawValue) -> Result<(), Failure> {
        format.put(event, &mut self.pending)?;
        self.pending.push(b'\n');
        Ok(())
    }

    /// What was put is written and stays; false if nobody is left to read it.
    pub(super) fn commit(&mut self, position: &Position) -> Result<bool, Failure> {
        match &mut self.file {
            Some((path, file)) => {
                let unwritten = |error| {
                    Failure::new(
                        Exit::Failure,
                        format!("{} cannot be written: {error}; what is in it so far stays", path.display()),
                    )
                };
                if !self.pending.is_empty() {
                    file.write_all(&self.pending).map_err(unwritten)?;
                    file.sync_data().map_err(unwritten)?;
                    self.bytes += self.pending.len() as u64;
                }
            }
            None if self.pending.is_empty() => {}
            None => {
                if !output::put_bytes(&self.pending)? {
                    return Ok(false);
                }
            }
        }
        self.pending.clear();
        let Some(cursor) = &self.cursor else { return Ok(true) };
        let kept = Cursor {
            sealog_follow: VERSION,
            position: position.clone(),
            bytes: self.file.is_some().then_some(self.bytes),
            format: self.format.name().to_owned(),
            filters: self.filters.clone(),
        };
        replace(cursor, &kept).map_err(|error| {
            Failure::new(Exit::Failure, format!("{} cannot be written: {error}", cursor.display()))
        })?;
        Ok(true)
    }
}

/// Of two commands with one cursor file, each event would come twice.
fn lock(cursor: &Path) -> Result<File, Failure> {
    let path = cursor.with_added_extension("lock");
    let bad = |error: io::Error| Failure::usage(format!("{} cannot be written: {error}", path.display()));
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(bad)?;
    file.try_lock().map_err(|_| {
        Failure::usage(format!(
            "another command follows with {}: stop it, or use another cursor file and output",
            cursor.display()
        ))
    })?;
    Ok(file)
}

fn read_cursor(path: &Path) -> Result<Option<Cursor>, Failure> {
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(error.to_string())),
    };
    let cursor: Cursor = serde_json::from_slice(&text).map_err(|error| {
        bad(format!(
            "it is no cursor file ({error}): name another one, or remove it and the output to begin again"
        ))
    })?;
    if cursor.sealog_follow != VERSION {
        return Err(bad(format!(
            "it was written by another version of this program ({}): use that one",
            cursor.sealog_follow
        )));
    }
    Ok(Some(cursor))
}

fn described(Cursor { format, filters, bytes, .. }: &Cursor) -> String {
    let mut text = format!("--format {format}");
    for (name, value) in filters {
        text.push_str(&format!(" --{} {}", name.replace('_', "-"), output::plain(value)));
    }
    text + if bytes.is_some() { " and --output" } else { " and without --output" }
}

fn open_file(path: &Path, cursor: Option<&Path>, kept: Option<&Cursor>) -> Result<(File, u64), Failure> {
    let shown = path.display();
    let bad = |error: io::Error| Failure::usage(format!("{shown} cannot be written: {error}"));
    // Events can be anything: nobody else is to read them.
    let mut options = OpenOptions::new();
    let mut file =
        options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path).map_err(bad)?;
    let length = file.metadata().map_err(bad)?.len();
    let bytes = kept.map_or(0, |kept| kept.bytes.unwrap_or(0));
    match kept {
        None if length > 0 => {
            let cursor = cursor.map(|cursor| cursor.display().to_string()).unwrap_or_default();
            return Err(Failure::usage(format!(
                "{shown} has {length} bytes, and there is no cursor file {cursor} that says which events these are: name the one it was written with, or another output"
            )));
        }
        Some(_) if length < bytes => {
            return Err(Failure::usage(format!(
                "{shown} has {length} bytes, and {bytes} were written to it: it was cut or replaced. Put it back; or, if it was moved away whole, remove the cursor file and begin with --from"
            )));
        }
        _ => {}
    }
    if length > bytes {
        file.set_len(bytes).map_err(bad)?;
    }
    file.seek(SeekFrom::Start(bytes)).map_err(bad)?;
    Ok((file, bytes))
}

/// In one step: a reader finds the old one or the new one.
fn replace(path: &Path, cursor: &Cursor) -> io::Result<()> {
    let new = path.with_added_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(cursor)?)?;
    file.write_all(b"\n")?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json() -> Format {
        Format::parse("json").unwrap()
    }

    fn open(dir: &Path) -> Result<Output, Failure> {
        Output::open(Some(dir.join("out")), None, json(), &Filters::default())
    }

    fn put(output: &mut Output, text: &str) {
        output.put(json(), &RawValue::from_string(text.to_owned()).unwrap()).unwrap();
    }

    fn at(seq: u64) -> Position {
        Position { chain: "c".into(), seq, last: None, newest: None }
    }

    #[test]
    fn what_was_not_committed_is_cut_off_and_what_was_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = open(dir.path()).unwrap();
        put(&mut output, "1");
        output.commit(&at(1)).unwrap();
        drop(output);
        // A crash after a part of the next write.
        let path = dir.path().join("out");
        std::fs::write(&path, "1\n{\"half\"").unwrap();
        let mut output = open(dir.path()).unwrap();
        assert_eq!(output.position(), Some(&at(1)));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        put(&mut output, "2");
        output.commit(&at(2)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, "mine").unwrap();
        let refused = open(dir.path()).err().unwrap();
        assert!(
            refused.exit == Exit::Usage && refused.message.contains("no cursor file"),
            "{}",
            refused.message
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_file(&path).unwrap();
        let mut output = open(dir.path()).unwrap();
        put(&mut output, "12345");
        output.commit(&at(1)).unwrap();
        let second = open(dir.path()).err().unwrap();
        assert!(second.message.contains("another command"), "{}", second.message);
        drop(output);
        std::fs::write(&path, "12").unwrap();
        let refused = open(dir.path()).err().unwrap();
        assert!(refused.message.contains("cut or replaced"), "{}", refused.message);
        std::fs::write(dir.path().join("out.cursor"), "{}").unwrap();
        assert!(open(dir.path()).err().unwrap().message.contains("no cursor file"));
    }
}
