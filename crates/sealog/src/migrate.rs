//! `sealog migrate`.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_store::postgres;
use serde_json::json;

use crate::cli::exit::{EXIT_CODES, Exit, Failure};
use crate::config;
use crate::store::Place;

pub(crate) fn command() -> Command {
    config::with_flags(
        Command::new("migrate").about("Makes or updates the schema of the PostgreSQL store").long_about(
            "Makes or updates the schema of the PostgreSQL store that SEALOG_STORE names.\n\nThe server does so itself when its role owns the schema. \
             Where it runs as a role with fewer rights, this is run as the owner before the new version starts. Several at once are fine: they wait for each other.",
        ),
    )
    .arg(
        Arg::new("citus")
            .long("citus")
            .action(ArgAction::SetTrue)
            .help("Then distributes the tables of events over the nodes of a Citus cluster, by chain_id"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines"))
    .after_help(EXIT_CODES)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    let Place::Postgres(url) = &settings.store else {
        return Err(Failure::usage(
            "the embedded store has no schema to migrate; set the store to a postgres:// URL",
        ));
    };
    let cannot = |error: postgres::OpenError| {
        let exit = match error {
            postgres::OpenError::Url(_) => Exit::Usage,
            _ if error.may_pass() => Exit::Unavailable,
            _ => Exit::Failure,
        };
        Failure::new(exit, error.to_string())
    };
    let steps = postgres::migrate(&url.0, matches.get_flag("citus")).map_err(cannot)?
        + sealog_control::migrate(&url.0).map_err(cannot)?;
    if matches.get_flag("json") {
        println!("{}", json!({ "steps": steps, "citus": matches.get_flag("citus") }));
    } else {
        println!("the schema is up to date; {steps} steps were made");
    }
    Ok(ExitCode::SUCCESS)
}
