//! `sealog backup` and `sealog restore`: copies of a store that are checked before they are relied on.
//! `docs/adr/0025-backups-of-shared-segments.md` has the reasons.
//!
//! [`create`] asks the server for a moment of the store ([`moment`]), copies what is new from the data
//! directory ([`source`]) into a directory or a stream ([`target`]) and writes a manifest ([`manifest`]).
//! [`check`] walks the chains of a backup. [`restore`] makes a data directory of one, and [`rollback`] knows
//! what it must not end behind: what old data directories prove ([`old_data`]) is a part of it, and [`tail`]
//! takes over what they have behind the end of the backup.

mod archive;
mod check;
mod copied;
mod copy;
mod cores;
mod create;
mod divergence;
mod head_text;
mod heads;
mod list;
mod make;
mod manifest;
mod moment;
mod old_data;
mod pieces;
mod place;
mod progress;
mod prune;
mod record;
mod remote;
mod replica;
mod replicate;
mod restore;
mod restore_check;
mod restore_target;
mod rollback;
mod rollback_flags;
mod shared;
mod signature;
mod signed_log;
mod source;
mod stopped;
mod stream;
mod tail;
mod target;
mod unhex;
mod verify;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use sealog_cli::exit::Failure;
use shared::EXIT_CODES;

pub use archive::{
    Page as TenantPage, Part as TenantPart, export as export_tenant, export_command as tenant_export_command,
    read_page as read_tenant, tenant_argument, verify as verify_tenant,
    verify_command as tenant_verify_command,
};
pub use copy::command as copy_command;
pub use create::{Take, Taken, create};
pub use divergence::{Diverged, divergence};
pub use heads::run as heads;
pub use replicate::command as replicate_command;
pub use restore::command as restore_command;
pub use restore_check::run as restore_check;
pub use shared::unopened;

pub fn command() -> Command {
    Command::new("backup")
        .about("Create, list, verify and prune backups")
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create::command())
        .subcommand(list::command())
        .subcommand(verify::command())
        .subcommand(prune::command())
        .subcommand(heads::command())
}

/// None if the command is not one of these, or needs the settings of a server: those are functions of their
/// own.
pub fn run(name: &str, matches: &ArgMatches) -> Option<Result<ExitCode, Failure>> {
    Some(match (name, matches.subcommand()) {
        ("backup", Some(("list", matches))) => list::run(matches),
        ("backup", Some(("verify", matches))) => verify::run(matches),
        ("backup", Some(("prune", matches))) => prune::run(matches),
        ("restore", None) => restore::run(matches),
        ("replicate", _) => replicate::run(matches),
        ("copy", _) => copy::run(matches),
        _ => return None,
    })
}
