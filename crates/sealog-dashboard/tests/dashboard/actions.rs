//! Actions: found, described, registered, retired.

use sealog_control::*;
use sealog_core::catalog::{Catalog, CustomAction};
use sealog_core::key;

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Auditor);
    stage.with_authenticator(2);
    stage
}

fn actions() -> String {
    format!("/app/o/{}/actions", tenant_id(1))
}

fn names(page: &Response) -> Vec<String> {
    let rows = page.text().split("/actions/entry?action=").skip(1);
    rows.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

fn create(stage: &Stage, fields: &[(&str, &str)]) -> Response {
    stage.signed_in(1).post(&format!("{}/create", actions()), fields)
}

/// What a key of the first project may send.
fn sendable(stage: &Stage) -> Vec<CustomAction> {
    stage.wait(stage.control.access(key::digest("k"))).unwrap().unwrap().actions
}

fn add_key(stage: &Stage) {
    let new = NewKey {
        id: KeyId(project_id(1).0),
        project_id: project_id(1),
        name: "k".into(),
        mode: sealog_core::id::Mode::Live,
        digest: key::digest("k"),
        prefix: "at_live_abcd".into(),
        expires_at_ms: None,
        created_at_ms: 1,
        created_by: None,
    };
    stage.wait(stage.control.create_key(new, vec![])).unwrap().unwrap();
}

#[test]
fn the_catalog_is_found_by_name_framework_category_and_kind_a_hundred_at_a_time() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let first = browser.get(&actions());
    assert_eq!(names(&first).len(), 100, "a page is bounded");
    first.shows("163 found");
    let next = first.text().split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(names(&browser.get(&next.replace("&#38;", "&"))).len(), 63);
    assert_eq!(names(&browser.get(&format!("{}?at=99999999", actions()))), [] as [&str; 0]);
    let expected = |matches: fn(&&sealog_core::catalog::Entry) -> bool| {
        Catalog::builtin().entries.iter().filter(matches).count()
    };
    let of_hipaa = expected(|entry| entry.frameworks.iter().any(|of| of.framework == "hipaa"));
    browser.get(&format!("{}?framework=hipaa", actions())).shows(&format!("{of_hipaa} found"));
    let of_auth = expected(|entry| entry.category == "auth");
    browser.get(&format!("{}?category=auth", actions())).shows(&format!("{of_auth} found"));
    let found = browser.get(&format!("{}?search=USER.login", actions()));
    assert!(names(&found).contains(&"user.login".to_owned()));
    found.shows("value=\"USER.login\"");
    create(&stage, &[("action", "invoice.approved")]);
    let custom = browser.get(&format!("{}?kind=custom", actions()));
    assert_eq!(names(&custom), ["invoice.approved"]);
    // Of another organisation there is nothing.
    stage.member(9, 2, Role::Owner);
    let foreign = format!("/app/o/{}/actions", tenant_id(2));
    stage.signed_in(9).get(&format!("{foreign}?kind=custom")).shows("No actions match.");
    stage
        .signed_in(9)
        .get(&format!("{foreign}/entry?action=invoice.approved"))
        .is_problem(404, "request/not_found");
}

#[test]
fn an_entry_shows_its_fields_its_clauses_and_a_command_that_sends_it() {
    let stage = stage();
    let mut auditor = stage.signed_in(2);
    let entry = auditor.get(&format!("{}/entry?action=ai_act.inference_logged", actions()));
    for part in [
        "<code>model_version</code>",
        "<code>risk_flag</code>",
        "Art. 12(1)-(2), 26(6)",
        "Enable one of its frameworks to use it",
        "&#34;ai_system_id&#34;: &#34;example&#34;",
        "curl -sS -i http://127.0.0.1:8080/v1/events",
    ] {
        entry.shows(part);
    }
    assert!(!auditor.get(&actions()).has("New custom action"));
    auditor.get(&format!("{}/entry?action=no.such_thing", actions())).is_problem(404, "request/not_found");
    let back = auditor.get(&format!("{}/entry", actions()));
    assert_eq!(back.location(), Some(actions()));
}

#[test]
fn a_new_action_is_sendable_at_once_until_it_is_retired_and_its_name_can_come_back() {
    let stage = stage();
    add_key(&stage);
    let fields = [
        ("action", "invoice.o'brien <b>"),
        ("description", "Somebody's invoice"),
        ("category", "billing"),
        ("severity", "warning"),
        ("required_fields", "amount\r\n currency ,\n"),
        ("optional_fields", ""),
    ];
    let made = create(&stage, &fields);
    assert_eq!(made.status, 303);
    let own = sendable(&stage).remove(0);
    assert_eq!(
        (own.required_fields, own.optional_fields),
        (vec!["amount".into(), "currency".into()], vec![])
    );
    assert_eq!((own.category.as_deref(), own.severity.as_deref()), (Some("billing"), Some("warning")));
    let page = stage.signed_in(1).get(&made.location().unwrap());
    page.shows("All projects can use it now.").shows("&#60;b&#62;").shows("invoice.o&#39;\\&#39;&#39;brien");
    let retire =
        |n, name: &str| stage.signed_in(n).post(&format!("{}/retire", actions()), &[("action", name)]);
    retire(2, "invoice.o'brien <b>").is_problem(403, "auth/not_allowed");
    for missing in ["user.login", "no.such", "", "a\0b"] {
        retire(1, missing).is_problem(404, "request/not_found");
    }
    assert_eq!(retire(1, "invoice.o'brien <b>").status, 303);
    assert_eq!(sendable(&stage), []);
    let list = stage.signed_in(1).get(&format!("{}?kind=custom", actions()));
    list.shows(">Retired<");
    let page = stage.signed_in(1).get(&made.location().unwrap());
    assert!(page.has("New events with this action are rejected") && !page.has("/retire\""));
    retire(1, "invoice.o'brien <b>").is_problem(404, "request/not_found");
    assert_eq!(create(&stage, &[("action", "invoice.o'brien <b>")]).status, 303);
    assert_eq!(sendable(&stage).len(), 1);
    let records = stage.records(1);
    let count = |action: &str| records.iter().filter(|record| record.contains(action)).count();
    assert_eq!((count("sealog.action_created"), count("sealog.action_retired")), (2, 1));
}

#[test]
fn what_is_wrong_with_an_action_stands_beside_its_field_and_keeps_what_was_typed() {
    let stage = stage();
    create(&stage, &[("action", "mine.once")]);
    let many = vec!["f"; 101].join(",");
    for (field, value, problem) in [
        ("action", "", "It must not be empty."),
        ("action", "user.login", "It is already an action of the catalog."),
        ("action", "hipaa.mine", "It must not begin with the reserved prefix hipaa.."),
        ("action", "sealog.mine", "reserved prefix"),
        ("action", "mine.once", "It is already registered."),
        ("required_fields", many.as_str(), "It must have at most 100 strings."),
    ] {
        let fields = [("action", "mine.other"), ("description", "kept \"as\" typed")];
        let mut fields: Vec<_> = fields.into_iter().filter(|(name, _)| *name != field).collect();
        fields.push((field, value));
        let answer = create(&stage, &fields);
        assert_eq!(answer.status, 422, "{problem}");
        answer.shows(problem).shows("value=\"kept &#34;as&#34; typed\"");
    }
    assert_eq!(stage.wait(stage.control.actions(tenant_id(1))).unwrap().len(), 1);
}
