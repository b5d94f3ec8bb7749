//! What an operator knows to have been acknowledged, and what is to be done about it.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches};
use sealog_cli::exit::Failure;

use super::rollback::Known;

/// What is known to have been acknowledged, and what is done about it.
pub(super) fn rollback_args() -> [Arg; 4] {
    [
        Arg::new("receipt").long("receipt").value_name("FILE").action(ArgAction::Append).help("Events that must be there: answers of POST /v1/events with log_id, chain_seq and hash, or events, one JSON object for each line"),
        Arg::new("old-data").long("old-data").value_name("DIR").action(ArgAction::Append).help("The old data directory, or what is left of it: its log and its high-water mark say what was acknowledged. Give it once for each server"),
        Arg::new("accept-rollback").long("accept-rollback").action(ArgAction::SetTrue).help("Goes on although acknowledged events are lost; they are named in their chains"),
        Arg::new("reason").long("reason").value_name("TEXT").requires("accept-rollback").help("Why the rollback is accepted; it is sealed into the chains"),
    ]
}

/// What the command line says was there.
pub(super) fn known_to(matches: &ArgMatches, known: &mut Known) -> Result<(), Failure> {
    for receipt in matches.get_many::<String>("receipt").into_iter().flatten() {
        known.add_receipts(Path::new(receipt)).map_err(Failure::usage)?;
    }
    for old in matches.get_many::<String>("old-data").into_iter().flatten() {
        if !known.add_old_data(Path::new(old))? {
            return Err(Failure::usage(format!(
                "--old-data: there is neither a log nor a high-water mark in {old} (live, test or postgres.mark)"
            )));
        }
    }
    Ok(())
}
