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
use sealog_service::jobs::supervise::Loop;
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
    /// From one question to the next.
    every: Duration,
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
        let fence = Fence { app, store, own: epochs.own, kept, every: ASK_EVERY, client: Mutex::new(None) };
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

    /// The loop that asks again and again.
    pub(crate) fn watching(&self) -> Loop<'_> {
        Loop::new("peer", || self.watch())
    }

    /// Never returns.
    async fn watch(&self) {
        let Some(peer) = &self.app.config.peer else { return std::future::pending().await };
        loop {
            tokio::time::sleep(self.every).await;
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use sealog_engine::{OpenOptions, Place, Service};
    use sealog_server::config::Config;
    use sealog_service::Stop;
    use sealog_store::world::{SystemWorld, World};

    use super::*;

    /// Answers each question with the epoch 0, and counts them.
    fn peer(asked: Arc<AtomicU64>) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).is_ok_and(|count| count == 0) {
                        break;
                    }
                    head.push(byte[0]);
                }
                asked.fetch_add(1, Ordering::SeqCst);
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 11\r\n\r\n{\"epoch\":0}";
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        url
    }

    /// Issue 23. As `a_panic_in_any_background_loop_…` does it with the loops of the server.
    #[test]
    fn a_panic_in_the_loop_that_asks_the_peer_is_counted_and_it_goes_on_asking() {
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        let asked = Arc::new(AtomicU64::new(0));
        let url = peer(Arc::clone(&asked));
        let dir = tempfile::tempdir().unwrap();
        let world: Arc<dyn World> = Arc::new(SystemWorld);
        let options = OpenOptions { allow_unsafe_storage: true, ..OpenOptions::default() };
        let store = Opened::open(&Place::Embedded, dir.path(), options, Arc::clone(&world)).unwrap();
        let mut settings = sealog_engine::Settings::at("http://x/app");
        settings.intervals.at_begin =
            |name| assert!(BEGUN.fetch_add(1, Ordering::SeqCst) > 0, "{name}: asked for by a test");
        let service = Service::new(store.store(), Arc::clone(store.control()), world, settings);
        let mut config = Config::at("http://x");
        config.operator_token = Some(Secret("a-token-of-thirty-two-characters".into()));
        config.peer = Some(Arc::new(Peer::new(&url)));
        config.data_dir = Some(dir.path().to_owned());
        let app = App::new(service, config);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut fence = Fence::begin(&app, &store).await.unwrap();
            assert_eq!(asked.load(Ordering::SeqCst), 1, "as the server starts");
            fence.every = Duration::from_millis(5);
            let (supervision, stop) = (&app.service.supervision, Stop::new());
            let asks_on = async {
                while asked.load(Ordering::SeqCst) < 4 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = supervision.supervise(fence.watching(), &stop) => panic!("the loop has ended"),
                () = asks_on => {}
            }
            assert_eq!((supervision.restarts()["peer"], BEGUN.load(Ordering::SeqCst)), (1, 2));
        });
    }
}
