//! What operators see and do in the console.

use sealog_control::*;
use sealog_core::id::{Mode, Uuid};
use sealog_store::loss::ACTION;
use serde_json::Value;

use crate::harness::*;
use crate::ops_accounts::*;

fn tenant_path(n: u8) -> String {
    format!("/ops/tenants/{}", tenant_id(n))
}

/// The last record of a tenant.
fn last_record(stage: &Stage, tenant: u8) -> Value {
    serde_json::from_str(stage.records(tenant).last().expect("a record")).unwrap()
}

fn is_by_operator(record: &Value, n: u8) -> bool {
    record["actor_id"] == operator_id(n).0.to_string() && record["actor_type"] == "operator"
}

#[test]
fn tenants_are_found_by_name_and_id_and_pages_join() {
    let stage = Stage::new();
    for n in 0..60 {
        let new = NewTenant {
            id: sealog_core::id::TenantId(Uuid::from_random([n; 16])),
            name: if n == 7 { "<b>Hostile\u{202e}".into() } else { format!("Organisation {n}") },
            plan: "entry".into(),
            contact_email: Some("secret@example.org".into()),
            billing: sealog_core::plan::Billing { trial_ends_at_ms: None, billing_active: n % 2 == 0 },
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.create_tenant(new, vec![])).unwrap();
    }
    operator(&stage, 1);
    let mut browser = signed_in(&stage, 1);
    let rows = |page: &Response| page.text().matches("<th scope=\"row\">").count();
    let first = browser.get("/ops/tenants");
    assert_eq!(rows(&first), 50);
    first.shows("&#60;b&#62;Hostile");
    assert!(!first.has("<b>Hostile") && !first.has("\u{202e}") && !first.has("secret@example.org"));
    let next = first.text().split_once("rel=\"next\" href=\"").unwrap().1.split('"').next().unwrap();
    let second = browser.get(&next.replace("&#38;", "&"));
    assert_eq!(rows(&second), 10);
    second.shows("Organisation 59").shows("href=\"/ops/tenants?\">First");
    let found = browser.get("/ops/tenants?search=ORGANISATION%205");
    assert_eq!(rows(&found), 11, "5 and 50 to 59");
    let by_id = browser.get(&format!("/ops/tenants?search={}", tenant_id(9)));
    assert_eq!(rows(&by_id), 1);
    by_id.shows("Organisation 9");
    browser.get("/ops/tenants?search=nothing+like+it").shows("No tenants match.");
}

