//! The high-water mark: what it may claim, and what a start makes of a log that is shorter, longer or other
//! than its mark.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, ProjectId, Random80, Ulid, Uuid};
use sealog_core::verify::Reason;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::{Append, Store, StoreError};
use sealog_testing::sim::{DIR, Op};
use sealog_testing::*;

use super::stage::*;

/// Fills most of a segment, then has a group begin the next one and refuse its only request. The mark speaks
/// for all of it when this returns.
fn refuse_a_group_that_begins_a_segment(stage: &Stage, store: &EmbeddedStore) {
    append(store, live(), vec![big(40_000)]);
    let stray = Head { chain_seq: 7, log_id: Ulid(5), hash: Hash([1; 32]) };
    let large = big(30_000);
    let sealed = stray.seal(other(2).tenant_id, &large.text, MORNING_MS, Random80([1; 10]));
    let refused = wait(store.import(other(2), vec![StoredEvent::new(other(2), sealed, large)], None));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    // Only when the group was taken for durable does a mark name the segment that it has begun.
    eventually("the mark is written", || stage.marks().last().is_some_and(|mark| mark.segment == 2));
}

#[test]
fn a_group_whose_requests_were_all_refused_and_that_begins_a_segment_leaves_no_commit_behind() {
    let stage = Stage::new();
    let store = stage.open_ticking(5);
    refuse_a_group_that_begins_a_segment(&stage, &store);
    let killed = stage.killed();
    drop(store);
    for stage in [killed, stage] {
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("two")]);
        append(&store, other(9), vec![login("new")]);
        assert_valid(&store, live(), 2);
    }
}

#[test]
fn a_group_that_was_not_synced_is_never_taken_for_durable_because_a_refused_one_stood_before_it() {
    for dice in 0..20 {
        let stage = Stage::new();
        let store = stage.open_ticking(5);
        refuse_a_group_that_begins_a_segment(&stage, &store);
        stage.disk.fail_sync_of(&log(2));
        let failed = try_append(&store, live(), vec![login("two")]);
        assert!(matches!(failed, Err(StoreError::Poisoned(_))), "{failed:?}");
        // The next process sees the group in the page cache and builds on it, which is fine if it makes it
        // durable first.
        let restarted = stage.killed();
        let store = restarted.open();
        assert_eq!(findings(&store), []);
        let acknowledged = append(&store, live(), vec![login("three")]);
        let cut = Stage {
            disk: restarted.disk.after_power_cut(&mut Dice::new(dice)),
            world: Arc::clone(&restarted.world),
        };
        let store = cut.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), acknowledged.first_seq);
        assert!(get(&store, live(), acknowledged.log_ids[0]).is_some());
    }
}

#[test]
fn chains_of_a_log_that_was_shorter_than_its_mark_stay_refused_at_every_later_start() {
    for killed in [false, true] {
        let (mut stage, ()) = killed_when_marked(|store| {
            append(store, other(2), vec![login("y1")]);
            for n in 1..=5 {
                append(store, live(), vec![login(&format!("x{n}"))]);
            }
        });
        let cut = stage.frames(1)[3].at;
        stage.disk.put(&log(1), &stage.read(&log(1))[..cut]);
        for start in 1..=4 {
            let store = stage.open();
            let found = findings(&store);
            let short = Finding::ShorterThanMark { commit: 3, marked: 6 };
            assert_eq!(found.contains(&short), start == 1, "start {start}: {found:?}");
            let lost = Finding::HeadLost { chain: live(), durable: 2, recorded: 5 };
            assert!(found.contains(&lost), "start {start}: {found:?}");
            // Nothing of it is missing that the mark knew of. But behind the mark there may have been more.
            let unproven = Finding::HeadUnproven { chain: other(2) };
            assert!(found.contains(&unproven), "start {start}: {found:?}");
            for chain in [live(), other(2), other(9)] {
                assert_refused(&store, chain);
            }
            let (at, _, reason) = broken(verify(&store, live()));
            assert_eq!((at, reason), (3, Reason::Tail), "start {start}");
            if killed {
                stage = stage.killed();
            }
        }
    }
}

#[test]
fn a_damaged_header_of_a_segment_that_the_mark_only_begins_to_cover_refuses_its_chains() {
    let stage = Stage::new();
    append(&stage.open(), live(), vec![login("x1")]);
    let store = stage.open();
    append(&store, live(), vec![login("x2")]);
    let stage = stage.killed();
    stage.flip(&log(2), 50);
    for _ in 0..3 {
        let store = stage.open();
        let found = findings(&store);
        assert!(found.contains(&Finding::DamagedHeader { segment: 2 }), "{found:?}");
        assert!(found.contains(&Finding::HeadUnproven { chain: live() }), "{found:?}");
        assert_refused(&store, live());
        assert_refused(&store, other(9));
    }
}

#[test]
fn a_damaged_record_in_the_middle_of_the_mark_is_a_finding_and_the_records_behind_it_count() {
    let stage = Stage::new();
    let store = stage.open_ticking(1);
    for n in 1..=10 {
        append(&store, live(), vec![login(&format!("a{n}"))]);
        let has_head = |mark: &MarkRecord| mark.heads.iter().any(|(_, head)| *head >= n);
        eventually("the mark has the head", || stage.marks().iter().any(has_head));
    }
    drop(store);
    let mark = live_file("mark");
    let second = 16 + u32_at(&stage.read(&mark), 16) as usize;
    stage.flip(&mark, second + 12);
    let cut = stage.frames(1)[4].at;
    stage.disk.put(&log(1), &stage.read(&log(1))[..cut]);
    let store = stage.open();
    let found = findings(&store);
    assert!(found.contains(&Finding::MarkDamaged), "{found:?}");
    assert!(found.contains(&Finding::HeadLost { chain: live(), durable: 4, recorded: 10 }), "{found:?}");
    assert_refused(&store, live());
}

