//! Verifications that nobody starts: every night, once on all servers, and the mails about them; on both
//! stores.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealog_control::*;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_core::time::DAY_MS;
use sealog_core::verify::Item;
use sealog_service::Stop;
use sealog_service::evidence::verification::{
    DERIVED_KIND, DerivedCheck, Figures, LOOKS_MAX, OPEN_MAX, RunEnd, Schedule, Scheduler, Sweep,
    Verifications, Verifier,
};
use sealog_service::jobs::{Pace, Runner};
use sealog_service::records::system_chain::Wake;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World as _;
use sealog_testing::doubtful::{Doubt, DoubtfulStore};
use sealog_testing::*;
use serde_json::Value;

const TENANT: TenantId = TenantId(Uuid([1; 16]));

fn chain_of(n: u8) -> ChainId {
    ChainId { tenant_id: TENANT, project_id: ProjectId(Uuid([n; 16])), mode: Mode::Live }
}

struct Stage {
    store: Arc<DoubtfulStore>,
    control: Arc<Control>,
    world: Arc<StillWorld>,
    runner: Runner,
    scheduler: Scheduler,
    schedule: Schedule,
    sweep: Sweep,
}

impl Stage {
    /// At noon: the next night begins in twelve hours.
    fn new(store: Arc<dyn Store>, control: Control) -> Stage {
        let (store, control) = (DoubtfulStore::new(store), Arc::new(control));
        // A database has a clock of its own, and chains have to be older than the night.
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let today = u64::try_from(now_ms).unwrap() / DAY_MS;
        let world = StillWorld::random_at((today + 1) * DAY_MS + DAY_MS / 2);
        let tenant = NewTenant {
            id: TENANT,
            name: "Acme".into(),
            plan: "top".into(),
            contact_email: Some("ops@acme.example".into()),
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 0,
        };
        wait(control.create_tenant(tenant, vec![])).unwrap();
        let verifier = Verifier {
            store: Arc::clone(&store) as _,
            control: Arc::clone(&control),
            world: Arc::clone(&world) as _,
        };
        let derived = DerivedCheck { store: Arc::clone(&store) as _, control: Arc::clone(&control) };
        let runner = Runner {
            control: Arc::clone(&control),
            world: Arc::clone(&world) as _,
            works: vec![Arc::new(verifier), Arc::new(derived)],
            wake: Wake::default(),
            records: Wake::default(),
            every: Duration::from_secs(600),
            pace: Pace::default(),
        };
        // Monday or not: the day of the report is one that the tests choose.
        let schedule = Schedule { at_ms: 0, report_on: None };
        let scheduler = scheduler(&store, &control, &world);
        Stage { store, control, world, runner, scheduler, schedule, sweep: Sweep::default() }
    }

    fn fill(&self, chain: ChainId, events: usize) {
        let drafts: Vec<_> = (0..events).map(|n| login(&n.to_string())).collect();
        append(&*self.store, chain, drafts);
    }

    fn sweep(&mut self) {
        block(self.scheduler.sweep(self.schedule, &mut self.sweep)).unwrap();
    }

    fn work(&self) {
        while block(self.runner.turn(&Stop::new(), &mut None)).unwrap() {}
    }

    /// Sweeps and works until nothing is left to do.
    fn night(&mut self) {
        for _ in 0..20 {
            self.sweep();
            self.work();
        }
        self.sweep();
    }

    fn next_day(&mut self) {
        self.world.advance(DAY_MS);
    }

    fn runs(&self, chain: ChainId) -> Vec<(bool, Option<RunEnd>)> {
        let verifications = Verifications {
            control: Arc::clone(&self.control),
            store: Arc::clone(&self.store) as _,
            world: Arc::clone(&self.world) as _,
            runner: Wake::default(),
            records: Wake::default(),
        };
        let runs = wait(verifications.runs(chain, None, 50)).unwrap();
        runs.into_iter().map(|run| (run.person_id.is_none(), run.end)).collect()
    }

    /// What was put into the outbox, by its template.
    fn mails(&self, template: &str) -> Vec<Value> {
        let due = wait(self.control.due_notices(u64::MAX >> 1, 100)).unwrap();
        let of = due.iter().filter(|notice| notice.template == template);
        of.map(|notice| serde_json::from_str(&notice.parameters).unwrap()).collect()
    }

