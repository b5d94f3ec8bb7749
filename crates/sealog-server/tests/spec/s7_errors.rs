//! 7 Errors, 2.7, and the routes of 10 that are not about events.

use std::collections::BTreeMap;

use sealog_core::reject::CODES;
use serde_json::json;

use crate::harness::*;

/// Codes and statuses of the table in section 7 of `docs/spec.md`.
fn documented() -> BTreeMap<String, u16> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section = page.split("\n## 7. ").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut codes = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let status = cells[2].parse().unwrap();
        for code in cells[1].split('`').skip(1).step_by(2) {
            assert_eq!(codes.insert(code.to_owned(), status), None, "{code} stands twice");
        }
    }
    codes
}

#[test]
fn the_codes_of_the_server_are_those_of_the_specification() {
    let ours: BTreeMap<String, u16> = CODES.iter().map(|row| (row.text.to_owned(), row.status)).collect();
    assert_eq!(ours, documented());
    assert_eq!(ours.len(), 41);
}

#[test]
fn an_error_has_code_message_request_id_and_doc_url_and_nothing_else() {
    let service = Service::start();
    let answer = service.request("GET", "/v1/events", &[], b"");
    let error = answer.json["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "doc_url", "message", "request_id"]);
    assert_eq!(answer.json.as_object().unwrap().len(), 1);
    assert_eq!(error["doc_url"], format!("{BASE_URL}/docs/errors/auth/missing_header"));
}

#[test]
fn doc_url_leads_to_a_page_of_the_server_for_every_code() {
    let service = Service::with(|setup| setup.config.docs_url = format!("{BASE_URL}/docs"));
    for row in CODES {
        let page = service.request("GET", &format!("/docs/errors/{}", row.text), &[], b"");
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
        assert!(page.body.contains(row.text) && page.body.contains(&row.status.to_string()), "{}", row.text);
    }
    service.request("GET", "/docs/errors/auth/nothing", &[], b"").rejected(404, "request/not_found");
}

#[test]
fn the_list_of_codes_is_there_with_and_without_a_slash_at_the_end() {
    let service = Service::start();
    let list = service.get("/docs/errors", "").body;
    assert!(list.contains("auth/key_not_found"));
    assert_eq!(service.get("/docs/errors/", "").body, list);
    let first = service.get("/docs", "").body;
    assert!(first.contains("/docs/errors\""), "the first page leads there");
    assert_eq!(service.get("/docs/", "").body, first);
}

#[test]
fn addresses_in_answers_are_those_of_the_configuration() {
    let service = Service::with(|setup| {
        setup.config.base_url = "https://events.example/log".into();
        setup.config.docs_url = "https://help.example/codes".into();
    });
    let error = &service.event(&service.live, r#"{"action":"nonsense"}"#).json["error"];
    assert_eq!(error["doc_url"], "https://help.example/codes/errors/action/invalid");
    assert_eq!(error["valid_actions_url"], "https://events.example/log/v1/actions");
    let document = service.request("GET", "/openapi.json", &[], b"").ok();
    assert_eq!(document["servers"], json!([{ "url": "https://events.example/log" }]));
}

#[test]
fn request_id_is_the_x_request_id_header() {
    let service = Service::start();
    let answer = service.event(&service.live, "{}");
    assert_eq!(answer.json["error"]["request_id"], answer.request_id());
}

#[test]
fn every_response_of_every_route_has_an_x_request_id_of_req_and_a_ulid() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    let mut ids = Vec::new();
    for (method, path) in [
        ("POST", "/v1/events"),
        ("POST", "/v1/events/batch"),
        ("GET", "/v1/events"),
        ("GET", "/v1/events/verify"),
        ("GET", &format!("/v1/events/{log_id}")),
        ("GET", "/v1/actions"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/operator/v1/tenants"),
        ("GET", "/"),
        ("GET", "/nowhere"),
        ("DELETE", "/v1/events"),
        ("OPTIONS", "/v1/actions"),
    ] {
        let answer = service.request(method, path, &[("Authorization", &bearer(&service.live))], b"{}");
        let id = answer.request_id().to_owned();
        let ulid = id.strip_prefix("req_").unwrap();
        let parsed = sealog_core::id::Ulid::parse(ulid).unwrap();
        assert_eq!((parsed.to_string().as_str(), parsed.timestamp_ms()), (ulid, NOON_MS), "{method} {path}");
        assert_eq!(answer.headers.iter().filter(|(name, _)| name == "x-request-id").count(), 1);
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 13);
}

#[test]
fn a_request_id_of_the_client_is_not_taken_over() {
    let service = Service::start();
    let headers = [("X-Request-Id", "req_01ARZ3NDEKTSV4RRFFQ69G5FAV")];
    let answer = service.request("GET", "/v1/actions", &headers, b"");
    assert_ne!(answer.request_id(), "req_01ARZ3NDEKTSV4RRFFQ69G5FAV");
}

#[test]
fn an_unknown_path_is_not_found() {
    let service = Service::start();
    for path in
        ["/", "/v1", "/v1/", "/v2/events", "/v1/events/", "/v1/Events", "/v1/events/a/b", "//v1/events"]
    {
        service.get(path, &service.live).rejected(404, "request/not_found");
    }
}

#[test]
fn a_wrong_method_is_not_allowed_and_the_right_ones_are_listed() {
    let service = Service::start();
    for (method, path, allow) in [
        ("DELETE", "/v1/events", "GET, HEAD, POST"),
        ("PUT", "/v1/events", "GET, HEAD, POST"),
        ("PATCH", "/v1/events", "GET, HEAD, POST"),
        ("GET", "/v1/events/batch", "POST"),
        ("POST", "/v1/events/verify", "GET, HEAD"),
        ("DELETE", "/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", "GET, HEAD"),
        ("PUT", "/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", "GET, HEAD"),
        ("POST", "/v1/actions", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/readyz", "GET, HEAD"),
    ] {
        let answer = service.request(method, path, &[("Authorization", &bearer(&service.live))], b"");
        answer.rejected(405, "request/method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
}

#[test]
fn only_action_errors_have_a_suggestion_and_the_address_of_the_catalog() {
    let service = Service::start();
    let answer = service.event(&service.live, r#"{"action":"nonsense"}"#);
    assert!(answer.json["error"].get("suggestion").is_some());
    let answer = service.event(&service.live, r#"{"action":"user.login","actor_id":1}"#);
    assert!(answer.json["error"].get("suggestion").is_none());
    assert!(answer.json["error"].get("valid_actions_url").is_none());
}

#[test]
fn bodies_are_application_json() {
    let service = Service::start();
    for (path, key) in
        [("/v1/events", service.live.as_str()), ("/v1/actions", &service.live), ("/nowhere", "x")]
    {
        assert_eq!(service.get(path, key).header("content-type"), Some("application/json"));
    }
}

#[test]
fn healthz_says_that_the_process_is_up_even_if_the_store_is_not() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    assert_eq!(service.request("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn readyz_says_whether_the_store_answers() {
    let service = Service::start();
    assert_eq!(service.request("GET", "/readyz", &[], b"").ok(), json!({"ready": true}));
    service.hinge().set(Mood::WritesFail);
    let answer = service.request("GET", "/readyz", &[], b"");
    assert_eq!((answer.status, &answer.json["ready"]), (503, &json!(false)));
    service.hinge().set(Mood::Willing);
    assert_eq!(service.request("GET", "/readyz", &[], b"").ok(), json!({"ready": true}));
}

#[test]
fn readyz_tells_strangers_one_word_and_the_operator_the_whole_reason() {
    let service = Service::with(|setup| setup.config.trusted_proxies = vec!["127.0.9.0/24".parse().unwrap()]);
    service.hinge().set(Mood::WritesFail);
    let word = json!({"ready": false, "reason": "write_failed"});
    let whole = |answer: &Response| {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json["reason"], "write_failed");
        assert!(text(&answer.json["detail"]).contains("asked for by a test"), "{}", answer.body);
    };
    let (right, wrong) = (bearer(TOKEN), bearer("another-operators-token"));
    for name in ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"] {
        let outside = (name, "203.0.113.9");
        assert_eq!(service.request("GET", "/readyz", &[outside], b"").json, word, "{name}");
        let with = |authorization: &str| {
            service.request("GET", "/readyz", &[outside, ("Authorization", authorization)], b"")
        };
        assert_eq!(with(&wrong).json, word);
        assert_eq!(with(&bearer(&service.live)).json, word);
        whole(&with(&right));
    }
    whole(&service.request("GET", "/readyz", &[], b""));
    // A proxy that says nothing of whom it asks for is still a proxy.
    let mut proxy = service.connect_from("127.0.9.1");
    proxy.send(&request("GET", "/readyz", &[], b""));
    assert_eq!(proxy.receive().json, word);
}

#[test]
fn readyz_stays_200_while_events_are_accepted_and_names_reads_that_fail_to_the_operator_alone() {
    let service = Service::start();
    service.hinge().set(Mood::Degraded);
    let outside = ("X-Forwarded-For", "203.0.113.9");
    assert_eq!(service.request("GET", "/readyz", &[outside], b"").ok(), json!({"ready": true}));
    let whole = json!({"ready": true, "detail": "segment 1 cannot be read; asked for by a test"});
    let operator = [outside, ("Authorization", &bearer(TOKEN))];
    assert_eq!(service.request("GET", "/readyz", &operator, b"").ok(), whole);
    assert_eq!(service.request("GET", "/readyz", &[], b"").ok(), whole);
    service.log(&service.live, LOGIN);
    service.hinge().set(Mood::Willing);
    assert_eq!(service.request("GET", "/readyz", &[], b"").ok(), json!({"ready": true}));
}

#[test]
fn head_is_answered_as_get_without_the_body() {
    let service = Service::publishing();
    let log_id = service.log(&service.live, LOGIN);
    let (key, operator) = (bearer(&service.live), bearer(TOKEN));
    let tenant = format!("/operator/v1/tenants/{}", service.tenant_id);
    let project = format!("/operator/v1/projects/{}", service.project_id);
    let mut connection = service.connect();
    for (path, authorization) in [
        ("/v1/events", &key),
        ("/v1/events?limit=x", &key),
        ("/v1/events/verify", &key),
        (&format!("/v1/events/{log_id}"), &key),
        ("/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", &key),
        ("/v1/events", &operator),
        ("/v1/actions", &key),
        ("/healthz", &key),
        ("/readyz", &key),
        ("/metrics", &operator),
        ("/openapi.json", &key),
        ("/docs", &key),
        ("/docs/errors/auth/key_not_found", &key),
        ("/nowhere", &key),
        ("/operator/v1/tenants", &operator),
        (&tenant, &operator),
        (&format!("{tenant}/projects"), &operator),
        (&format!("{tenant}/actions"), &operator),
        (&format!("{tenant}/users"), &operator),
        (&project, &operator),
        (&format!("{project}/keys"), &operator),
        ("/operator/v1/tenants", &key),
        ("/tlog/v1/store/checkpoint", &key),
        ("/tlog/v1/store/tile/0/000.p/1", &key),
        ("/tlog/v1/store/tile/0/000", &key),
    ] {
        let headers = [("Authorization", authorization.as_str())];
        connection.send(&request("GET", path, &headers, b""));
        let get = connection.receive();
        connection.send(&request("HEAD", path, &headers, b""));
        let head = connection.receive_head();
        let of = |response: &Response| -> Vec<(String, String)> {
            let varies = |name: &str| name == "date" || name == "x-request-id";
            let mut headers = response.headers.clone();
            headers.retain(|(name, _)| !(varies(name) || path == "/metrics" && name == "content-length"));
            headers
        };
        assert_eq!((get.status, of(&get)), (head.status, of(&head)), "{path}");
        assert!(head.header("content-length").is_some(), "{path}");
        assert_ne!(get.request_id(), head.request_id());
    }
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn head_of_a_page_that_would_be_streamed_has_no_body_either() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    for _ in 0..6 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    let headers = [("Authorization", bearer(&service.live))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut connection = service.connect();
    for _ in 0..3 {
        connection.send(&request("HEAD", "/v1/events", &headers, b""));
        let head = connection.receive_head();
        assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")));
    }
    assert_eq!(connection.get("/v1/events", &service.live).ok()["events"].as_array().unwrap().len(), 6);
}

#[test]
fn an_answer_never_repeats_a_key() {
    let service = Service::start();
    let unknown = sealog_core::key::generate(sealog_core::id::Mode::Live, [7; 32]);
    let answer = service.get("/v1/events", &unknown);
    answer.rejected(401, "auth/key_not_found");
    assert!(!answer.body.contains(&unknown[8..]));
}
