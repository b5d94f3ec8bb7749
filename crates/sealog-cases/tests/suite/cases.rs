//! Cases: steps and what they leave in chains, two people on one case, reminders; on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sealog_cases::desk::Seen;
use sealog_cases::{
    CaseDesk, CaseError, CaseForward, CaseReminders, IdentifierInput, IntakeInput, Move, ScopeInput,
    digest_of,
};
use sealog_control::Control;
use sealog_control::*;
use sealog_core::catalog::Catalog;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, Random80, RequestId, TenantId, Ulid, Uuid};
use sealog_core::plan::{Billing, Plan};
use sealog_core::query::Filter;
use sealog_core::time::DAY_MS;
use sealog_service::ingest::{Client, Endpoint, Ingest, Producer};
use sealog_service::people::notify::Notifier;
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_store::{List, Store, StoreError};
use sealog_testing::*;
use serde_json::Value;

const TENANT: TenantId = TenantId(Uuid([1; 16]));

fn person(n: u8) -> PersonId {
    PersonId(Uuid::from_random([n; 16]))
}

fn project(n: u8) -> ProjectId {
    ProjectId(Uuid::from_random([n + 100; 16]))
}

fn live(n: u8) -> ChainId {
    ChainId { tenant_id: TENANT, project_id: project(n), mode: Mode::Live }
}

/// A process that dies after an event was appended, and before that is noted.
struct Forgetful {
    control: Arc<Control>,
    forgets: AtomicBool,
}

impl CaseEvents for Forgetful {
    fn due_case_events(&self, now_ms: u64, limit: usize) -> Answer<'_, Vec<CaseEvent>> {
        self.control.due_case_events(now_ms, limit)
    }

    fn case_event_attempted(&self, id: Uuid, outcome: CaseEventOutcome) -> Answer<'_, bool> {
        if self.forgets.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::Closing) });
        }
        self.control.case_event_attempted(id, outcome)
    }

    fn events_of_case(&self, tenant_id: TenantId, id: CaseId, limit: usize) -> Answer<'_, Vec<CaseEvent>> {
        self.control.events_of_case(tenant_id, id, limit)
    }
}

struct Stage {
    store: Arc<dyn Store>,
    control: Arc<Control>,
    forgetful: Arc<Forgetful>,
    world: Arc<StillWorld>,
    /// The clock that events are sealed by.
    sealing: Arc<StillWorld>,
    desk: CaseDesk,
    drain: Arc<Drain>,
    forward: CaseForward,
    reminders: CaseReminders,
    runtime: tokio::runtime::Runtime,
    /// Dropped last, and removed then.
    _dir: Option<tempfile::TempDir>,
}

