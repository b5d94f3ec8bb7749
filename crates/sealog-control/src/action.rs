//! Custom actions of a tenant.

use sealog_core::catalog::CustomAction;
use sealog_core::id::TenantId;

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, names, params, table};
use crate::error::ChangeError;
use crate::record::NewRecord;
use crate::tenant;

impl Control {
    /// `Err(AlreadyExists)` for a name that the tenant has already; that of a retired one is free. Nothing
    /// when there is no such tenant.
    pub fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<CustomAction>, ChangeError> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            if tenant::find(db, tenant_id)?.is_none() {
                return Ok(None);
            }
            insert(db, tenant_id, &KnownAction { action: action.clone(), retired_at_ms: None })?;
            room.check(db, tenant_id)?;
            Ok(Some(Changed { tenant_id, value: action, records }))
        })
    }

    /// From now on no event may have this action. Nothing when the tenant has no such action, or has retired
    /// it.
    pub fn retire_action(
        &self,
        tenant_id: TenantId,
        action: String,
        now_ms: u64,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<()>> {
        self.change_of_tenant(Lock::Version, move |db| {
            let sql = "UPDATE {actions} SET retired_at_ms = ?3
                       WHERE tenant_id = ?1 AND action = ?2 AND retired_at_ms IS NULL";
            let retired = db.execute(sql, params![tenant_id, action, now_ms])? > 0;
            Ok(retired.then_some(Changed { tenant_id, value: (), records }))
        })
    }

    /// Those that events may have, in the order of their names.
    pub fn actions(&self, tenant_id: TenantId) -> Answer<'_, Vec<CustomAction>> {
        self.read(move |db| of_tenant(db, tenant_id))
    }

    /// Those and the retired ones, in the order of their names.
    pub fn known_actions(&self, tenant_id: TenantId) -> Answer<'_, Vec<KnownAction>> {
        self.read(move |db| {
            all(
                db,
                &format!("{} WHERE tenant_id = ?1 ORDER BY action", ACTIONS.select),
                params![tenant_id],
                read_known,
            )
        })
    }
}

/// An action that the tenant has registered, and when it was retired, if it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAction {
    pub action: CustomAction,
    pub retired_at_ms: Option<u64>,
}

const ACTIONS: Table = table!(
    "actions",
    "action",
    "tenant_id, action, description, category, severity, required_fields, optional_fields, retired_at_ms"
);

/// In place of a retired one of the same name.
fn insert(db: &mut dyn Db, tenant_id: TenantId, known: &KnownAction) -> Result<(), DbError> {
    let KnownAction { action, retired_at_ms } = known;
    let in_place = "ON CONFLICT (tenant_id, action) DO UPDATE SET description = ?3, category = ?4, severity = ?5,
            required_fields = ?6, optional_fields = ?7, retired_at_ms = ?8 WHERE actions.retired_at_ms IS NOT NULL";
    let values = params![
        tenant_id,
        &action.action,
        &action.description,
        &action.category,
        &action.severity,
        names(&action.required_fields),
        names(&action.optional_fields),
        *retired_at_ms,
    ];
    let inserted = ACTIONS.insert(db, values, in_place)?;
    if inserted == 0 { Err(DbError::AlreadyExists) } else { Ok(()) }
}

pub(crate) fn of_tenant(db: &mut dyn Db, tenant_id: TenantId) -> Result<Vec<CustomAction>, DbError> {
    let sql = format!("{} WHERE tenant_id = ?1 AND retired_at_ms IS NULL ORDER BY action", ACTIONS.select);
    all(db, &sql, params![tenant_id], read)
}

fn read_known(row: &Row) -> Result<KnownAction, DbError> {
    Ok(KnownAction { action: read(row)?, retired_at_ms: row.get("retired_at_ms")? })
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

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(TenantId, KnownAction)>, DbError> {
    let sql = format!("{} ORDER BY tenant_id, action", ACTIONS.select);
    all(db, &sql, &[], |row| Ok((row.get("tenant_id")?, read_known(row)?)))
}

pub(crate) fn import(db: &mut dyn Db, actions: &[(TenantId, KnownAction)]) -> Result<(), DbError> {
    actions.iter().try_for_each(|(tenant_id, action)| insert(db, *tenant_id, action))
}
