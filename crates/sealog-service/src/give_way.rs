//! Long work that nobody waits for by the second, exports and searches of cases, gives way to events that come in.
//!
//! Whether there is anything to give way to shows in the work itself: on a machine with nothing else to do a piece takes about as long as it uses a core, and beside full ingest several times as long.

use std::time::{Duration, Instant};

use sealog_store::StoreError;
use sealog_store::cpu::thread_time;
use sealog_store::pool::{FairPool, Lane, Payer};

/// A piece that took more than so many times what it used of a core was held up by others.
const CROWDED: u32 = 2;
/// Waking a thread takes a moment also on an idle machine.
const WAKING: Duration = Duration::from_millis(1);
/// Rests of so many times the piece leave the others more than nine tenths.
const RESTS: u32 = 9;
/// Whoever downloads sees that it goes on.
const REST_MAX: Duration = Duration::from_secs(1);

/// How a piece of work has got on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    took: Duration,
    worked: Duration,
}

impl Progress {
    pub(crate) fn is_crowded(self) -> bool {
        self.took > self.worked * CROWDED + WAKING
    }
}

/// How long to rest behind a piece that was held up and took so long in all.
pub(crate) fn rest(took: Duration) -> Duration {
    (took * RESTS).min(REST_MAX)
}

/// Computes in the thread pool.
pub(crate) async fn compute<T: Send + 'static>(
    pool: &FairPool,
    payer: impl Into<Payer>,
    cost: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Progress), StoreError> {
    let begun = Instant::now();
    let answer = pool.run(Lane::Compute, payer, cost, move || {
        let before = thread_time();
        let value = work();
        (value, thread_time().saturating_sub(before))
    });
    let (value, worked) = answer.await.map_err(|_| StoreError::Closing)?;
    Ok((value, Progress { took: begun.elapsed(), worked }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_waited_for_a_core_was_held_up_and_rests_are_nine_times_as_long() {
        let ms = Duration::from_millis;
        let alone = Progress { took: ms(11), worked: ms(10) };
        assert!(!alone.is_crowded());
        let tiny = Progress { took: ms(1), worked: Duration::ZERO };
        assert!(!tiny.is_crowded(), "a thread was woken, and that is all");
        let beside = Progress { took: ms(30), worked: ms(10) };
        assert!(beside.is_crowded());
        assert_eq!((rest(ms(40)), rest(ms(4000))), (ms(360), REST_MAX));
    }
}
