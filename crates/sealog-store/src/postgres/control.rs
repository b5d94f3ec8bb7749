//! Control data: [`Accounts`] in tables of their own, never joined to those of events.
//!
//! Whoever changes what a request may do first counts the version up. That row is a lock as well: changes come one after the other, so creation has one order.

mod copy;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, ProjectId, TenantId};
use sealog_core::plan::Billing;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::pool::Session;
use super::rows::{self, Digest32, Id, Kept, Text, signed, unsigned};
use super::{PostgresStore, explain};
use crate::accounts::{
    Access, AccountError, Accounts, ApiKey, Everything, FirstRun, KeyId, ListPage, Mail, MailOutcome, NewKey,
    NewMail, NewProject, NewTenant, NewUser, Project, ProjectChange, Role, Session as UserSession, Tenant,
    TenantChange, User, UserId,
};
use crate::{BoxFuture, StoreError};

/// How long the text of a mail is kept after it was sent.
const MAIL_KEPT_MS: u64 = 90 * 24 * 60 * 60 * 1000;

type Param<'a> = &'a (dyn ToSql + Sync);

impl Accounts for PostgresStore {
    fn create_first(&self, first: FirstRun) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change_access(|db| Box::pin(create_first(db, first)))
    }

    fn create_tenant(&self, new: NewTenant) -> BoxFuture<'_, Result<Tenant, StoreError>> {
        self.change_access(|db| Box::pin(create_tenant(db, new)))
    }

    fn update_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
    ) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        self.change_access(move |db| Box::pin(update_tenant(db, id, change)))
    }

    fn tenant(&self, id: TenantId) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        self.read(move |db| Box::pin(tenant(db, id)))
    }

    fn tenants(&self, page: ListPage) -> BoxFuture<'_, Result<Vec<Tenant>, StoreError>> {
        self.read(move |db| {
            Box::pin(async move {
                let rows = paged(db, TENANTS, "tenants", None, page).await?;
                Ok(rows.iter().map(read_tenant).collect())
            })
        })
    }

    fn create_project(&self, new: NewProject) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.change_access(|db| Box::pin(create_project(db, new)))
    }

    fn update_project(
        &self,
        id: ProjectId,
        change: ProjectChange,
    ) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.change_access(move |db| Box::pin(update_project(db, id, change)))
    }

    fn project(&self, id: ProjectId) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        self.read(move |db| Box::pin(project(db, id)))
    }

    fn projects(
        &self,
        tenant_id: TenantId,
        page: ListPage,
    ) -> BoxFuture<'_, Result<Vec<Project>, StoreError>> {
        self.read(move |db| {
            Box::pin(async move {
                let scope = Some(("tenant_id", Id(tenant_id.0.0)));
                Ok(paged(db, PROJECTS, "projects", scope, page).await?.iter().map(read_project).collect())
            })
        })
    }

    fn create_key(&self, new: NewKey) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        self.change_access(|db| Box::pin(create_key(db, new)))
    }

    fn revoke_key(&self, id: KeyId, now_ms: u64) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        self.change_access(move |db| Box::pin(revoke_key(db, id, now_ms)))
    }

    fn keys(&self, project_id: ProjectId, page: ListPage) -> BoxFuture<'_, Result<Vec<ApiKey>, StoreError>> {
        self.read(move |db| {
            Box::pin(async move {
                let scope = Some(("project_id", Id(project_id.0.0)));
                Ok(paged(db, KEYS, "keys", scope, page).await?.iter().filter_map(read_key).collect())
            })
        })
    }

    fn access(&self, key_digest: Hash) -> BoxFuture<'_, Result<Option<Access>, StoreError>> {
        self.read(move |db| Box::pin(access(db, key_digest)))
    }

    fn keys_used(&self, used: Vec<(KeyId, u64)>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Lock::None, |db| Box::pin(keys_used(db, used)))
    }

    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
    ) -> BoxFuture<'_, Result<Option<CustomAction>, AccountError>> {
        let made = self.change_access(move |db| Box::pin(create_action(db, tenant_id, action)));
        Box::pin(async move { made.await? })
    }

    fn actions(&self, tenant_id: TenantId) -> BoxFuture<'_, Result<Vec<CustomAction>, StoreError>> {
        self.read(move |db| Box::pin(actions(db, tenant_id)))
    }

    fn create_user(&self, new: NewUser) -> BoxFuture<'_, Result<Option<User>, AccountError>> {
        let made = self.change(Lock::Order, |db| Box::pin(create_user(db, new)));
        Box::pin(async move { made.await? })
    }

    fn users(&self, tenant_id: TenantId, page: ListPage) -> BoxFuture<'_, Result<Vec<User>, StoreError>> {
        self.read(move |db| {
            Box::pin(async move {
                let scope = Some(("tenant_id", Id(tenant_id.0.0)));
                Ok(paged(db, USERS, "users", scope, page).await?.iter().filter_map(read_user).collect())
            })
        })
    }

    fn user_by_email(&self, email: String) -> BoxFuture<'_, Result<Option<(User, String)>, StoreError>> {
        self.read(move |db| {
            Box::pin(async move {
                let email = email.to_lowercase();
                let row =
                    one(db, &format!("{USERS} WHERE email_lower = $1"), &[Type::TEXT], &[&Text(&email)])
                        .await?;
                Ok(row.and_then(|row| Some((read_user(&row)?, row.get("password_hash")))))
            })
        })
    }

    fn create_session(&self, session: UserSession) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Lock::None, |db| Box::pin(create_session(db, session)))
    }

    fn session(
        &self,
        token_digest: Hash,
        now_ms: u64,
    ) -> BoxFuture<'_, Result<Option<UserSession>, StoreError>> {
        self.read(move |db| Box::pin(session(db, token_digest, now_ms)))
    }

    fn end_session(&self, token_digest: Hash) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Lock::None, move |db| {
            Box::pin(async move {
                let sql = "DELETE FROM sealog.sessions WHERE token_digest = $1";
                db.execute(sql, &[Type::BYTEA], &[&Digest32(token_digest.0)]).await.map(drop)
            })
        })
    }

    fn enqueue_mail(&self, mail: NewMail) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change(Lock::None, |db| Box::pin(enqueue_mail(db, mail)))
    }

    fn due_mails(&self, now_ms: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Mail>, StoreError>> {
        self.read(move |db| Box::pin(due_mails(db, now_ms, limit)))
    }

    fn claim_mail(&self, id: i64, now_ms: u64, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.change(Lock::None, move |db| Box::pin(claim_mail(db, id, now_ms, until_ms)))
    }

    fn mail_attempted(&self, id: i64, outcome: MailOutcome) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(Lock::None, move |db| Box::pin(mail_attempted(db, id, outcome)))
    }

    fn pending_mails(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read(|db| {
            Box::pin(async move {
                let row =
                    one(db, "SELECT count(*) FROM sealog.mails WHERE sent_at_ms IS NULL", &[], &[]).await?;
                Ok(row.map_or(0, |row| unsigned(row.get(0))))
            })
        })
    }

    fn export(&self) -> BoxFuture<'_, Result<Everything, StoreError>> {
        // Behind the changes before it and before those that come: one moment of everything.
        self.change(Lock::Order, |db| Box::pin(copy::export(db)))
    }

    fn replace(&self, everything: Everything) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change_access(|db| Box::pin(copy::replace(db, everything)))
    }

    fn version(&self) -> u64 {
        self.inner.version.load(Ordering::SeqCst)
    }
}

