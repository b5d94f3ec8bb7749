//! `sealog backup prune`: which backups stay, and that nothing else is lost, whatever happens meanwhile.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sealog_control::{Control, NewTenant};
use sealog_core::id::{TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_store::world::{SystemWorld, World};
use sealog_testing::mounted::Mounted;
use sealog_testing::*;
use serde_json::Value;

use super::damage::forge_file;
use super::kill::{killed_after, signalled_at};
use super::{Stage, chains, ended, heads};
use crate::support::{sealog, signal};

const DAY_MS: u64 = 86_400_000;
/// How often a prune is begun and killed; docs/reliability.md says so, too.
const ROUNDS: u64 = 8;

/// Changes the control data of a stopped store.
fn add_tenants(stage: &Stage, ids: impl Iterator<Item = [u8; 16]>) {
    let store = stage.open_small();
    let control = Control::embedded(&store).unwrap();
    for random in ids {
        let tenant = NewTenant {
            id: TenantId(Uuid::from_random(random)),
            name: "a tenant with a name of some length, so that pages fill up ".repeat(4),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 1,
        };
        wait(control.create_tenant(tenant, Vec::new())).unwrap();
    }
}

fn random() -> impl Iterator<Item = [u8; 16]> {
    std::iter::repeat_with(|| {
        let mut random = [0; 16];
        SystemWorld.fill_random(&mut random);
        random
    })
}

/// A store with so many backups, each a day older than the next.
fn with_backups(stage: &Stage, count: u64) {
    for age in (0..count).rev() {
        stage.fill(&chains(), 2);
        add_tenants(stage, random().take(1));
        stage.create();
        age_newest(stage, age);
    }
}

/// As if the newest backup had been made so many days ago.
fn age_newest(stage: &Stage, days: u64) {
    forge_file(&stage.files("backups").pop().unwrap(), |manifest| {
        manifest["made_at_ms"] = (manifest["made_at_ms"].as_u64().unwrap() - days * DAY_MS).into();
    });
}

fn prune(stage: &Stage, args: &[&str]) -> (Option<i32>, Value, String) {
    let (code, said, error) = stage.backup(&[&["prune", "--json"], args].concat(), false);
    (code, serde_json::from_str(&said).unwrap_or_default(), error)
}

fn listed(stage: &Stage) -> usize {
    stage.backup(&["list", "--json"], false).1.lines().count()
}

#[track_caller]
fn assert_all_whole(stage: &Stage) {
    let (code, said, error) = stage.backup(&["verify", "--all"], false);
    assert_eq!(code, Some(0), "{said}{error}");
}

#[test]
fn the_backups_that_no_rule_keeps_are_removed_with_their_files_and_the_others_are_whole() {
    let stage = Stage::new();
    with_backups(&stage, 6);
    let count = |stage: &Stage| stage.files("files").len();
    let files = count(&stage);
    let (code, planned, error) = prune(&stage, &["--keep-daily", "2", "--dry-run"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!((listed(&stage), count(&stage)), (6, files), "a dry run changes nothing");
    assert!(!stage.backups().join("VERIFIED").exists());
    let (code, done, error) = prune(&stage, &["--keep-daily", "2"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(done["removed"].as_array().unwrap().len(), 4, "{done}");
    for field in ["removed", "removed_files", "removed_bytes"] {
        assert_eq!(done[field], planned[field], "a dry run says what would be done");
    }
    assert_eq!(listed(&stage), 2);
    assert!(count(&stage) < files, "control data of those that are gone");
    assert_all_whole(&stage);
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
    // Another one adds what is new, as before.
    stage.fill(&chains(), 1);
    stage.create();
    assert_all_whole(&stage);
    // What an interrupted backup has left goes as well.
    let left = stage.backups().join("live/00000099-00.log");
    fs::write(&left, "left").unwrap();
    assert_eq!(prune(&stage, &["--keep-daily", "9"]).0, Some(0));
    assert!(!left.exists());
    assert_all_whole(&stage);
}

#[test]
fn nothing_is_removed_unless_a_backup_that_stays_was_found_whole() {
    let stage = Stage::new();
    with_backups(&stage, 3);
    let newest = stage.files("live").pop().unwrap();
    let sound = fs::read(&newest).unwrap();
    let mut damaged = sound.clone();
    let at = damaged.len() / 2;
    damaged[at] ^= 1;
    fs::write(&newest, damaged).unwrap();
    let (code, _, error) = prune(&stage, &["--keep-daily", "1"]);
    assert!(code == Some(10) && error.contains("nothing was removed"), "{error}");
    assert_eq!(listed(&stage), 3);
    // An older one that was verified stays beside the newest, which was not looked at.
    let oldest = stage.files("backups").remove(0);
    let id = oldest.file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(stage.backup(&["verify", "--backup", &id], false).0, Some(0));
    let (code, done, error) = prune(&stage, &["--keep-daily", "1"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(done["kept"][&id], serde_json::json!(["newest verified"]), "{done}");
    assert!(listed(&stage) == 2 && oldest.exists());
    fs::write(&newest, sound).unwrap();
    assert_all_whole(&stage);
}

#[test]
fn a_prune_waits_for_nobody_and_disturbs_nobody() {
    let stage = Stage::new();
    with_backups(&stage, 3);
    let refused = |path: &Path, shared: bool, what: &str| {
        let lock = fs::File::open(path).unwrap();
        if shared {
            lock.lock_shared().unwrap()
        } else {
            lock.lock().unwrap()
        }
        let (code, _, error) = prune(&stage, &["--keep-daily", "1"]);
        assert!(code == Some(5) && error.contains(what), "{error}");
        assert_eq!(listed(&stage), 3);
        let (code, _, error) = prune(&stage, &["--keep-daily", "1", "--dry-run"]);
        assert_eq!(code, Some(0), "{error}");
    };
    // As a backup or another prune has it, and as a verification or a restore.
    refused(&stage.backups(), false, "another backup is in progress here, or a prune");
    refused(&stage.backups().join("FORMAT"), true, "a verification or a restore reads these backups");
    // Several at once: each does its work or says that another one does.
    let begin = || {
        let mut command = sealog();
        command.args(["backup", "prune", "--keep-daily", "1"]).arg(stage.backups());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [begin(), begin()].map(|child| ended(child.wait_with_output().unwrap()));
    assert!(both.iter().all(|(code, _, _)| matches!(code, Some(0 | 5))), "{both:?}");
    let (code, _, error) = prune(&stage, &["--keep-daily", "1"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(listed(&stage), 1);
    assert_all_whole(&stage);
}

#[test]
fn a_prune_beside_a_backup_removes_nothing_until_the_backup_has_ended() {
    let stage = Stage::new();
    with_backups(&stage, 3);
    let all = |stage: &Stage| ["backups", "files", "live", "test"].map(|folder| stage.files(folder));
    let mut stops = 0;
    // Behind each file that gets its name, and the manifest is the last.
    for nth in 1.. {
        stage.fill(&chains(), 1);
        add_tenants(&stage, random().take(1));
        let mut command = sealog();
        command.args(["backup", "create"]).arg(stage.backups()).arg("--data-dir").arg(stage.data());
        let trace = stage.path(&format!("trace-{nth}"));
        let mut traced = signalled_at(&command, "rename", nth, "SIGSTOP", &trace);
        let mut backup = traced.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stopped = None;
        eventually("the backup stops or ends", || {
            let has_ended = backup.try_wait().unwrap().is_some();
            let said = fs::read_to_string(&trace).unwrap_or_default();
            let line = said.lines().find(|line| line.ends_with("--- stopped by SIGSTOP ---"));
            stopped = line.map(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
            stopped.is_some() || has_ended
        });
        if let Some(pid) = stopped {
            stops += 1;
            let before = all(&stage);
            let (code, _, error) = prune(&stage, &["--keep-daily", "1"]);
            let after = all(&stage);
            signal(pid, "-CONT");
            assert!(code == Some(5) && error.contains("another backup is in progress here"), "{error}");
            assert_eq!(after, before);
        }
        let (code, _, error) = ended(backup.wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{error}");
        assert_all_whole(&stage);
        if stopped.is_none() {
            break;
        }
    }
    assert!(stops > 2, "{stops}");
    let (code, _, error) = prune(&stage, &["--keep-daily", "1"]);
    assert_eq!((code, listed(&stage)), (Some(0), 1), "{error}");
    assert_all_whole(&stage);
}

#[test]
fn kill_9_of_a_prune_leaves_whole_backups_and_the_next_one_removes_the_rest() {
    let stage = Stage::new();
    let mut dice = Dice::new(seed("kill_9_of_a_prune"));
    let (mut kills, mut completed) = (0, 0);
    for _ in 0..rounds(ROUNDS) {
        with_backups(&stage, 3);
        let mut command = sealog();
        command.args(["backup", "prune", "--keep-daily", "2"]).arg(stage.backups());
        if killed_after(command, Duration::from_micros(dice.below(60_000))) {
            completed += 1;
        } else {
            kills += 1;
        }
        assert_all_whole(&stage);
        assert!(listed(&stage) >= 2);
    }
    let (code, _, error) = prune(&stage, &["--keep-daily", "2"]);
    assert_eq!((code, listed(&stage)), (Some(0), 2), "{error}");
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
    println!("prune: kills={kills} completed={completed} lost=0");
    assert!(kills > 0);
}

#[test]
fn a_prune_makes_room_on_a_full_disk() {
    let Some(disk) = Mounted::new(64) else { return };
    let stage = Stage::new();
    let backups = disk.at.join("backups");
    let run = |args: &[&str]| {
        let mut command = sealog();
        command.arg("backup").args(args).arg(&backups);
        if args[0] == "create" {
            command.arg("--data-dir").arg(stage.data());
        }
        ended(command.output().unwrap())
    };
    let test = chains()[2];
    for _ in 0..3 {
        stage.fill(&[test], 10);
        assert_eq!(run(&["create", "--fast"]).0, Some(0));
    }
    disk.fill("ballast", 0);
    disk.fill("more", 0);
    let (code, said, error) = run(&["prune", "--keep-hourly", "1", "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(done["removed"].as_array().unwrap().len(), 2, "{done}");
    let (code, said, error) = run(&["verify", "--all"]);
    assert_eq!(code, Some(0), "{said}{error}");
}

#[test]
fn a_backup_adds_only_what_changed_of_the_control_data() {
    let stage = Stage::new();
    stage.fill(&chains(), 1);
    add_tenants(&stage, random().take(1000));
    let bytes = || -> u64 { stage.files("files").iter().map(|file| file.metadata().unwrap().len()).sum() };
    stage.create();
    let first = bytes();
    // Its row is the last one. SQLite's copy packs rows, so behind a new row all of its table moves.
    add_tenants(&stage, [[0xff; 16]].into_iter());
    stage.create();
    let added = bytes() - first;
    println!("control data: {first} bytes, and {added} with the next backup");
    assert!(added > 0 && added < first / 3, "{added} of {first}");
    assert_all_whole(&stage);
    // A piece that is damaged is named, and the next backup puts it right.
    let large = stage.files("files").into_iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    fs::write(&large, "short").unwrap();
    let (code, said, _) = stage.backup(&["verify", "--all"], false);
    assert!(code == Some(10) && said.contains("(control.db): checksum mismatch"), "{said}");
    assert_eq!(stage.restore("damaged", &[]).0, Some(10));
    stage.create();
    assert_eq!(stage.verify().0, Some(0));
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
}

#[test]
fn the_page_about_reliability_names_as_many_rounds() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");
    let rounds = format!("`sealog backup prune`, {ROUNDS} times");
    assert!(fs::read_to_string(page).unwrap().contains(&rounds), "{rounds}");
}
