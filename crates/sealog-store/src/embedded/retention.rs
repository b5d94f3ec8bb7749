//! Retention of test events: whole segments of the test log are dropped, oldest first, one at a time. Live
//! logs have none of this.
//!
//! ```text
//! t0  the oldest segment is full, indexed and sound, the high-water mark is past it, and each of its events
//!     is older than the limit
//!     what goes is planned, and whoever asked for the plan records it; nothing is dropped that was not
//!     planned
//! t1  the file `dropped` names it, and the last event of each chain in it: synced. From here on it is
//!     dropped
//! t2  chains, keys and counts forget it; a reader that was in it looks again and finds the chain that begins
//!     later
//! t3  its files are removed
//! ```
//! A crash before t1 has changed nothing; one after it leaves files that the next start removes
//! (`recovery/dropped.rs`). A segment with damage, with a gap before it or with events of a chain whose end
//! is not proven is evidence, and is not dropped; nor is any behind it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};

use super::contents::Contents;
use super::index::chain_index::{ChainState, SealedRun};
use super::log::segment::{counts_path, index_path, segment_path};
use super::recovery::dropped::Dropped;
use crate::error::StoreError;
use crate::store::{DropPlan, DropStep};
use crate::sync::lock;

/// Segments of one plan: a record for each tenant is sealed for so many.
const PLAN_SEGMENTS_MAX: u64 = 16;

impl Contents {
    /// The oldest segments in which every event is older than this. `covered` is the segment that the
    /// high-water mark has reached.
    pub(crate) fn plan_drop(&self, before_ms: u64, covered: u64) -> Result<DropPlan, StoreError> {
        self.check_test_log()?;
        let _built = lock(&self.rebuilding);
        let mut plan = DropPlan { before_ms, ..DropPlan::default() };
        let Some(first) = self.oldest_sealed() else { return Ok(plan) };
        for number in (first..covered).take_while(|number| *number < first + PLAN_SEGMENTS_MAX) {
            // Of all segments up to this one.
            let Some((anchors, _)) = self.anchors_of(number, before_ms).filter(|_| self.is_sound(number))
            else {
                break;
            };
            plan.chains = anchors.into_iter().collect();
            plan.through = number;
        }
        Ok(plan)
    }

    fn check_test_log(&self) -> Result<(), StoreError> {
        if self.mode == Mode::Test {
            return Ok(());
        }
        Err(StoreError::Refused("live events are never deleted".into()))
    }

    /// Drops the oldest segment, if it is planned.
    pub(crate) fn drop_oldest(&self, plan: &DropPlan, covered: u64) -> Result<DropStep, StoreError> {
        self.check_test_log()?;
        // No index is built meanwhile, which would bring back the runs of what is being dropped.
        let _built = lock(&self.rebuilding);
        let oldest = self.oldest_sealed();
        let Some(number) = oldest.filter(|number| *number < covered && *number <= plan.through) else {
            return Ok(DropStep::default());
        };
        let Some((anchors, events)) = self.anchors_of(number, plan.before_ms) else {
            return Ok(DropStep::default());
        };
        let mut dropped = lock(&self.dropped);
        let mut next = Dropped { through: number, anchors: dropped.anchors.clone() };
        next.anchors.extend(&anchors);
        next.write(&*self.disk, &self.dir, self.world.now_ms()).map_err(|error| {
            StoreError::Control(format!("cannot record the deletion of a segment: {error}"))
        })?;
        *dropped = next;
        drop(dropped);
        self.forget(number, &anchors);
        self.remove_files(number);
        tracing::info!(segment = number, events, chains = anchors.len(), "deleting old test events");
        Ok(DropStep { events, more: true })
    }

    /// The oldest segment, if it is not the one that is written to, and nothing is wrong with it or missing
    /// before it.
    fn oldest_sealed(&self) -> Option<u64> {
        let number = self.segment_numbers().first().copied()?;
        let is_next = number == lock(&self.dropped).through + 1;
        (is_next && self.is_sound(number)).then_some(number)
    }

    /// Whether a segment is not written to any more, and nothing is wrong with it.
    fn is_sound(&self, number: u64) -> bool {
        let is_damaged = lock(&self.damaged_segments).contains(&number);
        !is_damaged && number < self.durable().0.segment && self.end_of(number).is_some()
    }

    /// The last event of each chain in a segment that may be dropped, and how many events there are.
    fn anchors_of(&self, number: u64, before_ms: u64) -> Option<(BTreeMap<ChainId, Head>, u64)> {
        if self.unreadable.is_some() || self.keys.may_count(number, self.world.now_ms()) {
            return None;
        }
        let (mut anchors, mut events) = (BTreeMap::new(), 0);
        for chain in self.chains.all() {
            let of_chain = chain.with(|state| anchor_in(state, number, before_ms));
            match of_chain {
                Anchor::None => {}
                Anchor::Keep => return None,
                Anchor::Drop(head, count) => {
                    anchors.insert(chain.id, head);
                    events += count;
                }
            }
        }
        Some((anchors, events))
    }

    /// In memory. Whoever reads finds that out by the number, which changes first.
    fn forget(&self, number: u64, anchors: &BTreeMap<ChainId, Head>) {
        self.dropped_through.store(number, Ordering::SeqCst);
        for (id, head) in anchors {
            self.chains.get_or_create(*id).with(|state| {
                let kept = state.sealed.iter().filter(|run| run.run().segment() > number);
                state.sealed = Arc::new(kept.cloned().collect());
                state.dropped = *head;
            });
        }
        self.keys.forget(number);
        self.counting.forget(number);
        self.forget_segment(number);
    }

    fn remove_files(&self, number: u64) {
        let mut failed = None;
        for path in
            [segment_path(&self.dir, number), index_path(&self.dir, number), counts_path(&self.dir, number)]
        {
            self.files.forget(&path);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => failed = Some(error),
                _ => {}
            }
        }
        let synced = self.disk.sync_dir(&self.dir);
        if let Some(error) = failed.or(synced.err()) {
            tracing::warn!(%error, segment = number, "cannot remove the files of a deleted segment; the next start removes them");
        }
    }
}

/// What a segment has of a chain.
enum Anchor {
    None,
    /// Something that must not go.
    Keep,
    /// The last event of it, and how many.
    Drop(Head, u64),
}

fn anchor_in(state: &ChainState, number: u64, before_ms: u64) -> Anchor {
    if state.memory.iter().any(|run| run.segment <= number) {
        return Anchor::Keep;
    }
    let (mut last, mut events) = (state.dropped, 0);
    for run in state.sealed.iter().filter(|run| run.run().segment() <= number) {
        let head = match run {
            SealedRun::File(run) => {
                Head { chain_seq: run.end_seq() - 1, log_id: run.last_log_id, hash: run.last_hash }
            }
            SealedRun::Memory(run) => run.head,
        };
        let run = run.run();
        // A gap, damage in it, or too young.
        if run.first_seq() != last.chain_seq + 1
            || head.chain_seq + 1 != run.end_seq()
            || head.log_id.timestamp_ms() >= before_ms
        {
            return Anchor::Keep;
        }
        events += run.end_seq() - run.first_seq();
        last = head;
    }
    if events == 0 {
        return Anchor::None;
    }
    let is_damaged = state.damaged.iter().any(|(first, _)| *first <= last.chain_seq + 1);
    if state.unproven || is_damaged || !state.unreadable.is_empty() {
        return Anchor::Keep;
    }
    Anchor::Drop(last, events)
}
