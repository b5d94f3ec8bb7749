//! What HTTP/1.1 demands of a request's head and hyper lets pass.

use hyper::header::{HOST, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Version};
use sealog_core::reject::Reject;

use crate::respond::Failure;

/// What hyper takes of HTTP/1.1. Over HTTP/2 a header may be one byte, of which 64 KiB would become a map of
/// megabytes.
const HEADERS_MAX: usize = 100;

/// What a client is told that begins with the preface of HTTP/2.
pub(crate) const HTTP_2: &str =
    "HTTP/2 is served over TLS only; configure the client or proxy to use HTTP/1.1, or connect with TLS";

/// Refuses what two readers of the same bytes could take for different requests (request smuggling). Such a
/// connection is not used again.
///
/// hyper itself refuses lengths that differ or are no numbers, and transfer codings that do not end in
/// `chunked`. Of a request with a length and chunks it ignores the length and ends the connection after the
/// answer, so nothing can be hidden behind it.
pub(crate) fn check(parts: &Parts) -> Result<(), Failure> {
    if parts.headers.len() > HEADERS_MAX {
        return Err(Reject::HeadersTooLarge.into());
    }
    if parts.version == Version::HTTP_11 && parts.headers.get_all(HOST).iter().take(2).count() != 1 {
        return Err(Failure::malformed("an HTTP/1.1 request needs exactly one Host header"));
    }
    if has_other_coding(&parts.headers) {
        return Err(Failure::malformed("the only accepted transfer coding is chunked, once"));
    }
    Ok(())
}

fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.next().is_some_and(|coding| {
        codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
    })
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn is_fine(version: Version, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn http_1_1_has_exactly_one_host_and_http_1_0_may_have_none() {
        assert!(is_fine(Version::HTTP_11, &[("host", "x")]));
        assert!(is_fine(Version::HTTP_11, &[("host", "")]));
        assert!(!is_fine(Version::HTTP_11, &[]));
        assert!(!is_fine(Version::HTTP_11, &[("host", "x"), ("host", "x")]));
        assert!(!is_fine(Version::HTTP_11, &[("host", "x"), ("host", "y"), ("host", "z")]));
        assert!(is_fine(Version::HTTP_10, &[]));
    }

    #[test]
    fn http_2_has_as_many_headers_as_http_1_1() {
        let with = |count: usize| is_fine(Version::HTTP_2, &vec![("x", "y"); count]);
        assert!(with(HEADERS_MAX) && !with(HEADERS_MAX + 1));
    }

    #[test]
    fn chunked_once_is_the_only_transfer_coding() {
        let coded = |codings: &[&str]| {
            let mut headers = vec![("host", "x")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            is_fine(Version::HTTP_11, &headers)
        };
        for good in ["chunked", "Chunked", " chunked\t"] {
            assert!(coded(&[good]), "{good}");
        }
        for bad in [
            &["gzip, chunked"] as &[&str],
            &["chunked, chunked"],
            &[", chunked"],
            &["gzip", "chunked"],
            &["chunked", "chunked"],
            &["identity"],
            &[""],
        ] {
            assert!(!coded(bad), "{bad:?}");
        }
    }
}
