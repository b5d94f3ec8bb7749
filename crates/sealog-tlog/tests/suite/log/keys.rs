//! The first start, rotation and keys that are missing.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use sealog_tlog::log::keys::{KeyFile, Origin};
use sealog_tlog::log::*;
use sealog_trust::entry::{Entry, KeyChange, Role};
use sealog_trust::note::Note;

use super::stage::*;

on_both! {
    a_crash_at_any_step_of_the_first_start_leaves_a_log_whose_next_start_has_its_keys
    a_log_key_signs_beside_its_successor_for_90_days_and_is_retired
    a_crash_at_any_step_of_a_rotation_leaves_keys_that_sign
    a_service_key_is_replaced_by_entries_alone
    a_server_without_the_log_key_serves_and_does_not_sign
    given_keys_begin_a_log_only_when_an_operator_says_so
    a_key_that_others_can_read_stops_the_start
}

fn a_crash_at_any_step_of_the_first_start_leaves_a_log_whose_next_start_has_its_keys(stage: &mut Stage) {
    for moment in [Moment::KeysPrepared, Moment::Begun, Moment::Copied, Moment::Signed, Moment::Kept] {
        let collector = Arc::<Collector>::default();
        collector.crash_at(Some(moment));
        assert!(stage.signer_with(stage.settings(), &collector).is_err(), "{moment:?}");
        let has_key = stage.key_file("log.key").read().unwrap().is_some();
        assert!(!has_key || stage.log().place().unwrap().is_some(), "the entry comes before the name");
        collector.crash_at(None);
        let signer = stage.signer_with(stage.settings(), &collector).unwrap();
        assert_eq!(signer.state(), State::Signing, "{moment:?}");
        // A tree that the crash left unsigned comes first.
        while !matches!(signer.turn(&Heads::of(&[head(1, 1)])).unwrap(), Turn::Made { .. }) {}
        fetch(signer.log(), &vkey(signer.log()));
        drop(signer);
        stage.lose();
        for file in ["keys/log.key", "keys/service.key", "state-copy"] {
            std::fs::remove_file(stage.dir.path().join(file)).unwrap();
        }
    }
}

fn signatures(note: &str) -> Vec<String> {
    let note = Note::parse(note.as_bytes()).unwrap();
    note.signatures.iter().map(|signature| signature.name.clone()).collect()
}

fn a_log_key_signs_beside_its_successor_for_90_days_and_is_retired(stage: &mut Stage) {
    let signer = stage.signer();
    let old = vkey(signer.log());
    let new = signer.rotate(Role::Log).unwrap();
    assert!(old != new && old.name() == new.name());
    let signed = signer.log().newest().unwrap().unwrap();
    assert_eq!(signatures(&signed.note).len(), 2);
    let note = Note::parse(signed.note.as_bytes()).unwrap();
    assert_eq!((note.verify(&[&old]).unwrap().len(), note.verify(&[&new]).unwrap().len()), (1, 1));
    // Who has the old vkey learns of the new one by an entry of that very tree.
    let (checkpoint, entries) = fetch(signer.log(), &old);
    let last = Entry::parse(entries.last().unwrap()).unwrap();
    assert!(matches!(&last, Entry::Key { role: Role::Log, change: KeyChange::Add, key, .. } if **key == new));
    assert_eq!(checkpoint.size, 4);
    assert!(signer.rotate(Role::Log).is_err(), "one rotation at a time");
    // A new process knows both.
    drop(signer);
    let signer = stage.signer();
    make(stage, &signer, &[]);
    let added_ms = signer.log().keys().unwrap().last().unwrap().added_ms;
    stage.world.set(added_ms + ROTATION_MS - 1);
    let Turn::Made { signed, .. } = signer.turn(&Heads::default()).unwrap() else { panic!() };
    assert_eq!(signatures(&signed.note).len(), 2, "a millisecond before");
    stage.pass();
    let Turn::CaughtUp(signed) = signer.turn(&Heads::default()).unwrap() else { panic!() };
    let note = Note::parse(signed.note.as_bytes()).unwrap();
    assert!(note.verify(&[&old]).is_err() && note.verify(&[&new]).is_ok());
    let (_, entries) = fetch(signer.log(), &new);
    let last = Entry::parse(entries.last().unwrap()).unwrap();
    assert!(matches!(&last, Entry::Key { change: KeyChange::Retire, key, .. } if **key == old));
    drop(signer);
    assert_eq!(stage.signer().state(), State::Signing);
}

