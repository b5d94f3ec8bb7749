//! Browsers that people have signed in with.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

fn sign_in(control: &Control, n: u8, person: u8, at_ms: u64, most: u64) -> DeviceSeen {
    let key = format!("device/{n}/{person}/{at_ms}");
    let notice = NewNotice { key, person_id: Some(person_id(person)), ..new_notice(1, 1, 80) };
    wait(control.signed_in_with(new_device(n, person, at_ms), most, Some(notice))).unwrap()
}

fn two_people(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
}

pub fn a_browser_is_new_once_for_each_person_and_the_first_one_gives_no_notice(control: &Control) {
    two_people(control);
    let pending = || wait(control.pending_notices()).unwrap();
    assert_eq!((sign_in(control, 1, 1, 10, 9), pending()), (DeviceSeen::First, 0));
    assert_eq!((sign_in(control, 1, 1, 11, 9), pending()), (DeviceSeen::Known, 0));
    assert_eq!((sign_in(control, 2, 1, 12, 9), pending()), (DeviceSeen::New, 1));
    assert_eq!((sign_in(control, 2, 1, 13, 9), pending()), (DeviceSeen::Known, 1));
    // What one person's browser is says nothing of another's.
    let knows = |n, person| {
        let device = new_device(n, person, 0);
        wait(control.knows_device::<Person>(device.account_id, device.digest)).unwrap()
    };
    assert_eq!((knows(1, 1), knows(2, 1), knows(3, 1), knows(2, 2)), (true, true, false, false));
    assert_eq!((sign_in(control, 2, 2, 14, 9), pending()), (DeviceSeen::First, 1));
    let devices = wait(control.export()).unwrap().devices;
    let seen: Vec<u64> = devices.iter().map(|device| device.last_seen_at_ms).collect();
    assert_eq!((devices.len(), seen.contains(&11), seen.contains(&13)), (3, true, true));
}

pub fn the_browser_that_was_not_used_for_the_longest_is_forgotten_when_there_are_too_many(control: &Control) {
    two_people(control);
    for (n, at_ms) in [(1, 10), (2, 11), (3, 12), (1, 13)] {
        sign_in(control, n, 1, at_ms, 3);
    }
    sign_in(control, 9, 2, 1, 3);
    assert_eq!(sign_in(control, 4, 1, 14, 3), DeviceSeen::New);
    assert_eq!(wait(control.export()).unwrap().devices.len(), 4);
    for (n, seen) in [(1, DeviceSeen::Known), (3, DeviceSeen::Known), (4, DeviceSeen::Known)] {
        assert_eq!(sign_in(control, n, 1, 20, 3), seen, "{n}");
    }
    assert_eq!(sign_in(control, 2, 1, 21, 3), DeviceSeen::New);
    assert_eq!(sign_in(control, 9, 2, 22, 3), DeviceSeen::Known);
}
