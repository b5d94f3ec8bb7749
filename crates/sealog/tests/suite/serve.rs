//! The program as a person or a script meets it: first run, first event, stop, start again, and what it says
//! when something is wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use sealog_control::{Control, ListPage, NewNotice};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_testing::smtp::{MailPort, MailSeen};
use sealog_testing::{AtTheEnd, PATIENCE, eventually};

/// A server with further settings in its environment.
fn serve_with(data: &Path, environment: &[(&str, &str)]) -> Running {
    start_with(sealog(), data, environment)
}

fn start_with(command: Command, data: &Path, environment: &[(&str, &str)]) -> Running {
    let mut command = serving(command, data);
    command.envs(environment.iter().copied());
    start(command)
}

fn fails(output: &Output, with: &str) {
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(with), "{error}");
}

#[test]
fn the_first_run_leads_to_the_first_event_and_both_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = serve(&data);
    let file = data.join("first-run.txt");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = first_key(&data);
    let (status, body) = server.send(&key, r#"{"action":"user.login","actor_id":"me"}"#);
    assert_eq!(status, 202, "{body}");
    let log_id =
        serde_json::from_str::<serde_json::Value>(&body).unwrap()["log_id"].as_str().unwrap().to_owned();
    let (status, stored) = server.get(&key, &format!("/v1/events/{log_id}"));
    assert_eq!(status, 200);
    let log = server.stop();
    assert!(log.contains("everything is synced"), "{log}");
    assert!(!log.contains(&key), "a key is never logged");

    std::fs::remove_file(&file).unwrap();
    let server = serve(&data);
    assert!(!file.exists(), "accounts are created once");
    assert_eq!(server.get(&key, &format!("/v1/events/{log_id}")), (200, stored));
    assert_eq!(
        server.get(&key, "/v1/events/verify").1,
        r#"{"valid":true,"checked":1,"first_seq":1,"last_seq":1}"#
    );
    server.stop();
}

#[test]
fn a_server_whose_log_cannot_be_written_takes_events_and_stops_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = clean(Command::new("bash"));
    // Its log is a pipe that nobody reads any more once it listens.
    let until_it_listens = r#"exec "$0" "$@" 2> >(sed -u '/"listening"/q' >&2)"#;
    command.args(["-c", until_it_listens, SEALOG]).env("SEALOG_LOG_LEVEL", "debug");
    let server = start(serving(command, &data));
    let key = first_key(&data);
    for _ in 0..10 {
        let (status, body) = server.post(&key);
        assert_eq!(status, 202, "{body}");
    }
    server.stop();
}

/// As docs/operating.md rotates it: appended to, copied elsewhere, and cut.
#[test]
fn a_log_file_that_is_cut_under_a_server_has_its_next_line_at_its_beginning() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    assert!(std::fs::read_to_string(page).unwrap().contains("| `sealog serve 2>> sealog.log` |"));
    let (dir, _) = data_dir();
    let log = dir.path().join("sealog.log");
    let mut bash = clean(Command::new("bash"));
    bash.args(["-c", "exec \"$0\" serve 2>> sealog.log", SEALOG]).current_dir(dir.path());
    let mut child = bash.env("SEALOG_LISTEN", "127.0.0.1:0").spawn().unwrap();
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("it listens", || text().contains("\"listening\""));
    std::fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let text = text();
    assert!(text.starts_with('{') && text.contains("stopped; everything is synced"), "{text:?}");
    assert!(!text.contains("\"listening\""), "{text}");
}

