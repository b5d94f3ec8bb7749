//! Keys, and what they give access to.

use sealog_control::*;
use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Mode, ProjectId, TenantId};

use super::common::*;
use sealog_testing::*;

pub fn access_finds_a_key_by_its_digest_with_project_tenant_and_actions(control: &Control) {
    let (tenant, project, key) = furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_project(new_project(2, 1, &[2, 5]), vec![])).unwrap();
    wait(control.create_project(new_project(3, 1, &[7]), vec![])).unwrap();
    wait(control.create_project(new_project(4, 2, &[9]), vec![])).unwrap();
    wait(control.create_key(new_key(2, 4), vec![])).unwrap();
    let disable = ProjectChange { frameworks: Some(FrameworkSet::NONE), ..ProjectChange::default() };
    wait(control.update_project(ProjectId(id(3)), disable, Records::none())).unwrap();
    let own = CustomAction { required_fields: vec!["amount".into()], ..custom("invoice.approved") };
    wait(control.create_action(tenant.id, own.clone(), vec![])).unwrap();
    wait(control.create_action(TenantId(id(2)), custom("not.ours"), vec![])).unwrap();
    let expected = Access {
        key,
        digest: digest(1),
        project,
        tenant,
        actions: vec![own],
        tenant_frameworks: set(&[0, 2, 5]),
    };
    assert_eq!(wait(control.access(digest(1))), Ok(Some(expected)));
    let other = wait(control.access(digest(2))).unwrap().unwrap();
    assert_eq!((other.tenant.id, other.project.id), (TenantId(id(2)), ProjectId(id(4))));
    assert_eq!((other.actions, other.tenant_frameworks), (vec![custom("not.ours")], set(&[9])));
    assert_eq!(wait(control.access(digest(3))), Ok(None));
}

pub fn access_shows_revoked_and_expired_keys(control: &Control) {
    let (_, project, key) = furnish(control);
    let access = wait(control.access(digest(1))).unwrap().unwrap();
    assert_eq!(access.key, key);
    assert_eq!(access.key.state().expires_at_ms, Some(MORNING_MS + 1000));
    let revoked = wait(control.revoke_key(key.id, MORNING_MS + 5, Records::none())).unwrap().unwrap();
    assert_eq!(revoked, ApiKey { revoked_at_ms: Some(MORNING_MS + 5), ..key });
    assert!(revoked.state().revoked);
    assert_eq!(wait(control.access(digest(1))).unwrap().unwrap().key, revoked);
    assert_eq!(wait(control.keys(project.id, first(10))), Ok(vec![revoked]));
}

pub fn revoking_twice_keeps_the_first_time(control: &Control) {
    let (_, _, key) = furnish(control);
    let first = wait(control.revoke_key(key.id, MORNING_MS + 5, Records::none())).unwrap();
    for now_ms in [MORNING_MS, MORNING_MS + 5, MORNING_MS + 6] {
        assert_eq!(wait(control.revoke_key(key.id, now_ms, Records::none())), Ok(first.clone()));
    }
}

pub fn a_keys_last_use_never_goes_back(control: &Control) {
    let (_, project, key) = furnish(control);
    wait(control.create_key(new_key(2, 1), vec![])).unwrap();
    let last_used = || {
        let keys = wait(control.keys(project.id, first(10))).unwrap();
        keys.iter().map(|key| key.last_used_at_ms).collect::<Vec<_>>()
    };
    assert_eq!(last_used(), [None, None]);
    wait(control.keys_used(vec![KeyUse::once(key.id, 50), KeyUse::once(KeyId(id(2)), 70)])).unwrap();
    assert_eq!(last_used(), [Some(50), Some(70)]);
    wait(control.keys_used(vec![KeyUse::once(key.id, 60), KeyUse::once(KeyId(id(2)), 69)])).unwrap();
    assert_eq!(last_used(), [Some(60), Some(70)]);
    wait(control.keys_used(vec![])).unwrap();
    assert_eq!(last_used(), [Some(60), Some(70)]);
}

