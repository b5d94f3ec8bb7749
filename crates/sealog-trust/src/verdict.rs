//! What events, proofs and checkpoints show together, and what they do not.
//!
//! A [`Trial`] takes the events of an export as they are read, then judges by [`STEPS`]. Each step looks for
//! one kind of attack; a test leaves out each in turn. `tools/sealog_trust.py` and `tools/sealog_trust.mjs`
//! do the same in the same words, and the cases of `vectors/trust/verify.json` hold all three to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use sealog_core::audit::{self, Audit, NotedHead, Outcome};
use sealog_core::event::{Annotations, FIELDS, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode};
use sealog_core::json::{self, JsonError, Members};
use sealog_core::time;
use sealog_core::verify::Reason;

use crate::checkpoint::Checkpoint;
use crate::leaf::Tag;
use crate::merkle::{self, PROOF_HASHES_MAX, ProofError};
use crate::note::{Note, VerifierKey};
use crate::policy::{Accepted, Policy, Refused};
use crate::proof::{EventError, EventProof, HeadProof, Lead, Private, TlogProof};
use crate::text::{Malformed, decimal, hash, malformed};

/// Longest answer with a consistency proof.
pub const CONSISTENCY_BYTES_MAX: usize = 1 << 16;
/// A clock may be this wrong before a time counts as one.
const TIME_SLACK_MS: u64 = 600_000;
/// The year 10000 in Unix milliseconds: later times are shown as numbers.
const YEARS_END_MS: u64 = 253_402_300_800_000;

/// What is held against the events. Every value carries the name of its file.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Who is believed. Without it, no signature is checked.
    pub policy: Option<Policy>,
    /// Checkpoints that were kept.
    pub kept: Vec<(String, Kept)>,
    pub proofs: Vec<(String, Proof)>,
    pub consistency: Vec<(String, Consistency)>,
}

/// A policy of log keys alone.
pub fn policy_of_keys(vkeys: &[String]) -> Result<Policy, Malformed> {
    let mut text = String::new();
    for vkey in vkeys {
        let _ = writeln!(text, "log {}", VerifierKey::parse(vkey)?);
    }
    Policy::parse((text + "quorum none\n").as_bytes())
}

/// A checkpoint of which nothing is known until its signatures are.
#[derive(Clone, Debug)]
pub struct Kept {
    pub note: Note,
    pub checkpoint: Checkpoint,
}

impl Kept {
    pub fn parse(bytes: &[u8]) -> Result<Kept, Malformed> {
        let note = Note::parse(bytes)?;
        let checkpoint = Checkpoint::parse(note.text())?;
        Ok(Kept { note, checkpoint })
    }
}

/// A proof file of Sealog.
#[derive(Clone, Debug)]
pub struct Proof {
    pub file: TlogProof,
    pub checkpoint: Checkpoint,
    pub claim: Claim,
}

#[derive(Clone, Debug)]
pub enum Claim {
    Event(EventProof),
    Head(HeadProof),
}

impl Proof {
    pub fn parse(bytes: &[u8]) -> Result<Proof, Malformed> {
        let file = TlogProof::parse(bytes)?;
        let checkpoint = Checkpoint::parse(file.checkpoint.text())?;
        let extra = file.extra.as_deref().ok_or(malformed("extra", "must be there: it says of what"))?;
        let claim = if extra.starts_with(b"sealog/head-proof/") {
            Claim::Head(HeadProof::parse(extra)?)
        } else {
            Claim::Event(EventProof::parse(extra)?)
        };
        Ok(Proof { file, checkpoint, claim })
    }

    fn size(&self) -> u64 {
        match &self.claim {
            Claim::Event(proof) => proof.size,
            Claim::Head(proof) => proof.size,
        }
    }

    fn time_ms(&self) -> u64 {
        match &self.claim {
            Claim::Event(proof) => proof.head.time_ms,
            Claim::Head(proof) => proof.head.time_ms,
        }
    }

    fn event(&self) -> Option<&EventProof> {
        match &self.claim {
            Claim::Event(proof) => Some(proof),
            Claim::Head(_) => None,
        }
    }
}

/// That a tree of `from` leaves begins one of `to`: the answer of `/tlog/v1/store/consistency`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consistency {
    pub from: u64,
    pub to: u64,
    pub path: Vec<Hash>,
}

