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
    let log = owner.get(&path(1));
    let events = log.location().unwrap();
    let page = owner.follow(log);
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
    let events = stage.signed_in(1).get(&path(1)).location().unwrap();
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
