//! `sealog replicate`: keeps a verified copy of a store on another machine.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use sealog_cli::exit::{EXIT_CODES, Exit, Failure};
use sealog_cli::files::write_new;
use sealog_client::http::{Client, Retries, Settings};
use sealog_core::time::iso_ms;
use sealog_store::world::{SystemWorld, World};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::copied::{Copied, OfDatabase, OfServer, Standing};
use super::place::{Keeper, Place};
use super::remote::Remote;
use super::replica::{Replica, Round};
use super::restore::{Order, recover_tail_flag, restore, unsafe_storage_flag};
use super::rollback_flags::rollback_args;
use super::shared::{metrics_flag, quiet_flag, seconds, write_metrics};
use super::stopped::Stopped;
use crate::copy::is_url;

/// From the beginning of a look to that of the next one. What it costs the server is bounded without a rest:
/// it has one request of this command at a time, for a few megabytes at most, and none while these are
/// verified and written.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The shortest and the longest pause after a failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How often it is said how far the copy is.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// How often figures are written: each is a sync, and Prometheus looks less often.
const METRICS_EVERY: Duration = Duration::from_secs(5);

/// Flags that are for following alone.
const FOLLOWING: [&str; 6] = ["from", "from-file", "token-file", "status", "once", "metrics"];

pub fn command() -> Command {
    Command::new("replicate")
        .about("Keep a verified copy of a running store on another machine")
        .long_about(
            "Keep a verified copy of a running store on another machine, about a second behind. The command \
             verifies every event against the previous one before it writes it.\n\n\
             The copy of a server with the embedded store (--from https://…) is a backup directory with one \
             backup: check it with `sealog backup verify`, restore it with `sealog restore`. The server \
             needs `replication.enabled` and an operator token; this command reads the token from \
             SEALOG_OPERATOR_TOKEN or --token-file.\n\n\
             The copy of a database (--from postgres://…) is a data directory of the embedded store: check \
             it with `sealog verify --data`, copy it into a database with `sealog copy`, or stop this \
             command and start a server on it. Keep a URL with a password in a file (--from-file), because \
             other users of the machine can read a command line.\n\n\
             The copy holds everything that the store holds, secrets included: protect it like the \
             store.\n\n\
             The command runs until you stop it, and retries while the server or the database is \
             unavailable. You can kill it at any moment: the next run resumes. It stops with an error if a \
             chain does not verify or the source has fewer events than the copy, and leaves the copy \
             unchanged.\n\n\
             --promote DATA makes a data directory of the copy of a server, for a new primary. Stop this \
             command and the old primary first. It verifies the copy, restores it into DATA, raises the epoch \
             of the store and records the promotion in the system chains of all tenants. An old primary whose \
             `replication.peer` is the new one then rejects events. With --old-data and --recover-tail it \
             also takes the events that only the log of the old primary has. If it is interrupted, run it \
             again; it starts over.\n\n\
             --divergence FILE writes the events that only the old primary acknowledged to FILE, one per \
             line, each with its receipt (log_id, chain_seq, hash), and names the file in the system chains \
             of their tenants on the new primary (--data), which may run.",
        )
        .after_help(EXIT_CODES)
        .arg(
            Arg::new("from").long("from").value_name("URL").required_unless_present_any(["from-file", "settles"]).help(
                "URL of the server, such as https://log.example.org, or postgres:// URL of the database",
            ),
        )
        .arg(
            Arg::new("from-file")
                .long("from-file")
                .value_name("FILE")
                .conflicts_with("from")
                .help("Read the URL of the database from this file"),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("DIR")
                .required(true)
                .help("Write the copy to this directory; with --promote and --divergence, the copy to read"),
        )
        .arg(
            Arg::new("token-file").long("token-file").value_name("FILE").help(
                "Read the operator token of the server from this file [default: SEALOG_OPERATOR_TOKEN]",
            ),
        )
        .arg(
            Arg::new("status")
                .long("status")
                .value_name("FILE")
                .help("Write the progress to this file as JSON after each poll"),
        )
        .arg(
            Arg::new("promote")
                .long("promote")
                .value_name("DATA")
                .conflicts_with_all(FOLLOWING)
                .help("Make a data directory for a new primary of the copy, with a higher epoch; new or empty"),
        )
        .arg(
            Arg::new("divergence")
                .long("divergence")
                .value_name("FILE")
                .requires_all(["old-data", "data"])
                .conflicts_with_all(FOLLOWING)
                .help("Write what only the old primary acknowledged to this file"),
        )
        .group(ArgGroup::new("settles").args(["promote", "divergence"]))
        .args(rollback_args().map(|arg| match arg.get_id().as_str() {
            "old-data" => arg.requires("settles").help("Data directory of the old primary"),
            _ => arg.requires("promote"),
        }))
        .arg(recover_tail_flag().requires("promote"))
        .arg(unsafe_storage_flag().requires("promote"))
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIR")
                .requires("divergence")
                .help("Data directory of the new primary"),
        )
        .arg(metrics_flag())
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Copy once and exit"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .default_value("60")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("Timeout of a request to the server"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the progress as a line of JSON at the start and every ten seconds"),
        )
        .arg(quiet_flag())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    if let Some(data) = matches.get_one::<String>("promote") {
        let copy = matches.get_one::<String>("to").expect("clap asks for it");
        let _alone = Place::open(Path::new(copy))?.without_writers()?;
        let order =
            Order { from: copy, to: Path::new(data), backup: None, accept_damage: false, promotes: true };
        return restore(matches, &order);
    }
    follow(matches).map(|()| ExitCode::SUCCESS)
}

