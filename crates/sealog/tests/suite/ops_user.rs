//! The operator's console as whoever runs the server meets it: accounts from the host, off unless configured,
//! a loss accepted.

use std::path::Path;
use std::process::Stdio;

use crate::support::*;
use sealog_service::people::sign_in::totp;
use sealog_store::world::{SystemWorld, World};
use sealog_testing::http;
use serde_json::Value;

const EMAIL: &str = "operator@example.org";
const PASSWORD: &str = "correct+horse+battery";
const ON: (&str, &str) = ("SEALOG_OPS_ENABLED", "true");

fn serve(data: &Path, settings: &[(&str, &str)]) -> Running {
    let mut command = serving(sealog(), data);
    command.env("SEALOG_LIMITS_PER_IP_RPS", "0").env("SEALOG_LOG_LEVEL", "debug");
    command.envs(settings.iter().copied());
    start(command)
}

fn ops_user(data: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let (name, rest) = args.split_first().unwrap();
    let mut command = sealog();
    command.args(["ops-user", name, "--data-dir"]).arg(data).args(rest).stdin(Stdio::null());
    ended(command.output().unwrap())
}

/// The secret of a link that leads to this address.
#[track_caller]
fn added(data: &Path, address: &str) -> String {
    let (code, said, noted) = ops_user(data, &["add", "--email", EMAIL]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(noted.contains("It works once, until "), "{noted}");
    let page = format!("http://{address}/ops/enrol#");
    let secret =
        said.trim_end().strip_prefix(&page).unwrap_or_else(|| panic!("{said} does not lead to {page}"));
    assert!(!noted.contains(secret));
    secret.to_owned()
}

struct Asked {
    address: String,
    cookie: String,
}

impl Asked {
    fn get(&self, path: &str) -> String {
        let Asked { address, cookie } = self;
        http::raw(
            address,
            &format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n"
            ),
        )
    }

    fn post(&mut self, path: &str, form: &str) -> String {
        let (host, cookie, length) = (&self.address, &self.cookie, form.len());
        let answer = http::raw(
            host,
            &format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nSec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
            ),
        );
        if let Some((_, set)) = answer.split_once("set-cookie: ") {
            self.cookie = set.split(';').next().unwrap().to_owned();
        }
        answer
    }
}

/// Sets the password by a link, and the authenticator.
fn enrolled(address: &str, secret: &str) -> Asked {
    let mut asked = Asked { address: address.to_owned(), cookie: String::new() };
    let answer = asked.post("/ops/enrol", &format!("token={secret}&password={PASSWORD}"));
    assert!(answer.contains("location: /ops/enrol/authenticator"), "{answer}");
    let page = asked.get("/ops/enrol/authenticator");
    let text = page.split_once("secret=").unwrap().1.split('&').next().unwrap();
    let bits: String = text
        .chars()
        .map(|letter| format!("{:05b}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".find(letter).unwrap()))
        .collect();
    let key: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).unwrap()).collect();
    let code = totp::code_at(&key, SystemWorld.now_ms() / 30_000);
    let answer = asked.post("/ops/enrol/authenticator", &format!("code={code}"));
    assert!(answer.contains("location: /ops\r\n"), "{answer}");
    asked
}

fn status(answer: &str) -> &str {
    &answer[9..12]
}

#[test]
fn the_console_is_off_unless_it_is_configured_and_then_says_how_it_is_turned_on() {
    let (_dir, data) = data_dir();
    let server = serve(&data, &[]);
    for path in ["/ops", "/ops/sign-in", "/ops/tenants", "/ops/enrol"] {
        let (status, body) = server.request("GET", path, &[], "");
        assert!(status == 404 && body.contains("ops.enabled"), "{path}: {status} {body}");
    }
    let (code, said, error) = ops_user(&data, &["add", "--email", EMAIL]);
    assert_eq!((code, &*said), (Some(2), ""));
    assert!(error.contains("the operator console is off"), "{error}");
    server.stop();
    let (code, _, error) = ops_user(&data, &["add", "--email", EMAIL]);
    assert!(code == Some(2) && error.contains("the operator console is off"), "{error}");
}

