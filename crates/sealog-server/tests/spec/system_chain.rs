//! The system chain: what the operator changes is sealed into a chain of the tenant's own, in order, once,
//! and counts toward nothing.

use sealog_control::{NewRecord, Records, TenantChange};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::Filter;
use sealog_store::world::World;
use sealog_store::{List, Store};
use serde_json::{Value, json};

use crate::harness::*;

fn tenant_id(text: &str) -> TenantId {
    TenantId(Uuid::parse(text).unwrap())
}

/// The system chain of a tenant. One that has none yet gets one.
fn chain_of(service: &Service, tenant: &str) -> ChainId {
    let tenant_id = tenant_id(tenant);
    let reserved = service.control().system_project(tenant_id, ProjectId::system_from_random([9; 16]));
    ChainId { tenant_id, project_id: wait(reserved).unwrap().unwrap(), mode: Mode::Live }
}

/// Its events, oldest first, as anybody who may read them sees them.
fn events_of(service: &Service, tenant: &str) -> Vec<Value> {
    let chain = chain_of(service, tenant);
    let list = List { filter: Filter::default(), before_seq: None, limit: 100, bytes_max: 1 << 20 };
    let chunk = wait(service.hinge().list(chain, list)).unwrap();
    assert_eq!(chunk.resume, None);
    let mut events: Vec<StoredEvent> = chunk.items;
    events.reverse();
    let read = |event: &StoredEvent| {
        let mut text = Vec::new();
        event.put_json(&mut text);
        serde_json::from_slice(&text).unwrap()
    };
    events.iter().map(read).collect()
}

fn drained(service: &Service, tenant: &str) -> Vec<Value> {
    service.await_drained();
    events_of(service, tenant)
}

/// Action and resource of each.
fn told(events: &[Value]) -> Vec<(String, String)> {
    events.iter().map(|event| (text(&event["action"]), text(&event["resource"]))).collect()
}

