//! How operators come to have an account, sign in, and stay signed in.

use sealog_control::*;
use sealog_core::id::{Hash, Uuid};
use sealog_service::people::ops::{AddError, add_operator, remove_operator};
use sealog_service::people::sign_in::{Token, totp};
use sealog_store::world::World;
use sha2::{Digest, Sha256};

use crate::harness::*;

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

pub fn operator_email(n: u8) -> String {
    format!("Operator{n}@Example.org")
}

pub fn operator_id(n: u8) -> OpsUserId {
    OpsUserId(Uuid::from_random([n.wrapping_add(200); 16]))
}

/// Somebody whose password is set, and who has no authenticator yet.
pub fn half_operator(stage: &Stage, n: u8) {
    let link = OpsLink { digest: Hash([n; 32]), expires_at_ms: u64::MAX >> 1 };
    let new =
        NewOpsUser { id: operator_id(n), email: operator_email(n), link, created_at_ms: stage.now_ms() };
    stage.wait(stage.control.add_ops_user(new)).unwrap();
    stage
        .wait(stage.control.enrol_ops_user(link.digest, stage.now_ms(), hash_of_password(n), vec![9; 20]))
        .unwrap()
        .unwrap();
    assert!(stage.wait(stage.control.offer_ops_authenticator(operator_id(n), vec![n; 20])).unwrap());
}

/// With the authenticator whose secret is twenty times the number.
pub fn operator(stage: &Stage, n: u8) {
    half_operator(stage, n);
    with_session(stage, n, false);
}

/// A browser in which somebody has shown the password, and the code unless it is to be asked for.
pub fn with_session(stage: &Stage, n: u8, needs_code: bool) -> Browser<'_> {
    let [half, whole] = [0, 1].map(|_| Token::new(&*stage.clock));
    let session = |token: &Token, needs_code| Session::<OpsUser> {
        token_digest: token.digest(),
        account_id: operator_id(n),
        needs_code,
        created_at_ms: stage.now_ms(),
        expires_at_ms: stage.now_ms() + 1_000_000_000,
        last_seen_at_ms: stage.now_ms(),
        idle_ms: 1_000_000_000,
        address: None,
        user_agent: None,
    };
    let begin = |session, shown| {
        assert!(stage.wait(stage.control.begin_session(session, shown, Room::Reserve)).unwrap())
    };
    begin(session(&half, true), Shown::Password { hash: hash_of_password(n), replaces: None });
    let token = if needs_code {
        half
    } else {
        let user = stage.wait(stage.control.account::<OpsUser>(operator_id(n))).unwrap().unwrap();
        let step = user.last_step.map_or(1, |last| last + 1);
        let shown = Shown::Code { asked_by: half.digest(), code: Code::Step { secret: vec![n; 20], step } };
        begin(session(&whole, false), shown);
        whole
    };
    let mut browser = stage.browser();
    browser.cookies.insert(format!("sealog_ops={}", token.0.0));
    browser
}

pub fn signed_in(stage: &Stage, n: u8) -> Browser<'_> {
    with_session(stage, n, false)
}

pub fn code(stage: &Stage, secret: &[u8]) -> String {
    totp::code_at(secret, stage.now_ms() / 30_000)
}

pub fn sign_in(browser: &mut Browser<'_>, n: u8, password: &str) -> Response {
    browser.post("/ops/sign-in", &[("email", &operator_email(n)), ("password", password)])
}

pub fn is_signed_in(browser: &mut Browser<'_>) -> bool {
    browser.get("/ops/tenants").status == 200
}

/// The secret of a link that the host has made.
fn link(stage: &Stage, n: u8) -> String {
    let email = operator_email(n);
    let made = add_operator(&stage.control, &*stage.clock, "http://127.0.0.1:8080/ops", &email);
    let url = &stage.wait(made).unwrap().url.0;
    url.strip_prefix("http://127.0.0.1:8080/ops/enrol#").unwrap().to_owned()
}

/// What the page of a new authenticator shows.
fn offered(page: &Response) -> Vec<u8> {
    let text = page.text().split_once("secret=").unwrap().1.split('&').next().unwrap();
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = text.chars().map(|letter| format!("{:05b}", LETTERS.find(letter).unwrap())).collect();
    (0..20).map(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).unwrap()).collect()
}

