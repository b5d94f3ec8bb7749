//! The PostgreSQL store: any number of nodes on one database.
//!
//! `migrations/` has the tables, `docs/adr/0008-postgresql-store.md` the reasons. From the outside in: this file is the [`Store`] and owns the thread that everything runs on;
//! [`writer`] appends; [`reader`] answers reads; [`control`] is the control data; [`pool`] has the connections.

mod control;
mod mark;
mod migrate;
mod pool;
mod reader;
mod rows;
mod statements;
mod tls;
mod url;
mod writer;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, TenantId, Ulid, Uuid};
use sealog_core::time::Month;
use sealog_core::verify::Item;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::stats::StoreStats;
use crate::world::{SystemWorld, World};
use crate::{
    Append, Appended, BoxFuture, ChainHead, Chunk, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, List,
    Range, Reservation, Reserved, Store, StoreError, WantedKeys,
};
use mark::MarkFile;
use pool::{Pool, Session};
use rows::{Digest32, Id, signed, unsigned};
use statements::{Closing, Opening};
use url::Target;
use writer::{UsedKey, Writer};

/// How the store is set up. The defaults are for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections of this node at most, apart from the one that watches. Half are for appends, half for everything else.
    pub connections: usize,
    /// How long an append waits for another node that has its chain.
    pub lock_timeout: Duration,
    /// After this the server ends a node that has a chain and says nothing. Nobody waits longer for a node that was stopped.
    pub idle_in_transaction_timeout: Duration,
    pub statement_timeout: Duration,
    pub connect_timeout: Duration,
    /// After this the outcome of an append counts as unknown.
    pub transaction_timeout: Duration,
    /// Most bytes in one transaction.
    pub group_bytes_max: usize,
    /// Most bytes that may wait to be written.
    pub queue_bytes_max: usize,
    /// How long a request may wait for its turn.
    pub queue_deadline: Duration,
    /// How often the version of the control data is looked at.
    pub poll: Duration,
    /// How often the mark is written while events arrive.
    pub tick: Duration,
    /// How often idempotency records are looked through for those whose time is over.
    pub sweep: Duration,
    /// Where this node's mark is kept; without it a loss by failover is noticed only while the node runs.
    pub mark_dir: Option<PathBuf>,
    /// Accepts a database that does not keep what it acknowledges.
    pub allow_unsafe_storage: bool,
    pub time: Time,
    pub world: Arc<dyn World>,
}

