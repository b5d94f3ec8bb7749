//! What auditors see, and what anybody downloads, is in the system chain before the first byte leaves.

use sealog_control::Role;
use sealog_dashboard::{Needs, may, table};
use sealog_store::verify;

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::with_log();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Auditor);
    stage.with_authenticator(2);
    stage
}

/// Every page that an auditor can see.
fn pages(stage: &Stage) -> Vec<(String, &'static str)> {
    let log_id = stage.append(live(1), r#"{"action":"user.login"}"#);
    stage.publish();
    let mut owner = stage.signed_in(1);
    let run = owner.post(&format!("{}/start", verify_path(1)), &[]).location().unwrap();
    stage.work();
    owner.post(&format!("{}/create", exports_path(1)), &[("format", "csv")]);
    let page = owner.get(&exports_path(1));
    let export = page.text().split("/download\"").next().unwrap().rsplit('"').next().unwrap().to_owned();
    let (case, package) = packaged_case(stage, &mut owner);
    let cases = format!("/app/o/{}/cases", tenant_id(1));
    let system = format!("/app/p/{}/live", stage.system_chain(1).project_id);
    vec![
        (events_path(1), "sealog.events_viewed"),
        (format!("{}/{log_id}", events_path(1)), "sealog.event_viewed"),
        (format!("{}/{log_id}/hashed.txt", events_path(1)), "sealog.event_viewed"),
        (format!("{}/{log_id}/proof.txt", events_path(1)), "sealog.event_viewed"),
        (format!("/app/o/{}/keys", tenant_id(1)), "sealog.page_viewed"),
        (events_path(1).replace("/events", ""), "sealog.page_viewed"),
        (events_path(1).replace("/events", "/views"), "sealog.page_viewed"),
        (events_path(1).replace("/events", "/frameworks"), "sealog.page_viewed"),
        (events_path(1).replace("/events", "/frameworks/soc2"), "sealog.page_viewed"),
        (format!("/app/o/{}/actions", tenant_id(1)), "sealog.page_viewed"),
        (format!("/app/o/{}/actions/entry?action=user.login", tenant_id(1)), "sealog.page_viewed"),
        (verify_path(1), "sealog.page_viewed"),
        (format!("{}/all", verify_path(1)), "sealog.page_viewed"),
        (run.clone(), "sealog.page_viewed"),
        (format!("{run}/report.json"), "sealog.page_viewed"),
        (format!("{run}/report.txt"), "sealog.page_viewed"),
        (exports_path(1), "sealog.page_viewed"),
        (format!("{export}/manifest.json"), "sealog.page_viewed"),
        (format!("{export}/download"), "sealog.export_downloaded"),
        (cases.clone(), "sealog.page_viewed"),
        (format!("{cases}/register"), "sealog.page_viewed"),
        (format!("{cases}/register.csv"), "sealog.case_register_downloaded"),
        (case.clone(), "sealog.page_viewed"),
        (format!("{case}/identity"), "sealog.page_viewed"),
        (format!("{case}/identifiers"), "sealog.page_viewed"),
        (format!("{case}/search"), "sealog.page_viewed"),
        (format!("{case}/review"), "sealog.page_viewed"),
        (format!("{case}/package"), "sealog.page_viewed"),
        (format!("{case}/package/{package}/manifest.json"), "sealog.page_viewed"),
        (format!("{case}/response"), "sealog.page_viewed"),
        (format!("{case}/response/cover"), "sealog.page_viewed"),
        (format!("{case}/response/cover/text"), "sealog.page_viewed"),
        (format!("{case}/history"), "sealog.page_viewed"),
        (format!("/app/o/{}/system-log", tenant_id(1)), "sealog.page_viewed"),
        (format!("{system}/events"), "sealog.events_viewed"),
        (format!("{system}/verify"), "sealog.page_viewed"),
        (format!("{system}/exports"), "sealog.page_viewed"),
    ]
}

/// Routes that show an auditor nothing of the organisation: of a live view each piece is sealed when there is
/// one (`tail.rs`).
const NOTHING_SHOWN: [&str; 1] = ["/app/p/{project}/{mode}/tail"];

/// Whether the path is one of the route.
fn is_of(route: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    let (parts, wanted): (Vec<_>, Vec<_>) = (path.split('/').collect(), route.split('/').collect());
    parts.len() == wanted.len()
        && parts.iter().zip(&wanted).all(|(part, wanted)| wanted.starts_with('{') || part == wanted)
}

#[test]
fn every_route_that_shows_an_auditor_something_is_among_those_that_are_sealed() {
    let stage = stage();
    let pages = pages(&stage);
    for route in table().iter().filter(|route| route.method == "GET") {
        let Needs::Member(capability) = route.needs else { continue };
        if may(Role::Auditor, capability) && !NOTHING_SHOWN.contains(&route.path) {
            assert!(pages.iter().any(|(path, _)| is_of(route.path, path)), "{}", route.path);
        }
    }
}

#[test]
fn what_an_auditor_sees_is_sealed_when_it_is_shown() {
    let stage = stage();
    let mut auditor = stage.signed_in(2);
    for (path, action) in pages(&stage) {
        let before = stage.sealed(1).len();
        assert_eq!(auditor.get(&path).status, 200, "{path}");
        let sealed = stage.sealed(1);
        let last = sealed.last().unwrap();
        assert!(sealed.len() > before && last.contains(action), "{path}: {last}");
        assert!(last.contains(&person_id(2).0.to_string()), "{last}");
        assert_eq!(stage.wait(stage.control.count_records()), Ok(0), "what waited before it is sealed too");
    }
    let system = stage.system_chain(1);
    assert!(stage.wait(verify::whole(&*stage.store, system)).unwrap().valid());
}

#[test]
fn a_list_under_a_form_with_a_mistake_is_sealed_too() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let mut auditor = stage.signed_in(2);
    for (path, form) in [
        (format!("{}/create", exports_path(1)), [("format", "nonsense"), ("q", "")]),
        (format!("{}/start", verify_path(1)), [("range", "window"), ("from", "x")]),
    ] {
        let before = stage.sealed(1).len();
        assert_eq!(auditor.post(&path, &form).status, 422, "{path}");
        let sealed = stage.sealed(1);
        assert!(sealed.len() > before && sealed.last().unwrap().contains("sealog.page_viewed"), "{path}");
    }
}

