//! Events of the catalog that a case puts into the live chains of its projects: they wait here until they are
//! there.
//!
//! An event commits in the transaction of the step that it tells of. It is then sent as any other event is,
//! under an idempotency key, and noted with its place in the chain; after a crash between the two it is sent
//! again, and the chain answers from the first time.

use sealog_core::id::{ProjectId, TenantId, Uuid};

use crate::case_record::CaseId;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, params, readable, table};

pub trait CaseEvents: Send + Sync {
    /// Those that are due, oldest first. Of those for one chain only the first: they go in their order.
    fn due_case_events(&self, now_ms: u64, limit: usize) -> Answer<'_, Vec<CaseEvent>>;
    /// What became of an attempt. Whether it was still waiting.
    fn case_event_attempted(&self, id: Uuid, outcome: CaseEventOutcome) -> Answer<'_, bool>;
    /// Of a case, in their order.
    fn events_of_case(&self, tenant_id: TenantId, id: CaseId, limit: usize) -> Answer<'_, Vec<CaseEvent>>;
}

impl CaseEvents for Control {
    fn due_case_events(&self, now_ms: u64, limit: usize) -> Answer<'_, Vec<CaseEvent>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE ended_at_ms IS NULL AND due_at_ms <= ?1
                 AND number = (SELECT min(before.number) FROM {{case_events}} AS before WHERE before.project_id = case_events.project_id AND before.ended_at_ms IS NULL)
                 ORDER BY number LIMIT ?2",
                EVENTS.select
            );
            readable(db, &sql, params![now_ms, limit], read)
        })
    }

    fn case_event_attempted(&self, id: Uuid, outcome: CaseEventOutcome) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let (ended_at_ms, due_at_ms, seq, cause) = match outcome {
                CaseEventOutcome::Sealed { chain_seq, now_ms } => (Some(now_ms), None, Some(chain_seq), None),
                CaseEventOutcome::Refused { cause, now_ms } => (Some(now_ms), None, None, Some(cause)),
                CaseEventOutcome::Failed { cause, retry_at_ms } => {
                    (None, Some(retry_at_ms), None, Some(cause))
                }
            };
            let sql = "UPDATE {case_events} SET attempts = attempts + 1, ended_at_ms = ?2, due_at_ms = COALESCE(?3, due_at_ms), chain_seq = ?4, cause = ?5
                       WHERE id = ?1 AND ended_at_ms IS NULL";
            Ok(db.execute(sql, params![id, ended_at_ms, due_at_ms, seq, cause])? > 0)
        })
    }

    fn events_of_case(&self, tenant_id: TenantId, id: CaseId, limit: usize) -> Answer<'_, Vec<CaseEvent>> {
        self.read(move |db| {
            let sql =
                format!("{} WHERE tenant_id = ?1 AND case_id = ?2 ORDER BY number LIMIT ?3", EVENTS.select);
            all(db, &sql, params![tenant_id, id, limit], read)
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCaseEvent {
    /// Chosen by the caller from randomness.
    pub id: Uuid,
    pub project_id: ProjectId,
    /// The idempotency key in the project's live chain: one that was there before is not put here again.
    pub key: String,
    pub action: String,
    /// The event as it will be sent.
    pub body: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseEvent {
    pub case_id: CaseId,
    pub tenant_id: TenantId,
    pub new: NewCaseEvent,
    pub created_at_ms: u64,
    pub due_at_ms: u64,
    pub attempts: u64,
    /// Why it was refused, or could not be sent yet.
    pub cause: Option<String>,
    pub chain_seq: Option<u64>,
    pub ended_at_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseEventOutcome {
    Sealed {
        chain_seq: u64,
        now_ms: u64,
    },
    /// For good: the project does not take it.
    Refused {
        cause: String,
        now_ms: u64,
    },
    Failed {
        cause: String,
        retry_at_ms: u64,
    },
}

const EVENTS: Table = table!(
    "case_events",
    "id",
    "id, case_id, tenant_id, project_id, key, action, body, created_at_ms, due_at_ms, attempts, cause, \
     chain_seq, ended_at_ms"
);

/// In the transaction of the step that they tell of.
pub(crate) fn add(
    db: &mut dyn Db,
    tenant_id: TenantId,
    case_id: CaseId,
    now_ms: u64,
    events: Vec<NewCaseEvent>,
) -> Result<(), DbError> {
    events.into_iter().try_for_each(|new| {
        let event = CaseEvent {
            case_id,
            tenant_id,
            new,
            created_at_ms: now_ms,
            due_at_ms: now_ms,
            attempts: 0,
            cause: None,
            chain_seq: None,
            ended_at_ms: None,
        };
        insert(db, &event)
    })
}

fn insert(db: &mut dyn Db, event: &CaseEvent) -> Result<(), DbError> {
    let NewCaseEvent { id, project_id, key, action, body } = &event.new;
    let params = params![
        *id,
        event.case_id,
        event.tenant_id,
        *project_id,
        key,
        action,
        body,
        event.created_at_ms,
        event.due_at_ms,
        event.attempts,
        &event.cause,
        event.chain_seq,
        event.ended_at_ms,
    ];
    EVENTS.insert(db, params, "ON CONFLICT (project_id, key) DO NOTHING").map(drop)
}

fn read(row: &Row) -> Result<CaseEvent, DbError> {
    Ok(CaseEvent {
        case_id: row.get("case_id")?,
        tenant_id: row.get("tenant_id")?,
        new: NewCaseEvent {
            id: row.get("id")?,
            project_id: row.get("project_id")?,
            key: row.get("key")?,
            action: row.get("action")?,
            body: row.get("body")?,
        },
        created_at_ms: row.get("created_at_ms")?,
        due_at_ms: row.get("due_at_ms")?,
        attempts: row.get("attempts")?,
        cause: row.get("cause")?,
        chain_seq: row.get("chain_seq")?,
        ended_at_ms: row.get("ended_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<CaseEvent>, DbError> {
    EVENTS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, events: &[CaseEvent]) -> Result<(), DbError> {
    events.iter().try_for_each(|event| insert(db, event))
}
