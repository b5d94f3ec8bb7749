//! The rules of control data. Each is given an empty store whose clock stands at `MORNING_MS`.

use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_core::time::Month;
use sealog_store::StoreError;
use sealog_store::accounts::*;

use crate::support::*;

fn id(n: u8) -> Uuid {
    // Not in the order of creation, as random ids are not.
    Uuid([n.wrapping_mul(151); 16])
}

fn new_tenant(n: u8) -> NewTenant {
    NewTenant {
        id: TenantId(id(n)),
        name: format!("Tenant {n}"),
        plan: "entry".into(),
        contact_email: Some("Ops@example.com".into()),
        billing: Billing { trial_ends_at_ms: Some(MORNING_MS + 1), billing_active: false },
        created_at_ms: MORNING_MS,
    }
}

fn new_project(n: u8, tenant: u8, frameworks: &[usize]) -> NewProject {
    NewProject {
        id: ProjectId(id(n)),
        tenant_id: TenantId(id(tenant)),
        name: format!("Project {n}"),
        frameworks: set(frameworks),
        created_at_ms: MORNING_MS,
    }
}

fn new_key(n: u8, project: u8) -> NewKey {
    NewKey {
        id: KeyId(id(n)),
        project_id: ProjectId(id(project)),
        name: format!("Key {n}"),
        mode: if n.is_multiple_of(2) { Mode::Test } else { Mode::Live },
        digest: digest(n),
        prefix: format!("at_live_{n:04}"),
        expires_at_ms: Some(MORNING_MS + 1000),
        created_at_ms: MORNING_MS,
    }
}

fn new_user(n: u8, tenant: u8, email: &str) -> NewUser {
    NewUser {
        id: UserId(id(n)),
        tenant_id: TenantId(id(tenant)),
        email: email.into(),
        password_hash: format!("$argon2id${n}"),
        role: Role::ALL[usize::from(n) % 3],
        created_at_ms: MORNING_MS,
    }
}

fn new_session(n: u8, user: u8, expires_at_ms: u64) -> Session {
    Session { token_digest: digest(n), user_id: UserId(id(user)), created_at_ms: MORNING_MS, expires_at_ms }
}

fn new_mail(tenant: u8, month: u32, percent: u8) -> NewMail {
    NewMail {
        key: MailKey { tenant_id: TenantId(id(tenant)), month: Month(month), percent },
        to: "Ops@example.com".into(),
        subject: format!("{percent} % used"),
        body: "Line one\nline two\n".into(),
        created_at_ms: MORNING_MS,
    }
}

fn custom(name: &str) -> CustomAction {
    CustomAction {
        action: name.into(),
        description: None,
        category: None,
        severity: None,
        required_fields: Vec::new(),
        optional_fields: Vec::new(),
    }
}

fn digest(n: u8) -> Hash {
    Hash([n; 32])
}

fn set(frameworks: &[usize]) -> FrameworkSet {
    frameworks.iter().fold(FrameworkSet::NONE, |set, index| set.with(*index))
}

fn page(after: Option<Uuid>, limit: usize) -> ListPage {
    ListPage { after, limit }
}

fn first(limit: usize) -> ListPage {
    page(None, limit)
}

/// A tenant, a project and a key, numbered 1.
fn furnish(store: &dyn Accounts) -> (Tenant, Project, ApiKey) {
    let tenant = wait(store.create_tenant(new_tenant(1))).unwrap();
    let project = wait(store.create_project(new_project(1, 1, &[0, 2]))).unwrap().unwrap();
    let key = wait(store.create_key(new_key(1, 1))).unwrap().unwrap();
    (tenant, project, key)
}

fn due(store: &dyn Accounts, now_ms: u64) -> Vec<Mail> {
    wait(store.due_mails(now_ms, 100)).unwrap()
}

