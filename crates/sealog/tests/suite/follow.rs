//! `sealog follow`: each event once and in order, whatever happens to the command or the service.

mod formats;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::stage::*;
use crate::support::*;
use sealog_testing::dice::{Dice, rounds, seed};
use sealog_testing::eventually;
use sealog_testing::mounted::Mounted;
use serde_json::Value;

/// Events that take more than one commit.
const MANY: usize = 36_000;

/// What the service has, oldest first, as the lines that a follower writes.
fn all_lines(stage: &Stage) -> String {
    let (code, said, noted) = stage.run(&["export", "--quiet"]);
    assert_eq!(code, Some(0), "{noted}");
    said
}

fn seqs(text: &str) -> Vec<u64> {
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["chain_seq"].as_u64().unwrap())
        .collect()
}

fn follow(stage: &Stage, args: &[&str]) -> Child {
    let mut command = stage.command(&[&["follow"][..], args].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A follower whose standard error is kept; killed if a test ends before it does, also one that is stopped.
struct Followed(Child);

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn followed(stage: &Stage, args: &[&str]) -> Followed {
    let mut command = stage.command(&[&["follow"][..], args].concat());
    Followed(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
}

fn length(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[test]
fn a_follower_that_is_killed_at_random_moments_has_each_event_once_and_in_order() {
    let stage = Stage::new();
    let mut dice = Dice::new(seed("follow"));
    let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
    let (mut kills, mut cuts, mut events) = (0, 0, 0);
    for round in 0..rounds(12) {
        let count = 200 + usize::try_from(dice.below(1500)).unwrap();
        assert_eq!(
            stage.piped(&["log", "--file", "-", "--in-flight", "4", "--quiet"], &lines(count)).0,
            Some(0)
        );
        events += count;
        let before = length(&out);
        let wanted = before + dice.below(count as u64 * 1000);
        let mut child = follow(&stage, &["--output", &out, "--in-flight", "4"]);
        // Some in the middle of what they write, some before anything, some after all.
        if round % 4 != 3 {
            eventually("it has written something", || {
                length(&out) > wanted
                    || child.try_wait().unwrap().is_some()
                    || seqs_done(&cursor) == events as u64
            });
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let kept = std::fs::read(&cursor).ok().map(|text| serde_json::from_slice::<Value>(&text).unwrap());
        cuts += u64::from(length(&out) > kept.map_or(0, |kept| kept["bytes"].as_u64().unwrap()));
    }
    let (code, _, noted) = stage.run(&["follow", "--output", &out, "--once"]);
    assert_eq!(code, Some(0), "{noted}");
    let written = std::fs::read_to_string(&out).unwrap();
    println!("{kills} kills, {cuts} of them with more in the file than was committed, {events} events");
    assert_eq!(seqs(&written), (1..=events as u64).collect::<Vec<_>>());
    assert!(written == all_lines(&stage), "byte for byte as the service has them");
}

/// What is written aside is not forgotten: the last commit is waited for, and its failure ends the command.
#[test]
fn a_disk_that_fills_up_ends_it_with_1_and_with_room_again_each_event_is_there_once() {
    let Some(disk) = Mounted::new(64) else { return };
    let stage = Stage::new();
    let log = ["log", "--file", "-", "--in-flight", "8", "--quiet"];
    assert_eq!(stage.piped(&log, &lines(300)).0, Some(0));
    let out = disk.at.join("out").to_str().unwrap().to_owned();
    assert_eq!(stage.run(&["follow", "--output", &out, "--once"]).0, Some(0));
    let kept = std::fs::read_to_string(&out).unwrap();
    disk.fill("others", 1 << 20);
    assert_eq!(stage.piped(&log, &lines(6000)).0, Some(0));
    let (code, _, noted) = stage.run(&["follow", "--output", &out, "--once"]);
    assert!(code == Some(1) && noted.contains("cannot write"), "{code:?} {noted}");
    assert!(std::fs::read_to_string(&out).unwrap().starts_with(&kept), "what was committed stays");
    std::fs::remove_file(disk.at.join("others")).unwrap();
    assert_eq!(stage.run(&["follow", "--output", &out, "--once"]).0, Some(0));
    assert!(std::fs::read_to_string(&out).unwrap() == all_lines(&stage), "each once and in order");
}

/// How long the cursor file says that the output is.
fn bytes_done(cursor: &str) -> u64 {
    let kept: Value = serde_json::from_slice(&std::fs::read(cursor).unwrap()).unwrap();
    kept["bytes"].as_u64().unwrap()
}

/// How far the cursor file says that it is.
fn seqs_done(cursor: &str) -> u64 {
    let text = std::fs::read(cursor).unwrap_or_default();
    serde_json::from_slice::<Value>(&text).map_or(0, |kept| kept["position"]["seq"].as_u64().unwrap())
}

#[test]
fn a_service_that_is_away_is_waited_for_and_new_events_are_written_as_they_come() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(150)).0, Some(0));
    let out = stage.path("out");
    let mut child = follow(&stage, &["--output", &out, "--retries", "0"]);
    let written = || std::fs::read_to_string(&out).unwrap_or_default().lines().count();
    eventually("what is there is written", || written() == 150);
    stage.stop();
    stage.restart();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(30)).0, Some(0));
    eventually("what came after the restart is written", || written() == 180);
    // Asked to stop, it ends as one that has done its work.
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(seqs(&std::fs::read_to_string(&out).unwrap()), (1..=180).collect::<Vec<_>>());
}

