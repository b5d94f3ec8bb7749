//! Optional notices that members do not want.

use sealog_core::id::TenantId;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, all, params};
use crate::person::PersonId;
use crate::record::{self, NewRecord};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutedNotice {
    pub tenant_id: TenantId,
    pub person_id: PersonId,
    pub notice: String,
}

impl Control {
    /// Of one person in one tenant, in the order of their names.
    pub fn muted_notices(&self, tenant_id: TenantId, person_id: PersonId) -> Answer<'_, Vec<String>> {
        self.read(move |db| of(db, tenant_id, person_id))
    }

    /// Who in a tenant does not want a notice of this name.
    pub fn muted_by(&self, tenant_id: TenantId, notice: String) -> Answer<'_, Vec<PersonId>> {
        self.read(move |db| {
            let sql = "SELECT person_id FROM {muted_notices} WHERE tenant_id = ?1 AND notice = ?2";
            all(db, sql, params![tenant_id, notice], |row| row.get("person_id"))
        })
    }

    /// One more. With records for the system chain, which are kept only where it is new.
    pub fn mute_notice(&self, muted: MutedNotice, records: Vec<NewRecord>) -> Answer<'_, ()> {
        self.change(Lock::Order, move |db| match insert(db, &muted)? {
            0 => Ok(()),
            _ => record::insert(db, muted.tenant_id, &records),
        })
    }

    /// These, and no other. The records are kept only where that is a change.
    pub fn set_muted_notices(
        &self,
        tenant_id: TenantId,
        person_id: PersonId,
        mut notices: Vec<String>,
        records: Vec<NewRecord>,
    ) -> Answer<'_, ()> {
        notices.sort_unstable();
        notices.dedup();
        self.change(Lock::Order, move |db| {
            if of(db, tenant_id, person_id)? == notices {
                return Ok(());
            }
            let sql = "DELETE FROM {muted_notices} WHERE tenant_id = ?1 AND person_id = ?2";
            db.execute(sql, params![tenant_id, person_id])?;
            let muted = notices.into_iter().map(|notice| MutedNotice { tenant_id, person_id, notice });
            muted.into_iter().try_for_each(|muted| insert(db, &muted).map(drop))?;
            record::insert(db, tenant_id, &records)
        })
    }
}

fn of(db: &mut dyn Db, tenant_id: TenantId, person_id: PersonId) -> Result<Vec<String>, DbError> {
    let sql = "SELECT notice FROM {muted_notices} WHERE tenant_id = ?1 AND person_id = ?2 ORDER BY notice";
    all(db, sql, params![tenant_id, person_id], |row| row.get("notice"))
}

/// How many there were not before.
fn insert(db: &mut dyn Db, muted: &MutedNotice) -> Result<u64, DbError> {
    let MutedNotice { tenant_id, person_id, notice } = muted;
    let sql = "INSERT INTO {muted_notices} (tenant_id, person_id, notice) VALUES (?1, ?2, ?3)
               ON CONFLICT (tenant_id, notice, person_id) DO NOTHING";
    db.execute(sql, params![*tenant_id, *person_id, notice])
}

fn read(row: &Row) -> Result<MutedNotice, DbError> {
    Ok(MutedNotice {
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        notice: row.get("notice")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<MutedNotice>, DbError> {
    let sql =
        "SELECT tenant_id, person_id, notice FROM {muted_notices} ORDER BY tenant_id, notice, person_id";
    all(db, sql, &[], read)
}

pub(crate) fn import(db: &mut dyn Db, muted: &[MutedNotice]) -> Result<(), DbError> {
    muted.iter().try_for_each(|muted| insert(db, muted).map(drop))
}
