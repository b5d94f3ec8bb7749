//! A queue that outlives its process: a directory of files, of which each process appends to one of its own
//! and takes over those that dead ones left.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::endpoint::AROUND_A_BATCH;
use crate::error::Error;
use crate::event::Event;
use crate::journal::{Journal, OtherVersion, spool_error};
use crate::store::{Batch, Choice, EventId, Full, Held, Limits, News, Place, Store};

/// A new file begins here, or earlier if the spool is small.
const FILE_BYTES: u64 = 8 << 20;
/// A name has room for 13 digits.
const NAME_MS_MAX: u64 = 9_999_999_999_999;
/// A file whose events are settled is cut when it is longer.
const CUT_BYTES: u64 = 1 << 16;
/// What a record has beside its event, at most.
const RECORD_BYTES: u64 = 64;

pub(crate) struct Spool {
    folder: PathBuf,
    /// The directories in which one was made, for this spool.
    made: Vec<PathBuf>,
    limits: Limits,
    is_synced: bool,
    /// Oldest first. The last one is that of this process, if `own` names it.
    journals: Vec<Journal>,
    own: Option<u64>,
    next_id: u64,
    /// By name, which is that of the file and the first number.
    held: BTreeMap<String, Batch>,
    /// Files of another version.
    ignored: HashSet<String>,
    /// In the names of files that this process has held.
    newest_ms: u64,
    /// Of the own file, not yet in a batch.
    queued_events: usize,
    queued_bytes: u64,
}

impl Spool {
    pub fn open(folder: &Path, limits: Limits, is_synced: bool) -> Result<Spool, Error> {
        let is_new = |above: &&Path| above.parent().is_some() && !above.exists();
        let new = folder.ancestors().take_while(is_new);
        let made = new.map(|new| match new.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        });
        let mut made: Vec<PathBuf> = made.collect();
        made.reverse();
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let usable = builder.create(folder).and_then(|()| std::fs::read_dir(folder));
        usable
            .map_err(|error| spool_error(format!("spool_dir: cannot use {}: {error}", folder.display())))?;
        Ok(Spool {
            folder: folder.to_owned(),
            made,
            limits,
            is_synced,
            journals: Vec::new(),
            own: None,
            next_id: 0,
            held: BTreeMap::new(),
            ignored: HashSet::new(),
            newest_ms: 0,
            queued_events: 0,
            queued_bytes: 0,
        })
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn index(&self, id: u64) -> Option<usize> {
        self.journals.iter().position(|journal| journal.id == id)
    }

    fn own(&mut self) -> Option<&mut Journal> {
        let index = self.index(self.own?)?;
        self.journals.get_mut(index)
    }

    fn create(&mut self, now_ms: u64) -> Result<&mut Journal, Error> {
        // A process that takes the files over sends them by name. Two files of one millisecond, or of a clock
        // that was set back, must not change places.
        self.newest_ms = now_ms.max(self.newest_ms + 1).min(NAME_MS_MAX);
        let random = getrandom::u64().expect("the kernel has random bytes");
        let path = self.folder.join(format!("{:013}-{random:016x}.spool", self.newest_ms));
        let id = self.new_id();
        let journal = Journal::create(id, &path, self.is_synced)
            .map_err(|error| spool_error(format!("spool_dir: cannot create {}: {error}", path.display())))?;
        (self.own, self.queued_events, self.queued_bytes) = (Some(id), 0, 0);
        self.journals.push(journal);
        Ok(self.journals.last_mut().expect("it was just put there"))
    }

    fn remove(&mut self, index: usize) {
        let journal = self.journals.remove(index);
        if self.own == Some(journal.id) {
            self.own = None;
        }
        // If it stays, it is settled, and the next process removes it. Its lock is free after it is gone.
        let _ = std::fs::remove_file(&journal.path);
    }

    fn tidy(&mut self, index: usize) {
        let journal = &mut self.journals[index];
        if !journal.is_settled() {
        } else if self.own != Some(journal.id) {
            self.remove(index);
        } else if journal.size > CUT_BYTES {
            journal.cut();
        }
    }

    fn total_bytes(&self) -> u64 {
        self.journals.iter().map(|journal| journal.size).sum()
    }

