//! `sealog check` against everything that keeps a server from starting: what it calls a failure is what
//! `sealog serve` refuses, in the same words.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::*;
use sealog_testing::mmdb;
use sealog_testing::mounted::Mounted;
use sealog_testing::postgres;
use serde_json::Value;

/// State and detail of one check, and how the command ended.
#[track_caller]
fn checked(mut command: Command, name: &str) -> (Option<i32>, String, String) {
    let (code, said, noted) = ended(command.output().unwrap());
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{noted}"));
    let row = report["checks"].as_array().unwrap().iter().find(|row| row["check"] == name);
    let row = row.unwrap_or_else(|| panic!("there is no check {name}: {said}"));
    let fails = report["checks"].as_array().unwrap().iter().any(|row| row["state"] == "FAILS");
    assert_eq!((code, &report["ok"]), (Some(i32::from(fails)), &Value::from(!fails)), "{said}");
    (code, row["state"].as_str().unwrap().to_owned(), row["detail"].as_str().unwrap().to_owned())
}

/// Looks at a data directory.
fn checking(mut command: Command, data: &Path) -> Command {
    command.args(["check", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command
}

fn check(data: &Path, name: &str) -> (Option<i32>, String, String) {
    checked(checking(sealog(), data), name)
}

/// The check fails, and the server ends for the reason that it gives.
#[track_caller]
fn assert_refused(data: &Path, env: &[(&str, &str)], name: &str, with: &str) {
    let (code, state, detail) = checked(with_env(checking(sealog(), data), env), name);
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
    assert!(detail.contains(with), "{detail}");
    let (code, _, said) = ended(with_env(serving(for_a_minute(), data), env).output().unwrap());
    assert!(matches!(code, Some(1 | 2)), "the server starts all the same: {code:?} {said}");
    // Of a database the check says its version first.
    let cause =
        detail.split_once(": ").filter(|_| detail.starts_with("PostgreSQL")).map_or(&*detail, |at| at.1);
    assert!(said.contains(cause), "{cause}\n{said}");
}

/// The program, which is ended after a minute if it has not ended by itself.
fn for_a_minute() -> Command {
    let mut command = clean(Command::new("timeout"));
    command.args(["60", SEALOG]);
    command
}

fn with_env(mut command: Command, env: &[(&str, &str)]) -> Command {
    command.envs(env.iter().copied());
    command
}

/// Names and lengths of all files beneath a directory.
fn listed(dir: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(listed(&path));
        } else {
            found.push((path.display().to_string(), path.metadata().unwrap().len()));
        }
    }
    found.sort();
    found
}

#[test]
fn the_directory_of_a_demo_and_half_a_restore_are_what_the_server_refuses() {
    let (_dir, data) = data_dir();
    serve(&data).stop();
    assert_eq!(check(&data, "store").1, "ok");
    let before = listed(&data);
    fs::write(data.join("DEMO"), "sealog demo 1\nready\n").unwrap();
    assert_refused(&data, &[], "data directory", "is the directory of a demo");
    fs::remove_file(data.join("DEMO")).unwrap();
    fs::write(data.join("RESTORING"), "sealog restore 1\n").unwrap();
    assert_refused(&data, &[], "store", "did not finish; run `sealog restore` again");
    fs::remove_file(data.join("RESTORING")).unwrap();
    fs::write(data.join("FORMAT"), "sealog embedded 99\n").unwrap();
    assert_refused(&data, &[], "store", "sealog embedded 99");
    fs::write(data.join("FORMAT"), "sealog embedded 1\n").unwrap();
    assert_eq!((check(&data, "store").1.as_str(), listed(&data)), ("ok", before), "and nothing was changed");
}

fn python(program: &str, argument: &Path) -> bool {
    Command::new("python3").args(["-c", program]).arg(argument).status().unwrap().success()
}

