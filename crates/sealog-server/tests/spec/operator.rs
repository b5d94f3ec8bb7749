//! 11 The operator's interface.

use sealog_core::id::{TenantId, Uuid};
use serde_json::{Value, json};

use crate::harness::*;

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

fn null() -> Value {
    Value::Null
}

fn tenant_path(service: &Service, rest: &str) -> String {
    format!("/tenants/{}{rest}", service.tenant_id)
}

#[test]
fn without_a_token_in_the_configuration_the_routes_do_not_exist() {
    let service = Service::with(|setup| setup.config.operator_token = None);
    service.operator("GET", "/tenants", &null()).rejected(404, "request/not_found");
    service.operator("POST", "/tenants", &json!({"name": "x"})).rejected(404, "request/not_found");
}

#[test]
fn a_wrong_token_is_key_not_found() {
    let service = Service::start();
    for token in ["wrong", &format!("{TOKEN}x"), &TOKEN[1..], &service.live] {
        let headers = [("Authorization", bearer(token))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let answer = service.request("GET", "/operator/v1/tenants", &headers, b"");
        let error = answer.json["error"].clone();
        assert!(error["message"].as_str().unwrap().contains("operator token"), "{error}");
        answer.rejected(401, "auth/key_not_found");
    }
    service.request("GET", "/operator/v1/tenants", &[], b"").rejected(401, "auth/missing_header");
    service
        .request("GET", "/operator/v1/tenants", &[("Authorization", TOKEN)], b"")
        .rejected(401, "auth/invalid_format");
}

#[test]
fn two_tokens_have_the_wrong_format() {
    let service = Service::start();
    let (right, wrong) = (bearer(TOKEN), bearer("wrong"));
    for pair in [[&right, &wrong], [&wrong, &right], [&right, &right]] {
        let headers = pair.map(|token| ("Authorization", token.as_str()));
        let answer = service.request("GET", "/operator/v1/tenants", &headers, b"");
        answer.rejected(401, "auth/invalid_format");
    }
}

#[test]
fn the_epoch_is_told_to_the_operator_and_to_nobody_else() {
    let service = Service::start();
    let epoch = || service.operator("GET", "/replication/epoch", &null()).json;
    assert_eq!(epoch(), json!({"epoch": 0}));
    wait(service.control().raise_epoch()).unwrap();
    // What a peer has told is not its own.
    wait(service.control().see_epoch(9)).unwrap();
    assert_eq!(epoch(), json!({"epoch": 1}));
    let path = "/operator/v1/replication/epoch";
    service.request("GET", path, &[], b"").rejected(401, "auth/missing_header");
    let key = bearer(&service.live);
    service.request("GET", path, &[("Authorization", &key)], b"").rejected(401, "auth/key_not_found");
    // No receipt carries it.
    let answer = service.event(&service.live, LOGIN);
    assert!(!answer.body.contains("epoch") && answer.headers.iter().all(|(name, _)| !name.contains("epoch")));
}

#[test]
fn a_tenant_is_created_on_the_top_plan_with_active_billing_unless_said_otherwise() {
    let service = Service::start();
    let answer = service.operator("POST", "/tenants", &json!({"name": "Acme"}));
    let tenant_id = answer.created("tenant_id");
    assert_eq!(
        answer.json,
        json!({
            "tenant_id": tenant_id, "name": "Acme", "plan": "top", "contact_email": null, "trial_ends_at": null,
            "billing_active": true, "rate_limit_rps": null, "created_at": "2026-11-15T12:00:00.000Z",
        })
    );
    let answer = service.operator(
        "POST",
        "/tenants",
        &json!({
            "name": "Other", "plan": "entry", "contact_email": "a@example.org",
            "trial_ends_at": "2026-12-01T01:00:00+01:00", "billing_active": false,
        }),
    );
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json["plan"], "entry");
    assert_eq!(answer.json["contact_email"], "a@example.org");
    assert_eq!(answer.json["trial_ends_at"], "2026-12-01T00:00:00.000Z");
    assert_eq!(answer.json["billing_active"], false);
}

