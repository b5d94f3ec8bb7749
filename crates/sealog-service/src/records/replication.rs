//! What a replica on another machine reads: moments of the store, and the bytes of its files. The caller has
//! seen to it that it is the operator.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sealog_control::Control;
use sealog_core::id::Mode;
use sealog_store::pool::{Lane, Payer};
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Semaphore};

use crate::records::copies::{self, CONTROL_FILE, FOR_REPLICAS, HANDED_OVER, LOG_FOR_REPLICAS};

/// Longest answer with bytes of a file.
pub const PIECE_BYTES_MAX: usize = 4 << 20;
/// Answers with bytes that are made at a time. Others wait for their turn.
const AT_ONCE: usize = 2;
/// Times of files are not exact: a file that was changed more recently than this may be changed again without
/// a trace.
const SETTLED: Duration = Duration::from_secs(2);
/// The store log, and how it is named in its folder.
const LOG_FILE: &str = "trust/log.db";
const LOG_COPY: &str = "log.db";
/// The store log is copied as a whole and changes with each snapshot, so it rests this many times as long as
/// a copy took.
const LOG_REST: u32 = 20;
/// After a copy that could not be made.
const LOG_RETRY: Duration = Duration::from_secs(60);

/// The server's side of replication.
pub struct Replication {
    store: Arc<dyn Store>,
    control: Arc<Control>,
    kept: Mutex<Option<Kept>>,
    log: Mutex<LogCopy>,
    /// Copies that were begun.
    copies: AtomicU64,
    turns: Semaphore,
}

/// The copy of the control data, or of the store log, that replicas read now.
#[derive(Clone, Debug)]
struct Kept {
    sha256: String,
    bytes: u64,
    path: PathBuf,
    /// Lengths and times of the files that it was made of; nothing if they may change unseen.
    of: Option<Traces>,
}

impl Kept {
    fn to_json(&self) -> Value {
        json!({ "sha256": self.sha256, "bytes": self.bytes })
    }
}

/// Of the store log.
#[derive(Debug, Default)]
struct LogCopy {
    kept: Option<Kept>,
    rests_until: Option<Instant>,
}

type Traces = Vec<Option<(u64, SystemTime)>>;

impl Replication {
    /// Nothing for a store that is a database.
    pub fn new(store: Arc<dyn Store>, control: Arc<Control>) -> Option<Replication> {
        store.segments()?;
        let (kept, log, copies) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Some(Replication { store, control, kept, log, copies, turns: Semaphore::new(AT_ONCE) })
    }

    /// A moment of the store, with the digest of the control data that belongs to it, and of the store log.
    pub async fn moment(&self) -> Result<Value, StoreError> {
        let data_dir = self.data_dir()?;
        // Before the events, so that what it says of events is of events that the moment has.
        let log = self.copied_log(&data_dir).await?;
        let mut kept = self.kept.lock().await;
        let before = traces(&data_dir, CONTROL_FILE);
        let unchanged =
            kept.clone().filter(|kept| kept.of.is_some() && kept.of == before && kept.path.is_file());
        let (moment, now) = match unchanged {
            // Nothing was changed since it was copied, so that it is as good as a copy of this moment.
            Some(unchanged) => (self.cut(), unchanged),
            None => {
                let number = self.copies.fetch_add(1, Ordering::Relaxed);
                let dir = begin(&data_dir.join(HANDED_OVER).join(FOR_REPLICAS), number)?;
                let moment = copies::take(&self.store, &self.control, dir.join(CONTROL_FILE)).await?;
                let path = moment.control.clone();
                let copy = self.off_loop(move || keep(&path, before)).await??;
                (moment.to_json(), copy)
            }
        };
        let mut answer = moment;
        answer["control"] = now.to_json();
        answer["log"] = log.map_or(Value::Null, |log| log.to_json());
        *kept = Some(now);
        Ok(answer)
    }

    /// The newest copy of the store log. None for a store without one, and where none can be made, such as on
    /// a full disk: replicas keep the one that they have, and miss no events for it.
    async fn copied_log(&self, data_dir: &Path) -> Result<Option<Kept>, StoreError> {
        let mut log = self.log.lock().await;
        let (from, before) = (data_dir.join(LOG_FILE), traces(data_dir, LOG_FILE));
        let is_same = |kept: &Kept| kept.path.is_file() && kept.of.is_some() && kept.of == before;
        let rests = log.rests_until.is_some_and(|until| Instant::now() < until);
        if !from.is_file() || rests || log.kept.as_ref().is_some_and(is_same) {
            return Ok(log.kept.clone());
        }
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let dir = data_dir.join(HANDED_OVER).join(LOG_FOR_REPLICAS);
        let (begun, control) = (Instant::now(), Arc::clone(&self.control));
        let copied = self.off_loop(move || {
            let bytes = fs::metadata(&from).map_or(0, |file| file.len());
            if !control.has_room(bytes) {
                return Err(StoreError::NoRoom);
            }
            let path = begin(&dir, number)?.join(LOG_COPY);
            sealog_control::copy_of_file(&from, &path)?;
            keep(&path, before)
        });
        let copied = copied.await?.inspect_err(|error| {
            tracing::warn!(%error, "cannot copy the signed log for replicas; they keep the one that they have");
        });
        let rest = if copied.is_ok() { begun.elapsed() * LOG_REST } else { LOG_RETRY };
        *log = LogCopy { kept: copied.ok(), rests_until: Some(Instant::now() + rest) };
        Ok(log.kept.clone())
    }

