//! `sealog backup create`.

use std::collections::HashSet;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::Failure;
use sealog_engine as engine;
use sealog_store::world::{SystemWorld, World};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::make::{Made, make};
use super::manifest::{CONTROL, STORE_LOG, refuse_other_store};
use super::moment::Moment;
use super::place::{Keeper, Place};
use super::progress::Progress;
use super::shared::{EXIT_CODES, dir_argument, json_flag, metrics_flag, quiet_flag, seconds, write_metrics};
use super::source::{DataDir, Unread};
use super::target::{IntoPlace, IntoStream, Pace};

/// How often segments of test events may be dropped while they are copied.
const TRIES: usize = 5;
/// Where the first start makes the keys that sign.
const KEYS: [&str; 2] = ["trust/log.key", "trust/service.key"];
/// Behind everything that answers requests.
const NICENESS: i32 = 19;

pub(super) fn command() -> Command {
    Command::new("create")
        .about("Back up the embedded store, with its server running or stopped")
        .long_about(
            "Back up the embedded store of a data directory, with its server running or stopped.\n\n\
                 A backup holds everything that was durable at one moment: the logs of live and test events, \
                 control data (tenants, keys, people, settings) and the secrets beside them. It gives access \
                 to every event, so protect it like the store. It has no settings, and no keys that sign: keep \
                 a copy of trust/log.key and trust/service.key elsewhere.\n\n\
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
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("The backup directory, or - for a stream on standard output"))
        .arg(
            Arg::new("fast")
                .long("fast")
                .action(ArgAction::SetTrue)
                .help("Run at full speed (no throttling)"),
        )
        .arg(metrics_flag())
        .arg(json_flag())
        .arg(quiet_flag())
}

/// What a server or a stopped store says of a moment of which it has copied the control data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub moment: Value,
    /// Projects that have events. A copy of the control data that does not know one, while the control data
    /// does, is older than the moment.
    pub projects: Vec<String>,
}

/// Takes a moment of the store, with a copy of its control data in this file.
pub type Take<'a> = &'a dyn Fn(&Path) -> Result<Taken, Failure>;

pub fn create(
    matches: &ArgMatches,
    store: &engine::Place,
    data_dir: &Path,
    take: Take<'_>,
) -> Result<ExitCode, Failure> {
    let store_of = Source { data_dir, take };
    let to = matches.get_one::<String>("dir").expect("clap asks for it").as_str();
    if *store != engine::Place::Embedded {
        return Err(Failure::usage(
            "this store is a database: back it up with its own tools, and record its heads with `sealog backup heads` (docs/operating-postgres.md)",
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
        let (source, moment) = store_of.take(&copy)?;
        let made = make(&source, &moment, &mut target, &[], SystemWorld.now_ms(), &progress);
        made.map_err(|unread| match unread {
            Unread::Failed(problem) => problem,
            Unread::Gone => "old test events were deleted during the copy; try again".into(),
        })?
    } else {
        let place = Place::create(Path::new(to), Keeper::Backups)?;
        into_place(&store_of, &place, pace, &progress)?
    };
    progress.finish();
    report(&made, to, matches.get_flag("json"), is_quiet);
    if !is_quiet && let Some(reminder) = of_keys(&made, data_dir) {
        eprintln!("sealog: {reminder}");
    }
    let (now, events) = (seconds(made.manifest.made_at_ms), made.manifest.events());
    write_metrics(
        matches,
        &[
            ("sealog_backup_last_success_timestamp_seconds", "When the last backup was made.", now),
            ("sealog_backup_events", "Events in the last backup.", events as f64),
            (
                "sealog_backup_faults",
                "Damage of the store that the last backup has, too.",
                made.manifest.faults.len() as f64,
            ),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}

fn into_place(store: &Source<'_>, place: &Place, pace: Pace, progress: &Progress) -> Result<Made, Failure> {
    let known = place.manifests()?;
    for _ in 0..TRIES {
        let (source, moment) = store.take(&place.unfinished_file())?;
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

/// The store that is backed up.
struct Source<'a> {
    data_dir: &'a Path,
    take: Take<'a>,
}

impl Source<'_> {
    /// A moment whose copy of the control data is at least as new as its events.
    fn take(&self, copy: &Path) -> Result<(DataDir, Moment), Failure> {
        let copy = std::path::absolute(copy).map_err(|error| Failure::of_path(copy, &error))?;
        let source = DataDir::new(self.data_dir, copy.clone());
        for _ in 0..TRIES {
            source.copy_log()?;
            let taken = (self.take)(&copy)?;
            let known = projects(&copy)?;
            let mut unknown = taken.projects.iter().filter(|project| !known.contains(*project)).peekable();
            // A project that nobody knows is no reason to copy again.
            let is_older = unknown.peek().is_some() && {
                let now = projects(&self.data_dir.join(CONTROL))?;
                unknown.any(|project| now.contains(project))
            };
            if !is_older {
                let moment = serde_json::from_value(taken.moment);
                return Ok((
                    source,
                    moment.map_err(|error| format!("{error}; use the program of the server"))?,
                ));
            }
        }
        Err("new projects were created during the copy of the control data; try again".to_owned().into())
    }
}

fn projects(control: &Path) -> Result<HashSet<String>, String> {
    let known = sealog_control::projects_of_copy(control).map_err(|error| error.to_string())?;
    Ok(known.iter().map(ToString::to_string).collect())
}

/// What an operator has to keep apart, if the store has a signed log: a backup that had its keys could sign
/// in its name.
fn of_keys(made: &Made, data_dir: &Path) -> Option<String> {
    made.manifest.files.iter().find(|file| file.name == STORE_LOG)?;
    let keys = KEYS.map(|name| data_dir.join(name));
    let files = if keys.iter().all(|key| key.exists()) {
        keys.map(|key| key.display().to_string()).join(" and ")
    } else {
        "the files that trust.log_key_file and trust.service_key_file name".into()
    };
    Some(format!(
        "no backup contains the keys of the signed log: keep a copy of {files} apart from the backups"
    ))
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
