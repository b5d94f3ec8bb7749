//! Supervision of background loops: a loop that panics is counted, logged and started again, and nothing else
//! ends with it.
//!
//! Every loop of a process runs under [`Supervision::supervise`]. A branch of a bare `join!` would take the
//! server, and all other loops, with it when it panics; and when the cause is a row that stays, again at
//! every start.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use sealog_store::StoreError;
use sealog_store::sync::lock;
use tokio::time::Instant;

use crate::stop::Stop;

/// How long a loop rests after a panic. Doubled by each one that follows, up to the longest rest; one that
/// has run for so long begins anew.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_LONGEST: Duration = Duration::from_secs(60);

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
pub struct Supervision {
    restarts: Mutex<BTreeMap<&'static str, u64>>,
    /// Called with its name as a loop begins, where a panic is caught: tests feed every loop one.
    at_begin: fn(&'static str),
}

impl Supervision {
    pub fn new(at_begin: fn(&'static str)) -> Supervision {
        Supervision { restarts: Mutex::default(), at_begin }
    }

    /// How often each loop was started again. A loop is here from its first start on.
    pub fn restarts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.restarts).clone()
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
        lock(&self.restarts).entry(name).or_default();
        let mut rest = REST_FIRST;
        loop {
            let begun = Instant::now();
            let Err(panic) = caught(async {
                (self.at_begin)(name);
                begin().await;
            })
            .await
            else {
                return;
            };
            if begun.elapsed() >= REST_LONGEST {
                rest = REST_FIRST;
            }
            *lock(&self.restarts).entry(name).or_default() += 1;
            tracing::error!(
                name,
                panic,
                restart_in_s = rest.as_secs(),
                "a background loop has panicked; everything else goes on, and it is started again"
            );
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(rest) => {}
            }
            rest = (rest * 2).min(REST_LONGEST);
        }
    }
}

/// What a future comes to, or the text of its panic. The future is not polled after it.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        // Locks are taken over from whoever panicked with them, and the future is dropped: nobody sees it
        // half done.
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "a panic without a text".into())))
            }
        }
    })
    .await
}

/// What a loop does with a failure of one row, of all that it goes through: nothing where the row alone is to
/// blame, so that it is logged and those behind it have their turn; the error where all others would fail as
/// well, and the loop waits.
pub(crate) fn of_one_row(
    outcome: Result<Result<(), StoreError>, String>,
) -> Result<Option<String>, StoreError> {
    match outcome {
        Ok(Ok(())) => Ok(None),
        Ok(Err(
            error @ (StoreError::Poisoned(_)
            | StoreError::NoRoom
            | StoreError::QueueFull
            | StoreError::Stalled
            | StoreError::Deadline
            | StoreError::Unavailable(_)
            | StoreError::ClockLeapt
            | StoreError::Closing),
        )) => Err(error),
        Ok(Err(
            error @ (StoreError::HeadUnproven { .. }
            | StoreError::Refused(_)
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
