//! Plain HTTP beside TLS: everybody is sent to the address of the dashboard, by its settings and never by
//! what a client calls the server.

use hyper::header::{HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Response, StatusCode};

use crate::respond::{self, Body};

/// Whoever asks on this machine whether the server is up need not believe its certificate for it.
pub(crate) const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Leads to the same path, with the same method (308), at `https` on the host of `app_url`.
pub(crate) fn to_https(parts: &Parts, app_url: &str) -> Option<Response<Body>> {
    let rest = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let location = format!("{}{rest}", origin(app_url)?);
    let mut response = Response::new(respond::full(""));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // The characters of a URI are all allowed in a header.
    response.headers_mut().insert(LOCATION, HeaderValue::try_from(location).ok()?);
    Some(response)
}

/// Scheme, host and port, if it is `https`.
fn origin(url: &str) -> Option<&str> {
    let host = url.strip_prefix("https://")?;
    let length = host.find(['/', '?', '#']).unwrap_or(host.len());
    Some(&url[..url.len() - host.len() + length])
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn location(target: &str, app_url: &str) -> Option<String> {
        let parts =
            Request::builder().uri(target).header("host", "evil.example").body(()).unwrap().into_parts().0;
        let response = to_https(&parts, app_url)?;
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        Some(response.headers()[LOCATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn a_plain_request_is_sent_to_the_host_of_the_dashboard_whatever_host_it_names() {
        let app_url = "https://log.example:8443/app";
        for (target, expected) in [
            ("/", "https://log.example:8443/"),
            ("/v1/events?limit=2", "https://log.example:8443/v1/events?limit=2"),
            ("http://evil.example/app/x", "https://log.example:8443/app/x"),
            ("//evil.example/x", "https://log.example:8443//evil.example/x"),
        ] {
            assert_eq!(location(target, app_url).as_deref(), Some(expected));
        }
        assert_eq!(location("/", "https://log.example").as_deref(), Some("https://log.example/"));
    }

    #[test]
    fn nobody_is_sent_from_plain_http_to_plain_http() {
        assert_eq!(location("/", "http://log.example/app"), None);
    }
}