#[test]
fn the_owner_claims_the_account_and_sees_the_first_event() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = serve(&data);
    let (file, key) = (data.join("first-run.txt"), first_key(&data));
    let text = std::fs::read_to_string(&file).unwrap();
    let beginning = format!("http://{}/app/claim#", server.address);
    let secret = text.split_whitespace().find_map(|word| word.strip_prefix(&beginning)).unwrap().to_owned();
    assert!(open_page(&server, "/", "").contains("location: /app\r\n"));
    assert!(open_page(&server, "/app/claim", "").starts_with("HTTP/1.1 200"));
    let claim = format!(
        "token={secret}&organisation=Acme&project=production&email=me%40example.org&password=correct+horse+battery"
    );
    let answer = submit(&server, "/app/claim", "", &claim);
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("x-request-id: req_"), "{answer}");
    let has_link = || std::fs::read_to_string(&file).unwrap().contains(&secret);
    eventually("the file loses the link", || !has_link());
    assert_eq!(first_key(&data), key, "the keys stay");
    assert!(submit(&server, "/app/claim", "", &claim).starts_with("HTTP/1.1 422"));
    let answer = submit(&server, "/app/sign-in", "", "email=me%40example.org&password=correct+horse+battery");
    let cookie = answer.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap().to_owned();
    let answer = open_page(&server, "/app", &cookie);
    let events = answer.split_once("location: ").unwrap().1.split("\r\n").next().unwrap().to_owned();
    assert!(open_page(&server, &events, &cookie).contains("No events yet"));
    assert_eq!(server.send(&key, r#"{"action":"user.login","actor_id":"the first"}"#).0, 202);
    assert!(open_page(&server, &events, &cookie).contains("the first"));
    // A page of the dashboard, whatever is wrong; the API's envelope elsewhere.
    assert!(open_page(&server, "/app/nowhere", &cookie).contains("<code>request/not_found</code>"));
    assert!(open_page(&server, "/nowhere", "").contains("\"code\":\"request/not_found\""));
    let log = server.stop();
    assert!(!log.contains(&secret) && !log.contains("example.org") && !log.contains(&cookie[15..]), "{log}");
    // Whoever is signed in stays so.
    let server = serve(&data);
    assert!(open_page(&server, &events, &cookie).contains("the first"));
    server.stop();
}

/// Opens a live view and waits for its answer, which stays unread; the beginning of it.
fn live_view(server: &Running, path: &str, cookie: &str) -> (TcpStream, String) {
    let mut view = TcpStream::connect(&server.address).unwrap();
    let host = &server.address;
    write!(view, "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").unwrap();
    let mut beginning = [0; 64];
    view.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = view.peek(&mut beginning).unwrap();
    (view, String::from_utf8_lossy(&beginning[..length]).into_owned())
}

/// Issue 23.25. The sockets are closed with an answer in them that nobody has read, so each is reset; and
/// nothing happens in the chain.
#[test]
fn four_live_views_that_were_reset_make_room_for_a_fifth_within_five_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = serve(&data);
    let cookie = signed_in_owner(&server, &data);
    let home = open_page(&server, "/app", &cookie);
    let page = home.split_once("location: ").unwrap().1.split("\r\n").next().unwrap();
    let tail = format!("{}/live/tail", page.split_once("/live").unwrap().0);
    let views: Vec<_> = (0..4).map(|_| live_view(&server, &tail, &cookie)).collect();
    for (_, answer) in &views {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let (_, fifth) = live_view(&server, &tail, &cookie);
    assert!(fifth.starts_with("HTTP/1.1 429"), "{fifth}");
    drop(views);
    let begun = Instant::now();
    loop {
        let (_, answer) = live_view(&server, &tail, &cookie);
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
    server.stop();
}

#[test]
fn the_pasted_curl_command_returns_202() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = serve(&data);
    let text = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    let commands: Vec<&str> =
        text.split("\n\n").filter(|part| part.trim_start().starts_with("curl")).collect();
    let run = |command: &str| {
        String::from_utf8(Command::new("bash").args(["-c", command]).output().unwrap().stdout).unwrap()
    };
    assert!(run(commands[0]).starts_with("HTTP/1.1 202"));
    assert!(run(commands[1]).contains("\"actor_id\":\"me\""));
    server.stop();
}

#[test]
fn a_second_process_is_refused_and_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let second = serving(sealog(), dir.path()).output().unwrap();
    fails(&second, &format!("process id {}", server.pid()));
    server.stop();
}

#[test]
fn a_port_that_another_server_listens_on_is_refused() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = serve(first.path());
    let joined = sealog()
        .args(["serve", "--listen", &server.address, "--data-dir"])
        .arg(second.path())
        .output()
        .unwrap();
    fails(&joined, &format!("cannot listen on {}", server.address));
    server.stop();
}

