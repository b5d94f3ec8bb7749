//! Losses that an operator has accepted: once, on the record, whatever happens meanwhile.

use std::sync::Arc;

use sealog_core::id::Ulid;
use sealog_core::time::Month;
use sealog_store::embedded::{EmbeddedStore, Finding};
use sealog_store::{Receipt, Store, StoreError};
use sealog_testing::*;

use super::stage::*;

/// A log whose mark knows ten events of the chain and that has seven.
fn cut_short() -> (Stage, Vec<Receipt>) {
    let (stage, receipts) = killed_when_marked(|store| {
        (1..=10).map(|n| append(store, live(), vec![login(&format!("u{n}"))])).collect::<Vec<_>>()
    });
    let frames = stage.frames(1);
    let bytes = stage.read(&log(1));
    stage.disk.put(&log(1), &bytes[..frames[7].at]);
    (stage, receipts)
}

#[test]
fn a_crash_at_any_call_of_an_acceptance_leaves_the_loss_or_the_acceptance() {
    let accept = |store: &EmbeddedStore| wait(store.accept_loss(live(), "cut short".into()));
    // How many calls it takes.
    let calls = {
        let (stage, _) = cut_short();
        let store = stage.open();
        stage.disk.plan(sim::Plan::default());
        accept(&store).unwrap();
        stage.disk.calls()
    };
    assert!(calls >= 4, "an event and a mark, each written and synced: {calls}");
    let mut dice = Dice::new(13);
    let (mut lost, mut accepted) = (0, 0);
    for cut_at in 1..=calls + 1 {
        for power in [false, true] {
            let (stage, receipts) = cut_short();
            let store = stage.open();
            assert_refused(&store, live());
            stage.disk.plan(sim::Plan { power_cut_at: Some(cut_at), ..sim::Plan::default() });
            let acknowledged = accept(&store).is_ok();
            let disk = if power { stage.disk.after_power_cut(&mut dice) } else { stage.disk.after_kill() };
            drop(store);
            let stage = Stage { disk, world: Arc::clone(&stage.world) };
            let store = stage.open();
            let head = wait(store.head(live())).unwrap();
            if head.recorded.chain_seq == 10 {
                assert!(!acknowledged, "cut at {cut_at}: it was acknowledged, and is gone");
                assert_eq!((head.durable.chain_seq, head.recorded.hash), (7, receipts[9].hash));
                assert_refused(&store, live());
                assert_eq!(accept(&store).unwrap().first_seq, 8);
                lost += 1;
            } else {
                accepted += 1;
            }
            // Once, whatever came before.
            assert!(matches!(accept(&store), Err(StoreError::Refused(_))));
            assert_valid(&store, live(), 8);
            let event = &everything(&store, live())[0];
            assert!(event.text.as_str().contains(&format!(r#""recorded_hash":"{}""#, receipts[9].hash)));
            append(&store, live(), vec![login("goes on")]);
            drop(store);
            let store = stage.open();
            assert_eq!(findings(&store), [], "cut at {cut_at}");
            assert_valid(&store, live(), 9);
        }
    }
    assert!(lost > 0 && accepted > 0, "both were met: {lost} {accepted}");
}

#[test]
fn nothing_follows_an_acceptance_that_the_mark_does_not_know() {
    let (stage, _) = cut_short();
    let store = stage.open();
    stage.disk.watch(|call| {
        let mark = call.path.ends_with("live/mark") || call.path.ends_with("live/mark.tmp");
        if mark { Err(full()) } else { Ok(()) }
    });
    let failed = wait(store.accept_loss(live(), "a".into()));
    assert!(matches!(failed, Err(StoreError::Control(_))), "{failed:?}");
    assert_refused(&store, live());
    // Accepting again writes the mark and seals nothing more.
    make_readable(&stage);
    let receipt = wait(store.accept_loss(live(), "b".into())).unwrap();
    assert_eq!(receipt.first_seq, 8);
    assert!(get(&store, live(), receipt.log_ids[0]).unwrap().text.as_str().contains(r#""reason":"a""#));
    append(&store, live(), vec![login("goes on")]);
    assert_valid(&store, live(), 9);
}

#[test]
fn the_acceptance_takes_the_place_of_damaged_last_records() {
    // Of the last frame alone, and of a batch of which the first record is still good. Whatever is replaced
    // was counted, but for a system chain.
    for (chain, batch) in [(live(), false), (live(), true), (system_chain(1), false), (system_chain(1), true)]
    {
        let (stage, other) = (Stage::new(), other(2));
        let store = stage.open();
        append(&store, chain, vec![login("a"), login("b")]);
        let drafts = if batch { vec![login("c"), login("d"), login("e")] } else { vec![login("c")] };
        let Outcome::Sealed(receipt) = append_once(&store, chain, drafts.clone(), key("k", "body"), Ulid(1))
        else {
            panic!("the key is free")
        };
        append(&store, other, vec![login("later")]);
        drop(store);
        let frame = stage.frames(1)[1];
        // In the text of the last record, before the idempotency record.
        stage.flip(&log(1), frame.at + frame.length - 84 - 40);
        let store = stage.open();
        assert_refused(&store, chain);
        let month = Month::of(MORNING_MS);
        let counted = |store: &EmbeddedStore| wait(store.usage(chain.tenant_id, month)).unwrap();
        let last = receipt.last_seq();
        let accepted = wait(store.accept_loss(chain, "bad sector".into())).unwrap();
        assert_eq!(accepted.first_seq, last);
        let after = counted(&store);
        for _ in 0..2 {
            assert_valid(&store, chain, last);
            assert_eq!(seqs(&store, chain), (1..=last).rev().collect::<Vec<_>>());
        }
        append(&store, chain, vec![login("goes on")]);
        drop(store);
        for _ in 0..2 {
            let store = stage.open();
            assert_valid(&store, chain, last + 1);
            assert_eq!(seqs(&store, chain), (1..=last + 1).rev().collect::<Vec<_>>());
            let expected = if chain.is_system() { (0, 0) } else { (last, last + 1) };
            assert_eq!((after, counted(&store)), expected);
            assert_valid(&store, other, 1);
        }
        // The client that was told of the lost event sends it again.
        let store = stage.open();
        let again = append_once(&store, chain, drafts, key("k", "body"), Ulid(2));
        assert!(matches!(again, Outcome::Sealed(_)), "{again:?}");
    }
}

#[test]
fn a_chain_that_may_have_ended_in_a_damaged_place_can_be_accepted_without_knowing_how_much_is_lost() {
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    append(&store, other(2), vec![login("b")]);
    append(&store, other(2), vec![login("c")]);
    let stage = {
        let killed = stage.killed();
        drop(store);
        killed
    };
    // No mark speaks for it, and a later group proves that it was on disk.
    let frames = stage.frames(1);
    stage.flip(&log(1), frames[1].at + IN_HEADER);
    let store = stage.open();
    assert!(findings(&store).contains(&Finding::HeadUnproven { chain: live() }), "{:?}", findings(&store));
    assert_refused(&store, live());
    assert_refused(&store, other(7));
    for (chain, from) in [(live(), 2), (other(7), 1)] {
        let receipt = wait(store.accept_loss(chain, "looked at all clients".into())).unwrap();
        assert_eq!(receipt.first_seq, from);
        let event = get(&store, chain, receipt.log_ids[0]).unwrap();
        let says =
            format!(r#"{{"lost_from":{from},"lost_to":null,"recorded_hash":"{}","#, event.sealed.prev_hash);
        assert!(event.text.as_str().contains(&says), "{}", event.text.as_str());
        append(&store, chain, vec![login("goes on")]);
    }
    drop(store);
    let store = stage.open();
    for (chain, events) in [(live(), 3), (other(7), 2)] {
        assert_valid(&store, chain, events);
        append(&store, chain, vec![login("goes on")]);
    }
}

#[test]
fn clients_cannot_be_taken_for_an_acceptance() {
    // The text of an acceptance that names the recorded head, in an event that does not have its action.
    let (stage, receipts) = cut_short();
    let store = stage.open();
    let metadata =
        format!(r#"{{"lost_from":8,"lost_to":10,"recorded_hash":"{}","reason":"x"}}"#, receipts[9].hash);
    drop(store);
    let forged = Stage::new();
    let store = forged.open();
    for n in 1..=7 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    append(&store, live(), vec![draft(&format!(r#"{{"action":"user.login","metadata":{metadata}}}"#))]);
    let (stage, _) = cut_short();
    stage.disk.put(&log(1), &forged.killed().read(&log(1)));
    drop(store);
    let store = stage.open();
    assert_refused(&store, live());
}