    /// The logs alone.
    fn cut(&self) -> Value {
        let segments = self.store.segments().expect("it was made for a store that has them");
        let moment =
            copies::Moment { store_id: segments.store_id(), logs: segments.cut(), control: PathBuf::new() };
        moment.to_json()
    }

    /// Bytes of a segment, at most [`PIECE_BYTES_MAX`]; nothing if there is no such segment.
    pub async fn segment(
        &self,
        mode: Mode,
        number: u64,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let _turn = self.turns.acquire().await.map_err(|_| StoreError::Closing)?;
        let (store, length) = (Arc::clone(&self.store), length(from, to));
        let read = move || match store.segments() {
            Some(segments) => segments.read_segment(mode, number, from, length),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        of_read(self.off_loop(read).await?)
    }

    /// Bytes of the copy of the control data with this digest; nothing if there is another one by now.
    pub async fn control(&self, sha256: &str, from: u64, to: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let kept = self.kept.lock().await.clone();
        self.copy(kept, sha256, from, to).await
    }

    /// Likewise, of the store log.
    pub async fn log(&self, sha256: &str, from: u64, to: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let kept = self.log.lock().await.kept.clone();
        self.copy(kept, sha256, from, to).await
    }

    async fn copy(
        &self,
        kept: Option<Kept>,
        sha256: &str,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let _turn = self.turns.acquire().await.map_err(|_| StoreError::Closing)?;
        let Some(path) = kept.filter(|kept| kept.sha256 == sha256).map(|kept| kept.path) else {
            return Ok(None);
        };
        let length = length(from, to);
        of_read(self.off_loop(move || read(&path, from, length)).await?)
    }

    /// The secret of the indexes, without which a replica would build them all anew.
    pub async fn salt(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.data_dir()?.join("index.salt");
        of_read(self.off_loop(move || fs::read(path)).await?)
    }

    fn data_dir(&self) -> Result<PathBuf, StoreError> {
        let directory = || Some(self.store.segments()?.directory()?.to_owned());
        directory().ok_or_else(|| StoreError::Refused("the store is not on a disk of this machine".into()))
    }

    /// It waits for the disk, which an event loop must not.
    async fn off_loop<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = self.store.pool().run(Lane::Read, Payer::Operator, PIECE_BYTES_MAX, act);
        answer.await.map_err(|_| StoreError::Closing)
    }
}

fn length(from: u64, to: u64) -> usize {
    usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX)
}

fn of_read(read: std::io::Result<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Read(error.to_string())),
    }
}

fn read(path: &Path, from: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let (file, mut bytes, mut filled) = (fs::File::open(path)?, vec![0; length], 0);
    while filled < length {
        match file.read_at(&mut bytes[filled..], from + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// An empty directory that only its owner can enter, in place of those of earlier copies.
///
/// Each copy has its own: one that is made for a replica which has gone meanwhile is made to its end, and
/// would be in the way of the next under the same name.
fn begin(all: &Path, number: u64) -> Result<PathBuf, StoreError> {
    // One that cannot be removed, because it is still being written, is removed the next time.
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
    let dir = all.join(number.to_string());
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|error| StoreError::Control(format!("{}: {error}", dir.display())))?;
    Ok(dir)
}

/// What the files of a database look like; nothing if they were changed a moment ago.
fn traces(data_dir: &Path, file: &str) -> Option<Traces> {
    let now = SystemTime::now();
    let trace = |name: String| {
        let found = fs::metadata(data_dir.join(name)).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    let traces: Traces = [file.to_owned(), format!("{file}-wal")].into_iter().map(trace).collect();
    let is_settled = |(_, at): &(u64, SystemTime)| now.duration_since(*at).is_ok_and(|age| age > SETTLED);
    traces.iter().flatten().all(is_settled).then_some(traces)
}

/// Under a name that a copy which is made later does not take.
fn keep(path: &Path, of: Option<Traces>) -> Result<Kept, StoreError> {
    let failed = |error: std::io::Error| StoreError::Control(format!("{}: {error}", path.display()));
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let (mut file, mut piece) = (fs::File::open(path).map_err(failed)?, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut piece).map_err(failed)?;
        if count == 0 {
            break;
        }
        hasher.update(&piece[..count]);
        bytes += count as u64;
    }
    let sha256 = hex::encode(hasher.finalize());
    let named = path.with_file_name(&sha256);
    fs::rename(path, &named).map_err(failed)?;
    Ok(Kept { sha256, bytes, path: named, of })
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Hash;
    use sealog_store::embedded::{EmbeddedStore, Options};

    use super::*;

    #[test]
    fn a_copy_for_a_replica_that_has_gone_is_not_in_the_way_of_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { allow_unsafe_storage: true, ..Options::default() };
        let store = EmbeddedStore::open(&dir.path().join("data"), &options).unwrap();
        let control = Arc::new(Control::embedded(&store).unwrap());
        let replication = Replication::new(Arc::new(store), control).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..30 {
                // It is asked once, and dropped while the copy is made.
                let _gone = tokio::time::timeout(Duration::ZERO, replication.moment()).await;
                let moment = replication.moment().await.unwrap();
                let sha256 = moment["control"]["sha256"].as_str().unwrap();
                let bytes = moment["control"]["bytes"].as_u64().unwrap();
                let read = replication.control(sha256, 0, bytes).await.unwrap().unwrap();
                assert_eq!(Hash(Sha256::digest(read).into()).to_string(), sha256);
            }
        });
    }
}
