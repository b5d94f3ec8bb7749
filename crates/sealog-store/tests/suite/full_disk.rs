//! A disk that is full: what is refused, what goes on, and what it takes to resume. On a disk in memory;
//! `crates/sealog-control/tests/suite/full_disk.rs` has a real one.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_core::event::Draft;
use sealog_core::id::Mode;
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::sim::{DIR, Op, Plan, SimDisk};
use sealog_testing::*;

const KIB: usize = 1 << 10;
/// A round number of bytes for events that are to fill something.
const EVENT_BYTES: usize = 4 << 10;

fn options(disk: &SimDisk, world: &Arc<StillWorld>) -> Options {
    Options {
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
        tick: Duration::from_millis(2),
        segment_bytes_max: 512 << 10,
        ..small(world)
    }
}

fn open(disk: &SimDisk, world: &Arc<StillWorld>) -> EmbeddedStore {
    EmbeddedStore::open(Path::new(DIR), &options(disk, world)).unwrap()
}

fn some_kib(bytes: usize) -> Draft {
    draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(bytes)))
}

/// Appends until there is no room; how many events the chain has then.
fn fill(store: &EmbeddedStore) -> u64 {
    loop {
        match try_append(store, live(), vec![some_kib(EVENT_BYTES)]) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, StoreError::NoRoom);
                return wait(store.head(live())).unwrap().durable.chain_seq;
            }
        }
    }
}

fn used(disk: &SimDisk) -> usize {
    let of = |log: &str| {
        let dir = Path::new(DIR).join(log);
        let names = disk.file_names(&dir);
        names
            .iter()
            .filter_map(|name| disk.content(&dir.join(name)))
            .map(|content| content.len())
            .sum::<usize>()
    };
    of("live") + of("test")
}

fn limit(disk: &SimDisk, bytes: usize) {
    disk.plan(Plan { capacity: Some(bytes), ..Plan::default() });
}

#[test]
fn segments_leave_the_reserve_alone_and_shrink_with_the_room_there_is() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    limit(&disk, 2048 * KIB);
    let options = Options { reserve_bytes: 256 << 10, ..options(&disk, &world) };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let events = fill(&store);
    let free = usize::try_from(disk.free_bytes(Path::new(DIR)).unwrap()).unwrap();
    let reserve = usize::try_from(options.reserve_bytes).unwrap();
    // Indexes and marks are written after a segment was taken.
    assert!(free + 64 * KIB >= reserve, "{free}");
    // Beside the reserve, less than another smallest segment, and what the other log has prepared, were left
    // unused.
    let wasted = 2048 * KIB - reserve - usize::try_from(events).unwrap() * EVENT_BYTES;
    assert!(wasted < 512 * KIB, "{wasted} bytes not used for {events} events");
    assert_eq!(store.ready(), Err(StoreError::NoRoom));
    assert_valid(&store, live(), events);
}

#[test]
fn resuming_takes_a_small_segment_and_not_a_whole_doubled_one() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    limit(&disk, 2048 * KIB);
    let store = open(&disk, &world);
    let events = fill(&store);
    let options = options(&disk, &world);
    // The segment that is due would have half a mebibyte. There is room for the smallest.
    let smallest = usize::try_from(options.segment_bytes_min).unwrap();
    let make_room = || {
        let room = smallest + usize::try_from(options.reserve_bytes).unwrap();
        // And for marks and an index.
        limit(&disk, used(&disk) + room + 16 * KIB);
    };
    make_room();
    eventually("it resumes", || store.ready() == Ok(()));
    append(&store, live(), vec![some_kib(EVENT_BYTES)]);
    assert_valid(&store, live(), events + 1);
    // A request that is larger than what there is room for is refused, and takes no segment from those that
    // fit.
    make_room();
    let next = || disk.content(&Path::new(DIR).join("live/next.seg")).map_or(0, |content| content.len());
    eventually("the next segment is there", || (smallest..2 * smallest).contains(&next()));
    // Index files and counts that had no room come when there is some.
    let segments =
        || disk.file_names(&Path::new(DIR).join("live")).iter().filter(|name| name.ends_with(".log")).count();
    let before = segments();
    for _ in 0..20 {
        let large = vec![some_kib(40 << 10)];
        assert_eq!(try_append(&store, live(), large), Err(StoreError::NoRoom));
    }
    assert_eq!(segments(), before);
    assert_eq!(store.ready(), Ok(()));
    append(&store, live(), vec![some_kib(EVENT_BYTES)]);
    drop(store);
    disk.plan(Plan::default());
    let store = open(&disk.after_power_cut(&mut Dice::new(5)), &world);
    assert_valid(&store, live(), events + 2);
}

