//! `sealog export`: the events of a chain, or those that match, into one file.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::ProgressBar;
use sealog_client::http::Client;
use sealog_core::event::{CSV_COLUMNS, csv_header};
use serde_json::json;
use serde_json::value::RawValue;

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::listing::{Filters, with_filters};
use super::seq_range::{SeqRange, with_range};
use super::walk::{self, Walk};
use super::{file_flags, in_flight, progress};
use crate::files::Part;

pub(super) fn command() -> Command {
    let command = Command::new("export")
        .about("Export events to a file or standard output, oldest first")
        .long_about(
            "Export events to a file or standard output, oldest first: all events at the start of the \
             export, or those that match.\n\n\
             ndjson has each event byte for byte as the service sends it; `sealog-verify` checks such a file \
             without a service or a key. csv has the columns of the dashboard's exports; a cell without a \
             value is empty.\n\n\
             The file appears under its name when it is complete. If the command fails, it leaves no new \
             file and does not change an existing one; if it is killed, it leaves the partial file \
             FILE.XXXXXXXX.part. To resume where you stopped, use `sealog follow`.\n\n\
             If events are missing, because they are damaged or were deleted during the export, the command \
             reports their number, exports all others and exits with 1.",
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("ndjson")
                .value_parser(PossibleValuesParser::new(["ndjson", "csv"]))
                .help("Format of the file"),
        )
        .arg(file_flags::output("Write to this file instead of standard output"))
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .requires("output")
                .help("Replace an existing file"),
        )
        .arg(in_flight::of_reads());
    connect::with_flags(with_filters(with_range(command)))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let range = SeqRange::asked(matches)?;
    let path = file_flags::path(matches, "output");
    // Known before the work and not only when the file gets its name.
    if let Some(path) = path.as_deref().filter(|path| path.is_dir()) {
        return Err(Failure::usage(format!("{} is a directory: give a file in it", path.display())));
    }
    if let Some(path) = path.as_deref().filter(|path| path.exists() && !matches.get_flag("force")) {
        return Err(Failure::usage(format!(
            "{} already exists: give another file, or --force",
            path.display()
        )));
    }
    let client = Arc::new(connect::client(matches, Key::Needed)?);
    let is_csv = matches.get_one::<String>("format").is_some_and(|format| format == "csv");
    let mut sink = Sink::open(path.as_deref(), is_csv)?;
    let is_quiet = matches.get_flag("quiet");
    let in_flight = in_flight::asked(matches);
    let done = connect::block_on(async {
        export(&client, Filters::of(matches), range, in_flight, &mut sink, is_quiet).await
    })?;
    sink.finish(matches.get_flag("force"))?;
    if path.is_some() && matches.get_flag("json") {
        let Done { events, first, last, missing } = &done;
        let report = json!({ "events": events, "first_seq": first, "last_seq": last, "missing": missing });
        println!("{report}");
    } else if !is_quiet {
        eprintln!("sealog: {}", done.told());
    }
    if done.missing == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        Exit::Failure,
        format!(
            "{} events are missing: damaged, or deleted for their age during the export (`sealog verify` shows which); exported all others",
            done.missing
        ),
    ))
}

#[derive(Default)]
struct Done {
    events: u64,
    first: Option<u64>,
    last: Option<u64>,
    missing: u64,
}

impl Done {
    fn told(&self) -> String {
        match (self.first, self.last) {
            (Some(first), Some(last)) => format!("exported {} events, #{first} to #{last}", self.events),
            _ => "no events match".into(),
        }
    }
}

async fn export(
    client: &Arc<Client>,
    filters: Filters,
    SeqRange { from, to }: SeqRange,
    in_flight: usize,
    sink: &mut Sink,
    is_quiet: bool,
) -> Result<Done, Failure> {
    let mut done = Done::default();
    // What comes while it is under way is for the next one.
    let Some(newest) = walk::newest(client, &filters).await? else { return Ok(done) };
    let end = to.map_or(newest.seq, |to| to.min(newest.seq));
    let from = walk::first_kept(client, from).await?.max(from);
    if from > end {
        return Ok(done);
    }
    let bar = progress::bar(is_quiet, "Exporting", Some(end + 1 - from));
    let mut walk = Walk::new(Arc::clone(client), filters, newest.chain, from - 1, in_flight);
    while let Some(step) = walk.next(end).await? {
        done.missing += step.missing;
        for event in &step.events {
            done.first.get_or_insert(event.seq);
            done.last = Some(event.seq);
            done.events += 1;
            if !sink.put(event.text())? {
                return Ok(done);
            }
        }
        bar.set_position(step.done + 1 - from);
    }
    ProgressBar::finish_and_clear(&bar);
    Ok(done)
}

