//! Loops that go on after a panic: it is counted and logged, and the loop is started again. So are threads
//! that can go on without what they had in memory.
//!
//! A task that panics ends without a word. Where it follows what other nodes have changed, a revoked key
//! would go on working here.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// How long a loop rests after a panic. Doubled by each one that follows, up to the longest rest; one that
/// has run for so long begins anew.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_LONGEST: Duration = Duration::from_secs(60);

/// Keeps loops running, and counts how often they had to be started again.
#[derive(Debug)]
pub struct Loops {
    restarts: Mutex<BTreeMap<&'static str, u64>>,
    /// Called with its name as a loop begins, where a panic is caught: tests feed every loop one.
    at_begin: fn(&'static str),
}

impl Loops {
    pub fn new(at_begin: fn(&'static str)) -> Loops {
        Loops { restarts: Mutex::default(), at_begin }
    }

    /// How often each loop was started again. A loop is here from its first start on.
    pub fn restarts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.restarts).clone()
    }

    /// Runs a loop until it ends by itself. One that panics is started again after a rest.
    pub async fn run<F: Future<Output = ()>>(&self, name: &'static str, begin: impl Fn() -> F) {
        self.run_until(name, begin, std::future::pending()).await;
    }

    /// The same; one that rests is not started again once `stopped` has come.
    pub async fn run_until<F: Future<Output = ()>>(
        &self,
        name: &'static str,
        begin: impl Fn() -> F,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
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
                "a background loop panicked; restarting it, all other parts keep running"
            );
            tokio::select! {
                () = &mut stopped => return,
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
            Err(panic) => Poll::Ready(Err(text_of(&*panic))),
        }
    })
    .await
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".into())
}

/// Runs what a thread does until it ends by itself. One that panics is started again after a rest. `rest`
/// waits for so long, or until the thread is to end: then true.
pub(crate) fn keep_running(name: &str, run: impl Fn(), rest: impl Fn(Duration) -> bool) {
    let mut time = REST_FIRST;
    while let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(&run)) {
        tracing::error!(%name, panic = text_of(&*panic), restart_in_s = time.as_secs(), "a thread of the store panicked; restarting it, all other parts keep running");
        if rest(time) {
            return;
        }
        time = (time * 2).min(REST_LONGEST);
    }
}
