//! Batches the appends of one event-loop tick into one enqueue, and their completions into one wake-up.
//!
//! t0: the loop runs the tasks that are ready, and their appends are buffered; the first of them wakes a task of the
//! store, which is thereby scheduled behind them. t1: that task runs, also on a loop that is never idle, and flushes the
//! buffer to the writer, with one lock and at most one wake-up. t2: a group is durable; the writer pushes the completions
//! of this loop in one piece and wakes the loop once. t3: the loop passes them on, each to a task on its own thread.
//!
//! A thread that is no event loop enqueues each request by itself, and is answered one by one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use sealog_core::chain::Head;

use super::writer::{Outcome, Request};
use crate::embedded::open_log::Log;
use crate::sync::lock;

/// A tick that has buffered so much is flushed before it ends: the writer should not wait for a loop that is never idle.
const REQUESTS_MAX: usize = 32;
const BYTES_MAX: usize = 64 << 10;

thread_local! {
    static TICK: RefCell<Option<Tick>> = const { RefCell::new(None) };
}

/// What this thread's event loop has buffered.
#[derive(Debug)]
struct Tick {
    completions: Arc<Completions>,
    buffered: Vec<(Arc<Log>, Request)>,
    /// Memory of the tick before, for the next one.
    spare: Vec<(Arc<Log>, Request)>,
    bytes: usize,
    /// Of the task that flushes.
    task: Waker,
}

/// Completions for the tasks of one event loop.
#[derive(Debug, Default)]
pub(crate) struct Completions(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    outcomes: Vec<(Outcome, Head)>,
    reader: Option<Waker>,
    /// The loop has ended.
    closed: bool,
}

impl Completions {
    /// Tells the tasks of this loop that their requests are durable.
    pub(crate) fn push(&self, mut outcomes: Vec<(Outcome, Head)>) {
        let mut pending = lock(&self.0);
        let reader = pending.reader.take();
        if pending.closed {
            drop(pending);
            pass_on(outcomes);
        } else {
            if pending.outcomes.is_empty() {
                pending.outcomes = outcomes;
            } else {
                pending.outcomes.append(&mut outcomes);
            }
            drop(pending);
        }
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

fn pass_on(outcomes: Vec<(Outcome, Head)>) {
    for (outcome, head) in outcomes {
        outcome.succeed(head);
    }
}

/// Buffers a request until the tick ends. Gives it back if this thread has no batching event loop.
pub(crate) fn buffer(log: &Arc<Log>, mut request: Request) -> Option<Request> {
    let mut full = false;
    let given_back = TICK.with_borrow_mut(|tick| {
        let Some(tick) = tick else { return Some(request) };
        if tick.buffered.is_empty() {
            tick.task.wake_by_ref();
        }
        request.completions = Some(Arc::clone(&tick.completions));
        tick.bytes += request.bytes;
        tick.buffered.push((Arc::clone(log), request));
        full = tick.buffered.len() >= REQUESTS_MAX || tick.bytes >= BYTES_MAX;
        None
    });
    if full {
        flush();
    }
    given_back
}

/// Enqueues what was buffered in this tick.
fn flush() {
    let buffered = TICK.with_borrow_mut(|tick| {
        let tick = tick.as_mut().filter(|tick| !tick.buffered.is_empty())?;
        tick.bytes = 0;
        Some(std::mem::replace(&mut tick.buffered, std::mem::take(&mut tick.spare)))
    });
    let Some(mut buffered) = buffered else { return };
    let mut requests = buffered.drain(..).peekable();
    while let Some((log, request)) = requests.next() {
        let more =
            std::iter::from_fn(|| requests.next_if(|(of, _)| Arc::ptr_eq(of, &log)).map(|(_, more)| more));
        log.enqueue(std::iter::once(request).chain(more));
    }
    drop(requests);
    TICK.with_borrow_mut(|tick| {
        if let Some(tick) = tick {
            tick.spare = buffered;
        }
    });
}

/// Makes the event loop of this thread one that batches its appends by tick, for as long as this runs. It must be a task of a runtime that has this thread alone.
pub async fn hand_over_in_turns() {
    let completions = Arc::new(Completions::default());
    let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    TICK.set(Some(Tick {
        completions: Arc::clone(&completions),
        buffered: Vec::new(),
        spare: Vec::new(),
        bytes: 0,
        task,
    }));
    let reading = Reading(completions);
    poll_fn(|context| {
        flush();
        let outcomes = {
            let mut pending = lock(&reading.0.0);
            if !pending.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
                pending.reader = Some(context.waker().clone());
            }
            std::mem::take(&mut pending.outcomes)
        };
        pass_on(outcomes);
        Poll::<()>::Pending
    })
    .await;
}

struct Reading(Arc<Completions>);

impl Drop for Reading {
    fn drop(&mut self) {
        // At the end of the thread there may be nothing left to clear.
        let tick = TICK.try_with(|tick| tick.borrow_mut().take());
        for (log, request) in tick.ok().flatten().into_iter().flat_map(|tick| tick.buffered) {
            log.enqueue(std::iter::once(request));
        }
        let outcomes = {
            let mut pending = lock(&self.0.0);
            pending.closed = true;
            std::mem::take(&mut pending.outcomes)
        };
        pass_on(outcomes);
    }
}
