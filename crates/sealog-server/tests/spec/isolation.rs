//! 1.7 and 1.1: who sees what.

use serde_json::json;

use crate::harness::*;

/// A service in which three others have an event each, beside the live key of the first project: the same
/// project's test mode, another project, and another tenant.
fn crowded() -> (Service, [String; 3]) {
    let service = Service::start();
    let project = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    let tenant = service.newcomer("top", &[]);
    let others = [service.test.clone(), project, tenant];
    for key in &others {
        service.log(key, r#"{"action":"user.login","actor_id":"other"}"#);
    }
    (service, others)
}

#[test]
fn a_list_shows_the_events_of_the_keys_own_project_and_mode_only() {
    let (service, others) = crowded();
    assert!(service.listed(&service.live, "", "log_id").is_empty());
    let log_id = service.log(&service.live, LOGIN);
    assert_eq!(service.listed(&service.live, "", "log_id"), [log_id]);
    for key in &others {
        assert_eq!(service.listed(key, "", "actor_id"), ["other"]);
    }
    assert!(service.listed(&service.live, "?actor_id=other", "log_id").is_empty());
}

#[test]
fn a_read_finds_the_events_of_the_keys_own_project_and_mode_only() {
    let (service, others) = crowded();
    let log_id = service.log(&service.live, LOGIN);
    for key in &others {
        service.get(&format!("/v1/events/{log_id}"), key).rejected(404, "read/not_found");
    }
}

#[test]
fn each_project_and_mode_has_a_chain_of_its_own_that_begins_with_1() {
    let (service, others) = crowded();
    let event = service.stored(&service.live, LOGIN);
    assert_eq!((&event["chain_seq"], &event["prev_hash"]), (&json!(1), &json!(ZEROS)));
    for key in &others {
        assert_eq!(service.listed(key, "", "chain_seq"), [1]);
        assert_eq!(service.listed(key, "", "prev_hash"), [ZEROS]);
    }
}

#[test]
fn verification_covers_the_keys_own_chain_only() {
    let (service, _) = crowded();
    assert_eq!(service.count(&service.live), 0);
    service.fill(&service.live, 3);
    assert_eq!(service.count(&service.live), 3);
    assert_eq!(service.count(&service.test), 1);
}

#[test]
fn a_broken_chain_does_not_break_another() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let other = service.newcomer("top", &[]);
    service.log(&other, r#"{"action":"user.login","actor_id":"other"}"#);
    service.fill(&service.live, 1000);
    service.stop();
    service.home().damage("u7");
    service.resume();
    assert_eq!(service.get("/v1/events/verify", &service.live).ok()["valid"], false);
    assert_eq!(service.get("/v1/events/verify", &other).ok()["valid"], true);
    service.log(&other, LOGIN);
}

#[test]
fn events_carry_the_tenant_and_project_of_their_key() {
    let service = Service::start();
    for key in [&service.live, &service.test] {
        let event = service.stored(key, LOGIN);
        assert_eq!(
            (text(&event["tenant_id"]), text(&event["project_id"])),
            (service.tenant_id.clone(), service.project_id.clone())
        );
    }
}

#[test]
fn two_keys_of_one_project_and_mode_see_the_same_events() {
    let service = Service::start();
    let second = service.new_key(&service.project_id, "live");
    let log_id = service.log(&service.live, LOGIN);
    assert_eq!(service.read(&second, &log_id)["log_id"], log_id);
}

#[test]
fn a_custom_action_works_in_all_projects_of_its_tenant_and_in_no_other_tenants() {
    let (service, [test, project, tenant]) = crowded();
    service.new_action(&json!({"action": "invoice.approved"}));
    let body = r#"{"action":"invoice.approved"}"#;
    for key in [&service.live, &test, &project] {
        service.log(key, body);
    }
    let answer = service.event(&tenant, body);
    answer.rejected(422, "action/invalid");
    assert_ne!(answer.json["error"]["suggestion"], "invoice.approved");
}

#[test]
fn no_header_or_parameter_names_another_tenant_or_project() {
    let (service, [_, _, tenant]) = crowded();
    let authorization = bearer(&tenant);
    let headers = [
        ("Authorization", authorization.as_str()),
        ("X-Tenant-Id", service.tenant_id.as_str()),
        ("X-Project-Id", service.project_id.as_str()),
    ];
    service.log(&service.live, LOGIN);
    let page = service.request("GET", "/v1/events", &headers, b"").ok();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
    assert_eq!(page["events"][0]["actor_id"], "other");
    service
        .get(&format!("/v1/events?tenant_id={}", service.tenant_id), &tenant)
        .rejected(400, "read/invalid_params");
}