pub fn the_first_tenant_comes_with_its_keys_in_one_step_and_only_into_an_empty_store(
    store: &dyn Accounts,
    _: &StillWorld,
) {
    let first = |n: u8| FirstRun {
        tenant: new_tenant(n),
        project: new_project(n, n, &[]),
        keys: vec![new_key(n, n), new_key(n + 1, n)],
        owner: new_user(n, n, "owner@localhost"),
    };
    let version = store.version();
    // Two keys of the same id: the last step but one fails, and nothing is left of those before it.
    let failing = FirstRun { keys: vec![new_key(1, 1), new_key(1, 1)], ..first(1) };
    assert!(matches!(wait(store.create_first(failing)), Err(StoreError::Refused(_))));
    assert_eq!(wait(store.tenants(ListPage { after: None, limit: 9 })), Ok(vec![]));

    assert_eq!(wait(store.create_first(first(1))), Ok(true));
    assert!(store.version() > version);
    for n in [1, 2] {
        let access = wait(store.access(digest(n))).unwrap().unwrap();
        assert_eq!((access.tenant.id, access.project.id), (TenantId(id(1)), ProjectId(id(1))));
    }
    assert!(wait(store.user_by_email("owner@localhost".into())).unwrap().is_some());

    assert_eq!(wait(store.create_first(first(5))), Ok(false));
    assert_eq!(wait(store.tenants(ListPage { after: None, limit: 9 })).unwrap().len(), 1);
    assert_eq!(wait(store.access(digest(5))), Ok(None));
}

pub fn a_created_tenant_reads_back_with_its_plan_and_billing(store: &dyn Accounts, _: &StillWorld) {
    let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new_tenant(1);
    let expected = Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms };
    assert_eq!(wait(store.create_tenant(new_tenant(1))), Ok(expected.clone()));
    assert_eq!(wait(store.tenant(id)), Ok(Some(expected)));
    assert_eq!(wait(store.tenant(TenantId(Uuid([9; 16])))), Ok(None));
    let bare = NewTenant {
        name: "é\0\"".into(),
        contact_email: None,
        billing: Billing { trial_ends_at_ms: None, billing_active: true },
        ..new_tenant(2)
    };
    let created = wait(store.create_tenant(bare.clone())).unwrap();
    assert_eq!((&created.name, &created.contact_email, created.billing), (&bare.name, &None, bare.billing));
    assert_eq!(wait(store.tenant(bare.id)), Ok(Some(created)));
}

pub fn a_change_leaves_other_fields_alone_and_null_clears(store: &dyn Accounts, _: &StillWorld) {
    let (mut tenant, mut project, _) = furnish(store);
    let change_tenant = |change| wait(store.update_tenant(tenant.id, change)).unwrap();
    assert_eq!(change_tenant(TenantChange::default()), Some(tenant.clone()));

    let change = TenantChange {
        plan: Some("top".into()),
        billing_active: Some(true),
        rate_limit_rps: Some(Some(7)),
        ..TenantChange::default()
    };
    tenant.plan = "top".into();
    tenant.billing.billing_active = true;
    tenant.rate_limit_rps = Some(7);
    assert_eq!(change_tenant(change), Some(tenant.clone()));

    let change = TenantChange {
        name: Some("New".into()),
        contact_email: Some(None),
        trial_ends_at_ms: Some(None),
        rate_limit_rps: Some(None),
        ..TenantChange::default()
    };
    tenant.name = "New".into();
    tenant.contact_email = None;
    tenant.billing.trial_ends_at_ms = None;
    tenant.rate_limit_rps = None;
    assert_eq!(change_tenant(change), Some(tenant.clone()));
    assert_eq!(wait(store.tenant(tenant.id)), Ok(Some(tenant)));

    let change_project = |change| wait(store.update_project(project.id, change)).unwrap();
    assert_eq!(change_project(ProjectChange::default()), Some(project.clone()));
    let change = ProjectChange { rate_limit_rps: Some(Some(u32::MAX)), ..ProjectChange::default() };
    project.rate_limit_rps = Some(u32::MAX);
    assert_eq!(change_project(change), Some(project.clone()));
    let change =
        ProjectChange { name: Some("New".into()), rate_limit_rps: Some(None), ..ProjectChange::default() };
    project.name = "New".into();
    project.rate_limit_rps = None;
    assert_eq!(change_project(change), Some(project.clone()));
    assert_eq!(wait(store.project(project.id)), Ok(Some(project)));
}

