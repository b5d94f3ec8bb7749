//! Jobs of all tenants, seen by an operator.

use sealog_control::{JobId, OpsUserId};
use serde_json::json;

use super::desk::Desk;
use crate::people::admin::AdminError;
use crate::records::system_chain::actions;

impl Desk {
    /// Ends a job whoever works on it. Whether it had not ended.
    pub async fn cancel_job(&self, who: OpsUserId, id: JobId) -> Result<bool, AdminError> {
        let job = self.control.job(id).await?.ok_or(AdminError::NotFound)?;
        let record = job.tenant_id.map(|_| {
            let metadata = json!({ "kind": job.kind });
            self.record(who, &actions::JOB_CANCELLED, &format!("job/{}", id.0), metadata)
        });
        let records = record.into_iter().collect();
        let cancelled = self.control.cancel_job(id, self.world.now_ms(), records).await?;
        self.wake.wake();
        if cancelled {
            tracing::info!(operator = %who.0, job = %id.0, kind = job.kind, "an operator cancelled a job");
        }
        Ok(cancelled)
    }
}
