//! The seam between entities and databases: statements in one dialect of SQL, values and rows of our own, and
//! transactions.
//!
//! Entities write SQL that SQLite and PostgreSQL both understand, with `?1` for parameters and `{tenants}`
//! for the name of a table. A driver puts in what its database calls them. Whatever cannot be said in both is
//! a method of the driver (a [`Lock`] is), not a second text of a statement.

use std::sync::Arc;

use sealog_core::id::{Hash, ProjectId, TenantId, Uuid};
use sealog_store::StoreError;

/// What statements are made to: a transaction, or a connection that only reads.
pub trait Db {
    /// The number of rows that were changed.
    fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DbError>;

    fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DbError>;
}

/// A database by its name: the file `NAME.db` of a data directory, or the schema `sealog_NAME`. The steps
/// that make its tables, each in a file of its own, are never changed once they were released.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    pub name: &'static str,
    pub sqlite: &'static [&'static str],
    pub postgres: &'static [&'static str],
}

/// What a change takes before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nothing: what happens all the time waits for no other change.
    None,
    /// Its place behind all changes before it, so that creation has one order.
    Order,
    /// That, and the next version, by which every node learns of it.
    Version,
}

/// What a change may use of a disk that is full. A database server looks after its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing: it is refused. One tenant's cases must not keep another one from revoking a key.
    Ordinary,
    /// What is left: it changes what is there, such as when a key was last used, and makes nothing longer.
    InPlace,
    /// What is kept free for this: signing in as an owner, an admin or an operator, ending keys, sessions and
    /// memberships, and whatever frees room. What one person can take of it is bounded.
    Reserve,
}

impl Lock {
    /// What happens all the time changes what is there.
    pub(crate) fn room(self) -> Room {
        match self {
            Lock::None => Room::InPlace,
            Lock::Order | Lock::Version => Room::Ordinary,
        }
    }
}

/// Why a statement, or a transaction, has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbError {
    /// The entity says so: the caller can choose another name.
    AlreadyExists,
    /// A row of this id, or of another value that is unique, is there.
    Duplicate(String),
    /// It belongs to something that does not exist.
    NoOwner,
    /// A value that cannot be kept, or is not what it should be.
    Refused(String),
    /// A value in a row is not what the column holds.
    Damaged {
        column: String,
        problem: String,
    },
    Failed(String),
    /// A write or a sync failed, or the file is no database any more: nothing may be built on it.
    Final(String),
    /// It did not get as far as the database.
    Store(StoreError),
}

impl DbError {
    fn cause(self) -> String {
        match self {
            DbError::AlreadyExists => "it exists already".into(),
            DbError::Duplicate(cause) => format!("it exists already ({cause})"),
            DbError::NoOwner => "it belongs to something that does not exist".into(),
            DbError::Damaged { column, problem } => format!("the column {column} {problem}"),
            DbError::Refused(cause) | DbError::Failed(cause) | DbError::Final(cause) => cause,
            DbError::Store(error) => error.to_string(),
        }
    }

    pub(crate) fn of_read(self) -> StoreError {
        match self {
            DbError::Store(error) => error,
            other => StoreError::Read(other.cause()),
        }
    }
}

/// Of a change.
impl From<DbError> for StoreError {
    fn from(error: DbError) -> StoreError {
        match error {
            DbError::Store(error) => error,
            DbError::AlreadyExists | DbError::Duplicate(_) | DbError::NoOwner | DbError::Refused(_) => {
                StoreError::Refused(error.cause())
            }
            DbError::Damaged { .. } | DbError::Failed(_) | DbError::Final(_) => {
                StoreError::Control(error.cause())
            }
        }
    }
}

/// A value of a parameter or a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
}

/// `params![id, name]`
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Value::from($value)),*] };
}
pub use params;

macro_rules! value_from {
    ($($type:ty: |$value:ident| $made:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Value {
                $made
            }
        })*
    };
}

