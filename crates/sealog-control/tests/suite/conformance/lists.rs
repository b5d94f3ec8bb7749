//! What holds for every kind: order, pages, ids.

use sealog_control::*;
use sealog_core::id::{ProjectId, TenantId, Uuid};
use sealog_store::StoreError;

use super::common::*;
use sealog_testing::*;

pub fn what_does_not_exist_cannot_be_changed(control: &Control) {
    furnish(control);
    let missing = Uuid([9; 16]);
    assert_eq!(
        wait(control.update_tenant(TenantId(missing), TenantChange::default(), Records::none())),
        Ok(None)
    );
    assert_eq!(
        wait(control.update_project(ProjectId(missing), ProjectChange::default(), Records::none())),
        Ok(None)
    );
    assert_eq!(wait(control.revoke_key(KeyId(missing), MORNING_MS, Records::none())), Ok(None));
    assert_eq!(wait(control.keys_used(vec![KeyUse::once(KeyId(missing), MORNING_MS)])), Ok(()));
    assert_eq!(wait(control.end_session::<Person>(digest(9))), Ok(()));
    assert_eq!(wait(control.notice_attempted(9, NoticeOutcome::Sent { now_ms: MORNING_MS })), Ok(()));
}

pub fn lists_are_in_order_of_creation_and_pages_join(control: &Control) {
    let numbers: Vec<u8> = (1..=23).collect();
    let expected: Vec<Uuid> = numbers.iter().map(|n| id(*n)).collect();
    for n in &numbers {
        wait(control.create_tenant(new_tenant(*n), vec![])).unwrap();
    }
    // Those of another owner stand in between.
    for n in &numbers {
        wait(control.create_project(new_project(*n, 1, &[]), vec![])).unwrap();
        wait(control.create_project(new_project(100 + n, 2, &[]), vec![])).unwrap();
        wait(control.create_key(new_key(*n, 1), vec![])).unwrap();
        wait(control.create_key(new_key(100 + n, 2), vec![])).unwrap();
        wait(control.add_member(new_member(*n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
        wait(control.add_member(new_member(100 + n, 2, &format!("{n}@example.org")), Records::none()))
            .unwrap();
    }
    let (tenant, project) = (TenantId(id(1)), ProjectId(id(1)));
    let ids = |kind: usize, page: ListPage| -> Vec<Uuid> {
        match kind {
            0 => wait(control.tenants(page)).unwrap().iter().map(|tenant| tenant.id.0).collect(),
            1 => wait(control.projects(tenant, page)).unwrap().iter().map(|project| project.id.0).collect(),
            2 => wait(control.keys(project, page)).unwrap().iter().map(|key| key.id.0).collect(),
            _ => {
                wait(control.members(tenant, page)).unwrap().iter().map(|member| member.person.id.0).collect()
            }
        }
    };
    for kind in 0..4 {
        for limit in [1, 4, 22, 23, 24, usize::MAX] {
            let mut joined = Vec::new();
            loop {
                let next = ids(kind, page(joined.last().copied(), limit));
                assert!(next.len() <= limit);
                if next.is_empty() {
                    break;
                }
                joined.extend(next);
            }
            assert_eq!(joined, expected, "kind {kind}, limit {limit}");
        }
        assert_eq!(ids(kind, first(0)), []);
    }
}

pub fn behind_an_id_that_is_not_in_the_list_there_is_nothing(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_project(new_project(2, 2, &[]), vec![])).unwrap();
    wait(control.create_project(new_project(3, 1, &[]), vec![])).unwrap();
    let (of_another, missing) = (page(Some(id(2)), 10), page(Some(Uuid([9; 16])), 10));
    assert_eq!(wait(control.projects(TenantId(id(1)), of_another)), Ok(vec![]));
    assert_eq!(wait(control.projects(TenantId(id(1)), missing)), Ok(vec![]));
    assert_eq!(wait(control.tenants(missing)), Ok(vec![]));
    assert_eq!(wait(control.keys(ProjectId(id(1)), missing)), Ok(vec![]));
    assert_eq!(wait(control.members(TenantId(id(1)), missing)), Ok(vec![]));
}

pub fn an_id_is_taken_once(control: &Control) {
    let (tenant, project, key) = furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    wait(control.create_session(new_session(1, 1, u64::MAX), None)).unwrap();
    let is_refused = |error: StoreError| matches!(error, StoreError::Refused(_));
    let again = NewTenant { name: "Other".into(), ..new_tenant(1) };
    assert!(wait(control.create_tenant(again, vec![])).is_err_and(is_refused));
    assert!(wait(control.create_project(new_project(1, 1, &[5]), vec![])).is_err_and(is_refused));
    assert!(
        wait(control.create_key(NewKey { digest: digest(2), ..new_key(1, 1) }, vec![]))
            .is_err_and(is_refused)
    );
    assert!(
        wait(control.create_key(NewKey { digest: digest(1), ..new_key(2, 1) }, vec![]))
            .is_err_and(is_refused)
    );
    let user = wait(control.add_member(new_member(1, 1, "b@example.com"), Records::none()));
    assert!(matches!(user, Err(ChangeError::Store(StoreError::Refused(_)))), "{user:?}");
    assert!(wait(control.create_session(new_session(1, 1, u64::MAX), None)).is_err_and(is_refused));
    assert_eq!(wait(control.tenants(first(10))), Ok(vec![tenant.clone()]));
    assert_eq!(wait(control.projects(tenant.id, first(10))), Ok(vec![project.clone()]));
    assert_eq!(wait(control.keys(project.id, first(10))), Ok(vec![key]));
    assert_eq!(wait(control.person_by_email("b@example.com".into())), Ok(None));
}
