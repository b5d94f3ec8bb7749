//! Work that no request waits for. Each loop goes on by itself and may be dropped wherever it waits: what it had not done yet is found again at the next start.

use std::sync::Arc;

use crate::{App, Server, geo};

/// Runs until the server is told to stop. Once for each process, whatever the number of event loops.
pub async fn run(app: Arc<App>, server: &Server) {
    let geo = geo::follow(&app);
    let all = async { tokio::join!(geo) };
    tokio::select! {
        () = server.stopped() => {}
        _ = all => server.stopped().await,
    }
}
