//! Connections: a bounded number, made when they are needed, dropped when anything went wrong on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join3;
use sealog_core::id::Uuid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage, Statement};

use super::error::{OpenError, explain, unavailable};
use super::statements;
use super::url::Target;
use crate::error::StoreError;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

#[derive(Debug)]
pub(super) struct Pool {
    target: Arc<Target>,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
    waiting: AtomicU64,
}

impl Pool {
    pub(super) fn new(target: Arc<Target>, size: usize) -> Arc<Pool> {
        Arc::new(Pool {
            target,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(size)),
            waiting: AtomicU64::new(0),
        })
    }

    /// A connection for the caller alone; `Deadline` when none is free in time.
    pub(super) async fn lease(self: &Arc<Pool>, within: Duration) -> Result<Lease, StoreError> {
        let permit = tokio::time::timeout(within, Arc::clone(&self.permits).acquire_owned());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let permit = permit.await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let permit = permit.map_err(|_| StoreError::Deadline)?.map_err(|_| StoreError::Closing)?;
        let session = loop {
            match self.idle().pop() {
                Some(session) if session.client.is_closed() => {}
                found => break found,
            }
        };
        let session = match session {
            Some(session) => session,
            None => Session::connect(&self.target).await?,
        };
        Ok(Lease { session, pool: Arc::clone(self), _permit: permit })
    }

    /// Callers that wait for a connection.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }
}

/// A connection on loan. It goes back only by [`Lease::give_back`]: whoever drops it on an error or in the
/// middle of something ends the connection as soon as the server has answered what it was asked, and with it
/// whatever transaction was open.
#[derive(Debug)]
pub(super) struct Lease {
    pub session: Session,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(super) fn give_back(self) {
        if !self.session.client.is_closed() {
            self.pool.idle().push(self.session);
        }
    }
}

const STORE_ID: &str =
    "SELECT store_id, host(inet_server_addr()) || ':' || inet_server_port() AS server FROM";

const HAS_CITUS: &str = "SELECT extname AS citus FROM pg_catalog.pg_extension WHERE extname = 'citus'";
/// Every node of a cluster that has its metadata knows the coordinator: the node of group 0.
const COORDINATOR: &str =
    "SELECT here.groupid, node.nodename, node.nodeport FROM pg_catalog.pg_dist_local_group here
    LEFT JOIN pg_catalog.pg_dist_node node ON node.groupid = 0 AND node.noderole = 'primary'";

/// What the target allows for a connection.
async fn within<T>(target: &Target, work: impl Future<Output = T>) -> Result<T, Unconnected> {
    let within = target.connect_timeout();
    let timed_out = |_| {
        Unconnected::Unusable(format!(
            "the database did not complete a connection within {} s",
            within.as_secs()
        ))
    };
    tokio::time::timeout(within, work).await.map_err(timed_out)
}

/// Whether a connection leads to the store that was opened, by what it answered.
fn of_store(target: &Target, said: &[SimpleQueryMessage]) -> Result<(), Unconnected> {
    let Some(opened) = target.store_id.get() else { return Ok(()) };
    let row = statements::row(said, "store_id");
    let found = row.and_then(|row| Uuid::parse(row.get("store_id")?));
    if found == Some(*opened) {
        return Ok(());
    }
    let server = row.and_then(|row| row.get("server")).unwrap_or("the local socket");
    Err(Unconnected::Unusable(format!(
        "the database at {server} holds another store than the one that was opened; every host in the URL must lead to the same database"
    )))
}

/// Why there is no connection.
enum Unconnected {
    Unusable(String),
    Failed(Error),
}

/// A connection and the statements that were prepared on it.
#[derive(Debug)]
pub(super) struct Session {
    pub client: Client,
    pooled: bool,
    statements: Mutex<HashMap<Box<str>, Statement>>,
    session_prepared: AtomicBool,
}

/// A statement that can be sent at once, so that several travel together in the order in which they are sent.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Named(Statement),
    /// Behind a pooler, where a name may not be there the next time.
    Unnamed(Box<str>, Vec<Type>),
}

impl Session {
    /// Whether the database has this function, with exactly this body: that of another version is none.
    pub(super) async fn has_function(&self, name: &str, arguments: &str, body: &str) -> Result<bool, Error> {
        let sql = "SELECT count(*) > 0 FROM pg_proc WHERE oid = to_regprocedure($1) AND prosrc = $2";
        let name = format!("sealog.{name}({arguments})");
        Ok(self.query(sql, &[Type::TEXT, Type::TEXT], &[&name, &body]).await?[0].get(0))
    }

    pub(super) async fn connect(target: &Target) -> Result<Session, StoreError> {
        Session::try_connect(target).await.map_err(|error| match error {
            Unconnected::Unusable(problem) => StoreError::Unavailable(problem),
            Unconnected::Failed(error) => unavailable(&error),
        })
    }

    /// For whoever opens the store and can tell what passes from what does not.
    pub(super) async fn open(target: &Target) -> Result<Session, OpenError> {
        Session::try_connect(target).await.map_err(|error| match error {
            Unconnected::Unusable(problem) => OpenError::Database(problem),
            Unconnected::Failed(error) => OpenError::of(&error),
        })
    }

