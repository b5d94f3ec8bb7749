//! Supervision of background loops: a loop that panics is counted, logged and started again, and nothing else
//! ends with it.
//!
//! Every loop of a process runs under [`Supervision::supervise`]. A branch of a bare `join!` would take the
//! server, and all other loops, with it when it panics; and when the cause is a row that stays, again at
//! every start.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;

use sealog_store::StoreError;
use sealog_store::supervise::Loops;
pub use sealog_store::supervise::caught;

use crate::jobs::stop::Stop;

type Begin<'a> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a>;

/// A loop by its name in `/metrics` and in the log, and how it is begun, the first time and after a panic.
pub struct Loop<'a> {
    pub name: &'static str,
    pub begin: Begin<'a>,
}

impl<'a> Loop<'a> {
    pub fn new<F: Future<Output = ()> + 'a>(name: &'static str, begin: impl Fn() -> F + 'a) -> Loop<'a> {
        Loop { name, begin: Box::new(move || Box::pin(begin())) }
    }
}

impl std::fmt::Debug for Loop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loop").field(&self.name).finish()
    }
}

/// Keeps loops running, and counts how often they had to be started again.
#[derive(Debug)]
pub struct Supervision(Loops);

impl Supervision {
    /// Calls `at_begin` with its name as a loop begins, where a panic is caught: tests feed every loop one.
    pub fn new(at_begin: fn(&'static str)) -> Supervision {
        Supervision(Loops::new(at_begin))
    }

    /// How often each loop was started again. A loop is here from its first start on.
    pub fn restarts(&self) -> BTreeMap<&'static str, u64> {
        self.0.restarts()
    }

    /// Runs loops side by side until all have ended by themselves.
    pub async fn supervise_all(&self, loops: Vec<Loop<'_>>, stop: &Stop) {
        let mut running: Vec<Pin<Box<_>>> =
            loops.into_iter().map(|known| Box::pin(self.supervise(known, stop))).collect();
        std::future::poll_fn(|context| {
            running.retain_mut(|supervised| supervised.as_mut().poll(context).is_pending());
            if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs a loop until it ends by itself. One that panics is started again after a rest, unless the process
    /// stops meanwhile.
    pub async fn supervise(&self, Loop { name, begin }: Loop<'_>, stop: &Stop) {
        self.0.run_until(name, begin, stop.stopped()).await;
    }
}

/// What a loop does with a failure of one row, of all that it goes through: nothing where the row alone is to
/// blame, so that it is logged and those behind it have their turn; the error where all others would fail as
/// well, and the loop waits.
pub fn of_one_row(outcome: Result<Result<(), StoreError>, String>) -> Result<Option<String>, StoreError> {
    match outcome {
        Ok(Ok(())) => Ok(None),
        Ok(Err(
            error @ (StoreError::Poisoned(_)
            | StoreError::NoRoom
            | StoreError::QueueFull
            | StoreError::Stalled
            | StoreError::Deadline
            | StoreError::Unavailable(_)
            | StoreError::ControlUnavailable(_)
            | StoreError::ClockLeapt
            | StoreError::Superseded { .. }
            | StoreError::RolledBack(_)
            | StoreError::Closing),
        )) => Err(error),
        Ok(Err(
            error @ (StoreError::HeadUnproven { .. }
            | StoreError::Refused(_)
            | StoreError::TenantFull { .. }
            | StoreError::Damaged { .. }
            | StoreError::Read(_)
            | StoreError::Control(_)),
        )) => Ok(Some(error.to_string())),
        Err(panic) => Ok(Some(format!("panic: {panic}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_loop_that_panics_is_counted_and_started_again_while_others_go_on() {
        let (begun, other) = (AtomicU64::new(0), AtomicU64::new(0));
        let supervision = Supervision::new(|_| {});
        let panics_once = || async {
            if begun.fetch_add(1, Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
                panic!("asked for by a test");
            }
        };
        let counts = || async {
            // It is there before and behind the panic of the other one.
            while begun.load(Ordering::SeqCst) < 2 {
                other.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let loops = vec![Loop::new("panics", panics_once), Loop::new("counts", counts)];
        block(supervision.supervise_all(loops, &Stop::new()));
        assert_eq!(supervision.restarts(), BTreeMap::from([("counts", 0), ("panics", 1)]));
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        assert!(other.load(Ordering::SeqCst) > 1);
    }

    #[test]
    fn a_panic_as_a_loop_begins_is_caught_too() {
        let supervision = Supervision::new(|_| {});
        let begun = AtomicU64::new(0);
        let begin = || {
            assert!(begun.fetch_add(1, Ordering::SeqCst) > 0, "asked for by a test");
            async {}
        };
        block(supervision.supervise(Loop::new("panics", begin), &Stop::new()));
        assert_eq!(supervision.restarts(), BTreeMap::from([("panics", 1)]));
    }
}
