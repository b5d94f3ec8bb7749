//! What an operator watches: `/metrics`, and the last use of keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use serde_json::json;

use crate::harness::*;

fn metrics(service: &Service) -> String {
    let answer = service.request("GET", "/metrics", &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    answer.body
}

/// The value of one series.
#[track_caller]
fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line.unwrap_or_else(|| panic!("no {series} in\n{metrics}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn metrics_are_for_this_machine_or_the_operators_token() {
    let service = Service::start();
    metrics(&service);
    // A proxy on the same machine passes on what comes from outside.
    for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"] {
        let outside = (name, "203.0.113.9");
        service.request("GET", "/metrics", &[outside], b"").rejected(401, "auth/missing_header");
        let wrong = ("Authorization", "Bearer another-operators-token");
        service.request("GET", "/metrics", &[outside, wrong], b"").rejected(401, "auth/key_not_found");
        let right = ("Authorization", &*bearer(TOKEN));
        assert_eq!(service.request("GET", "/metrics", &[outside, right], b"").status, 200);
    }
    let without = Service::with(|setup| setup.config.operator_token = None);
    let outside = ("X-Forwarded-For", "203.0.113.9");
    without.request("GET", "/metrics", &[outside], b"").rejected(404, "request/not_found");
}

#[test]
fn metrics_are_not_for_a_trusted_proxy_on_this_machine_without_the_token() {
    let service = Service::with(|setup| setup.config.trusted_proxies = vec!["127.0.9.0/24".parse().unwrap()]);
    let ask = |source: &str, headers: &[(&str, &str)]| {
        let mut connection = service.connect_from(source);
        connection.send(&request("GET", "/metrics", headers, b""));
        connection.receive()
    };
    ask("127.0.9.1", &[]).rejected(401, "auth/missing_header");
    assert_eq!(ask("127.0.9.1", &[("Authorization", &bearer(TOKEN))]).status, 200);
    assert_eq!(ask("127.0.7.1", &[]).status, 200);
}

#[test]
fn metrics_with_a_listener_of_their_own_are_not_on_the_main_one() {
    let service = Service::with(|setup| setup.config.metrics_apart = true);
    service.request("GET", "/metrics", &[], b"").rejected(404, "request/not_found");
    let authorization = bearer(TOKEN);
    let headers = [("Authorization", authorization.as_str())];
    service.request("GET", "/metrics", &headers, b"").rejected(404, "request/not_found");
    service.get("/v1/events", &service.live).ok();
}

#[test]
fn metrics_are_not_counted_against_the_rate_by_address() {
    let service = Service::with(|setup| setup.config.limits.per_ip_rps = 20);
    for _ in 0..50 {
        metrics(&service);
    }
    service.get("/v1/events", &service.live).ok();
}

#[test]
fn metrics_are_prometheus_text() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    let text = metrics(&service);
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut series = Vec::new();
    let mut buckets: HashMap<String, Vec<f64>> = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => assert!(!rest.is_empty()),
                "TYPE" => assert_eq!(kinds.insert(name, rest), None, "{name} stands twice"),
                other => panic!("{other}"),
            }
            continue;
        }
        let (labelled, value) = line.rsplit_once(' ').unwrap();
        let number: f64 = value.parse().unwrap();
        let name = labelled.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|family| kinds.get(family) == Some(&"histogram")));
        let kind = kinds.get(family.unwrap_or(name)).unwrap_or_else(|| panic!("{name} has no type"));
        assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
        assert!(!series.contains(&labelled), "{labelled} stands twice");
        series.push(labelled);
        if let (Some(family), Some((before, bound))) = (family, labelled.split_once("le=\"")) {
            let of_one = buckets.entry(format!("{family}{before}")).or_default();
            assert!(of_one.last().is_none_or(|last| *last <= number), "{labelled}");
            of_one.push(number);
            assert!(bound == "+Inf\"}" || bound.trim_end_matches("\"}").parse::<f64>().is_ok(), "{bound}");
        }
    }
    assert!(text.ends_with('\n'));
    assert!(buckets.len() >= 5, "{}", buckets.len());
}

