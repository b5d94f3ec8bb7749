//! The driver for SQLite: one file in the data directory, or a database in memory.
//!
//! Each change is one transaction in the write-ahead log of SQLite, synced before its answer
//! (`synchronous=FULL`).

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{FromSql, ToSql, ToSqlOutput, ValueRef};
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use sealog_core::id::ProjectId;
use sealog_store::StoreError;
use sealog_store::embedded::{Directory, FILE_MODE};
use sealog_store::sync::lock;

use crate::db::{Db, DbError, Room, Row, Schema, Value, all, damaged, translate};
use crate::error::OpenError;
use crate::reserve::Reserve;

/// How long to wait for another program that has the file locked, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The write-ahead log is copied into the file when it has this many pages (4 MiB).
const CHECKPOINT_PAGES: i32 = 1024;

/// Parsed statements that stay in memory, a few kB each.
const STATEMENTS_KEPT: usize = 64;

/// Of the header of the file.
const HEADER_BYTES: u64 = 100;

/// The open file. One connection is enough: people change little, and what requests ask for is cached above.
#[derive(Debug)]
pub(crate) struct File {
    inner: Mutex<Inner>,
    /// Nothing for a database in memory.
    directory: Option<Directory>,
    /// The file itself; only a name for a database in memory.
    path: PathBuf,
    locking: Locking,
}

#[derive(Debug)]
struct Inner {
    db: Connection,
    /// Why nothing may be changed any more.
    failed: Option<String>,
    /// Nothing for a database in memory.
    reserve: Option<Reserve>,
}

impl File {
    pub(crate) fn in_memory(schema: &Schema) -> Result<File, OpenError> {
        let db = open_in_memory(schema).map_err(|error| error.of(schema, PathBuf::from(schema.name)))?;
        Ok(File {
            inner: Mutex::new(Inner { db, failed: None, reserve: None }),
            directory: None,
            path: PathBuf::from(schema.name),
            locking: Locking::Exclusive,
        })
    }

