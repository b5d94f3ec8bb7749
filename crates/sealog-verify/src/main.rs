//! The auditor's program: checks exported events without a Sealog server, a network or a key.
//!
//! It reads text and says yes or no. Three files: this one ties them together, `input` finds the events in a
//! file, `report` says what came out. The rules themselves are in `sealog-core` (`audit`, `verify`,
//! `canonical`), which the server uses too; `vectors/README.md` states them in words, and two programs in
//! other languages that share no code with this one check the same.

mod input;
mod report;

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sealog_core::audit::{Audit, NotedHead, Outcome, parse_entry};

use input::{Input, Unreadable};

const BROKEN: u8 = 10;
const UNUSABLE: u8 = 2;

/// Checks exported Sealog events: that none was changed, removed, added or moved.
#[derive(Parser, Debug)]
#[command(version, after_long_help = AFTER_HELP, after_help = "More, with examples: --help")]
struct Args {
    /// Exported events; `-` is standard input. Several files are read in the order given, as one sequence
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A head noted earlier: the chain must reach this chain_seq and have this hash there. May be repeated
    #[arg(long, value_name = "SEQ:HASH", value_parser = parse_expect)]
    expect: Vec<NotedHead>,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    /// No progress and no report, only the exit code (and, with --json, the JSON)
    #[arg(long, short)]
    quiet: bool,
}

const AFTER_HELP: &str = "Input:
  NDJSON, saved API pages {\"events\":[...]}, JSON arrays of events, or any of these one after the other; indented or not;
  plain or gzip, detected by content. All events must be of one chain: one project, live or test.
  Oldest first, events are checked as they are read and memory stays small, however long the input. Newest first, as list
  pages are, they are all held in memory and turned round. Any other order is a break.

What is checked, event by event, and the reason that is given:
  malformed  every field that is checked is there once and in its one spelling
  chain      tenant_id and project_id are the first event's
  gap        chain_seq is one more than before
  link       prev_hash is the hash of the event before
  hash       hash is the SHA-256 of prev_hash, the content and the time, computed here
  order      log_id increases and carries the timestamp
  head       where a head is expected, the hash is that one
  tail       the chain reaches every expected head

  The hash covers log_id, tenant_id, action, actor_id, resource, metadata and timestamp. Fields like ip_address, category or
  severity are outside it: nothing is said about them.
  A chain that was cut short is still a chain, and so is one that was rewritten as a whole. Only a head that was noted earlier
  and elsewhere can tell: note the one that is printed here, or keep the receipts (Sealog-Chain-Seq, Sealog-Hash) of your requests.

Exit codes:
  0   valid
  10  broken
  2   wrong usage, unreadable input, or no events at all

Examples:
  sealog-verify export.ndjson.gz
  sealog-verify --expect 4711:9f2c...e1a0 january.ndjson february.ndjson
  curl -sH \"Authorization: Bearer $KEY\" \"$URL/v1/events?limit=100\" | sealog-verify --json -";

fn parse_expect(text: &str) -> Result<NotedHead, String> {
    NotedHead::parse(text).ok_or_else(|| {
        "must be a chain_seq from 1 up, a colon, and the hash in 64 lower-case hex digits".to_owned()
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match check(&args) {
        Ok(outcome) => outcome,
        Err(unreadable) => return unusable(&unreadable.to_string()),
    };
    if outcome.checked == 0 && args.expect.is_empty() {
        return unusable("there are no events in the input");
    }
    let report = match (args.json, args.quiet) {
        (true, _) => report::in_json(&outcome) + "\n",
        (false, false) => report::in_words(&outcome),
        (false, true) => String::new(),
    };
    let mut stdout = std::io::stdout();
    if let Err(error) = stdout.write_all(report.as_bytes()).and_then(|()| stdout.flush()) {
        return unusable(&format!("cannot write the result: {error}"));
    }
    if outcome.broken.is_some() { ExitCode::from(BROKEN) } else { ExitCode::SUCCESS }
}

fn unusable(problem: &str) -> ExitCode {
    eprintln!("sealog-verify: {problem}");
    ExitCode::from(UNUSABLE)
}

/// Feeds every event of every file to the audit, until the first break.
fn check(args: &Args) -> Result<Outcome, Unreadable> {
    let read_bytes = Rc::new(Cell::new(0));
    let progress = progress(args);
    let mut audit = Audit::new(args.expect.clone());
    let mut events = 0u64;
    'files: for path in &args.files {
        let mut input = Input::open(path, Rc::clone(&read_bytes))?;
        while let Some((text, offset)) = input.next_event()? {
            let entry = parse_entry(&text).map_err(|error| {
                input.unreadable(offset, format!("this object is not valid JSON: {}", error.problem))
            })?;
            audit.entry(entry);
            if !audit.wants_more() {
                break 'files;
            }
            events += 1;
            if events.is_multiple_of(1000) {
                progress.set_position(read_bytes.get());
                progress.set_message(format!("{events} events"));
            }
        }
    }
    let outcome = audit.finish();
    progress.finish_and_clear();
    Ok(outcome)
}

/// A bar over the bytes of all files; a count where their sizes are not known. `indicatif` draws nothing
/// where there is no terminal.
fn progress(args: &Args) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    let size = |path: &PathBuf| {
        std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
    };
    let total: Option<u64> = args.files.iter().map(size).sum();
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = match total {
        Some(_) => "Checking {wide_bar} {binary_bytes} of {binary_total_bytes}, {msg}, {eta} left",
        None => "Checking {spinner} {binary_bytes}, {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
