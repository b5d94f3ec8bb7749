//! The commands that talk to a service: one file each. What they share stands beside them: how to reach the service
//! ([`connect`]), the codes with which they end ([`exit`]), and how things look on a terminal ([`output`]).
//!
//! Standard output is data, standard error is talk.

mod actions;
mod connect;
mod events;
mod exit;
mod log;
mod output;
mod profile;
mod spool;
mod verify;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use exit::Failure;

/// All of them, for the program's command line.
pub(crate) fn commands() -> [Command; 4] {
    [log::command(), events::command(), verify::command(), actions::command()]
}

/// Nothing if the command is not one of these.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Option<ExitCode> {
    let ended = match name {
        "log" => log::run(matches),
        "events" => events::run(matches),
        "verify" => verify::run(matches),
        "actions" => actions::run(matches),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|failure: Failure| {
        eprintln!("sealog: {}", failure.message);
        failure.exit.into()
    }))
}