#[test]
fn an_auditors_live_view_of_the_system_log_is_not_there_since_it_would_feed_itself() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let system = format!("/app/p/{}/live", stage.system_chain(1).project_id);
    let mut auditor = stage.signed_in(2);
    auditor.get(&events_path(1));
    assert!(!auditor.get(&format!("{system}/events")).has("data-tail"));
    auditor.get(&format!("{system}/tail")).is_problem(404, "request/not_found");
    assert!(stage.signed_in(1).get(&format!("{system}/events")).has("data-tail"));
}

#[test]
fn what_cannot_be_sealed_is_not_shown() {
    let stage = stage();
    let pages = pages(&stage);
    stage.doubtful.fail_system_writes(true);
    let before = stage.sealed(1).len();
    let mut auditor = stage.signed_in(2);
    for (path, _) in &pages {
        auditor.get(path).is_problem(500, "event/write_failed");
    }
    assert_eq!(stage.sealed(1).len(), before);
    // A download is nobody's without its record; other pages are the owner's to see.
    let mut owner = stage.signed_in(1);
    for (path, action) in &pages {
        let status = owner.get(path).status;
        let is_download = action.ends_with("_downloaded");
        assert_eq!(status, if is_download { 500 } else { 200 }, "{path}");
    }
    // What was refused is recorded when that is possible again, before what comes then.
    stage.doubtful.fail_system_writes(false);
    assert_eq!(auditor.get(&events_path(1)).status, 200);
    assert!(stage.sealed(1).len() > before + pages.len());
}

#[test]
fn many_views_at_once_are_all_sealed_once() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let before = stage.sealed(1).len();
    let answers = stage.signed_in(2).get_at_once(&events_path(1), 20);
    assert!(answers.iter().all(|status| *status == 200), "{answers:?}");
    assert_eq!(stage.sealed(1).len(), before + 20);
}
