//! The URL of a service: `http://host:port` or `https://…`, with a path in front of `/v1` if it stands behind
//! a proxy.

use hyper::Uri;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub is_tls: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// As the `Host` header has it.
    pub authority: String,
    /// In front of every path; without a slash at its end.
    pub prefix: String,
}

/// Whether two addresses lead to the same service as far as a key is concerned: scheme, host and port. What
/// is no address leads nowhere.
pub fn is_same_origin(one: &str, other: &str) -> bool {
    let origin = |url: &str| {
        let Address { is_tls, host, port, .. } = Address::parse(url).ok()?;
        Some((is_tls, host.to_ascii_lowercase(), port))
    };
    origin(one).is_some_and(|one| Some(one) == origin(other))
}

impl Address {
    /// Why not is for the person who wrote it.
    pub fn parse(url: &str) -> Result<Address, String> {
        let hint = "must be the URL of the service, such as https://audit.example.org";
        let uri: Uri = url.trim().parse().map_err(|error| format!("{hint} ({error})"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("{hint}: it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| format!("{hint}: it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(format!("{hint}: remove the user name and password"));
        }
        // `Uri` forgets it.
        if url.contains('#') {
            return Err(format!("{hint}: remove the fragment after the number sign"));
        }
        if uri.query().is_some() {
            return Err(format!("{hint}: remove the query after the question mark"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(format!("{hint}: it has no host"));
        }
        let prefix = uri.path().trim_end_matches('/');
        // People paste the address of the API as often as that of the service.
        let prefix = prefix.strip_suffix("/v1").unwrap_or(prefix).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Address { is_tls, host, port, authority: authority.to_string(), prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_a_port_and_perhaps_a_path() {
        let parsed = |url: &str| Address::parse(url).map(|a| (a.is_tls, a.host, a.port, a.prefix));
        let expected =
            |tls, host: &str, port, prefix: &str| Ok((tls, host.to_owned(), port, prefix.to_owned()));
        assert_eq!(parsed("http://127.0.0.1:8080"), expected(false, "127.0.0.1", 8080, ""));
        assert_eq!(parsed("https://audit.example.org/"), expected(true, "audit.example.org", 443, ""));
        assert_eq!(parsed("http://[::1]:81"), expected(false, "::1", 81, ""));
        assert_eq!(parsed("https://example.org/audit/v1/"), expected(true, "example.org", 443, "/audit"));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for same in ["https://A.example.org", "https://a.example.org:443/v1", "https://a.example.org/x/"] {
            assert!(is_same_origin("https://a.example.org", same), "{same}");
        }
        for other in [
            "http://a.example.org",
            "https://a.example.org:444",
            "https://a.example.org.evil",
            "https://b.example.org",
            "a.example.org",
        ] {
            assert!(!is_same_origin("https://a.example.org", other), "{other}");
        }
        assert!(!is_same_origin("a b", "a b"));
    }

    #[test]
    fn what_is_no_address_of_a_service_is_refused_with_a_reason() {
        for url in [
            "",
            "localhost:8080",
            "ftp://x",
            "http://",
            "http://me:secret@x",
            "http://x?y=1",
            "http://x#y",
            "http:/x",
            "a b",
        ] {
            let refused = Address::parse(url).unwrap_err();
            assert!(refused.contains("https://audit.example.org"), "{url}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
