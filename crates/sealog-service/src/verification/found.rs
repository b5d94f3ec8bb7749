//! A break in a chain, with what stands on both sides of it at the moment it was found.

use sealog_core::canonical;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Ulid};
use sealog_core::query::Filter;
use sealog_core::verify::{Broken, Item, Reason};
use sealog_store::pool::Lane;
use sealog_store::{List, Range, Store, StoreError};
use serde_json::{Value, json};

/// One event, as large as a body; it is read to be shown.
const BYTES_MAX: usize = 1;
/// Calls that look for the last event before a gap.
const LOOKS_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub at: u64,
    pub hash: Hash,
    pub reason: String,
    /// The last event that exists below it.
    pub before: Option<Neighbour>,
    /// The event itself, if it exists and can be read.
    pub failing: Option<Neighbour>,
    /// What should be there, and what is: of the field that the reason is about.
    pub expected: Option<Hash>,
    pub found: Option<Hash>,
}

/// An event without its contents: who may see those is asked when they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub chain_seq: u64,
    pub log_id: Ulid,
    pub timestamp_ms: u64,
    pub prev_hash: Hash,
    pub hash: Hash,
    /// What its fields give.
    pub recomputed: Hash,
}

impl Neighbour {
    fn of(event: &StoredEvent) -> Neighbour {
        let sealed = &event.sealed;
        let recomputed = canonical::hash(
            sealed.prev_hash,
            sealed.log_id,
            event.tenant_id,
            event.text.as_str(),
            event.timestamp_ms,
        );
        Neighbour {
            chain_seq: sealed.chain_seq,
            log_id: sealed.log_id,
            timestamp_ms: event.timestamp_ms,
            prev_hash: sealed.prev_hash,
            hash: sealed.hash,
            recomputed,
        }
    }
}

/// Looks at both sides of a break.
pub(super) async fn look(store: &dyn Store, chain: ChainId, broken: Broken) -> Result<Found, StoreError> {
    let failing = at(store, chain, broken.at).await?;
    let before = last_below(store, chain, broken.at).await?;
    let previous = before.map_or(Hash::ZERO, |event| event.hash);
    let (expected, found) = match (broken.reason, failing) {
        (Reason::Hash, Some(event)) => (Some(event.recomputed), Some(event.hash)),
        (Reason::Link | Reason::Gap, Some(event)) => (Some(previous), Some(event.prev_hash)),
        (Reason::Head, Some(event)) => {
            let recorded = store.head(chain).await?.recorded;
            (Some(recorded.hash).filter(|_| recorded.chain_seq == event.chain_seq), Some(event.hash))
        }
        (Reason::Tail | Reason::Damaged, _) => (Some(broken.hash), None),
        _ => (None, None),
    };
    let reason = broken.reason.as_str().to_owned();
    Ok(Found { at: broken.at, hash: broken.hash, reason, before, failing, expected, found })
}

/// An event, if it exists and can be read.
pub(super) async fn at(store: &dyn Store, chain: ChainId, seq: u64) -> Result<Option<Neighbour>, StoreError> {
    let range = Range { from: seq, to: seq, bytes_max: BYTES_MAX };
    let items = store.range(chain, range).await?.items;
    match items.into_iter().next() {
        Some(Item::Event(event)) => neighbour(store, chain, *event).await.map(Some),
        Some(Item::Damaged { .. }) | None => Ok(None),
    }
}

/// Hashed in the thread pool: an event can have two megabytes.
async fn neighbour(store: &dyn Store, chain: ChainId, event: StoredEvent) -> Result<Neighbour, StoreError> {
    let bytes = event.text.as_str().len();
    let hashed = store.pool().run(Lane::Compute, chain, bytes, move || Neighbour::of(&event));
    hashed.await.map_err(|_| StoreError::Closing)
}

async fn last_below(store: &dyn Store, chain: ChainId, seq: u64) -> Result<Option<Neighbour>, StoreError> {
    let mut before_seq = Some(seq);
    for _ in 0..LOOKS_MAX {
        let list = List { filter: Filter::default(), before_seq, limit: 1, bytes_max: BYTES_MAX };
        let chunk = store.list(chain, list).await?;
        if let Some(event) = chunk.items.into_iter().next() {
            return neighbour(store, chain, event).await.map(Some);
        }
        match chunk.resume {
            Some(resume) => before_seq = Some(resume),
            None => break,
        }
    }
    Ok(None)
}

impl Found {
    /// The first `chain_seq` that is not as it was sealed. An event that is missing is found at the next one that
    /// exists.
    pub fn begins_at(&self) -> u64 {
        match &self.before {
            Some(before) if self.reason == Reason::Gap.as_str() => self.at.min(before.chain_seq + 1),
            None if self.reason == Reason::Gap.as_str() => 1,
            _ => self.at,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "at": self.at,
            "hash": self.hash.to_string(),
            "reason": self.reason,
            "before": self.before.map(Neighbour::to_json),
            "failing": self.failing.map(Neighbour::to_json),
            "expected": self.expected.map(|hash| hash.to_string()),
            "found": self.found.map(|hash| hash.to_string()),
        })
    }

    pub(super) fn parse(value: &Value) -> Option<Found> {
        let hash = |name: &str| value[name].as_str().and_then(Hash::parse);
        Some(Found {
            at: value["at"].as_u64()?,
            hash: hash("hash")?,
            reason: value["reason"].as_str()?.to_owned(),
            before: Neighbour::parse(&value["before"]),
            failing: Neighbour::parse(&value["failing"]),
            expected: hash("expected"),
            found: hash("found"),
        })
    }

    /// In words for people.
    pub fn explain(&self) -> &'static str {
        const ALL: [Reason; 9] = [
            Reason::Chain,
            Reason::Gap,
            Reason::Link,
            Reason::Hash,
            Reason::Order,
            Reason::Damaged,
            Reason::Head,
            Reason::Tail,
            Reason::Malformed,
        ];
        ALL.into_iter().find(|reason| reason.as_str() == self.reason).map_or("", Reason::explain)
    }
}

impl Neighbour {
    pub(super) fn to_json(self) -> Value {
        json!({
            "chain_seq": self.chain_seq,
            "log_id": self.log_id.to_string(),
            "timestamp_ms": self.timestamp_ms,
            "prev_hash": self.prev_hash.to_string(),
            "hash": self.hash.to_string(),
            "recomputed": self.recomputed.to_string(),
        })
    }

    pub(super) fn parse(value: &Value) -> Option<Neighbour> {
        let hash = |name: &str| value[name].as_str().and_then(Hash::parse);
        Some(Neighbour {
            chain_seq: value["chain_seq"].as_u64()?,
            log_id: Ulid::parse(value["log_id"].as_str()?)?,
            timestamp_ms: value["timestamp_ms"].as_u64()?,
            prev_hash: hash("prev_hash")?,
            hash: hash("hash")?,
            recomputed: hash("recomputed")?,
        })
    }
}
