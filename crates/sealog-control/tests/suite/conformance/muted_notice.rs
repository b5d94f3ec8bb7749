//! Optional notices that members do not want.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn what_somebody_does_not_want_is_kept_for_one_person_in_one_tenant(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for n in [1, 2] {
        for tenant in [1, 2] {
            wait(control.add_member(new_member(n, tenant, &format!("{n}@example.com")), Records::none()))
                .unwrap();
        }
    }
    let made = std::cell::Cell::new(100);
    let next = || {
        made.set(made.get() + 1);
        vec![record(made.get())]
    };
    let before = wait(control.pending_records(tenant_id(1), 99)).unwrap().len();
    let set = |tenant, person, notices: &[&str]| {
        let notices = notices.iter().map(|notice| (*notice).to_owned()).collect();
        wait(control.set_muted_notices(tenant_id(tenant), person_id(person), notices, next())).unwrap();
    };
    let muted = |tenant, person| wait(control.muted_notices(tenant_id(tenant), person_id(person))).unwrap();
    let by = |tenant, notice: &str| {
        let mut by = wait(control.muted_by(tenant_id(tenant), notice.into())).unwrap();
        by.sort_unstable();
        by
    };
    set(1, 1, &["b", "a"]);
    set(1, 2, &["b"]);
    set(2, 1, &["c"]);
    assert_eq!(
        (muted(1, 1), muted(1, 2), muted(2, 1)),
        (vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned()], vec!["c".to_owned()],)
    );
    let mut both = vec![person_id(1), person_id(2)];
    both.sort_unstable();
    assert_eq!((by(1, "b"), by(1, "a"), by(2, "b")), (both, vec![person_id(1)], vec![]));
    let more = || MutedNotice { tenant_id: tenant_id(1), person_id: person_id(2), notice: "d".into() };
    for _ in 0..2 {
        wait(control.mute_notice(more(), next())).unwrap();
    }
    assert_eq!(muted(1, 2), ["b", "d"]);
    set(1, 1, &[]);
    assert_eq!((muted(1, 1), muted(2, 1).len(), by(1, "b")), (vec![], 1, vec![person_id(2)]));
    // Each change has left its record, and what was so before has left none.
    set(1, 1, &[]);
    set(2, 1, &["c", "c"]);
    let records = |tenant| wait(control.pending_records(tenant_id(tenant), 99)).unwrap().len();
    assert_eq!((records(1) - before, records(2)), (4, 1));
}
