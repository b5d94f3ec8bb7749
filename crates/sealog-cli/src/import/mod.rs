//! `sealog import`: events of a file, as NDJSON, CSV or CloudEvents.
//!
//! The key of a batch is made of what is in it and where it stands in the file: the same file again makes the
//! same batches with the same keys, and the service stores nothing twice. [`csv`] and [`cloudevents`] make
//! events of what stands in a file, [`state`] knows how far an import has come when keys are long forgotten.

mod cloudevents;
mod csv;
mod report;
mod state;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::HumanCount;
use sealog_client::http::{Client, ClientError};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::connect::{self, Key};
use super::deliver::{BYTES_MAX, Batch, Delivered, EVENTS_MAX, deliver_again};
use super::exit::{Exit, Failure};
use super::lines::{self, Line};
use super::{file_flags, in_flight, output, progress};
use report::Report;
use state::State;

pub(super) fn command() -> Command {
    connect::with_flags(
        Command::new("import")
            .about("Import events from a file: NDJSON, CSV or CloudEvents")
            .long_about(
                "Import events from a file, in order, 100 per request.\n\n\
                 ndjson   one JSON event per line, as the API accepts it; lines of an export also work\n\
                 csv      a header, then one event per row. Columns named action, actor_id, resource, \
                 severity, actor_type, resource_type, session_id, ts_client or metadata (a JSON object) \
                 become these fields; metadata.NAME and all other columns become members of metadata, as \
                 text. Change this with --map COLUMN=FIELD; COLUMN=- skips a column. Fields that the service \
                 sets (log_id, hash and the like) are skipped\n\
                 cloudevents   one CloudEvents 1.0 event in JSON per line, mapped like POST \
                 /ingest/cloudevents: type is the action (--map TYPE=ACTION renames one), subject the \
                 resource, authid the actor, time ts_client, data the metadata\n\n\
                 An event gets the time of its import; a column or member timestamp becomes ts_client.\n\n\
                 If the command is interrupted, run it again: the idempotency key of each batch comes from \
                 its content and position, so no event is stored twice within 24 hours, or at any later time \
                 with --state FILE. The command reports a rejected row with its line on standard error and \
                 in --report, stores the others, and exits with 6. You can correct the rows in --rejects and \
                 import them separately. With --state the command appends to both files; a resumed command \
                 includes earlier rejections in its count and also exits with 6. After a kill, rows of the \
                 last batch can be in these files twice.",
            )
            .arg(
                Arg::new("file")
                    .value_name("FILE")
                    .required(true)
                    .help("File to import; - is standard input"),
            )
            .arg(
                Arg::new("from")
                    .long("from")
                    .value_name("FORMAT")
                    .value_parser(PossibleValuesParser::new(["ndjson", "csv", "cloudevents"]))
                    .help("Format of the file [default: csv for .csv, else ndjson]"),
            )
            .arg(
                Arg::new("map")
                    .long("map")
                    .value_name("COLUMN=FIELD")
                    .action(ArgAction::Append)
                    .help("csv: map a column to a field; cloudevents: TYPE=ACTION; repeatable"),
            )
            .arg(
                Arg::new("set")
                    .long("set")
                    .value_name("FIELD=TEXT")
                    .action(ArgAction::Append)
                    .help("csv: set a field of all rows, such as action=user.login; repeatable"),
            )
            .arg(
                Arg::new("delimiter")
                    .long("delimiter")
                    .value_name("CHARACTER")
                    .default_value(",")
                    .help("csv: separator of values; tab for a tab"),
            )
            .arg(file_flags::flag("state", "Record the position in this file and resume from it"))
            .arg(file_flags::flag(
                "report",
                "Write a JSON object for each rejected row: line, code, message, request_id",
            ))
            .arg(file_flags::flag("rejects", "Write the rejected rows as JSON events"))
            .arg(in_flight::of_batches())
            .arg(
                Arg::new("dry_run")
                    .long("dry-run")
                    .action(ArgAction::SetTrue)
                    .conflicts_with("state")
                    .help("Print the resulting events, one per line, without sending them"),
            ),
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let path = matches.get_one::<String>("file").expect("clap asks for it");
    let given = matches.get_one::<String>("from").map(String::as_str);
    let format = given.unwrap_or(if path.ends_with(".csv") { "csv" } else { "ndjson" });
    let texts = |name: &str| -> Vec<String> {
        matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
    };
    if format != "csv" && !texts("set").is_empty() {
        return Err(Failure::usage("--set is for --from csv"));
    }
    let is_dry_run = matches.get_flag("dry_run");
    let is_quiet = matches.get_flag("quiet");
    // Of a pipe nothing says how much will come.
    let bytes = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let bar = progress::input(is_quiet || is_dry_run, "Importing", bytes);
    // The file is read ahead from here on, and a key may be asked for first.
    progress::draw(&bar, false);
    let (rows, convert): (_, Convert) = match format {
        "csv" => {
            let delimiter = matches.get_one::<String>("delimiter").expect("has a default");
            (csv::rows(path, delimiter, &texts("map"), &texts("set"), &bar)?, Box::new(Ok))
        }
        "cloudevents" => {
            let names = cloudevents::names(&texts("map"))?;
            (
                lines::lines(path, &bar)?,
                Box::new(move |event: Box<RawValue>| cloudevents::event(&event, &names)),
            )
        }
        _ if !texts("map").is_empty() => {
            return Err(Failure::usage("--map is for --from csv and --from cloudevents"));
        }
        _ => (lines::lines(path, &bar)?, Box::new(|event: Box<RawValue>| Ok(with_its_time(event)))),
    };
    let file = |name: &str| file_flags::path(matches, name);
    for (name, flag) in [("report", "--report"), ("rejects", "--rejects")] {
        lines::refuse_as_output(path, flag, file(name).as_deref())?;
    }
    let state = State::open(file("state"))?;
    let rejected_before = state.rejected_before();
    let report = Report::open(file("report"), file("rejects"), rejected_before)?;
    if is_dry_run {
        return shown(rows, &convert, report);
    }
    let client = Arc::new(connect::client(matches, Key::Needed)?);
    progress::draw(&bar, !is_quiet);
    let mut import = Import {
        client,
        convert,
        state,
        report,
        in_flight: in_flight::asked(matches),
        stored: 0,
        known: 0,
        bar,
        begun: Instant::now(),
    };
    let ended = connect::block_on(import.run(rows));
    import.bar.finish_and_clear();
    let Import { stored, known, report, .. } = &import;
    let rejected = report.rejected();
    // Lines that an earlier command has done, without those that it was refused.
    let known = known.saturating_sub(rejected_before.unwrap_or(0));
    if matches.get_flag("json") {
        output::put(&format!(
            "{}\n",
            json!({ "stored": stored, "stored_before": known, "rejected": rejected })
        ))?;
    } else if !is_quiet {
        let before = if known > 0 { format!(", {known} already stored before") } else { String::new() };
        eprintln!("sealog: {stored} events stored{before}, {rejected} rows rejected");
    }
    ended?;
    Ok(if rejected > 0 { Exit::Invalid.into() } else { ExitCode::SUCCESS })
}

type Convert = Box<dyn Fn(Box<RawValue>) -> Result<Box<RawValue>, String>>;

/// What an exported event calls its time is not for others to say: it becomes what the client says.
fn with_its_time(event: Box<RawValue>) -> Box<RawValue> {
    let text = event.get();
    if !text.contains("\"timestamp\"") {
        return event;
    }
    let Ok(fields) = serde_json::from_str::<std::collections::HashMap<String, &RawValue>>(text) else {
        return event;
    };
    match fields.get("timestamp") {
        Some(time) if time.get().starts_with('"') && !fields.contains_key("ts_client") => {
            let open = text.trim_end().trim_end_matches('}').trim_end();
            // The last brace alone is the object's own: what was trimmed too much is put back.
            let braces = text.trim_end().len() - text.trim_end().trim_end_matches('}').len() - 1;
            let open = format!("{open}{}", "}".repeat(braces));
            RawValue::from_string(format!("{open},\"ts_client\":{}}}", time.get())).unwrap_or(event)
        }
        _ => event,
    }
}

/// What `--dry-run` prints.
fn shown(
    mut rows: mpsc::Receiver<std::io::Result<Line>>,
    convert: &Convert,
    mut report: Report,
) -> Result<ExitCode, Failure> {
    while let Some(row) = rows.blocking_recv() {
        let Line { number, event } = row.map_err(|error| unreadable(&error))?;
        match event.and_then(convert) {
            Err(why) => report.unfit(number, &why)?,
            Ok(event) => {
                if !output::put(&format!("{}\n", event.get()))? {
                    break;
                }
            }
        }
    }
    Ok(if report.rejected() > 0 { Exit::Invalid.into() } else { ExitCode::SUCCESS })
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        format!("cannot read the rest of the file: {error}; fix this and run the same command again"),
    )
}

