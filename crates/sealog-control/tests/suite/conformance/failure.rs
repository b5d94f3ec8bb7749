//! Failed sign-ins, until they are recorded.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

fn count(control: &Control, n: u8, what: Wrong, now_ms: u64) {
    wait(control.count_failure(person_id(n), what, now_ms)).unwrap();
}

fn furnished(control: &Control) {
    furnish(control);
    for n in 1..=3 {
        let new = NewMember { role: Role::Developer, ..new_member(n, 1, &format!("{n}@example.com")) };
        wait(control.add_member(new, Records::none())).unwrap().unwrap();
    }
}

/// Records what began until then; how many people it was, and what was recorded.
fn take(control: &Control, until_ms: u64, limit: usize) -> (usize, Vec<String>) {
    let tell = |failed: &Failed| {
        let Failed { passwords, codes, began_at_ms, person_id: PersonId(id) } = *failed;
        let draft = format!("{passwords} {codes} {}", began_at_ms - MORNING_MS);
        NewRecord { id, draft, created_at_ms: 1 }
    };
    let people = wait(control.record_failures(until_ms, limit, Box::new(tell))).unwrap();
    let records = wait(control.pending_records(tenant_id(1), 99)).unwrap();
    for record in &records {
        wait(control.remove_record(record.id)).unwrap();
    }
    (people, records.into_iter().map(|record| record.draft).collect())
}

pub fn failures_are_counted_until_they_are_recorded_together(control: &Control) {
    furnished(control);
    count(control, 1, Wrong::Password, MORNING_MS);
    count(control, 2, Wrong::Code, MORNING_MS + 5);
    for later in 1..=4 {
        count(control, 1, Wrong::Password, MORNING_MS + later);
    }
    count(control, 1, Wrong::Code, MORNING_MS + 9);
    assert_eq!(take(control, MORNING_MS - 1, 9), (0, vec![]));
    assert_eq!(take(control, MORNING_MS, 9), (1, vec!["5 1 0".into()]));
    assert_eq!(take(control, MORNING_MS, 9), (0, vec![]), "once");
    count(control, 1, Wrong::Password, MORNING_MS + 10);
    assert_eq!(take(control, MORNING_MS + 10, 1), (1, vec!["0 1 5".into()]), "so many at a time");
    assert_eq!(take(control, MORNING_MS + 10, 1), (1, vec!["1 0 10".into()]));
}

pub fn failures_at_the_same_time_are_all_counted(control: &Control) {
    furnished(control);
    let counts: Vec<_> =
        (0..20).map(|_| control.count_failure(person_id(1), Wrong::Password, MORNING_MS)).collect();
    counts.into_iter().for_each(|count| wait(count).unwrap());
    assert_eq!(take(control, MORNING_MS, 9), (1, vec!["20 0 0".into()]));
}
