//! Events on their way, for a program that sends them itself, as `sealog log` does: in memory, or in a spool
//! that each of the client libraries can continue.
//!
//! ```text
//! t0  put      the event is in the spool
//! t1  take     the batch has a key, which is in the spool before the batch is sent
//! t2  end      the service has stored or rejected the event
//! t3  finish   events of the batch that have not ended are the next to be taken, under the same key
//! ```
//!
//! A crash at any time leaves the events that have not ended to the next program that opens the spool.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::endpoint::Request;
use crate::error::Error;
use crate::journal::Journal;
use crate::options::Options;
use crate::spool::{Spool, is_name};
use crate::store::{Full, Limits, Memory, News, Store};

pub use crate::endpoint::{batch_body, new_key};
pub use crate::store::{Batch, Choice, EventId, Held};

pub struct Outbox {
    store: Box<dyn Store>,
    news: News,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("news", &self.news).finish_non_exhaustive()
    }
}

/// A request that sends a batch, or the next event of one that was split.
#[derive(Debug)]
pub struct Post {
    pub path: String,
    pub key: String,
    pub body: Bytes,
    /// The events in it, by their index in the batch.
    pub indexes: std::ops::Range<usize>,
}

impl Batch {
    /// What to send next. The batch has an event that has not ended.
    pub fn post(&self) -> Post {
        let is_next = |index: &usize| self.events[*index].is_some() && !self.place.ended[*index];
        let (request, indexes) = match (0..self.events.len()).find(is_next).filter(|_| self.is_split) {
            Some(index) => {
                let event = self.events[index].clone().unwrap_or_default();
                (Request::one(event, format!("{}-{index}", self.key)), index..index + 1)
            }
            None => (Request::batch(self.events.iter().flatten(), self.key.clone()), 0..self.events.len()),
        };
        Post { path: request.path, key: request.key.unwrap_or_default(), body: request.body, indexes }
    }

    #[expect(clippy::len_without_is_empty, reason = "a batch has an event")]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Names the event, if it has not ended: a batch is repeated whole, and an event ends once.
    pub fn open(&self, index: usize) -> Option<EventId> {
        let is_open = self.place.ended.get(index) == Some(&false);
        is_open.then(|| EventId { journal: self.place.journal, number: self.place.numbers[index] })
    }

    /// The text of an event; empty if it ended before a restart.
    pub fn text(&self, index: usize) -> &[u8] {
        self.events[index].as_deref().unwrap_or_default()
    }

    pub fn is_spooled(&self) -> bool {
        self.place.journal != 0
    }

    pub fn has_ended(&self) -> bool {
        self.place.left().next().is_none()
    }
}

impl EventId {
    pub fn is_spooled(&self) -> bool {
        self.journal != 0
    }
}

impl Outbox {
    /// Batches have at most so many events.
    pub const BATCH_EVENTS_MAX: usize = 100;

    /// Ends with its process.
    pub fn in_memory() -> Outbox {
        let limits = Limits { queue_events: usize::MAX, queue_bytes: u64::MAX, ..limits() };
        Outbox { store: Box::new(Memory::new(limits)), news: News::default() }
    }

    /// In this directory, in at most so many bytes, with what earlier programs left there.
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Outbox, Error> {
        let spool = Spool::open(folder, Limits { spool_bytes: bytes_max, ..limits() }, false)?;
        let mut outbox = Outbox { store: Box::new(spool), news: News::default() };
        outbox.adopt();
        Ok(outbox)
    }

    /// Takes over what other programs left meanwhile. Returns true if there was something.
    pub fn adopt(&mut self) -> bool {
        let before = self.news.added;
        self.store.adopt(&mut self.news);
        self.news.added > before
    }

    /// The text must be JSON; a line feed in it becomes a space.
    pub fn put(&mut self, mut event: Vec<u8>) -> Result<EventId, Error> {
        event.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        match self.store.room(event.len()) {
            Err(Full::Now(error) | Full::Forever(error)) => Err(error),
            Ok(()) => self.store.put(event, now_ms()),
        }
    }

    /// The same as a batch of its own under this key, if no other event is queued.
    pub fn put_as(&mut self, key: String, event: Vec<u8>) -> Result<Batch, Error> {
        self.put(event)?;
        self.store.take_newest(key, now_ms())
    }

