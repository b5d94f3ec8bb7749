//! How people come in, stay, and leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealog_control::*;
use sealog_core::id::{Hash, Uuid};
use sealog_service::people::account::{CLAIM_MS, INVITATION_MS, RESET_MS, claim_link, make_reset_link};
use sealog_service::people::sign_in::{Token, totp};
use sealog_store::world::World;
use sha2::{Digest, Sha256};

use crate::harness::*;

const NEW_PASSWORD: &str = "a new and better one";
const MINUTE_MS: u64 = 60 * 1000;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage
}

/// What the authenticator of this person shows now.
fn code(stage: &Stage, n: u8) -> String {
    totp::code_at(&[n; 20], stage.now_ms() / 30_000)
}

fn token_of(link: &str) -> Token {
    Token::parse(link.split_once('#').unwrap().1).unwrap()
}

#[test]
fn the_first_owner_claims_the_account_with_a_link_that_works_once_within_a_day() {
    let stage = Stage::new();
    let tenant = stage.tenant(1);
    let person = NewPerson {
        id: person_id(1),
        email: "owner@localhost".into(),
        password_hash: None,
        verified: false,
        created_at_ms: stage.now_ms(),
    };
    let owner = NewMember {
        tenant_id: tenant,
        person,
        role: Role::Owner,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: stage.now_ms(),
    };
    stage.wait(stage.control.add_member(owner, Records::none())).unwrap();
    let (link, url) = claim_link(&*stage.clock, &format!("{HOME}/app"), tenant, person_id(1));
    stage.wait(stage.control.create_link(link, None, vec![])).unwrap().unwrap();
    // The secret is behind the `#`, which no browser sends.
    assert!(url.0.starts_with(&format!("{HOME}/app/claim#")));
    let mut browser = stage.browser();
    browser.get("/app/claim").shows("/link.js\"").shows("name=\"token\"");
    let claim = |browser: &mut Browser<'_>, token: &str, email: &str, password: &str| {
        let names = [("organisation", "Northwind <b>"), ("project", "production\u{202e}")];
        let fields = [("token", token), ("email", email), ("password", password)];
        browser.post("/app/claim", &[&fields[..], &names[..]].concat())
    };
    let answer = claim(&mut browser, &url.0, "me@example.org", "short");
    assert_eq!(answer.status, 422);
    // What was typed stays; a password never does.
    answer.shows("Use at least 10 characters.").shows("value=\"me@example.org\"").shows(&url.0);
    assert!(!answer.has("short\""));
    let answer = claim(&mut browser, &url.0, "nobody", PASSWORD);
    answer.shows("Enter a valid e-mail address.").shows("aria-describedby=\"email-error\"");
    assert!(!stage.claimed.load(Ordering::SeqCst));
    assert_eq!(claim(&mut browser, &"0".repeat(64), "me@example.org", PASSWORD).status, 422);
    let answer = claim(&mut browser, &url.0, "me@example.org", PASSWORD);
    assert_eq!(answer.location().as_deref(), Some("/app/signed-in?next="), "signed in right after it");
    browser.follow(answer).shows("No events yet").shows("Northwind &#60;b&#62;").shows("production");
    assert!(stage.claimed.load(Ordering::SeqCst), "the file is told to forget the link");
    claim(&mut browser, &url.0, "other@example.org", PASSWORD)
        .shows("This link is used, expired or incomplete.");
    let answer = browser.post("/app/sign-in", &[("email", "ME@example.org"), ("password", PASSWORD)]);
    browser.follow(answer).shows("No events yet").shows("at_live_");
    let records = stage.records(1);
    let at = |action: &str| records.iter().position(|record| record.contains(action));
    assert!(at("sealog.account_claimed") == Some(0), "{records:?}");
    assert!(at("sealog.tenant_changed") < at("sealog.signed_in"), "{records:?}");
    assert!(at("sealog.project_changed").is_some(), "{records:?}");

    // Another one, which nobody uses in time.
    let (link, url) = claim_link(&*stage.clock, "x", tenant, person_id(1));
    stage.wait(stage.control.create_link(link, None, vec![])).unwrap().unwrap();
    stage.clock.advance(CLAIM_MS);
    claim(&mut browser, &url.0, "other@example.org", PASSWORD)
        .shows("This link is used, expired or incomplete.");
}

#[test]
fn names_that_are_missing_leave_the_link_and_nobody_signs_in_over_plain_http_or_from_elsewhere() {
    let stage = Stage::new();
    stage.tenant(1);
    let link = || {
        let person = NewPerson {
            id: person_id(1),
            email: "owner@localhost".into(),
            password_hash: None,
            verified: false,
            created_at_ms: stage.now_ms(),
        };
        let (tenant_id, created_at_ms) = (tenant_id(1), stage.now_ms());
        let owner = NewMember {
            tenant_id,
            person,
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms,
        };
        let _ = stage.wait(stage.control.add_member(owner, Records::none()));
        let (link, url) = claim_link(&*stage.clock, &format!("{HOME}/app"), tenant_id, person_id(1));
        stage.wait(stage.control.create_link(link, None, vec![])).unwrap().unwrap();
        url
    };
    let url = link();
    let claim = |browser: &mut Browser<'_>, organisation: &str, project: &str| {
        let fields = [("organisation", organisation), ("project", project), ("token", &*url.0)];
        let account = [("email", "me@example.org"), ("password", PASSWORD)];
        browser.post("/app/claim", &[&fields[..], &account[..]].concat())
    };
    let long = "x".repeat(10_000);
    claim(&mut stage.browser(), " ", "p").shows("id=\"organisation-error\">It must not be empty.");
    claim(&mut stage.browser(), "o", "").shows("id=\"project-hint\">It must not be empty.");
    claim(&mut stage.browser(), &long, "p").shows("It must have at most 255 characters.");
    // A browser that does not say where the form comes from has to sign in by hand.
    let mut old = stage.browser();
    old.site = None;
    let answer = claim(&mut old, "o", "p");
    assert_eq!(answer.location().as_deref(), Some("/app/sign-in?after=claim"), "{}", answer.text());
    assert!(!old.is_signed_in());
}

