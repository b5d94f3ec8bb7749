//! Who drains a tenant's records, in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sealog_core::id::TenantId;
use tokio::sync::OwnedMutexGuard;

/// Tenants after which those that nobody drains are forgotten.
const TURNS_KEPT: usize = 1000;

/// Whose turn it is to drain a tenant, in this process. Two that drain it at once would find each other's
/// record in flight; the second waits, and mostly finds its own sealed with the first one's.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<TenantId, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    pub(super) async fn take(&self, tenant_id: TenantId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if turns.len() >= TURNS_KEPT {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(turns.entry(tenant_id).or_default())
        };
        turn.lock_owned().await
    }
}
