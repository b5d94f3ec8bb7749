//! The commands that talk to a service, as a person or a script meets them: output, exit codes, and what
//! happens when the service is away.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::stage::*;
use crate::support::*;
use sealog_testing::eventually;
use serde_json::Value;

#[test]
fn an_event_is_logged_listed_and_shown_exactly_as_the_api_has_it() {
    let stage = Stage::new();
    let args = [
        "log",
        "document.shared",
        "--actor-id",
        "usr 1",
        "--resource",
        "document/9",
        "--metadata",
        r#"{"n":1.0}"#,
        "-m",
        "to=a\"b",
    ];
    let (code, said, noted) = stage.run(&args);
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    let log_id = said.trim().to_owned();
    let (_, body) = stage.server().get(&stage.key, &format!("/v1/events/{log_id}"));
    assert!(body.contains(r#""metadata":{"n":1.0,"to":"a\"b"}"#), "{body}");
    assert_eq!(stage.run(&["events", "get", &log_id]), (Some(0), format!("{body}\n"), String::new()));
    let (code, listed, _) =
        stage.run(&["events", "list", "--actor-id", "usr 1", "--action", "document.shared", "--json"]);
    assert_eq!((code, listed), (Some(0), format!("{body}\n")));
    let (code, listed, noted) = stage.run(&["events", "list", "--actor-id", "nobody"]);
    assert_eq!((code, listed.as_str(), noted.as_str()), (Some(0), "", "No events.\n"));
    let (_, line, _) = stage.run(&["events", "list"]);
    let cells: Vec<&str> = line.trim_end().split('\t').collect();
    assert_eq!(
        (cells[0], cells[3], cells[4], cells[5], cells[6]),
        ("1", "document.shared", "usr 1", "document/9", log_id.as_str())
    );
}

#[test]
fn every_line_of_a_pipe_is_sealed_once_and_in_order_and_its_log_id_is_printed() {
    let stage = Stage::new();
    let (code, said, noted) = stage.piped(&["log", "--file", "-"], &lines(250));
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert_eq!(actors(&stage), expected(250));
    let log_ids: Vec<String> =
        stage.events().iter().rev().map(|event| event["log_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), log_ids);
    let (code, _, _) = stage.piped(&["log", "--file", "-", "--in-flight", "4"], &lines(450));
    assert_eq!((code, stage.events().len()), (Some(0), 700));
}

#[test]
fn a_line_that_is_not_taken_is_named_and_the_others_are_sealed() {
    let stage = Stage::new();
    let mut input: Vec<String> = lines(120).lines().map(str::to_owned).collect();
    input[5] = r#"{"action":"no.such"}"#.into();
    input[7] = "not JSON".into();
    let rejects = stage.home.join("rejects");
    let args = ["log", "--file", "-", "--json", "--rejects", rejects.to_str().unwrap()];
    let (code, said, noted) = stage.piped(&args, &(input.join("\n") + "\n"));
    assert_eq!(code, Some(6), "{noted}");
    assert!(
        noted.contains("line 6: action/invalid") && noted.contains("line 8: it is not a JSON object"),
        "{noted}"
    );
    assert!(noted.contains("request: req_") && noted.contains("/docs/errors/action/invalid"), "{noted}");
    let mut kept: Vec<String> =
        std::fs::read_to_string(&rejects).unwrap().lines().map(str::to_owned).collect();
    kept.sort();
    assert_eq!(kept, ["not JSON", "{\"action\":\"no.such\"}"]);
    let numbers: Vec<u64> = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64().unwrap())
        .collect();
    let taken: Vec<u64> = (1..=120).filter(|number| ![6, 8].contains(number)).collect();
    assert_eq!(numbers, taken);
    assert_eq!(actors(&stage).len(), 118);
}

#[test]
fn what_is_read_while_the_service_is_away_is_kept_and_sent_first_by_the_next_command() {
    let mut stage = Stage::new();
    stage.stop();
    let (code, said, noted) = stage.piped(&["log", "--file", "-", "--retries", "0"], &lines(230));
    assert_eq!((code, said.as_str()), (Some(5), ""), "{noted}");
    assert!(noted.contains("cannot reach") && noted.contains("230 events wait in"), "{noted}");
    // Another command while it is still away adds to it.
    let (code, _, noted) = stage.run(&["log", "user.login", "--actor-id", "u230", "--retries", "0"]);
    assert_eq!(code, Some(5), "{noted}");
    // Another key has a spool of its own.
    stage.restart();
    let mut other = stage.command(&["log", "user.login", "--no-spool"]);
    assert_eq!(other.output().unwrap().status.code(), Some(0));
    assert_eq!(stage.events().len(), 1);
    let (code, _, noted) = stage.run(&["log", "user.login", "--actor-id", "u231"]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(noted.contains("sent 231 events from the spool"), "{noted}");
    assert_eq!(actors(&stage)[1..], expected(232));
    let (code, _, noted) = stage.run(&["log", "user.login", "--actor-id", "u232"]);
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert_eq!(stage.events().len(), 234);
}

#[test]
fn a_server_that_is_killed_and_started_again_while_lines_arrive_gets_each_of_them_once() {
    let mut stage = Stage::new();
    let mut command = stage.command(&["log", "--file", "-", "--in-flight", "4"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let all = lines(8000);
    let mut rest = all.lines();
    for _ in 0..4 {
        let before = stage.events().len();
        for line in rest.by_ref().take(2000) {
            writeln!(input, "{line}").unwrap();
        }
        eventually("some of them are sealed", || stage.events().len() > before);
        let server = stage.server.take().unwrap();
        signal(server.pid(), "-KILL");
        drop(server);
        stage.restart();
    }
    drop(input);
    let (code, _, noted) = ended(child.wait_with_output().unwrap());
    // Whatever is left is in the spool.
    if code == Some(5) {
        assert_eq!(stage.run(&["log", "user.login", "--actor-id", "last"]).0, Some(0));
    } else {
        assert_eq!(code, Some(0), "{noted}");
    }
    let mut found = actors(&stage);
    found.retain(|actor| actor != "last");
    found.sort();
    let mut all = expected(8000);
    all.sort();
    assert_eq!(found.len(), all.len());
    assert!(found == all, "each once");
}

#[test]
fn a_spool_that_cannot_be_written_is_said_and_not_passed_over() {
    let mut stage = Stage::new();
    stage.stop();
    let (code, _, noted) =
        stage.piped(&["log", "--file", "-", "--retries", "0", "--spool", "/proc/nowhere/spool"], &lines(3));
    assert_eq!(code, Some(1));
    assert!(noted.contains("3 events were neither sent nor kept"), "{noted}");
    // Also those that were read when the first could not be kept.
    let file = stage.home.join("input");
    std::fs::write(&file, lines(350)).unwrap();
    let file = file.to_str().unwrap();
    let args = ["log", "--file", file, "--retries", "0", "--in-flight", "2"];
    for (more, code) in [(["--spool", "/proc/nowhere/spool"].as_slice(), 1), (["--no-spool"].as_slice(), 5)] {
        let (ended, _, noted) = stage.run(&[&args[..], more].concat());
        assert_eq!(ended, Some(code), "{noted}");
        assert!(noted.contains("cannot reach"), "{noted}");
        assert!(noted.contains("350 events were neither sent nor kept"), "{noted}");
    }
}

#[test]
fn input_that_is_empty_binary_or_unreadable_is_named_and_says_what_is_wanted() {
    let stage = Stage::new();
    let (code, said, noted) = stage.piped(&["log", "--file", "-"], "");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(noted.contains("no events to log"), "{noted}");
    assert_eq!(stage.piped(&["log", "--file", "-", "--quiet"], ""), (Some(0), String::new(), String::new()));
    let (code, said, noted) =
        stage.piped_bytes(&["log", "--file", "-"], b"\x1f\x8b\x08\x00\xff\xfe\n\x00\x01\x1b[2J\n");
    assert_eq!((code, said.as_str()), (Some(6), ""), "{noted}");
    for told in
        ["line 1: it is not UTF-8", "line 2: it is not a JSON object", r#"such as {"action":"user.login"}"#]
    {
        assert!(noted.contains(told), "{noted}");
    }
    assert!(!noted.contains('\u{1b}') && !noted.contains('\u{1}'), "nothing of it reaches a terminal");
    // It opens, and no read of it ever succeeds, whoever reads.
    let (code, _, noted) = stage.run(&["log", "--file", "/proc/self/mem"]);
    assert!(code == Some(1) && noted.contains("cannot read the rest of the input"), "{noted}");
    let (home, file) = (stage.home.to_str().unwrap(), stage.path("in.ndjson"));
    std::fs::write(&file, lines(1)).unwrap();
    for (args, code, said) in [
        (
            &["log", "--file", "/no/such/file"][..],
            2,
            "give a file that you can read, or - for standard input",
        ),
        (&["log", "--file", home], 2, "give a file in it"),
        (&["log", "--file", &file, "--rejects", home], 2, "give another file"),
        (&["log", "user.login", "--metadata", "{"], 2, "must be a JSON object"),
        (&["log", "user.login", "--unknown"], 2, "unexpected argument"),
        (&["actions", "list", "--framework", "gpdr"], 4, "choose from"),
        (&["actions", "list", "--category", "cooking"], 4, "choose from"),
        (&["login", "--stdin"], 3, "pipe one line in"),
    ] {
        let (found, out, noted) = stage.run(args);
        assert!(found == Some(code) && noted.contains(said), "{args:?}: {found:?} {noted}");
        assert_eq!(out, "", "{args:?}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    if let Some((code, _, noted)) = stage.unprivileged(&["log", "--file", &file]) {
        assert!(code == Some(2) && noted.contains("Permission denied"), "{noted}");
        assert!(noted.contains("give a file that you can read"), "{noted}");
    }
    assert_eq!(stage.events().len(), 0);
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["log", "user.login"]).0, Some(0));
    let coded = |args: &[&str]| {
        let (code, _, noted) = stage.run(args);
        (code.unwrap(), noted)
    };
    assert_eq!(coded(&["events", "get", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]).0, 4);
    assert_eq!(coded(&["events", "get", "../verify"]).0, 4);
    assert_eq!(coded(&["events", "list", "--date-from", "yesterday"]).0, 6);
    assert_eq!(coded(&["log", "user.logn"]).0, 6);
    assert!(coded(&["log", "user.logn"]).1.contains("did you mean user.login?"));
    assert_eq!(coded(&["log", "user.login", "-m", "x"]).0, 2);
    assert_eq!(coded(&["log", "user.login", "--metadata", "[1]"]).0, 2);
    assert_eq!(coded(&["log"]).0, 2);
    assert_eq!(coded(&["log", "--file", "/no/such/file"]).0, 2);
    assert_eq!(coded(&["events", "list", "--unknown"]).0, 2);
    assert_eq!(coded(&["events", "list", "--url", "localhost"]).0, 2);
    assert_eq!(coded(&["actions", "show", "no.such"]).0, 4);
    assert_eq!(coded(&["verify", "--from", "5", "--to", "4"]).0, 2);
    let wrong =
        stage.command(&["events", "list"]).env("SEALOG_API_KEY", format!("{}x", stage.key)).output().unwrap();
    let (code, _, noted) = ended(wrong);
    assert_eq!(code, Some(3));
    assert!(noted.contains("auth/key_not_found") && noted.contains("request: req_"), "{noted}");
    let (code, _, noted) =
        ended(stage.command(&["events", "list"]).env_remove("SEALOG_API_KEY").output().unwrap());
    assert_eq!(code, Some(3));
    assert!(noted.contains("SEALOG_API_KEY"), "{noted}");
    let away =
        stage.command(&["events", "list", "--retries", "0", "--url", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(away.status.code(), Some(5));
}

#[test]
fn a_profile_gives_address_and_key_and_must_be_the_users_own() {
    let stage = Stage::new();
    let path = stage.home.join(".config/sealog/config.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(
        &path,
        format!("[profiles.p]\nurl = \"http://{}\"\nkey = \"{}\"\n", stage.address, stage.key),
    )
    .unwrap();
    let listed = |mode: u32, args: &[&str]| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = stage.command(args);
        ended(command.env_remove("SEALOG_API_KEY").env_remove("SEALOG_URL").output().unwrap())
    };
    assert_eq!(listed(0o600, &["events", "list", "--profile", "p"]).0, Some(0));
    let (code, _, noted) = listed(0o644, &["events", "list", "--profile", "p"]);
    assert_eq!(code, Some(2));
    assert!(noted.contains("chmod 600") && !noted.contains(&stage.key), "{noted}");
    assert_eq!(listed(0o600, &["events", "list", "--profile", "q"]).0, Some(2));
    // What stands there and is no file of profiles says so, without a word of what is in it.
    for text in
        ["[profiles.p]\nkey = \"at_live_secret\n", "[profiles.p]\nkeey = \"at_live_secret\"\n", "\u{0}"]
    {
        std::fs::write(&path, text).unwrap();
        for args in [&["events", "list"][..], &["login", "--stdin", "--no-check"]] {
            let (code, _, noted) = listed(0o600, args);
            assert_eq!(code, Some(2), "{noted}");
            assert!(noted.contains("not a valid profile file") && noted.contains("line "), "{noted}");
            assert!(noted.contains("sealog login") && !noted.contains("secret"), "{noted}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let (code, _, noted) = listed(0o755, &["events", "list"]);
    assert!(code == Some(2) && noted.contains("it is not a regular file: move it away"), "{noted}");
}

#[test]
fn the_key_of_a_profile_goes_to_no_other_service_than_the_profiles() {
    let stage = Stage::new();
    let path = stage.home.join(".config/sealog/config.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (address, key) = (&stage.address, &stage.key);
    let text =
        format!("[profiles.default]\nurl = \"http://{address}\"\nkey = \"{key}\"\noperator_token = \"t\"\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let url = format!("http://{}", elsewhere.local_addr().unwrap());
    let without_key = |args: &[&str], url: &str| {
        let mut command = stage.command(&[args, &["--retries", "0", "--timeout", "5"]].concat());
        ended(command.env_remove("SEALOG_API_KEY").env("SEALOG_URL", url).output().unwrap())
    };
    for args in [&["events", "list"][..], &["actions", "list"], &["admin", "tenant", "list"]] {
        let (code, _, noted) = without_key(args, &url);
        assert!(code == Some(2) && noted.contains("sealog login --url"), "{args:?}: {noted}");
        assert!(!noted.contains(key.as_str()), "{noted}");
        let (code, _, _) = without_key(&[args, &["--url", &url]].concat(), "");
        assert_eq!(code, Some(2), "{args:?}");
    }
    let waiting = elsewhere.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(waiting, Err(std::io::ErrorKind::WouldBlock), "nobody has connected");
    // The same service under another path, and a key that was given for this command.
    assert_eq!(without_key(&["events", "list"], &format!("http://{address}/v1")).0, Some(0));
    let mut given = stage.command(&["events", "list", "--url", &url, "--retries", "0", "--timeout", "1"]);
    assert_eq!(given.output().unwrap().status.code(), Some(5));
}

#[test]
fn an_idempotency_key_that_no_request_can_have_is_refused_before_anything_is_kept() {
    let stage = Stage::new();
    let long = "k".repeat(256);
    for key in ["", "a\nb", "a b", "\u{7f}", "ü", &long] {
        let (code, said, noted) = stage.run(&["log", "user.login", "--idempotency-key", key]);
        assert!(code == Some(2) && noted.contains("1 to 255 characters"), "{key:?}: {noted}");
        assert_eq!(said, "", "{key:?}");
    }
    let (code, _, noted) = stage.run(&["log", "user.login", "--idempotency-key", &long[1..]]);
    assert_eq!((code, noted.as_str()), (Some(0), ""), "nothing waits in the spool");
    assert_eq!(stage.events().len(), 1);
}

#[test]
fn a_chain_is_verified_in_windows_and_a_broken_one_ends_with_10() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(2500)).0, Some(0));
    let (code, said, _) = stage.run(&["verify", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        (&report["valid"], &report["checked"], &report["windows"]),
        (&Value::from(true), &Value::from(2500), &Value::from(3))
    );
    let (_, said, _) = stage.run(&["verify", "--from", "1000", "--to", "2000"]);
    assert!(said.contains("1001 of 1001 events valid, #1000 to #2000, 2 windows"), "{said}");
    stage.stop();
    let path = stage.data.join("live/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"\"u1700\"").unwrap();
    bytes[at + 2] = b'2';
    std::fs::write(&path, &bytes).unwrap();
    stage.restart();
    let (code, said, noted) = stage.run(&["verify"]);
    assert_eq!(code, Some(10), "{noted}");
    assert!(said.starts_with("BROKEN at #"), "{said}");
    let (code, said, _) = stage.run(&["verify", "--all", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["valid"]), (Some(10), &Value::from(false)));
    assert!(report["broken_at"].as_u64().is_some_and(|at| (1601..=1701).contains(&at)), "{report}");
}

#[test]
fn new_events_are_shown_as_they_come() {
    let stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(30)).0, Some(0));
    let out = stage.home.join("tail");
    let mut command = stage.command(&["events", "tail", "-n", "2", "--json"]);
    let mut child = command.stdout(std::fs::File::create(&out).unwrap()).spawn().unwrap();
    let shown = || {
        let text = std::fs::read_to_string(&out).unwrap();
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["chain_seq"].as_u64().unwrap();
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(seq).collect::<Vec<_>>()
    };
    eventually("the last two are shown", || shown() == [29, 30]);
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(230)).0, Some(0));
    eventually("all new ones are shown, oldest first", || shown() == (29..=260).collect::<Vec<u64>>());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn actions_are_listed_and_explained() {
    let stage = Stage::new();
    let (code, said, _) = stage.run(&["actions", "list", "--framework", "gdpr"]);
    assert!(
        code == Some(0) && said.lines().all(|line| line.split('\t').nth(3).unwrap().contains("gdpr")),
        "{said}"
    );
    let (code, said, _) = ended(
        stage.command(&["actions", "show", "user.login"]).env_remove("SEALOG_API_KEY").output().unwrap(),
    );
    assert!(code == Some(0) && said.contains("category") && !said.contains("in the plan"), "{said}");
    let (_, said, _) = stage.run(&["actions", "show", "user.login", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["subscribed"], true);
}