#[test]
fn an_invitation_without_mail_shows_its_link_once_and_leaves_the_address_unconfirmed() {
    let stage = Stage::without_mail();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    let members = format!("/app/o/{}/members", tenant_id(1));
    let mut owner = stage.signed_in(1);
    let name = format!("/app/o/{}/settings/name", tenant_id(1));
    assert_eq!(owner.post(&name, &[("name", "<b>Acme\u{202e}")]).status, 303);
    let invited = [("email", "new@example.org"), ("role", "developer")];
    let made = owner.post(&format!("{members}/invite"), &invited);
    assert_eq!(made.location(), Some(format!("{members}?done=link")), "{}", made.text());
    let page = owner.follow(made);
    page.shows("Shown once");
    assert_eq!(stage.wait(stage.control.pending_notices()).unwrap(), 0, "no mail waits");
    let link = page.text().split("aria-label=\"Link to copy\" data-copy>").nth(1).unwrap();
    let link = link.split('<').next().unwrap().to_owned();
    assert!(link.starts_with(&format!("{HOME}/app/invitation#")), "{link}");
    // Loaded again, the page shows no link and has made no second invitation.
    let again = owner.get(&format!("{members}?done=link"));
    again.shows("invite the same address again for a new link");
    assert!(!again.has("/app/invitation#"), "shown once");
    assert_eq!(again.text().matches("new@example.org").count(), 2, "{}", again.text());
    let mut guest = stage.browser();
    let offer = guest.post("/app/invitation", &[("token", link.as_str())]);
    offer.shows("&#60;b&#62;Acme\\u{202e} invites you");
    assert!(!offer.has("\u{202e}"), "the name of an organisation turns nothing");
    let fields = [("token", link.as_str()), ("accept", "1"), ("password", PASSWORD)];
    assert_eq!(guest.post("/app/invitation", &fields).status, 303);
    assert!(guest.is_signed_in());
    let (person, _) = stage.wait(stage.control.person_by_email("new@example.org".into())).unwrap().unwrap();
    assert!(!person.verified);
    owner.get(&members).shows("Address not confirmed");
    assert!(!stage.records(1).iter().any(|record| record.contains(link.split('#').nth(1).unwrap())));
    // Who has not shown to have the address joins no second organisation.
    stage.member(2, 2, Role::Owner);
    let elsewhere = format!("/app/o/{}/members/invite", tenant_id(2));
    let mut other = stage.signed_in(2);
    let made = other.post(&elsewhere, &invited);
    let page = other.follow(made);
    let link = page.text().split("aria-label=\"Link to copy\" data-copy>").nth(1).unwrap();
    let second = link.split('<').next().unwrap();
    let answer = guest.post("/app/invitation", &[("token", second), ("accept", "1")]);
    assert_eq!(answer.status, 422);
    assert!(stage.wait(stage.control.member(tenant_id(2), person.id)).unwrap().is_none());
}

#[test]
fn a_link_is_shown_to_the_person_who_made_it_and_where_it_was_made_alone() {
    let stage = Stage::without_mail();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    stage.member(2, 1, Role::Admin);
    stage.member(1, 2, Role::Owner);
    let members = |n| format!("/app/o/{}/members", tenant_id(n));
    let mut owner = stage.signed_in(1);
    let made =
        owner.post(&format!("{}/invite", members(1)), &[("email", "new@example.org"), ("role", "owner")]);
    assert_eq!(made.status, 303);
    let brought = owner.cookies.iter().find(|cookie| cookie.starts_with("sealog_once=")).unwrap().clone();
    let mut admin = stage.signed_in(2);
    for cookie in [brought.clone(), "sealog_once=<b>".into(), format!("sealog_once={}", "0".repeat(64))] {
        admin.cookies.insert(cookie);
        assert!(!admin.get(&members(1)).has("/app/invitation#"));
        admin.cookies.retain(|cookie| !cookie.starts_with("sealog_once="));
    }
    assert!(!owner.clone().get(&members(2)).has("/app/invitation#"), "of another organisation");
    owner.get(&members(1)).shows("/app/invitation#");
    assert!(!owner.cookies.iter().any(|cookie| cookie.starts_with("sealog_once=")), "the browser forgets it");
}

#[test]
fn a_password_link_is_never_on_a_page_without_mail_the_host_is_named() {
    let stage = Stage::without_mail();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    let page = stage.browser().post("/app/forgot", &[("email", &email(1))]);
    page.shows("sealog reset");
    assert!(!page.has("/app/reset#"));
}

/// The modules of the code that a page draws, row after row. It is dark on a quiet zone of four modules.
fn drawn(page: &Response) -> Vec<Vec<bool>> {
    let svg = page.text().split("<svg class=\"qr\"").nth(1).expect("a code").split("</svg>").next().unwrap();
    let attribute = |name: &str| {
        let behind = svg.split(&format!(" {name}=\"")).nth(1).unwrap_or_else(|| panic!("{name} in {svg}"));
        behind.split('"').next().unwrap()
    };
    let side: usize = attribute("viewBox").split(' ').nth(2).unwrap().parse().unwrap();
    assert_eq!(attribute("viewBox"), format!("-4 -4 {side} {side}"));
    let mut dark = vec![vec![false; side - 8]; side - 8];
    for run in attribute("d").split('z').filter(|run| !run.is_empty()) {
        let numbers: Vec<usize> = run
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap())
            .collect();
        let [x, y, width, 1, back] = numbers[..] else { panic!("{run} is no row of modules") };
        assert_eq!(run, format!("M{x} {y}h{width}v1h-{back}"));
        assert_eq!(width, back, "{run}");
        dark[y][x..x + width].fill(true);
    }
    dark
}

/// The code of an authenticator with this secret, as any other program would draw it.
fn encoded_qr(email: &str, secret: &str) -> Vec<Vec<bool>> {
    let url = format!("otpauth://totp/Sealog:{email}?secret={secret}&issuer=Sealog");
    let code = qrcode::QrCode::new(url).unwrap();
    let modules: Vec<bool> = code.to_colors().iter().map(|color| *color == qrcode::Color::Dark).collect();
    modules.chunks(code.width()).map(<[bool]>::to_vec).collect()
}