#[test]
fn an_account_is_made_on_the_host_listed_and_removed_while_the_server_runs_and_while_it_is_stopped() {
    let (_dir, data) = data_dir();
    let server = serve(&data, &[ON]);
    let secret = added(&data, &server.address);
    let asked = enrolled(&server.address, &secret);
    assert_eq!(status(&asked.get("/ops/tenants")), "200");
    let (code, _, error) = ops_user(&data, &["add", "--email", "OPERATOR@example.org"]);
    assert!(code == Some(1) && error.contains("remove that account first"), "{error}");
    let (code, _, error) = ops_user(&data, &["add", "--email", "nobody"]);
    assert!(code == Some(2) && error.contains("not a valid e-mail address"), "{error}");
    let (code, said, _) = ops_user(&data, &["list"]);
    assert!(code == Some(0) && said.lines().count() == 1, "{said}");
    assert!(said.contains(&format!("\t{EMAIL}\tenrolled\t")), "{said}");
    let log = server.stop();
    // The log tells of it, by the id of the account, and never an address or a secret.
    for told in ["created an operator account", "an operator set a password", "an operator signed in"] {
        assert!(log.contains(told), "{told}");
    }
    for hidden in [EMAIL, "OPERATOR@", &secret, "correct"] {
        assert!(!log.contains(hidden), "{hidden} in {log}");
    }

    // Of a stopped store. The session is still worth something, until the account is removed.
    let (code, said, _) = ops_user(&data, &["list", "--json"]);
    assert_eq!(code, Some(0));
    let listed: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&listed["operators"][0]["email"], &listed["operators"][0]["enrolled"]),
        (&EMAIL.into(), &true.into())
    );
    let (code, said, noted) = ops_user(&data, &["remove", "--email", EMAIL]);
    assert_eq!((code, &*said), (Some(0), ""), "{noted}");
    let (code, _, error) = ops_user(&data, &["remove", "--email", EMAIL]);
    assert!(code == Some(4) && error.contains("no operator has this address"), "{error}");
    let (code, said, _) = ops_user(
        &data,
        &["add", "--json", "--email", EMAIL, "--ops-enabled", "true", "--app-url", "https://log.example/app"],
    );
    assert_eq!(code, Some(0));
    let made: Value = serde_json::from_str(&said).unwrap();
    let link = made["link"].as_str().unwrap();
    let secret = link.strip_prefix("https://log.example/ops/enrol#").unwrap_or_else(|| panic!("{link}"));
    assert!(made["expires_at"].is_string() && made["operator_id"].is_string(), "{said}");
    let server = serve(&data, &[ON]);
    let old = Asked { address: server.address.clone(), cookie: asked.cookie };
    assert_eq!(status(&old.get("/ops/tenants")), "303");
    enrolled(&server.address, secret);
    server.stop();
}

#[test]
fn with_an_address_of_its_own_the_console_answers_there_and_nowhere_else_and_nothing_else_does() {
    let (_dir, data) = data_dir();
    let server = serve(&data, &[("SEALOG_OPS_LISTEN", "127.0.0.1:0")]);
    let said = server.says("operator console has its own address");
    let own = said["address"].as_str().unwrap().to_owned();
    let key = first_key(&data);
    let get = |address: &str, path: &str| {
        http::request(address, "GET", path, &[("Authorization", &format!("Bearer {key}"))], "").0
    };
    assert_eq!((get(&server.address, "/ops/sign-in"), get(&server.address, "/ops")), (404, 404));
    assert_eq!((get(&server.address, "/v1/events"), get(&server.address, "/app/sign-in")), (200, 200));
    assert_eq!((get(&own, "/ops/sign-in"), get(&own, "/ops")), (200, 303));
    for path in [
        "/",
        "/app/sign-in",
        "/app",
        "/v1/events",
        "/healthz",
        "/metrics",
        "/operator/v1/tenants",
        "/opsx",
        "/docs/",
    ] {
        assert_eq!(get(&own, path), 404, "{path}");
    }
    assert_eq!(
        http::request(&own, "POST", "/v1/events", &[("Authorization", &format!("Bearer {key}"))], LOGIN).0,
        404
    );
    let asked = enrolled(&own, &added(&data, &own));
    assert_eq!(status(&asked.get("/ops/storage")), "200");
    server.stop();
}

#[test]
fn a_loss_that_recovery_has_found_is_accepted_in_the_console_and_the_chain_goes_on() {
    let (_dir, data) = data_dir();
    let (key, project, events) = with_a_loss(&data);
    let server = serve(&data, &[ON]);
    assert_eq!(server.post(&key).0, 500);
    let secret = added(&data, &server.address);
    let mut asked = enrolled(&server.address, &secret);
    let storage = asked.get("/ops/storage");
    assert!(storage.contains("but it had reached 8") && storage.contains("Embedded store"), "{storage}");
    let tenant = events[0]["tenant_id"].as_str().unwrap();
    let path = format!("/ops/losses/{tenant}/{project}/live");
    assert!(asked.get("/ops/losses").contains(&path));
    let page = asked.get(&path);
    assert!(page.contains("events 6 to 8 (3 events)") && page.contains(events[0]["hash"].as_str().unwrap()));
    let name = page.split_once("Type “").unwrap().1.split('”').next().unwrap().replace(' ', "+");
    let answer = asked.post(&path, &format!("reason=the+disk+was+replaced&name={name}"));
    assert!(answer.contains("location: /ops/losses?accepted=6"), "{answer}");
    assert_eq!(server.post(&key).0, 202);
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true,"checked":7"#), "{body}");
    assert!(asked.get("/ops/losses?accepted=6").contains("accepted as event 6"));
    server.await_drained();
    let log = server.stop();
    assert!(log.contains("accepted the loss of a chain's last events"), "{log}");
}
