//! Who the people are and what is set: control data. Small, changed by people, kept apart from events.
//!
//! One file for each entity has its types, its SQL, how a row becomes a value, its part of a snapshot, and
//! the trait by which it is asked for. Entities are synchronous code over a small seam ([`db`]); beneath it
//! are two drivers, a file of SQLite beside the logs and tables in PostgreSQL. [`Control`] runs them on
//! threads of its own, so that an event loop never waits for a database, and work on control data never
//! delays reads of events.
//!
//! Whole operations, never rows. Nothing is ever deleted that an event could point at: keys are revoked,
//! frameworks disabled, memberships ended.
//!
//! **What is durable when.** After `Ok` a change is durable and seen by every later call. After an error it
//! was not made, or is not known to have been made.

pub mod action;
pub mod db;
pub mod first;
pub mod job;
pub mod key;
pub mod membership;
pub mod outbox;
pub mod pending;
pub mod person;
mod postgres;
pub mod project;
mod reserve;
pub mod session;
pub mod settings;
pub mod snapshot;
mod sqlite;
pub mod system_project;
pub mod tenant;
pub mod version;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sealog_core::id::{TenantId, Uuid};
use sealog_store::embedded::EmbeddedStore;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::postgres::{self as store_postgres, PostgresStore};
use sealog_store::{BoxFuture, StoreError};

pub use action::Actions;
pub use first::{FirstRun, FirstRuns};
pub use job::{Job, JobId, JobOutcome, JobState, Jobs, NewJob};
pub use key::{Access, ApiKey, KeyAccess, KeyId, Keys, NewKey};
pub use membership::{Grants, Member, MemberChange, Membership, Memberships, NewMember, Role};
pub use outbox::{NewNotice, Notice, NoticeOutcome, Outbox};
pub use pending::{NewRecord, PendingRecord, PendingRecords};
pub use person::{NewPerson, Person, PersonId, Persons};
pub use project::{NewProject, Project, ProjectChange, Projects};
pub use session::{Session, Sessions};
pub use settings::Settings;
pub use snapshot::{ControlSnapshot, Snapshot};
pub use system_project::SystemProjects;
pub use tenant::{NewTenant, Tenant, TenantChange, Tenants};

use db::{Database, Db, DbError, Lock, Schema};
use version::Versions;

/// What administrators ask for. Each change takes the records that go into the tenant's system chain along
/// with it: they are kept in the same transaction.
pub trait Administration: Tenants + Projects + Keys + Actions + Settings + FirstRuns {}

impl<T: Tenants + Projects + Keys + Actions + Settings + FirstRuns + ?Sized> Administration for T {}

/// Who may sign in, and where to.
pub trait People: Persons + Memberships + Sessions {}

impl<T: Persons + Memberships + Sessions + ?Sized> People for T {}

pub type Answer<'a, T, E = StoreError> = BoxFuture<'a, Result<T, E>>;

/// The tables of control data.
pub const SCHEMA: Schema = Schema {
    name: "control",
    sqlite: &[
        include_str!("migrations/sqlite/0001.sql"),
        include_str!("migrations/sqlite/0002.sql"),
        include_str!("migrations/sqlite/0003.sql"),
    ],
    postgres: &[
        include_str!("migrations/postgres/0001.sql"),
        include_str!("migrations/postgres/0002.sql"),
        include_str!("migrations/postgres/0003.sql"),
    ],
};

/// Most operations that wait for a thread.
const WAITING_MAX: usize = 10_000;
/// What each counts in the fair queue, whose key is the payer. They are all small.
const COST: usize = 4 << 10;

/// Open control data. Closes when dropped, after what is under way.
#[derive(Debug)]
pub struct Control {
    database: Arc<Database>,
    pool: Arc<ThreadPool>,
    versions: Arc<Versions>,
}

impl Control {
    /// Forgotten when it is dropped. For tests, and for a store on a disk that is not of this machine.
    pub fn in_memory() -> Control {
        Control::over(Database::in_memory(&SCHEMA).expect("memory has no earlier version and no directory"))
    }

    /// In the directory of an open store.
    pub fn embedded(store: &EmbeddedStore) -> Result<Control, OpenError> {
        match store.directory() {
            Some(directory) => Database::in_directory(directory, &SCHEMA).map(Control::over),
            None => Ok(Control::in_memory()),
        }
    }

