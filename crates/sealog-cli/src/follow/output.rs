//! Where events go, and how far they have come.
//!
//! ```text
//! t0  events are appended to the output file
//! t1  the file is synced
//! t2  a new cursor (last event, length of the file) is written beside the old one, synced, and takes its
//!     place
//! ```
//!
//! A crash before t2 leaves the old cursor and a file that is longer than it says: the rest is cut off and
//! fetched again. A crash after t2 leaves both as they should be. All of this is done by a thread of its own,
//! one commit after the other, while the next events are fetched.
//!
//! With `--rotate` a file that is full, or of another day, makes room for a new one:
//!
//! ```text
//! t0  the cursor covers all of the file
//! t1  the file is renamed: FILE.SEQ, the chain_seq that the cursor has
//! t2  a new cursor has an empty file
//! ```
//!
//! A crash before t2 leaves a cursor whose file is gone, and beside it the file of that name and content: the
//! next command continues with an empty file.
//!
//! Nothing is cut off another file: the cursor has a digest of what the file ended with, and a file that has
//! something else there is refused as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use super::super::exit::{Exit, Failure};
use super::super::file_flags;
use super::super::format::Format;
use super::super::listing::Filters;
use super::super::output;
use crate::files;

/// How far the chain was read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Position {
    pub chain: String,
    /// Everything up to this event was looked at.
    pub seq: u64,
    /// The last event that was written.
    pub last: Option<Noted>,
    /// The newest event that the service has shown, written or not.
    pub newest: Noted,
}

/// An event that the service had.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Noted {
    pub seq: u64,
    pub hash: String,
}

const VERSION: u32 = 1;
/// Of the end of the output, as much as tells it from another file: the hash of an event stands in it.
const TAIL_BYTES: u64 = 4 << 10;

/// The cursor file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    sealog_follow: u32,
    position: Position,
    /// How long the output file was; nothing for a pipe.
    bytes: Option<u64>,
    /// SHA-256 of what it ended with; nothing for a pipe.
    tail: Option<String>,
    /// Its inode: tells it from another file as long as nothing was written.
    inode: Option<u64>,
    /// The day on which it was begun, since 1970.
    #[serde(default)]
    day: Option<u64>,
    format: String,
    filters: Vec<(String, String)>,
}

/// When a new output file begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rotate {
    #[default]
    Never,
    /// Before it has more bytes than these.
    Bytes(u64),
    /// With the first event of a day, in UTC.
    Day,
}

impl Rotate {
    /// `day`, or a size such as `500K`, `100M` or `2G`.
    pub(super) fn parse(text: &str) -> Result<Rotate, String> {
        let wrong = || "give day, or a size of at least 1K such as 100M or 2G".to_owned();
        if text == "day" {
            return Ok(Rotate::Day);
        }
        let unit = text.chars().last().and_then(|unit| "KMG".find(unit)).ok_or_else(wrong)?;
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << (10 * (unit + 1))).filter(|bytes| *bytes > 0);
        bytes.map(Rotate::Bytes).ok_or_else(wrong)
    }
}

/// Days since 1970.
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400
}

pub(super) struct Output {
    /// Nothing while a commit is under way.
    files: Option<Files>,
    under_way: Option<JoinHandle<Committed>>,
    pending: Vec<u8>,
    /// For the next events, while others are committed.
    spare: Vec<u8>,
    /// Set when the output file was moved away: the next commit begins another one.
    pub must_reopen: Arc<AtomicBool>,
    position: Option<Position>,
}

/// The files, what was written, and whether somebody is left to read it.
type Committed = (Files, Vec<u8>, Result<bool, Failure>);

