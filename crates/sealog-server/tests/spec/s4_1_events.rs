//! 4.1 `POST /v1/events`.

use serde_json::json;

use crate::harness::*;

#[test]
fn an_accepted_event_answers_202_with_its_log_id_and_the_request_id_and_nothing_else() {
    let service = Service::start();
    let answer = service.event(&service.live, LOGIN);
    assert_eq!(answer.status, 202);
    let log_id = text(&answer.json["log_id"]);
    assert_eq!(answer.body, format!(r#"{{"log_id":"{log_id}","request_id":"{}"}}"#, answer.request_id()));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("idempotency-replayed"), None);
}

#[test]
fn an_accepted_event_can_be_read_at_once_by_its_log_id() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    assert_eq!(service.read(&service.live, &log_id)["log_id"], log_id);
}

#[test]
fn an_accepted_event_is_there_after_a_restart() {
    let mut service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    service.restart();
    assert_eq!(service.read(&service.live, &text(&event["log_id"])), event);
}

#[test]
fn the_receipt_headers_are_the_events_chain_seq_and_hash() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    let answer = service.event(&service.live, LOGIN);
    let event = service.read(&service.live, &answer.accepted());
    assert_eq!(answer.header("sealog-chain-seq"), Some("2"));
    assert_eq!(answer.header("sealog-hash"), event["hash"].as_str());
}

#[test]
fn a_write_that_fails_is_write_failed_and_nothing_of_it_appears() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    service.event(&service.live, LOGIN).rejected(500, "event/write_failed");
    service.hinge().set(Mood::Willing);
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn an_unexpected_failure_is_server_internal() {
    let service = Service::start();
    service.hinge().set(Mood::Panicking);
    service.event(&service.live, LOGIN).rejected(500, "server/internal");
    service.hinge().set(Mood::Willing);
    service.log(&service.live, LOGIN);
}

#[test]
fn content_type_is_not_enforced() {
    let service = Service::start();
    for content_type in ["application/json", "text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("Authorization", bearer(&service.live)), ("Content-Type", content_type.into())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        service.request("POST", "/v1/events", &headers, LOGIN.as_bytes()).accepted();
    }
    service.event(&service.live, LOGIN).accepted();
}

