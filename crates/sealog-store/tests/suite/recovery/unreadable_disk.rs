//! A disk that cannot be read says nothing about what is on it: never damage, never a shorter list.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::id::Ulid;
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::{List, Receipt, Store, StoreError};
use sealog_testing::sim::{DIR, Op, SimDisk};
use sealog_testing::*;

use super::stage::*;

/// Everything that needs event `hidden` fails, and says nothing of it; everything else is answered as ever.
#[track_caller]
fn assert_one_cannot_be_read(store: &EmbeddedStore, receipts: &[Receipt], hidden: u64) {
    let events = receipts.len() as u64;
    let failed = |what: &str, outcome: Result<(), StoreError>| {
        assert!(matches!(outcome, Err(StoreError::Read(_))), "{what}: {outcome:?}");
    };
    let page = |before_seq, limit| {
        let list = List { filter: Filter::default(), before_seq, limit, bytes_max: 64 << 20 };
        wait(store.list(live(), list))
    };
    failed("a list", page(None, 10_000).map(drop));
    let filtered = Filter { action: Some("\"user.login\"".into()), ..Filter::default() };
    let list = List { filter: filtered, before_seq: None, limit: 10_000, bytes_max: 64 << 20 };
    failed("a list with a filter", wait(store.list(live(), list)).map(drop));
    let above = usize::try_from(events - hidden).unwrap();
    assert_eq!(page(None, above).unwrap().items.len(), above, "a page that ends above it");
    let below = page(Some(hidden), 10_000).unwrap();
    assert_eq!(below.items.len() as u64, hidden - 1, "a page that begins below it");

    assert!(verify_window(store, live(), 1, hidden - 1).valid());
    assert!(verify_window(store, live(), hidden + 2, events).valid());
    failed("verification", wait(sealog_store::verify::whole(store, live())).map(drop));
    failed("an audit", wait(store.audit(vec![live()], Arc::default())).map(drop));
    let range = sealog_store::Range { from: 1, to: events, bytes_max: 64 << 20 };
    failed("a range", wait(store.range(live(), range)).map(drop));
    for (seq, receipt) in (1..).zip(receipts) {
        match wait(store.get(live(), receipt.log_ids[0])) {
            Ok(Some(event)) => assert_eq!(event.sealed.chain_seq, seq),
            other => {
                assert_eq!(seq, hidden);
                failed("a single read", other.map(drop));
            }
        }
    }
    assert!(!store.notices().is_empty(), "whoever watches is told");
    assert!(wait(store.stats()).unwrap().read_errors >= 4);
}

#[test]
fn a_disk_that_cannot_be_read_is_never_damage() {
    // Once under the header of a frame and the first bytes of its record, once under the text.
    for begin in [0, IN_TEXT] {
        let stage = Stage::new();
        let store = stage.open();
        let receipts: Vec<_> =
            (0..50).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
        drop(store);
        drop(stage.open());
        let bad = stage.frames(1)[40].at + begin;
        make_unreadable(&stage, bad..bad + 100);
        let store = stage.open();
        assert_eq!(findings(&store), []);
        assert_eq!(store.notices(), Vec::<&str>::new());
        assert_one_cannot_be_read(&store, &receipts, 41);
        append(&store, live(), vec![login("goes on")]);
        // It was never gone.
        make_readable(&stage);
        assert_valid(&store, live(), 51);
        assert_eq!(everything(&store, live()).len(), 51);
    }
}

#[test]
fn a_store_that_cannot_read_what_it_writes_is_not_ready_and_one_that_cannot_read_an_old_segment_is() {
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..50 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let bad = stage.frames(1)[40].at + IN_TEXT;
    make_unreadable(&stage, bad..bad + 100);
    let read = || wait(sealog_store::verify::whole(&store, live())).map(drop);
    assert_eq!(store.ready(), Ok(()), "nobody knows yet");
    assert!(matches!(read(), Err(StoreError::Read(_))));
    let unready = store.ready();
    assert!(matches!(&unready, Err(StoreError::Read(why)) if why.contains("segment 1 ")), "{unready:?}");
    assert!(matches!(&store.degraded()[..], [live] if live.contains("segment 1 cannot be read")));
    drop(store);
    // The same place in a segment that nothing is written to any more.
    make_readable(&stage);
    let store = stage.open();
    while stage.segments().len() < 3 {
        append(&store, live(), vec![big(1000)]);
    }
    make_unreadable(&stage, bad..bad + 100);
    let read = wait(sealog_store::verify::whole(&store, live())).map(drop);
    assert!(matches!(read, Err(StoreError::Read(_))));
    assert_eq!((store.ready(), store.degraded().len()), (Ok(()), 1));
    append(&store, live(), vec![login("goes on")]);
}