#[test]
fn ids_are_uuids_in_lower_case() {
    let service = Service::start();
    for id in [&service.tenant_id, &service.project_id] {
        assert_eq!(Uuid::parse(id).unwrap().to_string(), *id);
    }
}

#[test]
fn a_tenant_is_changed_field_by_field() {
    let service = Service::start();
    let path = tenant_path(&service, "");
    let before = service.operator("GET", &path, &null()).ok();
    let mut expected = before;
    for (field, value) in [
        ("name", json!("New name")),
        ("plan", json!("middle")),
        ("contact_email", json!("b@example.org")),
        ("trial_ends_at", json!("2027-01-01T00:00:00.000Z")),
        ("billing_active", json!(false)),
        ("rate_limit_rps", json!(7)),
        ("rate_limit_rps", json!(null)),
        ("trial_ends_at", json!(null)),
    ] {
        expected[field] = value.clone();
        assert_eq!(service.operator("PATCH", &path, &json!({ field: value })).ok(), expected);
        assert_eq!(service.operator("GET", &path, &null()).ok(), expected);
    }
}

#[test]
fn a_rate_of_null_goes_back_to_the_plans() {
    let service = Service::start();
    service.change_tenant(&json!({"rate_limit_rps": 1}));
    service.get("/v1/events", &service.live).ok();
    service.get("/v1/events", &service.live).rejected(429, "rate/limit_exceeded");
    service.change_tenant(&json!({"rate_limit_rps": null}));
    service.get("/v1/events", &service.live).ok();
}

#[test]
fn a_rate_is_a_whole_number_from_0_to_4294967295_however_it_is_written() {
    let service = Service::start();
    let set = |value: &str| {
        let body = format!("{{\"rate_limit_rps\":{value}}}");
        let path = format!("/operator/v1/projects/{}", service.project_id);
        service.request("PATCH", &path, &[("Authorization", &bearer(TOKEN))], body.as_bytes())
    };
    for (value, rate) in
        [("0", 0), ("-0", 0), ("-0.0", 0), ("41.0", 41), ("1e3", 1000), ("4294967295", 4_294_967_295_u32)]
    {
        assert_eq!(set(value).ok()["rate_limit_rps"], rate, "{value}");
    }
    for value in ["4294967296", "-1", "1.5", "1e-3", "1e300", "\"1\"", "true", "[1]"] {
        set(value).rejected(422, "validation/invalid_field");
    }
}

#[test]
fn a_project_is_created_with_its_frameworks_and_changed() {
    let service = Service::start();
    let path = tenant_path(&service, "/projects");
    let answer = service.operator("POST", &path, &json!({"name": "p", "frameworks": ["hipaa", "soc2"]}));
    let project_id = answer.created("project_id");
    let mut expected = json!({
        "project_id": project_id, "tenant_id": service.tenant_id, "name": "p", "frameworks": ["soc2", "hipaa"],
        "rate_limit_rps": null, "created_at": "2026-11-15T12:00:00.000Z",
    });
    assert_eq!(answer.json, expected);
    let path = format!("/projects/{project_id}");
    for (field, value) in [
        ("name", json!("q")),
        ("frameworks", json!(["gdpr"])),
        ("rate_limit_rps", json!(9)),
        ("rate_limit_rps", null()),
    ] {
        expected[field] = value.clone();
        assert_eq!(service.operator("PATCH", &path, &json!({ field: value })).ok(), expected);
    }
    assert_eq!(service.operator("GET", &path, &null()).ok(), expected);
}

#[test]
fn a_key_is_shown_whole_this_once() {
    let service = Service::start();
    let project_id = service.new_project(&service.tenant_id, &[]);
    let path = format!("/projects/{project_id}/keys");
    let body = json!({"name": "ci", "mode": "test", "expires_at": "2027-01-01T00:00:00Z"});
    let answer = service.operator("POST", &path, &body);
    let key = answer.created("key");
    let mut expected = json!({
        "key_id": answer.json["key_id"], "project_id": project_id, "name": "ci", "mode": "test", "key": key,
        "prefix": &key[..12], "expires_at": "2027-01-01T00:00:00.000Z", "revoked_at": null, "last_used_at": null,
        "created_at": "2026-11-15T12:00:00.000Z",
    });
    assert_eq!(answer.json, expected);
    expected.as_object_mut().unwrap().remove("key");
    let listed = service.operator("GET", &path, &null()).ok();
    assert_eq!(listed, json!({"keys": [expected], "has_more": false}));
}

