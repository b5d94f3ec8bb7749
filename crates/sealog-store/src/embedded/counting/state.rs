//! What was counted so far.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sealog_core::canonical;
use sealog_core::id::ChainId;

use super::old::Old;
use crate::counts::DayCounts;
use crate::counts::event::count;
use crate::embedded::log::format::{Frame, SEGMENT_HEADER_LEN};
use crate::sync::lock;
use crate::types::IdMap;

/// The counts of a chain in one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainCounts {
    pub events: u64,
    pub days: BTreeMap<u32, DayCounts>,
}

impl ChainCounts {
    /// Whether both were counted of the same events.
    pub(crate) fn agrees(&self, other: &ChainCounts) -> bool {
        let days = || self.days.iter().zip(&other.days);
        self.events == other.events
            && self.days.len() == other.days.len()
            && days().all(|((day, counts), (other_day, others))| day == other_day && counts.agrees(others))
    }
}

/// Of all chains that have events in it.
pub(crate) type SegmentCounts = IdMap<ChainId, ChainCounts>;

/// Counts the records of a frame that can be read and whose seqs are wanted.
pub(crate) fn count_frame(counts: &mut SegmentCounts, frame: &Frame<'_>, wanted: impl Fn(u64) -> bool) {
    let chain = counts.entry(frame.header.chain).or_default();
    for record in frame.records().filter(|record| wanted(record.chain_seq)) {
        let Some(glance) = record.glance() else { continue };
        let Some(fields) = canonical::split(glance.text) else { continue };
        chain.events += 1;
        count(&mut chain.days, glance.log_id.timestamp_ms(), &fields, glance.severity, glance.country);
    }
}

/// Where the counts of a full segment are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File,
    /// They are to be written.
    Unwritten(Arc<SegmentCounts>),
    /// The segment is damaged, so they stay in memory: a file speaks for a whole segment.
    Kept(Arc<SegmentCounts>),
    /// The file contradicts its checksums and is to be made again.
    Damaged,
    /// The disk did not give the segment.
    Unreadable,
}

/// First and one past the last seq of stretches of a chain in a segment.
pub(crate) type Stretches = Vec<(u64, u64)>;

/// How far counting has come.
#[derive(Debug)]
pub(crate) struct Counting {
    /// Held while a piece of a segment is read and counted.
    pub progress: Mutex<Progress>,
}

#[derive(Debug)]
pub(crate) struct Progress {
    /// The segment that is followed, and where the next frame stands in it.
    pub segment: u64,
    pub position: u64,
    /// What is there is not what was written.
    pub broken: bool,
    pub counts: SegmentCounts,
    /// Of segments before it, as far as is known.
    pub places: BTreeMap<u64, Place>,
    /// Which of them are still to be looked at.
    pub old: Old,
    /// Counts of a chain whose records in a segment are not all there or not all its own: where a group was
    /// moved and where a loss was accepted.
    pub special: HashMap<(u64, ChainId), (Stretches, Arc<ChainCounts>)>,
    pub buffer: Vec<u8>,
    /// Counts could not be written, and until then that is not tried again.
    pub write_after: Option<Instant>,
}

impl Counting {
    /// Begins with the segment that is written to.
    pub(crate) fn new(segment: u64) -> Counting {
        Counting {
            progress: Mutex::new(Progress {
                segment,
                position: SEGMENT_HEADER_LEN as u64,
                broken: false,
                counts: SegmentCounts::default(),
                places: BTreeMap::new(),
                old: Old::default(),
                special: HashMap::new(),
                buffer: Vec::new(),
                write_after: None,
            }),
        }
    }
}

impl Counting {
    /// These segments were dropped.
    pub(crate) fn forget(&self, through: u64) {
        let mut progress = lock(&self.progress);
        progress.places.retain(|number, _| *number > through);
        progress.special.retain(|(number, _), _| *number > through);
    }
}

impl Progress {
    /// Follows the segment from its beginning again.
    pub(crate) fn begin_anew(&mut self) {
        (self.counts, self.position) = (SegmentCounts::default(), SEGMENT_HEADER_LEN as u64);
    }

    /// The segment is full and counted; the next one is followed.
    pub(crate) fn close(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if std::mem::replace(&mut self.broken, false) {
            self.old.add(self.segment);
        } else {
            self.places.insert(self.segment, Place::Unwritten(Arc::new(counts)));
        }
        self.segment += 1;
        self.position = SEGMENT_HEADER_LEN as u64;
    }

    /// The counts of a segment contradict their checksums and are made again.
    pub(crate) fn damaged(&mut self, segment: u64) {
        self.places.insert(segment, Place::Damaged);
        self.old.add(segment);
    }
}
