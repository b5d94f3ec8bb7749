//! Makes batches, sends them, and keeps in the spool what cannot be sent.
//!
//! Every line that was read ends in one of four ways, and each is counted: it is sealed, kept in the spool,
//! not taken, or lost because the spool cannot be written either. No failure ends the command before all of
//! them have.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar};
use sealog_client::http::{Client, ClientError};
use serde_json::value::RawValue;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::deliver::{BYTES_MAX, Delivered, EVENTS_MAX, deliver_until};
use super::super::exit::{self, Exit, Failure};
use super::super::progress;
use super::super::spool::{Batch, Found, Sending, Spool};
use super::input::{Input, Item, Items};
use super::printer::Printer;
use super::rejects::Rejects;
use super::stop::Stop;

/// How long the first event of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a service that was away is left alone while lines still arrive.
const AWAY: Duration = Duration::from_secs(10);
/// How often it is asked whether another command still sends the spool.
const ASK_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Sender {
    client: Arc<Client>,
    spool: Option<Spool>,
    in_flight: usize,
    printer: Printer,
    rejects: Rejects,
    stop: Stop,
    is_quiet: bool,
    keys: Keys,
    bar: ProgressBar,
    bytes_read: Arc<AtomicU64>,
    begun: Instant,
    count: Count,
    /// Until when the service is left alone.
    away_until: Option<Instant>,
    /// What the last request means for the command that was not heard.
    away: Option<Exit>,
    /// What was told of a service that is away, since it was there.
    away_told: Option<String>,
    /// The first one. The command ends with it when everything that was read is where it can be.
    failure: Option<Failure>,
    /// What could neither be sent nor kept so far.
    stranded: Vec<Sent>,
    /// Whether there is more input, which was not read.
    is_cut: bool,
    /// Whether something had to be set aside that the spool had promised to keep.
    is_damaged: bool,
    has_sent_spool: bool,
}

/// What became of the lines that this command has read.
#[derive(Default)]
struct Count {
    read: u64,
    last_line: u64,
    sealed: u64,
    kept: u64,
    not_taken: u64,
    lost: u64,
}

/// A batch, and which lines it is made of.
#[derive(Clone)]
struct Sent {
    batch: Batch,
    lines: Vec<u64>,
}

/// Idempotency keys of this command: 128 random bits, and a number.
struct Keys {
    base: String,
    made: u64,
}

impl Keys {
    fn new() -> Result<Keys, Failure> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::new(Exit::Failure, format!("the system has no randomness: {error}")))?;
        Ok(Keys { base: hex::encode(bytes), made: 0 })
    }

    fn next(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.base, self.made)
    }

    fn is_own(&self, key: &str) -> bool {
        key.starts_with(&self.base)
    }
}

impl Sender {
    pub(super) fn new(
        client: Arc<Client>,
        spool: Option<Spool>,
        in_flight: usize,
        printer: Printer,
        rejects: Rejects,
        stop: Stop,
        is_quiet: bool,
    ) -> Result<Sender, Failure> {
        Ok(Sender {
            client,
            spool,
            in_flight,
            printer,
            rejects,
            stop,
            is_quiet,
            keys: Keys::new()?,
            bar: ProgressBar::hidden(),
            bytes_read: Arc::default(),
            begun: Instant::now(),
            count: Count::default(),
            away_until: None,
            away: None,
            away_told: None,
            failure: None,
            stranded: Vec::new(),
            is_cut: false,
            is_damaged: false,
            has_sent_spool: false,
        })
    }