#[test]
fn no_zeros_are_written_while_there_is_no_room() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    limit(&disk, 1024 * KIB);
    let store = open(&disk, &world);
    fill(&store);
    let (written, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counters = (Arc::clone(&written), Arc::clone(&looks));
    disk.watch(move |call| {
        if call.op == Op::Write && call.path.ends_with("next.seg") {
            counters.0.fetch_add(call.bytes.end - call.bytes.start, Ordering::SeqCst);
        }
        counters.1.fetch_add(u64::from(call.is(Op::FreeBytes, "live")), Ordering::SeqCst);
        Ok(())
    });
    eventually("it has looked for room thirty times", || looks.load(Ordering::SeqCst) >= 30);
    assert_eq!(written.load(Ordering::SeqCst), 0);
    disk.unwatch();
}

#[test]
fn a_disk_that_refuses_in_spite_of_what_it_says_is_not_given_the_same_zeros_again() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    // A quota: statvfs knows nothing of it.
    let offsets = Arc::new(Mutex::new((Vec::new(), 0, false)));
    let seen = Arc::clone(&offsets);
    let options =
        Options { segment_bytes_first: 512 << 10, segment_bytes_min: 256 << 10, ..options(&disk, &world) };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    append(&store, live(), vec![login("a")]);
    let next = || disk.content(&Path::new(DIR).join("live/next.seg")).map_or(0, |content| content.len());
    eventually("the second segment is there", || next() == 512 * KIB);
    disk.watch(move |call| {
        if call.op == Op::Write && call.path.ends_with("live/next.seg") {
            let mut seen = seen.lock().unwrap();
            if call.bytes.end > 128 << 10 && !seen.2 {
                seen.1 += 1;
                return Err(std::io::ErrorKind::QuotaExceeded.into());
            }
            // Not the header with which a segment begins.
            if call.bytes.end - call.bytes.start == 64 << 10 {
                seen.0.push(call.bytes.start);
            }
        }
        Ok(())
    });
    let events = fill(&store);
    eventually("it was refused thirty times", || offsets.lock().unwrap().1 >= 30);
    assert_eq!(offsets.lock().unwrap().0, [0, 64 << 10], "some zeros, and none of them twice");
    offsets.lock().unwrap().2 = true;
    eventually("it resumes", || store.ready() == Ok(()));
    append(&store, live(), vec![login("b")]);
    assert_valid(&store, live(), events + 1);
    disk.unwatch();
}

#[test]
fn a_store_that_was_opened_on_a_full_disk_goes_on_by_itself_once_there_is_room() {
    for clean in [true, false] {
        let (disk, world) = (SimDisk::new(), StillWorld::new());
        let store = open(&disk, &world);
        let receipts: Vec<_> = (0..50).map(|_| append(&store, live(), vec![login("a")])).collect();
        let disk = if clean {
            drop(store);
            disk
        } else {
            disk.after_kill()
        };
        // Not even what recovery gives back is left: someone else takes it.
        limit(&disk, 0);
        let store = open(&disk, &world);
        assert_eq!(store.ready(), Err(StoreError::NoRoom), "clean {clean}");
        assert!(store.findings().iter().any(|(_, finding)| matches!(finding, Finding::NoRoom { .. })));
        for receipt in &receipts {
            assert!(get(&store, live(), receipt.log_ids[0]).is_some());
        }
        assert_valid(&store, live(), 50);
        assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::NoRoom));
        let before = used(&disk);
        disk.plan(Plan::default());
        eventually("it goes on", || store.ready() == Ok(()));
        assert_eq!(store.findings(), []);
        append(&store, live(), vec![login("b")]);
        append(&store, chain(1, 1, Mode::Test), vec![login("b")]);
        assert_valid(&store, live(), 51);
        assert!(used(&disk) > before);
        drop(store);
        let store = open(&disk.after_power_cut(&mut Dice::new(3)), &world);
        assert_valid(&store, live(), 51);
        assert_eq!(store.findings(), []);
    }
}

#[test]
fn a_store_that_waits_for_room_can_be_closed() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    drop(open(&disk, &world));
    limit(&disk, used(&disk));
    let store = open(&disk, &world);
    assert_eq!(store.ready(), Err(StoreError::NoRoom));
    drop(store);
}

