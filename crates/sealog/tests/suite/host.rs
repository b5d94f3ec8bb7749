//! The commands of the host: `check`, `config print`, `doctor`, `verify --data`, `healthcheck`, `mail test`,
//! `geoip test`, `completions`, `man`.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::support::stage::*;
use crate::support::*;
use sealog_testing::mmdb;
use sealog_testing::smtp::MailPort;
use serde_json::Value;

fn run_in(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    ended(sealog().current_dir(dir).args(args).envs(env.iter().copied()).output().unwrap())
}

fn states(json: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(json).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    report["checks"].as_array().unwrap().iter().map(|row| (text(row, "check"), text(row, "state"))).collect()
}

fn state_of(json: &str, check: &str) -> String {
    let states = states(json);
    states.iter().find(|(name, _)| name == check).unwrap_or_else(|| panic!("{check}: {states:?}")).1.clone()
}

#[test]
fn a_check_says_what_would_fail_at_start_and_changes_nothing() {
    let (dir, data) = data_dir();
    let data_text = data.to_str().unwrap();
    let check = |args: &[&str], env: &[(&str, &str)]| {
        run_in(dir.path(), &[&["check", "--json", "--data-dir", data_text][..], args].concat(), env)
    };
    let (code, said, noted) = check(&["--listen", "127.0.0.1:0"], &[]);
    assert_eq!(code, Some(0), "{said}{noted}");
    assert!(!data.exists(), "nothing was made");
    for (name, state) in [
        ("settings", "ok"),
        ("store", "ok"),
        ("mail", "off"),
        ("geoip", "off"),
        ("certificate", "off"),
        ("clock", "ok"),
    ] {
        assert_eq!(state_of(&said, name), state, "{said}");
    }
    let (code, said, _) = check(&[], &[("SEALOG_LISTEN", "here")]);
    assert_eq!((code, state_of(&said, "settings").as_str()), (Some(1), "FAILS"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said, _) = check(&["--listen", &address], &[]);
    assert_eq!((code, state_of(&said, "addresses").as_str()), (Some(1), "FAILS"));
    let (code, said, _) =
        check(&["--listen", "127.0.0.1:0"], &[("SEALOG_STORE", "postgres://u:hunter2@127.0.0.1:1/d")]);
    assert_eq!((code, state_of(&said, "store").as_str()), (Some(1), "FAILS"));
    assert!(!said.contains("hunter2"), "{said}");
    let mail = [("SEALOG_SMTP_URL", "smtp://127.0.0.1:1"), ("SEALOG_SMTP_FROM", "s@example.org")];
    let (code, said, _) = check(&["--listen", "127.0.0.1:0"], &mail);
    assert_eq!(
        (code, state_of(&said, "mail").as_str()),
        (Some(0), "warning"),
        "a server starts without mail"
    );
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("FORMAT"), "sealog embedded 99\n").unwrap();
    let (code, said, _) = check(&["--listen", "127.0.0.1:0"], &[]);
    assert_eq!((code, state_of(&said, "store").as_str()), (Some(1), "FAILS"));
    let (_, said, _) =
        run_in(dir.path(), &["check", "--data-dir", data_text, "--listen", "127.0.0.1:0"], &[]);
    assert!(said.contains("use the version that wrote it"), "{said}");
}

#[test]
fn a_check_beside_a_running_server_says_that_it_runs() {
    let stage = Stage::new();
    let data = stage.data.to_str().unwrap();
    let (code, said, _) =
        run_in(&stage.home, &["check", "--json", "--data-dir", data, "--listen", &stage.address], &[]);
    assert_eq!((code, state_of(&said, "store").as_str()), (Some(0), "warning"), "{said}");
    assert!(said.contains(&format!("process {}", stage.server().pid())), "{said}");
    assert_eq!(stage.run(&["log", "user.login"]).0, Some(0), "and leaves it alone");
}

