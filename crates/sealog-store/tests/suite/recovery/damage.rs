//! Damaged frames and records: damage is found at every start, named exactly, and nothing is sealed on an end
//! that is not proven.

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::verify::Reason;
use sealog_store::embedded::{EmbeddedStore, Finding};
use sealog_store::{Store, StoreError};
use sealog_testing::*;

use super::stage::*;

#[test]
fn a_chain_whose_unmarked_last_event_is_damaged_is_refused_although_it_has_earlier_ones_in_the_segment() {
    for place in [IN_HEADER, IN_TEXT] {
        let stage = Stage::new();
        let store = stage.open();
        append(&store, live(), vec![login("x1")]);
        append(&store, live(), vec![login("x2")]);
        append(&store, other(2), vec![login("y1")]);
        let stage = stage.killed();
        let lost = stage.frames(1)[1];
        stage.flip(&log(1), lost.at + place);
        let store = stage.open();
        let (from, to) = (lost.at as u64, (lost.at + lost.length) as u64);
        let found = findings(&store);
        assert!(found.contains(&Finding::Damaged { segment: 1, from, to }), "{found:?}");
        assert_refused(&store, live());
        // It may have been anyone's: a chain that nobody has heard of may have begun there.
        assert_refused(&store, other(9));
        // What stands behind the damage proves its own end.
        append(&store, other(2), vec![login("y2")]);
        assert_valid(&store, other(2), 2);
    }
}

#[test]
fn what_is_unproven_stays_refused_at_every_later_start() {
    for killed in [false, true] {
        let stage = Stage::new();
        append(&stage.open(), live(), vec![login("x1")]);
        let store = stage.open();
        append(&store, live(), vec![login("x2")]);
        append(&store, other(2), vec![login("y1")]);
        let mut stage = stage.killed();
        stage.flip(&log(2), stage.frames(2)[0].at + IN_HEADER);
        for start in 1..=4 {
            let store = stage.open();
            let found = findings(&store);
            assert!(found.contains(&Finding::HeadUnproven { chain: live() }), "start {start}: {found:?}");
            assert_refused(&store, live());
            assert_refused(&store, other(9));
            append(&store, other(2), vec![login("y")]);
            assert_valid(&store, other(2), start + 1);
            if killed {
                stage = stage.killed();
            }
        }
    }
}

#[test]
fn a_damaged_last_record_is_never_sealed_on() {
    let fill = |store: &EmbeddedStore| {
        let one = append(store, live(), vec![login("x1")]);
        let two = append(store, live(), vec![login("x2")]);
        append(store, other(2), vec![login("y1")]);
        (one, two)
    };
    let unmarked = Stage::new();
    let store = unmarked.open();
    let filled = fill(&store);
    for (stage, (one, two)) in [(unmarked.killed(), filled), killed_when_marked(fill)] {
        stage.flip(&log(1), stage.frames(1)[1].at + IN_TEXT);
        for start in 1..=3 {
            let store = stage.open();
            let found = findings(&store);
            let lost = Finding::HeadLost { chain: live(), durable: 1, recorded: 2 };
            assert!(found.contains(&lost), "start {start}: {found:?}");
            let head = wait(store.head(live())).unwrap();
            let intact = Head { chain_seq: 1, log_id: one.log_ids[0], hash: one.hash };
            assert_eq!((head.durable, head.recorded.chain_seq), (intact, 2));
            assert_eq!(wait(store.heads()).unwrap()[0], (live(), intact));
            assert_eq!(broken(verify(&store, live())), (2, two.hash, Reason::Damaged));
            let damaged = wait(store.get(live(), two.log_ids[0]));
            assert_eq!(damaged, Err(StoreError::Damaged { chain_seq: 2 }));
            assert_refused(&store, live());
        }
    }
}

