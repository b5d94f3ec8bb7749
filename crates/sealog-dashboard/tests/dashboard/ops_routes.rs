//! Every route of the console, asked for by everybody.

use axum::http::Method;
use sealog_control::Role;
use sealog_dashboard::ops::{Console, ops_table};
use sealog_dashboard::{Needs, Route, table};

use crate::harness::*;
use crate::ops_accounts::*;

/// What the design says of each page, apart from the code.
const EXPECTED: &[(&str, &str, Needs)] = &[
    ("GET", "/ops", Needs::SignedIn),
    ("GET", "/ops/static/{hash}/{file}", Needs::Nothing),
    ("POST", "/ops/theme", Needs::Nothing),
    ("GET", "/ops/sign-in", Needs::Nothing),
    ("POST", "/ops/sign-in", Needs::Nothing),
    ("GET", "/ops/sign-in/code", Needs::Password),
    ("POST", "/ops/sign-in/code", Needs::Password),
    ("POST", "/ops/sign-out", Needs::Password),
    ("GET", "/ops/enrol", Needs::Nothing),
    ("POST", "/ops/enrol", Needs::Nothing),
    ("GET", "/ops/enrol/authenticator", Needs::Password),
    ("POST", "/ops/enrol/authenticator", Needs::Password),
    ("GET", "/ops/tenants", Needs::SignedIn),
    ("GET", "/ops/tenants/{tenant}", Needs::SignedIn),
    ("POST", "/ops/tenants/{tenant}/plan", Needs::SignedIn),
    ("POST", "/ops/tenants/{tenant}/rate", Needs::SignedIn),
    ("POST", "/ops/tenants/{tenant}/project-rate", Needs::SignedIn),
    ("POST", "/ops/tenants/{tenant}/close", Needs::SignedIn),
    ("GET", "/ops/losses", Needs::SignedIn),
    ("GET", "/ops/losses/{tenant}/{project}/{mode}", Needs::SignedIn),
    ("POST", "/ops/losses/{tenant}/{project}/{mode}", Needs::SignedIn),
    ("GET", "/ops/jobs", Needs::SignedIn),
    ("POST", "/ops/jobs/cancel", Needs::SignedIn),
    ("GET", "/ops/outbox", Needs::SignedIn),
    ("POST", "/ops/outbox/retry", Needs::SignedIn),
    ("POST", "/ops/outbox/give-up", Needs::SignedIn),
    ("GET", "/ops/storage", Needs::SignedIn),
    ("GET", "/ops/system", Needs::SignedIn),
];

fn expected(route: &Route<Console>) -> Needs {
    let found =
        EXPECTED.iter().find(|(method, path, _)| *method == route.method.as_str() && *path == route.path);
    found.unwrap_or_else(|| panic!("{route:?} is missing from the table of this test")).2
}

/// The token that a browser has in this cookie.
fn token(browser: &Browser<'_>, name: &str) -> String {
    let cookie = browser.cookies.iter().find_map(|cookie| cookie.strip_prefix(&format!("{name}=")));
    cookie.unwrap().to_owned()
}

