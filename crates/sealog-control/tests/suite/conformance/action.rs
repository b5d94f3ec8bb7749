//! Custom actions.

use sealog_control::*;
use sealog_core::catalog::CustomAction;

use super::common::*;
use sealog_testing::*;

pub fn actions_are_unique_in_their_tenant(control: &Control) {
    let (tenant, ..) = furnish(control);
    let other = wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let action = CustomAction {
        description: Some("d".into()),
        category: Some("c".into()),
        severity: Some("warn".into()),
        required_fields: vec!["b".into(), "a \"quoted\", one".into()],
        optional_fields: vec!["é".into()],
        ..custom("b.created")
    };
    assert_eq!(wait(control.create_action(tenant.id, action.clone(), vec![])), Ok(Some(action.clone())));
    assert_eq!(
        wait(control.create_action(tenant.id, custom("b.created"), vec![])),
        Err(ChangeError::AlreadyExists)
    );
    // Another spelling is another action, and another tenant has its own.
    for name in ["B.created", "a.created", "é.created"] {
        wait(control.create_action(tenant.id, custom(name), vec![])).unwrap();
    }
    assert_eq!(
        wait(control.create_action(other.id, custom("b.created"), vec![])),
        Ok(Some(custom("b.created")))
    );
    let in_order = vec![custom("B.created"), custom("a.created"), action, custom("é.created")];
    assert_eq!(wait(control.actions(tenant.id)), Ok(in_order));
    assert_eq!(wait(control.actions(other.id)), Ok(vec![custom("b.created")]));
}

pub fn a_retired_action_is_gone_from_access_stays_known_and_its_name_is_free(control: &Control) {
    let (tenant, ..) = furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for name in ["a.b", "c.d"] {
        wait(control.create_action(tenant.id, custom(name), vec![])).unwrap();
    }
    let retire = |tenant, name: &str, n| {
        wait(control.retire_action(tenant_id(tenant), name.into(), MORNING_MS + 1, vec![record(n)])).unwrap()
    };
    assert_eq!((retire(1, "x.y", 1), retire(2, "a.b", 2)), (None, None));
    let before = control.version_of(tenant.id);
    assert_eq!((retire(1, "a.b", 3), retire(1, "a.b", 4)), (Some(()), None));
    assert!(control.version_of(tenant.id) > before, "every node hears of it");
    assert_eq!(wait(control.count_records()), Ok(1));
    assert_eq!(wait(control.actions(tenant.id)), Ok(vec![custom("c.d")]));
    assert_eq!(wait(control.access(digest(1))).unwrap().unwrap().actions, [custom("c.d")]);
    let known = |name, retired_at_ms| KnownAction { action: custom(name), retired_at_ms };
    let all = vec![known("a.b", Some(MORNING_MS + 1)), known("c.d", None)];
    assert_eq!(wait(control.known_actions(tenant.id)), Ok(all));
    let again = CustomAction { required_fields: vec!["x".into()], ..custom("a.b") };
    wait(control.create_action(tenant.id, again.clone(), vec![])).unwrap();
    assert_eq!(wait(control.actions(tenant.id)), Ok(vec![again, custom("c.d")]));
}