#[test]
fn a_content_encoding_other_than_identity_is_invalid_json() {
    let service = Service::start();
    let send = |encoding: &str| {
        let headers = [("Authorization", bearer(&service.live)), ("Content-Encoding", encoding.into())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        service.request("POST", "/v1/events", &headers, LOGIN.as_bytes())
    };
    for encoding in ["gzip", "br", "identity, gzip"] {
        send(encoding).rejected(400, "validation/invalid_json");
    }
    send("identity").accepted();
}

// The body.

#[test]
fn a_body_that_is_not_json_is_invalid_json() {
    let service = Service::start();
    for body in [
        "",
        " ",
        "{",
        "nonsense",
        "{'action':'user.login'}",
        r#"{"action":"user.login"},"#,
        r#"{"action":"user.login",}"#,
        r#"{"action":"user.login"} {}"#,
        r#"{"action":"user.login","metadata":{"n":01}}"#,
        r#"{"action":"user.login","metadata":{"n":NaN}}"#,
        "{\"action\":\"user.login\",\"x\":\"a\nb\"}",
        r#"{"action":"user.login","x":"\q"}"#,
    ] {
        service.event(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn a_body_that_is_json_but_not_an_object_is_invalid_json() {
    let service = Service::start();
    for body in ["[]", "null", "1", r#""user.login""#, r#"[{"action":"user.login"}]"#] {
        service.event(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn a_body_that_is_not_utf8_is_invalid_json() {
    let service = Service::start();
    let body = b"{\"action\":\"user.login\",\"actor_id\":\"\xff\"}";
    service.event(&service.live, body).rejected(400, "validation/invalid_json");
}

#[test]
fn a_body_may_have_262144_bytes_and_not_one_more() {
    let service = Service::start();
    service.event(&service.live, single_of(262_144)).accepted();
    service.event(&service.live, single_of(262_145)).rejected(413, "validation/body_too_large");
}

#[test]
fn the_limit_of_the_body_holds_for_chunked_bodies_too() {
    let service = Service::start();
    let send = |bytes: usize| {
        let body = single_of(bytes);
        let mut request = format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            service.live
        );
        for piece in body.as_bytes().chunks(100_000) {
            request += &format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap());
        }
        service.raw((request + "0\r\n\r\n").as_bytes())
    };
    send(262_144).accepted();
    send(262_145).rejected(413, "validation/body_too_large");
}

#[test]
fn an_input_field_that_stands_twice_is_invalid_json() {
    let service = Service::start();
    for field in [
        r#""action":"user.login""#,
        r#""actor_id":"a""#,
        r#""resource":"r""#,
        r#""metadata":{}"#,
        r#""actor_type":"t""#,
        r#""resource_type":"t""#,
        r#""severity":"s""#,
        r#""session_id":"s""#,
        r#""ts_client":"2026-01-01T00:00:00Z""#,
    ] {
        let body = format!(r#"{{"action":"user.login",{field},{field}}}"#);
        service.event(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn an_ignored_field_may_stand_twice() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","hash":1,"hash":2,"x":3,"x":4}"#);
}

// The action.

#[test]
fn an_action_that_is_absent_null_or_empty_is_missing() {
    let service = Service::start();
    for body in ["{}", r#"{"action":null}"#, r#"{"action":""}"#, r#"{"actor_id":"a"}"#] {
        service.event(&service.live, body).rejected(422, "validation/missing_action");
    }
}

#[test]
fn an_action_that_is_neither_in_the_catalog_nor_custom_is_invalid_with_a_suggestion() {
    let service = Service::start();
    let answer = service.event(&service.live, r#"{"action":"user.logn"}"#);
    let message = answer.rejected(422, "action/invalid");
    assert!(message.contains("user.logn"), "{message}");
    assert_eq!(answer.json["error"]["suggestion"], "user.login");
    assert_eq!(answer.json["error"]["valid_actions_url"], format!("{BASE_URL}/v1/actions"));
}

#[test]
fn an_action_is_matched_exactly() {
    let service = Service::start();
    for action in ["User.login", "user.login ", " user.login", "user.*", "user"] {
        let body = json!({ "action": action }).to_string();
        service.event(&service.live, body).rejected(422, "action/invalid");
    }
}

#[test]
fn an_action_may_have_255_characters_and_not_one_more() {
    let service = Service::start();
    let (longest, too_long) = ("é".repeat(255), "é".repeat(256));
    service.new_action(&json!({ "action": longest }));
    service.log(&service.live, &json!({ "action": longest }).to_string());
    let answer = service.event(&service.live, json!({ "action": too_long }).to_string());
    assert!(answer.rejected(422, "action/invalid").contains("255"));
    assert_eq!(answer.json["error"].get("suggestion"), None);
}

#[test]
fn an_action_with_a_nul_is_invalid() {
    let service = Service::start();
    service.event(&service.live, r#"{"action":"user.login\u0000"}"#).rejected(422, "action/invalid");
}

#[test]
fn a_custom_action_can_be_used_at_once() {
    let service = Service::start();
    let body = r#"{"action":"invoice.approved"}"#;
    service.event(&service.live, body).rejected(422, "action/invalid");
    service.new_action(&json!({"action": "invoice.approved"}));
    service.log(&service.live, body);
}

#[test]
fn a_core_action_needs_no_framework() {
    let service = Service::start();
    service.log(&service.newcomer("entry", &[]), r#"{"action":"permission.granted"}"#);
}

const SOC2: &str = r#"{"action":"soc2.control_tested","metadata":{"control_id":"c","result":"ok"}}"#;
const HIPAA: &str = r#"{"action":"hipaa.emergency_access_used","metadata":{"reason":"r"}}"#;

#[test]
fn a_gated_action_needs_one_of_its_frameworks_enabled_for_the_project() {
    let service = Service::start();
    let message = service.event(&service.live, SOC2).rejected(403, "action/requires_framework");
    assert!(message.contains("soc2"), "{message}");
    service.change_project(&json!({"frameworks": ["hipaa"]}));
    service.event(&service.live, SOC2).rejected(403, "action/requires_framework");
    service.change_project(&json!({"frameworks": ["hipaa", "soc2"]}));
    service.log(&service.live, SOC2);
}

#[test]
fn a_framework_of_another_project_does_not_count() {
    let service = Service::start();
    service.new_project(&service.tenant_id, &["soc2"]);
    service.event(&service.live, SOC2).rejected(403, "action/requires_framework");
}

#[test]
fn a_gated_action_needs_its_framework_in_the_tenants_plan() {
    let service = Service::start();
    let key = service.newcomer("entry", &["soc2", "hipaa"]);
    service.log(&key, SOC2);
    service.event(&key, HIPAA).rejected(403, "action/requires_framework");
    service.log(&service.newcomer("middle", &["hipaa"]), HIPAA);
}

#[test]
fn a_framework_that_was_enabled_and_is_disabled_now_is_framework_disabled() {
    let service = Service::start();
    service.change_project(&json!({"frameworks": ["soc2"]}));
    service.change_project(&json!({"frameworks": []}));
    service.event(&service.live, SOC2).rejected(403, "framework/disabled");
    service.change_project(&json!({"frameworks": ["soc2"]}));
    service.log(&service.live, SOC2);
}

#[test]
fn required_fields_must_be_in_metadata_with_a_value_other_than_null() {
    let service = Service::start();
    service.change_project(&json!({"frameworks": ["soc2"]}));
    for metadata in [
        "null",
        "{}",
        r#"{"control_id":1}"#,
        r#"{"control_id":1,"result":null}"#,
        r#"{"control_id":1,"x":{"result":1}}"#,
    ] {
        let body = format!(r#"{{"action":"soc2.control_tested","result":1,"metadata":{metadata}}}"#);
        let message = service.event(&service.live, body).rejected(422, "action/missing_required_fields");
        assert!(message.contains("result"), "{message}");
    }
    for value in ["false", "0", r#""""#, "[]", "{}"] {
        let metadata = format!(r#"{{"control_id":{value},"result":{value}}}"#);
        service.log(&service.live, &format!(r#"{{"action":"soc2.control_tested","metadata":{metadata}}}"#));
    }
}

#[test]
fn of_a_required_field_that_stands_twice_the_last_one_counts() {
    let service = Service::start();
    service.new_action(&json!({"action": "invoice.approved", "required_fields": ["amount"]}));
    let body = |metadata: &str| format!(r#"{{"action":"invoice.approved","metadata":{metadata}}}"#);
    service
        .event(&service.live, body(r#"{"amount":1,"amount":null}"#))
        .rejected(422, "action/missing_required_fields");
    service.log(&service.live, &body(r#"{"amount":null,"amount":1}"#));
}

// The other fields.

#[test]
fn a_field_of_the_wrong_type_is_an_invalid_field_that_the_message_names() {
    let service = Service::start();
    for field in [
        "action",
        "actor_id",
        "resource",
        "actor_type",
        "resource_type",
        "severity",
        "session_id",
        "ts_client",
    ] {
        for value in ["1", "true", "[]", "{}"] {
            let action = if field == "action" { "" } else { r#""action":"user.login","# };
            let body = format!(r#"{{{action}"{field}":{value}}}"#);
            let message = service.event(&service.live, body).rejected(422, "validation/invalid_field");
            assert!(message.starts_with(&format!("{field} ")), "{message}");
        }
    }
    for value in ["1", "true", "[]", r#""{}""#] {
        let body = format!(r#"{{"action":"user.login","metadata":{value}}}"#);
        let message = service.event(&service.live, body).rejected(422, "validation/invalid_field");
        assert!(message.starts_with("metadata "), "{message}");
    }
}

#[test]
fn every_other_field_may_have_255_characters_and_not_one_more() {
    let service = Service::start();
    for field in
        ["actor_id", "resource", "actor_type", "resource_type", "severity", "session_id", "ts_client"]
    {
        // One character, two UTF-16 units, four bytes.
        let body = |count: usize| json!({"action": "user.login", field: "🔒".repeat(count)}).to_string();
        service.event(&service.live, body(255)).accepted();
        let message = service.event(&service.live, body(256)).rejected(422, "validation/invalid_field");
        assert!(message.starts_with(&format!("{field} ")), "{message}");
    }
}

#[test]
fn a_nul_in_any_other_field_is_an_invalid_field() {
    let service = Service::start();
    for field in
        ["actor_id", "resource", "actor_type", "resource_type", "severity", "session_id", "ts_client"]
    {
        let body = format!(r#"{{"action":"user.login","{field}":"a\u0000b"}}"#);
        let message = service.event(&service.live, body).rejected(422, "validation/invalid_field");
        assert!(message.starts_with(&format!("{field} ")), "{message}");
    }
}

#[test]
fn a_lone_surrogate_in_action_actor_id_or_resource_is_invalid_json() {
    let service = Service::start();
    for body in [
        r#"{"action":"user.login\ud800"}"#,
        r#"{"action":"user.login","actor_id":"\udc00"}"#,
        r#"{"action":"user.login","resource":"a\ud83dz"}"#,
    ] {
        service.event(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn a_lone_surrogate_in_an_optional_field_is_an_invalid_field() {
    let service = Service::start();
    for field in ["actor_type", "resource_type", "severity", "session_id", "ts_client"] {
        let body = format!(r#"{{"action":"user.login","{field}":"\ud800"}}"#);
        service.event(&service.live, body).rejected(422, "validation/invalid_field");
    }
}

// The trial.

#[test]
fn a_trial_that_has_ended_without_billing_is_trial_expired_on_both_endpoints_live_and_test() {
    let service = Service::start();
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": "2026-11-15T12:00:01.000Z"}));
    service.clock.set(NOON_MS + 999);
    service.log(&service.live, LOGIN);
    service.clock.set(NOON_MS + 1000);
    for key in [&service.live, &service.test] {
        service.event(key, LOGIN).rejected(402, "subscription/trial_expired");
        service.batch(key, logins(1)).rejected(402, "subscription/trial_expired");
    }
}

#[test]
fn reads_go_on_after_the_trial() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": "2026-11-15T12:00:00Z"}));
    service.read(&service.live, &log_id);
    assert_eq!(service.listed(&service.live, "", "log_id"), [log_id]);
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn with_billing_or_without_a_trial_date_nothing_expires() {
    let service = Service::start();
    service.change_tenant(&json!({"billing_active": true, "trial_ends_at": "2020-01-01T00:00:00Z"}));
    service.log(&service.live, LOGIN);
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": null}));
    service.log(&service.live, LOGIN);
}

// The order of checks: each test breaks two rules, and the earlier one answers.

#[test]
fn authentication_comes_before_the_trial() {
    let service = Service::start();
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": "2020-01-01T00:00:00Z"}));
    service.event("at_live_unknown", LOGIN).rejected(401, "auth/key_not_found");
}

#[test]
fn the_rate_comes_before_the_trial() {
    let service = Service::start();
    service.change_tenant(
        &json!({"rate_limit_rps": 1, "billing_active": false, "trial_ends_at": "2020-01-01T00:00:00Z"}),
    );
    service.event(&service.live, LOGIN).rejected(402, "subscription/trial_expired");
    service.event(&service.live, LOGIN).rejected(429, "rate/limit_exceeded");
}

#[test]
fn the_trial_comes_before_the_form_of_the_idempotency_key() {
    let service = Service::start();
    service.change_tenant(&json!({"billing_active": false, "trial_ends_at": "2020-01-01T00:00:00Z"}));
    service.once(&service.live, "a b", LOGIN).rejected(402, "subscription/trial_expired");
}

#[test]
fn the_form_of_the_idempotency_key_comes_before_the_size_of_the_body() {
    let service = Service::start();
    service.once(&service.live, "a b", &single_of(262_145)).rejected(422, "validation/invalid_field");
}

#[test]
fn the_size_of_the_body_comes_before_json() {
    let service = Service::start();
    service.event(&service.live, "x".repeat(262_145)).rejected(413, "validation/body_too_large");
}

#[test]
fn json_comes_before_idempotency() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service.once(&service.live, "k", "nonsense").rejected(400, "validation/invalid_json");
}

#[test]
fn idempotency_comes_before_the_fields() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service
        .once(&service.live, "k", r#"{"action":"user.login","actor_id":1}"#)
        .rejected(409, "event/idempotency_key_conflict");
}

#[test]
fn fields_come_before_the_action() {
    let service = Service::start();
    let body = r#"{"action":"nonsense","actor_id":1}"#;
    service.event(&service.live, body).rejected(422, "validation/invalid_field");
}

#[test]
fn the_framework_comes_before_required_fields() {
    let service = Service::start();
    let body = r#"{"action":"soc2.control_tested"}"#;
    service.event(&service.live, body).rejected(403, "action/requires_framework");
}
