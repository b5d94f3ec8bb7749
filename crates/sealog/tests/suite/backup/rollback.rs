//! A restore that would lose events that were acknowledged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sealog_core::id::{ChainId, Mode};
use sealog_core::query::Filter;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::*;
use serde_json::{Value, json};

use super::kill::{at_each_call, killed_at};
use super::{Stage, chains};
use crate::support::{first_key, restoring_is_refused, serve};

/// The records of restores in the system chain of the one tenant.
pub fn restored_events(data: &Path) -> Vec<Value> {
    let store = EmbeddedStore::open(data, &Default::default()).unwrap();
    let system = wait(store.heads()).unwrap().into_iter().find(|(chain, _)| chain.is_system()).unwrap().0;
    let filter = Filter { action: Some("\"sealog.store_restored\"".into()), ..Filter::default() };
    let events = list(&store, system, &filter, None, 100);
    events.iter().map(|event| serde_json::from_str(event.text.fields().metadata.unwrap()).unwrap()).collect()
}

/// A store with two backups, and three events after each; the key, and the answers of the last three.
fn with_two_backups(stage: &Stage) -> (String, Vec<Value>) {
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    server.await_drained();
    for _ in 0..2 {
        (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
        stage.create();
    }
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    let (_, body) = server.get(&key, "/v1/events");
    server.stop();
    let body: Value = serde_json::from_str(&body).unwrap();
    (key, body["events"].as_array().unwrap()[..3].to_vec())
}

#[test]
fn an_older_backup_is_refused_while_a_newer_one_is_known_and_accepted_it_is_recorded_in_the_chains() {
    let stage = Stage::new();
    let (key, _) = with_two_backups(&stage);
    let (_, listed, _) = stage.backup(&["list", "--json"], false);
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = first["id"].as_str().unwrap();
    let (code, _, error) = stage.restore("restored", &["--backup", id]);
    assert_eq!(code, Some(1));
    assert!(error.contains("events 4 to 6 would be lost") && error.contains("--accept-rollback"), "{error}");
    assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0);
    let args = ["--backup", id, "--accept-rollback", "--reason", "the disk is gone", "--json"];
    let (code, said, error) = stage.restore("restored", &args);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    assert!(said.contains("events 4 to 6"), "{said}");

    let server = serve(&stage.path("restored"));
    server.await_drained();
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true,"checked":4"#), "{body}");
    let (_, body) = server.get(&key, "/v1/events?action=sealog.loss_accepted");
    let body: Value = serde_json::from_str(&body).unwrap();
    let loss = &body["events"][0]["metadata"];
    assert_eq!(
        (&loss["lost_from"], &loss["lost_to"], &loss["reason"]),
        (&json!(4), &json!(6), &json!("the disk is gone"))
    );
    assert_eq!(server.post(&key).0, 202);
    server.stop();
    let recorded = restored_events(&stage.path("restored"));
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!(recorded[0]["backup"], id);
    assert_eq!(recorded[0]["rolled_back"][0]["lost_to"], 6);
    assert_eq!(recorded[0]["rolled_back"][0]["recorded_hash"], loss["recorded_hash"]);
    assert_eq!(recorded[0]["reason"], "the disk is gone");
}

#[test]
fn an_older_backup_is_refused_while_a_newer_one_cannot_be_read() {
    let stage = Stage::new();
    with_two_backups(&stage);
    let manifests = stage.files("backups");
    let id = manifests[0].file_stem().unwrap().to_str().unwrap();
    let newer = manifests[1].file_stem().unwrap().to_str().unwrap();
    fs::write(&manifests[1], "half of a manifest").unwrap();
    let (code, _, error) = stage.restore("restored", &["--backup", id]);
    assert!(code == Some(1) && error.contains(newer) && error.contains("--accept-rollback"), "{error}");
    assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0);
    // Without a reason, or with an empty one, nothing begins.
    for reason in [&[][..], &["--reason", " "]] {
        let args = [&["--backup", id, "--accept-rollback"], reason].concat();
        let (code, _, error) = stage.restore("restored", &args);
        assert!(code == Some(2) && error.contains("--reason"), "{error}");
    }
    let (code, said, error) =
        stage.restore("restored", &["--backup", id, "--accept-rollback", "--reason", "the disk is gone"]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    // Nobody knows what the newer one had, so every tenant reads why it was left out.
    let server = serve(&stage.path("restored"));
    server.await_drained();
    server.stop();
    assert_eq!(restored_events(&stage.path("restored"))[0]["reason"], "the disk is gone");
}

