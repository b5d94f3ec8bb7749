//! How long test events are kept, by the setting, and what is sealed before any is dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_core::query::Filter;
use sealog_core::time::DAY_MS;
use sealog_service::Stop;
use sealog_service::evidence::verification::{Baseline, queue_baseline};
use sealog_service::ingest::Ingest;
use sealog_service::jobs::{Pace, Runner};
use sealog_service::records::retention::Retention;
use sealog_service::records::system_chain::{Drain, Turns, Wake, drops};
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::reference::ReferenceStore;
use sealog_store::world::World as _;
use sealog_testing::doubtful::DoubtfulStore;
use sealog_testing::*;
use serde_json::Value;

const TENANT: TenantId = TenantId(Uuid([1; 16]));

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

struct Stage {
    store: Arc<DoubtfulStore>,
    control: Arc<Control>,
    world: Arc<StillWorld>,
    drain: Arc<Drain>,
}

impl Stage {
    fn new(store: Arc<dyn Store>, control: Control, world: Arc<StillWorld>) -> Stage {
        let (store, control) = (DoubtfulStore::new(store), Arc::new(control));
        let tenant = NewTenant {
            id: TENANT,
            name: "Acme".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 0,
        };
        wait(control.create_tenant(tenant, vec![])).unwrap();
        let drain = Arc::new(Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            ingest: Ingest::new(Arc::clone(&store) as _, None, Arc::default()),
            world: Arc::clone(&world) as _,
            wake: Wake::default(),
            every: Duration::from_secs(600),
            turns: Turns::default(),
        });
        Stage { store, control, world, drain }
    }

    fn retention(&self, days: u32) -> Retention {
        Retention {
            store: Arc::clone(&self.store) as _,
            control: Arc::clone(&self.control),
            world: Arc::clone(&self.world) as _,
            days,
            drain: Arc::clone(&self.drain),
            recorded: Mutex::default(),
        }
    }

    /// What the system chain says of drops, oldest first.
    fn records(&self, action: &str) -> Vec<Value> {
        let system = wait(self.control.system_project(TENANT, ProjectId::system_from_random([7; 16])));
        let chain = ChainId { tenant_id: TENANT, project_id: system.unwrap().unwrap(), mode: Mode::Live };
        let filter = Filter { action: Some(format!("\"{action}\"")), ..Filter::default() };
        let mut events = list(&*self.store, chain, &filter, None, 1000);
        events.reverse();
        let metadata = |text: Option<&str>| serde_json::from_str::<Value>(text.unwrap()).unwrap();
        events.iter().map(|event| metadata(event.text.fields().metadata)["dropped"].clone()).collect()
    }

    fn unrecorded(&self) -> Vec<String> {
        block(drops::check(&*self.store)).unwrap().unrecorded
    }
}

fn on_both(rule: fn(Stage)) {
    let world = StillWorld::random_at(MORNING_MS);
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    let control = Control::embedded(&store).unwrap();
    rule(Stage::new(Arc::new(store), control, world));
    let (database, world) = (postgres::cluster().database(), StillWorld::random_at(MORNING_MS));
    let store = PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    rule(Stage::new(Arc::new(store), control, world));
}

fn test_chain(project: u8) -> ChainId {
    ChainId { tenant_id: TENANT, project_id: ProjectId(Uuid([project; 16])), mode: Mode::Test }
}

fn fill(store: &dyn Store, chain: ChainId) {
    for n in 0..30 {
        append(store, chain, vec![login(&format!("{n:0200}")); 50]);
    }
}

#[test]
fn test_events_are_dropped_after_so_many_days_and_live_ones_never() {
    let world = StillWorld::new();
    let dir = tempfile::tempdir().unwrap();
    let other = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    let control = Control::embedded(&other).unwrap();
    let stage = Stage::new(Arc::new(ReferenceStore::new(Arc::clone(&world) as _)), control, world);
    let (store, world) = (&stage.store, &stage.world);
    let (test, live) = (test_chain(1), live());
    append(&**store, test, vec![login("old")]);
    append(&**store, live, vec![login("old")]);
    world.advance(DAY_MS);
    append(&**store, test, vec![login("young")]);
    world.advance(29 * DAY_MS);
    assert_eq!(block(stage.retention(30).look()), Ok(0), "30 days to the millisecond");
    world.advance(1);
    assert_eq!(block(stage.retention(0).look()), Ok(0), "0 is for ever");
    assert_eq!(block(stage.retention(30).look()), Ok(1));
    assert_eq!(verify(&**store, test).first_seq, 2);
    world.advance(3650 * DAY_MS);
    assert_eq!(block(stage.retention(30).look()), Ok(1));
    assert_eq!(verify(&**store, live).checked, 1);
    assert_eq!(append(&**store, test, vec![login("next")]).first_seq, 3);
}

