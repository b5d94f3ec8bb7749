//! The commands as a person sees them, on a pseudoterminal: tables, colours, progress and questions are for
//! people; what goes into a pipe is data.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::stage::*;
use crate::support::{SEALOG, clean, data_dir, ended, first_key, sealog, serving, start};
use crate::trust::{copy_of, rolled_back, serve_files};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sealog_testing::postgres;

/// What became of a command on a terminal.
struct Shown {
    code: Option<i32>,
    /// Everything that a person has seen: both outputs, and what was typed where it is echoed.
    text: String,
}

/// Runs a command with all three streams on a terminal, and types a line when it asks.
fn on_a_terminal(mut command: Command, question: &str, typed: &str) -> Shown {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let stream = || Stdio::from(line.try_clone().unwrap());
    command.stdin(stream()).stdout(stream()).stderr(stream()).env("TERM", "xterm-256color");
    let mut child = command.spawn().unwrap();
    // Only the command has the line now: when it ends, reading does.
    drop((command, line));
    let mut terminal = File::from(terminal);
    let mut reading = terminal.try_clone().unwrap();
    let (sender, pieces) = mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = reading.read(&mut piece) {
            let _ = sender.send(piece[..length].to_vec());
        }
    });
    let (mut text, mut is_asked) = (Vec::new(), question.is_empty());
    while let Ok(piece) = pieces.recv_timeout(Duration::from_secs(60)) {
        text.extend_from_slice(&piece);
        if !is_asked && String::from_utf8_lossy(&text).contains(question) {
            terminal.write_all(typed.as_bytes()).unwrap();
            is_asked = true;
        }
    }
    let code = child.wait().unwrap().code();
    Shown { code, text: String::from_utf8_lossy(&text).into_owned() }
}

const COLOUR: &str = "\u{1b}[3";

#[test]
fn lists_are_tables_with_headings_on_a_terminal_and_lines_with_tabs_in_a_pipe() {
    let stage = Stage::new();
    stage.piped(&["log", "--file", "-"], &lines(3));
    for (list, heading) in [(["events", "list"], "log_id"), (["actions", "list"], "category")] {
        let shown = on_a_terminal(stage.command(&list), "", "");
        assert_eq!(shown.code, Some(0), "{}", shown.text);
        let first = shown.text.lines().next().unwrap().to_lowercase();
        assert!(first.contains(heading) && !shown.text.contains('\t'), "{}", shown.text);
        let (_, piped, _) = stage.run(&list);
        let first = piped.lines().next().unwrap().to_lowercase();
        assert!(first.contains('\t') && !first.contains(heading), "{piped}");
        assert!(!piped.contains('\u{1b}'));
    }
}

#[test]
fn colours_are_for_a_terminal_and_no_color_takes_them_away() {
    let (_dir, data) = data_dir();
    let check = |no_color: Option<&str>| {
        let mut command = sealog();
        command.args(["check", "--offline", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
        command
    };
    for (no_color, is_coloured) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let shown = on_a_terminal(check(no_color), "", "");
        assert_eq!(shown.text.contains(COLOUR), is_coloured, "{no_color:?}: {}", shown.text);
    }
    let piped = check(None).output().unwrap().stdout;
    assert!(!piped.is_empty() && !piped.contains(&0x1b));
}

#[test]
fn progress_is_drawn_on_a_terminal_only_and_never_among_the_data() {
    let stage = Stage::new();
    stage.piped(&["log", "--file", "-"], &lines(300));
    let (shown, piped) = (stage.path("shown"), stage.path("piped"));
    let on_terminal = on_a_terminal(stage.command(&["export", "--output", &shown]), "", "");
    assert_eq!(on_terminal.code, Some(0), "{}", on_terminal.text);
    assert!(on_terminal.text.contains("Exporting") && on_terminal.text.contains("exported 300 events"));
    let (code, said, noted) = stage.run(&["export", "--output", &piped]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(!noted.contains("Exporting") && noted.contains("exported 300 events"), "{noted}");
    assert_eq!(std::fs::read(shown).unwrap(), std::fs::read(piped).unwrap());
}

/// Runs a command on a terminal, with and without `--quiet`. `NEW` among its arguments is another name each
/// time. Only work whose end is known says how long it will take.
fn shows(stage: &Stage, args: &[&str], env: &[(&str, &str)], doing: &str, left: bool) {
    for quiet in [None, Some("--quiet")] {
        let made = stage.path(&format!("made-{}", std::fs::read_dir(stage.path("")).unwrap().count()));
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "NEW" { &*made } else { *arg }).collect();
        let mut command = stage.command(&[&args[..], quiet.as_slice()].concat());
        command.env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN).envs(env.iter().copied());
        let shown = on_a_terminal(command, "", "");
        assert_eq!(shown.code, Some(0), "{args:?}: {}", shown.text);
        assert_eq!(shown.text.contains(doing), quiet.is_none(), "{args:?} {quiet:?}: {}", shown.text);
        assert_eq!(shown.text.contains(" left"), left && quiet.is_none(), "{args:?}: {}", shown.text);
    }
}

