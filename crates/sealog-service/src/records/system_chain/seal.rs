//! Sealing at once: what has to be in the system chain before something else happens, as an auditor's view or
//! a download. The record is kept like any other; then the tenant's records are drained by whoever waits, up
//! to it.

use std::time::Duration;

use sealog_control::{NewRecord, Room};
use sealog_core::id::{TenantId, Uuid};
use sealog_store::StoreError;

use super::drain::Drain;

/// How long somebody waits for it. A backlog that takes longer is for the drain; nothing is shown until it is
/// gone.
pub const SEAL_MAX: Duration = Duration::from_secs(5);

impl Drain {
    /// Keeps a record and seals it. After an error it may be sealed later, or have been: what it tells of was
    /// asked for, and is to be refused.
    pub async fn record_and_seal(&self, tenant_id: TenantId, record: NewRecord) -> Result<(), StoreError> {
        let id = record.id;
        self.control.add_records(vec![(tenant_id, record)], Room::Ordinary).await?;
        let sealed = tokio::time::timeout(SEAL_MAX, self.seal(tenant_id, id)).await;
        let sealed = sealed.unwrap_or(Err(StoreError::Deadline));
        if sealed.is_err() {
            self.wake.wake();
        }
        sealed
    }

    async fn seal(&self, tenant_id: TenantId, id: Uuid) -> Result<(), StoreError> {
        while self.control.is_pending(id).await? {
            self.visit(tenant_id).await?;
        }
        Ok(())
    }
}
