//! Connections: a bounded number, made when they are needed, dropped when anything went wrong on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join3;
use sealog_core::id::Uuid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

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
        // The driver's own limit ends with the socket: a server that takes a connection and then says nothing
        // would be waited for without end.
        let within = target.connect_timeout();
        let connect = tokio::time::timeout(within, target.config.connect(target.tls.clone())).await;
        let timed_out =
            || format!("the database did not complete a connection within {} s", within.as_secs());
        let connect = connect.map_err(|_| Unconnected::Unusable(timed_out()))?;
        let (client, connection) = connect.map_err(Unconnected::Failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = %explain(&error), "a connection to the database was closed");
            }
        });
        let store_id = target.store_id.get();
        let which = store_id.map(|_| format!("{STORE_ID} {}", target.store_table));
        let first = [Some(&*target.first).filter(|first| !first.is_empty()), which.as_deref()];
        let first: Vec<&str> = first.into_iter().flatten().collect();
        let said = match &first[..] {
            [] => Vec::new(),
            _ => {
                let said = tokio::time::timeout(within, client.simple_query(&first.join("; "))).await;
                said.map_err(|_| Unconnected::Unusable(timed_out()))?.map_err(Unconnected::Failed)?
            }
        };
        if let Some(opened) = store_id {
            let row = statements::row(&said, "store_id");
            let found = row.and_then(|row| Uuid::parse(row.get("store_id")?));
            if found != Some(*opened) {
                let server = row.and_then(|row| row.get("server")).unwrap_or("the local socket");
                return Err(Unconnected::Unusable(format!(
                    "the database at {server} holds another store than the one that was opened; every host in the URL must lead to the same database"
                )));
            }
        }
        Ok(Session {
            client,
            pooled: target.pooled,
            statements: Mutex::default(),
            session_prepared: AtomicBool::new(false),
        })
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