    /// Whether there is a whole batch, or something that was left before.
    pub fn is_due(&self) -> bool {
        self.store.is_batch_full() || self.store.has_leftovers()
    }

    /// Whether there is something to take.
    pub fn has_queued(&self) -> bool {
        self.store.has_queued()
    }

    /// The next batch. None if all that is left is held.
    pub fn take(&mut self) -> Result<Option<Batch>, Error> {
        self.store.take(now_ms(), &mut self.news)
    }

    /// Sends the events of a batch one by one from now on.
    pub fn split(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.store.split(batch)
    }

    /// Gives the events that have not ended a key of their own, after the service has rejected the batch and
    /// stored none of it.
    pub fn rekey(&mut self, batch: &mut Batch) -> Result<(), Error> {
        self.store.rekey(batch, now_ms(), &mut self.news)
    }

    pub fn end(&mut self, batch: &mut Batch, index: usize) {
        self.store.end(batch, index, &mut self.news);
    }

    pub fn finish(&mut self, batch: Batch) {
        self.store.finish(batch, &mut self.news);
    }

    /// The events that have not ended, held ones included.
    pub fn waiting(&self) -> u64 {
        self.store.waiting()
    }

    /// Returns when these are on stable storage, if there is a spool.
    pub fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }

    /// Batches that are not sent until someone decides.
    pub fn held(&mut self) -> Vec<Held> {
        self.store.held()
    }

    /// Sends or drops a held batch. Returns the texts of the events that were dropped.
    pub fn release(&mut self, id: &str, choice: Choice) -> Result<Vec<Bytes>, Error> {
        self.store.release(id, choice, now_ms(), &mut self.news)
    }

    /// Warnings since the last call: a code and a text for people.
    pub fn warnings(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.news.warnings)
    }
}

impl Drop for Outbox {
    /// Files without events are removed.
    fn drop(&mut self) {
        self.store.close();
    }
}

/// A file of a spool.
#[derive(Debug)]
pub struct SpoolFile {
    pub path: PathBuf,
    /// None if it was not read.
    pub events: Option<u64>,
    pub bytes: u64,
    /// When its oldest event was queued, in Unix milliseconds.
    pub oldest_ms: u64,
    /// A program holds it, and sends it.
    pub is_in_use: bool,
}