#[test]
fn revoking_says_when_and_twice_is_as_once() {
    let service = Service::start();
    let path = format!("/projects/{}/keys", service.project_id);
    let key_id = service.operator("POST", &path, &json!({"name": "k", "mode": "live"})).created("key_id");
    for _ in 0..2 {
        let answer = service.operator("POST", &format!("/keys/{key_id}/revoke"), &null()).ok();
        assert_eq!(answer["revoked_at"], "2026-11-15T12:00:00.000Z");
        service.clock.advance(1000);
    }
}

#[test]
fn a_monitor_token_is_shown_whole_this_once_and_revoked_like_a_key() {
    let service = Service::start();
    let path = format!("/projects/{}/monitor-tokens", service.project_id);
    let body = json!({"name": "auditor", "expires_at": "2027-01-01T00:00:00Z"});
    let answer = service.operator("POST", &path, &body);
    let (token, id) = (answer.created("token"), answer.created("token_id"));
    assert!(token.starts_with("sm_live_") && token.len() == service.live.len(), "{token}");
    let mut expected = json!({
        "token_id": id, "project_id": service.project_id, "name": "auditor", "token": token, "prefix": &token[..12],
        "expires_at": "2027-01-01T00:00:00.000Z", "revoked_at": null, "last_used_at": null,
        "created_at": "2026-11-15T12:00:00.000Z",
    });
    assert_eq!(answer.json, expected);
    expected.as_object_mut().unwrap().remove("token");
    assert_eq!(
        service.operator("GET", &path, &null()).ok(),
        json!({"monitor_tokens": [expected], "has_more": false})
    );
    service.operator("POST", &path, &json!({"name": "auditor"})).rejected(422, "validation/invalid_field");
    for _ in 0..2 {
        let revoked = service.operator("POST", &format!("/monitor-tokens/{id}/revoke"), &null()).ok();
        assert_eq!(revoked["revoked_at"], "2026-11-15T12:00:00.000Z");
        service.clock.advance(1000);
    }
    service.operator("POST", &path, &json!({"name": "auditor"})).created("token_id");
    let first = service.operator("GET", &format!("{path}?limit=1"), &null()).ok();
    assert_eq!((&first["monitor_tokens"][0]["token_id"], &first["has_more"]), (&json!(id), &json!(true)));
    let next = text(&first["next_cursor"]);
    let second = service.operator("GET", &format!("{path}?cursor={next}"), &null()).ok();
    assert_eq!(second["monitor_tokens"].as_array().unwrap().len(), 1);
}

#[test]
fn a_project_has_at_most_twenty_monitor_tokens_that_work() {
    let service = Service::start();
    let path = format!("/projects/{}/monitor-tokens", service.project_id);
    let create = |n: usize| service.operator("POST", &path, &json!({"name": n.to_string()}));
    let ids: Vec<String> = (0..20).map(|n| create(n).created("token_id")).collect();
    let message = create(20).rejected(422, "validation/invalid_field");
    assert!(message.contains("20 active tokens"), "{message}");
    service.operator("POST", &format!("/monitor-tokens/{}/revoke", ids[7]), &null()).ok();
    create(20).created("token_id");
}

#[test]
fn the_longest_lifetime_of_keys_holds_for_monitor_tokens() {
    let service = Service::start();
    let tenant_id = TenantId(Uuid::parse(&service.tenant_id).unwrap());
    wait(service.control().set_setting(tenant_id, "key_lifetime_days".into(), Some("10".into()), vec![]))
        .unwrap();
    let path = format!("/projects/{}/monitor-tokens", service.project_id);
    let made = service.operator("POST", &path, &json!({"name": "a"}));
    made.created("token_id");
    assert_eq!(made.json["expires_at"], "2026-11-25T12:00:00.000Z");
    let late = json!({"name": "b", "expires_at": "2026-11-25T12:00:00.001Z"});
    service.operator("POST", &path, &late).rejected(422, "validation/invalid_field");
}

