//! Custom actions of a tenant.

use sealog_core::catalog::CustomAction;
use sealog_core::id::TenantId;

use crate::db::{Db, DbError, Lock, Row, all, names, params};
use crate::pending::NewRecord;
use crate::{Answer, ChangeError, Changed, Control, tenant};

pub trait Actions: Send + Sync {
    /// `Err(AlreadyExists)` for a name that the tenant has already. Nothing when there is no such tenant.
    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<CustomAction>, ChangeError>;
    /// All of them, in the order of their names.
    fn actions(&self, tenant_id: TenantId) -> Answer<'_, Vec<CustomAction>>;
}

impl Actions for Control {
    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<CustomAction>, ChangeError> {
        self.change_of_tenant(Lock::Version, move |db| {
            if tenant::find(db, tenant_id)?.is_none() {
                return Ok(None);
            }
            insert(db, tenant_id, &action)?;
            Ok(Some(Changed { tenant_id, value: action, records }))
        })
    }

    fn actions(&self, tenant_id: TenantId) -> Answer<'_, Vec<CustomAction>> {
        self.read(move |db| of_tenant(db, tenant_id))
    }
}

const ACTIONS: &str = "SELECT tenant_id, action, description, category, severity, required_fields, optional_fields FROM {actions}";

fn insert(db: &mut dyn Db, tenant_id: TenantId, action: &CustomAction) -> Result<(), DbError> {
    let inserted = db.execute(
        "INSERT INTO {actions} (tenant_id, action, description, category, severity, required_fields, optional_fields)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (tenant_id, action) DO NOTHING",
        params![
            tenant_id,
            &action.action,
            &action.description,
            &action.category,
            &action.severity,
            names(&action.required_fields),
            names(&action.optional_fields),
        ],
    )?;
    if inserted == 0 { Err(DbError::AlreadyExists) } else { Ok(()) }
}

pub(crate) fn of_tenant(db: &mut dyn Db, tenant_id: TenantId) -> Result<Vec<CustomAction>, DbError> {
    all(db, &format!("{ACTIONS} WHERE tenant_id = ?1 ORDER BY action"), params![tenant_id], read)
}

fn read(row: &Row) -> Result<CustomAction, DbError> {
    Ok(CustomAction {
        action: row.get("action")?,
        description: row.get("description")?,
        category: row.get("category")?,
        severity: row.get("severity")?,
        required_fields: row.names("required_fields")?,
        optional_fields: row.names("optional_fields")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(TenantId, CustomAction)>, DbError> {
    let sql = format!("{ACTIONS} ORDER BY tenant_id, action");
    all(db, &sql, &[], |row| Ok((row.get("tenant_id")?, read(row)?)))
}

pub(crate) fn import(db: &mut dyn Db, actions: &[(TenantId, CustomAction)]) -> Result<(), DbError> {
    actions.iter().try_for_each(|(tenant_id, action)| insert(db, *tenant_id, action))
}
