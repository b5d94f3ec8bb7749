//! Events of every action of the catalog, in every shape that an event can have.

use sealog_core::catalog::Catalog;
use serde_json::{Map, Value, json};

/// Members that an event may have beside those that it always has; an action that is none of the catalog's
/// may bring its own category.
const SHAPES: [&str; 13] = [
    r#"{}"#,
    r#"{"ip_address":"127.0.0.1"}"#,
    r#"{"actor_id":"u-17","ip_address":"192.0.2.1","country":"GB","city":"Boxford"}"#,
    r#"{"actor_id":"u-17","actor_type":"user","resource":"user/4","resource_type":"user","session_id":"s-1","ts_client":"2026-11-14T13:00:00+01:00","ip_address":"2001:db8::1","metadata":{"outcome":"failure"}}"#,
    r#"{"actor_id":"","actor_type":"robot","resource":"","session_id":"","ip_address":"192.0.2.1"}"#,
    r#"{"actor_type":"system","resource_type":"user","country":"GB"}"#,
    r#"{"session_id":"s-1","resource":"document/9","resource_type":"document","ip_address":"192.0.2.1"}"#,
    r#"{"resource":"u-4"}"#,
    r#"{"actor_id":"u-17","actor_type":"admin","metadata":{"grantee":"u-4","permission":"invoices:read"},"ip_address":"192.0.2.1"}"#,
    r#"{"actor_id":"u-17","resource":"account/4","resource_type":"account","metadata":{"role":"auditor","role":"owner"}}"#,
    r#"{"metadata":{"grantee":"u-4","role":"","outcome":"SUCCESS"}}"#,
    r#"{"metadata":{"grantee":7,"permission":["a"],"outcome":{"a":1}},"actor_id":"u-17","ip_address":"192.0.2.1"}"#,
    "{\"actor_id\":\"x=1|2\\\\\\r\\n\\u0000\",\"actor_type\":\"}\",\"resource\":\"\\\"}\",\"severity\":\"\\n\",\"metadata\":{\"grantee\":\"\\\"},\",\"permission\":\"\\u2028\",\"outcome\":\"\\\\\"},\"ip_address\":\"192.0.2.1\"}",
];

/// Actions of tenants, with the category that they gave them.
const CUSTOM: [(&str, Option<&str>); 7] = [
    ("sso.login", Some("auth")),
    ("auth.token_refreshed", Some("auth")),
    ("group.created", Some("identity")),
    ("identity.listed", Some("identity")),
    ("seat.assigned", Some("access_control")),
    ("bill|sent=yes\\\"ü", None),
    ("", Some("own")),
];

/// Each as `GET /v1/events` returns it.
pub(crate) fn events() -> Vec<String> {
    let of_catalog = Catalog::builtin().entries.iter();
    let known = of_catalog
        .map(|entry| (entry.action.as_str(), Some(entry.category.as_str()), Some(entry.severity.as_str())));
    let custom = CUSTOM.iter().map(|(action, category)| (*action, *category, None));
    let actions: Vec<_> = known.chain(custom).collect();
    assert!(actions.len() > 163);
    let events = actions.into_iter().flat_map(|(action, category, severity)| {
        SHAPES.iter().map(move |shape| event(action, category, severity, shape))
    });
    events.collect()
}

pub(crate) fn event(action: &str, category: Option<&str>, severity: Option<&str>, shape: &str) -> String {
    let mut event: Map<String, Value> = serde_json::from_value(json!({
        "log_id": "01M7CYVHQ240G2081040G20810", "tenant_id": "018f3c5e-7a10-4b2d-9e44-5a617c02d831",
        "project_id": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "schema_version": 1, "action": action,
        "timestamp": "2026-11-14T12:00:01.250Z", "chain_seq": 4_294_967_296_u64,
        "prev_hash": "0".repeat(64), "hash": "1".repeat(64),
    }))
    .unwrap();
    event.extend(category.map(|category| ("category".into(), category.into())));
    event.extend(severity.map(|severity| ("severity".into(), severity.into())));
    let text = serde_json::to_string(&event).unwrap();
    // As text: a name that is there twice stays so.
    let shape = shape.strip_prefix('{').unwrap();
    let comma = if shape == "}" { "" } else { "," };
    format!("{}{comma}{shape}", text.strip_suffix('}').unwrap())
}
