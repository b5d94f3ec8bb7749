//! Tenants, and the first of them.

use sealog_control::*;
use sealog_core::id::{ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_store::StoreError;

use super::common::*;
use sealog_testing::*;

pub fn the_first_tenant_comes_with_its_keys_in_one_step_and_only_into_an_empty_store(control: &Control) {
    let first = |n: u8| FirstRun {
        tenant: new_tenant(n),
        project: new_project(n, n, &[]),
        keys: vec![new_key(n, n), new_key(n + 1, n)],
        owner: new_member(n, n, "owner@localhost"),
        claim: Some(new_link(n, claim(n, n))),
    };
    let version = control.version();
    // Two keys of the same id: the last step but one fails, and nothing is left of those before it.
    let failing = FirstRun { keys: vec![new_key(1, 1), new_key(1, 1)], ..first(1) };
    assert!(matches!(wait(control.create_first(failing, vec![])), Err(StoreError::Refused(_))));
    assert_eq!(wait(control.tenants(ListPage { after: None, limit: 9 })), Ok(vec![]));

    assert_eq!(wait(control.create_first(first(1), vec![])), Ok(true));
    assert!(control.version() > version);
    for n in [1, 2] {
        let access = wait(control.access(digest(n))).unwrap().unwrap();
        assert_eq!((access.tenant.id, access.project.id), (TenantId(id(1)), ProjectId(id(1))));
    }
    assert!(wait(control.person_by_email("owner@localhost".into())).unwrap().is_some());
    assert!(wait(control.link(digest(1), MORNING_MS)).unwrap().is_some());

    assert_eq!(wait(control.create_first(first(5), vec![])), Ok(false));
    assert_eq!(wait(control.tenants(ListPage { after: None, limit: 9 })).unwrap().len(), 1);
    assert_eq!(wait(control.access(digest(5))), Ok(None));
}

pub fn a_created_tenant_reads_back_with_its_plan_and_billing(control: &Control) {
    let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new_tenant(1);
    let expected = Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms };
    assert_eq!(wait(control.create_tenant(new_tenant(1), vec![])), Ok(expected.clone()));
    assert_eq!(wait(control.tenant(id)), Ok(Some(expected)));
    assert_eq!(wait(control.tenant(TenantId(Uuid([9; 16])))), Ok(None));
    let bare = NewTenant {
        name: "é\0\"".into(),
        contact_email: None,
        billing: Billing { trial_ends_at_ms: None, billing_active: true },
        ..new_tenant(2)
    };
    let created = wait(control.create_tenant(bare.clone(), vec![])).unwrap();
    assert_eq!((&created.name, &created.contact_email, created.billing), (&bare.name, &None, bare.billing));
    assert_eq!(wait(control.tenant(bare.id)), Ok(Some(created)));
}

pub fn a_change_leaves_other_fields_alone_and_null_clears(control: &Control) {
    let (mut tenant, mut project, _) = furnish(control);
    let change_tenant = |change| wait(control.update_tenant(tenant.id, change, Records::none())).unwrap();
    assert_eq!(change_tenant(TenantChange::default()), Some(tenant.clone()));

    let change = TenantChange {
        plan: Some("top".into()),
        billing_active: Some(true),
        rate_limit_rps: Some(Some(7)),
        ..TenantChange::default()
    };
    tenant.plan = "top".into();
    tenant.billing.billing_active = true;
    tenant.rate_limit_rps = Some(7);
    assert_eq!(change_tenant(change), Some(tenant.clone()));

    let change = TenantChange {
        name: Some("New".into()),
        contact_email: Some(None),
        trial_ends_at_ms: Some(None),
        rate_limit_rps: Some(None),
        ..TenantChange::default()
    };
    tenant.name = "New".into();
    tenant.contact_email = None;
    tenant.billing.trial_ends_at_ms = None;
    tenant.rate_limit_rps = None;
    assert_eq!(change_tenant(change), Some(tenant.clone()));
    assert_eq!(wait(control.tenant(tenant.id)), Ok(Some(tenant)));

    let change_project = |change| wait(control.update_project(project.id, change, Records::none())).unwrap();
    assert_eq!(change_project(ProjectChange::default()), Some(project.clone()));
    let change = ProjectChange { rate_limit_rps: Some(Some(u32::MAX)), ..ProjectChange::default() };
    project.rate_limit_rps = Some(u32::MAX);
    assert_eq!(change_project(change), Some(project.clone()));
    let change =
        ProjectChange { name: Some("New".into()), rate_limit_rps: Some(None), ..ProjectChange::default() };
    project.name = "New".into();
    project.rate_limit_rps = None;
    assert_eq!(change_project(change), Some(project.clone()));
    assert_eq!(wait(control.project(project.id)), Ok(Some(project)));
}

pub fn tenants_are_found_by_a_part_of_their_name_and_pages_join(control: &Control) {
    for (n, name) in [(1, "Acme"), (2, "100% acme_b!"), (3, "Other"), (4, "ACME three")] {
        wait(control.create_tenant(NewTenant { name: name.into(), ..new_tenant(n) }, vec![])).unwrap();
    }
    let find = |text: &str, after: Option<u8>, limit| {
        let page = ListPage { after: after.map(id), limit };
        let found = wait(control.tenants_like(text.into(), page)).unwrap();
        found.into_iter().map(|tenant| tenant.id).collect::<Vec<_>>()
    };
    let ids = |numbers: &[u8]| numbers.iter().map(|n| tenant_id(*n)).collect::<Vec<_>>();
    assert_eq!(find("aCmE", None, 9), ids(&[1, 2, 4]));
    assert_eq!(find("acme", None, 2), ids(&[1, 2]));
    assert_eq!(find("acme", Some(2), 2), ids(&[4]));
    assert_eq!(find("acme", Some(9), 2), ids(&[]), "behind one that does not exist");
    // What means something in a pattern means itself.
    for (text, found) in [("%", &[2][..]), ("_", &[2]), ("!", &[2]), ("", &[1, 2, 3, 4]), ("acme%", &[])] {
        assert_eq!(find(text, None, 9), ids(found), "{text}");
    }
}
