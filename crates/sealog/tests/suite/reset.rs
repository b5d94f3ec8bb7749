//! `sealog reset` as an operator meets it: the same on a running server and on a stopped store.

use std::path::Path;
use std::process::Stdio;

use crate::support::*;
use sealog_control::Control;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::Filter;
use sealog_core::time::parse_iso_ms;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::world::{SystemWorld, World};
use sealog_store::{List, Store};
use serde_json::{Value, json};

const TOKEN: &str = "the token of the operator";
const EMAIL: &str = "somebody@example.org";
const OLD: &str = "correct horse battery";
const NEW: &str = "another horse and staple";
const HOUR_MS: u64 = 60 * 60 * 1000;

/// A server that says all that it ever says.
fn serve(data: &Path) -> Running {
    let mut command = serving(sealog(), data);
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN).env("SEALOG_LIMITS_PER_IP_RPS", "0");
    command.env("SEALOG_LOG_LEVEL", "debug");
    start(command)
}

fn reset(data: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = sealog();
    command.args(["reset", "--data-dir"]).arg(data).args(args).stdin(Stdio::null());
    ended(command.output().unwrap())
}

/// The link that the command makes, and what it says of it.
#[track_caller]
fn link(data: &Path, args: &[&str]) -> (String, String) {
    let (code, said, noted) = reset(data, args);
    assert_eq!(code, Some(0), "{noted}");
    let link = said.strip_suffix('\n').expect("a line").to_owned();
    assert!(!link.contains(char::is_whitespace), "the link alone: {link}");
    (link, noted)
}

#[track_caller]
fn secret_of(link: &str, page: &str) -> String {
    let secret = link.strip_prefix(page).and_then(|rest| rest.strip_prefix('#'));
    secret.unwrap_or_else(|| panic!("{link} does not lead to {page}")).to_owned()
}

fn operator(server: &Running, path: &str, body: &Value) -> Value {
    let token = format!("Bearer {TOKEN}");
    let path = format!("/operator/v1{path}");
    let (status, body) = server.request("POST", &path, &[("Authorization", &token)], &body.to_string());
    assert_eq!(status, 201, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// A new organisation, of which somebody is a member.
fn organisation(server: &Running, email: &str) -> String {
    let tenant = operator(server, "/tenants", &json!({"name": "Organisation"}));
    let tenant = tenant["tenant_id"].as_str().unwrap().to_owned();
    let user = json!({"email": email, "password": OLD, "role": "admin"});
    operator(server, &format!("/tenants/{tenant}/users"), &user);
    tenant
}

/// The cookie of a new session, if the password is right.
fn sign_in(server: &Running, password: &str) -> Option<String> {
    let form = format!("email={}&password={}", EMAIL.replace('@', "%40"), password.replace(' ', "+"));
    let answer = submit(server, "/app/sign-in", "", &form);
    let is_in = answer.starts_with("HTTP/1.1 303");
    is_in.then(|| answer.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap().to_owned())
}

fn is_signed_in(server: &Running, cookie: &str) -> bool {
    let answer = open_page(server, "/app/account", cookie);
    assert!(answer.starts_with("HTTP/1.1 200") || answer.contains("location: /app/sign-in"), "{answer}");
    answer.starts_with("HTTP/1.1 200")
}

/// The status of the answer to the form behind a link.
fn set_password(server: &Running, secret: &str) -> String {
    let form = format!("token={secret}&password={}", NEW.replace(' ', "+"));
    submit(server, "/app/reset", "", &form)[9..12].to_owned()
}

/// What the system chain of an organisation tells of links, while no server runs.
fn told(data: &Path, tenant: &str) -> Vec<Value> {
    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }
    let store = EmbeddedStore::open(data, &Options::default()).unwrap();
    let control = Control::embedded(&store).unwrap();
    let tenant_id = TenantId(Uuid::parse(tenant).unwrap());
    let reserved = control.system_project(tenant_id, ProjectId::system_from_random([1; 16]));
    let chain = ChainId { tenant_id, project_id: wait(reserved).unwrap().unwrap(), mode: Mode::Live };
    let list = List { filter: Filter::default(), before_seq: None, limit: 1000, bytes_max: 1 << 20 };
    let chunk = wait(store.list(chain, list)).unwrap();
    assert_eq!(chunk.resume, None);
    let read = |event: &StoredEvent| -> Value {
        let mut text = Vec::new();
        event.put_json(&mut text);
        serde_json::from_slice(&text).unwrap()
    };
    let mut events: Vec<Value> = chunk.items.iter().map(read).collect();
    events.retain(|event| event["action"] == "sealog.reset_link_made");
    events
}

#[test]
fn a_running_server_makes_a_link_that_sets_the_password_once_and_ends_all_sessions() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    organisation(&server, EMAIL);
    let old_session = sign_in(&server, OLD).expect("the old password");
    let page = format!("http://{}/app/reset", server.address);

    // The server's own address counts, whatever the command believes.
    let (replaced, _) = link(&data, &["--email", EMAIL, "--app-url", "https://other.example/app"]);
    let before_ms = SystemWorld.now_ms();
    let (link, noted) = link(&data, &["--email", "SomeBody@Example.org"]);
    let after_ms = SystemWorld.now_ms();
    let (replaced, secret) = (secret_of(&replaced, &page), secret_of(&link, &page));
    let until = noted.split_once("until ").unwrap().1.trim_end().trim_end_matches(':');
    let until_ms = parse_iso_ms(until).unwrap_or_else(|| panic!("{noted}"));
    assert!((before_ms + HOUR_MS..=after_ms + HOUR_MS).contains(&until_ms), "{noted}");
    assert!(!noted.contains(&secret), "{noted}");

    // A link that nobody uses changes nothing.
    assert!(is_signed_in(&server, &old_session) && sign_in(&server, OLD).is_some());
    assert_eq!(set_password(&server, &replaced), "422", "a newer link takes the place of an older one");
    assert_eq!(set_password(&server, &secret), "303");
    assert!(!is_signed_in(&server, &old_session));
    assert_eq!(set_password(&server, &secret), "422", "it works once");
    assert!(sign_in(&server, OLD).is_none());
    assert!(is_signed_in(&server, &sign_in(&server, NEW).expect("the new password")));

    let log = server.stop();
    assert_eq!(log.matches("\"command\":\"reset\"").count(), 2, "{log}");
    for hidden in [&*secret, &*replaced, EMAIL, "Example.org", NEW] {
        assert!(!log.contains(hidden), "{hidden} in {log}");
    }
}

