//! Changes of a person's password and authenticator, which end sessions that began without them. Each is one
//! transaction, in one order with sessions that begin.

use sealog_core::id::Hash;

use crate::control::{Answer, Control};
use crate::db::{Lock, params};
use crate::person::{Person, PersonId};
use crate::person_record::PersonRecords;
use crate::{authenticator, session};

impl Control {
    /// A new password in place of that with the hash `from`, which ends all sessions of the person but one.
    /// Not if the person has another password by now. The address is as well known as it was.
    pub fn change_password(
        &self,
        id: PersonId,
        from: String,
        to: String,
        keep: Hash,
        records: PersonRecords,
    ) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let sql = "UPDATE {persons} SET password_hash = ?3 WHERE id = ?1 AND password_hash = ?2";
            let changed = db.execute(sql, params![id, from, to])? > 0;
            if changed {
                session::end_all::<Person>(db, id, Some(keep))?;
                records.insert(db, id)?;
            }
            Ok(changed)
        })
    }

    /// A code of this time step was right: from now on signing in asks for one. With the digests of the codes
    /// that stand in for it. All sessions of the person end but one: they began without a code. Not if it was
    /// confirmed before, or is no longer the secret that was asked about.
    pub fn confirm_authenticator(
        &self,
        person_id: PersonId,
        secret: Vec<u8>,
        step: u64,
        recovery_codes: Vec<Hash>,
        keep: Option<Hash>,
        records: PersonRecords,
    ) -> Answer<'_, bool> {
        // In one order with sessions that begin: those from before end, and those after need a code.
        self.change(Lock::Order, move |db| {
            let sql = "UPDATE {authenticators} SET last_step = ?3
                       WHERE person_id = ?1 AND secret = ?2 AND last_step IS NULL";
            let confirmed = db.execute(sql, params![person_id, secret, step])? > 0;
            if confirmed {
                authenticator::replace_codes(db, person_id, &recovery_codes)?;
                session::end_all::<Person>(db, person_id, keep)?;
                records.insert(db, person_id)?;
            }
            Ok(confirmed)
        })
    }
}
