//! [`PostgresStore`]: its thread and event loop, the watch of the database, reservations of keys.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, TenantId, Ulid, Uuid};
use sealog_core::time::Month;
use sealog_core::verify::Item;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::error::{OpenError, damaged, explain, unavailable, unsafe_storage};
use super::event_clock::{ClockBehind, EventClock};
use super::fields::FieldKeys;
use super::hub::Feed;
use super::inner::{Health, Inner, SharedVersion};
use super::keys::UsedKey;
use super::loss::{Finding, Findings, ForgedDrop};
use super::mark::MarkFile;
use super::migrate::Schema;
use super::options::Options;
use super::pool::Session;
use super::routes::{self, Routes, Side, Worker};
use super::rows::{Digest32, Id, signed, unsigned};
use super::statements::{AtOnce, CommitPhase, LockPhase};
use super::url::Target;
use super::writer::{Statements, Writer};
use super::{counts, feed, fields, loss, migrate, reader, statements};
use crate::append::{
    Append, Appended, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, Receipt, Reservation, Reserved,
    WantedKeys,
};
use crate::counts::{Counts, Days};
use crate::derived::{DerivedFaults, DerivedStep};
use crate::error::StoreError;
use crate::feed::{Follower, Scope, Start};
use crate::loss::Loss;
use crate::pool::{FairPool, Lane};
use crate::query::{ChainHead, Chunk, List, Range};
use crate::stats::StoreStats;
use crate::store::{DropPlan, DropStep, Store};
use crate::supervise::Loops;
use crate::sync::lock;
use crate::types::BoxFuture;

/// An open PostgreSQL store. Closes cleanly when dropped.
#[derive(Debug)]
pub struct PostgresStore {
    pub(super) inner: Arc<Inner>,
    pub(super) runtime: Handle,
    pool: FairPool,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Why this server takes no events, if it found out that the database was rolled back.
    rolled_back: Mutex<Option<String>>,
}

