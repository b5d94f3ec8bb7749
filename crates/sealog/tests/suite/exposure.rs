//! What a server shows to callers without credentials, and whom it calls: docs/operating-reference.md has
//! all of it, and nothing else is there. And what it does not pass on of what a database tells it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::*;
use sealog_dashboard::Needs;
use sealog_dashboard::ops::ops_table;
use sealog_testing::postgres;
use serde_json::{Value, json};

const TOKEN: &str = "a token of the operator";

/// The first column of a table of the page, without its quotes.
fn documented(section: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating-reference.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split_once(&format!("\n### {section}\n")).expect("the page has the section").1;
    let rows = section.split("\n#").next().unwrap().lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

fn with_token(data: &Path) -> Running {
    let mut command = serving(sealog(), data);
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN).env("SEALOG_LIMITS_PER_IP_RPS", "0");
    start(command)
}

#[test]
fn every_route_without_authentication_is_in_the_table_and_all_others_refuse_such_callers() {
    let (_dir, data) = data_dir();
    let server = with_token(&data);
    let described: Value = serde_json::from_str(&server.get("-", "/openapi.json").1).unwrap();
    let mut open = BTreeSet::new();
    let mut guarded = 0;
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let Some(ways) = operation["security"].as_array() else { continue };
            let method = method.to_uppercase();
            if ways.is_empty()
                || ways.iter().any(|way| way.as_object().is_some_and(serde_json::Map::is_empty))
            {
                open.insert(format!("{method} {path}"));
                continue;
            }
            // What the description says, the server does.
            let path = path.replace(['{', '}'], "");
            let (status, body) = server.request(&method, &path, &[], "");
            assert_eq!(status, 401, "{method} {path}: {body}");
            guarded += 1;
        }
    }
    assert!(guarded > 20, "{guarded}");
    let routes = sealog_dashboard::table().iter().map(|route| (&route.method, route.path, route.needs));
    let routes = routes.chain(ops_table().iter().map(|route| (&route.method, route.path, route.needs)));
    for (method, path, needs) in routes {
        if needs == Needs::Nothing {
            open.insert(format!("{method} {path}"));
        }
    }
    assert_eq!(open, documented("Routes without authentication"));
    server.stop();
}

#[test]
fn a_server_with_default_settings_opens_no_connection() {
    let (_dir, data) = data_dir();
    let server = with_token(&data);
    assert_eq!(server.post(&first_key(&data)).0, 202);
    server.await_drained();
    let port: u16 = server.address.rsplit(':').next().unwrap().parse().unwrap();
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .unwrap()
        .filter_map(|fd| Some(fs::read_link(fd.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let mut listening = 0;
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let table = fs::read_to_string(format!("/proc/{}/net/{table}", server.pid())).unwrap_or_default();
        for row in table.lines().skip(1) {
            let fields: Vec<&str> = row.split_whitespace().collect();
            if !sockets.contains(fields[9]) {
                continue;
            }
            let local = u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap();
            assert_eq!(local, port, "a socket that is not of its listener: {row}");
            listening += usize::from(fields[3] == "0A");
        }
    }
    assert!(listening > 0, "its sockets are found");
    server.stop();
}

/// PostgreSQL quotes the row that it refuses in its DETAIL: "Key (name)=(…) already exists."
#[test]
fn a_row_that_postgresql_refuses_is_quoted_in_no_answer_and_no_log_line() {
    const MARK: &str = "ada-lovelace-of-marylebone";
    let database = postgres::cluster().database();
    let data = tempfile::tempdir().unwrap();
    let mut command = serving(sealog(), data.path());
    command.args(["--log-level", "debug", "--limits-per-ip-rps", "0"]);
    command.env("SEALOG_STORE", database.url()).env("SEALOG_OPERATOR_TOKEN", TOKEN);
    let server = start(command);
    let key = first_key(data.path());
    let (tenant, project) = first_tenant(&server, TOKEN);
    for unique in [
        // What the server has logged itself is there already.
        "sealog.events (actor_id) WHERE action = 'user.login'",
        "sealog_control.tenants (name)",
        "sealog_control.projects (name)",
        "sealog_control.keys (name)",
    ] {
        database.sql(&format!("CREATE UNIQUE INDEX ON {unique}"));
    }
    let authorization = ("Authorization", format!("Bearer {TOKEN}"));
    let operator = |path: &str, body: Value| {
        let path = format!("/operator/v1{path}");
        server.request("POST", &path, &[(authorization.0, &authorization.1)], &body.to_string())
    };
    let event = json!({"action": "user.login", "actor_id": MARK}).to_string();
    let twice: [&dyn Fn() -> (u16, String); 4] = [
        &|| server.send(&key, &event),
        &|| operator("/tenants", json!({"name": MARK})),
        &|| operator(&format!("/tenants/{tenant}/projects"), json!({"name": MARK})),
        &|| operator(&format!("/projects/{project}/keys"), json!({"name": MARK, "mode": "live"})),
    ];
    for (n, ask) in twice.iter().enumerate() {
        let (status, answer) = ask();
        assert!((200..300).contains(&status), "{n}: {status} {answer}");
        let (status, answer) = ask();
        assert!(status >= 400 && !answer.contains(MARK), "{n}: {status} {answer}");
    }
    let (kinds, begun) = (twice.len(), server.begun.clone());
    let log = begun + &server.stop();
    let refused = log.matches("duplicate key value violates unique constraint").count();
    assert!(refused >= kinds && !log.contains(MARK), "{refused}: {log}");
}
