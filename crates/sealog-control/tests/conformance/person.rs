//! People, by their id and their address.

use sealog_control::*;

use crate::common::*;
use crate::support::*;

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

pub fn a_password_is_set_later_and_an_address_stays_verified(control: &Control) {
    furnish(control);
    let unverified = NewPerson { password_hash: None, verified: false, ..new_person(1, "a@example.com") };
    let new = NewMember { person: unverified, ..new_member(1, 1, "") };
    wait(control.add_member(new, Records::none())).unwrap().unwrap();
    let found = || {
        let (person, hash) = wait(control.person_by_email("a@example.com".into())).unwrap().unwrap();
        (person.verified, hash)
    };
    assert_eq!(found(), (false, None));
    let set = |hash: &str, verified| wait(control.set_password(person_id(1), hash.into(), verified)).unwrap();
    assert!(set("h1", false));
    assert_eq!(found(), (false, Some("h1".into())));
    assert!(set("h2", true));
    assert_eq!(found(), (true, Some("h2".into())));
    assert!(set("h3", false));
    assert_eq!(found(), (true, Some("h3".into())));
    assert_eq!(wait(control.set_password(person_id(9), "h".into(), true)), Ok(false));
}