impl Consistency {
    pub fn parse(bytes: &[u8]) -> Result<Consistency, Malformed> {
        const FORM: &str = "must be a JSON object with `from`, `to` and `path`, each once";
        let form = || malformed("consistency", FORM);
        if bytes.len() > CONSISTENCY_BYTES_MAX {
            return Err(malformed("consistency", "must have at most 65536 bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("consistency", "must be UTF-8"))?;
        let text = json::canonical(text).map_err(|_| form())?;
        if !text.starts_with('{') {
            return Err(form());
        }
        let only = |name: &str| {
            let mut values = Members::of(&text).filter(|(key, _)| &key[1..key.len() - 1] == name);
            values.next().filter(|_| values.next().is_none()).map(|(_, value)| value).ok_or_else(form)
        };
        let number = |name: &str| decimal(only(name)?).ok_or_else(form);
        let (from, to) = (number("from")?, number("to")?);
        let list =
            only("path")?.strip_prefix('[').and_then(|list| list.strip_suffix(']')).ok_or_else(form)?;
        let mut path = Vec::new();
        for item in list.split(',').filter(|_| !list.is_empty()) {
            if path.len() == PROOF_HASHES_MAX {
                return Err(malformed("path", "has more hashes than a tree of any size needs"));
            }
            let item = item.strip_prefix('"').and_then(|item| item.strip_suffix('"')).ok_or_else(form)?;
            path.push(
                hash(item)
                    .ok_or_else(|| malformed("path", "must be 32 bytes in standard base64 with padding"))?,
            );
        }
        Ok(Consistency { from, to, path })
    }
}

/// A check under way.
#[derive(Debug)]
pub struct Trial {
    evidence: Evidence,
    audit: Option<Audit>,
    /// Texts of the events that have a proof, by `chain_seq`; empty until they are read.
    proved: BTreeMap<u64, String>,
    /// Times of the events around each proof's size.
    times: BTreeMap<u64, Option<u64>>,
    latest: Option<(u64, u64)>,
}

impl Trial {
    /// `noted` is None if there are no events to come.
    pub fn new(evidence: Evidence, noted: Option<Vec<NotedHead>>) -> Trial {
        let seqs = evidence.proofs.iter().filter_map(|(_, proof)| Some(proof.event()?.chain_seq));
        let proved = seqs.map(|seq| (seq, String::new())).collect();
        let sizes = evidence.proofs.iter().map(|(_, proof)| proof.size());
        let times = sizes.flat_map(|size| [size, size.saturating_add(1)]).map(|seq| (seq, None)).collect();
        Trial { evidence, audit: noted.map(Audit::new), proved, times, latest: None }
    }

    /// A proof of an event shows nothing without the event.
    pub fn needs_events(&self) -> Option<(&str, u64)> {
        let mut proofs = self.evidence.proofs.iter();
        let (name, proof) =
            proofs.find(|(_, proof)| proof.event().is_some()).filter(|_| self.audit.is_none())?;
        Some((name, proof.event()?.chain_seq))
    }

    pub fn wants_more(&self) -> bool {
        self.audit.as_ref().is_some_and(Audit::wants_more)
    }

    /// Takes the text of the next event.
    pub fn event(&mut self, text: &str) -> Result<(), JsonError> {
        let entry = audit::parse_entry(text)?;
        if let Ok(event) = &entry {
            let seq = event.sealed.chain_seq;
            if let Some(held) = self.proved.get_mut(&seq).filter(|held| held.is_empty()) {
                text.clone_into(held);
            }
            if let Some(time) = self.times.get_mut(&seq) {
                time.get_or_insert(event.timestamp_ms);
            }
            if self.latest.is_none_or(|(latest, _)| latest < seq) {
                self.latest = Some((seq, event.timestamp_ms));
            }
        }
        if let Some(audit) = &mut self.audit {
            audit.entry(entry);
        }
        Ok(())
    }

    pub fn judge(self) -> Verdict {
        self.judge_by(&STEPS)
    }

    /// Judges by some of the steps, for tests that leave one out.
    pub fn judge_by(mut self, steps: &[Step]) -> Verdict {
        let outcome = self.audit.take().map(Audit::finish);
        let mut state = State::new(&self, outcome);
        for step in steps {
            (step.run)(&mut state);
        }
        state.finish()
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Each attack that was found, the gravest first.
    pub faults: Vec<Fault>,
    pub shown: Vec<String>,
    pub not_shown: Vec<String>,
    /// Whether signatures were checked.
    pub signed: bool,
    /// Of the events; None if there were none to check.
    pub outcome: Option<Outcome>,
}

/// An attack by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: &'static str,
    pub attack: &'static str,
    /// The first event that is wrong, or the range that it lies in.
    pub at: Option<(u64, u64)>,
    pub text: String,
}

impl Verdict {
    /// For a person.
    pub fn in_words(&self) -> String {
        let mut text = String::new();
        for Fault { reason, attack, at, text: what } in &self.faults {
            let at = match at {
                Some((first, last)) if first == last => format!(" at chain_seq {first}"),
                Some((first, last)) => format!(" from chain_seq {first} to {last}"),
                None => String::new(),
            };
            let _ = writeln!(text, "BROKEN{at} ({reason}): {attack}\n  {what}");
        }
        if self.faults.is_empty() {
            text += if self.signed { "VALID\n" } else { "VALID, BUT NO SIGNATURE WAS CHECKED\n" };
            put_list(&mut text, "Shown:", &self.shown);
        }
        put_list(&mut text, "Not shown:", &self.not_shown);
        if let Some(head) = self.head() {
            let _ = writeln!(text, "Head, to be noted for the next time: {head}");
        }
        text
    }

    /// For a script, in one line.
    pub fn in_json(&self) -> String {
        let mut body = format!("{{\"valid\":{},\"signed\":{}", self.faults.is_empty(), self.signed);
        if let Some(outcome) = &self.outcome {
            let (first, last) = (outcome.first_seq, outcome.last_seq);
            let _ =
                write!(body, ",\"checked\":{},\"first_seq\":{first},\"last_seq\":{last}", outcome.checked);
        }
        let faults: Vec<String> = self.faults.iter().map(Fault::in_json).collect();
        let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",");
        let head = self.head().map_or("null".to_owned(), |head| format!("\"{head}\""));
        let _ = write!(
            body,
            ",\"faults\":[{}],\"shown\":[{}],\"not_shown\":[{}],\"head\":{head}}}",
            faults.join(","),
            list(if self.faults.is_empty() { &self.shown } else { &[] }),
            list(&self.not_shown)
        );
        body
    }

    /// Of a broken chain there is no head that anyone should note.
    fn head(&self) -> Option<NotedHead> {
        self.outcome.as_ref()?.head.filter(|_| self.faults.is_empty())
    }
}

impl Fault {
    fn in_json(&self) -> String {
        let at = self
            .at
            .map_or(String::new(), |(first, last)| format!(",\"broken_at\":{last},\"broken_from\":{first}"));
        let (reason, attack) = (quoted(self.reason), quoted(self.attack));
        format!("{{\"reason\":{reason},\"attack\":{attack}{at},\"message\":{}}}", quoted(&self.text))
    }
}

fn put_list(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(text, "{title}");
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::put_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Text from the input without what could steer a terminal: a forged event must not paint over its own
/// verdict.
pub fn printable(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let safe = |character: char| match character {
        ' '..='~' => character.to_string(),
        other => other.escape_unicode().to_string(),
    };
    let cut = if text.chars().nth(CHARACTERS_MAX).is_some() { "..." } else { "" };
    text.chars().take(CHARACTERS_MAX).map(safe).chain([cut.to_owned()]).collect()
}

fn shown_time(time_ms: u64) -> String {
    if time_ms < YEARS_END_MS { time::iso_ms(time_ms) } else { format!("{time_ms} ms") }
}

// ---- What the files say by themselves -------------------------------------------------------------------

/// A checkpoint, kept or in a proof.
struct Source<'a> {
    name: String,
    checkpoint: &'a Checkpoint,
    /// Nothing if no policy was given.
    signed: Option<Result<Accepted, Refused>>,
    /// A step has refused it: nothing that it says counts.
    is_refused: bool,
}

/// What a proof leads to.
enum Found {
    /// It is in its checkpoint's tree.
    Holds {
        tag: Tag,
        root: Hash,
        up_to: Option<Hash>,
        store_up_to: Hash,
    },
    /// The event lies before those given, or behind them, or behind a break.
    NotGiven,
    Field {
        name: String,
    },
    Event(EventError),
    /// The entry that it leads to is not in the store log.
    NotInLog,
    /// It has the wrong number of hashes for its place.
    Path(String),
}

/// A root of the first `size` leaves of a tree.
struct Root<T> {
    tree: T,
    size: u64,
    root: Hash,
    name: String,
}

struct State<'a> {
    trial: &'a Trial,
    outcome: Option<Outcome>,
    /// Kept checkpoints, then those of the proofs.
    sources: Vec<Source<'a>>,
    found: Vec<Found>,
    /// Which sizes of which log begin which.
    links: Vec<(String, u64, u64)>,
    faults: Vec<Fault>,
}

/// One check that finds one kind of attack.
pub struct Step {
    pub name: &'static str,
    run: fn(&mut State<'_>),
}

/// In the order of their gravity.
pub const STEPS: [Step; 16] = [
    Step { name: "signatures", run: |state| state.signatures() },
    Step { name: "quorum", run: |state| state.quorum() },
    Step { name: "fork", run: |state| state.fork() },
    Step { name: "consistency", run: |state| state.consistency() },
    Step { name: "rollback", run: |state| state.rollback() },
    Step { name: "chain fork", run: |state| state.chain_fork() },
    Step { name: "chain rollback", run: |state| state.chain_rollback() },
    Step { name: "heads", run: |state| state.heads() },
    Step { name: "chain", run: |state| state.chain() },
    Step { name: "fields", run: |state| state.fields() },
    Step { name: "schema", run: |state| state.schema() },
    Step { name: "erasure", run: |state| state.erasure() },
    Step { name: "leaves", run: |state| state.leaves() },
    Step { name: "owner", run: |state| state.owner() },
    Step { name: "tail", run: |state| state.tail() },
    Step { name: "time", run: |state| state.time() },
];

impl<'a> State<'a> {
    fn new(trial: &'a Trial, outcome: Option<Outcome>) -> State<'a> {
        let Evidence { policy, kept, proofs, .. } = &trial.evidence;
        let source = |name: &str, note: &Note, checkpoint: &'a Checkpoint| Source {
            name: printable(name),
            checkpoint,
            signed: policy.as_ref().map(|policy| policy.verify(note)),
            is_refused: false,
        };
        let kept = kept.iter().map(|(name, kept)| source(name, &kept.note, &kept.checkpoint));
        let proved =
            proofs.iter().map(|(name, proof)| source(name, &proof.file.checkpoint, &proof.checkpoint));
        let sources = kept.chain(proved).collect();
        let mut state =
            State { trial, outcome, sources, found: Vec::new(), links: Vec::new(), faults: Vec::new() };
        state.found = proofs.iter().map(|(_, proof)| state.find(proof)).collect();
        state
    }

