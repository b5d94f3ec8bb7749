//! What ends at a time.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

fn page(from_ms: u64, until_ms: u64, limit: usize) -> EndPage {
    EndPage { after: EndPlace::before(from_ms), until_ms, limit }
}

pub fn keys_are_found_by_their_end_in_its_order_unless_they_are_revoked(control: &Control) {
    furnish(control);
    for (n, end) in [(2, Some(30)), (3, Some(20)), (4, None), (5, Some(20)), (6, Some(25)), (7, Some(40))] {
        let key = NewKey { expires_at_ms: end, ..new_key(n, 1) };
        wait(control.create_key(key, vec![])).unwrap().unwrap();
    }
    wait(control.revoke_key(KeyId(id(6)), 1, Records::none())).unwrap();
    let found = |page| -> Vec<u64> {
        let keys = wait(control.keys_ending(page)).unwrap();
        assert!(keys.iter().all(|(tenant, _, project)| *tenant == tenant_id(1) && !project.is_empty()));
        keys.iter().map(|(_, key, _)| key.expires_at_ms.unwrap()).collect()
    };
    assert_eq!(found(page(0, 100, 9)), [20, 20, 30, 40]);
    assert_eq!((found(page(20, 30, 9)), found(page(21, 29, 9))), (vec![20, 20, 30], vec![]));
    // Page by page, also between two of one time.
    let (mut after, mut seen) = (EndPlace::before(0), Vec::new());
    while let [(_, key, _)] =
        &wait(control.keys_ending(EndPage { after, until_ms: 100, limit: 1 })).unwrap()[..]
    {
        after = EndPlace { at_ms: key.expires_at_ms.unwrap(), id: key.id.0 };
        seen.push(key.id);
    }
    let expected = wait(control.keys_ending(page(0, 100, 9))).unwrap();
    assert_eq!(seen, expected.iter().map(|(_, key, _)| key.id).collect::<Vec<_>>());
}

pub fn trials_are_found_by_their_end_where_nothing_is_billed(control: &Control) {
    for (n, end, billed) in
        [(1, Some(20), false), (2, Some(10), false), (3, Some(15), true), (4, None, false)]
    {
        let mut new = new_tenant(n);
        new.billing.trial_ends_at_ms = end;
        new.billing.billing_active = billed;
        wait(control.create_tenant(new, vec![])).unwrap();
    }
    let found = |page| -> Vec<_> {
        wait(control.trials_ending(page)).unwrap().into_iter().map(|tenant| tenant.id).collect()
    };
    assert_eq!(found(page(0, 99, 9)), [tenant_id(2), tenant_id(1)]);
    assert_eq!((found(page(11, 99, 9)), found(page(0, 19, 9))), (vec![tenant_id(1)], vec![tenant_id(2)]));
}

pub fn auditors_are_found_by_the_end_of_their_membership(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let add = |n, tenant, role, end| {
        let new = NewMember { role, ends_at_ms: end, ..new_member(n, tenant, &format!("{n}@example.com")) };
        wait(control.add_member(new, Records::none())).unwrap().unwrap();
    };
    add(1, 1, Role::Auditor, Some(20));
    add(1, 2, Role::Auditor, Some(20));
    add(2, 1, Role::Auditor, None);
    add(3, 1, Role::Developer, Some(20));
    add(4, 1, Role::Auditor, Some(10));
    let found = |page| -> Vec<_> {
        let members = wait(control.auditors_ending(page)).unwrap();
        members.into_iter().map(|member| (member.person.id, member.membership.ends_at_ms)).collect()
    };
    let both = [(person_id(1), Some(20)), (person_id(1), Some(20))];
    assert_eq!(found(page(0, 99, 9)), [&[(person_id(4), Some(10))], &both[..]].concat());
    // One person's at one time are never torn apart.
    let after = EndPlace { at_ms: 20, id: person_id(1).0 };
    assert_eq!(found(EndPage { after, until_ms: 99, limit: 9 }), both);
}

pub fn members_are_found_by_their_roles_while_they_are_members(control: &Control) {
    furnish(control);
    let ends = [None, Some(50), Some(51), None, None, None];
    for (n, end) in (1..=6).zip(ends) {
        let role = if n == 4 { Role::Admin } else { Role::Owner };
        let role = if n == 5 { Role::Developer } else { role };
        let new = NewMember { role, ends_at_ms: end, ..new_member(n, 1, &format!("{n}@example.com")) };
        wait(control.add_member(new, Records::none())).unwrap().unwrap();
    }
    let found = |roles: &[Role], limit| -> Vec<_> {
        let members = wait(control.members_with_roles(tenant_id(1), roles.to_vec(), 50, limit)).unwrap();
        members.into_iter().map(|member| member.person.id).collect()
    };
    assert_eq!(found(&[Role::Owner, Role::Admin], 9), [1, 3, 4, 6].map(person_id));
    assert_eq!((found(&[Role::Admin], 9), found(&[], 9)), (vec![person_id(4)], vec![]));
    assert_eq!(found(&[Role::Owner, Role::Admin], 2), [1, 3].map(person_id));
}