#[test]
fn control_data_of_a_newer_version_is_what_the_server_refuses() {
    let (_dir, data) = data_dir();
    serve(&data).stop();
    // A server that ends leaves the file whole, or a write-ahead log beside it.
    let whole = "import sqlite3, sys\n\
                 db = sqlite3.connect(sys.argv[1])\n\
                 db.execute('PRAGMA wal_checkpoint(TRUNCATE)')\n\
                 db.close()\n";
    assert!(python(whole, &data.join("control.db")));
    let file = fs::OpenOptions::new().read(true).write(true).open(data.join("control.db")).unwrap();
    let mut known = [0; 4];
    file.read_exact_at(&mut known, 60).unwrap();
    file.write_all_at(&99_i32.to_be_bytes(), 60).unwrap();
    assert_refused(&data, &[], "store", "control.db version 99");
    // One whose tables are yet to be made is brought up to date by the next start.
    file.write_all_at(&(i32::from_be_bytes(known) - 1).to_be_bytes(), 60).unwrap();
    let (code, state, detail) = check(&data, "store");
    assert_eq!((code, &*state), (Some(0), "warning"), "{detail}");
    file.write_all_at(&known, 60).unwrap();
    assert_eq!(check(&data, "store").1, "ok");

    // What a program that was killed has left in the write-ahead log counts as well.
    let leaves = "import os, sqlite3, sys\n\
                  db = sqlite3.connect(sys.argv[1])\n\
                  db.execute('PRAGMA user_version = 98')\n\
                  os._exit(0)\n";
    assert!(python(leaves, &data.join("control.db")));
    assert!(data.join("control.db-wal").metadata().unwrap().len() > 0);
    assert_refused(&data, &[], "store", "control.db version 98");
}

#[test]
fn a_killed_server_leaves_a_store_that_another_one_would_start_on() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    signal(server.pid(), "-KILL");
    server.ended();
    assert!(data.join("control.db-wal").metadata().unwrap().len() > 0, "the log of changes is still there");
    let before = listed(&data);
    assert_eq!(check(&data, "store").1, "ok");
    assert_eq!(listed(&data), before);
    serve(&data).stop();
}

#[test]
fn settings_of_a_database_that_lose_events_are_what_the_server_refuses_wherever_they_are_set() {
    let database = postgres::cluster().database();
    let (_dir, data) = data_dir();
    let url = database.url();
    let env = [("SEALOG_STORE", &*url)];
    let name = &database.name;
    database.sql(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    assert_refused(&data, &env, "store", "synchronous_commit off");
    let unsafe_env = [("SEALOG_STORE", &*url), ("SEALOG_ALLOW_UNSAFE_STORAGE", "true")];
    let (code, _, detail) = checked(with_env(checking(sealog(), &data), &unsafe_env), "store");
    assert_eq!(code, Some(0), "{detail}");
    database.sql(&format!("ALTER DATABASE {name} RESET synchronous_commit"));
    let (code, state, _) = checked(with_env(checking(sealog(), &data), &env), "store");
    assert_eq!((code, &*state), (Some(0), "warning"), "the schema is yet to be made");
    let other = postgres::Cluster::start("full_page_writes = off");
    assert_refused(&data, &[("SEALOG_STORE", &*other.url("postgres"))], "store", "full_page_writes off");
}

#[test]
fn another_version_of_any_schema_is_what_the_server_refuses() {
    let database = postgres::cluster().database();
    let (_dir, data) = data_dir();
    let url = database.url();
    let env = [("SEALOG_STORE", &*url)];
    start(with_env(serving(sealog(), &data), &env)).stop();
    assert_eq!(checked(with_env(checking(sealog(), &data), &env), "store").1, "ok");
    let role = format!("guest_{}", database.name);
    database.sql(&format!("CREATE ROLE {role} LOGIN"));
    let guest = url.replace("owner@", &format!("{role}@"));
    assert_ne!(guest, url);
    let as_guest = [("SEALOG_STORE", &*guest)];
    for schema in ["sealog", "sealog_control", "sealog_trees", "sealog_log"] {
        database.sql(&format!(
            "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
        ));
    }
    for schema in ["sealog", "sealog_control", "sealog_trees", "sealog_log"] {
        database.sql(&format!("INSERT INTO {schema}.migrations (version) VALUES (999)"));
        assert_refused(&data, &env, "store", "unknown version 999");
        database.sql(&format!("DELETE FROM {schema}.migrations WHERE version = 999"));
        // None that this role may make.
        let newest = format!("SELECT max(version) FROM {schema}.migrations");
        let newest = database.sql(&newest).trim().to_owned();
        database.sql(&format!("DELETE FROM {schema}.migrations WHERE version = {newest}"));
        assert_refused(
            &data,
            &as_guest,
            "store",
            &format!("this program needs {newest}; run `sealog migrate`"),
        );
        database.sql(&format!("INSERT INTO {schema}.migrations (version) VALUES ({newest})"));
    }
    assert_eq!(checked(with_env(checking(sealog(), &data), &env), "store").1, "ok");
}

#[test]
fn memory_is_no_disk_and_who_allows_it_is_warned() {
    let memory = Path::new("/dev/shm");
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(memory).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&kind).trim(), "tmpfs", "the test needs a file system in memory");
    let dir = tempfile::tempdir_in(memory).unwrap();
    let data = dir.path().join("data");
    assert_refused(&data, &[], "file system", "tmpfs (memory)");
    let allowed = [("SEALOG_ALLOW_UNSAFE_STORAGE", "true")];
    let (_, state, _) = checked(with_env(checking(sealog(), &data), &allowed), "file system");
    assert_eq!(state, "warning");
    // A node of a database keeps no events there.
    let database = [("SEALOG_STORE", "postgres://nobody@127.0.0.1:1/x")];
    let (_, state, _) = checked(with_env(checking(sealog(), &data), &database), "file system");
    assert_eq!(state, "warning");
}

