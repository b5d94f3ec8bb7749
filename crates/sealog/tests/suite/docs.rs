//! The documentation: every example of the pages that people begin with is run, and its output compared; the
//! pages themselves are served by the real program.

mod snippets;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::*;
use sealog_testing::eventually;
use serde_json::Value;

/// Where the pages say that the server is.
const EXAMPLE_ADDRESS: &str = "127.0.0.1:8080";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A fenced block: what stands behind the fence, and what is in it.
#[derive(Debug)]
struct Block {
    info: String,
    text: String,
    /// The lines of its fences.
    from: usize,
    to: usize,
}

/// What is shown at most so many lines behind an example is its output.
const SHOWN_WITHIN: usize = 4;

fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => {
                blocks.push(Block { info: info.to_owned(), text: String::new(), from: number, to: number });
                open = true;
            }
            (Some(_), true) => {
                blocks.last_mut().unwrap().to = number;
                open = false;
            }
            (None, true) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!open, "{page}: a fence is not closed");
    blocks
}

/// Runs all examples of a page, one after the other in one shell, and compares what they print with what the
/// page shows behind them. No variable is set but those of the page.
pub fn run_page(page: &str, address: &str, dir: &Path) {
    let blocks = blocks(page);
    let mut script = "set -euo pipefail\n".to_owned();
    let mut compared = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let mut words = block.info.split(' ');
        // Those for Go need modules from a network, and tools/test_trust_docs.py runs them.
        let elsewhere = ["server", "go"].iter().any(|word| block.info.split(' ').nth(1) == Some(*word));
        if words.next() != Some("sh") || elsewhere {
            continue;
        }
        let number = compared.len();
        let text = block.text.replace(EXAMPLE_ADDRESS, address);
        script.push_str(&format!("printf '\\n\\036{number}\\n'\n"));
        match words.next() {
            Some("fails") => {
                script.push_str(&format!("if ( {text}\n); then echo 'it was to fail' >&2; exit 9; fi\n"))
            }
            _ => script.push_str(&text),
        }
        let is_output = |next: &&Block| next.info.starts_with("json") || next.info.starts_with("text");
        let shown = blocks.get(at + 1).filter(is_output).filter(|next| next.from <= block.to + SHOWN_WITHIN);
        compared.push((block, shown));
    }
    assert!(compared.len() >= 3, "{page} has examples");
    let path = std::env::var("PATH").unwrap_or_default();
    let programs = Path::new(SEALOG).parent().unwrap().display().to_string();
    let mut bash = clean(Command::new("bash"));
    bash.arg("-c").arg(&script).current_dir(dir).env("PATH", format!("{programs}:{path}")).env("HOME", dir);
    bash.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    let output = bash.stdin(Stdio::null()).output().unwrap();
    let (code, out, err) = ended(output);
    assert_eq!(code, Some(0), "{page}: {err}\n{out}");
    // Lines of HTTP end with two characters.
    let out = out.replace('\r', "");
    let outputs: Vec<&str> =
        out.split('\u{1e}').skip(1).map(|piece| piece.split_once('\n').unwrap().1).collect();
    assert_eq!(outputs.len(), compared.len(), "{page}: {out}");
    for ((block, shown), output) in compared.into_iter().zip(outputs) {
        let Some(shown) = shown else { continue };
        let context = format!("{page}: {}", block.text);
        match shown.info.as_str() {
            "json" => {
                let value = |text: &str| {
                    serde_json::from_str::<Value>(text.trim())
                        .unwrap_or_else(|error| panic!("{context}: {error}: {text}"))
                };
                assert_eq!(shape(&value(output)), shape(&value(&shown.text)), "{context}\n{output}");
            }
            "text like" => assert_eq!(masked(output), masked(&shown.text), "{context}"),
            "text" => assert!(
                fits(shown.text.trim(), output.trim()),
                "{context}\nshown:\n{}\nprinted:\n{output}",
                shown.text
            ),
            other => panic!("{context}: what is `{other}`?"),
        }
    }
}

/// Names and types, without the values. Of a list the first item that is something stands for all.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(items) => {
            let first = items.iter().find(|item| !item.is_null());
            format!("[{}]", first.map(shape).unwrap_or_default())
        }
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(name, value)| format!("{name}:{}", shape(value))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// Whether a text is what is shown, where `…` stands for anything.
fn fits(shown: &str, text: &str) -> bool {
    let mut pieces = shown.split('…');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    for (number, piece) in pieces.iter().enumerate() {
        if number + 1 == pieces.len() {
            return rest.ends_with(piece);
        }
        match rest.split_once(piece) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.is_empty()
}

/// Lines without their numbers and ids, each kind once.
fn masked(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.trim().lines() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                if word.starts_with(|c: char| c.is_ascii_digit()) || word.len() > 30 {
                    "#".into()
                } else {
                    word.to_owned()
                }
            })
            .collect();
        let line = words.join(" ");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A server on `data` in a directory of its own.
