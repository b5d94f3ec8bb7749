//! A wall clock that leaps under a running store, and one that is wrong at start. On PostgreSQL that is the
//! database's, against the boot clock of the node.

use std::sync::Arc;
use std::time::Duration;

use sealog_core::id::Ulid;
use sealog_store::clock::{GuardedWorld, HELD_NOTICE, HOLD_MS};
use sealog_store::embedded::{self, EmbeddedStore, Finding};
use sealog_store::postgres::{self, ClockBehind, PostgresStore, Time};
use sealog_store::stats::ClockStats;
use sealog_store::world::World;
use sealog_store::{HEAD_AHEAD_MS, Store, StoreError};
use sealog_testing::postgres::{Database, cluster};
use sealog_testing::*;

const YEARS_MS: i64 = 2 * 365 * 24 * 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Where a store lives that can be opened again and again.
trait Home {
    fn open(&self, world: &Arc<StillWorld>, strict: bool) -> Box<dyn Store>;
}

impl Home for tempfile::TempDir {
    fn open(&self, world: &Arc<StillWorld>, strict: bool) -> Box<dyn Store> {
        Box::new(embedded_store(self, world, strict))
    }
}

impl Home for Database {
    fn open(&self, world: &Arc<StillWorld>, strict: bool) -> Box<dyn Store> {
        Box::new(PostgresStore::open(&self.url(), &of_world(world, strict)).unwrap())
    }
}

fn embedded_store(dir: &tempfile::TempDir, world: &Arc<StillWorld>, strict: bool) -> EmbeddedStore {
    let guarded = GuardedWorld::new(Arc::clone(world) as _, strict);
    // No thread looks at the clock by itself.
    let tick = Duration::from_secs(3600);
    let options = embedded::Options { tick, world: Arc::new(guarded), ..small(world) };
    EmbeddedStore::open(dir.path(), &options).unwrap()
}

fn of_world(world: &Arc<StillWorld>, strict: bool) -> postgres::Options {
    postgres::Options { clock_strict: strict, ..on_postgres(world) }
}

/// Runs each rule on both stores.
macro_rules! on_both {
    ($($rule:ident)*) => {
        mod embedded_store {
            $(#[test] fn $rule() { super::$rule(&tempfile::tempdir().unwrap()); })*
        }
        mod on_postgres {
            $(#[test] fn $rule() { super::$rule(&super::cluster().database()); })*
        }
    };
}

on_both! {
    a_leap_that_is_taken_back_within_ten_minutes_leaves_no_trace_in_the_chain
    a_leap_that_is_not_taken_back_is_believed_after_ten_minutes
    a_strict_store_refuses_a_leap_that_is_not_taken_back_until_the_clock_is_sane_again
    a_leap_that_is_held_back_frees_no_idempotency_key
    a_clock_behind_the_last_event_at_start_is_a_finding_and_one_ahead_is_believed
}

fn time_of(store: &dyn Store, log_id: Ulid) -> u64 {
    assert_eq!(get(store, live(), log_id).unwrap().sealed.timestamp_ms(), log_id.timestamp_ms());
    log_id.timestamp_ms()
}

fn append_one(store: &dyn Store) -> u64 {
    time_of(store, append(store, live(), vec![login("a")]).log_ids[0])
}

fn clock_of(store: &dyn Store) -> ClockStats {
    wait(store.stats()).unwrap().clock
}

fn a_leap_that_is_taken_back_within_ten_minutes_leaves_no_trace_in_the_chain(home: &dyn Home) {
    let world = StillWorld::new();
    let store = home.open(&world, false);
    assert_eq!(append_one(&*store), MORNING_MS);
    world.advance(1000);
    world.leap(YEARS_MS);
    assert_eq!(append_one(&*store), MORNING_MS + 1000, "the time that the boot clock implies");
    assert_eq!((store.ready(), store.notices()), (Ok(()), vec![HELD_NOTICE]));
    assert_eq!(clock_of(&*store), ClockStats { leapt: true, leaps: 1 });
    world.advance(HOLD_MS - 1);
    assert_eq!(append_one(&*store), MORNING_MS + HOLD_MS + 999);
    world.leap(-YEARS_MS);
    world.advance(1);
    assert_eq!(append_one(&*store), MORNING_MS + HOLD_MS + 1000);
    assert_eq!(store.notices(), Vec::<&str>::new());
    assert_eq!(clock_of(&*store), ClockStats { leapt: false, leaps: 1 });
    assert_valid(&*store, live(), 4);
}

fn a_leap_that_is_not_taken_back_is_believed_after_ten_minutes(home: &dyn Home) {
    let world = StillWorld::new();
    let store = home.open(&world, false);
    append_one(&*store);
    world.leap(YEARS_MS);
    append_one(&*store);
    world.advance(HOLD_MS);
    assert_eq!(append_one(&*store), (MORNING_MS + HOLD_MS).saturating_add_signed(YEARS_MS));
    assert_eq!((store.ready(), store.notices()), (Ok(()), Vec::new()));
    assert_valid(&*store, live(), 3);
}

fn a_strict_store_refuses_a_leap_that_is_not_taken_back_until_the_clock_is_sane_again(home: &dyn Home) {
    let world = StillWorld::new();
    let store = home.open(&world, true);
    append_one(&*store);
    world.leap(YEARS_MS);
    // Nobody loses an event to a leap that may still be taken back.
    append_one(&*store);
    assert_eq!(store.ready(), Ok(()));
    world.advance(HOLD_MS);
    for drafts in [
        vec![login("b")],
        vec![draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(9000)))],
    ] {
        assert_eq!(try_append(&*store, live(), drafts), Err(StoreError::ClockLeapt));
    }
    assert_eq!(store.ready(), Err(StoreError::ClockLeapt));
    assert_eq!(clock_of(&*store), ClockStats { leapt: true, leaps: 1 });
    world.leap(-YEARS_MS);
    assert_eq!(append_one(&*store), MORNING_MS + HOLD_MS);
    assert_eq!(store.ready(), Ok(()));
    assert_valid(&*store, live(), 3);
}