/// What a change takes before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    None,
    /// Its place behind all changes before it.
    Order,
    /// That, and the next version.
    Version,
}

impl PostgresStore {
    fn change_access<T: Send + 'static>(
        &self,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        self.change(Lock::Version, act)
    }

    /// One transaction: all of it is durable after `Ok`.
    fn change<T: Send + 'static>(
        &self,
        lock: Lock,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let lease = inner.reads.lease(inner.options.queue_deadline).await?;
            let begin = inner.target.begin(&inner.options);
            let changing = transact(&lease.session, &begin, lock, act);
            let changed = tokio::time::timeout(inner.options.transaction_timeout, changing).await;
            let changed =
                changed.map_err(|_| StoreError::Control("the database did not answer in time".into()))?;
            // Dropped on an error: the connection ends, and the transaction with it.
            let (value, version) = changed.map_err(|error| refused_or_failed(&error))?;
            lease.give_back();
            if let Some(version) = version {
                inner.version.fetch_max(version, Ordering::SeqCst);
            }
            Ok(value)
        })
    }
}

async fn transact<T>(
    db: &Session,
    begin: &str,
    lock: Lock,
    act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>>,
) -> Result<(T, Option<u64>), Error> {
    db.client.batch_execute(begin).await?;
    let version = match lock {
        Lock::None => None,
        Lock::Order => one(db, "SELECT version FROM sealog.store FOR UPDATE", &[], &[]).await?.and(None),
        Lock::Version => {
            let row =
                one(db, "UPDATE sealog.store SET version = version + 1 RETURNING version", &[], &[]).await?;
            row.map(|row| unsigned(row.get("version")))
        }
    };
    let value = act(db).await?;
    db.client.batch_execute("COMMIT").await?;
    Ok((value, version))
}

