//! A disk that is full, at each step: what is not durable is not signed, and once there is room the log goes
//! on with what it had begun.

use std::sync::{Arc, Mutex};

use sealog_store::StoreError;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::world::World;
use sealog_testing::mounted::Mounted;
use sealog_testing::*;
use sealog_tlog::log::*;
use sealog_tlog::trees::{Pass, Trees};
use sealog_trust::note::Note;

use super::stage::*;

on_both! {
    a_state_copy_that_cannot_be_written_keeps_the_tree_from_being_signed
}

fn a_state_copy_that_cannot_be_written_keeps_the_tree_from_being_signed(stage: &mut Stage) {
    let collector = Arc::<Collector>::default();
    let open = |stage: &Stage| stage.signer_with(stage.settings(), &collector).unwrap();
    let mut signer = open(stage);
    make(stage, &signer, &[head(1, 1)]);
    let copied = std::fs::read_to_string(stage.state_copy()).unwrap();
    let signed = collector.notes.lock().unwrap().len();
    // A directory where the new text would be written first. Rights would not stop a test that is root.
    let obstacle = stage.dir.path().join("state-copy.unfinished");
    for restarts in [false, true] {
        let place = signer.log().place().unwrap().unwrap();
        std::fs::create_dir(&obstacle).unwrap();
        stage.pass();
        let refused = signer.turn(&Heads::of(&[head(1, 2)])).unwrap_err().to_string();
        assert!(refused.contains("the state copy") && refused.contains("cannot be written"), "{refused}");
        // The tree is there and nobody gets it; a disk that refuses a write is no rollback.
        let unsigned = signer.log().place().unwrap().unwrap();
        assert_eq!(unsigned.tree.size, place.tree.size + 1);
        assert_eq!(signer.log().newest().unwrap().unwrap().tree.size, place.tree.size);
        assert_eq!(signer.state(), State::Signing);
        assert!(signer.turn(&Heads::default()).is_err());
        assert_eq!(signer.log().place().unwrap().unwrap().tree.size, unsigned.tree.size, "and no other");
        if !restarts {
            assert_eq!(collector.notes.lock().unwrap().len(), signed);
            assert_eq!(std::fs::read_to_string(stage.state_copy()).unwrap(), copied);
        }
        std::fs::remove_dir(&obstacle).unwrap();
        if restarts {
            drop(signer);
            signer = open(stage);
        }
        let Ok(Turn::CaughtUp(caught_up)) = signer.turn(&Heads::default()) else { panic!() };
        assert_eq!(caught_up.tree, unsigned.tree);
        fetch(signer.log(), &vkey(signer.log()));
    }
    make(stage, &signer, &[head(1, 3)]);
}

/// Takes all room at a step, and sees each signature.
#[derive(Debug)]
struct Filler {
    disk: Arc<Mounted>,
    at: Mutex<Option<Moment>>,
    notes: Mutex<Vec<String>>,
}

impl Probe for Filler {
    fn reached(&self, moment: Moment) -> Result<(), StoreError> {
        let mut at = self.at.lock().unwrap();
        if *at == Some(moment) {
            self.disk.fill("rest", 0);
            *at = None;
        }
        Ok(())
    }

    fn signed(&self, note: &Note) {
        self.notes.lock().unwrap().push(note.to_string());
    }
}

