//! `sealog replicate`: keeps a verified copy of a store on another machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_client::{Client, Retries, Settings};
use sealog_core::time::iso_ms;
use sealog_store::world::{SystemWorld, World};
use serde_json::json;
use zeroize::Zeroizing;

use super::flags::{EXIT_BROKEN, EXIT_CODES, quiet_flag};
use super::place::{Keeper, Place};
use super::remote::Remote;
use super::replica::{Replica, Round};
use super::stopped::Stopped;
use crate::files::write_new;

/// Between two looks, at least.
const PAUSE: Duration = Duration::from_secs(1);
/// A look that takes long is followed by a longer pause, so that most of the server's time is its own.
const PAUSE_FACTOR: u32 = 3;
/// The longest pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often a terminal is told that all is well.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub(crate) fn command() -> Command {
    Command::new("replicate")
        .about("Keeps a verified copy of a running server's store on another machine")
        .long_about(
            "Keeps a verified copy of a running server's embedded store on another machine, a second or two behind. Every event is verified against the one before it before it is written; the copy is a directory of \
             backups with one backup, which `sealog backup verify` checks and `sealog restore` makes a data directory of.\n\n\
             The server needs `replication.enabled` and an operator's token; this command takes the token from SEALOG_OPERATOR_TOKEN or --token-file. The copy holds everything that the store does, secrets \
             included: keep it as you keep the store.\n\n\
             It goes on until it is stopped, also when the server is away for a while, and can be killed at any moment: the next run goes on from where the copy is. It stops by itself when it must not go on: a chain does not \
             verify, or the server has fewer events than the copy, which it says. The copy is then left as it was.",
        )
        .after_help(EXIT_CODES)
        .arg(Arg::new("from").long("from").value_name("URL").required(true).help("Address of the server, such as https://log.example.org"))
        .arg(Arg::new("to").long("to").value_name("DIR").required(true).help("The directory of the copy"))
        .arg(Arg::new("token-file").long("token-file").value_name("FILE").help("A file with the operator's token [default: SEALOG_OPERATOR_TOKEN]"))
        .arg(Arg::new("status").long("status").value_name("FILE").help("Writes how far behind the copy is to this file, as JSON, after each look"))
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Copies what there is, and ends"))
        .arg(Arg::new("timeout").long("timeout").value_name("SECONDS").default_value("60").value_parser(value_parser!(u64).range(1..=3600)).help("How long an answer may take"))
        .arg(quiet_flag())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let url = given("from").expect("clap asks for it").to_owned();
    let key = Some(token(given("token-file"))?);
    let timeout = Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
    // What fails is tried again here, where it can be said.
    let retries = Retries { most: 0, ..Retries::default() };
    let client = Client::new(Settings { url: url.clone(), key, timeout, retries })
        .map_err(|why| format!("--from: {why}"))?;
    let place = Place::create(Path::new(given("to").expect("clap asks for it")), Keeper::Replica)?;
    let mut replica = Replica::open(place).map_err(|stopped| stopped.to_string())?;
    let mut follower = Follower {
        remote: Remote::new(client)?,
        status: given("status").map(PathBuf::from),
        is_quiet: matches.get_flag("quiet"),
        said: None,
    };
    let mut failures = 0u32;
    loop {
        let begun = Instant::now();
        match replica.follow(&follower.remote) {
            Ok(round) => {
                failures = 0;
                follower.tell(&replica, &round, begun.elapsed())?;
                if matches.get_flag("once") {
                    return Ok(ExitCode::SUCCESS);
                }
                std::thread::sleep(PAUSE.max(begun.elapsed() * PAUSE_FACTOR));
            }
            Err(Stopped::Broken(problem)) => {
                eprintln!("sealog: {problem}");
                return Ok(ExitCode::from(EXIT_BROKEN));
            }
            Err(Stopped::Refused(problem)) => return Err(problem),
            Err(Stopped::Away(problem)) => {
                if matches.get_flag("once") {
                    return Err(problem);
                }
                failures += 1;
                let wait = PAUSE.saturating_mul(1 << failures.min(5)).min(RETRY_MAX);
                if !follower.is_quiet {
                    eprintln!("sealog: {problem}; trying again in {} s", wait.as_secs());
                }
                std::thread::sleep(wait);
            }
        }
    }
}

/// Never on the command line, where everybody on the machine can read it.
fn token(file: Option<&str>) -> Result<Zeroizing<String>, String> {
    let text = match file {
        Some(file) => fs::read_to_string(file).map_err(|error| format!("--token-file: {file}: {error}"))?,
        None => std::env::var("SEALOG_OPERATOR_TOKEN").map_err(|_| {
            "the operator's token is needed: set SEALOG_OPERATOR_TOKEN, or name a file with --token-file"
                .to_owned()
        })?,
    };
    Ok(Zeroizing::new(text.trim().to_owned()))
}

struct Follower {
    remote: Remote,
    status: Option<PathBuf>,
    is_quiet: bool,
    said: Option<Instant>,
}

impl Follower {
    fn tell(&mut self, replica: &Replica, round: &Round, took: Duration) -> Result<(), String> {
        let Round { copied_bytes, events } = round;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if let Some(path) = &self.status {
            // What is in the copy was durable when the look began, so that long ago is how far behind it is now.
            let now = SystemWorld.now_ms();
            let status = json!({
                "at": iso_ms(now), "backup": replica.id(), "behind_ms": took_ms, "copied_bytes": copied_bytes, "new_events": events,
                "events": replica.events(), "chains": replica.chains(),
            });
            write_new(path, format!("{status}\n").as_bytes())
                .map_err(|error| format!("--status: {}: {error}", path.display()))?;
        }
        let is_due = self.said.is_none_or(|said| said.elapsed() > SAY_EVERY);
        if !self.is_quiet && is_due {
            eprintln!(
                "copy {}: {} events in {} chains, {took_ms} ms behind",
                replica.id(),
                replica.events(),
                replica.chains()
            );
            self.said = Some(Instant::now());
        }
        Ok(())
    }
}