#[test]
fn every_change_of_the_operator_leaves_one_event_with_its_actor_its_resource_and_what_changed() {
    let service = Service::start();
    let post = |path: &str, body: Value| service.operator("POST", path, &body).json.clone();
    let tenant = text(
        &post("/tenants", json!({"name": "Bär", "plan": "entry", "contact_email": "ops@bear.example"}))["tenant_id"],
    );
    let path = format!("/tenants/{tenant}");
    let patch = |path: &str, body: Value| service.operator("PATCH", path, &body).ok();
    patch(
        &path,
        json!({"plan": "middle", "rate_limit_rps": 7, "contact_email": "new@bear.example", "name": "Bär"}),
    );
    patch(&path, json!({"contact_email": null, "rate_limit_rps": null}));
    let project = text(
        &post(&format!("{path}/projects"), json!({"name": "web", "frameworks": ["gdpr"]}))["project_id"],
    );
    patch(
        &format!("/projects/{project}"),
        json!({"name": "shop", "frameworks": ["gdpr", "hipaa"], "rate_limit_rps": 3}),
    );
    let key = post(
        &format!("/projects/{project}/keys"),
        json!({"name": "ci", "mode": "live", "expires_at": "2027-01-01T00:00:00Z"}),
    );
    let key_id = text(&key["key_id"]);
    post(&format!("/keys/{key_id}/revoke"), Value::Null);
    let token = post(&format!("/projects/{project}/monitor-tokens"), json!({"name": "auditor"}));
    let token_id = text(&token["token_id"]);
    post(&format!("/monitor-tokens/{token_id}/revoke"), Value::Null);
    post(
        &format!("{path}/actions"),
        json!({"action": "bear.fed", "severity": "info", "required_fields": ["kg"]}),
    );
    let user = post(
        &format!("{path}/users"),
        json!({"email": "zoe@bear.example", "password": "correct horse", "role": "admin"}),
    );
    let user_id = text(&user["user_id"]);
    // Somebody who is known, by her id.
    let other = service.operator(
        "POST",
        &format!("/tenants/{}/users", service.tenant_id),
        &json!({"email": "ZOE@bear.example", "password": "ignored, but long", "role": "owner"}),
    );
    assert_eq!(other.created("user_id"), user_id);

    let events = drained(&service, &tenant);
    let expected = [
        (
            "sealog.tenant_created",
            format!("tenant/{tenant}"),
            json!({"name": "Bär", "plan": "entry", "billing_active": true, "trial_ends_at": null}),
        ),
        (
            "sealog.tenant_changed",
            format!("tenant/{tenant}"),
            json!({"plan": {"from": "entry", "to": "middle"}, "rate_limit_rps": {"from": null, "to": 7}, "contact_email": "changed"}),
        ),
        (
            "sealog.tenant_changed",
            format!("tenant/{tenant}"),
            json!({"rate_limit_rps": {"from": 7, "to": null}, "contact_email": "removed"}),
        ),
        (
            "sealog.project_created",
            format!("project/{project}"),
            json!({"name": "web", "frameworks": ["gdpr"]}),
        ),
        (
            "sealog.project_changed",
            format!("project/{project}"),
            json!({"name": {"from": "web", "to": "shop"}, "rate_limit_rps": {"from": null, "to": 3}}),
        ),
        (
            "sealog.frameworks_changed",
            format!("project/{project}"),
            json!({"frameworks": {"from": ["gdpr"], "to": ["gdpr", "hipaa"]}}),
        ),
        (
            "sealog.key_created",
            format!("key/{key_id}"),
            json!({"project_id": project, "name": "ci", "mode": "live", "prefix": key["prefix"], "expires_at": "2027-01-01T00:00:00.000Z"}),
        ),
        (
            "sealog.key_revoked",
            format!("key/{key_id}"),
            json!({"project_id": project, "name": "ci", "mode": "live", "prefix": key["prefix"]}),
        ),
        (
            "sealog.monitor_token_created",
            format!("monitor_token/{token_id}"),
            json!({"project_id": project, "name": "auditor", "mode": "live", "prefix": token["prefix"], "expires_at": null}),
        ),
        (
            "sealog.monitor_token_revoked",
            format!("monitor_token/{token_id}"),
            json!({"project_id": project, "name": "auditor", "mode": "live", "prefix": token["prefix"]}),
        ),
        (
            "sealog.action_created",
            "action/bear.fed".to_owned(),
            json!({"action": "bear.fed", "category": null, "severity": "info", "required_fields": ["kg"], "optional_fields": []}),
        ),
        ("sealog.member_added", format!("member/{user_id}"), json!({"role": "admin"})),
    ];
    assert_eq!(events.len(), expected.len(), "{events:#?}");
    for (event, (action, resource, metadata)) in events.iter().zip(expected) {
        let mut told = event["metadata"].clone();
        let record_id = told.as_object_mut().unwrap().remove("record_id").unwrap();
        assert!(Uuid::parse(record_id.as_str().unwrap()).is_some());
        assert_eq!(
            (&event["action"], &event["resource"], &event["actor_id"], &event["actor_type"], told),
            (&json!(action), &json!(resource), &json!("operator"), &json!("operator"), metadata)
        );
        assert!(event["category"].is_string() && event["severity"].is_string(), "{event}");
    }
    assert_eq!(
        told(&drained(&service, &service.tenant_id)).last().unwrap(),
        &("sealog.member_added".to_owned(), format!("member/{user_id}"))
    );
    // Events are kept for years: nothing that opens anything, and nobody's address.
    let everything = Value::from(events).to_string();
    for secret in
        [text(&key["key"]).as_str(), text(&token["token"]).as_str(), "bear.example", "correct horse"]
    {
        assert!(!everything.contains(secret), "{secret}");
    }
}