#[test]
fn settings_are_printed_with_their_places_and_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("sealog.toml"), "operator_token = \"hunter2hunter2hunter2\"\n[limits]\nper_ip_rps = 7\n[plans.entry]\nevents_per_month = 5\n").unwrap();
    let env = [("SEALOG_STORE", "postgres://u:hunter2@db.example/d")];
    for flags in [&[][..], &["--redacted"], &["--json"]] {
        let (code, said, noted) = run_in(dir.path(), &[&["config", "print"][..], flags].concat(), &env);
        assert_eq!(code, Some(0), "{noted}");
        assert!(!said.contains("hunter2") && said.contains("db.example"), "{said}");
    }
    let (_, said, _) = run_in(dir.path(), &["config", "print"], &env);
    assert!(said.contains("per_ip_rps = 7  # sealog.toml"), "{said}");
    assert!(
        said.contains("# SEALOG_STORE")
            && said.contains("# default")
            && said.contains("events_per_month = 5"),
        "{said}"
    );
    // With its secrets it is a settings file that means the same.
    let (_, whole, _) = run_in(dir.path(), &["config", "print", "--show-secrets"], &env);
    assert!(whole.contains("hunter2"));
    let again = tempfile::tempdir().unwrap();
    std::fs::write(again.path().join("sealog.toml"), &whole).unwrap();
    let (code, said, noted) = run_in(again.path(), &["config", "print", "--show-secrets", "--json"], &[]);
    assert_eq!(code, Some(0), "{noted}");
    let (_, first, _) = run_in(dir.path(), &["config", "print", "--show-secrets", "--json"], &env);
    let values = |text: &str| {
        let settings: Value = serde_json::from_str(text).unwrap();
        settings
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, set)| (key.clone(), set["value"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&said), values(&first));
    assert_eq!(
        run_in(dir.path(), &["config", "print", "--listen", "here"], &env).0,
        Some(0),
        "what is wrong is shown, too"
    );
    assert_eq!(run_in(dir.path(), &["config", "print"], &[("SEALOG_LISTNE", "x")]).0, Some(2));
}

#[test]
fn a_stopped_store_is_verified_as_a_whole_and_damage_is_named() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(2500)).0, Some(0));
    let data = stage.data.to_str().unwrap().to_owned();
    let verify =
        |args: &[&str]| ended(sealog().args(["verify", "--data", &data]).args(args).output().unwrap());
    let (code, _, noted) = verify(&[]);
    assert!(
        code == Some(1) && noted.contains("stop the server") && noted.contains("sealog backup create"),
        "{noted}"
    );
    assert!(noted.contains(&format!("process id {}", stage.server().pid())), "{noted}");
    stage.server().await_drained();
    stage.stop();
    let report = stage.path("report");
    let (code, said, noted) = verify(&["--report", &report]);
    assert_eq!(code, Some(0), "{noted}");
    // The events of the first run are in the tenant's system chain.
    assert!(
        said.contains(&format!("{} of {0} events valid in 2 chains", 2500 + FIRST_RUN_REQUESTS)),
        "{said}"
    );
    let kept: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!((&kept["valid"], kept["chains"].as_array().unwrap().len()), (&Value::from(true), 2));
    let path = stage.data.join("live/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"\"u1700\"").unwrap();
    bytes[at + 2] = b'2';
    std::fs::write(&path, &bytes).unwrap();
    let (code, said, _) = verify(&["--json"]);
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &found["valid"]), (Some(10), &Value::from(false)));
    let broken: Vec<&Value> =
        found["chains"].as_array().unwrap().iter().filter(|chain| chain["valid"] == false).collect();
    assert!(
        broken.len() == 1 && broken[0]["broken_at"].as_u64().is_some_and(|at| (1601..=1701).contains(&at)),
        "{said}"
    );
    let (code, said, _) = verify(&[]);
    assert!(
        code == Some(10)
            && said.contains("BROKEN at #1701 of chain ")
            && said.contains("1 of 2 chains are broken"),
        "{said}"
    );
}