#[test]
fn a_custom_action_is_created_with_what_it_may_have() {
    let service = Service::start();
    let body = json!({
        "action": "invoice.approved", "description": "d", "category": "billing", "severity": "warning",
        "required_fields": ["amount"], "optional_fields": ["currency"],
    });
    let path = tenant_path(&service, "/actions");
    let answer = service.operator("POST", &path, &body);
    assert_eq!((answer.status, &answer.json), (201, &body));
    let listed = service.operator("GET", &path, &null()).ok();
    assert_eq!(listed, json!({"actions": [body], "has_more": false}));
}

#[test]
fn a_custom_action_may_not_take_a_catalog_name_or_a_reserved_beginning_or_stand_twice() {
    let service = Service::start();
    let path = tenant_path(&service, "/actions");
    let create = |action: &str| service.operator("POST", &path, &json!({ "action": action }));
    let too_long = "x".repeat(256);
    for action in
        ["user.login", "hipaa.mine", "ai_act.x", "soc2.x", "sealog.x", "", "a\nb", "a\u{0}b", &too_long]
    {
        let message = create(action).rejected(422, "validation/invalid_field");
        assert!(message.starts_with("action "), "{message}");
    }
    for action in ["invoice.approved", "hipaa", &"x".repeat(255)] {
        create(action).created("action");
        create(action).rejected(422, "validation/invalid_field");
    }
}

#[test]
fn a_user_is_created_and_the_password_is_never_shown() {
    let service = Service::start();
    let path = tenant_path(&service, "/users");
    let body = json!({"email": "ann@example.org", "password": "correct horse battery", "role": "auditor"});
    let answer = service.operator("POST", &path, &body);
    let expected = json!({
        "user_id": answer.created("user_id"), "tenant_id": service.tenant_id, "email": "ann@example.org",
        "role": "auditor", "created_at": "2026-11-15T12:00:00.000Z",
    });
    assert_eq!(answer.json, expected);
    let listed = service.operator("GET", &path, &null()).ok();
    assert_eq!(listed, json!({"users": [expected], "has_more": false}));
}

#[test]
fn a_user_needs_an_address_of_its_own_a_role_and_a_password_of_some_length() {
    let service = Service::start();
    let path = tenant_path(&service, "/users");
    let create = |email: &str, password: &str, role: &str| {
        service.operator("POST", &path, &json!({"email": email, "password": password, "role": role}))
    };
    create("ann@example.org", "0123456789", "owner").created("user_id");
    for (email, password, role) in [
        ("Ann@Example.org", "0123456789", "owner"),
        ("nobody", "0123456789", "owner"),
        ("bob @example.org", "0123456789", "owner"),
        ("bob@example.org\r\nBcc: x@example.org", "0123456789", "owner"),
        ("bob\u{19}@example.org", "0123456789", "owner"),
        ("bob@example.org", "012345678", "owner"),
        ("bob@example.org", "0123456789", "king"),
    ] {
        create(email, password, role).rejected(422, "validation/invalid_field");
    }
}

