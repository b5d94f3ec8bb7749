//! What can happen to a store while it is followed, and to a position while nobody follows: crashes, lost
//! files, failovers. The rules that hold for every store are in `conformance/feed.rs`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::feed::{Follower, Position, Scope, Start};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::SystemWorld;
use sealog_store::{Append, Store, StoreError};
use sealog_testing::feed::{Heads, assert_hears, assert_quiet, catch_up, heads};
use sealog_testing::postgres::{Cluster, Pooler, cluster};
use sealog_testing::sim::{DIR, Plan, SimDisk};
use sealog_testing::*;

fn follow(store: &dyn Store, start: Start) -> Follower {
    wait(store.follow(Scope::Everything, start)).unwrap()
}

fn after(position: &Position) -> Start {
    Start::After(Position::parse(&position.to_string()).unwrap())
}

/// Waits until a follower has heard of this head, whatever else it hears before.
#[track_caller]
fn hears_of(follower: &mut Follower, chain: ChainId, head: Head) {
    loop {
        let batch = soon(follower.next(100)).unwrap();
        if batch.changes.iter().any(|change| (change.chain, change.head) == (chain, head)) {
            return;
        }
    }
}

fn head(store: &dyn Store, chain: ChainId) -> Head {
    wait(store.head(chain)).unwrap().durable
}

fn only(store: &dyn Store, chain: ChainId) -> Heads {
    Heads::from([(chain, head(store, chain))])
}

fn many(count: u8) -> Vec<ChainId> {
    (1..=count).map(|n| chain(n % 3 + 1, n, if n % 4 == 0 { Mode::Test } else { Mode::Live })).collect()
}

/// All at once, so that they share groups.
fn append_all(store: &dyn Store, chains: impl Iterator<Item = ChainId>) {
    let append = |chain| store.append(Append { chain, drafts: vec![login("a")], idempotency: None });
    let pending: Vec<_> = chains.map(append).collect();
    for pending in pending {
        wait(pending).unwrap();
    }
}

mod in_files {
    use super::*;

    fn options(disk: &SimDisk, world: &Arc<StillWorld>) -> embedded::Options {
        embedded::Options {
            disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
            tick: Duration::from_millis(5),
            ..small(world)
        }
    }

    fn open(disk: &SimDisk, world: &Arc<StillWorld>) -> EmbeddedStore {
        EmbeddedStore::open(Path::new(DIR), &options(disk, world)).unwrap()
    }

    /// Salts that differ, as those of real stores do.
    fn open_real(dir: &Path) -> EmbeddedStore {
        let options = embedded::Options { world: Arc::new(SystemWorld), ..small(&StillWorld::new()) };
        EmbeddedStore::open(dir, &options).unwrap()
    }