#[test]
fn the_code_that_a_phone_reads_holds_the_secret_that_stands_beside_it() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let first = browser.post("/app/account/authenticator", &[("old", PASSWORD)]);
    let kept = stage.wait(stage.control.authenticator(person_id(1))).unwrap().unwrap().secret;
    let confirm = "/app/account/authenticator/confirm";
    let token = first.text().split("name=\"secret\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    // A wrong code leaves both where they are.
    let second = browser.post(confirm, &[("code", "000000"), ("secret", token)]);
    for page in [&first, &second] {
        let shown = page.text().split("aria-label=\"Key for the authenticator\" data-copy>").nth(1).unwrap();
        let shown = shown.split('<').next().unwrap().replace(' ', "");
        assert_eq!(shown, totp::base32(&kept), "what is typed is what is checked");
        assert_eq!(drawn(page), encoded_qr(&email(1), &shown));
        // Neither the secret of another one nor one letter more makes this code.
        let other = totp::base32(&[7; 20]);
        assert_ne!(drawn(page), encoded_qr(&email(1), &other));
        assert_ne!(drawn(page), encoded_qr(&email(2), &shown));
    }
    // The next offer is another secret, and another code with it.
    let next = browser.post("/app/account/authenticator", &[("old", PASSWORD)]);
    assert_ne!(drawn(&next), drawn(&first));
}

#[test]
fn an_authenticator_is_set_up_with_one_password_and_leads_back_to_where_one_was_going() {
    let stage = stage();
    stage.member(7, 1, Role::Auditor);
    let mut auditor = stage.signed_in(7);
    let wanted = format!("/app/p/{}/live/events?q=x", project_id(1));
    let led = auditor.get(&wanted).location().unwrap();
    let next = wanted.replace('/', "%2F").replace('?', "%3F").replace('=', "%3D");
    assert_eq!(led, format!("/app/account?needed=authenticator&next={next}"));
    let page = auditor.get(&led);
    page.shows(&format!("name=\"next\" value=\"{wanted}\""));
    let page = auditor.post("/app/account/authenticator", &[("old", PASSWORD), ("next", &wanted)]);
    page.shows("class=\"qr\"").shows("<path d=\"M0 0h7").shows("name=\"secret\"");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(!page.has("id=\"old-confirm\""), "one password prompt");
    let secret = page.text().split("name=\"secret\" value=\"").nth(1).unwrap();
    let secret = secret.split('"').next().unwrap().to_owned();
    let confirm = "/app/account/authenticator/confirm";
    // A session alone learns no secret, one that has it keeps it.
    assert!(!auditor.post(confirm, &[("code", "000000")]).has("class=\"qr\""));
    assert!(!auditor.post(confirm, &[("code", "000000"), ("secret", "x")]).has("class=\"qr\""));
    assert!(auditor.post(confirm, &[("code", "000000"), ("secret", &secret)]).has("class=\"qr\""));
    let secret = stage.wait(stage.control.authenticator(person_id(7))).unwrap().unwrap().secret;
    let code = totp::code_at(&secret, stage.now_ms() / 30_000);
    let done = auditor.post(confirm, &[("code", &code), ("next", &wanted)]);
    done.shows(&format!("<a class=\"btn primary\" href=\"{wanted}\">Continue</a>"));
    assert_eq!(
        done.text().split("class=\"codes\"").nth(1).unwrap().split("</pre>").next().unwrap().lines().count(),
        10
    );
    for foreign in ["https://evil.example/", "//evil.example", "javascript:alert(1)"] {
        let page = auditor.get(&format!("/app/account?next={foreign}"));
        assert!(!page.has(&format!("\"{foreign}\"")), "{foreign}");
    }
}

#[test]
fn signing_in_gives_a_new_token_and_signing_out_ends_it() {
    let stage = stage();
    let mut browser = stage.browser();
    let answer = browser.sign_in(1, PASSWORD);
    assert_eq!((answer.status, answer.location().as_deref()), (303, Some("/app/signed-in?next=")));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(browser.is_signed_in());
    let first = browser.clone();
    // Whoever planted the token of before has nothing.
    assert_eq!(browser.sign_in(1, PASSWORD).status, 303);
    assert_ne!(browser.cookies, first.cookies);
    assert!(browser.is_signed_in() && !first.clone().is_signed_in());
    let held = browser.clone();
    assert_eq!(browser.post("/app/sign-out", &[]).location().as_deref(), Some("/app/sign-in"));
    // What it is known again by stays, and opens nothing.
    assert!(browser.cookies.iter().all(|cookie| cookie.starts_with("sealog_device=")));
    assert!(!held.clone().is_signed_in());
    let records = stage.records(1);
    assert_eq!(records.iter().filter(|record| record.contains("sealog.signed_in")).count(), 2, "{records:?}");
}

#[test]
fn only_the_digest_of_a_token_is_kept() {
    let stage = stage();
    let mut browser = stage.browser();
    browser.sign_in(1, PASSWORD);
    let all = stage.wait(stage.control.export()).unwrap();
    let token = |name: &str| {
        let value = browser.cookies.iter().find_map(|cookie| cookie.strip_prefix(name)?.strip_prefix('='));
        Token::parse(value.unwrap_or_else(|| panic!("no {name}: {:?}", browser.cookies))).unwrap()
    };
    let (session, device) = (token("sealog_session"), token("sealog_device"));
    assert_eq!(all.sessions[0].token_digest, session.digest());
    for token in [session, device] {
        assert!(!format!("{all:?}").contains(&token.0.0));
    }
}

