//! The spool: what could not be sent, kept in a file until it can.
//!
//! A line is a batch with its idempotency key, so that a batch that was heard although nobody answered counts
//! once. Two files beside it are locks. `.sending` has the one command that sends the spool, for as long as
//! that takes; `.lock` has whoever reads or writes a line, so that commands which have something to keep wait
//! for a sync of the disk and never for the service.

use std::cell::Cell;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// More than any line of a spool has: a batch is a request, and that has 2 MB at most.
const LINE_MAX: u64 = 4 << 20;
/// As much of a spool is counted: a long one is not read to its end only to say how long it is.
const COUNTED_MAX: u64 = 64 << 20;

/// Events that travel together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Batch {
    pub idempotency_key: String,
    pub events: Vec<Box<RawValue>>,
}

#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
    /// Whether the name of the file is known to be on stable storage.
    is_name_synced: Cell<bool>,
}

/// The right to send what is in the spool. Others may append to it meanwhile.
#[derive(Debug)]
pub(super) struct Sending<'a> {
    spool: &'a Spool,
    _lock: File,
}

/// What stands at a place of the spool, and where that ends.
#[derive(Debug)]
pub(super) enum Found {
    End {
        at: u64,
    },
    Batch {
        batch: Batch,
        next: u64,
    },
    Damaged {
        why: String,
        /// It is the last line and has no end: whoever wrote it was ended, and has told nobody that it is
        /// kept.
        is_torn: bool,
        next: u64,
    },
}

/// How many events wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub events: u64,
    /// No more than these.
    is_all: bool,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.events, self.is_all) {
            (1, true) => write!(f, "1 event waits"),
            (events, true) => write!(f, "{} events wait", HumanCount(events)),
            (events, false) => write!(f, "more than {} events wait", HumanCount(events)),
        }
    }
}

impl Spool {
    pub(super) fn new(path: PathBuf) -> Spool {
        Spool { path, is_name_synced: Cell::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0) || !self.path.exists()
    }

    /// Lines that are damaged count as none.
    pub(super) fn waiting(&self) -> io::Result<Waiting> {
        #[derive(Deserialize)]
        struct Line {
            events: Vec<IgnoredAny>,
        }
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Waiting { events: 0, is_all: true });
            }
            Err(error) => return Err(error),
        };
        let is_all = file.metadata()?.len() <= COUNTED_MAX;
        let mut reader = BufReader::new(file.take(COUNTED_MAX));
        let (mut events, mut line) = (0, Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            events += serde_json::from_slice(&line).map_or(0, |line: Line| line.events.len() as u64);
            line.clear();
        }
        Ok(Waiting { events, is_all })
    }

    /// On stable storage when it returns, with its name and those of directories that were made for it.
    pub(super) fn append(&self, batch: &Batch) -> io::Result<()> {
        let _lock = self.lock()?;
        let is_new = !self.path.exists();
        let mut file = private().open(&self.path)?;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        let before = file.seek(SeekFrom::End(0))?;
        let mut line = Vec::new();
        // A line that somebody else could not finish stays apart from this one.
        if before > 0 && last_byte(&file, before)? != b'\n' {
            line.push(b'\n');
        }
        append_line(&mut line, batch)?;
        if let Err(error) = file.write_all(&line).and_then(|()| file.sync_all()) {
            // Half a line would be no batch.
            let _ = file.set_len(before);
            return Err(error);
        }
        // Whoever made the file may have been ended before its name was synced.
        if is_new || !self.is_name_synced.get() {
            sync_dir_of(&self.path)?;
            self.is_name_synced.set(true);
        }
        Ok(())
    }

    /// Nothing while another command sends it.
    pub(super) fn sending(&self) -> io::Result<Option<Sending<'_>>> {
        self.create_dir()?;
        let lock = private().open(self.path.with_added_extension("sending"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Sending { spool: self, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// For one line or one change.
    fn lock(&self) -> io::Result<File> {
        self.create_dir()?;
        let lock = private().open(self.path.with_added_extension("lock"))?;
        lock.lock()?;
        Ok(lock)
    }

    fn create_dir(&self) -> io::Result<()> {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).map_or(Ok(()), create_dirs)
    }
}

/// Each of them is synced into the one above it.
fn create_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_dirs(above)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => sync_dir_of(dir),
        // Another command was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Events can be anything: nobody else is to read them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o600);
    options
}

fn last_byte(file: &File, length: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, length - 1)?;
    Ok(byte[0])
}

