//! Control data is compared with the system chain, and chains with heads that control data holds.

use std::sync::Arc;
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::key;
use sealog_core::plan::Plan;
use sealog_core::time::DAY_MS;
use sealog_core::verify::Item;
use sealog_service::evidence::verification::{
    Baseline, DERIVED_KIND, DerivedCheck, Figures, RunEnd, Schedule, Scheduler, Sweep, Verifications,
    Verifier, compare_all, queue_baseline,
};
use sealog_service::ingest::Ingest;
use sealog_service::jobs::{Pace, Runner, Work};
use sealog_service::people::admin::keys::{KeyInput, RollInput};
use sealog_service::people::admin::monitor_tokens::{MonitorTokenInput, Watched};
use sealog_service::people::admin::people::{MemberInput, MemberUpdate};
use sealog_service::people::admin::projects::ProjectInput;
use sealog_service::people::admin::tenants::TenantInput;
use sealog_service::people::admin::{Actor, Admin};
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_service::{Secret, Stop};
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::loss::Loss;
use sealog_store::postgres::PostgresStore;
use sealog_store::reference::ReferenceStore;
use sealog_testing::postgres::{Database, cluster};
use sealog_testing::*;
use serde_json::Value;

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

struct Stage {
    store: Arc<dyn Store>,
    control: Arc<Control>,
    world: Arc<StillWorld>,
    admin: Admin,
    drain: Arc<Drain>,
    tenant_id: TenantId,
    project_id: ProjectId,
    database: Option<Database>,
}

impl Stage {
    fn new(store: Arc<dyn Store>, control: Control, database: Option<Database>) -> Stage {
        let (control, world) = (Arc::new(control), StillWorld::random_at(MORNING_MS + 30 * DAY_MS));
        let drain = Arc::new(Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store),
            ingest: Ingest::new(Arc::clone(&store), None, Arc::default()),
            world: Arc::clone(&world) as _,
            wake: Wake::default(),
            every: Duration::from_millis(20),
            turns: Turns::default(),
        });
        let of_admin: Arc<dyn sealog_store::world::World> = Arc::clone(&world) as _;
        let admin = Admin::new(Arc::clone(&control), of_admin, &Plan::defaults(), Wake::default());
        let input = TenantInput { name: "Acme".into(), ..TenantInput::default() };
        let tenant_id = block(admin.create_tenant(Actor::Host, input)).unwrap().id;
        let input = ProjectInput { name: "P".into(), ..ProjectInput::default() };
        let project_id = block(admin.create_project(Actor::Host, tenant_id, input)).unwrap().id;
        Stage { store, control, world, admin, drain, tenant_id, project_id, database }
    }

    fn key(&self) -> KeyId {
        let input = KeyInput { name: "k".into(), mode: "live".into(), expires_at: None, form: None };
        block(self.admin.create_key(Actor::Host, self.project_id, input)).unwrap().key.id
    }

    fn monitor_token(&self) -> MonitorTokenId {
        let input = MonitorTokenInput { name: "m".into(), ..MonitorTokenInput::default() };
        let watched = Watched::SystemChain(self.tenant_id);
        block(self.admin.create_monitor_token(Actor::Host, watched, input)).unwrap().token.id
    }

    fn member(&self, email: &str) -> PersonId {
        let password = Secret("a long enough password".into());
        let input = MemberInput { email: email.into(), password, role: "developer".into() };
        block(self.admin.add_member(Actor::Host, self.tenant_id, input)).unwrap().person.id
    }

    fn works(&self) -> Vec<Arc<dyn Work>> {
        let control = || Arc::clone(&self.control);
        let (store, world) = (|| Arc::clone(&self.store), || Arc::clone(&self.world) as _);
        vec![
            Arc::new(Verifier { store: store(), control: control(), world: world() }),
            Arc::new(DerivedCheck { store: store(), control: control() }),
            Arc::new(Baseline {
                store: store(),
                control: control(),
                drain: Arc::clone(&self.drain),
                world: world(),
            }),
        ]
    }

    fn work(&self) {
        let runner = Runner {
            control: Arc::clone(&self.control),
            world: Arc::clone(&self.world) as _,
            works: self.works(),
            wake: Wake::default(),
            records: Wake::default(),
            every: Duration::from_secs(600),
            pace: Pace::default(),
        };
        while block(runner.turn(&Stop::new(), &mut None)).unwrap() {}
    }

    fn drain(&self) {
        block(async {
            let drained = async {
                while self.control.count_records().await.unwrap() > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = Arc::clone(&self.drain).run() => {}
                () = drained => {}
            }
        });
    }

    /// How many differences the comparison of a new night has found.
    fn night(&self) -> u64 {
        self.world.advance(DAY_MS);
        let scheduler = Scheduler {
            store: Arc::clone(&self.store),
            control: Arc::clone(&self.control),
            world: Arc::clone(&self.world) as _,
            schedule: None,
            has_mail: false,
            runner: Wake::default(),
            every: Duration::from_secs(600),
            figures: Figures::default(),
        };
        let schedule = Schedule { at_ms: 0, report_on: None };
        let mut sweep = Sweep::default();
        block(scheduler.sweep(schedule, &mut sweep)).unwrap();
        self.work();
        let jobs = wait(self.control.all_jobs(false, ListPage { after: None, limit: 100 })).unwrap();
        let last = jobs.iter().filter(|job| job.kind == DERIVED_KIND).max_by_key(|job| job.created_at_ms);
        let position = last.unwrap().position.clone().unwrap();
        let line = position.split(|byte| *byte == b'\n').next().unwrap();
        let figures: Value = serde_json::from_slice(line).unwrap();
        figures["faults"].as_u64().unwrap()
    }
}

