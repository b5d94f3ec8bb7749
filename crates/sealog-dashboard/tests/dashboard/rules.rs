//! What holds for every page: headers, scripts, sizes, errors.

use std::path::{Path, PathBuf};

use sealog_control::{Grants, Role};

use crate::harness::*;
use sealog_testing::doubtful::Doubt;

fn furnished() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    for n in 0..60 {
        stage.append(
            live(1),
            &format!("{{\"action\":\"user.login\",\"actor_id\":\"usr_{n}\",\"resource\":\"session/{n}\",\"severity\":\"info\"}}"),
        );
    }
    stage
}

/// Every kind of page, with what a person sees there.
#[test]
fn an_address_of_more_than_8_kilobytes_is_refused_since_links_repeat_it() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    let mut owner = stage.signed_in(1);
    let long = format!("{}?columns={}", events_path(1), "!".repeat(8 << 10));
    owner.get(&long).is_problem(422, "validation/invalid_field");
    let allowed = format!("{}?columns={}", events_path(1), "!".repeat(8000));
    for n in 0..50 {
        stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"{n}"}}"#));
    }
    let repeated = owner.get(&allowed).text().matches("!!!!!!!!").count() / 1000;
    assert!(repeated <= 5, "what is no column is repeated {repeated} times");
}