    /// In the database of an open store, whose nodes learn of each other's changes.
    pub fn on_postgres(store: &PostgresStore) -> Result<Control, OpenError> {
        let sessions = store.sessions(postgres::CONNECTIONS);
        let control = Control::over(Database::on_postgres(sessions.clone(), &SCHEMA)?);
        let (database, pool) = (Arc::downgrade(&control.database), Arc::downgrade(&control.pool));
        sessions.spawn(version::follow(sessions.versions(), database, pool, Arc::clone(&control.versions)));
        Ok(control)
    }

    fn over(database: Database) -> Control {
        let pool = Arc::new(ThreadPool::start("sealog-control", database.threads(), None));
        Control { database: Arc::new(database), pool, versions: Arc::default() }
    }

    /// Why nothing may be changed any more until it is opened again. A database heals without that.
    pub fn failure(&self) -> Option<String> {
        self.database.failure()
    }

    fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.read_for(Payer::Operator, act)
    }

    fn read_for<T: Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T> {
        let database = Arc::clone(&self.database);
        self.run(payer, move || database.read(act))
    }

    /// A change that alters nothing a request may do.
    fn change<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T, E> {
        let database = Arc::clone(&self.database);
        self.run(Payer::Operator, move || database.change(lock, |db, _| act(db)))
    }

    /// A change of something that a tenant has, and the records of it for the tenant's system chain; no
    /// record of what did not happen. `act` says whose it was.
    fn change_of_tenant<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        lock: Lock,
        records: Vec<NewRecord>,
        act: impl FnOnce(&mut dyn Db) -> Result<Option<(TenantId, T)>, DbError> + Send + 'static,
    ) -> Answer<'_, Option<T>, E> {
        let (database, versions) = (Arc::clone(&self.database), Arc::clone(&self.versions));
        self.run(Payer::Operator, move || {
            let mut changed = None;
            let made: Result<_, E> = database.change(lock, |db, version| {
                let Some((tenant_id, value)) = act(db)? else { return Ok(None) };
                if let Some(version) = version {
                    version::touch(db, tenant_id, version)?;
                }
                pending::insert(db, tenant_id, &records)?;
                changed = Some((tenant_id, version));
                Ok(Some(value))
            });
            // It counts even when it failed behind that: it may have been made all the same, or be made later,
            // and then the database tells of its version.
            if let (Lock::Version, Some((tenant_id, version))) = (lock, changed) {
                versions.note([(tenant_id, version.filter(|_| made.is_ok()))]);
            }
            made
        })
    }

    fn run<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Answer<'_, T, E> {
        // Half of the queue is closed to look-ups of unknown keys: no crowd of them keeps a key from being revoked.
        let waiting_max = if payer == Payer::Stranger { WAITING_MAX / 2 } else { WAITING_MAX };
        let answer = self.pool.run_below(waiting_max, payer, COST, act);
        Box::pin(async move {
            let Some(answer) = answer else {
                let cause = "the queue of operations on control data is full";
                return Err(StoreError::Unavailable(cause.into()).into());
            };
            answer.await.unwrap_or_else(|_| Err(StoreError::Closing.into()))
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Whoever opens the same directory next finds it closed.
        self.pool.stop_and_wait();
    }
}

/// Makes or updates the tables of control data in a PostgreSQL database, as `sealog migrate` does; how many
/// steps that took.
pub fn migrate(url: &str) -> Result<usize, store_postgres::OpenError> {
    store_postgres::sessions::migrate(url, &postgres::steps(&SCHEMA))
}

/// Why control data could not be opened.
#[derive(Debug)]
pub enum OpenError {
    UnknownVersion { found: String },
    Io { path: PathBuf, error: io::Error },
    Postgres(store_postgres::OpenError),
}

impl OpenError {
    /// Whether trying again can help without anybody changing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self, OpenError::Postgres(error) if error.may_pass())
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::UnknownVersion { found } => write!(
                f,
                "the store has the format {found:?}, which this version does not know; use the version that wrote it, or a newer one"
            ),
            OpenError::Io { path, error } => write!(f, "{}: {error}", path.display()),
            OpenError::Postgres(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why something was not created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// There is one of this name.
    AlreadyExists,
    Store(StoreError),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> ChangeError {
        ChangeError::Store(error)
    }
}

impl From<DbError> for ChangeError {
    fn from(error: DbError) -> ChangeError {
        match error {
            DbError::AlreadyExists => ChangeError::AlreadyExists,
            other => ChangeError::Store(other.into()),
        }
    }
}

/// A piece of a list in the order of creation: what comes after this id, at most so many.
#[derive(Clone, Copy, Debug)]
pub struct ListPage {
    pub after: Option<Uuid>,
    pub limit: usize,
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}
