//! Control data: [`Accounts`] in one SQLite file beside the logs.
//!
//! `control/0001.sql` has the tables. Each change is one transaction in the write-ahead log of SQLite, synced before its answer (`synchronous=FULL`).

mod copy;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::wal::CheckpointMode;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Params, Row, Transaction, TransactionBehavior,
    params,
};
use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;

use super::data_dir::FILE_MODE;
use super::disk::Disk;
use super::reserve::Reserve;
use super::sync::lock;
use super::{EmbeddedStore, OpenError};
use crate::accounts::{
    Access, AccountError, Accounts, ApiKey, Everything, FirstRun, KeyId, ListPage, Mail, MailOutcome, NewKey,
    NewMail, NewProject, NewTenant, NewUser, Project, ProjectChange, Role, Session, Tenant, TenantChange,
    User, UserId,
};
use crate::pool::{Lane, Payer};
use crate::{BoxFuture, LOOKUP_COST, StoreError};

const FILE: &str = "control.db";
/// One after the other, each in its own transaction; `user_version` counts those that were made.
const MIGRATIONS: [&str; 1] = [include_str!("control/0001.sql")];
/// How long to wait for another program that has the file locked, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The write-ahead log is copied into the file when it has this many pages (4 MiB).
const CHECKPOINT_PAGES: i32 = 1024;
/// How long the text of a mail is kept after it was sent.
const MAIL_KEPT_MS: u64 = 90 * 24 * 60 * 60 * 1000;

impl Accounts for EmbeddedStore {
    fn create_first(&self, first: FirstRun) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.control(move |control| control.change_access(|db| create_first(db, first)))
    }

    fn create_tenant(&self, new: NewTenant) -> BoxFuture<'_, Result<Tenant, StoreError>> {
        self.control(move |control| control.change_access(|db| create_tenant(db, new)))
    }

    fn update_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
    ) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        self.control(move |control| control.change_access(|db| update_tenant(db, id, change)))
    }

    fn tenant(&self, id: TenantId) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        self.control(move |control| control.read(|db| tenant(db, id)))
    }

    fn tenants(&self, page: ListPage) -> BoxFuture<'_, Result<Vec<Tenant>, StoreError>> {
        self.control(move |control| control.read(|db| tenants(db, page)))
    }

    fn create_project(&self, new: NewProject) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.control(move |control| control.change_access(|db| create_project(db, &new)))
    }

    fn update_project(
        &self,
        id: ProjectId,
        change: ProjectChange,
    ) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.control(move |control| control.change_access(|db| update_project(db, id, change)))
    }

    fn project(&self, id: ProjectId) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.control(move |control| control.read(|db| project(db, id)))
    }

    fn projects(
        &self,
        tenant_id: TenantId,
        page: ListPage,
    ) -> BoxFuture<'_, Result<Vec<Project>, StoreError>> {
        self.control(move |control| control.read(|db| projects(db, tenant_id, page)))
    }

    fn create_key(&self, new: NewKey) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        self.control(move |control| control.change_access(|db| create_key(db, &new)))
    }

    fn revoke_key(&self, id: KeyId, now_ms: u64) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        self.control(move |control| control.change_access(|db| revoke_key(db, id, now_ms)))
    }

    fn keys(&self, project_id: ProjectId, page: ListPage) -> BoxFuture<'_, Result<Vec<ApiKey>, StoreError>> {
        self.control(move |control| control.read(|db| keys(db, project_id, page)))
    }

    fn access(&self, key_digest: Hash) -> BoxFuture<'_, Result<Option<Access>, StoreError>> {
        self.control_for(Payer::Stranger, move |control| control.read(|db| access(db, key_digest)))
    }

    fn keys_used(&self, used: Vec<(KeyId, u64)>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.control(move |control| control.change(|db| keys_used(db, &used)))
    }

    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
    ) -> BoxFuture<'_, Result<Option<CustomAction>, AccountError>> {
        self.control(move |control| control.change_access(|db| create_action(db, tenant_id, action))?)
    }

    fn actions(&self, tenant_id: TenantId) -> BoxFuture<'_, Result<Vec<CustomAction>, StoreError>> {
        self.control(move |control| control.read(|db| actions(db, tenant_id)))
    }

    fn create_user(&self, new: NewUser) -> BoxFuture<'_, Result<Option<User>, AccountError>> {
        self.control(move |control| control.change(|db| create_user(db, new))?)
    }

    fn users(&self, tenant_id: TenantId, page: ListPage) -> BoxFuture<'_, Result<Vec<User>, StoreError>> {
        self.control(move |control| control.read(|db| users(db, tenant_id, page)))
    }

    fn user_by_email(&self, email: String) -> BoxFuture<'_, Result<Option<(User, String)>, StoreError>> {
        self.control(move |control| control.read(|db| user_by_email(db, &email)))
    }

    fn create_session(&self, session: Session) -> BoxFuture<'_, Result<(), StoreError>> {
        self.control(move |control| control.change(|db| create_session(db, &session)))
    }

    fn session(&self, token_digest: Hash, now_ms: u64) -> BoxFuture<'_, Result<Option<Session>, StoreError>> {
        self.control(move |control| control.read(|db| session(db, token_digest, now_ms)))
    }

    fn end_session(&self, token_digest: Hash) -> BoxFuture<'_, Result<(), StoreError>> {
        self.control(move |control| control.change(|db| end_session(db, token_digest)))
    }

    fn enqueue_mail(&self, mail: NewMail) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.control(move |control| control.change(|db| enqueue_mail(db, &mail)))
    }

    fn due_mails(&self, now_ms: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Mail>, StoreError>> {
        self.control(move |control| control.read(|db| due_mails(db, now_ms, limit)))
    }

    fn claim_mail(&self, id: i64, now_ms: u64, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.control(move |control| control.change(|db| claim_mail(db, id, now_ms, until_ms)))
    }

    fn mail_attempted(&self, id: i64, outcome: MailOutcome) -> BoxFuture<'_, Result<(), StoreError>> {
        self.control(move |control| control.change(|db| mail_attempted(db, id, &outcome)))
    }

    fn pending_mails(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.control(move |control| control.read(pending_mails))
    }

    fn export(&self) -> BoxFuture<'_, Result<Everything, StoreError>> {
        self.control(|control| control.read(copy::export))
    }

    fn replace(&self, everything: Everything) -> BoxFuture<'_, Result<(), StoreError>> {
        self.control(move |control| control.change_access(|db| copy::replace(db, &everything)))
    }

    fn version(&self) -> u64 {
        self.control.version.load(Ordering::SeqCst)
    }
}

