//! Control data on PostgreSQL: several nodes, roles with few rights, a pooler, and what another version
//! finds.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_store::feed::{Scope, Start};
use sealog_store::postgres::{Options, PostgresStore};
use sealog_store::{IDEMPOTENCY_RETENTION_MS, Store, StoreError};
use sealog_testing::postgres::{Database, cluster};
use sealog_testing::*;

struct Stage {
    database: Database,
    world: Arc<StillWorld>,
}

/// A node has a store and its control data.
struct Node {
    control: Control,
    _store: PostgresStore,
}

impl Stage {
    fn new() -> Stage {
        Stage { database: cluster().database(), world: StillWorld::new() }
    }

    fn options(&self) -> Options {
        on_postgres(&self.world)
    }

    fn node(&self) -> Node {
        self.node_at(&self.database.url(), &self.options())
    }

    fn node_at(&self, url: &str, options: &Options) -> Node {
        let store = PostgresStore::open(url, options).unwrap();
        Node { control: Control::on_postgres(&store).unwrap(), _store: store }
    }

    fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }
}

fn tenant(n: u8) -> TenantId {
    TenantId(Uuid([n; 16]))
}

fn new_tenant(n: u8) -> NewTenant {
    NewTenant {
        id: tenant(n),
        name: "t".into(),
        plan: "top".into(),
        contact_email: None,
        billing: sealog_core::plan::Billing { trial_ends_at_ms: None, billing_active: true },
        created_at_ms: 1,
    }
}

// ---- Nodes ----------------------------------------------------------------------------------------------

