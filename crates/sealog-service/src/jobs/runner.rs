//! The runner: does the jobs that are due, one at a time, so that ingest and pages keep the machine.
//!
//! There is one in every process, and on PostgreSQL several look at the same jobs. A job is claimed before it
//! is begun, under a lease:
//!
//! ```text
//! t0  nodes A and B find a job due
//! t1  A claims it; B is told no, and looks for another one
//! t2  A does pieces, and about once a second keeps its position, which extends the lease
//! t3  A is told to stop: it drops the piece and gives the job back at once; or A dies
//! t4  the job is due again (if A died, when the lease is over): whoever claims it goes on from the position
//! ```
//!
//! A claim has a number. If A was only slow, it learns at its next write that the job is not its own any
//! more; so it does when somebody has cancelled the job. A job that takes long gives way to others from time
//! to time.
//!
//! A job that cannot go on is tried again, until it has failed for a day without going on in between. One
//! that panics, or whose nodes end without giving it back, has failed after a few times: it would take every
//! node with it, one after the other.

use sealog_control::Control;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_control::{Job, JobBack, JobEnd, JobId, JobOutcome, NewRecord};
use sealog_store::StoreError;
use sealog_store::world::World;

use super::work::{Step, Work};
use crate::jobs::stop::Stop;
use crate::jobs::supervise::caught;
use crate::records::system_chain::Wake;

/// How long a job stays with a node that says nothing. Longer than the longest piece.
pub const LEASE_MS: u64 = 60_000;
/// Of the jobs that are due, those among which turns are taken.
const DUE_MAX: usize = 100;
/// After the store could not be read.
const RETRY_MS: u64 = 10_000;
/// A job that cannot go on for so long has failed. Its age is no reason: it may have waited for days before
/// it was begun.
const GIVE_UP_MS: u64 = 24 * 60 * 60 * 1000;
/// A job that has panicked, or taken its node with it, so often has failed.
pub const DEATHS_MAX: u64 = 5;
/// To give a job back when the process ends; a lease ends by itself.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How a job is done in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often the position is kept. A cancelled job runs on for at most so long, and a piece.
    pub keep_every: Duration,
    /// How long a job has its turn when others wait.
    pub slice: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { keep_every: Duration::from_secs(1), slice: Duration::from_secs(5) }
    }
}

/// Whose turn it was: the kind, and the last job of each.
#[derive(Debug, Default)]
pub struct Turns {
    kind: Option<&'static str>,
    jobs: HashMap<&'static str, JobId>,
    /// Jobs that gave way and stay with this node, which holds their leases.
    parked: Vec<Parked>,
}

#[derive(Debug)]
struct Parked {
    kind: &'static str,
    job: Job,
    position: Vec<u8>,
}

pub struct Runner {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    /// Every kind that this process can do.
    pub works: Vec<Arc<dyn Work>>,
    /// After a job was queued in this process.
    pub wake: Wake,
    /// Tells the drain of this process that there are records.
    pub records: Wake,
    /// For what other processes have queued, and for leases that have ended.
    pub every: Duration,
    pub pace: Pace,
}

impl Runner {
    /// Runs until it is told to stop. What it has under way then is given back.
    pub async fn run(&self, stop: &Stop) {
        let mut last = None;
        while !stop.is_stopped() {
            let looked = tokio::select! {
                looked = self.turn(stop, &mut last) => looked,
                () = async { stop.stopped().await; tokio::time::sleep(STOP_MAX).await } => return,
            };
            match looked {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, retry_in_s = self.every.as_secs(), "failed to poll for jobs; retrying");
                }
            }
            tokio::select! {
                () = stop.stopped() => {}
                () = self.wake.woken() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
        let parked = last.map(|last| last.parked).unwrap_or_default();
        let give_back = async {
            for Parked { job, position, .. } in parked {
                let now_ms = self.world.now_ms();
                if let Err(error) = self.give_back(&job, position, now_ms, JobBack::Worked).await {
                    tracing::warn!(kind = job.kind, job = %job.id.0, %error, "failed to release a job; it resumes when its lease expires");
                }
            }
        };
        let _ = tokio::time::timeout(STOP_MAX, give_back).await;
    }

