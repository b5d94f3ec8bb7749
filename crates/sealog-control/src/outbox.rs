//! The outbox: notices that wait to be mailed.
//!
//! A notice is kept as the name of a template and its parameters, and becomes text when it is sent. A secret
//! that goes into a link is made then, too, and only its digest is kept: what is in here, or in a backup of
//! it, opens nothing.

use sealog_core::id::{Hash, TenantId};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Value, all, count, one, params, readable};
use crate::person::PersonId;

/// How long the text of a notice is kept after it was sent, or given up.
const KEPT_MS: u64 = 90 * 24 * 60 * 60 * 1000;

impl Control {
    /// Puts a notice into the outbox, unless one with the same key was put there before. Whether it is new.
    pub fn enqueue_notice(&self, new: NewNotice) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| enqueue(db, new))
    }

    /// Several at once: all of them, or none. How many are new.
    pub fn enqueue_notices(&self, new: Vec<NewNotice>) -> Answer<'_, usize> {
        self.change(Lock::None, move |db| {
            let mut queued = 0;
            for new in new {
                queued += usize::from(enqueue(db, new)?);
            }
            Ok(queued)
        })
    }

    /// Notices that are due, oldest first.
    pub fn due_notices(&self, now_ms: u64, limit: usize) -> Answer<'_, Vec<Notice>> {
        self.read(move |db| {
            let sql = format!("{OUTBOX} WHERE {WAITS} AND due_at_ms <= ?1 ORDER BY id LIMIT ?2");
            readable(db, &sql, params![now_ms, limit], read_notice)
        })
    }

    /// Takes a notice for one attempt: of any number of callers that found it due, one. It is due again at
    /// `until_ms`, whatever has become of the caller, unless the attempt's outcome was noted before. Whether
    /// it is the caller's. The digest is that of the secret which this attempt sends; the one of an attempt
    /// before it is gone.
    pub fn claim_notice(
        &self,
        id: i64,
        now_ms: u64,
        until_ms: u64,
        secret_digest: Option<Hash>,
    ) -> Answer<'_, bool> {
        // Whoever comes second waits for the row, and then finds that it is not due.
        self.change(Lock::None, move |db| {
            let sql = format!(
                "UPDATE {{outbox}} SET due_at_ms = ?3, secret_digest = ?4
                 WHERE id = ?1 AND {WAITS} AND due_at_ms <= ?2"
            );
            Ok(db.execute(&sql, params![id, now_ms, until_ms, secret_digest])? > 0)
        })
    }

    /// What became of an attempt: sent, to be tried again at a time, or given up.
    pub fn notice_attempted(&self, id: i64, outcome: NoticeOutcome) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| attempted(db, id, &outcome))
    }

    /// What became of the notices with these keys, as far as there are such.
    pub fn notices_with_keys(&self, keys: Vec<String>) -> Answer<'_, Vec<KeptNotice>> {
        self.read(move |db| {
            let mut found = Vec::new();
            for key in keys {
                let sql = format!("{OUTBOX} WHERE notice_key = ?1");
                found.extend(one(db, &sql, params![&key], read_kept)?);
            }
            Ok(found)
        })
    }

    /// Those for a person that were made since a time, newest first.
    pub fn notices_for(
        &self,
        person_id: PersonId,
        since_ms: u64,
        limit: usize,
    ) -> Answer<'_, Vec<KeptNotice>> {
        self.read(move |db| {
            let sql = format!(
                "{OUTBOX} WHERE person_id = ?1 AND created_at_ms >= ?2 ORDER BY created_at_ms DESC, id DESC LIMIT ?3"
            );
            all(db, &sql, params![person_id, since_ms, limit], read_kept)
        })
    }

    /// Those on behalf of a tenant that were given up, newest first, for as long as their text is kept.
    pub fn given_up_notices(&self, tenant_id: TenantId, limit: usize) -> Answer<'_, Vec<KeptNotice>> {
        self.read(move |db| {
            let sql = format!(
                "{OUTBOX} WHERE tenant_id = ?1 AND {GIVEN_UP}
                 ORDER BY given_up_at_ms DESC, id DESC LIMIT ?2"
            );
            all(db, &sql, params![tenant_id, limit], read_kept)
        })
    }

    /// Notices that wait.
    pub fn pending_notices(&self) -> Answer<'_, u64> {
        self.read(|db| count(db, &format!("SELECT count(*) AS count FROM {{outbox}} WHERE {WAITS}"), &[]))
    }

    /// Notices that were given up, for as long as their text is kept.
    pub fn count_given_up(&self) -> Answer<'_, u64> {
        self.read(|db| count(db, &format!("SELECT count(*) AS count FROM {{outbox}} WHERE {GIVEN_UP}"), &[]))
    }

    /// The notice that this secret was sent with.
    pub fn notice_by_secret(&self, secret_digest: Hash) -> Answer<'_, Option<Notice>> {
        self.read(move |db| {
            let sql = format!("{OUTBOX} WHERE secret_digest = ?1 AND recipient IS NOT NULL");
            one(db, &sql, params![secret_digest], read_notice)
        })
    }

    /// A secret is used once. Whether it was the caller who did.
    pub fn spend_secret(&self, secret_digest: Hash) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| spend(db, secret_digest))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNotice {
    /// What makes it unique: a notice is due once under its key.
    pub key: String,
    /// On whose behalf it is sent, if on a tenant's.
    pub tenant_id: Option<TenantId>,
    /// Whom it is for, where that is somebody with an account.
    pub person_id: Option<PersonId>,
    pub to: String,
    pub template: String,
    /// A JSON object.
    pub parameters: String,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub id: i64,
    pub key: String,
    pub tenant_id: Option<TenantId>,
    pub person_id: Option<PersonId>,
    pub to: String,
    pub template: String,
    pub parameters: String,
    pub created_at_ms: u64,
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeOutcome {
    Sent {
        now_ms: u64,
    },
    Failed {
        retry_at_ms: u64,
        cause: String,
    },
    /// It is not tried again. Its key stays taken.
    GivenUp {
        now_ms: u64,
        cause: String,
    },
}

/// A notice as it is kept, sent or not. Address and parameters of one that was sent or given up long ago are
/// gone; its key stays taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptNotice {
    pub key: String,
    pub tenant_id: Option<TenantId>,
    pub person_id: Option<PersonId>,
    pub to: Option<String>,
    pub template: String,
    pub parameters: Option<String>,
    pub secret_digest: Option<Hash>,
    pub created_at_ms: u64,
    pub due_at_ms: u64,
    pub attempts: u32,
    pub last_failure: Option<String>,
    pub sent_at_ms: Option<u64>,
    pub given_up_at_ms: Option<u64>,
}

