//! `sealog log` when it is ended, when its files are damaged or full, and when its input is not what it
//! should be: every line that was read is sealed, kept or named, and the exit code says so.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::stage::*;
use crate::support::*;
use rustix::io::ioctl_fionread;
use sealog_testing::{ends, eventually};

/// A pipe takes them at once, and the command reads as many ahead.
const LINES: usize = 450;

/// A command whose standard input stays open.
fn begun(mut command: Command) -> (Child, ChildStdin) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

/// Gives it text, and waits until it has read it.
fn feed(input: &mut ChildStdin, text: &str) {
    input.write_all(text.as_bytes()).unwrap();
    eventually("it is read", || ioctl_fionread(&*input).unwrap() == 0);
}

/// The number in front of these words.
#[track_caller]
fn number(noted: &str, words: &str) -> usize {
    let numbers = noted.match_indices(words).filter_map(|(at, _)| {
        noted[..at].rsplit(|c: char| c.is_whitespace()).next()?.replace(',', "").parse().ok()
    });
    numbers.last().unwrap_or_else(|| panic!("no number in front of {words:?}: {noted}"))
}

/// Takes connections, and says nothing.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Sends what waits in this spool.
fn send(stage: &Stage, spool: &str) {
    let (code, _, noted) = stage.run(&["spool", "send", "--spool", spool]);
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(files(spool), Vec::<PathBuf>::new());
}

