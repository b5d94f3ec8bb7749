//! The system log: the viewer of events over the chain of what people do.

use sealog_control::{Grants, Role};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    for (n, role) in (1..).zip(Role::ALL) {
        stage.member(n, 1, role);
        if role == Role::Auditor {
            stage.with_authenticator(n);
        }
    }
    stage
}

fn path(n: u8) -> String {
    format!("/app/o/{}/system-log", tenant_id(n))
}

#[test]
fn the_log_shows_what_people_did_and_is_verified_and_exported_like_any_chain() {
    let stage = stage();
    let mut auditor = stage.signed_in(5);
    // The first event is that somebody looks.
    auditor.get(&events_path(1));
    let mut owner = stage.signed_in(1);
    let events = format!("/app/p/{}/live/events", stage.system_chain(1).project_id);
    owner.get(&path(1)).shows("An auditor viewed a list of events.").shows(&events);
    let page = owner.get(&events);
    page.shows("sealog.events_viewed").shows("aria-current=\"page\"").shows("System log");
    assert!(!page.has("aria-label=\"Mode\""), "it has no test mode");
    assert!(!page.has("/v1/events"), "no key can read it");
    let verify = events.replace("/events", "/verify");
    page.shows(&format!("href=\"{verify}\""));
    assert!(!owner.get(&verify).has("/v1/events"));
    let run = owner.post(&format!("{verify}/start"), &[]).location().unwrap();
    stage.work();
    owner.get(&run).shows("events are valid");
    let exports = events.replace("/events", "/exports");
    assert_eq!(owner.post(&format!("{exports}/create"), &[("format", "ndjson")]).status, 303);
    let list = owner.get(&exports);
    let export = list.text().split("/download\"").next().unwrap().rsplit('"').next().unwrap().to_owned();
    owner.get(&format!("{export}/download")).shows("\"action\":\"sealog.events_viewed\"");
}

#[test]
fn the_log_is_for_those_whose_role_includes_it_and_who_see_the_whole_organisation() {
    let stage = stage();
    let events = format!("/app/p/{}/live/events", stage.system_chain(1).project_id);
    // Owner, admin, developer, privacy officer, auditor.
    for (n, may) in [(1, true), (2, true), (3, false), (4, true), (5, true)] {
        let mut browser = stage.signed_in(n);
        for page in ["/events", "/verify"] {
            let answer = browser.get(&events.replace("/events", page));
            if may {
                assert_eq!(answer.status, 200, "{n}");
            } else {
                answer.is_problem(403, "auth/not_allowed");
            }
        }
        let rail = browser.get(&events_path(1));
        assert_eq!(rail.has(&path(1)), may, "{n}");
    }
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(6, 1, Role::Auditor, grants, None);
    stage.with_authenticator(6);
    let mut limited = stage.signed_in(6);
    for path in [path(1), events.clone()] {
        limited.get(&path).is_problem(404, "request/not_found");
    }
    stage.member(7, 2, Role::Owner);
    let mut foreign = stage.signed_in(7);
    for path in [path(1), events.clone(), events.replace("/live/", "/test/")] {
        foreign.get(&path).is_problem(404, "request/not_found");
    }
    stage.signed_in(1).get(&events.replace("/live/", "/test/")).is_problem(404, "request/not_found");
}

#[test]
fn a_link_to_an_entry_leads_to_it_for_those_alone_who_see_the_log() {
    let stage = stage();
    stage.signed_in(5).get(&events_path(1));
    let project = stage.system_chain(1).project_id;
    let events = format!("/app/p/{project}/live/events");
    let mut owner = stage.signed_in(1);
    let list = owner.get(&path(1));
    let log_id = list.text().split(&format!("{events}/")).nth(1).unwrap()[..26].to_owned();
    let link = format!("/app/e/{log_id}?p={project}");
    assert_eq!(owner.get(&link).location(), Some(format!("{events}/{log_id}")));
    stage.signed_in(3).get(&link).is_problem(404, "read/not_found");
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(6, 1, Role::Auditor, grants, None);
    stage.with_authenticator(6);
    stage.signed_in(6).get(&link).is_problem(404, "read/not_found");
    stage.member(7, 2, Role::Owner);
    stage.signed_in(7).get(&link).is_problem(404, "read/not_found");
}

#[test]
fn each_entry_is_a_sentence_with_the_address_of_the_person_and_is_filtered_by_person() {
    let stage = stage();
    stage.member(7, 2, Role::Owner);
    let keys = format!("/app/o/{}/keys/create", tenant_id(1));
    let project = project_id(1).to_string();
    let form = "00000000-0000-4000-8000-000000000001";
    let name = "key <b>\u{202e}";
    let fields = [("name", name), ("project", &project), ("mode", "test"), ("expires", ""), ("form", form)];
    assert_eq!(stage.signed_in(1).post(&keys, &fields).status, 200);
    stage.signed_in(5).get(&events_path(1));
    let mut owner = stage.signed_in(1);
    let page = owner.get(&path(1));
    page.shows("Project of 1 (test)");
    page.shows("An API key was created.").shows("key &#60;b&#62;").shows(&email(1)).shows(&email(5));
    assert!(!page.has("\u{202e}"));
    assert!(!page.has(&format!(">{}<", person_id(1).0)), "no id where an address is known");
    let filtered = owner.get(&format!("{}?person={}", path(1), person_id(5).0));
    filtered.shows("An auditor viewed a list of events.");
    assert!(!filtered.has("An API key was created."));
    owner.get(&format!("{}?person=host", path(1))).shows("Nothing recorded for this person.");
    // People of others, and texts that are no person, are refused.
    for person in [person_id(7).0.to_string(), "%22%3E%3Cb%3E".into(), "x".repeat(1000)] {
        owner.get(&format!("{}?person={person}", path(1))).is_problem(404, "request/not_found");
    }
    assert!(!page.has(&email(7)));
}