pub fn what_does_not_exist_cannot_be_changed(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    let missing = Uuid([9; 16]);
    assert_eq!(wait(store.update_tenant(TenantId(missing), TenantChange::default())), Ok(None));
    assert_eq!(wait(store.update_project(ProjectId(missing), ProjectChange::default())), Ok(None));
    assert_eq!(wait(store.revoke_key(KeyId(missing), MORNING_MS)), Ok(None));
    assert_eq!(wait(store.keys_used(vec![(KeyId(missing), MORNING_MS)])), Ok(()));
    assert_eq!(wait(store.end_session(digest(9))), Ok(()));
    assert_eq!(wait(store.mail_attempted(9, MailOutcome::Sent { now_ms: MORNING_MS })), Ok(()));
}

pub fn lists_are_in_order_of_creation_and_pages_join(store: &dyn Accounts, _: &StillWorld) {
    let numbers: Vec<u8> = (1..=23).collect();
    let expected: Vec<Uuid> = numbers.iter().map(|n| id(*n)).collect();
    for n in &numbers {
        wait(store.create_tenant(new_tenant(*n))).unwrap();
    }
    // Those of another owner stand in between.
    for n in &numbers {
        wait(store.create_project(new_project(*n, 1, &[]))).unwrap();
        wait(store.create_project(new_project(100 + n, 2, &[]))).unwrap();
        wait(store.create_key(new_key(*n, 1))).unwrap();
        wait(store.create_key(new_key(100 + n, 2))).unwrap();
        wait(store.create_user(new_user(*n, 1, &format!("{n}@example.com")))).unwrap();
        wait(store.create_user(new_user(100 + n, 2, &format!("{n}@example.org")))).unwrap();
    }
    let (tenant, project) = (TenantId(id(1)), ProjectId(id(1)));
    let ids = |kind: usize, page: ListPage| -> Vec<Uuid> {
        match kind {
            0 => wait(store.tenants(page)).unwrap().iter().map(|tenant| tenant.id.0).collect(),
            1 => wait(store.projects(tenant, page)).unwrap().iter().map(|project| project.id.0).collect(),
            2 => wait(store.keys(project, page)).unwrap().iter().map(|key| key.id.0).collect(),
            _ => wait(store.users(tenant, page)).unwrap().iter().map(|user| user.id.0).collect(),
        }
    };
    for kind in 0..4 {
        for limit in [1, 4, 22, 23, 24, usize::MAX] {
            let mut joined = Vec::new();
            loop {
                let next = ids(kind, page(joined.last().copied(), limit));
                assert!(next.len() <= limit);
                if next.is_empty() {
                    break;
                }
                joined.extend(next);
            }
            assert_eq!(joined, expected, "kind {kind}, limit {limit}");
        }
        assert_eq!(ids(kind, first(0)), []);
    }
}

pub fn behind_an_id_that_is_not_in_the_list_there_is_nothing(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    wait(store.create_tenant(new_tenant(2))).unwrap();
    wait(store.create_project(new_project(2, 2, &[]))).unwrap();
    wait(store.create_project(new_project(3, 1, &[]))).unwrap();
    let (of_another, missing) = (page(Some(id(2)), 10), page(Some(Uuid([9; 16])), 10));
    assert_eq!(wait(store.projects(TenantId(id(1)), of_another)), Ok(vec![]));
    assert_eq!(wait(store.projects(TenantId(id(1)), missing)), Ok(vec![]));
    assert_eq!(wait(store.tenants(missing)), Ok(vec![]));
    assert_eq!(wait(store.keys(ProjectId(id(1)), missing)), Ok(vec![]));
    assert_eq!(wait(store.users(TenantId(id(1)), missing)), Ok(vec![]));
}