impl EmbeddedStore {
    /// Runs on the pool, so that an event loop never waits for SQLite.
    fn control<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        act: impl FnOnce(&Control) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, E>> {
        self.control_for(Payer::Operator, act)
    }

    fn control_for<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce(&Control) -> Result<T, E> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, E>> {
        let control = Arc::clone(&self.control);
        let answer = self.pool.run(Lane::Read, payer, LOOKUP_COST, move || act(&control));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(StoreError::Closing.into())) })
    }
}

// ---- The file -----------------------------------------------------------------------------------------------------

/// The open file. One connection is enough: people change little, and what requests ask for is cached above.
#[derive(Debug)]
pub(super) struct Control {
    inner: Mutex<Inner>,
    version: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    db: Connection,
    /// Why nothing may be changed any more.
    failed: Option<String>,
    /// Nothing for a database in memory.
    reserve: Option<Reserve>,
}

impl Control {
    /// Opens the file in a data directory, or, for a disk that is not of this machine, a database in memory.
    pub(super) fn open(dir: Option<&Path>, disk: &Arc<dyn Disk>) -> Result<Control, OpenError> {
        let path = dir.map_or_else(|| PathBuf::from(FILE), |dir| dir.join(FILE));
        let mut reserve = dir.map(|dir| Reserve::open(Arc::clone(disk), dir.to_owned()));
        let mut db = match dir {
            Some(dir) => open_file(dir, &path, Locking::Shared),
            None => open_in_memory(),
        };
        // Opening takes room, too, and a server that does not start serves no reads and revokes nothing.
        if let (Some(dir), Some(reserve), Err(Unopened::Io(_))) = (dir, &mut reserve, &db)
            && reserve.is_low()
        {
            let locking = if reserve.release_if_low() { Locking::Shared } else { Locking::Exclusive };
            db = open_file(dir, &path, locking);
        }
        let db = db.map_err(|error| match error {
            Unopened::UnknownVersion(version) => {
                OpenError::UnknownFormat { found: format!("{FILE} version {version}") }
            }
            Unopened::Io(error) => OpenError::Io { path, error },
        })?;
        if let Some(reserve) = &mut reserve {
            reserve.keep();
        }
        Ok(Control { inner: Mutex::new(Inner { db, failed: None, reserve }), version: AtomicU64::new(1) })
    }

    fn read<T>(&self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        act(&self.lock().db).map_err(|error| StoreError::Read(error.to_string()))
    }