#[test]
fn filters_leave_out_what_does_not_match_and_the_place_is_kept_all_the_same() {
    let stage = Stage::new();
    let many: String = (0..1200)
        .map(|n| {
            let action = if n % 300 == 7 { "user.login" } else { "document.updated" };
            format!("{{\"action\":\"{action}\",\"actor_id\":\"u{n}\"}}\n")
        })
        .collect();
    assert_eq!(stage.piped(&["log", "--file", "-"], &many).0, Some(0));
    let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
    let args = ["follow", "--output", &out, "--once", "--action", "user.login"];
    assert_eq!(stage.run(&args).0, Some(0));
    assert_eq!(seqs(&std::fs::read_to_string(&out).unwrap()), [8, 308, 608, 908]);
    assert_eq!(seqs_done(&cursor), 1200);
    assert_eq!(stage.run(&["log", "user.login"]).0, Some(0));
    assert_eq!(stage.run(&args).0, Some(0));
    assert_eq!(seqs(&std::fs::read_to_string(&out).unwrap()), [8, 308, 608, 908, 1201]);
    // Other filters, another format or another key do not belong to these files.
    let (code, _, noted) = stage.run(&["follow", "--output", &out, "--once"]);
    assert!(code == Some(2) && noted.contains("--action user.login"), "{noted}");
    let mut other = stage.command(&args);
    let (code, _, noted) = ended(other.env("SEALOG_API_KEY", stage.test_key()).output().unwrap());
    // The test chain is empty and says nothing of itself, but it cannot be a live one.
    assert!(code == Some(2) && noted.contains("this key reads a test chain without events"), "{noted}");
    let mut logged = stage.command(&["log", "user.login"]);
    assert_eq!(logged.env("SEALOG_API_KEY", stage.test_key()).output().unwrap().status.code(), Some(0));
    let mut other = stage.command(&args);
    let (code, _, noted) = ended(other.env("SEALOG_API_KEY", stage.test_key()).output().unwrap());
    assert!(code == Some(2) && noted.contains("the cursor file belongs to chain"), "{noted}");
}

