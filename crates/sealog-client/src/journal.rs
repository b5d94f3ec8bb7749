//! One file of a spool: `sdk/suite/README.md`, section 5, has the format. The holder of its lock alone
//! appends, cuts or deletes.

use std::collections::{HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, Kind};
use crate::store::{Batch, News, Place};

const HEADER: &[u8] = b"H sealog-spool 1";
/// Eight digits, a space and a line feed.
const AROUND_A_RECORD: usize = 10;
/// Bits of a record's length; an event of an application has at most 18, a line of the command line 21.
const LENGTH_BITS: u32 = 22;
/// As much is read at once; a batch has less, where nothing else stands between its events.
const READ_BYTES_MAX: u64 = 4 << 20;
/// Numbers that a damaged file may leave out between two events.
pub(crate) const GAP_MAX: u64 = 1 << 24;

/// Memory holds eight bytes for each of its events.
pub(crate) struct Journal {
    pub id: u64,
    pub path: PathBuf,
    file: File,
    pub size: u64,
    /// Number of the event whose record is the first.
    base: u64,
    /// Offset and length of each record; 0: damaged.
    records: Vec<u64>,
    settled: HashSet<u64>,
    /// Every event below is settled.
    pub done: u64,
    /// Every event below is in a batch, or was.
    pub cursor: u64,
    /// Events below may have been sent under a key that was lost.
    pub suspect: u64,
    /// To be sent, oldest first.
    pub batches: VecDeque<Batch>,
    line: Vec<u8>,
}

pub(crate) fn spool_error(message: String) -> Error {
    Error::new(Kind::Spool, "client/spool", message)
}

