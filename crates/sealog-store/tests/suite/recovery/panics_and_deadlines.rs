//! Threads that panic and disks that hang: nobody waits for ever.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealog_core::id::Ulid;
use sealog_store::embedded::Options;
use sealog_store::world::World;
use sealog_store::{Append, Reserved, Store, StoreError};
use sealog_testing::sim::Op;
use sealog_testing::*;

use super::stage::*;

/// A world whose clock panics for threads with certain names.
#[derive(Debug)]
struct PanickyWorld {
    still: Arc<StillWorld>,
    victims: Mutex<Option<&'static str>>,
}

impl World for PanickyWorld {
    fn now_ms(&self) -> u64 {
        let victims = *self.victims.lock().unwrap();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        assert!(!victims.is_some_and(|victims| name.starts_with(victims)), "the clock panics, as planned");
        self.still.now_ms()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.still.fill_random(bytes);
    }
}

#[test]
fn a_panic_in_a_writer_stops_the_log_and_leaves_nobody_waiting() {
    for place in ["sealing", "writing"] {
        let stage = Stage::new();
        let world = Arc::new(PanickyWorld { still: Arc::clone(&stage.world), victims: Mutex::default() });
        let options = Options { world: Arc::clone(&world) as Arc<dyn World>, ..stage.options() };
        let store = Arc::new(stage.try_open(&options).unwrap());
        // Never dropped: a store that cannot be closed must fail this test, not hang it.
        std::mem::forget(Arc::clone(&store));
        let kept = append(&*store, live(), vec![login("kept")]);
        if place == "sealing" {
            *world.victims.lock().unwrap() = Some("sealog-live-write");
        } else {
            stage.disk.watch(|call| {
                assert!(!call.is(Op::Write, "live/00000001.log"), "the disk panics, as planned");
                Ok(())
            });
        }
        for chain in [live(), other(2)] {
            let request = Append { chain, drafts: vec![login("lost")], idempotency: None };
            let answer = soon(store.append(request));
            assert!(answer.is_err(), "{place}: {answer:?}");
        }
        eventually("the log says that it has stopped", || store.ready().is_err());
        assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))), "{place}: {:?}", store.ready());
        let refused = try_append(&*store, other(3), vec![login("refused")]);
        assert!(matches!(refused, Err(StoreError::Poisoned(_))), "{place}: {refused:?}");
        assert!(get(&*store, live(), kept.log_ids[0]).is_some(), "{place}: reads go on");
        let closing = Arc::clone(&store);
        ends("close()", move || closing.close());
        let restarted = stage.killed();
        let store = restarted.open();
        assert_valid(&store, live(), 1);
        append(&store, live(), vec![login("next")]);
    }
}

#[test]
fn a_read_that_panics_fails_for_its_caller_only() {
    let stage = Stage::new();
    let world = Arc::new(PanickyWorld { still: Arc::clone(&stage.world), victims: Mutex::default() });
    let options = Options { world: Arc::clone(&world) as Arc<dyn World>, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let sealed = append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(5));
    let Outcome::Sealed(receipt) = sealed else { panic!("{sealed:?}") };
    // More reads than there are threads to make them.
    *world.victims.lock().unwrap() = Some("sealog-read");
    for _ in 0..12 {
        let reserved = soon(store.reserve(live(), key("k", "b")));
        assert!(reserved.is_err(), "{reserved:?}");
    }
    *world.victims.lock().unwrap() = None;
    assert!(soon(store.get(live(), receipt.log_ids[0])).unwrap().is_some());
    match wait(store.reserve(live(), key("k", "b"))).unwrap() {
        Reserved::Replay(replayed) => assert_eq!(replayed, receipt),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_fail_by_their_deadline_while_the_disk_hangs() {
    let stage = Stage::new();
    let (segments, marks) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let gates = (Arc::clone(&segments), Arc::clone(&marks));
    stage.disk.watch(move |call| {
        if call.is(Op::Sync, "live/00000001.log") {
            gates.0.pass();
        } else if call.is(Op::Sync, "live/mark") {
            gates.1.pass();
        }
        Ok(())
    });
    // Long enough that nobody misses it who is not held up.
    let deadline = Duration::from_secs(1);
    let options = Options { tick: Duration::from_millis(20), queue_deadline: deadline, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let openers = (Opener(&segments), Opener(&marks));
    let request = || store.append(Append { chain: live(), drafts: vec![big(10_000)], idempotency: None });
    marks.close();
    wait(request()).unwrap();
    eventually("the thread that writes marks hangs", || marks.waiting() == 1);
    segments.close();
    let written = request();
    eventually("a writer hangs", || segments.waiting() == 1);
    // Enough that the other thread seals meanwhile. A group of 16 KiB has room for the first of these, which
    // has to wait for what it was sealed on. The others wait for their turn.
    let begun = Instant::now();
    let sealed = request();
    let waiting: Vec<_> = (0..8).map(|_| request()).collect();
    for answer in waiting {
        assert_eq!(soon(answer), Err(StoreError::Deadline));
        assert!(begun.elapsed() >= deadline);
    }
    drop(openers);
    wait(written).unwrap();
    wait(sealed).unwrap();
    assert_valid(&store, live(), 3);
}

#[test]
fn a_store_whose_disk_has_stalled_is_not_ready_until_it_goes_on() {
    let stage = Stage::new();
    let segments = Arc::new(Gate::default());
    let gate = Arc::clone(&segments);
    stage.disk.watch(move |call| {
        if call.is(Op::Sync, "live/00000001.log") {
            gate.pass();
        }
        Ok(())
    });
    // Long enough that nobody misses it who is not held up.
    let deadline = Duration::from_secs(1);
    let options = Options { tick: Duration::from_millis(10), queue_deadline: deadline, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let opener = Opener(&segments);
    let request = || store.append(Append { chain: live(), drafts: vec![login("a")], idempotency: None });
    wait(request()).unwrap();
    assert_eq!(store.ready(), Ok(()));
    segments.close();
    let written = request();
    eventually("a writer hangs", || segments.waiting() == 1);
    // Nobody else sends anything: a balancer that asks whether it is ready must not need a victim.
    eventually("it is not ready", || store.ready() == Err(StoreError::Stalled));
    let behind = request();
    assert_eq!(soon(behind), Err(StoreError::Deadline));
    assert_eq!(store.ready(), Err(StoreError::Stalled));
    drop(opener);
    wait(written).unwrap();
    eventually("it is ready by itself", || store.ready() == Ok(()));
    wait(request()).unwrap();
    assert_valid(&store, live(), 3);
}