pub fn requests_of_a_key_are_counted_for_a_day(control: &Control) {
    const HOUR_MS: u64 = 60 * 60 * 1000;
    let (_, _, key) = furnish(control);
    wait(control.create_key(new_key(2, 1), vec![])).unwrap();
    let used = |hour: u64, requests| {
        let used_at_ms = MORNING_MS + hour * HOUR_MS;
        wait(control.keys_used(vec![KeyUse { key_id: key.id, used_at_ms, requests }])).unwrap();
    };
    let counted = |hour: u64| {
        wait(control.key_requests(vec![key.id, KeyId(id(2)), KeyId(id(9))], MORNING_MS + hour * HOUR_MS))
    };
    assert_eq!(counted(0), Ok(vec![]));
    used(0, 3);
    used(0, 4);
    used(5, 10);
    assert_eq!(counted(5), Ok(vec![(key.id, 17)]));
    assert_eq!(counted(24), Ok(vec![(key.id, 10)]), "the first hour is over a day old");
    assert_eq!(counted(29), Ok(vec![]));
    used(29, 1);
    assert_eq!(counted(24), Ok(vec![(key.id, 1)]), "older hours are removed");
    assert_eq!(wait(control.key_requests(vec![], MORNING_MS)), Ok(vec![]));
}

pub fn a_name_is_taken_while_a_key_of_the_project_works(control: &Control) {
    let (_, _, key) = furnish(control);
    wait(control.create_project(new_project(2, 1, &[]), vec![])).unwrap();
    let named = |n: u8, project: u8, name: &str, created_at_ms| {
        let new = NewKey {
            name: name.into(),
            created_at_ms,
            created_by: Some(person_id(1)),
            ..new_key(n, project)
        };
        wait(control.create_named_key(new, vec![record(n)]))
    };
    assert_eq!(named(2, 1, &key.name, MORNING_MS), Err(ChangeError::AlreadyExists));
    assert_eq!(named(1, 1, "another", MORNING_MS), Err(ChangeError::AlreadyExists), "the id of a key");
    assert_eq!(wait(control.count_records()), Ok(0));
    let made = named(2, 2, &key.name, MORNING_MS).unwrap().unwrap();
    assert_eq!((made.created_by, made.replaced_by), (Some(person_id(1)), None));
    assert!(named(3, 1, &key.name, MORNING_MS + 1000).unwrap().is_some(), "the first has expired");
    assert_eq!(named(4, 9, "x", MORNING_MS), Ok(None), "no such project");
}

pub fn keys_of_a_tenant_are_listed_newest_first_and_pages_join(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (project, tenant) in [(2, 1), (3, 2)] {
        wait(control.create_project(new_project(project, tenant, &[]), vec![])).unwrap();
    }
    for (n, project) in [(2, 2), (3, 3), (4, 1), (5, 2)] {
        wait(control.create_key(new_key(n, project), vec![])).unwrap();
    }
    let list = |tenant, projects: Option<&[u8]>, page| -> Vec<(KeyId, String)> {
        let projects = projects.map(|ids| ids.iter().map(|n| project_id(*n)).collect());
        let keys = wait(control.keys_of_tenant(tenant_id(tenant), projects, page)).unwrap();
        keys.into_iter().map(|(key, project)| (key.id, project)).collect()
    };
    let key = |n, project: u8| (KeyId(id(n)), format!("Project {project}"));
    let all = [key(5, 2), key(4, 1), key(2, 2), key(1, 1)];
    assert_eq!(list(1, None, first(9)), all);
    assert_eq!(list(1, None, first(2)), all[..2]);
    assert_eq!(list(1, None, page(Some(id(4)), 9)), all[2..]);
    assert_eq!(list(1, Some(&[2]), first(9)), [key(5, 2), key(2, 2)]);
    assert_eq!(list(1, Some(&[2]), page(Some(id(5)), 9)), [key(2, 2)]);
    assert_eq!(list(1, Some(&[3, 1]), first(9)), [key(4, 1), key(1, 1)], "of another tenant it is nothing");
    assert_eq!(list(1, Some(&[]), first(9)), []);
    assert_eq!(list(1, None, page(Some(id(3)), 9)), [], "behind the key of another tenant");
    assert_eq!(list(2, None, first(9)), [key(3, 3)]);
}

