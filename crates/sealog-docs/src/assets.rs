//! Stylesheets and the icon. The look is that of the dashboard because it is the dashboard's stylesheet: the
//! file is shared, no code is.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use sealog_core::id::Hash;
use sha2::{Digest, Sha256};

/// Name, content type, content.
const FILES: [(&str, &str, &[u8]); 3] = [
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../sealog-dashboard/assets/app.css")),
    ("docs.css", "text/css; charset=utf-8", include_bytes!("../assets/docs.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../sealog-dashboard/assets/icon.svg")),
];

/// A file whose path has its hash, so that a browser keeps it for ever.
#[derive(Debug)]
pub struct Asset {
    name: &'static str,
    path: String,
    pub content_type: &'static str,
    pub content: &'static [u8],
    pub compressed: Vec<u8>,
}

pub(crate) fn all() -> Vec<Asset> {
    let asset = |(name, content_type, content): (&'static str, &'static str, &'static [u8])| Asset {
        name,
        path: format!("static/{}/{name}", &digest(content)[..16]),
        content_type,
        content,
        compressed: compress(content),
    };
    FILES.into_iter().map(asset).collect()
}

impl Asset {
    /// Beneath `/docs/`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }
}

pub(crate) fn digest(content: &[u8]) -> String {
    Hash(Sha256::digest(content).into()).to_string()
}

pub(crate) fn compress(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).and_then(|()| encoder.finish()).expect("a Vec takes every byte")
}
