//! Memberships: one person, several tenants.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn an_address_that_exists_adds_a_membership_and_changes_nothing_of_the_person(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let first =
        wait(control.add_member(new_member(1, 1, "Zoë@Example.com"), Records::none())).unwrap().unwrap();
    let new = NewMember {
        role: Role::Auditor,
        created_at_ms: MORNING_MS + 5,
        ..new_member(2, 2, "ZOË@EXAMPLE.COM")
    };
    let second = wait(control.add_member(new, Records::none())).unwrap().unwrap();
    assert_eq!(second.person, first.person);
    assert_eq!((second.membership.role, second.membership.created_at_ms), (Role::Auditor, MORNING_MS + 5));
    let (_, hash) = wait(control.person_by_email("zoë@example.com".into())).unwrap().unwrap();
    assert_eq!(hash.as_deref(), Some("$argon2id$1"), "the password is the person's own");
    assert_eq!(wait(control.person(person_id(2))), Ok(None));
    let both = vec![first.membership.clone(), second.membership.clone()];
    assert_eq!(wait(control.memberships(person_id(1))), Ok(both));
    assert_eq!(wait(control.members(tenant_id(1), first_page())), Ok(vec![first]));
    assert_eq!(wait(control.members(tenant_id(2), first_page())), Ok(vec![second]));
}

pub fn an_address_is_a_member_of_a_tenant_once(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "Zoë@Example.com"), Records::none())).unwrap().unwrap();
    for email in ["Zoë@Example.com", "zoë@example.com", "ZOË@EXAMPLE.COM"] {
        let again = wait(control.add_member(new_member(2, 1, email), Records::of(vec![record(1)])));
        assert_eq!(again, Err(ChangeError::AlreadyExists), "{email}");
    }
    assert_eq!(wait(control.members(tenant_id(1), first_page())).unwrap().len(), 1);
    assert_eq!(wait(control.count_records()), Ok(0));
}