/// Empties the filter of idempotency keys in an index file, and makes all checksums fit: every key of the
/// segment is free again.
fn forge_keys(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let number = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
    };
    let entries = bytes[44..48].try_into().map(u32::from_le_bytes).unwrap() as usize / 40;
    // `docs/format.md`, section 5: kind 6.
    let mut entries_at = (0..entries).map(|entry| 64 + entry * 40);
    let entry = entries_at.find(|at| bytes[at + 2..at + 4] == [6, 0]).expect("events had keys");
    let (offset, length) = (number(&bytes, entry + 8), number(&bytes, entry + 16));
    bytes[offset..offset + length].fill(0);
    let checksum = crc32c::crc32c(&bytes[offset..offset + length]);
    bytes[entry + 24..entry + 28].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[64..64 + entries * 40]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_forged_index_is_named_although_no_chain_is_broken() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(300)).0, Some(0));
    stage.stop();
    stage.restart();
    stage.stop();
    let data = stage.data.to_str().unwrap().to_owned();
    let verify =
        |args: &[&str]| ended(sealog().args(["verify", "--data", &data]).args(args).output().unwrap());
    assert_eq!(verify(&[]).0, Some(0));
    forge_keys(&stage.data.join("live/00000001.idx"));
    let (code, said, _) = verify(&[]);
    assert!(
        said.contains(
            "DERIVED DATA: live log: the index of segment 1 does not match its events: idempotency keys"
        ),
        "{said}"
    );
    assert_eq!(code, Some(10));
    let (_, said, _) = verify(&["--json"]);
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&found["valid"], found["derived"].as_array().unwrap().len()), (&Value::from(false), 1));
    assert!(found["chains"].as_array().unwrap().iter().all(|chain| chain["valid"] == true), "{said}");
}

/// Runs a statement on the control data of a stopped store.
fn tamper(data: &Path, sql: &str) {
    let script = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as db: db.execute(sys.argv[2])";
    let mut command = std::process::Command::new("python3");
    let output = command.args(["-c", script]).arg(data.join("control.db")).arg(sql).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn control_data_that_was_edited_is_named_and_nothing_of_it_is_changed() {
    let mut stage = Stage::new();
    stage.server().await_drained();
    let data = stage.data.to_str().unwrap().to_owned();
    let verify = || ended(sealog().args(["verify", "--data", &data]).output().unwrap());
    stage.stop();
    let (code, said, noted) = verify();
    assert_eq!(code, Some(0), "{said}{noted}");
    assert!(!said.contains("not compared"), "{said}");
    for (sql, told) in [
        ("UPDATE memberships SET role = 'auditor'", "has the role auditor, but its record has owner"),
        ("UPDATE keys SET revoked_at_ms = 5 WHERE mode = 'live'", "is revoked without a record"),
        (
            "UPDATE system_projects SET project_id = x'00000000000080008000000000000001'",
            "no tenant refers to the system chain",
        ),
    ] {
        tamper(&stage.data, sql);
        let before = std::fs::read(stage.data.join("control.db")).unwrap();
        let (code, said, noted) = verify();
        assert_eq!(code, Some(10), "{sql}: {said}{noted}");
        assert!(said.contains("CONTROL DATA: ") && said.contains(told), "{sql}: {said}");
        assert_eq!(std::fs::read(stage.data.join("control.db")).unwrap(), before);
    }
}

/// ADR 45: a baseline at a start would cover what was edited while the server was stopped.
#[test]
fn no_start_seals_what_was_edited_while_the_server_was_stopped() {
    let mut stage = Stage::new();
    stage.server().await_drained();
    stage.stop();
    let data = stage.data.to_str().unwrap().to_owned();
    tamper(&stage.data, "UPDATE memberships SET role = 'auditor'");
    for start in 0..2 {
        stage.restart();
        stage.server().await_drained();
        stage.stop();
        let (code, said, noted) = ended(sealog().args(["verify", "--data", &data]).output().unwrap());
        let is_found = said.contains("has the role auditor, but its record has owner");
        assert!(code == Some(10) && is_found, "start {start}: {said}{noted}");
    }
}

/// Everything below a directory: what it is, its mode, when it was changed, and the bytes of files.
fn as_found(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).chain([folder]) {
            let about = std::fs::symlink_metadata(&path).unwrap();
            if about.is_dir() && !found.contains_key(&path) && path != *dir {
                folders.push(path.clone());
            }
            let bytes = if about.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            found.insert(path, (about.mode(), about.mtime(), about.mtime_nsec(), bytes));
        }
    }
    found
}

