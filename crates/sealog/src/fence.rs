//! Whether this server may still take events: not if a copy of its store was promoted elsewhere.
//!
//! ```text
//! t0  a promotion raises the epoch of the copy, durably, before a server can start on it
//! t1  the new primary accepts events
//! t2  the old one asks its peer, at its start and every 10 s, and learns of the higher epoch
//! t3  it keeps that and refuses events from then on, also after a start while the peer is away
//! ```
//! What it acknowledges between t1 and t2 is in no history but its own: only a runbook that stops it before
//! t0 avoids that. Nothing here decides by the clock, and no client says which epoch it believes in.

use std::sync::Mutex;
use std::time::Duration;

use sealog_client::http::{Client, ClientError, Retries, Settings};
use sealog_engine::Opened;
use sealog_server::App;
use sealog_server::peer::{Asked, Peer};
use sealog_service::Secret;
use sealog_store::sync::lock;
use serde::Deserialize;
use zeroize::Zeroizing;

/// From one question to the next.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// For a question, connection included: a start waits that long for a peer that says nothing.
const TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct Fence<'a> {
    app: &'a App,
    store: &'a Opened,
    own: u64,
    /// With the token that it was made for: loading the certificates takes a moment.
    client: Mutex<Option<(Secret, Client)>>,
}

#[derive(Deserialize)]
struct Told {
    epoch: u64,
}

impl<'a> Fence<'a> {
    /// Returns once the peer was asked, or could not be: before the first event is taken.
    pub(crate) async fn begin(app: &'a App, store: &'a Opened) -> Result<Fence<'a>, String> {
        let epochs = store.control().epochs().await.map_err(|error| error.to_string())?;
        let fence = Fence { app, store, own: epochs.own, client: Mutex::new(None) };
        if let Some(epoch) = epochs.superseded_by() {
            fence.refuse_events(epoch);
        }
        if let Some(peer) = &app.config.peer {
            fence.ask(peer).await;
        }
        Ok(fence)
    }

    /// Asks again and again. Never returns.
    pub(crate) async fn watch(&self) {
        let Some(peer) = &self.app.config.peer else { return std::future::pending().await };
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            self.ask(peer).await;
        }
    }

    async fn ask(&self, peer: &Peer) {
        let (url, own) = (peer.url(), self.own);
        let epoch = match self.epoch_of(url).await {
            Ok(epoch) => epoch,
            Err(problem) => {
                if peer.note(Asked::Away(problem.clone())) {
                    tracing::warn!(
                        url,
                        problem,
                        "cannot ask replication.peer for its epoch; accepting events without knowing whether it was promoted"
                    );
                }
                return;
            }
        };
        if peer.note(Asked::Answered) {
            tracing::info!(url, epoch, own, "replication.peer told its epoch");
        }
        if epoch <= own {
            return;
        }
        self.refuse_events(epoch);
        if let Err(error) = self.store.control().see_epoch(epoch).await {
            tracing::error!(%error, epoch, "cannot keep the epoch of replication.peer; a restart while the peer is away would accept events");
        }
    }

    fn refuse_events(&self, epoch: u64) {
        if self.store.supersede(epoch) {
            let own = self.own;
            tracing::error!(
                own,
                epoch,
                "a copy of this store was promoted; rejecting events, reads continue. Stop this server, and write what only it has with `sealog replicate --divergence`"
            );
        }
    }

    async fn epoch_of(&self, url: &str) -> Result<u64, String> {
        let token = self.app.operator_token().ok_or("the server has no operator token any more")?;
        // No other task asks meanwhile: the start is over before the loop begins.
        let kept = lock(&self.client).take().filter(|(of, _)| *of == token);
        let client = match kept {
            Some((_, client)) => client,
            None => {
                let retries = Retries { most: 0, ..Retries::default() };
                let key = Some(Zeroizing::new(token.0.clone()));
                Client::new(Settings { url: url.to_owned(), key, timeout: TIMEOUT, retries })?
            }
        };
        let answer = client.get("/operator/v1/replication/epoch", &[]).await;
        *lock(&self.client) = Some((token, client));
        match answer.and_then(|answer| answer.json::<Told>()) {
            Ok(told) => Ok(told.epoch),
            Err(ClientError::TimedOut { after, .. }) => {
                Err(format!("it did not respond within {} s", after.as_secs()))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
