//! Thread pool for everything that reads, verifies or parses: work that would keep an event loop from
//! everyone else.
//!
//! Jobs queue by tenant in a deficit round-robin queue ([`FairQueue`]): fair by bytes, so that a noisy
//! neighbour cannot starve the others. A job has a bounded size (a page, a piece of a range, a body), so the
//! next tenant waits for the jobs under way and for its turn, whatever one tenant has queued.
//!
//! There are two lanes, since there are two resources. Threads of [`Lane::Read`] wait for the disk and take
//! the log's locks, so they have the priority of the writer that waits for the same locks. Threads of
//! [`Lane::Compute`] hash and parse, hold no lock, and step back for the event loops and the writer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sealog_core::id::{ChainId, TenantId};
use tokio::sync::oneshot;

use crate::fair_queue::FairQueue;

/// Threads that wait for the disk.
const READ_THREADS: usize = 4;
/// Below that of the event loops and the store: a client that sends little does not wait for one that sends
/// much.
const COMPUTE_NICENESS: i32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Waits for the disk.
    Read,
    /// Uses a core: decodes, hashes, parses, renders.
    Compute,
}

/// On whose account a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    Tenant(TenantId),
    /// Control data, statistics, background work.
    Operator,
    /// Look-ups for a caller who has not proven anything yet: unknown keys are one queue, however many there
    /// are.
    Stranger,
}

impl From<ChainId> for Payer {
    fn from(chain: ChainId) -> Payer {
        Payer::Tenant(chain.tenant_id)
    }
}

impl From<TenantId> for Payer {
    fn from(tenant_id: TenantId) -> Payer {
        Payer::Tenant(tenant_id)
    }
}

/// The pool of a store. Its threads end when it is stopped or dropped.
#[derive(Debug)]
pub struct FairPool {
    read: ThreadPool,
    compute: ThreadPool,
}

impl FairPool {
    pub fn start() -> FairPool {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        FairPool::with_threads(READ_THREADS, cores)
    }

    /// With so many threads in each lane.
    pub fn with_threads(read: usize, compute: usize) -> FairPool {
        FairPool {
            read: ThreadPool::start("sealog-read", read, None),
            compute: ThreadPool::start("sealog-work", compute, Some(COMPUTE_NICENESS)),
        }
    }

    /// Queues a job of this cost, in bytes or what takes as long. The answer fails if the pool is stopped
    /// before the job's turn, or if the job panics.
    pub fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        payer: impl Into<Payer>,
        cost: usize,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.lane(lane).run(payer, cost, act)
    }

    /// Jobs that wait for a thread.
    pub fn waiting(&self, lane: Lane) -> u64 {
        self.lane(lane).waiting() as u64
    }

    /// Jobs that have ended.
    pub fn done(&self, lane: Lane) -> u64 {
        self.lane(lane).shared.done.load(Ordering::Relaxed)
    }

    /// Drops what waits; what is under way ends by itself.
    pub fn stop(&self) {
        self.read.stop();
        self.compute.stop();
    }

    fn lane(&self, lane: Lane) -> &ThreadPool {
        match lane {
            Lane::Read => &self.read,
            Lane::Compute => &self.compute,
        }
    }
}

/// Threads with one fair queue. They end when the pool is stopped or dropped.
#[derive(Debug)]
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    done: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: FairQueue<Payer, Job>,
    stopped: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("waiting", &self.queue().jobs.len()).finish_non_exhaustive()
    }
}

