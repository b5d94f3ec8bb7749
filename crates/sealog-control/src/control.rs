//! Open control data: entities run on threads of their own, each change in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::id::TenantId;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::postgres::PostgresStore;
use sealog_store::{BoxFuture, StoreError};

use crate::database::{COST, Database};
use crate::db::{Db, DbError, Lock, Room};
use crate::error::OpenError;
use crate::postgres;
use crate::record::{self, NewRecord};
use crate::schema::SCHEMA;
use crate::tenant_room::TenantRoom;
use crate::version::{self, Versions};

pub type Answer<'a, T, E = StoreError> = BoxFuture<'a, Result<T, E>>;

/// Most operations that wait for a thread.
const WAITING_MAX: usize = 10_000;

/// Open control data. Closes when dropped, after what is under way.
#[derive(Debug)]
pub struct Control {
    pub(crate) database: Arc<Database>,
    pool: Arc<ThreadPool>,
    pub(crate) versions: Arc<Versions>,
    /// What the control data of a tenant may take of the disk.
    tenant_bytes_max: AtomicU64,
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
        let (seen, versions) = (sessions.versions(), Arc::clone(&control.versions));
        let at_start = *seen.borrow();
        sessions.spawn("database_versions", move || {
            version::follow(seen.clone(), database.clone(), pool.clone(), Arc::clone(&versions), at_start)
        });
        Ok(control)
    }

    fn over(database: Database) -> Control {
        let pool = Arc::new(ThreadPool::start("sealog-control", database.threads(), None));
        Control {
            database: Arc::new(database),
            pool,
            versions: Arc::default(),
            tenant_bytes_max: AtomicU64::new(u64::MAX),
        }
    }

    /// Refuses a tenant whatever would make its control data take more: [`StoreError::TenantFull`].
    pub fn limit_tenant_bytes(&self, max: Option<u64>) {
        self.tenant_bytes_max.store(max.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn tenant_room(&self) -> TenantRoom {
        TenantRoom { bytes_max: self.tenant_bytes_max.load(Ordering::Relaxed) }
    }

    /// Why nothing may be changed any more until it is opened again. A database heals without that.
    pub fn failure(&self) -> Option<String> {
        self.database.failure()
    }

    /// Why it cannot be read, if the last read failed.
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.database.unreadable()
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T> {
        self.read_for(Payer::Operator, act)
    }

    pub(crate) fn read_for<T: Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T> {
        let database = Arc::clone(&self.database);
        self.run(payer, move || database.read(act))
    }

    /// A change that alters nothing a request may do.
    pub(crate) fn change<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T, E> {
        self.change_for(Payer::Operator, lock, act)
    }

    pub(crate) fn change_for<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        payer: Payer,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T, E> {
        self.change_for_in(payer, lock.room(), lock, act)
    }

    /// As [`Control::change`], with what it may use of a full disk.
    pub(crate) fn change_in<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        room: Room,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T, E> {
        self.change_for_in(Payer::Operator, room, lock, act)
    }

    pub(crate) fn change_for_in<T: Send + 'static, E: From<DbError> + From<StoreError> + Send + 'static>(
        &self,
        payer: Payer,
        room: Room,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T, E> {
        let database = Arc::clone(&self.database);
        self.run(payer, move || database.change_in(room, lock, |db, _| act(db)))
    }

    /// A change that takes so much room that it is refused where the disk has none to spare: what is left is
    /// for events, and for changes of who may do what.
    pub(crate) fn change_bulky<T: Send + 'static>(
        &self,
        bytes: u64,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError> + Send + 'static,
    ) -> Answer<'_, T> {
        let database = Arc::clone(&self.database);
        self.run(Payer::Operator, move || match database.has_room(bytes) {
            true => database.change(Lock::None, |db, _| act(db)),
            false => Err(StoreError::NoRoom),
        })
    }

    /// A change of something that a tenant has. `act` says whose it was, and which records of it go into the
    /// tenant's system chain; what did not happen leaves none.
    pub(crate) fn change_of_tenant<
        T: Send + 'static,
        E: From<DbError> + From<StoreError> + Send + 'static,
    >(
        &self,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<Option<Changed<T>>, DbError> + Send + 'static,
    ) -> Answer<'_, Option<T>, E> {
        self.change_of_tenant_in(lock.room(), lock, act)
    }

    /// As [`Control::change_of_tenant`], with what it may use of a full disk.
    pub(crate) fn change_of_tenant_in<
        T: Send + 'static,
        E: From<DbError> + From<StoreError> + Send + 'static,
    >(
        &self,
        room: Room,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db) -> Result<Option<Changed<T>>, DbError> + Send + 'static,
    ) -> Answer<'_, Option<T>, E> {
        let (database, versions) = (Arc::clone(&self.database), Arc::clone(&self.versions));
        self.run(Payer::Operator, move || {
            let mut changed = None;
            let made: Result<_, E> = database.change_in(room, lock, |db, version| {
                let Some(Changed { tenant_id, value, records }) = act(db)? else { return Ok(None) };
                if let Some(version) = version {
                    version::touch(db, tenant_id, version)?;
                }
                record::insert(db, tenant_id, &records)?;
                changed = Some((tenant_id, version));
                Ok(Some(value))
            });
            // It counts even when it failed behind that: it may have been made all the same, or be made
            // later, and then the database tells of its version.
            if let (Lock::Version, Some((tenant_id, version))) = (lock, changed) {
                versions.note([(tenant_id, version.filter(|_| made.is_ok()))]);
            }
            made
        })
    }

    pub(crate) fn run<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Answer<'_, T, E> {
        // Half of the queue is closed to what strangers can ask for (look-ups of keys, sessions and links,
        // attempts to sign in): no crowd of them keeps a key from being revoked.
        let waiting_max = if payer == Payer::Stranger { WAITING_MAX / 2 } else { WAITING_MAX };
        let answer = self.pool.run_below(waiting_max, payer, COST, act);
        Box::pin(async move {
            let Some(answer) = answer else {
                let cause = "the queue of control data operations is full";
                return Err(StoreError::Unavailable(cause.into()).into());
            };
            answer.await.unwrap_or_else(|_| Err(StoreError::Closing.into()))
        })
    }
}

/// What a change of something that a tenant has comes to.
pub(crate) struct Changed<T> {
    pub tenant_id: TenantId,
    pub value: T,
    pub records: Vec<NewRecord>,
}

impl Drop for Control {
    fn drop(&mut self) {
        // Whoever opens the same directory next finds it closed.
        self.pool.stop_and_wait();
    }
}

/// Of a change, a field that is given.
pub(crate) fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}
