//! The one verifier: the API, the dashboard, the command line and the auditor's program all call it.
//!
//! Callers pass the previous event and the expected heads, because a chain that is checked only against
//! itself can be truncated without a trace.

use crate::canonical::Preimage;
use crate::chain::{Head, Sealed};
use crate::event::StoredEvent;
use crate::id::{Hash, TenantId, Ulid};
use crate::time::TIMESTAMP_MS_MAX;

/// The state of the event before the first checked one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It exists, or the chain begins here ([`Head::EMPTY`]).
    Event { hash: Hash, log_id: Ulid },
    /// There should be one, and it is gone.
    Missing,
    /// It exists but cannot be read, or was not read: the link to it cannot be checked.
    Unknown,
}

impl Before {
    pub const NOTHING: Before = Before::Event { hash: Head::EMPTY.hash, log_id: Head::EMPTY.log_id };
}

/// Why an event failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It belongs to another tenant or project than the first one.
    Chain,
    /// Its `chain_seq` is not one more than that of the event before.
    Gap,
    /// Its `prev_hash` is not the `hash` before it.
    Link,
    /// Its fields do not give its `hash`.
    Hash,
    /// Its `log_id` does not increase, or does not carry its `timestamp`.
    Order,
    /// It is there, but the store's own checksum says that it is damaged.
    Damaged,
    /// It has another `hash` than the one that was noted for its `chain_seq`.
    Head,
    /// The chain ends before a head that it is known to have had.
    Tail,
    /// It lacks a field that is checked, or has one that is no proper value. Only in text from outside
    /// ([`crate::audit`]).
    Malformed,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Chain => "chain",
            Reason::Gap => "gap",
            Reason::Link => "link",
            Reason::Hash => "hash",
            Reason::Order => "order",
            Reason::Damaged => "damaged",
            Reason::Head => "head",
            Reason::Tail => "tail",
            Reason::Malformed => "malformed",
        }
    }

    /// The reason in words, for people.
    pub fn explain(self) -> &'static str {
        match self {
            Reason::Chain => "the event belongs to another tenant or project than the previous events",
            Reason::Gap => "one or more events before it are missing, or the order was changed",
            Reason::Link => {
                "its prev_hash is not the hash of the previous event: an event was removed, inserted or replaced here"
            }
            Reason::Hash => "its hash does not match its content: the event was changed after it was sealed",
            Reason::Order => "its log_id and timestamp do not follow those of the previous event",
            Reason::Damaged => "the stored record is damaged and cannot be read",
            Reason::Head => {
                "its hash differs from the one recorded for this position: the chain was rewritten"
            }
            Reason::Tail => {
                "the chain ends before a position that it is known to have reached: its end was cut off"
            }
            Reason::Malformed => "a field that is checked is missing, duplicate or malformed",
        }
    }
}

/// The outcome. Spec 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub checked: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    pub broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    pub at: u64,
    pub hash: Hash,
    pub reason: Reason,
}

impl Verdict {
    pub fn valid(&self) -> bool {
        self.broken.is_none()
    }
}

/// The content of a store at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Event(Box<StoredEvent>),
    /// A record whose checksum is wrong.
    Damaged {
        chain_seq: u64,
    },
}

impl Item {
    pub fn chain_seq(&self) -> u64 {
        match self {
            Item::Event(event) => event.sealed.chain_seq,
            Item::Damaged { chain_seq } => *chain_seq,
        }
    }
}

/// The checked fields of an event, borrowed from their owner.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub tenant_id: TenantId,
    pub sealed: Sealed,
    pub timestamp_ms: u64,
    /// The canonical text, from `"action"` on.
    pub text: &'a [u8],
}

impl Record<'_> {
    /// Whether its fields give its hash.
    fn is_genuine(&self, preimage: &mut Preimage) -> bool {
        let sealed = &self.sealed;
        preimage.hash(sealed.prev_hash, sealed.log_id, self.tenant_id, self.text, self.timestamp_ms)
            == sealed.hash
    }

    /// Whether its id carries its time.
    fn is_timely(&self) -> bool {
        self.sealed.log_id.timestamp_ms() == self.timestamp_ms
    }
}

impl<'a> From<&'a StoredEvent> for Record<'a> {
    fn from(event: &'a StoredEvent) -> Record<'a> {
        Record {
            tenant_id: event.tenant_id,
            sealed: event.sealed,
            timestamp_ms: event.timestamp_ms,
            text: event.text.as_str().as_bytes(),
        }
    }
}