#[test]
fn what_changes_nothing_leaves_no_event() {
    let service = Service::start();
    let before = events_of(&service, &service.tenant_id).len();
    service.change_tenant(&json!({"name": "Acme"}));
    service.change_tenant(&json!({}));
    service.change_project(&json!({"name": "project", "frameworks": []}));
    service.operator(
        "POST",
        &format!("/tenants/{}/actions", service.tenant_id),
        &json!({"action": "user.login"}),
    );
    service.operator("PATCH", "/tenants/00000000-0000-4000-8000-000000000000", &json!({"name": "x"}));
    assert_eq!(drained(&service, &service.tenant_id).len(), before);
    // Revoking a second time is the same as once.
    let keys = service.operator("GET", &format!("/projects/{}/keys", service.project_id), &Value::Null).ok();
    let revoke = format!("/keys/{}/revoke", text(&keys["keys"][0]["key_id"]));
    for _ in 0..2 {
        service.operator("POST", &revoke, &Value::Null).ok();
    }
    assert_eq!(drained(&service, &service.tenant_id).len(), before + 1);
}

#[test]
fn the_chain_is_sealed_and_verified_like_any_other() {
    let service = Service::start();
    let chain = chain_of(&service, &service.tenant_id);
    assert!(chain.is_system());
    let verdict = wait(sealog_store::verify::whole(service.hinge(), chain)).unwrap();
    assert!(verdict.valid(), "{verdict:?}");
    let events = events_of(&service, &service.tenant_id);
    assert_eq!(verdict.checked, events.len() as u64);
    assert_eq!(
        events.iter().map(|event| text(&event["action"])).collect::<Vec<_>>(),
        ["sealog.tenant_created", "sealog.project_created", "sealog.key_created", "sealog.key_created"]
    );
    let project_id = json!(chain.project_id.to_string());
    assert!(events.iter().all(|event| event["project_id"] == project_id));
}

#[test]
fn it_counts_toward_no_usage_and_no_quota() {
    let service = Service::start();
    assert_eq!(events_of(&service, &service.tenant_id).len(), 4);
    assert_eq!(service.usage(), 0);
    service.log(&service.live, LOGIN);
    service.change_tenant(&json!({"name": "Renamed"}));
    service.await_drained();
    assert_eq!(service.usage(), 1);
}

#[test]
fn no_list_shows_its_project_and_nothing_can_be_done_to_it() {
    let service = Service::start();
    let project_id = chain_of(&service, &service.tenant_id).project_id.to_string();
    let projects = service.operator("GET", &format!("/tenants/{}/projects", service.tenant_id), &Value::Null);
    assert_eq!(projects.ok()["projects"].as_array().unwrap().len(), 1);
    assert!(!projects.body.contains(&project_id));
    let path = format!("/projects/{project_id}");
    let not_found = |method: &str, path: &str, body: Value| {
        service.operator(method, path, &body).rejected(404, "request/not_found");
    };
    not_found("GET", &path, Value::Null);
    not_found("PATCH", &path, json!({"name": "mine"}));
    not_found("GET", &format!("{path}/keys"), Value::Null);
    not_found("POST", &format!("{path}/keys"), json!({"name": "k", "mode": "live"}));
}

#[test]
fn no_key_can_send_an_action_of_sealogs_own() {
    let service = Service::start();
    for action in ["sealog.key_created", "sealog.loss_accepted", "sealog.anything", "sealog."] {
        for key in [&service.live, &service.test] {
            let body = json!({ "action": action }).to_string();
            service.event(key, &body).rejected(422, "action/invalid");
            service
                .batch(key, json!({ "events": [{ "action": action }] }).to_string())
                .rejected(422, "action/invalid");
        }
        let body = json!({ "action": action });
        let path = format!("/tenants/{}/actions", service.tenant_id);
        service.operator("POST", &path, &body).rejected(422, "validation/invalid_field");
    }
}

