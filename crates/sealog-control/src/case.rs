//! Cases: requests of data subjects, with what was done to each.
//!
//! Every write names the revision that it has seen. One that comes second is refused and gets the case as it
//! is now: two people on one case never overwrite each other's work silently. The case, the entry of its
//! history, the record for the tenant's system chain, events for its projects and notices commit together or
//! not at all.

use sealog_core::id::TenantId;

use crate::case_entry::{self, CaseEntry, NewCaseEntry};
use crate::case_event::{self, NewCaseEvent};
use crate::case_found;
use crate::case_record::{self, CASES, Case, CaseId};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, ListPage, Lock, Value, all, count, one, params, readable};
use crate::outbox::{self, NewNotice};
use crate::person::PersonId;
use crate::record::{self, NewRecord};

/// What is kept together with a case.
#[derive(Clone, Debug)]
pub struct CaseWrite {
    pub entry: NewCaseEntry,
    /// For the tenant's system chain.
    pub records: Vec<NewRecord>,
    pub events: Vec<NewCaseEvent>,
    pub notices: Vec<NewNotice>,
    /// Nothing is written if a decision about the events of the case is this person's.
    pub not_decided_by: Option<PersonId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseSaved {
    Done(Box<Case>),
    /// Somebody else was there before: nothing was written. The case as it is.
    Stale(Box<Case>),
    /// So many decisions are of [`CaseWrite::not_decided_by`].
    Reviewed(u64),
    Missing,
}

impl Control {
    /// `number` and `revision` of the case are given here: the next ones. Nothing if there is no such tenant.
    pub fn create_case(&self, mut case: Case, with: CaseWrite) -> Answer<'_, Case> {
        // In one order, so that two at a time do not get the same number.
        let room = self.tenant_room();
        self.change(Lock::Order, move |db| {
            let sql = "SELECT COALESCE(max(case_number), 0) AS count FROM {cases} WHERE tenant_id = ?1";
            case.number = count(db, sql, params![case.tenant_id])? + 1;
            case.revision = 1;
            case_record::insert(db, &case)?;
            keep(db, &case, with)?;
            room.check(db, case.tenant_id)?;
            Ok(case)
        })
    }

