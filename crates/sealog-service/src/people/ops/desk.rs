//! What operators do in the console beside what every administrator does.

use std::sync::Arc;

use sealog_control::{NewRecord, OpsUserId, Room};
use sealog_core::id::TenantId;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::Value;

use crate::records::system_chain::actions::SystemAction;
use crate::records::system_chain::{Actor, Recorder, Wake};
use sealog_control::Control;

#[derive(Clone)]
pub struct Desk {
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    /// Tells the drain of this process that there are records.
    pub wake: Wake,
}

impl Desk {
    pub(super) fn record(
        &self,
        who: OpsUserId,
        action: &SystemAction,
        resource: &str,
        metadata: Value,
    ) -> NewRecord {
        Recorder::new(Actor::Console(who), Arc::clone(&self.world)).record(action, resource, metadata)
    }

    /// Durable when this returns.
    pub(super) async fn keep(&self, tenant_id: TenantId, record: NewRecord) -> Result<(), StoreError> {
        let kept = self.control.add_records(vec![(tenant_id, record)], Room::Reserve).await;
        self.wake.wake();
        kept
    }
}
