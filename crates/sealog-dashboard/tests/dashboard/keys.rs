//! API keys: created, shown once, revoked.

use sealog_control::Records;
use sealog_control::{Grants, KeyAccess, KeyId, KeyUse, NewKey, NewProject, Role, TenantChange};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{Hash, Mode, ProjectId, Uuid};
use sealog_core::key;
use sealog_store::world::{SystemWorld, World};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Developer);
    stage
}

fn create(stage: &Stage, n: u8, fields: &[(&str, &str)]) -> Response {
    let path = format!("/app/o/{}/keys/create", tenant_id(1));
    let project = project_id(1).to_string();
    let form = new_form();
    let mut all = vec![
        ("name", "ci"),
        ("project", project.as_str()),
        ("mode", "test"),
        ("expires", ""),
        ("form", form.as_str()),
    ];
    all.retain(|(name, _)| !fields.iter().any(|(given, _)| given == name));
    all.extend(fields);
    stage.signed_in(n).post(&path, &all)
}

/// As each page that is shown has another.
fn new_form() -> String {
    let mut bytes = [0; 16];
    SystemWorld.fill_random(&mut bytes);
    Uuid::from_random(bytes).to_string()
}

/// Of the form on a page.
fn form_in(page: &Response) -> String {
    page.text().split("name=\"form\" value=\"").nth(1).unwrap()[..36].to_owned()
}

fn raw(page: &Response) -> Option<String> {
    let text = page.text().split("aria-label=\"API key\" data-copy>").nth(1)?;
    Some(text.split('<').next()?.to_owned())
}

#[test]
fn a_key_is_shown_once_and_works_at_once_until_it_is_revoked() {
    let stage = stage();
    let page = create(&stage, 1, &[("mode", "live"), ("name", "billing <b>")]);
    let text = raw(&page).expect("the key");
    assert!(text.starts_with("at_live_"), "{text}");
    page.shows("Shown once").shows("billing &#60;b&#62;");
    let access = || stage.wait(stage.control.access(key::digest(&text))).unwrap().unwrap().key;
    assert_eq!((access().name.as_str(), access().revoked_at_ms), ("billing <b>", None));
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let list = stage.signed_in(1).get(&keys);
    assert!(!list.has(&text) && list.has(&text[..12]));
    let id = access().id.0.to_string();
    let revoke =
        |n, name: &str| stage.signed_in(n).post(&format!("{keys}/revoke"), &[("key", &id), ("name", name)]);
    revoke(1, "billing").shows("To revoke the key, type its name");
    revoke(2, "billing <b>").is_problem(403, "auth/not_allowed");
    assert_eq!(access().revoked_at_ms, None);
    assert_eq!(revoke(1, "billing <b>").status, 303);
    assert!(access().revoked_at_ms.is_some());
    stage.signed_in(1).get(&keys).shows("Revoked");
    let records = stage.records(1);
    for action in ["sealog.key_created", "sealog.key_revoked"] {
        let person = person_id(1).0.to_string();
        assert!(
            records.iter().any(|record| record.contains(action) && record.contains(&person)),
            "{records:?}"
        );
    }
    assert!(!records.iter().any(|record| record.contains(&text)));
}

#[test]
fn developers_have_test_keys_and_no_live_ones() {
    let stage = stage();
    create(&stage, 2, &[("mode", "live")]).is_problem(403, "auth/not_allowed");
    let page = create(&stage, 2, &[]);
    assert!(raw(&page).unwrap().starts_with("at_test_"));
    assert!(!page.has("value=\"live\""));
}

#[test]
fn what_is_wrong_with_a_key_stands_beside_its_field_and_a_foreign_project_is_not_found() {
    let stage = stage();
    let page = create(&stage, 1, &[("name", " "), ("expires", "2030-01-02")]);
    assert_eq!(page.status, 422);
    page.shows("id=\"name-error\">It must not be empty.").shows("value=\"2030-01-02\"");
    create(&stage, 1, &[("expires", "soon")]).shows("Use the format YYYY-MM-DD.");
    create(&stage, 1, &[("mode", "both")]).shows("Choose a mode.");
    create(&stage, 1, &[("project", &project_id(2).to_string())]).is_problem(404, "request/not_found");
    let keys = format!("/app/o/{}/keys/revoke", tenant_id(1));
    let foreign = [("key", "00000000-0000-4000-8000-000000000000"), ("name", "x")];
    stage.signed_in(1).post(&keys, &foreign).is_problem(404, "request/not_found");
}

