//! Time that a thread had a core.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Of the calling thread, since it began.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
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
}
