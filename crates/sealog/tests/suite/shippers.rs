//! What shippers send, by what they document of it: neither Vector nor Fluent Bit can be had here.
//!
//! Vector with the configurations of `examples/vector`: The sink encodes each event with `encoding.codec`,
//! puts them together by `framing` (with JSON and commas as an array), and sets `payload_prefix` and
//! `payload_suffix` around that.

use std::path::Path;

use crate::support::*;
use serde_json::{Value, json};
use toml::Value as Toml;

fn sink(file: &str) -> Toml {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vector").join(file);
    let config: Toml = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    config["sinks"]["sealog"].clone()
}

fn text<'t>(value: &'t Toml, name: &str) -> &'t str {
    value.get(name).and_then(Toml::as_str).unwrap_or("")
}

/// The body of a request with these events.
fn body(sink: &Toml, events: &[Value]) -> String {
    assert_eq!(text(&sink["encoding"], "codec"), "json");
    let events: Vec<String> = events.iter().map(Value::to_string).collect();
    let framing = &sink["framing"];
    let framed = match text(framing, "method") {
        "newline_delimited" => format!("{}\n", events.join("\n")),
        "character_delimited" => {
            assert_eq!(text(&framing["character_delimited"], "delimiter"), ",");
            format!("[{}]", events.join(","))
        }
        other => panic!("{other}"),
    };
    format!("{}{framed}{}", text(sink, "payload_prefix"), text(sink, "payload_suffix"))
}

/// What the transform makes of a line of the application.
fn event(number: usize) -> Value {
    json!({ "action": "user.login", "actor_id": format!("u{number}"), "resource": null, "metadata": { "n": number } })
}

#[test]
fn what_vector_writes_with_our_configurations_is_stored() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let key = first_key(&data);
    for (file, status) in [("sealog.toml", 202), ("batch.toml", 202)] {
        let sink = sink(file);
        let path = text(&sink, "uri").strip_prefix("${SEALOG_URL}").unwrap().to_owned();
        let headers = &sink["request"]["headers"];
        let authorization = text(headers, "Authorization").replace("${SEALOG_API_KEY}", &key);
        let headers =
            [("Authorization", authorization.as_str()), ("Content-Type", text(headers, "Content-Type"))];
        let most = usize::try_from(sink["batch"]["max_events"].as_integer().unwrap()).unwrap();
        let events: Vec<Value> = (0..most).map(event).collect();
        let (answered, answer) = server.request("POST", &path, &headers, &body(&sink, &events));
        assert_eq!(answered, status, "{file}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["log_ids"].as_array().unwrap().len(), most, "{file}");
        assert!(sink["batch"]["max_bytes"].as_integer().unwrap() < 2 << 20, "{file}");
        assert!(sink.get("compression").is_none(), "{file}");
    }
    let (_, page) = server.get(&key, "/v1/events?limit=1");
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(
        (&page["events"][0]["chain_seq"], &page["events"][0]["actor_id"]),
        (&json!(1100), &json!("u99"))
    );
}

/// `out_http` with `format json`: an array of records, each with its time under `json_date_key`; with
/// `json_lines` one for each line.
#[test]
fn what_fluent_bit_writes_is_stored() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let authorization = format!("Bearer {}", first_key(&data));
    let record = r#"{"date":1794657601.250000,"action":"user.login","actor_id":"u1","log":"signed in"}"#;
    for (content_type, body) in [
        ("application/json", format!("[{record},{record}]")),
        ("application/x-ndjson", format!("{record}\n{record}\n")),
    ] {
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Content-Type", content_type),
            ("User-Agent", "Fluent-Bit"),
        ];
        let (status, answer) = server.request("POST", "/ingest/json", &headers, &body);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &answer["accepted"], &answer["rejected"]),
            (202, &json!(2), &json!(0)),
            "{answer}"
        );
    }
}
