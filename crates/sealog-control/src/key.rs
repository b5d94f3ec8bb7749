//! API keys, and what a request with one may go by.

use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, Mode, ProjectId, TenantId};
use sealog_core::key::KeyState;
use sealog_store::StoreError;
use sealog_store::pool::Payer;

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, ListPage, Lock, Room, Row, Table, Value, all, one, params, readable, table};
use crate::error::ChangeError;
use crate::monitor_token::{MonitorAccess, MonitorTokenId};
use crate::person::PersonId;
use crate::project::Project;
use crate::record::{NewRecord, Records};
use crate::tenant::Tenant;
use crate::{action, closed, project, tenant};

/// What every request asks for.
pub trait KeyAccess: Send + Sync {
    /// Everything that a request with this key may go by, revoked and expired keys included.
    fn access(&self, key_digest: Hash) -> Answer<'_, Option<Access>>;
    /// When keys were last used, and how often. Told in bulk, once a minute; a crash loses at most that.
    fn keys_used(&self, used: Vec<KeyUse>) -> Answer<'_, ()>;
    /// Everything that a request with this monitor token may go by, revoked and expired tokens included.
    fn monitor_access(&self, token_digest: Hash) -> Answer<'_, Option<MonitorAccess>>;
    /// When monitor tokens were last used. Told in bulk, as uses of keys are.
    fn monitor_tokens_used(&self, used: Vec<(MonitorTokenId, u64)>) -> Answer<'_, ()>;
    /// Grows with every change of tenants, projects, keys, actions and settings. An [`Access`] that was asked
    /// for after this was read is as new as this for as long as [`KeyAccess::version_of`] its tenant is not
    /// above it.
    fn version(&self) -> u64;
    /// The version at which something of this tenant last changed.
    fn version_of(&self, tenant_id: TenantId) -> u64;
    /// Whether what was heard of changes is young enough to go by what is remembered of keys.
    fn hears_of_changes(&self) -> bool;
    /// Whether keys can be looked up, as far as the last read tells.
    fn ready(&self) -> Result<(), StoreError>;
}

/// For so long a server that hears of no changes goes by what it knows of keys: a key that is revoked
/// elsewhere meanwhile works there until then (ADR 42).
const UNHEARD_MS_MAX: u64 = 60_000;

impl KeyAccess for Control {
    fn access(&self, key_digest: Hash) -> Answer<'_, Option<Access>> {
        self.read_for(Payer::Stranger, move |db| access(db, key_digest))
    }

    fn keys_used(&self, mut used: Vec<KeyUse>) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            // In one order on every node, so that two nodes never wait for each other.
            used.sort_unstable();
            used.iter().try_for_each(|used| note_use(db, used))
        })
    }

    fn monitor_access(&self, token_digest: Hash) -> Answer<'_, Option<MonitorAccess>> {
        Control::monitor_access(self, token_digest)
    }

    fn monitor_tokens_used(&self, used: Vec<(MonitorTokenId, u64)>) -> Answer<'_, ()> {
        Control::monitor_tokens_used(self, used)
    }

    fn version(&self) -> u64 {
        self.versions.latest()
    }

    fn version_of(&self, tenant_id: TenantId) -> u64 {
        self.versions.of(tenant_id)
    }

    fn hears_of_changes(&self) -> bool {
        self.database.silent_ms() <= UNHEARD_MS_MAX
    }

    fn ready(&self) -> Result<(), StoreError> {
        if !self.hears_of_changes() {
            let cause = format!("nothing was heard of it for {} s", self.database.silent_ms() / 1000);
            return Err(StoreError::ControlUnavailable(cause));
        }
        self.unreadable().map_or(Ok(()), |cause| Err(StoreError::Control(cause)))
    }
}

