//! Several nodes on one database, and what can happen to them and to it: one line of events, nothing lost,
//! nothing twice.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use sealog_core::id::{Hash, Ulid};
use sealog_core::query::Filter;
use sealog_core::verify::Reason;
use sealog_store::postgres::{Finding, Options, PostgresStore};
use sealog_store::world::{SystemWorld, World};
use sealog_store::{Append, Appended, Receipt, Reserved, Store, StoreError};
use sealog_testing::examples::example;
use sealog_testing::postgres::{Cluster, Database, cluster};
use sealog_testing::wire::{Told, Wire};
use sealog_testing::*;

use crate::conformance::lent_citus_database;

fn options(skew_ms: i64) -> Options {
    Options { connections: 8, world: Arc::new(Skewed(skew_ms)), ..Options::default() }
}

fn node(url: &str, skew_ms: i64) -> PostgresStore {
    PostgresStore::open(url, &options(skew_ms)).unwrap()
}

/// Runs each rule on a database of its own.
macro_rules! on_each_database {
    ($($rule:ident)*) => {
        mod on_postgres {
            $(#[test] fn $rule() {
                super::$rule(&super::cluster().database());
            })*
        }
        mod on_citus {
            $(#[test]
            #[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
            fn $rule() {
                super::$rule(&super::lent_citus_database());
            })*
        }
    };
}

on_each_database! {
    three_nodes_with_different_clocks_form_one_line_and_each_reads_what_any_has_acknowledged
    the_same_request_on_all_nodes_at_once_is_one_event
    a_key_that_another_node_has_taken_in_the_meantime_is_decided_under_the_lock
    three_processes_on_one_hot_chain_and_kill_9_of_each_lose_nothing
    a_node_proves_the_loss_of_its_event_although_another_has_sealed_events_in_its_place
    a_loss_that_is_accepted_is_the_next_event_and_every_node_goes_on_whatever_it_knows
    an_acceptance_covers_nothing_that_was_acknowledged_after_it
    a_retry_of_a_request_whose_events_were_lost_and_accepted_is_stored
    an_acceptance_waits_for_the_chains_lock_and_appends_go_on_behind_it
}

const TEN_MINUTES_MS: i64 = 600_000;
const SKEWS_MS: [i64; 3] = [0, TEN_MINUTES_MS, -TEN_MINUTES_MS];

/// Everything in the chain, oldest first, after checking that it is one line with increasing ids and times.
fn line(store: &dyn Store) -> Vec<sealog_core::event::StoredEvent> {
    let mut events = list(store, live(), &Filter::default(), None, usize::MAX);
    events.reverse();
    for (seq, event) in (1..).zip(&events) {
        assert_eq!(event.sealed.chain_seq, seq);
    }
    for pair in events.windows(2) {
        assert!(pair[1].sealed.log_id > pair[0].sealed.log_id);
        assert!(pair[1].timestamp_ms >= pair[0].timestamp_ms);
    }
    assert_valid(store, live(), events.len() as u64);
    events
}

// ---- One hot chain --------------------------------------------------------------------------------------

fn three_nodes_with_different_clocks_form_one_line_and_each_reads_what_any_has_acknowledged(
    database: &Database,
) {
    let nodes = SKEWS_MS.map(|skew_ms| node(&database.url(), skew_ms));
    std::thread::scope(|scope| {
        for (n, writer) in nodes.iter().enumerate() {
            for thread in 0..3 {
                let nodes = &nodes;
                scope.spawn(move || {
                    for i in 0..25 {
                        let drafts = vec![login(&format!("n{n}t{thread}i{i}")); i % 7 + 1];
                        let receipt = append(writer, live(), drafts);
                        for reader in nodes {
                            let last = get(reader, live(), *receipt.log_ids.last().unwrap());
                            assert_eq!(last.unwrap().sealed.hash, receipt.hash);
                            let newest = list(reader, live(), &Filter::default(), None, 1).remove(0);
                            assert!(newest.sealed.chain_seq >= receipt.last_seq());
                        }
                    }
                });
            }
        }
    });
    let events = line(&nodes[1]);
    assert_eq!(events.len(), 9 * (0..25).map(|i| i % 7 + 1).sum::<usize>());
    // By the database's clock, which here is this machine's.
    let now_ms = SystemWorld.now_ms();
    assert!(
        events.iter().all(|event| event.timestamp_ms.abs_diff(now_ms) < TEN_MINUTES_MS.unsigned_abs() / 2)
    );
    for receipt in &nodes {
        assert_eq!(wait(receipt.head(live())).unwrap().durable, events.last().unwrap().head());
    }
}

fn the_same_request_on_all_nodes_at_once_is_one_event(database: &Database) {
    let nodes = SKEWS_MS.map(|skew_ms| node(&database.url(), skew_ms));
    let sealed: Mutex<HashMap<usize, Vec<Receipt>>> = Mutex::default();
    let (replays, in_flight) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for store in nodes.iter().chain(&nodes) {
            scope.spawn(|| {
                for n in 0..40 {
                    let (key, drafts) = (key(&format!("k{n}"), "body"), vec![login(&format!("k{n}")); 2]);
                    match append_once(store, live(), drafts, key, Ulid(n as u128)) {
                        Outcome::Sealed(receipt) => {
                            sealed.lock().unwrap().entry(n).or_default().push(receipt)
                        }
                        Outcome::Replayed(receipt) => {
                            assert_eq!(receipt.request_id, Some(Ulid(n as u128)));
                            replays.fetch_add(1, Ordering::SeqCst);
                        }
                        Outcome::InFlight => drop(in_flight.fetch_add(1, Ordering::SeqCst)),
                        Outcome::Conflict => panic!("it is the same request"),
                    }
                }
            });
        }
    });
    let sealed = sealed.into_inner().unwrap();
    assert!(sealed.values().all(|receipts| receipts.len() == 1), "a key was sealed twice");
    assert_eq!((sealed.len(), line(&nodes[0]).len()), (40, 80));
    let (replays, in_flight) = (replays.into_inner(), in_flight.into_inner());
    assert_eq!(40 + replays + in_flight, 6 * 40);
    assert!(replays > 0, "the nodes must have met");
    // Another body under the same key is a conflict on every node.
    for store in &nodes {
        assert_eq!(
            append_once(store, live(), vec![login("x")], key("k1", "other"), Ulid(1)),
            Outcome::Conflict
        );
    }
}

#[test]
fn what_comes_while_the_lock_is_waited_for_is_decided_and_stored_in_the_same_transaction() {
    let database = cluster().database();
    let [store, other] = [node(&database.url(), 0), node(&database.url(), 0)];
    let reserve = |name: &str| match wait(store.reserve(live(), key(name, "b"))).unwrap() {
        Reserved::Fresh(reservation) => reservation,
        other => panic!("{other:?}"),
    };
    let append = |name: &str, reservation| {
        let (drafts, idempotency) = (vec![login(name); 3], Some((reservation, Ulid(2))));
        store.append(Append { chain: live(), drafts, idempotency })
    };
    let taken = reserve("taken");
    let Outcome::Sealed(first) =
        append_once(&other, live(), vec![login("taken")], key("taken", "b"), Ulid(1))
    else {
        panic!("it is the first")
    };
    let waiting = |what: &str| {
        let sql =
            format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {what}");
        database.sql(&sql) == "1"
    };
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    let mut answers = vec![append("u0", reserve("u0"))];
    eventually("it is waited for", || waiting("wait_event_type = 'Lock'"));
    answers.extend((1..10).map(|n| format!("u{n}")).map(|name| append(&name, reserve(&name))));
    let replayed = append("taken", taken);
    held.release();
    for answer in answers {
        assert!(matches!(wait(answer), Ok(Appended::Sealed(_))));
    }
    assert_eq!(wait(replayed), Ok(Appended::Replayed(first)));
    assert_eq!(line(&store).len(), 31);
    assert_eq!(database.sql("SELECT count(DISTINCT xmin::text) FROM sealog.events"), "2");
    assert_eq!(database.sql("SELECT count(*) FROM sealog.idempotency"), "11");
}