    /// A reader that keeps its position with what it knows, on a machine that loses power, or whose process
    /// is killed, again and again.
    #[test]
    fn over_power_cuts_and_kills_nothing_is_left_out_and_nothing_announced_is_lost() {
        let seed = seed("feed over power cuts");
        let mut dice = Dice::new(seed);
        let world = StillWorld::new();
        let mut disk = SimDisk::new();
        let chains = many(9);
        let mut kept: Option<(Position, Heads)> = None;
        let (mut announced, mut cycles_with_events) = (0, 0);
        for cycle in 0..60 {
            let reach = *dice.pick(&[60, 300, 1500]);
            disk.plan(Plan { power_cut_at: Some(1 + dice.below(reach)), ..Plan::default() });
            if let Ok(store) = EmbeddedStore::open(Path::new(DIR), &options(&disk, &world)) {
                let (done, store, chains) = (AtomicBool::new(false), &store, &chains);
                let limit = 1 + usize::try_from(dice.below(6)).unwrap();
                let keep_one_in = 1 + dice.below(4);
                std::thread::scope(|threads| {
                    let writers: Vec<_> = (0..3)
                        .map(|_| {
                            let mut dice = Dice::new(dice.roll());
                            threads.spawn(move || {
                                for _ in 0..40 {
                                    if try_append(store, *dice.pick(chains), vec![login("a")]).is_err() {
                                        return;
                                    }
                                }
                            })
                        })
                        .collect();
                    let mut keeping = Dice::new(dice.roll());
                    let (kept, announced, done) = (&mut kept, &mut announced, &done);
                    threads.spawn(move || {
                        let (mut follower, mut known) = match kept.as_ref() {
                            Some((position, known)) => (follow(store, after(position)), known.clone()),
                            None => (follow(store, Start::Beginning), Heads::new()),
                        };
                        loop {
                            let was_done = done.load(Ordering::SeqCst);
                            let until = Instant::now() + Duration::from_millis(20);
                            match wait_until(follower.next(limit), Some(until)) {
                                Some(Ok(batch)) => {
                                    *announced += batch.changes.len();
                                    known.extend(
                                        batch.changes.iter().map(|change| (change.chain, change.head)),
                                    );
                                    if keeping.chance(keep_one_in) {
                                        *kept = Some((batch.position, known.clone()));
                                    }
                                }
                                // The disk is dead, and what it held cannot be read.
                                Some(Err(_)) => return,
                                None if was_done => return,
                                None => {}
                            }
                        }
                    });
                    writers.into_iter().for_each(|writer| writer.join().unwrap());
                    done.store(true, Ordering::SeqCst);
                });
            }
            disk = if dice.chance(3) { disk.after_kill() } else { disk.after_power_cut(&mut dice) };
            let store = open(&disk, &world);
            let there = heads(&store);
            let (mut follower, mut known) = match &kept {
                Some((position, known)) => (follow(&store, after(position)), known.clone()),
                None => (follow(&store, Start::Beginning), Heads::new()),
            };
            for (chain, head) in &known {
                assert!(there[chain].chain_seq >= head.chain_seq, "cycle {cycle}: announced and lost");
            }
            while known != there {
                let batch = wait_until(follower.next(4), Some(Instant::now() + PATIENCE));
                let batch = batch.unwrap_or_else(|| panic!("cycle {cycle}: {known:?} {there:?}")).unwrap();
                known.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
            }
            cycles_with_events += u32::from(!there.is_empty());
            if dice.chance(2) {
                kept = Some((follower.position(), known));
            }
        }
        println!("announced={announced} left out=0");
        assert!(announced > 100 && cycles_with_events > 20, "the test tests nothing");
    }

