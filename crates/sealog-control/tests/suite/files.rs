//! Control data in a file: restarts, crashes, versions, and what is kept for how long.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use sealog_control::database::Database;
use sealog_control::db::{Db, Lock, Schema};
use sealog_control::*;
use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::examples::example;
use sealog_testing::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const TENANT: TenantId = TenantId(Uuid([1; 16]));
const ALL: ListPage = ListPage { after: None, limit: usize::MAX };

struct Stage {
    dir: tempfile::TempDir,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { dir: tempfile::tempdir().unwrap(), world: StillWorld::new() }
    }

    /// The directory stays its own without the store.
    fn open(&self) -> Control {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Control, OpenError> {
        Control::embedded(&EmbeddedStore::open(self.dir.path(), &small(&self.world)).unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file through another connection, as an operator's tool would see it.
    fn sqlite(&self) -> Connection {
        Connection::open(self.file("control.db")).unwrap()
    }

    /// A copy of all files as they are now, as a killed process would leave them.
    fn killed(&self) -> Stage {
        let copy = Stage { dir: tempfile::tempdir().unwrap(), world: Arc::clone(&self.world) };
        copy_all(self.dir.path(), copy.dir.path());
        copy
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir(&target).unwrap();
            copy_all(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn id(n: u64) -> Uuid {
    let mut bytes = [0xAB; 16];
    bytes[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    // Of version 4, as the ids of projects are.
    Uuid::from_random(bytes)
}

fn digest(n: u64) -> Hash {
    let mut bytes = [0xCD; 32];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Hash(bytes)
}

/// As `examples/creating_projects.rs` creates them.
fn new_project(n: u64) -> NewProject {
    NewProject {
        id: ProjectId(id(n)),
        tenant_id: TENANT,
        name: format!("Project {n}"),
        frameworks: FrameworkSet::from_bits(0xFFF),
        created_at_ms: MORNING_MS,
    }
}

fn new_notice(percent: u8) -> NewNotice {
    NewNotice {
        key: format!("quota/{percent}"),
        tenant_id: Some(TENANT),
        person_id: None,
        to: "ops@example.com".into(),
        template: "quota".into(),
        parameters: "{}".into(),
        created_at_ms: MORNING_MS,
    }
}

fn create_tenant(store: &Control) {
    let billing = Billing { trial_ends_at_ms: Some(MORNING_MS), billing_active: true };
    let (name, plan) = ("Tenant".into(), "top".into());
    let new = NewTenant { id: TENANT, name, plan, contact_email: None, billing, created_at_ms: MORNING_MS };
    wait(store.create_tenant(new, vec![])).unwrap();
}

/// Something of everything.
fn furnish(store: &Control) {
    create_tenant(store);
    let change = TenantChange { rate_limit_rps: Some(Some(9)), ..TenantChange::default() };
    wait(store.update_tenant(TENANT, change, Records::none())).unwrap();
    for n in 0..20 {
        wait(store.create_project(new_project(n), vec![])).unwrap();
        let new = NewKey {
            id: KeyId(id(n)),
            project_id: ProjectId(id(n)),
            name: "k".into(),
            mode: Mode::ALL[usize::from(n.is_multiple_of(2))],
            digest: digest(n),
            prefix: "at_live_0123".into(),
            expires_at_ms: None,
            created_at_ms: MORNING_MS,
            created_by: None,
        };
        wait(store.create_key(new, vec![])).unwrap();
    }
    let change =
        ProjectChange { frameworks: Some(FrameworkSet::NONE), now_ms: 5, ..ProjectChange::default() };
    wait(store.update_project(ProjectId(id(0)), change, Records::none())).unwrap();
    wait(store.revoke_key(KeyId(id(0)), MORNING_MS, Records::none())).unwrap();
    wait(store.keys_used(vec![KeyUse::once(KeyId(id(1)), MORNING_MS)])).unwrap();
    let action = CustomAction {
        action: "a.b".into(),
        description: None,
        category: None,
        severity: None,
        required_fields: vec!["x".into()],
        optional_fields: vec![],
    };
    wait(store.create_action(TENANT, action, vec![])).unwrap();
    let member = NewMember {
        tenant_id: TENANT,
        person: NewPerson {
            id: PersonId(id(1)),
            email: "A@example.com".into(),
            password_hash: Some("h".into()),
            verified: true,
            created_at_ms: MORNING_MS,
        },
        role: Role::Auditor,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: MORNING_MS,
    };
    wait(store.add_member(member, Records::none())).unwrap();
    wait(store.create_session(new_session(1, MORNING_MS, MORNING_MS + DAY_MS), None)).unwrap();
    wait(store.enqueue_notice(new_notice(80))).unwrap();
    wait(store.enqueue_notice(new_notice(100))).unwrap();
    let sent = NoticeOutcome::Sent { now_ms: MORNING_MS };
    wait(store.notice_attempted(1, sent)).unwrap();
}

fn new_session(n: u64, created_at_ms: u64, expires_at_ms: u64) -> Session<Person> {
    Session {
        token_digest: digest(n),
        account_id: PersonId(id(1)),
        needs_code: false,
        created_at_ms,
        expires_at_ms,
        last_seen_at_ms: created_at_ms,
        idle_ms: expires_at_ms - created_at_ms,
        address: None,
        user_agent: None,
    }
}

/// Every answer that the store gives, as text.
fn everything(store: &Control) -> Vec<String> {
    let mut said = vec![
        format!("{:?}", wait(store.tenants(ALL)).unwrap()),
        format!("{:?}", wait(store.projects(TENANT, ALL)).unwrap()),
        format!("{:?}", wait(store.actions(TENANT)).unwrap()),
        format!("{:?}", wait(store.members(TENANT, ALL)).unwrap()),
        format!("{:?}", wait(store.person_by_email("a@EXAMPLE.com".into())).unwrap()),
        format!("{:?}", wait(store.session::<Person>(digest(1), MORNING_MS)).unwrap()),
        format!("{:?}", wait(store.due_notices(MORNING_MS, 10)).unwrap()),
        format!("{:?}", wait(store.enqueue_notice(new_notice(80))).unwrap()),
    ];
    said.extend((0..20).map(|n| format!("{:?}", wait(store.access(digest(n))).unwrap().unwrap())));
    said
}

#[test]
fn everything_is_there_after_a_restart() {
    let stage = Stage::new();
    let store = stage.open();
    furnish(&store);
    let before = everything(&store);
    assert!(before.iter().all(|answer| answer != "None" && answer != "[]"), "{before:?}");
    drop(store);
    for _ in 0..2 {
        let store = stage.open();
        assert_eq!(everything(&store), before);
    }
}

#[test]
fn the_file_has_a_write_ahead_log_and_is_whole() {
    let stage = Stage::new();
    let store = stage.open();
    furnish(&store);
    assert!(stage.file("control.db-wal").metadata().unwrap().len() > 0);
    let other = stage.sqlite();
    let text = |pragma| other.pragma_query_value(None, pragma, |row| row.get::<_, String>(0)).unwrap();
    assert_eq!((text("journal_mode").as_str(), text("integrity_check").as_str()), ("wal", "ok"));
    let orphans = other.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap();
    assert!(!orphans);
}

#[test]
fn a_newer_schema_is_refused_and_left_as_it_is() {
    let stage = Stage::new();
    let store = stage.open();
    furnish(&store);
    let before = everything(&store);
    drop(store);
    let current: i64 = stage.sqlite().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    for version in [current + 1, i64::from(i32::MAX), -1] {
        stage.sqlite().pragma_update(None, "user_version", version).unwrap();
        let bytes = fs::read(stage.file("control.db")).unwrap();
        let error = stage.try_open().unwrap_err();
        assert!(
            error.to_string().contains(&format!("the unknown format \"control.db version {version}\"")),
            "{error}"
        );
        assert_eq!(fs::read(stage.file("control.db")).unwrap(), bytes);
    }
    stage.sqlite().pragma_update(None, "user_version", current).unwrap();
    assert_eq!(everything(&stage.open()), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_by_its_name() {
    let stage = Stage::new();
    drop(stage.open());
    fs::write(stage.file("control.db"), [7; 4096]).unwrap();
    let error = stage.try_open().unwrap_err();
    assert!(error.to_string().contains("control.db: file is not a database"), "{error}");
}

#[test]
fn a_copy_of_the_files_of_an_open_store_has_all_that_was_committed() {
    let stage = Stage::new();
    let store = stage.open();
    furnish(&store);
    let copy = stage.killed();
    assert_eq!(everything(&copy.open()), everything(&store));
    // Again without the file of shared memory, which is made anew.
    let copy = stage.killed();
    fs::remove_file(copy.file("control.db-shm")).unwrap();
    assert_eq!(everything(&copy.open()), everything(&store));
}

#[test]
fn a_log_cut_anywhere_leaves_whole_changes_and_none_behind_a_missing_one() {
    let seed = seed("a_log_cut_anywhere_leaves_whole_changes_and_none_behind_a_missing_one");
    let mut dice = Dice::new(seed);
    let stage = Stage::new();
    let store = stage.open();
    create_tenant(&store);
    for n in 0..30 {
        wait(store.create_project(new_project(n), vec![])).unwrap();
    }
    let length = stage.file("control.db-wal").metadata().unwrap().len();
    let mut cuts: Vec<u64> = (0..40).map(|_| dice.below(length)).collect();
    cuts.extend([0, length]);
    cuts.sort_unstable();
    let mut counts = Vec::new();
    for cut in cuts {
        let copy = stage.killed();
        let log = fs::OpenOptions::new().write(true).open(copy.file("control.db-wal")).unwrap();
        log.set_len(cut).unwrap();
        let projects = wait(copy.open().projects(TENANT, ALL)).unwrap();
        for (n, project) in (0..).zip(&projects) {
            let NewProject { id, name, frameworks, .. } = new_project(n);
            assert_eq!((project.id, &project.name, project.frameworks), (id, &name, frameworks), "cut {cut}");
        }
        counts.push(projects.len());
    }
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!((counts[0], counts[counts.len() - 1]), (0, 30));
}

#[test]
fn a_directory_that_was_swapped_takes_no_more_changes() {
    let stage = Stage::new();
    let data = stage.file("data");
    let store = EmbeddedStore::open(&data, &small(&stage.world)).unwrap();
    let control = Control::embedded(&store).unwrap();
    create_tenant(&control);
    fs::rename(&data, stage.file("elsewhere")).unwrap();
    eventually("the store has noticed", || control.failure().is_some());
    let refused = wait(control.create_project(new_project(1), vec![])).unwrap_err();
    assert!(refused.to_string().contains("until the server restarts"), "{refused}");
    assert_eq!(wait(control.tenants(ALL)).unwrap().len(), 1, "reads go on");
}

const TINY: Schema = Schema {
    name: "tiny",
    sqlite: &["CREATE TABLE notes (text TEXT NOT NULL) STRICT"],
    postgres: &["CREATE TABLE {notes} (text text NOT NULL)"],
};

/// Writes to one, and finds it in that one alone, also when all are opened again.
fn are_independent(open: impl Fn(&Schema) -> Database) {
    let notes = |database: &Database| {
        database
            .read(|db| db.query("SELECT text FROM {notes}", &[])?.iter().map(|row| row.get("text")).collect())
    };
    let schemas = [TINY, Schema { name: "other", ..TINY }];
    let [one, other] = schemas.map(|schema| open(&schema));
    let write = |database: &Database, text: &str| {
        let insert =
            |db: &mut dyn Db, _| db.execute("INSERT INTO {notes} (text) VALUES (?1)", &[text.into()]);
        database.change::<_, sealog_store::StoreError>(Lock::Order, insert).unwrap();
    };
    write(&one, "a");
    write(&other, "b");
    write(&other, "c");
    let expected = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!((notes(&one), notes(&other)), (expected(&["a"]), expected(&["b", "c"])));
    drop((one, other));
    let [one, other] = schemas.map(|schema| open(&schema));
    assert_eq!((notes(&one), notes(&other)), (expected(&["a"]), expected(&["b", "c"])));
}

#[test]
fn databases_of_different_names_are_files_of_their_own() {
    let stage = Stage::new();
    let store = EmbeddedStore::open(stage.dir.path(), &small(&stage.world)).unwrap();
    are_independent(|schema| Database::in_directory(store.directory().unwrap(), schema).unwrap());
    assert!(stage.file("tiny.db").exists() && stage.file("other.db").exists());
    assert!(!stage.file("control.db").exists());
}

#[test]
fn databases_of_different_names_are_schemas_of_their_own() {
    let database = postgres::cluster().database();
    let options = on_postgres(&StillWorld::new());
    let store = sealog_store::postgres::PostgresStore::open(&database.url(), &options).unwrap();
    are_independent(|schema| Database::on_postgres(store.sessions(1), schema).unwrap());
    assert_eq!(database.sql("SELECT count(*) FROM sealog_other.notes"), "2");
}

const KILLS: u64 = 15;

#[test]
fn acknowledged_changes_survive_kill_9_at_any_moment() {
    let seed = seed("acknowledged_changes_survive_kill_9_at_any_moment");
    let mut dice = Dice::new(seed);
    let stage = Stage::new();
    create_tenant(&stage.open());
    let writer = example("creating_projects");
    let mut next = 0;
    for cycle in 0..KILLS {
        let mut child = Command::new(&writer)
            .arg(stage.dir.path())
            .arg(next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Blocks until the first change was acknowledged, so that each cycle gets somewhere.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let acked_number = |line: &String| line.strip_prefix("acked ").map(|n| n.parse::<u64>().unwrap());
        let mut acked = lines.find_map(|line| acked_number(&line)).expect("the writer gets somewhere");
        std::thread::sleep(Duration::from_micros(dice.below(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // A line that the kill cut short has no end, and its number may be cut too.
        let rest: Vec<u64> = lines.filter_map(|line| acked_number(&line)).collect();
        if let [whole @ .., _] = &rest[..] {
            acked = whole.last().copied().unwrap_or(acked);
        }
        let store = stage.open();
        let projects = wait(store.projects(TENANT, ALL)).unwrap();
        let count = u64::try_from(projects.len()).unwrap();
        assert!(count > acked, "cycle {cycle}: {count} projects, {acked} acknowledged last");
        for (n, project) in (0..).zip(&projects) {
            let NewProject { id, frameworks, .. } = new_project(n);
            assert_eq!((project.id, project.frameworks), (id, frameworks), "cycle {cycle}");
        }
        next = count;
    }
    println!("kills={KILLS} projects={next}");
    assert!(next > KILLS, "the writer must get somewhere: {next}");
}

#[test]
fn a_change_that_waits_for_the_disk_delays_no_read_of_events() {
    let stage = Stage::new();
    let store = EmbeddedStore::open(stage.dir.path(), &small(&stage.world)).unwrap();
    let control = Control::embedded(&store).unwrap();
    let receipt = append(&store, live(), vec![login("a")]);
    // A program that keeps the file to itself, such as a backup.
    let other = stage.sqlite();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let changes: Vec<_> = (0..10).map(|n| control.create_session(new_session(n, 1, 2), None)).collect();
    for _ in 0..50 {
        assert!(get(&store, live(), receipt.log_ids[0]).is_some());
    }
    other.execute_batch("ROLLBACK").unwrap();
    for change in changes {
        let refused = wait(change).unwrap_err();
        assert_eq!(refused.to_string(), "it belongs to something that does not exist");
    }
}
