//! The driver for PostgreSQL: tables in a schema of their own, on connections that the store lends.
//!
//! A change of what a request may do first increments the store's version. That row is a lock as well:
//! changes are serialised by it, so creation has one order.

use std::sync::Arc;

use sealog_store::StoreError;
use sealog_store::postgres::sessions::{self, Failure, Sessions, Work};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::db::{Db, DbError, Lock, Row, Schema, Value, damaged, translate};
use crate::error::OpenError;

/// Connections for control data, and threads that use them.
pub(crate) const CONNECTIONS: usize = 4;

#[derive(Debug)]
pub(crate) struct Tables {
    sessions: Sessions,
    schema: String,
}

impl Tables {
    pub(crate) fn open(sessions: Sessions, schema: &Schema) -> Result<Tables, OpenError> {
        sessions.prepare(steps(schema)).map_err(OpenError::Postgres)?;
        Ok(Tables { sessions, schema: name(schema) })
    }

    /// For how long nothing was heard of what other nodes have changed.
    pub(crate) fn silent_ms(&self) -> u64 {
        self.sessions.silent_ms()
    }

    pub(crate) fn read<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, DbError> {
        let work = self.sessions.read().map_err(failed)?;
        let value = act(&mut Statements { work: &work, schema: &self.schema })?;
        work.finish().map_err(failed)?;
        Ok(value)
    }

    /// Dropped on an error: the connection ends, and the transaction with it.
    pub(crate) fn change<T>(
        &self,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db, Option<u64>) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let work = self.sessions.begin().map_err(failed)?;
        let version = match lock {
            Lock::None => None,
            Lock::Order => work.lock_version().map_err(failed).map(|_| None)?,
            Lock::Version => work.next_version().map_err(failed).map(Some)?,
        };
        let value = act(&mut Statements { work: &work, schema: &self.schema }, version)?;
        work.finish().map_err(unknown)?;
        Ok(value)
    }
}

fn name(schema: &Schema) -> String {
    format!("sealog_{}", schema.name)
}

pub(crate) fn steps(schema: &Schema) -> sessions::Schema {
    let name = name(schema);
    let steps = schema.postgres.iter().map(|step| translate(step, Some(&name))).collect();
    let rights = sessions::rights_in(&name);
    sessions::Schema { name, steps, rights }
}

fn failed(failure: Failure) -> DbError {
    match failure.code() {
        Some(&SqlState::UNIQUE_VIOLATION) => DbError::Duplicate(failure.to_string()),
        Some(&SqlState::FOREIGN_KEY_VIOLATION) => DbError::NoOwner,
        Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE) => {
            DbError::Refused("a text contains a NUL character".into())
        }
        _ => match failure {
            Failure::Store(StoreError::Unavailable(cause)) => away(cause),
            Failure::Store(error) => DbError::Store(error),
            Failure::Database(_) if failure.is_gone() => away(failure.to_string()),
            Failure::TimedOut => away(failure.to_string()),
            Failure::Database(_) => DbError::Failed(failure.to_string()),
        },
    }
}

fn away(cause: String) -> DbError {
    DbError::Store(StoreError::ControlUnavailable(cause))
}

/// Nobody knows whether the change was made: it is no answer that it was not.
fn unknown(failure: Failure) -> DbError {
    match failed(failure) {
        DbError::Store(StoreError::ControlUnavailable(cause)) => DbError::Failed(cause),
        other => other,
    }
}

struct Statements<'a> {
    work: &'a Work,
    schema: &'a str,
}

impl Db for Statements<'_> {
    fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DbError> {
        let sql = translate(sql, Some(self.schema));
        self.work.execute(sql, types(params), params.to_vec()).map_err(failed)
    }

    fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, DbError> {
        let sql = translate(sql, Some(self.schema));
        let rows = self.work.query(sql, types(params), params.to_vec()).map_err(failed)?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let columns: Arc<[String]> = first.columns().iter().map(|column| column.name().to_owned()).collect();
        let read = |row: &tokio_postgres::Row| {
            let values = (0..columns.len()).map(|at| read_value(row, at));
            Ok(Row::new(Arc::clone(&columns), values.collect::<Result<_, _>>()?))
        };
        rows.iter().map(read).collect()
    }
}

/// The database finds out of what type a null is.
fn types(params: &[Value]) -> Vec<Type> {
    let of = |value: &Value| match value {
        Value::Null => Type::UNKNOWN,
        Value::Int(_) => Type::INT8,
        Value::Bool(_) => Type::BOOL,
        Value::Text(_) => Type::TEXT,
        Value::Bytes(_) => Type::BYTEA,
        Value::Uuid(_) => Type::UUID,
    };
    params.iter().map(of).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => return Ok(IsNull::Yes),
            // Of a type that the database has found by itself, when the statement was first made with a null.
            Value::Int(number) if *ty == Type::INT4 => return i32::try_from(*number)?.to_sql(ty, out),
            Value::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Bool(value) => out.extend_from_slice(&[u8::from(*value)]),
            Value::Text(text) => out.extend_from_slice(sessions::escape(text).as_bytes()),
            Value::Bytes(bytes) => out.extend_from_slice(bytes),
            Value::Uuid(id) => out.extend_from_slice(&id.0),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn read_value(row: &tokio_postgres::Row, at: usize) -> Result<Value, DbError> {
    let column = &row.columns()[at];
    let read = match *column.type_() {
        Type::INT4 => row.try_get::<_, Option<i32>>(at).map(|number| number.map(i64::from).into()),
        Type::INT8 => row.try_get::<_, Option<i64>>(at).map(Value::from),
        Type::BOOL => row.try_get::<_, Option<bool>>(at).map(Value::from),
        Type::TEXT => row
            .try_get::<_, Option<&str>>(at)
            .map(|text| text.map(|text| sessions::unescape(text).into_owned()).into()),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at).map(Value::from),
        Type::UUID => row.try_get::<_, Option<Id>>(at).map(|id| id.map(|id| id.0).into()),
        ref other => return Err(damaged(column.name(), &format!("has the unknown type {other}"))),
    };
    read.map_err(|error| damaged(column.name(), &format!("cannot be read: {error}")))
}

struct Id(sealog_core::id::Uuid);

impl<'a> tokio_postgres::types::FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Id, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Id(sealog_core::id::Uuid(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}
