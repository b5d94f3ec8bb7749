//! The queue's events, in memory or in a spool. A store hands out one batch at a time; the queue's lock
//! guards it.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use crate::endpoint::{AROUND_A_BATCH, new_key};
use crate::error::{Error, Kind};
use crate::event::Event;
use crate::options::Options;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub batch_events: usize,
    pub batch_bytes: u64,
    pub queue_events: usize,
    pub queue_bytes: u64,
    pub spool_bytes: u64,
    pub hold_after_ms: u64,
}

impl From<&Options> for Limits {
    fn from(options: &Options) -> Limits {
        Limits {
            batch_events: options.batch_max_events,
            batch_bytes: options.batch_max_bytes,
            queue_events: options.queue_max_events,
            queue_bytes: options.queue_max_bytes,
            spool_bytes: options.spool_max_bytes,
            hold_after_ms: u64::try_from(options.hold_after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Names an event of a store. Later events have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// Of the file; 0 in memory.
    pub(crate) journal: u64,
    pub(crate) number: u64,
}

/// Events that are sent under one key.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) key: String,
    /// None in place of an event that ended before a restart, if the batch is split.
    pub(crate) events: Vec<Option<Bytes>>,
    pub(crate) is_split: bool,
    pub(crate) place: Place,
}

impl Batch {
    pub(crate) fn new(journal: u64, numbers: Vec<u64>) -> Batch {
        let place = Place { journal, ended: vec![false; numbers.len()], numbers, ..Place::default() };
        Batch { key: new_key(), place, ..Batch::default() }
    }

    /// Without the events that have ended, under another key.
    pub(crate) fn keep_left(&mut self) {
        let left: Vec<usize> = (0..self.events.len()).filter(|index| !self.place.ended[*index]).collect();
        self.events = left.iter().map(|index| self.events[*index].take()).collect();
        self.place.numbers = left.iter().map(|index| self.place.numbers[*index]).collect();
        self.place.ended = vec![false; left.len()];
        self.key = new_key();
    }
}

/// Where a store has a batch.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Of the file; 0 in memory.
    pub journal: u64,
    /// Of the events in it.
    pub numbers: Vec<u64>,
    pub ended: Vec<bool>,
    /// Of the first attempt; 0: never sent.
    pub ms: u64,
    /// The application has decided to send it.
    pub is_released: bool,
    /// Why it is not sent until the application decides.
    pub held_for: Option<&'static str>,
}

impl Place {
    pub fn left(&self) -> impl Iterator<Item = u64> + Clone {
        self.numbers.iter().zip(&self.ended).filter(|(_, ended)| !**ended).map(|(number, _)| *number)
    }

    /// The first and the last number, and those between.
    pub fn span(&self) -> (u64, u64) {
        let (first, last) = (self.numbers[0], self.numbers[self.numbers.len() - 1]);
        (first, last - first + 1)
    }
}

/// Why there is no room.
pub(crate) enum Full {
    Now(Error),
    /// For this event there never will be.
    Forever(Error),
}

impl Full {
    pub fn now(what: &str, option: &str, limit: u64) -> Full {
        let problem = format!("the {what} is full: {option} is {limit}; raise it, or wait for the service");
        Full::Now(Error::new(Kind::QueueFull, &format!("client/{what}_full"), problem))
    }

    pub fn forever(what: &str, option: &str, limit: u64) -> Full {
        let problem = format!("the event is larger than {option} ({limit}); raise it");
        Full::Forever(Error::new(Kind::QueueFull, &format!("client/{what}_full"), problem))
    }
}

/// A batch of the spool that is not sent until the application decides, because its events may be stored
/// already.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Held {
    pub id: String,
    /// `age`: its key may have expired. `damaged`: a record was lost.
    pub reason: &'static str,
    pub events: Vec<Event>,
    /// The same as they would be sent.
    pub texts: Vec<Bytes>,
}

/// What to do with a held batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Under a new key: it may be stored twice.
    Send,
    /// Its events end as errors.
    Drop,
}

/// What a store has to say beside its answers: the queue collects it after each call.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub warnings: Vec<(String, String)>,
    /// Events that were taken over from a dead process, or released.
    pub added: u64,
    /// Events that are held now, and so not waited for.
    pub held: u64,
}

impl News {
    pub fn warn(&mut self, code: &str, message: impl Into<String>) {
        self.warnings.push((code.to_owned(), message.into()));
    }
}

