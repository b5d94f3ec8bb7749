//! The auditor's program: checks exported events, proofs and checkpoints without a Sealog server or network.
//!
//! It reads text and says yes or no. Three files: this one ties them together, `input` finds the events in a
//! file, `report` says what came out of events alone. The rules themselves are in `sealog-core` (`audit`,
//! `verify`, `canonical`) and `sealog-trust` (`verdict`), which the server uses too; `vectors/README.md`
//! states them in words, and two programs in other languages that share no code with this one check the same.

mod input;
mod report;

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sealog_core::audit::{Audit, NotedHead, Outcome, parse_entry};
use sealog_core::json::JsonError;
use sealog_trust::note::NOTE_BYTES_MAX;
use sealog_trust::policy::{POLICY_BYTES_MAX, Policy};
use sealog_trust::proof::FILE_BYTES_MAX;
use sealog_trust::text::Malformed;
use sealog_trust::verdict::{
    CONSISTENCY_BYTES_MAX, Consistency, Evidence, Kept, Proof, Trial, policy_of_keys, printable,
};

use input::{Input, Unreadable};

const BROKEN: u8 = 10;
const UNUSABLE: u8 = 2;

/// Checks exported Sealog events: that none was changed, removed, added or moved; with proofs and
/// checkpoints, that they are in a log which was not cut, rewritten or rolled back.
#[derive(Parser, Debug)]
#[command(version, after_long_help = AFTER_HELP, after_help = "More, with examples: --help")]
struct Args {
    /// Exported events; `-` is standard input. Several files are read in the order given, as one sequence
    #[arg(required_unless_present_any = ["proof", "checkpoint"], value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A head noted earlier: the chain must reach this chain_seq and have this hash there. May be repeated
    #[arg(long, value_name = "SEQ:HASH", value_parser = parse_expect)]
    expect: Vec<NotedHead>,

    /// The vkey of a log that is believed. May be repeated
    #[arg(long, value_name = "VKEY")]
    key: Vec<String>,

    /// A file that says which logs and witnesses are believed (C2SP tlog-policy)
    #[arg(long, visible_alias = "witness-policy", value_name = "FILE", conflicts_with = "key")]
    policy: Option<PathBuf>,

    /// A proof of an event or of a chain's head (*.tlog-proof). May be repeated
    #[arg(long, value_name = "FILE")]
    proof: Vec<PathBuf>,

    /// A checkpoint that was kept earlier. May be repeated
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,

