//! First step: which segments there are, and which are missing. Second step: the index of every segment but
//! the last one, or the segment itself where that does not fit.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::id::Mode;

use super::finding::Finding;
use super::state::{Recovery, RecoveryError, UNKNOWN_CHECKSUM};
use crate::embedded::index::build::index_pieces;
use crate::embedded::index::sidecar::{SegmentEnd, Sidecar};
use crate::embedded::log::disk::{Disk, OpenFiles};
use crate::embedded::log::format::{HeaderError, Predecessor, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::embedded::log::segment::{self, Segment, index_path, segment_path};

/// A segment's file with a readable header.
pub(super) struct Found {
    pub(super) header: SegmentHeader,
    pub(super) segment: Arc<Segment>,
}

pub(super) struct FoundAll {
    /// Of all files that are segments, readable or not.
    pub(super) numbers: Vec<u64>,
    pub(super) segments: BTreeMap<u64, Found>,
    pub(super) findings: Vec<Finding>,
    /// Numbers of those whose header the disk did not give.
    pub(super) unreadable: Vec<u64>,
    pub(super) read_error: Option<io::Error>,
}

pub(super) fn find_segments(
    dir: &Path,
    mode: Mode,
    disk: &dyn Disk,
    files: &Arc<OpenFiles>,
    marked: u64,
    dropped: u64,
) -> Result<FoundAll, RecoveryError> {
    let mut numbers: Vec<u64> = disk.list(dir)?.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.retain(|number| *number > dropped);
    numbers.sort_unstable();
    let mut found = FoundAll {
        numbers: Vec::new(),
        segments: BTreeMap::new(),
        findings: Vec::new(),
        unreadable: Vec::new(),
        read_error: None,
    };
    for number in numbers {
        let file = files.file(segment_path(dir, number));
        let mut bytes = vec![0; SEGMENT_HEADER_LEN];
        let filled = match file.read_at(&mut bytes, 0) {
            Ok(filled) => filled,
            Err(error) => {
                tracing::error!(%error, segment = number, "cannot read the header of a segment");
                found.read_error.get_or_insert(error);
                found.unreadable.push(number);
                found.numbers.push(number);
                continue;
            }
        };
        match SegmentHeader::decode(&bytes[..filled]) {
            Ok(header) if header.number == number && header.mode == mode => {
                let segment = Arc::new(Segment { number, salt: header.salt, file });
                found.segments.insert(number, Found { header, segment });
            }
            Err(HeaderError::UnknownVersion(version)) => return Err(RecoveryError::UnknownVersion(version)),
            _ if number > marked.max(dropped).max(found.numbers.last().copied().unwrap_or(0)) + 1 => {
                tracing::warn!(file = %segment_path(dir, number).display(), "ignoring a file that does not belong to this log");
                continue;
            }
            _ => found.findings.push(Finding::DamagedHeader { segment: number }),
        }
        found.numbers.push(number);
    }
    Ok(found)
}

impl Recovery<'_> {
    /// Names the segments that are not there. Behind those that were dropped their numbers have no gaps, and
    /// the high-water mark knows the last one.
    pub(super) fn missing_segments(&mut self, numbers: &[u64]) {
        let after_last =
            numbers.last().copied().unwrap_or(self.dropped.through).max(self.covered().segment) + 1;
        let mut expected = self.dropped.through + 1;
        for number in numbers.iter().copied().chain([after_last]) {
            if number > expected {
                self.findings.push(Finding::MissingSegments { first: expected, last: number - 1 });
                self.unproven(number - 1, u64::MAX);
            }
            expected = number + 1;
        }
        let damaged = |finding: &Finding| {
            if let Finding::DamagedHeader { segment } = finding { Some(*segment) } else { None }
        };
        for segment in self.findings.iter().filter_map(damaged).collect::<Vec<_>>() {
            self.lost(segment, u64::MAX);
        }
    }

    /// A segment that is not the last one: its index, or the segment itself where that does not fit.
    pub(super) fn sealed_segment(
        &mut self,
        number: u64,
        found: &Found,
        end: Option<Predecessor>,
    ) -> Result<(), RecoveryError> {
        if let Some(end) = end {
            let end = SegmentEnd { number, final_len: end.final_len, checksum: end.checksum };
            match Sidecar::open(self.files.file(index_path(self.dir, number)), &end, self.mode, &self.salt) {
                Ok(opened) => {
                    self.ends.insert(number, end);
                    self.trimmable.push((number, end.final_len));
                    self.take_opened(opened);
                    return Ok(());
                }
                Err(error) => tracing::warn!(%error, segment = number, "rebuilding an index"),
            }
        }
        let read = self.read(&found.segment)?;
        let limit = end.map_or(read.content.len() as u64, |end| end.final_len);
        let pieces = segment::walk(&read.content, limit, &found.header.salt, self.mode);
        let pieces = self.readable(number, &read, pieces);
        let indexed = index_pieces(number, &pieces, &self.salt);
        if let Some(end) = end
            && indexed.damage.is_empty()
            && read.error.is_none()
            && (indexed.end != end.final_len
                || end.checksum != UNKNOWN_CHECKSUM && indexed.running != end.checksum)
        {
            self.findings.push(Finding::WrongEnd { segment: number });
            self.lost(number, limit);
        }
        // Without a successor to say where the segment ends, nobody can tell whether an index is its own.
        let trusted = end.is_some() && read.error.is_none() && !self.damaged_segments.contains(&number);
        let end = SegmentEnd {
            number,
            final_len: limit,
            checksum: end.map_or(indexed.running, |end| end.checksum),
        };
        if trusted && indexed.damage.is_empty() {
            self.trimmable.push((number, limit));
        }
        self.take_indexed(number, indexed, &end, trusted);
        Ok(())
    }
}