    #[test]
    fn who_is_further_behind_than_what_is_kept_for_followers_is_told_of_every_chain() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_real(dir.path());
        let chains = many(40);
        let mut slow = follow(&store, Start::Now);
        let mut of_one = wait(store.follow(Scope::Chain(chains[3]), Start::Now)).unwrap();
        append_all(&store, [chains[3], chains[30]].into_iter());
        append_all(&store, (0..20_000).map(|n| chains[n % 3]));
        // The one that changed first and never again is in no list of the last changes.
        assert!(heads(&store).contains_key(&chains[30]));
        assert_hears(&mut slow, 100, &heads(&store));
        assert_hears(&mut of_one, 100, &only(&store, chains[3]));
        append_all(&store, std::iter::once(chains[8]));
        assert_hears(&mut slow, 100, &only(&store, chains[8]));
        assert_quiet(&mut of_one);
    }

    /// Many segments with index files, and a position in each.
    #[test]
    fn a_position_in_any_segment_is_exact_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_real(dir.path());
        let chains = many(12);
        let mut follower = follow(&store, Start::Beginning);
        let mut kept = vec![(follower.position(), Heads::new())];
        let mut known = Heads::new();
        for n in 0..400 {
            let draft = draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(1000)));
            // Each has its time, so that in most segments one ends and another begins.
            append(&store, chains[n / 50], vec![draft]);
            // These end in one segment.
            if n == 120 {
                append_all(&store, chains[8..].iter().copied());
            }
            let batch = wait(follower.next(10)).unwrap();
            known.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
            if n % 10 == 0 {
                kept.push((batch.position, known.clone()));
            }
        }
        drop((follower, store));
        let store = open_real(dir.path());
        let there = heads(&store);
        // And all in between when it is announced one by one, a look at every chain being cut where it is.
        let mut follower = follow(&store, Start::Beginning);
        let mut announced = Heads::new();
        while announced.len() < there.len() {
            let batch = wait(follower.next(1)).unwrap();
            announced.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
            let mut follower = follow(&store, after(&batch.position));
            let all = catch_up(&mut follower, 100, announced.clone(), |known| *known == there);
            assert_eq!(all, there);
        }
        for (position, known) in kept {
            let changed: Heads = there
                .iter()
                .filter(|(chain, head)| known.get(*chain) != Some(*head))
                .map(|(c, h)| (*c, *h))
                .collect();
            assert_hears(&mut follow(&store, after(&position)), 100, &changed);
        }
    }

    #[test]
    fn who_begins_to_follow_while_a_group_is_published_hears_of_it() {
        let (disk, world) = (SimDisk::new(), StillWorld::new());
        let store = open(&disk, &world);
        let mut heard = 0;
        for _ in 0..3000 {
            std::thread::scope(|threads| {
                let appending = threads.spawn(|| append(&store, live(), vec![login("a")]).first_seq);
                let mut follower = follow(&store, Start::Now);
                let mut in_between = wait_until(follower.next(1), Some(Instant::now())).is_some();
                let seen = head(&store, live()).chain_seq;
                let appended = appending.join().unwrap();
                // What could not be read when it had begun has become durable since.
                if seen < appended && !in_between {
                    let batch = soon(follower.next(1)).unwrap();
                    assert_eq!(batch.changes[0].head.chain_seq, appended);
                    in_between = true;
                }
                heard += u32::from(in_between);
            });
        }
        println!("{heard} of 3000 were announced");
        assert!(heard > 100, "the test tests nothing");
    }

    #[test]
    fn a_position_of_another_directory_is_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, two) = (open_real(one.path()), open_real(two.path()));
        for store in [&one, &two] {
            append(store, live(), vec![login("a")]);
        }
        for start in [Start::Beginning, Start::Now] {
            let position = follow(&one, start).position();
            let refused = wait(two.follow(Scope::Everything, after(&position)));
            assert!(
                matches!(&refused, Err(StoreError::Refused(why)) if why.contains("another store")),
                "{refused:?}"
            );
            wait(one.follow(Scope::Everything, after(&position))).unwrap();
        }
    }

    /// The salt of the indexes is replaced when it is lost; no event depends on it, and no position either.
    #[test]
    fn a_position_outlives_the_salt_of_the_indexes() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_real(dir.path());
        append(&store, live(), vec![login("a")]);
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        let position = follower.position();
        drop((follower, store));
        std::fs::remove_file(dir.path().join("index.salt")).unwrap();
        let store = open_real(dir.path());
        append(&store, chain(2, 2, Mode::Live), vec![login("b")]);
        let mut follower = follow(&store, after(&position));
        assert_hears(&mut follower, 100, &only(&store, chain(2, 2, Mode::Live)));
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to)
            } else {
                drop(std::fs::copy(entry.path(), to))
            }
        }
    }

    /// A backup that is older than the position, before and after it has grown beyond it on a way of its own.
    #[test]
    fn in_an_older_copy_of_the_store_every_chain_is_announced_again() {
        let (dir, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let chains = many(6);
        let store = open_real(dir.path());
        append_all(&store, chains.iter().copied());
        drop(store);
        copy(dir.path(), backup.path());
        let store = open_real(dir.path());
        let mut follower = follow(&store, Start::Beginning);
        for _ in 0..3 {
            append_all(&store, (0..300).map(|n| chains[n % 6]));
        }
        assert_hears(&mut follower, 100, &heads(&store));
        let position = follower.position();
        drop((follower, store));
        for events in [1, 600, 1200] {
            let store = open_real(backup.path());
            append_all(&store, (0..events).map(|_| chains[0]));
            println!("{events} events in the copy");
            assert_hears(&mut follow(&store, after(&position)), 100, &heads(&store));
        }
    }

    #[test]
    fn whoever_follows_a_store_that_waits_for_room_hears_of_what_comes_then() {
        let (disk, world) = (SimDisk::new(), StillWorld::new());
        let store = open(&disk, &world);
        append_all(&store, many(4).into_iter());
        let disk = disk.after_kill();
        disk.plan(Plan { capacity: Some(0), ..Plan::default() });
        let store = open(&disk, &world);
        assert_eq!(store.ready(), Err(StoreError::NoRoom));
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        let (before, after) = std::thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                let changes = wait(follower.next(100)).unwrap().changes;
                let known: Heads = changes.into_iter().map(|change| (change.chain, change.head)).collect();
                (known, follower)
            });
            disk.plan(Plan::default());
            eventually("it goes on", || store.ready() == Ok(()));
            append(&store, live(), vec![login("b")]);
            let (mut known, mut follower) = waiting.join().unwrap();
            let now = head(&store, live());
            known = catch_up(&mut follower, 100, known, |known| known.get(&live()) == Some(&now));
            (known, heads(&store))
        });
        assert_eq!(before.get(&live()), after.get(&live()));
    }
}