fn changes_plan(stage: &Stage) {
    stage.tenant(1);
    stage.tenant(2);
    operator(stage, 1);
    stage.append(live(1), r#"{"action":"user.login","actor_id":"somebody-in-events"}"#);
    let mut browser = signed_in(stage, 1);
    let page = browser.get(&tenant_path(1));
    page.shows("Organisation 1").shows("Project of 1").shows("the plan has no limit").shows("<dd>2</dd>");
    assert!(!page.has("somebody-in-events"), "nothing of an event is shown");
    let plan = format!("{}/plan", tenant_path(1));

    let answer = browser.post(&plan, &[("plan", "entry"), ("trial", "2026-12-24")]);
    assert_eq!(answer.location().as_deref(), Some(&*format!("{}?done=plan", tenant_path(1))));
    browser.follow(answer).shows("of 250,000").shows("Trial until 24 Dec 2026").shows("value=\"2026-12-24\"");
    let record = last_record(stage, 1);
    assert!(is_by_operator(&record, 1), "{record}");
    assert_eq!(record["action"], "sealog.tenant_changed");
    assert_eq!(record["resource"], format!("tenant/{}", tenant_id(1)));
    assert_eq!(record["metadata"]["plan"], serde_json::json!({"from": "top", "to": "entry"}));
    assert_eq!(record["metadata"]["trial_ends_at"]["to"], "2026-12-24T00:00:00.000Z");
    assert_eq!(record["metadata"]["billing_active"]["to"], false);
    assert!(stage.records(2).is_empty(), "nobody else is told");

    // A day that stays leaves its time alone, and what alters nothing leaves no record.
    let at =
        TenantChange { trial_ends_at_ms: Some(Some(stage.now_ms() + 12_345)), ..TenantChange::default() };
    stage.wait(stage.control.update_tenant(tenant_id(1), at, Records::none())).unwrap();
    let before = stage.records(1).len();
    browser.post(&plan, &[("plan", "entry"), ("trial", "2026-11-15")]);
    let tenant = stage.wait(stage.control.tenant(tenant_id(1))).unwrap().unwrap();
    assert_eq!(tenant.billing.trial_ends_at_ms, Some(stage.now_ms() + 12_345));
    assert_eq!(stage.records(1).len(), before);

    // What is wrong is said beside its field, and what was typed stays.
    let wrong = browser.post(&plan, &[("plan", "middle"), ("trial", "soon\"><b>"), ("billing", "active")]);
    assert_eq!(wrong.status, 422);
    wrong.shows("id=\"trial-hint\">Enter a date").shows("soon&#34;&#62;&#60;b&#62;");
    wrong.shows("<option value=\"middle\" selected>").shows("checked");
    let wrong = browser.post(&plan, &[("plan", "golden")]);
    assert_eq!(wrong.status, 422);
    wrong.shows("id=\"plan-error\"");
    assert_eq!(stage.records(1).len(), before);
    browser
        .post(&plan.replace(&tenant_id(1).to_string(), &tenant_id(9).to_string()), &[("plan", "top")])
        .is_problem(404, "request/not_found");
}

#[test]
fn plan_billing_and_trial_are_changed_and_the_tenants_system_chain_names_the_operator() {
    changes_plan(&Stage::new());
}

#[test]
fn plan_billing_and_trial_are_changed_on_postgresql() {
    changes_plan(&Stage::on_postgres());
}

#[test]
fn a_plan_that_is_not_in_the_configuration_stays_until_another_one_is_chosen() {
    let stage = Stage::new();
    stage.tenant(1);
    operator(&stage, 1);
    let change = TenantChange { plan: Some("golden".into()), ..TenantChange::default() };
    stage.wait(stage.control.update_tenant(tenant_id(1), change, Records::none())).unwrap();
    let mut browser = signed_in(&stage, 1);
    let page = browser.get(&tenant_path(1));
    page.shows("which is not in the configuration").shows("<option value=\"golden\" selected>golden");
    let answer =
        browser.post(&format!("{}/plan", tenant_path(1)), &[("plan", "golden"), ("billing", "active")]);
    assert_eq!(answer.status, 303);
    let tenant = stage.wait(stage.control.tenant(tenant_id(1))).unwrap().unwrap();
    assert_eq!(tenant.plan, "golden");
}

#[test]
fn rates_are_set_and_taken_back_for_a_tenant_and_for_its_own_projects_alone() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    operator(&stage, 1);
    let mut browser = signed_in(&stage, 1);
    let (rate, project_rate) =
        (format!("{}/rate", tenant_path(1)), format!("{}/project-rate", tenant_path(1)));
    let of_tenant = || stage.wait(stage.control.tenant(tenant_id(1))).unwrap().unwrap().rate_limit_rps;
    assert_eq!(browser.post(&rate, &[("rate", " 250 ")]).status, 303);
    assert_eq!(of_tenant(), Some(250));
    browser.get(&tenant_path(1)).shows("250 requests per second");
    let record = last_record(&stage, 1);
    assert!(is_by_operator(&record, 1) && record["metadata"]["rate_limit_rps"]["to"] == 250, "{record}");
    for wrong in ["many", "-1", "1.5", "4294967296"] {
        let answer = browser.post(&rate, &[("rate", wrong)]);
        assert_eq!(answer.status, 422, "{wrong}");
        answer.shows("id=\"rate-hint\">Enter a whole number").shows(&format!("value=\"{wrong}\""));
    }
    assert_eq!(of_tenant(), Some(250));
    assert_eq!(browser.post(&rate, &[("rate", "")]).status, 303);
    assert_eq!(of_tenant(), None);

    let of_project = |n| stage.wait(stage.control.project(project_id(n))).unwrap().unwrap().rate_limit_rps;
    let set = |browser: &mut Browser<'_>, n, rate| {
        browser.post(&project_rate, &[("project", &project_id(n).to_string()), ("rate", rate)])
    };
    assert_eq!(set(&mut browser, 1, "7").status, 303);
    assert_eq!(of_project(1), Some(7));
    assert_eq!(last_record(&stage, 1)["action"], "sealog.project_changed");
    let wrong = set(&mut browser, 1, "x");
    assert_eq!(wrong.status, 422);
    wrong.shows("role=\"alert\"").shows("Rate of Project of 1").shows("value=\"x\"");
    set(&mut browser, 2, "7").is_problem(404, "request/not_found");
    assert_eq!(of_project(2), None);
}

