//! The cases of `vectors/trust/verify.json`: files, arguments, and what the three verifiers say to them.
//!
//! Each case names the reasons that are to come out. The words beside them are those of Rust, and the other
//! two programs have to find the same by themselves.

use std::collections::BTreeMap;

use sealog_core::audit::NotedHead;
use sealog_core::chain::Head as ChainHead;
use sealog_core::event::{self, Annotations, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, Random80, TenantId, Uuid};
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::heads_text;
use sealog_trust::heads::{Blind, Head, Trie, TrieProof};
use sealog_trust::leaf::{self, Tag};
use sealog_trust::merkle::{self, Plan};
use sealog_trust::note::{Note, Signature, SigningKey};
use sealog_trust::policy::Policy;
use sealog_trust::proof::{EventProof, HeadPath, HeadProof, Private, TlogProof};
use sealog_trust::verdict::{Consistency, Evidence, Kept, Proof, STEPS, Step, Trial, policy_of_keys};
use serde_json::{Value, json};

use super::{ORIGIN, add_order, b64, event_text, flipped, log, private_of, salt_keys, some_head, witness};

const START_MS: u64 = 1_794_657_600_000;
const CHAIN: ChainId = ChainId {
    tenant_id: TenantId(Uuid([0x11; 16])),
    project_id: ProjectId(Uuid([0x22; 16])),
    mode: Mode::Live,
};

// ---- What a case comes to -------------------------------------------------------------------------------

/// The exit code and the report of a case, or what is wrong with its input.
pub(crate) fn run(case: &Value, steps: &[Step]) -> (i32, String) {
    match trial(case) {
        Err(problem) => (2, problem),
        Ok((trial, is_json)) => {
            let verdict = trial.judge_by(steps);
            let text = if is_json { verdict.in_json() + "\n" } else { verdict.in_words() };
            (if verdict.faults.is_empty() { 0 } else { 10 }, text)
        }
    }
}

fn reasons(case: &Value) -> Vec<&'static str> {
    let (trial, _) = trial(case).expect("the case has a verdict");
    trial.judge().faults.iter().map(|fault| fault.reason).collect()
}