    /// A copy that this process has for itself, brought up to the schema.
    pub(crate) fn of_copy(path: &Path, schema: &Schema) -> Result<File, OpenError> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let db = open_file(dir, path, schema, Locking::Shared);
        let db = db.map_err(|error| error.of(schema, path.to_owned()))?;
        let inner = Mutex::new(Inner { db, failed: None, reserve: None });
        Ok(File { inner, directory: None, path: path.to_owned(), locking: Locking::Shared })
    }

    /// In `dir`, which is the directory or a folder in it.
    pub(crate) fn open(directory: &Directory, dir: &Path, schema: &Schema) -> Result<File, OpenError> {
        let path = dir.join(format!("{}.db", schema.name));
        let mut reserve = Reserve::open(Arc::clone(directory.disk()), dir.to_owned(), schema.name);
        let mut locking = Locking::Shared;
        let mut db = open_file(dir, &path, schema, locking);
        // Opening takes room, too, and a server that does not start serves no reads and revokes nothing.
        let is_full = match &db {
            Err(Unopened::Io(error)) => reserve.is_low() || error.kind() == io::ErrorKind::QuotaExceeded,
            _ => false,
        };
        if is_full {
            locking = if reserve.release_for_refused() { Locking::Shared } else { Locking::Exclusive };
            db = open_file(dir, &path, schema, locking);
        }
        let db = db.map_err(|error| error.of(schema, path.clone()))?;
        reserve.keep();
        let inner = Mutex::new(Inner { db, failed: None, reserve: Some(reserve) });
        Ok(File { inner, directory: Some(directory.clone()), path, locking })
    }

    pub(crate) fn read<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, DbError> {
        act(&mut Statements(&self.lock().db))
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.lock().reserve.as_ref().is_none_or(|reserve| reserve.has_room_for(bytes))
    }

    /// Why nothing may be changed any more. Does not wait for a change that is being made: event loops ask.
    pub(crate) fn failure(&self) -> Option<String> {
        let lost = self.directory.as_ref().and_then(Directory::lost).map(str::to_owned);
        lost.or_else(|| match self.inner.try_lock() {
            Ok(inner) => inner.failed.clone(),
            Err(TryLockError::Poisoned(inner)) => inner.into_inner().failed.clone(),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// One transaction: all of it is durable after `Ok`.
    ///
    /// A failed write or sync ends changes until the next start, as it does for events. The kernel may have
    /// dropped what it could not write, so a sync that succeeds later would prove nothing. A full disk and a
    /// file that another program has locked are not of that kind.
    pub(crate) fn change<T>(
        &self,
        room: Room,
        act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut inner = self.lock();
        let Inner { db, failed, reserve } = &mut *inner;
        // Set when the file under the directory's path is not this one any more.
        let lost = self.directory.as_ref().and_then(Directory::lost);
        if let Some(cause) = failed.as_deref().or(lost) {
            return Err(DbError::Failed(format!(
                "an earlier change failed ({cause}); control data is read-only until the server restarts"
            )));
        }
        if let Some(reserve) = &mut *reserve {
            match room {
                Room::Ordinary if !reserve.is_for_all() => return Err(DbError::Store(StoreError::NoRoom)),
                Room::Ordinary | Room::InPlace => {}
                Room::Reserve => drop(reserve.release_if_low()),
            }
        }
        // SQLite has one writer at a time, so every change has its place in one order.
        let made = match (room, &mut *reserve) {
            (Room::Reserve, Some(reserve)) => transact_with(reserve, db, act),
            _ => transact(db, act),
        };
        // What is in the write-ahead log is durable: the caller has its answer whether or not it could be
        // copied into the file. On a full disk it is copied at once, so that the next change begins it anew
        // and it takes no more room than it has.
        let low = reserve.as_ref().is_some_and(Reserve::is_low);
        let pages_max = if low { 1 } else { CHECKPOINT_PAGES };
        let copied = if made.is_ok() { checkpoint(db, pages_max) } else { Ok(()) };
        let errors = [made.as_ref().err(), copied.as_ref().err()];
        let is_final = |error: &&DbError| matches!(error, DbError::Final(_));
        if let Some(DbError::Final(cause)) = errors.into_iter().flatten().find(is_final) {
            tracing::error!(
                cause,
                "failed to write or sync control data; it is read-only until the server restarts"
            );
            *failed = Some(cause.clone());
            // Closing must not copy the write-ahead log and remove it: it is what the next start begins with.
            let kept = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            kept.expect("this only sets a flag in memory");
        }
        if let Some(reserve) = reserve {
            reserve.keep();
        }
        made
    }

    /// Copies what is committed into a new file, by a connection of its own: whoever reads or changes goes on
    /// meanwhile. The projects that the copy knows.
    pub(crate) fn copy_to(&self, to: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
        let from = self.directory.as_ref().map(|_| self.path.clone());
        let bytes = from.as_ref().and_then(|from| from.metadata().ok()).map_or(0, |file| file.len());
        // A copy beside the logs must not take the room of events. On another disk it takes none of theirs: a
        // store whose disk is full is the one that a backup is wanted of.
        let is_beside = from.as_deref().is_some_and(|from| device(from) == to.parent().and_then(device));
        if is_beside && !self.has_room(bytes) {
            return Err(DbError::Failed(format!(
                "the disk has no room for {bytes} bytes beside what events need"
            )));
        }
        // A file that nobody else can read is read by the connection that has it; changes wait meanwhile.
        match from.filter(|_| self.locking == Locking::Shared) {
            Some(from) => copy_file(&from, to),
            None => copy_by(&self.lock().db, to),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked here has rolled its transaction back on the way out.
        lock(&self.inner)
    }
}

/// Copies what is committed in a file that another process may have open. The projects that the copy knows.
pub(crate) fn copy_file(from: &Path, to: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
    copy_any_file(from, to)?;
    projects_of(to)
}

/// As [`copy_file`], of any schema.
pub(crate) fn copy_any_file(from: &Path, to: &Path) -> Result<(), DbError> {
    let db = Connection::open_with_flags(
        from,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    // Readers that share a file need an index beside it, for which a full disk may have no room. A file that
    // no server has open is read alone, without it.
    if db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).is_err() {
        drop(db);
        return copy_alone(from, to);
    }
    copy_all(&db, to)
}

/// Fails while another process has the file open.
fn copy_alone(from: &Path, to: &Path) -> Result<(), DbError> {
    let db = Connection::open_with_flags(
        from,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    copy_all(&db, to)
}

fn copy_by(db: &Connection, to: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
    copy_all(db, to)?;
    projects_of(to)
}

/// Of a copy that was just made. One that cannot be read is removed.
fn projects_of(copy: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
    projects_of_copy(copy).inspect_err(|_| drop(fs::remove_file(copy)))
}

fn copy_all(db: &Connection, to: &Path) -> Result<(), DbError> {
    let name = to.to_str().ok_or_else(|| DbError::Failed("the path is no text".into()))?;
    // SQLite takes a file that is empty, and would make one as wide as the umask lets it.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(to)
        .map_err(|error| DbError::Failed(format!("{}: {error}", to.display())))?;
    // In its own words: it may be another disk than that of the store that is full.
    let copied =
        db.execute("VACUUM INTO ?1", [name]).map(drop).map_err(|error| DbError::Failed(error.to_string()));
    if copied.is_err() {
        // Part of a copy is of no use to anyone, and on a full disk it takes the room of what is.
        let _ = fs::remove_file(to);
    }
    copied
}

/// The file system that a path is on.
fn device(path: &Path) -> Option<u64> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    fs::metadata(path).map(|found| found.dev()).ok()
}

/// The projects that a copy knows.
pub(crate) fn projects_of_copy(path: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(path, flags)?;
    let sql = "SELECT id FROM {projects} UNION ALL SELECT project_id FROM {system_projects}";
    all(&mut Statements(&copy), sql, &[], |row| row.get("id")).map(BTreeSet::from_iter)
}

/// Projects and keys of a copy, in words for the operator.
pub(crate) fn names_of_copy(path: &Path) -> Result<BTreeSet<String>, DbError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(path, flags)?;
    let db = &mut Statements(&copy);
    let projects = all(db, "SELECT id, name FROM {projects}", &[], |row| {
        Ok(format!("project {} ({})", row.get::<ProjectId>("id")?, row.get::<String>("name")?))
    })?;
    let reserved = all(db, "SELECT project_id FROM {system_projects}", &[], |row| {
        Ok(format!("project {} (a system chain)", row.get::<ProjectId>("project_id")?))
    })?;
    let keys = all(db, "SELECT prefix, name FROM {keys}", &[], |row| {
        Ok(format!("key {}… ({})", row.get::<String>("prefix")?, row.get::<String>("name")?))
    })?;
    Ok(projects.into_iter().chain(reserved).chain(keys).collect())
}

fn transact<T>(
    db: &mut Connection,
    act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = act(&mut Statements(&transaction))?;
    transaction.commit()?;
    Ok(value)
}

/// As [`transact`]. Where the disk is full behind the look at it, the same statements are made once more with
/// what is reserved: nobody else has changed anything in between, so they do the same.
fn transact_with<T>(
    reserve: &mut Reserve,
    db: &mut Connection,
    act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>,
) -> Result<T, DbError> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut noted = Noted { statements: Statements(&transaction), made: Vec::new() };
    let value = act(&mut noted)?;
    let made = noted.made;
    // Changes are small: SQLite writes nothing of them before this.
    match transaction.commit().map_err(DbError::from) {
        Err(DbError::Store(StoreError::NoRoom)) if reserve.release_for_refused() => {}
        committed => return committed.map(|()| value),
    }
    transact(db, |db| made.iter().try_for_each(|(sql, params)| db.execute(sql, params).map(drop)))?;
    Ok(value)
}

/// SQLite knows a full disk (`ENOSPC`) and no quota: a write that a quota refuses is an I/O error to it, as
/// on a broken disk. The last error of the system is of that write, if this is asked right behind it.
fn is_over_quota() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::QuotaExceeded
}

