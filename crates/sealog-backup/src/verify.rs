//! `sealog backup verify`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_core::audit::NotedHead;
use sealog_store::embedded::backup::Wanted;
use serde_json::{Value, json};

use super::check::{Checked, check};
use super::manifest::{EMBEDDED, Manifest};
use super::place::{Found, Place};
use super::progress::Progress;
use super::shared::{EXIT_CODES, dir_argument, json_flag, quiet_flag};
use super::signature::is_signed;

pub(super) fn command() -> Command {
    Command::new("verify")
        .about("Checks that a backup is whole, without restoring it")
        .long_about(
            "Checks that a backup is whole, without restoring it: every file is compared with its digest, and every chain is walked from its first event to the head that the manifest has for it, \
             the hash of each event recomputed, on all cores.\n\n\
             It names what is damaged or broken, and ends with 10 then. Without --backup it checks the newest one; --all checks every backup in the directory.\n\n\
             A backup says of itself what it should hold: whoever can write all of it can replace it by another that is whole. --expect names an event that was noted elsewhere, as a receipt or a head of a verification, \
             and that one of the chains must have. --signature and --public-key check an Ed25519 signature that you have made over the manifest, backups/ID.json, with a key that is not on the host of the backups.",
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("The directory of the backups"))
        .arg(Arg::new("backup").long("backup").value_name("ID").conflicts_with("all").help("Another backup than the newest, as `sealog backup list` names it"))
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("All backups in the directory"))
        .arg(
            Arg::new("expect")
                .long("expect")
                .value_name("SEQ:HASH")
                .action(ArgAction::Append)
                .value_parser(noted_head)
                .help("A head that was noted earlier and elsewhere: a chain must have this event; can be repeated"),
        )
        .arg(
            Arg::new("signature")
                .long("signature")
                .value_name("FILE")
                .requires("public-key")
                .conflicts_with("all")
                .help("Your Ed25519 signature over the manifest of the backup, backups/ID.json (64 bytes)"),
        )
        .arg(
            Arg::new("public-key")
                .long("public-key")
                .value_name("FILE")
                .requires("signature")
                .help("The public key in PEM that it is checked with"),
        )
        .arg(json_flag())
        .arg(quiet_flag())
}

fn noted_head(text: &str) -> Result<NotedHead, String> {
    NotedHead::parse(text).ok_or_else(|| "this is not SEQ:HASH, a number and 64 lower-case hex digits".into())
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
    if let (Some(signature), Some(key)) =
        (matches.get_one::<String>("signature"), matches.get_one::<String>("public-key"))
    {
        for manifest in &manifests {
            let bytes = place.manifest_bytes(&manifest.id)?;
            if !is_signed(&bytes, Path::new(signature), Path::new(key))? {
                let problem =
                    format!("backup {}: the signature is not of this manifest and this key", manifest.id);
                return Err(Failure::new(Exit::Broken, problem));
            }
        }
    }
    let expected: Vec<NotedHead> = matches.get_many("expect").into_iter().flatten().copied().collect();
    let hashes = expected.iter().map(|head| head.hash).collect();
    let wanted = Wanted { hashes, ..Wanted::default() };
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
        let mut checked = check(&place, &manifest, &wanted, &progress)?;
        progress.finish();
        checked.expect(&expected);
        is_whole &= checked.is_whole();
        report(&manifest, &checked, matches.get_flag("json"));
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { Exit::Broken.into() })
}

/// The backup of this name, or the newest. One that cannot be read is no reason to take an older one in
/// silence.
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
    let Checked { files, bytes, events, chains, changed, damaged, broken, missing, .. } = checked;
    let damaged: Vec<&String> = changed.iter().chain(damaged).collect();
    if as_json {
        let broken: Vec<Value> = broken
            .iter()
            .map(|broken| json!({ "chain": broken.chain.to_string(), "chain_seq": broken.chain_seq, "why": broken.why }))
            .collect();
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        println!(
            "{}",
            json!({ "missing": missing, "id": manifest.id, "valid": checked.is_whole(), "files": files, "bytes": bytes, "events": events, "chains": chains, "damaged": damaged, "broken": broken, "faults": manifest.faults })
        );
        return;
    }
    for head in missing {
        println!("MISSING {head}: no chain of the backup has this event");
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
