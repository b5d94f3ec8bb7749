//! Sessions of accounts that have signed in. A session begins with a password, and with a code where the
//! account has an authenticator.

use std::fmt;

use sealog_core::id::{Hash, Uuid};
use sealog_store::pool::Payer;

use crate::account::{Account, Code, has_password, of, second_factor, use_code, uuid};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, one, params};

impl Control {
    /// Begins a session in place of another, if there is one, whatever was shown for it.
    pub fn create_session<A: Account>(&self, session: Session<A>, replaces: Option<Hash>) -> Answer<'_, ()> {
        self.change_in(Room::Ordinary, Lock::None, move |db| {
            remove_over::<A>(db, session.created_at_ms)?;
            if let Some(replaced) = replaces {
                end::<A>(db, replaced)?;
            }
            begin(db, &session)
        })
    }

    /// Begins a session for what the account has shown. Returns false if that does not hold any more: the
    /// password was changed, the account removed, the code used, or the session that asked for it has ended.
    /// `room` is what it may use of a full disk.
    pub fn begin_session<A: Account>(
        &self,
        session: Session<A>,
        shown: Shown,
        room: Room,
    ) -> Answer<'_, bool> {
        // In one order with every change of an account: that ends this session, or this finds it changed.
        self.change_in(room, Lock::Order, move |db| {
            remove_over::<A>(db, session.created_at_ms)?;
            let id = session.account_id;
            let is_confirmed = second_factor::<A>(db, id)?.is_some_and(|factor| factor.is_confirmed);
            let holds = match shown {
                Shown::Password { hash, replaces } => {
                    let is_enough = session.needs_code || !(A::ALWAYS_NEEDS_CODE || is_confirmed);
                    let holds = is_enough && has_password::<A>(db, id, &hash)?;
                    if let Some(replaced) = replaces.filter(|_| holds) {
                        end::<A>(db, replaced)?;
                    }
                    holds
                }
                Shown::Code { asked_by, code } => {
                    let holds = use_code::<A>(db, id, &code)? && end_half::<A>(db, id, asked_by)?;
                    if holds && !is_confirmed {
                        // Those from before began when no code was asked for.
                        end_all::<A>(db, id, None)?;
                    }
                    holds
                }
            };
            if holds {
                begin(db, &session)?;
            }
            Ok(holds)
        })
    }

    /// A session that has not ended at `now_ms`.
    pub fn session<A: Account>(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, Option<Session<A>>> {
        // Anyone can make a token up.
        self.read_for(Payer::Stranger, move |db| {
            one(
                db,
                &of::<A>(&format!("{SELECT} WHERE token_digest = ?1 AND {RUNS}")),
                params![token_digest, now_ms],
                read,
            )
        })
    }

    /// It was used at `now_ms`.
    pub fn touch_session<A: Account>(&self, token_digest: Hash, now_ms: u64) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            let sql =
                "UPDATE {sessions} SET last_seen_at_ms = ?2 WHERE token_digest = ?1 AND last_seen_at_ms < ?2";
            db.execute(&of::<A>(sql), params![token_digest, now_ms]).map(drop)
        })
    }

    /// Those of an account that have not ended, the last used first.
    pub fn sessions<A: Account>(&self, id: A::Id, now_ms: u64) -> Answer<'_, Vec<Session<A>>> {
        self.read(move |db| {
            let sql = format!(
                "{SELECT} WHERE {{owner}} = ?1 AND {RUNS} ORDER BY last_seen_at_ms DESC, token_digest"
            );
            all(db, &of::<A>(&sql), params![uuid(id), now_ms], read)
        })
    }

    pub fn end_session<A: Account>(&self, token_digest: Hash) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| end::<A>(db, token_digest))
    }

    /// One of an account's own. Returns false if it has no such session.
    pub fn end_session_of<A: Account>(&self, id: A::Id, token_digest: Hash) -> Answer<'_, bool> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            let sql = "DELETE FROM {sessions} WHERE {owner} = ?1 AND token_digest = ?2";
            Ok(db.execute(&of::<A>(sql), params![uuid(id), token_digest])? > 0)
        })
    }

    /// All of an account's but one, if one is to be kept.
    pub fn end_sessions<A: Account>(&self, id: A::Id, keep: Option<Hash>) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| end_all::<A>(db, id, keep))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session<A: Account> {
    pub token_digest: Hash,
    pub account_id: A::Id,
    /// The password was right, and a code is still to be shown. Such a session is no proof of anything else.
    pub needs_code: bool,
    pub created_at_ms: u64,
    /// The end, however much it is used.
    pub expires_at_ms: u64,
    pub last_seen_at_ms: u64,
    /// It also ends when it was not used for so long.
    pub idle_ms: u64,
    /// Where it began, for the account's own list.
    pub address: Option<String>,
    pub user_agent: Option<String>,
}

