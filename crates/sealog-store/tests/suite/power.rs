//! Power cuts and failing disks, on a disk in memory that loses what was not synced. A ledger outside the
//! store keeps every acknowledgement.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_core::canonical::EventText;
use sealog_core::id::{ChainId, Mode, TenantId, Ulid, Uuid};
use sealog_core::query::Filter;
use sealog_core::verify::Item;
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::{Append, Appended, Receipt, Reserved, Store, StoreError};
#[cfg(not(feature = "mutants"))]
use sealog_testing::examples::{built, cargo};
use sealog_testing::sim::{DIR, Plan, SimDisk};
use sealog_testing::*;

fn options(disk: &SimDisk, world: &Arc<StillWorld>) -> Options {
    Options { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, tick: Duration::from_millis(5), ..small(world) }
}

fn open(disk: &SimDisk, world: &Arc<StillWorld>) -> EmbeddedStore {
    EmbeddedStore::open(Path::new(DIR), &options(disk, world)).unwrap()
}

/// Events that tests use to try things out; no ledger has them.
const PROBES: TenantId = TenantId(Uuid([9; 16]));

/// An acknowledged request: its chain, the answer, and what was sent.
type Acked = (ChainId, Receipt, Vec<EventText>);

/// What clients know: what they sent, and what was acknowledged.
#[derive(Default)]
struct Ledger {
    acked: Mutex<HashMap<String, Acked>>,
    sent: Mutex<Vec<(ChainId, String, usize)>>,
}

impl Ledger {
    /// Sends requests until the store fails or the count is reached.
    fn load(&self, store: &dyn Store, thread: u64, cycle: u64, dice: &mut Dice, requests: u64) {
        let chains = [live(), chain(1, 2, Mode::Live), chain(2, 1, Mode::Test)];
        for n in 0..requests {
            let chain = *dice.pick(&chains);
            let nonce = format!("c{cycle}t{thread}n{n}");
            let count = if dice.chance(5) { 1 + dice.below(20) } else { 1 };
            let drafts: Vec<_> = (0..count)
                .map(|i| draft(&format!(r#"{{"action":"a.b","actor_id":"{nonce}","resource":"r/{i}","metadata":{{"x":"{}"}}}}"#, "y".repeat(usize::try_from(dice.below(300)).unwrap()))))
                .collect();
            let texts: Vec<_> = drafts.iter().map(|draft| draft.text.clone()).collect();
            self.sent.lock().unwrap().push((chain, nonce.clone(), texts.len()));
            let idempotency = if dice.chance(2) {
                match wait(store.reserve(chain, key(&nonce, &nonce))) {
                    Ok(Reserved::Fresh(reservation)) => Some((reservation, Ulid(u128::from(n)))),
                    Ok(other) => panic!("a fresh key is {other:?}"),
                    Err(_) => return,
                }
            } else {
                None
            };
            match wait(store.append(Append { chain, drafts, idempotency })) {
                Ok(Appended::Sealed(receipt)) => {
                    self.acked.lock().unwrap().insert(nonce, (chain, receipt, texts));
                }
                Ok(other) => panic!("{other:?}"),
                Err(StoreError::Deadline | StoreError::QueueFull) => panic!("the load is small"),
                Err(_) => return,
            }
        }
    }

    /// Everything that was acknowledged is there, once, as it was; nothing is there that was not sent; all
    /// chains are whole.
    fn check(&self, store: &dyn Store) {
        let (mut lost, mut wrong) = (0, 0);
        let acked = self.acked.lock().unwrap();
        for (chain, receipt, texts) in acked.values() {
            for ((seq, log_id), text) in (receipt.first_seq..).zip(&receipt.log_ids).zip(texts) {
                match wait(store.get(*chain, *log_id)) {
                    Ok(Some(event)) => {
                        wrong += u32::from(event.sealed.chain_seq != seq || event.text != *text)
                    }
                    _ => lost += 1,
                }
            }
        }
        assert_eq!((lost, wrong), (0, 0), "acknowledged lost, acknowledged changed");
        let mut found: HashMap<String, usize> = HashMap::new();
        for (chain, head) in wait(store.heads()).unwrap() {
            assert_valid(store, chain, head.chain_seq);
            for item in range(store, chain, 1, head.chain_seq, 1 << 20) {
                let Item::Event(event) = item else { panic!("damaged") };
                if chain.tenant_id == PROBES {
                    continue;
                }
                let actor = event.text.fields().actor_id.unwrap().trim_matches('"').to_owned();
                *found.entry(actor).or_default() += 1;
            }
        }
        let mut partial = 0;
        for (_, nonce, count) in self.sent.lock().unwrap().iter() {
            let present = found.remove(nonce).unwrap_or(0);
            partial += u32::from(present != 0 && present != *count);
        }
        assert_eq!((partial, found.len()), (0, 0), "half or doubled requests, events never sent");
    }
}

/// One run of many power cuts in a row on the same disk, at random moments of start-up, load and stop. The
/// number of acknowledged requests.
fn power_cuts(cycles: u64, seed: u64) -> usize {
    let mut dice = Dice::new(seed);
    let world = StillWorld::new();
    let mut disk = SimDisk::new();
    let ledger = Ledger::default();
    for cycle in 0..cycles {
        let reach = *dice.pick(&[40, 150, 600, 3000]);
        disk.plan(Plan { power_cut_at: Some(1 + dice.below(reach)), ..Plan::default() });
        if let Ok(store) = EmbeddedStore::open(Path::new(DIR), &options(&disk, &world)) {
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let mut dice = Dice::new(dice.roll());
                    let (ledger, store) = (&ledger, &store);
                    scope.spawn(move || ledger.load(store, thread, cycle, &mut dice, 40));
                }
            });
        }
        world.advance(dice.below(50));
        disk = disk.after_power_cut(&mut dice);
        let store = open(&disk, &world);
        ledger.check(&store);
        let findings = store.findings();
        assert!(
            findings.iter().all(|(_, finding)| matches!(finding, Finding::TornTail { .. })),
            "cycle {cycle}: {findings:?}"
        );
        drop(store);
        disk = disk.after_kill();
    }
    ledger.acked.lock().unwrap().len()
}

