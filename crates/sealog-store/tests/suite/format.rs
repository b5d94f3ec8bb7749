//! The files as `docs/format.md` describes them: a program in another language, written from that page, must
//! read what the store wrote.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use sealog_core::id::{ChainId, Mode};
use sealog_core::query::Filter;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::*;

fn python(arguments: &[&str], data: &Path) -> Output {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/sealog_verify.py");
    Command::new("python3").arg(tool).arg("--data").arg(data).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A store with several segments, a restart in the middle, batches, keys, and both modes. Its chains.
fn build(dir: &Path) -> Vec<ChainId> {
    let world = StillWorld::new();
    let chains = vec![live(), chain(2, 2, Mode::Live), chain(1, 1, Mode::Test)];
    for round in 0..3 {
        let store = EmbeddedStore::open(dir, &small(&world)).unwrap();
        for n in 0..200 {
            let chain = chains[n % 3];
            let mut sent = draft(&format!(
                r#"{{"action":"a.b","actor_id":"é{n}","metadata":{{"n":{n}.0e1,"s":"\ud800","d":{{"x":1,"x":2}}}},"session_id":"s"}}"#
            ));
            sent.annotations.city = Some("Köln".into());
            append(&store, chain, vec![sent; if n % 20 == 0 { 30 } else { 1 }]);
            append_once(
                &store,
                chain,
                vec![login("k")],
                key(&format!("k{round}{n}"), "b"),
                sealog_core::id::Ulid(n as u128),
            );
            world.advance(3);
        }
    }
    chains
}

#[test]
fn the_python_reader_finds_the_same_heads() {
    let dir = tempfile::tempdir().unwrap();
    let chains = build(dir.path());
    let output = python(&[], dir.path());
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    for chain in chains {
        let head = wait(store.head(chain)).unwrap().durable;
        let line = format!("head {}:{}", head.chain_seq, head.hash);
        let found = text(&output).lines().any(|l| {
            l.starts_with(chain.mode.as_str())
                && l.contains(&chain.project_id.to_string())
                && l.contains(&line)
        });
        assert!(found, "{line} is not in\n{}", text(&output));
    }
}

#[test]
fn the_python_reader_exports_every_event_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let output = python(&["--export", &live().project_id.to_string()], dir.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let mut expected = Vec::new();
    for event in list(&store, live(), &Filter::default(), None, 10_000).iter().rev() {
        event.put_json(&mut expected);
        expected.push(b'\n');
    }
    assert!(output.stdout == expected, "the export differs from what the store returns");
}

#[test]
fn the_python_reader_tells_damage_deletion_and_a_cut_from_a_sound_store() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path());
    let copy = |name: &str| {
        let copy = tempfile::tempdir().unwrap();
        for file in walk(dir.path()) {
            let to = copy.path().join(file.strip_prefix(dir.path()).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, to).unwrap();
        }
        (copy, name.to_owned())
    };
    let broken = |(copy, name): (tempfile::TempDir, String)| {
        let output = python(&[], copy.path());
        assert_eq!(output.status.code(), Some(10), "{name}: {}", text(&output));
    };
    let flipped = copy("a flipped bit");
    let path = flipped.0.path().join("live/00000002.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3000] ^= 1;
    fs::write(&path, bytes).unwrap();
    broken(flipped);
    let deleted = copy("a deleted segment");
    fs::remove_file(deleted.0.path().join("live/00000002.log")).unwrap();
    broken(deleted);
    let cut = copy("a cut tail");
    let last = walk(&cut.0.path().join("live"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .max()
        .unwrap();
    let bytes = fs::read(&last).unwrap();
    fs::write(&last, &bytes[..bytes.len() / 2]).unwrap();
    broken(cut);
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Files of the program below a directory that name a member of the event that accepts a loss.
fn that_know_acceptances(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            that_know_acceptances(&path, found);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            if text.contains("lost_from\"") || text.contains("lost_from\\\"") {
                found.push(path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string());
            }
        }
    }
}

#[test]
fn the_event_that_accepts_a_loss_is_written_and_read_in_one_file() {
    let mut found = Vec::new();
    that_know_acceptances(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    assert_eq!(found, ["src/loss.rs"]);
}