#[test]
fn nodes_wait_for_a_chain_in_the_order_in_which_they_came_and_one_of_them_for_its_row() {
    let database = cluster().database();
    let nodes = [0; 4].map(|skew_ms| node(&database.url(), skew_ms));
    append(&nodes[0], live(), vec![login("first")]);
    let waiting = |what: &str| -> usize {
        let sql =
            format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {what}");
        database.sql(&sql).parse().unwrap()
    };
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    let mut answers = Vec::new();
    for (n, store) in nodes.iter().enumerate() {
        let drafts = vec![login(&format!("n{n}"))];
        answers.push(store.append(Append { chain: live(), drafts, idempotency: None }));
        eventually("it is waited for", || waiting("wait_event_type = 'Lock'") == n + 1);
    }
    assert_eq!(waiting("wait_event = 'advisory'"), 3);
    held.release();
    for (answer, seq) in answers.into_iter().zip(2..) {
        let Ok(Appended::Sealed(receipt)) = wait(answer) else { panic!("it has its turn") };
        assert_eq!(receipt.first_seq, seq);
    }
    assert_eq!(line(&nodes[3]).len(), 5);
}

#[test]
fn a_chain_that_changed_while_its_row_was_waited_for_is_looked_at_again() {
    let database = cluster().database();
    let [store, other] = [node(&database.url(), 0), node(&database.url(), 0)];
    for n in 1..=2 {
        append(&other, live(), vec![login(&format!("u{n}"))]);
    }
    let waiting = |what: &str| {
        let sql =
            format!("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {what}");
        database.sql(&sql) == "1"
    };
    // A writer that does not wait in the queue, and takes back the last event.
    let held = database.hold("SELECT chain_seq FROM sealog.chains FOR UPDATE");
    let answer = store.append(Append { chain: live(), drafts: vec![login("on it")], idempotency: None });
    eventually("it is waited for", || waiting("wait_event_type = 'Lock'"));
    held.commit(
        "DELETE FROM sealog.events WHERE chain_seq = 2;
         UPDATE sealog.chains SET (chain_seq, log_id, hash) = (SELECT chain_seq, log_id, hash FROM sealog.events);",
    );
    let Ok(Appended::Sealed(receipt)) = wait(answer) else { panic!("the head is proven") };
    assert_eq!(receipt.first_seq, 2);
    assert_eq!(line(&store).len(), 2);
}

fn a_key_that_another_node_has_taken_in_the_meantime_is_decided_under_the_lock(database: &Database) {
    let [one, two] = [node(&database.url(), 0), node(&database.url(), 0)];
    let reserve = |store: &PostgresStore, body| match wait(store.reserve(live(), key("k", body))).unwrap() {
        Reserved::Fresh(reservation) => reservation,
        other => panic!("{other:?}"),
    };
    let (first, same) = (reserve(&one, "b"), reserve(&two, "b"));
    let finish = |store: &PostgresStore, reservation, id| {
        let idempotency = Some((reservation, Ulid(id)));
        wait(store.append(Append { chain: live(), drafts: vec![login("a")], idempotency })).unwrap()
    };
    let Appended::Sealed(receipt) = finish(&one, first, 1) else { panic!("it is the first") };
    assert_eq!(finish(&two, same, 2), Appended::Replayed(receipt));
    assert_eq!(line(&two).len(), 1);
}

// ---- Processes ------------------------------------------------------------------------------------------

/// What the database calls the sessions of processes.
const HAMMERING: &str = "hammering";

/// `examples/hammering_node.rs`: a node as a process of its own.
struct Node {
    child: Child,
    acked: Arc<Mutex<Vec<(String, u64, String)>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Node {
    fn start(url: &str, name: &str, skew_ms: i64) -> Node {
        let mut command = Command::new(example("hammering_node"));
        let and = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{and}application_name={HAMMERING}-{name}");
        command.args([&url, name, &skew_ms.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let acked: Arc<Mutex<Vec<(String, u64, String)>>> = Arc::default();
        let (heard, lines) = (Arc::clone(&acked), BufReader::new(child.stdout.take().unwrap()).lines());
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                // A line that a kill cut short is no acknowledgement.
                if let ["acked", nonce, seq, hash] = words[..]
                    && hash.len() == Hash::TEXT_LEN
                {
                    heard.lock().unwrap().push((nonce.to_owned(), seq.parse().unwrap(), hash.to_owned()));
                }
            }
        });
        Node { child, acked, reader: Some(reader) }
    }