fn key_id(n: u16) -> KeyId {
    let [high, low] = n.to_be_bytes();
    KeyId(Uuid::from_random([9, 9, high, low, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]))
}

fn add_key(stage: &Stage, n: u16, project_id: ProjectId) {
    let [high, low] = n.to_be_bytes();
    let mut digest = [7; 32];
    (digest[0], digest[1]) = (high, low);
    let new = NewKey {
        id: key_id(n),
        project_id,
        name: format!("key-{n:03}"),
        mode: Mode::Test,
        digest: Hash(digest),
        prefix: "at_test_abcd".into(),
        expires_at_ms: None,
        created_at_ms: stage.now_ms(),
        created_by: None,
    };
    stage.wait(stage.control.create_key(new, vec![])).unwrap().unwrap();
}

#[test]
fn every_key_is_on_a_page_newest_first_and_can_be_revoked_from_it() {
    let stage = stage();
    for n in 0..210 {
        add_key(&stage, n, project_id(if n % 2 == 0 { 1 } else { 101 }));
    }
    let mut browser = stage.signed_in(1);
    let mut path = Some(format!("/app/o/{}/keys", tenant_id(1)));
    let mut seen = Vec::new();
    while let Some(page) = path.take().map(|path| browser.get(&path)) {
        let names = page.text().split("<b>key-").skip(1).map(|rest| rest[..3].parse::<u16>().unwrap());
        let names: Vec<u16> = names.collect();
        assert!(names.len() <= 100, "a page is bounded");
        seen.extend(names);
        path = page
            .text()
            .split("rel=\"next\" href=\"")
            .nth(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned());
    }
    assert_eq!(seen, (0..210).rev().collect::<Vec<_>>());
    for n in [0, 209] {
        let (id, name) = (key_id(n).0.to_string(), format!("key-{n:03}"));
        let path = format!("/app/o/{}/keys/revoke", tenant_id(1));
        assert_eq!(browser.post(&path, &[("key", &id), ("name", &name)]).status, 303);
        let (_, key) = stage.wait(stage.control.key(key_id(n))).unwrap().unwrap();
        assert!(key.revoked_at_ms.is_some(), "{n}");
    }
}

#[test]
fn a_key_of_another_organisation_or_of_a_project_that_is_not_granted_is_neither_seen_nor_revoked() {
    let stage = stage();
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(3, 1, Role::Owner, grants, None);
    for (n, project) in [(1, 1), (2, 101), (3, 2)] {
        add_key(&stage, n, project_id(project));
    }
    let mut browser = stage.signed_in(3);
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let list = browser.get(&keys);
    assert!(list.has("key-001") && !list.has("key-002") && !list.has("key-003"));
    for n in [2, 3] {
        let (id, name) = (key_id(n).0.to_string(), format!("key-{n:03}"));
        let answer = browser.post(&format!("{keys}/revoke"), &[("key", &id), ("name", &name)]);
        answer.is_problem(404, "request/not_found");
        let (_, key) = stage.wait(stage.control.key(key_id(n))).unwrap().unwrap();
        assert_eq!(key.revoked_at_ms, None);
    }
}

#[test]
fn a_key_is_made_for_any_project_also_behind_the_two_hundredth() {
    let stage = stage();
    let project = |n: u16| {
        let [high, low] = n.to_be_bytes();
        ProjectId(Uuid::from_random([7, 7, high, low, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]))
    };
    for n in 0..205 {
        let new = NewProject {
            id: project(n),
            tenant_id: tenant_id(1),
            name: format!("Many {n}"),
            frameworks: FrameworkSet::NONE,
            created_at_ms: stage.now_ms(),
        };
        stage.wait(stage.control.create_project(new, vec![])).unwrap().unwrap();
    }
    let last = project(204).to_string();
    // The page of projects leads to it.
    let mut browser = stage.signed_in(1);
    let mut path = Some(format!("/app/o/{}/projects", tenant_id(1)));
    let mut link = None;
    while let Some(page) = path.take().map(|path| browser.get(&path)) {
        assert!(page.text().matches("<tr><th scope=\"row\">").count() <= 50, "a page is bounded");
        let hrefs =
            || page.text().split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        link = link.or(hrefs().find(|href| href.contains("/keys?project=") && href.contains(&last)));
        path = hrefs().find(|href| href.contains("?after="));
    }
    let page = browser.get(&link.expect("a link to make a key").replace("&amp;", "&"));
    page.shows(&format!("<option value=\"{last}\" selected>Many 204</option>"));
    let made = raw(&create(&stage, 1, &[("project", &last)])).unwrap();
    let access = stage.wait(stage.control.access(key::digest(&made))).unwrap().unwrap();
    assert_eq!(access.project.id, project(204));
    // An auditor to whom it is granted sees it in the rail.
    let grants = Grants { projects: Some(vec![project(204)]), from_ms: None, until_ms: None };
    stage.member_with(3, 1, Role::Auditor, grants, None);
    stage.with_authenticator(3);
    stage.signed_in(3).get(&format!("/app/p/{last}/live/events")).shows(">Many 204</a>");
}

