//! Backups that are made, shared, listed, streamed and restored.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sealog_core::id::Mode;
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_testing::*;
use serde_json::Value;

use super::{Stage, chains, ended, heads};
use crate::support::{first_key, sealog, serve};

#[test]
fn a_backup_under_load_is_restored_verified_and_has_everything_that_was_acknowledged_before_it() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let (key, address) = (first_key(&stage.data()), server.address.clone());
    let (enough, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = {
        let (enough, acked, key) = (Arc::clone(&enough), Arc::clone(&acked), key.clone());
        std::thread::spawn(move || {
            while !enough.load(Ordering::SeqCst) {
                let authorization = format!("Bearer {key}");
                let headers = [("Authorization", authorization.as_str())];
                let (status, _) =
                    http::request(&address, "POST", "/v1/events", &headers, crate::support::LOGIN);
                acked.fetch_add(usize::from(status == 202), Ordering::SeqCst);
            }
        })
    };
    let mut before = 0;
    for round in 1..=3 {
        eventually("events come", || acked.load(Ordering::SeqCst) >= 20 * round);
        before = acked.load(Ordering::SeqCst);
        assert_eq!(stage.create()["faults"], serde_json::json!([]));
    }
    enough.store(true, Ordering::SeqCst);
    load.join().unwrap();
    server.await_drained();
    let (_, verified) = server.get(&key, "/v1/events/verify");
    server.stop();
    let (code, said, error) = stage.backup(&["verify", "--all"], false);
    assert_eq!((code, said.matches(": complete").count()), (Some(0), 3), "{said}{error}");
    let (code, said, error) = stage.restore("restored", &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    let (old, new) = (heads(&stage.data()), heads(&stage.path("restored")));
    assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>());
    assert!(new.iter().all(|(chain, head)| head.chain_seq <= old[chain].chain_seq));
    let events = new.iter().find(|(chain, _)| !chain.is_system()).unwrap().1.chain_seq;
    assert!(events >= before as u64, "{events} {before} {verified}");

    // It goes on, with the keys that it had, and says that it was restored.
    let server = serve(&stage.path("restored"));
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true"#), "{body}");
    assert_eq!(server.post(&key).0, 202);
    server.await_drained();
    server.stop();
    assert!(super::rollback::restored_events(&stage.path("restored")).len() == 1);
}

#[test]
fn a_second_backup_copies_what_is_new_and_shares_the_rest() {
    let stage = Stage::new();
    stage.fill(&chains(), 20);
    let first = stage.create();
    let files = |stage: &Stage| stage.files("live").len() + stage.files("test").len();
    let segments = files(&stage);
    assert!(segments > 6, "{segments}");
    assert_eq!(first["copied_segments"], segments);
    // Nothing has happened: a start of the store begins a segment, and that is all.
    let second = stage.create();
    assert!(second["copied_bytes"].as_u64().unwrap() <= 2 * 128, "{second}");
    stage.fill(&chains()[..1], 5);
    let third = stage.create();
    let copied = third["copied_bytes"].as_u64().unwrap();
    assert!(copied > 0 && copied < first["copied_bytes"].as_u64().unwrap() / 2, "{first} {third}");
    assert_eq!(third["events"], first["events"].as_u64().unwrap() + 250);
    let (code, said, _) = stage.backup(&["list", "--json"], false);
    assert_eq!((code, said.lines().count()), (Some(0), 3), "{said}");
    // A pipe gets a line for each, with tabs and without headings.
    let (code, said, noted) = stage.backup(&["list"], false);
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((code, noted.as_str(), rows.len()), (Some(0), "", 3), "{said}");
    assert_eq!((rows[2][0], rows[2].len()), (third["id"].as_str().unwrap(), 6), "{said}");
    assert_eq!(rows[2][2], third["events"].to_string(), "{said}");
    assert_eq!(stage.backup(&["verify", "--all"], false).0, Some(0));
    // Each of them can be restored, and has what it had.
    for made in [&first, &third] {
        let id = made["id"].as_str().unwrap();
        let (code, _, error) =
            stage.restore(id, &["--backup", id, "--accept-rollback", "--reason", "the disk is gone"]);
        assert_eq!(code, Some(0), "{error}");
        let restored = heads(&stage.path(id));
        let events: u64 = chains().iter().map(|chain| restored[chain].chain_seq).sum();
        assert_eq!(events, made["events"].as_u64().unwrap());
    }
    // Nobody but the owner reads any of it.
    assert!(owners_alone(&stage.backups()) > segments);
    assert!(owners_alone(&stage.path(first["id"].as_str().unwrap())) > segments);
}

