//! Settings of an organisation, and that they hold.

use std::time::Duration;

use sealog_control::*;
use sealog_service::people::sign_in::totp;

use crate::harness::*;

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Developer);
    stage
}

fn settings() -> String {
    format!("/app/o/{}/settings", tenant_id(1))
}

fn set(stage: &Stage, n: u8, what: &str, fields: &[(&str, &str)]) -> Response {
    stage.signed_in(n).post(&format!("{}/{what}", settings()), fields)
}

fn records(stage: &Stage, action: &str) -> Vec<String> {
    stage.records(1).into_iter().filter(|record| record.contains(action)).collect()
}

/// Reads a field's value, as a browser would keep it.
fn kept(stage: &Stage, name: &str) -> Option<String> {
    stage.wait(stage.control.setting(tenant_id(1), name.into())).unwrap()
}

#[test]
fn the_organisation_is_renamed_and_a_bad_name_stays_beside_its_field() {
    let stage = stage();
    let renamed = set(&stage, 1, "name", &[("name", "  Acme & Söhne ")]);
    assert_eq!(renamed.location(), Some(format!("{}?done=name", settings())));
    let page = stage.signed_in(1).get(&settings());
    page.shows("value=\"Acme &#38; Söhne\"");
    assert_eq!(records(&stage, "sealog.tenant_changed").len(), 1);
    let long = "x".repeat(256);
    for (bad, problem) in [("", "It must not be empty."), (long.as_str(), "at most 255 characters")] {
        let refused = set(&stage, 1, "name", &[("name", bad)]);
        assert_eq!(refused.status, 422);
        refused.shows(problem).shows("aria-invalid=\"true\"").shows(&format!("value=\"{bad}\""));
    }
    assert_eq!(records(&stage, "sealog.tenant_changed").len(), 1);
}

#[test]
fn whoever_requires_authenticators_has_one() {
    let stage = stage();
    let refused = set(&stage, 1, "authenticators", &[("totp_required", "yes")]);
    assert_eq!((refused.status, kept(&stage, "security.totp_required")), (422, None));
    refused.shows("needs an authenticator on your own account first").shows("checked");
    stage.with_authenticator(1);
    assert_eq!(set(&stage, 1, "authenticators", &[("totp_required", "yes")]).status, 303);
    assert_eq!(kept(&stage, "security.totp_required").as_deref(), Some("true"));
    stage.signed_in(1).get(&settings()).shows("value=\"yes\" checked");
    // What changes nothing leaves no record.
    assert_eq!(set(&stage, 1, "authenticators", &[("totp_required", "yes")]).status, 303);
    assert_eq!(records(&stage, "totp_required").len(), 1);
    assert_eq!(set(&stage, 1, "authenticators", &[]).status, 303);
    assert_eq!((kept(&stage, "security.totp_required"), records(&stage, "totp_required").len()), (None, 2));
}