#[test]
fn a_wrong_password_and_an_unknown_account_get_the_same_answer() {
    let stage = stage();
    let mut browser = stage.browser();
    let known = browser.sign_in(1, "not the password");
    let unknown = browser.sign_in(9, "not the password");
    assert_eq!((known.status, unknown.status), (422, 422));
    let without = |answer: &Response, n| answer.text().replace(&email(n), "");
    assert_eq!(without(&known, 1), without(&unknown, 9));
    known.shows("Wrong e-mail or password.").shows("role=\"alert\"");
    assert!(!known.has("not the password"));
    assert!(browser.cookies.is_empty());
    // Somebody who never set a password has none.
    let person = NewPerson {
        id: person_id(2),
        email: email(2),
        password_hash: None,
        verified: false,
        created_at_ms: 1,
    };
    let member = NewMember {
        tenant_id: tenant_id(1),
        person,
        role: Role::Owner,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: 1,
    };
    stage.wait(stage.control.add_member(member, Records::none())).unwrap();
    assert_eq!(browser.sign_in(2, "").status, 422);
}

#[test]
fn after_ten_attempts_an_account_waits_at_that_address_whether_it_exists_or_not() {
    let stage = stage();
    for n in [1, 9] {
        let mut browser = stage.browser();
        for attempt in 0..10 {
            // The whole /64 is one.
            browser.address = format!("2001:db8::{attempt}").parse().unwrap();
            assert_eq!(browser.sign_in(n, "wrong wrong wrong").status, 422, "{n} {attempt}");
        }
        browser.address = "2001:db8::ffff".parse().unwrap();
        let answer = browser.sign_in(n, PASSWORD);
        answer.is_problem(429, "auth/too_many_attempts");
        assert_eq!(answer.header("retry-after"), Some("900"));
    }
    // Whoever guesses there keeps nobody out elsewhere.
    let mut elsewhere = stage.browser();
    elsewhere.address = "203.0.113.9".parse().unwrap();
    assert_eq!(elsewhere.sign_in(1, PASSWORD).status, 303);
    stage.clock.advance(15 * MINUTE_MS);
    assert_eq!(stage.browser().sign_in(1, PASSWORD).status, 303);
    // A right one ends the count.
    for _ in 0..3 {
        for _ in 0..9 {
            stage.browser().sign_in(1, "wrong wrong wrong");
        }
        assert_eq!(stage.browser().sign_in(1, PASSWORD).status, 303);
    }
}

/// Counts an attempt of a stranger at person 1, as sign-in does, without the work of a password.
fn stranger_tries(stage: &Stage) -> u64 {
    let account = Hash(Sha256::digest(format!("sealog attempts account {}", email(1).to_lowercase())).into());
    let counted = stage.control.count_attempt(vec![account], stage.now_ms(), 24 * 60 * MINUTE_MS);
    stage.wait(counted).unwrap()[0].attempts
}