#[test]
fn an_address_that_exists_adds_a_membership_and_keeps_its_password() {
    let service = Service::start();
    let other = service.new_tenant(&json!({"name": "other"}));
    let create = |tenant_id: &str, body: &Value| {
        service.operator("POST", &format!("/tenants/{tenant_id}/users"), body)
    };
    let ann = json!({"email": "Ann@example.org", "password": "correct horse battery", "role": "owner"});
    let user_id = create(&service.tenant_id, &ann).created("user_id");
    let hash = || wait(service.control().person_by_email("ann@example.org".into())).unwrap().unwrap().1;
    let before = hash();
    service.clock.advance(1000);
    // Whatever password the body has.
    for body in [
        json!({"email": "ANN@EXAMPLE.ORG", "password": "another password", "role": "auditor"}),
        json!({"email": "ann@example.org", "password": "correct horse battery", "role": "auditor"}),
    ] {
        let tenant_id = service.new_tenant(&json!({"name": "another"}));
        let expected = json!({
            "user_id": user_id, "tenant_id": tenant_id, "email": "Ann@example.org",
            "role": "auditor", "created_at": "2026-11-15T12:00:01.000Z",
        });
        let answer = create(&tenant_id, &body);
        assert_eq!((answer.status, &answer.json), (201, &expected));
        let listed = service.operator("GET", &format!("/tenants/{tenant_id}/users"), &null()).ok();
        assert_eq!(listed, json!({"users": [expected], "has_more": false}));
        // In one tenant it is a member once.
        create(&tenant_id, &body).rejected(422, "validation/invalid_field");
    }
    assert_eq!(hash(), before);
    // A body is the same for everybody: what is refused does not tell whether the address has an account.
    for email in ["ann@example.org", "bob@example.org"] {
        for body in [
            json!({"email": email, "role": "auditor"}),
            json!({"email": email, "password": "short", "role": "auditor"}),
        ] {
            let message = create(&other, &body).rejected(422, "validation/invalid_field");
            assert!(message.starts_with("password "), "{message}");
        }
    }
    create(NOBODY, &ann).rejected(404, "request/not_found");
}

#[test]
fn a_user_has_one_of_five_roles() {
    let service = Service::start();
    for role in ["owner", "admin", "developer", "privacy_officer", "auditor"] {
        let user = json!({"email": format!("{role}@example.org"), "password": "0123456789", "role": role});
        let answer = service.operator("POST", &tenant_path(&service, "/users"), &user);
        answer.created("user_id");
        assert_eq!(answer.json["role"], role);
    }
}

#[test]
fn lists_go_on_with_limit_and_cursor() {
    let service = Service::start();
    let project_id = service.new_project(&service.tenant_id, &[]);
    for n in 0..4 {
        service.new_tenant(&json!({"name": "t"}));
        service.new_project(&service.tenant_id, &[]);
        service.new_key(&project_id, "live");
        service.new_action(&json!({ "action": format!("mine.{n}+ü") }));
        let user = json!({"email": format!("u{n}@example.org"), "password": "0123456789", "role": "owner"});
        service.operator("POST", &tenant_path(&service, "/users"), &user).created("user_id");
        service.clock.advance(1);
    }
    for (path, name, id) in [
        ("/tenants".to_owned(), "tenants", "tenant_id"),
        (tenant_path(&service, "/projects"), "projects", "project_id"),
        (format!("/projects/{project_id}/keys"), "keys", "key_id"),
        (tenant_path(&service, "/actions"), "actions", "action"),
        (tenant_path(&service, "/users"), "users", "user_id"),
    ] {
        let ids = |page: &Value| {
            page[name].as_array().unwrap().iter().map(|item| text(&item[id])).collect::<Vec<_>>()
        };
        let all = service.operator("GET", &path, &null()).ok();
        assert_eq!((&all["has_more"], all.get("next_cursor")), (&json!(false), None), "{name}");
        let (mut seen, mut query) = (Vec::new(), "?limit=2".to_owned());
        loop {
            let page = service.operator("GET", &format!("{path}{query}"), &null()).ok();
            assert!(ids(&page).len() <= 2, "{name}: {page}");
            seen.extend(ids(&page));
            let Some(cursor) = page.get("next_cursor") else { break };
            query = format!("?limit=2&cursor={}", text(cursor));
        }
        assert_eq!(seen, ids(&all), "{name}");
        assert!(seen.len() >= 4, "{name}");
    }
}

