//! `sealog export` and `sealog import`.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::stage::*;
use sealog_testing::{eventually, worst};
use serde_json::Value;

fn put(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.path(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn an_export_has_every_event_as_the_api_has_it_oldest_first_and_appears_when_it_is_whole() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(730)).0, Some(0));
    let out = stage.path("out.ndjson");
    let (code, said, noted) = stage.run(&["export", "--output", &out]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(noted.contains("exported 730 events, #1 to #730"), "{noted}");
    let text = std::fs::read_to_string(&out).unwrap();
    let exported: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut listed = stage.events();
    listed.reverse();
    assert_eq!(exported, listed);
    assert!(text.contains("\"metadata\":{\"n\":17.0}"), "numbers as they were sent");
    // To standard output the same, and a part of it.
    assert_eq!(stage.run(&["export", "--quiet"]).1, text);
    let part = stage.run(&["export", "--from", "101", "--to", "350", "--in-flight", "1"]).1;
    assert_eq!(part.lines().collect::<Vec<_>>(), text.lines().skip(100).take(250).collect::<Vec<_>>());
    let one = stage.run(&["export", "--actor-id", "u17"]).1;
    assert_eq!(one.lines().collect::<Vec<_>>(), [text.lines().nth(17).unwrap()]);
    assert_eq!(stage.run(&["export", "--date-to", "2001-01-01"]).1, "");
    // A file that is there is not replaced by accident, nor by an export that fails.
    let (code, _, noted) = stage.run(&["export", "--output", &out]);
    assert!(code == Some(2) && noted.contains("--force"), "{noted}");
    stage.stop();
    assert_eq!(stage.run(&["export", "--output", &out, "--force", "--retries", "0"]).0, Some(5));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), text);
}

#[test]
fn csv_goes_out_and_comes_in_with_all_that_the_api_takes() {
    let stage = Stage::new();
    let event = r#"{"action":"document.shared","actor_id":"u, \"1\"","resource":"document/9","session_id":"s","metadata":{"n":1.0,"t":"a\nb"}}"#;
    assert_eq!(stage.piped(&["log", "--file", "-"], &format!("{event}\n")).0, Some(0));
    let out = stage.path("out.csv");
    assert_eq!(stage.run(&["export", "--format", "csv", "--output", &out]).0, Some(0));
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("chain_seq,log_id,timestamp,action,"), "{text}");
    let (code, _, noted) = stage.run(&["import", &out]);
    assert_eq!(code, Some(0), "{noted}");
    let events = stage.events();
    assert_eq!(events.len(), 2);
    for name in ["action", "actor_id", "resource", "session_id", "metadata"] {
        assert_eq!(events[0][name], events[1][name], "{name}");
    }
    assert_eq!(events[0]["ts_client"], events[1]["timestamp"]);
}

/// "Run the same command again" is what the command itself advises.
#[test]
fn rows_that_are_taken_the_second_time_are_stored_and_the_others_not_twice() {
    let stage = Stage::new();
    let row = |n: usize, action: &str| format!("{{\"action\":\"{action}\",\"actor_id\":\"u{n}\"}}\n");
    // The first of a batch, one within, and one in the next.
    let is_new = |n: usize| [0, 50, 120].contains(&n);
    let text: String =
        (0..130).map(|n| row(n, if is_new(n) { "invoice.paid" } else { "user.login" })).collect();
    let file = put(&stage, "in.ndjson", &text);
    let (code, _, noted) = stage.run(&["import", &file]);
    assert!(code == Some(6) && noted.contains("127 events stored, 3 rows rejected"), "{noted}");
    let (_, tenants, _) = stage.operate(&["admin", "tenant", "list"]);
    let tenant = tenants.split_whitespace().next().unwrap();
    let create = ["admin", "action", "create", "--tenant", tenant, "invoice.paid", "--category", "billing"];
    assert_eq!(stage.operate(&create).0, Some(0));
    for stored_before in [127, 130] {
        let (code, said, noted) = stage.run(&["import", &file, "--json"]);
        assert_eq!(code, Some(0), "{noted}");
        let done: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(done["stored_before"].as_u64().unwrap(), stored_before, "{done}");
        let mut found = actors(&stage);
        found.sort();
        let mut wanted: Vec<String> = (0..130).map(|n| format!("u{n}")).collect();
        wanted.sort();
        assert_eq!(found, wanted);
    }
}

