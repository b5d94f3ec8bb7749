//! Places that tenants share, so that no tenant takes them all: at most so many of one tenant, and so many of
//! all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sealog_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// Tenants that are known before those that neither hold a place nor wait for one are forgotten.
const TENANTS_KEPT: usize = 256;

#[derive(Debug)]
pub struct TenantShares {
    of_one: usize,
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// Held while it is used.
#[derive(Debug)]
pub struct Place {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl TenantShares {
    pub fn new(of_one: usize, of_all: usize) -> TenantShares {
        TenantShares { of_one, all: Arc::new(Semaphore::new(of_all)), tenants: Mutex::default() }
    }

    /// Where one tenant may take the places of all: those who share them wait for each other elsewhere.
    pub fn of_each(of_one: usize) -> TenantShares {
        TenantShares::new(of_one, Semaphore::MAX_PERMITS)
    }

    /// Waits first among those of the tenant, so that they never hold places that others could have.
    pub async fn acquire(&self, tenant_id: TenantId) -> Place {
        let of_tenant = {
            let mut tenants = lock(&self.tenants);
            if tenants.len() >= TENANTS_KEPT {
                // Whoever holds a place or waits for one holds this, too.
                tenants.retain(|_, places| Arc::strong_count(places) > 1);
            }
            let new = || Arc::new(Semaphore::new(self.of_one));
            Arc::clone(tenants.entry(tenant_id).or_insert_with(new))
        };
        let _of_tenant = of_tenant.acquire_owned().await.expect("it is never closed");
        let _of_all = Arc::clone(&self.all).acquire_owned().await.expect("it is never closed");
        Place { _of_tenant, _of_all }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use sealog_core::id::Uuid;

    use super::*;

    fn tenant(n: u16) -> TenantId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        TenantId(Uuid(bytes))
    }

    /// A place, if there is one now.
    fn place(shares: &TenantShares, n: u16) -> Option<Place> {
        let mut asked = Box::pin(shares.acquire(tenant(n)));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_tenant_takes_three_places_of_eight_and_all_take_eight() {
        let shares = TenantShares::new(3, 8);
        let take = |n, count: usize| -> Vec<Place> {
            (0..count).map(|_| place(&shares, n).expect("a place")).collect()
        };
        let mut held = take(1, 3);
        assert!(place(&shares, 1).is_none());
        held.extend(take(2, 3));
        held.extend(take(3, 2));
        assert!(place(&shares, 3).is_none() && place(&shares, 4).is_none());
        held.remove(0);
        assert!(place(&shares, 1).is_some());
    }

    #[test]
    fn tenants_without_a_place_are_forgotten() {
        let shares = TenantShares::of_each(1);
        let held = place(&shares, 0);
        for n in 0..1000 {
            drop(place(&shares, n));
        }
        let known = lock(&shares.tenants);
        assert!(known.len() <= TENANTS_KEPT && known.contains_key(&tenant(0)));
        drop(held);
    }
}
