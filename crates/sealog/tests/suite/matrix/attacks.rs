//! The attacks, in the order of the table.

use std::path::Path;

use sealog_core::event::StoredEvent;
use sealog_core::id::Random80;
use sealog_testing::eventually;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::leaf;
use sealog_trust::note::{KeyKind, SigningKey, VerifierKey};
use sealog_trust::proof::{EventProof, HeadProof, Private, TlogProof};
use serde_json::{Value, json};

use super::home::{Home, TOKEN, rechain};
use super::{EXPORT, Files, KEPT, POLICY, Shown};
use crate::support::*;

pub(super) struct Attack {
    pub id: &'static str,
    pub what: &'static str,
    /// Who has to find it, as the table shows it: V, T, E, C.
    pub cells: &'static str,
    pub perform: fn(&Base, &Path) -> Shown,
}

macro_rules! attacks {
    ($($id:literal $what:literal $cells:literal $perform:expr;)*) => {
        pub(super) const ATTACKS: &[Attack] =
            &[$(Attack { id: $id, what: $what, cells: $cells, perform: $perform }),*];
    };
}

attacks! {
    "0" "none, to compare with" "– – – –" |base, dir| base.go_on(dir, &[], Trust::Kept);
    "1" "change a hashed field" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &hashed_field(base), Trust::Kept);
    "1′" "the same, and `trust/` rewritten" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &hashed_field(base), Trust::Rewritten);
    "1b" "change an annotation (`ip_address`)" "– ✔ – ✔" |base, dir| base.go_on(dir, &annotation(base), Trust::Kept);
    "1b′" "the same, and `trust/` rewritten" "– – – ✔" |base, dir| base.go_on(dir, &annotation(base), Trust::Rewritten);
    "1c" "change a private field and claim that it was erased" "– ✔ – ✔" erasure;
    "2" "delete from the middle" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &middle(base), Trust::Kept);
    "2′" "the same, and `trust/` rewritten" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &middle(base), Trust::Rewritten);
    "3" "delete the tail, marks rewritten" "✔ ✔ – ✔" |base, dir| base.go_on(dir, &base.events[..3], Trust::Kept);
    "3′" "the same, and `trust/` rewritten" "– – – ✔" |base, dir| base.go_on(dir, &base.events[..3], Trust::Rewritten);
    "3″" "the same, with an export from before" "– – – ✔" |base, dir| {
        let mut shown = base.go_on(dir, &base.events[..3], Trust::Rewritten);
        shown.files.insert(EXPORT.into(), base.files[EXPORT].clone());
        shown
    };
    "4" "swap two events" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &swapped(base), Trust::Kept);
    "4′" "the same, and `trust/` rewritten" "✔ ✔ ✔ ✔" |base, dir| base.go_on(dir, &swapped(base), Trust::Rewritten);
    "5" "re-chain from an event on, all hashes recomputed" "✔ ✔ – ✔" |base, dir| base.go_on(dir, &rechained(base), Trust::Kept);
    "5′" "the same, and `trust/` rewritten" "– – – ✔" |base, dir| base.go_on(dir, &rechained(base), Trust::Rewritten);
    "6a" "roll the whole store back, keys and all" "– – – ✔" roll_back;
    "6b" "split view: two store logs; the proof of consistency is withheld" "– – – ✔" |base, dir| split(base, dir, "grown.json");
    "6b′" "the same; old heads are withheld instead" "– – – ✔" |base, dir| split(base, dir, "kept-head.tlog-proof");
    "6c" "split view inside one log: the chain's head alternates" "– – – –" |base, dir| alternating(base, dir, false);
    "6c′" "the same, for who kept a head proof of the other view" "– – – ✔" |base, dir| alternating(base, dir, true);
    "7" "date an event two hours ahead" "– – – ✔" |base, dir| base.go_on(dir, &dated_ahead(base), Trust::Kept);
    "8" "show a field that nothing covers" "– – – ✔" |base, _| base.with_last_event(|event| event["approved"] = json!("yes"));
    "9" "claim a `schema_version` that has other rules" "– – – ✔" |base, _| base.with_last_event(|event| event["schema_version"] = json!(2));
    "10" "invent a head that the log does not have" "– – – ✔" invented_head;
    "11" "give the head of another chain" "– – – ✔" |base, _| {
        base.with(|files| drop(files.insert("head.tlog-proof".into(), base.other_head.clone())))
    };
    "12" "sign with another key of the same name" "– – – ✔" other_key;
    "13" "give a checkpoint that no witness has seen, where the policy asks for one" "– – – ✔" |base, _| base.with(|files| {
        let witness = VerifierKey::new("witness.example", KeyKind::Cosignature, &WITNESS).unwrap();
        files.insert(POLICY.into(), format!("log {}\nwitness w {witness}\nquorum w\n", base.vkey));
    });
}

