//! How requests reach the writer and how they are answered: together from an event loop, and a large one without holding up the others.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use sealog_core::id::{ChainId, Mode};
use sealog_store::embedded::{self, EmbeddedStore, Options};
use sealog_store::world::World;
use sealog_store::{Append, Appended, Receipt, Store, StoreError};
use support::sim::SimDisk;
use support::*;
use tokio::runtime::Runtime;

/// Not a path of any real file system.
const DIR: &str = "/sealog-simulated-disk";

fn open(disk: &SimDisk, world: Arc<dyn World>) -> Arc<EmbeddedStore> {
    let options = Options { disk: Arc::new(disk.clone()), world, ..small(&StillWorld::new()) };
    Arc::new(EmbeddedStore::open(Path::new(DIR), &options).unwrap())
}

/// An event loop as the server has it.
fn event_loop() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().on_thread_park(embedded::end_of_turn).build().unwrap();
    runtime.spawn(embedded::answers());
    runtime.block_on(tokio::task::yield_now());
    runtime
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
        let tasks: Vec<_> = (0..20)
            .map(|number| runtime.spawn(append_one(Arc::clone(&store), live(), format!("{round}-{number}"))))
            .collect();
        for (task, place) in tasks.into_iter().zip(1..) {
            let receipt = runtime.block_on(task).unwrap().unwrap();
            assert_eq!(receipt.first_seq, round * 20 + place);
        }
        assert_eq!(syncs(&store), before + 1);
    }
    assert_valid(&*store, live(), 200);
}

#[test]
fn a_turn_without_end_is_handed_over_in_pieces() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    let first = runtime.spawn(append_one(Arc::clone(&store), live(), "first".into()));
    runtime.block_on(async {
        for number in 0..31 {
            tokio::spawn(append_one(Arc::clone(&store), live(), format!("{number}")));
        }
        let begun = Instant::now();
        // Always ready, so that the loop never waits.
        while !first.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it waits for the end of the turn");
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_task_that_gives_way_can_end_the_turn() {
    let (disk, runtime) = (SimDisk::new(), event_loop());
    let store = open(&disk, StillWorld::new());
    let task = runtime.spawn(append_one(Arc::clone(&store), live(), "alone".into()));
    runtime.block_on(async {
        let begun = Instant::now();
        while !task.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it waits for the end of the turn");
            embedded::end_of_turn();
            tokio::task::yield_now().await;
        }
    });
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
    std::thread::sleep(Duration::from_millis(50));
    world.let_go();
    assert_eq!(batch.join().unwrap().log_ids.len(), 100);
    closing.join().unwrap();
    drop(store);
    assert_valid(&*open(&disk, StillWorld::new()), live(), 100);
}
