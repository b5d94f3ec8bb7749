//! `sealog events`: lists events, shows one, waits for new ones.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use sealog_client::http::Client;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::listing::{Filters, PAGE_MAX, with_filters};
use super::output::{self, Form};

/// How many events `tail` looks back for what it has already shown. When more come between two looks it says
/// so.
const CATCH_UP_MAX: usize = 10_000;

pub(super) fn command() -> Command {
    let list = with_filters(
        Command::new("list").about("List events, newest first").arg(
            Arg::new("limit")
                .long("limit")
                .short('n')
                .value_name("N")
                .default_value("50")
                .value_parser(value_parser!(u64).range(1..))
                .help("Number of events"),
        ),
    );
    let get = Command::new("get")
        .about("Show one event, exactly as the service returns it")
        .arg(Arg::new("log_id").value_name("LOG_ID").required(true).help("The log_id of the event"));
    let tail = with_filters(
        Command::new("tail")
            .about("Show the last events, then new ones as they arrive, oldest first")
            .arg(
                Arg::new("last")
                    .long("last")
                    .short('n')
                    .value_name("N")
                    .default_value("10")
                    .value_parser(value_parser!(u64).range(0..=CATCH_UP_MAX as u64))
                    .help("Number of last events to show first"),
            )
            .arg(
                Arg::new("interval")
                    .long("interval")
                    .value_name("SECONDS")
                    .default_value("1")
                    .value_parser(value_parser!(u64).range(1..=3600))
                    .help("Polling interval"),
            ),
    );
    let events =
        Command::new("events").about("Read events").subcommand_required(true).arg_required_else_help(true);
    connect::with_flags(events.subcommand(list).subcommand(get).subcommand(tail))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches.subcommand().expect("clap asks for one");
    let client = connect::client(matches, Key::Needed)?;
    let form = Form::of(matches);
    connect::block_on(async {
        match name {
            "list" => list(&client, matches, form).await,
            "get" => get(&client, matches, form).await,
            _ => tail(&client, matches, form).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, matches: &ArgMatches, form: Form) -> Result<(), Failure> {
    let filters = Filters::of(matches);
    let mut left =
        usize::try_from(*matches.get_one::<u64>("limit").expect("has a default")).unwrap_or(usize::MAX);
    let (mut cursor, mut is_first) = (None::<String>, true);
    while left > 0 {
        let page = filters.page(client, left.min(PAGE_MAX), cursor.as_deref()).await?;
        left -= page.events.len();
        if !put(&page.events, form, is_first)? {
            break;
        }
        is_first &= page.events.is_empty();
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if is_first && !matches.get_flag("quiet") {
        eprintln!("No events.");
    }
    Ok(())
}

async fn get(client: &Client, matches: &ArgMatches, form: Form) -> Result<(), Failure> {
    let log_id = matches.get_one::<String>("log_id").expect("clap asks for it");
    // What is no log_id cannot be part of a path either.
    if log_id.is_empty() || !log_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{:?} is not a log_id: a log_id has 26 letters and digits", output::plain(log_id)),
        ));
    }
    let answer = client.get(&format!("/v1/events/{log_id}"), &[]).await?;
    let text = std::str::from_utf8(&answer.body)
        .map_err(|_| Failure::new(Exit::Failure, "the response is not UTF-8"))?;
    match form {
        Form::Table => output::put(&format!("{}\n", indented(text)))?,
        Form::Lines | Form::Json => output::put(&format!("{text}\n"))?,
    };
    Ok(())
}

/// JSON with a line for each of its members. Texts and numbers stay as they are; only what a terminal must
/// not be sent is escaped, as JSON escapes it.
fn indented(text: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) =
        (String::with_capacity(text.len() * 2), 0usize, false, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            match output::plain(c.encode_utf8(&mut [0; 4])).starts_with("\\u") && c != '\\' {
                true => c
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
                false => out.push(c),
            }
            continue;
        }
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth.min(40)));
        };
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                if matches!(rest.peek(), Some('}' | ']')) {
                    out.extend(rest.next());
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    out
}

