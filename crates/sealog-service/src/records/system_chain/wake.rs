//! Tells the drain of this process that there may be records.

use std::sync::Arc;

use tokio::sync::Notify;

/// One is kept if nobody waits: a drain that is busy looks again when it is done.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Returns when there was a change since the last time.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}
