//! `kill -9` of `backup` and `restore` at random moments, and what kills a command at its system calls.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sealog_testing::*;

use super::{Stage, chains, heads};
use crate::support::{restoring_is_refused, sealog};

/// How often each command is begun and killed; docs/reliability.md says so, too.
const ROUNDS: u64 = 8;

/// Runs a command and kills it after this long; whether it had ended by itself.
pub fn killed_after(mut command: Command, wait: Duration) -> bool {
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

/// Runs a command and kills it before its `nth` system call of this name; whether it had ended by itself.
/// Each thread of it counts for itself, and nearly all is done by one.
pub fn killed_at(command: &Command, call: &str, nth: usize) -> bool {
    let mut traced = signalled_at(command, call, nth, "SIGKILL", Path::new("/dev/null"));
    // strace ends as the command does.
    let ended = traced.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(ended.signal() == Some(9) || ended.code().is_some(), "{ended}");
    ended.signal().is_none()
}

/// A command that gets a signal at its `nth` system call of this name; these calls and the signal are written
/// to a file.
pub fn signalled_at(command: &Command, call: &str, nth: usize, signal: &str, trace: &Path) -> Command {
    let mut traced = Command::new("strace");
    // Not with --seccomp-bpf: strace then loses the signals that it should inject.
    traced.args(["-f", "-qqq", "-e", &format!("trace={call}"), "-o"]).arg(trace);
    traced.args(["-e", &format!("inject={call}:signal={signal}:when={nth}")]);
    traced.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// A kill before each of these calls, or each of so many, until `round` says that the command had ended by
/// itself; how many there were. The kinds run beside each other, because most of their time is syncs.
pub fn at_each_call(calls: &[(&'static str, usize)], round: impl Fn(&str, usize) -> bool + Sync) -> usize {
    let round = &round;
    std::thread::scope(|scope| {
        let of_kind = |&(call, step): &(&'static str, usize)| {
            scope.spawn(move || {
                let kills = (1..).step_by(step).take_while(|nth| !round(call, *nth)).count();
                assert!(kills > 0, "it makes no call of {call}");
                kills
            })
        };
        let kinds: Vec<_> = calls.iter().map(of_kind).collect();
        kinds.into_iter().map(|kind| kind.join().unwrap()).sum()
    })
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