impl PostgresStore {
    /// Connects, brings the schema up to date where the role may, and looks for what was lost.
    pub fn open(url: &str, options: &Options) -> Result<PostgresStore, OpenError> {
        let target = Arc::new(Target::parse(url, options).map_err(OpenError::Url)?);
        let (started, outcome) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let options = options.clone();
        // One thread: callers live on event loops of their own, and connections belong to one.
        let thread = std::thread::Builder::new().name("sealog-postgres".into()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(OpenError::Database(error.to_string())))),
            };
            runtime.block_on(async {
                match start(target, options).await {
                    Ok(inner) => {
                        let of_cluster = inner.distributed.then_some(OF_CLUSTER);
                        for (name, begin) in LOOPS.into_iter().chain(of_cluster) {
                            let inner = Arc::clone(&inner);
                            tokio::spawn(async move { inner.loops.run(name, || begin(&inner)).await });
                        }
                        if started.send(Ok((inner, Handle::current()))).is_ok() {
                            let _ = stopped.await;
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        });
        let thread = thread.map_err(|error| OpenError::Database(error.to_string()))?;
        let opened =
            outcome.recv().map_err(|_| OpenError::Database("the store's thread has exited".into()))?;
        match opened {
            Ok((inner, runtime)) => Ok(PostgresStore {
                inner,
                runtime,
                pool: FairPool::start(),
                stop: Mutex::new(Some(stop)),
                thread: Mutex::new(Some(thread)),
                rolled_back: Mutex::default(),
            }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Losses that are known at the moment: what any node has acknowledged and the database does not have,
    /// until it is accepted.
    pub fn findings(&self) -> Vec<Finding> {
        self.inner.findings.all()
    }

    /// Chains whose rows say that events were dropped that never are.
    pub fn forged_drops(&self) -> Vec<ForgedDrop> {
        self.inner.findings.forged()
    }

    /// Tells this database from others, and stays the same in its copies.
    pub fn store_id(&self) -> Uuid {
        Uuid(self.inner.store_id)
    }

    /// Compares heads that somebody has kept with what is there, and records in the database what is lost, as
    /// a server does with its own high-water mark at its start. From then on the chains that are shorter take
    /// no events until their loss is accepted. The losses that are known then.
    pub fn note_losses(
        &self,
        known: BTreeMap<ChainId, Head>,
    ) -> BoxFuture<'_, Result<Vec<Finding>, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let session = Session::connect(&inner.target).await?;
            let (mut known, failed) = (known, |error: Error| unavailable(&error));
            loss::detect(&session, &mut known).await.map_err(failed)?;
            loss::announce(&session).await;
            inner.findings.refresh(&session).await.map_err(failed)?;
            Ok(inner.findings.all())
        })
    }

    /// The version in the shared row, as it was last seen.
    pub fn version(&self) -> u64 {
        self.inner.versions.borrow().version
    }

    pub fn clock_behind(&self) -> Option<ClockBehind> {
        self.inner.clock_behind
    }

    /// Finishes what is queued and stops. What was not acknowledged before this returns has an unknown
    /// outcome.
    pub fn close(&self) {
        let inner = &self.inner;
        inner.writer.close();
        let until = Instant::now() + inner.options.transaction_timeout;
        while !inner.writer.is_idle() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        inner.feed.close();
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            inner.write_mark();
            let _ = stop.send(());
        }
        self.pool.stop();
        inner.routes.close();
        lock(&inner.lent).drain(..).for_each(|pool| pool.close());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }

    /// Start-up lock: one node at a time does what only one may do. The others wait until it is dropped.
    pub fn startup_lock(&self) -> BoxFuture<'_, Result<StartupLock, StoreError>> {
        let target = Arc::clone(&self.inner.target);
        self.run(async move {
            let session = Session::connect(&target).await?;
            migrate::lock(&session).await.map_err(|error| unavailable(&error))?;
            Ok(StartupLock { _session: session })
        })
    }

    /// Whether this server takes events.
    fn accepts(&self) -> Result<(), StoreError> {
        lock(&self.rolled_back).clone().map_or(Ok(()), |why| Err(StoreError::RolledBack(why)))
    }

    /// Runs on the store's thread, whoever awaits the answer and whether or not they still do.
    fn run<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, E>> {
        let (answer, answered) = oneshot::channel();
        self.runtime.spawn(async move {
            let _ = answer.send(work.await);
        });
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(StoreError::Closing.into())) })
    }

    /// Makes events of rows in the thread pool: the store's thread has everyone's connections.
    async fn decode<T: Send + 'static>(
        &self,
        chain: ChainId,
        rows: reader::Rows<T>,
    ) -> Result<T, StoreError> {
        let decoded = self.pool.run(Lane::Compute, chain, rows.cost(), move || rows.decode());
        decoded.await.map_err(|_| StoreError::Closing)
    }

    /// A read of one chain, on a connection of its own.
    fn read_of<T: Send + 'static>(
        &self,
        chain: ChainId,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.read_of(Id::of_chain(chain), act).await })
    }

    /// A read on a connection of its own.
    fn read<T: Send + 'static>(
        &self,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.read(act).await })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Released when its connection ends, also by the end of its node.
#[derive(Debug)]
pub struct StartupLock {
    _session: Session,
}