impl From<NewNotice> for KeptNotice {
    fn from(new: NewNotice) -> KeptNotice {
        let NewNotice { key, tenant_id, person_id, to, template, parameters, created_at_ms } = new;
        KeptNotice {
            key,
            tenant_id,
            person_id,
            to: Some(to),
            template,
            parameters: Some(parameters),
            secret_digest: None,
            created_at_ms,
            due_at_ms: created_at_ms,
            attempts: 0,
            last_failure: None,
            sent_at_ms: None,
            given_up_at_ms: None,
        }
    }
}

const OUTBOX: &str = "SELECT id, notice_key, tenant_id, person_id, recipient, template, parameters, secret_digest, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms, given_up_at_ms
    FROM {outbox}";
pub(crate) const WAITS: &str = "sent_at_ms IS NULL AND given_up_at_ms IS NULL";
/// As its index has it.
const GIVEN_UP: &str = "given_up_at_ms IS NOT NULL AND parameters IS NOT NULL";

pub(crate) fn enqueue(db: &mut dyn Db, new: NewNotice) -> Result<bool, DbError> {
    Ok(insert(db, &new.into())? > 0)
}

/// The key of the notice that this secret was sent with.
pub(crate) fn key_by_secret(db: &mut dyn Db, secret_digest: Hash) -> Result<Option<String>, DbError> {
    let sql = "SELECT notice_key FROM {outbox} WHERE secret_digest = ?1";
    one(db, sql, params![secret_digest], |row| row.get("notice_key"))
}