fn follow(matches: &ArgMatches) -> Result<(), Failure> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let url = url(given("from"), given("from-file"))?;
    let dir = Path::new(given("to").expect("clap asks for it"));
    let mut copy: Box<dyn Copied> = if is_url(&url) {
        for name in ["token-file", "timeout"] {
            if matches.value_source(name) == Some(ValueSource::CommandLine) {
                return Err(Failure::usage(format!("--{name} is for a server, but --from names a database")));
            }
        }
        Box::new(OfDatabase::new(url, dir)?)
    } else {
        let key = Some(token(given("token-file"))?);
        let timeout = Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
        // What fails is tried again here, where it can be said.
        let retries = Retries { most: 0, ..Retries::default() };
        let client = Client::new(Settings { url, key, timeout, retries })
            .map_err(|why| Failure::usage(format!("--from: {why}")))?;
        let place = Place::create(dir, Keeper::Replica)?;
        Box::new(OfServer { remote: Remote::new(client)?, replica: Replica::open(place)? })
    };
    let (is_once, is_quiet) = (matches.get_flag("once"), matches.get_flag("quiet"));
    let mut teller = Teller {
        status: given("status").map(PathBuf::from),
        is_json: matches.get_flag("json"),
        is_quiet,
        said: None,
        untold: Report::default(),
    };
    let (mut failures, mut looked, mut measured) = (0u32, None, None::<Instant>);
    loop {
        let begun = Instant::now();
        // What comes after the first look is said every ten seconds.
        let bar = copy.bar(is_quiet || looked.is_some());
        let look = copy.look(&bar);
        bar.finish_and_clear();
        match look {
            Ok(round) => {
                failures = 0;
                let report = Report::of(&round, begun, looked);
                teller.tell(&copy.standing(), &report)?;
                if measured.is_none_or(|measured| measured.elapsed() >= METRICS_EVERY) {
                    report.write(matches)?;
                    measured = Some(Instant::now());
                }
                if is_once {
                    return Ok(());
                }
                looked = Some(begun);
                std::thread::sleep(rest_after(begun.elapsed()));
            }
            Err(Stopped::Away(problem)) if !is_once => {
                let wait = RETRY_MIN.saturating_mul(1 << failures.min(5)).min(RETRY_MAX);
                failures += 1;
                if !is_quiet {
                    eprintln!("sealog: {problem}; retrying in {} s", wait.as_secs());
                }
                std::thread::sleep(wait);
            }
            Err(stopped) => return Err(stopped.into()),
        }
    }
}

/// A look that took longer than looks are apart has left the copy behind: the next one follows at once.
fn rest_after(look: Duration) -> Duration {
    LOOK_EVERY.saturating_sub(look)
}

fn url(given: Option<&str>, file: Option<&str>) -> Result<String, Failure> {
    let Some(file) = file else { return Ok(given.expect("clap asks for one of them").to_owned()) };
    let text =
        fs::read_to_string(file).map_err(|error| Failure::usage(format!("--from-file: {file}: {error}")))?;
    let url = text.trim();
    if is_url(url) {
        return Ok(url.to_owned());
    }
    Err(Failure::usage(format!("--from-file: {file} must contain a postgres:// URL")))
}

/// Never on the command line, where everybody on the machine can read it.
fn token(file: Option<&str>) -> Result<Zeroizing<String>, Failure> {
    let text = match file {
        Some(file) => fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("--token-file: {file}: {error}")))?,
        None => std::env::var("SEALOG_OPERATOR_TOKEN").map_err(|_| {
            Failure::new(
                Exit::Authentication,
                "the operator token is missing: set SEALOG_OPERATOR_TOKEN, or give a file with --token-file",
            )
        })?,
    };
    Ok(Zeroizing::new(text.trim().to_owned()))
}