/// What a crash in the middle of the next group would leave in the last segment of the live log: half a frame
/// behind the last good one.
fn tear_the_tail(data: &Path) {
    let segments = std::fs::read_dir(data.join("live")).unwrap().map(|entry| entry.unwrap().path());
    let last = segments.filter(|path| path.extension().is_some_and(|x| x == "log")).max().unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    let frame = bytes.windows(4).rposition(|window| window == b"SLFR").unwrap();
    let length = u32::from_le_bytes(bytes[frame + 4..frame + 8].try_into().unwrap());
    let (end, half) = (frame + length as usize, b"SLFR\x40\x01\x00\x00half a frame");
    bytes[end..end + half.len()].copy_from_slice(half);
    std::fs::write(&last, bytes).unwrap();
}

/// Of all files, and of all directories down to this one.
fn set_modes(dir: &Path, files: u32, dirs: u32) {
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    // To look into it, whoever we are.
    set(dir, 0o700);
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { set_modes(&path, files, dirs) } else { set(&path, files) }
    }
    set(dir, dirs);
}

/// Verifies a directory where nothing can be written.
const MOUNTED: &str = r#"
    mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/x" 2>/dev/null || exit 99
    "$2" verify --data "$1"; echo "it ended with $?""#;

#[test]
fn a_verification_changes_nothing_and_takes_a_torn_tail_for_what_it_is() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(300)).0, Some(0));
    stage.stop();
    stage.restart();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(200)).0, Some(0));
    stage.server().await_drained();
    // Dropped is killed.
    stage.server = None;
    tear_the_tail(&stage.data);
    // What is derived is missing, and would be made again by a server.
    std::fs::remove_file(stage.data.join("live/00000001.idx")).unwrap();
    std::fs::remove_file(stage.data.join("index.salt")).unwrap();
    let before = as_found(&stage.data);
    let data = stage.data.to_str().unwrap().to_owned();
    let valid = format!("{} of {0} events valid in 2 chains", 500 + FIRST_RUN_REQUESTS);
    for _ in 0..2 {
        let (code, said, noted) = ended(sealog().args(["verify", "--data", &data]).output().unwrap());
        assert_eq!((code, noted.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains(&valid), "{said}");
        assert!(said.contains("an unfinished write, never acknowledged"), "{said}");
        assert!(!said.contains("BROKEN") && !said.contains("read-only"), "{said}");
    }
    let (code, said, _) = ended(sealog().args(["verify", "--data", &data, "--json"]).output().unwrap());
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &found["valid"]), (Some(0), &Value::from(true)));
    assert_eq!(found["findings"].as_array().unwrap().len(), 1, "{said}");
    assert_eq!(as_found(&stage.data), before);
    // The right to read is enough, and without it the message says whom to be.
    let verifying = || {
        let mut command = sealog();
        command.args(["verify", "--data", &data]);
        command
    };
    for (files, dirs, code, told) in
        [(0o400, 0o500, Some(0), valid.as_str()), (0o000, 0o000, Some(2), "run this as the user")]
    {
        set_modes(&stage.data, files, dirs);
        let ended = unprivileged(&verifying());
        set_modes(&stage.data, 0o600, 0o700);
        if let Some((found, said, noted)) = ended {
            assert!(found == code && (said.contains(told) || noted.contains(told)), "{said}{noted}");
        }
    }
    // Where nothing can be written at all, it is the same.
    let mut mounted = std::process::Command::new("unshare");
    let (_, said, noted) =
        ended(mounted.args(["--mount", "sh", "-c", MOUNTED, "sh", &data, SEALOG]).output().unwrap());
    if said.contains("it ended with") {
        assert!(said.contains(&valid) && said.contains("it ended with 0"), "{said}{noted}");
    } else {
        println!("left out: no directory can be mounted read-only here (root is needed): {noted}");
    }
    // And a server goes on from there.
    stage.restart();
    assert_eq!(stage.events().len(), 500);
    assert_eq!(stage.run(&["log", "user.login"]).0, Some(0));
}

