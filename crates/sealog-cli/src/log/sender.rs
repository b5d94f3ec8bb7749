//! Sends the events of an outbox, and leaves in the spool what cannot be sent.
//!
//! Every line that was read ends in one of four ways, and each is counted: it is sealed, kept in the spool,
//! rejected, or lost because the spool cannot be written either. No failure ends the command before all of
//! them have.
//!
//! The queue of the client library is another loop over the same outbox; docs/architecture.md, "What is
//! deliberately absent", says why there are two.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IsTerminal};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar};
use sealog_client::http::{Client, ClientError};
use sealog_client::outbox::{Batch, Choice, EventId, Outbox, new_key};
use serde_json::value::RawValue;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::super::deliver::{BYTES_MAX, EVENTS_MAX, post_until, take_place};
use super::super::exit::{self, Exit, Failure};
use super::super::progress;
use super::input::{Input, Item, Items};
use super::place::{self, SPOOL_BYTES_MAX};
use super::printer::Printer;
use super::rejects::Rejects;
use super::stop::Stop;

/// How long the first event of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a service that was away is left alone while lines still arrive.
const AWAY: Duration = Duration::from_secs(10);

pub(super) struct Sender {
    client: Arc<Client>,
    outbox: Outbox,
    /// Where the outbox is, or why it is in memory.
    spool: Result<PathBuf, Unkept>,
    /// Events that the spool does not take. They are sent at the end.
    spare: Outbox,
    /// The lines of the events that were read and have not ended.
    lines: Lines,
    in_flight: usize,
    printer: Printer,
    rejects: Rejects,
    stop: Stop,
    is_quiet: bool,
    bar: ProgressBar,
    bytes_read: Arc<AtomicU64>,
    begun: Instant,
    count: Count,
    /// Of earlier commands, sent and not yet reported.
    from_spool: u64,
    has_sent_spool: bool,
    /// Whether the spool has something that may not be on stable storage.
    is_unsynced: bool,
    /// Until when the service is left alone.
    away_until: Option<Instant>,
    /// The exit code of the last request that failed.
    away: Option<Exit>,
    /// The last reported reason, until the service is back.
    away_told: Option<String>,
    /// The first one. The command ends with it when everything that was read is where it can be.
    failure: Option<Failure>,
    /// Could neither be sent nor kept so far.
    stranded: Vec<Batch>,
    /// Whether there is more input, which was not read.
    is_cut: bool,
    is_damaged: bool,
}

/// Why there is no spool.
enum Unkept {
    Off,
    Unusable(String),
}

/// What became of the lines that this command has read.
#[derive(Default)]
struct Count {
    read: u64,
    last_line: u64,
    sealed: u64,
    rejected: u64,
}

impl Sender {
    pub(super) fn new(
        client: Arc<Client>,
        spool: Option<PathBuf>,
        in_flight: usize,
        printer: Printer,
        rejects: Rejects,
        stop: Stop,
        is_quiet: bool,
    ) -> Sender {
        // A spool that cannot be used is a failure when it is needed: a service that answers needs none.
        let opened = spool.ok_or(Unkept::Off).and_then(|folder| {
            let outbox = Outbox::open(&folder, SPOOL_BYTES_MAX);
            outbox.map(|outbox| (outbox, folder)).map_err(|error| Unkept::Unusable(place::plain(&error)))
        });
        let (outbox, spool) = match opened {
            Ok((outbox, folder)) => (outbox, Ok(folder)),
            Err(unkept) => (Outbox::in_memory(), Err(unkept)),
        };
        Sender {
            client,
            outbox,
            spool,
            spare: Outbox::in_memory(),
            lines: Lines::default(),
            in_flight,
            printer,
            rejects,
            stop,
            is_quiet,
            bar: ProgressBar::hidden(),
            bytes_read: Arc::default(),
            begun: Instant::now(),
            count: Count::default(),
            from_spool: 0,
            has_sent_spool: false,
            is_unsynced: false,
            away_until: None,
            away: None,
            away_told: None,
            failure: None,
            stranded: Vec::new(),
            is_cut: false,
            is_damaged: false,
        }
    }

