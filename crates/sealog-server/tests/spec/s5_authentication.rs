//! 5 Authentication, 2.5.

use serde_json::json;

use crate::document::operations;
use crate::harness::*;

fn with_header(service: &Service, authorization: &str) -> Response {
    service.request("GET", "/v1/events", &[("Authorization", authorization)], b"")
}

#[test]
fn without_a_header_it_is_missing() {
    let service = Service::start();
    for (method, path) in [
        ("GET", "/v1/events"),
        ("GET", "/v1/events/verify"),
        ("GET", "/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("POST", "/v1/events"),
        ("POST", "/v1/events/batch"),
    ] {
        service.request(method, path, &[], LOGIN.as_bytes()).rejected(401, "auth/missing_header");
    }
}

#[test]
fn a_header_that_is_not_bearer_and_a_token_with_a_known_prefix_has_the_wrong_format() {
    let service = Service::start();
    let live = &service.live;
    for header in [
        "",
        "Bearer",
        "Bearer ",
        live,
        &format!("Basic {live}"),
        &format!("Bearer{live}"),
        &format!("Bearer \"{live}\""),
        "Bearer sk_live_0123456789",
        "Bearer AT_LIVE_0123456789",
        "Bearer at_live_",
        "Bearer at_prod_0123456789",
        &format!("Bearer {live} {live}"),
    ] {
        with_header(&service, header).rejected(401, "auth/invalid_format");
    }
}

#[test]
fn two_headers_have_the_wrong_format() {
    let service = Service::start();
    let authorization = bearer(&service.live);
    let headers = [("Authorization", authorization.as_str()), ("Authorization", authorization.as_str())];
    service.request("GET", "/v1/events", &headers, b"").rejected(401, "auth/invalid_format");
}

#[test]
fn the_scheme_is_case_insensitive() {
    let service = Service::start();
    for scheme in ["Bearer", "bearer", "BEARER"] {
        with_header(&service, &format!("{scheme} {}", service.live)).ok();
    }
}

#[test]
fn a_key_that_does_not_exist_is_not_found() {
    let service = Service::start();
    let unknown = sealog_core::key::generate(sealog_core::id::Mode::Live, [7; 32]);
    let cut = &service.live[..service.live.len() - 1];
    let other_mode = service.live.replace("at_live_", "at_test_");
    for key in [unknown.as_str(), cut, &format!("{}x", service.live), "at_live_x", &other_mode] {
        with_header(&service, &bearer(key)).rejected(401, "auth/key_not_found");
    }
}

#[test]
fn a_revoked_key_is_revoked_at_once() {
    let service = Service::start();
    let path = format!("/projects/{}/keys", service.project_id);
    let created = service.operator("POST", &path, &json!({"name": "k", "mode": "live"}));
    let (key, key_id) = (created.created("key"), created.created("key_id"));
    service.get("/v1/events", &key).ok();
    service.operator("POST", &format!("/keys/{key_id}/revoke"), &json!(null)).ok();
    service.get("/v1/events", &key).rejected(401, "auth/key_revoked");
    service.event(&key, LOGIN).rejected(401, "auth/key_revoked");
    service.get("/v1/events", &service.live).ok();
}

#[test]
fn a_key_expires_at_its_expiry_date() {
    let service = Service::start();
    let path = format!("/projects/{}/keys", service.project_id);
    let body = json!({"name": "k", "mode": "live", "expires_at": "2026-11-15T12:00:01Z"});
    let key = service.operator("POST", &path, &body).created("key");
    service.clock.set(NOON_MS + 999);
    service.get("/v1/events", &key).ok();
    service.clock.set(NOON_MS + 1000);
    service.get("/v1/events", &key).rejected(401, "auth/key_expired");
}

#[test]
fn revoked_wins_over_expired() {
    let service = Service::start();
    let path = format!("/projects/{}/keys", service.project_id);
    let body = json!({"name": "k", "mode": "live", "expires_at": "2026-11-15T11:00:00Z"});
    let created = service.operator("POST", &path, &body);
    service.operator("POST", &format!("/keys/{}/revoke", created.created("key_id")), &json!(null)).ok();
    service.get("/v1/events", &created.created("key")).rejected(401, "auth/key_revoked");
}

#[test]
fn a_key_is_its_prefix_and_at_least_32_characters_of_base62() {
    let service = Service::start();
    for (key, prefix) in [(&service.live, "at_live_"), (&service.test, "at_test_")] {
        let secret = key.strip_prefix(prefix).unwrap();
        assert!(secret.len() >= 32 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
    }
    assert_ne!(service.new_key(&service.project_id, "live"), service.live);
}

#[test]
fn of_a_key_only_its_hash_and_first_12_characters_are_kept() {
    let mut service = Service::start();
    service.get("/v1/events", &service.live).ok();
    let keys = service.operator("GET", &format!("/projects/{}/keys", service.project_id), &json!(null));
    assert!(keys.body.contains(&format!("\"{}\"", &service.live[..12])));
    assert!(!keys.body.contains(&service.live[..13]));
    service.stop();
    assert!(service.home().keeps(&service.live[..12]), "its beginning is kept, for display");
    assert!(!service.home().keeps(&service.live[8..]));
}

#[test]
fn keys_survive_a_restart() {
    let mut service = Service::start();
    service.restart();
    service.get("/v1/events", &service.live).ok();
}

#[test]
fn an_operators_token_is_no_api_key() {
    let service = Service::start();
    service.get("/v1/events", TOKEN).rejected(401, "auth/invalid_format");
}

#[test]
fn what_one_tenant_changes_does_not_make_the_keys_of_another_be_looked_up_again() {
    let service = Service::start();
    let [a, b] = ["A", "B"].map(|name| service.new_tenant(&json!({ "name": name })));
    let [project_a, project_b] = [&a, &b].map(|tenant_id| service.new_project(tenant_id, &[]));
    let [key_a, key_b] = [&project_a, &project_b].map(|project_id| service.new_key(project_id, "live"));
    let ask = |key: &str| service.get("/v1/events", key).status;
    assert_eq!((ask(&key_a), ask(&key_b)), (200, 200));
    let look_ups = || {
        let before = service.look_ups();
        assert_eq!(ask(&key_b), 200);
        let of_b = service.look_ups() - before;
        assert_eq!(ask(&key_a), 200);
        (service.look_ups() - before - of_b, of_b)
    };
    assert_eq!(look_ups(), (0, 0));
    let actions = format!("/tenants/{a}/actions");
    for (method, path, body) in [
        ("PATCH", format!("/tenants/{a}"), json!({"name": "New"})),
        ("PATCH", format!("/projects/{project_a}"), json!({"rate_limit_rps": 1000})),
        ("POST", actions, json!({"action": "mine.x"})),
        ("POST", format!("/tenants/{a}/projects"), json!({"name": "another"})),
        ("POST", format!("/projects/{project_a}/keys"), json!({"name": "k", "mode": "live"})),
    ] {
        assert!(service.operator(method, &path, &body).status < 300, "{method} {path}");
        assert_eq!(look_ups(), (1, 0), "{method} {path}");
        assert_eq!(look_ups(), (0, 0), "{method} {path}");
    }
    // What alters nothing that a key may do makes nobody ask.
    let user = json!({"email": "ann@example.org", "password": "0123456789", "role": "owner"});
    service.operator("POST", &format!("/tenants/{a}/users"), &user).created("user_id");
    assert_eq!(look_ups(), (0, 0));
    // A key that is revoked is refused at once, and the others go on.
    let keys = service.operator("GET", &format!("/projects/{project_a}/keys"), &serde_json::Value::Null).ok();
    let key_id = keys["keys"][0]["key_id"].as_str().unwrap();
    service.operator("POST", &format!("/keys/{key_id}/revoke"), &serde_json::Value::Null).ok();
    service.get("/v1/events", &key_a).rejected(401, "auth/key_revoked");
    let before = service.look_ups();
    assert_eq!((ask(&key_b), service.look_ups()), (200, before));
}

#[test]
fn no_route_that_takes_a_key_or_the_operators_token_takes_a_monitor_token() {
    let service = Service::publishing();
    let token = service.new_monitor_token(&service.project_id);
    let log_id = service.log(&service.live, LOGIN);
    let key = token.replace("sm_live_", "at_live_");
    let mut tried = [0; 2];
    for (path, method, operation) in operations() {
        let target = path
            .replace("{log_id}", &log_id)
            .replace("{tile}", "000.p/1")
            .replace("{tenant_id}", &service.tenant_id)
            .replace("{project_id}", &service.project_id);
        let of_keys = ["/v1/", "/ingest/", "/tlog/v1/chain/tile/entries/"]
            .iter()
            .any(|beginning| path.starts_with(beginning));
        let is_operators = path.starts_with("/operator/");
        let takes_keys =
            operation["security"].as_array().unwrap().iter().any(|way| way.get("api_key").is_some());
        let takes_tokens =
            operation["security"].as_array().unwrap().iter().any(|way| way.get("monitor_token").is_some());
        assert_eq!(takes_tokens, path.starts_with("/tlog/v1/chain") && !path.contains("/entries/"), "{path}");
        assert!(!takes_keys || of_keys || takes_tokens, "{method} {path} has to be tried");
        if !of_keys && !is_operators {
            continue;
        }
        for (presented, code) in [(&token, "auth/invalid_format"), (&key, "auth/key_not_found")] {
            let code = if is_operators { "auth/key_not_found" } else { code };
            let headers = [("Authorization", bearer(presented))];
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            service.request(&method, &target, &headers, LOGIN.as_bytes()).rejected(401, code);
        }
        tried[usize::from(is_operators)] += 1;
    }
    assert!(tried[0] >= 9 && tried[1] >= 18, "{tried:?}");
    assert_eq!(service.count(&service.live), 1, "no event came from it");
    let metrics = [("Authorization", bearer(&token)), ("X-Forwarded-For", "192.0.2.1".into())];
    let metrics = metrics.each_ref().map(|(name, value)| (*name, value.as_str()));
    service.request("GET", "/metrics", &metrics, b"").rejected(401, "auth/key_not_found");
}
