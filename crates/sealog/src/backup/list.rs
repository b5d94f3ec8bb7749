//! `sealog backup list`.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use serde_json::json;

use super::flags::{EXIT_CODES, dir_argument, json_flag};
use super::place::{Found, Place};
use crate::cli::exit::{Exit, Failure};

pub(super) fn command() -> Command {
    Command::new("list")
        .about("Lists the backups in a directory, oldest first")
        .after_help(EXIT_CODES)
        .arg(dir_argument("The directory of the backups"))
        .arg(json_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let dir = matches.get_one::<String>("dir").expect("clap asks for it");
    let listed = Place::open(Path::new(dir))?.list()?;
    let as_json = matches.get_flag("json");
    if !as_json {
        println!("{:<24}  {:<24}  {:>12}  {:>8}  {:>14}", "id", "made_at", "events", "chains", "bytes");
    }
    let mut is_sound = true;
    for Found { id, manifest } in listed {
        match manifest {
            Ok(manifest) if as_json => println!(
                "{}",
                json!({
                    "id": id, "made_at": manifest.made_at, "store": manifest.store, "sealog_version": manifest.sealog_version,
                    "events": manifest.events(), "chains": manifest.heads.len(), "bytes": manifest.bytes(), "faults": manifest.faults,
                })
            ),
            Ok(manifest) => println!(
                "{id:<24}  {:<24}  {:>12}  {:>8}  {:>14}{}",
                manifest.made_at,
                manifest.events(),
                manifest.heads.len(),
                manifest.bytes(),
                if manifest.faults.is_empty() { "" } else { "  of a damaged store" }
            ),
            Err(problem) => {
                is_sound = false;
                eprintln!("sealog: backup {id}: {problem}");
            }
        }
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { Exit::Broken.into() })
}
