//! Writes the test vectors of trees, notes and proofs: `cargo run -p sealog-trust --example trust_vectors`.
//! `vectors/trust/README.md` says what they are.
//!
//! What is to come out is written here as it was thought out: each case names its result. Only hashes and
//! signatures are computed, and the other implementations compute those again. `tests/suite/vectors.rs`
//! includes this file, compares it with what is checked in, and runs every case. The seeds of the fuzzers are
//! cases of these files.

#[path = "support/verify.rs"]
pub(crate) mod verify;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use ed25519_dalek::{Signer, SigningKey as Secret};
use sealog_core::event::{Annotations, StoredEvent};
use sealog_core::hex;
use sealog_core::id::{Hash, Mode};
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::heads_text;
use sealog_trust::heads::{Blind, Head, Trie, TrieProof};
use sealog_trust::leaf::{self, Tag};
use sealog_trust::merkle::{self, CompactRange, EMPTY_ROOT, Node, Plan};
use sealog_trust::note::{KeyKind, Note, Signature, SigningKey, VerifierKey, cosigned};
use sealog_trust::proof::{EventProof, HeadPath, HeadProof, Private, TlogProof};
use sealog_trust::salt::{SEQ_MAX, SaltKey, SaltKeys};
use sealog_trust::tile::{Content, Tile};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn main() -> std::io::Result<()> {
    for (name, text) in files(&all()).into_iter().chain(files(&[("verify", verify::cases())])) {
        let path = root().join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name and content of each file: vectors, then seeds.
pub(crate) fn files(all: &[(&str, Vec<Value>)]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (name, cases) in all {
        // A line for each case, so that a change shows as the case that changed.
        let lines: Vec<String> = cases.iter().map(Value::to_string).collect();
        files.push((
            format!("vectors/trust/{name}.json"),
            format!("{{\"cases\":[\n{}\n]}}\n", lines.join(",\n")),
        ));
        // Some of each are enough; the fuzzer finds the rest.
        let seeds = cases.iter().filter_map(|case| seed(name, case)).filter(|(_, text)| text.len() < 4096);
        for (number, (target, text)) in seeds.enumerate().filter(|(number, _)| number % 3 == 0) {
            files.push((format!("fuzz/seeds/{target}/{name}-{number:03}"), text.to_owned()));
        }
    }
    files
}

/// The fuzz target that a case is a seed of, and its text.
fn seed<'a>(file: &str, case: &'a Value) -> Option<(&'static str, &'a str)> {
    let (target, field) = match (file, case["kind"].as_str()) {
        ("notes", Some("note")) => ("trust_note", "note"),
        ("notes", Some("vkey")) => ("trust_note", "vkey"),
        ("policies", _) => ("trust_policy", "policy"),
        ("proofs", _) => ("trust_proof", "proof"),
        ("tiles", Some("path")) => ("trust_tile", "path"),
        ("entries", _) => ("trust_entry", "entry"),
        ("salts", Some("line")) => ("trust_entry", "line"),
        ("verify", _) => return consistency(case).map(|text| ("trust_consistency", text)),
        _ => return None,
    };
    case[field].as_str().map(|text| (target, text))
}

/// The consistency proof among the files of a verdict.
fn consistency(case: &Value) -> Option<&str> {
    let arguments = case["arguments"].as_array()?;
    let option = arguments.iter().position(|argument| argument == "--consistency")?;
    case["files"][arguments.get(option + 1)?.as_str()?].as_str()
}

/// Name and cases of each file of vectors.
pub(crate) fn all() -> [(&'static str, Vec<Value>); 10] {
    [
        ("sizes", sizes()),
        ("trees", trees()),
        ("leaves", leaves()),
        ("salts", salts()),
        ("heads", heads()),
        ("notes", notes()),
        ("entries", entries()),
        ("tiles", tiles()),
        ("policies", policies()),
        ("proofs", proofs()),
    ]
}

fn b64(hash: &Hash) -> String {
    base64(&hash.0)
}

fn base64(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

fn list(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(b64).collect()
}

fn flipped(hash: Hash) -> Hash {
    let mut hash = hash;
    hash.0[17] ^= 0x20;
    hash
}

// ---- Trees ----------------------------------------------------------------------------------------------

/// The tree of the vectors: entry i is i in decimal digits.
struct Tree {
    /// Complete subtrees by level.
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    fn new(size: u64) -> Tree {
        let mut levels = vec![Vec::new(); 64];
        let mut range = CompactRange::default();
        for number in 0..size {
            let leaf = merkle::leaf_hash(number.to_string().as_bytes());
            let added = range.append(leaf, |node, hash| levels[usize::from(node.level)].push(hash));
            assert!(added, "the tree is small");
        }
        Tree { levels }
    }

    fn leaf(&self, index: u64) -> Hash {
        self.node(&Node { level: 0, index })
    }

    fn node(&self, node: &Node) -> Hash {
        self.levels[usize::from(node.level)][usize::try_from(node.index).expect("it is in memory")]
    }

    fn proof(&self, plan: Result<Plan, merkle::ProofError>) -> Vec<Hash> {
        let plan = plan.expect("the place is in the tree");
        let nodes: Vec<Hash> = plan.nodes().iter().map(|node| self.node(node)).collect();
        plan.proof(&nodes).expect("a hash for each node")
    }

    fn root(&self, size: u64) -> Hash {
        self.proof(Plan::root(size))[0]
    }
}

const LARGEST: u64 = 65_540;

fn sizes() -> Vec<Value> {
    let tree = Tree::new(LARGEST);
    let mut cases = Vec::new();
    for size in (0..=300).chain(65_532..=LARGEST) {
        let mut case =
            json!({"name": size.to_string(), "size": size.to_string(), "root": b64(&tree.root(size))});
        if size <= 300 {
            let digest = |proofs: &mut dyn Iterator<Item = Vec<Hash>>| {
                let bytes: Vec<u8> = proofs.flatten().flat_map(|hash| hash.0).collect();
                hex::encode(&Sha256::digest(bytes))
            };
            let inclusion = &mut (0..size).map(|index| tree.proof(Plan::inclusion(index, size)));
            case["inclusion"] = digest(inclusion).into();
            let consistency = &mut (1..=size).map(|old| tree.proof(Plan::consistency(old, size)));
            case["consistency"] = digest(consistency).into();
            let end = |start: u64| size.min(start + 5);
            let range = &mut (0..size).map(|start| tree.proof(Plan::range(start, end(start), size)));
            case["range"] = digest(range).into();
        }
        cases.push(case);
    }
    cases
}

fn trees() -> Vec<Value> {
    let tree = Tree::new(LARGEST);
    let mut cases = Vec::new();
    let places =
        [(1, 0), (2, 1), (3, 2), (5, 3), (7, 0), (8, 7), (100, 63), (257, 256), (300, 299), (65_537, 4_097)];
    for (size, index) in places {
        inclusion_cases(&tree, size, index, &mut cases);
    }
    for (old, size) in
        [(1, 2), (2, 3), (3, 4), (3, 7), (4, 8), (6, 8), (64, 100), (100, 257), (256, 257), (65_535, 65_537)]
    {
        consistency_cases(&tree, old, size, &mut cases);
    }
    for (start, end, size) in
        [(0, 1, 1), (0, 3, 5), (1, 3, 5), (4, 5, 5), (2, 6, 7), (17, 40, 300), (65_530, 65_537, 65_537)]
    {
        range_cases(&tree, start, end, size, &mut cases);
    }
    let (hash, many) = (b64(&Hash([7; 32])), vec![b64(&Hash([8; 32])); 64]);
    let mut huge = |name: &str, index: &str, size: &str, count: usize, result: &str| {
        // x/mod v0.42 counts powers of two without an end for trees of more than 2^62 leaves.
        cases.push(json!({"name": name, "kind": "inclusion", "index": index, "size": size, "leaf": hash,
            "root": hash, "path": many[..count], "result": result, "go": "differs"}));
    };
    huge("63 hashes in the largest tree", "0", "9223372036854775807", 63, "root");
    huge("64 hashes in the largest tree", "0", "9223372036854775807", 64, "too long");
    huge("62 hashes in the largest tree", "0", "9223372036854775807", 62, "length");
    huge("the last leaf of the largest tree", "9223372036854775806", "9223372036854775807", 62, "root");
    huge("a leaf behind the largest tree", "9223372036854775807", "9223372036854775807", 62, "outside");
    huge("a tree of 2^63 leaves", "0", "9223372036854775808", 63, "size");
    huge("a leaf of the empty tree", "0", "0", 0, "outside");
    let mut grown = |name: &str, old: &str, size: &str, roots: [&Hash; 2], count: usize, result: &str| {
        cases.push(json!({"name": name, "kind": "consistency", "old": old, "size": size, "go": "differs",
            "old_root": b64(roots[0]), "root": b64(roots[1]), "path": many[..count], "result": result}));
    };
    let three = &tree.root(3);
    grown("from nothing", "0", "3", [&EMPTY_ROOT, three], 0, "ok");
    grown("from nothing to nothing", "0", "0", [&EMPTY_ROOT, &EMPTY_ROOT], 0, "ok");
    grown("from nothing with a root that is not empty", "0", "3", [three, three], 0, "root");
    grown("from nothing to nothing with a root", "0", "0", [&EMPTY_ROOT, three], 0, "root");
    grown("from nothing with a proof", "0", "3", [&EMPTY_ROOT, three], 1, "length");
    grown("a tree is the beginning of itself", "3", "3", [three, three], 0, "ok");
    grown("another tree of the same size", "3", "3", [three, &tree.root(4)], 0, "root");
    grown("the same tree with a proof", "3", "3", [three, three], 1, "length");
    grown("a tree that shrinks", "4", "3", [&tree.root(4), three], 0, "outside");
    grown("64 hashes of consistency", "1", "9223372036854775807", [three, three], 64, "too long");
    cases.push(
        json!({"name": "a range without leaves", "kind": "range", "start": "1", "size": "3", "leaves": [],
        "root": b64(three), "path": [], "result": "empty"}),
    );
    cases.push(
        json!({"name": "a range that ends behind the tree", "kind": "range", "start": "2", "size": "3",
        "leaves": list(&[tree.leaf(2), tree.leaf(3)]), "root": b64(three), "path": [], "result": "outside"}),
    );
    cases
}

fn inclusion_cases(tree: &Tree, size: u64, index: u64, cases: &mut Vec<Value>) {
    let (leaf, root) = (tree.leaf(index), tree.root(size));
    let path = tree.proof(Plan::inclusion(index, size));
    let mut add = |what: &str, leaf: Hash, index: u64, size: u64, path: &[Hash], result: &str| {
        cases.push(json!({"name": format!("leaf {index} of {size}: {what}"), "kind": "inclusion",
            "index": index.to_string(), "size": size.to_string(), "leaf": b64(&leaf), "root": b64(&root),
            "path": list(path), "result": result}));
    };
    add("fits", leaf, index, size, &path, "ok");
    add("another leaf", flipped(leaf), index, size, &path, "root");
    add("a hash too many", leaf, index, size, &[&path[..], &[root]].concat(), "length");
    add("the index of no leaf", leaf, size, size, &path, "outside");
    if let Some((last, rest)) = path.split_last() {
        add("a hash is missing", leaf, index, size, rest, "length");
        add("the last hash is changed", leaf, index, size, &[rest, &[flipped(*last)]].concat(), "root");
        if path.len() > 1 {
            add(
                "the first hash is changed",
                leaf,
                index,
                size,
                &[&[flipped(path[0])], &path[1..]].concat(),
                "root",
            );
            let turned: Vec<Hash> = path.iter().rev().copied().collect();
            add("the path turned round", leaf, index, size, &turned, "root");
        }
    }
}

fn consistency_cases(tree: &Tree, old: u64, size: u64, cases: &mut Vec<Value>) {
    let roots = [tree.root(old), tree.root(size)];
    let path = tree.proof(Plan::consistency(old, size));
    let mut add = |what: &str, roots: [Hash; 2], path: &[Hash], result: &str| {
        cases.push(json!({"name": format!("{old} leaves, then {size}: {what}"), "kind": "consistency",
            "old": old.to_string(), "size": size.to_string(), "old_root": b64(&roots[0]), "root": b64(&roots[1]),
            "path": list(path), "result": result}));
    };
    add("fits", roots, &path, "ok");
    add("another older root", [flipped(roots[0]), roots[1]], &path, "root");
    add("another newer root", [roots[0], flipped(roots[1])], &path, "root");
    add("the roots exchanged", [roots[1], roots[0]], &path, "root");
    add("a hash too many", roots, &[&path[..], &[roots[0]]].concat(), "length");
    add("a hash is missing", roots, &path[1..], "length");
    for at in BTreeSet::from([0, path.len() - 1]) {
        let mut changed = path.clone();
        changed[at] = flipped(changed[at]);
        add(&format!("hash {at} is changed"), roots, &changed, "root");
    }
}

fn range_cases(tree: &Tree, start: u64, end: u64, size: u64, cases: &mut Vec<Value>) {
    let leaves: Vec<Hash> = (start..end).map(|index| tree.leaf(index)).collect();
    let (root, path) = (tree.root(size), tree.proof(Plan::range(start, end, size)));
    let mut add = |what: &str, leaves: &[Hash], path: &[Hash], result: &str| {
        cases.push(json!({"name": format!("leaves {start} to {end} of {size}: {what}"), "kind": "range",
            "start": start.to_string(), "size": size.to_string(), "leaves": list(leaves), "root": b64(&root),
            "path": list(path), "result": result}));
    };
    add("fit", &leaves, &path, "ok");
    let mut changed = leaves.clone();
    changed[leaves.len() / 2] = flipped(changed[leaves.len() / 2]);
    add("one is changed", &changed, &path, "root");
    add("a hash too many", &leaves, &[&path[..], &[root]].concat(), "length");
    if let [first, .., last] = leaves[..] {
        let swapped = [&[last], &leaves[1..leaves.len() - 1], &[first]].concat();
        add("first and last exchanged", &swapped, &path, "root");
    }
    if let Some((last, rest)) = path.split_last() {
        add("a hash is missing", &leaves, rest, "length");
        add("the last hash is changed", &leaves, &[rest, &[flipped(*last)]].concat(), "root");
    }
}

// ---- Events, salts, heads -------------------------------------------------------------------------------

const SALT_ROOT: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn salt_keys() -> SaltKeys {
    SaltKeys::new(vec![SaltKey::root(SALT_ROOT)]).expect("one key")
}

/// The events of the chain vector "five events", of which the second has annotations.
fn events() -> Vec<StoredEvent> {
    let text = include_str!("../../../vectors/chains.json");
    let chains: Value = serde_json::from_str(text).expect("the vectors are JSON");
    let mut cases = chains["cases"].as_array().expect("a list").iter();
    let five = cases.find(|case| case["name"] == "five events").expect("the case is there");
    let texts = five["events"].as_array().expect("a list").iter();
    let mut events: Vec<StoredEvent> = texts
        .map(|text| StoredEvent::parse_json(text.as_str().expect("a text")).expect("an event"))
        .collect();
    events[1].annotations = Annotations {
        category: Some("data_access".into()),
        severity: Some("info".into()),
        ip_address: Some("203.0.113.9".into()),
        country: Some("FR".into()),
        city: Some("Paris".into()),
        ..events[1].annotations.clone()
    };
    events
}

fn event_text(event: &StoredEvent) -> String {
    let mut text = Vec::new();
    event.put_json(&mut text);
    String::from_utf8(text).expect("an event is UTF-8")
}

fn private_of(event: &StoredEvent) -> Hash {
    let salt = salt_keys().salt(event.sealed.chain_seq).expect("it was not erased");
    leaf::private_commitment(&salt, &event.annotations).expect("the fields are short")
}

fn leaf_hash_of(event: &StoredEvent) -> Hash {
    leaf::leaf_hash(event, &private_of(event)).expect("the fields are short")
}

fn leaves() -> Vec<Value> {
    let mut events = events();
    let mut all_fields = events[2].clone();
    let values = [
        "data_access",
        "high",
        "user",
        "document",
        "s-1",
        "2026-11-14T12:00:02Z",
        "2001:db8::1",
        "DE",
        "Köln \"1\"",
    ];
    all_fields.annotations = Annotations::from_values(values.map(Some));
    events.push(all_fields);
    let mut empty_field = events[3].clone();
    empty_field.annotations = Annotations { session_id: Some("".into()), ..empty_field.annotations };
    events.push(empty_field);
    let mut cases = Vec::new();
    for (number, event) in events.iter().enumerate() {
        for mode in Mode::ALL {
            let (private, mut bytes) = (private_of(event), Vec::new());
            leaf::put_leaf(event, &private, &mut bytes).expect("the fields are short");
            let salt = salt_keys().salt(event.sealed.chain_seq).expect("it was not erased");
            let name = format!("event {number}, {}", mode.as_str());
            cases.push(json!({"name": name, "event": event_text(event), "mode": mode.as_str(),
                "salt": hex::encode(&salt.0), "private": private.to_string(), "leaf": hex::encode(&bytes),
                "leaf_hash": b64(&merkle::leaf_hash(&bytes)), "tag": Tag::of(event.chain(mode)).to_string()}));
        }
    }
    cases
}

fn salts() -> Vec<Value> {
    let lines = |keys: &SaltKeys| keys.keys().iter().map(SaltKey::to_line).collect::<Vec<_>>();
    let (all, mut cases) = (salt_keys(), Vec::new());
    let holes = all.puncture(4..=6).puncture(1000..=1000);
    for (what, keys) in [("one key", &all), ("with holes", &holes)] {
        for seq in [1, 2, 3, 4, 6, 7, 1000, 1001, 20_000_000, 1 << 47, SEQ_MAX, SEQ_MAX + 1] {
            let salt = keys.salt(seq).map(|salt| hex::encode(&salt.0));
            cases.push(json!({"name": format!("salt {seq}, {what}"), "kind": "salt", "keys": lines(keys),
                "seq": seq.to_string(), "salt": salt}));
        }
        for (from, to) in [(1, 1), (1, 5), (3, 2000), (1, 20_000_000), (0, SEQ_MAX), (SEQ_MAX, SEQ_MAX)] {
            cases.push(
                json!({"name": format!("{from} to {to}, {what}"), "kind": "range", "keys": lines(keys),
                "from": from.to_string(), "to": to.to_string(), "cover": lines(&keys.cover(from..=to)),
                "punctured": lines(&keys.puncture(from..=to))}),
            );
        }
    }
    let hex = hex::encode(&SALT_ROOT);
    for (name, line, result) in [
        ("a key", format!("key 3 7 {hex}"), "ok"),
        ("a key of one event", format!("key 48 281474976710655 {hex}"), "ok"),
        ("a key below the leaves", format!("key 49 0 {hex}"), "malformed"),
        ("a prefix with too many bits", format!("key 3 8 {hex}"), "malformed"),
        ("a leading zero", format!("key 03 7 {hex}"), "malformed"),
        ("two spaces", format!("key 3  7 {hex}"), "malformed"),
        ("a short key", format!("key 3 7 {}", &hex[2..]), "malformed"),
        ("upper case", format!("key 3 7 {}", hex.to_uppercase()), "malformed"),
        ("a word too many", format!("key 3 7 {hex} 1"), "malformed"),
        ("another word", format!("salt 3 7 {hex}"), "malformed"),
        ("no line", String::new(), "malformed"),
    ] {
        cases.push(json!({"name": name, "kind": "line", "line": line, "result": result}));
    }
    cases
}

fn some_head(number: u8) -> Head {
    let tag = Tag(Hash(Sha256::digest([number]).into()));
    let blind = Blind::of(b"a secret of the store", &tag, 9);
    Head { tag, size: u64::from(number) * 1000, root: Hash([number; 32]), blind }
}

fn head_json(head: &Head) -> Value {
    json!({"tag": head.tag.to_string(), "size": head.size.to_string(), "root": b64(&head.root),
        "blind": hex::encode(&head.blind.0)})
}

fn heads() -> Vec<Value> {
    let mut cases = Vec::new();
    for index in [0, 9, u64::MAX >> 1] {
        let tag = some_head(1).tag;
        cases.push(json!({"name": format!("blind {index}"), "kind": "blind", "secret": hex::encode(b"secret"),
            "tag": tag.to_string(), "index": index.to_string(), "blind": hex::encode(&Blind::of(b"secret", &tag, index).0)}));
    }
    // Two tags that differ in their last bit alone, for the deepest way.
    let mut twin = some_head(3);
    twin.tag.0.0[31] ^= 1;
    for (what, count, twins) in
        [("no", 0, false), ("one", 1, false), ("two", 2, false), ("twenty", 20, false), ("deep", 4, true)]
    {
        let mut present: Vec<Head> = (0..count).map(some_head).collect();
        present.extend(Some(twin).filter(|_| twins));
        let trie = Trie::new(present.iter().map(|head| (head.tag, head.hidden())).collect())
            .expect("no tag comes twice");
        let trie_root = b64(&trie.root());
        cases.push(json!({"name": format!("a trie of {what} heads"), "kind": "trie", "trie_root": trie_root,
            "heads": present.iter().map(head_json).collect::<Vec<_>>()}));
        for (number, head) in
            present.iter().enumerate().filter(|(number, _)| number % 5 == 0 || twins && *number >= 3)
        {
            let TrieProof::Present { path } = trie.prove(&head.tag) else { panic!("the head is there") };
            let mut add = |name: &str, head: &Head, path: &[Hash], result: &str| {
                let mut case = head_json(head);
                let more = json!({"name": format!("{what} heads, {number}: {name}"), "kind": "present",
                    "trie_root": trie_root, "path": list(path), "result": result});
                case.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
                cases.push(case);
            };
            add("fits", head, &path, "ok");
            add("another size", &Head { size: head.size + 1, ..*head }, &path, "root");
            add("another blind", &Head { blind: Blind([1; 16]), ..*head }, &path, "root");
            add("257 hashes", head, &[Hash([1; 32]); 257], "too long");
            if let Some((first, rest)) = path.split_first() {
                add("a changed hash", head, &[&[flipped(*first)], rest].concat(), "root");
                add("a hash is missing", head, rest, "root");
            }
        }
        for number in [100, 101, 102, 103] {
            let tag = some_head(number).tag;
            let TrieProof::Absent { path, foreign } = trie.prove(&tag) else {
                panic!("the head is not there")
            };
            let mut add =
                |name: &str, tag: &Tag, path: &[Hash], foreign: Option<(Tag, Hash)>, result: &str| {
                    let foreign = foreign.map(|(tag, hidden)| json!([tag.to_string(), b64(&hidden)]));
                    cases.push(
                        json!({"name": format!("{what} heads, not {number}: {name}"), "kind": "absent",
                    "tag": tag.to_string(), "trie_root": trie_root, "path": list(path), "foreign": foreign,
                    "result": result}),
                    );
                };
            add("fits", &tag, &path, foreign, "ok");
            match foreign {
                Some((other, hidden)) => {
                    add("the foreign head itself", &other, &path, foreign, "foreign");
                    add("nothing in its place", &tag, &path, None, "root");
                    add("another hidden head", &tag, &path, Some((other, flipped(hidden))), "root");
                }
                None => add(
                    "a foreign head of another way",
                    &tag,
                    &[path, vec![Hash::ZERO; 9]].concat(),
                    Some((Tag(Hash([0xa5; 32])), Hash::ZERO)),
                    "foreign",
                ),
            }
        }
    }
    cases
}

// ---- Notes, entries, tiles ------------------------------------------------------------------------------

const ORIGIN: &str = "log.example";

fn log() -> SigningKey {
    SigningKey::new(ORIGIN, &[1; 32]).expect("a good name")
}

/// A witness: the crate makes no cosignatures, so they are made here.
struct Witness {
    secret: Secret,
    key: VerifierKey,
}

fn witness(number: u8) -> Witness {
    let secret = Secret::from_bytes(&[100 + number; 32]);
    let name = format!("w{number}.example");
    let key = VerifierKey::new(&name, KeyKind::Cosignature, secret.verifying_key().as_bytes());
    Witness { key: key.expect("a good name"), secret }
}

impl Witness {
    fn cosign(&self, time_s: u64, text: &str) -> Signature {
        let signature = self.secret.sign(cosigned(time_s, text).as_bytes()).to_bytes();
        let vkey = self.key.to_string();
        let id = vkey.split('+').nth(1).and_then(hex::decode).expect("a vkey has an id");
        Signature {
            name: self.key.name().to_owned(),
            key_id: id,
            bytes: [&time_s.to_be_bytes()[..], &signature].concat(),
        }
    }
}

fn checkpoint() -> Checkpoint {
    Checkpoint { origin: ORIGIN.to_owned(), size: 3, root: Hash([9; 32]) }
}

/// A checkpoint with the log's signature and those of some witnesses.
fn noted(witnesses: &[u8]) -> Note {
    let mut note = checkpoint().sign(&[&log()]).expect("a printable origin");
    let text = note.text().to_owned();
    note.signatures.extend(witnesses.iter().map(|number| witness(*number).cosign(1_794_657_660, &text)));
    note
}

/// A vkey with any bytes for a public key.
fn raw_vkey(name: &str, kind: u8, key: &[u8]) -> String {
    let bytes = [&[kind][..], key].concat();
    let id = Sha256::new_with_prefix(name).chain_update(b"\n").chain_update(&bytes).finalize();
    format!("{name}+{}+{}", hex::encode(&id[..4]), base64(&bytes))
}

fn notes() -> Vec<Value> {
    let mut cases = vkeys();
    let good = noted(&[]);
    let (text, vkey) = (good.text().to_owned(), log().public().to_string());
    cases.push(json!({"name": "a note is signed", "kind": "sign", "skey": log().to_text(), "text": text, "note": good.to_string()}));
    let w = [witness(0), witness(1)].map(|witness| witness.key.to_string());
    // The last is what x/mod, which is laxer, does not have to agree with.
    let mut add =
        |name: &str, keys: &[&str], note: String, result: &str, signed: &[(usize, &str)], strict: bool| {
            let mut case =
                json!({"name": name, "kind": "note", "keys": keys, "note": note, "result": result});
            if !signed.is_empty() {
                case["signed"] = json!(signed);
            }
            if strict {
                case["go"] = "lax".into();
            }
            cases.push(case);
        };
    let one = &[&vkey[..]][..];
    let seconds = "1794657660";
    add("one signature", one, good.to_string(), "ok", &[(0, "0")], false);
    add(
        "a note of several lines and empty ones",
        one,
        {
            let text = "first\n\nsecond — é\n\n\nlast\n".to_owned();
            let signature = log().sign(&text);
            Note::new(text, vec![signature]).expect("printable").to_string()
        },
        "ok",
        &[(0, "0")],
        false,
    );
    add(
        "a cosignature beside it",
        &[&vkey, &w[0]],
        noted(&[0]).to_string(),
        "ok",
        &[(0, "0"), (1, seconds)],
        false,
    );
    add(
        "a cosignature by an unknown witness",
        &[&vkey, &w[1]],
        noted(&[0]).to_string(),
        "ok",
        &[(0, "0")],
        false,
    );
    add("an unknown key alone", &[&w[0]], good.to_string(), "unknown", &[], false);
    add("no known keys", &[], good.to_string(), "unknown", &[], false);
    let other = SigningKey::new(ORIGIN, &[2; 32]).expect("a good name").public().to_string();
    add("another key of the same name", &[&other], good.to_string(), "unknown", &[], false);
    let edit = |at: usize, change: &dyn Fn(&mut Signature)| {
        let mut note = noted(&[0]);
        change(&mut note.signatures[at]);
        note.to_string()
    };
    add("a broken signature of a known key", one, edit(0, &|s| s.bytes[40] ^= 1), "signature", &[], false);
    add(
        "a broken cosignature of a known key",
        &[&vkey, &w[0]],
        edit(1, &|s| s.bytes[50] ^= 1),
        "signature",
        &[],
        false,
    );
    add(
        "a broken cosignature of an unknown key",
        one,
        edit(1, &|s| s.bytes[50] ^= 1),
        "ok",
        &[(0, "0")],
        false,
    );
    add(
        "another time in a cosignature",
        &[&vkey, &w[0]],
        edit(1, &|s| s.bytes[7] ^= 1),
        "signature",
        &[],
        false,
    );
    add("a signature that is too short", one, edit(0, &|s| s.bytes.truncate(63)), "signature", &[], false);
    add("a signature that is too long", one, edit(0, &|s| s.bytes.push(0)), "signature", &[], false);
    add("another text", one, good.to_string().replacen("\n3\n", "\n4\n", 1), "signature", &[], false);
    add(
        "a scalar above the group's order",
        one,
        edit(0, &|s| add_order(&mut s.bytes[32..])),
        "signature",
        &[],
        false,
    );
    add(
        "a point R of small order",
        one,
        edit(0, &|s| s.bytes = small_order_signature()),
        "signature",
        &[],
        true,
    );
    let mut twice = noted(&[]);
    twice.signatures.push(twice.signatures[0].clone());
    add("two signatures of one key", one, twice.to_string(), "ok", &[(0, "0")], false);
    twice.signatures[1].bytes[40] ^= 1;
    add("two signatures of one key, the second broken", one, twice.to_string(), "signature", &[], true);
    let mut twice = noted(&[0]);
    twice.signatures.push(witness(0).cosign(1_794_657_661, &text));
    add(
        "two cosignatures of one key",
        &[&vkey, &w[0]],
        twice.to_string(),
        "ok",
        &[(0, "0"), (1, "1794657661")],
        true,
    );
    let mut late = noted(&[]);
    late.signatures.push(witness(0).cosign(1 << 63, &text));
    add("a cosignature at 2^63", &[&vkey, &w[0]], late.to_string(), "signature", &[], false);
    let mut many = noted(&[]);
    many.signatures = vec![many.signatures[0].clone(); 64];
    add("64 signatures", one, many.to_string(), "ok", &[(0, "0")], false);
    many.signatures.push(many.signatures[0].clone());
    add("65 signatures", one, many.to_string(), "malformed", &[], true);
    let mut bad = |name: &str, note: String| add(name, one, note, "malformed", &[], false);
    let whole = good.to_string();
    bad("nothing", String::new());
    bad("a text without signatures", text.clone());
    bad("an empty line and no signatures", format!("{text}\n"));
    bad("no line feed at the end", whole.trim_end().to_owned());
    bad("no empty line", whole.replace("\n\n", "\n"));
    bad("a hyphen for the dash", whole.replace('—', "-"));
    bad("a tab in the text", whole.replacen("log", "l\tog", 1));
    bad("a carriage return", whole.replace('\n', "\r\n"));
    bad("base64 without padding", whole.replace("=\n", "\n"));
    bad("a signature of a key id alone", format!("{text}\n— {ORIGIN} AAAAAA==\n"));
    bad("a name with a plus", whole.replace(&format!("— {ORIGIN}"), "— log+example"));
    bad("a name with a no-break space", whole.replace(&format!("— {ORIGIN}"), "— log\u{a0}example"));
    bad("two spaces before the signature", whole.replace(&format!("— {ORIGIN} "), &format!("— {ORIGIN}  ")));
    for (name, text, result) in [
        ("a checkpoint", text.clone(), "ok"),
        ("an empty tree", format!("{ORIGIN}\n0\n{}\n", b64(&EMPTY_ROOT)), "ok"),
        ("an origin with a space", text.replacen('.', " ", 1), "ok"),
        ("the largest size", text.replacen("\n3\n", "\n9223372036854775807\n", 1), "ok"),
        ("a size of 2^63", text.replacen("\n3\n", "\n9223372036854775808\n", 1), "malformed"),
        ("a size with a leading zero", text.replacen("\n3\n", "\n03\n", 1), "malformed"),
        ("a size with a sign", text.replacen("\n3\n", "\n+3\n", 1), "malformed"),
        ("no origin", text.replacen(ORIGIN, "", 1), "malformed"),
        ("a root that is too short", text.replace("=\n", "\n"), "malformed"),
        ("a line behind the root", format!("{text}more\n"), "malformed"),
        ("an empty line behind the root", format!("{text}\n"), "malformed"),
        ("no root", format!("{ORIGIN}\n3\n"), "malformed"),
    ] {
        cases.push(json!({"name": name, "kind": "checkpoint", "text": text, "result": result}));
    }
    cases
}

/// Adds the order of the group to a scalar: the same number to those who do not look.
fn add_order(scalar: &mut [u8]) {
    let order = hex::decode::<32>("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    let mut carry = 0u16;
    for (byte, add) in scalar.iter_mut().zip(order.expect("64 digits")) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
}

/// R is the neutral point and S is made for it: a signature over [`checkpoint`] by [`log`] that verifiers
/// accept which do not look at the order of R. Computed by hand with the secret scalar.
fn small_order_signature() -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[0] = 1;
    let scalar = hex::decode::<32>("4c53f94ce898fa4de348cd461857a757aa1d43739ebe8604000e26cb7fa09f06");
    bytes.extend(scalar.expect("64 digits"));
    bytes
}

fn vkeys() -> Vec<Value> {
    let good = log().public().to_string();
    let (name, rest) = good.split_once('+').expect("a vkey has a plus");
    let (id, key) = rest.split_once('+').expect("a vkey has two");
    let public: [u8; 32] = *Secret::from_bytes(&[1; 32]).verifying_key().as_bytes();
    let bytes = |first: u8, last: u8, fill: u8| {
        let mut key = [fill; 32];
        (key[0], key[31]) = (first, last);
        key
    };
    let order_8: [u8; 32] =
        hex::decode("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a").expect("64 digits");
    let mut cases = Vec::new();
    for (what, vkey, result, go) in [
        ("a key of a log", good.clone(), "ok", "same"),
        ("a key of a witness", witness(0).key.to_string(), "ok", "differs"),
        ("a name with a slash and é", raw_vkey("é.example/a", 1, &public), "ok", "same"),
        ("an id in upper case", format!("{name}+{}+{key}", id.to_uppercase()), "malformed", "lax"),
        ("an id of another key", format!("{name}+00000000+{key}"), "malformed", "same"),
        ("a short id", format!("{name}+{}+{key}", &id[1..]), "malformed", "same"),
        ("no name", raw_vkey("", 1, &public), "malformed", "same"),
        ("a name with a space", raw_vkey("a b", 1, &public), "malformed", "same"),
        ("type 02", raw_vkey("a", 2, &public), "malformed", "same"),
        ("type 06", raw_vkey("a", 6, &[3; 1312]), "malformed", "same"),
        ("a key of 31 bytes", raw_vkey("a", 1, &public[1..]), "malformed", "same"),
        ("a key of 33 bytes", raw_vkey("a", 1, &[&public[..], &[0]].concat()), "malformed", "same"),
        ("two parts", format!("{name}+{id}"), "malformed", "same"),
        ("nothing", String::new(), "malformed", "same"),
        ("a line feed behind it", format!("{good}\n"), "malformed", "lax"),
        ("the neutral point", raw_vkey("a", 1, &bytes(1, 0, 0)), "malformed", "lax"),
        ("the point of order 2", raw_vkey("a", 1, &bytes(0xec, 0x7f, 0xff)), "malformed", "lax"),
        ("a point of order 4", raw_vkey("a", 1, &[0; 32]), "malformed", "lax"),
        ("a point of order 8", raw_vkey("a", 1, &order_8), "malformed", "lax"),
        ("y = 3", raw_vkey("a", 1, &bytes(3, 0, 0)), "ok", "same"),
        ("y = 3 in a second spelling", raw_vkey("a", 1, &bytes(0xf0, 0x7f, 0xff)), "malformed", "lax"),
        ("y = 2, which is no point", raw_vkey("a", 1, &bytes(2, 0, 0)), "malformed", "lax"),
        ("minus zero for x", raw_vkey("a", 1, &bytes(1, 0x80, 0)), "malformed", "lax"),
    ] {
        let mut case =
            json!({"name": format!("vkey: {what}"), "kind": "vkey", "vkey": vkey, "result": result});
        if go != "same" {
            case["go"] = go.into();
        }
        cases.push(case);
    }
    cases
}

fn entries() -> Vec<Value> {
    let (vkey, root) = (log().public().to_string(), b64(&Hash([9; 32])));
    let genesis = "sealog/genesis/v1\nlog.example\n1794657600000\n60\n600\n";
    let heads = format!("sealog/heads/v1\n1794657660000\n{root}\n");
    let cases = [
        ("genesis", genesis.to_owned(), "ok"),
        ("genesis with a previous log", format!("{genesis}previous old.example 77 {root}\n"), "ok"),
        ("a key is added", format!("sealog/key/v1\n1\nlog\nadd\n{vkey}\n"), "ok"),
        ("a key is retired", format!("sealog/key/v1\n1\nservice\nretire\n{vkey}\n"), "ok"),
        ("heads", heads.clone(), "ok"),
        ("heads at time 0", heads.replace("1794657660000", "0"), "ok"),
        ("restore", "sealog/restore/v1\n1\n17\ndisk lost, é\n".to_owned(), "ok"),
        ("a later version", heads.replace("v1", "v2"), "unknown"),
        ("another kind", "anything\n".to_owned(), "unknown"),
        ("nothing", String::new(), "malformed"),
        ("no line feed", "sealog/heads/v1".to_owned(), "malformed"),
        ("heads without a root", "sealog/heads/v1\n1\n".to_owned(), "malformed"),
        ("heads with a line too many", format!("{heads}more\n"), "malformed"),
        ("heads without a line feed at the end", heads.trim_end().to_owned(), "malformed"),
        ("heads with a time that has a leading zero", heads.replace("\n1", "\n01"), "malformed"),
        ("heads with a time of 2^63", heads.replace("1794657660000", "9223372036854775808"), "malformed"),
        ("heads with a root in hex", format!("sealog/heads/v1\n1\n{}\n", "0".repeat(64)), "malformed"),
        ("genesis with an interval of 0", genesis.replace("\n60\n", "\n0\n"), "malformed"),
        (
            "genesis with an origin that has a space",
            genesis.replace("log.example", "log example"),
            "malformed",
        ),
        (
            "genesis with another line behind it",
            format!("{genesis}next old.example 77 {root}\n"),
            "malformed",
        ),
        (
            "genesis with a previous log without root",
            format!("{genesis}previous old.example 77\n"),
            "malformed",
        ),
        ("genesis with a word too many", format!("{genesis}previous old.example 77 {root} x\n"), "malformed"),
        ("a key of another role", format!("sealog/key/v1\n1\nwitness\nadd\n{vkey}\n"), "malformed"),
        ("a key that is removed", format!("sealog/key/v1\n1\nlog\nremove\n{vkey}\n"), "malformed"),
        ("a key with a broken vkey", format!("sealog/key/v1\n1\nlog\nadd\n{}\n", &vkey[1..]), "malformed"),
        ("restore without a reason", "sealog/restore/v1\n1\n17\n\n".to_owned(), "malformed"),
        ("restore with a tab", "sealog/restore/v1\n1\n17\na\tb\n".to_owned(), "malformed"),
    ];
    cases
        .into_iter()
        .map(|(name, entry, result)| json!({"name": name, "entry": entry, "result": result}))
        .collect()
}

fn tiles() -> Vec<Value> {
    let mut cases = Vec::new();
    for path in [
        "tile/0/000",
        "tile/0/255",
        "tile/0/999",
        "tile/0/x001/000",
        "tile/3/x001/x234/067",
        "tile/63/000",
        "tile/0/000.p/1",
        "tile/0/x001/x234/067.p/255",
        "tile/entries/000",
        "tile/entries/x001/x234/067.p/8",
        "tile/0/x009/x223/x372/x036/x854/x775/807",
    ] {
        cases.push(json!({"name": path, "kind": "path", "path": path, "result": "ok"}));
    }
    for path in [
        "",
        "tile",
        "tile/",
        "tile/0",
        "tile/0/",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/0/1000",
        "tile/00/000",
        "tile/-1/000",
        "tile/64/000",
        "tile/256/000",
        "tile/a/000",
        "tile/0/x000/000",
        "tile/0/001/000",
        "tile/0/x001/x000",
        "tile/0/x001//000",
        "tile/0/x01/000",
        "tile/0/000.p",
        "tile/0/000.p/",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000.p/-1",
        "tile/0/000.p/1/",
        "tile/0/000.p/1.p/1",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/000 ",
        "tile/0/x009/x223/x372/x036/x854/x775/808",
        "tile/0/x999/x999/x999/x999/x999/x999/x999/x999/999",
        "tile/data/000",
        "tile/0/００0",
        "tile/../0/000",
        "checkpoint",
    ] {
        let mut case =
            json!({"name": format!("{path:?}"), "kind": "path", "path": path, "result": "malformed"});
        if ["tile/64/000", "tile/256/000"].contains(&path) {
            case["go"] = "lax".into();
        }
        cases.push(case);
    }
    for size in [0, 1, 255, 256, 257, 512, 700, 65_535, 65_536, 65_537] {
        let tiles: Vec<String> = Tile::of_tree(size).map(|tile| tile.to_string()).collect();
        let few: Vec<&String> = tiles.iter().filter(|_| size < 1000).collect();
        if size < 1000 {
            cases.push(json!({"name": format!("tiles of {size}"), "kind": "tree", "size": size.to_string(), "tiles": few}));
        }
        let tree = Tree::new(size);
        for tile in Tile::of_tree(size).filter(|tile| tile.index % 255 == 0 || tile.width < 256) {
            let Content::Hashes(level) = tile.content else { continue };
            let hashes: Vec<u8> = (0..u64::from(tile.width))
                .flat_map(|at| tree.node(&Node { level: level * 8, index: tile.index * 256 + at }).0)
                .collect();
            cases.push(json!({"name": format!("{tile} of {size}"), "kind": "tile", "size": size.to_string(),
                "path": tile.to_string(), "sha256": hex::encode(&Sha256::digest(hashes))}));
        }
    }
    let whole: &[u8] = b"\0\x03abc\0\0\0\x01d";
    for (name, bundle, width, result) in [
        ("three entries, one of them empty", whole, 3, "ok"),
        ("fewer entries than its width", whole, 4, "malformed"),
        ("more entries than its width", whole, 2, "malformed"),
        ("it ends inside an entry", &whole[..9], 3, "malformed"),
        ("it ends inside a length", &whole[..6], 2, "malformed"),
    ] {
        let mut case = json!({"name": format!("bundle: {name}"), "kind": "bundle", "bundle": base64(bundle), "width": width, "result": result});
        if result == "ok" {
            case["entries"] = json!(["616263", "", "64"]);
        }
        cases.push(case);
    }
    cases
}

// ---- Policies and proofs --------------------------------------------------------------------------------

fn policies() -> Vec<Value> {
    let log_line = format!("log {}\n", log().public());
    let witnesses: String = (0..4u8)
        .map(|number| format!("witness W{number} {} https://w.example\n", witness(number).key))
        .collect();
    let two_of_three = format!("{log_line}{witnesses}group g 2 W0 W1 W2\nquorum g\n");
    let nested = format!(
        "# a comment é\n\n\t{log_line}{witnesses}group a any W0 W1\ngroup b all W2 W3\ngroup c all a b \nquorum c\n"
    );
    let alone = format!("{log_line}quorum none\n");
    let mut cases = Vec::new();
    let mut add = |name: &str, policy: &str, note: &Note, result: &str, cosigned: Option<usize>| {
        let mut case = json!({"name": name, "policy": policy, "note": note.to_string(), "result": result});
        if let Some(cosigned) = cosigned {
            case["cosigned"] = cosigned.into();
        }
        cases.push(case);
    };
    add("no witness needed", &alone, &noted(&[]), "ok", Some(0));
    add("no witness needed, unknown ones signed", &alone, &noted(&[0, 1]), "ok", Some(0));
    add("two of three", &two_of_three, &noted(&[0, 2]), "ok", Some(2));
    add("one of three", &two_of_three, &noted(&[1]), "quorum", None);
    add("one of three, twice", &two_of_three, &noted(&[1, 1]), "quorum", None);
    add("one of three and one outside the group", &two_of_three, &noted(&[1, 3]), "quorum", None);
    add("groups of groups", &nested, &noted(&[1, 2, 3]), "ok", Some(3));
    add("groups of groups, one short", &nested, &noted(&[0, 1, 2]), "quorum", None);
    add("one witness", &format!("{log_line}{witnesses}quorum W3\n"), &noted(&[3]), "ok", Some(1));
    add(
        "one witness, another signed",
        &format!("{log_line}{witnesses}quorum W3\n"),
        &noted(&[2]),
        "quorum",
        None,
    );
    let mut broken = noted(&[0, 2, 1]);
    broken.signatures[3].bytes[20] ^= 1;
    add("a broken cosignature beside a quorum", &two_of_three, &broken, "signature", None);
    let mut unsigned = noted(&[0, 2]);
    unsigned.signatures.remove(0);
    add("witnesses without the log", &two_of_three, &unsigned, "signature", None);
    let other = SigningKey::new("other.example", &[9; 32]).expect("a good name");
    let mut foreign = noted(&[]);
    foreign.signatures = vec![other.sign(foreign.text())];
    let both = format!("{log_line}log {} https://other.example\nquorum none\n", other.public());
    add("signed by another known log", &both, &foreign, "signature", None);
    add("one of two logs", &both, &noted(&[]), "ok", Some(0));
    add("no log in the policy", "quorum none\n", &noted(&[]), "origin", None);
    add(
        "a log that the policy does not have",
        &format!("log {}\nquorum none\n", other.public()),
        &noted(&[]),
        "origin",
        None,
    );
    let stranger =
        Note::new("log.example\n3\n".to_owned(), vec![log().sign("log.example\n3\n")]).expect("printable");
    add("no checkpoint", &alone, &stranger, "malformed", None);
    let good = noted(&[]);
    let many = |kind: &str, count: u8| -> String {
        (0..count)
            .map(|number| {
                let key = Secret::from_bytes(&[150 + number; 32]).verifying_key();
                match kind {
                    "log" => format!("log {}\n", raw_vkey(&format!("l{number}"), 1, key.as_bytes())),
                    "witness" => format!("witness x{number} {}\n", raw_vkey("w", 4, key.as_bytes())),
                    _ => format!(
                        "group g{number} any {}\n",
                        if number == 0 { "W0".to_owned() } else { format!("g{}", number - 1) }
                    ),
                }
            })
            .collect()
    };
    let same_key = raw_vkey("another.example", 1, Secret::from_bytes(&[1; 32]).verifying_key().as_bytes());
    add("32 logs", &format!("{}{log_line}quorum none\n", many("log", 31)), &good, "ok", Some(0));
    for (name, policy) in [
        ("nothing", String::new()),
        ("no quorum", log_line.clone()),
        ("two quorums", format!("{alone}quorum none\n")),
        ("no line feed at the end", alone.trim_end().to_owned()),
        ("a control character", alone.replace("none", "none\u{1}")),
        ("a carriage return", alone.replace('\n', "\r\n")),
        ("an unknown line", format!("{alone}url x\n")),
        ("a log without a key", format!("{alone}log\n")),
        ("a log with words behind the address", format!("log {} a b\nquorum none\n", log().public())),
        ("a log with a broken key", alone.replace("log log", "log lög")),
        ("a log with the key of a witness", format!("log {}\nquorum none\n", witness(0).key)),
        ("a witness with the key of a log", format!("witness a {}\nquorum none\n", log().public())),
        ("a log twice", format!("{log_line}{log_line}quorum none\n")),
        ("the same key under another name", format!("{log_line}log {same_key}\nquorum none\n")),
        ("a witness twice", format!("{witnesses}witness X {}\nquorum none\n", witness(0).key)),
        ("a name twice", format!("{witnesses}group W0 any W1\nquorum none\n")),
        ("a witness called none", format!("witness none {}\nquorum none\n", witness(0).key)),
        ("a quorum that is not defined", format!("{log_line}quorum g\n")),
        ("a quorum that is defined below", format!("{log_line}quorum W0\n{witnesses}")),
        ("a member that is not defined", format!("{witnesses}group g any W9\nquorum g\n")),
        ("a member none", format!("{witnesses}group g any none\nquorum g\n")),
        ("a group that is its own member", format!("{witnesses}group g any g\nquorum g\n")),
        ("a member twice", format!("{witnesses}group g any W0 W0\nquorum g\n")),
        ("a member of two groups", format!("{witnesses}group g any W0\ngroup h any W0\nquorum g\n")),
        ("a group without members", format!("{witnesses}group g all\nquorum g\n")),
        ("none of two", format!("{witnesses}group g 0 W0 W1\nquorum g\n")),
        ("three of two", format!("{witnesses}group g 3 W0 W1\nquorum g\n")),
        ("two with a leading zero", format!("{witnesses}group g 02 W0 W1\nquorum g\n")),
        ("33 logs", format!("{}quorum none\n", many("log", 33))),
        ("33 witnesses", format!("{}quorum none\n", many("witness", 33))),
        ("33 groups", format!("{witnesses}{}quorum none\n", many("group", 33))),
    ] {
        add(&format!("policy: {name}"), &policy, &good, "policy", None);
    }
    cases
}

/// A store log of 70 entries, one of which has the heads of 12 chains, one of which has the five events.
struct Evidence {
    events: Vec<StoredEvent>,
    proof: EventProof,
    head: HeadProof,
    entry: String,
    store: Tree,
    index: u64,
    size: u64,
}

fn evidence() -> Evidence {
    let (events, seq) = (events(), 2);
    let leaves: Vec<Hash> = events.iter().map(leaf_hash_of).collect();
    let (root, tag) = (merkle::root_of(&leaves), Tag::of(events[0].chain(Mode::Live)));
    let blind = Blind(std::array::from_fn(|at| 0x10 + u8::try_from(at).expect("16 bytes")));
    let own = Head { tag, size: 5, root, blind };
    let heads = (0..11).map(some_head).chain([own]).map(|head| (head.tag, head.hidden()));
    let trie = Trie::new(heads.collect()).expect("no tag comes twice");
    let TrieProof::Present { path } = trie.prove(&tag) else { panic!("the head is there") };
    let head = HeadPath { time_ms: 1_794_657_660_000, blind, path };
    let plan = Plan::inclusion(seq - 1, 5).expect("the event is in the tree");
    let read = |node: &Node| {
        let (start, width) = (usize::try_from(node.index).expect("small") << node.level, 1 << node.level);
        merkle::root_of(&leaves[start..start + width])
    };
    let path = plan.proof(&plan.nodes().iter().map(read).collect::<Vec<_>>()).expect("a hash for each node");
    let salt = salt_keys().salt(seq).expect("it was not erased");
    let proof = EventProof {
        mode: Mode::Live,
        chain_seq: seq,
        private: Private::Salt(salt),
        size: 5,
        path,
        head: head.clone(),
    };
    let entry = heads_text(1_794_657_660_000, &trie.root());
    let (index, size) = (41, 70);
    let mut levels = vec![Vec::new(); 64];
    let mut range = CompactRange::default();
    for number in 0..size {
        let text = if number == index { entry.clone() } else { number.to_string() };
        let added = range.append(merkle::leaf_hash(text.as_bytes()), |node, hash| {
            levels[usize::from(node.level)].push(hash)
        });
        assert!(added, "the tree is small");
    }
    let head = HeadProof { tag, size: 5, root, head };
    Evidence { events, proof, head, entry, store: Tree { levels }, index, size }
}

fn proofs() -> Vec<Value> {
    let evidence = evidence();
    let Evidence { events, proof, head, entry, store, index, size } = &evidence;
    let policy = format!("log {}\nwitness W0 {}\nquorum W0\n", log().public(), witness(0).key);
    let checkpoint = Checkpoint { origin: ORIGIN.to_owned(), size: *size, root: store.root(*size) };
    let mut note = checkpoint.sign(&[&log()]).expect("a printable origin");
    let unwitnessed = note.clone();
    note.signatures.push(witness(0).cosign(1_794_657_661, note.text()));
    let path = store.proof(Plan::inclusion(*index, *size));
    let file = |extra: String| TlogProof {
        extra: Some(extra.into_bytes()),
        index: *index,
        path: path.clone(),
        checkpoint: note.clone(),
    };
    let (event, good) = (&events[1], file(proof.to_string()));
    let mut cases = Vec::new();
    let mut add = |name: &str, event: Option<&StoredEvent>, file: String, result: &str, has_entry: bool| {
        let mut case = json!({"name": name, "event": event.map(event_text), "proof": file, "policy": policy, "result": result});
        if has_entry {
            case["entry"] = entry.clone().into();
        }
        cases.push(case);
    };
    add("an event", Some(event), good.to_string(), "ok", true);
    let erased = StoredEvent {
        annotations: Annotations { ip_address: None, country: None, city: None, ..event.annotations.clone() },
        ..event.clone()
    };
    let committed = EventProof { private: Private::Commitment(private_of(event)), ..proof.clone() };
    add(
        "an event whose private fields were erased",
        Some(&erased),
        file(committed.to_string()).to_string(),
        "ok",
        true,
    );
    add("a head", None, file(head.to_string()).to_string(), "ok", true);
    add(
        "a private field is shown although it was erased",
        Some(event),
        file(committed.to_string()).to_string(),
        "annotations",
        false,
    );
    let changed = |change: &dyn Fn(&mut StoredEvent)| {
        let mut event = event.clone();
        change(&mut event);
        event
    };
    type Change = fn(&mut StoredEvent);
    let annotations: [(&str, Change); 6] = [
        ("another address", |event| event.annotations.ip_address = Some("203.0.113.8".into())),
        ("no city", |event| event.annotations.city = None),
        ("another severity", |event| event.annotations.severity = Some("low".into())),
        ("no category", |event| event.annotations.category = None),
        ("another actor type", |event| event.annotations.actor_type = Some("user".into())),
        ("another project", |event| event.project_id.0.0[3] ^= 1),
    ];
    for (name, change) in annotations {
        add(
            &format!("{name}, which the hash does not cover"),
            Some(&changed(&change)),
            good.to_string(),
            "root",
            false,
        );
    }
    add(
        "another previous hash",
        Some(&changed(&|event| event.sealed.prev_hash = flipped(event.sealed.prev_hash))),
        good.to_string(),
        "hash",
        false,
    );
    add(
        "another tenant",
        Some(&changed(&|event| event.tenant_id.0.0[3] ^= 1)),
        good.to_string(),
        "hash",
        false,
    );
    add("another event of the chain", Some(&events[2]), good.to_string(), "seq", false);
    add(
        "a later schema",
        Some(&changed(&|event| event.schema_version = 2)),
        good.to_string(),
        "schema",
        false,
    );
    let mut extra = |name: &str, from: &str, to: &str, result: &str| {
        let text = proof.to_string();
        assert!(text.contains(from), "{name}");
        add(
            &format!("extra: {name}"),
            Some(event),
            file(text.replacen(from, to, 1)).to_string(),
            result,
            false,
        );
    };
    extra("another salt", "salt 8", "salt 9", "root");
    extra("another blind", "blind 10", "blind 11", "root");
    extra("another time", "time 17", "time 16", "root");
    extra("another size", "size 5", "size 6", "root");
    extra("a size without this event", "size 5", "size 1", "root");
    extra("a size of 2^63 - 1", "size 5", "size 9223372036854775807", "root");
    extra("a size of 2^63", "size 5", "size 9223372036854775808", "malformed");
    extra("the other mode", "mode live", "mode test", "root");
    extra("seq 0", "seq 2", "seq 0", "seq");
    extra("an unknown mode", "mode live", "mode dead", "malformed");
    extra("no mode", "mode live\n", "", "malformed");
    extra("another kind", "event-proof/v1", "event-proof/v2", "malformed");
    extra("a salt in upper case", "salt 8c", "salt 8C", "malformed");
    extra("no empty line", "\n\ntime", "\ntime", "malformed");
    extra("a line too many", "blind", "line 1\nblind", "malformed");
    let hash = b64(&Hash([7; 32]));
    let lines = |count: usize| format!("size 5\n{}", format!("{hash}\n").repeat(count));
    extra("63 hashes to the chain's root and more", "size 5\n", &lines(60), "root");
    extra("64 hashes to the chain's root", "size 5\n", &lines(64), "malformed");
    let blind = "blind 101112131415161718191a1b1c1d1e1f\n";
    extra(
        "257 hashes to the trie's root",
        blind,
        &format!("{blind}{}", format!("{hash}\n").repeat(257)),
        "malformed",
    );
    let mut edit = |name: &str, from: &str, to: &str, result: &str| {
        let text = good.to_string();
        assert!(text.contains(from), "{name}");
        add(name, Some(event), text.replacen(from, to, 1), result, false);
    };
    edit("another index", "index 41", "index 40", "root");
    edit("an index behind the tree", "index 41", "index 70", "root");
    edit("an index with a leading zero", "index 41", "index 041", "malformed");
    edit("an index of 2^63", "index 41", "index 9223372036854775808", "malformed");
    edit("another header", "tlog-proof@v1", "tlog-proof@v2", "malformed");
    edit("no index", "index 41\n", "", "malformed");
    edit("no empty line before the checkpoint", "\n\nlog", "\nlog", "malformed");
    edit("another tree size", "\n70\n", "\n71\n", "signature");
    edit("another origin", "\nlog.example\n", "\nlog2.example\n", "origin");
    edit("63 hashes", "index 41\n", &format!("index 41\n{}", format!("{hash}\n").repeat(56)), "root");
    edit("64 hashes", "index 41\n", &format!("index 41\n{}", format!("{hash}\n").repeat(57)), "malformed");
    edit("a hash that is too short", "index 41\n", &format!("index 41\n{}\n", &hash[4..]), "malformed");
    add(
        "an extra that is not base64",
        Some(event),
        good.to_string().replacen("extra ", "extra .", 1),
        "malformed",
        false,
    );
    add("no extra", Some(event), TlogProof { extra: None, ..good.clone() }.to_string(), "malformed", false);
    add(
        "a proof of a head for an event",
        Some(event),
        file(head.to_string()).to_string(),
        "malformed",
        false,
    );
    add(
        "no witness",
        Some(event),
        TlogProof { checkpoint: unwitnessed, ..good.clone() }.to_string(),
        "quorum",
        false,
    );
    let other = HeadProof { size: 6, ..head.clone() };
    add("a head of another size", None, file(other.to_string()).to_string(), "root", false);
    let other = HeadProof { root: flipped(head.root), ..head.clone() };
    add("a head of another root", None, file(other.to_string()).to_string(), "root", false);
    add("nothing", Some(event), String::new(), "malformed", false);
    cases
}
