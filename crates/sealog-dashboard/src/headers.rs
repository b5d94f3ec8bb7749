//! Headers of every answer: what a browser may do with a page, and that it keeps none.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::response::Response;

/// Scripts, styles and requests of our own alone: no `style` attribute, no inline script, no eval.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Pages that a link with a secret leads to. The secret is behind the `#`, which no browser sends, but for
/// the one that turns a notice off, which a mail program sends; all the same, nothing of their address
/// leaves, not even to us.
const OF_LINKS: [&str; 5] = ["/app/claim", "/app/reset", "/app/invitation", "/app/unsubscribe", "/ops/enrol"];

/// Whether forms of such a page lead to this path. No session is needed there: a secret that was typed is.
pub(crate) fn hides_origin(path: &str) -> bool {
    // The button for the theme is on every page.
    OF_LINKS.contains(&path) || matches!(path, "/app/theme" | "/ops/theme")
}

/// For the answer to a request for this path.
pub(crate) fn add(path: &str, mut response: Response) -> Response {
    let headers = response.headers_mut();
    // Other sites learn no address from any page. With `no-referrer` an old browser would hide the origin of
    // forms from us, too, by which we know that they are ours.
    let referrer = if OF_LINKS.contains(&path) { "no-referrer" } else { "same-origin" };
    headers.insert(REFERRER_POLICY, HeaderValue::from_static(referrer));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Static files say otherwise.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
