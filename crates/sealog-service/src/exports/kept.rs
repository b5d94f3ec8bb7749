//! Whether the events of an export are still there: old test events are dropped.

use sealog_control::NewExport;
use sealog_core::id::{ChainId, Mode};
use sealog_store::{Store, StoreError};

/// The last event of an export that was dropped.
pub(super) async fn dropped_to(store: &dyn Store, export: &NewExport) -> Result<Option<u64>, StoreError> {
    let NewExport { tenant_id, project_id, mode, first_seq, last_seq, .. } = *export;
    if mode == Mode::Live || first_seq > last_seq {
        return Ok(None);
    }
    let dropped = store.head(ChainId { tenant_id, project_id, mode }).await?.dropped.chain_seq;
    Ok(Some(dropped.min(last_seq)).filter(|dropped| *dropped >= first_seq))
}
