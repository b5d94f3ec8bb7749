//! Settings of a tenant.

use sealog_control::*;
use sealog_store::StoreError;

use super::common::*;
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

pub fn several_settings_are_set_at_once_or_not_at_all_and_found_for_a_member(control: &Control) {
    furnish(control);
    for tenant in [2, 3] {
        wait(control.create_tenant(new_tenant(tenant), vec![])).unwrap();
    }
    for tenant in [1, 2] {
        wait(control.add_member(new_member(1, tenant, "a@example.com"), Records::none())).unwrap();
    }
    let set = |tenant, settings: &[(&str, Option<&str>)]| {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
        wait(control.set_settings(tenant_id(tenant), settings.collect(), vec![]))
    };
    assert_eq!(set(1, &[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))]), Ok(true));
    assert_eq!((set(2, &[("b", Some("4"))]), set(3, &[("b", Some("5"))])), (Ok(true), Ok(true)));
    assert!(set(1, &[("a", None), ("b", Some("no"))]).is_err());
    let found = wait(control.settings_for(person_id(1), vec!["a", "b"])).unwrap();
    let mut expected = vec![
        (tenant_id(1), "a".to_owned(), "1".to_owned()),
        (tenant_id(1), "b".to_owned(), "2".to_owned()),
        (tenant_id(2), "b".to_owned(), "4".to_owned()),
    ];
    expected.sort_by_key(|(tenant_id, name, _)| (tenant_id.0, name.clone()));
    assert_eq!(found, expected);
    assert_eq!(wait(control.settings_for(person_id(2), vec!["a", "b"])), Ok(vec![]));
    assert_eq!((set(1, &[("a", None), ("b", None)]), set(9, &[])), (Ok(true), Ok(false)));
    assert_eq!(wait(control.settings(tenant_id(1))).unwrap().len(), 1);
}
