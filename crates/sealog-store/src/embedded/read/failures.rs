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
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When one failed, and why.
    failed: Option<(Instant, String)>,
    /// The same of the segment that events are written to.
    failed_active: Option<(Instant, String)>,
    logged: Option<Instant>,
}

/// How long after a failed read the store is said to be degraded.
const DEGRADED_FOR: Duration = Duration::from_secs(60);
/// A disk that fails does so at every read; the log gets a line now and then.
const LOG_EVERY: Duration = Duration::from_secs(1);

fn is_recent(failed: &Option<(Instant, String)>) -> bool {
    failed.as_ref().is_some_and(|(at, _)| at.elapsed() < DEGRADED_FOR)
}

impl ReadFailures {
    pub(crate) fn note(&self, error: &io::Error, mode: Mode, is_active: bool) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let Last { failed, failed_active, logged } = &mut *lock(&self.last);
        *failed = Some((now, error.to_string()));
        if is_active {
            *failed_active = failed.clone();
        }
        if logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY) {
            *logged = Some(now);
            tracing::error!(%error, log = mode.as_str(), failed_reads = count, "the store cannot read from its disk; affected requests get an error");
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a read has failed lately.
    pub(crate) fn is_degraded(&self) -> bool {
        is_recent(&lock(&self.last).failed)
    }

    /// Why events may be accepted that cannot be read again: what is written now lies where reads fail.
    pub(crate) fn of_active(&self) -> Option<String> {
        let last = lock(&self.last);
        last.failed_active.as_ref().filter(|_| is_recent(&last.failed_active)).map(|(_, error)| error.clone())
    }

    /// What has failed lately, for the operator.
    pub(crate) fn said(&self, mode: Mode) -> Option<String> {
        let last = lock(&self.last);
        let (_, error) = last.failed.as_ref().filter(|_| is_recent(&last.failed))?;
        let count = self.count();
        Some(format!("{} log: {count} reads failed since the start, the last with: {error}", mode.as_str()))
    }
}