#[test]
fn a_notice_that_all_nodes_find_due_is_claimed_by_one() {
    const NOTICES: usize = 30;
    let stage = Stage::new();
    let nodes = [stage.node(), stage.node(), stage.node()];
    wait(nodes[0].control.create_tenant(new_tenant(1), vec![])).unwrap();
    for n in 0..NOTICES {
        let notice = NewNotice {
            key: format!("k{n}"),
            tenant_id: Some(tenant(1)),
            person_id: None,
            to: "a@example.com".into(),
            template: "quota".into(),
            parameters: "{}".into(),
            created_at_ms: 1,
        };
        wait(nodes[0].control.enqueue_notice(notice)).unwrap();
    }
    let round = |now_ms: u64| {
        let together = std::sync::Barrier::new(nodes.len());
        let claim = |control: &Control| {
            let due = wait(control.due_notices(now_ms, 100)).unwrap();
            assert_eq!(due.len(), NOTICES);
            together.wait();
            let mine = |id| wait(control.claim_notice(id, now_ms, now_ms + 1000, None)).unwrap();
            due.iter().map(|notice| notice.id).filter(|id| mine(*id)).collect::<Vec<_>>()
        };
        let claimed: Vec<i64> = std::thread::scope(|scope| {
            let claim = &claim;
            let threads: Vec<_> =
                nodes.iter().map(|node| scope.spawn(move || claim(&node.control))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(claimed.len(), NOTICES, "each once");
        assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), claimed.len(), "and none left out");
    };
    round(1);
    // Nobody has said what became of them, so they are due again.
    round(1001);
}

#[test]
fn a_change_on_one_node_reaches_the_others_within_a_second_for_its_tenant_alone() {
    let stage = Stage::new();
    // How long it takes is how often a node looks; that each of them hears of it is what is tested.
    assert!(2 * stage.options().poll <= Duration::from_secs(1));
    let nodes = [stage.node(), stage.node(), stage.node()];
    for n in 1..=5 {
        wait(nodes[0].control.create_tenant(new_tenant(n), vec![])).unwrap();
    }
    let heard = |node: &Node| (1..=5).all(|n| node.control.version_of(tenant(n)) > 0);
    eventually("every node knows every tenant", || nodes.iter().all(heard));
    let versions = |node: &Node| (1..=5).map(|n| node.control.version_of(tenant(n))).collect::<Vec<_>>();
    // Whether all nodes have heard of a change of this tenant alone.
    let heard_alone = |n: u8| {
        let before: Vec<Vec<u64>> = nodes.iter().map(versions).collect();
        let change = TenantChange { name: Some("new".into()), ..TenantChange::default() };
        wait(nodes[usize::from(n) % 3].control.update_tenant(tenant(n), change, Records::none())).unwrap();
        nodes.iter().zip(before).all(|(node, before)| {
            let at = usize::from(n) - 1;
            eventually("the node has heard of it", || node.control.version_of(tenant(n)) != before[at]);
            let now = node.control.version_of(tenant(n));
            assert_eq!(now, node.control.version());
            let mut expected = before;
            expected[at] = now;
            let seen = versions(node);
            // A node that does not learn in time whom a change concerns asks again for everybody.
            assert!(seen == expected || seen == [now; 5], "{seen:?} {expected:?}");
            seen == expected
        })
    };
    for n in 1..=5 {
        assert!((0..20).any(|_| heard_alone(n)), "nobody else has to ask again");
    }
    // What concerns no tenant empties nobody's cache.
    let before: Vec<u64> = nodes.iter().map(|node| node.control.version()).collect();
    stage.sql("UPDATE sealog.store SET version = version + 1");
    let seen: u64 = stage.sql("SELECT version FROM sealog.store").parse().unwrap();
    eventually("they have looked", || nodes.iter().all(|node| node._store.version() >= seen));
    assert_eq!(nodes.iter().map(|node| node.control.version()).collect::<Vec<_>>(), before);
}

#[test]
fn a_change_whose_connection_ends_before_its_commit_was_not_made_and_can_be_tried_again() {
    let stage = Stage::new();
    let node = stage.node();
    wait(node.control.create_tenant(new_tenant(1), vec![])).unwrap();
    let held = stage.database.hold("SELECT FROM sealog.store FOR UPDATE");
    std::thread::scope(|scope| {
        let change = scope.spawn(|| wait(node.control.create_tenant(new_tenant(2), vec![])));
        let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("it waits for the row", || stage.sql(&format!("SELECT count(*) {waiting}")) == "1");
        stage.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
        let ended = change.join().unwrap();
        assert!(matches!(ended, Err(StoreError::ControlUnavailable(_))), "{ended:?}");
    });
    held.release();
    wait(node.control.create_tenant(new_tenant(2), vec![])).unwrap();
}

#[test]
fn a_count_of_failures_that_cannot_be_read_keeps_no_other_from_being_recorded() {
    let stage = Stage::new();
    let node = stage.node();
    wait(node.control.create_tenant(new_tenant(1), vec![])).unwrap();
    let person = |n: u8| {
        let person = NewPerson {
            id: PersonId(Uuid([n; 16])),
            email: format!("{n}@example.org"),
            password_hash: None,
            verified: true,
            created_at_ms: 1,
        };
        let member = NewMember {
            tenant_id: tenant(1),
            person,
            role: Role::Developer,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms: 1,
        };
        wait(node.control.add_member(member, Records::none())).unwrap().unwrap();
        wait(node.control.count_failure(PersonId(Uuid([n; 16])), Wrong::Password, u64::from(n))).unwrap();
    };
    person(1);
    person(2);
    stage.sql("UPDATE sealog_control.failures SET passwords = -1 WHERE began_at_ms = 1");
    let tell = |failed: &Failed| NewRecord {
        id: Uuid([9; 16]),
        draft: format!("{}", failed.person_id.0),
        created_at_ms: 1,
    };
    assert_eq!(wait(node.control.record_failures(10, 100, Box::new(tell))), Ok(1));
    let told = wait(node.control.pending_records(tenant(1), 10)).unwrap();
    let told: Vec<&str> = told.iter().map(|record| record.draft.as_str()).collect();
    assert_eq!(told, [Uuid([2; 16]).to_string()]);
}

#[test]
fn changes_of_several_nodes_have_one_order_and_their_records_too() {
    let stage = Stage::new();
    let nodes = [stage.node(), stage.node(), stage.node()];
    wait(nodes[0].control.create_tenant(new_tenant(1), vec![])).unwrap();
    std::thread::scope(|scope| {
        for (n, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                for i in 0..20u8 {
                    let id = Uuid([u8::try_from(n).unwrap() * 50 + i; 16]);
                    let record = NewRecord { id, draft: format!("{n}:{i}"), created_at_ms: 1 };
                    let change = TenantChange { name: Some(format!("{n}:{i}")), ..TenantChange::default() };
                    wait(node.control.update_tenant(tenant(1), change, Records::of(vec![record]))).unwrap();
                }
            });
        }
    });
    let records = wait(nodes[0].control.pending_records(tenant(1), 100)).unwrap();
    assert_eq!(records.len(), 60);
    for n in 0..3 {
        let of_node = records.iter().filter(|record| record.draft.starts_with(&format!("{n}:")));
        let expected: Vec<String> = (0..20).map(|i| format!("{n}:{i}")).collect();
        assert_eq!(of_node.map(|record| record.draft.clone()).collect::<Vec<_>>(), expected);
    }
    let last = wait(nodes[1].control.tenant(tenant(1))).unwrap().unwrap().name;
    assert_eq!(records[59].draft, last, "the last record is that of the last change");
}

