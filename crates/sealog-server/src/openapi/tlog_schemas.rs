//! The shapes of what is published.

use serde_json::{Value, json};

pub(super) fn add(all: &mut Value, answer: impl Fn(&Value, &[&str]) -> Value) {
    let count = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
    let hash = json!({ "type": "string", "pattern": "^[A-Za-z0-9+/]{43}=$" });
    let path = json!({ "type": "array", "maxItems": 63, "items": hash, "description": "Hashes in base64." });
    let key = answer(
        &json!({
            "vkey": { "type": "string", "description": "NAME+ID+KEY, as `sealog-verify --key` takes it." },
            "role": { "type": "string", "enum": ["log", "service"] },
            "index": count("Of the entry that added the key."),
            "state": { "type": "string", "enum": ["active", "retired"] },
            "retired_index": { "type": ["integer", "null"], "minimum": 0, "description": "Of the entry that retired it." },
        }),
        &[],
    );
    all["StoreKeys"] = answer(
        &json!({
            "origin": { "type": "string", "description": "The name of the log, which its checkpoints begin with." },
            "keys": { "type": "array", "items": key },
            "policy": { "type": ["string", "null"], "description": "The policy in force (C2SP tlog-policy). Null: no witness is asked." },
        }),
        &[],
    );
    let (index, size) = (count("Of the entry."), count("Of the tree."));
    all["EntryProof"] = answer(&json!({ "index": index, "size": size, "path": path }), &[]);
    let (from, to) = (count("Of the older tree."), count("Of the newer tree."));
    all["ConsistencyProof"] = answer(&json!({ "from": from, "to": to, "path": path }), &[]);
}