#[test]
fn jobs_of_all_tenants_are_shown_without_what_they_are_about_and_one_is_cancelled_in_the_tenants_chain() {
    let stage = Stage::new();
    stage.tenant(1);
    operator(&stage, 1);
    let job = |n: u8, tenant_id| NewJob {
        id: JobId(Uuid::from_random([n; 16])),
        kind: "verify".into(),
        tenant_id,
        person_id: None,
        subject: Some("a secret subject".into()),
        parameters: r#"{"secret":"parameters"}"#.into(),
        created_at_ms: stage.now_ms(),
    };
    for (n, tenant) in [(1, Some(tenant_id(1))), (2, None)] {
        stage.wait(stage.control.create_job(job(n, tenant))).unwrap();
    }
    let id = |n: u8| JobId(Uuid::from_random([n; 16]));
    stage.wait(stage.control.claim_job(id(1), stage.now_ms(), stage.now_ms() + 1)).unwrap();
    let position = br#"{"next":12345,"first":"of events"}"#.to_vec();
    assert!(stage.wait(stage.control.advance_job(id(1), 1, position, stage.now_ms() + 1)).unwrap());
    let mut browser = signed_in(&stage, 1);
    let page = browser.get("/ops/jobs");
    page.shows("Organisation 1")
        .shows("Running")
        .shows("next 12,345")
        .shows("<span class=\"muted\">Operator</span>")
        .shows("not started");
    assert!(!page.has("secret") && !page.has("of events"));
    let cancel = |browser: &mut Browser<'_>, id: &str| browser.post("/ops/jobs/cancel", &[("job", id)]);
    let answer = cancel(&mut browser, &id(1).0.to_string());
    browser.follow(answer).shows("Job cancelled.");
    let record = last_record(&stage, 1);
    assert!(is_by_operator(&record, 1), "{record}");
    assert_eq!(
        (&record["action"], &record["metadata"]["kind"]),
        (&"sealog.job_cancelled".into(), &"verify".into())
    );
    assert_eq!(record["resource"], format!("job/{}", id(1).0));
    let answer = cancel(&mut browser, &id(1).0.to_string());
    browser.follow(answer).shows("The job had already finished.");
    assert_eq!(stage.records(1).len(), 1);
    // One of the operator's own has no chain to go into.
    let answer = cancel(&mut browser, &id(2).0.to_string());
    browser.follow(answer).shows("No unfinished jobs.");
    browser.get("/ops/jobs?all=1").shows("Cancelled").shows("next 12,345");
    cancel(&mut browser, &id(9).0.to_string()).is_problem(404, "request/not_found");
    cancel(&mut browser, "x").is_problem(404, "request/not_found");
}

#[test]
fn jobs_come_fifty_to_a_page() {
    let stage = Stage::new();
    operator(&stage, 1);
    for n in 0..51 {
        let job = NewJob {
            id: JobId(Uuid::from_random([n; 16])),
            kind: "verify".into(),
            tenant_id: None,
            person_id: None,
            subject: None,
            parameters: "{}".into(),
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.create_job(job)).unwrap();
    }
    let mut browser = signed_in(&stage, 1);
    let rows = |page: &Response| page.text().matches("<th scope=\"row\">").count();
    for here in ["/ops/jobs", "/ops/jobs?all=1"] {
        let first = browser.get(here);
        assert_eq!(rows(&first), 50);
        let next = first.text().split_once("rel=\"next\" href=\"").unwrap().1.split('"').next().unwrap();
        assert_eq!(rows(&browser.get(&next.replace("&#38;", "&"))), 1);
    }
}