pub fn a_project_needs_its_tenant(store: &dyn Accounts, _: &StillWorld) {
    assert_eq!(wait(store.create_project(new_project(1, 1, &[0]))), Ok(None));
    assert_eq!(wait(store.create_key(new_key(1, 1))), Ok(None));
    assert_eq!(wait(store.create_action(TenantId(id(1)), custom("a.b"))), Ok(None));
    assert_eq!(wait(store.create_user(new_user(1, 1, "a@example.com"))), Ok(None));
    assert!(matches!(wait(store.create_session(new_session(1, 1, u64::MAX))), Err(StoreError::Refused(_))));
    assert!(matches!(wait(store.enqueue_mail(new_mail(1, 1, 80))), Err(StoreError::Refused(_))));
    // Nothing of that was kept.
    let (_, project, key) = furnish(store);
    assert_eq!(wait(store.projects(TenantId(id(1)), first(10))), Ok(vec![project]));
    assert_eq!(wait(store.keys(ProjectId(id(1)), first(10))), Ok(vec![key]));
    assert_eq!(wait(store.actions(TenantId(id(1)))), Ok(vec![]));
    assert_eq!(wait(store.users(TenantId(id(1)), first(10))), Ok(vec![]));
    assert_eq!(wait(store.pending_mails()), Ok(0));
}

pub fn an_id_is_taken_once(store: &dyn Accounts, _: &StillWorld) {
    let (tenant, project, key) = furnish(store);
    wait(store.create_user(new_user(1, 1, "a@example.com"))).unwrap();
    wait(store.create_session(new_session(1, 1, u64::MAX))).unwrap();
    let is_refused = |error: StoreError| matches!(error, StoreError::Refused(_));
    let again = NewTenant { name: "Other".into(), ..new_tenant(1) };
    assert!(wait(store.create_tenant(again)).is_err_and(is_refused));
    assert!(wait(store.create_project(new_project(1, 1, &[5]))).is_err_and(is_refused));
    assert!(wait(store.create_key(NewKey { digest: digest(2), ..new_key(1, 1) })).is_err_and(is_refused));
    assert!(wait(store.create_key(NewKey { digest: digest(1), ..new_key(2, 1) })).is_err_and(is_refused));
    let user = wait(store.create_user(new_user(1, 1, "b@example.com")));
    assert!(matches!(user, Err(AccountError::Store(StoreError::Refused(_)))), "{user:?}");
    assert!(wait(store.create_session(new_session(1, 1, u64::MAX))).is_err_and(is_refused));
    assert_eq!(wait(store.tenants(first(10))), Ok(vec![tenant.clone()]));
    assert_eq!(wait(store.projects(tenant.id, first(10))), Ok(vec![project.clone()]));
    assert_eq!(wait(store.keys(project.id, first(10))), Ok(vec![key]));
    assert_eq!(wait(store.user_by_email("b@example.com".into())), Ok(None));
}

pub fn frameworks_that_were_disabled_stay_known_as_ever_enabled(store: &dyn Accounts, _: &StillWorld) {
    let (_, project, _) = furnish(store);
    let enable = |frameworks: Option<FrameworkSet>, now_ms| {
        let change = ProjectChange { frameworks, now_ms, ..ProjectChange::default() };
        let changed = wait(store.update_project(project.id, change)).unwrap().unwrap();
        assert_eq!(wait(store.project(project.id)), Ok(Some(changed.clone())));
        assert_eq!(wait(store.projects(project.tenant_id, first(9))), Ok(vec![changed.clone()]));
        (changed.frameworks, changed.frameworks_ever)
    };
    assert_eq!((project.frameworks, project.frameworks_ever), (set(&[0, 2]), set(&[0, 2])));
    assert_eq!(enable(Some(set(&[2, 11])), 1), (set(&[2, 11]), set(&[0, 2, 11])));
    assert_eq!(enable(None, 2), (set(&[2, 11]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::NONE), 3), (FrameworkSet::NONE, set(&[0, 2, 11])));
    // Again, twice in the same millisecond, and every one there is.
    assert_eq!(enable(Some(set(&[0])), 4), (set(&[0]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::NONE), 4), (FrameworkSet::NONE, set(&[0, 2, 11])));
    assert_eq!(enable(Some(set(&[0])), 4), (set(&[0]), set(&[0, 2, 11])));
    assert_eq!(enable(Some(FrameworkSet::ALL), 5), (FrameworkSet::ALL, FrameworkSet::ALL));
}

