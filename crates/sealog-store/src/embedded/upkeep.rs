//! Work beside the path of events: index files of full segments, the high-water mark, index files of earlier
//! versions.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::ChainId;

use super::contents::Contents;
use super::index::sidecar::SegmentEnd;
use super::log::segment::is_no_room;
use super::recovery::high_water_mark::{Extent, MarkFile, Place};
use crate::sync::{lock, wait_for};

/// Below that of the threads that answer requests.
const UPKEEP_NICENESS: i32 = 5;
/// Nobody waits for a new index where there is an old one.
const REINDEX_NICENESS: i32 = 19;
/// How long a file waits for room that can do without it.
const NO_ROOM_TICKS: u32 = 60;

#[derive(Debug)]
pub(crate) struct Upkeep {
    contents: Arc<Contents>,
    /// Held while the high-water mark is written.
    mark: Mutex<MarkFile>,
    due: Mutex<Due>,
    changed: Condvar,
    /// Segments whose index files can be read but should be made anew, and the ids of those; the next one
    /// last.
    stale: Mutex<Vec<(u64, u64)>>,
}

/// What there is to do.
#[derive(Debug, Default)]
struct Due {
    /// Segments that were filled and need an index file.
    full: Vec<SegmentEnd>,
    /// Heads that changed since the last high-water mark.
    heads: BTreeMap<ChainId, Head>,
    stop: bool,
}

impl Upkeep {
    pub(crate) fn new(contents: Arc<Contents>, mark: MarkFile, stale: Vec<(u64, u64)>) -> Upkeep {
        Upkeep {
            contents,
            mark: Mutex::new(mark),
            due: Mutex::default(),
            changed: Condvar::new(),
            stale: Mutex::new(stale),
        }
    }

    /// Chains have new durable heads.
    pub(crate) fn note_heads(&self, heads: Vec<(ChainId, Head)>) {
        lock(&self.due).heads.extend(heads);
    }

    /// A segment is full.
    pub(crate) fn note_full(&self, end: SegmentEnd) {
        lock(&self.due).full.push(end);
        self.changed.notify_all();
    }

    /// Waits for so long, or until the end is near: then true.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let due = lock(&self.due);
        due.stop || wait_for(&self.changed, due, time).stop
    }

    pub(crate) fn stop(&self) {
        lock(&self.due).stop = true;
        self.changed.notify_all();
    }

    /// The thread that writes index files and high-water marks.
    pub(crate) fn run(&self) {
        // Indexing a full segment is a lot of work that nobody waits for. Of this thread alone; without it
        // everything works as well, only less evenly.
        let _ = rustix::process::setpriority_process(None, UPKEEP_NICENESS);
        // Index files are written in the order of their segments, since readers expect runs on disk before
        // runs in memory. One that fails is tried again.
        let mut full: VecDeque<SegmentEnd> = VecDeque::new();
        loop {
            let stop = {
                let mut due = lock(&self.due);
                if due.full.is_empty() && !due.stop {
                    due = wait_for(&self.changed, due, self.contents.options.tick);
                }
                full.extend(std::mem::take(&mut due.full));
                due.stop
            };
            while let Some(end) = full.front() {
                if let Err(error) = self.contents.write_index_of(end) {
                    tracing::warn!(%error, segment = end.number, "cannot write an index file; retrying");
                    break;
                }
                full.pop_front();
            }
            self.mark_changes(false);
            if stop {
                return;
            }
        }
    }

    pub(crate) fn has_stale_indexes(&self) -> bool {
        !lock(&self.stale).is_empty()
    }

    /// The thread that makes index files anew whose salt is lost. Readers use the old ones until then, and a
    /// crash leaves one or the other.
    pub(crate) fn reindex(&self) {
        let _ = rustix::process::setpriority_process(None, REINDEX_NICENESS);
        let log = self.contents.mode.as_str();
        let segments = lock(&self.stale).len();
        tracing::info!(log, segments, "rebuilding old index files in the background");
        let mut warned = false;
        while let Some((segment, id)) = { lock(&self.stale).pop() } {
            let begun = Instant::now();
            // As long a pause, so that at most half of a disk's time goes into this.
            let mut pause = None;
            match self.contents.renew_index(segment, id) {
                Ok(()) => warned = false,
                Err(error) if is_no_room(&error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, segment, "no space to rebuild an old index file; using the old one until there is");
                    }
                    lock(&self.stale).push((segment, id));
                    pause = Some(self.contents.options.tick * NO_ROOM_TICKS);
                }
                Err(error) => {
                    tracing::warn!(%error, segment, "cannot rebuild an old index file; using the old one until the next start");
                }
            }
            let until = Instant::now() + pause.unwrap_or_else(|| begun.elapsed());
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if self.pause(left) {
                    return;
                }
                if left.is_zero() {
                    break;
                }
            }
        }
        tracing::info!(log, segments, "rebuilt old index files");
    }

    /// Records what has become durable since the last high-water mark.
    pub(crate) fn mark_changes(&self, clean: bool) {
        if let Err(error) = self.try_mark(clean) {
            let log = self.contents.mode.as_str();
            tracing::warn!(%error, log, "failed to persist the high-water mark; a lost tail may go undetected until it can be written");
        }
    }

    pub(crate) fn try_mark(&self, clean: bool) -> io::Result<()> {
        let mut mark = lock(&self.mark);
        // The extent first: heads that come in between are then above it, which is the safe side.
        let extent = self.extent();
        let heads = std::mem::take(&mut lock(&self.due).heads);
        // A high-water mark that came between a group's heads and its end has taken the heads already.
        if heads.is_empty() && !clean && mark.marked().extent == extent {
            return Ok(());
        }
        let written = mark.write(extent, clean, &heads, self.contents.world.now_ms());
        if written.is_err() {
            let mut due = lock(&self.due);
            for (chain, head) in heads {
                due.heads.entry(chain).or_insert(head);
            }
        }
        written
    }

    /// At start: what recovery found is durable now, and a clean stop is no longer the last word.
    pub(crate) fn mark_all(&self) -> io::Result<()> {
        let mut mark = lock(&self.mark);
        let heads: BTreeMap<ChainId, Head> = self
            .contents
            .chains
            .all()
            .iter()
            // A chain that has lost its end keeps the head that is on record: it is the evidence.
            .filter(|chain| !chain.with(|state| state.unproven))
            .map(|chain| (chain.id, chain.head().durable))
            .filter(|(chain, head)| head.chain_seq > 0 && mark.marked().heads.get(chain) != Some(head))
            .collect();
        mark.write(self.extent(), false, &heads, self.contents.world.now_ms())
    }

    /// The segment that the high-water mark has reached.
    pub(crate) fn covered_segment(&self) -> u64 {
        lock(&self.mark).marked().extent.segment
    }

    /// Up to where events are lost or damaged that no high-water mark spoke for.
    pub(crate) fn unproven_to(&self) -> Option<Place> {
        lock(&self.mark).marked().unproven_to
    }

    fn extent(&self) -> Extent {
        let (plan, commit) = self.contents.durable();
        Extent { commit, segment: plan.segment, offset: plan.end }
    }
}
