//! The codes with which commands end: one table for all of them. Scripts rely on it.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use sealog_client::http::ClientError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Failure = 1,
    /// The command line, a file or a setting is wrong.
    Usage = 2,
    Authentication = 3,
    NotFound = 4,
    /// The service was away, too slow or too busy until the last attempt.
    Unavailable = 5,
    /// The service has looked at what was sent and does not take it.
    Invalid = 6,
    /// A chain is broken, or a file of a store or a backup is not as it was written.
    Broken = 10,
}

/// For the help of every command. Whoever shows the codes elsewhere takes them from here ([`codes`]).
pub const EXIT_CODES: &str = "Exit codes:
  0   done
  1   another error
  2   the command line, a file or a setting is wrong
  3   the key is missing, wrong, revoked or expired
  4   not found
  5   the service is unavailable, too slow or too busy, after all retries
  6   the service rejected the request
  10  a chain is broken, or a file of a store or a backup is damaged";

/// Code and meaning of each row of [`EXIT_CODES`].
pub fn codes() -> Vec<(String, String)> {
    let rows = EXIT_CODES.lines().skip(1).filter_map(|row| row.trim().split_once(' '));
    rows.map(|(code, meaning)| (code.to_owned(), meaning.trim().to_owned())).collect()
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Of a path that the command line or a setting names: that it is not there, is something else or is
    /// closed to this user is theirs to correct; a full or broken disk is not.
    pub fn of_path(path: &Path, error: &io::Error) -> Failure {
        let is_named_wrongly = matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::ReadOnlyFilesystem
        );
        let exit = if is_named_wrongly { Exit::Usage } else { Exit::Failure };
        Failure::new(exit, format!("{}: {error}", path.display()))
    }

    /// Tells whoever runs the command, and ends it.
    pub fn say(&self) -> ExitCode {
        // Where standard error cannot be written, the code is all that is left to tell.
        let _ = writeln!(io::stderr(), "sealog: {}", self.message);
        self.exit.into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure { exit: of(&error), message: error.to_string() }
    }
}

/// For what is told without a code, such as by a command that goes on.
impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.message
    }
}

/// A text for the operator that no other code fits.
impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::new(Exit::Failure, message)
    }
}

/// What could not be written to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(Exit::Failure, format!("cannot write the output: {error}"))
    }
}

pub fn of(error: &ClientError) -> Exit {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_row_and_no_row_is_without_a_code() {
        let all = [
            Exit::Failure,
            Exit::Usage,
            Exit::Authentication,
            Exit::NotFound,
            Exit::Unavailable,
            Exit::Invalid,
            Exit::Broken,
        ];
        let named: Vec<String> =
            [0].into_iter().chain(all.map(|exit| exit as u8)).map(|code| code.to_string()).collect();
        assert_eq!(codes().into_iter().map(|(code, _)| code).collect::<Vec<_>>(), named);
        assert_eq!(codes()[0].1, "done");
    }
}
