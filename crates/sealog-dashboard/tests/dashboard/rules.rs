//! What holds for every page: headers, scripts, sizes, errors.

use std::path::{Path, PathBuf};

use sealog_control::{Grants, NewMember, NewPerson, Records, Role};
use sealog_core::id::Uuid;
use sealog_service::people::account::claim_link;
use sealog_store::world::{SystemWorld, World};

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

/// What becomes of a text that a person types.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Takes {
    /// A name or a note: all but 10,000 characters.
    Short,
    /// What somebody wrote: 10,000 characters too.
    Long,
    Nothing,
    /// It is not kept, and the rest of the form is.
    Ignores,
}

/// How a page shows a text: as text, and with marks that nobody sees written out.
fn as_text(typed: &str) -> String {
    let escapes = [("&", "&#38;"), ("<", "&#60;"), (">", "&#62;"), ("\"", "&#34;"), ("'", "&#39;")];
    let text = escapes.iter().fold(typed.to_owned(), |text, (raw, escaped)| text.replace(raw, escaped));
    MARKS.iter().fold(text, |text, mark| text.replace(*mark, &format!("\\u{{{:x}}}", u32::from(*mark))))
}

const MARKS: [char; 3] = ['\u{202e}', '\u{2066}', '\u{200b}'];

/// Nothing of it is markup, and no mark turns what stands beside it. A field keeps what was typed.
fn is_harmless(what: &str, page: &Response) {
    let Ok(text) = std::str::from_utf8(&page.body) else { panic!("{what}: {}", page.status) };
    assert!(!text.contains("<script>pwned") && !text.contains("<b data-pwned"), "{what}: {text}");
    let fields = |text: &str, from: &str, to: &str| -> String {
        let mut parts = text.split(from);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |kept, part| kept + part.split_once(to).map_or("", |(_, behind)| behind))
    };
    let around = fields(&fields(text, " value=\"", "\""), "<textarea", "</textarea>");
    assert!(!around.contains(MARKS), "{what}: a mark and not its escape: {around}");
}

type Sent = (Response, Option<Response>);

