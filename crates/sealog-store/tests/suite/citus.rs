//! What only a Citus cluster can show: which node an append goes to, and what a lost worker or a moved shard
//! does to the chains. The argument is in `docs/adr/0038-straight-to-the-worker.md`.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_store::feed::{Follower, Position, Scope, Start};
use sealog_store::postgres::{
    DISTRIBUTED_TABLES, Distribution, Options, PostgresStore, Time, distribute, migrate,
};
use sealog_store::{Store, StoreError};
use sealog_testing::feed::{Heads, assert_hears, assert_quiet, heads};
use sealog_testing::postgres::{Cluster, Database};
use sealog_testing::*;

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
    let _alone = alone();
    for database in [Database::distributed(), Database::distributed().by_workers()] {
        assert_eq!(messages_of_appends(&database), [(0, chains().len()); 4], "{}", database.url());
    }
}

/// Without the id that workers are known by, and without the function: as a server is that cannot reach them.
fn without_a_way_to_workers() -> Database {
    let database = Database::distributed();
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
    for worker in database.workers() {
        database.sql(&format!("SELECT citus_remove_node('127.0.0.1', {})", worker.port));
    }
    lacks("SELECT citus_add_node('HOST', PORT)");
    database.sql(&format!("SELECT citus_remove_node('127.0.0.1', {})", database.coordinator().port));
    lacks("citus_set_coordinator_host");
    database.sql("DROP EXTENSION citus CASCADE");
    lacks("CREATE EXTENSION citus");
}

// ---- Any node -------------------------------------------------------------------------------------------
// Which lock is where, and why it holds: `docs/adr/0046-any-node-leads-to-the-cluster.md`.

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_migration_is_made_on_the_coordinator_whichever_node_its_url_names() {
    let database = Database::on_citus().by_workers();
    migrate(&database.url()).unwrap();
    append(&node(&database), live(), vec![login("a")]);
    let done = distribute(&database.url(), |_| {}).unwrap();
    assert_eq!(done.distributed, DISTRIBUTED_TABLES);
    let store = node(&database);
    append(&store, live(), vec![login("b")]);
    assert_valid(&store, live(), 2);
    drop(store);
    assert_eq!(distribute(&database.url(), |_| {}).unwrap(), Distribution::default());
    // Nothing is made on a worker that cannot say where the coordinator is.
    for worker in database.workers() {
        worker.sql(&database.name, "DELETE FROM pg_dist_node WHERE groupid = 0");
    }
    let refused = [
        PostgresStore::open(&database.url(), &Options::default()).unwrap_err(),
        migrate(&database.url()).unwrap_err(),
    ];
    for refused in refused {
        assert!(refused.to_string().contains("does not know the coordinator"), "{refused}");
    }
}

