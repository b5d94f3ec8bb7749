//! 4.6 `GET /v1/actions`, 2.4.

use sealog_core::id::{TenantId, Uuid};
use serde_json::{Value, json};

use crate::harness::*;

fn names(answer: &Value) -> Vec<String> {
    answer["actions"].as_array().unwrap().iter().map(|entry| text(&entry["action"])).collect()
}

fn entry(answer: &Value, action: &str) -> Option<Value> {
    answer["actions"].as_array().unwrap().iter().find(|entry| entry["action"] == action).cloned()
}

#[test]
fn without_a_key_it_is_the_complete_catalog_without_subscribed() {
    let service = Service::start();
    let answer = service.request("GET", "/v1/actions", &[], b"").ok();
    assert_eq!(answer["total"], 163);
    let actions = answer["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 163);
    assert!(actions.iter().all(|entry| entry.get("subscribed").is_none()));
    assert_eq!(answer.as_object().unwrap().len(), 2);
}

#[test]
fn an_entry_has_exactly_the_documented_fields() {
    let service = Service::start();
    let answer = service.request("GET", "/v1/actions", &[], b"").ok();
    for entry in answer["actions"].as_array().unwrap() {
        let fields: Vec<&String> = entry.as_object().unwrap().keys().collect();
        assert_eq!(
            fields,
            ["action", "category", "description", "frameworks", "optional_fields", "required_fields"]
        );
    }
    let inference = entry(&answer, "ai_act.inference_logged").unwrap();
    assert_eq!(inference["category"], "ai_act");
    assert_eq!(inference["required_fields"], json!(["ai_system_id", "model_version"]));
    let frameworks = inference["frameworks"].as_array().unwrap();
    assert_eq!(frameworks.len(), 1);
    assert_eq!(frameworks[0]["framework"], "eu_ai_act");
    assert!(frameworks[0]["label"].is_string() && frameworks[0]["is_required"].is_boolean());
    assert_eq!(frameworks[0].as_object().unwrap().len(), 3);
}

#[test]
fn the_17_built_in_names_are_there_and_require_nothing() {
    let service = Service::start();
    let answer = service.get("/v1/actions", &service.live).ok();
    for action in [
        "user.login",
        "user.logout",
        "user.created",
        "user.deleted",
        "document.created",
        "document.updated",
        "document.deleted",
        "document.shared",
        "api_key.created",
        "api_key.revoked",
        "payment.processed",
        "payment.refunded",
        "payment.failed",
        "permission.granted",
        "permission.revoked",
        "config.changed",
        "deploy.completed",
    ] {
        let entry = entry(&answer, action).unwrap();
        assert_eq!((&entry["required_fields"], &entry["subscribed"]), (&json!([]), &json!(true)), "{action}");
    }
}

#[test]
fn with_a_key_of_a_tenant_without_frameworks_it_is_the_core_actions() {
    let service = Service::start();
    let answer = service.get("/v1/actions", &service.live).ok();
    assert_eq!((&answer["total"], names(&answer).len()), (&json!(58), 58));
    assert!(answer["actions"].as_array().unwrap().iter().all(|entry| entry["subscribed"] == true));
}

#[test]
fn with_a_key_actions_of_frameworks_enabled_in_any_of_the_tenants_projects_are_added() {
    let service = Service::start();
    service.new_project(&service.tenant_id, &["soc2"]);
    let answer = service.get("/v1/actions", &service.live).ok();
    assert_eq!(answer["total"], 58 + 3);
    assert_eq!(entry(&answer, "soc2.control_tested").unwrap()["subscribed"], true);
    assert!(entry(&answer, "hipaa.phi_accessed").is_none());
}

#[test]
fn subscribed_says_whether_the_plan_includes_the_action() {
    let service = Service::start();
    let key = service.newcomer("entry", &["soc2", "hipaa"]);
    let answer = service.get("/v1/actions", &key).ok();
    assert_eq!(entry(&answer, "soc2.control_tested").unwrap()["subscribed"], true);
    assert_eq!(entry(&answer, "hipaa.phi_accessed").unwrap()["subscribed"], false);
    assert_eq!(entry(&answer, "user.login").unwrap()["subscribed"], true);
}

#[test]
fn with_a_key_the_tenants_custom_actions_are_added() {
    let service = Service::start();
    service.new_action(&json!({
        "action": "invoice.approved", "description": "An invoice was approved", "category": "billing",
        "severity": "warning", "required_fields": ["amount"], "optional_fields": ["currency"],
    }));
    service.new_action(&json!({"action": "plain"}));
    let answer = service.get("/v1/actions", &service.test).ok();
    assert_eq!(answer["total"], 60);
    assert_eq!(
        entry(&answer, "invoice.approved").unwrap(),
        json!({
            "action": "invoice.approved", "description": "An invoice was approved", "category": "billing",
            "frameworks": [], "required_fields": ["amount"], "optional_fields": ["currency"], "subscribed": true,
        })
    );
    assert_eq!(entry(&answer, "plain").unwrap().get("category"), None);
    assert!(entry(&service.request("GET", "/v1/actions", &[], b"").ok(), "plain").is_none());
}

#[test]
fn a_retired_custom_action_is_refused_at_once_and_leaves_the_list_and_old_events_keep_its_name() {
    let service = Service::start();
    service.new_action(&json!({"action": "invoice.approved"}));
    let body = r#"{"action":"invoice.approved"}"#;
    service.log(&service.live, body);
    let tenant_id = TenantId(Uuid::parse(&service.tenant_id).unwrap());
    let retired = service.control().retire_action(tenant_id, "invoice.approved".into(), 1, vec![]);
    assert_eq!(wait(retired), Ok(Some(())));
    service.post("/v1/events", &service.live, body).rejected(422, "action/invalid");
    let answer = service.get("/v1/actions", &service.live).ok();
    assert!(entry(&answer, "invoice.approved").is_none());
    let kept = service.get("/v1/events?action=invoice.approved", &service.live).ok();
    assert_eq!(kept["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_bad_authorization_header_fails_as_everywhere() {
    let service = Service::start();
    service.get("/v1/actions", "at_live_unknown").rejected(401, "auth/key_not_found");
    service.get("/v1/actions", "nonsense").rejected(401, "auth/invalid_format");
    service.request("GET", "/v1/actions", &[("Authorization", "")], b"").rejected(401, "auth/invalid_format");
}

#[test]
fn the_query_string_is_ignored() {
    let service = Service::start();
    assert_eq!(service.request("GET", "/v1/actions?limit=1&x=%zz", &[], b"").ok()["total"], 163);
}

#[test]
fn with_a_key_it_counts_against_the_keys_rate() {
    let service = Service::start();
    service.change_tenant(&json!({"rate_limit_rps": 1}));
    service.get("/v1/actions", &service.live).ok();
    service.get("/v1/actions", &service.live).rejected(429, "rate/limit_exceeded");
    service.request("GET", "/v1/actions", &[], b"").ok();
}
