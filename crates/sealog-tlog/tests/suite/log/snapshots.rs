//! Snapshots: what they publish, when, and how far a crash gets.

use std::sync::{Arc, Barrier};

use sealog_store::StoreError;
use sealog_store::world::World;
use sealog_testing::MORNING_MS;
use sealog_tlog::log::*;
use sealog_trust::entry::{Entry, KeyChange, Role};
use sealog_trust::heads::{Head, verify_absent, verify_present};
use sealog_trust::leaf::Tag;
use sealog_trust::merkle;

use super::stage::*;

on_both! {
    the_first_start_begins_a_log_whose_first_tree_is_signed
    a_snapshot_is_made_every_interval_also_when_nothing_happened
    a_snapshot_proves_each_head_and_the_absence_of_others
    everything_that_is_served_leads_to_the_signed_root
    a_crash_at_any_step_of_a_snapshot_publishes_a_consistent_extension_or_nothing
    of_signers_that_see_the_same_tree_one_extends_it
    times_never_decrease_and_a_clock_that_was_set_back_stops_no_snapshot
    no_snapshot_is_made_before_the_trees_are_complete
    entries_and_signed_checkpoints_are_never_changed
    a_snapshot_publishes_10000_changed_chains_at_once
}

fn entries(log: &StoreLog) -> Vec<Entry> {
    let (_, entries) = fetch(log, &vkey(log));
    entries.iter().map(|entry| Entry::parse(entry).unwrap()).collect()
}

fn the_first_start_begins_a_log_whose_first_tree_is_signed(stage: &mut Stage) {
    let signer = stage.signer();
    assert_eq!(signer.state(), State::Signing);
    let found = entries(signer.log());
    let place = signer.log().place().unwrap().unwrap();
    let Entry::Genesis { origin, time_ms, interval_s, max_delay_s, previous } = &found[0] else {
        panic!("{found:?}")
    };
    assert_eq!((origin, *time_ms, previous), (&place.origin, MORNING_MS, &None));
    assert_eq!((*interval_s, *max_delay_s), (60, 600));
    assert!(origin.starts_with("sealog/") && origin.len() == "sealog/".len() + 32, "{origin}");
    let key = |entry: &Entry| match entry {
        Entry::Key { role, change: KeyChange::Add, key, .. } => (*role, key.name().to_owned()),
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&found[1]), (Role::Log, origin.clone()));
    assert_eq!(key(&found[2]), (Role::Service, format!("{origin}/service")));
    assert_eq!(found.len(), 3);
    // A host that was set is the log's name, and a setting goes before it.
    for (origin, host, expected) in [
        (None, Some("log.example:8443/a"), "log.example:8443/a/tlog/v1/store"),
        (Some("mine.example/log"), Some("log.example"), "mine.example/log"),
    ] {
        let other = Stage::embedded();
        let settings =
            Settings { origin: origin.map(str::to_owned), host: host.map(str::to_owned), ..other.settings() };
        let signer = other.signer_with(settings, &Arc::default()).unwrap();
        assert_eq!(signer.log().place().unwrap().unwrap().origin, expected);
    }
}

fn a_snapshot_is_made_every_interval_also_when_nothing_happened(stage: &mut Stage) {
    let signer = stage.signer();
    let turn = |heads: &[TreeHead]| signer.turn(&Heads::of(heads)).unwrap();
    assert!(matches!(turn(&[head(1, 5)]), Turn::Made { .. }), "the first is due at once");
    assert!(matches!(turn(&[]), Turn::Early(60_000)));
    stage.world.advance(59_999);
    assert!(matches!(turn(&[]), Turn::Early(1)));
    stage.world.advance(1);
    let Turn::Made { signed, .. } = turn(&[]) else { panic!() };
    assert_eq!((signed.tree.size, checkpoint(&signed.note).size), (5, 5));
    let found = entries(signer.log());
    let heads: Vec<_> = found
        .iter()
        .filter_map(|entry| match entry {
            Entry::Heads { time_ms, root } => Some((*time_ms, *root)),
            _ => None,
        })
        .collect();
    assert_eq!(
        heads.iter().map(|(time_ms, _)| *time_ms).collect::<Vec<_>>(),
        [MORNING_MS, MORNING_MS + 60_000]
    );
    assert_ne!(heads[0].1, heads[1].1, "the same heads have another root each time");
    stage.world.advance(7_000);
    assert_eq!(signer.figures().signed_ms, MORNING_MS + 60_000);
}

fn proof(log: &StoreLog, n: u64, at: Option<u64>) -> HeadProof {
    match log.head_proof(Tag::of(chain(n)), at).unwrap() {
        AtSnapshot::Is(proof) => proof,
        other => panic!("{other:?}"),
    }
}