#[test]
fn a_list_has_50_items_on_a_page_unless_limit_says_1_to_100() {
    let service = Service::start();
    for n in 0..101 {
        service.new_action(&json!({ "action": format!("mine.{n:03}") }));
    }
    let path = tenant_path(&service, "/actions");
    for (query, count) in [
        ("", 50),
        ("?limit=1", 1),
        ("?limit=100", 100),
        ("?limit=101", 50),
        ("?limit=0", 50),
        ("?limit=-1", 50),
        ("?limit=99999999999999999999", 50),
    ] {
        let page = service.operator("GET", &format!("{path}{query}"), &null()).ok();
        assert_eq!(
            (page["actions"].as_array().unwrap().len(), &page["has_more"]),
            (count, &json!(true)),
            "{query}"
        );
    }
}

#[test]
fn a_list_that_ends_with_its_page_has_no_more() {
    let service = Service::start();
    for n in 0..3 {
        service.new_action(&json!({ "action": format!("mine.{n}") }));
    }
    let page = |limit| {
        service.operator("GET", &tenant_path(&service, &format!("/actions?limit={limit}")), &null()).ok()
    };
    assert_eq!((page(2).get("next_cursor").is_some(), &page(2)["has_more"]), (true, &json!(true)));
    assert_eq!((page(3).get("next_cursor"), &page(3)["has_more"]), (None, &json!(false)));
}

#[test]
fn a_list_shows_what_belongs_to_its_tenant_or_project_only() {
    let service = Service::start();
    let other = service.new_tenant(&json!({"name": "other"}));
    let project_id = service.new_project(&other, &[]);
    let user = json!({"email": "a@example.org", "password": "0123456789", "role": "owner"});
    service.operator("POST", &format!("/tenants/{other}/users"), &user).created("user_id");
    service
        .operator("POST", &format!("/tenants/{other}/actions"), &json!({"action": "mine.x"}))
        .created("action");
    service.new_key(&project_id, "live");
    let count =
        |path: &str, name: &str| service.operator("GET", path, &null()).ok()[name].as_array().unwrap().len();
    assert_eq!(count(&tenant_path(&service, "/projects"), "projects"), 1);
    assert_eq!(count(&tenant_path(&service, "/users"), "users"), 0);
    assert_eq!(count(&tenant_path(&service, "/actions"), "actions"), 0);
    assert_eq!(count(&format!("/projects/{}/keys", service.project_id), "keys"), 2);
    assert_eq!(count(&format!("/projects/{project_id}/keys"), "keys"), 1);
    service.new_monitor_token(&service.project_id);
    assert_eq!(count(&format!("/projects/{}/monitor-tokens", service.project_id), "monitor_tokens"), 1);
    assert_eq!(count(&format!("/projects/{project_id}/monitor-tokens"), "monitor_tokens"), 0);
}

#[test]
fn a_bad_parameter_of_a_list_is_invalid() {
    let service = Service::start();
    for path in [
        "/tenants".to_owned(),
        tenant_path(&service, "/projects"),
        tenant_path(&service, "/actions"),
        tenant_path(&service, "/users"),
        format!("/projects/{}/keys", service.project_id),
        format!("/projects/{}/monitor-tokens", service.project_id),
    ] {
        for (query, name) in [
            ("x=1", "x"),
            ("limit=x", "limit"),
            ("limit=", "limit"),
            ("limit=1.5", "limit"),
            ("limit=1&limit=1", "limit"),
            ("cursor=x", "cursor"),
            ("cursor=", "cursor"),
            ("cursor=%zz", "cursor"),
            ("cursor=a%00", "cursor"),
        ] {
            let answer = service.operator("GET", &format!("{path}?{query}"), &null());
            let message = answer.rejected(400, "read/invalid_params");
            assert!(message.starts_with(&format!("query parameter {name:?} ")), "{path}?{query}: {message}");
        }
        service.operator("GET", &format!("{path}?limit=0"), &null()).ok();
    }
}