fn a_crash_at_any_step_of_a_rotation_leaves_keys_that_sign(stage: &mut Stage) {
    for (moment, is_rotated) in
        [(Moment::KeysPrepared, false), (Moment::Begun, true), (Moment::Copied, true), (Moment::Signed, true)]
    {
        let mut stage = if stage.is_embedded() { Stage::embedded() } else { Stage::on_postgres() };
        let stage = &mut stage;
        let collector = Arc::<Collector>::default();
        let signer = stage.signer_with(stage.settings(), &collector).unwrap();
        collector.crash_at(Some(moment));
        assert!(signer.rotate(Role::Log).is_err(), "{moment:?}");
        drop(signer);
        collector.crash_at(None);
        let signer = stage.signer_with(stage.settings(), &collector).unwrap();
        assert_eq!(signer.state(), State::Signing, "{moment:?}");
        stage.pass();
        while !matches!(signer.turn(&Heads::default()).unwrap(), Turn::Early(_)) {}
        let note = signer.log().newest().unwrap().unwrap().note;
        assert_eq!(signatures(&note).len(), 1 + usize::from(is_rotated), "{moment:?}");
    }
}

fn a_service_key_is_replaced_by_entries_alone(stage: &mut Stage) {
    let signer = stage.signer();
    let new = signer.rotate(Role::Service).unwrap();
    let keys = signer.log().keys().unwrap();
    let of_role = |role| keys.iter().filter(move |key| key.role == role);
    assert_eq!(of_role(Role::Log).count(), 1);
    let service: Vec<_> = of_role(Role::Service).map(|key| (key.key == new, key.retired.is_some())).collect();
    assert_eq!(service, [(false, true), (true, false)]);
    assert_eq!(stage.key_file("service.key").read().unwrap().unwrap().len(), 1);
    assert_eq!(signatures(&signer.log().newest().unwrap().unwrap().note).len(), 1);
}

fn a_server_without_the_log_key_serves_and_does_not_sign(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1)]);
    let without = Settings { log_key: None, service_key: None, ..stage.settings() };
    let other = stage.signer_with(without, &Arc::default()).unwrap();
    assert!(matches!(other.state(), State::NoKey(_)), "{:?}", other.state());
    assert!(!other.state().refuses_events());
    stage.pass();
    assert!(matches!(other.turn(&Heads::default()).unwrap(), Turn::Idle));
    fetch(other.log(), &vkey(other.log()));
    // Another key than the log's is no key either.
    let foreign = stage.key_file("foreign.key");
    let place = signer.log().place().unwrap().unwrap();
    let key = keys::new_key(&place.origin, &*stage.world).unwrap();
    foreign.prepare(&[key]).unwrap();
    foreign.finish().unwrap();
    let settings = Settings { log_key: Some(foreign), ..stage.settings() };
    let other = stage.signer_with(settings, &Arc::default()).unwrap();
    assert!(matches!(other.state(), State::NoKey(_)), "{:?}", other.state());
}

fn given_keys_begin_a_log_only_when_an_operator_says_so(stage: &mut Stage) {
    let given = |name| KeyFile { origin: Origin::Given, ..stage.key_file(name) };
    let settings = Settings {
        log_key: Some(given("log.key")),
        service_key: Some(given("service.key")),
        origin: Some("log.example/a".into()),
        ..stage.settings()
    };
    let signer = stage.signer_with(settings.clone(), &Arc::default()).unwrap();
    assert_eq!(signer.state(), State::NotBegun);
    assert!(matches!(signer.turn(&Heads::default()).unwrap(), Turn::Idle));
    assert_eq!(signer.log().place().unwrap(), None);
    // A key of another name would sign checkpoints that no verifier takes for this log's.
    let foreign = given("log.key");
    foreign.prepare(&[keys::new_key("other", &*stage.world).unwrap()]).unwrap();
    foreign.finish().unwrap();
    let refused = signer.init().unwrap_err().to_string();
    assert!(refused.contains("has the name other"), "{refused}");
    std::fs::remove_file(&foreign.path).unwrap();
    signer.init().unwrap();
    assert_eq!(signer.state(), State::Signing);
    assert!(signer.init().is_err(), "once");
    let (checkpoint, _) = fetch(signer.log(), &vkey(signer.log()));
    assert_eq!((checkpoint.origin.as_str(), checkpoint.size), ("log.example/a", 3));
    drop(signer);
    assert_eq!(stage.signer_with(settings, &Arc::default()).unwrap().state(), State::Signing);
}

fn a_key_that_others_can_read_stops_the_start(stage: &mut Stage) {
    drop(stage.signer());
    for name in ["log.key", "service.key"] {
        let path = stage.key_file(name).path;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = stage.signer_with(stage.settings(), &Arc::default()).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("run: chmod 600 {}", path.display())), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}