#[test]
fn acknowledged_events_survive_power_cuts_at_any_moment() {
    let seed = seed("acknowledged_events_survive_power_cuts_at_any_moment");
    let acked: usize = (0..6).map(|run| power_cuts(40, seed.wrapping_add(run))).sum();
    println!("power cuts 240, acknowledged requests {acked}, lost 0, doubled 0");
    assert!(acked > 1000, "the load must get somewhere: {acked}");
}

#[test]
fn a_power_cut_at_each_call_of_start_up_loses_nothing() {
    let world = StillWorld::new();
    let disk = SimDisk::new();
    let ledger = Ledger::default();
    let mut dice = Dice::new(3);
    {
        let store = open(&disk, &world);
        ledger.load(&store, 0, 0, &mut dice, 150);
        // No clean stop: the disk is taken away while the store is open.
        let before = disk.after_kill();
        drop(store);
        for at in 1.. {
            let copy = before.after_kill();
            copy.plan(Plan { power_cut_at: Some(at), ..Plan::default() });
            let opened = EmbeddedStore::open(Path::new(DIR), &options(&copy, &world));
            let done = opened.is_ok() && copy.calls() < at;
            drop(opened);
            for _ in 0..3 {
                let after = copy.after_power_cut(&mut dice);
                ledger.check(&open(&after, &world));
            }
            if done {
                println!("{at} calls of start-up, each cut, each recovered");
                return;
            }
        }
    }
}

#[test]
fn a_failed_sync_or_write_fails_its_requests_and_stops_appends_until_the_next_start() {
    let seed = seed("a_failed_sync_or_write");
    let mut dice = Dice::new(seed);
    for round in 0..60 {
        let world = StillWorld::new();
        let disk = SimDisk::new();
        let ledger = Ledger::default();
        let store = open(&disk, &world);
        ledger.load(&store, 0, 0, &mut dice, 10);
        let nth = dice.below(30);
        let plan = if round % 2 == 0 {
            Plan { fail_sync: Some(nth), ..Plan::default() }
        } else {
            Plan { fail_write: Some(nth), ..Plan::default() }
        };
        disk.plan(plan);
        ledger.load(&store, 1, 0, &mut dice, 200);
        // The failure may have hit a mark or an index, which are not in the path of events.
        if store.ready().is_err() {
            assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))));
            // Live and test events have a log each; one of the two has failed, and a chain that the ledger
            // does not know shows which.
            let refused = |mode| {
                matches!(
                    try_append(&store, chain(9, 9, mode), vec![login("probe")]),
                    Err(StoreError::Poisoned(_))
                )
            };
            assert!(refused(Mode::Live) || refused(Mode::Test), "appends to the failed log stay refused");
            ledger.check(&store);
        }
        drop(store);
        // The process starts again and sees what the page cache shows, durable or not ...
        let disk = disk.after_kill();
        let store = open(&disk, &world);
        ledger.check(&store);
        ledger.load(&store, 2, 0, &mut dice, 30);
        ledger.check(&store);
        drop(store);
        // ... and what it built on must survive a power cut.
        let disk = disk.after_power_cut(&mut dice);
        ledger.check(&open(&disk, &world));
    }
}

