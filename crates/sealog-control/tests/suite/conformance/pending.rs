//! Records for the system chain: with the change, in its order.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn a_record_is_kept_with_its_change_and_not_without_it(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![record(1)])).unwrap();
    let change = TenantChange::default();
    wait(control.update_tenant(tenant_id(2), change.clone(), Records::of(vec![record(2), record(3)])))
        .unwrap();
    wait(control.create_project(new_project(2, 2, &[]), vec![record(4)])).unwrap();
    wait(control.update_project(project_id(2), ProjectChange::default(), Records::of(vec![record(5)])))
        .unwrap();
    wait(control.create_key(new_key(2, 2), vec![record(6)])).unwrap();
    wait(control.revoke_key(KeyId(id(2)), MORNING_MS, Records::of(vec![record(7)]))).unwrap();
    wait(control.create_action(tenant_id(2), custom("a.b"), vec![record(8)])).unwrap();
    wait(control.set_setting(tenant_id(2), "a".into(), None, vec![record(9)])).unwrap();
    wait(control.add_member(new_member(1, 2, "a@example.com"), Records::of(vec![record(10)]))).unwrap();
    wait(control.update_member(
        tenant_id(2),
        person_id(1),
        MemberChange::default(),
        Records::of(vec![record(11)]),
    ))
    .unwrap();
    // What does not happen leaves no record, and neither does what fails.
    assert_eq!(wait(control.update_tenant(tenant_id(9), change, Records::of(vec![record(50)]))), Ok(None));
    assert_eq!(wait(control.create_project(new_project(9, 9, &[]), vec![record(51)])), Ok(None));
    assert_eq!(wait(control.revoke_key(KeyId(id(9)), 1, Records::of(vec![record(52)]))), Ok(None));
    wait(control.create_action(tenant_id(2), custom("a.b"), vec![record(53)])).unwrap_err();
    wait(control.create_key(new_key(2, 2), vec![record(54)])).unwrap_err();
    // And where the record cannot be kept, there is no change.
    wait(control.create_project(new_project(3, 2, &[]), vec![record(1)])).unwrap_err();
    assert_eq!(wait(control.project(project_id(3))), Ok(None));

    let kept = wait(control.pending_records(tenant_id(2), 100)).unwrap();
    let expected = (1..=11).map(|n| {
        let NewRecord { id, draft, created_at_ms } = record(n);
        PendingRecord { tenant_id: tenant_id(2), id, draft, created_at_ms }
    });
    assert_eq!(kept, expected.collect::<Vec<_>>());
    assert_eq!(
        (wait(control.count_records()), wait(control.tenants_with_records(None, 10))),
        (Ok(11), Ok(vec![tenant_id(2)]))
    );
}

pub fn records_are_in_the_order_of_the_changes_until_they_are_removed(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let rename = |tenant, n| {
        wait(control.update_tenant(tenant_id(tenant), TenantChange::default(), Records::of(vec![record(n)])))
            .unwrap();
    };
    (1..=3).for_each(|n| rename(1, n));
    rename(2, 4);
    let waiting = |limit| {
        let records = wait(control.pending_records(tenant_id(1), limit)).unwrap();
        records.iter().map(|record| record.id).collect::<Vec<_>>()
    };
    assert_eq!((waiting(10), waiting(2)), (vec![id(1), id(2), id(3)], vec![id(1), id(2)]));
    assert_eq!(wait(control.is_pending(id(1))), Ok(true));
    assert_eq!(wait(control.remove_record(id(1))), Ok(true));
    assert_eq!(wait(control.is_pending(id(1))), Ok(false));
    assert_eq!(wait(control.remove_record(id(1))), Ok(false));
    rename(1, 5);
    assert_eq!(waiting(10), [id(2), id(3), id(5)]);
    for n in [2, 3, 5] {
        wait(control.remove_record(id(n))).unwrap();
    }
    rename(1, 6);
    assert_eq!(waiting(10), [id(6)]);
    let mut both = [tenant_id(1), tenant_id(2)];
    both.sort();
    let tenants = |after, limit| wait(control.tenants_with_records(after, limit)).unwrap();
    assert_eq!(tenants(None, 10), both);
    assert_eq!(tenants(None, 1), both[..1]);
    assert_eq!(tenants(Some(both[0]), 1), both[1..]);
    assert_eq!(tenants(Some(both[1]), 10), []);
    assert_eq!(wait(control.count_records()), Ok(2));
}

pub fn a_record_tells_of_the_state_that_its_change_has_found(control: &Control) {
    furnish(control);
    let rename = |n: u8, name: &str| {
        let change = TenantChange { name: Some(name.into()), ..TenantChange::default() };
        let told = move |before: Option<&Tenant>, after: &Tenant| {
            let draft = format!("{} -> {}", before.unwrap().name, after.name);
            vec![NewRecord { draft, ..record(n) }]
        };
        wait(control.update_tenant(tenant_id(1), change, Records::told_by(told))).unwrap();
    };
    let first = wait(control.tenant(tenant_id(1))).unwrap().unwrap().name;
    rename(1, "second");
    rename(2, "third");
    let added = Records::told_by(|before: Option<&Member>, after: &Member| {
        assert_eq!(before, None);
        vec![NewRecord { draft: after.person.id.0.to_string(), ..record(3) }]
    });
    // Somebody who is there already: the id is not the one that was given along.
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.add_member(new_member(1, 2, "a@example.com"), Records::none())).unwrap();
    wait(control.add_member(new_member(2, 1, "A@example.com"), added)).unwrap();
    // Revoking again finds the key revoked.
    for n in [4, 5] {
        let revoked = Records::told_by(move |before: Option<&ApiKey>, after: &ApiKey| {
            let draft = format!("{:?} -> {:?}", before.unwrap().revoked_at_ms, after.revoked_at_ms);
            vec![NewRecord { draft, ..record(n) }]
        });
        wait(control.revoke_key(KeyId(id(1)), u64::from(n), revoked)).unwrap();
    }
    let told = wait(control.pending_records(tenant_id(1), 100)).unwrap();
    let drafts: Vec<String> = told.into_iter().map(|record| record.draft).collect();
    assert_eq!(
        drafts,
        [
            format!("{first} -> second"),
            "second -> third".into(),
            id(1).to_string(),
            "None -> Some(4)".into(),
            "Some(4) -> Some(4)".into(),
        ]
    );
}

pub fn records_of_what_changed_nothing_wait_with_the_others(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![record(1)])).unwrap();
    wait(control.add_records(vec![(tenant_id(2), record(2)), (tenant_id(1), record(3))], Room::Ordinary))
        .unwrap();
    let waiting = |tenant| -> Vec<_> {
        wait(control.pending_records(tenant_id(tenant), 9))
            .unwrap()
            .into_iter()
            .map(|record| record.id)
            .collect()
    };
    assert_eq!((waiting(1), waiting(2)), (vec![id(3)], vec![id(1), id(2)]));
    // All of them or none.
    wait(control.add_records(vec![(tenant_id(1), record(4)), (tenant_id(1), record(1))], Room::Ordinary))
        .unwrap_err();
    assert_eq!(waiting(1), [id(3)]);
}
