//! Responses: JSON bodies, and the one envelope that all errors have. Spec 2.7.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Frame, SizeHint};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::reject::{Code, Reject};
use sealog_service::ingest::IngestError;
use sealog_store::StoreError;

use crate::budget::Share;
use crate::config::Config;
use crate::connections::Place;

/// Most answers are one piece. What comes from the router is boxed, and may come in pieces.
pub(crate) type Body = Either<Full<Bytes>, axum::body::Body>;

/// What a handler answers.
pub(crate) type Answer = Result<Response<Body>, Failure>;

pub(crate) fn full(content: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(content.into()))
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    with_type(status, "application/json", body)
}

pub(crate) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// As [`json`], for content that may be large: its share of memory is kept until the last byte is sent.
pub(crate) fn large_json(status: StatusCode, content: Vec<u8>, mut share: Share) -> Response<Body> {
    json(status, share.hold(content))
}

/// A body that comes in pieces.
pub(crate) fn in_pieces<B>(body: B) -> Response<Body>
where
    B: hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
{
    json(StatusCode::OK, "").map(|_| Either::Right(axum::body::Body::new(body)))
}

/// Notes that the connection is no longer in use when the answer is with it: at once, or, for one that comes
/// in pieces, with the last piece.
pub(crate) fn until_sent(response: Response<Body>, place: Arc<Place>) -> Response<Body> {
    response.map(|body| match body {
        Either::Left(whole) => {
            place.end_request();
            Either::Left(whole)
        }
        Either::Right(pieces) => Either::Right(axum::body::Body::new(UntilSent { pieces, place })),
    })
}

struct UntilSent {
    pieces: axum::body::Body,
    place: Arc<Place>,
}

impl hyper::body::Body for UntilSent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.pieces).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.pieces.size_hint()
    }
}

impl Drop for UntilSent {
    fn drop(&mut self) {
        self.place.end_request();
    }
}

/// A full disk or a database that is down fails every request: one line a second tells it, with the number of
/// those it leaves out.
static WRITE_FAILURES: LineLimit = LineLimit::new();
static READ_FAILURES: LineLimit = LineLimit::new();

/// Says how many lines were left out since the last one, where no other has followed that could.
pub(crate) fn say_left_out() {
    let now = Instant::now();
    if let Some(left_out) = WRITE_FAILURES.settle(now) {
        tracing::error!(left_out, "failed to write more events, for the same or other reasons");
    }
    if let Some(left_out) = READ_FAILURES.settle(now) {
        tracing::error!(left_out, "more reads failed, for the same or other reasons");
    }
}

/// Lets one line a second through, and counts the others.
#[derive(Debug)]
struct LineLimit(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    last: Option<Instant>,
    left_out: u64,
}

const LINE_EVERY: Duration = Duration::from_secs(1);

impl LineLimit {
    const fn new() -> LineLimit {
        LineLimit(Mutex::new(Lines { last: None, left_out: 0 }))
    }

    /// Whether a line may be written, and how many were left out before it.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            lines.left_out += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }

