//! `sealog copy` between a directory and a database, both ways.

use std::path::Path;

use crate::support::*;
use sealog_control::*;
use sealog_core::event::parse_single;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::plan::Billing;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::{Append, Appended, IdempotencyKey, Receipt, Reserved, Store};
use sealog_testing::{chain, postgres, wait};

fn copy(from: &str, to: &str) -> (bool, String) {
    copy_with(from, to, &[])
}

fn copy_with(from: &str, to: &str, flags: &[&str]) -> (bool, String) {
    let (code, said, noted) = copy_ended(from, to, flags);
    (code == Some(0), said + &noted)
}

fn copy_ended(from: &str, to: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    ended(sealog().args(["copy", "--from", from, "--to", to]).args(flags).output().unwrap())
}

fn chains() -> [ChainId; 3] {
    [chain(1, 1, Mode::Live), chain(1, 1, Mode::Test), chain(1, 2, Mode::Live)]
}

fn append(store: &dyn Store, chain: ChainId, count: usize, text: &str) {
    let body = format!(
        r#"{{"action":"a.b","actor_id":"é\u0001","metadata":{{"n":1.0,"s":"\ud800","t":"{text}"}}}}"#
    );
    let draft = parse_single(body.as_bytes()).unwrap().unwrap();
    let mut left = count;
    while left > 0 {
        let now = left.min(100);
        wait(store.append(Append { chain, drafts: vec![draft.clone(); now], idempotency: None })).unwrap();
        left -= now;
    }
}

/// What a client is told that sends a request with this key.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Sealed(Receipt),
    Replayed(Receipt),
    Conflict,
}

