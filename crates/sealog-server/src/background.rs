//! Work that no request waits for: the service's background jobs, and what the server itself keeps in memory.

use std::sync::Arc;
use std::time::Duration;

use sealog_service::jobs::supervise::Loop;

use crate::app::App;
use crate::http::Server;
use crate::respond;
use crate::tls;

/// How often the last use of keys is written.
const KEY_USES_EVERY: Duration = Duration::from_secs(60);

/// Runs until the server is told to stop. Once for each process, whatever the number of event loops.
pub async fn run(app: Arc<App>, server: &Server) {
    let now_s = || app.service.world.now_ms() / 1000;
    // A loop of the server goes into this table, and one of the service into its own: whatever runs without a
    // supervisor ends the server when it panics.
    let loops = vec![
        Loop::new("key_uses", || write_key_uses(&app)),
        Loop::new("left_out", say_left_out),
        Loop::new("certificate", || tls::follow(app.config.tls.as_ref(), now_s)),
    ];
    let own = async {
        tokio::select! {
            () = server.stop.stopped() => {}
            () = app.service.supervision.supervise_all(loops, &server.stop) => {}
        }
    };
    tokio::join!(own, app.service.run(&server.stop));
    app.auth.write_key_uses().await;
}

async fn say_left_out() {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        respond::say_left_out();
    }
}

async fn write_key_uses(app: &App) {
    loop {
        tokio::time::sleep(KEY_USES_EVERY).await;
        app.auth.write_key_uses().await;
    }
}