fn append_line(text: &mut Vec<u8>, batch: &Batch) -> io::Result<()> {
    let from = text.len();
    serde_json::to_writer(&mut *text, batch)?;
    // A line break of JSON stands between values, where a space says the same.
    text[from..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    text.push(b'\n');
    Ok(())
}

impl Sending<'_> {
    /// What begins at this byte.
    pub(super) fn at(&self, offset: u64) -> io::Result<Found> {
        let _lock = self.spool.lock()?;
        let Some(mut file) = self.open()? else { return Ok(Found::End { at: offset }) };
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file);
        let (mut line, mut length) = (Vec::new(), 0);
        // An empty line is the end of one that was torn, and was set aside or sent without it.
        while line.trim_ascii().is_empty() {
            line.clear();
            let read = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)? as u64;
            if read == 0 {
                return Ok(Found::End { at: offset + length });
            }
            length += read;
        }
        let mut is_ended = line.ends_with(b"\n");
        let is_long = !is_ended && line.len() as u64 == LINE_MAX;
        let mut more = Vec::new();
        while is_long && !is_ended {
            more.clear();
            let read = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut more)? as u64;
            if read == 0 {
                break;
            }
            length += read;
            is_ended = more.ends_with(b"\n");
        }
        let next = offset + length;
        let why = match serde_json::from_slice::<Batch>(&line) {
            _ if is_long => "it is longer than any batch".to_owned(),
            Ok(batch) if batch.events.is_empty() => "it has no events".to_owned(),
            Ok(batch) => return Ok(Found::Batch { batch, next }),
            Err(error) => error.to_string(),
        };
        Ok(Found::Damaged { why, is_torn: !is_ended, next })
    }

    /// Copies what is no batch to a file beside the spool, from which a person may still save something.
    pub(super) fn set_aside(&self, from: u64, to: u64) -> io::Result<PathBuf> {
        let path = self.spool.path.with_added_extension("damaged");
        let Some(mut file) = self.open()? else { return Ok(path) };
        file.seek(SeekFrom::Start(from))?;
        let mut aside = private().open(&path)?;
        io::copy(&mut file.take(to - from), &mut aside)?;
        let length = aside.seek(SeekFrom::End(0))?;
        if length > 0 && last_byte(&aside, length)? != b'\n' {
            aside.write_all(b"\n")?;
        }
        aside.sync_all()?;
        sync_dir_of(&path)?;
        Ok(path)
    }

    /// Takes away what stands before this byte, because it was sent or set aside, and puts these in its
    /// place. A crash in between leaves everything as it was, and it is sent again with the same keys.
    pub(super) fn forget_before(&self, offset: u64, instead: &[Batch]) -> io::Result<()> {
        if offset == 0 {
            return Ok(());
        }
        let _lock = self.spool.lock()?;
        let Some(mut file) = self.open()? else { return Ok(()) };
        let path = &self.spool.path;
        if file.metadata()?.len() <= offset && instead.is_empty() {
            std::fs::remove_file(path)?;
            return sync_dir_of(path);
        }
        file.seek(SeekFrom::Start(offset))?;
        let rest_path = path.with_added_extension("rest");
        let mut rest =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&rest_path)?;
        let mut first = Vec::new();
        for batch in instead {
            append_line(&mut first, batch)?;
        }
        rest.write_all(&first)?;
        io::copy(&mut file, &mut rest)?;
        rest.sync_all()?;
        std::fs::rename(&rest_path, path)?;
        sync_dir_of(path)
    }

    fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.spool.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn sync_dir_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(name: &str) -> Batch {
        let event =
            RawValue::from_string(format!("{{\"action\":\"{name}\",\n\"metadata\":{{\"n\":1.0e5}}}}"))
                .unwrap();
        Batch { idempotency_key: format!("key-{name}"), events: vec![event] }
    }

    /// Keys of batches; what is damaged is a line of its own.
    fn found(spool: &Spool) -> Vec<String> {
        let sending = spool.sending().unwrap().unwrap();
        let (mut at, mut found) = (0, Vec::new());
        loop {
            match sending.at(at).unwrap() {
                Found::End { .. } => return found,
                Found::Batch { batch, next } => {
                    assert!(batch.events[0].get().contains("1.0e5"), "as it was read");
                    found.push(batch.idempotency_key);
                    at = next;
                }
                Found::Damaged { is_torn, next, .. } => {
                    found.push(if is_torn { "torn" } else { "damaged" }.to_owned());
                    at = next;
                }
            }
        }
    }

    fn waiting(spool: &Spool) -> String {
        spool.waiting().unwrap().to_string()
    }

    #[test]
    fn what_was_not_sent_stays_in_its_order_and_what_was_sent_goes() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("deep/spool"));
        assert!(spool.is_empty());
        assert_eq!(waiting(&spool), "0 events wait");
        for name in ["a", "b", "c"] {
            spool.append(&batch(name)).unwrap();
        }
        assert_eq!(found(&spool), ["key-a", "key-b", "key-c"]);
        assert_eq!(waiting(&spool), "3 events wait");
        let sending = spool.sending().unwrap().unwrap();
        let Found::Batch { next: second, .. } = sending.at(0).unwrap() else { panic!("there is one") };
        sending.forget_before(second, &[]).unwrap();
        drop(sending);
        assert_eq!(found(&spool), ["key-b", "key-c"]);
        // Half of a batch was sent: the other half takes its place.
        let sending = spool.sending().unwrap().unwrap();
        let Found::Batch { next: second, .. } = sending.at(0).unwrap() else { panic!("there is one") };
        sending.forget_before(second, &[batch("b-2")]).unwrap();
        drop(sending);
        assert_eq!(found(&spool), ["key-b-2", "key-c"]);
        let sending = spool.sending().unwrap().unwrap();
        let length = std::fs::metadata(spool.path()).unwrap().len();
        sending.forget_before(length, &[]).unwrap();
        drop(sending);
        assert!(spool.is_empty());
    }

    #[test]
    fn while_one_command_sends_it_others_append_and_do_not_send() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"));
        spool.append(&batch("a")).unwrap();
        let sending = spool.sending().unwrap().unwrap();
        let Found::Batch { next, .. } = sending.at(0).unwrap() else { panic!("there is one") };
        let other = Spool::new(spool.path().to_owned());
        assert!(other.sending().unwrap().is_none());
        other.append(&batch("b")).unwrap();
        sending.forget_before(next, &[]).unwrap();
        drop(sending);
        assert_eq!(found(&other), ["key-b"]);
    }

    #[test]
    fn a_line_that_was_not_finished_or_is_damaged_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"));
        for name in ["a", "b", "c"] {
            spool.append(&batch(name)).unwrap();
        }
        let mut text = std::fs::read(spool.path()).unwrap();
        let second = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        text[second + 4] = 0xff;
        text.truncate(text.len() - 9);
        std::fs::write(spool.path(), &text).unwrap();
        assert_eq!(found(&spool), ["key-a", "damaged", "torn"]);
        spool.append(&batch("d")).unwrap();
        assert_eq!(found(&spool), ["key-a", "damaged", "damaged", "key-d"]);
        // What was torn was set aside, and meanwhile another command has appended something.
        let text = std::fs::read(spool.path()).unwrap();
        std::fs::write(spool.path(), [b"\n".as_slice(), &text].concat()).unwrap();
        assert_eq!(found(&spool), ["key-a", "damaged", "damaged", "key-d"]);
        std::fs::write(spool.path(), b"\n\n").unwrap();
        let end = spool.sending().unwrap().unwrap().at(0).unwrap();
        assert!(matches!(end, Found::End { at: 2 }), "so that nothing is left of it: {end:?}");
        // A line that lacks nothing but its end is a batch.
        std::fs::write(spool.path(), text.trim_ascii_end()).unwrap();
        assert_eq!(found(&spool), ["key-a", "damaged", "damaged", "key-d"]);
        // And one that no batch could be as long as.
        let long = vec![b'x'; usize::try_from(LINE_MAX).unwrap() * 2 + 5];
        std::fs::write(spool.path(), [long.as_slice(), b"\n", &text].concat()).unwrap();
        assert_eq!(found(&spool), ["damaged", "key-a", "damaged", "damaged", "key-d"]);
        let sending = spool.sending().unwrap().unwrap();
        let aside = sending.set_aside(0, long.len() as u64 + 1).unwrap();
        sending.set_aside(0, 2).unwrap();
        assert_eq!(std::fs::read(&aside).unwrap(), [long.as_slice(), b"\nxx\n"].concat());
        assert_eq!(std::fs::metadata(&aside).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_the_owner_can_read_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let spool = Spool::new(dir.path().join("deep/deeper/spool"));
        spool.append(&batch("a")).unwrap();
        assert_eq!(mode(spool.path()), 0o600);
        assert_eq!([mode(&dir.path().join("deep")), mode(&dir.path().join("deep/deeper"))], [0o700; 2]);
        std::fs::set_permissions(spool.path(), Permissions::from_mode(0o644)).unwrap();
        spool.append(&batch("b")).unwrap();
        assert_eq!(mode(spool.path()), 0o600);
    }
}