#[test]
fn rows_that_are_not_taken_are_named_with_their_lines_and_the_others_are_stored_once() {
    let stage = Stage::new();
    let file = put(
        &stage,
        "in.csv",
        "when,what,actor_id,team\n2026-01-01T00:00:00Z,user.login,u1,blue\n,no.such,u2,\n,user.login,u3\n,user.logout,u4,\"red\ngreen\"\n",
    );
    let (report, rejects) = (stage.path("report"), stage.path("rejects"));
    let args = [
        "import",
        &file,
        "--map",
        "when=ts_client",
        "--map",
        "what=action",
        "--report",
        &report,
        "--rejects",
        &rejects,
    ];
    let (code, said, noted) = stage.run(&args);
    assert_eq!((code, said.as_str()), (Some(6), ""), "{noted}");
    assert!(noted.contains("line 3: action/invalid") && noted.contains("line 4: it has 3 values"), "{noted}");
    assert!(noted.contains("2 events stored, 2 rows rejected"), "{noted}");
    let rows: Vec<Value> = std::fs::read_to_string(&report)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let by_line = |line: u64| rows.iter().find(|row| row["line"] == line).unwrap();
    assert_eq!(by_line(3)["code"], "action/invalid");
    assert!(by_line(3)["request_id"].as_str().unwrap().starts_with("req_"));
    assert_eq!(by_line(4)["message"], "it has 3 values, but the header has 4");
    assert!(std::fs::read_to_string(&rejects).unwrap().contains("no.such"));
    assert_eq!(actors(&stage), ["u1", "u4"]);
    assert_eq!(stage.events()[0]["metadata"]["team"], "red\ngreen");
    // Again: nothing is stored twice.
    let (code, said, _) = stage.run(&[&args[..], &["--json"]].concat());
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &done["stored"], &done["stored_before"], &done["rejected"]),
        (Some(6), &0.into(), &2.into(), &2.into())
    );
    assert_eq!(stage.events().len(), 2);
}

#[test]
fn an_import_that_is_killed_goes_on_without_a_loss_or_a_double() {
    let mut stage = Stage::new();
    let file = put(&stage, "in.ndjson", &lines(6000));
    let state = stage.path("state");
    for round in 0..4 {
        let before = stage.events().len();
        let mut command = stage.command(&["import", &file, "--state", &state]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("some of it is stored", || {
            stage.events().len() > before + 300 * round || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        if round == 1 {
            // Also without what was kept, within a day.
            std::fs::remove_file(&state).unwrap();
        }
    }
    let (code, _, noted) = stage.run(&["import", &file, "--state", &state]);
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(actors(&stage), expected(6000));
    // With the state nobody has to be asked any more, and another file is not taken for this one.
    stage.stop();
    let (code, _, noted) = stage.run(&["import", &file, "--state", &state]);
    assert!(code == Some(0) && noted.contains("0 events stored, 6000 already stored before"), "{noted}");
    let other = put(&stage, "other.ndjson", &lines(5999));
    let (code, _, noted) = stage.run(&["import", &other, "--state", &state]);
    assert!(code == Some(2) && noted.contains("does not match the state"), "{noted}");
    let (code, _, noted) = stage.run(&["import", &other, "--retries", "0"]);
    assert!(code == Some(5) && noted.contains("run the same command again"), "{noted}");
}

#[test]
fn an_import_that_goes_on_has_each_row_that_was_not_taken_once_and_ends_with_6() {
    let mut stage = Stage::new();
    let mut rows: Vec<String> = lines(150).lines().map(str::to_owned).collect();
    rows[9] = r#"{"action":"no.such","actor_id":"first"}"#.into();
    rows[11] = "not JSON".into();
    let file = put(&stage, "in.ndjson", &(rows.join("\n") + "\n"));
    let (state, report, rejects) = (stage.path("state"), stage.path("report"), stage.path("rejects"));
    let args =
        ["import", &file, "--state", &state, "--report", &report, "--rejects", &rejects, "--retries", "0"];
    let reported = || {
        let text = std::fs::read_to_string(&report).unwrap();
        let line = |row: &str| serde_json::from_str::<Value>(row).unwrap()["line"].as_u64().unwrap();
        let mut numbers: Vec<u64> = text.lines().map(line).collect();
        numbers.sort_unstable();
        numbers
    };
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(6) && noted.contains("148 events stored, 2 rows"), "{noted}");
    assert_eq!(reported(), [10, 12]);
    // The file grows, and the service is away: what was refused before stays, and what comes after is not
    // told before its batch is done.
    rows.extend(lines(120).lines().map(str::to_owned));
    rows[155] = "not JSON either".into();
    rows[157] = r#"{"action":"no.such","actor_id":"second"}"#.into();
    put(&stage, "in.ndjson", &(rows.join("\n") + "\n"));
    stage.stop();
    assert_eq!(stage.run(&args).0, Some(5));
    assert_eq!(reported(), [10, 12]);
    stage.restart();
    let (code, _, noted) = stage.run(&args);
    let expected = "118 events stored, 148 already stored before, 4 rows rejected";
    assert!(code == Some(6) && noted.contains(expected), "{noted}");
    // Nothing is left to do, and that some rows were rejected is still true.
    let (code, said, _) = stage.run(&[&args[..], &["--json"]].concat());
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &done["stored"], &done["stored_before"], &done["rejected"]),
        (Some(6), &0.into(), &266.into(), &4.into())
    );
    assert_eq!(reported(), [10, 12, 156, 158]);
    let rejected = std::fs::read_to_string(&rejects).unwrap();
    assert_eq!(rejected.lines().collect::<Vec<_>>(), [rows[9].as_str(), rows[157].as_str()]);
    assert_eq!(stage.events().len(), 266);
}