pub fn access_finds_a_key_by_its_digest_with_project_tenant_and_actions(
    store: &dyn Accounts,
    _: &StillWorld,
) {
    let (tenant, project, key) = furnish(store);
    wait(store.create_tenant(new_tenant(2))).unwrap();
    wait(store.create_project(new_project(2, 1, &[2, 5]))).unwrap();
    wait(store.create_project(new_project(3, 1, &[7]))).unwrap();
    wait(store.create_project(new_project(4, 2, &[9]))).unwrap();
    wait(store.create_key(new_key(2, 4))).unwrap();
    let disable = ProjectChange { frameworks: Some(FrameworkSet::NONE), ..ProjectChange::default() };
    wait(store.update_project(ProjectId(id(3)), disable)).unwrap();
    let own = CustomAction { required_fields: vec!["amount".into()], ..custom("invoice.approved") };
    wait(store.create_action(tenant.id, own.clone())).unwrap();
    wait(store.create_action(TenantId(id(2)), custom("not.ours"))).unwrap();
    let expected = Access {
        key,
        digest: digest(1),
        project,
        tenant,
        actions: vec![own],
        tenant_frameworks: set(&[0, 2, 5]),
    };
    assert_eq!(wait(store.access(digest(1))), Ok(Some(expected)));
    let other = wait(store.access(digest(2))).unwrap().unwrap();
    assert_eq!((other.tenant.id, other.project.id), (TenantId(id(2)), ProjectId(id(4))));
    assert_eq!((other.actions, other.tenant_frameworks), (vec![custom("not.ours")], set(&[9])));
    assert_eq!(wait(store.access(digest(3))), Ok(None));
}

pub fn access_shows_revoked_and_expired_keys(store: &dyn Accounts, world: &StillWorld) {
    let (_, project, key) = furnish(store);
    world.advance(10_000);
    let access = wait(store.access(digest(1))).unwrap().unwrap();
    assert_eq!(access.key, key);
    assert_eq!(access.key.state().expires_at_ms, Some(MORNING_MS + 1000));
    let revoked = wait(store.revoke_key(key.id, MORNING_MS + 5)).unwrap().unwrap();
    assert_eq!(revoked, ApiKey { revoked_at_ms: Some(MORNING_MS + 5), ..key });
    assert!(revoked.state().revoked);
    assert_eq!(wait(store.access(digest(1))).unwrap().unwrap().key, revoked);
    assert_eq!(wait(store.keys(project.id, first(10))), Ok(vec![revoked]));
}

pub fn revoking_twice_keeps_the_first_time(store: &dyn Accounts, _: &StillWorld) {
    let (_, _, key) = furnish(store);
    let first = wait(store.revoke_key(key.id, MORNING_MS + 5)).unwrap();
    for now_ms in [MORNING_MS, MORNING_MS + 5, MORNING_MS + 6] {
        assert_eq!(wait(store.revoke_key(key.id, now_ms)), Ok(first.clone()));
    }
}