impl Stage {
    /// Two privacy officers (1, 2), an owner (3) and an admin (4); the projects 1 (gdpr), 2 (ccpa) and 3
    /// (neither).
    fn new(store: Arc<dyn Store>, control: Control, sealing: Arc<StillWorld>) -> Stage {
        let control = Arc::new(control);
        let forgetful =
            Arc::new(Forgetful { control: Arc::clone(&control), forgets: AtomicBool::new(false) });
        let world = StillWorld::random_at(MORNING_MS);
        let tenant = NewTenant {
            id: TENANT,
            name: "Clinic".into(),
            plan: "entry".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: MORNING_MS,
        };
        wait(control.create_tenant(tenant, vec![])).unwrap();
        for (n, frameworks) in [(1, vec!["gdpr"]), (2, vec!["ccpa"]), (3, vec![])] {
            let new = NewProject {
                id: project(n),
                tenant_id: TENANT,
                name: format!("Project {n}"),
                frameworks: Catalog::builtin().framework_set(frameworks).unwrap(),
                created_at_ms: MORNING_MS,
            };
            wait(control.create_project(new, vec![])).unwrap().unwrap();
        }
        let roles = [Role::PrivacyOfficer, Role::PrivacyOfficer, Role::Owner, Role::Admin];
        for (n, role) in (1..).zip(roles) {
            let person = NewPerson {
                id: person(n),
                email: format!("person{n}@example.com"),
                password_hash: None,
                verified: true,
                created_at_ms: MORNING_MS,
            };
            let grants = Grants::default();
            let member = NewMember {
                tenant_id: TENANT,
                person,
                role,
                grants,
                ends_at_ms: None,
                created_at_ms: MORNING_MS,
            };
            wait(control.add_member(member, Records::none())).unwrap().unwrap();
        }
        let data: Arc<Control> = Arc::clone(&control);
        let ingest = Ingest::new(Arc::clone(&store) as _, None, Arc::default());
        let drain = Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            ingest: ingest.clone(),
            world: Arc::clone(&world) as _,
            wake: Wake::default(),
            every: Duration::from_secs(600),
            turns: Turns::default(),
        };
        let forward = CaseForward {
            events: Arc::clone(&forgetful) as _,
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            ingest,
            world: Arc::clone(&world) as _,
            plans: Plan::defaults(),
            wake: Wake::default(),
            every: Duration::from_secs(600),
        };
        let reminders = CaseReminders {
            control: Arc::clone(&control),
            notifier: Notifier::new(&data, Arc::clone(&world) as _),
            world: Arc::clone(&world) as _,
            every: Duration::from_secs(600),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Stage {
            desk: CaseDesk::new(&data, Arc::clone(&world) as _, Wake::default(), Wake::default()),
            drain: Arc::new(drain),
            forward,
            reminders,
            store,
            control,
            forgetful,
            world,
            sealing,
            runtime,
            _dir: None,
        }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn open(&self, regime: &str, projects: &[u8]) -> Case {
        let intake = IntakeInput { regime: regime.into(), ..intake() };
        let projects = projects.iter().map(|n| project(*n).to_string()).collect();
        let scope = ScopeInput { projects, ..ScopeInput::default() };
        self.wait(self.desk.open(person(1), TENANT, &intake, &scope, NOTE)).unwrap()
    }

    fn step(&self, case: &Case, to: &str) -> Result<Case, CaseError> {
        let step = Move {
            to: to.into(),
            note: NOTE.into(),
            extension_reason: "complexity".into(),
            ground: "excessive".into(),
            how: "email".into(),
            ..Move::default()
        };
        self.wait(self.desk.step(seen(case), &step))
    }

    fn confirm(&self, case: &Case) -> Case {
        self.wait(self.desk.check_identity(seen(case), "document_seen", "confirmed", NOTE)).unwrap()
    }

    /// All events of a chain as they are read, oldest first.
    fn events(&self, chain: ChainId) -> Vec<Value> {
        let list = List { filter: Filter::default(), before_seq: None, limit: 1000, bytes_max: 8 << 20 };
        let chunk = self.wait(self.store.list(chain, list)).unwrap();
        let text = |event: &StoredEvent| {
            let mut text = Vec::new();
            event.put_json(&mut text);
            serde_json::from_slice(&text).unwrap()
        };
        chunk.items.iter().rev().map(text).collect()
    }

    fn system_events(&self) -> Vec<Value> {
        let reserved = self.control.system_project(TENANT, ProjectId::system_from_random([9; 16]));
        let project_id = self.wait(reserved).unwrap().unwrap();
        self.wait(self.drain.record_and_seal(TENANT, last_record())).unwrap();
        let mut events = self.events(ChainId { tenant_id: TENANT, project_id, mode: Mode::Live });
        events.retain(|event| event["action"].as_str().unwrap().starts_with("sealog.case_"));
        events
    }

    fn notices(&self) -> Vec<Notice> {
        self.wait(self.control.due_notices(u64::MAX >> 1, 1000)).unwrap()
    }
}

/// Drains what waits before it.
fn last_record() -> NewRecord {
    use sealog_service::records::system_chain::{Actor, Recorder, actions};
    Recorder::new(Actor::System, Arc::new(sealog_store::world::SystemWorld)).record(
        &actions::PAGE_VIEWED,
        "test/1",
        serde_json::json!({}),
    )
}

const NOTE: &str = "Note about Ada Subject, ada@subject.example, +49 151 000";
const SUBJECT: [&str; 6] =
    ["Ada Subject", "ada@subject.example", "usr_ada", "Give me everything", "+49 151", "customer.mail"];

fn intake() -> IntakeInput {
    IntakeInput {
        regime: "gdpr".into(),
        request_type: "access".into(),
        requester: "Ada Subject".into(),
        contact: "ada@subject.example".into(),
        wrote: "Give me everything about usr_ada".into(),
        channel: "email".into(),
        received: "2026-11-02".into(),
        ..IntakeInput::default()
    }
}

fn seen(case: &Case) -> Seen {
    Seen { tenant_id: case.tenant_id, id: case.id, revision: case.revision, person_id: person(1) }
}

macro_rules! on_both_stores {
    ($($rule:ident)*) => {
        mod embedded {
            use super::*;
            $(#[test] fn $rule() {
                let dir = tempfile::tempdir().unwrap();
                let sealing = StillWorld::new();
                let store = EmbeddedStore::open(dir.path(), &small(&sealing)).unwrap();
                let control = Control::embedded(&store).unwrap();
                super::$rule(&Stage::new(Arc::new(store), control, sealing));
            })*
        }
        mod on_postgresql {
            use super::*;
            $(#[test] fn $rule() {
                let database = postgres::cluster().database();
                let sealing = StillWorld::new();
                let store = PostgresStore::open(&database.url(), &on_postgres(&sealing)).unwrap();
                let control = Control::on_postgres(&store).unwrap();
                super::$rule(&Stage::new(Arc::new(store), control, sealing));
            })*
        }
    };
}