    /// Why nothing may be changed any more. Does not wait for a change that is being made: event loops ask.
    pub(super) fn failure(&self) -> Option<String> {
        match self.inner.try_lock() {
            Ok(inner) => inner.failed.clone(),
            Err(TryLockError::Poisoned(inner)) => inner.into_inner().failed.clone(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// One transaction: all of it is durable after `Ok`.
    ///
    /// A failed write or sync ends changes until the next start, as it does for events. The kernel may have dropped what it could not write, so a sync that
    /// succeeds later would prove nothing. A full disk and a file that another program has locked are not of that kind.
    fn change<T>(&self, act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let mut inner = self.lock();
        let Inner { db, failed, reserve } = &mut *inner;
        if let Some(cause) = failed {
            return Err(StoreError::Control(format!(
                "an earlier change failed ({cause}); nothing is changed until the store is started again"
            )));
        }
        let made = transact(db, act);
        // What is in the write-ahead log is durable: the caller has its answer whether or not it could be copied into the file.
        // On a full disk it is copied at once, so that the next change begins it anew and it takes no more room than it has.
        let low = reserve.as_ref().is_some_and(Reserve::is_low);
        let pages_max = if low { 1 } else { CHECKPOINT_PAGES };
        let copied = if made.is_ok() { checkpoint(db, pages_max) } else { Ok(()) };
        let errors = [made.as_ref().err(), copied.as_ref().err()];
        if let Some(cause) = errors.into_iter().flatten().find(|error| is_final(error)) {
            tracing::error!(%cause, "control data cannot be changed until the store is started again");
            *failed = Some(cause.to_string());
            // Closing must not copy the write-ahead log and remove it: it is what the next start begins with.
            let kept = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            kept.expect("this only sets a flag in memory");
        }
        if let Some(reserve) = reserve {
            reserve.keep();
        }
        made.map_err(|error| refused_or_failed(&error))
    }

    /// A change that can alter what a request may do. It counts even when it failed: it may have been made all the same.
    fn change_access<T>(
        &self,
        act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        // What is written all the time, such as when a key was last used, does not get this room.
        if let Some(reserve) = &mut self.lock().reserve {
            reserve.release_if_low();
        }
        let made = self.change(act);
        self.version.fetch_add(1, Ordering::SeqCst);
        made
    }

    /// From now on nothing is changed: the file under the directory's path is not this one any more.
    pub(super) fn refuse_changes(&self, cause: &str) {
        self.lock().failed.get_or_insert_with(|| cause.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked here has rolled its transaction back on the way out.
        lock(&self.inner)
    }
}

fn transact<T>(
    db: &mut Connection,
    act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = act(&transaction)?;
    transaction.commit()?;
    Ok(value)
}

/// SQLite would do this by itself, but says nothing when it fails.
fn checkpoint(db: &Connection, pages_max: i32) -> rusqlite::Result<()> {
    const ALL: Option<&str> = None;
    let (pages, _) = db.wal_checkpoint_v2(ALL, CheckpointMode::NOOP)?;
    if pages >= pages_max {
        db.wal_checkpoint_v2(ALL, CheckpointMode::PASSIVE)?;
    }
    Ok(())
}

fn is_final(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn refused_or_failed(error: &rusqlite::Error) -> StoreError {
    use rusqlite::ffi::{
        SQLITE_CONSTRAINT_FOREIGNKEY, SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE,
    };
    match error.sqlite_error().map(|error| error.extended_code) {
        Some(SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_PRIMARYKEY) => {
            StoreError::Refused(format!("it exists already ({error})"))
        }
        Some(SQLITE_CONSTRAINT_FOREIGNKEY) => {
            StoreError::Refused("it belongs to something that does not exist".into())
        }
        _ => StoreError::Control(error.to_string()),
    }
}

/// Why a database could not be opened.
#[derive(Debug)]
enum Unopened {
    UnknownVersion(i64),
    Io(io::Error),
}

impl From<rusqlite::Error> for Unopened {
    fn from(error: rusqlite::Error) -> Unopened {
        Unopened::Io(io::Error::other(error))
    }
}

/// Whether other programs, such as a backup, may read the file while it is open. SQLite needs a small file of shared memory for that, which on a full disk it cannot make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locking {
    Shared,
    Exclusive,
}

fn open_file(dir: &Path, path: &Path, locking: Locking) -> Result<Connection, Unopened> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite would make it as wide as the umask lets it; the write-ahead log and its index get the mode of the file.
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Unopened::Io(error)),
        _ => {}
    }
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    if locking == Locking::Exclusive {
        tracing::warn!("the disk is full; no other program can read the control data until the next start");
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    // Before anything is written: a file of a newer version stays as it is.
    let version = known_version(&db)?;
    set_pragmas(&db, "wal")?;
    migrate(&mut db, version)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Unopened::Io)?;
    Ok(db)
}

fn open_in_memory() -> Result<Connection, Unopened> {
    let mut db = Connection::open_in_memory()?;
    set_pragmas(&db, "memory")?;
    migrate(&mut db, 0)?;
    Ok(db)
}

/// Sets what durability and integrity rest on, and looks whether it is so: SQLite ignores what it does not know or cannot do.
fn set_pragmas(db: &Connection, journal_mode: &str) -> Result<(), Unopened> {
    db.execute_batch(&format!(
        "PRAGMA journal_mode = {journal_mode};
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA wal_autocheckpoint = 0;"
    ))?;
    check_pragma(db, "journal_mode", &journal_mode.to_owned())?;
    for (pragma, wanted) in [
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("cell_size_check", 1),
        ("trusted_schema", 0),
        ("wal_autocheckpoint", 0),
    ] {
        check_pragma::<i64>(db, pragma, &wanted)?;
    }
    Ok(())
}

fn check_pragma<T: FromSql + PartialEq + std::fmt::Debug>(
    db: &Connection,
    pragma: &str,
    wanted: &T,
) -> Result<(), Unopened> {
    let found: T = db.pragma_query_value(None, pragma, |row| row.get(0))?;
    if found == *wanted {
        return Ok(());
    }
    Err(Unopened::Io(io::Error::other(format!(
        "SQLite has {pragma} at {found:?} where {wanted:?} is needed"
    ))))
}

/// How many migrations the file has seen.
fn known_version(db: &Connection) -> Result<usize, Unopened> {
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match usize::try_from(version) {
        Ok(known) if known <= MIGRATIONS.len() => Ok(known),
        _ => Err(Unopened::UnknownVersion(version)),
    }
}

fn migrate(db: &mut Connection, version: usize) -> rusqlite::Result<()> {
    for (number, migration) in (1i64..).zip(MIGRATIONS).skip(version) {
        transact(db, |db| {
            db.execute_batch(migration)?;
            db.pragma_update(None, "user_version", number)
        })?;
    }
    Ok(())
}

// ---- Tenants ------------------------------------------------------------------------------------------------------

const TENANTS: &str = "SELECT id, name, plan, contact_email, trial_ends_at_ms, billing_active, rate_limit_rps, created_at_ms FROM tenants";

fn create_first(db: &Connection, first: FirstRun) -> rusqlite::Result<bool> {
    if !tenants(db, ListPage { after: None, limit: 1 })?.is_empty() {
        return Ok(false);
    }
    let FirstRun { tenant, project, keys, owner } = first;
    create_tenant(db, tenant)?;
    let belongs = "the project is of this tenant, the keys are of this project";
    create_project(db, &project)?.expect(belongs);
    for key in &keys {
        create_key(db, key)?.expect(belongs);
    }
    create_user(db, owner)?.ok().flatten().expect("the first user has an address that nobody has");
    Ok(true)
}

fn create_tenant(db: &Connection, new: NewTenant) -> rusqlite::Result<Tenant> {
    let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new;
    let tenant = Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms };
    run(
        db,
        "INSERT INTO tenants (id, name, plan, contact_email, trial_ends_at_ms, billing_active, created_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            id.0.0,
            tenant.name,
            tenant.plan,
            tenant.contact_email,
            tenant.billing.trial_ends_at_ms.map(Ms),
            tenant.billing.billing_active,
            Ms(created_at_ms)
        ],
    )?;
    Ok(tenant)
}