fn on_both(rule: fn(Stage)) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let control = Control::embedded(&store).unwrap();
    rule(Stage::new(Arc::new(store), control, None));
    let database = cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    rule(Stage::new(Arc::new(store), control, Some(database)));
}

#[test]
fn what_people_change_matches_the_system_chain_drained_or_not() {
    on_both(|stage| {
        let (key, person) = (stage.key(), stage.member("a@example.com"));
        assert_eq!(stage.night(), 0, "records that wait count as done");
        stage.drain();
        assert_eq!(stage.night(), 0);
        let rolled = RollInput { overlap_ms: 60_000, expires_at: None, form: None };
        let new = block(stage.admin.roll_key(Actor::Host, key, rolled)).unwrap().key.id;
        block(stage.admin.revoke_key(Actor::Host, new)).unwrap();
        let token = stage.monitor_token();
        assert_eq!(stage.night(), 0);
        block(stage.admin.revoke_monitor_token(Actor::Host, token)).unwrap();
        let update = MemberUpdate {
            role: Some("auditor".into()),
            ends_at: Some(Some("2027-03-01T00:00:00.000Z".into())),
            ..MemberUpdate::default()
        };
        block(stage.admin.update_member(Actor::Host, stage.tenant_id, person, update)).unwrap();
        assert_eq!(stage.night(), 0);
        stage.drain();
        assert_eq!(stage.night(), 0);
    });
}