#[test]
fn a_full_disk_refuses_before_writing_reads_go_on_and_it_resumes_by_itself() {
    let world = StillWorld::new();
    let disk = SimDisk::new();
    let ledger = Ledger::default();
    let store = open(&disk, &world);
    ledger.load(&store, 0, 0, &mut Dice::new(1), 10);
    disk.plan(Plan { capacity: Some(900 << 10), ..Plan::default() });
    for cycle in 1.. {
        ledger.load(&store, 0, cycle, &mut Dice::new(cycle), 100);
        match store.ready() {
            Ok(()) => assert!(cycle < 1000, "the disk never filled up"),
            Err(error) => {
                assert_eq!(error, StoreError::NoRoom);
                break;
            }
        }
    }
    let syncs = disk.syncs();
    assert_eq!(try_append(&store, live(), vec![login("a")]), Err(StoreError::NoRoom));
    assert_eq!(disk.syncs(), syncs, "nothing is written for a refused request");
    ledger.check(&store);
    disk.plan(Plan::default());
    eventually("it resumes", || store.ready().is_ok());
    ledger.load(&store, 1, 0, &mut Dice::new(2), 200);
    assert_eq!(store.ready(), Ok(()));
    ledger.check(&store);
    drop(store);
    let store = open(&disk.after_power_cut(&mut Dice::new(9)), &world);
    ledger.check(&store);
    assert_eq!(store.findings(), []);
}

#[test]
fn an_idempotency_key_and_its_events_survive_together_or_not_at_all() {
    let seed = seed("an_idempotency_key_and_its_events");
    let mut dice = Dice::new(seed);
    for round in 0..60 {
        let world = StillWorld::new();
        let disk = SimDisk::new();
        drop(open(&disk, &world));
        let disk = disk.after_kill();
        disk.plan(Plan { power_cut_at: Some(20 + dice.below(120)), ..Plan::default() });
        let mut acked = Vec::new();
        if let Ok(store) = EmbeddedStore::open(Path::new(DIR), &options(&disk, &world)) {
            for n in 0..20u64 {
                let Ok(Reserved::Fresh(reservation)) =
                    wait(store.reserve(live(), key(&format!("k{n}"), "b")))
                else {
                    break;
                };
                let idempotency = Some((reservation, Ulid(u128::from(n))));
                match wait(store.append(Append {
                    chain: live(),
                    drafts: vec![login(&format!("u{n}"))],
                    idempotency,
                })) {
                    Ok(Appended::Sealed(receipt)) => acked.push(receipt),
                    _ => break,
                }
            }
        }
        let store = open(&disk.after_power_cut(&mut dice), &world);
        for n in 0..20u64 {
            let outcome = append_once(
                &store,
                live(),
                vec![login(&format!("u{n}"))],
                key(&format!("k{n}"), "b"),
                Ulid(u128::from(n)),
            );
            match (outcome, acked.get(usize::try_from(n).unwrap())) {
                (Outcome::Replayed(receipt), Some(first)) => assert_eq!(receipt, *first, "round {round}"),
                (Outcome::Replayed(_) | Outcome::Sealed(_), None) => {}
                other => panic!("round {round}, key {n}: {other:?}"),
            }
        }
        // Whichever way each write went, every event is there exactly once.
        assert_valid(&store, live(), 20);
        let actors = list(&store, live(), &Filter::default(), None, 100)
            .iter()
            .map(|event| event.text.fields().actor_id.unwrap().to_owned())
            .collect::<std::collections::HashSet<_>>();
        assert_eq!(actors.len(), 20);
    }
}

/// The tests above must be able to fail. `scripts/torture mutants` has the deliberate bugs that this disk
/// does not show: frames without a checksum, keys outside of their frame.
///
/// One build has all of them as switches. Each must turn a test red, for the reason that it is there for.
#[test]
#[ignore = "builds the store once more; `just nightly` runs it"]
#[cfg(not(feature = "mutants"))]
fn mutants_are_caught() {
    let lost = "acknowledged lost";
    let caught_by = [
        ("ack-before-sync", "acknowledged_events_survive_power_cuts_at_any_moment", lost),
        ("skip-directory-sync", "acknowledged_events_survive_power_cuts_at_any_moment", lost),
        (
            "retry-failed-sync",
            "a_failed_sync_or_write_fails_its_requests_and_stops_appends_until_the_next_start",
            "must not be synced again and believed",
        ),
    ];
    // Beside this test, so that only the store itself is built again.
    let (target, _) = built();
    let run = |mutant: Option<&str>, test: Option<&str>| {
        let mut cargo = cargo();
        cargo
            .args(["test", "--quiet", "--locked", "-p", "sealog-store", "--features", "mutants"])
            .args(["--test", "suite", "--target-dir"])
            .arg(&target)
            .args(["--", &format!("power::{}", test.unwrap_or_default())])
            .env_remove("SEALOG_MUTANT")
            .envs(mutant.map(|mutant| ("SEALOG_MUTANT", mutant)));
        let output = cargo.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (held, text) = run(None, None);
    assert!(held && text.contains("test result: ok"), "without a mutant everything must hold:\n{text}");
    for (mutant, test, why) in caught_by {
        let (held, text) = run(Some(mutant), Some(test));
        assert!(!held, "{test} did not notice {mutant}");
        assert!(text.contains(why), "{mutant}: {test} failed for another reason:\n{text}");
    }
    println!("mutants caught {0} of {0}", caught_by.len());
}
