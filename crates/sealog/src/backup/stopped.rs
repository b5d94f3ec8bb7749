//! Why a replica does not go on.

use std::fmt;

use sealog_client::ClientError;

use super::source::Unread;

/// Why a look came to nothing.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It may work later.
    Away(String),
    /// Somebody has to do something.
    Refused(String),
    /// A chain does not verify.
    Broken(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Stopped::Away(problem) | Stopped::Refused(problem) | Stopped::Broken(problem)) = self;
        f.write_str(problem)
    }
}

impl From<ClientError> for Stopped {
    fn from(error: ClientError) -> Stopped {
        match &error {
            ClientError::Refused(problem) if problem.status == 404 => Stopped::Refused(format!(
                "{error}. The server needs an operator's token and `replication.enabled = true`, and the embedded store"
            )),
            ClientError::Refused(problem) if matches!(problem.status, 400 | 401 | 403) => {
                Stopped::Refused(error.to_string())
            }
            _ => Stopped::Away(error.to_string()),
        }
    }
}

impl From<Unread> for Stopped {
    fn from(unread: Unread) -> Stopped {
        Stopped::Away(match unread {
            Unread::Gone => "what the server had a moment ago has given way to something newer".into(),
            Unread::Failed(problem) => problem,
        })
    }
}
