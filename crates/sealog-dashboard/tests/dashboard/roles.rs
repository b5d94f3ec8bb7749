//! Every route, asked for by everybody.

use axum::http::Method;
use sealog_control::{Grants, Role};
use sealog_dashboard::{Dashboard, Route, table};

use crate::harness::*;
use sealog_core::query::encode_cursor;

const ALL: &[Role] = &Role::ALL;
const MANAGERS: &[Role] = &[Role::Owner, Role::Admin];
const OWNERS: &[Role] = &[Role::Owner];
const TEST_KEYS: &[Role] = &[Role::Owner, Role::Admin, Role::Developer];
const EXPORTS: &[Role] = &[Role::Owner, Role::Admin, Role::PrivacyOfficer, Role::Auditor];
/// Who opens cases and takes their steps.
const CASE_WORK: &[Role] = &[Role::Owner, Role::PrivacyOfficer];
const KEYS: &[Role] = &[Role::Owner, Role::Admin, Role::Developer, Role::Auditor];

/// Whoever belongs to the organisation.
const STAFF: &[Role] = &[Role::Owner, Role::Admin, Role::Developer, Role::PrivacyOfficer];

/// What the design says of each page, apart from the code: whether it is for anybody, and which roles may
/// have it.
const EXPECTED: &[(&str, &str, bool, &[Role])] = &[
    ("GET", "/", true, ALL),
    ("GET", "/app", true, ALL),
    ("GET", "/app/signed-in", true, ALL),
    ("GET", "/app/static/{hash}/{file}", true, ALL),
    ("POST", "/app/theme", true, ALL),
    ("GET", "/app/sign-in", true, ALL),
    ("POST", "/app/sign-in", true, ALL),
    ("GET", "/app/sign-in/code", false, ALL),
    ("POST", "/app/sign-in/code", false, ALL),
    ("POST", "/app/sign-out", false, ALL),
    ("GET", "/app/claim", true, ALL),
    ("POST", "/app/claim", true, ALL),
    ("GET", "/app/forgot", true, ALL),
    ("POST", "/app/forgot", true, ALL),
    ("GET", "/app/reset", true, ALL),
    ("POST", "/app/reset", true, ALL),
    ("GET", "/app/invitation", true, ALL),
    ("POST", "/app/invitation", true, ALL),
    ("GET", "/app/account", false, ALL),
    ("POST", "/app/account/password", false, ALL),
    ("POST", "/app/account/authenticator", false, ALL),
    ("POST", "/app/account/authenticator/confirm", false, ALL),
    ("POST", "/app/account/authenticator/remove", false, ALL),
    ("POST", "/app/account/recovery-codes", false, ALL),
    ("POST", "/app/account/sessions", false, ALL),
    ("POST", "/app/account/shortcuts", false, ALL),
    ("POST", "/app/account/notifications", false, ALL),
    ("GET", "/app/unsubscribe", true, ALL),
    ("POST", "/app/unsubscribe", true, ALL),
    ("GET", "/app/p/{project}/{mode}", false, ALL),
    ("GET", "/app/p/{project}/{mode}/frameworks", false, ALL),
    ("GET", "/app/p/{project}/{mode}/frameworks/{framework}", false, ALL),
    ("GET", "/app/p/{project}/{mode}/frameworks/{framework}/change", false, MANAGERS),
    ("POST", "/app/p/{project}/{mode}/frameworks/{framework}/change", false, MANAGERS),
    ("GET", "/app/o/{organisation}/usage", false, STAFF),
    ("GET", "/app/e/{log_id}", false, ALL),
    ("GET", "/app/p/{project}/{mode}/tail", false, ALL),
    ("GET", "/app/p/{project}/{mode}/views", false, ALL),
    ("POST", "/app/p/{project}/{mode}/views/save", false, ALL),
    ("POST", "/app/p/{project}/{mode}/views/share", false, STAFF),
    ("POST", "/app/p/{project}/{mode}/views/pin", false, ALL),
    ("POST", "/app/p/{project}/{mode}/views/remove", false, ALL),
    ("GET", "/app/p/{project}/{mode}/events", false, ALL),
    ("GET", "/app/p/{project}/{mode}/events/{log_id}", false, ALL),
    ("GET", "/app/p/{project}/{mode}/events/{log_id}/hashed.txt", false, ALL),
    ("GET", "/app/p/{project}/{mode}/events/{log_id}/proof.txt", false, ALL),
    ("GET", "/app/p/{project}/{mode}/verify", false, ALL),
    ("POST", "/app/p/{project}/{mode}/verify/start", false, ALL),
    ("GET", "/app/p/{project}/{mode}/verify/all", false, ALL),
    ("POST", "/app/p/{project}/{mode}/verify/all", false, ALL),
    ("GET", "/app/p/{project}/{mode}/verify/{run}", false, ALL),
    ("POST", "/app/p/{project}/{mode}/verify/{run}/cancel", false, ALL),
    ("GET", "/app/p/{project}/{mode}/verify/{run}/report.json", false, ALL),
    ("GET", "/app/p/{project}/{mode}/verify/{run}/report.txt", false, ALL),
    ("GET", "/app/p/{project}/{mode}/exports", false, EXPORTS),
    ("POST", "/app/p/{project}/{mode}/exports/create", false, EXPORTS),
    ("GET", "/app/p/{project}/{mode}/exports/{export}/download", false, EXPORTS),
    ("GET", "/app/p/{project}/{mode}/exports/{export}/manifest.json", false, EXPORTS),
    ("GET", "/app/o/{organisation}/system-log", false, EXPORTS),
    ("GET", "/app/o/{organisation}/actions", false, KEYS),
    ("GET", "/app/o/{organisation}/actions/entry", false, KEYS),
    ("GET", "/app/o/{organisation}/actions/new", false, TEST_KEYS),
    ("POST", "/app/o/{organisation}/actions/create", false, TEST_KEYS),
    ("POST", "/app/o/{organisation}/actions/retire", false, TEST_KEYS),
    ("GET", "/app/o/{organisation}/cases", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/new", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/create", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/add", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/add", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/register", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/register.csv", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/holidays", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/holidays", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/intake", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/confirm", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/move", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/identity", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/identity", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/identifiers", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/identifiers/add", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/identifiers/remove", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/scope", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/search", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/search/start", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/search/stop", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/search/resume", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/review", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/review/decide", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/review/mask", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/package", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/package/build", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/package/stop", false, CASE_WORK),
    ("POST", "/app/o/{organisation}/cases/{case}/package/{package}/download", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/package/{package}/manifest.json", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/{case}/response", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/{case}/response/{letter}", false, EXPORTS),
    ("GET", "/app/o/{organisation}/cases/{case}/response/{letter}/text", false, EXPORTS),
    ("POST", "/app/o/{organisation}/cases/{case}/response/{letter}/save", false, CASE_WORK),
    ("GET", "/app/o/{organisation}/cases/{case}/history", false, EXPORTS),
    ("GET", "/app/o/{organisation}/keys", false, KEYS),
    ("POST", "/app/o/{organisation}/keys/create", false, TEST_KEYS),
    ("POST", "/app/o/{organisation}/keys/roll", false, TEST_KEYS),
    ("POST", "/app/o/{organisation}/keys/revoke", false, TEST_KEYS),
    ("GET", "/app/o/{organisation}/monitor-tokens", false, OWNERS),
    ("POST", "/app/o/{organisation}/monitor-tokens/create", false, OWNERS),
    ("POST", "/app/o/{organisation}/monitor-tokens/revoke", false, OWNERS),
    ("GET", "/app/o/{organisation}/projects", false, MANAGERS),
    ("POST", "/app/o/{organisation}/projects/create", false, MANAGERS),
    ("POST", "/app/o/{organisation}/projects/rename", false, MANAGERS),
    ("GET", "/app/o/{organisation}/members", false, MANAGERS),
    ("POST", "/app/o/{organisation}/members/invite", false, MANAGERS),
    ("POST", "/app/o/{organisation}/members/withdraw", false, MANAGERS),
    ("GET", "/app/o/{organisation}/members/{person}", false, MANAGERS),
    ("POST", "/app/o/{organisation}/members/{person}", false, MANAGERS),
    ("POST", "/app/o/{organisation}/members/{person}/end", false, MANAGERS),
    ("GET", "/app/o/{organisation}/settings", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/name", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/authenticators", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/sessions", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/domains", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/key-lifetime", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/time-zone", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/cases", false, MANAGERS),
    ("POST", "/app/o/{organisation}/settings/privacy", false, MANAGERS),
];

fn expected(route: &Route<Dashboard>) -> (bool, &'static [Role]) {
    let found =
        EXPECTED.iter().find(|(method, path, ..)| *method == route.method.as_str() && *path == route.path);
    let (_, _, public, roles) =
        found.unwrap_or_else(|| panic!("{route:?} is missing from the table of this test"));
    (*public, roles)
}

/// The id of a verification of the first project.
fn run(browser: &Browser<'_>) -> String {
    let started = browser.clone().post(&format!("{}/start", verify_path(1)), &[("range", "all")]);
    started.location().unwrap().rsplit('/').next().unwrap().to_owned()
}

fn export(browser: &Browser<'_>) -> String {
    let path = exports_path(1);
    assert_eq!(browser.clone().post(&format!("{path}/create"), &[("format", "csv")]).status, 303);
    let page = browser.clone().get(&path);
    let link = page.text().split("/download\"").next().unwrap();
    link.rsplit('/').next().unwrap().to_owned()
}

fn walk(stage: &Stage) {
    stage.tenant(1);
    stage.tenant(2);
    let log_id = stage.append(live(1), r#"{"action":"user.login","actor_id":"a"}"#);
    for (n, role) in (1..).zip(Role::ALL) {
        stage.member(n, 1, role);
        if role == Role::Auditor {
            stage.with_authenticator(n);
        }
    }
    // Members of another organisation, and one whose membership has ended.
    stage.member(10, 2, Role::Owner);
    stage.member_with(11, 1, Role::Owner, Grants::default(), Some(stage.now_ms()));
    let (run, export) = (run(&stage.signed_in(1)), export(&stage.signed_in(1)));
    let (case, package) = packaged_case(stage, &mut stage.signed_in(1));
    // One to whom things are done.
    stage.member(12, 1, Role::Developer);
    for route in table() {
        let (public, roles) = expected(route);
        let is_form = route.method == Method::POST;
        let path = route
            .path
            .replace("{project}", &project_id(1).to_string())
            .replace("{mode}", "live")
            .replace("{log_id}", &log_id.to_string())
            .replace("{run}", &run)
            .replace("{export}", &export)
            .replace("{case}", case.rsplit('/').next().unwrap())
            .replace("{package}", &package)
            .replace("{letter}", "cover")
            .replace("{organisation}", &tenant_id(1).to_string())
            .replace("{person}", &person_id(12).0.to_string())
            .replace("{hash}", "0")
            .replace("{file}", "none")
            .replace("{framework}", "soc2");
        let is_of_tenant = route.path.contains("{project}") || route.path.contains("{organisation}");
        let ask = |browser: &mut Browser<'_>| {
            if is_form { browser.post(&path, &[]) } else { browser.get(&path) }
        };

        let nobody = ask(&mut stage.browser());
        let asks_to_sign_in = nobody.location().is_some_and(|to| to.starts_with("/app/sign-in?next="));
        assert_eq!(asks_to_sign_in, !public, "nobody: {route:?} {}", nobody.status);

        for (n, role) in (1..).zip(Role::ALL) {
            let answer = ask(&mut stage.signed_in(n));
            if roles.contains(&role) {
                assert!(!matches!(answer.status, 401 | 403 | 500), "{role:?}: {route:?} {}", answer.text());
                assert!(
                    !answer.location().is_some_and(|to| to.starts_with("/app/sign-in?next=")),
                    "{route:?}"
                );
                // Of what is not there: a file of that name, a log on this stage.
                let is_nowhere = path.contains("static") || path.ends_with("/proof.txt");
                assert!(answer.status != 404 || is_form || is_nowhere, "{role:?}: {route:?}");
            } else {
                answer.is_problem(403, "auth/not_allowed");
            }
        }
        for n in [10, 11] {
            let answer = ask(&mut stage.signed_in(n));
            if is_of_tenant {
                // Like a path of an organisation that does not exist.
                answer.is_problem(404, "request/not_found");
            } else {
                assert!(!matches!(answer.status, 403 | 500), "{n}: {route:?}");
            }
        }
        for site in ["cross-site", "same-site"] {
            let mut browser = stage.signed_in(1);
            browser.site = Some(site);
            let answer = ask(&mut browser);
            answer.is_problem(403, "request/cross_site");
        }
    }
    for (method, path, ..) in EXPECTED {
        assert!(
            table().iter().any(|route| route.method.as_str() == *method && route.path == *path),
            "{method} {path} is not there any more"
        );
    }
}

#[test]
fn every_route_is_for_those_whom_the_design_names() {
    walk(&Stage::new());
}

#[test]
fn every_route_is_for_those_whom_the_design_names_on_postgresql() {
    walk(&Stage::on_postgres());
}

/// The owner of one organisation puts what another one has into the paths of the own one.
#[test]
fn a_thing_of_another_organisation_is_not_there_in_a_path_of_ones_own() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    let log_id = stage.append(live(1), r#"{"action":"user.login","actor_id":"a"}"#).to_string();
    stage.member(1, 1, Role::Owner);
    stage.member(10, 2, Role::Owner);
    stage.member(12, 1, Role::Developer);
    let (run, export) = (run(&stage.signed_in(1)), export(&stage.signed_in(1)));
    let (case, package) = packaged_case(&stage, &mut stage.signed_in(1));
    let case = case.rsplit('/').next().unwrap().to_owned();
    let person = person_id(12).0.to_string();
    let things = [
        ("{log_id}", &log_id),
        ("{run}", &run),
        ("{export}", &export),
        ("{case}", &case),
        ("{package}", &package),
        ("{person}", &person),
    ];
    let told = stage.records(1);
    let mut asked = 0;
    for route in table().iter().filter(|route| things.iter().any(|(name, _)| route.path.contains(name))) {
        let own = route
            .path
            .replace("{project}", &project_id(2).to_string())
            .replace("{organisation}", &tenant_id(2).to_string())
            .replace("{mode}", "live")
            .replace("{letter}", "cover");
        let path = things.iter().fold(own, |path, (name, of_other)| path.replace(name, of_other));
        let mut owner = stage.signed_in(10);
        let answer = if route.method == Method::POST { owner.post(&path, &[]) } else { owner.get(&path) };
        assert_eq!(answer.status, 404, "{route:?}: {}", answer.text());
        let shown = answer.text().replace(&path, "");
        for (name, thing) in things.iter().chain(&[("its person", &"p-20931".to_owned())]) {
            assert!(!shown.contains(thing.as_str()), "{route:?} shows {name}: {shown}");
        }
        asked += 1;
    }
    assert!(asked >= 35, "the routes are found: {asked}");
    assert_eq!(stage.records(1), told, "nothing was done to any of it");
}

#[test]
fn without_a_word_about_the_site_the_origin_decides() {
    let stage = Stage::new();
    let mut browser = stage.browser();
    browser.site = None;
    let theme = |browser: &mut Browser<'_>, origin: &[(&str, &str)]| {
        let mut headers = vec![("content-type", "application/x-www-form-urlencoded")];
        headers.extend(origin);
        browser.send("POST", "/app/theme", &headers, "theme=dark&next=/app").status
    };
    assert_eq!(theme(&mut browser, &[("origin", HOME)]), 303);
    for origin in ["https://evil.example", "http://127.0.0.1:8081", "http://127.0.0.1", ""] {
        assert_eq!(theme(&mut browser, &[("origin", origin)]), 403, "{origin}");
    }
    // No browser, which has no cookies but its own.
    assert_eq!(theme(&mut browser, &[]), 303);
    // What the browser says of the site counts more than an origin.
    browser.site = Some("cross-site");
    assert_eq!(theme(&mut browser, &[("origin", HOME)]), 403);
}

/// Browsers from before `Sec-Fetch-Site`, to which a page with `no-referrer` means `Origin: null` in its
/// forms.
#[test]
fn an_old_browser_sends_the_forms_of_links_without_an_origin_and_no_other_form() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    let mut browser = stage.signed_in(1);
    browser.site = None;
    let hidden = [("content-type", "application/x-www-form-urlencoded"), ("origin", "null")];
    for path in ["/app/claim", "/app/reset", "/app/invitation"] {
        assert_eq!(browser.get(path).header("referrer-policy"), Some("no-referrer"));
        let answer = browser.send("POST", path, &hidden, "token=x");
        assert_eq!(answer.status, 422, "{path}: {}", answer.text());
    }
    assert_eq!(browser.send("POST", "/app/theme", &hidden, "theme=dark").status, 303);
    // Pages whose forms stand on a session say their origin to us, so a hidden one is another site's.
    for path in ["/app/sign-in", "/app/account"] {
        assert_eq!(browser.get(path).header("referrer-policy"), Some("same-origin"));
    }
    for path in ["/app/sign-in", "/app/account/sessions", "/app/sign-out"] {
        browser.send("POST", path, &hidden, "").is_problem(403, "request/cross_site");
    }
    assert!(browser.is_signed_in());
}

#[test]
fn a_link_from_another_site_opens_a_page_and_nothing_else_does() {
    let stage = Stage::new();
    let mut browser = stage.browser();
    browser.site = Some("cross-site");
    assert_eq!(browser.send("GET", "/app/sign-in", &[("sec-fetch-mode", "navigate")], "").status, 200);
    browser
        .send("GET", "/app/sign-in", &[("sec-fetch-mode", "cors")], "")
        .is_problem(403, "request/cross_site");
}

#[test]
fn an_auditor_without_an_authenticator_is_led_to_set_one_up() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Auditor);
    let mut browser = stage.signed_in(1);
    let answer = browser.get(&events_path(1));
    assert!(answer.location().unwrap().starts_with("/app/account?needed=authenticator"));
    browser.follow(answer).shows("Auditors need an authenticator");
    stage.with_authenticator(1);
    assert_eq!(stage.signed_in(1).get(&events_path(1)).status, 200);
}