#[test]
fn a_start_that_cannot_read_a_sector_finds_no_damage_and_hides_nothing() {
    const PAGE: usize = 4096;
    let stage = Stage::new();
    let size = 1 << 20;
    let options = Options { segment_bytes_first: size, segment_bytes_max: size, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    append(&store, other(2), vec![login("before")]);
    let receipts: Vec<_> = (0..20).map(|_| append(&store, live(), vec![big(3 * PAGE)])).collect();
    drop(store);
    let frame = stage.frames(1)[13];
    let bad = (frame.at + FRAME_HEADER).next_multiple_of(PAGE);
    make_unreadable(&stage, bad..bad + PAGE);
    let segments = stage.segments();
    let mark = stage.read(&live_file("mark"));
    for _ in 0..3 {
        let store = stage.try_open(&options).unwrap();
        assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
        assert_one_cannot_be_read(&store, &receipts, 13);
        // The mark knows that the other chain has nothing in that place.
        assert_valid(&store, other(2), 1);
        // An error of the disk says nothing about what is on it, so nothing is built on it.
        assert!(matches!(try_append(&store, live(), vec![login("x")]), Err(StoreError::Poisoned(_))));
        drop(store);
        assert_eq!(stage.segments(), segments);
        assert_eq!(stage.read(&live_file("mark")), mark);
    }
    // The disk gives everything again: the starts in between have left no trace.
    make_readable(&stage);
    let store = stage.try_open(&options).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 20);
    append(&store, live(), vec![login("goes on")]);
    append(&store, other(2), vec![login("goes on")]);
}

#[test]
fn a_read_error_at_start_is_neither_damage_nor_a_torn_tail() {
    // The header of the last segment, and events in it that no mark speaks for.
    for sector in [0..128, 1000..100_000] {
        let stage = Stage::new();
        let store = stage.open();
        for n in 0..10 {
            append(&store, live(), vec![login(&format!("u{n}"))]);
        }
        let killed = stage.killed();
        drop(store);
        make_unreadable(&killed, sector);
        let store = killed.open();
        assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
        assert!(try_append(&store, live(), vec![login("x")]).is_err());
        // How the chain ends is not known, nor which other chains there are.
        let list = List { filter: Filter::default(), before_seq: None, limit: 10, bytes_max: 1 << 20 };
        for chain in [live(), other(9)] {
            assert!(matches!(wait(store.list(chain, list.clone())), Err(StoreError::Read(_))));
            assert!(matches!(wait(store.head(chain)), Err(StoreError::Read(_))));
            assert!(matches!(wait(store.get(chain, Ulid(1))), Err(StoreError::Read(_))));
            let verified = wait(sealog_store::verify::whole(&store, chain));
            assert!(matches!(verified, Err(StoreError::Read(_))), "{verified:?}");
            let audited = wait(store.audit(vec![chain], Arc::default()));
            assert!(matches!(audited, Err(StoreError::Read(_))), "{audited:?}");
        }
        assert!(matches!(wait(store.heads()), Err(StoreError::Read(_))));
        let usage = wait(store.usage(live().tenant_id, Month::of(MORNING_MS)));
        assert!(matches!(usage, Err(StoreError::Read(_))));
        drop(store);
        make_readable(&killed);
        let store = killed.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), 10);
        append(&store, live(), vec![login("goes on")]);
    }
}

#[test]
fn without_descriptors_a_read_fails_and_neither_leaves_out_events_nor_calls_them_damaged() {
    let disk = SimDisk::new();
    let options = Options { disk: Arc::new(disk.clone()), open_files_max: 1, ..small(&StillWorld::new()) };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let mut receipts = Vec::new();
    for number in 0..1000 {
        receipts.push(append(&store, live(), vec![login(&format!("actor {number}"))]));
    }
    let names = || disk.file_names(&Path::new(DIR).join("live"));
    let indexed = |number: u32| names().contains(&format!("{number:08}.idx"));
    eventually("two segments are full and have their index", || indexed(1) && indexed(2));
    assert_valid(&store, live(), 1000);
    disk.watch(|call| {
        let segment = call.op == Op::Open && call.path.extension().is_some_and(|ending| ending == "log");
        // Too many open files.
        if segment { Err(io::Error::from_raw_os_error(24)) } else { Ok(()) }
    });
    let list = List { filter: Filter::default(), before_seq: None, limit: 2000, bytes_max: 64 << 20 };
    let failed = |outcome: Result<(), StoreError>| {
        assert!(matches!(outcome, Err(StoreError::Read(_))), "{outcome:?}");
    };
    failed(wait(store.list(live(), list.clone())).map(drop));
    failed(wait(sealog_store::verify::whole(&store, live())).map(drop));
    failed(wait(store.audit(vec![live()], Arc::default())).map(drop));
    // One of the two first segments may be the file that is open.
    let firsts = [&receipts[0], &receipts[receipts.len() / 3]].map(|receipt| receipt.log_ids[0]);
    let read = firsts.map(|log_id| wait(store.get(live(), log_id)));
    assert!(read.iter().any(Result::is_err) && !read.iter().any(|read| matches!(read, Ok(None))), "{read:?}");
    assert!(!read.iter().any(|read| matches!(read, Err(StoreError::Damaged { .. }))), "{read:?}");
    disk.unwatch();
    assert_eq!(wait(store.list(live(), list)).unwrap().items.len(), 1000);
    assert_valid(&store, live(), 1000);
}
