//! Jobs: work that takes longer than a request. One node at a time has a job, under a lease; when the lease
//! ends, because the node has died or is stuck, another one goes on from the last position that was kept.
//!
//! A claim has a number. Whoever has lost the lease and does not know it yet has an older number, and is told
//! so at the next step instead of writing over what the new owner has done.

use sealog_core::id::{TenantId, Uuid};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, FromValue, ListPage, Listed, Lock, Row, Value, all, one, params};
use crate::person::PersonId;

pub trait Jobs: Send + Sync {
    fn create_job(&self, new: NewJob) -> Answer<'_, Job>;
    /// Jobs of a kind that nobody works on: new ones, and those whose lease has ended. Oldest first.
    fn due_jobs(&self, kind: String, now_ms: u64, limit: usize) -> Answer<'_, Vec<Job>>;
    /// Takes a job: of any number of callers that found it due, one. It is due again at `until_ms` unless the
    /// lease is extended. Nothing if it is not the caller's.
    fn claim_job(&self, id: JobId, now_ms: u64, until_ms: u64) -> Answer<'_, Option<Job>>;
    /// Keeps the position and extends the lease; `until_ms` of now gives the job back. Whether it is still
    /// the caller's.
    fn advance_job(&self, id: JobId, claim: u64, position: Vec<u8>, until_ms: u64) -> Answer<'_, bool>;
    /// Ends a job. Whether it was still the caller's.
    fn end_job(&self, id: JobId, claim: u64, outcome: JobOutcome, now_ms: u64) -> Answer<'_, bool>;
    fn job(&self, id: JobId) -> Answer<'_, Option<Job>>;
    fn jobs(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Job>>;
}

impl Jobs for Control {
    fn create_job(&self, new: NewJob) -> Answer<'_, Job> {
        self.change(Lock::Order, move |db| {
            let job = Job::from(new);
            insert(db, &job).map(|()| job)
        })
    }

    fn due_jobs(&self, kind: String, now_ms: u64, limit: usize) -> Answer<'_, Vec<Job>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE kind = ?1 AND ended_at_ms IS NULL AND due_at_ms <= ?2 ORDER BY number LIMIT ?3",
                JOBS.select
            );
            all(db, &sql, params![kind, now_ms, limit], read)
        })
    }

    fn claim_job(&self, id: JobId, now_ms: u64, until_ms: u64) -> Answer<'_, Option<Job>> {
        self.change(Lock::None, move |db| {
            // Whoever comes second waits for the row, and then finds that it is not due.
            let sql = "UPDATE {jobs} SET state = 'running', claim = claim + 1, due_at_ms = ?3
                       WHERE id = ?1 AND ended_at_ms IS NULL AND due_at_ms <= ?2";
            match db.execute(sql, params![id, now_ms, until_ms])? {
                0 => Ok(None),
                _ => find(db, id),
            }
        })
    }

    fn advance_job(&self, id: JobId, claim: u64, position: Vec<u8>, until_ms: u64) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let sql = "UPDATE {jobs} SET position = ?3, due_at_ms = ?4
                       WHERE id = ?1 AND claim = ?2 AND ended_at_ms IS NULL";
            Ok(db.execute(sql, params![id, claim, position, until_ms])? > 0)
        })
    }

    fn end_job(&self, id: JobId, claim: u64, outcome: JobOutcome, now_ms: u64) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let (state, cause) = match outcome {
                JobOutcome::Done => (JobState::Done, None),
                JobOutcome::Failed { cause } => (JobState::Failed, Some(cause)),
            };
            let sql = "UPDATE {jobs} SET state = ?3, cause = ?4, ended_at_ms = ?5
                       WHERE id = ?1 AND claim = ?2 AND ended_at_ms IS NULL";
            Ok(db.execute(sql, params![id, claim, state.as_str(), cause, now_ms])? > 0)
        })
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        self.read(move |db| find(db, id))
    }

    fn jobs(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Job>> {
        self.read(move |db| JOBS.page(db, Some(("tenant_id", tenant_id.into())), page, read))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub Uuid);

impl From<JobId> for Value {
    fn from(id: JobId) -> Value {
        id.0.into()
    }
}

impl FromValue for JobId {
    fn from_value(value: &Value) -> Option<JobId> {
        Uuid::from_value(value).map(JobId)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub id: JobId,
    /// Who knows how to do it.
    pub kind: String,
    /// Nothing for a job of the operator.
    pub tenant_id: Option<TenantId>,
    /// Who asked for it.
    pub person_id: Option<PersonId>,
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
}

impl From<NewJob> for Job {
    fn from(new: NewJob) -> Job {
        let NewJob { id, kind, tenant_id, person_id, parameters, created_at_ms } = new;
        Job {
            id,
            kind,
            tenant_id,
            person_id,
            parameters,
            state: JobState::Waiting,
            position: None,
            claim: 0,
            due_at_ms: created_at_ms,
            cause: None,
            created_at_ms,
            ended_at_ms: None,
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
}

impl JobState {
    pub const ALL: [JobState; 4] = [JobState::Waiting, JobState::Running, JobState::Done, JobState::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Done,
    Failed { cause: String },
}

const JOBS: Listed = Listed {
    select: "SELECT id, kind, tenant_id, person_id, parameters, state, position, claim, due_at_ms, cause, created_at_ms, ended_at_ms FROM {jobs}",
    table: "jobs",
    id: "id",
};

fn insert(db: &mut dyn Db, job: &Job) -> Result<(), DbError> {
    let sql = "INSERT INTO {jobs} (id, kind, tenant_id, person_id, parameters, state, position, claim, due_at_ms, cause, created_at_ms, ended_at_ms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let params = params![
        job.id,
        &job.kind,
        job.tenant_id,
        job.person_id,
        &job.parameters,
        job.state.as_str(),
        job.position.clone(),
        job.claim,
        job.due_at_ms,
        &job.cause,
        job.created_at_ms,
        job.ended_at_ms,
    ];
    db.execute(sql, params).map(drop)
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
        parameters: row.get("parameters")?,
        state: row.word("state", &JobState::ALL, JobState::as_str)?,
        position: row.get("position")?,
        claim: row.get("claim")?,
        due_at_ms: row.get("due_at_ms")?,
        cause: row.get("cause")?,
        created_at_ms: row.get("created_at_ms")?,
        ended_at_ms: row.get("ended_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Job>, DbError> {
    JOBS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, jobs: &[Job]) -> Result<(), DbError> {
    jobs.iter().try_for_each(|job| insert(db, job))
}
