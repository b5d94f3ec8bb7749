//! What a store that was rolled back, or lost its log, still signs: nothing.

use std::sync::Arc;

use sealog_tlog::log::*;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::Entry;

use super::stage::*;

on_both! {
    an_older_copy_of_the_log_is_found_out_by_the_state_copy_and_signs_nothing
    an_own_signature_over_a_larger_or_another_tree_is_proof_of_a_rollback
    keys_without_a_log_are_a_loss_and_never_a_new_history
    a_state_copy_that_disappears_or_is_unreadable_stops_signing
    a_new_log_names_the_previous_one_and_publishes_every_head_again
    entries_of_another_copy_continue_a_log_that_was_rolled_back
}

fn an_older_copy_of_the_log_is_found_out_by_the_state_copy_and_signs_nothing(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    drop(signer);
    let copy = stage.backup();
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 2)]);
    drop(signer);
    stage.restore(copy);
    let collector = Arc::<Collector>::default();
    let signer = stage.signer_with(stage.settings(), &collector).unwrap();
    assert!(matches!(signer.state(), State::RolledBack(_)), "{:?}", signer.state());
    assert!(signer.state().refuses_events());
    assert!(
        signer
            .state()
            .to_string()
            .contains("the state copy says that 5 entries were signed, and the log has 4")
    );
    stage.pass();
    assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::Idle));
    drop(signer);
    // Without a state copy nobody can know, and the start says so.
    let settings = Settings { state_copy: None, ..stage.settings() };
    assert_eq!(stage.signer_with(settings, &collector).unwrap().state(), State::Signing);
    assert_eq!(*collector.notes.lock().unwrap(), Vec::<String>::new());
}

fn an_own_signature_over_a_larger_or_another_tree_is_proof_of_a_rollback(stage: &mut Stage) {
    let signer = stage.signer();
    let small = make(stage, &signer, &[head(1, 1)]);
    drop(signer);
    let copy = stage.backup();
    let signer = stage.signer();
    let larger = make(stage, &signer, &[head(1, 2)]);
    drop(signer);
    stage.restore(copy);
    let settings = Settings { state_copy: None, ..stage.settings() };
    let signer = stage.signer_with(settings, &Arc::default()).unwrap();
    let place = signer.log().place().unwrap().unwrap();
    assert_eq!(signer.misfits(&place, small.note.as_bytes()).unwrap(), None);
    let why = signer.misfits(&place, larger.note.as_bytes()).unwrap().unwrap();
    assert!(why.contains("5 entries were signed, and the log has 4"), "{why}");
    make(stage, &signer, &[head(1, 3)]);
    let place = signer.log().place().unwrap().unwrap();
    let why = signer.misfits(&place, larger.note.as_bytes()).unwrap().unwrap();
    assert!(why.contains("another tree of 5 entries"), "{why}");
    // Of another log, or by nobody that is known, it proves nothing.
    let other = Stage::embedded().signer();
    let foreign = other.log().newest().unwrap().unwrap();
    assert_eq!(signer.misfits(&place, foreign.note.as_bytes()).unwrap(), None);
    // The larger one among our own checkpoints, as after a partial restore.
    let note = larger.note.replace('\'', "''");
    drop(signer);
    stage.change(&format!("INSERT INTO {{checkpoints}} (log, size, note) VALUES (1, 9, '{note}')")).unwrap();
    let settings = Settings { state_copy: None, ..stage.settings() };
    let signer = stage.signer_with(settings, &Arc::default()).unwrap();
    assert!(matches!(signer.state(), State::RolledBack(_)), "{:?}", signer.state());
}

fn keys_without_a_log_are_a_loss_and_never_a_new_history(stage: &mut Stage) {
    drop(stage.signer());
    stage.lose();
    let lost = |settings: Settings, known: Option<&str>| {
        let world = Arc::clone(&stage.world);
        let signer = Signer::open(stage.log(), settings, world, known).unwrap();
        assert_eq!(signer.log().place().unwrap(), None, "no log is begun");
        assert!(!signer.state().refuses_events() && signer.init().is_err());
        matches!(signer.state(), State::Lost(_))
    };
    assert!(lost(Settings { state_copy: None, ..stage.settings() }, None), "by the keys");
    let elsewhere = || {
        let (log_key, service_key) = (Some(stage.key_file("l")), Some(stage.key_file("s")));
        Settings { log_key, service_key, ..stage.settings() }
    };
    assert!(lost(elsewhere(), None), "by the state copy");
    assert!(lost(Settings { state_copy: None, ..elsewhere() }, Some("log")), "by the control data");
}