    async fn try_connect(target: &Target) -> Result<Session, Unconnected> {
        let which = target.store_id.get().map(|_| format!("{STORE_ID} {}", target.store_table));
        if target.on_cluster.get() == Some(&false) {
            let (session, said) = Session::begin(target, which.as_deref()).await?;
            return of_store(target, &said).map(|()| session);
        }
        let (session, said) = Session::begin(target, Some(HAS_CITUS)).await?;
        let has_citus = statements::row(&said, "citus").is_some();
        let _ = target.on_cluster.set(has_citus);
        if has_citus && let Some((host, port)) = session.coordinator(target).await? {
            let coordinator = target.node(&host, port);
            let (session, said) = Session::begin(&coordinator, which.as_deref()).await?;
            return of_store(target, &said).map(|()| session);
        }
        let said = session.ask(target, which.as_deref()).await?;
        of_store(target, &said).map(|()| session)
    }

    /// A connection to where the target leads, and what it answers to the first statements.
    async fn begin(
        target: &Target,
        ask: Option<&str>,
    ) -> Result<(Session, Vec<SimpleQueryMessage>), Unconnected> {
        // The driver's own limit ends with the socket: a server that takes a connection and then says nothing
        // would be waited for without end.
        let connect = within(target, target.config.connect(target.tls.clone())).await?;
        let (client, connection) = connect.map_err(Unconnected::Failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = %explain(&error), "a connection to the database was closed");
            }
        });
        let session = Session {
            client,
            pooled: target.pooled,
            statements: Mutex::default(),
            session_prepared: AtomicBool::new(false),
        };
        let first: Vec<&str> =
            [Some(&*target.first).filter(|first| !first.is_empty()), ask].into_iter().flatten().collect();
        let first = Some(first.join("; ")).filter(|first| !first.is_empty());
        let said = session.ask(target, first.as_deref()).await?;
        Ok((session, said))
    }

    async fn ask(&self, target: &Target, sql: Option<&str>) -> Result<Vec<SimpleQueryMessage>, Unconnected> {
        match sql {
            None => Ok(Vec::new()),
            Some(sql) => within(target, self.client.simple_query(sql)).await?.map_err(Unconnected::Failed),
        }
    }

    /// Where the coordinator of the cluster is, if this is another node.
    async fn coordinator(&self, target: &Target) -> Result<Option<(String, u16)>, Unconnected> {
        let said = self.ask(target, Some(COORDINATOR)).await?;
        let row = statements::row(&said, "groupid");
        if row.is_none_or(|row| row.get("groupid") == Some("0")) {
            return Ok(None);
        }
        let coordinator =
            row.and_then(|row| Some((row.get("nodename")?, row.get("nodeport")?.parse().ok()?)));
        let (host, port) = coordinator.ok_or_else(|| {
            Unconnected::Unusable(
                "a worker of the Citus cluster does not know the coordinator; run SELECT citus_set_coordinator_host('HOST', PORT) there".into(),
            )
        })?;
        Ok(Some((host.to_owned(), port)))
    }

    /// Runs the statements that a connection needs before its first use, once.
    pub(super) async fn prepare_session(&self, sql: &str) -> Result<(), Error> {
        if !self.session_prepared.load(Ordering::Relaxed) {
            self.client.batch_execute(sql).await?;
            self.session_prepared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) async fn prepare(&self, sql: &str, types: &[Type]) -> Result<Prepared, Error> {
        if self.pooled {
            return Ok(Prepared::Unnamed(sql.into(), types.to_vec()));
        }
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(Prepared::Named(statement));
        }
        let statement = self.client.prepare_typed(sql, types).await?;
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        statements.insert(sql.into(), statement.clone());
        Ok(Prepared::Named(statement))
    }

    pub(super) async fn rows(&self, prepared: &Prepared, params: Params<'_>) -> Result<Vec<Row>, Error> {
        match prepared {
            Prepared::Named(statement) => self.client.query(statement, params).await,
            Prepared::Unnamed(sql, types) => self.client.query_typed(sql, &typed(params, types)).await,
        }
    }

    /// A statement that is a transaction by itself. Its rows come back when it is committed. Behind a pooler,
    /// where timeouts are set in each transaction, what begins and ends one travels with it.
    pub(super) async fn rows_at_once(
        &self,
        begin: &str,
        prepared: &Prepared,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        if !self.pooled {
            return self.rows(prepared, params).await;
        }
        let (begun, rows, commit) = join3(
            self.client.batch_execute(begin),
            self.rows(prepared, params),
            self.client.batch_execute("COMMIT"),
        )
        .await;
        // The first error is the cause of those behind it.
        begun?;
        let rows = rows?;
        commit.map(|()| rows)
    }

    /// The number of rows that were changed.
    pub(super) async fn change(&self, prepared: &Prepared, params: Params<'_>) -> Result<u64, Error> {
        match prepared {
            Prepared::Named(statement) => self.client.execute(statement, params).await,
            Prepared::Unnamed(sql, types) => self.client.execute_typed(sql, &typed(params, types)).await,
        }
    }

    pub(super) async fn query(
        &self,
        sql: &str,
        types: &[Type],
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let prepared = self.prepare(sql, types).await?;
        self.rows(&prepared, params).await
    }

    pub(super) async fn execute(&self, sql: &str, types: &[Type], params: Params<'_>) -> Result<u64, Error> {
        let prepared = self.prepare(sql, types).await?;
        self.change(&prepared, params).await
    }

    /// Planned for these values, for statements whose best plan depends on them.
    pub(super) async fn query_planned(
        &self,
        sql: &str,
        types: &[Type],
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.client.query_typed(sql, &typed(params, types)).await
    }
}

fn typed<'a>(params: Params<'a>, types: &[Type]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    assert_eq!(params.len(), types.len(), "each value has its type");
    params.iter().copied().zip(types.iter().cloned()).collect()
}