/// Both files, and what is known of them.
struct Files {
    file: Option<(PathBuf, File)>,
    /// Of the file, what is synced.
    bytes: u64,
    /// What that ends with.
    tail: Vec<u8>,
    inode: Option<u64>,
    day: u64,
    rotate: Rotate,
    today: fn() -> u64,
    /// Whether the file at the path may be another one, which logrotate has made room for.
    must_reopen: Arc<AtomicBool>,
    /// Where the cursor is.
    at: Option<Position>,
    cursor: Option<PathBuf>,
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
        rotate: Rotate,
    ) -> Result<Output, Failure> {
        let must_reopen = Arc::new(AtomicBool::new(false));
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
                "{} was started with {}, which differs from this command line: use the same flags, or another cursor file and output",
                cursor.display(),
                described(kept)
            )));
        }
        let mut files = Files {
            file: None,
            bytes: 0,
            tail: Vec::new(),
            inode: None,
            day: today(),
            rotate,
            today,
            must_reopen: Arc::clone(&must_reopen),
            at: kept.as_ref().map(|kept| kept.position.clone()),
            cursor,
            format,
            filters,
            _lock: lock,
        };
        if let Some(path) = path {
            let kept = kept.as_ref().filter(|kept| !files.was_rotated(&path, kept));
            files.open(path, kept)?;
            files.day = kept.and_then(|kept| kept.day).unwrap_or_else(today);
        }
        Ok(Output {
            files: Some(files),
            under_way: None,
            pending: Vec::new(),
            spare: Vec::new(),
            must_reopen,
            position: kept.map(|kept| kept.position),
        })
    }

    /// Where an earlier command has come to.
    pub(super) fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn put(&mut self, format: Format, event: &str) -> Result<(), Failure> {
        format.put(event, &mut self.pending)?;
        self.pending.push(b'\n');
        Ok(())
    }

    /// Has what was put written, after everything before it; false if nobody is left to read it. Whether this
    /// succeeds is known after [`Output::settle`], or the next commit.
    pub(super) async fn commit(&mut self, position: &Position) -> Result<bool, Failure> {
        if !self.settle().await? {
            return Ok(false);
        }
        let mut files = self.files.take().expect("none is under way");
        let pending = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
        let position = position.clone();
        self.under_way = Some(tokio::task::spawn_blocking(move || {
            let committed = files.commit(&pending, &position);
            (files, pending, committed)
        }));
        Ok(true)
    }

    /// What was committed is written and stays; false if nobody is left to read it.
    pub(super) async fn settle(&mut self) -> Result<bool, Failure> {
        let Some(under_way) = &mut self.under_way else { return Ok(true) };
        let ended = under_way.await;
        self.under_way = None;
        let (files, mut pending, committed) = ended.map_err(|error| {
            Failure::new(Exit::Failure, format!("cannot write the output any more: {error}"))
        })?;
        pending.clear();
        (self.files, self.spare) = (Some(files), pending);
        committed
    }
}

impl Files {
    /// Whether a crash came between the two steps of a rotation: the file is beside its path.
    fn was_rotated(&self, path: &Path, kept: &Cursor) -> bool {
        let bytes = kept.bytes.unwrap_or(0);
        let mut tail = vec![0; tail_length(bytes)];
        let is_gone = std::fs::metadata(path).map_or(true, |file| file.len() == 0);
        let rotated = File::open(rotated(path, &kept.position));
        let from = bytes - tail.len() as u64;
        let is_read = rotated.and_then(|file| file.read_exact_at(&mut tail, from)).is_ok();
        bytes > 0 && is_gone && is_read && kept.tail == Some(digest(&tail))
    }

    /// Begins another file, if this one is full, of another day, or was moved away.
    fn rotate(&mut self, pending: u64) -> Result<(), Failure> {
        let (Some((path, _)), Some(at)) = (&self.file, &self.at) else { return Ok(()) };
        let is_due = self.bytes > 0
            && match self.rotate {
                Rotate::Never => false,
                Rotate::Bytes(most) => pending > 0 && self.bytes + pending > most,
                Rotate::Day => pending > 0 && (self.today)() != self.day,
            };
        let bad = |error: io::Error| file_flags::unwritable(path, &error);
        let is_moved = self.must_reopen.swap(false, Ordering::Relaxed)
            && std::fs::metadata(path).ok().map(|file| file.ino()) != self.inode;
        if is_due && !is_moved {
            let to = rotated(path, at);
            if to.exists() {
                return Err(Failure::usage(format!("cannot rotate: {} exists; move it away", to.display())));
            }
            std::fs::rename(path, &to).map_err(bad)?;
            files::sync_name(&to).map_err(bad)?;
        }
        if is_due || is_moved {
            let (path, at) = (path.clone(), at.clone());
            self.open(path, None)?;
            self.day = (self.today)();
            self.note(&at)?;
        }
        Ok(())
    }