    /// One event, and the service's own word if it rejects it.
    pub(super) async fn one(
        &mut self,
        event: Box<RawValue>,
        key: Option<String>,
    ) -> Result<ExitCode, Failure> {
        self.send_spool().await;
        let (key, text) = (key.unwrap_or_else(new_key), event.get().as_bytes().to_vec());
        let put = self.outbox.put_as(key.clone(), text.clone());
        let mut batch = put.or_else(|error| {
            self.fail(Failure::new(Exit::Failure, place::plain(&error)));
            self.spare.put_as(key, text).map_err(|error| Failure::new(Exit::Failure, error.to_string()))
        })?;
        (self.count.read, self.count.last_line, self.is_unsynced) = (1, 1, true);
        if let Some(id) = batch.open(0) {
            self.lines.put(id, 1);
        }
        if self.must_be_kept() {
            self.leave(batch);
        } else {
            let posted = post_until(&self.client, batch.post(), self.stop.over()).await;
            if let Some(Err(mut error)) = posted {
                if exit::of(&error) == Exit::Invalid {
                    take_place(&mut error);
                    self.outbox.end(&mut batch, 0);
                    self.outbox.finish(batch);
                    return Err(error.into());
                }
                self.settle(batch, 0..1, Some(Err(error)));
            } else {
                self.settle(batch, 0..1, posted);
            }
        }
        self.last_attempt().await;
        self.end()
    }

    /// Only what earlier commands have left. With `held`, also batches that may be stored already.
    pub(super) async fn spooled(&mut self, held: bool) -> Result<ExitCode, Failure> {
        self.bar = progress::bar(self.is_quiet, "Sending", Some(self.outbox.waiting()));
        while self.outbox.has_queued() || held && !self.outbox.held().is_empty() {
            self.send_spool().await;
            if self.stop.is_begun() || self.must_be_kept() || !held {
                break;
            }
            for batch in self.outbox.held() {
                if let Err(error) = self.outbox.release(&batch.id, Choice::Send) {
                    return Err(Failure::new(Exit::Failure, place::plain(&error)));
                }
            }
        }
        if !self.has_sent_spool && !self.is_quiet && self.failure.is_none() && self.outbox.waiting() == 0 {
            progress::tell(&self.bar, "the spool is empty");
        }
        self.end()
    }

    /// Every event, until the input ends or reading is stopped.
    pub(super) async fn all(&mut self, input: Input) -> Result<ExitCode, Failure> {
        self.send_spool().await;
        if self.failure.is_some() {
            // Nothing was read yet.
            return self.end();
        }
        // Where the log_ids themselves are on the terminal, they are progress enough.
        let is_quiet = self.is_quiet || io::stdout().is_terminal();
        self.bar = progress::input(is_quiet, "Logging", input.bytes);
        self.rejects.with_bar(self.bar.clone());
        self.bytes_read = Arc::clone(&input.bytes_read);
        let stop = self.stop.reading();
        let stop =
            stop.map_err(|error| Failure::new(Exit::Failure, format!("cannot read the input: {error}")))?;
        let mut items = input.start(stop);
        let mut under_way = UnderWay::default();
        let mut gathered = Gathered::Enough;
        while gathered != Gathered::Over {
            gathered = self.gather(&mut items, &mut under_way).await;
            if self.away_until.is_some_and(|until| Instant::now() >= until) {
                self.away_until = None;
                self.outbox.adopt();
            }
            self.send_queued(gathered != Gathered::Enough, self.in_flight, &mut under_way).await;
            if self.must_be_kept() {
                self.sync();
            }
        }
        while let Some(answered) = under_way.next().await {
            self.answered(answered, &mut under_way);
        }
        self.last_attempt().await;
        // With an empty file somebody may just want the spool to be sent, and was told of that.
        if self.count.read == 0 && !self.has_sent_spool && !self.is_quiet && self.failure.is_none() {
            progress::tell(&self.bar, "no events to log: the input is empty");
        }
        self.end()
    }

    /// Whether there is no sense in sending anything now.
    fn must_be_kept(&self) -> bool {
        self.away_until.is_some() || self.stop.is_over()
    }