fn trial(case: &Value) -> Result<(Trial, bool), String> {
    let mut arguments =
        case["arguments"].as_array().expect("a list").iter().map(|text| text.as_str().unwrap());
    let read = |name: &str| case["files"][name].as_str().expect("the file is there").as_bytes().to_vec();
    let (mut evidence, mut keys, mut noted, mut files) =
        (Evidence::default(), Vec::new(), Vec::new(), Vec::new());
    let mut is_json = false;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("the option has a value").to_owned();
        match argument {
            "--json" => is_json = true,
            "--key" => keys.push(value()),
            "--expect" => noted.push(NotedHead::parse(&value()).expect("a head")),
            "--policy" => {
                let name = value();
                evidence.policy =
                    Some(Policy::parse(&read(&name)).map_err(|problem| format!("{name}: {problem}"))?);
            }
            "--checkpoint" => {
                let name = value();
                let kept = Kept::parse(&read(&name)).map_err(|problem| format!("{name}: {problem}"))?;
                evidence.kept.push((name, kept));
            }
            "--proof" => {
                let name = value();
                let proof = Proof::parse(&read(&name)).map_err(|problem| format!("{name}: {problem}"))?;
                evidence.proofs.push((name, proof));
            }
            "--consistency" => {
                let name = value();
                let proof =
                    Consistency::parse(&read(&name)).map_err(|problem| format!("{name}: {problem}"))?;
                evidence.consistency.push((name, proof));
            }
            file => files.push(read(file)),
        }
    }
    if !keys.is_empty() {
        evidence.policy = Some(policy_of_keys(&keys).map_err(|problem| format!("--key: {problem}"))?);
    }
    let mut trial = Trial::new(evidence, (!files.is_empty()).then_some(noted));
    if let Some((name, seq)) = trial.needs_events() {
        return Err(format!("{name}: give event #{seq}, too: the proof is about it"));
    }
    for file in files {
        for line in String::from_utf8(file).expect("UTF-8").lines() {
            if trial.wants_more() {
                trial.event(line).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok((trial, is_json))
}

// ---- A small world --------------------------------------------------------------------------------------

/// Six events; from `other_from` on they are not those that were sealed first. Each follows the one before by
/// a minute.
fn chain(other_from: u64) -> Vec<StoredEvent> {
    let (mut head, mut events) = (ChainHead::EMPTY, Vec::new());
    for seq in 1..=6u64 {
        let who = if seq < other_from { "u-17" } else { "u-99" };
        let body = format!(
            r#"{{"action":"document.updated","actor_id":"{who}","resource":"document/{seq}","metadata":{{"n":{seq}.0}}}}"#
        );
        let mut draft = event::parse_single(body.as_bytes()).expect("JSON").expect("an event");
        draft.annotations = Annotations {
            category: Some("data_access".into()),
            severity: Some("info".into()),
            ip_address: Some("203.0.113.9".into()),
            city: Some("Köln".into()),
            ..draft.annotations
        };
        let sealed = head.seal(CHAIN.tenant_id, &draft.text, START_MS + 60_000 * seq, Random80([3; 10]));
        head = sealed.head();
        events.push(StoredEvent::new(CHAIN, sealed, draft));
    }
    events
}

/// A store log. Every fourth entry or so has heads; the others are fillers of no kind that is known.
struct Log {
    entries: Vec<String>,
    /// By index: the chain's events then, and the way from its head to the entry.
    heads: BTreeMap<u64, (Vec<StoredEvent>, HeadPath)>,
}

/// `snapshots`: the index of an entry, and the events of the chain in it.
fn store(size: u64, filler: &str, snapshots: &[(u64, &[StoredEvent])]) -> Log {
    let mut log = Log { entries: Vec::new(), heads: BTreeMap::new() };
    for index in 0..size {
        let snapshot = snapshots.iter().find(|(at, _)| *at == index);
        let Some((_, events)) = snapshot else {
            // The first four entries are those of every log.
            log.entries.push(format!("{}\n{index}\n", if index < 4 { "test/filler/v1" } else { filler }));
            continue;
        };
        let (tag, blind) = (Tag::of(CHAIN), Blind([u8::try_from(index).expect("few entries"); 16]));
        let head = Head { tag, size: events.len() as u64, root: root_of(events), blind };
        let heads = (0..5).map(some_head).chain([head]).map(|head| (head.tag, head.hidden()));
        let trie = Trie::new(heads.collect()).expect("no tag comes twice");
        let TrieProof::Present { path } = trie.prove(&tag) else { panic!("the head is there") };
        let time_ms = START_MS + 60_000 * (index + 1);
        log.entries.push(heads_text(time_ms, &trie.root()));
        log.heads.insert(index, (events.to_vec(), HeadPath { time_ms, blind, path }));
    }
    log
}

fn leaf_of(event: &StoredEvent) -> Hash {
    leaf::leaf_hash(event, &private_of(event)).expect("the fields are short")
}

fn root_of(events: &[StoredEvent]) -> Hash {
    merkle::root_of(&events.iter().map(leaf_of).collect::<Vec<_>>())
}

fn proof_of(plan: &Plan, leaves: &[Hash]) -> Vec<Hash> {
    let nodes: Vec<Hash> = plan
        .nodes()
        .iter()
        .map(|node| {
            let (start, width) = (usize::try_from(node.index).expect("small") << node.level, 1 << node.level);
            merkle::root_of(&leaves[start..start + width])
        })
        .collect();
    plan.proof(&nodes).expect("a hash for each node")
}

impl Log {
    fn leaves(&self, size: u64) -> Vec<Hash> {
        let size = usize::try_from(size).expect("small");
        self.entries[..size].iter().map(|entry| merkle::leaf_hash(entry.as_bytes())).collect()
    }

    fn checkpoint(&self, size: u64) -> Checkpoint {
        Checkpoint { origin: ORIGIN.to_owned(), size, root: merkle::root_of(&self.leaves(size)) }
    }

    fn note(&self, size: u64) -> Note {
        signed(&self.checkpoint(size), &log())
    }

    fn file(&self, index: u64, size: u64, extra: String) -> TlogProof {
        let plan = Plan::inclusion(index, size).expect("the entry is in the tree");
        TlogProof {
            extra: Some(extra.into_bytes()),
            index,
            path: proof_of(&plan, &self.leaves(size)),
            checkpoint: self.note(size),
        }
    }

    fn head(&self, index: u64, size: u64) -> TlogProof {
        let (events, head) = &self.heads[&index];
        let proof = HeadProof {
            tag: Tag::of(CHAIN),
            size: events.len() as u64,
            root: root_of(events),
            head: head.clone(),
        };
        self.file(index, size, proof.to_string())
    }

    fn event_proof(&self, seq: u64, index: u64) -> EventProof {
        let (events, head) = &self.heads[&index];
        let leaves: Vec<Hash> = events.iter().map(leaf_of).collect();
        let plan = Plan::inclusion(seq - 1, leaves.len() as u64).expect("the event is in the tree");
        EventProof {
            mode: Mode::Live,
            chain_seq: seq,
            private: Private::Salt(salt_keys().salt(seq).expect("it was not erased")),
            size: leaves.len() as u64,
            path: proof_of(&plan, &leaves),
            head: head.clone(),
        }
    }

    fn event(&self, seq: u64, index: u64, size: u64) -> TlogProof {
        self.file(index, size, self.event_proof(seq, index).to_string())
    }

    fn consistency(&self, from: u64, to: u64) -> String {
        let plan = Plan::consistency(from, to).expect("the older is smaller");
        let path: Vec<String> = proof_of(&plan, &self.leaves(to)).iter().map(b64).collect();
        json!({"from": from, "to": to, "path": path}).to_string()
    }
}

fn signed(checkpoint: &Checkpoint, key: &SigningKey) -> Note {
    checkpoint.sign(&[key]).expect("a printable origin")
}

fn export(events: &[StoredEvent]) -> String {
    events.iter().map(|event| event_text(event) + "\n").collect()
}

/// A file whose text was changed in one place.
fn edited(file: &TlogProof, from: &str, to: &str) -> String {
    let extra = String::from_utf8(file.extra.clone().expect("it has one")).expect("UTF-8");
    if extra.contains(from) {
        return TlogProof { extra: Some(extra.replacen(from, to, 1).into_bytes()), ..file.clone() }
            .to_string();
    }
    let text = file.to_string();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

// ---- The cases ------------------------------------------------------------------------------------------

#[derive(Default)]
struct Cases {
    all: Vec<Value>,
    /// All that do not come out as they were thought out.
    wrong: Vec<String>,
}

impl Cases {
    /// `arguments` are separated by spaces. Only files that they name are part of the case.
    fn add(&mut self, name: &str, arguments: &str, files: &[(&str, String)], wanted: &[&str]) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let files: BTreeMap<&str, &String> = files
            .iter()
            .filter(|(name, _)| arguments.contains(name))
            .map(|(name, text)| (*name, text))
            .collect();
        let mut case = json!({"name": name, "arguments": arguments, "files": files, "reasons": wanted});
        let (exit, text) = run(&case, &STEPS);
        let found = if exit == 2 { vec!["malformed"] } else { reasons(&case) };
        if found != wanted {
            self.wrong.push(format!("{name}: {found:?} instead of {wanted:?}: {text}"));
        }
        case["exit"] = exit.into();
        case["text"] = text.into();
        self.all.push(case);
    }
}

pub(crate) fn cases() -> Vec<Value> {
    let mut cases = Cases::default();
    honest(&mut cases);
    attacks_on_events(&mut cases);
    attacks_on_logs(&mut cases);
    signatures(&mut cases);
    places(&mut cases);
    malformed(&mut cases);
    assert!(cases.wrong.is_empty(), "{}", cases.wrong.join("\n"));
    cases.all
}

/// What is right, with every way to say that something was not shown.
fn honest(cases: &mut Cases) {
    let events = chain(u64::MAX);
    let log = store(10, "test/filler/v1", &[(3, &events[..3]), (5, &events[..4]), (9, &events)]);
    let vkey = super::log().public().to_string();
    let key = |rest: &str| format!("--key {vkey} {rest}");
    let mut cosigned = log.event(6, 9, 10);
    let note = cosigned.checkpoint.clone();
    cosigned.checkpoint.signatures.push(witness(0).cosign(1_794_658_201, note.text()));
    cosigned.checkpoint.signatures.push(witness(1).cosign(1_794_658_205, note.text()));
    cosigned.checkpoint.signatures.push(witness(1).cosign(1_794_658_203, note.text()));
    let policy = format!(
        "# Two of three.\nlog {vkey}\nwitness W0 {}\nwitness W1 {}\nwitness W2 {}\ngroup G 2 W0 W1 W2\nquorum G\n",
        witness(0).key,
        witness(1).key,
        witness(2).key
    );
    let erased = StoredEvent {
        annotations: Annotations { ip_address: None, city: None, ..events[1].annotations.clone() },
        ..events[1].clone()
    };
    let committed =
        EventProof { private: Private::Commitment(private_of(&events[1])), ..log.event_proof(2, 9) };
    let mut twice = log.note(10);
    twice.signatures.push(twice.signatures[0].clone());
    let mut unknown = log.note(10);
    unknown.signatures.push(Signature { name: "other.example".into(), key_id: [1; 4], bytes: vec![2; 64] });
    let empty = Checkpoint { origin: ORIGIN.to_owned(), size: 0, root: merkle::EMPTY_ROOT };
    let largest = Checkpoint { origin: ORIGIN.to_owned(), size: i64::MAX as u64, root: Hash([7; 32]) };
    let foreign = SigningKey::new("other.example", &[9; 32]).expect("a good name");
    let foreign_note =
        signed(&Checkpoint { origin: "other.example".into(), size: 4, root: Hash([7; 32]) }, &foreign);
    let mut reversed = events.clone();
    reversed.reverse();
    let files = [
        ("events.ndjson", export(&events)),
        ("reversed.ndjson", export(&reversed)),
        ("two.ndjson", export(&events[1..2])),
        ("erased.ndjson", export(&[erased])),
        ("part.ndjson", export(&events[2..5])),
        ("2.tlog-proof", log.event(2, 9, 10).to_string()),
        ("2-early.tlog-proof", log.event(2, 3, 10).to_string()),
        ("5.tlog-proof", log.event(5, 9, 10).to_string()),
        ("6.tlog-proof", log.event(6, 9, 10).to_string()),
        ("cosigned.tlog-proof", cosigned.to_string()),
        ("erased.tlog-proof", log.file(9, 10, committed.to_string()).to_string()),
        ("head.tlog-proof", log.head(9, 10).to_string()),
        ("head-at-6.tlog-proof", log.head(5, 10).to_string()),
        ("kept-6", log.note(6).to_string()),
        ("kept-10", log.note(10).to_string()),
        ("twice-10", twice.to_string()),
        ("unknown-10", unknown.to_string()),
        ("empty", signed(&empty, &super::log()).to_string()),
        ("largest", signed(&largest, &super::log()).to_string()),
        ("foreign", foreign_note.to_string()),
        ("6-10.json", log.consistency(6, 10)),
        ("4-10.json", log.consistency(4, 10)),
        ("policy", policy),
    ];
    let mut good = |name: &str, arguments: &str| cases.add(name, arguments, &files, &[]);
    good("an event and its proof", &key("--proof 2.tlog-proof two.ndjson"));
    good("an event and its proof, in JSON", &key("--json --proof 2.tlog-proof two.ndjson"));
    good(
        "a whole export, proofs of its head and its last event, a kept checkpoint and its consistency",
        &key(
            "--checkpoint kept-6 --consistency 6-10.json --proof head.tlog-proof --proof 6.tlog-proof events.ndjson",
        ),
    );
    good(
        "the same in JSON",
        &key(
            "--json --checkpoint kept-6 --consistency 6-10.json --proof head.tlog-proof --proof 6.tlog-proof events.ndjson",
        ),
    );
    good("two of three witnesses", "--policy policy --proof cosigned.tlog-proof events.ndjson");
    good("no key", "--proof 2.tlog-proof two.ndjson");
    good("no proof", &key("events.ndjson"));
    good("an event whose private fields were erased", &key("--proof erased.tlog-proof erased.ndjson"));
    good("a part of a chain", &key("--proof 2.tlog-proof --proof 5.tlog-proof part.ndjson"));
    good("newest first", &key("--proof 2.tlog-proof --proof 6.tlog-proof reversed.ndjson"));
    good("two proofs of one event", &key("--proof 2.tlog-proof --proof 2-early.tlog-proof two.ndjson"));
    good("a head alone", &key("--proof head.tlog-proof"));
    good("a checkpoint alone", &key("--checkpoint kept-10"));
    good(
        "a kept checkpoint that is the proof's",
        &key("--checkpoint kept-10 --proof 6.tlog-proof events.ndjson"),
    );
    good(
        "two checkpoints and their consistency",
        &key("--checkpoint kept-6 --checkpoint kept-10 --consistency 6-10.json"),
    );
    good("two checkpoints without consistency", &key("--checkpoint kept-6 --checkpoint kept-10"));
    good(
        "a consistency proof of other sizes",
        &key("--checkpoint kept-6 --checkpoint kept-10 --consistency 4-10.json"),
    );
    good(
        "a proof of the last entry of a kept checkpoint shows that it begins the newer one",
        &key("--checkpoint kept-6 --proof head-at-6.tlog-proof --proof 6.tlog-proof events.ndjson"),
    );
    good("the checkpoint of an empty log", &key("--checkpoint empty --proof head.tlog-proof"));
    good("a checkpoint of 2^63 - 1 entries", &key("--checkpoint largest"));
    good("two signatures of one key", &key("--checkpoint twice-10"));
    good("a signature of an unknown key beside the log's", &key("--checkpoint unknown-10"));
    good(
        "a checkpoint of another log that is believed, too",
        &key(&format!("--key {} --checkpoint foreign --proof 2.tlog-proof two.ndjson", foreign.public())),
    );
    let head = NotedHead { chain_seq: 4, hash: events[3].sealed.hash };
    let early = NotedHead { chain_seq: 1, hash: events[0].sealed.hash };
    good("heads that were noted", &key(&format!("--expect {head} --proof 6.tlog-proof events.ndjson")));
    good(
        "a head that lies before the events",
        &key(&format!("--expect {early} --proof 5.tlog-proof part.ndjson")),
    );
}

/// Attacks of trust.md 12, rows 1 to 5, held against a proof that was kept or is asked for.
fn attacks_on_events(cases: &mut Cases) {
    let (events, other) = (chain(u64::MAX), chain(3));
    let log = store(10, "test/filler/v1", &[(3, &events[..3]), (9, &events)]);
    let vkey = super::log().public().to_string();
    let key = |rest: &str| format!("--key {vkey} {rest}");
    let changed = |change: &dyn Fn(&mut StoredEvent)| {
        let mut all = events.clone();
        change(&mut all[3]);
        export(&all)
    };
    let text = export(&events);
    let instead = |from: &str, to: &str| {
        let line = event_text(&events[3]);
        assert!(line.contains(from), "{from}");
        text.replace(&line, &line.replacen(from, to, 1))
    };
    let mut swapped = events.clone();
    swapped.swap(2, 3);
    let removed = [&events[..2], &events[3..]].concat();
    let mut foreign = events.clone();
    for event in &mut foreign {
        event.project_id.0.0[3] ^= 1;
    }
    let long = changed(&|event| event.annotations.category = Some("c".repeat(65_536).into()));
    let committed =
        EventProof { private: Private::Commitment(private_of(&events[3])), ..log.event_proof(4, 9) };
    // The log's clock, or the events': each is ten minutes and more away from the other.
    let mut late = chain(u64::MAX);
    let mut head = ChainHead::EMPTY;
    for event in &mut late {
        let at = START_MS
            + 60_000 * event.sealed.chain_seq
            + if event.sealed.chain_seq < 4 { 0 } else { 1_300_000 };
        event.sealed = head.seal(CHAIN.tenant_id, &event.text, at, Random80([3; 10]));
        event.timestamp_ms = at;
        head = event.sealed.head();
    }
    let late_log = store(10, "test/filler/v1", &[(9, &late)]);
    let early_log = store(40, "test/filler/v1", &[(3, &events[..3]), (30, &events[..4]), (39, &events)]);
    let files = [
        ("events.ndjson", text.clone()),
        ("cut.ndjson", export(&events[..3])),
        ("rewritten.ndjson", export(&other)),
        ("swapped.ndjson", export(&swapped)),
        ("removed.ndjson", export(&removed)),
        ("foreign.ndjson", export(&foreign)),
        ("long.ndjson", long),
        ("late.ndjson", export(&late)),
        ("address.ndjson", changed(&|event| event.annotations.ip_address = Some("203.0.113.8".into()))),
        ("severity.ndjson", changed(&|event| event.annotations.severity = Some("low".into()))),
        ("city.ndjson", changed(&|event| event.annotations.city = None)),
        ("actor.ndjson", instead("u-17", "u-18")),
        ("field.ndjson", instead("\"category\"", "\"approved_by\":\"the board\",\"category\"")),
        ("renamed.ndjson", instead("\"schema_version\"", "\"schema_versioo\"")),
        (
            "doubled.ndjson",
            instead(
                "\"category\":\"data_access\"",
                "\"category\":\"data_access\",\"category\":\"data_access\"",
            ),
        ),
        ("number.ndjson", instead("\"severity\":\"info\"", "\"severity\":1")),
        ("half.ndjson", instead("\"severity\":\"info\"", "\"severity\":\"\\ud800\"")),
        ("schema.ndjson", instead("\"schema_version\":1", "\"schema_version\":2")),
        ("schema-0.ndjson", instead("\"schema_version\":1", "\"schema_version\":0")),
        ("steering.ndjson", instead("\"category\"", "\"\\u001b[2J\u{202e}\":1,\"category\"")),
        ("2.tlog-proof", log.event(2, 9, 10).to_string()),
        ("4.tlog-proof", log.event(4, 9, 10).to_string()),
        ("5.tlog-proof", log.event(5, 9, 10).to_string()),
        ("6.tlog-proof", log.event(6, 9, 10).to_string()),
        ("erased.tlog-proof", log.file(9, 10, committed.to_string()).to_string()),
        ("head.tlog-proof", log.head(9, 10).to_string()),
        ("early-head.tlog-proof", log.head(3, 10).to_string()),
        ("late.tlog-proof", late_log.event(6, 9, 10).to_string()),
        ("backdated.tlog-proof", early_log.head(30, 40).to_string()),
    ];
    let mut bad =
        |name: &str, arguments: &str, wanted: &[&str]| cases.add(name, &key(arguments), &files, wanted);
    bad("the tail was cut off, and the head is known", "--proof head.tlog-proof cut.ndjson", &["tail"]);
    bad(
        "the tail was cut off, and a proof of an event in it is known",
        "--proof 5.tlog-proof cut.ndjson",
        &["tail"],
    );
    bad("the same, in JSON", "--json --proof 5.tlog-proof cut.ndjson", &["tail"]);
    bad("the tail was cut off twice", "--proof 5.tlog-proof --proof head.tlog-proof cut.ndjson", &["tail"]);
    bad("history was rewritten, and one proof is known", "--proof 5.tlog-proof rewritten.ndjson", &["leaf"]);
    bad(
        "history was rewritten, and the proof before it holds",
        "--proof 5.tlog-proof --proof 2.tlog-proof rewritten.ndjson",
        &["leaf"],
    );
    bad(
        "the same, in JSON with two proofs",
        "--json --proof 5.tlog-proof --proof 2.tlog-proof rewritten.ndjson",
        &["leaf"],
    );
    bad(
        "two proofs do not fit a rewritten history",
        "--proof 4.tlog-proof --proof 6.tlog-proof rewritten.ndjson",
        &["leaf", "leaf"],
    );
    for (name, file) in
        [("address", "address.ndjson"), ("severity", "severity.ndjson"), ("city removed", "city.ndjson")]
    {
        bad(&format!("another {name}, and its proof"), &format!("--proof 4.tlog-proof {file}"), &["leaf"]);
    }
    bad(
        "another severity, and a later proof holds",
        "--proof 4.tlog-proof --proof 6.tlog-proof severity.ndjson",
        &["annotations"],
    );
    bad("another severity, and only a later proof", "--proof 6.tlog-proof severity.ndjson", &[]);
    bad(
        "a private field is shown although it was erased",
        "--proof erased.tlog-proof address.ndjson",
        &["annotations"],
    );
    bad("an event was changed", "--proof 6.tlog-proof actor.ndjson", &["hash"]);
    bad("an event was removed from the middle", "--proof 6.tlog-proof removed.ndjson", &["gap"]);
    bad("two events were swapped", "--proof 6.tlog-proof swapped.ndjson", &["gap"]);
    bad("another project, which the hash does not cover", "--proof 6.tlog-proof foreign.ndjson", &["leaf"]);
    bad("the head of another chain", "--proof head.tlog-proof foreign.ndjson", &["chain"]);
    bad("a field that Sealog does not write", "--proof 4.tlog-proof field.ndjson", &["annotations"]);
    bad("a field with another name", "--proof 4.tlog-proof renamed.ndjson", &["annotations"]);
    bad("a field that stands twice", "--proof 4.tlog-proof doubled.ndjson", &["annotations"]);
    bad("a field that is no text", "--proof 4.tlog-proof number.ndjson", &["annotations"]);
    bad("a field with half of a character", "--proof 4.tlog-proof half.ndjson", &["annotations"]);
    bad(
        "a field whose name would steer a terminal",
        "--proof 4.tlog-proof steering.ndjson",
        &["annotations"],
    );
    bad("a later schema", "--proof 4.tlog-proof schema.ndjson", &["schema"]);
    bad("schema_version 0", "--proof 4.tlog-proof schema-0.ndjson", &["annotations"]);
    bad("a field that no leaf has room for", "--proof 4.tlog-proof long.ndjson", &["root"]);
    bad("an event from the future", "--proof late.tlog-proof late.ndjson", &["time"]);
    bad("an event that was dated back", "--proof backdated.tlog-proof events.ndjson", &["time"]);
    let head = NotedHead { chain_seq: 4, hash: events[3].sealed.hash };
    bad(
        "a noted head and a rewritten history",
        &format!("--expect {head} --proof 2.tlog-proof rewritten.ndjson"),
        &["head"],
    );
    bad(
        "a noted head and a cut tail",
        &format!("--expect {head} --proof early-head.tlog-proof cut.ndjson"),
        &["tail"],
    );
}

/// Rows 5 and 6: a store that was rolled back, and two histories, in one log or in two.
fn attacks_on_logs(cases: &mut Cases) {
    let (events, other) = (chain(u64::MAX), chain(3));
    let log = store(12, "test/filler/v1", &[(3, &events[..3]), (5, &events[..4]), (9, &events)]);
    // Restored at entry 4, then filled again.
    let fork = store(12, "test/filler/v2", &[(3, &events[..3]), (5, &other[..4]), (9, &other)]);
    // One log whose heads of the chain do not fit each other.
    let split =
        store(12, "test/filler/v1", &[(3, &events[..3]), (5, &other[..4]), (7, &events[..4]), (9, &events)]);
    let shrunk = store(12, "test/filler/v1", &[(3, &events[..3]), (5, &events[..5]), (9, &events[..4])]);
    let vkey = super::log().public().to_string();
    let key = |rest: &str| format!("--key {vkey} {rest}");
    let wrong = Checkpoint { origin: ORIGIN.to_owned(), size: 0, root: Hash([7; 32]) };
    let empty = Checkpoint { root: merkle::EMPTY_ROOT, ..wrong.clone() };
    let files = [
        ("events.ndjson", export(&events)),
        ("rewritten.ndjson", export(&other)),
        ("kept-6", log.note(6).to_string()),
        ("kept-10", log.note(10).to_string()),
        ("kept-12", log.note(12).to_string()),
        ("fork-10", fork.note(10).to_string()),
        ("fork-12", fork.note(12).to_string()),
        ("empty", signed(&empty, &super::log()).to_string()),
        ("empty-forged", signed(&wrong, &super::log()).to_string()),
        ("6.tlog-proof", log.event(6, 9, 10).to_string()),
        ("old-4.tlog-proof", log.event(4, 5, 6).to_string()),
        ("fork-6.tlog-proof", fork.event(6, 9, 12).to_string()),
        ("fork-head-at-6.tlog-proof", fork.head(5, 12).to_string()),
        ("6-12.json", log.consistency(6, 12)),
        ("fork-6-12.json", fork.consistency(6, 12)),
        ("split-head.tlog-proof", split.head(5, 12).to_string()),
        ("split-4.tlog-proof", split.event(4, 9, 12).to_string()),
        ("split-other-head.tlog-proof", split.head(7, 12).to_string()),
        ("long-head.tlog-proof", shrunk.head(5, 12).to_string()),
        ("short-head.tlog-proof", shrunk.head(9, 12).to_string()),
    ];
    let mut bad =
        |name: &str, arguments: &str, wanted: &[&str]| cases.add(name, &key(arguments), &files, wanted);
    bad(
        "an older state was restored",
        "--checkpoint kept-12 --proof 6.tlog-proof events.ndjson",
        &["rollback"],
    );
    bad("two checkpoints of one size differ", "--checkpoint kept-10 --checkpoint fork-10", &["fork"]);
    bad(
        "two checkpoints of one size differ, in JSON",
        "--json --checkpoint kept-10 --checkpoint fork-10",
        &["fork"],
    );
    bad(
        "a kept checkpoint has another root than the proof",
        "--checkpoint kept-12 --proof fork-6.tlog-proof rewritten.ndjson",
        &["fork"],
    );
    bad(
        "a proof shows another root at a kept size",
        "--checkpoint kept-10 --proof fork-6.tlog-proof rewritten.ndjson",
        &["fork"],
    );
    bad(
        "a head at a kept size shows another history",
        "--checkpoint kept-6 --proof fork-head-at-6.tlog-proof",
        &["fork"],
    );
    bad(
        "the consistency proof is that of another history",
        "--checkpoint kept-6 --checkpoint fork-12 --consistency fork-6-12.json",
        &["fork"],
    );
    bad(
        "the newer checkpoint is of another history",
        "--checkpoint kept-6 --checkpoint fork-12 --consistency 6-12.json",
        &["fork"],
    );
    bad(
        "history was rewritten, and nothing connects the checkpoints",
        "--checkpoint kept-6 --proof fork-6.tlog-proof rewritten.ndjson",
        &[],
    );
    bad(
        "an old proof and a rewritten history",
        "--checkpoint kept-6 --proof old-4.tlog-proof --proof fork-6.tlog-proof rewritten.ndjson",
        &["leaf"],
    );
    bad(
        "two heads of one size of a chain differ in one log",
        "--proof split-head.tlog-proof --proof split-other-head.tlog-proof",
        &["fork"],
    );
    bad(
        "a head and an event of one log do not fit",
        "--proof split-head.tlog-proof --proof split-4.tlog-proof events.ndjson",
        &["fork"],
    );
    bad(
        "a chain grows shorter in the log",
        "--proof short-head.tlog-proof --proof long-head.tlog-proof",
        &["rollback"],
    );
    bad("an empty log has another root", "--checkpoint empty --checkpoint empty-forged", &["fork"]);
}

/// Who signed, and who did not.
fn signatures(cases: &mut Cases) {
    let events = chain(u64::MAX);
    let log = store(10, "test/filler/v1", &[(9, &events)]);
    let vkey = super::log().public().to_string();
    let key = |rest: &str| format!("--key {vkey} {rest}");
    let file = log.event(4, 9, 10);
    let sealed = |note: Note| TlogProof { checkpoint: note, ..file.clone() }.to_string();
    let changed = |change: &dyn Fn(&mut Signature)| {
        let mut note = log.note(10);
        change(&mut note.signatures[0]);
        note
    };
    let imposter = SigningKey::new(ORIGIN, &[66; 32]).expect("a good name");
    let stranger = SigningKey::new("stranger.example", &[66; 32]).expect("a good name");
    let checkpoint = log.checkpoint(10);
    let lone = |signature: Signature| Note::new(checkpoint.to_string(), vec![signature]).expect("printable");
    let mut both = log.note(10);
    let mut broken = both.signatures[0].clone();
    broken.bytes[5] ^= 1;
    both.signatures.push(broken);
    let witnessed = |numbers: &[u8], change: bool| {
        let mut note = log.note(10);
        for number in numbers {
            let mut signature = witness(*number).cosign(1_794_658_201, note.text());
            signature.bytes[20] ^= u8::from(change);
            note.signatures.push(signature);
        }
        note
    };
    let other_origin = Checkpoint { origin: "log2.example".into(), ..checkpoint.clone() };
    let policy = format!(
        "log {vkey}\nwitness W0 {}\nwitness W1 {}\ngroup G all W0 W1\nquorum G\n",
        witness(0).key,
        witness(1).key
    );
    let files = [
        ("events.ndjson", export(&events)),
        ("unknown.tlog-proof", sealed(lone(imposter.sign(&checkpoint.to_string())))),
        ("stranger.tlog-proof", sealed(lone(stranger.sign(&checkpoint.to_string())))),
        ("broken.tlog-proof", sealed(changed(&|signature| signature.bytes[40] ^= 1))),
        ("order.tlog-proof", sealed(changed(&|signature| add_order(&mut signature.bytes[32..])))),
        ("cut.tlog-proof", sealed(changed(&|signature| signature.bytes.truncate(63)))),
        ("both.tlog-proof", sealed(both)),
        ("origin.tlog-proof", sealed(signed(&other_origin, &super::log()))),
        ("witness-0.tlog-proof", sealed(witnessed(&[0], false))),
        ("witness-0-twice.tlog-proof", sealed(witnessed(&[0, 0], false))),
        ("witness-broken.tlog-proof", sealed(witnessed(&[0, 1], true))),
        ("witnesses.tlog-proof", sealed(witnessed(&[0, 1], false))),
        ("kept-broken", changed(&|signature| signature.bytes[3] ^= 1).to_string()),
        ("policy", policy),
    ];
    let mut bad = |name: &str, arguments: &str, wanted: &[&str]| cases.add(name, arguments, &files, wanted);
    bad(
        "a valid signature by an unknown key of the log's name",
        &key("--proof unknown.tlog-proof events.ndjson"),
        &["signature"],
    );
    bad(
        "a valid signature by an unknown key of another name",
        &key("--proof stranger.tlog-proof events.ndjson"),
        &["signature"],
    );
    bad(
        "a known key with a broken signature",
        &key("--proof broken.tlog-proof events.ndjson"),
        &["signature"],
    );
    bad("a broken checkpoint, in JSON", &key("--json --checkpoint kept-broken"), &["signature"]);
    bad("a scalar above the group's order", &key("--proof order.tlog-proof events.ndjson"), &["signature"]);
    bad("a signature of 63 bytes", &key("--proof cut.tlog-proof events.ndjson"), &["signature"]);
    bad(
        "a good and a broken signature of one key",
        &key("--proof both.tlog-proof events.ndjson"),
        &["signature"],
    );
    bad("a log of another origin", &key("--proof origin.tlog-proof events.ndjson"), &["origin"]);
    bad("one of two witnesses", "--policy policy --proof witness-0.tlog-proof events.ndjson", &["quorum"]);
    bad(
        "one witness twice instead of two",
        "--policy policy --proof witness-0-twice.tlog-proof events.ndjson",
        &["quorum"],
    );
    bad(
        "a witness with a broken signature",
        "--policy policy --proof witness-broken.tlog-proof events.ndjson",
        &["signature"],
    );
    bad("both witnesses", "--policy policy --proof witnesses.tlog-proof events.ndjson", &[]);
    bad("a broken signature that is not checked", "--proof broken.tlog-proof events.ndjson", &[]);
}

/// Single bits and places of a proof.
fn places(cases: &mut Cases) {
    let events = chain(u64::MAX);
    let log = store(10, "test/filler/v1", &[(9, &events)]);
    let vkey = super::log().public().to_string();
    let (file, head) = (log.event(4, 9, 10), log.head(9, 10));
    let proof = log.event_proof(4, 9);
    let mut add = |name: &str, text: String, wanted: &[&str]| {
        let files = [("x.tlog-proof", text), ("events.ndjson", export(&events))];
        cases.add(
            &format!("proof: {name}"),
            &format!("--key {vkey} --proof x.tlog-proof events.ndjson"),
            &files,
            wanted,
        );
    };
    let bit = |change: &dyn Fn(&mut EventProof)| {
        let mut proof = proof.clone();
        change(&mut proof);
        log.file(9, 10, proof.to_string()).to_string()
    };
    let Private::Salt(mut salt) = proof.private else { panic!("it has a salt") };
    salt.0[7] ^= 0x10;
    add("a changed bit of the salt", bit(&|proof| proof.private = Private::Salt(salt)), &["leaf"]);
    add(
        "a changed bit of the path to the chain's root",
        bit(&|proof| proof.path[1] = flipped(proof.path[1])),
        &["leaf"],
    );
    add("a changed bit of the blind", bit(&|proof| proof.head.blind.0[0] ^= 1), &["leaf"]);
    add(
        "a changed bit of the path to the trie's root",
        bit(&|proof| proof.head.path[0] = flipped(proof.head.path[0])),
        &["leaf"],
    );
    add("a changed bit of the entry's time", bit(&|proof| proof.head.time_ms ^= 1), &["leaf"]);
    add("the other mode", edited(&file, "mode live", "mode test"), &["leaf"]);
    let mut other = file.clone();
    other.path[0] = flipped(other.path[0]);
    add("a changed bit of the path to the checkpoint", other.to_string(), &["leaf"]);
    add("another index", edited(&file, "index 9", "index 8"), &["leaf"]);
    add("an index behind the tree", edited(&file, "index 9", "index 10"), &["root"]);
    add("an index of 2^63 - 1", edited(&file, "index 9", "index 9223372036854775807"), &["root"]);
    add("a proof for a tree of another size", edited(&file, "size 6", "size 7"), &["leaf"]);
    add("a proof for a tree of a size with longer paths", edited(&file, "size 6", "size 9"), &["root"]);
    add("a chain of 2^63 - 1 events", edited(&file, "size 6", "size 9223372036854775807"), &["root"]);
    add("a chain without the event", edited(&file, "size 6", "size 3"), &["root"]);
    add("seq 0", edited(&file, "seq 4", "seq 0"), &[]);
    let longer = Checkpoint { size: 11, ..log.checkpoint(10) };
    let longer = TlogProof { checkpoint: signed(&longer, &super::log()), ..file.clone() };
    add("a signed checkpoint of another size", longer.to_string(), &["root"]);
    let huge = Checkpoint { size: i64::MAX as u64, ..log.checkpoint(10) };
    let huge = TlogProof { checkpoint: signed(&huge, &super::log()), ..file.clone() };
    add("a signed checkpoint of 2^63 - 1 entries", huge.to_string(), &["root"]);
    let root = TlogProof {
        checkpoint: signed(
            &Checkpoint { root: flipped(log.checkpoint(10).root), ..log.checkpoint(10) },
            &super::log(),
        ),
        ..file.clone()
    };
    add("a signed checkpoint of another root", root.to_string(), &["leaf"]);
    add("a changed size in the checkpoint", edited(&file, "\n10\n", "\n11\n"), &["signature"]);
    let hash = format!("{}\n", b64(&Hash([7; 32])));
    let path_end = format!("{}\n\n", b64(file.path.last().expect("a path")));
    let more = |count: usize| {
        edited(&file, &path_end, &format!("{}{}\n", &path_end[..path_end.len() - 1], hash.repeat(count)))
    };
    add("63 hashes", more(63 - file.path.len()), &["root"]);
    add("64 hashes", more(64 - file.path.len()), &["malformed"]);
    let size = |count: usize| edited(&file, "size 6\n", &format!("size 6\n{}", hash.repeat(count)));
    add("63 hashes to the chain's root", size(63 - proof.path.len()), &["root"]);
    add("64 hashes to the chain's root", size(64 - proof.path.len()), &["malformed"]);
    let HeadProof { tag, size, root, head: path } =
        HeadProof::parse(head.extra.as_deref().expect("it has one")).expect("a head");
    let other = HeadProof { tag, size, root: flipped(root), head: path.clone() };
    add("a changed bit of the head's root", log.file(9, 10, other.to_string()).to_string(), &["root"]);
    let other = HeadProof { tag, size: 5, root, head: path.clone() };
    add("a head of another size", log.file(9, 10, other.to_string()).to_string(), &["root"]);
    let other = HeadProof { tag: Tag(flipped(tag.0)), size, root, head: path };
    add("a changed bit of the head's tag", log.file(9, 10, other.to_string()).to_string(), &["root"]);
}

/// Input that is no input: exit code 2 and a reason.
fn malformed(cases: &mut Cases) {
    let events = chain(u64::MAX);
    let log = store(10, "test/filler/v1", &[(9, &events)]);
    let vkey = super::log().public().to_string();
    let (file, note) = (log.event(4, 9, 10), log.note(10));
    let text = export(&events);
    let wrong = &["malformed"][..];
    cases.add(
        "a proof of an event without the event",
        &format!("--key {vkey} --proof x"),
        &[("x", file.to_string())],
        wrong,
    );
    let mut proof = |name: &str, content: String| {
        let files = [("x", content), ("events.ndjson", text.clone())];
        cases.add(
            &format!("malformed proof: {name}"),
            &format!("--key {vkey} --proof x events.ndjson"),
            &files,
            wrong,
        );
    };
    proof("nothing", String::new());
    proof("another header", edited(&file, "tlog-proof@v1", "tlog-proof@v2"));
    proof("no extra", TlogProof { extra: None, ..file.clone() }.to_string());
    proof("an extra that is not base64", edited(&file, "extra ", "extra ."));
    proof("no index", edited(&file, "index 9\n", ""));
    proof("an index with a leading zero", edited(&file, "index 9", "index 09"));
    proof("an index of 2^63", edited(&file, "index 9", "index 9223372036854775808"));
    proof("a hash that is too short", edited(&file, "index 9\n", "index 9\nAAAA\n"));
    proof("no empty line before the checkpoint", edited(&file, "\n\nlog", "\nlog"));
    proof("another kind", edited(&file, "event-proof/v1", "event-proof/v2"));
    proof("an unknown mode", edited(&file, "mode live", "mode dead"));
    proof("no mode", edited(&file, "mode live\n", ""));
    proof("a seq that is no number", edited(&file, "seq 4", "seq four"));
    proof("a salt in upper case", edited(&file, "\nsalt ", "\nsalt A"));
    proof("a size of 2^63", edited(&file, "size 6", "size 9223372036854775808"));
    proof("no empty line before the time", edited(&file, "\n\ntime", "\ntime"));
    proof("a line too many", edited(&file, "\nblind", "\nline 1\nblind"));
    proof("a short blind", edited(&file, "\nblind 09", "\nblind "));
    proof("a head of another version", edited(&log.head(9, 10), "head-proof/v1", "head-proof/v2"));
    proof("a short tag", edited(&log.head(9, 10), "tag ", "tag 0"));
    let mut checkpoint = |name: &str, content: String| {
        cases.add(
            &format!("malformed checkpoint: {name}"),
            &format!("--key {vkey} --checkpoint x"),
            &[("x", content)],
            wrong,
        );
    };
    let note_text = note.to_string();
    let edit = |from: &str, to: &str| {
        assert!(note_text.contains(from), "{from}");
        note_text.replacen(from, to, 1)
    };
    checkpoint("nothing", String::new());
    checkpoint("no signature", note.text().to_owned());
    checkpoint("no line feed at its end", note_text.trim_end().to_owned());
    checkpoint("a line more", edit("=\n\n", "=\nmore\n\n"));
    checkpoint("a size of 2^63", edit("\n10\n", "\n9223372036854775808\n"));
    checkpoint("a negative size", edit("\n10\n", "\n-1\n"));
    checkpoint(
        "a root of 31 bytes",
        Checkpoint::to_string(&log.checkpoint(10)).replace(&b64(&log.checkpoint(10).root), "AAAA")
            + "\n"
            + &log.note(10).signatures[0].to_string()
            + "\n",
    );
    checkpoint("an empty origin", edit("log.example\n", "\n"));
    checkpoint("a control character", edit("log.example\n", "log\t.example\n"));
    checkpoint("a signature that is not base64", edit("— log.example ", "— log.example ."));
    checkpoint("a signature of no name", edit("— log.example ", "—  "));
    checkpoint(
        "65 signatures",
        format!("{}\n{}", note.text(), format!("{}\n", note.signatures[0]).repeat(65)),
    );
    let mut key = |name: &str, vkey: &str| {
        cases.add(
            &format!("malformed key: {name}"),
            &format!("--key {vkey} --checkpoint x"),
            &[("x", note_text.clone())],
            wrong,
        );
    };
    key("no key in it", "log.example");
    key("another id", &vkey.replacen("+1c", "+1d", 1));
    let mut bytes = [0u8; 33];
    bytes[0] = 1;
    key("a point of small order", &super::raw_vkey("log.example", 1, &bytes[1..]));
    key("a key of 31 bytes", &super::raw_vkey("log.example", 1, &bytes[2..]));
    key("another type", &super::raw_vkey("log.example", 6, &bytes[1..]));
    // The base point: nothing is wrong with it but that it has no name.
    let mut base = [0x66u8; 32];
    base[0] = 0x58;
    key("no name", &super::raw_vkey("", 1, &base));
    key("a witness's", &witness(0).key.to_string());
    key("the same twice", &format!("{vkey} --key {vkey}"));
    let mut policy = |name: &str, content: &str| {
        cases.add(
            &format!("malformed policy: {name}"),
            "--policy p --checkpoint x",
            &[("x", note_text.clone()), ("p", content.to_owned())],
            wrong,
        );
    };
    let w0 = witness(0).key.to_string();
    policy("nothing", "");
    policy("no quorum", &format!("log {vkey}\n"));
    policy("no line feed at its end", &format!("log {vkey}\nquorum none"));
    policy("an unknown line", &format!("log {vkey}\nlogs\nquorum none\n"));
    policy("a log without a key", "log\nquorum none\n");
    policy("a witness as a log", &format!("log {w0}\nquorum none\n"));
    policy("a log as a witness", &format!("witness W {vkey}\nquorum none\n"));
    policy("the same log twice", &format!("log {vkey}\nlog {vkey}\nquorum none\n"));
    policy("a witness of no key", &format!("log {vkey}\nwitness W\nquorum W\n"));
    policy("a member that is not defined", &format!("log {vkey}\ngroup G any W\nquorum G\n"));
    policy(
        "a member of two groups",
        &format!("log {vkey}\nwitness W {w0}\ngroup G any W\ngroup H any W\nquorum G\n"),
    );
    policy("a group that needs too many", &format!("log {vkey}\nwitness W {w0}\ngroup G 2 W\nquorum G\n"));
    policy("a group without members", &format!("log {vkey}\ngroup G\nquorum G\n"));
    policy("a name twice", &format!("log {vkey}\nwitness W {w0}\ngroup W any W\nquorum W\n"));
    policy("two quorums", &format!("log {vkey}\nquorum none\nquorum none\n"));
    policy("a quorum of nothing", &format!("log {vkey}\nquorum W\n"));
    policy("a quorum of two words", &format!("log {vkey}\nquorum a b\n"));
    policy("a control character", &format!("log {vkey}\n\u{1}\nquorum none\n"));
    let mut consistency = |name: &str, content: &str| {
        cases.add(
            &format!("malformed consistency: {name}"),
            "--consistency c --checkpoint x",
            &[("x", note_text.clone()), ("c", content.to_owned())],
            wrong,
        );
    };
    consistency("nothing", "");
    consistency("no JSON", "{from:1}");
    consistency("a list", "[1,2]");
    consistency("no path", r#"{"from":6,"to":10}"#);
    consistency("a path that is no list", r#"{"from":6,"to":10,"path":"x"}"#);
    consistency("a number as a hash", r#"{"from":6,"to":10,"path":[1]}"#);
    consistency("a short hash", r#"{"from":6,"to":10,"path":["AAAA"]}"#);
    consistency("a size of 2^63", r#"{"from":6,"to":9223372036854775808,"path":[]}"#);
    consistency("a fraction", r#"{"from":6.0,"to":10,"path":[]}"#);
    consistency("a field twice", r#"{"from":6,"from":6,"to":10,"path":[]}"#);
    let hash = b64(&Hash([7; 32]));
    consistency("64 hashes", &json!({"from": 6, "to": 10, "path": vec![hash; 64]}).to_string());
}