/// The public key of the seed 00 01 02 … 1f.
const WITNESS: [u8; 32] = [
    0x03, 0xa1, 0x07, 0xbf, 0xf3, 0xce, 0x10, 0xbe, 0x1d, 0x70, 0xdd, 0x18, 0xe7, 0x4b, 0xc0, 0x99, 0x67,
    0xe4, 0xd6, 0x30, 0x9b, 0xa5, 0x0d, 0x5f, 0x1d, 0xdc, 0x86, 0x64, 0x12, 0x55, 0x31, 0xb8,
];

// ---- Before ---------------------------------------------------------------------------------------------

/// A store of an honest time: three events, a snapshot, three more, a snapshot, and what an auditor has kept.
pub(super) struct Base {
    pub store: &'static str,
    pub vkey: String,
    /// Stopped.
    home: Home,
    key: String,
    events: Vec<StoredEvent>,
    kept: String,
    /// What the auditor is given by an honest server.
    files: Files,
    /// What it says of itself.
    by_server: [bool; 2],
    /// A proof of the head of another project's chain.
    other_head: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Trust {
    /// The operator leaves `trust/` as it is.
    Kept,
    /// It has published what fits the changed events, and signs on with the real keys.
    Rewritten,
}

impl Base {
    pub(super) fn of(store: &'static str, dir: &Path) -> Base {
        std::fs::create_dir(dir).unwrap();
        let home = match store {
            "embedded" => Home::embedded(dir.to_owned()),
            _ => Home::on_postgres(dir.to_owned()),
        };
        let server = home.start("1");
        home.begin_log();
        let key = first_key(&home.data());
        let (tenant, _) = first_tenant(&server, TOKEN);
        let made = |path: &str, body: Value| operator(&server, TOKEN, "POST", path, &body).1;
        let project = made(&format!("/tenants/{tenant}/projects"), json!({"name": "other"}));
        let project = project["project_id"].as_str().unwrap();
        let other = made(&format!("/projects/{project}/keys"), json!({"name": "k", "mode": "live"}));
        let other = other["key"].as_str().unwrap();
        assert_eq!(server.post(other).0, 202);
        for n in 1..=6 {
            let body = format!(
                r#"{{"action":"user.login","actor_id":"a{n}","session_id":"s{n}","metadata":{{"n":{n}}}}}"#
            );
            assert_eq!(server.send(&key, &body).0, 202);
            if n % 3 == 0 {
                eventually("it is published", || published(&server, &key) == n);
            }
        }
        let kept = fetch(&server, &key, "/tlog/v1/store/checkpoint").unwrap();
        publish(&server, 1);
        let files = collect(&server, &key, &kept);
        let other_head = fetch(&server, other, "/tlog/v1/chain/head?format=tlog-proof").unwrap();
        let events: Vec<StoredEvent> =
            files[EXPORT].lines().map(|event| StoredEvent::parse_json(event).unwrap()).collect();
        assert_eq!(events.len(), 6);
        let vkey = home.vkey();
        server.await_drained();
        server.stop();
        let by_server = reported(&home.copied(&dir.with_extension("honest")).start("1"), &key);
        Base { store, vkey, home, key, events, kept, files, by_server, other_head }
    }

    /// The honest program on events that the operator has changed, after it has published again.
    fn go_on(&self, dir: &Path, events: &[StoredEvent], trust: Trust) -> Shown {
        let home = self.home.copied(dir);
        if !events.is_empty() {
            home.replace(events);
        }
        if trust == Trust::Rewritten {
            home.rewrite_trust(&self.events[2]);
        }
        let server = home.start("1");
        publish(&server, 2);
        self.asked(&server, &self.kept)
    }

    fn asked(&self, server: &Running, kept: &str) -> Shown {
        let files = collect(server, &self.key, kept);
        Shown { by_server: reported(server, &self.key), files }
    }

    /// What an honest server gave, with a change on its way to the auditor.
    fn with(&self, change: impl FnOnce(&mut Files)) -> Shown {
        let mut files = self.files.clone();
        change(&mut files);
        Shown { by_server: self.by_server, files }
    }