    /// Puts a batch of events into the outbox. The first of them waits a second for others, no longer.
    async fn gather(&mut self, items: &mut Items, under_way: &mut UnderWay) -> Gathered {
        let (mut events, mut bytes) = (0, 0);
        let mut until = self.outbox.has_queued().then(|| Instant::now() + GATHER);
        while events < EVENTS_MAX && bytes < BYTES_MAX {
            let Some(item) = self.receive(items, until, under_way).await else { return Gathered::InTime };
            match item {
                Some(Ok(Item::Event { line, event })) => {
                    events += 1;
                    bytes += event.get().len() + 1;
                    self.put(line, &event);
                    until.get_or_insert_with(|| Instant::now() + GATHER);
                }
                Some(Ok(item)) => self.pass_over(item),
                // What came before it is sent all the same.
                Some(Err(error)) => {
                    let message = format!("cannot read the rest of the input: {error}");
                    self.failure.get_or_insert(Failure::new(Exit::Failure, message));
                }
                None => return Gathered::Over,
            }
        }
        Gathered::Enough
    }

    fn put(&mut self, line: u64, event: &RawValue) {
        (self.count.last_line, self.is_unsynced) = (line, true);
        self.count.read += 1;
        let text = event.get().as_bytes();
        let put = self.outbox.put(text.to_vec()).or_else(|error| {
            self.fail(Failure::new(Exit::Failure, place::plain(&error)));
            self.spare.put(text.to_vec())
        });
        if let Ok(id) = put {
            self.lines.put(id, line);
        }
    }

    /// All that is queued; without `is_due` only whole batches and what was left before.
    async fn send_queued(&mut self, is_due: bool, in_flight: usize, under_way: &mut UnderWay) {
        while !self.must_be_kept() && (self.outbox.is_due() || is_due && self.outbox.has_queued()) {
            if under_way.requests.len() >= in_flight {
                if let Some(answered) = under_way.next().await {
                    self.answered(answered, under_way);
                }
                // It may have found that the service is away.
                continue;
            }
            match self.outbox.take() {
                Ok(Some(batch)) => under_way.start(&self.client, batch, &self.stop),
                Ok(None) => break,
                Err(error) => {
                    self.fail(Failure::new(Exit::Failure, place::plain(&error)));
                    self.leave_alone();
                }
            }
        }
    }

    /// The next item, or that there is none; nothing if there was none in time. Answers that come meanwhile
    /// are looked at: a pipe can be silent for hours.
    async fn receive(
        &mut self,
        items: &mut Items,
        until: Option<Instant>,
        under_way: &mut UnderWay,
    ) -> Option<Option<io::Result<Item>>> {
        // What is there already needs no clock.
        match items.try_recv() {
            Ok(item) => return Some(Some(item)),
            Err(TryRecvError::Disconnected) => return Some(None),
            Err(TryRecvError::Empty) => {}
        }
        let late = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mut late = pin!(late);
        loop {
            // A long line comes in pieces, between which no other line may get into the file of rejects.
            let is_whole = !self.rejects.is_in_a_line();
            tokio::select! {
                biased;
                item = items.recv() => return Some(item),
                Some(answered) = under_way.next(), if is_whole => self.answered(answered, under_way),
                () = &mut late, if is_whole => return None,
            }
        }
    }

    /// What is no event.
    fn pass_over(&mut self, item: Item) {
        let kept = match item {
            Item::Event { .. } => Ok(()),
            Item::Stopped => {
                self.is_cut = true;
                Ok(())
            }
            Item::More { text, is_whole } => self.rejects.more(&text, is_whole),
            Item::Unfit { line, why, text, is_whole } => {
                self.count_unfit(line);
                self.rejects.unfit(line, &why, &text, is_whole)
            }
            Item::Cut { line, text } => {
                self.count_unfit(line);
                self.rejects.cut(line, &text)
            }
        };
        self.or_fail(kept);
    }

    fn count_unfit(&mut self, line: u64) {
        self.count.read += 1;
        self.count.last_line = line;
        self.count.rejected += 1;
    }

    fn answered(&mut self, (batch, indexes, posted): Answered, under_way: &mut UnderWay) {
        let again = match posted {
            Ok(posted) => self.settle(batch, indexes, posted),
            Err(error) => {
                self.leave(batch);
                self.fail(Failure::new(Exit::Failure, format!("a request did not finish: {error}")));
                None
            }
        };
        if let Some(batch) = again {
            under_way.start(&self.client, batch, &self.stop);
        }
    }