/// Panics the first time that each loop begins.
fn panic_once(name: &'static str) {
    static BEGUN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let is_first = BEGUN.lock().unwrap().insert(name);
    assert!(!is_first, "asked for by a test");
}

/// One that would not go on after a panic leaves a revoked key valid here, counts that stand still, or a live
/// view that shows nothing.
#[test]
fn every_loop_of_a_node_goes_on_after_a_panic() {
    let (stage, marks) = (Stage::new(), tempfile::tempdir().unwrap());
    let other = stage.node();
    wait(other.control.create_tenant(new_tenant(1), Vec::new())).unwrap();
    let options =
        Options { at_begin: panic_once, mark_dir: Some(marks.path().to_owned()), ..stage.options() };
    let node = stage.node_at(&stage.database.url(), &options);
    let mut follower = wait(node._store.follow(Scope::Everything, Start::Now)).unwrap();
    append(&other._store, live(), vec![login("a")]);
    append(&node._store, chain(1, 2, sealog_core::id::Mode::Live), vec![login("b")]);
    assert!(!wait(follower.next(1)).unwrap().changes.is_empty());
    eventually("the mark is written", || marks.path().join("postgres.mark").exists());
    let restarts = || wait(node._store.stats()).unwrap().loop_restarts;
    eventually("each loop was started again", || restarts().values().all(|count| *count == 1));
    let known = [
        "database_counts",
        "database_feed",
        "database_index",
        "database_mark",
        "database_monitor",
        "database_sweep",
        "database_versions",
    ];
    assert!(restarts().keys().eq(known.iter()), "{:?}", restarts());
    // Behind the panic of the loop that follows them, changes of other nodes are seen as before it.
    let before = node.control.version_of(tenant(1));
    let change = TenantChange { name: Some("another name".into()), ..TenantChange::default() };
    wait(other.control.update_tenant(tenant(1), change, Records::none())).unwrap();
    eventually("the change is seen", || node.control.version_of(tenant(1)) > before);
}

// ---- Rights and versions --------------------------------------------------------------------------------

#[test]
fn the_role_of_a_node_can_do_its_work_and_can_neither_change_nor_remove_an_event() {
    let stage = Stage::new();
    let roles =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/postgresql/roles.sql"))
            .unwrap();
    let url = |role: &str| stage.database.url().replace("owner@", &format!("{role}@"));
    stage.sql(&roles);
    // Before the owner has made the schema, a node is told what to do.
    let error = PostgresStore::open(&url("sealog_node"), &stage.options()).unwrap_err();
    assert!(error.to_string().contains("run `sealog migrate`"), "{error}");
    let steps = sealog_store::postgres::migrate(&url("sealog_owner")).unwrap();
    assert_eq!(stage.sql("SELECT max(version) FROM sealog.migrations"), steps.to_string());
    assert_eq!(migrate(&url("sealog_owner")).unwrap(), SCHEMA.postgres.len());
    assert_eq!(migrate(&url("sealog_owner")).unwrap(), 0);
    stage.sql(&roles);
    stage.sql(&roles);

    let options = Options { sweep: Duration::from_millis(20), ..stage.options() };
    let store = PostgresStore::open(&url("sealog_node"), &options).unwrap();
    for n in 0..3 {
        append_once(
            &store,
            live(),
            vec![login("a"); 3],
            key(&format!("k{n}"), "b"),
            sealog_core::id::Ulid(1),
        );
    }
    assert_valid(&store, live(), 9);
    let mut follower = wait(store.follow(Scope::Everything, Start::Beginning)).unwrap();
    assert_eq!(wait(follower.next(1)).unwrap().changes[0].head.chain_seq, 9);
    let today = sealog_store::counts::day_of(MORNING_MS);
    let counts = wait(store.counts(live(), sealog_store::counts::Days::new(today, today + 1))).unwrap();
    assert_eq!((counts.events(), counts.uncounted), (9, 0));
    let control = Control::on_postgres(&store).unwrap();
    furnish(&control);
    stage.world.advance(2 * IDEMPOTENCY_RETENTION_MS);
    eventually("a node removes expired records", || {
        stage.sql("SELECT count(*) FROM sealog.idempotency") == "0"
    });

    for forbidden in [
        "UPDATE sealog.events SET action = 'x'",
        "UPDATE sealog.events SET country = 'x'",
        "DELETE FROM sealog.events",
        "TRUNCATE sealog.events",
        "ALTER TABLE sealog.events DISABLE TRIGGER ALL",
        "DROP TABLE sealog.events",
        "CREATE TABLE sealog.mine ()",
        "DELETE FROM sealog.chains",
        "UPDATE sealog.chains SET dropped_seq = 5",
        "UPDATE sealog.chains SET mode = 'test'",
        "UPDATE sealog.chains SET project_id = gen_random_uuid()",
        "TRUNCATE sealog.chains",
        "DELETE FROM sealog.usage",
        "DELETE FROM sealog_control.keys",
        "DELETE FROM sealog_control.tenants",
        "DELETE FROM sealog_control.persons",
        "DELETE FROM sealog_control.memberships",
        "UPDATE sealog_control.case_entries SET note = 'x'",
        "DELETE FROM sealog_control.case_entries",
        "DELETE FROM sealog_control.cases",
        "UPDATE sealog_control.system_projects SET project_id = gen_random_uuid()",
        "DELETE FROM sealog_control.system_projects",
        "TRUNCATE sealog_control.pending",
        "CREATE TABLE sealog_control.mine ()",
        "INSERT INTO sealog_control.migrations (version) VALUES (99)",
        "UPDATE sealog.store SET store_id = gen_random_uuid()",
        "INSERT INTO sealog.migrations (version) VALUES (99)",
        "GRANT ALL ON sealog.events TO sealog_node",
        "SET ROLE sealog_owner",
    ] {
        let output = stage.database.try_sql("sealog_node", forbidden);
        let error = String::from_utf8_lossy(&output.stderr);
        let denied = ["permission denied", "must be owner"].iter().any(|text| error.contains(text))
            || (forbidden.starts_with("GRANT") && error.contains("no privileges were granted"));
        assert!(denied, "{forbidden}: {error}");
    }
    assert_valid(&store, live(), 9);
    assert_eq!(store.ready(), Ok(()));
    // It can accept a loss, which it cannot bring about itself.
    stage.sql("DELETE FROM sealog.events WHERE chain_seq = 9");
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
    wait(store.accept_loss(live(), "removed by hand".into())).unwrap();
    append(&store, live(), vec![login("on")]);
    assert_valid(&store, live(), 10);
}