fn refused_or_failed(error: &Error) -> StoreError {
    match error.code() {
        Some(&SqlState::UNIQUE_VIOLATION) => {
            StoreError::Refused(format!("it exists already ({})", explain(error)))
        }
        Some(&SqlState::FOREIGN_KEY_VIOLATION) => {
            StoreError::Refused("it belongs to something that does not exist".into())
        }
        Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE) => StoreError::Refused("a text has a NUL in it".into()),
        _ => StoreError::Control(explain(error)),
    }
}

// ---- Tenants ------------------------------------------------------------------------------------------------------

const TENANTS: &str = "SELECT id, name, plan, contact_email, trial_ends_at_ms, billing_active, rate_limit_rps, created_at_ms FROM sealog.tenants";

async fn create_first(db: &Session, first: FirstRun) -> Result<bool, Error> {
    if !paged(db, TENANTS, "tenants", None, ListPage { after: None, limit: 1 }).await?.is_empty() {
        return Ok(false);
    }
    let FirstRun { tenant, project, keys, owner } = first;
    create_tenant(db, tenant).await?;
    let belongs = "the project is of this tenant, the keys are of this project";
    create_project(db, project).await?.expect(belongs);
    for key in keys {
        create_key(db, key).await?.expect(belongs);
    }
    create_user(db, owner).await?.ok().flatten().expect("the first user has an address that nobody has");
    Ok(true)
}

async fn create_tenant(db: &Session, new: NewTenant) -> Result<Tenant, Error> {
    let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new;
    let tenant = Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms };
    db.execute(
        "INSERT INTO sealog.tenants (id, name, plan, contact_email, trial_ends_at_ms, billing_active, created_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::INT8],
        &[
            &Id(id.0.0),
            &Text(&tenant.name),
            &Text(&tenant.plan),
            &tenant.contact_email.as_deref().map(Text),
            &tenant.billing.trial_ends_at_ms.map(signed),
            &tenant.billing.billing_active,
            &signed(created_at_ms),
        ],
    )
    .await?;
    Ok(tenant)
}

async fn update_tenant(db: &Session, id: TenantId, change: TenantChange) -> Result<Option<Tenant>, Error> {
    let Some(mut tenant) = tenant(db, id).await? else { return Ok(None) };
    change.apply(&mut tenant);
    db.execute(
        "UPDATE sealog.tenants SET name = $2, plan = $3, contact_email = $4, trial_ends_at_ms = $5, billing_active = $6, rate_limit_rps = $7
         WHERE id = $1",
        &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::INT8],
        &[
            &Id(id.0.0),
            &Text(&tenant.name),
            &Text(&tenant.plan),
            &tenant.contact_email.as_deref().map(Text),
            &tenant.billing.trial_ends_at_ms.map(signed),
            &tenant.billing.billing_active,
            &tenant.rate_limit_rps.map(i64::from),
        ],
    )
    .await?;
    Ok(Some(tenant))
}

