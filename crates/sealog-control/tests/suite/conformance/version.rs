//! Versions: who has to ask again.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn every_change_of_access_raises_the_version_of_its_tenant_and_of_no_other(control: &Control) {
    wait(control.create_tenant(new_tenant(1), vec![])).unwrap();
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let other = control.version_of(tenant_id(2));
    assert!(other > control.version_of(tenant_id(1)) && other == control.version());
    let mut last = (control.version(), control.version_of(tenant_id(1)));
    let mut has_grown = || {
        let before = std::mem::replace(&mut last, (control.version(), control.version_of(tenant_id(1))));
        assert_eq!(last.0 > before.0, last.1 > before.1);
        last.0 > before.0
    };
    wait(control.create_project(new_project(1, 1, &[]), vec![])).unwrap();
    assert!(has_grown());
    wait(control.create_key(new_key(1, 1), vec![])).unwrap();
    assert!(has_grown());
    wait(control.create_action(tenant_id(1), custom("a.b"), vec![])).unwrap();
    assert!(has_grown());
    wait(control.set_setting(tenant_id(1), "a".into(), Some("1".into()), vec![])).unwrap();
    assert!(has_grown());
    wait(control.update_tenant(tenant_id(1), TenantChange::default(), Records::none())).unwrap();
    assert!(has_grown());
    wait(control.update_project(project_id(1), ProjectChange::default(), Records::none())).unwrap();
    assert!(has_grown());
    wait(control.revoke_key(KeyId(id(1)), MORNING_MS, Records::none())).unwrap();
    assert!(has_grown());
    // What happens all the time and alters nothing that a request may do leaves the caches alone, and so does
    // what did not happen.
    wait(control.keys_used(vec![KeyUse::once(KeyId(id(1)), MORNING_MS)])).unwrap();
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    wait(control.create_session(new_session(1, 1, u64::MAX), None)).unwrap();
    wait(control.enqueue_notice(new_notice(1, 1, 80))).unwrap();
    wait(control.create_job(new_job(1, 1))).unwrap();
    wait(control.access(digest(1))).unwrap();
    wait(control.create_action(tenant_id(1), custom("a.b"), vec![])).unwrap_err();
    wait(control.revoke_key(KeyId(id(9)), MORNING_MS, Records::none())).unwrap();
    assert!(!has_grown());
    assert_eq!(control.version_of(tenant_id(2)), other);
    let all = wait(control.export()).unwrap();
    wait(control.replace(all)).unwrap();
    assert!(has_grown() && control.version_of(tenant_id(2)) > other);
}
