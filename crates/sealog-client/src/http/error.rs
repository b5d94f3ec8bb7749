//! What can go wrong, in words for the person at the terminal.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

/// What the service says of a request that it refuses. Fields that an answer lacks are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    pub status: u16,
    pub code: String,
    pub message: String,
    pub request_id: String,
    pub doc_url: String,
    pub suggestion: String,
    pub retry_after: Option<Duration>,
}

#[derive(Debug)]
pub enum ClientError {
    /// The service has answered, and it is not what was asked for.
    Refused(Box<Problem>),
    /// No connection, or it ended before there was an answer.
    Unreachable { address: String, why: String },
    /// No answer in time.
    TimedOut { address: String, after: Duration },
    /// An answer, but not one of Sealog's.
    Foreign { status: u16, why: String },
}

impl ClientError {
    /// The service's own code for it, if it has given one.
    pub fn code(&self) -> Option<&str> {
        match self {
            ClientError::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

impl Problem {
    /// Nothing if the body is not an error of Sealog's.
    pub(crate) fn parse(status: u16, body: &[u8], retry_after: Option<Duration>) -> Option<Problem> {
        #[derive(Deserialize)]
        struct Body {
            error: Fields,
        }
        #[derive(Deserialize)]
        struct Fields {
            code: String,
            #[serde(default)]
            message: String,
            #[serde(default)]
            request_id: String,
            #[serde(default)]
            doc_url: String,
            #[serde(default)]
            suggestion: String,
        }
        let Body { error } = serde_json::from_slice(body).ok()?;
        Some(Problem {
            status,
            code: error.code,
            message: error.message,
            request_id: error.request_id,
            doc_url: error.doc_url,
            suggestion: error.suggestion,
            retry_after,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if !self.suggestion.is_empty() {
            write!(f, "\n  did you mean {}?", self.suggestion)?;
        }
        if !self.request_id.is_empty() {
            write!(f, "\n  request: {}", self.request_id)?;
        }
        if !self.doc_url.is_empty() {
            write!(f, "\n  see: {}", self.doc_url)?;
        }
        Ok(())
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused(problem) => problem.fmt(f),
            ClientError::Unreachable { address, why } => {
                write!(
                    f,
                    "cannot reach {address}: {why}\n  check that the service runs and that the URL is right (--url, SEALOG_URL)"
                )
            }
            ClientError::TimedOut { address, after } => {
                write!(f, "{address} did not respond within {} s (--timeout)", after.as_secs())
            }
            ClientError::Foreign { status, why } => {
                write!(
                    f,
                    "the response (status {status}) is not from Sealog: {why}\n  check that the URL is the service itself (--url, SEALOG_URL)"
                )
            }
        }
    }
}

impl std::error::Error for ClientError {}
