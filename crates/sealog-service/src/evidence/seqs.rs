//! Where in a chain a time lies. `timestamp` never goes back in a chain, so it is found by halving: a few
//! dozen reads of one event, however long the chain is.
//!
//! What cannot be read has no time. At the edge of a window it counts as within: of such an event there is
//! nothing to see but its number, and left out, the damage of a window's first or last event would be hidden
//! from whoever is to vouch for it.

use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::verify::Item;
use sealog_store::{Range, Store, StoreError};

/// Damaged records that one look passes over.
const DAMAGED_MAX: usize = 1000;

/// The first `chain_seq` at or after a time: that of the next event, if there is none yet. Where events are
/// missing, it may be that of a missing one.
pub async fn first_at(store: &dyn Store, chain: ChainId, time_ms: u64) -> Result<u64, StoreError> {
    let head = store.head(chain).await?;
    // Before the first event that is kept there is nothing to find.
    let (mut low, mut high) = (head.first_seq(), head.end().chain_seq.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        match first_readable(store, chain, middle, high - 1).await? {
            Some(event) if event.timestamp_ms < time_ms => low = event.sealed.chain_seq + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The last `chain_seq` before a time; that before the first event, if there is none. Where events are
/// missing or damaged, it may be that of such a one.
pub async fn last_before(store: &dyn Store, chain: ChainId, time_ms: u64) -> Result<u64, StoreError> {
    let end = store.head(chain).await?.end().chain_seq;
    let next = first_at(store, chain, time_ms).await?;
    let later = first_readable(store, chain, next, end).await?;
    Ok(later.map_or(end, |event| event.sealed.chain_seq - 1))
}

async fn first_readable(
    store: &dyn Store,
    chain: ChainId,
    from: u64,
    to: u64,
) -> Result<Option<StoredEvent>, StoreError> {
    let mut from = from;
    for _ in 0..DAMAGED_MAX {
        if from > to {
            return Ok(None);
        }
        let chunk = store.range(chain, Range { from, to, bytes_max: 1 }).await?;
        match chunk.items.into_iter().next() {
            Some(Item::Event(event)) => return Ok(Some(*event)),
            Some(Item::Damaged { chain_seq }) => from = chain_seq + 1,
            None => return Ok(None),
        }
    }
    Err(StoreError::Read(format!("more than {DAMAGED_MAX} damaged records before #{from} of {chain}")))
}
