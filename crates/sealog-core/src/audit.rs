//! The check of an export: events as text, from wherever they were kept, and heads that were noted earlier.
//!
//! A store knows where its chain begins and ends; an export says neither. This puts around [`Check`] what
//! such a text needs: which chain it is, which way it is ordered, events that are no proper events.
//! `vectors/README.md` has the rules, and cases for every one of them.

use std::fmt;

use crate::event::{SCHEMA_VERSION, StoredEvent, parse_schema_version};
use crate::id::{Hash, ProjectId, TenantId};
use crate::json::{self, JsonError, Members};
use crate::verify::{Before, Check, Reason};

/// The fields that take part in the check. An event may have any others: they are not hashed, so nothing can
/// be said of them.
pub const CHECKED_FIELDS: [&str; 11] = [
    "log_id",
    "tenant_id",
    "project_id",
    "action",
    "actor_id",
    "resource",
    "metadata",
    "timestamp",
    "chain_seq",
    "prev_hash",
    "hash",
];

/// A position in the chain and its hash, written `SEQ:HASH`: what someone noted of a chain earlier, and what
/// to note of it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedHead {
    pub chain_seq: u64,
    pub hash: Hash,
}

impl NotedHead {
    pub fn parse(text: &str) -> Option<NotedHead> {
        let (seq, hash) = text.split_once(':')?;
        // One spelling: no sign, no leading zero.
        if !seq.bytes().all(|byte| byte.is_ascii_digit()) || seq.starts_with('0') {
            return None;
        }
        let chain_seq = seq.parse().ok().filter(|seq| i64::try_from(*seq).is_ok())?;
        Some(NotedHead { chain_seq, hash: Hash::parse(hash)? })
    }
}

impl fmt::Display for NotedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chain_seq, self.hash)
    }
}

/// An event that cannot be checked, and what can be read of it all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub chain_seq: Option<u64>,
    pub hash: Option<Hash>,
    pub problem: String,
}

pub type Entry = Result<StoredEvent, Malformed>;

/// Reads an event for the check. The outer error is a text that is no JSON; annotations are left behind.
pub fn parse_entry(text: &str) -> Result<Entry, JsonError> {
    let whole = json::canonical(text)?;
    if !whole.starts_with('{') {
        let problem = "an event must be a JSON object".to_owned();
        return Ok(Err(Malformed { chain_seq: None, hash: None, problem }));
    }
    let mut checked = String::with_capacity(whole.len());
    for (key, value) in Members::of(&whole) {
        if CHECKED_FIELDS.contains(&&key[1..key.len() - 1]) {
            checked.extend([if checked.is_empty() { "{" } else { "," }, key, ":", value]);
        }
    }
    checked.push_str(if checked.is_empty() { "{}" } else { "}" });
    let only = |name: &str| {
        let mut values = Members::of(&whole).filter(|(key, _)| &key[1..key.len() - 1] == name);
        values.next().filter(|_| values.next().is_none()).map(|(_, value)| value)
    };
    let event = match StoredEvent::parse_json(&checked) {
        Ok(event) => event,
        Err(problem) => {
            return Ok(Err(Malformed {
                chain_seq: only("chain_seq").and_then(|value| value.parse().ok()),
                hash: only("hash").and_then(json::decode).and_then(|value| Hash::parse(&value)),
                problem,
            }));
        }
    };
    // Read, and not judged: it is not hashed, so a wrong one proves nothing about the event.
    let schema_version = only("schema_version").and_then(parse_schema_version).unwrap_or(SCHEMA_VERSION);
    Ok(Ok(StoredEvent { schema_version, ..event }))
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub checked: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    pub broken: Option<Fault>,
    /// The last event that passed.
    pub head: Option<NotedHead>,
    /// Tenant and project of the first event.
    pub chain: Option<(TenantId, ProjectId)>,
    /// Noted heads that agree with the events given.
    pub confirmed: usize,
    /// Noted heads that lie before the events given: nothing can be said of them.
    pub unchecked: Vec<NotedHead>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: u64,
    /// The hash in the event; for [`Reason::Tail`] the recorded one. None if it cannot be read.
    pub hash: Option<Hash>,
    pub reason: Reason,
    /// Details of [`Reason::Malformed`] and [`Reason::Tail`]. They may quote the input, so escape them before
    /// they reach a terminal.
    pub problem: Option<String>,
}

/// An audit under way: feed it the entries as they come, then [`Audit::finish`].
#[derive(Debug)]
pub struct Audit {
    noted: Vec<NotedHead>,
    /// Entries that wait until it is known which way they are ordered; all of them when it is newest first.
    held: Vec<Entry>,
    held_seqs: u64,
    last_held_seq: u64,
    oldest_first: bool,
    check: Option<Check>,
    checked: u64,
    first_seq: Option<u64>,
    chain: Option<(TenantId, ProjectId)>,
    head: Option<NotedHead>,
    broken: Option<Fault>,
}

impl Audit {
    pub fn new(mut noted: Vec<NotedHead>) -> Audit {
        noted.sort_by_key(|head| head.chain_seq);
        Audit {
            noted,
            held: Vec::new(),
            held_seqs: 0,
            last_held_seq: 0,
            oldest_first: false,
            check: None,
            checked: 0,
            first_seq: None,
            chain: None,
            head: None,
            broken: None,
        }
    }

    /// Returns true while the outcome may still change. Events after the first break do not count.
    pub fn wants_more(&self) -> bool {
        self.broken.is_none()
    }