fn server() -> (tempfile::TempDir, Running) {
    let (dir, data) = data_dir();
    let server = serve(&data);
    (dir, server)
}

/// As the page starts it, but for the port.
#[test]
fn the_quickstart_works_as_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = blocks("quickstart.md");
    let start_it = blocks.iter().find(|block| block.info == "sh server").unwrap();
    let words: Vec<String> =
        start_it.text.split_whitespace().map(|word| word.replace(EXAMPLE_ADDRESS, "127.0.0.1:0")).collect();
    assert_eq!(words[0], "sealog");
    let mut command = sealog();
    command.args(&words[1..]).current_dir(dir.path());
    let server = start(command);
    run_page("quickstart.md", &server.address, dir.path());
    server.stop();
}

#[test]
fn the_examples_of_the_concepts_work() {
    let (dir, server) = server();
    run_page("concepts.md", &server.address, dir.path());
}

#[test]
fn the_examples_for_shippers_work() {
    let (dir, server) = server();
    run_page("shippers.md", &server.address, dir.path());
}

#[test]
fn the_examples_of_verify_it_yourself_work_and_only_the_last_walk_needs_a_server() {
    let (dir, data) = data_dir();
    let running = serve(&data);
    let key = first_key(&data);
    for _ in 0..3 {
        assert_eq!(running.post(&key).0, 202);
    }
    running.await_drained();
    running.stop();
    for folder in ["tools", "vectors"] {
        symlink(root().join(folder), dir.path().join(folder)).unwrap();
    }
    let page = std::fs::read_to_string(root().join("docs/verify-it-yourself.md")).unwrap();
    assert!(!page.split_once("\n## 10. ").unwrap().0.contains(EXAMPLE_ADDRESS));

    // For the walk with curl: a server whose log has all of its three events.
    let online = dir.path().join("online");
    let mut command = serving(sealog(), &online);
    command.args(["--trust-interval-s", "1"]);
    let server = start(command);
    let live = first_key(&online);
    for _ in 0..3 {
        assert_eq!(server.post(&live).0, 202);
    }
    eventually("all events are published", || {
        server.get(&live, "/tlog/v1/chain").1.contains(r#""published_size":3,"#)
    });
    let mut vkey = sealog();
    let (code, vkey, error) =
        ended(vkey.args(["trust", "vkey", "--data-dir"]).arg(&online).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    std::fs::write(dir.path().join("api.key"), live).unwrap();
    std::fs::write(dir.path().join("log.vkey"), vkey).unwrap();
    run_page("verify-it-yourself.md", &server.address, dir.path());
    server.stop();
}

#[test]
fn an_example_that_prints_something_else_is_noticed() {
    assert!(fits("a … c", "a b c") && fits("…", "x") && fits("a", "a") && fits("a\n…", "a\nb\nc"));
    assert!(!fits("a … c", "a b d") && !fits("a", "ab") && !fits("x…", "ax") && !fits("a…b…c", "a c b"));
    let value = |text: &str| shape(&serde_json::from_str(text).unwrap());
    assert_eq!(value(r#"{"a":[null,"x"],"b":1}"#), value(r#"{"b":2,"a":["y"]}"#));
    assert_ne!(value(r#"{"a":1}"#), value(r#"{"a":"1"}"#));
    assert_ne!(value(r#"{"a":1}"#), value(r#"{"a":1,"b":2}"#));
    assert_eq!(masked("live 01ab 12 events ok\nlive 02cd 3 events ok"), ["live # # events ok"]);
    assert_ne!(masked("Valid: 3"), masked("Broken: 3"));
}

/// The head and the body of an answer.
fn page(server: &Running, path: &str, headers: &str) -> (String, String) {
    let host = &server.address;
    let answer =
        server.raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

#[test]
fn pages_need_no_key_have_the_policy_of_the_dashboard_and_say_whether_they_have_changed() {
    let (_dir, server) = server();
    let (of_app, _) = page(&server, "/app/sign-in", "");
    for path in [
        "/docs",
        "/docs/",
        "/docs/quickstart",
        "/docs/api/events",
        "/docs/search?q=chain",
        "/docs/errors/auth/key_not_found",
    ] {
        let (head, body) = page(&server, path, "");
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        for name in
            ["content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy"]
        {
            assert_eq!(header(&head, name), header(&of_app, name), "{path}");
        }
        // Everything that a page needs comes from this server.
        for (at, _) in body.match_indices("href=\"/docs/static/") {
            let asset = body[at + 6..].split('"').next().unwrap();
            let (head, _) = page(&server, asset, "");
            assert!(head.starts_with("http/1.1 200") && head.contains("immutable"), "{asset}: {head}");
        }
        assert_eq!(body.matches("rel=\"stylesheet\" href=\"/docs/static/").count(), 2, "{path}");
        if !path.contains('?') {
            let etag = header(&head, "etag").unwrap();
            let (head, body) = page(&server, path, &format!("If-None-Match: {etag}\r\n"));
            assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{path}: {head}");
        }
    }
    // Of a HEAD, since what is compressed is no text.
    let host = &server.address;
    let head = server.raw(&format!(
        "HEAD /docs/quickstart HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"
    ));
    assert_eq!(header(&head.to_ascii_lowercase(), "content-encoding"), Some("gzip"));
}

#[test]
fn the_theme_that_was_chosen_in_the_dashboard_is_that_of_the_documentation() {
    let (_dir, server) = server();
    let shows = |cookie: &str, path: &str, theme: &str| {
        let (head, body) = page(&server, path, &format!("Cookie: {cookie}\r\n"));
        assert!(body.contains(&format!("data-theme=\"{theme}\"")), "{path} with {cookie}: {head}");
        assert!(header(&head, "vary").unwrap().contains("cookie"), "{path}: {head}");
    };
    let (head, _) = page(&server, "/docs/quickstart", "");
    let plain = header(&head, "etag").unwrap().to_owned();
    let chosen = submit(&server, "/app/theme", "", "theme=dark&next=/app/sign-in");
    let cookies: Vec<&str> = chosen.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect();
    let of_docs = cookies.iter().find(|cookie| cookie.contains("; Path=/docs;")).unwrap();
    assert!(cookies.iter().any(|cookie| cookie.contains("; Path=/app;")), "{cookies:?}");
    let cookie = of_docs.split(';').next().unwrap();
    for path in ["/docs", "/docs/quickstart", "/docs/search?q=chain", "/docs/errors/auth/key_not_found"] {
        shows(cookie, path, "dark");
        shows("other=1", path, "system");
    }
    // A browser that has the page in another theme is not told that nothing has changed.
    let asked = format!("Cookie: {cookie}\r\nIf-None-Match: {plain}\r\n");
    let (head, body) = page(&server, "/docs/quickstart", &asked);
    assert!(head.starts_with("http/1.1 200") && body.contains("data-theme=\"dark\""), "{head}");
    let dark = header(&head, "etag").unwrap().to_owned();
    let asked = format!("Cookie: {cookie}\r\nIf-None-Match: {dark}\r\n");
    assert!(page(&server, "/docs/quickstart", &asked).0.starts_with("http/1.1 304"));
}

#[test]
fn commands_and_settings_are_those_of_the_program() {
    let (_dir, server) = server();
    let output = sealog().arg("--help").output().unwrap();
    let (_, help, _) = ended(output);
    let (_, list) = page(&server, "/docs/commands", "");
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 8, "{help}");
    for name in names {
        assert!(list.contains(&format!("/docs/commands/{name}\"")), "{name}");
        let (head, body) = page(&server, &format!("/docs/commands/{name}"), "");
        assert!(head.starts_with("http/1.1 200") && body.contains(&format!("sealog {name}")), "{name}");
    }
    // Every command ends with a code of one table.
    let (_, verify, _) = ended(sealog().args(["verify", "--help"]).output().unwrap());
    let codes: Vec<&str> = verify.split("Exit codes:\n").nth(1).unwrap().lines().collect();
    assert!(codes.len() >= 8, "{verify}");
    for row in codes {
        let (code, meaning) = row.trim().split_once(' ').unwrap();
        assert!(list.contains(&format!("<td>{code}</td><td>{}</td>", meaning.trim())), "{row}: {list}");
    }
    let (_, page_of_backup) = page(&server, "/docs/commands/backup", "");
    assert!(page_of_backup.contains("/docs/commands#exit-codes"), "{page_of_backup}");
    let (_, settings) = page(&server, "/docs/all-settings", "");
    assert!(settings.contains("SEALOG_LIMITS_PER_IP_RPS") && settings.contains("--limits-per-ip-rps"));
    // Examples name the server that shows them.
    let (_, quickstart) = page(&server, "/docs/quickstart", "");
    assert!(quickstart.contains(&format!("http://{}/v1/events", server.address)));
}

#[test]
fn a_search_finds_a_setting_a_flag_a_field_and_an_error_and_is_bounded() {
    let (_dir, server) = server();
    for (words, expected) in [
        ("geoip_db", "/docs/all-settings"),
        ("idempotency", "/docs/concepts#idempotency"),
        ("key_revoked", "/docs/errors/auth/key_revoked"),
        ("spool", "/docs/command"),
        ("prev_hash", "/docs/"),
    ] {
        let (head, body) = page(&server, &format!("/docs/search?q={words}"), "");
        assert!(
            head.starts_with("http/1.1 200") && body.contains(&format!("<li><a href=\"{expected}")),
            "{words}: {body}"
        );
        assert!(
            body.matches("<ol class=\"found\">").count() == 1 && body.matches("<p>").count() < 40,
            "{words}"
        );
    }
    let (head, body) = page(&server, &format!("/docs/search?q={}", "a+".repeat(20_000)), "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.len() < 200_000, "{}", body.len());
}
