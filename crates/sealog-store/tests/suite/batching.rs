//! How requests reach the writer and how they are answered: together from an event loop, and a large one
//! without holding up the others.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_store::embedded::{self, EmbeddedStore, Options};
use sealog_store::world::World;
use sealog_store::{Append, Appended, Receipt, Reserved, Store, StoreError, WantedKeys};
use sealog_testing::sim::{DIR, Op, SimDisk};
use sealog_testing::*;
use tokio::runtime::Runtime;

fn open(disk: &SimDisk, world: Arc<dyn World>) -> Arc<EmbeddedStore> {
    let options = Options { disk: Arc::new(disk.clone()), world, ..small(&StillWorld::new()) };
    Arc::new(EmbeddedStore::open(Path::new(DIR), &options).unwrap())
}

/// An event loop as the server has it.
fn event_loop() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.spawn(embedded::batch_by_tick());
    runtime.block_on(tokio::task::yield_now());
    runtime
}

/// Always ready again, as a connection is whose client sends the next request before it has read the answer
/// to the last.
async fn wake_oneself() {
    let mut woken = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn append_one(store: Arc<EmbeddedStore>, chain: ChainId, actor: String) -> Result<Receipt, StoreError> {
    let append = Append { chain, drafts: vec![login(&actor)], idempotency: None };
    match store.append(append).await? {
        Appended::Sealed(receipt) => Ok(receipt),
        other => panic!("{other:?}"),
    }
}

fn syncs(store: &EmbeddedStore) -> u64 {
    wait(store.stats())
        .unwrap()
        .logs
        .iter()
        .find(|log| log.mode == Mode::Live)
        .unwrap()
        .sync
        .counts
        .iter()
        .sum()
}

#[test]
fn what_one_turn_of_an_event_loop_has_brought_is_synced_together() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    for round in 0..10 {
        let before = syncs(&store);
        // From inside, as the loop itself wakes its connections.
        let tasks: Vec<_> = runtime.block_on(async {
            let append = |number| append_one(Arc::clone(&store), live(), format!("{round}-{number}"));
            (0..20).map(|number| tokio::spawn(append(number))).collect()
        });
        for (task, place) in tasks.into_iter().zip(1..) {
            let receipt = runtime.block_on(task).unwrap().unwrap();
            assert_eq!(receipt.first_seq, round * 20 + place);
        }
        assert_eq!(syncs(&store), before + 1);
    }
    assert_valid(&*store, live(), 200);
}

#[test]
fn a_turn_that_brings_much_is_handed_over_before_it_ends() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    let written = || wait(store.head(live())).unwrap().durable.chain_seq;
    runtime.block_on(async {
        let append = |number: u32| Append {
            chain: live(),
            drafts: vec![login(&number.to_string())],
            idempotency: None,
        };
        let answers: Vec<_> = (0..40).map(|number| store.append(append(number))).collect();
        // No other task of the loop has had its turn since.
        eventually("the first 32 are written", || written() == 32);
        for answer in answers {
            answer.await.unwrap();
        }
    });
    assert_eq!(written(), 40);
}

#[test]
fn a_lone_append_on_a_loop_that_never_waits_is_handed_over() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    let task = runtime.spawn(append_one(Arc::clone(&store), live(), "alone".into()));
    runtime.block_on(async {
        let begun = Instant::now();
        while !task.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "it waits for a turn without end");
            wake_oneself().await;
        }
    });
}

/// A loop looks for an answer that comes soon, and sleeps until one comes that takes longer. Both in turn,
/// with pauses in which nothing else wakes it.
#[test]
fn a_lone_append_is_answered_whether_its_answer_comes_soon_or_late() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    let slow = chain(1, 1, Mode::Live);
    let late = Arc::new(AtomicBool::new(false));
    let is_late = Arc::clone(&late);
    disk.watch(move |call| {
        if call.op == Op::Sync && is_late.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
    for round in 0..200u64 {
        // Three that come soon, one that does not.
        late.store(round % 4 == 3, SeqCst);
        let append = append_one(Arc::clone(&store), slow, format!("actor {round}"));
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, append).await });
        assert_eq!(answer.expect("it is answered").unwrap().first_seq, round + 1);
    }
    assert_valid(&*store, slow, 200);
}