    /// The first and the last event that passed.
    fn seqs(&self) -> Option<(u64, u64)> {
        let outcome = self.outcome.as_ref()?;
        Some((outcome.first_seq, outcome.head?.chain_seq))
    }

    fn find(&self, proof: &Proof) -> Found {
        let lead = match &proof.claim {
            Claim::Head(head) => match head.entry() {
                Ok(entry) => Lead { entry, tag: head.tag, root: head.root, up_to: head.root },
                Err(error) => return Found::Path(error.to_string()),
            },
            Claim::Event(claim) => {
                let text = self.trial.proved.get(&claim.chain_seq).filter(|text| !text.is_empty());
                let passed = self.seqs().filter(|(first, last)| (*first..=*last).contains(&claim.chain_seq));
                let (Some(text), Some(_)) = (text, passed) else { return Found::NotGiven };
                match uncovered(text) {
                    Some(Uncovered::Schema(schema_version)) => {
                        return Found::Event(EventError::Schema { schema_version });
                    }
                    Some(Uncovered::Field(name)) => return Found::Field { name },
                    None => {}
                }
                let event = match StoredEvent::parse_json(text) {
                    Ok(event) => event,
                    Err(problem) => return Found::Field { name: problem },
                };
                match claim.lead(&event) {
                    Ok(lead) => lead,
                    Err(EventError::Path(error)) => return Found::Path(error.to_string()),
                    Err(EventError::Trie(error)) => return Found::Path(error.to_string()),
                    Err(error) => return Found::Event(error),
                }
            }
        };
        let (leaf, checkpoint) = (merkle::leaf_hash(lead.entry.as_bytes()), &proof.checkpoint);
        let TlogProof { index, path, .. } = &proof.file;
        match merkle::verify_inclusion(leaf, *index, checkpoint.size, &checkpoint.root, path) {
            Ok(()) => {}
            Err(ProofError::Root) => return Found::NotInLog,
            Err(error) => return Found::Path(error.to_string()),
        }
        match merkle::root_up_to(leaf, *index, checkpoint.size, path) {
            Ok(store_up_to) => Found::Holds {
                tag: lead.tag,
                root: lead.root,
                up_to: proof.event().map(|_| lead.up_to),
                store_up_to,
            },
            Err(error) => Found::Path(error.to_string()),
        }
    }

