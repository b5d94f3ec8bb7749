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
    /// Nothing where it is withheld.
    pub hash: Option<Hash>,
    pub reason: String,
    /// The last event that exists below it.
    pub before: Option<Neighbour>,
    /// The event itself, if it exists and can be read.
    pub failing: Option<Neighbour>,
    /// What should be there, and what is: of the field that the reason is about.
    pub expected: Option<Hash>,
    pub found: Option<Hash>,
    /// It exists, and is not for whoever asks: [`Found::within`].
    pub before_is_withheld: bool,
    pub failing_is_withheld: bool,
}

/// What somebody may see of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Both included.
    pub first: u64,
    pub last: u64,
    /// The chain goes on behind it.
    pub goes_on: bool,
    pub from_ms: Option<u64>,
    pub until_ms: Option<u64>,
}

impl Seen {
    fn has(&self, seq: u64) -> bool {
        (self.first..=self.last).contains(&seq)
    }

    pub(super) fn shows(&self, event: &Neighbour) -> bool {
        self.has(event.chain_seq)
            && self.from_ms.is_none_or(|from| event.timestamp_ms >= from)
            && self.until_ms.is_none_or(|until| event.timestamp_ms < until)
    }
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
    // Before the first event of all there is nothing, before the first that is kept the last that was
    // dropped.
    let previous = match before {
        Some(event) => event.hash,
        None => store.head(chain).await?.dropped.hash,
    };
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
    Ok(Found {
        at: broken.at,
        hash: Some(broken.hash),
        reason,
        before,
        failing,
        expected,
        found,
        before_is_withheld: false,
        failing_is_withheld: false,
    })
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
    /// The first `chain_seq` that is not as it was sealed. An event that is missing is found at the next one
    /// that exists.
    pub fn begins_at(&self) -> u64 {
        match &self.before {
            Some(before) if self.reason == Reason::Gap.as_str() => self.at.min(before.chain_seq + 1),
            None if self.reason == Reason::Gap.as_str() => 1,
            _ => self.at,
        }
    }

    /// Without the events that somebody may not see, and their hashes. A break that shows behind the last
    /// event that is seen is named by the place behind it.
    pub fn within(mut self, seen: &Seen) -> Found {
        let is_seen = |event: &Neighbour| seen.shows(event);
        let is_linked = [Reason::Gap, Reason::Link].iter().any(|reason| reason.as_str() == self.reason);
        if is_linked && !self.before.is_some_and(|before| seen.has(before.chain_seq)) {
            // Where there is none, that of the last event that was dropped; only the beginning of a chain is
            // nobody's.
            self.expected = self.expected.filter(|hash| *hash == Hash::ZERO);
        }
        if !seen.has(self.at) {
            (self.at, self.hash, self.found) = (self.at.clamp(seen.first, seen.last + 1), None, None);
            self.failing_is_withheld = true;
        }
        // Of a record that is gone or damaged, the hash may be that of the last event of the whole chain.
        let is_of_head = [Reason::Tail, Reason::Damaged].iter().any(|reason| reason.as_str() == self.reason);
        if is_of_head && seen.goes_on {
            (self.hash, self.expected) = (None, None);
        }
        self.before_is_withheld |= self.before.is_some_and(|event| !is_seen(&event));
        self.failing_is_withheld |= self.failing.is_some_and(|event| !is_seen(&event));
        self.before = self.before.filter(is_seen);
        self.failing = self.failing.filter(is_seen);
        self
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "at": self.at,
            "hash": self.hash.map(|hash| hash.to_string()),
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
            hash: Some(hash("hash")?),
            reason: value["reason"].as_str()?.to_owned(),
            before: Neighbour::parse(&value["before"]),
            failing: Neighbour::parse(&value["failing"]),
            expected: hash("expected"),
            found: hash("found"),
            before_is_withheld: false,
            failing_is_withheld: false,
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

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen = Seen { first: 4, last: 6, goes_on: true, from_ms: Some(40), until_ms: Some(70) };

    fn event(chain_seq: u64) -> Neighbour {
        let hash = |n: u64| Hash([u8::try_from(n).unwrap(); 32]);
        Neighbour {
            chain_seq,
            log_id: Ulid(chain_seq.into()),
            timestamp_ms: chain_seq * 10,
            prev_hash: hash(chain_seq - 1),
            hash: hash(chain_seq),
            recomputed: hash(chain_seq),
        }
    }

    /// A break at an event that follows another one.
    fn found(reason: Reason, before: u64, at: u64) -> Found {
        Found {
            at,
            hash: Some(event(at).hash),
            reason: reason.as_str().into(),
            before: Some(event(before)),
            failing: Some(event(at)),
            expected: Some(event(before).hash),
            found: Some(event(at).prev_hash),
            before_is_withheld: false,
            failing_is_withheld: false,
        }
    }

    #[test]
    fn what_lies_inside_of_what_is_seen_stays() {
        for reason in [Reason::Gap, Reason::Link] {
            let inside = found(reason, 4, 6);
            assert_eq!(inside.clone().within(&SEEN), inside);
        }
    }

    #[test]
    fn an_event_before_what_is_seen_is_withheld_with_its_hash() {
        let cut = found(Reason::Link, 3, 4).within(&SEEN);
        assert_eq!((cut.before, cut.expected, cut.before_is_withheld), (None, None, true));
        assert_eq!((cut.at, cut.failing, cut.failing_is_withheld), (4, Some(event(4)), false));
        // Nor is the hash told of an event that was dropped; that there is none before the first is.
        for (expected, told) in [(event(3).hash, None), (Hash::ZERO, Some(Hash::ZERO))] {
            let first = Found { before: None, expected: Some(expected), ..found(Reason::Link, 3, 4) };
            assert_eq!(first.within(&SEEN).expected, told);
        }
        // The hash that its own fields give is nobody else's.
        let cut = found(Reason::Hash, 3, 4).within(&SEEN);
        assert_eq!((cut.before, cut.expected), (None, Some(event(3).hash)));
    }

    #[test]
    fn an_event_behind_what_is_seen_is_withheld_and_its_place_is_the_next() {
        let cut = found(Reason::Gap, 5, 9).within(&SEEN);
        assert_eq!((cut.at, cut.hash, cut.found, cut.failing), (7, None, None, None));
        assert!(cut.failing_is_withheld && !cut.before_is_withheld);
        assert_eq!((cut.before, cut.expected), (Some(event(5)), Some(event(5).hash)));
    }

    #[test]
    fn the_hash_of_the_last_event_of_the_chain_is_not_told_where_the_chain_goes_on() {
        for reason in [Reason::Tail, Reason::Damaged] {
            let damaged = Found { failing: None, found: None, ..found(reason, 4, 5) };
            let cut = damaged.clone().within(&SEEN);
            assert_eq!((cut.at, cut.hash, cut.expected), (5, None, None));
            assert_eq!(damaged.clone().within(&Seen { goes_on: false, ..SEEN }), damaged);
        }
    }

    #[test]
    fn an_event_whose_time_is_not_granted_is_withheld_wherever_it_stands() {
        let early = Neighbour { timestamp_ms: 39, ..event(5) };
        let cut = Found { failing: Some(early), ..found(Reason::Hash, 4, 5) }.within(&SEEN);
        assert_eq!((cut.at, cut.failing, cut.failing_is_withheld), (5, None, true));
        assert_eq!(cut.before, Some(event(4)));
    }
}
