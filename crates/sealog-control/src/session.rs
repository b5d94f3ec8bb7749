//! Sessions of people who have signed in.

use sealog_core::id::Hash;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, all, one, params};
use crate::person::PersonId;

pub trait Sessions: Send + Sync {
    fn create_session(&self, session: Session) -> Answer<'_, ()>;
    /// A session that has not ended at `now_ms`.
    fn session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, Option<Session>>;
    fn end_session(&self, token_digest: Hash) -> Answer<'_, ()>;
    /// All of a person's: for a password that was changed.
    fn end_sessions(&self, person_id: PersonId) -> Answer<'_, ()>;
}

impl Sessions for Control {
    fn create_session(&self, session: Session) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            db.execute("DELETE FROM {sessions} WHERE expires_at_ms <= ?1", params![session.created_at_ms])?;
            insert(db, &session)
        })
    }

    fn session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, Option<Session>> {
        self.read(move |db| {
            let sql = format!("{SESSIONS} WHERE token_digest = ?1 AND expires_at_ms > ?2");
            one(db, &sql, params![token_digest, now_ms], read)
        })
    }

    fn end_session(&self, token_digest: Hash) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            db.execute("DELETE FROM {sessions} WHERE token_digest = ?1", params![token_digest]).map(drop)
        })
    }

    fn end_sessions(&self, person_id: PersonId) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            db.execute("DELETE FROM {sessions} WHERE person_id = ?1", params![person_id]).map(drop)
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub token_digest: Hash,
    pub person_id: PersonId,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

const SESSIONS: &str = "SELECT token_digest, person_id, created_at_ms, expires_at_ms FROM {sessions}";

fn insert(db: &mut dyn Db, session: &Session) -> Result<(), DbError> {
    let sql = "INSERT INTO {sessions} (token_digest, person_id, created_at_ms, expires_at_ms) VALUES (?1, ?2, ?3, ?4)";
    let Session { token_digest, person_id, created_at_ms, expires_at_ms } = *session;
    db.execute(sql, params![token_digest, person_id, created_at_ms, expires_at_ms]).map(drop)
}

fn read(row: &Row) -> Result<Session, DbError> {
    Ok(Session {
        token_digest: row.get("token_digest")?,
        person_id: row.get("person_id")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Session>, DbError> {
    all(db, &format!("{SESSIONS} ORDER BY token_digest"), &[], read)
}

pub(crate) fn import(db: &mut dyn Db, sessions: &[Session]) -> Result<(), DbError> {
    sessions.iter().try_for_each(|session| insert(db, session))
}
