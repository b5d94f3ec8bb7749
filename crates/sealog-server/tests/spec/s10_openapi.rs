//! 10 Other routes: `GET /openapi.json`. That answers are as the document says is checked with every request
//! of every test.

use std::collections::BTreeSet;

use sealog_core::reject::CODES;
use serde_json::{Value, json};

use crate::document::{DOCUMENT, operations};
use crate::harness::*;

const SOMEONE: &str = "00000000-0000-4000-8000-000000000000";

/// A path with something in place of its parameter.
fn filled(path: &str) -> String {
    let Some((before, rest)) = path.split_once('{') else { return path.to_owned() };
    let (_, after) = rest.split_once('}').unwrap();
    format!("{before}{SOMEONE}{after}")
}

fn token(path: &str, service: &Service) -> String {
    if path.starts_with("/operator/") { bearer(TOKEN) } else { bearer(&service.live) }
}

fn send(service: &Service, method: &str, path: &str, body: &Value) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    service.request(method, path, &[("Authorization", &token(path, service))], body.as_bytes())
}

/// The paths and methods that `docs/spec.md` names.
fn specified() -> BTreeSet<(String, String)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec.md")).unwrap();
    let mut found = BTreeSet::new();
    for line in page.lines() {
        let call = line.strip_prefix("### 4.").and_then(|line| line.split_once(' ')).map(|(_, call)| call);
        let call = call.or_else(|| line.strip_prefix("| `").and_then(|line| line.split('`').next()));
        if let Some((method @ ("GET" | "POST" | "PATCH"), path)) = call.and_then(|call| call.split_once(' '))
        {
            found.insert((path.to_owned(), method.to_owned()));
        }
    }
    found
}

#[test]
fn the_document_is_openapi_3_1_and_served_as_it_was_made() {
    let service = Service::start();
    let document = service.request("GET", "/openapi.json", &[], b"").ok();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"], json!([{ "url": BASE_URL }]));
    assert_eq!(document, *DOCUMENT);
}

#[test]
fn every_call_of_the_specification_is_in_the_document() {
    let documented: BTreeSet<(String, String)> =
        operations().into_iter().map(|(path, method, _)| (path, method)).collect();
    let specified = specified();
    assert!(specified.len() >= 17, "{specified:?}");
    assert_eq!(specified.difference(&documented).collect::<Vec<_>>(), Vec::<&(String, String)>::new());
}

#[test]
fn every_path_of_the_document_is_answered_for_its_methods_and_no_others() {
    let service = Service::publishing();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let methods: Vec<String> =
            item.as_object().unwrap().keys().map(|name| name.to_ascii_uppercase()).collect();
        let allow = methods.join(", ").replace("GET", "GET, HEAD");
        let target = filled(path);
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"] {
            let answer = send(&service, method, &target, &Value::Null);
            if methods.iter().any(|known| known == method) {
                assert_ne!(answer.status, 405, "{method} {path}");
            } else {
                answer.rejected(405, "request/method_not_allowed");
                assert_eq!(answer.header("allow"), Some(allow.as_str()), "{path}");
            }
        }
    }
}

/// Codes that only pages answer with: they are for people, and no operation of this document has them.
const OF_PAGES: [&str; 3] = ["auth/not_allowed", "auth/too_many_attempts", "request/cross_site"];

#[test]
fn every_code_of_the_table_is_an_answer_of_some_operation() {
    let mut documented = BTreeSet::new();
    for (path, method, operation) in operations() {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let schema = &answer["content"]["application/json"]["schema"];
            let codes = &schema["properties"]["error"]["properties"]["code"]["enum"];
            for code in codes.as_array().into_iter().flatten() {
                let row = CODES.iter().find(|row| *code == row.text).unwrap();
                assert_eq!(row.status.to_string(), *status, "{method} {path}");
                assert!(
                    documented.insert((row.text, path.clone(), method.clone())),
                    "{method} {path} {code}"
                );
            }
        }
    }
    let documented: BTreeSet<&str> = documented.iter().map(|(code, _, _)| *code).collect();
    let of_programs = CODES.iter().map(|row| row.text).filter(|code| !OF_PAGES.contains(code));
    assert_eq!(documented, of_programs.collect());
}

#[test]
fn every_operation_has_a_name_of_its_own_and_says_what_it_is_for() {
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations() {
        assert!(names.insert(text(&operation["operationId"])), "{method} {path}");
        assert!(!text(&operation["summary"]).is_empty(), "{method} {path}");
    }
}

#[test]
fn the_examples_of_the_document_are_accepted() {
    let service = Service::start();
    let key_id = service
        .operator(
            "POST",
            &format!("/projects/{}/keys", service.project_id),
            &json!({"name": "k", "mode": "live"}),
        )
        .created("key_id");
    let token_id = service
        .operator("POST", &format!("/projects/{}/monitor-tokens", service.project_id), &json!({"name": "m"}))
        .created("token_id");
    let mut sent = 0;
    for (path, method, operation) in operations() {
        let examples = operation["requestBody"]["content"]["application/json"]["examples"].as_object();
        let target = path
            .replace("{tenant_id}", &service.tenant_id)
            .replace("{project_id}", &service.project_id)
            .replace("{key_id}", &key_id)
            .replace("{token_id}", &token_id);
        for example in examples.into_iter().flat_map(|examples| examples.values()) {
            let answer = send(&service, &method, &target, &example["value"]);
            assert!(answer.status < 300, "{method} {path}: {}", answer.body);
            sent += 1;
        }
    }
    assert_eq!(sent, 14);
}