#[test]
fn a_receipt_and_the_old_high_water_mark_are_known_too() {
    let stage = Stage::new();
    let (_, last) = with_two_backups(&stage);
    let receipt = stage.path("receipt.json");
    // As a client has it: the answer's log_id, with what its headers said.
    let answer = json!({ "log_id": last[0]["log_id"], "chain_seq": 9, "hash": last[0]["hash"], "request_id": "req_x" });
    fs::write(&receipt, answer.to_string()).unwrap();
    let receipt_arg = receipt.display().to_string();
    let (code, _, error) = stage.restore("restored", &["--receipt", &receipt_arg]);
    assert!(code == Some(1) && error.contains(last[0]["log_id"].as_str().unwrap()), "{error}");
    let old = stage.data().display().to_string();
    let (code, _, error) = stage.restore("restored", &["--old-data", &old]);
    assert!(code == Some(1) && error.contains("events 7 to 9 would be lost"), "{error}");
    // What is left of the old directory, in the target itself.
    let remains = stage.path("remains/live");
    fs::create_dir_all(&remains).unwrap();
    fs::copy(stage.data().join("live/mark"), remains.join("mark")).unwrap();
    let (code, _, error) = stage.restore("remains", &[]);
    assert!(code == Some(1) && error.contains("events 7 to 9 would be lost"), "{error}");
    assert!(remains.join("mark").is_file(), "what was known stays known");
    let (code, said, error) =
        stage.restore("remains", &["--accept-rollback", "--reason", "the disk is gone"]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
    let server = serve(&stage.path("remains"));
    server.await_drained();
    server.stop();
    assert_eq!(restored_events(&stage.path("remains"))[0]["rolled_back"][0]["lost_from"], 7);

    // A receipt of something that the backup has is no reason to refuse it.
    let server = serve(&stage.data());
    server.stop();
    let of_backup = json!({ "log_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
    fs::write(&receipt, of_backup.to_string()).unwrap();
    assert_eq!(stage.restore("restored", &["--receipt", &receipt_arg]).0, Some(1));
    stage.create();
    fs::write(&receipt, answer.to_string()).unwrap();
    let (code, _, error) = stage.restore("restored", &["--receipt", &receipt_arg, "--old-data", &old]);
    assert_eq!(code, Some(0), "{error}");
    let store = EmbeddedStore::open(&stage.path("restored"), &Default::default()).unwrap();
    assert!(wait(store.losses()).unwrap().is_empty());
}

/// The stretches that the chains of a stopped store have accepted as lost.
fn accepted(data: &Path) -> Vec<(Value, Value)> {
    let store = EmbeddedStore::open(data, &Default::default()).unwrap();
    let filter = Filter { action: Some("\"sealog.loss_accepted\"".into()), ..Filter::default() };
    let chains = wait(store.heads()).unwrap().into_iter().map(|(chain, _)| chain);
    let events = chains.flat_map(|chain| list(&store, chain, &filter, None, 100));
    let metadata = events.map(|event| event.text.fields().metadata.unwrap().to_owned());
    metadata
        .map(|text| serde_json::from_str::<Value>(&text).unwrap())
        .map(|mut loss| (loss["lost_from"].take(), loss["lost_to"].take()))
        .collect()
}

/// Issue 26: the marks were removed before RESTORING was. A kill in between left a target whose next restore
/// knew of no event that was acknowledged, so that it was neither refused nor recorded.
#[test]
fn kill_9_of_a_restore_at_its_calls_never_forgets_what_a_mark_in_the_target_proves() {
    let stage = Stage::new();
    with_two_backups(&stage);
    let with_a_mark = |name: &str| {
        let dir = stage.path(name).join("live");
        fs::create_dir_all(&dir).unwrap();
        fs::copy(stage.data().join("live/mark"), dir.join("mark")).unwrap();
    };
    let calls = [("mkdir", 1), ("rename", 1), ("unlink", 1), ("unlinkat", 1), ("fsync", 3)];
    let refused = at_each_call(&calls, |call, nth| {
        let to = format!("refused-{call}-{nth}");
        with_a_mark(&to);
        let has_ended = killed_at(&stage.restoring(&to, &[]), call, nth);
        let (code, _, error) = stage.restore(&to, &[]);
        assert!(code == Some(1) && error.contains("events 7 to 9 would be lost"), "{to}: {error}");
        assert_eq!(fs::read_dir(stage.path(&to)).unwrap().count(), 1, "{to}: as it was found");
        has_ended
    });
    let calls = [("mkdir", 1), ("rename", 1), ("unlink", 1), ("unlinkat", 1), ("fsync", 6)];
    let accepting = ["--accept-rollback", "--reason", "the disk is gone"];
    let recorded = at_each_call(&calls, |call, nth| {
        let to = format!("accepted-{call}-{nth}");
        with_a_mark(&to);
        let has_ended = killed_at(&stage.restoring(&to, &accepting), call, nth);
        if stage.path(&to).join("RESTORING").exists() {
            assert!(restoring_is_refused(&stage.path(&to)), "{to}");
        }
        let (code, _, error) = stage.restore(&to, &accepting);
        assert!(code == Some(0) || error.contains("not empty"), "{to}: {error}");
        assert_eq!(accepted(&stage.path(&to)), [(json!(7), json!(9))], "{to}");
        has_ended
    });
    println!("restore over a mark: kills={} forgotten=0", refused + recorded);
}

/// Appends 50 events to each chain and puts back the high-water marks that stood there before, as a kill
/// leaves them: the log has more than its mark.
pub fn fill_behind_the_mark(stage: &Stage, chains: &[ChainId]) {
    let store = stage.open_small();
    let marks = Mode::ALL.map(|mode| {
        let path = stage.data().join(mode.as_str()).join("mark");
        (fs::read(&path).unwrap(), path)
    });
    for chain in chains {
        append(&store, *chain, (0..50).map(|at| login(&format!("late-{at}"))).collect());
    }
    drop(store);
    for (mark, path) in marks {
        fs::write(path, mark).unwrap();
    }
}

/// A backup with 50 events in each of the three chains, and 50 more in the old data behind its marks.
fn with_a_log_behind_its_mark() -> (Stage, String) {
    let stage = Stage::new();
    stage.fill(&chains(), 1);
    stage.create();
    fill_behind_the_mark(&stage, &chains());
    let old = stage.data().display().to_string();
    (stage, old)
}

/// Of the old live log.
pub fn segments(stage: &Stage) -> Vec<PathBuf> {
    let files = fs::read_dir(stage.data().join("live")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "log")).collect();
    segments.sort();
    segments
}

/// What a mark alone says about a restore that cannot be refused.
fn says_what_a_mark_cannot_know(error: &str) -> bool {
    error.contains("was last written at 20") && error.contains("acknowledged later")
}

#[test]
fn a_restore_is_refused_while_the_old_log_has_events_that_its_mark_does_not_know_yet() {
    let (stage, old) = with_a_log_behind_its_mark();
    let files = || {
        let dirs = Mode::ALL.map(|mode| stage.data().join(mode.as_str()));
        let files = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|entry| entry.unwrap().path());
        files.map(|file| (fs::read(&file).unwrap(), file)).collect::<BTreeSet<_>>()
    };
    let before = files();
    let (code, said, error) = stage.restore("restored", &["--old-data", &old, "--json"]);
    assert_eq!(code, Some(1), "{said}");
    for chain in chains() {
        assert!(error.contains(&format!("chain {chain}: events 51 to 100 would be lost")), "{error}");
    }
    assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0);
    assert!(files() == before, "the old data is only read");
    // The same log without its marks, and then with a backup that has all of it.
    for mode in Mode::ALL {
        fs::remove_file(stage.data().join(mode.as_str()).join("mark")).unwrap();
    }
    let (code, _, error) = stage.restore("restored", &["--old-data", &old]);
    assert!(code == Some(1) && error.contains("events 51 to 100 would be lost"), "{error}");
    stage.create();
    let (code, said, error) = stage.restore("restored", &["--old-data", &old]);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
}