    /// The proofs whose checkpoints are not refused, with what was found.
    fn proofs(&self) -> impl Iterator<Item = (&Source<'a>, &'a Proof, &Found)> {
        let kept = self.trial.evidence.kept.len();
        let proofs = self.trial.evidence.proofs.iter().zip(&self.found).enumerate();
        proofs
            .map(move |(at, ((_, proof), found))| (&self.sources[kept + at], proof, found))
            .filter(|(source, _, _)| !source.is_refused)
    }

    fn kept(&self) -> impl Iterator<Item = &Source<'a>> {
        self.sources[..self.trial.evidence.kept.len()].iter().filter(|source| !source.is_refused)
    }

    fn fault(&mut self, reason: &'static str, attack: &'static str, at: Option<(u64, u64)>, text: String) {
        self.faults.push(Fault { reason, attack, at, text });
    }

    // ---- Steps ------------------------------------------------------------------------------------------

    fn signatures(&mut self) {
        self.refuse(|source, refused| {
            let name = &source.name;
            Some(match refused {
                Refused::Origin { origin } => (
                    "origin",
                    "a checkpoint of an unknown log",
                    format!("{name} is of the log {}, and no key of that log was given.", printable(origin)),
                ),
                Refused::Signature { name: key } => (
                    "signature",
                    "a forged or damaged signature",
                    format!("The signature of {} in {name} does not fit the checkpoint.", printable(key)),
                ),
                Refused::Unsigned { origin } => (
                    "signature",
                    "a checkpoint that the log did not sign",
                    format!("No key that was given for the log {} signed {name}.", printable(origin)),
                ),
                Refused::Malformed(_) | Refused::Quorum { .. } => return None,
            })
        });
    }

    fn quorum(&mut self) {
        self.refuse(|source, refused| match refused {
            Refused::Quorum { cosigned, witnesses } => Some((
                "quorum",
                "too few witnesses",
                format!(
                    "{cosigned} of {witnesses} witnesses signed {}; the policy asks for more.",
                    source.name
                ),
            )),
            _ => None,
        });
    }

    fn refuse(
        &mut self,
        say: impl Fn(&Source<'_>, &Refused) -> Option<(&'static str, &'static str, String)>,
    ) {
        let mut found = Vec::new();
        for source in &mut self.sources {
            let Some(Err(refused)) = &source.signed else { continue };
            if let Some(fault) = say(source, refused) {
                found.push(fault);
                source.is_refused = true;
            }
        }
        for (reason, attack, text) in found {
            self.fault(reason, attack, None, text);
        }
    }

    /// Every root of a log that a checkpoint or a proof shows.
    fn roots(&self) -> Vec<Root<&'a str>> {
        let own = |source: &Source<'a>| Root {
            tree: source.checkpoint.origin.as_str(),
            size: source.checkpoint.size,
            root: source.checkpoint.root,
            name: source.name.clone(),
        };
        let mut roots: Vec<_> = self.kept().map(own).collect();
        for (source, proof, found) in self.proofs() {
            roots.push(own(source));
            if let Found::Holds { store_up_to, .. } = found {
                // An index is below a size, so there is room for one more.
                roots.push(Root { size: proof.file.index + 1, root: *store_up_to, ..own(source) });
            }
        }
        roots
    }

    fn fork(&mut self) {
        if let Some((one, other)) = differing(&self.roots()) {
            let (size, origin) = (amount(one.size, "entry"), printable(one.tree));
            self.fault(
                "fork",
                "two histories",
                None,
                format!(
                    "{} and {} have different roots for the first {size} of {origin}. Keep both files: they are the evidence.",
                    one.name, other.name
                ),
            );
        }
    }

    fn consistency(&mut self) {
        let roots = self.roots();
        let mut found = Vec::new();
        for (name, Consistency { from, to, path }) in &self.trial.evidence.consistency {
            let of = |size: u64| roots.iter().filter(move |root| root.size == size);
            let mut pairs = of(*from)
                .flat_map(|old| of(*to).filter(|new| new.tree == old.tree).map(move |new| (old, new)))
                .peekable();
            if pairs.peek().is_none() {
                continue;
            }
            let holds = |(old, new): &(&Root<&str>, &Root<&str>)| {
                merkle::verify_consistency(*from, &old.root, *to, &new.root, path).is_ok()
            };
            match pairs.find(holds) {
                Some((old, _)) => self.links.push((old.tree.to_owned(), *from, *to)),
                None => found.push(format!(
                    "{} does not show that the first {} begin the {to}. If it was made for these sizes, the log has two histories.",
                    printable(name),
                    amount(*from, "entry")
                )),
            }
        }
        for text in found {
            self.fault("fork", "two histories", None, text);
        }
    }

    fn rollback(&mut self) {
        let newest = newest(self.proofs().map(|(source, _, _)| source));
        let kept = newest.and_then(|newest| {
            let same = |source: &&Source<'_>| source.checkpoint.origin == newest.checkpoint.origin;
            largest(self.kept().filter(same))
        });
        let (Some(newest), Some(kept)) = (newest, kept) else { return };
        if kept.checkpoint.size > newest.checkpoint.size {
            let text = format!(
                "{} has {} of {}, and the newest proof, {}, only {}. If the proof was made before the checkpoint, ask for it again.",
                kept.name,
                amount(kept.checkpoint.size, "entry"),
                printable(&kept.checkpoint.origin),
                newest.name,
                newest.checkpoint.size
            );
            self.fault("rollback", "an older state was restored", None, text);
        }
    }

