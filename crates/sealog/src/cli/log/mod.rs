//! `sealog log`: sends one event from flags, or any number from a file or a pipe.
//!
//! [`sender`] makes batches of them, sends them, and keeps in the spool what cannot be sent.

mod sender;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_service::ingest::parse_key;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::connect::{self, Key};
use super::exit::Failure;
use super::lines;
use super::output::Form;
use super::spool::Spool;
use sender::Sender;

/// Flags for an event's own fields, by their names in the API.
const FIELDS: [(&str, &str); 7] = [
    ("actor_id", "Who did it"),
    ("resource", "What it was done to, like document/42"),
    ("severity", "info, warning or critical, instead of the catalog's"),
    ("actor_type", "What the actor is, like user or service"),
    ("resource_type", "What the resource is, instead of the part before its first slash"),
    ("session_id", "The session it was done in"),
    ("ts_client", "When it happened, in ISO 8601"),
];

pub(super) fn command() -> Command {
    let mut command = Command::new("log")
        .about("Logs an event, or every line of a file or a pipe")
        .long_about(
            "Logs an event that the flags describe, or every line of a file or a pipe as an event.\n\n\
             Many events travel in batches, in the order of their lines, each batch with an idempotency key of its own, so that one that is sent twice counts once. \
             The log_id of each event is printed when it is sealed, a line for each.\n\n\
             When the service is away after all retries, what was read is kept in the spool, and the command ends with 5; the next `sealog log` to the same service with the same key sends it first. \
             A service that comes back while lines still arrive gets the spool first, too. A line that the service does not take is named on standard error, the others are sent, and the command ends with 6.",
        )
        .arg(Arg::new("action").value_name("ACTION").required_unless_present("file").help("What happened, like user.login; `sealog actions list` has the names"))
        .arg(
            Arg::new("metadata")
                .long("metadata")
                .value_name("JSON")
                .help("Details, as a JSON object"),
        )
        .arg(
            Arg::new("member")
                .short('m')
                .value_name("NAME=TEXT")
                .action(ArgAction::Append)
                .help("A member of the details, as text; may be repeated"),
        )
        .arg(
            Arg::new("idempotency_key")
                .long("idempotency-key")
                .value_name("KEY")
                .conflicts_with("file")
                .help("Instead of a random one: the same key with the same event counts once within 24 hours"),
        )
        .arg(
            Arg::new("file")
                .long("file")
                .short('f')
                .value_name("FILE")
                .conflicts_with_all(["action", "metadata", "member"])
                .help("A file with an event in JSON on each line; - is standard input"),
        )
        .arg(
            Arg::new("in_flight")
                .long("in-flight")
                .value_name("N")
                .default_value("1")
                .value_parser(value_parser!(u64).range(1..=16))
                .help("How many batches may be under way at once; with more than one their order is not kept"),
        )
        .arg(
            Arg::new("rejects")
                .long("rejects")
                .value_name("FILE")
                .requires("file")
                .help("Appends the lines that the service does not take to this file"),
        )
        .arg(
            Arg::new("spool")
                .long("spool")
                .value_name("FILE")
                .help("Where to keep what cannot be sent; otherwise a file of this service and key under ~/.local/state/sealog"),
        )
        .arg(
            Arg::new("no_spool")
                .long("no-spool")
                .action(ArgAction::SetTrue)
                .conflicts_with("spool")
                .help("Keeps nothing, and sends nothing that was kept"),
        );
    for (name, help) in FIELDS {
        command = command.arg(
            Arg::new(name).long(name.replace('_', "-")).value_name("TEXT").conflicts_with("file").help(help),
        );
    }
    connect::with_flags(command)
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let single = match matches.contains_id("file") && matches.get_one::<String>("file").is_some() {
        true => None,
        false => Some(event(matches)?),
    };
    let idempotency_key = idempotency_key(matches)?;
    let client = connect::client(matches, Key::Needed)?;
    let spool = spool(matches, client.fingerprint())?;
    let rejects = matches.get_one::<String>("rejects").map(PathBuf::from);
    let input = matches.get_one::<String>("file").map_or("-", String::as_str);
    lines::refuse_as_output(input, "--rejects", rejects.as_deref())?;
    let mut sender = Sender::new(
        Arc::new(client),
        spool,
        usize::try_from(*matches.get_one::<u64>("in_flight").expect("has a default")).expect("at most 16"),
        Form::of(matches),
        matches.get_flag("quiet"),
        rejects,
    )?;
    connect::block_on(async move {
        match single {
            Some(event) => sender.one(event, idempotency_key).await,
            None => {
                let lines = lines::lines(matches.get_one::<String>("file").expect("there is one"))?;
                sender.all(lines).await
            }
        }
    })
}

/// One that cannot stand in a header would never be sent, and what is kept in the spool behind it neither.
fn idempotency_key(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let key = matches.get_one::<String>("idempotency_key").cloned();
    if key.as_ref().is_some_and(|key| parse_key(key.as_bytes()).is_err()) {
        return Err(Failure::usage(
            "--idempotency-key takes 1 to 255 characters from ! to ~, without spaces",
        ));
    }
    Ok(key)
}

/// The event that the flags describe.
fn event(matches: &ArgMatches) -> Result<Box<RawValue>, Failure> {
    let mut event = Map::new();
    let text = |name: &str| matches.get_one::<String>(name).map(|text| Value::String(text.clone()));
    event.insert("action".into(), text("action").expect("clap asks for it"));
    for (name, _) in FIELDS {
        event.extend(text(name).map(|value| (name.to_owned(), value)));
    }
    let mut text = serde_json::to_string(&event).expect("texts");
    if let Some(metadata) = metadata(matches)? {
        // Beside the others as text: numbers and the order of members stay as they were written.
        text.truncate(text.len() - 1);
        text.push_str(&format!(r#","metadata":{metadata}}}"#));
    }
    Ok(RawValue::from_string(text).expect("JSON"))
}

fn metadata(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let mut text = match matches.get_one::<String>("metadata") {
        None => None,
        Some(text) => {
            let bad = |why: String| Failure::usage(format!("--metadata must be a JSON object: {why}"));
            let parsed: Value = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
            if !parsed.is_object() {
                return Err(bad("it is something else".into()));
            }
            Some(text.trim().to_owned())
        }
    };
    for member in matches.get_many::<String>("member").into_iter().flatten() {
        let Some((name, value)) = member.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::usage(format!("-m takes NAME=TEXT, and {member:?} is not that")));
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

/// That of this service and key: what was meant for one is never sent to another.
fn spool(matches: &ArgMatches, (url, key): (&str, &str)) -> Result<Option<Spool>, Failure> {
    if matches.get_flag("no_spool") {
        return Ok(None);
    }
    if let Some(path) = matches.get_one::<String>("spool") {
        return Ok(Some(Spool::new(PathBuf::from(path))));
    }
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = var("XDG_STATE_HOME").or_else(|| Some(var("HOME")?.join(".local/state")));
    let Some(state) = state else {
        return Err(Failure::usage(
            "there is no place for the spool, since neither HOME nor XDG_STATE_HOME is set: name one with --spool, or give --no-spool",
        ));
    };
    let digest = Sha256::digest(format!("{url}\n{key}").as_bytes());
    let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Spool::new(state.join(format!("sealog/spool-{name}.ndjson")))))
}