/// SQLite would do this by itself, but says nothing when it fails.
fn checkpoint(db: &Connection, pages_max: i32) -> Result<(), DbError> {
    const ALL: Option<&str> = None;
    let (pages, _) = db.wal_checkpoint_v2(ALL, CheckpointMode::NOOP)?;
    if pages >= pages_max {
        db.wal_checkpoint_v2(ALL, CheckpointMode::PASSIVE)?;
    }
    Ok(())
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> DbError {
        use rusqlite::ffi::{
            SQLITE_CONSTRAINT_FOREIGNKEY, SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE,
            SQLITE_IOERR_WRITE,
        };
        match error.sqlite_error().map(|error| (error.code, error.extended_code)) {
            Some((_, SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_PRIMARYKEY)) => {
                DbError::Duplicate(error.to_string())
            }
            Some((_, SQLITE_CONSTRAINT_FOREIGNKEY)) => DbError::NoOwner,
            // Whatever the disk has said of its room before.
            Some((ErrorCode::DiskFull, _)) => DbError::Store(StoreError::NoRoom),
            // Not of a sync: what it could not write, the kernel may have dropped.
            Some((_, SQLITE_IOERR_WRITE)) if is_over_quota() => DbError::Store(StoreError::NoRoom),
            Some((ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _)) => {
                DbError::Final(error.to_string())
            }
            _ => DbError::Failed(error.to_string()),
        }
    }
}

