//! The outbox as those see it who run the instance: what became of each notice, and never what it says.

use sealog_core::id::TenantId;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Value, all, one, params};
use crate::outbox::WAITS;
use crate::record::{self, NewRecord};

impl Control {
    /// Newest first: those in a state, if one is given, that were made before another one.
    pub fn outbox_rows(
        &self,
        state: Option<NoticeState>,
        before: Option<i64>,
        limit: usize,
    ) -> Answer<'_, Vec<OutboxRow>> {
        self.read(move |db| {
            let mut params = vec![Value::from(limit)];
            let mut sql = format!("{ROWS} WHERE {}", state.map_or("true", NoticeState::condition));
            if let Some(before) = before {
                params.push(before.into());
                sql.push_str(" AND id < ?2");
            }
            sql.push_str(" ORDER BY id DESC LIMIT ?1");
            all(db, &sql, &params, read)
        })
    }

    pub fn outbox_row(&self, id: i64) -> Answer<'_, Option<OutboxRow>> {
        self.read(move |db| find(db, id))
    }

    /// It is due at once, also one that was given up, for as long as its text is kept. With records for the
    /// system chain of its tenant. Whether it was one that can be sent.
    pub fn retry_notice(&self, id: i64, now_ms: u64, records: Vec<NewRecord>) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let sql = "UPDATE {outbox} SET due_at_ms = ?2, given_up_at_ms = NULL
                       WHERE id = ?1 AND sent_at_ms IS NULL AND recipient IS NOT NULL AND parameters IS NOT NULL";
            let changed = db.execute(sql, params![id, now_ms])? > 0;
            keep(db, id, changed, &records)
        })
    }

    /// It is not tried again. Whether it waited.
    pub fn give_up_notice(&self, id: i64, now_ms: u64, records: Vec<NewRecord>) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let sql = format!("UPDATE {{outbox}} SET given_up_at_ms = ?2 WHERE id = ?1 AND {WAITS}");
            let changed = db.execute(&sql, params![id, now_ms])? > 0;
            keep(db, id, changed, &records)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeState {
    Waiting,
    Sent,
    GivenUp,
}

impl NoticeState {
    pub const ALL: [NoticeState; 3] = [NoticeState::Waiting, NoticeState::Sent, NoticeState::GivenUp];

    pub fn as_str(self) -> &'static str {
        match self {
            NoticeState::Waiting => "waiting",
            NoticeState::Sent => "sent",
            NoticeState::GivenUp => "given_up",
        }
    }

    fn condition(self) -> &'static str {
        match self {
            NoticeState::Waiting => WAITS,
            NoticeState::Sent => "sent_at_ms IS NOT NULL",
            NoticeState::GivenUp => "given_up_at_ms IS NOT NULL",
        }
    }
}

/// A notice without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    pub id: i64,
    pub tenant_id: Option<TenantId>,
    /// Gone some time after its end.
    pub to: Option<String>,
    pub template: String,
    pub created_at_ms: u64,
    pub due_at_ms: u64,
    pub attempts: u32,
    pub last_failure: Option<String>,
    pub sent_at_ms: Option<u64>,
    pub given_up_at_ms: Option<u64>,
}

impl OutboxRow {
    pub fn state(&self) -> NoticeState {
        match (self.sent_at_ms, self.given_up_at_ms) {
            (Some(_), _) => NoticeState::Sent,
            (None, Some(_)) => NoticeState::GivenUp,
            (None, None) => NoticeState::Waiting,
        }
    }
}

const ROWS: &str = "SELECT id, tenant_id, recipient, template, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms, given_up_at_ms FROM {outbox}";

fn find(db: &mut dyn Db, id: i64) -> Result<Option<OutboxRow>, DbError> {
    one(db, &format!("{ROWS} WHERE id = ?1"), params![id], read)
}

/// In the transaction of the change.
fn keep(db: &mut dyn Db, id: i64, changed: bool, records: &[NewRecord]) -> Result<bool, DbError> {
    let row = if changed { find(db, id)? } else { None };
    if let Some(tenant_id) = row.and_then(|row| row.tenant_id) {
        record::insert(db, tenant_id, records)?;
    }
    Ok(changed)
}

fn read(row: &Row) -> Result<OutboxRow, DbError> {
    Ok(OutboxRow {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        to: row.get("recipient")?,
        template: row.get("template")?,
        created_at_ms: row.get("created_at_ms")?,
        due_at_ms: row.get("due_at_ms")?,
        attempts: row.get("attempts")?,
        last_failure: row.get("last_failure")?,
        sent_at_ms: row.get("sent_at_ms")?,
        given_up_at_ms: row.get("given_up_at_ms")?,
    })
}
