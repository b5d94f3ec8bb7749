//! The test vectors are what is checked in, and every implementation agrees with them.

#[allow(dead_code)]
#[path = "../../examples/trust_vectors.rs"]
pub(crate) mod written;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use base64ct::{Base64, Encoding};
use sealog_core::event::StoredEvent;
use sealog_core::hex;
use sealog_core::id::{Hash, Mode};
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::Entry;
use sealog_trust::heads::{self, Blind, Head, Trie, TrieError};
use sealog_trust::leaf::{self, Leaf, Tag};
use sealog_trust::merkle::{self, ProofError};
use sealog_trust::note::{Note, NoteError, SigningKey, VerifierKey};
use sealog_trust::policy::Policy;
use sealog_trust::proof::{EventProof, HeadProof, TlogProof};
use sealog_trust::salt::{Salt, SaltKey, SaltKeys};
use sealog_trust::tile::{self, Tile};
use serde_json::{Value, json};

/// Made once: thousands of proofs take seconds.
fn all() -> &'static [(&'static str, Vec<Value>)] {
    static ALL: LazyLock<[(&str, Vec<Value>); 10]> = LazyLock::new(written::all);
    &*ALL
}

#[test]
fn the_files_are_what_the_example_writes() {
    for (name, text) in written::files(all()) {
        let path = written::root().join(name);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is out of date; `cargo run -p sealog-trust --example trust_vectors` writes it",
            path.display()
        );
    }
}

#[test]
fn no_name_comes_twice_in_a_file_and_all_are_small() {
    let mut bytes = 0;
    for (file, cases) in all() {
        let names: BTreeSet<&str> = cases.iter().map(|case| text(case, "name")).collect();
        assert_eq!(names.len(), cases.len(), "{file}");
        let result = |wanted: bool| cases.iter().any(|case| (text(case, "result") == "ok") == wanted);
        let has_results = cases.iter().any(|case| case.get("result").is_some());
        assert!(!has_results || (result(true) && result(false)), "{file} has cases that pass and that fail");
        bytes += cases.iter().map(|case| case.to_string().len()).sum::<usize>();
    }
    assert!(bytes < 2 << 20, "the vectors have {bytes} bytes");
}

#[test]
fn rust_agrees_with_every_case() {
    for (file, cases) in all() {
        for case in cases {
            let name = text(case, "name");
            let found = run(file, case);
            let wanted = case.get("result").cloned().unwrap_or(json!("ok"));
            assert_eq!(json!(found), wanted, "{file}: {name}");
        }
    }
}

#[test]
fn python_agrees_with_every_case() {
    agrees("python3", "tools/sealog_trust.py");
}

#[test]
fn node_agrees_with_every_case() {
    agrees("node", "tools/sealog_trust.mjs");
}

#[test]
fn go_agrees_with_every_case_that_it_knows() {
    let folder = written::root().join("tools/go-trust");
    let go = |arguments: &[&str]| {
        Command::new("go")
            .args(arguments)
            .current_dir(&folder)
            .env("GOFLAGS", "-mod=readonly -buildvcs=false")
            .env("GOTOOLCHAIN", "local")
            .output()
    };
    // Only a missing Go or module may skip the test. Once the module is here, every failure counts.
    let skip = match go(&["mod", "download"]) {
        Err(error) => Some(error.to_string()),
        Ok(output) => {
            (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    if let Some(reason) = skip {
        eprintln!(
            "SKIPPED: golang.org/x/mod did not check the vectors, because Go or the module is missing: {reason}"
        );
        return;
    }
    let output = go(&["run", ".", "../../vectors/trust"]).expect("go started before");
    let said = said(&output);
    let last = said.lines().rfind(|line| line.contains(" passed, ")).unwrap_or_default();
    let passed: usize = last.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    assert!(output.status.success() && last.contains(", 0 failed") && passed >= 600, "{said}");
    println!("{last}");
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn agrees(interpreter: &str, tool: &str) {
    let output = Command::new(interpreter)
        .arg(written::root().join(tool))
        .arg("--vectors")
        .arg(written::root().join("vectors/trust"))
        .output()
        .unwrap_or_else(|error| panic!("{interpreter} does not start: {error}"));
    let count: usize = all().iter().map(|(_, cases)| cases.len()).sum();
    let said = said(&output);
    let last = format!("{count} passed, 0 failed");
    assert!(
        output.status.success() && said.lines().last() == Some(&last),
        "{count} cases, but {} says:\n{said}",
        Path::new(tool).display()
    );
}

// ---- Every case in Rust ---------------------------------------------------------------------------------

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

fn number(case: &Value, field: &str) -> u64 {
    text(case, field).parse().unwrap()
}

fn hash(value: &Value) -> Hash {
    Hash(Base64::decode_vec(value.as_str().unwrap()).unwrap().try_into().unwrap())
}

fn hashes(value: &Value) -> Vec<Hash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

fn tag(case: &Value) -> Tag {
    Tag(Hash::parse(text(case, "tag")).unwrap())
}

/// The word for the outcome of a case; what else it has to come to is asserted.
fn run(file: &str, case: &Value) -> &'static str {
    match file {
        "sizes" => run_size(case),
        "trees" => run_tree(case),
        "leaves" => run_leaf(case),
        "salts" => run_salt(case),
        "heads" => run_head(case),
        "notes" => run_note(case),
        "entries" => match Entry::parse(text(case, "entry").as_bytes()) {
            Ok(Entry::Unknown { .. }) => "unknown",
            Ok(entry) => {
                assert_eq!(
                    entry.to_text().as_deref(),
                    case["entry"].as_str(),
                    "it is written as it was read"
                );
                "ok"
            }
            Err(_) => "malformed",
        },
        "tiles" => run_tile(case),
        "policies" => run_policy(case),
        "proofs" => run_proof(case),
        _ => panic!("{file} has no rules"),
    }
}

/// The proofs are those of the vectors by their making; here each has to verify.
fn run_size(case: &Value) -> &'static str {
    let size = number(case, "size");
    let leaves = crate::trees::leaves(size);
    assert_eq!(merkle::root_of(&leaves), hash(&case["root"]));
    "ok"
}

fn proof_word(result: Result<(), ProofError>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(ProofError::Size { .. }) => "size",
        Err(ProofError::Outside { .. }) => "outside",
        Err(ProofError::EmptyRange) => "empty",
        Err(ProofError::Length { .. }) => "length",
        Err(ProofError::TooLong { .. }) => "too long",
        Err(ProofError::Root | ProofError::OldRoot) => "root",
    }
}

fn run_tree(case: &Value) -> &'static str {
    let (size, root, path) = (number(case, "size"), hash(&case["root"]), hashes(&case["path"]));
    proof_word(match text(case, "kind") {
        "inclusion" => {
            merkle::verify_inclusion(hash(&case["leaf"]), number(case, "index"), size, &root, &path)
        }
        "consistency" => {
            merkle::verify_consistency(number(case, "old"), &hash(&case["old_root"]), size, &root, &path)
        }
        _ => merkle::verify_range(number(case, "start"), &hashes(&case["leaves"]), size, &root, &path),
    })
}

