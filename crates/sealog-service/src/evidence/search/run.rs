//! A search on a store, within a budget. What it has found is true, and it says how far it has looked: it
//! never claims to be complete when it is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::query::Filter;
use sealog_core::verify::Item;
use sealog_store::pool::Lane;
use sealog_store::{List, Range, Store, StoreError};

use super::plan::Plan;

/// Events of one piece where indexes do not answer everything.
const PIECE_EVENTS: usize = 256;
const PIECE_BYTES: usize = 1 << 20;

/// What one run may cost. A run that has spent it ends where it is; the next one goes on there.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Events to return.
    pub rows: usize,
    /// Bytes of events to return; the last may have two megabytes.
    pub bytes: usize,
    pub work: Work,
}

/// How much a run may work: the time of its reads and of its comparisons, without the wait of a comparison
/// for a thread.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Time(Duration),
    /// So many pieces, on a machine of whatever speed: for tests.
    Steps(u32),
}

impl Work {
    /// Of one search that somebody waits for.
    pub const OF_PAGE: Work = Work::Time(Duration::from_secs(1));

    /// What is left after a piece that took so long.
    fn after(self, piece: Duration) -> Work {
        match self {
            Work::Time(left) => Work::Time(left.saturating_sub(piece)),
            Work::Steps(left) => Work::Steps(left.saturating_sub(1)),
        }
    }

    fn is_spent(self) -> bool {
        matches!(self, Work::Time(Duration::ZERO) | Work::Steps(0))
    }
}

/// What a run has found.
#[derive(Debug)]
pub struct Found {
    /// Newest first.
    pub events: Vec<StoredEvent>,
    /// There may be more below this `chain_seq`, and everything from it up was looked at; nothing when the
    /// whole chain was.
    pub resume: Option<u64>,
    /// The budget ended the run before the page was full: how far it has looked, as the number and the time
    /// of the last event that was looked at. Of one that lies outside of the time that was asked for, or that
    /// whoever asks may see, the time is not told.
    pub looked_to: Option<(u64, Option<u64>)>,
    /// Events that were held against the search.
    pub looked: usize,
}

/// One of the lists that a search is made of.
struct Branch {
    filter: Filter,
    /// Everything from here up was looked at; 0 when there is no more.
    next: u64,
}

/// Events below `before_seq` that match, newest first.
pub async fn run(
    store: &dyn Store,
    chain: ChainId,
    plan: &Arc<Plan>,
    before_seq: Option<u64>,
    budget: Budget,
) -> Result<Found, StoreError> {
    let start = before_seq.unwrap_or(u64::MAX).min(plan.seqs.1.saturating_add(1));
    let mut branches: Vec<Branch> =
        plan.filters.iter().map(|filter| Branch { filter: filter.clone(), next: start }).collect();
    // What branches have found below the place to which all of them have looked.
    let mut waiting: BTreeMap<u64, StoredEvent> = BTreeMap::new();
    let (mut events, mut bytes, mut looked, mut work) = (Vec::new(), 0, 0, budget.work);
    let resume = loop {
        let furthest = branches.iter_mut().max_by_key(|branch| branch.next).expect("a plan has a filter");
        let frontier = furthest.next;
        // Alternatives may lead to the same event, which is here once.
        for (_, event) in waiting.split_off(&frontier).into_iter().rev() {
            bytes += event.text.as_str().len();
            events.push(event);
        }
        if events.len() > budget.rows || frontier == 0 {
            break frontier;
        }
        let is_spent = bytes >= budget.bytes || work.is_spent();
        // Each run goes on by a piece of every branch, or it would end where it began for ever.
        if is_spent && frontier < start {
            break frontier;
        }
        let limit = if plan.is_exact { budget.rows + 1 } else { PIECE_EVENTS };
        let before_seq = (frontier < u64::MAX).then_some(frontier);
        let list = List { filter: furthest.filter.clone(), before_seq, limit, bytes_max: PIECE_BYTES };
        let read_at = Instant::now();
        let chunk = store.list(chain, list).await?;
        let mut took = read_at.elapsed();
        furthest.next = chunk.resume.filter(|resume| *resume > plan.seqs.0).unwrap_or(0);
        looked += chunk.items.len();
        if !chunk.items.is_empty() {
            let piece_bytes = chunk.items.iter().map(|event| event.text.as_str().len()).sum::<usize>();
            let held_against = Arc::clone(plan);
            let matching = store.pool().run(Lane::Compute, chain, piece_bytes, move || {
                let begun = Instant::now();
                let mut items = chunk.items;
                items.retain(|event| held_against.matches(event));
                (items, begun.elapsed())
            });
            let (matching, compared) = matching.await.map_err(|_| StoreError::Closing)?;
            took += compared;
            waiting.extend(matching.into_iter().map(|event| (event.sealed.chain_seq, event)));
        }
        work = work.after(took);
    };
    let is_full = events.len() > budget.rows;
    events.truncate(budget.rows);
    let last_seq = events.last().map(|event: &StoredEvent| event.sealed.chain_seq);
    let resume = if is_full { last_seq } else { Some(resume).filter(|resume| *resume > 0) };
    let looked_to = match resume.filter(|_| !is_full) {
        Some(seq) => {
            let timestamp_ms = timestamp_of(store, chain, seq).await?;
            Some((seq, timestamp_ms.filter(|ms| plan.has_time(*ms))))
        }
        None => None,
    };
    Ok(Found { events, resume, looked_to, looked })
}

/// Nothing for an event that is not there.
async fn timestamp_of(store: &dyn Store, chain: ChainId, seq: u64) -> Result<Option<u64>, StoreError> {
    let chunk = store.range(chain, Range { from: seq, to: seq, bytes_max: 1 }).await?;
    Ok(chunk.items.iter().find_map(|item| match item {
        Item::Event(event) => Some(event.timestamp_ms),
        Item::Damaged { .. } => None,
    }))
}
