//! Batches the appends of one event-loop tick into one enqueue, and their completions into one wake-up.
//!
//! t0: the loop runs the tasks that are ready, and their appends are buffered; the first of them wakes a task
//! of the store, which is thereby scheduled behind them. t1: that task runs, also on a loop that is never
//! idle, and flushes the buffer to the writer, with one lock and at most one wake-up. t2: a group is durable;
//! the writer pushes the completions of this loop in one piece and wakes the loop once. t3: the loop passes
//! them on, each to a task on its own thread.
//!
//! A thread that is no event loop enqueues each request by itself, and is answered one by one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::completions::Completions;
use super::request::Request;
use super::threads::Writer;

/// A tick that has buffered so much is flushed before it ends: the writer should not wait for a loop that is
/// never idle.
const REQUESTS_MAX: usize = 32;
const BYTES_MAX: usize = 64 << 10;

thread_local! {
    static TICK: RefCell<Option<Tick>> = const { RefCell::new(None) };
}

/// What this thread's event loop has buffered.
#[derive(Debug)]
struct Tick {
    completions: Arc<Completions>,
    buffered: Vec<(Arc<Writer>, Request)>,
    /// Memory of the tick before, for the next one.
    spare: Vec<(Arc<Writer>, Request)>,
    bytes: usize,
    /// Of the task that flushes.
    task: Waker,
}

/// Buffers a request until the tick ends. Gives it back if this thread has no batching event loop.
pub(crate) fn buffer(writer: &Arc<Writer>, mut request: Request) -> Option<Request> {
    let mut full = false;
    let given_back = TICK.with_borrow_mut(|tick| {
        let Some(tick) = tick else { return Some(request) };
        if tick.buffered.is_empty() {
            tick.task.wake_by_ref();
        }
        request.completions = Some(Arc::clone(&tick.completions));
        tick.bytes += request.bytes;
        tick.buffered.push((Arc::clone(writer), request));
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
    while let Some((writer, request)) = requests.next() {
        let more =
            std::iter::from_fn(|| requests.next_if(|(of, _)| Arc::ptr_eq(of, &writer)).map(|(_, more)| more));
        writer.enqueue(std::iter::once(request).chain(more));
    }
    drop(requests);
    TICK.with_borrow_mut(|tick| {
        if let Some(tick) = tick {
            tick.spare = buffered;
        }
    });
}

/// Makes the event loop of this thread one that batches its appends by tick, for as long as this runs. It
/// must be a task of a runtime that has this thread alone.
pub async fn batch_by_tick() {
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
        reading.0.deliver(context.waker());
        Poll::<()>::Pending
    })
    .await;
}

struct Reading(Arc<Completions>);

impl Drop for Reading {
    fn drop(&mut self) {
        // At the end of the thread there may be nothing left to clear.
        let tick = TICK.try_with(|tick| tick.borrow_mut().take());
        for (writer, request) in tick.ok().flatten().into_iter().flat_map(|tick| tick.buffered) {
            writer.enqueue(std::iter::once(request));
        }
        self.0.close();
    }
}
