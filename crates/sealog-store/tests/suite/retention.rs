//! Old test events in PostgreSQL: what may be deleted, by whom, and what nodes make of it.

use std::sync::Arc;
use std::time::Duration;

use sealog_core::id::{ChainId, Mode};
use sealog_core::query::Filter;
use sealog_store::postgres::{Options, PostgresStore};
use sealog_store::{DropStep, Store};
use sealog_testing::postgres::{Database, cluster};
use sealog_testing::*;

/// Everything is older.
const FAR: u64 = u64::MAX >> 8;

struct Stage {
    database: Database,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { database: cluster().database(), world: StillWorld::new() }
    }

    fn open(&self) -> PostgresStore {
        PostgresStore::open(&self.database.url(), &on_postgres(&self.world)).unwrap()
    }
}

fn test() -> ChainId {
    chain(1, 1, Mode::Test)
}

fn fill(store: &dyn Store, chain: ChainId, events: u64) {
    for n in 0..events {
        append(store, chain, vec![login(&format!("u{n}"))]);
    }
}

fn drop_all(store: &dyn Store) -> u64 {
    let mut events = 0;
    loop {
        let DropStep { events: dropped, more } = wait(store.drop_test_events(FAR)).unwrap();
        events += dropped;
        if !more {
            return events;
        }
    }
}

fn first_seq(store: &dyn Store, chain: ChainId) -> u64 {
    wait(store.head(chain)).unwrap().first_seq()
}

#[test]
fn a_live_chain_is_not_dropped_however_its_row_is_changed_and_whoever_calls_the_function() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 10);
    let call = "SELECT count(sealog.drop_test_events(chain_id, 9000000000000000, 9)) FROM sealog.chains";
    assert_eq!(stage.database.sql(call), "0");
    // A node may write to this row.
    stage.database.sql("UPDATE sealog.chains SET mode = 'test'");
    assert_eq!(stage.database.sql(call), "0");
    let _ = wait(store.drop_test_events(FAR));
    assert_eq!(stage.database.sql("SELECT count(*) FROM sealog.events"), "10");
    stage.database.sql("UPDATE sealog.chains SET project_id = gen_random_uuid()");
    assert_eq!(stage.database.sql(call), "0");
    assert_eq!(stage.database.sql("SELECT count(*) FROM sealog.events"), "10");
}

#[test]
fn the_last_event_of_a_chain_stays_and_what_led_to_the_others_goes_with_them() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, test(), 30);
    let indexed = || stage.database.sql("SELECT count(DISTINCT chain_seq) FROM sealog.event_fields");
    eventually("members of metadata are indexed", || indexed() == "30");
    assert_eq!(drop_all(&store), 29);
    assert_eq!((first_seq(&store, test()), indexed().as_str()), (30, "1"));
    assert_eq!(stage.database.sql("SELECT count(*) FROM sealog.events"), "1");
    append(&store, test(), vec![login("next")]);
    assert_eq!(verify(&store, test()).checked, 2);
    drop(store);
    let store = stage.open();
    assert_eq!(drop_all(&store), 1);
    assert_eq!(verify(&store, test()).broken, None);
}

#[test]
fn a_step_has_at_most_1000_events_of_a_chain() {
    let stage = Stage::new();
    let store = stage.open();
    let drafts: Vec<_> = (0..100).map(|n| login(&n.to_string())).collect();
    for _ in 0..23 {
        append(&store, test(), drafts.clone());
    }
    let step = || wait(store.drop_test_events(FAR)).unwrap();
    let steps = [step(), step(), step(), step()].map(|step| (step.events, step.more));
    assert_eq!(steps, [(1000, true), (1000, true), (299, true), (0, false)]);
}

#[test]
fn nothing_behind_a_gap_is_dropped_and_the_gap_stays_found() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, test(), 10);
    stage.database.sql("DELETE FROM sealog.events WHERE chain_seq = 4");
    assert_eq!(drop_all(&store), 3);
    assert_eq!(first_seq(&store, test()), 4);
    assert_eq!(verify(&store, test()).broken.map(|broken| broken.at), Some(5));
    assert_eq!(list(&store, test(), &Filter::default(), None, 20).len(), 6);
}

#[test]
fn an_event_more_that_somebody_deletes_is_found() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, test(), 10);
    stage.world.advance(1);
    fill(&store, test(), 5);
    // The ten of before, and not those that came later.
    while wait(store.drop_test_events(MORNING_MS + 1)).unwrap().more {}
    assert_eq!(first_seq(&store, test()), 11);
    assert_eq!(verify(&store, test()).broken, None);
    stage.database.sql("DELETE FROM sealog.events WHERE chain_seq = 11");
    assert_eq!(verify(&store, test()).broken.map(|broken| broken.at), Some(12));
}

#[test]
fn a_node_that_has_acknowledged_what_was_dropped_has_lost_nothing() {
    let stage = Stage::new();
    let marks = tempfile::tempdir().unwrap();
    let marked = || Options {
        mark_dir: Some(marks.path().to_owned()),
        tick: Duration::from_millis(20),
        ..on_postgres(&stage.world)
    };
    let open = || PostgresStore::open(&stage.database.url(), &marked()).unwrap();
    let first = open();
    fill(&first, test(), 3);
    let second = stage.open();
    fill(&second, test(), 5);
    assert!(drop_all(&second) >= 3);
    // It knows the third event, which others have passed.
    append(&first, test(), vec![login("first")]);
    assert_eq!(first.findings(), []);
    fill(&second, test(), 2);
    drop(first);
    drop_all(&second);
    let first = open();
    assert_eq!(first.findings(), []);
    append(&first, test(), vec![login("again")]);
    assert_eq!(verify(&first, test()).broken, None);
}