fn enrols_once(stage: &Stage) {
    let secret = link(stage, 1);
    let mut browser = stage.browser();
    browser.get("/ops/enrol").shows("Set your password");
    let enrol = |browser: &mut Browser<'_>, token: &str, password: &str| {
        browser.post("/ops/enrol", &[("token", token), ("password", password)])
    };
    let short = enrol(&mut browser, &secret, "short");
    assert_eq!(short.status, 422);
    short.shows("Use at least 10 characters.").shows(&secret);
    assert!(!short.has("value=\"short\""), "a password never comes back");
    assert_eq!(enrol(&mut browser, &"0".repeat(64), PASSWORD).status, 422);
    let answer = enrol(&mut browser, &format!("http://127.0.0.1:8080/ops/enrol#{secret}"), PASSWORD);
    assert_eq!(answer.location().as_deref(), Some("/ops/enrol/authenticator"));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("sealog_ops=") && cookie.ends_with("; Path=/ops; HttpOnly; SameSite=Strict"));
    assert_eq!(enrol(&mut stage.browser(), &secret, PASSWORD).status, 422, "it works once");

    // Nothing is open before the first code, and neither does signing in again help.
    for path in ["/ops", "/ops/tenants", "/ops/losses", "/ops/storage"] {
        assert_eq!(browser.get(path).location().as_deref(), Some("/ops/enrol/authenticator"), "{path}");
    }
    let mut other = stage.browser();
    let answer = sign_in(&mut other, 1, PASSWORD);
    let page = other.follow(answer);
    page.shows("Set up your authenticator");
    let key = offered(&page);
    assert_eq!(offered(&browser.get("/ops/enrol/authenticator")), key, "one key, wherever it is looked at");
    let confirm =
        |browser: &mut Browser<'_>, code: &str| browser.post("/ops/enrol/authenticator", &[("code", code)]);
    let wrong = confirm(&mut browser, "000000");
    assert_eq!(wrong.status, 422);
    wrong.shows("Wrong code").shows("Key for the authenticator");
    let answer = confirm(&mut browser, &code(stage, &key));
    assert_eq!(answer.location().as_deref(), Some("/ops"));
    assert!(is_signed_in(&mut browser));
    assert_eq!(
        other.get("/ops/enrol/authenticator").location().as_deref(),
        Some("/ops/sign-in?next=%2Fops%2Fenrol%2Fauthenticator")
    );

    // From now on each sign-in asks for a code, which works once.
    let used = code(stage, &key);
    let mut again = stage.browser();
    let answer = sign_in(&mut again, 1, PASSWORD);
    again.follow(answer).shows("Enter your code");
    let code_page = |browser: &mut Browser<'_>, code: &str| {
        browser.post("/ops/sign-in/code", &[("code", code), ("next", "/ops/losses")])
    };
    assert_eq!(code_page(&mut again, &used).status, 422);
    stage.clock.advance(30_000);
    let answer = code_page(&mut again, &code(stage, &key));
    assert_eq!(answer.location().as_deref(), Some("/ops/losses"));
    assert!(is_signed_in(&mut again));
    again.post("/ops/sign-out", &[]);
    assert!(!is_signed_in(&mut again) && is_signed_in(&mut browser));
}

#[test]
fn a_link_from_the_host_sets_the_password_and_an_authenticator_follows_before_anything_else() {
    enrols_once(&Stage::new());
}

#[test]
fn a_link_from_the_host_sets_the_password_and_an_authenticator_follows_on_postgresql() {
    enrols_once(&Stage::on_postgres());
}

#[test]
fn a_link_is_over_after_a_day_and_another_one_takes_its_place_until_somebody_has_come_in() {
    let stage = Stage::new();
    let enrol =
        |token: &str| stage.browser().post("/ops/enrol", &[("token", token), ("password", PASSWORD)]).status;
    let first = link(&stage, 1);
    let second = link(&stage, 1);
    assert_eq!(enrol(&first), 422);
    stage.clock.advance(24 * HOUR_MS);
    assert_eq!(enrol(&second), 422);
    let third = link(&stage, 1);
    stage.clock.advance(24 * HOUR_MS - 1);
    assert_eq!(enrol(&third), 303);
    operator(&stage, 2);
    let (control, world): (_, &dyn World) = (&*stage.control, &*stage.clock);
    let add = |email: &str| stage.wait(add_operator(control, world, "http://x/ops", email)).unwrap_err();
    assert_eq!(add(&operator_email(2).to_uppercase()), AddError::Exists);
    assert_eq!(add("nobody"), AddError::Address);
}

