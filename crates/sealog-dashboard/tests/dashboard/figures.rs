//! Overview, Usage and Frameworks.

use sealog_control::{Grants, NewNotice, NoticeOutcome, Outbox, Projects, Role, TenantChange, Tenants};
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::DAY_MS;
use sealog_testing::MORNING_MS;

use crate::harness::*;

fn overview(tenant: u8) -> String {
    format!("/app/p/{}/live", project_id(tenant))
}

fn frameworks(tenant: u8) -> String {
    format!("{}/frameworks", overview(tenant))
}

fn usage(tenant: u8) -> String {
    format!("/app/o/{}/usage", tenant_id(tenant))
}

fn stage() -> Stage {
    let stage = Stage::new();
    furnish(&stage);
    stage
}

/// Events of today: 5 logins of 3 people, 2 failed ones, and one that is not of this chain.
fn furnish(stage: &Stage) {
    stage.tenant(1);
    stage.tenant(2);
    for (n, role) in (1..).zip([Role::Owner, Role::Developer]) {
        stage.member(n, 1, role);
    }
    for n in 0..5 {
        stage.append(
            live(1),
            &format!(r#"{{"action":"user.login","actor_id":"usr_{}","severity":"info"}}"#, n % 3),
        );
    }
    for _ in 0..2 {
        stage.append(live(1), r#"{"action":"user.login_failed","actor_id":"usr_1","severity":"critical"}"#);
    }
    stage.append(live(1), r#"{"action":"a<b>\"&c","severity":"warning"}"#);
    stage.append(ChainId { mode: Mode::Test, ..live(1) }, r#"{"action":"test.only","actor_id":"x"}"#);
    stage.append(live(2), r#"{"action":"other.organisation"}"#);
}

fn shows_figures(stage: &Stage) {
    let page = stage.signed_in(1).get(&overview(1));
    assert_eq!(page.status, 200, "{}", page.text());
    page.shows("<dt>Events</dt><dd class=\"fig\">8</dd>");
    page.shows("<dt>Actors</dt><dd class=\"fig\">about 3</dd>").shows("estimate");
    page.shows("<dt>Failed or denied</dt><dd class=\"fig\">25.0 %</dd>");
    page.shows("Sealed to #8").shows("Sun 15 Nov 2026: 8 events so far");
    page.shows("a&#60;b&#62;&#34;&#38;c");
    let today = "date_from=2026-10-17&#38;date_to=2026-11-15&#38;action=user.login\"";
    page.shows(today).shows("date_from=2026-11-15&#38;date_to=2026-11-15\"");
    assert!(!page.has("test.only") && !page.has("other.organisation"));
    let test = stage.signed_in(1).get(&overview(1).replace("/live", "/test"));
    test.shows("test.only").shows("<dd class=\"fig\">1</dd>");
}

#[test]
fn the_overview_shows_what_was_counted_of_its_chain() {
    shows_figures(&stage());
}

#[test]
fn the_overview_shows_what_was_counted_of_its_chain_on_postgresql() {
    let stage = Stage::on_postgres();
    furnish(&stage);
    shows_figures(&stage);
}

#[test]
fn rows_and_bars_lead_to_the_events_that_they_count() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    let page = owner.get(&overview(1));
    let link = |marker: &str| {
        let href = page.text().split("href=\"").find(|rest| rest.contains(marker)).unwrap();
        href.split('"').next().unwrap().replace("&#38;", "&")
    };
    let failed = owner.get(&link("action=user.login_failed"));
    assert_eq!(
        (failed.status, failed.text().matches("class=\"c-seq").count()),
        (200, 2),
        "{}",
        failed.text()
    );
    let of_day = owner.get(&link("date_from=2026-11-15&#38;date_to=2026-11-15\""));
    assert_eq!(of_day.text().matches("class=\"c-seq").count(), 8);
}

#[test]
fn a_period_is_chosen_by_link_or_by_dates_and_what_is_wrong_stands_beside_its_field() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    for (query, shown) in [
        ("?days=1", "15 Nov 2026, UTC"),
        ("?days=7", "9 Nov 2026 to 15 Nov 2026"),
        ("?days=5000", "17 Oct 2026 to 15 Nov 2026"),
        ("?from=2026-01-01&to=2026-01-02", "1 Jan 2026 to 2 Jan 2026"),
    ] {
        owner.get(&format!("{}{query}", overview(1))).shows(shown);
    }
    for (query, wrong) in [
        ("?from=soon&to=2026-01-01", "id=\"from-error\">Write it as"),
        ("?from=2026-01-01&to=", "id=\"to-error\">Write it as"),
        ("?from=2026-01-02&to=2026-01-01", "id=\"to-error\">It must not be before"),
        ("?from=2020-01-01&to=2026-01-01", "id=\"to-error\">At most 183 days"),
    ] {
        let page = owner.get(&format!("{}{query}", overview(1)));
        assert_eq!(page.status, 400);
        page.shows(wrong);
    }
    owner.get(&format!("{}?from=soon&to=", overview(1))).shows("value=\"soon\"");
}

#[test]
fn a_chain_without_events_has_no_figures_and_the_first_page_says_how_to_send_one() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    let mut owner = stage.signed_in(1);
    owner.get(&overview(1)).shows("No events yet");
    assert_eq!(owner.get("/app").location().unwrap(), events_path(1));
    stage.append(live(1), r#"{"action":"user.login"}"#);
    assert_eq!(owner.get("/app").location().unwrap(), overview(1));
    assert!(!owner.get(&overview(1)).has("No events yet"));
}

#[test]
fn an_auditor_sees_whole_days_of_the_granted_time_and_neither_quota_nor_the_end_of_the_chain() {
    let stage = stage();
    let grants = |from_ms, until_ms| Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    let today = MORNING_MS / DAY_MS * DAY_MS;
    stage.member_with(5, 1, Role::Auditor, grants(None, Some(today + DAY_MS / 2)), None);
    stage.member_with(6, 1, Role::Auditor, grants(Some(today), None), None);
    stage.with_authenticator(5);
    stage.with_authenticator(6);
    let early = stage.signed_in(5).get(&overview(1));
    early.shows("<dt>Events</dt><dd class=\"fig\">0</dd>").shows("limited in time");
    for hidden in ["Sealed to", "Last event", "This month", "user.login"] {
        assert!(!early.has(hidden), "{hidden}");
    }
    stage
        .signed_in(6)
        .get(&overview(1))
        .shows("<dt>Events</dt><dd class=\"fig\">8</dd>")
        .shows("no time before it");
    stage.signed_in(5).get(&overview(101)).is_problem(404, "request/not_found");
    assert!(!stage.signed_in(5).get(&frameworks(1)).has(">1 of "));
    stage.signed_in(5).get(&format!("{}/pci_dss", frameworks(1))).shows("whole days that you may see");
    let views: Vec<String> =
        stage.records(1).into_iter().filter(|record| record.contains("sealog.page_viewed")).collect();
    assert_eq!(views.len(), 4, "{views:?}");
    assert!(views[0].contains("overview") && views[3].contains("frameworks/pci_dss"), "{views:?}");
}

#[test]
fn usage_shows_the_quota_with_its_marks_and_what_was_mailed() {
    let stage = stage();
    let plan = |name: &str| {
        let change = TenantChange { plan: Some(name.into()), ..TenantChange::default() };
        stage
            .wait(stage.control.update_tenant(tenant_id(1), change, sealog_control::Records::none()))
            .unwrap();
    };
    let mut owner = stage.signed_in(1);
    owner.get(&usage(1)).shows("the plan has no limit").shows("None in the last twelve months");
    plan("entry");
    let page = owner.get(&usage(1));
    page.shows("of 250,000 live events, 0 %")
        .shows("80 %")
        .shows("Below 80 %")
        .shows("Test events are not counted: 1");
    page.shows("<meter min=\"0\" max=\"250000\" high=\"200000\" value=\"8\"");
    let notice = |percent: u8, key: String| NewNotice {
        key,
        tenant_id: Some(tenant_id(1)),
        person_id: None,
        to: "a@example.org".into(),
        template: "quota".into(),
        parameters: format!("{{\"percent\":{percent}}}"),
        created_at_ms: MORNING_MS,
    };
    let month = sealog_core::time::Month::of(MORNING_MS);
    for percent in [80, 100] {
        let key = sealog_service::quota::notice_key(tenant_id(1), month, percent);
        assert!(stage.wait(stage.control.enqueue_notice(notice(percent, key))).unwrap());
    }
    let due = stage.wait(stage.control.due_notices(MORNING_MS, 10)).unwrap();
    stage
        .wait(stage.control.notice_attempted(due[0].id, NoticeOutcome::Sent { now_ms: MORNING_MS }))
        .unwrap();
    let failed = NoticeOutcome::Failed { retry_at_ms: MORNING_MS + 1, cause: "no <route>".into() };
    stage.wait(stage.control.notice_attempted(due[1].id, failed)).unwrap();
    let page = owner.get(&usage(1));
    page.shows("80 % of 2026-11").shows("sent 15 Nov 2026").shows("100 % of 2026-11").shows("waits since");
    page.shows("no &#60;route&#62;");
    assert!(!stage.signed_in(1).get(&usage(1)).has("example.org\""));
    // Of another organisation nothing is seen.
    stage.member(9, 2, Role::Owner);
    assert!(!stage.signed_in(9).get(&usage(2)).has("80 % of 2026-11"));
}

#[test]
fn usage_says_how_the_trial_stands() {
    let stage = stage();
    let set = |trial_ends_at_ms: Option<u64>| {
        let change = TenantChange {
            trial_ends_at_ms: Some(trial_ends_at_ms),
            billing_active: Some(false),
            ..TenantChange::default()
        };
        stage
            .wait(stage.control.update_tenant(tenant_id(1), change, sealog_control::Records::none()))
            .unwrap();
        stage.signed_in(1).get(&usage(1))
    };
    set(None).shows("there is no trial that ends");
    set(Some(MORNING_MS + DAY_MS)).shows("Trial until 16 Nov 2026");
    set(Some(MORNING_MS - DAY_MS))
        .shows("The trial ended on 14 Nov 2026")
        .shows("subscription/trial_expired");
}

#[test]
fn coverage_names_each_clause_with_the_actions_that_were_seen_and_those_that_never_were() {
    let stage = stage();
    let mut developer = stage.signed_in(2);
    let list = developer.get(&frameworks(1));
    list.shows("FedRAMP").shows("Not enabled");
    assert!(!list.has("/change\""), "no control that a role may not use");
    let page = developer.get(&format!("{}/fedramp", frameworks(1)));
    assert_eq!(page.status, 200);
    let row = |action: &str| {
        let rest = page.text().split(&format!("<code>{action}</code>")).nth(1).unwrap();
        rest.split("</tr>").next().unwrap().to_owned()
    };
    assert!(row("user.login").contains("Seen</span> Sun 15 Nov 2026"), "{}", row("user.login"));
    assert!(row("fedramp.incident_reported").contains("Never seen"));
    page.shows("AU-2 (successful logon)");
    developer.get(&format!("{}/none", frameworks(1))).is_problem(404, "request/not_found");
    let of_test = developer.get(&frameworks(1).replace("/live/", "/test/"));
    assert_eq!(of_test.location().unwrap(), frameworks(1));
}

#[test]
fn a_framework_is_enabled_and_disabled_after_its_consequences_were_shown_and_both_are_recorded() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    let path = format!("{}/hipaa/change", frameworks(1));
    let enabled = || {
        let project = stage.wait(stage.control.project(project_id(1))).unwrap().unwrap();
        sealog_service::admin::projects::framework_ids(project.frameworks)
    };
    owner
        .get(&path)
        .shows("Enable HIPAA")
        .shows("hipaa.phi_accessed")
        .shows("accepted that are refused today");
    let unread = owner.post(&path, &[("to", "enable")]);
    assert_eq!((unread.status, enabled().len()), (422, 0));
    unread.shows("Confirm that you have read what changes.");
    let done = owner.post(&path, &[("to", "enable"), ("understood", "yes")]);
    assert_eq!((done.status, enabled()), (303, vec!["hipaa"]));
    owner.follow(done).shows("The framework is enabled.");
    stage.append(live(1), r#"{"action":"hipaa.phi_accessed"}"#);
    owner.get(&path).shows("Disable HIPAA").shows("framework/disabled").shows("In use");
    // To enable what is enabled changes nothing and leaves no record.
    assert_eq!(owner.post(&path, &[("to", "enable"), ("understood", "yes")]).status, 303);
    assert_eq!(owner.post(&path, &[("to", "disable"), ("understood", "yes")]).status, 303);
    assert_eq!(enabled().len(), 0);
    let records = stage.records(1);
    let changes: Vec<_> =
        records.iter().filter(|record| record.contains("sealog.frameworks_changed")).collect();
    assert_eq!(changes.len(), 2, "{records:?}");
    assert!(changes.iter().all(|record| record.contains(&person_id(1).0.to_string())));
}

#[test]
fn a_framework_outside_of_the_plan_cannot_be_enabled() {
    let stage = stage();
    let change = TenantChange { plan: Some("entry".into()), ..TenantChange::default() };
    stage.wait(stage.control.update_tenant(tenant_id(1), change, sealog_control::Records::none())).unwrap();
    let mut owner = stage.signed_in(1);
    let path = format!("{}/hipaa/change", frameworks(1));
    let page = owner.get(&path);
    page.shows("does not include HIPAA");
    assert!(!page.has("name=\"understood\""), "no control that does nothing");
    assert_eq!(owner.post(&path, &[("to", "enable"), ("understood", "yes")]).status, 422);
    owner.get(&frameworks(1)).shows("Not in the plan");
}
