//! A request as pages see it, and the answers that they give.

use askama::Template;
use axum::http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use sealog_service::people::account::SignedInPerson;
use sealog_service::people::sign_in::{Browser, Kind, Token, Visitor};
use sealog_service::{Secret, Visit};

use crate::app::Dashboard;
use crate::front::Front;
pub(crate) use crate::place::Place;

const HX_REQUEST: HeaderName = HeaderName::from_static("hx-request");

/// A request that has passed the gate.
#[derive(Debug)]
pub struct Asked<F: Front = Dashboard> {
    pub visit: Visit,
    pub headers: HeaderMap,
    pub path: String,
    pub query: String,
    /// Of the path, by their names.
    pub parameters: Vec<(String, String)>,
    /// What a form has sent.
    pub form: Vec<(String, Secret)>,
    /// What the browser says to be.
    pub token: Option<Token>,
    /// Who that is.
    pub who: Option<<F::Kind as Kind>::Who>,
    pub place: F::Place,
}

impl<F: Front> Asked<F> {
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// A field of the form; nothing and empty are the same.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.form.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.0.as_str())
    }

    pub(crate) fn secret(&self, name: &str) -> Secret {
        Secret(self.field(name).to_owned())
    }

    /// What stands in the query, decoded, in its order.
    pub(crate) fn query_pairs(&self) -> Vec<(String, String)> {
        form_urlencoded::parse(self.query.as_bytes()).into_owned().collect()
    }

    pub(crate) fn query_value(&self, name: &str) -> Option<String> {
        self.query_pairs().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Whether htmx asks for a part of the page.
    pub(crate) fn wants_part(&self) -> bool {
        self.headers.contains_key(HX_REQUEST)
    }

    pub(crate) fn visitor(&self) -> Visitor {
        let user_agent = self.headers.get(USER_AGENT).map(HeaderValue::as_bytes);
        let user_agent = user_agent.map(|text| String::from_utf8_lossy(text).into_owned());
        Visitor { address: self.visit.address, user_agent }
    }

    /// What the browser has to show when it signs in.
    pub(crate) fn browser(&self, front: &F) -> Browser {
        let device = front.site().cookies.device(&self.headers);
        Browser { visitor: self.visitor(), session: self.token.clone(), device }
    }
}

impl Asked {
    /// The gate lets nobody else through.
    pub(crate) fn person(&self) -> &SignedInPerson {
        self.who.as_ref().expect("the route needs somebody who is signed in")
    }

    pub(crate) fn place(&self) -> &Place {
        self.place.as_ref().expect("the route needs a membership")
    }
}

/// A page. Rendering fails only where writing to memory would.
pub(crate) fn html(page: &dyn askama::DynTemplate) -> Response {
    match page.dyn_render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a template could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(crate) fn html_with(status: StatusCode, page: &dyn askama::DynTemplate) -> Response {
    let mut response = html(page);
    if response.status() == StatusCode::OK {
        *response.status_mut() = status;
    }
    response
}

/// After a form: the browser asks for the page with `GET`.
pub(crate) fn see_other(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/app"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

pub(crate) fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// A path of ours, and no other place: what a link can say about where to go next.
pub(crate) fn own_path(next: &str) -> Option<&str> {
    own_path_beneath("/app", next)
}

/// A path of these pages, and no other place.
pub(crate) fn own_path_beneath<'a>(base: &str, next: &'a str) -> Option<&'a str> {
    let is_ours = next.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (is_ours && is_plain && next.len() <= 1000).then_some(next)
}

pub(crate) fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// In a query string, where a colon and a slash mean nothing: addresses stay short and readable.
pub(crate) fn query_encoded(text: &str) -> String {
    encoded(text).replace("%3A", ":").replace("%2F", "/")
}

/// A query string of these.
pub(crate) fn query_text(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), query_encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    content_type
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The text of a page, for one that is rendered in the thread pool.
pub(crate) fn rendered<T: Template>(page: &T) -> Result<String, askama::Error> {
    page.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_one_of_ours() {
        for path in ["/app", "/app/account", "/app/p/x/live/events?action=a&date_from=2026-01-01"] {
            assert_eq!(own_path(path), Some(path));
        }
        for path in [
            "",
            "/",
            "//example.org",
            "/application",
            "https://example.org/app/",
            "/app/\r\nSet-Cookie: a",
            "/app/é",
            "/app/\\",
        ] {
            assert_eq!(own_path(path), None, "{path}");
        }
    }
}
