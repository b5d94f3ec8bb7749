//! Responses: JSON bodies, and the one envelope that all errors have. Spec 2.7.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, combinators::UnsyncBoxBody};
use hyper::body::{Frame, SizeHint};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::reject::{Code, Reject};

use crate::budget::Share;
use crate::config::Config;

/// Most answers are one piece.
pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, std::io::Error>>;

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

/// A body that keeps its share of memory until it is sent.
struct Held<B> {
    body: B,
    _share: Share,
}

impl<B: hyper::body::Body<Data = Bytes> + Unpin> hyper::body::Body for Held<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub(crate) fn held<B>(share: Share, body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes, Error = std::io::Error> + Send + Unpin + 'static,
{
    Either::Right(Held { body, _share: share }.boxed_unsync())
}

/// As [`json`], for content that may be large.
pub(crate) fn large_json(status: StatusCode, content: Vec<u8>, mut share: Share) -> Response<Body> {
    share.shrink(content.len());
    let body = Full::new(Bytes::from(content)).map_err(|never| match never {});
    json(status, "").map(|_| held(share, body))
}

/// A request that was not carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// For `action/invalid`: the closest known name.
    suggestion: Option<String>,
    allow: Option<String>,
    /// The rest of the body was not read, so the connection cannot be used again.
    close: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), suggestion: None, allow: None, close: false }
    }

    pub(crate) fn in_batch(reject: Reject, index: usize) -> Failure {
        Failure { message: reject.message_in_batch(index), ..Failure::from(reject) }
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Failure {
        Failure { allow: Some(allow.to_owned()), ..Failure::from(Reject::MethodNotAllowed) }
    }

    pub(crate) fn closing(self) -> Failure {
        Failure { close: true, ..self }
    }

    /// A store that could not write. What happened goes to the log, once, here; the client learns what to do.
    pub(crate) fn write(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        tracing::error!(%request_id, %error, "an event could not be written");
        Failure::new(Code::EventWriteFailed, Code::EventWriteFailed.row().meaning)
    }

    pub(crate) fn read(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        tracing::error!(%request_id, %error, "a read failed");
        Failure::new(Code::ReadQueryFailed, Code::ReadQueryFailed.row().meaning)
    }

    pub(crate) fn internal(error: &dyn std::fmt::Display, request_id: RequestId) -> Failure {
        tracing::error!(%request_id, %error, "a request failed");
        Failure::new(Code::ServerInternal, Code::ServerInternal.row().meaning)
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
        serde_json::json!({ "error": error }).to_string()
    }

    pub(crate) fn into_response(self, request_id: RequestId, config: &Config) -> Response<Body> {
        let status = self.status();
        let mut response = json(status, self.envelope(request_id, config));
        let headers = response.headers_mut();
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
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

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Failure {
        let mut failure = Failure::new(reject.code(), reject.to_string());
        if let Reject::ActionInvalid { suggestion, .. } = reject {
            failure.suggestion = suggestion;
        }
        failure
    }
}
