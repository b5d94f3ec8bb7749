//! A log that was replaced by one of another history.

use sealog_core::id::Hash;
use sealog_core::verify::Reason;
use sealog_store::Store;
use sealog_store::embedded::Finding;
use sealog_testing::sim::Op;
use sealog_testing::*;

use super::stage::*;

/// A killed log of `marked` events that its mark speaks for, whose segment was then replaced by one of
/// another history: the same up to `same`, other events from there on.
fn rewritten(marked: u64, same: u64, events: u64) -> (Stage, Hash) {
    let (stage, receipts) = killed_when_marked(|store| {
        (1..=marked).map(|n| append(store, live(), vec![login(&format!("u{n}"))])).collect::<Vec<_>>()
    });
    let forged = Stage::new();
    let store = forged.open();
    for n in 1..=events {
        let actor = if n <= same { format!("u{n}") } else { format!("forged{n}") };
        append(&store, live(), vec![login(&actor)]);
    }
    stage.disk.put(&log(1), &forged.killed().read(&log(1)));
    (stage, receipts.last().unwrap().hash)
}

#[test]
fn a_rewritten_log_that_is_longer_than_its_mark_is_found_at_the_recorded_event() {
    // Rewritten from the first event on, and only from the last that is on record; longer by one, and by
    // many.
    for (same, events) in [(0, 6), (4, 6), (2, 40)] {
        let (mut stage, hash) = rewritten(5, same, events);
        for restart in 0..4 {
            let store = stage.open();
            assert_eq!(findings(&store), [Finding::Rewritten { chain: live(), chain_seq: 5 }]);
            assert_refused(&store, live());
            let verdict = verify(&store, live());
            let (at, stored, reason) = broken(verdict);
            assert_eq!((at, reason, verdict.checked), (5, Reason::Head, 5));
            assert_ne!(stored, hash);
            // Nobody else pays for it, and the evidence is what it was.
            append(&store, other(2), vec![login("a")]);
            if restart % 2 == 0 {
                stage = stage.killed();
            }
            drop(store);
        }
        let store = stage.open();
        let receipt = wait(store.accept_loss(live(), "restored the wrong backup".into())).unwrap();
        assert_eq!(receipt.first_seq, events + 1, "nothing that exists is hidden");
        let event = get(&store, live(), receipt.log_ids[0]).unwrap();
        let says = format!(r#"{{"lost_from":5,"lost_to":5,"recorded_hash":"{hash}","#);
        assert!(event.text.as_str().contains(&says), "{}", event.text.as_str());
        assert_valid(&store, live(), events + 1);
        append(&store, live(), vec![login("goes on")]);
        drop(store);
        let store = stage.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), events + 2);
    }
}

#[test]
fn a_recorded_event_that_cannot_be_read_is_neither_right_nor_wrong() {
    let (stage, _) = rewritten(5, 0, 9);
    let frame = stage.frames(1)[4];
    let mark = stage.read(&live_file("mark"));
    // Only the look at this one event fails: the walk over the whole segment comes before.
    stage.disk.watch(move |call| {
        let look = call.is(Op::Read, "live/00000001.log") && call.bytes.start > 0;
        let hit = call.bytes.contains(&(frame.at as u64 + 100));
        if look && hit { Err(unreadable()) } else { Ok(()) }
    });
    let store = stage.open();
    assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
    assert!(try_append(&store, live(), vec![login("x")]).is_err());
    drop(store);
    assert_eq!(stage.read(&live_file("mark")), mark, "the evidence is kept");
    make_readable(&stage);
    assert_eq!(findings(&stage.open()), [Finding::Rewritten { chain: live(), chain_seq: 5 }]);
}
