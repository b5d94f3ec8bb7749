//! What the rules share: one of everything, by its number.

use sealog_control::*;
use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;

use sealog_testing::*;

pub fn id(n: u8) -> Uuid {
    // Not in the order of creation, as random ids are not. Of version 4, as those of projects are.
    Uuid::from_random([n.wrapping_mul(151); 16])
}

pub fn tenant_id(n: u8) -> TenantId {
    TenantId(id(n))
}

pub fn project_id(n: u8) -> ProjectId {
    ProjectId(id(n))
}

pub fn person_id(n: u8) -> PersonId {
    PersonId(id(n))
}

pub fn new_tenant(n: u8) -> NewTenant {
    NewTenant {
        id: tenant_id(n),
        name: format!("Tenant {n}"),
        plan: "entry".into(),
        contact_email: Some("Ops@example.com".into()),
        billing: Billing { trial_ends_at_ms: Some(MORNING_MS + 1), billing_active: false },
        created_at_ms: MORNING_MS,
    }
}

pub fn new_project(n: u8, tenant: u8, frameworks: &[usize]) -> NewProject {
    NewProject {
        id: project_id(n),
        tenant_id: tenant_id(tenant),
        name: format!("Project {n}"),
        frameworks: set(frameworks),
        created_at_ms: MORNING_MS,
    }
}

pub fn new_key(n: u8, project: u8) -> NewKey {
    NewKey {
        id: KeyId(id(n)),
        project_id: project_id(project),
        name: format!("Key {n}"),
        mode: if n.is_multiple_of(2) { Mode::Test } else { Mode::Live },
        digest: digest(n),
        prefix: format!("at_live_{n:04}"),
        expires_at_ms: Some(MORNING_MS + 1000),
        created_at_ms: MORNING_MS,
        created_by: None,
    }
}

pub fn new_person(n: u8, email: &str) -> NewPerson {
    NewPerson {
        id: person_id(n),
        email: email.into(),
        password_hash: Some(format!("$argon2id${n}")),
        verified: true,
        created_at_ms: MORNING_MS,
    }
}

pub fn new_member(n: u8, tenant: u8, email: &str) -> NewMember {
    NewMember {
        tenant_id: tenant_id(tenant),
        person: new_person(n, email),
        role: Role::ALL[usize::from(n) % 5],
        grants: Grants::default(),
        ends_at_ms: None,
        created_at_ms: MORNING_MS,
    }
}

pub fn new_session(n: u8, person: u8, expires_at_ms: u64) -> Session<Person> {
    Session {
        token_digest: digest(n),
        account_id: person_id(person),
        needs_code: false,
        created_at_ms: MORNING_MS,
        expires_at_ms,
        last_seen_at_ms: MORNING_MS,
        idle_ms: 1 << 60,
        address: Some("192.0.2.1".into()),
        user_agent: None,
    }
}

pub fn new_authenticator(person: u8) -> Authenticator {
    Authenticator {
        person_id: person_id(person),
        secret: vec![person; 20],
        last_step: None,
        created_at_ms: MORNING_MS,
    }
}

/// Its secret has the digest of this number, and it works for a thousand milliseconds.
pub fn new_link(n: u8, purpose: Purpose) -> Link {
    Link {
        id: id(n),
        digest: Some(digest(n)),
        purpose,
        created_at_ms: MORNING_MS,
        expires_at_ms: MORNING_MS + 1000,
    }
}

pub fn reset(person: u8) -> Purpose {
    Purpose::Reset { person_id: person_id(person) }
}

pub fn claim(tenant: u8, person: u8) -> Purpose {
    Purpose::Claim { tenant_id: tenant_id(tenant), person_id: person_id(person) }
}

pub fn invitation(tenant: u8, email: &str) -> Purpose {
    Purpose::Invitation(Invitation {
        tenant_id: tenant_id(tenant),
        email: email.into(),
        role: Role::Auditor,
        grants: Grants { projects: Some(vec![project_id(1)]), from_ms: Some(1), until_ms: None },
        ends_at_ms: Some(MORNING_MS + 90),
        invited_by: None,
    })
}

