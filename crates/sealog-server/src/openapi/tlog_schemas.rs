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
    add_chain_schemas(all, &hash, &path, answer);
}

fn add_chain_schemas(all: &mut Value, hash: &Value, path: &Value, answer: impl Fn(&Value, &[&str]) -> Value) {
    let count = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
    let or_null = |mut schema: Value| {
        schema["type"] = json!([schema["type"], "null"]);
        schema
    };
    let hex = |digits: usize, about: &str| json!({ "type": "string", "pattern": format!("^[0-9a-f]{{{digits}}}$"), "description": about });
    let (tag, mode) =
        (hex(64, "The name of the chain in proofs."), json!({ "type": "string", "enum": ["live"] }));
    let blind = hex(32, "Hides the chain's head from those who see its hash.");
    let trie = json!({ "type": "array", "maxItems": 256, "items": hash, "description": "Beside the way from the head to the root of the trie." });
    let tree = answer(&json!({ "size": count("Of the published tree."), "root": hash, "path": path }), &[]);
    let heads = json!({
        "index": count("Of the snapshot's entry in the store log."),
        "time": count("Of the snapshot, Unix milliseconds."),
        "root": hash,
        "blind": blind,
        "path": trie,
    });
    let store = answer(
        &json!({
            "size": count("Of the store log's tree."),
            "root": hash,
            "path": path,
            "checkpoint": { "type": "string", "description": "The signed note." },
        }),
        &[],
    );
    all["PublishedChain"] = answer(
        &json!({
            "tag": tag,
            "mode": mode,
            "origin": { "type": "string", "description": "The name of the chain's own log." },
            "vkey": { "type": ["string", "null"], "description": "The key of its checkpoints: the service key under that name. Null on a server without it." },
            "tree_size": count("Events in the tree."),
            "published_size": count("Events that the newest snapshot has."),
            "index": or_null(count("Of that snapshot's entry in the store log.")),
            "time": or_null(count("Of that snapshot, Unix milliseconds.")),
            "lag_events": count("Events that are acknowledged and not published yet."),
        }),
        &[],
    );
    all["EventProof"] = answer(
        &json!({
            "log_id": { "type": "string" },
            "chain_seq": count("Of the event."),
            "mode": mode,
            "tag": tag,
            "salt": or_null(hex(32, "Opens `private`.")),
            "private": hex(64, "The commitment to the private fields."),
            "leaf": hash,
            "chain": tree,
            "heads": answer(&heads, &[]),
            "store": store,
        }),
        &[],
    );
    all["RangeProof"] = answer(
        &json!({
            "from_seq": count("The first event."),
            "to_seq": count("The last event."),
            "mode": mode,
            "tag": tag,
            "chain": tree,
            "heads": answer(&heads, &[]),
            "store": store,
            "salts": { "type": ["array", "null"], "items": { "type": "string" }, "description": "Lines `key DEPTH PREFIX HEX`: the keys that open the salts of these events." },
        }),
        &[],
    );
    let foreign = json!({ "type": ["object", "null"], "description": "Of a proof of absence: the head at the end of the way. Null for an empty place.", "properties": { "tag": tag, "hidden": hash } });
    let mut found = heads;
    found["foreign"] = foreign;
    let chain =
        json!({ "type": ["object", "null"], "properties": { "size": count("Of the tree."), "root": hash } });
    all["HeadProof"] = answer(
        &json!({
            "present": { "type": "boolean" },
            "mode": mode,
            "tag": tag,
            "chain": chain,
            "heads": answer(&found, &["blind", "foreign"]),
            "store": store,
        }),
        &[],
    );
    let mut verification = all["Verification"].clone();
    verification["properties"]["leaves_checked"] = count("Events that were compared with their leaves.");
    verification["properties"]["published_size"] =
        count("Of the published tree: later events have no leaf yet.");
    verification["properties"]["not_shown"] = json!({
        "type": "array",
        "items": { "type": "string" },
        "description": "What this answer cannot show, in sentences for people.",
    });
    verification["properties"]["reason"] =
        json!({ "type": "string", "description": "Why the chain is broken, in one word; only if it is." });
    for name in ["leaves_checked", "published_size", "not_shown"] {
        verification["required"].as_array_mut().expect("a list of names").push(name.into());
    }
    all["TreeVerification"] = verification;
}
