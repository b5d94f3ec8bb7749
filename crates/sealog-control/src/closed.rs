//! Tenants that were closed: no key of theirs opens anything, and nothing gives them a key or a member. The
//! rest of closing, which ends keys and memberships one by one, can be interrupted; this is one step.

use sealog_core::id::TenantId;

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock, all, one, params};
use crate::record::NewRecord;
use crate::{settings, tenant};

/// The setting with the time.
const CLOSED: &str = "closed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantClosed {
    Done,
    /// At this time, by an earlier call: nothing was changed, and no record kept.
    Before(u64),
    /// Nothing was changed. The numbers of its first open cases.
    OpenCases(Vec<u64>),
}

impl Control {
    /// When a tenant was closed, if it was.
    pub fn closed_at_ms(&self, tenant_id: TenantId) -> Answer<'_, Option<u64>> {
        self.read(move |db| at_ms(db, tenant_id))
    }

    /// Nothing when there is no such tenant. With `open_cases_named`, a tenant that has open cases stays as
    /// it is, and at most so many of them are named.
    pub fn close_tenant(
        &self,
        tenant_id: TenantId,
        now_ms: u64,
        open_cases_named: Option<usize>,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<TenantClosed>> {
        self.change_of_tenant(Lock::Version, move |db| {
            if tenant::find(db, tenant_id)?.is_none() {
                return Ok(None);
            }
            let unchanged = |value| Ok(Some(Changed { tenant_id, value, records: Vec::new() }));
            if let Some(before) = at_ms(db, tenant_id)? {
                return unchanged(TenantClosed::Before(before));
            }
            if let Some(limit) = open_cases_named {
                let sql = "SELECT case_number FROM {cases} WHERE tenant_id = ?1 AND closed_at_ms IS NULL
                           ORDER BY case_number LIMIT ?2";
                let open: Vec<u64> = all(db, sql, params![tenant_id, limit], |row| row.get("case_number"))?;
                if !open.is_empty() {
                    return unchanged(TenantClosed::OpenCases(open));
                }
            }
            settings::put(db, tenant_id, CLOSED, &now_ms.to_string())?;
            Ok(Some(Changed { tenant_id, value: TenantClosed::Done, records }))
        })
    }
}

pub(crate) fn at_ms(db: &mut dyn Db, tenant_id: TenantId) -> Result<Option<u64>, DbError> {
    let sql = "SELECT value FROM {settings} WHERE tenant_id = ?1 AND name = ?2";
    let kept: Option<String> = one(db, sql, params![tenant_id, CLOSED], |row| row.get("value"))?;
    // One that cannot be read is closed all the same.
    Ok(kept.map(|text| text.parse().unwrap_or_default()))
}

pub(crate) fn is_closed(db: &mut dyn Db, tenant_id: TenantId) -> Result<bool, DbError> {
    Ok(at_ms(db, tenant_id)?.is_some())
}