    fn with_last_event(&self, change: impl FnOnce(&mut Value)) -> Shown {
        self.with(|files| {
            let export = files.get_mut(EXPORT).unwrap();
            let (before, last) = export.trim_end().rsplit_once('\n').unwrap();
            let mut event: Value = serde_json::from_str(last).unwrap();
            change(&mut event);
            *export = format!("{before}\n{event}\n");
        })
    }
}

/// Whether the server says by itself that the chain is broken.
fn reported(server: &Running, key: &str) -> [bool; 2] {
    ["/v1/events/verify", "/tlog/v1/chain/verify"].map(|path| {
        let (code, verdict) = server.get(key, path);
        let verdict: Value = serde_json::from_str(&verdict).unwrap();
        assert_eq!(code, 200, "{path}: {verdict}");
        // The answers of /v1 are what they were before there was a signed log.
        let says = verdict.to_string().contains("That the signed log was not rewritten or rolled back");
        assert_eq!(says, path.starts_with("/tlog"), "{path}: {verdict}");
        verdict["valid"] == false
    })
}

fn fetch(server: &Running, key: &str, path: &str) -> Option<String> {
    let (code, body) = server.get(key, path);
    (code == 200).then_some(body)
}

fn size_of(note: &str) -> u64 {
    note.lines().nth(1).unwrap().parse().unwrap()
}

fn store_size(server: &Running) -> u64 {
    size_of(&fetch(server, "-", "/tlog/v1/store/checkpoint").unwrap())
}

fn published(server: &Running, key: &str) -> u64 {
    let overview: Value = serde_json::from_str(&server.get(key, "/tlog/v1/chain").1).unwrap();
    overview["published_size"].as_u64().unwrap_or(0)
}

/// Waits until the signed log covers all that was acknowledged before: the first of two snapshots may have
/// been under way.
fn publish(server: &Running, snapshots: u64) {
    let before = store_size(server);
    eventually("it is published", || store_size(server) >= before + snapshots);
}

/// What an auditor asks for who has kept a checkpoint: the events, the head of today and that of his
/// checkpoint, a proof for each event, and that the log has only grown. What is refused is not there.
fn collect(server: &Running, key: &str, kept: &str) -> Files {
    let mut files = Files::from([(KEPT.to_owned(), kept.to_owned())]);
    let page: Value = serde_json::from_str(&fetch(server, key, "/v1/events?limit=100").unwrap()).unwrap();
    let events: Vec<&Value> = page["events"].as_array().unwrap().iter().rev().collect();
    files.insert(EXPORT.into(), events.iter().map(|event| format!("{event}\n")).collect());
    let mut ask = |name: String, path: String| {
        let answer = fetch(server, key, &path);
        answer.map(|body| files.insert(name, body)).is_some()
    };
    ask("head.tlog-proof".into(), "/tlog/v1/chain/head?format=tlog-proof".into());
    let at = size_of(kept) - 1;
    ask("kept-head.tlog-proof".into(), format!("/tlog/v1/chain/head?at={at}&format=tlog-proof"));
    for seq in 1..=events.len() {
        ask(format!("{seq}.tlog-proof"), format!("/tlog/v1/chain/proof?seq={seq}&format=tlog-proof"));
    }
    let (from, to) = (size_of(kept), size_of(&parsed(&files["head.tlog-proof"]).checkpoint.to_string()));
    if let Some(body) = fetch(server, key, &format!("/tlog/v1/store/consistency?from={from}&to={to}")) {
        files.insert("grown.json".into(), body);
    }
    files
}

fn parsed(file: &str) -> TlogProof {
    TlogProof::parse(file.as_bytes()).unwrap()
}

// ---- What he changes ------------------------------------------------------------------------------------

fn changed(base: &Base, change: impl FnOnce(&mut Vec<StoredEvent>)) -> Vec<StoredEvent> {
    let mut events = base.events.clone();
    change(&mut events);
    events
}

fn set_actor(event: &mut StoredEvent) {
    let text = event.text.as_str().replace("\"a4\"", "\"b4\"");
    assert_ne!(text, event.text.as_str());
    event.text = sealog_core::canonical::EventText::from_stored(text).unwrap();
}

fn hashed_field(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| set_actor(&mut events[3]))
}

fn annotation(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| events[3].annotations.ip_address = Some("203.0.113.99".into()))
}

