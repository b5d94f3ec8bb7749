//! Large requests, which are sealed before they have a place in the log: two megabytes take milliseconds, and
//! the other chains go on meanwhile.
//!
//! A large request's chain is paused in the queue from the moment it comes here until a group takes it, so
//! the head that it is sealed on stays true unless a group comes to nothing. The states of a request: waiting
//! (with or without a head), being sealed, ready.

use std::collections::VecDeque;
use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, TenantId};

use super::request::Request;
use crate::fair_queue::FairQueue;

/// Requests whose heads are noted: what the thread that seals ahead finds to do while a group is being
/// sealed.
const NEXT_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct LargeRequests {
    /// Fair by bytes between tenants: one with a hundred chains does not make the others wait for a hundred
    /// requests.
    waiting: FairQueue<TenantId, Request>,
    /// The first of them, each with the head to seal it on, once that is known. So few, since their heads are
    /// noted anew with every group, under the lock that all requests pass.
    next: VecDeque<(Request, Option<Head>)>,
    /// Those that are sealed, and that a group can take.
    ready: VecDeque<Request>,
    /// Of both, and of the one that is being sealed.
    bytes: usize,
    sealing: bool,
    /// The last group was a large request, so the next one is for the others.
    was_last: bool,
}

impl LargeRequests {
    pub(crate) fn push(&mut self, request: Request) {
        self.bytes += request.bytes;
        self.waiting.push(request.chain.tenant_id, request.bytes, request);
        self.choose_next();
    }

    fn choose_next(&mut self) {
        while self.next.len() < NEXT_MAX
            && let Some(request) = self.waiting.pop()
        {
            self.next.push_back((request, None));
        }
    }

    /// Notes what the next ones are to be sealed on.
    pub(crate) fn note_heads(&mut self, head_of: impl Fn(ChainId) -> Head) {
        for (request, on) in &mut self.next {
            *on = Some(head_of(request.chain));
        }
    }

    /// Whether the thread that seals ahead has something to do and is not at it.
    pub(crate) fn is_due(&self) -> bool {
        !self.next.is_empty() && !self.sealing
    }

    pub(crate) fn is_sealing(&self) -> bool {
        self.sealing
    }

    /// The next one to seal, and on which head. It counts as being sealed until [`LargeRequests::finish`].
    pub(crate) fn begin(&mut self) -> Option<(Request, Head)> {
        let on = self.next.front()?.1?;
        let (request, _) = self.next.pop_front()?;
        self.choose_next();
        self.sealing = true;
        Some((request, on))
    }

    pub(crate) fn finish(&mut self, sealed: Request) {
        self.sealing = false;
        self.ready.push_back(sealed);
    }

    /// The thread that was sealing one has panicked, and the request is gone with it.
    pub(crate) fn abandon(&mut self) {
        self.sealing = false;
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What goes into a group by itself, unless others have waited while the last of its kind was written.
    pub(crate) fn take_ready(&mut self, others_wait: bool) -> Option<Request> {
        if others_wait && self.was_last {
            return None;
        }
        let request = self.ready.pop_front()?;
        self.bytes -= request.bytes;
        Some(request)
    }

    /// A group was begun, with a large request or with others.
    pub(crate) fn note_group(&mut self, large: bool) {
        self.was_last = large;
    }

    /// Takes those that have waited for so long, whatever their place: they stand in the order of their
    /// turns, not of their age.
    pub(crate) fn expire(&mut self, deadline: Duration) -> Vec<Request> {
        let late = |request: &Request| request.has_waited(deadline);
        let mut all = self.waiting.take_all(late);
        let (expired, next): (VecDeque<_>, _) =
            std::mem::take(&mut self.next).into_iter().partition(|(request, _)| late(request));
        self.next = next;
        let (expired_ready, ready): (VecDeque<_>, _) =
            std::mem::take(&mut self.ready).into_iter().partition(late);
        self.ready = ready;
        all.extend(expired.into_iter().map(|(request, _)| request).chain(expired_ready));
        self.choose_next();
        self.given_up(all)
    }

    /// Takes all but the one that is being sealed.
    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let waiting = self.waiting.take_all(|_| true);
        let next = std::mem::take(&mut self.next).into_iter().map(|(request, _)| request);
        let ready = std::mem::take(&mut self.ready);
        self.given_up(waiting.into_iter().chain(next).chain(ready).collect())
    }

