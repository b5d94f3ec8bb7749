//! Control data: who may send and read what. Small, changed by people, kept apart from events.
//!
//! The same rule as for [`Store`](crate::Store): whole operations, never rows. Nothing is ever deleted that an event could point at: keys are revoked, frameworks disabled.

use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::key::KeyState;
use sealog_core::plan::Billing;
use sealog_core::time::Month;

use crate::{BoxFuture, StoreError};

/// The contract of the control data of a store.
///
/// After `Ok` a change is durable and seen by every later call on this store. [`Accounts::version`] grows with every change that can alter what a request may do,
/// so that whoever caches an [`Access`] knows when to ask again.
pub trait Accounts: Send + Sync {
    /// Creates the first tenant with its project, keys and owner in one step, unless there is a tenant already. Whether it did.
    /// One step, because a crash in between would leave a store that looks set up and that nobody has a key to.
    fn create_first(&self, first: FirstRun) -> BoxFuture<'_, Result<bool, StoreError>>;

    fn create_tenant(&self, new: NewTenant) -> BoxFuture<'_, Result<Tenant, StoreError>>;
    /// Nothing when there is no such tenant.
    fn update_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
    ) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>>;
    fn tenant(&self, id: TenantId) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>>;
    fn tenants(&self, page: ListPage) -> BoxFuture<'_, Result<Vec<Tenant>, StoreError>>;

    fn create_project(&self, new: NewProject) -> BoxFuture<'_, Result<Option<Project>, StoreError>>;
    fn update_project(
        &self,
        id: ProjectId,
        change: ProjectChange,
    ) -> BoxFuture<'_, Result<Option<Project>, StoreError>>;
    fn project(&self, id: ProjectId) -> BoxFuture<'_, Result<Option<Project>, StoreError>>;
    fn projects(
        &self,
        tenant_id: TenantId,
        page: ListPage,
    ) -> BoxFuture<'_, Result<Vec<Project>, StoreError>>;

    /// Nothing when there is no such project.
    fn create_key(&self, new: NewKey) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>>;
    /// Revoking twice is the same as once. Nothing when there is no such key.
    fn revoke_key(&self, id: KeyId, now_ms: u64) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>>;
    fn keys(&self, project_id: ProjectId, page: ListPage) -> BoxFuture<'_, Result<Vec<ApiKey>, StoreError>>;
    /// Everything that a request with this key may go by, revoked and expired keys included.
    fn access(&self, key_digest: Hash) -> BoxFuture<'_, Result<Option<Access>, StoreError>>;
    /// When keys were last used. Told in bulk, once a minute; a crash loses at most that.
    fn keys_used(&self, used: Vec<(KeyId, u64)>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// `Err(AlreadyExists)` for a name that the tenant has already. Nothing when there is no such tenant.
    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
    ) -> BoxFuture<'_, Result<Option<CustomAction>, AccountError>>;
    /// All of them, in the order of their names.
    fn actions(&self, tenant_id: TenantId) -> BoxFuture<'_, Result<Vec<CustomAction>, StoreError>>;

    /// `Err(AlreadyExists)` for an e-mail address that any user has. Nothing when there is no such tenant.
    fn create_user(&self, new: NewUser) -> BoxFuture<'_, Result<Option<User>, AccountError>>;
    fn users(&self, tenant_id: TenantId, page: ListPage) -> BoxFuture<'_, Result<Vec<User>, StoreError>>;
    /// By e-mail address, case-insensitive; with the hash of the password.
    fn user_by_email(&self, email: String) -> BoxFuture<'_, Result<Option<(User, String)>, StoreError>>;
    fn create_session(&self, session: Session) -> BoxFuture<'_, Result<(), StoreError>>;
    /// A session that has not ended at `now_ms`.
    fn session(&self, token_digest: Hash, now_ms: u64) -> BoxFuture<'_, Result<Option<Session>, StoreError>>;
    fn end_session(&self, token_digest: Hash) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Puts a mail into the outbox, unless one with the same key was put there before. Whether it is new.
    fn enqueue_mail(&self, mail: NewMail) -> BoxFuture<'_, Result<bool, StoreError>>;
    /// Mails that are due, oldest first.
    fn due_mails(&self, now_ms: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Mail>, StoreError>>;
    /// Takes a mail for one attempt: of any number of callers that found it due, one. It is due again at `until_ms`, whatever has become of the caller, unless the
    /// attempt's outcome was noted before. Whether it is the caller's.
    fn claim_mail(&self, id: i64, now_ms: u64, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>>;
    /// What became of an attempt: sent, or to be tried again at a time.
    fn mail_attempted(&self, id: i64, outcome: MailOutcome) -> BoxFuture<'_, Result<(), StoreError>>;
    /// Mails that wait.
    fn pending_mails(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// All of it, for a copy.
    fn export(&self) -> BoxFuture<'_, Result<Everything, StoreError>> {
        Box::pin(async { Err(StoreError::Refused("this store cannot be copied".into())) })
    }
    /// Puts this in the place of everything, in one step. For copies, into a store that serves nobody.
    fn replace(&self, _everything: Everything) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Err(StoreError::Refused("this store cannot be copied into".into())) })
    }

    /// Grows with every change of tenants, projects, keys and actions.
    fn version(&self) -> u64;
}

/// All control data, each kind in the order of creation; sessions in that of their tokens' digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Everything {
    pub tenants: Vec<Tenant>,
    /// With the history of their frameworks.
    pub projects: Vec<(Project, Vec<Enabled>)>,
    pub keys: Vec<(ApiKey, Hash)>,
    pub actions: Vec<(TenantId, CustomAction)>,
    /// With the hash of their password.
    pub users: Vec<(User, String)>,
    pub sessions: Vec<Session>,
    pub mails: Vec<KeptMail>,
}

