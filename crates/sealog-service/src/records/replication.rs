//! What a replica on another machine reads: moments of the store, and the bytes of its files. The caller has
//! seen to it that it is the operator.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sealog_control::Control;
use sealog_core::id::Mode;
use sealog_store::pool::{Lane, Payer};
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, Semaphore};

use crate::records::copies::{self, CONTROL_FILE, FOR_REPLICAS, HANDED_OVER};

/// Longest answer with bytes of a file.
pub const PIECE_BYTES_MAX: usize = 4 << 20;
/// Answers with bytes that are made at a time. Others wait for their turn.
const AT_ONCE: usize = 2;
/// Times of files are not exact: a file that was changed more recently than this may be changed again without
/// a trace.
const SETTLED: Duration = Duration::from_secs(2);

/// The server's side of replication.
pub struct Replication {
    store: Arc<dyn Store>,
    control: Arc<Control>,
    kept: Mutex<Option<Kept>>,
    /// Copies that were begun.
    copies: AtomicU64,
    turns: Semaphore,
}

/// The copy of the control data that replicas read now.
#[derive(Clone, Debug)]
struct Kept {
    sha256: String,
    bytes: u64,
    path: PathBuf,
    /// Lengths and times of the files that it was made of; nothing if they may change unseen.
    of: Option<Traces>,
}

type Traces = Vec<Option<(u64, SystemTime)>>;

impl Replication {
    /// Nothing for a store that is a database.
    pub fn new(store: Arc<dyn Store>, control: Arc<Control>) -> Option<Replication> {
        store.segments()?;
        let (kept, copies) = (Mutex::default(), AtomicU64::new(0));
        Some(Replication { store, control, kept, copies, turns: Semaphore::new(AT_ONCE) })
    }

    /// A moment of the store, with the digest of the control data that belongs to it.
    pub async fn moment(&self) -> Result<Value, StoreError> {
        let mut kept = self.kept.lock().await;
        let data_dir = self.data_dir()?;
        let before = traces(&data_dir);
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
        answer["control"] = json!({ "sha256": now.sha256, "bytes": now.bytes });
        *kept = Some(now);
        Ok(answer)
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
        let _turn = self.turns.acquire().await.map_err(|_| StoreError::Closing)?;
        let kept = self.kept.lock().await;
        let Some(path) = kept.as_ref().filter(|kept| kept.sha256 == sha256).map(|kept| kept.path.clone())
        else {
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

/// What the files of the control data look like; nothing if they were changed a moment ago.
fn traces(data_dir: &Path) -> Option<Traces> {
    let now = SystemTime::now();
    let trace = |name: &str| {
        let found = fs::metadata(data_dir.join(name)).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    let traces: Traces = [CONTROL_FILE, "control.db-wal"].into_iter().map(trace).collect();
    let is_settled = |(_, at): &(u64, SystemTime)| now.duration_since(*at).is_ok_and(|age| age > SETTLED);
    traces.iter().flatten().all(is_settled).then_some(traces)
}

/// Under a name that a copy which is made later does not take.
fn keep(path: &Path, of: Option<Traces>) -> Result<Kept, StoreError> {
    let failed = |error: std::io::Error| StoreError::Control(format!("{}: {error}", path.display()));
    let content = fs::read(path).map_err(failed)?;
    let sha256 = hex::encode(Sha256::digest(&content));
    let named = path.with_file_name(&sha256);
    fs::rename(path, &named).map_err(failed)?;
    Ok(Kept { sha256, bytes: content.len() as u64, path: named, of })
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