#[test]
fn a_key_is_rolled_with_an_overlap_that_is_chosen_and_the_new_one_is_shown_once() {
    let stage = stage();
    let hour_ms = 60 * 60 * 1000;
    let old = raw(&create(&stage, 1, &[("mode", "live"), ("name", "billing")])).unwrap();
    let access = |text: &str| stage.wait(stage.control.access(key::digest(text))).unwrap().unwrap().key;
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let id = access(&old).id.0.to_string();
    let roll = |n, id: &str, overlap: &str| {
        stage.signed_in(n).post(
            &format!("{keys}/roll"),
            &[("key", id), ("overlap", overlap), ("expires", ""), ("form", &new_form())],
        )
    };
    roll(2, &id, "24").is_problem(403, "auth/not_allowed");
    roll(1, "00000000-0000-4000-8000-000000000000", "24").is_problem(404, "request/not_found");
    let wrong = roll(1, &id, "5");
    assert_eq!(wrong.status, 422);
    wrong.shows("Choose how long the old key keeps working.");
    let page = roll(1, &id, "24");
    let new = raw(&page).expect("the new key");
    page.shows("Shown once");
    assert!(new.starts_with("at_live_") && !stage.signed_in(1).get(&keys).has(&new));
    assert_eq!(access(&old).expires_at_ms, Some(stage.now_ms() + 24 * hour_ms));
    assert_eq!((access(&new).name.as_str(), access(&new).expires_at_ms), ("billing", None));
    // Not at all: it is revoked at once. What does not work any more is not rolled.
    let id = access(&new).id.0.to_string();
    let newest = raw(&roll(1, &id, "0")).unwrap();
    assert!(access(&new).revoked_at_ms.is_some() && access(&newest).revoked_at_ms.is_none());
    roll(1, &id, "0").shows("This key no longer works");
    let records = stage.records(1);
    assert_eq!(records.iter().filter(|record| record.contains("sealog.key_rolled")).count(), 2);
    assert!(!records.iter().any(|record| record.contains(&new) || record.contains(&newest)));
}

#[test]
fn a_form_that_is_sent_again_makes_no_second_key() {
    let stage = stage();
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let count = || {
        let page = sealog_control::ListPage { after: None, limit: 100 };
        stage.wait(stage.control.keys(project_id(1), page)).unwrap().len()
    };
    let form = form_in(&stage.signed_in(1).get(&format!("{keys}?new=1")));
    let first = create(&stage, 1, &[("form", &form)]);
    let text = raw(&first).unwrap();
    let again = create(&stage, 1, &[("form", &form), ("name", "another")]);
    assert_eq!((again.status, raw(&again), count()), (422, None, 1));
    again.shows("This form has already created its key");
    // Not even after the key was revoked, when its name is free.
    let id = stage.wait(stage.control.access(key::digest(&text))).unwrap().unwrap().key.id.0.to_string();
    let sheet = stage.signed_in(1).get(&format!("{keys}?roll={id}"));
    let roll = form_in(&sheet);
    let fields = [("key", id.as_str()), ("overlap", "24"), ("expires", ""), ("form", roll.as_str())];
    assert!(raw(&stage.signed_in(1).post(&format!("{keys}/roll"), &fields)).is_some());
    let again = stage.signed_in(1).post(&format!("{keys}/roll"), &fields);
    assert_eq!((again.status, raw(&again), count()), (422, None, 2));
    again.shows("This form has already created its key");
    stage.signed_in(1).post(&format!("{keys}/revoke"), &[("key", &id), ("name", "ci")]);
    assert_eq!((create(&stage, 1, &[("form", &form)]).status, count()), (422, 2));
    // The form of one person is none of another's.
    assert!(raw(&create(&stage, 2, &[("form", &form), ("name", "mine")])).is_some());
    for form in ["", "x", "<b>"] {
        create(&stage, 1, &[("form", form)]).shows("The form was incomplete.");
    }
    assert_eq!(count(), 3);
}

