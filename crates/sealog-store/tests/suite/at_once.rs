//! Appends of a node that has a chain to itself: one message each, which stores nothing that the lock path
//! would refuse. The argument is in `docs/adr/0035-an-append-in-one-message.md`.

mod races;

use std::time::Duration;

use sealog_core::id::{Mode, Ulid};
use sealog_store::StoreError;
use sealog_store::postgres::{Options, PostgresStore, Time};
use sealog_testing::postgres::{Cluster, Pooler, cluster};
use sealog_testing::*;

/// A node whose boot clock stands still, so that it takes no answer for a slow one, however busy the machine
/// is.
fn at_once() -> Options {
    let (world, time) = (StillWorld::random_at(MORNING_MS), Time::OfDatabase);
    Options { world, time, connections: 8, ..Options::default() }
}

fn node(url: &str) -> PostgresStore {
    PostgresStore::open(url, &at_once()).unwrap()
}

// ---- Messages -------------------------------------------------------------------------------------------

const LOGGED: &str = "log_statement = all\nlog_line_prefix = 'pid=%p '";

/// The messages of connections that store events: each is a line of the server's log.
fn messages(cluster: &Cluster) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.dir.join("log")).unwrap().replace("\n\t", " ");
    let lines: Vec<(&str, &str)> = log
        .lines()
        .filter_map(|line| line.strip_prefix("pid=")?.split_once(' '))
        .filter_map(|(pid, said)| Some((pid, said.strip_prefix("LOG:  ")?)))
        .filter(|(_, said)| said.starts_with("statement: ") || said.starts_with("execute "))
        .collect();
    let stores =
        |pid: &str| lines.iter().any(|(of, said)| *of == pid && said.contains("INSERT INTO sealog.events"));
    lines.iter().filter(|(pid, _)| stores(pid)).map(|(_, said)| (*said).to_owned()).collect()
}

/// Appends that were tried without a look.
fn tries(cluster: &Cluster) -> usize {
    messages(cluster).iter().filter(|said| said.contains("WITH head AS")).count()
}

/// Messages for an event, a batch, and both with keys, once the statements are known to the connection.
fn messages_of_appends(options: &Options) -> Vec<usize> {
    let cluster = Cluster::start(LOGGED);
    let store = PostgresStore::open(&cluster.url("postgres"), options).unwrap();
    let mut counts = Vec::new();
    for round in 0..2 {
        counts.clear();
        for (events, keyed) in [(1, false), (3, false), (1, true), (3, true)] {
            let before = messages(&cluster).len();
            let (name, drafts) = (format!("r{round}e{events}"), vec![login("a"); events]);
            match keyed {
                false => drop(append(&store, live(), drafts)),
                true => {
                    let done = append_once(&store, live(), drafts, key(&name, "b"), Ulid(1));
                    assert!(matches!(done, Outcome::Sealed(_)), "{done:?}");
                }
            }
            counts.push(messages(&cluster).len() - before);
        }
    }
    assert_valid(&store, live(), 16);
    counts
}

#[test]
fn an_append_to_a_chain_of_its_own_is_one_message_whatever_it_stores() {
    assert_eq!(messages_of_appends(&at_once()), [1; 4]);
}

#[test]
fn an_append_under_the_lock_is_three_messages_and_two_more_with_a_key() {
    let locked = Options { world: SlowWorld::of(&StillWorld::random_at(MORNING_MS)), ..at_once() };
    assert_eq!(messages_of_appends(&locked), [3, 3, 5, 5]);
}

#[test]
fn behind_a_pooler_what_begins_and_ends_the_transaction_travels_with_the_statement() {
    let cluster = Cluster::start(LOGGED);
    drop(node(&cluster.url("postgres")));
    let pooler = Pooler::start(&cluster);
    let store = node(&format!("postgres://owner@127.0.0.1:{}/postgres?pgbouncer=true", pooler.port));
    for n in 0..5 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    assert_valid(&store, live(), 5);
    drop(store);
    let log = std::fs::read_to_string(cluster.dir.join("log")).unwrap();
    let locks = log.matches("recorded_seq, dropped_seq FROM sealog.chains").count();
    assert_eq!(locks, 2, "the first event finds no row, makes it and locks it");
    assert_eq!(log.matches("WITH head AS").count(), 4);
}

