//! Work that no request waits for. Each loop goes on by itself and may be dropped wherever it waits: what it had not done yet is found again at the next start.
//! The one that sends mails ends by itself, since a mail that is on its way should be noted as sent.

use std::sync::Arc;

use crate::{App, Server, geo, mail, quota};

/// Runs until the server is told to stop. Once for each process, whatever the number of event loops.
pub async fn run(app: Arc<App>, server: &Server) {
    let loops = async {
        tokio::join!(geo::follow(&app), quota::watch(&app));
    };
    let dropped_at_stop = async {
        tokio::select! {
            () = server.stopped() => {}
            () = loops => {}
        }
    };
    tokio::join!(dropped_at_stop, mail::send(&app, server));
}