    fn given_up(&mut self, requests: Vec<Request>) -> Vec<Request> {
        self.bytes -= requests.iter().map(|request| request.bytes).sum::<usize>();
        requests
    }

    pub(crate) fn any_has_waited(&self, time: Duration) -> bool {
        self.waiting.iter().any(|request| request.has_waited(time))
            || self.next.iter().any(|(request, _)| request.has_waited(time))
            || self.ready.iter().any(|request| request.has_waited(time))
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.next.len() + self.ready.len() + usize::from(self.sealing)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::request::testing::{chain, request};
    use super::*;

    const LARGE: usize = 1000;

    fn large(tenants: &[u8]) -> LargeRequests {
        let mut large = LargeRequests::default();
        for tenant in tenants {
            large.push(request(*tenant, LARGE, Duration::ZERO).0);
        }
        large
    }

    #[test]
    fn one_is_sealed_only_once_its_head_is_known() {
        let mut large = large(&[1]);
        assert!(large.is_due() && large.begin().is_none());
        let head = Head { chain_seq: 7, ..Head::EMPTY };
        large.note_heads(|of| if of == chain(1) { head } else { Head::EMPTY });
        let (request, on) = large.begin().unwrap();
        assert_eq!(on, head);
        assert!(large.is_sealing() && !large.is_due() && !large.has_ready());
        assert_eq!((large.len(), large.bytes()), (1, LARGE), "it still counts");
        large.finish(request);
        assert!(large.has_ready() && large.take_ready(true).is_some());
        assert_eq!((large.len(), large.bytes()), (0, 0));
    }

    #[test]
    fn after_a_large_request_the_others_go_first() {
        let mut large = large(&[1, 2]);
        large.note_heads(|_| Head::EMPTY);
        for _ in 0..2 {
            let (request, _) = large.begin().unwrap();
            large.finish(request);
        }
        assert!(large.take_ready(true).is_some());
        large.note_group(true);
        assert!(large.take_ready(true).is_none(), "others wait, and it is their turn");
        assert!(large.take_ready(false).is_some(), "nobody else waits");
    }

    #[test]
    fn one_that_has_waited_too_long_is_found_behind_a_younger_one_and_when_it_is_ready() {
        let (old, young) = (Duration::from_secs(10), Duration::ZERO);
        let mut large = LargeRequests::default();
        large.push(request(4, LARGE, old).0);
        large.note_heads(|_| Head::EMPTY);
        let (ready, _) = large.begin().unwrap();
        large.finish(ready);
        for (tenant, age) in [(1, young), (2, old), (3, young)] {
            large.push(request(tenant, LARGE, age).0);
        }
        assert!(large.any_has_waited(Duration::from_secs(5)));
        let expired = large.expire(Duration::from_secs(5));
        assert_eq!(expired.iter().map(|request| request.chain).collect::<Vec<_>>(), [chain(2), chain(4)]);
        assert_eq!((large.len(), large.bytes()), (2, 2 * LARGE));
        assert!(!large.any_has_waited(Duration::from_secs(5)));
    }

    #[test]
    fn all_can_be_taken_but_the_one_that_is_being_sealed() {
        let mut large = large(&[1, 2, 3]);
        large.note_heads(|_| Head::EMPTY);
        let (sealing, _) = large.begin().unwrap();
        assert_eq!(large.drain().len(), 2);
        assert_eq!((large.len(), large.bytes()), (1, LARGE));
        large.finish(sealing);
        assert_eq!(large.drain().len(), 1);
        assert_eq!((large.len(), large.bytes()), (0, 0));
    }

    #[test]
    fn large_requests_of_a_hundred_chains_of_one_tenant_do_not_all_go_before_another_tenants() {
        let mut large = large(&[1; 100]);
        large.push(request(2, LARGE, Duration::ZERO).0);
        let looked_up = Cell::new(0);
        let mut order = Vec::new();
        while large.is_due() {
            large.note_heads(|_| {
                looked_up.set(looked_up.get() + 1);
                Head::EMPTY
            });
            let (request, _) = large.begin().unwrap();
            order.push(request.chain);
            large.finish(request);
        }
        let place = order.iter().position(|of| *of == chain(2)).unwrap();
        // Those that were next already, and a quantum of the first tenant.
        assert!(place <= NEXT_MAX + (16 << 10) / LARGE, "{place}");
        assert!(looked_up.get() <= NEXT_MAX * order.len(), "{looked_up:?}");
    }
}