#[test]
fn the_operator_accepts_a_loss_by_typing_and_the_chain_goes_on() {
    let (stage, store) = Stage::on_reference();
    stage.tenant(1);
    stage.tenant(2);
    operator(&stage, 1);
    for _ in 0..8 {
        stage.append(live(1), r#"{"action":"user.login","actor_id":"somebody-in-events"}"#);
    }
    let mut browser = signed_in(&stage, 1);
    browser.get("/ops/losses").shows("No losses to accept.");
    let recorded = stage.wait(stage.store.head(live(1))).unwrap().recorded;
    store.lose_from(live(1), 6);
    let list = browser.get("/ops/losses");
    list.shows("Project of 1").shows("Organisation 1").shows("events 6 to 8 (3 events)");
    let path = format!("/ops/losses/{}/{}/live", tenant_id(1), project_id(1));
    list.shows(&format!("href=\"{path}\""));
    let page = browser.get(&path);
    page.shows("events 6 to 8 (3 events)")
        .shows(&recorded.hash.to_string())
        .shows("Type “Project of 1” to confirm");
    assert!(!page.has("somebody-in-events") && !list.has("somebody-in-events"));

    // Nothing happens without a reason and the name.
    let accept = |browser: &mut Browser<'_>, reason: &str, name: &str| {
        browser.post(&path, &[("reason", reason), ("name", name)])
    };
    let long = "é".repeat(1001);
    for (reason, name, error) in [
        ("", "Project of 1", "reason-hint"),
        (" \r\n ", "Project of 1", "reason-hint"),
        (&long, "Project of 1", "reason-hint"),
        ("the disk <b>", "project of 1", "name-error"),
        ("the disk <b>", "", "name-error"),
    ] {
        let answer = accept(&mut browser, reason, name);
        assert_eq!(answer.status, 422, "{reason} {name}");
        answer.shows(&format!("<span class=\"hint bad\" id=\"{error}\">"));
        if !reason.trim().is_empty() {
            answer.shows(&reason.replace('<', "&#60;").replace('>', "&#62;"));
        }
    }
    assert!(stage.records(1).is_empty() && stage.wait(stage.store.losses()).unwrap().len() == 1);

    let answer = accept(&mut browser, "the disk was\r\nreplaced", " Project of 1 ");
    assert_eq!(answer.location().as_deref(), Some("/ops/losses?accepted=6"));
    browser.follow(answer).shows("accepted as event 6").shows("No losses to accept.");
    // The order is in the tenant's system chain under the operator's id, the reason in the chain itself.
    let record = last_record(&stage, 1);
    assert!(is_by_operator(&record, 1), "{record}");
    assert_eq!(record["action"], "sealog.loss_acceptance_ordered");
    assert_eq!(record["resource"], format!("project/{}", project_id(1)));
    let metadata = &record["metadata"];
    assert_eq!(
        (&metadata["lost_from"], &metadata["lost_to"], &metadata["mode"]),
        (&6.into(), &8.into(), &"live".into())
    );
    assert_eq!(metadata["recorded_hash"], recorded.hash.to_string());
    assert!(stage.records(2).is_empty());
    let head = stage.wait(stage.store.head(live(1))).unwrap();
    let event = stage.wait(stage.store.get(live(1), head.durable.log_id)).unwrap().unwrap();
    let text = event.text.as_str();
    assert!(text.contains(ACTION) && text.contains(r#""reason":"the disk was\nreplaced""#), "{text}");
    stage.append(live(1), r#"{"action":"user.login"}"#);
    assert_eq!(stage.wait(stage.store.head(live(1))).unwrap().durable.chain_seq, 7);
    // It is accepted once: the page is gone.
    accept(&mut browser, "again", "Project of 1").is_problem(404, "request/not_found");
    assert_eq!(stage.records(1).len(), 1);
}

#[test]
fn the_loss_of_a_system_chain_is_accepted_and_its_records_follow() {
    let (stage, store) = Stage::on_reference();
    stage.tenant(1);
    operator(&stage, 1);
    let chain = stage.system_chain(1);
    for _ in 0..3 {
        stage.append(chain, r#"{"action":"sealog.key_created"}"#);
    }
    store.lose_from(chain, 3);
    let mut browser = signed_in(&stage, 1);
    browser.get("/ops/losses").shows("System log").shows("event 3");
    let path = format!("/ops/losses/{}/{}/live", tenant_id(1), chain.project_id);
    let answer = browser.post(&path, &[("reason", "r"), ("name", "System log")]);
    assert_eq!(answer.location().as_deref(), Some("/ops/losses?accepted=3"));
    // The record of the order waits until the chain takes it.
    assert_eq!(stage.records(1).len(), 4);
    assert!(is_by_operator(&last_record(&stage, 1), 1));
}

#[test]
fn a_loss_is_found_by_its_own_tenant_project_and_mode_alone() {
    let (stage, store) = Stage::on_reference();
    stage.tenant(1);
    operator(&stage, 1);
    let test = sealog_core::id::ChainId { mode: Mode::Test, ..live(1) };
    stage.append(test, r#"{"action":"user.login"}"#);
    store.lose_from(test, 1);
    // Of another tenant, mode or project there is no such loss.
    let mut browser = signed_in(&stage, 1);
    for path in [
        format!("/ops/losses/{}/{}/live", tenant_id(1), project_id(1)),
        format!("/ops/losses/{}/{}/test", tenant_id(2), project_id(1)),
        format!("/ops/losses/{}/{}/both", tenant_id(1), project_id(1)),
        format!("/ops/losses/{}/x/test", tenant_id(1)),
    ] {
        browser.get(&path).is_problem(404, "request/not_found");
        browser
            .post(&path, &[("reason", "r"), ("name", "Project of 1")])
            .is_problem(404, "request/not_found");
    }
    assert_eq!(stage.wait(stage.store.losses()).unwrap().len(), 1);
}

#[test]
fn storage_and_system_say_what_is_there() {
    let stage = Stage::new();
    operator(&stage, 1);
    let mut browser = signed_in(&stage, 1);
    browser
        .get("/ops/storage")
        .shows("Events are accepted.")
        .shows("3.0 GiB free of 10.0 GiB")
        .shows("8.0 MiB; below that, events are rejected")
        .shows("No problems found.");
    browser
        .get("/ops/system")
        .shows("A store of tests")
        .shows(&format!("schema {}", SCHEMA.sqlite.len()))
        .shows("No database is configured")
        .shows("0 e-mails");
}

#[test]
fn the_outbox_shows_what_became_of_mails_and_neither_their_text_nor_their_address() {
    let stage = Stage::new();
    stage.tenant(1);
    operator(&stage, 1);
    for n in 0..51 {
        let new = NewNotice {
            key: format!("key {n}"),
            tenant_id: Some(tenant_id(1)),
            person_id: None,
            to: "Some.Body@Example.org".into(),
            template: "quota".into(),
            parameters: r#"{"secret":"parameters"}"#.into(),
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.enqueue_notice(new)).unwrap();
    }
    let newest = stage.wait(stage.control.outbox_rows(None, None, 1)).unwrap()[0].id;
    let cause = "550 5.1.1 <some.body@example.org> unknown".to_owned();
    let failed = NoticeOutcome::Failed { retry_at_ms: stage.now_ms() + 3_600_000, cause };
    stage.wait(stage.control.notice_attempted(newest, failed)).unwrap();
    let mut browser = signed_in(&stage, 1);
    let page = browser.get("/ops/outbox");
    assert_eq!(page.text().matches("<th scope=\"row\">").count(), 50);
    page.shows("…@Example.org").shows("550 5.1.1 &#60;…@Example.org&#62; unknown").shows("Organisation 1");
    assert!(!page.text().to_lowercase().contains("some.body") && !page.has("secret"));
    let next = page.text().split_once("rel=\"next\" href=\"").unwrap().1.split('"').next().unwrap();
    assert_eq!(browser.get(next).text().matches("<th scope=\"row\">").count(), 1);

    let post = |browser: &mut Browser<'_>, what: &str, id: &str| {
        browser.post(&format!("/ops/outbox/{what}"), &[("mail", id)])
    };
    let id = newest.to_string();
    let state = || stage.wait(stage.control.outbox_row(newest)).unwrap().unwrap();
    let answer = post(&mut browser, "give-up", &id);
    browser.follow(answer).shows("E-mail given up.");
    assert_eq!(state().state(), NoticeState::GivenUp);
    let record = last_record(&stage, 1);
    assert!(is_by_operator(&record, 1), "{record}");
    assert_eq!(
        (&record["action"], &record["metadata"]["template"]),
        (&"sealog.mail_given_up".into(), &"quota".into())
    );
    let answer = post(&mut browser, "give-up", &id);
    browser.follow(answer).shows("already sent or given up");
    assert_eq!(stage.records(1).len(), 1);
    browser.get("/ops/outbox?state=given_up").shows("Given up").shows("Retry now");
    let answer = post(&mut browser, "retry", &id);
    browser.follow(answer).shows("E-mail queued.");
    assert_eq!((state().state(), state().due_at_ms), (NoticeState::Waiting, stage.now_ms()));
    assert_eq!(last_record(&stage, 1)["action"], "sealog.mail_retried");
    stage
        .wait(stage.control.notice_attempted(newest, NoticeOutcome::Sent { now_ms: stage.now_ms() }))
        .unwrap();
    browser.get("/ops/outbox?state=sent").shows("Sent");
    let answer = post(&mut browser, "retry", &id);
    browser.follow(answer).shows("already sent or given up");
    for wrong in ["x", "", &(newest + 1).to_string()] {
        post(&mut browser, "retry", wrong).is_problem(404, "request/not_found");
    }
}

fn closes(stage: &Stage) {
    stage.tenant(1);
    stage.tenant(2);
    operator(stage, 1);
    let mut browser = signed_in(stage, 1);
    let (page, close) = (tenant_path(1), format!("{}/close", tenant_path(1)));
    browser.get(&page).shows("Close tenant").shows("You cannot undo it.");
    let before = stage.wait(stage.control.tenant(tenant_id(1))).unwrap().unwrap();
    // What is wrong is said, what was typed stays, and nothing is changed.
    for (name, reason, said) in [
        ("Organisation 2", "soon\"><b>", "Enter the name of this tenant."),
        ("", "r", "Enter the name of this tenant."),
        ("Organisation 1", " ", "Enter a reason"),
    ] {
        let wrong = browser.post(&close, &[("name", name), ("reason", reason)]);
        assert_eq!(wrong.status, 422);
        wrong.shows(said);
        assert!(!wrong.has("soon\"><b>") && !wrong.has("name=\"open_cases\""), "{}", wrong.text());
    }
    assert_eq!(stage.wait(stage.control.closed_at_ms(tenant_id(1))).unwrap(), None);
    let missing = close.replace(&tenant_id(1).to_string(), &tenant_id(9).to_string());
    browser
        .post(&missing, &[("name", "Organisation 1"), ("reason", "r")])
        .is_problem(404, "request/not_found");

    // Fields that are not on the form change nothing.
    let form = [("name", "Organisation 1"), ("reason", "contract ended"), ("plan", "entry"), ("rate", "1")];
    let answer = browser.post(&close, &form);
    assert_eq!(answer.location().as_deref(), Some(&*format!("{page}?done=closed")));
    browser.follow(answer).shows("Closed, and recorded").shows("Closed on ");
    let after = stage.wait(stage.control.tenant(tenant_id(1))).unwrap().unwrap();
    assert_eq!(after, before);
    let records: Vec<Value> =
        stage.records(1).iter().map(|record| serde_json::from_str(record).unwrap()).collect();
    let closed = records.iter().find(|record| record["action"] == "sealog.tenant_closed").expect("a record");
    assert!(is_by_operator(closed, 1), "{closed}");
    assert_eq!(
        (&closed["metadata"]["name"], &closed["metadata"]["reason"]),
        (&"Organisation 1".into(), &"contract ended".into())
    );
    assert!(stage.records(2).is_empty(), "nobody else is told");
    assert_eq!(stage.wait(stage.control.closed_at_ms(tenant_id(2))).unwrap(), None);
}

#[test]
fn a_tenant_is_closed_by_its_name_and_the_record_names_the_operator() {
    closes(&Stage::new());
}

#[test]
fn a_tenant_is_closed_on_postgresql() {
    closes(&Stage::on_postgres());
}

#[test]
fn a_tenant_with_open_cases_is_asked_about_them_first() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    operator(&stage, 1);
    open_case(&mut stage.signed_in(1));
    let mut browser = signed_in(&stage, 1);
    let close = format!("{}/close", tenant_path(1));
    let form = [("name", "Organisation 1"), ("reason", "contract ended")];
    let asked = browser.post(&close, &form);
    assert_eq!(asked.status, 422);
    asked.shows("Open cases must be closed first: #1.").shows("name=\"open_cases\"");
    assert_eq!(stage.wait(stage.control.closed_at_ms(tenant_id(1))).unwrap(), None);
    let form = [form[0], form[1], ("open_cases", "close")];
    assert_eq!(browser.post(&close, &form).status, 303);
    assert!(stage.wait(stage.control.closed_at_ms(tenant_id(1))).unwrap().is_some());
}