    /// How many were left out, if it is time to say so.
    fn settle(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = lines.last.is_some_and(|last| now.saturating_duration_since(last) >= LINE_EVERY);
        if !due || lines.left_out == 0 {
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

/// An answer as the router takes it.
pub(crate) fn into_router(answer: Answer) -> axum::response::Response {
    match answer {
        Ok(response) => response.map(|body| match body {
            Either::Left(whole) => axum::body::Body::new(whole),
            Either::Right(pieces) => pieces,
        }),
        Err(failure) => failure.into_response(),
    }
}

/// An answer as the router gives it. hyper writes the length of a body that it knows, and knows which answers
/// have none: axum's header would stand in a 304 too.
pub(crate) fn from_router(mut response: axum::response::Response) -> Answer {
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        return Err(failure.with_headers(std::mem::take(response.headers_mut())));
    }
    let length = hyper::body::Body::size_hint(response.body()).exact();
    let stated = response.headers().get(CONTENT_LENGTH).and_then(|stated| stated.to_str().ok()?.parse().ok());
    if length.is_some() && length == stated {
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(response.map(Either::Right))
}

/// A request that was not carried out.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// For `action/invalid`: the closest known name.
    suggestion: Option<String>,
    allow: Option<String>,
    /// When the same request may succeed. 429 has it always.
    retry_after_s: Option<u32>,
    /// Where the next request begins cannot be told, so the connection cannot be used again.
    close: bool,
    /// A 503 in place of the code's own status, for senders that give up otherwise.
    is_unavailable: bool,
    /// Members of the error object that few errors have.
    further: Vec<(&'static str, serde_json::Value)>,
    /// What layers of the router have added.
    headers: Option<Box<HeaderMap>>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            suggestion: None,
            allow: None,
            retry_after_s: None,
            close: false,
            is_unavailable: false,
            further: Vec::new(),
            headers: None,
        }
    }

    /// Why events were not stored.
    pub(crate) fn ingest(error: IngestError, request_id: RequestId) -> Failure {
        match error {
            IngestError::Reject(reject) => reject.into(),
            IngestError::InBatch { reject, index } => {
                Failure { message: reject.message_in_batch(index), ..Failure::from(reject) }
            }
            // The log has had its line when it became so.
            IngestError::Store(StoreError::Superseded { .. }) => {
                Failure::new(Code::EventSuperseded, Code::EventSuperseded.row().meaning)
            }
            IngestError::Store(error) => Failure::write(&error, request_id),
            IngestError::Internal(cause) => Failure::internal(&cause, request_id),
        }
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Failure {
        Failure { allow: Some(allow.to_owned()), ..Failure::from(Reject::MethodNotAllowed) }
    }

    /// Not HTTP/1.1 as this server reads it. Whatever follows on the connection is not read either.
    pub(crate) fn malformed(message: &str) -> Failure {
        Failure::new(Code::RequestMalformed, message).closing()
    }

    pub(crate) fn closing(self) -> Failure {
        Failure { close: true, ..self }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn saying(self, message: String) -> Failure {
        Failure { message, ..self }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Failure {
        self.further.push((name, value.into()));
        self
    }

    pub(crate) fn retry_after(self, wait: Duration) -> Failure {
        let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        Failure { retry_after_s: Some(seconds.max(1)), ..self }
    }

    pub(crate) fn unavailable(self) -> Failure {
        Failure { is_unavailable: true, ..self }
    }

    fn with_headers(self, mut headers: HeaderMap) -> Failure {
        // That of the empty body under which the failure travelled.
        headers.remove(CONTENT_LENGTH);
        Failure { headers: (!headers.is_empty()).then(|| Box::new(headers)), ..self }
    }

    /// A store that could not write. What happened goes to the log, once, here; the client learns what to do.
    pub(crate) fn write(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        match WRITE_FAILURES.admit(Instant::now()) {
            Some(0) => tracing::error!(%request_id, %error, "failed to write an event"),
            Some(left_out) => {
                tracing::error!(%request_id, %error, left_out, "failed to write events");
            }
            None => tracing::debug!(%request_id, %error, "failed to write an event"),
        }
        Failure::new(Code::EventWriteFailed, Code::EventWriteFailed.row().meaning)
    }

    pub(crate) fn read(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        match READ_FAILURES.admit(Instant::now()) {
            Some(0) => tracing::error!(%request_id, %error, "a read failed"),
            Some(left_out) => tracing::error!(%request_id, %error, left_out, "reads failed"),
            None => tracing::debug!(%request_id, %error, "a read failed"),
        }
        Failure::new(Code::ReadQueryFailed, Code::ReadQueryFailed.row().meaning)
    }

    pub(crate) fn internal(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        tracing::error!(%request_id, %error, "a request failed");
        Failure::new(Code::ServerInternal, Code::ServerInternal.row().meaning)
    }

    /// Control data that could not be read or changed. That it is away has had its line in the log.
    pub(crate) fn control(error: &StoreError, request_id: RequestId) -> Failure {
        match error {
            StoreError::ControlUnavailable(_) => {
                tracing::debug!(%request_id, %error, "a request cannot be checked");
                let code = Code::ServerControlUnavailable;
                Failure::new(code, code.row().meaning)
            }
            StoreError::TenantFull { .. } => {
                let code = Code::TenantDiskUsedUp;
                Failure::new(code, code.row().meaning)
            }
            _ => Failure::internal(error, request_id),
        }
    }

    /// The answer to a request that hyper could not parse, byte for byte.
    pub(crate) fn to_bytes(&self, request_id: RequestId, config: &Config) -> Vec<u8> {
        let body = self.envelope(request_id, config);
        let status = self.status();
        let reason = status.canonical_reason().unwrap_or("Error");
        format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\nx-request-id: {request_id}\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            status.as_u16(),
            body.len()
        )
        .into_bytes()
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    fn status(&self) -> StatusCode {
        if self.is_unavailable {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn envelope(&self, request_id: RequestId, config: &Config) -> String {
        let mut error = serde_json::Map::new();
        let code = self.code.as_str();
        error.insert("code".into(), code.into());
        error.insert("message".into(), self.message.as_str().into());
        error.insert("request_id".into(), request_id.to_string().into());
        error.insert("doc_url".into(), config.doc_url(code).into());
        if let Some(suggestion) = &self.suggestion {
            error.insert("suggestion".into(), suggestion.as_str().into());
        }
        if self.code == Code::ActionInvalid {
            error.insert("valid_actions_url".into(), format!("{}/v1/actions", config.base_url).into());
        }
        error.extend(self.further.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        serde_json::json!({ "error": error }).to_string()
    }

    /// The answer that says so.
    pub(crate) fn render(self, request_id: RequestId, config: &Config) -> Response<Body> {
        let status = self.status();
        let mut response = json(status, self.envelope(request_id, config));
        let headers = response.headers_mut();
        if let Some(added) = self.headers {
            let own = std::mem::replace(headers, *added);
            headers.extend(own);
        }
        let at_least = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        if let Some(seconds) = self.retry_after_s.or(at_least) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::try_from(allow).expect("names of methods"));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Travels through the router's layers as it is. Its envelope is written where the request's id is known.
impl IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        let mut response = StatusCode::into_response(self.status());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Failure {
        let mut failure = Failure::new(reject.code(), reject.to_string());
        if let Reject::ActionInvalid { suggestion, .. } = reject {
            failure.suggestion = suggestion;
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_is_logged_and_the_others_are_counted() {
        let (limit, begun) = (LineLimit::new(), Instant::now());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(limit.settle(at(0)), None);
        let mut said = Vec::new();
        // A refusal every millisecond for eight seconds.
        for ms in 0..8000 {
            said.extend(limit.admit(at(ms)));
        }
        assert_eq!(said, [0, 999, 999, 999, 999, 999, 999, 999]);
        assert_eq!(limit.settle(at(7999)), None, "a second has not gone by");
        assert_eq!(limit.settle(at(8000)), Some(999));
        assert_eq!(limit.settle(at(9000)), None, "once");
        assert_eq!(limit.admit(at(9000)), Some(0));
    }

    /// A body whose length only its maker knows.
    struct Unknown;

    impl hyper::body::Body for Unknown {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(None)
        }
    }

    /// As a router gives it back, with a header of a layer's.
    fn through_router(response: impl IntoResponse) -> axum::response::Response {
        let mut response = response.into_response();
        let length = hyper::body::Body::size_hint(response.body()).exact();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length.unwrap_or(7)));
        response.headers_mut().insert("x-layer", HeaderValue::from_static("added"));
        response
    }

    #[test]
    fn a_failure_keeps_what_layers_have_added_and_is_otherwise_its_envelope() {
        let config = Config::at("https://log.example");
        let request_id = RequestId(sealog_core::id::Ulid(1));
        let failure = || Failure::method_not_allowed("GET, HEAD").closing();
        let mut expected = failure().render(request_id, &config);
        expected.headers_mut().insert("x-layer", HeaderValue::from_static("added"));
        let carried = from_router(through_router(failure())).unwrap_err().render(request_id, &config);
        assert_eq!((carried.status(), carried.headers()), (expected.status(), expected.headers()));
        assert_eq!(format!("{:?}", carried.body()), format!("{:?}", expected.body()));
    }

    #[test]
    fn a_length_that_hyper_knows_is_left_to_hyper() {
        let kept = |response| from_router(response).unwrap().headers().contains_key(CONTENT_LENGTH);
        assert!(!kept(through_router("text")));
        assert!(!kept(through_router(StatusCode::NOT_MODIFIED)));
        // One that a page has set itself.
        assert!(kept(through_router(axum::body::Body::new(Unknown))));
    }
}
