//! The log of one chain, which its key names: what is published of it, as a log of C2SP. The service key
//! signs its checkpoints, at sizes that the store log has; what binds a chain is its head there.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderValue, VARY};
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::event::{EVENT_BYTES_MAX, StoredEvent};
use sealog_core::id::{ChainId, Mode, RequestId};
use sealog_core::query::Growth;
use sealog_core::reject::Code;
use sealog_core::verify::Item;
use sealog_engine::Trust;
use sealog_engine::proofs::{NotProven, sealed_leaf};
use sealog_engine::trees::TreeError;
use sealog_engine::trust_log::PublishedHead;
use sealog_engine::trust_log::salt_keys::RootKeys;
use sealog_store::Range;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::Entry;
use sealog_trust::leaf::Tag;
use sealog_trust::note::SigningKey;
use serde_json::json;

use super::published::{Published, bytes, hashes, kept_for, not_found, parse_tile};
use crate::app::App;
use crate::auth::Watcher;
use crate::respond::{self, Answer, Body, Failure};

/// Tiles of a chain are the asker's alone. They change when a loss is accepted, which cuts the tree.
pub(super) const KEPT: &str = "private, max-age=3600";
/// If the log does not say how often it is published.
const INTERVAL_S: u64 = 60;

/// A chain, and who asks about it.
pub(super) struct Chain<'a> {
    pub app: &'a App,
    pub published: Published<'a>,
    pub chain: ChainId,
    pub tag: Tag,
    /// Whether the asker may read its events, hence have leaves and salts.
    pub reads_events: bool,
}

/// `GET /tlog/v1/chain`.
pub(super) async fn overview(of: &Chain<'_>) -> Answer {
    let (place, head, keys) = (of.published.place().await?, of.newest().await?, of.root_keys().await?);
    let tree = of.published.trust.trees.head(of.chain).await.map_err(|error| of.tree_failed(&error))?;
    let acknowledged = of.acknowledged().await?;
    let origin = origin(&place.origin, of.tag, keys.as_ref());
    let vkey = of.signing_key(&origin).map(|key| key.public().to_string());
    let body = json!({
        "tag": of.tag.to_string(),
        "mode": of.chain.mode.as_str(),
        "origin": origin,
        "vkey": vkey,
        "tree_size": tree.map_or(0, |tree| tree.size),
        "published_size": head.map_or(0, |head| head.size),
        "index": head.map(|head| head.index),
        "time": head.map(|head| head.time_ms),
        "lag_events": acknowledged.saturating_sub(head.map_or(0, |head| head.size)),
    });
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

/// `GET /tlog/v1/chain/checkpoint`.
pub(super) async fn checkpoint(of: &Chain<'_>) -> Answer {
    let head = of.published_head().await?;
    let (place, keys) = (of.published.place().await?, of.root_keys().await?);
    if !of.is_of_this_tree(&head, keys.as_ref()).await? {
        return Err(of.not_yet().await);
    }
    let origin = origin(&place.origin, of.tag, keys.as_ref());
    let key = of.signing_key(&origin).ok_or_else(|| not_found("This server has no service key."))?;
    let note = Checkpoint { origin, size: head.size, root: head.root }.sign(&[&key]);
    let note = note.ok_or_else(|| of.failed(&"the origin of the chain's log has control characters"))?;
    let response = respond::with_type(StatusCode::OK, "text/plain; charset=utf-8", note.to_string());
    Ok(of.private(response, "private, max-age=2"))
}

/// `GET /tlog/v1/chain/tile/…`.
pub(super) async fn tile(of: &Chain<'_>, path: &str) -> Answer {
    let tile = parse_tile(path)?;
    let head = of.published_head().await?;
    if !tile.is_in_tree(head.size) {
        return Err(not_found("The published tree has no such tile in this width."));
    }
    let found = of.published.trust.trees.tile(of.chain, tile).await;
    match found.map_err(|error| of.tree_failed(&error))? {
        Some(found) => Ok(of.private(bytes(found), KEPT)),
        // The tree is being built again.
        None => Err(of.not_yet().await),
    }
}

/// `GET /tlog/v1/chain/consistency`.
pub(super) async fn consistency(of: &Chain<'_>, query: &str) -> Answer {
    let Growth { from, to } = Growth::parse(query)?;
    if to > of.published_head().await?.size {
        return Err(not_found("The published tree of the chain is smaller."));
    }
    let path = of.published.trust.trees.consistency(of.chain, from, to).await;
    let path = of.of_tree(path).await?;
    let body = json!({ "from": from, "to": to, "path": hashes(&path) });
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

impl<'a> Chain<'a> {
    /// The chain of the key that the request has.
    pub(super) async fn of_key(
        app: &'a App,
        trust: &'a Arc<Trust>,
        headers: &HeaderMap,
        request_id: RequestId,
    ) -> Result<Chain<'a>, Failure> {
        let chain = app.auth.authenticate(&app.limits, headers, request_id).await?.chain();
        Chain::of(app, trust, Watcher { chain, reads_events: true }, request_id)
    }

    /// The chain of the key, or of the monitor token.
    pub(super) async fn watched(
        app: &'a App,
        trust: &'a Arc<Trust>,
        headers: &HeaderMap,
        request_id: RequestId,
    ) -> Result<Chain<'a>, Failure> {
        let watcher = app.auth.watcher(&app.limits, headers, request_id).await?;
        Chain::of(app, trust, watcher, request_id)
    }

    fn of(
        app: &'a App,
        trust: &'a Arc<Trust>,
        Watcher { chain, reads_events }: Watcher,
        request_id: RequestId,
    ) -> Result<Chain<'a>, Failure> {
        if chain.mode == Mode::Test {
            return Err(not_found("Test chains have no trees."));
        }
        let published = Published { trust, payer: chain.into(), request_id };
        Ok(Chain { app, published, chain, tag: Tag::of(chain), reads_events })
    }
}