#[test]
fn an_unknown_id_is_not_found() {
    let service = Service::start();
    for id in [NOBODY, "x"] {
        for (method, path, body) in [
            ("GET", format!("/tenants/{id}"), null()),
            ("PATCH", format!("/tenants/{id}"), json!({"name": "x"})),
            ("GET", format!("/tenants/{id}/projects"), null()),
            ("POST", format!("/tenants/{id}/projects"), json!({"name": "x"})),
            ("GET", format!("/tenants/{id}/actions"), null()),
            ("POST", format!("/tenants/{id}/actions"), json!({"action": "x.y"})),
            ("GET", format!("/tenants/{id}/users"), null()),
            (
                "POST",
                format!("/tenants/{id}/users"),
                json!({"email": "a@b.c", "password": "0123456789", "role": "owner"}),
            ),
            ("GET", format!("/projects/{id}"), null()),
            ("PATCH", format!("/projects/{id}"), json!({"name": "x"})),
            ("GET", format!("/projects/{id}/keys"), null()),
            ("POST", format!("/projects/{id}/keys"), json!({"name": "x", "mode": "live"})),
            ("POST", format!("/keys/{id}/revoke"), null()),
            ("GET", format!("/projects/{id}/monitor-tokens"), null()),
            ("POST", format!("/projects/{id}/monitor-tokens"), json!({"name": "x"})),
            ("POST", format!("/monitor-tokens/{id}/revoke"), null()),
        ] {
            service.operator(method, &path, &body).rejected(404, "request/not_found");
        }
    }
}

#[test]
fn a_body_is_asked_for_when_the_token_the_path_and_the_id_are_right() {
    let service = Service::start();
    let announced = |method: &str, path: &str, token: &str, bytes: usize| {
        let mut connection = service.connect();
        let head =
            format!("{method} /operator/v1/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n");
        connection.send(format!("{head}Expect: 100-continue\r\nContent-Length: {bytes}\r\n\r\n").as_bytes());
        connection
    };
    // Whatever its length: the first thing that is wrong is told.
    for bytes in [2, 1 << 20] {
        announced("POST", "nowhere", "wrong", bytes).receive().rejected(401, "auth/key_not_found");
        announced("POST", "nowhere", TOKEN, bytes).receive().rejected(404, "request/not_found");
        announced("PUT", "tenants", TOKEN, bytes).receive().rejected(405, "request/method_not_allowed");
        announced("PATCH", "tenants/x", TOKEN, bytes).receive().rejected(404, "request/not_found");
    }
    announced("POST", "tenants", TOKEN, 1 << 20).receive().rejected(413, "validation/body_too_large");
    let body = br#"{"name": "Announced"}"#;
    let mut connection = announced("POST", "tenants", TOKEN, body.len());
    assert_eq!(connection.receive().status, 100);
    connection.send(body);
    connection.receive().created("tenant_id");
}

#[test]
fn an_id_is_taken_as_it_is_written() {
    let service = Service::start();
    let encoded = service.tenant_id.replace('-', "%2D");
    service.operator("GET", &format!("/tenants/{encoded}"), &null()).rejected(404, "request/not_found");
    service.operator("GET", &format!("/tenants/{}", service.tenant_id), &null()).ok();
}

