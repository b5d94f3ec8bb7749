//! 10.1 The store log: what anyone reads of it is checked as a stranger would, with the formats of C2SP.

use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::Entry;
use sealog_trust::merkle::{leaf_hash, root_of, verify_consistency, verify_inclusion};
use sealog_trust::note::{Note, VerifierKey};
use sealog_trust::tile::{self, Tile};
use serde_json::{Value, json};

use crate::harness::*;

const ORIGIN: &str = "log.example/tlog/v1/store";

fn stranger(service: &Service, path: &str) -> Response {
    service.request("GET", &format!("/tlog/v1/store{path}"), &[], b"")
}

#[track_caller]
fn text_of(answer: &Response) -> &str {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    &answer.body
}

#[track_caller]
fn bytes_of(answer: &Response) -> &[u8] {
    let found = (answer.status, answer.header("content-type"));
    assert_eq!(found, (200, Some("application/octet-stream")), "{}", answer.body);
    &answer.bytes
}

/// The vkey of the log key.
fn vkey(service: &Service) -> VerifierKey {
    let keys = stranger(service, "/keys").ok();
    VerifierKey::parse(keys["keys"][0]["vkey"].as_str().unwrap()).unwrap()
}

/// A checkpoint whose signature by the log key holds.
#[track_caller]
fn checkpoint(service: &Service, query: &str) -> Checkpoint {
    let answer = stranger(service, &format!("/checkpoint{query}"));
    let note = Note::parse(text_of(&answer).as_bytes()).unwrap();
    note.verify(&[&vkey(service)]).unwrap();
    Checkpoint::parse(note.text()).unwrap()
}

/// All entries, from the bundles.
fn entries(service: &Service, size: u64) -> Vec<Vec<u8>> {
    let width = u16::try_from(size).unwrap();
    let answer = stranger(service, &format!("/tile/entries/000.p/{width}"));
    tile::entries(bytes_of(&answer), width).unwrap().into_iter().map(<[u8]>::to_vec).collect()
}

pub fn hashes(value: &Value) -> Vec<sealog_core::id::Hash> {
    use sealog_core::id::Hash;
    let parsed = |text: &Value| {
        let line = format!("x\n1\n{}\n", text.as_str().unwrap());
        Checkpoint::parse(&line).map(|checkpoint| checkpoint.root).unwrap()
    };
    let found: Vec<Hash> = value.as_array().unwrap().iter().map(parsed).collect();
    found
}

#[test]
fn the_newest_checkpoint_is_signed_by_the_log_key_and_grows_with_each_interval() {
    let service = Service::publishing();
    service.fill(&service.live, 3);
    service.publish();
    let first = checkpoint(&service, "");
    assert_eq!(first.origin, ORIGIN);
    service.publish();
    let second = checkpoint(&service, "");
    assert_eq!(second.size, first.size + 1, "also when nothing has happened");
    assert_eq!(stranger(&service, "/checkpoint").header("cache-control"), Some("max-age=2"));
}

#[test]
fn a_checkpoint_of_an_entry_is_the_oldest_one_that_has_it() {
    let service = Service::publishing();
    service.publish();
    let first = checkpoint(&service, "");
    service.publish();
    let second = checkpoint(&service, "");
    assert_eq!(checkpoint(&service, &format!("?at={}", first.size - 1)), first);
    assert_eq!(checkpoint(&service, &format!("?at={}", second.size - 1)), second);
    let message =
        stranger(&service, &format!("/checkpoint?at={}", second.size)).rejected(404, "tlog/not_found");
    assert_eq!(message, "No signed checkpoint has an entry with this index.");
}