#[test]
fn bad_settings_are_errors_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], variable: Option<(&str, &str)>| {
        sealog().current_dir(dir.path()).arg("serve").args(arguments).envs(variable).output().unwrap()
    };
    let refused = |output: &Output, with: &str| {
        fails(output, with);
        assert_eq!(output.status.code(), Some(2), "{with}");
    };
    refused(&run(&["--listne", "x"], None), "--listne");
    refused(&run(&["--listen", "nowhere"], None), "--listen: listen must be an address and port");
    refused(&run(&[], Some(("SEALOG_LISTNE", "x"))), "SEALOG_LISTNE is not a setting");
    refused(
        &run(&["--store", "mysql://x"], None),
        "--store: store must be \"embedded\" or begin with postgres://",
    );
    refused(&run(&["--store", "postgres://x/y?sslmode=maybe"], None), "sslmode must be");
    std::fs::write(dir.path().join("sealog.toml"), "[limits]\nper_ip = 1\n").unwrap();
    refused(&run(&[], None), "sealog.toml: limits.per_ip is not a setting");
    refused(&run(&["--config", "missing.toml"], None), "missing.toml");
    std::fs::remove_file(dir.path().join("sealog.toml")).unwrap();
    refused(
        &run(&["--geoip-db", "missing.mmdb"], None),
        "--geoip-db: cannot use geoip_db: missing.mmdb: No such file",
    );
    std::fs::write(dir.path().join("broken.mmdb"), "MaxMind.com").unwrap();
    refused(
        &run(&[], Some(("SEALOG_GEOIP_DB", "broken.mmdb"))),
        "SEALOG_GEOIP_DB: cannot use geoip_db: broken.mmdb: it is not a complete MMDB file",
    );
    assert!(!dir.path().join("data").exists(), "nothing is created before the settings are right");
}

#[test]
fn a_forwarded_address_of_a_proxy_that_nobody_has_named_is_told_once_with_the_setting_to_change() {
    const SAID: &str = "ignored forwarding header";
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    for header in ["X-Forwarded-For", "Forwarded", "X-Forwarded-For"] {
        assert_eq!(server.request("GET", "/healthz", &[(header, "for=203.0.113.9")], "").0, 200);
    }
    let log = server.begun.clone() + &server.stop();
    let told: Vec<&str> = log.lines().filter(|line| line.contains(SAID)).collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("SEALOG_TRUSTED_PROXIES") && told[0].contains("127.0.0.1"), "{log}");
    assert!(told[0].contains("x-forwarded-for") && !told[0].contains("203.0.113.9"), "{log}");

    let server = serve_with(dir.path(), &[("SEALOG_TRUSTED_PROXIES", "127.0.0.1")]);
    assert_eq!(server.request("GET", "/healthz", &[("X-Forwarded-For", "203.0.113.9")], "").0, 200);
    assert_eq!(server.request("GET", "/healthz", &[], "").0, 200);
    let log = server.begun.clone() + &server.stop();
    assert!(!log.contains(SAID), "{log}");
}

#[test]
fn lines_of_the_log_are_text_for_people_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = serving(sealog(), dir.path());
    command.args(["--log-format", "text"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let listening = lines.by_ref().find(|line| line.contains("listening")).expect("it listens");
    signal(server.id(), "-TERM");
    let rest: Vec<String> = lines.collect();
    // A time, a level, and fields by their names; nothing of it is JSON, and no colours where nobody watches.
    assert!(listening.contains(" INFO ") && listening.contains("address=127.0.0.1:"), "{listening}");
    assert!(!listening.contains('{') && !listening.contains('\u{1b}'), "{listening}");
    assert!(rest.iter().any(|line| line.contains("stopped; everything is synced")), "{rest:?}");
    assert!(rest.iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_err()), "{rest:?}");
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn the_operator_interface_is_open_only_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    assert_eq!(server.get("0123456789abcdef", "/operator/v1/tenants").0, 404);
    server.stop();
    let server = serve_with(dir.path(), &[("SEALOG_OPERATOR_TOKEN", "0123456789abcdef")]);
    assert_eq!(server.get("0123456789abcdef", "/operator/v1/tenants").0, 200);
    assert_eq!(server.get("0123456789abcdeX", "/operator/v1/tenants").0, 401);
    server.stop();
}

#[test]
fn metrics_are_open_to_this_machine_and_the_log_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    server.says("/metrics needs no token for direct requests from this machine");
    assert_eq!(server.get("x", "/metrics").0, 200);
    server.stop();
}

