//! Threads for what would keep an event loop from everyone else: large bodies are parsed here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use sealog_core::id::TenantId;
use sealog_store::turns::Turns;
use tokio::sync::oneshot;

/// Below that of the event loops and the store: whoever sends little does not wait for who sends much.
const NICENESS: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// As many threads as cores. Tenants take turns.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: Turns<TenantId, Job>,
    stopped: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    pub(crate) fn start() -> Workers {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 0..cores {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("sealog-work-{number}"));
            thread
                .spawn(move || shared.work())
                .expect("a process that cannot start a thread cannot run at all");
        }
        Workers(shared)
    }

    /// Does something of this size when it is this tenant's turn. Nothing if it has panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        whose: TenantId,
        bytes: usize,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let job = move || {
            // A client that has gone away needs no answer, and no work.
            if !sender.is_closed() {
                let _ = sender.send(act());
            }
        };
        self.0.queue().jobs.push(whose, bytes, Box::new(job));
        self.0.changed.notify_one();
        answer.await.ok()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.queue().stopped = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        // No job runs under the lock, so what it guards is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        // Of this thread alone. Without it the service works as well, only less evenly.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut queue = self.queue();
        while !queue.stopped {
            let Some(job) = queue.jobs.pop() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            // It fails for its caller, who finds the answer gone; the thread is for everyone.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = self.queue();
        }
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    fn run<T>(act: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(act)
    }

    #[test]
    fn a_panic_is_its_callers_alone() {
        let (workers, tenant) = (Workers::start(), TenantId(Uuid([1; 16])));
        run(async {
            for _ in 0..20 {
                assert_eq!(workers.run(tenant, 1, || -> u8 { panic!("on purpose") }).await, None);
            }
            assert_eq!(workers.run(tenant, 1, || 7).await, Some(7));
        });
    }

    #[test]
    fn the_threads_end_with_the_last_owner_and_step_back_for_others() {
        let (workers, tenant) = (Workers::start(), TenantId(Uuid([1; 16])));
        let niceness = run(workers.run(tenant, 1, || rustix::process::getpriority_process(None).unwrap()));
        assert_eq!(niceness, Some(NICENESS));
        let shared = Arc::downgrade(&workers.0);
        drop(workers);
        let begun = std::time::Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed().as_secs() < 10, "they do not end");
            std::thread::yield_now();
        }
    }
}
