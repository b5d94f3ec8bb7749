//! `sealog follow`: every event of a chain, as it comes, into a file or a pipe, and on from there the next time.
//!
//! [`output`] writes, and keeps what was written and how far the chain was read in one step, so that a process that is killed at any moment goes on without a loss or a double.

mod output;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_client::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::format::Format;
use super::listing::{Filters, with_filters};
use super::walk::{self, Walk};
use super::{file_flags, in_flight, progress, seq_range};
use output::{Last, Output, Position};

/// What is gathered before it is synced, unless there is nothing more to gather.
const COMMIT_BYTES: usize = 4 << 20;
const COMMIT_AFTER: Duration = Duration::from_secs(1);

pub(super) fn command() -> Command {
    let command = Command::new("follow")
        .about("Writes every event to a file or a pipe, oldest first, and goes on with new ones as they come")
        .long_about(
            "Writes every event to a file or a pipe, oldest first, one for each line, and goes on with new ones as they come.\n\n\
             With --output the cursor file says how far it is: which event was the last, and how long the file was then. It is replaced after the file is synced. Whatever ends the command, also kill -9 or a \
             power cut, the next one with the same files cuts off what came after and goes on: each event is in the file exactly once. Only one command at a time can use a cursor file.\n\n\
             To a pipe (without --output), events are marked as done when the pipe has taken them; after a kill the last ones can come twice.\n\n\
             A service that is away is waited for, however long. When it comes back with a shorter or another chain, because it was restored from an old backup or rewritten, the command ends with 10 \
             instead of mixing the two.",
        )
        .arg(file_flags::output("Appends to this file; otherwise to standard output"))
        .arg(file_flags::flag(
            "cursor_file",
            "Keeps how far it is, and goes on from there [default: that of --output with .cursor added]",
        ))
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("json")
                .value_parser(PossibleValuesParser::new(Format::names()))
                .help(format!("What a line is: {}", Format::explained())),
        )
        .arg(seq_range::flag(
            "from",
            "Begins with this chain_seq where no cursor file says otherwise [default: 1]",
        ))
        .arg(
            Arg::new("new")
                .long("new")
                .action(ArgAction::SetTrue)
                .conflicts_with("from")
                .help("Begins with what comes from now on where no cursor file says otherwise"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Ends with the newest event instead of waiting for others"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("How often to look for new events"),
        )
        .arg(in_flight::of_reads());
    connect::with_flags(with_filters(command))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let format = matches.get_one::<String>("format").expect("has a default");
    let format = Format::parse(format).expect("clap has checked it");
    let filters = Filters::of(matches);
    let (path, cursor) = (file_flags::path(matches, "output"), file_flags::path(matches, "cursor_file"));
    let output = Output::open(path, cursor, format, &filters)?;
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
            is_away: false,
        };
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failure, format!("signals cannot be listened to: {error}"))
            })
        };
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        // What was not committed when it is asked to stop is fetched again by the next one.
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
    is_away: bool,
}

impl Follow {
    async fn run(&mut self, matches: &ArgMatches) -> Result<(), Failure> {
        let everything = Filters::default();
        let newest = loop {
            match self.patiently(walk::newest(&Arc::clone(&self.client), &everything).await).await? {
                Some(Some(newest)) => break newest,
                // An empty chain says not even whose it is.
                Some(None) if self.is_once => return Ok(()),
                _ => tokio::time::sleep(self.interval).await,
            }
        };
        let chain = newest.chain;
        let mut position = match self.output.position() {
            Some(position) => {
                let position = position.clone();
                loop {
                    let checked = self.must_go_on(&position, &newest).await;
                    if self.patiently(checked).await?.is_some() {
                        break position;
                    }
                }
            }
            None => {
                let at = match matches.get_one::<u64>("from") {
                    Some(from) => from - 1,
                    None if matches.get_flag("new") => newest.seq,
                    None => 0,
                };
                Position { chain: chain.to_string(), seq: at, last: None }
            }
        };
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
        self.output.commit(&position)?;
        let mut walk =
            Walk::new(Arc::clone(&self.client), self.filters.clone(), chain, position.seq, self.in_flight);
        let mut end = newest.seq;
        loop {
            if !self.up_to(end, &mut walk, &mut position).await? {
                // Nobody reads the pipe any more.
                return Ok(());
            }
            if self.is_once && position.seq >= end {
                return Ok(());
            }
            loop {
                let newest = walk::newest(&Arc::clone(&self.client), &everything).await;
                if let Some(Some(newest)) = self.patiently(newest).await?
                    && newest.seq > position.seq
                {
                    end = newest.seq;
                    break;
                }
                tokio::time::sleep(self.interval).await;
            }
        }
    }

