//! A disk without room: what is there can be read, and the store goes on by itself when there is room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use sealog_core::id::Mode;
use sealog_store::embedded::Finding;
use sealog_store::{Store, StoreError};
use sealog_testing::sim::Op;
use sealog_testing::*;

use super::stage::*;

#[test]
fn a_start_without_room_for_a_segment_still_shows_every_event() {
    for (events, killed) in [(50, false), (50, true), (400, true)] {
        let stage = Stage::new();
        let store = stage.open();
        let shown = append_with_keys(&stage, &store, events);
        let stage = if killed { stage.killed() } else { stage };
        drop(store);
        stage.disk.watch(|call| if call.is(Op::Create, "live/next.seg") { Err(full()) } else { Ok(()) });
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            assert!(matches!(found[..], [Finding::NoRoom { .. }]), "{found:?}");
            assert_read_only(&store, &shown);
        }
        stage.disk.unwatch();
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("next")]);
        assert_valid(&store, live(), u64::from(events) + 1);
    }
}

#[test]
fn a_start_on_a_full_disk_shows_every_event_although_the_last_segment_is_empty() {
    for started_once_more in [false, true] {
        let stage = Stage::new();
        let store = stage.open();
        // The other log never had an event, and after one more start the last segment of this one has none
        // either.
        let shown = append_with_keys(&stage, &store, 50);
        drop(store);
        if started_once_more {
            drop(stage.open());
        }
        stage.disk.watch(|call| if call.is(Op::Create, "next.seg") { Err(full()) } else { Ok(()) });
        for _ in 0..2 {
            let store = stage.try_open(&stage.options()).expect("a store that can be read");
            let found = store.findings();
            let modes: Vec<Mode> = found.iter().map(|(mode, _)| *mode).collect();
            assert_eq!(modes, [Mode::Live, Mode::Test], "{found:?}");
            let no_room = |(_, finding): &(Mode, Finding)| matches!(finding, Finding::NoRoom { .. });
            assert!(found.iter().all(no_room), "{found:?}");
            assert_read_only(&store, &shown);
        }
        stage.disk.unwatch();
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("next")]);
        assert_valid(&store, live(), 51);
    }
}

#[test]
fn a_mark_that_cannot_be_written_makes_a_store_that_can_be_read() {
    let stage = Stage::new();
    let receipt = append(&stage.open(), live(), vec![login("a")]);
    for no_room in [false, true, false] {
        stage.disk.watch(move |call| match call.is(Op::Create, "live/mark.tmp") {
            true if no_room => Err(full()),
            true => Err(unreadable()),
            false => Ok(()),
        });
        let store = stage.open();
        let found = findings(&store);
        let refused = try_append(&store, live(), vec![login("x")]).unwrap_err();
        assert_eq!(store.ready(), Err(refused.clone()));
        match (no_room, &found[..], refused) {
            (true, [Finding::NoRoom { .. }], StoreError::NoRoom) => {}
            (false, [Finding::ReadOnly { .. }], StoreError::Poisoned(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(get(&store, live(), receipt.log_ids[0]).is_some());
        assert_valid(&store, live(), 1);
    }
    assert!(stage.segments().len() <= 2, "{:?}", stage.segments());
    stage.disk.unwatch();
    let store = stage.open();
    assert_eq!(findings(&store), []);
    append(&store, live(), vec![login("b")]);
    assert_valid(&store, live(), 2);
}

#[test]
fn room_that_comes_between_the_look_and_the_verdict_is_seen() {
    const CAUSE: &str = "no room, as room_that_comes_between_the_look_and_the_verdict_is_seen has planned";
    let stage = Stage::new();
    let (is_full, made, failed, synced) =
        (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default(), Arc::default());
    let counts: [Arc<AtomicUsize>; 3] = [Arc::clone(&made), Arc::clone(&failed), Arc::clone(&synced)];
    let filling = Arc::clone(&is_full);
    stage.disk.watch(move |call| {
        let [made, failed, synced] = &counts;
        if call.is(Op::Create, "live/next.seg") {
            if filling.load(SeqCst) {
                failed.fetch_add(1, SeqCst);
                return Err(io::Error::new(io::ErrorKind::StorageFull, CAUSE));
            }
            made.fetch_add(1, SeqCst);
        }
        if call.is(Op::SyncDir, "live") {
            synced.fetch_add(1, SeqCst);
        }
        Ok(())
    });
    let store = stage.open_ticking(20);
    append(&store, live(), vec![big(40_000)]);
    eventually("the second segment is prepared", || made.load(SeqCst) == 2);
    is_full.store(true, SeqCst);
    append(&store, live(), vec![big(40_000)]);
    eventually("the third one cannot be", || failed.load(SeqCst) > 0);
    // Said by a writer that has looked, before it says so to others.
    let verdict = logs::at_error(&format!("cause={CAUSE:?}"), move || {
        let before = synced.load(SeqCst);
        is_full.store(false, SeqCst);
        eventually("there is room again", || synced.load(SeqCst) > before);
        // And the preparer has told everyone, which no call of the disk shows. If it has not yet, this tests
        // less and passes.
        std::thread::sleep(Duration::from_millis(50));
    });
    assert_eq!(try_append(&store, live(), vec![big(40_000)]), Err(StoreError::NoRoom));
    assert!(verdict.has_run());
    eventually("it is ready by itself", || store.ready().is_ok());
    append(&store, live(), vec![big(40_000)]);
    assert_valid(&store, live(), 3);
}
