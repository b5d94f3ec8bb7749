//! Accounts of those who run the instance. They belong to no tenant, and none of them is a person of one.

use sealog_core::id::Hash;

use crate::account::{Account, Tables};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, ListPage, Lock, Row, Table, one, params, table};
use crate::error::ChangeError;
use crate::{device, session};

impl Control {
    /// With a link that sets the password. Whoever has the address and has never shown a code gets the new
    /// link in place of the one before, and stays who they are; `Err(AlreadyExists)` if that account is in
    /// use.
    pub fn add_ops_user(&self, new: NewOpsUser) -> Answer<'_, OpsUser, ChangeError> {
        self.change(Lock::Order, move |db| add(db, new))
    }

    /// Those that were not removed, in the order of creation.
    pub fn ops_users(&self, page: ListPage) -> Answer<'_, Vec<OpsUser>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE {STAYS} AND number > COALESCE((SELECT number FROM {{ops_users}} WHERE id = ?2), 0) ORDER BY number LIMIT ?1",
                OPS_USERS.select
            );
            crate::db::all(db, &sql, params![page.limit, page.after], read)
        })
    }

    /// Ends all sessions, and forgets password, authenticator, link and browsers. The id stays known; the
    /// address is free.
    pub fn remove_ops_user(&self, email: String, now_ms: u64) -> Answer<'_, Option<OpsUser>> {
        self.change(Lock::Order, move |db| {
            let Some((user, _)) = OpsUser::by_email(db, &email)? else { return Ok(None) };
            let sql = "UPDATE {ops_users} SET password_hash = NULL, secret = NULL, last_step = NULL, link_digest = NULL, link_expires_at_ms = NULL, removed_at_ms = ?2
                       WHERE id = ?1";
            db.execute(sql, params![user.id, now_ms])?;
            session::end_all::<OpsUser>(db, user.id, None)?;
            device::forget::<OpsUser>(db, user.id)?;
            Ok(Some(user))
        })
    }

    /// Sets the password by a link, which works once, offers the secret of an authenticator unless there is
    /// one, and ends all sessions. None if there is no such link, or it is over.
    pub fn enrol_ops_user(
        &self,
        link: Hash,
        now_ms: u64,
        password_hash: String,
        secret: Vec<u8>,
    ) -> Answer<'_, Option<OpsUser>> {
        self.change(Lock::Order, move |db| {
            let sql =
                format!("{} WHERE link_digest = ?1 AND link_expires_at_ms > ?2 AND {STAYS}", OPS_USERS.select);
            let Some(user) = one(db, &sql, params![link, now_ms], read)? else { return Ok(None) };
            let sql = "UPDATE {ops_users} SET password_hash = ?2, secret = COALESCE(secret, ?3), link_digest = NULL, link_expires_at_ms = NULL WHERE id = ?1";
            db.execute(sql, params![user.id, password_hash, secret])?;
            session::end_all::<OpsUser>(db, user.id, None)?;
            OpsUser::find(db, user.id)
        })
    }

    /// Keeps the secret of an authenticator until its first code. One that was shown to work stays, and the
    /// answer is no.
    pub fn offer_ops_authenticator(&self, id: OpsUserId, secret: Vec<u8>) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let sql = format!(
                "UPDATE {{ops_users}} SET secret = ?2 WHERE id = ?1 AND last_step IS NULL AND {STAYS}"
            );
            Ok(db.execute(&sql, params![id, secret])? > 0)
        })
    }
}

