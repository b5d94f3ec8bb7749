//! Verification of a stored chain: reads what is there and asks the one verifier.

use sealog_core::event::{EVENT_BYTES_MAX, StoredEvent};
use sealog_core::id::ChainId;
use sealog_core::query::SeqRange;
use sealog_core::verify::{Before, Check, Item, Verdict};

use crate::error::StoreError;
use crate::pool::{FairPool, Lane};
use crate::query::{ChainHead, Chunk, Range};
use crate::types::BoxFuture;

/// Bytes of events that are read and hashed at a time: a few milliseconds of a core.
const BYTES_MAX: usize = 1 << 20;

/// Most that a verification holds at a time: the events of a piece, whose last one may be as large as a body,
/// and their records.
pub const HELD_BYTES_MAX: usize = 2 * (BYTES_MAX + EVENT_BYTES_MAX);

/// The reads that a verification needs from a store.
pub trait ChainReader: Send + Sync {
    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>>;
    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>>;
    fn pool(&self) -> &FairPool;
}

/// Verifies a window of a chain. Spec 4.5.
pub async fn window(
    store: &(impl ChainReader + ?Sized),
    chain: ChainId,
    range: SeqRange,
) -> Result<Verdict, StoreError> {
    loop {
        let head = store.head(chain).await?;
        let verdict = window_of(store, chain, kept(range, &head), &head).await?;
        // What was dropped while it was read is not missing.
        if verdict.valid() || store.head(chain).await?.dropped == head.dropped {
            return Ok(verdict);
        }
    }
}

/// A range that begins in what was dropped is moved to the first event that is kept: a client that walks a
/// chain in windows gets on.
fn kept(range: SeqRange, head: &ChainHead) -> SeqRange {
    let by = head.first_seq().saturating_sub(range.from);
    SeqRange { from: range.from + by, to: range.to.saturating_add(by) }
}

async fn window_of(
    store: &(impl ChainReader + ?Sized),
    chain: ChainId,
    range: SeqRange,
    head: &ChainHead,
) -> Result<Verdict, StoreError> {
    let end = head.end();
    let to = range.to.min(end.chain_seq);
    if range.from > to {
        return Ok(Verdict { checked: 0, first_seq: range.from, last_seq: range.from - 1, broken: None });
    }
    let before = before(store, chain, range.from, head).await?;
    let mut check = Check::new(range.from, to, before).knowing(head.recorded);
    // Past the window too, if need be: a missing event shows at the next one that exists.
    let mut from = range.from;
    while check.wants_more() {
        let until = if from <= to { to } else { end.chain_seq };
        let chunk = store.range(chain, Range { from, to: until, bytes_max: BYTES_MAX }).await?;
        // Hashed in the thread pool, piece by piece and in the tenant's turn, whoever awaits the verdict.
        let items = chunk.items;
        let cost = items.iter().map(item_bytes).sum();
        let hashed = store.pool().run(Lane::Compute, chain, cost, move || {
            for item in &items {
                check.item(item);
            }
            check
        });
        check = hashed.await.map_err(|_| StoreError::Closing)?;
        match chunk.resume {
            Some(resume) => from = resume,
            None if until < end.chain_seq => from = until + 1,
            None => break,
        }
    }
    Ok(check.finish(&end))
}

/// Verifies a chain from its first event to its recorded head.
pub async fn whole(store: &(impl ChainReader + ?Sized), chain: ChainId) -> Result<Verdict, StoreError> {
    window(store, chain, SeqRange { from: 1, to: u64::MAX }).await
}

fn item_bytes(item: &Item) -> usize {
    match item {
        Item::Event(event) => event.text.as_str().len() + size_of::<StoredEvent>(),
        Item::Damaged { .. } => size_of::<Item>(),
    }
}

async fn before(
    store: &(impl ChainReader + ?Sized),
    chain: ChainId,
    from: u64,
    head: &ChainHead,
) -> Result<Before, StoreError> {
    if from == head.first_seq() {
        // Nothing, or the last event that was dropped.
        return Ok(Before::Event { hash: head.dropped.hash, log_id: head.dropped.log_id });
    }
    let chunk = store.range(chain, Range { from: from - 1, to: from - 1, bytes_max: BYTES_MAX }).await?;
    Ok(match chunk.items.first() {
        Some(Item::Event(event)) => Before::Event { hash: event.sealed.hash, log_id: event.sealed.log_id },
        Some(Item::Damaged { .. }) => Before::Unknown,
        None => Before::Missing,
    })
}