/// Every file and directory is for its owner only; how many files.
fn owners_alone(path: &std::path::Path) -> usize {
    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
    if path.is_file() {
        assert_eq!(mode, 0o600, "{}", path.display());
        return 1;
    }
    assert_eq!(mode, 0o700, "{}", path.display());
    std::fs::read_dir(path).unwrap().map(|entry| owners_alone(&entry.unwrap().path())).sum()
}

#[test]
fn the_newest_backup_is_that_with_the_highest_number_also_behind_a_million() {
    let stage = Stage::new();
    for number in [999_999, 1_000_000] {
        stage.fill(&chains()[..1], 1);
        stage.create();
        // As that many backups before it would leave the directory.
        let path = stage
            .files("backups")
            .into_iter()
            .find(|file| !file.to_string_lossy().contains("-20260101T"))
            .unwrap();
        let id = format!("{number}-20260101T000000Z");
        super::damage::forge_file(&path, |manifest| {
            manifest["number"] = number.into();
            manifest["id"] = id.clone().into();
        });
        std::fs::rename(&path, path.with_file_name(format!("{id}.json"))).unwrap();
    }
    let (code, said, _) = stage.backup(&["list", "--json"], false);
    let listed: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, listed.len()), (Some(0), 2), "{said}");
    assert_eq!(listed[1]["id"], "1000000-20260101T000000Z");
    // The older one would be a rollback.
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
    assert_eq!(stage.create()["id"].as_str().unwrap().split('-').next(), Some("1000001"));
}

#[test]
fn a_stream_is_a_whole_backup_and_part_of_one_is_refused() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    let made =
        sealog().args(["backup", "create", "-", "--fast", "--data-dir"]).arg(stage.data()).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    let restore = |bytes: &[u8], to: &str| {
        let mut command = sealog();
        command.args(["restore", "--from", "-", "--to"]).arg(stage.path(to));
        feed(command, bytes)
    };
    let (code, _, error) = restore(&made.stdout, "whole");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(heads(&stage.path("whole")), heads(&stage.data()));
    for (name, end) in
        [("part", made.stdout.len() / 2), ("no-manifest", made.stdout.len() - 4096), ("nothing", 0)]
    {
        let (code, _, error) = restore(&made.stdout[..end], name);
        assert_eq!(code, Some(10), "{name} {error}");
        assert_eq!(std::fs::read_dir(stage.path(name)).unwrap().count(), 0, "{name}: nothing is left behind");
    }
    // Any tar can unpack it, and the directory is one of backups.
    std::fs::create_dir(stage.backups()).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg("-").arg("-C").arg(stage.backups());
    assert_eq!(feed(tar, &made.stdout).0, Some(0));
    assert_eq!(stage.verify().0, Some(0));
    let mut full = sealog();
    full.args(["backup", "create", "-", "--data-dir"]).arg(stage.data());
    full.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let (code, _, error) = ended(full.stderr(Stdio::piped()).output().unwrap());
    assert!(code == Some(1) && error.contains("No space left"), "{code:?} {error}");
}

/// Runs a command with this on its standard input.
pub fn feed(mut command: Command, bytes: &[u8]) -> super::Ended {
    use std::io::Write;
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that has seen enough may close it.
    let _ = stdin.write_all(bytes);
    drop(stdin);
    ended(child.wait_with_output().unwrap())
}

#[test]
fn test_events_that_were_dropped_stay_dropped_and_their_chain_goes_on() {
    let stage = Stage::new();
    let test = chain(1, 1, Mode::Test);
    stage.fill(&[test], 30);
    assert_eq!(stage.create()["faults"], serde_json::json!([]));
    let store = stage.open_small();
    // Index files come a moment after their segments, and only indexed segments are dropped.
    let far = u64::MAX >> 8;
    eventually("a segment is dropped", || wait(store.drop_test_events(far)).unwrap().events > 0);
    let first_seq = wait(store.head(test)).unwrap().first_seq();
    drop(store);
    assert!(first_seq > 1);
    stage.fill(&[test], 5);
    let second = stage.create();
    assert_eq!(second["faults"], serde_json::json!([]));
    assert_eq!(stage.backup(&["verify", "--all"], false).0, Some(0));
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    let store = EmbeddedStore::open(&stage.path("restored"), &Default::default()).unwrap();
    let head = wait(store.head(test)).unwrap();
    assert!(head.first_seq() >= first_seq && head.durable.chain_seq == 35 * 50, "{head:?}");
    assert!(verify(&store, test).broken.is_none());
    append(&store, test, vec![login("next")]);
}

