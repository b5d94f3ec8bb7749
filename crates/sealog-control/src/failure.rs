//! Failed sign-ins of people who have an account: counted as they come, and recorded together, so that the
//! system chains have one event a minute for an account, with the count. Kept here, so that several nodes
//! count together and a restart loses none. They are no part of a copy.

use sealog_core::id::TenantId;
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, params, readable};
use crate::membership;
use crate::person::PersonId;
use crate::record::{self, NewRecord};

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Password,
    Code,
}

/// Failures of one person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub person_id: PersonId,
    pub passwords: u64,
    pub codes: u64,
    pub began_at_ms: u64,
}

/// Makes a record, with an id of its own at each call.
pub type TellFailures = Box<dyn Fn(&Failed) -> NewRecord + Send>;

impl Control {
    /// Somebody has failed to sign in as this person.
    pub fn count_failure(&self, person_id: PersonId, what: Wrong, now_ms: u64) -> Answer<'_, ()> {
        let (passwords, codes) = match what {
            Wrong::Password => (1u64, 0u64),
            Wrong::Code => (0, 1),
        };
        self.change_for(Payer::Stranger, Lock::None, move |db| {
            let sql =
                "INSERT INTO {failures} (person_id, passwords, codes, began_at_ms) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (person_id) DO UPDATE SET
                           passwords = failures.passwords + ?2, codes = failures.codes + ?3";
            db.execute(sql, params![person_id, passwords, codes, now_ms]).map(drop)
        })
    }

    /// Takes the counts that began at `until_ms` or before, of at most so many people, and keeps a record of
    /// each for every tenant that the person is a member of, in one transaction. How many people it was.
    pub fn record_failures(&self, until_ms: u64, limit: usize, tell: TellFailures) -> Answer<'_, usize> {
        self.change(Lock::Order, move |db| {
            let sql = "SELECT person_id, passwords, codes, began_at_ms FROM {failures}
                       WHERE began_at_ms <= ?1 ORDER BY began_at_ms LIMIT ?2";
            let over = readable(db, sql, params![until_ms, limit], read)?;
            over.iter().try_for_each(|failed| record(db, failed, &tell))?;
            Ok(over.len())
        })
    }
}

fn record(db: &mut dyn Db, failed: &Failed, tell: &TellFailures) -> Result<(), DbError> {
    let Failed { person_id, passwords, codes, began_at_ms } = *failed;
    // Not if one more was counted since it was read: that one is recorded with the others, at the next look.
    let sql = "DELETE FROM {failures} WHERE person_id = ?1 AND passwords = ?2 AND codes = ?3";
    if db.execute(sql, params![person_id, passwords, codes])? == 0 {
        return Ok(());
    }
    let tenants = membership::tenants_of(db, person_id, began_at_ms)?;
    let records: Vec<(TenantId, NewRecord)> =
        tenants.into_iter().map(|tenant| (tenant, tell(failed))).collect();
    record::insert_all(db, &records)
}

fn read(row: &Row) -> Result<Failed, DbError> {
    Ok(Failed {
        person_id: row.get("person_id")?,
        passwords: row.get("passwords")?,
        codes: row.get("codes")?,
        began_at_ms: row.get("began_at_ms")?,
    })
}
