//! What an empty store needs before the first event can be sent: a tenant, a project, two keys and an owner.

use sealog_control::{
    FirstRun, Grants, NewMember, NewPerson, NewProject, NewRecord, NewTenant, PersonId, Role,
};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{Mode, ProjectId, TenantId};
use sealog_core::key;
use sealog_core::plan::Billing;

use super::{Actor, Admin, AdminError, keys, people, projects, tenants};
use crate::password;
use crate::secret::Secret;

pub const OWNER: &str = "owner@localhost";
/// More than 150 bits, in characters of a key's alphabet.
const PASSWORD_LEN: usize = 26;
/// `at_live_`: the same for all keys.
const PREFIX_LEN: usize = 8;

/// Everything that the first run creates. Nothing of it exists yet: whoever runs it puts the secrets where they are
/// not lost, and then commits it with [`Admin::create_first`].
#[derive(Debug)]
pub struct First {
    pub live: Secret,
    pub test: Secret,
    pub password: Secret,
    run: FirstRun,
    records: Vec<NewRecord>,
}

impl Admin {
    /// Takes as long as a password's hash does.
    pub fn prepare_first(&self, actor: Actor) -> Result<First, AdminError> {
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
            keys::generate(&recorder, project.id, format!("first {} key", mode.as_str()), mode, None)
        };
        let ((live_key, live), (test_key, test)) = (new_key(Mode::Live), new_key(Mode::Test));
        let alphabet = Secret(key::generate(Mode::Live, recorder.random()));
        let password = Secret(alphabet.0[PREFIX_LEN..PREFIX_LEN + PASSWORD_LEN].to_owned());
        let salt = recorder.random();
        let salt = std::array::from_fn(|at| salt[at]);
        let password_hash = password::hash_now(&password.0, &salt).map_err(AdminError::Internal)?;
        let person = NewPerson {
            id: PersonId(recorder.random_id()),
            email: OWNER.into(),
            password_hash: Some(password_hash),
            verified: true,
            created_at_ms,
        };
        let records = vec![
            tenants::created(&recorder, &tenant),
            projects::created(&recorder, &project),
            keys::created(&recorder, &live_key),
            keys::created(&recorder, &test_key),
            people::added(&recorder, person.id, Role::Owner.as_str()),
        ];
        let owner = NewMember {
            tenant_id: tenant.id,
            person,
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms,
        };
        let run = FirstRun { tenant, project, keys: vec![live_key, test_key], owner };
        Ok(First { live, test, password, run, records })
    }

    /// All of it in one step, unless there is a tenant already. Whether it did.
    pub async fn create_first(&self, first: First) -> Result<bool, AdminError> {
        let First { run, records, .. } = first;
        Ok(self.made(self.administration().create_first(run, records)).await?)
    }
}
