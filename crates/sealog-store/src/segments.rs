//! A store as files that are copied: what backups and replicas ask of it.

use std::io;
use std::path::Path;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};

/// What a store says of its files. Nothing here waits for a writer or makes one wait.
pub trait Segments: Send + Sync {
    /// Tells this store from others, and stays the same in its copies.
    fn store_id(&self) -> u64;

    /// Both logs, live first, at one moment each.
    fn cut(&self) -> [LogCut; 2];

    /// Bytes of a segment, at most so many. What stands before the end that a cut names never changes; a
    /// segment of test events may be gone.
    fn read_segment(&self, mode: Mode, number: u64, from: u64, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// The directory, for files beside the logs. Nothing for a disk that is not of this machine.
    fn directory(&self) -> Option<&Path>;
}

/// Up to where a log is durable. What stands in its segments before that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    pub mode: Mode,
    /// The number of the last commit.
    pub commit: u64,
    /// In the order of their numbers. A number that is missing behind those that were dropped is of a segment
    /// that is lost or has no header.
    pub segments: Vec<SegmentCut>,
    /// All segments up to this one were dropped.
    pub dropped_through: u64,
    /// The file that says so, with the last event of each chain in them. Nothing where none were.
    pub dropped: Option<Vec<u8>>,
    /// Chains whose last events are proven lost, with the head on record: a copy of the files must not forget
    /// it.
    pub lost: Vec<(ChainId, Head)>,
    /// Up to here, a segment and an offset in it, events are lost or damaged that no high-water mark spoke
    /// for.
    pub unproven_to: Option<(u64, u64)>,
}

/// A segment up to where it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentCut {
    pub number: u64,
    /// Random, and new for each segment.
    pub salt: [u8; 16],
    pub bytes: u64,
}
