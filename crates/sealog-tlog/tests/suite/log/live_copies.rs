//! Two servers on two live copies of one store, with one key and one state copy. Neither knows of the other:
//! whichever finds in the state copy what its own log does not have stops.

use std::sync::Arc;

use sealog_testing::{Dice, rounds, seed};
use sealog_tlog::log::*;

use super::equivocation::{Evidence, MOMENTS};
use super::stage::*;

on_both! {
    of_two_live_copies_that_differ_one_signs_and_the_other_stops
    no_schedule_of_two_live_copies_makes_inconsistent_signatures
}

/// On PostgreSQL a schedule begins with two databases of its own.
const SCHEDULES: u64 = 20;
const SCHEDULES_ON_POSTGRES: u64 = 3;
const STEPS: u64 = 12;

fn of_two_live_copies_that_differ_one_signs_and_the_other_stops(stage: &mut Stage) {
    let signer = stage.signer();
    make(stage, &signer, &[head(1, 1), head(2, 1)]);
    drop(signer);
    let twin = stage.twin();
    let collector = Arc::<Collector>::default();
    let open = |stage: &Stage| stage.signer_with(stage.settings(), &collector).unwrap();
    let (one, other) = (open(stage), open(&twin));
    let signed = || std::mem::take(&mut *collector.notes.lock().unwrap());

    // Nothing tells them apart yet: the same tree, and its only signature.
    stage.pass();
    for signer in [&one, &other] {
        let made = signer.turn(&Heads::of(&[head(1, 2)])).unwrap();
        assert!(matches!(made, Turn::Made { .. }), "{made:?}");
    }
    let notes = signed();
    assert!(notes.len() == 2 && notes[0] == notes[1], "{notes:?}");

    // Now each has an event that the other does not have.
    stage.pass();
    assert!(matches!(one.turn(&Heads::of(&[head(1, 3)])), Ok(Turn::Made { .. })));
    assert_eq!(signed().len(), 1);
    let refused = other.turn(&Heads::of(&[head(2, 2)])).unwrap_err().to_string();
    assert!(refused.contains("another tree of 6 entries was signed"), "{refused}");
    assert!(matches!(other.state(), State::RolledBack(_)) && other.state().refuses_events());
    assert_eq!(signed(), Vec::<String>::new());

    // It stays so, also after a restart, and the one that signed goes on.
    make(stage, &one, &[head(1, 4)]);
    assert_eq!(signed().len(), 1);
    assert!(matches!(other.turn(&Heads::default()), Ok(Turn::Idle)));
    drop(other);
    let other = open(&twin);
    assert!(matches!(other.state(), State::RolledBack(_)), "{:?}", other.state());
    stage.pass();
    assert!(matches!(other.turn(&Heads::default()), Ok(Turn::Idle)));
    assert_eq!((signed(), one.state()), (Vec::new(), State::Signing));
}

fn no_schedule_of_two_live_copies_makes_inconsistent_signatures(stage: &mut Stage) {
    let seed = seed("live copies");
    let usual = if stage.is_embedded() { SCHEDULES } else { SCHEDULES_ON_POSTGRES };
    for schedule in 0..rounds(usual) {
        let fresh = if stage.is_embedded() { Stage::embedded() } else { Stage::on_postgres() };
        run(&fresh, &mut Dice::new(seed.wrapping_add(schedule)));
    }
}

fn run(stage: &Stage, dice: &mut Dice) {
    let (collector, mut evidence) = (Arc::<Collector>::default(), Evidence::default());
    let signer = stage.signer_with(stage.settings(), &collector).unwrap();
    make(stage, &signer, &[head(1, 1), head(2, 1)]);
    drop(signer);
    let twin = stage.twin();
    let stages = [stage, &twin];
    let open = |at: usize| stages[at].signer_with(stages[at].settings(), &collector).unwrap();
    let mut servers = [open(0), open(1)];
    // Each has a chain that grows here alone.
    let heads = |at: usize, size: u64| Heads::of(&[head(at as u64 + 1, size)]);
    let turn = |servers: &[Arc<Signer>; 2], at: usize, size| drop(servers[at].turn(&heads(at, size)));
    for size in 2..STEPS {
        stages[0].pass();
        let at = usize::from(dice.chance(2));
        match dice.below(6) {
            // Both at once: each may be between its transaction and the state copy while the other signs.
            0 | 1 => std::thread::scope(|scope| {
                for at in 0..2 {
                    let (turn, servers) = (&turn, &servers);
                    scope.spawn(move || turn(servers, at, size));
                }
            }),
            // A crash at some step; the process starts again.
            2 | 3 => {
                collector.crash_at(Some(*dice.pick(&MOMENTS)));
                turn(&servers, at, size);
                collector.crash_at(None);
                servers[at] = open(at);
            }
            4 => drop(servers[at].rotate(Role::Service)),
            _ => turn(&servers, at, size),
        }
        evidence.add(&collector);
        servers.iter().for_each(|server| evidence.serve(server.log()));
    }
    // By now they differ, whatever came before.
    stages[0].pass();
    (0..2).for_each(|at| turn(&servers, at, STEPS));
    evidence.add(&collector);
    servers.iter().for_each(|server| evidence.serve(server.log()));
    evidence.check();
    let stopped = servers.iter().filter(|server| server.state().refuses_events()).count();
    assert_eq!(stopped, 1, "{:?}", servers.each_ref().map(|server| server.state()));
}
