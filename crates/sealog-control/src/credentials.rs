//! Changes that make a session and what it stands on agree: a session begins with a password or a code, and
//! ends with them. Each is one transaction, and all of them have one order.

use sealog_core::id::Hash;

use crate::control::{Answer, Control};
use crate::db::{Lock, Room, params};
use crate::person::PersonId;
use crate::person_record::PersonRecords;
use crate::session::Session;
use crate::{authenticator, person, session};

impl Control {
    /// Begins a session for what somebody has shown. Not if that does not hold any more: the password was
    /// changed, or the session that asked for the code has ended, while the answer was being worked out.
    /// `room` is what it may use of a full disk.
    pub fn begin_session(&self, session: Session, shown: Shown, room: Room) -> Answer<'_, bool> {
        // In one order with every change of a password: that ends this session, or this finds it changed.
        self.change_in(room, Lock::Order, move |db| {
            session::remove_over(db, session.created_at_ms)?;
            let holds = match shown {
                Shown::Password { hash, replaces } => {
                    let is_right = person::has_password(db, session.person_id, &hash)?;
                    let is_enough = session.needs_code || !authenticator::is_confirmed(db, session.person_id)?;
                    if let Some(replaced) = replaces.filter(|_| is_right && is_enough) {
                        session::end(db, replaced)?;
                    }
                    is_right && is_enough
                }
                Shown::Code { asked_by } => {
                    let sql = "DELETE FROM {sessions} WHERE token_digest = ?1 AND person_id = ?2 AND needs_code = ?3";
                    db.execute(sql, params![asked_by, session.person_id, true])? > 0
                }
            };
            if holds {
                session::begin(db, &session)?;
            }
            Ok(holds)
        })
    }

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
                session::end_all(db, id, Some(keep))?;
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
                session::end_all(db, person_id, keep)?;
                records.insert(db, person_id)?;
            }
            Ok(confirmed)
        })
    }
}

/// What somebody has shown, which must still hold when the session begins. Whoever signs in gets a new token,
/// and the old one is worth nothing.
#[derive(Clone, PartialEq, Eq)]
pub enum Shown {
    /// The password of which this is the hash. The session takes the place of the one that the browser had. A
    /// whole one only for a person who has no authenticator.
    Password { hash: String, replaces: Option<Hash> },
    /// A code, for the session that a right password has begun. The whole one takes its place.
    Code { asked_by: Hash },
}

/// Without the hash.
impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Shown::Password { .. } => "Password",
            Shown::Code { .. } => "Code",
        })
    }
}
