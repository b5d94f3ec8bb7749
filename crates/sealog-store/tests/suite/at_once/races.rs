//! Every race in `docs/adr/0035-an-append-in-one-message.md`.

use std::time::{Duration, Instant};

use sealog_core::id::Ulid;
use sealog_store::postgres::{Options, PostgresStore};
use sealog_store::{Append, Appended, Receipt, Reservation, Reserved, Store, StoreError};
use sealog_testing::postgres::{Database, Held, cluster};
use sealog_testing::wire::{Told, Wire};
use sealog_testing::*;

use super::node;

fn reserve(store: &PostgresStore, name: &str) -> Reservation {
    match wait(store.reserve(live(), key(name, "b"))).unwrap() {
        Reserved::Fresh(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

fn with_key(store: &PostgresStore, reservation: Reservation, actor: &str) -> Result<Appended, StoreError> {
    let idempotency = Some((reservation, Ulid(1)));
    wait(store.append(Append { chain: live(), drafts: vec![login(actor)], idempotency }))
}

fn one(actor: &str) -> Append {
    Append { chain: live(), drafts: vec![login(actor)], idempotency: None }
}

fn head_seq(database: &Database) -> String {
    database.sql("SELECT chain_seq FROM sealog.chains")
}

fn waiting(database: &Database) -> usize {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    database.sql(sql).parse().unwrap()
}

#[test]
fn a_head_that_another_node_has_moved_is_found_out_and_the_line_goes_on_behind_it() {
    let database = cluster().database();
    let nodes = [0, 1, 2].map(|_| node(&database.url()));
    // Of three in a row the first is too late, the second looks, the third is stored at once.
    for n in 0..36 {
        let receipt = append(&nodes[n / 3 % 3], live(), vec![login("a"); n % 2 + 1]);
        assert_eq!(receipt.last_seq().to_string(), head_seq(&database));
    }
    assert_valid(&nodes[0], live(), 54);
}

#[test]
fn nodes_that_try_at_once_form_one_line() {
    let database = cluster().database();
    let nodes = [0, 1, 2].map(|_| node(&database.url()));
    std::thread::scope(|scope| {
        for store in &nodes {
            for thread in 0..3 {
                scope.spawn(move || {
                    (0..20).for_each(|n| drop(append(store, live(), vec![login(&format!("{thread}{n}"))])))
                });
            }
        }
    });
    assert_valid(&nodes[0], live(), 180);
    assert_eq!(database.sql("SELECT sum(events) FROM sealog.usage"), "180");
}

/// The chain's row is held while the node's statement waits for it; then the holder ends in some way.
fn waited_for(end: impl FnOnce(Held)) -> (Database, PostgresStore, Result<Appended, StoreError>) {
    let database = cluster().database();
    let store = node(&database.url());
    for n in 1..=2 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    let answer = store.append(one("on it"));
    eventually("it is waited for", || waiting(&database) == 1);
    end(held);
    let answer = wait(answer);
    (database, store, answer)
}

#[test]
fn a_holder_of_the_row_that_changes_nothing_leaves_the_statement_to_store() {
    let (_database, store, answer) = waited_for(Held::release);
    assert!(matches!(answer, Ok(Appended::Sealed(Receipt { first_seq: 3, .. }))), "{answer:?}");
    assert_valid(&store, live(), 3);
}

#[test]
fn a_holder_of_the_row_that_takes_events_back_leaves_nothing_to_store_and_the_loss_is_found() {
    let (database, _, answer) = waited_for(|held| {
        held.commit(
            "DELETE FROM sealog.events WHERE chain_seq = 2;
             UPDATE sealog.chains SET (chain_seq, log_id, hash) = (SELECT chain_seq, log_id, hash FROM sealog.events);",
        );
    });
    assert_eq!(answer, Err(StoreError::HeadUnproven { chain: live() }));
    assert_eq!(database.sql("SELECT count(*) FROM sealog.events"), "1");
}

#[test]
fn a_loss_that_is_noted_while_the_statement_waits_is_seen_by_it() {
    let (database, _, answer) = waited_for(|held| {
        held.commit("UPDATE sealog.chains SET recorded_seq = 9, recorded_log_id = log_id, recorded_hash = sha256(hash);");
    });
    assert_eq!(answer, Err(StoreError::HeadUnproven { chain: live() }));
    assert_eq!(database.sql("SELECT count(*) FROM sealog.events"), "2");
}

#[test]
fn whoever_waits_under_the_lock_comes_before_a_node_that_tries_at_once_later() {
    let database = cluster().database();
    let (own, other) =
        (node(&database.url()), PostgresStore::open(&database.url(), &Options::default()).unwrap());
    append(&own, live(), vec![login("first")]);
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    let first = other.append(one("a"));
    eventually("it waits for the row", || waiting(&database) == 1);
    let second = own.append(one("a"));
    let queued = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
    eventually("it waits in the queue", || database.sql(queued) == "1");
    held.release();
    for (answer, seq) in [(first, 2), (second, 3)] {
        let Ok(Appended::Sealed(receipt)) = wait(answer) else { panic!("it has its turn") };
        assert_eq!(receipt.first_seq, seq);
    }
    assert_valid(&own, live(), 3);
}

#[test]
fn a_key_that_another_node_has_used_since_it_was_looked_for_is_decided_under_the_lock() {
    let database = cluster().database();
    let [a, b] = [0, 1].map(|_| node(&database.url()));
    append(&a, live(), vec![login("first")]);
    let (same, differs) = (reserve(&a, "same"), reserve(&a, "differs"));
    let Outcome::Sealed(receipt) = append_once(&b, live(), vec![login("b")], key("same", "b"), Ulid(7))
    else {
        panic!("it is the first")
    };
    append_once(&b, live(), vec![login("b")], key("differs", "other body"), Ulid(8));
    // From here on the head is the one that this node knows, and only the key tells.
    append(&a, live(), vec![login("finds out")]);
    append(&a, live(), vec![login("finds its own")]);
    assert_eq!(with_key(&a, same, "again"), Ok(Appended::Replayed(receipt)));
    assert_eq!(with_key(&a, differs, "again"), Ok(Appended::Conflict));
    assert_valid(&a, live(), 5);
    assert_eq!(database.sql("SELECT count(*) FROM sealog.idempotency"), "2");
}

#[test]
fn a_key_whose_24_hours_are_over_is_decided_by_the_databases_clock_and_used_again() {
    let database = cluster().database();
    let store = node(&database.url());
    append(&store, live(), vec![login("first")]);
    let day_ms = 24 * 60 * 60 * 1000;
    for (age_ms, free) in [(day_ms - 60_000, false), (day_ms, true)] {
        let (reservation, used) = (reserve(&store, "k"), key("k", "b"));
        // Another node has used it, so long ago by the database's clock.
        database.sql(&format!(
            "INSERT INTO sealog.idempotency SELECT chain_id, '\\x{}', '\\x{}', log_id, 1, uuid_send(log_id), hash,
                 (extract(epoch FROM clock_timestamp()) * 1000)::bigint - {age_ms} FROM sealog.chains",
            used.key_hash, used.fingerprint
        ));
        let done = with_key(&store, reservation, "again").unwrap();
        assert_eq!(matches!(done, Appended::Sealed(_)), free, "{done:?}");
        assert_eq!(matches!(done, Appended::Replayed(_)), !free, "{done:?}");
        database.sql("DELETE FROM sealog.idempotency");
    }
    assert_valid(&store, live(), 2);
}

/// A node behind a wire, one that is not, and their database.
fn behind_a_wire() -> (Database, Wire, PostgresStore, PostgresStore) {
    let database = cluster().database();
    let wire = Wire::to(cluster().port);
    let direct = node(&database.url());
    let store = node(&format!("postgres://owner@127.0.0.1:{}/{}", wire.port, database.name));
    append(&store, live(), vec![login("first")]);
    append(&store, live(), vec![login("second")]);
    (database, wire, direct, store)
}

/// Nodes that have locked a chain and said nothing since.
fn in_transaction(database: &Database) -> String {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND query LIKE '%sealog_lock%'";
    database.sql(sql)
}

/// An actor that tells a message from others.
const CAUGHT: &str = "caught on the wire";

#[test]
fn an_answer_that_never_comes_is_an_unknown_outcome_that_the_key_resolves() {
    let (database, wire, direct, store) = behind_a_wire();
    for (n, how) in (0..).zip([Told::CutAfter, Told::CutBefore, Told::CutAfter, Told::CutBefore]) {
        let before: u64 = head_seq(&database).parse().unwrap();
        let stored = u64::from(how == Told::CutAfter);
        let name = format!("k{n}");
        wire.catch(how, CAUGHT);
        let reservation = reserve(&store, &name);
        std::thread::scope(|scope| {
            let failed = scope.spawn(|| with_key(&store, reservation, CAUGHT));
            eventually("it is caught", || wire.has_caught());
            assert_eq!(in_transaction(&database), "0", "the statement is all of it");
            eventually("the database has done it", || head_seq(&database) == (before + stored).to_string());
            wire.release();
            let failed = failed.join().unwrap();
            assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{how:?}: {failed:?}");
        });
        // Whichever node it is sent to again.
        let again = if n < 2 { &store } else { &direct };
        match (append_once(again, live(), vec![login("again")], key(&name, "b"), Ulid(2)), how) {
            (Outcome::Replayed(receipt), Told::CutAfter) => assert_eq!(receipt.request_id, Some(Ulid(1))),
            (Outcome::Sealed(receipt), Told::CutBefore) => assert_eq!(receipt.request_id, Some(Ulid(2))),
            other => panic!("{other:?}"),
        }
        assert_eq!(head_seq(&database), (before + 1).to_string());
        // The node goes on by itself, and finds the chain its own again.
        append(&store, live(), vec![login("goes on")]);
        append(&store, live(), vec![login("goes on")]);
    }
    assert_valid(&direct, live(), 2 + 4 * 3);
}

#[test]
fn a_statement_that_is_still_in_progress_when_its_request_comes_again_stores_it_once() {
    let (database, wire, direct, store) = behind_a_wire();
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    wire.catch(Told::CutAfter, CAUGHT);
    let (reservation, again) = (reserve(&store, "k"), reserve(&direct, "k"));
    std::thread::scope(|scope| {
        let failed = scope.spawn(|| with_key(&store, reservation, CAUGHT));
        eventually("the database waits with it", || waiting(&database) == 1);
        let second = scope.spawn(|| with_key(&direct, again, "again"));
        eventually("both wait", || waiting(&database) == 2);
        held.release();
        let second = second.join().unwrap();
        assert!(matches!(second, Ok(Appended::Replayed(_))), "{second:?}");
        wire.release();
        assert!(failed.join().unwrap().is_err());
    });
    assert_valid(&direct, live(), 3);
}

#[test]
fn a_node_that_is_stopped_before_it_sends_holds_up_nobody_and_its_late_write_stores_nothing() {
    let (database, wire, direct, store) = behind_a_wire();
    wire.catch(Told::Hold, CAUGHT);
    let late = store.append(one(CAUGHT));
    eventually("it is sealed and not sent", || wire.has_caught());
    assert_eq!(in_transaction(&database), "0", "it holds nothing");
    let meanwhile = append(&direct, live(), vec![login("meanwhile")]);
    assert_eq!(meanwhile.first_seq, 3);
    wire.release();
    let Ok(Appended::Sealed(receipt)) = wait(late) else { panic!("it is sealed anew") };
    assert_eq!(receipt.first_seq, 4);
    assert_eq!(get(&store, live(), receipt.log_ids[0]).unwrap().sealed.prev_hash, meanwhile.hash);
    assert_valid(&direct, live(), 4);
}

#[test]
fn a_write_that_is_late_on_a_head_that_still_holds_is_sealed_anew_with_the_time_of_then() {
    let (database, wire, direct, store) = behind_a_wire();
    wire.catch(Told::Hold, CAUGHT);
    let late = store.append(one(CAUGHT));
    eventually("it is sealed and not sent", || wire.has_caught());
    let sealed = Instant::now();
    eventually("it is late", || sealed.elapsed() > Duration::from_millis(5300));
    let now_ms = || -> u64 {
        database.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").parse().unwrap()
    };
    let before_ms = now_ms();
    wire.release();
    let Ok(Appended::Sealed(receipt)) = wait(late) else { panic!("it is sealed anew") };
    assert!(get(&direct, live(), receipt.log_ids[0]).unwrap().timestamp_ms >= before_ms);
    assert_valid(&direct, live(), 3);
}