#[test]
fn whoever_guesses_is_stopped_by_counts_in_the_store_and_people_are_not_counted_with_operators() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    operator(&stage, 1);
    let mut browser = stage.browser();
    for _ in 0..10 {
        let answer = sign_in(&mut browser, 1, "a wrong password");
        assert_eq!(answer.status, 422);
        answer.shows("Wrong e-mail or password.").shows(&operator_email(1));
    }
    sign_in(&mut browser, 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    let mut elsewhere = stage.browser();
    elsewhere.address = "203.0.113.9".parse().unwrap();
    assert_eq!(sign_in(&mut elsewhere, 1, PASSWORD).status, 303, "nobody is kept out elsewhere");
    assert_eq!(stage.browser().sign_in(1, PASSWORD).status, 303, "people are counted apart");
    operator(&stage, 2);
    assert_eq!(sign_in(&mut browser, 2, PASSWORD).status, 303);
    stage.clock.advance(15 * MINUTE_MS);
    assert_eq!(sign_in(&mut browser, 1, PASSWORD).status, 303);
    for _ in 0..10 {
        assert_eq!(browser.post("/ops/sign-in/code", &[("code", "000000")]).status, 422);
    }
    let right = code(&stage, &[1; 20]);
    browser.post("/ops/sign-in/code", &[("code", &right)]).is_problem(429, "auth/too_many_attempts");
    // An address that nobody has is answered as one that somebody has.
    assert_eq!(sign_in(&mut stage.browser(), 9, PASSWORD).status, 422);
}

/// Counts an attempt of a stranger at the operator 1, as sign-in does, without the work of a password.
fn stranger_tries(stage: &Stage) -> u64 {
    let subject = format!("sealog attempts ops account {}", operator_email(1).to_lowercase());
    let account = Hash(Sha256::digest(subject).into());
    let counted = stage.control.count_attempt(vec![account], stage.now_ms(), 24 * HOUR_MS);
    stage.wait(counted).unwrap()[0].attempts
}

/// Signs an operator in and out again: what is left is by what the browser is known.
fn known_browser(stage: &Stage, n: u8) -> Browser<'_> {
    let mut browser = stage.browser();
    stage.clock.advance(30_000);
    assert_eq!(sign_in(&mut browser, n, PASSWORD).status, 303);
    let right = code(stage, &[n; 20]);
    assert_eq!(browser.post("/ops/sign-in/code", &[("code", &right)]).status, 303);
    assert!(is_signed_in(&mut browser));
    browser.post("/ops/sign-out", &[]);
    assert!(browser.cookies.iter().all(|cookie| cookie.starts_with("sealog_ops_device=")));
    assert_eq!(browser.cookies.len(), 1);
    browser
}