/// Consecutive events of a chain with nothing wrong among them. Stretches are checked side by side, on as
/// many cores as there are; [`Check::stretch`] then looks at where they meet.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    first: Sealed,
    last: Sealed,
}

impl Stretch {
    /// A stretch of one event; nothing if there is something wrong with it.
    pub fn begin(record: &Record<'_>, preimage: &mut Preimage) -> Option<Stretch> {
        let sound = record.is_genuine(preimage) && record.is_timely();
        sound.then_some(Stretch { first: record.sealed, last: record.sealed })
    }

    /// Adds the next event, if it follows and nothing is wrong with it.
    pub fn extend(&mut self, record: &Record<'_>, preimage: &mut Preimage) -> bool {
        let (last, next) = (&self.last, &record.sealed);
        let follows =
            next.chain_seq == last.chain_seq + 1 && next.prev_hash == last.hash && next.log_id > last.log_id;
        if !follows || !record.is_genuine(preimage) || !record.is_timely() {
            return false;
        }
        self.last = record.sealed;
        true
    }

    pub fn first_seq(&self) -> u64 {
        self.first.chain_seq
    }

    pub fn last_seq(&self) -> u64 {
        self.last.chain_seq
    }
}

/// A verification in progress. Feed it the items of a range in ascending `chain_seq`, then call
/// [`Check::finish`].
///
/// A missing event is detected at the next one that exists, which may be past the range, and the hash of a
/// damaged record is known only from its successor. So a caller continues while [`Check::wants_more`].
#[derive(Debug)]
pub struct Check {
    first_seq: u64,
    last_seq: u64,
    next_seq: u64,
    before: Before,
    checked: u64,
    damaged: Option<u64>,
    /// An event that the chain is known to have had.
    known: Option<Head>,
    /// Nothing that may come can change the outcome.
    decided: bool,
    broken: Option<Broken>,
    preimage: Preimage,
}

impl Check {
    /// Begins a check of `first_seq..=last_seq`, both at most the recorded head.
    pub fn new(first_seq: u64, last_seq: u64, before: Before) -> Check {
        Check {
            first_seq,
            last_seq,
            next_seq: first_seq,
            before,
            checked: 0,
            damaged: None,
            known: None,
            decided: false,
            broken: None,
            preimage: Preimage::default(),
        }
    }

    /// Compares the event with this seq with its recorded head: an attacker who rewrites a chain from some
    /// event on can make all hashes and links match each other.
    pub fn knowing(mut self, recorded: Head) -> Check {
        self.known = Some(recorded).filter(|head| head.chain_seq > 0);
        self
    }

    /// Returns true if the next item may still change the outcome.
    pub fn wants_more(&self) -> bool {
        self.broken.is_none() && !self.decided && (self.damaged.is_some() || self.next_seq <= self.last_seq)
    }