fn walk(stage: &Stage) {
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    half_operator(stage, 1);
    operator(stage, 2);
    for route in ops_table() {
        let needs = expected(route);
        let is_form = route.method == Method::POST;
        let path = route
            .path
            .replace("{tenant}", &tenant_id(1).to_string())
            .replace("{project}", &project_id(1).to_string())
            .replace("{mode}", "live")
            .replace("{hash}", "0")
            .replace("{file}", "none");
        let ask = |browser: &mut Browser<'_>| {
            if is_form { browser.post(&path, &[]) } else { browser.get(&path) }
        };
        let to_sign_in =
            |answer: &Response| answer.location().is_some_and(|to| to.starts_with("/ops/sign-in?next="));

        let nobody = ask(&mut stage.browser());
        assert_eq!(to_sign_in(&nobody), needs != Needs::Nothing, "nobody: {route:?} {}", nobody.status);

        // A session of an organisation's owner, in its own cookie and in that of the console.
        let mut owner = stage.signed_in(1);
        let pasted = token(&owner, "sealog_session");
        owner.cookies.insert(format!("sealog_ops={pasted}"));
        let answer = ask(&mut owner);
        assert_eq!(to_sign_in(&answer), needs != Needs::Nothing, "owner: {route:?} {}", answer.status);

        // Whoever has shown a password alone sees what follows it, and nothing else.
        for (n, follows) in [(1, "/ops/enrol/authenticator"), (2, "/ops/sign-in/code")] {
            let answer = ask(&mut with_session(stage, n, true));
            if needs == Needs::SignedIn {
                assert_eq!(answer.location().as_deref(), Some(follows), "{route:?}");
            } else {
                assert!(!to_sign_in(&answer) && answer.status != 500, "{route:?} {}", answer.status);
            }
        }

        let answer = ask(&mut signed_in(stage, 2));
        assert!(!matches!(answer.status, 401 | 403 | 429 | 500), "{route:?} {}", answer.text());
        assert!(!to_sign_in(&answer), "{route:?}");
        // A chain that has lost nothing is none that the page is about.
        let is_none = path.contains("static") || path.starts_with("/ops/losses/");
        assert_eq!(
            answer.status == 404,
            is_none
                || path == "/ops/jobs/cancel"
                || path.starts_with("/ops/outbox/")
                || path.ends_with("project-rate"),
            "{route:?}"
        );

        for site in ["cross-site", "same-site"] {
            let mut browser = signed_in(stage, 2);
            browser.site = Some(site);
            ask(&mut browser).is_problem(403, "request/cross_site");
        }
    }
    for (method, path, _) in EXPECTED {
        assert!(
            ops_table().iter().any(|route| route.method.as_str() == *method && route.path == *path),
            "{method} {path} is not there any more"
        );
    }
}

#[test]
fn every_route_of_the_console_is_for_operators_with_a_code_alone() {
    walk(&Stage::new());
}

#[test]
fn every_route_of_the_console_is_for_operators_with_a_code_alone_on_postgresql() {
    walk(&Stage::on_postgres());
}

/// A path of a table of routes, with something for each of its parameters.
fn filled(path: &str) -> String {
    let id = tenant_id(1).to_string();
    let parts = path.split('/').map(|part| if part.starts_with('{') { &id } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Whether this route answers a browser with a session of the other kind alone as one that has none.
fn takes_no_foreign_session(
    (method, path, needs): (&Method, &str, Needs),
    base: &str,
    foreign: &Browser<'_>,
    nobody: Browser<'_>,
) {
    let ask = |mut browser: Browser<'_>| match *method == Method::POST {
        true => browser.post(&filled(path), &[]),
        false => browser.get(&filled(path)),
    };
    let (answer, nobodys) = (ask(foreign.clone()), ask(nobody));
    assert_eq!((answer.status, answer.location()), (nobodys.status, nobodys.location()), "{method} {path}");
    let is_sent_away = answer.location().is_some_and(|to| to.starts_with(&format!("{base}/sign-in?next=")));
    assert_eq!(is_sent_away, needs != Needs::Nothing, "{method} {path} {}", answer.status);
}

fn sessions_of_one_kind_open_nothing_of_the_other(stage: &Stage) {
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    operator(stage, 1);
    let (mut owner, mut operator) = (stage.signed_in(1), signed_in(stage, 1));
    assert_eq!((owner.get("/app/account").status, operator.get("/ops/tenants").status), (200, 200));
    let tokens = (token(&owner, "sealog_session"), token(&operator, "sealog_ops"));
    owner.cookies.insert(format!("sealog_ops={}", tokens.0));
    operator.cookies.insert(format!("sealog_session={}", tokens.1));
    for route in ops_table() {
        let asked = (&route.method, route.path, route.needs);
        takes_no_foreign_session(asked, "/ops", &owner, stage.browser());
    }
    for route in table() {
        let asked = (&route.method, route.path, route.needs);
        takes_no_foreign_session(asked, "/app", &operator, stage.browser());
    }
    assert_eq!((owner.get("/app/account").status, operator.get("/ops/tenants").status), (200, 200));
}

#[test]
fn every_route_of_one_kind_is_closed_to_sessions_of_the_other() {
    sessions_of_one_kind_open_nothing_of_the_other(&Stage::new());
}

#[test]
fn every_route_of_one_kind_is_closed_to_sessions_of_the_other_on_postgresql() {
    sessions_of_one_kind_open_nothing_of_the_other(&Stage::on_postgres());
}

#[test]
fn a_password_of_one_kind_is_worth_nothing_to_the_other() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    operator(&stage, 1);
    let (email, password) = (operator_email(1), PASSWORD);
    let answer = stage.browser().post("/app/sign-in", &[("email", &email), ("password", password)]);
    assert_eq!(answer.status, 422);
    let answer =
        stage.browser().post("/ops/sign-in", &[("email", &crate::harness::email(1)), ("password", password)]);
    assert_eq!(answer.status, 422);
}

