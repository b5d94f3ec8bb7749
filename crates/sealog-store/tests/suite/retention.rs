//! Old test events in PostgreSQL: what may be deleted, by whom, and what nodes make of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sealog_core::id::{ChainId, Mode};
use sealog_core::query::Filter;
use sealog_core::verify::Verdict;
use sealog_store::postgres::{Options, PostgresStore};
use sealog_store::{DropStep, Store, StoreError};
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

/// Writes into the row of a chain that its events up to this one were dropped. A database of an earlier
/// version, or one whose owner means harm, has nothing against it.
fn say_dropped(stage: &Stage, chain: ChainId, seq: u64) {
    stage.database.sql(&format!(
        "ALTER TABLE sealog.chains DROP CONSTRAINT IF EXISTS dropped_of_a_test_chain;
         UPDATE sealog.chains c SET dropped_seq = {seq}, (dropped_log_id, dropped_hash) = (SELECT e.log_id, e.hash
             FROM sealog.events e WHERE e.chain_id = c.chain_id AND e.chain_seq <= {seq} ORDER BY e.chain_seq DESC LIMIT 1)
         WHERE mode = '{}'",
        chain.mode.as_str()
    ));
}

fn audited(store: &dyn Store, chain: ChainId) -> Verdict {
    wait(store.audit(vec![chain], Arc::new(AtomicU64::new(0)))).unwrap().remove(0)
}

#[test]
fn events_that_are_deleted_of_a_live_chain_are_missed_whatever_its_row_says_was_dropped() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 10);
    say_dropped(&stage, live(), 5);
    assert_eq!((first_seq(&store, live()), verify(&store, live()).checked), (1, 10));
    stage.database.sql("DELETE FROM sealog.events WHERE chain_seq <= 5");
    let verdict = verify(&store, live());
    assert_eq!((verdict.first_seq, verdict.broken.map(|broken| broken.at)), (1, Some(6)));
    assert_eq!(audited(&store, live()), verdict);
}

#[test]
fn a_tail_that_is_cut_off_a_live_chain_is_a_loss_whatever_its_row_says_was_dropped() {
    let stage = Stage::new();
    let marks = tempfile::tempdir().unwrap();
    let marked = || Options { mark_dir: Some(marks.path().to_owned()), ..on_postgres(&stage.world) };
    let open = || PostgresStore::open(&stage.database.url(), &marked()).unwrap();
    let (first, second) = (open(), stage.open());
    fill(&second, live(), 9);
    fill(&first, live(), 1);
    say_dropped(&stage, live(), 10);
    stage.database.sql(
        "DELETE FROM sealog.events WHERE chain_seq > 5;
         UPDATE sealog.chains SET (chain_seq, log_id, hash) = (SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_seq = 5)",
    );
    let refused = Err(StoreError::HeadUnproven { chain: live() });
    assert_eq!(try_append(&first, live(), vec![login("on top")]), refused);
    drop(first);
    // By the mark, when it starts.
    stage
        .database
        .sql("UPDATE sealog.chains SET recorded_seq = NULL, recorded_log_id = NULL, recorded_hash = NULL");
    let first = open();
    let found: Vec<_> = first.findings().iter().map(|finding| finding.acknowledged.chain_seq).collect();
    assert_eq!(found, [10]);
    assert_eq!(verify(&first, live()).broken.map(|broken| broken.at), Some(6));
}

#[test]
fn nothing_is_dropped_beyond_the_head_of_a_chain_of_either_mode() {
    let stage = Stage::new();
    let store = stage.open();
    for chain in [live(), test()] {
        fill(&store, chain, 10);
        for seq in [10, 11, 1000] {
            say_dropped(&stage, chain, seq);
            let verdict = verify(&store, chain);
            assert_eq!((verdict.first_seq, verdict.checked, verdict.broken), (1, 10, None), "{seq}");
        }
        stage.database.sql(&format!(
            "DELETE FROM sealog.events WHERE chain_seq <= 5 AND chain_id = (SELECT chain_id FROM sealog.chains WHERE mode = '{}')",
            chain.mode.as_str()
        ));
        assert_eq!(verify(&store, chain).broken.map(|broken| broken.at), Some(6));
    }
}

