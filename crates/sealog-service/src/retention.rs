//! Test events are kept for a time, then dropped, oldest first. Live events are kept for ever.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::time::DAY_MS;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};

/// How often it is looked for old events.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// After a start, which has enough to do.
const START_PAUSE: Duration = Duration::from_secs(90);
/// Steps of one look; the next one goes on.
pub const STEPS_MAX: usize = 1000;

pub struct Retention {
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    /// 0 for ever.
    pub days: u32,
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("days", &self.days).finish_non_exhaustive()
    }
}

impl Retention {
    pub(crate) async fn watch(&self) {
        if self.days == 0 {
            return;
        }
        tokio::time::sleep(START_PAUSE).await;
        loop {
            match self.look().await {
                Ok(0) => {}
                Ok(events) => tracing::info!(events, days = self.days, "old test events were dropped"),
                Err(error) => {
                    tracing::warn!(%error, "old test events cannot be dropped; trying again in an hour")
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Drops what is too old, step by step, with a pause after each that is as long as it took. How many events.
    pub async fn look(&self) -> Result<u64, StoreError> {
        if self.days == 0 {
            return Ok(0);
        }
        let before_ms = self.world.now_ms().saturating_sub(u64::from(self.days) * DAY_MS);
        let mut events = 0;
        for _ in 0..STEPS_MAX {
            let begun = Instant::now();
            let step = self.store.drop_test_events(before_ms).await?;
            events += step.events;
            if !step.more {
                break;
            }
            tokio::time::sleep(begun.elapsed()).await;
        }
        Ok(events)
    }
}