/// What looks have brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    copied_bytes: u64,
    new_events: u64,
    /// The longest that an event can have been in the store before it was in the copy.
    behind: Duration,
    /// How long ago the last look began: what was durable then is in the copy.
    age: Duration,
}

impl Report {
    /// Of a look that ends now. What it brought may have come as soon as the one before, if there was one,
    /// had begun; without anything new the copy was as good as the store.
    fn of(round: &Round, begun: Instant, before: Option<Instant>) -> Report {
        let age = begun.elapsed();
        let behind = match before {
            Some(before) if round.events > 0 => before.elapsed(),
            _ => age,
        };
        Report { copied_bytes: round.copied_bytes, new_events: round.events, behind, age }
    }

    fn and(self, next: &Report) -> Report {
        Report {
            copied_bytes: self.copied_bytes + next.copied_bytes,
            new_events: self.new_events + next.new_events,
            behind: self.behind.max(next.behind),
            age: next.age,
        }
    }

    fn write(&self, matches: &ArgMatches) -> Result<(), Failure> {
        let as_of = seconds(SystemWorld.now_ms().saturating_sub(ms(self.age)));
        write_metrics(
            matches,
            &[
                ("sealog_replica_as_of_timestamp_seconds", "The copy has what was durable then.", as_of),
                (
                    "sealog_replica_behind_seconds",
                    "How late the last events came into the copy.",
                    self.behind.as_secs_f64(),
                ),
            ],
        )
    }

    fn json(&self, copy: &Standing) -> Value {
        let (now, age_ms) = (SystemWorld.now_ms(), ms(self.age));
        let mut report = json!({
            "at": iso_ms(now), "as_of": iso_ms(now.saturating_sub(age_ms)), "events": copy.events, "chains": copy.chains,
            "behind_ms": ms(self.behind), "new_events": self.new_events,
        });
        if let Some(backup) = &copy.backup {
            report["backup"] = json!(backup.id);
            report["head"] = json!(backup.commits);
            report["copied_bytes"] = json!(self.copied_bytes);
        }
        report
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Says how far the copy is: to a file after each look, to people and programs now and then.
struct Teller {
    status: Option<PathBuf>,
    is_json: bool,
    is_quiet: bool,
    said: Option<Instant>,
    /// Since it was said last.
    untold: Report,
}

impl Teller {
    fn tell(&mut self, copy: &Standing, report: &Report) -> Result<(), Failure> {
        if let Some(path) = &self.status {
            write_new(path, format!("{}\n", report.json(copy)).as_bytes())
                .map_err(|error| Failure::usage(format!("--status: {}: {error}", path.display())))?;
        }
        self.untold = self.untold.and(report);
        if self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return Ok(());
        }
        let told = std::mem::take(&mut self.untold);
        if self.is_json {
            let mut out = std::io::stdout();
            writeln!(out, "{}", told.json(copy)).and_then(|()| out.flush())?;
        } else if !self.is_quiet {
            let name = copy.backup.as_ref().map(|backup| format!(" {}", backup.id)).unwrap_or_default();
            let behind = ms(told.behind);
            eprintln!(
                "copy{name}: {} events in {} chains, up to {behind} ms behind",
                copy.events, copy.chains
            );
        }
        self.said = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_behind_does_not_rest() {
        assert_eq!(rest_after(Duration::ZERO), LOOK_EVERY);
        assert_eq!(rest_after(LOOK_EVERY / 5), LOOK_EVERY * 4 / 5);
        assert_eq!(rest_after(LOOK_EVERY), Duration::ZERO);
        assert_eq!(rest_after(LOOK_EVERY * 3), Duration::ZERO);
    }

    #[test]
    fn what_a_look_brings_is_as_far_behind_as_the_look_before_it_began() {
        let now = Instant::now();
        let (before, begun) = (now - Duration::from_secs(5), now - Duration::from_secs(2));
        let some = Round { copied_bytes: 700, events: 7 };
        let behind = |round: &Round, before| Report::of(round, begun, before).behind.as_secs();
        assert_eq!(behind(&some, Some(before)), 5);
        assert_eq!(behind(&some, None), 2);
        assert_eq!(behind(&Round::default(), Some(before)), 2);
        assert_eq!(Report::of(&some, begun, Some(before)).age.as_secs(), 2);
    }

    #[test]
    fn what_is_said_now_and_then_adds_up_all_looks_and_has_the_longest_lag() {
        let report = |n: u64, seconds| Report {
            copied_bytes: n,
            new_events: n,
            behind: Duration::from_secs(seconds),
            age: Duration::from_secs(n),
        };
        assert_eq!(report(1, 9).and(&report(2, 3)), Report { age: Duration::from_secs(2), ..report(3, 9) });
    }
}