    fn chain_fork(&mut self) {
        let mut roots = Vec::new();
        for (source, proof, found) in self.proofs() {
            let Found::Holds { tag, root, up_to, .. } = found else { continue };
            let mut add =
                |size, root| roots.push(Root { tree: tag.0, size, root, name: source.name.clone() });
            add(proof.size(), *root);
            if let (Some(up_to), Some(event)) = (up_to, proof.event()) {
                add(event.chain_seq, *up_to);
            }
        }
        if let Some((one, other)) = differing(&roots) {
            let text = format!(
                "{} and {} have different roots for the first {} of one chain. Keep both files: they are the evidence.",
                one.name,
                other.name,
                amount(one.size, "event")
            );
            self.fault("fork", "two histories of a chain", None, text);
        }
    }

    fn chain_rollback(&mut self) {
        let mut held: Vec<(Tag, &str, u64, u64, &str)> = Vec::new();
        for (source, proof, found) in self.proofs() {
            if let Found::Holds { tag, .. } = found {
                let origin = source.checkpoint.origin.as_str();
                held.push((*tag, origin, proof.file.index, proof.size(), &source.name));
            }
        }
        held.sort_by_key(|(_, _, index, _, _)| *index);
        let pairs = held.iter().flat_map(|one| held.iter().map(move |other| (one, other)));
        let mut fallen = pairs.filter(|(one, other)| {
            (one.0, one.1) == (other.0, other.1) && one.2 < other.2 && one.3 > other.3
        });
        if let Some((one, other)) = fallen.next() {
            let text = format!(
                "The chain had {} in entry {} ({}), and has {} in the later entry {} ({}).",
                amount(one.3, "event"),
                one.2,
                one.4,
                other.3,
                other.2,
                other.4
            );
            self.fault("rollback", "the tail of a chain was cut off", None, text);
        }
    }

    fn heads(&mut self) {
        let mut found = Vec::new();
        let heads = self.proofs().filter(|(_, proof, _)| proof.event().is_none());
        for (source, proof, what) in heads {
            let error = match what {
                Found::NotInLog => "its entry is not in the checkpoint's tree",
                Found::Path(error) => error,
                _ => continue,
            };
            found.push(format!(
                "{} does not lead from a head of {} to its checkpoint: {error}.",
                source.name,
                amount(proof.size(), "event")
            ));
        }
        for text in found {
            self.fault("root", "a changed proof", None, text);
        }
    }

    fn chain(&mut self) {
        let Some(fault) = self.outcome.as_ref().and_then(|outcome| outcome.broken.as_ref()) else { return };
        let attack = match fault.reason {
            Reason::Malformed => "an event that cannot be read",
            Reason::Chain => "events of two chains",
            Reason::Gap => "events removed, added or moved",
            Reason::Link => "an event removed, added or replaced",
            Reason::Hash => "an event changed",
            Reason::Order => "an event that Sealog did not seal",
            Reason::Damaged => "a damaged record",
            Reason::Head => "history rewritten",
            Reason::Tail => "the tail was cut off",
        };
        let (reason, at) = (fault.reason, fault.at);
        let text = format!("Event #{at}: {}.", reason.explain());
        self.fault(reason.as_str(), attack, Some((at, at)), text);
    }

    /// The proofs of events that a step is about, in the order of the events.
    fn events(&self) -> Vec<(u64, &Source<'a>, &'a EventProof, &Found)> {
        let mut events: Vec<_> = self
            .proofs()
            .filter_map(|(source, proof, found)| {
                let event = proof.event()?;
                Some((event.chain_seq, source, event, found))
            })
            .collect();
        events.sort_by_key(|(seq, ..)| *seq);
        events
    }

    /// A fault for each proof of an event of which there is something to say.
    fn fault_events(
        &mut self,
        reason: &'static str,
        attack: &'static str,
        say: impl Fn(u64, &Found, &str) -> Option<String>,
    ) {
        let events = self.events();
        let said = events.iter().filter_map(|(seq, source, _, found)| {
            let text = say(*seq, found, &source.name)?;
            Some(Fault { reason, attack, at: Some((*seq, *seq)), text })
        });
        let said: Vec<Fault> = said.collect();
        self.faults.extend(said);
    }

    fn fields(&mut self) {
        self.fault_events("annotations", "a field that nothing covers", |seq, found, _| match found {
            Found::Field { name } => Some(format!(
                "The field {} of event #{seq} is not one that Sealog writes: neither its hash nor its proof covers it.",
                printable(name)
            )),
            _ => None,
        });
    }

    fn schema(&mut self) {
        self.fault_events("schema", "an unknown schema", |seq, found, _| match found {
            Found::Event(EventError::Schema { schema_version }) => Some(format!(
                "Event #{seq} has the schema_version {schema_version}, which this program does not know. Use a newer one."
            )),
            _ => None,
        });
    }

    fn erasure(&mut self) {
        self.fault_events(
            "annotations",
            "a change under a claim of erasure",
            |seq, found, name| match found {
                Found::Event(EventError::Annotations) => Some(format!(
                    "Event #{seq} shows private fields, and {name} has no salt to check them with."
                )),
                _ => None,
            },
        );
    }

