//! Sessions of the store's database for other parts of the program: they keep tables of their own there, in
//! schemas of their own.
//!
//! Their code is synchronous and runs on threads of its own; each statement travels to the store's thread,
//! which has all connections, and the answer travels back.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::error::{OpenError, explain};
use super::inner::{Inner, SharedVersion};
use super::migrate as steps;
pub use super::migrate::{Schema, rights_in};
use super::pool::{Lease, Pool, Session};
use super::rows;
use super::store::PostgresStore;
use crate::error::StoreError;
use crate::sync::lock;
use crate::types::BoxFuture;

/// Sessions with connections of their own, so that whoever uses them takes none from appends and reads of
/// events.
#[derive(Clone, Debug)]
pub struct Sessions {
    inner: Arc<Inner>,
    pool: Arc<Pool>,
    runtime: Handle,
}

impl PostgresStore {
    /// At most so many at a time.
    pub fn sessions(&self, connections: usize) -> Sessions {
        let pool = Pool::new(Arc::clone(&self.inner.target), connections);
        lock(&self.inner.lent).push(Arc::clone(&pool));
        Sessions { inner: Arc::clone(&self.inner), pool, runtime: self.runtime.clone() }
    }
}

impl Sessions {
    /// Brings the tables of a schema up to date where this role may, and refuses to go on with another
    /// version than the program's.
    pub fn prepare(&self, schema: Schema) -> Result<(), OpenError> {
        let target = Arc::clone(&self.inner.target);
        let made =
            wait(&self.runtime, async move { steps::prepare(&Session::open(&target).await?, &schema).await });
        made.unwrap_or_else(|| Err(OpenError::Database("the store is shutting down".into())))
    }

    /// One transaction, with the store's timeouts.
    pub fn begin(&self) -> Result<Work, Failure> {
        self.open(true)
    }

    /// For statements that only read: one transaction where a pooler makes that necessary, else each
    /// statement by itself.
    pub fn read(&self) -> Result<Work, Failure> {
        self.open(self.inner.target.pooled)
    }

    fn open(&self, transaction: bool) -> Result<Work, Failure> {
        // Whoever waited for a machine that is gone would hold a thread for as long.
        if let Some(why) = self.inner.control_away() {
            return Err(Failure::Store(StoreError::Unavailable(why)));
        }
        let (pool, wait_max) = (Arc::clone(&self.pool), self.inner.options.queue_deadline);
        let leased = wait(&self.runtime, async move { pool.lease(wait_max).await });
        let lease = leased.ok_or(Failure::Store(StoreError::Closing))?.map_err(Failure::Store)?;
        let work = Work {
            lease: Arc::new(lease),
            transaction,
            until: Instant::now() + self.inner.options.transaction_timeout,
            runtime: self.runtime.clone(),
        };
        if transaction {
            let begin = self.inner.target.begin(&self.inner.options);
            work.run(|session| Box::pin(async move { session.client.batch_execute(&begin).await }))?;
        }
        Ok(work)
    }

    /// The version of the shared row, as it was last seen. Every node looks at it several times a second.
    pub fn versions(&self) -> watch::Receiver<SharedVersion> {
        self.inner.versions.subscribe()
    }

    /// For how long nothing was heard of that row, and so of what other nodes have changed.
    pub fn silent_ms(&self) -> u64 {
        self.inner.silent_ms()
    }

    /// Runs a loop on the store's thread until it has ended or the store is closed. One that panics is
    /// started again.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        begin: impl Fn() -> F + Send + Sync + 'static,
    ) {
        let loops = Arc::clone(&self.inner.loops);
        self.runtime.spawn(async move { loops.run(name, begin).await });
    }
}

/// A session in use. It must be finished; one that is dropped ends its connection, and with it what was
/// begun.
#[derive(Debug)]
pub struct Work {
    lease: Arc<Lease>,
    transaction: bool,
    until: Instant,
    runtime: Handle,
}