    /// The next events of a file that no batch has. They get a key, but no record yet.
    fn next_of(&mut self, index: usize) -> Option<Batch> {
        let (journal, limits) = (&mut self.journals[index], &self.limits);
        let (mut bytes, mut taken) = (AROUND_A_BATCH.len() as u64, 0);
        let mut numbers: Vec<u64> = Vec::new();
        while journal.cursor < journal.end() && numbers.len() < limits.batch_events {
            let number = journal.cursor;
            if journal.is_open(number) {
                // Behind a damaged record nothing is in doubt.
                let is_doubtful = |number: u64| number < journal.suspect;
                if numbers.first().is_some_and(|first| is_doubtful(*first) && !is_doubtful(number)) {
                    break;
                }
                bytes += journal.event_bytes(number) + 1;
                if bytes > limits.batch_bytes && !numbers.is_empty() {
                    break;
                }
                taken += journal.record_bytes(number);
                numbers.push(number);
            }
            journal.cursor += 1;
        }
        if self.own == Some(journal.id) {
            let is_empty = journal.cursor >= journal.end();
            self.queued_events =
                if is_empty { 0 } else { self.queued_events.saturating_sub(numbers.len()).max(1) };
            self.queued_bytes = if is_empty { 0 } else { self.queued_bytes.saturating_sub(taken) };
        }
        if numbers.is_empty() {
            return None;
        }
        Some(Batch::new(journal.id, numbers))
    }

    fn write_batch(&mut self, index: usize, batch: &Batch) -> Result<(), Error> {
        let (first, count) = batch.place.span();
        let record = format!("B {first} {count} {} {}", batch.place.ms, batch.key);
        self.journals[index].append(record.as_bytes(), self.is_synced)
    }

    fn settle(&mut self, id: u64, first: u64, count: u64, news: &mut News) {
        let Some(index) = self.index(id) else { return };
        // Without the record, the events are repeated under their keys after a restart, which stores nothing
        // twice.
        if let Err(error) = self.journals[index].append(format!("D {first} {count}").as_bytes(), false) {
            news.warn(&error.code, error.message.clone());
        }
        self.journals[index].settle(first, count);
        self.tidy(index);
    }

    fn hold(&mut self, index: usize, mut batch: Batch, reason: &'static str, news: &mut News) {
        let file = self.journals[index].path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{file}-{}", batch.place.numbers[0]);
        batch.events = Vec::new();
        batch.place.held_for = Some(reason);
        let count = batch.place.left().count();
        news.held += count as u64;
        news.warn(
            "client/held",
            format!("{count} events are held ({reason}): they may be stored already; choose with client.release({name:?}, …)"),
        );
        self.held.insert(name, batch);
    }
}

impl Store for Spool {
    fn room(&mut self, size: usize) -> Result<(), Full> {
        let (limit, record) = (self.limits.spool_bytes, size as u64 + RECORD_BYTES);
        if record > limit {
            return Err(Full::forever("spool", "spool_max_bytes", limit));
        }
        if self.total_bytes() + record > limit
            && let Some(own) = self.own().filter(|own| own.is_settled())
        {
            own.cut();
        }
        if self.total_bytes() + record > limit {
            return Err(Full::now("spool", "spool_max_bytes", limit));
        }
        Ok(())
    }

    fn put(&mut self, event: Vec<u8>, now_ms: u64) -> Result<EventId, Error> {
        let file_bytes = FILE_BYTES.min(self.limits.spool_bytes / 8).max(4096);
        let is_synced = self.is_synced;
        let is_usable = |own: &mut Journal| own.size <= file_bytes || own.is_settled();
        let own = match self.own().is_some_and(is_usable) {
            true => self.own().expect("it was just there"),
            false => self.create(now_ms)?,
        };
        own.add(&event, now_ms, is_synced)?;
        let id = EventId { journal: own.id, number: own.end() - 1 };
        let bytes = own.record_bytes(id.number);
        self.queued_events += 1;
        self.queued_bytes += bytes;
        Ok(id)
    }

    fn is_batch_full(&self) -> bool {
        self.queued_events >= self.limits.batch_events || self.queued_bytes >= self.limits.batch_bytes
    }

    fn has_leftovers(&self) -> bool {
        self.journals.iter().any(|journal| {
            !journal.batches.is_empty() || self.own != Some(journal.id) && journal.cursor < journal.end()
        })
    }

    fn has_queued(&self) -> bool {
        self.has_leftovers() || self.queued_events > 0
    }