/// Damages an acknowledged event, and has the group behind it torn; what is acknowledged of the chain must
/// not be replaced.
#[track_caller]
fn assert_damage_before_a_torn_group_is_damage(place: usize) {
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("x1")]);
    append(&store, live(), vec![login("x2")]);
    append(&store, other(2), vec![login("y1")]);
    let stage = stage.killed();
    let frames = stage.frames(1);
    // The third group was being written, or its header would not be there; so the second one had been synced,
    // and was acknowledged.
    stage.flip(&log(1), frames[1].at + place);
    stage.flip(&log(1), frames[2].at + IN_TEXT);
    let (from, torn) = (frames[1].at as u64, frames[2].at as u64);
    for start in 1..=3 {
        let store = stage.open();
        let found = findings(&store);
        let tail = Finding::TornTail { segment: 1, offset: torn };
        assert_eq!(found.contains(&tail), start == 1, "start {start}: {found:?}");
        assert!(found.contains(&Finding::Damaged { segment: 1, from, to: torn }), "start {start}: {found:?}");
        assert_refused(&store, live());
    }
}

#[test]
fn damage_before_the_header_of_a_torn_group_is_damage() {
    assert_damage_before_a_torn_group_is_damage(IN_TEXT);
}

#[test]
fn damage_without_a_readable_header_before_a_torn_group_is_damage() {
    assert_damage_before_a_torn_group_is_damage(IN_HEADER);
}

/// Damages the fifth of ten events, looks at it at three starts, and puts the segment back as it was. The
/// store after that, and what it showed at first.
fn damage_and_restore(place: usize) -> (Stage, Vec<StoredEvent>) {
    let stage = Stage::new();
    let store = stage.open();
    let receipts: Vec<_> = (0..10).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
    let shown = everything(&store, live());
    drop(store);
    let whole = stage.read(&log(1));
    let frame = stage.frames(1)[4];
    stage.flip(&log(1), frame.at + place);
    let (from, to) = (frame.at as u64, (frame.at + frame.length) as u64);
    for start in 1..=3 {
        let store = stage.open();
        assert_eq!(findings(&store), [Finding::Damaged { segment: 1, from, to }], "start {start}");
        let damaged = wait(store.get(live(), receipts[4].log_ids[0]));
        assert_eq!(damaged, Err(StoreError::Damaged { chain_seq: 5 }), "start {start}");
        assert_eq!(broken(verify(&store, live())), (5, receipts[4].hash, Reason::Damaged));
        assert_eq!(seqs(&store, live()), [10, 9, 8, 7, 6, 4, 3, 2, 1]);
    }
    stage.disk.put(&log(1), &whole);
    (stage, shown)
}

#[test]
fn damage_is_found_again_at_every_start_until_the_segment_is_restored() {
    for place in [IN_HEADER, IN_TEXT] {
        let (stage, shown) = damage_and_restore(place);
        for events in 10..12 {
            let store = stage.open();
            assert_valid(&store, live(), events);
            for event in &shown {
                assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event));
            }
            append(&store, live(), vec![login("next")]);
            assert_valid(&store, live(), events + 1);
        }
    }
}

#[test]
fn a_restored_segment_is_no_finding() {
    for place in [IN_HEADER, IN_TEXT] {
        let (stage, _) = damage_and_restore(place);
        for _ in 0..2 {
            assert_eq!(findings(&stage.open()), []);
        }
    }
}

/// Damages the frame of one chain, whose head the mark knows, and has all others go on.
#[track_caller]
fn assert_a_damaged_marked_frame_stops_its_own_chain_only(place: usize, is_last: bool) {
    let (stage, one) = killed_when_marked(|store| {
        let one = append(store, live(), vec![login("x")]);
        append(store, other(2), vec![login("y")]);
        if !is_last {
            append(store, other(3), vec![login("z")]);
        }
        one
    });
    stage.flip(&log(1), stage.frames(1)[1].at + place);
    for start in 1..=3 {
        let store = stage.open();
        let found = findings(&store);
        let lost = Finding::HeadLost { chain: other(2), durable: 0, recorded: 1 };
        assert!(found.contains(&lost), "start {start}: {found:?}");
        assert_refused(&store, other(2));
        let heads = wait(store.heads()).unwrap();
        assert!(heads.iter().all(|(chain, _)| *chain != other(2)), "start {start}: {heads:?}");
        assert!(start > 1 || heads[0].1.hash == one.hash, "{heads:?}");
        for chain in [live(), other(3), other(4)] {
            let appended = try_append(&store, chain, vec![login("goes on")]);
            assert!(appended.is_ok(), "start {start}: {appended:?} {found:?}");
            assert!(verify(&store, chain).valid(), "start {start}");
        }
    }
}