    fn count(&self) -> usize {
        self.acked.lock().unwrap().len()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it, and returns what it has acknowledged.
    fn kill(mut self) -> Vec<(String, u64, String)> {
        self.end();
        std::mem::take(&mut self.acked.lock().unwrap())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a process had sent before it was killed, the database may still be doing.
fn await_killed(database: &Database) {
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '{HAMMERING}-%'"
    );
    eventually("the sessions of killed processes have ended", || database.sql(&sessions) == "0");
}

/// Every acknowledgement is there as it was given, and nothing is there twice.
fn check_ledger(store: &dyn Store, acked: &[(String, u64, String)]) -> usize {
    let events = line(store);
    let mut found = HashMap::new();
    for event in &events {
        let actor = event.text.fields().actor_id.unwrap().trim_matches('"').to_owned();
        let at = (event.sealed.chain_seq, event.sealed.hash.to_string());
        assert!(found.insert(actor.clone(), at).is_none(), "{actor} is there twice");
    }
    for (nonce, seq, hash) in acked {
        assert_eq!(found.get(nonce), Some(&(*seq, hash.clone())), "{nonce} was acknowledged and is lost");
    }
    events.len()
}

fn three_processes_on_one_hot_chain_and_kill_9_of_each_lose_nothing(database: &Database) {
    let store = node(&database.url(), 0);
    let mut acked = Vec::new();
    for round in 0..2 {
        let nodes: Vec<Node> =
            (0..3).map(|n| Node::start(&database.url(), &format!("r{round}p{n}"), SKEWS_MS[n])).collect();
        eventually("each process gets somewhere", || nodes.iter().all(|node| node.count() >= 40));
        acked.extend(nodes.into_iter().flat_map(Node::kill));
    }
    await_killed(database);
    let events = check_ledger(&store, &acked);
    println!("processes=6 acked={} events={events} lost=0 duplicated=0", acked.len());
    // Nobody is left behind with a lock.
    append(&store, live(), vec![login("after")]);
}

#[test]
fn a_stopped_node_that_holds_the_chain_holds_it_for_three_seconds_at_most_and_its_late_write_is_refused() {
    let database = cluster().database();
    let store = node(&database.url(), 0);
    let stopped = Node::start(&database.url(), "stopped", 0);
    // While there is another one, both lock the chain before they seal.
    let beside = Node::start(&database.url(), "beside", 0);
    eventually("the processes get somewhere", || stopped.count() >= 10 && beside.count() >= 10);
    // Stopped at a moment when it has locked the chain and the server waits for it.
    // A transaction has a number once it has locked the row of the chain; before, no one waits for it.
    let held = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL
         AND application_name = '{HAMMERING}-stopped'"
    );
    let waits = format!("{held} AND state = 'idle in transaction'");
    let begun = Instant::now();
    loop {
        stopped.signal("-STOP");
        std::thread::sleep(Duration::from_millis(100));
        if database.sql(&waits) != "0" {
            break;
        }
        stopped.signal("-CONT");
        std::thread::sleep(Duration::from_millis(3));
        assert!(begun.elapsed() < Duration::from_secs(60), "it was never stopped inside a transaction");
    }
    // The database ends it after so long, and nobody else does: the process is stopped all the while.
    assert_eq!(options(0).idle_in_transaction_timeout, Duration::from_secs(3));
    let receipt =
        soon(store.append(Append { chain: live(), drafts: vec![login("meanwhile")], idempotency: None }));
    let Ok(Appended::Sealed(receipt)) = receipt else { panic!("{receipt:?}") };
    assert_eq!(database.sql(&held), "0", "nothing is left of its transaction that others could wait for");
    append(&store, live(), vec![login("at once")]);

    let before = stopped.count();
    stopped.signal("-CONT");
    eventually("it comes back by itself", || stopped.count() > before + 10);
    let acked = [stopped.kill(), beside.kill()].concat();
    // What it had sealed on the old head is not there; what it tried again is there once.
    await_killed(&database);
    check_ledger(&store, &acked);
    let after = get(&store, live(), receipt.log_ids[0]).unwrap();
    assert_eq!(after.sealed.hash, receipt.hash);
}

// ---- The connection -------------------------------------------------------------------------------------

#[test]
fn a_connection_that_is_cut_around_a_commit_is_resolved_by_the_idempotency_key() {
    let database = cluster().database();
    let direct = node(&database.url(), 0);
    let wire = Wire::to(cluster().port);
    let url = format!("postgres://owner@127.0.0.1:{}/{}", wire.port, database.name);
    let store = node(&url, 0);
    append(&store, live(), vec![login("first")]);
    for (n, cut) in (0..).zip([Told::CutAfter, Told::CutBefore, Told::CutAfter, Told::CutBefore]) {
        // A chain that another node has written to is locked, and then there is a COMMIT.
        append(&direct, live(), vec![login("between")]);
        let seq = || wait(direct.head(live())).unwrap().durable.chain_seq;
        let before = seq();
        let request = |id| {
            let reserved = wait(store.reserve(live(), key(&format!("k{n}"), "b"))).unwrap();
            match reserved {
                Reserved::Fresh(reservation) => {
                    let (drafts, idempotency) = (vec![login("a"); 3], Some((reservation, Ulid(id))));
                    wait(store.append(Append { chain: live(), drafts, idempotency }))
                }
                Reserved::Replay(receipt) => Ok(Appended::Replayed(receipt)),
                other => panic!("{other:?}"),
            }
        };
        wire.catch(cut, "COMMIT\0");
        let failed = std::thread::scope(|scope| {
            let failed = scope.spawn(|| request(7));
            eventually("it is caught", || wire.has_caught());
            let stored = if cut == Told::CutAfter { 3 } else { 0 };
            eventually("the database has done what it was told", || seq() == before + stored);
            wire.release();
            failed.join().unwrap()
        });
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{cut:?}: {failed:?}");
        match (request(8), cut) {
            (Ok(Appended::Replayed(receipt)), Told::CutAfter) => {
                assert_eq!(receipt.request_id, Some(Ulid(7)))
            }
            (Ok(Appended::Sealed(receipt)), Told::CutBefore) => {
                assert_eq!(receipt.request_id, Some(Ulid(8)))
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(seq(), before + 3, "{cut:?}");
    }
    assert_eq!(line(&direct).len(), 1 + 4 * 4);
}

/// Appends to sixteen chains at a time, until each has as many events.
fn append_to_all(store: &PostgresStore, name: &str, events: usize) {
    std::thread::scope(|scope| {
        for n in 0..16 {
            scope.spawn(move || {
                for event in 0..events {
                    let (chain, key) =
                        (chain(1, n, sealog_core::id::Mode::Live), key(&format!("{name}{event}"), "b"));
                    eventually("it is stored", || {
                        let reserved = wait(store.reserve(chain, key));
                        let Ok(Reserved::Fresh(reservation)) = reserved else {
                            return matches!(reserved, Ok(Reserved::Replay(_)));
                        };
                        let (drafts, idempotency) = (vec![login(name)], Some((reservation, Ulid(1))));
                        wait(store.append(Append { chain, drafts, idempotency })).is_ok()
                    });
                }
            });
        }
    });
}

#[test]
fn connections_spread_over_the_hosts_of_the_url_and_go_on_when_one_is_gone() {
    let database = cluster().database();
    let hosts = [0, 1].map(|_| Wire::to(cluster().port));
    let [a, b] = [&hosts[0], &hosts[1]].map(|host| host.port);
    let url =
        |parameters| format!("postgres://owner@127.0.0.1:{a},127.0.0.1:{b}/{}{parameters}", database.name);
    let in_order = node(&url(""), 0);
    append_to_all(&in_order, "in order", 1);
    assert_eq!((hosts[0].connections() > 2, hosts[1].connections()), (true, 0));
    drop(in_order);
    let store =
        PostgresStore::open(&url("?load_balance_hosts=random"), &Options { connections: 32, ..options(0) })
            .unwrap();
    append_to_all(&store, "spread", 3);
    assert!(hosts[1].connections() > 2, "{}", hosts[1].connections());
    for gone in &hosts[..1] {
        gone.take_down();
        append_to_all(&store, "on", 3);
    }
    eventually("it is ready", || store.ready().is_ok());
    for n in 0..16 {
        assert_valid(&store, chain(1, n, sealog_core::id::Mode::Live), 7);
    }
}

#[test]
fn a_host_of_the_url_that_has_another_store_is_refused_and_gets_no_events() {
    let clusters = [0, 1].map(|_| Cluster::start(""));
    let [one, other] = clusters.each_ref().map(|cluster| cluster.url("postgres"));
    drop((node(&one, 0), node(&other, 0)));
    let [a, b] = clusters.each_ref().map(|cluster| cluster.port);
    let url = format!("postgres://owner@127.0.0.1:{a},127.0.0.1:{b}/postgres?load_balance_hosts=random");
    let store = PostgresStore::open(&url, &Options { connections: 32, ..options(0) }).unwrap();
    let refused = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let (store, refused) = (&store, &refused);
            scope.spawn(move || {
                for _ in 0..5 {
                    match try_append(store, chain(1, n, sealog_core::id::Mode::Live), vec![login("a")]) {
                        Ok(_) => {}
                        Err(StoreError::Unavailable(why)) => {
                            assert!(why.contains("holds another store"), "{why}");
                            refused.store(true, Ordering::SeqCst);
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    assert!(refused.into_inner(), "the other host must have been met");
    let stored =
        clusters.each_ref().map(|cluster| cluster.sql("postgres", "SELECT count(*) > 0 FROM sealog.events"));
    assert_ne!(stored[0], stored[1], "one of them has all events");
}

/// Passes everything on between a node and the database, until the database has said as many bytes as it may;
/// then the connection is cut.
struct Ration {
    port: u16,
    left: Arc<AtomicU64>,
}

impl Ration {
    fn of(port: u16) -> Ration {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ration =
            Ration { port: listener.local_addr().unwrap().port(), left: Arc::new(AtomicU64::new(u64::MAX)) };
        let left = Arc::clone(&ration.left);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let left = Arc::clone(&left);
                std::thread::spawn(move || pass_back_some(back_from, back_to, &left));
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut &client, &mut &server);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        ration
    }

    /// The database may say so much more; nothing for anything.
    fn set(&self, bytes: Option<u64>) {
        self.left.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

fn pass_back_some(mut server: TcpStream, mut client: TcpStream, left: &AtomicU64) {
    let mut buffer = vec![0; 1 << 12];
    while let Ok(count) = server.read(&mut buffer)
        && count > 0
    {
        let take = |left: u64| Some(if left == u64::MAX { left } else { left.saturating_sub(count as u64) });
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap();
        let count = count.min(usize::try_from(before).unwrap_or(usize::MAX));
        if client.write_all(&buffer[..count]).is_err() || left.load(Ordering::SeqCst) == 0 {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// Reading failed, which says nothing about the events.
fn could_not_read<T: std::fmt::Debug>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Read(_) | StoreError::Unavailable(_)))
}

#[test]
fn a_connection_that_is_cut_in_the_middle_of_an_answer_is_never_damage_and_never_shortens_a_list() {
    const EVENTS: u64 = 300;
    let database = cluster().database();
    let ration = Ration::of(cluster().port);
    let url = format!("postgres://owner@127.0.0.1:{}/{}", ration.port, database.name);
    // Nobody else uses up what the answer may have.
    let hour = Duration::from_secs(3600);
    let store = PostgresStore::open(&url, &Options { poll: hour, sweep: hour, ..options(0) }).unwrap();
    let text = "x".repeat(1000);
    for n in 0..EVENTS / 50 {
        let draft =
            |event| draft(&format!(r#"{{"action":"a.b","metadata":{{"n":{n},"e":{event},"t":"{text}"}}}}"#));
        append(&store, live(), (0..50).map(draft).collect());
    }
    let page = || {
        let (filter, limit, bytes_max) = (Filter::default(), 100, 1 << 20);
        wait(store.list(live(), sealog_store::List { filter, before_seq: None, limit, bytes_max }))
    };
    let whole = || wait(sealog_store::verify::whole(&store, live()));
    let (mut cut, mut bytes) = ([0; 2], 1);
    while cut.contains(&0) || bytes < 600_000 {
        ration.set(Some(bytes));
        let listed = page();
        ration.set(Some(bytes));
        let verified = whole();
        ration.set(None);
        match &listed {
            Ok(chunk) => assert_eq!(chunk.items.len(), 100, "after {bytes} bytes"),
            failed => assert!(could_not_read(failed), "after {bytes} bytes: {failed:?}"),
        }
        match &verified {
            Ok(verdict) => {
                assert_eq!((verdict.checked, verdict.broken), (EVENTS, None), "after {bytes} bytes")
            }
            failed => assert!(could_not_read(failed), "after {bytes} bytes: {failed:?}"),
        }
        cut[0] += u32::from(listed.is_err());
        cut[1] += u32::from(verified.is_err());
        bytes = bytes * 3 / 2 + 1;
    }
    assert!(cut.iter().all(|cut| *cut > 5), "answers must have been cut in many places: {cut:?}");
    assert_eq!(page().unwrap().items.len(), 100);
    assert_eq!(whole().unwrap().checked, EVENTS);
}

#[test]
fn a_database_that_cannot_read_a_page_or_is_too_slow_is_never_damage_and_never_shortens_a_list() {
    let cluster = Cluster::start("autovacuum = off");
    let url = cluster.url("postgres");
    drop(node(&url, 0));
    let hasty = Options { statement_timeout: Duration::from_secs(2), ..options(0) };
    let store = PostgresStore::open(&url, &hasty).unwrap();
    let receipt = append(&store, live(), (0..100).map(|n| login(&format!("u{n}"))).collect());
    let list = |before_seq| {
        let (filter, limit, bytes_max) = (Filter::default(), 100, 1 << 20);
        wait(store.list(live(), sealog_store::List { filter, before_seq, limit, bytes_max }))
    };
    let nothing_can_be_read = || {
        assert!(could_not_read(&list(None)));
        assert!(could_not_read(&wait(sealog_store::verify::whole(&store, live()))));
        assert!(could_not_read(&wait(store.get(live(), receipt.log_ids[0]))));
    };
    // Someone has the table for longer than a statement may take.
    let held = cluster.hold("postgres", "LOCK TABLE sealog.events");
    nothing_can_be_read();
    held.release();
    eventually("the table is free", || list(None).is_ok());
    assert_eq!(list(None).unwrap().items.len(), 100);
    // A page that PostgreSQL cannot make sense of.
    let file = cluster
        .dir
        .join("data")
        .join(cluster.sql("postgres", "SELECT pg_relation_filepath('sealog.events')"));
    cluster.stop("fast");
    let mut pages = std::fs::read(&file).unwrap();
    assert!(pages.len() >= 2 * 8192);
    pages[..24].fill(0xEE);
    std::fs::write(&file, pages).unwrap();
    cluster.restart();
    eventually("the node is back", || wait(store.head(live())).is_ok());
    nothing_can_be_read();
}

#[test]
fn a_database_that_takes_no_more_connections_is_an_error_and_the_node_recovers_by_itself() {
    let database = cluster().database();
    drop(node(&database.url(), 0));
    let role = format!("crowd_{}", database.name);
    database.sql(&format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT USAGE ON SCHEMA sealog TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA sealog TO {role}"
    ));
    // One of the two watches, one is left for eight threads that append and read.
    let store = node(&database.url().replace("owner@", &format!("{role}@")), 0);
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, done, failed) = (&store, &done, &failed);
            scope.spawn(move || {
                for n in 0..10 {
                    let chain = chain(1, thread, sealog_core::id::Mode::Live);
                    match try_append(store, chain, vec![login(&format!("t{thread}n{n}"))]) {
                        Ok(_) => done.fetch_add(1, Ordering::SeqCst),
                        Err(StoreError::Unavailable(why)) => {
                            assert!(why.contains("too many connections"), "{why}");
                            failed.fetch_add(1, Ordering::SeqCst)
                        }
                        Err(other) => panic!("{other:?}"),
                    };
                }
            });
        }
    });
    assert!(failed.load(Ordering::SeqCst) > 0, "the limit must have been met");
    database.sql(&format!("ALTER ROLE {role} CONNECTION LIMIT 50"));
    for thread in 0..8 {
        append(&store, chain(1, thread, sealog_core::id::Mode::Live), vec![login("after")]);
    }
    let stored: u64 = wait(store.heads()).unwrap().iter().map(|(_, head)| head.chain_seq).sum();
    assert_eq!(stored, done.load(Ordering::SeqCst) + 8);
    eventually("it is ready", || store.ready().is_ok());
}

#[test]
fn many_chains_that_wait_for_a_lock_leave_connections_for_the_others() {
    let database = cluster().database();
    let url = database.url();
    let waiting = Options {
        lock_timeout: Duration::from_secs(2),
        idle_in_transaction_timeout: Duration::from_secs(60),
        ..options(0)
    };
    let store = PostgresStore::open(&url, &waiting).unwrap();
    let chains: Vec<_> = (1..=12).map(|n| chain(1, n, sealog_core::id::Mode::Live)).collect();
    for chain in &chains {
        append(&store, *chain, vec![login("first")]);
    }
    // Someone has all but the last one.
    let last = chains[11];
    let rows = format!("SELECT 1 FROM sealog.chains WHERE project_id <> '{}' FOR UPDATE", last.project_id);
    let held = database.hold(&rows);
    std::thread::scope(|scope| {
        let append_to_all = |actor: &'static str| -> Vec<_> {
            let (store, held_up) = (&store, &chains[..11]);
            held_up
                .iter()
                .map(|chain| scope.spawn(move || try_append(store, *chain, vec![login(actor)])))
                .collect()
        };
        // Each is told in time that it did not get its turn.
        for answer in append_to_all("x") {
            assert_eq!(answer.join().unwrap(), Err(StoreError::Deadline));
        }
        // By now they are known to be contested: they wait, and the last one does not. If they had all
        // connections, it would wait for one of them to give up. A machine that is too busy for the last one
        // to be acknowledged before the first of the others gives up shows nothing, so it may try again.
        let locks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let went_ahead = (0..10).any(|_| {
            let waiting = append_to_all("y");
            let one_gave_up = || waiting.iter().any(ScopedJoinHandle::is_finished);
            eventually("they wait", || database.sql(locks) != "0" || one_gave_up());
            append(&store, last, vec![login("free")]);
            let all_wait = !one_gave_up();
            for answer in waiting {
                assert_eq!(answer.join().unwrap(), Err(StoreError::Deadline));
            }
            all_wait
        });
        assert!(went_ahead, "it waits with the others");
    });
    held.release();
    for chain in &chains {
        append(&store, *chain, vec![login("after")]);
        assert!(verify(&store, *chain).valid());
    }
}

// ---- The database ---------------------------------------------------------------------------------------

#[test]
fn a_restart_of_the_database_is_an_error_and_then_over() {
    let cluster = Cluster::start("");
    let store = node(&cluster.url("postgres"), 0);
    let receipt = append(&store, live(), vec![login("a")]);
    cluster.stop("fast");
    assert!(matches!(try_append(&store, live(), vec![login("b")]), Err(StoreError::Unavailable(_))));
    assert!(wait(store.get(live(), receipt.log_ids[0])).is_err());
    eventually("it says that it is not ready", || store.ready().is_err());
    cluster.restart();
    eventually("it is ready again", || store.ready().is_ok());
    append(&store, live(), vec![login("c")]);
    assert_eq!(line(&store).len(), 2);
}

/// A database that is stopped, and goes on at the end of the test, however that ends.
struct Stopped<'a>(&'a Cluster);

impl Stopped<'_> {
    fn signal(&self, signal: &str) {
        let postmaster = self.0.postmaster().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &postmaster]).status().unwrap().success());
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

#[test]
fn a_database_that_takes_connections_and_says_nothing_is_an_error_in_time() {
    let cluster = Cluster::start("");
    let second = Duration::from_secs(1);
    let options = Options {
        connect_timeout: second,
        lock_timeout: second,
        statement_timeout: second,
        queue_deadline: second,
        transaction_timeout: 2 * second,
        ..options(0)
    };
    drop(node(&cluster.url("postgres"), 0));
    let store = PostgresStore::open(&cluster.url("postgres"), &options).unwrap();
    let stopped = Stopped(&cluster);
    // The kernel goes on taking connections, as a proxy does whose server is gone.
    stopped.signal("-STOP");
    let append = Append { chain: live(), drafts: vec![login("a")], idempotency: None };
    let appended = soon(store.append(append));
    assert!(matches!(appended, Err(StoreError::Unavailable(_))), "{appended:?}");
    assert!(soon(store.head(live())).is_err());
    drop(stopped);
    eventually("it is ready again", || store.ready().is_ok());
    sealog_testing::append(&store, live(), vec![login("b")]);
    assert_eq!(line(&store).len(), 1);
}

const KILLS: u64 = 8;

/// Appends one event after the other, each until it is acknowledged, and keeps a ledger of them.
fn hammer(store: &dyn Store, name: &str, ledger: &Mutex<Vec<(String, u64, String)>>, enough: &AtomicBool) {
    for i in 0.. {
        let nonce = format!("{name}i{i}");
        let Some(receipt) = until_acknowledged(store, live(), &nonce, enough) else { return };
        ledger.lock().unwrap().push((nonce, receipt.first_seq, receipt.hash.to_string()));
        if enough.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn kill_9_of_the_database_in_a_loop_loses_nothing_and_stores_nothing_twice() {
    let seed = seed("kill_9_of_the_database_in_a_loop_loses_nothing_and_stores_nothing_twice");
    let mut dice = Dice::new(seed);
    let cluster = Cluster::start("restart_after_crash = off");
    let url = cluster.url("postgres");
    let nodes = SKEWS_MS.map(|skew_ms| node(&url, skew_ms));
    let ledger: Mutex<Vec<(String, u64, String)>> = Mutex::default();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (n, store) in nodes.iter().enumerate() {
            for thread in 0..3 {
                let (ledger, enough) = (&ledger, &enough);
                scope.spawn(move || hammer(store, &format!("n{n}t{thread}"), ledger, enough));
            }
        }
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        for _ in 0..KILLS {
            let before = ledger.lock().unwrap().len();
            eventually("events are acknowledged", || ledger.lock().unwrap().len() > before + 20);
            std::thread::sleep(Duration::from_millis(dice.below(150)));
            cluster.kill_9();
            cluster.restart();
        }
        let before = ledger.lock().unwrap().len();
        eventually("events are acknowledged at the end", || ledger.lock().unwrap().len() > before + 20);
    });
    let acked = ledger.into_inner().unwrap();
    let events = check_ledger(&nodes[0], &acked);
    println!("kills={KILLS} acked={} events={events} lost=0 duplicated=0", acked.len());
}

fn counted(store: &PostgresStore) -> sealog_store::counts::Counts {
    // These nodes live by the clock of the machine, whatever day it is.
    let today = sealog_store::counts::day_of(SystemWorld.now_ms());
    wait(store.counts(live(), sealog_store::counts::Days::new(today - 1, today + 2))).unwrap()
}

#[test]
fn a_chain_that_another_node_counts_is_passed_over_and_no_event_is_counted_twice() {
    let database = cluster().database();
    let nodes = [node(&database.url(), 0), node(&database.url(), 0)];
    append(&nodes[0], live(), vec![login("a"); 10]);
    eventually("the first events are counted", || counted(&nodes[0]).uncounted == 0);
    // A node is in the middle of a piece: others answer with what there is, and say what is missing.
    let held = database.hold("SELECT FROM sealog.counted FOR UPDATE");
    append(&nodes[0], live(), vec![login("b"); 40]);
    for node in &nodes {
        let counts = counted(node);
        assert_eq!((counts.events(), counts.uncounted), (10, 40));
    }
    held.release();
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || {
                for _ in 0..20 {
                    append(node, live(), vec![login("c"); 5]);
                    let counts = counted(node);
                    assert!(counts.events() + counts.uncounted >= 50, "{counts:?}");
                }
            });
        }
    });
    for node in &nodes {
        eventually("everything is counted", || counted(node).uncounted == 0);
        let counts = counted(node);
        assert_eq!((counts.events(), counts.total().actions.get("user.login")), (250, 250));
    }
}

