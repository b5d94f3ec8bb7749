//! Records that wait for a tenant's system chain: what operators and people have changed.
//!
//! A record commits in the transaction of the change that it tells of, so there is none without the other. It
//! is then appended to the chain, under its id as idempotency key, and removed; after a crash between the two
//! it is appended again, which the chain answers from the first time.

use sealog_core::id::{TenantId, Uuid};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, ListPage, Lock, Room, Row, Value, all, count, params};
use crate::record::{NewRecord, PENDING, insert, insert_all};

impl Control {
    /// Records of what changed no control data: who signed in, who looked at what. They are durable before it
    /// goes on. `room` is what they may use of a full disk.
    pub fn add_records(&self, records: Vec<(TenantId, NewRecord)>, room: Room) -> Answer<'_, ()> {
        self.change_in(room, Lock::Order, move |db| insert_all(db, &records))
    }

    /// Tenants that have records waiting, in the order of their ids: those behind this one, at most so many.
    pub fn tenants_with_records(&self, after: Option<TenantId>, limit: usize) -> Answer<'_, Vec<TenantId>> {
        self.read(move |db| {
            let mut params = vec![Value::from(limit)];
            params.extend(after.map(Value::from));
            let behind = if after.is_some() { " WHERE tenant_id > ?2" } else { "" };
            let sql =
                format!("SELECT DISTINCT tenant_id FROM {{pending}}{behind} ORDER BY tenant_id LIMIT ?1");
            all(db, &sql, &params, |row| row.get("tenant_id"))
        })
    }

    /// The oldest of a tenant, in the order of the changes that they tell of.
    pub fn pending_records(&self, tenant_id: TenantId, limit: usize) -> Answer<'_, Vec<PendingRecord>> {
        self.read(move |db| {
            let page = ListPage { after: None, limit };
            PENDING.page(db, Some(("tenant_id", tenant_id.into())), page, read)
        })
    }

    /// Whether it waits still.
    pub fn is_pending(&self, id: Uuid) -> Answer<'_, bool> {
        self.read(move |db| {
            let sql = "SELECT count(*) AS count FROM {pending} WHERE id = ?1";
            Ok(count(db, sql, params![id])? > 0)
        })
    }

    /// It is in the chain. Whether it was still waiting.
    pub fn remove_record(&self, id: Uuid) -> Answer<'_, bool> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            Ok(db.execute("DELETE FROM {pending} WHERE id = ?1", params![id])? > 0)
        })
    }

    /// The backlog of all tenants.
    pub fn count_records(&self) -> Answer<'_, u64> {
        self.read(|db| count(db, "SELECT count(*) AS count FROM {pending}", &[]))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRecord {
    pub tenant_id: TenantId,
    pub id: Uuid,
    pub draft: String,
    pub created_at_ms: u64,
}

fn read(row: &Row) -> Result<PendingRecord, DbError> {
    Ok(PendingRecord {
        tenant_id: row.get("tenant_id")?,
        id: row.get("id")?,
        draft: row.get("draft")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<PendingRecord>, DbError> {
    PENDING.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, records: Vec<PendingRecord>) -> Result<(), DbError> {
    records.into_iter().try_for_each(|PendingRecord { tenant_id, id, draft, created_at_ms }| {
        insert(db, tenant_id, &[NewRecord { id, draft, created_at_ms }])
    })
}