pub fn grants_read_back_and_a_change_leaves_the_others_alone(control: &Control) {
    furnish(control);
    let grants = Grants {
        projects: Some(vec![project_id(1), project_id(2)]),
        from_ms: Some(5),
        until_ms: Some(MORNING_MS),
    };
    let new =
        NewMember { grants: grants.clone(), ends_at_ms: Some(MORNING_MS + 9), ..new_member(1, 1, "a@b.c") };
    let added = wait(control.add_member(new, Records::none())).unwrap().unwrap();
    assert_eq!((&added.membership.grants, added.membership.ends_at_ms), (&grants, Some(MORNING_MS + 9)));
    let found = || wait(control.member(tenant_id(1), person_id(1))).unwrap().unwrap();
    assert_eq!(found(), added);
    assert!(!added.membership.has_ended(MORNING_MS + 8) && added.membership.has_ended(MORNING_MS + 9));

    let change = |change| {
        let made = wait(control.update_member(tenant_id(1), person_id(1), change, Records::none()));
        match made.unwrap().unwrap() {
            MemberChanged::Done(member) => member,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(change(MemberChange::default()), added);
    for role in Role::ALL {
        let changed = change(MemberChange { role: Some(role), ..MemberChange::default() });
        assert_eq!((changed.membership.role, &changed.membership.grants), (role, &grants));
        assert_eq!(found(), changed);
    }
    // No project at all is something else than all of them.
    for projects in [Some(vec![]), None] {
        let grants = Grants { projects, ..Grants::default() };
        let changed = change(MemberChange {
            grants: Some(grants.clone()),
            ends_at_ms: Some(None),
            ..MemberChange::default()
        });
        assert_eq!((&changed.membership.grants, changed.membership.ends_at_ms), (&grants, None));
        assert_eq!(found(), changed);
    }
    let nobody = wait(control.update_member(
        tenant_id(1),
        person_id(9),
        MemberChange::default(),
        Records::of(vec![record(1)]),
    ));
    assert_eq!((nobody, wait(control.count_records())), (Ok(None), Ok(0)));
}

fn first_page() -> ListPage {
    first(10)
}

fn owner(control: &Control, n: u8) {
    let new = NewMember { role: Role::Owner, ..new_member(n, 1, &format!("{n}@example.com")) };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
}

fn end(control: &Control, n: u8, at_ms: u64) -> MemberChanged {
    let change =
        MemberChange { ends_at_ms: Some(Some(at_ms)), now_ms: MORNING_MS, ..MemberChange::default() };
    wait(control.update_member(tenant_id(1), person_id(n), change, Records::of(vec![record(n)])))
        .unwrap()
        .unwrap()
}

pub fn a_tenant_keeps_an_owner_whose_membership_does_not_end(control: &Control) {
    furnish(control);
    owner(control, 1);
    owner(control, 2);
    let demote = |n| {
        let change = MemberChange { role: Some(Role::Admin), ..MemberChange::default() };
        wait(control.update_member(tenant_id(1), person_id(n), change, Records::of(vec![record(n)])))
            .unwrap()
            .unwrap()
    };
    assert!(matches!(end(control, 1, MORNING_MS + 9), MemberChanged::Done(_)));
    // The first one will be gone, so the second one is the last, whatever is to become of it.
    assert_eq!(end(control, 2, MORNING_MS + 999), MemberChanged::LastOwner);
    assert_eq!(demote(2), MemberChanged::LastOwner);
    assert_eq!(wait(control.count_records()), Ok(1), "what did not happen leaves no record");
    let second = wait(control.member(tenant_id(1), person_id(2))).unwrap().unwrap().membership;
    assert_eq!((second.role, second.ends_at_ms), (Role::Owner, None));
    owner(control, 3);
    assert!(matches!(demote(2), MemberChanged::Done(_)));
}

pub fn of_two_owners_who_leave_at_once_one_stays(control: &Control) {
    furnish(control);
    owner(control, 1);
    owner(control, 2);
    let change =
        MemberChange { ends_at_ms: Some(Some(MORNING_MS)), now_ms: MORNING_MS, ..MemberChange::default() };
    let leaves =
        [1, 2].map(|n| control.update_member(tenant_id(1), person_id(n), change.clone(), Records::none()));
    let left = leaves.into_iter().map(|leaves| wait(leaves).unwrap().unwrap());
    assert_eq!(left.filter(|left| *left == MemberChanged::LastOwner).count(), 1);
}

pub fn a_role_is_given_and_taken_by_those_who_may(control: &Control) {
    furnish(control);
    owner(control, 1);
    owner(control, 2);
    wait(control.add_member(NewMember { role: Role::Auditor, ..new_member(3, 1, "3@b.c") }, Records::none()))
        .unwrap();
    let may_give = Some(vec![Role::Admin, Role::Auditor]);
    let give = |n, role| {
        let change = MemberChange { role: Some(role), may_give: may_give.clone(), ..MemberChange::default() };
        wait(control.update_member(tenant_id(1), person_id(n), change, Records::none())).unwrap().unwrap()
    };
    assert_eq!(give(1, Role::Admin), MemberChanged::NotGiven);
    assert_eq!(give(3, Role::Owner), MemberChanged::NotGiven);
    assert!(matches!(give(3, Role::Admin), MemberChanged::Done(_)));
}

pub fn sessions_end_with_the_last_membership(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for tenant in [1, 2] {
        let new = NewMember { role: Role::Developer, ..new_member(1, tenant, "a@b.c") };
        wait(control.add_member(new, Records::none())).unwrap().unwrap();
    }
    wait(control.create_session(new_session(1, 1, u64::MAX), None)).unwrap();
    let is_there = || wait(control.session::<Person>(digest(1), MORNING_MS)).unwrap().is_some();
    let change = |tenant, ends_at_ms| {
        let change = MemberChange {
            ends_at_ms: Some(Some(ends_at_ms)),
            now_ms: MORNING_MS,
            ..MemberChange::default()
        };
        wait(control.update_member(tenant_id(tenant), person_id(1), change, Records::none())).unwrap();
    };
    change(1, MORNING_MS);
    assert!(is_there(), "of a member of another tenant");
    change(2, MORNING_MS + 1);
    assert!(is_there(), "it has not ended yet");
    change(2, MORNING_MS);
    assert!(!is_there());
}