#[test]
fn crashes_and_power_cuts_leave_no_room_behind_that_nobody_uses() {
    let world = StillWorld::new();
    let mut disk = SimDisk::new();
    let mut dice = Dice::new(7);
    let mut taken = Vec::new();
    for cycle in 0..20 {
        let store = EmbeddedStore::open(
            Path::new(DIR),
            &Options { segment_bytes_first: 512 << 10, ..options(&disk, &world) },
        )
        .unwrap();
        append(&store, live(), vec![login("a"), login("b")]);
        let after = if cycle % 2 == 0 { disk.after_kill() } else { disk.after_power_cut(&mut dice) };
        drop(store);
        disk = after;
        taken.push(used(&disk));
    }
    // Two logs with an active and a next segment each; a power cut may bring back what was removed or cut
    // just before, once.
    assert!(taken.iter().all(|taken| *taken < 8 * 512 * KIB), "{taken:?}");
    let store = open(&disk, &world);
    assert_valid(&store, live(), 40);
    assert!(store.findings().iter().all(|(_, finding)| matches!(finding, Finding::TornTail { .. })));
    drop(store);
    // A segment has its frames and at most two blocks of zeros.
    assert!(used(&disk) < 20 * 2 * 16 * KIB, "{}", used(&disk));
}

/// Names of a log's files that end like this.
fn names(disk: &SimDisk, ending: &str) -> Vec<String> {
    let names = disk.file_names(&Path::new(DIR).join("live"));
    names.into_iter().filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn a_store_that_was_opened_without_room_counts_once_there_is_some() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    let store = open(&disk, &world);
    (0..200).for_each(|_| drop(append(&store, live(), vec![some_kib(EVENT_BYTES)])));
    drop(store);
    let counted = names(&disk, ".cnt");
    assert!(counted.len() > 1, "{counted:?}");
    for name in &counted {
        disk.remove(&Path::new(DIR).join("live").join(name)).unwrap();
    }
    limit(&disk, used(&disk));
    let store = open(&disk, &world);
    let today = sealog_store::counts::day_of(MORNING_MS);
    let days = sealog_store::counts::Days::new(today, today + 2);
    let uncounted = || wait(store.counts(live(), days)).unwrap().uncounted;
    assert!(uncounted() > 0, "a question says what is missing");
    disk.plan(Plan::default());
    eventually("everything is counted", || uncounted() == 0);
    eventually("and kept", || names(&disk, ".cnt").len() >= counted.len());
    assert_eq!(wait(store.counts(live(), days)).unwrap().events(), 200);
}

#[test]
fn counts_are_not_written_into_the_reserve_and_a_write_that_fails_leaves_nothing_behind() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    let store = open(&disk, &world);
    (0..200).for_each(|_| drop(append(&store, live(), vec![some_kib(EVENT_BYTES)])));
    drop(store);
    let counted = names(&disk, ".cnt");
    assert!(counted.len() > 1, "{counted:?}");
    for name in &counted {
        disk.remove(&Path::new(DIR).join("live").join(name)).unwrap();
    }
    // Free to whoever looks, and full to whoever writes.
    let refused = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&refused);
    disk.watch(move |call| {
        if call.op == Op::Write && call.path.to_string_lossy().ends_with(".cnt.tmp") {
            seen.fetch_add(1, Ordering::SeqCst);
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let reserved = Options { reserve_bytes: 1 << 20, ..options(&disk, &world) };
    let store = EmbeddedStore::open(Path::new(DIR), &reserved).unwrap();
    eventually("one was tried after another", || refused.load(Ordering::SeqCst) > counted.len() as u64);
    // Now they would fit, but into the reserve.
    limit(&disk, 1 << 40);
    let free = usize::try_from(disk.free_bytes(Path::new(DIR)).unwrap()).unwrap();
    limit(&disk, (1 << 40) - free + 512 * KIB);
    let looks = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&looks);
    disk.watch(move |call| {
        seen.fetch_add(u64::from(call.op == Op::FreeBytes), Ordering::SeqCst);
        Ok(())
    });
    eventually("room was looked for", || looks.load(Ordering::SeqCst) > 20);
    drop(store);
    assert_eq!(names(&disk, ".cnt"), Vec::<String>::new());
    assert_eq!(names(&disk, ".cnt.tmp"), Vec::<String>::new());
    disk.unwatch();
    disk.plan(Plan::default());
    let store = open(&disk, &world);
    eventually("they are written once there is room", || names(&disk, ".cnt").len() >= counted.len());
    drop(store);
}
