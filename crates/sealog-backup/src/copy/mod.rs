//! `sealog copy`: everything from one store into another, verified on the way.

mod accounts;
mod chains;
pub(crate) mod follow;
mod keys;
pub(crate) mod trouble;

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};
use sealog_engine::{Opened, Place};
use sealog_service::Secret;
use serde_json::json;
use tokio::runtime::Runtime;

use self::accounts::{REPLACE_ACCOUNTS, check_accounts};
use self::chains::{Copied, check_events, copy_events};
use self::trouble::{Kind, Trouble};

use crate::shared::{json_flag, quiet_flag, unopened};
use crate::signed_log::Copying;

pub fn command() -> Command {
    let store = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("STORE").required(true).help(help)
    };
    Command::new("copy")
        .about("Copy everything from one store into another")
        .long_about(
            "Copy everything from one store into another. A store is a data directory, or the postgres:// \
             URL of a database.\n\n\
             The command copies events as they were sealed and verifies each against the previous one before \
             it writes it. At the end the heads of all chains match, so every hash does. Valid idempotency \
             keys are copied with their events, so a retry after the copy gets the same response as before. \
             Accounts, keys, sessions and queued mail are copied too. So is the signed log, without the keys \
             that sign: the target signs nothing until its state copy, or `sealog trust recover`, excludes \
             that the source signed more.\n\n\
             The target must be empty or hold an earlier copy of the same store; the command then resumes. \
             It checks this before it writes: every chain of the target is a prefix of the source's, and no \
             account in the target is newer. Stop the servers of both stores first; or copy once while they \
             run, stop them, and copy again, which is quick.",
        )
        .arg(store("from", "Read from this store"))
        .arg(store("to", "Write to this store"))
        .arg(
            Arg::new(REPLACE_ACCOUNTS)
                .long(REPLACE_ACCOUNTS)
                .action(ArgAction::SetTrue)
                .help("Use the source's accounts if the accounts of both stores differ and neither is newer"),
        )
        .arg(json_flag())
        .arg(quiet_flag())
        .after_help(EXIT_CODES)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let given = |name: &str| matches.get_one::<String>(name).expect("clap asks for it").as_str();
    let at = |name: &'static str| move |failure: Failure| prefixed(format!("--{name}"), &failure);
    must_exist(given("from")).map_err(at("from"))?;
    let from = open(given("from")).map_err(at("from"))?;
    let to = open(given("to")).map_err(at("to"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let copied = copy_all(&runtime, &from, &to, matches);
    from.close();
    to.close();
    let (Copied { events, chains }, entries) = copied?;
    if matches.get_flag("json") {
        println!("{}", json!({ "events": events, "chains": chains }));
    } else if !matches.get_flag("quiet") {
        println!("copied {events} events; {chains} chains end with the same hash in both stores");
        if let Some(entries) = entries {
            println!(
                "copied the signed log with {entries} new entries, without keys; the target signs nothing before `sealog trust recover`, or with the state copy of the source"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// To open a directory makes it a store; a misspelt source must not become one.
fn must_exist(text: &str) -> Result<(), Failure> {
    if is_url(text) || Path::new(text).join("FORMAT").is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!("there is no store in {text}")))
}

fn open(text: &str) -> Result<Opened, Failure> {
    let place = if is_url(text) { Place::Postgres(Secret(text.to_owned())) } else { Place::Embedded };
    Opened::open_unmarked(&place, Path::new(text)).map_err(unopened)
}

fn prefixed(place: impl std::fmt::Display, failure: &Failure) -> Failure {
    Failure::new(failure.exit, format!("{place}: {}", failure.message))
}

/// The events, between the two halves of the signed log.
fn copy_all(
    runtime: &Runtime,
    from: &Opened,
    to: &Opened,
    matches: &ArgMatches,
) -> Result<(Copied, Option<u64>), Trouble> {
    let log = Copying::begin(from, to).map_err(unwritten)?;
    let copied = runtime.block_on(copy(from, to, matches))?;
    let entries = log.map(|log| log.finish(to)).transpose()?;
    Ok((copied, entries))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(trouble: Trouble) -> Trouble {
    Trouble::new(trouble.kind, format!("{}. The target is unchanged", trouble.message))
}

/// Whoever mixes up the two stores must not lose one of them: both are checked before anything is written.
async fn copy(from: &Opened, to: &Opened, matches: &ArgMatches) -> Result<Copied, Trouble> {
    let replace_accounts = matches.get_flag(REPLACE_ACCOUNTS);
    let (source, target) = (from.control(), to.control());
    let checked = async {
        let goes_on = check_events(&*from.store(), &*to.store()).await?;
        let (source, target) = (
            source.export().await.map_err(Trouble::source)?,
            target.export().await.map_err(Trouble::target)?,
        );
        check_accounts(&source, &target, goes_on || replace_accounts)?;
        Ok::<_, Trouble>((source != target).then_some(source))
    };
    let accounts = checked.await.map_err(unwritten)?;
    if let Some(accounts) = accounts {
        target.replace(accounts.clone()).await.map_err(Trouble::target)?;
        if target.export().await.map_err(Trouble::target)? != accounts {
            let problem = "the accounts in the target are not those of the source";
            return Err(Trouble::new(Kind::Target, problem));
        }
    }
    copy_events(&*from.store(), &*to.store(), matches.get_flag("quiet")).await
}
