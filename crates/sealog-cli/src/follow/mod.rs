//! `sealog follow`: every event of a chain, as it comes, into a file or a pipe, and on from there the next
//! time.
//!
//! [`output`] writes, and keeps what was written and how far the chain was read in one step, so that a
//! process that is killed at any moment goes on without a loss or a double. [`continuity`] sees to it that
//! all of it is of one chain.

mod continuity;
mod output;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_client::http::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::format::Format;
use super::listing::{Filters, with_filters};
use super::walk::{self, Newest, Walk};
use super::{file_flags, in_flight, progress, seq_range};
use output::{Noted, Output, Position, Rotate};

/// What is gathered before it is synced, unless there is nothing more to gather.
const COMMIT_BYTES: usize = 16 << 20;
const COMMIT_AFTER: Duration = Duration::from_secs(1);

pub(super) fn command() -> Command {
    let command = Command::new("follow")
        .about("Write all events to a file or pipe, oldest first, then new ones as they arrive")
        .long_about(
            "Write all events to a file or pipe, oldest first, one per line, then new ones as they \
             arrive.\n\n\
             With --output the cursor file records the last event and the length of the output at that \
             point. The command replaces it after each sync of the output. After a kill -9 or a power cut, \
             run the command again with the same files: it truncates the output to the cursor and resumes, \
             so each event is in the file exactly once. Only one command at a time can use a cursor \
             file.\n\n\
             --rotate begins a new file: before it is larger than a size, or with the first event of a day \
             (UTC). The full file is renamed to FILE.SEQ, where SEQ is the chain_seq of its last event, and the \
             cursor is kept. If another program such as logrotate moves the file away, send SIGHUP: the command \
             writes the next events to a new file.\n\n\
             On a pipe (without --output), an event counts as written when the pipe accepts it; after a kill \
             the last events can appear twice.\n\n\
             The command waits for an unavailable service without limit. Each event must follow the \
             previously written one. If the chain of the service is shorter or different than before, \
             because it was restored from an old backup or rewritten, the command exits with 10 instead of \
             mixing the two, even if it was stopped in between.",
        )
        .arg(file_flags::output("Append to this file instead of standard output"))
        .arg(file_flags::flag(
            "cursor_file",
            "Record the position in this file and resume from it [default: --output with .cursor added]",
        ))
        .arg(
            Arg::new("rotate")
                .long("rotate")
                .value_name("SIZE|day")
                .requires("output")
                .value_parser(Rotate::parse)
                .help("Begin a new file before this size (100M, 2G), or each day"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("json")
                .value_parser(PossibleValuesParser::new(Format::names()))
                .help(format!("Format of a line: {}", Format::explained())),
        )
        .arg(seq_range::flag("from", "Start with this chain_seq if there is no cursor file [default: 1]"))
        .arg(
            Arg::new("new")
                .long("new")
                .action(ArgAction::SetTrue)
                .conflicts_with("from")
                .help("Start with new events if there is no cursor file"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Exit after the newest event instead of waiting for more"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("Polling interval for new events"),
        )
        .arg(in_flight::of_reads());
    connect::with_flags(with_filters(command))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let format = matches.get_one::<String>("format").expect("has a default");
    let format = Format::parse(format).expect("clap has checked it");
    let filters = Filters::of(matches);
    let (path, cursor) = (file_flags::path(matches, "output"), file_flags::path(matches, "cursor_file"));
    let rotate = matches.get_one::<Rotate>("rotate").copied().unwrap_or_default();
    let can_reopen = path.is_some() && !std::io::stderr().is_terminal();
    let output = Output::open(path, cursor, format, &filters, rotate)?;
    let client = Arc::new(connect::client(matches, Key::Needed)?);
    connect::block_on(async {
        let mut follow = Follow {
            client,
            filters,
            format,
            output,
            is_once: matches.get_flag("once"),
            interval: Duration::from_secs(*matches.get_one("interval").expect("has a default")),
            in_flight: in_flight::asked(matches),
            bar: progress::counted(matches.get_flag("quiet"), "Following"),
            is_quiet: matches.get_flag("quiet"),
            is_away: false,
        };
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Exit::Failure, format!("cannot listen for signals: {error}")))
        };
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        // On a terminal it means that the terminal is gone.
        if can_reopen {
            let (mut hangup, must_reopen) =
                (listen(SignalKind::hangup())?, Arc::clone(&follow.output.must_reopen));
            tokio::spawn(async move {
                while hangup.recv().await.is_some() {
                    must_reopen.store(true, Ordering::Relaxed);
                }
            });
        }
        // What was not committed when it is asked to stop is fetched again by the next one. A commit is not
        // interrupted: the end of the runtime waits for it.
        tokio::select! {
            ended = follow.run(matches) => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

struct Follow {
    client: Arc<Client>,
    filters: Filters,
    format: Format,
    output: Output,
    is_once: bool,
    interval: Duration,
    in_flight: usize,
    bar: indicatif::ProgressBar,
    is_quiet: bool,
    is_away: bool,
}

impl Follow {
    async fn run(&mut self, matches: &ArgMatches) -> Result<(), Failure> {
        let begun = self.output.position().cloned();
        let mut newest = loop {
            match self.look(begun.as_ref()).await? {
                Some(newest) => break newest,
                // An empty chain says not even whose it is.
                None if self.is_once => return Ok(()),
                None => tokio::time::sleep(self.interval).await,
            }
        };
        let mut position = begun.unwrap_or_else(|| {
            let at = match matches.get_one::<u64>("from") {
                Some(from) => from - 1,
                None if matches.get_flag("new") => newest.seq,
                None => 0,
            };
            Position { chain: newest.chain.to_string(), seq: at, last: None, newest: noted(&newest) }
        });
        position.newest = noted(&newest);
        let kept = loop {
            let kept = walk::first_kept(&Arc::clone(&self.client), position.seq + 1).await;
            if let Some(kept) = self.patiently(kept).await? {
                break kept;
            }
        };
        if kept > position.seq + 1 {
            self.tell_missing(position.seq + 1, kept - 1);
            position.seq = kept - 1;
        }
        // Also where nothing was written yet, the next one goes on from here.
        self.output.commit(&position).await?;
        let (client, filters) = (Arc::clone(&self.client), self.filters.clone());
        let mut walk = Walk::new(client, filters, newest.chain, position.seq, self.in_flight);
        loop {
            if !self.up_to(newest.seq, &mut walk, &mut position).await? {
                // Nobody reads the pipe any more.
                return Ok(());
            }
            if self.is_once {
                return Ok(());
            }
            newest = loop {
                if let Some(newest) = self.look(Some(&position)).await? {
                    position.newest = noted(&newest);
                    if newest.seq > position.seq {
                        break newest;
                    }
                }
                if self.output.must_reopen.load(Ordering::Relaxed) {
                    self.output.commit(&position).await?;
                    self.output.settle().await?;
                }
                tokio::time::sleep(self.interval).await;
            };
        }
    }

    /// The newest event, of a chain that goes on from this position; nothing while there is none.
    async fn look(&mut self, position: Option<&Position>) -> Result<Option<Newest>, Failure> {
        loop {
            let newest = continuity::newest(&Arc::clone(&self.client), position).await;
            if let Some(newest) = self.patiently(newest).await? {
                return Ok(newest);
            }
        }
    }

    /// Everything up to this event, committed piece by piece; false if nobody is left to read it.
    async fn up_to(&mut self, end: u64, walk: &mut Walk, position: &mut Position) -> Result<bool, Failure> {
        let mut begun = Instant::now();
        let (mut is_dirty, mut is_proven) = (false, true);
        loop {
            let step = walk.next(end).await;
            let Some(step) = self.patiently(step).await? else { continue };
            if let Some(step) = &step {
                let is_linked = continuity::is_linked(position.last.as_ref(), &step.events)?;
                is_proven &= is_linked && step.missing == 0 && self.filters.is_empty();
                if step.missing > 0 {
                    // A chain that has become shorter lacks events, too.
                    self.look(Some(&*position)).await?;
                    self.tell_missing(position.seq + 1, step.done);
                }
                for event in &step.events {
                    self.output.put(self.format, event.text())?;
                }
                if let Some(last) = step.events.last() {
                    position.last = Some(Noted { seq: last.seq, hash: last.hash().to_owned() });
                }
                position.seq = step.done;
                is_dirty = true;
                self.bar.inc(step.events.len() as u64);
            }
            let is_enough = self.output.pending() >= COMMIT_BYTES || begun.elapsed() >= COMMIT_AFTER;
            if is_dirty && (is_enough || step.is_none()) {
                // What links do not prove, the service has to: it still has what it had before these events
                // were fetched.
                if !is_proven {
                    self.look(Some(&*position)).await?;
                }
                if !self.output.commit(position).await? {
                    return Ok(false);
                }
                (begun, is_dirty, is_proven) = (Instant::now(), false, true);
            }
            if step.is_none() {
                return self.output.settle().await;
            }
        }
    }

    fn tell_missing(&self, from: u64, to: u64) {
        eprintln!(
            "sealog: some of the events #{from} to #{to} are missing: deleted for their age, or damaged (`sealog verify` shows which)"
        );
    }

    /// An answer, or nothing after a wait for a service that is away.
    async fn patiently<T>(&mut self, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Ok(answer) => {
                if std::mem::take(&mut self.is_away) && !self.is_quiet {
                    eprintln!("sealog: the service is back");
                }
                Ok(Some(answer))
            }
            Err(failure) if failure.exit == Exit::Unavailable && !self.is_once => {
                if !std::mem::replace(&mut self.is_away, true) {
                    let waiting = if self.is_quiet { "" } else { "\n  waiting for the service" };
                    eprintln!("sealog: {}{waiting}", failure.message);
                }
                tokio::time::sleep(self.interval).await;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn noted(newest: &Newest) -> Noted {
    Noted { seq: newest.seq, hash: newest.hash.clone() }
}
