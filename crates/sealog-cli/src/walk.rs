//! A chain from an event on to its newest one, in order, several requests at a time.
//!
//! The API lists the newest events first. A cursor says "below this `chain_seq`", so a window of the chain is
//! the page below its end; the cursor for any place can be computed
//! (`docs/adr/0028-follow-by-computed-cursors.md`). Windows are as wide as what they bring allows: events
//! that match no filter cost next to nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use sealog_client::http::Client;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::query::encode_cursor;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;

use super::exit::{Exit, Failure};
use super::listing::{Filters, PAGE_MAX};
use super::seen::{Place, Seen};

/// Without filters a window is one page.
const PAGE: u64 = PAGE_MAX as u64;
/// A window that brings more than this is asked for in smaller ones: it is held in memory as a whole.
const EVENTS_MAX: usize = 5_000;
const BYTES_MAX: usize = 32 << 20;
/// Above this the windows that follow are narrower.
const BYTES_WANTED: usize = 4 << 20;

/// The chain of a key, and its newest event.
#[derive(Debug)]
pub(super) struct Newest {
    pub chain: ChainId,
    pub seq: u64,
    pub hash: String,
}

/// A page whose events are where they were received.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next_cursor: Option<String>,
}

/// The newest event that matches; nothing if there is none.
pub(super) async fn newest(client: &Client, filters: &Filters) -> Result<Option<Newest>, Failure> {
    let mut cursor = None::<String>;
    loop {
        let page = filters.page(client, 1, cursor.as_deref()).await?;
        if let Some(event) = page.events.first() {
            let place = Place::of(event.get())?;
            let id = |text: &str| {
                Uuid::parse(text).ok_or_else(|| Failure::new(Exit::Failure, format!("{text:?} is not an id")))
            };
            let (tenant_id, project_id) = (TenantId(id(place.tenant_id)?), ProjectId(id(place.project_id)?));
            let chain = ChainId { tenant_id, project_id, mode: mode(client) };
            return Ok(Some(Newest { chain, seq: place.chain_seq, hash: place.hash.to_owned() }));
        }
        // A page may be empty although there are more: its work is bounded.
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(None);
        }
    }
}

/// Of the chain that the client's key sees.
pub(super) fn mode(client: &Client) -> Mode {
    if client.fingerprint().1.contains(" at_test_") { Mode::Test } else { Mode::Live }
}

/// The first event at or after this one that is kept: the oldest of a test chain are dropped.
pub(super) async fn first_kept(client: &Client, from: u64) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Window {
        first_seq: u64,
    }
    let from = from.to_string();
    let window: Window =
        client.get("/v1/events/verify", &[("from_seq", &from), ("to_seq", &from)]).await?.json()?;
    Ok(window.first_seq)
}

/// What a window has come to.
enum Window {
    Whole { events: Vec<Seen>, bytes: usize },
    TooMuch,
}

/// Events above `lo`, up to `hi`.
async fn window(
    client: &Client,
    filters: &Filters,
    chain: ChainId,
    lo: u64,
    hi: u64,
) -> Result<Window, Failure> {
    let limit = usize::try_from(hi - lo).unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let (mut events, mut bytes) = (Vec::with_capacity(limit), 0);
    let mut cursor = encode_cursor(hi + 1, chain);
    loop {
        let answer = filters.ask(client, limit, Some(&cursor)).await?;
        let page: Page = answer.json()?;
        for text in page.events {
            let seen = Seen::of(&answer.body, text)?;
            if seen.seq > lo && seen.seq <= hi {
                bytes += text.get().len();
                events.push(seen);
            }
        }
        let Some(next) = page.next_cursor else { break };
        let below = Ulid::parse(&next).map_or(u64::MAX, |at| u64::try_from(at.0 >> 64).unwrap_or(u64::MAX));
        if below <= lo + 1 {
            break;
        }
        if events.len() > EVENTS_MAX || bytes > BYTES_MAX {
            return Ok(Window::TooMuch);
        }
        cursor = next;
    }
    events.reverse();
    Ok(Window::Whole { events, bytes })
}

/// The event of this number; nothing if the service does not have it.
pub(super) async fn event(client: &Client, chain: ChainId, seq: u64) -> Result<Option<Seen>, Failure> {
    match window(client, &Filters::default(), chain, seq - 1, seq).await? {
        Window::Whole { mut events, .. } => Ok(events.pop()),
        Window::TooMuch => Ok(None),
    }
}

/// The events of the next window.
#[derive(Debug)]
pub(super) struct Step {
    pub events: Vec<Seen>,
    /// Everything up to this event was looked at.
    pub done: u64,
    /// Events that should be there and are not; nothing where filters leave some out.
    pub missing: u64,
}

/// Above which event, up to which, and what comes of it.
type Asked = (u64, u64, JoinHandle<Result<Window, Failure>>);

pub(super) struct Walk {
    client: Arc<Client>,
    filters: Arc<Filters>,
    chain: ChainId,
    /// Everything up to this event was asked for.
    asked: u64,
    width: u64,
    in_flight: usize,
    under_way: VecDeque<Asked>,
}

impl Walk {
    /// From the event after `at` on.
    pub(super) fn new(
        client: Arc<Client>,
        filters: Filters,
        chain: ChainId,
        at: u64,
        in_flight: usize,
    ) -> Walk {
        let filters = Arc::new(filters);
        Walk { client, filters, chain, asked: at, width: PAGE, in_flight, under_way: VecDeque::new() }
    }

    /// The next window up to `end`; nothing when there was everything. After an error the same window is
    /// asked for again.
    pub(super) async fn next(&mut self, end: u64) -> Result<Option<Step>, Failure> {
        loop {
            while self.under_way.len() < self.in_flight && self.asked < end {
                let (lo, hi) = (self.asked, end.min(self.asked.saturating_add(self.width)));
                let (client, filters, chain) =
                    (Arc::clone(&self.client), Arc::clone(&self.filters), self.chain);
                let asked = tokio::spawn(async move { window(&client, &filters, chain, lo, hi).await });
                self.under_way.push_back((lo, hi, asked));
                self.asked = hi;
            }
            let Some((lo, hi, asked)) = self.under_way.pop_front() else { return Ok(None) };
            let unfinished =
                |error| Failure::new(Exit::Failure, format!("a request did not finish: {error}"));
            match asked.await.map_err(unfinished).flatten() {
                Err(failure) => {
                    self.back_to(lo);
                    return Err(failure);
                }
                Ok(Window::TooMuch) => {
                    self.back_to(lo);
                    self.width = ((hi - lo) / 8).max(1);
                }
                Ok(Window::Whole { events, bytes }) => {
                    self.adapt(events.len(), bytes);
                    let missing = if self.filters.is_empty() { hi - lo - events.len() as u64 } else { 0 };
                    return Ok(Some(Step { events, done: hi, missing }));
                }
            }
        }
    }

    fn back_to(&mut self, lo: u64) {
        self.under_way.drain(..).for_each(|(_, _, asked)| asked.abort());
        self.asked = lo;
    }

    fn adapt(&mut self, events: usize, bytes: usize) {
        let widest = if self.filters.is_empty() { PAGE } else { 1 << 40 };
        if bytes > BYTES_WANTED || events > EVENTS_MAX / 2 {
            self.width = (self.width / 2).max(1);
        } else if events < PAGE_MAX / 2 || self.width < PAGE {
            self.width = (self.width * 2).min(widest);
        }
    }
}