mod on_postgres {
    use super::*;

    fn open(url: &str) -> PostgresStore {
        PostgresStore::open(url, &on_postgres(&StillWorld::new())).unwrap()
    }

    #[test]
    fn what_one_node_appends_is_announced_on_every_node() {
        let database = cluster().database();
        let (one, two) = (open(&database.url()), open(&database.url()));
        let mut followers: Vec<_> = (0..20).map(|_| follow(&two, Start::Now)).collect();
        let mut elsewhere = wait(two.follow(Scope::Chain(chain(7, 7, Mode::Live)), Start::Now)).unwrap();
        for _ in 0..3 {
            append(&one, live(), vec![login("a")]);
            for follower in &mut followers {
                hears_of(follower, live(), head(&one, live()));
            }
        }
        assert_quiet(&mut elsewhere);
    }

    #[test]
    fn behind_a_pooler_it_is_the_same() {
        let pooler = Pooler::start(cluster());
        let database = cluster().database();
        let url = format!("postgres://owner@127.0.0.1:{}/{}?pgbouncer=true", pooler.port, database.name);
        let (one, two) = (open(&url), open(&database.url()));
        let mut follower = follow(&one, Start::Beginning);
        for chain in many(5) {
            append(&two, chain, vec![login("a")]);
            hears_of(&mut follower, chain, head(&two, chain));
        }
        let position = follower.position();
        append(&one, live(), vec![login("a")]);
        hears_of(&mut follow(&two, after(&position)), live(), head(&one, live()));
    }

    /// The ids of transactions say in which order they began, not in which they become visible.
    #[test]
    fn a_transaction_that_commits_after_later_ones_is_not_left_out() {
        let database = cluster().database();
        let store = open(&database.url());
        let (late, early) = (chain(1, 1, Mode::Live), chain(2, 1, Mode::Live));
        append_all(&store, [late, early].into_iter());
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        let mut positions = vec![follower.position()];
        // As an append does it, and then nothing until it is told to go on.
        let held = database.hold(&format!(
            "UPDATE sealog.chains SET changed = pg_current_xact_id(), changed_group = pg_current_xact_id()::text::bigint >> 8 WHERE tenant_id = '{}'",
            late.tenant_id
        ));
        append(&store, early, vec![login("b")]);
        assert_hears(&mut follower, 100, &only(&store, early));
        positions.push(follower.position());
        append(&store, early, vec![login("c")]);
        hears_of(&mut follower, early, head(&store, early));
        positions.push(follower.position());
        held.commit("");
        hears_of(&mut follower, late, head(&store, late));
        for position in positions {
            hears_of(&mut follow(&store, after(&position)), late, head(&store, late));
        }
        assert_quiet(&mut follow(&store, after(&follower.position())));
    }