    /// A consistency proof between two checkpoints, as the server answers it. May be repeated
    #[arg(long, value_name = "FILE")]
    consistency: Vec<PathBuf>,

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

With a proof or a checkpoint, the report names every attack that was found, and in words what was not shown. More reasons:
  origin, signature, quorum  a checkpoint is of an unknown log, not signed by it, or by too few witnesses
  fork         two histories: two checkpoints or proofs of one log or chain do not fit
  rollback     an older state was restored, or the tail of a chain was cut off
  root         a proof does not lead to its checkpoint
  leaf         an event is not the one in the log: history was rewritten
  annotations  the hash is right, and a field outside it is not the one in the log
  schema       an event has a schema_version that this program does not know
  time         an event's time does not fit the time of the entry that has it
Get a vkey from elsewhere than from the server. Without --key or --policy no signature is checked.

Exit codes:
  0   valid
  10  broken
  2   wrong usage, unreadable or malformed input, or no events at all

Examples:
  sealog-verify export.ndjson.gz
  sealog-verify --expect 4711:9f2c...e1a0 january.ndjson february.ndjson
  sealog-verify --key \"$VKEY\" --checkpoint kept.txt --proof 4711.tlog-proof export.ndjson
  curl -sH \"Authorization: Bearer $KEY\" \"$URL/v1/events?limit=100\" | sealog-verify --json -";

fn parse_expect(text: &str) -> Result<NotedHead, String> {
    NotedHead::parse(text).ok_or_else(|| {
        "must be a chain_seq from 1 up, a colon, and the hash in 64 lower-case hex digits".to_owned()
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let has_files = !(args.proof.is_empty() && args.checkpoint.is_empty() && args.consistency.is_empty());
    let is_trial = has_files || !args.key.is_empty() || args.policy.is_some();
    let checked = if is_trial { try_evidence(&args) } else { check_events(&args) };
    let (report, is_valid) = match checked {
        Ok(checked) => checked,
        Err(problem) => return unusable(&problem),
    };
    let mut stdout = std::io::stdout();
    if let Err(error) = stdout.write_all(report.as_bytes()).and_then(|()| stdout.flush()) {
        return unusable(&format!("cannot write the result: {error}"));
    }
    if is_valid { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) }
}

fn unusable(problem: &str) -> ExitCode {
    eprintln!("sealog-verify: {problem}");
    ExitCode::from(UNUSABLE)
}

const NO_EVENTS: &str = "there are no events in the input";

/// The report on events alone, and whether they are valid.
fn check_events(args: &Args) -> Result<(String, bool), String> {
    let mut audit = Audit::new(args.expect.clone());
    read_events(args, |text| {
        audit.entry(parse_entry(text)?);
        Ok(audit.wants_more())
    })
    .map_err(|unreadable| unreadable.to_string())?;
    let outcome: Outcome = audit.finish();
    if outcome.checked == 0 && args.expect.is_empty() {
        return Err(NO_EVENTS.to_owned());
    }
    let report = match (args.json, args.quiet) {
        (true, _) => report::in_json(&outcome) + "\n",
        (false, false) => report::in_words(&outcome),
        (false, true) => String::new(),
    };
    Ok((report, outcome.broken.is_none()))
}

/// The same for events, proofs and checkpoints together.
fn try_evidence(args: &Args) -> Result<(String, bool), String> {
    let policy = match &args.policy {
        Some(path) => Some(read_file(path, POLICY_BYTES_MAX, Policy::parse)?.1),
        None if args.key.is_empty() => None,
        None => Some(policy_of_keys(&args.key).map_err(|problem| format!("--key: {problem}"))?),
    };
    let evidence = Evidence {
        policy,
        kept: read_files(&args.checkpoint, NOTE_BYTES_MAX, Kept::parse)?,
        proofs: read_files(&args.proof, FILE_BYTES_MAX, Proof::parse)?,
        consistency: read_files(&args.consistency, CONSISTENCY_BYTES_MAX, Consistency::parse)?,
    };
    let noted = (!args.files.is_empty()).then(|| args.expect.clone());
    let mut trial = Trial::new(evidence, noted);
    if let Some((name, seq)) = trial.needs_events() {
        return Err(format!("{}: give event #{seq}, too: the proof is about it", printable(name)));
    }
    read_events(args, |text| {
        trial.event(text)?;
        Ok(trial.wants_more())
    })
    .map_err(|unreadable| unreadable.to_string())?;
    let verdict = trial.judge();
    if args.expect.is_empty() && verdict.outcome.as_ref().is_some_and(|outcome| outcome.checked == 0) {
        return Err(NO_EVENTS.to_owned());
    }
    let report = match (args.json, args.quiet) {
        (true, _) => verdict.in_json() + "\n",
        (false, false) => verdict.in_words(),
        (false, true) => String::new(),
    };
    Ok((report, verdict.faults.is_empty()))
}

type Parse<T> = fn(&[u8]) -> Result<T, Malformed>;

fn read_files<T>(paths: &[PathBuf], most: usize, parse: Parse<T>) -> Result<Vec<(String, T)>, String> {
    paths.iter().map(|path| read_file(path, most, parse)).collect()
}

/// Reads no more than a byte above what the parser takes: what is longer is refused, and must not fill the
/// memory.
fn read_file<T>(path: &PathBuf, most: usize, parse: Parse<T>) -> Result<(String, T), String> {
    let name = path.to_string_lossy().into_owned();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{}: {error}", printable(&name)))?;
    let value = parse(&bytes).map_err(|problem| format!("{}: {problem}", printable(&name)))?;
    Ok((name, value))
}

/// Gives every event of every file to `take`, until that wants no more.
fn read_events(args: &Args, mut take: impl FnMut(&str) -> Result<bool, JsonError>) -> Result<(), Unreadable> {
    let read_bytes = Rc::new(Cell::new(0));
    let progress = progress(args);
    let mut events = 0u64;
    'files: for path in &args.files {
        let mut input = Input::open(path, Rc::clone(&read_bytes))?;
        while let Some((text, offset)) = input.next_event()? {
            let wants_more = take(&text).map_err(|error| {
                input.unreadable(offset, format!("this object is not valid JSON: {}", error.problem))
            })?;
            if !wants_more {
                break 'files;
            }
            events += 1;
            if events.is_multiple_of(1000) {
                progress.set_position(read_bytes.get());
                progress.set_message(format!("{events} events"));
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
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