struct Import {
    client: Arc<Client>,
    convert: Convert,
    state: State,
    report: Report,
    in_flight: usize,
    stored: u64,
    /// By an earlier command.
    known: u64,
    /// How much of the file was read, with the events that came of it.
    bar: indicatif::ProgressBar,
    begun: Instant,
}

/// Events that travel together, and the lines that they were.
#[derive(Default)]
struct Gathered {
    events: Vec<Box<RawValue>>,
    lines: Vec<u64>,
    /// Lines among them that became no event, and why.
    unfit: Vec<(u64, String)>,
    bytes: usize,
    /// The last line that was looked at, whether it became an event or not.
    last_line: u64,
}

impl Gathered {
    /// From content and place alone, so that another run makes the same.
    fn key(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(b"sealog import\n");
        for (line, event) in self.lines.iter().zip(&self.events) {
            digest.update(line.to_le_bytes());
            digest.update((event.get().len() as u64).to_le_bytes());
            digest.update(event.get().as_bytes());
        }
        format!("import-{}", hex::encode(&digest.finalize()[..16]))
    }
}

/// A batch that is under way or answered.
struct Sent {
    batch: Batch,
    lines: Vec<u64>,
    unfit: Vec<(u64, String)>,
    last_line: u64,
    delivered: Delivered,
}