#[test]
fn one_damaged_marked_frame_stops_its_own_chain_only() {
    for (place, is_last) in [(IN_TEXT, true), (IN_TEXT, false), (IN_HEADER, false)] {
        assert_a_damaged_marked_frame_stops_its_own_chain_only(place, is_last);
    }
}

#[test]
fn the_last_marked_frame_stops_its_own_chain_only_even_if_its_header_is_damaged() {
    assert_a_damaged_marked_frame_stops_its_own_chain_only(IN_HEADER, true);
}

#[test]
fn of_two_damaged_events_in_a_row_the_hash_that_is_named_is_the_recorded_heads() {
    let stage = Stage::new();
    let store = stage.open();
    let receipts: Vec<_> = (0..10).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
    drop(store);
    drop(stage.open());
    let frames = stage.frames(1);
    stage.flip(&log(1), frames[4].at + IN_TEXT);
    stage.flip(&log(1), frames[5].at + IN_TEXT);
    let store = stage.open();
    let verdict = verify(&store, live());
    assert_eq!(broken(verdict), (5, receipts[9].hash, Reason::Damaged));
    // Where the next event is whole, it names the hash.
    assert_eq!(broken(verify_window(&store, live(), 6, 10)), (6, receipts[5].hash, Reason::Damaged));
}

/// Makes the annotations of a record what a later version may write, and its checksum right.
fn annotate_as_a_later_version(stage: &Stage, segment: u64, frame: FrameAt) {
    let mut bytes = stage.read(&log(segment));
    let record = frame.at + FRAME_HEADER;
    let end = record + u32_at(&bytes, record) as usize - 4;
    assert!(u32_at(&bytes, record + 4) > 0, "it has annotations");
    bytes[record + 88] = 2;
    let mut seed = bytes[24..40].to_vec();
    seed.extend_from_slice(&frame.chain);
    seed.extend_from_slice(&frame.last_seq.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&seed), &bytes[record..end]);
    bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    stage.disk.put(&log(segment), &bytes);
}

/// Leaves an event that a later version may have written at the end of a log, behind an event in the same
/// segment, in the one before, or none.
fn end_with_unknown_annotations(before: &str) -> Stage {
    let stage = Stage::new();
    let mut store = stage.open();
    if before != "nothing" {
        append(&store, live(), vec![login("known")]);
    }
    if before == "an event in the segment before" {
        drop(store);
        store = stage.open();
    }
    append(&store, live(), vec![login("unknown")]);
    let stage = stage.killed();
    let segment = *stage.segments().last().unwrap();
    annotate_as_a_later_version(&stage, segment, *stage.frames(segment).last().unwrap());
    stage
}

#[test]
fn unknown_annotations_in_an_unmarked_last_group_do_not_stop_a_start() {
    for before in ["nothing", "an event in the segment", "an event in the segment before"] {
        let stage = end_with_unknown_annotations(before);
        for _ in 0..2 {
            let store = stage.open();
            assert_eq!(store.ready(), Ok(()), "{before}");
            assert_eq!(everything(&store, live()).len(), usize::from(before != "nothing"), "{before}");
        }
    }
}

#[test]
fn an_event_with_unknown_annotations_is_never_replaced() {
    for before in ["nothing", "an event in the segment", "an event in the segment before"] {
        let stage = end_with_unknown_annotations(before);
        for start in 1..=3 {
            let store = stage.open();
            let found = findings(&store);
            let damaged = |finding: &Finding| matches!(finding, Finding::Damaged { .. });
            assert!(found.iter().any(damaged), "{before}, start {start}: {found:?}");
            assert_refused(&store, live());
        }
    }
}