/// With its number given to the one behind it, and so on.
fn middle(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| {
        events.remove(3);
        (4..).zip(&mut events[3..]).for_each(|(seq, event)| event.sealed.chain_seq = seq);
    })
}

fn swapped(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| {
        events.swap(3, 4);
        (4..).zip(&mut events[3..]).for_each(|(seq, event)| event.sealed.chain_seq = seq);
    })
}

fn rechained(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| {
        set_actor(&mut events[3]);
        rechain(events, 3);
    })
}

fn dated_ahead(base: &Base) -> Vec<StoredEvent> {
    changed(base, |events| {
        let mut event = events[5].clone();
        let ahead_ms = event.timestamp_ms + 7_200_000;
        event.sealed = events[5].head().seal(event.tenant_id, &event.text, ahead_ms, Random80([7; 10]));
        event.timestamp_ms = event.sealed.timestamp_ms();
        events.push(event);
    })
}

/// The proof is the server's own, without the salt that would show the change.
fn erasure(base: &Base, dir: &Path) -> Shown {
    let mut shown = base.go_on(dir, &annotation(base), Trust::Kept);
    let honest = &base.events[3];
    let file = shown.files.get_mut("4.tlog-proof").expect("the server gives it");
    let mut proof = parsed(file);
    let mut event = EventProof::parse(&proof.extra.unwrap()).unwrap();
    let Private::Salt(salt) = event.private else { panic!("an API key gets salts") };
    event.private = Private::Commitment(leaf::private_commitment(&salt, &honest.annotations).unwrap());
    proof.extra = Some(event.to_string().into_bytes());
    *file = proof.to_string();
    shown
}

fn roll_back(base: &Base, dir: &Path) -> Shown {
    let later = base.home.copied(&dir.with_extension("later"));
    let server = later.start("1");
    assert_eq!(server.post(&base.key).0, 202);
    publish(&server, 5);
    let kept = fetch(&server, &base.key, "/tlog/v1/store/checkpoint").unwrap();
    server.stop();
    let home = base.home.copied(dir);
    base.asked(&home.start("300"), &kept)
}

/// Two logs of one name that go on apart. The auditor has a checkpoint of the one and is given the other.
fn split(base: &Base, dir: &Path, withheld: &str) -> Shown {
    let one = base.home.copied(&dir.with_extension("one"));
    let server = one.start("1");
    assert_eq!(server.post(&base.key).0, 202);
    publish(&server, 2);
    let kept = fetch(&server, &base.key, "/tlog/v1/store/checkpoint").unwrap();
    server.stop();
    let other = base.home.copied(dir);
    let server = other.start("1");
    eventually("the other log is larger", || store_size(&server) > size_of(&kept));
    let mut shown = base.asked(&server, &kept);
    shown.files.remove(withheld).expect("it was given");
    shown
}

/// One entry of the log has the head of rewritten events, the next ones that of the original.
fn alternating(base: &Base, dir: &Path, has_kept: bool) -> Shown {
    let home = base.home.copied(dir);
    home.replace(&rechained(base));
    home.rewrite_trust(&base.events[2]);
    let server = home.start("1");
    publish(&server, 2);
    let other_view = fetch(&server, &base.key, "/tlog/v1/chain/head?format=tlog-proof").unwrap();
    server.stop();
    home.replace(&base.events);
    home.rewrite_trust(&base.events[2]);
    let server = home.start("1");
    publish(&server, 2);
    let mut shown = base.asked(&server, &base.kept);
    if has_kept {
        shown.files.insert("other-head.tlog-proof".into(), other_view);
    }
    shown
}

fn invented_head(base: &Base, _: &Path) -> Shown {
    base.with(|files| {
        let file = files.get_mut("head.tlog-proof").unwrap();
        let mut proof = parsed(file);
        let mut head = HeadProof::parse(&proof.extra.unwrap()).unwrap();
        head.size += 1;
        proof.extra = Some(head.to_string().into_bytes());
        *file = proof.to_string();
    })
}

fn other_key(base: &Base, _: &Path) -> Shown {
    base.with(|files| {
        for (_, file) in files.iter_mut().filter(|(name, _)| name.ends_with(".tlog-proof")) {
            let mut proof = parsed(file);
            let checkpoint = Checkpoint::parse(proof.checkpoint.text()).unwrap();
            let key = SigningKey::new(&checkpoint.origin, &[7; 32]).unwrap();
            proof.checkpoint = checkpoint.sign(&[&key]).unwrap();
            *file = proof.to_string();
        }
    })
}