fn update_tenant(db: &Connection, id: TenantId, change: TenantChange) -> rusqlite::Result<Option<Tenant>> {
    let Some(mut tenant) = tenant(db, id)? else { return Ok(None) };
    change.apply(&mut tenant);
    run(
        db,
        "UPDATE tenants SET name = ?2, plan = ?3, contact_email = ?4, trial_ends_at_ms = ?5, billing_active = ?6, rate_limit_rps = ?7
         WHERE id = ?1",
        params![
            id.0.0,
            tenant.name,
            tenant.plan,
            tenant.contact_email,
            tenant.billing.trial_ends_at_ms.map(Ms),
            tenant.billing.billing_active,
            tenant.rate_limit_rps
        ],
    )?;
    Ok(Some(tenant))
}

fn tenant(db: &Connection, id: TenantId) -> rusqlite::Result<Option<Tenant>> {
    one(db, &format!("{TENANTS} WHERE id = ?1"), [id.0.0], read_tenant)
}

fn tenants(db: &Connection, page: ListPage) -> rusqlite::Result<Vec<Tenant>> {
    all(db, &paged(TENANTS, "tenants", "true"), params![page.after(), page.limit()], read_tenant)
}

fn read_tenant(row: &Row<'_>) -> rusqlite::Result<Tenant> {
    Ok(Tenant {
        id: TenantId(Uuid(row.get("id")?)),
        name: row.get("name")?,
        plan: row.get("plan")?,
        contact_email: row.get("contact_email")?,
        billing: Billing {
            trial_ends_at_ms: optional_ms(row, "trial_ends_at_ms")?,
            billing_active: row.get("billing_active")?,
        },
        rate_limit_rps: row.get("rate_limit_rps")?,
        created_at_ms: ms(row, "created_at_ms")?,
    })
}

// ---- Projects -----------------------------------------------------------------------------------------------------

const PROJECTS: &str = "SELECT id, tenant_id, name, rate_limit_rps, created_at_ms,
    (SELECT ifnull(sum(DISTINCT 1 << framework), 0) FROM project_frameworks
     WHERE project_id = projects.id AND disabled_at_ms IS NULL) AS frameworks,
    (SELECT ifnull(sum(DISTINCT 1 << framework), 0) FROM project_frameworks
     WHERE project_id = projects.id) AS frameworks_ever
    FROM projects";

fn create_project(db: &Connection, new: &NewProject) -> rusqlite::Result<Option<Project>> {
    if tenant(db, new.tenant_id)?.is_none() {
        return Ok(None);
    }
    run(
        db,
        "INSERT INTO projects (id, tenant_id, name, created_at_ms) VALUES (?1, ?2, ?3, ?4)",
        params![new.id.0.0, new.tenant_id.0.0, new.name, Ms(new.created_at_ms)],
    )?;
    set_frameworks(db, new.id, FrameworkSet::NONE, new.frameworks, new.created_at_ms)?;
    project(db, new.id)
}