    fn open(&mut self, path: PathBuf, kept: Option<&Cursor>) -> Result<(), Failure> {
        let shown = path.display();
        let cursor = self.cursor.as_ref().map(|cursor| cursor.display().to_string()).unwrap_or_default();
        let bad = |error: io::Error| file_flags::unwritable(&path, &error);
        // Events can be anything: nobody else is to read them.
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(&path).map_err(bad)?;
        let metadata = file.metadata().map_err(bad)?;
        let (length, inode) = (metadata.len(), Some(metadata.ino()));
        let bytes = kept.map_or(0, |kept| kept.bytes.unwrap_or(0));
        match kept {
            None if length > 0 => {
                return Err(Failure::usage(format!(
                    "{shown} has {length} bytes but no cursor file {cursor}: give the cursor file it was written with, or another output"
                )));
            }
            Some(_) if length < bytes => {
                return Err(Failure::usage(format!(
                    "{shown} has {length} bytes, but {bytes} were written to it: it was truncated or replaced. Restore it; or, if you moved it away whole, remove the cursor file and start with --from"
                )));
            }
            _ => {}
        }
        let mut tail = vec![0; tail_length(bytes)];
        let from = bytes - tail.len() as u64;
        file.read_exact_at(&mut tail, from).map_err(bad)?;
        let is_ours = match kept {
            Some(kept) if bytes == 0 => length == 0 || kept.inode == inode,
            Some(Cursor { tail: known, .. }) => *known == Some(digest(&tail)),
            None => true,
        };
        if !is_ours {
            return Err(Failure::usage(format!(
                "{shown} is not the output of {cursor}, or was changed: its content before byte {bytes} differs. The file is unchanged; give the cursor file it was written with, or another output"
            )));
        }
        if length > bytes {
            file.set_len(bytes).map_err(bad)?;
        }
        file.seek(SeekFrom::Start(bytes)).map_err(bad)?;
        // The cursor must not outlive the name of the file that it counts.
        files::sync_name(&path).map_err(bad)?;
        (self.file, self.bytes, self.tail, self.inode) = (Some((path, file)), bytes, tail, inode);
        Ok(())
    }

    /// Writes this, and that the chain was read so far; false if nobody is left to read it.
    fn commit(&mut self, pending: &[u8], position: &Position) -> Result<bool, Failure> {
        self.rotate(pending.len() as u64)?;
        match &mut self.file {
            Some((path, file)) => {
                let unwritten = |error| {
                    Failure::new(
                        Exit::Failure,
                        format!("cannot write {}: {error}; the file keeps the events so far", path.display()),
                    )
                };
                if !pending.is_empty() {
                    file.write_all(pending).map_err(unwritten)?;
                    file.sync_data().map_err(unwritten)?;
                    self.bytes += pending.len() as u64;
                    self.tail
                        .extend_from_slice(&pending[pending.len() - tail_length(pending.len() as u64)..]);
                    self.tail.drain(..self.tail.len() - tail_length(self.bytes));
                }
            }
            None if pending.is_empty() => {}
            None => {
                if !output::put_bytes(pending)? {
                    return Ok(false);
                }
            }
        }
        self.note(position)?;
        Ok(true)
    }

    /// Replaces the cursor file.
    fn note(&mut self, position: &Position) -> Result<(), Failure> {
        self.at = Some(position.clone());
        let Some(cursor) = &self.cursor else { return Ok(()) };
        let kept = Cursor {
            sealog_follow: VERSION,
            position: position.clone(),
            bytes: self.file.is_some().then_some(self.bytes),
            tail: self.file.is_some().then(|| digest(&self.tail)),
            inode: self.inode,
            day: self.file.is_some().then_some(self.day),
            format: self.format.name().to_owned(),
            filters: self.filters.clone(),
        };
        let mut text = serde_json::to_vec(&kept).expect("texts and numbers");
        text.push(b'\n');
        files::write_new(cursor, &text).map_err(|error| {
            Failure::new(Exit::Failure, format!("cannot write {}: {error}", cursor.display()))
        })
    }
}

