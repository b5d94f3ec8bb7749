//! The signed log in copies of a store: each has it, none has a key, and its server signs nothing until it is
//! excluded that the source signed more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sealog_testing::*;
use serde_json::Value;

use super::kill::killed_after;
use super::replicate::Follower;
use super::{Ended, Stage, ended};
use crate::support::{Running, first_key, sealog, serving, start};
use crate::trust::{entries, keep_log, publish, quick, status, trust};

const TOKEN: &str = "the-operators-token";

/// A primary that publishes every second, with a state copy, and of which replicas may be made.
fn primary(stage: &Stage) -> Running {
    let mut command = serving(sealog(), &stage.data());
    command.args(["--trust-interval-s", "1", "--limits-per-ip-rps", "0", "--replication-enabled", "true"]);
    command.arg("--trust-state-copy").arg(state_copy(stage)).env("SEALOG_OPERATOR_TOKEN", TOKEN);
    start(command)
}

fn state_copy(stage: &Stage) -> PathBuf {
    stage.path("state-copy")
}

fn replicating(stage: &Stage, server: &Running) -> Command {
    let mut command = sealog();
    command.args(["replicate", "--from", &format!("http://{}", server.address), "--to"]);
    command.arg(stage.backups()).env("SEALOG_OPERATOR_TOKEN", TOKEN);
    command
}

fn replicate(stage: &Stage, server: &Running) {
    let (code, _, error) = ended(replicating(stage, server).arg("--once").output().unwrap());
    assert_eq!(code, Some(0), "{error}");
}

fn promote(stage: &Stage, to: &str, args: &[&str]) -> Ended {
    let mut command = sealog();
    command.arg("replicate").arg("--promote").arg(stage.path(to)).arg("--to").arg(stage.backups()).args(args);
    ended(command.output().unwrap())
}

/// Puts the keys of the primary into a store that was made of a copy.
fn bring_keys(stage: &Stage, to: &Path) {
    for name in ["log.key", "service.key"] {
        std::fs::copy(stage.data().join("trust").join(name), to.join("trust").join(name)).unwrap();
    }
}

/// A primary with events before and after its replica was brought up to it, which is down by now; its key.
fn lagging(stage: &Stage) -> String {
    let server = primary(stage);
    let key = first_key(&stage.data());
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    publish(&stage.data());
    replicate(stage, &server);
    assert_eq!(server.post(&key).0, 202);
    publish(&stage.data());
    server.stop();
    key
}

