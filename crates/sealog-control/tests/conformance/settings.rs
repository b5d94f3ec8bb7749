//! Settings of a tenant.

use sealog_control::*;
use sealog_store::StoreError;

use crate::common::*;
use sealog_testing::*;

pub fn settings_are_set_changed_and_taken_away_for_one_tenant(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let set = |tenant, name: &str, value: Option<&str>| {
        wait(control.set_setting(tenant_id(tenant), name.into(), value.map(Into::into), vec![])).unwrap()
    };
    assert!(set(1, "b", Some("{\"days\": 90}")) && set(1, "a", Some("true")) && set(2, "a", Some("\"é\"")));
    assert!(set(1, "B", Some("1")));
    let all = |tenant| wait(control.settings(tenant_id(tenant))).unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(all(1), [pair("B", "1"), pair("a", "true"), pair("b", "{\"days\": 90}")]);
    assert!(set(1, "b", Some("null")) && set(1, "B", None) && set(1, "never", None));
    assert_eq!(all(1), [pair("a", "true"), pair("b", "null")]);
    assert_eq!(all(2), [pair("a", "\"é\"")]);
    let one = |name: &str| wait(control.setting(tenant_id(1), name.into())).unwrap();
    assert_eq!((one("a").as_deref(), one("c")), (Some("true"), None));
    assert!(!set(9, "a", Some("1")), "there is no such tenant");
}

pub fn a_setting_that_is_no_json_is_refused(control: &Control) {
    furnish(control);
    for value in ["", "{", "yes", "1 2"] {
        let set = wait(control.set_setting(tenant_id(1), "a".into(), Some(value.into()), vec![record(1)]));
        assert!(matches!(set, Err(StoreError::Refused(_))), "{value}: {set:?}");
    }
    assert_eq!((wait(control.settings(tenant_id(1))), wait(control.count_records())), (Ok(vec![]), Ok(0)));
}