#[test]
fn a_browser_that_has_signed_in_before_and_whoever_is_signed_in_are_not_kept_out_by_strangers() {
    let stage = stage();
    let mut known = stage.browser();
    assert_eq!(known.sign_in(1, PASSWORD).status, 303);
    known.post("/app/sign-out", &[]);
    let mut signed_in = stage.signed_in(1);
    while stranger_tries(&stage) < 100 {}
    let mut stranger = stage.browser();
    stranger.address = "203.0.113.9".parse().unwrap();
    stranger.sign_in(1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    stranger.address = "198.51.100.1".parse().unwrap();
    stranger.sign_in(1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    let change = [("old", PASSWORD), ("password", NEW_PASSWORD)];
    assert_eq!(signed_in.post("/app/account/password", &change).status, 303);
    assert_eq!(known.sign_in(1, NEW_PASSWORD).status, 303);
    // It has a count of its own, so that a stolen one does not try for ever.
    known.post("/app/sign-out", &[]);
    for _ in 0..10 {
        assert_eq!(known.sign_in(1, "wrong wrong wrong").status, 422);
    }
    known.sign_in(1, NEW_PASSWORD).is_problem(429, "auth/too_many_attempts");
    // What another account knows opens nothing here.
    stage.member(2, 1, Role::Developer);
    let mut other = stage.browser();
    assert_eq!(other.sign_in(2, PASSWORD).status, 303);
    other.post("/app/sign-out", &[]);
    other.sign_in(1, NEW_PASSWORD).is_problem(429, "auth/too_many_attempts");
    stage.clock.advance(24 * 60 * MINUTE_MS);
    assert_eq!(stage.browser().sign_in(1, NEW_PASSWORD).status, 303);
}

#[test]
fn whoever_goes_on_after_being_refused_costs_no_write_and_a_new_password_lets_in_at_once() {
    let stage = stage();
    while stranger_tries(&stage) < 100 {}
    let mut browser = stage.browser();
    for _ in 0..5 {
        browser.sign_in(1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    }
    // The first of the five was counted, and refused by that; the others were refused by memory.
    assert_eq!(stranger_tries(&stage), 102);
    let world: Arc<dyn World> = stage.clock.clone();
    let link = stage.wait(make_reset_link(&stage.control, &world, HOME, &email(1))).unwrap().unwrap();
    let token = token_of(&link.url.0);
    let reset = [("token", token.0.0.as_str()), ("password", NEW_PASSWORD)];
    assert_eq!(stage.browser().post("/app/reset", &reset).status, 303);
    assert_eq!(browser.sign_in(1, NEW_PASSWORD).status, 303);
}

fn failures(stage: &Stage) -> Vec<String> {
    stage.record_failures();
    let records = stage.records(1);
    records.into_iter().filter(|record| record.contains("sealog.sign_in_failed")).collect()
}

#[test]
fn failed_attempts_of_an_account_are_one_event_a_minute_with_how_many_there_were() {
    let stage = stage();
    stage.with_authenticator(1);
    let counted = |passwords, codes| {
        let expected = [("wrong_password", passwords), ("wrong_code", codes)];
        stage.settle(|| stage.sign_ins.by_cause()[..2] == expected);
    };
    for _ in 0..3 {
        stage.browser().sign_in(1, "wrong wrong wrong");
        stage.browser().sign_in(9, "wrong wrong wrong");
    }
    // A code that is wrong is a failure like a password.
    let mut half = stage.browser();
    half.sign_in(1, PASSWORD);
    for code in ["12345", "nonsense"] {
        assert_eq!(half.post("/app/sign-in/code", &[("code", code)]).status, 422);
    }
    counted(3, 2);
    assert_eq!(failures(&stage), [] as [String; 0], "the minute is not over");
    stage.clock.advance(MINUTE_MS);
    stage.settle(|| failures(&stage).len() == 1);
    let told = failures(&stage).remove(0);
    for part in ["\"attempts\":5", "\"wrong_passwords\":3", "\"wrong_codes\":2"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    stage.clock.advance(MINUTE_MS);
    assert_eq!(failures(&stage).len(), 1, "nothing has failed since");
    stage.browser().sign_in(1, "wrong wrong wrong");
    counted(4, 2);
    stage.clock.advance(MINUTE_MS);
    stage.settle(|| failures(&stage).len() == 2);
    assert!(failures(&stage)[1].contains("\"attempts\":1"), "{:?}", failures(&stage));
    // Of accounts that do not exist there is a number alone.
    assert_eq!(stage.sign_ins.by_cause()[2], ("unknown_account", 3));
    assert!(!stage.records(1).iter().any(|record| record.to_lowercase().contains("example.org")));
}

#[test]
fn an_address_gets_five_reset_mails_in_an_hour_and_nobody_is_told() {
    let stage = stage();
    let forgot = || stage.browser().post("/app/forgot", &[("email", &email(1))]);
    let mails = || stage.wait(stage.control.pending_notices()).unwrap();
    for n in 1..=5 {
        forgot().shows("we have sent it an e-mail");
        stage.settle(|| mails() == n);
    }
    for _ in 0..3 {
        forgot().shows("we have sent it an e-mail");
    }
    // Whoever comes behind them is through when they are: work on control data has one order.
    stage.member(2, 1, Role::Developer);
    for n in 6..=8 {
        stage.browser().post("/app/forgot", &[("email", &email(2))]);
        stage.settle(|| mails() == n);
    }
    stage.clock.advance(60 * MINUTE_MS);
    forgot().shows("we have sent it an e-mail");
    stage.settle(|| mails() == 9);
}

#[test]
fn an_address_waits_after_a_hundred_attempts_and_another_does_not() {
    let stage = stage();
    // Counted as sign-in counts them, without the work of a hundred passwords.
    let mut browser = stage.browser();
    browser.address = "2001:db8::1".parse().unwrap();
    for n in 0..100 {
        let answer = browser.post("/app/forgot", &[("email", &format!("{n}@example.org"))]);
        assert_eq!(answer.status, 200);
    }
    // The whole /64 is one.
    browser.address = "2001:db8::2".parse().unwrap();
    assert_eq!(browser.sign_in(1, PASSWORD).status, 429);
    browser.address = "2001:db8:0:1::2".parse().unwrap();
    assert_eq!(browser.sign_in(1, PASSWORD).status, 303);
}

#[test]
fn right_passwords_from_one_address_do_not_count_against_it() {
    let stage = stage();
    // Browsers that have never signed in, behind one address.
    let browser = || {
        let mut browser = stage.browser();
        browser.address = "198.51.100.7".parse().unwrap();
        browser
    };
    // Others behind the same address: one more attempt is the last.
    for n in 0..99 {
        assert_eq!(browser().post("/app/forgot", &[("email", &format!("{n}@example.org"))]).status, 200);
    }
    for _ in 0..3 {
        assert_eq!(browser().sign_in(1, PASSWORD).status, 303);
    }
    assert_eq!(browser().sign_in(1, "wrong wrong wrong").status, 422);
    assert_eq!(browser().sign_in(1, PASSWORD).status, 429);
}

#[test]
fn a_session_ends_when_it_is_not_used_and_at_last_in_any_case() {
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    let stage = stage();
    stage.member(2, 1, Role::Auditor);
    let signed_in = |n| {
        let mut browser = stage.browser();
        assert_eq!(browser.sign_in(n, PASSWORD).status, 303);
        browser
    };
    let (mut idle, mut used, mut auditor) = (signed_in(1), signed_in(1), signed_in(2));
    for hour in 1..=7 * 24 {
        stage.clock.advance(HOUR_MS - 1);
        assert!(used.is_signed_in(), "{hour}");
        stage.clock.advance(1);
        if hour == 11 {
            // Looking does not count as use for another browser.
            assert!(auditor.get("/app/account").status != 200, "auditors' sessions last eight hours");
        }
        if hour == 12 {
            assert!(!idle.is_signed_in());
        }
        if hour == 7 * 24 {
            assert!(!used.is_signed_in());
        }
    }
}

#[test]
fn a_code_follows_the_password_and_works_once() {
    let stage = stage();
    stage.with_authenticator(1);
    let mut browser = stage.browser();
    let answer = browser.sign_in(1, PASSWORD);
    assert_eq!(answer.location().as_deref(), Some("/app/sign-in/code?next="));
    let half = browser.clone();
    // Half a session opens nothing.
    for path in ["/app/account", &events_path(1)] {
        assert_eq!(browser.get(path).location().as_deref(), Some("/app/sign-in/code"), "{path}");
    }
    assert_eq!(browser.get("/app").location().as_deref(), Some("/app/sign-in"));
    let right = code(&stage, 1);
    let wrong = if right == "000000" { "000001" } else { "000000" };
    let send = |browser: &mut Browser<'_>, code: &str| browser.post("/app/sign-in/code", &[("code", code)]);
    assert_eq!(send(&mut browser, wrong).status, 422);
    assert_eq!(send(&mut browser, &right).location().as_deref(), Some("/app/signed-in?next="));
    assert!(browser.is_signed_in());
    assert_eq!(
        half.clone().get("/app/sign-in/code").location().as_deref(),
        Some("/app/sign-in?next=%2Fapp%2Fsign-in%2Fcode")
    );
    let mut thief = stage.browser();
    thief.sign_in(1, PASSWORD);
    assert_eq!(send(&mut thief, &right).status, 422, "the same code");
    stage.clock.advance(30_000);
    assert_eq!(send(&mut thief, &code(&stage, 1)).status, 303);
    // Ten guesses, then a wait.
    let mut guesser = stage.browser();
    guesser.sign_in(1, PASSWORD);
    for _ in 0..10 {
        assert_eq!(send(&mut guesser, "12345").status, 422);
    }
    assert_eq!(send(&mut guesser, "12345").status, 429);
}

#[test]
fn an_authenticator_is_set_up_with_the_password_and_a_code_and_recovery_codes_work_once() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    assert_eq!(browser.post("/app/account/authenticator", &[("old", "wrong")]).status, 422);
    let page = browser.post("/app/account/authenticator", &[("old", PASSWORD)]);
    assert_eq!(page.status, 200);
    page.shows("otpauth://totp/Sealog:Person1@Example.org?secret=");
    // A browser that was left open shows no secret, and turns nothing on.
    let page = browser.get("/app/account");
    assert!(!page.has("otpauth:") && !page.has("Key for the authenticator"));
    page.shows("action=\"/app/account/authenticator/confirm\"");
    let secret = stage.wait(stage.control.authenticator(person_id(1))).unwrap().unwrap().secret;
    let code = totp::code_at(&secret, stage.now_ms() / 30_000);
    let mut without_code = stage.signed_in(1);
    let mut confirm = |code: &str| browser.post("/app/account/authenticator/confirm", &[("code", code)]);
    let refused = confirm("x");
    assert_eq!(refused.status, 422);
    refused.shows("Wrong code.");
    assert!(!refused.has("otpauth:"));
    let page = confirm(&code);
    page.shows("Recovery codes").shows("Shown once");
    assert!(!without_code.is_signed_in(), "it began without a code");
    let codes: Vec<String> = page
        .text()
        .split_once("aria-label=\"Codes to copy\" data-copy>")
        .unwrap()
        .1
        .lines()
        .take(10)
        .map(str::to_owned)
        .collect();
    assert_eq!(codes[0].len(), 19, "{codes:?}");
    assert!(!browser.get("/app/account").has(&codes[0]), "shown once");
    let kept = format!("{:?}", stage.wait(stage.control.export()).unwrap());
    assert!(!kept.contains(&codes[0]) && !kept.contains(&codes[0].replace('-', "")));
    for (n, expected) in [(0, 303), (0, 422), (1, 303)] {
        let mut other = stage.browser();
        other.sign_in(1, PASSWORD);
        // However it is typed.
        let typed = codes[n].to_uppercase().replace('-', " ");
        assert_eq!(other.post("/app/sign-in/code", &[("code", &typed)]).status, expected, "{n}");
    }
    browser.get("/app/account").shows("8 recovery codes left");
    assert_eq!(browser.post("/app/account/authenticator/remove", &[("old", "wrong")]).status, 422);
    assert_eq!(browser.post("/app/account/authenticator/remove", &[("old", PASSWORD)]).status, 303);
    assert_eq!(stage.browser().sign_in(1, PASSWORD).location().as_deref(), Some("/app/signed-in?next="));
}

#[test]
fn a_new_password_needs_the_old_one_and_ends_all_other_sessions() {
    let stage = stage();
    let (mut browser, mut other) = (stage.signed_in(1), stage.signed_in(1));
    let change = |browser: &mut Browser<'_>, old: &str, new: &str| {
        browser.post("/app/account/password", &[("old", old), ("password", new)])
    };
    change(&mut browser, "wrong", NEW_PASSWORD).shows("Wrong password.");
    change(&mut browser, PASSWORD, "short").shows("Use at least 10 characters.");
    for guessed in ["password123456".to_owned(), format!("{}2026", email(1).split('@').next().unwrap())] {
        change(&mut browser, PASSWORD, &guessed).shows("Too easy to guess.");
    }
    assert_eq!(change(&mut browser, PASSWORD, &"x".repeat(1001)).status, 422);
    assert!(other.is_signed_in());
    assert_eq!(change(&mut browser, PASSWORD, NEW_PASSWORD).status, 303);
    assert!(browser.is_signed_in() && !other.is_signed_in());
    assert_eq!(stage.browser().sign_in(1, PASSWORD).status, 422);
    assert_eq!(stage.browser().sign_in(1, NEW_PASSWORD).status, 303);
}

/// A link to a new password is used in the middle of the next request, when that makes its token.
fn reset_meanwhile(stage: &Stage, n: u8) {
    let (control, now_ms) = (Arc::clone(&stage.control), stage.now_ms());
    stage.clock.at_next_random(move || {
        let link = Link {
            id: Uuid::from_random([n; 16]),
            digest: Some(Hash([n; 32])),
            purpose: Purpose::Reset { person_id: person_id(n) },
            created_at_ms: now_ms,
            expires_at_ms: now_ms + 1,
        };
        sealog_testing::wait(control.create_link(link, None, vec![])).unwrap().unwrap();
        sealog_testing::wait(control.reset_password(
            Hash([n; 32]),
            now_ms,
            "h".into(),
            PersonRecords::none(),
        ))
        .unwrap()
        .unwrap();
    });
}

#[test]
fn a_password_that_was_right_begins_no_session_once_another_is_set() {
    let stage = stage();
    let mut browser = stage.browser();
    reset_meanwhile(&stage, 1);
    browser.sign_in(1, PASSWORD).shows("Wrong e-mail or password.");
    assert!(!browser.is_signed_in());
    assert!(!stage.records(1).iter().any(|record| record.contains("sealog.signed_in")));
}

#[test]
fn a_code_that_was_right_begins_no_session_once_another_password_is_set() {
    let stage = stage();
    stage.with_authenticator(1);
    let mut browser = stage.browser();
    assert_eq!(browser.sign_in(1, PASSWORD).status, 303);
    let code = code(&stage, 1);
    reset_meanwhile(&stage, 1);
    browser.post("/app/sign-in/code", &[("code", &code)]).shows("Wrong code");
    assert!(!browser.is_signed_in());
}

#[test]
fn sessions_are_listed_and_ended_by_their_owner_alone() {
    let stage = stage();
    stage.member(2, 1, Role::Owner);
    let (mut browser, mut other, mut stranger) = (stage.signed_in(1), stage.signed_in(1), stage.signed_in(2));
    let sessions = |n| stage.wait(stage.control.sessions::<Person>(person_id(n), stage.now_ms())).unwrap();
    let page = browser.get("/app/account");
    for session in sessions(1) {
        page.shows(&session.token_digest.to_string());
    }
    let foreign = sessions(2)[0].token_digest.to_string();
    assert!(!page.has(&foreign));
    browser.post("/app/account/sessions", &[("session", &foreign)]).is_problem(404, "request/not_found");
    assert!(stranger.is_signed_in());
    browser.post("/app/account/sessions", &[("session", "others")]);
    assert!(browser.is_signed_in() && !other.is_signed_in() && stranger.is_signed_in());
    let own = sessions(1)[0].token_digest.to_string();
    browser.post("/app/account/sessions", &[("session", &own)]);
    assert!(!browser.is_signed_in());
}

/// Sends what is in the outbox as the mailer does, and returns the secret that the mail has.
fn mailed(stage: &Stage) -> Option<(Notice, Token)> {
    let due = stage.wait(stage.control.due_notices(stage.now_ms(), 9)).unwrap();
    let notice = due.into_iter().next()?;
    let token = Token::new(&*stage.clock);
    let (now, digest) = (stage.now_ms(), Some(token.digest()));
    assert!(stage.wait(stage.control.claim_notice(notice.id, now, now + 1, digest)).unwrap());
    stage.wait(stage.control.notice_attempted(notice.id, NoticeOutcome::Sent { now_ms: now })).unwrap();
    Some((notice, token))
}

#[test]
fn a_lost_password_is_set_anew_by_mail_which_ends_all_sessions_and_leaves_the_authenticator() {
    let stage = stage();
    stage.with_authenticator(1);
    let mut other = stage.signed_in(1);
    let mut browser = stage.browser();
    let known = browser.post("/app/forgot", &[("email", "person1@example.ORG")]);
    let unknown = browser.post("/app/forgot", &[("email", "nobody@example.org")]);
    assert_eq!(known.text(), unknown.text());
    known.shows("If this address has an account, we have sent it an e-mail.");
    stage.settle(|| stage.wait(stage.control.pending_notices()).unwrap() == 1);
    let (notice, token) = mailed(&stage).unwrap();
    assert_eq!((notice.to.as_str(), notice.template.as_str()), ("Person1@Example.org", "reset"));
    let reset = |browser: &mut Browser<'_>, token: &str, password: &str| {
        browser.post("/app/reset", &[("token", token), ("password", password)])
    };
    reset(&mut browser, &token.0.0, "short").shows("Use at least 10 characters.");
    assert!(other.is_signed_in());
    let answer = reset(&mut browser, &token.0.0, NEW_PASSWORD);
    assert_eq!(answer.location().as_deref(), Some("/app/sign-in?after=reset"));
    assert!(!other.is_signed_in());
    reset(&mut browser, &token.0.0, NEW_PASSWORD).shows("This link is used, expired or incomplete.");
    let answer = browser.sign_in(1, NEW_PASSWORD);
    assert_eq!(
        answer.location().as_deref(),
        Some("/app/sign-in/code?next="),
        "the authenticator is as it was"
    );

    // One that nobody uses in time.
    browser.post("/app/forgot", &[("email", "person1@example.org")]);
    stage.settle(|| stage.wait(stage.control.pending_notices()).unwrap() == 1);
    let (_, token) = mailed(&stage).unwrap();
    stage.clock.advance(RESET_MS);
    reset(&mut browser, &token.0.0, PASSWORD).shows("This link is used, expired or incomplete.");
}

#[test]
fn a_link_that_is_made_on_the_host_leads_to_the_configured_address() {
    let stage = stage();
    let make = |email: &str| {
        let world: Arc<dyn World> = Arc::clone(&stage.clock) as _;
        stage.wait(make_reset_link(&stage.control, &world, "https://log.example/app", email)).unwrap()
    };
    assert!(make("nobody@example.org").is_none());
    let link = make("person1@example.org").unwrap().url;
    assert!(link.0.starts_with("https://log.example/app/reset#"), "{}", link.0);
    let token = token_of(&link.0).0.0.clone();
    let mut browser = stage.browser();
    browser.host = "evil.example".into();
    let answer = browser.post("/app/reset", &[("token", &token), ("password", NEW_PASSWORD)]);
    assert_eq!(answer.status, 303);
    assert_eq!(stage.browser().sign_in(1, NEW_PASSWORD).status, 303);
}

fn invite(stage: &Stage, email: &str) -> Token {
    let path = format!("/app/o/{}/members/invite", tenant_id(1));
    let fields = [
        ("email", email),
        ("role", "auditor"),
        ("project", &project_id(1).to_string()),
        ("until", "2026-12-31"),
    ];
    let answer = stage.signed_in(1).post(&path, &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    mailed(stage).expect("a mail with the invitation").1
}

#[test]
fn somebody_without_an_account_accepts_an_invitation_with_a_password() {
    let stage = stage();
    let token = invite(&stage, "New@Example.org");
    let mut browser = stage.browser();
    let look = browser.post("/app/invitation", &[("token", &token.0.0)]);
    look.shows("Organisation 1 invites you")
        .shows("As Auditor, for New@Example.org")
        .shows("name=\"password\"");
    let accept = |browser: &mut Browser<'_>, password: &str| {
        browser.post("/app/invitation", &[("token", &token.0.0), ("accept", "1"), ("password", password)])
    };
    accept(&mut browser, "short").shows("Use at least 10 characters.");
    let accepted = accept(&mut browser, PASSWORD);
    assert_eq!(accepted.location().as_deref(), Some("/app/signed-in?next="), "signed in right after it");
    assert!(browser.is_signed_in());
    let mut browser = stage.browser();
    accept(&mut browser, PASSWORD).shows("This link is used, expired or incomplete.");
    let (person, _) = stage.wait(stage.control.person_by_email("new@example.org".into())).unwrap().unwrap();
    let member = stage.wait(stage.control.member(tenant_id(1), person.id)).unwrap().unwrap().membership;
    assert!(person.verified);
    assert_eq!((member.role, member.grants.projects), (Role::Auditor, Some(vec![project_id(1)])));
    assert!(member.ends_at_ms.is_some(), "auditors stay for 90 days, unless something else was said");
    assert_eq!(member.grants.until_ms, Some(1_798_761_600_000));
    let records = stage.records(1);
    assert!(records.iter().any(|record| record.contains("sealog.member_invited")), "{records:?}");
    assert!(records.iter().any(|record| record.contains("sealog.member_added")), "{records:?}");
    assert!(!records.iter().any(|record| record.to_lowercase().contains("example.org")), "{records:?}");
}

#[test]
fn somebody_with_an_account_accepts_an_invitation_signed_in_and_nobody_else_does() {
    let stage = stage();
    stage.tenant(2);
    stage.member(5, 2, Role::Owner);
    stage.member(6, 2, Role::Owner);
    let token = invite(&stage, "person5@EXAMPLE.org");
    let accept = |browser: &mut Browser<'_>| {
        browser.post("/app/invitation", &[("token", &token.0.0), ("accept", "1"), ("password", NEW_PASSWORD)])
    };
    // Whoever has the mail, but is not signed in, sets no password.
    accept(&mut stage.browser()).shows("You already have an account.");
    accept(&mut stage.signed_in(6)).shows("You are signed in with another address.");
    assert_eq!(stage.browser().sign_in(5, PASSWORD).status, 303, "the password is as it was");
    let memberships = || stage.wait(stage.control.memberships(person_id(5))).unwrap().len();
    assert_eq!(memberships(), 1);
    assert_eq!(accept(&mut stage.signed_in(5)).location().as_deref(), Some("/app?choose=1"));
    assert_eq!(memberships(), 2);
    stage.signed_in(5).get("/app").shows("Organisation 1").shows("Organisation 2");
}