async fn start(target: Arc<Target>, options: Options) -> Result<Arc<Inner>, OpenError> {
    let session = Session::open(&target).await?;
    if !options.allow_unsafe_storage {
        let off = unsafe_settings(&session).await.map_err(|error| OpenError::of(&error))?;
        if !off.is_empty() {
            return Err(OpenError::UnsafeSettings(off));
        }
    }
    migrate::prepare(&session, &Schema::of_events()).await?;
    let heard_boot_ms = options.world.boot_ms();
    let store = session.query("SELECT store_id, version FROM sealog.store", &[], &[]).await;
    let store = store.map_err(|error| OpenError::of(&error))?;
    let store = store.first().ok_or_else(|| OpenError::Refused("sealog.store has no row".into()))?;
    let store_id: Uuid = store.get::<_, Id>("store_id").uuid();
    let _ = target.store_id.set(store_id);
    let (mark, mut acknowledged) = match &options.mark_dir {
        Some(dir) => {
            let opened = MarkFile::open(dir, store_id);
            let (mark, heads) =
                opened.map_err(|error| OpenError::Mark { path: dir.join("postgres.mark"), error })?;
            (Some(mark), heads)
        }
        None => (None, BTreeMap::new()),
    };
    loss::detect(&session, &mut acknowledged).await.map_err(|error| OpenError::of(&error))?;
    let findings: Arc<Findings> = Arc::default();
    findings.refresh(&session).await.map_err(|error| OpenError::of(&error))?;
    let distributed = migrate::is_distributed(&session).await?;
    let clock = Arc::new(EventClock::new(&options));
    let now_ms = clock.ask(&session).await.map_err(|error| OpenError::of(&error))?.now_ms;
    let clock_behind =
        ClockBehind::look_for(&session, now_ms).await.map_err(|error| OpenError::of(&error))?;
    let begin = target.begin(&options);
    let (routes, check_settings) =
        (Routes::new(Arc::clone(&target), (options.connections / 2).max(1)), !options.allow_unsafe_storage);
    let at_once = match distributed {
        false => Some(AtOnce::new(check_settings)),
        true => {
            routes.ask(&session).await.map_err(|error| OpenError::of(&error))?;
            has_append_function(&session).await?.then(|| AtOnce::on_citus(check_settings))
        }
    };
    let statements = Statements {
        lock_phase: LockPhase::new(begin.clone(), target.pooled, distributed),
        commit_phase: CommitPhase::new(distributed),
        at_once,
        begin,
    };
    let feed: Arc<Feed> = Arc::default();
    let inner = Inner {
        writer: Writer::new(
            &options,
            statements,
            Arc::clone(&routes),
            &acknowledged,
            Arc::clone(&findings),
            Arc::clone(&clock),
            Arc::clone(&feed),
        ),
        routes,
        mark,
        findings,
        derived: DerivedFaults::default(),
        clock,
        clock_behind,
        distributed,
        store_id: store_id.0,
        feed,
        in_flight: Arc::default(),
        lent: Mutex::default(),
        versions: watch::Sender::new(SharedVersion {
            version: unsigned(store.get("version")),
            connection: 0,
        }),
        heard_boot_ms: AtomicU64::new(heard_boot_ms),
        health: Mutex::new(Health::Up),
        storage_bytes: AtomicU64::new(0),
        loops: Arc::new(Loops::new(options.at_begin)),
        target,
        options,
    };
    Ok(Arc::new(inner))
}

async fn has_append_function(session: &Session) -> Result<bool, OpenError> {
    let (arguments, body) = (statements::append_arguments(), statements::append_body());
    let has = session.has_function("append_group", &arguments, &body).await;
    let has = has.map_err(|error| OpenError::of(&error))?;
    if !has {
        tracing::warn!(
            "the database has no function for appends on Citus, or another version of it: each append takes several journeys. Run `sealog migrate --citus` as the owner, then restart"
        );
    }
    Ok(has)
}

/// Settings without which an acknowledgement is worth nothing. As this role sees them: a role or a database
/// may have its own.
pub(super) async fn unsafe_settings(session: &Session) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes']) AS name WHERE current_setting(name) = 'off'";
    Ok(session.query(sql, &[], &[]).await?.iter().map(|row| row.get("name")).collect())
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
type Begin = fn(&Arc<Inner>) -> Task;

/// What goes on for as long as the store is open.
const LOOPS: [(&str, Begin); 5] = [
    ("database_monitor", monitor),
    ("database_mark", keep_mark),
    ("database_sweep", sweep),
    ("database_index", index_fields),
    ("database_counts", count),
];

/// Where events are spread over workers.
const OF_CLUSTER: (&str, Begin) = ("database_workers", watch_workers);

fn count(inner: &Arc<Inner>) -> Task {
    Box::pin(counts::keep(Arc::clone(inner)))
}

