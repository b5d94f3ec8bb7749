//! Every path that is answered, in one table: requests are matched against it, and the published description of the interface is made from it.

use hyper::Method;
use sealog_core::reject::Reject;

use crate::respond::Failure;

/// A path and what can be done there. A pattern may have one parameter: `{name}` is one segment and not empty, `{*name}` at the end is all that follows.
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

/// The first pattern that fits decides, so that `verify` is no `log_id`. Events come first, since most requests bring one.
pub(crate) static PATHS: [Path<Operation>; 11] = [
    Path {
        pattern: "/v1/events",
        operations: &[(Method::GET, Operation::ListEvents), (Method::POST, Operation::LogEvent)],
    },
    Path { pattern: "/v1/events/batch", operations: &[(Method::POST, Operation::LogBatch)] },
    Path { pattern: "/v1/events/verify", operations: &[(Method::GET, Operation::VerifyChain)] },
    Path { pattern: "/v1/events/{log_id}", operations: &[(Method::GET, Operation::ReadEvent)] },
    Path { pattern: "/v1/actions", operations: &[(Method::GET, Operation::ListActions)] },
    Path { pattern: "/healthz", operations: &[(Method::GET, Operation::Health)] },
    Path { pattern: "/readyz", operations: &[(Method::GET, Operation::Ready)] },
    Path { pattern: METRICS, operations: &[(Method::GET, Operation::Metrics)] },
    Path { pattern: "/openapi.json", operations: &[(Method::GET, Operation::OpenApi)] },
    Path { pattern: "/docs", operations: &[(Method::GET, Operation::Docs)] },
    Path { pattern: "/docs/{*page}", operations: &[(Method::GET, Operation::Docs)] },
];

pub(crate) const METRICS: &str = "/metrics";

/// Paths that do not count towards the limit by address: a probe must not be refused because its neighbours are busy.
pub(crate) const NOT_COUNTED: [&str; 3] = ["/healthz", "/readyz", METRICS];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'p, O> {
    pub operation: O,
    /// Empty where the pattern has none.
    pub parameter: &'p str,
}

/// Where in the table a path stands, whatever the method.
pub(crate) fn position<O>(paths: &[Path<O>], path: &str) -> Option<usize> {
    paths.iter().position(|known| parameter(known.pattern, path).is_some())
}

/// The operation that a request asks for. `HEAD` asks for what `GET` does; its answer is sent without the body.
pub(crate) fn find<'p, O: Copy>(
    paths: &[Path<O>],
    path: &'p str,
    method: &Method,
) -> Result<Found<'p, O>, Failure> {
    let fits = |known: &Path<O>| parameter(known.pattern, path).map(|found| (known.operations, found));
    let (operations, parameter) = paths.iter().find_map(fits).ok_or(Reject::PathNotFound)?;
    let method = if method == Method::HEAD { &Method::GET } else { method };
    match operations.iter().find(|(known, _)| known == method) {
        Some(&(_, operation)) => Ok(Found { operation, parameter }),
        None => {
            let allowed: Vec<&str> = operations.iter().map(|(known, _)| known.as_str()).collect();
            Err(Failure::method_not_allowed(&allowed.join(", ").replace("GET", "GET, HEAD")))
        }
    }
}

/// What stands in a path where the pattern has its parameter; nothing if the path does not fit.
fn parameter<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return (pattern == path).then_some("");
    };
    let (name, after) = rest.split_once('}')?;
    let found = path.strip_prefix(before)?;
    if name.starts_with('*') {
        return Some(found);
    }
    found.strip_suffix(after).filter(|segment| !segment.is_empty() && !segment.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_one_segment_or_all_that_follows() {
        for (pattern, path, found) in [
            ("/a", "/a", Some("")),
            ("/a", "/a/", None),
            ("/a/{x}", "/a/b", Some("b")),
            ("/a/{x}", "/a/", None),
            ("/a/{x}", "/a", None),
            ("/a/{x}", "/a/b/c", None),
            ("/a/{x}/c", "/a/b/c", Some("b")),
            ("/a/{x}/c", "/a//c", None),
            ("/a/{x}/c", "/a/c", None),
            ("/a/{*x}", "/a/b/c", Some("b/c")),
            ("/a/{*x}", "/a/", Some("")),
            ("/a/{*x}", "/a", None),
        ] {
            assert_eq!(parameter(pattern, path), found, "{pattern} {path}");
        }
    }

    #[test]
    fn head_is_found_where_get_is_and_is_listed_with_it() {
        for known in &PATHS {
            let path = known.pattern.replace(['{', '}', '*'], "");
            let of = |method| find(&PATHS, &path, method).ok().map(|found| found.operation);
            assert_eq!(of(&Method::HEAD), of(&Method::GET), "{path}");
        }
    }

    #[test]
    fn no_path_is_hidden_by_one_before_it() {
        for known in &PATHS {
            let (method, operation) = &known.operations[0];
            let path = known.pattern.replace(['{', '}', '*'], "");
            assert_eq!(find(&PATHS, &path, method).unwrap().operation, *operation, "{path}");
        }
    }
}
