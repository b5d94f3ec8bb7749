//! Monitor tokens: each reads proofs of one live chain, and neither reads nor writes events. In a table of
//! their own: no look-up of a key finds one.

use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId};
use sealog_core::key::KeyState;
use sealog_store::pool::Payer;

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, ListPage, Lock, Room, Row, Table, Value, all, count, one, params, table};
use crate::person::PersonId;
use crate::record::{NewRecord, Records};
use crate::tenant::Tenant;
use crate::{closed, project, system_project, tenant};

/// Most tokens of a chain that work at a time.
pub const WORKING_MAX: usize = 20;

/// What a request with a token asks for; versions are those of [`crate::KeyAccess`].
impl Control {
    /// Everything that a request with this token may go by, revoked and expired tokens included.
    pub fn monitor_access(&self, token_digest: Hash) -> Answer<'_, Option<MonitorAccess>> {
        self.read_for(Payer::Stranger, move |db| access(db, token_digest))
    }

    /// When tokens were last used. Told in bulk, as uses of keys are.
    pub fn monitor_tokens_used(&self, mut used: Vec<(MonitorTokenId, u64)>) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            // In one order on every node, so that two nodes never wait for each other.
            used.sort_unstable();
            let sql = "UPDATE {monitor_tokens} SET last_used_at_ms = ?2
                       WHERE id = ?1 AND (last_used_at_ms IS NULL OR last_used_at_ms < ?2)";
            used.iter().try_for_each(|(id, at_ms)| db.execute(sql, params![*id, *at_ms]).map(drop))
        })
    }

    /// Nothing when the tenant has no such project, the reserved one included, or was closed.
    pub fn create_monitor_token(
        &self,
        new: NewMonitorToken,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<MonitorTokenCreated>> {
        let room = self.tenant_room();
        // In one order with all changes, so that two nodes never make one token too many together.
        self.change_of_tenant(Lock::Version, move |db| {
            let tenant_id = new.tenant_id;
            let Some(value) = create(db, new)? else { return Ok(None) };
            room.check(db, tenant_id)?;
            let is_made = matches!(value, MonitorTokenCreated::Done(_));
            let records = if is_made { records } else { Vec::new() };
            Ok(Some(Changed { tenant_id, value, records }))
        })
    }

    /// Revoking twice is the same as once. Nothing when there is no such token.
    pub fn revoke_monitor_token(
        &self,
        id: MonitorTokenId,
        now_ms: u64,
        records: Records<MonitorToken>,
    ) -> Answer<'_, Option<MonitorToken>> {
        self.change_of_tenant_in(Room::Reserve, Lock::Version, move |db| {
            let Some(before) = find(db, id)? else { return Ok(None) };
            let sql =
                "UPDATE {monitor_tokens} SET revoked_at_ms = ?2 WHERE id = ?1 AND revoked_at_ms IS NULL";
            db.execute(sql, params![id, now_ms])?;
            let revoked_at_ms = before.revoked_at_ms.or(Some(now_ms));
            let after = MonitorToken { revoked_at_ms, ..before.clone() };
            let records = records.tell(Some(&before), &after);
            Ok(Some(Changed { tenant_id: after.tenant_id, value: after, records }))
        })
    }

    pub fn monitor_token(&self, id: MonitorTokenId) -> Answer<'_, Option<MonitorToken>> {
        self.read(move |db| find(db, id))
    }

    /// In the order of creation.
    pub fn monitor_tokens(&self, project_id: ProjectId, page: ListPage) -> Answer<'_, Vec<MonitorToken>> {
        self.read(move |db| TOKENS.page(db, Some(("project_id", project_id.into())), page, read))
    }

    /// Those of a tenant that were not revoked one by one, at most so many.
    pub fn monitor_tokens_not_revoked(
        &self,
        tenant_id: TenantId,
        limit: usize,
    ) -> Answer<'_, Vec<MonitorTokenId>> {
        self.read(move |db| {
            let sql = "SELECT id FROM {monitor_tokens} WHERE tenant_id = ?1 AND revoked_at_ms IS NULL
                       ORDER BY +number LIMIT ?2";
            all(db, sql, params![tenant_id, limit], |row| row.get("id"))
        })
    }

    /// All of a tenant, each with the name of its project, which that of the system chain has not. The newest
    /// comes first, and a page goes on to older ones; behind a token of another tenant there is nothing.
    pub fn monitor_tokens_of_tenant(
        &self,
        tenant_id: TenantId,
        page: ListPage,
    ) -> Answer<'_, Vec<(MonitorToken, Option<String>)>> {
        self.read(move |db| {
            let mut params = vec![Value::from(page.limit), tenant_id.into()];
            let mut sql = format!("{WITH_PROJECT} WHERE t.tenant_id = ?2");
            if let Some(after) = page.after {
                params.push(after.into());
                sql.push_str(
                    " AND t.number < (SELECT number FROM {monitor_tokens} WHERE id = ?3 AND tenant_id = ?2)",
                );
            }
            // The plus keeps a database from walking back through the tokens of all tenants.
            sql.push_str(" ORDER BY +t.number DESC LIMIT ?1");
            all(db, &sql, &params, |row| Ok((read(row)?, row.get("project_name")?)))
        })
    }
}