fn send(store: &dyn Store, chain: ChainId, name: u8, body: u8, events: usize) -> Told {
    let key = IdempotencyKey { key_hash: Hash([name; 32]), fingerprint: Hash([body; 32]) };
    let reservation = match wait(store.reserve(chain, key)).unwrap() {
        Reserved::Fresh(reservation) => reservation,
        Reserved::Replay(receipt) => return Told::Replayed(receipt),
        Reserved::Conflict => return Told::Conflict,
        Reserved::InFlight => panic!("nobody else uses it"),
    };
    let draft = parse_single(br#"{"action":"a.b"}"#).unwrap().unwrap();
    let idempotency = Some((reservation, Ulid(u128::from(name))));
    match wait(store.append(Append { chain, drafts: vec![draft; events], idempotency })).unwrap() {
        Appended::Sealed(receipt) => Told::Sealed(receipt),
        other => panic!("{other:?}"),
    }
}

/// Sends each request again, and another under its key.
fn assert_answered_as_before(store: &dyn Store, answers: &[(ChainId, u8, Told)]) {
    for (chain, name, first) in answers {
        let Told::Sealed(receipt) = first else { panic!("{first:?}") };
        let again = send(store, *chain, *name, 1, receipt.log_ids.len());
        assert_eq!(again, Told::Replayed(receipt.clone()));
        assert_eq!(send(store, *chain, *name, 2, 1), Told::Conflict);
    }
}

fn new_person(n: u8) -> NewPerson {
    NewPerson {
        id: PersonId(Uuid([n; 16])),
        email: format!("Person{n}@example.com"),
        password_hash: Some("$argon2id$h".into()),
        verified: true,
        created_at_ms: 5,
    }
}

/// Something of everything that is kept.
fn furnish(control: &Control) {
    let (tenant_id, now) = (TenantId(Uuid([1; 16])), 5);
    let new = NewTenant {
        id: tenant_id,
        name: "é\0".into(),
        plan: "top".into(),
        contact_email: Some("a@example.com".into()),
        billing: Billing { trial_ends_at_ms: Some(9), billing_active: false },
        created_at_ms: now,
    };
    let other = TenantId(Uuid([2; 16]));
    let record = NewRecord { id: Uuid([9; 16]), draft: "{}".into(), created_at_ms: now };
    wait(control.create_tenant(NewTenant { id: other, ..new.clone() }, vec![record])).unwrap();
    wait(control.create_tenant(new, vec![])).unwrap();
    let change = TenantChange { rate_limit_rps: Some(Some(7)), ..TenantChange::default() };
    wait(control.update_tenant(tenant_id, change, Records::none())).unwrap();
    for n in [2, 1] {
        let (id, frameworks) = (ProjectId(Uuid([n; 16])), sealog_core::catalog::FrameworkSet::from_bits(5));
        wait(control.create_project(
            NewProject { id, tenant_id, name: "p".into(), frameworks, created_at_ms: now },
            vec![],
        ))
        .unwrap();
        let frameworks = Some(sealog_core::catalog::FrameworkSet::from_bits(6));
        wait(control.update_project(
            id,
            ProjectChange { frameworks, now_ms: 8, ..ProjectChange::default() },
            Records::none(),
        ))
        .unwrap();
        let key = NewKey {
            id: KeyId(Uuid([n; 16])),
            project_id: id,
            name: "k".into(),
            mode: Mode::Live,
            digest: Hash([n; 32]),
            prefix: "at_live_0123".into(),
            expires_at_ms: Some(99),
            created_at_ms: now,
            created_by: None,
        };
        wait(control.create_key(key, vec![])).unwrap();
    }
    wait(control.revoke_key(KeyId(Uuid([1; 16])), 77, Records::none())).unwrap();
    wait(control.keys_used(vec![KeyUse::once(KeyId(Uuid([2; 16])), 66)])).unwrap();
    create_token(control, 1);
    let action = sealog_core::catalog::CustomAction {
        action: "invoice.approved".into(),
        description: Some("d".into()),
        category: None,
        severity: Some("info".into()),
        required_fields: vec!["x".into(), "y".into()],
        optional_fields: vec![],
    };
    wait(control.create_action(tenant_id, action, vec![])).unwrap();
    let member = |n: u8, tenant_id, role| NewMember {
        tenant_id,
        person: new_person(n),
        role,
        grants: Grants { projects: Some(vec![ProjectId(Uuid([1; 16]))]), from_ms: Some(1), until_ms: None },
        ends_at_ms: Some(99),
        created_at_ms: now,
    };
    for (n, tenant_id, role) in
        [(3, tenant_id, Role::Auditor), (3, other, Role::Developer), (6, tenant_id, Role::Admin)]
    {
        wait(control.add_member(member(n, tenant_id, role), Records::none())).unwrap();
    }
    wait(control.set_setting(tenant_id, "key_days_max".into(), Some("90".into()), vec![])).unwrap();
    let job = NewJob {
        id: JobId(Uuid([5; 16])),
        kind: "verify".into(),
        tenant_id: Some(tenant_id),
        person_id: Some(PersonId(Uuid([3; 16]))),
        subject: Some("s".into()),
        parameters: "{}".into(),
        created_at_ms: now,
    };
    wait(control.create_job(job)).unwrap();
    wait(control.claim_job(JobId(Uuid([5; 16])), 10, 20)).unwrap();
    wait(control.advance_job(JobId(Uuid([5; 16])), 1, vec![0, 255], 20)).unwrap();
    let session = Session::<Person> {
        token_digest: Hash([4; 32]),
        account_id: PersonId(Uuid([3; 16])),
        needs_code: false,
        created_at_ms: now,
        expires_at_ms: 1000,
        last_seen_at_ms: now,
        idle_ms: 1 << 40,
        address: None,
        user_agent: None,
    };
    wait(control.create_session(session, None)).unwrap();
    for percent in [80, 100] {
        let notice = NewNotice {
            key: format!("quota/{percent}"),
            tenant_id: Some(tenant_id),
            person_id: None,
            to: "t".into(),
            template: "quota".into(),
            parameters: "{}".into(),
            created_at_ms: now,
        };
        wait(control.enqueue_notice(notice)).unwrap();
    }
    let due = wait(control.due_notices(10, 10)).unwrap();
    wait(control.notice_attempted(due[0].id, NoticeOutcome::Sent { now_ms: 11 })).unwrap();
    wait(control.notice_attempted(due[1].id, NoticeOutcome::Failed { retry_at_ms: 12, cause: "no".into() }))
        .unwrap();
}

/// A store and its control data.
struct Opened<S> {
    control: Control,
    store: S,
}

fn embedded(dir: &Path) -> Opened<EmbeddedStore> {
    let store = EmbeddedStore::open(dir, &sealog_store::embedded::Options::default()).unwrap();
    Opened { control: Control::embedded(&store).unwrap(), store }
}

fn on_postgres(database: &postgres::Database) -> Opened<PostgresStore> {
    let store = PostgresStore::open(&database.url(), &sealog_store::postgres::Options::default()).unwrap();
    Opened { control: Control::on_postgres(&store).unwrap(), store }
}

/// ControlSnapshot that can be read of the chains, and all accounts.
fn everything<S: Store>(Opened { control, store }: &Opened<S>) -> (Vec<String>, ControlSnapshot) {
    let mut said = vec![format!("{:?}", wait(store.heads()).unwrap())];
    for chain in chains() {
        let verdict = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(sealog_store::verify::whole(store, chain))
            .unwrap();
        assert!(verdict.valid(), "{verdict:?}");
        let mut from = 1;
        loop {
            let range = sealog_store::Range { from, to: u64::MAX >> 1, bytes_max: 1 << 20 };
            let piece = wait(store.range(chain, range)).unwrap();
            said.extend(piece.items.iter().map(|item| format!("{item:?}")));
            match piece.resume {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    let month = sealog_core::time::Month::of(now_ms());
    said.push(format!("{:?}", wait(store.usage(TenantId(Uuid([1; 16])), month))));
    (said, wait(control.export()).unwrap())
}

fn now_ms() -> u64 {
    use sealog_store::world::World;
    sealog_store::world::SystemWorld.now_ms()
}

#[test]
fn everything_moves_to_a_database_and_back_and_is_the_same() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (dir.path().join("data"), back.path().join("data"));
    let database = postgres::cluster().database();
    let source = embedded(&from);
    furnish(&source.control);
    for (chain, count) in chains().into_iter().zip([250, 7, 1]) {
        append(&source.store, chain, count, "first");
    }
    let before = everything(&source);
    assert_eq!(before.0.len(), 1 + 258 + 1);
    drop(source);

    let (done, said) = copy(from.to_str().unwrap(), &database.url());
    assert!(done && said.contains("copied 258 events; 3 chains"), "{said}");
    let there = on_postgres(&database);
    assert_eq!(everything(&there), before);
    drop(there);
    let (done, said) = copy(&database.url(), to.to_str().unwrap());
    assert!(done && said.contains("copied 258 events; 3 chains"), "{said}");
    let returned = embedded(&to);
    assert_eq!(everything(&returned), before);
    // It is a store like any other.
    append(&returned.store, chains()[0], 1, "after");
    assert_eq!(wait(returned.store.head(chains()[0])).unwrap().durable.chain_seq, 251);
}

#[test]
fn the_worst_events_are_copied_to_a_database_and_back() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (dir.path().join("data"), back.path().join("data"));
    let database = postgres::cluster().database();
    let source = embedded(&from);
    furnish(&source.control);
    let worst = sealog_testing::worst::worst_events("usr_1");
    for (chain, (_, body)) in chains().into_iter().cycle().zip(&worst) {
        let drafts = vec![parse_single(body.as_bytes()).unwrap().unwrap()];
        wait(source.store.append(Append { chain, drafts, idempotency: None })).unwrap();
    }
    let before = everything(&source);
    assert_eq!(before.0.len(), 1 + worst.len() + 1);
    drop(source);
    let (done, said) = copy(from.to_str().unwrap(), &database.url());
    assert!(done, "{said}");
    let there = on_postgres(&database);
    assert!(everything(&there) == before);
    drop(there);
    let (done, said) = copy(&database.url(), to.to_str().unwrap());
    assert!(done, "{said}");
    assert!(everything(&embedded(&to)) == before);
}

#[test]
fn a_copy_has_the_system_chain_the_project_of_it_and_the_records_that_wait_for_it() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (dir.path().join("data"), back.path().join("data"));
    let database = postgres::cluster().database();
    let (source, tenant_id) = (embedded(&from), TenantId(Uuid([1; 16])));
    furnish(&source.control);
    let ask = |control: &Control, n| {
        wait(control.system_project(tenant_id, ProjectId::system_from_random([n; 16]))).unwrap().unwrap()
    };
    let system = ChainId { tenant_id, project_id: ask(&source.control, 1), mode: Mode::Live };
    let record = |n| NewRecord { id: Uuid([n; 16]), draft: format!("{{\"n\":{n}}}"), created_at_ms: 5 };
    let waiting = vec![record(20), record(21)];
    wait(source.control.update_tenant(tenant_id, TenantChange::default(), Records::of(waiting))).unwrap();
    // One that is in the chain, and was not removed before the copy: it is answered from there.
    let answers = [(system, 20, send(&source.store, system, 20, 1, 1))];
    append(&source.store, system, 150, "changes");
    let snapshot = wait(source.control.export()).unwrap();
    drop(source);

    fn is_there<S: Store>(
        Opened { control, store }: &Opened<S>,
        system: ChainId,
        snapshot: &ControlSnapshot,
    ) {
        assert_eq!(wait(control.export()).unwrap(), *snapshot);
        let waiting = wait(control.pending_records(system.tenant_id, 9)).unwrap();
        assert_eq!(waiting.iter().map(|record| record.id.0[0]).collect::<Vec<_>>(), [20, 21]);
        let verdicts = wait(store.audit(vec![system], std::sync::Arc::default())).unwrap();
        assert!(verdicts[0].valid() && verdicts[0].checked == 151, "{verdicts:?}");
        let month = sealog_core::time::Month::of(now_ms());
        assert_eq!(wait(store.usage(system.tenant_id, month)), Ok(0));
    }
    let (done, said) = copy(from.to_str().unwrap(), &database.url());
    assert!(done && said.contains("copied 151 events; 1 chains"), "{said}");
    let there = on_postgres(&database);
    is_there(&there, system, &snapshot);
    assert_answered_as_before(&there.store, &answers);
    assert_eq!(ask(&there.control, 2), system.project_id, "made once, wherever it was made");
    drop(there);
    let (done, said) = copy(&database.url(), to.to_str().unwrap());
    assert!(done, "{said}");
    let returned = embedded(&to);
    is_there(&returned, system, &snapshot);
    assert_answered_as_before(&returned.store, &answers);
    // A target that has made one by itself went on after the copy.
    let other = TenantId(Uuid([2; 16]));
    wait(returned.control.system_project(other, ProjectId::system_from_random([3; 16]))).unwrap();
    drop(returned);
    let (done, said) = copy(&database.url(), to.to_str().unwrap());
    assert!(!done && said.contains("the target has a system project"), "{said}");
}

#[test]
fn a_request_that_is_sent_again_after_a_copy_gets_its_first_answer_whichever_way_the_copy_went() {
    let (dir, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (dir.path().join("data"), back.path().join("data"));
    let database = postgres::cluster().database();
    let source = embedded(&from);
    furnish(&source.control);
    let mut answers = Vec::new();
    // Requests of all sizes, with and without a key, and more than fit into one read of a range.
    for name in 0..40 {
        let chain = chains()[usize::from(name) % 2];
        append(&source.store, chain, usize::from(name) * 3, "without a key");
        answers.push((chain, name, send(&source.store, chain, name, 1, [1, 7, 100][usize::from(name) % 3])));
    }
    let heads = wait(source.store.heads()).unwrap();
    drop(source);

    assert!(copy(from.to_str().unwrap(), &database.url()).0);
    let there = on_postgres(&database);
    assert_answered_as_before(&there.store, &answers);
    assert!(wait(there.control.session::<Person>(Hash([4; 32]), 999)).unwrap().is_some());
    answers.push((chains()[0], 99, send(&there.store, chains()[0], 99, 1, 3)));
    drop(there);

    // Back, into what was left where it came from, and into a new directory.
    for target in [&from, &to] {
        let (done, said) = copy(&database.url(), target.to_str().unwrap());
        assert!(done, "{said}");
        for _ in 0..2 {
            let returned = embedded(target);
            assert_answered_as_before(&returned.store, &answers);
            assert!(wait(returned.control.session::<Person>(Hash([4; 32]), 999)).unwrap().is_some());
            assert_eq!(wait(returned.store.heads()).unwrap().len(), heads.len());
        }
    }
    // A target that has lost a key is not taken for a copy.
    database.sql("DELETE FROM sealog.idempotency WHERE first_seq > 500");
    let (done, said) = copy(to.to_str().unwrap(), &database.url());
    assert!(!done && said.contains("is not in the target"), "{said}");
}

#[test]
fn a_copy_goes_on_where_it_was_left_and_takes_along_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("data");
    let database = postgres::cluster().database();
    let source = embedded(&from);
    furnish(&source.control);
    append(&source.store, chains()[0], 120, "first");
    drop(source);
    assert!(copy(from.to_str().unwrap(), &database.url()).0);
    // As if the first copy had ended early, in the middle of the chain.
    database.sql("DELETE FROM sealog.events WHERE chain_seq > 60");
    database.sql("UPDATE sealog.chains c SET chain_seq = e.chain_seq, log_id = e.log_id, hash = e.hash FROM sealog.events e WHERE e.chain_id = c.chain_id AND e.chain_seq = 60");
    database.sql("UPDATE sealog.usage SET events = 60");
    let source = embedded(&from);
    append(&source.store, chains()[0], 30, "second");
    append(&source.store, chains()[2], 5, "new chain");
    wait(source.control.revoke_key(KeyId(Uuid([2; 16])), 88, Records::none())).unwrap();
    let before = everything(&source);
    drop(source);
    let (done, said) = copy(from.to_str().unwrap(), &database.url());
    assert!(done && said.contains("copied 95 events; 2 chains"), "{said}");
    let there = on_postgres(&database);
    assert_eq!(everything(&there), before);
    drop(there);
    let (done, said) = copy(from.to_str().unwrap(), &database.url());
    assert!(done && said.contains("copied 0 events; 2 chains"), "{said}");
}

#[test]
fn a_target_with_something_else_in_it_and_a_source_with_damage_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (from, other) = (dir.path().join("from"), dir.path().join("other"));
    let database = postgres::cluster().database();
    let source = embedded(&from);
    furnish(&source.control);
    append(&source.store, chains()[0], 20, "first");
    drop(source);

    let elsewhere = embedded(&other);
    append(&elsewhere.store, chain(9, 9, Mode::Live), 1, "someone else's");
    drop(elsewhere);
    let (done, said) = copy(from.to_str().unwrap(), other.to_str().unwrap());
    assert!(!done && said.contains("a chain that the source does not have"), "{said}");

    // Another line of the same chain.
    assert!(copy(from.to_str().unwrap(), &database.url()).0);
    let fork = dir.path().join("fork");
    let forked = embedded(&fork);
    append(&forked.store, chains()[0], 5, "another line");
    drop(forked);
    let (done, said) = copy(&database.url(), fork.to_str().unwrap());
    assert!(!done && said.contains("event 5 of the target differs from the source"), "{said}");

    database.sql("UPDATE sealog.events SET actor_id = 'x' WHERE chain_seq = 12");
    let fresh = dir.path().join("fresh");
    let (code, _, said) = copy_ended(&database.url(), fresh.to_str().unwrap(), &[]);
    assert!(code == Some(10) && said.contains("event 12 does not continue the chain"), "{said}");
    database.sql("DELETE FROM sealog.events WHERE chain_seq > 15");
    let (code, _, said) = copy_ended(&database.url(), dir.path().join("short").to_str().unwrap(), &[]);
    assert!(code == Some(10) && said.contains("event"), "{said}");
}

