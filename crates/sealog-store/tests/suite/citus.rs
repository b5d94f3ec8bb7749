//! What only a Citus cluster can show: which node an append goes to, and what a lost worker or a moved shard
//! does to the chains. The argument is in `docs/adr/0038-straight-to-the-worker.md`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_store::StoreError;
use sealog_store::postgres::{
    DISTRIBUTED_TABLES, Distribution, Options, PostgresStore, Time, distribute, migrate,
};
use sealog_testing::postgres::{Cluster, Database};
use sealog_testing::*;

use crate::conformance::citus_database;

/// These look at the logs of servers that others use, or stop one of them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node whose boot clock stands still, so that it takes no answer for a slow one.
fn node(database: &Database) -> PostgresStore {
    let (world, time) = (StillWorld::random_at(MORNING_MS), Time::OfDatabase);
    let options = Options { world, time, connections: 16, ..Options::default() };
    PostgresStore::open(&database.url(), &options).unwrap()
}

/// Enough for each worker to have some.
fn chains() -> Vec<ChainId> {
    (1..=8).map(|project| chain(1, project, Mode::Live)).collect()
}

/// The messages of connections that store events, by the server's log: only databases that ask for it have
/// their statements there.
fn messages(node: &Cluster) -> usize {
    let log = node.log().replace("\n\t", " ");
    let line = |line: &str| {
        let (head, said) = line.split_once(" LOG:  ")?;
        let pid = head.split_once('[')?.1.split_once(']')?.0.to_owned();
        (said.starts_with("statement: ") || said.starts_with("execute ")).then(|| (pid, said.to_owned()))
    };
    let lines: Vec<(String, String)> = log.lines().filter_map(line).collect();
    let of = |parts: &[&str]| -> HashSet<&str> {
        let with = lines.iter().filter(|(_, said)| parts.iter().any(|part| said.contains(part)));
        with.map(|(pid, _)| &**pid).collect()
    };
    let servers = of(&["sealog.append_group(", "INTO sealog.events ("]);
    let coordinators = of(&["INTO sealog.events_"]);
    // What a session of a server does to a shard is part of the message before.
    let is_message = |(pid, said): &&(String, String)| match servers.contains(&**pid) {
        true => !names_a_shard(said),
        false => coordinators.contains(&**pid),
    };
    lines.iter().filter(is_message).count()
}

