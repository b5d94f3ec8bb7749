//! Reads that failed: counted, shown to whoever watches, and logged now and then.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealog_core::id::Mode;

use crate::sync::lock;

/// Reads that failed.
#[derive(Debug, Default)]
pub(crate) struct ReadFailures {
    count: AtomicU64,
    /// When the last one failed, and when one was last logged.
    last: Mutex<(Option<Instant>, Option<Instant>)>,
}

/// How long after a failed read the store is said to be degraded.
const DEGRADED_FOR: Duration = Duration::from_secs(60);
/// A disk that fails does so at every read; the log gets a line now and then.
const LOG_EVERY: Duration = Duration::from_secs(1);

impl ReadFailures {
    pub(crate) fn note(&self, error: &io::Error, mode: Mode) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let (failed, logged) = &mut *lock(&self.last);
        *failed = Some(now);
        if logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY) {
            *logged = Some(now);
            tracing::error!(%error, log = mode.as_str(), failed_reads = count, "the store cannot read from its disk; requests that need it are answered with an error");
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a read has failed lately.
    pub(crate) fn is_degraded(&self) -> bool {
        lock(&self.last).0.is_some_and(|failed| failed.elapsed() < DEGRADED_FOR)
    }
}
