//! Trees in a data directory, and what a backup has to bring back so that they come out the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use sealog_testing::*;

use super::{Stage, ended};
use crate::support::{Running, first_key, sealog, serve, serving, start};

/// The rows of a database of the trees, as text.
fn rows(data: &Path, file: &str, sql: &str) -> String {
    let script =
        "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row)";
    let mut command = Command::new("python3");
    let output = command.args(["-c", script]).arg(data.join("trust").join(file)).arg(sql).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Root keys, by chain.
fn keys(data: &Path) -> String {
    let sql =
        "SELECT hex(tenant_id), hex(project_id), number, from_seq, hex(key) FROM salt_keys ORDER BY 1, 2, 3";
    rows(data, "log.db", sql)
}

/// Size, last event and right edge of the tree of every chain of a project, which others have no more of.
fn trees(data: &Path) -> String {
    rows(
        data,
        "trees.db",
        "SELECT hex(project_id), size, hex(hash), hex(peaks) FROM chains WHERE size >= 5 ORDER BY 1",
    )
}

/// Starts a server, whose first pass takes everything that is there, and stops it.
fn build(data: &Path, key: &str) {
    let server = serve(data);
    eventually("the trees are complete", || {
        let (_, text) = server.get(key, "/metrics");
        text.contains("\nsealog_tree_lag_seconds ") && text.contains("\nsealog_tree_lag_events 0\n")
    });
    let (_, text) = server.get(key, "/metrics");
    assert!(text.contains("\nsealog_tree_chains_stopped 0\n"), "{text}");
    server.stop();
}

#[test]
fn a_restored_store_has_the_root_keys_that_it_had_and_builds_the_same_trees() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    (0..20).for_each(|_| assert_eq!(server.post(&key).0, 202));
    server.stop();
    build(&stage.data(), &key);
    let (had_keys, had_trees) = (keys(&stage.data()), trees(&stage.data()));
    assert!(had_trees.contains(" 20 "), "{had_trees}");

    // Of a stopped store and of one that a server has open.
    let of_stopped = stage.create();
    let server = serve(&stage.data());
    let of_running = stage.create();
    server.stop();
    for (target, backup) in [("first", of_stopped), ("second", of_running)] {
        let (code, said, error) = stage.restore(target, &["--backup", backup["id"].as_str().unwrap()]);
        assert_eq!(code, Some(0), "{said}{error}");
        let restored = stage.path(target);
        assert!(!restored.join("trust/trees.db").exists(), "what is derived is in no backup");
        assert_eq!(keys(&restored), had_keys);
        build(&restored, &key);
        let of_project = had_trees.lines().find(|line| line.contains(" 20 ")).unwrap();
        assert!(trees(&restored).lines().any(|line| line == of_project), "{}", trees(&restored));
    }

    // Without its derived database, the store itself builds them again.
    std::fs::remove_file(stage.data().join("trust/trees.db")).unwrap();
    build(&stage.data(), &key);
    let of_project = had_trees.lines().find(|line| line.contains(" 20 ")).unwrap();
    assert!(trees(&stage.data()).lines().any(|line| line == of_project));
}

/// Files below a directory that have a text in them, also inside of others.
fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

const OPERATOR: &str = "the-operators-token";

/// A server of which a replica may be made.
fn serve_replicas(data: &Path) -> Running {
    let mut command = serving(sealog(), data);
    command.args(["--replication-enabled", "true"]).env("SEALOG_OPERATOR_TOKEN", OPERATOR);
    start(command)
}

#[test]
fn no_copy_of_a_store_has_a_key_that_signs_and_a_backup_says_so() {
    let stage = Stage::new();
    let server = serve_replicas(&stage.data());
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    let keys = ["log.key", "service.key"].map(|name| stage.data().join("trust").join(name));
    let private = "PRIVATE+KEY";
    assert_eq!(files_with(&stage.data(), private), keys, "and a store has them in these files alone");
    // A key that is being made has another name until its log has it.
    std::fs::copy(&keys[0], stage.data().join("trust/log.key.unfinished")).unwrap();

    let reminder = format!(
        "no backup contains the keys of the signed log: keep a copy of {} and {} apart from the backups",
        keys[0].display(),
        keys[1].display()
    );
    let (code, _, error) = stage.backup(&["create"], true);
    assert_eq!((code, error.matches(&reminder).count()), (Some(0), 1), "{error}");
    let (code, _, error) = stage.backup(&["create", "--quiet"], true);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let mut stream = sealog();
    stream.args(["backup", "create", "-", "--data-dir"]).arg(stage.data());
    let stream = stream.output().unwrap();
    assert!(stream.status.success() && String::from_utf8_lossy(&stream.stderr).contains(&reminder));
    std::fs::create_dir(stage.path("stream")).unwrap();
    std::fs::write(stage.path("stream/backup.tar"), &stream.stdout).unwrap();
    let mut replicate = sealog();
    replicate.args(["replicate", "--once", "--from", &format!("http://{}", server.address), "--to"]);
    replicate.arg(stage.path("replica")).env("SEALOG_OPERATOR_TOKEN", OPERATOR);
    let (code, _, error) = ended(replicate.output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    server.stop();
    let (code, _, error) = stage.restore("restored", &[]);
    assert_eq!(code, Some(0), "{error}");
    let mut promote = sealog();
    promote.arg("replicate").arg("--promote").arg(stage.path("promoted"));
    let (code, _, error) = ended(promote.arg("--to").arg(stage.path("replica")).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    // The roots of the salts are in the backup, so that it is known to have the log.
    assert!(stage.path("restored/trust/log.db").exists());
    for copy in ["backups", "stream", "restored", "replica", "promoted"] {
        assert!(std::fs::read_dir(stage.path(copy)).unwrap().next().is_some(), "{copy} is empty");
        assert_eq!(files_with(&stage.path(copy), private), Vec::<PathBuf>::new(), "{copy}");
    }

    // Keys that are elsewhere are named by their settings.
    for key in &keys {
        std::fs::remove_file(key).unwrap();
    }
    let (code, _, error) = stage.backup(&["create"], true);
    assert!(code == Some(0) && error.contains("the files that trust.log_key_file and"), "{error}");
}

#[test]
fn without_the_setting_there_are_no_trees() {
    let stage = Stage::new();
    let mut command = sealog();
    command.env("SEALOG_TRUST_ENABLED", "false");
    let server = start(serving(command, &stage.data()));
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    assert!(!server.get(&key, "/metrics").1.contains("sealog_tree_"));
    server.stop();
    assert!(!stage.data().join("trust").exists());
    let (code, _, error) = stage.backup(&["create"], true);
    assert_eq!((code, error.as_str()), (Some(0), ""), "no keys, no word about them");
}
