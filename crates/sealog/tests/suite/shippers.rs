//! Shippers: those that can be had here send to a real server, and the events are read back. Neither Vector
//! nor Fluent Bit can be had, so they are tested by what they document of what they send.
//!
//! Vector with the configurations of `examples/vector`: The sink encodes each event with `encoding.codec`,
//! puts them together by `framing` (with JSON and commas as an array), and sets `payload_prefix` and
//! `payload_suffix` around that.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::stage::Stage;
use crate::support::*;
use sealog_testing::eventually;
use serde_json::{Value, json};
use toml::Value as Toml;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A script of `tools/shippers` with the Python that has its SDK, or nothing where `scripts/setup` was not
/// run.
fn script(stage: &Stage, name: &str, args: &[&str]) -> Option<Command> {
    let python = root().join("target/venv-shippers/bin/python");
    if !python.exists() {
        left_out(name, "there is no target/venv-shippers; scripts/setup makes it");
        return None;
    }
    let mut command = Command::new(python);
    command.arg(root().join("tools/shippers").join(name)).args(args);
    command.env("SEALOG_URL", format!("http://{}", stage.address)).env("SEALOG_API_KEY", &stage.key);
    Some(command)
}

/// In the order in which they were stored.
fn stored(stage: &Stage) -> Vec<Value> {
    let mut events = stage.events();
    events.reverse();
    events
}

#[test]
fn the_opentelemetry_sdk_stores_its_audit_records_and_no_others() {
    let stage = Stage::new();
    for (number, compression) in ["none", "gzip"].into_iter().enumerate() {
        let Some(mut command) = script(&stage, "otlp.py", &[compression]) else { return };
        let (code, said, noted) = ended(command.output().unwrap());
        assert_eq!(code, Some(0), "{said}{noted}");
        let events = stored(&stage);
        assert_eq!(events.len(), 3 * (number + 1), "{compression}: {said}{noted}");
        for (n, event) in events[3 * number..].iter().enumerate() {
            assert_eq!(event["action"], "user.login");
            assert_eq!(event["actor_id"], format!("u-{n}"));
            assert_eq!(event["resource"], "session/1");
            let metadata = &event["metadata"];
            assert_eq!((&metadata["n"], &metadata["ok"]), (&json!(n), &json!(true)), "{event}");
            assert_eq!(metadata["tags"], json!(["a", "é"]), "{event}");
            assert_eq!(metadata["resource_attributes"]["service.name"], "shop", "{event}");
        }
    }
    let (_, metrics) = stage.server().get("-", "/metrics");
    let rejected = "sealog_adapter_rejections_total{adapter=\"otlp\",code=\"validation/missing_action\"} 2";
    assert!(metrics.contains(rejected), "{metrics}");
}

#[test]
fn the_cloudevents_sdk_is_understood_in_both_modes_and_understands_what_is_followed() {
    let stage = Stage::new();
    let Some(mut command) = script(&stage, "cloud.py", &[]) else { return };
    let (code, said, noted) = ended(command.output().unwrap());
    assert_eq!(code, Some(0), "{said}{noted}");
    let events = stored(&stage);
    for (event, mode) in events.iter().zip(["structured", "binary"]) {
        assert_eq!(
            (&event["action"], &event["resource"]),
            (&json!("user.login"), &json!("session/ü 1")),
            "{event}"
        );
        assert_eq!((&event["actor_id"], &event["actor_type"]), (&json!(format!("u-{mode}")), &json!("user")));
        let metadata = &event["metadata"];
        assert_eq!((&metadata["method"], &metadata["é"]), (&json!("sso"), &json!([1, null])), "{event}");
        assert_eq!(metadata["cloudevent"]["id"], format!("a-{mode}"));
    }
    assert_eq!(events.len(), 2);
    let (code, followed, noted) = stage.run(&["follow", "--once", "--format", "cloudevents"]);
    assert_eq!(code, Some(0), "{noted}");
    let mut reader = script(&stage, "cloud.py", &["read"]).unwrap();
    reader.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reader = reader.spawn().unwrap();
    reader.stdin.take().unwrap().write_all(followed.as_bytes()).unwrap();
    let (code, said, noted) = ended(reader.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{said}{noted}");
    let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    let line = |event: &Value| {
        let source = format!("/t/{}/p/{}", text(event, "tenant_id"), text(event, "project_id"));
        format!("dev.sealog.user.login {source} {}\n", text(event, "hash"))
    };
    assert_eq!(said, events.iter().map(line).collect::<String>());
}

/// How often another message comes.
const TICK: Duration = Duration::from_secs(1);

/// Killed when dropped, unless it has ended.
struct Rsyslog(Child);

impl Drop for Rsyslog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Replaces what differs from machine to machine; each must be there.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the example has no {from:?}");
        text.replace(from, to)
    })
}