impl Control {
    /// Nothing when there is no such project, or its tenant was closed.
    pub fn create_key(&self, new: NewKey, records: Vec<NewRecord>) -> Answer<'_, Option<ApiKey>> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            let made = create(db, new)?;
            if let Some((tenant_id, _)) = &made {
                room.check(db, *tenant_id)?;
            }
            Ok(made.map(|(tenant_id, key)| Changed { tenant_id, value: key, records }))
        })
    }

    /// As [`Control::create_key`], unless a key of the project that works has the name, or there is one with
    /// this id: `Err(AlreadyExists)`.
    pub fn create_named_key(
        &self,
        new: NewKey,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<ApiKey>, ChangeError> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            let sql = format!("{} WHERE project_id = ?1 AND name = ?2", KEYS.select);
            let same_name = all(db, &sql, params![new.project_id, &new.name], read)?;
            if same_name.iter().any(|key| key.state().check(new.created_at_ms).is_ok()) {
                return Err(DbError::AlreadyExists);
            }
            is_free(db, new.id)?;
            let made = create(db, new)?;
            if let Some((tenant_id, _)) = &made {
                room.check(db, *tenant_id)?;
            }
            Ok(made.map(|(tenant_id, key)| Changed { tenant_id, value: key, records }))
        })
    }

    /// Revoking twice is the same as once. Nothing when there is no such key.
    pub fn revoke_key(&self, id: KeyId, now_ms: u64, records: Records<ApiKey>) -> Answer<'_, Option<ApiKey>> {
        self.change_of_tenant_in(Room::Reserve, Lock::Version, move |db| {
            let Some((tenant_id, before, after)) = revoke(db, id, now_ms)? else { return Ok(None) };
            let records = records.tell(Some(&before), &after);
            Ok(Some(Changed { tenant_id, value: after, records }))
        })
    }

    /// A new key of the same project and mode in place of one that works, which works until its end in any
    /// case, and no longer than `old_ends_at_ms`. Of the two the new one is returned; `records` are told of
    /// the old one as it is now, and of the new one. Nothing when there is no such key, it does not work any
    /// more, or another is in its place already. `Err(AlreadyExists)` if there is a key with the new id.
    pub fn roll_key(
        &self,
        roll: KeyRoll,
        records: Records<ApiKey>,
    ) -> Answer<'_, Option<ApiKey>, ChangeError> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            let Some((tenant_id, old, new)) = self::roll(db, roll)? else { return Ok(None) };
            room.check(db, tenant_id)?;
            let records = records.tell(Some(&old), &new);
            Ok(Some(Changed { tenant_id, value: new, records }))
        })
    }

    pub fn keys(&self, project_id: ProjectId, page: ListPage) -> Answer<'_, Vec<ApiKey>> {
        self.read(move |db| KEYS.page(db, Some(("project_id", project_id.into())), page, read))
    }

    /// Keys of a tenant that were not revoked one by one, at most so many.
    pub fn keys_not_revoked(&self, tenant_id: TenantId, limit: usize) -> Answer<'_, Vec<KeyId>> {
        self.read(move |db| {
            let sql = format!(
                "{OF_TENANT} WHERE p.tenant_id = ?1 AND k.revoked_at_ms IS NULL ORDER BY k.number LIMIT ?2"
            );
            all(db, &sql, params![tenant_id, limit], |row| row.get("id"))
        })
    }

    /// A key, with the tenant that it belongs to.
    pub fn key(&self, id: KeyId) -> Answer<'_, Option<(TenantId, ApiKey)>> {
        self.read(move |db| {
            let sql = format!("{OF_TENANT} WHERE k.id = ?1");
            one(db, &sql, params![id], |row| Ok((row.get("tenant_id")?, read(row)?)))
        })
    }

    /// The keys of all projects of a tenant, or of those among them that are named, each with the name of its
    /// project. The newest comes first, and a page goes on to older ones.
    pub fn keys_of_tenant(
        &self,
        tenant_id: TenantId,
        projects: Option<Vec<ProjectId>>,
        page: ListPage,
    ) -> Answer<'_, Vec<(ApiKey, String)>> {
        self.read(move |db| newest(db, tenant_id, projects.as_deref(), page))
    }

    /// Requests of the last 24 hours with each of these keys, to the hour; a key without any is left out.
    pub fn key_requests(&self, keys: Vec<KeyId>, now_ms: u64) -> Answer<'_, Vec<(KeyId, u64)>> {
        self.read(move |db| {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            let places: Vec<String> = (0..keys.len()).map(|at| format!("?{}", at + 2)).collect();
            let sql = format!(
                "SELECT key_id, CAST(sum(requests) AS bigint) AS requests FROM {{key_requests}}
                 WHERE hour > ?1 AND key_id IN ({}) GROUP BY key_id",
                places.join(", ")
            );
            let oldest = Value::from((now_ms / HOUR_MS).saturating_sub(HOURS_SHOWN));
            let params: Vec<Value> = [oldest].into_iter().chain(keys.into_iter().map(Value::from)).collect();
            all(db, &sql, &params, |row| Ok((KeyId(row.get("key_id")?), row.get("requests")?)))
        })
    }

    /// Keys of a project that work, and whose end comes after `now_ms` and not after `until_ms`: the next to
    /// end first.
    pub fn keys_expiring(
        &self,
        project_id: ProjectId,
        now_ms: u64,
        until_ms: u64,
        limit: usize,
    ) -> Answer<'_, Vec<ApiKey>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE project_id = ?1 AND revoked_at_ms IS NULL AND expires_at_ms > ?2 AND expires_at_ms <= ?3
                 ORDER BY expires_at_ms, number LIMIT ?4",
                KEYS.select
            );
            all(db, &sql, params![project_id, now_ms, until_ms, limit], read)
        })
    }
}