#[test]
fn metrics_can_have_a_listener_of_their_own_that_serves_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef";
    let settings = [("SEALOG_METRICS_LISTEN", "127.0.0.1:0"), ("SEALOG_OPERATOR_TOKEN", token)];
    let mut server = serve_with(dir.path(), &settings);
    let said = server.says("/metrics needs no token on this address");
    let main = std::mem::replace(&mut server.address, said["address"].as_str().unwrap().to_owned());
    let (status, text) = server.request("GET", "/metrics", &[("X-Forwarded-For", "203.0.113.1")], "");
    assert_eq!(status, 200);
    assert!(text.contains("sealog_ready 1"), "{text}");
    for path in ["/v1/events", "/v1/actions", "/healthz", "/readyz", "/operator/v1/tenants", "/"] {
        assert_eq!(server.get(token, path).0, 404, "{path}");
    }
    server.address = main;
    assert_eq!(server.get(token, "/metrics").0, 404);
    assert_eq!(server.get(token, "/operator/v1/tenants").0, 200);
    let taken = sealog()
        .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", &server.address, "--data-dir"])
        .arg(dir.path().join("other"))
        .output()
        .unwrap();
    fails(&taken, &format!("cannot listen on {}", server.address));
    server.stop();
}

/// What a client says of its users; no line of the log may repeat it.
const SECRET: &str = "correct-horse-battery-staple";

#[test]
fn every_line_about_a_request_has_its_id_and_no_line_has_a_key_or_anything_of_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let token = "the-operators-token-is-a-secret-too";
    // Room for the first segment of events and for nothing after it: in the end an event cannot be written.
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 12288; exec \"$0\" \"$@\"", SEALOG]);
    let settings = [
        ("SEALOG_LOG_LEVEL", "debug"),
        ("SEALOG_OPERATOR_TOKEN", token),
        ("SEALOG_LIMITS_PER_IP_RPS", "0"),
        ("SEALOG_LIMITS_LIVE_RPS", "0"),
    ];
    let server = start_with(limited, dir.path(), &settings);
    let key = first_key(dir.path());
    let mut ids = Vec::new();
    let mut expect = |status: u16, answer: &str| {
        assert_eq!(&answer[9..12], status.to_string(), "{answer}");
        let (_, id) = answer.split_once("x-request-id: ").expect("every answer has an id");
        ids.push((id[..30].to_owned(), u64::from(status)));
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let send = |method: &str, path: &str, key: &str, body: &str| {
        let length = body.len();
        server.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: {SECRET}-{length}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    };
    let event = |metadata: &str| {
        format!(
            r#"{{"action":"user.login","actor_id":"{SECRET}","metadata":{{"note":"{SECRET}{metadata}"}}}}"#
        )
    };

    // Accepted, replayed, refused for each kind of reason, and not HTTP at all.
    let sealed = expect(202, &send("POST", "/v1/events", &key, &event("")));
    expect(202, &send("POST", "/v1/events", &key, &event("")));
    expect(409, &send("POST", "/v1/events", &key, &event("").replace("login", "logon")));
    expect(422, &send("POST", "/v1/events", &key, &format!(r#"{{"action":"{SECRET}"}}"#)));
    expect(400, &send("POST", "/v1/events", &key, &format!("{{{SECRET}")));
    expect(401, &send("POST", "/v1/events", &format!("{key}x"), &event("")));
    expect(404, &send("GET", &format!("/v1/events/{key}"), &key, ""));
    expect(404, &send("GET", &format!("/{SECRET}/{key}"), &key, ""));
    expect(400, &send("GET", &format!("/v1/events?limit={SECRET}&actor_id={SECRET}"), &key, ""));
    expect(200, &send("GET", &format!("/v1/events?actor_id={SECRET}"), &key, ""));
    expect(401, &send("GET", "/operator/v1/tenants", &format!("{token}x"), ""));
    expect(400, &server.raw(&format!("{SECRET} {key}\r\n\r\n")));

    // A record that is damaged on disk.
    let segment = dir.path().join("live").join("00000001.log");
    let mut content = std::fs::read(&segment).unwrap();
    let at = content.windows(SECRET.len()).position(|bytes| bytes == SECRET.as_bytes()).unwrap();
    content[at] ^= 1;
    std::fs::write(&segment, &content).unwrap();
    let log_id =
        serde_json::from_str::<serde_json::Value>(&sealed).unwrap()["log_id"].as_str().unwrap().to_owned();
    expect(500, &send("GET", &format!("/v1/events/{log_id}"), &key, ""));

    // A disk without room.
    let large = "x".repeat(60_000);
    let mut status = "202".to_owned();
    for number in 0..200 {
        let answer = send("POST", "/v1/events", &key, &event(&large[number..]));
        status = answer[9..12].to_owned();
        expect(status.parse().unwrap(), &answer);
        if status == "500" {
            break;
        }
    }
    assert_eq!(status, "500", "the limit did not work");
    for _ in 0..3 {
        let answer = expect(503, &send("GET", "/readyz", "", ""));
        assert!(answer.contains(r#""reason":"no_room""#), "{answer}");
    }

    let log = server.stop();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    for (id, status) in &ids {
        let answered = lines
            .iter()
            .filter(|line| line["fields"]["request_id"] == *id.as_str())
            .filter(|line| line["fields"]["status"] == *status);
        assert_eq!(answered.count(), 1, "{id} {status}");
    }
    for message in ["a read failed", "failed to write an event"] {
        let line = lines.iter().find(|line| line["fields"]["message"] == message).expect(message);
        assert!(ids.iter().any(|(id, _)| line["fields"]["request_id"] == *id.as_str()), "{line}");
        assert_eq!(line["level"], "ERROR");
    }
    let not_ready = "not ready: rejecting events";
    let told = lines.iter().filter(|line| line["fields"]["message"] == not_ready);
    assert_eq!(told.count(), 1, "one line for each change, not for each probe");
    for secret in [SECRET, token, &key["at_live_".len()..]] {
        assert!(!log.contains(secret), "{:?}", log.lines().find(|line| line.contains(secret)));
    }
}

#[test]
fn requests_are_not_logged_unless_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    server.get("x", "/v1/events");
    let log = server.stop();
    assert!(!log.contains("request_id"), "{log}");
}

/// A client that writes requests without waiting for answers, until it is told that it is enough. Its event
/// loop has always something to do. `answered` is told of its first answer.
fn flood(address: &str, answered: &AtomicUsize, enough: &AtomicBool) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let begun = Instant::now();
    let requests = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut scrap = vec![0; 64 << 10];
            let mut read = || answers.read(&mut scrap).is_ok_and(|read| read > 0);
            answered.fetch_add(usize::from(read()), Ordering::SeqCst);
            while read() {}
        });
        while !enough.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < 2 * PATIENCE, "an event waited for the end of the flood");
            stream.write_all(requests.as_bytes()).unwrap();
        }
        stream.shutdown(Shutdown::Both).unwrap();
    });
}

