//! Sessions of people who have signed in.

use sealog_core::id::Hash;
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, one, params};
use crate::person::PersonId;

impl Control {
    /// Begins a session in place of another, if there is one, whatever was shown for it.
    pub fn create_session(&self, session: Session, replaces: Option<Hash>) -> Answer<'_, ()> {
        self.change_in(Room::Ordinary, Lock::None, move |db| {
            remove_over(db, session.created_at_ms)?;
            if let Some(replaced) = replaces {
                end(db, replaced)?;
            }
            begin(db, &session)
        })
    }

    /// A session that has not ended at `now_ms`.
    pub fn session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, Option<Session>> {
        // Whoever makes a token up is a stranger.
        self.read_for(Payer::Stranger, move |db| {
            let sql = format!("{SESSIONS} WHERE token_digest = ?1 AND {RUNS}");
            one(db, &sql, params![token_digest, now_ms], read)
        })
    }

    /// It was used at `now_ms`.
    pub fn touch_session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            let sql =
                "UPDATE {sessions} SET last_seen_at_ms = ?2 WHERE token_digest = ?1 AND last_seen_at_ms < ?2";
            db.execute(sql, params![token_digest, now_ms]).map(drop)
        })
    }

    /// Those of a person that have not ended, the last used first.
    pub fn sessions(&self, person_id: PersonId, now_ms: u64) -> Answer<'_, Vec<Session>> {
        self.read(move |db| {
            let sql = format!(
                "{SESSIONS} WHERE person_id = ?1 AND {RUNS} ORDER BY last_seen_at_ms DESC, token_digest"
            );
            all(db, &sql, params![person_id, now_ms], read)
        })
    }

    pub fn end_session(&self, token_digest: Hash) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| end(db, token_digest))
    }

    /// One of a person's own. Whether there was such a one.
    pub fn end_session_of(&self, person_id: PersonId, token_digest: Hash) -> Answer<'_, bool> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            let sql = "DELETE FROM {sessions} WHERE person_id = ?1 AND token_digest = ?2";
            Ok(db.execute(sql, params![person_id, token_digest])? > 0)
        })
    }

    /// All of a person's but one, if one is to be kept.
    pub fn end_sessions(&self, person_id: PersonId, keep: Option<Hash>) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| end_all(db, person_id, keep))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub token_digest: Hash,
    pub person_id: PersonId,
    /// The password was right, and a code is still to be shown. Such a session is no proof of anything else.
    pub needs_code: bool,
    pub created_at_ms: u64,
    /// The end, however much it is used.
    pub expires_at_ms: u64,
    pub last_seen_at_ms: u64,
    /// It also ends when nobody has used it for so long.
    pub idle_ms: u64,
    /// Where it began, for the person's own list.
    pub address: Option<String>,
    pub user_agent: Option<String>,
}

const SESSIONS: &str = "SELECT token_digest, person_id, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms, address, user_agent
    FROM {sessions}";
/// Not `last_seen_at_ms + idle_ms > ?2`, which could overflow.
const RUNS: &str = "expires_at_ms > ?2 AND idle_ms > ?2 - last_seen_at_ms";

/// Sessions of one person. The one that was not used for the longest time makes room for another.
pub const SESSIONS_MAX: u64 = 20;

/// Begins a session, as one of [`SESSIONS_MAX`].
pub(crate) fn begin(db: &mut dyn Db, session: &Session) -> Result<(), DbError> {
    let sql = "DELETE FROM {sessions} WHERE person_id = ?1 AND token_digest NOT IN
               (SELECT token_digest FROM {sessions} WHERE person_id = ?1 ORDER BY last_seen_at_ms DESC, token_digest LIMIT ?2)";
    db.execute(sql, params![session.person_id, SESSIONS_MAX - 1])?;
    insert(db, session)
}

pub(crate) fn insert(db: &mut dyn Db, session: &Session) -> Result<(), DbError> {
    let sql = "INSERT INTO {sessions} (token_digest, person_id, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms, address, user_agent)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let params = params![
        session.token_digest,
        session.person_id,
        session.needs_code,
        session.created_at_ms,
        session.expires_at_ms,
        session.last_seen_at_ms,
        session.idle_ms,
        &session.address,
        &session.user_agent,
    ];
    db.execute(sql, params).map(drop)
}

pub(crate) fn remove_over(db: &mut dyn Db, now_ms: u64) -> Result<(), DbError> {
    db.execute("DELETE FROM {sessions} WHERE expires_at_ms <= ?1", params![now_ms]).map(drop)
}

pub(crate) fn end(db: &mut dyn Db, token_digest: Hash) -> Result<(), DbError> {
    db.execute("DELETE FROM {sessions} WHERE token_digest = ?1", params![token_digest]).map(drop)
}

pub(crate) fn end_all(db: &mut dyn Db, person_id: PersonId, keep: Option<Hash>) -> Result<(), DbError> {
    match keep {
        None => db.execute("DELETE FROM {sessions} WHERE person_id = ?1", params![person_id])?,
        Some(kept) => {
            let sql = "DELETE FROM {sessions} WHERE person_id = ?1 AND token_digest <> ?2";
            db.execute(sql, params![person_id, kept])?
        }
    };
    Ok(())
}

fn read(row: &Row) -> Result<Session, DbError> {
    Ok(Session {
        token_digest: row.get("token_digest")?,
        person_id: row.get("person_id")?,
        needs_code: row.get("needs_code")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
        last_seen_at_ms: row.get("last_seen_at_ms")?,
        idle_ms: row.get("idle_ms")?,
        address: row.get("address")?,
        user_agent: row.get("user_agent")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Session>, DbError> {
    all(db, &format!("{SESSIONS} ORDER BY token_digest"), &[], read)
}

pub(crate) fn import(db: &mut dyn Db, sessions: &[Session]) -> Result<(), DbError> {
    sessions.iter().try_for_each(|session| insert(db, session))
}
