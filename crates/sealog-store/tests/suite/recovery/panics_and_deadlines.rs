//! Threads that panic and disks that hang: nobody waits for ever.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealog_core::id::Ulid;
use sealog_store::counts::{Days, day_of};
use sealog_store::embedded::disk::{Disk, DiskFile, RealDisk};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::world::World;
use sealog_store::{Append, Reserved, Store, StoreError};
use sealog_testing::sim::{DIR, Op};
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

fn is_on_thread(ending: &str) -> bool {
    std::thread::current().name().is_some_and(|name| name.ends_with(ending))
}

/// What is in the memory of these threads is trusted by others, or waited for.
#[test]
fn a_panic_in_a_thread_beside_the_writers_stops_the_log_and_leaves_nobody_waiting() {
    for victim in ["ahead", "deadlines", "upkeep"] {
        let stage = Stage::new();
        let world = Arc::new(PanickyWorld { still: Arc::clone(&stage.world), victims: Mutex::default() });
        let options = Options {
            world: Arc::clone(&world) as Arc<dyn World>,
            tick: Duration::from_millis(5),
            ..stage.options()
        };
        let store = Arc::new(stage.try_open(&options).unwrap());
        std::mem::forget(Arc::clone(&store));
        let kept = append(&*store, live(), vec![login("kept")]);
        match victim {
            "ahead" => *world.victims.lock().unwrap() = Some("sealog-live-ahead"),
            "deadlines" => *world.victims.lock().unwrap() = Some("sealog-live-deadlines"),
            _ => stage.disk.watch(|_| {
                assert!(!is_on_thread("live-upkeep"), "the disk panics, as planned");
                Ok(())
            }),
        }
        // Large enough to be sealed ahead. What comes of it is no matter: it has an answer.
        let request = Append { chain: live(), drafts: vec![big(10_000)], idempotency: None };
        let _ = soon(store.append(request));
        eventually("the log says that it has stopped", || store.ready().is_err());
        assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))), "{victim}: {:?}", store.ready());
        let refused = try_append(&*store, other(3), vec![login("refused")]);
        assert!(matches!(refused, Err(StoreError::Poisoned(_))), "{victim}: {refused:?}");
        assert!(get(&*store, live(), kept.log_ids[0]).is_some(), "{victim}: reads go on");
        let closing = Arc::clone(&store);
        ends("close()", move || closing.close());
        stage.disk.unwatch();
    }
}

/// A store with some full segments, closed again; how many events it has.
fn with_full_segments(stage: &Stage) -> u64 {
    let store = stage.open();
    let mut events = 0;
    while stage.segments().len() < 4 {
        append(&store, live(), vec![big(10_000)]);
        events += 1;
    }
    events
}

#[test]
fn a_panic_while_old_index_files_are_made_anew_stops_the_log_and_reads_go_on() {
    let stage = Stage::new();
    let events = with_full_segments(&stage);
    stage.disk.replace_index_salt();
    stage.disk.watch(|_| {
        assert!(!is_on_thread("live-reindex"), "the disk panics, as planned");
        Ok(())
    });
    let store = Arc::new(stage.open());
    eventually("the log says that it has stopped", || store.ready().is_err());
    assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))), "{:?}", store.ready());
    assert_valid(&*store, live(), events);
    ends("close()", move || store.close());
}

#[test]
fn counting_goes_on_after_a_panic_and_counts_nothing_twice() {
    let stage = Stage::new();
    let events = with_full_segments(&stage);
    let live_dir = Path::new(DIR).join("live");
    for name in stage.disk.file_names(&live_dir) {
        if name.ends_with(".cnt") {
            stage.disk.delete(&live_dir.join(name));
        }
    }
    let has_panicked = Arc::new(AtomicBool::new(false));
    let first = Arc::clone(&has_panicked);
    stage.disk.watch(move |_| {
        let panics = is_on_thread("live-count") && !first.swap(true, Ordering::SeqCst);
        assert!(!panics, "the disk panics, as planned");
        Ok(())
    });
    let store = stage.open_ticking(5);
    eventually("it has panicked", || has_panicked.load(Ordering::SeqCst));
    append(&store, live(), vec![login("later")]);
    let full = stage.segments().len() - 1;
    eventually("full segments have counts", || {
        let names = stage.disk.file_names(&live_dir);
        names.iter().filter(|name| name.ends_with(".cnt")).count() >= full
    });
    let today = day_of(MORNING_MS);
    let counts = || wait(store.counts(live(), Days::new(today - 1, today + 1))).unwrap();
    eventually("everything is counted", || counts().uncounted == 0);
    assert_eq!(counts().events(), events + 1);
    assert_eq!(store.ready(), Ok(()));
}

/// The machine's own disk; a look at whether a file has a name panics once.
#[derive(Debug)]
struct Panicky(Arc<AtomicBool>);

#[derive(Debug)]
struct PanickyFile(Box<dyn DiskFile>, Arc<AtomicBool>);

impl Disk for Panicky {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(PanickyFile(RealDisk.open(path)?, Arc::clone(&self.0))))
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(PanickyFile(RealDisk.create(path)?, Arc::clone(&self.0))))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}

impl DiskFile for PanickyFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn is_linked(&self) -> io::Result<bool> {
        let panics = is_on_thread("sealog-directory") && !self.1.swap(true, Ordering::SeqCst);
        assert!(!panics, "the disk panics, as planned");
        self.0.is_linked()
    }
}

#[test]
fn a_directory_that_is_moved_away_is_noticed_after_a_panic_of_the_thread_that_looks() {
    let home = tempfile::tempdir().unwrap();
    let has_panicked = Arc::new(AtomicBool::new(false));
    let options = Options {
        disk: Arc::new(Panicky(Arc::clone(&has_panicked))),
        tick: Duration::from_millis(5),
        ..small(&StillWorld::new())
    };
    let store = EmbeddedStore::open(&home.path().join("data"), &options).unwrap();
    eventually("it has panicked", || has_panicked.load(Ordering::SeqCst));
    append(&store, live(), vec![login("accepted")]);
    std::fs::rename(home.path().join("data"), home.path().join("moved")).unwrap();
    eventually("it is noticed", || matches!(store.ready(), Err(StoreError::Poisoned(_))));
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