fn update_project(
    db: &Connection,
    id: ProjectId,
    change: ProjectChange,
) -> rusqlite::Result<Option<Project>> {
    let Some(mut project) = project(db, id)? else { return Ok(None) };
    let (before, now_ms) = (project.frameworks, change.now_ms);
    change.apply(&mut project);
    run(
        db,
        "UPDATE projects SET name = ?2, rate_limit_rps = ?3 WHERE id = ?1",
        params![id.0.0, project.name, project.rate_limit_rps],
    )?;
    set_frameworks(db, id, before, project.frameworks, now_ms)?;
    Ok(Some(project))
}

/// Writes the history on: a new row for what was enabled, the end of its row for what was disabled.
fn set_frameworks(
    db: &Connection,
    id: ProjectId,
    before: FrameworkSet,
    after: FrameworkSet,
    now_ms: u64,
) -> rusqlite::Result<()> {
    for framework in 0..32u8 {
        let sql = match (before.contains(framework.into()), after.contains(framework.into())) {
            (false, true) => {
                "INSERT INTO project_frameworks (project_id, framework, enabled_at_ms) VALUES (?1, ?2, ?3)"
            }
            (true, false) => {
                "UPDATE project_frameworks SET disabled_at_ms = ?3
                 WHERE project_id = ?1 AND framework = ?2 AND disabled_at_ms IS NULL"
            }
            (false, false) | (true, true) => continue,
        };
        run(db, sql, params![id.0.0, framework, Ms(now_ms)])?;
    }
    Ok(())
}

fn project(db: &Connection, id: ProjectId) -> rusqlite::Result<Option<Project>> {
    one(db, &format!("{PROJECTS} WHERE id = ?1"), [id.0.0], read_project)
}

fn projects(db: &Connection, tenant_id: TenantId, page: ListPage) -> rusqlite::Result<Vec<Project>> {
    let sql = paged(PROJECTS, "projects", "tenant_id = ?3");
    all(db, &sql, params![page.after(), page.limit(), tenant_id.0.0], read_project)
}

fn read_project(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: ProjectId(Uuid(row.get("id")?)),
        tenant_id: TenantId(Uuid(row.get("tenant_id")?)),
        name: row.get("name")?,
        frameworks: FrameworkSet::from_bits(row.get("frameworks")?),
        frameworks_ever: FrameworkSet::from_bits(row.get("frameworks_ever")?),
        rate_limit_rps: row.get("rate_limit_rps")?,
        created_at_ms: ms(row, "created_at_ms")?,
    })
}

// ---- Keys ---------------------------------------------------------------------------------------------------------

const KEYS: &str = "SELECT id, project_id, name, mode, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, created_at_ms FROM keys";

fn create_key(db: &Connection, new: &NewKey) -> rusqlite::Result<Option<ApiKey>> {
    if project(db, new.project_id)?.is_none() {
        return Ok(None);
    }
    run(
        db,
        "INSERT INTO keys (id, project_id, name, mode, digest, prefix, expires_at_ms, created_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            new.id.0.0,
            new.project_id.0.0,
            new.name,
            new.mode.as_str(),
            new.digest.0,
            new.prefix,
            new.expires_at_ms.map(Ms),
            Ms(new.created_at_ms)
        ],
    )?;
    key(db, new.id)
}

fn revoke_key(db: &Connection, id: KeyId, now_ms: u64) -> rusqlite::Result<Option<ApiKey>> {
    run(
        db,
        "UPDATE keys SET revoked_at_ms = ?2 WHERE id = ?1 AND revoked_at_ms IS NULL",
        params![id.0.0, Ms(now_ms)],
    )?;
    key(db, id)
}

fn key(db: &Connection, id: KeyId) -> rusqlite::Result<Option<ApiKey>> {
    one(db, &format!("{KEYS} WHERE id = ?1"), [id.0.0], read_key)
}

fn keys(db: &Connection, project_id: ProjectId, page: ListPage) -> rusqlite::Result<Vec<ApiKey>> {
    let sql = paged(KEYS, "keys", "project_id = ?3");
    all(db, &sql, params![page.after(), page.limit(), project_id.0.0], read_key)
}

fn access(db: &Connection, key_digest: Hash) -> rusqlite::Result<Option<Access>> {
    let Some(key) = one(db, &format!("{KEYS} WHERE digest = ?1"), [key_digest.0], read_key)? else {
        return Ok(None);
    };
    let Some(project) = project(db, key.project_id)? else { return Ok(None) };
    let Some(tenant) = tenant(db, project.tenant_id)? else { return Ok(None) };
    let actions = actions(db, tenant.id)?;
    let tenant_frameworks = one(
        db,
        "SELECT ifnull(sum(DISTINCT 1 << framework), 0)
         FROM projects JOIN project_frameworks ON project_id = projects.id
         WHERE tenant_id = ?1 AND disabled_at_ms IS NULL",
        [tenant.id.0.0],
        |row| row.get(0),
    )?;
    let tenant_frameworks = FrameworkSet::from_bits(tenant_frameworks.unwrap_or_default());
    Ok(Some(Access { key, digest: key_digest, project, tenant, actions, tenant_frameworks }))
}

