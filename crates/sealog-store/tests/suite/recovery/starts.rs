//! Starts: every event is shown once, few files are open, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use sealog_core::event::StoredEvent;
use sealog_core::time::Month;
use sealog_store::counts::{Days, day_of};
use sealog_store::embedded::{EmbeddedStore, Finding, OpenError, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::sim::Op;
use sealog_testing::*;

use super::stage::*;

/// A chain of `before` + 2 events, the last but one of which was moved twice, without the segment that it was
/// moved to first.
fn move_a_group_twice(before: u64) -> (Stage, Vec<StoredEvent>) {
    // t0: a group is written. t1: a start moves it, and ends before its mark. t2: the next start moves it
    // again. t3: the segment of t1 is deleted, and with it the word that the first copy does not count.
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..=before {
        append(&store, live(), vec![login(&format!("x{n}"))]);
    }
    let stage = stage.killed();
    stage.disk.watch(|call| if call.is(Op::Create, "live/mark.tmp") { Err(unreadable()) } else { Ok(()) });
    drop(stage.open());
    stage.disk.unwatch();
    let store = stage.open();
    append(&store, live(), vec![login("y")]);
    assert_valid(&store, live(), before + 2);
    let shown = everything(&store, live());
    drop(store);
    assert_eq!(stage.segments(), [1, 2, 3]);
    stage.disk.delete(&log(2));
    (stage, shown)
}

#[test]
fn a_moved_group_is_shown_once_even_when_the_segment_that_moved_it_is_gone() {
    for before in [0, 3] {
        let (stage, shown) = move_a_group_twice(before);
        for _ in 0..2 {
            let store = stage.open();
            assert_eq!(findings(&store), [Finding::MissingSegments { first: 2, last: 2 }]);
            assert_valid(&store, live(), before + 2);
            assert_eq!(everything(&store, live()), shown);
            for event in &shown {
                assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event));
            }
        }
        append(&stage.open(), live(), vec![login("next")]);
        assert_valid(&stage.open(), live(), before + 3);
    }
}

#[test]
fn a_moved_group_counts_once_for_usage_even_when_the_segment_that_moved_it_is_gone() {
    for before in [0, 3] {
        let (stage, _) = move_a_group_twice(before);
        let usage = wait(stage.open().usage(live().tenant_id, Month::of(MORNING_MS))).unwrap();
        assert_eq!(usage, before + 2);
    }
}

#[test]
fn a_moved_group_is_counted_once_by_day_even_when_the_segment_that_moved_it_is_gone() {
    for before in [0, 3] {
        let (stage, _) = move_a_group_twice(before);
        let today = day_of(MORNING_MS);
        // Counted, then read from what was counted.
        for _ in 0..2 {
            let store = stage.open();
            let counts = || wait(store.counts(live(), Days::new(today, today + 1))).unwrap();
            eventually("everything is counted", || counts().uncounted == 0);
            assert_eq!(counts().events(), before + 2);
            assert_eq!(counts().total().actions.get("user.login"), before + 2);
        }
    }
}

#[test]
fn starting_again_and_again_leaves_few_segments() {
    for killed in [false, true] {
        let mut stage = Stage::new();
        append(&stage.open(), live(), vec![login("a")]);
        for _ in 0..150 {
            let store = stage.open();
            if killed {
                stage = stage.killed();
            }
            drop(store);
        }
        assert!(stage.segments().len() <= 3, "{:?}", stage.segments());
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("b")]);
        assert_valid(&store, live(), 2);
    }
}

#[test]
fn a_store_of_a_thousand_segments_has_few_files_open() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options {
        segment_bytes_first: 4 << 10,
        segment_bytes_max: 4 << 10,
        open_files_max: 200,
        allow_unsafe_storage: true,
        ..small(&StillWorld::new())
    };
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        links
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(dir.path()))
            .count()
    };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    for _ in 0..1000 {
        append(&store, live(), vec![big(2_000)]);
    }
    let segments = || {
        let names = std::fs::read_dir(dir.path().join("live")).unwrap();
        names.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|x| x == "log")).count()
    };
    assert!(segments() >= 1000, "{}", segments());
    // For each log at most 200 that are only read, and those that are written.
    assert!(open_files() < 250, "while writing: {}", open_files());
    drop(store);
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 1000);
    assert_eq!(everything(&store, live()).len(), 1000);
    assert!(open_files() < 250, "after a start: {}", open_files());
}

#[test]
fn a_failed_open_leaves_no_thread_behind_that_writes() {
    let stage = Stage::new();
    let (made, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    stage.disk.watch(move |call| {
        if call.is(Op::List, "test") {
            eventually("a segment is being prepared", || made.load(SeqCst) == 2);
            fails.store(true, SeqCst);
            return Err(unreadable());
        }
        if call.is(Op::Create, "live/next.seg") {
            made.fetch_add(1, SeqCst);
        } else if call.path.ends_with("live/next.seg") && made.load(SeqCst) == 2 {
            // The thread that prepares segments is at it when the open fails.
            eventually("the open fails", || fails.load(SeqCst));
        }
        Ok(())
    });
    let options = stage.options();
    let failed = stage.try_open(&options);
    assert!(matches!(failed, Err(OpenError::Io { .. })), "{failed:?}");
    assert_eq!(Arc::strong_count(&options.disk), 1, "someone still has the disk");
    stage.disk.unwatch();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 1);
}

#[test]
fn a_stray_file_with_a_large_number_is_left_alone() {
    let stage = Stage::new();
    drop(stage.open());
    let stray = live_file("20261115.log");
    stage.disk.put(&stray, b"hello\n");
    for start in 1..=3 {
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("a")]);
        assert_valid(&store, live(), start);
    }
    assert_eq!(stage.read(&stray), b"hello\n");
    assert_eq!(stage.segments(), [1, 2, 3, 20_261_115]);
}

#[test]
fn a_stray_file_where_the_next_segment_belongs_is_never_overwritten_and_events_wait_until_it_is_gone() {
    let stage = Stage::new();
    let store = stage.open();
    let stray = live_file("00000003.log");
    stage.disk.put(&stray, b"hello\n");
    let send = || try_append(&store, live(), vec![login("a"); 10]);
    let sent = (0..1000).map_while(|_| send().ok()).count() as u64;
    assert_eq!(send(), Err(StoreError::NoRoom));
    assert_eq!(stage.read(&stray), b"hello\n");
    assert_eq!(stage.segments(), [1, 2, 3]);
    assert_valid(&store, live(), 10 * sent);
    stage.disk.delete(&stray);
    eventually("events are accepted again", || send().is_ok());
    assert_valid(&store, live(), 10 * sent + 10);
    drop(store);
    let store = stage.open();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 10 * sent + 10);
}
