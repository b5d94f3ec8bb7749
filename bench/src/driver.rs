//! Keeps a number of requests in flight from one thread, without a runtime: what is measured is the store,
//! not an executor.
//!
//! There is no pacing: as soon as the driver hears of an answer it sends the next request in its place, as a
//! client on a kept connection does. So the groups that the store commits are formed by what is in flight,
//! not by a clock.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use sealog_core::event::Draft;
use sealog_core::id::ChainId;
use sealog_store::{Append, Appended, BoxFuture, Store, StoreError};

use crate::machine::cpu_time;
use crate::outcome::Outcome;

/// Runs a future to its end on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
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
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Slots whose answer has come.
#[derive(Debug)]
struct Ready {
    slots: Mutex<Vec<usize>>,
    driver: Thread,
}

struct SlotWaker {
    slot: usize,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut slots = self.ready.slots.lock().expect("ready lock");
        slots.push(self.slot);
        let first = slots.len() == 1;
        drop(slots);
        // Of the answers to one group only the first has to wake the driver: one wake for each tick, not for
        // each request.
        if first {
            self.ready.driver.unpark();
        }
    }
}

/// What came of a run of appends.
#[derive(Debug, Default)]
pub struct Run {
    pub requests: u64,
    pub events: u64,
    pub elapsed: Duration,
    /// Of the whole process: the writer and the driver.
    pub cpu: Duration,
    /// Of each request, in nanoseconds.
    pub latencies_ns: Vec<u64>,
}

impl Run {
    pub fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Elapsed(Duration),
    /// Every request that there is has been answered.
    Exhausted,
}

struct Slot<'a> {
    future: BoxFuture<'a, Result<Appended, StoreError>>,
    events: u64,
    sent: Instant,
}

/// Keeps `in_flight` requests with the events of `next`, each for its chain, under way.
pub fn append(
    store: &dyn Store,
    in_flight: usize,
    until: Until,
    mut next: impl FnMut() -> Option<(ChainId, Vec<Draft>)>,
) -> Outcome<Run> {
    let ready = Arc::new(Ready { slots: Mutex::default(), driver: std::thread::current() });
    let wakers: Vec<Waker> = (0..in_flight)
        .map(|slot| Waker::from(Arc::new(SlotWaker { slot, ready: Arc::clone(&ready) })))
        .collect();
    let mut slots: Vec<Option<Slot<'_>>> = (0..in_flight).map(|_| None).collect();
    let mut run = Run { latencies_ns: Vec::with_capacity(1 << 20), ..Run::default() };
    let (start, cpu) = (Instant::now(), cpu_time());
    let over = |run: &Run| match until {
        Until::Elapsed(limit) => run.elapsed >= limit,
        Until::Exhausted => false,
    };
    let mut turn: Vec<usize> = (0..in_flight).collect();
    let mut pending = 0;
    let mut ended = false;
    loop {
        while let Some(at) = turn.pop() {
            // An answer may be there as soon as it is looked for, so a slot goes on until it has to wait.
            loop {
                if slots[at].is_none() {
                    let Some((chain, drafts)) = (if ended { None } else { next() }) else { break };
                    let events = drafts.len() as u64;
                    let sent = Instant::now();
                    let append = Append { chain, drafts, idempotency: None };
                    slots[at] = Some(Slot { future: store.append(append), events, sent });
                    pending += 1;
                }
                let Some(slot) = &mut slots[at] else { break };
                let Poll::Ready(answer) = slot.future.as_mut().poll(&mut Context::from_waker(&wakers[at]))
                else {
                    break;
                };
                let Appended::Sealed(_) = answer? else { return Err("an append was not sealed".into()) };
                pending -= 1;
                if !ended {
                    let now = Instant::now();
                    run.requests += 1;
                    run.events += slot.events;
                    run.latencies_ns.push(nanos(now - slot.sent));
                    run.elapsed = now - start;
                    // What is still in flight then is answered, but not counted.
                    ended = over(&run);
                    if ended {
                        run.cpu = cpu_time() - cpu;
                    }
                }
                slots[at] = None;
            }
        }
        if pending == 0 {
            if !ended {
                run.cpu = cpu_time() - cpu;
            }
            return Ok(run);
        }
        loop {
            std::mem::swap(&mut turn, &mut ready.slots.lock().expect("ready lock"));
            if !turn.is_empty() {
                break;
            }
            std::thread::park();
        }
    }
}

pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
