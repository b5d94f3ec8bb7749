//! Sessions of those who run the instance. A session begins with a password, which opens nothing, and becomes
//! whole with a code.

use sealog_core::id::Hash;
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, one, params};
use crate::ops_user::{self, OpsUserId};

impl Control {
    /// Begins a session for what somebody has shown. Not if that does not hold any more: the password was
    /// changed, the account removed, the code used, or the session that asked for it has ended.
    pub fn begin_ops_session(&self, session: OpsSession, shown: OpsShown) -> Answer<'_, bool> {
        // In one order with every change of an account: that ends this session, or this finds it changed.
        self.change_in(Room::Reserve, Lock::Order, move |db| {
            let over = "DELETE FROM {ops_sessions} WHERE expires_at_ms <= ?1";
            db.execute(over, params![session.created_at_ms])?;
            let Some(user) = ops_user::find(db, session.user_id)? else { return Ok(false) };
            let holds = match shown {
                OpsShown::Password { hash, replaces } => {
                    let is_right = session.needs_code && user.password_hash == Some(hash);
                    if let Some(replaced) = replaces.filter(|_| is_right) {
                        end(db, replaced)?;
                    }
                    is_right
                }
                OpsShown::Code { asked_by, secret, step } => {
                    let is_right = ops_user::use_step(db, user.id, &secret, step)?;
                    let sql = "DELETE FROM {ops_sessions} WHERE token_digest = ?1 AND user_id = ?2 AND needs_code = ?3";
                    let has_asked = is_right && db.execute(sql, params![asked_by, user.id, true])? > 0;
                    if has_asked && !user.is_enrolled() {
                        // Those from before have shown no code.
                        ops_user::end_sessions(db, user.id)?;
                    }
                    has_asked
                }
            };
            if holds {
                insert(db, &session)?;
            }
            Ok(holds)
        })
    }

    /// A session that has not ended at `now_ms`.
    pub fn ops_session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, Option<OpsSession>> {
        // Whoever makes a token up is a stranger.
        self.read_for(Payer::Stranger, move |db| {
            let sql = format!("{SESSIONS} WHERE token_digest = ?1 AND {RUNS}");
            one(db, &sql, params![token_digest, now_ms], read)
        })
    }

    /// It was used at `now_ms`.
    pub fn touch_ops_session(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            let sql = "UPDATE {ops_sessions} SET last_seen_at_ms = ?2 WHERE token_digest = ?1 AND last_seen_at_ms < ?2";
            db.execute(sql, params![token_digest, now_ms]).map(drop)
        })
    }

    pub fn end_ops_session(&self, token_digest: Hash) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| end(db, token_digest))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpsSession {
    pub token_digest: Hash,
    pub user_id: OpsUserId,
    /// The password was right, and a code is still to be shown. Such a session is no proof of anything else.
    pub needs_code: bool,
    pub created_at_ms: u64,
    /// The end, however much it is used.
    pub expires_at_ms: u64,
    pub last_seen_at_ms: u64,
    /// It also ends when nobody has used it for so long.
    pub idle_ms: u64,
}

/// What somebody has shown, which must still hold when the session begins.
#[derive(Clone, PartialEq, Eq)]
pub enum OpsShown {
    /// The password of which this is the hash: never enough for a whole session. It takes the place of the
    /// one that the browser had.
    Password { hash: String, replaces: Option<Hash> },
    /// A code of this time step, for the session that a right password has begun. The whole one takes its
    /// place.
    Code { asked_by: Hash, secret: Vec<u8>, step: u64 },
}

/// Without hash and secret.
impl std::fmt::Debug for OpsShown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OpsShown::Password { .. } => "Password",
            OpsShown::Code { .. } => "Code",
        })
    }
}

const SESSIONS: &str = "SELECT token_digest, user_id, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms FROM {ops_sessions}";
/// Not `last_seen_at_ms + idle_ms > ?2`, which could overflow.
const RUNS: &str = "expires_at_ms > ?2 AND idle_ms > ?2 - last_seen_at_ms";

fn insert(db: &mut dyn Db, session: &OpsSession) -> Result<(), DbError> {
    let sql = "INSERT INTO {ops_sessions} (token_digest, user_id, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let params = params![
        session.token_digest,
        session.user_id,
        session.needs_code,
        session.created_at_ms,
        session.expires_at_ms,
        session.last_seen_at_ms,
        session.idle_ms,
    ];
    db.execute(sql, params).map(drop)
}

fn end(db: &mut dyn Db, token_digest: Hash) -> Result<(), DbError> {
    db.execute("DELETE FROM {ops_sessions} WHERE token_digest = ?1", params![token_digest]).map(drop)
}

fn read(row: &Row) -> Result<OpsSession, DbError> {
    Ok(OpsSession {
        token_digest: row.get("token_digest")?,
        user_id: row.get("user_id")?,
        needs_code: row.get("needs_code")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
        last_seen_at_ms: row.get("last_seen_at_ms")?,
        idle_ms: row.get("idle_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<OpsSession>, DbError> {
    all(db, &format!("{SESSIONS} ORDER BY token_digest"), &[], read)
}

pub(crate) fn import(db: &mut dyn Db, sessions: &[OpsSession]) -> Result<(), DbError> {
    sessions.iter().try_for_each(|session| insert(db, session))
}
