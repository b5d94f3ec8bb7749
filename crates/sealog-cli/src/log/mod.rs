//! `sealog log`: sends one event from flags, or any number from a file or a pipe.
//!
//! [`input`] reads them, [`sender`] puts them into an outbox, sends its batches, and leaves in its spool what
//! cannot be sent ([`place`] has its directory, [`spool`] the commands for it). [`printer`] has the log_ids,
//! [`rejects`] the lines that are not taken, [`stop`] the signals: however the command ends, what it has
//! read is sealed, kept, or named.

mod input;
mod place;
mod printer;
mod rejects;
mod sender;
pub(super) mod spool;
mod stop;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_core::event::{FIELDS, Field, FieldId};
use sealog_core::key::parse_idempotency_key;
use sealog_core::time::is_rfc3339;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::connect::{self, Key};
use super::exit::Failure;
use super::output::Form;
use super::{file_flags, in_flight, lines};
use input::Input;
use printer::Printer;
use rejects::Rejects;
use sender::Sender;
use stop::Stop;

/// What an event can have beside its action and its metadata: a flag each.
fn flags() -> impl Iterator<Item = &'static Field> {
    let has_own = |field: &&Field| matches!(field.id, FieldId::Action | FieldId::Metadata);
    FIELDS.iter().filter(|field| field.is_input).filter(move |field| !has_own(field))
}

const SEVERITIES: [&str; 4] = ["info", "warning", "warn", "critical"];

pub(super) fn command() -> Command {
    let mut command = Command::new("log")
        .about("Log an event, or every line of a file or pipe")
        .long_about(
            "Log the event that the flags describe, or every line of a file or pipe as an event.\n\n\
             The command sends lines in batches, in order. Each batch has its own idempotency key, so a \
             batch that is sent twice counts once. When an event is sealed, the command prints its log_id on \
             a line.\n\n\
             The command writes events to the spool before it sends them, so they survive a kill. If the \
             service is unavailable after all retries, the command leaves them there and exits with 5, or with 3 if the key is rejected. The next `sealog log` to the same service with \
             the same key sends the spool first; so does a command that is still reading when the service is \
             back. The command reports events that were kept with another key; send them with `sealog spool \
             send --spool DIRECTORY` and a key of the same project. If the service rejects lines, the command \
             reports the first ten one by one, sends the others and exits with 6.\n\n\
             On SIGINT, SIGTERM or SIGHUP the command stops reading, sends the read lines within five \
             seconds or keeps them in the spool, reports the counts and exits with 128 plus the number of \
             the signal. A second signal stops it at once.",
        )
        .arg(Arg::new("action").value_name("ACTION").required_unless_present("file").help("Action, such as user.login; `sealog actions list` shows the names"))
        .arg(
            Arg::new("metadata")
                .long("metadata")
                .value_name("JSON")
                .help("Metadata as a JSON object"),
        )
        .arg(
            Arg::new("member")
                .short('m')
                .value_name("NAME=TEXT")
                .action(ArgAction::Append)
                .help("Member of the metadata, as text; repeatable"),
        )
        .arg(
            Arg::new("idempotency_key")
                .long("idempotency-key")
                .value_name("KEY")
                .conflicts_with("file")
                .help("Use this key instead of a random one; the same key and event count once within 24 hours"),
        )
        .arg(
            Arg::new("file")
                .long("file")
                .short('f')
                .value_name("FILE")
                .conflicts_with_all(["action", "metadata", "member"])
                .help("Read JSON events from this file, one per line or as an array; - is standard input"),
        )
        .arg(in_flight::of_batches())
        .arg(
            file_flags::flag("rejects", "Append rejected lines to this file")
                .requires("file"),
        )
        .arg(spool::flag())
        .arg(
            Arg::new("no_spool")
                .long("no-spool")
                .action(ArgAction::SetTrue)
                .conflicts_with("spool")
                .help("Neither write nor send a spool"),
        );
    for Field { name, help, .. } in flags() {
        let flag = Arg::new(*name).long(name.replace('_', "-")).value_name("TEXT");
        command = command.arg(flag.conflicts_with("file").help(*help));
    }
    connect::with_flags(command)
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let single = match matches.contains_id("file") && matches.get_one::<String>("file").is_some() {
        true => None,
        false => Some(event(matches)?),
    };
    let input = match matches.get_one::<String>("file") {
        Some(path) if single.is_none() => Some(Input::open(path)?),
        _ => None,
    };
    let idempotency_key = idempotency_key(matches)?;
    let client = connect::client(matches, Key::Needed)?;
    let spool = match matches.get_flag("no_spool") {
        true => None,
        false => Some(place::spool(matches, client.fingerprint())?),
    };
    let rejects = file_flags::path(matches, "rejects");
    let path = matches.get_one::<String>("file").map_or("-", String::as_str);
    lines::refuse_as_output(path, "--rejects", rejects.as_deref())?;
    let rejects = Rejects::open(rejects)?;
    let is_quiet = matches.get_flag("quiet");
    let stop = Stop::listen(is_quiet)?;
    let printer = stop.patience().and_then(|patience| Printer::new(Form::of(matches), patience))?;
    let in_flight = in_flight::asked(matches);
    let mut sender = Sender::new(Arc::new(client), spool, in_flight, printer, rejects, stop, is_quiet);
    connect::block_on(async move {
        match (single, input) {
            (Some(event), _) => sender.one(event, idempotency_key).await,
            (None, Some(input)) => sender.all(input).await,
            (None, None) => unreachable!("clap asks for one of them"),
        }
    })
}