crate::db::id!(KeyId);

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
    /// Nobody for one that the operator made.
    pub created_by: Option<PersonId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRoll {
    pub old: KeyId,
    pub new: NewKey,
    /// At `now_ms` or before, the old key is revoked.
    pub old_ends_at_ms: u64,
    pub now_ms: u64,
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
    pub created_by: Option<PersonId>,
    /// The key that is to take its place.
    pub replaced_by: Option<KeyId>,
}

/// Uses of a key since they were last told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyUse {
    pub key_id: KeyId,
    /// The last.
    pub used_at_ms: u64,
    pub requests: u64,
}

impl KeyUse {
    pub fn once(key_id: KeyId, used_at_ms: u64) -> KeyUse {
        KeyUse { key_id, used_at_ms, requests: 1 }
    }
}

const HOUR_MS: u64 = 60 * 60 * 1000;
const HOURS_SHOWN: u64 = 24;

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

const KEYS: Table = table!(
    "keys",
    "id",
    "id, project_id, name, mode, digest, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, \
     created_at_ms, created_by, replaced_by"
);

/// Keys with the projects that they are for.
const OF_TENANT: &str = "SELECT k.id AS id, k.project_id AS project_id, k.name AS name, k.mode AS mode, k.prefix AS prefix,
        k.expires_at_ms AS expires_at_ms, k.revoked_at_ms AS revoked_at_ms, k.last_used_at_ms AS last_used_at_ms,
        k.created_at_ms AS created_at_ms, k.created_by AS created_by, k.replaced_by AS replaced_by, p.tenant_id AS tenant_id, p.name AS project_name
    FROM {keys} AS k JOIN {projects} AS p ON p.id = k.project_id";

/// A page of a tenant's keys, the newest first. Behind a key that is not the tenant's there is nothing.
fn newest(
    db: &mut dyn Db,
    tenant_id: TenantId,
    projects: Option<&[ProjectId]>,
    page: ListPage,
) -> Result<Vec<(ApiKey, String)>, DbError> {
    let mut params = vec![Value::from(page.limit), tenant_id.into()];
    let mut sql = format!("{OF_TENANT} WHERE p.tenant_id = ?2");
    if let Some(projects) = projects {
        if projects.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<String> = (0..projects.len()).map(|at| format!("?{}", at + 3)).collect();
        params.extend(projects.iter().map(|id| Value::from(*id)));
        sql.push_str(&format!(" AND p.id IN ({})", places.join(", ")));
    }
    if let Some(after) = page.after {
        params.push(after.into());
        let of_tenant = "SELECT id FROM {projects} WHERE tenant_id = ?2";
        let from = format!(
            "SELECT number FROM {{keys}} WHERE id = ?{} AND project_id IN ({of_tenant})",
            params.len()
        );
        sql.push_str(&format!(" AND k.number < ({from})"));
    }
    // The plus keeps a database from walking back through the keys of everybody to find those of one tenant.
    sql.push_str(" ORDER BY +k.number DESC LIMIT ?1");
    all(db, &sql, &params, |row| Ok((read(row)?, row.get("project_name")?)))
}