/// Names of fields of all bodies, sent and received: whatever an operator can set is shown somewhere, but for
/// a password.
fn names_of_fields() -> BTreeSet<String> {
    let schemas = DOCUMENT["components"]["schemas"].as_object().unwrap().values();
    let properties = schemas.filter_map(|schema| schema["properties"].as_object());
    properties.flat_map(|properties| properties.keys().cloned()).collect()
}

#[test]
fn an_operators_body_has_the_fields_of_the_document_and_no_others() {
    let service = Service::start();
    for (path, method, operation) in operations() {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        if !path.starts_with("/operator/") || schema.is_null() {
            continue;
        }
        let name = schema.as_str().unwrap().rsplit('/').next().unwrap();
        let schema = &DOCUMENT["components"]["schemas"][name];
        let target =
            path.replace("{tenant_id}", &service.tenant_id).replace("{project_id}", &service.project_id);
        let example =
            operation["requestBody"]["content"]["application/json"]["examples"]["usual"]["value"].clone();
        for field in names_of_fields() {
            let mut body = example.clone();
            // No field may be this.
            body[&field] = json!({ "neither": "text nor number nor list" });
            let message = send(&service, &method, &target, &body).rejected(422, "validation/invalid_field");
            let known = schema["properties"].get(&field).is_some();
            assert_eq!(
                message != format!("{field} is not a field of this request"),
                known,
                "{name}: {message}"
            );
            assert!(message.starts_with(&format!("{field} ")), "{name}: {message}");
        }
        for field in schema["required"].as_array().unwrap() {
            let mut body = example.clone();
            body.as_object_mut().unwrap().remove(field.as_str().unwrap());
            let message = send(&service, &method, &target, &body).rejected(422, "validation/invalid_field");
            assert_eq!(message, format!("{} is required", text(field)));
        }
    }
}

#[test]
fn a_query_has_the_parameters_of_the_document_and_no_others() {
    let service = Service::publishing();
    let names = |operation: &Value| -> BTreeSet<String> {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        parameters.iter().filter(|known| known["in"] == "query").map(|known| text(&known["name"])).collect()
    };
    let all: BTreeSet<String> = operations().iter().flat_map(|(_, _, operation)| names(operation)).collect();
    let mut lists = 0;
    for (path, method, operation) in operations() {
        let known = names(operation);
        if known.is_empty() {
            continue;
        }
        lists += 1;
        let path =
            path.replace("{tenant_id}", &service.tenant_id).replace("{project_id}", &service.project_id);
        for name in &all {
            // No value at all is wrong for every parameter, so each of them is named.
            let answer = send(&service, &method, &format!("{path}?{name}=%00"), &Value::Null);
            let unknown = answer.json["error"]["message"]
                == format!("query parameter {name:?} is not a parameter of this endpoint");
            assert_eq!(!unknown, known.contains(name), "{path} {name}: {}", answer.body);
        }
    }
    assert_eq!((all.len(), lists), (17, 16));
}

#[test]
fn the_limits_of_the_document_are_those_that_are_checked() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let schemas = &DOCUMENT["components"]["schemas"];
    let limit = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    for field in ["actor_id", "resource", "actor_type", "session_id"] {
        let max = limit(&schemas["Event"]["properties"][field]["maxLength"]);
        let body = |length| json!({"action": "user.login", field: "é".repeat(length)}).to_string();
        service.event(&service.live, body(max)).accepted();
        service.event(&service.live, body(max + 1)).rejected(422, "validation/invalid_field");
    }
    let max = limit(&schemas["Batch"]["properties"]["events"]["maxItems"]);
    let body = |count| json!({ "events": vec![json!({"action": "user.login"}); count] }).to_string();
    assert_eq!(service.batch(&service.live, body(max)).status, 202);
    service.batch(&service.live, body(max + 1)).rejected(400, "validation/batch_too_large");
    let password = limit(&schemas["NewUser"]["properties"]["password"]["minLength"]);
    let path = format!("/tenants/{}/users", service.tenant_id);
    let body = |length: usize| json!({"email": "a@b.c", "password": "x".repeat(length), "role": "owner"});
    service.operator("POST", &path, &body(password - 1)).rejected(422, "validation/invalid_field");
    service.operator("POST", &path, &body(password)).created("user_id");
    for (path, single) in [("/v1/events", true), ("/v1/events/batch", false)] {
        let about = text(&DOCUMENT["paths"][path]["post"]["requestBody"]["description"]);
        let bytes: usize = about.split(' ').find_map(|word| word.parse().ok()).unwrap();
        let body = |bytes| if single { single_of(bytes) } else { batch_of(bytes) };
        assert_eq!(service.post(path, &service.live, body(bytes)).status, 202);
        service.post(path, &service.live, body(bytes + 1)).rejected(413, "validation/body_too_large");
    }
}

#[test]
fn the_fields_that_a_client_sends_are_those_of_the_specification() {
    let event = &DOCUMENT["components"]["schemas"]["Event"];
    let names: Vec<&String> = event["properties"].as_object().unwrap().keys().collect();
    let expected = [
        "action",
        "actor_id",
        "actor_type",
        "metadata",
        "resource",
        "resource_type",
        "session_id",
        "severity",
        "ts_client",
    ];
    assert_eq!(names, expected);
    assert_eq!(event["required"], json!(["action"]));
}

#[test]
fn who_has_the_document_is_told_that_it_has_not_changed() {
    let service = Service::start();
    let first = service.request("GET", "/openapi.json", &[], b"");
    let etag = first.header("etag").unwrap();
    let again = service.request("GET", "/openapi.json", &[("If-None-Match", etag)], b"");
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(etag)));
    assert!(again.request_id().starts_with("req_"));
    let other = service.request("GET", "/openapi.json", &[("If-None-Match", "\"other\"")], b"");
    assert_eq!(other.status, 200);
}
