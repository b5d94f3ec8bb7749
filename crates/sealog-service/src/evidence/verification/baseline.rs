//! The baseline: what a restored store holds without a record of it, sealed once: drops of test events, and
//! of tenants whose control data differs from their system chain, their keys and members.
//!
//! It is a job of the operator that a restore queues, beside its own record in the system chain. No start
//! queues one: a forged drop or an edited row is not covered by a restart.

use std::sync::Arc;

use sealog_control::{Job, ListPage};
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, TenantId, Uuid};
use sealog_store::world::World;
use sealog_store::{BoxFuture, Store, StoreError};
use serde_json::{Value, json};

use super::baseline_job::BASELINE_KIND;
use super::sealed_state;
use crate::jobs::{Step, Work};
use crate::records::system_chain::{Actor, Drain, Recorder, actions, drops};
use sealog_control::Control;

/// Tenants of one step, and keys or members that one record names.
const TENANTS: usize = 20;
const ROWS_MAX: usize = 100;

/// Seals it.
pub struct Baseline {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub drain: Arc<Drain>,
    pub world: Arc<dyn World>,
}

impl Work for Baseline {
    fn kind(&self) -> &'static str {
        BASELINE_KIND
    }

    /// Some tenants a step, in the order of their creation; the position is the last one that was done.
    fn step<'a>(&'a self, _: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let after = position.try_into().ok().map(Uuid);
            let page = ListPage { after, limit: TENANTS };
            let tenants = self.control.tenants(page).await?;
            let Some(last) = tenants.last() else {
                return Ok(Step::Done { position: Vec::new(), records: Vec::new() });
            };
            let dropped = drops::dropped(&*self.store).await?;
            for tenant in &tenants {
                let dropped = dropped.get(&tenant.id).map_or(&[][..], Vec::as_slice);
                self.seal(tenant.id, dropped).await?;
            }
            Ok(Step::More(last.id.0.0.to_vec()))
        })
    }
}

impl Baseline {
    async fn seal(&self, tenant_id: TenantId, dropped: &[(ChainId, Head)]) -> Result<(), StoreError> {
        let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
        let mut records = drops::records(&recorder, &actions::BASELINE, dropped);
        let compared = sealed_state::compare(&*self.store, &self.control, tenant_id).await?;
        let Some((rows, differences)) = compared else {
            return Err(StoreError::Refused(format!("the control data of {tenant_id} keeps changing")));
        };
        if !differences.is_empty() {
            let (keys, members) = rows.named();
            let named = |name: &str, values: &[Value]| {
                recorder.record(&actions::BASELINE, "store/control", json!({ name: values }))
            };
            records.extend(keys.chunks(ROWS_MAX).map(|keys| named("keys", keys)));
            records.extend(members.chunks(ROWS_MAX).map(|members| named("members", members)));
        }
        for record in records {
            self.drain.record_and_seal(tenant_id, record).await?;
        }
        Ok(())
    }
}