#[test]
fn the_file_that_is_read_is_never_the_one_that_rejects_are_written_to() {
    let stage = Stage::new();
    let text = "{\"action\":\"no.such\"}\n";
    let file = put(&stage, "in.ndjson", text);
    let (link, symlink) = (stage.path("link"), stage.path("symlink"));
    std::fs::hard_link(&file, &link).unwrap();
    std::os::unix::fs::symlink(&file, &symlink).unwrap();
    for same in [&file, &link, &symlink] {
        for args in [
            ["import", &file, "--rejects", same],
            ["import", &file, "--report", same],
            ["import", "-", "--rejects", same],
            ["log", "--file=-", "--rejects", same],
        ] {
            let mut command = stage.command(&args);
            let (code, _, noted) =
                crate::support::ended(command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap());
            assert!(code == Some(2) && noted.contains("is the input file"), "{args:?}: {noted}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{args:?}");
        }
    }
    let other = stage.path("other");
    assert_eq!(stage.run(&["import", &file, "--rejects", &other]).0, Some(6));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
}

#[test]
fn an_export_that_misses_events_says_so_and_ends_with_1() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(300)).0, Some(0));
    stage.stop();
    let log = stage.data.join("live/00000001.log");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(6).position(|window| window == b"\"u150\"").unwrap();
    bytes[at + 2] = b'9';
    std::fs::write(&log, &bytes).unwrap();
    stage.restart();
    let out = stage.path("out");
    let (code, said, noted) = stage.run(&["export", "--quiet", "--json", "--output", &out]);
    let done: Value = serde_json::from_str(&said).unwrap();
    let (missing, events) = (done["missing"].as_u64().unwrap(), done["events"].as_u64().unwrap());
    assert!(missing > 0 && missing + events == 300, "{done}");
    assert_eq!(code, Some(1));
    assert!(noted.contains(&format!("{missing} events are missing")), "{noted}");
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count() as u64, events);
}

