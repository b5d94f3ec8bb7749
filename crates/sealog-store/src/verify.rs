//! Verification of a stored chain: reads what is there and asks the one verifier.

use sealog_core::id::ChainId;
use sealog_core::query::SeqRange;
use sealog_core::verify::{Before, Check, Item, Verdict};

use crate::{Range, Store, StoreError};

/// Bytes of events that are held at a time.
pub const BYTES_MAX: usize = 1 << 20;

/// Verifies a window of a chain. Spec 4.5.
pub async fn window(
    store: &(impl Store + ?Sized),
    chain: ChainId,
    range: SeqRange,
) -> Result<Verdict, StoreError> {
    let recorded = store.head(chain).await?.recorded;
    let to = range.to.min(recorded.chain_seq);
    if range.from > to {
        return Ok(Verdict { checked: 0, first_seq: range.from, last_seq: range.from - 1, broken: None });
    }
    let before = before(store, chain, range.from).await?;
    let mut check = Check::new(range.from, to, before);
    // Past the window too, if need be: a missing event shows at the next one that exists.
    let mut from = range.from;
    while check.wants_more() {
        let until = if from <= to { to } else { recorded.chain_seq };
        let chunk = store.range(chain, Range { from, to: until, bytes_max: BYTES_MAX }).await?;
        for item in &chunk.items {
            check.item(item);
        }
        match chunk.resume {
            Some(resume) => from = resume,
            None if until < recorded.chain_seq => from = until + 1,
            None => break,
        }
    }
    Ok(check.finish(&recorded))
}

/// Verifies a chain from its first event to its recorded head.
pub async fn whole(store: &(impl Store + ?Sized), chain: ChainId) -> Result<Verdict, StoreError> {
    window(store, chain, SeqRange { from: 1, to: u64::MAX }).await
}

async fn before(store: &(impl Store + ?Sized), chain: ChainId, from: u64) -> Result<Before, StoreError> {
    if from == 1 {
        return Ok(Before::NOTHING);
    }
    let chunk = store.range(chain, Range { from: from - 1, to: from - 1, bytes_max: BYTES_MAX }).await?;
    Ok(match chunk.items.first() {
        Some(Item::Event(event)) => Before::Event { hash: event.sealed.hash, log_id: event.sealed.log_id },
        Some(Item::Damaged { .. }) => Before::Unknown,
        None => Before::Missing,
    })
}
