//! Long work that nobody waits for by the second, exports and searches of cases, gives way to events that
//! come in.
//!
//! Whether there is anything to give way to shows in the work itself: on a machine with nothing else to do a
//! piece takes about as long as it uses a core, and beside full ingest several times as long.

use std::time::{Duration, Instant};

use sealog_store::StoreError;
use sealog_store::cpu::{thread_time, thread_waited};
use sealog_store::pool::{FairPool, Lane, Payer};

/// A piece that took more than so many times what it used of a core was held up by others.
const CROWDED: u32 = 2;
/// So was one whose thread waited for a core for more than this part of it: single events leave most cores
/// some rest, and feel it all the same.
const WAITED: u32 = 10;
/// Waking a thread takes a moment also on an idle machine.
const WAKING: Duration = Duration::from_millis(1);
/// Rests of so many times the piece leave the others more than nine tenths.
const RESTS: u32 = 9;
/// Whoever downloads sees that it goes on.
const REST_MAX: Duration = Duration::from_secs(1);

/// How a piece of work has got on.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    took: Duration,
    worked: Duration,
    /// For a core, once a thread had taken the piece up.
    waited: Duration,
}

impl Progress {
    pub fn is_crowded(self) -> bool {
        self.took > self.worked * CROWDED + WAKING || self.waited > self.took / WAITED
    }
}

/// How long to rest behind a piece that was held up and took so long in all.
pub fn rest(took: Duration) -> Duration {
    (took * RESTS).min(REST_MAX)
}

/// Computes in the thread pool.
pub async fn compute<T: Send + 'static>(
    pool: &FairPool,
    payer: impl Into<Payer>,
    cost: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Progress), StoreError> {
    let begun = Instant::now();
    let answer = pool.run(Lane::Compute, payer, cost, move || {
        let before = (thread_time(), thread_waited());
        let value = work();
        (value, thread_time().saturating_sub(before.0), thread_waited().saturating_sub(before.1))
    });
    let (value, worked, waited) = answer.await.map_err(|_| StoreError::Closing)?;
    Ok((value, Progress { took: begun.elapsed(), worked, waited }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_waited_for_a_core_was_held_up_and_rests_are_nine_times_as_long() {
        let ms = Duration::from_millis;
        let none = Duration::ZERO;
        let alone = Progress { took: ms(11), worked: ms(10), waited: none };
        assert!(!alone.is_crowded());
        let tiny = Progress { took: ms(1), worked: none, waited: none };
        assert!(!tiny.is_crowded(), "a thread was woken, and that is all");
        let beside = Progress { took: ms(30), worked: ms(10), waited: none };
        assert!(beside.is_crowded());
        let interrupted = Progress { took: ms(14), worked: ms(10), waited: ms(3) };
        assert!(interrupted.is_crowded());
        assert_eq!((rest(ms(40)), rest(ms(4000))), (ms(360), REST_MAX));
    }
}
