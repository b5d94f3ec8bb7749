//! Hand-overs between an event loop and a writer: one in each direction for a turn of the loop, however many requests the turn has brought.
//!
//! t0: the loop runs the tasks that are ready, and what they append is put aside; the first to do so wakes a task of the store, which thereby stands behind them (unless it is awake already, below).
//! t1: that task runs, also on a loop that never waits; all that was put aside goes to the writer, with one lock and at most one wake-up. t2: a group is durable; the writer
//! leaves its answers for this loop in one place and wakes the loop once. t3: the loop passes them on, each to a task on its own thread.
//!
//! A loop with one request at the store looks for the answer itself for a moment, if the last one came soon: the task stays awake, and the writer need not wake anyone.
//!
//! A thread that is no event loop hands over each request by itself, and is answered one by one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;

use super::writer::{Outcome, Request, STAY_AWAKE};
use crate::embedded::open_log::Log;
use crate::sync::lock;

/// A turn that has brought so much is handed over before it ends: the writer should not wait for a loop that has always something to do.
const REQUESTS_MAX: usize = 32;
const BYTES_MAX: usize = 64 << 10;

/// A loop with one request at the store looks for its answer, instead of sleeping, if the one before came as soon as this.
const SOON: Duration = Duration::from_micros(150);

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// What this thread's event loop has put aside.
#[derive(Debug)]
struct Turn {
    answers: Arc<Answers>,
    aside: Vec<(Arc<Log>, Request)>,
    /// Memory of the turn before, for the next one.
    spare: Vec<(Arc<Log>, Request)>,
    bytes: usize,
    /// Of the task that hands over.
    task: Waker,
}

/// Answers for the tasks of one event loop.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Left>);

#[derive(Debug, Default)]
struct Left {
    outcomes: Vec<(Outcome, Head)>,
    reader: Option<Waker>,
    /// The loop has ended.
    closed: bool,
}

impl Answers {
    /// Tells the tasks of this loop that their requests are durable.
    pub(crate) fn leave(&self, mut outcomes: Vec<(Outcome, Head)>) {
        let mut left = lock(&self.0);
        let reader = left.reader.take();
        if left.closed {
            drop(left);
            pass_on(outcomes);
        } else {
            if left.outcomes.is_empty() {
                left.outcomes = outcomes;
            } else {
                left.outcomes.append(&mut outcomes);
            }
            drop(left);
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

/// Puts a request aside until the turn ends. Gives it back if this thread has no turns.
pub(crate) fn put_aside(log: &Arc<Log>, mut request: Request) -> Option<Request> {
    let mut full = false;
    let given_back = TURN.with_borrow_mut(|turn| {
        let Some(turn) = turn else { return Some(request) };
        if turn.aside.is_empty() {
            turn.task.wake_by_ref();
        }
        request.answers = Some(Arc::clone(&turn.answers));
        turn.bytes += request.bytes;
        turn.aside.push((Arc::clone(log), request));
        full = turn.aside.len() >= REQUESTS_MAX || turn.bytes >= BYTES_MAX;
        None
    });
    if full {
        end_turn();
    }
    given_back
}

/// Hands over what was put aside in this turn. Whether that was something.
fn end_turn() -> bool {
    let aside = TURN.with_borrow_mut(|turn| {
        let turn = turn.as_mut().filter(|turn| !turn.aside.is_empty())?;
        turn.bytes = 0;
        Some(std::mem::replace(&mut turn.aside, std::mem::take(&mut turn.spare)))
    });
    let Some(mut aside) = aside else { return false };
    let mut requests = aside.drain(..).peekable();
    while let Some((log, request)) = requests.next() {
        let more =
            std::iter::from_fn(|| requests.next_if(|(of, _)| Arc::ptr_eq(of, &log)).map(|(_, more)| more));
        log.enqueue(std::iter::once(request).chain(more));
    }
    drop(requests);
    TURN.with_borrow_mut(|turn| {
        if let Some(turn) = turn {
            turn.spare = aside;
        }
    });
    true
}

/// Makes the event loop of this thread one that hands over once in a turn, for as long as this runs. It must be a task of a runtime that has this thread alone.
pub async fn hand_over_in_turns() {
    let answers = Arc::new(Answers::default());
    let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    TURN.set(Some(Turn {
        answers: Arc::clone(&answers),
        aside: Vec::new(),
        spare: Vec::new(),
        bytes: 0,
        task,
    }));
    let reading = Reading(answers);
    let mut handed_over: Option<Instant> = None;
    let mut last_took = Duration::ZERO;
    poll_fn(|context| {
        if end_turn() {
            handed_over = Some(Instant::now());
        }
        let waited = handed_over.map(|since| since.elapsed());
        // As a writer does: an answer that comes soon is there before a sleeping thread would be awake.
        let looks = last_took < SOON
            && waited.is_some_and(|waited| waited < STAY_AWAKE)
            && reading.one_is_under_way();
        let outcomes = {
            let mut left = lock(&reading.0.0);
            if looks {
                left.reader = None;
            } else if !left.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
                left.reader = Some(context.waker().clone());
            }
            std::mem::take(&mut left.outcomes)
        };
        if !outcomes.is_empty() {
            last_took = waited.unwrap_or(last_took);
            handed_over = None;
        }
        if looks {
            // Also with an answer, so that the next look leaves a waker for the one after it.
            context.waker().wake_by_ref();
            if outcomes.is_empty() {
                std::thread::yield_now();
            }
        }
        pass_on(outcomes);
        Poll::<()>::Pending
    })
    .await;
}

struct Reading(Arc<Answers>);

impl Reading {
    /// Whether exactly one request of this loop is with the store. Each has a reference to where its answer is to be left, besides the loop's own two.
    fn one_is_under_way(&self) -> bool {
        Arc::strong_count(&self.0) == 3
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // At the end of the thread there may be nothing left to clear.
        let turn = TURN.try_with(|turn| turn.borrow_mut().take());
        for (log, request) in turn.ok().flatten().into_iter().flat_map(|turn| turn.aside) {
            log.enqueue(std::iter::once(request));
        }
        let outcomes = {
            let mut left = lock(&self.0.0);
            left.closed = true;
            std::mem::take(&mut left.outcomes)
        };
        pass_on(outcomes);
    }
}
