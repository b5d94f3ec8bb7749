//! Verifications as background jobs: what they find, and what they leave in the system chain; on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealog_control::*;
use sealog_core::canonical::{EventText, Fields};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::SeqRange;
use sealog_service::Stop;
use sealog_service::evidence::seqs::first_at;
use sealog_service::evidence::verification::{
    Found, PIECE_EVENTS, Run, RunEnd, StartError, UNENDED_MAX, Verifications, Verifier, report,
};
use sealog_service::jobs::{Pace, Runner};
use sealog_service::records::system_chain::Wake;
use sealog_store::Store;
use sealog_testing::doubtful::{Doubt, DoubtfulStore};
use sealog_testing::*;
use serde_json::Value;

use crate::both::furnish;

const PERSON: PersonId = PersonId(Uuid([3; 16]));
const ALL: SeqRange = SeqRange { from: 1, to: u64::MAX };

fn tenant(n: u8) -> TenantId {
    TenantId(Uuid([n; 16]))
}

fn chain() -> ChainId {
    ChainId { tenant_id: tenant(1), project_id: ProjectId(Uuid([2; 16])), mode: Mode::Live }
}

struct Stage {
    store: Arc<DoubtfulStore>,
    control: Arc<Control>,
    verifications: Verifications,
    runner: Runner,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new(store: Arc<dyn Store>, control: Control) -> Stage {
        let (store, control) = (DoubtfulStore::new(store), Arc::new(control));
        let world = StillWorld::random_at(MORNING_MS);
        for n in [1, 2] {
            furnish(&control, tenant(n), PERSON);
        }
        let runner = Runner {
            control: Arc::clone(&control),
            world: Arc::clone(&world) as _,
            works: vec![Arc::new(Verifier {
                store: Arc::clone(&store) as _,
                control: Arc::clone(&control),
                world: Arc::clone(&world) as _,
            })],
            wake: Wake::default(),
            records: Wake::default(),
            every: Duration::from_secs(600),
            pace: Pace::default(),
        };
        let verifications = Verifications {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            world: Arc::clone(&world) as _,
            runner: runner.wake.clone(),
            records: Wake::default(),
        };
        Stage { store, control, verifications, runner, world }
    }

    fn fill(&self, events: u64) {
        let drafts: Vec<_> = (0..events).map(|n| login(&n.to_string())).collect();
        for drafts in drafts.chunks(100) {
            append(&*self.store, chain(), drafts.to_vec());
        }
    }

    fn start(&self, range: SeqRange) -> Run {
        wait(self.verifications.start(PERSON, chain(), range)).unwrap()
    }

    fn work(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        while runtime.block_on(self.runner.turn(&Stop::new(), &mut None)).unwrap() {}
    }

    fn ended(&self, range: SeqRange) -> Run {
        let run = self.start(range);
        self.work();
        wait(self.verifications.run(chain(), run.id)).unwrap().unwrap()
    }

    fn broken(&self, range: SeqRange) -> (Run, Found) {
        let run = self.ended(range);
        match run.end.clone() {
            Some(RunEnd::Broken(found)) => (run, *found),
            other => panic!("{other:?}"),
        }
    }

    fn records(&self) -> Vec<Value> {
        let records = wait(self.control.pending_records(tenant(1), 100)).unwrap();
        records.iter().map(|record| serde_json::from_str(&record.draft).unwrap()).collect()
    }
}

fn on_both(rule: fn(Stage)) {
    crate::both::on_both(|store, control| rule(Stage::new(store, control)));
}

#[test]
fn a_sound_chain_is_valid_in_pieces_and_the_system_chain_tells_of_both_ends() {
    on_both(|stage| {
        stage.fill(PIECE_EVENTS + 10);
        let run = stage.ended(ALL);
        assert_eq!(run.end, Some(RunEnd::Valid));
        assert_eq!((run.from, run.to, run.progress.checked), (1, PIECE_EVENTS + 10, PIECE_EVENTS + 10));
        assert_eq!((run.percent(), run.sound_to()), (100, Some(run.to)));
        let head = wait(stage.store.head(chain())).unwrap().durable;
        let (first, last) = (run.progress.first.unwrap(), run.progress.last.unwrap());
        assert_eq!((first.chain_seq, first.prev_hash, last.hash), (1, Hash::ZERO, head.hash));
        let records = stage.records();
        assert_eq!(records[0]["action"], "sealog.verification_started");
        assert_eq!(records[0]["actor_id"], PERSON.0.to_string());
        assert_eq!(records[1]["action"], "sealog.verification_ended");
        assert_eq!(records[1]["metadata"]["valid"], true);
        assert_eq!(records[1]["metadata"]["checked"], run.to);
        let report = report::to_json(&run);
        assert_eq!((&report["valid"], &report["genesis_checked"]), (&true.into(), &true.into()));
        assert_eq!(report["last"]["hash"], head.hash.to_string());
        assert!(report::to_text(&run).contains("result        valid"));
    });
}

