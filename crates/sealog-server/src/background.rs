//! What goes on beside requests.

use std::sync::Arc;
use std::time::Duration;

use crate::{App, Server, auth, metrics};

/// How often the last use of keys is written, and heads are compared with the clock.
const MINUTE: Duration = Duration::from_secs(60);

/// Runs until the server is told to stop.
pub async fn run(app: Arc<App>, server: &Server) {
    tokio::select! {
        () = server.stopped() => {}
        () = every_minute(&app) => {}
    }
    auth::write_key_uses(&app).await;
}

async fn every_minute(app: &App) {
    let mut ahead_before = 0;
    loop {
        ahead_before = warn_of_heads(app, ahead_before).await;
        tokio::time::sleep(MINUTE).await;
        auth::write_key_uses(app).await;
    }
}

/// Says when chains have run ahead of the clock: their time stands still until it catches up. Once, and again when there are more.
async fn warn_of_heads(app: &App, before: usize) -> usize {
    let Ok(heads) = app.store.heads().await else { return before };
    let ahead: Vec<_> = metrics::ahead(&heads, app.world.now_ms()).collect();
    if ahead.len() > before {
        let (chain, head) = ahead[0];
        tracing::warn!(
            chains = ahead.len(),
            first = %chain,
            first_head_ms = head.log_id.timestamp_ms(),
            "the last event of some chains is more than five minutes ahead of the clock; check the clock of this machine"
        );
    }
    ahead.len()
}
