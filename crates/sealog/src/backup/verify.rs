//! `sealog backup verify`.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::check::{Checked, check};
use super::flags::{EXIT_CODES, dir_argument, json_flag, quiet_flag};
use super::manifest::{EMBEDDED, Manifest};
use super::place::{Found, Place};
use super::progress::Progress;
use crate::cli::exit::{Exit, Failure};

pub(super) fn command() -> Command {
    Command::new("verify")
        .about("Checks that a backup is whole, without restoring it")
        .long_about(
            "Checks that a backup is whole, without restoring it: every file is compared with its digest, and every chain is walked from its first event to the head that the manifest has for it, \
             the hash of each event recomputed, on all cores.\n\n\
             It names what is damaged or broken, and ends with 10 then. Without --backup it checks the newest one; --all checks every backup in the directory.",
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("The directory of the backups"))
        .arg(Arg::new("backup").long("backup").value_name("ID").conflicts_with("all").help("Another backup than the newest, as `sealog backup list` names it"))
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("All backups in the directory"))
        .arg(json_flag())
        .arg(quiet_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let dir = matches.get_one::<String>("dir").expect("clap asks for it");
    let place = Place::open(Path::new(dir))?;
    let manifests = if matches.get_flag("all") {
        let read = |Found { id, manifest }: Found| {
            manifest.map_err(|problem| Failure::new(Exit::Broken, format!("backup {id}: {problem}")))
        };
        place.list()?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?
    } else {
        vec![select(&place, matches.get_one::<String>("backup").map(String::as_str))?]
    };
    let mut is_whole = true;
    for manifest in manifests {
        if manifest.store.kind != EMBEDDED {
            eprintln!(
                "sealog: backup {} has the heads of a database and no events; `sealog restore check` compares them",
                manifest.id
            );
            continue;
        }
        let progress = Progress::new("Verifying", matches.get_flag("quiet"));
        let checked = check(&place, &manifest, &HashSet::new(), &progress)?;
        progress.finish();
        is_whole &= checked.is_whole();
        report(&manifest, &checked, matches.get_flag("json"));
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { Exit::Broken.into() })
}

/// The backup of this name, or the newest. One that cannot be read is no reason to take an older one in silence.
pub(super) fn select(place: &Place, id: Option<&str>) -> Result<Manifest, Failure> {
    let listed = place.list()?;
    let found = match id {
        Some(id) => listed.into_iter().find(|found| found.id == id),
        None => listed.into_iter().next_back(),
    };
    let dir = place.path().display();
    let missing = || match id {
        Some(id) => {
            format!("{dir}: there is no backup {id}; `sealog backup list {dir}` names those that are there")
        }
        None => format!("{dir}: there is no backup that was completed; `sealog backup create` makes one"),
    };
    let Found { id, manifest } = found.ok_or_else(|| Failure::new(Exit::NotFound, missing()))?;
    let unread = |problem| {
        format!(
            "backup {id}: {problem}. Choose another one with --backup, as `sealog backup list {dir}` names them"
        )
    };
    manifest.map_err(|problem| Failure::new(Exit::Broken, unread(problem)))
}

/// For people and for machines.
fn report(manifest: &Manifest, checked: &Checked, as_json: bool) {
    let Checked { files, bytes, events, chains, changed, damaged, broken, .. } = checked;
    let damaged: Vec<&String> = changed.iter().chain(damaged).collect();
    if as_json {
        let broken: Vec<Value> = broken
            .iter()
            .map(|broken| json!({ "chain": broken.chain.to_string(), "chain_seq": broken.chain_seq, "why": broken.why }))
            .collect();
        println!(
            "{}",
            json!({ "id": manifest.id, "valid": checked.is_whole(), "files": files, "bytes": bytes, "events": events, "chains": chains, "damaged": damaged, "broken": broken, "faults": manifest.faults })
        );
        return;
    }
    for problem in damaged {
        println!("DAMAGED {problem}");
    }
    for broken in broken {
        println!("BROKEN chain {} at {}: {}", broken.chain, broken.chain_seq, broken.why);
    }
    if checked.is_whole() {
        println!(
            "backup {}: whole, {events} events in {chains} chains verified, {files} files, {bytes} bytes",
            manifest.id
        );
    } else {
        println!(
            "backup {}: NOT whole; look for another copy of what is named, or another backup",
            manifest.id
        );
    }
}