#[test]
fn one_process_at_a_time_writes_backups_into_a_directory_or_restores_into_one() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    stage.create();
    let lock = |path: &std::path::Path| {
        let lock = std::fs::File::open(path).unwrap();
        lock.lock().unwrap();
        lock
    };
    // As another backup has it.
    let backing_up = lock(&stage.backups());
    let (code, _, error) = stage.backup(&["create"], true);
    assert!(code == Some(5) && error.contains("another backup is in progress here, or a prune"), "{error}");
    drop(backing_up);
    // As another restore has it: while it looks at the directory or has the store open, and in between.
    let target = stage.path("restored");
    std::fs::create_dir(&target).unwrap();
    let begun = lock(&target);
    let (code, _, error) = stage.restore("restored", &[]);
    assert!(code == Some(5) && error.contains("another process uses this directory"), "{error}");
    drop(begun);
    std::fs::write(target.join("RESTORING"), "sealog restore 1\n").unwrap();
    std::fs::write(target.join("control.db"), "of the other one").unwrap();
    let under_way = lock(&target.join("RESTORING"));
    let (code, _, error) = stage.restore("restored", &[]);
    assert!(code == Some(5) && error.contains("another process uses this directory"), "{error}");
    assert_eq!(std::fs::read(target.join("control.db")).unwrap(), b"of the other one");
    drop(under_way);
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&target), heads(&stage.data()));
}

#[test]
fn what_cannot_be_meant_is_refused_and_says_what_to_do() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    let said = |args: &[&str]| {
        let (code, _, error) = ended(sealog().args(args).output().unwrap());
        (code, error)
    };
    let (data, backups) = (stage.data().display().to_string(), stage.backups().display().to_string());
    let others = stage.path("data/live").display().to_string();
    let nowhere = stage.path("nowhere").display().to_string();
    let elsewhere = stage.path("elsewhere").display().to_string();
    for (args, code, with) in [
        (vec!["backup", "verify", &backups], 2, "there are no backups here"),
        (vec!["backup", "create", &data, "--data-dir", &data], 2, "a directory of their own"),
        (vec!["backup", "create", &others, "--data-dir", &data], 2, "has other files"),
        (vec!["backup", "create", &backups, "--data-dir", &nowhere], 2, "there is no store"),
        (vec!["backup", "create", &backups, "--store", "postgres://nobody@127.0.0.1:1/x"], 2, "database"),
        (vec!["backup", "create"], 2, "DIR"),
        (vec!["backup", "create", &backups, "--listen", "nowhere"], 2, "listen must be"),
        (vec!["backup", "heads", &backups, "--data-dir", &data], 2, "--store"),
        (
            vec!["backup", "heads", &backups, "--store", "postgres://nobody@127.0.0.1:1/x"],
            5,
            "cannot open the store",
        ),
        (vec!["backup", "list", &nowhere], 2, "there are no backups here"),
        (vec!["backup", "prune", &nowhere, "--keep-daily", "1"], 2, "there are no backups here"),
        (vec!["backup", "prune", &backups], 2, "--keep-hourly"),
        (vec!["backup", "prune", &backups, "--keep-daily", "0"], 2, "at least one --keep flag"),
        (vec!["backup", "prune", &backups, "--keep-daily", "-1"], 2, "--keep-daily"),
        (vec!["restore", "--from", &backups, "--to", &data], 2, "not empty"),
        (vec!["restore", "--from", &nowhere, "--to", &elsewhere], 2, "there are no backups here"),
        (vec!["restore", "--from", &nowhere, "--to", &elsewhere, "--receipt", &nowhere], 2, "a receipt is"),
        (vec!["restore", "--from", &nowhere, "--to", &elsewhere, "--old-data", &nowhere], 2, "--old-data"),
        (vec!["restore", "check", "--data-dir", &data], 2, "--store"),
        (vec!["restore", "--from", &backups], 2, "--to"),
        (vec!["backup", "create", &backups, "--no-such-flag"], 2, "--no-such-flag"),
    ] {
        let (ended, error) = said(&args);
        assert!(ended == Some(code) && error.contains(with), "{args:?} {ended:?} {error}");
    }
    stage.create();
    assert_eq!(said(&["backup", "verify", &backups, "--backup", "x"]).0, Some(4));
    let args = ["restore", "--from", &backups, "--to", &elsewhere, "--backup", "x"];
    assert_eq!(said(&args).0, Some(4), "there is no such backup");
    // Backups of another store do not go into the same directory.
    let other = Stage::new();
    other.fill(&chains()[..1], 1);
    let other = other.data().display().to_string();
    let (code, error) = said(&["backup", "create", &backups, "--data-dir", &other]);
    assert!(code == Some(2) && error.contains("another store"), "{error}");
    for command in [
        &["backup", "create"][..],
        &["backup", "verify"],
        &["backup", "list"],
        &["backup", "prune"],
        &["backup", "heads"],
        &["restore"],
        &["restore", "check"],
    ] {
        let help = sealog().args(command).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("Exit codes") && help.contains("--json"), "{command:?} {help}");
    }
    let _: Value = stage.create();
}