// ---- Statements -----------------------------------------------------------------------------------------

struct Statements<'a>(&'a Connection);

impl Db for Statements<'_> {
    fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DbError> {
        let mut statement = self.0.prepare_cached(&translate(sql, None))?;
        Ok(statement.execute(rusqlite::params_from_iter(params))? as u64)
    }

    fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DbError> {
        let mut statement = self.0.prepare_cached(&translate(sql, None))?;
        let columns: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
        let mut found = statement.query(rusqlite::params_from_iter(params))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let values = columns.iter().enumerate().map(|(at, column)| read_value(row.get_ref(at)?, column));
            rows.push(Row::new(Arc::clone(&columns), values.collect::<Result<_, _>>()?));
        }
        Ok(rows)
    }
}

/// Keeps the statements that have changed something.
struct Noted<'a> {
    statements: Statements<'a>,
    made: Vec<(String, Vec<Value>)>,
}

impl Db for Noted<'_> {
    fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DbError> {
        let changed = self.statements.execute(sql, params)?;
        self.made.push((sql.to_owned(), params.to_vec()));
        Ok(changed)
    }

    fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DbError> {
        self.statements.query(sql, params)
    }
}

fn read_value(value: ValueRef<'_>, column: &str) -> Result<Value, DbError> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(damaged(column, &format!("is no text: {error}"))),
        },
        ValueRef::Blob(bytes) => Ok(Value::Bytes(bytes.to_vec())),
        ValueRef::Real(_) => Err(damaged(column, "has a number with a fraction")),
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Bool(value) => ValueRef::Integer((*value).into()),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Uuid(id) => ValueRef::Blob(&id.0),
        }))
    }
}

// ---- Opening --------------------------------------------------------------------------------------------

/// Why a database could not be opened.
#[derive(Debug)]
enum Unopened {
    UnknownVersion(Written),
    Io(io::Error),
}

/// What a file says of itself: how many steps it has seen, and the program that has made the last one.
#[derive(Clone, Copy, Debug)]
struct Written {
    version: i64,
    /// In the field that SQLite keeps for the program of a file; 0 where none has said so.
    program: i64,
}

/// Bits of each of the three numbers of a version.
const NUMBER_BITS: u32 = 10;

impl Written {
    fn by(db: &Connection) -> rusqlite::Result<Written> {
        let pragma = |name| db.pragma_query_value(None, name, |row| row.get(0));
        Ok(Written { version: pragma("user_version")?, program: pragma("application_id")? })
    }

    /// From the header of the file, where nothing else may be opened.
    fn in_header(header: &[u8]) -> Written {
        let number = |from: usize| {
            let bytes = header.get(from..from + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, |bytes| i64::from(i32::from_be_bytes(bytes)))
        };
        Written { version: number(60), program: number(68) }
    }

    fn program(self) -> Option<String> {
        let part = |shift: u32| (self.program >> shift) & ((1 << NUMBER_BITS) - 1);
        let [major, minor, patch] = [2 * NUMBER_BITS, NUMBER_BITS, 0].map(part);
        (self.program > 0).then(|| format!("Sealog {major}.{minor}.{patch}"))
    }