    /// The break that was found, as far as it is known before [`Check::finish`].
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    pub fn item(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.event(event),
            Item::Damaged { chain_seq } => self.damaged(*chain_seq),
        }
    }

    pub fn event(&mut self, event: &StoredEvent) {
        self.record(&Record::from(event));
    }

    pub fn record(&mut self, record: &Record<'_>) {
        if !self.may_go_on(&record.sealed) {
            return;
        }
        let genuine = record.is_genuine(&mut self.preimage);
        let fault = self.does_not_follow(&record.sealed).or_else(|| {
            if !genuine {
                return Some(Reason::Hash);
            }
            let order = self.goes_back(&record.sealed) || !record.is_timely();
            order.then_some(Reason::Order).or_else(|| self.contradicts(&record.sealed))
        });
        self.take(&record.sealed, &record.sealed, fault);
    }

    /// Accepts events that already verify among themselves. Equal to feeding them one by one, if the last one
    /// is a known event.
    pub fn stretch(&mut self, stretch: &Stretch) {
        let Stretch { first, last } = stretch;
        assert!(last.chain_seq <= self.last_seq, "a stretch lies within what is checked");
        if !self.may_go_on(first) {
            return;
        }
        let order = |check: &Check| check.goes_back(first).then_some(Reason::Order);
        let fault = self.does_not_follow(first).or_else(|| order(self));
        self.take(first, if fault.is_some() { first } else { last }, fault);
        if self.broken.is_none() {
            let contradiction = self.contradicts(last);
            self.broken = contradiction.map(|reason| Broken { at: last.chain_seq, hash: last.hash, reason });
        }
    }

    /// Whether the next event is to be looked at for itself, and not only for what it says of a damaged one
    /// before it.
    fn may_go_on(&mut self, next: &Sealed) -> bool {
        if !self.wants_more() {
            return false;
        }
        let Some(at) = self.damaged else { return true };
        if next.chain_seq == at + 1 {
            self.broken = Some(Broken { at, hash: next.prev_hash, reason: Reason::Damaged });
        }
        self.decided = true;
        false
    }

    fn take(&mut self, first: &Sealed, last: &Sealed, fault: Option<Reason>) {
        self.checked += last.chain_seq - first.chain_seq + 1;
        self.broken = fault.map(|reason| Broken { at: first.chain_seq, hash: first.hash, reason });
        self.before = Before::Event { hash: last.hash, log_id: last.log_id };
        self.next_seq = last.chain_seq.saturating_add(1);
    }

    fn damaged(&mut self, chain_seq: u64) {
        if !self.wants_more() {
            return;
        }
        if self.damaged.is_some() {
            // The successor is damaged as well, so it cannot tell the hash.
            self.decided = true;
            return;
        }
        self.checked += 1;
        self.damaged = Some(chain_seq);
    }

    fn does_not_follow(&self, next: &Sealed) -> Option<Reason> {
        match self.before {
            _ if next.chain_seq != self.next_seq => Some(Reason::Gap),
            Before::Missing => Some(Reason::Gap),
            Before::Event { hash, .. } if hash != next.prev_hash => Some(Reason::Link),
            _ => None,
        }
    }

    fn contradicts(&self, event: &Sealed) -> Option<Reason> {
        let known = self.known.filter(|known| known.chain_seq == event.chain_seq)?;
        (known.hash != event.hash).then_some(Reason::Head)
    }

    fn goes_back(&self, next: &Sealed) -> bool {
        matches!(self.before, Before::Event { log_id, .. } if next.log_id <= log_id)
    }

    /// Ends a check of everything there was, when no head is known. `last_seq` is then the last event's.
    pub fn finish_unbounded(mut self) -> Verdict {
        self.last_seq = self.next_seq - 1;
        self.finish(&Head::EMPTY)
    }

    /// Ends the check after the last item that exists. `recorded` is the head that the chain is known to have
    /// reached.
    pub fn finish(mut self, recorded: &Head) -> Verdict {
        if self.broken.is_none() {
            if let Some(at) = self.damaged {
                self.broken = Some(Broken { at, hash: recorded.hash, reason: Reason::Damaged });
            } else if self.next_seq <= self.last_seq {
                // Nothing exists from here to the recorded head.
                self.broken = Some(Broken { at: self.next_seq, hash: recorded.hash, reason: Reason::Tail });
            } else {
                self.broken = self.rewritten_head(recorded);
            }
        }
        let last_seq = match self.broken {
            Some(broken) => broken.at,
            None => self.last_seq,
        };
        Verdict { checked: self.checked, first_seq: self.first_seq, last_seq, broken: self.broken }
    }

    /// The last event has no successor to contradict it: only the recorded head reveals a rewrite of the
    /// event and its hash.
    fn rewritten_head(&self, recorded: &Head) -> Option<Broken> {
        match self.before {
            Before::Event { hash, .. } if self.checked > 0 && self.next_seq - 1 == recorded.chain_seq => {
                (hash != recorded.hash).then_some(Broken {
                    at: recorded.chain_seq,
                    hash,
                    reason: Reason::Head,
                })
            }
            _ => None,
        }
    }
}

/// Checks a chain, or a part of one, in memory.
pub fn check<'a>(
    before: Before,
    first_seq: u64,
    events: impl IntoIterator<Item = &'a StoredEvent>,
    recorded: &Head,
) -> Verdict {
    let mut check = Check::new(first_seq, recorded.chain_seq, before);
    for event in events {
        check.event(event);
    }
    check.finish(recorded)
}

/// Checks that events continue a chain that ends with `head`, all of them, and returns the head that they
/// lead to.
pub fn continues(head: &Head, events: &[StoredEvent]) -> Result<Head, Broken> {
    let before = Before::Event { hash: head.hash, log_id: head.log_id };
    let mut check = Check::new(head.chain_seq + 1, u64::MAX, before);
    for event in events {
        if event.timestamp_ms > TIMESTAMP_MS_MAX {
            // Sealing never makes such a time, and could not go on from it.
            let sealed = &event.sealed;
            return Err(Broken { at: sealed.chain_seq, hash: sealed.hash, reason: Reason::Order });
        }
        check.event(event);
    }
    match check.finish_unbounded().broken {
        Some(broken) => Err(broken),
        None => Ok(events.last().map_or(*head, StoredEvent::head)),
    }
}