async fn tenant(db: &Session, id: TenantId) -> Result<Option<Tenant>, Error> {
    let row = one(db, &format!("{TENANTS} WHERE id = $1"), &[Type::UUID], &[&Id(id.0.0)]).await?;
    Ok(row.as_ref().map(read_tenant))
}

fn read_tenant(row: &Row) -> Tenant {
    Tenant {
        id: TenantId(row.get::<_, Id>("id").uuid()),
        name: text(row, "name"),
        plan: text(row, "plan"),
        contact_email: optional_text(row, "contact_email"),
        billing: Billing {
            trial_ends_at_ms: optional_ms(row, "trial_ends_at_ms"),
            billing_active: row.get("billing_active"),
        },
        rate_limit_rps: rate(row),
        created_at_ms: ms(row, "created_at_ms"),
    }
}

// ---- Projects -----------------------------------------------------------------------------------------------------

const PROJECTS: &str = "SELECT id, tenant_id, name, rate_limit_rps, created_at_ms,
    (SELECT coalesce(bit_or(1::bigint << framework), 0) FROM sealog.project_frameworks
     WHERE project_id = projects.id AND disabled_at_ms IS NULL) AS frameworks,
    (SELECT coalesce(bit_or(1::bigint << framework), 0) FROM sealog.project_frameworks
     WHERE project_id = projects.id) AS frameworks_ever
    FROM sealog.projects";

async fn create_project(db: &Session, new: NewProject) -> Result<Option<Project>, Error> {
    if tenant(db, new.tenant_id).await?.is_none() {
        return Ok(None);
    }
    db.execute(
        "INSERT INTO sealog.projects (id, tenant_id, name, created_at_ms) VALUES ($1, $2, $3, $4)",
        &[Type::UUID, Type::UUID, Type::TEXT, Type::INT8],
        &[&Id(new.id.0.0), &Id(new.tenant_id.0.0), &Text(&new.name), &signed(new.created_at_ms)],
    )
    .await?;
    set_frameworks(db, new.id, FrameworkSet::NONE, new.frameworks, new.created_at_ms).await?;
    project(db, new.id).await
}

async fn update_project(
    db: &Session,
    id: ProjectId,
    change: ProjectChange,
) -> Result<Option<Project>, Error> {
    let Some(mut project) = project(db, id).await? else { return Ok(None) };
    let (before, now_ms) = (project.frameworks, change.now_ms);
    change.apply(&mut project);
    db.execute(
        "UPDATE sealog.projects SET name = $2, rate_limit_rps = $3 WHERE id = $1",
        &[Type::UUID, Type::TEXT, Type::INT8],
        &[&Id(id.0.0), &Text(&project.name), &project.rate_limit_rps.map(i64::from)],
    )
    .await?;
    set_frameworks(db, id, before, project.frameworks, now_ms).await?;
    Ok(Some(project))
}