    /// Of this program.
    fn own() -> i64 {
        let numbers = env!("CARGO_PKG_VERSION").split('-').next().unwrap_or_default().split('.');
        numbers.fold(0, |all, number| (all << NUMBER_BITS) | number.parse::<i64>().unwrap_or(0))
    }
}

impl Unopened {
    fn of(self, schema: &Schema, path: PathBuf) -> OpenError {
        match self {
            Unopened::UnknownVersion(written) => OpenError::UnknownVersion {
                found: format!("{}.db version {}", schema.name, written.version),
                program: written.program(),
            },
            Unopened::Io(error) => OpenError::Io { path, error },
        }
    }
}

impl From<rusqlite::Error> for Unopened {
    fn from(error: rusqlite::Error) -> Unopened {
        let is_io =
            matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen));
        let kind = if is_io && is_over_quota() { io::ErrorKind::QuotaExceeded } else { io::ErrorKind::Other };
        Unopened::Io(io::Error::new(kind, error))
    }
}

/// Whether other programs, such as a backup, may read the file while it is open. SQLite needs a small file of
/// shared memory for that, which on a full disk it cannot make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locking {
    Shared,
    Exclusive,
}

fn open_file(dir: &Path, path: &Path, schema: &Schema, locking: Locking) -> Result<Connection, Unopened> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite would make it as wide as the umask lets it; the write-ahead log and its index get the mode of
    // the file.
    match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Unopened::Io(error)),
        _ => {}
    }
    let mut db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // A table with a partial index would have each statement with parameters parsed anew for each value: a
    // tenth of what a proof costs. No statement of ours has a plan that depends on a value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if locking == Locking::Exclusive {
        tracing::warn!(
            "the disk is full; other programs cannot read the control data until the server restarts"
        );
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    // Before anything is written: a file of a newer version stays as it is.
    let version = known_version(&db, schema)?;
    set_pragmas(&db, "wal")?;
    if (1..schema.sqlite.len()).contains(&version) {
        // An earlier program reads the copy, should the operator go back to it.
        copy_aside(&db, dir, path, version)?;
    }
    migrate(&mut db, schema, version)?;
    if (1..schema.sqlite.len()).contains(&version) {
        tracing::info!(version = schema.sqlite.len(), "the control data is up to date");
    }
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(Unopened::Io)?;
    Ok(db)
}

/// How many migrations the file of a directory has seen, and how many there are; nothing where there is no
/// file. Another process may have it open.
pub(crate) fn look(dir: &Path, schema: &Schema) -> Result<Option<(usize, usize)>, OpenError> {
    let path = dir.join(format!("{}.db", schema.name));
    let looked = || {
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(Unopened::Io)?,
        };
        let mut beginning = Vec::new();
        file.take(HEADER_BYTES).read_to_end(&mut beginning).map_err(Unopened::Io)?;
        let log = dir.join(format!("{}.db-wal", schema.name));
        let is_whole = fs::metadata(log).map_or(true, |log| log.len() == 0);
        // SQLite reads a file in this mode only where it may make others beside it. Without a write-ahead log
        // the file itself has the number, in its header.
        let written = if is_whole {
            Written::in_header(&beginning)
        } else {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let db = Connection::open_with_flags(&path, flags)?;
            db.busy_timeout(BUSY_TIMEOUT)?;
            Written::by(&db)?
        };
        Ok(Some((known(written, schema)?, schema.sqlite.len())))
    };
    looked().map_err(|error: Unopened| error.of(schema, path.clone()))
}

fn open_in_memory(schema: &Schema) -> Result<Connection, Unopened> {
    let mut db = Connection::open_in_memory()?;
    set_pragmas(&db, "memory")?;
    migrate(&mut db, schema, 0)?;
    Ok(db)
}

/// Sets what durability and integrity rest on, and looks whether it is so: SQLite ignores what it does not
/// know or cannot do.
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
fn known_version(db: &Connection, schema: &Schema) -> Result<usize, Unopened> {
    known(Written::by(db)?, schema)
}