    /// Takes the next entry. Oldest first, it is checked at once and dropped; newest first, it is kept for
    /// [`Audit::finish`].
    pub fn entry(&mut self, entry: Entry) {
        if self.oldest_first {
            return self.examine(&entry);
        }
        let seq = match &entry {
            Ok(event) => Some(event.sealed.chain_seq),
            Err(malformed) => malformed.chain_seq,
        };
        self.held.push(entry);
        if let Some(seq) = seq {
            // Newest first means that it falls all the way. Anything else is checked as it came, and breaks
            // where it is out of order.
            self.oldest_first = self.held_seqs > 0 && seq >= self.last_held_seq;
            self.held_seqs += 1;
            self.last_held_seq = seq;
        }
        if self.oldest_first {
            self.examine_held();
        }
    }

    pub fn finish(mut self) -> Outcome {
        if self.held_seqs > 1 {
            self.held.reverse();
        }
        self.examine_held();
        let last_seq = self.head.map_or(0, |head| head.chain_seq);
        if self.broken.is_none() {
            let beyond = self.noted.iter().find(|head| head.chain_seq > last_seq);
            self.broken = beyond.map(|head| Fault {
                at: last_seq + 1,
                hash: Some(head.hash),
                reason: Reason::Tail,
                problem: Some(format!("it was noted at chain_seq {}", head.chain_seq)),
            });
        }
        let first_seq = self.first_seq.unwrap_or(1);
        // The event before the first one is covered by the first one's `prev_hash`.
        let (unchecked, reached): (Vec<_>, Vec<NotedHead>) =
            self.noted.iter().partition(|head| head.chain_seq + 1 < first_seq);
        Outcome {
            checked: self.checked,
            first_seq,
            last_seq: self.broken.as_ref().map_or(last_seq, |broken| broken.at),
            confirmed: reached.iter().filter(|head| head.chain_seq <= last_seq).count(),
            unchecked,
            broken: self.broken,
            head: self.head,
            chain: self.chain,
        }
    }

    fn examine_held(&mut self) {
        for entry in std::mem::take(&mut self.held) {
            self.examine(&entry);
        }
    }

    fn examine(&mut self, entry: &Entry) {
        if self.broken.is_some() {
            return;
        }
        self.checked += 1;
        match entry {
            Ok(event) => {
                let (at, hash) = (event.sealed.chain_seq, event.sealed.hash);
                self.first_seq.get_or_insert(at);
                self.broken =
                    self.fault(event).map(|reason| Fault { at, hash: Some(hash), reason, problem: None });
                if self.broken.is_none() {
                    self.head = Some(NotedHead { chain_seq: at, hash });
                }
            }
            Err(malformed) => {
                let due = self.head.map_or(1, |head| head.chain_seq.saturating_add(1));
                let at = malformed.chain_seq.unwrap_or(due);
                self.first_seq.get_or_insert(at);
                self.broken = Some(Fault {
                    at,
                    hash: malformed.hash,
                    reason: Reason::Malformed,
                    problem: Some(malformed.problem.clone()),
                });
            }
        }
    }

    /// The first rule that the event breaks.
    fn fault(&mut self, event: &StoredEvent) -> Option<Reason> {
        let sealed = &event.sealed;
        let chain = (event.tenant_id, event.project_id);
        if *self.chain.get_or_insert(chain) != chain {
            return Some(Reason::Chain);
        }
        let noted_at =
            |seq: u64| self.noted.iter().filter(move |head| head.chain_seq == seq).map(|head| head.hash);
        let check = match &mut self.check {
            Some(check) => check,
            none => {
                let linked = match sealed.chain_seq {
                    0 => return Some(Reason::Gap),
                    1 => sealed.prev_hash == Hash::ZERO,
                    seq => noted_at(seq - 1).all(|hash| hash == sealed.prev_hash),
                };
                if !linked {
                    return Some(Reason::Link);
                }
                none.insert(Check::new(sealed.chain_seq, u64::MAX, Before::Unknown))
            }
        };
        check.event(event);
        if let Some(broken) = check.broken() {
            return Some(broken.reason);
        }
        noted_at(sealed.chain_seq).any(|hash| hash != sealed.hash).then_some(Reason::Head)
    }
}

/// Checks entries in memory.
pub fn audit(entries: impl IntoIterator<Item = Entry>, noted: Vec<NotedHead>) -> Outcome {
    let mut audit = Audit::new(noted);
    for entry in entries {
        audit.entry(entry);
    }
    audit.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_version_of_an_entry_is_read_and_a_wrong_one_does_not_make_it_malformed() {
        let event = r#"{"log_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","tenant_id":"018f3c5e-7a10-4b2d-9e44-5a617c02d831",
            "project_id":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",VERSION"action":"a.b","timestamp":"2026-11-14T12:00:01.250Z","chain_seq":2,
            "prev_hash":"ad08a66265ffd5d29c7e0e0831539e371cf5a3c99ee56369a2e925cb7fb4c315",
            "hash":"3299704b81fd9c42f59fbc139460a3da5c839260f83502548c5f7791390782fe"}"#;
        for (field, version) in [
            ("", 1),
            (r#""schema_version":1,"#, 1),
            (r#""schema_version":7,"#, 7),
            (r#""schema_version":"7","#, 1),
            (r#""schema_version":7,"schema_version":8,"#, 1),
        ] {
            let entry = parse_entry(&event.replace("VERSION", field)).unwrap().unwrap();
            assert_eq!(entry.schema_version, version, "{field}");
        }
    }
}