#[test]
fn an_auditor_sees_granted_projects_and_the_granted_time_and_every_view_is_recorded() {
    let stage = Stage::new();
    stage.tenant(1);
    let ids: Vec<_> = ["a", "b"]
        .map(|actor| {
            stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"{actor}\"}}"))
        })
        .into();
    let time = |at: usize| stage.wait(stage.store.get(live(1), ids[at])).unwrap().unwrap().timestamp_ms;
    let at = time(0);
    let grants = |from_ms, until_ms| Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    stage.member_with(1, 1, Role::Auditor, grants(None, Some(at + 1)), None);
    stage.member_with(2, 1, Role::Auditor, grants(Some(at + 1), None), None);
    let limits = Grants { projects: Some(vec![project_id(101)]), from_ms: None, until_ms: None };
    stage.member_with(3, 1, Role::Auditor, limits, None);
    for n in [1, 2, 3] {
        stage.with_authenticator(n);
    }
    let event = |at: usize| format!("{}/{}", events_path(1), ids[at]);
    let mut early = stage.signed_in(1);
    assert_eq!(early.get(&event(0)).status, 200);
    let list = early.get(&events_path(1));
    assert!(list.has("Organisation 1") && list.has(&ids[0].to_string()));
    assert!(!list.has("missing or damaged"));
    let mut late = stage.signed_in(2);
    for path in [event(0), format!("{}/hashed.txt", event(0))] {
        late.get(&path).is_problem(404, "read/not_found");
    }
    assert!(!late.get(&events_path(1)).has(&ids[0].to_string()));
    // Another project of the organisation is like one that does not exist, and is not offered.
    let mut elsewhere = stage.signed_in(3);
    elsewhere.get(&events_path(1)).is_problem(404, "request/not_found");
    let own = elsewhere.get(&format!("/app/p/{}/live/events", project_id(101)));
    assert!(own.status == 200 && !own.has(&project_id(1).to_string()));
    let records = stage.records(1);
    assert_eq!(
        records.iter().filter(|record| record.contains("sealog.event_viewed")).count(),
        1,
        "{records:?}"
    );
    assert_eq!(records.iter().filter(|record| record.contains("sealog.events_viewed")).count(), 3);
    assert!(!records.iter().any(|record| record.to_lowercase().contains("example.org")), "{records:?}");
}