#[test]
fn work_that_may_take_long_shows_how_far_it_is_unless_it_is_quiet() {
    let mut stage = Stage::new();
    let file = stage.path("events.ndjson");
    std::fs::write(&file, lines(300)).unwrap();
    let shows = |stage: &Stage, args: &[&str], doing: &str| shows(stage, args, &[], doing, true);
    shows(&stage, &["import", &file], "Importing");
    let tenant = stage.events()[0]["tenant_id"].as_str().unwrap().to_owned();
    let data = stage.data.to_str().unwrap().to_owned();
    let archive = stage.path("archive.tar");
    shows(&stage, &["tenant", "export", &tenant, "--output", "NEW", "--data-dir", &data], "Exporting");
    let args = ["tenant", "export", &tenant, "--output", &archive, "--data-dir", &data];
    assert_eq!(stage.run(&args).0, Some(0));
    shows(&stage, &["tenant", "verify", &archive], "Verifying");
    stage.stop();
    let mut command = sealog();
    command.args(["serve", "--listen", &stage.address, "--replication-enabled", "true", "--data-dir", &data]);
    command.env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN);
    stage.server = Some(start(command));
    let url = format!("http://{}", stage.address);
    shows(&stage, &["replicate", "--once", "--from", &url, "--to", "NEW"], "Copying");
    stage.stop();
    shows(&stage, &["copy", "--from", &data, "--to", "NEW"], "Copying");
}

#[test]
fn work_on_backups_and_spools_shows_how_far_it_is_unless_it_is_quiet() {
    let mut stage = Stage::new();
    let file = stage.path("events.ndjson");
    std::fs::write(&file, lines(300)).unwrap();
    assert_eq!(stage.run(&["import", &file]).0, Some(0));
    stage.stop();
    assert_eq!(stage.piped(&["log", "--file", "-", "--retries", "0"], &lines(300)).0, Some(5));
    stage.restart();
    let shows = |stage: &Stage, args: &[&str], doing: &str| shows(stage, args, &[], doing, true);
    shows(&stage, &["spool", "send"], "Sending");
    shows(&stage, &["verify", "--all"], "Verifying");
    assert_eq!(stage.events().len(), 600);
    stage.stop();
    let (data, backups) = (stage.data.to_str().unwrap().to_owned(), stage.path("backups"));
    shows(&stage, &["backup", "create", "--data-dir", &data, &backups], "Copying");
    shows(&stage, &["backup", "verify", &backups], "Verifying");
    for doing in ["Verifying", "Restoring"] {
        shows(&stage, &["restore", "--from", &backups, "--to", "NEW"], doing);
    }
    let (promoted, file) = (stage.path("promoted"), stage.path("only-old"));
    for doing in ["Verifying", "Restoring"] {
        shows(&stage, &["replicate", "--promote", "NEW", "--to", &backups], doing);
    }
    let recover = ["restore", "--from", &backups, "--to", "NEW", "--old-data", &data, "--recover-tail"];
    shows(&stage, &recover, "Reading the old log");
    assert_eq!(stage.run(&["replicate", "--promote", &promoted, "--to", &backups]).0, Some(0));
    let diverge =
        ["replicate", "--divergence", &file, "--to", &backups, "--old-data", &data, "--data", &promoted];
    shows(&stage, &diverge, "Reading the old log");
    shows(&stage, &["verify", "--data", &data], "Comparing indexes");
    // The newest of the last hour stays; that is known to be whole.
    shows(&stage, &["backup", "prune", "--keep-hourly", "1", &backups], "Removing");
}