#[test]
fn records_wait_in_order_while_the_chain_cannot_be_written_and_other_tenants_go_on() {
    let service = Service::start();
    let other = service.new_tenant(&json!({"name": "other"}));
    service.await_drained();
    let before = events_of(&service, &service.tenant_id).len();
    service.hinge().set(Mood::SystemWritesFail(Some(tenant_id(&service.tenant_id))));
    for n in 1..=3 {
        service.change_tenant(&json!({"name": format!("name {n}")}));
        service.operator("PATCH", &format!("/tenants/{other}"), &json!({"name": format!("other {n}")})).ok();
    }
    // The change itself is made, and nothing of it is lost or overtaken.
    let pending = || wait(service.control().count_records()).unwrap();
    eventually(|| pending() == 3);
    assert_eq!(events_of(&service, &other).len(), 4);
    let gauge = |expected: &str| {
        let metrics = service.get("/metrics", "-").body;
        assert!(metrics.contains(&format!("\nsealog_system_records_pending {expected}\n")), "{metrics}");
    };
    gauge("3");
    assert_eq!(events_of(&service, &service.tenant_id).len(), before);
    service.hinge().set(Mood::Willing);
    service.change_tenant(&json!({"name": "name 4"}));
    let events = drained(&service, &service.tenant_id);
    let names: Vec<_> = events[before..].iter().map(|event| text(&event["metadata"]["name"]["to"])).collect();
    assert_eq!(names, ["name 1", "name 2", "name 3", "name 4"]);
    gauge("0");
}

#[test]
fn a_stop_between_a_change_and_its_event_loses_nothing_and_doubles_nothing() {
    let mut service = Service::start();
    let before = events_of(&service, &service.tenant_id).len();
    service.hinge().set(Mood::SystemWritesFail(None));
    for n in 1..=3 {
        service.change_tenant(&json!({"name": format!("name {n}")}));
    }
    service.restart();
    let names = |service: &Service| -> Vec<String> {
        let events = drained(service, &service.tenant_id);
        events[before..].iter().map(|event| text(&event["metadata"]["name"]["to"])).collect()
    };
    assert_eq!(names(&service), ["name 1", "name 2", "name 3"]);
    service.restart();
    assert_eq!(names(&service), ["name 1", "name 2", "name 3"]);
}

/// Puts a record that is in the chain back among those that wait: what a crash between the append and the
/// removal leaves.
fn put_back(service: &Service, record: NewRecord) {
    let records = Records::of(vec![record]);
    let tenant = tenant_id(&service.tenant_id);
    wait(service.control().update_tenant(tenant, TenantChange::default(), records)).unwrap();
}

#[test]
fn a_record_that_was_appended_and_not_removed_is_not_appended_again_not_even_after_the_keys_are_forgotten() {
    let mut service = Service::start();
    service.hinge().set(Mood::SystemWritesFail(None));
    service.change_tenant(&json!({"name": "once"}));
    let waiting = wait(service.control().pending_records(tenant_id(&service.tenant_id), 9)).unwrap();
    let record = || NewRecord {
        id: waiting[0].id,
        draft: waiting[0].draft.clone(),
        created_at_ms: waiting[0].created_at_ms,
    };
    service.hinge().set(Mood::Willing);
    let events = drained(&service, &service.tenant_id).len();
    for hours in [0, 11, 2, 12, 24, 24 * 365] {
        service.clock.advance(hours * HOUR_MS);
        put_back(&service, record());
        service.restart();
        assert_eq!(drained(&service, &service.tenant_id).len(), events, "{hours} hours later");
    }
    // Whereas one that has never been there is appended, however old it is.
    let id = Uuid::from_random([5; 16]);
    let draft = waiting[0].draft.replace(&waiting[0].id.to_string(), &id.to_string());
    put_back(&service, NewRecord { id, draft, created_at_ms: waiting[0].created_at_ms });
    assert!(service.clock.now_ms() - waiting[0].created_at_ms > 24 * HOUR_MS);
    service.restart();
    assert_eq!(drained(&service, &service.tenant_id).len(), events + 1);
}
