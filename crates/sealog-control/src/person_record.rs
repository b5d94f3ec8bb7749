//! Records of what concerns a person everywhere: one for each tenant that the person is a member of when the
//! change is made, kept in its transaction.

use std::fmt;

use sealog_core::id::TenantId;

use crate::db::{Db, DbError};
use crate::membership;
use crate::person::PersonId;
use crate::record::{self, NewRecord};

/// What a change of a person's account puts into system chains.
pub struct PersonRecords {
    now_ms: u64,
    tell: Option<Tell>,
}

type Tell = Box<dyn Fn() -> NewRecord + Send>;

impl PersonRecords {
    /// `tell` makes a record, with an id of its own at each call. Memberships that have ended at `now_ms`
    /// hear of nothing.
    pub fn told_by(now_ms: u64, tell: impl Fn() -> NewRecord + Send + 'static) -> PersonRecords {
        PersonRecords { now_ms, tell: Some(Box::new(tell)) }
    }

    pub fn none() -> PersonRecords {
        PersonRecords { now_ms: 0, tell: None }
    }

    /// In the transaction of the change, which holds its place in the order.
    pub(crate) fn insert(self, db: &mut dyn Db, person_id: PersonId) -> Result<(), DbError> {
        let Some(tell) = self.tell else { return Ok(()) };
        let tenants = membership::tenants_of(db, person_id, self.now_ms)?;
        let records: Vec<(TenantId, NewRecord)> =
            tenants.into_iter().map(|tenant| (tenant, tell())).collect();
        record::insert_all(db, &records)
    }
}

impl fmt::Debug for PersonRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PersonRecords")
    }
}
