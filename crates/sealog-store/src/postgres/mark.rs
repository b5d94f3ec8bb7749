//! High-water mark of this node: the last head of every chain that it has acknowledged, in a file of its own.
//! After a failover to a standby that had not received everything, the database itself cannot know what is
//! missing.
//!
//! ```text
//! sealog postgres mark 2
//! store 6f1c…                                 which database it belongs to; another one's is left alone
//! batch 380 1c9f03aa                          bytes of the lines that follow, and their checksum together
//!                                             with this store's id
//! TENANT PROJECT MODE CHAIN_SEQ LOG_ID HASH   a later line about a chain replaces an earlier one
//! …
//! ```
//! Each write appends one batch with the heads that have changed, and syncs it before the next one is begun:
//! a crash can tear the last batch only. When most of the file is superseded, it is replaced by one batch
//! with everything.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, ProjectId, TenantId, Ulid, Uuid};

use super::rows;
use crate::embedded::disk::{self, Disk, DiskFile, RealDisk};

const FORMAT: &str = "sealog postgres mark 2";
/// Every version of the format begins with it.
const FORMAT_NAME: &str = "sealog postgres mark ";
const BATCH: &[u8] = b"batch ";

/// A file up to this size is not worth replacing, however much of it is superseded.
const SMALL_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct MarkFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    store_id: Uuid,
    state: Mutex<State>,
}

const FILE: &str = "postgres.mark";

#[derive(Debug)]
struct State {
    heads: BTreeMap<ChainId, Head>,
    /// Open for the next batch at this length; nothing when the file has to be written whole.
    end: Option<(Box<dyn DiskFile>, u64)>,
    /// Bytes of the last batch with everything, which is what a replacement would take, about.
    whole_bytes: u64,
    /// Something is in `heads` only.
    behind: bool,
}

/// The heads in the high-water mark of a server's data directory, whichever database it belongs to.
pub fn read_mark(dir: &Path) -> io::Result<BTreeMap<ChainId, Head>> {
    decode(&std::fs::read(dir.join(FILE))?).map(|(_, heads)| heads)
}

impl MarkFile {
    /// Opens the mark of a store and returns the heads in it.
    pub(super) fn open(dir: &Path, store_id: Uuid) -> io::Result<(MarkFile, BTreeMap<ChainId, Head>)> {
        MarkFile::open_on(Arc::new(RealDisk), dir, store_id)
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        store_id: Uuid,
    ) -> io::Result<(MarkFile, BTreeMap<ChainId, Head>)> {
        disk.create_dir(dir)?;
        let path = dir.join(FILE);
        let found = match disk.open(&path) {
            Ok(file) => disk::read_all(&*file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let heads = if found.is_empty() {
            BTreeMap::new()
        } else {
            let (of, heads) = decode(&found)?;
            if of != store_id {
                return Err(wrong("it belongs to another database; move it away if this database is right"));
            }
            heads
        };
        // Written whole the first time: behind a batch that a crash has torn nothing may be appended.
        let state = State { heads: heads.clone(), end: None, whole_bytes: 0, behind: false };
        Ok((MarkFile { disk, path, store_id, state: Mutex::new(state) }, heads))
    }

    /// Adds what has changed. After an error it is kept, and written with the next call.
    pub(super) fn write(&self, changed: HashMap<ChainId, Head>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_empty() && !state.behind {
            return Ok(());
        }
        let batch = batch(self.store_id, changed.iter());
        state.heads.extend(changed);
        state.behind = true;
        let bytes_max = SMALL_BYTES.max(2 * state.whole_bytes);
        // Taken out: if anything fails, nothing is known of the end of the file.
        match state.end.take() {
            Some((file, length)) if length + batch.len() as u64 <= bytes_max => {
                file.write_all_at(&batch, length)?;
                file.sync()?;
                state.end = Some((file, length + batch.len() as u64));
            }
            _ => {
                let mut whole = header(self.store_id).into_bytes();
                whole.extend(self::batch(self.store_id, state.heads.iter()));
                disk::replace(&*self.disk, &self.path, &whole)?;
                state.whole_bytes = whole.len() as u64;
                state.end = Some((self.disk.open(&self.path)?, state.whole_bytes));
            }
        }
        state.behind = false;
        Ok(())
    }
}

fn header(store_id: Uuid) -> String {
    format!("{FORMAT}\nstore {store_id}\n")
}

fn batch<'a>(store_id: Uuid, heads: impl Iterator<Item = (&'a ChainId, &'a Head)>) -> Vec<u8> {
    let mut lines = String::new();
    for (ChainId { tenant_id, project_id, mode }, head) in heads {
        let (mode, Head { chain_seq, log_id, hash }) = (mode.as_str(), head);
        lines.push_str(&format!("{tenant_id} {project_id} {mode} {chain_seq} {log_id} {hash}\n"));
    }
    let mut batch =
        format!("batch {} {:08x}\n", lines.len(), checksum(store_id, lines.as_bytes())).into_bytes();
    batch.extend(lines.into_bytes());
    batch
}

fn checksum(store_id: Uuid, lines: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store_id.0), lines)
}