/// A time during which a framework was enabled; it may not be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// Its place in the catalog.
    pub framework: u8,
    pub enabled_at_ms: u64,
    pub disabled_at_ms: Option<u64>,
}

/// A mail in the outbox, sent or not. The text of one that was sent long ago is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMail {
    pub key: MailKey,
    pub to: Option<String>,
    pub subject: Option<String>,
    pub body: Option<String>,
    pub created_at_ms: u64,
    pub due_at_ms: u64,
    pub attempts: u32,
    pub last_failure: Option<String>,
    pub sent_at_ms: Option<u64>,
}

/// A piece of a list in the order of creation: what comes after this id, at most so many.
#[derive(Clone, Copy, Debug)]
pub struct ListPage {
    pub after: Option<Uuid>,
    pub limit: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountError {
    AlreadyExists,
    Store(StoreError),
}

impl From<StoreError> for AccountError {
    fn from(error: StoreError) -> AccountError {
        AccountError::Store(error)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub Uuid);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(pub Uuid);

/// What an empty store needs before the first event can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstRun {
    pub tenant: NewTenant,
    /// Of that tenant.
    pub project: NewProject,
    /// Of that project.
    pub keys: Vec<NewKey>,
    /// Of that tenant.
    pub owner: NewUser,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTenant {
    /// Chosen by the caller from randomness, as all ids here.
    pub id: TenantId,
    pub name: String,
    /// The name of a plan; what it means is the operator's configuration.
    pub plan: String,
    pub contact_email: Option<String>,
    pub billing: Billing,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub plan: String,
    pub contact_email: Option<String>,
    pub billing: Billing,
    pub rate_limit_rps: Option<u32>,
    pub created_at_ms: u64,
}

/// Each field is left alone unless it is given; an inner `None` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantChange {
    pub name: Option<String>,
    pub plan: Option<String>,
    pub contact_email: Option<Option<String>>,
    pub trial_ends_at_ms: Option<Option<u64>>,
    pub billing_active: Option<bool>,
    pub rate_limit_rps: Option<Option<u32>>,
}

impl TenantChange {
    pub(crate) fn apply(self, tenant: &mut Tenant) {
        set(&mut tenant.name, self.name);
        set(&mut tenant.plan, self.plan);
        set(&mut tenant.contact_email, self.contact_email);
        set(&mut tenant.billing.trial_ends_at_ms, self.trial_ends_at_ms);
        set(&mut tenant.billing.billing_active, self.billing_active);
        set(&mut tenant.rate_limit_rps, self.rate_limit_rps);
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProject {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    pub frameworks: FrameworkSet,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    /// Enabled now.
    pub frameworks: FrameworkSet,
    /// Enabled now or at any time before.
    pub frameworks_ever: FrameworkSet,
    pub rate_limit_rps: Option<u32>,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    pub name: Option<String>,
    pub frameworks: Option<FrameworkSet>,
    pub rate_limit_rps: Option<Option<u32>>,
    /// When, for the history of frameworks.
    pub now_ms: u64,
}

impl ProjectChange {
    pub(crate) fn apply(self, project: &mut Project) {
        set(&mut project.name, self.name);
        set(&mut project.frameworks, self.frameworks);
        set(&mut project.rate_limit_rps, self.rate_limit_rps);
        project.frameworks_ever = project.frameworks_ever.union(project.frameworks);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    pub id: KeyId,
    pub project_id: ProjectId,
    pub name: String,
    pub mode: Mode,
    pub digest: Hash,
    /// The first characters, for display.
    pub prefix: String,
    pub expires_at_ms: Option<u64>,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub project_id: ProjectId,
    pub name: String,
    pub mode: Mode,
    pub prefix: String,
    pub expires_at_ms: Option<u64>,
    pub revoked_at_ms: Option<u64>,
    pub last_used_at_ms: Option<u64>,
    pub created_at_ms: u64,
}

impl ApiKey {
    pub fn state(&self) -> KeyState {
        KeyState { revoked: self.revoked_at_ms.is_some(), expires_at_ms: self.expires_at_ms }
    }
}

/// A key with everything around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub key: ApiKey,
    pub digest: Hash,
    pub project: Project,
    pub tenant: Tenant,
    /// The tenant's own actions.
    pub actions: Vec<CustomAction>,
    /// Enabled in any of the tenant's projects.
    pub tenant_frameworks: FrameworkSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Owner,
    Admin,
    Auditor,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Owner, Role::Admin, Role::Auditor];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Admin => "admin",
            Role::Auditor => "auditor",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    pub id: UserId,
    pub tenant_id: TenantId,
    pub email: String,
    /// argon2id, as a PHC string; the store never sees a password.
    pub password_hash: String,
    pub role: Role,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub tenant_id: TenantId,
    pub email: String,
    pub role: Role,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub token_digest: Hash,
    pub user_id: UserId,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMail {
    /// What makes it unique: a notice is due once for a tenant, month and threshold.
    pub key: MailKey,
    pub to: String,
    pub subject: String,
    pub body: String,
    pub created_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MailKey {
    pub tenant_id: TenantId,
    pub month: Month,
    pub percent: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub id: i64,
    pub to: String,
    pub subject: String,
    pub body: String,
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailOutcome {
    Sent { now_ms: u64 },
    Failed { retry_at_ms: u64, cause: String },
}