#[test]
fn a_source_or_a_target_that_cannot_be_meant_ends_the_command_as_every_other() {
    let dir = tempfile::tempdir().unwrap();
    let (nowhere, fresh) = (dir.path().join("nowhere"), dir.path().join("fresh"));
    let (nowhere, fresh) = (nowhere.to_str().unwrap(), fresh.to_str().unwrap());
    let from = dir.path().join("from");
    drop(embedded(&from));
    for (from, to, wanted, with) in [
        (nowhere, fresh, 2, "--from: there is no store"),
        ("postgres://x/y?sslmode=maybe", fresh, 2, "--from: cannot open the store"),
        (from.to_str().unwrap(), "postgres://nobody@127.0.0.1:1/x", 5, "--to: cannot open the store"),
    ] {
        let (code, said, noted) = copy_ended(from, to, &["--json"]);
        assert!(code == Some(wanted) && said.is_empty() && noted.contains(with), "{code:?} {noted}");
    }
}

#[test]
fn a_copy_tells_machines_what_it_has_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let source = embedded(&from);
    append(&source.store, chains()[0], 7, "first");
    append(&source.store, chains()[2], 3, "second");
    drop(source);
    let (code, said, noted) = copy_ended(from.to_str().unwrap(), to.to_str().unwrap(), &["--json"]);
    assert_eq!(code, Some(0), "{noted}");
    let copied: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(copied, serde_json::json!({ "events": 10, "chains": 2 }));
}

