//! Stylesheet and scripts, in the binary. Their path has their hash, so a browser keeps them for ever.

use std::io::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use sealog_core::id::Hash;
use sha2::{Digest, Sha256};

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Name, content type, content.
const FILES: &[(&str, &str, &[u8])] = &[
    ("app.css", STYLE, include_bytes!("../assets/app.css")),
    ("htmx.js", SCRIPT, include_bytes!("../assets/vendor/htmx-4.0.0.min.js")),
    ("icon.svg", IMAGE, include_bytes!("../assets/icon.svg")),
    ("copy.js", SCRIPT, include_bytes!("../assets/copy.js")),
    ("keys.js", SCRIPT, include_bytes!("../assets/keys.js")),
    ("list.js", SCRIPT, include_bytes!("../assets/list.js")),
    ("link.js", SCRIPT, include_bytes!("../assets/link.js")),
    ("query.js", SCRIPT, include_bytes!("../assets/query.js")),
    ("tail.js", SCRIPT, include_bytes!("../assets/tail.js")),
    ("time.js", SCRIPT, include_bytes!("../assets/time.js")),
    ("recompute.js", SCRIPT, include_bytes!("../assets/recompute.js")),
];

#[derive(Clone, Debug)]
pub struct Assets(Arc<[Asset]>);

#[derive(Debug)]
struct Asset {
    name: &'static str,
    path: String,
    content_type: &'static str,
    content: &'static [u8],
    compressed: Vec<u8>,
}

impl Assets {
    /// Files beneath the pages that name them.
    pub(crate) fn new(base: &str) -> Assets {
        let asset = |&(name, content_type, content): &(&'static str, &'static str, &'static [u8])| {
            let hash = Hash(Sha256::digest(content).into()).to_string();
            // No build step: once at the start is soon enough.
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let compressed = encoder.write_all(content).and_then(|()| encoder.finish());
            let compressed = compressed.expect("a Vec takes every byte");
            let path = format!("{base}/static/{}/{name}", &hash[..16]);
            Asset { name, path, content_type, content, compressed }
        };
        Assets(FILES.iter().map(asset).collect())
    }

    /// The path of a file, for a page to name.
    pub(crate) fn path(&self, name: &str) -> &str {
        let asset = self.0.iter().find(|asset| asset.name == name);
        &asset.expect("templates name files that are in the table; a test renders them all").path
    }

    /// Nothing, if there is no such file.
    pub(crate) fn get(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let asset = self.0.iter().find(|asset| asset.path == path)?;
        let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
        let gzip = accepted.split(',').any(|coding| {
            let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
        });
        let body: Body = if gzip { asset.compressed.clone().into() } else { asset.content.into() };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `npm pack htmx.org@4.0.0` has it in `dist/htmx.min.js`.
    #[test]
    fn htmx_is_the_file_of_its_release() {
        const SHA_256: &str = "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f";
        let (_, _, htmx) = FILES[1];
        assert_eq!(Hash(Sha256::digest(htmx).into()).to_string(), SHA_256);
    }
}