    /// Gives the next job that is due its turn. Whether there was one. Kinds take turns, and so do the jobs
    /// of one: a night of verifications keeps nobody's export waiting. `last` is what had its turn before.
    pub async fn turn(&self, stop: &Stop, last: &mut Option<Turns>) -> Result<bool, StoreError> {
        let last = last.get_or_insert_default();
        self.hold_parked(&mut last.parked).await?;
        let next = self.works.iter().position(|work| Some(work.kind()) == last.kind).map_or(0, |at| at + 1);
        for work in self.works.iter().cycle().skip(next).take(self.works.len()) {
            let (kind, now_ms) = (work.kind(), self.world.now_ms());
            let due = self.control.due_jobs(kind.into(), now_ms, DUE_MAX).await?;
            let parked = last.parked.iter().filter(|parked| parked.kind == kind).map(|parked| parked.job.id);
            let waiting: Vec<JobId> = due.iter().map(|job| job.id).chain(parked).collect();
            let before = last.jobs.get(kind);
            let behind = waiting.iter().position(|id| Some(id) == before).map_or(0, |at| at + 1);
            for id in waiting.iter().cycle().skip(behind).take(waiting.len()) {
                let until_ms = now_ms.saturating_add(LEASE_MS);
                let at = last.parked.iter().position(|parked| parked.job.id == *id);
                let (job, position) = match at.map(|at| last.parked.remove(at)) {
                    Some(Parked { job, position, .. }) => (job, position),
                    None => match self.control.claim_job(*id, now_ms, until_ms).await? {
                        Some(job) => {
                            let position = job.position.clone().unwrap_or_default();
                            (job, position)
                        }
                        None => continue,
                    },
                };
                last.kind = Some(kind);
                last.jobs.insert(kind, job.id);
                self.slice(&**work, job, position, stop, &mut last.parked).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does pieces of a job until it has ended, is somebody else's, or others wait.
    async fn slice(
        &self,
        work: &dyn Work,
        job: Job,
        mut position: Vec<u8>,
        stop: &Stop,
        parked: &mut Vec<Parked>,
    ) -> Result<(), StoreError> {
        if job.deaths >= DEATHS_MAX {
            let cause = format!("it panicked or its server exited {DEATHS_MAX} times during the work");
            return self.end(&job, JobOutcome::Failed { cause }, None, Vec::new()).await;
        }
        let (mut begun, mut kept, mut worked) = (Instant::now(), Instant::now(), false);
        loop {
            let step = tokio::select! {
                biased;
                () = stop.stopped() => None,
                // A panic is this job's, and no reason to stop the others.
                step = caught(async { work.step(&job, &position).await }) => Some(step),
            };
            let now_ms = self.world.now_ms();
            let (outcome, result, records) = match step {
                None => {
                    let back = if worked { JobBack::Worked } else { JobBack::Untouched };
                    return self.give_back(&job, position, now_ms, back).await;
                }
                Some(Ok(Ok(Step::More(next)))) => {
                    (position, worked) = (next, true);
                    if begun.elapsed() >= self.pace.slice {
                        if !parked.is_empty() || self.others_wait(now_ms).await? {
                            // What it has in memory would have to be made again by another node, which gives
                            // way as soon.
                            if work.stays() && !position.is_empty() {
                                let until_ms = now_ms.saturating_add(LEASE_MS);
                                let kept = position.clone();
                                if self.control.advance_job(job.id, job.claim, kept, until_ms).await? {
                                    parked.push(Parked { kind: work.kind(), job, position });
                                }
                                return Ok(());
                            }
                            return self.give_back(&job, position, now_ms, JobBack::Worked).await;
                        }
                        begun = Instant::now();
                    }
                    if kept.elapsed() >= self.pace.keep_every {
                        let until_ms = now_ms.saturating_add(LEASE_MS);
                        if !self.control.advance_job(job.id, job.claim, position.clone(), until_ms).await? {
                            return Ok(());
                        }
                        kept = Instant::now();
                    }
                    // The event loop has others to serve.
                    tokio::task::yield_now().await;
                    continue;
                }
                Some(Ok(Ok(Step::Done { position, records }))) => (JobOutcome::Done, Some(position), records),
                Some(Ok(Ok(Step::Failed { cause, records }))) => {
                    (JobOutcome::Failed { cause }, None, records)
                }
                Some(Ok(Err(error))) => {
                    let since_ms = job.failing_since_ms.filter(|_| !worked).unwrap_or(now_ms);
                    if now_ms.saturating_sub(since_ms) < GIVE_UP_MS {
                        tracing::warn!(kind = job.kind, job = %job.id.0, %error, retry_in_s = RETRY_MS / 1000, "a job failed; retrying");
                        let back = JobBack::Failing { since_ms };
                        return self.give_back(&job, position, now_ms.saturating_add(RETRY_MS), back).await;
                    }
                    (JobOutcome::Failed { cause: error.to_string() }, None, Vec::new())
                }
                Some(Err(panic)) if job.deaths + 1 < DEATHS_MAX => {
                    tracing::error!(kind = job.kind, job = %job.id.0, panic, retry_in_s = RETRY_MS / 1000, "a job panicked; retrying a few times");
                    let due_at_ms = now_ms.saturating_add(RETRY_MS);
                    return self.give_back(&job, position, due_at_ms, JobBack::Died).await;
                }
                Some(Err(panic)) => {
                    (JobOutcome::Failed { cause: format!("it panicked: {panic}") }, None, Vec::new())
                }
            };
            return self.end(&job, outcome, result, records).await;
        }
    }

    async fn end(
        &self,
        job: &Job,
        outcome: JobOutcome,
        position: Option<Vec<u8>>,
        records: Vec<NewRecord>,
    ) -> Result<(), StoreError> {
        if let JobOutcome::Failed { cause } = &outcome {
            tracing::error!(kind = job.kind, job = %job.id.0, cause, "a job failed for good");
        }
        let end = JobEnd { outcome, position, at_ms: self.world.now_ms(), records };
        self.control.end_job(job.id, job.claim, end).await?;
        self.records.wake();
        Ok(())
    }

    /// Extends the leases of jobs that wait for their turn here. One that was cancelled, or is another
    /// node's, is forgotten.
    async fn hold_parked(&self, parked: &mut Vec<Parked>) -> Result<(), StoreError> {
        let mut at = 0;
        while let Some(Parked { job, position, .. }) = parked.get(at) {
            let until_ms = self.world.now_ms().saturating_add(LEASE_MS);
            match self.control.advance_job(job.id, job.claim, position.clone(), until_ms).await? {
                true => at += 1,
                false => drop(parked.remove(at)),
            }
        }
        Ok(())
    }

    /// It is due at that time, from this position on.
    async fn give_back(
        &self,
        job: &Job,
        position: Vec<u8>,
        due_at_ms: u64,
        back: JobBack,
    ) -> Result<(), StoreError> {
        self.control.give_job_back(job.id, job.claim, position, due_at_ms, back).await.map(drop)
    }

    async fn others_wait(&self, now_ms: u64) -> Result<bool, StoreError> {
        for work in &self.works {
            if !self.control.due_jobs(work.kind().into(), now_ms, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