#[test]
fn what_comes_after_an_auditors_window_is_not_missing_wherever_the_page_begins() {
    let stage = Stage::new();
    stage.tenant(1);
    let ids: Vec<_> = (0..3).map(|_| stage.append(live(1), r#"{"action":"user.login"}"#)).collect();
    let at = stage.wait(stage.store.get(live(1), ids[0])).unwrap().unwrap().timestamp_ms;
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: Some(at) };
    stage.member_with(1, 1, Role::Auditor, grants, None);
    stage.with_authenticator(1);
    let mut auditor = stage.signed_in(1);
    for cursor in ["".to_owned(), format!("?cursor={}", encode_cursor(3, live(1)))] {
        let list = auditor.get(&format!("{}{cursor}", events_path(1)));
        assert_eq!(list.status, 200);
        assert!(!list.has("missing or damaged"), "{cursor}");
    }
}

#[test]
fn an_admin_cannot_make_an_owner() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Admin);
    let path = format!("/app/o/{}/members", tenant_id(1));
    let invite = |browser: &mut Browser<'_>, email: &str| {
        browser.post(&format!("{path}/invite"), &[("email", email), ("role", "owner")]).status
    };
    assert!(!stage.signed_in(2).get(&path).has("value=\"owner\""));
    assert_eq!(invite(&mut stage.signed_in(2), "x@example.org"), 422);
    assert!(stage.signed_in(1).get(&path).has("value=\"owner\""));
    assert_eq!(invite(&mut stage.signed_in(1), "x@example.org"), 303);
}