/// What was shown for a session, which must still hold when it begins. Each sign-in gets a new token, and the
/// old one is worth nothing.
#[derive(Clone, PartialEq, Eq)]
pub enum Shown {
    /// The password of which this is the hash. The session takes the place of the one that the browser had.
    /// It is a whole one only for an account that needs no code.
    Password { hash: String, replaces: Option<Hash> },
    /// A code, for the session that a right password has begun. The whole one takes its place.
    Code { asked_by: Hash, code: Code },
}

/// Without hash and secret.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shown::Password { .. } => "Password",
            Shown::Code { .. } => "Code",
        })
    }
}

/// Not `last_seen_at_ms + idle_ms > ?2`, which could overflow.
const RUNS: &str = "expires_at_ms > ?2 AND idle_ms > ?2 - last_seen_at_ms";

const SELECT: &str = "SELECT token_digest, {owner} AS account_id, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms, address, user_agent
    FROM {sessions}";

/// Sessions of one account that have shown a code, and as many that have not. The one that was unused for the
/// longest makes room for another, never a whole one for one that only a password has begun.
pub const SESSIONS_MAX: u64 = 20;

/// Begins a session, as one of [`SESSIONS_MAX`].
fn begin<A: Account>(db: &mut dyn Db, session: &Session<A>) -> Result<(), DbError> {
    let sql = "DELETE FROM {sessions} WHERE {owner} = ?1 AND needs_code = ?2 AND token_digest NOT IN
               (SELECT token_digest FROM {sessions} WHERE {owner} = ?1 AND needs_code = ?2
                ORDER BY last_seen_at_ms DESC, token_digest LIMIT ?3)";
    let params = params![uuid(session.account_id), session.needs_code, SESSIONS_MAX - 1];
    db.execute(&of::<A>(sql), params)?;
    insert(db, session)
}

fn insert<A: Account>(db: &mut dyn Db, session: &Session<A>) -> Result<(), DbError> {
    let sql = "INSERT INTO {sessions} (token_digest, {owner}, needs_code, created_at_ms, expires_at_ms, last_seen_at_ms, idle_ms, address, user_agent)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let params = params![
        session.token_digest,
        uuid(session.account_id),
        session.needs_code,
        session.created_at_ms,
        session.expires_at_ms,
        session.last_seen_at_ms,
        session.idle_ms,
        &session.address,
        &session.user_agent,
    ];
    db.execute(&of::<A>(sql), params).map(drop)
}

fn remove_over<A: Account>(db: &mut dyn Db, now_ms: u64) -> Result<(), DbError> {
    db.execute(&of::<A>("DELETE FROM {sessions} WHERE expires_at_ms <= ?1"), params![now_ms]).map(drop)
}

fn end<A: Account>(db: &mut dyn Db, token_digest: Hash) -> Result<(), DbError> {
    db.execute(&of::<A>("DELETE FROM {sessions} WHERE token_digest = ?1"), params![token_digest]).map(drop)
}

/// Returns false if the account has no such session that waits for a code.
fn end_half<A: Account>(db: &mut dyn Db, id: A::Id, token_digest: Hash) -> Result<bool, DbError> {
    let sql = "DELETE FROM {sessions} WHERE token_digest = ?1 AND {owner} = ?2 AND needs_code = ?3";
    Ok(db.execute(&of::<A>(sql), params![token_digest, uuid(id), true])? > 0)
}

pub(crate) fn end_all<A: Account>(db: &mut dyn Db, id: A::Id, keep: Option<Hash>) -> Result<(), DbError> {
    let sql = of::<A>("DELETE FROM {sessions} WHERE {owner} = ?1");
    match keep {
        None => db.execute(&sql, params![uuid(id)])?,
        Some(kept) => db.execute(&format!("{sql} AND token_digest <> ?2"), params![uuid(id), kept])?,
    };
    Ok(())
}

fn read<A: Account>(row: &Row) -> Result<Session<A>, DbError> {
    Ok(Session {
        token_digest: row.get("token_digest")?,
        account_id: row.get::<Uuid>("account_id")?.into(),
        needs_code: row.get("needs_code")?,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
        last_seen_at_ms: row.get("last_seen_at_ms")?,
        idle_ms: row.get("idle_ms")?,
        address: row.get("address")?,
        user_agent: row.get("user_agent")?,
    })
}

pub(crate) fn export<A: Account>(db: &mut dyn Db) -> Result<Vec<Session<A>>, DbError> {
    all(db, &of::<A>(&format!("{SELECT} ORDER BY token_digest")), &[], read)
}

pub(crate) fn import<A: Account>(db: &mut dyn Db, sessions: &[Session<A>]) -> Result<(), DbError> {
    sessions.iter().try_for_each(|session| insert(db, session))
}