#[test]
fn what_is_sealed_after_the_start_is_not_part_of_it_and_a_window_has_both_ends() {
    on_both(|stage| {
        stage.fill(10);
        let whole = stage.start(ALL);
        stage.fill(5);
        stage.work();
        let whole = wait(stage.verifications.run(chain(), whole.id)).unwrap().unwrap();
        assert_eq!((whole.to, whole.progress.checked), (10, 10));
        let window = stage.ended(SeqRange { from: 3, to: 7 });
        assert_eq!((window.end, window.progress.checked), (Some(RunEnd::Valid), 5));
        for (from, to) in [(16, 20), (0, 5), (7, 6)] {
            let refused = wait(stage.verifications.start(PERSON, chain(), SeqRange { from, to }));
            assert_eq!(refused.unwrap_err(), StartError::Nothing, "{from} {to}");
        }
    });
}

#[test]
fn a_changed_event_is_explained_by_what_it_should_hash_to() {
    on_both(|stage| {
        stage.fill(5);
        stage.store.doubt(
            3,
            Doubt::Changed(|event| {
                let text = event.text.clone();
                event.text = EventText::new(Fields { actor_id: Some("\"eve\""), ..text.fields() });
            }),
        );
        let (run, found) = stage.broken(ALL);
        assert_eq!((found.at, found.reason.as_str(), run.sound_to()), (3, "hash", Some(2)));
        let (before, failing) = (found.before.unwrap(), found.failing.unwrap());
        assert_eq!((before.chain_seq, failing.chain_seq), (2, 3));
        assert_eq!((found.expected, found.found), (Some(failing.recomputed), Some(failing.hash)));
        assert_ne!(failing.recomputed, failing.hash);
        let records = stage.records();
        assert_eq!(records[1]["action"], "sealog.chain_broken");
        assert_eq!(records[1]["metadata"]["broken_at"], 3);
        let report = report::to_json(&run);
        assert_eq!((&report["valid"], &report["broken_at"]), (&false.into(), &3.into()));
        assert_eq!(report["expected_hash"], failing.recomputed.to_string());
        assert!(report::to_text(&run).contains("BROKEN AT #3"));
    });
}

/// The alarm of a monitoring system points to this line: it has no labels of its own for project and mode.
#[test]
fn the_log_line_of_a_broken_chain_names_its_project_and_mode() {
    static STORES: AtomicUsize = AtomicUsize::new(0);
    logs::listen();
    on_both(|stage| {
        // No other test, and no other store, logs an error about a project of this name.
        let name = format!("Ledger {} of the log", STORES.fetch_add(1, Ordering::SeqCst));
        let project = NewProject {
            id: chain().project_id,
            tenant_id: tenant(1),
            name: name.clone(),
            frameworks: FrameworkSet::NONE,
            created_at_ms: MORNING_MS,
        };
        wait(stage.control.create_project(project, vec![])).unwrap();
        let test = ChainId { mode: Mode::Test, ..chain() };
        for chain in [chain(), test] {
            append(&*stage.store, chain, (0..3).map(|n| login(&n.to_string())).collect());
        }
        let logged = || logs::errors_with(&format!("project={name:?}"));
        stage.ended(ALL);
        assert_eq!(logged(), [""; 0], "a sound chain is no error");
        stage.store.doubt(2, Doubt::Damaged);
        for (at, chain, mode) in [(0, chain(), "live"), (1, test, "test")] {
            wait(stage.verifications.start(PERSON, chain, ALL)).unwrap();
            stage.work();
            let logged = logged();
            assert_eq!(logged.len(), at + 1, "once for each break: {logged:?}");
            let fields = [format!("mode={mode:?} "), "at=2 ".into(), "reason=\"damaged\" ".into()];
            for part in fields.iter().map(String::as_str).chain(["message=a chain is broken "]) {
                assert!(logged[at].contains(part), "{part} in {}", logged[at]);
            }
        }
    });
}