fn a_state_copy_that_disappears_or_is_unreadable_stops_signing(stage: &mut Stage) {
    let collector = Arc::<Collector>::default();
    let signer = stage.signer_with(stage.settings(), &collector).unwrap();
    let made = collector.notes.lock().unwrap().len();
    let copy = stage.state_copy();
    let text = std::fs::read_to_string(&copy).unwrap();
    stage.pass();
    std::fs::remove_file(&copy).unwrap();
    assert!(signer.turn(&Heads::default()).unwrap_err().to_string().contains("disappeared"));
    std::fs::write(&copy, "nonsense").unwrap();
    assert!(signer.turn(&Heads::default()).is_err());
    assert!(stage.signer_with(stage.settings(), &collector).is_err(), "nor does a start take it for none");
    assert_eq!(collector.notes.lock().unwrap().len(), made);
    std::fs::write(&copy, &text).unwrap();
    assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::CaughtUp(_)));
    // Of another tree of the same size.
    let mut other = Checkpoint::parse(&std::fs::read_to_string(&copy).unwrap()).unwrap();
    other.root = head(1, 1).root;
    std::fs::write(&copy, other.to_string()).unwrap();
    stage.pass();
    assert!(signer.turn(&Heads::default()).is_err());
    assert!(matches!(signer.state(), State::RolledBack(_)));
}

fn a_new_log_names_the_previous_one_and_publishes_every_head_again(stage: &mut Stage) {
    let signer = stage.signer();
    let before = make(stage, &signer, &[head(1, 1), head(2, 2)]);
    let (old, place) = (vkey(signer.log()), signer.log().place().unwrap().unwrap());
    let begun = signer.new_log().unwrap();
    assert_ne!(begun.origin, place.origin);
    let key = vkey(signer.log());
    assert!(!key.is_same_key(&old));
    let (_, entries) = fetch(signer.log(), &key);
    let Entry::Genesis { previous: Some(previous), .. } = Entry::parse(&entries[0]).unwrap() else {
        panic!()
    };
    assert_eq!(
        (previous.origin, previous.size, previous.root),
        (place.origin, before.tree.size, before.tree.root)
    );
    make(stage, &signer, &[head(1, 2)]);
    for log in [Arc::clone(signer.log()), stage.log()] {
        for (n, expected) in [(1, 2), (2, 2)] {
            let tag = sealog_trust::leaf::Tag::of(chain(n));
            let AtSnapshot::Is(proof) = log.head_proof(tag, None).unwrap() else { panic!() };
            assert!(matches!(proof.found, Found::Present { size, .. } if size == expected), "{proof:?}");
        }
    }
    drop(signer);
    assert_eq!(stage.signer().state(), State::Signing);
}

fn entries_of_another_copy_continue_a_log_that_was_rolled_back(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    drop(signer);
    let copy = stage.backup();
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 2)]);
    let larger = make(stage, &signer, &[head(1, 3)]);
    let (_, kept) = fetch(signer.log(), &vkey(signer.log()));
    drop(signer);
    stage.restore(copy);
    let signer = stage.signer();
    assert!(matches!(signer.state(), State::RolledBack(_)));
    let recover = |entries: &[Vec<u8>]| signer.recover(larger.note.as_bytes(), entries, "the disk is gone");
    // Entries that do not lead to the signed tree are refused, and change nothing.
    let mut wrong = kept.clone();
    *wrong.last_mut().unwrap() = b"sealog/other/v1\n".to_vec();
    for entries in [&wrong[..], &kept[..5], &[]] {
        assert!(recover(entries).is_err());
        assert_eq!(signer.log().place().unwrap().unwrap().tree.size, 4);
    }
    recover(&kept).unwrap();
    assert_eq!(signer.state(), State::Signing);
    let (checkpoint, entries) = fetch(signer.log(), &vkey(signer.log()));
    assert_eq!((checkpoint.size, &entries[..6]), (7, &kept[..]));
    let last = Entry::parse(&entries[6]).unwrap();
    assert!(
        matches!(last, Entry::Restore { index: 7, ref reason, .. } if reason == "the disk is gone"),
        "{last:?}"
    );
    make(stage, &signer, &[head(1, 4)]);
}