on_both_stores! {
    every_step_is_sealed_with_its_states_and_digest_and_never_with_the_subject
    projects_with_the_framework_hear_of_each_step_once_and_never_of_the_subject
    an_event_of_a_case_that_was_appended_before_a_crash_is_not_doubled
    a_key_holder_cannot_keep_an_event_of_a_case_out_of_the_chain
    a_second_writer_is_refused_and_shown_what_the_first_has_done
    reminders_go_out_once_for_each_date
    a_panic_over_one_case_keeps_no_other_organisation_from_its_reminder
}

/// Everything that can be done to a case, to its end.
fn through(stage: &Stage, regime: &str, projects: &[u8]) -> Case {
    let case = stage.open(regime, projects);
    let case = stage.step(&case, "identity_check").unwrap();
    let identifier = IdentifierInput {
        kind: "metadata".into(),
        path: "customer.mail".into(),
        value: "ada@subject.example".into(),
        source: "Ada Subject".into(),
    };
    let case = stage.wait(stage.desk.add_identifier(seen(&case), &identifier)).unwrap();
    let case = stage.confirm(&case);
    let case = stage.step(&case, "in_progress").unwrap();
    let case = stage.step(&case, "extended").unwrap();
    let case = stage.step(&case, "review").unwrap();
    let case = stage.step(&case, "approved").unwrap();
    let case = stage.step(&case, "delivered").unwrap();
    stage.step(&case, "closed").unwrap()
}

fn every_step_is_sealed_with_its_states_and_digest_and_never_with_the_subject(stage: &Stage) {
    let case = through(stage, "gdpr", &[1, 2, 3]);
    let events = stage.system_events();
    let entries = stage.wait(stage.desk.entries(&case)).unwrap();
    assert_eq!(events.len(), entries.len(), "one for each revision");
    for (event, entry) in events.iter().zip(&entries) {
        let metadata = &event["metadata"];
        assert_eq!(event["actor_id"], person(1).0.to_string());
        assert_eq!(event["resource"], format!("case/{}", case.id.0));
        assert_eq!(metadata["case_id"], case.id.0.to_string());
        let told = &entry.entry;
        assert_eq!(metadata["note_sha256"], digest_of(&told.salt, &told.note).to_string());
        assert_eq!(metadata["from"].as_str(), told.from.map(CaseState::as_str));
        assert_eq!(metadata["to"].as_str(), told.to.map(CaseState::as_str));
        for text in SUBJECT {
            assert!(!event.to_string().contains(text), "{text} is in {event}");
        }
    }
    let way: Vec<_> = events.iter().filter_map(|event| event["metadata"]["to"].as_str()).collect();
    let expected = [
        "received",
        "identity_check",
        "in_progress",
        "extended",
        "review",
        "approved",
        "delivered",
        "closed",
    ];
    assert_eq!(way, expected);
    let salts: std::collections::HashSet<_> = entries.iter().map(|entry| entry.entry.salt.0).collect();
    assert_eq!(salts.len(), entries.len(), "each note has its own");
}