/// What is in the files of a data directory: segments as bytes, and the rest as the store reads it.
fn files(dir: &Path) -> (Vec<(std::path::PathBuf, Vec<u8>)>, ControlSnapshot) {
    let mut logs = Vec::new();
    for mode in ["live", "test"] {
        for entry in std::fs::read_dir(dir.join(mode)).unwrap() {
            let path = entry.unwrap().path();
            // A segment that is nothing but its header is begun anew by whoever opens the store.
            let content = std::fs::read(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "log") && content.len() > 128 {
                logs.push((path, content));
            }
        }
    }
    logs.push((dir.join("control.db"), std::fs::read(dir.join("control.db")).unwrap()));
    logs.sort();
    let store = embedded(dir);
    (logs, wait(store.control.export()).unwrap())
}

/// What was there is there as it was.
fn assert_unchanged(dir: &Path, before: &(Vec<(std::path::PathBuf, Vec<u8>)>, ControlSnapshot)) {
    let now = files(dir);
    for (path, content) in &before.0 {
        let found = now.0.iter().find(|(other, _)| other == path);
        assert!(found.is_some_and(|(_, found)| found == content), "{} has changed", path.display());
    }
    assert!(now.1 == before.1, "the accounts have changed");
}

/// A store goes on after it was copied.
fn go_on<S: Store>(Opened { control, store }: &Opened<S>, how: &str) {
    match how {
        "a name" => {
            let change = TenantChange { name: Some("renamed".into()), ..TenantChange::default() };
            drop(wait(control.update_tenant(TenantId(Uuid([1; 16])), change, Records::none())).unwrap());
        }
        "frameworks" => {
            let frameworks = Some(sealog_core::catalog::FrameworkSet::from_bits(1));
            let change = ProjectChange { frameworks, now_ms: 20, ..ProjectChange::default() };
            drop(wait(control.update_project(ProjectId(Uuid([1; 16])), change, Records::none())).unwrap());
        }
        "a revoked key" => drop(wait(control.revoke_key(KeyId(Uuid([2; 16])), 88, Records::none())).unwrap()),
        "a monitor token" => create_token(control, 2),
        "a revoked monitor token" => {
            let id = MonitorTokenId(Uuid([1; 16]));
            wait(control.revoke_monitor_token(id, 88, Records::none())).unwrap().unwrap();
        }
        "a tenant" => {
            let new = NewTenant {
                id: TenantId(Uuid([7; 16])),
                name: "new".into(),
                plan: "top".into(),
                contact_email: None,
                billing: Billing { trial_ends_at_ms: None, billing_active: true },
                created_at_ms: 9,
            };
            drop(wait(control.create_tenant(new, vec![])).unwrap());
        }
        "a member" => {
            // Somebody who has an account joins another tenant.
            let new = NewMember {
                tenant_id: TenantId(Uuid([2; 16])),
                person: new_person(6),
                role: Role::Admin,
                grants: Grants::default(),
                ends_at_ms: None,
                created_at_ms: 9,
            };
            drop(wait(control.add_member(new, Records::none())).unwrap().unwrap());
        }
        "a chain" => append(store, chains()[2], 1, "second"),
        "an event" => append(store, chains()[0], 1, "second"),
        other => panic!("{other}"),
    }
}