    fn leaves(&mut self) {
        let Some((first, _)) = self.seqs() else { return };
        let events = self.events();
        let mut found = Vec::new();
        for (seq, source, _, what) in &events {
            let (seq, name) = (*seq, &source.name);
            let error = match what {
                Found::Path(error) => error,
                Found::Event(EventError::Leaf(error)) => &error.to_string(),
                Found::NotInLog => "",
                _ => continue,
            };
            // A proof that holds in another history says nothing about this one.
            let passed = events.iter().filter(|(_, other, _, found)| {
                matches!(found, Found::Holds { .. })
                    && self.is_one_history(source.checkpoint, other.checkpoint)
            });
            let passed: Vec<u64> = passed.map(|(seq, ..)| *seq).collect();
            let later = passed.iter().find(|later| **later > seq);
            let from = passed.iter().rev().find(|earlier| **earlier < seq).map_or(first, |before| before + 1);
            found.push(match later {
                _ if !error.is_empty() => {
                    let text = format!("{name} does not lead from event #{seq} to its checkpoint: {error}.");
                    ("root", "a changed proof", (seq, seq), text)
                }
                Some(later) => {
                    let text = format!(
                        "Event #{seq} is not the one in the log ({name}), although #{later} behind it is. So its hash is right, and a field outside the hash was changed, or the proof."
                    );
                    ("annotations", "a field outside the hash changed", (seq, seq), text)
                }
                None => {
                    let place = if from == seq {
                        format!("event #{seq}")
                    } else {
                        format!("one of #{from} to #{seq}")
                    };
                    let text = format!(
                        "Event #{seq} is not the one in the log ({name}). The first wrong event is {place}, unless the proof was changed: ask for it again."
                    );
                    ("leaf", "history rewritten", (from, seq), text)
                }
            });
        }
        for (reason, attack, at, text) in found {
            self.fault(reason, attack, Some(at), text);
        }
    }

    /// Whether a head can be that of the events.
    fn is_own(&self, tag: &Tag) -> bool {
        let chain = self.outcome.as_ref().and_then(|outcome| outcome.chain);
        chain.is_some_and(|(tenant_id, project_id)| {
            [Mode::Live, Mode::Test]
                .into_iter()
                .any(|mode| Tag::of(ChainId { tenant_id, project_id, mode }) == *tag)
        })
    }

    fn owner(&mut self) {
        if self.outcome.as_ref().is_none_or(|outcome| outcome.chain.is_none()) {
            return;
        }
        let mut found = Vec::new();
        for (source, _, what) in self.proofs() {
            if matches!(what, Found::Holds { tag, .. } if !self.is_own(tag)) {
                found.push(format!("{} is about another chain than the events given.", source.name));
            }
        }
        for text in found {
            self.fault("chain", "a proof of another chain", None, text);
        }
    }

    fn tail(&mut self) {
        let Some((_, last)) = self.seqs().filter(|_| self.is_sound()) else { return };
        let mut furthest: Option<(u64, String)> = None;
        for (source, proof, found) in self.proofs() {
            let (name, index) = (&source.name, proof.file.index);
            let (reach, what) = match (&proof.claim, found) {
                (Claim::Head(head), Found::Holds { tag, .. }) if self.is_own(tag) => (
                    head.size,
                    format!(
                        "The chain has {} in entry {index} of the log ({name})",
                        amount(head.size, "event")
                    ),
                ),
                (Claim::Event(event), Found::NotGiven) => {
                    (event.chain_seq, format!("{name} is about event #{}", event.chain_seq))
                }
                _ => continue,
            };
            if reach > furthest.as_ref().map_or(last, |(furthest, _)| *furthest) {
                furthest = Some((reach, what));
            }
        }
        if let Some((_, what)) = furthest {
            let text = format!(
                "{what}, and the events given end at #{last}. If they were exported before, export them again."
            );
            self.fault("tail", "the tail was cut off", Some((last + 1, last + 1)), text);
        }
    }

    fn time(&mut self) {
        let Some((_, last)) = self.seqs().filter(|_| self.is_sound()) else { return };
        let time_of = |seq: u64| self.trial.times.get(&seq).copied().flatten();
        let mut found = Vec::new();
        for (source, proof, what) in self.proofs() {
            if !matches!(what, Found::Holds { tag, .. } if self.is_own(tag)) {
                continue;
            }
            let (size, made_ms, index) = (proof.size(), proof.time_ms(), proof.file.index);
            let newest = if size >= last { self.trial.latest } else { time_of(size).map(|ms| (size, ms)) };
            let mut say = |seq: u64, ms: u64, rest: &str| {
                let (says, made) = (shown_time(ms), shown_time(made_ms));
                found.push((seq, format!("Event #{seq} says {says}, and entry {index} of the log, made at {made}, {rest} ({}).", source.name)));
            };
            if let Some((seq, ms)) = newest.filter(|(_, ms)| *ms > made_ms.saturating_add(TIME_SLACK_MS)) {
                say(seq, ms, "has it already");
            }
            let next = size.saturating_add(1);
            if let Some(ms) = time_of(next).filter(|ms| ms.saturating_add(TIME_SLACK_MS) < made_ms) {
                say(next, ms, "does not have it yet");
            }
        }
        for (seq, text) in found {
            self.fault("time", "a time that cannot be right", Some((seq, seq)), text);
        }
    }