impl Chain<'_> {
    /// The newest published head; nothing before the first.
    pub(super) async fn newest(&self) -> Result<Option<PublishedHead>, Failure> {
        let head = self.published.trust.published_head(self.published.payer, self.chain).await;
        head.map_err(|error| self.published.failed(&error))
    }

    pub(super) async fn published_head(&self) -> Result<PublishedHead, Failure> {
        match self.newest().await? {
            Some(head) => Ok(head),
            None if self.acknowledged().await? == 0 => Err(not_found("The chain has no events.")),
            None => Err(self.not_yet().await),
        }
    }

    /// The `chain_seq` of the last event that is durable.
    pub(super) async fn acknowledged(&self) -> Result<u64, Failure> {
        let head = self.app.service.store.head(self.chain).await;
        Ok(head.map_err(|error| self.failed(&error))?.durable.chain_seq)
    }

    /// Of its salts. Nothing before its first leaf.
    pub(super) async fn root_keys(&self) -> Result<Option<RootKeys>, Failure> {
        let keys = self.published.trust.root_keys(self.published.payer, self.chain).await;
        keys.map_err(|error| self.published.failed(&error))
    }

    /// Whether the head is that of the tree which the keys name. An accepted loss makes a key, then cuts the
    /// tree, then publishes it: in between, the new origin must not be given to the old tree.
    async fn is_of_this_tree(&self, head: &PublishedHead, keys: Option<&RootKeys>) -> Result<bool, Failure> {
        let trees = &self.published.trust.trees;
        match trees.root_at(self.chain, head.size).await {
            Ok(root) if root == head.root => {}
            Ok(_) | Err(TreeError::NotYet { .. }) => return Ok(false),
            Err(error) => return Err(self.tree_failed(&error)),
        }
        let Some((keys, seq)) = keys.and_then(|keys| Some((keys, keys.last_loss()?))) else {
            return Ok(true);
        };
        if head.size < seq {
            return Ok(true);
        }
        let leaf = self.of_tree(trees.leaves(self.chain, seq, seq).await).await?;
        let event = self.event(seq).await?;
        Ok(event
            .is_some_and(|event| leaf.first() == sealed_leaf(&event, keys).map(|(_, leaf)| leaf).as_ref()))
    }

    /// The event with this `chain_seq`, as the store has it.
    pub(super) async fn event(&self, seq: u64) -> Result<Option<Box<StoredEvent>>, Failure> {
        let range = Range { from: seq, to: seq, bytes_max: EVENT_BYTES_MAX };
        let chunk = self.app.service.store.range(self.chain, range).await;
        match chunk.map_err(|error| self.failed(&error))?.items.pop() {
            Some(Item::Event(event)) => Ok(Some(event)),
            Some(Item::Damaged { .. }) => Err(self.failed(&format_args!("event {seq} is damaged"))),
            None => Ok(None),
        }
    }

    fn signing_key(&self, origin: &str) -> Option<SigningKey> {
        self.published.trust.service_key()?.under(origin).ok()
    }

    /// What a read of the tree gave, which may be smaller than what was published while it is built again.
    pub(super) async fn of_tree<T>(&self, read: Result<T, TreeError>) -> Result<T, Failure> {
        self.proven(read.map_err(NotProven::from)).await
    }

    pub(super) async fn proven<T>(&self, read: Result<T, NotProven>) -> Result<T, Failure> {
        Err(match read {
            Ok(read) => return Ok(read),
            Err(NotProven::NotYet) => self.not_yet().await,
            Err(NotProven::Unknown) => not_found("No signed tree has a snapshot at this index."),
            Err(NotProven::Pruned { before, after }) => {
                let kept: Vec<String> = [before, after].iter().flatten().map(u64::to_string).collect();
                let message =
                    format!("That snapshot is not kept; the nearest that are kept: {}.", kept.join(", "));
                Failure::new(Code::TlogPruned, message)
            }
            Err(NotProven::Store(error)) => self.published.failed(&error),
            Err(NotProven::Broken(why)) => self.failed(&why),
        })
    }

    /// Says when the next snapshot is due.
    pub(super) async fn not_yet(&self) -> Failure {
        let now_ms = self.published.request_id.received_ms();
        let due = self.published.read(move |log| {
            let genesis = log.entry(0)?.and_then(|entry| match Entry::parse(&entry) {
                Ok(Entry::Genesis { interval_s, .. }) => Some(interval_s),
                _ => None,
            });
            let interval_ms = genesis.unwrap_or(INTERVAL_S).saturating_mul(1000);
            let before_ms = log.place()?.map_or(0, |place| place.heads_ms);
            Ok(interval_ms.saturating_sub(now_ms.saturating_sub(before_ms)))
        });
        match due.await {
            Ok(due_ms) => Failure::new(Code::TlogNotYet, Code::TlogNotYet.row().meaning)
                .retry_after(Duration::from_millis(due_ms)),
            Err(failure) => failure,
        }
    }

    fn tree_failed(&self, error: &TreeError) -> Failure {
        match error {
            TreeError::Store(error) => self.published.failed(error),
            error => self.failed(error),
        }
    }

    pub(super) fn failed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::read(error, self.published.request_id)
    }

    /// Another key has another answer at the same address.
    pub(super) fn private(&self, response: Response<Body>, how_long: &'static str) -> Response<Body> {
        let mut response = kept_for(response, how_long);
        response.headers_mut().insert(VARY, HeaderValue::from_static("authorization"));
        response
    }
}

/// The name of the chain's log. It is another one after each accepted loss, since the log before it had a
/// larger tree.
fn origin(store: &str, tag: Tag, keys: Option<&RootKeys>) -> String {
    match keys.map_or(0, RootKeys::losses) {
        0 => format!("{store}/chain/{tag}"),
        losses => format!("{store}/chain/{tag}/{}", losses + 1),
    }
}
