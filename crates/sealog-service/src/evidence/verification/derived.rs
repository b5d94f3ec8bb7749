//! The nightly comparison: derived data (indexes, counts, usage) with the events, drops of test events with
//! their records, control data with the system chains. One job of the store, not of a chain. A step is a
//! segment, some rows of a database, or some tenants; the position is kept, so a restart goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_control::{Job, JobId, ListPage, NewJob};
use sealog_core::id::Uuid;
use sealog_store::world::World;
use sealog_store::{BoxFuture, Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{baseline_job, noted, sealed_state};
use crate::jobs::{Step, Work};
use crate::records::system_chain::drops;
use sealog_control::Control;

/// Of its jobs.
pub const DERIVED_KIND: &str = "derived";
/// The longest rest behind a step. It is as long as the step otherwise, so that at most half of a disk's time
/// goes into this.
const REST_MAX: Duration = Duration::from_secs(1);
/// Tenants of one step.
const TENANTS: usize = 20;
/// Nights before, in which a comparison that has not ended is looked for.
const NIGHTS_BACK: u64 = 14;

/// Does them.
pub struct DerivedCheck {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
}

/// How far one has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    position: Vec<u8>,
    events: u64,
    faults: u64,
    /// Derived data was compared.
    is_derived: bool,
    /// The last tenant whose control data was compared.
    after: Option<Uuid>,
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
            is_derived: figures["derived"] == true,
            after: figures["after"].as_str().and_then(Uuid::parse),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let after = self.after.map(|after| after.to_string());
        let Progress { events, faults, is_derived, .. } = self;
        let figures = json!({ "events": events, "faults": faults, "derived": is_derived, "after": after });
        let mut bytes = figures.to_string().into_bytes();
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
            if !progress.is_derived {
                self.compare_derived(&mut progress).await?;
            } else if self.compare_tenants(&mut progress).await? {
                let Progress { events, faults, .. } = progress;
                tracing::info!(events, faults, "compared derived data and control data with the events");
                return Ok(Step::Done { position: progress.to_bytes(), records: Vec::new() });
            }
            tokio::time::sleep(begun.elapsed().min(REST_MAX)).await;
            Ok(Step::More(progress.to_bytes()))
        })
    }
}

impl DerivedCheck {
    async fn compare_derived(&self, progress: &mut Progress) -> Result<(), StoreError> {
        let step = self.store.check_derived(std::mem::take(&mut progress.position), true).await?;
        progress.events += step.events;
        progress.faults += step.faults.len() as u64;
        match step.next {
            Some(next) => progress.position = next,
            None => progress.is_derived = true,
        }
        Ok(())
    }

    /// What was dropped of test chains is compared with the records of it, and the control data of some
    /// tenants with their system chains. Whether those were the last.
    async fn compare_tenants(&self, progress: &mut Progress) -> Result<bool, StoreError> {
        if baseline_job::is_waiting(&self.control).await? {
            return Ok(true);
        }
        let mut faults = Vec::new();
        if progress.after.is_none() {
            faults.extend(drops::check(&*self.store).await?.unrecorded);
            faults.extend(sealed_state::unnamed(&*self.store, &self.control).await?);
        }
        let page = ListPage { after: progress.after, limit: TENANTS };
        let tenants = self.control.tenants(page).await?;
        for tenant in &tenants {
            faults.extend(sealed_state::of_tenant(&*self.store, &self.control, tenant.id).await?);
            faults.extend(noted::gone(&*self.store, &self.control, tenant.id).await?);
            progress.after = Some(tenant.id.0);
        }
        for fault in &faults {
            tracing::error!(
                fault,
                "stored data does not match its sealed or previously seen state; keep a copy as evidence"
            );
        }
        progress.faults += faults.len() as u64;
        Ok(tenants.len() < TENANTS)
    }
}

/// Queues the comparison of a night, once, whatever the number of servers; not while one of an earlier night
/// goes on.
pub(super) async fn queue(jobs: &Control, world: &dyn World, night: u64) -> Result<bool, StoreError> {
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

/// What the comparison of this night, or of the one before, has found; nothing while neither has ended.
pub(super) async fn differences(jobs: &Control, night: u64) -> Result<Option<u64>, StoreError> {
    for night in [night, night.saturating_sub(1)] {
        if let Some(job) = jobs.job(JobId(job_id(night))).await?.filter(|job| job.ended_at_ms.is_some()) {
            return Ok(job.position.map(|position| Progress::parse(&position).faults));
        }
    }
    Ok(None)
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
        let after = Some(Uuid([3; 16]));
        let position = vec![0, b'\n', 255];
        let progress = Progress { position, events: 7, faults: 1, is_derived: true, after };
        assert_eq!(Progress::parse(&progress.to_bytes()), progress);
        assert_eq!(Progress::parse(b""), Progress::default());
    }
}