fn run_leaf(case: &Value) -> &'static str {
    let event = StoredEvent::parse_json(text(case, "event")).unwrap();
    let salt = Salt(hex::decode(text(case, "salt")).unwrap());
    let private = leaf::private_commitment(&salt, &event.annotations).unwrap();
    let mut bytes = Vec::new();
    leaf::put_leaf(&event, &private, &mut bytes).unwrap();
    assert_eq!(
        (private.to_string().as_str(), hex::encode(&bytes).as_str()),
        (text(case, "private"), text(case, "leaf"))
    );
    let read = Leaf::parse(&bytes).unwrap();
    assert_eq!(
        (read.chain_seq, read.hash, read.private),
        (event.sealed.chain_seq, event.sealed.hash, private)
    );
    assert_eq!(read.public, event.annotations.values()[..4]);
    for end in 0..bytes.len() {
        assert!(
            Leaf::parse(&bytes[..end]).is_ok_and(|cut| cut != read) || Leaf::parse(&bytes[..end]).is_err()
        );
    }
    assert_eq!(leaf::leaf_hash(&event, &private).unwrap(), hash(&case["leaf_hash"]));
    let mode = if text(case, "mode") == "live" { Mode::Live } else { Mode::Test };
    assert_eq!(Tag::of(event.chain(mode)), tag(case));
    "ok"
}

fn run_salt(case: &Value) -> &'static str {
    if text(case, "kind") == "line" {
        return SaltKey::parse(text(case, "line")).map_or("malformed", |_| "ok");
    }
    let lines = case["keys"].as_array().unwrap().iter();
    let keys =
        SaltKeys::new(lines.map(|line| SaltKey::parse(line.as_str().unwrap()).unwrap()).collect()).unwrap();
    let written = |keys: &SaltKeys| json!(keys.keys().iter().map(SaltKey::to_line).collect::<Vec<_>>());
    if text(case, "kind") == "salt" {
        assert_eq!(json!(keys.salt(number(case, "seq")).map(|salt| hex::encode(&salt.0))), case["salt"]);
    } else {
        let seqs = number(case, "from")..=number(case, "to");
        assert_eq!(written(&keys.cover(seqs.clone())), case["cover"]);
        assert_eq!(written(&keys.puncture(seqs)), case["punctured"]);
    }
    "ok"
}

fn head(case: &Value) -> Head {
    let blind = Blind(hex::decode(text(case, "blind")).unwrap());
    Head { tag: tag(case), size: number(case, "size"), root: hash(&case["root"]), blind }
}

