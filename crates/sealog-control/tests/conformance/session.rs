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
        wait(control.create_session(session.clone(), None)).unwrap();
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
    wait(control.create_session(later.clone(), None)).unwrap();
    assert_eq!(session(2, MORNING_MS + 4999), Some(long));
    assert_eq!(session(5, MORNING_MS + 8999), Some(later));
}

pub fn all_sessions_of_a_person_end_together(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    for (n, person) in [(1, 1), (2, 1), (3, 2)] {
        wait(control.create_session(new_session(n, person, u64::MAX), None)).unwrap();
    }
    wait(control.end_sessions(person_id(1), None)).unwrap();
    let session = |n| wait(control.session(digest(n), MORNING_MS)).unwrap();
    assert_eq!((session(1), session(2)), (None, None));
    assert!(session(3).is_some());
}

pub fn sessions_that_are_over_are_removed_when_another_begins(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let begin = |n, at_ms, expires_at_ms| {
        let session = Session { created_at_ms: at_ms, ..new_session(n, 1, expires_at_ms) };
        wait(control.create_session(session, None)).unwrap();
        wait(control.export()).unwrap().sessions.len()
    };
    assert_eq!(begin(1, MORNING_MS, MORNING_MS + 1000), 1);
    assert_eq!(begin(2, MORNING_MS + 999, u64::MAX), 2);
    assert_eq!(begin(3, MORNING_MS + 1000, u64::MAX), 2);
    assert_eq!(wait(control.session(digest(1), MORNING_MS)), Ok(None));
}

pub fn a_session_that_nobody_uses_ends_before_its_time(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let session = Session { idle_ms: 100, ..new_session(1, 1, MORNING_MS + 1000) };
    wait(control.create_session(session, None)).unwrap();
    let runs = |after| wait(control.session(digest(1), MORNING_MS + after)).unwrap().is_some();
    let listed = |after| wait(control.sessions(person_id(1), MORNING_MS + after)).unwrap().len();
    assert_eq!((runs(99), runs(100), listed(99), listed(100)), (true, false, 1, 0));
    wait(control.touch_session(digest(1), MORNING_MS + 99)).unwrap();
    assert_eq!((runs(198), runs(199)), (true, false));
    // A node whose clock is behind does not take time away.
    wait(control.touch_session(digest(1), MORNING_MS + 50)).unwrap();
    assert!(runs(198));
    for after in (150..=1200).step_by(50) {
        wait(control.touch_session(digest(1), MORNING_MS + after)).unwrap();
    }
    assert_eq!((runs(999), runs(1000)), (true, false));
}

pub fn a_new_session_takes_the_place_of_the_one_before_it(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let half = Session { needs_code: true, user_agent: Some("Browser".into()), ..new_session(1, 1, 1 << 60) };
    wait(control.create_session(half.clone(), None)).unwrap();
    let session = |n| wait(control.session(digest(n), MORNING_MS)).unwrap();
    assert_eq!(session(1), Some(half));
    let whole = new_session(2, 1, 1 << 60);
    wait(control.create_session(whole.clone(), Some(digest(1)))).unwrap();
    assert_eq!((session(1), session(2)), (None, Some(whole)));
}

pub fn a_person_ends_one_session_or_all_others_and_never_anothers(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    for (n, person) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        let seen = Session { last_seen_at_ms: MORNING_MS + u64::from(n), ..new_session(n, person, u64::MAX) };
        wait(control.create_session(seen, None)).unwrap();
    }
    let left = |person| -> Vec<_> {
        let sessions = wait(control.sessions(person_id(person), MORNING_MS)).unwrap();
        sessions.into_iter().map(|session| session.token_digest).collect()
    };
    assert_eq!(left(1), [digest(3), digest(2), digest(1)]);
    assert_eq!(wait(control.end_session_of(person_id(1), digest(4))), Ok(false));
    assert_eq!(wait(control.end_session_of(person_id(1), digest(2))), Ok(true));
    assert_eq!(wait(control.end_session_of(person_id(1), digest(2))), Ok(false));
    assert_eq!((left(1), left(2)), (vec![digest(3), digest(1)], vec![digest(4)]));
    wait(control.end_sessions(person_id(1), Some(digest(1)))).unwrap();
    assert_eq!((left(1), left(2)), (vec![digest(1)], vec![digest(4)]));
}
