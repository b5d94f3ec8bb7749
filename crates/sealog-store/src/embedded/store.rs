//! [`EmbeddedStore`]: the directory, the lock, the format check, the two logs, the thread pool.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid};
use sealog_core::time::Month;
use sealog_core::verify::{Item, Verdict};

use super::contents::Contents;
use super::data_dir::{self, DataDir, Directory, ReadLock};
use super::derived;
use super::feed::follow;
use super::feed::recent::Feed;
use super::index::salt::IndexSalt;
use super::log::disk::{self, Disk, RealDisk};
use super::log::read_only::ReadOnlyDisk;
#[cfg(feature = "mutants")]
use super::mutants;
use super::open_log::{self, Log};
use super::options::{OpenError, Options};
use super::recovery::finding::Finding;
use super::recovery::state;
use super::watch;
use crate::append::{Append, Appended, IdempotencyKey, KeptKey, Receipt, Reserved, WantedKeys};
use crate::counts::{Counts, Days};
use crate::derived::{DerivedFaults, DerivedStep};
use crate::error::StoreError;
use crate::feed::{Follower, Scope, Start};
use crate::loss::Loss;
use crate::pool::{FairPool, Lane, Payer};
use crate::query::{ChainHead, Chunk, LOOKUP_COST, List, Range};
use crate::segments::Segments;
use crate::stats::StoreStats;
use crate::store::{DropPlan, DropStep, Store};
use crate::types::BoxFuture;

const FORMAT_LINE: &str = "sealog embedded 1\n";

/// An open embedded store. Closes cleanly when dropped.
#[derive(Debug)]
pub struct EmbeddedStore {
    live: Arc<open_log::Handle>,
    test: Arc<open_log::Handle>,
    pool: Arc<FairPool>,
    feed: Arc<Feed>,
    derived: Arc<DerivedFaults>,
    /// Looks after the directory. Nothing for a disk that is not of this machine.
    watch: Option<watch::Watch>,
    /// Nothing for a disk that is not of this machine, and for a store that is only read. Released last.
    directory: Option<Directory>,
    /// Of a store that is only read: held for as long as it is.
    _read_lock: Option<ReadLock>,
}

