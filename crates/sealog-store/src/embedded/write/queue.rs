//! The queue in front of the writer: fair by bytes between tenants, then between the chains of a tenant;
//! bounded by bytes and by a deadline. Large requests wait apart, and their chains with them.

use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, TenantId};

use super::ahead::LargeRequests;
use super::request::Request;
use crate::error::StoreError;
use crate::fair_queue::GroupedQueue;

#[derive(Debug)]
pub(crate) struct Queue {
    /// By tenant and chain, and with what each request will take in the log at most.
    small: GroupedQueue<TenantId, ChainId, Request>,
    large: LargeRequests,
    /// A request of this size is sealed ahead.
    large_bytes: usize,
    /// Most bytes that may wait.
    bytes_max: usize,
}

/// What became of requests that have waited too long.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Some have failed.
    pub any: bool,
    /// A chain that was paused can go on by that.
    pub freed: bool,
    /// One has waited for half of its deadline or longer.
    pub late: bool,
}

impl Queue {
    pub(crate) fn new(large_bytes: usize, bytes_max: usize) -> Queue {
        Queue { small: GroupedQueue::default(), large: LargeRequests::default(), large_bytes, bytes_max }
    }

    /// Admission: gives back what goes beyond the bytes that may wait (backpressure).
    pub(crate) fn push(&mut self, request: Request) -> Option<Request> {
        if self.bytes() + request.bytes > self.bytes_max {
            return Some(request);
        }
        self.small.push(request.chain.tenant_id, request.chain, request.bytes, request);
        None
    }

    /// Whether there is something to seal in a group. What is too large for that is put apart, and its chain
    /// paused.
    pub(crate) fn sort_out(&mut self) -> bool {
        while let Some((_, request)) = self.small.peek() {
            if !request.needs_sealing_ahead(self.large_bytes) {
                return true;
            }
            let chain = request.chain;
            if let Some(request) = self.small.pop() {
                self.large.push(request);
            }
            self.small.pause(chain.tenant_id, chain);
        }
        false
    }

    /// The next request for a group: its chain and its bytes.
    pub(crate) fn peek(&mut self) -> Option<(ChainId, usize)> {
        self.small.peek().map(|(bytes, request)| (request.chain, bytes))
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        let request = self.small.pop()?;
        self.large.note_group(false);
        Some(request)
    }

    /// The next request fails instead of going into a group.
    pub(crate) fn fail_next(&mut self, error: StoreError) {
        if let Some(request) = self.small.pop() {
            request.fail(error);
        }
    }

    /// Skips a chain until the group is complete.
    pub(crate) fn skip(&mut self, chain: ChainId) {
        self.small.pause(chain.tenant_id, chain);
    }

    /// The group is complete: those that were skipped for it are the first in the next one, in their order.
    pub(crate) fn resume_skipped(&mut self, skipped: Vec<ChainId>) {
        for chain in skipped.into_iter().rev() {
            self.small.resume_first(chain.tenant_id, chain);
        }
    }

    /// A large request that is sealed, for a group by itself. Its chain can go on.
    pub(crate) fn take_ready(&mut self, others_wait: bool) -> Option<Request> {
        let request = self.large.take_ready(others_wait)?;
        self.small.resume(request.chain.tenant_id, request.chain);
        Some(request)
    }

    pub(crate) fn note_large_group(&mut self) {
        self.large.note_group(true);
    }

    pub(crate) fn note_heads(&mut self, head_of: impl Fn(ChainId) -> Head) {
        self.large.note_heads(head_of);
    }

    /// The thread that seals ahead takes the next one.
    pub(crate) fn begin_ahead(&mut self) -> Option<(Request, Head)> {
        self.large.begin()
    }

    pub(crate) fn finish_ahead(&mut self, sealed: Request) {
        self.large.finish(sealed);
    }

    pub(crate) fn abandon_ahead(&mut self) {
        self.large.abandon();
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.large.has_ready()
    }

    /// Whether the thread that seals ahead is to be woken.
    pub(crate) fn is_ahead_due(&self) -> bool {
        self.large.is_due()
    }

    /// The same, for requests that have just come and may be large.
    pub(crate) fn may_need_ahead(&self) -> bool {
        self.small.bytes() >= self.large_bytes && !self.large.is_sealing()
    }

    /// Fails what has waited too long. What the writer has taken is not touched: it will be answered when its
    /// fate is known.
    pub(crate) fn expire(&mut self, deadline: Duration) -> Expired {
        let expired = self.small.take_oldest(|request| request.has_waited(deadline));
        let expired_large = self.large.expire(deadline);
        let outcome = Expired {
            any: !expired.is_empty() || !expired_large.is_empty(),
            freed: !expired_large.is_empty(),
            late: self.small.oldest().any(|request| request.has_waited(deadline / 2))
                || self.large.any_has_waited(deadline / 2),
        };
        for request in expired {
            request.fail(StoreError::Deadline);
        }
        for request in expired_large {
            self.small.resume(request.chain.tenant_id, request.chain);
            request.fail(StoreError::Deadline);
        }
        outcome
    }