pub fn a_keys_last_use_never_goes_back(store: &dyn Accounts, _: &StillWorld) {
    let (_, project, key) = furnish(store);
    wait(store.create_key(new_key(2, 1))).unwrap();
    let last_used = || {
        let keys = wait(store.keys(project.id, first(10))).unwrap();
        keys.iter().map(|key| key.last_used_at_ms).collect::<Vec<_>>()
    };
    assert_eq!(last_used(), [None, None]);
    wait(store.keys_used(vec![(key.id, 50), (KeyId(id(2)), 70)])).unwrap();
    assert_eq!(last_used(), [Some(50), Some(70)]);
    wait(store.keys_used(vec![(key.id, 60), (KeyId(id(2)), 69)])).unwrap();
    assert_eq!(last_used(), [Some(60), Some(70)]);
    wait(store.keys_used(vec![])).unwrap();
    assert_eq!(last_used(), [Some(60), Some(70)]);
}

pub fn actions_and_emails_are_unique(store: &dyn Accounts, _: &StillWorld) {
    let (tenant, ..) = furnish(store);
    let other = wait(store.create_tenant(new_tenant(2))).unwrap();
    let action = CustomAction {
        description: Some("d".into()),
        category: Some("c".into()),
        severity: Some("warn".into()),
        required_fields: vec!["b".into(), "a \"quoted\", one".into()],
        optional_fields: vec!["é".into()],
        ..custom("b.created")
    };
    assert_eq!(wait(store.create_action(tenant.id, action.clone())), Ok(Some(action.clone())));
    assert_eq!(wait(store.create_action(tenant.id, custom("b.created"))), Err(AccountError::AlreadyExists));
    // Another spelling is another action, and another tenant has its own.
    for name in ["B.created", "a.created", "é.created"] {
        wait(store.create_action(tenant.id, custom(name))).unwrap();
    }
    assert_eq!(wait(store.create_action(other.id, custom("b.created"))), Ok(Some(custom("b.created"))));
    let in_order = vec![custom("B.created"), custom("a.created"), action, custom("é.created")];
    assert_eq!(wait(store.actions(tenant.id)), Ok(in_order));
    assert_eq!(wait(store.actions(other.id)), Ok(vec![custom("b.created")]));

    wait(store.create_user(new_user(1, 1, "Zoë@Example.com"))).unwrap().unwrap();
    for (tenant, email) in [(1, "Zoë@Example.com"), (1, "zoë@example.com"), (2, "ZOË@EXAMPLE.COM")] {
        let taken = wait(store.create_user(new_user(2, tenant, email)));
        assert_eq!(taken, Err(AccountError::AlreadyExists), "{email}");
    }
    assert_eq!(wait(store.users(tenant.id, first(10))).unwrap().len(), 1);
    assert_eq!(wait(store.users(other.id, first(10))), Ok(vec![]));
}

pub fn an_email_is_found_in_any_case(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    let NewUser { id, tenant_id, email, password_hash, role, created_at_ms } =
        new_user(1, 1, "Zoë@Example.com");
    let user = User { id, tenant_id, email, role, created_at_ms };
    assert_eq!(wait(store.create_user(new_user(1, 1, "Zoë@Example.com"))), Ok(Some(user.clone())));
    wait(store.create_user(new_user(2, 1, "zoe@example.com"))).unwrap().unwrap();
    for email in ["Zoë@Example.com", "zoë@example.com", "ZOË@EXAMPLE.COM"] {
        let found = wait(store.user_by_email(email.into()));
        assert_eq!(found, Ok(Some((user.clone(), password_hash.clone()))), "{email}");
    }
    for email in ["", "zo_@example.com", "zoë@example.com ", "%"] {
        assert_eq!(wait(store.user_by_email(email.into())), Ok(None), "{email}");
    }
}