#[test]
fn a_restore_from_a_stream_shows_how_much_it_has_read_unless_it_is_quiet() {
    let mut stage = Stage::new();
    stage.piped(&["log", "--file", "-"], &lines(300));
    stage.stop();
    let data = stage.data.to_str().unwrap().to_owned();
    let stream = stage.path("stream");
    let made = stage.command(&["backup", "create", "--data-dir", &data, "-"]).output().unwrap();
    std::fs::write(&stream, made.stdout).unwrap();
    let of_file = "exec \"$0\" restore --from - --to \"$1\" $2 <\"$3\"";
    let of_pipe = "cat \"$3\" | \"$0\" restore --from - --to \"$1\" $2";
    // Of a pipe nothing says how much is to come, so it shows no time left. The rest of a restore does.
    for (how, quiet, left) in [(of_file, "", true), (of_pipe, "", false), (of_file, "--quiet", false)] {
        let to = stage.path(&format!("streamed-{left}{quiet}"));
        let mut command = clean(Command::new("sh"));
        command.args(["-c", how, SEALOG, &to, quiet, &stream]);
        let shown = on_a_terminal(command, "", "");
        assert_eq!(shown.code, Some(0), "{}", shown.text);
        let unpacking: Vec<&str> = shown.text.split('\r').filter(|text| text.contains("Unpacking")).collect();
        assert_eq!(unpacking.is_empty(), !quiet.is_empty(), "{}", shown.text);
        let shows_left = unpacking.iter().any(|text| text.contains(" left"));
        assert_eq!(shows_left, left, "{how}: {unpacking:?}");
    }
}

#[test]
fn a_recovery_of_the_signed_log_shows_how_far_it_is_unless_it_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let (data, state_copy, kept, _) = rolled_back(dir.path());
    let from = serve_files(&kept);
    for quiet in [None, Some("--quiet")] {
        // Each recovers a store of its own, which no server has open.
        let of = |path: &Path| {
            let own = dir.path().join(format!("{}-{}", path.file_name().unwrap().display(), quiet.is_none()));
            copy_of(path, &own);
            own
        };
        let mut command = sealog();
        command.args(["trust", "recover", "--from", &from, "--reason", "disk a7 failed"]).args(quiet);
        command.arg("--data-dir").arg(of(&data)).arg("--trust-state-copy").arg(of(&state_copy));
        let shown = on_a_terminal(command, "", "");
        assert_eq!(shown.code, Some(0), "{}", shown.text);
        for said in ["Fetching", " of 2 files", " left", "Adding what is missing"] {
            assert_eq!(shown.text.contains(said), quiet.is_none(), "{said}: {}", shown.text);
        }
        assert!(shown.text.contains("signing"), "the outcome is no progress: {}", shown.text);
    }
}

#[test]
fn work_on_a_database_shows_that_it_goes_on_unless_it_is_quiet() {
    let stage = Stage::new();
    let database = postgres::cluster().database();
    let (url, dir) = (database.url(), stage.path("database"));
    let env = [("SEALOG_STORE", &*url)];
    shows(&stage, &["migrate"], &env, "Updating the schema", false);
    let mut command = serving(sealog(), Path::new(&dir));
    command.env("SEALOG_STORE", &url);
    let server = start(command);
    assert_eq!(server.post(&first_key(Path::new(&dir))).0, 202);
    server.await_drained();
    server.stop();
    let heads = stage.path("heads");
    let (code, _, error) = ended(sealog().args(["backup", "heads", &heads]).envs(env).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    shows(&stage, &["restore", "check", "--heads", &heads], &env, "Verifying", true);
}

#[test]
fn a_key_is_asked_for_on_a_terminal_and_what_is_typed_is_not_shown() {
    let stage = Stage::new();
    stage.piped(&["log", "--file", "-"], &lines(1));
    let keyless = |args: &[&str]| {
        let mut command = stage.command(args);
        command.env_remove("SEALOG_API_KEY").env_remove("SEALOG_OPERATOR_TOKEN");
        command
    };
    let typed = format!("{}\n", stage.key);
    let shown = on_a_terminal(keyless(&["events", "list"]), "API key: ", &typed);
    assert!(shown.code == Some(0) && shown.text.contains("user.login"), "{}", shown.text);
    assert!(!shown.text.contains(&stage.key), "{}", shown.text);
    // Nobody is asked where that is forbidden, or where there is nobody.
    let refused = on_a_terminal(keyless(&["events", "list", "--no-input"]), "", "");
    assert!(refused.code == Some(3) && refused.text.contains("SEALOG_API_KEY"), "{}", refused.text);
    assert_eq!(keyless(&["events", "list"]).output().unwrap().status.code(), Some(3));
    // Kept for the next time, for nobody else.
    let kept = on_a_terminal(keyless(&["login"]), "API key for ", &typed);
    assert!(kept.code == Some(0) && !kept.text.contains(&stage.key), "{}", kept.text);
    assert_eq!(keyless(&["events", "list"]).output().unwrap().status.code(), Some(0));
    let operator = format!("{OPERATOR_TOKEN}\n");
    let shown = on_a_terminal(keyless(&["admin", "tenant", "list"]), "Operator token: ", &operator);
    assert!(shown.code == Some(0) && !shown.text.contains(OPERATOR_TOKEN), "{}", shown.text);
}