#[test]
fn a_live_chain_whose_row_says_that_events_were_dropped_takes_none_and_is_named() {
    let stage = Stage::new();
    let other = chain(2, 1, Mode::Test);
    let store = stage.open();
    fill(&store, live(), 10);
    fill(&store, other, 10);
    drop_all(&store);
    drop(store);
    // Without the constraint that refuses it.
    say_dropped(&stage, live(), 5);
    let store = stage.open();
    let said = store.faults();
    let named = format!("live chain {} claims that its events up to 5 were deleted", live());
    assert!(said.len() == 1 && said[0].contains(&named), "{said:?}");
    assert_eq!(wait(store.stats()).unwrap().findings, 1);
    let refused = Err(StoreError::HeadUnproven { chain: live() });
    assert_eq!(try_append(&store, live(), vec![login("on top")]), refused);
    let accepted = wait(store.accept_loss(live(), "nothing was lost".into()));
    assert!(accepted.is_err(), "{accepted:?}");
    append(&store, other, vec![login("others go on")]);
    stage
        .database
        .sql("UPDATE sealog.chains SET dropped_seq = NULL, dropped_log_id = NULL, dropped_hash = NULL WHERE mode = 'live'");
    append(&store, live(), vec![login("again")]);
    assert_valid(&store, live(), 11);
    eventually("it is named no more", || store.faults().is_empty());
}

/// A node that has the chain to itself appends without a look at its row, in one message.
#[test]
fn a_forged_drop_stops_also_a_node_that_knows_the_head_of_the_chain() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 10);
    say_dropped(&stage, live(), 5);
    let refused = Err(StoreError::HeadUnproven { chain: live() });
    assert_eq!(try_append(&store, live(), vec![login("on top")]), refused);
    assert_eq!(stage.database.sql("SELECT count(*) FROM sealog.events"), "10");
}

#[test]
fn the_schema_refuses_a_drop_of_a_live_chain_and_one_beyond_the_head() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 10);
    fill(&store, test(), 10);
    let dropped = |what: &str| {
        let sql = format!("UPDATE sealog.chains SET dropped_log_id = log_id, dropped_hash = hash, {what}");
        stage.database.try_sql("owner", &sql).status.success()
    };
    for refused in [
        "dropped_seq = 5 WHERE mode = 'live'",
        "mode = 'test', dropped_seq = 5 WHERE mode = 'live'",
        "dropped_seq = 0 WHERE mode = 'test'",
        "dropped_seq = 10 WHERE mode = 'test'",
    ] {
        assert!(!dropped(refused), "{refused}");
    }
    assert!(dropped("dropped_seq = 9 WHERE mode = 'test'"));
}

#[test]
fn a_row_that_names_another_chain_than_its_id_is_an_error_and_its_chain_is_not_left_out() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 3);
    stage.database.sql("UPDATE sealog.chains SET mode = 'test'");
    let heads = wait(store.heads());
    assert!(matches!(heads, Err(StoreError::Read(_))), "{heads:?}");
}

#[test]
fn a_loss_of_all_that_was_kept_is_accepted_behind_what_was_dropped() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, test(), 10);
    assert_eq!(drop_all(&store), 9);
    let refused = wait(store.accept_loss(test(), "nothing was lost".into()));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    stage.database.sql("DELETE FROM sealog.events");
    assert_eq!(verify(&store, test()).broken.map(|broken| broken.at), Some(10));
    let receipt = wait(store.accept_loss(test(), "deleted".into())).unwrap();
    let event = get(&store, test(), receipt.log_ids[0]).unwrap();
    assert!(event.text.as_str().contains(r#""lost_from":10,"lost_to":10,"#), "{}", event.text.as_str());
    append(&store, test(), vec![login("on")]);
    let verdict = verify(&store, test());
    assert_eq!((verdict.first_seq, verdict.last_seq, verdict.broken), (10, 11, None));
}