/// As in `sealog.events_102008`.
fn names_a_shard(said: &str) -> bool {
    said.split("sealog.").skip(1).any(|name| {
        let name = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
        name.rsplit_once('_')
            .is_some_and(|(_, number)| number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Messages to the coordinator and to the workers for each append: of an event, a batch, and both with keys,
/// once the statements are known to the connections.
fn messages_of_appends(database: &Database) -> Vec<(usize, usize)> {
    database.sql(&format!("ALTER DATABASE {} SET log_statement = 'all'", database.name));
    for worker in database.workers() {
        worker.sql("postgres", &format!("ALTER DATABASE {} SET log_statement = 'all'", database.name));
    }
    let store = node(database);
    let count = || {
        let to_workers: usize = database.workers().iter().map(messages).sum();
        (messages(database.coordinator()), to_workers)
    };
    let mut counts = Vec::new();
    for round in 0..3 {
        counts.clear();
        for (events, keyed) in [(1, false), (3, false), (1, true), (3, true)] {
            let before = count();
            for chain in chains() {
                let (name, drafts) = (format!("r{round}e{events}"), vec![login("a"); events]);
                match keyed {
                    false => drop(append(&store, chain, drafts)),
                    true => {
                        let done = append_once(&store, chain, drafts, key(&name, "b"), Ulid(1));
                        assert!(matches!(done, Outcome::Sealed(_)), "{done:?}");
                    }
                }
            }
            let after = count();
            counts.push((after.0 - before.0, after.1 - before.1));
        }
    }
    for chain in chains() {
        assert_valid(&store, chain, 24);
    }
    counts
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_an_append_to_a_chain_of_its_own_is_one_message_to_its_worker_and_none_to_the_coordinator() {
    let (_alone, database) = (alone(), citus_database());
    assert_eq!(messages_of_appends(&database), [(0, chains().len()); 4]);
}

/// Without the id that workers are known by, and without the function: as a server is that cannot reach them.
fn without_a_way_to_workers() -> Database {
    let database = citus_database();
    database.sql("DROP TABLE sealog.identity");
    let function = database.sql("SELECT 'sealog.append_group'::regproc::regprocedure");
    database.sql(&format!("DROP FUNCTION {function}"));
    database
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_appends_go_through_the_coordinator_where_workers_cannot_be_reached() {
    let (_alone, database) = (alone(), without_a_way_to_workers());
    let counts = messages_of_appends(&database);
    println!("messages to the coordinator and to workers for {} appends: {counts:?}", chains().len());
    assert!(counts.iter().all(|(coordinator, workers)| *coordinator > 0 && *workers > 0), "{counts:?}");
}

// ---- Migration ------------------------------------------------------------------------------------------

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_migration_moves_rows_leaves_no_copy_and_says_what_it_did() {
    let database = Database::on_citus();
    migrate(&database.url()).unwrap();
    let before = node(&database);
    for chain in chains() {
        append(&before, chain, vec![login("a"); 3]);
    }
    drop(before);
    let mut said = Vec::new();
    let done = distribute(&database.url(), |step| said.push(step.to_owned())).unwrap();
    assert_eq!(done.distributed, DISTRIBUTED_TABLES);
    for table in ["chains", "events", "usage"] {
        assert!(done.cleared.contains(&table), "{done:?}");
    }
    assert!(said.contains(&"moving 24 rows of sealog.events to the workers".to_owned()), "{said:?}");
    let hidden = |table: &str| database.sql(&format!("SELECT pg_relation_size('sealog.{table}')"));
    assert!(DISTRIBUTED_TABLES.iter().all(|table| hidden(table) == "0"));
    let again = distribute(&database.url(), |step| panic!("it says {step}")).unwrap();
    assert_eq!(again, Distribution::default());
    let store = node(&database);
    for chain in chains() {
        append(&store, chain, vec![login("b")]);
        assert_valid(&store, chain, 4);
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_migration_goes_on_where_it_was_interrupted_and_removes_copies_that_were_left() {
    let database = Database::on_citus();
    migrate(&database.url()).unwrap();
    append(&node(&database), live(), vec![login("a"); 3]);
    // As an earlier version did it, and as far as it came.
    database.sql("SELECT create_distributed_table('sealog.chains', 'chain_id')");
    let done = distribute(&database.url(), |_| {}).unwrap();
    assert_eq!(done.distributed, DISTRIBUTED_TABLES[1..]);
    assert!(done.cleared.contains(&"chains"), "{done:?}");
    assert_valid(&node(&database), live(), 3);
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_migration_names_what_the_cluster_lacks_and_changes_nothing() {
    let database = Database::on_citus();
    migrate(&database.url()).unwrap();
    let lacks = |what: &str| {
        let refused = distribute(&database.url(), |step| panic!("it says {step}")).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    };
    let worker = &database.workers()[0];
    let of_worker =
        database.url().replace(&database.coordinator().port.to_string(), &worker.port.to_string());
    let refused = distribute(&of_worker, |_| {}).unwrap_err().to_string();
    assert!(refused.contains("the URL names a worker"), "{refused}");
    for worker in database.workers() {
        database.sql(&format!("SELECT citus_remove_node('127.0.0.1', {})", worker.port));
    }
    lacks("SELECT citus_add_node('HOST', PORT)");
    database.sql(&format!("SELECT citus_remove_node('127.0.0.1', {})", database.coordinator().port));
    lacks("citus_set_coordinator_host");
    database.sql("DROP EXTENSION citus CASCADE");
    lacks("CREATE EXTENSION citus");
}

// ---- Faults ---------------------------------------------------------------------------------------------

/// The worker that has a chain.
fn worker_of(database: &Database, chain: ChainId) -> &'static Cluster {
    let port = database.sql(&format!(
        "SELECT n.nodeport FROM pg_dist_node n JOIN pg_dist_placement p ON p.groupid = n.groupid
         WHERE p.shardid = (SELECT get_shard_id_for_distribution_column('sealog.chains', chain_id) FROM sealog.chains
             WHERE tenant_id = '{}' AND project_id = '{}' AND mode = '{}')",
        chain.tenant_id, chain.project_id, chain.mode.as_str()
    ));
    database.workers().iter().find(|worker| worker.port.to_string() == port).expect("a worker has it")
}

type Ledger = Mutex<Vec<(ChainId, String, u64, String)>>;

/// Appends to each chain one event after the other, each until it is acknowledged.
fn hammer<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    store: &'s PostgresStore,
    name: &'s str,
    (ledger, enough): (&'s Ledger, &'s AtomicBool),
) {
    for chain in chains() {
        scope.spawn(move || {
            for n in 0.. {
                let nonce = format!("{name}n{n}");
                let Some(receipt) = until_acknowledged(store, chain, &nonce, enough) else { return };
                ledger.lock().unwrap().push((chain, nonce, receipt.first_seq, receipt.hash.to_string()));
                if enough.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
    }
}

/// Every acknowledgement is there as it was given, and nothing is there twice.
fn check(store: &PostgresStore, ledger: Ledger) -> usize {
    let mut acked = ledger.into_inner().unwrap();
    let count = acked.len();
    for chain in chains() {
        let events = list(store, chain, &Filter::default(), None, usize::MAX);
        assert_valid(store, chain, events.len() as u64);
        let mut found = std::collections::HashMap::new();
        for event in &events {
            let actor = event.text.fields().actor_id.unwrap().trim_matches('"').to_owned();
            let at = (event.sealed.chain_seq, event.sealed.hash.to_string());
            assert!(found.insert(actor.clone(), at).is_none(), "{actor} is there twice");
        }
        acked.retain(|(of, nonce, seq, hash)| {
            assert!(*of != chain || found.get(nonce) == Some(&(*seq, hash.clone())), "{nonce} is lost");
            *of != chain
        });
    }
    assert!(acked.is_empty());
    count
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn a_dead_worker_of_citus_fails_its_own_chains_and_no_others_and_nothing_is_lost_or_twice() {
    let (_alone, database) = (alone(), citus_database());
    let store = node(&database);
    for chain in chains() {
        append(&store, chain, vec![login("first")]);
    }
    let dead = worker_of(&database, chains()[0]);
    let (lost, kept): (Vec<_>, Vec<_>) =
        chains().into_iter().partition(|chain| worker_of(&database, *chain).port == dead.port);
    assert!(!kept.is_empty(), "each worker has some");
    let (ledger, enough) = (Ledger::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        hammer(scope, &store, "h", (&ledger, &enough));
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        let acknowledged = |chains: &[ChainId]| {
            ledger.lock().unwrap().iter().filter(|(chain, ..)| chains.contains(chain)).count()
        };
        let grows = |what: &str, chains: &[ChainId]| {
            let before = acknowledged(chains);
            eventually(what, || acknowledged(chains) > before + 40);
        };
        grows("events of all chains are acknowledged", &chains());
        for _ in 0..3 {
            dead.kill_9();
            let before = acknowledged(&lost);
            grows("events of the other worker's chains are acknowledged", &kept);
            for chain in &lost {
                let refused = try_append(&store, *chain, vec![login("refused")]);
                assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            }
            assert_eq!(acknowledged(&lost), before, "nobody keeps them");
            dead.restart();
            grows("its chains go on by themselves", &lost);
        }
    });
    println!("kills=3 acked={} lost=0 duplicated=0", check(&store, ledger));
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn shards_of_citus_that_move_under_load_are_followed_and_nothing_is_lost_or_twice() {
    let (_alone, database) = (alone(), citus_database());
    let stores = [node(&database), node(&database)];
    for chain in chains() {
        append(&stores[0], chain, vec![login("first")]);
    }
    let (ledger, enough) = (Ledger::default(), AtomicBool::new(false));
    let shards =
        database.sql("SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'sealog.chains'::regclass");
    let mut moves = 0;
    std::thread::scope(|scope| {
        hammer(scope, &stores[0], "a", (&ledger, &enough));
        hammer(scope, &stores[1], "b", (&ledger, &enough));
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        for shard in shards.lines().cycle().take(6) {
            let before = ledger.lock().unwrap().len();
            eventually("events are acknowledged", || ledger.lock().unwrap().len() > before + 40);
            let from = database
                .sql(&format!("SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = {shard}"));
            let to = database.workers().iter().find(|worker| worker.port.to_string() != from).unwrap().port;
            database.sql(&format!(
                "SELECT citus_move_shard_placement({shard}, '127.0.0.1', {from}, '127.0.0.1', {to}, 'force_logical')"
            ));
            moves += 1;
        }
    });
    for store in &stores {
        for chain in chains() {
            append(store, chain, vec![login(&format!("after {:p}", store))]);
        }
    }
    println!("moves={moves} acked={} lost=0 duplicated=0", check(&stores[0], ledger));
}
