//! Sessions.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn sessions_end_and_expire(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let [short, long, ended] =
        [(1, 1000), (2, 5000), (3, 5000)].map(|(n, end)| new_session(n, 1, MORNING_MS + end));
    for session in [&short, &long, &ended] {
        wait(control.create_session(session.clone(), None)).unwrap();
    }
    let session = |n, now_ms| wait(control.session::<Person>(digest(n), now_ms)).unwrap();
    assert_eq!(session(1, MORNING_MS + 999), Some(short));
    assert_eq!(session(1, MORNING_MS + 1000), None);
    assert_eq!(session(1, u64::MAX), None);
    assert_eq!(session(4, MORNING_MS), None);
    assert_eq!(session(3, MORNING_MS), Some(ended));
    wait(control.end_session::<Person>(digest(3))).unwrap();
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
    wait(control.end_sessions::<Person>(person_id(1), None)).unwrap();
    let session = |n| wait(control.session::<Person>(digest(n), MORNING_MS)).unwrap();
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
    assert_eq!(wait(control.session::<Person>(digest(1), MORNING_MS)), Ok(None));
}

pub fn a_session_that_nobody_uses_ends_before_its_time(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let session = Session { idle_ms: 100, ..new_session(1, 1, MORNING_MS + 1000) };
    wait(control.create_session(session, None)).unwrap();
    let runs = |after| wait(control.session::<Person>(digest(1), MORNING_MS + after)).unwrap().is_some();
    let listed = |after| wait(control.sessions::<Person>(person_id(1), MORNING_MS + after)).unwrap().len();
    assert_eq!((runs(99), runs(100), listed(99), listed(100)), (true, false, 1, 0));
    wait(control.touch_session::<Person>(digest(1), MORNING_MS + 99)).unwrap();
    assert_eq!((runs(198), runs(199)), (true, false));
    // A node whose clock is behind does not take time away.
    wait(control.touch_session::<Person>(digest(1), MORNING_MS + 50)).unwrap();
    assert!(runs(198));
    for after in (150..=1200).step_by(50) {
        wait(control.touch_session::<Person>(digest(1), MORNING_MS + after)).unwrap();
    }
    assert_eq!((runs(999), runs(1000)), (true, false));
}

pub fn a_new_session_takes_the_place_of_the_one_before_it(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let half = Session { needs_code: true, user_agent: Some("Browser".into()), ..new_session(1, 1, 1 << 60) };
    wait(control.create_session(half.clone(), None)).unwrap();
    let session = |n| wait(control.session::<Person>(digest(n), MORNING_MS)).unwrap();
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
        let sessions = wait(control.sessions::<Person>(person_id(person), MORNING_MS)).unwrap();
        sessions.into_iter().map(|session| session.token_digest).collect()
    };
    assert_eq!(left(1), [digest(3), digest(2), digest(1)]);
    assert_eq!(wait(control.end_session_of::<Person>(person_id(1), digest(4))), Ok(false));
    assert_eq!(wait(control.end_session_of::<Person>(person_id(1), digest(2))), Ok(true));
    assert_eq!(wait(control.end_session_of::<Person>(person_id(1), digest(2))), Ok(false));
    assert_eq!((left(1), left(2)), (vec![digest(3), digest(1)], vec![digest(4)]));
    wait(control.end_sessions::<Person>(person_id(1), Some(digest(1)))).unwrap();
    assert_eq!((left(1), left(2)), (vec![digest(1)], vec![digest(4)]));
}

pub fn a_person_has_at_most_twenty_sessions_and_the_one_that_was_unused_for_longest_ends(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    for n in 1..=25 {
        let session = Session { last_seen_at_ms: MORNING_MS + u64::from(n), ..new_session(n, 1, 1 << 60) };
        wait(control.create_session(session, None)).unwrap();
    }
    let sessions = wait(control.sessions::<Person>(person_id(1), MORNING_MS)).unwrap();
    let left: Vec<_> = sessions.iter().map(|session| session.token_digest).collect();
    assert_eq!(left, (6..=25).rev().map(digest).collect::<Vec<_>>());
}

pub fn a_session_begins_with_the_password_that_the_person_has(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let begin = |n, person, hash: &str, replaces: Option<u8>| {
        let shown = Shown::Password { hash: hash.into(), replaces: replaces.map(digest) };
        wait(control.begin_session(new_session(n, person, 1 << 60), shown, Room::Ordinary)).unwrap()
    };
    let session = |n| wait(control.session::<Person>(digest(n), MORNING_MS)).unwrap();
    assert!(begin(1, 1, "$argon2id$1", None));
    assert!(begin(2, 1, "$argon2id$1", Some(1)));
    assert_eq!((session(1), session(2)), (None, Some(new_session(2, 1, 1 << 60))));
    wait(control.change_password(
        person_id(1),
        "$argon2id$1".into(),
        "new".into(),
        digest(9),
        PersonRecords::none(),
    ))
    .unwrap();
    assert!(!begin(3, 1, "$argon2id$1", None), "the password was another when it was checked");
    assert_eq!(session(3), None);
    assert!(begin(3, 1, "new", None));
    assert!(!begin(4, 2, "new", None), "nobody");
}

pub fn a_whole_session_begins_with_a_code_once_there_is_an_authenticator(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    wait(control.offer_authenticator(new_authenticator(1))).unwrap();
    let confirmed = wait(control.confirm_authenticator(
        person_id(1),
        vec![1; 20],
        7,
        vec![],
        None,
        PersonRecords::none(),
    ));
    assert_eq!(confirmed, Ok(true));
    let password = |n, needs_code| {
        let shown = Shown::Password { hash: "$argon2id$1".into(), replaces: None };
        let session = Session { needs_code, ..new_session(n, 1, u64::MAX) };
        wait(control.begin_session(session, shown, Room::Ordinary)).unwrap()
    };
    // Each code is another one: it is used up whether or not a session begins.
    let step = std::cell::Cell::new(8);
    let code = |n, person, asked_by| {
        let code = Code::Step { secret: vec![1; 20], step: step.replace(step.get() + 1) };
        let shown = Shown::Code { asked_by: digest(asked_by), code };
        wait(control.begin_session(new_session(n, person, u64::MAX), shown, Room::Ordinary)).unwrap()
    };
    assert!(!password(1, false));
    assert!(password(1, true));
    assert!(!code(2, 1, 9), "no session has asked for it");
    assert!(!code(2, 2, 1), "that of another has");
    assert!(code(2, 1, 1));
    assert!(!code(3, 1, 1), "it was answered");
    assert!(!code(3, 1, 2), "a whole one asks for nothing");
    assert!(password(4, true));
    wait(control.end_sessions::<Person>(person_id(1), None)).unwrap();
    assert!(!code(5, 1, 4), "it has ended");
}

/// An attacker who has the password, and no code, signs nobody out.
pub fn sessions_without_their_code_end_no_whole_one(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    wait(control.create_session(new_session(1, 1, 1 << 60), None)).unwrap();
    for n in 2..=30 {
        let half = Session {
            needs_code: true,
            last_seen_at_ms: MORNING_MS + u64::from(n),
            ..new_session(n, 1, 1 << 60)
        };
        wait(control.create_session(half, None)).unwrap();
    }
    let sessions = wait(control.sessions::<Person>(person_id(1), MORNING_MS)).unwrap();
    let left: Vec<_> = sessions.iter().map(|session| session.token_digest).collect();
    assert_eq!(left, (11..=30).rev().chain([1]).map(digest).collect::<Vec<_>>());
}