    /// After a crash PostgreSQL gives ids of transactions again that had left nothing behind.
    #[test]
    fn over_kills_of_the_database_nothing_is_left_out() {
        let cluster = Cluster::start("restart_after_crash = off");
        let store = open(&cluster.url("postgres"));
        append(&store, live(), vec![login("a")]);
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        for _ in 0..3 {
            let given: u64 = cluster
                .sql(
                    "postgres",
                    &format!(
                        "{}SELECT pg_current_xact_id()",
                        "BEGIN; SELECT pg_current_xact_id(); ROLLBACK; ".repeat(50)
                    ),
                )
                .lines()
                .last()
                .unwrap()
                .parse()
                .unwrap();
            // Nothing has changed, and the follower has looked.
            let mut again = follow(&store, after(&follower.position()));
            assert!(wait_until(again.next(1), Some(Instant::now() + Duration::from_millis(20))).is_none());
            let position = again.position();
            cluster.kill_9();
            cluster.restart();
            eventually("the database can be used", || try_append(&store, live(), vec![login("b")]).is_ok());
            println!(
                "given out before the crash: {given}, now: {}",
                cluster.sql("postgres", "SELECT pg_current_xact_id()")
            );
            let head = head(&store, live());
            hears_of(&mut follow(&store, after(&position)), live(), head);
            while !has_heard_of(&mut follower, live(), head) {}
        }
    }

    /// A follower that may be told of an error in between.
    fn has_heard_of(follower: &mut Follower, chain: ChainId, head: Head) -> bool {
        match soon(follower.next(10)) {
            Ok(batch) => batch.changes.iter().any(|change| (change.chain, change.head) == (chain, head)),
            Err(StoreError::Closing) => panic!("the store is open"),
            Err(_) => false,
        }
    }

    /// What the old primary had announced is gone with it, and the new one numbers its transactions from
    /// before that.
    #[test]
    fn after_a_failover_that_lost_events_every_chain_is_announced_again() {
        let primary = Cluster::start("");
        let store = open(&primary.url("postgres"));
        let chains = many(3);
        append_all(&store, chains.iter().copied());
        let standby = primary.standby();
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        let before = follower.position();
        standby.set("primary_conninfo = ''");
        eventually("the standby is gone", || {
            primary.sql("postgres", "SELECT count(*) = 0 FROM pg_stat_replication") == "t"
        });
        for _ in 0..30 {
            append(&store, chains[0], vec![login("lost")]);
        }
        assert_eq!(head(&store, chains[0]).chain_seq, 31);
        hears_of(&mut follower, chains[0], head(&store, chains[0]));
        let behind = follower.position();
        let middle = {
            let mut again = follow(&store, Start::Beginning);
            wait(again.next(1)).unwrap().position
        };
        drop((follower, store));
        primary.kill_9();
        standby.promote();
        let store = open(&standby.url("postgres"));
        append(&store, chains[1], vec![login("in place of them")]);
        let now = heads(&store);
        assert_eq!(now[&chains[0]].chain_seq, 1);
        // A head that has gone back is told too.
        assert_hears(&mut follow(&store, after(&behind)), 100, &now);
        assert_hears(&mut follow(&store, after(&middle)), 100, &now);
        // This one is of a past that both have.
        assert_hears(&mut follow(&store, after(&before)), 100, &only(&store, chains[1]));
    }

    /// Another cluster has other transactions: what is in the rows says nothing there.
    #[test]
    fn a_database_that_was_restored_from_a_dump_is_announced_anew_and_goes_on() {
        let database = cluster().database();
        let store = open(&database.url());
        let chains = many(4);
        append_all(&store, chains.iter().copied());
        let mut follower = follow(&store, Start::Beginning);
        assert_hears(&mut follower, 100, &heads(&store));
        let position = follower.position();
        drop((follower, store));
        // As of a cluster that has seen much more than the one it is restored in.
        database.sql("UPDATE sealog.chains SET changed = '4000000000', changed_group = 4000000000 >> 8");
        let other = Cluster::start("");
        std::fs::write(other.dir.join("dump.sql"), database.dump()).unwrap();
        let dump = other.dir.join("dump.sql");
        let restored = other.run("psql", &["-q", "-d", &other.url("postgres"), "-f", dump.to_str().unwrap()]);
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        let store = open(&other.url("postgres"));
        let mut follower = follow(&store, after(&position));
        assert_hears(&mut follower, 100, &heads(&store));
        append(&store, chains[2], vec![login("b")]);
        assert_hears(&mut follower, 100, &only(&store, chains[2]));
        assert_quiet(&mut follow(&store, after(&follower.position())));
    }