#[test]
fn what_the_console_does_not_have_is_a_page_that_says_so() {
    let stage = Stage::new();
    operator(&stage, 1);
    for browser in [&mut stage.browser(), &mut signed_in(&stage, 1)] {
        browser.get("/ops/nowhere").is_problem(404, "request/not_found");
    }
    let mut browser = signed_in(&stage, 1);
    for path in [
        "/ops/tenants/x",
        &format!("/ops/tenants/{}", tenant_id(7)),
        "/ops/tenants?after=x",
        "/ops/jobs?after=x",
    ] {
        browser.get(path).is_problem(404, "request/not_found");
    }
}

#[test]
fn every_page_of_the_console_keeps_to_itself() {
    let stage = Stage::new();
    stage.tenant(1);
    half_operator(&stage, 1);
    operator(&stage, 2);
    let mut pages: Vec<Response> =
        ["/ops/sign-in", "/ops/enrol", "/ops/nowhere"].map(|path| stage.browser().get(path)).into();
    pages.push(with_session(&stage, 1, true).get("/ops/enrol/authenticator"));
    pages.push(with_session(&stage, 2, true).get("/ops/sign-in/code"));
    let tenant = format!("/ops/tenants/{}", tenant_id(1));
    for path in [
        "/ops/tenants",
        &tenant,
        "/ops/losses",
        "/ops/jobs",
        "/ops/jobs?all=1",
        "/ops/outbox",
        "/ops/outbox?state=given_up",
        "/ops/storage",
        "/ops/system",
    ] {
        pages.push(signed_in(&stage, 2).get(path));
    }
    for page in pages {
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.contains("script-src 'self'; style-src 'self'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        let text = page.text();
        assert_eq!(text.matches("<script").count(), text.matches(" src=\"/ops/static/").count(), "{text}");
        assert!(!text.contains("\"/app"), "nothing of it is elsewhere: {text}");
        for banned in [" style=", "<style", " onclick", "javascript:"] {
            assert!(!text.contains(banned), "{banned} in {text}");
        }
    }
    let css = stage.browser().get("/ops/sign-in");
    let css = css.text().split('"').find(|part| part.ends_with("/app.css")).unwrap().to_owned();
    assert_eq!(stage.browser().get(&css).header("content-type"), Some("text/css; charset=utf-8"));
    let theme = stage.browser().post("/ops/theme", &[("theme", "dark"), ("next", "/ops/storage")]);
    assert_eq!(theme.location().as_deref(), Some("/ops/storage"));
    assert!(theme.header("set-cookie").unwrap().contains("; Path=/ops;"));
    let theme = stage.browser().post("/ops/theme", &[("theme", "dark"), ("next", "//elsewhere.example")]);
    assert_eq!(theme.location().as_deref(), Some("/ops"));
    assert_eq!(stage.browser().get("/ops/enrol").header("referrer-policy"), Some("no-referrer"));
}