    fn figures(&self) -> [u64; 4] {
        let Figures { broken, failed, stale, open, .. } = &self.scheduler.figures;
        [broken, failed, stale, open].map(|figure| figure.load(Ordering::Relaxed))
    }
}

fn scheduler(store: &Arc<DoubtfulStore>, control: &Arc<Control>, world: &Arc<StillWorld>) -> Scheduler {
    Scheduler {
        store: Arc::clone(store) as _,
        control: Arc::clone(control),
        world: Arc::clone(world) as _,
        schedule: None,
        has_mail: true,
        runner: Wake::default(),
        every: Duration::from_secs(600),
        figures: Figures::default(),
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn on_both(rule: fn(Stage)) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let control = Control::embedded(&store).unwrap();
    rule(Stage::new(Arc::new(store), control));
    let database = postgres::cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    rule(Stage::new(Arc::new(store), control));
}

#[test]
fn every_live_chain_is_verified_once_a_night_and_no_test_chain_is() {
    on_both(|mut stage| {
        let (live, test) = (chain_of(2), ChainId { mode: Mode::Test, ..chain_of(2) });
        let system = ChainId { tenant_id: TENANT, ..system_chain(1) };
        for chain in [live, test, system] {
            stage.fill(chain, 5);
        }
        stage.night();
        for chain in [live, system] {
            assert_eq!(stage.runs(chain), [(true, Some(RunEnd::Valid))], "{chain}");
        }
        assert_eq!(stage.runs(test), []);
        assert_eq!(stage.figures(), [0, 0, 0, 0]);
        assert!(stage.scheduler.figures.last_success_ms.load(Ordering::Relaxed) > 0);
        stage.next_day();
        stage.night();
        assert_eq!(stage.runs(live).len(), 2);
        let records = wait(stage.control.pending_records(TENANT, 100)).unwrap();
        let ended = records.iter().filter(|record| record.draft.contains("sealog.verification_ended"));
        assert_eq!(ended.count(), 4);
    });
}

#[test]
fn of_two_servers_one_queues_and_a_restart_queues_nothing_again() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 3);
        let second = scheduler(&stage.store, &stage.control, &stage.world);
        let mut sweep = Sweep::default();
        stage.sweep();
        block(second.sweep(stage.schedule, &mut sweep)).unwrap();
        stage.work();
        block(second.sweep(stage.schedule, &mut sweep)).unwrap();
        assert_eq!(stage.runs(chain_of(2)).len(), 1);
        assert!(second.figures.last_success_ms.load(Ordering::Relaxed) > 0, "both know of it");
        stage.sweep = Sweep::default();
        stage.night();
        assert_eq!(stage.runs(chain_of(2)).len(), 1);
    });
}

#[test]
fn derived_data_is_compared_by_one_job_of_the_store_a_night() {
    on_both(|mut stage| {
        // Enough for several segments, or several steps.
        for _ in 0..40 {
            stage.fill(chain_of(2), 50);
        }
        let jobs = |stage: &Stage| {
            let page = ListPage { after: None, limit: 100 };
            let all = wait(stage.control.all_jobs(false, page)).unwrap();
            all.into_iter().filter(|job| job.kind == DERIVED_KIND).collect::<Vec<_>>()
        };
        let second = scheduler(&stage.store, &stage.control, &stage.world);
        stage.sweep();
        block(second.sweep(stage.schedule, &mut Sweep::default())).unwrap();
        assert_eq!(jobs(&stage).len(), 1, "of two servers one queues it");
        // Nobody works: the next night has none of its own.
        stage.next_day();
        stage.sweep();
        assert_eq!(jobs(&stage).len(), 1);
        stage.night();
        let done = jobs(&stage).remove(0);
        assert_eq!(done.state, JobState::Done);
        let position = done.position.unwrap();
        let line = position.split(|byte| *byte == b'\n').next().unwrap();
        let figures: Value = serde_json::from_slice(line).unwrap();
        assert!(figures["events"].as_u64().unwrap() > 1000 && figures["faults"] == 0, "{figures}");
        stage.next_day();
        stage.night();
        assert_eq!(jobs(&stage).len(), 2);
        assert_eq!(stage.store.faults(), [""; 0]);
    });
}

