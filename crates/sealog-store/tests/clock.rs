//! A wall clock that leaps under a running store, and one that is wrong at start.

mod support;

use std::sync::Arc;
use std::time::Duration;

use sealog_core::id::Ulid;
use sealog_store::clock::{GuardedWorld, HELD_NOTICE, HOLD_MS};
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::stats::ClockStats;
use sealog_store::{HEAD_AHEAD_MS, Store, StoreError};
use support::*;

const YEARS_MS: i64 = 2 * 365 * 24 * 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn options(world: &Arc<StillWorld>, strict: bool) -> Options {
    let world: Arc<StillWorld> = Arc::clone(world);
    let guarded = GuardedWorld::new(Arc::clone(&world) as _, strict);
    // No thread looks at the clock by itself.
    Options { tick: Duration::from_secs(3600), world: Arc::new(guarded), ..small(&world) }
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

#[test]
fn a_leap_that_is_taken_back_within_ten_minutes_leaves_no_trace_in_the_chain() {
    let (dir, world) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let store = EmbeddedStore::open(dir.path(), &options(&world, false)).unwrap();
    assert_eq!(append_one(&store), MORNING_MS);
    world.advance(1000);
    world.leap(YEARS_MS);
    assert_eq!(append_one(&store), MORNING_MS + 1000, "the time that the boot clock implies");
    assert_eq!((store.ready(), store.notices()), (Ok(()), vec![HELD_NOTICE]));
    assert_eq!(clock_of(&store), ClockStats { leapt: true, leaps: 1 });
    world.advance(HOLD_MS - 1);
    assert_eq!(append_one(&store), MORNING_MS + HOLD_MS + 999);
    world.leap(-YEARS_MS);
    world.advance(1);
    assert_eq!(append_one(&store), MORNING_MS + HOLD_MS + 1000);
    assert_eq!(store.notices(), Vec::<&str>::new());
    assert_eq!(clock_of(&store), ClockStats { leapt: false, leaps: 1 });
    assert_valid(&store, live(), 4);
}

#[test]
fn a_leap_that_is_not_taken_back_is_believed_after_ten_minutes() {
    let (dir, world) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let store = EmbeddedStore::open(dir.path(), &options(&world, false)).unwrap();
    append_one(&store);
    world.leap(YEARS_MS);
    append_one(&store);
    world.advance(HOLD_MS);
    assert_eq!(append_one(&store), (MORNING_MS + HOLD_MS).saturating_add_signed(YEARS_MS));
    assert_eq!((store.ready(), store.notices()), (Ok(()), Vec::new()));
    assert_valid(&store, live(), 3);
}

#[test]
fn a_strict_store_refuses_a_leap_that_is_not_taken_back_until_the_clock_is_sane_again() {
    let (dir, world) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let store = EmbeddedStore::open(dir.path(), &options(&world, true)).unwrap();
    append_one(&store);
    world.leap(YEARS_MS);
    // Nobody loses an event to a leap that may still be taken back.
    append_one(&store);
    assert_eq!(store.ready(), Ok(()));
    world.advance(HOLD_MS);
    assert_eq!(store.ready(), Err(StoreError::ClockLeapt));
    for drafts in [
        vec![login("b")],
        vec![draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(9000)))],
    ] {
        assert_eq!(try_append(&store, live(), drafts), Err(StoreError::ClockLeapt));
    }
    assert_eq!(clock_of(&store), ClockStats { leapt: true, leaps: 1 });
    world.leap(-YEARS_MS);
    assert_eq!(store.ready(), Ok(()));
    assert_eq!(append_one(&store), MORNING_MS + HOLD_MS);
    assert_valid(&store, live(), 3);
}

#[test]
fn a_leap_that_is_held_back_frees_no_idempotency_key() {
    let (dir, world) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let store = EmbeddedStore::open(dir.path(), &options(&world, false)).unwrap();
    let once = |actor: &str| append_once(&store, live(), vec![login(actor)], key("k", "b"), Ulid(9));
    let Outcome::Sealed(receipt) = once("a") else { panic!("a fresh key") };
    world.leap(YEARS_MS);
    assert_eq!(once("a"), Outcome::Replayed(receipt.clone()));
    // Used during the leap, it counts for 24 hours of the time that went by, neither more nor less.
    let during = |store: &dyn Store| append_once(store, live(), vec![login("c")], key("l", "c"), Ulid(8));
    let Outcome::Sealed(second) = during(&store) else { panic!("a fresh key") };
    world.leap(-YEARS_MS);
    world.advance(DAY_MS - 1);
    assert_eq!(during(&store), Outcome::Replayed(second));
    world.advance(1);
    assert!(matches!(during(&store), Outcome::Sealed(_)));
}

#[test]
fn a_clock_behind_the_last_event_at_start_is_a_finding_and_one_ahead_is_believed() {
    let (dir, world) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let open = || EmbeddedStore::open(dir.path(), &options(&world, true)).unwrap();
    append_one(&open());
    for (by_ms, found) in [(HEAD_AHEAD_MS, false), (HEAD_AHEAD_MS + 1, true), (3 * DAY_MS, true)] {
        world.set(MORNING_MS - by_ms);
        let store = open();
        let findings: Vec<Finding> = store.findings().into_iter().map(|(_, finding)| finding).collect();
        let expected = Finding::ClockBehind { chains: 1, furthest: live(), by_ms };
        assert_eq!(findings, if found { vec![expected] } else { vec![] });
        assert_eq!(wait(store.stats()).unwrap().findings, u64::from(found));
        assert_eq!((store.ready(), append_one(&store)), (Ok(()), MORNING_MS), "never refused");
    }
    // The machine was off.
    world.set(MORNING_MS.saturating_add_signed(YEARS_MS));
    let store = open();
    assert_eq!((store.findings(), store.ready(), store.notices()), (vec![], Ok(()), vec![]));
    assert_eq!(append_one(&store), MORNING_MS.saturating_add_signed(YEARS_MS));
}
