//! `sealog restore check`: whether a database that was restored by its own tools has every event that is
//! known to have been acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::progress;
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Ulid};
use sealog_core::time::iso_ms;
use sealog_core::verify::Item;
use sealog_engine::{Opened, Place as StorePlace};
use sealog_service::evidence::verification::queue_baseline;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{Range, Store, StoreError};
use serde_json::json;

use super::place::Place;
use super::record::{Restored, add_records};
use super::rollback::{Behind, Known};
use super::rollback_flags::{known_to, rollback_args};
use super::shared::{EXIT_CODES, json_flag, quiet_flag, unopened};

pub(super) fn command() -> Command {
    Command::new("check")
        .about("Compare a restored database with its recorded heads")
        .long_about(
            "Compare a restored database with its recorded heads.\n\n\
                 Restore the database with its own tools, then run this command before you start the first \
                 server. It compares the database with evidence of acknowledged events: the heads from \
                 `sealog backup heads` (--heads), receipts, and the data directories of its servers \
                 (--old-data, once for each). It also verifies every chain.\n\n\
                 If events are missing, the command lists them, records the loss in the database so that no \
                 server seals events on top of it, and exits with 1. --accept-rollback accepts the loss as \
                 the next event of each chain (sealog.loss_accepted) and records it in the system chains \
                 (sealog.store_restored).",
        )
        .after_help(EXIT_CODES)
        .arg(
            Arg::new("heads")
                .long("heads")
                .value_name("DIR")
                .help("Compare with all heads that `sealog backup heads` recorded in this directory"),
        )
        .args(rollback_args())
        .arg(json_flag())
        .arg(quiet_flag())
}

