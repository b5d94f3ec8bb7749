//! What an export is, in JSON: to be kept beside the file.

use sealog_control::Export;
use sealog_core::id::Mode;
use sealog_core::time::iso_ms;
use serde_json::{Map, Value, json};

use super::exporter::chain_of;
use super::format::Format;
use super::frozen::Frozen;

/// `filters` are those of the query, decoded.
pub fn to_json(export: &Export, filters: &[(String, String)]) -> Value {
    let (new, totals) = (&export.new, &export.totals);
    let format = Format::parse(&new.format);
    let query: Map<String, Value> =
        filters.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let is_whole_range = is_whole_range(export);
    let for_verification = format.is_some_and(Format::is_faithful);
    json!({
        "type": "sealog.export.v1",
        "export_id": new.id.0.to_string(),
        "file": file_name(export),
        "tenant_id": new.tenant_id.to_string(),
        "project_id": new.project_id.to_string(),
        "mode": new.mode.as_str(),
        "is_test_data": new.mode == Mode::Test,
        "format": new.format,
        "for_verification": for_verification,
        "query": query,
        "from": new.from_ms.map(iso_ms),
        "until": new.until_ms.map(iso_ms),
        "first_seq": new.first_seq,
        "last_seq": new.last_seq,
        // Each row can be checked alone; links and gaps only where nothing is left out.
        "rows_can_be_checked": for_verification,
        "links_and_gaps_can_be_checked": for_verification && is_whole_range,
        "created_at": iso_ms(new.created_at_ms),
        "requested_by": new.person_id.0.to_string(),
        "rows": totals.map(|totals| totals.rows),
        // Events that are gone or cannot be read: a verification says more.
        "rows_missing": totals.filter(|_| is_whole_range).map(|totals| {
            (new.last_seq + 1).saturating_sub(new.first_seq).saturating_sub(totals.rows)
        }),
        "bytes": totals.map(|totals| totals.bytes),
        "sha256": totals.map(|totals| totals.sha256.to_string()),
        "first_complete_download_at": totals.map(|totals| iso_ms(totals.at_ms)),
        "exporter": format!("sealog {}", env!("CARGO_PKG_VERSION")),
    })
}

/// Whether every event between its ends is in it, and not only those that match a filter. Times and numbers
/// narrow the ends.
pub fn is_whole_range(export: &Export) -> bool {
    Frozen::read(&export.new.query, chain_of(&export.new)).is_ok_and(|query| query.is_whole_range)
}

/// Of test data the name says so first.
pub fn file_name(export: &Export) -> String {
    let new = &export.new;
    let test = if new.mode == Mode::Test { "TEST-" } else { "" };
    let ending = Format::parse(&new.format).map_or("bin", Format::ending);
    format!(
        "{test}sealog-{}-{}-{}-to-{}-{}.{ending}",
        new.project_id,
        new.mode.as_str(),
        new.first_seq,
        new.last_seq,
        &new.id.0.to_string()[..8]
    )
}
