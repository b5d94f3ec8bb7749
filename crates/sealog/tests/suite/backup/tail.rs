//! `sealog restore --recover-tail`: what an old log has behind the end of a backup.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sealog_core::id::Mode;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::process::{LOGIN, Running, signal, start};
use sealog_testing::*;
use serde_json::{Value, json};

use super::rollback::{fill_behind_the_mark, restored_events, segments};
use super::{Stage, chains, heads};
use crate::support::{first_key, first_tenant, operator, sealog, serve, serving};

const TOKEN: &str = "a token that nobody can guess at all";

/// A backup with 50 events in each of three chains, and an old log with 50 more.
fn with_a_tail() -> (Stage, String) {
    let stage = Stage::new();
    stage.fill(&chains(), 1);
    // Projects are not looked for: there is no control data of them.
    serve(&stage.data()).stop();
    stage.create();
    fill_behind_the_mark(&stage, &chains());
    let old = stage.data().display().to_string();
    (stage, old)
}

fn restore(stage: &Stage, old: &str, more: &[&str]) -> (Option<i32>, Value, String) {
    let mut args = vec!["--old-data", old, "--recover-tail", "--json"];
    args.extend(more);
    let (code, said, error) = stage.restore("restored", &args);
    (code, serde_json::from_str(&said).unwrap_or_default(), error)
}

