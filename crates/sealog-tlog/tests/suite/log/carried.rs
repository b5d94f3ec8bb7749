//! A log that is carried into another store, as `sealog copy`, `replicate` and `restore` do: the copy is the
//! same, and signs nothing until it is excluded that its source signed more.

use std::sync::Arc;

use sealog_tlog::log::*;
use sealog_trust::entry::Entry;
use sealog_trust::leaf::Tag;

use super::stage::*;

on_both! {
    a_carried_log_is_the_same_and_goes_on_where_the_state_copy_excludes_more
    a_copy_that_lags_signs_nothing_whether_or_not_the_state_copy_is_there
    a_copy_goes_on_as_it_is_once_the_operator_answers_for_it_and_says_so_in_public
    a_copy_follows_into_the_next_log_and_never_leaves_its_own
}

fn carry(from: &Stage, to: &Stage) -> Result<u64, CarryError> {
    let (from, to) = (from.log(), to.log());
    to.carry(&from, &from.outline().unwrap().unwrap(), Some("it is a copy"))
}

fn without_state_copy(stage: &Stage, collector: &Arc<Collector>) -> Arc<Signer> {
    stage.signer_with(Settings { state_copy: None, ..stage.settings() }, collector).unwrap()
}

/// Everything that can be read of both.
fn assert_same(from: &StoreLog, to: &StoreLog, chains: u64) {
    let key = vkey(from);
    assert_eq!(vkey(to), key);
    let (read, entries) = fetch(from, &key);
    assert_eq!(fetch(to, &key), (read, entries.clone()));
    assert_eq!(to.published().unwrap(), from.published().unwrap());
    let keys = |log: &StoreLog| -> Vec<String> {
        log.keys().unwrap().iter().map(|key| format!("{} {} {:?}", key.index, key.key, key.retired)).collect()
    };
    assert_eq!(keys(to), keys(from));
    for index in 0..entries.len() as u64 {
        let note = |log: &StoreLog| log.checkpoint_at(index).unwrap().map(|signed| signed.note);
        assert_eq!(note(to), note(from), "{index}");
        for n in 1..=chains {
            let proof = |log: &StoreLog| log.head_proof(Tag::of(chain(n)), Some(index)).unwrap();
            assert_eq!(proof(to), proof(from), "{index}");
        }
    }
}

fn a_carried_log_is_the_same_and_goes_on_where_the_state_copy_excludes_more(stage: &mut Stage) {
    let signer = stage.signer();
    for size in 1..=3 {
        make(stage, &signer, &[head(1, size), head(2, 2)]);
    }
    signer.rotate(Role::Service).unwrap();
    // Into the other kind of store.
    let to = stage.across();
    let size = signer.log().place().unwrap().unwrap().tree.size;
    assert_eq!(carry(stage, &to).unwrap(), size);
    assert_same(&stage.log(), &to.log(), 3);
    assert_eq!(carry(stage, &to).unwrap(), 0);
    make(stage, &signer, &[head(1, 4), head(3, 1)]);
    assert_eq!(carry(stage, &to).unwrap(), 1);
    assert_same(&stage.log(), &to.log(), 3);
    drop(signer);

    let collector = Arc::<Collector>::default();
    let signer = without_state_copy(&to, &collector);
    assert!(
        matches!(signer.state(), State::Copied(ref why) if why == "it is a copy"),
        "{:?}",
        signer.state()
    );
    assert!(signer.state().is_trouble() && !signer.state().refuses_events());
    to.pass();
    assert!(matches!(signer.turn(&Heads::of(&[head(1, 5)])), Ok(Turn::Idle)));
    drop(signer);
    // Its source has written the state copy before each signature.
    let signer = to.signer_with(to.settings(), &collector).unwrap();
    assert_eq!((signer.state(), to.log().copied().unwrap()), (State::Signing, None));
    let (_, before) = fetch(signer.log(), &vkey(signer.log()));
    make(&to, &signer, &[head(1, 5)]);
    let (_, after) = fetch(signer.log(), &vkey(signer.log()));
    assert!(after.len() == before.len() + 1 && after.starts_with(&before));
    // So the source, should it come back, finds what its copy has signed.
    let old = stage.signer();
    assert!(matches!(old.state(), State::RolledBack(_)), "{:?}", old.state());
}

