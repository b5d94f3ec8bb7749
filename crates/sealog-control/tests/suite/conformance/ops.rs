//! Accounts of those who run the instance, and their sessions.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

const HASH: &str = "$argon2id$1";

fn user_id(n: u8) -> OpsUserId {
    OpsUserId(id(n))
}

fn password(hash: &str) -> Shown {
    Shown::Password { hash: hash.into(), replaces: None }
}

fn code(asked_by: u8, secret: u8, step: u64) -> Shown {
    Shown::Code { asked_by: digest(asked_by), code: Code::Step { secret: vec![secret; 20], step } }
}

/// Somebody whose password is set.
fn enrolled(control: &Control, n: u8) {
    wait(control.add_ops_user(new_operator(n))).unwrap();
    wait(control.enrol_ops_user(digest(n + 100), MORNING_MS, HASH.into(), vec![9; 20])).unwrap().unwrap();
}

/// Somebody whose authenticator is confirmed, with the session `n`.
fn operator(control: &Control, n: u8) {
    enrolled(control, n);
    assert_eq!(wait(control.offer_ops_authenticator(user_id(n), vec![n; 20])), Ok(true));
    assert!(begin(control, new_ops_session(n + 50, n, true), password(HASH)));
    assert!(begin(control, new_ops_session(n, n, false), code(n + 50, n, 7)));
}

fn begin(control: &Control, session: Session<OpsUser>, shown: Shown) -> bool {
    wait(control.begin_session(session, shown, Room::Reserve)).unwrap()
}

fn session(control: &Control, n: u8, now_ms: u64) -> Option<Session<OpsUser>> {
    wait(control.session(digest(n), now_ms)).unwrap()
}

pub fn a_link_sets_the_password_of_an_operator_once_and_until_it_is_over(control: &Control) {
    let made = wait(control.add_ops_user(new_operator(1))).unwrap();
    assert_eq!((made.password_hash.as_deref(), made.is_enrolled()), (None, false));
    let enrol = |link, now_ms, hash: &str| {
        let user = wait(control.enrol_ops_user(digest(link), now_ms, hash.into(), vec![9; 20])).unwrap();
        user.and_then(|user| user.password_hash)
    };
    assert_eq!(enrol(102, MORNING_MS, "a"), None, "no such link");
    assert_eq!(enrol(101, MORNING_MS + 1000, "a"), None, "it is over");
    assert_eq!(enrol(101, MORNING_MS + 999, "a"), Some("a".into()));
    assert_eq!(enrol(101, MORNING_MS + 999, "b"), None, "it was used");
    let user = wait(control.account_by_email("OPERATOR1@example.com".into())).unwrap().unwrap();
    let (user, hash): (OpsUser, _) = user;
    assert_eq!((hash.as_deref(), user.link), (Some("a"), None));
    assert_eq!(
        (user.secret, user.last_step),
        (Some(vec![9; 20]), None),
        "an authenticator is offered with it"
    );
}

