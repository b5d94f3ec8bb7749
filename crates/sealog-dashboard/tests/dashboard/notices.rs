//! Notices: who gets which, once; what the dashboard shows of them; how they are turned off.

use std::sync::Arc;
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::Mode;
use sealog_core::time::DAY_MS;
use sealog_service::people::notices::Reminders;
use sealog_service::people::sign_in::Token;
use sealog_store::world::World;
use sealog_testing::doubtful::Doubt;
use serde_json::Value;

use crate::harness::*;

/// An organisation with an owner, an admin, a developer and an auditor.
fn stage() -> Stage {
    furnished(Stage::new())
}

fn furnished(stage: Stage) -> Stage {
    stage.tenant(1);
    for (n, role) in [(1, Role::Owner), (2, Role::Admin), (3, Role::Developer), (4, Role::Auditor)] {
        stage.member(n, 1, role);
    }
    stage
}

fn reminders(stage: &Stage) -> Reminders {
    let world: Arc<dyn World> = Arc::clone(&stage.clock) as _;
    Reminders::new(&Arc::clone(&stage.control), world, Duration::from_secs(600))
}

/// Looks once for what is due, as a node that has just been started.
fn pass(stage: &Stage) {
    stage.wait(reminders(stage).pass()).unwrap();
}

/// What is in the outbox: template and recipient's number, in their order.
fn queued(stage: &Stage) -> Vec<(String, u8)> {
    let notices = stage.wait(stage.control.export()).unwrap().notices;
    let number = |notice: &KeptNotice| {
        (1..50).find(|n| notice.person_id == Some(person_id(*n))).unwrap_or_else(|| panic!("{notice:?}"))
    };
    let mut all: Vec<_> = notices.iter().map(|notice| (notice.template.clone(), number(notice))).collect();
    all.sort_unstable();
    all
}

fn count(stage: &Stage, template: &str, n: u8) -> usize {
    queued(stage).iter().filter(|(known, to)| known == template && *to == n).count()
}

fn key(stage: &Stage, n: u8, ends_in_ms: u64) -> KeyId {
    let new = NewKey {
        id: KeyId(sealog_core::id::Uuid::from_random([n; 16])),
        project_id: project_id(1),
        name: format!("Key <{n}>"),
        mode: Mode::Live,
        digest: sealog_core::id::Hash([n; 32]),
        prefix: "at_live_abcd".into(),
        expires_at_ms: Some(stage.now_ms() + ends_in_ms),
        created_at_ms: stage.now_ms(),
        created_by: None,
    };
    stage.wait(stage.control.create_key(new, vec![])).unwrap().unwrap().id
}

#[test]
fn a_key_that_expires_is_told_of_at_14_7_and_1_days_and_when_it_has_once_to_owners_and_admins() {
    for stage in [stage(), furnished(Stage::on_postgres())] {
        key(&stage, 1, 30 * DAY_MS);
        for (days, told) in [(15, 0), (1, 1), (6, 1), (1, 2), (5, 2), (1, 3), (0, 3)] {
            stage.clock.advance(days * DAY_MS);
            // Any number of nodes, any number of times.
            for _ in 0..2 {
                pass(&stage);
            }
            for n in [1, 2] {
                assert_eq!(count(&stage, "key_expiring", n), told);
            }
            assert_eq!(count(&stage, "key_expired", 1), 0);
        }
        stage.clock.advance(DAY_MS);
        pass(&stage);
        stage.clock.advance(DAY_MS);
        pass(&stage);
        assert_eq!((count(&stage, "key_expired", 1), count(&stage, "key_expired", 2)), (1, 1));
        assert_eq!(queued(&stage).len(), 8, "nobody else is told");
    }
}

