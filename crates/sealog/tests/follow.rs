//! `sealog follow`: each event once and in order, whatever happens to the command or the service.

#[path = "follow/formats.rs"]
mod formats;
mod support;

use std::process::{Child, Stdio};

use sealog_testing::dice::{Dice, seed};
use sealog_testing::eventually;
use serde_json::Value;
use support::stage::*;
use support::*;

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

fn length(path: &str) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[test]
fn a_follower_that_is_killed_at_random_moments_has_each_event_once_and_in_order() {
    let stage = Stage::new();
    let mut dice = Dice::new(seed("follow"));
    let (out, cursor) = (stage.path("out"), stage.path("out.cursor"));
    let (mut kills, mut cuts, mut events) = (0, 0, 0);
    for round in 0..12 {
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
    // The test chain is empty: nothing can be said of it, and nothing is written.
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    let mut logged = stage.command(&["log", "user.login"]);
    assert_eq!(logged.env("SEALOG_API_KEY", stage.test_key()).output().unwrap().status.code(), Some(0));
    let mut other = stage.command(&args);
    let (code, _, noted) = ended(other.env("SEALOG_API_KEY", stage.test_key()).output().unwrap());
    assert!(code == Some(2) && noted.contains("the cursor file is of the chain"), "{noted}");
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

#[test]
fn a_service_that_comes_back_with_a_shorter_or_another_chain_ends_it_with_10() {
    let mut stage = Stage::new();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(5)).0, Some(0));
    stage.stop();
    let old = stage.home.join("old");
    let copied = std::process::Command::new("cp").arg("-a").arg(&stage.data).arg(&old).status().unwrap();
    assert!(copied.success());
    stage.restart();
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(5)).0, Some(0));
    let out = stage.path("out");
    let args = ["follow", "--output", &out, "--once"];
    assert_eq!(stage.run(&args).0, Some(0));
    let written = std::fs::read(&out).unwrap();
    stage.stop();
    std::fs::remove_dir_all(&stage.data).unwrap();
    std::fs::rename(&old, &stage.data).unwrap();
    stage.restart();
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(10) && noted.contains("ends with event #5, and #10 was written"), "{noted}");
    assert_eq!(stage.piped(&["log", "--file", "-"], &lines(7)).0, Some(0));
    let (code, _, noted) = stage.run(&args);
    assert!(code == Some(10) && noted.contains("another event #10"), "{noted}");
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
    assert!(code == Some(2) && noted.contains("the cursor file is of the chain"), "{noted}");
    assert!(noted.contains("or another cursor file and output"), "{noted}");
    let newer = kept.replace("\"sealog_follow\":1", "\"sealog_follow\":2");
    assert_ne!(newer, kept);
    for (text, told) in [
        ("", "or remove it and the output to begin again"),
        ("{}", "or remove it and the output to begin again"),
        ("\u{0}\u{1}", "or remove it and the output to begin again"),
        (&kept[..kept.len() / 2], "or remove it and the output to begin again"),
        (&newer, "another version of this program (2): use that one"),
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
    assert!(code == Some(2) && noted.contains("name another file with --cursor-file"), "{noted}");
    let (code, _, noted) = stage.run(&["follow", "--once", "--output", home]);
    assert!(code == Some(2) && noted.contains("name another file"), "{noted}");
}