#[test]
fn entries_and_tiles_lead_to_the_root_of_the_checkpoint_and_may_be_kept_for_a_year() {
    let service = Service::publishing();
    service.publish();
    service.publish();
    let checkpoint = checkpoint(&service, "");
    let entries = entries(&service, checkpoint.size);
    let leaves: Vec<_> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    assert_eq!(root_of(&leaves), checkpoint.root);
    assert!(matches!(Entry::parse(&entries[0]), Ok(Entry::Genesis { origin, .. }) if origin == ORIGIN));
    assert!(matches!(Entry::parse(entries.last().unwrap()), Ok(Entry::Heads { .. })));
    for tile in Tile::of_tree(checkpoint.size) {
        let answer = stranger(&service, &format!("/{tile}"));
        assert_eq!(tile::hashes(bytes_of(&answer), tile.width).unwrap(), leaves);
        assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
    }
    // Of an older checkpoint, too.
    let narrow = stranger(&service, "/tile/0/000.p/1");
    assert_eq!(tile::hashes(bytes_of(&narrow), 1).unwrap(), leaves[..1]);
}

#[test]
fn a_proof_leads_from_an_entry_to_the_root() {
    let service = Service::publishing();
    service.publish();
    service.publish();
    let Checkpoint { size, root, .. } = checkpoint(&service, "");
    for (index, entry) in (0..).zip(entries(&service, size)) {
        let proof = stranger(&service, &format!("/proof?index={index}&size={size}")).ok();
        assert_eq!((&proof["index"], &proof["size"]), (&json!(index), &json!(size)));
        verify_inclusion(leaf_hash(&entry), index, size, &root, &hashes(&proof["path"])).unwrap();
    }
}

#[test]
fn a_kept_checkpoint_begins_the_newest_one() {
    let service = Service::publishing();
    service.publish();
    let old = checkpoint(&service, "");
    service.publish();
    service.publish();
    let new = checkpoint(&service, "");
    let proof = stranger(&service, &format!("/consistency?from={}&to={}", old.size, new.size)).ok();
    verify_consistency(old.size, &old.root, new.size, &new.root, &hashes(&proof["path"])).unwrap();
    let same = stranger(&service, &format!("/consistency?from={0}&to={0}", new.size)).ok();
    assert_eq!(same, json!({ "from": new.size, "to": new.size, "path": [] }));
}

#[test]
fn keys_are_named_with_the_entries_that_added_them() {
    let service = Service::publishing();
    let keys = stranger(&service, "/keys").ok();
    assert_eq!((&keys["origin"], &keys["policy"]), (&json!(ORIGIN), &Value::Null));
    let size = checkpoint(&service, "").size;
    let entries = entries(&service, size);
    let expected = [("log", ORIGIN.to_owned()), ("service", format!("{ORIGIN}/service"))];
    assert_eq!(keys["keys"].as_array().unwrap().len(), expected.len());
    for (key, (role, name)) in keys["keys"].as_array().unwrap().iter().zip(expected) {
        assert_eq!((text(&key["role"]).as_str(), text(&key["state"]).as_str()), (role, "active"));
        assert_eq!(key["retired_index"], Value::Null);
        let vkey = VerifierKey::parse(&text(&key["vkey"])).unwrap();
        assert_eq!(vkey.name(), name);
        let entry = &entries[usize::try_from(key["index"].as_u64().unwrap()).unwrap()];
        assert!(matches!(Entry::parse(entry), Ok(Entry::Key { key, .. }) if *key == vkey));
    }
}

#[test]
fn what_is_not_in_a_signed_tree_is_not_found() {
    let service = Service::publishing();
    service.publish();
    let size = checkpoint(&service, "").size;
    for path in [
        format!("/tile/0/000.p/{}", size + 1),
        format!("/tile/entries/000.p/{}", size + 1),
        "/tile/0/000".into(),
        "/tile/0/001.p/1".into(),
        "/tile/1/000.p/1".into(),
        "/tile/63/000.p/1".into(),
        "/tile/0/x009/x223/x372/x036/x854/x775/807".into(),
        "/tile/entries/x009/x223/x372/x036/x854/x775/807".into(),
        format!("/proof?index=0&size={}", size + 1),
        "/proof?index=0&size=9223372036854775807".into(),
        format!("/consistency?from=1&to={}", size + 1),
        "/consistency?from=9223372036854775807&to=9223372036854775807".into(),
        "/checkpoint?at=9223372036854775807".into(),
    ] {
        stranger(&service, &path).rejected(404, "tlog/not_found");
    }
    for path in ["", "/", "/nothing", "/checkpoint/", "/keys/x"] {
        stranger(&service, path).rejected(404, "request/not_found");
    }
}

