//! Overview, Usage and Frameworks.

use sealog_control::{Grants, NewNotice, NewProject, NoticeOutcome, Role, TenantChange};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ChainId, Mode, ProjectId, Uuid};
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
    let today = "q=from:2026-10-17+to:2026-11-15+action:user.login\"";
    page.shows(today).shows("q=from:2026-11-15+to:2026-11-15\"");
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
    let failed = owner.get(&link("action:user.login_failed"));
    assert_eq!(
        (failed.status, failed.text().matches("row\" class=\"c-seq").count()),
        (200, 2),
        "{}",
        failed.text()
    );
    let of_day = owner.get(&link("q=from:2026-11-15+to:2026-11-15\""));
    assert_eq!(of_day.text().matches("row\" class=\"c-seq").count(), 8);
}

#[test]
fn reads_are_left_out_until_they_are_asked_for_and_the_page_says_so() {
    let stage = stage();
    for _ in 0..3 {
        stage.append(live(1), r#"{"action":"record.viewed","actor_id":"usr_9","severity":"info"}"#);
    }
    let mut owner = stage.signed_in(1);
    let page = owner.get(&format!("{}?days=7", overview(1)));
    page.shows("<dt>Events</dt><dd class=\"fig\">8</dd>").shows("3 read events hidden.");
    page.shows("Sun 15 Nov 2026: 8 events so far").shows("including reads");
    page.shows("aria-current=\"true\">Hide reads</a>");
    assert!(!page.has(">record.viewed</span>"));
    // The bar leads to the events that it counts.
    let href = |marker: &str| {
        let href = page.text().split("href=\"").find(|rest| rest.contains(marker)).unwrap();
        href.split('"').next().unwrap().replace("&#38;", "&")
    };
    let of_day = owner.get(&href("q=from:2026-11-15+to:2026-11-15+-action"));
    assert_eq!(of_day.text().matches("row\" class=\"c-seq").count(), 8);
    // The switch keeps the days, and other days keep the switch.
    let with = owner.get(&href(">Show reads"));
    with.shows("<dt>Events</dt><dd class=\"fig\">11</dd>").shows(">record.viewed</span>");
    with.shows("9 Nov 2026 to 15 Nov 2026").shows("?days=30&#38;reads=with\"");
    with.shows("<input type=\"hidden\" name=\"reads\" value=\"with\">");
    assert!(!with.has("read events hidden"));
    with.shows("q=from:2026-11-15+to:2026-11-15\"");
    let dates = owner.get(&format!("{}?from=2026-11-15&to=2026-11-15&reads=with", overview(1)));
    dates.shows("<dd class=\"fig\">11</dd>").shows("?from=2026-11-15&#38;to=2026-11-15\">Hide reads");
}

#[test]
fn what_is_compared_is_a_whole_period_and_what_is_many_times_as_much_has_no_percentage() {
    let stage = stage();
    // The chain begins today: the thirty days before are not all there.
    let begun = stage.signed_in(1).get(&overview(1));
    let note = |page: &Response| {
        let figure = page.text().split("<dt>Events</dt>").nth(1).unwrap().split("</div>").next().unwrap();
        figure.split("class=\"note\">").nth(1).map(|note| note.split('<').next().unwrap().to_owned())
    };
    assert_eq!(note(&begun), None);
    for clock in
        [|stage: &Stage| stage.sealing.advance(31 * DAY_MS), |stage: &Stage| stage.clock.advance(31 * DAY_MS)]
    {
        clock(&stage);
    }
    for _ in 0..40 {
        stage.append(live(1), r#"{"action":"user.login","actor_id":"usr_1"}"#);
    }
    let mut owner = stage.signed_in(1);
    let of = |owner: &mut Browser<'_>, query: &str| note(&owner.get(&format!("{}?{query}", overview(1))));
    assert_eq!(of(&mut owner, "days=7").as_deref(), Some("from 0"));
    assert_eq!(of(&mut owner, "days=30"), None, "the chain has begun in the period before");
    // The 31 days from 15 November on had eight events.
    assert_eq!(of(&mut owner, "from=2026-12-16&to=2027-01-15").as_deref(), Some("from 8"));
    for _ in 0..2 {
        stage.append(live(1), r#"{"action":"user.login","actor_id":"usr_1"}"#);
    }
    assert_eq!(of(&mut owner, "from=2026-12-17&to=2027-01-17").as_deref(), Some("was 50, −100.0 %"));
}

#[test]
fn keys_that_end_within_14_days_stand_on_overview() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    owner.get(&overview(1)).shows("No keys expire in the next 14 days.");
    let end = |days: u64| sealog_core::time::iso_ms(stage.now_ms() + days * DAY_MS);
    for (n, days, project) in [(1, 3, 1), (2, 13, 1), (3, 15, 1), (4, 3, 101)] {
        let input = sealog_service::people::admin::keys::KeyInput {
            name: format!("key <{n}>"),
            mode: "live".into(),
            expires_at: Some(end(days)),
            form: None,
        };
        let actor = sealog_service::people::admin::Actor::Host;
        stage.wait(stage.admin.create_key(actor, project_id(project), input)).unwrap();
    }
    let page = owner.get(&overview(1));
    page.shows("key &#60;1&#62;").shows("in 3 days").shows("key &#60;2&#62;");
    page.shows(&format!("/app/o/{}/keys\"", tenant_id(1)));
    assert!(!page.has("key &#60;3&#62;"), "it has more time");
    assert!(!page.has("key &#60;4&#62;"), "it is of another project");
    // A privacy officer has no business with keys.
    stage.member(7, 1, Role::PrivacyOfficer);
    assert!(!stage.signed_in(7).get(&overview(1)).has("Keys expiring"));
}

#[test]
fn the_last_verifications_stand_on_overview_and_the_chain_says_how_far_it_is_verified() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    owner.get(&overview(1)).shows("Not verified yet.").shows("No verifications yet.");
    let start =
        |owner: &mut Browser<'_>| owner.post(&format!("{}/start", verify_path(1)), &[]).location().unwrap();
    let run = start(&mut owner);
    owner.get(&overview(1)).shows("Waiting</span>");
    stage.work();
    stage.clock.advance(6 * 60 * 1000);
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let page = owner.get(&overview(1));
    page.shows("Sealed to #9").shows("Verified to #8, 6 min ago.").shows("Valid</span>");
    page.shows(&format!("href=\"{run}\""));
    stage.doubtful.doubt(4, sealog_testing::doubtful::Doubt::Missing);
    let broken = start(&mut owner);
    stage.work();
    stage.doubtful.trust();
    let page = owner.get(&overview(1));
    page.shows("Broken at #5").shows(&format!("<a href=\"{broken}\">See the verification</a>"));
    assert!(!page.has("Sealed to"));
    // What reaches beyond an auditor's time is not there.
    let today = MORNING_MS / DAY_MS * DAY_MS;
    let grants = Grants { projects: None, from_ms: Some(today + DAY_MS), until_ms: None };
    stage.member_with(8, 1, Role::Auditor, grants, None);
    stage.with_authenticator(8);
    let late = stage.signed_in(8).get(&overview(1));
    late.shows("No verifications yet.");
    for hidden in ["Broken at", "Verified to", "Sealed to", "Last event"] {
        assert!(!late.has(hidden), "{hidden}");
    }
    // Once something is within it, the end of the chain is.
    stage.sealing.advance(2 * DAY_MS);
    stage.append(live(1), r#"{"action":"user.login"}"#);
    stage.signed_in(8).get(&overview(1)).shows("Sealed to #10").shows("Last event");
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
        ("?from=soon&to=2026-01-01", "id=\"from-error\">Use the format"),
        ("?from=2026-01-01&to=", "id=\"to-error\">Use the format"),
        ("?from=2026-01-02&to=2026-01-01", "id=\"to-error\">Choose a day that is not before"),
        ("?from=2020-01-01&to=2026-01-01", "id=\"to-error\">Choose at most 183 days"),
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
    early.shows("<dt>Events</dt><dd class=\"fig\">0</dd>").shows("limited to certain dates");
    for hidden in ["Sealed to", "Last event", "This month", "user.login"] {
        assert!(!early.has(hidden), "{hidden}");
    }
    stage
        .signed_in(6)
        .get(&overview(1))
        .shows("<dt>Events</dt><dd class=\"fig\">8</dd>")
        .shows("no earlier period to compare");
    stage.signed_in(5).get(&overview(101)).is_problem(404, "request/not_found");
    assert!(!stage.signed_in(5).get(&frameworks(1)).has(">1 of "));
    stage.signed_in(5).get(&format!("{}/pci_dss", frameworks(1))).shows("whole days you can see");
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
    owner.get(&usage(1)).shows("the plan has no limit").shows("None in the last 12 months");
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
        let key = sealog_service::ingest::quota::notice_key(tenant_id(1), month, percent);
        assert!(stage.wait(stage.control.enqueue_notice(notice(percent, key))).unwrap());
    }
    let due = stage.wait(stage.control.due_notices(MORNING_MS, 10)).unwrap();
    stage
        .wait(stage.control.notice_attempted(due[0].id, NoticeOutcome::Sent { now_ms: MORNING_MS }))
        .unwrap();
    let failed = NoticeOutcome::Failed { retry_at_ms: MORNING_MS + 1, cause: "no <route>".into() };
    stage.wait(stage.control.notice_attempted(due[1].id, failed)).unwrap();
    let page = owner.get(&usage(1));
    page.shows("80 % of 2026-11").shows("sent 15 Nov 2026").shows("100 % of 2026-11").shows("waiting since");
    page.shows("no &#60;route&#62;");
    assert!(!stage.signed_in(1).get(&usage(1)).has("example.org\""));
    // Of another organisation nothing is seen.
    stage.member(9, 2, Role::Owner);
    assert!(!stage.signed_in(9).get(&usage(2)).has("80 % of 2026-11"));
}

#[test]
fn usage_counts_the_events_of_ten_projects_on_a_page() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    // Two are there, which makes 23.
    let projects: Vec<ProjectId> = (0..21u8)
        .map(|n| {
            let id = ProjectId(Uuid::from_random([n.wrapping_add(170); 16]));
            let name = format!("Many {n:02}");
            let (tenant_id, frameworks) = (tenant_id(1), FrameworkSet::NONE);
            let new = NewProject { id, tenant_id, name, frameworks, created_at_ms: MORNING_MS };
            stage.wait(stage.control.create_project(new, vec![])).unwrap().unwrap();
            id
        })
        .collect();
    for project_id in &projects {
        let chain = ChainId { tenant_id: tenant_id(1), project_id: *project_id, mode: Mode::Live };
        stage.append(chain, r#"{"action":"user.login"}"#);
    }
    let mut owner = stage.signed_in(1);
    let (mut path, mut seen) = (usage(1), Vec::new());
    for (rows, part) in [(10, "1 to 10 of 23"), (10, "11 to 20 of 23"), (3, "21 to 23 of 23")] {
        let before = stage.doubtful.counts_asked();
        let page = owner.get(&path);
        page.shows(part).shows("<b class=\"fig\">21</b>");
        assert_eq!(stage.doubtful.counts_asked() - before, 2 * rows, "live and test of each project");
        let row = |id: &ProjectId| format!("<th scope=\"row\"><a href=\"/app/p/{id}/live\">");
        seen.extend(projects.iter().filter(|id| page.has(&row(id))).copied());
        let next = page.text().split("rel=\"next\" href=\"").nth(1);
        path = next.map_or(String::new(), |next| next.split('"').next().unwrap().to_owned());
    }
    assert!(path.is_empty(), "the last page has no next");
    assert_eq!(seen, projects, "each is on one page");
    let foreign = format!("{}?after={}", usage(1), project_id(2));
    owner.get(&foreign).is_problem(404, "request/not_found");
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
    set(None).shows("Not active, no trial");
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
        sealog_service::people::admin::projects::framework_ids(project.frameworks)
    };
    owner
        .get(&path)
        .shows("Enable HIPAA")
        .shows("hipaa.phi_accessed")
        .shows("rejected with 403 today are accepted");
    let unread = owner.post(&path, &[("to", "enable")]);
    assert_eq!((unread.status, enabled().len()), (422, 0));
    unread.shows("Confirm that you have read the changes.");
    let done = owner.post(&path, &[("to", "enable"), ("understood", "yes")]);
    assert_eq!((done.status, enabled()), (303, vec!["hipaa"]));
    owner.follow(done).shows("Framework enabled.");
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