    fn is_sound(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.broken.is_none())
    }

    // ---- In words ---------------------------------------------------------------------------------------

    fn finish(self) -> Verdict {
        let (shown, not_shown) = (self.shown(), self.not_shown());
        let signed = self.trial.evidence.policy.is_some();
        Verdict { faults: self.faults, shown, not_shown, signed, outcome: self.outcome }
    }

    /// The last event that a proof of an event reaches. Its hash covers those before it.
    fn reached(&self) -> Option<u64> {
        let events = self.events();
        events
            .iter()
            .rev()
            .find(|(_, _, _, found)| matches!(found, Found::Holds { .. }))
            .map(|(seq, ..)| *seq)
    }

    fn shown(&self) -> Vec<String> {
        let mut shown = Vec::new();
        if let (Some((first, last)), Some(outcome)) = (self.seqs(), &self.outcome) {
            shown.push(format!(
                "{}: every hash was computed again, and every event names the hash before it.",
                count(first, last)
            ));
            if outcome.confirmed > 0 {
                shown.push("The events agree with each head that was noted (--expect).".to_owned());
            }
        }
        for (source, proof, _) in self.proofs().filter(|(_, _, found)| matches!(found, Found::Holds { .. })) {
            let place = format!(
                "in entry {} of {}, made at {} ({})",
                proof.file.index,
                printable(&source.checkpoint.origin),
                shown_time(proof.time_ms()),
                source.name
            );
            shown.push(match &proof.claim {
                Claim::Head(head) => format!("The chain has {} {place}.", amount(head.size, "event")),
                Claim::Event(EventProof { private: Private::Salt(_), chain_seq, .. }) => {
                    format!("Event #{chain_seq} is, with all its fields, {place}.")
                }
                Claim::Event(EventProof { chain_seq, .. }) => {
                    format!("Event #{chain_seq} is, without its private fields, {place}.")
                }
            });
        }
        if let (Some((first, _)), Some(reached)) = (self.seqs(), self.reached())
            && first < reached
        {
            shown.push(format!(
                "So the hashed fields of events #{first} to #{reached} are those that the log has."
            ));
        }
        for source in self.sources.iter().filter(|source| !source.is_refused) {
            let Some(Ok(accepted)) = &source.signed else { continue };
            let mut text = format!(
                "{}: {} of {}, signed by the log",
                source.name,
                amount(source.checkpoint.size, "entry"),
                printable(&source.checkpoint.origin)
            );
            if let Some(latest) = accepted.cosigned.iter().map(|(_, time_s)| *time_s).max() {
                let count = accepted.cosigned.len();
                let all = self.trial.evidence.policy.as_ref().map_or(0, |policy| policy.witnesses().len());
                let latest = shown_time(latest.saturating_mul(1000));
                let _ = write!(text, " and by {count} of {all} witnesses, the latest at {latest}");
            }
            shown.push(text + ".");
        }
        for (kept, newest) in self.pairs() {
            if self.begins(kept.checkpoint, newest.checkpoint) {
                let size = |source: &Source<'_>| amount(source.checkpoint.size, "entry");
                let (from, to) = (size(kept), size(newest));
                shown.push(format!("{} ({from}) is the beginning of {} ({to}).", kept.name, newest.name));
            }
        }
        shown
    }

    /// Each kept checkpoint beside the newest of its log.
    fn pairs(&self) -> Vec<(&Source<'a>, &Source<'a>)> {
        let pair = |kept: &'_ Source<'a>| {
            let same = |source: &&Source<'a>| {
                !source.is_refused && source.checkpoint.origin == kept.checkpoint.origin
            };
            newest(self.sources.iter().filter(same))
        };
        let pairs = self.kept().filter_map(|kept| Some((kept, pair(kept)?)));
        pairs.filter(|(kept, newest)| !std::ptr::eq(*kept, *newest)).collect()
    }

    /// Whether it was shown that the older tree is the beginning of the newer one.
    fn begins(&self, old: &Checkpoint, new: &Checkpoint) -> bool {
        let mut links = self.links.clone();
        for (source, proof, found) in self.proofs() {
            if let Found::Holds { .. } = found {
                let Checkpoint { origin, size, .. } = source.checkpoint;
                links.push((origin.clone(), proof.file.index + 1, *size));
            }
        }
        // Down from the newer tree; sizes fall, so one pass over them in falling order is enough.
        links.sort_by_key(|(_, from, to)| std::cmp::Reverse((*to, *from)));
        let mut reached = BTreeSet::from([new.size]);
        for (_, from, to) in links.iter().filter(|(origin, _, _)| *origin == new.origin) {
            if reached.contains(to) {
                reached.insert(*from);
            }
        }
        (old.size == 0 && old.root == merkle::EMPTY_ROOT) || reached.contains(&old.size)
    }

    fn is_one_history(&self, one: &Checkpoint, other: &Checkpoint) -> bool {
        let (old, new) = if one.size <= other.size { (one, other) } else { (other, one) };
        old.origin == new.origin && (old.size < new.size || old.root == new.root) && self.begins(old, new)
    }

    fn not_shown(&self) -> Vec<String> {
        let evidence = &self.trial.evidence;
        let mut lines = Vec::new();
        match &evidence.policy {
            None => lines.push(
                "Who made these files: no key was given (--key, --policy), so anyone could have made them."
                    .to_owned(),
            ),
            Some(policy) if !policy.needs_witnesses() => lines.push(
                "That there is no second history: no witness is asked for, so the operator could have signed another one."
                    .to_owned(),
            ),
            Some(_) => {}
        }
        if evidence.proofs.is_empty() && self.outcome.is_some() {
            lines.push("That the events are in the log: no proof was given (--proof).".to_owned());
        }
        if evidence.kept.is_empty() {
            lines.push(
                "That the log was not rewritten or rolled back: no checkpoint that was kept earlier was given (--checkpoint)."
                    .to_owned(),
            );
        }
        for (kept, newest) in self.pairs() {
            let (from, to) = (kept.checkpoint.size, newest.checkpoint.size);
            if !self.begins(kept.checkpoint, newest.checkpoint) {
                lines.push(format!(
                    "That {} and {} are of one history: give the answer to /tlog/v1/store/consistency?from={from}&to={to} (--consistency).",
                    kept.name, newest.name
                ));
            }
        }
        let origins: BTreeSet<&str> =
            self.proofs().map(|(source, _, _)| source.checkpoint.origin.as_str()).collect();
        for kept in self
            .kept()
            .filter(|kept| !origins.is_empty() && !origins.contains(kept.checkpoint.origin.as_str()))
        {
            lines.push(format!("Anything by {}: it is of another log than the proofs.", kept.name));
        }
        for (name, Consistency { from, to, .. }) in &evidence.consistency {
            let roots = self.roots();
            let of = |size: u64| roots.iter().filter(move |root| root.size == size);
            if !of(*from).any(|old| of(*to).any(|new| new.tree == old.tree)) {
                lines.push(format!(
                    "Anything by {}: no two checkpoints of one log have the sizes {from} and {to}.",
                    printable(name)
                ));
            }
        }
        if let Some((first, last)) = self.seqs() {
            self.put_events_not_shown(first, last, &mut lines);
        }
        let made = self.proofs().filter(|(_, _, found)| matches!(found, Found::Holds { .. }));
        if let Some(made_ms) = made.map(|(_, proof, _)| proof.time_ms()).max() {
            lines.push(format!(
                "That the log has not grown since: the newest entry given was made at {}.",
                shown_time(made_ms)
            ));
        }
        lines
    }

    fn put_events_not_shown(&self, first: u64, last: u64, lines: &mut Vec<String>) {
        let outcome = self.outcome.as_ref();
        if first > 1 {
            lines.push(format!("{}: not given.", count(1, first - 1)));
        }
        for head in outcome.into_iter().flat_map(|outcome| &outcome.unchecked) {
            lines.push(format!("The head {head}: it lies before the events given."));
        }
        let (mut own, mut size) = (BTreeSet::new(), 0);
        for (source, proof, found) in self.proofs() {
            match (found, proof.event()) {
                (Found::Holds { .. }, Some(event)) => {
                    own.insert(event.chain_seq);
                    size = size.max(event.size);
                }
                (Found::NotGiven, Some(event)) if event.chain_seq < first => lines.push(format!(
                    "Anything by {}: it is about event #{}, which was not given.",
                    source.name, event.chain_seq
                )),
                _ => {}
            }
        }
        let reached = self.reached().unwrap_or(first - 1).max(first - 1);
        if reached < last && !self.trial.evidence.proofs.is_empty() {
            lines.push(format!(
                "{}: no proof of an event reaches this far, so only the hashes were checked.",
                count(reached + 1, last)
            ));
        }
        if size > last {
            lines.push(format!("{}: in the log, and not given.", count(last + 1, size)));
        }
        // One proof each, however often it was given.
        let bare = (last - first + 1).saturating_sub(own.len() as u64);
        if bare > 0 {
            lines.push(format!(
                "Fields outside the hash ({}) of the events without a proof of their own ({bare}).",
                Annotations::NAMES.join(", ")
            ));
        }
        for (seq, _, proof, found) in self.events() {
            if let (Private::Commitment(_), Found::Holds { .. }) = (&proof.private, found) {
                lines.push(format!("The private fields of event #{seq}: erased or withheld."));
            }
        }
    }
}

