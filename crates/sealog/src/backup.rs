//! The commands of `sealog-backup` that need the settings of a server, or the server itself.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use sealog_backup::{Diverged, Taken};
use sealog_cli::exit::Failure;

use crate::admin::client::{self, OTHER_ANSWER};
use crate::admin::moment;
use crate::admin::operations::{Answer, Request};
use crate::config::{self, Settings};

pub(crate) fn commands() -> [Command; 4] {
    [
        sealog_backup::command()
            .mut_subcommand("create", config::with_flags)
            .mut_subcommand("heads", config::with_flags),
        sealog_backup::restore_command().mut_subcommand("check", config::with_flags),
        sealog_backup::replicate_command(),
        sealog_backup::copy_command(),
    ]
}

/// None if the command is not one of these.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Option<Result<ExitCode, Failure>> {
    Some(match (name, matches.subcommand()) {
        ("backup", Some(("create", matches))) => create(matches),
        ("backup", Some(("heads", matches))) => with_store(matches, sealog_backup::heads),
        ("restore", Some(("check", matches))) => with_store(matches, sealog_backup::restore_check),
        ("replicate", _) if matches.contains_id("divergence") => {
            sealog_backup::divergence(matches, &record_divergence)
        }
        _ => return sealog_backup::run(name, matches),
    })
}

fn with_store(
    matches: &ArgMatches,
    run: fn(&ArgMatches, &sealog_engine::Place, &Path) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    run(matches, &settings.store, &settings.data_dir)
}

/// By the server that has the data directory open, or by opening it: there is one writer.
fn record_divergence(data_dir: &Path, diverged: &Diverged) -> Result<bool, Failure> {
    let data_dir = data_dir.to_str().ok_or_else(|| Failure::usage("--data: the path is not UTF-8"))?;
    let settings = config::of_flags(&[("data_dir", data_dir)])?;
    match client::run(&settings, &Request::RecordDivergence(diverged.clone()))? {
        Answer::RecordDivergence(is_known) => Ok(is_known),
        _ => Err(OTHER_ANSWER.to_owned().into()),
    }
}

fn create(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    let take = |copy: &Path| take_moment(&settings, copy);
    sealog_backup::create(matches, &settings.store, &settings.data_dir, &take)
}

/// A moment of the store, from the server that has it open or from the stopped store, with a copy of the
/// control data in a new file.
fn take_moment(settings: &Settings, copy: &Path) -> Result<Taken, Failure> {
    let ask_running = || {
        let _ = std::fs::remove_file(copy);
        sealog_control::copy_of_directory(&settings.data_dir, copy).map_err(|error| {
            format!("{error}. A server that started on a full disk locks its control data: stop the server for the backup")
        })?;
        Ok(Request::TakeMoment(moment::Request { copy_to: None }))
    };
    let of_stopped = Request::TakeMoment(moment::Request { copy_to: Some(copy.to_owned()) });
    match client::run_either(settings, &ask_running, &of_stopped)? {
        Answer::TakeMoment(taken) => Ok(taken),
        _ => Err(OTHER_ANSWER.to_owned().into()),
    }
}