#[test]
fn an_answer_says_that_all_is_uncounted_while_lost_events_are_still_counted() {
    let database = cluster().database();
    let store = node(&database.url(), 0);
    append(&store, live(), vec![login("a"); 10]);
    eventually("the events are counted", || counted(&store).uncounted == 0);
    // Two more were counted, and then lost; a node is about to count anew.
    let held = database.hold(
        "UPDATE sealog.counted SET chain_seq = 12; COMMIT; BEGIN; SELECT FROM sealog.counted FOR UPDATE",
    );
    assert_eq!(counted(&store).uncounted, 10);
    held.release();
    eventually("everything is counted", || counted(&store).uncounted == 0);
    assert_eq!(counted(&store).events(), 10);
}

/// Counts are not waited for: `synchronous_commit` is off for them.
#[test]
fn counts_that_a_crash_of_the_database_loses_are_made_again() {
    // As late as can be, so that there is something to lose.
    let cluster = Cluster::start("restart_after_crash = off\nwal_writer_delay = '10s'");
    let url = cluster.url("postgres");
    let mut lost = 0;
    for round in 1..=5u64 {
        let store = node(&url, 0);
        append(&store, live(), vec![login("a"); 100]);
        eventually("everything is counted", || counted(&store).uncounted == 0);
        cluster.kill_9();
        drop(store);
        cluster.restart();
        let kept: u64 = cluster
            .sql("postgres", "SELECT coalesce(max(chain_seq), 0) FROM sealog.counted")
            .parse()
            .unwrap();
        lost += round * 100 - kept;
        let store = node(&url, 0);
        assert_valid(&store, live(), round * 100);
        eventually("everything is counted again", || counted(&store).uncounted == 0);
        let counts = counted(&store);
        assert_eq!((counts.events(), counts.total().actions.get("user.login")), (round * 100, round * 100));
    }
    assert!(lost > 0, "a crash has lost counts, or this test shows nothing");
}