#[test]
fn a_migration_grants_what_is_new_to_the_roles_that_can_add_events() {
    let stage = Stage::new();
    let roles =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/postgresql/roles.sql"))
            .unwrap();
    let url = |role: &str| stage.database.url().replace("owner@", &format!("{role}@"));
    stage.sql(&roles);
    sealog_store::postgres::migrate(&url("sealog_owner")).unwrap();
    migrate(&url("sealog_owner")).unwrap();
    stage.sql(&roles);
    // A site may have given its servers another name.
    let other = format!("Node of {}", stage.database.name);
    stage.sql(&format!("CREATE ROLE \"{other}\" LOGIN; GRANT INSERT ON sealog.events TO \"{other}\""));
    let may = |role: &str, table: &str, right: &str| {
        stage.sql(&format!("SELECT has_table_privilege('{role}', '{table}', '{right}')")) == "t"
    };
    // Tables that a step has just made are nobody's but the owner's.
    stage.sql("REVOKE ALL ON sealog.counts, sealog.counted, sealog_control.saved_views FROM sealog_node");
    for role in ["sealog_node", other.as_str()] {
        assert!(!may(role, "sealog.counts", "SELECT") && !may(role, "sealog_control.saved_views", "INSERT"));
    }
    sealog_store::postgres::migrate(&url("sealog_owner")).unwrap();
    migrate(&url("sealog_owner")).unwrap();
    for role in ["sealog_node", other.as_str()] {
        assert!(may(role, "sealog.counts", "UPDATE") && may(role, "sealog.counted", "DELETE"), "{role}");
        assert!(may(role, "sealog_control.saved_views", "INSERT"), "{role}");
        assert!(!may(role, "sealog.events", "UPDATE") && !may(role, "sealog.events", "DELETE"), "{role}");
        assert!(!may(role, "sealog.chains", "UPDATE") && !may(role, "sealog.chains", "INSERT"), "{role}");
        assert!(!may(role, "sealog_control.migrations", "INSERT"), "{role}");
    }
    let store = PostgresStore::open(&url("sealog_node"), &stage.options()).unwrap();
    append(&store, live(), vec![login("a")]);
    let today = sealog_store::counts::day_of(MORNING_MS);
    let counts = wait(store.counts(live(), sealog_store::counts::Days::new(today, today + 1))).unwrap();
    assert_eq!((counts.events(), counts.uncounted), (1, 0));
    drop(store);
    stage.sql(&format!("DROP OWNED BY \"{other}\"; DROP ROLE \"{other}\""));
}