    /// One event, and the service's own word if it does not take it.
    pub(super) async fn one(
        &mut self,
        event: Box<RawValue>,
        key: Option<String>,
    ) -> Result<ExitCode, Failure> {
        self.send_spool().await;
        let idempotency_key = key.unwrap_or_else(|| self.keys.next());
        let sent = Sent { batch: Batch { idempotency_key, events: vec![event] }, lines: vec![1] };
        if self.must_be_kept() {
            self.keep(sent);
        } else {
            let mut delivered = deliver_until(&self.client, &sent.batch, self.stop.over()).await;
            if let Some((_, refusal)) = delivered.refused.pop() {
                return Err(refusal.into());
            }
            self.settle(&sent, delivered);
        }
        self.last_attempt().await;
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
        let (mut carried, mut is_over) = (None, false);
        while !is_over {
            let sent = self.gather(&mut items, &mut carried, &mut is_over, &mut under_way).await;
            if sent.batch.events.is_empty() {
                continue;
            }
            if self.away_until.is_some_and(|until| Instant::now() >= until) {
                self.send_spool().await;
            }
            while !self.must_be_kept() && under_way.requests.len() >= self.in_flight {
                if let Some(answered) = under_way.next().await {
                    self.answered(answered);
                }
            }
            // One of those may have found that the service is away.
            if self.must_be_kept() {
                // What was sent before it is kept before it: lines stay in order.
                while self.in_flight == 1
                    && let Some(answered) = under_way.next().await
                {
                    self.answered(answered);
                }
                self.keep(sent);
                continue;
            }
            under_way.start(&self.client, sent, &self.stop);
        }
        while let Some(answered) = under_way.next().await {
            self.answered(answered);
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

    /// The next batch. The first event of it waits a second for others, no longer.
    async fn gather(
        &mut self,
        items: &mut Items,
        carried: &mut Option<(u64, Box<RawValue>)>,
        is_over: &mut bool,
        under_way: &mut UnderWay,
    ) -> Sent {
        let batch = Batch { idempotency_key: self.keys.next(), events: Vec::new() };
        let mut sent = Sent { batch, lines: Vec::new() };
        let (mut bytes, mut until) = (0, None);
        if let Some((line, event)) = carried.take() {
            bytes = event.get().len() + 1;
            sent.lines.push(line);
            sent.batch.events.push(event);
            until = Some(Instant::now() + GATHER);
        }
        while sent.batch.events.len() < EVENTS_MAX {
            let Some(item) = self.receive(items, until, under_way).await else { break };
            let (line, event) = match item {
                Some(Ok(Item::Event { line, event })) => (line, event),
                Some(Ok(item)) => {
                    self.pass_over(item);
                    continue;
                }
                // What came before it is sent all the same.
                Some(Err(error)) => {
                    let message = format!("cannot read the rest of the input: {error}");
                    self.failure.get_or_insert(Failure::new(Exit::Failure, message));
                    continue;
                }
                None => {
                    *is_over = true;
                    break;
                }
            };
            self.count.read += 1;
            self.count.last_line = line;
            bytes += event.get().len() + 1;
            if !sent.batch.events.is_empty() && bytes > BYTES_MAX {
                *carried = Some((line, event));
                break;
            }
            sent.lines.push(line);
            sent.batch.events.push(event);
            until.get_or_insert_with(|| Instant::now() + GATHER);
        }
        sent
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
            tokio::select! {
                biased;
                item = items.recv() => return Some(item),
                Some(answered) = under_way.next() => self.answered(answered),
                () = &mut late => return None,
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
        self.count.not_taken += 1;
    }

    fn answered(&mut self, (sent, delivered): (Arc<Sent>, Result<Delivered, JoinError>)) {
        match delivered {
            Ok(delivered) => self.settle(&sent, delivered),
            Err(error) => {
                self.keep(Sent::clone(&sent));
                self.fail(Failure::new(Exit::Failure, format!("a request did not finish: {error}")));
            }
        }
    }

    fn settle(&mut self, sent: &Sent, mut delivered: Delivered) {
        let left = std::mem::take(&mut delivered.left);
        self.settle_answered(sent, &delivered);
        if let Some(error) = &delivered.unheard {
            // The key may be rolled, the service started: what was read is not lost with it.
            self.is_away(error);
        }
        for (places, batch) in left {
            self.keep(Sent { batch, lines: places.iter().map(|at| sent.lines[*at]).collect() });
        }
    }

    fn settle_answered(&mut self, sent: &Sent, delivered: &Delivered) {
        self.count.sealed += delivered.sealed.len() as u64;
        self.count.not_taken += delivered.refused.len() as u64;
        self.is_back(delivered);
        if let Err(error) = self.printer.print(&sent.lines, &delivered.sealed) {
            self.fail(Failure::new(Exit::Failure, format!("cannot write the output: {error}")));
        }
        for (at, error) in &delivered.refused {
            let place = format!("line {}", sent.lines[*at]);
            let kept = self.rejects.refused(&place, error, sent.batch.events[*at].get());
            self.or_fail(kept);
        }
        if !self.bar.is_hidden() {
            self.bar.set_position(self.bytes_read.load(Ordering::Relaxed));
            let (events, took) = (self.count.sealed, self.begun.elapsed());
            let rate = progress::rate(events, took);
            self.bar.set_message(format!("{} events, {}/s", HumanCount(events), HumanCount(rate)));
        }
    }

    /// In the spool, or among those that are tried once more at the end.
    fn keep(&mut self, sent: Sent) {
        let kept = match &self.spool {
            None => {
                Err(Failure::new(self.away.unwrap_or(Exit::Unavailable), "the spool is off (--no-spool)"))
            }
            Some(spool) => spool.append(&sent.batch).map_err(|error| {
                Failure::new(Exit::Failure, format!("cannot write {}: {error}", spool.path().display()))
            }),
        };
        match kept {
            Ok(()) => self.count.kept += sent.batch.events.len() as u64,
            Err(failure) => {
                self.fail(failure);
                self.stranded.push(sent);
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
        let mut stranded = std::mem::take(&mut self.stranded).into_iter();
        for sent in stranded.by_ref() {
            let delivered = deliver_until(&self.client, &sent.batch, self.stop.over()).await;
            self.settle_answered(&sent, &delivered);
            if !delivered.left.is_empty() {
                self.count.lost += delivered.left.iter().map(|(places, _)| places.len() as u64).sum::<u64>();
                break;
            }
        }
        self.count.lost += stranded.map(|sent| sent.batch.events.len() as u64).sum::<u64>();
    }

    /// What earlier commands have kept goes first. Afterwards the service is known to be there, or away.
    async fn send_spool(&mut self) {
        self.away_until = None;
        let Some(spool) = self.spool.take() else { return };
        if !spool.is_empty()
            && let Err(error) = self.send_all_of(&spool).await
        {
            let path = spool.path().display();
            self.fail(Failure::new(Exit::Failure, format!("cannot use the spool {path}: {error}")));
        }
        self.spool = Some(spool);
    }

    async fn send_all_of(&mut self, spool: &Spool) -> io::Result<()> {
        let sending = loop {
            match spool.sending()? {
                Some(sending) => break sending,
                None if self.stop.is_begun() => {
                    self.leave_alone();
                    return Ok(());
                }
                None => sleep(ASK_AGAIN).await,
            }
        };
        let mut done = Done::default();
        let ended = self.send_from(&sending, &mut done).await;
        // Whatever has ended it: what was sent must not be sent again when its keys are forgotten.
        let forgotten = sending.forget_before(done.offset, &done.left);
        self.has_sent_spool |= done.events > 0;
        if done.events > 0 && !self.is_quiet {
            let events = HumanCount(done.events);
            progress::tell(&self.bar, &format!("sent {events} events from the spool"));
        }
        ended.and(forgotten)
    }

    async fn send_from(&mut self, sending: &Sending<'_>, done: &mut Done) -> io::Result<()> {
        loop {
            let (batch, next) = match sending.at(done.offset)? {
                Found::End { at } => {
                    done.offset = at;
                    return Ok(());
                }
                Found::Batch { batch, next } => (batch, next),
                Found::Damaged { why, is_torn, next } => {
                    let aside = sending.set_aside(done.offset, next)?;
                    self.tell_damage(&why, is_torn, next - done.offset, &aside.display().to_string());
                    done.offset = next;
                    continue;
                }
            };
            // Lines that were read and are nowhere else yet are more urgent.
            if self.stop.is_begun() {
                self.leave_alone();
                return Ok(());
            }
            let delivered = deliver_until(&self.client, &batch, self.stop.over()).await;
            self.settle_spooled(&batch, &delivered);
            done.events += delivered.sealed.len() as u64;
            let is_begun = !delivered.sealed.is_empty() || !delivered.refused.is_empty();
            if delivered.left.is_empty() {
                done.offset = next;
                continue;
            }
            match &delivered.unheard {
                Some(error) => self.is_away(error),
                None => self.leave_alone(),
            }
            if is_begun {
                done.offset = next;
                done.left = delivered.left.into_iter().map(|(_, batch)| batch).collect();
            }
            return Ok(());
        }
    }

    fn settle_spooled(&mut self, batch: &Batch, delivered: &Delivered) {
        let (sealed, refused) = (delivered.sealed.len() as u64, delivered.refused.len() as u64);
        if self.keys.is_own(&batch.idempotency_key) {
            self.count.kept = self.count.kept.saturating_sub(sealed + refused);
            self.count.sealed += sealed;
            self.count.not_taken += refused;
        }
        self.is_back(delivered);
        for (at, error) in &delivered.refused {
            let kept = self.rejects.refused("an event of the spool", error, batch.events[*at].get());
            self.or_fail(kept);
        }
    }

    fn tell_damage(&mut self, why: &str, is_torn: bool, bytes: u64, aside: &str) {
        let bytes = HumanCount(bytes);
        let told = match is_torn {
            true => format!(
                "the spool ends in an incomplete batch: a command was killed during the write and did not report it as kept; its {bytes} bytes are in {aside}"
            ),
            false => format!(
                "the spool is damaged: {bytes} bytes are not a valid batch ({why}); they are in {aside}, and all other batches are sent\n  if you find readable events in that file, log them again by hand"
            ),
        };
        self.is_damaged |= !is_torn;
        progress::tell(&self.bar, &told);
    }

    fn leave_alone(&mut self) {
        self.away_until = Some(Instant::now() + AWAY);
    }

    fn is_back(&mut self, delivered: &Delivered) {
        if !delivered.sealed.is_empty() {
            self.away_told = None;
        }
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
        self.bar.finish_and_clear();
        if let Some(summary) = self.rejects.summary() {
            progress::tell(&self.bar, &summary);
        }
        let waiting = self.spool.as_ref().filter(|spool| !spool.is_empty());
        if let Some(spool) = waiting {
            self.tell_waiting(spool);
        }
        if let Some(failure) = self.failure.take() {
            return Err(self.explained(failure));
        }
        if let Some((name, number)) = self.stop.signal()
            && (self.is_cut || waiting.is_some())
        {
            progress::tell(&self.bar, &format!("{name}{}", self.account()));
            return Ok(ExitCode::from(128 + number));
        }
        Ok(match waiting {
            Some(_) => self.away.unwrap_or(Exit::Unavailable).into(),
            None if self.is_damaged => Exit::Failure.into(),
            None if self.rejects.total() > 0 => Exit::Invalid.into(),
            None => ExitCode::SUCCESS,
        })
    }

    fn tell_waiting(&self, spool: &Spool) {
        let path = spool.path().display();
        let waiting = match spool.waiting() {
            Ok(waiting) => waiting.to_string(),
            Err(error) => format!("an unknown number of events ({error}) wait"),
        };
        let mut told =
            format!("{waiting} in {path}; the next `sealog log` with the same key sends them first");
        if self.away == Some(Exit::Authentication) {
            told.push_str(&format!(
                "\n  to send them with another key of the same project: sealog log --file /dev/null --spool '{path}'"
            ));
        }
        progress::tell(&self.bar, &told);
    }

    /// With what has become of everything that was read.
    fn explained(&self, mut failure: Failure) -> Failure {
        if self.count.lost > 0 {
            let lost = HumanCount(self.count.lost);
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
        let Count { read, last_line, sealed, kept, not_taken, lost } = &self.count;
        let mut text = format!(
            " after line {}: {} lines read, {} of them sealed, {} kept",
            HumanCount(*last_line),
            HumanCount(*read),
            HumanCount(*sealed),
            HumanCount(*kept)
        );
        for (count, what) in [(not_taken, "rejected"), (lost, "lost")] {
            if *count > 0 {
                text.push_str(&format!(", {} {what}", HumanCount(*count)));
            }
        }
        text
    }
}

/// How far the spool was sent.
#[derive(Default)]
struct Done {
    offset: u64,
    events: u64,
    /// Of the batch before that place.
    left: Vec<Batch>,
}

/// Requests, and what they carry: whatever becomes of one, its batch is still here.
#[derive(Default)]
struct UnderWay {
    requests: JoinSet<Delivered>,
    batches: HashMap<Id, Arc<Sent>>,
}

impl UnderWay {
    fn start(&mut self, client: &Arc<Client>, sent: Sent, stop: &Stop) {
        let (client, sent, over) = (Arc::clone(client), Arc::new(sent), stop.over());
        let carried = Arc::clone(&sent);
        let request = self.requests.spawn(async move { deliver_until(&client, &carried.batch, over).await });
        self.batches.insert(request.id(), sent);
    }

    /// The next that has ended; nothing if none is under way. May be dropped and asked for again.
    async fn next(&mut self) -> Option<(Arc<Sent>, Result<Delivered, JoinError>)> {
        let (id, delivered) = match self.requests.join_next_with_id().await? {
            Ok((id, delivered)) => (id, Ok(delivered)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.batches.remove(&id).expect("it was started with one"), delivered))
    }
}
