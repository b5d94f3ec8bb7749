//! Index files that are damaged, missing or cannot be written: no event is hidden, none is shown twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sealog_core::id::Ulid;
use sealog_core::query::Filter;
use sealog_core::verify::Reason;
use sealog_store::{List, Store, StoreError};
use sealog_testing::sim::Op;
use sealog_testing::*;

use super::stage::*;

#[test]
fn an_index_file_that_cannot_be_written_hides_no_event() {
    let stage = Stage::new();
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    stage.disk.watch(move |call| {
        if !call.is(Op::Create, "live/00000002.idx.tmp") {
            return Ok(());
        }
        count.fetch_add(1, SeqCst);
        Err(full())
    });
    let store = stage.open_ticking(5);
    let check = |sealed: &[Ulid]| {
        assert_valid(&store, live(), sealed.len() as u64);
        assert_eq!(everything(&store, live()).len(), sealed.len());
        for log_id in sealed {
            assert!(get(&store, live(), *log_id).is_some());
        }
    };
    let mut sealed = Vec::new();
    for n in 0..1000 {
        stage.world.advance(1);
        sealed.extend(append(&store, live(), vec![login(&format!("u{n}"))]).log_ids);
    }
    assert!(stage.segments().len() > 3, "{:?}", stage.segments());
    let so_far = failures.load(SeqCst);
    eventually("it was tried again with others waiting behind it", || failures.load(SeqCst) > so_far + 2);
    check(&sealed);
    stage.disk.unwatch();
    eventually("all of them are written", || {
        let written = |number: &u64| stage.disk.content(&log(*number).with_extension("idx")).is_some();
        stage.segments().iter().rev().skip(1).all(written)
    });
    check(&sealed);
}

#[test]
fn an_index_that_is_built_again_shows_each_event_once() {
    let stage = Stage::new();
    let store = stage.open();
    let (mut of_live, mut of_other) = (Vec::new(), Vec::new());
    for n in 0..40 {
        of_live.push(append(&store, live(), vec![login(&format!("a{n}"))]));
        stage.world.advance(1);
        of_other.push(append(&store, other(2), vec![login(&format!("b{n}"))]));
        stage.world.advance(1);
    }
    drop(store);
    let store = stage.open();
    // Pieces of the old index are in the cache from here on.
    assert_valid(&store, live(), 40);
    assert_eq!(everything(&store, live()).len(), 40);
    stage.flip(&log(1), stage.frames(1)[20].at + IN_HEADER);
    let index = live_file("00000001.idx");
    let id = of_other[20].log_ids[0].to_bytes();
    let at = stage.read(&index).windows(16).position(|window| window == id).unwrap();
    stage.flip(&index, at);
    // This read finds the index damaged.
    assert_eq!(everything(&store, other(2)).len(), 40);
    assert_valid(&store, other(2), 40);
    assert_eq!(seqs(&store, live()), (1..=40).rev().filter(|seq| *seq != 11).collect::<Vec<_>>());
    assert_eq!(broken(verify(&store, live())), (11, of_live[10].hash, Reason::Damaged));
    for (seq, receipt) in (1..).zip(&of_live) {
        match wait(store.get(live(), receipt.log_ids[0])) {
            Ok(Some(event)) => assert_eq!(event.sealed.chain_seq, seq),
            other => assert_eq!((seq, other), (11, Err(StoreError::Damaged { chain_seq: 11 }))),
        }
    }
}

#[test]
fn an_index_that_is_built_again_in_a_store_that_can_only_be_read_hides_no_event() {
    let stage = Stage::new();
    let store = stage.open();
    let shown = append_with_keys(&stage, &store, 10);
    let stage = stage.killed();
    stage.disk.watch(|call| if call.is(Op::Create, "live/next.seg") { Err(full()) } else { Ok(()) });
    let store = stage.open();
    // The columns of its first block.
    stage.flip(&live_file("00000001.idx"), 200);
    assert_read_only(&store, &shown);
}

#[test]
fn an_index_that_cannot_be_rebuilt_because_the_segment_cannot_be_read_hides_nothing() {
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..50 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    drop(store);
    drop(stage.open());
    let store = stage.open();
    assert_eq!(findings(&store), []);
    stage.disk.watch(|call| {
        let first = call.is(Op::Read, "live/00000001.log") || call.is(Op::Read, "live/00000001.idx");
        if first { Err(unreadable()) } else { Ok(()) }
    });
    let list = List { filter: Filter::default(), before_seq: None, limit: 100, bytes_max: 1 << 20 };
    assert!(matches!(wait(store.list(live(), list)), Err(StoreError::Read(_))));
    make_readable(&stage);
    assert_eq!(everything(&store, live()).len(), 50);
    assert_valid(&store, live(), 50);
}
