//! Authenticators and recovery codes.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

fn confirmed(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    assert_eq!(wait(control.offer_authenticator(new_authenticator(1))), Ok(true));
    let codes = vec![digest(1), digest(2)];
    assert_eq!(
        wait(control.confirm_authenticator(person_id(1), vec![1; 20], 7, codes, None, PersonRecords::none())),
        Ok(true)
    );
}

/// Whether a code makes a session of the person whole, for one that a right password has begun.
fn uses(control: &Control, person: u8, code: Code) -> bool {
    let half = Session { needs_code: true, ..new_session(90, person, 1 << 60) };
    wait(control.create_session(half, Some(digest(90)))).unwrap();
    let shown = Shown::Code { asked_by: digest(90), code };
    wait(control.begin_session(new_session(91, person, 1 << 60), shown, Room::Ordinary)).unwrap()
        && wait(control.end_session::<Person>(digest(91))).is_ok()
}

fn step(secret: u8, step: u64) -> Code {
    Code::Step { secret: vec![secret; 20], step }
}

pub fn an_authenticator_counts_from_its_first_code_on(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let found = || wait(control.authenticator(person_id(1))).unwrap();
    assert_eq!(found(), None);
    let offer = |secret: u8| {
        let offered = Authenticator { secret: vec![secret; 20], ..new_authenticator(1) };
        wait(control.offer_authenticator(offered)).unwrap()
    };
    assert!(offer(1) && offer(2));
    assert_eq!(found().map(|found| (found.is_confirmed(), found.secret)), Some((false, vec![2; 20])));
    assert!(!uses(control, 1, step(2, 9)));
    assert_eq!(
        wait(control.replace_recovery_codes(person_id(1), vec![digest(1)], PersonRecords::none())),
        Ok(false)
    );
    // Of a page that was opened before the second offer.
    assert_eq!(
        wait(control.confirm_authenticator(
            person_id(1),
            vec![1; 20],
            7,
            vec![],
            None,
            PersonRecords::none()
        )),
        Ok(false)
    );
    let codes = vec![digest(1), digest(2)];
    assert_eq!(
        wait(control.confirm_authenticator(
            person_id(1),
            vec![2; 20],
            7,
            codes.clone(),
            None,
            PersonRecords::none()
        )),
        Ok(true)
    );
    assert_eq!(
        wait(control.confirm_authenticator(person_id(1), vec![2; 20], 8, codes, None, PersonRecords::none())),
        Ok(false)
    );
    assert!(!offer(3));
    assert_eq!(found().map(|found| (found.last_step, found.secret)), Some((Some(7), vec![2; 20])));
    assert_eq!(wait(control.recovery_codes_left(person_id(1))), Ok(2));
}

pub fn a_code_of_a_time_step_works_once_and_never_an_older_one(control: &Control) {
    confirmed(control);
    let used = |at| uses(control, 1, step(1, at));
    assert_eq!(
        (used(7), used(6), used(8), used(8), used(7), used(9)),
        (false, false, true, false, false, true)
    );
    assert!(!uses(control, 1, step(2, 10)), "of another secret");
    wait(control.add_member(new_member(2, 1, "b@example.com"), Records::none())).unwrap();
    assert!(!uses(control, 2, step(1, 10)), "of another person");
}

pub fn of_many_that_use_one_code_at_once_one_has_used_it(control: &Control) {
    confirmed(control);
    for code in [step(1, 8), Code::Recovery(digest(1))] {
        let asked = (10..18).map(|n| {
            let half = Session { needs_code: true, ..new_session(n, 1, 1 << 60) };
            wait(control.create_session(half, Some(digest(n)))).unwrap();
            let shown = Shown::Code { asked_by: digest(n), code: code.clone() };
            (new_session(n + 20, 1, 1 << 60), shown)
        });
        let asked: Vec<_> = asked.collect();
        let begun: Vec<_> = asked
            .into_iter()
            .map(|(session, shown)| control.begin_session(session, shown, Room::Ordinary))
            .collect();
        assert_eq!(begun.into_iter().map(|begun| wait(begun).unwrap()).filter(|used| *used).count(), 1);
        wait(control.end_sessions::<Person>(person_id(1), None)).unwrap();
    }
}

pub fn a_recovery_code_works_once(control: &Control) {
    confirmed(control);
    wait(control.add_member(new_member(2, 1, "b@example.com"), Records::none())).unwrap();
    let used = |person, n| uses(control, person, Code::Recovery(digest(n)));
    assert_eq!((used(2, 1), used(1, 1), used(1, 1), used(1, 3)), (false, true, false, false));
    assert_eq!(wait(control.recovery_codes_left(person_id(1))), Ok(1));
    assert_eq!(
        wait(control.replace_recovery_codes(person_id(1), vec![digest(3), digest(4)], PersonRecords::none())),
        Ok(true)
    );
    assert_eq!((used(1, 2), used(1, 3), used(1, 4)), (false, true, true));
}

pub fn a_removed_authenticator_takes_its_recovery_codes_along(control: &Control) {
    confirmed(control);
    assert_eq!(wait(control.remove_authenticator(person_id(1), PersonRecords::none())), Ok(true));
    assert_eq!(wait(control.remove_authenticator(person_id(1), PersonRecords::none())), Ok(false));
    assert_eq!(wait(control.authenticator(person_id(1))), Ok(None));
    assert_eq!(wait(control.recovery_codes_left(person_id(1))), Ok(0));
    assert_eq!(wait(control.offer_authenticator(new_authenticator(1))), Ok(true));
}

pub fn those_who_have_an_authenticator_are_found_together(control: &Control) {
    furnish(control);
    for n in 1..=4 {
        wait(control.add_member(new_member(n, 1, &format!("{n}@b.c")), Records::none())).unwrap();
    }
    for n in [1, 2, 3] {
        wait(control.offer_authenticator(new_authenticator(n))).unwrap();
    }
    for n in [1, 3] {
        let confirmed =
            control.confirm_authenticator(person_id(n), vec![n; 20], 7, vec![], None, PersonRecords::none());
        assert_eq!(wait(confirmed), Ok(true));
    }
    let of = |ns: &[u8]| {
        let mut found = wait(control.with_authenticator(ns.iter().map(|n| person_id(*n)).collect())).unwrap();
        found.sort();
        found
    };
    assert_eq!(of(&[1, 2, 4, 9]), [person_id(1)]);
    let mut both = [person_id(1), person_id(3)];
    both.sort();
    assert_eq!((of(&[1, 2, 3, 4]), of(&[])), (both.to_vec(), vec![]));
}