pub(crate) fn spend(db: &mut dyn Db, secret_digest: Hash) -> Result<bool, DbError> {
    let sql = "UPDATE {outbox} SET secret_digest = NULL WHERE secret_digest = ?1";
    Ok(db.execute(sql, params![secret_digest])? > 0)
}

fn insert(db: &mut dyn Db, notice: &KeptNotice) -> Result<u64, DbError> {
    db.execute(
        "INSERT INTO {outbox} (notice_key, tenant_id, person_id, recipient, template, parameters, secret_digest, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms, given_up_at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (notice_key) DO NOTHING",
        params![
            &notice.key,
            notice.tenant_id,
            notice.person_id,
            &notice.to,
            &notice.template,
            &notice.parameters,
            notice.secret_digest,
            notice.created_at_ms,
            notice.due_at_ms,
            notice.attempts,
            &notice.last_failure,
            notice.sent_at_ms,
            notice.given_up_at_ms,
        ],
    )
}

fn attempted(db: &mut dyn Db, id: i64, outcome: &NoticeOutcome) -> Result<(), DbError> {
    let mut set = |what: &str, params: &[Value]| {
        let sql = format!("UPDATE {{outbox}} SET attempts = attempts + 1, {what} WHERE id = ?1 AND {WAITS}");
        db.execute(&sql, params).map(drop)
    };
    match outcome {
        NoticeOutcome::Sent { now_ms } => {
            set("sent_at_ms = ?2", params![id, *now_ms])?;
            remove_old(db, *now_ms)
        }
        NoticeOutcome::Failed { retry_at_ms, cause } => {
            set("due_at_ms = ?2, last_failure = ?3", params![id, *retry_at_ms, cause])
        }
        NoticeOutcome::GivenUp { now_ms, cause } => {
            set("given_up_at_ms = ?2, last_failure = ?3", params![id, *now_ms, cause])?;
            remove_old(db, *now_ms)
        }
    }
}

/// Takes out what is not needed any more of notices that ended long ago.
fn remove_old(db: &mut dyn Db, now_ms: u64) -> Result<(), DbError> {
    for end in ["sent_at_ms", "given_up_at_ms"] {
        let sql = format!(
            "UPDATE {{outbox}} SET recipient = NULL, parameters = NULL, secret_digest = NULL, last_failure = NULL
             WHERE {end} IS NOT NULL AND parameters IS NOT NULL AND {end} <= ?1"
        );
        db.execute(&sql, params![now_ms.saturating_sub(KEPT_MS)])?;
    }
    Ok(())
}

/// One that did not end long ago.
fn read_notice(row: &Row) -> Result<Notice, DbError> {
    Ok(Notice {
        id: row.get("id")?,
        key: row.get("notice_key")?,
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        to: row.get("recipient")?,
        template: row.get("template")?,
        parameters: row.get("parameters")?,
        created_at_ms: row.get("created_at_ms")?,
        attempts: row.get("attempts")?,
    })
}

fn read_kept(row: &Row) -> Result<KeptNotice, DbError> {
    Ok(KeptNotice {
        key: row.get("notice_key")?,
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        to: row.get("recipient")?,
        template: row.get("template")?,
        parameters: row.get("parameters")?,
        secret_digest: row.get("secret_digest")?,
        created_at_ms: row.get("created_at_ms")?,
        due_at_ms: row.get("due_at_ms")?,
        attempts: row.get("attempts")?,
        last_failure: row.get("last_failure")?,
        sent_at_ms: row.get("sent_at_ms")?,
        given_up_at_ms: row.get("given_up_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<KeptNotice>, DbError> {
    all(db, &format!("{OUTBOX} ORDER BY id"), &[], read_kept)
}

pub(crate) fn import(db: &mut dyn Db, notices: &[KeptNotice]) -> Result<(), DbError> {
    notices.iter().try_for_each(|notice| insert(db, notice).map(drop))
}