fn pages(stage: &Stage) -> Vec<Response> {
    let mut owner = stage.signed_in(1);
    let log_id = stage.append(live(1), r#"{"action":"user.login","metadata":{"a":[1,{"b":null}]}}"#);
    let start = || owner.clone().post(&format!("{}/start", verify_path(1)), &[]).location().unwrap();
    let id = |path: String| path.rsplit('/').next().unwrap().to_owned();
    stage.doubtful.doubt(3, Doubt::Missing);
    let ended = id(start());
    stage.work();
    stage.doubtful.trust();
    let run = id(start());
    owner.post(&format!("{}/create", exports_path(1)), &[("format", "ndjson"), ("action", "<b>")]);
    let (organisation, events) = (format!("/app/o/{}", tenant_id(1)), events_path(1));
    let mut pages: Vec<Response> = [
        "/app/sign-in",
        "/app/claim",
        "/app/forgot",
        "/app/reset",
        "/app/invitation",
        "/app/signed-in",
        "/app/nowhere",
    ]
    .map(|path| stage.browser().get(path))
    .into();
    pages.extend(
        [
            "/app/account".to_owned(),
            "/app?choose=1".to_owned(),
            events.clone(),
            format!("{events}?q=from:soon"),
            format!("{events}?q=action:none"),
            format!("{events}?q=action:user.*"),
            format!("{events}?q=wrong:x"),
            events.replace("/live/", "/test/"),
            format!("{events}/{log_id}"),
            events.replace("/events", ""),
            events.replace("/live/events", "/test"),
            format!("{}?from=soon&to=", events.replace("/events", "")),
            events.replace("/events", "/frameworks"),
            events.replace("/events", "/frameworks/soc2"),
            events.replace("/events", "/frameworks/hipaa/change"),
            format!("{organisation}/usage"),
            verify_path(1),
            verify_path(1).replace("/live/", "/test/"),
            format!("{}/{run}", verify_path(1)),
            format!("{}/{ended}", verify_path(1)),
            exports_path(1),
            exports_path(1).replace("/live/", "/test/"),
            format!("{events}?columns=action&columns=hash"),
            events.replace("/events", "/views?query=action%3Duser.login"),
            format!("{organisation}/actions"),
            format!("{organisation}/actions?search=nothing.like.it"),
            format!("{organisation}/actions/entry?action=hipaa.phi_accessed"),
            format!("{organisation}/actions/entry?action=user.login"),
            format!("{organisation}/actions/new"),
            format!("{organisation}/keys"),
            format!("{organisation}/monitor-tokens"),
            format!("{organisation}/monitor-tokens?new=1"),
            format!("{organisation}/projects"),
            format!("{organisation}/members"),
            format!("{organisation}/members/{}", person_id(1).0),
        ]
        .map(|path| owner.get(&path)),
    );
    pages
}

#[test]
fn every_page_has_the_headers_that_keep_it_to_itself() {
    let stage = furnished();
    for page in pages(&stage) {
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        let referrer = page.header("referrer-policy").unwrap();
        assert!(matches!(referrer, "no-referrer" | "same-origin"), "{referrer}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    }
}

/// What the policy would block must not be there in the first place.
#[test]
fn no_page_has_a_script_or_a_style_of_its_own() {
    let stage = furnished();
    for page in pages(&stage) {
        let text = page.text();
        assert_eq!(text.matches("<script").count(), text.matches(" src=\"/app/static/").count(), "{text}");
        for banned in [" style=", "<style", " onclick", " onload", " onsubmit", "javascript:", "hx-on", "js:"]
        {
            assert!(!text.contains(banned), "{banned} in {text}");
        }
        assert!(!text.contains("http://") || !text.contains("src=\"http"), "{text}");
    }
}

fn templates() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

#[test]
fn no_template_gives_up_escaping_or_runs_text_as_code() {
    let templates = templates();
    assert!(templates.len() > 10);
    for path in templates {
        let text = std::fs::read_to_string(&path).unwrap();
        for banned in
            ["|safe", "| safe", "|escape", "hx-on", "hx-vals=\"js", "js:", " style=", "<style", " on"]
        {
            let found = text.match_indices(banned).find(|(at, _)| {
                banned != " on"
                    || text[at + 3..].starts_with(|c: char| c.is_ascii_lowercase())
                        && text[at + 3..]
                            .split('=')
                            .next()
                            .is_some_and(|name| name.len() < 12 && !name.contains(' '))
            });
            assert!(found.is_none(), "{banned:?} in {}", path.display());
        }
    }
}

#[test]
fn every_control_is_a_link_or_a_form_of_its_own() {
    let stage = furnished();
    for page in pages(&stage) {
        let text = page.text();
        // What htmx would fetch is also where the link or the form leads.
        for part in text.split("hx-get=\"").skip(1) {
            let target = part.split('"').next().unwrap();
            assert!(
                text.contains(&format!("href=\"{target}\""))
                    || text.contains(&format!("action=\"{target}\"")),
                "{target}"
            );
        }
        for button in text.split("<button").skip(1) {
            let button = button.split('>').next().unwrap();
            assert!(!button.contains("type=\"button\"") || button.contains("popovertarget"), "{button}");
        }
        assert_eq!(text.matches("<main").count(), 1);
        assert!(text.contains("<html lang=\"en\""));
    }
}

#[test]
fn every_field_has_a_label_and_every_table_a_caption() {
    let stage = furnished();
    for page in pages(&stage) {
        let text = page.text();
        for input in text.split("<input").skip(1).chain(text.split("<select").skip(1)) {
            let input = input.split('>').next().unwrap();
            if input.contains("type=\"hidden\"") || input.contains("type=\"checkbox\"") {
                continue;
            }
            let id =
                input.split("id=\"").nth(1).unwrap_or_else(|| panic!("{input}")).split('"').next().unwrap();
            assert!(text.contains(&format!("for=\"{id}\"")), "{input}");
        }
        assert_eq!(text.matches("<table").count(), text.matches("<caption").count());
    }
}

/// Page, stylesheet and scripts, as a browser gets them for the first time. Pages behind a session are not
/// compressed, so their markup is lean.
#[test]
fn the_first_view_is_below_100_kb_and_the_page_of_events_below_60() {
    let stage = furnished();
    let mut browser = stage.signed_in(1);
    for path in ["/app/sign-in", &events_path(1)] {
        let page = if path.contains("sign-in") { stage.browser().get(path) } else { browser.get(path) };
        assert_eq!(page.status, 200);
        let mut bytes = page.body.len();
        assert!(bytes < 60_000, "{path}: {bytes} bytes of HTML");
        let text = page.text().to_owned();
        let files: Vec<&str> =
            text.split("=\"/app/static/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(!files.is_empty());
        for file in files {
            let file = format!("/app/static/{file}");
            let asset = browser.send("GET", &file, &[("accept-encoding", "gzip, br")], "");
            assert_eq!((asset.status, asset.header("content-encoding")), (200, Some("gzip")), "{file}");
            bytes += asset.body.len();
        }
        println!("{path}: {bytes} bytes");
        assert!(bytes < 100_000, "{path}: {bytes} bytes");
    }
}

#[test]
fn static_files_are_kept_for_ever_under_their_hash_and_not_found_under_another() {
    let stage = Stage::new();
    let page = stage.browser().get("/app/sign-in");
    let path = page.text().split('"').find(|part| part.ends_with("/app.css")).unwrap();
    let file = stage.browser().get(path);
    assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(file.header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!((file.header("vary"), file.header("content-encoding")), (Some("Accept-Encoding"), None));
    assert!(file.header("x-content-type-options").is_some());
    let refused = stage.browser().send("GET", path, &[("accept-encoding", "gzip;q=0")], "");
    assert_eq!(refused.header("content-encoding"), None);
    for wrong in [
        path.replace("app.css", "other.css"),
        path.replace("/static/", "/static/0"),
        "/app/static/../x".into(),
    ] {
        assert_eq!(stage.browser().get(&wrong).status, 404, "{wrong}");
    }
}

#[test]
fn the_root_leads_to_the_app_and_that_to_sign_in() {
    let stage = Stage::new();
    let mut browser = stage.browser();
    assert_eq!(browser.get("/").location().as_deref(), Some("/app"));
    let page = browser.get("/");
    assert_eq!(browser.follow(page).status, 200);
}

#[test]
fn a_problem_has_the_code_the_request_id_and_the_documentation_of_the_api() {
    let stage = furnished();
    stage.browser().get("/app/nowhere").is_problem(404, "request/not_found");
    let mut owner = stage.signed_in(1);
    for log_id in ["x", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        owner.get(&format!("{}/{log_id}", events_path(1))).is_problem(404, "read/not_found");
    }
    for path in ["/app/p/x/live/events".to_owned(), events_path(1).replace("live", "dead"), events_path(7)] {
        owner.get(&path).is_problem(404, "request/not_found");
    }
    let large = format!("theme={}", "x".repeat(64 << 10));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    owner.send("POST", "/app/theme", &form, &large).is_problem(413, "validation/body_too_large");
    owner
        .send("POST", "/app/theme", &[("content-type", "text/plain")], "a")
        .is_problem(400, "request/malformed");
}

#[test]
fn a_problem_keeps_the_frame_for_those_who_are_signed_in_and_shows_nothing_of_others() {
    let stage = furnished();
    stage.tenant(2);
    stage.member(2, 1, Role::Developer);
    let mut owner = stage.signed_in(1);
    let missing = owner.get(&format!("{}/x", events_path(1)));
    missing.is_problem(404, "read/not_found");
    missing.shows("aria-label=\"Pages\"").shows(&format!("href=\"{}\"", events_path(1))).shows("Sign out");
    // What the role does not include leads back to what it does.
    let refused = stage.signed_in(2).get(&format!("/app/o/{}/members", tenant_id(1)));
    refused.is_problem(403, "auth/not_allowed");
    refused.shows("aria-label=\"Pages\"").shows(&events_path(1));
    let foreign = owner.get(&events_path(2));
    foreign.is_problem(404, "request/not_found");
    foreign.shows("Sign out");
    assert!(!foreign.has("aria-label=\"Pages\"") && !foreign.has("Tenant 2"), "{}", foreign.text());
    assert!(!stage.browser().get("/app/nowhere").has("Sign out"));
    for (name, value) in [("content-encoding", None), ("cache-control", Some("no-store"))] {
        let page = owner.send("GET", &events_path(1), &[("accept-encoding", "gzip, br")], "");
        assert_eq!(page.header(name), value, "a page behind a session is not compressed");
    }
}

#[test]
fn a_console_that_is_off_says_how_it_is_turned_on() {
    let stage = Stage::without_console();
    for path in ["/ops", "/ops/sign-in", "/ops/tenants/x"] {
        let page = stage.browser().get(path);
        page.is_problem(404, "request/not_found");
        page.shows("ops.enabled").shows("sealog ops-user");
    }
}

#[test]
fn a_theme_is_chosen_by_a_form_and_stays() {
    let stage = Stage::new();
    let mut browser = stage.browser();
    browser.get("/app/sign-in").shows("data-theme=\"system\"");
    let answer = browser.post("/app/theme", &[("theme", "dark"), ("next", "/app/sign-in")]);
    assert_eq!(answer.location().as_deref(), Some("/app/sign-in"));
    browser.get("/app/sign-in").shows("data-theme=\"dark\"");
    let answer = browser.post("/app/theme", &[("theme", "\"><b>"), ("next", "//evil.example")]);
    assert_eq!(answer.location().as_deref(), Some("/app"));
    browser.get("/app/sign-in").shows("data-theme=\"system\"");
}

#[test]
fn each_printed_page_names_whose_it_is_and_when_it_was_retrieved() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let mut owner = stage.signed_in(1);
    let name = format!("/app/o/{}/settings/name", tenant_id(1));
    assert_eq!(owner.post(&name, &[("name", "<b>Acme\u{202e}</b>")]).status, 303);
    let head = |page: &Response| {
        let text = page.text().split("<div class=\"paper\">").nth(1).expect("a head");
        text.split("</div>").next().unwrap().to_owned()
    };
    let retrieved = format!("by <bdi>{}</bdi>", email(1));
    for (path, scope, filter) in [
        (events_path(1), "Project of 1, live", "Filter: none"),
        (events_path(1).replace("live", "test"), "Project of 1, test", "Filter: none"),
        (format!("{}?q=-actor:%3Ci%3E", events_path(1)), "Project of 1, live", "-actor:&#60;i&#62;"),
        (format!("/app/o/{}/cases/register?year=2026", tenant_id(1)), "All projects", "Received in 2026"),
        (format!("/app/o/{}/keys", tenant_id(1)), "All projects", "UTC</time>"),
    ] {
        let found = head(&owner.get(&path));
        for word in ["&#60;b&#62;Acme\\u{202e}&#60;/b&#62;", scope, filter, "UTC</time>", &retrieved] {
            assert!(found.contains(word), "{path}: {word} in {found}");
        }
    }
    // Who is limited to projects is not shown to have seen them all.
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(2, 1, Role::PrivacyOfficer, grants, None);
    let page = stage.signed_in(2).get(&format!("/app/o/{}/cases/register", tenant_id(1)));
    assert!(head(&page).contains("Your projects"), "{}", head(&page));
}