#[test]
fn what_is_malformed_is_named() {
    let service = Service::publishing();
    for path in [
        "/tile/",
        "/tile/0",
        "/tile/0/",
        "/tile/entries",
        "/tile/entries/",
        "/tile/64/000",
        "/tile/00/000",
        "/tile/-1/000",
        "/tile/0/0",
        "/tile/0/0000",
        "/tile/0/x000/000",
        "/tile/0/x001",
        "/tile/0/001/000",
        "/tile/0/000.p/0",
        "/tile/0/000.p/01",
        "/tile/0/000.p/256",
        "/tile/0/000.p/",
        "/tile/0/000.p/1/",
        "/tile/0/x009/x223/x372/x036/x854/x775/808",
        "/tile/0/x999/x999/x999/x999/x999/x999/x999/x999/999",
        "/tile/%30/000",
        "/tile/entries/000.p/0",
        "/tile/entries/000.p/256",
    ] {
        let message = stranger(&service, path).rejected(400, "read/invalid_params");
        assert!(message.starts_with("the path of a tile: `"), "{path}: {message}");
    }
    for (query, parameter) in [
        ("checkpoint?at=", "at"),
        ("checkpoint?at=01", "at"),
        ("checkpoint?at=-1", "at"),
        ("checkpoint?at=9223372036854775808", "at"),
        ("checkpoint?at=1&at=1", "at"),
        ("checkpoint?size=1", "size"),
        ("proof", "index"),
        ("proof?index=0", "size"),
        ("proof?size=1", "index"),
        ("proof?index=00&size=1", "index"),
        ("proof?index=0&size=+1", "size"),
        ("proof?index=1&size=1", "index"),
        ("proof?index=0&size=0", "index"),
        ("proof?index=0&size=99999999999999999999999999999999999999999999", "size"),
        ("consistency?from=1", "to"),
        ("consistency?to=1", "from"),
        ("consistency?from=2&to=1", "to"),
        ("consistency?from=01&to=1", "from"),
    ] {
        let message = stranger(&service, &format!("/{query}")).rejected(400, "read/invalid_params");
        assert!(message.contains(&format!("{parameter:?}")), "{query}: {message}");
    }
}

#[test]
fn none_of_it_exists_where_the_store_publishes_nothing() {
    let service = Service::start();
    for path in ["/checkpoint", "/keys", "/tile/0/000", "/proof?index=x", "/consistency", "/checkpoint?at=x"]
    {
        stranger(&service, path).rejected(404, "request/not_found");
        let posted = service.request("POST", &format!("/tlog/v1/store{path}"), &[], b"");
        posted.rejected(404, "request/not_found");
    }
}

#[test]
fn strangers_count_for_the_rate_of_their_address() {
    let service = Service::with(|setup| {
        setup.trust = true;
        setup.config.limits.per_ip_rps = 12;
    });
    let answers: Vec<Response> = (0..13).map(|_| stranger(&service, "/checkpoint")).collect();
    assert!(answers.iter().any(|answer| answer.status == 200));
    answers.last().unwrap().rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn what_was_signed_is_served_after_a_restart() {
    let mut service = Service::publishing();
    service.publish();
    let before = checkpoint(&service, "");
    service.restart();
    service.publish();
    let after = checkpoint(&service, "");
    let proof = stranger(&service, &format!("/consistency?from={}&to={}", before.size, after.size)).ok();
    verify_consistency(before.size, &before.root, after.size, &after.root, &hashes(&proof["path"])).unwrap();
}