#[test]
fn a_stopped_store_makes_a_link_that_the_next_server_honours_once() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    organisation(&server, EMAIL);
    let old_session = sign_in(&server, OLD).expect("the old password");
    server.stop();

    let (code, said, noted) =
        reset(&data, &["--json", "--email", EMAIL, "--app-url", "https://log.example/app"]);
    assert_eq!((code, &*noted), (Some(0), ""));
    let made: Value = serde_json::from_str(&said).expect("one object");
    let mut names: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["expires_at", "link", "opens"]);
    assert_eq!(made["opens"], "new_password");
    assert!(parse_iso_ms(made["expires_at"].as_str().unwrap()).is_some(), "{said}");
    let secret = secret_of(made["link"].as_str().unwrap(), "https://log.example/app/reset");

    let server = serve(&data);
    assert!(is_signed_in(&server, &old_session));
    assert_eq!(set_password(&server, &secret), "303");
    assert!(!is_signed_in(&server, &old_session));
    assert_eq!(set_password(&server, &secret), "422", "it works once");
    assert!(sign_in(&server, OLD).is_none() && sign_in(&server, NEW).is_some());
    let log = server.stop();
    assert!(!log.contains(&secret) && !log.contains(EMAIL), "{log}");

    // Without an address of its own the dashboard is where the server will listen, if that can be known.
    let (link, _) = link(&data, &["--email", EMAIL, "--listen", "127.0.0.1:8181"]);
    secret_of(&link, "http://127.0.0.1:8181/app/reset");
    let (code, said, error) = reset(&data, &["--email", EMAIL, "--listen", "127.0.0.1:0"]);
    assert!(code == Some(2) && said.is_empty() && error.contains("--app-url"), "{error}");
}

#[test]
fn each_organisation_of_the_person_has_a_record_by_the_host_and_no_other_has() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let theirs = [organisation(&server, EMAIL), organisation(&server, EMAIL)];
    let other = organisation(&server, "somebody.else@example.org");
    let (running, _) = link(&data, &["--email", EMAIL]);
    server.await_drained();
    server.stop();
    assert_eq!(theirs.each_ref().map(|tenant| told(&data, tenant).len()), [1, 1]);

    // Of a stopped store: the next server seals them.
    let (stopped, _) = link(&data, &["--email", EMAIL]);
    let server = serve(&data);
    server.await_drained();
    server.stop();
    for tenant in &theirs {
        let events = told(&data, tenant);
        assert_eq!(events.len(), 2);
        for event in events {
            assert_eq!((&event["actor_id"], &event["actor_type"]), (&json!("host"), &json!("host")));
            assert!(event["resource"].as_str().unwrap().starts_with("member/"), "{event}");
            assert!(event["metadata"]["expires_at"].is_string(), "{event}");
            let text = event.to_string();
            let secrets = [&running, &stopped].map(|link| link.split_once('#').unwrap().1);
            assert!(!secrets.iter().any(|secret| text.contains(secret)) && !text.contains('@'), "{text}");
        }
    }
    assert_eq!(told(&data, &other), Vec::<Value>::new());
}

#[test]
fn an_unknown_address_makes_nothing_and_the_command_says_so() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let tenant = organisation(&server, EMAIL);
    let refused = |args: &[&str]| {
        let (code, said, error) = reset(&data, args);
        assert_eq!((code, &*said), (Some(4), ""), "{error}");
        assert_eq!(error, "sealog: no account has this address\n");
    };
    let nobody = "nobody@example.org";
    refused(&["--email", nobody]);
    refused(&["--email", "", "--json"]);
    server.await_drained();
    let log = server.stop();
    assert!(log.contains("an administrative command failed") && !log.contains(nobody), "{log}");
    refused(&["--email", nobody]);
    refused(&["--email", nobody, "--json"]);
    assert_eq!(told(&data, &tenant), Vec::<Value>::new());

    let (code, said, error) = reset(&data, &[]);
    assert!(code == Some(2) && said.is_empty() && error.contains("--email"), "{error}");
    let (code, _, error) = reset(&data.join("elsewhere"), &["--email", EMAIL]);
    assert!(code == Some(2) && error.contains("there is no store in"), "{error}");
}

#[test]
fn an_owner_whom_nobody_has_claimed_gets_another_link_to_claim_the_account() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let page = format!("http://{}/app/claim", server.address);
    let first = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    let first = first.split_whitespace().find(|word| word.starts_with(&page)).unwrap().to_owned();
    let (second, noted) = link(&data, &["--email", "owner@localhost"]);
    assert!(noted.contains("This account is not claimed yet"), "{noted}");
    let claim = |link: &str| {
        let form = format!(
            "token={}&organisation=Acme&project=production&email=me%40example.org&password=a+long+password",
            secret_of(link, &page)
        );
        submit(&server, "/app/claim", "", &form)[9..12].to_owned()
    };
    assert_eq!([claim(&first), claim(&second), claim(&second)], ["422", "303", "422"]);
    server.stop();
}
