//! `sealog backup heads`: the heads of a database, noted beside its own backups.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use sealog_cli::exit::Failure;
use sealog_engine::{Opened, Place as StorePlace};
use sealog_store::postgres;
use sealog_store::world::{SystemWorld, World};

use super::head_text;
use super::manifest::{Manifest, POSTGRESQL, StoreText};
use super::place::{Keeper, Place};
use super::shared::{EXIT_CODES, dir_argument, json_flag, unopened};

pub(super) fn command() -> Command {
    Command::new("heads")
        .about("Record the last event of every chain of a database, to check a restore")
        .long_about(
            "Record the last event of every chain of a PostgreSQL database, with its hash, in DIR.\n\n\
                 Back up the database with its own tools (docs/operating-postgres.md). They cannot detect \
                 missing events after a restore. So run this command after each backup, if possible on \
                 another machine than the database, and run `sealog restore check` after a restore. You can \
                 run it as often as you like; each run adds one small file.",
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("Directory for the recorded heads; --store names the database"))
        .arg(json_flag())
}

pub fn run(matches: &ArgMatches, store: &StorePlace, data_dir: &Path) -> Result<ExitCode, Failure> {
    let dir = matches.get_one::<String>("dir").expect("clap asks for it");
    let StorePlace::Postgres(_) = store else {
        return Err(Failure::usage(
            "--store: give the postgres:// URL of a database; backups of an embedded store already contain its heads",
        ));
    };
    let opened = Opened::open_unmarked(store, data_dir).map_err(unopened)?;
    let noted = note(&opened, Path::new(dir));
    opened.close();
    let manifest = noted?;
    if matches.get_flag("json") {
        println!(
            "{}",
            serde_json::json!({ "id": manifest.id, "made_at": manifest.made_at, "dir": dir, "chains": manifest.heads.len(), "events": manifest.events() })
        );
    } else {
        println!("heads {}: {} events in {} chains", manifest.id, manifest.events(), manifest.heads.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn note(opened: &Opened, dir: &Path) -> Result<Manifest, Failure> {
    let database = opened.database().ok_or_else(|| "this store is not a database".to_owned())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let store = opened.store();
    let heads = runtime.block_on(store.heads()).map_err(|error| error.to_string())?;
    let place = Place::create(dir, Keeper::Backups)?;
    let format = format!("schema {}", postgres::schema_version());
    let store_text = StoreText { kind: POSTGRESQL.into(), format, id: database.store_id().to_string() };
    let mut manifest = Manifest::after(&place.manifests()?, store_text, SystemWorld.now_ms())
        .map_err(|problem| Failure::usage(format!("{}: {problem}", dir.display())))?;
    manifest.heads = head_text::texts(&heads.into_iter().collect());
    manifest.faults = store.faults();
    place.put_manifest(&manifest)?;
    Ok(manifest)
}