#[test]
fn a_server_that_was_off_sends_the_reminder_of_now_and_none_of_long_ago() {
    let stage = stage();
    key(&stage, 1, 30 * DAY_MS);
    stage.clock.advance(28 * DAY_MS);
    pass(&stage);
    assert_eq!(queued(&stage), [("key_expiring".to_owned(), 1), ("key_expiring".to_owned(), 2)]);
    let notice = &stage.wait(stage.control.due_notices(u64::MAX, 1)).unwrap()[0];
    let parameters: Value = serde_json::from_str(&notice.parameters).unwrap();
    assert_eq!(parameters["days"], 7);
    key(&stage, 2, DAY_MS);
    stage.clock.advance(DAY_MS + 7 * DAY_MS + 1);
    pass(&stage);
    assert_eq!(
        queued(&stage).iter().filter(|(template, _)| template == "key_expired").count(),
        2,
        "the first key"
    );
}

#[test]
fn a_revoked_key_is_nobodys_concern() {
    let stage = stage();
    let revoked = key(&stage, 1, 30 * DAY_MS);
    stage.wait(stage.control.revoke_key(revoked, stage.now_ms(), Records::none())).unwrap();
    stage.clock.advance(30 * DAY_MS);
    pass(&stage);
    assert_eq!(queued(&stage), []);
}

#[test]
fn trials_are_told_of_at_7_and_1_days_and_when_they_have_ended_unless_there_is_billing() {
    let stage = stage();
    let trial = |ends_at_ms: u64, billing: bool| TenantChange {
        trial_ends_at_ms: Some(Some(ends_at_ms)),
        billing_active: Some(billing),
        ..TenantChange::default()
    };
    let end_ms = stage.now_ms() + 10 * DAY_MS;
    let change =
        |change| stage.wait(stage.control.update_tenant(tenant_id(1), change, Records::none())).unwrap();
    change(trial(end_ms, false));
    for (days, ending, ended) in [(0, 0, 0), (3, 1, 0), (5, 1, 0), (1, 2, 0), (1, 2, 1), (2, 2, 1)] {
        stage.clock.advance(days * DAY_MS);
        pass(&stage);
        assert_eq!((count(&stage, "trial_ending", 1), count(&stage, "trial_ended", 2)), (ending, ended));
    }
    change(trial(stage.now_ms() + DAY_MS, true));
    pass(&stage);
    assert_eq!(count(&stage, "trial_ending", 1), 2);
}

#[test]
fn an_auditors_end_is_told_to_the_auditor_and_to_owners_and_admins_and_to_no_other_auditor() {
    let stage = stage();
    let grants = Grants::default();
    stage.member_with(5, 1, Role::Auditor, grants, Some(stage.now_ms() + 20 * DAY_MS));
    for (days, told) in [(0, 0), (13, 1), (6, 2), (1, 2)] {
        stage.clock.advance(days * DAY_MS);
        pass(&stage);
        for n in [1, 2, 5] {
            assert_eq!(count(&stage, "auditor_ending", n), told, "{n}");
        }
    }
    assert_eq!(queued(&stage).len(), 6);
}

/// What the system chain has of choices of notices.
fn choices_sealed(stage: &Stage) -> Vec<String> {
    stage.records(1).into_iter().filter(|record| record.contains("sealog.notices_chosen")).collect()
}