#[test]
fn a_server_is_asked_for_its_health_with_0_and_1() {
    let mut stage = Stage::new();
    let url = format!("http://{}", stage.address);
    let check = |args: &[&str], env: &[(&str, &str)]| {
        run_in(&stage.home, &[&["healthcheck"][..], args].concat(), env)
    };
    assert_eq!(check(&["--url", &url], &[]), (Some(0), String::new(), "sealog: ready\n".into()));
    assert_eq!(
        check(&["--quiet"], &[("SEALOG_LISTEN", &stage.address)]),
        (Some(0), String::new(), String::new())
    );
    let (code, said, _) = check(&["--json", "--url", &url], &[]);
    assert_eq!((code, said.as_str()), (Some(0), "{\"ready\":true}\n"));
    let other = format!("{url}/docs");
    assert_eq!(check(&["--url", &other], &[]).0, Some(1), "another page is no health");
    stage.stop();
    let (code, _, noted) = run_in(&stage.home, &["healthcheck", "--url", &url], &[]);
    assert!(code == Some(1) && noted.contains("not ready"), "{noted}");
}

#[test]
fn a_bundle_for_support_has_no_secret_and_nothing_of_an_event_in_any_byte() {
    let stage = Stage::new();
    let secret_event = r#"{"action":"user.login","actor_id":"zz-actor-zz","resource":"zz-resource-zz","metadata":{"zz-name-zz":"zz-value-zz"}}"#;
    assert_eq!(stage.piped(&["log", "--file", "-"], &format!("{secret_event}\n")).0, Some(0));
    let made = stage.operate(&[
        "admin",
        "tenant",
        "create",
        "zz-tenant-zz",
        "--contact-email",
        "zz@zz-mail-zz.example",
    ]);
    assert_eq!(made.0, Some(0));
    let out = stage.path("bundle.tar");
    let env = [
        ("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN),
        ("SEALOG_SMTP_URL", "smtp://zz-user-zz:zz-password-zz@127.0.0.1:1"),
        ("SEALOG_SMTP_FROM", "log@example.org"),
        ("SEALOG_API_KEY", stage.key.as_str()),
        ("SEALOG_LISTEN", stage.address.as_str()),
    ];
    let data = stage.data.to_str().unwrap();
    let (code, said, noted) = run_in(&stage.home, &["doctor", "--output", &out, "--data-dir", data], &env);
    assert_eq!((code, said.trim()), (Some(0), out.as_str()), "{noted}");
    let bundle = std::fs::read(&out).unwrap();
    let first_run = std::fs::read_to_string(stage.data.join("first-run.txt")).unwrap();
    let first_run =
        first_run.split_whitespace().filter(|word| word.starts_with("at_") || word.contains("token="));
    let claim: Vec<String> =
        first_run.map(|word| word.rsplit(['=', '/']).next().unwrap().to_owned()).collect();
    assert!(claim.len() >= 2, "the keys of the first run are looked for");
    let hidden = ["zz-", OPERATOR_TOKEN, &stage.key, "u1@", "owner@localhost"];
    for hidden in hidden.into_iter().chain(claim.iter().map(String::as_str)) {
        let found = bundle.windows(hidden.len()).position(|window| window == hidden.as_bytes());
        assert_eq!(
            found,
            None,
            "{hidden:?} is in it: {:?}",
            found.map(|at| String::from_utf8_lossy(&bundle[at.saturating_sub(200)..at + 50]).into_owned())
        );
    }
    let unpacked =
        std::process::Command::new("tar").args(["-xf", &out]).current_dir(&stage.home).status().unwrap();
    assert!(unpacked.success());
    let part = |name: &str| std::fs::read_to_string(stage.home.join("sealog-doctor").join(name)).unwrap();
    assert!(part("versions.json").contains(env!("CARGO_PKG_VERSION")));
    assert!(part("check.json").contains("\"would_start\""));
    assert!(part("settings.toml").contains("smtp"));
    assert!(part("files.txt").contains("live/00000001.log\t"));
    assert!(part("state.json").contains("\"findings\": []"), "{}", part("state.json"));
    assert!(part("metrics.txt").contains("sealog_build_info"), "{}", part("metrics.txt"));
    assert!(part("ready.json").contains("true"));
    let (code, _, noted) = run_in(&stage.home, &["doctor", "--output", &out, "--data-dir", data], &env);
    assert!(code == Some(2) && noted.contains("--output"), "a file that is there stays: {noted}");
}

#[test]
fn a_bundle_of_an_installation_that_cannot_start_says_why() {
    let (dir, data) = data_dir();
    let args = ["doctor", "--output", "-", "--data-dir", data.to_str().unwrap(), "--listen", "here"];
    let (code, said, noted) = run_in(dir.path(), &args, &[]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(said.contains("listen must be an address and port"), "{said}");
}

#[test]
fn a_test_mail_leaves_by_the_settings_or_the_servers_word_is_shown() {
    let (dir, port) = (tempfile::tempdir().unwrap(), MailPort::hold());
    let mut server = port.start();
    let url = port.url();
    let env = [("SEALOG_SMTP_URL", url.as_str()), ("SEALOG_SMTP_FROM", "Sealog <log@example.org>")];
    let (code, said, noted) = run_in(dir.path(), &["mail", "test", "me@example.org", "--json"], &env);
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["sent"], true);
    // The mail server has answered; what it says of it may still be on its way here.
    sealog_testing::eventually("the mail is seen", || server.taken("me@example.org").len() == 1);
    server.order("answer 550 no such mailbox");
    let (code, _, noted) = run_in(dir.path(), &["mail", "test", "you@example.org"], &env);
    assert!(code == Some(1) && noted.contains("no such mailbox"), "{noted}");
    let (code, _, noted) = run_in(dir.path(), &["mail", "test", "nobody"], &env);
    assert!(code == Some(1) && noted.contains("not a valid e-mail address"), "{noted}");
    let (code, _, noted) = run_in(dir.path(), &["mail", "test", "me@example.org"], &[]);
    assert!(code == Some(2) && noted.contains("smtp.url"), "{noted}");
}

#[test]
fn completions_and_pages_for_man_know_every_command() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, said, _) = run_in(dir.path(), &["completions", shell], &[]);
        assert!(
            code == Some(0)
                && ["follow", "healthcheck", "accept-loss"].iter().all(|name| said.contains(name)),
            "{shell}"
        );
    }
    let script = dir.path().join("sealog.bash");
    std::fs::write(&script, run_in(dir.path(), &["completions", "bash"], &[]).1).unwrap();
    let syntax = std::process::Command::new("bash").arg("-n").arg(&script).status().unwrap();
    assert!(syntax.success());
    let pages = dir.path().to_str().unwrap();
    assert_eq!(run_in(dir.path(), &["man", "--dir", pages], &[]).0, Some(0));
    for name in ["sealog.1", "sealog-serve.1", "sealog-follow.1", "sealog-admin-key-create.1"] {
        let page = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(page.contains(".TH") && page.contains("SH NAME"), "{name}");
    }
    assert!(run_in(dir.path(), &["man", "admin", "key"], &[]).1.contains("sealog\\-admin\\-key"));
}

