//! Tenants: the organisations whose events are kept apart from each other's.

use sealog_core::id::TenantId;
use sealog_core::plan::Billing;
use sealog_store::StoreError;

use crate::control::{Answer, Changed, Control, set};
use crate::db::{Db, DbError, ListPage, Lock, Row, Table, Value, all, one, params, readable, table};
use crate::record::{NewRecord, Records};

impl Control {
    pub fn create_tenant(&self, new: NewTenant, records: Vec<NewRecord>) -> Answer<'_, Tenant> {
        let made: Answer<'_, _> = self.change_of_tenant(Lock::Version, move |db| {
            Ok(Some(Changed { tenant_id: new.id, value: insert(db, new.into())?, records }))
        });
        Box::pin(async move { made.await?.ok_or(StoreError::Closing) })
    }

    /// Nothing when there is no such tenant.
    pub fn update_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
        records: Records<Tenant>,
    ) -> Answer<'_, Option<Tenant>> {
        self.change_of_tenant(Lock::Version, move |db| {
            let Some((before, after)) = update(db, id, change)? else { return Ok(None) };
            let records = records.tell(Some(&before), &after);
            Ok(Some(Changed { tenant_id: id, value: after, records }))
        })
    }

    pub fn tenant(&self, id: TenantId) -> Answer<'_, Option<Tenant>> {
        self.read(move |db| find(db, id))
    }

    pub fn tenants(&self, page: ListPage) -> Answer<'_, Vec<Tenant>> {
        self.read(move |db| TENANTS.page(db, None, page, read))
    }

    /// Those whose name has this text in it, in any case of ASCII letters, in the order of creation.
    pub fn tenants_like(&self, text: String, page: ListPage) -> Answer<'_, Vec<Tenant>> {
        self.read(move |db| {
            let escaped = text.to_ascii_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
            let mut params = vec![page.limit.into(), format!("%{escaped}%").into()];
            let mut sql = format!("{} WHERE lower(name) LIKE ?2 ESCAPE '!'", TENANTS.select);
            if let Some(after) = page.after {
                params.push(Value::from(after));
                sql.push_str(" AND number > (SELECT number FROM {tenants} WHERE id = ?3)");
            }
            sql.push_str(" ORDER BY number LIMIT ?1");
            all(db, &sql, &params, read)
        })
    }
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
    fn apply(self, tenant: &mut Tenant) {
        set(&mut tenant.name, self.name);
        set(&mut tenant.plan, self.plan);
        set(&mut tenant.contact_email, self.contact_email);
        set(&mut tenant.billing.trial_ends_at_ms, self.trial_ends_at_ms);
        set(&mut tenant.billing.billing_active, self.billing_active);
        set(&mut tenant.rate_limit_rps, self.rate_limit_rps);
    }
}

impl From<NewTenant> for Tenant {
    fn from(new: NewTenant) -> Tenant {
        let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new;
        Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms }
    }
}

const TENANTS: Table = table!(
    "tenants",
    "id",
    "id, name, plan, contact_email, trial_ends_at_ms, billing_active, rate_limit_rps, created_at_ms"
);

pub(crate) fn insert(db: &mut dyn Db, tenant: Tenant) -> Result<Tenant, DbError> {
    TENANTS.insert(
        db,
        params![
            tenant.id,
            &tenant.name,
            &tenant.plan,
            &tenant.contact_email,
            tenant.billing.trial_ends_at_ms,
            tenant.billing.billing_active,
            tenant.rate_limit_rps,
            tenant.created_at_ms,
        ],
        "",
    )?;
    Ok(tenant)
}

/// Before and after.
fn update(db: &mut dyn Db, id: TenantId, change: TenantChange) -> Result<Option<(Tenant, Tenant)>, DbError> {
    let Some(before) = find(db, id)? else { return Ok(None) };
    let mut tenant = before.clone();
    change.apply(&mut tenant);
    db.execute(
        "UPDATE {tenants} SET name = ?2, plan = ?3, contact_email = ?4, trial_ends_at_ms = ?5, billing_active = ?6, rate_limit_rps = ?7
         WHERE id = ?1",
        params![
            id,
            &tenant.name,
            &tenant.plan,
            &tenant.contact_email,
            tenant.billing.trial_ends_at_ms,
            tenant.billing.billing_active,
            tenant.rate_limit_rps,
        ],
    )?;
    Ok(Some((before, tenant)))
}

pub(crate) fn find(db: &mut dyn Db, id: TenantId) -> Result<Option<Tenant>, DbError> {
    one(db, &format!("{} WHERE id = ?1", TENANTS.select), params![id], read)
}

/// Those without billing, in the order in which their trials end: see [`crate::ending`].
pub(crate) fn trials_ending(db: &mut dyn Db, params: &[Value]) -> Result<Vec<Tenant>, DbError> {
    let sql = format!(
        "{} WHERE trial_ends_at_ms <= ?3 AND (trial_ends_at_ms, id) > (?1, ?2) AND NOT billing_active
         ORDER BY trial_ends_at_ms, id LIMIT ?4",
        TENANTS.select
    );
    readable(db, &sql, params, read)
}

pub(crate) fn exist(db: &mut dyn Db) -> Result<bool, DbError> {
    Ok(!TENANTS.page(db, None, ListPage { after: None, limit: 1 }, read)?.is_empty())
}

fn read(row: &Row) -> Result<Tenant, DbError> {
    Ok(Tenant {
        id: row.get("id")?,
        name: row.get("name")?,
        plan: row.get("plan")?,
        contact_email: row.get("contact_email")?,
        billing: Billing {
            trial_ends_at_ms: row.get("trial_ends_at_ms")?,
            billing_active: row.get("billing_active")?,
        },
        rate_limit_rps: row.get("rate_limit_rps")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Tenant>, DbError> {
    TENANTS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, tenants: Vec<Tenant>) -> Result<(), DbError> {
    tenants.into_iter().try_for_each(|tenant| insert(db, tenant).map(drop))
}
