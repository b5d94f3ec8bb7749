//! `manifest.json`: what a package is, with the SHA-256 of each of its other files.

use sealog_core::time::iso_ms;
use serde_json::{Value, json};

use super::archive::Entry;
use super::documents::About;

pub const NAME: &str = "manifest.json";

pub fn to_json<'e>(package_id: &str, about: &About, entries: impl Iterator<Item = &'e Entry>) -> Value {
    let files: Vec<Value> = entries
        .map(|entry| json!({ "name": entry.name, "bytes": entry.size, "sha256": entry.sha256.to_string() }))
        .collect();
    json!({
        "type": "sealog.disclosure.v1",
        "package_id": package_id,
        "case": about.case,
        "organisation": about.organisation,
        "created_at": iso_ms(about.made_at_ms),
        "events": about.events,
        "from": about.from_ms.map(iso_ms),
        "until": about.until_ms.map(iso_ms),
        "files": files,
        "made_by": format!("sealog {}", env!("CARGO_PKG_VERSION")),
    })
}