impl Work {
    pub fn query<P>(&self, sql: String, types: Vec<Type>, params: Vec<P>) -> Result<Vec<Row>, Failure>
    where
        P: ToSql + Sync + Send + 'static,
    {
        self.run(|session| {
            Box::pin(async move {
                let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
                session.query(&sql, &types, &params).await
            })
        })
    }

    /// The number of rows that were changed.
    pub fn execute<P>(&self, sql: String, types: Vec<Type>, params: Vec<P>) -> Result<u64, Failure>
    where
        P: ToSql + Sync + Send + 'static,
    {
        self.run(|session| {
            Box::pin(async move {
                let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
                session.execute(&sql, &types, &params).await
            })
        })
    }

    /// Holds the row that has the store's version until the transaction ends: whoever else does so comes
    /// before or after.
    pub fn lock_version(&self) -> Result<u64, Failure> {
        self.version("SELECT version FROM sealog.store FOR UPDATE")
    }

    /// Holds that row, and counts it up, which every node notices.
    pub fn next_version(&self) -> Result<u64, Failure> {
        self.version("UPDATE sealog.store SET version = version + 1 RETURNING version")
    }

    fn version(&self, sql: &'static str) -> Result<u64, Failure> {
        let rows = self.run(move |session| Box::pin(session.query(sql, &[], &[])))?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::Store(StoreError::Unavailable("sealog.store has no row".into())))?;
        Ok(rows::unsigned(row.get("version")))
    }

    /// Makes what was changed durable, and gives the connection back.
    pub fn finish(self) -> Result<(), Failure> {
        if self.transaction {
            self.run(|session| Box::pin(session.client.batch_execute("COMMIT")))?;
        }
        if let Ok(lease) = Arc::try_unwrap(self.lease) {
            lease.give_back();
        }
        Ok(())
    }

    fn run<T: Send + 'static>(
        &self,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (lease, until) = (Arc::clone(&self.lease), self.until);
        let done = wait(&self.runtime, async move {
            tokio::time::timeout_at(until.into(), async move { act(&lease.session).await }).await
        });
        match done {
            None => Err(Failure::Store(StoreError::Closing)),
            Some(Err(_)) => Err(Failure::TimedOut),
            Some(Ok(done)) => done.map_err(Failure::Database),
        }
    }
}

/// Awaits on the store's thread what this thread waits for. Nothing if the store is closed meanwhile.
fn wait<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let (sender, answer) = oneshot::channel();
    runtime.spawn(async move {
        let _ = sender.send(work.await);
    });
    answer.blocking_recv().ok()
}

/// Why a statement has no answer.
#[derive(Debug)]
pub enum Failure {
    /// There was no connection for it.
    Store(StoreError),
    Database(Error),
    /// The database did not answer in time. Whether the statement had its effect is unknown.
    TimedOut,
}

impl Failure {
    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Failure::Database(error) => error.code(),
            Failure::Store(_) | Failure::TimedOut => None,
        }
    }
}

impl Failure {
    /// Whether the connection has ended, and with it what was begun: the database is being stopped, has ended
    /// a session that was idle for too long, or is gone.
    pub fn is_gone(&self) -> bool {
        let Failure::Database(error) = self else { return false };
        match error.code() {
            Some(state) => ["57P", "08", "25P03"].iter().any(|class| state.code().starts_with(class)),
            None => {
                error.is_closed()
                    || std::error::Error::source(error)
                        .is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Database(error) => f.write_str(&explain(error)),
            Failure::TimedOut => f.write_str("the database did not respond in time"),
        }
    }
}

impl std::error::Error for Failure {}

/// Text as PostgreSQL can keep it: a NUL, and the character that stands for it, are written as two.
pub fn escape(text: &str) -> Cow<'_, str> {
    rows::escape(text)
}

/// The text that [`escape`] was given.
pub fn unescape(text: &str) -> Cow<'_, str> {
    rows::unescape(text)
}

/// Makes or updates the tables of a schema as `sealog migrate` does; how many steps that took.
pub fn migrate(url: &str, schema: &Schema) -> Result<usize, OpenError> {
    steps::with_session(url, async |session| steps::run(session, schema).await)
}
