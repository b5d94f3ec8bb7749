//! `sealog backup` and `sealog restore`: copies of a store that are checked before they are relied on.
//! `docs/adr/0025-backups-of-shared-segments.md` has the reasons.
//!
//! [`create`] asks the server for a moment of the store ([`moment`]), copies what is new from the data
//! directory ([`source`]) into a directory or a stream ([`target`]) and writes a manifest ([`manifest`]).
//! [`check`] walks the chains of a backup. [`restore`] makes a data directory of one, and [`rollback`] knows
//! what it must not end behind: what old data directories prove ([`old_data`]) is a part of it, and [`tail`]
//! takes over what they have behind the end of the backup.

mod check;
mod copied;
mod cores;
mod create;
mod flags;
mod head_text;
mod heads;
mod hex;
mod list;
mod make;
mod manifest;
mod moment;
mod old_data;
mod place;
mod progress;
mod record;
mod remote;
mod replica;
mod replicate;
mod restore;
mod restore_check;
mod restore_target;
mod rollback;
mod rollback_flags;
mod signature;
mod source;
mod stopped;
mod tail;
mod tar;
mod target;
mod verify;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use crate::cli::exit::Failure;
use flags::EXIT_CODES;

pub(crate) use replicate::{command as replicate_command, run as replicate};
pub(crate) use restore::{command as restore_command, run as restore};

pub(crate) fn command() -> Command {
    Command::new("backup")
        .about("Create, list and verify backups")
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create::command())
        .subcommand(list::command())
        .subcommand(verify::command())
        .subcommand(heads::command())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match matches.subcommand() {
        Some(("create", matches)) => create::run(matches),
        Some(("list", matches)) => list::run(matches),
        Some(("verify", matches)) => verify::run(matches),
        Some(("heads", matches)) => heads::run(matches),
        _ => unreachable!("clap asks for a subcommand"),
    }
}