fn known(written: Written, schema: &Schema) -> Result<usize, Unopened> {
    match usize::try_from(written.version) {
        Ok(known) if known <= schema.sqlite.len() => Ok(known),
        _ => Err(Unopened::UnknownVersion(written)),
    }
}

/// Copies a file that has data and is about to be changed: `control.db.12` for version 12. Nothing is changed
/// unless the copy is durable.
fn copy_aside(db: &Connection, dir: &Path, path: &Path, version: usize) -> Result<(), Unopened> {
    let copy = PathBuf::from(format!("{}.{version}", path.display()));
    let unfinished = PathBuf::from(format!("{}.tmp", copy.display()));
    let _ = fs::remove_file(&unfinished);
    let copied = || {
        OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&unfinished)?;
        let name = unfinished.to_str().ok_or_else(|| io::Error::other("the path is no text"))?;
        db.execute("VACUUM INTO ?1", [name]).map_err(io::Error::other)?;
        fs::File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, &copy)?;
        fs::File::open(dir)?.sync_all()
    };
    if let Err(error) = copied() {
        let _ = fs::remove_file(&unfinished);
        let problem = format!(
            "cannot copy the control data to {} before its update: {error}; free some space",
            copy.display()
        );
        return Err(Unopened::Io(io::Error::other(problem)));
    }
    tracing::info!(copy = %copy.display(), version, "copied the control data of an earlier version aside; updating it now");
    Ok(())
}

