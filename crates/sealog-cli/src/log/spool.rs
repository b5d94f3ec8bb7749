//! `sealog spool`: what waits in the spools of `sealog log`, and what becomes of it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::{HumanBytes, HumanCount};
use sealog_client::Backlog;
use sealog_client::outbox::{Batch, Choice, Outbox, look};
use sealog_core::time::iso_ms;
use serde_json::json;

use super::super::connect::{self, Key};
use super::super::exit::{Exit, Failure};
use super::super::output::{self, Form};
use super::super::{ask, file_flags, metrics};
use super::place::{self, SPOOL_BYTES_MAX};
use super::printer::Printer;
use super::rejects::Rejects;
use super::sender::Sender;
use super::stop::Stop;

pub(super) fn flag() -> Arg {
    file_flags::flag(
        "spool",
        "Keep unsent events in this directory [default: one per service and key under ~/.local/state/sealog]",
    )
    .value_name("DIRECTORY")
}

pub(crate) fn command() -> Command {
    let spool = |help: &'static str| flag().help(help);
    let held = |help: &'static str| Arg::new("held").long("held").action(ArgAction::SetTrue).help(help);
    let of_key = "Use this spool [default: that of the service and the key]";
    let list = Command::new("list")
        .about("List the spools of this user in which events wait")
        .arg(spool("List only this spool, such as that of an application"))
        .arg(metrics::flag().requires("spool"));
    let send = Command::new("send")
        .about("Send the events of a spool")
        .long_about(
            "Send the events of a spool, in order. Give --spool to send a spool of another key; the key must \
             belong to the same project.\n\n\
             An idempotency key is valid for 24 hours. If the first attempt to send a batch is older, or a \
             record of it is damaged, the batch is held, because the service may already have stored it. \
             --held sends held batches, too: their events may be stored twice.",
        )
        .arg(spool(of_key))
        .arg(held("Also send held batches; their events may be stored twice"))
        .arg(file_flags::flag("rejects", "Append rejected events to this file"));
    let drop = Command::new("drop")
        .about("Discard the events of a spool, after printing them")
        .long_about(
            "Discard the events of a spool. Each event is printed to standard output, one per line, before it \
             is removed: redirect the output to a file to keep a copy.",
        )
        .arg(spool(of_key))
        .arg(held("Discard only held batches"))
        .arg(Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Do not ask for confirmation"));
    connect::with_flags(
        Command::new("spool")
            .about("List, send or discard events that `sealog log` could not send")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands([list, send, drop]),
    )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match matches.subcommand().expect("clap asks for one") {
        ("list", matches) => list(matches),
        ("send", matches) => send(matches),
        (_, matches) => drop_events(matches),
    }
}

fn list(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let folders = match file_flags::path(matches, "spool") {
        Some(folder) => vec![folder],
        None => place::spools(&place::home()?),
    };
    let form = Form::of(matches);
    let (mut text, mut rows) = (String::new(), Vec::new());
    for folder in folders {
        let files = look(&folder, u64::MAX).map_err(|error| Failure::of_path(&folder, &error))?;
        let Backlog { events, oldest_ms } =
            Backlog::read(&folder).map_err(|error| Failure::of_path(&folder, &error))?;
        let figures = [
            ("sealog_spool_events", "Events that wait in a spool.", events as f64),
            (
                "sealog_spool_oldest_timestamp_seconds",
                "When the oldest event in a spool was queued; 0 if none waits.",
                oldest_ms.map_or(0.0, metrics::seconds),
            ),
        ];
        metrics::write(matches, Some(("spool", &folder.to_string_lossy())), &figures)?;
        let Some(oldest_ms) = oldest_ms else { continue };
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let is_in_use = files.iter().any(|file| file.is_in_use);
        let (path, oldest) = (folder.display().to_string(), iso_ms(oldest_ms));
        match form {
            Form::Json => text.push_str(&format!(
                "{}\n",
                json!({ "spool": path, "events": events, "bytes": bytes, "oldest": oldest, "in_use": is_in_use })
            )),
            Form::Lines => text.push_str(&format!("{events}\t{oldest}\t{bytes}\t{is_in_use}\t{path}\n")),
            Form::Table => rows.push(vec![
                HumanCount(events).to_string(),
                oldest,
                HumanBytes(bytes).to_string(),
                if is_in_use { "being sent" } else { "waiting" }.to_owned(),
                output::plain(&path),
            ]),
        }
    }
    if form == Form::Table {
        text = match rows.is_empty() {
            true => "No events wait.\n".to_owned(),
            false => {
                output::table(&["events", "oldest", "size", "status", "spool"], &[16, 24, 12, 12, 200], &rows)
            }
        };
    }
    output::put(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn send(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let client = connect::client(matches, Key::Needed)?;
    let folder = existing(matches, client.fingerprint())?;
    let rejects = Rejects::open(file_flags::path(matches, "rejects"))?;
    let is_quiet = matches.get_flag("quiet");
    let stop = Stop::listen(is_quiet)?;
    let printer = stop.patience().and_then(|patience| Printer::new(Form::of(matches), patience))?;
    let mut sender = Sender::new(Arc::new(client), Some(folder), 1, printer, rejects, stop, is_quiet);
    let held = matches.get_flag("held");
    connect::block_on(async move { sender.spooled(held).await })
}

fn drop_events(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let folder = match file_flags::path(matches, "spool") {
        Some(_) => existing(matches, ("", ""))?,
        None => existing(matches, connect::client(matches, Key::Needed)?.fingerprint())?,
    };
    let unusable = |error| Failure::new(Exit::Failure, place::plain(&error));
    let mut outbox = Outbox::open(&folder, SPOOL_BYTES_MAX).map_err(unusable)?;
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(batch) = outbox.take().map_err(unusable)? {
        batches.push(batch);
    }
    let held = outbox.held();
    let is_held_only = matches.get_flag("held");
    let of_held: usize = held.iter().map(|batch| batch.events.len()).sum();
    let of_others: usize = batches.iter().map(Batch::len).sum();
    let events = of_held + if is_held_only { 0 } else { of_others };
    let counted = match events {
        1 => "1 event".to_owned(),
        events => format!("{} events", HumanCount(events as u64)),
    };
    let question = format!("Discard {counted} of {}?", folder.display());
    if events > 0 && !matches.get_flag("yes") {
        let can_ask = !matches.get_flag("no-input");
        match can_ask.then(|| ask::is_confirmed(&question)).flatten() {
            Some(true) => (),
            Some(false) => return Err(Failure::usage("no event was discarded")),
            None => return Err(Failure::usage("give --yes to discard the events; no event was discarded")),
        }
    }
    for batch in held {
        // Printed first: an output that cannot be written keeps the events where they are.
        for text in &batch.texts {
            put_line(text)?;
        }
        outbox.release(&batch.id, Choice::Drop).map_err(unusable)?;
    }
    for mut batch in batches {
        for index in 0..batch.len() {
            if batch.open(index).is_some() && !is_held_only {
                put_line(batch.text(index))?;
                outbox.end(&mut batch, index);
            }
        }
        outbox.finish(batch);
    }
    if !matches.get_flag("quiet") {
        eprintln!("sealog: {counted} discarded");
    }
    Ok(ExitCode::SUCCESS)
}

/// A closed pipe is a failure here: events that nobody has seen are not discarded.
fn put_line(text: &[u8]) -> Result<(), Failure> {
    match output::put_bytes(&[text, b"\n"].concat())? {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failure, "cannot write the output: the pipe is closed")),
    }
}

/// The spool that is meant, without making one.
fn existing(matches: &ArgMatches, fingerprint: (&str, &str)) -> Result<PathBuf, Failure> {
    let folder = place::spool(matches, fingerprint)?;
    if file_flags::path(matches, "spool").is_some() && !folder.is_dir() {
        let message = format!("there is no spool {}; `sealog spool list` shows them", folder.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    Ok(folder)
}