#[test]
fn a_row_that_was_changed_without_a_record_is_a_finding_every_night() {
    on_both(|stage| {
        let (key, person) = (stage.key(), stage.member("a@example.com"));
        stage.drain();
        assert_eq!(stage.night(), 0);
        // As if somebody had edited the rows.
        let change = MemberChange { role: Some(Role::Owner), ..MemberChange::default() };
        wait(stage.control.update_member(stage.tenant_id, person, change, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 1, "a role");
        let new = NewKey {
            id: KeyId(Uuid([9; 16])),
            project_id: stage.project_id,
            name: "x".into(),
            mode: Mode::Live,
            digest: Hash([7; 32]),
            prefix: "at_live_xxxx"[..key::DISPLAY_LEN].to_owned(),
            expires_at_ms: None,
            created_at_ms: 0,
            created_by: None,
        };
        wait(stage.control.create_key(new, vec![])).unwrap().unwrap();
        assert_eq!(stage.night(), 2, "a key that nobody has created");
        wait(stage.control.revoke_key(key, 5, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 3, "a revocation");
        stage.work();
        assert_eq!(stage.night(), 3, "a restart covers nothing");
        let Some(database) = &stage.database else { return };
        let revoked = stage.key();
        block(stage.admin.revoke_key(Actor::Host, revoked)).unwrap();
        stage.drain();
        assert_eq!(stage.night(), 3);
        database
            .sql(&format!("UPDATE sealog_control.keys SET revoked_at_ms = NULL WHERE id = '{}'", revoked.0));
        assert_eq!(stage.night(), 4, "a key that works again");
        database.sql(&format!("DELETE FROM sealog_control.keys WHERE id = '{}'", revoked.0));
        assert_eq!(stage.night(), 4, "a key that is gone");
        database.sql(
            "UPDATE sealog_control.system_projects SET project_id = '00000000-0000-8000-8000-000000000001'",
        );
        // Two keys and a member without a record, and the chain that has the records.
        assert_eq!(stage.night(), 4, "a system chain that no tenant names");
    });
}

#[test]
fn an_expiry_that_was_changed_without_a_record_is_a_finding() {
    on_both(|stage| {
        let Some(database) = &stage.database else { return };
        let key = stage.key();
        stage.drain();
        assert_eq!(stage.night(), 0);
        database.sql(&format!(
            "UPDATE sealog_control.keys SET expires_at_ms = 4102444800000 WHERE id = '{}'",
            key.0
        ));
        assert_eq!(stage.night(), 1);
    });
}

#[test]
fn grants_that_were_changed_without_a_record_are_a_finding() {
    on_both(|stage| {
        let person = stage.member("a@example.com");
        let grants = Grants { until_ms: Some(MORNING_MS), ..Grants::default() };
        let update =
            MemberUpdate { role: Some("auditor".into()), grants: Some(grants), ..MemberUpdate::default() };
        block(stage.admin.update_member(Actor::Host, stage.tenant_id, person, update)).unwrap();
        stage.drain();
        assert_eq!(stage.night(), 0);
        let change = MemberChange { grants: Some(Grants::default()), ..MemberChange::default() };
        wait(stage.control.update_member(stage.tenant_id, person, change, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 1);
    });
}

#[test]
fn a_monitor_token_that_was_made_or_revoked_without_a_record_is_a_finding() {
    on_both(|stage| {
        let token = stage.monitor_token();
        stage.drain();
        assert_eq!(stage.night(), 0);
        let new = NewMonitorToken {
            id: MonitorTokenId(Uuid([9; 16])),
            tenant_id: stage.tenant_id,
            project_id: stage.project_id,
            name: "x".into(),
            digest: Hash([7; 32]),
            prefix: "sm_live_xxxx".into(),
            expires_at_ms: None,
            created_at_ms: 0,
            created_by: None,
        };
        wait(stage.control.create_monitor_token(new, vec![])).unwrap().unwrap();
        assert_eq!(stage.night(), 1, "made");
        wait(stage.control.revoke_monitor_token(token, 5, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 2, "revoked");
        block(queue_baseline(&stage.control, &*stage.world)).unwrap();
        stage.work();
        assert_eq!(stage.night(), 0, "a restore seals what it found");
    });
}

#[test]
fn what_a_restore_finds_without_a_record_is_sealed_once() {
    on_both(|stage| {
        let person = stage.member("a@example.com");
        stage.key();
        stage.drain();
        let change = MemberChange { role: Some(Role::Owner), ..MemberChange::default() };
        wait(stage.control.update_member(stage.tenant_id, person, change, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 1);
        // A restore says in the system chain that it was one, and seals what it found.
        assert!(block(compare_all(&*stage.store, &stage.control)).unwrap().is_some());
        block(queue_baseline(&stage.control, &*stage.world)).unwrap();
        assert_eq!(block(compare_all(&*stage.store, &stage.control)), Ok(None), "it waits");
        stage.work();
        assert_eq!(stage.night(), 0);
        let change = MemberChange { role: Some(Role::Admin), ..MemberChange::default() };
        let other = stage.member("b@example.com");
        wait(stage.control.update_member(stage.tenant_id, other, change, Records::none())).unwrap().unwrap();
        assert_eq!(stage.night(), 1);
    });
}

/// The first events of a chain in another store.
fn copy(from: &dyn Store, to: &dyn Store, chain: ChainId, events: u64) {
    for item in range(from, chain, 1, events, 1 << 20) {
        let Item::Event(event) = item else { panic!("{item:?}") };
        wait(to.import(chain, vec![*event], None)).unwrap();
    }
}

#[test]
fn a_log_that_was_rolled_back_or_rewritten_alone_is_found_by_the_head_of_an_earlier_run() {
    on_both(|mut stage| {
        let chain = ChainId { tenant_id: stage.tenant_id, project_id: stage.project_id, mode: Mode::Live };
        let person = stage.member("a@example.com");
        append(&*stage.store, chain, (0..60).map(|n| login(&n.to_string())).collect());
        let verified = |stage: &Stage| {
            let verifications = Verifications {
                control: Arc::clone(&stage.control),
                store: Arc::clone(&stage.store),
                world: Arc::clone(&stage.world) as _,
                runner: Wake::default(),
                records: Wake::default(),
            };
            let all = sealog_core::query::SeqRange { from: 1, to: u64::MAX };
            let run = wait(verifications.start(person, chain, all)).unwrap();
            stage.work();
            wait(verifications.run(chain, run.id)).unwrap().unwrap().end
        };
        assert_eq!(verified(&stage), Some(RunEnd::Valid));
        let first = Arc::clone(&stage.store);
        let head = wait(first.head(chain)).unwrap().durable;
        let other = || Arc::new(ReferenceStore::new(Arc::clone(&stage.world) as _));
        // An older copy, which is valid by itself.
        let older = other();
        copy(&*first, &*older, chain, 40);
        // One in which everything from the 31st event on is another, with all hashes.
        let rewritten = other();
        copy(&*first, &*rewritten, chain, 30);
        append(&*rewritten, chain, (0..50).map(|n| login(&format!("x{n}"))).collect());
        // One whose loss was accepted.
        let accepted = other();
        copy(&*first, &*accepted, chain, 40);
        let loss = Loss { lost_from: 41, lost_to: Some(60), recorded_hash: head.hash };
        append(&*accepted, chain, vec![loss.draft("a test")]);
        stage.store = older;
        let Some(RunEnd::Broken(found)) = verified(&stage) else { panic!() };
        assert_eq!((found.at, found.reason.as_str(), found.expected), (41, "tail", Some(head.hash)));
        stage.store = rewritten;
        let Some(RunEnd::Broken(found)) = verified(&stage) else { panic!() };
        assert_eq!((found.at, found.reason.as_str(), found.expected), (60, "head", Some(head.hash)));
        stage.store = accepted;
        assert_eq!(verified(&stage), Some(RunEnd::Valid));
        // One from before the chain began has nothing to verify. The night compares it all the same.
        stage.store = Arc::clone(&first);
        stage.drain();
        assert_eq!(stage.night(), 0);
        let before = Arc::new(ReferenceStore::new(Arc::clone(&stage.world) as _));
        let chains = wait(first.heads()).unwrap().into_iter().map(|(chain, _)| chain);
        for system in chains.filter(|chain| chain.is_system()) {
            let end = wait(first.head(system)).unwrap().durable.chain_seq;
            copy(&*first, &*before, system, end);
        }
        stage.store = before;
        assert_eq!(stage.night(), 1);
    });
}
