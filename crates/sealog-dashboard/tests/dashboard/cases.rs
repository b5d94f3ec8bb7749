//! Pages of cases: intake to register, two people on one case, what each role sees.

use sealog_control::{Grants, Role};
use sealog_core::time::DAY_MS;

use crate::harness::*;

fn list() -> String {
    format!("/app/o/{}/cases", tenant_id(1))
}

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::PrivacyOfficer);
    stage.member(2, 1, Role::Admin);
    stage.member(3, 1, Role::Owner);
    stage.member(4, 2, Role::Owner);
    stage
}

/// The revision that a page was made from.
fn revision(page: &Response) -> String {
    let behind = page.text().split("name=\"revision\" value=\"").nth(1).unwrap();
    behind.split('"').next().unwrap().to_owned()
}

/// Takes a step from the page as it is now.
fn step(browser: &mut Browser<'_>, path: &str, to: &str, more: &[(&str, &str)]) -> Response {
    let revision = revision(&browser.get(path));
    let mut form = vec![("revision", revision.as_str()), ("to", to), ("note", "So it is.")];
    form.extend(more);
    browser.post(&format!("{path}/move"), &form)
}

#[test]
fn a_request_goes_from_intake_to_the_register() {
    let stage = stage();
    let mut officer = stage.signed_in(1);
    officer.get(&list()).shows("No open cases.");
    officer.get(&format!("{}/new", list())).shows("Open case");
    let case = open_case(&mut officer);
    let page = officer.get(&case);
    page.shows("DSAR-2026-001").shows("Answer due in").shows("17 days").shows("Wednesday 2 December 2026");
    page.shows("one month from receipt").shows("GDPR Art. 12(3)");
    assert_eq!(step(&mut officer, &case, "identity_check", &[]).status, 303);
    // Locked, and said so.
    officer.get(&case).shows("locked until the identity is confirmed");
    step(&mut officer, &case, "in_progress", &[]).shows("Confirm the requester&#39;s identity first.");
    let identity = format!("{case}/identity");
    let seen = revision(&officer.get(&identity));
    let check = [
        ("revision", seen.as_str()),
        ("method", "document_seen"),
        ("outcome", "confirmed"),
        ("note", "Passport."),
    ];
    assert_eq!(officer.post(&identity, &check).status, 303);
    officer.get(&identity).shows("Confirmed");
    let identifiers = format!("{case}/identifiers");
    let seen = revision(&officer.get(&identifiers));
    let ids = [("revision", seen.as_str()), ("kind", "actor_id"), ("value", "usr_<b>42"), ("source", "CRM")];
    assert_eq!(officer.post(&format!("{identifiers}/add"), &ids).status, 303);
    let page = officer.get(&identifiers);
    page.shows("usr_&#60;b&#62;42");
    let remove = [("revision", revision(&page)), ("identifier", "0".to_owned())];
    let remove: Vec<(&str, &str)> = remove.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(officer.post(&format!("{identifiers}/remove"), &remove).status, 303);
    let project = project_id(1).to_string();
    let seen = revision(&officer.get(&identifiers));
    let scope = [
        ("revision", seen.as_str()),
        ("project", &project),
        ("from", "2026-01-01"),
        ("note", "Only this one."),
    ];
    assert_eq!(officer.post(&format!("{case}/scope"), &scope).status, 303);
    let seen = revision(&officer.get(&case));
    assert_eq!(officer.post(&format!("{case}/confirm"), &[("revision", &seen)]).status, 303);
    officer.get(&case).shows("Receipt confirmed");
    for (to, more) in [
        ("in_progress", &[][..]),
        ("paused", &[]),
        ("in_progress", &[]),
        ("review", &[]),
        ("approved", &[]),
        ("delivered", &[("how", "letter")]),
        ("closed", &[]),
    ] {
        let moved = step(&mut officer, &case, to, more);
        assert_eq!(moved.status, 303, "{to}: {}", moved.text());
        if to == "review" {
            officer.follow(moved).shows("Case moved to Review.");
        }
    }
    let closed = officer.get(&case);
    closed.shows("on time");
    assert!(!closed.has("name=\"revision\""), "nothing of a closed case can be changed");
    let history = officer.get(&format!("{case}/history"));
    history.shows("Approved → Delivered").shows("So it is.").shows("Passport.").shows(&email(1));
    assert!(!history.has("does not match its recorded digest"));
    officer.get(&format!("{}?closed=1", list())).shows("DSAR-2026-001");
    let register = officer.get(&format!("{}/register?year=2026", list()));
    register.shows("DSAR-2026-001").shows("Answered");
    assert!(!register.has("Ada Subject"));
    let csv = officer.get(&format!("{}/register.csv?year=2026", list()));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    csv.shows("\"DSAR-2026-001\"");
    assert!(stage.records(1).iter().any(|record| record.contains("sealog.case_register_downloaded")));
    // No chain has heard of the person.
    for record in stage.records(1) {
        for text in ["Ada", "subject.example", "usr_", "everything", "Passport", "So it is"] {
            assert!(!record.contains(text), "{text} is in {record}");
        }
    }
}