fn keys_used(db: &Connection, used: &[(KeyId, u64)]) -> rusqlite::Result<()> {
    for (id, used_at_ms) in used {
        run(
            db,
            "UPDATE keys SET last_used_at_ms = max(ifnull(last_used_at_ms, 0), ?2) WHERE id = ?1",
            params![id.0.0, Ms(*used_at_ms)],
        )?;
    }
    Ok(())
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: KeyId(Uuid(row.get("id")?)),
        project_id: ProjectId(Uuid(row.get("project_id")?)),
        name: row.get("name")?,
        mode: word(row, "mode", &Mode::ALL, Mode::as_str)?,
        prefix: row.get("prefix")?,
        expires_at_ms: optional_ms(row, "expires_at_ms")?,
        revoked_at_ms: optional_ms(row, "revoked_at_ms")?,
        last_used_at_ms: optional_ms(row, "last_used_at_ms")?,
        created_at_ms: ms(row, "created_at_ms")?,
    })
}

// ---- Actions ------------------------------------------------------------------------------------------------------

fn create_action(
    db: &Connection,
    tenant_id: TenantId,
    action: CustomAction,
) -> rusqlite::Result<Result<Option<CustomAction>, AccountError>> {
    if tenant(db, tenant_id)?.is_none() {
        return Ok(Ok(None));
    }
    let inserted = run(
        db,
        "INSERT INTO actions (tenant_id, action, description, category, severity, required_fields, optional_fields)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (tenant_id, action) DO NOTHING",
        params![
            tenant_id.0.0,
            action.action,
            action.description,
            action.category,
            action.severity,
            Names(action.required_fields.clone()),
            Names(action.optional_fields.clone())
        ],
    )?;
    Ok(if inserted == 0 { Err(AccountError::AlreadyExists) } else { Ok(Some(action)) })
}

fn actions(db: &Connection, tenant_id: TenantId) -> rusqlite::Result<Vec<CustomAction>> {
    let sql = "SELECT action, description, category, severity, required_fields, optional_fields FROM actions
               WHERE tenant_id = ?1 ORDER BY action";
    all(db, sql, [tenant_id.0.0], |row| {
        Ok(CustomAction {
            action: row.get("action")?,
            description: row.get("description")?,
            category: row.get("category")?,
            severity: row.get("severity")?,
            required_fields: row.get::<_, Names>("required_fields")?.0,
            optional_fields: row.get::<_, Names>("optional_fields")?.0,
        })
    })
}

// ---- Users and sessions -------------------------------------------------------------------------------------------

const USERS: &str = "SELECT id, tenant_id, email, password_hash, role, created_at_ms FROM users";

fn create_user(db: &Connection, new: NewUser) -> rusqlite::Result<Result<Option<User>, AccountError>> {
    if tenant(db, new.tenant_id)?.is_none() {
        return Ok(Ok(None));
    }
    let NewUser { id, tenant_id, email, password_hash, role, created_at_ms } = new;
    let inserted = run(
        db,
        "INSERT INTO users (id, tenant_id, email, email_lower, password_hash, role, created_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (email_lower) DO NOTHING",
        params![
            id.0.0,
            tenant_id.0.0,
            email,
            email.to_lowercase(),
            password_hash,
            role.as_str(),
            Ms(created_at_ms)
        ],
    )?;
    if inserted == 0 {
        return Ok(Err(AccountError::AlreadyExists));
    }
    Ok(Ok(Some(User { id, tenant_id, email, role, created_at_ms })))
}

fn users(db: &Connection, tenant_id: TenantId, page: ListPage) -> rusqlite::Result<Vec<User>> {
    let sql = paged(USERS, "users", "tenant_id = ?3");
    all(db, &sql, params![page.after(), page.limit(), tenant_id.0.0], read_user)
}

fn user_by_email(db: &Connection, email: &str) -> rusqlite::Result<Option<(User, String)>> {
    one(db, &format!("{USERS} WHERE email_lower = ?1"), [email.to_lowercase()], |row| {
        Ok((read_user(row)?, row.get("password_hash")?))
    })
}

fn read_user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        id: UserId(Uuid(row.get("id")?)),
        tenant_id: TenantId(Uuid(row.get("tenant_id")?)),
        email: row.get("email")?,
        role: word(row, "role", &Role::ALL, Role::as_str)?,
        created_at_ms: ms(row, "created_at_ms")?,
    })
}

fn create_session(db: &Connection, session: &Session) -> rusqlite::Result<()> {
    run(db, "DELETE FROM sessions WHERE expires_at_ms <= ?1", [Ms(session.created_at_ms)])?;
    insert_session(db, session)
}