#[test]
fn an_address_is_looked_up_in_the_database_that_the_settings_name() {
    let dir = tempfile::tempdir().unwrap();
    let berlin =
        serde_json::json!({ "country": { "iso_code": "DE" }, "city": { "names": { "en": "Berlin" } } });
    std::fs::write(dir.path().join("city.mmdb"), mmdb::bytes(6, &[("203.0.113.0/24", berlin)])).unwrap();
    let env = [("SEALOG_GEOIP_DB", "city.mmdb")];
    let (code, said, _) = run_in(dir.path(), &["geoip", "test", "203.0.113.9"], &env);
    assert_eq!((code, said.as_str()), (Some(0), "203.0.113.9\tDE\tBerlin\n"));
    let (code, said, _) = run_in(dir.path(), &["geoip", "test", "192.0.2.1", "--json"], &env);
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &found["country"]), (Some(4), &Value::Null));
    assert_eq!(run_in(dir.path(), &["geoip", "test", "nowhere"], &env).0, Some(2));
    let (code, _, noted) = run_in(dir.path(), &["geoip", "test", "192.0.2.1"], &[]);
    assert!(code == Some(2) && noted.contains("geoip_db"), "{noted}");
}

#[test]
fn a_database_is_checked_and_verified_as_a_whole_too() {
    let database = sealog_testing::postgres::cluster().database();
    let (dir, data) = data_dir();
    let url = database.url();
    let env = [("SEALOG_STORE", url.as_str()), ("SEALOG_LIMITS_PER_IP_RPS", "0")];
    let data_text = data.to_str().unwrap();
    let args = ["check", "--json", "--listen", "127.0.0.1:0", "--data-dir", data_text];
    let (code, said, _) = run_in(dir.path(), &args, &env);
    assert_eq!(
        (code, state_of(&said, "store").as_str()),
        (Some(0), "warning"),
        "the schema is yet to be made: {said}"
    );
    assert_eq!(
        database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'sealog'").trim(),
        "0",
        "nothing was made"
    );
    let mut command = serving(sealog(), &data);
    command.envs(env);
    let server = start(command);
    let key = first_key(&data);
    let client = [("SEALOG_URL", &*format!("http://{}", server.address)), ("SEALOG_API_KEY", key.as_str())]
        .map(|(name, value)| (name, value.to_owned()));
    let client: Vec<(&str, &str)> = client.iter().map(|(name, value)| (*name, value.as_str())).collect();
    std::fs::write(dir.path().join("in.ndjson"), lines(230)).unwrap();
    assert_eq!(run_in(dir.path(), &["import", "in.ndjson"], &client).0, Some(0));
    assert_eq!(run_in(dir.path(), &["follow", "--output", "out", "--once"], &client).0, Some(0));
    assert_eq!(std::fs::read_to_string(dir.path().join("out")).unwrap().lines().count(), 230);
    let (code, said, _) = run_in(dir.path(), &args, &env);
    assert_eq!((code, state_of(&said, "store").as_str()), (Some(0), "ok"), "{said}");
    server.await_drained();
    let (code, said, noted) = run_in(dir.path(), &["verify", "--data", &url], &[]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(
        said.contains(&format!("{} of {0} events valid in 2 chains", 230 + FIRST_RUN_REQUESTS)),
        "{said}"
    );
    server.stop();
    assert_eq!(run_in(dir.path(), &["verify", "--data", &url], &[]).0, Some(0));
    database.sql("UPDATE sealog_control.memberships SET role = 'admin'");
    let (code, said, _) = run_in(dir.path(), &["verify", "--data", &url], &[]);
    assert!(code == Some(10) && said.contains("has the role admin, but its record has owner"), "{said}");
    database.sql("UPDATE sealog.events SET actor_id = 'u9' WHERE actor_id = 'u120'");
    let (code, said, _) = run_in(dir.path(), &["verify", "--data", &url], &[]);
    assert!(code == Some(10) && said.contains("BROKEN at #121 of chain "), "{said}");
}

#[test]
fn a_certificate_that_ends_soon_is_a_warning_and_one_that_is_none_would_fail() {
    let dir = tempfile::tempdir().unwrap();
    let env =
        [("SEALOG_TLS_CERT", "cert.pem"), ("SEALOG_TLS_KEY", "key.pem"), ("SEALOG_LISTEN", "127.0.0.1:0")];
    for (days, state) in [("2", "warning"), ("90", "ok")] {
        let made = std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", days, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(dir.path())
            .output()
            .expect("openssl is needed for the tests; scripts/setup installs what is missing");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (code, said, _) = run_in(dir.path(), &["check", "--json"], &env);
        assert_eq!((code, state_of(&said, "certificate").as_str()), (Some(0), state), "{said}");
    }
    std::fs::write(dir.path().join("cert.pem"), "broken").unwrap();
    let (code, said, _) = run_in(dir.path(), &["check", "--json"], &env);
    assert_eq!((code, state_of(&said, "settings").as_str()), (Some(1), "FAILS"), "{said}");
}