fn migrate(db: &mut Connection, schema: &Schema, version: usize) -> rusqlite::Result<()> {
    for (number, migration) in (1i64..).zip(schema.sqlite).skip(version) {
        let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        step.execute_batch(migration)?;
        step.pragma_update(None, "user_version", number)?;
        step.pragma_update(None, "application_id", Written::own())?;
        step.commit()?;
        if version > 0 {
            tracing::info!(
                step = number,
                of = schema.sqlite.len(),
                "ran a migration step of the control data"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sealog_store::embedded::{EmbeddedStore, Options};

    use super::*;
    use crate::database::Database;
    use crate::db::{count, params};
    use crate::schema::SCHEMA;

    /// A store with its directory, which the file goes into.
    fn store(dir: &Path) -> EmbeddedStore {
        EmbeddedStore::open(dir, &Options { allow_unsafe_storage: true, ..Options::default() }).unwrap()
    }

    fn open(store: &EmbeddedStore) -> File {
        File::open(store.directory().unwrap(), store.directory().unwrap().path(), &SCHEMA).unwrap()
    }

    fn in_memory() -> File {
        File::in_memory(&SCHEMA).unwrap()
    }

    fn failure(code: i32) -> DbError {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None).into()
    }

    fn count_tenants(file: &File) -> Result<u64, DbError> {
        file.read(|db| count(db, "SELECT count(*) AS count FROM {tenants}", &[]))
    }

    fn insert_tenant(db: &mut dyn Db, id: u8) -> Result<(), DbError> {
        let sql = "INSERT INTO {tenants} (id, name, plan, billing_active, created_at_ms) VALUES (?1, 'n', 'top', true, 1)";
        db.execute(sql, params![vec![id; 16]]).map(drop)
    }

    #[test]
    fn every_change_is_synced_and_the_log_is_a_write_ahead_log() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let file = open(&store);
        let db = &file.lock().db;
        let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        let journal_mode: String = db.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        let found =
            (journal_mode.as_str(), number("synchronous"), number("foreign_keys"), number("cell_size_check"));
        assert_eq!(found, ("wal", 2, 1, 1));
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
        let file = in_memory();
        let failed = file.change(Room::Ordinary, |db| {
            insert_tenant(db, 1)?;
            insert_tenant(db, 1)
        });
        assert!(matches!(failed, Err(DbError::Duplicate(_))), "{failed:?}");
        assert_eq!(count_tenants(&file), Ok(0));
    }

    #[test]
    fn after_a_failed_write_nothing_is_changed_until_the_next_start_and_reads_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let file = open(&store);
        file.change(Room::Ordinary, |db| insert_tenant(db, 1)).unwrap();
        let failed = file.change(Room::Ordinary, |db| {
            insert_tenant(db, 2)?;
            Err::<(), _>(failure(rusqlite::ffi::SQLITE_IOERR_FSYNC))
        });
        assert!(matches!(failed, Err(DbError::Final(_))), "{failed:?}");
        let refused = file.change(Room::InPlace, |db| insert_tenant(db, 3));
        let Err(DbError::Failed(cause)) = refused else { panic!("{refused:?}") };
        assert!(cause.contains("until the server restarts"), "{cause}");
        assert!(file.failure().is_some());
        assert_eq!(count_tenants(&file), Ok(1));
        drop(file);
        assert!(dir.path().join("control.db-wal").metadata().unwrap().len() > 0, "the log is kept");
        let file = open(&store);
        file.change(Room::Ordinary, |db| insert_tenant(db, 3)).unwrap();
        assert_eq!(count_tenants(&file), Ok(2));
    }

    #[test]
    fn a_full_disk_and_a_locked_file_stop_one_change_only() {
        let file = in_memory();
        let change = |code| file.change(Room::Ordinary, |_| Err::<(), _>(failure(code)));
        assert_eq!(change(rusqlite::ffi::SQLITE_FULL), Err(DbError::Store(StoreError::NoRoom)));
        let failed = change(rusqlite::ffi::SQLITE_BUSY);
        assert!(matches!(failed, Err(DbError::Failed(_))), "{failed:?}");
        file.change(Room::Ordinary, |db| insert_tenant(db, 1)).unwrap();
        assert_eq!((count_tenants(&file), file.failure()), (Ok(1), None));
    }

    #[test]
    fn the_write_ahead_log_does_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let file = open(&store);
        file.change(Room::Ordinary, |db| insert_tenant(db, 1)).unwrap();
        for n in 0..100 {
            // Another text each time: pages that stay the same are not written.
            let text = format!("{n:02}").repeat(128 << 10);
            file.change(Room::InPlace, |db| db.execute("UPDATE {tenants} SET name = ?1", params![&text]))
                .unwrap();
        }
        let log_bytes = dir.path().join("control.db-wal").metadata().unwrap().len();
        assert!(log_bytes < 8 << 20, "{log_bytes}");
    }

    #[test]
    fn a_value_of_another_kind_than_the_column_is_an_error_that_names_it() {
        let file = in_memory();
        file.change(Room::Ordinary, |db| insert_tenant(db, 1)).unwrap();
        let read = |sql: &str| file.read(|db| db.query(sql, &[]).map(|_| ()));
        assert_eq!(read("SELECT 1.5 AS fraction"), Err(damaged("fraction", "has a number with a fraction")));
        let error = read("SELECT CAST(x'FF' AS TEXT) AS bytes").unwrap_err();
        assert!(matches!(&error, DbError::Damaged { column, .. } if column == "bytes"), "{error:?}");
    }

    #[test]
    fn a_panic_rolls_its_change_back_and_stops_nobody_else() {
        let database = Database::in_memory(&SCHEMA).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            database.change::<(), StoreError>(crate::db::Lock::Version, |db, _| {
                insert_tenant(db, 1)?;
                panic!("as planned");
            })
        }));
        assert!(panicked.is_err());
        let tenants = |db: &mut dyn Db| count(db, "SELECT count(*) AS count FROM {tenants}", &[]);
        assert_eq!(database.read(tenants), Ok(0));
    }

    #[test]
    fn a_database_that_cannot_be_read_says_so_until_a_read_succeeds() {
        let database = Database::in_memory(&SCHEMA).unwrap();
        let tenants = |db: &mut dyn Db| count(db, "SELECT count(*) AS count FROM {tenants}", &[]);
        assert_eq!((database.read(tenants), database.unreadable()), (Ok(0), None));
        let refused = database.read(|_| Err::<(), _>(DbError::Failed("disk I/O error".into())));
        assert!(refused.is_err());
        assert_eq!(database.unreadable().as_deref(), Some("disk I/O error"));
        // What was read and is damaged says nothing about the disk.
        let _ = database.read(|_| Err::<(), _>(damaged("name", "is no text")));
        assert_eq!(database.unreadable().as_deref(), Some("disk I/O error"));
        assert_eq!((database.read(tenants), database.unreadable()), (Ok(0), None));
    }
}
