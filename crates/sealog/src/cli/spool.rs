//! The spool: what could not be sent, kept in a file until it can.
//!
//! A line is a batch with its idempotency key, so that a batch that was heard although nobody answered counts once. A file
//! beside it is the lock: of two commands with the same spool, one sends it and the other appends to it before or after.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Events that travel together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Batch {
    pub idempotency_key: String,
    pub events: Vec<Box<RawValue>>,
}

#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
}

/// Held while the spool is read or written.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    spool: &'a Spool,
    _lock: File,
}

impl Spool {
    pub(super) fn new(path: PathBuf) -> Spool {
        Spool { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something waits.
    pub(super) fn is_empty(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0) || !self.path.exists()
    }

    /// Waits for whoever has it.
    pub(super) fn lock(&self) -> io::Result<Locked<'_>> {
        if let Some(dir) = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir)?;
        }
        let lock = private().open(self.path.with_added_extension("lock"))?;
        lock.lock()?;
        Ok(Locked { spool: self, _lock: lock })
    }
}

/// Events can be anything: nobody else is to read them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o600);
    options
}

impl Locked<'_> {
    /// On stable storage when it returns.
    pub(super) fn append(&mut self, batch: &Batch) -> io::Result<()> {
        let is_new = !self.spool.path.exists();
        let mut file = private().open(&self.spool.path)?;
        let before = file.seek(SeekFrom::End(0))?;
        let line = serde_json::to_string(batch)? + "\n";
        if let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.sync_all()) {
            // Half a line would be no batch.
            let _ = file.set_len(before);
            return Err(error);
        }
        if is_new { sync_dir_of(&self.spool.path) } else { Ok(()) }
    }

    /// The batch that begins at this byte, and where the next one does.
    pub(super) fn at(&self, offset: u64) -> io::Result<Option<(Batch, u64)>> {
        let file = match File::open(&self.spool.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let next = offset + line.len() as u64;
        let batch = serde_json::from_slice(&line).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has at byte {offset} what is no batch: {error}"),
            )
        })?;
        Ok(Some((batch, next)))
    }

    /// Takes away what stands before this byte: it was sent. A crash in between leaves it, and it is sent again with the same keys.
    pub(super) fn forget_before(&mut self, offset: u64) -> io::Result<()> {
        if offset == 0 {
            return Ok(());
        }
        let mut file = File::open(&self.spool.path)?;
        if file.metadata()?.len() <= offset {
            std::fs::remove_file(&self.spool.path)?;
            return sync_dir_of(&self.spool.path);
        }
        file.seek(SeekFrom::Start(offset))?;
        let rest_path = self.spool.path.with_added_extension("rest");
        let mut rest =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&rest_path)?;
        io::copy(&mut file, &mut rest)?;
        rest.sync_all()?;
        std::fs::rename(&rest_path, &self.spool.path)?;
        sync_dir_of(&self.spool.path)
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
            RawValue::from_string(format!(r#"{{"action":"{name}","metadata":{{"n":1.0e5}}}}"#)).unwrap();
        Batch { idempotency_key: format!("key-{name}"), events: vec![event] }
    }

    fn keys(spool: &Spool) -> Vec<String> {
        let locked = spool.lock().unwrap();
        let (mut at, mut keys) = (0, Vec::new());
        while let Some((batch, next)) = locked.at(at).unwrap() {
            assert!(batch.events[0].get().contains("1.0e5"), "as it was read");
            keys.push(batch.idempotency_key);
            at = next;
        }
        keys
    }

    #[test]
    fn what_was_not_sent_stays_in_its_order_and_what_was_sent_goes() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("deep/spool"));
        assert!(spool.is_empty());
        for name in ["a", "b", "c"] {
            spool.lock().unwrap().append(&batch(name)).unwrap();
        }
        assert_eq!(keys(&spool), ["key-a", "key-b", "key-c"]);
        let mut locked = spool.lock().unwrap();
        let (_, second) = locked.at(0).unwrap().unwrap();
        locked.forget_before(second).unwrap();
        drop(locked);
        assert_eq!(keys(&spool), ["key-b", "key-c"]);
        let mut locked = spool.lock().unwrap();
        let length = std::fs::metadata(spool.path()).unwrap().len();
        locked.forget_before(length).unwrap();
        drop(locked);
        assert!(spool.is_empty());
    }

    #[test]
    fn a_spool_that_is_damaged_is_an_error_that_says_where_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"));
        spool.lock().unwrap().append(&batch("a")).unwrap();
        let mut text = std::fs::read(spool.path()).unwrap();
        text.truncate(20);
        std::fs::write(spool.path(), &text).unwrap();
        let error = spool.lock().unwrap().at(0).unwrap_err();
        assert!(error.to_string().contains("at byte 0"), "{error}");
        assert_eq!(std::fs::read(spool.path()).unwrap(), text);
    }
}