#[test]
fn a_disk_that_is_almost_full_is_a_warning_and_one_that_takes_no_events_is_a_failure() {
    let (_dir, data) = data_dir();
    assert_eq!(check(&data, "room").1, "ok", "the disk of the tests has room");
    let Some(disk) = Mounted::new(64) else { return };
    let data = disk.at.join("data");
    disk.fill("filler", 20 << 20);
    assert_eq!(check(&data, "room").1, "warning");
    disk.fill("more", 4 << 20);
    let (code, state, detail) = check(&data, "room");
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
}

/// As somebody to whom the rights of files apply: root may do everything.
fn as_somebody(mut command: Command) -> Command {
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn a_directory_that_the_server_may_not_write_to_fails_and_one_that_others_can_read_is_a_warning() {
    let (dir, data) = data_dir();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(dir.path(), 0o755);
    fs::create_dir(&data).unwrap();
    open(&data, 0o500);
    let somebody = || {
        let mut command = as_somebody(sealog());
        command.current_dir(dir.path());
        command
    };
    let (code, state, detail) = checked(checking(somebody(), &data), "data directory");
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
    assert!(detail.contains("Permission denied"), "{detail}");
    let mut server = as_somebody(for_a_minute());
    server.current_dir(dir.path());
    let (code, _, said) = ended(serving(server, &data).output().unwrap());
    assert!(code == Some(1) && said.contains("Permission denied"), "{said}");
    // And one that is to be made where nothing may be made.
    let (_, state, _) = checked(checking(somebody(), &data.join("deeper")), "data directory");
    assert_eq!(state, "FAILS");
    open(&data, 0o755);
    let (_, state, detail) = check(&data, "data directory");
    assert!(state == "warning" && detail.contains("755"), "{detail}");
    open(&data, 0o700);
    assert_eq!(check(&data, "data directory").1, "ok");
}

/// With another clock.
fn at(time: &str) -> Command {
    let mut command = clean(Command::new("faketime"));
    command.arg(time).arg(SEALOG).env("TZ", "UTC");
    command
}

#[test]
fn a_clock_that_is_years_behind_fails_and_one_behind_the_files_is_a_warning() {
    let (_dir, data) = data_dir();
    let (code, state, detail) = checked(checking(at("2001-02-03 04:05:06"), &data), "clock");
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
    assert!(detail.starts_with("2001-02-03T"), "{detail}");
    serve(&data).stop();
    assert_eq!(check(&data, "clock").1, "ok");
    let segment = fs::OpenOptions::new().write(true).open(data.join("live/00000001.log")).unwrap();
    segment.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    let (code, state, detail) = check(&data, "clock");
    assert_eq!((code, &*state), (Some(0), "warning"), "{detail}");
}

#[test]
fn few_open_files_are_a_warning() {
    let (_dir, data) = data_dir();
    let limited = |limit: &str| {
        let mut command = clean(Command::new("sh"));
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh", SEALOG]);
        checked(checking(command, &data), "open files")
    };
    let (code, state, detail) = limited("4095");
    assert_eq!((code, &*state, &*detail), (Some(0), "warning", "at most 4095"));
    assert_eq!(limited("4096").1, "ok");
}

#[test]
fn a_database_of_places_that_is_three_months_old_is_a_warning() {
    let (dir, data) = data_dir();
    let places = dir.path().join("city.mmdb");
    let berlin = serde_json::json!({ "country": { "iso_code": "DE" } });
    fs::write(&places, mmdb::bytes(6, &[("203.0.113.0/24", berlin)])).unwrap();
    // It says of itself that it was built on 15 November 2026.
    for (time, wanted) in [("2027-02-13 00:00:00", "ok"), ("2027-02-14 12:00:00", "warning")] {
        let mut command = checking(at(time), &data);
        command.env("SEALOG_GEOIP_DB", &places);
        let (code, state, detail) = checked(command, "geoip");
        assert_eq!((code, &*state), (Some(0), wanted), "{time}: {detail}");
        assert!(detail.contains("2026-11-15"), "{detail}");
    }
}

#[test]
fn the_receiver_of_traces_is_named_and_one_that_cannot_be_used_is_refused() {
    let (_dir, data) = data_dir();
    let asked = |endpoint: &str| {
        checked(with_env(checking(sealog(), &data), &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]), "traces")
    };
    let (code, state, _) = asked("");
    assert_eq!((code, &*state), (Some(0), "off"));
    let (code, state, detail) = asked("http://127.0.0.1:4318");
    assert_eq!((code, &*state), (Some(0), "ok"));
    assert!(detail.contains("http://127.0.0.1:4318"), "{detail}");
    let (code, state, detail) = asked("nonsense");
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
}