#[test]
fn a_session_is_as_short_as_an_auditors_from_the_acceptance_on() {
    let stage = stage();
    stage.tenant(2);
    stage.member(5, 2, Role::Owner);
    let hour_ms = 60 * MINUTE_MS;
    let mut browser = stage.signed_in(5);
    stage.clock.advance(7 * hour_ms);
    let token = invite(&stage, &email(5));
    let answer = browser.post("/app/invitation", &[("token", &token.0.0), ("accept", "1")]);
    assert_eq!(answer.location().as_deref(), Some("/app?choose=1"));
    assert!(browser.is_signed_in());
    stage.clock.advance(hour_ms);
    assert!(!browser.is_signed_in(), "eight hours after it began");
    assert_eq!(stage.wait(stage.control.sessions::<Person>(person_id(5), stage.now_ms())), Ok(vec![]));
}

#[test]
fn an_invitation_ends_after_a_week_or_when_it_is_withdrawn() {
    let stage = stage();
    let token = invite(&stage, "a@example.org");
    let mut owner = stage.signed_in(1);
    let members = format!("/app/o/{}/members", tenant_id(1));
    owner.get(&members).shows("a@example.org");
    let id =
        stage.wait(stage.control.invitations(tenant_id(1), stage.now_ms(), 9)).unwrap()[0].id.to_string();
    // Of another organisation it is not there.
    stage.tenant(2);
    stage.member(9, 2, Role::Owner);
    let foreign = format!("/app/o/{}/members/withdraw", tenant_id(2));
    stage.signed_in(9).post(&foreign, &[("invitation", &id)]).is_problem(404, "request/not_found");
    assert_eq!(owner.post(&format!("{members}/withdraw"), &[("invitation", &id)]).status, 303);
    stage
        .browser()
        .post("/app/invitation", &[("token", &token.0.0)])
        .shows("This link is used, expired or incomplete.");
    let token = invite(&stage, "a@example.org");
    stage.clock.advance(INVITATION_MS);
    stage
        .browser()
        .post("/app/invitation", &[("token", &token.0.0)])
        .shows("This link is used, expired or incomplete.");
}