/// Those that nobody has revoked, in the order of their ends: see [`crate::ending`].
pub(crate) fn ending(db: &mut dyn Db, params: &[Value]) -> Result<Vec<(TenantId, ApiKey, String)>, DbError> {
    let sql = format!(
        "{OF_TENANT} WHERE k.expires_at_ms <= ?3 AND (k.expires_at_ms, k.id) > (?1, ?2) AND k.revoked_at_ms IS NULL
         ORDER BY k.expires_at_ms, k.id LIMIT ?4"
    );
    readable(db, &sql, params, |row| Ok((row.get("tenant_id")?, read(row)?, row.get("project_name")?)))
}

/// With its tenant.
pub(crate) fn create(db: &mut dyn Db, new: NewKey) -> Result<Option<(TenantId, ApiKey)>, DbError> {
    let Some(project) = project::find(db, new.project_id)? else { return Ok(None) };
    if closed::is_closed(db, project.tenant_id)? {
        return Ok(None);
    }
    let NewKey { id, project_id, name, mode, digest, prefix, expires_at_ms, created_at_ms, created_by } = new;
    let key = ApiKey {
        id,
        project_id,
        name,
        mode,
        prefix,
        expires_at_ms,
        revoked_at_ms: None,
        last_used_at_ms: None,
        created_at_ms,
        created_by,
        replaced_by: None,
    };
    insert(db, &key, digest)?;
    Ok(Some((project.tenant_id, key)))
}

fn insert(db: &mut dyn Db, key: &ApiKey, digest: Hash) -> Result<(), DbError> {
    let params = params![
        key.id,
        key.project_id,
        &key.name,
        key.mode.as_str(),
        digest,
        &key.prefix,
        key.expires_at_ms,
        key.revoked_at_ms,
        key.last_used_at_ms,
        key.created_at_ms,
        key.created_by,
        key.replaced_by,
    ];
    KEYS.insert(db, params, "").map(drop)
}

fn is_free(db: &mut dyn Db, id: KeyId) -> Result<(), DbError> {
    let sql = format!("{} WHERE id = ?1", KEYS.select);
    if one(db, &sql, params![id], read)?.is_some() { Err(DbError::AlreadyExists) } else { Ok(()) }
}

fn note_use(db: &mut dyn Db, used: &KeyUse) -> Result<(), DbError> {
    let sql = "UPDATE {keys} SET last_used_at_ms = ?2
               WHERE id = ?1 AND (last_used_at_ms IS NULL OR last_used_at_ms < ?2)";
    db.execute(sql, params![used.key_id, used.used_at_ms])?;
    let hour = used.used_at_ms / HOUR_MS;
    let sql =
        "INSERT INTO {key_requests} AS r (key_id, hour, requests) SELECT id, ?2, ?3 FROM {keys} WHERE id = ?1
               ON CONFLICT (key_id, hour) DO UPDATE SET requests = r.requests + excluded.requests";
    db.execute(sql, params![used.key_id, hour, used.requests])?;
    let sql = "DELETE FROM {key_requests} WHERE key_id = ?1 AND hour <= ?2";
    db.execute(sql, params![used.key_id, hour.saturating_sub(HOURS_SHOWN)]).map(drop)
}

