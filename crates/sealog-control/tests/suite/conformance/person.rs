//! People, by their id and their address.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn an_email_is_found_in_any_case(control: &Control) {
    furnish(control);
    let NewPerson { id, email, password_hash, verified, created_at_ms } = new_person(1, "Zoë@Example.com");
    let person = Person { id, email, verified, created_at_ms };
    let member =
        wait(control.add_member(new_member(1, 1, "Zoë@Example.com"), Records::none())).unwrap().unwrap();
    assert_eq!(member.person, person);
    wait(control.add_member(new_member(2, 1, "zoe@example.com"), Records::none())).unwrap().unwrap();
    for email in ["Zoë@Example.com", "zoë@example.com", "ZOË@EXAMPLE.COM"] {
        let found = wait(control.person_by_email(email.into()));
        assert_eq!(found, Ok(Some((person.clone(), password_hash.clone()))), "{email}");
    }
    for email in ["", "zo_@example.com", "zoë@example.com ", "%"] {
        assert_eq!(wait(control.person_by_email(email.into())), Ok(None), "{email}");
    }
    assert_eq!(wait(control.person(person.id)), Ok(Some(person)));
    assert_eq!(wait(control.person(person_id(9))), Ok(None));
}

pub fn a_password_by_a_link_shows_the_address_and_a_changed_one_leaves_it_as_it_was(control: &Control) {
    furnish(control);
    let person =
        NewPerson { password_hash: Some("h0".into()), verified: false, ..new_person(1, "a@example.com") };
    let new = NewMember { person, ..new_member(1, 1, "") };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
    let found = || {
        let (person, hash) = wait(control.person_by_email("a@example.com".into())).unwrap().unwrap();
        (person.verified, hash.unwrap())
    };
    let change = |n, from: &str, to: &str| {
        wait(control.change_password(person_id(n), from.into(), to.into(), digest(1), PersonRecords::none()))
            .unwrap()
    };
    assert!(change(1, "h0", "h1"));
    assert_eq!(found(), (false, "h1".into()));
    wait(control.create_link(new_link(1, reset(1)), None, vec![])).unwrap().unwrap();
    wait(control.reset_password(digest(1), MORNING_MS, "h2".into(), PersonRecords::none())).unwrap().unwrap();
    assert_eq!(found(), (true, "h2".into()));
    assert!(change(1, "h2", "h3"));
    assert_eq!(found(), (true, "h3".into()));
    assert!(!change(9, "h3", "h4"));
}

pub fn a_changed_password_ends_all_sessions_but_one_and_is_changed_from_the_one_that_was_shown(
    control: &Control,
) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    for (n, person) in [(1, 1), (2, 1), (3, 2)] {
        wait(control.create_session(new_session(n, person, u64::MAX), None)).unwrap();
    }
    let change = |from: &str| {
        wait(control.change_password(
            person_id(1),
            from.into(),
            "new".into(),
            digest(1),
            PersonRecords::none(),
        ))
        .unwrap()
    };
    let run = || [1, 2, 3].map(|n| wait(control.session::<Person>(digest(n), MORNING_MS)).unwrap().is_some());
    assert!(!change("an older one"));
    assert_eq!(run(), [true, true, true]);
    assert!(change("$argon2id$1"));
    assert_eq!(run(), [true, false, true]);
}