pub(crate) trait Store: Send {
    fn room(&mut self, size: usize) -> Result<(), Full>;
    fn put(&mut self, event: Vec<u8>, now_ms: u64) -> Result<EventId, Error>;
    fn is_batch_full(&self) -> bool;
    /// Whether there is something to send that need not wait for the interval.
    fn has_leftovers(&self) -> bool;
    fn has_queued(&self) -> bool;
    /// None if everything was held or settled.
    fn take(&mut self, now_ms: u64, news: &mut News) -> Result<Option<Batch>, Error>;
    /// The event that was put last, as a batch of its own under this key.
    fn take_newest(&mut self, key: String, now_ms: u64) -> Result<Batch, Error>;
    /// Makes the decision durable to send the events one by one.
    fn split(&mut self, batch: &mut Batch) -> Result<(), Error>;
    /// Gives the events that have not ended a key of their own, after the service has rejected the batch and
    /// stored none of it.
    fn rekey(&mut self, batch: &mut Batch, now_ms: u64, news: &mut News) -> Result<(), Error>;
    fn end(&mut self, batch: &mut Batch, index: usize, news: &mut News);
    fn finish(&mut self, batch: Batch, news: &mut News);
    /// Returns the events that end with the store.
    fn close(&mut self) -> Vec<Bytes>;
    /// Takes over what dead processes left.
    fn adopt(&mut self, _news: &mut News) {}
    /// The events that have not ended, held ones included.
    fn waiting(&self) -> u64;
    /// Returns when these are on stable storage, if there is a spool.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn held(&mut self) -> Vec<Held> {
        Vec::new()
    }
    /// Returns the events that were dropped.
    fn release(
        &mut self,
        _id: &str,
        _choice: Choice,
        _now_ms: u64,
        _news: &mut News,
    ) -> Result<Vec<Bytes>, Error> {
        Err(Error::option("id", "there is no spool, so no batch is held"))
    }
}

/// A queue that ends with its process.
#[derive(Debug)]
pub(crate) struct Memory {
    limits: Limits,
    queue: VecDeque<(u64, Bytes)>,
    /// Of the newest event.
    number: u64,
    /// Not yet in a batch.
    queued_bytes: u64,
    /// Until they have ended.
    count: usize,
    bytes: u64,
}

impl Memory {
    pub fn new(limits: Limits) -> Memory {
        Memory { limits, queue: VecDeque::new(), number: 0, queued_bytes: 0, count: 0, bytes: 0 }
    }
}

impl Store for Memory {
    fn room(&mut self, size: usize) -> Result<(), Full> {
        let (size, limits) = (size as u64, &self.limits);
        if size > limits.queue_bytes {
            return Err(Full::forever("queue", "queue_max_bytes", limits.queue_bytes));
        }
        if self.count >= limits.queue_events {
            return Err(Full::now("queue", "queue_max_events", limits.queue_events as u64));
        }
        if self.bytes + size > limits.queue_bytes {
            return Err(Full::now("queue", "queue_max_bytes", limits.queue_bytes));
        }
        Ok(())
    }

    fn put(&mut self, mut event: Vec<u8>, _: u64) -> Result<EventId, Error> {
        // What a growing buffer has left over would be kept with the event.
        event.shrink_to_fit();
        self.queued_bytes += event.len() as u64 + 1;
        self.count += 1;
        self.bytes += event.len() as u64;
        self.number += 1;
        self.queue.push_back((self.number, event.into()));
        Ok(EventId { journal: 0, number: self.number })
    }

    fn is_batch_full(&self) -> bool {
        self.queue.len() >= self.limits.batch_events || self.queued_bytes >= self.limits.batch_bytes
    }

    fn has_leftovers(&self) -> bool {
        false
    }

    fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    fn take(&mut self, _: u64, _: &mut News) -> Result<Option<Batch>, Error> {
        let mut bytes = AROUND_A_BATCH.len() as u64;
        let (mut numbers, mut events) = (Vec::new(), Vec::new());
        while let Some((_, next)) = self.queue.front()
            && events.len() < self.limits.batch_events
        {
            bytes += next.len() as u64 + 1;
            if bytes > self.limits.batch_bytes && !events.is_empty() {
                break;
            }
            self.queued_bytes -= next.len() as u64 + 1;
            let (number, event) = self.queue.pop_front().expect("it was just there");
            numbers.push(number);
            events.push(Some(event));
        }
        Ok(Some(numbers)
            .filter(|numbers| !numbers.is_empty())
            .map(|numbers| Batch { events, ..Batch::new(0, numbers) }))
    }

    fn take_newest(&mut self, key: String, _: u64) -> Result<Batch, Error> {
        let (number, event) = self.queue.pop_back().expect("it was just put there");
        self.queued_bytes -= event.len() as u64 + 1;
        Ok(Batch { key, events: vec![Some(event)], ..Batch::new(0, vec![number]) })
    }

    fn split(&mut self, batch: &mut Batch) -> Result<(), Error> {
        batch.is_split = true;
        Ok(())
    }

    fn rekey(&mut self, batch: &mut Batch, _: u64, _: &mut News) -> Result<(), Error> {
        batch.keep_left();
        Ok(())
    }

    fn end(&mut self, batch: &mut Batch, index: usize, _: &mut News) {
        batch.place.ended[index] = true;
        self.count -= 1;
        self.bytes -= batch.events[index].as_ref().map_or(0, |event| event.len() as u64);
    }

    fn finish(&mut self, _: Batch, _: &mut News) {}

    fn close(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.queue).into_iter().map(|(_, event)| event).collect()
    }

    fn waiting(&self) -> u64 {
        self.count as u64
    }
}
