//! Cookies: the session's token, what a browser is known again by, and the choice of a theme. That of
//! shortcuts is in `shortcuts.rs`.

use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HOST};
use sealog_service::people::sign_in::Token;

/// The cookies of one kind of account. No name is another kind's, so that neither is ever read as the other.
#[derive(Debug)]
pub(crate) struct Jar {
    /// Over HTTPS, and on this machine.
    session: [&'static str; 2],
    device: [&'static str; 2],
    /// What the next page shows once.
    once: [&'static str; 2],
    path: &'static str,
    same_site: &'static str,
}

/// A browser takes a cookie of the prefix `__Host-` from HTTPS alone, from this host alone, for all of its
/// paths.
pub(crate) static PEOPLE: Jar = Jar {
    session: ["__Host-sealog", "sealog_session"],
    device: ["__Host-sealog_device", "sealog_device"],
    once: ["__Host-sealog_once", "sealog_once"],
    path: "/",
    same_site: "Lax",
};

/// `__Host-` would be for all paths; `__Secure-` is from HTTPS alone. Not even a link from elsewhere brings
/// these cookies along.
pub(crate) static OPERATORS: Jar = Jar {
    session: ["__Secure-sealog-ops", "sealog_ops"],
    device: ["__Secure-sealog-ops-device", "sealog_ops_device"],
    once: ["__Secure-sealog-ops-once", "sealog_ops_once"],
    path: "/ops",
    same_site: "Strict",
};

/// How cookies are written, which follows from how a browser reaches the pages.
#[derive(Clone, Debug)]
pub struct Cookies {
    jar: &'static Jar,
    /// `https://host:port`
    origin: String,
    is_https: bool,
    is_loopback: bool,
}

/// A year.
const THEME_S: u64 = 365 * 24 * 60 * 60;
/// The server's pages of the documentation know it by this name, too.
const THEME: &str = "sealog_theme";
/// As long as a browser may take from a form to the page behind it.
const ONCE_S: u64 = 60;
/// As long as browsers keep a cookie: 400 days. Every sign-in sets it again.
const DEVICE_S: u64 = 400 * 24 * 60 * 60;

impl Cookies {
    pub(crate) fn new(jar: &'static Jar, url: &str) -> Cookies {
        let is_https = url.starts_with("https://");
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let authority = rest.split('/').next().unwrap_or("");
        Cookies {
            jar,
            origin: format!("{scheme}://{authority}").to_ascii_lowercase(),
            is_https,
            is_loopback: is_loopback(authority),
        }
    }

    /// Of the pages, as a browser names it in `Origin`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether a session would be safe from whoever listens: over HTTPS, or where nobody listens.
    pub(crate) fn are_safe(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        self.is_https || self.is_loopback && host.is_some_and(is_loopback)
    }

    pub(crate) fn session(&self, headers: &HeaderMap) -> Option<Token> {
        cookie(headers, self.name(&self.jar.session)).and_then(Token::parse)
    }

    /// By which a browser is known again that has signed in before. It opens nothing.
    pub(crate) fn device(&self, headers: &HeaderMap) -> Option<Token> {
        cookie(headers, self.name(&self.jar.device)).and_then(Token::parse)
    }

    /// The cookie ends with the browser's session or with ours, whichever is first: the server decides.
    pub(crate) fn set_session(&self, token: &Token) -> String {
        format!("{}={}; {}", self.name(&self.jar.session), token.0.0, self.attributes())
    }

    pub(crate) fn clear_session(&self) -> String {
        format!("{}=; Max-Age=0; {}", self.name(&self.jar.session), self.attributes())
    }

    pub(crate) fn set_device(&self, token: &Token) -> String {
        let name = self.name(&self.jar.device);
        format!("{name}={}; Max-Age={DEVICE_S}; {}", token.0.0, self.attributes())
    }

    /// A token on its way from a form to the page that shows it once: what a form has made is not made again
    /// when that page is loaded again, and any node can answer for it.
    pub(crate) fn set_once(&self, token: &Token) -> String {
        let name = self.name(&self.jar.once);
        format!("{name}={}; Max-Age={ONCE_S}; {}", token.0.0, self.attributes())
    }

    pub(crate) fn once(&self, headers: &HeaderMap) -> Option<Token> {
        cookie(headers, self.name(&self.jar.once)).and_then(Token::parse)
    }

    pub(crate) fn clear_once(&self) -> String {
        format!("{}=; Max-Age=0; {}", self.name(&self.jar.once), self.attributes())
    }

    fn name(&self, [https, loopback]: &[&'static str; 2]) -> &'static str {
        if self.is_https { https } else { loopback }
    }

    fn attributes(&self) -> String {
        let secure = if self.is_https { "; Secure" } else { "" };
        format!("Path={}; HttpOnly{secure}; SameSite={}", self.jar.path, self.jar.same_site)
    }
}

/// What the person chose over what the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Theme; 3] = [Theme::System, Theme::Light, Theme::Dark];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Theme> {
        Theme::ALL.into_iter().find(|theme| theme.as_str() == text)
    }

    pub(crate) fn of(headers: &HeaderMap) -> Theme {
        cookie(headers, THEME).and_then(Theme::parse).unwrap_or(Theme::System)
    }

    /// The one that a button offers next.
    pub(crate) fn next(self) -> Theme {
        match self {
            Theme::System => Theme::Light,
            Theme::Light => Theme::Dark,
            Theme::Dark => Theme::System,
        }
    }

    /// For the pages beneath a path, and for the documentation: two cookies, since neither the API nor the
    /// other pages need to be told.
    pub(crate) fn cookies(self, base: &str) -> [String; 2] {
        [base, "/docs"].map(|path| {
            format!("{THEME}={}; Path={path}; Max-Age={THEME_S}; HttpOnly; SameSite=Lax", self.as_str())
        })
    }
}

pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = pairs.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// `localhost`, `127.0.0.1:8080`, `[::1]:8080`
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => authority.split(':').next().unwrap_or(""),
    };
    let is_name = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    is_name || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_session_is_safe_over_https_and_on_this_machine() {
        let safe = |app_url, host: &str| Cookies::new(&PEOPLE, app_url).are_safe(&headers(&[("host", host)]));
        assert!(safe("https://log.example/app", "log.example"));
        // Where TLS ends is not for the server to know.
        assert!(safe("https://log.example/app", "10.0.0.1:8080"));
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "a.localhost"] {
            assert!(safe("http://127.0.0.1:8080/app", host), "{host}");
            assert!(safe("http://[::1]:8080/app", host), "{host}");
        }
        for host in ["192.168.1.2:8080", "log.example", "127.0.0.1.example", "localhost.example", ""] {
            assert!(!safe("http://127.0.0.1:8080/app", host), "{host}");
        }
        assert!(!safe("http://log.example/app", "localhost:8080"));
        assert!(!Cookies::new(&PEOPLE, "http://localhost/app").are_safe(&HeaderMap::new()));
    }

