//! Completions for the tasks of one event loop: the writer pushes those of a group in one piece and wakes the
//! loop once.

use std::sync::Mutex;
use std::task::Waker;

use sealog_core::chain::Head;

use super::outcome::Outcome;
use crate::sync::lock;

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

    /// Passes on what was pushed, and wakes this task for the next.
    pub(crate) fn deliver(&self, task: &Waker) {
        let outcomes = {
            let mut pending = lock(&self.0);
            if !pending.reader.as_ref().is_some_and(|reader| reader.will_wake(task)) {
                pending.reader = Some(task.clone());
            }
            std::mem::take(&mut pending.outcomes)
        };
        pass_on(outcomes);
    }

    /// The loop ends: what was pushed is passed on, and what is pushed later is passed on by the writer.
    pub(crate) fn close(&self) {
        let outcomes = {
            let mut pending = lock(&self.0);
            pending.closed = true;
            std::mem::take(&mut pending.outcomes)
        };
        pass_on(outcomes);
    }
}

fn pass_on(outcomes: Vec<(Outcome, Head)>) {
    for (outcome, head) in outcomes {
        outcome.succeed(head);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn outcome() -> ((Outcome, Head), oneshot::Receiver<Result<Head, crate::error::StoreError>>) {
        let (answer, answered) = oneshot::channel();
        ((Outcome::Import { answer }, Head::EMPTY), answered)
    }

    #[test]
    fn many_completions_wake_their_loop_once_and_are_passed_on_by_it() {
        let (completions, count) = (Completions::default(), Arc::new(Count::default()));
        let task = Waker::from(Arc::clone(&count));
        completions.deliver(&task);
        let (outcomes, mut answered): (Vec<_>, Vec<_>) = (0..5).map(|_| outcome()).unzip();
        for outcome in outcomes {
            completions.push(vec![outcome]);
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(answered.iter_mut().all(|answer| answer.try_recv().is_err()));
        completions.deliver(&task);
        assert!(answered.iter_mut().all(|answer| answer.try_recv().is_ok()));
    }

    #[test]
    fn what_is_pushed_to_a_loop_that_has_ended_is_passed_on_at_once() {
        let completions = Completions::default();
        let (first, mut first_answered) = outcome();
        completions.push(vec![first]);
        completions.close();
        assert!(first_answered.try_recv().is_ok());
        let (second, mut second_answered) = outcome();
        completions.push(vec![second]);
        assert!(second_answered.try_recv().is_ok());
    }
}