#[test]
fn a_name_of_another_active_key_of_the_project_is_refused() {
    let stage = stage();
    assert_eq!(create(&stage, 1, &[]).status, 200);
    let taken = create(&stage, 1, &[("mode", "live")]);
    assert_eq!(taken.status, 422);
    taken.shows("id=\"name-error\">It belongs to another active key of this project.");
    assert_eq!(create(&stage, 1, &[("project", &project_id(101).to_string())]).status, 200);
}

#[test]
fn a_key_that_is_being_replaced_is_shown_as_the_old_one_and_is_not_rolled_again() {
    let stage = stage();
    let old = raw(&create(&stage, 1, &[("name", "billing <b>\u{202e}")])).unwrap();
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let id = stage.wait(stage.control.access(key::digest(&old))).unwrap().unwrap().key.id.0.to_string();
    let roll = || {
        let fields = [("key", id.as_str()), ("overlap", "24"), ("expires", ""), ("form", &new_form())];
        stage.signed_in(1).post(&format!("{keys}/roll"), &fields)
    };
    let page = roll();
    assert!(raw(&page).is_some());
    page.shows(&email(1)).shows("billing &#60;b&#62;");
    let until = stage.now_ms() + 24 * 60 * 60 * 1000;
    let iso = sealog_core::time::iso_ms(until);
    page.shows("(old, until ").shows(&iso[..4]);
    assert!(!page.has(&format!("?roll={id}")) && page.has(&format!("?revoke={id}")));
    let again = roll();
    assert_eq!((again.status, raw(&again)), (422, None));
    again.shows("already being replaced");
}

#[test]
fn the_sheet_of_a_key_has_the_whole_warning_and_belongs_to_those_who_may() {
    let stage = stage();
    let text = raw(&create(&stage, 1, &[("mode", "live"), ("name", "<i>live")])).unwrap();
    let id = stage.wait(stage.control.access(key::digest(&text))).unwrap().unwrap().key.id.0;
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let page = stage.signed_in(1).get(&format!("{keys}?revoke={id}"));
    page.shows("Revoking cannot be undone.").shows("auth/key_revoked").shows("Revoke “&#60;i&#62;live”");
    stage.signed_in(1).get(&format!("{keys}?roll={id}")).shows("Keep the old key working for");
    stage.signed_in(2).get(&format!("{keys}?revoke={id}")).is_problem(403, "auth/not_allowed");
    stage.member(3, 2, Role::Owner);
    let foreign = format!("/app/o/{}/keys?roll={id}", tenant_id(2));
    stage.signed_in(3).get(&foreign).is_problem(404, "request/not_found");
    stage.signed_in(1).get(&format!("{keys}?roll=%3Cb%3E")).is_problem(404, "request/not_found");
}

#[test]
fn a_page_says_when_a_key_was_last_used_before_it_is_revoked_and_keeps_what_is_over() {
    let stage = stage();
    let text = raw(&create(&stage, 1, &[("expires", "2026-12-31")])).unwrap();
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let id = stage.wait(stage.control.access(key::digest(&text))).unwrap().unwrap().key.id;
    let sheet = format!("{keys}?revoke={}", id.0);
    stage.signed_in(1).get(&sheet).shows("Last used: Never. 0 requests in the last 24 hours.");
    let used = KeyUse { key_id: id, used_at_ms: stage.now_ms(), requests: 1234 };
    stage.wait(stage.control.keys_used(vec![used])).unwrap();
    stage.signed_in(1).get(&sheet).shows("1,234 requests in the last 24 hours.");
    stage.signed_in(1).get(&keys).shows("class=\"num r\">1,234</td>");
    stage.clock.advance(10_000 * 86_400_000);
    let mut browser = stage.signed_in(1);
    let page = browser.get(&keys);
    page.shows("Expired");
    assert!(!page.has("?revoke="), "there is nothing to revoke");
}