fn files(dir: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let dirs = [dir.to_owned(), dir.join("live"), dir.join("test")];
    let entries = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_killed_server_comes_back_with_every_acknowledged_event_key_and_idempotency_key() {
    let stage = Stage::new();
    let mut command = sealog();
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN);
    let server = start(serving(command, &stage.data()));
    let key = first_key(&stage.data());
    server.await_drained();
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    stage.create();
    let (tenant, _) = first_tenant(&server, TOKEN);
    let path = format!("/tenants/{tenant}/projects");
    let (_, project) = operator(&server, TOKEN, "POST", &path, &json!({ "name": "made later" }));
    let path = format!("/projects/{}/keys", project["project_id"].as_str().unwrap());
    let (_, made) = operator(&server, TOKEN, "POST", &path, &json!({ "name": "later key", "mode": "live" }));
    let later_key = made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    server.await_drained();
    let send = |server: &Running, key: &str, idempotency_key: &str| {
        let authorization = format!("Bearer {key}");
        let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", idempotency_key)];
        let (status, body) = server.request("POST", "/v1/events", &headers, LOGIN);
        assert_eq!(status, 202, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        body["log_id"].as_str().unwrap().to_owned()
    };
    let sent = [send(&server, &key, "first"), send(&server, &later_key, "second")];
    signal(server.pid(), "-KILL");
    server.ended();

    let before = files(&stage.data());
    let old = stage.data().display().to_string();
    let (code, said, error) = restore(&stage, &old, &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    assert_eq!(said["rolled_back"], json!([]));
    assert!(said["recovered"]["events"].as_u64().unwrap() >= 2, "{said}");
    let only_there = said["recovered"]["only_there"].to_string();
    assert!(only_there.contains("(made later)") && only_there.contains("(later key)"), "{said}");
    assert!(files(&stage.data()) == before, "the old data is only read");

    let server = serve(&stage.path("restored"));
    server.await_drained();
    let again = [send(&server, &key, "first"), send(&server, &later_key, "second")];
    assert_eq!(again, sent, "a request that is sent again gets its first answer");
    for (key, count) in [(&key, 4), (&later_key, 1)] {
        let (_, body) = server.get(key, "/v1/events/verify");
        assert!(body.contains(&format!(r#""valid":true,"checked":{count}"#)), "{body}");
    }
    server.stop();
    let recorded = restored_events(&stage.path("restored"));
    assert_eq!((recorded.len(), &recorded[0]["recovered_tail"]), (1, &json!(true)), "{recorded:?}");
    assert_eq!(recorded[0]["rolled_back_chains"], 0);
}

/// A backup of a store whose server was killed, and an old log whose next start has written the last group
/// again, into the next segment. With the segments that the backup has.
fn with_a_group_written_again() -> (Stage, String, Vec<PathBuf>) {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    server.await_drained();
    let mark = fs::read(stage.data().join("live/mark")).unwrap();
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    stage.create();
    let backed_up = segments(&stage);
    signal(server.pid(), "-KILL");
    server.ended();
    // As if it had been killed before the mark was written once more.
    fs::write(stage.data().join("live/mark"), mark).unwrap();
    let server = serve(&stage.data());
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    server.stop();
    (stage, key, backed_up)
}

/// How many events the chain of a key has, all of them valid.
fn count(stage: &Stage, key: &str) -> u64 {
    let server = serve(&stage.path("restored"));
    let (_, body) = server.get(key, "/v1/events/verify");
    server.stop();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["valid"], true, "{body}");
    body["checked"].as_u64().unwrap()
}

#[test]
fn a_tail_whose_last_group_a_start_has_written_again_is_taken_over() {
    let (stage, key, _) = with_a_group_written_again();
    let (code, said, error) = restore(&stage, &stage.data().display().to_string(), &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    assert_eq!(count(&stage, &key), 6);
}

#[test]
fn a_group_that_was_to_be_written_again_and_cannot_be_read_is_kept_from_the_backup() {
    let (stage, key, backed_up) = with_a_group_written_again();
    for segment in segments(&stage).iter().filter(|segment| !backed_up.contains(segment)) {
        let mut bytes = fs::read(segment).unwrap();
        bytes[200..].fill(7);
        fs::write(segment, bytes).unwrap();
    }
    let old = stage.data().display().to_string();
    let (code, said, error) = restore(&stage, &old, &["--accept-rollback", "--reason", "the disk is gone"]);
    assert_eq!(code, Some(0), "{said} {error}");
    // Those of the backup, and the acceptance of what was lost behind it.
    assert_eq!(count(&stage, &key), 4);
}

#[test]
fn a_tail_goes_on_behind_test_events_that_were_dropped_since() {
    let stage = Stage::new();
    let test = chain(1, 1, Mode::Test);
    stage.fill(&[test], 30);
    serve(&stage.data()).stop();
    stage.create();
    let store = stage.open_small();
    eventually("a segment is dropped", || wait(store.drop_test_events(u64::MAX >> 8)).unwrap().events > 0);
    append(&store, test, vec![login("late")]);
    let before = wait(store.head(test)).unwrap();
    drop(store);
    let old = stage.data().display().to_string();
    let (code, said, error) = restore(&stage, &old, &[]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    let store = EmbeddedStore::open(&stage.path("restored"), &Default::default()).unwrap();
    let head = wait(store.head(test)).unwrap();
    assert_eq!((head.durable, head.dropped), (before.durable, before.dropped));
    assert!(verify(&store, test).broken.is_none());
}

#[test]
fn a_tail_ends_at_the_first_fault_and_what_stands_behind_it_is_lost() {
    let (stage, old) = with_a_tail();
    let last = segments(&stage).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 1;
    fs::write(&last, bytes).unwrap();
    let (code, said, error) = restore(&stage, &old, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        error.contains("could not import the whole old log") && error.contains("would be lost"),
        "{error}"
    );
    assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0);
    let (code, said, error) = restore(&stage, &old, &["--accept-rollback", "--reason", "the disk is gone"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said["recovered"]["events"].as_u64().unwrap() > 0, "{said}");
    assert!(said["not_known"].to_string().contains("could not import the whole old log"), "{said}");
    let store = EmbeddedStore::open(&stage.path("restored"), &Default::default()).unwrap();
    assert!(chains().iter().all(|chain| verify(&store, *chain).broken.is_none()));
}

#[test]
fn a_log_that_has_gone_another_way_than_the_backup_is_not_taken_over() {
    let stage = Stage::new();
    stage.fill(&chains(), 1);
    let other = Stage::new();
    let copied = std::process::Command::new("cp").arg("-a").args([stage.data(), other.data()]).status();
    assert!(copied.unwrap().success());
    stage.fill(&chains(), 1);
    stage.create();
    other.fill(&chains(), 2);
    let (code, said, error) = restore(&stage, &other.data().display().to_string(), &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        error.contains("could not import the whole old log") && error.contains("would be lost"),
        "{error}"
    );
}

#[test]
fn a_tail_without_its_control_data_is_refused_and_names_the_projects_that_only_it_has() {
    let stage = Stage::new();
    serve(&stage.data()).stop();
    stage.create();
    let late = chain(1, 7, Mode::Live);
    stage.fill(&[late], 1);
    let old = stage.data().display().to_string();
    for gone in [fs::write(stage.data().join("control.db"), "no database"), {
        fs::remove_file(stage.data().join("control.db"))
    }] {
        gone.unwrap();
    }
    let (code, said, error) = restore(&stage, &old, &[]);
    assert_eq!(code, Some(1), "{said}");
    let named = format!("project {} has events in the old log", late.project_id);
    assert!(error.contains("cannot read the old control data") && error.contains(&named), "{error}");
    assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0);
    let (code, said, error) = restore(&stage, &old, &["--accept-rollback", "--reason", "the disk is gone"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(said["recovered"], json!({ "events": 50, "only_there": [], "has_control_data": false }));
    assert_eq!(heads(&stage.path("restored"))[&late].chain_seq, 50);
}

#[test]
fn a_tail_is_asked_for_with_one_old_data_directory() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    stage.create();
    let (code, _, error) = stage.restore("restored", &["--recover-tail"]);
    assert!(code == Some(2) && error.contains("--old-data"), "{error}");
    let old = stage.data().display().to_string();
    let args = ["--recover-tail", "--old-data", &old, "--old-data", &old];
    let (code, _, error) = stage.restore("restored", &args);
    assert!(code == Some(2) && error.contains("give --old-data once"), "{error}");
}