fn insert_session(db: &Connection, session: &Session) -> rusqlite::Result<()> {
    run(
        db,
        "INSERT INTO sessions (token_digest, user_id, created_at_ms, expires_at_ms) VALUES (?1, ?2, ?3, ?4)",
        params![
            session.token_digest.0,
            session.user_id.0.0,
            Ms(session.created_at_ms),
            Ms(session.expires_at_ms)
        ],
    )?;
    Ok(())
}

fn session(db: &Connection, token_digest: Hash, now_ms: u64) -> rusqlite::Result<Option<Session>> {
    let sql = "SELECT user_id, created_at_ms, expires_at_ms FROM sessions
               WHERE token_digest = ?1 AND expires_at_ms > ?2";
    one(db, sql, params![token_digest.0, Ms(now_ms)], |row| {
        Ok(Session {
            token_digest,
            user_id: UserId(Uuid(row.get("user_id")?)),
            created_at_ms: ms(row, "created_at_ms")?,
            expires_at_ms: ms(row, "expires_at_ms")?,
        })
    })
}

fn end_session(db: &Connection, token_digest: Hash) -> rusqlite::Result<()> {
    run(db, "DELETE FROM sessions WHERE token_digest = ?1", [token_digest.0])?;
    Ok(())
}

// ---- The outbox ---------------------------------------------------------------------------------------------------

fn enqueue_mail(db: &Connection, mail: &NewMail) -> rusqlite::Result<bool> {
    let inserted = run(
        db,
        "INSERT INTO mails (tenant_id, month, percent, recipient, subject, body, created_at_ms, due_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT (tenant_id, month, percent) DO NOTHING",
        params![
            mail.key.tenant_id.0.0,
            mail.key.month.0,
            mail.key.percent,
            mail.to,
            mail.subject,
            mail.body,
            Ms(mail.created_at_ms)
        ],
    )?;
    Ok(inserted > 0)
}

fn due_mails(db: &Connection, now_ms: u64, limit: usize) -> rusqlite::Result<Vec<Mail>> {
    let sql = "SELECT id, recipient, subject, body, attempts FROM mails
               WHERE sent_at_ms IS NULL AND due_at_ms <= ?1 ORDER BY id LIMIT ?2";
    all(db, sql, params![Ms(now_ms), saturated(limit)], |row| {
        Ok(Mail {
            id: row.get("id")?,
            to: row.get("recipient")?,
            subject: row.get("subject")?,
            body: row.get("body")?,
            attempts: row.get("attempts")?,
        })
    })
}

fn claim_mail(db: &Connection, id: i64, now_ms: u64, until_ms: u64) -> rusqlite::Result<bool> {
    let sql = "UPDATE mails SET due_at_ms = ?3 WHERE id = ?1 AND sent_at_ms IS NULL AND due_at_ms <= ?2";
    Ok(run(db, sql, params![id, Ms(now_ms), Ms(until_ms)])? > 0)
}

fn mail_attempted(db: &Connection, id: i64, outcome: &MailOutcome) -> rusqlite::Result<()> {
    match outcome {
        MailOutcome::Sent { now_ms } => {
            run(
                db,
                "UPDATE mails SET attempts = attempts + 1, sent_at_ms = ?2 WHERE id = ?1 AND sent_at_ms IS NULL",
                params![id, Ms(*now_ms)],
            )?;
            run(
                db,
                "UPDATE mails SET recipient = NULL, subject = NULL, body = NULL, last_failure = NULL
                 WHERE sent_at_ms IS NOT NULL AND body IS NOT NULL AND sent_at_ms <= ?1",
                [Ms(now_ms.saturating_sub(MAIL_KEPT_MS))],
            )?;
        }
        MailOutcome::Failed { retry_at_ms, cause } => {
            run(
                db,
                "UPDATE mails SET attempts = attempts + 1, due_at_ms = ?2, last_failure = ?3
                 WHERE id = ?1 AND sent_at_ms IS NULL",
                params![id, Ms(*retry_at_ms), cause],
            )?;
        }
    }
    Ok(())
}

fn pending_mails(db: &Connection) -> rusqlite::Result<u64> {
    let count = one(db, "SELECT count(*) FROM mails WHERE sent_at_ms IS NULL", [], |row| row.get(0))?;
    Ok(count.map_or(0, |Ms(count)| count))
}

// ---- Rows and values ----------------------------------------------------------------------------------------------

fn run(db: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
    db.prepare_cached(sql)?.execute(params)
}

fn one<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    db.prepare_cached(sql)?.query_row(params, read).optional()
}

fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    db.prepare_cached(sql)?.query_map(params, read)?.collect()
}

/// A page of a list: `?1` is the id that it comes after and `?2` its length. Behind an id that is not in the list there is nothing.
fn paged(select: &str, table: &str, scope: &str) -> String {
    format!(
        "{select} WHERE {scope} AND number > iif(?1 IS NULL, 0, (SELECT number FROM {table} WHERE id = ?1 AND {scope}))
         ORDER BY number LIMIT ?2"
    )
}

impl ListPage {
    fn after(self) -> Option<[u8; 16]> {
        self.after.map(|id| id.0)
    }

    fn limit(self) -> i64 {
        saturated(self.limit)
    }
}

