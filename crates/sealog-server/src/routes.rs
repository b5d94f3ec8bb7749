//! Every path of the API, in one table: the router, the labels of metrics and the published description of
//! the interface are made from it.

use hyper::Method;

use sealog_service::ingest::Endpoint;

/// A path and what can be done there. A pattern may have parameters: `{name}` is one segment and not empty,
/// `{*name}` at the end is all that follows, or nothing.
#[derive(Debug)]
pub(crate) struct Path<O: 'static> {
    pub pattern: &'static str,
    pub operations: &'static [(Method, O)],
}

/// What the server does outside the operator's interface, which has a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    LogEvent,
    LogBatch,
    IngestJson,
    IngestCloudEvents,
    IngestLogs,
    ListEvents,
    VerifyChain,
    ReadEvent,
    ListActions,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Docs,
}

/// The first pattern that fits decides, as it does in the router, so that `verify` is no `log_id`. Events
/// come first, since most requests bring one.
pub(crate) static PATHS: [Path<Operation>; 14] = [
    Path {
        pattern: EVENTS,
        operations: &[(Method::GET, Operation::ListEvents), (Method::POST, Operation::LogEvent)],
    },
    Path { pattern: BATCH, operations: &[(Method::POST, Operation::LogBatch)] },
    Path { pattern: "/v1/events/verify", operations: &[(Method::GET, Operation::VerifyChain)] },
    Path { pattern: "/v1/events/{log_id}", operations: &[(Method::GET, Operation::ReadEvent)] },
    Path { pattern: "/v1/actions", operations: &[(Method::GET, Operation::ListActions)] },
    Path { pattern: "/ingest/json", operations: &[(Method::POST, Operation::IngestJson)] },
    Path { pattern: "/ingest/cloudevents", operations: &[(Method::POST, Operation::IngestCloudEvents)] },
    Path { pattern: "/ingest/otlp/v1/logs", operations: &[(Method::POST, Operation::IngestLogs)] },
    Path { pattern: "/healthz", operations: &[(Method::GET, Operation::Health)] },
    Path { pattern: "/readyz", operations: &[(Method::GET, Operation::Ready)] },
    Path { pattern: METRICS, operations: &[(Method::GET, Operation::Metrics)] },
    Path { pattern: "/openapi.json", operations: &[(Method::GET, Operation::OpenApi)] },
    Path { pattern: "/docs", operations: &[(Method::GET, Operation::Docs)] },
    Path { pattern: "/docs/{*page}", operations: &[(Method::GET, Operation::Docs)] },
];

/// What paths of the API begin with, whether they exist or not.
pub(crate) const BEGINNING: &str = "/v1/";

const EVENTS: &str = "/v1/events";
const BATCH: &str = "/v1/events/batch";
pub(crate) const METRICS: &str = "/metrics";

/// Paths that do not count towards the limit by address: a probe must not be refused because its neighbours
/// are busy.
pub(crate) const NOT_COUNTED: [&str; 3] = ["/healthz", "/readyz", METRICS];

/// The two requests that bring events. They are most of all requests, and are answered without the router.
pub(crate) fn endpoint(method: &Method, path: &str) -> Option<Endpoint> {
    if method != Method::POST {
        return None;
    }
    match path {
        EVENTS => Some(Endpoint::Single),
        BATCH => Some(Endpoint::Batch),
        _ => None,
    }
}

/// Where in the table a path stands, whatever the method.
pub(crate) fn position<O>(paths: &[Path<O>], path: &str) -> Option<usize> {
    paths.iter().position(|known| fits(known.pattern, path, |_| {}))
}

/// What stands in a path where the pattern has its parameters, in their order and as the client wrote it;
/// nothing if the path does not fit.
pub(crate) fn parameters<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut found = Vec::new();
    fits(pattern, path, |parameter| found.push(parameter)).then_some(found)
}

fn fits<'p>(mut pattern: &str, mut path: &'p str, mut take: impl FnMut(&'p str)) -> bool {
    while let Some((before, rest)) = pattern.split_once('{') {
        let Some((name, after)) = rest.split_once('}') else { return false };
        let Some(found) = path.strip_prefix(before) else { return false };
        if name.starts_with('*') {
            take(found);
            return true;
        }
        let (segment, behind) = found.split_at(found.find('/').unwrap_or(found.len()));
        if segment.is_empty() {
            return false;
        }
        take(segment);
        (pattern, path) = (after, behind);
    }
    pattern == path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_one_segment_or_all_that_follows() {
        for (pattern, path, found) in [
            ("/a", "/a", Some(&[] as &[&str])),
            ("/a", "/a/", None),
            ("/a/{x}", "/a/b", Some(&["b"])),
            ("/a/{x}", "/a/%2F%ff", Some(&["%2F%ff"])),
            ("/a/{x}", "/a/", None),
            ("/a/{x}", "/a", None),
            ("/a/{x}", "/a/b/c", None),
            ("/a/{x}/c", "/a/b/c", Some(&["b"])),
            ("/a/{x}/c", "/a//c", None),
            ("/a/{x}/c", "/a/c", None),
            ("/a/{x}/c/{y}", "/a/b/c/d", Some(&["b", "d"])),
            ("/a/{x}/c/{y}", "/a/b/c/", None),
            ("/a/{x}/c/{*y}", "/a/b/c/d/e", Some(&["b", "d/e"])),
            ("/a/{*x}", "/a/b/c", Some(&["b/c"])),
            ("/a/{*x}", "/a/", Some(&[""])),
            ("/a/{*x}", "/a", None),
        ] {
            assert_eq!(parameters(pattern, path).as_deref(), found, "{pattern} {path}");
        }
    }

    #[test]
    fn no_path_is_hidden_by_one_before_it() {
        for (at, known) in PATHS.iter().enumerate() {
            let path = known.pattern.replace(['{', '}', '*'], "");
            assert_eq!(position(&PATHS, &path), Some(at), "{path}");
        }
    }

    #[test]
    fn what_is_answered_without_the_router_is_what_brings_events() {
        for known in &PATHS {
            for (method, operation) in known.operations {
                let expected = match operation {
                    Operation::LogEvent => Some(Endpoint::Single),
                    Operation::LogBatch => Some(Endpoint::Batch),
                    _ => None,
                };
                assert_eq!(endpoint(method, known.pattern), expected, "{method} {}", known.pattern);
            }
        }
    }
}