fn root_keys(data: &Path) -> BTreeSet<String> {
    let script = "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute('SELECT hex(project_id), number, hex(key) FROM salt_keys'): print(*row)";
    let output =
        Command::new("python3").args(["-c", script]).arg(data.join("trust/log.db")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_promoted_replica_that_lags_signs_nothing_until_the_missing_entries_are_there() {
    let stage = Stage::new();
    let key = lagging(&stage);
    let old = entries(&stage.data());
    let (code, said, error) = promote(&stage, "new", &[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("the server signs nothing yet"), "{said}");
    let new = stage.path("new");
    let copied = entries(&new);
    assert!(!copied.is_empty() && copied.len() < old.len() && old.starts_with(&copied), "{copied:?}");
    assert!(!new.join("trust/log.key").exists(), "no copy has a key");
    assert!(root_keys(&new).is_subset(&root_keys(&stage.data())) && !root_keys(&new).is_empty());

    // Without keys, and with them: a state copy that is not there proves nothing.
    let server = quick(&new, None);
    assert_eq!((status(&new, &[])["state"].as_str(), server.post(&key).0), (Some("no_key"), 202));
    server.stop();
    bring_keys(&stage, &new);
    let server = quick(&new, None);
    let looked = status(&new, &[]);
    assert_eq!((looked["state"].as_str(), server.post(&key).0), (Some("copied"), 202), "{looked}");
    assert!(looked["detail"].as_str().unwrap().contains("this store was promoted from the backup of"));
    let (code, body) = server.get(&key, "/readyz");
    assert!(code == 200 && body.contains("newer entries may have been signed"), "{body}");
    server.stop();
    assert_eq!(entries(&new), copied, "nothing was signed");
    // That of the old primary proves that more was signed.
    let server = quick(&new, Some(&state_copy(&stage)));
    assert_eq!((status(&new, &[])["state"].as_str(), server.post(&key).0), (Some("rolled_back"), 500));
    let accept = ["recover", "--nothing-newer", "--reason", "it was stopped"];
    let (code, _, error) = trust(&new, &accept, &[]);
    assert!(code == Some(1) && error.contains("the state copy says that"), "{error}");
    keep_log(&stage.data(), &stage.path("kept"));
    let kept = stage.path("kept");
    let from = ["recover", "--from", kept.to_str().unwrap(), "--reason", "host a burnt"];
    let (code, said, error) = trust(&new, &from, &[]);
    assert_eq!(code, Some(0), "{said}{error}");
    assert_eq!(server.post(&key).0, 202);
    publish(&new);
    server.stop();
    assert!(entries(&new).starts_with(&old), "one log, whichever server signed");
    // And the old one, should it come back, finds out that it is no longer the only one.
    let server = primary(&stage);
    assert_eq!(
        (status(&stage.data(), &[])["state"].as_str(), server.post(&key).0),
        (Some("rolled_back"), 500)
    );
    server.stop();
}

#[test]
fn a_promotion_with_the_old_data_takes_the_newer_log_and_signs_at_once() {
    let stage = Stage::new();
    let key = lagging(&stage);
    let (old, old_data) = (entries(&stage.data()), stage.data().to_str().unwrap().to_owned());
    let (code, said, error) = promote(&stage, "new", &["--old-data", &old_data, "--recover-tail", "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(said["signed_log"]["recovered"].as_u64() >= Some(1), "{said}");
    let new = stage.path("new");
    assert_eq!((entries(&new), root_keys(&new)), (old.clone(), root_keys(&stage.data())));
    bring_keys(&stage, &new);
    let server = quick(&new, Some(&state_copy(&stage)));
    assert_eq!(status(&new, &[])["state"], "signing");
    assert_eq!(server.post(&key).0, 202);
    publish(&new);
    assert_eq!(status(&new, &[])["findings_total"], 0);
    server.stop();
    let all = entries(&new);
    assert!(all.len() > old.len() && all.starts_with(&old));

    // Another log is not taken, and says nothing about the copy.
    let other = stage.path("other");
    assert!(Command::new("cp").arg("-a").args([stage.data(), other.clone()]).status().unwrap().success());
    std::fs::remove_dir_all(other.join("trust")).unwrap();
    let (code, _, error) = trust(&other, &["new-log", "--yes"], &[]);
    assert_eq!(code, Some(0), "{error}");
    let old_data = ["--old-data", other.to_str().unwrap(), "--recover-tail"];
    let (code, said, error) = promote(&stage, "from-other", &old_data);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("not taken from the old data directory"), "{said}");
    assert!(said.contains("the server signs nothing yet"), "{said}");
    let target = stage.path("from-other");
    bring_keys(&stage, &target);
    assert_eq!(status(&target, &[])["state"], "copied");
}

#[test]
fn a_restored_store_signs_once_its_state_copy_is_back_or_the_operator_answers_for_it() {
    let stage = Stage::new();
    let server = primary(&stage);
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    publish(&stage.data());
    server.stop();
    stage.create();
    for (target, with_copy) in [("first", true), ("second", false)] {
        let (code, said, error) = stage.restore(target, &[]);
        assert_eq!(code, Some(0), "{error}");
        assert!(said.contains("the server signs nothing yet"), "{said}");
        let data = stage.path(target);
        let before = entries(&data);
        bring_keys(&stage, &data);
        // A state copy of its own for each, since the other one goes on as well.
        let copy = stage.path(&format!("copy-of-{target}"));
        std::fs::copy(state_copy(&stage), &copy).unwrap();
        let server = quick(&data, with_copy.then_some(&*copy));
        if !with_copy {
            assert_eq!(status(&data, &[])["state"], "copied");
            for wrong in [&["recover", "--nothing-newer"][..], &["recover", "--reason", "moved"]] {
                assert_eq!(trust(&data, wrong, &[]).0, Some(2));
            }
            let accept = ["recover", "--nothing-newer", "--reason", "moved to host b"];
            let (code, _, error) = trust(&data, &accept, &[]);
            assert_eq!(code, Some(0), "{error}");
        }
        assert_eq!(status(&data, &[])["state"], "signing");
        publish(&data);
        server.stop();
        let after = entries(&data);
        assert!(after.starts_with(&before));
        let declared = after.iter().filter(|entry| entry.starts_with("sealog/restore/v1\n"));
        assert_eq!(declared.count(), usize::from(!with_copy));
    }
}

#[test]
fn a_replica_keeps_its_log_where_the_server_has_lost_it_and_refuses_another_one() {
    let stage = Stage::new();
    let server = primary(&stage);
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    publish(&stage.data());
    replicate(&stage, &server);
    server.stop();
    let log = |target: &str| {
        let (code, _, error) = promote(&stage, target, &[]);
        assert_eq!(code, Some(0), "{error}");
        entries(&stage.path(target))
    };
    let kept = log("first");
    assert!(!kept.is_empty());

    std::fs::remove_dir_all(stage.data().join("trust")).unwrap();
    let server = primary(&stage);
    assert_eq!(status(&stage.data(), &[])["state"], "lost");
    assert_eq!(server.post(&key).0, 202);
    replicate(&stage, &server);
    assert_eq!(log("second"), kept, "it is what the server needs");
    let (code, _, error) = trust(&stage.data(), &["new-log", "--yes"], &[]);
    assert_eq!(code, Some(0), "{error}");
    // Once the server has copied the new one.
    eventually("the replica refuses a log that is no continuation", || {
        let (code, _, error) = ended(replicating(&stage, &server).arg("--once").output().unwrap());
        assert!(matches!(code, Some(0 | 1)), "{error}");
        code == Some(1) && error.contains("is not a continuation of the one in this copy")
    });
    server.stop();
    assert_eq!(log("third"), kept);
}

#[test]
fn kill_9_of_a_replica_beside_snapshots_leaves_a_log_that_goes_on() {
    let stage = Stage::new();
    let server = primary(&stage);
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    publish(&stage.data());
    let mut dice = Dice::new(seed("kill_9_of_a_replica_beside_snapshots"));
    replicate(&stage, &server);
    for round in 0..rounds(6) {
        assert_eq!(server.post(&key).0, 202);
        if killed_after(replicating(&stage, &server), Duration::from_micros(dice.below(900_000))) {
            panic!("it goes on until it is stopped");
        }
        // Whatever is there can be promoted.
        let target = format!("new-{round}");
        let (code, _, error) = promote(&stage, &target, &[]);
        assert_eq!(code, Some(0), "{error}");
        let (copied, all) = (entries(&stage.path(&target)), entries(&stage.data()));
        assert!(!copied.is_empty() && all.starts_with(&copied), "{copied:?} {all:?}");
    }
    server.stop();
}

/// A log in a database, as text.
fn rows(database: &postgres::Database) -> String {
    let all = "SELECT string_agg(convert_from(entry, 'UTF8'), '' ORDER BY log, idx) FROM sealog_log.entries";
    database.sql(all)
}

#[test]
fn the_log_goes_into_a_database_and_back_and_is_followed_there() {
    let stage = Stage::new();
    let server = primary(&stage);
    let key = first_key(&stage.data());
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    publish(&stage.data());
    server.stop();
    let database = postgres::cluster().database();
    let copy = |from: &str, to: &str| {
        let (code, said, error) =
            ended(sealog().args(["copy", "--from", from, "--to", to]).output().unwrap());
        assert_eq!(code, Some(0), "{error}");
        said
    };
    let (data, url) = (stage.data().to_str().unwrap().to_owned(), database.url());
    let before = entries(&stage.data());
    let said = copy(&data, &url);
    assert!(said.contains(&format!("copied the signed log with {} new entries", before.len())), "{said}");
    assert_eq!(rows(&database).trim(), before.concat().trim());
    assert!(copy(&data, &url).contains("with 0 new entries"));

    // The server of the database has the keys and the state copy of the directory: it signs on.
    let keys = ["log.key", "service.key"].map(|name| stage.data().join("trust").join(name));
    let state_copy = state_copy(&stage);
    let environment = [
        ("SEALOG_STORE", url.as_str()),
        ("SEALOG_TRUST_LOG_KEY_FILE", keys[0].to_str().unwrap()),
        ("SEALOG_TRUST_SERVICE_KEY_FILE", keys[1].to_str().unwrap()),
        ("SEALOG_TRUST_STATE_COPY", state_copy.to_str().unwrap()),
        ("SEALOG_TRUST_INTERVAL_S", "1"),
    ];
    let node = stage.path("node");
    let mut command = serving(sealog(), &node);
    command.envs(environment);
    let server = start(command);
    assert_eq!(status(&node, &environment)["state"], "signing");
    let size = || status(&node, &environment)["signed_size"].as_u64().unwrap();
    let had = size();
    let followed = stage.path("followed");
    let mut following = sealog();
    following.args(["replicate", "--from", &url, "--to"]).arg(&followed).stderr(std::process::Stdio::null());
    let follower = Follower::start(following);
    assert_eq!(server.post(&key).0, 202);
    eventually("more is signed", || size() >= had + 2);
    let signed = usize::try_from(size()).unwrap();
    eventually("the copy follows", || {
        followed.join("trust/log.db").is_file() && entries(&followed).len() >= signed
    });
    drop(follower);
    server.stop();
    let (code, _, error) = ended(
        sealog().args(["replicate", "--once", "--from", &url, "--to"]).arg(&followed).output().unwrap(),
    );
    assert_eq!(code, Some(0), "{error}");
    let all = rows(&database);
    assert_eq!(entries(&followed).concat().trim(), all.trim());
    assert!(all.starts_with(before.concat().trim()));
    bring_keys(&stage, &followed);
    assert_eq!(status(&followed, &[])["state"], "copied");
    assert_eq!(status(&followed, &environment[3..])["state"], "signing");

    let back = stage.path("back");
    copy(&url, back.to_str().unwrap());
    assert_eq!(entries(&back).concat().trim(), all.trim());
    assert_eq!(root_keys(&back), root_keys(&followed));
}
