//! Places for pages that read events: each may hold a few megabytes. More wait, and no organisation takes all
//! of the places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealog_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// At a time, of everybody and of one organisation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    all: usize,
    of_tenant: usize,
}

pub(crate) const READS: Places = Places { all: 8, of_tenant: 3 };
/// Each takes a core for about a second, and a second one of the same organisation waits.
pub(crate) const SEARCHES: Places = Places { all: 4, of_tenant: 1 };
/// Organisations that are known before those without a reader are forgotten.
const TENANTS_KEPT: usize = 256;

#[derive(Debug)]
pub(crate) struct Reads {
    of_tenant: usize,
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// Held while a page reads.
#[derive(Debug)]
pub(crate) struct ReadPlace {
    _of_tenant: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Reads {
    pub(crate) fn new(Places { all, of_tenant }: Places) -> Reads {
        Reads { of_tenant, all: Arc::new(Semaphore::new(all)), tenants: Mutex::default() }
    }

    /// Waits first among those of the organisation, so that they never hold places that others could have.
    pub(crate) async fn acquire(&self, tenant_id: TenantId) -> ReadPlace {
        let of_tenant = self.of_tenant(tenant_id);
        // Neither is ever closed.
        let _of_tenant = of_tenant.acquire_owned().await.ok();
        let _of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        ReadPlace { _of_tenant, _of_all }
    }

    fn of_tenant(&self, tenant_id: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.lock();
        if tenants.len() >= TENANTS_KEPT {
            // Whoever reads or waits holds it, too.
            tenants.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = tenants.entry(tenant_id).or_insert_with(|| Arc::new(Semaphore::new(self.of_tenant)));
        Arc::clone(places)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Semaphore>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use sealog_core::id::Uuid;

    use super::*;

    fn tenant(n: usize) -> TenantId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        TenantId(Uuid(bytes))
    }

    /// A place, if there is one now.
    fn try_place(reads: &Reads, n: usize) -> Option<ReadPlace> {
        let mut asked = Box::pin(reads.acquire(tenant(n)));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_organisation_takes_three_places_of_eight_and_all_take_eight() {
        let reads = Reads::new(READS);
        let take = |n, count: usize| -> Vec<ReadPlace> {
            (0..count).map(|_| try_place(&reads, n).expect("a place")).collect()
        };
        let mut held = take(1, 3);
        assert!(try_place(&reads, 1).is_none());
        held.extend(take(2, 3));
        held.extend(take(3, 2));
        assert!(try_place(&reads, 3).is_none() && try_place(&reads, 4).is_none());
        held.remove(0);
        assert!(try_place(&reads, 1).is_some());
    }

    #[test]
    fn an_organisation_searches_one_thing_at_a_time_and_four_do_so_at_once() {
        let searches = Reads::new(SEARCHES);
        let mut held: Vec<ReadPlace> = (1..=4).map(|n| try_place(&searches, n).expect("a place")).collect();
        assert!(try_place(&searches, 1).is_none() && try_place(&searches, 5).is_none());
        held.remove(0);
        assert!(try_place(&searches, 1).is_some());
    }

    #[test]
    fn organisations_without_a_reader_are_forgotten() {
        let reads = Reads::new(READS);
        let held = try_place(&reads, 0);
        for n in 0..3 * TENANTS_KEPT {
            drop(try_place(&reads, n));
        }
        let known = reads.lock();
        assert!(known.len() <= TENANTS_KEPT && known.contains_key(&tenant(0)));
        drop(held);
    }
}
