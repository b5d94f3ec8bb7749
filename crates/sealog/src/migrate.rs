//! `sealog migrate`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_store::postgres;

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
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), String> {
    let settings = config::load(matches, std::env::vars()).map_err(|error| error.to_string())?;
    let Place::Postgres(url) = &settings.store else {
        return Err("the embedded store has no schema to migrate; set the store to a postgres:// URL".into());
    };
    let cannot = |error: postgres::OpenError| error.to_string();
    let steps = postgres::migrate(&url.0, matches.get_flag("citus")).map_err(cannot)?
        + sealog_control::migrate(&url.0).map_err(cannot)?;
    println!("the schema is up to date; {steps} steps were made");
    Ok(())
}