/// With its tenant, before and after.
fn revoke(db: &mut dyn Db, id: KeyId, now_ms: u64) -> Result<Option<(TenantId, ApiKey, ApiKey)>, DbError> {
    let Some(before) = one(db, &format!("{} WHERE id = ?1", KEYS.select), params![id], read)? else {
        return Ok(None);
    };
    let sql = "UPDATE {keys} SET revoked_at_ms = ?2 WHERE id = ?1 AND revoked_at_ms IS NULL";
    db.execute(sql, params![id, now_ms])?;
    let key = ApiKey { revoked_at_ms: before.revoked_at_ms.or(Some(now_ms)), ..before.clone() };
    Ok(project::find(db, key.project_id)?.map(|project| (project.tenant_id, before, key)))
}

/// With their tenant, the old key and the new one.
fn roll(db: &mut dyn Db, roll: KeyRoll) -> Result<Option<(TenantId, ApiKey, ApiKey)>, DbError> {
    let KeyRoll { old: id, new, old_ends_at_ms, now_ms } = roll;
    is_free(db, new.id)?;
    let old = one(db, &format!("{} WHERE id = ?1", KEYS.select), params![id], read)?;
    let is_same = |old: &ApiKey| (old.project_id, old.mode) == (new.project_id, new.mode);
    let may_roll = |old: &ApiKey| is_same(old) && old.replaced_by.is_none();
    let Some(mut old) = old.filter(|old| may_roll(old) && old.state().check(now_ms).is_ok()) else {
        return Ok(None);
    };
    if old_ends_at_ms <= now_ms {
        old.revoked_at_ms = Some(now_ms);
    } else {
        old.expires_at_ms = Some(old.expires_at_ms.map_or(old_ends_at_ms, |end| end.min(old_ends_at_ms)));
    }
    old.replaced_by = Some(new.id);
    let sql = "UPDATE {keys} SET expires_at_ms = ?2, revoked_at_ms = ?3, replaced_by = ?4 WHERE id = ?1";
    db.execute(sql, params![id, old.expires_at_ms, old.revoked_at_ms, old.replaced_by])?;
    Ok(create(db, new)?.map(|(tenant_id, new)| (tenant_id, old, new)))
}

fn access(db: &mut dyn Db, digest: Hash) -> Result<Option<Access>, DbError> {
    let sql = format!("{} WHERE digest = ?1", KEYS.select);
    let Some(mut key) = one(db, &sql, params![digest], read)? else { return Ok(None) };
    let Some(project) = project::find(db, key.project_id)? else { return Ok(None) };
    let Some(tenant) = tenant::find(db, project.tenant_id)? else { return Ok(None) };
    // From the moment of closing on, however far the revoking of its keys has got.
    key.revoked_at_ms = key.revoked_at_ms.or(closed::at_ms(db, tenant.id)?);
    let actions = action::of_tenant(db, tenant.id)?;
    let tenant_frameworks = project::frameworks_of_tenant(db, tenant.id)?;
    Ok(Some(Access { key, digest, project, tenant, actions, tenant_frameworks }))
}

fn read(row: &Row) -> Result<ApiKey, DbError> {
    Ok(ApiKey {
        id: KeyId(row.get("id")?),
        project_id: row.get("project_id")?,
        name: row.get("name")?,
        mode: row.word("mode", &Mode::ALL, Mode::as_str)?,
        prefix: row.get("prefix")?,
        expires_at_ms: row.get("expires_at_ms")?,
        revoked_at_ms: row.get("revoked_at_ms")?,
        last_used_at_ms: row.get("last_used_at_ms")?,
        created_at_ms: row.get("created_at_ms")?,
        created_by: row.get("created_by")?,
        replaced_by: row.get("replaced_by")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(ApiKey, Hash)>, DbError> {
    KEYS.all(db, |row| Ok((read(row)?, row.get("digest")?)))
}

pub(crate) fn import(db: &mut dyn Db, keys: &[(ApiKey, Hash)]) -> Result<(), DbError> {
    keys.iter().try_for_each(|(key, digest)| insert(db, key, *digest))
}
