//! `sealog demo` as a newcomer meets it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;
use serde_json::Value;

const EVENTS: &str = "1500";
const ROLES: [&str; 5] = ["owner", "admin", "developer", "privacy_officer", "auditor"];

/// What the demo is started with; what it prints goes to a file.
fn demo(data: &Path, args: &[&str]) -> Command {
    let mut command = clean(Command::new("sh"));
    command.args(["-c", r#"out="$1"; shift; exec "$@" >"$out""#, "sh"]).arg(data.with_extension("out"));
    command.args([SEALOG, "demo", "--events", EVENTS, "--data-dir"]).arg(data).args(args);
    command
}

fn printed(data: &Path) -> String {
    fs::read_to_string(data.with_extension("out")).unwrap()
}

/// A started demo, and what it has printed as an object.
fn start_demo(data: &Path) -> (Running, Value) {
    let server = start(demo(data, &["--json", "--listen", "127.0.0.1:0"]));
    let said = serde_json::from_str(&printed(data)).expect("one object");
    (server, said)
}

fn sign_in(server: &Running, person: &Value) -> Option<String> {
    let text = |name: &str| person[name].as_str().unwrap().replace('@', "%40");
    let form = format!("email={}&password={}", text("address"), text("password"));
    let answer = submit(server, "/app/sign-in", "", &form);
    let is_in = answer.starts_with("HTTP/1.1 303");
    is_in.then(|| answer.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap().to_owned())
}

/// A page's status and text, after redirects.
fn page(server: &Running, mut path: String, cookie: &str) -> (String, String) {
    for _ in 0..3 {
        let answer = open_page(server, &path, cookie);
        match answer.split_once("\r\nlocation: ") {
            Some((_, rest)) => path = rest.split("\r\n").next().unwrap().to_owned(),
            None => return (answer[9..12].to_owned(), answer),
        }
    }
    panic!("{path} leads in a circle");
}

/// A key of each project and mode, made by the owner: by label of the project and mode.
fn new_key(server: &Running, cookie: &str, project: &str, mode: &str) -> String {
    let (_, events) = page(server, "/app".into(), cookie);
    let organisation = between(&events, "/app/o/", "/");
    let here = format!("/app/o/{organisation}/keys");
    let (_, keys) = page(server, format!("{here}?new=1"), cookie);
    let before = keys.split(&format!(">{project}</option>")).next().unwrap();
    let id = between(before.rsplit_once("<option").unwrap().1, "value=\"", "\"");
    let form = between(&keys, "name=\"form\" value=\"", "\"");
    let form = format!("name=key+{form}&project={id}&mode={mode}&expires=&form={form}");
    let made = submit(server, &format!("{here}/create"), cookie, &form);
    between(&made, "data-copy>at_", "<").split_whitespace().map(|key| format!("at_{key}")).next().unwrap()
}

#[track_caller]
fn between<'a>(text: &'a str, before: &str, behind: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    rest.split(behind).next().unwrap()
}

/// Verifies a whole chain by windows: where it is broken.
fn broken_at(server: &Running, key: &str) -> (u64, Option<u64>) {
    let (mut from, mut checked) = (1, 0);
    loop {
        let (status, body) = server.get(key, &format!("/v1/events/verify?from_seq={from}"));
        assert_eq!(status, 200, "{body}");
        let verdict: Value = serde_json::from_str(&body).unwrap();
        checked += verdict["checked"].as_u64().unwrap();
        if verdict["valid"] == false {
            return (checked, verdict["broken_at"].as_u64());
        }
        if verdict["checked"] == 0 {
            return (checked, None);
        }
        from = verdict["last_seq"].as_u64().unwrap() + 1;
    }
}

#[test]
fn everybody_signs_in_with_the_printed_password_which_the_next_start_replaces() {
    let (_dir, data) = data_dir();
    let (server, first) = start_demo(&data);
    let people = first["people"].as_array().unwrap().clone();
    assert_eq!(people.iter().map(|person| person["role"].as_str().unwrap()).collect::<Vec<_>>(), ROLES);
    for person in &people {
        let cookie = sign_in(&server, person).unwrap_or_else(|| panic!("{person}"));
        let (status, answer) = page(&server, "/app".into(), &cookie);
        assert_eq!(status, "200", "{answer}");
        // Auditors see nothing before they have set one up.
        let seen =
            if person["role"] == "auditor" { "Auditors need an authenticator" } else { "Northwind Health" };
        assert!(answer.contains(seen), "{answer}");
        let link = person["link"].as_str().unwrap();
        let (_, form) = page(&server, link[link.find("/app").unwrap()..].to_owned(), "");
        assert!(form.contains(&format!("value=\"{}\"", person["address"].as_str().unwrap())), "{form}");
    }
    server.await_drained();
    server.stop();

    let made = fs::metadata(data.join("live/00000001.log")).unwrap().created().ok();
    let (server, second) = start_demo(&data);
    assert_eq!(fs::metadata(data.join("live/00000001.log")).unwrap().created().ok(), made);
    for (old, new) in people.iter().zip(second["people"].as_array().unwrap()) {
        assert_eq!(old["address"], new["address"]);
        assert_ne!(old["password"], new["password"]);
        assert!(sign_in(&server, old).is_none(), "{old}");
        assert!(sign_in(&server, new).is_some(), "{new}");
    }
    let log = server.stop();
    for person in people.iter().chain(second["people"].as_array().unwrap()) {
        assert!(!log.contains(person["password"].as_str().unwrap()), "a password in the log");
    }
}

#[test]
fn one_event_of_one_chain_is_tampered_with_and_all_others_are_valid() {
    let (_dir, data) = data_dir();
    let (server, said) = start_demo(&data);
    let cookie = sign_in(&server, &said["people"][0]).unwrap();
    let mut counted = 0;
    for (project, mode) in
        [("Patient portal", "live"), ("Patient portal", "test"), ("Billing", "live"), ("Billing", "test")]
    {
        let key = new_key(&server, &cookie, project, mode);
        let (checked, broken) = broken_at(&server, &key);
        if (project, mode) != ("Billing", "live") {
            assert_eq!(broken, None, "{project}, {mode}");
            counted += checked;
            continue;
        }
        let at = broken.expect("the tampered event");
        // It is there and can be read: nothing but the hashes tells.
        let (mut events, mut cursor) = (Vec::new(), String::new());
        loop {
            let (_, page) = server.get(&key, &format!("/v1/events?limit=100{cursor}"));
            let page: Value = serde_json::from_str(&page).unwrap();
            events.extend(page["events"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let head = events[0]["chain_seq"].as_u64().unwrap();
        assert!(1 < at && at < head, "{at} of {head}");
        let event = events.iter().find(|event| event["chain_seq"] == at).expect("it can be read");
        assert!(event["metadata"]["amount"].is_number(), "{event}");
        // From the next one on the chain is valid.
        let (_, rest) = server.get(&key, &format!("/v1/events/verify?from_seq={}", at + 1));
        let rest: Value = serde_json::from_str(&rest).unwrap();
        assert_eq!((&rest["valid"], rest["checked"].as_u64()), (&Value::Bool(true), Some(head - at)));
        counted += head;
        // And it goes on.
        assert_eq!(server.post(&key).0, 202);
    }
    // Beside those there are the events that requests of data subjects leave.
    let key = new_key(&server, &cookie, "Patient portal", "live");
    let (_, requests) = server.get(&key, "/v1/events?action=gdpr.request_received");
    let requests: Value = serde_json::from_str(&requests).unwrap();
    let mut cases =
        requests["events"].as_array().unwrap().iter().map(|event| event["resource"].as_str().unwrap());
    let case = cases.find(|resource| resource.starts_with("case/")).expect("the request that is worked on");
    let (_, of_case) = server.get(&key, &format!("/v1/events?resource={case}"));
    let of_case: Value = serde_json::from_str(&of_case).unwrap();
    let of_case = of_case["events"].as_array().unwrap().len() as u64;
    assert!(of_case > 0);
    assert_eq!((counted - of_case).to_string(), EVENTS);
    server.stop();
}

#[test]
fn there_are_requests_to_work_on_a_key_that_ends_soon_and_a_view_that_is_shared() {
    let (_dir, data) = data_dir();
    let (server, said) = start_demo(&data);
    let cookie = sign_in(&server, &said["people"][0]).unwrap();
    let (status, overview) = page(&server, "/app".into(), &cookie);
    assert_eq!(status, "200");
    for shown in ["Keys expiring", "portal reports", "Failed sign-ins", "DSAR-"] {
        assert!(overview.contains(shown), "{shown} in {overview}");
    }
    let officer =
        said["people"].as_array().unwrap().iter().find(|person| person["role"] == "privacy_officer");
    let organisation = between(&overview, "/app/o/", "/");
    let (_, keys) = page(&server, format!("/app/o/{organisation}/keys"), &cookie);
    let row = between(&keys, "<b>portal production</b>", "</tr>");
    assert!(!row.contains(">Never</td><td class=\"num r\">0<"), "the key shows its use: {row}");
    let cookie = sign_in(&server, officer.unwrap()).unwrap();
    let (_, cases) = page(&server, format!("/app/o/{organisation}/cases"), &cookie);
    for shown in ["In progress", "Received", "Mara Lindqvist", "Jonas Petersen"] {
        assert!(cases.contains(shown), "{shown} in {cases}");
    }
    server.stop();
}

/// All events of a chain that a filter of the API leaves.
fn filtered(server: &Running, key: &str, filter: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, body) = server.get(key, &format!("/v1/events?limit=100&{filter}{cursor}"));
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        found.extend(body["events"].as_array().unwrap().clone());
        let Some(next) = body["next_cursor"].as_str() else { return found };
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn the_search_of_the_request_that_is_worked_on_finds_the_events_of_its_patient() {
    let (_dir, data) = data_dir();
    let (server, said) = start_demo(&data);
    let people = said["people"].as_array().unwrap();
    let cookie = sign_in(&server, &people[0]).unwrap();
    let key = new_key(&server, &cookie, "Patient portal", "live");
    let officer = people.iter().find(|person| person["role"] == "privacy_officer").unwrap();
    let officer = sign_in(&server, officer).unwrap();
    let (_, start) = page(&server, "/app".into(), &officer);
    let list = format!("/app/o/{}/cases", between(&start, "/app/o/", "/"));
    let (_, cases) = page(&server, list.clone(), &officer);
    let before = cases.split("Mara Lindqvist").next().unwrap();
    let case = before.rsplit(&format!("href=\"{list}/")).next().unwrap().split('"').next().unwrap();
    let case = format!("{list}/{case}");
    // What the officer has noted of her, and what is in the chain about that.
    let (_, noted) = page(&server, format!("{case}/identifiers"), &officer);
    let patient = format!("pat_{}", between(&noted, ">patient/pat_", "<"));
    assert!(noted.contains(&format!(">{patient}<")), "as an actor, and as a resource: {noted}");
    let by = filtered(&server, &key, &format!("actor_id={patient}"));
    let on = filtered(&server, &key, &format!("resource=patient/{patient}"));
    assert!(!by.is_empty() && !on.is_empty(), "{patient}: {} by, {} on", by.len(), on.len());

    let started = submit(&server, &format!("{case}/search/start"), &officer, "");
    assert!(started.starts_with("HTTP/1.1 303"), "{started}");
    sealog_testing::eventually("the search is done", || {
        let (_, search) = page(&server, format!("{case}/search"), &officer);
        search.contains(">Done<") && !search.contains("Searching:")
    });
    let shown = |show: &str| {
        let (_, review) = page(&server, format!("{case}/review?show={show}"), &officer);
        // A list has a hundred rows on a page; these are fewer.
        let rows = review.split("aria-label=\"Select #").skip(1);
        rows.map(|row| row.split('"').next().unwrap().replace(',', "").parse().unwrap()).collect::<Vec<u64>>()
    };
    for (show, events) in [("by", by), ("on", on)] {
        let found = shown(show);
        let missing = events.iter().map(|event| event["chain_seq"].as_u64().unwrap());
        let missing: Vec<u64> = missing.filter(|seq| !found.contains(seq)).collect();
        assert!(missing.is_empty(), "{show}: {missing:?} of {patient} are not among {found:?}");
    }
    server.stop();
}

#[test]
fn the_events_are_of_the_last_thirty_days_and_of_several_frameworks() {
    let (_dir, data) = data_dir();
    let (server, said) = start_demo(&data);
    let cookie = sign_in(&server, &said["people"][0]).unwrap();
    let key = new_key(&server, &cookie, "Patient portal", "live");
    let (mut cursor, mut times, mut actions) = (String::new(), Vec::new(), std::collections::BTreeSet::new());
    loop {
        let (_, body) = server.get(&key, &format!("/v1/events?limit=100{cursor}"));
        let body: Value = serde_json::from_str(&body).unwrap();
        for event in body["events"].as_array().unwrap() {
            times.push(event["timestamp"].as_str().unwrap().to_owned());
            actions.insert(event["action"].as_str().unwrap().to_owned());
            let has_place = event["country"].is_string() && event["city"].is_string();
            let is_person = event["actor_id"].as_str().is_some_and(|actor| actor.starts_with("usr_"));
            assert!(event["ip_address"].is_string() && (has_place || !is_person), "{event}");
        }
        match body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let days: std::collections::BTreeSet<&str> = times.iter().map(|time| &time[..10]).collect();
    assert!((30..=31).contains(&days.len()), "{days:?}");
    for domain in ["hipaa.", "gdpr.", "nis2.", "user."] {
        assert!(actions.iter().any(|action| action.starts_with(domain)), "{domain} in {actions:?}");
    }
    server.stop();
}

#[test]
fn it_listens_on_loopback_only_and_prints_a_table() {
    let (_dir, data) = data_dir();
    let server = start(demo(&data, &["--listen", "0.0.0.0:0"]));
    let address: SocketAddr = server.address.parse().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
    assert!(server.begun.contains("the demo listens on loopback only"), "{}", server.begun);
    // Another address of this machine: nobody is there.
    let other = SocketAddr::new("127.0.0.2".parse().unwrap(), address.port());
    assert!(TcpStream::connect_timeout(&other, Duration::from_secs(5)).is_err());
    let table = printed(&data);
    let app_url = format!("http://{address}/app");
    for role in ROLES {
        let line = table
            .lines()
            .find(|line| line.contains(&format!("  {role} ")))
            .unwrap_or_else(|| panic!("{role} in {table}"));
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns.len(), 4, "{line}");
        assert!(columns[0].contains('@') && columns[2].len() == 19, "{line}");
        assert!(columns[3].starts_with(&format!("{app_url}/sign-in?email=")), "{line}");
    }
    server.stop();
}

#[test]
fn serve_refuses_the_directory_of_a_demo_and_the_demo_refuses_all_others() {
    let (dir, data) = data_dir();
    start_demo(&data).0.stop();
    let (code, said) = spawn(serving(sealog(), &data)).ended();
    assert_eq!(code, Some(1));
    assert!(said.contains("is the directory of a demo") && said.contains("sealog demo"), "{said}");

    let other = dir.path().join("other");
    serve(&other).stop();
    let before: Vec<_> = fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut command = sealog();
    command.args(["demo", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&other).stdin(Stdio::null());
    let (code, said, error) = ended(command.output().unwrap());
    assert_eq!((code, &*said), (Some(1), ""));
    assert!(error.contains("is not the directory of a demo"), "{error}");
    let after: Vec<_> = fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(after.len(), before.len(), "{after:?}");
}

#[test]
fn settings_of_a_server_mean_nothing_to_the_demo() {
    let (dir, data) = data_dir();
    fs::write(
        dir.path().join("sealog.toml"),
        "store = \"postgres://nobody@192.0.2.1/x\"\nlisten = \"0.0.0.0:1\"\n",
    )
    .unwrap();
    let mut command = demo(&data, &["--json", "--listen", "127.0.0.1:0"]);
    command.current_dir(dir.path()).env("SEALOG_STORE", "postgres://nobody@192.0.2.1/x");
    let server = start(command);
    assert!(data.join("live").is_dir());
    server.stop();
    let help = sealog().args(["demo", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for word in ["--listen", "--data-dir", "--events", "--json", "loopback", "tampered"] {
        assert!(help.contains(word) || word == "tampered" && help.contains("changed"), "{word} in {help}");
    }
}
