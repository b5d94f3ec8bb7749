//! The commands: one file each. What they share stands beside them: how to reach the service ([`connect`]),
//! the codes with which they end ([`exit`]), and how things look on a terminal ([`output`]).
//!
//! Standard output is data, standard error is talk.

mod actions;
mod admin;
mod ask;
mod check;
mod completions;
mod config;
mod connect;
mod control_copy;
mod deliver;
mod doctor;
mod events;
pub(crate) mod exit;
mod export;
mod file_flags;
mod follow;
mod format;
mod geoip;
mod healthcheck;
mod import;
mod in_flight;
mod lines;
mod listing;
mod log;
mod login;
mod mail;
mod man;
pub(crate) mod output;
mod own_server;
mod profile;
mod progress;
mod seen;
mod seq_range;
mod spool;
mod verify;
mod verify_data;
mod walk;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use exit::Failure;

/// All of them, for the program's command line.
pub(crate) fn commands() -> Vec<Command> {
    vec![
        log::command(),
        events::command(),
        follow::command(),
        export::command(),
        import::command(),
        verify::command(),
        actions::command(),
        admin::command(),
        login::command(),
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

/// Nothing if the command is not one of these. `program` describes all of the program.
pub(crate) fn run(name: &str, matches: &ArgMatches, program: fn() -> Command) -> Option<ExitCode> {
    let ended = match name {
        "log" => log::run(matches),
        "events" => events::run(matches),
        "follow" => follow::run(matches),
        "export" => export::run(matches),
        "import" => import::run(matches),
        "verify" => verify::run(matches),
        "actions" => actions::run(matches),
        "admin" => admin::run(matches),
        "login" => login::run(matches),
        "check" => check::run(matches),
        "config" => config::run(matches),
        "mail" => mail::run(matches),
        "geoip" => geoip::run(matches),
        "doctor" => doctor::run(matches),
        "healthcheck" => healthcheck::run(matches),
        "completions" => completions::run(matches, program()),
        "man" => man::run(matches, program()),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|failure: Failure| failure.say()))
}