#[test]
fn what_was_put_aside_is_written_although_the_loop_ends() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    runtime.block_on(async {
        tokio::spawn(append_one(Arc::clone(&store), live(), "last words".into()));
        tokio::task::yield_now().await;
    });
    drop(runtime);
    eventually("it is written", || wait(store.head(live())).unwrap().durable.chain_seq == 1);
    // And this thread, which has no loop any more, is answered by itself.
    assert_eq!(append(&*store, live(), vec![login("after")]).first_seq, 2);
}

#[test]
fn a_loop_that_ends_does_not_keep_the_answers_of_others() {
    let disk = SimDisk::new();
    let store = open(&disk, StillWorld::new());
    for round in 0..20 {
        let (runtime, mine) = (event_loop(), Arc::clone(&store));
        runtime.spawn(append_one(Arc::clone(&store), live(), format!("dropped {round}")));
        let other = std::thread::spawn(move || append(&*mine, live(), vec![login("other")]));
        runtime.block_on(tokio::task::yield_now());
        drop(runtime);
        other.join().unwrap();
    }
    eventually("all are written", || wait(store.head(live())).unwrap().durable.chain_seq == 40);
    assert_valid(&*store, live(), 40);
}

#[test]
fn a_request_that_cannot_be_queued_hears_why() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    store.close();
    let refused = runtime.block_on(append_one(Arc::clone(&store), live(), "late".into()));
    assert!(matches!(refused, Err(StoreError::Closing)), "{refused:?}");
}

/// A world that stops whoever asks for the nth random number, until it is let go: in the middle of sealing.
#[derive(Debug, Default)]
struct StoppingWorld {
    asked: AtomicUsize,
    stop_at: AtomicUsize,
    stopped: AtomicBool,
    go_on: Mutex<bool>,
    changed: Condvar,
}

impl World for StoppingWorld {
    fn now_ms(&self) -> u64 {
        MORNING_MS
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
        let number = self.asked.fetch_add(1, SeqCst) + 1;
        if number == self.stop_at.load(SeqCst) {
            self.stopped.store(true, SeqCst);
            let mut go_on = self.go_on.lock().unwrap();
            while !*go_on {
                go_on = self.changed.wait(go_on).unwrap();
            }
        }
    }
}

impl StoppingWorld {
    fn stop_after(&self, more: usize) {
        self.stop_at.store(self.asked.load(SeqCst) + more, SeqCst);
    }

    fn let_go(&self) {
        *self.go_on.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

#[test]
fn others_do_not_wait_while_a_large_request_is_sealed() {
    let (disk, world) = (SimDisk::new(), Arc::new(StoppingWorld::default()));
    let store = open(&disk, Arc::clone(&world) as Arc<dyn World>);
    let [large, small] = [chain(1, 1, Mode::Live), chain(2, 1, Mode::Live)];
    append(&*store, large, vec![login("before")]);
    world.stop_after(50);
    let batch = {
        let store = Arc::clone(&store);
        let drafts = (0..100).map(|number| login(&format!("actor {number}"))).collect();
        std::thread::spawn(move || append(&*store, large, drafts))
    };
    eventually("half of the batch is sealed", || world.stopped.load(SeqCst));
    // Of the same chain: behind the batch, whatever its size.
    let behind = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || append(&*store, large, vec![login("behind")]))
    };
    for number in 1..=20 {
        assert_eq!(append(&*store, small, vec![login("small")]).first_seq, number);
    }
    assert_eq!(wait(store.head(large)).unwrap().durable.chain_seq, 1);
    world.let_go();
    assert_eq!(batch.join().unwrap().first_seq, 2);
    assert_eq!(behind.join().unwrap().first_seq, 102);
    assert_valid(&*store, large, 102);
    assert_valid(&*store, small, 20);
}

