//! `sealog backup verify`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_core::audit::NotedHead;
use sealog_store::embedded::backup::Wanted;
use sealog_store::world::{SystemWorld, World};
use serde_json::{Value, json};

use super::check::{Checked, check};
use super::manifest::{EMBEDDED, Manifest};
use super::place::{Found, Place};
use super::progress::Progress;
use super::shared::{EXIT_CODES, dir_argument, json_flag, metrics_flag, quiet_flag, seconds, write_metrics};
use super::signature::is_signed;

pub(super) fn command() -> Command {
    Command::new("verify")
        .about("Check that a backup is complete, without restoring it")
        .long_about(
            "Check that a backup is complete, without restoring it. The command compares every file with its \
             checksum and verifies every chain from its first event to its head in the manifest, recomputing \
             the hash of each event, on all cores.\n\n\
             If something is damaged or broken, the command names it and exits with 10. Without --backup it \
             checks the newest backup; --all checks every backup in the directory.\n\n\
             The manifest is part of the backup: an attacker who can write to the directory can replace \
             both. --expect takes an event that you recorded elsewhere, such as a receipt or the head of a \
             verification; one of the chains must contain it. --signature and --public-key check an Ed25519 \
             signature that you made over the manifest, backups/ID.json, with a key that is not on the \
             backup host.\n\n\
             The command records the newest complete backup in DIR/VERIFIED; `sealog backup prune` keeps it.",
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("The backup directory"))
        .arg(
            Arg::new("backup")
                .long("backup")
                .value_name("ID")
                .conflicts_with("all")
                .help("Check this backup instead of the newest; `sealog backup list` shows the ids"),
        )
        .arg(
            Arg::new("all").long("all").action(ArgAction::SetTrue).help("Check all backups in the directory"),
        )
        .arg(
            Arg::new("expect")
                .long("expect")
                .value_name("SEQ:HASH")
                .action(ArgAction::Append)
                .value_parser(noted_head)
                .help("Require a chain to contain this event, recorded earlier elsewhere; repeatable"),
        )
        .arg(
            Arg::new("signature")
                .long("signature")
                .value_name("FILE")
                .requires("public-key")
                .conflicts_with("all")
                .help("Check this Ed25519 signature over the manifest, backups/ID.json (64 bytes)"),
        )
        .arg(
            Arg::new("public-key")
                .long("public-key")
                .value_name("FILE")
                .requires("signature")
                .help("Public key for --signature (PEM)"),
        )
        .arg(metrics_flag())
        .arg(json_flag())
        .arg(quiet_flag())
}

fn noted_head(text: &str) -> Result<NotedHead, String> {
    NotedHead::parse(text).ok_or_else(|| "must be SEQ:HASH, a number and 64 lower-case hex digits".into())
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
                let problem = format!(
                    "backup {}: the signature does not match this manifest and this key",
                    manifest.id
                );
                return Err(Failure::new(Exit::Broken, problem));
            }
        }
    }
    let expected: Vec<NotedHead> = matches.get_many("expect").into_iter().flatten().copied().collect();
    let hashes = expected.iter().map(|head| head.hash).collect();
    let wanted = Wanted { hashes, ..Wanted::default() };
    let (mut is_whole, mut newest_ms) = (true, 0);
    for manifest in manifests {
        newest_ms = manifest.made_at_ms;
        if manifest.store.kind != EMBEDDED {
            eprintln!(
                "sealog: backup {} holds the heads of a database and no events; compare them with `sealog restore check`",
                manifest.id
            );
            continue;
        }
        let progress = Progress::new("Verifying", matches.get_flag("quiet"));
        let mut checked = check(&place, &manifest, &wanted, &progress)?;
        progress.finish();
        checked.expect(&expected);
        is_whole &= checked.is_whole();
        // A copy of the directory may be read-only: the verification counts all the same.
        if checked.is_whole()
            && let Err(problem) = place.note_verified(&manifest, SystemWorld.now_ms())
            && !matches.get_flag("quiet")
        {
            eprintln!("sealog: cannot record the verification: {problem}");
        }
        report(&manifest, &checked, matches.get_flag("json"));
    }
    if !is_whole {
        return Ok(Exit::Broken.into());
    }
    let (now, made) = (seconds(SystemWorld.now_ms()), seconds(newest_ms));
    write_metrics(
        matches,
        &[
            (
                "sealog_backup_verify_last_success_timestamp_seconds",
                "When a backup was last found whole.",
                now,
            ),
            ("sealog_backup_verified_timestamp_seconds", "When the verified backup was made.", made),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
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
            format!("{dir}: there is no backup {id}; `sealog backup list {dir}` shows the backups")
        }
        None => format!("{dir}: there is no complete backup; create one with `sealog backup create`"),
    };
    let Found { id, manifest } = found.ok_or_else(|| Failure::new(Exit::NotFound, missing()))?;
    let unread = |problem| {
        format!(
            "backup {id}: {problem}. Choose another backup with --backup; `sealog backup list {dir}` shows the ids"
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
        println!("MISSING {head}: no chain of the backup contains this event");
    }
    for problem in damaged {
        println!("DAMAGED {problem}");
    }
    for broken in broken {
        println!("BROKEN chain {} at {}: {}", broken.chain, broken.chain_seq, broken.why);
    }
    if checked.is_whole() {
        println!(
            "backup {}: complete, {events} events in {chains} chains verified, {files} files, {bytes} bytes",
            manifest.id
        );
    } else {
        println!(
            "backup {}: NOT complete; find another copy of the files above, or use another backup",
            manifest.id
        );
    }
}