fn create_token(control: &Control, n: u8) {
    let new = NewMonitorToken {
        id: MonitorTokenId(Uuid([n; 16])),
        tenant_id: TenantId(Uuid([1; 16])),
        project_id: ProjectId(Uuid([1; 16])),
        name: format!("m{n}"),
        digest: Hash([0x80 + n; 32]),
        prefix: "sm_live_0123".into(),
        expires_at_ms: None,
        created_at_ms: 9,
        created_by: None,
    };
    wait(control.create_monitor_token(new, vec![])).unwrap().unwrap();
}

/// One after the other, and what is said of each: that it is newer, and of a name that nobody can know.
const WAYS: [(&str, &str); 9] = [
    ("a name", "add --replace-accounts"),
    ("frameworks", "the target has a change of frameworks"),
    ("a revoked monitor token", "the target has a revocation (of the monitor token"),
    ("a revoked key", "the target has a revocation (of the key"),
    ("a member", "the target has a member"),
    ("a monitor token", "the target has a monitor token"),
    ("a tenant", "the target has a tenant"),
    ("a chain", "the target has a chain that the source does not have"),
    ("an event", "121 events in the target but only 120 in the source"),
];

fn assert_refused(from: &str, to: &str, how: &str, why: &str) {
    let (code, _, said) = copy_ended(from, to, &[]);
    assert!(
        code == Some(2) && said.contains(why) && said.contains("The target is unchanged"),
        "{how}: {said}"
    );
    assert!(how == "a name" || said.contains("check that --from and --to are not swapped"), "{said}");
}

