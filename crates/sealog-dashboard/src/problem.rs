//! Why a page is not shown: with the code, the request id and the documentation that the API would give.

use askama::Template;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sealog_core::reject::{Code, Reject};
use sealog_service::people::admin::AdminError;
use sealog_service::people::sign_in::Failed;
use sealog_store::StoreError;

use crate::front::Front;
use crate::layout::{Plain, Shell};
use crate::request::{Asked, html};

/// As long as attempts are counted.
const ATTEMPTS_RETRY_AFTER_S: &str = "900";
/// For places that become free when others leave.
const BUSY_RETRY_AFTER_S: &str = "5";
/// Trying again does not help, and somebody else has to act.
const DISK_FULL: &str = "The server's disk is full, so your change was not saved. Ask the operator to free space. Until then you can read, sign in, revoke keys and end access.";

#[derive(Debug)]
pub enum Problem {
    Code {
        code: Code,
        message: String,
    },
    /// Somewhere else, for example to sign in.
    Elsewhere(Box<Response>),
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem::Code { code, message: message.into() }
    }

    /// What does not exist and what belongs to somebody else are one answer.
    pub(crate) fn not_found() -> Problem {
        Problem::new(Code::RequestNotFound, "Page not found, or you don't have access.")
    }

    /// Of passwords or codes. It does not tell whether there is such an account.
    pub(crate) fn too_many() -> Problem {
        let message = "Too many attempts for this account or from this address. Wait 15 minutes, or reset your password by e-mail.";
        Problem::new(Code::AuthTooManyAttempts, message)
    }

    /// More passwords wait to be checked than may wait.
    pub(crate) fn busy() -> Problem {
        let message = "Too many people are signing in at the moment. Try again in a few seconds.";
        Problem::new(Code::RateLimitExceeded, message)
    }

    pub(crate) fn not_allowed() -> Problem {
        Problem::new(
            Code::AuthNotAllowed,
            "Your role does not allow this. An owner or admin can change your role.",
        )
    }
}

impl From<Reject> for Problem {
    fn from(reject: Reject) -> Problem {
        Problem::new(reject.code(), reject.to_string())
    }
}

/// Of events; what it was is for the log.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        if let Some(known) = known(&error) {
            return known;
        }
        tracing::error!(%error, "a page could not be read");
        let message = if error == StoreError::NoRoom {
            DISK_FULL
        } else {
            "The event store is not available. Try again in a moment."
        };
        Problem::new(Code::ReadQueryFailed, message)
    }
}

/// What needs no line in the log: it has had one when it became so, or nothing is wrong with the server.
fn known(error: &StoreError) -> Option<Problem> {
    match error {
        StoreError::ControlUnavailable(_) => Some(Problem::new(
            Code::ServerControlUnavailable,
            "Accounts cannot be read at the moment. Try again in a minute.",
        )),
        StoreError::TenantFull { mb } => Some(Problem::new(
            Code::TenantDiskUsedUp,
            format!(
                "Your organisation has used the {mb} MB that this server allows for its account data, so your change was not saved. Ask the operator of the server for more (limits.tenant_disk_mb). Packages free space when they expire."
            ),
        )),
        _ => None,
    }
}

/// Of changes, where there is no field to say it beside.
pub(crate) fn of_admin(error: AdminError) -> Problem {
    match error {
        AdminError::NotFound => Problem::not_found(),
        AdminError::Store(error) => Failed::from(error).into(),
        AdminError::Internal(cause) => Failed::from(cause).into(),
        AdminError::Field(error) => Problem::new(Code::ValidationInvalidField, error.to_string()),
    }
}

/// Of accounts.
impl From<Failed> for Problem {
    fn from(Failed(error): Failed) -> Problem {
        if let Some(known) = known(&error) {
            return known;
        }
        tracing::error!(%error, "a page failed");
        let message = if error == StoreError::NoRoom {
            DISK_FULL
        } else {
            "Something went wrong on the server. Try again in a moment."
        };
        Problem::new(Code::ServerInternal, message)
    }
}

impl From<Response> for Problem {
    fn from(response: Response) -> Problem {
        Problem::Elsewhere(Box::new(response))
    }
}

/// A problem as people read it.
pub struct Shown {
    pub title: &'static str,
    pub code: &'static str,
    pub message: String,
    pub request_id: String,
    pub doc_url: String,
    /// Where they go on.
    pub base: &'static str,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct Page<'a> {
    plain: Plain<'a>,
    shown: Shown,
}

/// A site whose problems keep its frame.
pub trait Framing: Front {
    /// For an account that is signed in; others get the problem alone.
    fn framed(&self, asked: &Asked<Self>, shown: Shown) -> Result<Response, Shown>;
}

/// For somebody who is signed in.
#[derive(Template)]
#[template(path = "problem_framed.html")]
pub(crate) struct Framed<'a> {
    pub shell: Shell<'a>,
    pub shown: Shown,
}

impl Problem {
    pub(crate) fn render<F: Framing>(self, front: &F, asked: &Asked<F>) -> Response {
        let (code, message) = match self {
            Problem::Elsewhere(response) => return *response,
            Problem::Code { code, message } => (code, message),
        };
        let title = match code.status() {
            403 => "Not allowed",
            404 => "Not found",
            429 => "Too many attempts",
            500.. => "Something went wrong",
            _ => "Request failed",
        };
        let shown = Shown {
            title,
            code: code.as_str(),
            message,
            request_id: asked.visit.request_id.to_string(),
            doc_url: format!("{}/errors/{}", front.site().docs_url, code.as_str()),
            base: F::BASE,
        };
        let page = front.framed(asked, shown);
        let page = page.unwrap_or_else(|shown| html(&Page { plain: Plain::of(front, asked), shown }));
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, page).into_response();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let after_s =
                if code == Code::AuthTooManyAttempts { ATTEMPTS_RETRY_AFTER_S } else { BUSY_RETRY_AFTER_S };
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(after_s));
        }
        response
    }
}