/// Each new form with each text that breaks pages: refused with a reason, or shown as text.
#[test]
fn hostile_text_in_any_form_is_refused_with_a_reason_or_shown_as_text() {
    let stage = furnished();
    stage.tenant(2);
    stage.append(live(1), r#"{"action":"user.login","actor_id":"p-20931"}"#);
    let own = {
        let mut owner = stage.signed_in(1);
        let path = case_in_progress(&mut owner);
        assert_eq!(owner.post(&format!("{path}/search/start"), &[]).status, 303);
        path
    };
    stage.work();
    let (case, review, claims) = (own.as_str(), format!("{own}/review"), std::cell::Cell::new(20));
    let here = format!("/app/o/{}", tenant_id(1));
    let (project, account) = (project_id(1).to_string(), "/app/account");
    let fresh = || {
        let mut bytes = [0; 16];
        SystemWorld.fill_random(&mut bytes);
        Uuid::from_random(bytes).to_string()
    };
    let owner = || stage.signed_in(1);
    // Sends a form; where it is taken, `seen` shows what it holds.
    let send = |path: &str, fields: &[(&str, &str)], seen: &str| -> Sent {
        let mut owner = owner();
        let answer = owner.post(path, fields);
        let seen = matches!(answer.status, 200 | 303).then(|| owner.get(seen));
        (answer, seen)
    };
    let of_organisation = |path: &str, fields: &[(&str, &str)], seen: &str| {
        send(&format!("{here}{path}"), fields, &format!("{here}{seen}"))
    };
    let of_case = |path: &str, fields: &[(&str, &str)], seen: &str| {
        let revision = revision_of(&owner().get(case));
        let fields = [&[("revision", revision.as_str())][..], fields].concat();
        send(&format!("{case}{path}"), &fields, &format!("{case}{seen}"))
    };
    let opened = |field: &str, text: &str| {
        let mut owner = owner();
        let form = CASE.map(|(name, value)| (name, if name == field { text } else { value }));
        let answer = owner.post(&format!("{here}/cases/create"), &form);
        let seen = answer.location().map(|path| owner.get(path.split('?').next().unwrap()));
        (answer, seen)
    };
    let claimed = |organisation: &str, project: &str| {
        let n = claims.replace(claims.get() + 1);
        let tenant_id = stage.tenant(n);
        let person = NewPerson {
            id: person_id(n),
            email: format!("owner{n}@localhost"),
            password_hash: None,
            verified: false,
            created_at_ms: stage.now_ms(),
        };
        let (role, grants, created_at_ms) = (Role::Owner, Grants::default(), stage.now_ms());
        let member = NewMember { tenant_id, person, role, grants, ends_at_ms: None, created_at_ms };
        stage.wait(stage.control.add_member(member, Records::none())).unwrap().unwrap();
        let (link, url) = claim_link(&*stage.clock, &format!("{HOME}/app"), tenant_id, person_id(n));
        stage.wait(stage.control.create_link(link, None, vec![])).unwrap().unwrap();
        let email = format!("me{n}@example.org");
        let names = [("organisation", organisation), ("project", project)];
        let account = [("token", &*url.0), ("email", &email), ("password", PASSWORD)];
        let mut guest = stage.browser();
        let answer = guest.post("/app/claim", &[&names[..], &account[..]].concat());
        let seen = answer.location().map(|path| guest.get(&path)).map(|page| guest.follow(page));
        (answer, seen)
    };
    let public = |path: &str, field: &str, text: &str| -> Sent {
        (stage.browser().post(path, &[(field, text), ("password", PASSWORD), ("accept", "1")]), None)
    };
    let created = |path: &str, text: &str, more: &[(&str, &str)]| -> Sent {
        let form = fresh();
        let fields = [&[("name", text), ("form", &form), ("expires", "")][..], more].concat();
        of_organisation(&format!("{path}/create"), &fields, path)
    };
    let excluded = |text: &str| {
        let page = owner().get(&review);
        let (search, event) = (search_of(&page), events_of(&page).remove(0));
        let fields = [("search", search.as_str()), ("e", &event), ("do", "exclude"), ("reason", text)];
        send(&format!("{review}/decide"), &fields, &format!("{review}?show=exclude"))
    };
    let letters = std::cell::Cell::new(0);
    let saved_letter = |text: &str| {
        let revision = letters.get().to_string();
        let fields = [("body", text), ("revision", revision.as_str())];
        let sent = send(&format!("{case}/response/cover/save"), &fields, &format!("{case}/response/cover"));
        letters.set(letters.get() + u32::from(sent.1.is_some()));
        sent
    };
    let check = [("method", "document_seen"), ("outcome", "confirmed")];
    let views = events_path(1).replace("/events", "/views");
    let added = [("project", project.as_str()), ("seq", "1")];
    type Form<'a> = (&'a str, Takes, &'a dyn Fn(&str) -> Sent);
    let rows: &[Form<'_>] = &[
        ("organisation at the claim", Takes::Short, &|text| claimed(text, "p")),
        ("project at the claim", Takes::Short, &|text| claimed("o", text)),
        ("organisation", Takes::Short, &|text| {
            of_organisation("/settings/name", &[("name", text)], "/settings")
        }),
        ("project", Takes::Short, &|text| {
            of_organisation("/projects/create", &[("name", text)], "/projects")
        }),
        ("renamed project", Takes::Short, &|text| {
            let fields = [("project", project.as_str()), ("name", text)];
            of_organisation("/projects/rename", &fields, "/projects")
        }),
        ("key", Takes::Short, &|text| created("/keys", text, &[("project", &project), ("mode", "test")])),
        ("monitor token", Takes::Short, &|text| created("/monitor-tokens", text, &[("chain", &project)])),
        ("invited address", Takes::Nothing, &|text| {
            of_organisation("/members/invite", &[("email", text), ("role", "developer")], "/members")
        }),
        ("requester", Takes::Short, &|text| opened("requester", text)),
        ("contact", Takes::Short, &|text| opened("contact", text)),
        ("request", Takes::Long, &|text| opened("wrote", text)),
        ("regime", Takes::Nothing, &|text| opened("regime", text)),
        ("day of receipt", Takes::Nothing, &|text| opened("received", text)),
        ("note of an identity check", Takes::Short, &|text| {
            of_case("/identity", &[&check[..], &[("note", text)]].concat(), "/identity")
        }),
        ("identifier", Takes::Short, &|text| {
            let fields = [("kind", "actor_id"), ("value", text), ("source", "CRM")];
            of_case("/identifiers/add", &fields, "/identifiers")
        }),
        ("source of an identifier", Takes::Short, &|text| {
            let value = fresh();
            let fields = [("kind", "actor_id"), ("value", value.as_str()), ("source", text)];
            of_case("/identifiers/add", &fields, "/identifiers")
        }),
        ("note of a scope", Takes::Short, &|text| {
            of_case("/scope", &[("project", &project), ("note", text)], "/history")
        }),
        ("reason of an exclusion", Takes::Short, &excluded),
        ("letter", Takes::Short, &saved_letter),
        ("case to add events to", Takes::Nothing, &|text| {
            of_organisation("/cases/add", &[&added[..], &[("case", text)]].concat(), "/cases")
        }),
        ("holidays", Takes::Nothing, &|text| {
            of_organisation("/cases/holidays", &[("holidays", text)], "/cases/holidays")
        }),
        ("view", Takes::Short, &|text| {
            send(&format!("{views}/save"), &[("name", text), ("query", "action=user.login")], &views)
        }),
        ("time zone", Takes::Nothing, &|text| {
            of_organisation("/settings/time-zone", &[("time_zone", text)], "/settings")
        }),
        ("domains", Takes::Nothing, &|text| {
            of_organisation("/settings/domains", &[("email_domains", text)], "/settings")
        }),
        ("longest lifetime of keys", Takes::Nothing, &|text| {
            of_organisation("/settings/key-lifetime", &[("days", text)], "/settings")
        }),
        ("organisation of the notices", Takes::Nothing, &|text| {
            send(&format!("{account}/notifications"), &[("organisation", text)], account)
        }),
        ("notice", Takes::Ignores, &|text| {
            let tenant = tenant_id(1).to_string();
            let fields = [("organisation", tenant.as_str()), ("notice", text)];
            send(&format!("{account}/notifications"), &fields, account)
        }),
        ("address to sign in", Takes::Nothing, &|text| public("/app/sign-in", "email", text)),
        ("link of an invitation", Takes::Nothing, &|text| public("/app/invitation", "token", text)),
        ("link to a new password", Takes::Nothing, &|text| public("/app/reset", "token", text)),
    ];
    for (texts, text) in [
        ("HTML", "\"'><script>pwned()</script><b data-pwned>".to_owned()),
        ("marks", "pay\u{202e}lap\u{2066}x\u{200b}y".into()),
        ("letters from right to left", "שלום مرحبا".into()),
        ("emoji", "🎉👍🏽🇩🇪".into()),
        ("10,000 characters", "w".repeat(10_000)),
    ] {
        for (name, takes, sent) in rows {
            let what = format!("{texts} as {name}");
            let (answer, seen) = sent(&text);
            let is_taken = match takes {
                Takes::Short => text.len() < 10_000,
                Takes::Long | Takes::Ignores => true,
                Takes::Nothing => false,
            };
            is_harmless(&what, &answer);
            if !is_taken {
                assert!(matches!(answer.status, 404 | 422), "{what}: {} {}", answer.status, answer.text());
                let reasons = ["class=\"hint bad\"", "role=\"alert\"", "/docs/errors/"];
                assert!(reasons.iter().any(|reason| answer.has(reason)), "{what}: {}", answer.text());
                continue;
            }
            assert!(matches!(answer.status, 200 | 303), "{what}: {} {}", answer.status, answer.text());
            let seen = seen.unwrap_or_else(|| panic!("{what} is nowhere seen"));
            assert_eq!(seen.status, 200, "{what}");
            is_harmless(&what, &seen);
            let is_shown = seen.has(&as_text(&text));
            assert!(is_shown || *takes == Takes::Ignores, "{what}: {}", seen.text());
        }
        // The first project has the text for its name now, wherever it is shown.
        if text.len() < 10_000 {
            let (chain, mut owner) = (events_path(1).replace("/events", ""), owner());
            for page in ["", "/events", "/verify", "/exports", "/views", "/frameworks", "/frameworks/soc2"] {
                let page = owner.get(&format!("{chain}{page}"));
                assert_eq!(page.status, 200);
                is_harmless(texts, &page);
                page.shows(&as_text(&text));
            }
            // And so has the organisation, where another one can be chosen.
            let organisations = owner.get("/app?choose=1");
            is_harmless(texts, &organisations);
            organisations.shows(&as_text(&text));
        }
    }
}