#[test]
fn a_certificate_that_has_ended_fails_though_a_server_starts_with_it() {
    let (dir, data) = data_dir();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    sealog_testing::certificate::make_ended(&cert, &key);
    let env = [("SEALOG_TLS_CERT", cert.to_str().unwrap()), ("SEALOG_TLS_KEY", key.to_str().unwrap())];
    let mut command = with_env(checking(sealog(), &data), &env);
    let (code, state, detail) = checked(with_env(checking(sealog(), &data), &env), "certificate");
    assert_eq!((code, &*state), (Some(1), "FAILS"), "{detail}");
    assert!(detail.contains("expired: valid until 2020-01-02"), "{detail}");
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(report["would_start"], true, "a server of the same settings goes on");
}

#[test]
fn a_settings_file_with_secrets_that_everybody_can_read_is_a_warning_that_names_them() {
    let (dir, data) = data_dir();
    let file = dir.path().join("sealog.toml");
    let check = |text: &str, mode| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let env = [("SEALOG_CONFIG", file.to_str().unwrap())];
        let (code, state, detail) = checked(with_env(checking(sealog(), &data), &env), "settings file");
        assert_eq!(code, Some(0), "{detail}");
        (state, detail)
    };
    let secret = "operator_token = \"hunter2hunter2hunter2\"\n[smtp]\nurl = \"smtps://u:hunter2@mail.example\"\nfrom = \"a@example.org\"\n";
    let (state, detail) = check(secret, 0o644);
    assert_eq!(state, "warning", "{detail}");
    assert!(
        detail.contains("which contains operator_token, smtp.url") && !detail.contains("hunter2"),
        "{detail}"
    );
    assert_eq!(check(secret, 0o640).0, "ok");
    assert_eq!(check("log_level = \"info\"\n", 0o644).0, "ok", "it has no secrets");
}
