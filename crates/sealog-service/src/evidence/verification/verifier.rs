//! The work: windows of a chain, one after the other, by the one verifier.

use std::sync::Arc;

use sealog_control::{Job, NewRecord};
use sealog_core::query::SeqRange;
use sealog_store::world::World;
use sealog_store::{BoxFuture, Store, StoreError, verify};
use serde_json::json;

use super::found::Found;
use super::run::{KIND, Progress, Run};
use super::{found, mails, noted};
use crate::jobs::{Step, Work};
use crate::records::system_chain::{Actor, Recorder, actions};
use sealog_control::Control;

/// Events of a piece, which is a window as the API checks it: a few milliseconds, or a few seconds if each is
/// as large as can be.
pub const PIECE_EVENTS: u64 = 1000;

#[derive(Clone)]
pub struct Verifier {
    pub store: Arc<dyn Store>,
    /// Of the tenants that are told of a break.
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
}

impl Work for Verifier {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn step<'a>(&'a self, job: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let Some(run) = Run::of(job) else {
                return Ok(Step::Failed { cause: "its parameters are unknown".into(), records: vec![] });
            };
            self.check(&run, Progress::parse(run.from, position)).await
        })
    }
}

impl Verifier {
    async fn check(&self, run: &Run, mut progress: Progress) -> Result<Step, StoreError> {
        let store = &*self.store;
        // Events of a test chain may have been dropped for their age since it was started.
        let first_kept = store.head(run.chain).await?.first_seq();
        progress.next = progress.next.max(first_kept).min(run.to.saturating_add(1));
        let from = progress.next;
        if from > run.to {
            return self.finish(run, progress).await;
        }
        if progress.begun_at_ms.is_none() {
            progress.begun_at_ms = Some(self.world.now_ms());
            progress.first = found::at(store, run.chain, from).await?;
        }
        let to = run.to.min(from.saturating_add(PIECE_EVENTS - 1));
        let verdict = verify::window(store, run.chain, SeqRange { from, to }).await?;
        if verdict.first_seq != from {
            // Dropped since it was looked for.
            return Ok(Step::More(progress.to_bytes()));
        }
        progress.checked += verdict.checked;
        if let Some(broken) = verdict.broken {
            let found = found::look(store, run.chain, broken).await?;
            self.note_break(run, &mut progress, found).await?;
        } else {
            progress.next = verdict.last_seq.saturating_add(1);
        }
        // A chain that has accepted a loss meanwhile ends earlier than it did.
        if progress.broken.is_none() && progress.next <= run.to && verdict.last_seq == to {
            return Ok(Step::More(progress.to_bytes()));
        }
        if let Some(last) = progress.next.checked_sub(1).filter(|last| *last >= run.from) {
            progress.last = found::at(store, run.chain, last).await?;
        }
        self.finish(run, progress).await
    }

    /// What is valid by itself is compared with the end that an earlier run has seen.
    async fn finish(&self, run: &Run, mut progress: Progress) -> Result<Step, StoreError> {
        if progress.broken.is_none()
            && let Some(found) = noted::contradiction(&*self.store, &self.control, run.chain).await?
        {
            self.note_break(run, &mut progress, found).await?;
        }
        Ok(Step::Done { position: progress.to_bytes(), records: vec![self.record(run, &progress)] })
    }

    async fn note_break(&self, run: &Run, progress: &mut Progress, found: Found) -> Result<(), StoreError> {
        // Before the job ends: one that is done again finds the notice in the outbox.
        mails::enqueue_failed(&self.control, &self.world, run, &found).await?;
        let project = mails::name_of(&self.control, run.chain).await?;
        let (mode, reason) = (run.chain.mode.as_str(), &found.reason);
        tracing::error!(project, mode, chain = %run.chain, at = found.at, reason, "a chain is broken");
        progress.broken = Some(Box::new(found));
        Ok(())
    }

    fn record(&self, run: &Run, progress: &Progress) -> NewRecord {
        let (action, broken) = match &progress.broken {
            None => (&actions::VERIFICATION_ENDED, None),
            Some(broken) => (&actions::CHAIN_BROKEN, Some(broken)),
        };
        let metadata = json!({
            "project_id": run.chain.project_id.to_string(),
            "mode": run.chain.mode.as_str(),
            "first_seq": run.from,
            "last_seq": run.to,
            "checked": progress.checked,
            "valid": broken.is_none(),
            "last_hash": progress.last.map(|last| last.hash.to_string()),
            "broken_at": broken.map(|broken| broken.at),
            "broken_hash": broken.and_then(|broken| broken.hash).map(|hash| hash.to_string()),
            "reason": broken.map(|broken| broken.reason.clone()),
            "started_by": run.person_id.map(|id| id.0.to_string()),
        });
        let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
        recorder.record(action, &format!("verification/{}", run.id), metadata)
    }
}
