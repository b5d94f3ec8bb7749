//! The project that is reserved for a tenant's system chain. It is no row of `projects`: it has no name, no
//! keys and no frameworks, no list shows it, and nothing can change it.

use std::sync::Arc;

use sealog_core::id::{ProjectId, TenantId};
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, all, one, params};
use crate::tenant;

impl Control {
    /// The tenant's reserved project, which is `new` if there was none. `new` is chosen by the caller from
    /// randomness ([`ProjectId::system_from_random`]), and any other kind of id is refused. Of several that
    /// ask at once, on any node, all get the same answer. Nothing when there is no such tenant.
    pub fn system_project(&self, tenant_id: TenantId, new: ProjectId) -> Answer<'_, Option<ProjectId>> {
        let database = Arc::clone(&self.database);
        self.run(Payer::Operator, move || {
            // It is made once and asked for before every record.
            match database.read(|db| find(db, tenant_id))? {
                Some(project_id) => Ok(Some(project_id)),
                None => database.change(Lock::None, |db, _| create(db, tenant_id, new)),
            }
        })
    }

    /// The tenant's reserved project, if it has one by now.
    pub fn known_system_project(&self, tenant_id: TenantId) -> Answer<'_, Option<ProjectId>> {
        self.read(move |db| find(db, tenant_id))
    }

    /// Whose system project it is, if it is one.
    pub fn tenant_of_system_project(&self, project_id: ProjectId) -> Answer<'_, Option<TenantId>> {
        self.read(move |db| {
            let sql = "SELECT tenant_id FROM {system_projects} WHERE project_id = ?1";
            one(db, sql, params![project_id], |row| row.get("tenant_id"))
        })
    }
}

pub(crate) fn find(db: &mut dyn Db, tenant_id: TenantId) -> Result<Option<ProjectId>, DbError> {
    let sql = "SELECT project_id FROM {system_projects} WHERE tenant_id = ?1";
    one(db, sql, params![tenant_id], |row| row.get("project_id"))
}

fn create(db: &mut dyn Db, tenant_id: TenantId, new: ProjectId) -> Result<Option<ProjectId>, DbError> {
    if tenant::find(db, tenant_id)?.is_none() {
        return Ok(None);
    }
    // Whoever comes second waits here for the first to commit, inserts nothing and reads the first one's id.
    insert(db, tenant_id, new, " ON CONFLICT (tenant_id) DO NOTHING")?;
    find(db, tenant_id)
}

fn insert(
    db: &mut dyn Db,
    tenant_id: TenantId,
    project_id: ProjectId,
    conflict: &str,
) -> Result<(), DbError> {
    // The store tells the chain by this alone: under another id its events would count as usage.
    if !project_id.is_system() {
        return Err(DbError::Refused(format!("{project_id} is no id of a system project")));
    }
    let sql = format!("INSERT INTO {{system_projects}} (tenant_id, project_id) VALUES (?1, ?2){conflict}");
    db.execute(&sql, params![tenant_id, project_id]).map(drop)
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(TenantId, ProjectId)>, DbError> {
    let sql = "SELECT tenant_id, project_id FROM {system_projects} ORDER BY tenant_id";
    all(db, sql, &[], |row| Ok((row.get("tenant_id")?, row.get("project_id")?)))
}

pub(crate) fn import(db: &mut dyn Db, projects: &[(TenantId, ProjectId)]) -> Result<(), DbError> {
    projects.iter().try_for_each(|(tenant_id, project_id)| insert(db, *tenant_id, *project_id, ""))
}