#[test]
fn a_failover_that_lost_acknowledged_events_is_noticed_and_nothing_is_sealed_over_them() {
    let cluster = Cluster::start("");
    let (url, marks) = (cluster.url("postgres"), tempfile::tempdir().unwrap());
    let with_mark =
        || Options { mark_dir: Some(marks.path().to_owned()), tick: Duration::from_millis(50), ..options(0) };
    let running = PostgresStore::open(&url, &with_mark()).unwrap();
    for n in 0..5 {
        append(&running, live(), vec![login(&format!("kept {n}"))]);
    }
    // What an asynchronous standby had when the primary was lost.
    cluster.stop("fast");
    let copied = |from: &str, to: &str| {
        let (from, to) = (cluster.dir.join(from), cluster.dir.join(to));
        assert!(
            cluster.run("/bin/cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]).status.success()
        );
    };
    copied("data", "standby");
    cluster.restart();
    eventually("the node is back", || try_append(&running, live(), vec![login("lost")]).is_ok());
    let lost = append(&running, live(), vec![login("lost too")]);
    let acknowledged = wait(running.head(live())).unwrap().durable;
    cluster.stop("fast");
    std::fs::rename(cluster.dir.join("data"), cluster.dir.join("old primary")).unwrap();
    std::fs::rename(cluster.dir.join("standby"), cluster.dir.join("data")).unwrap();
    cluster.restart();

    // The node that runs notices at once, and says so in the database.
    eventually("the node is back", || wait(running.head(live())).is_ok());
    eventually("it refuses", || {
        try_append(&running, live(), vec![login("over it")])
            == Err(StoreError::HeadUnproven { chain: live() })
    });
    drop(running);
    // So does one that starts with its mark, and every other node.
    let found = PostgresStore::open(&url, &with_mark()).unwrap();
    let expected = wait(found.head(live())).unwrap();
    assert_eq!((expected.durable.chain_seq, expected.recorded), (5, acknowledged));
    assert_eq!(found.findings(), [Finding { chain: live(), acknowledged, found: expected.durable }]);
    let other = node(&url, 0);
    assert_eq!(try_append(&other, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
    let broken = verify(&other, live()).broken.unwrap();
    assert_eq!((broken.at, broken.reason, broken.hash), (6, Reason::Tail, lost.hash));
    // Other chains go on.
    append(&other, chain(1, 2, sealog_core::id::Mode::Live), vec![login("a")]);
    let known: HashSet<u64> = list(&other, live(), &Filter::default(), None, 9)
        .iter()
        .map(|event| event.sealed.chain_seq)
        .collect();
    assert_eq!(known, HashSet::from([1, 2, 3, 4, 5]));
}

/// What a failover to a standby that lagged does to a chain: its last events are gone, and its head is that
/// of the last one left.
fn fail_over_to(database: &Database, seq: u64) {
    database.sql(&format!(
        "BEGIN; DELETE FROM sealog.events WHERE chain_seq > {seq}; DELETE FROM sealog.idempotency WHERE first_seq > {seq};
         UPDATE sealog.chains c SET chain_seq = e.chain_seq, log_id = e.log_id, hash = e.hash FROM sealog.events e
             WHERE e.chain_id = c.chain_id AND e.chain_seq = {seq}; COMMIT"
    ));
}

/// A node that keeps a high-water mark in a directory.
fn marked(database: &Database, dir: &std::path::Path) -> PostgresStore {
    let options = Options { mark_dir: Some(dir.to_owned()), tick: Duration::from_millis(20), ..options(0) };
    PostgresStore::open(&database.url(), &options).unwrap()
}

fn append_many(store: &dyn Store, count: usize) -> Receipt {
    (0..count).map(|n| append(store, live(), vec![login(&format!("u{n}"))])).last().unwrap()
}

fn acknowledged(receipt: &Receipt) -> sealog_core::chain::Head {
    let (chain_seq, log_id) = (receipt.last_seq(), *receipt.log_ids.last().unwrap());
    sealog_core::chain::Head { chain_seq, log_id, hash: receipt.hash }
}

const UNPROVEN: fn() -> StoreError = || StoreError::HeadUnproven { chain: live() };

fn a_node_proves_the_loss_of_its_event_although_another_has_sealed_events_in_its_place(database: &Database) {
    let marks = tempfile::tempdir().unwrap();
    let (a, b) = (marked(database, marks.path()), node(&database.url(), 0));
    let lost = append_many(&a, 96);
    fail_over_to(database, 95);
    // B knows of nothing, and seals other events in the same places.
    assert_eq!(append_many(&b, 10).last_seq(), 105);
    let at_96 = list(&b, live(), &Filter::default(), Some(97), 1).remove(0);
    assert_ne!(at_96.sealed.hash, lost.hash);

    assert_eq!(try_append(&a, live(), vec![login("over it")]), Err(UNPROVEN()));
    let finding = Finding { chain: live(), acknowledged: acknowledged(&lost), found: at_96.head() };
    assert_eq!(a.findings(), [finding]);
    assert_eq!(wait(a.stats()).unwrap().findings, 1);
    // The proof is where every node finds it: nobody goes on, everybody counts it, verification shows it.
    assert_eq!(try_append(&b, live(), vec![login("over it")]), Err(UNPROVEN()));
    eventually("the other node has the finding", || b.findings().len() == 1);
    assert_eq!(b.findings()[0].acknowledged, acknowledged(&lost));
    for store in [&a, &b] {
        let verdict = verify(store, live());
        let broken = verdict.broken.unwrap();
        assert_eq!((broken.at, broken.reason, broken.hash), (96, Reason::Head, at_96.sealed.hash));
        assert_eq!((verdict.checked, verdict.last_seq), (96, 96));
        assert!(verify_window(store, live(), 97, 105).valid());
        assert!(!verify_window(store, live(), 90, 100).valid());
    }
    // Nor has A overwritten it: whoever takes the note out of the row is told again, also after a restart.
    let clear = "UPDATE sealog.chains SET recorded_seq = NULL, recorded_log_id = NULL, recorded_hash = NULL";
    database.sql(clear);
    assert_eq!(try_append(&a, live(), vec![login("over it")]), Err(UNPROVEN()));
    drop(a);
    database.sql(clear);
    let a = marked(database, marks.path());
    assert_eq!(a.findings().len(), 1);
    assert_eq!(try_append(&a, live(), vec![login("over it")]), Err(UNPROVEN()));
    assert_eq!(
        database.sql("SELECT recorded_seq, encode(recorded_hash, 'hex') FROM sealog.chains"),
        format!("96|{}", lost.hash)
    );
    // Other chains go on.
    append(&a, chain(1, 2, sealog_core::id::Mode::Live), vec![login("a")]);
}

#[test]
fn a_head_that_others_have_moved_is_no_loss_and_costs_no_further_round_trip() {
    let cluster = Cluster::start("log_statement = all");
    let url = cluster.url("postgres");
    let [a, b] = [node(&url, 0), node(&url, 0)];
    for _ in 0..15 {
        append_many(&a, 1);
        append_many(&b, 1);
    }
    assert_eq!((a.findings(), b.findings()), (vec![], vec![]));
    assert_eq!(line(&a).len(), 30);
    let log = std::fs::read_to_string(cluster.dir.join("log")).unwrap();
    let locks = log.matches("EXECUTE sealog_lock").count();
    // One to lock, and nothing that looks again; the first append of a chain makes its row.
    assert_eq!((locks, log.matches("EXECUTE sealog_snapshot").count()), (30 + 1, 0));
    assert_eq!(log.matches("WITH head AS").count(), 2, "each has tried once without a look");
    assert_eq!(log.matches("sealog.loss_accepted").count(), 0);
}

#[test]
fn events_that_were_lost_and_are_there_again_let_the_chain_go_on() {
    let database = cluster().database();
    let a = node(&database.url(), 0);
    append_many(&a, 10);
    database.sql("CREATE TABLE kept AS SELECT * FROM sealog.events; CREATE TABLE kept_chains AS SELECT * FROM sealog.chains");
    fail_over_to(&database, 7);
    assert_eq!(try_append(&a, live(), vec![login("x")]), Err(UNPROVEN()));
    assert_eq!(a.findings().len(), 1);
    database.sql(
        "INSERT INTO sealog.events SELECT * FROM kept WHERE chain_seq > 7;
         UPDATE sealog.chains SET (chain_seq, log_id, hash) = (SELECT chain_seq, log_id, hash FROM kept_chains)",
    );
    assert_eq!(append(&a, live(), vec![login("x")]).first_seq, 11);
    assert_valid(&a, live(), 11);
    eventually("the finding is gone", || a.findings().is_empty());
}

fn a_loss_that_is_accepted_is_the_next_event_and_every_node_goes_on_whatever_it_knows(database: &Database) {
    let marks: [_; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let [a, b, c] = marks.each_ref().map(|dir| marked(database, dir.path()));
    append_many(&a, 5);
    append_many(&b, 1);
    let lost = append_many(&c, 2);
    assert_eq!(lost.last_seq(), 8);
    let refused = wait(a.accept_loss(live(), "nothing is lost".into()));
    assert!(
        matches!(&refused, Err(StoreError::Refused(why)) if why.contains("no proven loss")),
        "{refused:?}"
    );
    assert_valid(&a, live(), 8);

    // A keeps what it knows, B knows of event 6 and C of event 8, which are lost.
    fail_over_to(database, 5);
    assert_eq!(try_append(&b, live(), vec![login("x")]), Err(UNPROVEN()));
    assert_eq!(try_append(&c, live(), vec![login("x")]), Err(UNPROVEN()));
    eventually("all know", || [&a, &b, &c].iter().all(|node| node.findings().len() == 1));
    drop(b);
    let reason = "the disk of \"db1\" is gone";
    let accepted = wait(a.accept_loss(live(), reason.into())).unwrap();
    assert_eq!((accepted.first_seq, accepted.log_ids.len()), (6, 1));
    assert!(accepted.log_ids[0] > lost.log_ids[0]);
    let event = get(&a, live(), accepted.log_ids[0]).unwrap();
    assert_eq!(event.text.fields().action, "\"sealog.loss_accepted\"");
    let metadata: serde_json::Value = serde_json::from_str(event.text.fields().metadata.unwrap()).unwrap();
    let expected = serde_json::json!({"lost_from": 6, "lost_to": 8, "recorded_hash": lost.hash.to_string(), "reason": reason});
    assert_eq!(metadata, expected);
    let head = wait(a.head(live())).unwrap();
    assert_eq!((head.durable, head.recorded), (event.head(), event.head()));
    assert_valid(&a, live(), 6);
    assert_eq!(a.findings(), []);

    // Each of the others has a proof of its own, running or started again, and learns from the chain that it
    // was dealt with.
    assert_eq!(append(&c, live(), vec![login("c")]).first_seq, 7);
    let b = marked(database, marks[1].path());
    assert_eq!(append(&b, live(), vec![login("b")]).first_seq, 8);
    assert_eq!(append(&a, live(), vec![login("a")]).first_seq, 9);
    eventually("no finding is left", || [&a, &b, &c].iter().all(|node| node.findings().is_empty()));
    drop((a, b, c));
    for dir in &marks {
        assert_eq!(marked(database, dir.path()).findings(), []);
    }
    let again = wait(marked(database, marks[2].path()).accept_loss(live(), "again".into()));
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
}

fn an_acceptance_covers_nothing_that_was_acknowledged_after_it(database: &Database) {
    let [a, b] = [node(&database.url(), 0), node(&database.url(), 0)];
    append_many(&a, 10);
    fail_over_to(database, 7);
    assert_eq!(try_append(&a, live(), vec![login("x")]), Err(UNPROVEN()));
    let accepted = wait(b.accept_loss(live(), "first".into())).unwrap();
    assert_eq!(accepted.first_seq, 8);
    // Sealed in a place that the acceptance gives up, but after it; then lost in its turn.
    let lost = append(&a, live(), vec![login("nine")]);
    assert_eq!(lost.first_seq, 9);
    fail_over_to(database, 8);
    append(&b, live(), vec![login("another nine")]);
    assert_eq!(try_append(&a, live(), vec![login("x")]), Err(UNPROVEN()));
    let accepted = wait(a.accept_loss(live(), "second".into())).unwrap();
    assert_eq!(accepted.first_seq, 10);
    let event = get(&a, live(), accepted.log_ids[0]).unwrap();
    let metadata: serde_json::Value = serde_json::from_str(event.text.fields().metadata.unwrap()).unwrap();
    assert_eq!((&metadata["lost_from"], &metadata["lost_to"]), (&9.into(), &9.into()));
    assert_eq!(metadata["recorded_hash"], lost.hash.to_string());
    assert_eq!(append(&a, live(), vec![login("on")]).first_seq, 11);
    assert_eq!(append(&b, live(), vec![login("on")]).first_seq, 12);
    assert_valid(&a, live(), 12);
}

fn a_retry_of_a_request_whose_events_were_lost_and_accepted_is_stored(database: &Database) {
    let store = node(&database.url(), 0);
    append_many(&store, 3);
    let (key, drafts) = (key("k", "b"), || vec![login("again"); 2]);
    let Outcome::Sealed(first) = append_once(&store, live(), drafts(), key, Ulid(1)) else {
        panic!("it is new")
    };
    // Only the events are gone, as after a repair by hand.
    database.sql("DELETE FROM sealog.events WHERE chain_seq > 4");
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(UNPROVEN()));
    assert_eq!(store.findings().len(), 1);
    assert_eq!(wait(store.accept_loss(live(), "by hand".into())).unwrap().first_seq, 5);
    let Outcome::Sealed(second) = append_once(&store, live(), drafts(), key, Ulid(2)) else { panic!("lost") };
    assert_eq!((second.first_seq, second.log_ids.len()), (6, 2));
    assert!(second.log_ids[0] > *first.log_ids.last().unwrap());
    assert_valid(&store, live(), 7);
    assert_eq!(store.findings(), []);
}

fn an_acceptance_waits_for_the_chains_lock_and_appends_go_on_behind_it(database: &Database) {
    let [a, b] = [node(&database.url(), 0), node(&database.url(), 0)];
    append_many(&a, 20);
    fail_over_to(database, 12);
    assert_eq!(try_append(&a, live(), vec![login("x")]), Err(UNPROVEN()));
    let accepted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for store in [&a, &b] {
            scope.spawn(|| match wait(store.accept_loss(live(), "r".into())) {
                Ok(_) => drop(accepted.fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Refused(_)) => {}
                Err(other) => panic!("{other:?}"),
            });
            scope.spawn(|| {
                eventually("appends go on", || try_append(store, live(), vec![login("y")]).is_ok());
                append_many(store, 20);
            });
        }
    });
    assert_eq!(accepted.into_inner(), 1, "one of two");
    assert_eq!(line(&a).len(), 12 + 1 + 2 * 21);
}

/// A primary with a standby that it waits for, and the URL of both.
fn with_synchronous_standby() -> (Cluster, Cluster, String) {
    let primary = Cluster::start("restart_after_crash = off");
    // Before the primary waits for anyone: the standby would, once it is the primary itself.
    let standby = primary.standby();
    primary.set("synchronous_standby_names = '*'");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    eventually("the standby is synchronous", || primary.sql("postgres", synchronous) == "1");
    let url = format!(
        "postgres://owner@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port, standby.port
    );
    (primary, standby, url)
}

#[test]
fn an_event_is_acknowledged_only_when_a_synchronous_standby_has_it() {
    let (primary, standby, url) = with_synchronous_standby();
    // A COMMIT that is cancelled while it waits for the standby succeeds, by PostgreSQL's rules: no timeout
    // of ours may cancel it.
    drop(node(&url, 0));
    let hasty = Options { statement_timeout: Duration::from_secs(1), ..options(0) };
    let store = PostgresStore::open(&url, &hasty).unwrap();
    let follows = standby.sql("postgres", "SHOW primary_conninfo").replace('\'', "''");
    // Of a chain that the node has to itself, and of one that another node has written to.
    for (other, commits) in [(None, "WITH head AS"), (Some(node(&url, 0)), "COMMIT")] {
        append(&store, live(), vec![login("with the standby")]);
        if let Some(other) = &other {
            append(other, live(), vec![login("from elsewhere")]);
        }
        standby.set("primary_conninfo = ''");
        let alone = "SELECT count(*) = 0 FROM pg_stat_replication";
        eventually("the standby is gone", || primary.sql("postgres", alone) == "t");
        let waiting = Append { chain: live(), drafts: vec![login("without it")], idempotency: None };
        let mut waiting = store.append(waiting);
        // By the database's own clock, for longer than a statement may take.
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '{commits}%' AND state_change < clock_timestamp() - interval '2 s'"
        );
        eventually("the primary waits for the standby", || {
            let answer = wait_until(waiting.as_mut(), Some(Instant::now()));
            assert_eq!(answer, None, "nobody has it but the primary");
            primary.sql("postgres", &waits) == "1"
        });
        standby.set(&format!("primary_conninfo = '{follows}'"));
        assert!(matches!(wait(waiting), Ok(Appended::Sealed(_))));
    }
    assert_eq!(line(&store).len(), 5);
}