#[test]
fn a_copy_the_wrong_way_round_changes_nothing_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (original, copied) = (dir.path().join("original"), dir.path().join("copy"));
    let database = postgres::cluster().database();
    let store = embedded(&original);
    furnish(&store.control);
    append(&store.store, chains()[0], 120, "first");
    drop(store);
    let (original_text, copied_text) = (original.to_str().unwrap(), copied.to_str().unwrap());
    assert!(copy(original_text, copied_text).0);
    assert!(copy(original_text, &database.url()).0);
    for (how, why) in WAYS {
        let store = embedded(&original);
        go_on(&store, how);
        drop(store);
        let before = files(&original);
        for source in [copied_text, &database.url()] {
            assert_refused(source, original_text, how, why);
            assert_unchanged(&original, &before);
        }
        if how == "a name" {
            // The right way round it does not show either; whoever knows can say so.
            assert_refused(original_text, copied_text, how, why);
            assert!(copy_with(original_text, copied_text, &["--replace-accounts"]).0);
            assert_eq!(files(&copied).1, before.1);
        }
    }
    let (done, said) = copy(original_text, copied_text);
    assert!(done && said.contains("copied 2 events; 2 chains"), "{said}");
    assert_eq!(files(&copied).1, files(&original).1);
}

#[test]
fn a_copy_the_wrong_way_round_changes_nothing_in_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let (first, copied) = (dir.path().join("first"), dir.path().join("copy"));
    let (database, second) = (postgres::cluster().database(), postgres::cluster().database());
    let store = embedded(&first);
    furnish(&store.control);
    append(&store.store, chains()[0], 120, "first");
    drop(store);
    assert!(copy(first.to_str().unwrap(), &database.url()).0);
    assert!(copy(&database.url(), copied.to_str().unwrap()).0);
    assert!(copy(&database.url(), &second.url()).0);
    // Newer versions of pg_dump put a random word around what they say.
    let dump = || {
        let dump = database.dump_without_derived_rows();
        dump.lines().filter(|line| !line.contains("restrict ")).map(str::to_owned).collect::<Vec<_>>()
    };
    for (how, why) in WAYS {
        let store = on_postgres(&database);
        go_on(&store, how);
        drop(store);
        let before = dump();
        for source in [copied.to_str().unwrap(), &second.url()] {
            assert_refused(source, &database.url(), how, why);
            assert_eq!(dump(), before, "{how}");
        }
    }
}

