//! Leaves of a chain, made of its events: as entry bundles, and held against its tree.

use std::sync::Arc;

use hyper::StatusCode;
use sealog_core::event::StoredEvent;
use sealog_core::id::Hash;
use sealog_core::query::SeqRange;
use sealog_core::reject::Code;
use sealog_core::verify::{Item, Verdict};
use sealog_engine::proofs::sealed_leaf;
use sealog_engine::trust_log::PublishedHead;
use sealog_engine::trust_log::salt_keys::RootKeys;
use sealog_store::pool::Lane;
use sealog_store::{Range, verify};
use sealog_trust::leaf;
use sealog_trust::merkle::verify_range;
use sealog_trust::tile::{WIDTH, put_entry};
use serde_json::{Value, json};

use super::chain::{Chain, KEPT};
use super::published::{bytes, not_found, parse_tile};
use crate::respond::{self, Answer, Failure};

/// Bytes of events that are read, and hashed, at a time.
const PIECE_BYTES: usize = 1 << 20;

/// `GET /tlog/v1/chain/tile/entries/…`.
pub(super) async fn entries(of: &Chain<'_>, path: &str) -> Answer {
    let tile = parse_tile(path)?;
    if !tile.is_in_tree(of.published_head().await?.size) {
        return Err(not_found("The published tree has no such entries."));
    }
    let first = tile.index * u64::from(WIDTH) + 1;
    let last = first + u64::from(tile.width) - 1;
    let head = of.app.service.store.head(of.chain).await.map_err(|error| of.failed(&error))?;
    if first < head.first_seq() {
        let message = format!("Events before #{} were deleted.", head.first_seq());
        return Err(Failure::new(Code::TlogPruned, message));
    }
    let share = of.app.reads.take(of.chain.tenant_id, verify::HELD_BYTES_MAX).await;
    let _share = share.map_err(|exhausted| of.failed(&exhausted))?;
    let keys = Arc::new(of.known_root_keys().await?);
    let (mut bundle, mut next) = (Vec::new(), first);
    while next <= last {
        let events = of.piece(next, last).await?;
        next += events.len() as u64;
        let keys = Arc::clone(&keys);
        let made = of.hashed(events, move |event| entry(event, &keys)).await?;
        for entry in made {
            let put = entry.is_some_and(|entry| put_entry(&mut bundle, &entry));
            if !put {
                return Err(of.failed(&"an event has no leaf"));
            }
        }
    }
    Ok(of.private(bytes(bundle), KEPT))
}

fn entry(event: &StoredEvent, keys: &RootKeys) -> Option<Vec<u8>> {
    let (private, _) = sealed_leaf(event, keys)?;
    let mut leaf = Vec::new();
    leaf::put_leaf(event, &private, &mut leaf).ok()?;
    Some(leaf)
}