impl Import {
    async fn run(&mut self, mut rows: mpsc::Receiver<std::io::Result<Line>>) -> Result<(), Failure> {
        let mut under_way: VecDeque<JoinHandle<Sent>> = VecDeque::new();
        let mut gathered = Gathered::default();
        loop {
            let row = rows.recv().await;
            let is_over = row.is_none();
            if let Some(row) = row {
                let Line { number, event } = row.map_err(|error| unreadable(&error))?;
                if self.state.is_known(number, event.as_deref())? {
                    self.known += 1;
                    continue;
                }
                gathered.last_line = number;
                match event.and_then(&self.convert) {
                    Err(why) => gathered.unfit.push((number, why)),
                    Ok(event) => {
                        let bytes = event.get().len() + 1;
                        if gathered.bytes + bytes > BYTES_MAX && !gathered.events.is_empty() {
                            let mut full = std::mem::take(&mut gathered);
                            full.last_line = number - 1;
                            self.send(full, &mut under_way).await?;
                        }
                        gathered.last_line = number;
                        gathered.bytes += bytes;
                        gathered.lines.push(number);
                        gathered.events.push(event);
                    }
                }
            }
            let count = gathered.events.len() + gathered.unfit.len();
            if count >= EVENTS_MAX || (is_over && count > 0) {
                self.send(std::mem::take(&mut gathered), &mut under_way).await?;
            }
            if is_over {
                break;
            }
        }
        while let Some(sent) = under_way.pop_front() {
            self.settle(sent).await?;
        }
        self.state.ended()
    }

