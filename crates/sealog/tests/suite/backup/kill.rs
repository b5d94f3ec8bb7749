//! `kill -9` of `backup` and `restore` at random moments.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sealog_testing::*;

use super::{Stage, chains, heads};
use crate::support::{restoring_is_refused, sealog};

/// How often each command is begun and killed; docs/reliability.md says so, too.
const ROUNDS: u64 = 8;

/// Runs a command and kills it after this long; whether it had ended by itself.
pub fn killed_after(mut command: std::process::Command, wait: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + wait;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn kill_9_of_a_backup_leaves_the_earlier_ones_whole_and_the_next_goes_on() {
    let stage = Stage::new();
    let mut dice = Dice::new(seed("kill_9_of_a_backup"));
    let (mut kills, mut completed) = (0, 0);
    let mut slowest = Duration::from_millis(200);
    for _ in 0..rounds(ROUNDS) {
        stage.fill(&chains(), 3);
        let mut command = sealog();
        command.args(["backup", "create"]).arg(stage.backups()).arg("--data-dir").arg(stage.data());
        let after = Duration::from_micros(dice.below(u64::try_from(slowest.as_micros()).unwrap()));
        if killed_after(command, after) {
            completed += 1;
        } else {
            kills += 1;
        }
        if stage.backups().join("FORMAT").exists() {
            let (code, _, error) = stage.backup(&["verify", "--all"], false);
            assert_eq!(code, Some(0), "{error}");
        }
        let begun = Instant::now();
        stage.create();
        slowest = slowest.max(begun.elapsed());
    }
    assert_eq!(stage.backup(&["verify", "--all"], false).0, Some(0));
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
    println!("backup: kills={kills} completed={completed} lost=0 dup=0 damaged=0");
    assert!(kills > 0);
}

#[test]
fn kill_9_of_a_restore_leaves_no_store_and_the_next_run_begins_anew() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    let wanted = heads(&stage.data());
    let begun = Instant::now();
    assert_eq!(stage.restore("whole", &[]).0, Some(0));
    let whole = begun.elapsed();
    let mut dice = Dice::new(seed("kill_9_of_a_restore"));
    let (mut kills, mut completed, mut refused) = (0, 0, 0);
    for round in 0..rounds(ROUNDS) {
        let to = format!("restored-{round}");
        let mut command = sealog();
        command.args(["restore", "--from"]).arg(stage.backups()).arg("--to").arg(stage.path(&to));
        let after = Duration::from_micros(dice.below(u64::try_from(whole.as_micros()).unwrap()));
        if killed_after(command, after) {
            completed += 1;
        } else {
            kills += 1;
            // Half a store is none: no command opens it.
            if stage.path(&to).join("RESTORING").exists() {
                refused += 1;
                assert!(restoring_is_refused(&stage.path(&to)));
            }
            let (code, _, error) = stage.restore(&to, &[]);
            assert!(code == Some(0) || error.contains("not empty"), "{error}");
        }
        assert_eq!(heads(&stage.path(&to)), wanted, "{to}");
    }
    println!("restore: kills={kills} completed={completed} refused_meanwhile={refused} lost=0 dup=0");
    assert!(kills > 0);
}

#[test]
fn the_page_about_reliability_names_as_many_rounds() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");
    let rounds = format!("`sealog backup create` and `restore`, {ROUNDS} times each");
    assert!(std::fs::read_to_string(page).unwrap().contains(&rounds), "{rounds}");
}

#[test]
fn what_a_killed_backup_has_not_finished_is_no_backup_and_the_next_one_removes_it() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    stage.create();
    let made = stage.files("backups").pop().unwrap();
    // As a kill leaves it that comes before the manifest of a first backup has its name.
    let unfinished = stage.backups().join("backups/000001-20260101T000000Z.json.tmp");
    std::fs::rename(made, &unfinished).unwrap();
    let control = stage.backups().join("files/00ff.tmp");
    std::fs::write(&control, "half of it").unwrap();
    let (code, _, error) = stage.verify();
    assert!(code == Some(4) && error.contains("there is no complete backup"), "{error}");
    assert_eq!(stage.backup(&["verify", "--all"], false).0, Some(0));
    let (code, _, error) = stage.restore("restored", &[]);
    assert!(code == Some(4) && error.contains("there is no complete backup"), "{error}");
    stage.create();
    assert!(!unfinished.exists() && !control.exists());
    assert_eq!(stage.verify().0, Some(0));
}