#[test]
fn cloudevents_are_imported_by_their_attributes() {
    let stage = Stage::new();
    let text = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"org.example.signed-in","subject":"session/5","authid":"u1","time":"2026-01-01T00:00:00Z","data":{"n":1.0}}
{"specversion":"1.0","id":"2","source":"/shop"}
"#;
    let file = put(&stage, "in.json", text);
    let args = ["import", &file, "--from", "cloudevents", "--map", "org.example.signed-in=user.login"];
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(6) && noted.contains("line 2: type must be a string"), "{noted}");
    let event = &stage.events()[0];
    assert_eq!(
        (&event["action"], &event["resource"], &event["actor_id"]),
        (&"user.login".into(), &"session/5".into(), &"u1".into())
    );
    assert_eq!(
        event["metadata"],
        serde_json::json!({ "n": 1.0, "cloudevent": { "id": "1", "source": "/shop", "type": "org.example.signed-in" } })
    );
    let (code, said, _) = stage.run(&[&args[..], &["--dry-run"]].concat());
    assert!(code == Some(6) && said.starts_with(r#"{"action":"user.login","#), "{said}");
    assert_eq!(stage.events().len(), 1);
}

#[test]
fn a_cloudevent_is_the_same_event_whether_it_is_imported_or_sent_to_the_adapter() {
    let stage = Stage::new();
    let text = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"dev.sealog.document.shared","subject":"document/9","authid":"u1","authtype":"user","auditseverity":"warning","auditsession":"s","time":"2026-01-01T00:00:00Z","data":{"n":1.0,"big":12345678901234567890}}"#;
    let authorization = format!("Bearer {}", stage.key);
    let headers =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/cloudevents+json")];
    let (status, body) = stage.server().request("POST", "/ingest/cloudevents", &headers, text);
    assert_eq!(status, 202, "{body}");
    // Spaced otherwise, it is still the same one, and its batch has the same key.
    let spaced = text.replace("\":", "\" : ");
    for (input, stored) in [(text, "1 events stored"), (&spaced, "0 events stored, 1 already stored before")]
    {
        let (code, _, noted) = stage.piped(&["import", "-", "--from", "cloudevents"], &format!("{input}\n"));
        assert!(code == Some(0) && noted.contains(stored), "{noted}");
    }
    let mut events = stage.events();
    assert_eq!(events.len(), 2);
    for event in &mut events {
        for own in ["log_id", "timestamp", "chain_seq", "prev_hash", "hash"] {
            assert!(event.as_object_mut().unwrap().remove(own).is_some(), "{own}");
        }
    }
    assert_eq!(events[0], events[1]);
    assert_eq!(events[0]["actor_type"], "user");
}