fn run_head(case: &Value) -> &'static str {
    let result = match text(case, "kind") {
        "blind" => {
            let secret = hex::decode::<6>(text(case, "secret")).unwrap();
            let blind = Blind::of(&secret, &tag(case), number(case, "index"));
            assert_eq!(hex::encode(&blind.0), text(case, "blind"));
            Ok(())
        }
        "trie" => {
            let all = case["heads"].as_array().unwrap().iter().map(head);
            let trie = Trie::new(all.map(|head| (head.tag, head.hidden())).collect()).unwrap();
            assert_eq!(trie.root(), hash(&case["trie_root"]));
            Ok(())
        }
        "present" => heads::verify_present(&head(case), &hash(&case["trie_root"]), &hashes(&case["path"])),
        _ => {
            let foreign = case["foreign"].as_array();
            let foreign =
                foreign.map(|pair| (Tag(Hash::parse(pair[0].as_str().unwrap()).unwrap()), hash(&pair[1])));
            heads::verify_absent(
                &tag(case),
                &hash(&case["trie_root"]),
                &hashes(&case["path"]),
                foreign.as_ref(),
            )
        }
    };
    match result {
        Ok(()) => "ok",
        Err(TrieError::TooLong { .. }) => "too long",
        Err(TrieError::Foreign) => "foreign",
        Err(TrieError::Root) => "root",
    }
}

fn run_note(case: &Value) -> &'static str {
    match text(case, "kind") {
        "vkey" => {
            let vkey = text(case, "vkey");
            VerifierKey::parse(vkey).map_or("malformed", |key| {
                assert_eq!(key.to_string(), vkey);
                "ok"
            })
        }
        "checkpoint" => {
            let wanted = text(case, "text");
            Checkpoint::parse(wanted).map_or("malformed", |checkpoint| {
                assert_eq!(checkpoint.to_string(), wanted);
                "ok"
            })
        }
        "sign" => {
            let signature = SigningKey::parse(text(case, "skey")).unwrap().sign(text(case, "text"));
            let note = Note::new(text(case, "text").to_owned(), vec![signature]).unwrap();
            assert_eq!(note.to_string(), text(case, "note"));
            "ok"
        }
        _ => {
            let keys = case["keys"].as_array().unwrap().iter();
            let keys: Vec<VerifierKey> =
                keys.map(|key| VerifierKey::parse(key.as_str().unwrap()).unwrap()).collect();
            let Ok(note) = Note::parse(text(case, "note").as_bytes()) else { return "malformed" };
            assert_eq!(note.to_string(), text(case, "note"));
            match note.verify(&keys.iter().collect::<Vec<_>>()) {
                Ok(signed) => {
                    let signed: Vec<Value> =
                        signed.iter().map(|signed| json!([signed.key, signed.time_s.to_string()])).collect();
                    assert_eq!(json!(signed), case["signed"]);
                    "ok"
                }
                Err(NoteError::Signature { .. }) => "signature",
                Err(NoteError::UnknownKeys) => "unknown",
            }
        }
    }
}

fn run_tile(case: &Value) -> &'static str {
    match text(case, "kind") {
        "path" => Tile::parse(text(case, "path")).map_or("malformed", |tile| {
            assert_eq!(tile.to_string(), text(case, "path"));
            "ok"
        }),
        "bundle" => {
            let bundle = Base64::decode_vec(text(case, "bundle")).unwrap();
            let width = u16::try_from(case["width"].as_u64().unwrap()).unwrap();
            tile::entries(&bundle, width).map_or("malformed", |entries| {
                assert_eq!(json!(entries.into_iter().map(hex::encode).collect::<Vec<_>>()), case["entries"]);
                "ok"
            })
        }
        // Made by the same code; the other implementations make them again.
        _ => "ok",
    }
}

fn run_policy(case: &Value) -> &'static str {
    let Ok(policy) = Policy::parse(text(case, "policy").as_bytes()) else { return "policy" };
    let note = Note::parse(text(case, "note").as_bytes()).unwrap();
    match policy.verify(&note) {
        Ok(accepted) => {
            assert_eq!(json!(accepted.cosigned.len()), case["cosigned"]);
            "ok"
        }
        Err(refused) => {
            assert!(!refused.to_string().is_empty());
            refused.reason()
        }
    }
}

fn run_proof(case: &Value) -> &'static str {
    let Ok(file) = TlogProof::parse(text(case, "proof").as_bytes()) else { return "malformed" };
    assert_eq!(file.to_string(), text(case, "proof"), "it is written as it was read");
    let extra = file.extra.as_deref().unwrap_or_default();
    let entry = match case["event"].as_str() {
        None => HeadProof::parse(extra).unwrap().entry().unwrap(),
        Some(event) => {
            let Ok(proof) = EventProof::parse(extra) else { return "malformed" };
            match proof.entry(&StoredEvent::parse_json(event).unwrap()) {
                Ok(entry) => entry,
                Err(error) => return error.reason(),
            }
        }
    };
    if let Some(wanted) = case["entry"].as_str() {
        assert_eq!(entry, wanted);
    }
    let policy = Policy::parse(text(case, "policy").as_bytes()).unwrap();
    file.verify(entry.as_bytes(), &policy).map_or_else(|error| error.reason(), |_| "ok")
}
