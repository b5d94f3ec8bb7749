//! Time that a thread had a core.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Of the calling thread, since it began.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// How long the calling thread has waited for a core although it could run, since it began; nothing where the
/// kernel does not say.
pub fn thread_waited() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_ascii_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_works_uses_time_and_one_that_sleeps_does_not() {
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(30));
        assert!(thread_time() - before < Duration::from_millis(15));
        let (before, begun) = (thread_time(), Instant::now());
        while thread_time() - before < Duration::from_millis(5) {
            assert!(begun.elapsed() < Duration::from_secs(30), "no time is counted");
        }
    }

    #[test]
    fn a_thread_that_sleeps_does_not_wait_for_a_core() {
        let before = thread_waited();
        std::thread::sleep(Duration::from_millis(100));
        assert!(thread_waited() - before < Duration::from_millis(100));
    }
}