    /// Returns the batch if it is to be sent again, without an event that the service has rejected.
    fn settle(&mut self, mut batch: Batch, indexes: Range<usize>, posted: Option<Posted>) -> Option<Batch> {
        match posted {
            Some(Ok((log_ids, _))) => self.stored(&mut batch, indexes, log_ids),
            Some(Err(error)) if exit::of(&error) == Exit::Invalid => {
                if let Err(error) = self.rejected(&mut batch, indexes, error) {
                    self.fail(Failure::new(Exit::Failure, place::plain(&error)));
                    self.leave(batch);
                    return None;
                }
            }
            unheard => {
                // The key may be rolled, the service started: what was read is not lost with it.
                if let Some(Err(error)) = unheard {
                    self.is_away(&error);
                }
                self.leave(batch);
                return None;
            }
        }
        self.show_progress();
        if !batch.has_ended() {
            return Some(batch);
        }
        self.outbox.finish(batch);
        None
    }

    fn stored(&mut self, batch: &mut Batch, indexes: Range<usize>, log_ids: Vec<String>) {
        self.away_told = None;
        let mut sealed = Vec::with_capacity(log_ids.len());
        for (index, log_id) in indexes.zip(log_ids) {
            if let Some(id) = batch.open(index) {
                match self.lines.take(id) {
                    Some(line) => sealed.push((line, log_id)),
                    None => self.from_spool += 1,
                }
                self.outbox.end(batch, index);
            }
        }
        self.count.sealed += sealed.len() as u64;
        if let Err(error) = self.printer.print(&sealed) {
            self.fail(Failure::new(Exit::Failure, format!("cannot write the output: {error}")));
        }
    }

    /// One event can spoil a batch. The service says which: the others are sent again without it. If it does
    /// not, as a proxy with a body that is too large, they are sent one by one.
    fn rejected(
        &mut self,
        batch: &mut Batch,
        indexes: Range<usize>,
        mut error: ClientError,
    ) -> Result<(), sealog_client::Error> {
        let named = take_place(&mut error).filter(|at| *at < indexes.len());
        let Some(at) = named.or((indexes.len() == 1).then_some(0)) else { return self.outbox.split(batch) };
        let index = indexes.start + at;
        let Some(id) = batch.open(index) else { return self.outbox.split(batch) };
        let place = match self.lines.take(id) {
            Some(line) => {
                self.count.rejected += 1;
                format!("line {line}")
            }
            None => "an event of the spool".to_owned(),
        };
        let text = String::from_utf8_lossy(batch.text(index)).into_owned();
        let kept = self.rejects.refused(&place, &error, &text);
        self.or_fail(kept);
        self.outbox.end(batch, index);
        if indexes.len() > 1 && !batch.has_ended() { self.outbox.rekey(batch) } else { Ok(()) }
    }

    fn show_progress(&self) {
        if self.count.read == 0 {
            self.bar.set_position(self.from_spool);
        } else if !self.bar.is_hidden() {
            self.bar.set_position(self.bytes_read.load(Ordering::Relaxed));
            let (events, took) = (self.count.sealed, self.begun.elapsed());
            let rate = progress::rate(events, took);
            self.bar.set_message(format!("{} events, {}/s", HumanCount(events), HumanCount(rate)));
        }
    }

    /// In the spool, or among those that are tried once more at the end.
    fn leave(&mut self, batch: Batch) {
        if batch.is_spooled() {
            self.is_unsynced = true;
            self.outbox.finish(batch);
            return;
        }
        if let Err(unkept) = &self.spool {
            let (exit, why) = match unkept {
                Unkept::Off => (self.away.unwrap_or(Exit::Unavailable), "the spool is off (--no-spool)"),
                Unkept::Unusable(why) => (Exit::Failure, why.as_str()),
            };
            self.fail(Failure::new(exit, why));
        }
        self.stranded.push(batch);
    }

    /// Events that are reported as kept are on stable storage.
    fn sync(&mut self) {
        if self.is_unsynced
            && let Ok(folder) = &self.spool
        {
            self.is_unsynced = false;
            if let Err(error) = self.outbox.sync() {
                let message = format!("cannot sync {}: {error}", folder.display());
                self.fail(Failure::new(Exit::Failure, message));
            }
        }
    }

