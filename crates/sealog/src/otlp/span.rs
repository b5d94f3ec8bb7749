//! One request as a span, in the JSON form of OTLP.

use std::time::{SystemTime, UNIX_EPOCH};

use sealog_server::traces::Answered;
use serde_json::{Value, json};

/// Kind and status by their numbers in OTLP.
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// The trace that a request belongs to, and the span above it.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// Otherwise the trace begins here.
    pub(super) is_of_caller: bool,
    pub(super) is_sampled: bool,
}

impl Parent {
    /// `00-<trace id>-<span id>-<flags>`: W3C Trace Context, also of a later version, whose beginning is the
    /// same.
    fn parse(text: &[u8]) -> Option<Parent> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.splitn(5, '-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_known = version.len() == 2 && version != "ff" && (version != "00" || parts.next().is_none());
        let parent = Parent {
            trace_id: bytes(trace_id)?,
            span_id: bytes(span_id)?,
            is_of_caller: true,
            is_sampled: bytes::<1>(flags)?[0] & 1 == 1,
        };
        bytes::<1>(version)?;
        (is_known && parent.trace_id != [0; 16] && parent.span_id != [0; 8]).then_some(parent)
    }

    fn new() -> Option<Parent> {
        let mut trace_id = [0; 16];
        getrandom::fill(&mut trace_id).ok()?;
        Some(Parent { trace_id, span_id: [0; 8], is_of_caller: false, is_sampled: false })
    }
}

/// Lower-case hexadecimal digits of just this many bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    (!text.bytes().any(|digit| digit.is_ascii_uppercase())).then_some(bytes)
}

#[derive(Debug)]
pub(super) struct Span {
    parent: Parent,
    id: [u8; 8],
    begun_ns: u128,
    ended_ns: u128,
    route: Option<&'static str>,
    method: &'static str,
    status: u16,
    request_id: String,
}

impl Span {
    /// Nothing for a request that is not to be traced.
    pub(super) fn of(
        answered: &Answered<'_>,
        ended: SystemTime,
        is_sampled: impl FnOnce(&Parent) -> bool,
    ) -> Option<Span> {
        let parent = answered.traceparent.and_then(Parent::parse).or_else(Parent::new)?;
        if !is_sampled(&parent) {
            return None;
        }
        let mut id = [0; 8];
        getrandom::fill(&mut id).ok()?;
        let ended_ns = ended.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        Some(Span {
            parent,
            id,
            begun_ns: ended_ns.saturating_sub(answered.took.as_nanos()),
            ended_ns,
            route: answered.route,
            method: answered.method,
            status: answered.status,
            request_id: answered.request_id.to_string(),
        })
    }

    fn to_json(&self) -> Value {
        // By convention a method that is not known is `_OTHER`, and `HTTP` in a name; a path without a
        // pattern is in neither.
        let (method, verb) =
            if self.method == "other" { ("_OTHER", "HTTP") } else { (self.method, self.method) };
        let mut attributes = vec![
            attribute("http.request.method", method),
            json!({ "key": "http.response.status_code", "value": { "intValue": self.status.to_string() } }),
            attribute("sealog.request_id", &self.request_id),
        ];
        attributes.extend(self.route.map(|route| attribute("http.route", route)));
        let mut span = json!({
            "traceId": hex::encode(self.parent.trace_id),
            "spanId": hex::encode(self.id),
            "name": self.route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}")),
            "kind": SERVER,
            "startTimeUnixNano": self.begun_ns.to_string(),
            "endTimeUnixNano": self.ended_ns.to_string(),
            "attributes": attributes,
        });
        if self.parent.is_of_caller {
            span["parentSpanId"] = hex::encode(self.parent.span_id).into();
        }
        // By convention only what the server is to blame for is an error of the server's span.
        if self.status >= 500 {
            span["status"] = json!({ "code": ERROR });
        }
        span
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The body of a request to the receiver.
pub(super) fn to_json(spans: &[Span], resource: &[(String, String)]) -> String {
    let attributes: Vec<Value> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let spans: Vec<Value> = spans.iter().map(Span::to_json).collect();
    let scope = json!({ "name": "sealog", "version": env!("CARGO_PKG_VERSION") });
    json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes },
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sealog_core::id::{RequestId, Ulid};

    use super::*;

    #[test]
    fn only_a_traceparent_as_the_standard_has_it_is_believed() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = Parent::parse(good.as_bytes()).unwrap();
        assert!(parent.is_sampled && parent.is_of_caller);
        assert_eq!(
            (hex::encode(parent.trace_id).as_str(), hex::encode(parent.span_id).as_str()),
            (&good[3..35], &good[36..52])
        );
        assert!(!Parent::parse(good.replace("-01", "-00").as_bytes()).unwrap().is_sampled);
        assert!(Parent::parse(format!("cc{}-later", &good[2..]).as_bytes()).is_some());
        for wrong in [
            "",
            "00",
            &good[..54],
            &good.to_uppercase(),
            &good.replace("00-0a", "ff-0a"),
            &format!("{good}-more"),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &good.replace("b7ad6b7169203331", &"0".repeat(16)),
            &good.replace("0af7", "0ag7"),
        ] {
            assert!(Parent::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(Parent::parse(b"\xff").is_none());
    }

    #[test]
    fn an_error_of_the_server_is_one_of_its_span_and_an_error_of_the_client_is_not() {
        for (status, is_error) in [(202, false), (422, false), (500, true), (503, true)] {
            let answered = Answered {
                route: Some("/v1/events/{log_id}"),
                method: "GET",
                status,
                request_id: RequestId(Ulid(1)),
                took: Duration::from_secs(1),
                traceparent: None,
            };
            let span = Span::of(&answered, UNIX_EPOCH + Duration::from_secs(9), |_| true).unwrap().to_json();
            assert_eq!(span.get("status").is_some(), is_error, "{status}");
            assert_eq!(span["startTimeUnixNano"], "8000000000");
            assert!(span.get("parentSpanId").is_none(), "the trace begins here");
        }
    }

    #[test]
    fn a_span_has_the_name_that_conventions_give_it_and_never_what_a_client_wrote() {
        for (method, route, name) in [
            ("GET", Some("/v1/events/{log_id}"), "GET /v1/events/{log_id}"),
            ("GET", None, "GET"),
            ("other", Some("/v1/events"), "HTTP /v1/events"),
            ("other", None, "HTTP"),
        ] {
            let answered = Answered {
                route,
                method,
                status: 404,
                request_id: RequestId(Ulid(1)),
                took: Duration::ZERO,
                traceparent: None,
            };
            let span = Span::of(&answered, UNIX_EPOCH + Duration::from_secs(9), |_| true).unwrap().to_json();
            assert_eq!(span["name"], name);
            let attributes = span["attributes"].to_string();
            assert_eq!(attributes.contains("\"_OTHER\""), method == "other", "{attributes}");
            assert_eq!(attributes.contains("http.route"), route.is_some(), "{attributes}");
        }
    }
}