/// Breaks a chain of the first organisation, and verifies it.
fn broken(stage: &Stage) {
    for _ in 0..3 {
        stage.append(live(1), r#"{"action":"user.login","actor_id":"a"}"#);
    }
    stage.doubtful.doubt(2, Doubt::Damaged);
    stage.signed_in(1).post(&format!("{}/start", verify_path(1)), &[("range", "all")]);
    stage.work();
}

#[test]
fn a_chain_that_is_found_broken_is_told_to_owners_and_admins_whatever_they_have_chosen() {
    let stage = stage();
    stage
        .wait(stage.control.set_muted_notices(
            tenant_id(1),
            person_id(1),
            vec!["verification_failed".into()],
            vec![],
        ))
        .unwrap();
    broken(&stage);
    for _ in 0..2 {
        pass(&stage);
    }
    let told = [("verification_failed".to_owned(), 1), ("verification_failed".to_owned(), 2)];
    assert_eq!(queued(&stage), told);
    let overview = format!("/app/p/{}/live", project_id(1));
    // Also where the mail server has refused it for good, or there is none.
    let due = stage.wait(stage.control.due_notices(u64::MAX, 9)).unwrap();
    let given_up = NoticeOutcome::GivenUp { now_ms: stage.now_ms(), cause: "550 <no> such box".into() };
    stage.wait(stage.control.notice_attempted(due[0].id, given_up)).unwrap();
    let (refused, other) = if due[0].person_id == Some(person_id(1)) { (1, 2) } else { (2, 1) };
    for path in [overview.as_str(), "/app/account"] {
        let page = stage.signed_in(refused).get(path);
        page.shows("the chain of Project of 1 (live) is broken at #2")
            .shows("Not e-mailed: 550 &#60;no&#62; such box");
        page.shows(&format!("href=\"{}/", verify_path(1)));
        stage.signed_in(other).get(path).shows("is broken at #2").shows("E-mail queued");
        assert!(!stage.signed_in(3).get(path).has("is broken at #2"), "a developer is not told");
    }
    let settings = stage.signed_in(1).get(&format!("/app/o/{}/settings", tenant_id(1)));
    settings.shows("550 &#60;no&#62; such box").shows(&email(refused));
}

#[test]
fn a_sound_chain_gives_no_notice() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    stage.signed_in(1).post(&format!("{}/start", verify_path(1)), &[("range", "all")]);
    stage.work();
    pass(&stage);
    assert_eq!(queued(&stage), []);
}

#[test]
fn an_export_is_told_to_whoever_has_made_it() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let create = |n| stage.signed_in(n).post(&format!("{}/create", exports_path(1)), &[("format", "csv")]);
    assert_eq!(create(2).status, 303);
    assert_eq!(queued(&stage), [("export_ready".to_owned(), 2)]);
    stage.signed_in(2).get("/app/account").shows("an export of Project of 1 is ready");
}

#[test]
fn what_somebody_does_not_want_is_not_queued_and_each_role_chooses_among_its_own() {
    let stage = stage();
    let account = |n| stage.signed_in(n).get("/app/account");
    account(1).shows("value=\"key_expiring\" checked").shows("value=\"auditor_ending\" checked");
    assert!(!account(1).has("value=\"verification_failed\""), "it cannot be turned off");
    account(3).shows("Your roles have no optional notifications.");
    let auditor = account(4);
    assert!(auditor.has("value=\"export_ready\"") && !auditor.has("value=\"key_expiring\""));
    let choose = |n, wanted: &[&str]| {
        let id = tenant_id(1).to_string();
        let mut fields = vec![("organisation", id.as_str())];
        fields.extend(wanted.iter().map(|name| ("notice", *name)));
        stage.signed_in(n).post("/app/account/notifications", &fields)
    };
    let others = ["key_expired", "trial_ending", "trial_ended", "auditor_ending", "export_ready"];
    assert_eq!(choose(1, &others).status, 303);
    let page = account(1);
    page.shows("value=\"key_expiring\">").shows("value=\"key_expired\" checked");
    // A change is in the system chain, and the same choice once more is none.
    assert_eq!(choose(1, &others).status, 303);
    let chosen = choices_sealed(&stage);
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    assert!(chosen[0].contains("turned_off") && chosen[0].contains("key_expiring"), "{chosen:?}");
    assert!(!chosen[0].contains("key_expired"), "{chosen:?}");
    assert!(chosen[0].contains(&format!("member/{}", person_id(1).0)), "{chosen:?}");
    key(&stage, 1, 20 * DAY_MS);
    stage.clock.advance(6 * DAY_MS);
    pass(&stage);
    assert_eq!(queued(&stage), [("key_expiring".to_owned(), 2)]);
    // Of an organisation that one is no member of there is nothing to choose.
    stage.tenant(2);
    let id = tenant_id(2).to_string();
    let foreign = stage.signed_in(1).post("/app/account/notifications", &[("organisation", &id)]);
    foreign.is_problem(404, "request/not_found");
}

