//! Commands for the host of a server: they read its settings or its store. What they share with the commands
//! of clients is in `sealog-cli`.

mod check;
mod completions;
mod config;
mod control_copy;
mod doctor;
mod geoip;
mod healthcheck;
mod mail;
mod man;
mod own_server;
mod verify_data;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use sealog_cli::exit::Failure;

/// All of them, for the program's command line.
pub(crate) fn commands() -> Vec<Command> {
    vec![
        check::command(),
        config::command(),
        mail::command(),
        geoip::command(),
        doctor::command(),
        healthcheck::command(),
        completions::command(),
        man::command(),
    ]
}

/// None if the command is not one of these. `program` describes all of the program.
pub(crate) fn run(
    name: &str,
    matches: &ArgMatches,
    program: fn() -> Command,
) -> Option<Result<ExitCode, Failure>> {
    Some(match name {
        "verify" => verify_data::run(matches.get_one::<String>("data")?, matches),
        "check" => check::run(matches),
        "config" => config::run(matches),
        "mail" => mail::run(matches),
        "geoip" => geoip::run(matches),
        "doctor" => doctor::run(matches),
        "healthcheck" => healthcheck::run(matches),
        "completions" => completions::run(matches, program()),
        "man" => man::run(matches, program()),
        _ => return None,
    })
}
