//! Records of changes, for a tenant's system chain: made and kept in the transaction of the change that they
//! tell of. [`crate::pending`] has them until they are in the chain.

use std::fmt;

use sealog_core::id::{TenantId, Uuid};

use crate::db::{Db, DbError, Table, params, table};

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

pub(crate) const PENDING: Table = table!("pending", "id", "id, tenant_id, draft, created_at_ms");

/// Of a change that concerns several tenants, each in its own chain.
pub(crate) fn insert_all(db: &mut dyn Db, records: &[(TenantId, NewRecord)]) -> Result<(), DbError> {
    records.iter().try_for_each(|(tenant_id, record)| insert(db, *tenant_id, std::slice::from_ref(record)))
}

/// In the transaction of the change, which holds its place in the order.
pub(crate) fn insert(db: &mut dyn Db, tenant_id: TenantId, records: &[NewRecord]) -> Result<(), DbError> {
    records.iter().try_for_each(|NewRecord { id, draft, created_at_ms }| {
        PENDING.insert(db, params![*id, tenant_id, draft, *created_at_ms], "").map(drop)
    })
}
