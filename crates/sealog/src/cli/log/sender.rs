//! Makes batches, sends them, and keeps in the spool what cannot be sent.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sealog_client::{Client, ClientError};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::super::deliver::{BYTES_MAX, Delivered, EVENTS_MAX, deliver};
use super::super::exit::{Exit, Failure};
use super::super::file_flags;
use super::super::lines::Line;
use super::super::output::{self, Form};
use super::super::spool::{Batch, Spool};

/// How long the first event of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a service that was away is left alone while lines still arrive.
const AWAY: Duration = Duration::from_secs(10);

pub(super) struct Sender {
    client: Arc<Client>,
    spool: Option<Spool>,
    in_flight: usize,
    form: Form,
    is_quiet: bool,
    rejects: Option<File>,
    rejected: u64,
    spooled: u64,
    /// A line was read, or something of the spool was sent.
    is_any: bool,
    /// The input could not be read to its end.
    is_cut: bool,
    /// Until when the service is left alone.
    away_until: Option<Instant>,
}

/// A batch, and which lines it is made of.
struct Sent {
    batch: Batch,
    lines: Vec<u64>,
}

impl Sender {
    pub(super) fn new(
        client: Arc<Client>,
        spool: Option<Spool>,
        in_flight: usize,
        form: Form,
        is_quiet: bool,
        rejects: Option<PathBuf>,
    ) -> Result<Sender, Failure> {
        let rejects = match rejects {
            None => None,
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(&path);
                Some(file.map_err(|error| file_flags::unwritable(&path, &error))?)
            }
        };
        Ok(Sender {
            client,
            spool,
            in_flight,
            form,
            is_quiet,
            rejects,
            rejected: 0,
            spooled: 0,
            is_any: false,
            is_cut: false,
            away_until: None,
        })
    }

    /// One event, and the service's own word if it does not take it.
    pub(super) async fn one(
        &mut self,
        event: Box<RawValue>,
        key: Option<String>,
    ) -> Result<ExitCode, Failure> {
        self.send_spool().await?;
        let batch = Batch { idempotency_key: key.map_or_else(new_key, Ok)?, events: vec![event] };
        if self.away_until.is_some() {
            self.keep(&batch)?;
            return Ok(self.end());
        }
        let mut delivered = deliver(&self.client, &batch).await;
        if let Some((_, refusal)) = delivered.refused.pop() {
            return Err(refusal.into());
        }
        self.settle(&Sent { lines: vec![1], batch }, delivered)?;
        Ok(self.end())
    }

    /// Every line, until the input ends.
    pub(super) async fn all(
        &mut self,
        mut lines: mpsc::Receiver<io::Result<Line>>,
    ) -> Result<ExitCode, Failure> {
        self.send_spool().await?;
        let mut under_way: JoinSet<(Sent, Delivered)> = JoinSet::new();
        let (mut carried, mut is_over) = (None, false);
        while !is_over {
            let sent = self.gather(&mut lines, &mut carried, &mut is_over).await?;
            if sent.batch.events.is_empty() {
                continue;
            }
            if self.away_until.is_some_and(|until| Instant::now() >= until) {
                self.send_spool().await?;
            }
            if self.away_until.is_some() {
                self.keep(&sent.batch)?;
                continue;
            }
            while under_way.len() >= self.in_flight {
                self.joined(under_way.join_next().await)?;
            }
            // One of those may have found that the service is away.
            if self.away_until.is_some() {
                self.keep(&sent.batch)?;
                continue;
            }
            let client = Arc::clone(&self.client);
            under_way.spawn(async move {
                let delivered = deliver(&client, &sent.batch).await;
                (sent, delivered)
            });
        }
        while !under_way.is_empty() {
            self.joined(under_way.join_next().await)?;
        }
        if !self.is_any && !self.is_cut && !self.is_quiet {
            eprintln!("sealog: there was nothing to log: the input has no line");
        }
        Ok(self.end())
    }

    /// The next batch. The first event of it waits a second for others, no longer.
    async fn gather(
        &mut self,
        lines: &mut mpsc::Receiver<io::Result<Line>>,
        carried: &mut Option<(u64, Box<RawValue>)>,
        is_over: &mut bool,
    ) -> Result<Sent, Failure> {
        let mut sent =
            Sent { batch: Batch { idempotency_key: new_key()?, events: Vec::new() }, lines: Vec::new() };
        let (mut bytes, mut until) = (0, None);
        if let Some((number, event)) = carried.take() {
            bytes = event.get().len() + 1;
            sent.lines.push(number);
            sent.batch.events.push(event);
            until = Some(Instant::now() + GATHER);
        }
        while sent.batch.events.len() < EVENTS_MAX {
            // Lines that are there already need no clock.
            let item = match (lines.try_recv(), until) {
                (Ok(item), _) => Some(item),
                (Err(TryRecvError::Disconnected), _) => None,
                (Err(TryRecvError::Empty), None) => lines.recv().await,
                (Err(TryRecvError::Empty), Some(until)) => match timeout_at(until, lines.recv()).await {
                    Ok(item) => item,
                    Err(_) => break,
                },
            };
            let line = match item {
                None => {
                    *is_over = true;
                    break;
                }
                Some(Ok(line)) => line,
                Some(Err(error)) => {
                    // What came before it is sent all the same.
                    eprintln!(
                        "sealog: the input cannot be read any further: {error}\n  what now: the lines before that are sent; log the rest of them with another command"
                    );
                    self.is_cut = true;
                    *is_over = true;
                    break;
                }
            };
            self.is_any = true;
            match line.event {
                Err(why) => self.reject(&format!("line {}", line.number), &why, None)?,
                Ok(event) => {
                    bytes += event.get().len() + 1;
                    if !sent.batch.events.is_empty() && bytes > BYTES_MAX {
                        *carried = Some((line.number, event));
                        break;
                    }
                    sent.lines.push(line.number);
                    sent.batch.events.push(event);
                    until.get_or_insert_with(|| Instant::now() + GATHER);
                }
            }
        }
        Ok(sent)
    }

    fn joined(&mut self, joined: Option<Result<(Sent, Delivered), JoinError>>) -> Result<(), Failure> {
        let Some(joined) = joined else { return Ok(()) };
        let unfinished = |error| Failure::new(Exit::Failure, format!("a request was not finished: {error}"));
        let (sent, delivered) = joined.map_err(unfinished)?;
        self.settle(&sent, delivered)
    }

    fn settle(&mut self, sent: &Sent, delivered: Delivered) -> Result<(), Failure> {
        self.print(&sent.lines, &delivered.sealed)?;
        for (at, error) in delivered.refused {
            let place = format!("line {}", sent.lines[at]);
            self.reject(&place, &error.to_string(), Some(sent.batch.events[at].get()))?;
        }
        match delivered.unheard {
            None => Ok(()),
            // The key may be rolled, the service started: what was read is not lost with it.
            Some(error) if self.spool.is_some() => {
                self.is_away(&error);
                self.keep(&sent.batch)
            }
            Some(error) => Err(error.into()),
        }
    }

    fn reject(&mut self, place: &str, why: &str, event: Option<&str>) -> Result<(), Failure> {
        eprintln!("sealog: {place}: {why}");
        self.rejected += 1;
        if let (Some(file), Some(event)) = (&mut self.rejects, event) {
            let unwritten = |error| {
                Failure::new(Exit::Failure, format!("the file of rejects cannot be written: {error}"))
            };
            writeln!(file, "{event}").map_err(unwritten)?;
        }
        Ok(())
    }

    fn keep(&mut self, batch: &Batch) -> Result<(), Failure> {
        let Some(spool) = &self.spool else {
            return Err(Failure::new(
                Exit::Unavailable,
                "the service is away, and there is no spool (--no-spool)",
            ));
        };
        let kept = spool.lock().and_then(|mut locked| locked.append(batch));
        kept.map_err(|error| {
            let path = spool.path().display();
            Failure::new(
                Exit::Failure,
                format!(
                    "{} events were neither sent nor kept: {path} cannot be written: {error}",
                    batch.events.len()
                ),
            )
        })?;
        self.spooled += batch.events.len() as u64;
        Ok(())
    }

    /// What earlier commands have kept goes first. Afterwards the service is known to be there, or away.
    async fn send_spool(&mut self) -> Result<(), Failure> {
        let Some(spool) = self.spool.take() else { return Ok(()) };
        let sent = self.send_all_of(&spool).await;
        self.spool = Some(spool);
        sent
    }

    async fn send_all_of(&mut self, spool: &Spool) -> Result<(), Failure> {
        self.away_until = None;
        if spool.is_empty() {
            return Ok(());
        }
        let bad = |error: io::Error| unusable(spool, &error);
        let mut locked = spool.lock().map_err(bad)?;
        let (mut sent, mut events) = (0, 0);
        loop {
            let (batch, next) = match locked.at(sent) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                // What was sent goes before anybody is asked to look at the rest: sent again after a day, it
                // would count twice.
                Err(_) if sent > 0 => {
                    locked.forget_before(sent).map_err(bad)?;
                    sent = 0;
                    continue;
                }
                Err(error) => return Err(bad(error)),
            };
            let delivered = deliver(&self.client, &batch).await;
            events += delivered.sealed.len() as u64;
            for (at, error) in delivered.refused {
                self.reject("an event of the spool", &error.to_string(), Some(batch.events[at].get()))?;
            }
            if let Some(error) = delivered.unheard {
                self.is_away(&error);
                break;
            }
            sent = next;
        }
        locked.forget_before(sent).map_err(bad)?;
        self.spooled = self.spooled.saturating_sub(events);
        self.is_any |= events > 0;
        if events > 0 && !self.is_quiet {
            eprintln!("sealog: {events} events of the spool were sent");
        }
        Ok(())
    }

    fn is_away(&mut self, error: &ClientError) {
        eprintln!("sealog: {error}");
        self.away_until = Some(Instant::now() + AWAY);
    }

    fn print(&self, lines: &[u64], sealed: &[(usize, String)]) -> Result<(), Failure> {
        let mut text = String::with_capacity(sealed.len() * 27);
        for (at, log_id) in sealed {
            let line = lines[*at];
            match self.form {
                Form::Json => text.push_str(&format!("{}\n", json!({ "line": line, "log_id": log_id }))),
                Form::Lines | Form::Table => text.push_str(&format!("{log_id}\n")),
            }
        }
        output::put(&text)?;
        Ok(())
    }

    fn end(&self) -> ExitCode {
        let is_all_sent = self.spool.as_ref().is_none_or(Spool::is_empty);
        if !is_all_sent && let Some(spool) = &self.spool {
            let path = spool.path().display();
            eprintln!(
                "sealog: {} events wait in {path}; the next `sealog log` sends them first",
                self.spooled.max(1)
            );
        }
        ended(is_all_sent, self.is_cut, self.rejected)
    }
}

/// What is in the spool was read and not sent: nobody but its owner can say what becomes of it.
fn unusable(spool: &Spool, error: &io::Error) -> Failure {
    let what_now = if error.kind() == io::ErrorKind::InvalidData {
        "move the file away and run this again; each line of it is a batch in JSON, and lines that are whole can be sent from a file of their own with --spool FILE"
    } else {
        "name another file with --spool, or give --no-spool"
    };
    let path = spool.path().display();
    Failure::new(Exit::Failure, format!("the spool {path} cannot be used: {error}\n  what now: {what_now}"))
}

/// 128 random bits.
fn new_key() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Failure, format!("there is no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the whole command comes to.
fn ended(is_all_sent: bool, is_cut: bool, rejected: u64) -> ExitCode {
    match (is_all_sent, is_cut, rejected) {
        (false, ..) => Exit::Unavailable.into(),
        (true, true, _) => Exit::Failure.into(),
        (true, false, 0) => ExitCode::SUCCESS,
        (true, false, _) => Exit::Invalid.into(),
    }
}