#[test]
fn rsyslog_pipes_audit_messages_to_the_server_also_after_it_was_away() {
    let mut stage = Stage::new();
    let program =
        ["/usr/sbin/rsyslogd", "/usr/bin/rsyslogd"].into_iter().find(|path| Path::new(path).exists());
    let Some(program) = program else {
        return left_out("rsyslog", "there is no rsyslogd; scripts/setup installs it");
    };
    let (code, said, noted) = stage.piped(&["login", "--stdin"], &stage.key);
    assert_eq!(code, Some(0), "{said}{noted}");
    let home = stage.home.clone();
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let example = std::fs::read_to_string(root().join("examples/rsyslog/sealog.conf")).unwrap();
    let example = with(
        &example,
        &[
            ("/etc/sealog-shipper", &path(".config")),
            ("/var/log/sealog-shipper.log", &path("shipper.log")),
            ("/var/spool/sealog/audit", &path("spool")),
            ("/usr/bin/sealog", SEALOG),
        ],
    );
    let head = format!(
        "global(workDirectory=\"{}\")\nmodule(load=\"imtcp\")\ninput(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\")\n",
        home.display()
    );
    std::fs::write(path("rsyslog.conf"), head + &example).unwrap();
    let mut command = Command::new(program);
    command.args(["-n", "-f", &path("rsyslog.conf"), "-i", &path("pid")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut rsyslog = Rsyslog(command.spawn().unwrap());
    let mut connection = None;
    eventually("rsyslog listens", || {
        assert!(rsyslog.0.try_wait().unwrap().is_none(), "rsyslog has ended");
        connection = TcpStream::connect(("127.0.0.1", port)).ok();
        connection.is_some()
    });
    let mut connection = connection.unwrap();
    let mut log = |tag: &str, text: &str| {
        let line = format!("<13>1 2026-11-14T12:00:01Z host {tag} - - - {text}\n");
        connection.write_all(line.as_bytes()).unwrap();
    };
    let actors = |stage: &Stage| -> Vec<String> {
        stored(stage).iter().map(|event| event["actor_id"].as_str().unwrap().to_owned()).collect()
    };
    log("other", r#"@cee:{"action":"user.login","actor_id":"of another program"}"#);
    log("audit", "not JSON");
    log("audit", r#"@cee:{"action":"user.logn","actor_id":"rejected"}"#);
    log("audit", r#"@cee:{"action":"user.login","actor_id":"u=1|é","metadata":{"k":[1,null,"a\"b"]}}"#);
    eventually("the event is stored", || actors(&stage).len() == 1);
    let event = stored(&stage).remove(0);
    assert_eq!((&event["actor_id"], &event["metadata"]), (&json!("u=1|é"), &json!({"k":[1,null,"a\"b"]})));
    let log_id = event["log_id"].as_str().unwrap();
    eventually("the file names both events", || {
        let said = std::fs::read_to_string(path("shipper.log")).unwrap_or_default();
        said.contains(log_id) && said.contains("action/invalid")
    });

    stage.stop();
    log("audit", r#"@cee:{"action":"user.logout","actor_id":"u-2"}"#);
    eventually("it is kept", || Path::new(&path("spool")).exists());
    stage.restart();
    // What is kept goes with a later message.
    let mut last = Instant::now() - TICK;
    eventually("both are stored", || {
        if last.elapsed() >= TICK {
            log("audit", r#"@cee:{"action":"user.login","actor_id":"u-3"}"#);
            last = Instant::now();
        }
        actors(&stage).len() >= 3
    });
    assert_eq!(actors(&stage)[..3], ["u=1|é", "u-2", "u-3"]);
}

fn sink(file: &str) -> Toml {
    let path = root().join("examples/vector").join(file);
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