#[test]
fn a_node_that_meets_events_of_another_looks_first_until_it_finds_the_chain_as_it_left_it() {
    let cluster = Cluster::start(LOGGED);
    let [a, b] = [0, 1].map(|_| node(&cluster.url("postgres")));
    let tries_of = |store: &PostgresStore, appends: usize| {
        let before = tries(&cluster);
        (0..appends).for_each(|_| drop(append(store, live(), vec![login("a")])));
        tries(&cluster) - before
    };
    assert_eq!(tries_of(&a, 1), 0, "it knows of no head");
    assert_eq!(tries_of(&a, 2), 2);
    assert_eq!(tries_of(&b, 1), 0);
    assert_eq!(tries_of(&a, 1), 1, "it finds out");
    assert_eq!(tries_of(&a, 1), 0, "it looks first, and nobody has come");
    assert_eq!(tries_of(&a, 3), 3);
    // Nodes that take turns find out once each.
    assert_eq!((tries_of(&b, 1), tries_of(&a, 1)), (1, 1));
    for _ in 0..4 {
        assert_eq!((tries_of(&b, 1), tries_of(&a, 1)), (0, 0));
    }
    assert_valid(&a, live(), 19);
}

#[test]
fn a_node_whose_last_group_failed_looks_first() {
    let cluster = Cluster::start(LOGGED);
    let hasty = Options { lock_timeout: Duration::from_millis(300), ..at_once() };
    let store = PostgresStore::open(&cluster.url("postgres"), &hasty).unwrap();
    append(&store, live(), vec![login("a")]);
    append(&store, live(), vec![login("a")]);
    let held = cluster.hold("postgres", "SELECT chain_seq FROM sealog.chains FOR UPDATE");
    assert_eq!(try_append(&store, live(), vec![login("b")]), Err(StoreError::Deadline));
    held.release();
    for tried in [2, 3] {
        append(&store, live(), vec![login("c")]);
        assert_eq!(tries(&cluster), tried);
    }
}

// ---- What the lock path checks --------------------------------------------------------------------------

#[test]
fn nothing_is_stored_on_a_chain_that_is_not_as_the_lock_path_wants_it() {
    let database = cluster().database();
    let store = node(&database.url());
    let test = chain(1, 2, Mode::Test);
    for chain in [live(), live(), test, test] {
        append(&store, chain, vec![login("a")]);
    }
    // Only the owner of the tables can write what the schema refuses.
    database.sql("ALTER TABLE sealog.chains DROP CONSTRAINT dropped_of_a_test_chain");
    let unproven = |chain| StoreError::HeadUnproven { chain };
    let another = || StoreError::Refused("the chain's row belongs to another chain".into());
    let last = "(chain_id, chain_seq) = (SELECT chain_id, chain_seq FROM sealog.chains WHERE mode = 'live')";
    for (chain, change, expected) in [
        (live(), "UPDATE sealog.chains SET recorded_seq = 99, recorded_log_id = log_id, recorded_hash = hash".to_owned(), unproven(live())),
        (live(), format!("DELETE FROM sealog.events WHERE {last}"), unproven(live())),
        (live(), format!("UPDATE sealog.events SET hash = sha256(hash) WHERE {last}"), unproven(live())),
        (
            live(),
            format!(
                "CREATE TEMP TABLE further AS SELECT * FROM sealog.events WHERE {last};
                 UPDATE further SET chain_seq = chain_seq + 1, log_id = gen_random_uuid(), hash = sha256(hash); INSERT INTO sealog.events SELECT * FROM further"
            ),
            unproven(live()),
        ),
        (live(), "UPDATE sealog.chains SET hash = sha256(hash) WHERE mode = 'live'".to_owned(), unproven(live())),
        (live(), "UPDATE sealog.chains SET chain_seq = chain_seq - 1 WHERE mode = 'live'".to_owned(), unproven(live())),
        (live(), "UPDATE sealog.chains SET dropped_seq = 1 WHERE mode = 'live'".to_owned(), unproven(live())),
        (test, "UPDATE sealog.chains SET dropped_seq = chain_seq WHERE mode = 'test'".to_owned(), unproven(test)),
        (test, "UPDATE sealog.chains SET dropped_seq = 0 WHERE mode = 'test'".to_owned(), unproven(test)),
        (live(), "UPDATE sealog.chains SET tenant_id = gen_random_uuid() WHERE mode = 'live'".to_owned(), another()),
        (live(), "UPDATE sealog.chains SET project_id = gen_random_uuid() WHERE mode = 'live'".to_owned(), another()),
        (live(), "UPDATE sealog.chains SET mode = 'test' WHERE mode = 'live'".to_owned(), another()),
    ] {
        // With this the node finds the chain as it has left it, and does not look first.
        append(&store, chain, vec![login("before")]);
        database.sql("CREATE TABLE kept AS SELECT * FROM sealog.chains; CREATE TABLE kept_events AS SELECT * FROM sealog.events");
        database.sql(&change);
        let count = "SELECT count(*) FROM sealog.events";
        let before = database.sql(count);
        assert_eq!(try_append(&store, chain, vec![login("over it")]), Err(expected), "{change}");
        assert_eq!(database.sql(count), before, "{change}");
        database.sql(
            "TRUNCATE sealog.chains, sealog.events; INSERT INTO sealog.chains SELECT * FROM kept; INSERT INTO sealog.events SELECT * FROM kept_events; DROP TABLE kept, kept_events",
        );
    }
    assert_valid(&store, live(), 12);
    // What a test chain may have dropped is no reason to look first.
    database.sql("UPDATE sealog.chains SET dropped_seq = 1 WHERE mode = 'test'");
    append(&store, test, vec![login("behind what was dropped")]);
}

