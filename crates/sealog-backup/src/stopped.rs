//! Why a replica does not go on.

use sealog_cli::exit::{self, Exit, Failure};
use sealog_client::http::ClientError;

use super::source::Unread;

/// Why a look came to nothing.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It may work later.
    Away(String),
    /// Somebody has to do something.
    Refused(String),
    /// The server does not answer this token, or not this question.
    Denied(Exit, String),
    /// A chain does not verify.
    Broken(String),
}

/// As the command ends with it.
impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Failure {
        match stopped {
            Stopped::Away(problem) => Failure::new(Exit::Unavailable, problem),
            Stopped::Refused(problem) => Failure::new(Exit::Failure, problem),
            Stopped::Denied(exit, problem) => Failure::new(exit, problem),
            Stopped::Broken(problem) => Failure::new(Exit::Broken, problem),
        }
    }
}

impl From<ClientError> for Stopped {
    fn from(error: ClientError) -> Stopped {
        let exit = exit::of(&error);
        match &error {
            ClientError::Refused(problem) if problem.status == 404 => Stopped::Denied(
                exit,
                format!(
                    "{error}. The server needs the embedded store, an operator token and `replication.enabled = true`"
                ),
            ),
            ClientError::Refused(problem) if matches!(problem.status, 400 | 401 | 403) => {
                Stopped::Denied(exit, error.to_string())
            }
            _ => Stopped::Away(error.to_string()),
        }
    }
}

impl From<Unread> for Stopped {
    fn from(unread: Unread) -> Stopped {
        Stopped::Away(match unread {
            Unread::Gone => "the server's data changed during the request".into(),
            Unread::Failed(problem) => problem,
        })
    }
}
