//! Sessions.

use sealog_control::*;

use crate::common::*;
use sealog_testing::*;

pub fn sessions_end_and_expire(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let [short, long, ended] =
        [(1, 1000), (2, 5000), (3, 5000)].map(|(n, end)| new_session(n, 1, MORNING_MS + end));
    for session in [&short, &long, &ended] {
        wait(control.create_session(session.clone())).unwrap();
    }
    let session = |n, now_ms| wait(control.session(digest(n), now_ms)).unwrap();
    assert_eq!(session(1, MORNING_MS + 999), Some(short));
    assert_eq!(session(1, MORNING_MS + 1000), None);
    assert_eq!(session(1, u64::MAX), None);
    assert_eq!(session(4, MORNING_MS), None);
    assert_eq!(session(3, MORNING_MS), Some(ended));
    wait(control.end_session(digest(3))).unwrap();
    assert_eq!(session(3, MORNING_MS), None);
    assert_eq!(session(2, MORNING_MS), Some(long.clone()));
    // A later one does not end those that still run.
    let later = Session { created_at_ms: MORNING_MS + 4999, ..new_session(5, 1, MORNING_MS + 9000) };
    wait(control.create_session(later.clone())).unwrap();
    assert_eq!(session(2, MORNING_MS + 4999), Some(long));
    assert_eq!(session(5, MORNING_MS + 8999), Some(later));
}

pub fn all_sessions_of_a_person_end_together(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    for (n, person) in [(1, 1), (2, 1), (3, 2)] {
        wait(control.create_session(new_session(n, person, u64::MAX))).unwrap();
    }
    wait(control.end_sessions(person_id(1))).unwrap();
    let session = |n| wait(control.session(digest(n), MORNING_MS)).unwrap();
    assert_eq!((session(1), session(2)), (None, None));
    assert!(session(3).is_some());
}

pub fn sessions_that_are_over_are_removed_when_another_begins(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let begin = |n, at_ms, expires_at_ms| {
        wait(control.create_session(Session { created_at_ms: at_ms, ..new_session(n, 1, expires_at_ms) }))
            .unwrap();
        wait(control.export()).unwrap().sessions.len()
    };
    assert_eq!(begin(1, MORNING_MS, MORNING_MS + 1000), 1);
    assert_eq!(begin(2, MORNING_MS + 999, u64::MAX), 2);
    assert_eq!(begin(3, MORNING_MS + 1000, u64::MAX), 2);
    assert_eq!(wait(control.session(digest(1), MORNING_MS)), Ok(None));
}
