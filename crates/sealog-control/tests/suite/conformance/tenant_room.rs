//! What the control data of a tenant may take of the disk: each way to add to it, and what goes on without
//! room.

use sealog_control::*;
use sealog_store::StoreError;

use super::case::{furnish_case, new_case, write};
use super::case_package::new_package;
use super::case_search::{case_in, done_search, new_search, search_job};
use super::common::*;
use super::monitor_token::new_monitor_token;
use sealog_testing::*;

fn of_change<T>(made: Result<T, ChangeError>) -> Result<(), StoreError> {
    match made {
        Ok(_) => Ok(()),
        Err(ChangeError::Store(error)) => Err(error),
        Err(ChangeError::AlreadyExists) => panic!("it is tried for the first time"),
    }
}

fn noted(n: u8) -> CaseWrite {
    let with = write(n);
    CaseWrite {
        entry: NewCaseEntry { from: None, to: None, ..with.entry },
        records: vec![],
        events: vec![],
        ..with
    }
}

/// What its people and the operator can do as often as they like. Each call has numbers of its own.
fn ways(control: &Control, case: &Case, n: u8) -> Vec<(&'static str, Result<(), StoreError>)> {
    let roll = KeyRoll {
        old: KeyId(id(1)),
        new: NewKey { name: "Key 1".into(), mode: sealog_core::id::Mode::Live, ..new_key(n + 1, 1) },
        old_ends_at_ms: MORNING_MS + 500,
        now_ms: MORNING_MS,
    };
    let frameworks = ProjectChange { enable: set(&[5]), now_ms: MORNING_MS, ..ProjectChange::default() };
    let invite = new_link(n, invitation(1, &format!("guest{n}@example.com")));
    let view = SavedView {
        id: id(n),
        tenant_id: tenant_id(1),
        person_id: person_id(1),
        name: format!("View {n}"),
        query: "q=1".into(),
        shared_in: None,
        is_pinned: false,
        created_at_ms: MORNING_MS,
    };
    let most = ViewsMax { own: 99, shared: 99 };
    let member = new_member(n, 1, &format!("member{n}@example.com"));
    let package = control.create_package(
        new_package(n, case),
        &[CaseState::Approved],
        search_job(n + 1, "p"),
        99,
        vec![],
    );
    let now = wait(control.case(case.tenant_id, case.id)).unwrap().unwrap();
    vec![
        ("project", wait(control.create_project(new_project(n, 1, &[]), vec![])).map(drop)),
        ("framework", wait(control.update_project(project_id(1), frameworks, Records::none())).map(drop)),
        ("key", wait(control.create_key(new_key(n, 1), vec![])).map(drop)),
        ("named key", of_change(wait(control.create_named_key(new_key(n + 2, 1), vec![])))),
        ("rolled key", of_change(wait(control.roll_key(roll, Records::none())))),
        ("monitor token", wait(control.create_monitor_token(new_monitor_token(n, 1), vec![])).map(drop)),
        ("action", of_change(wait(control.create_action(tenant_id(1), custom(&format!("a.n{n}")), vec![])))),
        ("member", of_change(wait(control.add_member(member, Records::none())))),
        ("invitation", wait(control.invite(invite, None, vec![], 99, Records::none())).map(drop)),
        ("saved view", wait(control.save_view(view, most, Records::none())).map(drop)),
        ("export", wait(control.create_export(new_export(n, 1), 99, Records::none())).map(drop)),
        ("verification", wait(control.queue_job(search_job(n, "verify"), 99, vec![])).map(drop)),
        (
            "case",
            wait(control.create_case(new_case(n, 1), CaseWrite { records: vec![], ..write(n) })).map(drop),
        ),
        ("note", wait(control.save_case(now, noted(n + 1))).map(drop)),
        (
            "search",
            wait(control.start_case_search(new_search(n, case), search_job(n + 2, "s"), 99, vec![]))
                .map(drop),
        ),
        ("package", wait(package).map(drop)),
    ]
}

pub fn whatever_adds_to_a_tenant_without_room_is_undone_and_what_ends_something_is_not(control: &Control) {
    furnish_case(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_project(new_project(2, 2, &[]), vec![])).unwrap();
    let case = case_in(control, 1, CaseState::Approved);
    done_search(control, 1, &case, vec![]);
    let before = wait(control.export()).unwrap();
    control.limit_tenant_bytes(Some(1 << 20));
    for (way, refused) in ways(control, &case, 40) {
        assert_eq!(refused, Err(StoreError::TenantFull { mb: 1 }), "{way}");
    }
    assert!(wait(control.export()).unwrap() == before, "nothing of it is left");
    assert_eq!(
        wait(control.create_key(new_key(50, 2), vec![])).map(|key| key.is_some()),
        Ok(true),
        "another tenant"
    );

    // What ends something, the steps of a case, and what changes nothing but what is there.
    let step = CaseWrite { records: vec![], ..write(60) };
    assert!(step.entry.to.is_some());
    let now = wait(control.case(case.tenant_id, case.id)).unwrap().unwrap();
    assert!(matches!(wait(control.save_case(now, step)), Ok(CaseSaved::Done(_))));
    let renamed = ProjectChange { name: Some("New".into()), disable: set(&[0]), ..ProjectChange::default() };
    assert!(wait(control.update_project(project_id(1), renamed, Records::none())).unwrap().is_some());
    assert!(wait(control.revoke_key(KeyId(id(1)), 5, Records::none())).unwrap().is_some());
    let ended = MemberChange { role: Some(Role::Auditor), now_ms: MORNING_MS, ..MemberChange::default() };
    assert!(
        wait(control.update_member(tenant_id(1), person_id(1), ended, Records::none())).unwrap().is_some()
    );

    control.limit_tenant_bytes(None);
    wait(control.create_key(new_key(70, 1), vec![])).unwrap().unwrap();
}

pub fn a_tenant_takes_its_rows_and_their_texts_and_no_more_than_it_may(control: &Control) {
    furnish_case(control);
    control.limit_tenant_bytes(Some(1 << 20));
    let key = |n| NewKey { name: "x".repeat(300 << 10), ..new_key(n, 1) };
    let made = [10, 11, 12, 13].map(|n| wait(control.create_key(key(n), vec![])).map(drop));
    assert_eq!(made, [Ok(()), Ok(()), Ok(()), Err(StoreError::TenantFull { mb: 1 })]);
    // A short one has room, also beside keys that were revoked: they stay for the events that name them.
    assert!(wait(control.revoke_key(KeyId(id(10)), 5, Records::none())).unwrap().is_some());
    wait(control.create_key(new_key(14, 1), vec![])).unwrap().unwrap();
    assert!(wait(control.create_key(key(15), vec![])).is_err());
    control.limit_tenant_bytes(Some(2 << 20));
    wait(control.create_key(key(15), vec![])).unwrap().unwrap();
}