#[test]
fn a_failover_to_a_synchronous_standby_loses_nothing_and_the_nodes_go_on_there() {
    let (primary, standby, url) = with_synchronous_standby();
    let nodes = [0, TEN_MINUTES_MS].map(|skew_ms| node(&url, skew_ms));
    let ledger: Mutex<Vec<(String, u64, String)>> = Mutex::default();
    let enough = AtomicBool::new(false);
    let acknowledged = || ledger.lock().unwrap().len();
    let failover = std::thread::scope(|scope| {
        for (n, store) in nodes.iter().enumerate() {
            for thread in 0..3 {
                let (ledger, enough) = (&ledger, &enough);
                scope.spawn(move || hammer(store, &format!("n{n}t{thread}"), ledger, enough));
            }
        }
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        eventually("events are acknowledged", || acknowledged() > 100);
        primary.kill_9();
        let (killed, before) = (Instant::now(), acknowledged());
        standby.promote();
        eventually("events are acknowledged by the standby", || acknowledged() > before + 100);
        killed.elapsed()
    });
    let acked = ledger.into_inner().unwrap();
    let events = check_ledger(&nodes[0], &acked);
    println!("acked={} events={events} lost=0 duplicated=0 over in {failover:?}", acked.len());
    // A node that is started now finds the new primary, and nothing missing.
    let started = node(&url, 0);
    append(&started, live(), vec![login("after")]);
    assert_eq!(line(&started).len(), events + 1);
}