value_from! {
    i64: |value| Value::Int(value);
    // A time, a count or a limit. No time that can be written down reaches the upper half.
    u64: |value| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    usize: |value| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    u32: |value| Value::Int(value.into());
    u8: |value| Value::Int(value.into());
    bool: |value| Value::Bool(value);
    &str: |value| Value::Text(value.to_owned());
    &String: |value| Value::Text(value.clone());
    String: |value| Value::Text(value);
    Uuid: |value| Value::Uuid(value);
    TenantId: |value| Value::Uuid(value.0);
    ProjectId: |value| Value::Uuid(value.0);
    Hash: |value| Value::Bytes(value.0.to_vec());
    Vec<u8>: |value| Value::Bytes(value);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<&Option<String>> for Value {
    fn from(value: &Option<String>) -> Value {
        value.as_deref().into()
    }
}

/// A list of names, kept as a JSON array.
pub(crate) fn names(names: &[String]) -> Value {
    Value::Text(serde_json::to_string(names).expect("strings are always JSON"))
}

/// A row of an answer. What is not as it should be is an error that names the column: nothing is made up, and
/// no row left out.
#[derive(Clone, Debug)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    pub(crate) fn new(columns: Arc<[String]>, values: Vec<Value>) -> Row {
        Row { columns, values }
    }

    pub fn get<T: FromValue>(&self, column: &str) -> Result<T, DbError> {
        let value = self.columns.iter().position(|known| known == column).and_then(|at| self.values.get(at));
        let Some(value) = value else { return Err(damaged(column, "is not there")) };
        T::from_value(value).ok_or_else(|| damaged(column, &format!("has the value {}", shown(value))))
    }

    /// One of a few words.
    pub fn word<T: Copy>(
        &self,
        column: &str,
        known: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Result<T, DbError> {
        let text: String = self.get(column)?;
        let found = known.iter().copied().find(|value| as_str(*value) == text);
        found.ok_or_else(|| damaged(column, &format!("has the unknown word {text:?}")))
    }

    /// A list of names.
    pub fn names(&self, column: &str) -> Result<Vec<String>, DbError> {
        let text: String = self.get(column)?;
        serde_json::from_str(&text).map_err(|error| damaged(column, &format!("is no list: {error}")))
    }
}

pub(crate) fn damaged(column: &str, problem: &str) -> DbError {
    DbError::Damaged { column: column.to_owned(), problem: problem.to_owned() }
}

/// For a message: what kind of value it is, and only where it is short and no secret the value itself.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Int(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Text(text) => format!("of {} bytes of text", text.len()),
        Value::Bytes(bytes) => format!("of {} bytes", bytes.len()),
        Value::Uuid(id) => id.to_string(),
    }
}

pub trait FromValue: Sized {
    /// Nothing if it is another kind of value, or out of range.
    fn from_value(value: &Value) -> Option<Self>;
}

/// An id as a type of its own, so that ids of different entities are never mixed up.
macro_rules! id {
    ($id:ident) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $id(pub sealog_core::id::Uuid);

        impl From<sealog_core::id::Uuid> for $id {
            fn from(id: sealog_core::id::Uuid) -> $id {
                $id(id)
            }
        }

        impl From<$id> for sealog_core::id::Uuid {
            fn from(id: $id) -> sealog_core::id::Uuid {
                id.0
            }
        }

        impl From<$id> for $crate::db::Value {
            fn from(id: $id) -> $crate::db::Value {
                id.0.into()
            }
        }

        impl $crate::db::FromValue for $id {
            fn from_value(value: &$crate::db::Value) -> Option<$id> {
                <sealog_core::id::Uuid as $crate::db::FromValue>::from_value(value).map($id)
            }
        }
    };
}
pub(crate) use id;