pub fn sessions_end_and_expire(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    wait(store.create_user(new_user(1, 1, "a@example.com"))).unwrap();
    let [short, long, ended] =
        [(1, 1000), (2, 5000), (3, 5000)].map(|(n, end)| new_session(n, 1, MORNING_MS + end));
    for session in [&short, &long, &ended] {
        wait(store.create_session(session.clone())).unwrap();
    }
    let session = |n, now_ms| wait(store.session(digest(n), now_ms)).unwrap();
    assert_eq!(session(1, MORNING_MS + 999), Some(short));
    assert_eq!(session(1, MORNING_MS + 1000), None);
    assert_eq!(session(1, u64::MAX), None);
    assert_eq!(session(4, MORNING_MS), None);
    assert_eq!(session(3, MORNING_MS), Some(ended));
    wait(store.end_session(digest(3))).unwrap();
    assert_eq!(session(3, MORNING_MS), None);
    assert_eq!(session(2, MORNING_MS), Some(long.clone()));
    // A later one does not end those that still run.
    let later = Session { created_at_ms: MORNING_MS + 4999, ..new_session(5, 1, MORNING_MS + 9000) };
    wait(store.create_session(later.clone())).unwrap();
    assert_eq!(session(2, MORNING_MS + 4999), Some(long));
    assert_eq!(session(5, MORNING_MS + 8999), Some(later));
}

pub fn a_mail_with_the_same_key_is_queued_once(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    wait(store.create_tenant(new_tenant(2))).unwrap();
    assert_eq!(wait(store.enqueue_mail(new_mail(1, 24_322, 80))), Ok(true));
    let other_text = NewMail { to: "x@example.com".into(), ..new_mail(1, 24_322, 80) };
    assert_eq!(wait(store.enqueue_mail(other_text)), Ok(false));
    for other in [new_mail(1, 24_322, 100), new_mail(1, 24_323, 80), new_mail(2, 24_322, 80)] {
        assert_eq!(wait(store.enqueue_mail(other)), Ok(true));
    }
    assert_eq!(wait(store.pending_mails()), Ok(4));
    let mails = due(store, MORNING_MS);
    assert_eq!(mails.len(), 4);
    let NewMail { to, subject, body, .. } = new_mail(1, 24_322, 80);
    assert_eq!(mails[0], Mail { id: mails[0].id, to, subject, body, attempts: 0 });
    assert_eq!(wait(store.due_mails(MORNING_MS, 3)).unwrap(), mails[..3]);
    assert_eq!(due(store, MORNING_MS - 1), []);
}

pub fn a_failed_mail_is_due_again_at_its_time(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    for percent in [80, 100] {
        wait(store.enqueue_mail(new_mail(1, 1, percent))).unwrap();
    }
    let mails = due(store, MORNING_MS);
    let fail = |retry_at_ms| {
        let outcome = MailOutcome::Failed { retry_at_ms, cause: "refused".into() };
        wait(store.mail_attempted(mails[0].id, outcome)).unwrap();
    };
    fail(MORNING_MS + 60_000);
    assert_eq!(due(store, MORNING_MS + 59_999), mails[1..]);
    // Oldest first, also when it was put off.
    let again = Mail { attempts: 1, ..mails[0].clone() };
    assert_eq!(due(store, MORNING_MS + 60_000), [again, mails[1].clone()]);
    fail(MORNING_MS + 120_000);
    assert_eq!(due(store, MORNING_MS + 120_000)[0].attempts, 2);
    assert_eq!(wait(store.pending_mails()), Ok(2));
}

pub fn a_mail_is_claimed_by_one_and_due_again_when_the_claim_is_over(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    for percent in [80, 100] {
        wait(store.enqueue_mail(new_mail(1, 1, percent))).unwrap();
    }
    let mails = due(store, MORNING_MS);
    let claim = |id, now_ms| wait(store.claim_mail(id, now_ms, now_ms + 1000)).unwrap();
    assert!(!claim(mails[0].id, MORNING_MS - 1), "before it is due");
    assert!(claim(mails[0].id, MORNING_MS));
    assert!(!claim(mails[0].id, MORNING_MS));
    assert!(!claim(mails[0].id, MORNING_MS + 999));
    assert_eq!(due(store, MORNING_MS + 999), mails[1..]);
    // A claim is not an attempt.
    assert_eq!(due(store, MORNING_MS + 1000), mails);
    assert!(claim(mails[0].id, MORNING_MS + 1000));
    assert!(claim(mails[1].id, MORNING_MS + 1000));
    let failed = MailOutcome::Failed { retry_at_ms: MORNING_MS + 1500, cause: "refused".into() };
    wait(store.mail_attempted(mails[0].id, failed)).unwrap();
    assert!(claim(mails[0].id, MORNING_MS + 1500), "the outcome ends the claim");
    wait(store.mail_attempted(mails[1].id, MailOutcome::Sent { now_ms: MORNING_MS + 1500 })).unwrap();
    assert!(!claim(mails[1].id, MORNING_MS + 9000), "it was sent");
    assert!(!claim(mails[1].id + 1, MORNING_MS + 9000), "there is none");
}

