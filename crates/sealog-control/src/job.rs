//! Jobs: work that takes longer than a request. One node at a time has a job, under a lease; when the lease
//! ends, because the node has died or is stuck, another one goes on from the last position that was kept.
//!
//! A claim has a number. Whoever has lost the lease and does not know it yet has an older number, and is told
//! so at the next step instead of writing over what the new owner has done.

use sealog_core::id::TenantId;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, ListPage, Lock, Row, Table, Value, all, count, one, params, readable, table};
use crate::person::PersonId;
use crate::record::{self, NewRecord};

impl Control {
    pub fn create_job(&self, new: NewJob) -> Answer<'_, Job> {
        self.change(Lock::Order, move |db| {
            let job = Job::from(new);
            insert(db, &job).map(|()| job)
        })
    }

    /// As [`Jobs::create_job`], unless there is one with this id: of any number of callers, one makes it.
    /// Whether it is new.
    pub fn create_job_once(&self, new: NewJob) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            if find(db, new.id)?.is_some() {
                return Ok(false);
            }
            insert(db, &Job::from(new)).map(|()| true)
        })
    }

    /// Removes jobs of a kind that nobody asked for and that ended before, oldest first. How many.
    pub fn forget_jobs(&self, kind: String, ended_before_ms: u64, limit: usize) -> Answer<'_, u64> {
        self.change(Lock::Order, move |db| {
            let sql =
                "DELETE FROM {jobs} WHERE id IN (SELECT id FROM {jobs} WHERE kind = ?1 AND person_id IS NULL
                       AND ended_at_ms < ?2 ORDER BY number LIMIT ?3)";
            db.execute(sql, params![kind, ended_before_ms, limit])
        })
    }

    /// As [`Jobs::create_job`], with records for the system chain of its tenant. Nothing, and no record, if
    /// people of the tenant have asked for so many jobs of the kind that have not ended.
    pub fn queue_job(
        &self,
        new: NewJob,
        unended_max: usize,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<Job>> {
        let room = self.tenant_room();
        // The place in the order is held from here on: nobody counts between the count and the row.
        self.change(Lock::Order, move |db| {
            let queued = queue(db, new, unended_max, &records)?;
            if let Some(tenant_id) = queued.as_ref().and_then(|job| job.tenant_id) {
                room.check(db, tenant_id)?;
            }
            Ok(queued)
        })
    }

    /// Jobs of a kind that nobody works on: new ones, and those whose lease has ended. Oldest first.
    pub fn due_jobs(&self, kind: String, now_ms: u64, limit: usize) -> Answer<'_, Vec<Job>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE kind = ?1 AND ended_at_ms IS NULL AND due_at_ms <= ?2 ORDER BY number LIMIT ?3",
                JOBS.select
            );
            // One that cannot be read keeps none behind it waiting.
            readable(db, &sql, params![kind, now_ms, limit], read)
        })
    }

    /// Takes a job: of any number of callers that found it due, one. It is due again at `until_ms` unless the
    /// lease is extended. Nothing if it is not the caller's. Where the one before has not given it back, the
    /// job has taken its node with it, or so it seems: that is counted in [`Job::deaths`].
    pub fn claim_job(&self, id: JobId, now_ms: u64, until_ms: u64) -> Answer<'_, Option<Job>> {
        self.change(Lock::None, move |db| {
            // Whoever comes second waits for the row, and then finds that it is not due.
            let sql = "UPDATE {jobs} SET state = 'running', claim = claim + 1, due_at_ms = ?3,
                       deaths = deaths + CASE WHEN held = ?4 THEN 1 ELSE 0 END, held = ?4
                       WHERE id = ?1 AND ended_at_ms IS NULL AND due_at_ms <= ?2";
            match db.execute(sql, params![id, now_ms, until_ms, true])? {
                0 => Ok(None),
                _ => find(db, id),
            }
        })
    }

    /// Keeps the position of a job that goes on, and extends the lease. Whether it is still the caller's.
    pub fn advance_job(&self, id: JobId, claim: u64, position: Vec<u8>, until_ms: u64) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let sql = "UPDATE {jobs} SET position = ?3, due_at_ms = ?4, failing_since_ms = NULL
                       WHERE id = ?1 AND claim = ?2 AND ended_at_ms IS NULL";
            Ok(db.execute(sql, params![id, claim, position, until_ms])? > 0)
        })
    }

    /// Gives a job back: it is due at `due_at_ms`, for whoever claims it, from this position on. Whether it
    /// was still the caller's.
    pub fn give_job_back(
        &self,
        id: JobId,
        claim: u64,
        position: Vec<u8>,
        due_at_ms: u64,
        back: JobBack,
    ) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let failing = match back {
                JobBack::Worked => "NULL",
                JobBack::Untouched | JobBack::Died => "failing_since_ms",
                JobBack::Failing { .. } => "?7",
            };
            let died = u64::from(back == JobBack::Died);
            let sql = format!(
                "UPDATE {{jobs}} SET position = ?3, due_at_ms = ?4, held = ?5, deaths = deaths + ?6, failing_since_ms = {failing}
                 WHERE id = ?1 AND claim = ?2 AND ended_at_ms IS NULL"
            );
            let mut params = params![id, claim, position, due_at_ms, false, died].to_vec();
            if let JobBack::Failing { since_ms } = back {
                params.push(since_ms.into());
            }
            Ok(db.execute(&sql, &params)? > 0)
        })
    }

    /// Ends a job. Whether it was still the caller's; if it was not, nothing is recorded.
    pub fn end_job(&self, id: JobId, claim: u64, end: JobEnd) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let JobEnd { outcome, position, at_ms, records } = end;
            let (state, cause) = match outcome {
                JobOutcome::Done => (JobState::Done, None),
                JobOutcome::Failed { cause } => (JobState::Failed, Some(cause)),
            };
            let sql = "UPDATE {jobs} SET state = ?3, cause = ?4, ended_at_ms = ?5, position = COALESCE(?6, position)
                       WHERE id = ?1 AND claim = ?2 AND ended_at_ms IS NULL";
            let ended = db.execute(sql, params![id, claim, state.as_str(), cause, at_ms, position])? > 0;
            record_end(db, id, ended, &records)
        })
    }

    /// Ends a job whoever works on it, who is told at the next step. Whether it had not ended.
    pub fn cancel_job(&self, id: JobId, now_ms: u64, records: Vec<NewRecord>) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let sql = "UPDATE {jobs} SET state = 'cancelled', ended_at_ms = ?2 WHERE id = ?1 AND ended_at_ms IS NULL";
            let ended = db.execute(sql, params![id, now_ms])? > 0;
            record_end(db, id, ended, &records)
        })
    }

    pub fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        self.read(move |db| find(db, id))
    }

    pub fn jobs(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Job>> {
        self.read(move |db| JOBS.page(db, Some(("tenant_id", tenant_id.into())), page, read))
    }

    /// Those of a kind about one subject, newest first: what was created before `page.after`.
    pub fn jobs_about(
        &self,
        tenant_id: TenantId,
        kind: String,
        subject: String,
        page: ListPage,
    ) -> Answer<'_, Vec<Job>> {
        self.read(move |db| {
            let mut params = vec![tenant_id.into(), kind.into(), subject.into(), page.limit.into()];
            let scope = "tenant_id = ?1 AND kind = ?2 AND subject = ?3";
            let mut sql = format!("{} WHERE {scope}", JOBS.select);
            if let Some(after) = page.after {
                params.push(Value::from(after));
                sql.push_str(&format!(
                    " AND number < (SELECT number FROM {{jobs}} WHERE id = ?5 AND {scope})"
                ));
            }
            sql.push_str(" ORDER BY number DESC LIMIT ?4");
            all(db, &sql, &params, read)
        })
    }

    /// Those of all tenants and of the operator, newest first: what was created before `page.after`. Only
    /// those that have not ended, if that is asked for.
    pub fn all_jobs(&self, unended: bool, page: ListPage) -> Answer<'_, Vec<Job>> {
        self.read(move |db| {
            let mut params = vec![page.limit.into()];
            let scope = if unended { "ended_at_ms IS NULL" } else { "true" };
            let mut sql = format!("{} WHERE {scope}", JOBS.select);
            if let Some(after) = page.after {
                params.push(Value::from(after));
                sql.push_str(" AND number < (SELECT number FROM {jobs} WHERE id = ?2)");
            }
            sql.push_str(" ORDER BY number DESC LIMIT ?1");
            all(db, &sql, &params, read)
        })
    }
}