#[test]
fn an_event_is_acknowledged_although_others_send_requests_without_pause() {
    let data = tempfile::tempdir().unwrap();
    let running = serve(data.path());
    let (key, answered, enough) = (first_key(data.path()), AtomicUsize::new(0), AtomicBool::new(false));
    // More than there are event loops on this machine, so that each of them has one.
    let clients = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        // The flood goes on until it is told to end: each of these is acknowledged while it does.
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        for _ in 0..clients {
            scope.spawn(|| flood(&running.address, &answered, &enough));
        }
        eventually("all are served", || answered.load(Ordering::SeqCst) == clients);
        for _ in 0..8 {
            let (status, body) = running.send(&key, EVENT);
            assert_eq!(status, 202, "{body}");
        }
    });
    running.stop();
}

#[test]
fn help_says_what_every_setting_is_called() {
    let help = String::from_utf8(sealog().args(["serve", "--help"]).output().unwrap().stdout).unwrap();
    for text in [
        "--listen",
        "SEALOG_LISTEN",
        "--metrics-listen",
        "SEALOG_METRICS_LISTEN",
        "--data-dir",
        "--limits-per-ip-rps",
        "SEALOG_LIMITS_PER_IP_RPS",
        "127.0.0.1:8080",
        "first-run.txt",
        "sealog.toml",
    ] {
        assert!(help.contains(text), "{text} is not in\n{help}");
    }
}