pub fn a_sent_mail_is_not_due_and_its_key_stays_taken(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    wait(store.enqueue_mail(new_mail(1, 1, 80))).unwrap();
    wait(store.enqueue_mail(new_mail(1, 1, 100))).unwrap();
    let mails = due(store, MORNING_MS);
    let sent = MailOutcome::Sent { now_ms: MORNING_MS + 1 };
    wait(store.mail_attempted(mails[0].id, sent.clone())).unwrap();
    assert_eq!(due(store, u64::MAX), mails[1..]);
    assert_eq!(wait(store.pending_mails()), Ok(1));
    assert_eq!(wait(store.enqueue_mail(new_mail(1, 1, 80))), Ok(false));
    // What was sent was sent, whatever a second attempt says.
    let failed = MailOutcome::Failed { retry_at_ms: MORNING_MS, cause: "late".into() };
    wait(store.mail_attempted(mails[0].id, failed)).unwrap();
    wait(store.mail_attempted(mails[1].id, sent)).unwrap();
    assert_eq!((due(store, u64::MAX), wait(store.pending_mails())), (vec![], Ok(0)));
}

pub fn every_change_of_access_raises_the_version(store: &dyn Accounts, _: &StillWorld) {
    let mut last = store.version();
    assert!(last >= 1);
    let mut has_grown = || std::mem::replace(&mut last, store.version()) < store.version();
    wait(store.create_tenant(new_tenant(1))).unwrap();
    assert!(has_grown());
    wait(store.create_project(new_project(1, 1, &[]))).unwrap();
    assert!(has_grown());
    wait(store.create_key(new_key(1, 1))).unwrap();
    assert!(has_grown());
    wait(store.create_action(TenantId(id(1)), custom("a.b"))).unwrap();
    assert!(has_grown());
    wait(store.update_tenant(TenantId(id(1)), TenantChange::default())).unwrap();
    assert!(has_grown());
    wait(store.update_project(ProjectId(id(1)), ProjectChange::default())).unwrap();
    assert!(has_grown());
    wait(store.revoke_key(KeyId(id(1)), MORNING_MS)).unwrap();
    assert!(has_grown());
    // What happens all the time and alters nothing that a request may do leaves the caches alone.
    wait(store.keys_used(vec![(KeyId(id(1)), MORNING_MS)])).unwrap();
    wait(store.create_user(new_user(1, 1, "a@example.com"))).unwrap();
    wait(store.create_session(new_session(1, 1, u64::MAX))).unwrap();
    wait(store.enqueue_mail(new_mail(1, 1, 80))).unwrap();
    wait(store.access(digest(1))).unwrap();
    assert!(!has_grown());
}

pub fn concurrent_changes_are_all_kept(store: &dyn Accounts, _: &StillWorld) {
    furnish(store);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for n in 0..10 {
                    let n = 10 + thread * 10 + n;
                    wait(store.create_project(new_project(n, 1, &[usize::from(n % 12)]))).unwrap();
                    wait(store.create_key(new_key(n, n))).unwrap();
                    assert!(wait(store.access(digest(n))).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(wait(store.projects(TenantId(id(1)), first(100))).unwrap().len(), 41);
}
