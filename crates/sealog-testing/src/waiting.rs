//! How tests wait: for something that can be seen, never for a time in which it is hoped to happen.
//!
//! Every wait has one limit, [`PATIENCE`]. No rule is about it: it ends a test that would hang.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Long enough for any machine, however busy; a test that waits as long has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a future to its end on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    wait_until(future, None).expect("without a limit it is waited for")
}

/// Runs a future on this thread, to its end or to a moment.
pub fn wait_until<T>(future: impl Future<Output = T>, until: Option<Instant>) -> Option<T> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return None,
                Some(left) => std::thread::park_timeout(left),
            },
        }
    }
}

/// An answer that may come late, but must come: what is tested may hang.
#[track_caller]
pub fn soon<T>(answer: impl Future<Output = T>) -> T {
    wait_until(answer, Some(Instant::now() + PATIENCE)).expect("an answer")
}

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs something on a thread of its own and waits for its end: what is tested may hang.
#[track_caller]
pub fn ends<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(act());
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let Err(panic) = thread.join() else { unreachable!("it sends what it returns") };
            std::panic::resume_unwind(panic)
        }
    }
}

/// Does something when a test ends, however it ends.
#[derive(Debug)]
pub struct AtTheEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