/// The checkpoint with the most entries; the first of several.
fn largest<'s, 'a>(sources: impl Iterator<Item = &'s Source<'a>>) -> Option<&'s Source<'a>>
where
    'a: 's,
{
    sources.reduce(|best, next| if next.checkpoint.size > best.checkpoint.size { next } else { best })
}

/// The same, but the last of several: proofs come behind kept checkpoints, and are what the server says
/// today.
fn newest<'s, 'a>(sources: impl Iterator<Item = &'s Source<'a>>) -> Option<&'s Source<'a>>
where
    'a: 's,
{
    sources.reduce(|best, next| if next.checkpoint.size >= best.checkpoint.size { next } else { best })
}

/// The first two roots of one tree and size that differ, by size, then in the order given.
fn differing<T: PartialEq>(roots: &[Root<T>]) -> Option<(&Root<T>, &Root<T>)> {
    let mut sorted: Vec<&Root<T>> = roots.iter().collect();
    sorted.sort_by_key(|root| root.size);
    let pairs = sorted.iter().enumerate().flat_map(|(at, one)| {
        let same_size = sorted[at + 1..].iter().take_while(move |other| other.size == one.size);
        same_size.map(move |other| (*one, *other))
    });
    pairs.into_iter().find(|(one, other)| one.tree == other.tree && one.root != other.root)
}

fn amount(count: u64, what: &str) -> String {
    match (count, what) {
        (1, what) => format!("1 {what}"),
        (many, "entry") => format!("{many} entries"),
        (many, what) => format!("{many} {what}s"),
    }
}

fn count(first: u64, last: u64) -> String {
    if first == last { format!("Event #{first}") } else { format!("Events #{first} to #{last}") }
}

/// Why a proof cannot speak for all of an event's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncovered {
    Schema(u32),
    Field(String),
}

/// The first field that neither the hash nor a leaf covers: one that Sealog does not write, that stands twice
/// or has another form than its own. Fields that the hash covers were checked before.
pub fn uncovered(text: &str) -> Option<Uncovered> {
    let object = json::canonical(text).ok()?;
    let mut seen = BTreeSet::new();
    let mut schema = None;
    let mut first = None;
    for (key, value) in Members::of(&object) {
        let name = &key[1..key.len() - 1];
        let is_right = match name {
            "schema_version" => {
                let number =
                    value.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == value);
                schema = number.filter(|number| *number != 1);
                value == "null" || number.is_some()
            }
            name if Annotations::NAMES.contains(&name) => {
                value == "null" || (value.starts_with('"') && json::decode(value).is_some())
            }
            name => FIELDS.iter().any(|field| field.name == name),
        };
        if (!seen.insert(key) || !is_right) && first.is_none() {
            first = Some(Uncovered::Field(name.to_owned()));
        }
    }
    schema.map(Uncovered::Schema).or(first)
}