/// Keeps the version of the shared row, the findings and the state of the database up to date. Polling is the
/// contract: `LISTEN` does not survive a pooler.
fn monitor(inner: &Arc<Inner>) -> Task {
    let inner = Arc::clone(inner);
    Box::pin(async move {
        let mut state = MonitorState::default();
        loop {
            tokio::time::sleep(inner.options.poll).await;
            state.is_heard = false;
            let seen =
                tokio::time::timeout(inner.options.connect_timeout, inner.poll_database(&mut state)).await;
            let seen =
                seen.unwrap_or_else(|_| Err(StoreError::Unavailable("the database does not respond".into())));
            let health = match seen {
                Ok(()) => Health::Up,
                Err(error) => {
                    state.session = None;
                    match error {
                        StoreError::Unavailable(why) if !state.is_heard && inner.stores_events().await => {
                            Health::ControlAway(why)
                        }
                        error => Health::Down(error),
                    }
                }
            };
            let before = std::mem::replace(&mut *lock(&inner.health), health.clone());
            match (&before, &health) {
                (Health::Down(_), Health::Down(_)) | (Health::ControlAway(_), Health::ControlAway(_)) => {}
                (_, Health::Down(error)) => {
                    tracing::error!(%error, "the database is unavailable; rejecting events until it is back");
                }
                (_, Health::ControlAway(why)) => {
                    tracing::error!(%why, "control data is unavailable, events can be stored; for a minute keys that were checked before go on working");
                }
                (Health::Down(_) | Health::ControlAway(_), Health::Up) => {
                    tracing::info!("the database is available again");
                }
                (Health::Up, Health::Up) => {}
            }
        }
    })
}

/// What the monitor remembers from one poll to the next.
#[derive(Default)]
struct MonitorState {
    session: Option<Session>,
    /// Whether this look has seen the shared row.
    is_heard: bool,
    /// Whether there was a session before, and how often it had to be replaced by another one.
    connected: bool,
    connection: u64,
    /// What the role and the database had of their own when the session began.
    own_settings: Option<String>,
    /// The version and the time at which findings were last asked for.
    findings_at: Option<(i64, Instant)>,
    routes_at: Option<Instant>,
}

/// Besides a change of the version this finds what another node could not announce.
const FINDINGS_EVERY: Duration = Duration::from_secs(10);

/// What a node of the database says of itself.
const NODE: &str =
    "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('full_page_writes') AS full_page_writes, pg_is_in_recovery() AS in_recovery,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";

/// Settings of a role or a database count for sessions that begin later, so the monitor begins another one
/// when they change.
const OF_STORE: &str = "version,
    (SELECT string_agg(concat_ws(' ', setdatabase, setrole, setconfig), ' ' ORDER BY setdatabase, setrole) FROM pg_db_role_setting
     WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
       AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))) AS own_settings
    FROM sealog.store";

const CONTROL_AWAY: &str =
    "the control data does not answer; only API keys that were checked within the last minute work";

/// For so long a node is asked about itself that was there a moment ago.
const NODE_WITHIN: Duration = Duration::from_secs(1);

/// Asks the workers of a cluster whether they answer.
fn watch_workers(inner: &Arc<Inner>) -> Task {
    let inner = Arc::clone(inner);
    Box::pin(async move {
        loop {
            tokio::time::sleep(NODE_WITHIN).await;
            let workers = inner.routes.workers();
            join_all(workers.iter().map(|worker| inner.look_at_worker(worker))).await;
        }
    })
}

fn keep_mark(inner: &Arc<Inner>) -> Task {
    let inner = Arc::clone(inner);
    Box::pin(async move {
        loop {
            tokio::time::sleep(inner.options.tick).await;
            let marking = Arc::clone(&inner);
            // It waits for the disk, which the store's thread must not.
            let _ = tokio::task::spawn_blocking(move || marking.write_mark()).await;
        }
    })
}

fn index_fields(inner: &Arc<Inner>) -> Task {
    Box::pin(fields::follow(Arc::clone(inner)))
}

/// Removes idempotency records whose 24 hours are over, some at a time: a statement that removes millions
/// would hold their rows and fill the WAL while appends wait.
fn sweep(inner: &Arc<Inner>) -> Task {
    const PAUSE: Duration = Duration::from_millis(20);
    let inner = Arc::clone(inner);
    Box::pin(async move {
        loop {
            tokio::time::sleep(inner.options.sweep).await;
            loop {
                match inner.remove_expired().await {
                    Ok(0) => break,
                    Ok(_) => tokio::time::sleep(PAUSE).await,
                    Err(error) => {
                        tracing::warn!(%error, "failed to remove expired idempotency records; retrying later");
                        break;
                    }
                }
            }
        }
    })
}

