//! `sealog backup create`.

use std::collections::HashSet;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_store::world::{SystemWorld, World};
use serde_json::json;

use super::flags::{EXIT_CODES, dir_argument, json_flag, quiet_flag};
use super::make::{Made, make};
use super::manifest::{CONTROL, refuse_other_store};
use super::moment::Moment;
use super::place::{Keeper, Place};
use super::progress::Progress;
use super::source::{DataDir, Unread};
use super::target::{IntoPlace, IntoStream, Pace};
use crate::admin::client::{self, OTHER_ANSWER};
use crate::admin::moment;
use crate::admin::operations::{Answer, Request};
use crate::cli::exit::Failure;
use crate::config::{self, Settings};
use crate::store;

/// How often segments of test events may be dropped while they are copied.
const TRIES: usize = 5;
/// Behind everything that answers requests.
const NICENESS: i32 = 19;

pub(super) fn command() -> Command {
    config::with_flags(
        Command::new("create")
            .about("Back up the embedded store, with its server running or stopped")
            .long_about(
                "Back up the embedded store of a data directory, with its server running or stopped.\n\n\
                 A backup holds everything that was durable at one moment: the logs of live and test events, \
                 control data (tenants, keys, people, settings) and the secrets beside them. It gives access \
                 to every event, so protect it like the store.\n\n\
                 DIR holds any number of backups of one store. They share the segments of the log, so a \
                 second backup copies only new data. An interrupted backup does not damage earlier ones. \
                 With - instead of DIR, the command writes one complete backup to standard output as a tar \
                 stream, which `sealog restore --from -` reads; it first copies the control data into the \
                 directory for temporary files (TMPDIR).\n\n\
                 The command writes nothing to the disk of the store, so you can back up a store whose disk \
                 is full.\n\n\
                 The command runs at the lowest priority, uses the disk at most half of the time, and pauses \
                 longer while the processors are busy; --fast turns this off. Run it as the user of the \
                 server, or as root.",
            ),
    )
    .after_help(EXIT_CODES)
    .arg(dir_argument("The backup directory, or - for a stream on standard output"))
    .arg(Arg::new("fast").long("fast").action(ArgAction::SetTrue).help("Run at full speed (no throttling)"))
    .arg(json_flag())
    .arg(quiet_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let to = matches.get_one::<String>("dir").expect("clap asks for it").as_str();
    let settings = config::load(matches, std::env::vars())?;
    if settings.store != store::Place::Embedded {
        return Err(Failure::usage(
            "this store is a database: back it up with its own tools, and record its heads with `sealog backup heads` (docs/operating.md)",
        ));
    }
    let pace = Pace { gentle: !matches.get_flag("fast") };
    if pace.gentle {
        // Without it everything works as well, only less evenly.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
    let is_quiet = matches.get_flag("quiet");
    let progress = Progress::new("Copying", is_quiet);
    let made = if to == "-" {
        if stdout().is_terminal() {
            let terminal = "standard output is a terminal; redirect the stream to a file or a program";
            return Err(Failure::usage(terminal));
        }
        let mut target = IntoStream::begin(stdout().lock(), pace)?;
        // A stream has no place for it.
        let mut random = [0; 8];
        SystemWorld.fill_random(&mut random);
        let copy = std::env::temp_dir().join(format!("sealog-{:016x}.db", u64::from_le_bytes(random)));
        let (source, moment) = take(&settings, &copy)?;
        let made = make(&source, &moment, &mut target, &[], SystemWorld.now_ms(), &progress);
        made.map_err(|unread| match unread {
            Unread::Failed(problem) => problem,
            Unread::Gone => "old test events were deleted during the copy; try again".into(),
        })?
    } else {
        let place = Place::create(Path::new(to), Keeper::Backups)?;
        into_place(&settings, &place, pace, &progress)?
    };
    progress.finish();
    report(&made, to, matches.get_flag("json"), is_quiet);
    Ok(ExitCode::SUCCESS)
}

fn into_place(settings: &Settings, place: &Place, pace: Pace, progress: &Progress) -> Result<Made, Failure> {
    let known = place.manifests()?;
    for _ in 0..TRIES {
        let (source, moment) = take(settings, &place.unfinished_file())?;
        refuse_other_store(&known, &moment.store_id).map_err(Failure::usage)?;
        let mut target = IntoPlace { place, known: &known, pace };
        match make(&source, &moment, &mut target, &known, SystemWorld.now_ms(), progress) {
            Ok(made) => return Ok(made),
            Err(Unread::Failed(problem)) => return Err(problem.into()),
            // What was copied so far is in its place, and a new moment leaves out what was dropped.
            Err(Unread::Gone) => {}
        }
    }
    let gone = "segments disappear during the copy; check the data directory with sealog verify --data";
    Err(gone.to_owned().into())
}

/// A moment of the store, from the server that has it open or from the stopped store, with a copy of the
/// control data in a new file.
fn take(settings: &Settings, copy: &Path) -> Result<(DataDir, Moment), Failure> {
    let copy = std::path::absolute(copy).map_err(|error| Failure::of_path(copy, &error))?;
    let source = DataDir::new(&settings.data_dir, copy.clone());
    let ask_running = || {
        let _ = std::fs::remove_file(&copy);
        sealog_control::copy_of_directory(&settings.data_dir, &copy).map_err(|error| {
            format!("{error}. A server that started on a full disk locks its control data: stop the server for the backup")
        })?;
        Ok(Request::TakeMoment(moment::Request { copy_to: None }))
    };
    let of_stopped = Request::TakeMoment(moment::Request { copy_to: Some(copy.clone()) });
    for _ in 0..TRIES {
        let answer = client::run_either(settings, &ask_running, &of_stopped)?;
        let Answer::TakeMoment(taken) = answer else { return Err(OTHER_ANSWER.to_owned().into()) };
        let known = projects(&copy)?;
        let mut unknown = taken.projects.iter().filter(|project| !known.contains(*project)).peekable();
        // A project that nobody knows is no reason to copy again.
        let is_older = unknown.peek().is_some() && {
            let now = projects(&settings.data_dir.join(CONTROL))?;
            unknown.any(|project| now.contains(project))
        };
        if !is_older {
            let moment = serde_json::from_value(taken.moment);
            return Ok((source, moment.map_err(|error| format!("{error}; use the program of the server"))?));
        }
    }
    Err("new projects were created during the copy of the control data; try again".to_owned().into())
}

fn projects(control: &Path) -> Result<HashSet<String>, String> {
    let known = sealog_control::projects_of_copy(control).map_err(|error| error.to_string())?;
    Ok(known.iter().map(ToString::to_string).collect())
}

fn report(made: &Made, to: &str, as_json: bool, is_quiet: bool) {
    let Made { manifest, copied_segments, copied_bytes, shared_segments } = made;
    if !is_quiet {
        for fault in &manifest.faults {
            eprintln!("sealog: the store is damaged, and this backup has the same damage: {fault}");
        }
    }
    // The stream has standard output for itself.
    let say = |text: String| if to == "-" { eprintln!("{text}") } else { println!("{text}") };
    if as_json {
        say(json!({
            "id": manifest.id, "made_at": manifest.made_at, "dir": to, "chains": manifest.heads.len(), "events": manifest.events(),
            "bytes": manifest.bytes(), "copied_bytes": copied_bytes, "copied_segments": copied_segments, "shared_segments": shared_segments,
            "faults": manifest.faults,
        }).to_string());
    } else if to != "-" || !is_quiet {
        say(format!(
            "backup {}: {} events in {} chains; {copied_segments} segments copied ({copied_bytes} bytes), {shared_segments} shared with earlier backups",
            manifest.id,
            manifest.events(),
            manifest.heads.len()
        ));
    }
}