    /// Everything up to this event, committed piece by piece; false if nobody is left to read it.
    async fn up_to(&mut self, end: u64, walk: &mut Walk, position: &mut Position) -> Result<bool, Failure> {
        let mut begun = Instant::now();
        let mut is_dirty = false;
        loop {
            let step = walk.next(end).await;
            let Some(step) = self.patiently(step).await? else { continue };
            if let Some(step) = &step {
                if step.missing > 0 {
                    self.tell_missing(position.seq + 1, step.done);
                }
                for event in &step.events {
                    self.output.put(self.format, &event.text)?;
                }
                if let Some(last) = step.events.last() {
                    position.last = Some(Last { seq: last.seq, hash: last.hash.clone() });
                }
                position.seq = step.done;
                is_dirty = true;
                self.bar.inc(step.events.len() as u64);
            }
            let is_enough = self.output.pending() >= COMMIT_BYTES || begun.elapsed() >= COMMIT_AFTER;
            if is_dirty && (is_enough || step.is_none()) {
                if !self.output.commit(position)? {
                    return Ok(false);
                }
                (begun, is_dirty) = (Instant::now(), false);
            }
            if step.is_none() {
                return Ok(true);
            }
        }
    }

    /// The service must still have what was written last.
    async fn must_go_on(&self, position: &Position, newest: &walk::Newest) -> Result<(), Failure> {
        if position.chain != newest.chain.to_string() {
            return Err(Failure::usage(format!(
                "the cursor file is of the chain {}, and this key sees {}: use the key that it was begun with, or another cursor file and output",
                position.chain, newest.chain
            )));
        }
        let broken = |what: String| {
            Failure::new(
                Exit::Broken,
                format!(
                    "{what}: the service was restored from an older state, or its chain was rewritten\n  what now: keep the file that was written, it is evidence; find out what has happened to the service (`sealog verify`), then follow it into another file"
                ),
            )
        };
        let Some(last) = &position.last else { return Ok(()) };
        if newest.seq < last.seq {
            return Err(broken(format!(
                "the service ends with event #{}, and #{} was written already",
                newest.seq, last.seq
            )));
        }
        match walk::event(&self.client, newest.chain, last.seq).await? {
            Some(event) if event.hash != last.hash => Err(broken(format!(
                "the service has another event #{} than the one that was written",
                last.seq
            ))),
            // One that is not there any more was dropped for its age, or is damaged: what follows is told on its own.
            _ => Ok(()),
        }
    }

    fn tell_missing(&self, from: u64, to: u64) {
        eprintln!(
            "sealog: of the events #{from} to #{to} some are not there: dropped for their age, or damaged (`sealog verify` says which)"
        );
    }

    /// An answer, or nothing after a wait for a service that is away.
    async fn patiently<T>(&mut self, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Ok(answer) => {
                if std::mem::take(&mut self.is_away) {
                    eprintln!("sealog: the service is back");
                }
                Ok(Some(answer))
            }
            Err(failure) if failure.exit == Exit::Unavailable && !self.is_once => {
                if !std::mem::replace(&mut self.is_away, true) {
                    eprintln!("sealog: {}\n  waiting for it", failure.message);
                }
                tokio::time::sleep(self.interval).await;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}