impl Inner {
    /// Whether events can be appended, as far as the database's own state tells.
    async fn poll_database(&self, state: &mut MonitorState) -> Result<(), StoreError> {
        let mut heard_boot_ms = 0;
        let (open, rows) = loop {
            let (open, is_new) = match state.session.take() {
                Some(open) => (open, false),
                None => {
                    let open = Session::connect(&self.target).await?;
                    // The first one belongs to the start, which has just read everything.
                    state.connection += u64::from(std::mem::replace(&mut state.connected, true));
                    (open, true)
                }
            };
            // Prepared before, so that the answer is a sample of the clock.
            let poll = open.prepare(&format!("{NODE}, {OF_STORE}"), &[]).await;
            let poll = poll.map_err(|error| unavailable(&error))?;
            let sent_boot_ms = self.clock.boot_ms();
            let rows = open.rows(&poll, &[]).await.map_err(|error| unavailable(&error))?;
            if let Some(row) = rows.first() {
                self.clock.sample(unsigned(row.get("now_ms")), sent_boot_ms);
                heard_boot_ms = sent_boot_ms;
            }
            let own_settings = rows.first().and_then(|row| row.get("own_settings"));
            if is_new || state.own_settings == own_settings {
                state.own_settings = own_settings;
                break (open, rows);
            }
        };
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("sealog.store has no row".into()))?;
        let version: i64 = row.get("version");
        // Not the highest that was ever seen: a failover that lost changes takes the version back, too.
        let seen_now = SharedVersion { version: unsigned(version), connection: state.connection };
        self.versions.send_if_modified(|seen| std::mem::replace(seen, seen_now) != seen_now);
        self.heard_boot_ms.store(heard_boot_ms, Ordering::SeqCst);
        state.is_heard = true;
        let known = state.findings_at.is_some_and(|(at_version, at)| {
            at_version == version && at.elapsed() < FINDINGS_EVERY && !self.findings.take_stale()
        });
        if !known {
            match self.distributed {
                true => self.refresh_findings_apart(),
                false => self.findings.refresh(&open).await.map_err(|error| unavailable(&error))?,
            }
            state.findings_at = Some((version, Instant::now()));
        }
        if self.distributed && state.routes_at.is_none_or(|at| at.elapsed() >= routes::ASK_EVERY) {
            self.routes.ask(&open).await.map_err(|error| unavailable(&error))?;
            state.routes_at = Some(Instant::now());
        }
        self.check_node(row)?;
        state.session = Some(open);
        Ok(())
    }

    /// Asks all workers, on a connection of its own: one that says nothing keeps its own chains from events,
    /// and must not keep this node from hearing of revoked keys.
    fn refresh_findings_apart(&self) {
        let (target, findings) = (Arc::clone(&self.target), Arc::clone(&self.findings));
        let within = self.options.connect_timeout;
        tokio::spawn(async move {
            let refreshed = tokio::time::timeout(within, async {
                let session = Session::connect(&target).await.map_err(|error| error.to_string())?;
                findings.refresh(&session).await.map_err(|error| explain(&error))
            });
            let why = match refreshed.await {
                Ok(Ok(())) => return,
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {} s", within.as_secs()),
            };
            tracing::warn!(why, "cannot look at every chain; a worker may be unavailable");
        });
    }

    /// Whether a node keeps what it acknowledges, by its row of [`NODE`].
    fn check_node(&self, row: &Row) -> Result<(), StoreError> {
        self.clock.read_row(row);
        if row.get("in_recovery") {
            return Err(StoreError::Unavailable("the database is a standby and accepts no events".into()));
        }
        let off: Vec<&str> =
            statements::SETTINGS.into_iter().filter(|setting| row.get::<_, &str>(setting) == "off").collect();
        if !off.is_empty() && !self.options.allow_unsafe_storage {
            return Err(unsafe_storage(&off));
        }
        Ok(())
    }

    /// Asks a node about itself. While the shared row does not answer, this is where the time comes from.
    async fn look_at_node(&self, session: &Session) -> Result<(), StoreError> {
        let asked = session.prepare(NODE, &[]).await.map_err(|error| unavailable(&error))?;
        let sent_boot_ms = self.clock.boot_ms();
        let rows = session.rows(&asked, &[]).await.map_err(|error| unavailable(&error))?;
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("a node says nothing".into()))?;
        if *lock(&self.health) != Health::Up {
            self.clock.sample(unsigned(row.get("now_ms")), sent_boot_ms);
            self.check_node(row)?;
        }
        Ok(())
    }

    async fn look_at_worker(&self, worker: &Worker) {
        let looked = tokio::time::timeout(NODE_WITHIN, async {
            let session = worker.session().await?;
            self.look_at_node(&session).await?;
            Ok::<_, StoreError>(session)
        });
        let timed_out = |_| Err(format!("it did not respond within {} s", NODE_WITHIN.as_secs()));
        let answered = looked.await.map(|looked| looked.map_err(|error| error.to_string()));
        worker.answered(answered.unwrap_or_else(timed_out));
    }

    /// Which parts of the database answer.
    fn parts(&self) -> BTreeMap<String, bool> {
        let health = lock(&self.health).clone();
        let mut parts = BTreeMap::from([("control".to_owned(), health == Health::Up)]);
        if self.distributed {
            let workers = self.routes.states().into_iter();
            parts.extend(workers.map(|(worker, trouble)| (format!("worker {worker}"), trouble.is_none())));
        } else {
            parts.insert("events".into(), !matches!(health, Health::Down(_)));
        }
        parts
    }

    /// Whether events can be stored where the shared row cannot be read: some worker answers, or the database
    /// does on a connection of its appends.
    async fn stores_events(&self) -> bool {
        if self.distributed {
            return self.routes.any_worker_answers();
        }
        let looked = tokio::time::timeout(NODE_WITHIN, async {
            let lease = self.routes.own(Side::Appends).lease(NODE_WITHIN).await?;
            self.look_at_node(&lease.session).await?;
            lease.give_back();
            Ok::<_, StoreError>(())
        });
        matches!(looked.await, Ok(Ok(())))
    }

    fn write_mark(&self) {
        let Some(mark) = &self.mark else { return };
        if let Err(error) = mark.write(self.writer.changed_heads()) {
            tracing::warn!(%error, "failed to persist the high-water mark; loss in a failover would go undetected; retrying");
        }
    }

    /// One step of the sweep: how many records it has removed.
    async fn remove_expired(&self) -> Result<u64, StoreError> {
        let clock = Arc::clone(&self.clock);
        let (distributed, rows_max) = (self.distributed, i64::from(self.options.sweep_rows_max));
        self.read(move |session| {
            Box::pin(async move {
                let now_ms = clock.ask(session).await?.now_ms;
                let until = signed(now_ms.saturating_sub(IDEMPOTENCY_RETENTION_MS));
                if !distributed {
                    return session.execute(SWEEP, &[Type::INT8, Type::INT8], &[&until, &rows_max]).await;
                }
                let rows =
                    session.query(SWEEP_UNTIL, &[Type::INT8, Type::INT8], &[&until, &rows_max]).await?;
                match rows.first().map(|row| row.get::<_, i64>("received_ms")) {
                    Some(until) => session.execute(SWEEP_OLDER, &[Type::INT8], &[&until]).await,
                    None => Ok(0),
                }
            })
        })
        .await
    }
}