#[test]
fn a_longest_lifetime_is_set_by_managers_on_plans_that_have_it_and_holds_for_new_keys() {
    let stage = stage();
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let settings = format!("/app/o/{}/settings", tenant_id(1));
    let set = |n, days: &str| stage.signed_in(n).post(&format!("{settings}/key-lifetime"), &[("days", days)]);
    set(2, "30").is_problem(403, "auth/not_allowed");
    let wrong = set(1, "soon");
    assert_eq!(wrong.status, 422);
    wrong.shows("It must be a whole number of days.").shows("value=\"soon\"");
    assert_eq!(set(1, "9999").status, 422);
    assert_eq!(set(1, "30").status, 303);
    let new = format!("{keys}?new=1");
    stage.signed_in(1).get(&new).shows("At most 30 days from now").shows(&settings);
    stage.signed_in(1).get(&settings).shows("name=\"days\"").shows("value=\"30\"");
    assert!(!stage.signed_in(2).get(&new).has(&settings));
    let late = create(&stage, 1, &[("expires", "2099-01-01")]);
    assert_eq!(late.status, 422);
    late.shows("must be at most 30 days from now");
    let made = raw(&create(&stage, 1, &[])).unwrap();
    let end = stage.wait(stage.control.access(key::digest(&made))).unwrap().unwrap().key.expires_at_ms;
    assert_eq!(end, Some(stage.now_ms() + 30 * 86_400_000));
    assert!(stage.records(1).iter().any(|record| record.contains("sealog.key_policy_changed")));
    let change = TenantChange { plan: Some("entry".into()), ..TenantChange::default() };
    stage.wait(stage.control.update_tenant(tenant_id(1), change, Records::none())).unwrap();
    let page = stage.signed_in(1).get(&settings);
    page.shows("Your plan does not include key expiry policies.")
        .shows("The limit of 30 days from an earlier plan");
    assert!(!page.has("name=\"days\""), "no control that does nothing");
    assert_eq!(set(1, "").status, 422);
}

#[test]
fn a_key_is_created_in_a_sheet_which_keeps_what_was_typed() {
    let stage = stage();
    stage.member(3, 1, Role::Auditor);
    stage.with_authenticator(3);
    let keys = format!("/app/o/{}/keys", tenant_id(1));
    let sheet = "<h2 id=\"sheet-title\">Create a key</h2>";
    let page = stage.signed_in(1).get(&keys);
    page.shows(&format!("href=\"{keys}?new=1\""));
    assert!(!page.has(sheet));
    stage.signed_in(1).get(&format!("{keys}?new=1")).shows(sheet);
    let wrong = create(&stage, 1, &[("name", "a <b>"), ("expires", "soon")]);
    assert_eq!(wrong.status, 422);
    wrong.shows(sheet).shows("value=\"a &#60;b&#62;\"").shows("Use the format YYYY-MM-DD.");
    // The page that shows the key has no form that would make another.
    assert!(!create(&stage, 1, &[]).has(sheet));
    // Who makes no keys has no form for them.
    let page = stage.signed_in(3).get(&format!("{keys}?new=1"));
    assert!(!page.has(sheet) && !page.has(&format!("href=\"{keys}?new=1")));
}

/// Issue 23.23.
#[test]
fn an_organisation_without_room_reads_why_nothing_is_added_and_can_still_revoke() {
    let stage = stage();
    assert!(raw(&create(&stage, 1, &[])).is_some());
    stage.control.limit_tenant_bytes(Some(1));
    let refused = create(&stage, 1, &[("name", "second")]);
    assert_eq!(refused.status, 403, "{}", refused.text());
    refused.shows("/docs/errors/tenant/disk_used_up\"").shows("Ask the operator of the server for more");
    let page = sealog_control::ListPage { after: None, limit: 9 };
    let key = stage.wait(stage.control.keys(project_id(1), page)).unwrap()[0].clone();
    let revoke = format!("/app/o/{}/keys/revoke", tenant_id(1));
    let id = key.id.0.to_string();
    assert_eq!(stage.signed_in(1).post(&revoke, &[("key", &id), ("name", &key.name)]).status, 303);
}