/// A certificate for `localhost` that only those trust who are told to, and its key.
fn certificate(dir: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .output()
        .expect("openssl is needed for the tests; scripts/setup installs what is missing");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Puts a mail into the outbox of a data directory that no server has open.
fn enqueue_mail(data: &Path, name: &str, percent: u8) {
    let store = EmbeddedStore::open(data, &Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let control = Control::embedded(&store).unwrap();
        let tenants = control.tenants(ListPage { after: None, limit: 1 }).await.unwrap();
        let notice = NewNotice {
            key: format!("test/{percent}"),
            tenant_id: Some(tenants[0].id),
            person_id: None,
            to: "ops@example.org".into(),
            template: "quota".into(),
            parameters: serde_json::json!({
                "name": name, "plan": "entry", "month": 24_322, "used": 8, "events_per_month": 10, "percent": percent,
            })
            .to_string(),
            created_at_ms: 0,
        };
        assert!(control.enqueue_notice(notice).await.unwrap());
    });
    store.close();
}

#[test]
fn a_mail_leaves_over_starttls_with_the_password_and_only_to_a_server_whose_certificate_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    certificate(dir.path());
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let port = MailPort::hold();
    let mail_server = port.start_with_tls(&cert, &key);
    let url = format!("smtp://user:hunter2@localhost:{}?tls=required", port.number());
    let settings = [
        ("SEALOG_SMTP_URL", url.as_str()),
        ("SEALOG_SMTP_FROM", "Sealog <log@example.org>"),
        ("SSL_CERT_FILE", cert.to_str().unwrap()),
    ];
    serve(&data).stop();
    enqueue_mail(&data, "first", 80);
    let distrustful = serve_with(&data, &settings[..2]);
    let said = distrustful.says("failed to send a mail").to_string();
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    let rest = distrustful.stop();

    // The first one waits a minute now.
    enqueue_mail(&data, "second", 100);
    let trusting = serve_with(&data, &settings);
    let taken = || mail_server.taken("ops@example.org");
    eventually("a mail comes", || !taken().is_empty());
    let MailSeen(mail) = &taken()[0];
    assert!(mail["headers"][2][1].as_str().unwrap().starts_with("second: all audit events"), "{mail}");
    assert_eq!(mail["user"], "user", "{mail}");
    assert_eq!((&mail["encrypted"], &mail["recipients"][0]), (&true.into(), &"ops@example.org".into()));
    for log in [said, rest, trusting.stop()] {
        assert!(!log.contains("hunter2"), "a password is never logged: {log}");
    }
}