    #[test]
    fn more_chains_than_one_look_takes_come_in_several_and_a_position_between_them_is_one() {
        let database = cluster().database();
        let store = open(&database.url());
        append(&store, live(), vec![login("a")]);
        let insert = "INSERT INTO sealog.chains (chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash, changed, changed_group)
             SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'live', 1, gen_random_uuid(), sha256('x'),
                 pg_current_xact_id(), pg_current_xact_id()::text::bigint >> 8 FROM generate_series(1, 2500)";
        database.sql(insert);
        let mut from_the_beginning = follow(&store, Start::Beginning);
        let mut from_then = follow(&store, Start::Now);
        database.sql(insert);
        for (follower, expected) in [(&mut from_the_beginning, 5001), (&mut from_then, 2501)] {
            let mut known = Heads::new();
            let mut kept = Vec::new();
            for _ in 0..3 {
                let batch = wait(follower.next(700)).unwrap();
                assert_eq!(batch.changes.len(), 700.min(batch.changes.len()));
                known.extend(batch.changes.iter().map(|change| (change.chain, change.head)));
                kept.push((batch.position, known.clone()));
                // Wherever its place is, before or behind where the look has got to.
                append(&store, live(), vec![login("b")]);
            }
            let now = head(&store, live());
            let is_all = |known: &Heads| known.len() == expected && known[&live()] == now;
            for (position, known) in kept {
                let known = catch_up(&mut follow(&store, after(&position)), 700, known, is_all);
                assert!(is_all(&known), "{} chains", known.len());
            }
            let known = catch_up(follower, 700, known, is_all);
            assert!(is_all(&known), "{} chains", known.len());
        }
    }

    #[test]
    fn the_cost_of_a_look_follows_the_chains_that_changed() {
        let database = cluster().database();
        let store = open(&database.url());
        append(&store, live(), vec![login("a")]);
        database.sql(
            "INSERT INTO sealog.chains (chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash)
             SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'live', 1, gen_random_uuid(), sha256('x') FROM generate_series(1, 20000)",
        );
        database.sql("VACUUM ANALYZE sealog.chains");
        let mut follower = follow(&store, Start::Now);
        // What a session has counted is seen by others once it ends.
        let read = |store: PostgresStore| {
            drop(store);
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
            eventually("sessions end", || database.sql(sessions) == "0");
            let counted =
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'chains'";
            database.sql(counted).parse::<u64>().unwrap()
        };
        for n in 0..30 {
            append(&store, live(), vec![login(&format!("u{n}"))]);
            assert_eq!(wait(follower.next(10)).unwrap().changes.len(), 1);
        }
        let position = follower.position();
        drop(follower);
        let before = read(store);
        let store = open(&database.url());
        let opened = read(store);
        let store = open(&database.url());
        let mut follower = follow(&store, after(&position));
        for n in 0..30 {
            append(&store, live(), vec![login(&format!("u{n}"))]);
            assert_eq!(wait(follower.next(10)).unwrap().changes.len(), 1);
        }
        drop(follower);
        let followed = read(store);
        let (by_opening, by_following) = (opened - before, followed - opened);
        println!("rows read by opening: {by_opening}, by opening and 30 changes: {by_following}");
        // Thirty looks at all chains would read 600,000 rows. The search for losses does read them all, every
        // ten seconds: on a busy machine several times meanwhile.
        assert!(by_following < by_opening + 300_000, "the looks have read more than the chains that changed");
    }
}