    /// Nothing more is read, and the rest of the command is about what was.
    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.stop.begin();
    }

    fn or_fail(&mut self, kept: Result<(), String>) {
        if let Err(why) = kept {
            self.fail(Failure::new(Exit::Failure, why));
        }
    }

    /// For what could not be kept: the service may be back.
    async fn last_attempt(&mut self) {
        let mut batches = std::mem::take(&mut self.stranded);
        let unkept = if self.spool.is_err() { &mut self.outbox } else { &mut self.spare };
        while let Ok(Some(batch)) = unkept.take() {
            batches.push(batch);
        }
        for batch in batches {
            let mut next = Some(batch);
            while let Some(batch) = next {
                let post = batch.post();
                let indexes = post.indexes.clone();
                let posted = post_until(&self.client, post, self.stop.over()).await;
                next = self.settle(batch, indexes, posted);
            }
            if !self.stranded.is_empty() {
                break;
            }
        }
    }

    /// What earlier commands have left goes first. Afterwards the service is known to be there, or away.
    async fn send_spool(&mut self) {
        let mut under_way = UnderWay::default();
        // Lines that were read and are nowhere else yet are more urgent.
        while self.outbox.has_queued() && !self.stop.is_begun() && !self.must_be_kept() {
            self.send_queued(true, 1, &mut under_way).await;
            while let Some(answered) = under_way.next().await {
                self.answered(answered, &mut under_way);
            }
            // Held batches are not sent.
            if !self.outbox.has_queued() {
                if !self.outbox.adopt() {
                    break;
                }
                if self.count.read == 0 {
                    self.bar.set_length(self.from_spool + self.outbox.waiting());
                }
            }
        }
        self.tell_spool();
    }

    fn tell_spool(&mut self) {
        let events = std::mem::take(&mut self.from_spool);
        self.has_sent_spool |= events > 0;
        if events > 0 && !self.is_quiet {
            progress::tell(&self.bar, &format!("sent {} events from the spool", HumanCount(events)));
        }
        for (code, text) in self.outbox.warnings() {
            self.is_damaged |= code == "client/spool_damaged";
            // The end of the command has a line for these.
            if code != "client/held" {
                progress::tell(&self.bar, &text);
            }
        }
    }

    fn leave_alone(&mut self) {
        self.away_until = Some(Instant::now() + AWAY);
    }

    fn is_away(&mut self, error: &ClientError) {
        self.leave_alone();
        // Told when it is new: a service can be away for days.
        let text = error.to_string();
        let told = error.code().map_or_else(|| text.clone(), str::to_owned);
        if self.away_told.as_ref() != Some(&told) {
            progress::tell(&self.bar, &text);
        }
        (self.away, self.away_told) = (Some(exit::of(error)), Some(told));
    }

    fn end(&mut self) -> Result<ExitCode, Failure> {
        let kept = self.rejects.sync();
        self.or_fail(kept);
        self.sync();
        self.bar.finish_and_clear();
        self.tell_spool();
        if let Some(summary) = self.rejects.summary() {
            progress::tell(&self.bar, &summary);
        }
        let (mut waiting, mut held) = (0, 0);
        if let Ok(folder) = &self.spool {
            held = self.outbox.held().iter().map(|batch| batch.events.len() as u64).sum();
            waiting = self.outbox.waiting().saturating_sub(held);
            self.tell_waiting(folder, waiting, held);
        }
        if let Some(failure) = self.failure.take() {
            return Err(self.explained(failure));
        }
        if let Some((name, number)) = self.stop.signal()
            && (self.is_cut || waiting > 0)
        {
            progress::tell(&self.bar, &format!("{name}{}", self.account()));
            return Ok(ExitCode::from(128 + number));
        }
        Ok(match waiting {
            1.. => self.away.unwrap_or(Exit::Unavailable).into(),
            0 if self.is_damaged || held > 0 => Exit::Failure.into(),
            0 if self.rejects.total() > 0 => Exit::Invalid.into(),
            0 => ExitCode::SUCCESS,
        })
    }

    fn tell_waiting(&self, folder: &Path, waiting: u64, held: u64) {
        let path = folder.display();
        if waiting > 0 {
            let waiting = place::waiting(waiting);
            let mut told =
                format!("{waiting} in {path}; the next `sealog log` with the same key sends them first");
            if self.away == Some(Exit::Authentication) {
                told.push_str(&format!(
                    "\n  to send them with another key of the same project: sealog spool send --spool '{path}'"
                ));
            }
            progress::tell(&self.bar, &told);
        }
        if held > 0 {
            let told = format!(
                "{} in {path} and may be stored already, because the spool is damaged or the first attempt was a day ago\n  to send them all the same: sealog spool send --held --spool '{path}'; to discard them: sealog spool drop --spool '{path}'",
                place::waiting(held)
            );
            progress::tell(&self.bar, &told);
        }
    }

    /// With what has become of everything that was read.
    fn explained(&self, mut failure: Failure) -> Failure {
        let lost = self.lines.left(false);
        if lost > 0 {
            let lost = HumanCount(lost);
            failure.message = format!("{lost} events were neither sent nor kept: {}", failure.message);
        }
        if self.printer.unprinted > 0 {
            let unprinted = HumanCount(self.printer.unprinted);
            failure
                .message
                .push_str(&format!("\n  the log_ids of {unprinted} sealed events were not printed"));
        }
        if self.is_cut {
            failure.message.push_str(&format!("\n  stopped reading{}", self.account()));
        }
        failure
    }

    fn account(&self) -> String {
        let Count { read, last_line, sealed, rejected } = self.count;
        let mut text = format!(
            " after line {}: {} lines read, {} of them sealed, {} kept",
            HumanCount(last_line),
            HumanCount(read),
            HumanCount(sealed),
            HumanCount(self.lines.left(true))
        );
        for (count, what) in [(rejected, "rejected"), (self.lines.left(false), "lost")] {
            if count > 0 {
                text.push_str(&format!(", {} {what}", HumanCount(count)));
            }
        }
        text
    }
}

