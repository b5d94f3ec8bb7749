//! Memory admission control: requests wait for a share of a byte budget, so that many large ones, or slow
//! clients, make others wait instead of exhausting the machine.
//!
//! A share is taken before memory is used, for the most that the next step can need, and shrunk to what is
//! held after it. Bytes of an answer own their share ([`Share::hold`]): it is given back when the last of
//! them has left the write buffer of the connection, and not when they are handed to it.
//!
//! Between tenants the budget has a dynamic threshold: one that holds something gets more only while it then
//! holds no more than is left for everyone else. So one tenant gets at most half, two a third each, and
//! however many hold all they can get, as much as each of them has is left for the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sealog_core::id::TenantId;
use tokio::sync::oneshot;

/// How long a request waits for its share.
const WAIT: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

#[derive(Debug)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    all: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Those that hold something or wait for it.
    tenants: HashMap<TenantId, Tenant>,
    /// Tenants with requests that wait, in turn.
    waiting: VecDeque<TenantId>,
}

#[derive(Debug, Default)]
struct Tenant {
    held: usize,
    /// In the order in which they came.
    requests: VecDeque<(usize, oneshot::Sender<Share>)>,
}

/// A part of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shared: Arc<Shared>,
    tenant_id: TenantId,
    bytes: usize,
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
        Budget { shared: Arc::new(Shared { all: bytes, state: Mutex::default() }) }
    }

    /// What is held now.
    pub(crate) fn held(&self) -> usize {
        self.shared.state().held
    }

    pub(crate) async fn take(&self, tenant_id: TenantId, bytes: usize) -> Result<Share, Exhausted> {
        let shared = &self.shared;
        // A request that is larger than it can ever get has all that there is for one.
        let bytes = bytes.min(shared.all / 2);
        let granted = {
            let mut state = shared.state();
            let state = &mut *state;
            let tenant = state.tenants.entry(tenant_id).or_default();
            if tenant.requests.is_empty() && fits(shared.all, state.held, tenant.held, bytes) {
                state.held += bytes;
                tenant.held += bytes;
                return Ok(Share { shared: Arc::clone(shared), tenant_id, bytes });
            }
            let (grant, granted) = oneshot::channel();
            if tenant.requests.is_empty() {
                state.waiting.push_back(tenant_id);
            }
            tenant.requests.push_back((bytes, grant));
            granted
        };
        // A share that comes at the last moment is in the channel, and given back with it.
        tokio::time::timeout(WAIT, granted).await.ok().and_then(Result::ok).ok_or(Exhausted)
    }
}

/// Whether a tenant may have so many bytes more.
fn fits(all: usize, held: usize, held_by_tenant: usize, bytes: usize) -> bool {
    let Some(left) = all.checked_sub(held + bytes) else { return false };
    held_by_tenant == 0 || held_by_tenant + bytes <= left
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(self: &Arc<Shared>, tenant_id: TenantId, bytes: usize) {
        let mut unwanted = Vec::new();
        {
            let mut state = self.state();
            let state = &mut *state;
            state.held -= bytes;
            if let Some(tenant) = state.tenants.get_mut(&tenant_id) {
                tenant.held -= bytes;
            }
            // Each tenant that waits has one look, from the one that has waited longest.
            for _ in 0..state.waiting.len() {
                let Some(next) = state.waiting.pop_front() else { break };
                let Some(tenant) = state.tenants.get_mut(&next) else { continue };
                while let Some((bytes, grant)) = tenant.requests.front() {
                    if !grant.is_closed() && !fits(self.all, state.held, tenant.held, *bytes) {
                        break;
                    }
                    let Some((bytes, grant)) = tenant.requests.pop_front() else { break };
                    state.held += bytes;
                    tenant.held += bytes;
                    let share = Share { shared: Arc::clone(self), tenant_id: next, bytes };
                    // Whoever has given up waiting gives it back at once; not here, under the lock.
                    unwanted.extend(grant.send(share).err());
                }
                if !tenant.requests.is_empty() {
                    state.waiting.push_back(next);
                }
            }
            let idle = |tenant: &Tenant| tenant.held == 0 && tenant.requests.is_empty();
            if state.tenants.get(&tenant_id).is_some_and(idle) {
                state.tenants.remove(&tenant_id);
            }
        }
        drop(unwanted);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.give_back(self.tenant_id, self.bytes);
    }
}

impl Share {
    /// Takes a part out, for something that is held on its own.
    fn split(&mut self, bytes: usize) -> Share {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Share { shared: Arc::clone(&self.shared), tenant_id: self.tenant_id, bytes }
    }

    /// The content as bytes that keep what they take of the share until the last reference to them is gone.
    pub(crate) fn hold(&mut self, content: Vec<u8>) -> Bytes {
        let share = self.split(content.capacity());
        Bytes::from_owner(Held { content, _share: share })
    }
}

struct Held {
    content: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
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
    fn however_many_tenants_hold_all_they_can_get_there_is_as_much_left_for_the_next() {
        run(async {
            let budget = Budget::new(64 << 20);
            let mut shares: Vec<Share> = Vec::new();
            for greedy in 1..=3 {
                // In turn, as they do when all of them ask without pause.
                loop {
                    let mut taken = 0;
                    for n in 1..=greedy {
                        if let Ok(share) = budget.take(tenant(n), 1 << 20).await {
                            shares.push(share);
                            taken += 1;
                        }
                    }
                    if taken == 0 {
                        break;
                    }
                }
                let left = (64 << 20) - budget.held();
                // The first had half when it was alone, and does not grow any more.
                assert!(left >= (64 << 20) >> (greedy + 1), "{left} with {greedy}");
                budget.take(tenant(100), 6 << 20).await.unwrap();
            }
        });
    }

    #[test]
    fn requests_of_a_tenant_are_served_in_their_order_and_those_that_gave_up_are_not() {
        run(async {
            let budget = Arc::new(Budget::new(8 << 20));
            let first = budget.take(tenant(1), 4 << 20).await.unwrap();
            assert!(budget.take(tenant(1), 1).await.is_err(), "gives up");
            let order = Arc::new(Mutex::new(Vec::new()));
            let waiting: Vec<_> = (0..3)
                .map(|n| {
                    let (budget, order) = (Arc::clone(&budget), Arc::clone(&order));
                    tokio::spawn(async move {
                        let share = budget.take(tenant(1), 1 << 20).await.unwrap();
                        order.lock().unwrap().push(n);
                        share
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            drop(first);
            for waiting in waiting {
                waiting.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
            assert_eq!((budget.held(), budget.shared.state().tenants.len()), (0, 0));
        });
    }

    #[test]
    fn bytes_keep_their_share_until_the_last_reference_is_gone() {
        run(async {
            let budget = Budget::new(8 << 20);
            let mut share = budget.take(tenant(1), 4 << 20).await.unwrap();
            let mut bytes = share.hold(vec![7; 3 << 20]);
            drop(share);
            assert_eq!(budget.held(), 3 << 20);
            // What is still to be sent keeps all of the allocation.
            let sent = bytes.split_to(1 << 20);
            drop(sent);
            assert_eq!(budget.held(), 3 << 20);
            drop(bytes);
            assert_eq!(budget.held(), 0);
        });
    }

    #[test]
    fn tenants_without_a_request_are_forgotten() {
        run(async {
            let budget = Budget::new(8 << 20);
            for n in 0..10_000 {
                budget.take(tenant(n), 1).await.unwrap();
            }
            assert_eq!(budget.shared.state().tenants.len(), 0);
        });
    }
}
