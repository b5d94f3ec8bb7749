//! Stores that an earlier build wrote, opened by this one. `fixtures/README.md` says what they hold and how
//! they were made. `crates/sealog-control/tests/suite/fixtures.rs` has their control data.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sealog_core::id::{Hash, Mode, Ulid};
use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_store::{IdempotencyKey, Receipt, Store};
use sealog_testing::fixture::*;
use sealog_testing::postgres::cluster;
use sealog_testing::*;
use sha2::{Digest, Sha256};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// All chains are there, verify from the first event to the head of then, and every event reads as it did,
/// byte for byte.
fn reads_as_it_did(store: &dyn Store, fixture: &Fixture) {
    let mut heads = Vec::new();
    for (chain, chain_seq, hash, events) in fixture.chains() {
        let head = wait(store.head(chain)).unwrap();
        assert_eq!(head.durable, head.recorded, "{chain}");
        assert_eq!((head.durable.chain_seq, head.durable.hash.to_string().as_str()), (chain_seq, hash));
        assert_valid(store, chain, chain_seq);
        heads.push((chain, head.durable));
        let found = list(store, chain, &Filter::default(), None, usize::MAX);
        assert_eq!(found.len(), events.len(), "{chain}");
        for (found, expected) in found.iter().rev().zip(events) {
            let mut json = Vec::new();
            found.put_json(&mut json);
            assert!(json == *expected, "event {} of {chain} differs", found.sealed.chain_seq);
            if found.sealed.chain_seq % 50 == 1 {
                assert_eq!(get(store, chain, found.sealed.log_id).as_ref(), Some(found));
            }
        }
    }
    heads.sort_by_key(|(chain, _)| *chain);
    let (system, others): (Vec<_>, Vec<_>) =
        wait(store.heads()).unwrap().into_iter().partition(|(chain, _)| chain.is_system());
    assert_eq!(others, heads);
    // No key reads the chains of what people and operators did.
    assert_eq!(system.len(), fixture.list("control").len());
    for (chain, head) in system {
        assert_valid(store, chain, head.chain_seq);
    }
}

/// A search by a member of `metadata` finds the events that have it, and no other.
fn finds_members(store: &dyn Store, fixture: &Fixture) {
    let (chain, ..) = fixture.chains()[0];
    let filter = Filter { fields: vec![FieldIs::new("n", "1")], ..Filter::default() };
    let all = list(store, chain, &Filter::default(), None, usize::MAX);
    let expected: Vec<_> = all.into_iter().filter(|event| filter.matches(event)).collect();
    assert!(!expected.is_empty());
    assert_eq!(list(store, chain, &filter, None, usize::MAX), expected);
}

