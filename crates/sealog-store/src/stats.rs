//! What a store counts of itself, for whoever watches over it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealog_core::id::Mode;

/// Upper bounds of the buckets for durations, in microseconds.
pub const DURATION_BOUNDS_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// How often values fell into which bucket. Counting takes no lock.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last is for what is larger than all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramView {
    pub bounds: &'static [u64],
    /// Not cumulative.
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    pub fn new(bounds: &'static [u64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub fn durations() -> Histogram {
        Histogram::new(DURATION_BOUNDS_US)
    }

    pub fn observe(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn view(&self) -> HistogramView {
        HistogramView {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A store at a moment. What a store does not know of itself is left out.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    pub logs: Vec<LogStats>,
    /// Reads that wait for their turn.
    pub reads_waiting: u64,
    pub storage_bytes: u64,
    /// What is known to be wrong: found when the store was opened, or since.
    pub findings: u64,
    /// Reads that the disk did not answer.
    pub read_errors: u64,
    pub clock: ClockStats,
    /// The parts of a database, and whether each answered when it was last asked.
    pub parts: BTreeMap<String, bool>,
    /// How often each loop of the store has panicked and was started again.
    pub loop_restarts: BTreeMap<&'static str, u64>,
}

/// What became of the clock that events are sealed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStats {
    /// It has leapt forward and is not believed.
    pub leapt: bool,
    /// How often it has, since the start.
    pub leaps: u64,
}

/// Live and test events are written apart.
#[derive(Clone, Debug)]
pub struct LogStats {
    pub mode: Mode,
    /// From the call to the acknowledgement, in microseconds.
    pub append: HistogramView,
    /// Of one write and sync, in microseconds.
    pub sync: HistogramView,
    pub queue_requests: u64,
    pub queue_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_is_larger_than_all_to_the_last() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.observe(value);
        }
        let view = histogram.view();
        assert_eq!((view.counts, view.sum), (vec![2, 2, 2], 1062));
    }
}
