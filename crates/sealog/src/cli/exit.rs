//! The codes with which commands end. Scripts rely on them.

use std::process::ExitCode;

use sealog_client::ClientError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Failure = 1,
    /// The command line, a file or a setting is wrong.
    Usage = 2,
    Authentication = 3,
    NotFound = 4,
    /// The service was away, too slow or too busy until the last attempt.
    Unavailable = 5,
    /// The service has looked at what was sent and does not take it.
    Invalid = 6,
    Broken = 10,
}

/// For the help of every command.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   something else went wrong
  2   the command line, a file or a setting is wrong
  3   the key is missing, wrong, revoked or expired
  4   there is no such thing
  5   the service is away, too slow or too busy, after all retries
  6   the service does not take what was sent
  10  the chain is broken";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure { exit: of(&error), message: error.to_string() }
    }
}

/// What could not be written to standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(Exit::Failure, format!("the output cannot be written: {error}"))
    }
}

pub(crate) fn of(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } => Exit::Unavailable,
        ClientError::Foreign { status: 502..=504, .. } => Exit::Unavailable,
        // A proxy that takes less than the service does.
        ClientError::Foreign { status: 413, .. } => Exit::Invalid,
        ClientError::Foreign { .. } => Exit::Failure,
        ClientError::Refused(problem) => match problem.status {
            // The same request is still under way: whether it is taken is not known yet.
            409 if problem.code == "event/idempotency_key_in_flight" => Exit::Unavailable,
            401 => Exit::Authentication,
            404 => Exit::NotFound,
            429 | 500.. => Exit::Unavailable,
            400 | 403 | 409 | 413 | 422 => Exit::Invalid,
            _ => Exit::Failure,
        },
    }
}
