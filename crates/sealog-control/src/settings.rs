//! Settings of a tenant: a JSON value under each name.

use sealog_core::id::TenantId;

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock, Value, all, one, params};
use crate::person::PersonId;
use crate::record::NewRecord;
use crate::tenant;

impl Control {
    pub fn setting(&self, tenant_id: TenantId, name: String) -> Answer<'_, Option<String>> {
        self.read(move |db| {
            let sql = "SELECT value FROM {settings} WHERE tenant_id = ?1 AND name = ?2";
            one(db, sql, params![tenant_id, name], |row| row.get("value"))
        })
    }

    /// All of them, in the order of their names.
    pub fn settings(&self, tenant_id: TenantId) -> Answer<'_, Vec<(String, String)>> {
        self.read(move |db| {
            let sql = "SELECT name, value FROM {settings} WHERE tenant_id = ?1 ORDER BY name";
            all(db, sql, params![tenant_id], |row| Ok((row.get("name")?, row.get("value")?)))
        })
    }

    /// Those of these names in the tenants that a person is a member of.
    pub fn settings_for(
        &self,
        person_id: PersonId,
        names: Vec<&'static str>,
    ) -> Answer<'_, Vec<(TenantId, String, String)>> {
        self.read(move |db| {
            let mut params = vec![Value::from(person_id)];
            params.extend(names.iter().map(|name| Value::from(*name)));
            let places: Vec<String> = (0..names.len()).map(|at| format!("?{}", at + 2)).collect();
            let sql = format!(
                "SELECT s.tenant_id AS tenant_id, s.name AS name, s.value AS value
                 FROM {{settings}} AS s JOIN {{memberships}} AS m ON m.tenant_id = s.tenant_id
                 WHERE m.person_id = ?1 AND s.name IN ({}) ORDER BY s.tenant_id, s.name",
                places.join(", ")
            );
            all(db, &sql, &params, |row| Ok((row.get("tenant_id")?, row.get("name")?, row.get("value")?)))
        })
    }

    /// Nothing to take it away. A text that is no JSON is refused. Whether there is such a tenant.
    pub fn set_setting(
        &self,
        tenant_id: TenantId,
        name: String,
        value: Option<String>,
        records: Vec<NewRecord>,
    ) -> Answer<'_, bool> {
        self.set_settings(tenant_id, vec![(name, value)], records)
    }

    /// Several at once.
    pub fn set_settings(
        &self,
        tenant_id: TenantId,
        settings: Vec<(String, Option<String>)>,
        records: Vec<NewRecord>,
    ) -> Answer<'_, bool> {
        let made: Answer<'_, _> = self.change_of_tenant(Lock::Version, move |db| {
            if tenant::find(db, tenant_id)?.is_none() {
                return Ok(None);
            }
            for (name, value) in settings {
                match value {
                    Some(value) => put(db, tenant_id, &name, &value)?,
                    None => {
                        let sql = "DELETE FROM {settings} WHERE tenant_id = ?1 AND name = ?2";
                        db.execute(sql, params![tenant_id, name])?;
                    }
                }
            }
            Ok(Some(Changed { tenant_id, value: (), records }))
        });
        Box::pin(async move { Ok(made.await?.is_some()) })
    }
}

pub(crate) fn put(db: &mut dyn Db, tenant_id: TenantId, name: &str, value: &str) -> Result<(), DbError> {
    if let Err(error) = serde_json::from_str::<serde_json::Value>(value) {
        return Err(DbError::Refused(format!(
            "the value of the setting {name:?} is not valid JSON: {error}"
        )));
    }
    let sql = "INSERT INTO {settings} (tenant_id, name, value) VALUES (?1, ?2, ?3)
               ON CONFLICT (tenant_id, name) DO UPDATE SET value = excluded.value";
    db.execute(sql, params![tenant_id, name, value]).map(drop)
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(TenantId, String, String)>, DbError> {
    let sql = "SELECT tenant_id, name, value FROM {settings} ORDER BY tenant_id, name";
    all(db, sql, &[], |row| Ok((row.get("tenant_id")?, row.get("name")?, row.get("value")?)))
}

pub(crate) fn import(db: &mut dyn Db, settings: &[(TenantId, String, String)]) -> Result<(), DbError> {
    settings.iter().try_for_each(|(tenant_id, name, value)| put(db, *tenant_id, name, value))
}
