//! What a drop of old test events leaves, wherever it is cut off, and what is not taken for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::verify::Reason;
use sealog_store::embedded::{EmbeddedStore, Finding};
use sealog_store::{DropStep, Store};
use sealog_testing::sim::{DIR, Plan};
use sealog_testing::*;

use super::stage::Stage;

/// Everything is older.
const FAR: u64 = u64::MAX >> 8;

fn test_file(name: &str) -> PathBuf {
    Path::new(DIR).join("test").join(name)
}

fn test(project: u8) -> ChainId {
    chain(1, project, Mode::Test)
}

fn fill(store: &dyn Store, chain: ChainId, events: u64) {
    let drafts: Vec<_> = (0..events).map(|n| login(&n.to_string())).collect();
    for drafts in drafts.chunks(100) {
        append(store, chain, drafts.to_vec());
    }
}

/// Two test chains and a live one: the first ends in segments that later ones follow. Stopped.
fn filled() -> Stage {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, live(), 300);
    fill(&store, test(1), 400);
    for _ in 0..4 {
        fill(&store, test(2), 200);
        fill(&store, test(3), 100);
    }
    drop(store);
    stage
}

fn segments(stage: &Stage) -> Vec<u64> {
    let names = stage.disk.file_names(&Path::new(DIR).join("test"));
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn heads(store: &dyn Store) -> Vec<(ChainId, Head)> {
    wait(store.heads()).unwrap()
}

fn drop_all(store: &dyn Store) -> u64 {
    let mut events = 0;
    loop {
        let DropStep { events: dropped, more } = wait(store.drop_test_events(FAR)).unwrap();
        events += dropped;
        if !more {
            return events;
        }
    }
}

/// Every chain is sound from its first kept event to its head, which is where it was, and goes on.
#[track_caller]
fn assert_whole(store: &EmbeddedStore, before: &[(ChainId, Head)], what: &str) {
    assert_eq!(store.findings(), [], "{what}");
    assert_goes_on(store, before, what);
}

/// The chains are as they were, and take events.
#[track_caller]
fn assert_goes_on(store: &EmbeddedStore, before: &[(ChainId, Head)], what: &str) {
    assert_eq!(heads(store), before, "{what}");
    for (chain, head) in before {
        let ends = wait(store.head(*chain)).unwrap();
        let verdict = verify(store, *chain);
        assert_eq!(verdict.broken, None, "{what}: {chain}");
        assert_eq!((verdict.first_seq, verdict.last_seq), (ends.first_seq(), head.chain_seq), "{what}");
        assert!(chain.mode == Mode::Test || ends.dropped == Head::EMPTY, "{what}");
    }
    for (chain, head) in before {
        let receipt = append(store, *chain, vec![login("next")]);
        assert_eq!(receipt.first_seq, head.chain_seq + 1, "{what}");
        assert_eq!(get(store, *chain, receipt.log_ids[0]).unwrap().sealed.prev_hash, head.hash, "{what}");
        assert_eq!(verify(store, *chain).broken, None, "{what}");
    }
}

#[test]
fn a_chain_whose_events_are_all_dropped_goes_on_also_after_a_restart() {
    let stage = filled();
    let store = stage.open();
    let before = heads(&store);
    assert!(drop_all(&store) > 400);
    let first = wait(store.head(test(1))).unwrap();
    assert_eq!((first.dropped, first.durable), (before[1].1, before[1].1), "all of it is gone");
    assert!(list(&store, test(1), &Default::default(), None, 10).is_empty());
    drop(store);
    let left = segments(&stage);
    assert!(left[0] > 2, "{left:?}");
    let store = stage.open();
    assert_eq!(wait(store.head(test(1))).unwrap(), first);
    assert_whole(&store, &before, "restarted");
    drop(store);
    // Once more, with what has come since; and a kill in place of a stop.
    let store = stage.killed().open();
    let before = heads(&store);
    drop_all(&store);
    assert_whole(&store, &before, "again");
}

#[test]
fn a_kill_or_a_power_cut_at_each_call_of_a_drop_leaves_it_undone_or_done() {
    let stage = filled();
    let before = heads(&stage.killed().open());
    let mut dice = Dice::new(7);
    let (mut undone, mut done) = (0, 0);
    for at in 1.. {
        let copy = stage.killed();
        let store = copy.open();
        copy.disk.plan(Plan { power_cut_at: Some(at), ..Plan::default() });
        for _ in 0..3 {
            let _ = wait(store.drop_test_events(FAR));
        }
        let is_over = !copy.disk.is_dead();
        let after_kill = Stage { disk: copy.disk.after_kill(), world: copy.world.clone() };
        let after_cuts = [(); 2].map(|()| copy.disk.after_power_cut(&mut dice));
        drop(store);
        let cuts = after_cuts.into_iter().map(|disk| Stage { disk, world: copy.world.clone() });
        for (cut, what) in [after_kill].into_iter().chain(cuts).zip(["killed", "cut", "cut"]) {
            let store = cut.open();
            if wait(store.head(test(1))).unwrap().dropped == Head::EMPTY {
                undone += 1
            } else {
                done += 1
            }
            assert_whole(&store, &before, &format!("{what} at call {at}"));
            // What a crash has left of dropped segments is gone.
            let dropped = cut
                .disk
                .content(&test_file("dropped"))
                .map_or(0, |bytes| u64::from_le_bytes(bytes[16..24].try_into().unwrap()));
            assert!(segments(&cut).iter().all(|number| *number > dropped), "{what} at call {at}");
        }
        if is_over {
            println!("{at} calls: {undone} undone, {done} done");
            assert!(undone > 0 && done > 0);
            return;
        }
    }
}

#[test]
fn a_failed_write_or_sync_of_a_drop_changes_nothing_that_is_known_and_events_go_on() {
    for plan in 0..12 {
        let stage = filled();
        let store = stage.open();
        let before = heads(&store);
        stage.disk.plan(match plan % 2 {
            0 => Plan { fail_sync: Some(plan / 2), ..Plan::default() },
            _ => Plan { fail_write: Some(plan / 2), ..Plan::default() },
        });
        let _ = wait(store.drop_test_events(FAR));
        stage.disk.plan(Plan::default());
        for (chain, head) in &before {
            let verdict = verify(&store, *chain);
            assert_eq!((verdict.broken, verdict.last_seq), (None, head.chain_seq), "plan {plan}");
        }
        drop(store);
        assert_whole(&stage.open(), &before, &format!("plan {plan}"));
    }
}

#[test]
fn a_segment_that_somebody_removed_is_a_loss_also_behind_a_drop() {
    let stage = filled();
    let store = stage.open();
    wait(store.drop_test_events(FAR)).unwrap();
    let through = wait(store.head(test(1))).unwrap().dropped.chain_seq;
    assert!((1..400).contains(&through), "{through}");
    drop(store);
    let next = segments(&stage)[0];
    stage.disk.delete(&test_file(&format!("{next:08}.log")));
    let store = stage.open();
    let missing = (Mode::Test, Finding::MissingSegments { first: next, last: next });
    assert!(store.findings().contains(&missing), "{:?}", store.findings());
    let broken = verify(&store, test(1)).broken.unwrap();
    assert!(broken.at > through && matches!(broken.reason, Reason::Gap | Reason::Tail), "{broken:?}");
    // And retention takes nothing away that tells of it.
    assert_eq!(wait(store.drop_test_events(FAR)), Ok(DropStep::default()));
}

#[test]
fn without_the_file_that_names_it_a_drop_is_a_loss() {
    let stage = filled();
    let store = stage.open();
    wait(store.drop_test_events(FAR)).unwrap();
    drop(store);
    let kept = stage.read(&test_file("dropped"));
    stage.disk.delete(&test_file("dropped"));
    let missing = (Mode::Test, Finding::MissingSegments { first: 1, last: 1 });
    let store = stage.killed().open();
    assert!(store.findings().contains(&missing), "{:?}", store.findings());
    assert!(verify(&store, test(1)).broken.is_some());
    drop(store);
    let mut damaged = kept.clone();
    damaged[20] ^= 1;
    stage.disk.put(&test_file("dropped"), &damaged);
    let findings = stage.killed().open().findings();
    assert!(findings.contains(&missing) && findings.contains(&(Mode::Test, Finding::DroppedDamaged)));
    // What it names and is not so is found as well: nobody can drop more by writing it.
    stage.disk.put(&test_file("dropped"), &kept);
    assert_eq!(stage.killed().open().findings(), []);
}

#[test]
fn nothing_in_its_directory_lets_a_live_log_drop_anything() {
    let stage = filled();
    let store = stage.open();
    drop_all(&store);
    let before = heads(&store);
    drop(store);
    let forged = stage.read(&test_file("dropped"));
    stage.disk.put(&Path::new(DIR).join("live/dropped"), &forged);
    let store = stage.open();
    assert_eq!(store.findings(), [(Mode::Live, Finding::DroppedOfLive)]);
    assert_valid(&store, live(), 300);
    assert_goes_on(&store, &before, "with a forged file");
}

/// The file that says what was dropped, with another seq for the last event of each chain.
fn dropped_to(file: &[u8], seq: u64) -> Vec<u8> {
    let mut file = file.to_vec();
    for anchor in file[40..].chunks_exact_mut(88) {
        anchor[32..40].copy_from_slice(&seq.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&file[16..]).to_le_bytes();
    file[12..16].copy_from_slice(&checksum);
    file
}

#[test]
fn a_test_chain_is_not_dropped_beyond_its_head_whatever_the_file_says() {
    let stage = filled();
    let store = stage.open();
    drop_all(&store);
    let before = heads(&store);
    drop(store);
    let said = stage.read(&test_file("dropped"));
    stage.disk.put(&test_file("dropped"), &dropped_to(&said, 100_000));
    let store = stage.open();
    for (chain, head) in before.iter().filter(|(chain, _)| chain.mode == Mode::Test) {
        let verdict = verify(&store, *chain);
        assert!(verdict.broken.is_some(), "{chain}: {verdict:?}");
        let end = wait(store.head(*chain)).unwrap().end().chain_seq;
        assert!(end <= head.chain_seq, "{chain} {end}");
        let finding = |finding: &Finding| matches!(finding, Finding::DroppedBeyond { chain: of, dropped: 100_000, .. } if of == chain);
        assert!(store.findings().iter().any(|(_, found)| finding(found)), "{:?}", store.findings());
    }
    assert_valid(&store, live(), 300);
}

#[test]
fn damage_is_evidence_and_stops_retention() {
    let stage = filled();
    let first = test_file("00000001.log");
    stage.flip(&first, 128 + 88 + 100);
    stage.disk.delete(&test_file("00000001.idx"));
    let store = stage.open();
    let broken = verify(&store, test(1)).broken.unwrap();
    assert_eq!(wait(store.drop_test_events(FAR)), Ok(DropStep::default()));
    assert_eq!(verify(&store, test(1)).broken, Some(broken));
}

#[test]
fn readers_and_writers_go_on_while_segments_are_dropped_under_them() {
    let stage = filled();
    let store = stage.open();
    let before = heads(&store);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let finished = || is_done.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !finished() {
                    for project in [1, 2, 3] {
                        // Each way of verifying by itself: events may go between the two, so that
                        // they need not speak of the same ones.
                        assert_eq!(
                            wait(sealog_store::verify::whole(&store, test(project))).unwrap().broken,
                            None
                        );
                        let audited = wait(store.audit(vec![test(project)], Arc::default())).unwrap();
                        assert_eq!(audited.iter().map(|verdict| verdict.broken).collect::<Vec<_>>(), [None]);
                        list(&store, test(project), &Default::default(), None, 1000);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !finished() {
                append(&store, test(2), vec![login("meanwhile")]);
            }
        });
        drop_all(&store);
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    for (chain, head) in before.iter().filter(|(chain, _)| *chain != test(2)) {
        assert_eq!(wait(store.head(*chain)).unwrap().durable, *head);
    }
}