#[test]
fn a_drop_is_sealed_before_it_is_done_and_not_done_where_that_fails() {
    on_both(|stage| {
        let (store, chain) = (&*stage.store, test_chain(2));
        fill(store, chain);
        stage.world.advance(31 * DAY_MS);
        append(store, chain, vec![login("young")]);
        let dropped = |store: &DoubtfulStore| wait(store.head(chain)).unwrap().dropped;
        eventually("the mark is past the segments", || {
            !wait(store.plan_drop(stage.world.now_ms() - DAY_MS)).unwrap().is_empty()
        });
        store.fail_system_writes(true);
        assert!(block(stage.retention(30).look()).is_err());
        assert_eq!(dropped(store).chain_seq, 0, "nothing is dropped that cannot be recorded");
        store.fail_system_writes(false);
        let mut events = 0;
        eventually("old events are dropped", || {
            events += block(stage.retention(30).look()).unwrap();
            events > 1000
        });
        let head = dropped(store);
        assert_eq!(head.chain_seq, events);
        let records = stage.records("sealog.test_events_dropped");
        let last = &records.last().unwrap()[0];
        assert_eq!(last["project_id"], chain.project_id.to_string());
        assert_eq!((&last["mode"], &last["last_seq"]), (&"test".into(), &head.chain_seq.into()));
        assert_eq!(last["last_hash"], head.hash.to_string());
        assert_eq!(stage.unrecorded(), [""; 0]);
        assert_eq!(verify(store, chain).first_seq, events + 1);
    });
}

#[test]
fn a_drop_without_its_record_is_a_finding_where_the_system_chain_is_at_hand() {
    on_both(|stage| {
        let (store, chain, other) = (&*stage.store, test_chain(2), chain(9, 2, Mode::Test));
        for chain in [chain, other] {
            fill(store, chain);
        }
        stage.world.advance(31 * DAY_MS);
        for chain in [chain, other] {
            append(store, chain, vec![login("young")]);
        }
        eventually("events are dropped, and nobody has recorded it", || {
            wait(store.drop_test_events(stage.world.now_ms() - DAY_MS)).unwrap();
            [chain, other].iter().all(|chain| wait(store.head(*chain)).unwrap().dropped.chain_seq > 0)
        });
        let found = block(drops::check(store)).unwrap();
        assert_eq!((found.unrecorded.len(), found.unproven.len()), (0, 2), "no system chain is at hand");
        assert!(
            found.unproven[0].contains("deleted up to")
                && found.unproven[0].ends_with("as recorded by the store")
        );
        // The tenant gets a system chain; it says nothing of this chain.
        let system = wait(stage.control.system_project(TENANT, ProjectId::system_from_random([7; 16])));
        let system = ChainId { tenant_id: TENANT, project_id: system.unwrap().unwrap(), mode: Mode::Live };
        append(store, system, vec![login("system")]);
        let found = block(drops::check(store)).unwrap();
        assert_eq!((found.unrecorded.len(), found.unproven.len()), (1, 1));
        assert!(found.unrecorded[0].contains(&chain.to_string()), "{found:?}");
        // A record of as many events that were others is no record of these.
        let dropped = wait(store.head(chain)).unwrap().dropped;
        let other_hash = "ab".repeat(32);
        for (hash, unrecorded) in [(other_hash, 1), (dropped.hash.to_string(), 0)] {
            let (project, seq) = (chain.project_id, dropped.chain_seq);
            let named = format!(
                r#"{{"project_id":"{project}","mode":"test","last_seq":{seq},"last_hash":"{hash}"}}"#
            );
            let record = format!(
                r#"{{"action":"sealog.test_events_dropped","resource":"store/test","metadata":{{"dropped":[{named}]}}}}"#
            );
            append(store, system, vec![draft(&record)]);
            assert_eq!(block(drops::check(store)).unwrap().unrecorded.len(), unrecorded, "{hash}");
        }
    });
}

#[test]
fn drops_that_a_restore_finds_are_sealed_once_and_later_ones_are_not() {
    on_both(|stage| {
        let (store, chain) = (&*stage.store, test_chain(2));
        let drop_some = || {
            fill(store, chain);
            stage.world.advance(31 * DAY_MS);
            append(store, chain, vec![login("young")]);
            let before = wait(store.head(chain)).unwrap().dropped.chain_seq;
            eventually("events are dropped", || {
                while wait(store.drop_test_events(stage.world.now_ms() - DAY_MS)).unwrap().more {}
                wait(store.head(chain)).unwrap().dropped.chain_seq > before
            });
        };
        let work = || {
            let baseline = Baseline {
                store: Arc::clone(&stage.store) as _,
                control: Arc::clone(&stage.control),
                drain: Arc::clone(&stage.drain),
                world: Arc::clone(&stage.world) as _,
            };
            let runner = Runner {
                control: Arc::clone(&stage.control),
                world: Arc::clone(&stage.world) as _,
                works: vec![Arc::new(baseline)],
                wake: Wake::default(),
                records: Wake::default(),
                every: Duration::from_secs(600),
                pace: Pace::default(),
            };
            while block(runner.turn(&Stop::new(), &mut None)).unwrap() {}
        };
        drop_some();
        block(queue_baseline(&stage.control, &*stage.world)).unwrap();
        work();
        assert_eq!(stage.unrecorded(), [""; 0]);
        assert_eq!(stage.records("sealog.baseline").len(), 1);
        drop_some();
        work();
        assert_eq!(stage.records("sealog.baseline").len(), 1);
        assert_eq!(stage.unrecorded().len(), 1);
    });
}
