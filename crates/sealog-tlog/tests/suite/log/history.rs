//! What of the history is kept.

use sealog_testing::MORNING_MS;
use sealog_tlog::log::*;
use sealog_trust::leaf::Tag;

use super::stage::*;

on_both! {
    snapshots_are_thinned_to_hours_after_3_days_and_to_days_after_90
    a_chain_that_is_shorter_or_other_than_published_is_named_and_not_published
}

const HOUR_MS: u64 = 3600 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn snapshots_are_thinned_to_hours_after_3_days_and_to_days_after_90(stage: &mut Stage) {
    let signer = stage.signer();
    let log = signer.log();
    // Three in each of three hours, the last of which is of the next day.
    let begin_ms = MORNING_MS + 22 * HOUR_MS;
    let (mut indexes, mut size) = (Vec::new(), 0);
    for hour in 0..3 {
        for minute in [0, 20, 59] {
            stage.world.set(begin_ms + hour * HOUR_MS + minute * 60_000);
            size += 1;
            // The first chain changes each time, the second only at first.
            let heads = [head(1, size), head(2, 1)];
            let Turn::Made { signed, .. } = signer.turn(&Heads::of(&heads)).unwrap() else { panic!() };
            indexes.push(signed.tree.size - 1);
        }
    }
    let root = |at: u64| match log.head_proof(Tag::of(chain(1)), Some(at)).unwrap() {
        AtSnapshot::Is(HeadProof { found: Found::Present { size, .. }, .. }) => Ok(size),
        AtSnapshot::Pruned { before, after } => Err((before, after)),
        other => panic!("{other:?}"),
    };
    let thin = |now_ms| while log.thin(now_ms).unwrap() {};
    let kept = || indexes.iter().map(|at| root(*at).is_ok()).collect::<Vec<_>>();
    let first_end_ms = begin_ms + HOUR_MS;
    thin(first_end_ms + 3 * DAY_MS - 1);
    assert_eq!(kept(), [true; 9], "a millisecond before 3 days");
    thin(first_end_ms + 3 * DAY_MS);
    assert_eq!(kept(), [false, false, true, true, true, true, true, true, true]);
    thin(begin_ms + 3 * HOUR_MS + 3 * DAY_MS);
    assert_eq!(kept(), [false, false, true, false, false, true, false, false, true]);
    assert_eq!(root(indexes[1]), Err((None, Some(indexes[2]))));
    assert_eq!(root(indexes[3]), Err((Some(indexes[2]), Some(indexes[5]))));
    let midnight_ms = MORNING_MS + DAY_MS;
    thin(midnight_ms + 90 * DAY_MS - 1);
    assert!(root(indexes[2]).is_ok());
    thin(midnight_ms + 90 * DAY_MS);
    assert_eq!(kept(), [false, false, false, false, false, true, false, false, true]);
    // What is left is right, also where it has to be built anew; checkpoints went with their snapshots.
    let anew = stage.log();
    for (at, size) in [(5, 6), (8, 9)] {
        for (n, size) in [(1, size), (2, 1)] {
            let AtSnapshot::Is(proof) = anew.head_proof(Tag::of(chain(n)), Some(indexes[at])).unwrap() else {
                panic!()
            };
            assert!(matches!(proof.found, Found::Present { size: found, .. } if found == size), "{proof:?}");
        }
    }
    let at = anew.checkpoint_at(indexes[0]).unwrap().unwrap();
    assert_eq!(at.tree.size, indexes[5] + 1, "the oldest kept one that covers it");
    fetch(&anew, &vkey(&anew));
}

fn a_chain_that_is_shorter_or_other_than_published_is_named_and_not_published(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 5), head(2, 5), head(3, 5), head(4, 5)]);
    let other_event = TreeHead { event_hash: head(9, 9).event_hash, ..head(2, 5) };
    let other_root = TreeHead { root: head(9, 9).root, ..head(3, 5) };
    stage.pass();
    let turn = signer.turn(&Heads::of(&[head(1, 4), other_event, other_root, head(4, 6)])).unwrap();
    let Turn::Made { findings, .. } = turn else { panic!("{turn:?}") };
    let problems: Vec<_> = findings.iter().map(|finding| (finding.chain, finding.problem)).collect();
    assert_eq!(
        problems,
        [
            (chain(1), Problem::Shorter { size: 4 }),
            (chain(2), Problem::OtherEvent),
            (chain(3), Problem::OtherRoot)
        ]
    );
    let log = signer.log();
    for (n, size) in [(1, 5), (2, 5), (3, 5), (4, 6)] {
        let published = log.published_of(chain(n)).unwrap().unwrap();
        assert_eq!(TreeHead::from(published), head(n, size));
    }
    assert_eq!(log.findings().unwrap().len(), 3);
    // The same comparison with a chain's events, for those who refuse appends.
    let published = log.published_of(chain(1)).unwrap().unwrap();
    let (right, wrong) = (published.event_hash, head(9, 9).event_hash);
    let found = |size, hash, at| published.compare(size, hash, at).map(|finding| finding.problem);
    assert_eq!(found(4, right, None), Some(Problem::Shorter { size: 4 }));
    assert_eq!((found(5, right, None), found(5, wrong, None)), (None, Some(Problem::OtherEvent)));
    assert_eq!(
        (found(6, wrong, Some(right)), found(6, right, Some(wrong))),
        (None, Some(Problem::OtherEvent))
    );
    // An accepted loss replaces the published head, is declared, and the chain is published again.
    let place = log.place().unwrap().unwrap();
    let declared = log.declare_restore(&place, "the disk is gone", Some(&head(1, 4)), 1).unwrap();
    assert!(declared.is_some());
    stage.pass();
    assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::CaughtUp(_)));
    assert!(matches!(signer.turn(&Heads::of(&[head(1, 4)])).unwrap(), Turn::Made { .. }));
    let anew = stage.log();
    let AtSnapshot::Is(proof) = anew.head_proof(Tag::of(chain(1)), None).unwrap() else { panic!() };
    assert!(matches!(proof.found, Found::Present { size: 4, .. }), "{proof:?}");
    assert_eq!(log.findings().unwrap().len(), 2);
}