fn wrong(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_owned())
}

fn decode(bytes: &[u8]) -> io::Result<(Uuid, BTreeMap<ChainId, Head>)> {
    let damaged = || wrong("it is damaged; move it away to start without it");
    match line(bytes) {
        Some((FORMAT, rest)) => decode_heads(rest).ok_or_else(damaged),
        Some((format, _)) if format.starts_with(FORMAT_NAME) => Err(wrong(&format!(
            "it has the format {format:?}, which this version does not know; use the version that wrote it, or a newer one"
        ))),
        _ => Err(damaged()),
    }
}

/// Nothing for a file that is damaged.
fn decode_heads(bytes: &[u8]) -> Option<(Uuid, BTreeMap<ChainId, Head>)> {
    let (store, mut rest) = line(bytes)?;
    let store_id = Uuid::parse(store.strip_prefix("store ")?)?;
    let mut heads = BTreeMap::new();
    while !rest.is_empty() {
        let Some((lines, after)) = whole_batch(store_id, rest) else {
            // Torn by a crash, if nothing comes behind it.
            let mut starts = (1..rest.len()).filter(|at| rest[*at..].starts_with(BATCH));
            return starts
                .all(|at| whole_batch(store_id, &rest[at..]).is_none())
                .then_some((store_id, heads));
        };
        for line in lines.lines() {
            let (chain, head) = head(line)?;
            heads.insert(chain, head);
        }
        rest = after;
    }
    Some((store_id, heads))
}

/// The lines of the batch at the beginning, and what comes behind it.
fn whole_batch(store_id: Uuid, bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (first, rest) = line(bytes)?;
    let (length, sum) = first.strip_prefix("batch ")?.split_once(' ')?;
    let (lines, after) = rest.split_at_checked(length.parse().ok()?)?;
    if sum != format!("{:08x}", checksum(store_id, lines)) {
        return None;
    }
    Some((std::str::from_utf8(lines).ok()?, after))
}

fn line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