#[test]
fn a_pipe_gets_what_is_new_and_goes_on_by_its_cursor_file() {
    let stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(120)).0, Some(0));
    let cursor = stage.path("cursor");
    let args = ["follow", "--once", "--cursor-file", &cursor];
    let (code, said, _) = stage.run(&args);
    assert_eq!((code, seqs(&said)), (Some(0), (1..=120).collect::<Vec<_>>()));
    assert_eq!(stage.run(&args), (Some(0), String::new(), String::new()));
    assert_eq!(stage.run(&["log", "user.login"]).0, Some(0));
    assert_eq!(seqs(&stage.run(&args).1), [121]);
    assert_eq!(seqs(&stage.run(&["follow", "--once", "--from", "119"]).1), [119, 120, 121]);
    assert_eq!(stage.run(&["follow", "--once", "--new"]).1, "");
}

/// A copy of the store as it is now.
fn copied(stage: &mut Stage) -> PathBuf {
    stage.stop();
    let old = stage.home.join("old");
    copy(&stage.data, &old);
    stage.restart();
    old
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// The service is killed, and comes back at the same address with an older state of its store.
fn taken_back(stage: &mut Stage, old: &Path) {
    let server = stage.server.take().unwrap();
    signal(server.pid(), "-KILL");
    drop(server);
    std::fs::remove_dir_all(&stage.data).unwrap();
    copy(old, &stage.data);
    stage.restart();
}

/// Exit code and standard error of a follower that ends by itself.
fn ended_by_itself(mut follower: Followed) -> (Option<i32>, String) {
    let child = &mut follower.0;
    eventually("it ends", || child.try_wait().unwrap().is_some());
    let mut noted = String::new();
    child.stderr.take().unwrap().read_to_string(&mut noted).unwrap();
    (child.wait().unwrap().code(), noted)
}

fn log(stage: &Stage, count: usize) {
    let (code, _, noted) = stage.piped(&["log", "--file", "-", "--in-flight", "4", "--quiet"], &lines(count));
    assert_eq!(code, Some(0), "{noted}");
}

/// With and without events that are left out, of which no link can be seen.
const FILTERS: [&[&str]; 2] = [&[], &["--actor-id", "u3"]];

#[test]
fn a_service_that_comes_back_with_a_shorter_or_another_chain_ends_it_with_10() {
    let mut stage = Stage::new();
    log(&stage, 5);
    let old = copied(&mut stage);
    log(&stage, 5);
    let out = stage.path("out");
    let args = ["follow", "--output", &out, "--once"];
    assert_eq!(stage.run(&args).0, Some(0));
    let written = std::fs::read(&out).unwrap();
    taken_back(&mut stage, &old);
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(10) && noted.contains("ends with event #5, but it had #10 before"), "{noted}");
    log(&stage, 7);
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(10) && noted.contains("event #10 of the service has changed"), "{noted}");
    assert_eq!(std::fs::read(&out).unwrap(), written, "what was written is left alone");
}

#[test]
fn a_cursor_file_that_does_not_fit_is_refused_says_what_to_do_and_leaves_the_output_alone() {
    let (stage, other) = (Stage::new(), Stage::new());
    for stage in [&stage, &other] {
        assert_eq!(stage.piped(&["log", "--file", "-"], &lines(3)).0, Some(0));
    }
    let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
    let args = ["follow", "--output", &out, "--once"];
    assert_eq!(stage.run(&args).0, Some(0));
    let (written, kept) = (std::fs::read(&out).unwrap(), std::fs::read_to_string(&cursor).unwrap());
    // Another service has another chain, whatever its events look like.
    let (code, _, noted) = other.run(&args);
    assert!(code == Some(2) && noted.contains("the cursor file belongs to chain"), "{noted}");
    assert!(noted.contains("or another cursor file and output"), "{noted}");
    let newer = kept.replace("\"sealog_follow\":1", "\"sealog_follow\":2");
    assert_ne!(newer, kept);
    for (text, told) in [
        ("", "or remove it and the output to start over"),
        ("{}", "or remove it and the output to start over"),
        ("\u{0}\u{1}", "or remove it and the output to start over"),
        (&kept[..kept.len() / 2], "or remove it and the output to start over"),
        (&newer, "another version of this program (2): use that version"),
    ] {
        std::fs::write(&cursor, text).unwrap();
        let (code, _, noted) = stage.run(&args);
        assert!(code == Some(2) && noted.contains(told) && noted.contains(&cursor), "{text:?}: {noted}");
        assert_eq!(std::fs::read_to_string(&cursor).unwrap(), text, "it stays as it was found");
    }
    assert_eq!(std::fs::read(&out).unwrap(), written);
    std::fs::write(&cursor, &kept).unwrap();
    assert_eq!(stage.run(&args).0, Some(0), "and with its own it goes on");
    let home = stage.home.to_str().unwrap();
    let (code, _, noted) = stage.run(&["follow", "--once", "--cursor-file", home]);
    assert!(code == Some(2) && noted.contains("give another file with --cursor-file"), "{noted}");
    let (code, _, noted) = stage.run(&["follow", "--once", "--output", home]);
    assert!(code == Some(2) && noted.contains("give another file"), "{noted}");
}