pub fn an_address_is_one_operators_until_that_one_is_removed(control: &Control) {
    operator(control, 1);
    let again = NewOpsUser { email: "OPERATOR1@EXAMPLE.com".into(), ..new_operator(2) };
    assert_eq!(wait(control.add_ops_user(again.clone())), Err(ChangeError::AlreadyExists));
    wait(control.add_ops_user(new_operator(3))).unwrap();
    let page = |after, limit| ListPage { after, limit };
    let ids = |page| {
        let users = wait(control.ops_users(page)).unwrap();
        users.into_iter().map(|user| user.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(page(None, 9)), [user_id(1), user_id(3)]);
    assert_eq!(ids(page(Some(id(1)), 9)), [user_id(3)]);
    assert_eq!(ids(page(None, 1)), [user_id(1)]);
    assert!(wait(control.remove_ops_user("operator1@example.com".into(), MORNING_MS)).unwrap().is_some());
    assert_eq!(wait(control.remove_ops_user("operator1@example.com".into(), MORNING_MS)), Ok(None));
    wait(control.add_ops_user(again)).unwrap();
    assert_eq!(ids(page(None, 9)), [user_id(3), user_id(2)]);
}

pub fn an_operator_who_has_never_shown_a_code_gets_another_link_and_one_who_has_does_not(control: &Control) {
    enrolled(control, 1);
    let link = OpsLink { digest: digest(90), expires_at_ms: MORNING_MS + 5000 };
    let another = NewOpsUser { id: user_id(2), link, ..new_operator(1) };
    let user = wait(control.add_ops_user(another.clone())).unwrap();
    assert_eq!((user.id, user.link), (user_id(1), Some(link)), "the same account");
    assert_eq!(wait(control.enrol_ops_user(digest(101), MORNING_MS, "b".into(), vec![9; 20])), Ok(None));
    assert!(
        wait(control.enrol_ops_user(digest(90), MORNING_MS, HASH.into(), vec![9; 20])).unwrap().is_some()
    );
    assert_eq!(wait(control.offer_ops_authenticator(user_id(1), vec![1; 20])), Ok(true));
    assert!(begin(control, new_ops_session(3, 1, true), password(HASH)));
    assert!(begin(control, new_ops_session(4, 1, false), code(3, 1, 7)));
    assert_eq!(wait(control.add_ops_user(another)), Err(ChangeError::AlreadyExists));
}

pub fn a_password_alone_begins_no_whole_session_of_an_operator(control: &Control) {
    wait(control.add_ops_user(new_operator(1))).unwrap();
    assert!(!begin(control, new_ops_session(1, 1, true), password(HASH)), "there is no password");
    wait(control.enrol_ops_user(digest(101), MORNING_MS, HASH.into(), vec![9; 20])).unwrap().unwrap();
    assert!(!begin(control, new_ops_session(1, 1, false), password(HASH)));
    assert!(!begin(control, new_ops_session(1, 1, true), password("$argon2id$other")));
    assert!(!begin(control, new_ops_session(1, 2, true), password(HASH)), "there is no such account");
    assert_eq!(session(control, 1, MORNING_MS), None);
    assert!(begin(control, new_ops_session(1, 1, true), password(HASH)));
    assert_eq!(session(control, 1, MORNING_MS), Some(new_ops_session(1, 1, true)));
    // One in place of another.
    let shown = Shown::Password { hash: HASH.into(), replaces: Some(digest(1)) };
    assert!(begin(control, new_ops_session(2, 1, true), shown));
    assert_eq!(session(control, 1, MORNING_MS), None);
    assert!(session(control, 2, MORNING_MS).is_some());
}

pub fn a_code_of_an_operator_works_once_for_the_session_that_asked(control: &Control) {
    operator(control, 1);
    operator(control, 2);
    assert_eq!(session(control, 51, MORNING_MS), None, "the whole one has taken its place");
    assert!(begin(control, new_ops_session(3, 1, true), password(HASH)));
    for (shown, why) in [
        (code(3, 1, 7), "the step was used"),
        (code(3, 1, 6), "a step before one that was used"),
        (code(3, 2, 8), "the secret of another"),
        (code(4, 1, 8), "no such session"),
    ] {
        assert!(!begin(control, new_ops_session(5, 1, false), shown), "{why}");
    }
    assert!(!begin(control, new_ops_session(5, 2, false), code(3, 2, 9)), "the session of another");
    assert!(begin(control, new_ops_session(5, 1, false), code(3, 1, 9)));
    assert!(
        !begin(control, new_ops_session(6, 1, false), code(5, 1, 10)),
        "a whole session asks for nothing"
    );
    assert!(session(control, 1, MORNING_MS).is_some() && session(control, 5, MORNING_MS).is_some());
}

pub fn an_authenticator_of_an_operator_is_replaced_until_its_first_code(control: &Control) {
    enrolled(control, 1);
    let offer = |secret: u8| wait(control.offer_ops_authenticator(user_id(1), vec![secret; 20])).unwrap();
    assert!(offer(1) && offer(2));
    for n in [3, 4] {
        assert!(begin(control, new_ops_session(n, 1, true), password(HASH)));
    }
    assert!(!begin(control, new_ops_session(5, 1, false), code(3, 1, 7)), "it was replaced");
    assert!(begin(control, new_ops_session(5, 1, false), code(3, 2, 7)));
    assert_eq!(session(control, 4, MORNING_MS), None, "it began when no code was asked for");
    assert!(!offer(3), "it is confirmed");
    assert!(!wait(control.offer_ops_authenticator(user_id(9), vec![1; 20])).unwrap());
    let user = wait(control.account::<OpsUser>(user_id(1))).unwrap().unwrap();
    assert_eq!((user.secret, user.last_step), (Some(vec![2; 20]), Some(7)));
}

pub fn sessions_of_an_operator_end_with_time_and_idleness(control: &Control) {
    operator(control, 1);
    assert!(session(control, 1, MORNING_MS + 499).is_some());
    assert_eq!(session(control, 1, MORNING_MS + 500), None);
    wait(control.touch_session::<OpsUser>(digest(1), MORNING_MS + 499)).unwrap();
    wait(control.touch_session::<OpsUser>(digest(1), MORNING_MS)).unwrap();
    assert!(session(control, 1, MORNING_MS + 998).is_some(), "a use is never forgotten");
    assert_eq!(session(control, 1, MORNING_MS + 1000), None);
    assert_eq!(session(control, 1, u64::MAX), None);
    wait(control.end_session::<OpsUser>(digest(1))).unwrap();
    assert_eq!(session(control, 1, MORNING_MS), None);
    // Those that are over are removed when another begins.
    for (n, created_at_ms) in [(3, MORNING_MS), (4, MORNING_MS + 1000)] {
        let late =
            Session { created_at_ms, expires_at_ms: created_at_ms + 1000, ..new_ops_session(n, 1, true) };
        assert!(begin(control, late, password(HASH)));
    }
    assert_eq!(wait(control.export()).unwrap().ops_sessions.len(), 1);
}

pub fn a_removed_operator_has_no_session_no_password_and_no_way_back(control: &Control) {
    operator(control, 1);
    wait(control.add_ops_user(new_operator(2))).unwrap();
    for n in [1, 2] {
        let removed = wait(control.remove_ops_user(format!("operator{n}@example.com"), MORNING_MS + 5));
        assert_eq!(removed.unwrap().map(|user| user.id), Some(user_id(n)));
        assert_eq!(wait(control.account::<OpsUser>(user_id(n))), Ok(None));
    }
    assert_eq!(session(control, 1, MORNING_MS), None);
    assert!(!begin(control, new_ops_session(3, 1, true), password(HASH)));
    assert_eq!(wait(control.enrol_ops_user(digest(102), MORNING_MS, HASH.into(), vec![9; 20])), Ok(None));
    assert!(!wait(control.offer_ops_authenticator(user_id(1), vec![1; 20])).unwrap());
    // The id stays known, since events name it.
    let kept = wait(control.export()).unwrap().ops_users;
    assert_eq!(kept.iter().map(|user| user.id).collect::<Vec<_>>(), [user_id(1), user_id(2)]);
    for user in kept {
        assert_eq!((user.password_hash, user.secret, user.link), (None, None, None));
        assert_eq!(user.removed_at_ms, Some(MORNING_MS + 5));
    }
}

pub fn an_operator_and_a_person_with_the_same_token_have_nothing_in_common(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "Operator1@Example.com"), Records::none())).unwrap();
    operator(control, 1);
    wait(control.create_session(new_session(7, 1, u64::MAX), None)).unwrap();
    assert_eq!(session(control, 7, MORNING_MS), None);
    assert_eq!(wait(control.session::<Person>(digest(1), MORNING_MS)), Ok(None));
    wait(control.end_sessions::<Person>(person_id(1), None)).unwrap();
    assert!(session(control, 1, MORNING_MS).is_some());
    assert!(wait(control.account_by_email::<OpsUser>("operator1@example.com".into())).unwrap().is_some());
    wait(control.remove_ops_user("operator1@example.com".into(), MORNING_MS)).unwrap().unwrap();
    assert!(wait(control.person_by_email("operator1@example.com".into())).unwrap().is_some());
}

