//! Memberships: one person, several tenants.

use sealog_control::*;

use crate::common::*;
use crate::support::*;

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
        wait(control.update_member(tenant_id(1), person_id(1), change, Records::none())).unwrap().unwrap()
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
