//! Custom actions.

use sealog_control::*;
use sealog_core::catalog::CustomAction;

use crate::common::*;
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