#[test]
fn a_service_that_comes_back_without_events_ends_it_with_10() {
    let mut stage = Stage::new();
    let old = copied(&mut stage);
    // Nothing was ever there: there is nothing to do.
    let out = stage.path("out");
    let args = ["follow", "--output", &out, "--once"];
    assert_eq!(stage.run(&args).0, Some(0));
    log(&stage, 4);
    assert_eq!(stage.run(&args).0, Some(0));
    let written = std::fs::read(&out).unwrap();
    taken_back(&mut stage, &old);
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(10) && noted.contains("no events for this key, but it had #4 before"), "{noted}");
    assert_eq!(std::fs::read(&out).unwrap(), written);
}

#[test]
fn a_running_follower_ends_with_10_when_the_chain_has_become_shorter() {
    for filters in FILTERS {
        let mut stage = Stage::new();
        log(&stage, 5);
        let old = copied(&mut stage);
        log(&stage, 5);
        let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
        let child = followed(&stage, &[&["--output", &out, "--retries", "0"][..], filters].concat());
        eventually("it has written everything", || seqs_done(&cursor) == 10);
        let written = std::fs::read(&out).unwrap();
        taken_back(&mut stage, &old);
        let (code, noted) = ended_by_itself(child);
        assert!(code == Some(10) && noted.contains("ends with event #5, but it had #10 before"), "{noted}");
        assert_eq!(std::fs::read(&out).unwrap(), written, "what was written is left alone");
    }
}

#[test]
fn a_running_follower_ends_with_10_when_the_chain_was_taken_back_and_has_grown_past_it() {
    for filters in FILTERS {
        let mut stage = Stage::new();
        log(&stage, 5);
        let old = copied(&mut stage);
        log(&stage, 5);
        let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
        let child = followed(&stage, &[&["--output", &out][..], filters].concat());
        eventually("it has written everything", || seqs_done(&cursor) == 10);
        let written = std::fs::read(&out).unwrap();
        // It sees neither the outage nor the shorter chain: only its own kept connection is gone.
        signal(child.0.id(), "-STOP");
        taken_back(&mut stage, &old);
        log(&stage, 12);
        signal(child.0.id(), "-CONT");
        let (code, noted) = ended_by_itself(child);
        assert!(code == Some(10) && noted.contains("event #10 of the service has changed"), "{noted}");
        assert_eq!(std::fs::read(&out).unwrap(), written, "nothing of the other chain");
    }
}

