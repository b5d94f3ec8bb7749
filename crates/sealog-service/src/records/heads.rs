//! Heads of chains that have run ahead of the clock: the time of their next events stands still until the
//! clock catches up.

use std::sync::Arc;
use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_store::world::World;
use sealog_store::{HEAD_AHEAD_MS, Store};

const EVERY: Duration = Duration::from_secs(60);

/// Chains whose last event lies too far in the future.
pub fn ahead(heads: &[(ChainId, Head)], now_ms: u64) -> impl Iterator<Item = &(ChainId, Head)> {
    heads.iter().filter(move |(_, head)| head.log_id.timestamp_ms() > now_ms.saturating_add(HEAD_AHEAD_MS))
}

/// Warns once when chains are ahead, and again when there are more.
pub async fn watch(store: &Arc<dyn Store>, world: &Arc<dyn World>) {
    let mut before = 0;
    loop {
        if let Ok(heads) = store.heads().await {
            let ahead: Vec<_> = ahead(&heads, world.now_ms()).collect();
            if ahead.len() > before {
                let (chain, head) = ahead[0];
                tracing::warn!(
                    chains = ahead.len(),
                    first = %chain,
                    first_head_ms = head.log_id.timestamp_ms(),
                    "some chains end more than five minutes ahead of the clock; check the clock of this machine"
                );
            }
            before = ahead.len();
        }
        tokio::time::sleep(EVERY).await;
    }
}