    #[test]
    fn the_cookie_of_https_is_bound_to_its_host() {
        let token = "a".repeat(64);
        let set =
            Cookies::new(&PEOPLE, "https://log.example/app").set_session(&Token::parse(&token).unwrap());
        assert_eq!(set, format!("__Host-sealog={token}; Path=/; HttpOnly; Secure; SameSite=Lax"));
        let set = Cookies::new(&PEOPLE, "http://localhost:1/app").set_session(&Token::parse(&token).unwrap());
        assert_eq!(set, format!("sealog_session={token}; Path=/; HttpOnly; SameSite=Lax"));
    }

    #[test]
    fn the_cookies_of_one_kind_are_never_those_of_the_other() {
        let token = Token::parse(&"a".repeat(64)).unwrap();
        let https = Cookies::new(&OPERATORS, "https://log.example/ops");
        let attributes = "Path=/ops; HttpOnly; Secure; SameSite=Strict";
        assert_eq!(
            (https.set_session(&token), https.set_device(&token)),
            (
                format!("__Secure-sealog-ops={}; {attributes}", token.0.0),
                format!("__Secure-sealog-ops-device={}; Max-Age=34560000; {attributes}", token.0.0)
            )
        );
        let local = Cookies::new(&OPERATORS, "http://127.0.0.1:1/ops");
        let attributes = "Path=/ops; HttpOnly; SameSite=Strict";
        assert_eq!(local.set_session(&token), format!("sealog_ops={}; {attributes}", token.0.0));
        let line = |name: &str| format!("{name}={}", token.0.0);
        assert_eq!(local.session(&headers(&[("cookie", &line("sealog_ops"))])), Some(token.clone()));
        assert_eq!(local.device(&headers(&[("cookie", &line("sealog_ops_device"))])), Some(token.clone()));
        let names = |jar: &Jar| [jar.session, jar.device, jar.once].concat();
        for (cookies, foreign) in [(&local, names(&PEOPLE)), (&https, names(&PEOPLE))] {
            for name in foreign {
                let found = headers(&[("cookie", &line(name))]);
                let read = [cookies.session(&found), cookies.device(&found), cookies.once(&found)];
                assert_eq!(read, [None, None, None], "{name}");
            }
        }
    }

    #[test]
    fn cookies_are_found_among_others_and_what_is_no_token_is_none() {
        let cookies = Cookies::new(&PEOPLE, "https://log.example/app");
        let token = "b".repeat(64);
        let line = format!("a=1; __Host-sealog={token};sealog_theme=dark");
        let found = headers(&[("cookie", &line)]);
        assert_eq!(cookies.session(&found), Token::parse(&token));
        assert_eq!(Theme::of(&found), Theme::Dark);
        for line in ["", "__Host-sealog", "__Host-sealog=", "__Host-sealog=x", "sealog_theme=\"><b>"] {
            let found = headers(&[("cookie", line)]);
            assert_eq!((cookies.session(&found), Theme::of(&found)), (None, Theme::System), "{line}");
        }
    }

    #[test]
    fn the_origin_is_that_of_the_address_without_its_path() {
        assert_eq!(Cookies::new(&PEOPLE, "https://Log.Example:8443/ui").origin(), "https://log.example:8443");
        assert_eq!(Cookies::new(&PEOPLE, "http://127.0.0.1:8080/app").origin(), "http://127.0.0.1:8080");
    }
}