fn saturated(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A time, or a count. SQLite's integers are signed; no time that can be written down reaches the upper half.
struct Ms(u64);

impl ToSql for Ms {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Ms {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Ms> {
        let value = value.as_i64()?;
        u64::try_from(value).map(Ms).map_err(|_| FromSqlError::OutOfRange(value))
    }
}

fn ms(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    Ok(row.get::<_, Ms>(column)?.0)
}

fn optional_ms(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<Ms>>(column)?.map(|ms| ms.0))
}

/// A list of names, kept as a JSON array.
struct Names(Vec<String>);

impl ToSql for Names {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(serde_json::to_string(&self.0).expect("strings are always JSON").into())
    }
}

impl FromSql for Names {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Names> {
        serde_json::from_str(value.as_str()?).map(Names).map_err(FromSqlError::other)
    }
}

/// One of a few words.
fn word<T: Copy>(
    row: &Row<'_>,
    column: &str,
    known: &[T],
    as_str: fn(T) -> &'static str,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    known.iter().copied().find(|value| as_str(*value) == text).ok_or_else(|| {
        let cause = format!("{text:?} is not a known {column}");
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, cause.into())
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn disk() -> Arc<dyn Disk> {
        Arc::new(super::super::disk::RealDisk)
    }

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    fn count_tenants(control: &Control) -> Result<i64, StoreError> {
        control.read(|db| db.query_row("SELECT count(*) FROM tenants", [], |row| row.get(0)))
    }

    fn insert_tenant(db: &Connection, id: u8) -> rusqlite::Result<Tenant> {
        let new = NewTenant {
            id: TenantId(Uuid([id; 16])),
            name: "n".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 1,
        };
        create_tenant(db, new)
    }

    #[test]
    fn every_change_is_synced_and_the_log_is_a_write_ahead_log() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::open(Some(dir.path()), &disk()).unwrap();
        let pragmas = control.read(|db| {
            let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let journal_mode: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            Ok((journal_mode, number("synchronous")?, number("foreign_keys")?, number("cell_size_check")?))
        });
        assert_eq!(pragmas, Ok(("wal".to_owned(), 2, 1, 1)));
    }

    #[test]
    fn a_database_that_does_not_take_a_pragma_is_not_opened() {
        // In memory there is no write-ahead log, whatever one asks for.
        let refused = set_pragmas(&Connection::open_in_memory().unwrap(), "wal");
        let Err(Unopened::Io(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error.to_string(), "SQLite has journal_mode at \"memory\" where \"wal\" is needed");
    }

    #[test]
    fn a_change_that_fails_leaves_nothing_behind() {
        let control = Control::open(None, &disk()).unwrap();
        let failed = control.change(|db| {
            insert_tenant(db, 1)?;
            insert_tenant(db, 1)
        });
        assert!(matches!(failed, Err(StoreError::Refused(_))), "{failed:?}");
        assert_eq!(count_tenants(&control), Ok(0));
    }

    #[test]
    fn after_a_failed_write_nothing_is_changed_until_the_next_start_and_reads_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::open(Some(dir.path()), &disk()).unwrap();
        control.change(|db| insert_tenant(db, 1)).unwrap();
        let failed = control.change(|db| {
            insert_tenant(db, 2)?;
            Err::<(), _>(failure(ffi::SQLITE_IOERR_FSYNC))
        });
        assert!(matches!(failed, Err(StoreError::Control(_))), "{failed:?}");
        let refused = control.change(|db| insert_tenant(db, 3));
        let Err(StoreError::Control(cause)) = refused else { panic!("{refused:?}") };
        assert!(cause.contains("until the store is started again"), "{cause}");
        assert_eq!(count_tenants(&control), Ok(1));
        drop(control);
        assert!(dir.path().join("control.db-wal").metadata().unwrap().len() > 0, "the log is kept");
        let control = Control::open(Some(dir.path()), &disk()).unwrap();
        control.change(|db| insert_tenant(db, 3)).unwrap();
        assert_eq!(count_tenants(&control), Ok(2));
    }

    #[test]
    fn a_full_disk_and_a_locked_file_stop_one_change_only() {
        let control = Control::open(None, &disk()).unwrap();
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY] {
            let failed = control.change(|_| Err::<(), _>(failure(code)));
            assert!(matches!(failed, Err(StoreError::Control(_))), "{failed:?}");
        }
        control.change(|db| insert_tenant(db, 1)).unwrap();
        assert_eq!(count_tenants(&control), Ok(1));
    }

    #[test]
    fn the_write_ahead_log_does_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::open(Some(dir.path()), &disk()).unwrap();
        control.change(|db| insert_tenant(db, 1)).unwrap();
        for n in 0..100 {
            // Another text each time: pages that stay the same are not written.
            let text = format!("{n:02}").repeat(128 << 10);
            control.change(|db| run(db, "UPDATE tenants SET name = ?1", [&text])).unwrap();
        }
        let log_bytes = dir.path().join("control.db-wal").metadata().unwrap().len();
        assert!(log_bytes < 8 << 20, "{log_bytes}");
    }
}