#[cfg(test)]
thread_local! {
    /// The kinds of the records that were synced.
    pub(crate) static SYNCED: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

impl Journal {
    fn new(id: u64, path: &Path, file: File) -> Journal {
        Journal {
            id,
            path: path.to_owned(),
            file,
            size: 0,
            base: 1,
            records: Vec::new(),
            settled: HashSet::new(),
            done: 1,
            cursor: 1,
            suspect: 0,
            batches: VecDeque::new(),
            line: Vec::new(),
        }
    }

    /// A new file, which no other process can take over.
    pub fn create(id: u64, path: &Path, is_synced: bool) -> io::Result<Journal> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let file = options().create_new(true).open(&unfinished)?;
        let begin = || {
            file.try_lock()?;
            let mut journal = Journal::new(id, path, file.try_clone()?);
            journal.append(HEADER, is_synced).map_err(|error| io::Error::other(error.message.clone()))?;
            std::fs::rename(&unfinished, path)?;
            if is_synced && let Some(folder) = path.parent() {
                File::open(folder)?.sync_all()?;
            }
            Ok(journal)
        };
        begin().inspect_err(|_| {
            let _ = std::fs::remove_file(&unfinished);
        })
    }

    /// None if another process holds the file or has just finished it; an error for one of another version.
    pub fn open(id: u64, path: &Path, news: &mut News) -> Result<Option<Journal>, OtherVersion> {
        let Ok(file) = options().open(path) else { return Ok(None) };
        if file.try_lock().is_err() || !is_at(&file, path) {
            return Ok(None);
        }
        let mut journal = Journal::new(id, path, file);
        match journal.load(news) {
            Ok(true) => Ok(Some(journal)),
            Ok(false) => Err(OtherVersion),
            Err(_) => Ok(None),
        }
    }

    /// A look at a file that leaves it as it is.
    pub fn peek(path: &Path) -> io::Result<Journal> {
        let mut journal = Journal::new(0, path, File::open(path)?);
        journal.read_all(&mut Vec::new())?;
        Ok(journal)
    }

    /// Whether a process holds the file.
    pub fn is_in_use(&self) -> bool {
        self.file.try_lock_shared().is_err()
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The events that are not settled.
    pub fn waiting(&self) -> u64 {
        (self.done..self.end()).filter(|number| self.is_open(*number)).count() as u64
    }

    pub fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    pub fn is_settled(&self) -> bool {
        self.done >= self.end()
    }

    /// Writes a record whole or not at all.
    pub fn append(&mut self, content: &[u8], is_synced: bool) -> Result<(), Error> {
        self.begin_line();
        self.line.extend_from_slice(content);
        self.write_line(is_synced)
    }

    fn begin_line(&mut self) {
        self.line.clear();
        self.line.extend_from_slice(b"00000000 ");
    }

    fn write_line(&mut self, is_synced: bool) -> Result<(), Error> {
        let sum = checksum(&self.line[9..]);
        self.line[..8].copy_from_slice(&sum);
        self.line.push(b'\n');
        let mut written = self.file.write_all(&self.line);
        if is_synced && written.is_ok() {
            written = self.file.sync_data();
            #[cfg(test)]
            SYNCED.with_borrow_mut(|kinds| kinds.push(char::from(self.line[9])));
        }
        if let Err(error) = written {
            // If this fails, too, the next reader cuts it.
            let _ = self.file.set_len(self.size);
            return Err(spool_error(format!("cannot write the spool (spool_dir): {error}")));
        }
        self.size += self.line.len() as u64;
        Ok(())
    }

    pub fn add(&mut self, event: &[u8], now_ms: u64, is_synced: bool) -> Result<(), Error> {
        let (offset, number) = (self.size, self.end());
        self.begin_line();
        write!(self.line, "E {number} {now_ms} ").expect("memory takes everything");
        self.line.extend_from_slice(event);
        let length = self.line.len() as u64 + 1;
        self.write_line(is_synced)?;
        self.records.push(offset << LENGTH_BITS | length);
        Ok(())
    }

    fn record(&self, number: u64) -> Option<u64> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.records.get(index).copied().filter(|record| *record != 0)
    }

    /// The length of an event's record: the event and a little more.
    pub fn record_bytes(&self, number: u64) -> u64 {
        self.record(number).unwrap_or(0) & ((1 << LENGTH_BITS) - 1)
    }

    /// The length of the event itself: without checksum, kind, number, time and line feed.
    pub fn event_bytes(&self, number: u64) -> u64 {
        let digits = u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
        self.record_bytes(number).saturating_sub("00000000 E   \n".len() as u64 + digits + 13)
    }

    /// The text of an event; none if it cannot be read.
    pub fn read(&self, number: u64) -> Option<Bytes> {
        let offset = self.record(number)? >> LENGTH_BITS;
        let line = self.read_at(offset, self.record_bytes(number))?;
        event_of(&line)
    }

    fn read_at(&self, offset: u64, length: u64) -> Option<Bytes> {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        Some(bytes.into())
    }

    /// Whether the event exists and is not settled.
    pub fn is_open(&self, number: u64) -> bool {
        number >= self.done && self.record(number).is_some() && !self.settled.contains(&number)
    }

    pub fn settle(&mut self, first: u64, count: u64) {
        let behind = first.saturating_add(count).min(self.end());
        self.settled.extend(first.max(self.done)..behind);
        while self.done < self.end() && (self.settled.remove(&self.done) || self.record(self.done).is_none())
        {
            self.done += 1;
        }
    }

    /// Drops all records of a file whose events are settled.
    pub fn cut(&mut self) {
        let header = (HEADER.len() + AROUND_A_RECORD) as u64;
        // If it cannot be cut it stays as it is, settled.
        if self.file.set_len(header).is_ok() {
            self.base = self.end();
            (self.size, self.done, self.cursor) = (header, self.base, self.base);
            self.records = Vec::new();
        }
    }

    /// False for a file of another version.
    fn load(&mut self, news: &mut News) -> io::Result<bool> {
        let mut damaged = Vec::new();
        if !self.read_all(&mut damaged)? {
            let message = format!("{} is a spool of another version; it is not used", self.path.display());
            news.warn("client/spool_version", message);
            return Ok(false);
        }
        // What an interrupted write left.
        self.file.set_len(self.size)?;
        if !damaged.is_empty() {
            self.keep_damaged(&damaged, news);
        }
        Ok(true)
    }

    /// Collects what is damaged. False for a file of another version.
    fn read_all(&mut self, damaged: &mut Vec<u8>) -> io::Result<bool> {
        let mut reader = BufReader::with_capacity(1 << 16, self.file.try_clone()?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if !line.ends_with(b"\n") {
                damaged.extend_from_slice(&line);
                break;
            }
            let offset = self.size;
            self.size += line.len() as u64;
            let content = content_of(&line);
            if offset == 0 && content.is_some_and(|content| content != HEADER) {
                return Ok(false);
            }
            let is_sound = content.and_then(|content| self.apply(content, offset, line.len() as u64));
            if is_sound.is_none() {
                damaged.extend_from_slice(&line);
                self.suspect = self.end();
            }
        }
        self.batches.retain(|batch| batch.place.left().next().is_some());
        let behind = self.batches.iter().filter_map(|batch| Some(batch.place.numbers.last()? + 1)).max();
        self.cursor = self.cursor.max(behind.unwrap_or(0));
        Ok(true)
    }

    fn keep_damaged(&self, damaged: &[u8], news: &mut News) {
        let mut copy = self.path.as_os_str().to_owned();
        copy.push(".damaged");
        let copied = options().create(true).open(&copy).and_then(|mut file| file.write_all(damaged));
        let (count, shown) = (damaged.len(), self.path.display());
        let message = match copied {
            Ok(()) => format!("{count} bytes of {shown} are damaged; copied to {shown}.damaged"),
            Err(error) => format!("{count} bytes of {shown} are damaged, and cannot be copied: {error}"),
        };
        news.warn("client/spool_damaged", message);
    }

    /// None for a record that has no meaning.
    fn apply(&mut self, content: &[u8], offset: u64, length: u64) -> Option<()> {
        let mut parts =
            content.splitn(5, |byte| *byte == b' ').map(|part| std::str::from_utf8(part).unwrap_or(""));
        let kind = parts.next()?;
        if kind == "H" {
            return Some(());
        }
        let number = |text: Option<&str>| text?.parse::<u64>().ok().filter(|number| *number < 1 << 62);
        let first = number(parts.next()).filter(|first| *first > 0)?;
        if kind == "S" {
            for batch in self.batches.iter_mut().filter(|batch| batch.place.numbers[0] == first) {
                batch.is_split = true;
            }
            return Some(());
        }
        let count = number(parts.next())?;
        match kind {
            "E" => {
                parts.next().filter(|_| length < 1 << LENGTH_BITS)?;
                if self.records.is_empty() {
                    (self.base, self.done, self.cursor) = (first, first, first);
                }
                let skipped = first.checked_sub(self.end()).filter(|skipped| *skipped <= GAP_MAX)?;
                // Those in between were damaged.
                self.records.extend((0..skipped).map(|_| 0));
                self.records.push(offset << LENGTH_BITS | length);
            }
            "B" if count > 0 => {
                let ms = number(parts.next())?.max(1);
                let key = parts.next()?.to_owned();
                let behind = first.saturating_add(count).min(self.end());
                let numbers: Vec<u64> =
                    (first.max(self.base)..behind).filter(|number| self.is_open(*number)).collect();
                if numbers.is_empty() {
                    return Some(());
                }
                self.batches.retain(|earlier| !earlier.place.left().any(|number| numbers.contains(&number)));
                let batch = Batch::new(self.id, numbers);
                self.batches.push_back(Batch { key, place: Place { ms, ..batch.place }, ..Batch::default() });
            }
            "D" if count > 0 => {
                self.settle(first, count);
                for place in self.batches.iter_mut().map(|batch| &mut batch.place) {
                    for (number, ended) in place.numbers.iter().zip(&mut place.ended) {
                        *ended |= (first..first.saturating_add(count)).contains(number);
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads the events of a batch; false if one cannot be read. Of a batch that is split, only those that
    /// have not ended are sent.
    pub fn load_events(&self, batch: &mut Batch) -> bool {
        let Batch { events, is_split, place, .. } = batch;
        events.clear();
        // Records of a batch are beside each other: one read has them all, unless others came between them.
        let (first, last) = (place.numbers.first(), place.numbers.last());
        let offset_of = |number: &u64| Some(self.record(*number)? >> LENGTH_BITS);
        let begin = first.and_then(offset_of).unwrap_or(0);
        let end = last.and_then(|last| Some(offset_of(last)? + self.record_bytes(*last))).unwrap_or(0);
        let length = end.saturating_sub(begin);
        let all = if length <= READ_BYTES_MAX { self.read_at(begin, length) } else { None };
        let read = |number: u64| match &all {
            None => self.read(number),
            Some(all) => {
                let from = usize::try_from(offset_of(&number)?.checked_sub(begin)?).ok()?;
                let to = from + usize::try_from(self.record_bytes(number)).ok()?;
                event_of(&(to <= all.len()).then(|| all.slice(from..to))?)
            }
        };
        for (number, ended) in place.numbers.iter().zip(&place.ended) {
            let event = if *is_split && *ended { None } else { read(*number) };
            let is_lost = event.is_none() && !(*is_split && *ended);
            events.push(event);
            if is_lost {
                return false;
            }
        }
        true
    }
}

pub(crate) struct OtherVersion;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Whether the file is still the one at its path: another process may have finished it meanwhile.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |held: io::Result<std::fs::Metadata>, there: io::Result<std::fs::Metadata>| {
        let (held, there) = (held.ok()?, there.ok()?);
        Some(held.ino() == there.ino() && held.dev() == there.dev())
    };
    same(file.metadata(), std::fs::metadata(path)) == Some(true)
}

/// A file that is open cannot be deleted there.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// CRC-32 (zlib), eight digits.
fn checksum(content: &[u8]) -> [u8; 8] {
    let sum = crc32fast::hash(content);
    std::array::from_fn(|digit| b"0123456789abcdef"[(sum >> (28 - 4 * digit) & 15) as usize])
}

/// The event of a sound record.
fn event_of(line: &Bytes) -> Option<Bytes> {
    let event = content_of(line)?.splitn(4, |byte| *byte == b' ').nth(3)?;
    Some(line.slice_ref(event))
}

/// The content of a line whose checksum is right.
pub(crate) fn content_of(line: &[u8]) -> Option<&[u8]> {
    let (sum, content) = line.strip_suffix(b"\n")?.split_at_checked(9)?;
    (!content.is_empty() && sum[8] == b' ' && checksum(content) == sum[..8]).then_some(content)
}