#[test]
fn a_mark_never_claims_more_of_the_log_than_it_has_heads_for() {
    let stage = Stage::new();
    let options = Options {
        tick: Duration::from_micros(200),
        segment_bytes_first: 1 << 20,
        segment_bytes_max: 1 << 20,
        group_bytes_max: 1 << 20,
        ..stage.options()
    };
    let store = stage.try_open(&options).unwrap();
    // A mark that has grown long is replaced by a short one; each is kept.
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let (disk, keep) = (stage.disk.clone(), Arc::clone(&replaced));
    stage.disk.watch(move |call| {
        if call.is(Op::Rename, "live/mark") {
            keep.lock().unwrap().push(disk.content(call.path).unwrap());
        }
        Ok(())
    });
    let marks_so_far = || {
        let before: usize = replaced.lock().unwrap().iter().map(|bytes| mark_records(bytes).len()).sum();
        before + stage.marks().len()
    };
    let mut events = 0u32;
    while events < 20_000 || marks_so_far() <= 20 {
        // Many chains in a group, so that publishing it takes a while.
        let waiting: Vec<_> = (0..1000u16)
            .map(|number| {
                let mut project = [0; 16];
                project[..2].copy_from_slice(&(number % 400).to_be_bytes());
                let chain = ChainId { project_id: ProjectId(Uuid(project)), ..live() };
                store.append(Append { chain, drafts: vec![login("a")], idempotency: None })
            })
            .collect();
        for answer in waiting {
            wait(answer).unwrap();
            events += 1;
        }
    }
    let frames: BTreeMap<(u64, usize), FrameAt> = stage
        .segments()
        .into_iter()
        .flat_map(|segment| stage.frames(segment).into_iter().map(move |frame| ((segment, frame.at), frame)))
        .collect();
    let mut frames = frames.into_iter().peekable();
    let (mut in_log, mut in_mark) = (HashMap::new(), HashMap::new());
    stage.disk.unwatch();
    replaced.lock().unwrap().push(stage.read(&live_file("mark")));
    let marks: Vec<MarkRecord> =
        replaced.lock().unwrap().iter().flat_map(|bytes| mark_records(bytes)).collect();
    for mark in &marks {
        in_mark.extend(mark.heads.iter().copied());
        while let Some((_, frame)) = frames.next_if(|(place, _)| *place < (mark.segment, mark.offset)) {
            assert!(frame.commit <= mark.commit, "{frame:?} lies before the end that {mark:?} claims");
            in_log.insert(frame.chain, frame.last_seq);
        }
        let behind = in_log.iter().filter(|(chain, seq)| in_mark.get(*chain).is_none_or(|head| head < *seq));
        assert_eq!(behind.count(), 0, "of {} chains, after {events} events", in_log.len());
    }
    assert!(marks.len() > 20, "{} marks for {events} events", marks.len());
}

#[test]
fn the_mark_catches_up_with_the_log_when_nothing_more_is_written() {
    /// Enough that a mark comes between the heads of a group and its end in some of them.
    const ROUNDS: u32 = 150;
    let stage = Stage::new();
    let options = Options { tick: Duration::from_micros(50), ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let mut commit = 0;
    for _ in 0..ROUNDS {
        // Many chains, so that a mark has time to come between the heads of a group and its end.
        let waiting: Vec<_> = (0..100)
            .map(|n| store.append(Append { chain: other(n), drafts: vec![login("a")], idempotency: None }))
            .collect();
        waiting.into_iter().for_each(|answer| drop(wait(answer).unwrap()));
        let segment = *stage.segments().last().unwrap();
        commit = stage.frames(segment).last().map_or(commit, |frame| frame.commit);
        eventually("the mark speaks for it", || stage.marks().last().unwrap().commit >= commit);
    }
}

#[test]
fn a_log_that_has_grown_since_its_mark_is_no_finding() {
    let (stage, _) = killed_when_marked(|store| append(store, live(), vec![login("marked")]));
    let store = stage.open();
    for n in 0..10 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let stage = stage.killed();
    drop(store);
    let store = stage.open();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 11);
    append(&store, live(), vec![login("goes on")]);
}

#[test]
fn a_start_looks_at_one_event_of_each_chain_that_has_grown_since_the_mark_and_at_none_of_the_others() {
    let reads = |chains: u8, grown: u8| {
        let (stage, ()) = killed_when_marked(|store| {
            for number in 1..=chains {
                append(store, other(number), vec![login("marked")]);
            }
        });
        let store = stage.open();
        for number in 1..=grown {
            append(&store, other(number), vec![login("grown")]);
        }
        let stage = stage.killed();
        drop(store);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        stage.disk.watch(move |call| {
            if call.op == Op::Read
                && call.is_asked_for()
                && call.path.starts_with(Path::new(DIR).join("live"))
            {
                counted.fetch_add(1, SeqCst);
            }
            Ok(())
        });
        let store = stage.open();
        assert_eq!(findings(&store), []);
        let count = reads.load(SeqCst);
        for number in 1..=chains {
            assert_valid(&store, other(number), if number <= grown { 2 } else { 1 });
        }
        count
    };
    // The log that they are in is longer, which is a read or two; none of them costs one.
    let (few, many) = (reads(20, 2), reads(200, 2));
    assert!(many <= few + 2, "chains that have not grown cost nothing: {few} {many}");
    // Its place in the index, and the record.
    let (one, ten) = (reads(20, 1), reads(20, 11));
    assert!(ten - one <= 10 * 3, "{one} {ten}");
}