/// Statements at the coordinator that wait for a lock.
fn waiting(database: &Database) -> String {
    database.sql(&format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        database.name
    ))
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_servers_at_different_nodes_exclude_each_other_at_start_and_in_changes_of_control_data() {
    let database = Database::distributed();
    // A test that is kept waiting is no node that has stopped.
    let patient = Options { idle_in_transaction_timeout: PATIENCE, ..Options::default() };
    let at = |node: &Cluster| PostgresStore::open(&node.url(&database.name), &patient).unwrap();
    let stores: Vec<PostgresStore> =
        std::iter::once(database.coordinator()).chain(database.workers()).map(at).collect();
    for (first, second) in [(0, 1), (1, 0), (1, 2)] {
        let (first, second) = (&stores[first], &stores[second]);
        let held = wait(first.startup_lock()).unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| wait(second.startup_lock()).unwrap());
            eventually("the other one waits", || waiting(&database) == "1");
            assert!(!next.is_finished());
            drop(held);
            next.join().unwrap();
        });
        let (one, other) = (first.sessions(1), second.sessions(1));
        let held = one.begin().unwrap();
        let version = held.next_version().unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let work = other.begin().unwrap();
                let version = work.next_version().unwrap();
                work.finish().unwrap();
                version
            });
            eventually("the other one waits", || waiting(&database) == "1");
            assert!(!next.is_finished());
            held.finish().unwrap();
            assert_eq!(next.join().unwrap(), version + 1);
        });
        for store in &stores {
            eventually("every server hears of it", || store.version() == version + 1);
        }
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn a_node_that_is_gone_from_a_url_of_citus_is_passed_over() {
    let (_alone, database) = (alone(), Database::distributed());
    let [one, two] = [0, 1].map(|at| &database.workers()[at]);
    let hosts = format!("127.0.0.1:1,127.0.0.1:{},127.0.0.1:{}", one.port, two.port);
    let url = database.url().replace(&format!("127.0.0.1:{}", database.coordinator().port), &hosts);
    let store = PostgresStore::open(&url, &Options::default()).unwrap();
    for chain in chains() {
        append(&store, chain, vec![login("first")]);
    }
    let (lost, kept): (Vec<_>, Vec<_>) =
        chains().into_iter().partition(|chain| worker_of(&database, *chain).port == one.port);
    assert!(!lost.is_empty() && !kept.is_empty(), "each worker has some");
    one.kill_9();
    for chain in kept {
        append(&store, chain, vec![login("second")]);
        assert_valid(&store, chain, 2);
    }
    // Control data is the coordinator's, which the other worker knows as well.
    let work = store.sessions(1).begin().unwrap();
    let version = work.next_version().unwrap();
    work.finish().unwrap();
    eventually("the server hears of it", || store.version() == version);
    one.restart();
    for chain in lost {
        eventually("its chains go on", || try_append(&store, chain, vec![login("third")]).is_ok());
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_the_size_of_a_store_is_that_of_all_shards_whichever_node_is_asked() {
    let database = Database::distributed();
    let at = |node: &Cluster| PostgresStore::open(&node.url(&database.name), &Options::default()).unwrap();
    let stores: Vec<PostgresStore> =
        std::iter::once(database.coordinator()).chain(database.workers()).map(at).collect();
    let bytes = |store: &PostgresStore| wait(store.stats()).unwrap().storage_bytes;
    let empty = bytes(&stores[0]);
    for chain in chains() {
        for _ in 0..5 {
            append(&stores[1], chain, (0..100).map(|n| login(&format!("{n:0200}"))).collect());
        }
    }
    for store in &stores {
        // 4,000 events of more than 200 bytes.
        eventually("it has the shards of both workers", || bytes(store) > empty + 800_000);
    }
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
    let (_alone, database) = (alone(), Database::distributed());
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
    let (_alone, database) = (alone(), Database::distributed());
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

// ---- The feed -------------------------------------------------------------------------------------------
// The argument is in `docs/adr/0040-a-feed-on-citus.md`.

fn follow(store: &dyn Store, start: Start) -> Follower {
    wait(store.follow(Scope::Everything, start)).unwrap()
}

fn after(position: &Position) -> Start {
    Start::After(Position::parse(&position.to_string()).unwrap())
}

fn head(store: &dyn Store, chain: ChainId) -> Head {
    wait(store.head(chain)).unwrap().durable
}

fn only(store: &dyn Store, chain: ChainId) -> Heads {
    Heads::from([(chain, head(store, chain))])
}

/// Follows until `enough` and until all that is there was heard, over errors, and now and then begins again
/// where it was some time ago, with what it knew then. What it has heard, and how often it was given an
/// error.
fn keep_following(store: &dyn Store, seed: u64, enough: &AtomicBool) -> (Heads, u32) {
    let mut dice = Dice::new(seed);
    let (mut known, mut follower, mut errors) = (Heads::new(), follow(store, Start::Beginning), 0);
    let mut kept = (follower.position(), known.clone());
    let mut patience = std::time::Instant::now() + PATIENCE;
    loop {
        let is_over = enough.load(Ordering::SeqCst);
        if is_over && known == heads(store) {
            return (known, errors);
        }
        if !is_over {
            patience = std::time::Instant::now() + PATIENCE;
        }
        assert!(std::time::Instant::now() < patience, "left out: {known:?} of {:?}", heads(store));
        let until = std::time::Instant::now() + std::time::Duration::from_millis(100);
        match wait_until(follower.next(3), Some(until)) {
            None => {}
            Some(Err(StoreError::Closing)) => panic!("the store is open"),
            Some(Err(_)) => {
                errors += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Some(Ok(batch)) => {
                for change in &batch.changes {
                    let before = known.insert(change.chain, change.head);
                    let before = before.map_or(0, |before| before.chain_seq);
                    assert!(before <= change.head.chain_seq, "{} goes back", change.chain);
                }
                if dice.chance(4) {
                    kept = (batch.position, known.clone());
                }
                if dice.chance(20)
                    && let Ok(again) = wait(store.follow(Scope::Everything, after(&kept.0)))
                {
                    (known, follower) = (kept.1.clone(), again);
                }
            }
        }
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn followers_of_citus_miss_nothing_while_shards_move_a_worker_is_killed_and_the_cluster_is_rebalanced() {
    let (_alone, database) = (alone(), Database::distributed());
    let stores = [node(&database), node(&database)];
    for chain in chains() {
        append(&stores[0], chain, vec![login("first")]);
    }
    let (ledger, enough) = (Ledger::default(), AtomicBool::new(false));
    let shards =
        database.sql("SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'sealog.chains'::regclass");
    let heard = std::thread::scope(|scope| {
        hammer(scope, &stores[0], "a", (&ledger, &enough));
        hammer(scope, &stores[1], "b", (&ledger, &enough));
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        let enough = &enough;
        let followers: Vec<_> = stores
            .iter()
            .zip(1..)
            .map(|(store, seed)| scope.spawn(move || keep_following(store, seed, enough)))
            .collect();
        let grows = || {
            let before = ledger.lock().unwrap().len();
            eventually("events are acknowledged", || ledger.lock().unwrap().len() > before + 40);
        };
        for (shard, dead) in shards.lines().zip([0, 1]) {
            grows();
            let from = database
                .sql(&format!("SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = {shard}"));
            let to = database.workers().iter().find(|worker| worker.port.to_string() != from).unwrap().port;
            database.sql(&format!(
                "SELECT citus_move_shard_placement({shard}, '127.0.0.1', {from}, '127.0.0.1', {to}, 'force_logical')"
            ));
            grows();
            database.workers()[dead].kill_9();
            grows();
            database.workers()[dead].restart();
            grows();
        }
        database.sql("SELECT rebalance_table_shards('sealog.chains', threshold => 0, shard_transfer_mode => 'force_logical')");
        grows();
        enough.store(true, Ordering::SeqCst);
        followers.into_iter().map(|follower| follower.join().unwrap()).collect::<Vec<_>>()
    });
    let there = heads(&stores[0]);
    assert_eq!(there.len(), chains().len());
    let errors: Vec<u32> = heard.iter().map(|(_, errors)| *errors).collect();
    assert!(heard.iter().all(|(known, _)| *known == there), "{heard:?}");
    println!(
        "moves=2 kills=2 rebalanced acked={} left out=0 errors of followers={errors:?}",
        check(&stores[0], ledger)
    );
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_follower_hears_of_numbers_that_a_failover_took_back_and_that_were_given_again() {
    let database = Database::distributed();
    let store = node(&database);
    for chain in chains() {
        append(&store, chain, vec![login("a")]);
    }
    let shard = |chain: ChainId| {
        database.sql(&format!(
            "SELECT get_shard_id_for_distribution_column('sealog.chains', chain_id) FROM sealog.chains {}",
            row_of(chain)
        ))
    };
    // Of eight chains on four shards, two are on one.
    let mut first_of = BTreeMap::new();
    let two = chains().into_iter().find_map(|chain| Some((first_of.insert(shard(chain), chain)?, chain)));
    let (lost, other) = two.unwrap();
    let mut follower = follow(&store, Start::Beginning);
    assert_hears(&mut follower, 100, &heads(&store));
    let of_both = follower.position();
    let counters = database.sql("SELECT chain_id, number, lives, begins FROM sealog.feed");
    for _ in 0..3 {
        append(&store, lost, vec![login("b")]);
        assert_hears(&mut follower, 100, &only(&store, lost));
    }
    let behind = follower.position();
    drop(follower);
    // As on a standby that had none of the last numbers: it is another process of PostgreSQL.
    for counter in counters.lines() {
        let [id, number, lives, begins] = counter.split('|').collect::<Vec<_>>()[..] else {
            panic!("{counter}")
        };
        database.sql(&format!(
            "UPDATE sealog.feed SET number = {number}, lives = '{lives}', begins = '{begins}', server = 'the primary' WHERE chain_id = '{id}'"
        ));
    }
    // More numbers than were taken back, for another chain.
    let mut goes_on = follow(&store, after(&of_both));
    for _ in 0..5 {
        append(&store, other, vec![login("c")]);
        while !heard_by_barrier(&mut goes_on).contains_key(&other) {}
    }
    // This position has a number that was given again. What was announced under it is not known any more.
    let mut again = follow(&store, after(&behind));
    let of_shard: Heads =
        heads(&store).into_iter().filter(|(chain, _)| shard(*chain) == shard(lost)).collect();
    assert_eq!(heard_by_barrier(&mut again), of_shard);
    assert_quiet(&mut follow(&store, after(&again.position())));
}

/// What is announced up to a barrier.
fn heard_by_barrier(follower: &mut Follower) -> Heads {
    let mut heard = Heads::new();
    let mut catching_up = follower.catch_up();
    while let Some(batch) = soon(catching_up.next(3)).unwrap() {
        heard.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
    }
    heard
}

fn row_of(chain: ChainId) -> String {
    let (tenant, project, mode) = (chain.tenant_id, chain.project_id, chain.mode.as_str());
    format!("WHERE tenant_id = '{tenant}' AND project_id = '{project}' AND mode = '{mode}'")
}

/// A number waits for no append, nor an append for a number.
#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_row_that_is_held_for_long_holds_up_neither_its_last_change_nor_other_chains() {
    let database = Database::distributed();
    let store = node(&database);
    for chain in chains() {
        append(&store, chain, vec![login("a")]);
    }
    let mut follower = follow(&store, Start::Beginning);
    assert_hears(&mut follower, 100, &heads(&store));
    let before = follower.position();
    drop(follower);
    // Durable, and of no number yet: nobody follows.
    let held_chain = chains()[0];
    append(&store, held_chain, vec![login("b")]);
    let id = database.sql(&format!("SELECT chain_id FROM sealog.chains {}", row_of(held_chain)));
    let held = database.hold(&format!("SELECT FROM sealog.chains WHERE chain_id = '{id}' FOR UPDATE"));
    let mut positions = vec![before];
    let mut follower = follow(&store, after(&positions[0]));
    assert_hears(&mut follower, 100, &only(&store, held_chain));
    positions.push(follower.position());
    for other in &chains()[1..] {
        append(&store, *other, vec![login("c")]);
        assert_hears(&mut follower, 100, &only(&store, *other));
    }
    let before_release = head(&store, held_chain);
    held.release();
    assert_quiet(&mut follower);
    append(&store, held_chain, vec![login("d")]);
    assert_ne!(head(&store, held_chain), before_release);
    assert_hears(&mut follower, 100, &only(&store, held_chain));
    for position in positions {
        assert_eq!(heard_by_barrier(&mut follow(&store, after(&position))), heads(&store));
    }
    assert_quiet(&mut follow(&store, after(&follower.position())));
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_the_function_of_another_version_is_not_called_and_a_follower_misses_nothing() {
    let database = Database::distributed();
    for node in std::iter::once(database.coordinator()).chain(database.workers()) {
        node.sql(&database.name, "UPDATE pg_proc SET prosrc = replace(prosrc, ', changed_group = 0', '') WHERE proname = 'append_group'");
    }
    let store = node(&database);
    append(&store, live(), vec![login("a")]);
    let mut follower = follow(&store, Start::Now);
    for _ in 0..3 {
        append(&store, live(), vec![login("b")]);
        assert_hears(&mut follower, 100, &only(&store, live()));
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_position_from_before_the_tables_were_distributed_announces_every_chain() {
    let database = Database::on_citus();
    migrate(&database.url()).unwrap();
    let store = node(&database);
    for chain in chains() {
        append(&store, chain, vec![login("a")]);
    }
    let mut follower = follow(&store, Start::Beginning);
    assert_hears(&mut follower, 100, &heads(&store));
    let position = follower.position();
    drop((follower, store));
    distribute(&database.url(), |_| {}).unwrap();
    let store = node(&database);
    let mut follower = follow(&store, after(&position));
    assert_hears(&mut follower, 100, &heads(&store));
    // What was there is no news for who begins now.
    assert_quiet(&mut follow(&store, Start::Now));
    append(&store, chains()[1], vec![login("b")]);
    assert_hears(&mut follower, 100, &only(&store, chains()[1]));
    drop((follower, store));
    database.sql("DROP FUNCTION sealog.number_changes");
    let store = node(&database);
    let refused = wait(store.follow(Scope::Everything, Start::Now)).unwrap_err();
    assert!(refused.to_string().contains("sealog migrate --citus"), "{refused}");
}