#[test]
fn a_body_that_is_not_a_json_object_is_invalid_json() {
    let service = Service::start();
    for body in ["", "nonsense", "[]", "null", "\"x\""] {
        let headers = [("Authorization", bearer(TOKEN))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        service
            .request("POST", "/operator/v1/tenants", &headers, body.as_bytes())
            .rejected(400, "validation/invalid_json");
    }
}

#[test]
fn a_bad_field_is_an_invalid_field_that_the_message_names() {
    let service = Service::start();
    let (tenants, tenant) = ("/tenants".to_owned(), tenant_path(&service, ""));
    let (projects, project) =
        (tenant_path(&service, "/projects"), format!("/projects/{}", service.project_id));
    let (keys, tokens) = (format!("{project}/keys"), format!("{project}/monitor-tokens"));
    for (method, path, field, body) in [
        ("POST", &tenants, "name", json!({})),
        ("POST", &tenants, "name", json!({"name": ""})),
        ("POST", &tenants, "name", json!({"name": 1})),
        ("POST", &tenants, "plan", json!({"name": "x", "plan": "gold"})),
        ("POST", &tenants, "contact_email", json!({"name": "x", "contact_email": "nobody"})),
        ("POST", &tenants, "trial_ends_at", json!({"name": "x", "trial_ends_at": "tomorrow"})),
        ("POST", &tenants, "billing_active", json!({"name": "x", "billing_active": "yes"})),
        ("POST", &tenants, "colour", json!({"name": "x", "colour": "red"})),
        ("PATCH", &tenant, "name", json!({"name": null})),
        ("PATCH", &tenant, "name", json!({"name": ""})),
        ("PATCH", &tenant, "plan", json!({"plan": "gold"})),
        ("PATCH", &tenant, "rate_limit_rps", json!({"rate_limit_rps": -1})),
        ("PATCH", &tenant, "rate_limit_rps", json!({"rate_limit_rps": 1.5})),
        ("POST", &projects, "name", json!({})),
        ("POST", &projects, "frameworks", json!({"name": "x", "frameworks": ["nonsense"]})),
        ("POST", &projects, "frameworks", json!({"name": "x", "frameworks": "soc2"})),
        ("PATCH", &project, "name", json!({"name": ""})),
        ("PATCH", &project, "rate_limit_rps", json!({"rate_limit_rps": "fast"})),
        ("POST", &keys, "name", json!({"mode": "live"})),
        ("POST", &keys, "mode", json!({"name": "x"})),
        ("POST", &keys, "mode", json!({"name": "x", "mode": "prod"})),
        ("POST", &keys, "expires_at", json!({"name": "x", "mode": "live", "expires_at": 1})),
        ("POST", &tokens, "name", json!({})),
        ("POST", &tokens, "name", json!({"name": ""})),
        ("POST", &tokens, "mode", json!({"name": "x", "mode": "live"})),
        ("POST", &tokens, "expires_at", json!({"name": "x", "expires_at": "soon"})),
    ] {
        let message = service.operator(method, path, &body).rejected(422, "validation/invalid_field");
        assert!(message.starts_with(&format!("{field} ")), "{message}");
    }
}

#[test]
fn a_wrong_method_is_not_allowed_and_an_unknown_path_not_found() {
    let service = Service::start();
    for (path, allow) in [
        ("/tenants".to_owned(), "GET, HEAD, POST"),
        (tenant_path(&service, ""), "GET, HEAD, PATCH"),
        (tenant_path(&service, "/projects"), "GET, HEAD, POST"),
        (format!("/projects/{}", service.project_id), "GET, HEAD, PATCH"),
        (format!("/keys/{NOBODY}/revoke"), "POST"),
        (format!("/projects/{}/monitor-tokens", service.project_id), "GET, HEAD, POST"),
        (format!("/monitor-tokens/{NOBODY}/revoke"), "POST"),
    ] {
        let answer = service.operator("DELETE", &path, &null());
        answer.rejected(405, "request/method_not_allowed");
        assert_eq!(answer.header("allow"), Some(allow), "{path}");
    }
    for path in ["/", "/nowhere", "/tenants/", "/keys"] {
        service.operator("GET", path, &null()).rejected(404, "request/not_found");
    }
}

#[test]
fn what_was_created_survives_a_restart() {
    let mut service = Service::start();
    let before = service.operator("GET", "/tenants", &null()).ok();
    service.new_action(&json!({"action": "invoice.approved"}));
    service.restart();
    assert_eq!(service.operator("GET", "/tenants", &null()).ok(), before);
    service.log(&service.live, r#"{"action":"invoice.approved"}"#);
}

/// 8 Limits: `limits.tenant_disk_mb`.
#[test]
fn a_tenant_without_room_for_account_data_is_refused_by_name_and_its_events_are_not() {
    let service = Service::start();
    let create = || service.operator("POST", &tenant_path(&service, "/projects"), &json!({"name": "x"}));
    service.control().limit_tenant_bytes(Some(1));
    create().rejected(403, "tenant/disk_used_up");
    service.log(&service.live, LOGIN);
    service.control().limit_tenant_bytes(None);
    assert_eq!(create().status, 201);
}
