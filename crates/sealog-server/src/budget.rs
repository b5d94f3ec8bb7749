//! Memory that requests may hold, so that many large ones, or slow clients, make others wait instead of exhausting the machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sealog_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which memory is shared out.
const UNIT: usize = 1024;
/// How long a request waits for its share.
const WAIT: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };
/// Tenants that are remembered before those without a request are forgotten.
const TENANTS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Budget {
    all: Arc<Semaphore>,
    /// One tenant never gets more than half, so that it cannot keep the others out.
    tenant_units: usize,
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// A part of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of_tenant: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// No share became free in time.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl std::fmt::Display for Exhausted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many large requests at once; no memory became free in time")
    }
}

impl Budget {
    /// At least twice what a single request can ask for.
    pub(crate) fn new(bytes: usize) -> Budget {
        let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        Budget { all: Arc::new(Semaphore::new(units)), tenant_units: units / 2, tenants: Mutex::default() }
    }

    pub(crate) async fn take(&self, tenant_id: TenantId, bytes: usize) -> Result<Share, Exhausted> {
        let units = u32::try_from(units(bytes).min(self.tenant_units)).unwrap_or(u32::MAX);
        let of_tenant = self.of(tenant_id);
        let take = async {
            let of_tenant = of_tenant.acquire_many_owned(units).await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
            Some(Share { of_tenant, of_all })
        };
        tokio::time::timeout(WAIT, take).await.ok().flatten().ok_or(Exhausted)
    }

    fn of(&self, tenant_id: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().expect("budget lock");
        if let Some(known) = tenants.get(&tenant_id).and_then(Weak::upgrade) {
            return known;
        }
        if tenants.len() >= TENANTS_MAX {
            tenants.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.tenant_units));
        tenants.insert(tenant_id, Arc::downgrade(&semaphore));
        semaphore
    }
}

impl Share {
    /// Gives back what turned out not to be needed.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        for permit in [&mut self.of_tenant, &mut self.of_all] {
            let spare = permit.num_permits().saturating_sub(units(bytes));
            drop(permit.split(spare));
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    fn run<T>(act: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(act)
    }

    fn tenant(n: u128) -> TenantId {
        TenantId(Uuid(n.to_be_bytes()))
    }

    #[test]
    fn a_tenant_gets_at_most_half_and_the_other_half_stays_for_the_others() {
        run(async {
            let budget = Budget::new(8 << 20);
            let first = budget.take(tenant(1), 4 << 20).await.unwrap();
            assert!(budget.take(tenant(1), 1 << 20).await.is_err());
            let _other = budget.take(tenant(2), 4 << 20).await.unwrap();
            assert!(budget.take(tenant(3), 1 << 20).await.is_err());
            drop(first);
            budget.take(tenant(1), 1 << 20).await.unwrap();
        });
    }

    #[test]
    fn what_is_not_needed_is_given_back_at_once() {
        run(async {
            let budget = Budget::new(8 << 20);
            let mut first = budget.take(tenant(1), 4 << 20).await.unwrap();
            first.shrink(3);
            let _second = budget.take(tenant(1), 3 << 20).await.unwrap();
            assert_eq!(budget.all.available_permits(), 5 * 1024 - 1);
        });
    }

    #[test]
    fn tenants_without_a_request_are_forgotten() {
        run(async {
            let budget = Budget::new(8 << 20);
            for n in 0..10_000 {
                budget.take(tenant(n), 1).await.unwrap();
            }
            assert!(budget.tenants.lock().unwrap().len() <= TENANTS_MAX);
        });
    }
}