/// Something of every kind of control data, so that every right that a node needs is used.
fn furnish(control: &Control) {
    use sealog_core::catalog::{CustomAction, FrameworkSet};
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};
    let (tenant_id, project_id) = (TenantId(Uuid([1; 16])), ProjectId(Uuid([2; 16])));
    let (person_id, now) = (PersonId(Uuid([4; 16])), MORNING_MS);
    let new = NewTenant {
        id: tenant_id,
        name: "t".into(),
        plan: "top".into(),
        contact_email: None,
        billing: sealog_core::plan::Billing { trial_ends_at_ms: None, billing_active: true },
        created_at_ms: now,
    };
    wait(control.create_tenant(new, vec![])).unwrap();
    wait(control.update_tenant(tenant_id, TenantChange::default(), Records::none())).unwrap();
    let new = NewProject {
        id: project_id,
        tenant_id,
        name: "p".into(),
        frameworks: FrameworkSet::from_bits(3),
        created_at_ms: now,
    };
    wait(control.create_project(new, vec![])).unwrap();
    wait(control.system_project(tenant_id, ProjectId::system_from_random([6; 16]))).unwrap();
    let change = ProjectChange {
        frameworks: Some(FrameworkSet::from_bits(4)),
        now_ms: now,
        ..ProjectChange::default()
    };
    wait(control.update_project(project_id, change, Records::none())).unwrap();
    let key_id = KeyId(Uuid([3; 16]));
    let new = NewKey {
        id: key_id,
        project_id,
        name: "k".into(),
        mode: Mode::Live,
        digest: Hash([5; 32]),
        prefix: "at_live_0123".into(),
        expires_at_ms: None,
        created_at_ms: now,
        created_by: None,
    };
    wait(control.create_key(new, vec![])).unwrap();
    wait(control.keys_used(vec![KeyUse::once(key_id, now)])).unwrap();
    wait(control.revoke_key(key_id, now, Records::none())).unwrap();
    let token_id = MonitorTokenId(Uuid([3; 16]));
    let token = NewMonitorToken {
        id: token_id,
        tenant_id,
        project_id,
        name: "m".into(),
        digest: Hash([5; 32]),
        prefix: "sm_live_0123".into(),
        expires_at_ms: None,
        created_at_ms: now,
        created_by: None,
    };
    wait(control.create_monitor_token(token, vec![])).unwrap();
    wait(control.monitor_tokens_used(vec![(token_id, now)])).unwrap();
    wait(control.revoke_monitor_token(token_id, now, Records::none())).unwrap();
    let action = CustomAction {
        action: "a.b".into(),
        description: None,
        category: None,
        severity: None,
        required_fields: vec![],
        optional_fields: vec![],
    };
    wait(control.create_action(tenant_id, action, vec![])).unwrap();
    let member = NewMember {
        tenant_id,
        person: NewPerson {
            id: person_id,
            email: "a@example.com".into(),
            password_hash: Some("h".into()),
            verified: true,
            created_at_ms: now,
        },
        role: Role::Owner,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: now,
    };
    let record = NewRecord { id: Uuid([7; 16]), draft: "{}".into(), created_at_ms: now };
    wait(control.add_member(member, Records::of(vec![record]))).unwrap();
    wait(control.update_member(tenant_id, person_id, MemberChange::default(), Records::none())).unwrap();
    wait(control.remove_record(Uuid([7; 16]))).unwrap();
    wait(control.change_password(person_id, "h".into(), "h2".into(), Hash([9; 32]), PersonRecords::none()))
        .unwrap();
    for value in [Some("1".into()), Some("2".into()), None] {
        wait(control.set_setting(tenant_id, "a".into(), value, vec![])).unwrap();
    }
    let job = NewJob {
        id: JobId(Uuid([8; 16])),
        kind: "verify".into(),
        tenant_id: Some(tenant_id),
        person_id: Some(person_id),
        subject: None,
        parameters: "{}".into(),
        created_at_ms: now,
    };
    let new_job = job.clone();
    wait(control.create_job(job)).unwrap();
    let job = wait(control.claim_job(JobId(Uuid([8; 16])), now, now + 1)).unwrap().unwrap();
    assert!(wait(control.end_job(job.id, job.claim, JobEnd::new(JobOutcome::Done, now))).unwrap());
    let job = NewJob { id: JobId(Uuid([9; 16])), subject: Some("s".into()), ..new_job };
    assert!(wait(control.queue_job(job, 1, vec![])).unwrap().is_some());
    assert!(wait(control.cancel_job(JobId(Uuid([9; 16])), now, vec![])).unwrap());
    let export = NewExport {
        id: ExportId(Uuid([8; 16])),
        tenant_id,
        project_id,
        mode: Mode::Live,
        person_id,
        format: "csv".into(),
        query: String::new(),
        from_ms: None,
        until_ms: None,
        first_seq: 1,
        last_seq: 9,
        created_at_ms: now,
    };
    wait(control.create_export(export, 1, Records::none())).unwrap().unwrap();
    let totals = ExportTotals { rows: 9, bytes: 9, sha256: Hash([9; 32]), at_ms: now };
    assert_eq!(wait(control.complete_export(ExportId(Uuid([8; 16])), totals)), Ok(Some(totals)));
    work_on_case(control, tenant_id, project_id, person_id);
    let token_digest = Hash([6; 32]);
    let session = Session::<Person> {
        token_digest,
        account_id: person_id,
        needs_code: false,
        created_at_ms: now,
        expires_at_ms: now + 9,
        last_seen_at_ms: now,
        idle_ms: 9,
        address: None,
        user_agent: None,
    };
    wait(control.create_session(session.clone(), None)).unwrap();
    wait(control.touch_session::<Person>(token_digest, now + 1)).unwrap();
    wait(control.end_session::<Person>(token_digest)).unwrap();
    let offered = Authenticator { person_id, secret: vec![1; 20], last_step: None, created_at_ms: now };
    assert!(wait(control.offer_authenticator(offered)).unwrap());
    let codes = vec![Hash([7; 32])];
    assert!(
        wait(control.confirm_authenticator(person_id, vec![1; 20], 1, codes, None, PersonRecords::none()))
            .unwrap()
    );
    for code in [Code::Step { secret: vec![1; 20], step: 2 }, Code::Recovery(Hash([7; 32]))] {
        let half = Session { token_digest: Hash([16; 32]), needs_code: true, ..session.clone() };
        let shown = Shown::Password { hash: "h2".into(), replaces: Some(token_digest) };
        assert_eq!(wait(control.begin_session(half, shown, Room::Ordinary)), Ok(true));
        let shown = Shown::Code { asked_by: Hash([16; 32]), code };
        assert_eq!(wait(control.begin_session(session.clone(), shown, Room::Ordinary)), Ok(true));
    }
    assert!(wait(control.remove_authenticator(person_id, PersonRecords::none())).unwrap());
    for count in [1, 2] {
        let counted = wait(control.count_attempt(vec![Hash([7; 32])], now, 9)).unwrap();
        assert_eq!(counted, [Counted { attempts: count, ends_at_ms: now + 9 }]);
    }
    wait(control.forget_attempts(Hash([7; 32]))).unwrap();
    for _ in 0..2 {
        wait(control.count_failure(person_id, Wrong::Code, now)).unwrap();
    }
    let tell = |failed: &Failed| NewRecord { id: failed.person_id.0, draft: "{}".into(), created_at_ms: 1 };
    assert_eq!(wait(control.record_failures(now, 9, Box::new(tell))), Ok(1));
    let view = SavedView {
        id: Uuid([8; 16]),
        tenant_id,
        person_id,
        name: "n".into(),
        query: "q".into(),
        shared_in: None,
        is_pinned: false,
        created_at_ms: now,
    };
    let (id, most, none) = (Uuid([8; 16]), ViewsMax { own: 1, shared: 1 }, Records::none);
    assert_eq!(wait(control.save_view(view, most, none())), Ok(ViewKept::Kept));
    let change = ViewChange { shared_in: Some(Some(project_id)), is_pinned: Some(true) };
    let changed = control.change_view(tenant_id, person_id, id, change, most, none());
    assert_eq!(wait(changed), Ok(ViewKept::Kept));
    let removed = control.remove_view(tenant_id, id, WhoseView::SharedIn(project_id), none());
    assert_eq!(wait(removed), Ok(true));
    assert_eq!(wait(control.retire_action(tenant_id, "a.b".into(), now, vec![])), Ok(Some(())));
    let link = Link {
        id: Uuid([9; 16]),
        digest: Some(Hash([8; 32])),
        purpose: Purpose::Reset { person_id },
        created_at_ms: now,
        expires_at_ms: now + 9,
    };
    assert_eq!(wait(control.create_link(link, None, vec![])), Ok(Some(())));
    assert!(
        wait(control.reset_password(Hash([8; 32]), now, "h".into(), PersonRecords::none()))
            .unwrap()
            .is_some()
    );
    let notice = NewNotice {
        key: "k".into(),
        tenant_id: Some(tenant_id),
        person_id: None,
        to: "a".into(),
        template: "quota".into(),
        parameters: "{}".into(),
        created_at_ms: now,
    };
    assert!(wait(control.enqueue_notice(notice)).unwrap());
    let due = wait(control.due_notices(now, 9)).unwrap();
    wait(control.notice_attempted(due[0].id, NoticeOutcome::Sent { now_ms: now })).unwrap();
    assert!(wait(control.access(Hash([5; 32]))).unwrap().is_some());
}