/// Verifies a proof as a stranger does, from the head up to the signed root; its size, none for an absence.
fn verified(log: &StoreLog, n: u64, at: Option<u64>) -> Option<u64> {
    let (HeadProof { index, time_ms, trie_root, found }, tag) = (proof(log, n, at), Tag::of(chain(n)));
    let size = match found {
        Found::Present { size, root, blind, path } => {
            verify_present(&Head { tag, size, root, blind }, &trie_root, &path).unwrap();
            assert_eq!(root, head(n, size).root);
            Some(size)
        }
        Found::Absent { path, foreign } => {
            verify_absent(&tag, &trie_root, &path, foreign.as_ref()).unwrap();
            None
        }
    };
    let entry = Entry::Heads { time_ms, root: trie_root }.to_text().unwrap();
    let (checkpoint, _) = fetch(log, &vkey(log));
    let path = log.inclusion(index, checkpoint.size).unwrap().unwrap();
    let leaf = merkle::leaf_hash(entry.as_bytes());
    merkle::verify_inclusion(leaf, index, checkpoint.size, &checkpoint.root, &path).unwrap();
    size
}

fn a_snapshot_proves_each_head_and_the_absence_of_others(stage: &mut Stage) {
    let signer = stage.signer();
    let log = signer.log();
    assert_eq!(log.head_proof(Tag::of(chain(1)), None).unwrap(), AtSnapshot::Unknown);
    let first = make(stage, &signer, &[head(1, 5), head(2, 7), head(3, 0)]).tree.size - 1;
    let second = make(stage, &signer, &[head(1, 6), head(2, 7), head(4, 1)]).tree.size - 1;
    // A new process builds the tries from the history.
    for log in [Arc::clone(log), stage.log()] {
        let sizes = |at| (1..=5).map(|n| verified(&log, n, at)).collect::<Vec<_>>();
        assert_eq!(sizes(Some(first)), [Some(5), Some(7), None, None, None]);
        assert_eq!(sizes(Some(second)), [Some(6), Some(7), None, Some(1), None]);
        assert_eq!(sizes(None), sizes(Some(second)));
        // Neither an entry of another kind nor one that is not there yet is a snapshot.
        for at in [0, second + 1, u64::MAX >> 1] {
            assert_eq!(log.head_proof(Tag::of(chain(1)), Some(at)).unwrap(), AtSnapshot::Unknown);
        }
    }
    let published = log.published_of(chain(1)).unwrap().unwrap();
    assert_eq!((published.size, published.event_hash, published.index), (6, head(1, 6).event_hash, second));
    assert_eq!(log.published_of(chain(9)).unwrap(), None);
}

fn everything_that_is_served_leads_to_the_signed_root(stage: &mut Stage) {
    let signer = stage.signer();
    let log = signer.log();
    // Across the edge of a tile and of the level above.
    let mut kept = Vec::new();
    while log.place().unwrap().unwrap().tree.size < 260 {
        kept.push(checkpoint(&make(stage, &signer, &[]).note));
    }
    let (newest, entries) = fetch(log, &vkey(log));
    assert_eq!((newest.size, entries.len()), (260, 260));
    for old in &kept {
        let path = log.consistency(old.size, newest.size).unwrap().unwrap();
        merkle::verify_consistency(old.size, &old.root, newest.size, &newest.root, &path).unwrap();
        let path = log.inclusion(old.size - 1, old.size).unwrap().unwrap();
        let leaf = merkle::leaf_hash(&entries[usize::try_from(old.size - 1).unwrap()]);
        merkle::verify_inclusion(leaf, old.size - 1, old.size, &old.root, &path).unwrap();
        let at = log.checkpoint_at(old.size - 1).unwrap().unwrap();
        assert_eq!(checkpoint(&at.note), *old);
    }
    for (index, size) in [(260, 260), (0, 261), (5, 5), (0, 0)] {
        assert_eq!(log.inclusion(index, size).unwrap(), None, "{index} of {size}");
    }
    assert_eq!(log.consistency(2, 1).unwrap(), None);
    assert_eq!((log.entry(259).unwrap().is_some(), log.entry(260).unwrap()), (true, None));
    let tile = |path: &str| log.tile(sealog_trust::tile::Tile::parse(path).unwrap()).unwrap();
    for path in ["tile/0/001.p/5", "tile/1/001", "tile/1/000.p/2", "tile/2/000.p/1", "tile/entries/001.p/5"] {
        assert_eq!(tile(path), None, "{path}");
    }
    assert_eq!(tile("tile/0/001.p/3").unwrap().len(), 96, "a narrower tile is a prefix");
}