/// The name of a file whose last event has this place. Names sort as events do.
fn rotated(path: &Path, at: &Position) -> PathBuf {
    path.with_added_extension(format!("{:012}", at.seq))
}

/// Of two commands with one cursor file, each event would come twice.
fn lock(cursor: &Path) -> Result<File, Failure> {
    let path = cursor.with_added_extension("lock");
    let bad = |error: io::Error| file_flags::unwritable(&path, &error);
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(bad)?;
    file.try_lock().map_err(|_| {
        Failure::usage(format!(
            "another command uses {}: stop it, or use another cursor file and output",
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
        Err(error) => {
            return Err(bad(format!("cannot read it: {error}; give another file with --cursor-file")));
        }
    };
    let cursor: Cursor = serde_json::from_slice(&text).map_err(|error| {
        bad(format!(
            "not a valid cursor file ({error}): give another one, or remove it and the output to start over"
        ))
    })?;
    if cursor.sealog_follow != VERSION {
        return Err(bad(format!(
            "it was written by another version of this program ({}): use that version",
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

fn tail_length(bytes: u64) -> usize {
    usize::try_from(bytes.min(TAIL_BYTES)).expect("a few")
}

fn digest(tail: &[u8]) -> String {
    hex::encode(Sha256::digest(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json() -> Format {
        Format::parse("json").unwrap()
    }

    fn open(dir: &Path) -> Result<Output, Failure> {
        rotating(dir, Rotate::Never)
    }

    fn rotating(dir: &Path, rotate: Rotate) -> Result<Output, Failure> {
        Output::open(Some(dir.join("out")), None, json(), &Filters::default(), rotate)
    }

    /// Names and contents of the output files.
    fn outputs(dir: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<(String, String)> = entries
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
            .filter(|(name, _)| !name.contains("cursor"))
            .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
            .collect();
        found.sort();
        found
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_size_or_a_day_makes_room_for_a_new_file_and_every_event_is_in_one() {
        assert_eq!(Rotate::parse("2K"), Ok(Rotate::Bytes(2048)));
        assert_eq!(Rotate::parse("day"), Ok(Rotate::Day));
        for wrong in ["", "K", "0K", "-1M", "5", "5T", "1é", "99999999999G"] {
            assert!(Rotate::parse(wrong).is_err(), "{wrong}");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut output = rotating(dir.path(), Rotate::Bytes(4)).unwrap();
        for seq in 1..=5 {
            put(&mut output, &seq.to_string());
            commit(&mut output, seq);
        }
        drop(output);
        let wanted = [("out", "5\n"), ("out.000000000002", "1\n2\n"), ("out.000000000004", "3\n4\n")];
        assert_eq!(outputs(dir.path()), named(&wanted));
        // By the day on which a file was begun, also if that was another command.
        let mut output = rotating(dir.path(), Rotate::Day).unwrap();
        put(&mut output, "6");
        commit(&mut output, 6);
        output.files.as_mut().unwrap().today = || today() + 1;
        commit(&mut output, 7);
        put(&mut output, "8");
        commit(&mut output, 8);
        let wanted = [&wanted[1..], &[("out.000000000007", "5\n6\n")]].concat();
        assert_eq!(outputs(dir.path()), named(&[&[("out", "8\n")], &wanted[..]].concat()));
    }

    #[test]
    fn a_crash_in_the_middle_of_a_rotation_loses_and_doubles_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = rotating(dir.path(), Rotate::Bytes(4)).unwrap();
        put(&mut output, "1");
        commit(&mut output, 1);
        drop(output);
        std::fs::rename(dir.path().join("out"), dir.path().join("out.000000000001")).unwrap();
        let mut output = rotating(dir.path(), Rotate::Bytes(4)).unwrap();
        assert_eq!(output.position(), Some(&at(1)));
        put(&mut output, "2");
        commit(&mut output, 2);
        drop(output);
        assert_eq!(outputs(dir.path()), named(&[("out", "2\n"), ("out.000000000001", "1\n")]));
        // A file of that name with something else in it is no reason to go on.
        std::fs::rename(dir.path().join("out"), dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("out.000000000002"), "x\n").unwrap();
        assert!(rotating(dir.path(), Rotate::Bytes(4)).is_err());
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew_when_asked_and_another_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = open(dir.path()).unwrap();
        put(&mut output, "1");
        commit(&mut output, 1);
        let reopen = |output: &Output| output.must_reopen.store(true, Ordering::Relaxed);
        // Nothing has happened to it.
        reopen(&output);
        put(&mut output, "2");
        commit(&mut output, 2);
        std::fs::rename(dir.path().join("out"), dir.path().join("old")).unwrap();
        reopen(&output);
        commit(&mut output, 2);
        put(&mut output, "3");
        commit(&mut output, 3);
        assert_eq!(outputs(dir.path()), named(&[("old", "1\n2\n"), ("out", "3\n")]));
        drop(output);
        let mut output = open(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join("out"), "evidence\n").unwrap();
        reopen(&output);
        let refused = super::super::super::connect::block_on(async {
            output.commit(&at(3)).await?;
            output.settle().await
        });
        assert!(refused.is_err() && std::fs::read(dir.path().join("out")).unwrap() == b"evidence\n");
    }

    fn put(output: &mut Output, text: &str) {
        output.put(json(), text).unwrap();
    }

    fn commit(output: &mut Output, seq: u64) {
        super::super::super::connect::block_on(async {
            assert!(output.commit(&at(seq)).await? && output.settle().await?);
            Ok(())
        })
        .unwrap();
    }

    fn at(seq: u64) -> Position {
        Position { chain: "c".into(), seq, last: None, newest: Noted { seq, hash: "h".into() } }
    }

    #[test]
    fn what_was_not_committed_is_cut_off_and_what_was_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = open(dir.path()).unwrap();
        put(&mut output, "1");
        commit(&mut output, 1);
        drop(output);
        // A crash after a part of the next write.
        let path = dir.path().join("out");
        std::fs::write(&path, "1\n{\"half\"").unwrap();
        let mut output = open(dir.path()).unwrap();
        assert_eq!(output.position(), Some(&at(1)));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        put(&mut output, "2");
        commit(&mut output, 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn a_longer_file_that_the_cursor_does_not_belong_to_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = open(dir.path()).unwrap();
        for number in ["12345", "67890"] {
            put(&mut output, number);
            commit(&mut output, 1);
        }
        drop(output);
        let refused_with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let refused = open(dir.path()).err().unwrap();
            let is_said = refused.exit == Exit::Usage && refused.message.contains("is not the output of");
            assert!(is_said, "{text:?}: {}", refused.message);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        };
        // In the middle of a line, behind another line, and no longer than what was written.
        for other in ["a line of another file\n", "12345\n67891\nmore\n", "12345\n67891\n"] {
            refused_with(other);
        }
        // The digest covers what several commits have written.
        std::fs::write(&path, "12345\n67890\nhalf a li").unwrap();
        assert!(open(dir.path()).is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "12345\n67890\n");
    }

    #[test]
    fn where_nothing_was_committed_another_file_is_left_alone_and_what_was_written_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = open(dir.path()).unwrap();
        commit(&mut output, 0);
        drop(output);
        // A crash after a part of the first write.
        std::fs::write(&path, "{\"half\"").unwrap();
        drop(open(dir.path()).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        let other = dir.path().join("other");
        std::fs::write(&other, "evidence\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let refused = open(dir.path()).err().unwrap();
        assert!(refused.message.contains("is not the output of"), "{}", refused.message);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "evidence\n");
    }

    #[test]
    fn a_file_that_is_longer_than_its_digest_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let mut output = open(dir.path()).unwrap();
            for _ in 0..3 {
                put(&mut output, &"7".repeat(1500 + round));
                commit(&mut output, 1);
            }
            put(&mut output, &"8".repeat(9000));
            commit(&mut output, 1);
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("out")).unwrap().lines().count(), 16);
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
        commit(&mut output, 1);
        let second = open(dir.path()).err().unwrap();
        assert!(second.message.contains("another command"), "{}", second.message);
        drop(output);
        std::fs::write(&path, "12").unwrap();
        let refused = open(dir.path()).err().unwrap();
        assert!(refused.message.contains("truncated or replaced"), "{}", refused.message);
        std::fs::write(dir.path().join("out.cursor"), "{}").unwrap();
        assert!(open(dir.path()).err().unwrap().message.contains("not a valid cursor file"));
    }
}