#[test]
fn an_old_log_that_is_damaged_counts_as_far_as_it_can_be_read() {
    let (stage, old) = with_a_log_behind_its_mark();
    let segment = &segments(&stage)[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[1000] ^= 1;
    fs::write(segment, bytes).unwrap();
    // Of a directory that came over in part, what came counts.
    fs::remove_file(stage.data().join("FORMAT")).unwrap();
    fs::remove_dir_all(stage.data().join("test")).unwrap();
    let (code, _, error) = stage.restore("restored", &["--old-data", &old]);
    assert!(code == Some(1) && error.contains("events 51 to 100 would be lost"), "{error}");
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn old_data_that_a_server_has_open_is_refused_because_it_may_acknowledge_more() {
    let (stage, old) = with_a_log_behind_its_mark();
    stage.create();
    let server = stage.open_small();
    let (code, _, error) = stage.restore("restored", &["--old-data", &old]);
    assert!(code == Some(5) && error.contains("stop it first"), "{error}");
    drop(server);
    assert_eq!(stage.restore("restored", &["--old-data", &old]).0, Some(0));
}

#[test]
fn where_the_old_log_cannot_be_read_the_age_of_its_mark_is_said() {
    let (stage, old) = with_a_log_behind_its_mark();
    for segment in segments(&stage) {
        fs::write(segment, "no segment").unwrap();
    }
    fs::remove_dir_all(stage.data().join("test")).unwrap();
    let (code, said, error) = stage.restore("restored", &["--old-data", &old, "--json"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(says_what_a_mark_cannot_know(&error) && error.contains("header is damaged"), "{error}");
    let said: Value = serde_json::from_str(&said).unwrap();
    let not_known: Vec<&str> =
        said["not_known"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(not_known.iter().any(|told| says_what_a_mark_cannot_know(told)), "{said}");
}

#[test]
fn a_mark_that_stands_alone_in_the_target_says_its_age_unless_the_server_was_stopped() {
    let (stage, _) = with_a_log_behind_its_mark();
    let left = |target: &str| {
        let dir = stage.path(target).join("live");
        fs::create_dir_all(&dir).unwrap();
        fs::copy(stage.data().join("live/mark"), dir.join("mark")).unwrap();
        stage.restore(target, &[])
    };
    let (code, said, error) = left("killed");
    assert_eq!(code, Some(0), "{said} {error}");
    assert!(says_what_a_mark_cannot_know(&error), "{error}");
    drop(stage.open_small());
    stage.create();
    let (code, said, error) = left("stopped");
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
}

#[test]
fn every_old_data_directory_counts() {
    let (stage, old) = with_a_log_behind_its_mark();
    let other = Stage::new();
    other.fill(&[chain(7, 7, Mode::Live)], 1);
    let other = other.data().display().to_string();
    for order in [[&old, &other], [&other, &old]] {
        let (code, _, error) = stage.restore("restored", &["--old-data", order[0], "--old-data", order[1]]);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("events 51 to 100") && error.contains("events 1 to 50"), "{error}");
    }
}

#[test]
fn every_receipt_of_a_chain_is_compared_and_not_only_the_furthest() {
    let stage = Stage::new();
    let (_, mut last) = with_two_backups(&stage);
    stage.create();
    let receipt = stage.path("receipts");
    let restored = |receipts: &[Value]| {
        let lines: Vec<String> = receipts.iter().map(Value::to_string).collect();
        fs::write(&receipt, lines.join("\n")).unwrap();
        stage.restore("restored", &["--receipt", &receipt.display().to_string()])
    };
    last[1]["hash"] = json!("ab".repeat(32));
    let (code, said, error) = restored(&last);
    assert!(code == Some(1) && error.contains("event 8 differs"), "{said} {error}");
    last.remove(1);
    let (code, said, error) = restored(&last);
    assert_eq!((code, &*error), (Some(0), ""), "{said}");
}
