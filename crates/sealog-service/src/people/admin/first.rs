//! What an empty store needs before the first event can be sent: a tenant, a project, two keys and an owner.

use sealog_control::{
    FirstRun, Grants, ListPage, NewMember, NewPerson, NewProject, NewRecord, NewTenant, PersonId, Role,
};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{Mode, ProjectId, TenantId};
use sealog_core::plan::Billing;

use super::projects::ProjectUpdate;
use super::tenants::TenantUpdate;
use super::{Actor, Admin, AdminError, FieldError, fields, keys, projects, tenants};
use crate::people::account;
use crate::secret::Secret;

/// Everything that the first run creates. Nothing of it exists yet: whoever runs it puts the secrets where
/// they are not lost, and then commits it with [`Admin::create_first`].
#[derive(Debug)]
pub struct First {
    pub live: Secret,
    pub test: Secret,
    /// The link with which the owner gets an address and a password.
    pub claim: Secret,
    run: FirstRun,
    records: Vec<NewRecord>,
}

/// What the owner calls the organisation and the project of the first run.
#[derive(Clone, Debug)]
pub struct FirstNames {
    organisation: String,
    project: String,
}

impl FirstNames {
    pub fn new(organisation: &str, project: &str) -> Result<FirstNames, FieldError> {
        Ok(FirstNames {
            organisation: fields::some_text("organisation", organisation.trim().to_owned())?,
            project: fields::some_text("project", project.trim().to_owned())?,
        })
    }
}

impl Admin {
    /// On behalf of the owner, who has just claimed the account.
    pub async fn name_first(&self, owner: PersonId, names: FirstNames) -> Result<(), AdminError> {
        let actor = Actor::Person(owner);
        let memberships = self.people().memberships(owner).await?;
        let tenant_id = memberships.first().ok_or(AdminError::NotFound)?.tenant_id;
        let update = TenantUpdate { name: Some(names.organisation), ..TenantUpdate::default() };
        self.update_tenant(actor, tenant_id, update).await?;
        let first = ListPage { after: None, limit: 1 };
        let projects = self.administration().projects(tenant_id, first).await?;
        let project = projects.first().ok_or(AdminError::NotFound)?;
        let update = ProjectUpdate { name: Some(names.project), ..ProjectUpdate::default() };
        self.update_project(actor, project.id, update).await.map(drop)
    }

    /// `app_url` is where the link leads.
    pub fn prepare_first(&self, actor: Actor, app_url: &str) -> First {
        let recorder = self.recorder(actor);
        let created_at_ms = recorder.now_ms();
        let tenant = NewTenant {
            id: TenantId(recorder.random_id()),
            name: "My organisation".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms,
        };
        let project = NewProject {
            id: ProjectId(recorder.random_id()),
            tenant_id: tenant.id,
            name: "My project".into(),
            frameworks: FrameworkSet::NONE,
            created_at_ms,
        };
        let new_key = |mode: Mode| {
            keys::generate(
                &recorder,
                recorder.now_ms(),
                project.id,
                format!("first {} key", mode.as_str()),
                mode,
                None,
            )
        };
        let ((live_key, live), (test_key, test)) = (new_key(Mode::Live), new_key(Mode::Test));
        let person = NewPerson {
            id: PersonId(recorder.random_id()),
            email: account::OWNER.into(),
            password_hash: None,
            verified: false,
            created_at_ms,
        };
        let records = vec![
            tenants::created(&recorder, &tenant),
            projects::created(&recorder, &project),
            keys::created(&recorder, &live_key),
            keys::created(&recorder, &test_key),
            super::people::added(&recorder, person.id, Role::Owner.as_str()),
        ];
        let (link, claim) = account::claim_link(&*self.world, app_url, tenant.id, person.id);
        let owner = NewMember {
            tenant_id: tenant.id,
            person,
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms,
        };
        let run = FirstRun { tenant, project, keys: vec![live_key, test_key], owner, claim: Some(link) };
        First { live, test, claim, run, records }
    }

    /// All of it in one step, unless there is a tenant already. Whether it did.
    pub async fn create_first(&self, first: First) -> Result<bool, AdminError> {
        let First { run, records, .. } = first;
        Ok(self.made(self.administration().create_first(run, records)).await?)
    }
}
