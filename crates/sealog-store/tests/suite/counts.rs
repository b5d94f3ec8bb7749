//! Counts of the embedded store: their files, and what happens without them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealog_core::time::DAY_MS;
use sealog_store::Store;
use sealog_store::counts::{Counts, Days, day_of};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_testing::sim::{DIR, Op, SimDisk};
use sealog_testing::*;

fn days() -> Days {
    let today = day_of(MORNING_MS);
    Days::new(today - 1, today + 60)
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir.join("live")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
}

fn counted(store: &dyn Store) -> Counts {
    let mut counts = Counts::default();
    eventually("everything is counted", || {
        counts = wait(store.counts(live(), days())).unwrap();
        counts.uncounted == 0
    });
    counts
}

/// A store with many small segments, closed again, and its counts.
fn filled(world: &Arc<StillWorld>) -> (tempfile::TempDir, Counts) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(world)).unwrap();
    for n in 0..40 {
        append(&store, live(), (0..50).map(|k| login(&format!("u{}", n * k))).collect());
        world.advance(DAY_MS / 4);
    }
    let counts = counted(&store);
    assert_eq!((counts.events(), counts.days.len()), (2000, 10));
    eventually("full segments have counts", || {
        files(dir.path(), "cnt").len() + 1 >= files(dir.path(), "log").len()
    });
    assert!(files(dir.path(), "cnt").len() > 3);
    drop(store);
    (dir, counts)
}

#[test]
fn counts_that_are_missing_or_damaged_are_made_again_from_the_log() {
    let world = StillWorld::new();
    let (dir, expected) = filled(&world);
    for damage in ["none", "missing", "cut", "flipped", "of another segment"] {
        let before = files(dir.path(), "cnt");
        for path in &before {
            let bytes = std::fs::read(path).unwrap();
            match damage {
                "none" => {}
                "missing" => std::fs::remove_file(path).unwrap(),
                "cut" => std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap(),
                "flipped" => {
                    let mut flipped = bytes.clone();
                    *flipped.last_mut().unwrap() ^= 1;
                    std::fs::write(path, flipped).unwrap();
                }
                _ => drop(std::fs::copy(&before[0], path).unwrap()),
            }
        }
        let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
        assert_eq!(counted(&store), expected, "{damage}");
        let logs = files(dir.path(), "log").len();
        eventually("they are written again", || files(dir.path(), "cnt").len() + 1 >= logs);
    }
}

#[test]
fn counts_that_are_kept_are_not_made_again() {
    let world = StillWorld::new();
    let (dir, expected) = filled(&world);
    drop(EmbeddedStore::open(dir.path(), &small(&world)).unwrap());
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    assert_eq!(counted(&store), expected);
    eventually("the last segments have counts", || {
        files(dir.path(), "cnt").len() + 1 >= files(dir.path(), "log").len()
    });
    drop(store);
    let times = || {
        let mut times: Vec<_> = files(dir.path(), "cnt")
            .into_iter()
            .map(|path| (path.clone(), std::fs::metadata(path).unwrap().modified().unwrap()))
            .collect();
        times.sort();
        times
    };
    let before = times();
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    assert_eq!(counted(&store), expected);
    drop(store);
    assert_eq!(times()[..before.len()], before[..]);
}

#[test]
fn a_question_reads_four_damaged_segments_and_the_next_goes_on() {
    let world = StillWorld::new();
    let (dir, _) = filled(&world);
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    (0..120).for_each(|_| drop(append(&store, live(), vec![login("u"); 50])));
    let whole = counted(&store);
    drop(store);
    let mut logs = files(dir.path(), "log");
    logs.sort();
    assert!(logs.len() > 8, "{}", logs.len());
    for path in files(dir.path(), "cnt") {
        std::fs::remove_file(path).unwrap();
    }
    // In the middle of six segments something is not what was written. The oldest is sound, and looked at
    // last.
    for path in &logs[1..7] {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    eventually("every segment was looked at", || logs[0].with_extension("cnt").exists());
    let ask = || wait(store.counts(live(), days())).unwrap();
    let answers = [ask(), ask(), ask()];
    for answer in &answers {
        assert_eq!(answer.events() + answer.uncounted, whole.events(), "what is not counted is said");
    }
    // Of four damaged ones what is left was counted at first, and of the two others then.
    let [first, second, third] = answers.map(|answer| answer.uncounted);
    assert!(second >= 6, "at least a record of each is damaged: {second}");
    assert!(first > second && second == third, "{first} {second} {third}");
    drop(store);
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    eventually("after a restart as well", || wait(store.counts(live(), days())).unwrap().uncounted == second);
}

#[test]
fn a_question_reads_no_events_of_full_segments() {
    let world = StillWorld::new();
    let (dir, expected) = filled(&world);
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    assert_eq!(counted(&store), expected);
    // Events that are not there any more cannot be looked at; their counts are in files of their own.
    for path in files(dir.path(), "log").iter().filter(|path| path.with_extension("cnt").exists()) {
        std::fs::write(path, []).unwrap();
    }
    assert_eq!(wait(store.counts(live(), days())).unwrap(), expected);
}

#[test]
fn events_are_counted_as_they_are_written_and_hardly_any_is_read_again() {
    let (disk, world) = (SimDisk::new(), StillWorld::new());
    let options = Options { disk: Arc::new(disk.clone()), tick: Duration::from_secs(3600), ..small(&world) };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted_reads = Arc::clone(&reads);
    disk.watch(move |call| {
        if call.op == Op::Read && call.path.to_string_lossy().ends_with(".log") {
            counted_reads.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    for n in 0..200u64 {
        append(&store, live(), (0..50).map(|k| login(&format!("u{}", n * k % 97))).collect());
        // The thread that counts may be at it just then, and whoever asks reads what was left.
        if n % 10 == 9 {
            assert_eq!(wait(store.counts(live(), days())).unwrap().events(), (n + 1) * 50);
        }
    }
    let counts = counted(&store);
    assert_eq!((counts.events(), counts.total().actions.get("user.login")), (10_000, 10_000));
    let segments =
        disk.file_names(&Path::new(DIR).join("live")).iter().filter(|name| name.ends_with(".log")).count();
    let reads = reads.load(Ordering::SeqCst);
    assert!(segments > 30 && reads < segments / 10, "{reads} reads of {segments} segments");
}