    async fn send(
        &mut self,
        gathered: Gathered,
        under_way: &mut VecDeque<JoinHandle<Sent>>,
    ) -> Result<(), Failure> {
        while under_way.len() >= self.in_flight {
            let first = under_way.pop_front().expect("there is one");
            self.settle(first).await?;
        }
        let client = Arc::clone(&self.client);
        let batch = Batch { idempotency_key: gathered.key(), events: gathered.events };
        let Gathered { lines, unfit, last_line, .. } = gathered;
        under_way.push_back(tokio::spawn(async move {
            let delivered =
                if lines.is_empty() { Delivered::default() } else { deliver_again(&client, &batch).await };
            Sent { batch, lines, unfit, last_line, delivered }
        }));
        Ok(())
    }

    async fn settle(&mut self, sent: JoinHandle<Sent>) -> Result<(), Failure> {
        let unfinished = |error| Failure::new(Exit::Failure, format!("a request did not finish: {error}"));
        let Sent { batch, lines, unfit, last_line, delivered } = sent.await.map_err(unfinished)?;
        let (sealed, replayed) = (delivered.sealed.len() as u64, delivered.replayed as u64);
        self.known += replayed;
        self.stored += sealed - replayed;
        let rate = progress::rate(self.stored, self.begun.elapsed());
        self.bar.set_message(format!("{} events, {}/s", HumanCount(self.stored), HumanCount(rate)));
        // What was refused of a batch that is not done is refused again when the next command sends it, and
        // reported then: once.
        if let Some(error) = delivered.unheard {
            return Err(interrupted(error, &lines));
        }
        // The line of progress makes room for what is said.
        self.bar.clone().suspend(|| {
            for (line, why) in &unfit {
                self.report.unfit(*line, why)?;
            }
            for (at, error) in &delivered.refused {
                self.report.refused(lines[*at], error, batch.events[*at].get())?;
            }
            self.report.sync()
        })?;
        self.state.done(last_line, self.report.rejected())
    }
}

fn interrupted(error: ClientError, lines: &[u64]) -> Failure {
    let mut failure = Failure::from(error);
    let from = lines.first().copied().unwrap_or(1);
    failure.message.push_str(&format!(
        "\n  all lines before line {from} are stored; run the same command again within 24 hours (with --state at any time) to import the rest without duplicates"
    ));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_events_time_becomes_what_the_client_says() {
        let timed = |text: &str| with_its_time(RawValue::from_string(text.into()).unwrap()).get().to_owned();
        assert_eq!(
            timed(r#"{"action":"a","metadata":{"n":{}},"timestamp":"T"}"#),
            r#"{"action":"a","metadata":{"n":{}},"timestamp":"T","ts_client":"T"}"#
        );
        assert_eq!(
            timed(r#"{"timestamp":"T","action":"a","metadata":{"n":{}}}"#),
            r#"{"timestamp":"T","action":"a","metadata":{"n":{}},"ts_client":"T"}"#
        );
        for same in [
            r#"{"action":"a"}"#,
            r#"{"action":"a","metadata":{"timestamp":"T"}}"#,
            r#"{"timestamp":"T","ts_client":"U"}"#,
            r#"{"timestamp":5}"#,
        ] {
            assert_eq!(timed(same), same);
        }
    }

    #[test]
    fn a_key_is_the_same_for_the_same_rows_at_the_same_place_and_no_other() {
        let gathered = |line: u64, text: &str| Gathered {
            events: vec![RawValue::from_string(text.into()).unwrap()],
            lines: vec![line],
            ..Gathered::default()
        };
        let key = gathered(1, "{}").key();
        assert_eq!(key, gathered(1, "{}").key());
        assert_ne!(key, gathered(2, "{}").key());
        assert_ne!(key, gathered(1, "{ }").key());
    }
}