/// Writes the history on: a new row for what was enabled, the end of its row for what was disabled.
async fn set_frameworks(
    db: &Session,
    id: ProjectId,
    before: FrameworkSet,
    after: FrameworkSet,
    now_ms: u64,
) -> Result<(), Error> {
    for framework in 0..32i32 {
        let index = usize::try_from(framework).expect("it counts up from 0");
        let sql = match (before.contains(index), after.contains(index)) {
            (false, true) => {
                "INSERT INTO sealog.project_frameworks (project_id, framework, enabled_at_ms) VALUES ($1, $2, $3)"
            }
            (true, false) => {
                "UPDATE sealog.project_frameworks SET disabled_at_ms = $3
                 WHERE project_id = $1 AND framework = $2 AND disabled_at_ms IS NULL"
            }
            (false, false) | (true, true) => continue,
        };
        let params: [Param<'_>; 3] = [&Id(id.0.0), &framework, &signed(now_ms)];
        db.execute(sql, &[Type::UUID, Type::INT4, Type::INT8], &params).await?;
    }
    Ok(())
}

async fn project(db: &Session, id: ProjectId) -> Result<Option<Project>, Error> {
    let row = one(db, &format!("{PROJECTS} WHERE id = $1"), &[Type::UUID], &[&Id(id.0.0)]).await?;
    Ok(row.as_ref().map(read_project))
}

fn read_project(row: &Row) -> Project {
    Project {
        id: ProjectId(row.get::<_, Id>("id").uuid()),
        tenant_id: TenantId(row.get::<_, Id>("tenant_id").uuid()),
        name: text(row, "name"),
        frameworks: frameworks(row, "frameworks"),
        frameworks_ever: frameworks(row, "frameworks_ever"),
        rate_limit_rps: rate(row),
        created_at_ms: ms(row, "created_at_ms"),
    }
}

fn frameworks(row: &Row, column: &str) -> FrameworkSet {
    FrameworkSet::from_bits(u32::try_from(row.get::<_, i64>(column)).expect("a CHECK keeps them below 32"))
}

// ---- Keys ---------------------------------------------------------------------------------------------------------

const KEYS: &str = "SELECT id, project_id, name, mode, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, created_at_ms FROM sealog.keys";

async fn create_key(db: &Session, new: NewKey) -> Result<Option<ApiKey>, Error> {
    if project(db, new.project_id).await?.is_none() {
        return Ok(None);
    }
    db.execute(
        "INSERT INTO sealog.keys (id, project_id, name, mode, digest, prefix, expires_at_ms, created_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        &[Type::UUID, Type::UUID, Type::TEXT, Type::TEXT, Type::BYTEA, Type::TEXT, Type::INT8, Type::INT8],
        &[
            &Id(new.id.0.0),
            &Id(new.project_id.0.0),
            &Text(&new.name),
            &new.mode.as_str(),
            &Digest32(new.digest.0),
            &Text(&new.prefix),
            &new.expires_at_ms.map(signed),
            &signed(new.created_at_ms),
        ],
    )
    .await?;
    key(db, new.id).await
}

async fn revoke_key(db: &Session, id: KeyId, now_ms: u64) -> Result<Option<ApiKey>, Error> {
    let sql = "UPDATE sealog.keys SET revoked_at_ms = $2 WHERE id = $1 AND revoked_at_ms IS NULL";
    db.execute(sql, &[Type::UUID, Type::INT8], &[&Id(id.0.0), &signed(now_ms)]).await?;
    key(db, id).await
}

async fn key(db: &Session, id: KeyId) -> Result<Option<ApiKey>, Error> {
    let row = one(db, &format!("{KEYS} WHERE id = $1"), &[Type::UUID], &[&Id(id.0.0)]).await?;
    Ok(row.as_ref().and_then(read_key))
}

async fn access(db: &Session, key_digest: Hash) -> Result<Option<Access>, Error> {
    let row =
        one(db, &format!("{KEYS} WHERE digest = $1"), &[Type::BYTEA], &[&Digest32(key_digest.0)]).await?;
    let Some(key) = row.as_ref().and_then(read_key) else { return Ok(None) };
    let Some(project) = project(db, key.project_id).await? else { return Ok(None) };
    let Some(tenant) = tenant(db, project.tenant_id).await? else { return Ok(None) };
    let actions = actions(db, tenant.id).await?;
    let sql = "SELECT coalesce(bit_or(1::bigint << framework), 0) AS frameworks
               FROM sealog.projects JOIN sealog.project_frameworks ON project_id = projects.id
               WHERE tenant_id = $1 AND disabled_at_ms IS NULL";
    let enabled = one(db, sql, &[Type::UUID], &[&Id(tenant.id.0.0)]).await?;
    let tenant_frameworks = enabled.map_or(FrameworkSet::NONE, |row| frameworks(&row, "frameworks"));
    Ok(Some(Access { key, digest: key_digest, project, tenant, actions, tenant_frameworks }))
}

async fn keys_used(db: &Session, mut used: Vec<(KeyId, u64)>) -> Result<(), Error> {
    // In one order on every node, so that two nodes never wait for each other.
    used.sort_unstable();
    let sql =
        "UPDATE sealog.keys SET last_used_at_ms = greatest(coalesce(last_used_at_ms, 0), $2) WHERE id = $1";
    for (id, used_at_ms) in used {
        db.execute(sql, &[Type::UUID, Type::INT8], &[&Id(id.0.0), &signed(used_at_ms)]).await?;
    }
    Ok(())
}

fn read_key(row: &Row) -> Option<ApiKey> {
    Some(ApiKey {
        id: KeyId(row.get::<_, Id>("id").uuid()),
        project_id: ProjectId(row.get::<_, Id>("project_id").uuid()),
        name: text(row, "name"),
        mode: rows::mode(row.get("mode"))?,
        prefix: text(row, "prefix"),
        expires_at_ms: optional_ms(row, "expires_at_ms"),
        revoked_at_ms: optional_ms(row, "revoked_at_ms"),
        last_used_at_ms: optional_ms(row, "last_used_at_ms"),
        created_at_ms: ms(row, "created_at_ms"),
    })
}

// ---- Actions ------------------------------------------------------------------------------------------------------

async fn create_action(
    db: &Session,
    tenant_id: TenantId,
    action: CustomAction,
) -> Result<Result<Option<CustomAction>, AccountError>, Error> {
    if tenant(db, tenant_id).await?.is_none() {
        return Ok(Ok(None));
    }
    let inserted = db
        .execute(
            "INSERT INTO sealog.actions (tenant_id, action, description, category, severity, required_fields, optional_fields)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, action) DO NOTHING",
            &[
                Type::UUID,
                Type::TEXT,
                Type::TEXT,
                Type::TEXT,
                Type::TEXT,
                Type::TEXT_ARRAY,
                Type::TEXT_ARRAY,
            ],
            &[
                &Id(tenant_id.0.0),
                &Text(&action.action),
                &action.description.as_deref().map(Text),
                &action.category.as_deref().map(Text),
                &action.severity.as_deref().map(Text),
                &texts(&action.required_fields),
                &texts(&action.optional_fields),
            ],
        )
        .await?;
    Ok(if inserted == 0 { Err(AccountError::AlreadyExists) } else { Ok(Some(action)) })
}

async fn actions(db: &Session, tenant_id: TenantId) -> Result<Vec<CustomAction>, Error> {
    let sql =
        "SELECT action, description, category, severity, required_fields, optional_fields FROM sealog.actions
               WHERE tenant_id = $1 ORDER BY action";
    let rows = db.query(sql, &[Type::UUID], &[&Id(tenant_id.0.0)]).await?;
    Ok(rows.iter().map(read_action).collect())
}

fn read_action(row: &Row) -> CustomAction {
    CustomAction {
        action: text(row, "action"),
        description: optional_text(row, "description"),
        category: optional_text(row, "category"),
        severity: optional_text(row, "severity"),
        required_fields: names(row, "required_fields"),
        optional_fields: names(row, "optional_fields"),
    }
}

// ---- Users and sessions -------------------------------------------------------------------------------------------

const USERS: &str = "SELECT id, tenant_id, email, password_hash, role, created_at_ms FROM sealog.users";

async fn create_user(db: &Session, new: NewUser) -> Result<Result<Option<User>, AccountError>, Error> {
    if tenant(db, new.tenant_id).await?.is_none() {
        return Ok(Ok(None));
    }
    let NewUser { id, tenant_id, email, password_hash, role, created_at_ms } = new;
    let inserted = db
        .execute(
            "INSERT INTO sealog.users (id, tenant_id, email, email_lower, password_hash, role, created_at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (email_lower) DO NOTHING",
            &[Type::UUID, Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            &[
                &Id(id.0.0),
                &Id(tenant_id.0.0),
                &Text(&email),
                &Text(&email.to_lowercase()),
                &password_hash,
                &role.as_str(),
                &signed(created_at_ms),
            ],
        )
        .await?;
    if inserted == 0 {
        return Ok(Err(AccountError::AlreadyExists));
    }
    Ok(Ok(Some(User { id, tenant_id, email, role, created_at_ms })))
}

fn read_user(row: &Row) -> Option<User> {
    let role: &str = row.get("role");
    Some(User {
        id: UserId(row.get::<_, Id>("id").uuid()),
        tenant_id: TenantId(row.get::<_, Id>("tenant_id").uuid()),
        email: text(row, "email"),
        role: Role::ALL.into_iter().find(|known| known.as_str() == role)?,
        created_at_ms: ms(row, "created_at_ms"),
    })
}

async fn create_session(db: &Session, session: UserSession) -> Result<(), Error> {
    let over = "DELETE FROM sealog.sessions WHERE expires_at_ms <= $1";
    db.execute(over, &[Type::INT8], &[&signed(session.created_at_ms)]).await?;
    insert_session(db, &session).await
}

async fn insert_session(db: &Session, session: &UserSession) -> Result<(), Error> {
    let sql = "INSERT INTO sealog.sessions (token_digest, user_id, created_at_ms, expires_at_ms) VALUES ($1, $2, $3, $4)";
    let params: [Param<'_>; 4] = [
        &Digest32(session.token_digest.0),
        &Id(session.user_id.0.0),
        &signed(session.created_at_ms),
        &signed(session.expires_at_ms),
    ];
    db.execute(sql, &[Type::BYTEA, Type::UUID, Type::INT8, Type::INT8], &params).await.map(drop)
}

async fn session(db: &Session, token_digest: Hash, now_ms: u64) -> Result<Option<UserSession>, Error> {
    let sql = "SELECT user_id, created_at_ms, expires_at_ms FROM sealog.sessions WHERE token_digest = $1 AND expires_at_ms > $2";
    let row = one(db, sql, &[Type::BYTEA, Type::INT8], &[&Digest32(token_digest.0), &signed(now_ms)]).await?;
    Ok(row.map(|row| UserSession {
        token_digest,
        user_id: UserId(row.get::<_, Id>("user_id").uuid()),
        created_at_ms: ms(&row, "created_at_ms"),
        expires_at_ms: ms(&row, "expires_at_ms"),
    }))
}

// ---- The outbox ---------------------------------------------------------------------------------------------------

async fn enqueue_mail(db: &Session, mail: NewMail) -> Result<bool, Error> {
    let month = i32::try_from(mail.key.month.0).unwrap_or(i32::MAX);
    let inserted = db
        .execute(
            "INSERT INTO sealog.mails (tenant_id, month, percent, recipient, subject, body, created_at_ms, due_at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (tenant_id, month, percent) DO NOTHING",
            &[Type::UUID, Type::INT4, Type::INT4, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            &[
                &Id(mail.key.tenant_id.0.0),
                &month,
                &i32::from(mail.key.percent),
                &Text(&mail.to),
                &Text(&mail.subject),
                &Text(&mail.body),
                &signed(mail.created_at_ms),
            ],
        )
        .await?;
    Ok(inserted > 0)
}

async fn due_mails(db: &Session, now_ms: u64, limit: usize) -> Result<Vec<Mail>, Error> {
    let sql = "SELECT id, recipient, subject, body, attempts FROM sealog.mails
               WHERE sent_at_ms IS NULL AND due_at_ms <= $1 ORDER BY id LIMIT $2";
    let rows = db.query(sql, &[Type::INT8, Type::INT8], &[&signed(now_ms), &saturated(limit)]).await?;
    let read = |row: &Row| Mail {
        id: row.get("id"),
        to: text(row, "recipient"),
        subject: text(row, "subject"),
        body: text(row, "body"),
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or(0),
    };
    Ok(rows.iter().map(read).collect())
}

/// Whoever comes second waits for the row, and then finds that it is not due.
async fn claim_mail(db: &Session, id: i64, now_ms: u64, until_ms: u64) -> Result<bool, Error> {
    let sql =
        "UPDATE sealog.mails SET due_at_ms = $3 WHERE id = $1 AND sent_at_ms IS NULL AND due_at_ms <= $2";
    let params: [Param<'_>; 3] = [&id, &signed(now_ms), &signed(until_ms)];
    Ok(db.execute(sql, &[Type::INT8, Type::INT8, Type::INT8], &params).await? > 0)
}

async fn mail_attempted(db: &Session, id: i64, outcome: MailOutcome) -> Result<(), Error> {
    match outcome {
        MailOutcome::Sent { now_ms } => {
            let sent = "UPDATE sealog.mails SET attempts = attempts + 1, sent_at_ms = $2 WHERE id = $1 AND sent_at_ms IS NULL";
            db.execute(sent, &[Type::INT8, Type::INT8], &[&id, &signed(now_ms)]).await?;
            let old =
                "UPDATE sealog.mails SET recipient = NULL, subject = NULL, body = NULL, last_failure = NULL
                       WHERE sent_at_ms IS NOT NULL AND body IS NOT NULL AND sent_at_ms <= $1";
            db.execute(old, &[Type::INT8], &[&signed(now_ms.saturating_sub(MAIL_KEPT_MS))]).await?;
        }
        MailOutcome::Failed { retry_at_ms, cause } => {
            let failed = "UPDATE sealog.mails SET attempts = attempts + 1, due_at_ms = $2, last_failure = $3
                          WHERE id = $1 AND sent_at_ms IS NULL";
            let params: [Param<'_>; 3] = [&id, &signed(retry_at_ms), &Text(&cause)];
            db.execute(failed, &[Type::INT8, Type::INT8, Type::TEXT], &params).await?;
        }
    }
    Ok(())
}

// ---- Rows and values ----------------------------------------------------------------------------------------------

async fn one(db: &Session, sql: &str, types: &[Type], params: &[Param<'_>]) -> Result<Option<Row>, Error> {
    Ok(db.query(sql, types, params).await?.into_iter().next())
}

/// A page of a list. Behind an id that is not in the list there is nothing.
async fn paged(
    db: &Session,
    select: &str,
    table: &str,
    scope: Option<(&str, Id)>,
    page: ListPage,
) -> Result<Vec<Row>, Error> {
    let (column, owner) = scope.unwrap_or(("$3::uuid", Id([0; 16])));
    let sql = format!(
        "{select} WHERE {column} = $3 AND number > CASE WHEN $1::uuid IS NULL THEN 0
             ELSE (SELECT number FROM sealog.{table} WHERE id = $1 AND {column} = $3) END
         ORDER BY number LIMIT $2"
    );
    let after = page.after.map(|id| Id(id.0));
    db.query(&sql, &[Type::UUID, Type::INT8, Type::UUID], &[&after, &saturated(page.limit), &owner]).await
}

fn saturated(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn ms(row: &Row, column: &str) -> u64 {
    unsigned(row.get(column))
}

fn optional_ms(row: &Row, column: &str) -> Option<u64> {
    row.get::<_, Option<i64>>(column).map(unsigned)
}

fn rate(row: &Row) -> Option<u32> {
    row.get::<_, Option<i64>>("rate_limit_rps").and_then(|rate| u32::try_from(rate).ok())
}

fn text(row: &Row, column: &str) -> String {
    row.get::<_, Kept>(column).0
}

fn optional_text(row: &Row, column: &str) -> Option<String> {
    row.get::<_, Option<Kept>>(column).map(|kept| kept.0)
}

fn texts(values: &[String]) -> Vec<Text<'_>> {
    values.iter().map(|value| Text(value)).collect()
}

fn names(row: &Row, column: &str) -> Vec<String> {
    row.get::<_, Vec<Kept>>(column).into_iter().map(|kept| kept.0).collect()
}