    fn take(&mut self, now_ms: u64, news: &mut News) -> Result<Option<Batch>, Error> {
        for index in 0..self.journals.len() {
            loop {
                let journal = &mut self.journals[index];
                let Some(mut batch) = journal.batches.pop_front().or_else(|| self.next_of(index)) else {
                    break;
                };
                let journal = &self.journals[index];
                let is_doubtful = batch.place.numbers[0] < journal.suspect && !batch.place.is_released;
                if is_doubtful || !journal.load_events(&mut batch) {
                    self.hold(index, batch, "damaged", news);
                    continue;
                }
                if batch.place.ms != 0 && now_ms.abs_diff(batch.place.ms) >= self.limits.hold_after_ms {
                    self.hold(index, batch, "age", news);
                    continue;
                }
                if batch.place.ms == 0 {
                    batch.place.ms = now_ms.max(1);
                    // Not sent without its record; tried again later.
                    if let Err(error) = self.write_batch(index, &batch) {
                        batch.place.ms = 0;
                        self.journals[index].batches.push_front(batch);
                        return Err(error);
                    }
                }
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn take_newest(&mut self, key: String, now_ms: u64) -> Result<Batch, Error> {
        let index = self.own.and_then(|own| self.index(own)).expect("an event was just put there");
        let journal = &mut self.journals[index];
        let number = journal.end() - 1;
        let mut batch = Batch { key, ..Batch::new(journal.id, vec![number]) };
        batch.place.ms = now_ms.max(1);
        // Events before it that no batch has would be skipped.
        assert_eq!(journal.cursor, number, "a program that chooses a key puts one event");
        journal.cursor = journal.end();
        (self.queued_events, self.queued_bytes) = (0, 0);
        let is_readable = self.journals[index].load_events(&mut batch);
        if let Err(error) = self.write_batch(index, &batch) {
            self.journals[index].settle(number, 1);
            return Err(error);
        }
        debug_assert!(is_readable, "it was just written");
        Ok(batch)
    }

    fn split(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let is_synced = self.is_synced;
        let index = self.index(batch.place.journal).expect("a file with a batch in flight is held");
        let record = format!("S {}", batch.place.numbers[0]);
        self.journals[index].append(record.as_bytes(), is_synced)?;
        batch.is_split = true;
        Ok(())
    }

    fn rekey(&mut self, batch: &mut Batch, now_ms: u64, news: &mut News) -> Result<(), Error> {
        let index = self.index(batch.place.journal).expect("a file with a batch in flight is held");
        // Before the record of the batch, which names every event between its first and its last.
        for (number, _) in batch.place.numbers.iter().zip(&batch.place.ended).filter(|(_, ended)| **ended) {
            self.settle(batch.place.journal, *number, 1, news);
        }
        batch.keep_left();
        batch.place.ms = now_ms.max(1);
        self.write_batch(index, batch)
    }

    fn end(&mut self, batch: &mut Batch, index: usize, news: &mut News) {
        batch.place.ended[index] = true;
        if batch.is_split {
            self.settle(batch.place.journal, batch.place.numbers[index], 1, news);
        }
    }

    fn finish(&mut self, mut batch: Batch, news: &mut News) {
        let Some(index) = self.index(batch.place.journal) else { return };
        let is_over = batch.place.left().next().is_none();
        match batch.place.held_for {
            Some(reason) if !is_over => self.hold(index, batch, reason, news),
            None if !is_over => {
                // The next one again.
                batch.events = Vec::new();
                self.journals[index].batches.push_front(batch);
            }
            _ if !batch.is_split => {
                let (first, count) = batch.place.span();
                self.settle(batch.place.journal, first, count, news);
            }
            _ => (),
        }
    }

    /// Lets go of all files. What is not settled stays for the next process.
    fn close(&mut self) -> Vec<Bytes> {
        for index in (0..self.journals.len()).rev() {
            if self.journals[index].is_settled() {
                self.remove(index);
            }
        }
        self.journals.clear();
        self.own = None;
        Vec::new()
    }

    fn adopt(&mut self, news: &mut News) {
        // If it cannot be read now, the next interval tries again.
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| is_name(name));
        // By name is by age.
        names.sort_unstable();
        for name in names {
            let path = self.folder.join(&name);
            if self.ignored.contains(&name) || self.journals.iter().any(|journal| journal.path == path) {
                continue;
            }
            let journal = match Journal::open(self.new_id(), &path, news) {
                Ok(Some(journal)) => journal,
                Ok(None) => continue,
                Err(OtherVersion) => {
                    self.ignored.insert(name);
                    continue;
                }
            };
            self.newest_ms = self.newest_ms.max(name[..13].parse().unwrap_or(0));
            news.added += journal.waiting();
            let place = self.own.and_then(|own| self.index(own)).unwrap_or(self.journals.len());
            self.journals.insert(place, journal);
            if self.journals[place].is_settled() {
                self.remove(place);
            }
        }
    }

    fn waiting(&self) -> u64 {
        self.journals.iter().map(Journal::waiting).sum()
    }

    fn sync(&self) -> io::Result<()> {
        for journal in self.journals.iter().filter(|journal| !journal.is_settled()) {
            journal.sync()?;
        }
        // A directory's name is on stable storage when the one above it is.
        self.made.iter().chain([&self.folder]).try_for_each(|folder| File::open(folder)?.sync_all())
    }

    fn held(&mut self) -> Vec<Held> {
        let listed = self.held.iter().map(|(name, batch)| {
            let journal = self.journals.iter().find(|journal| journal.id == batch.place.journal);
            let texts: Vec<Bytes> = batch.place.left().filter_map(|number| journal?.read(number)).collect();
            Held {
                id: name.clone(),
                reason: batch.place.held_for.unwrap_or("age"),
                events: texts.iter().map(|text| Event::decode(text)).collect(),
                texts,
            }
        });
        listed.collect()
    }

    fn release(
        &mut self,
        id: &str,
        choice: Choice,
        now_ms: u64,
        news: &mut News,
    ) -> Result<Vec<Bytes>, Error> {
        let shown: String = id.chars().take(100).collect();
        let unknown = || Error::option("id", &format!("{shown:?} is not held"));
        let batch = self.held.get(id).ok_or_else(unknown)?;
        let index = self.index(batch.place.journal).ok_or_else(unknown)?;
        let left: Vec<u64> = batch.place.left().collect();
        let journal = &self.journals[index];
        if choice == Choice::Drop {
            let text = |number: &u64| journal.read(*number).unwrap_or(Bytes::from_static(b"{}"));
            let dropped: Vec<Bytes> = left.iter().map(text).collect();
            let (journal, first, count) = (journal.id, left[0], left[left.len() - 1] - left[0] + 1);
            news.added += left.len() as u64;
            self.held.remove(id);
            self.settle(journal, first, count, news);
            return Ok(dropped);
        }
        let numbers: Vec<u64> = left.into_iter().filter(|number| journal.read(*number).is_some()).collect();
        if numbers.is_empty() {
            return Err(spool_error("none of the held events can be read; drop them".into()));
        }
        let count = numbers.len() as u64;
        let mut again = Batch::new(journal.id, numbers);
        again.place = Place { ms: now_ms.max(1), is_released: true, ..again.place };
        self.write_batch(index, &again)?;
        self.journals[index].batches.push_back(again);
        self.held.remove(id);
        news.added += count;
        Ok(Vec::new())
    }
}

/// `MMMMMMMMMMMMM-XXXXXXXXXXXXXXXX.spool`
pub(crate) fn is_name(name: &str) -> bool {
    let Some((ms, random)) = name.strip_suffix(".spool").and_then(|stem| stem.split_once('-')) else {
        return false;
    };
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    ms.len() == 13
        && ms.bytes().all(|byte| byte.is_ascii_digit())
        && random.len() == 16
        && random.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::journal::SYNCED;

    const NOW: u64 = 1_790_000_000_000;

    fn limits(spool_bytes: u64) -> Limits {
        Limits {
            batch_events: 100,
            batch_bytes: 1_900_000,
            queue_events: 10_000,
            queue_bytes: 1 << 25,
            spool_bytes,
            hold_after_ms: 86_100_000,
        }
    }

    fn spool(folder: &Path) -> Spool {
        Spool::open(folder, limits(1 << 28), false).unwrap()
    }

    fn event(number: u64) -> Vec<u8> {
        format!(r#"{{"action":"a","resource":"{number}"}}"#).into_bytes()
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    fn line(content: &str) -> String {
        format!("{:08x} {content}\n", crc32fast::hash(content.as_bytes()))
    }

    fn texts(batch: &Batch) -> Vec<String> {
        batch.events.iter().flatten().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    }

    fn end_all(spool: &mut Spool, mut batch: Batch, news: &mut News) {
        for index in 0..batch.events.len() {
            spool.end(&mut batch, index, news);
        }
        spool.finish(batch, news);
    }

    #[test]
    fn a_spool_has_the_bytes_of_its_format() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut spool = spool(folder.path());
        spool.put(event(1), NOW).unwrap();
        spool.put(event(2), NOW + 1).unwrap();
        let mut batch = spool.take(NOW + 2, &mut news).unwrap().unwrap();
        spool.split(&mut batch).unwrap();
        spool.end(&mut batch, 0, &mut news);
        let path = &files(folder.path())[0];
        assert!(is_name(path.file_name().unwrap().to_str().unwrap()), "{}", path.display());
        let records = [
            "H sealog-spool 1".to_owned(),
            format!(r#"E 1 {NOW} {{"action":"a","resource":"1"}}"#),
            format!(r#"E 2 {} {{"action":"a","resource":"2"}}"#, NOW + 1),
            format!("B 1 2 {} {}", NOW + 2, batch.key),
            "S 1".to_owned(),
            "D 1 1".to_owned(),
        ];
        let written: String = records.iter().map(|content| line(content)).collect();
        assert_eq!(fs::read_to_string(path).unwrap(), written);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn events_batches_and_splits_are_synced_if_asked_for_and_settling_is_not() {
        for (is_synced, kinds) in [(true, "HEEBS"), (false, "")] {
            let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
            let mut spool = Spool::open(folder.path(), limits(1 << 28), is_synced).unwrap();
            spool.put(event(1), NOW).unwrap();
            spool.put(event(2), NOW).unwrap();
            let mut batch = spool.take(NOW, &mut news).unwrap().unwrap();
            spool.split(&mut batch).unwrap();
            spool.end(&mut batch, 0, &mut news);
            assert_eq!(SYNCED.take(), kinds);
        }
    }

    #[test]
    fn files_sort_by_age_within_a_millisecond_and_behind_a_clock_that_was_set_back() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut first = spool(folder.path());
        first.create(NOW).unwrap();
        first.create(NOW).unwrap();
        first.create(NOW - 5_000).unwrap();
        let paths: Vec<PathBuf> = first.journals.iter().map(|journal| journal.path.clone()).collect();
        assert_eq!(files(folder.path()), paths);
        // A new process that takes over what is there names its own file later, too.
        first.put(event(1), NOW).unwrap();
        drop(first);
        let mut second = spool(folder.path());
        second.adopt(&mut news);
        second.put(event(2), NOW - 60_000).unwrap();
        let last = files(folder.path()).pop().unwrap();
        assert_eq!(second.own().unwrap().path, last);
    }

    #[test]
    fn what_dead_processes_left_is_sent_oldest_file_first() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        // So many that the directory lists them in another order, or in the reverse one.
        for number in 1..=9 {
            let mut earlier = spool(folder.path());
            earlier.put(event(number), NOW + number).unwrap();
            earlier.close();
        }
        let mut later = spool(folder.path());
        later.adopt(&mut news);
        let mut seen = Vec::new();
        while let Some(batch) = later.take(NOW + 10, &mut news).unwrap() {
            seen.extend(texts(&batch));
            end_all(&mut later, batch, &mut news);
        }
        let expected: Vec<String> = (1..=9).map(|number| String::from_utf8(event(number)).unwrap()).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_name_never_gets_a_fourteenth_digit() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(folder.path());
        spool.create(u64::MAX).unwrap();
        spool.create(u64::MAX).unwrap();
        let names = files(folder.path());
        assert!(names.iter().all(|path| is_name(path.file_name().unwrap().to_str().unwrap())), "{names:?}");
    }

    #[test]
    fn a_file_that_another_client_holds_is_left_alone_until_it_is_free() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut first = spool(folder.path());
        first.put(event(1), NOW).unwrap();
        let mut second = spool(folder.path());
        second.adopt(&mut news);
        assert!(second.journals.is_empty() && news.added == 0);
        first.close();
        second.adopt(&mut news);
        assert_eq!(news.added, 1);
        assert_eq!(
            texts(&second.take(NOW, &mut news).unwrap().unwrap()),
            [r#"{"action":"a","resource":"1"}"#]
        );
    }

    #[test]
    fn a_batch_is_repeated_whole_but_its_settled_events_end_only_once() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut first = spool(folder.path());
        first.put(event(1), NOW).unwrap();
        first.put(event(2), NOW).unwrap();
        // As a library writes that settles events one by one.
        for record in [format!("B 1 2 {NOW} kept"), "D 1 1".to_owned()] {
            first.own().unwrap().append(record.as_bytes(), false).unwrap();
        }
        first.close();
        let mut second = spool(folder.path());
        second.adopt(&mut news);
        let batch = second.take(NOW, &mut news).unwrap().unwrap();
        assert_eq!(
            (batch.key.as_str(), texts(&batch).len(), &batch.place.ended[..]),
            ("kept", 2, &[true, false][..])
        );
        assert_eq!(news.added, 1);
        end_all(&mut second, batch, &mut news);
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_record_behind_a_torn_tail_begins_a_line_of_its_own_and_the_tail_is_kept() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut first = spool(folder.path());
        first.put(event(1), NOW).unwrap();
        first.close();
        let path = files(folder.path()).pop().unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}deadbeef E 2 17")).unwrap();
        let mut second = spool(folder.path());
        second.adopt(&mut news);
        let batch = second.take(NOW, &mut news).unwrap().unwrap();
        let record = line(&format!("B 1 1 {NOW} {}", batch.key));
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{whole}{record}"));
        let damaged = path.with_extension("spool.damaged");
        assert_eq!(fs::read_to_string(damaged).unwrap(), "deadbeef E 2 17");
        assert_eq!(news.warnings[0].0, "client/spool_damaged");
    }

    #[test]
    fn a_large_spool_is_several_files_that_are_removed_one_by_one_and_stays_in_its_bounds() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let bound = 65_536;
        let mut spool = Spool::open(folder.path(), limits(bound), false).unwrap();
        let mut count = 0;
        while spool.room(event(count).len()).is_ok() {
            spool.put(event(count), NOW).unwrap();
            count += 1;
            let total: u64 = files(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
            assert!(total <= bound, "{total}");
        }
        let before = files(folder.path()).len();
        assert!(before > 4, "{before}");
        let (mut seen, mut fewest) = (0, before);
        while let Some(batch) = spool.take(NOW, &mut news).unwrap() {
            for text in texts(&batch) {
                assert_eq!(text.as_bytes(), event(seen));
                seen += 1;
            }
            end_all(&mut spool, batch, &mut news);
            let now = files(folder.path()).len();
            assert!(now <= fewest);
            fewest = now;
        }
        assert_eq!((seen, fewest), (count, 1));
        assert!(spool.room(event(count).len()).is_ok());
        spool.close();
        assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_record_that_cannot_be_written_is_an_error_and_leaves_the_rest() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let mut spool = spool(folder.path());
        spool.put(event(1), NOW).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        // The open file can still be written, a new one cannot be made.
        spool.put(event(2), NOW).unwrap();
        let error = spool.create(NOW).err().unwrap();
        assert_eq!((error.kind, error.code.as_str()), (crate::error::Kind::Spool, "client/spool"));
        assert!(error.message.contains("spool_dir"), "{error}");
        assert_eq!(texts(&spool.take(NOW, &mut news).unwrap().unwrap()).len(), 2);
    }

    #[test]
    fn a_batch_that_was_first_sent_a_day_ago_or_in_a_day_is_held_to_the_millisecond() {
        for (moved, is_held) in
            [(86_099_999_i64, false), (86_100_000, true), (-86_099_999, false), (-86_100_000, true)]
        {
            let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
            let mut first = spool(folder.path());
            first.put(event(1), NOW).unwrap();
            first.take(NOW, &mut news).unwrap();
            first.close();
            let mut second = spool(folder.path());
            second.adopt(&mut news);
            let taken = second.take(NOW.checked_add_signed(moved).unwrap(), &mut news).unwrap();
            assert_eq!(taken.is_none(), is_held, "{moved}");
            assert_eq!(news.held, u64::from(is_held));
        }
    }

    #[test]
    fn a_file_of_records_without_a_meaning_is_read_and_nothing_of_it_is_believed() {
        let (folder, mut news) = (tempfile::tempdir().unwrap(), News::default());
        let records = [
            "H sealog-spool 1",
            "E 0 1 {}",
            "E 99999999999999999999 1 {}",
            "E 5 1 {}",
            "E 4 1 {}",
            "E 5368709120 1 {}",
            "B 1 18446744073709551615 1 k",
            "B 5 1",
            "D 5",
            "D 0 9",
            "S x",
            "X",
            "",
        ];
        let text: String = records.iter().map(|content| line(content)).collect();
        fs::write(folder.path().join("1790000000000-0123456789abcdef.spool"), text).unwrap();
        let mut spool = spool(folder.path());
        spool.adopt(&mut news);
        assert_eq!(news.added, 1);
        assert!(spool.take(NOW, &mut news).unwrap().is_none());
        assert_eq!((spool.held().len(), spool.held()[0].reason), (1, "damaged"));
    }
}
