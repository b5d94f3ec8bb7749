//! How many connections the chains of one tenant have at a time. Each chain that has something to write asks
//! for one, and they are given in the order in which they were asked for: a tenant with a thousand chains
//! would be a thousand ahead of everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sealog_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// Tenants that are known before those that write nothing are forgotten.
const TENANTS_KEPT: usize = 256;

#[derive(Debug)]
pub(super) struct TenantShares {
    of_one: usize,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl TenantShares {
    /// One tenant has three quarters of the connections, so that the next one does not wait for it.
    pub(super) fn new(connections: usize) -> TenantShares {
        TenantShares { of_one: (connections - connections / 4).max(1), tenants: Mutex::default() }
    }

    /// Waits among the chains of the tenant, before they wait for a connection among all. `None` when the
    /// store closes.
    pub(super) async fn acquire(&self, tenant_id: TenantId) -> Option<OwnedSemaphorePermit> {
        let places = {
            let mut tenants = lock(&self.tenants);
            if tenants.len() >= TENANTS_KEPT {
                // Whoever writes or waits holds it, too.
                tenants.retain(|_, places| Arc::strong_count(places) > 1);
            }
            let new = || Arc::new(Semaphore::new(self.of_one));
            Arc::clone(tenants.entry(tenant_id).or_insert_with(new))
        };
        places.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use sealog_core::id::Uuid;

    use super::*;

    fn place(shares: &TenantShares, tenant: u16) -> Option<OwnedSemaphorePermit> {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&tenant.to_be_bytes());
        let mut asked = Box::pin(shares.acquire(TenantId(Uuid(bytes))));
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place,
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_chains_of_one_tenant_have_three_quarters_of_the_connections_and_another_finds_one() {
        let shares = TenantShares::new(16);
        let held: Vec<_> = (0..1000).map_while(|_| place(&shares, 1)).collect();
        assert_eq!(held.len(), 12);
        assert!(place(&shares, 2).is_some());
        drop(held);
        assert!(place(&shares, 1).is_some());
        assert!(place(&TenantShares::new(1), 1).is_some(), "one connection is for everybody");
        for tenant in 0..1000 {
            drop(place(&shares, tenant));
        }
        assert!(lock(&shares.tenants).len() <= TENANTS_KEPT);
    }
}
