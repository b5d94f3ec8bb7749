//! Saved views.

use sealog_control::*;

use crate::common::*;
use sealog_testing::*;

pub fn a_person_has_so_many_views_in_a_tenant_and_one_of_a_name(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant) in [(1, 1), (2, 1), (1, 2)] {
        wait(control.add_member(new_member(n, tenant, &format!("{n}@example.com")), Records::none()))
            .unwrap();
    }
    let view = |n: u8, tenant, person, name: &str| SavedView {
        id: id(n),
        tenant_id: tenant_id(tenant),
        person_id: person_id(person),
        name: name.into(),
        query: format!("q={n}"),
        created_at_ms: MORNING_MS,
    };
    let save = |view| wait(control.save_view(view, 2)).unwrap();
    assert!(save(view(1, 1, 1, "a")) && save(view(2, 1, 1, "b")));
    assert!(!save(view(3, 1, 1, "c")), "there is no room for a third one");
    assert!(save(view(3, 1, 1, "a")), "but for another one of the same name");
    assert!(save(view(4, 1, 2, "a")) && save(view(5, 2, 1, "a")), "others have their own");
    let of = |tenant, person| wait(control.saved_views(tenant_id(tenant), person_id(person))).unwrap();
    assert_eq!(of(1, 1), [view(2, 1, 1, "b"), view(3, 1, 1, "a")]);
    let remove =
        |n, tenant, person| wait(control.remove_view(tenant_id(tenant), person_id(person), id(n))).unwrap();
    assert!(!remove(2, 1, 2) && !remove(2, 2, 1), "that of somebody else, and that of another tenant");
    assert!(remove(2, 1, 1) && !remove(2, 1, 1));
    assert_eq!(of(1, 1), [view(3, 1, 1, "a")]);
}
