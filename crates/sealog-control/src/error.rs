//! Why control data could not be opened or changed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use sealog_store::StoreError;
use sealog_store::postgres as store_postgres;

use crate::db::DbError;

/// Why control data could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// With the program that wrote it, if that is known.
    UnknownVersion {
        found: String,
        program: Option<String>,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
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
            OpenError::UnknownVersion { found, program: Some(program) } => write!(
                f,
                "the store has the unknown format {found:?}, by {program}; use that version, or a newer one"
            ),
            OpenError::UnknownVersion { found, program: None } => write!(
                f,
                "the store has the unknown format {found:?}; use the version that wrote it, or a newer one"
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