#[test]
fn after_a_hundred_wrong_passwords_of_a_day_an_operator_gets_in_with_a_known_browser_alone() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    operator(&stage, 1);
    operator(&stage, 2);
    let (mut known, mut anothers) = (known_browser(&stage, 1), known_browser(&stage, 2));
    while stranger_tries(&stage) < 99 {}
    let mut stranger = stage.browser();
    assert_eq!(sign_in(&mut stranger, 1, "a wrong password").status, 422, "the hundredth");
    for address in ["192.0.2.1", "203.0.113.9", "198.51.100.1"] {
        stranger.address = address.parse().unwrap();
        sign_in(&mut stranger, 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    }
    assert_eq!(sign_in(&mut known, 1, PASSWORD).status, 303);
    // What another operator, or a person, is known by opens nothing here.
    sign_in(&mut anothers, 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    assert_eq!(sign_in(&mut anothers, 2, PASSWORD).status, 303);
    let mut persons = stage.browser();
    assert_eq!(persons.sign_in(1, PASSWORD).status, 303);
    let device = persons.cookies.iter().find_map(|cookie| cookie.strip_prefix("sealog_device=")).unwrap();
    persons.cookies = [format!("sealog_ops_device={device}")].into();
    sign_in(&mut persons, 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    // A known browser has a count of its own, so that a stolen one does not try for ever.
    for _ in 0..10 {
        assert_eq!(sign_in(&mut known, 1, "a wrong password").status, 422);
    }
    sign_in(&mut known, 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    stage.clock.advance(24 * HOUR_MS);
    assert_eq!(sign_in(&mut stage.browser(), 1, PASSWORD).status, 303);
}

#[test]
fn a_link_from_the_host_lets_an_operator_in_whom_strangers_keep_out() {
    let stage = Stage::new();
    operator(&stage, 1);
    while stranger_tries(&stage) < 100 {}
    sign_in(&mut stage.browser(), 1, PASSWORD).is_problem(429, "auth/too_many_attempts");
    let removed = stage.wait(remove_operator(&stage.control, &*stage.clock, &operator_email(1))).unwrap();
    assert!(removed);
    let secret = link(&stage, 1);
    let enrolled = stage.browser().post("/ops/enrol", &[("token", &secret), ("password", PASSWORD)]);
    assert_eq!(enrolled.location().as_deref(), Some("/ops/enrol/authenticator"));
    assert_eq!(sign_in(&mut stage.browser(), 1, PASSWORD).status, 303);
}

#[test]
fn a_browser_is_known_from_the_code_on_and_not_from_the_password() {
    let stage = Stage::new();
    operator(&stage, 1);
    let mut browser = stage.browser();
    let answer = sign_in(&mut browser, 1, PASSWORD);
    assert!(answer.header("set-cookie").unwrap().starts_with("sealog_ops="));
    assert!(!browser.cookies.iter().any(|cookie| cookie.starts_with("sealog_ops_device=")));
    assert_eq!(stage.wait(stage.control.export()).unwrap().ops_devices, []);
    stage.clock.advance(30_000);
    let right = code(&stage, &[1; 20]);
    assert_eq!(browser.post("/ops/sign-in/code", &[("code", &right)]).status, 303);
    let kept = stage.wait(stage.control.export()).unwrap();
    assert_eq!((kept.ops_devices.len(), kept.devices.len()), (1, 0));
    // Only digests are kept.
    for cookie in &browser.cookies {
        assert!(!format!("{kept:?}").contains(cookie.split_once('=').unwrap().1));
    }
    // What is kept does not show that two operators share a browser.
    operator(&stage, 2);
    assert_eq!(sign_in(&mut browser, 2, PASSWORD).status, 303);
    let right = code(&stage, &[2; 20]);
    assert_eq!(browser.post("/ops/sign-in/code", &[("code", &right)]).status, 303);
    let [one, other] = &stage.wait(stage.control.export()).unwrap().ops_devices[..] else { panic!() };
    assert_ne!(one.digest, other.digest);
}

#[test]
fn a_session_ends_after_half_an_hour_without_use_and_after_eight_hours_of_it() {
    let stage = Stage::new();
    half_operator(&stage, 1);
    operator(&stage, 2);
    let enter = |browser: &mut Browser<'_>| {
        stage.clock.advance(30_000);
        assert_eq!(sign_in(browser, 2, PASSWORD).status, 303);
        let right = code(&stage, &[2; 20]);
        assert_eq!(browser.post("/ops/sign-in/code", &[("code", &right)]).status, 303);
    };
    let mut browser = stage.browser();
    enter(&mut browser);
    stage.clock.advance(30 * MINUTE_MS - 1);
    assert!(is_signed_in(&mut browser));
    stage.clock.advance(30 * MINUTE_MS - 1);
    assert!(is_signed_in(&mut browser), "the use before counts");
    stage.clock.advance(30 * MINUTE_MS);
    assert!(!is_signed_in(&mut browser));
    enter(&mut browser);
    for _ in 0..8 * 3 - 1 {
        stage.clock.advance(20 * MINUTE_MS);
        assert!(is_signed_in(&mut browser));
    }
    stage.clock.advance(20 * MINUTE_MS);
    assert!(!is_signed_in(&mut browser));
    // Whoever has shown a password alone has ten minutes.
    let mut half = stage.browser();
    assert_eq!(sign_in(&mut half, 1, PASSWORD).status, 303);
    stage.clock.advance(10 * MINUTE_MS - 1);
    assert_eq!(half.get("/ops/enrol/authenticator").status, 200);
    stage.clock.advance(10 * MINUTE_MS);
    assert_eq!(half.get("/ops/enrol/authenticator").status, 303);
}

#[test]
fn a_removed_operator_is_out_at_once() {
    let stage = Stage::new();
    operator(&stage, 1);
    let mut browser = signed_in(&stage, 1);
    assert!(is_signed_in(&mut browser));
    let remove = |email: &str| stage.wait(remove_operator(&stage.control, &*stage.clock, email)).unwrap();
    assert!(remove("operator1@example.ORG") && !remove("operator1@example.org"));
    assert!(!is_signed_in(&mut browser));
    assert_eq!(sign_in(&mut browser, 1, PASSWORD).status, 422);
}

#[test]
fn over_plain_http_from_elsewhere_nobody_signs_in_to_the_console() {
    let stage = Stage::at("http://log.example/app");
    half_operator(&stage, 1);
    let mut browser = stage.browser();
    browser.host = "log.example".into();
    browser.get("/ops/sign-in").shows("Sign-in requires HTTPS.");
    let answer = sign_in(&mut browser, 1, PASSWORD);
    assert_eq!((answer.status, answer.header("set-cookie")), (403, None));
    let secret = link(&stage, 2);
    let answer = browser.post("/ops/enrol", &[("token", &secret), ("password", PASSWORD)]);
    assert_eq!((answer.status, answer.header("set-cookie")), (403, None));
}
