//! Monitor tokens: made by owners, shown once, revoked, and good for no page.

use axum::http::Method;
use sealog_control::{MonitorAccess, Role};
use sealog_core::id::Uuid;
use sealog_core::key;
use sealog_dashboard::table;
use sealog_store::world::{SystemWorld, World};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Admin);
    stage.member(3, 2, Role::Owner);
    stage
}

fn path() -> String {
    format!("/app/o/{}/monitor-tokens", tenant_id(1))
}

fn new_form() -> String {
    let mut bytes = [0; 16];
    SystemWorld.fill_random(&mut bytes);
    Uuid::from_random(bytes).to_string()
}

fn create(stage: &Stage, chain: &str, fields: &[(&str, &str)]) -> Response {
    let form = new_form();
    let mut all = vec![("name", "auditor"), ("chain", chain), ("expires", ""), ("form", form.as_str())];
    all.retain(|(name, _)| !fields.iter().any(|(given, _)| given == name));
    all.extend(fields);
    stage.signed_in(1).post(&format!("{}/create", path()), &all)
}

fn raw(page: &Response) -> Option<String> {
    let text = page.text().split("aria-label=\"Monitor token\" data-copy>").nth(1)?;
    Some(text.split('<').next()?.to_owned())
}

fn access(stage: &Stage, token: &str) -> MonitorAccess {
    stage.wait(stage.control.monitor_access(key::digest(token))).unwrap().unwrap()
}

#[test]
fn an_owner_makes_a_token_for_a_project_and_for_the_system_chain_and_revokes_it() {
    let stage = stage();
    let project = project_id(1).to_string();
    let page = create(&stage, &project, &[("name", "audit <b>")]);
    let token = raw(&page).expect("the token");
    assert!(token.starts_with("sm_live_"), "{token}");
    page.shows("Shown once").shows("audit &#60;b&#62;");
    assert_eq!(access(&stage, &token).token.chain(), live(1));
    let system = raw(&create(&stage, "system", &[("expires", "2030-01-02")])).expect("the token");
    assert_eq!(access(&stage, &system).token.chain(), stage.system_chain(1));
    let list = stage.signed_in(1).get(&path());
    assert!(!list.has(&token) && !list.has(&system) && list.has(&token[..12]));
    list.shows("System chain").shows("Jan 2030");

    let id = access(&stage, &token).token.id.0.to_string();
    let revoke = |n, name: &str| {
        stage.signed_in(n).post(&format!("{}/revoke", path()), &[("token", &id), ("name", name)])
    };
    revoke(1, "audit").shows("To revoke the token, type its name");
    revoke(2, "audit <b>").is_problem(403, "auth/not_allowed");
    assert_eq!(access(&stage, &token).token.revoked_at_ms, None);
    assert_eq!(revoke(1, "audit <b>").status, 303);
    assert!(access(&stage, &token).token.revoked_at_ms.is_some());
    stage.signed_in(1).get(&path()).shows("Revoked");
    let (records, person) = (stage.records(1), person_id(1).0.to_string());
    for action in ["sealog.monitor_token_created", "sealog.monitor_token_revoked"] {
        let told = |record: &&String| record.contains(action) && record.contains(&person);
        assert!(records.iter().any(|record| told(&record)), "{records:?}");
    }
    assert!(!records.iter().any(|record| record.contains(&token)));
}

#[test]
fn what_is_wrong_with_a_token_stands_beside_its_field_and_a_foreign_project_is_not_found() {
    let stage = stage();
    let project = project_id(1).to_string();
    create(&stage, &project, &[("name", " ")]).shows("id=\"name-error\">It must not be empty.");
    create(&stage, &project, &[("expires", "soon")]).shows("Use the format YYYY-MM-DD.");
    create(&stage, &project, &[("form", "x")]).shows("The form was incomplete.");
    for chain in [project_id(2).to_string(), stage.system_chain(2).project_id.to_string(), "x".into()] {
        create(&stage, &chain, &[]).is_problem(404, "request/not_found");
    }
    let form = new_form();
    let again = || create(&stage, &project, &[("form", form.as_str())]);
    assert_eq!(again().status, 200);
    let second = again();
    assert!(second.status == 422 && raw(&second).is_none());
    second.shows("already created its token");
    create(&stage, &project, &[]).shows("It belongs to another active token of this chain.");
    for n in 1..20 {
        assert_eq!(create(&stage, &project, &[("name", &n.to_string())]).status, 200);
    }
    create(&stage, &project, &[("name", "one more")]).shows("20 active tokens");
}

#[test]
fn the_token_of_another_organisation_is_like_one_that_does_not_exist() {
    let stage = stage();
    let token = raw(&create(&stage, &project_id(1).to_string(), &[])).unwrap();
    let id = access(&stage, &token).token.id.0.to_string();
    let other = format!("/app/o/{}/monitor-tokens", tenant_id(2));
    let fields = [("token", id.as_str()), ("name", "auditor")];
    stage.signed_in(3).post(&format!("{other}/revoke"), &fields).is_problem(404, "request/not_found");
    stage.signed_in(3).get(&format!("{other}?revoke={id}")).is_problem(404, "request/not_found");
    assert!(!stage.signed_in(3).get(&other).has(&token[..12]));
    assert_eq!(access(&stage, &token).token.revoked_at_ms, None);
}

#[test]
fn owners_alone_are_led_to_the_tokens() {
    let stage = stage();
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let link = format!("href=\"{}\"", path());
    assert!(stage.signed_in(1).get(&keys).has(&link));
    assert!(!stage.signed_in(2).get(&keys).has(&link));
}

#[test]
fn no_page_takes_a_monitor_token() {
    let stage = stage();
    let token = raw(&create(&stage, &project_id(1).to_string(), &[])).unwrap();
    let header = format!("Bearer {token}");
    let mut closed = 0;
    for route in table().iter().filter(|route| route.method == Method::GET) {
        let path = route
            .path
            .replace("{project}", &project_id(1).to_string())
            .replace("{mode}", "live")
            .replace("{organisation}", &tenant_id(1).to_string());
        let with = stage.browser().send("GET", &path, &[("authorization", &header)], "");
        let without = stage.browser().get(&path);
        assert_eq!((with.status, with.location()), (without.status, without.location()), "{route:?}");
        let cookie = format!("sealog_session={token}");
        let as_cookie = stage.browser().send("GET", &path, &[("cookie", &cookie)], "");
        assert_eq!(
            (as_cookie.status, as_cookie.location()),
            (without.status, without.location()),
            "{route:?}"
        );
        closed += usize::from(without.location().is_some_and(|to| to.starts_with("/app/sign-in")));
    }
    assert!(closed >= 45, "{closed}");
}
