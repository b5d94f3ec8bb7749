//! Whether the events of an export are still there: old test events are dropped.

use sealog_control::NewExport;
use sealog_core::id::{ChainId, Mode};
use sealog_store::{Store, StoreError};

/// The last event of an export that was dropped.
pub(super) async fn dropped_to(store: &dyn Store, export: &NewExport) -> Result<Option<u64>, StoreError> {
    let NewExport { tenant_id, project_id, mode, .. } = *export;
    if mode == Mode::Live {
        return Ok(None);
    }
    let dropped = store.head(ChainId { tenant_id, project_id, mode }).await?.dropped.chain_seq;
    Ok(dropped_of(export, dropped))
}

/// The same, where it is known up to which event its chain was dropped.
pub fn dropped_of(export: &NewExport, dropped_to: u64) -> Option<u64> {
    let NewExport { first_seq, last_seq, .. } = *export;
    let is_hit = first_seq <= last_seq && first_seq <= dropped_to;
    is_hit.then(|| dropped_to.min(last_seq))
}
