//! 2.1 to 2.3: what is stored of an event, and how it is sealed.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::*;

/// The raw text of the stored event.
fn raw(service: &Service, body: &str) -> String {
    let log_id = service.log(&service.live, body);
    service.get(&format!("/v1/events/{log_id}"), &service.live).body
}

/// The raw text of the stored `metadata`.
fn metadata(service: &Service, sent: &str) -> String {
    let event = raw(service, &format!(r#"{{"action":"user.login","metadata":{sent}}}"#));
    let (_, rest) = event.split_once(r#""metadata":"#).unwrap();
    let (metadata, _) = rest.rsplit_once(r#","timestamp":"#).unwrap();
    metadata.to_owned()
}

#[test]
fn a_stored_event_has_its_fields_in_the_documented_order() {
    let service = Service::start();
    let event = raw(
        &service,
        r#"{"metadata":{"k":[1, 2]},"ts_client":"2026-11-15T11:59:59+01:00","session_id":"s","severity":"warn","resource_type":"rt",
            "actor_type":"user","resource":"doc/1","actor_id":"ann","action":"user.login"}"#,
    );
    let parsed: Value = serde_json::from_str(&event).unwrap();
    let part = |name: &str| parsed[name].as_str().unwrap().to_owned();
    assert_eq!(
        event,
        format!(
            concat!(
                r#"{{"log_id":"{}","tenant_id":"{}","project_id":"{}","schema_version":1,"action":"user.login","#,
                r#""category":"auth","severity":"warn","actor_id":"ann","actor_type":"user","resource":"doc/1","#,
                r#""resource_type":"rt","session_id":"s","ts_client":"2026-11-15T11:59:59+01:00","ip_address":"127.0.0.1","#,
                r#""metadata":{{"k":[1,2]}},"timestamp":"2026-11-15T12:00:00.000Z","chain_seq":1,"prev_hash":"{}","hash":"{}"}}"#
            ),
            part("log_id"),
            service.tenant_id,
            service.project_id,
            ZEROS,
            part("hash")
        )
    );
}

#[test]
fn absent_fields_are_left_out() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    let fields: Vec<&String> = event.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "action",
            "category",
            "chain_seq",
            "hash",
            "ip_address",
            "log_id",
            "prev_hash",
            "project_id",
            "schema_version",
            "severity",
            "tenant_id",
            "timestamp",
        ]
    );
}

#[test]
fn an_explicit_null_counts_as_absent() {
    let service = Service::start();
    let event = raw(
        &service,
        r#"{"action":"user.login","actor_id":null,"resource":null,"metadata":null,"actor_type":null,"severity":null,"ts_client":null}"#,
    );
    for field in ["actor_id", "resource\"", "metadata", "actor_type", "ts_client"] {
        assert!(!event.contains(field), "{event}");
    }
}

#[test]
fn an_empty_actor_id_or_resource_is_not_an_absent_one() {
    let service = Service::start();
    let event =
        service.stored(&service.live, r#"{"action":"user.login","actor_id":"","resource":"","metadata":{}}"#);
    assert_eq!(
        (&event["actor_id"], &event["resource"], &event["metadata"]),
        (&json!(""), &json!(""), &json!({}))
    );
}

#[test]
fn fields_that_the_service_sets_cannot_be_supplied() {
    let service = Service::start();
    let plain = service.stored(&service.live, LOGIN);
    let event = service.stored(
        &service.live,
        r#"{"action":"user.login","log_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","tenant_id":"x","project_id":"x","schema_version":9,"category":"x",
            "ip_address":"203.0.113.1","country":"XX","city":"x","timestamp":"2020-01-01T00:00:00.000Z","chain_seq":99,
            "prev_hash":"x","hash":"x","anything":{"else":1}}"#,
    );
    assert_eq!(event["chain_seq"], 2);
    assert_eq!(event["prev_hash"], plain["hash"]);
    for field in ["tenant_id", "project_id", "schema_version", "category", "ip_address", "timestamp"] {
        assert_eq!(event[field], plain[field], "{field}");
    }
    assert_eq!(
        event.as_object().unwrap().keys().collect::<Vec<_>>(),
        plain.as_object().unwrap().keys().collect::<Vec<_>>()
    );
}

#[test]
fn optional_fields_fall_back_to_strings_in_metadata() {
    let service = Service::start();
    let metadata = json!({
        "actor_type": "service", "resource_type": "file", "severity": "critical", "session_id": "s",
        "ts_client": "2026-11-15T11:00:00Z",
    });
    let event =
        service.stored(&service.live, &json!({"action": "user.login", "metadata": metadata}).to_string());
    for (field, value) in metadata.as_object().unwrap() {
        assert_eq!(event[field], *value, "{field}");
    }
    assert_eq!(event["metadata"], metadata);
}

#[test]
fn a_top_level_field_wins_over_its_fallback() {
    let service = Service::start();
    let event = service.stored(
        &service.live,
        r#"{"action":"user.login","session_id":"top","metadata":{"session_id":"inside"}}"#,
    );
    assert_eq!(event["session_id"], "top");
}

