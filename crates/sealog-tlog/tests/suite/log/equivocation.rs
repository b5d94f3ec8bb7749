//! No two signed checkpoints of one log are inconsistent, whatever happens to the server, and to copies of
//! its log, while the state copy is there. A collector sees each signature when it is made, also those that
//! a crash leaves nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealog_core::id::Hash;
use sealog_testing::{Dice, rounds, seed};
use sealog_tlog::log::*;
use sealog_trust::merkle;

use super::stage::*;

on_both! {
    no_schedule_of_crashes_restores_promotions_and_second_servers_makes_inconsistent_signatures
}

/// On PostgreSQL a schedule takes some ten times as long: it begins with a database of its own, and each
/// server with sessions.
const SCHEDULES: u64 = 20;
const SCHEDULES_ON_POSTGRES: u64 = 4;
const STEPS: u64 = 40;
pub(super) const MOMENTS: [Moment; 5] =
    [Moment::HeadsBuilt, Moment::Extended, Moment::Copied, Moment::Signed, Moment::Kept];

/// What was signed: for each origin and size one root, and each tree the beginning of the larger ones.
#[derive(Default)]
pub(super) struct Evidence {
    signed: BTreeMap<(String, u64), (Hash, String)>,
    /// The entries of the largest tree of each origin that some server served.
    served: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Evidence {
    pub(super) fn add(&mut self, collector: &Collector) {
        for note in collector.notes.lock().unwrap().drain(..) {
            let signed = checkpoint(&note);
            let known = self.signed.entry((signed.origin, signed.size)).or_insert((signed.root, note));
            assert_eq!(known.0, signed.root, "two trees of {} entries are signed", signed.size);
        }
    }

    pub(super) fn serve(&mut self, log: &StoreLog) {
        let (checkpoint, entries) = fetch(log, &vkey(log));
        let known = self.served.entry(checkpoint.origin).or_default();
        let common = known.len().min(entries.len());
        assert_eq!(known[..common], entries[..common], "a served entry has changed");
        if entries.len() > known.len() {
            *known = entries;
        }
    }

    /// Each signed tree that was served to its size begins the largest.
    pub(super) fn check(&self) {
        for ((origin, size), (root, _)) in &self.signed {
            let Some(entries) = self.served.get(origin) else { continue };
            if let Some(begin) = entries.get(..usize::try_from(*size).unwrap()) {
                let leaves: Vec<Hash> = begin.iter().map(|entry| merkle::leaf_hash(entry)).collect();
                assert_eq!(merkle::root_of(&leaves), *root, "{origin} at {size}");
            }
        }
    }
}

fn no_schedule_of_crashes_restores_promotions_and_second_servers_makes_inconsistent_signatures(
    stage: &mut Stage,
) {
    let seed = seed("equivocation");
    let mut all = Counts::default();
    let usual = if stage.is_embedded() { SCHEDULES } else { SCHEDULES_ON_POSTGRES };
    for schedule in 0..rounds(usual) {
        let mut fresh = if stage.is_embedded() { Stage::embedded() } else { Stage::on_postgres() };
        run(&mut fresh, &mut Dice::new(seed.wrapping_add(schedule)), &mut all);
    }
    println!("{all:?}");
    let Counts { signatures, rollbacks, promotions, lagging } = all;
    // A few schedules may come to nothing of a kind.
    let kinds =
        if stage.is_embedded() { &[signatures, rollbacks, promotions, lagging][..] } else { &[signatures] };
    assert!(kinds.iter().all(|count| *count > 0), "the schedules do something: {all:?}");
}

/// What schedules came to.
#[derive(Debug, Default)]
struct Counts {
    signatures: u64,
    rollbacks: u64,
    promotions: u64,
    /// Promotions of copies that lacked something that was signed.
    lagging: u64,
}

fn run(stage: &mut Stage, dice: &mut Dice, counts: &mut Counts) {
    let (collector, mut evidence) = (Arc::<Collector>::default(), Evidence::default());
    let open = |stage: &Stage| stage.signer_with(stage.settings(), &collector).unwrap();
    // Stores whose copy was promoted, and a copy that was not yet.
    let (mut retired, mut replica) = (Vec::new(), None::<Stage>);
    let mut servers = vec![open(stage)];
    let (mut copies, mut size) = (Vec::new(), 0);
    for _ in 0..STEPS {
        match dice.below(14) {
            // A backup, or an older copy in the place of the log; every server starts again.
            0 => {
                servers.clear();
                copies.push(stage.backup());
                servers.push(open(stage));
            }
            1 if !copies.is_empty() => {
                servers.clear();
                stage.restore(*dice.pick(&copies));
                servers.push(open(stage));
                if servers[0].state().refuses_events() {
                    counts.rollbacks += 1;
                    go_on(&servers[0], dice, &evidence);
                }
            }
            2 => servers.push(open(stage)),
            3 if servers.len() > 1 => drop(servers.remove(0)),
            4 => drop(servers[0].rotate(Role::Service)),
            // A crash at some step; the process starts again.
            5 | 6 => {
                stage.pass();
                collector.crash_at(Some(*dice.pick(&MOMENTS)));
                size += 1;
                let _ = servers[0].turn(&Heads::of(&[head(1, size)]));
                collector.crash_at(None);
                servers.remove(0);
                servers.push(open(stage));
            }
            // The copy is brought up to the store. One that is not its beginning any more is begun anew.
            7 | 8 => {
                let outline = stage.log().outline().unwrap().unwrap();
                let to = replica.take().unwrap_or_else(|| stage.beside());
                match to.log().carry(&stage.log(), &outline, Some("it is a copy")) {
                    Err(CarryError::NoBeginning { .. }) => {}
                    carried => {
                        carried.unwrap();
                        replica = Some(to);
                    }
                }
            }
            // It is promoted, however far it is. The old primary may run on, and know nothing of it.
            9 if replica.is_some() => {
                if dice.chance(2) {
                    servers.clear();
                }
                retired.push(std::mem::replace(stage, replica.take().expect("it is there")));
                copies.clear();
                servers.insert(0, open(stage));
                counts.promotions += 1;
                if servers[0].state() != State::Signing {
                    counts.lagging += 1;
                    go_on(&servers[0], dice, &evidence);
                }
            }
            _ => {
                stage.pass();
                size += 1;
                let server = Arc::clone(dice.pick(&servers));
                let _ = server.turn(&Heads::of(&[head(1, size)]));
            }
        }
        evidence.add(&collector);
        evidence.serve(servers[0].log());
    }
    evidence.check();
    counts.signatures += evidence.signed.len() as u64;
}

/// After a rollback only the entries of another copy lead on, or another log.
fn go_on(server: &Signer, dice: &mut Dice, evidence: &Evidence) {
    // No word of an operator does.
    assert!(server.accept_copy("schedule").is_err());
    let place = server.log().place().unwrap().unwrap();
    if dice.chance(2) {
        server.new_log().unwrap();
    } else if let Some(known) = evidence.served.get(&place.origin).cloned() {
        let at = known.len() as u64;
        let (_, note) = &evidence.signed[&(place.origin, at)];
        // The state copy may know of a tree that a crash kept from being served.
        let _ = server.recover(note.as_bytes(), &known, "schedule");
    }
}