#[test]
fn over_plain_http_off_this_machine_the_page_says_that_https_is_needed() {
    let stage = stage();
    let mut browser = stage.browser();
    browser.host = "192.168.1.2:8080".into();
    let page = browser.get("/app/sign-in");
    page.shows("Sign-in requires HTTPS.");
    assert!(!page.has("name=\"password\""));
    let answer = browser.sign_in(1, PASSWORD);
    assert_eq!(answer.status, 403);
    assert!(browser.cookies.is_empty());
    let plain = Stage::at("http://log.example/app");
    plain.browser().get("/app/sign-in").shows("Sign-in requires HTTPS.");
    // Behind HTTPS the cookie is bound to its host.
    let secure = Stage::at("https://log.example/app");
    secure.tenant(1);
    secure.member(1, 1, Role::Owner);
    let mut browser = secure.browser();
    browser.host = "log.example".into();
    let answer = browser.sign_in(1, PASSWORD);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-sealog=") && cookie.contains("; Secure;"), "{cookie}");
}

#[test]
fn a_browser_that_keeps_no_cookie_is_told_so_and_not_sent_in_a_circle() {
    let stage = stage();
    let mut browser = stage.browser();
    let answer = browser.sign_in(1, PASSWORD);
    browser.cookies.clear();
    let page = browser.follow(answer);
    assert_eq!(page.status, 200);
    page.shows("Your browser did not keep the session");
}

#[test]
fn after_signing_in_the_page_that_was_asked_for_comes_and_never_another_site() {
    let stage = stage();
    let mut browser = stage.browser();
    let asked = format!("{}?action=user.login", events_path(1));
    let page = browser.get(&asked);
    let page = browser.follow(page);
    page.shows(&format!("name=\"next\" value=\"{asked}\""));
    let answer =
        browser.post("/app/sign-in", &[("email", &email(1)), ("password", PASSWORD), ("next", &asked)]);
    let answer = browser.get(&answer.location().unwrap());
    assert_eq!(answer.location().as_deref(), Some(asked.as_str()));
    for next in ["//evil.example", "https://evil.example/app", "/app/../../x\\", "javascript:alert(1)"] {
        let answer =
            browser.post("/app/sign-in", &[("email", &email(1)), ("password", PASSWORD), ("next", next)]);
        let answer = browser.get(&answer.location().unwrap());
        assert_eq!(answer.location().as_deref(), Some("/app"), "{next}");
    }
}