impl EmbeddedStore {
    pub fn open(dir: &Path, options: &Options) -> Result<EmbeddedStore, OpenError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Io { path, error }
        };
        #[cfg(feature = "mutants")]
        let options = &Options { disk: mutants::disk(Arc::clone(&options.disk)), ..options.clone() };
        let Options { read_only, .. } = *options;
        let only_read = read_only
            .then(|| Options { disk: Arc::new(ReadOnlyDisk(Arc::clone(&options.disk))), ..options.clone() });
        let options = only_read.as_ref().unwrap_or(options);
        if !read_only {
            options.disk.create_dir(dir).map_err(at(dir))?;
            // The name of the directory itself must survive a power cut, too.
            let parent =
                dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            options.disk.sync_dir(parent).map_err(at(parent))?;
        }
        // Locking and the check of the file system are about the real machine; a disk in a test has neither.
        let real = fs::metadata(dir).is_ok();
        // What is only read may be anywhere: nothing is acknowledged.
        if real && !read_only && !options.allow_unsafe_storage {
            refuse_unsafe_storage(dir)?;
        }
        let (mut directory, mut read_lock) = (None, None);
        if real && read_only {
            read_lock = Some(ReadLock::take(dir)?);
        } else if real {
            directory = Some(Directory::new(DataDir::take(dir)?, Arc::clone(&options.disk)));
        }
        check_format(dir, options)?;
        let salt =
            IndexSalt::open(dir, &*options.disk, &*options.world).map_err(at(&dir.join("index.salt")))?;
        let feed: Arc<Feed> = Arc::default();
        let log = |mode: Mode| {
            let dir = dir.join(mode.as_str());
            open_log::Handle::open(&dir, mode, options, salt, &feed).map_err(|error| match error {
                state::RecoveryError::UnknownVersion(version) => {
                    OpenError::UnknownFormat { found: format!("segment version {version}") }
                }
                state::RecoveryError::Io(error) => OpenError::Io { path: dir, error },
            })
        };
        let live = Arc::new(log(Mode::Live)?);
        let test = Arc::new(log(Mode::Test)?);
        let watch = match &directory {
            None => None,
            Some(held) => {
                for mode in [Mode::Live, Mode::Test] {
                    let path = dir.join(mode.as_str());
                    held.hold(&path).map_err(at(&path))?;
                }
                data_dir::warn_about_wider_modes(dir);
                let logs = [Arc::clone(&live), Arc::clone(&test)];
                Some(watch::Watch::start(held.clone(), logs, options.tick).map_err(at(dir))?)
            }
        };
        let pool = Arc::new(FairPool::start());
        let derived = Arc::default();
        Ok(EmbeddedStore { live, test, pool, feed, derived, watch, directory, _read_lock: read_lock })
    }

    /// Whether a directory is on stable storage, or why not; for a look before a start.
    pub fn check_storage(dir: &Path) -> Result<(), OpenError> {
        refuse_unsafe_storage(dir)
    }

    /// Whether there is a store in a directory, as a start would find it. An error is what it would refuse.
    pub fn check_format(dir: &Path) -> Result<bool, OpenError> {
        has_format(dir, &RealDisk)
    }

    /// What its files are, as they say themselves.
    pub fn format() -> &'static str {
        FORMAT_LINE.trim_end()
    }

    /// What was wrong with the files when they were opened.
    pub fn findings(&self) -> Vec<(Mode, Finding)> {
        let of = |mode, log: &open_log::Handle| {
            log.findings().iter().map(move |finding| (mode, finding.clone())).collect::<Vec<_>>()
        };
        [of(Mode::Live, &self.live), of(Mode::Test, &self.test)].concat()
    }

    /// The directory, for other files that belong to it. Nothing for a disk that is not of this machine, and
    /// for a store that is only read.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// Why no event is written any more until the store is opened again: a write or a sync failed. Reads go
    /// on.
    pub fn failure(&self) -> Option<String> {
        let of_log = |log: &open_log::Handle| match log.log().writer.ready() {
            Err(StoreError::Poisoned(cause)) => Some(cause),
            _ => None,
        };
        of_log(&self.live).or_else(|| of_log(&self.test))
    }

    /// Accepts no events any more, since a copy of this store was promoted and has the chains. Reads go on.
    /// Whether that is news.
    pub fn supersede(&self, epoch: u64) -> bool {
        let of_log = |log: &open_log::Handle| log.log().writer.supersede(epoch);
        // Both, also if the first one fails.
        of_log(&self.live) | of_log(&self.test)
    }

    /// Finishes what is queued, syncs and stops. What was not acknowledged before this returns was not
    /// written.
    pub fn close(&self) {
        self.live.close();
        self.test.close();
        self.feed.close();
    }

    pub(super) fn log(&self, mode: Mode) -> &Arc<Log> {
        match mode {
            Mode::Live => self.live.log(),
            Mode::Test => self.test.log(),
        }
    }

    /// Runs a read on the pool, in its tenant's turn: it may wait for the disk, which an event loop must not.
    fn read<T: Send + 'static>(
        &self,
        chain: ChainId,
        cost: usize,
        act: impl FnOnce(&Contents) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let log = Arc::clone(self.log(chain.mode));
        let answer = self.pool.run(Lane::Read, chain, cost, move || act(&log.contents));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(StoreError::Closing)) })
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.watch = None;
        self.pool.stop();
        self.close();
    }
}