    /// Takes everything that waits.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let mut requests = self.small.take_oldest(|_| true);
        requests.extend(self.large.drain());
        requests
    }

    /// Of the requests that can go into a group as they are.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small.bytes()
    }

    pub(crate) fn small_len(&self) -> usize {
        self.small.len()
    }

    /// Of all that waits.
    pub(crate) fn bytes(&self) -> usize {
        self.small.bytes() + self.large.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::{ProjectId, Uuid};

    use super::super::request::testing::{Answered, chain, request};
    use super::*;

    const LARGE: usize = 1000;

    fn queue() -> Queue {
        Queue::new(LARGE, 10 * LARGE)
    }

    fn push(queue: &mut Queue, tenant: u8, bytes: usize, age: Duration) -> Answered {
        let (request, answered) = request(tenant, bytes, age);
        assert!(queue.push(request).is_none());
        answered
    }

    #[test]
    fn more_bytes_than_may_wait_are_refused_whether_they_are_of_small_or_of_large_requests() {
        let mut queue = Queue::new(LARGE, 2 * LARGE);
        let _answers =
            [push(&mut queue, 1, LARGE, Duration::ZERO), push(&mut queue, 2, LARGE, Duration::ZERO)];
        assert!(!queue.sort_out());
        let (one_more, _answered) = request(3, 1, Duration::ZERO);
        assert!(queue.push(one_more).is_some());
        assert_eq!((queue.len(), queue.bytes()), (2, 2 * LARGE));
    }

    #[test]
    fn a_large_request_waits_apart_and_its_chain_with_it() {
        let mut queue = queue();
        let _answers: Vec<_> = [(1, LARGE), (1, 10), (2, LARGE), (3, 20)]
            .map(|(tenant, bytes)| push(&mut queue, tenant, bytes, Duration::ZERO))
            .into();
        while queue.sort_out() {
            assert_eq!(queue.pop().map(|request| request.bytes), Some(20));
        }
        assert_eq!((queue.len(), queue.bytes()), (3, 2 * LARGE + 10));
        assert!(!queue.is_idle() && queue.is_ahead_due());
    }

    #[test]
    fn a_chain_goes_on_when_a_group_has_taken_its_large_request() {
        let mut queue = queue();
        let _answers = [push(&mut queue, 1, LARGE, Duration::ZERO), push(&mut queue, 1, 10, Duration::ZERO)];
        assert!(!queue.sort_out());
        queue.note_heads(|_| Head::EMPTY);
        let (sealing, _) = queue.begin_ahead().unwrap();
        queue.finish_ahead(sealing);
        assert!(queue.has_ready() && queue.peek().is_none());
        assert_eq!(queue.take_ready(false).map(|request| request.bytes), Some(LARGE));
        assert!(queue.sort_out());
        assert_eq!(queue.pop().map(|request| request.bytes), Some(10));
        assert!(queue.is_idle());
    }

    #[test]
    fn chains_that_were_skipped_are_the_first_in_the_next_group() {
        let mut queue = queue();
        let _answers = [1, 2, 3].map(|tenant| push(&mut queue, tenant, 10, Duration::ZERO));
        let skipped = queue.peek().unwrap().0;
        queue.skip(skipped);
        let next = queue.peek().unwrap().0;
        assert_ne!(next, skipped);
        queue.pop();
        queue.resume_skipped(vec![skipped]);
        assert_eq!(queue.peek().unwrap().0, skipped);
    }

    #[test]
    fn a_request_that_has_waited_too_long_fails_and_a_large_one_frees_its_chain() {
        let mut queue = queue();
        let mut late = push(&mut queue, 1, LARGE, Duration::from_secs(10));
        let mut behind = push(&mut queue, 1, 10, Duration::ZERO);
        let mut small = push(&mut queue, 2, 10, Duration::from_secs(10));
        queue.sort_out();
        assert_eq!(queue.expire(Duration::from_secs(60)), Expired::default());
        assert_eq!(queue.expire(Duration::from_secs(12)), Expired { late: true, ..Expired::default() });
        assert_eq!(queue.expire(Duration::from_secs(5)), Expired { any: true, freed: true, late: false });
        for late in [&mut late, &mut small] {
            assert!(matches!(late.try_recv(), Ok(Err(StoreError::Deadline))));
        }
        assert!(behind.try_recv().is_err() && queue.sort_out());
        assert_eq!((queue.len(), queue.bytes()), (1, 10));
    }

    #[test]
    fn a_tenant_with_a_hundred_chains_is_one_tenant() {
        let mut queue = Queue::new(1 << 20, 1 << 20);
        let mut answers = Vec::new();
        for number in 0..100 {
            let (mut of_many, answered) = request(1, 2000, Duration::ZERO);
            of_many.chain.project_id = ProjectId(Uuid([number; 16]));
            assert!(queue.push(of_many).is_none());
            answers.push(answered);
        }
        answers.push(push(&mut queue, 2, 2000, Duration::ZERO));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|request| request.chain).collect();
        // A quantum of the first tenant goes before it.
        assert_eq!(order.iter().position(|of| *of == chain(2)), Some((16 << 10) / 2000));
        assert_eq!(order.len(), 101);
    }
}