/// `GET /tlog/v1/chain/verify`.
pub(super) async fn check(of: &Chain<'_>, query: &str) -> Answer {
    let range = SeqRange::parse(query)?;
    let share = of.app.reads.take(of.chain.tenant_id, verify::HELD_BYTES_MAX).await;
    let _share = share.map_err(|exhausted| of.failed(&exhausted))?;
    let verdict = verify::window(&*of.app.service.store, of.chain, range).await;
    let mut verdict = verdict.map_err(|error| of.failed(&error))?;
    of.app.metrics.verified(&verdict);
    let head = of.newest().await?;
    let mut broken = verdict.broken.map(|broken| (broken.at, broken.hash, broken.reason.as_str()));
    let mut compared = 0;
    if let (None, Some(head)) = (broken, head) {
        (compared, broken) = compare(of, &verdict, &head).await?;
        if let Some((at, ..)) = broken {
            of.app.metrics.broken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            verdict.checked = at - verdict.first_seq + 1;
            verdict.last_seq = at;
        }
    }
    let mut body = json!({
        "valid": broken.is_none(),
        "not_shown": not_shown(verdict.last_seq, head.map_or(0, |head| head.size)),
        "checked": verdict.checked,
        "first_seq": verdict.first_seq,
        "last_seq": verdict.last_seq,
        "leaves_checked": compared,
        "published_size": head.map_or(0, |head| head.size),
    });
    if let Some((at, hash, reason)) = broken {
        let request_id = of.published.request_id;
        tracing::error!(%request_id, chain = %of.chain, at, reason, "a chain is broken");
        body["broken_at"] = at.into();
        body["broken_hash"] = hash.to_string().into();
        body["reason"] = Value::from(reason);
    }
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

/// What a server cannot show of its own chain, whatever it has looked at.
fn not_shown(last_seq: u64, published: u64) -> Vec<String> {
    let mut sentences = Vec::new();
    if published < last_seq {
        let first = published + 1;
        sentences
            .push(format!("Fields outside the hash, from event #{first} on: no signed tree has them yet."));
    }
    sentences.push(
        "That the signed log was not rewritten or rolled back: compare it with a checkpoint that you kept \
         (sealog-verify --checkpoint)."
            .to_owned(),
    );
    sentences
}

type Broken = (u64, Hash, &'static str);

/// Holds the events of a sound window against the published tree: how many, and the first that differs.
async fn compare(
    of: &Chain<'_>,
    verdict: &Verdict,
    head: &PublishedHead,
) -> Result<(u64, Option<Broken>), Failure> {
    let (first, last) = (verdict.first_seq, verdict.last_seq.min(head.size));
    if first > last {
        return Ok((0, None));
    }
    let trees = &of.published.trust.trees;
    let keys = Arc::new(of.known_root_keys().await?);
    let (mut next, mut leaves, mut begin) = (first, Vec::new(), None);
    while next <= last {
        let events = of.piece(next, last.min(next + u64::from(WIDTH) - 1)).await?;
        let known = trees.leaves(of.chain, next, next + events.len() as u64 - 1).await;
        let known = of.of_tree(known).await?;
        let keys = Arc::clone(&keys);
        let made = move |event: &StoredEvent| {
            let leaf = sealed_leaf(event, &keys).map(|(_, leaf)| leaf);
            (event.sealed.chain_seq, event.sealed.hash, leaf)
        };
        for ((seq, hash, leaf), known) in of.hashed(events, made).await?.into_iter().zip(&known) {
            begin.get_or_insert((seq, hash));
            if leaf != Some(*known) {
                // Its hash fits, so it is one of the fields that only the leaf covers.
                return Ok((seq - first + 1, Some((seq, hash, "annotations"))));
            }
        }
        next += known.len() as u64;
        leaves.extend(known);
    }
    let path = of.of_tree(trees.range_proof(of.chain, first, last, head.size).await).await?;
    let is_published = verify_range(first - 1, &leaves, head.size, &head.root, &path).is_ok();
    let broken = begin.filter(|_| !is_published).map(|(seq, hash)| (seq, hash, "root"));
    Ok((leaves.len() as u64, broken))
}

impl Chain<'_> {
    /// The root keys of the salts of a chain that has a tree.
    pub(super) async fn known_root_keys(&self) -> Result<RootKeys, Failure> {
        self.root_keys().await?.ok_or_else(|| self.failed(&"a chain has a tree and no salts"))
    }

    /// Some of these events, one at least.
    async fn piece(&self, from: u64, to: u64) -> Result<Vec<Item>, Failure> {
        let chunk =
            self.app.service.store.range(self.chain, Range { from, to, bytes_max: PIECE_BYTES }).await;
        let items = chunk.map_err(|error| self.failed(&error))?.items;
        let events = (from..)
            .zip(&items)
            .take_while(|(seq, item)| matches!(item, Item::Event(event) if event.sealed.chain_seq == *seq));
        if events.count() < items.len() || items.is_empty() {
            return Err(self.failed(&format_args!("an event of {from} to {to} is damaged or missing")));
        }
        Ok(items)
    }

    /// Something of each event, made in the thread pool and in the tenant's turn.
    async fn hashed<T: Send + 'static>(
        &self,
        items: Vec<Item>,
        make: impl Fn(&StoredEvent) -> T + Send + 'static,
    ) -> Result<Vec<T>, Failure> {
        let events = |item: &Item| match item {
            Item::Event(event) => event.text.as_str().len(),
            Item::Damaged { .. } => 0,
        };
        let cost = items.iter().map(events).sum();
        let made = self.app.service.store.pool().run(Lane::Compute, self.chain, cost, move || {
            let events = items.iter().filter_map(|item| match item {
                Item::Event(event) => Some(make(event)),
                Item::Damaged { .. } => None,
            });
            events.collect()
        });
        made.await.map_err(|_| self.failed(&sealog_store::StoreError::Closing))
    }
}