#[test]
fn members_without_an_authenticator_are_led_to_set_one_up_before_anything_else() {
    let stage = stage();
    stage.with_authenticator(1);
    let mut member = stage.signed_in(2);
    assert_eq!(member.get(&events_path(1)).status, 200);
    let mut watching = stage.signed_in(2);
    let live_view = watching.open(&format!("/app/p/{}/live/tail", project_id(1)), &[]);
    assert_eq!(live_view.status, 200);
    set(&stage, 1, "authenticators", &[("totp_required", "yes")]);
    // Also where the session began before, and a live view with it.
    assert!(live_view.ends_after() < Duration::from_secs(5));
    for path in ["/app", &events_path(1), &format!("/app/e/{}", sealog_core::id::Ulid(7)), "/app?choose=1"] {
        let led = member.get(path);
        assert!(led.location().unwrap().starts_with("/app/account?needed=authenticator"), "{path}");
    }
    for form in ["/app/account/notifications", "/app/account/sessions"] {
        let led = member.post(form, &[("session", "others")]);
        assert_eq!(led.location().as_deref(), Some("/app/account?needed=authenticator"), "{form}");
    }
    member.get("/app/account?needed=authenticator").shows("Organisation 1 requires an authenticator.");
    let offer = member.post("/app/account/authenticator", &[("old", PASSWORD)]);
    assert_eq!(offer.status, 200);
    let secret = stage.wait(stage.control.authenticator(person_id(2))).unwrap().unwrap().secret;
    let code = totp::code_at(&secret, stage.now_ms() / 30_000);
    let confirmed = member.post("/app/account/authenticator/confirm", &[("old", PASSWORD), ("code", &code)]);
    confirmed.shows("Recovery codes");
    assert_eq!(member.get(&events_path(1)).status, 200);
    // It stays.
    let refused = member.post("/app/account/authenticator/remove", &[("old", PASSWORD)]);
    assert_eq!(refused.status, 422);
    refused.shows("Organisation 1 requires every member to have an authenticator");
    set(&stage, 1, "authenticators", &[]);
    assert_eq!(member.post("/app/account/authenticator/remove", &[("old", PASSWORD)]).status, 303);
    assert_eq!(member.get(&events_path(1)).status, 200);
}

#[test]
fn signing_in_can_be_left_again_without_an_authenticator() {
    let stage = stage();
    stage.with_authenticator(1);
    set(&stage, 1, "authenticators", &[("totp_required", "yes")]);
    let mut member = stage.browser();
    let signed_in = member.sign_in(2, PASSWORD);
    let page = member.follow(signed_in);
    page.shows("requires an authenticator");
    assert_eq!(member.post("/app/sign-out", &[]).location().as_deref(), Some("/app/sign-in"));
    assert!(!member.is_signed_in());
}