    /// Writes a case over the revision that it has; it gets the next one. A tenant without room goes on with
    /// the steps of its cases, and can only not add to them.
    pub fn save_case(&self, mut case: Case, with: CaseWrite) -> Answer<'_, CaseSaved> {
        let (room, is_step) = (self.tenant_room(), with.entry.to.is_some());
        self.change(Lock::Order, move |db| {
            if let Some(person_id) = with.not_decided_by {
                let decisions = case_found::decided_by(db, case.id, person_id)?;
                if decisions > 0 {
                    return Ok(CaseSaved::Reviewed(decisions));
                }
            }
            case.revision += 1;
            if !case_record::update(db, &case)? {
                let now = case_record::find(db, case.tenant_id, case.id)?;
                return Ok(now.map_or(CaseSaved::Missing, |now| CaseSaved::Stale(Box::new(now))));
            }
            keep(db, &case, with)?;
            if !is_step {
                room.check(db, case.tenant_id)?;
            }
            Ok(CaseSaved::Done(Box::new(case)))
        })
    }

    pub fn case(&self, tenant_id: TenantId, id: CaseId) -> Answer<'_, Option<Case>> {
        self.read(move |db| case_record::find(db, tenant_id, id))
    }

    pub fn case_by_number(&self, tenant_id: TenantId, number: u64) -> Answer<'_, Option<Case>> {
        self.read(move |db| {
            let sql = format!("{} WHERE tenant_id = ?1 AND case_number = ?2", CASES.select);
            one(db, &sql, params![tenant_id, number], case_record::read)
        })
    }

    /// What is not closed, by the day on which it is due.
    pub fn open_cases(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Case>> {
        self.read(move |db| {
            let behind =
                "(due_day, number) > (SELECT due_day, number FROM {cases} WHERE tenant_id = ?1 AND id = ?3)";
            listed(db, tenant_id, "closed_at_ms IS NULL", behind, "due_day, number", page)
        })
    }

    /// What is closed, newest first.
    pub fn closed_cases(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Case>> {
        self.read(move |db| {
            let behind = "number < (SELECT number FROM {cases} WHERE tenant_id = ?1 AND id = ?3)";
            listed(db, tenant_id, "closed_at_ms IS NOT NULL", behind, "number DESC", page)
        })
    }

    /// What was received in a time, in the order of creation.
    pub fn cases_received(
        &self,
        tenant_id: TenantId,
        from_ms: u64,
        until_ms: u64,
        page: ListPage,
    ) -> Answer<'_, Vec<Case>> {
        self.read(move |db| {
            let scope = "tenant_id = ?1 AND received_at_ms >= ?2 AND received_at_ms < ?3";
            let mut params: Vec<Value> =
                vec![tenant_id.into(), from_ms.into(), until_ms.into(), page.limit.into()];
            let mut sql = format!("{} WHERE {scope}", CASES.select);
            if let Some(after) = page.after {
                params.push(after.into());
                sql.push_str(&format!(
                    " AND number > (SELECT number FROM {{cases}} WHERE id = ?5 AND {scope})"
                ));
            }
            sql.push_str(" ORDER BY number LIMIT ?4");
            all(db, &sql, &params, case_record::read)
        })
    }

    /// What waits for an answer in any tenant, in the order of creation.
    pub fn unanswered_cases(&self, page: ListPage) -> Answer<'_, Vec<Case>> {
        self.read(move |db| {
            let mut params = vec![Value::from(page.limit)];
            let mut sql = format!("{} WHERE answered_at_ms IS NULL", CASES.select);
            if let Some(after) = page.after {
                params.push(after.into());
                // Also behind one that was answered meanwhile.
                sql.push_str(" AND number > (SELECT number FROM {cases} WHERE id = ?2)");
            }
            sql.push_str(" ORDER BY number LIMIT ?1");
            readable(db, &sql, &params, case_record::read)
        })
    }

    /// Notes the day on which a case is due now, if it has this revision still. No write in the sense of
    /// revisions: it follows from what the case has, and from the calendar.
    pub fn note_case_due(&self, id: CaseId, revision: u64, due_day: i64) -> Answer<'_, ()> {
        self.change(Lock::None, move |db| {
            let sql = "UPDATE {cases} SET due_day = ?3 WHERE id = ?1 AND revision = ?2";
            db.execute(sql, params![id, revision, due_day]).map(drop)
        })
    }

    /// What was done to a case after a revision, in its order; 0 for everything.
    pub fn case_entries(
        &self,
        tenant_id: TenantId,
        id: CaseId,
        after_revision: u64,
        limit: usize,
    ) -> Answer<'_, Vec<CaseEntry>> {
        self.read(move |db| match case_record::find(db, tenant_id, id)? {
            Some(case) => case_entry::above(db, case.id, after_revision, limit),
            None => Ok(Vec::new()),
        })
    }
}

fn listed(
    db: &mut dyn Db,
    tenant_id: TenantId,
    which: &str,
    behind: &str,
    order: &str,
    page: ListPage,
) -> Result<Vec<Case>, DbError> {
    let mut params: Vec<Value> = vec![tenant_id.into(), page.limit.into()];
    let mut sql = format!("{} WHERE tenant_id = ?1 AND {which}", CASES.select);
    if let Some(after) = page.after {
        params.push(after.into());
        sql.push_str(&format!(" AND {behind}"));
    }
    sql.push_str(&format!(" ORDER BY {order} LIMIT ?2"));
    all(db, &sql, &params, case_record::read)
}

/// In the transaction that has written the case.
fn keep(db: &mut dyn Db, case: &Case, with: CaseWrite) -> Result<(), DbError> {
    let CaseWrite { entry, records, events, notices, not_decided_by: _ } = with;
    let now_ms = entry.at_ms;
    case_entry::insert(db, &CaseEntry { case_id: case.id, revision: case.revision, entry })?;
    case_event::add(db, case.tenant_id, case.id, now_ms, events)?;
    for notice in notices {
        outbox::enqueue(db, notice)?;
    }
    record::insert(db, case.tenant_id, &records)
}
