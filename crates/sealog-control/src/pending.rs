//! Records that wait for a tenant's system chain: what operators and people have changed.
//!
//! A record commits in the transaction of the change that it tells of, so there is none without the other. It
//! is then appended to the chain, under its id as idempotency key, and removed; after a crash between the two
//! it is appended again, which the chain answers from the first time.

use std::fmt;

use sealog_core::id::{TenantId, Uuid};

use crate::db::{Db, DbError, Listed, Lock, Row, all, count, params};
use crate::{Answer, Control, ListPage};

pub trait PendingRecords: Send + Sync {
    /// Records of what changed no control data: who signed in, who looked at what. They are durable before it goes on.
    fn add_records(&self, records: Vec<(TenantId, NewRecord)>) -> Answer<'_, ()>;
    /// Tenants that have records waiting.
    fn tenants_with_records(&self) -> Answer<'_, Vec<TenantId>>;
    /// The oldest of a tenant, in the order of the changes that they tell of.
    fn pending_records(&self, tenant_id: TenantId, limit: usize) -> Answer<'_, Vec<PendingRecord>>;
    /// It is in the chain. Whether it was still waiting.
    fn remove_record(&self, id: Uuid) -> Answer<'_, bool>;
    /// The backlog of all tenants.
    fn count_records(&self) -> Answer<'_, u64>;
}

impl PendingRecords for Control {
    fn add_records(&self, records: Vec<(TenantId, NewRecord)>) -> Answer<'_, ()> {
        self.change(Lock::Order, move |db| {
            records
                .iter()
                .try_for_each(|(tenant_id, record)| insert(db, *tenant_id, std::slice::from_ref(record)))
        })
    }

    fn tenants_with_records(&self) -> Answer<'_, Vec<TenantId>> {
        self.read(|db| all(db, "SELECT DISTINCT tenant_id FROM {pending}", &[], |row| row.get("tenant_id")))
    }

    fn pending_records(&self, tenant_id: TenantId, limit: usize) -> Answer<'_, Vec<PendingRecord>> {
        self.read(move |db| {
            let page = ListPage { after: None, limit };
            PENDING.page(db, Some(("tenant_id", tenant_id.into())), page, read)
        })
    }

    fn remove_record(&self, id: Uuid) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            Ok(db.execute("DELETE FROM {pending} WHERE id = ?1", params![id])? > 0)
        })
    }

    fn count_records(&self) -> Answer<'_, u64> {
        self.read(|db| count(db, "SELECT count(*) AS count FROM {pending}", &[]))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Chosen by the caller from randomness; the idempotency key in the chain.
    pub id: Uuid,
    /// The event as it will be sent.
    pub draft: String,
    pub created_at_ms: u64,
}

/// What a change puts into the system chain, said inside of its transaction by what it has changed: of two
/// changes at the same time, each tells of the state that it found.
pub struct Records<T>(Tell<T>);

type Tell<T> = Box<dyn FnOnce(Option<&T>, &T) -> Vec<NewRecord> + Send>;

impl<T: 'static> Records<T> {
    /// By the state before the change, if there was one, and the state after it.
    pub fn told_by(tell: impl FnOnce(Option<&T>, &T) -> Vec<NewRecord> + Send + 'static) -> Records<T> {
        Records(Box::new(tell))
    }

    /// Those that are known beforehand.
    pub fn of(records: Vec<NewRecord>) -> Records<T> {
        Records::told_by(|_, _| records)
    }

    pub fn none() -> Records<T> {
        Records::of(Vec::new())
    }

    pub(crate) fn tell(self, before: Option<&T>, after: &T) -> Vec<NewRecord> {
        self.0(before, after)
    }
}

impl<T> fmt::Debug for Records<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRecord {
    pub tenant_id: TenantId,
    pub id: Uuid,
    pub draft: String,
    pub created_at_ms: u64,
}

const PENDING: Listed = Listed {
    select: "SELECT id, tenant_id, draft, created_at_ms FROM {pending}",
    table: "pending",
    id: "id",
};

/// In the transaction of the change, which holds its place in the order.
pub(crate) fn insert(db: &mut dyn Db, tenant_id: TenantId, records: &[NewRecord]) -> Result<(), DbError> {
    let sql = "INSERT INTO {pending} (id, tenant_id, draft, created_at_ms) VALUES (?1, ?2, ?3, ?4)";
    records.iter().try_for_each(|NewRecord { id, draft, created_at_ms }| {
        db.execute(sql, params![*id, tenant_id, draft, *created_at_ms]).map(drop)
    })
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