#[test]
fn a_session_ends_by_the_settings_also_if_it_began_before_them() {
    let stage = stage();
    let mut idle = stage.signed_in(2);
    assert!(idle.is_signed_in());
    assert_eq!(set(&stage, 1, "sessions", &[("idle_minutes", "10"), ("absolute_hours", "2")]).status, 303);
    assert_eq!(
        kept(&stage, "security.session").as_deref(),
        Some(r#"{"absolute_hours":2,"idle_minutes":10}"#)
    );
    stage.clock.advance(10 * MINUTE_MS - 1);
    assert!(idle.clone().is_signed_in());
    stage.clock.advance(10 * MINUTE_MS);
    assert!(!idle.is_signed_in());

    let mut busy = stage.signed_in(2);
    for _ in 0..14 {
        stage.clock.advance(8 * MINUTE_MS);
        assert!(busy.is_signed_in());
    }
    stage.clock.advance(8 * MINUTE_MS - 1);
    assert!(busy.clone().is_signed_in());
    stage.clock.advance(1);
    assert!(!busy.is_signed_in(), "two hours are over");

    // One that begins now is no longer, either.
    let mut signed_in = stage.browser();
    assert_eq!(signed_in.sign_in(2, PASSWORD).status, 303);
    let sessions = stage.wait(stage.control.sessions::<Person>(person_id(2), stage.now_ms())).unwrap();
    let begun = &sessions[0];
    assert_eq!((begun.idle_ms, begun.expires_at_ms - begun.created_at_ms), (10 * MINUTE_MS, 2 * HOUR_MS));
}

#[test]
fn the_strictest_organisation_of_a_person_decides() {
    let stage = stage();
    stage.tenant(2);
    stage.member(3, 2, Role::Owner);
    stage.member(3, 1, Role::Developer);
    set(&stage, 1, "sessions", &[("idle_minutes", "5")]);
    let mut both = stage.signed_in(3);
    let mut other = stage.signed_in(1);
    stage.clock.advance(5 * MINUTE_MS);
    assert!(!both.is_signed_in() && !other.is_signed_in());
    stage.tenant(4);
    stage.member(4, 4, Role::Owner);
    let mut stranger = stage.signed_in(4);
    stage.clock.advance(5 * MINUTE_MS);
    assert!(stranger.is_signed_in());
}

#[test]
fn lengths_of_sessions_are_within_what_is_built_in() {
    let stage = stage();
    for (idle, absolute, problem) in [
        ("4", "", "from 5 to 720"),
        ("721", "", "from 5 to 720"),
        ("", "0", "from 1 to 168"),
        ("", "169", "from 1 to 168"),
        ("soon", "", "from 5 to 720"),
        ("61", "1", "must not be longer than the session itself"),
    ] {
        let refused = set(&stage, 1, "sessions", &[("idle_minutes", idle), ("absolute_hours", absolute)]);
        assert_eq!(refused.status, 422, "{idle} {absolute}");
        refused.shows(problem).shows(&format!("value=\"{idle}\""));
    }
    for (idle, absolute) in [("5", "1"), ("720", "168"), ("60", "1"), ("", "")] {
        let saved = set(&stage, 1, "sessions", &[("idle_minutes", idle), ("absolute_hours", absolute)]);
        assert_eq!(saved.status, 303, "{idle} {absolute}");
    }
    assert_eq!((kept(&stage, "security.session"), records(&stage, "session_idle_minutes").len()), (None, 4));
}

#[test]
fn only_addresses_of_the_domains_are_invited_and_accepted() {
    let stage = stage();
    let members = format!("/app/o/{}/members", tenant_id(1));
    let invite = |email: &str| {
        stage.signed_in(1).post(&format!("{members}/invite"), &[("email", email), ("role", "developer")])
    };
    assert_eq!(invite("early@other.example").status, 303);
    assert_eq!(
        set(&stage, 1, "domains", &[("email_domains", "@Example.org, b.example\r\nexample.org")]).status,
        303
    );
    assert_eq!(kept(&stage, "security.email_domains").as_deref(), Some(r#"["example.org","b.example"]"#));
    let refused = invite("x@other.example");
    assert_eq!(refused.status, 422);
    refused.shows("do not allow this e-mail domain").shows("value=\"x@other.example\"");
    assert_eq!((invite("x@EXAMPLE.org").status, invite("y@b.example").status), (303, 303));
    // The one that was invited before comes too late.
    let token = sealog_service::people::sign_in::Token::new(&*stage.clock);
    let due = stage.wait(stage.control.due_notices(stage.now_ms(), 9)).unwrap();
    let early = due.iter().find(|notice| notice.to == "early@other.example").unwrap();
    let claimed =
        stage.control.claim_notice(early.id, stage.now_ms(), stage.now_ms() + 1, Some(token.digest()));
    assert!(stage.wait(claimed).unwrap());
    let accept = |stage: &Stage| {
        let fields = [("token", token.0.0.as_str()), ("accept", "yes"), ("password", PASSWORD)];
        stage.browser().post("/app/invitation", &fields)
    };
    let late = accept(&stage);
    assert_eq!(late.status, 422);
    late.shows("does not allow your e-mail domain");
    assert_eq!(set(&stage, 1, "domains", &[]).status, 303);
    assert_eq!(accept(&stage).status, 303);
    for bad in ["example", "a@b.example", "*.example.org", "bücher.example"] {
        let refused = set(&stage, 1, "domains", &[("email_domains", bad)]);
        assert_eq!(refused.status, 422, "{bad}");
        refused.shows("contains an invalid domain").shows(bad);
    }
    let many: Vec<String> = (0..51).map(|n| format!("d{n}.example")).collect();
    set(&stage, 1, "domains", &[("email_domains", &many.join("\n"))]).shows("at most 50 domains");
    assert_eq!(set(&stage, 1, "domains", &[("email_domains", &many[..50].join("\n"))]).status, 303);
}

#[test]
fn the_time_zone_is_a_name_of_the_database_and_mails_name_times_in_it() {
    let stage = stage();
    let page = stage.signed_in(1).get(&settings());
    page.shows("<option value=\"UTC\" selected>").shows("<optgroup label=\"America\">");
    page.shows("<option value=\"America/New_York\">New York</option>");
    for bad in ["Atlantis", "Europe/Atlantis", "+01:00", "CET"] {
        let refused = set(&stage, 1, "time-zone", &[("time_zone", bad)]);
        assert_eq!(refused.status, 422, "{bad}");
        refused.shows("must be the name of a time zone").shows("<option value=\"UTC\" selected>");
    }
    assert_eq!(set(&stage, 1, "time-zone", &[("time_zone", "europe/paris")]).status, 303);
    assert_eq!(kept(&stage, "time_zone").as_deref(), Some("\"Europe/Paris\""));
    stage.signed_in(1).get(&settings()).shows("(Europe/Paris)");
    assert_eq!(set(&stage, 1, "time-zone", &[("time_zone", "UTC")]).status, 303);
    assert_eq!((kept(&stage, "time_zone"), records(&stage, "time_zone").len()), (None, 2));
}

#[test]
fn privacy_texts_are_kept_in_their_lines_and_never_sealed() {
    let stage = stage();
    let text = "To run the service.\r\n\r\n<b>Second</b> paragraph";
    let fields =
        [("privacy.purposes", text), ("privacy.contact", "dpo@example.org"), ("privacy.retention", "  ")];
    assert_eq!(set(&stage, 1, "privacy", &fields).status, 303);
    let expected = serde_json::json!("To run the service.\n\n<b>Second</b> paragraph").to_string();
    assert_eq!(kept(&stage, "privacy.purposes"), Some(expected));
    assert_eq!(kept(&stage, "privacy.retention"), None);
    let page = stage.signed_in(1).get(&settings());
    page.shows("&#60;b&#62;Second&#60;/b&#62; paragraph</textarea>");
    let sealed = records(&stage, "sealog.settings_changed");
    assert_eq!(sealed.len(), 1);
    assert!(sealed[0].contains(r#""privacy":{"contact":"set","purposes":"set"}"#), "{sealed:?}");
    assert!(!sealed[0].contains("dpo@") && !sealed[0].contains("Second"), "{sealed:?}");
    // One character too many, of whatever kind, changes nothing.
    let (most, over) = ("é".repeat(4000), "é".repeat(4001));
    let refused = set(&stage, 1, "privacy", &[("privacy.purposes", "short"), ("privacy.recipients", &over)]);
    assert_eq!(refused.status, 422);
    refused.shows("at most 4000 characters").shows(">short</textarea>");
    assert!(kept(&stage, "privacy.purposes").unwrap().contains("Second"));
    assert_eq!(set(&stage, 1, "privacy", &[("privacy.recipients", &most)]).status, 303);
    assert_eq!(kept(&stage, "privacy.purposes"), None);
    // All of them as long as can be, in a script whose letters are long.
    let long = "语".repeat(4000);
    let all = sealog_service::people::organisation::PRIVACY.map(|name| (name, long.as_str()));
    assert_eq!(set(&stage, 1, "privacy", &all).status, 303);
    assert!(
        records(&stage, "sealog.settings_changed")[1].contains(r#""purposes":"removed","recipients":"set""#)
    );
}

#[test]
fn settings_of_another_organisation_are_like_none() {
    let stage = stage();
    stage.tenant(2);
    stage.member(3, 2, Role::Owner);
    stage.signed_in(3).get(&settings()).is_problem(404, "request/not_found");
    set(&stage, 3, "name", &[("name", "Mine")]).is_problem(404, "request/not_found");
    set(&stage, 2, "name", &[("name", "Mine")]).is_problem(403, "auth/not_allowed");
}