pub fn a_key_is_found_by_its_id_with_its_tenant(control: &Control) {
    let (tenant, _, key) = furnish(control);
    assert_eq!(wait(control.key(key.id)), Ok(Some((tenant.id, key))));
    assert_eq!(wait(control.key(KeyId(id(2)))), Ok(None));
}

pub fn a_rolled_key_works_on_for_a_while_and_the_new_one_at_once(control: &Control) {
    let (_, _, key) = furnish(control);
    let roll = |n: u8, old: KeyId, old_ends_at_ms, now_ms| {
        let new = NewKey { mode: key.mode, expires_at_ms: None, ..new_key(n, 1) };
        let tell = move |old: Option<&ApiKey>, new: &ApiKey| {
            assert_eq!((old.is_some(), new.id), (true, KeyId(id(n))));
            vec![record(n)]
        };
        wait(control.roll_key(KeyRoll { old, new, old_ends_at_ms, now_ms }, Records::told_by(tell))).unwrap()
    };
    let state = |n| {
        let ApiKey { expires_at_ms, revoked_at_ms, .. } =
            wait(control.access(digest(n))).unwrap().unwrap().key;
        (expires_at_ms, revoked_at_ms)
    };
    // It had an end before that, which stays.
    let new = roll(3, key.id, MORNING_MS + 5000, MORNING_MS).unwrap();
    assert_eq!((new.project_id, new.mode, state(3)), (key.project_id, key.mode, (None, None)));
    assert_eq!(state(1), (Some(MORNING_MS + 1000), None));
    let (_, old) = wait(control.key(key.id)).unwrap().unwrap();
    assert_eq!(old.replaced_by, Some(new.id));
    assert_eq!(roll(9, key.id, MORNING_MS + 5000, MORNING_MS), None, "another is in its place");
    assert!(roll(5, new.id, MORNING_MS + 7, MORNING_MS).is_some());
    assert_eq!(state(3), (Some(MORNING_MS + 7), None));
    assert!(roll(7, KeyId(id(5)), MORNING_MS + 8, MORNING_MS + 8).is_some());
    assert_eq!(state(5), (None, Some(MORNING_MS + 8)), "at once");
    // One that does not work any more is not rolled.
    assert_eq!(roll(9, KeyId(id(3)), MORNING_MS + 9, MORNING_MS + 7), None);
    assert_eq!(roll(9, KeyId(id(5)), MORNING_MS + 9, MORNING_MS + 8), None);
    assert_eq!(roll(9, KeyId(id(9)), MORNING_MS + 9, MORNING_MS), None);
    assert_eq!((wait(control.count_records()), wait(control.access(digest(9)))), (Ok(3), Ok(None)));
    // Nor into another project or mode.
    let other = NewKey { mode: Mode::Test, ..new_key(9, 1) };
    let roll = KeyRoll { old: KeyId(id(7)), new: other, old_ends_at_ms: u64::MAX, now_ms: MORNING_MS };
    assert_eq!(wait(control.roll_key(roll, Records::none())), Ok(None));
}

pub fn keys_that_end_soon_are_those_that_work_and_the_next_comes_first(control: &Control) {
    furnish(control);
    wait(control.create_project(new_project(2, 1, &[]), vec![])).unwrap();
    let make = |n: u8, project: u8, expires_at_ms: Option<u64>| {
        wait(control.create_key(NewKey { expires_at_ms, ..new_key(n, project) }, vec![])).unwrap().unwrap()
    };
    let now = MORNING_MS;
    let later = make(10, 1, Some(now + 50));
    let first = make(11, 1, Some(now + 1));
    let last = make(12, 1, Some(now + 100));
    make(13, 1, Some(now + 101));
    make(14, 1, Some(now));
    make(15, 1, None);
    make(16, 2, Some(now + 5));
    let revoked = make(17, 1, Some(now + 5));
    wait(control.revoke_key(revoked.id, now, Records::none())).unwrap();
    let soon = |limit| wait(control.keys_expiring(project_id(1), now, now + 100, limit)).unwrap();
    assert_eq!(soon(9), [first.clone(), later.clone(), last]);
    assert_eq!(soon(2), [first, later]);
}