#[test]
fn the_data_of_every_earlier_build_is_backed_up_and_restored() {
    for build in fixture::BUILDS {
        for name in ["stopped", "killed"] {
            let fixture = fixture::Fixture::load(build, name);
            let unpacked = fixture.unpacked(&format!("{name}.tar.gz"));
            let stage = Stage::new();
            let moved = Command::new("cp").arg("-r").arg(unpacked.path()).arg(stage.data()).status();
            assert!(moved.unwrap().success());
            assert_eq!(stage.create()["faults"], serde_json::json!([]), "{build} {name}");
            assert_eq!(stage.verify().0, Some(0), "{build} {name}");
            assert_eq!(stage.restore("restored", &[]).0, Some(0), "{build} {name}");
            let restored = heads(&stage.path("restored"));
            for (chain, chain_seq, hash, _) in fixture.chains() {
                assert_eq!(
                    (restored[&chain].chain_seq, &*restored[&chain].hash.to_string()),
                    (chain_seq, hash)
                );
            }
        }
    }
}

#[test]
fn the_commands_of_the_operating_guide_run_as_they_stand_there() {
    let stage = Stage::new();
    stage.fill(&chains(), 2);
    let blocks = all_documented("operating.md", "## Backup and restore");
    assert_eq!(blocks.len(), 3);
    let said: String = blocks.iter().map(|block| shell(&stage, block)).collect();
    assert!(said.contains("complete") && said.contains("1 backups stay"), "{said}");
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
}

/// The first block of commands in a section of a page of docs/.
pub fn documented(page: &str, section: &str) -> String {
    all_documented(page, section).swap_remove(0)
}

/// All blocks of commands of a section, but for those below a heading of their own.
fn all_documented(page: &str, section: &str) -> Vec<String> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join(page)).unwrap();
    let rest = text.split_once(&format!("\n{section}\n")).expect("the section is there").1;
    let rest = rest.split("\n### ").next().unwrap().split("\n## ").next().unwrap();
    let blocks = rest.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    blocks.map(|block| block.trim().to_owned()).collect()
}

/// Runs commands as somebody at a shell does who has the program in the path; what they said.
pub fn shell(stage: &Stage, commands: &str) -> String {
    let bin = std::path::Path::new(crate::support::SEALOG).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut bash = crate::support::clean(Command::new("bash"));
    bash.args(["-euo", "pipefail", "-c", commands]).current_dir(stage.path("")).env("PATH", path);
    let (code, said, error) = ended(bash.output().unwrap());
    assert_eq!(code, Some(0), "{commands}\n{said}\n{error}");
    said
}

/// Issue 23: each with its bytes, also where the backup comes as one stream.
#[test]
fn the_worst_events_are_in_a_backup_and_in_what_is_restored_of_it() {
    let stage = Stage::new();
    let worst = worst::worst_events("usr_1");
    let store = EmbeddedStore::open(&stage.data(), &Options::default()).unwrap();
    for (chain, (_, body)) in chains().into_iter().cycle().zip(&worst) {
        append(&store, chain, vec![draft(body)]);
    }
    drop(store);
    let events = |data: &std::path::Path| {
        let store = EmbeddedStore::open(data, &Options::default()).unwrap();
        chains().map(|chain| {
            let items = range(&store, chain, 1, u64::MAX, 16 << 20);
            items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>()
        })
    };
    let before = events(&stage.data());
    assert_eq!(before.iter().map(Vec::len).sum::<usize>(), worst.len());
    assert_eq!(stage.create()["faults"], serde_json::json!([]));
    let (code, said, error) = stage.verify();
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    let (code, said, error) = stage.restore("restored", &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    assert!(events(&stage.path("restored")) == before);
    let mut stream = sealog();
    let stream =
        stream.args(["backup", "create", "-", "--fast", "--data-dir"]).arg(stage.data()).output().unwrap();
    assert_eq!(stream.status.code(), Some(0), "{}", String::from_utf8_lossy(&stream.stderr));
    let mut command = sealog();
    command.args(["restore", "--from", "-", "--to"]).arg(stage.path("from-stream"));
    let (code, said, error) = feed(command, &stream.stdout);
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(events(&stage.path("from-stream")) == before);
}