#[test]
fn a_form_keeps_what_was_typed_and_says_what_is_wrong_beside_the_field() {
    let stage = stage();
    let mut officer = stage.signed_in(1);
    let mut form = CASE.to_vec();
    form[4] = ("requester", "");
    form[6] = ("wrote", "Three <b>lines");
    let wrong = officer.post(&format!("{}/create", list()), &form);
    assert_eq!(wrong.status, 422);
    wrong
        .shows("It must not be empty.")
        .shows("Three &#60;b&#62;lines")
        .shows("aria-describedby=\"requester-hint\"");
    let case = open_case(&mut officer);
    let wrong = step(
        &mut officer,
        &case,
        "extended",
        &[("announced", "2026-11-01"), ("extension_reason", "complexity")],
    );
    assert_eq!(wrong.status, 422);
    wrong.shows("value=\"2026-11-01\"").shows("from receipt to today");
    let wrong = step(&mut officer, &case, "refused", &[("ground", "no reason"), ("how", "email")]);
    assert_eq!(wrong.status, 422);
    wrong.shows("refused-ground-hint");
    let holidays = format!("{}/holidays", list());
    let wrong = officer.post(&holidays, &[("holidays", "2026-12-02\nXmas")]);
    assert_eq!(wrong.status, 422);
    wrong.shows("&#34;Xmas&#34; is not a date. Use 2026-12-25.");
    assert_eq!(officer.post(&holidays, &[("holidays", "2026-12-02")]).status, 303);
    officer.get(&case).shows("Thursday 3 December 2026").shows("is not a working day");
}

#[test]
fn a_stale_form_is_refused_shows_what_the_other_did_and_overwrites_nothing() {
    let stage = stage();
    let (mut officer, mut owner) = (stage.signed_in(1), stage.signed_in(3));
    let case = open_case(&mut officer);
    let seen = revision(&officer.get(&case));
    let mut theirs = CASE.to_vec();
    theirs[5] = ("contact", "new@subject.example");
    theirs[7] = ("note", "She has moved.");
    theirs.push(("revision", &seen));
    assert_eq!(owner.post(&format!("{case}/intake"), &theirs).status, 303);
    let mut mine = CASE.to_vec();
    mine[4] = ("requester", "Ada B. Subject");
    mine.push(("revision", &seen));
    let stale = officer.post(&format!("{case}/intake"), &mine);
    assert_eq!(stale.status, 409);
    stale.shows("Someone else changed this case.").shows(&email(3)).shows("She has moved.");
    stale.shows("<ins>new@subject.example</ins>").shows("value=\"Ada B. Subject\"");
    // What was not touched is as the other left it, so that sending it again takes nothing back.
    stale.shows("value=\"new@subject.example\"");
    officer.get(&case).shows("value=\"new@subject.example\"").shows("value=\"Ada Subject\"");
    // The form that was shown is made from the case as it is now.
    assert_eq!(revision(&stale), "2");
    // A step from an old page is refused, too; and so is a form that says nothing of what it has seen.
    for revision in ["1", "", "99"] {
        let form = [("revision", revision), ("to", "identity_check"), ("note", "x")];
        assert!(matches!(officer.post(&format!("{case}/move"), &form).status, 409 | 422), "{revision}");
    }
    officer.get(&format!("{case}/history")).shows("revision 2");
    assert!(!officer.get(&format!("{case}/history")).has("revision 3"));
}

#[test]
fn a_case_of_another_organisation_is_like_one_that_does_not_exist() {
    let stage = stage();
    let case = open_case(&mut stage.signed_in(1));
    let id = case.rsplit('/').next().unwrap();
    let mut stranger = stage.signed_in(4);
    stranger.get(&case).is_problem(404, "request/not_found");
    let own = format!("/app/o/{}/cases", tenant_id(2));
    for path in [format!("{own}/{id}"), format!("{own}/{id}/history"), format!("{own}/x")] {
        stranger.get(&path).is_problem(404, "request/not_found");
    }
    let form = [("revision", "1"), ("to", "withdrawn"), ("note", "x")];
    stranger.post(&format!("{own}/{id}/move"), &form).is_problem(404, "request/not_found");
    stage.signed_in(1).get(&case).shows("Received");
}

#[test]
fn an_admin_looks_at_cases_and_changes_none() {
    let stage = stage();
    let case = open_case(&mut stage.signed_in(1));
    let mut admin = stage.signed_in(2);
    let page = admin.get(&case);
    page.shows("Ada Subject");
    assert!(
        !page.has("<form class=\"pad") && !page.has("What to do next") && !page.has("Other steps"),
        "no control that does nothing"
    );
    assert!(!admin.get(&list()).has("New case"));
    let form = [("revision", "1"), ("to", "withdrawn"), ("note", "x")];
    admin.post(&format!("{case}/move"), &form).is_problem(403, "auth/not_allowed");
}

