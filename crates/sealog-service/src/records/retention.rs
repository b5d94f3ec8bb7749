//! Test events are kept for a time, then dropped, oldest first. Live events are kept for ever.
//!
//! ```text
//! t0  the store plans what it would drop, and changes nothing
//! t1  each tenant concerned has a record of it sealed into its system chain; what cannot be sealed is not
//!     dropped
//! t2  the store drops what was planned, and no more
//! ```
//! A crash behind t1 leaves a record of events that are still there; the next look drops them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, TenantId};
use sealog_core::time::DAY_MS;
use sealog_store::sync::lock;
use sealog_store::world::World;
use sealog_store::{DropPlan, Store, StoreError};

use crate::records::system_chain::{Actor, Drain, Recorder, actions, drops};
use sealog_control::Control;

/// How often it is looked for old events.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// After a start, which has enough to do.
const START_PAUSE: Duration = Duration::from_secs(90);
/// Steps of one look; the next one goes on.
pub const STEPS_MAX: usize = 1000;

pub struct Retention {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    /// 0 for ever.
    pub days: u32,
    /// Seals the records.
    pub drain: Arc<Drain>,
    /// What this process has recorded: a drop that fails is tried again every hour, and recorded once.
    pub recorded: Mutex<BTreeMap<ChainId, u64>>,
}

impl Retention {
    pub async fn watch(&self) {
        if self.days == 0 {
            return;
        }
        tokio::time::sleep(START_PAUSE).await;
        loop {
            match self.look().await {
                Ok(0) => {}
                Ok(events) => tracing::info!(events, days = self.days, "deleted old test events"),
                Err(error) => {
                    tracing::warn!(%error, "failed to delete old test events; retrying in an hour")
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Drops what is too old, step by step, with a pause after each that is as long as it took. How many
    /// events.
    pub async fn look(&self) -> Result<u64, StoreError> {
        if self.days == 0 {
            return Ok(0);
        }
        let before_ms = self.world.now_ms().saturating_sub(u64::from(self.days) * DAY_MS);
        let (mut events, mut steps) = (0, 0);
        while steps < STEPS_MAX {
            let plan = self.store.plan_drop(before_ms).await?;
            if plan.is_empty() {
                break;
            }
            self.record(&plan).await?;
            let mut dropped = 0;
            loop {
                let begun = Instant::now();
                let step = self.store.drop_planned(plan.clone()).await?;
                dropped += step.events;
                steps += 1;
                if !step.more || steps >= STEPS_MAX {
                    break;
                }
                tokio::time::sleep(begun.elapsed()).await;
            }
            events += dropped;
            if dropped == 0 {
                // What is planned cannot be dropped: there is a gap before it.
                break;
            }
        }
        Ok(events)
    }

    /// Seals what is about to be dropped.
    async fn record(&self, plan: &DropPlan) -> Result<(), StoreError> {
        let mut tenants: BTreeMap<TenantId, Vec<(ChainId, Head)>> = BTreeMap::new();
        for (chain, head) in &plan.chains {
            if lock(&self.recorded).get(chain).is_none_or(|seq| *seq < head.chain_seq) {
                tenants.entry(chain.tenant_id).or_default().push((*chain, *head));
            }
        }
        let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
        for (tenant_id, chains) in tenants {
            if self.control.tenant(tenant_id).await?.is_none() {
                // A store that was restored may have chains of tenants that nobody knows, and no chain to
                // record it in.
                tracing::warn!(tenant = %tenant_id, "deleting test events of an unknown tenant without a record");
                continue;
            }
            for record in drops::records(&recorder, &actions::TEST_EVENTS_DROPPED, &chains) {
                self.drain.record_and_seal(tenant_id, record).await?;
            }
            lock(&self.recorded).extend(chains.iter().map(|(chain, head)| (*chain, head.chain_seq)));
        }
        Ok(())
    }
}
