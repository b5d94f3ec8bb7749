//! What can go wrong, for programs: a kind to decide by, a code that stays the same, a message for people.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde_json::Value;

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// 401: the API key is unknown, revoked or expired.
    Auth,
    /// 402: the trial has ended.
    Subscription,
    /// The action is unknown, not part of the plan, or lacks a required field.
    Action,
    /// 409: the key was used for another event, or its first request is in flight.
    IdempotencyConflict,
    /// 429. `retry_after` is what the service asked for.
    RateLimited,
    /// 404: no such event, or no such path.
    NotFound,
    /// The event or an option is wrong. `field` names it.
    Validation,
    /// 5xx.
    Server,
    /// No answer, or one that does not come from Sealog.
    Transport,
    /// The queue or the spool has no room. The event was not accepted.
    QueueFull,
    /// The client was closed before the event was sent.
    Closed,
    /// The spool cannot be written or read. The event was not accepted.
    Spool,
}

/// Every error of this crate. Its members are those of [`Details`].
///
/// ```
/// # fn report(error: sealog_client::Error) {
/// if error.kind == sealog_client::Kind::Action {
///     println!("{} did you mean {:?}?", error.code, error.suggestion);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Details>);

/// Members that have no value are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    pub kind: Kind,
    /// Stable, for example `event/write_failed` or `client/timeout`.
    pub code: String,
    pub message: String,
    /// Of the HTTP answer.
    pub status: Option<u16>,
    /// Of the service, for its operator.
    pub request_id: Option<String>,
    pub doc_url: Option<String>,
    /// The action that was probably meant.
    pub suggestion: Option<String>,
    /// What is wrong: an option, or the path of a value in the event.
    pub field: Option<String>,
    /// What the service asked for.
    pub retry_after: Option<Duration>,
}

impl Deref for Error {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl Error {
    pub(crate) fn new(kind: Kind, code: &str, message: impl Into<String>) -> Error {
        Error(Box::new(Details {
            kind,
            code: code.to_owned(),
            message: message.into(),
            status: None,
            request_id: None,
            doc_url: None,
            suggestion: None,
            field: None,
            retry_after: None,
        }))
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Details)) -> Error {
        change(&mut self.0);
        self
    }

    pub(crate) fn option(name: &str, problem: &str) -> Error {
        Error::new(Kind::Validation, "client/invalid_option", format!("{name}: {problem}"))
            .with(|error| error.field = Some(name.to_owned()))
    }

    pub(crate) fn event(field: &str, problem: &str) -> Error {
        Error::new(Kind::Validation, "client/invalid_event", format!("{field}: {problem}"))
            .with(|error| error.field = Some(field.to_owned()))
    }

    pub(crate) fn bad_answer(status: u16, what: &str) -> Error {
        let message = format!("{what}; check the url option, or ask the operator of the proxy in between");
        Error::new(Kind::Transport, "client/bad_answer", message)
            .with(|error| error.status = Some(status).filter(|status| *status != 0))
    }

    pub(crate) fn closed() -> Error {
        Error::new(Kind::Closed, "client/closed", "the client is closed")
    }

    /// The error in an answer that has one; members of it may be missing or of another type.
    pub(crate) fn of_service(status: u16, object: &Value, retry_after: Option<Duration>) -> Option<Error> {
        let text = |name: &str| object[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let code = text("code")?;
        let kind = match status {
            _ if code.starts_with("action/") || code.starts_with("framework/") => Kind::Action,
            _ if code.starts_with("event/idempotency_key") => Kind::IdempotencyConflict,
            401 => Kind::Auth,
            402 => Kind::Subscription,
            404 => Kind::NotFound,
            429 => Kind::RateLimited,
            500.. => Kind::Server,
            _ => Kind::Validation,
        };
        let message = text("message").unwrap_or_else(|| format!("the service answered {status}"));
        Some(Error::new(kind, &code, message).with(|error| {
            error.status = Some(status);
            error.request_id = text("request_id");
            error.doc_url = text("doc_url");
            error.suggestion = text("suggestion");
            error.retry_after = retry_after;
        }))
    }

    /// Whether a later attempt can succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        let status = self.status.unwrap_or(0);
        if self.kind == Kind::Transport {
            let is_passing = !(300..500).contains(&status);
            return match self.code.as_str() {
                "client/connection" | "client/timeout" => true,
                "client/bad_answer" => is_passing,
                _ => false,
            };
        }
        status >= 500 || status == 429 || self.code == "event/idempotency_key_in_flight"
    }

    /// Whether the service has judged the content. Otherwise a spool keeps the events.
    pub(crate) fn is_about_the_event(&self) -> bool {
        match self.kind {
            Kind::Transport => false,
            Kind::IdempotencyConflict => !self.is_temporary(),
            _ => matches!(self.status, Some(400 | 403 | 413 | 422)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.message, self.code)?;
        if let Some(request_id) = &self.request_id {
            write!(f, ", request {request_id}")?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, ", did you mean {suggestion:?}?")?;
        }
        if let Some(doc_url) = &self.doc_url {
            write!(f, ", {doc_url}")?;
        }
        f.write_str(")")
    }
}

/// As the members, which a box and a name around them would only hide.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}