#[test]
fn a_chain_that_is_taken_back_while_it_is_read_leaves_nothing_of_the_other_one_in_the_file() {
    // The other chain is too short for what is still to be read, or long enough.
    for (filters, grown) in [(FILTERS[0], 0), (FILTERS[0], MANY), (&["--action", "user.login"][..], MANY)] {
        let mut stage = Stage::new();
        log(&stage, 1000);
        let old = copied(&mut stage);
        log(&stage, MANY - 1000);
        let all = all_lines(&stage);
        let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
        let child = followed(&stage, &[&["--output", &out, "--in-flight", "1"][..], filters].concat());
        // What both chains have would let it go on with the other one.
        eventually("it is past what both chains have", || seqs_done(&cursor) > 1000);
        signal(child.0.id(), "-STOP");
        taken_back(&mut stage, &old);
        if grown > 0 {
            log(&stage, grown);
        }
        signal(child.0.id(), "-CONT");
        let (code, noted) = ended_by_itself(child);
        assert_eq!(code, Some(10), "{noted}");
        let written = std::fs::read_to_string(&out).unwrap();
        assert!(!written.is_empty() && all.starts_with(&written), "only what the first chain had");
        assert_eq!(length(&out), bytes_done(&cursor));
    }
}

#[test]
fn a_follower_that_is_asked_to_stop_leaves_the_cursor_at_the_end_of_the_file() {
    let stage = Stage::new();
    log(&stage, MANY);
    let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
    for asked in ["-TERM", "-INT"] {
        let _ = (std::fs::remove_file(&out), std::fs::remove_file(&cursor));
        let mut child = follow(&stage, &["--output", &out, "--in-flight", "1"]);
        eventually("it writes", || length(&out) > 0);
        signal(child.id(), asked);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{asked}");
        assert_eq!(length(&out), bytes_done(&cursor), "{asked}");
        let written = seqs(&std::fs::read_to_string(&out).unwrap());
        assert_eq!(written, (1..=seqs_done(&cursor)).collect::<Vec<_>>(), "{asked}");
    }
    assert_eq!(stage.run(&["follow", "--output", &out, "--once"]).0, Some(0));
    assert!(std::fs::read_to_string(&out).unwrap() == all_lines(&stage));
}

/// As logrotate does it: moves the file away and sends the follower a signal.
#[test]
fn sighup_makes_a_rotating_follower_go_on_in_a_new_file_and_no_event_is_missing_or_there_twice() {
    let stage = Stage::new();
    let (out, moved) = (stage.path("out"), stage.path("moved"));
    log(&stage, 10);
    let mut child = follow(&stage, &["--output", &out, "--rotate", "1G", "--interval", "1"]);
    let written = |path: &str| std::fs::read_to_string(path).unwrap_or_default().lines().count();
    eventually("what is there is written", || written(&out) == 10);
    std::fs::rename(&out, &moved).unwrap();
    signal(child.id(), "-HUP");
    eventually("there is a new file", || Path::new(&out).exists());
    log(&stage, 5);
    eventually("what is new is in the new file", || written(&out) == 5);
    signal(child.id(), "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let both = [&moved, &out].map(|path| std::fs::read_to_string(path).unwrap()).concat();
    assert!(both == all_lines(&stage));
}

#[test]
fn a_quiet_follower_says_that_the_service_is_away_and_no_more() {
    for (flag, talk) in [("--quiet", false), ("--no-input", true)] {
        let mut stage = Stage::new();
        log(&stage, 3);
        let (out, said) = (stage.path("out"), stage.path("said"));
        let mut command = stage.command(&["follow", "--output", &out, "--retries", "0", flag]);
        let mut child = command.stderr(std::fs::File::create(&said).unwrap()).spawn().unwrap();
        let said = || std::fs::read_to_string(&said).unwrap();
        eventually("what is there is written", || length(&out) > 0);
        stage.stop();
        eventually("it says that the service is away", || said().contains("cannot reach"));
        stage.restart();
        log(&stage, 1);
        let written = || std::fs::read_to_string(&out).unwrap().lines().count();
        eventually("what came after the restart is written", || written() == 4);
        signal(child.id(), "-TERM");
        child.wait().unwrap();
        assert_eq!(said().contains("waiting for the service"), talk, "{}", said());
        assert_eq!(said().contains("the service is back"), talk, "{}", said());
    }
}