pub fn run(matches: &ArgMatches, store: &StorePlace, data_dir: &Path) -> Result<ExitCode, Failure> {
    let StorePlace::Postgres(_) = store else {
        return Err(Failure::usage(
            "--store: give the postgres:// URL of the database; for an embedded store `sealog restore` compares by itself",
        ));
    };
    let mut known = Known::default();
    known_to(matches, &mut known)?;
    let opened = Opened::open_unmarked(store, data_dir).map_err(unopened)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let compared = runtime.block_on(compare(&opened, matches, &mut known));
    opened.close();
    let Compared { lost, broken, chains, accepted } = compared?;
    if matches.get_flag("json") {
        let lost: Vec<String> = lost.iter().map(Behind::say).collect();
        println!(
            "{}",
            json!({ "chains": chains, "lost": lost, "broken": broken, "accepted": accepted, "not_known": known.not_known() })
        );
    } else {
        for behind in &lost {
            println!("{}{}", if accepted { "accepted: " } else { "" }, behind.say());
        }
        for broken in &broken {
            println!("BROKEN {broken}");
        }
        if lost.is_empty() && broken.is_empty() {
            if matches.get_flag("quiet") {
                return Ok(ExitCode::SUCCESS);
            }
            println!(
                "the database has every event that is known to be acknowledged; {chains} chains are valid"
            );
        } else if !lost.is_empty() && !accepted {
            println!(
                "These chains reject events until the loss is accepted: restore the events, or run this with --accept-rollback and --reason"
            );
        }
    }
    Ok(match (broken.is_empty(), lost.is_empty() || accepted) {
        (false, _) => Exit::Broken.into(),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}

struct Compared {
    lost: Vec<Behind>,
    broken: Vec<String>,
    chains: usize,
    accepted: bool,
}

async fn compare(opened: &Opened, matches: &ArgMatches, known: &mut Known) -> Result<Compared, Failure> {
    let store = opened.store();
    let database = opened.database().ok_or_else(|| "this store is not a database".to_owned())?;
    let text = |error: StoreError| error.to_string();
    let mut newest = None;
    if let Some(dir) = matches.get_one::<String>("heads") {
        let id = database.store_id().to_string();
        for manifest in Place::open(Path::new(dir))?.manifests()? {
            if manifest.store.id != id {
                return Err(Failure::usage(format!(
                    "--heads: {} was recorded for another store ({})",
                    manifest.id, manifest.store.id
                )));
            }
            known.add_manifest(&manifest)?;
            newest = Some(manifest);
        }
    }
    let heads: BTreeMap<ChainId, Head> = store.heads().await.map_err(text)?.into_iter().collect();
    let found = find(&*store, known, &heads).await.map_err(text)?;
    let mut dropped = BTreeMap::new();
    for chain in heads.keys() {
        dropped.insert(*chain, store.head(*chain).await.map_err(text)?.dropped);
    }
    let lost = still_lost(database, known.behind(&heads, &found, &dropped)).await.map_err(text)?;
    let accepted = matches.get_flag("accept-rollback");
    if accepted && !lost.is_empty() {
        let now = iso_ms(SystemWorld.now_ms());
        let (backup, made_at) = match &newest {
            Some(manifest) => (manifest.id.clone(), manifest.made_at.clone()),
            None => ("database".to_owned(), now),
        };
        let reason = matches.get_one::<String>("reason").cloned().expect("clap asks for it");
        let named: BTreeSet<ChainId> = lost.iter().filter_map(|behind| behind.chain).collect();
        for (chain, _) in store.losses().await.map_err(text)? {
            if !named.contains(&chain) {
                continue;
            }
            store
                .accept_loss(chain, reason.clone())
                .await
                .map_err(|error| format!("chain {chain}: {error}"))?;
        }
        let (backup, made_at, reason) = (&*backup, &*made_at, Some(&*reason));
        let record = Restored {
            epoch: None,
            backup,
            made_at,
            reason,
            lost: &lost,
            concerns_all: false,
            recovered_events: 0,
        };
        add_records(opened.control(), &record).await?;
        // Control data and log may be of two moments: what differs now is not what somebody edits later.
        queue_baseline(opened.control(), &SystemWorld).await.map_err(|error| error.to_string())?;
    }
    let (mut broken, chains) = (Vec::new(), heads.len());
    let events = heads.values().map(|head| head.chain_seq).sum();
    let bar = progress::bar(matches.get_flag("quiet"), "Verifying", Some(events));
    for (chain, head) in &heads {
        let verdict = sealog_store::verify::whole(&*store, *chain).await.map_err(text)?;
        // A loss that is on record is named above.
        let is_known = !accepted && lost.iter().any(|behind| behind.chain == Some(*chain));
        if let Some(found) = verdict.broken.filter(|_| !is_known) {
            broken.push(format!("chain {chain} at {}: {}", found.at, found.reason.explain()));
        }
        bar.inc(head.chain_seq);
    }
    bar.finish_and_clear();
    Ok(Compared { lost, broken, chains, accepted })
}

/// Records what is lost, and leaves out what was accepted before. A chain has one record, of its furthest
/// loss. So the nearest is recorded first, and each is held against the acceptances by itself.
async fn still_lost(database: &PostgresStore, mut left: Vec<Behind>) -> Result<Vec<Behind>, StoreError> {
    let mut lost = Vec::new();
    while !left.is_empty() {
        let mut noted = BTreeMap::new();
        let (now, later): (Vec<Behind>, Vec<Behind>) = left.into_iter().partition(|behind| {
            let Some(chain) = behind.chain else { return true };
            *noted.entry(chain).or_insert(behind.known) == behind.known
        });
        let recorded = database.note_losses(noted).await?;
        let is_recorded = |behind: &Behind| {
            behind.chain.is_none_or(|chain| {
                recorded.iter().any(|finding| {
                    finding.chain == chain && finding.acknowledged.chain_seq >= behind.known.chain_seq
                })
            })
        };
        lost.extend(now.into_iter().filter(is_recorded));
        left = later;
    }
    lost.sort_by_key(|behind| (behind.chain.is_none(), behind.chain, behind.known.chain_seq));
    Ok(lost)
}

/// The known events that are in the middle of their chains, or anywhere.
async fn find(
    store: &dyn Store,
    known: &Known,
    heads: &BTreeMap<ChainId, Head>,
) -> Result<BTreeMap<Ulid, (ChainId, Head)>, StoreError> {
    let mut found = BTreeMap::new();
    for (chain, head, _) in known.heads() {
        let range = Range { from: head.chain_seq, to: head.chain_seq, bytes_max: 1 };
        let items = store.range(chain, range).await?.items;
        if let Some(Item::Event(event)) = items.first() {
            found.insert(event.sealed.log_id, (chain, event.head()));
        }
    }
    // Receipts that do not name their chain.
    for log_id in known.unplaced() {
        for chain in heads.keys() {
            if let Some(event) = store.get(*chain, log_id).await? {
                found.insert(log_id, (*chain, event.head()));
                break;
            }
        }
    }
    Ok(found)
}