#[test]
fn tables_of_a_newer_version_are_refused_and_left_as_they_are() {
    let stage = Stage::new();
    drop(stage.node());
    stage.sql("INSERT INTO sealog_control.migrations (version) VALUES (99)");
    let store = PostgresStore::open(&stage.database.url(), &stage.options()).unwrap();
    let error = Control::on_postgres(&store).unwrap_err();
    assert!(error.to_string().contains("the schema has the unknown version 99"), "{error}");
    assert!(!error.may_pass());
}

#[test]
fn nodes_that_start_at_the_same_time_make_the_tables_once() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let threads = [(); 4]
            .map(|()| scope.spawn(|| wait(stage.node().control.tenants(ListPage { after: None, limit: 1 }))));
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(vec![]));
        }
    });
    assert_eq!(
        stage.sql("SELECT count(*) FROM sealog_control.migrations"),
        SCHEMA.postgres.len().to_string()
    );
}

// ---- A pooler, and a database that does not answer ------------------------------------------------------

#[test]
fn nodes_behind_pgbouncer_in_transaction_mode_work_as_all_others_do() {
    let stage = Stage::new();
    drop(stage.node());
    let pooler = postgres::Pooler::start(cluster());
    let url = format!("postgres://owner@127.0.0.1:{}/{}?pgbouncer=true", pooler.port, stage.database.name);
    let nodes = [(); 3].map(|()| stage.node_at(&url, &stage.options()));
    furnish(&nodes[0].control);
    let seen = |node: &Node| wait(node.control.access(Hash([5; 32]))).unwrap().unwrap().key.revoked_at_ms;
    for node in &nodes {
        eventually("the change reaches every node", || node.control.version_of(tenant(1)) > 0);
        assert_eq!(seen(node), Some(MORNING_MS));
    }
    // Many at once, so that connections behind the pooler are passed around, with values and without.
    std::thread::scope(|scope| {
        for (n, node) in nodes.iter().enumerate() {
            for thread in 0..4 {
                scope.spawn(move || {
                    for i in 0..10u8 {
                        let contact_email = i.is_multiple_of(2).then(|| format!("{n}.{thread}@example.com"));
                        let change =
                            TenantChange { contact_email: Some(contact_email), ..TenantChange::default() };
                        wait(node.control.update_tenant(tenant(1), change, Records::none())).unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(wait(nodes[0].control.tenant(tenant(1))).unwrap().unwrap().contact_email, None);
}

#[test]
fn a_change_that_waits_too_long_fails_and_leaves_nothing_behind_and_the_next_one_goes_through() {
    let stage = Stage::new();
    let hasty = Options { lock_timeout: Duration::from_millis(200), ..stage.options() };
    let node = stage.node_at(&stage.database.url(), &hasty);
    wait(node.control.create_tenant(new_tenant(1), vec![])).unwrap();
    let held = stage.database.hold("SELECT version FROM sealog.store FOR UPDATE");
    let failed = wait(node.control.create_tenant(new_tenant(2), vec![]));
    assert!(matches!(&failed, Err(StoreError::Control(why)) if why.contains("lock timeout")), "{failed:?}");
    // What has its place in the order of all changes waits for it too, although it changes no version.
    let job = NewJob {
        id: JobId(Uuid([1; 16])),
        kind: "verify".into(),
        tenant_id: Some(tenant(1)),
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: 1,
    };
    let failed = wait(node.control.create_job(job));
    assert!(matches!(&failed, Err(StoreError::Control(why)) if why.contains("lock timeout")), "{failed:?}");
    // What takes no lock does not wait.
    wait(node.control.keys_used(vec![])).unwrap();
    assert_eq!(wait(node.control.tenant(tenant(2))), Ok(None));
    held.release();
    wait(node.control.create_tenant(new_tenant(2), vec![])).unwrap();
    assert!(wait(node.control.tenant(tenant(2))).unwrap().is_some());
}

#[test]
fn a_damaged_value_is_an_error_that_names_its_column_and_no_row_is_left_out() {
    let stage = Stage::new();
    let node = stage.node();
    furnish(&node.control);
    stage.sql("ALTER TABLE sealog_control.memberships DROP CONSTRAINT memberships_role_check");
    stage.sql("UPDATE sealog_control.memberships SET role = 'emperor'");
    let read = wait(node.control.members(tenant(1), ListPage { after: None, limit: 9 }));
    assert!(matches!(&read, Err(StoreError::Read(why)) if why.contains("role")), "{read:?}");
    stage.sql("ALTER TABLE sealog_control.keys ALTER COLUMN created_at_ms TYPE double precision");
    let read = wait(node.control.access(Hash([5; 32])));
    assert!(matches!(&read, Err(StoreError::Read(why)) if why.contains("created_at_ms")), "{read:?}");
}

/// A failover to a standby that lagged: the version goes back, and is given out again for other changes.
#[test]
fn a_version_that_was_taken_back_and_given_out_again_leaves_no_cache_as_it_was() {
    let stage = Stage::new();
    let nodes = [stage.node(), stage.node()];
    wait(nodes[0].control.create_tenant(new_tenant(1), vec![])).unwrap();
    let rename = |name: &str| TenantChange { name: Some(name.into()), ..TenantChange::default() };
    for n in 0..3 {
        wait(nodes[0].control.update_tenant(tenant(1), rename(&format!("{n}")), Records::none())).unwrap();
    }
    let seen: u64 = stage.sql("SELECT version FROM sealog.store").parse().unwrap();
    eventually("both have looked", || nodes.iter().all(|node| node._store.version() == seen));
    let versions = || nodes.iter().map(|node| node.control.version_of(tenant(1))).collect::<Vec<_>>();
    let before = versions();
    // As the standby had it.
    stage.sql("UPDATE sealog.store SET version = version - 2");
    stage.sql(&format!("UPDATE sealog_control.tenants SET version = {}", seen - 2));
    wait(nodes[0].control.update_tenant(tenant(1), rename("after"), Records::none())).unwrap();
    let after = versions();
    assert!(after[0] > before[0], "the node that made the change does not ask again: {before:?} {after:?}");
    eventually("the other node asks again", || versions()[1] > before[1]);
}

#[test]
fn a_node_that_cannot_read_which_tenants_have_changed_asks_for_all_of_them() {
    let stage = Stage::new();
    let nodes = [stage.node(), stage.node()];
    for n in 1..=2 {
        wait(nodes[0].control.create_tenant(new_tenant(n), vec![])).unwrap();
    }
    eventually("the other knows both", || (1..=2).all(|n| nodes[1].control.version_of(tenant(n)) > 0));
    let before = nodes[1].control.version_of(tenant(2));
    stage.sql("ALTER TABLE sealog_control.tenants RENAME COLUMN version TO versions");
    stage.sql("UPDATE sealog.store SET version = version + 1");
    eventually("it asks for everybody", || nodes[1].control.version_of(tenant(2)) > before);
}

/// A case, a step of it, and an event that it leaves in a project.
fn work_on_case(
    control: &Control,
    tenant_id: TenantId,
    project_id: sealog_core::id::ProjectId,
    person_id: PersonId,
) {
    let case = Case {
        id: CaseId(Uuid([9; 16])),
        tenant_id,
        number: 0,
        revision: 0,
        state: CaseState::Received,
        state_before_pause: None,
        intake: Intake {
            regime: CaseRegime::Gdpr,
            custom_days: None,
            request_type: CaseType::Access,
            requester: "a".into(),
            contact: String::new(),
            wrote: String::new(),
            channel: CaseChannel::Email,
            received_at_ms: 1,
        },
        assignee: None,
        scope: CaseScope::default(),
        identifiers: vec![],
        identity: None,
        pauses: vec![],
        extension: None,
        confirmed_at_ms: None,
        answer: None,
        due_day: 1,
        created_by: person_id,
        created_at_ms: 1,
        changed_at_ms: 1,
        closed_at_ms: None,
    };
    let entry = NewCaseEntry {
        person_id: Some(person_id),
        at_ms: 1,
        what: "opened".into(),
        from: None,
        to: Some(CaseState::Received),
        note: "n".into(),
        salt: Hash([1; 32]),
        digest: Hash([2; 32]),
        differences: vec![],
    };
    let id = Uuid([9; 16]);
    let (key, action, body) = ("k".into(), "a.b".into(), "{}".into());
    let event = NewCaseEvent { id, project_id, key, action, body };
    let with =
        CaseWrite { entry, records: vec![], events: vec![event], notices: vec![], not_decided_by: None };
    let case = wait(control.create_case(case, with.clone())).unwrap();
    assert!(matches!(wait(control.save_case(case.clone(), with)), Ok(CaseSaved::Done(_))));
    wait(control.note_case_due(case.id, 2, 7)).unwrap();
    let sealed = CaseEventOutcome::Sealed { chain_seq: 1, now_ms: 2 };
    assert_eq!(wait(control.case_event_attempted(id, sealed)), Ok(true));
}