/// One that cannot stand in a header would never be sent, and what is kept in the spool behind it neither.
fn idempotency_key(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let key = matches.get_one::<String>("idempotency_key").cloned();
    if key.as_ref().is_some_and(|key| parse_idempotency_key(key.as_bytes()).is_err()) {
        return Err(Failure::usage(
            "--idempotency-key must have 1 to 255 characters from ! to ~, without spaces",
        ));
    }
    Ok(key)
}

/// The event that the flags describe.
fn event(matches: &ArgMatches) -> Result<Box<RawValue>, Failure> {
    let mut event = Map::new();
    let text = |name: &str| matches.get_one::<String>(name).map(|text| Value::String(text.clone()));
    event.insert("action".into(), text("action").expect("clap asks for it"));
    for Field { name, .. } in flags() {
        if let Some(text) = matches.get_one::<String>(name) {
            check(name, text)?;
            event.insert((*name).to_owned(), text.as_str().into());
        }
    }
    let mut text = serde_json::to_string(&event).expect("texts");
    if let Some(metadata) = metadata(matches)? {
        // Beside the others as text: numbers and the order of members stay as they were written.
        text.truncate(text.len() - 1);
        text.push_str(&format!(r#","metadata":{metadata}}}"#));
    }
    Ok(RawValue::from_string(text).expect("JSON"))
}

/// The service stores any text in these fields; a person who types one wants to know that it is not what was
/// meant.
fn check(name: &str, text: &str) -> Result<(), Failure> {
    let problem = match name {
        _ if text.is_empty() => "needs a value; omit the flag if there is none".to_owned(),
        "severity" if !SEVERITIES.contains(&text) => format!("must be one of {}", SEVERITIES.join(", ")),
        "ts_client" if !is_rfc3339(text) => {
            "must be a time in ISO 8601 with its offset, such as 2026-11-14T12:00:01Z".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--{} {problem}; {text:?} was not sent", name.replace('_', "-"))))
}

fn metadata(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let mut text = match matches.get_one::<String>("metadata") {
        None => None,
        Some(text) => {
            let bad = |why: String| Failure::usage(format!("--metadata must be a JSON object: {why}"));
            let parsed: Value = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
            if !parsed.is_object() {
                return Err(bad("it has another type".into()));
            }
            Some(text.trim().to_owned())
        }
    };
    for member in matches.get_many::<String>("member").into_iter().flatten() {
        let Some((name, value)) = member.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::usage(format!("-m must be NAME=TEXT, not {member:?}")));
        };
        let member = format!("{}:{}", Value::from(name), Value::from(value));
        text = Some(match text {
            None => format!("{{{member}}}"),
            Some(object) => {
                let open = object[..object.len() - 1].trim_end();
                let comma = if open.ends_with('{') { "" } else { "," };
                format!("{open}{comma}{member}}}")
            }
        });
    }
    Ok(text)
}
