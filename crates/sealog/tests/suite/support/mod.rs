//! The program of this package, for `sealog_testing::process`: only cargo knows where it has put it.
#![allow(dead_code, reason = "each test file uses its own part of this")]

pub mod stage;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

pub use sealog_testing::process::*;
use serde_json::Value;

pub const SEALOG: &str = env!("CARGO_BIN_EXE_sealog");
/// What the first run puts into the system chain.
pub const FIRST_RUN_REQUESTS: usize = 5;

pub fn sealog() -> Command {
    clean(Command::new(SEALOG))
}

/// What a server on a data directory is started with.
pub fn serving(mut command: Command, data: &Path) -> Command {
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command
}

/// A server that listens.
pub fn serve(data: &Path) -> Running {
    start(serving(sealog(), data))
}

pub fn accept(data: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = sealog().args(["accept-loss", "--data-dir"]).arg(data).args(args).output().unwrap();
    ended(output)
}

/// Exit code and what was said.
pub fn ended(Output { status, stdout, stderr }: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Says that a test has not looked at everything. The harness keeps what `println!` and `eprintln!` say
/// unless a test fails, so this goes past it.
pub fn left_out(what: &str, why: &str) {
    let told = format!("\nLEFT OUT: {what}: {}\n", why.trim());
    std::io::stderr().write_all(told.as_bytes()).unwrap();
}

/// What a browser does: a form, and what the answer's head says.
pub fn submit(server: &Running, path: &str, cookie: &str, form: &str) -> String {
    let (host, length) = (&server.address, form.len());
    server.raw(&format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nSec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    ))
}

/// Signs in the owner of the first run, who claims the account first: the cookie of the session.
pub fn signed_in_owner(server: &Running, data: &Path) -> String {
    let text = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    let beginning = format!("http://{}/app/claim#", server.address);
    let secret = text.split_whitespace().find_map(|word| word.strip_prefix(&beginning)).unwrap();
    let claim = format!(
        "token={secret}&organisation=Acme&project=production&email=me%40example.org&password=correct+horse+battery"
    );
    assert!(submit(server, "/app/claim", "", &claim).starts_with("HTTP/1.1 303"));
    let answer = submit(server, "/app/sign-in", "", "email=me%40example.org&password=correct+horse+battery");
    answer.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap().to_owned()
}

/// What a path of the operator's interface answers to whoever has the token.
pub fn operator(server: &Running, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let authorization = format!("Bearer {token}");
    let path = format!("/operator/v1{path}");
    let (status, body) =
        server.request(method, &path, &[("Authorization", &authorization)], &body.to_string());
    (status, serde_json::from_str(&body).unwrap())
}

/// The tenant that the first run has made, and its project.
pub fn first_tenant(server: &Running, token: &str) -> (String, String) {
    let (_, tenants) = operator(server, token, "GET", "/tenants", &Value::Null);
    let tenant = tenants["tenants"][0]["tenant_id"].as_str().unwrap().to_owned();
    let (_, projects) = operator(server, token, "GET", &format!("/tenants/{tenant}/projects"), &Value::Null);
    (tenant, projects["projects"][0]["project_id"].as_str().unwrap().to_owned())
}

pub fn open_page(server: &Running, path: &str, cookie: &str) -> String {
    let host = &server.address;
    server
        .raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n"))
}

/// A stopped store whose chain has lost its last three of eight events; the key and the project.
pub fn with_a_loss(data: &Path) -> (String, String, Vec<Value>) {
    let server = serve(data);
    let key = first_key(data);
    // The log begins with the first run: tenant, project, two keys and the owner, a request each.
    server.await_drained();
    for _ in 0..8 {
        assert_eq!(server.post(&key).0, 202);
    }
    let (_, body) = server.get(&key, "/v1/events");
    server.stop();
    let body: Value = serde_json::from_str(&body).unwrap();
    let events = body["events"].as_array().unwrap().clone();
    cut_log(data, 1, FIRST_RUN_REQUESTS + 5);
    (key, events[0]["project_id"].as_str().unwrap().to_owned(), events)
}

/// Leaves so many requests in a segment of the live log.
pub fn cut_log(data: &Path, segment: u32, requests: usize) {
    let path = data.join(format!("live/{segment:08}.log"));
    let bytes = std::fs::read(&path).unwrap();
    let mut at = 128;
    for _ in 0..requests {
        assert_eq!(&bytes[at..at + 4], b"SLFR");
        at += u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    std::fs::write(&path, &bytes[..at]).unwrap();
}

/// Whether no server starts on a directory that is being restored.
pub fn restoring_is_refused(data: &Path) -> bool {
    let (code, _, error) = ended(serving(sealog(), data).output().unwrap());
    code == Some(1) && error.contains("did not finish")
}