crate::db::id!(JobId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub id: JobId,
    /// Who knows how to do it.
    pub kind: String,
    /// Nothing for a job of the operator.
    pub tenant_id: Option<TenantId>,
    /// Who asked for it.
    pub person_id: Option<PersonId>,
    /// What it is about, by which it is found.
    pub subject: Option<String>,
    /// What to do; a JSON object.
    pub parameters: String,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub kind: String,
    pub tenant_id: Option<TenantId>,
    pub person_id: Option<PersonId>,
    pub subject: Option<String>,
    pub parameters: String,
    pub state: JobState,
    /// How far it has got, in a form that only its kind knows.
    pub position: Option<Vec<u8>>,
    /// How often it was claimed, which is the number of the last claim.
    pub claim: u64,
    /// When it can be claimed: the end of the lease.
    pub due_at_ms: u64,
    /// Why it failed.
    pub cause: Option<String>,
    pub created_at_ms: u64,
    pub ended_at_ms: Option<u64>,
    /// Since when it cannot go on; nothing once it has.
    pub failing_since_ms: Option<u64>,
    /// How often it panicked, or was not given back by its node before the lease ended.
    pub deaths: u64,
    /// Whether somebody has it who has not given it back.
    pub held: bool,
}

impl From<NewJob> for Job {
    fn from(new: NewJob) -> Job {
        let NewJob { id, kind, tenant_id, person_id, subject, parameters, created_at_ms } = new;
        Job {
            id,
            kind,
            tenant_id,
            person_id,
            subject,
            parameters,
            state: JobState::Waiting,
            position: None,
            claim: 0,
            due_at_ms: created_at_ms,
            cause: None,
            created_at_ms,
            ended_at_ms: None,
            failing_since_ms: None,
            deaths: 0,
            held: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Nobody has claimed it yet.
    Waiting,
    /// Somebody has; with a lease that is over, nobody knows whether they still work on it.
    Running,
    Done,
    Failed,
    /// By a person.
    Cancelled,
}

impl JobState {
    pub const ALL: [JobState; 5] =
        [JobState::Waiting, JobState::Running, JobState::Done, JobState::Failed, JobState::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Done,
    Failed { cause: String },
}

/// Why a job is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobBack {
    /// It went on, and others have their turn.
    Worked,
    /// Nothing was done that tells whether it can be done.
    Untouched,
    /// It could not go on.
    Failing { since_ms: u64 },
    /// It panicked.
    Died,
}

/// How a job ends, for whoever has it.
#[derive(Clone, Debug)]
pub struct JobEnd {
    pub outcome: JobOutcome,
    /// What it has come to, in the form of its kind; without one, the last position stays.
    pub position: Option<Vec<u8>>,
    pub at_ms: u64,
    /// For the system chain of its tenant.
    pub records: Vec<NewRecord>,
}

impl JobEnd {
    pub fn new(outcome: JobOutcome, at_ms: u64) -> JobEnd {
        JobEnd { outcome, position: None, at_ms, records: Vec::new() }
    }
}

const JOBS: Table = table!(
    "jobs",
    "id",
    "id, kind, tenant_id, person_id, subject, parameters, state, position, claim, due_at_ms, cause, \
     created_at_ms, ended_at_ms, failing_since_ms, deaths, held"
);

/// In a transaction that holds its place in the order, with what the job is about.
pub(crate) fn queue(
    db: &mut dyn Db,
    new: NewJob,
    unended_max: usize,
    records: &[NewRecord],
) -> Result<Option<Job>, DbError> {
    let job = Job::from(new);
    let tenant_id = job.tenant_id.ok_or(DbError::NoOwner)?;
    let sql = "SELECT count(*) AS count FROM {jobs} WHERE tenant_id = ?1 AND kind = ?2 AND person_id IS NOT NULL AND ended_at_ms IS NULL";
    if count(db, sql, params![tenant_id, &job.kind])? >= unended_max as u64 {
        return Ok(None);
    }
    insert(db, &job)?;
    record::insert(db, tenant_id, records)?;
    Ok(Some(job))
}

fn insert(db: &mut dyn Db, job: &Job) -> Result<(), DbError> {
    let params = params![
        job.id,
        &job.kind,
        job.tenant_id,
        job.person_id,
        &job.subject,
        &job.parameters,
        job.state.as_str(),
        job.position.clone(),
        job.claim,
        job.due_at_ms,
        &job.cause,
        job.created_at_ms,
        job.ended_at_ms,
        job.failing_since_ms,
        job.deaths,
        job.held,
    ];
    JOBS.insert(db, params, "").map(drop)
}

/// In the transaction that has ended it.
fn record_end(db: &mut dyn Db, id: JobId, ended: bool, records: &[NewRecord]) -> Result<bool, DbError> {
    let job = if ended { find(db, id)? } else { None };
    if let Some(tenant_id) = job.and_then(|job| job.tenant_id) {
        record::insert(db, tenant_id, records)?;
    }
    Ok(ended)
}

fn find(db: &mut dyn Db, id: JobId) -> Result<Option<Job>, DbError> {
    one(db, &format!("{} WHERE id = ?1", JOBS.select), params![id], read)
}

fn read(row: &Row) -> Result<Job, DbError> {
    Ok(Job {
        id: row.get("id")?,
        kind: row.get("kind")?,
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        subject: row.get("subject")?,
        parameters: row.get("parameters")?,
        state: row.word("state", &JobState::ALL, JobState::as_str)?,
        position: row.get("position")?,
        claim: row.get("claim")?,
        due_at_ms: row.get("due_at_ms")?,
        cause: row.get("cause")?,
        created_at_ms: row.get("created_at_ms")?,
        ended_at_ms: row.get("ended_at_ms")?,
        failing_since_ms: row.get("failing_since_ms")?,
        deaths: row.get("deaths")?,
        held: row.get("held")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Job>, DbError> {
    JOBS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, jobs: &[Job]) -> Result<(), DbError> {
    jobs.iter().try_for_each(|job| insert(db, job))
}