impl Store for EmbeddedStore {
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        // A key that was certainly never used needs no read, hence no place among reads.
        if let Some(reserved) = self.log(chain.mode).contents.reserve_unused(chain, key) {
            return Box::pin(async move { Ok(reserved) });
        }
        self.read(chain, LOOKUP_COST, move |log| log.reserve(chain, key))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let answer = self.log(append.chain.mode).writer.append(append);
        Box::pin(async move { answer?.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        self.read(chain, LOOKUP_COST, move |log| log.get(chain, log_id))
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        self.read(chain, list.cost(), move |log| log.list(chain, &list))
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        self.read(chain, range.cost(), move |log| log.range(chain, range))
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        let head = self.log(chain.mode).contents.head(chain);
        Box::pin(async move { head })
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        let logs = [Arc::clone(self.live.log()), Arc::clone(self.test.log())];
        let heads = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || {
            let mut heads = Vec::new();
            for log in logs {
                heads.extend(log.contents.heads()?);
            }
            heads.sort_by_key(|(chain, _)| *chain);
            Ok(heads)
        });
        Box::pin(async move { heads.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>> {
        let follower = follow::follow(&self.feed, [&self.live, &self.test], &self.pool, scope, &start);
        Box::pin(async move { follower })
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        let usage = self.live.log().contents.usage(tenant_id, month);
        Box::pin(async move { usage })
    }

    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>> {
        self.read(chain, LOOKUP_COST, move |log| log.counts(chain, days))
    }

    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>> {
        let answer = self.log(chain.mode).writer.import(chain, events, key);
        Box::pin(async move { answer?.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>> {
        self.read(chain, wanted.limit.saturating_mul(LOOKUP_COST), move |log| log.kept_keys(chain, wanted))
    }

    fn audit(
        &self,
        chains: Vec<ChainId>,
        progress: Arc<AtomicU64>,
    ) -> BoxFuture<'_, Result<Vec<Verdict>, StoreError>> {
        let logs = [Arc::clone(self.live.log()), Arc::clone(self.test.log())];
        let verdicts = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || {
            let mut verdicts = HashMap::new();
            for log in logs {
                let of_log: Vec<_> =
                    chains.iter().copied().filter(|chain| chain.mode == log.contents.mode).collect();
                let of_log_verdicts = log.contents.audit(&of_log, &progress)?;
                verdicts.extend(of_log.into_iter().zip(of_log_verdicts));
            }
            Ok(chains.iter().map(|chain| verdicts[chain]).collect())
        });
        Box::pin(async move { verdicts.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn check_derived(&self, position: Vec<u8>, heal: bool) -> BoxFuture<'_, Result<DerivedStep, StoreError>> {
        let step = derived::step(self.live.log(), self.test.log(), &position, heal);
        let known = Arc::clone(&self.derived);
        Box::pin(async move {
            let step = step?.await.map_err(|_| StoreError::Read("panic in a comparison".into()))?;
            known.note(&step.faults);
            Ok(step)
        })
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        let logs = [Arc::clone(self.live.log()), Arc::clone(self.test.log())];
        let findings = self.live.findings().len() + self.test.findings().len();
        let findings = findings as u64 + self.derived.count();
        let reads_waiting = self.pool.waiting(Lane::Read);
        let clock = self.live.log().contents.world.clock();
        let stats = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || StoreStats {
            storage_bytes: logs.iter().map(|log| log.contents.storage_bytes()).sum(),
            logs: logs.iter().map(|log| log.writer.stats()).collect(),
            reads_waiting,
            findings,
            read_errors: logs.iter().map(|log| log.contents.read_failures.count()).sum(),
            clock: clock.stats(),
            ..StoreStats::default()
        });
        Box::pin(async move { stats.await.map_err(|_| StoreError::Closing) })
    }

    fn segments(&self) -> Option<&dyn Segments> {
        Some(self)
    }

    fn pool(&self) -> &FairPool {
        &self.pool
    }

    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        let log = Arc::clone(self.log(chain.mode));
        let answer = self.pool.run(Lane::Read, chain, LOOKUP_COST, move || log.accept_loss(chain, reason));
        Box::pin(async move { answer.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn record_loss(&self, chain: ChainId, known: Head) -> BoxFuture<'_, Result<(), StoreError>> {
        self.log(chain.mode).contents.chains.record_loss(chain, known);
        Box::pin(async { Ok(()) })
    }

    fn set_rolled_back(&self, why: Option<String>) {
        self.live.log().writer.set_rolled_back(why.clone());
        self.test.log().writer.set_rolled_back(why);
    }

    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        let log = Arc::clone(self.test.log());
        let plan = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || log.plan_drop(before_ms));
        Box::pin(async move { plan.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        let log = Arc::clone(self.test.log());
        let step = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || log.drop_oldest(&plan));
        Box::pin(async move { step.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn losses(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Loss)>, StoreError>> {
        let logs = [Arc::clone(self.live.log()), Arc::clone(self.test.log())];
        let losses = self.pool.run(Lane::Read, Payer::Operator, LOOKUP_COST, move || {
            let mut losses: Vec<_> = logs.iter().flat_map(|log| log.contents.losses()).collect();
            losses.sort_by_key(|(chain, _)| *chain);
            losses
        });
        Box::pin(async move { losses.await.map_err(|_| StoreError::Closing) })
    }

    fn faults(&self) -> Vec<String> {
        let said = |(mode, finding): (Mode, Finding)| format!("{} log: {finding}", mode.as_str());
        self.findings().into_iter().map(said).chain(self.derived.all()).collect()
    }

    fn notices(&self) -> Vec<&'static str> {
        let degraded =
            [Mode::Live, Mode::Test].iter().any(|mode| self.log(*mode).contents.read_failures.is_degraded());
        let reads = degraded.then_some("reads from the disk failed within the last minute");
        self.live.log().contents.world.clock().notice().into_iter().chain(reads).collect()
    }

    fn degraded(&self) -> Vec<String> {
        let of_log = |mode: &Mode| self.log(*mode).contents.read_failures.said(*mode);
        [Mode::Live, Mode::Test].iter().filter_map(of_log).collect()
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.live.log().writer.ready()?;
        self.test.log().writer.ready()?;
        for mode in [Mode::Live, Mode::Test] {
            if let Some(error) = self.log(mode).contents.read_failures.of_active() {
                return Err(StoreError::Read(error));
            }
        }
        self.live.log().contents.world.clock().sealing_ms().map(drop)
    }
}

fn check_format(dir: &Path, options: &Options) -> Result<(), OpenError> {
    let disk: &dyn Disk = &*options.disk;
    if has_format(dir, disk)? {
        return Ok(());
    }
    let path = dir.join("FORMAT");
    if options.read_only {
        return Err(OpenError::Io { path, error: rustix::io::Errno::NOENT.into() });
    }
    disk::replace(disk, &path, FORMAT_LINE.as_bytes()).map_err(|error| OpenError::Io { path, error })
}

/// False where there is no store yet. Another format than this one is an error.
fn has_format(dir: &Path, disk: &dyn Disk) -> Result<bool, OpenError> {
    let path = dir.join("FORMAT");
    let io = |error| OpenError::Io { path: path.clone(), error };
    match disk.open(&path) {
        Ok(file) => {
            let content = disk::read_all(&*file).map_err(io)?;
            let found = String::from_utf8_lossy(&content);
            if found == FORMAT_LINE {
                Ok(true)
            } else {
                Err(OpenError::UnknownFormat { found: found.trim().to_owned() })
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io(error)),
    }
}

/// A 202 says that an event is on stable storage; these file systems cannot keep that promise.
fn refuse_unsafe_storage(dir: &Path) -> Result<(), OpenError> {
    const UNSAFE: [(u64, &str); 6] = [
        (0x0102_1994, "tmpfs (memory)"),
        (0x8584_58f6, "ramfs (memory)"),
        (0x6969, "NFS (a network file system)"),
        (0xff53_4d42, "CIFS (a network file system)"),
        (0xfe53_4d42, "SMB (a network file system)"),
        (0x0102_1997, "9p (a network file system)"),
    ];
    let stat = rustix::fs::statfs(dir)
        .map_err(|error| OpenError::Io { path: dir.to_owned(), error: error.into() })?;
    // The field is signed on some architectures; the kernel's constants have 32 bits.
    let magic = u64::try_from(stat.f_type & 0xffff_ffff).unwrap_or(0);
    match UNSAFE.iter().find(|(known, _)| *known == magic) {
        Some((_, file_system)) => Err(OpenError::UnsafeStorage { file_system }),
        None => Ok(()),
    }
}