fn browser(n: u8, user: u8) -> Device<OpsUser> {
    Device { account_id: user_id(user), digest: digest(n), created_at_ms: 1, last_seen_at_ms: n.into() }
}

pub fn browsers_of_an_operator_are_known_until_the_operator_is_removed(control: &Control) {
    operator(control, 1);
    operator(control, 2);
    let signs_in = |n, user, most| wait(control.signed_in_with(browser(n, user), most, None)).unwrap();
    let knows = |n, user| wait(control.knows_device::<OpsUser>(user_id(user), digest(n))).unwrap();
    assert_eq!((signs_in(1, 1, 2), signs_in(1, 1, 2)), (DeviceSeen::First, DeviceSeen::Known));
    assert_eq!((signs_in(1, 2, 2), signs_in(2, 1, 2)), (DeviceSeen::First, DeviceSeen::New));
    assert_eq!((knows(1, 1), knows(2, 1), knows(1, 2), knows(2, 2)), (true, true, true, false));
    assert_eq!(signs_in(3, 1, 2), DeviceSeen::New);
    assert_eq!((knows(1, 1), knows(2, 1), knows(3, 1)), (false, true, true), "two are known");
    // What one kind knows, the other does not.
    assert!(!wait(control.knows_device::<Person>(PersonId(user_id(1).0), digest(3))).unwrap());
    wait(control.remove_ops_user("operator1@example.com".into(), MORNING_MS)).unwrap().unwrap();
    assert_eq!((knows(2, 1), knows(3, 1), knows(1, 2)), (false, false, true));
}
