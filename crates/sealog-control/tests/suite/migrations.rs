//! Tables of an earlier version, row by row: what becomes of them.

use rusqlite::Connection;
use sealog_control::outbox::KeptNotice;
use sealog_control::*;
use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_testing::*;

const TENANT: TenantId = TenantId(Uuid([0xAB; 16]));
const TENANT_TEXT: &str = "abababab-abab-abab-abab-abababababab";

/// Rows of version 1. `id` writes an id of 16 equal bytes, `digest` one of 32, `list` a list of names.
fn rows(
    id: fn(u8) -> String,
    digest: fn(u8) -> String,
    list: fn(&[&str]) -> String,
    table: fn(&str) -> String,
) -> Vec<String> {
    let (tenant, tenants) = (id(0xAB), table("tenants"));
    let mails = format!(
        "INSERT INTO {} (tenant_id, month, percent, recipient, subject, body, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms) VALUES",
        table("mails")
    );
    vec![
        format!("INSERT INTO {tenants} (id, name, plan, billing_active, created_at_ms) VALUES ({tenant}, 'T', 'top', true, 1)"),
        format!(
            "INSERT INTO {} (tenant_id, action, required_fields, optional_fields) VALUES ({tenant}, 'a.b', {}, {})",
            table("actions"),
            list(&["x", "a \"quoted\", one", "é"]),
            list(&[])
        ),
        // The first one comes second by its id.
        format!(
            "INSERT INTO {} (id, tenant_id, email, email_lower, password_hash, role, created_at_ms) VALUES
             ({}, {tenant}, 'Zoë@Example.com', 'zoë@example.com', 'h1', 'owner', 5), ({}, {tenant}, 'b@example.com', 'b@example.com', 'h2', 'auditor', 6)",
            table("users"),
            id(9),
            id(2)
        ),
        format!(
            "INSERT INTO {} (token_digest, user_id, created_at_ms, expires_at_ms) VALUES ({}, {}, 7, 99)",
            table("sessions"),
            digest(4),
            id(2)
        ),
        format!("{mails} ({tenant}, 24322, 80, 'a@example.com', 'S', 'Line one\n\"two\"\n', 10, 20, 3, 'no', NULL)"),
        format!("{mails} ({tenant}, 24299, 100, NULL, NULL, NULL, 11, 12, 1, NULL, 13)"),
    ]
}

fn is_as_it_should_be(control: &Control) {
    let all = wait(control.export()).unwrap();
    let person = |n, email: &str, hash: &str, created_at_ms| {
        let person =
            Person { id: PersonId(Uuid([n; 16])), email: email.into(), verified: true, created_at_ms };
        (person, Some(hash.to_owned()))
    };
    assert_eq!(all.persons, [person(9, "Zoë@Example.com", "h1", 5), person(2, "b@example.com", "h2", 6)]);
    let membership = |n, role, created_at_ms| Membership {
        tenant_id: TENANT,
        person_id: PersonId(Uuid([n; 16])),
        role,
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms,
    };
    assert_eq!(all.memberships, [membership(9, Role::Owner, 5), membership(2, Role::Auditor, 6)]);
    let person_id = PersonId(Uuid([2; 16]));
    assert_eq!(
        all.sessions,
        [Session {
            token_digest: Hash([4; 32]),
            account_id: person_id,
            needs_code: false,
            created_at_ms: 7,
            expires_at_ms: 99,
            last_seen_at_ms: 7,
            idle_ms: 0,
            address: None,
            user_agent: None,
        }]
    );
    assert_eq!(all.actions[0].1.action.required_fields, ["x", "a \"quoted\", one", "é"]);
    assert_eq!(all.actions[0].1.action.optional_fields, Vec::<String>::new());

    let [waiting, sent] = &all.notices[..] else { panic!("{:?}", all.notices) };
    let text: serde_json::Value = serde_json::from_str(waiting.parameters.as_ref().unwrap()).unwrap();
    assert_eq!(text, serde_json::json!({"subject": "S", "body": "Line one\n\"two\"\n"}));
    let expected = KeptNotice {
        key: format!("quota/{TENANT_TEXT}/2026-11/80"),
        tenant_id: Some(TENANT),
        person_id: None,
        to: Some("a@example.com".into()),
        template: "text".into(),
        parameters: waiting.parameters.clone(),
        secret_digest: None,
        created_at_ms: 10,
        due_at_ms: 20,
        attempts: 3,
        last_failure: Some("no".into()),
        sent_at_ms: None,
        given_up_at_ms: None,
    };
    assert_eq!(*waiting, expected);
    let expected = KeptNotice {
        key: format!("quota/{TENANT_TEXT}/2024-12/100"),
        to: None,
        parameters: None,
        created_at_ms: 11,
        due_at_ms: 12,
        attempts: 1,
        last_failure: None,
        sent_at_ms: Some(13),
        ..expected
    };
    assert_eq!(*sent, expected);
    // What comes next has its place behind them.
    let notice = NewNotice {
        key: "new".into(),
        tenant_id: None,
        person_id: None,
        to: "a".into(),
        template: "t".into(),
        parameters: "{}".into(),
        created_at_ms: 1,
    };
    assert_eq!(wait(control.enqueue_notice(notice)), Ok(true));
    let due: Vec<String> =
        wait(control.due_notices(1000, 9)).unwrap().into_iter().map(|notice| notice.key).collect();
    assert_eq!(due, [waiting.key.as_str(), "new"]);
}