/// The lines of events, in memory and in the spool: in the order of their ids, because they end almost in
/// that order. A line that is 0 has ended.
#[derive(Default)]
struct Lines([VecDeque<(EventId, u64)>; 2]);

impl Lines {
    fn put(&mut self, id: EventId, line: u64) {
        self.0[usize::from(id.is_spooled())].push_back((id, line));
    }

    /// None of an event that another command has read.
    fn take(&mut self, id: EventId) -> Option<u64> {
        let lines = &mut self.0[usize::from(id.is_spooled())];
        let at = lines.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let line = std::mem::take(&mut lines[at].1);
        while lines.front().is_some_and(|(_, line)| *line == 0) {
            lines.pop_front();
        }
        (line > 0).then_some(line)
    }

    /// How many have not ended.
    fn left(&self, is_spooled: bool) -> u64 {
        self.0[usize::from(is_spooled)].iter().filter(|(_, line)| *line > 0).count() as u64
    }
}

/// How a batch of lines came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    Enough,
    InTime,
    /// There are no more.
    Over,
}

/// The ids of stored events and whether the service had them already, or why there are none.
type Posted = Result<(Vec<String>, bool), ClientError>;
type Answered = (Batch, Range<usize>, Result<Option<Posted>, JoinError>);

/// Requests, and what they carry: whatever becomes of one, its batch is still here.
#[derive(Default)]
struct UnderWay {
    requests: JoinSet<Option<Posted>>,
    batches: HashMap<Id, (Batch, Range<usize>)>,
}

impl UnderWay {
    fn start(&mut self, client: &Arc<Client>, batch: Batch, stop: &Stop) {
        let (client, post, over) = (Arc::clone(client), batch.post(), stop.over());
        let indexes = post.indexes.clone();
        let request = self.requests.spawn(async move { post_until(&client, post, over).await });
        self.batches.insert(request.id(), (batch, indexes));
    }

    /// The next that has ended; nothing if none is under way. May be dropped and asked for again.
    async fn next(&mut self) -> Option<Answered> {
        let (id, posted) = match self.requests.join_next_with_id().await? {
            Ok((id, posted)) => (id, Ok(posted)),
            Err(error) => (error.id(), Err(error)),
        };
        let (batch, indexes) = self.batches.remove(&id).expect("it was started with one");
        Some((batch, indexes, posted))
    }
}
