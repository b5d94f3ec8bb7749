//! `sealog backup list`.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output::{self, Form};
use serde_json::json;

use super::place::{Found, Place};
use super::shared::{EXIT_CODES, dir_argument, json_flag};

const HEADINGS: [&str; 6] = ["id", "made_at", "events", "chains", "bytes", ""];

pub(super) fn command() -> Command {
    Command::new("list")
        .about("List the backups in a directory, oldest first")
        .after_help(EXIT_CODES)
        .arg(dir_argument("The backup directory"))
        .arg(json_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let dir = matches.get_one::<String>("dir").expect("clap asks for it");
    let listed = Place::open(Path::new(dir))?.list()?;
    let form = Form::of(matches);
    let (mut objects, mut rows, mut is_sound) = (String::new(), Vec::new(), true);
    for Found { id, manifest } in listed {
        match manifest {
            Ok(manifest) => {
                let (events, chains, bytes) = (manifest.events(), manifest.heads.len(), manifest.bytes());
                let is_damaged = !manifest.faults.is_empty();
                let object = json!({
                    "id": id, "made_at": manifest.made_at, "store": manifest.store, "sealog_version": manifest.sealog_version,
                    "events": events, "chains": chains, "bytes": bytes, "faults": manifest.faults,
                });
                objects.push_str(&format!("{object}\n"));
                let state = if is_damaged { "store was damaged" } else { "" };
                rows.push(vec![
                    id,
                    manifest.made_at,
                    events.to_string(),
                    chains.to_string(),
                    bytes.to_string(),
                    state.to_owned(),
                ]);
            }
            Err(problem) => {
                is_sound = false;
                eprintln!("sealog: backup {id}: {problem}");
            }
        }
    }
    output::put(&match form {
        Form::Json => objects,
        Form::Lines => rows.iter().map(|row| row.join("\t") + "\n").collect(),
        Form::Table => output::table(&HEADINGS, &[24, 24, 20, 20, 20, 20], &rows),
    })?;
    Ok(if is_sound { ExitCode::SUCCESS } else { Exit::Broken.into() })
}