/// Small requests are let past those that are not; these must not wait for ever.
#[test]
fn many_who_bring_little_do_not_keep_out_one_who_brings_much() {
    const SMALL_CHAINS: u8 = 12;
    let disk = SimDisk::new();
    disk.watch(|call| {
        if call.op == Op::Sync {
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    });
    let options = Options {
        disk: Arc::new(disk),
        segment_bytes_first: 4 << 20,
        segment_bytes_max: 4 << 20,
        ..Options::default()
    };
    let store = Arc::new(EmbeddedStore::open(Path::new(DIR), &options).unwrap());
    let much = chain(100, 1, Mode::Live);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for tenant in 0..SMALL_CHAINS {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let small = chain(tenant, 1, Mode::Live);
                while !done.load(SeqCst) {
                    // Little enough to be let past, and together more than what others are let past in one
                    // group.
                    let drafts = (0..20).map(|number| login(&format!("{number:>200}"))).collect();
                    append(&**store, small, drafts);
                }
            });
        }
        let _ends = AtTheEnd(|| done.store(true, SeqCst));
        for round in 0..20u64 {
            let drafts = (0..80).map(|number| login(&format!("{number:>200}"))).collect();
            assert_eq!(append(&*store, much, drafts).first_seq, round * 80 + 1);
        }
    });
    assert_valid(&*store, much, 1600);
}

#[test]
fn nobody_joins_the_group_of_a_large_request() {
    let (disk, gate) = (SimDisk::new(), Arc::new(Gate::default()));
    let world = Arc::new(StoppingWorld::default());
    let store = open(&disk, Arc::clone(&world) as Arc<dyn World>);
    let writes = Arc::new(AtomicU64::new(0));
    let (count, at) = (Arc::clone(&writes), Arc::clone(&gate));
    disk.watch(move |call| {
        if call.path.extension().is_some_and(|kind| kind == "log") {
            match call.op {
                Op::Write => drop(count.fetch_add(1, SeqCst)),
                Op::Sync => at.pass(),
                _ => {}
            }
        }
        Ok(())
    });
    let spawn = |tenant: u8, events: usize| {
        let store = Arc::clone(&store);
        let drafts = (0..events).map(|number| login(&format!("actor {number}"))).collect();
        std::thread::spawn(move || append(&*store, chain(tenant, 1, Mode::Live), drafts))
    };
    let waiting = || wait(store.stats()).unwrap().logs.iter().map(|log| log.queue_requests).sum::<u64>();
    gate.close();
    let opener = Opener(&gate);
    let first = spawn(1, 1);
    eventually("a group is being synced", || gate.waiting() == 1);
    let before = world.asked.load(SeqCst);
    let large = spawn(2, 40);
    eventually("the large request is sealed", || world.asked.load(SeqCst) >= before + 40);
    eventually("it is in the next group", || waiting() == 0);
    let small = spawn(3, 1);
    eventually("a small one waits", || waiting() == 1);
    // Time to join the group, if it could. Less of it tests less, and fails nothing.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(waiting(), 1, "it has joined the group");
    drop(opener);
    for request in [first, large, small] {
        request.join().unwrap();
    }
    assert_eq!(writes.load(SeqCst), 3);
}

#[test]
fn a_stop_waits_for_a_large_request_that_is_being_sealed() {
    let (disk, world) = (SimDisk::new(), Arc::new(StoppingWorld::default()));
    let store = open(&disk, Arc::clone(&world) as Arc<dyn World>);
    world.stop_after(50);
    let batch = {
        let store = Arc::clone(&store);
        let drafts = (0..100).map(|number| login(&format!("actor {number}"))).collect();
        std::thread::spawn(move || append(&*store, live(), drafts))
    };
    eventually("half of the batch is sealed", || world.stopped.load(SeqCst));
    let closing = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || store.close())
    };
    eventually("the stop has begun", || {
        try_append(&*store, chain(9, 9, Mode::Live), vec![login("a")]) == Err(StoreError::Closing)
    });
    world.let_go();
    assert_eq!(batch.join().unwrap().log_ids.len(), 100);
    closing.join().unwrap();
    drop(store);
    assert_valid(&*open(&disk, StillWorld::new()), live(), 100);
}

/// A second passes whenever someone looks at the clock.
#[derive(Debug, Default)]
struct HastyWorld(AtomicU64);