async fn tail(client: &Client, matches: &ArgMatches, form: Form) -> Result<(), Failure> {
    let filters = Filters::of(matches);
    let last =
        usize::try_from(*matches.get_one::<u64>("last").expect("has a default")).expect("bounded by clap");
    let interval = Duration::from_secs(*matches.get_one("interval").expect("has a default"));
    let mut newest: Option<String> = None;
    let mut is_first = true;
    loop {
        let (mut new, is_whole) =
            since(client, &filters, newest.as_deref(), if is_first { last } else { CATCH_UP_MAX }).await?;
        if !is_whole && !is_first {
            eprintln!(
                "sealog: more than {CATCH_UP_MAX} events arrived at once; the older ones are skipped (`sealog events list` shows all)"
            );
        }
        if let Some(event) = new.front() {
            newest = Some(head_of(event)?.log_id);
        } else if is_first {
            // Also when none of the last ones is to be shown, what comes next is new.
            newest = filters
                .page(client, 1, None)
                .await?
                .events
                .first()
                .map(|event| head_of(event))
                .transpose()?
                .map(|head| head.log_id);
        }
        new.make_contiguous().reverse();
        if !new.is_empty() {
            let (_, events) = new.as_slices();
            let events = if events.is_empty() { new.as_slices().0 } else { events };
            if !put(events, form, is_first)? {
                return Ok(());
            }
        }
        is_first = false;
        tokio::time::sleep(interval).await;
    }
}

/// Newest first, down to the one that was shown last; whether they are all.
async fn since(
    client: &Client,
    filters: &Filters,
    shown: Option<&str>,
    most: usize,
) -> Result<(VecDeque<Box<RawValue>>, bool), Failure> {
    let (mut new, mut cursor) = (VecDeque::new(), None::<String>);
    while new.len() < most {
        let page = filters.page(client, (most - new.len()).min(PAGE_MAX), cursor.as_deref()).await?;
        for event in page.events {
            // ULIDs of one chain are sorted as texts.
            if shown.is_some_and(|shown| head_of(&event).is_ok_and(|head| head.log_id.as_str() <= shown)) {
                return Ok((new, true));
            }
            new.push_back(event);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok((new, true));
        }
    }
    Ok((new, false))
}

/// What a line shows of an event.
#[derive(Deserialize)]
struct Shown {
    log_id: String,
    chain_seq: u64,
    timestamp: String,
    action: String,
    #[serde(default)]
    actor_id: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    severity: String,
}

fn head_of(event: &RawValue) -> Result<Shown, Failure> {
    serde_json::from_str(event.get())
        .map_err(|error| Failure::new(Exit::Failure, format!("the service sent an invalid event: {error}")))
}

const HEADINGS: [&str; 7] = ["seq", "log_id", "time", "severity", "action", "actor", "resource"];
const WIDTHS: [usize; 7] = [12, 26, 24, 8, 36, 28, 36];

fn put(events: &[Box<RawValue>], form: Form, is_first: bool) -> Result<bool, Failure> {
    let mut text = String::new();
    if form == Form::Json {
        for event in events {
            text.push_str(event.get());
            text.push('\n');
        }
        return Ok(output::put(&text)?);
    }
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        let Shown { log_id, chain_seq, timestamp, action, actor_id, resource, severity } = head_of(event)?;
        let mut row = vec![
            chain_seq.to_string(),
            timestamp,
            severity,
            output::plain(&action),
            output::plain(&actor_id),
            output::plain(&resource),
        ];
        // At the end of a line for scripts, which know the columns by their number.
        row.insert(if form == Form::Lines { row.len() } else { 1 }, log_id);
        rows.push(row);
    }
    match form {
        Form::Lines => rows.iter().for_each(|row| text.push_str(&(row.join("\t") + "\n"))),
        _ => {
            let table = output::table(&HEADINGS, &WIDTHS, &rows);
            // The headings stand once, above the first page.
            text.push_str(if is_first {
                &table
            } else {
                table.split_once('\n').map_or("", |(_, rows)| rows)
            });
        }
    }
    Ok(output::put(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_indented_without_a_change_of_its_texts_and_numbers() {
        let text = r#"{"a":{"n":1.0e5,"t":"x:{,}\"\\","e":{},"l":[]},"u":"é"}"#;
        let shown = indented(text);
        assert!(shown.contains("\"n\": 1.0e5,\n") && shown.contains(r#""t": "x:{,}\"\\","#), "{shown}");
        let same: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(same, serde_json::from_str::<serde_json::Value>(text).unwrap());
        let hostile = indented("{\"a\":\"\u{202e}\u{9b}\"}");
        assert_eq!(hostile, "{\n  \"a\": \"\\u202e\\u009b\"\n}");
    }
}