#[test]
fn the_link_of_a_mail_turns_its_notice_off_without_signing_in() {
    let stage = stage();
    key(&stage, 1, 20 * DAY_MS);
    stage.clock.advance(6 * DAY_MS);
    pass(&stage);
    let token = Token::new(&*stage.clock);
    let due = stage.wait(stage.control.due_notices(u64::MAX, 9)).unwrap();
    let to_owner = due.iter().find(|notice| notice.person_id == Some(person_id(1))).unwrap();
    let now = stage.now_ms();
    assert!(stage.wait(stage.control.claim_notice(to_owner.id, now, now + 1, Some(token.digest()))).unwrap());
    let path = format!("/app/unsubscribe?token={}", token.0.0);
    let muted = || stage.wait(stage.control.muted_notices(tenant_id(1), person_id(1))).unwrap();
    let mut mailer = stage.browser();
    mailer.site = None;
    let page = mailer.get(&path);
    page.shows("A key is about to expire (14 days, 7 days and 1 day before)")
        .shows("Organisation 1")
        .shows(&token.0.0);
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(muted(), Vec::<String>::new(), "looking changes nothing");
    // As a mail program does it, in either form that RFC 8058 allows, any number of times.
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let done = mailer.send("POST", &path, &[("content-type", kind)], "List-Unsubscribe=One-Click");
        assert_eq!(done.status, 200, "{}", done.text());
        done.shows("Turned off.");
        assert_eq!(muted(), ["key_expiring"]);
    }
    let chosen = choices_sealed(&stage);
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    assert!(chosen[0].contains(r#""turned_off":["key_expiring"]"#), "{chosen:?}");
    assert!(chosen[0].contains(r#""by":"link""#), "{chosen:?}");
    // And as the page does.
    stage.wait(stage.control.set_muted_notices(tenant_id(1), person_id(1), vec![], vec![])).unwrap();
    assert_eq!(mailer.post("/app/unsubscribe", &[("token", &token.0.0)]).status, 200);
    assert_eq!(muted(), ["key_expiring"]);
    let other = Token::new(&*stage.clock);
    for wrong in ["", "x", other.0.0.as_str()] {
        mailer.get(&format!("/app/unsubscribe?token={wrong}")).shows("This link no longer works.");
        assert_eq!(mailer.post("/app/unsubscribe", &[("token", wrong)]).status, 422);
    }
    let mut elsewhere = stage.browser();
    elsewhere.site = Some("cross-site");
    elsewhere.post(&path, &[]).is_problem(403, "request/cross_site");
}

#[test]
fn a_new_browser_is_told_of_and_the_very_first_and_known_ones_are_not() {
    let stage = stage();
    let mut first = stage.browser();
    let told = || count(&stage, "new_device", 1);
    assert_eq!(first.sign_in(1, PASSWORD).status, 303);
    let cookie = |browser: &Browser<'_>| {
        browser.cookies.iter().find(|cookie| cookie.starts_with("sealog_device=")).cloned().unwrap()
    };
    let kept = cookie(&first);
    assert_eq!(told(), 0);
    first.post("/app/sign-out", &[]);
    assert_eq!(first.sign_in(1, PASSWORD).status, 303);
    assert_eq!((told(), cookie(&first) == kept), (0, true));
    let mut second = stage.browser();
    second.address = "198.51.100.7".parse().unwrap();
    assert_eq!(second.sign_in(1, "wrong").status, 422);
    assert_eq!(told(), 0);
    assert_eq!(second.sign_in(1, PASSWORD).status, 303);
    assert_eq!(told(), 1);
    let notice = &stage.wait(stage.control.notices_for(person_id(1), 0, 1)).unwrap()[0];
    assert!(notice.parameters.as_ref().unwrap().contains("198.51.100.7"));
    stage.signed_in(1).get("/app/account").shows("A new browser signed in to your account");
    // The same browser is somebody else's first.
    second.post("/app/sign-out", &[]);
    assert_eq!(second.sign_in(2, PASSWORD).status, 303);
    assert_eq!(count(&stage, "new_device", 2), 0);
    // What is kept tells neither the cookie nor that the two are one.
    let devices = stage.wait(stage.control.export()).unwrap().devices;
    assert_eq!(devices.len(), 3);
    assert!(devices.iter().all(|device| !cookie(&second).contains(&device.digest.to_string())));
    let mut digests: Vec<_> = devices.iter().map(|device| device.digest).collect();
    digests.sort_unstable_by_key(|digest| digest.0);
    digests.dedup();
    assert_eq!(digests.len(), 3);
}

#[test]
fn with_an_authenticator_the_browser_counts_once_the_code_was_right() {
    let stage = stage();
    stage.with_authenticator(1);
    let code =
        |stage: &Stage| sealog_service::people::sign_in::totp::code_at(&[1; 20], stage.now_ms() / 30_000);
    for told in [0, 1] {
        stage.clock.advance(60_000);
        let mut browser = stage.browser();
        assert_eq!(browser.sign_in(1, PASSWORD).status, 303);
        assert!(!browser.cookies.iter().any(|cookie| cookie.starts_with("sealog_device=")));
        assert_eq!(browser.post("/app/sign-in/code", &[("code", &code(&stage))]).status, 303);
        assert!(browser.cookies.iter().any(|cookie| cookie.starts_with("sealog_device=")));
        assert_eq!(count(&stage, "new_device", 1), told);
    }
}

#[test]
fn a_pass_looks_at_no_more_than_a_thousand_and_the_next_one_goes_on() {
    let stage = stage();
    stage.wait(async {
        for n in 0..1050_u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&n.to_be_bytes());
            let new = NewKey {
                id: KeyId(sealog_core::id::Uuid::from_random(id)),
                project_id: project_id(1),
                name: "k".into(),
                mode: Mode::Test,
                digest: sealog_core::id::Hash(digest),
                prefix: "at_test_abcd".into(),
                expires_at_ms: Some(stage.now_ms() + 20 * DAY_MS + u64::from(n % 7)),
                created_at_ms: stage.now_ms(),
                created_by: None,
            };
            stage.control.create_key(new, vec![]).await.unwrap().unwrap();
        }
    });
    stage.clock.advance(10 * DAY_MS);
    let node = reminders(&stage);
    for told in [1000, 1050, 1050] {
        stage.wait(node.pass()).unwrap();
        assert_eq!(count(&stage, "key_expiring", 1), told);
    }
}

#[test]
fn a_notice_goes_to_fifty_people_of_an_organisation_and_no_more() {
    let stage = Stage::new();
    stage.tenant(1);
    for n in 1..=52 {
        let person = NewPerson {
            id: person_id(n),
            email: email(n),
            password_hash: None,
            verified: true,
            created_at_ms: stage.now_ms(),
        };
        let new = NewMember {
            tenant_id: tenant_id(1),
            person,
            role: Role::Admin,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.add_member(new, Records::none())).unwrap().unwrap();
    }
    key(&stage, 1, 20 * DAY_MS);
    stage.clock.advance(10 * DAY_MS);
    pass(&stage);
    assert_eq!(stage.wait(stage.control.pending_notices()).unwrap(), 50);
}

#[test]
fn nobody_is_told_in_another_organisation() {
    let stage = stage();
    stage.tenant(2);
    stage.member(8, 2, Role::Owner);
    key(&stage, 1, 20 * DAY_MS);
    stage.clock.advance(19 * DAY_MS + 1);
    pass(&stage);
    assert_eq!(count(&stage, "key_expiring", 8), 0);
    assert!(!stage.signed_in(8).get("/app/account").has("Key &#60;1"));
}
