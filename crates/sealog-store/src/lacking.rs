//! Whether a chain has an event that somebody else knows of: by its place and its hash.

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::query::Filter;
use sealog_core::verify::Item;

use crate::error::StoreError;
use crate::loss::{ACTION, Loss};
use crate::query::{ChainHead, List, Range};
use crate::store::Store;

/// Acceptances of one chain that are looked at, newest first. Each stands for events that were lost.
const ACCEPTANCES_MAX: usize = 100;

/// Whether a chain lacks an event that it is known to have had, and nobody has accepted that.
pub async fn lacks(store: &dyn Store, chain: ChainId, known: &Head) -> Result<bool, StoreError> {
    Ok(contradicts(store, chain, known).await? && !is_accepted(store, chain, known).await?)
}

/// Whether a chain ends before this event, or has another one there. A damaged record is not another event.
pub async fn contradicts(store: &dyn Store, chain: ChainId, known: &Head) -> Result<bool, StoreError> {
    let ChainHead { durable, dropped, .. } = store.head(chain).await?;
    let seq = known.chain_seq;
    if seq <= dropped.chain_seq {
        return Ok(false);
    }
    if seq > durable.chain_seq {
        return Ok(true);
    }
    let range = Range { from: seq, to: seq, bytes_max: 1 };
    let is_other = |item: &Item| match item {
        Item::Event(event) => event.sealed.chain_seq == seq && event.sealed.hash != known.hash,
        Item::Damaged { .. } => false,
    };
    Ok(store.range(chain, range).await?.items.first().is_some_and(is_other))
}

/// Whether an event of the chain accepts the loss of this one.
pub async fn is_accepted(store: &dyn Store, chain: ChainId, lost: &Head) -> Result<bool, StoreError> {
    let filter = Filter { action: Some(format!("\"{ACTION}\"")), ..Filter::default() };
    let (mut before_seq, mut seen) = (None, 0);
    loop {
        let list = List { filter: filter.clone(), before_seq, limit: ACCEPTANCES_MAX, bytes_max: 1 << 20 };
        let found = store.list(chain, list).await?;
        seen += found.items.len();
        let covers = |event: &StoredEvent| Loss::accepted_by(event).is_some_and(|loss| loss.covers(lost));
        if found.items.iter().any(covers) {
            return Ok(true);
        }
        match found.resume {
            Some(resume) if seen < ACCEPTANCES_MAX => before_seq = Some(resume),
            _ => return Ok(false),
        }
    }
}
