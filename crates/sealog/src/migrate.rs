//! `sealog migrate`.

use std::cmp::Ordering;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Exit, Failure};
use sealog_cli::output::quiet_flag;
use sealog_cli::progress;
use sealog_engine::{Place, SCHEMAS};
use sealog_store::postgres;
use serde_json::{Value, json};

use crate::config::{self, Settings};

pub(crate) fn command() -> Command {
    config::with_flags(
        Command::new("migrate").about("Create or update the schema of the PostgreSQL store").long_about(
            "Create or update the schema of the PostgreSQL store that SEALOG_STORE names.\n\n\
             A server creates the tables of an empty database if its role may, but never changes existing \
             tables: it exits with a message that names this command. Run the command as the role that owns \
             the schema, after a backup and before you start the new version. Several at once are safe: they \
             wait for each other.\n\n\
             The embedded store needs no migration: its server copies the control data aside, updates it and \
             logs each step. --status and --dry-run work for both stores and change nothing.",
        ),
    )
    .arg(
        Arg::new("citus")
            .long("citus")
            .action(ArgAction::SetTrue)
            .help("Distribute the event tables over the nodes of a Citus cluster, by chain_id"),
    )
    .arg(
        Arg::new("dry-run")
            .long("dry-run")
            .action(ArgAction::SetTrue)
            .conflicts_with("citus")
            .help("Print the steps without running them"),
    )
    .arg(
        Arg::new("status")
            .long("status")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["citus", "dry-run"])
            .help("Print the versions of the store and of this program; exit with 1 if an update is needed"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
    .arg(quiet_flag())
    .after_help(EXIT_CODES)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    if matches.get_flag("status") {
        return status(&settings, matches.get_flag("json"));
    }
    if matches.get_flag("dry-run") {
        return dry_run(&settings, matches.get_flag("json"));
    }
    let Place::Postgres(url) = &settings.store else {
        return Err(Failure::usage(
            "the embedded store has no schema to migrate; set store to a postgres:// URL",
        ));
    };
    // How long the database needs for a step, nothing says beforehand.
    let is_quiet = matches.get_flag("quiet");
    let bar = progress::waiting(is_quiet, "Updating the schema");
    let steps = postgres::migrate(&url.0).map_err(cannot)?
        + sealog_control::migrate_all(&url.0, &SCHEMAS).map_err(cannot)?;
    let say = |step: &str| {
        if !is_quiet {
            progress::tell(&bar, step);
        }
    };
    let citus = matches.get_flag("citus").then(|| postgres::distribute(&url.0, say));
    bar.finish_and_clear();
    let citus = citus.transpose().map_err(cannot)?;
    if matches.get_flag("json") {
        let mut done = json!({ "steps": steps, "citus": citus.is_some() });
        if let Some(citus) = citus {
            done["distributed"] = json!(citus.distributed);
            done["cleared"] = json!(citus.cleared);
        }
        println!("{done}");
        return Ok(ExitCode::SUCCESS);
    }
    if is_quiet {
        return Ok(ExitCode::SUCCESS);
    }
    println!("the schema is up to date; ran {steps} steps");
    if let Some(citus) = citus {
        match citus.distributed.len() {
            0 => println!("all event tables were already distributed"),
            tables => println!("distributed {tables} event tables; restart the servers"),
        }
        if !citus.cleared.is_empty() {
            println!("removed the hidden copies of {} on the coordinator", citus.cleared.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn cannot(error: postgres::OpenError) -> Failure {
    let exit = match error {
        postgres::OpenError::Url(_) => Exit::Usage,
        _ if error.may_pass() => Exit::Unavailable,
        _ => Exit::Failure,
    };
    Failure::new(exit, error.to_string())
}

/// The name of each schema, the steps that were made, and those that this program knows.
type Schemas = Vec<(String, i64, i64)>;

fn schemas(settings: &Settings) -> Result<Schemas, Failure> {
    Ok(match &settings.store {
        Place::Postgres(url) => {
            let look = sealog_control::look(&url.0, &SCHEMAS).map_err(cannot)?;
            if let Some(newer) = look.schemas.iter().find(|schema| schema.made > schema.wanted)
                && let Some(program) = &newer.program
            {
                eprintln!("sealog: {} was last updated by {program}", newer.name);
            }
            look.schemas.into_iter().map(|schema| (schema.name, schema.made, schema.wanted)).collect()
        }
        Place::Embedded => {
            let found = sealog_control::look_in_directory(&settings.data_dir);
            let found = found.map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
            let number = |steps: usize| i64::try_from(steps).unwrap_or(i64::MAX);
            let known = sealog_control::SCHEMA.sqlite.len();
            let (made, wanted) = found.unwrap_or((0, known));
            vec![("control.db".to_owned(), number(made), number(wanted))]
        }
    })
}

/// Says whether the store has the versions of this program.
fn status(settings: &Settings, as_json: bool) -> Result<ExitCode, Failure> {
    let schemas = schemas(settings)?;
    let is_current = schemas.iter().all(|(_, made, wanted)| made == wanted);
    let program = env!("CARGO_PKG_VERSION");
    if as_json {
        println!("{}", json!({ "program": program, "current": is_current, "schemas": objects(&schemas) }));
    } else {
        for (name, made, wanted) in &schemas {
            let state = match wanted.cmp(made) {
                Ordering::Less => "newer than this program; use the program that wrote it, or a newer one",
                Ordering::Equal => "current",
                Ordering::Greater if *made == 0 => "not created yet",
                Ordering::Greater => "needs an update",
            };
            println!("{name}: version {made}, Sealog {program} has {wanted}: {state}");
        }
    }
    Ok(if is_current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn objects(schemas: &Schemas) -> Vec<Value> {
    let object =
        |(name, made, wanted): &(String, i64, i64)| json!({ "name": name, "made": made, "wanted": wanted });
    schemas.iter().map(object).collect()
}

/// Says what would be done, and by whom.
fn dry_run(settings: &Settings, as_json: bool) -> Result<ExitCode, Failure> {
    let schemas = schemas(settings)?;
    let steps: i64 = schemas.iter().map(|(_, made, wanted)| (wanted - made).max(0)).sum();
    if as_json {
        println!("{}", json!({ "dry_run": true, "steps": steps, "schemas": objects(&schemas) }));
        return Ok(ExitCode::SUCCESS);
    }
    for (name, made, wanted) in &schemas {
        match wanted.cmp(made) {
            Ordering::Less => {
                println!(
                    "{name}: version {made} is newer than this program's {wanted}; use the program that wrote it, or a newer one"
                )
            }
            Ordering::Equal => println!("{name}: version {made}; nothing to do"),
            Ordering::Greater if *made == 0 => {
                println!("{name}: missing; would be created with version {wanted}")
            }
            Ordering::Greater => {
                println!("{name}: version {made}; would run steps {} to {wanted}", made + 1)
            }
        }
    }
    if settings.store == Place::Embedded && steps > 0 {
        println!("the server runs the steps at its next start, after it has copied the control data aside");
    }
    println!("dry run: no changes made");
    Ok(ExitCode::SUCCESS)
}