#[test]
fn a_fallback_that_is_no_string_too_long_or_has_a_nul_or_lone_surrogate_is_not_used() {
    let service = Service::start();
    let too_long = format!("\"{}\"", "x".repeat(256));
    for value in ["1", "null", "[]", "{}", r#""a\u0000""#, r#""\ud800""#, &too_long] {
        let body = format!(r#"{{"action":"user.login","metadata":{{"session_id":{value}}}}}"#);
        assert!(!raw(&service, &body).contains(r#""session_id":"s"#), "{value}");
        let before_metadata = raw(&service, &body);
        let (before_metadata, _) = before_metadata.split_once(r#""metadata":"#).unwrap();
        assert!(!before_metadata.contains("session_id"), "{value}");
    }
    let longest = "x".repeat(255);
    let event = service.stored(
        &service.live,
        &json!({"action": "user.login", "metadata": {"session_id": longest}}).to_string(),
    );
    assert_eq!(event["session_id"], longest);
}

#[test]
fn of_a_fallback_that_stands_twice_the_last_one_counts() {
    let service = Service::start();
    let event =
        raw(&service, r#"{"action":"user.login","metadata":{"session_id":"first","session_id":"last"}}"#);
    assert!(event.contains(r#""session_id":"last","ip_address""#), "{event}");
    assert!(event.contains(r#""metadata":{"session_id":"first","session_id":"last"}"#), "{event}");
}

#[test]
fn resource_type_falls_back_to_what_stands_before_the_first_slash_of_resource() {
    let service = Service::start();
    for (resource, expected) in [
        ("doc/1", json!("doc")),
        ("a/b/c", json!("a")),
        ("doc", json!(null)),
        ("/x", json!(null)),
        ("doc/", json!("doc")),
    ] {
        let event =
            service.stored(&service.live, &json!({"action": "user.login", "resource": resource}).to_string());
        assert_eq!(event.get("resource_type").cloned().unwrap_or_default(), expected, "{resource}");
    }
}

#[test]
fn severity_falls_back_to_that_of_the_action() {
    let service = Service::start();
    service.new_action(&json!({"action": "invoice.approved", "severity": "critical", "category": "billing"}));
    service.new_action(&json!({"action": "plain"}));
    for (body, severity, category) in [
        (r#"{"action":"payment.failed"}"#, json!("warning"), json!("payment")),
        (r#"{"action":"payment.failed","severity":"warn"}"#, json!("warn"), json!("payment")),
        (r#"{"action":"invoice.approved"}"#, json!("critical"), json!("billing")),
        (r#"{"action":"plain"}"#, json!(null), json!(null)),
    ] {
        let event = service.stored(&service.live, body);
        assert_eq!((&event["severity"], &event["category"]), (&severity, &category), "{body}");
    }
}

#[test]
fn ts_client_is_returned_as_sent_if_it_is_an_rfc_3339_time_and_left_out_otherwise() {
    let service = Service::start();
    for (sent, kept) in [
        ("2026-11-15T11:00:00Z", true),
        ("2026-11-15t11:00:00.123456789+05:30", true),
        ("2026-11-15", false),
        ("2026-11-15T11:00:00", false),
        ("yesterday", false),
        ("", false),
    ] {
        let event =
            service.stored(&service.live, &json!({"action": "user.login", "ts_client": sent}).to_string());
        assert_eq!(event.get("ts_client"), kept.then_some(&json!(sent)), "{sent}");
    }
    let event =
        service.stored(&service.live, r#"{"action":"user.login","metadata":{"ts_client":"yesterday"}}"#);
    assert_eq!((event.get("ts_client"), &event["metadata"]["ts_client"]), (None, &json!("yesterday")));
}

// Canonical text.

#[test]
fn white_space_outside_strings_is_removed_and_the_order_of_keys_kept() {
    let service = Service::start();
    let stored = metadata(&service, "{ \"b\" : [ 1 ,\t2 ] ,\r\n \"a\" : { } , \"1\" : \" x \" }");
    assert_eq!(stored, r#"{"b":[1,2],"a":{},"1":" x "}"#);
}

#[test]
fn numbers_keep_the_literal_that_was_sent() {
    let service = Service::start();
    let sent = r#"{"n":[1.0,1e5,1E+5,-0,-0.0,12345678901234567890,0.1e-400,1.10,1e999]}"#;
    assert_eq!(metadata(&service, sent), sent);
}

#[test]
fn duplicate_keys_in_metadata_are_kept() {
    let service = Service::start();
    let sent = r#"{"a":1,"a":2,"b":{"c":1,"c":2}}"#;
    assert_eq!(metadata(&service, sent), sent);
}

#[test]
fn strings_are_escaped_minimally() {
    let service = Service::start();
    let sent =
        r#"{"\u006b":"\u00e9\/\u0041\u0022\u005c\u0008\u000C\u000a\u000D\u0009\u001F\u007f\ud83d\udd12"}"#;
    let stored = "{\"k\":\"é/A\\\"\\\\\\b\\f\\n\\r\\t\\u001f\u{7f}🔒\"}";
    assert_eq!(metadata(&service, sent), stored);
}

#[test]
fn nul_and_lone_surrogates_in_metadata_stay_escapes_in_lower_case() {
    let service = Service::start();
    assert_eq!(
        metadata(&service, r#"{"\uD800":"\u0000\uDBFF\uD83D\uDD12\uDC00"}"#),
        r#"{"\ud800":"\u0000\udbff🔒\udc00"}"#
    );
}

#[test]
fn action_actor_id_and_resource_follow_the_same_rule() {
    let service = Service::start();
    let event = raw(&service, r#"{"action":"user\u002elogin","actor_id":"\u00e9\/","resource":"a\u001Fb"}"#);
    assert!(event.contains(r#""action":"user.login","#), "{event}");
    assert!(event.contains(r#""actor_id":"é/","#), "{event}");
    assert!(event.contains(r#""resource":"a\u001fb","#), "{event}");
}

// The chain.

/// SHA-256 over `prev_hash`, payload and milliseconds, from the raw texts.
fn sealed(prev_hash: &str, payload: &str, timestamp_ms: u64) -> String {
    hex::encode(Sha256::digest(format!("{prev_hash}{payload}{timestamp_ms}")))
}

#[test]
fn hash_is_sha256_over_prev_hash_the_six_fields_and_the_time_in_milliseconds() {
    let service = Service::start();
    let first = service.stored(
        &service.live,
        r#"{"action":"user.login","actor_id":"\u00e9","resource":"doc/1","metadata":{ "n": 1.0 }}"#,
    );
    let payload = format!(
        r#"{{"log_id":"{}","tenant_id":"{}","action":"user.login","actor_id":"é","resource":"doc/1","metadata":{{"n":1.0}}}}"#,
        text(&first["log_id"]),
        service.tenant_id
    );
    assert_eq!(first["hash"], sealed(ZEROS, &payload, NOON_MS));
    service.clock.advance(1234);
    let second = service.stored(&service.live, LOGIN);
    assert_eq!(second["prev_hash"], first["hash"]);
}

#[test]
fn absent_fields_are_null_in_the_hash() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    let payload = format!(
        r#"{{"log_id":"{}","tenant_id":"{}","action":"user.login","actor_id":null,"resource":null,"metadata":null}}"#,
        text(&event["log_id"]),
        service.tenant_id
    );
    assert_eq!(event["hash"], sealed(ZEROS, &payload, NOON_MS));
}

#[test]
fn the_first_event_has_chain_seq_1_and_64_zeros_before_it() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    assert_eq!((&event["chain_seq"], &event["prev_hash"]), (&json!(1), &json!(ZEROS)));
}

#[test]
fn chain_seq_has_no_gaps_even_after_requests_that_were_refused() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    service.event(&service.live, "{}").rejected(422, "validation/missing_action");
    service.batch(&service.live, logins(101)).rejected(400, "validation/batch_too_large");
    service.fill(&service.live, 2);
    service.hinge().set(Mood::WritesFail);
    service.event(&service.live, LOGIN).rejected(500, "event/write_failed");
    service.hinge().set(Mood::Willing);
    service.log(&service.live, LOGIN);
    assert_eq!(service.listed(&service.live, "", "chain_seq"), [4, 3, 2, 1]);
}

#[test]
fn log_id_is_an_upper_case_ulid_whose_time_is_the_timestamp() {
    let service = Service::start();
    service.clock.set(NOON_MS + 7);
    let event = service.stored(&service.live, LOGIN);
    let log_id = text(&event["log_id"]);
    let ulid = sealog_core::id::Ulid::parse(&log_id).unwrap();
    assert_eq!((log_id.len(), ulid.to_string(), ulid.timestamp_ms()), (26, log_id, NOON_MS + 7));
    assert_eq!(event["timestamp"], "2026-11-15T12:00:00.007Z");
}

#[test]
fn log_id_grows_and_timestamp_does_not_fall_when_the_clock_is_set_back_even_across_a_restart() {
    let mut service = Service::start();
    let mut events = vec![service.stored(&service.live, LOGIN)];
    for now_ms in [NOON_MS - 1, NOON_MS - 24 * HOUR_MS, NOON_MS + 1] {
        service.clock.set(now_ms);
        events.push(service.stored(&service.live, LOGIN));
        service.clock.set(now_ms - HOUR_MS);
        service.restart();
        events.push(service.stored(&service.live, LOGIN));
    }
    for pair in events.windows(2) {
        assert!(text(&pair[0]["log_id"]) < text(&pair[1]["log_id"]));
        assert!(text(&pair[0]["timestamp"]) <= text(&pair[1]["timestamp"]));
        assert_eq!(pair[0]["hash"], pair[1]["prev_hash"]);
    }
    assert_eq!(service.count(&service.live), 7);
}

#[test]
fn schema_version_is_1() {
    let service = Service::start();
    assert_eq!(service.stored(&service.live, LOGIN)["schema_version"], 1);
}
