//! Trees in a data directory, and what a backup has to bring back so that they come out the same.

use std::path::Path;
use std::process::Command;

use sealog_testing::*;

use super::Stage;
use crate::support::{first_key, sealog, serve, serving, start};

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
}