/// Those of a spool, sorted.
fn files(spool: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(spool).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn put(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.path(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_signal_ends_the_reading_and_every_line_that_was_read_is_kept_when_nobody_answers() {
    for in_flight in ["1", "2"] {
        let stage = Stage::new();
        let ((_listener, url), spool) = (silent(), stage.path("spool"));
        let args = ["log", "--file", "-", "--url", &url, "--spool", &spool, "--in-flight", in_flight];
        let (child, mut input) = begun(stage.command(&args));
        feed(&mut input, &(lines(LINES) + r#"{"action":"user.login","actor_id":"half"#));
        signal(child.id(), "-TERM");
        let (code, said, noted) = ended(child.wait_with_output().unwrap());
        assert_eq!((code, said.as_str()), (Some(143), ""), "{noted}");
        assert_eq!(number(&noted, " lines read"), LINES + 1, "{noted}");
        assert_eq!(number(&noted, " of them sealed"), 0, "{noted}");
        assert_eq!(number(&noted, " kept"), LINES, "{noted}");
        assert_eq!(number(&noted, " events wait in"), LINES, "{noted}");
        assert!(noted.contains(&format!("SIGTERM after line {}", LINES + 1)), "{noted}");
        // A line that has no end is no event, and is nowhere else.
        assert!(noted.contains(r#""actor_id":"half"#) && number(&noted, " rejected") == 1, "{noted}");
        send(&stage, &spool);
        let (mut found, mut wanted) = (actors(&stage), expected(LINES));
        // Two that are under way at once may be kept in any order.
        if in_flight == "2" {
            found.sort();
            wanted.sort();
        }
        assert_eq!(found, wanted);
    }
}

#[test]
fn a_signal_ends_the_reading_and_every_line_that_was_read_is_sealed_when_somebody_answers() {
    for (name, number_of) in [("-INT", 2), ("-HUP", 1)] {
        let stage = Stage::new();
        let spool = stage.path("spool");
        let (child, mut input) = begun(stage.command(&["log", "--file", "-", "--spool", &spool]));
        feed(&mut input, &lines(LINES));
        signal(child.id(), name);
        let (code, said, noted) = ended(child.wait_with_output().unwrap());
        assert_eq!(code, Some(128 + number_of), "{noted}");
        assert_eq!(number(&noted, " lines read"), LINES, "{noted}");
        let (sealed, kept) = (number(&noted, " of them sealed"), number(&noted, " kept"));
        assert_eq!((sealed + kept, said.lines().count()), (LINES, sealed), "{noted}");
        // A machine that is busy enough needs longer than it has.
        send(&stage, &spool);
        assert_eq!(actors(&stage), expected(LINES));
    }
}

#[test]
fn a_signal_while_nothing_arrives_ends_it_at_once_and_a_single_event_is_kept_too() {
    let stage = Stage::new();
    let (child, mut input) = begun(stage.command(&["log", "--file", "-"]));
    feed(&mut input, &lines(3));
    eventually("they are sealed", || stage.events().len() == 3);
    signal(child.id(), "-TERM");
    let (code, said, noted) = ended(child.wait_with_output().unwrap());
    assert_eq!((code, said.lines().count()), (Some(143), 3), "{noted}");
    assert!(noted.contains("3 lines read, 3 of them sealed, 0 kept"), "{noted}");

    let ((listener, url), spool) = (silent(), stage.path("spool"));
    let args = ["log", "user.login", "--actor-id", "u3", "--url", &url, "--spool", &spool];
    let (child, _input) = begun(stage.command(&args));
    // It is on its way.
    let (_connection, _) = listener.accept().unwrap();
    signal(child.id(), "-TERM");
    let (code, _, noted) = ended(child.wait_with_output().unwrap());
    assert_eq!(code, Some(143), "{noted}");
    assert!(noted.contains("1 event waits in"), "{noted}");
    send(&stage, &spool);
    assert_eq!(actors(&stage), expected(4));
}

#[test]
fn log_ids_are_printed_while_the_next_line_is_waited_for() {
    let stage = Stage::new();
    let (mut child, mut input) = begun(stage.command(&["log", "--file", "-"]));
    feed(&mut input, &lines(1));
    // The pipe stays open and silent.
    let (mut said, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    let line = ends("a log_id is printed", move || {
        said.read_line(&mut line).unwrap();
        line
    });
    assert_eq!(line.trim(), stage.events()[0]["log_id"].as_str().unwrap());
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_waits_in_the_spool_is_sent_while_the_input_is_silent() {
    let mut stage = Stage::new();
    let spool = stage.path("spool");
    stage.stop();
    let args = ["log", "--file", "-", "--spool", &spool, "--retries", "0"];
    assert_eq!(stage.piped(&args, &lines(3)).0, Some(5));
    // No server answers when it starts, and nothing arrives on its input.
    let (mut child, input) = begun(stage.command(&args));
    let mut noted = BufReader::new(child.stderr.take().unwrap());
    let noted = ends("it says that nobody answers", move || {
        let mut line = String::new();
        noted.read_line(&mut line).unwrap();
        (line, noted)
    });
    assert!(noted.0.contains("cannot reach"), "{}", noted.0);
    stage.restart();
    eventually("the events of the spool are sealed", || stage.events().len() == 3);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(files(&spool), Vec::<PathBuf>::new());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let stage = Stage::new();
    let (_listener, url) = silent();
    let (mut child, mut input) = begun(stage.command(&["log", "--file", "-", "--url", &url]));
    feed(&mut input, &lines(10));
    signal(child.id(), "-TERM");
    let mut noted = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    noted.read_line(&mut line).unwrap();
    assert!(line.contains("a second signal"), "{line}");
    signal(child.id(), "-INT");
    noted.read_to_string(&mut line).unwrap();
    assert!(line.contains("stopped at once") && !line.contains("lines read"), "{line}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_signal_that_it_was_started_to_ignore_is_ignored() {
    let stage = Stage::new();
    let plain = stage.command(&["log", "--file", "-"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", SEALOG]).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (child, mut input) = begun(command);
    let all = lines(20);
    let (first, second) = all.split_at(all.len() / 2);
    feed(&mut input, first);
    signal(child.id(), "-HUP");
    feed(&mut input, second);
    drop(input);
    let (code, _, noted) = ended(child.wait_with_output().unwrap());
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert_eq!(actors(&stage), expected(20));
}

#[test]
fn output_that_nobody_reads_does_not_keep_a_stopped_command() {
    let stage = Stage::new();
    let (file, spool) = (put(&stage, "input", &lines(3000)), stage.path("spool"));
    let (mut child, _input) = begun(stage.command(&["log", "--file", &file, "--spool", &spool]));
    // A pipe has room for 16 writes of the log_ids of a batch.
    eventually("the pipe is full", || stage.events().len() >= 1600);
    signal(child.id(), "-TERM");
    let code = child.wait().unwrap().code();
    let mut noted = String::new();
    child.stderr.take().unwrap().read_to_string(&mut noted).unwrap();
    assert_eq!(code, Some(1), "{noted}");
    assert!(
        noted.contains("no process reads it") && number(&noted, " sealed events were not printed") > 0,
        "{noted}"
    );
    if Path::new(&spool).exists() {
        send(&stage, &spool);
    }
    assert_eq!(actors(&stage), expected(3000));
}

#[test]
fn events_of_a_key_that_is_not_accepted_are_kept_and_no_other_key_sends_them_unasked() {
    let stage = Stage::new();
    let mut command = stage.command(&["log", "--file", &put(&stage, "input", &lines(150))]);
    let wrong = command.env("SEALOG_API_KEY", format!("{}x", stage.key)).output().unwrap();
    let (code, said, noted) = ended(wrong);
    assert_eq!((code, said.as_str()), (Some(3), ""), "{noted}");
    assert!(noted.contains("auth/key_not_found") && noted.contains("150 events wait in"), "{noted}");
    assert_eq!(stage.events().len(), 0);

    let (code, _, noted) = stage.run(&["log", "user.login", "--actor-id", "right"]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(noted.contains("150 events wait in") && noted.contains("kept with another key"), "{noted}");
    assert_eq!(actors(&stage), ["right"]);
    // As it is told.
    let (_, advice) = noted.split_once("sealog spool send --spool '").unwrap();
    send(&stage, advice.split_once('\'').unwrap().0);
    assert_eq!(actors(&stage)[1..], expected(150));
    let (code, _, noted) = stage.run(&["log", "user.login"]);
    assert_eq!((code, noted.as_str()), (Some(0), ""));
}

#[test]
fn a_damaged_spool_blocks_nothing_and_what_is_damaged_is_set_aside() {
    let mut stage = Stage::new();
    stage.stop();
    let spool = stage.path("spool");
    let args = ["log", "--file", "-", "--retries", "0", "--spool", &spool];
    assert_eq!(stage.piped(&args, &lines(300)).0, Some(5));
    let file = files(&spool).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let damaged = text.lines().find(|line| line.contains("\"u150\"")).unwrap();
    let torn = "deadbeef E 301 17";
    std::fs::write(&file, text.replacen(damaged, &damaged.replace("u150", "u15x"), 1) + torn).unwrap();
    stage.restart();

    // The events before the damage may have been sent.
    let (code, said, noted) = stage.run(&["log", "user.login", "--actor-id", "u300", "--spool", &spool]);
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{noted}");
    assert!(noted.contains("are damaged; copied to") && noted.contains("150 events wait in"), "{noted}");
    assert!(noted.contains("sent 149 events from the spool"), "{noted}");
    let mut all = expected(301).split_off(151);
    assert_eq!(actors(&stage), all);
    let aside = format!("{}.damaged", file.display());
    let set_aside = format!("{}\n{torn}", damaged.replace("u150", "u15x"));
    assert_eq!(std::fs::read_to_string(&aside).unwrap(), set_aside);
    // Someone decides that twice is better than not at all.
    let (_, _, noted) = stage.run(&["spool", "send", "--held", "--spool", &spool]);
    assert!(noted.contains("sent 150 events from the spool") && !noted.contains("wait in"), "{noted}");
    all.extend(expected(150));
    assert_eq!(actors(&stage), all);
    assert_eq!(files(&spool), [PathBuf::from(aside)], "what was sent is forgotten");
    let (code, _, noted) = stage.run(&["log", "user.login", "--spool", &spool]);
    assert_eq!((code, noted.as_str()), (Some(0), ""));
}

#[test]
fn events_survive_a_kill_and_a_batch_that_was_first_sent_a_day_ago_is_held_until_someone_decides() {
    let stage = Stage::new();
    let ((listener, url), spool) = (silent(), stage.path("spool"));
    let (mut child, mut input) =
        begun(stage.command(&["log", "--file", "-", "--url", &url, "--spool", &spool]));
    feed(&mut input, &lines(150));
    // The first batch is on its way, the others are not.
    let (_connection, _) = listener.accept().unwrap();
    let written = || files(&spool).first().and_then(|file| std::fs::read_to_string(file).ok());
    eventually("all lines are in the spool", || written().is_some_and(|text| text.contains("\"u149\"")));
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, said, _) = stage.run(&["spool", "list", "--spool", &spool, "--json"]);
    assert_eq!(code, Some(0));
    let listed: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&listed["events"], &listed["in_use"]), (&150.into(), &false.into()), "{said}");

    // As it would be after a day.
    let file = files(&spool).remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let batch = text.lines().find(|line| line[9..].starts_with("B ")).unwrap();
    let ms = batch.split(' ').nth(4).unwrap();
    let earlier = (ms.parse::<u64>().unwrap() - 86_400_000).to_string();
    let aged = batch[9..].replacen(ms, &earlier, 1);
    let aged = format!("{:08x} {aged}", crc32fast::hash(aged.as_bytes()));
    std::fs::write(&file, text.replacen(batch, &aged, 1)).unwrap();
    let (code, _, noted) = stage.run(&["spool", "send", "--spool", &spool]);
    assert_eq!(code, Some(1), "{noted}");
    assert!(noted.contains("100 events wait in") && noted.contains("sealog spool drop"), "{noted}");
    assert_eq!(actors(&stage), expected(150)[100..]);

    // Nothing is discarded that nobody has confirmed, or that nobody can read.
    let drop = ["spool", "drop", "--held", "--spool", &spool];
    let (code, said, noted) = stage.run(&drop);
    assert_eq!((code, said.as_str()), (Some(2), ""), "{noted}");
    let yes = [&drop[..], &["--yes"]].concat();
    let (code, _, noted) = ended(stage.command(&yes).stdout(full()).output().unwrap());
    assert_eq!(code, Some(1), "{noted}");
    let (code, said, noted) = stage.run(&yes);
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(said, lines(100), "as they were read");
    assert_eq!(files(&spool), Vec::<PathBuf>::new());
    assert_eq!(stage.run(&["spool", "send", "--spool", &stage.path("none")]).0, Some(4));
}

#[test]
fn output_that_cannot_be_written_ends_it_when_everything_that_was_read_is_sealed() {
    let stage = Stage::new();
    let file = put(&stage, "input", &lines(250));
    let (code, _, noted) = ended(stage.command(&["log", "--file", &file]).stdout(full()).output().unwrap());
    assert_eq!(code, Some(1), "{noted}");
    assert!(noted.contains("cannot write the output"), "{noted}");
    assert_eq!(number(&noted, " sealed events were not printed"), 250, "{noted}");
    assert_eq!(actors(&stage), expected(250));
    // Whoever has closed a pipe has seen enough, and has not asked for fewer events.
    let (mut child, input) = begun(stage.command(&["log", "--file", &file]));
    drop((input, child.stdout.take()));
    let (code, _, noted) = ended(child.wait_with_output().unwrap());
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert_eq!(stage.events().len(), 500);
}

#[test]
fn a_file_of_rejects_that_cannot_be_written_ends_it_when_everything_that_was_read_is_sealed() {
    let stage = Stage::new();
    let file = put(&stage, "input", &format!("no event\n{}", lines(250)));
    let (code, said, noted) = stage.run(&["log", "--file", &file, "--rejects", "/dev/full"]);
    assert_eq!((code, said.lines().count()), (Some(1), 250), "{noted}");
    assert!(noted.contains("cannot write /dev/full"), "{noted}");
    assert_eq!(actors(&stage), expected(250));
}

#[test]
fn where_nobody_can_be_told_events_are_kept_all_the_same() {
    let mut stage = Stage::new();
    stage.stop();
    let (file, spool) = (put(&stage, "input", &lines(250)), stage.path("spool"));
    let mut command = stage.command(&["log", "--file", &file, "--retries", "0", "--spool", &spool]);
    assert_eq!(command.stderr(full()).status().unwrap().code(), Some(5));
    stage.restart();
    send(&stage, &spool);
    assert_eq!(actors(&stage), expected(250));
}

#[test]
fn many_lines_that_are_not_taken_are_counted_by_code_and_all_of_them_are_kept_for_those_who_ask() {
    let stage = Stage::new();
    let mut input: Vec<String> =
        (0..300).map(|n| format!("{{\"action\":\"no.such\",\"actor_id\":\"u{n}\"}}")).collect();
    input[150] = "not JSON".into();
    input[151] = format!("{{\"action\":\"{}\"}}", "x".repeat(5 << 20));
    let file = put(&stage, "input", &(input.join("\n") + "\n" + &lines(1)));
    let (code, _, noted) = stage.run(&["log", "--file", &file]);
    assert_eq!(code, Some(6), "{noted}");
    assert_eq!(noted.matches("sealog: line ").count(), 10, "{noted}");
    let summary = "300 lines were rejected: 298 action/invalid, 2 no event; use --rejects FILE to save them";
    assert!(noted.contains(summary) && noted.lines().count() < 60, "{noted}");
    assert_eq!(actors(&stage), expected(1));

    let rejects = stage.path("rejects");
    let (_, _, noted) = stage.run(&["log", "--file", &file, "--rejects", &rejects]);
    assert!(noted.contains(&format!("2 no event; saved in {rejects}")), "{noted}");
    let text = std::fs::read_to_string(&rejects).unwrap();
    let mut kept: Vec<&str> = text.lines().collect();
    kept.sort_unstable();
    input.sort_unstable();
    assert!(kept == input, "as they were read, however long");
}

#[test]
fn values_that_are_not_what_a_flag_takes_are_refused_and_nothing_is_sent() {
    let stage = Stage::new();
    for (flag, value, wanted) in [
        ("--severity", "high", "info, warning, warn, critical"),
        ("--ts-client", "yesterday", "ISO 8601"),
        ("--ts-client", "2026-11-14T12:00:01", "ISO 8601"),
        ("--actor-id", "", "needs a value"),
        ("--resource", "", "needs a value"),
    ] {
        let (code, _, noted) = stage.run(&["log", "user.login", flag, value]);
        assert_eq!(code, Some(2), "{flag} {value}: {noted}");
        assert!(noted.contains(flag) && noted.contains(wanted), "{noted}");
    }
    let (_, listed, _) = stage.run(&["events", "list"]);
    assert_eq!(listed, "");
    let fine = ["log", "user.login", "--severity", "critical", "--ts-client", "2026-11-14T12:00:01+01:00"];
    assert_eq!(stage.run(&fine).0, Some(0));
}

#[test]
fn a_json_array_and_indented_objects_are_events_as_well() {
    let mut stage = Stage::new();
    let array: Vec<String> = lines(120).lines().map(str::to_owned).collect();
    let array = format!("[{}]\n", array.join(","));
    let (code, said, noted) = stage.piped(&["log", "--file", "-"], &array);
    assert_eq!((code, said.lines().count(), noted.as_str()), (Some(0), 120, ""));
    assert_eq!(actors(&stage), expected(120));
    // One that is laid out over several lines is one line of the spool.
    stage.stop();
    let indented = "{\n  \"action\": \"user.login\",\n  \"actor_id\": \"u120\"\n}\n".to_owned();
    let args = ["log", "--file", "-", "--retries", "0", "--json"];
    assert_eq!(stage.piped(&args, &(indented.clone() + &indented.replace("u120", "u121"))).0, Some(5));
    stage.restart();
    let (code, said, noted) = stage.piped(&args, &indented.replace("u120", "u122"));
    assert_eq!(code, Some(0), "{noted}");
    assert!(said.starts_with("{\"line\":1,"), "{said}");
    assert_eq!(actors(&stage), expected(123));
    let (code, _, noted) = stage.piped(&["log", "--file", "-"], &format!("[{},\n7]", lines(1).trim()));
    assert_eq!((code, stage.events().len()), (Some(1), 124), "{noted}");
    assert!(noted.contains("line 2 has '7'") && noted.contains("jq -c"), "{noted}");
}

#[test]
fn progress_is_shown_on_a_terminal_while_the_output_goes_elsewhere() {
    let stage = Stage::new();
    let (file, out) = (put(&stage, "input", &lines(2000)), stage.path("out"));
    let shown = |more: &str| {
        let plain = stage.command(&[]);
        let mut command = Command::new("script");
        command.args(["-qec", &format!("'{SEALOG}' log --file '{file}' {more} > '{out}'"), "/dev/null"]);
        for (name, value) in plain.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        let (code, said, _) = ended(command.env("TERM", "xterm").stdin(Stdio::null()).output().unwrap());
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let said = shown("");
    assert!(said.contains("Logging ") && said.contains(" events, ") && said.contains(" of "), "{said:?}");
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 2000);
    // Nothing of it is left: the last that is done to the line is to clear it.
    assert!(said.trim_end().ends_with("\u{1b}[2K"), "{said:?}");
    assert_eq!(shown("--quiet"), "");
}

#[test]
fn what_is_kept_is_synced_with_its_name_and_the_directories_made_for_it() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("strace is not installed: this test was not run");
        return;
    }
    let mut stage = Stage::new();
    stage.stop();
    let (trace, dir) = (stage.path("trace"), stage.path("deep/deeper"));
    let spool = format!("{dir}/spool");
    let plain = stage.command(&["log", "user.login", "--retries", "0", "--spool", &spool]);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync", "-o", &trace, SEALOG]);
    command.args(plain.get_args());
    for (name, value) in plain.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    assert_eq!(command.status().unwrap().code(), Some(5));
    // Results stand in a column of their own.
    let trace = std::fs::read_to_string(trace).unwrap().replace(")   = 0", ") = 0");
    let position = |path: &str| {
        let synced = format!("<{path}>) = 0");
        trace.find(&synced).unwrap_or_else(|| panic!("{path} is not synced: {trace}"))
    };
    let home = stage.home.to_str().unwrap();
    assert!(position(home) < position(&stage.path("deep")), "{trace}");
    assert!(position(&stage.path("deep")) < position(&dir), "{trace}");
    let file = files(&spool).remove(0).to_str().unwrap().to_owned();
    assert!(position(&file) < position(&spool), "{trace}");
}