#[test]
fn a_file_of_version_1_keeps_its_people_sessions_and_mails() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let old = Connection::open(dir.path().join("control.db")).unwrap();
    old.execute_batch(SCHEMA.sqlite[0]).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let list = |names: &[&str]| format!("'{}'", serde_json::to_string(names).unwrap());
    for sql in rows(
        |n| format!("x'{}'", format!("{n:02x}").repeat(16)),
        |n| format!("x'{}'", format!("{n:02x}").repeat(32)),
        list,
        str::to_owned,
    ) {
        old.execute_batch(&sql).unwrap();
    }
    drop(old);
    is_as_it_should_be(&Control::embedded(&store).unwrap());
    let file = Connection::open(dir.path().join("control.db")).unwrap();
    let orphans = file.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap();
    assert!(!orphans);
}

#[test]
fn tables_of_version_1_keep_their_people_sessions_and_mails() {
    let database = postgres::cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let list = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        format!("ARRAY[{}]::text[]", names.join(", "))
    };
    for sql in rows(
        |n| format!("'{}'", Uuid([n; 16])),
        |n| format!("'\\x{}'", format!("{n:02x}").repeat(32)),
        list,
        |table| format!("sealog.{table}"),
    ) {
        database.sql(&sql);
    }
    // The character that stands for a NUL is written twice in a text, and not in JSON.
    database.sql("UPDATE sealog.actions SET optional_fields = ARRAY[E'\\x01' || '1']");
    let control = Control::on_postgres(&store).unwrap();
    assert_eq!(wait(control.actions(TENANT)).unwrap()[0].optional_fields, ["\u{1}"]);
    database.sql("UPDATE sealog_control.actions SET optional_fields = '[]'");
    is_as_it_should_be(&control);
    assert_eq!(database.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'sealog' AND tablename IN ('users', 'tenants', 'mails')"), "0");
}

#[test]
fn a_file_of_version_4_keeps_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let old = Connection::open(dir.path().join("control.db")).unwrap();
    for step in &SCHEMA.sqlite[..4] {
        old.execute_batch(step).unwrap();
    }
    old.pragma_update(None, "user_version", 4).unwrap();
    let (tenant, job) = ("ab".repeat(16), "08".repeat(16));
    old.execute_batch(&format!(
        "INSERT INTO tenants (id, name, plan, billing_active, created_at_ms) VALUES (x'{tenant}', 'T', 'top', true, 1);
         INSERT INTO jobs (number, id, kind, tenant_id, parameters, state, position, claim, due_at_ms, created_at_ms)
         VALUES (7, x'{job}', 'verify', x'{tenant}', '{{}}', 'running', x'00ff', 3, 9, 5)"
    ))
    .unwrap();
    drop(old);
    let control = Control::embedded(&store).unwrap();
    let job = wait(control.job(JobId(Uuid([8; 16])))).unwrap().unwrap();
    assert_eq!((job.state, job.claim, job.due_at_ms, job.subject), (JobState::Running, 3, 9, None));
    assert_eq!((job.tenant_id, job.position), (Some(TENANT), Some(vec![0, 255])));
    assert!(wait(control.cancel_job(job.id, 10, vec![])).unwrap());
}

#[test]
fn a_file_with_data_is_copied_aside_before_it_is_changed_and_a_new_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let copies = || {
        let names = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut copies: Vec<String> = names.filter(|name| name.starts_with("control.db.")).collect();
        copies.sort();
        copies
    };
    drop(Control::embedded(&store).unwrap());
    drop(Control::embedded(&store).unwrap());
    assert_eq!(copies(), Vec::<String>::new(), "there was nothing to change");
    std::fs::remove_file(dir.path().join("control.db")).unwrap();
    let before = SCHEMA.sqlite.len() - 1;
    let old = Connection::open(dir.path().join("control.db")).unwrap();
    for step in &SCHEMA.sqlite[..before] {
        old.execute_batch(step).unwrap();
    }
    old.pragma_update(None, "user_version", i64::try_from(before).unwrap()).unwrap();
    drop(old);
    drop(Control::embedded(&store).unwrap());
    let copy = format!("control.db.{before}");
    assert_eq!(copies(), [copy.as_str()]);
    let copy = Connection::open(dir.path().join(copy)).unwrap();
    let version: i64 = copy.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(usize::try_from(version), Ok(before), "it is as it was");
    assert_eq!(look_in_directory(dir.path()).unwrap(), Some((before + 1, before + 1)));
}