#[test]
fn a_source_that_does_not_exist_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("mispelt"), dir.path().join("to"));
    let (done, said) = copy(from.to_str().unwrap(), to.to_str().unwrap());
    assert!(!done && said.contains("--from: there is no store in"), "{said}");
    assert!(!from.exists() && !to.exists());
}

#[test]
fn a_test_chain_whose_beginning_was_dropped_is_left_out_and_named_and_the_rest_is_copied() {
    let (database, target) = (postgres::cluster().database(), tempfile::tempdir().unwrap());
    let [first, test, second] = chains();
    {
        let store = PostgresStore::open(&database.url(), &Default::default()).unwrap();
        furnish(&Control::on_postgres(&store).unwrap());
        for chain in [first, test, second] {
            append(&store, chain, 5, "x");
        }
        while wait(store.drop_test_events(u64::MAX >> 8)).unwrap().more {}
    }
    let to = target.path().join("data");
    for _ in 0..2 {
        let (done, said) = copy(&database.url(), to.to_str().unwrap());
        assert!(done, "{said}");
        assert!(said.contains("not copied, because its test events up to 4 were deleted"), "{said}");
    }
    let store = EmbeddedStore::open(&to, &Default::default()).unwrap();
    let heads = wait(store.heads()).unwrap();
    let copied: Vec<_> = heads.iter().map(|(chain, head)| (*chain, head.chain_seq)).collect();
    assert!(copied.contains(&(first, 5)) && copied.contains(&(second, 5)), "{copied:?}");
    assert!(!copied.iter().any(|(chain, _)| *chain == test), "{copied:?}");
}

#[test]
fn a_live_chain_whose_row_says_that_events_were_dropped_is_never_left_out_of_a_copy() {
    let (database, target) = (postgres::cluster().database(), tempfile::tempdir().unwrap());
    let live = chains()[0];
    {
        let store = PostgresStore::open(&database.url(), &Default::default()).unwrap();
        furnish(&Control::on_postgres(&store).unwrap());
        append(&store, live, 5, "x");
    }
    database.sql(
        "ALTER TABLE sealog.chains DROP CONSTRAINT IF EXISTS dropped_of_a_test_chain;
         UPDATE sealog.chains SET dropped_seq = 3, dropped_log_id = e.log_id, dropped_hash = e.hash FROM sealog.events e
             WHERE e.chain_id = chains.chain_id AND e.chain_seq = 3;
         DELETE FROM sealog.events WHERE chain_seq <= 3",
    );
    let to = target.path().join("data");
    let (code, _, said) = copy_ended(&database.url(), to.to_str().unwrap(), &[]);
    assert_eq!(code, Some(10), "{said}");
    assert!(said.contains(&format!("chain {live}: event 1 is missing in the source")), "{said}");
}