macro_rules! from_value {
    ($($type:ty: $($pattern:pat => $made:expr),+;)*) => {
        $(impl FromValue for $type {
            fn from_value(value: &Value) -> Option<$type> {
                match value {
                    $($pattern => $made,)+
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    i64: Value::Int(number) => Some(*number);
    u64: Value::Int(number) => u64::try_from(*number).ok();
    u32: Value::Int(number) => u32::try_from(*number).ok();
    u8: Value::Int(number) => u8::try_from(*number).ok();
    // SQLite has no type of its own for either of the two that follow.
    bool: Value::Bool(value) => Some(*value), Value::Int(0) => Some(false), Value::Int(1) => Some(true);
    Uuid: Value::Uuid(id) => Some(*id), Value::Bytes(bytes) => Some(Uuid(bytes.as_slice().try_into().ok()?));
    String: Value::Text(text) => Some(text.clone());
    Vec<u8>: Value::Bytes(bytes) => Some(bytes.clone());
    Hash: Value::Bytes(bytes) => Some(Hash(bytes.as_slice().try_into().ok()?));
}

impl FromValue for TenantId {
    fn from_value(value: &Value) -> Option<TenantId> {
        Uuid::from_value(value).map(TenantId)
    }
}

impl FromValue for ProjectId {
    fn from_value(value: &Value) -> Option<ProjectId> {
        Uuid::from_value(value).map(ProjectId)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Option<T>> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// The first row of an answer, read.
pub fn one<T>(
    db: &mut dyn Db,
    sql: &str,
    params: &[Value],
    read: impl FnOnce(&Row) -> Result<T, DbError>,
) -> Result<Option<T>, DbError> {
    db.query(sql, params)?.first().map(read).transpose()
}

/// As [`all`], without rows that cannot be read, which are logged. For a loop that goes through what all
/// tenants have: one damaged row must not keep the rows behind it from their turn.
pub(crate) fn readable<T>(
    db: &mut dyn Db,
    sql: &str,
    params: &[Value],
    mut read: impl FnMut(&Row) -> Result<T, DbError>,
) -> Result<Vec<T>, DbError> {
    let mut kept = Vec::new();
    for row in db.query(sql, params)? {
        match read(&row) {
            Ok(value) => kept.push(value),
            Err(DbError::Damaged { column, problem }) => {
                let id = row.get::<Uuid>("id").map_or_else(|_| "unknown".into(), |id| id.to_string());
                tracing::error!(
                    id,
                    column,
                    problem,
                    "skipped a damaged row of control data; correct it or restore it from a backup"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Every row of an answer, read.
pub fn all<T>(
    db: &mut dyn Db,
    sql: &str,
    params: &[Value],
    read: impl FnMut(&Row) -> Result<T, DbError>,
) -> Result<Vec<T>, DbError> {
    db.query(sql, params)?.iter().map(read).collect()
}

/// A number that a statement with one row and the column `count` answers.
pub fn count(db: &mut dyn Db, sql: &str, params: &[Value]) -> Result<u64, DbError> {
    Ok(one(db, sql, params, |row| row.get("count"))?.unwrap_or(0))
}

/// A piece of a list in the order of creation: what comes after this id, at most so many.
#[derive(Clone, Copy, Debug)]
pub struct ListPage {
    pub after: Option<Uuid>,
    pub limit: usize,
}

/// A table, made by [`table!`]: its columns are written once, read by name and inserted in their order. Its
/// rows are listed in the order of creation, which the column `number` has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub select: &'static str,
    pub columns: &'static str,
    pub table: &'static str,
    /// The column with the id that a page goes on after.
    pub id: &'static str,
}

/// Name, column with the id, columns.
macro_rules! table {
    ($table:literal, $id:literal, $columns:literal) => {
        $crate::db::Table {
            select: concat!("SELECT ", $columns, " FROM {", $table, "}"),
            columns: $columns,
            table: $table,
            id: $id,
        }
    };
}
pub(crate) use table;

impl Table {
    /// Inserts a row with a value for each column. How many rows were written: a conflict may leave out one.
    pub(crate) fn insert(
        &self,
        db: &mut dyn Db,
        values: &[Value],
        on_conflict: &str,
    ) -> Result<u64, DbError> {
        let places: Vec<String> = (1..=values.len()).map(|place| format!("?{place}")).collect();
        let Table { table, columns, .. } = self;
        let sql = format!("INSERT INTO {{{table}}} ({columns}) VALUES ({}) {on_conflict}", places.join(", "));
        db.execute(&sql, values)
    }

    /// A page of the rows whose column `scope.0` has the value `scope.1`. Behind an id that is not among them
    /// there is nothing.
    pub(crate) fn page<T>(
        &self,
        db: &mut dyn Db,
        scope: Option<(&str, Value)>,
        page: ListPage,
        read: impl FnMut(&Row) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let Table { select, table, id, .. } = self;
        let (scope, owner) = match scope {
            Some((column, owner)) => (format!("{column} = ?2"), Some(owner)),
            None => ("true".to_owned(), None),
        };
        let mut params = vec![Value::from(page.limit)];
        params.extend(owner);
        let mut sql = format!("{select} WHERE {scope}");
        if let Some(after) = page.after {
            params.push(after.into());
            let behind = format!("SELECT number FROM {{{table}}} WHERE {id} = ?{} AND {scope}", params.len());
            sql.push_str(&format!(" AND {table}.number > ({behind})"));
        }
        sql.push_str(&format!(" ORDER BY {table}.number LIMIT ?1"));
        all(db, &sql, &params, read)
    }

    /// All of it.
    pub fn all<T>(
        &self,
        db: &mut dyn Db,
        read: impl FnMut(&Row) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        self.page(db, None, ListPage { after: None, limit: usize::MAX }, read)
    }
}

/// The statement in the words of its database. Where there is a schema, `{keys}` is the table in it, `{}` the
/// schema itself, and `?1` is written `$1`; otherwise a table has no more than its name.
pub(crate) fn translate(sql: &str, schema: Option<&str>) -> String {
    let mut written = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    while let Some(at) = rest.find(['{', '?']) {
        let (before, marked) = rest.split_at(at);
        written.push_str(before);
        rest = &marked[1..];
        if marked.starts_with('?') {
            written.push(if schema.is_some() { '$' } else { '?' });
            continue;
        }
        let (name, behind) = rest.split_once('}').unwrap_or((rest, ""));
        rest = behind;
        match schema {
            Some(schema) => written.extend([schema, ".", name]),
            None => written.push_str(name),
        }
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_written_in_the_names_of_its_database() {
        let sql = "SELECT a FROM {keys} JOIN {tenants} ON b = ?1 WHERE c = ?12";
        assert_eq!(translate(sql, None), "SELECT a FROM keys JOIN tenants ON b = ?1 WHERE c = ?12");
        let on_postgres = "SELECT a FROM s.keys JOIN s.tenants ON b = $1 WHERE c = $12";
        assert_eq!(translate(sql, Some("s")), on_postgres);
    }

    #[test]
    fn a_damaged_value_is_an_error_that_names_its_column() {
        let columns: Arc<[String]> = ["a", "b"].map(str::to_owned).into();
        let row = Row::new(columns, vec![Value::Int(-1), Value::Text("x".into())]);
        assert_eq!(row.get::<i64>("a"), Ok(-1));
        assert_eq!(row.get::<u64>("a"), Err(damaged("a", "has the value -1")));
        assert_eq!(row.get::<bool>("a"), Err(damaged("a", "has the value -1")));
        assert_eq!(row.get::<Option<u32>>("a"), Err(damaged("a", "has the value -1")));
        assert_eq!(row.get::<Uuid>("b").unwrap_err(), damaged("b", "has the value of 1 bytes of text"));
        assert_eq!(row.get::<String>("c").unwrap_err(), damaged("c", "is not there"));
        assert_eq!(row.word("b", &[1], |_| "y"), Err(damaged("b", "has the unknown word \"x\"")));
        assert!(matches!(row.names("b"), Err(DbError::Damaged { column, .. }) if column == "b"));
    }
}
