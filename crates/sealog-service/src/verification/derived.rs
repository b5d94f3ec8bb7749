//! The nightly comparison of derived data (indexes, counts, usage) with the events: one job of the store, not
//! of a chain. A step is a segment, or some rows of a database; the position is kept, so a restart goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_control::{Job, JobId, Jobs, NewJob};
use sealog_core::id::Uuid;
use sealog_store::world::World;
use sealog_store::{BoxFuture, Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::baseline;
use crate::jobs::{Step, Work};
use crate::system_chain::drops;

/// Of its jobs.
pub const DERIVED_KIND: &str = "derived";
/// The longest rest behind a step. It is as long as the step otherwise, so that at most half of a disk's time
/// goes into this.
const REST_MAX: Duration = Duration::from_secs(1);
/// Nights before, in which a comparison that has not ended is looked for.
const NIGHTS_BACK: u64 = 14;

/// Does them.
pub struct DerivedCheck {
    pub store: Arc<dyn Store>,
    pub jobs: Arc<dyn Jobs>,
}

impl std::fmt::Debug for DerivedCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DerivedCheck")
    }
}

/// How far one has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    position: Vec<u8>,
    events: u64,
    faults: u64,
}

impl Progress {
    /// A position that another version has written begins anew.
    fn parse(bytes: &[u8]) -> Progress {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Progress::default() };
        let figures: Value = serde_json::from_slice(&bytes[..end]).unwrap_or_default();
        Progress {
            position: bytes[end + 1..].to_vec(),
            events: figures["events"].as_u64().unwrap_or(0),
            faults: figures["faults"].as_u64().unwrap_or(0),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = json!({ "events": self.events, "faults": self.faults }).to_string().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.position);
        bytes
    }
}

impl Work for DerivedCheck {
    fn kind(&self) -> &'static str {
        DERIVED_KIND
    }

    fn step<'a>(&'a self, _: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let mut progress = Progress::parse(position);
            let begun = Instant::now();
            let step = self.store.check_derived(std::mem::take(&mut progress.position), true).await?;
            progress.events += step.events;
            progress.faults += step.faults.len() as u64;
            let Some(next) = step.next else {
                progress.faults += self.check_drops().await?;
                let Progress { events, faults, .. } = progress;
                tracing::info!(events, faults, "derived data was compared with the events");
                return Ok(Step::Done { position: progress.to_bytes(), records: Vec::new() });
            };
            progress.position = next;
            tokio::time::sleep(begun.elapsed().min(REST_MAX)).await;
            Ok(Step::More(progress.to_bytes()))
        })
    }
}

impl DerivedCheck {
    /// What was dropped of test chains is compared with the records of it. How many have none.
    async fn check_drops(&self) -> Result<u64, StoreError> {
        if !baseline::is_sealed(&*self.jobs).await? {
            return Ok(0);
        }
        let found = drops::check(&*self.store).await?;
        for fault in &found.unrecorded {
            tracing::error!(fault, "dropped events have no record");
        }
        Ok(found.unrecorded.len() as u64)
    }
}

/// Queues the comparison of a night, once, whatever the number of servers; not while one of an earlier night
/// goes on.
pub(super) async fn queue(jobs: &dyn Jobs, world: &dyn World, night: u64) -> Result<bool, StoreError> {
    for before in (night.saturating_sub(NIGHTS_BACK)..=night).rev() {
        match jobs.job(JobId(job_id(before))).await? {
            Some(job) if before == night || job.ended_at_ms.is_none() => return Ok(false),
            _ => {}
        }
    }
    let new = NewJob {
        id: JobId(job_id(night)),
        kind: DERIVED_KIND.into(),
        tenant_id: None,
        person_id: None,
        subject: None,
        parameters: "{}".into(),
        created_at_ms: world.now_ms(),
    };
    jobs.create_job_once(new).await?;
    Ok(true)
}

fn job_id(night: u64) -> Uuid {
    let digest = Sha256::digest(format!("sealog comparison of derived data\0{night}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Uuid::from_random(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_back_whatever_the_position_holds() {
        let progress = Progress { position: vec![0, b'\n', 255], events: 7, faults: 1 };
        assert_eq!(Progress::parse(&progress.to_bytes()), progress);
        assert_eq!(Progress::parse(b""), Progress::default());
    }
}