#[test]
fn a_file_or_a_format_that_does_not_fit_has_an_error_that_says_what_to_do() {
    let stage = Stage::new();
    let csv = put(&stage, "in.csv", "who,what\nu1,user.login\n");
    let empty = put(&stage, "empty.csv", "");
    let binary = stage.path("binary.csv");
    std::fs::write(&binary, b"\xff\xfe,\x00\n\x01,\x02\n").unwrap();
    let newer = put(&stage, "newer", r#"{"sealog_import":2,"line":1,"digest":""}"#);
    let home = stage.home.to_str().unwrap();
    for (args, said) in [
        (&["import", "/no/such/file"][..], "give a file that you can read, or - for standard input"),
        (&["import", home], "is a directory"),
        (&["import", &csv], "--map COLUMN=action"),
        (&["import", &csv, "--from", "xml"], "ndjson, csv, cloudevents"),
        (&["import", &csv, "--map", "nobody=action"], "the header has who, what"),
        (&["import", &csv, "--map", "what=verb"], "use action, actor_id"),
        (&["import", &csv, "--delimiter", "ab"], "one character"),
        (&["import", &csv, "--map", "what"], "COLUMN=FIELD"),
        (&["import", &csv, "--from", "cloudevents", "--map", "what"], "TYPE=ACTION"),
        (&["import", &csv, "--from", "ndjson", "--map", "what=action"], "--from csv and --from cloudevents"),
        (&["import", &empty], "the first row of a CSV file names the columns"),
        (&["import", "-", "--from", "csv"], "standard input is empty"),
        (&["import", &binary], "give the format with --from"),
        (&["import", &csv, "--map", "what=action", "--state", home], "give another file with --state"),
        (&["import", &csv, "--map", "what=action", "--state", &csv], "or remove it to start over"),
        (
            &["import", &csv, "--map", "what=action", "--state", &newer],
            "use that version, or give another file",
        ),
        (&["import", &csv, "--map", "what=action", "--rejects", home], "give another file"),
        (&["import", &csv, "--from", "ndjson", "--set", "action=x"], "--from csv"),
        (&["import", &csv, "--map", "what=action", "--report", "/no/such/dir/x"], "cannot write"),
        (&["export", "--format", "xml"], "ndjson, csv"),
        (&["export", "--from", "5", "--to", "4"], "--to must not be less"),
        (&["export", "--output", "/no/such/dir/x"], "give another file"),
        (&["export", "--output", home], "give a file in it"),
        (&["export", "--output", home, "--force"], "give a file in it"),
        (&["export", "--unknown"], "unexpected argument"),
        (&["follow", "--format", "xml"], "json"),
        (&["follow", "--output", "/no/such/dir/x"], "cannot write"),
        (&["follow", "--unknown"], "unexpected argument"),
        (&["verify", "--report", "/no/such/dir/x"], "cannot write"),
        (&["verify", "--data", home], "there is no store in"),
        (&["verify", "--data", &csv], "there is no store in"),
        (&["man", "nothing"], "choose from"),
        (&["man", "--dir", "/no/such/dir"], "give an existing directory with --dir"),
        (&["config", "print", "--config", "/no/such/file"], "--config or SEALOG_CONFIG names"),
        (&["config", "print", "--config", home], "--config or SEALOG_CONFIG names"),
        (&["completions", "tcsh"], "bash"),
    ] {
        let (code, out, noted) = stage.run(args);
        assert!(matches!(code, Some(2 | 4)) && noted.contains(said), "{args:?}: {code:?} {noted}");
        assert_eq!(out, "", "{args:?}");
    }
    let (code, _, noted) = stage.run(&["import", "/proc/self/mem"]);
    assert!(code == Some(1) && noted.contains("cannot read the rest of the file"), "{noted}");
    std::fs::set_permissions(&csv, std::fs::Permissions::from_mode(0o000)).unwrap();
    if let Some((code, _, noted)) = stage.unprivileged(&["import", &csv]) {
        assert!(code == Some(2) && noted.contains("Permission denied"), "{noted}");
        assert!(noted.contains("give a file that you can read"), "{noted}");
    }
    // A file of the wrong kind has no event in it, and an empty one has none either, which is no error.
    let (code, _, noted) = stage.run(&["import", &binary, "--from", "ndjson"]);
    assert!(
        code == Some(6) && noted.contains("line 1: it is not UTF-8: each line must be a JSON event"),
        "{noted}"
    );
    let (code, _, noted) = stage.run(&["import", "-"]);
    assert!(code == Some(0) && noted.contains("0 events stored, 0 rows rejected"), "{noted}");
    assert_eq!(stage.events().len(), 0);
}

#[test]
fn the_worst_events_go_through_the_command_line_and_come_back() {
    let stage = Stage::new();
    let worst = worst::worst_events("usr_1");
    let sent: String = worst.iter().map(|(_, body)| format!("{body}\n")).collect();
    let (code, _, noted) = stage.piped(&["log", "--file", "-"], &sent);
    assert_eq!(code, Some(0), "{noted}");
    let (code, exported, noted) = stage.run(&["export"]);
    assert_eq!((code, exported.lines().count()), (Some(0), worst.len()), "{noted}");
    for (line, (name, body)) in exported.lines().zip(&worst) {
        let metadata = body.split_once("\"metadata\":").unwrap().1;
        let is_there = line.contains(metadata.strip_suffix('}').unwrap());
        assert!(is_there || *name == "one name many times", "{name}");
    }
    let (code, listed, noted) = stage.run(&["events", "list", "--json", "--limit", "100"]);
    assert_eq!((code, listed.matches("\"user.login\"").count()), (Some(0), worst.len()), "{noted}");
    assert_eq!(stage.run(&["events", "list"]).0, Some(0));
    for format in ["csv", "ndjson"] {
        let out = stage.path(&format!("out.{format}"));
        assert_eq!(stage.run(&["export", "--format", format, "--output", &out]).0, Some(0));
        let (code, _, noted) = stage.run(&["import", &out]);
        assert_eq!(code, Some(0), "{format}: {noted}");
    }
    let (code, said, noted) = stage.run(&["verify"]);
    assert_eq!(code, Some(0), "{said} {noted}");
}
