//! The client side of the command line: the commands that talk to a service, one file each, and what all
//! commands of the program share: exit codes ([`exit`]), output ([`output`]), progress ([`progress`]) and
//! files ([`files`]).
//!
//! Standard output is data, standard error is talk.

mod action_types;
mod actions;
mod admin;
mod ask;
pub mod connect;
mod deliver;
mod events;
pub mod exit;
mod export;
pub mod file_flags;
pub mod files;
mod follow;
mod format;
mod import;
mod in_flight;
mod lines;
mod listing;
mod log;
mod login;
pub mod metrics;
pub mod output;
mod profile;
pub mod progress;
mod seen;
mod seq_range;
pub mod verify;
mod walk;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use exit::Failure;

/// All of them, for the program's command line.
pub fn commands() -> Vec<Command> {
    vec![
        log::command(),
        log::spool::command(),
        events::command(),
        follow::command(),
        export::command(),
        import::command(),
        verify::command(),
        actions::command(),
        admin::command(),
        login::command(),
    ]
}

/// None if the command is not one of these.
pub fn run(name: &str, matches: &ArgMatches) -> Option<Result<ExitCode, Failure>> {
    Some(match name {
        "log" => log::run(matches),
        "spool" => log::spool::run(matches),
        "events" => events::run(matches),
        "follow" => follow::run(matches),
        "export" => export::run(matches),
        "import" => import::run(matches),
        "verify" => verify::run(matches),
        "actions" => actions::run(matches),
        "admin" => admin::run(matches),
        "login" => login::run(matches),
        _ => return None,
    })
}
