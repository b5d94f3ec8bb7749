//! The cookie of an operator's session: another name and another path than that of people, so that neither is
//! ever sent for the other.

use axum::http::HeaderMap;
use sealog_service::people::Token;

use super::request::BASE;
use crate::cookies::{Cookies, cookie};

/// A browser takes a cookie of this prefix from HTTPS alone. `__Host-` would be for all paths.
const SESSION_HTTPS: &str = "__Secure-sealog-ops";
const SESSION_LOOPBACK: &str = "sealog_ops";

#[derive(Clone, Debug)]
pub(super) struct OpsCookies {
    reached: Cookies,
    is_https: bool,
}

impl OpsCookies {
    pub(super) fn new(url: &str) -> OpsCookies {
        OpsCookies { reached: Cookies::new(url), is_https: url.starts_with("https://") }
    }

    pub(super) fn origin(&self) -> &str {
        self.reached.origin()
    }

    /// Whether a session would be safe from whoever listens: over HTTPS, or where nobody listens.
    pub(super) fn are_safe(&self, headers: &HeaderMap) -> bool {
        self.reached.are_safe(headers)
    }

    pub(super) fn session(&self, headers: &HeaderMap) -> Option<Token> {
        cookie(headers, self.name()).and_then(Token::parse)
    }

    pub(super) fn set_session(&self, token: &Token) -> String {
        format!("{}={}; {}", self.name(), token.0.0, self.attributes())
    }

    pub(super) fn clear_session(&self) -> String {
        format!("{}=; Max-Age=0; {}", self.name(), self.attributes())
    }

    fn name(&self) -> &'static str {
        if self.is_https { SESSION_HTTPS } else { SESSION_LOOPBACK }
    }

    /// Not even a link from elsewhere brings it along.
    fn attributes(&self) -> String {
        let secure = if self.is_https { "; Secure" } else { "" };
        format!("Path={BASE}; HttpOnly{secure}; SameSite=Strict")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_of_the_console_alone() {
        let token = Token::parse(&"a".repeat(64)).unwrap();
        let set = OpsCookies::new("https://log.example/ops").set_session(&token);
        assert_eq!(
            set,
            format!("__Secure-sealog-ops={}; Path=/ops; HttpOnly; Secure; SameSite=Strict", token.0.0)
        );
        let local = OpsCookies::new("http://127.0.0.1:1/ops");
        assert_eq!(
            local.set_session(&token),
            format!("sealog_ops={}; Path=/ops; HttpOnly; SameSite=Strict", token.0.0)
        );
        let headers =
            |line: String| HeaderMap::from_iter([("cookie".parse().unwrap(), line.parse().unwrap())]);
        assert_eq!(local.session(&headers(format!("sealog_ops={}", token.0.0))), Some(token.clone()));
        for name in ["sealog_session", "__Host-sealog", "__Secure-sealog-ops"] {
            assert_eq!(local.session(&headers(format!("{name}={}", token.0.0))), None, "{name}");
        }
    }
}