/// Nodes that sweep at the same time do not wait for each other. A key that is used again meanwhile has a new
/// row, which is not meant.
const SWEEP: &str = "DELETE FROM sealog.idempotency WHERE received_ms <= $1 AND ctid = ANY (ARRAY(
    SELECT ctid FROM sealog.idempotency WHERE received_ms <= $1 ORDER BY received_ms LIMIT $2 FOR UPDATE SKIP LOCKED))";
/// Rows have no place that is known across shards, so there a step is a piece of time.
const SWEEP_UNTIL: &str = "SELECT max(received_ms) AS received_ms FROM (SELECT received_ms FROM sealog.idempotency WHERE received_ms <= $1
    ORDER BY received_ms LIMIT $2) AS oldest HAVING count(*) > 0";
const SWEEP_OLDER: &str = "DELETE FROM sealog.idempotency WHERE received_ms <= $1";

impl Store for PostgresStore {
    /// In flight is what this node processes: on another node the same request waits for the chain's row, and
    /// is decided there.
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        let slot = (chain, key.key_hash);
        if !self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner).insert(slot) {
            return Box::pin(async { Ok(Reserved::InFlight) });
        }
        let in_flight = Arc::clone(&self.inner.in_flight);
        let reservation = Reservation::new(chain, key, move || {
            in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
        });
        let clock = Arc::clone(&self.inner.clock);
        let reserved = self.read_of(chain, move |session| {
            Box::pin(async move {
                let sql = "SELECT key_hash, fingerprint, request_id, first_seq, log_ids, hash, received_ms,
                                  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
                           FROM sealog.idempotency WHERE chain_id = $1 AND key_hash = $2";
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
                    [&Id::of_chain(chain), &Digest32(key.key_hash.0)];
                let rows = session.query(sql, &[Type::UUID, Type::BYTEA], &params).await?;
                let decided = match rows.first() {
                    None => None,
                    Some(row) => {
                        let now_ms = clock.read_row(row).now_ms;
                        match UsedKey::of(row) {
                            Some((_, used)) => used.decide(&key, now_ms),
                            // Not free: the request may have been acknowledged.
                            None => {
                                return Ok(Err(StoreError::Read("the idempotency record is damaged".into())));
                            }
                        }
                    }
                };
                Ok(Ok(match decided {
                    None => Reserved::Fresh(reservation),
                    Some(Appended::Conflict) => Reserved::Conflict,
                    Some(Appended::Replayed(receipt) | Appended::Sealed(receipt)) => {
                        Reserved::Replay(receipt)
                    }
                }))
            })
        });
        Box::pin(async move { reserved.await? })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let accepts = self.accepts();
        let answer = accepts.and_then(|()| self.inner.writer.append(append, &self.runtime));
        Box::pin(async move { answer?.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        Box::pin(async move {
            let rows =
                self.read_of(chain, move |session| Box::pin(reader::get(session, chain, log_id))).await?;
            self.decode(chain, rows).await?
        })
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        let keys = FieldKeys::new(&self.inner.store_id);
        Box::pin(async move {
            let rows = self.read_of(chain, move |session| {
                Box::pin(async move {
                    match list.filter.fields.is_empty() {
                        true => reader::list(session, chain, &list).await,
                        false => fields::list(session, chain, &list, keys).await,
                    }
                })
            });
            self.decode(chain, rows.await?).await
        })
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        Box::pin(async move {
            let rows =
                self.read_of(chain, move |session| Box::pin(reader::range(session, chain, range))).await?;
            self.decode(chain, rows).await
        })
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        self.read_of(chain, move |session| Box::pin(reader::head(session, chain)))
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        let heads = self.read(move |session| Box::pin(reader::heads(session)));
        Box::pin(async move { heads.await?.ok_or_else(|| damaged("the row of a chain")) })
    }

    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>> {
        self.run(feed::follow(Arc::clone(&self.inner), self.runtime.clone(), scope, start))
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read(move |session| Box::pin(reader::usage(session, tenant_id, month)))
    }

    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>> {
        let inner = Arc::clone(&self.inner);
        let stored = self.run(async move { inner.counts(chain, days).await });
        Box::pin(async move {
            let stored = stored.await?;
            let decoded = self.pool.run(Lane::Compute, chain, stored.cost(), move || stored.decode());
            decoded.await.unwrap_or(Err(StoreError::Closing))
        })
    }

    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>> {
        let answer = self.inner.writer.import(chain, events, key, &self.runtime);
        Box::pin(async move { answer?.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>> {
        let kept = self.read_of(chain, move |session| Box::pin(reader::kept_keys(session, chain, wanted)));
        Box::pin(async move { kept.await?.ok_or_else(|| damaged("an idempotency record")) })
    }

    fn check_derived(&self, position: Vec<u8>, heal: bool) -> BoxFuture<'_, Result<DerivedStep, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let step = inner.check_derived(position, heal).await?;
            inner.derived.note(&step.faults);
            Ok(step)
        })
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        let inner = Arc::clone(&self.inner);
        let findings = self.findings().len() + self.forged_drops().len();
        let findings = (findings + usize::from(inner.clock_behind.is_some())) as u64 + inner.derived.count();
        self.run(async move {
            // What watches over a database must not fall silent with it, nor wait for it.
            if *lock(&inner.health) == Health::Up {
                let distributed = inner.distributed;
                let asked = inner.read(move |session| Box::pin(reader::storage_bytes(session, distributed)));
                if let Ok(Ok(bytes)) = tokio::time::timeout(2 * NODE_WITHIN, asked).await {
                    inner.storage_bytes.store(bytes, Ordering::Relaxed);
                }
            }
            let storage_bytes = inner.storage_bytes.load(Ordering::Relaxed);
            let reads_waiting = inner.routes.own(Side::Reads).waiting();
            let logs = inner.writer.stats();
            let clock = inner.clock.seen().stats();
            let loop_restarts = inner.loops.restarts();
            Ok(StoreStats {
                storage_bytes,
                logs,
                reads_waiting,
                findings,
                clock,
                parts: inner.parts(),
                loop_restarts,
                ..StoreStats::default()
            })
        })
    }

    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        let writer = Arc::clone(&self.inner.writer);
        self.run(async move { writer.accept_loss(chain, &reason).await })
    }

    fn record_loss(&self, chain: ChainId, known: Head) -> BoxFuture<'_, Result<(), StoreError>> {
        let noted = self.note_losses(BTreeMap::from([(chain, known)]));
        Box::pin(async move { noted.await.map(drop) })
    }

    fn set_rolled_back(&self, why: Option<String>) {
        *lock(&self.rolled_back) = why;
    }

    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.plan_drop(before_ms).await })
    }

    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move { inner.drop_planned(plan).await })
    }

    fn losses(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Loss)>, StoreError>> {
        let loss = |Finding { chain, acknowledged, found }: Finding| {
            (chain, Loss::of(&ChainHead { durable: found, recorded: acknowledged, dropped: Head::EMPTY }))
        };
        let losses = self.findings().into_iter().map(loss).collect();
        Box::pin(async move { Ok(losses) })
    }

    fn faults(&self) -> Vec<String> {
        let said = |Finding { chain, acknowledged, found }: Finding| {
            format!(
                "chain {chain} ends at event {}, but a node acknowledged event {}; it rejects new events",
                found.chain_seq, acknowledged.chain_seq
            )
        };
        let behind = self.clock_behind().map(|_| {
            "the clock of the database is behind the last events of some chains: their time does not advance until it catches up".to_owned()
        });
        let forged = |ForgedDrop { chain, dropped_seq }: ForgedDrop| {
            format!(
                "the row of {} chain {chain} claims that its events up to {dropped_seq} were deleted, which never happens: the database was changed. The row is ignored, and the chain rejects events until the owner of the tables sets dropped_seq, dropped_log_id and dropped_hash to NULL",
                chain.mode.as_str()
            )
        };
        let forged = self.forged_drops().into_iter().map(forged);
        let derived = self.inner.derived.all();
        self.findings().into_iter().map(said).chain(forged).chain(behind).chain(derived).collect()
    }

    fn pool(&self) -> &FairPool {
        &self.pool
    }

    fn notices(&self) -> Vec<&'static str> {
        // The time of everything but events is this node's own.
        let own = self.inner.options.world.clock();
        let away = self.inner.control_away().map(|_| CONTROL_AWAY);
        self.inner.clock.seen().notice().or(own.notice()).into_iter().chain(away).collect()
    }

    fn degraded(&self) -> Vec<String> {
        let control = self.inner.control_away().map(|why| format!("control data does not answer: {why}"));
        let trouble = |(worker, why): (String, Option<String>)| {
            Some(format!("worker {worker} does not answer: {}", why?))
        };
        control.into_iter().chain(self.inner.routes.states().into_iter().filter_map(trouble)).collect()
    }

    fn ready(&self) -> Result<(), StoreError> {
        if let Health::Down(error) = &*lock(&self.inner.health) {
            return Err(error.clone());
        }
        self.accepts()?;
        self.inner.clock.seen().sealing_ms().map(drop)
    }
}