#[test]
fn a_chain_that_began_after_the_night_waits_for_the_next_one() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 1);
        let first = range(&*stage.store, chain_of(2), 1, 1, 1).pop();
        let Some(Item::Event(event)) = first else { panic!("{first:?}") };
        // On the same day, whose night began before.
        stage.world.set(event.timestamp_ms + 1);
        stage.night();
        assert_eq!(stage.runs(chain_of(2)), []);
        stage.next_day();
        stage.night();
        assert_eq!(stage.runs(chain_of(2)).len(), 1);
    });
}

#[test]
fn a_sweep_is_bounded_and_the_next_one_goes_on() {
    on_both(|mut stage| {
        assert_eq!((OPEN_MAX, LOOKS_MAX), (16, 64));
        for n in 0..20 {
            stage.fill(chain_of(100 + n), 1);
        }
        stage.sweep();
        let queued =
            |stage: &Stage| wait(stage.control.due_jobs("verify".into(), u64::MAX >> 1, 100)).unwrap().len();
        assert_eq!(queued(&stage), OPEN_MAX);
        stage.sweep();
        assert_eq!(queued(&stage), OPEN_MAX, "those have not ended");
        assert_eq!(stage.figures()[3], OPEN_MAX as u64);
        stage.night();
        assert!((0..20).all(|n| stage.runs(chain_of(100 + n)).len() == 1));
    });
}

#[test]
fn a_break_is_counted_and_mailed_once_and_verified_again_until_it_is_mended() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 5);
        stage.store.doubt(3, Doubt::Missing);
        stage.night();
        assert!(matches!(stage.runs(chain_of(2))[0], (true, Some(RunEnd::Broken(_)))));
        assert_eq!(stage.figures(), [1, 0, 0, 0]);
        stage.next_day();
        stage.night();
        let mails = stage.mails("verification_failed");
        assert_eq!(mails.len(), 1, "one for a break, however often it is found");
        assert_eq!((&mails[0]["at"], &mails[0]["name"]), (&4.into(), &"Acme".into()));
        stage.store.trust();
        stage.next_day();
        stage.night();
        assert_eq!(stage.figures(), [0, 0, 0, 0]);
    });
}

#[test]
fn a_chain_that_cannot_be_verified_becomes_stale_and_gets_no_second_job() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 5);
        stage.night();
        // Nobody works.
        for _ in 0..3 {
            stage.next_day();
            stage.sweep();
        }
        assert_eq!(stage.runs(chain_of(2)).len(), 2, "one that was done, one that waits");
        assert_eq!(stage.figures(), [0, 0, 1, 1]);
        stage.work();
        stage.sweep();
        assert_eq!(stage.figures()[3], 0);
        stage.next_day();
        stage.night();
        assert_eq!(stage.figures(), [0, 0, 0, 0]);
    });
}

#[test]
fn a_tenant_has_one_report_a_week_and_it_says_what_the_nights_found() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 5);
        for _ in 0..3 {
            stage.night();
            stage.next_day();
        }
        // The day that has just begun.
        let day = (stage.world.now_ms() / DAY_MS + 3) % 7;
        stage.schedule.report_on = Some(day);
        stage.night();
        stage.sweep = Sweep::default();
        stage.night();
        let reports = stage.mails("integrity_report");
        assert_eq!(reports.len(), 1);
        let report = &reports[0];
        assert_eq!((&report["broken"], &report["unverified"]), (&0.into(), &0.into()));
        let listed = &report["chains"][0];
        assert_eq!((&listed["nights"], &listed["checked"]), (&3.into(), &15.into()));
        let head = wait(stage.store.head(chain_of(2))).unwrap().durable;
        assert_eq!(listed["hash"], head.hash.to_string());
        stage.store.doubt(2, Doubt::Missing);
        for _ in 0..7 {
            stage.next_day();
            stage.night();
        }
        let reports = stage.mails("integrity_report");
        assert_eq!(reports.len(), 2);
        assert_eq!(reports[1]["broken"], 1);
    });
}

#[test]
fn old_runs_of_the_schedule_are_forgotten() {
    on_both(|mut stage| {
        stage.fill(chain_of(2), 1);
        stage.night();
        stage.world.advance(91 * DAY_MS);
        stage.night();
        assert_eq!(stage.runs(chain_of(2)).len(), 1);
    });
}