impl World for HastyWorld {
    fn now_ms(&self) -> u64 {
        MORNING_MS + self.0.fetch_add(1000, SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

#[test]
fn no_event_is_older_than_the_receipt_of_its_request_also_if_it_was_sealed_ahead() {
    let disk = SimDisk::new();
    let store = open(&disk, Arc::new(HastyWorld::default()));
    for (name, events) in [("small", 1), ("large", 100)] {
        let Reserved::Fresh(reservation) = wait(store.reserve(live(), key(name, "body"))).unwrap() else {
            panic!("the key was never used");
        };
        let drafts = (0..events).map(|number| login(&format!("actor {number}"))).collect();
        let append =
            Append { chain: live(), drafts, idempotency: Some((reservation, Ulid::from_bytes([1; 16]))) };
        let Appended::Sealed(receipt) = wait(store.append(append)).unwrap() else { panic!("it is new") };
        let event_ms = receipt.log_ids[0].timestamp_ms();
        let wanted = WantedKeys { from: receipt.first_seq, received_after_ms: 0, limit: 10 };
        let kept = wait(store.kept_keys(live(), wanted)).unwrap();
        assert_eq!(kept.len(), 1, "{name}");
        assert!(kept[0].received_ms <= event_ms, "{name}: {} and {event_ms}", kept[0].received_ms);
    }
}

/// Stops whoever wants random bytes while it seals, by the name of the thread.
#[derive(Debug, Default)]
struct Gated {
    ahead: Gate,
    write: Gate,
}

impl World for Gated {
    fn now_ms(&self) -> u64 {
        MORNING_MS
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
        match std::thread::current().name() {
            Some("sealog-live-ahead") => self.ahead.pass(),
            Some(name) if name.starts_with("sealog-live-write") => self.write.pass(),
            _ => {}
        }
    }
}

/// t0: one writer waits for the disk, the other one seals, and a large request is being sealed ahead. t1: the
/// first one panics. t2: the large request is done, and its thread looks for the next. t3: the other writer
/// has sealed.
#[test]
fn a_panic_of_one_writer_stops_the_log_and_locks_nobody_up() {
    let (disk, world) = (SimDisk::new(), Arc::new(Gated::default()));
    let options = Options {
        disk: Arc::new(disk.clone()),
        world: Arc::clone(&world) as Arc<dyn World>,
        segment_bytes_first: 1 << 20,
        segment_bytes_max: 1 << 20,
        ..small(&StillWorld::new())
    };
    let store = Arc::new(EmbeddedStore::open(Path::new(DIR), &options).unwrap());
    let mut answers = Vec::new();
    let mut send = |chain, drafts| {
        let store = Arc::clone(&store);
        answers.push(std::thread::spawn(move || try_append(&*store, chain, drafts)));
    };
    world.ahead.close();
    send(chain(1, 1, Mode::Live), (0..100).map(|number| login(&format!("{number}"))).collect());
    eventually("a large request is being sealed", || world.ahead.waiting() == 1);
    let (gate, panics) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
    gate.close();
    let (at, panic) = (Arc::clone(&gate), Arc::clone(&panics));
    disk.watch(move |call| {
        if call.is(Op::Write, "live/00000001.log") {
            at.pass();
            assert!(!panic.load(SeqCst), "on purpose");
        }
        Ok(())
    });
    send(chain(2, 1, Mode::Live), vec![login("one")]);
    eventually("a group is being written", || gate.waiting() == 1);
    world.write.close();
    for number in 0..40 {
        send(chain(3, number, Mode::Live), vec![login("many"); 8]);
    }
    eventually("the other one seals", || world.write.waiting() == 1);
    panics.store(true, SeqCst);
    gate.open();
    eventually("the log has stopped", || store.ready().is_err());
    // Time for the thread that panicked to tidy up, and then for the one that seals ahead to look for more.
    // Less of it tests less, and fails nothing.
    std::thread::sleep(Duration::from_millis(100));
    world.ahead.open();
    std::thread::sleep(Duration::from_millis(100));
    world.write.open();
    let outcomes = ends("everything that asks the store", move || {
        let outcomes: Vec<_> = answers.into_iter().map(|answer| answer.join().unwrap()).collect();
        store.close();
        outcomes
    });
    assert!(outcomes.iter().all(Result::is_err), "nothing is acknowledged by a log that has stopped");
}

#[test]
fn a_panic_while_the_next_segment_is_prepared_stops_the_log_and_nobody_waits_for_it() {
    let disk = SimDisk::new();
    let store = open(&disk, StillWorld::new());
    disk.watch(|call| {
        assert!(!call.is(Op::Create, "live/next.seg"), "on purpose");
        Ok(())
    });
    let refused =
        (0..2000).any(|number| try_append(&*store, live(), vec![login(&number.to_string())]).is_err());
    assert!(refused, "there is one segment and no other");
    assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))), "{:?}", store.ready());
    store.close();
}