/// The files in which events wait, oldest first. No more files are read than have so many bytes; the others
/// are listed. Nothing in the directory is changed.
pub fn look(folder: &Path, bytes_max: u64) -> io::Result<Vec<SpoolFile>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).unwrap_or("").to_owned();
    paths.retain(|path| is_name(&name(path)));
    paths.sort_unstable();
    let (mut files, mut total) = (Vec::new(), 0);
    for path in paths {
        // One that is gone was sent meanwhile.
        let Ok(bytes) = std::fs::metadata(&path).map(|file| file.len()) else { continue };
        total += bytes;
        let oldest_ms = name(&path)[..13].parse().unwrap_or(0);
        let mut file = SpoolFile { path, events: None, bytes, oldest_ms, is_in_use: false };
        if total <= bytes_max {
            let journal = match Journal::peek(&file.path) {
                Ok(journal) => journal,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            (file.events, file.is_in_use) = (Some(journal.waiting()), journal.is_in_use());
        }
        if file.events != Some(0) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Those of a client without options.
fn limits() -> Limits {
    Limits { batch_events: Outbox::BATCH_EVENTS_MAX, ..Limits::from(&Options::default()) }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> Vec<u8> {
        format!("{{\"action\":\"a\",\n\"resource\":\"{number}\"}}").into_bytes()
    }

    fn open(folder: &Path) -> Outbox {
        Outbox::open(folder, 1 << 30).unwrap()
    }

    fn texts(batch: &Batch) -> Vec<String> {
        (0..batch.events.len())
            .map(|index| {
                let text = String::from_utf8(batch.text(index).to_vec()).unwrap();
                text.split('"').nth(7).unwrap().to_owned()
            })
            .collect()
    }

    fn waiting(folder: &Path) -> Vec<u64> {
        look(folder, u64::MAX).unwrap().iter().filter_map(|file| file.events).collect()
    }

    #[test]
    fn what_was_rejected_ends_and_the_others_get_a_key_of_their_own_that_survives_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        for mut outbox in [Outbox::in_memory(), open(folder.path())] {
            for number in 0..5 {
                outbox.put(event(number)).unwrap();
            }
            let mut batch = outbox.take().unwrap().unwrap();
            let rejected = batch.post();
            assert_eq!((rejected.path.as_str(), rejected.indexes), ("/v1/events/batch", 0..5));
            outbox.end(&mut batch, 1);
            outbox.rekey(&mut batch).unwrap();
            let rest = batch.post();
            assert_ne!(rest.key, rejected.key);
            assert_eq!(texts(&batch), ["0", "2", "3", "4"]);
            assert_eq!(outbox.waiting(), 4);
            if batch.open(0).unwrap().is_spooled() {
                // As a kill leaves it: nothing is finished, only the lock is gone.
                std::mem::forget(batch);
                drop(outbox);
                let again = open(folder.path()).take().unwrap().unwrap();
                assert_eq!((again.post().key, again.post().body), (rest.key, rest.body));
            }
        }
    }

    #[test]
    fn events_of_a_split_batch_are_sent_one_by_one_and_what_has_not_ended_is_next() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = open(folder.path());
        outbox.put(event(0)).unwrap();
        outbox.put(event(1)).unwrap();
        let mut batch = outbox.take().unwrap().unwrap();
        let key = batch.post().key;
        outbox.split(&mut batch).unwrap();
        for index in 0..2 {
            let post = batch.post();
            assert_eq!((post.path.as_str(), post.indexes), ("/v1/events", index..index + 1));
            assert_eq!(post.key, format!("{key}-{index}"));
            if index == 0 {
                outbox.end(&mut batch, index);
            }
        }
        outbox.finish(batch);
        outbox.put(event(2)).unwrap();
        let batch = outbox.take().unwrap().unwrap();
        assert_eq!((batch.post().key, batch.open(0)), (format!("{key}-1"), None));
    }

    #[test]
    fn an_event_under_a_key_of_ones_own_waits_under_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = open(folder.path());
        outbox.put(event(0)).unwrap();
        let first = outbox.take().unwrap().unwrap();
        outbox.finish(first);
        let batch = outbox.put_as("mine".into(), event(1)).unwrap();
        assert_eq!((batch.post().key.as_str(), texts(&batch)), ("mine", vec!["1".to_owned()]));
        outbox.finish(batch);
        assert_eq!(waiting(folder.path()), [2]);
        drop(outbox);
        let mut outbox = open(folder.path());
        assert_eq!(texts(&outbox.take().unwrap().unwrap()), ["0"]);
        assert_eq!(outbox.take().unwrap().unwrap().post().key, "mine");
    }

    #[test]
    fn a_look_changes_nothing_and_says_what_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        assert!(look(&folder.path().join("none"), u64::MAX).is_err());
        let mut outbox = open(folder.path());
        outbox.put(event(0)).unwrap();
        let files = look(folder.path(), u64::MAX).unwrap();
        assert!(files.len() == 1 && files[0].is_in_use && files[0].events == Some(1), "{files:?}");
        drop(outbox);
        let path = &files[0].path;
        let torn = [std::fs::read(path).unwrap(), b"deadbeef E 2 17".to_vec()].concat();
        std::fs::write(path, &torn).unwrap();
        let files = look(folder.path(), u64::MAX).unwrap();
        assert!(!files[0].is_in_use && files[0].oldest_ms > 1_700_000_000_000, "{files:?}");
        assert_eq!(std::fs::read(path).unwrap(), torn);
        let files = look(folder.path(), torn.len() as u64 - 1).unwrap();
        assert!(files[0].events.is_none() && files[0].bytes == torn.len() as u64, "{files:?}");
    }

    #[test]
    fn a_full_spool_takes_no_more_and_an_outbox_without_events_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::open(folder.path(), 8192).unwrap();
        let full = (0..).find_map(|number| outbox.put(event(number)).err()).unwrap();
        assert_eq!(full.code, "client/spool_full");
        while let Some(mut batch) = outbox.take().unwrap() {
            (0..batch.events.len()).for_each(|index| outbox.end(&mut batch, index));
            outbox.finish(batch);
        }
        assert_eq!(outbox.waiting(), 0);
        drop(outbox);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