#[test]
fn nothing_is_stored_while_a_setting_is_off_that_makes_commits_durable() {
    let cluster = Cluster::start("");
    let store = node(&cluster.url("postgres"));
    append(&store, live(), vec![login("a")]);
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        cluster.set(&format!("{setting} = off"));
        eventually("the connections know", || {
            let tried = try_append(&store, live(), vec![login("c")]);
            matches!(&tried, Err(StoreError::Unavailable(why)) if why.contains(setting))
        });
        let stored = cluster.sql("postgres", "SELECT count(*) FROM sealog.events");
        assert!(try_append(&store, live(), vec![login("d")]).is_err());
        assert_eq!(cluster.sql("postgres", "SELECT count(*) FROM sealog.events"), stored);
        cluster.set(&format!("{setting} = on"));
        eventually("it is on again", || try_append(&store, live(), vec![login("e")]).is_ok());
    }
}

#[test]
fn an_estimate_that_the_database_does_not_share_stores_nothing_and_the_lock_path_asks() {
    let database = cluster().database();
    // As its boot clock stands still, its estimate stays behind; the monitor brings no sample.
    let options = Options { poll: Duration::from_secs(3600), ..at_once() };
    let store = PostgresStore::open(&database.url(), &options).unwrap();
    append(&store, live(), vec![login("a")]);
    append(&store, live(), vec![login("b")]);
    let now_ms = || -> u64 {
        database.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").parse().unwrap()
    };
    let begun_ms = now_ms();
    eventually("more than five seconds have gone by", || now_ms() > begun_ms + 5100);
    let before_ms = now_ms();
    let receipt = append(&store, live(), vec![login("c")]);
    let event = get(&store, live(), receipt.log_ids[0]).unwrap();
    assert!((before_ms..=now_ms()).contains(&event.timestamp_ms), "{} at {before_ms}", event.timestamp_ms);
    assert_valid(&store, live(), 3);
}

#[test]
fn what_a_role_has_as_its_default_isolation_does_not_change_what_a_miss_is() {
    let database = cluster().database();
    drop(node(&database.url()));
    for setting in ["default_transaction_isolation = 'serializable'", "default_transaction_read_only = on"] {
        database.sql(&format!("ALTER DATABASE {} SET {setting}", database.name));
    }
    let nodes = [0, 1].map(|_| node(&database.url()));
    std::thread::scope(|scope| {
        for store in &nodes {
            scope.spawn(move || (0..30).for_each(|_| drop(append(store, live(), vec![login("a")]))));
        }
    });
    assert_valid(&nodes[0], live(), 60);
}