crate::db::id!(OpsUserId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOpsUser {
    pub id: OpsUserId,
    pub email: String,
    pub link: OpsLink,
    pub created_at_ms: u64,
}

/// Of the link that sets the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsLink {
    pub digest: Hash,
    pub expires_at_ms: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub struct OpsUser {
    pub id: OpsUserId,
    pub email: String,
    /// argon2id, as a PHC string; nothing until the link was used.
    pub password_hash: Option<String>,
    /// Of the authenticator; offered until `last_step` is there.
    pub secret: Option<Vec<u8>>,
    /// The newest time step of which a code was used; nothing until the first one has confirmed the
    /// authenticator.
    pub last_step: Option<u64>,
    pub link: Option<OpsLink>,
    pub created_at_ms: u64,
    pub removed_at_ms: Option<u64>,
}

impl OpsUser {
    /// Whether the authenticator is confirmed. Nobody sees anything before it is.
    pub fn is_enrolled(&self) -> bool {
        self.last_step.is_some()
    }
}

/// One that was removed is found no more. There are no recovery codes: the host is the recovery.
impl Account for OpsUser {
    type Id = OpsUserId;
    const TABLES: Tables = Tables {
        accounts: "{ops_users}",
        sessions: "{ops_sessions}",
        devices: "{ops_devices}",
        owner: "user_id",
        authenticators: "{ops_users}",
        holder: "id",
    };
    const ALWAYS_NEEDS_CODE: bool = true;

    fn id(&self) -> OpsUserId {
        self.id
    }

    fn find(db: &mut dyn Db, id: OpsUserId) -> Result<Option<OpsUser>, DbError> {
        one(db, &format!("{} WHERE id = ?1 AND {STAYS}", OPS_USERS.select), params![id], read)
    }

    fn by_email(db: &mut dyn Db, email: &str) -> Result<Option<(OpsUser, Option<String>)>, DbError> {
        let sql = format!("{} WHERE email_lower = ?1 AND {STAYS}", OPS_USERS.select);
        let user = one(db, &sql, params![email.to_lowercase()], read)?;
        Ok(user.map(|user| (user.clone(), user.password_hash)))
    }
}

/// Without its secrets.
impl std::fmt::Debug for OpsUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpsUser")
            .field("id", &self.id)
            .field("last_step", &self.last_step)
            .finish_non_exhaustive()
    }
}

const OPS_USERS: Table = table!(
    "ops_users",
    "id",
    "id, email, email_lower, password_hash, secret, last_step, link_digest, link_expires_at_ms, \
     created_at_ms, removed_at_ms"
);
const STAYS: &str = "removed_at_ms IS NULL";

fn add(db: &mut dyn Db, new: NewOpsUser) -> Result<OpsUser, DbError> {
    let NewOpsUser { id, email, link, created_at_ms } = new;
    if let Some((known, _)) = OpsUser::by_email(db, &email)? {
        if known.is_enrolled() {
            return Err(DbError::AlreadyExists);
        }
        let sql = "UPDATE {ops_users} SET link_digest = ?2, link_expires_at_ms = ?3 WHERE id = ?1";
        db.execute(sql, params![known.id, link.digest, link.expires_at_ms])?;
        return Ok(OpsUser { link: Some(link), ..known });
    }
    let user = OpsUser {
        id,
        email,
        password_hash: None,
        secret: None,
        last_step: None,
        link: Some(link),
        created_at_ms,
        removed_at_ms: None,
    };
    insert(db, &user).map(|()| user)
}

fn insert(db: &mut dyn Db, user: &OpsUser) -> Result<(), DbError> {
    let params = params![
        user.id,
        &user.email,
        user.email.to_lowercase(),
        &user.password_hash,
        user.secret.clone(),
        user.last_step,
        user.link.map(|link| link.digest),
        user.link.map(|link| link.expires_at_ms),
        user.created_at_ms,
        user.removed_at_ms,
    ];
    OPS_USERS.insert(db, params, "").map(drop)
}

fn read(row: &Row) -> Result<OpsUser, DbError> {
    let (digest, expires_at_ms) = (row.get("link_digest")?, row.get("link_expires_at_ms")?);
    Ok(OpsUser {
        id: row.get("id")?,
        email: row.get("email")?,
        password_hash: row.get("password_hash")?,
        secret: row.get("secret")?,
        last_step: row.get("last_step")?,
        link: Option::zip(digest, expires_at_ms)
            .map(|(digest, expires_at_ms)| OpsLink { digest, expires_at_ms }),
        created_at_ms: row.get("created_at_ms")?,
        removed_at_ms: row.get("removed_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<OpsUser>, DbError> {
    OPS_USERS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, users: &[OpsUser]) -> Result<(), DbError> {
    users.iter().try_for_each(|user| insert(db, user))
}
