//! Whether this server may still take events: not if a copy of its store was promoted elsewhere.
//!
//! ```text
//! t0  a promotion raises the epoch of the copy, durably, before a server can start on it
//! t1  the new primary accepts events
//! t2  the old one asks its peer, at its start and every 10 s, and learns of the higher epoch
//! t3  it keeps that and refuses events from then on, also after a start while the peer is away. It keeps it
//!     in two places, of which one needs no room on the disk (`peer_epoch.rs`)
//! ```
//! What it acknowledges between t1 and t2 is in no history but its own: only a runbook that stops it before
//! t0 avoids that. Nothing here decides by the clock, and no client says which epoch it believes in.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use sealog_client::http::{Client, ClientError, Retries, Settings};
use sealog_control::Epochs;
use sealog_engine::Opened;
use sealog_server::App;
use sealog_server::peer::{Asked, Peer};
use sealog_service::Secret;
use sealog_store::sync::lock;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::peer_epoch::PeerEpoch;

/// From one question to the next.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// For a question, connection included: a start waits that long for a peer that says nothing.
const TIMEOUT: Duration = Duration::from_secs(3);
/// For an answer, which is a line or an error with its texts: a program in the peer's place must not
/// fill the memory of this server each time it asks.
const ANSWER_BYTES_MAX: usize = 16 << 10;

pub(crate) struct Fence<'a> {
    app: &'a App,
    store: &'a Opened,
    own: u64,
    kept: PeerEpoch,
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
        let kept = PeerEpoch::of(app.config.data_dir.as_deref().unwrap_or(Path::new("")));
        let in_file = kept.read()?;
        let seen = epochs.seen.max(in_file);
        let fence = Fence { app, store, own: epochs.own, kept, client: Mutex::new(None) };
        // Also where no peer is set any more: what one said before still holds.
        if let Some(epoch) = (Epochs { seen, ..epochs }).superseded_by() {
            fence.refuse_events(epoch);
        }
        if let Some(peer) = &app.config.peer {
            fence.kept.make()?;
            if in_file != epochs.seen {
                fence.keep(seen).await;
            }
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
        self.keep(epoch).await;
    }

    /// In both places, of which one is enough.
    async fn keep(&self, epoch: u64) {
        let kept = self.kept.clone();
        // A slow disk must not keep this thread's requests waiting.
        let in_file =
            tokio::task::spawn_blocking(move || kept.keep(epoch).map_err(|error| error.to_string())).await;
        let in_file = in_file.map_err(|error| error.to_string()).flatten();
        let in_store = self.store.control().see_epoch(epoch).await.map_err(|error| error.to_string());
        match (in_file, in_store) {
            (Ok(()), Ok(_)) => {}
            (Err(in_file), Err(in_store)) => tracing::error!(
                epoch,
                in_file,
                in_store,
                "cannot keep the epoch of replication.peer; a restart while the peer is away would accept events"
            ),
            (in_file, in_store) => {
                let problem = in_file.err().or(in_store.err());
                tracing::warn!(epoch, problem, "kept the epoch of replication.peer in one of two places");
            }
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
                    .with_body_max(ANSWER_BYTES_MAX)
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
