//! Bytes of a segment around a record, so that neighbours need no read of their own.

use std::io;

use crate::embedded::log::format;
use crate::embedded::log::segment::Segment;

/// Read at once for a single record; most are smaller.
pub(crate) const RECORD_GUESS: usize = 1024;
/// Read at once when one record after the other is wanted.
const WINDOW: usize = 256 << 10;
/// Read at once when records are wanted newest first.
const SPAN_MAX: u32 = 64 << 10;
/// Further apart than this, two reads cost less than one.
const GAP_MAX: u32 = 4 << 10;
/// The first bytes of a record say how long it is.
const RECORD_LEN_LEN: usize = 4;

/// Bytes of a segment that were read last, so that neighbours need no read of their own.
pub(crate) struct Window {
    /// How much is read at once.
    pub size: usize,
    segment: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(crate) fn single() -> Window {
        Window { size: RECORD_GUESS, segment: 0, start: 0, bytes: Vec::new() }
    }

    pub(crate) fn sequential() -> Window {
        Window { size: WINDOW, ..Window::single() }
    }

    /// Whether the record at this position is there whole.
    pub(crate) fn holds(&self, segment: u64, position: u32) -> bool {
        let position = u64::from(position);
        self.segment == segment && position >= self.start && self.within(position).is_some()
    }

    /// Reads a record and those before it that are wanted next, as far as they are near. What cannot be read
    /// so is left to [`Window::record`]: a bad sector must not take others with it.
    pub(crate) fn read_back(&mut self, segment: &Segment, newest: u32, older: impl Iterator<Item = u32>) {
        let mut oldest = newest;
        for position in older {
            let is_near = position < oldest && oldest - position <= GAP_MAX && newest - position <= SPAN_MAX;
            if !is_near {
                break;
            }
            oldest = position;
        }
        if oldest < newest {
            let _ = self.fill(segment, u64::from(oldest), (newest - oldest) as usize + RECORD_GUESS);
        }
    }

    /// The bytes of a record; nothing if the segment does not have so many, or they do not say how long it
    /// is.
    pub(crate) fn record(&mut self, segment: &Segment, position: u32) -> io::Result<Option<&[u8]>> {
        let held = self.holds(segment.number, position);
        let position = u64::from(position);
        // A bad sector further on must not take this record with it.
        if !held && self.fill(segment, position, self.size).is_err() {
            self.fill(segment, position, RECORD_LEN_LEN)?;
        }
        let Some(length) = format::record_len(&self.bytes[self.at(position)..]) else { return Ok(None) };
        if self.within(position).is_none() {
            self.fill(segment, position, length)?;
        }
        Ok(self.within(position).map(|at| &self.bytes[at..at + length]))
    }

    /// Where the record begins in the window, if it is there whole.
    fn within(&self, position: u64) -> Option<usize> {
        let at = self.at(position);
        let length = format::record_len(self.bytes.get(at..)?)?;
        (at + length <= self.bytes.len()).then_some(at)
    }

    fn at(&self, position: u64) -> usize {
        usize::try_from(position - self.start).unwrap_or(usize::MAX).min(self.bytes.len())
    }

    /// To call damaged what could not be read would be to cry wolf, and to leave it out of a list to hide it:
    /// an error stays one.
    fn fill(&mut self, segment: &Segment, position: u64, length: usize) -> io::Result<()> {
        self.segment = 0;
        segment.read_into(&mut self.bytes, position, length)?;
        self.start = position;
        self.segment = segment.number;
        Ok(())
    }
}
