//! A store with as many events as was asked for, for everything that reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Ulid};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{List, Store};

use crate::driver::{self, Until, wait};
use crate::machine::{Usage, resident_bytes};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::setting::Setting;
use crate::workload::{self, Timeline};

const BATCH: u64 = 100;
const IN_FLIGHT: usize = 16;

#[derive(Debug)]
pub struct Filled {
    pub dir: PathBuf,
    pub store: EmbeddedStore,
    pub events: u64,
    /// Of some events, evenly spread, to ask for.
    pub log_ids: Vec<Ulid>,
    /// Events/s of the first and of the last tenth.
    pub first_tenth: f64,
    pub last_tenth: f64,
    /// The share of all cores that others took meanwhile.
    pub others: f64,
    pub resident_before: u64,
    pub resident_filled: u64,
}

/// Fills a store with events that spread over 90 days.
pub fn fill(setting: &Setting, events: u64) -> Outcome<Filled> {
    let dir = setting.dir.join("filled");
    let resident_before = resident_bytes();
    let timeline = Arc::new(Timeline::new());
    let options = Options { world: Arc::clone(&timeline) as _, ..setting.options(&Meter::default()) };
    let store = setting.open(&dir, &options)?;
    let before = Usage::now();
    let mut next = 0;
    let mut tenths = Vec::new();
    // In tenths, to see whether the store slows down as it grows. Between two of them the queue runs empty
    // once.
    for tenth in 1..=10 {
        let (first, until) = (next, events * tenth / 10);
        let start = Instant::now();
        setting.progress.say(&format!("filling a store: {first} of {events} events"));
        driver::append(&store, IN_FLIGHT, Until::Exhausted, || {
            let end = (next + BATCH).min(until);
            let batch: Vec<_> = (next..end).map(workload::draft).collect();
            timeline.set(workload::timestamp_ms(next, events));
            next = end;
            (!batch.is_empty()).then_some((workload::chain(), batch))
        })?;
        tenths.push((until - first) as f64 / start.elapsed().as_secs_f64());
    }
    let others = match (before, Usage::now()) {
        (Some(before), Some(after)) => after.others_since(&before),
        _ => 0.0,
    };
    let resident_filled = resident_bytes();
    let log_ids = log_ids(&store, events)?;
    Ok(Filled {
        dir,
        store,
        events,
        log_ids,
        first_tenth: tenths[0],
        last_tenth: tenths[9],
        others,
        resident_before,
        resident_filled,
    })
}

/// Ids of up to 20,000 events from all over the chain.
fn log_ids(store: &dyn Store, events: u64) -> Outcome<Vec<Ulid>> {
    const PAGES: u64 = 200;
    let mut log_ids = Vec::new();
    for part in 1..=PAGES.min(events) {
        let before_seq = Some(events * part / PAGES.min(events) + 1);
        let list = List { filter: Default::default(), before_seq, limit: 100, bytes_max: 1 << 20 };
        let events = page(store, workload::chain(), list)?;
        log_ids.extend(events.iter().map(|event| event.sealed.log_id));
    }
    Ok(log_ids)
}

/// A whole page, however many calls it takes: the work of one is bounded.
pub fn page(store: &dyn Store, chain: ChainId, mut list: List) -> Outcome<Vec<StoredEvent>> {
    let mut events = Vec::new();
    loop {
        let chunk = wait(store.list(chain, list.clone()))?;
        list.limit -= chunk.items.len();
        events.extend(chunk.items);
        match chunk.resume {
            Some(resume) if list.limit > 0 => list.before_seq = Some(resume),
            _ => return Ok(events),
        }
    }
}
