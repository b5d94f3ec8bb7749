//! `/docs`: the documentation in the binary, as `sealog-docs` renders it. What `doc_url` leads to is part of
//! it.

use sealog_core::plan::Plan;
use std::sync::OnceLock;

use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, ETAG,
    HeaderName, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::query;
use sealog_core::reject::Reject;
use sealog_docs::{Given, Site, Theme};

use crate::config::Config;
use crate::openapi;
use crate::respond::{Body, Failure, full, with_type};

/// As the dashboard has it: scripts, styles and requests of our own alone. A test compares the two.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";

/// The dashboard's choice of a theme, which it sets for `/docs`, too.
const THEME_COOKIE: &str = "sealog_theme";

/// Kept by whoever wants to, but asked about each time: the next version may have another.
const ASK: &str = "no-cache";
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The pages of this server. They are made when the first one is asked for, or before ([`Docs::prepare`]).
#[derive(Debug, Default)]
pub(crate) struct Docs(OnceLock<Site>);

impl Docs {
    fn site(&self, config: &Config, plans: &[Plan]) -> &Site {
        self.0.get_or_init(|| {
            let openapi = openapi::document(config, plans);
            Site::new(&Given {
                openapi: &openapi,
                program: &config.program,
                base_url: &config.base_url,
                version: env!("CARGO_PKG_VERSION"),
            })
        })
    }

    /// Makes all pages and the index: a moment's work that no request should wait for.
    pub(crate) fn prepare(&self, config: &Config, plans: &[Plan]) {
        self.site(config, plans).prepare();
    }

    /// Answers a request under `/docs/`; `path` is what comes after it.
    pub(crate) fn answer(
        &self,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        (config, plans): (&Config, &[Plan]),
    ) -> Result<Response<Body>, Failure> {
        let site = self.site(config, plans);
        let path = path.trim_end_matches('/');
        let mut response = if path == "search" {
            let html = site.search(&words(query), theme(headers));
            let mut response = with_type(StatusCode::OK, HTML, html);
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(ASK));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Cookie"));
            response
        } else if let Some(asset) = site.asset(path) {
            content(asset.content_type, asset.content.to_vec(), &asset.compressed, FOR_EVER, headers)
        } else {
            let document = site.page(path, theme(headers)).ok_or(Reject::PathNotFound)?;
            let etag = HeaderValue::try_from(&*document.etag).expect("hex digits in quotes");
            let mut response = if headers.get_all(IF_NONE_MATCH).iter().any(|known| *known == etag) {
                let mut response = Response::new(full(""));
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(ASK));
                response
            } else {
                content(HTML, document.html.as_bytes().to_vec(), &document.compressed, ASK, headers)
            };
            response.headers_mut().insert(ETAG, etag);
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding, Cookie"));
            response
        };
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}

fn content(
    content_type: &'static str,
    plain: Vec<u8>,
    compressed: &[u8],
    caching: &'static str,
    headers: &HeaderMap,
) -> Response<Body> {
    let is_compressed = takes_gzip(headers);
    let mut response =
        with_type(StatusCode::OK, content_type, if is_compressed { compressed.to_vec() } else { plain });
    let answered = response.headers_mut();
    answered.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answered.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    answered.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_compressed {
        answered.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    accepted.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// That of the system where nothing was chosen, or nothing that there is.
fn theme(headers: &HeaderMap) -> Theme {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let chosen = pairs.find(|(name, _)| *name == THEME_COOKIE);
    chosen.and_then(|(_, value)| Theme::parse(value)).unwrap_or_default()
}

/// What was searched for: the first `q`. Anything else in the query is for nobody.
fn words(query: &str) -> String {
    let first = query.split('&').find_map(|pair| pair.strip_prefix("q="));
    first.and_then(query::form_decode).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sealog_core::reject::CODES;

    use super::*;

    fn status(path: &str) -> Option<u16> {
        static DOCS: Docs = Docs(OnceLock::new());
        let answer = DOCS.answer(path, "", &HeaderMap::new(), (&Config::at("http://x"), &Plan::defaults()));
        answer.ok().map(|response| response.status().as_u16())
    }

    #[test]
    fn every_code_has_a_page() {
        for row in CODES {
            assert_eq!(status(&format!("errors/{}", row.text)), Some(200), "{}", row.text);
        }
        for path in ["", "errors", "errors/", "quickstart", "search", "api/events", "frameworks/soc2"] {
            assert_eq!(status(path), Some(200), "{path}");
        }
        for path in
            ["errors/auth", "errors/auth/nope", "x", "errors/auth/missing_header/x", "static/0/app.css"]
        {
            assert_eq!(status(path), None, "{path}");
        }
    }

    #[test]
    fn a_theme_is_found_among_other_cookies_and_what_is_none_is_that_of_the_system() {
        for (line, expected) in [
            ("", Theme::System),
            ("sealog_theme=dark", Theme::Dark),
            ("a=1; sealog_theme=light;b=2", Theme::Light),
            ("xsealog_theme=dark", Theme::System),
            ("sealog_theme=\"><b>", Theme::System),
        ] {
            let headers = [(COOKIE, HeaderValue::from_static(line))].into_iter().collect();
            assert_eq!(theme(&headers), expected, "{line}");
        }
    }

    #[test]
    fn what_is_searched_for_is_the_first_q() {
        assert_eq!(words("a=1&q=a+b%2Fc&q=d"), "a b/c");
        assert_eq!(words("q=%ff"), "");
        assert_eq!(words(""), "");
    }
}