#[test]
fn an_auditor_sees_closed_cases_within_the_grants_and_no_open_one() {
    let stage = stage();
    let mut officer = stage.signed_in(1);
    let open = open_case(&mut officer);
    let closed = closed_case(&mut officer);
    let grants = |projects| Grants { projects, from_ms: None, until_ms: None };
    stage.member_with(5, 1, Role::Auditor, grants(None), None);
    stage.member_with(6, 1, Role::Auditor, grants(Some(vec![project_id(1)])), None);
    for n in [5, 6] {
        stage.with_authenticator(n);
    }
    let mut auditor = stage.signed_in(5);
    for path in
        [open.clone(), format!("{open}/history"), format!("{open}/identity"), format!("{open}/identifiers")]
    {
        auditor.get(&path).is_problem(404, "request/not_found");
    }
    auditor.get(&closed).shows("Ada Subject");
    let page = auditor.get(&list());
    assert!(page.has("DSAR-2026-002") && !page.has("DSAR-2026-001"));
    let register = auditor.get(&format!("{}/register?year=2026", list()));
    assert!(register.has("DSAR-2026-002") && !register.has("DSAR-2026-001"));
    // Of no project that the other one was granted.
    stage.signed_in(6).get(&closed).is_problem(404, "request/not_found");
    assert!(!stage.signed_in(6).get(&list()).has("DSAR-2026"));
}

#[test]
fn what_is_due_next_stands_on_the_overview_of_those_who_may_see_it() {
    let stage = stage();
    stage.member(7, 1, Role::Developer);
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let overview = events_path(1).replace("/events", "");
    assert!(!stage.signed_in(1).get(&overview).has("Cases due"));
    open_case(&mut stage.signed_in(1));
    stage.signed_in(1).get(&overview).shows("Cases due").shows("DSAR-2026-001").shows("17 days");
    stage.signed_in(2).get(&overview).shows("Cases due");
    assert!(!stage.signed_in(7).get(&overview).has("Cases due"));
    assert!(!stage.signed_in(7).get(&overview).has("/cases\""), "nor in the rail");
}

#[test]
fn an_open_case_that_is_late_says_so() {
    let stage = stage();
    let case = open_case(&mut stage.signed_in(1));
    stage.clock.advance(20 * DAY_MS);
    let mut officer = stage.signed_in(1);
    officer.get(&case).shows("Answer overdue by").shows("3 days");
    officer.get(&list()).shows("3 days overdue");
}

#[test]
fn a_step_is_ticked_where_it_happened_and_the_identity_check_where_it_was_confirmed() {
    let stage = stage();
    let mut officer = stage.signed_in(1);
    let case = open_case(&mut officer);
    let ticked =
        |page: &Response, name: &str| page.has(&format!("<b>{name}<span class=\"vh\"> (done)</span>"));
    for (to, more) in
        [("identity_check", &[][..]), ("extended", &[("extension_reason", "complexity")]), ("review", &[])]
    {
        let moved = step(&mut officer, &case, to, more);
        assert_eq!(moved.status, 303, "{to}: {}", moved.text());
    }
    let page = officer.get(&case);
    assert!(ticked(&page, "Received") && !ticked(&page, "Identity check"), "nobody has checked anything");
    page.shows("Not confirmed");
    assert!(!ticked(&page, "In progress"), "it was skipped");
    let identity = format!("{case}/identity");
    let seen = revision(&officer.get(&identity));
    let check = [
        ("revision", seen.as_str()),
        ("method", "document_seen"),
        ("outcome", "confirmed"),
        ("note", "Passport."),
    ];
    assert_eq!(officer.post(&identity, &check).status, 303);
    assert!(ticked(&officer.get(&case), "Identity check"));
    let withdrawn = officer.get(&closed_case(&mut stage.signed_in(1)));
    for name in ["Identity check", "Review", "Approved"] {
        assert!(!ticked(&withdrawn, name), "{name}");
    }
    assert!(ticked(&withdrawn, "Withdrawn") && ticked(&withdrawn, "Closed"));
}

#[test]
fn a_form_keeps_an_assignee_who_takes_no_cases_any_more() {
    let stage = stage();
    let until = sealog_testing::MORNING_MS + DAY_MS;
    let gone = stage.member_with(5, 1, Role::PrivacyOfficer, Grants::default(), Some(until)).0.to_string();
    let case = open_case(&mut stage.signed_in(1));
    let assign = |officer: &mut Browser<'_>| {
        let seen = revision(&officer.get(&case));
        let mut form = CASE.to_vec();
        form.extend([("revision", seen.as_str()), ("assignee", &gone)]);
        assert_eq!(officer.post(&format!("{case}/intake"), &form).status, 303);
    };
    let is_chosen =
        |officer: &mut Browser<'_>| officer.get(&case).has(&format!("<option value=\"{gone}\" selected>"));
    let mut officer = stage.signed_in(1);
    assign(&mut officer);
    assert!(is_chosen(&mut officer));
    stage.clock.advance(2 * DAY_MS);
    let mut officer = stage.signed_in(1);
    assert!(is_chosen(&mut officer), "or the next form that is saved takes the case from them");
    assign(&mut officer);
}