fn a_copy_that_lags_signs_nothing_whether_or_not_the_state_copy_is_there(stage: &mut Stage) {
    let signer = stage.signer();
    let stale = stage.dir.path().join("stale");
    std::fs::copy(stage.state_copy(), &stale).unwrap();
    make(stage, &signer, &[head(1, 1)]);
    let to = stage.beside();
    carry(stage, &to).unwrap();
    let larger = make(stage, &signer, &[head(1, 2)]);
    let (_, kept) = fetch(signer.log(), &vkey(signer.log()));
    drop(signer);

    let collector = Arc::<Collector>::default();
    let signer = to.signer_with(to.settings(), &collector).unwrap();
    assert!(matches!(signer.state(), State::RolledBack(_)), "{:?}", signer.state());
    // No word of an operator replaces what the state copy proves.
    let refused = signer.accept_copy("nothing is newer").unwrap_err().to_string();
    assert!(refused.contains("the state copy says that 5 entries were signed"), "{refused}");
    drop(signer);
    // One that was left on this machine when it last signed knows nothing of its successor.
    let copies = [None, Some(StateCopy::at(stale.clone()))];
    for state_copy in copies {
        let settings = Settings { state_copy, ..to.settings() };
        let signer = to.signer_with(settings, &collector).unwrap();
        assert!(matches!(signer.state(), State::Copied(_)), "{:?}", signer.state());
        to.pass();
        assert!(matches!(signer.turn(&Heads::of(&[head(1, 3)])), Ok(Turn::Idle)));
    }
    assert_eq!(*collector.notes.lock().unwrap(), Vec::<String>::new());
    let signer = to.signer_with(to.settings(), &collector).unwrap();
    signer.recover(larger.note.as_bytes(), &kept, "the machine burnt").unwrap();
    assert_eq!((signer.state(), to.log().copied().unwrap()), (State::Signing, None));
    let (_, entries) = fetch(signer.log(), &vkey(signer.log()));
    assert!(entries.starts_with(&kept));
}

fn a_copy_goes_on_as_it_is_once_the_operator_answers_for_it_and_says_so_in_public(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    drop(signer);
    let (to, collector) = (stage.beside(), Arc::<Collector>::default());
    carry(stage, &to).unwrap();
    let signer = without_state_copy(&to, &collector);
    for reason in ["", "two\nlines"] {
        assert!(signer.accept_copy(reason).is_err());
    }
    assert_eq!(*collector.notes.lock().unwrap(), Vec::<String>::new());
    signer.accept_copy("moved to host b").unwrap();
    assert_eq!(signer.state(), State::Signing);
    let (_, entries) = fetch(signer.log(), &vkey(signer.log()));
    let last = Entry::parse(entries.last().unwrap()).unwrap();
    assert!(matches!(last, Entry::Restore { ref reason, .. } if reason == "moved to host b"), "{last:?}");
    let again = signer.accept_copy("again").unwrap_err().to_string();
    assert!(again.contains("is not a copy that waits for this"), "{again}");
    drop(signer);
    let signer = without_state_copy(&to, &collector);
    make(&to, &signer, &[head(1, 2)]);
}

fn a_copy_follows_into_the_next_log_and_never_leaves_its_own(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    let to = stage.beside();
    carry(stage, &to).unwrap();
    signer.new_log().unwrap();
    make(stage, &signer, &[head(1, 2)]);
    carry(stage, &to).unwrap();
    assert_same(&stage.log(), &to.log(), 1);
    assert_eq!(to.log().place().unwrap().unwrap().log, 2);
    // Of which both the copy and another store have more, or another one.
    let copied = to.signer();
    make(&to, &copied, &[head(1, 3)]);
    let other = Stage::embedded();
    drop(other.signer());
    for target in [&to, &other] {
        let before = target.log().place().unwrap();
        let refused = carry(stage, target).unwrap_err();
        assert!(matches!(refused, CarryError::NoBeginning { .. }), "{refused}");
        assert_eq!((target.log().place().unwrap(), target.log().copied().unwrap()), (before, None));
    }
}

/// More than one transaction writes.
const CHAINS: u64 = 2_500;

#[test]
fn a_copy_that_was_interrupted_signs_nothing_and_is_completed_by_the_next_one() {
    let stage = Stage::embedded();
    let signer = stage.signer();
    let heads: Vec<TreeHead> = (1..=CHAINS).map(|n| head(n, 1)).collect();
    make(&stage, &signer, &heads);
    let (to, wide) = (stage.beside(), stage.across());
    drop(to.log());
    to.change(
        "CREATE TRIGGER stops BEFORE INSERT ON heads WHEN (SELECT count(*) FROM heads) >= 2000
         BEGIN SELECT RAISE(ABORT, 'the process was killed'); END",
    )
    .unwrap();
    assert!(matches!(carry(&stage, &to), Err(CarryError::Target(_))));
    let copied = to.signer();
    assert!(matches!(copied.state(), State::Copied(_)), "{:?}", copied.state());
    let refused = copied.accept_copy("as it is").unwrap_err().to_string();
    assert!(refused.contains("incomplete"), "{refused}");
    let (_, kept) = fetch(signer.log(), &vkey(signer.log()));
    let note = signer.log().newest().unwrap().unwrap().note;
    assert!(copied.recover(note.as_bytes(), &kept, "from entries").is_err());
    drop(copied);
    to.change("DROP TRIGGER stops").unwrap();
    for target in [&to, &wide] {
        carry(&stage, target).unwrap();
        assert_same(&stage.log(), &target.log(), 1);
        assert_eq!(target.log().published().unwrap().len() as u64, CHAINS);
    }
    assert_eq!(to.signer().state(), State::Signing);
}

#[test]
fn a_copy_of_other_entries_than_its_source_signed_is_refused() {
    let stage = Stage::embedded();
    let signer = stage.signer();
    make(&stage, &signer, &[head(1, 1)]);
    let mut other = stage.log().outline().unwrap().unwrap();
    other.place.tree.root = head(1, 1).root;
    let to = stage.beside();
    assert!(matches!(to.log().carry(&stage.log(), &other, Some("a copy")), Err(CarryError::Broken)));
    assert_eq!(to.log().place().unwrap(), None, "nothing is kept");
}
