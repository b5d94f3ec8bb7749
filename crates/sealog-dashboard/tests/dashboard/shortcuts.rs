//! Shortcuts: what the server has to do with them. That keys do what they say is a journey of the browser
//! tests.

use sealog_control::Role;

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage
}

#[test]
fn shortcuts_are_listed_as_text_and_turned_off_and_on_by_a_form() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let is_on = |browser: &mut Browser<'_>| {
        let page = browser.get(&events_path(1));
        let (script, dialog) = (page.has("/keys.js\""), page.has("<dialog"));
        assert_eq!(script, dialog, "neither without the other");
        script
    };
    assert!(is_on(&mut browser));
    browser.get("/app/account").shows("<kbd>?</kbd>").shows("Go to Verification").shows("Turn shortcuts off");
    for key in ["f", "F", "c", "y", "v", "e", "t", "r", "Space"] {
        browser.get("/app/account").shows(&format!("<kbd>{key}</kbd>"));
    }
    let answer = browser.post("/app/account/shortcuts", &[("shortcuts", "off")]);
    assert_eq!(answer.location().as_deref(), Some("/app/account?done=shortcuts#shortcuts"));
    assert!(!is_on(&mut browser), "not even the script is loaded");
    browser.get("/app/account").shows("Go to Verification").shows("Turn shortcuts on");
    browser.post("/app/account/shortcuts", &[("shortcuts", "on")]);
    assert!(is_on(&mut browser));
}

#[test]
fn each_key_that_leads_to_a_page_has_one_link_in_the_rail() {
    let stage = stage();
    let page = stage.signed_in(1).get(&events_path(1));
    for (key, path) in [
        ("e", "/events"),
        ("v", "/verify"),
        ("x", "/exports"),
        ("f", "/frameworks"),
        ("a", "/actions"),
        ("k", "/keys"),
        ("u", "/usage"),
    ] {
        let links: Vec<&str> = page.text().split(&format!("\" data-go=\"{key}\"")).collect();
        assert_eq!(links.len(), 2, "{key}");
        assert!(links[0].ends_with(path), "{key}");
    }
}