#[test]
fn metrics_count_requests_events_rejections_limits_and_replays() {
    let service = Service::with(|setup| setup.config.limits.test_rps = 1);
    service.log(&service.live, LOGIN);
    service.batch(&service.live, logins(7));
    service.log(&service.test, LOGIN);
    service.event(&service.test, LOGIN).rejected(429, "rate/test_limit_exceeded");
    service.event(&service.live, "{").rejected(400, "validation/invalid_json");
    for _ in 0..3 {
        service.once(&service.live, "k", LOGIN);
    }
    service
        .once(&service.live, "k", "{\"action\":\"user.logout\"}")
        .rejected(409, "event/idempotency_key_conflict");
    service.get("/v1/events/verify", &service.live).ok();
    service.raw(b"nonsense\r\n\r\n").rejected(400, "request/malformed");
    let text = metrics(&service);
    for (series, expected) in [
        (r#"sealog_events_ingested_total{mode="live"}"#, 9.0),
        (r#"sealog_events_ingested_total{mode="test"}"#, 1.0),
        (r#"sealog_http_requests_total{route="/v1/events/batch",method="POST",status="202"}"#, 1.0),
        (r#"sealog_http_requests_total{route="/v1/events",method="POST",status="202"}"#, 5.0),
        (r#"sealog_http_requests_total{route="/v1/events",method="POST",status="429"}"#, 1.0),
        (r#"sealog_http_request_duration_seconds_count{route="/v1/events/verify",method="GET"}"#, 1.0),
        (r#"sealog_rejections_total{code="validation/invalid_json"}"#, 1.0),
        (r#"sealog_rejections_total{code="request/malformed"}"#, 1.0),
        (r#"sealog_rate_limited_total{tier="test"}"#, 1.0),
        (r#"sealog_rate_limited_total{tier="ip"}"#, 0.0),
        (r#"sealog_idempotency_hits_total{kind="replay"}"#, 2.0),
        (r#"sealog_idempotency_hits_total{kind="conflict"}"#, 1.0),
        (r#"sealog_ingest_batch_size_bucket{le="5"}"#, 3.0),
        (r#"sealog_ingest_batch_size_sum"#, 10.0),
        // With those to the system chain: the tenant, its project and two keys.
        (r#"sealog_append_duration_seconds_count{mode="live"}"#, 7.0),
        (r#"sealog_chains{mode="live"}"#, 1.0),
        (r#"sealog_chain_events{mode="live"}"#, 9.0),
        (r#"sealog_verify_events_total"#, 9.0),
        (r#"sealog_verify_broken_total"#, 0.0),
        (r#"sealog_mail_outbox_pending"#, 0.0),
        (r#"sealog_mail_outbox_given_up"#, 0.0),
        (r#"sealog_system_records_pending"#, 0.0),
        (r#"sealog_sign_ins_failed_total{cause="unknown_account"}"#, 0.0),
        (r#"sealog_append_queue_requests{mode="live"}"#, 0.0),
        (r#"sealog_ready"#, 1.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    let syncs = value(&text, r#"sealog_fsync_duration_seconds_count{mode="live"}"#);
    assert!((1.0..=7.0).contains(&syncs), "{syncs}");
    assert!(value(&text, "sealog_storage_bytes") > 0.0);
}

#[test]
fn a_store_that_cannot_write_is_not_ready_in_the_metrics_either() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    assert_eq!(value(&metrics(&service), "sealog_ready"), 0.0);
}

#[test]
fn a_head_more_than_five_minutes_ahead_of_the_clock_is_counted() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    service.clock.set(NOON_MS - 5 * 60_000);
    assert_eq!(value(&metrics(&service), "sealog_chain_heads_ahead"), 0.0);
    service.clock.set(NOON_MS - 5 * 60_000 - 1);
    // The project's, and the system chain.
    assert_eq!(value(&metrics(&service), "sealog_chain_heads_ahead"), 2.0);
}

#[test]
fn no_tenant_project_actor_action_or_key_is_in_the_metrics() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","actor_id":"mallory","resource":"vault/7"}"#);
    service.get("/v1/events?actor_id=mallory", &service.live).ok();
    let text = metrics(&service);
    for secret in
        [&service.tenant_id, &service.project_id, &service.live, "mallory", "vault", "user.login", "Acme"]
    {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[test]
fn the_last_use_of_a_key_is_kept() {
    let mut service = Service::start();
    let last_used = |service: &Service| {
        let keys = service.operator(
            "GET",
            &format!("/projects/{}/keys", service.project_id),
            &serde_json::Value::Null,
        );
        let keys = keys.ok();
        let of = |mode: &str| {
            let key = keys["keys"].as_array().unwrap().iter().find(|key| key["mode"] == mode).unwrap();
            key["last_used_at"].clone()
        };
        (of("live"), of("test"))
    };
    service.log(&service.live, LOGIN);
    service.clock.advance(1000);
    service.get("/v1/events", &service.live).ok();
    // A change of control data forgets all callers, not when they called.
    service.change_tenant(&serde_json::json!({"name": "Acme Ltd"}));
    service.clock.advance(1000);
    service.get("/v1/events", "at_live_00000000000000000000000000000000").rejected(401, "auth/key_not_found");
    service.restart();
    let (live, test) = last_used(&service);
    assert_eq!(live, "2026-11-15T12:00:01.000Z");
    assert!(test.is_null(), "{test}");
}

#[test]
fn a_leap_of_the_clock_is_told_seals_nothing_ahead_of_time_and_ends_no_trial() {
    // With PostgreSQL the clock is the database's, and its store has a guard of its own.
    if std::env::var("SEALOG_TEST_STORE").as_deref() == Ok("postgres") {
        return;
    }
    let service = Service::start();
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": "2026-12-15T12:00:00.000Z"}));
    service.log(&service.live, LOGIN);
    let ready = || service.request("GET", "/readyz", &[], b"").ok();
    assert_eq!(ready(), json!({"ready": true}));
    service.clock.advance(1000);
    let years_ms = i64::try_from(2 * 365 * 24 * HOUR_MS).unwrap();
    service.clock.leap(years_ms);
    assert_eq!(service.stored(&service.live, LOGIN)["timestamp"], "2026-11-15T12:00:01.000Z");
    let notice = sealog_store::clock::HELD_NOTICE;
    assert_eq!(ready(), json!({"ready": true, "notices": [notice]}));
    let text = metrics(&service);
    assert_eq!((value(&text, "sealog_clock_leapt"), value(&text, "sealog_clock_leaps_total")), (1.0, 1.0));
    service.clock.leap(-years_ms);
    assert_eq!(ready(), json!({"ready": true}));
    let text = metrics(&service);
    assert_eq!((value(&text, "sealog_clock_leapt"), value(&text, "sealog_clock_leaps_total")), (0.0, 1.0));
}

/// Every loop that a server has. A new one comes into `/metrics` by being supervised, and into this list with
/// it.
const LOOPS: [&str; 17] = [
    "case_events",
    "case_reminders",
    "certificate",
    "drain",
    "geo",
    "heads",
    "key_uses",
    "left_out",
    "mailer",
    "packages",
    "quotas",
    "reminders",
    "retention",
    "runner",
    "schedule",
    "sign_ins",
    "trust",
];

#[test]
fn a_panic_in_any_background_loop_is_counted_and_ends_nothing_else() {
    static BEGUN: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
    let service = Service::with(|setup| {
        setup.service.intervals.at_begin = |name| {
            let begun = *BEGUN.lock().unwrap().entry(name).and_modify(|begun| *begun += 1).or_insert(1);
            assert!(begun > 1, "asked for by a test");
        };
    });
    // The drain has worked since, or the service would not have started; and so does whatever was begun a
    // second time.
    eventually(|| LOOPS.iter().all(|name| BEGUN.lock().unwrap().get(name) == Some(&2)));
    assert_eq!(BEGUN.lock().unwrap().keys().copied().collect::<Vec<_>>(), LOOPS);
    let text = metrics(&service);
    for name in LOOPS {
        let series = format!("sealog_background_restarts_total{{loop=\"{name}\"}}");
        assert_eq!(value(&text, &series), 1.0, "{name}");
    }
    service.log(&service.live, LOGIN);
}