fn a_crash_at_any_step_of_a_snapshot_publishes_a_consistent_extension_or_nothing(stage: &mut Stage) {
    let collector = Arc::<Collector>::default();
    let open = || stage.signer_with(stage.settings(), &collector).unwrap();
    make(stage, &open(), &[head(1, 1)]);
    for (n, moment) in [Moment::HeadsBuilt, Moment::Extended, Moment::Copied, Moment::Signed, Moment::Kept]
        .into_iter()
        .enumerate()
    {
        let signer = open();
        let before = signer.log().newest().unwrap().unwrap();
        stage.pass();
        collector.crash_at(Some(moment));
        let heads = Heads::of(&[head(1, n as u64 + 2)]);
        assert!(signer.turn(&heads).is_err(), "{moment:?}");
        collector.crash_at(None);
        let after_crash = signer.log().newest().unwrap().unwrap();
        assert_eq!(after_crash == before, moment != Moment::Kept, "{moment:?}");
        drop(signer);
        let signer = open();
        assert_eq!(signer.state(), State::Signing, "{moment:?}");
        let turn = signer.turn(&heads).unwrap();
        match moment {
            Moment::HeadsBuilt => assert!(matches!(turn, Turn::Made { .. }), "{turn:?}"),
            Moment::Kept => assert!(matches!(turn, Turn::Early(_)), "{turn:?}"),
            _ => assert!(matches!(turn, Turn::CaughtUp(_)), "{moment:?} {turn:?}"),
        }
        assert_eq!(verified(signer.log(), 1, None), Some(n as u64 + 2), "{moment:?}");
    }
    // One text for each size that was ever signed.
    let mut notes = collector.notes.lock().unwrap().clone();
    notes.sort();
    notes.dedup();
    let mut sizes: Vec<u64> = notes.iter().map(|note| checkpoint(note).size).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, (3..=9).collect::<Vec<_>>());
}

fn of_signers_that_see_the_same_tree_one_extends_it(stage: &mut Stage) {
    const SIGNERS: usize = 4;
    const ROUNDS: u64 = 5;
    let collector = Arc::<Collector>::default();
    let signers: Vec<_> =
        (0..SIGNERS).map(|_| stage.signer_with(stage.settings(), &collector).unwrap()).collect();
    let first = signers[0].log().place().unwrap().unwrap().tree.size;
    for round in 1..=ROUNDS {
        stage.pass();
        let together = Barrier::new(SIGNERS);
        let turn = |signer: &Arc<Signer>| {
            let place = signer.log().place().unwrap().unwrap();
            let time_ms = stage.world.now_ms();
            together.wait();
            signer.log().snapshot(&place, time_ms, &[head(1, round)]).unwrap().is_some()
        };
        let made: usize = std::thread::scope(|scope| {
            let turn = &turn;
            let threads: Vec<_> = signers.iter().map(|signer| scope.spawn(move || turn(signer))).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(made, 1, "in round {round}");
        // All of them sign it, with the same signature.
        for signer in &signers {
            assert!(!matches!(signer.turn(&Heads::default()).unwrap(), Turn::Made { .. }));
        }
        assert_eq!(signers[0].log().newest().unwrap().unwrap().tree.size, first + round);
    }
    let notes = collector.notes.lock().unwrap();
    for note in notes.iter() {
        let of_size: Vec<_> =
            notes.iter().filter(|other| checkpoint(other).size == checkpoint(note).size).collect();
        assert!(of_size.iter().all(|other| *other == note));
    }
}

fn times_never_decrease_and_a_clock_that_was_set_back_stops_no_snapshot(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[]);
    stage.world.leap(-3_600_000);
    assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::Early(_)));
    for _ in 0..2 {
        stage.pass();
        assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::Made { .. }));
    }
    let times: Vec<u64> = entries(signer.log())
        .iter()
        .filter_map(|entry| match entry {
            Entry::Heads { time_ms, .. } => Some(*time_ms),
            _ => None,
        })
        .collect();
    assert_eq!(times, [MORNING_MS + 60_000; 3]);
}

fn no_snapshot_is_made_before_the_trees_are_complete(stage: &mut Stage) {
    struct Building;
    impl HeadSource for Building {
        fn heads(&self) -> Result<Option<Vec<TreeHead>>, StoreError> {
            Ok(None)
        }
    }
    let signer = stage.signer();
    assert!(matches!(signer.turn(&Building).unwrap(), Turn::Building));
    assert_eq!(signer.log().place().unwrap().unwrap().heads_index, None);
}

fn entries_and_signed_checkpoints_are_never_changed(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    for (sql, is_refused) in [
        ("UPDATE {entries} SET entry = entry WHERE idx = 0", true),
        ("DELETE FROM {entries} WHERE idx = 0", true),
        ("UPDATE {checkpoints} SET note = note", true),
        ("DELETE FROM {checkpoints} WHERE size = 1", false),
    ] {
        let refused = stage.change(sql).is_err();
        assert_eq!(refused, is_refused, "{sql}");
    }
}

fn a_snapshot_publishes_10000_changed_chains_at_once(stage: &mut Stage) {
    const CHAINS: u64 = 10_000;
    let signer = stage.signer();
    let heads = |size| (0..CHAINS).map(|n| head(n, size)).collect::<Vec<_>>();
    make(stage, &signer, &heads(1));
    let heads = heads(2);
    let begun = std::time::Instant::now();
    make(stage, &signer, &heads);
    let took = begun.elapsed();
    println!("a snapshot with {CHAINS} changed chains took {took:?}");
    assert_eq!(verified(signer.log(), CHAINS - 1, None), Some(2));
    // A debug build on a machine that does other things.
    assert!(took < std::time::Duration::from_secs(60), "{took:?}");
}
