//! 10.1 Monitor tokens: a token watches one chain, and neither reads nor writes an event.

use sealog_trust::proof::{EventProof, Private, TlogProof};
use serde_json::{Value, json};

use crate::harness::*;
use crate::s10_2_chain::PATHS;

fn watch(service: &Service, path: &str, token: &str) -> Response {
    service.get(&format!("/tlog/v1/chain{path}"), token)
}

/// What a key gets beyond a token: salts.
fn without_salts(mut answer: Value) -> Value {
    for name in ["salt", "salts"] {
        if answer.get(name).is_some() {
            answer[name] = Value::Null;
        }
    }
    answer
}

#[test]
fn a_token_gets_what_a_key_of_its_chain_gets_but_for_salts_and_leaves() {
    let service = Service::publishing();
    let token = service.new_monitor_token(&service.project_id);
    service.fill(&service.live, 3);
    service.publish();
    for path in PATHS {
        let (of_key, of_token) = (watch(&service, path, &service.live), watch(&service, path, &token));
        if path.starts_with("/tile/entries") {
            of_token.rejected(401, "auth/invalid_format");
            continue;
        }
        assert_eq!((of_token.status, &of_token.headers.len()), (200, &of_key.headers.len()), "{path}");
        if of_key.json.is_null() {
            assert_eq!(of_token.bytes, of_key.bytes, "{path}");
        } else {
            assert_eq!(of_token.json, without_salts(of_key.json.clone()), "{path}");
        }
    }
    let salts = ["/proof?seq=1", "/range"].map(|path| watch(&service, path, &service.live).json);
    assert!(salts[0]["salt"].is_string() && salts[1]["salts"].is_array());
}

#[test]
fn the_file_for_a_token_has_a_commitment_and_no_salt() {
    let service = Service::publishing();
    let token = service.new_monitor_token(&service.project_id);
    service.fill(&service.live, 2);
    service.publish();
    let file = watch(&service, "/proof?seq=2&format=tlog-proof", &token);
    let file = TlogProof::parse(file.body.as_bytes()).unwrap();
    let proof = EventProof::parse(&file.extra.unwrap()).unwrap();
    assert!(matches!(proof.private, Private::Commitment(_)));
}

#[test]
fn a_token_is_for_its_chain_alone() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 3);
    let other = service.new_tenant(&json!({"name": "other"}));
    let project = service.new_project(&other, &[]);
    service.fill(&service.new_key(&project, "live"), 5);
    let token = service.new_monitor_token(&project);
    service.publish();
    assert_eq!(watch(&service, "", &token).ok()["published_size"], json!(5));
    for log_id in log_ids {
        watch(&service, &format!("/proof?log_id={log_id}"), &token).rejected(404, "tlog/not_found");
    }
    assert_ne!(
        watch(&service, "/head", &token).ok()["tag"],
        watch(&service, "/head", &service.live).ok()["tag"]
    );
}

#[test]
fn the_system_chain_is_watched_with_a_token_of_its_own() {
    let service = Service::publishing();
    service.publish();
    let token = service.new_system_token();
    service.await_drained();
    service.publish();
    let overview = watch(&service, "", &token).ok();
    assert!(overview["published_size"].as_u64().unwrap() > 0, "{overview}");
    for path in PATHS {
        let answer = watch(&service, path, &token);
        let expected = if path.starts_with("/tile/entries") { 401 } else { 200 };
        assert_eq!(answer.status, expected, "{path}: {}", answer.body);
    }
    assert_eq!(watch(&service, "/verify", &token).ok()["valid"], true);
}

#[test]
fn a_token_that_is_revoked_expired_or_unknown_opens_nothing() {
    let service = Service::publishing();
    let path = format!("/projects/{}/monitor-tokens", service.project_id);
    let made =
        service.operator("POST", &path, &json!({"name": "m", "expires_at": "2026-11-15T13:00:00.000Z"}));
    let (token, id) = (made.created("token"), text(&made.json["token_id"]));
    assert_eq!(watch(&service, "", &token).status, 200);
    watch(&service, "", &format!("{}x", &token[..token.len() - 1])).rejected(401, "auth/key_not_found");
    watch(&service, "", "sm_live_").rejected(401, "auth/invalid_format");
    service.clock.advance(HOUR_MS);
    watch(&service, "", &token).rejected(401, "auth/key_expired");
    service.operator("POST", &format!("/monitor-tokens/{id}/revoke"), &Value::Null).ok();
    watch(&service, "", &token).rejected(401, "auth/key_revoked");
}

#[test]
fn a_token_counts_for_the_rate_of_its_tenant() {
    let service = Service::publishing();
    let token = service.new_monitor_token(&service.project_id);
    service.change_tenant(&json!({"rate_limit_rps": 2}));
    service.clock.advance(1000);
    let answers: Vec<u16> = (0..3).map(|_| watch(&service, "", &token).status).collect();
    assert_eq!(answers, [200, 200, 429]);
    service.get("/v1/events", &service.live).rejected(429, "rate/limit_exceeded");
}

#[test]
fn the_last_use_of_a_token_is_recorded() {
    let mut service = Service::publishing();
    let token = service.new_monitor_token(&service.project_id);
    let path = format!("/projects/{}/monitor-tokens", service.project_id);
    watch(&service, "", &token).ok();
    service.restart();
    let listed = service.operator("GET", &path, &Value::Null).ok();
    assert_eq!(listed["monitor_tokens"][0]["last_used_at"], "2026-11-15T12:00:00.000Z");
}
