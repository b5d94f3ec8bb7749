//! What the steps of recovery hand on: what was found so far, and what the high-water mark speaks for.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::time::Month;

use super::dropped::Dropped;
use super::finding::Finding;
use super::high_water_mark::{Extent, Marked, Place};
use crate::embedded::index::build::{Indexed, write_index};
use crate::embedded::index::chain_index::{Chains, SealedRun};
use crate::embedded::index::keys::Keys;
use crate::embedded::index::salt::IndexSalt;
use crate::embedded::index::sidecar::{Opened, SegmentEnd, SegmentIndex};
use crate::embedded::log::disk::{self, OpenFiles, ReadInPart};
use crate::embedded::log::segment::{Piece, Segment};
use crate::embedded::options::Options;

#[derive(Debug)]
pub(crate) enum RecoveryError {
    UnknownVersion(u32),
    Io(io::Error),
}

impl From<io::Error> for RecoveryError {
    fn from(error: io::Error) -> RecoveryError {
        RecoveryError::Io(error)
    }
}

/// In place of the running checksum of a segment that was damaged when the next one began. One that is zero
/// by chance is not compared either, but its length is.
pub(crate) const UNKNOWN_CHECKSUM: u32 = 0;

pub(super) struct Recovery<'a> {
    pub(super) dir: &'a Path,
    pub(super) mode: Mode,
    pub(super) options: &'a Options,
    pub(super) salt: IndexSalt,
    pub(super) files: Arc<OpenFiles>,
    pub(super) marked: Option<Marked>,
    pub(super) dropped: Dropped,
    pub(super) findings: Vec<Finding>,
    pub(super) chains: Chains,
    pub(super) keys: Keys,
    pub(super) usage: HashMap<(TenantId, Month), u64>,
    pub(super) ends: BTreeMap<u64, SegmentEnd>,
    /// Runs by chain, in the order of the log.
    pub(super) runs: HashMap<ChainId, Vec<SealedRun>>,
    /// The furthest place where events are damaged or missing that the high-water mark says nothing of, found
    /// now or at an earlier start.
    pub(super) unproven_to: Option<Place>,
    /// Segments with damage in them.
    pub(super) damaged_segments: Vec<u64>,
    pub(super) stale: Vec<(u64, u64)>,
    /// Places that the disk did not give: segment, from, to. That says nothing about what is on it, so
    /// nothing may be concluded from it, and nothing is written.
    pub(super) unreadable: Vec<(u64, u64, u64)>,
    /// Segments that are not written to any more, and where their frames end.
    pub(super) trimmable: Vec<(u64, u64)>,
    /// Why the disk did not give them.
    pub(super) read_error: Option<io::Error>,
}

impl Recovery<'_> {
    pub(super) fn covered(&self) -> Extent {
        self.marked.as_ref().map_or(Extent::default(), |marked| marked.extent)
    }

    pub(super) fn stopped_cleanly(&self) -> bool {
        self.marked.as_ref().is_some_and(|marked| marked.clean)
    }

    /// Whether the high-water mark speaks for everything that stood in the segment up to `to`.
    pub(super) fn is_marked(&self, segment: u64, to: u64) -> bool {
        let extent = self.covered();
        segment < extent.segment
            || segment == extent.segment && (to <= extent.offset || self.stopped_cleanly())
    }

    pub(super) fn lost(&mut self, segment: u64, to: u64) {
        self.damaged_segments.push(segment);
        self.unproven(segment, to);
    }

    pub(super) fn unproven(&mut self, segment: u64, to: u64) {
        if !self.is_marked(segment, to) {
            self.unproven_to = self.unproven_to.max(Some((segment, to)));
        }
    }

    pub(super) fn take_opened(&mut self, opened: Opened) {
        if opened.sidecar.is_stale() {
            self.stale.push((opened.sidecar.segment(), opened.sidecar.id()));
        }
        for (chain, run) in opened.runs {
            self.runs.entry(chain).or_default().push(SealedRun::File(run));
        }
        for (tenant_id, month, count) in opened.usage {
            *self.usage.entry((tenant_id, month)).or_default() += count;
        }
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.options.world.now_ms());
    }

    pub(super) fn take_in_memory(&mut self, number: u64, index: SegmentIndex) {
        for (chain, run) in index.runs {
            self.runs.entry(chain).or_default().push(SealedRun::Memory(run));
        }
        for (key, count) in index.usage {
            *self.usage.entry(key).or_default() += count;
        }
        for key in index.keys {
            self.keys.insert(number, key);
        }
    }

    pub(super) fn note_damage(&mut self, number: u64, indexed: &Indexed) {
        for (from, to) in &indexed.damage {
            self.findings.push(Finding::Damaged { segment: number, from: *from, to: *to });
            self.lost(number, *to);
        }
    }

    /// Takes a segment that was read. Its index is written, so that the next start need not read it; but
    /// never that of a damaged one, which must be found damaged again, nor one beside a log that is only
    /// looked at.
    pub(super) fn take_indexed(&mut self, number: u64, indexed: Indexed, end: &SegmentEnd, trusted: bool) {
        self.note_damage(number, &indexed);
        self.ends.insert(number, *end);
        if !trusted || self.options.read_only || !indexed.damage.is_empty() {
            return self.take_in_memory(number, indexed.index);
        }
        match write_index(
            &*self.options.disk,
            &self.files,
            self.dir,
            &indexed.index,
            end,
            self.mode,
            &self.salt,
        ) {
            Ok(opened) => self.take_opened(opened),
            Err(error) => {
                tracing::warn!(%error, segment = number, "cannot write an index file; keeping it in memory");
                self.take_in_memory(number, indexed.index);
            }
        }
    }

    pub(super) fn read(&mut self, segment: &Segment) -> io::Result<ReadInPart> {
        let read = disk::read_in_part(&*segment.file)?;
        if let Some(error) = &read.error {
            tracing::error!(%error, segment = segment.number, "cannot read a whole segment");
            self.read_error.get_or_insert_with(|| io::Error::new(error.kind(), error.to_string()));
        }
        Ok(read)
    }

    /// The pieces that the disk gave whole, be they right or wrong. The others are noted as places that could
    /// not be read.
    pub(super) fn readable<'p>(
        &mut self,
        number: u64,
        read: &ReadInPart,
        mut pieces: Vec<Piece<'p>>,
    ) -> Vec<Piece<'p>> {
        pieces.retain(|piece| {
            let (from, to) = (piece.start(), piece.end());
            let given = matches!(piece, Piece::Intact(_)) || !read.is_unreadable(from, to);
            if !given {
                self.unreadable.push((number, from, to));
            }
            given
        });
        pieces
    }
}