/// A request that was acknowledged then is answered from its record; another under its key is a conflict.
fn answers_retries(store: &dyn Store, fixture: &Fixture) {
    assert!(fixture.list("requests").len() > 20, "too few to say anything");
    for request in fixture.list("requests") {
        let key_hash = Hash(Sha256::digest(text(request, "idempotency_key")).into());
        let fingerprint =
            |body: &str| Hash(Sha256::digest(format!("{}\0{body}", text(request, "endpoint"))).into());
        let key = IdempotencyKey { key_hash, fingerprint: fingerprint(text(request, "body")) };
        let receipt = Receipt {
            request_id: Ulid::parse(text(request, "request_id").trim_start_matches("req_")),
            log_ids: request["log_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| Ulid::parse(id.as_str().unwrap()).unwrap())
                .collect(),
            first_seq: number(request, "first_seq"),
            hash: Hash::parse(text(request, "hash")).unwrap(),
        };
        assert!(receipt.request_id.is_some());
        let retried = append_once(store, chain_of(request), vec![login("nobody")], key, Ulid(7));
        assert_eq!(retried, Outcome::Replayed(receipt));
        let other = IdempotencyKey { fingerprint: fingerprint("{}"), ..key };
        let outcome = append_once(store, chain_of(request), vec![login("nobody")], other, Ulid(7));
        assert_eq!(outcome, Outcome::Conflict);
    }
}

/// Appends to every chain; each goes on where it ended, and what was there before verifies with it.
fn goes_on(store: &dyn Store, fixture: &Fixture, before: u64) {
    for (chain, chain_seq, ..) in fixture.chains() {
        let receipt = append(store, chain, vec![login("later"), login("later still")]);
        assert_eq!(receipt.first_seq, chain_seq + before + 1);
        assert_valid(store, chain, chain_seq + before + 2);
    }
}

/// All of the above, on a store that `open` opens again and again.
fn opens_verifies_and_extends<S: Store>(fixture: &Fixture, world: &StillWorld, open: impl Fn() -> S) {
    let store = open();
    reads_as_it_did(&store, fixture);
    finds_members(&store, fixture);
    answers_retries(&store, fixture);
    reads_as_it_did(&store, fixture);
    goes_on(&store, fixture, 0);
    drop(store);

    let store = open();
    answers_retries(&store, fixture);
    goes_on(&store, fixture, 2);
    // A day later its keys are free.
    world.advance(DAY_MS);
    let request = &fixture.list("requests")[0];
    let key = IdempotencyKey {
        key_hash: Hash(Sha256::digest(text(request, "idempotency_key")).into()),
        fingerprint: Hash([0; 32]),
    };
    let reused = append_once(&store, chain_of(request), vec![login("next day")], key, Ulid(8));
    assert!(matches!(reused, Outcome::Sealed(_)), "{reused:?}");
}

fn options(world: &Arc<StillWorld>) -> embedded::Options {
    embedded::Options { world: Arc::clone(world) as Arc<dyn World>, ..embedded::Options::default() }
}

fn of_embedded(name: &'static str, archive: &str) {
    for build in BUILDS {
        let fixture = Fixture::load(build, name);
        let (dir, world) = (fixture.unpacked(archive), fixture.world());
        opens_verifies_and_extends(&fixture, &world, || {
            let store = EmbeddedStore::open(dir.path(), &options(&world)).unwrap();
            assert_eq!(store.findings(), []);
            store
        });
    }
}

#[test]
fn a_data_directory_that_an_earlier_build_wrote_opens_verifies_and_goes_on() {
    of_embedded("stopped", "stopped.tar.gz");
}

#[test]
fn a_data_directory_that_an_earlier_build_left_when_it_was_killed_is_recovered() {
    of_embedded("killed", "killed.tar.gz");
}

#[test]
fn an_index_that_an_earlier_build_wrote_can_be_made_again() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "stopped");
        let (dir, world) = (fixture.unpacked("stopped.tar.gz"), fixture.world());
        let indexes: Vec<PathBuf> = ["live", "test"]
            .iter()
            .flat_map(|mode| std::fs::read_dir(dir.path().join(mode)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "idx"))
            .collect();
        assert!(indexes.len() > 1, "{indexes:?}");
        indexes.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let store = EmbeddedStore::open(dir.path(), &options(&world)).unwrap();
        reads_as_it_did(&store, &fixture);
        answers_retries(&store, &fixture);
    }
}

#[test]
fn a_database_that_an_earlier_build_wrote_opens_verifies_and_goes_on() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "postgres");
        // The data directory of the node that wrote it: what it knows to have acknowledged.
        let (node, world) = (fixture.unpacked("postgres-node.tar.gz"), fixture.world());
        let database = cluster().database();
        restore(&database, &fixture.dir.join("postgres.sql.gz"));
        // A server changes no tables that have data; this is the step that an operator makes.
        sealog_store::postgres::migrate(&database.url()).unwrap();
        opens_verifies_and_extends(&fixture, &world, || {
            let options = sealog_store::postgres::Options {
                mark_dir: Some(node.path().to_owned()),
                ..on_postgres(&world)
            };
            let store = PostgresStore::open(&database.url(), &options).unwrap();
            assert_eq!(store.findings(), []);
            store
        });
    }
}

#[test]
fn the_python_reader_reads_what_an_earlier_build_wrote() {
    for build in BUILDS {
        for (name, archive) in [("stopped", "stopped.tar.gz"), ("killed", "killed.tar.gz")] {
            let fixture = Fixture::load(build, name);
            let dir = fixture.unpacked(archive);
            let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/sealog_verify.py");
            let run = |arguments: &[&str]| {
                let output =
                    Command::new("python3").arg(&tool).arg("--data").arg(dir.path()).args(arguments).output();
                let output = output.unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                output.stdout
            };
            let said = String::from_utf8(run(&[])).unwrap();
            for (chain, chain_seq, hash, events) in fixture.chains() {
                assert!(said.contains(&format!("head {chain_seq}:{hash}")), "{chain}: {said}");
                if chain.mode == Mode::Live {
                    let exported = run(&["--export", &chain.project_id.to_string()]);
                    assert!(exported == [events.join(&b'\n'), b"\n".to_vec()].concat(), "{chain}");
                }
            }
        }
    }
}
