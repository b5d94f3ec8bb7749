//! What a copy of a store is made of, on a disk in memory that loses what was not synced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_store::Store;
use sealog_store::embedded::backup::{
    CopyEnd, SegmentContents, Walk, Wanted, read_mark, segment_file_name, write_mark,
};
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::segments::{LogCut, Segments};
use sealog_testing::sim::{DIR, SimDisk};
use sealog_testing::*;

fn options(disk: &SimDisk, world: &Arc<StillWorld>) -> Options {
    Options { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, tick: Duration::from_millis(5), ..small(world) }
}

fn open(disk: &SimDisk, world: &Arc<StillWorld>) -> EmbeddedStore {
    EmbeddedStore::open(Path::new(DIR), &options(disk, world)).unwrap()
}

/// The bytes of a cut, as a backup copies them.
fn copy(store: &EmbeddedStore, cut: &LogCut) -> Vec<Vec<u8>> {
    let read = |number, bytes: u64| {
        store.read_segment(cut.mode, number, 0, usize::try_from(bytes).unwrap()).unwrap()
    };
    cut.segments.iter().map(|segment| read(segment.number, segment.bytes)).collect()
}

/// Where every chain ends in copied bytes, in which nothing may be wrong.
fn walked(copies: &[Vec<u8>]) -> BTreeMap<ChainId, Head> {
    let mut walk = Walk::default();
    for copy in copies {
        let contents = SegmentContents::read(copy, true, &Wanted::default()).unwrap();
        assert_eq!((contents.damage.len(), contents.end), (0, copy.len() as u64));
        walk.add(contents);
    }
    let ended = walk.finish();
    assert!(ended.values().all(|ended| ended.broken.is_none()), "{ended:?}");
    ended.into_iter().map(|(chain, ended)| (chain, ended.head)).collect()
}

#[test]
fn a_cut_under_load_has_what_was_acknowledged_and_nothing_that_a_power_cut_takes_away() {
    let mut dice = Dice::new(seed("a_cut_under_load"));
    let world = StillWorld::random_at(MORNING_MS);
    let mut disk = SimDisk::new();
    let (mut cuts, mut events) = (0, 0);
    for cycle in 0..6 {
        let store = open(&disk, &world);
        let (enough, acked) = (AtomicBool::new(false), Mutex::new(0));
        let (before, copies, rest) = std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    if enough.load(Ordering::SeqCst) {
                        return;
                    }
                    let receipt = append(&store, live(), vec![login(&format!("{cycle}-{n}")); 3]);
                    *acked.lock().unwrap() = receipt.first_seq + 2;
                }
            });
            let wanted = *acked.lock().unwrap() + 30 + dice.below(200);
            eventually("events come", || *acked.lock().unwrap() >= wanted);
            let before = *acked.lock().unwrap();
            let [live_cut, test_cut] = store.cut();
            // The power goes while the load goes on.
            let rest = disk.after_power_cut(&mut dice);
            let copies = copy(&store, &live_cut);
            enough.store(true, Ordering::SeqCst);
            assert!(test_cut.lost.is_empty() && test_cut.dropped.is_none());
            (before, copies, rest)
        });
        drop(store);
        let heads = walked(&copies);
        assert!(heads[&live()].chain_seq >= before, "what was acknowledged before the cut is in it");
        disk = rest;
        let recovered = open(&disk, &world);
        let head = wait(recovered.head(live())).unwrap().durable;
        assert!(head.chain_seq >= heads[&live()].chain_seq, "what is in the cut is durable");
        let same = range(&recovered, live(), heads[&live()].chain_seq, heads[&live()].chain_seq, 1 << 20);
        let sealog_core::verify::Item::Event(event) = &same[0] else { panic!("{same:?}") };
        assert_eq!(event.head(), heads[&live()]);
        cuts += 1;
        events += heads[&live()].chain_seq;
        drop(recovered);
    }
    println!("cuts={cuts} events={events} lost=0 not_durable=0");
}

#[test]
fn copied_segments_with_a_mark_are_a_store_and_a_newer_head_in_the_mark_is_a_loss() {
    let world = StillWorld::random_at(MORNING_MS);
    let disk = SimDisk::new();
    let store = open(&disk, &world);
    let test = chain(1, 1, Mode::Test);
    for n in 0..200 {
        append(&store, live(), vec![login(&format!("u{n}")); 5]);
        append(&store, test, vec![login(&format!("u{n}"))]);
    }
    let cuts = store.cut();
    let copies = [copy(&store, &cuts[0]), copy(&store, &cuts[1])];
    let later = append(&store, live(), vec![login("later")]);
    let newer = Head { chain_seq: later.first_seq, log_id: later.log_ids[0], hash: later.hash };
    drop(store);
    for (known, is_lost) in [(None, false), (Some(newer), true)] {
        let target = SimDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(target.clone());
        for (cut, copies) in cuts.iter().zip(&copies) {
            let dir = Path::new(DIR).join(cut.mode.as_str());
            for (segment, content) in cut.segments.iter().zip(copies) {
                target.put(&dir.join(segment_file_name(segment.number)), content);
            }
            let mut heads = walked(copies);
            if let Some(known) = known.filter(|_| cut.mode == Mode::Live) {
                heads.insert(live(), known);
            }
            let last = cut.segments.last().unwrap();
            let end =
                CopyEnd { commit: cut.commit, segment: last.number, offset: last.bytes, unproven_to: None };
            write_mark(&shared, &dir, cut.mode, end, &heads, MORNING_MS).unwrap();
            assert_eq!(read_mark(&shared, &dir, cut.mode).unwrap().unwrap().heads, heads);
        }
        let store = open(&target, &world);
        assert_eq!(wait(store.head(live())).unwrap().durable.chain_seq, 1000);
        assert_eq!(!wait(store.losses()).unwrap().is_empty(), is_lost);
        if is_lost {
            assert!(try_append(&store, live(), vec![login("hidden")]).is_err(), "nothing hides the loss");
            wait(store.accept_loss(live(), "restored".into())).unwrap();
        }
        append(&store, live(), vec![login("next")]);
        assert!(verify(&store, live()).valid() && verify(&store, test).valid());
    }
}

#[test]
fn one_flipped_bit_in_a_copied_segment_is_damage_or_a_broken_chain_wherever_it_is() {
    let world = StillWorld::random_at(MORNING_MS);
    let disk = SimDisk::new();
    let store = open(&disk, &world);
    for n in 0..20 {
        append(&store, live(), vec![login(&format!("u{n}")); 2]);
    }
    let [cut, _] = store.cut();
    let copies = copy(&store, &cut);
    let wanted = walked(&copies);
    let mut dice = Dice::new(seed("one_flipped_bit"));
    for _ in 0..200 {
        let mut changed = copies.clone();
        let at = usize::try_from(dice.below(changed[0].len() as u64)).unwrap();
        changed[0][at] ^= 1 << dice.below(8);
        let Some(contents) = SegmentContents::read(&changed[0], true, &Wanted::default()) else { continue };
        let is_damaged = !contents.damage.is_empty();
        let mut walk = Walk::default();
        walk.add(contents);
        let ended = walk.finish();
        let is_broken = ended.values().any(|ended| ended.broken.is_some());
        let heads: BTreeMap<ChainId, Head> =
            ended.into_iter().map(|(chain, ended)| (chain, ended.head)).collect();
        assert!(is_damaged || is_broken || heads != wanted, "byte {at} of {}", changed[0].len());
    }
}