#[test]
fn an_admin_neither_withdraws_nor_replaces_the_invitation_of_an_owner() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Admin);
    let path = format!("/app/o/{}/members", tenant_id(1));
    let invite = |n, email: &str, role: &str| {
        stage.signed_in(n).post(&format!("{path}/invite"), &[("email", email), ("role", role)])
    };
    let ids = || {
        let known = stage.wait(stage.control.invitations(tenant_id(1), stage.now_ms(), 9)).unwrap();
        known.iter().map(|link| link.id.to_string()).collect::<Vec<_>>()
    };
    let withdraw = |n, id: &str| stage.signed_in(n).post(&format!("{path}/withdraw"), &[("invitation", id)]);
    let withdrawals = || {
        let records = stage.records(1);
        records.iter().filter(|record| record.contains("sealog.invitation_withdrawn")).count()
    };
    assert_eq!(invite(1, "x@example.org", "owner").status, 303);
    let owners = ids();
    withdraw(2, &owners[0]).is_problem(403, "auth/not_allowed");
    let refused = invite(2, "X@example.org", "developer");
    assert_eq!(refused.status, 422);
    refused.shows("invited with a role you cannot assign");
    assert!(!stage.signed_in(2).get(&path).has(&owners[0]), "no button that does nothing");
    assert_eq!((ids(), withdrawals()), (owners.clone(), 0));
    // An owner replaces it, and the record says that the first one is withdrawn.
    assert_eq!(invite(1, "x@example.org", "developer").status, 303);
    assert_eq!((ids().len(), withdrawals()), (1, 1));
    assert!(
        stage.records(1).iter().any(|record| record.contains("withdrawn") && record.contains(&owners[0]))
    );
    assert_eq!(withdraw(2, &ids()[0]).status, 303);
    assert_eq!(withdrawals(), 2);
}