/// A server whose syncs of live segments fail, all of them or from the given one of a thread on. What fails
/// at its start is none of them.
fn with_failing_disk(data: &Path, environment: &[(&str, &str)]) -> Running {
    let mut strace = Command::new("strace");
    // Its own end is that of the server; its own words go nowhere.
    strace.args(["-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
    strace.args(["-e", "inject=fdatasync,fsync:error=EIO"]);
    // By the names that the next segments will have.
    for number in 1..=6 {
        strace.arg("-P").arg(data.join(format!("live/{number:08}.log")));
    }
    strace.arg(SEALOG);
    start_with(strace, data, environment)
}

const EVENT: &str = r#"{"action":"user.login"}"#;

#[test]
fn a_failed_sync_ends_the_server_with_a_code_of_its_own_and_words_that_tell() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let key = first_key(dir.path());
    assert_eq!(server.send(&key, EVENT).0, 202);
    server.stop();

    let server = with_failing_disk(dir.path(), &[]);
    assert_eq!(server.send(&key, EVENT).0, 500);
    // Until it ends, whoever supervises it can see it, and reads go on.
    assert_eq!(server.get(&key, "/readyz").0, 503);
    assert_eq!(server.get(&key, "/v1/events").0, 200);
    let (code, log) = server.ended();
    assert_eq!(code, Some(74), "{log}");
    assert!(log.contains("the store failed and rejects events; stopping"), "{log}");
    assert!(log.contains("stopped after a failed write or sync"), "{log}");
    assert!(!log.contains("everything is synced"), "{log}");

    // What a supervisor does. The disk works again.
    let server = serve(dir.path());
    assert_eq!(server.send(&key, EVENT).0, 202);
    assert!(server.get(&key, "/v1/events/verify").1.starts_with(r#"{"valid":true"#));
    assert!(server.stop().contains("everything is synced"));
}

#[test]
fn a_server_that_is_told_to_stay_after_a_failed_sync_answers_reads_and_tells_the_truth_when_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let key = first_key(dir.path());
    assert_eq!(server.send(&key, EVENT).0, 202);
    server.stop();

    let server = with_failing_disk(dir.path(), &[("SEALOG_ON_STORE_FAILURE", "stay")]);
    assert_eq!(server.send(&key, EVENT).0, 500);
    server.says("the store failed and rejects events; reads continue");
    assert_eq!(server.send(&key, EVENT).0, 500);
    assert_eq!(server.get(&key, "/v1/events").0, 200);
    // strace passes no signal on; the server is its child.
    signal(children(server.pid())[0], "-TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(74), "{log}");
    assert!(log.contains("stopped after a failed write or sync"), "{log}");
    assert!(!log.contains("everything is synced"), "{log}");
}

#[test]
fn whenever_the_first_start_is_killed_the_next_one_has_keys_that_work() {
    let mut random = [0; 64];
    sealog_store::world::World::fill_random(&sealog_store::world::SystemWorld, &mut random);
    // How long a first start takes until it listens; the kills are spread over it.
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    serve(dir.path()).stop();
    let whole = begun.elapsed();
    for byte in random.into_iter().take(16) {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut child = serving(sealog(), &data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(byte) / 255.0));
        child.kill().unwrap();
        child.wait().unwrap();
        let server = serve(&data);
        let (status, body) = server.send(&first_key(&data), EVENT);
        assert_eq!(status, 202, "killed after {:?}: {body}", whole.mul_f64(f64::from(byte) / 255.0));
        server.stop();
    }
}

/// How often a text is in the memory of a process that this one has started.
fn in_memory(pid: u32, wanted: &str) -> usize {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut grep = Command::new("grep");
    let mut grep = grep.args(["-aoF", wanted]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = grep.stdin.take().unwrap();
    let (mut piece, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (mut from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        while from < to {
            let wanted = piece.len().min(usize::try_from(to - from).unwrap());
            // What cannot be read was never used.
            let Ok(read @ 1..) = memory.read_at(&mut piece[..wanted], from) else { break };
            if piece[..read] != zeros[..read] {
                input.write_all(&piece[..read]).unwrap();
            }
            from += read as u64;
        }
    }
    drop(input);
    let found = grep.wait_with_output().unwrap().stdout;
    found.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
}

#[test]
fn the_secrets_of_the_first_run_are_gone_from_memory_when_the_server_listens() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve_with(dir.path(), &[("SEALOG_OPERATOR_TOKEN", "0123456789abcdef")]);
    let text = std::fs::read_to_string(dir.path().join("first-run.txt")).unwrap();
    let password = text.lines().find(|line| line.contains("dashboard")).unwrap().split_whitespace().last();
    assert!(in_memory(server.pid(), "0123456789abcdef") > 0, "what is needed is still there");
    for secret in [first_key(dir.path()).as_str(), password.unwrap()] {
        assert_eq!(in_memory(server.pid(), secret), 0);
    }
    server.stop();
}

/// Open sockets of the server's other end: those that have neither data nor an end to read.
fn still_open(sockets: &[TcpStream]) -> usize {
    let open = |socket: &&TcpStream| {
        socket.set_nonblocking(true).unwrap();
        let peeked = socket.peek(&mut [0]);
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    sockets.iter().filter(open).count()
}

#[test]
fn at_1024_descriptors_700_idle_sockets_of_one_address_do_not_keep_another_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    // With it the server has 512 places for connections, half of them for one address.
    limited.args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\"", SEALOG]);
    let server = start_with(clean(limited), dir.path(), &[]);
    let key = first_key(dir.path());
    let idle: Vec<TcpStream> = (0..700).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let good = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(server.address.parse().unwrap()).await.unwrap()
    });
    let mut good = good.into_std().unwrap();
    good.set_nonblocking(false).unwrap();
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    good.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    good.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // No deadline had ended the idle ones by then: those that have their places are open.
    let open = still_open(&idle);
    assert!(open >= 200, "{open} of 700 are still open");
    drop(idle);
    server.stop();
}