#[test]
fn a_disk_that_is_full_from_some_step_on_publishes_a_consistent_extension_or_nothing() {
    let Some(disk) = Mounted::new(64).map(Arc::new) else { return };
    let stage = Stage::embedded_in(&disk.at);
    let filler = Arc::new(Filler { disk: Arc::clone(&disk), at: Mutex::default(), notes: Mutex::default() });
    let open = || {
        let (world, probe) = (Arc::clone(&stage.world) as Arc<dyn World>, Arc::clone(&filler));
        Arc::new(Signer::open_with(stage.log(), stage.settings(), world, None, probe).unwrap())
    };
    let mut signer = open();
    // Little is left to be taken later.
    disk.fill("filler", 16 << 20);
    let mut size = 0;
    for restarts in [false, true] {
        // The step that ends first without room, and whether the tree is signed by then.
        for (moment, extends, signs) in [
            (Moment::HeadsBuilt, false, false),
            (Moment::Extended, true, false),
            (Moment::Copied, true, true),
            (Moment::Signed, true, true),
        ] {
            size += 1;
            let before = signer.log().place().unwrap().unwrap().tree.size;
            let copied = std::fs::read_to_string(stage.state_copy()).unwrap();
            filler.notes.lock().unwrap().clear();
            *filler.at.lock().unwrap() = Some(moment);
            stage.pass();
            let refused = signer.turn(&Heads::of(&[head(1, size)]));
            assert!(refused.is_err(), "{moment:?}: {refused:?}");
            assert_eq!(signer.state(), State::Signing, "a full disk is no rollback");
            let unsigned = signer.log().place().unwrap().unwrap().tree;
            assert_eq!(unsigned.size, before + u64::from(extends), "{moment:?}");
            assert_eq!(filler.notes.lock().unwrap().len(), usize::from(signs), "{moment:?}");
            let is_copied = std::fs::read_to_string(stage.state_copy()).unwrap() != copied;
            assert_eq!(is_copied, signs, "{moment:?}: a signature is behind the state copy");
            assert_eq!(signer.log().newest().unwrap().unwrap().tree.size, before, "{moment:?}");
            // While there is no room it tries again, and makes nothing else.
            assert!(signer.turn(&Heads::of(&[head(1, size)])).is_err(), "{moment:?}");
            assert_eq!(signer.log().place().unwrap().unwrap().tree, unsigned, "{moment:?}");
            std::fs::remove_file(disk.at.join("rest")).unwrap();
            if restarts {
                drop(signer);
                signer = open();
                assert_eq!(signer.state(), State::Signing, "{moment:?}");
            }
            match signer.turn(&Heads::of(&[head(1, size)])).unwrap() {
                Turn::CaughtUp(signed) if extends => assert_eq!(signed.tree, unsigned, "{moment:?}"),
                Turn::Made { signed, .. } if !extends => assert_eq!(signed.tree.size, before + 1),
                other => panic!("{moment:?}: {other:?}"),
            }
            // What was signed on the full disk and nobody got is what is signed now.
            let notes = std::mem::take(&mut *filler.notes.lock().unwrap());
            assert!(notes.iter().all(|note| *note == notes[0]), "{moment:?}: {notes:?}");
            fetch(signer.log(), &vkey(signer.log()));
        }
    }
}

#[test]
fn trees_leave_room_for_events_and_grow_once_there_is_some() {
    let Some(disk) = Mounted::new(160) else { return };
    let world = StillWorld::random_at(MORNING_MS);
    let dir = disk.at.join("data");
    let options = Options { allow_unsafe_storage: true, ..small(&world) };
    let store = Arc::new(EmbeddedStore::open(&dir, &options).unwrap());
    let trees = Trees::embedded(&store, Arc::clone(&world) as Arc<dyn World>).unwrap();
    append(&*store, live(), vec![login("a")]);
    assert!(matches!(soon(trees.pass()), Ok(Pass::Done { leaves: 1, .. })));
    let before = soon(trees.head(live())).unwrap().unwrap();
    append(&*store, live(), vec![login("b"), login("c")]);
    // Enough for events and changes, and for nothing large beside them; then nothing.
    for (name, left) in [("filler", 48 << 20), ("rest", 0)] {
        disk.fill(name, left);
        assert_eq!(soon(trees.pass()).unwrap_err(), StoreError::NoRoom, "{left} bytes left");
        assert_eq!(soon(trees.head(live())).unwrap().unwrap(), before);
    }
    for name in ["filler", "rest"] {
        std::fs::remove_file(disk.at.join(name)).unwrap();
    }
    assert!(matches!(soon(trees.pass()), Ok(Pass::Done { leaves: 2, .. })));
    let grown = soon(trees.head(live())).unwrap().unwrap();
    assert_eq!((grown.size, grown.stopped), (3, None));
    let path = soon(trees.consistency(live(), 1, 3)).unwrap();
    let verified = sealog_trust::merkle::verify_consistency(1, &before.root, 3, &grown.root, &path);
    assert_eq!(verified, Ok(()));
}
