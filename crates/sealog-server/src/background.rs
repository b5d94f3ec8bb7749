//! Work that no request waits for. Each loop goes on by itself and may be dropped wherever it waits: what it had not done yet is found again at the next start.
//! The one that sends mails ends by itself, since a mail that is on its way should be noted as sent.

use std::sync::Arc;
use std::time::Duration;

use crate::{App, Server, auth, geo, mail, metrics, quota, respond};

/// How often the last use of keys is written, and heads are compared with the clock.
const MINUTE: Duration = Duration::from_secs(60);

/// Runs until the server is told to stop. Once for each process, whatever the number of event loops.
pub async fn run(app: Arc<App>, server: &Server) {
    let loops = async {
        tokio::join!(geo::follow(&app), quota::watch(&app), every_minute(&app), every_second());
    };
    let dropped_at_stop = async {
        tokio::select! {
            () = server.stopped() => {}
            () = loops => {}
        }
    };
    tokio::join!(dropped_at_stop, mail::send(&app, server));
    auth::write_key_uses(&app).await;
}

async fn every_second() {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        respond::say_left_out();
    }
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