fn head(line: &str) -> Option<(ChainId, Head)> {
    let mut words = line.split(' ');
    let chain = ChainId {
        tenant_id: TenantId(Uuid::parse(words.next()?)?),
        project_id: ProjectId(Uuid::parse(words.next()?)?),
        mode: rows::mode(words.next()?)?,
    };
    let head = Head {
        chain_seq: words.next()?.parse().ok()?,
        log_id: Ulid::parse(words.next()?)?,
        hash: Hash::parse(words.next()?)?,
    };
    Some((chain, head))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use sealog_core::id::Mode;

    use super::*;

    const STORE: Uuid = Uuid([5; 16]);

    fn chain(project: u32) -> ChainId {
        let mut id = [2; 16];
        id[..4].copy_from_slice(&project.to_be_bytes());
        ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid(id)), mode: Mode::Live }
    }

    fn heads<const N: usize>(of: [(u32, u64); N]) -> HashMap<ChainId, Head> {
        let head =
            |chain_seq| Head { chain_seq, log_id: Ulid(u128::from(chain_seq) << 80), hash: Hash([3; 32]) };
        of.into_iter().map(|(project, seq)| (chain(project), head(seq))).collect()
    }

    fn read(dir: &Path) -> io::Result<Vec<(ChainId, u64)>> {
        let (_, heads) = MarkFile::open(dir, STORE)?;
        Ok(heads.into_iter().map(|(chain, head)| (chain, head.chain_seq)).collect())
    }

    #[test]
    fn a_mark_reads_back_and_a_changed_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, none) = MarkFile::open(dir.path(), STORE).unwrap();
        assert!(none.is_empty());
        for changed in [heads([(1, 7), (2, 9)]), heads([]), heads([(1, 8)]), heads([(3, 1)])] {
            mark.write(changed).unwrap();
        }
        let all = [(chain(1), 8), (chain(2), 9), (chain(3), 1)];
        assert_eq!(read(dir.path()).unwrap(), all);
        assert!(
            MarkFile::open(dir.path(), Uuid([6; 16])).unwrap_err().to_string().contains("another database")
        );
        let path = dir.path().join("postgres.mark");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("batch ").count(), 3, "one for each write that had something");
        std::fs::write(&path, text.replace(" 9 ", " 8 ")).unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("damaged"));
        // One that is opened again goes on.
        std::fs::write(&path, &text).unwrap();
        let (mark, _) = MarkFile::open(dir.path(), STORE).unwrap();
        mark.write(heads([(2, 10)])).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [(chain(1), 8), (chain(2), 10), (chain(3), 1)]);
    }

    #[test]
    fn a_crash_tears_the_last_batch_only_and_what_was_synced_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, _) = MarkFile::open(dir.path(), STORE).unwrap();
        mark.write(heads([(1, 7)])).unwrap();
        let path = dir.path().join("postgres.mark");
        let synced = std::fs::read(&path).unwrap().len();
        mark.write(heads([(1, 8), (2, 1), (3, 1)])).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(read(dir.path()).unwrap().len(), 3);
        for length in synced..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(dir.path()).unwrap(), [(chain(1), 7)], "cut at {length}");
            // Of pages that were not synced any may be missing, also the first.
            let mut holed = whole.clone();
            holed[synced..length].fill(0);
            if length > synced {
                std::fs::write(&path, &holed).unwrap();
                assert_eq!(read(dir.path()).unwrap(), [(chain(1), 7)], "zeros up to {length}");
            }
        }
        // Nothing is appended behind a torn batch.
        std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let (mark, _) = MarkFile::open(dir.path(), STORE).unwrap();
        mark.write(heads([(4, 4)])).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [(chain(1), 7), (chain(4), 4)]);
    }

    #[test]
    fn a_mark_of_an_unknown_format_is_refused_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postgres.mark");
        std::fs::write(&path, format!("sealog postgres mark 9\nstore {STORE}\n")).unwrap();
        let refused = read(dir.path()).unwrap_err().to_string();
        assert!(
            refused.contains("\"sealog postgres mark 9\"") && refused.contains("this version does not know")
        );
        assert_eq!(read_mark(dir.path()).unwrap_err().to_string(), refused);
    }

    /// Counts what is written, and can be told to fail.
    #[derive(Debug, Default)]
    struct Counting {
        bytes: Arc<AtomicU64>,
        fails: Arc<AtomicBool>,
    }

    #[derive(Debug)]
    struct CountingFile(Box<dyn DiskFile>, Arc<AtomicU64>, Arc<AtomicBool>);

    impl Counting {
        fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
            Box::new(CountingFile(file, Arc::clone(&self.bytes), Arc::clone(&self.fails)))
        }
    }

    impl Disk for Counting {
        fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            Ok(self.file(RealDisk.open(path)?))
        }
        fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            Ok(self.file(RealDisk.create(path)?))
        }
        fn create_dir(&self, path: &Path) -> io::Result<()> {
            RealDisk.create_dir(path)
        }
        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            RealDisk.list(dir)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealDisk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            RealDisk.remove(path)
        }
        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            RealDisk.sync_dir(dir)
        }
        fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
            RealDisk.free_bytes(dir)
        }
    }

    impl DiskFile for CountingFile {
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_at(buffer, offset)
        }
        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.1.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            if self.2.load(Ordering::SeqCst) {
                self.0.write_all_at(&bytes[..bytes.len() / 2], offset)?;
                return Err(io::Error::other("the disk fails"));
            }
            self.0.write_all_at(bytes, offset)
        }
        fn set_len(&self, length: u64) -> io::Result<()> {
            self.0.set_len(length)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }

    #[test]
    fn the_mark_costs_what_has_changed_however_many_chains_there_are() {
        const CHAINS: u32 = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(Counting::default());
        let bytes = Arc::clone(&disk.bytes);
        let (mark, _) = MarkFile::open_on(disk, dir.path(), STORE).unwrap();
        mark.write((1..=CHAINS).flat_map(|project| heads([(project, 1)])).collect()).unwrap();
        let whole = bytes.swap(0, Ordering::SeqCst);
        for seq in 2..102 {
            mark.write(heads([(7, seq)])).unwrap();
        }
        let each = bytes.swap(0, Ordering::SeqCst) / 100;
        assert!(each < 300, "{each} bytes for one chain of {CHAINS}, which take {whole}");
        // Replacing what is superseded at most doubles that.
        for seq in 102..2_102 {
            mark.write((1..100).flat_map(|project| heads([(project, seq)])).collect()).unwrap();
        }
        let each = bytes.swap(0, Ordering::SeqCst) / (2_000 * 99);
        assert!(each < 600, "{each} bytes for each head that has changed");
        assert!(std::fs::metadata(dir.path().join("postgres.mark")).unwrap().len() <= 3 * whole);
        let read = read(dir.path()).unwrap();
        assert_eq!((read.len(), read[0].1, read[1000].1), (CHAINS as usize, 2_101, 1));
    }

    #[test]
    fn what_a_failing_disk_did_not_take_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(Counting::default());
        let fails = Arc::clone(&disk.fails);
        let (mark, _) = MarkFile::open_on(disk, dir.path(), STORE).unwrap();
        mark.write(heads([(1, 1)])).unwrap();
        fails.store(true, Ordering::SeqCst);
        assert!(mark.write(heads([(1, 2), (2, 1)])).is_err());
        assert!(mark.write(heads([])).is_err(), "there is something left to write");
        assert_eq!(read(dir.path()).unwrap(), [(chain(1), 1)]);
        fails.store(false, Ordering::SeqCst);
        mark.write(heads([])).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [(chain(1), 2), (chain(2), 1)]);
    }
}