enum To {
    Part(Part),
    Stdout(BufWriter<std::io::Stdout>),
}

struct Sink {
    to: To,
    is_csv: bool,
    row: Vec<u8>,
}

impl Sink {
    fn open(path: Option<&Path>, is_csv: bool) -> Result<Sink, Failure> {
        let to = match path {
            None => To::Stdout(BufWriter::with_capacity(256 << 10, std::io::stdout())),
            Some(path) => To::Part(Part::create(path)?),
        };
        let mut sink = Sink { to, is_csv, row: Vec::new() };
        if is_csv {
            sink.row.extend_from_slice(csv_header().as_bytes());
            sink.row.extend_from_slice(b"\r\n");
            sink.write()?;
        }
        Ok(sink)
    }

    /// False if nobody is left to read it.
    fn put(&mut self, event: &str) -> Result<bool, Failure> {
        self.row.clear();
        if self.is_csv {
            put_row(event, &mut self.row)?;
        } else {
            self.row.extend_from_slice(event.as_bytes());
            self.row.push(b'\n');
        }
        self.write()
    }

    fn write(&mut self) -> Result<bool, Failure> {
        let written = match &mut self.to {
            To::Part(part) => part.write_all(&self.row),
            To::Stdout(out) => out.write_all(&self.row),
        };
        closed_is_no_error(written)
    }

    fn finish(self, is_forced: bool) -> Result<(), Failure> {
        match self.to {
            To::Part(part) => part.finish(is_forced),
            To::Stdout(mut out) => closed_is_no_error(out.flush()).map(|_| ()),
        }
    }
}

fn closed_is_no_error(written: std::io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// In the order of the columns, quoted as the dashboard's exports are. `metadata` is the text that was
/// hashed.
fn put_row(event: &str, out: &mut Vec<u8>) -> Result<(), Failure> {
    let bad = |error| Failure::new(Exit::Failure, format!("the service sent an invalid event: {error}"));
    let fields: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(event).map_err(bad)?;
    for (at, column) in CSV_COLUMNS.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let Some(value) = fields.get(column.name).map(|value| value.get()).filter(|value| *value != "null")
        else {
            continue;
        };
        let decoded = if value.starts_with('"') { Some(serde_json::from_str::<String>(value)) } else { None };
        // A lone surrogate has no text: it stays the escape that it is.
        let text = decoded.and_then(Result::ok).unwrap_or_else(|| value.to_owned());
        let is_plain = |byte: u8| !matches!(byte, b'"' | b',' | b'\r' | b'\n' | b' ' | b'\t');
        if !text.is_empty() && text.bytes().all(is_plain) {
            out.extend_from_slice(text.as_bytes());
        } else {
            out.push(b'"');
            out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn two_exports_to_one_file_are_each_whole_and_only_force_replaces_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let open = || Sink::open(Some(&path), false).unwrap();
        let put = |sink: &mut Sink, text: &str| {
            assert!(sink.put(text).unwrap());
        };
        let (mut first, mut second, mut third, mut failed) = (open(), open(), open(), open());
        for (sink, text) in [(&mut first, "1"), (&mut second, "2"), (&mut third, "3"), (&mut failed, "4")] {
            put(sink, text);
        }
        first.finish(false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        put(&mut second, "22");
        let refused = second.finish(false).err().unwrap();
        assert!(
            refused.exit == Exit::Usage && refused.message.contains("was created in the meantime"),
            "{}",
            refused.message
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        let kept = names()
            .into_iter()
            .find(|name| name != "out" && refused.message.contains(name.to_str().unwrap()));
        let kept = dir.path().join(kept.expect("it says where the export is"));
        assert_eq!(fs::read_to_string(&kept).unwrap(), "2\n22\n");
        third.finish(true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        drop(failed);
        fs::remove_file(kept).unwrap();
        assert_eq!(names(), ["out"], "nothing is left behind");
    }

    #[test]
    fn a_row_has_metadata_as_it_was_hashed_and_tells_an_empty_text_from_none() {
        let event = r#"{"log_id":"L","action":"a, \"b\"","actor_id":"","metadata":{"n":1.0e5},"chain_seq":7,"hash":"h"}"#;
        let mut row = Vec::new();
        put_row(event, &mut row).unwrap();
        let text = String::from_utf8(row).unwrap();
        assert_eq!(text, "7,L,,\"a, \"\"b\"\"\",\"\",,,,,,,,,,,\"{\"\"n\"\":1.0e5}\",,,,,h\r\n");
    }
}