pub fn new_notice(tenant: u8, month: u32, percent: u8) -> NewNotice {
    NewNotice {
        key: format!("quota/{}/{month}/{percent}", tenant_id(tenant)),
        person_id: None,
        tenant_id: Some(tenant_id(tenant)),
        to: "Ops@example.com".into(),
        template: "quota".into(),
        parameters: format!("{{\"percent\":{percent},\"text\":\"Line one\\nline two\"}}"),
        created_at_ms: MORNING_MS,
    }
}

/// With the digest of this number, of a person.
pub fn new_device(n: u8, person: u8, seen_at_ms: u64) -> Device<Person> {
    Device {
        account_id: person_id(person),
        digest: digest(n),
        created_at_ms: MORNING_MS,
        last_seen_at_ms: seen_at_ms,
    }
}

pub fn new_job(n: u8, tenant: u8) -> NewJob {
    NewJob {
        id: JobId(id(n)),
        kind: "verify".into(),
        tenant_id: Some(tenant_id(tenant)),
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: MORNING_MS,
    }
}

/// Of the person 1.
pub fn new_export(n: u8, tenant: u8) -> NewExport {
    NewExport {
        id: ExportId(id(n)),
        tenant_id: tenant_id(tenant),
        project_id: project_id(1),
        mode: Mode::Live,
        person_id: person_id(1),
        format: "csv".into(),
        query: "action=a.b".into(),
        from_ms: Some(1),
        until_ms: None,
        first_seq: 3,
        last_seq: 9,
        created_at_ms: MORNING_MS,
    }
}

pub fn record(n: u8) -> NewRecord {
    NewRecord { id: id(n), draft: format!("{{\"action\":\"sealog.n{n}\"}}"), created_at_ms: MORNING_MS }
}

pub fn custom(name: &str) -> CustomAction {
    CustomAction {
        action: name.into(),
        description: None,
        category: None,
        severity: None,
        required_fields: Vec::new(),
        optional_fields: Vec::new(),
    }
}

pub fn digest(n: u8) -> Hash {
    Hash([n; 32])
}

pub fn set(frameworks: &[usize]) -> FrameworkSet {
    frameworks.iter().fold(FrameworkSet::NONE, |set, index| set.with(*index))
}

pub fn page(after: Option<Uuid>, limit: usize) -> ListPage {
    ListPage { after, limit }
}

pub fn first(limit: usize) -> ListPage {
    page(None, limit)
}

/// A tenant, a project and a key, numbered 1.
pub fn furnish(control: &Control) -> (Tenant, Project, ApiKey) {
    let tenant = wait(control.create_tenant(new_tenant(1), vec![])).unwrap();
    let project = wait(control.create_project(new_project(1, 1, &[0, 2]), vec![])).unwrap().unwrap();
    let key = wait(control.create_key(new_key(1, 1), vec![])).unwrap().unwrap();
    (tenant, project, key)
}

pub fn new_operator(n: u8) -> NewOpsUser {
    NewOpsUser {
        id: OpsUserId(id(n)),
        email: format!("Operator{n}@Example.com"),
        link: OpsLink { digest: digest(n + 100), expires_at_ms: MORNING_MS + 1000 },
        created_at_ms: MORNING_MS,
    }
}

pub fn new_ops_session(n: u8, user: u8, needs_code: bool) -> Session<OpsUser> {
    Session {
        token_digest: digest(n),
        account_id: OpsUserId(id(user)),
        needs_code,
        created_at_ms: MORNING_MS,
        expires_at_ms: MORNING_MS + 1000,
        last_seen_at_ms: MORNING_MS,
        idle_ms: 500,
        address: Some("192.0.2.2".into()),
        user_agent: Some("Browser".into()),
    }
}