#[test]
fn a_missing_event_is_explained_by_its_neighbours() {
    on_both(|stage| {
        stage.fill(5);
        stage.store.doubt(3, Doubt::Missing);
        let (_, found) = stage.broken(ALL);
        assert_eq!((found.at, found.reason.as_str()), (4, "gap"));
        let (before, failing) = (found.before.unwrap(), found.failing.unwrap());
        assert_eq!((before.chain_seq, failing.chain_seq), (2, 4));
        assert_eq!((found.expected, found.found), (Some(before.hash), Some(failing.prev_hash)));
        // A damaged one can only be told by what others say of it.
        stage.store.trust();
        stage.store.doubt(2, Doubt::Damaged);
        let (_, found) = stage.broken(SeqRange { from: 2, to: 5 });
        assert_eq!((found.at, found.reason.as_str(), found.failing), (2, "damaged", None));
        assert_eq!(found.before.unwrap().chain_seq, 1);
    });
}

#[test]
fn a_tenant_has_at_most_4_verifications_that_have_not_ended() {
    on_both(|stage| {
        stage.fill(1);
        assert_eq!(UNENDED_MAX, 4);
        let runs: Vec<Run> = (0..4).map(|_| stage.start(ALL)).collect();
        let refused = wait(stage.verifications.start(PERSON, chain(), ALL));
        assert_eq!(refused.unwrap_err(), StartError::TooMany);
        assert_eq!(stage.records().len(), 4, "what was not started left no record");
        assert!(wait(stage.verifications.cancel(PERSON, &runs[0])).unwrap());
        assert!(!wait(stage.verifications.cancel(PERSON, &runs[0])).unwrap());
        let last = stage.start(ALL);
        stage.work();
        let runs = wait(stage.verifications.runs(chain(), None, 10)).unwrap();
        assert_eq!((runs.len(), runs[0].id), (5, last.id));
        assert_eq!(runs[4].end, Some(RunEnd::Cancelled));
        assert!(runs[..4].iter().all(|run| run.end == Some(RunEnd::Valid)));
    });
}

#[test]
fn a_verification_of_another_chain_is_like_one_that_does_not_exist() {
    on_both(|stage| {
        stage.fill(1);
        let run = stage.start(ALL);
        for other in [ChainId { tenant_id: tenant(2), ..chain() }, ChainId { mode: Mode::Test, ..chain() }] {
            assert!(wait(stage.verifications.run(other, run.id)).unwrap().is_none());
            assert!(wait(stage.verifications.runs(other, None, 9)).unwrap().is_empty());
        }
    });
}

#[test]
fn a_disk_that_cannot_be_read_is_no_break() {
    on_both(|stage| {
        stage.fill(3);
        stage.store.fail_reads(true);
        let run = stage.ended(ALL);
        assert_eq!(run.end, None);
        stage.store.fail_reads(false);
        stage.world.advance(10_000);
        stage.work();
        let run = wait(stage.verifications.run(chain(), run.id)).unwrap().unwrap();
        assert_eq!(run.end, Some(RunEnd::Valid));
    });
}

#[test]
fn the_first_event_at_a_time_is_found_by_a_few_reads() {
    on_both(|stage| {
        assert_eq!(wait(first_at(&*stage.store, chain(), 0)), Ok(1));
        stage.fill(500);
        let event = |seq| match range(&*stage.store, chain(), seq, seq, 1).pop() {
            Some(sealog_core::verify::Item::Event(event)) => event.timestamp_ms,
            other => panic!("{other:?}"),
        };
        let (first, last) = (event(1), event(500));
        let read = stage.store.events_read();
        for (time, expected) in [(0, 1), (first, 1), (last + 1, 501), (u64::MAX, 501)] {
            assert_eq!(wait(first_at(&*stage.store, chain(), time)), Ok(expected), "{time}");
        }
        assert!(stage.store.events_read() - read < 60, "by halving");
        stage.store.doubt(250, Doubt::Damaged);
        stage.store.doubt(251, Doubt::Missing);
        assert_eq!(wait(first_at(&*stage.store, chain(), last + 1)), Ok(501));
    });
}
