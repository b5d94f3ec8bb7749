//! Places for pages that read events: each may hold a few megabytes. More wait, and no organisation takes all
//! of the places.

use sealog_store::shares::TenantShares;

/// At a time, of one organisation and of everybody.
const READS: (usize, usize) = (3, 8);
/// Each takes a core for about a second, and a second one of the same organisation waits.
const SEARCHES: (usize, usize) = (1, 4);

pub(crate) fn reads() -> TenantShares {
    TenantShares::new(READS.0, READS.1)
}

pub(crate) fn searches() -> TenantShares {
    TenantShares::new(SEARCHES.0, SEARCHES.1)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use sealog_core::id::{TenantId, Uuid};
    use sealog_store::shares::Place;

    use super::*;

    /// A place, if there is one now.
    fn place(shares: &TenantShares, n: u8) -> Option<Place> {
        let mut asked = Box::pin(shares.acquire(TenantId(Uuid([n; 16]))));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_organisation_reads_three_pages_at_once_and_all_read_eight() {
        let reads = reads();
        let held: Vec<Place> = [1, 1, 1, 2, 2, 2, 3, 3].map(|n| place(&reads, n).expect("a place")).into();
        assert!([1, 3, 4].iter().all(|n| place(&reads, *n).is_none()));
        drop(held);
        let held: Vec<Option<Place>> = (0..4).map(|_| place(&reads, 1)).collect();
        assert_eq!(held.iter().flatten().count(), 3);
    }

    #[test]
    fn an_organisation_searches_one_thing_at_a_time_and_four_do_so_at_once() {
        let searches = searches();
        let mut held: Vec<Place> = (1..=4).map(|n| place(&searches, n).expect("a place")).collect();
        assert!(place(&searches, 1).is_none() && place(&searches, 5).is_none());
        held.remove(0);
        assert!(place(&searches, 1).is_some());
    }
}