/// Whose clock events are stamped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The database's: there is one of it, however many nodes there are.
    OfDatabase,
    /// For tests.
    OfWorld,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections: 16,
            lock_timeout: Duration::from_secs(8),
            idle_in_transaction_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            transaction_timeout: Duration::from_secs(20),
            group_bytes_max: 4 << 20,
            queue_bytes_max: 64 << 20,
            queue_deadline: Duration::from_secs(10),
            poll: Duration::from_millis(250),
            tick: Duration::from_secs(1),
            sweep: Duration::from_secs(60),
            mark_dir: None,
            allow_unsafe_storage: false,
            time: Time::OfDatabase,
            world: Arc::new(SystemWorld),
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// What is wrong with the URL.
    Url(String),
    Database(String),
    /// Settings that are off.
    UnsafeSettings(Vec<String>),
    /// The schema has another version, and this role may not change it.
    Schema {
        found: i64,
        wanted: i64,
    },
    Mark {
        path: PathBuf,
        error: std::io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Url(problem) => write!(f, "the store's URL cannot be used: {problem}"),
            OpenError::Database(error) => f.write_str(error),
            OpenError::UnsafeSettings(settings) => write!(
                f,
                "the database runs with {} off, so it cannot keep what it acknowledges; switch on, or allow it explicitly (SEALOG_ALLOW_UNSAFE_STORAGE=true)",
                settings.join(", ")
            ),
            OpenError::Schema { found, wanted } if found > wanted => write!(
                f,
                "the schema has version {found}, which this version does not know; use the version that made it, or a newer one"
            ),
            OpenError::Schema { found, wanted } => write!(
                f,
                "the schema has version {found} and this program needs {wanted}; run `sealog migrate` as the role that owns the schema"
            ),
            OpenError::Mark { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// A chain that ends before the head that this node has acknowledged, or has another event there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub chain: ChainId,
    pub acknowledged: Head,
    pub found: Head,
}

/// An open PostgreSQL store. Closes cleanly when dropped.
#[derive(Debug)]
pub struct PostgresStore {
    inner: Arc<Inner>,
    runtime: Handle,
    findings: Vec<Finding>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    target: Arc<Target>,
    reads: Arc<Pool>,
    writes: Arc<Pool>,
    writer: Arc<Writer>,
    mark: Option<MarkFile>,
    in_flight: Arc<Mutex<HashSet<(ChainId, Hash)>>>,
    /// Of the control data, as it was last seen.
    version: AtomicU64,
    health: Mutex<Result<(), StoreError>>,
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
                    Ok((inner, findings)) => {
                        for task in [watch, keep_mark, sweep].map(|task| task(&inner)) {
                            tokio::spawn(task);
                        }
                        if started.send(Ok((inner, findings, Handle::current()))).is_ok() {
                            let _ = stopped.await;
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        });
        let thread = thread.map_err(|error| OpenError::Database(error.to_string()))?;
        let opened =
            outcome.recv().map_err(|_| OpenError::Database("the store's thread has ended".into()))?;
        match opened {
            Ok((inner, findings, runtime)) => Ok(PostgresStore {
                inner,
                runtime,
                findings,
                stop: Mutex::new(Some(stop)),
                thread: Mutex::new(Some(thread)),
            }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// What this node had acknowledged and the database did not have when it was opened.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Finishes what is queued and stops. What was not acknowledged before this returns has an unknown outcome.
    pub fn close(&self) {
        let inner = &self.inner;
        inner.writer.close();
        let until = Instant::now() + inner.options.transaction_timeout;
        while !inner.writer.is_idle() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            inner.write_mark();
            let _ = stop.send(());
        }
        inner.reads.close();
        inner.writes.close();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }

    /// Waits until no other node does what only one may do at a time; the others wait until the answer is dropped.
    pub fn alone(&self) -> BoxFuture<'_, Result<Alone, StoreError>> {
        let target = Arc::clone(&self.inner.target);
        self.run(async move {
            let session = Session::connect(&target).await?;
            migrate::lock(&session).await.map_err(|error| unavailable(&error))?;
            Ok(Alone { _session: session })
        })
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

/// Ends with its connection, and a connection ends with its node.
#[derive(Debug)]
pub struct Alone {
    _session: Session,
}

/// Makes or updates the schema as `sealog migrate` does, and distributes it over a Citus cluster if asked to; how many steps that took.
pub fn migrate(url: &str, citus: bool) -> Result<usize, OpenError> {
    let target = Target::parse(url, &Options::default()).map_err(OpenError::Url)?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| OpenError::Database(error.to_string()))?;
    runtime.block_on(async {
        let session =
            Session::connect(&target).await.map_err(|error| OpenError::Database(error.to_string()))?;
        let steps = migrate::run(&session).await?;
        if citus {
            migrate::distribute(&session).await?;
        }
        Ok(steps)
    })
}

async fn start(target: Arc<Target>, options: Options) -> Result<(Arc<Inner>, Vec<Finding>), OpenError> {
    let failed =
        |error: &dyn fmt::Display| OpenError::Database(format!("the database does not answer: {error}"));
    let session = Session::connect(&target).await.map_err(|error| OpenError::Database(error.to_string()))?;
    if !options.allow_unsafe_storage {
        let off = unsafe_settings(&session).await.map_err(|error| failed(&explain(&error)))?;
        if !off.is_empty() {
            return Err(OpenError::UnsafeSettings(off));
        }
    }
    migrate::prepare(&session).await?;
    let store = session.query("SELECT store_id, version FROM sealog.store", &[], &[]).await;
    let store = store.map_err(|error| failed(&explain(&error)))?;
    let store = store.first().ok_or_else(|| failed(&"sealog.store has no row"))?;
    let store_id: Uuid = store.get::<_, Id>("store_id").uuid();
    let (mark, acknowledged) = match &options.mark_dir {
        Some(dir) => {
            let opened = MarkFile::open(dir, store_id);
            let (mark, heads) =
                opened.map_err(|error| OpenError::Mark { path: dir.join("postgres.mark"), error })?;
            (Some(mark), heads)
        }
        None => (None, BTreeMap::new()),
    };
    let findings =
        look_for_losses(&session, &acknowledged).await.map_err(|error| failed(&explain(&error)))?;
    let distributed = migrate::is_distributed(&session).await?;
    let opening = Opening::new(target.begin(&options), target.pooled, distributed);
    let writes = Pool::new(Arc::clone(&target), (options.connections / 2).max(1));
    let inner = Inner {
        reads: Pool::new(Arc::clone(&target), (options.connections / 2).max(1)),
        writer: Writer::new(&options, opening, Closing::new(distributed), Arc::clone(&writes), acknowledged),
        writes,
        mark,
        in_flight: Arc::default(),
        version: AtomicU64::new(unsigned(store.get("version"))),
        health: Mutex::new(Ok(())),
        target,
        options,
    };
    Ok((Arc::new(inner), findings))
}

/// Settings without which an acknowledgement is worth nothing. As this role sees them: a role or a database may have its own.
async fn unsafe_settings(session: &Session) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes']) AS name WHERE current_setting(name) = 'off'";
    Ok(session.query(sql, &[], &[]).await?.iter().map(|row| row.get("name")).collect())
}

/// Compares what this node has acknowledged with what is there, and notes in the database what is missing, so that every node knows.
async fn look_for_losses(
    session: &Session,
    acknowledged: &BTreeMap<ChainId, Head>,
) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for (chain, known) in acknowledged {
        let sql = "SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_id = $1 AND chain_seq <= $2 ORDER BY chain_seq DESC LIMIT 1";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&Id::of_chain(*chain), &signed(known.chain_seq)];
        let rows = session.query(sql, &[Type::UUID, Type::INT8], &params).await?;
        let found = rows
            .first()
            .and_then(|row| rows::head(row, "chain_seq", "log_id", "hash"))
            .unwrap_or(Head::EMPTY);
        if found != *known {
            tracing::error!(%chain, acknowledged = known.chain_seq, found = found.chain_seq, "events that this node has acknowledged are not in the database");
            writer::create(session, *chain).await?;
            writer::lost(session, *chain, *known).await?;
            findings.push(Finding { chain: *chain, acknowledged: *known, found });
        }
    }
    Ok(findings)
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keeps the version of the control data and the state of the database up to date. Asking is the contract: `LISTEN` does not survive a pooler.
fn watch(inner: &Arc<Inner>) -> Task {
    let inner = Arc::clone(inner);
    Box::pin(async move {
        let mut session = None;
        loop {
            tokio::time::sleep(inner.options.poll).await;
            let seen =
                tokio::time::timeout(inner.options.connect_timeout, inner.look_at_version(&mut session))
                    .await;
            let seen =
                seen.unwrap_or_else(|_| Err(StoreError::Unavailable("the database does not answer".into())));
            if seen.is_err() {
                session = None;
            }
            let mut health = inner.health.lock().unwrap_or_else(PoisonError::into_inner);
            match (&*health, &seen) {
                (Ok(()), Err(error)) => tracing::error!(%error, "the database cannot be reached"),
                (Err(_), Ok(())) => tracing::info!("the database answers again"),
                _ => {}
            }
            *health = seen;
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

/// Removes idempotency records whose 24 hours are over.
fn sweep(inner: &Arc<Inner>) -> Task {
    let inner = Arc::clone(inner);
    Box::pin(async move {
        loop {
            tokio::time::sleep(inner.options.sweep).await;
            if let Err(error) = inner.remove_expired().await {
                tracing::warn!(%error, "expired idempotency records were not removed");
            }
        }
    })
}

impl Inner {
    async fn read<T>(
        &self,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let lease = self.reads.lease(self.options.queue_deadline).await?;
        let done = tokio::time::timeout(self.options.transaction_timeout, act(&lease.session)).await;
        match done {
            Ok(Ok(value)) => {
                lease.give_back();
                Ok(value)
            }
            Ok(Err(error)) => Err(StoreError::Read(explain(&error))),
            Err(_) => Err(StoreError::Read("the database did not answer in time".into())),
        }
    }

    async fn look_at_version(&self, session: &mut Option<Session>) -> Result<(), StoreError> {
        let open = match session.take() {
            Some(open) => open,
            None => Session::connect(&self.target).await?,
        };
        let rows = open
            .query("SELECT version FROM sealog.store", &[], &[])
            .await
            .map_err(|error| unavailable(&error))?;
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("sealog.store has no row".into()))?;
        self.version.fetch_max(unsigned(row.get("version")), Ordering::SeqCst);
        *session = Some(open);
        Ok(())
    }

    fn write_mark(&self) {
        let Some(mark) = &self.mark else { return };
        let Some(heads) = self.writer.changed_heads() else { return };
        if let Err(error) = mark.write(&heads) {
            tracing::warn!(%error, "the mark was not written; a failover now could lose events unnoticed");
        }
    }

    async fn remove_expired(&self) -> Result<u64, StoreError> {
        let (time, world_ms) = (self.options.time, self.options.world.now_ms());
        self.read(move |session| {
            Box::pin(async move {
                let now_ms = now_ms(session, time, world_ms).await?;
                let until = signed(now_ms.saturating_sub(IDEMPOTENCY_RETENTION_MS));
                let sql = "DELETE FROM sealog.idempotency WHERE received_ms <= $1";
                session.execute(sql, &[Type::INT8], &[&until]).await
            })
        })
        .await
    }
}

async fn now_ms(session: &Session, time: Time, world_ms: u64) -> Result<u64, Error> {
    if time == Time::OfWorld {
        return Ok(world_ms);
    }
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
    Ok(unsigned(session.query(sql, &[], &[]).await?[0].get("now_ms")))
}

impl Store for PostgresStore {
    /// In flight is what this node processes: on another node the same request waits for the chain's row, and is decided there.
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        let slot = (chain, key.key_hash);
        if !self.inner.in_flight.lock().unwrap_or_else(PoisonError::into_inner).insert(slot) {
            return Box::pin(async { Ok(Reserved::InFlight) });
        }
        let in_flight = Arc::clone(&self.inner.in_flight);
        let reservation = Reservation::new(chain, key, move || {
            in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
        });
        let (time, world_ms) = (self.inner.options.time, self.inner.options.world.now_ms());
        self.read(move |session| {
            Box::pin(async move {
                let sql = "SELECT key_hash, fingerprint, request_id, first_seq, log_ids, hash, received_ms,
                                  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
                           FROM sealog.idempotency WHERE chain_id = $1 AND key_hash = $2";
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
                    [&Id::of_chain(chain), &Digest32(key.key_hash.0)];
                let rows = session.query(sql, &[Type::UUID, Type::BYTEA], &params).await?;
                let decided = rows.first().and_then(|row| {
                    let now_ms = if time == Time::OfWorld { world_ms } else { unsigned(row.get("now_ms")) };
                    UsedKey::of(row)?.1.decide(&key, now_ms)
                });
                Ok(match decided {
                    None => Reserved::Fresh(reservation),
                    Some(Appended::Conflict) => Reserved::Conflict,
                    Some(Appended::Replayed(receipt) | Appended::Sealed(receipt)) => {
                        Reserved::Replay(receipt)
                    }
                })
            })
        })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let answer = self.inner.writer.append(append, &self.runtime);
        Box::pin(async move { answer?.await.unwrap_or(Err(StoreError::Closing)) })
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        let found = self.read(move |session| Box::pin(reader::get(session, chain, log_id)));
        Box::pin(async move { found.await? })
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        self.read(move |session| Box::pin(async move { reader::list(session, chain, &list).await }))
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        self.read(move |session| Box::pin(reader::range(session, chain, range)))
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        self.read(move |session| Box::pin(reader::head(session, chain)))
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        self.read(move |session| Box::pin(reader::heads(session)))
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read(move |session| Box::pin(reader::usage(session, tenant_id, month)))
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
        self.read(move |session| Box::pin(reader::kept_keys(session, chain, wanted)))
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        let (inner, findings) = (Arc::clone(&self.inner), self.findings.len() as u64);
        self.run(async move {
            let storage_bytes = inner.read(|session| Box::pin(reader::storage_bytes(session))).await?;
            let reads_waiting = inner.reads.waiting();
            Ok(StoreStats { storage_bytes, logs: inner.writer.stats(), reads_waiting, findings })
        })
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.inner.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn unavailable(error: &Error) -> StoreError {
    StoreError::Unavailable(explain(error))
}

/// The error with its causes: the outermost one alone says little more than "db error".
fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