fn projects_with_the_framework_hear_of_each_step_once_and_never_of_the_subject(stage: &Stage) {
    let case = through(stage, "gdpr", &[1, 2, 3]);
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    let events = stage.events(live(1));
    let actions: Vec<_> = events.iter().map(|event| event["action"].as_str().unwrap()).collect();
    let expected = [
        "gdpr.request_received",
        "gdpr.request_identity_checked",
        "gdpr.request_extended",
        "gdpr.request_fulfilled",
    ];
    assert_eq!(actions, expected);
    assert_eq!((stage.events(live(2)).len(), stage.events(live(3)).len()), (0, 0), "not enabled there");
    for event in &events {
        assert_eq!(event["metadata"]["request_id"], case.id.0.to_string());
        for text in SUBJECT {
            assert!(!event.to_string().contains(text), "{text} is in {event}");
        }
    }
    assert_eq!(events[0]["metadata"]["received_at"], "2026-11-02T00:00:00.000Z");
    assert_eq!(events[0]["metadata"]["due_at"], "2026-12-02T00:00:00.000Z");
    assert_eq!(events[2]["metadata"]["new_due_at"], "2027-02-02T00:00:00.000Z");
    assert_eq!(events[2]["metadata"]["reason"], "complexity");
    // They count.
    let month = sealog_core::time::Month::of(stage.world.now_ms());
    assert_eq!(stage.wait(stage.store.usage(TENANT, month)), Ok(4));
    let noted = stage.wait(stage.desk.events(&case)).unwrap();
    assert_eq!(noted.iter().map(|event| event.chain_seq).collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    // A CCPA case is told in its own words, and one that names the patient not at all.
    let ccpa = stage.open("ccpa", &[1, 2]);
    stage.step(&ccpa, "refused").unwrap();
    stage.open("hipaa_access", &[1, 2]);
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    let events = stage.events(live(2));
    let actions: Vec<_> = events.iter().map(|event| event["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["ccpa.request_received", "ccpa.request_denied"]);
    assert_eq!(events[1]["metadata"]["denial_basis"], "excessive");
    assert_eq!(stage.events(live(1)).len(), 4);
    // One that is chosen later hears of the receipt, and what was told is not told again.
    let late = stage.open("gdpr", &[]);
    let scope = ScopeInput { projects: vec![project(1).to_string()], ..ScopeInput::default() };
    let late = stage.wait(stage.desk.set_scope(seen(&late), &scope, NOTE)).unwrap();
    stage.wait(stage.desk.set_scope(seen(&late), &scope, NOTE)).unwrap();
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    assert_eq!(stage.events(live(1)).len(), 5);
    // A project that does not take it any more says so, and holds up nothing.
    let case = stage.open("gdpr", &[1]);
    let change = ProjectChange {
        frameworks: Some(Catalog::builtin().framework_set([]).unwrap()),
        now_ms: stage.world.now_ms(),
        ..ProjectChange::default()
    };
    stage.wait(stage.control.update_project(project(1), change, Records::none())).unwrap();
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    let refused = stage.wait(stage.desk.events(&case)).unwrap();
    assert!(refused[0].ended_at_ms.is_some() && refused[0].cause.is_some(), "{refused:?}");
    assert_eq!(stage.events(live(1)).len(), 5);
}

fn an_event_of_a_case_that_was_appended_before_a_crash_is_not_doubled(stage: &Stage) {
    let crash = |stage: &Stage| {
        stage.forgetful.forgets.store(true, Ordering::SeqCst);
        stage.wait(stage.forward.round()).unwrap_err();
        stage.forgetful.forgets.store(false, Ordering::SeqCst);
    };
    let seq = |stage: &Stage, case: &Case| stage.wait(stage.desk.events(case)).unwrap()[0].chain_seq;
    let case = stage.open("gdpr", &[1]);
    crash(stage);
    assert_eq!((stage.events(live(1)).len(), seq(stage, &case)), (1, None));
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    assert_eq!((stage.events(live(1)).len(), seq(stage, &case)), (1, Some(1)));
    // With two days between: the chain has forgotten the key.
    let case = stage.open("gdpr", &[1]);
    crash(stage);
    for world in [&stage.world, &stage.sealing] {
        world.advance(2 * DAY_MS);
    }
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    assert_eq!((stage.events(live(1)).len(), seq(stage, &case)), (2, Some(2)));
}

/// As `POST /v1/events` does it.
fn post(stage: &Stage, key: Option<&str>, body: &str) {
    let gdpr = Catalog::builtin().framework_set(["gdpr"]).unwrap();
    let producer = Arc::new(Producer {
        chain: live(1),
        enabled: gdpr,
        ever_enabled: gdpr,
        in_plan: gdpr,
        custom: Default::default(),
        has_quota: false,
    });
    let (key, client) = (
        key.map(|key| sealog_core::key::parse_idempotency_key(key.as_bytes()).unwrap()),
        Client::new([192, 0, 2, 1].into()),
    );
    let request_id = RequestId(Ulid::new(MORNING_MS, Random80([7; 10])));
    let body = body.to_owned().into();
    stage
        .wait(stage.forward.ingest.ingest(&producer, Endpoint::Single, key, body, client, request_id))
        .unwrap();
}

fn a_key_holder_cannot_keep_an_event_of_a_case_out_of_the_chain(stage: &Stage) {
    // The events of a case tell its id, and its keys are made of that and of the steps to come.
    let case = stage.open("gdpr", &[1]);
    for step in ["received", "2/identity"] {
        let key = format!("sealog-case/{}/gdpr/{step}", case.id.0);
        post(stage, Some(&key), r#"{"action":"user.login"}"#);
    }
    let resource = format!("case/{}", case.id.0);
    let forged = |action: &str, step: &str| {
        let metadata = serde_json::json!({ "request_id": case.id.0.to_string(), "case_step": step, "request_type": "access",
            "method": "other", "outcome": "confirmed", "received_at": "2026-11-02T00:00:00.000Z" });
        let body = serde_json::json!({ "action": action, "resource": resource, "metadata": metadata });
        post(stage, None, &body.to_string());
    };
    forged("gdpr.request_identity_checked", "2/identity");
    let case = stage.confirm(&case);
    // Once at once, and once after keys were forgotten, when the chain is asked.
    stage.world.advance(13 * 3_600_000);
    while stage.wait(stage.forward.round()).unwrap() > 0 {}
    let told = stage.wait(stage.desk.events(&case)).unwrap();
    assert!(told.iter().all(|event| event.chain_seq.is_some() && event.cause.is_none()), "{told:?}");
    let own = |action: &str| {
        let events = stage.events(live(1));
        events.iter().filter(|event| event["action"] == action && event["actor_id"].is_string()).count()
    };
    assert_eq!((own("gdpr.request_received"), own("gdpr.request_identity_checked")), (1, 1));
}

fn a_second_writer_is_refused_and_shown_what_the_first_has_done(stage: &Stage) {
    let case = stage.open("gdpr", &[1]);
    let other = Seen { person_id: person(2), ..seen(&case) };
    let input = IntakeInput { contact: "new@subject.example".into(), ..intake() };
    let first = stage.wait(stage.desk.set_intake(other, &input, "She has moved.")).unwrap();
    let records = stage.wait(stage.control.count_records()).unwrap();
    let Err(CaseError::Stale { case: now, others }) = stage.step(&case, "identity_check") else {
        panic!("it was overwritten");
    };
    assert_eq!(*now, first);
    assert_eq!(others.len(), 1);
    let told = &others[0].entry;
    assert_eq!((told.person_id, told.note.as_str()), (Some(person(2)), "She has moved."));
    let contact = CaseDifference {
        field: "contact".into(),
        from: "ada@subject.example".into(),
        to: "new@subject.example".into(),
    };
    assert_eq!(told.differences, [contact]);
    assert_eq!(stage.wait(stage.control.count_records()), Ok(records), "nothing was recorded");
    let kept = stage.wait(stage.control.case(TENANT, case.id)).unwrap().unwrap();
    assert_eq!(kept, first);
    // With what is there now in view, it goes on.
    assert_eq!(stage.step(&first, "identity_check").unwrap().state, CaseState::IdentityCheck);
}

fn reminders_go_out_once_for_each_date(stage: &Stage) {
    let case = stage.open("gdpr", &[]);
    let due = |stage: &Stage| {
        let notices = stage.notices();
        let due = notices.iter().filter(|notice| notice.template == "case_due");
        let mut marks: Vec<String> =
            due.map(|notice| format!("{} {}", notice.key.split('/').nth(3).unwrap(), notice.to)).collect();
        marks.sort();
        marks
    };
    let at = |stage: &Stage, day: u64| {
        // 2 December is the last day; MORNING is 15 November.
        stage.world.set(MORNING_MS + (day - 15) * DAY_MS);
        for _ in 0..2 {
            assert_eq!(stage.wait(stage.reminders.pass(None)), Ok(None));
        }
        due(stage).len()
    };
    // Nobody's: both privacy officers are told, and not the owner.
    assert_eq!(at(stage, 24), 0, "eight days before");
    assert_eq!(at(stage, 25), 2);
    assert_eq!(at(stage, 28), 2);
    assert_eq!(at(stage, 29), 4);
    assert_eq!(at(stage, 31), 6);
    assert_eq!(at(stage, 33), 8);
    assert_eq!(at(stage, 40), 8);
    let marks: Vec<String> =
        due(stage).iter().map(|mark| mark.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(marks, ["1", "1", "3", "3", "7", "7", "over", "over"]);
    for notice in stage.notices() {
        for text in SUBJECT {
            assert!(!notice.parameters.contains(text), "{}", notice.parameters);
        }
    }
    // One that was answered is over.
    stage.step(&case, "withdrawn").unwrap();
    // Somebody's, and paused: the date moves, and nobody is told.
    stage.world.set(MORNING_MS);
    let before = stage.notices().len();
    let input = IntakeInput { assignee: person(2).0.to_string(), ..intake() };
    let scope = ScopeInput::default();
    let case = stage.wait(stage.desk.open(person(1), TENANT, &input, &scope, NOTE)).unwrap();
    let assigned = stage.notices().split_off(before);
    assert_eq!(assigned.len(), 1);
    assert_eq!(
        (assigned[0].template.as_str(), assigned[0].to.as_str()),
        ("case_assigned", "person2@example.com")
    );
    let case = stage.step(&case, "paused").unwrap();
    assert_eq!(at(stage, 40), 8);
    let moved = stage.wait(stage.control.case(TENANT, case.id)).unwrap().unwrap();
    assert_eq!((moved.due_day - case.due_day, moved.revision), (26, case.revision), "25 days, and a Sunday");
    stage.step(&case, "received").unwrap();
    stage.world.advance(18 * DAY_MS);
    stage.wait(stage.reminders.pass(None)).unwrap();
    let last = stage.notices().pop().unwrap();
    assert_eq!((last.template.as_str(), last.to.as_str()), ("case_due", "person2@example.com"));
}

fn stage() -> Stage {
    let (dir, sealing) = (tempfile::tempdir().unwrap(), StillWorld::new());
    let store = EmbeddedStore::open(dir.path(), &small(&sealing)).unwrap();
    let stage = Stage::new(Arc::new(store), Control::in_memory(), sealing);
    Stage { _dir: Some(dir), ..stage }
}

#[test]
fn disclosure_is_locked_until_the_identity_is_confirmed() {
    let stage = stage();
    let case = stage.open("gdpr", &[]);
    let case = stage.step(&case, "identity_check").unwrap();
    assert!(matches!(stage.step(&case, "in_progress"), Err(CaseError::Refused(_))));
    let case = stage.wait(stage.desk.check_identity(seen(&case), "other", "not_confirmed", NOTE)).unwrap();
    assert!(matches!(stage.step(&case, "in_progress"), Err(CaseError::Refused(_))));
    let case = stage.confirm(&case);
    let case = stage.step(&case, "in_progress").unwrap();
    let case = stage.step(&case, "review").unwrap();
    // Doubt that comes late locks it again.
    let doubted = stage.wait(stage.desk.check_identity(seen(&case), "other", "not_confirmed", NOTE)).unwrap();
    assert!(matches!(stage.step(&doubted, "approved"), Err(CaseError::Refused(_))));
    let case = stage.step(&stage.confirm(&doubted), "approved").unwrap();
    let late = stage.wait(stage.desk.check_identity(seen(&case), "other", "not_confirmed", NOTE));
    assert!(matches!(late, Err(CaseError::Refused(_))), "what is approved has its identity");
    assert_eq!(stage.step(&case, "delivered").unwrap().answer.unwrap().outcome, CaseOutcome::Fulfilled);
}

#[test]
fn only_what_the_table_has_is_a_step_and_each_has_a_note() {
    let stage = stage();
    let case = stage.open("gdpr", &[]);
    for to in ["approved", "delivered", "closed", "review", "received"] {
        assert!(matches!(stage.step(&case, to), Err(CaseError::Refused(_))), "{to}");
    }
    let step = Move { to: "identity_check".into(), note: " ".into(), ..Move::default() };
    let wrong = stage.wait(stage.desk.step(seen(&case), &step));
    assert!(matches!(wrong, Err(CaseError::Field(error)) if error.field == "note"));
    let step = Move { to: "refused".into(), note: NOTE.into(), how: "email".into(), ..Move::default() };
    let wrong = stage.wait(stage.desk.step(seen(&case), &step));
    assert!(matches!(wrong, Err(CaseError::Field(error)) if error.field == "ground"));
    let closed = stage.step(&stage.step(&case, "refused").unwrap(), "closed").unwrap();
    let late = stage.wait(stage.desk.set_intake(seen(&closed), &intake(), NOTE));
    assert!(matches!(late, Err(CaseError::Refused(_))), "a closed case stays as it is");
}

#[test]
fn an_extension_is_announced_within_the_first_period_and_once() {
    let stage = stage();
    let case = stage.open("gdpr", &[]);
    let extend = |case: &Case, announced: &str| {
        let step = Move {
            to: "extended".into(),
            note: NOTE.into(),
            extension_reason: "complexity".into(),
            announced: announced.into(),
            ..Move::default()
        };
        stage.wait(stage.desk.step(seen(case), &step))
    };
    // On 4 December the first period is over since the 2nd.
    stage.world.set(MORNING_MS + 19 * DAY_MS);
    for wrong in ["", "2026-12-03", "2026-11-01", "2026-12-05", "soon"] {
        let refused = extend(&case, wrong);
        assert!(matches!(refused, Err(CaseError::Field(error)) if error.field == "announced"), "{wrong}");
    }
    // What was announced in time can be noted later.
    let extended = extend(&case, "2026-12-02").unwrap();
    let date = stage.wait(stage.desk.dates(&extended)).unwrap().due.date;
    assert_eq!(date.to_string(), "2027-02-02");
    let case = stage.step(&extended, "review").unwrap();
    assert!(matches!(stage.step(&case, "extended"), Err(CaseError::Refused(_))));
    let intake = IntakeInput { regime: "custom".into(), custom_days: "10".into(), ..intake() };
    let scope = ScopeInput::default();
    let custom = stage.wait(stage.desk.open(person(1), TENANT, &intake, &scope, NOTE)).unwrap();
    assert!(matches!(stage.step(&custom, "extended"), Err(CaseError::Refused(_))), "it has none");
}

#[test]
fn days_are_those_of_the_organisations_time_zone() {
    const HOUR_MS: u64 = 60 * 60 * 1000;
    let stage = stage();
    let set_zone = |name: &str| {
        let value = Some(format!("\"{name}\""));
        wait(stage.control.set_setting(TENANT, "time_zone".into(), value, vec![])).unwrap();
    };
    let opens = |received: &str| {
        let intake = IntakeInput { received: received.into(), ..intake() };
        stage.wait(stage.desk.open(person(1), TENANT, &intake, &ScopeInput::default(), NOTE)).is_ok()
    };
    let case = stage.open("gdpr", &[]);
    let left = |case: &Case| stage.wait(stage.desk.dates(case)).unwrap().days_left;
    // Midnight of 15 November in UTC is the evening of the 14th in New York and the morning of the 15th in
    // Tokyo.
    assert_eq!((left(&case), opens("2026-11-15"), opens("2026-11-16")), (17, true, false));
    set_zone("America/New_York");
    assert_eq!((left(&case), opens("2026-11-14"), opens("2026-11-15")), (18, true, false));
    // A pause of an hour is none of a day there, over midnight of UTC.
    stage.world.set(MORNING_MS - HOUR_MS / 2);
    let paused = stage.step(&case, "paused").unwrap();
    stage.world.set(MORNING_MS + HOUR_MS / 2);
    let case = stage.step(&paused, "received").unwrap();
    assert_eq!(stage.wait(stage.desk.dates(&case)).unwrap().due.date.to_string(), "2026-12-02");
    set_zone("UTC");
    assert_eq!(stage.wait(stage.desk.dates(&case)).unwrap().due.date.to_string(), "2026-12-03");
    set_zone("Asia/Tokyo");
    stage.world.set(MORNING_MS + 16 * HOUR_MS);
    assert_eq!((opens("2026-11-16"), opens("2026-11-17")), (true, false));
    // The last day of the 2nd lasts until midnight in New York, and an answer then is in time.
    set_zone("America/New_York");
    stage.world.set(MORNING_MS + 18 * DAY_MS + 3 * HOUR_MS);
    assert_eq!(left(&case), 0);
    let refused = stage.step(&case, "refused").unwrap();
    let dates = stage.wait(stage.desk.dates(&refused)).unwrap();
    assert_eq!((dates.days_left, dates.answered_on.unwrap().to_string().as_str()), (0, "2026-12-02"));
}

#[test]
fn days_off_are_the_tenants_and_move_the_date() {
    let stage = stage();
    let case = stage.open("gdpr", &[]);
    let date = |stage: &Stage| stage.wait(stage.desk.dates(&case)).unwrap().due.date.to_string();
    assert_eq!(date(&stage), "2026-12-02");
    stage.wait(stage.desk.set_holidays(person(1), TENANT, "2026-12-02\n2026-12-03")).unwrap();
    assert_eq!(date(&stage), "2026-12-04");
    let wrong = stage.wait(stage.desk.set_holidays(person(1), TENANT, "Christmas"));
    assert!(matches!(wrong, Err(CaseError::Field(error)) if error.field == "holidays"));
    stage.wait(stage.desk.set_holidays(person(1), TENANT, "")).unwrap();
    assert_eq!(date(&stage), "2026-12-02");
}

#[test]
fn a_case_is_given_to_those_who_work_on_cases_and_looks_into_own_projects() {
    let stage = stage();
    let open = |assignee: String, project: ProjectId| {
        let scope = ScopeInput { projects: vec![project.to_string()], ..ScopeInput::default() };
        let input = IntakeInput { assignee, ..intake() };
        match stage.wait(stage.desk.open(person(1), TENANT, &input, &scope, NOTE)) {
            Err(CaseError::Field(error)) => Some(error.field),
            other => other.map(|_| None).unwrap(),
        }
    };
    assert_eq!(open(person(3).0.to_string(), project(1)), None);
    assert_eq!(open(person(4).0.to_string(), project(1)).as_deref(), Some("assignee"), "an admin only looks");
    assert_eq!(open(person(9).0.to_string(), project(1)).as_deref(), Some("assignee"));
    assert_eq!(open(String::new(), project(9)).as_deref(), Some("project"));
}

#[test]
fn the_register_has_dates_and_answers_and_is_safe_in_a_spreadsheet() {
    use sealog_cases::clock::Calendar;
    use sealog_cases::register::Register;
    let stage = stage();
    through(&stage, "gdpr", &[]);
    let ccpa = stage.open("ccpa", &[]);
    stage.step(&ccpa, "refused").unwrap();
    stage.open("gdpr", &[]);
    stage.world.advance(60 * DAY_MS);
    let now_ms = stage.world.now_ms();
    let calendar = Calendar::default();
    let of_year =
        |year| stage.wait(Register::of_year(&stage.control, TENANT, year, &calendar, now_ms)).unwrap();
    let register = of_year(2026);
    assert_eq!((register.lines.len(), of_year(2025).lines.len()), (3, 0));
    let figures = register.figures();
    let (regime, all) = figures[0];
    assert_eq!((regime, all.received, all.fulfilled, all.refused, all.open), (None, 3, 1, 1, 1));
    assert_eq!((all.extended, all.late, all.median_days), (1, 1, Some(13)));
    assert_eq!(figures.len(), 3, "all, GDPR and CCPA");
    let csv = String::from_utf8(register.csv()).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(
        lines[1].starts_with("\"DSAR-2026-001\",\"2026-11-02\",\"GDPR\",\"Access\",\"E-mail\""),
        "{}",
        lines[1]
    );
    assert!(lines[2].contains("Excessive"), "{}", lines[2]);
    for text in SUBJECT {
        assert!(!csv.contains(text), "{text}");
    }
}

/// A clock that panics the first time it is asked.
#[derive(Debug)]
struct PanicsFirst {
    world: Arc<StillWorld>,
    has_panicked: AtomicBool,
}

impl World for PanicsFirst {
    fn now_ms(&self) -> u64 {
        assert!(self.has_panicked.swap(true, Ordering::SeqCst), "asked for by a test");
        self.world.now_ms()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.world.fill_random(bytes);
    }
}

fn a_panic_over_one_case_keeps_no_other_organisation_from_its_reminder(stage: &Stage) {
    const OTHER: TenantId = TenantId(Uuid([2; 16]));
    let tenant = NewTenant {
        id: OTHER,
        name: "Bank".into(),
        plan: "entry".into(),
        contact_email: None,
        billing: Billing { trial_ends_at_ms: None, billing_active: true },
        created_at_ms: MORNING_MS,
    };
    stage.wait(stage.control.create_tenant(tenant, vec![])).unwrap();
    let stranger = NewPerson {
        id: person(9),
        email: "person9@example.com".into(),
        password_hash: None,
        verified: true,
        created_at_ms: MORNING_MS,
    };
    let officer = NewMember {
        tenant_id: OTHER,
        person: stranger,
        role: Role::PrivacyOfficer,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: MORNING_MS,
    };
    stage.wait(stage.control.add_member(officer, Records::none())).unwrap().unwrap();
    let scope = ScopeInput::default();
    let open = |by, tenant| stage.wait(stage.desk.open(by, tenant, &intake(), &scope, NOTE)).unwrap();
    let (first, second) = (open(person(1), TENANT), open(person(9), OTHER));
    stage.world.set(MORNING_MS + 10 * DAY_MS);
    let told = || {
        let due = stage.notices().into_iter().filter(|notice| notice.template == "case_due");
        let of_case = |notice: Notice| notice.key.split('/').nth(1).unwrap().to_owned();
        due.map(of_case).collect::<std::collections::BTreeSet<String>>()
    };
    let reminders = CaseReminders {
        control: Arc::clone(&stage.control),
        notifier: Notifier::new(&stage.control, Arc::clone(&stage.world) as _),
        world: Arc::new(PanicsFirst { world: Arc::clone(&stage.world), has_panicked: false.into() }),
        every: Duration::from_secs(600),
    };
    assert_eq!(stage.wait(reminders.pass(None)), Ok(None));
    let both = [first.id, second.id].map(|id| id.0.to_string());
    assert_eq!(told(), [both[1].clone()].into());
    // The next pass finds what the panic has cost.
    assert_eq!(stage.wait(reminders.pass(None)), Ok(None));
    assert_eq!(told(), both.into());
}

#[test]
fn a_pass_looks_at_so_many_cases_and_the_next_goes_on_behind_them() {
    use sealog_cases::reminders::PASS_MAX;
    let stage = stage();
    let first = stage.open("gdpr", &[]);
    for n in 1..=PASS_MAX {
        let id =
            CaseId(Uuid::from_random(std::array::from_fn(
                |at| {
                    if at < 8 { n.to_le_bytes()[at % 2] } else { 7 }
                },
            )));
        let case = Case { id, ..first.clone() };
        let entry = NewCaseEntry {
            person_id: None,
            at_ms: 1,
            what: "x".into(),
            from: None,
            to: None,
            note: "x".into(),
            salt: sealog_core::id::Hash([1; 32]),
            digest: sealog_core::id::Hash([2; 32]),
            differences: vec![],
        };
        let with =
            CaseWrite { entry, records: vec![], events: vec![], notices: vec![], not_decided_by: None };
        stage.wait(stage.control.create_case(case, with)).unwrap();
    }
    let next = stage.wait(stage.reminders.pass(None)).unwrap();
    assert!(next.is_some(), "there is one more than a pass looks at");
    assert_eq!(stage.wait(stage.reminders.pass(next)), Ok(None));
}

#[test]
fn a_case_or_member_that_cannot_be_read_keeps_no_other_case_from_its_reminder() {
    let database = postgres::cluster().database();
    let sealing = StillWorld::new();
    let store = PostgresStore::open(&database.url(), &on_postgres(&sealing)).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    let stage = Stage::new(Arc::new(store), control, sealing);
    let [damaged, of_damaged, sound] = [(); 3].map(|()| stage.open("gdpr", &[]));
    database.sql(&format!(
        "UPDATE sealog_control.cases SET regime = 'of another planet' WHERE id = '{}'",
        damaged.id.0
    ));
    // The one who works on it, and nobody else.
    database.sql("ALTER TABLE sealog_control.memberships DROP CONSTRAINT memberships_role_check");
    database.sql(&format!(
        "UPDATE sealog_control.cases SET assignee = '{}' WHERE id = '{}'",
        person(4).0,
        of_damaged.id.0
    ));
    database.sql(&format!(
        "UPDATE sealog_control.cases SET assignee = '{}' WHERE id = '{}'",
        person(1).0,
        sound.id.0
    ));
    database.sql(&format!(
        "UPDATE sealog_control.memberships SET role = 'emperor' WHERE person_id = '{}'",
        person(4).0
    ));
    stage.world.set(MORNING_MS + 10 * DAY_MS);
    assert_eq!(stage.wait(stage.reminders.pass(None)), Ok(None));
    let told: Vec<String> = stage
        .notices()
        .into_iter()
        .filter(|notice| notice.template == "case_due")
        .map(|notice| notice.to)
        .collect();
    assert_eq!(told, ["person1@example.com"]);
}
