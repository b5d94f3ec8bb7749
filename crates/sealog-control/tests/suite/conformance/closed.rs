//! Tenants that were closed.

use sealog_control::*;

use super::case::{new_case, write};
use super::common::*;
use sealog_testing::*;

const NOW: u64 = MORNING_MS + 5;

/// Two tenants, each with a project, two keys, and a person who owns both tenants.
fn furnished(control: &Control) {
    for tenant in [1, 2] {
        wait(control.create_tenant(new_tenant(tenant), vec![])).unwrap();
        wait(control.create_project(new_project(tenant, tenant, &[]), vec![])).unwrap().unwrap();
        for key in [10 * tenant + 1, 10 * tenant + 2] {
            wait(control.create_key(new_key(key, tenant), vec![])).unwrap().unwrap();
        }
        let owner = NewMember { role: Role::Owner, ..new_member(1, tenant, "a@example.com") };
        wait(control.add_member(owner, Records::none())).unwrap().unwrap();
    }
}

fn close(control: &Control, tenant: u8, named: Option<usize>, record_n: u8) -> Option<TenantClosed> {
    wait(control.close_tenant(tenant_id(tenant), NOW, named, vec![record(record_n)])).unwrap()
}

fn is_revoked(control: &Control, key: u8) -> bool {
    wait(control.access(digest(key))).unwrap().unwrap().key.state().revoked
}

pub fn a_closed_tenants_keys_open_nothing_at_once_and_the_next_tenants_do(control: &Control) {
    furnished(control);
    assert_eq!(close(control, 9, None, 1), None);
    assert_eq!(wait(control.closed_at_ms(tenant_id(1))), Ok(None));
    let (before, others) = (control.version_of(tenant_id(1)), control.version_of(tenant_id(2)));
    assert_eq!(close(control, 1, Some(3), 1), Some(TenantClosed::Done));
    assert!(control.version_of(tenant_id(1)) > before, "what is kept in memory of its keys is out of date");
    assert_eq!(control.version_of(tenant_id(2)), others);
    assert_eq!([11, 12, 21, 22].map(|key| is_revoked(control, key)), [true, true, false, false]);
    // Revoking them one by one is still to be done, and is known.
    let left = |tenant, limit| wait(control.keys_not_revoked(tenant_id(tenant), limit)).unwrap();
    assert_eq!((left(1, 1), left(1, 9)), (vec![KeyId(id(11))], vec![KeyId(id(11)), KeyId(id(12))]));
    wait(control.revoke_key(KeyId(id(11)), NOW, Records::none())).unwrap().unwrap();
    assert_eq!((left(1, 9), left(2, 9).len()), (vec![KeyId(id(12))], 2));
    // A second time changes nothing, and leaves no record.
    assert_eq!(close(control, 1, Some(3), 2), Some(TenantClosed::Before(NOW)));
    let records = wait(control.pending_records(tenant_id(1), 9)).unwrap();
    assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), [id(1)]);
    assert_eq!(
        (wait(control.closed_at_ms(tenant_id(1))), wait(control.closed_at_ms(tenant_id(2)))),
        (Ok(Some(NOW)), Ok(None))
    );
}

pub fn nothing_gives_a_closed_tenant_a_key_or_a_member_and_its_last_owner_can_go(control: &Control) {
    furnished(control);
    let change = |ends_at_ms, now_ms| {
        let change = MemberChange { ends_at_ms: Some(ends_at_ms), now_ms, ..MemberChange::default() };
        wait(control.update_member(tenant_id(1), person_id(1), change, Records::none())).unwrap().unwrap()
    };
    let invite = |n, tenant| {
        let invitation = Invitation {
            tenant_id: tenant_id(tenant),
            email: format!("{n}@example.com"),
            role: Role::Developer,
            grants: Grants::default(),
            ends_at_ms: None,
            invited_by: None,
        };
        let link = new_link(n, Purpose::Invitation(invitation));
        assert_eq!(wait(control.create_link(link, None, vec![])), Ok(Some(())));
    };
    let accept = |n| {
        let guest = Guest::New { id: person_id(n), password_hash: "h".into() };
        wait(control.accept_invitation(digest(n), MORNING_MS, guest, Records::none())).unwrap()
    };
    assert_eq!(change(Some(NOW), NOW), MemberChanged::LastOwner);
    invite(31, 1);
    invite(32, 2);
    close(control, 1, None, 1);
    assert_eq!(wait(control.create_key(new_key(13, 1), vec![])), Ok(None));
    assert_eq!(wait(control.create_named_key(new_key(14, 1), vec![])), Ok(None));
    assert_eq!(wait(control.add_member(new_member(3, 1, "b@example.com"), Records::none())), Ok(None));
    assert_eq!(accept(31), None);
    assert!(matches!(change(Some(NOW), NOW), MemberChanged::Done(_)));
    assert_eq!(change(None, NOW + 1), MemberChanged::Closed, "nobody comes back");
    // The other tenant is as it was: the same person owns it.
    assert!(accept(32).is_some());
    assert!(wait(control.create_key(new_key(23, 2), vec![])).unwrap().is_some());
    let owner = wait(control.member(tenant_id(2), person_id(1))).unwrap().unwrap();
    assert_eq!(owner.membership.ends_at_ms, None);
}

pub fn a_tenant_with_open_cases_is_closed_only_by_those_who_say_so(control: &Control) {
    furnished(control);
    for n in 1..=4 {
        wait(control.create_case(new_case(n, 1), write(n))).unwrap();
    }
    let done = wait(control.case_by_number(tenant_id(1), 2)).unwrap().unwrap();
    let answer = CaseAnswer { outcome: CaseOutcome::Withdrawn, at_ms: 1, how: None, ground: None };
    let done = Case { closed_at_ms: Some(9), answer: Some(answer), ..done };
    wait(control.save_case(done, write(20))).unwrap();
    assert_eq!(close(control, 1, Some(2), 50), Some(TenantClosed::OpenCases(vec![1, 3])));
    assert_eq!((wait(control.closed_at_ms(tenant_id(1))), is_revoked(control, 11)), (Ok(None), false));
    // Those of another tenant keep no one.
    assert_eq!(close(control, 2, Some(2), 51), Some(TenantClosed::Done));
    assert_eq!(close(control, 1, None, 52), Some(TenantClosed::Done));
}