crate::db::id!(MonitorTokenId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMonitorToken {
    pub id: MonitorTokenId,
    pub tenant_id: TenantId,
    /// A project of the tenant, or the one that is reserved for its system chain.
    pub project_id: ProjectId,
    pub name: String,
    pub digest: Hash,
    /// The first characters, for display.
    pub prefix: String,
    pub expires_at_ms: Option<u64>,
    pub created_at_ms: u64,
    /// No person for one that the operator made.
    pub created_by: Option<PersonId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorToken {
    pub id: MonitorTokenId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub name: String,
    pub prefix: String,
    pub expires_at_ms: Option<u64>,
    pub revoked_at_ms: Option<u64>,
    pub last_used_at_ms: Option<u64>,
    pub created_at_ms: u64,
    pub created_by: Option<PersonId>,
}

impl MonitorToken {
    pub fn state(&self) -> KeyState {
        KeyState { revoked: self.revoked_at_ms.is_some(), expires_at_ms: self.expires_at_ms }
    }

    /// The one chain that the token is for.
    pub fn chain(&self) -> ChainId {
        ChainId { tenant_id: self.tenant_id, project_id: self.project_id, mode: Mode::Live }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorTokenCreated {
    Done(MonitorToken),
    /// There is one with this id.
    Exists,
    /// A token of the chain that works has the name.
    NameTaken,
    /// As many as may work at a time do.
    TooMany,
}

/// A token with everything around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorAccess {
    pub token: MonitorToken,
    pub tenant: Tenant,
    /// Of the project, where it has a rate of its own.
    pub project_rate_rps: Option<u32>,
}

const TOKENS: Table = table!(
    "monitor_tokens",
    "id",
    "id, tenant_id, project_id, name, digest, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, \
     created_at_ms, created_by"
);

const WITH_PROJECT: &str = "SELECT t.id AS id, t.tenant_id AS tenant_id, t.project_id AS project_id, t.name AS name, t.prefix AS prefix,
        t.expires_at_ms AS expires_at_ms, t.revoked_at_ms AS revoked_at_ms, t.last_used_at_ms AS last_used_at_ms,
        t.created_at_ms AS created_at_ms, t.created_by AS created_by, p.name AS project_name
    FROM {monitor_tokens} AS t LEFT JOIN {projects} AS p ON p.id = t.project_id";

fn find(db: &mut dyn Db, id: MonitorTokenId) -> Result<Option<MonitorToken>, DbError> {
    one(db, &format!("{} WHERE id = ?1", TOKENS.select), params![id], read)
}

fn create(db: &mut dyn Db, new: NewMonitorToken) -> Result<Option<MonitorTokenCreated>, DbError> {
    let is_of_tenant = match project::find(db, new.project_id)? {
        Some(project) => project.tenant_id == new.tenant_id,
        None => system_project::find(db, new.tenant_id)? == Some(new.project_id),
    };
    if !is_of_tenant || closed::is_closed(db, new.tenant_id)? {
        return Ok(None);
    }
    if find(db, new.id)?.is_some() {
        return Ok(Some(MonitorTokenCreated::Exists));
    }
    let works = "project_id = ?1 AND revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > ?2)";
    let sql = format!("SELECT count(*) AS count FROM {{monitor_tokens}} WHERE {works}");
    if count(db, &sql, params![new.project_id, new.created_at_ms])? >= WORKING_MAX as u64 {
        return Ok(Some(MonitorTokenCreated::TooMany));
    }
    let sql = format!("SELECT count(*) AS count FROM {{monitor_tokens}} WHERE {works} AND name = ?3");
    if count(db, &sql, params![new.project_id, new.created_at_ms, &new.name])? > 0 {
        return Ok(Some(MonitorTokenCreated::NameTaken));
    }
    let NewMonitorToken { id, tenant_id, project_id, name, digest, prefix, .. } = new;
    let token = MonitorToken {
        id,
        tenant_id,
        project_id,
        name,
        prefix,
        expires_at_ms: new.expires_at_ms,
        revoked_at_ms: None,
        last_used_at_ms: None,
        created_at_ms: new.created_at_ms,
        created_by: new.created_by,
    };
    insert(db, &token, digest)?;
    Ok(Some(MonitorTokenCreated::Done(token)))
}

fn insert(db: &mut dyn Db, token: &MonitorToken, digest: Hash) -> Result<(), DbError> {
    let params = params![
        token.id,
        token.tenant_id,
        token.project_id,
        &token.name,
        digest,
        &token.prefix,
        token.expires_at_ms,
        token.revoked_at_ms,
        token.last_used_at_ms,
        token.created_at_ms,
        token.created_by,
    ];
    TOKENS.insert(db, params, "").map(drop)
}

fn access(db: &mut dyn Db, digest: Hash) -> Result<Option<MonitorAccess>, DbError> {
    let sql = format!("{} WHERE digest = ?1", TOKENS.select);
    let Some(mut token) = one(db, &sql, params![digest], read)? else { return Ok(None) };
    let Some(tenant) = tenant::find(db, token.tenant_id)? else { return Ok(None) };
    // From the moment of closing on, however far the revoking of its tokens has got.
    token.revoked_at_ms = token.revoked_at_ms.or(closed::at_ms(db, tenant.id)?);
    let project = project::find(db, token.project_id)?;
    Ok(Some(MonitorAccess {
        token,
        tenant,
        project_rate_rps: project.and_then(|project| project.rate_limit_rps),
    }))
}

fn read(row: &Row) -> Result<MonitorToken, DbError> {
    Ok(MonitorToken {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        project_id: row.get("project_id")?,
        name: row.get("name")?,
        prefix: row.get("prefix")?,
        expires_at_ms: row.get("expires_at_ms")?,
        revoked_at_ms: row.get("revoked_at_ms")?,
        last_used_at_ms: row.get("last_used_at_ms")?,
        created_at_ms: row.get("created_at_ms")?,
        created_by: row.get("created_by")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(MonitorToken, Hash)>, DbError> {
    TOKENS.all(db, |row| Ok((read(row)?, row.get("digest")?)))
}

pub(crate) fn import(db: &mut dyn Db, tokens: &[(MonitorToken, Hash)]) -> Result<(), DbError> {
    tokens.iter().try_for_each(|(token, digest)| insert(db, token, *digest))
}