fn a_leap_that_is_held_back_frees_no_idempotency_key(home: &dyn Home) {
    let world = StillWorld::new();
    let store = home.open(&world, false);
    let once = |actor: &str| append_once(&*store, live(), vec![login(actor)], key("k", "b"), Ulid(9));
    let Outcome::Sealed(receipt) = once("a") else { panic!("a fresh key") };
    world.leap(YEARS_MS);
    assert_eq!(once("a"), Outcome::Replayed(receipt.clone()));
    // Used during the leap, it counts for 24 hours of the time that went by, neither more nor less.
    let during = |store: &dyn Store| append_once(store, live(), vec![login("c")], key("l", "c"), Ulid(8));
    let Outcome::Sealed(second) = during(&*store) else { panic!("a fresh key") };
    world.leap(-YEARS_MS);
    world.advance(DAY_MS - 1);
    assert_eq!(during(&*store), Outcome::Replayed(second));
    world.advance(1);
    assert!(matches!(during(&*store), Outcome::Sealed(_)));
}

fn a_clock_behind_the_last_event_at_start_is_a_finding_and_one_ahead_is_believed(home: &dyn Home) {
    let world = StillWorld::new();
    let open = || home.open(&world, true);
    append_one(&*open());
    for (by_ms, found) in [(HEAD_AHEAD_MS, false), (HEAD_AHEAD_MS + 1, true), (3 * DAY_MS, true)] {
        world.set(MORNING_MS - by_ms);
        let store = open();
        assert_eq!(wait(store.stats()).unwrap().findings, u64::from(found));
        assert_eq!((store.ready(), append_one(&*store)), (Ok(()), MORNING_MS), "never refused");
    }
    // The machine was off.
    world.set(MORNING_MS.saturating_add_signed(YEARS_MS));
    let store = open();
    let findings = wait(store.stats()).unwrap().findings;
    assert_eq!((findings, store.ready(), store.notices()), (0, Ok(()), vec![]));
    assert_eq!(append_one(&*store), MORNING_MS.saturating_add_signed(YEARS_MS));
}

#[test]
fn the_finding_says_how_far_a_clock_is_behind_and_of_which_chain() {
    let (dir, world, database) = (tempfile::tempdir().unwrap(), StillWorld::new(), cluster().database());
    append_one(&embedded_store(&dir, &world, false));
    append_one(&*database.open(&world, false));
    let by_ms = 3 * DAY_MS;
    world.set(MORNING_MS - by_ms);
    let found: Vec<Finding> =
        embedded_store(&dir, &world, false).findings().into_iter().map(|(_, finding)| finding).collect();
    assert_eq!(found, [Finding::ClockBehind { chains: 1, furthest: live(), by_ms }]);
    let store = PostgresStore::open(&database.url(), &of_world(&world, false)).unwrap();
    assert_eq!(store.clock_behind(), Some(ClockBehind { chains: 1, furthest: live(), by_ms }));
}

/// The database's own clock, moved by a function that stands before the real one in the search path.
#[test]
fn on_postgresql_it_is_the_databases_clock_that_is_guarded() {
    let (world, database) = (StillWorld::new(), cluster().database());
    for sql in [
        "CREATE SCHEMA leaping",
        "CREATE TABLE leaping.clock AS SELECT interval '0' AS ahead",
        "CREATE FUNCTION leaping.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
         'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM leaping.clock)'",
        &format!("ALTER DATABASE {} SET search_path = leaping, pg_catalog", database.name),
    ] {
        database.sql(sql);
    }
    let options = postgres::Options { time: Time::OfDatabase, ..of_world(&world, false) };
    let store = PostgresStore::open(&database.url(), &options).unwrap();
    let begun = append_one(&store);
    let real_ms = sealog_store::world::SystemWorld.now_ms();
    assert!(begun.abs_diff(real_ms) < DAY_MS, "{begun} is not the time of day, {real_ms}");
    database.sql("UPDATE leaping.clock SET ahead = interval '2 years'");
    assert!(append_one(&store) - begun < DAY_MS);
    assert_eq!((store.ready(), store.notices()), (Ok(()), vec![HELD_NOTICE]));
    world.advance(HOLD_MS);
    assert!(append_one(&store) - begun > 700 * DAY_MS);
    assert_eq!(store.notices(), Vec::<&str>::new());
}

/// Nobody appends: `/readyz` tells all the same, and the ten minutes begin when the clock leaps.
#[test]
fn a_node_that_is_idle_sees_the_databases_clock_leap() {
    let (world, database) = (StillWorld::new(), cluster().database());
    let store = database.open(&world, true);
    let becomes = |what: &str, wanted: Result<(), StoreError>, notices: &[&str]| {
        eventually(what, || store.ready() == wanted && store.notices() == notices);
    };
    world.leap(YEARS_MS);
    becomes("held back", Ok(()), &[HELD_NOTICE]);
    world.advance(HOLD_MS);
    becomes("red", Err(StoreError::ClockLeapt), &[]);
    world.leap(-YEARS_MS);
    becomes("as before", Ok(()), &[]);
}
