//! A verification as people see it: a job of this kind, read.

use sealog_control::{Job, JobState, PersonId};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use serde_json::{Value, json};

use super::found::{Found, Neighbour, Seen};

/// Of its jobs.
pub const KIND: &str = "verify";

#[derive(Clone, Debug)]
pub struct Run {
    pub id: Uuid,
    pub chain: ChainId,
    /// Both included; frozen when it was started.
    pub from: u64,
    pub to: u64,
    pub person_id: Option<PersonId>,
    pub created_at_ms: u64,
    pub progress: Progress,
    pub end: Option<RunEnd>,
    pub ended_at_ms: Option<u64>,
    /// Somebody has begun to work on it.
    pub is_begun: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Valid,
    Broken(Box<Found>),
    /// Why it could not be done.
    Failed(String),
    Cancelled,
}

/// How far it has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All below it was checked.
    pub next: u64,
    pub checked: u64,
    /// When the first piece was begun.
    pub begun_at_ms: Option<u64>,
    pub first: Option<Neighbour>,
    pub last: Option<Neighbour>,
    pub broken: Option<Box<Found>>,
}

impl Run {
    /// Nothing for a job of another kind, or of a version that is not known here.
    pub(crate) fn of(job: &Job) -> Option<Run> {
        if job.kind != KIND {
            return None;
        }
        let parameters: Value = serde_json::from_str(&job.parameters).ok()?;
        let (chain, from, to) = parse_parameters(job.tenant_id?, &parameters)?;
        let progress = Progress::parse(from, job.position.as_deref().unwrap_or_default());
        let end = match job.state {
            JobState::Waiting | JobState::Running => None,
            JobState::Done => Some(progress.broken.clone().map_or(RunEnd::Valid, RunEnd::Broken)),
            JobState::Failed => Some(RunEnd::Failed(job.cause.clone().unwrap_or_default())),
            JobState::Cancelled => Some(RunEnd::Cancelled),
        };
        Some(Run {
            id: job.id.0,
            chain,
            from,
            to,
            person_id: job.person_id,
            created_at_ms: job.created_at_ms,
            progress,
            end,
            ended_at_ms: job.ended_at_ms,
            is_begun: job.state != JobState::Waiting,
        })
    }

    /// The last that was found to be sound, if any was.
    pub fn sound_to(&self) -> Option<u64> {
        let end = self.progress.broken.as_ref().map_or(self.progress.next, |broken| broken.begins_at());
        (end > self.from).then(|| end - 1)
    }

    /// What somebody may know of it who sees a part of the chain, which all of the run lies in.
    pub fn within(mut self, seen: &Seen) -> Run {
        let progress = &mut self.progress;
        progress.first = progress.first.filter(|event| seen.shows(event));
        progress.last = progress.last.filter(|event| seen.shows(event));
        progress.broken = progress.broken.take().map(|found| Box::new(found.within(seen)));
        if let Some(RunEnd::Broken(found)) = self.end {
            self.end = Some(RunEnd::Broken(Box::new(found.within(seen))));
        }
        self
    }

    /// Events between its ends.
    pub fn total(&self) -> u64 {
        self.to - self.from + 1
    }

    /// From 0 to 100.
    pub fn percent(&self) -> u64 {
        let done = self.progress.next.saturating_sub(self.from).min(self.total());
        u64::try_from(u128::from(done) * 100 / u128::from(self.total())).unwrap_or(100)
    }
}

pub(super) fn parameters(chain: ChainId, from: u64, to: u64) -> Value {
    json!({ "project_id": chain.project_id.to_string(), "mode": chain.mode.as_str(), "from": from, "to": to })
}

fn parse_parameters(tenant_id: TenantId, value: &Value) -> Option<(ChainId, u64, u64)> {
    let project_id = ProjectId(Uuid::parse(value["project_id"].as_str()?)?);
    let mode = Mode::ALL.into_iter().find(|mode| Some(mode.as_str()) == value["mode"].as_str())?;
    let (from, to) = (value["from"].as_u64()?, value["to"].as_u64()?);
    (1 <= from && from <= to).then_some((ChainId { tenant_id, project_id, mode }, from, to))
}

/// By which the runs of a chain are found.
pub(super) fn subject(chain: ChainId) -> String {
    format!("{}/{}", chain.project_id, chain.mode.as_str())
}

impl Progress {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let value = json!({
            "next": self.next,
            "checked": self.checked,
            "begun_at_ms": self.begun_at_ms,
            "first": self.first.map(Neighbour::to_json),
            "last": self.last.map(Neighbour::to_json),
            "broken": self.broken.as_ref().map(|broken| broken.to_json()),
        });
        value.to_string().into_bytes()
    }

    /// Nothing was done where there is no position.
    pub(super) fn parse(from: u64, bytes: &[u8]) -> Progress {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        Progress {
            next: value["next"].as_u64().unwrap_or(from),
            checked: value["checked"].as_u64().unwrap_or(0),
            begun_at_ms: value["begun_at_ms"].as_u64(),
            first: Neighbour::parse(&value["first"]),
            last: Neighbour::parse(&value["last"]),
            broken: Found::parse(&value["broken"]).map(Box::new),
        }
    }
}
