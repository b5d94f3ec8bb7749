//! What an operator knows to have been acknowledged, and what is to be done about it.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches};
use sealog_cli::exit::Failure;

use super::rollback::Known;

/// What is known to have been acknowledged, and what is done about it.
pub(super) fn rollback_args() -> [Arg; 4] {
    [
        Arg::new("receipt").long("receipt").value_name("FILE").action(ArgAction::Append).help("Require these events: responses of POST /v1/events with log_id, chain_seq and hash, or events, one JSON object per line"),
        Arg::new("old-data").long("old-data").value_name("DIR").action(ArgAction::Append).help("Old data directory: compare with its log and high-water mark; repeat for each server"),
        Arg::new("accept-rollback").long("accept-rollback").action(ArgAction::SetTrue).requires("reason").help("Continue although acknowledged events are lost; their chains record the loss"),
        Arg::new("reason").long("reason").value_name("TEXT").requires("accept-rollback").value_parser(reason).help("Why you accept the rollback; sealed into the chains"),
    ]
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("say why you accept the rollback; it is sealed into the chains".into()),
        reason => Ok(reason.to_owned()),
    }
}

/// What the command line says was there.
pub(super) fn known_to(matches: &ArgMatches, known: &mut Known) -> Result<(), Failure> {
    for receipt in matches.get_many::<String>("receipt").into_iter().flatten() {
        known.add_receipts(Path::new(receipt)).map_err(Failure::usage)?;
    }
    for old in matches.get_many::<String>("old-data").into_iter().flatten() {
        if !known.add_old_data(Path::new(old))? {
            return Err(Failure::usage(format!(
                "--old-data: {old} has neither a log nor a high-water mark (live, test or postgres.mark)"
            )));
        }
    }
    Ok(())
}