impl ThreadPool {
    /// The threads are named after the pool, with a number behind it.
    pub fn start(name: &str, threads: usize, niceness: Option<i32>) -> ThreadPool {
        let shared =
            Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), done: AtomicU64::new(0) });
        let start = |number| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            let run = move || {
                if let Some(niceness) = niceness {
                    // Of this thread alone. Without it the service works as well, only less evenly.
                    let _ = rustix::process::setpriority_process(None, niceness);
                }
                shared.work();
            };
            thread.spawn(run).expect("a process that cannot start a few threads cannot run at all")
        };
        ThreadPool { threads: Mutex::new((0..threads).map(start).collect()), shared }
    }

    /// Queues a job of this cost. The answer fails if the pool is stopped before the job's turn, or if the
    /// job panics.
    pub fn run<T: Send + 'static>(
        &self,
        payer: impl Into<Payer>,
        cost: usize,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.run_below(usize::MAX, payer, cost, act).expect("a queue does not reach this length")
    }

    /// The same, unless so many jobs wait already: whoever asks faster than they are done is told so, and
    /// memory stays bounded.
    pub fn run_below<T: Send + 'static>(
        &self,
        waiting_max: usize,
        payer: impl Into<Payer>,
        cost: usize,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let (sender, answer) = oneshot::channel();
        let job = move || {
            // A caller that has gone away needs no answer, and no work.
            if !sender.is_closed() {
                let _ = sender.send(act());
            }
        };
        let mut queue = self.shared.queue();
        if queue.jobs.len() >= waiting_max {
            return None;
        }
        if !queue.stopped {
            queue.jobs.push(payer.into(), cost, Box::new(job));
            drop(queue);
            self.shared.changed.notify_one();
        }
        Some(answer)
    }

    /// Jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.shared.queue().jobs.len()
    }

    /// Drops what waits; what is under way ends by itself.
    pub fn stop(&self) {
        let waiting = {
            let mut queue = self.shared.queue();
            queue.stopped = true;
            std::mem::take(&mut queue.jobs)
        };
        // Outside the lock: a job may own the last reference to something that uses the pool.
        drop(waiting);
        self.shared.changed.notify_all();
    }

    /// Stops, and waits for what is under way. Not for a thread of the pool itself.
    pub fn stop_and_wait(&self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No job runs under the lock, so what it guards is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.queue();
        while !queue.stopped {
            let Some(job) = queue.jobs.pop() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            // It fails for its caller, who finds the answer gone; the thread is for everyone.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("panic in a job of the thread pool");
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            queue = self.queue();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use sealog_core::id::Uuid;

    use super::*;

    fn tenant(n: u8) -> TenantId {
        TenantId(Uuid([n; 16]))
    }

    /// Keeps every thread of a lane busy until the sender is dropped.
    fn block(pool: &FairPool, lane: Lane, threads: usize, payer: TenantId) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (began, begun) = mpsc::channel();
        for _ in 0..threads {
            let (released, began) = (Arc::clone(&released), began.clone());
            drop_answer(pool.run(lane, payer, 1, move || {
                began.send(()).unwrap();
                let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }));
        }
        for _ in 0..threads {
            begun.recv().unwrap();
        }
        release
    }

    /// Keeps the answer's channel open without waiting for it: a job whose caller has gone is not run.
    fn drop_answer<T: Send + 'static>(answer: oneshot::Receiver<T>) {
        std::thread::spawn(move || answer.blocking_recv().ok());
    }

    #[test]
    fn a_tenant_that_fills_the_queue_delays_another_by_a_turn_and_not_by_its_queue() {
        for lane in [Lane::Read, Lane::Compute] {
            // One thread, so that the order of jobs is the order of turns.
            let pool = FairPool::with_threads(1, 1);
            let release = block(&pool, lane, 1, tenant(1));
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut answers = Vec::new();
            let mut job = |of: u8, cost: usize| {
                let order = Arc::clone(&order);
                answers.push(pool.run(lane, tenant(of), cost, move || order.lock().unwrap().push(of)));
            };
            for _ in 0..30 {
                job(1, 1 << 20);
            }
            job(2, 1000);
            drop(release);
            for answer in answers {
                answer.blocking_recv().unwrap();
            }
            let place = order.lock().unwrap().iter().position(|of| *of == 2).unwrap();
            assert_eq!(
                place, 0,
                "{lane:?}: a megabyte takes 64 turns, and the small job is due in the first"
            );
        }
    }

    #[test]
    fn unknown_keys_are_one_queue_however_many_there_are() {
        let pool = FairPool::with_threads(1, 1);
        let release = block(&pool, Lane::Read, 1, tenant(9));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut answers = Vec::new();
        for n in 0..1000 {
            let (order, payer) =
                (Arc::clone(&order), if n < 999 { Payer::Stranger } else { tenant(1).into() });
            answers.push(pool.run(Lane::Read, payer, 4 << 10, move || order.lock().unwrap().push(payer)));
        }
        drop(release);
        for answer in answers {
            answer.blocking_recv().unwrap();
        }
        let place = order.lock().unwrap().iter().position(|payer| *payer != Payer::Stranger).unwrap();
        assert!(place <= 4, "{place} look-ups went before");
    }

    #[test]
    fn a_queue_with_a_limit_refuses_what_goes_beyond_it_and_takes_more_when_there_is_room() {
        let pool = ThreadPool::start("test", 1, None);
        let (release, released) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let first = pool.run(tenant(1), 1, move || {
            began.send(()).unwrap();
            let _ = released.recv();
        });
        begun.recv().unwrap();
        let waiting: Vec<_> = (0..2).map(|n| pool.run_below(2, tenant(1), 1, move || n).unwrap()).collect();
        assert!(pool.run_below(2, tenant(2), 1, || 9).is_none());
        assert_eq!(pool.waiting(), 2);
        drop(release);
        first.blocking_recv().unwrap();
        let answers: Vec<i32> = waiting.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect();
        assert_eq!(answers, [0, 1]);
        assert_eq!(pool.run_below(2, tenant(2), 1, || 9).unwrap().blocking_recv(), Ok(9));
        pool.stop_and_wait();
        assert!(pool.run(tenant(1), 1, || 1).blocking_recv().is_err());
    }

    #[test]
    fn a_panic_is_its_callers_alone() {
        let pool = FairPool::with_threads(1, 1);
        for lane in [Lane::Read, Lane::Compute] {
            for _ in 0..20 {
                let answer = pool.run(lane, tenant(1), 1, || -> u8 { panic!("on purpose") });
                assert!(answer.blocking_recv().is_err());
            }
            assert_eq!(pool.run(lane, tenant(1), 1, || 7).blocking_recv(), Ok(7));
        }
    }

    #[test]
    fn threads_that_compute_step_back_and_threads_that_take_locks_do_not() {
        let pool = FairPool::with_threads(1, 1);
        let niceness = |lane| {
            let ask = || rustix::process::getpriority_process(None).unwrap();
            pool.run(lane, Payer::Operator, 1, ask).blocking_recv().unwrap()
        };
        let own = rustix::process::getpriority_process(None).unwrap();
        assert_eq!((niceness(Lane::Read), niceness(Lane::Compute)), (own, COMPUTE_NICENESS.max(own)));
    }

    #[test]
    fn a_stopped_pool_answers_nobody_and_its_threads_end() {
        let pool = FairPool::with_threads(1, 1);
        let release = block(&pool, Lane::Read, 1, tenant(1));
        let waiting = pool.run(Lane::Read, tenant(1), 1, || 1);
        let threads = [Arc::downgrade(&pool.read.shared), Arc::downgrade(&pool.compute.shared)];
        pool.stop();
        assert!(waiting.blocking_recv().is_err());
        assert!(pool.run(Lane::Read, tenant(1), 1, || 1).blocking_recv().is_err());
        drop(release);
        drop(pool);
        while threads.iter().any(|shared| shared.strong_count() > 0) {
            std::thread::yield_now();
        }
    }
}
