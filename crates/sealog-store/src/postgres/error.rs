//! What a failure of the database means for whoever opens the store or uses it.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Error;

use crate::error::StoreError;

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// What is wrong with the URL.
    Url(String),
    /// It cannot be reached, takes nobody now, or went away in between. It may work later.
    Database(String),
    /// It says no, and will until somebody changes something: a password, a certificate, a right, a name.
    Refused(String),
    /// What a Citus cluster lacks.
    Cluster(String),
    /// Settings that are off.
    UnsafeSettings(Vec<String>),
    /// The schema has another version. A server changes no tables that are there.
    Schema {
        found: i64,
        wanted: i64,
        /// The program that has made its last step, if that is known.
        program: Option<String>,
    },
    Mark {
        path: PathBuf,
        error: std::io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Url(problem) => write!(f, "cannot use the URL of the store: {problem}"),
            OpenError::Database(error) | OpenError::Cluster(error) => f.write_str(error),
            OpenError::Refused(error) => write!(f, "the database rejected the request: {error}"),
            OpenError::UnsafeSettings(settings) => write!(
                f,
                "the database runs with {} off and can lose acknowledged events; turn it on, or allow it explicitly (SEALOG_ALLOW_UNSAFE_STORAGE=true)",
                settings.join(", ")
            ),
            OpenError::Schema { found, wanted, program: Some(program) } if found > wanted => {
                write!(
                    f,
                    "the schema has the unknown version {found}, by {program}; use that version, or a newer one"
                )
            }
            OpenError::Schema { found, wanted, .. } if found > wanted => write!(
                f,
                "the schema has the unknown version {found}; use the version that created it, or a newer one"
            ),
            OpenError::Schema { found, wanted, .. } => write!(
                f,
                "the schema has version {found}, but this program needs {wanted}; run `sealog migrate` as the role that owns the schema, after a backup"
            ),
            OpenError::Mark { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// How PgBouncer refuses a parameter of a start.
const UNKNOWN_PARAMETER: &str = "unsupported startup parameter";

impl OpenError {
    /// Whether trying again can help without anybody changing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self, OpenError::Database(_))
    }

    /// What a failure of the driver means for whoever wants to open the store.
    pub(super) fn of(error: &Error) -> OpenError {
        if error.as_db_error().is_some_and(|said| said.message().starts_with(UNKNOWN_PARAMETER)) {
            OpenError::Refused(format!(
                "{}; a pooler is in front of the database: remove `options` from the URL of the store, or let PgBouncer ignore it (ignore_startup_parameters = options)",
                explain(error)
            ))
        } else if is_refusal(error) {
            OpenError::Refused(explain(error))
        } else {
            OpenError::Database(unavailable(error).to_string())
        }
    }
}

/// Whether an error will be the same the next time. By what PostgreSQL says, where it got as far as that:
/// authentication (28), a database that does not exist (3D), missing rights and missing or unknown objects
/// (42). Too many connections, a start or a stop in progress, a standby: all that passes.
fn is_refusal(error: &Error) -> bool {
    if let Some(state) = error.code() {
        return ["28", "3D", "42"].iter().any(|class| state.code().starts_with(class));
    }
    // Before that, by the driver: the URL asks for a password and has none, or the certificate is not to be
    // trusted. A connection that ends in the middle is neither.
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::InvalidData;
        }
        cause = error.source();
    }
    error.to_string().starts_with("invalid configuration")
}

pub(super) fn unsafe_storage(off: &[impl AsRef<str>]) -> StoreError {
    let off = off.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    StoreError::Unavailable(format!("the database runs with {off} off and can lose acknowledged events"))
}

/// Whoever copies or counts must not go on as if it were not there.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Read(format!("{what} is damaged"))
}

pub(super) fn unavailable(error: &Error) -> StoreError {
    StoreError::Unavailable(explain(error))
}

/// The error with its causes: the outermost one alone says little more than "db error". PostgreSQL's DETAIL
/// is left out: it quotes rows ("Failing row contains …"), and this ends up in logs and answers.
pub(super) fn explain(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let hint = said.hint().map_or(String::new(), |hint| format!(" ({hint})"));
        return format!("db error: {}: {}{hint}", said.severity(), said.message());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
