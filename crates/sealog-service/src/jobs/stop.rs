//! The signal by which a process tells everything that runs in it to end.

use tokio::sync::watch;

/// Told once, heard by everybody who waits for it, also by those who begin to wait later.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    pub fn new() -> Stop {
        Stop(watch::Sender::new(false))
    }

    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when [`Stop::stop`] was called.
    pub async fn stopped(&self) {
        // The sender is held by `self`, so the wait ends in no other way.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// For those that outlive the borrow of this.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

impl Default for Stop {
    fn default() -> Stop {
        Stop::new()
    }
}
