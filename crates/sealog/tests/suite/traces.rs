//! Traces by OTLP, from the real program to a collector on this machine.

use std::net::TcpListener;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::*;
use sealog_testing::http::receive;
use serde_json::{Value, json};

const OPERATOR_TOKEN: &str = "operator-token-that-stays-here";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
/// As many spans as wait for the collector, and as it gets in one request.
const QUEUE_MAX: usize = 4096;
const BATCH_MAX: usize = 512;

/// A server that sends its traces to this address.
fn traced(data: &std::path::Path, collector: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = serving(sealog(), data);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{collector}"))
        .env("OTEL_BSP_SCHEDULE_DELAY", "10")
        .env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN)
        .env("SEALOG_LIMITS_PER_IP_RPS", "0")
        .envs(variables.iter().copied());
    start(command)
}

fn collector() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn spans(request: &Value) -> &Vec<Value> {
    request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
}

/// An attribute of a span or of a resource.
fn attribute(of: &Value, name: &str) -> Value {
    let attributes = of["attributes"].as_array().unwrap();
    let found: Vec<&Value> = attributes.iter().filter(|pair| pair["key"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {of}");
    found[0]["value"].clone()
}

fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

#[test]
fn a_post_and_a_get_arrive_as_spans_that_say_what_was_asked_and_nothing_of_what_was_sent() {
    let (listener, address) = collector();
    let (_dir, data) = data_dir();
    let begun = now_ns();
    let server = traced(&data, &address, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-collector=let%20me%20in")]);
    let key = first_key(&data);
    let authorization = format!("Bearer {key}");
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let event = r#"{"action":"user.login","actor_id":"actor-of-the-event","resource":"session/secret","metadata":{"password":"hunter2"}}"#;
    let headers = [
        ("Authorization", authorization.as_str()),
        ("traceparent", traceparent.as_str()),
        ("tracestate", "vendor=state-of-the-caller"),
        ("Idempotency-Key", "key-of-the-caller"),
    ];
    let (status, answer) = server.request("POST", "/v1/events", &headers, event);
    assert_eq!(status, 202, "{answer}");
    let accepted: Value = serde_json::from_str(&answer).unwrap();
    let log_id = accepted["log_id"].as_str().unwrap();
    assert_eq!(server.get(&key, &format!("/v1/events/{log_id}?from=the-query")).0, 200);
    assert_eq!(server.get(&key, "/v1/events?actor_id=actor-of-the-event").0, 200);
    // A key where an id belongs, and a path that nobody knows.
    assert_eq!(server.get("at_live_nobody", &format!("/v1/events/{key}")).0, 401);
    assert_eq!(server.get(&key, &format!("/v2/{key}")).0, 404);

    let (mut found, mut texts): (Vec<Value>, String) = (Vec::new(), String::new());
    while found.len() < 5 {
        let (head, body) = receive(&listener, "200 OK");
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("x-collector: let me in"), "{head}");
        let request: Value = serde_json::from_str(&body).unwrap();
        let resource = &request["resourceSpans"][0]["resource"];
        assert_eq!(attribute(resource, "service.name"), json!({ "stringValue": "sealog" }));
        let version = json!({ "stringValue": env!("CARGO_PKG_VERSION") });
        assert_eq!(attribute(resource, "service.version"), version);
        found.extend(spans(&request).iter().cloned());
        texts.push_str(&head);
        texts.push_str(&body);
    }
    let ended = now_ns();
    let told: Vec<(&str, Value, Value)> = found
        .iter()
        .map(|span| {
            let status = attribute(span, "http.response.status_code");
            (span["name"].as_str().unwrap(), attribute(span, "http.request.method"), status)
        })
        .collect();
    let expected = [
        ("POST /v1/events", "POST", 202),
        ("GET /v1/events/{log_id}", "GET", 200),
        ("GET /v1/events", "GET", 200),
        ("GET /v1/events/{log_id}", "GET", 401),
        ("GET", "GET", 404),
    ]
    .map(|(name, method, status): (&'static str, &'static str, u16)| {
        (name, json!({ "stringValue": method }), json!({ "intValue": status.to_string() }))
    });
    assert_eq!(told, expected);
    assert_eq!(attribute(&found[1], "http.route"), json!({ "stringValue": "/v1/events/{log_id}" }));
    assert!(!found[4]["attributes"].to_string().contains("http.route"), "no route was found");
    // The caller's trace where there is one, and one of its own where there is none.
    assert_eq!((&found[0]["traceId"], &found[0]["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
    assert_eq!(attribute(&found[0], "sealog.request_id")["stringValue"], accepted["request_id"]);
    for (number, span) in found.iter().enumerate() {
        assert_eq!(span["kind"], 2, "{span}");
        let id = |name: &str| span[name].as_str().unwrap().to_owned();
        assert_eq!((id("traceId").len(), id("spanId").len()), (32, 16), "{span}");
        assert!(found[..number].iter().all(|other| other["spanId"] != span["spanId"]), "{span}");
        if number > 0 {
            assert!(found[..number].iter().all(|other| other["traceId"] != span["traceId"]), "{span}");
            assert_eq!(span.get("parentSpanId"), None, "{span}");
        }
        let ns = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        let (from, to) = (ns("startTimeUnixNano"), ns("endTimeUnixNano"));
        assert!(begun <= from && from <= to && to <= ended, "{begun} {from} {to} {ended}");
        assert_eq!(span.get("status"), None, "no error of the server: {span}");
    }
    for secret in [
        key.as_str(),
        &key[..16],
        OPERATOR_TOKEN,
        "at_live_nobody",
        "user.login",
        "actor-of-the-event",
        "session/secret",
        "hunter2",
        "key-of-the-caller",
        "state-of-the-caller",
        "the-query",
        log_id,
    ] {
        assert!(!texts.contains(secret), "{secret} is in {texts}");
    }
    server.stop();
}

/// So many requests on one connection, which are all answered.
fn healthy(server: &Running, count: usize) {
    let ask = "GET /healthz HTTP/1.1\r\nHost: x\r\n";
    let requests = format!("{}{ask}Connection: close\r\n\r\n", format!("{ask}\r\n").repeat(count - 1));
    let answers = server.raw(&requests);
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), count);
}

/// The listener takes connections and nobody reads from them, for as long as the test likes.
#[test]
fn a_collector_that_does_not_answer_costs_spans_and_keeps_nobody_waiting() {
    let (listener, address) = collector();
    let (_dir, data) = data_dir();
    let server = traced(&data, &address, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")]);
    let key = first_key(&data);
    let asked = QUEUE_MAX + 3 * BATCH_MAX;
    for _ in 0..asked / BATCH_MAX {
        healthy(&server, BATCH_MAX);
    }
    assert_eq!(server.post(&key).0, 202);
    let (_, page) = server.get(&key, "/v1/events");
    assert_eq!(serde_json::from_str::<Value>(&page).unwrap()["events"].as_array().unwrap().len(), 1);
    // Everything above was answered before the collector has answered once.
    let mut heard = 0;
    while heard < BATCH_MAX {
        let (_, body) = receive(&listener, "200 OK");
        heard += spans(&serde_json::from_str(&body).unwrap()).len();
    }
    let lost = server.says("dropped spans")["lost"].as_u64().unwrap();
    let most = u64::try_from(asked + 2 - QUEUE_MAX).unwrap();
    assert!((1..=most).contains(&lost), "{lost}");
    // A collector that hangs again does not keep the server from its end.
    healthy(&server, 1);
    server.stop();
}

#[test]
fn a_collector_that_is_away_is_told_once_and_the_service_goes_on() {
    let (listener, address) = collector();
    // Nobody listens there any more.
    drop(listener);
    let (_dir, data) = data_dir();
    let server = traced(&data, &address, &[]);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    let told = server.says("trace receiver rejects spans");
    assert!(told["spans"].as_u64().unwrap() >= 1, "{told}");
    for _ in 0..3 {
        assert_eq!(server.post(&key).0, 202);
    }
    let (_, page) = server.get(&key, "/v1/events");
    assert_eq!(serde_json::from_str::<Value>(&page).unwrap()["events"].as_array().unwrap().len(), 4);
    let log = server.stop();
    assert!(!log.contains("\"ERROR\"") && !log.contains(&key), "{log}");
}

#[test]
fn variables_that_cannot_be_followed_keep_a_server_from_starting_and_check_says_so() {
    let (_dir, data) = data_dir();
    let run = |args: &[&str], variable: (&str, &str)| {
        let mut command = clean(Command::new("timeout"));
        command.args(["60", SEALOG]).args(args).args(["--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        ended(command.envs([endpoint, variable]).output().unwrap())
    };
    let traces = |said: &str| {
        let report: Value = serde_json::from_str(said).unwrap();
        report["checks"].as_array().unwrap().iter().find(|row| row["check"] == "traces").unwrap().clone()
    };
    for variable in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ] {
        let (code, said, _) = run(&["check", "--json"], variable);
        let row = traces(&said);
        assert_eq!((code, row["state"].as_str()), (Some(1), Some("FAILS")), "{said}");
        let (code, _, noted) = run(&["serve"], variable);
        assert!(matches!(code, Some(1 | 2)), "{variable:?}: {code:?} {noted}");
        assert!(noted.contains(row["detail"].as_str().unwrap()), "{row}: {noted}");
    }
    let (code, said, _) = run(&["check", "--json"], ("OTEL_SERVICE_NAME", "audit"));
    assert_eq!((code, traces(&said)["state"].as_str()), (Some(0), Some("ok")), "{said}");
}
