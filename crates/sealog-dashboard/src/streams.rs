//! Live views and downloads that are open: so many of one person, of one organisation and of all. Each holds
//! a connection, and asks control data now and then whether it may go on.
//!
//! Between organisations the places have a dynamic threshold, as the memory for answers has: one that has
//! places gets another only while it then has no more than are left. So one gets at most half, and two a
//! third each. The first place of an organisation comes from a reserve beside these: however many the others
//! have, it gets one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealog_control::PersonId;
use sealog_core::id::TenantId;
use sealog_service::Stop;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    of_person: usize,
    /// What organisations share.
    shared: usize,
    /// With the reserve: beyond what is shared, an organisation gets its first place and no second.
    all: usize,
}

pub(crate) const LIVE_VIEWS: Limits = Limits { of_person: 4, shared: 200, all: 400 };
/// Each holds a piece of some megabytes at most.
pub(crate) const DOWNLOADS: Limits = Limits { of_person: 2, shared: 32, all: 64 };

#[derive(Clone, Debug)]
pub(crate) struct Streams {
    limits: Limits,
    open: Arc<Mutex<Open>>,
    /// When the server stops, they end.
    pub(crate) stop: Arc<Stop>,
}

#[derive(Debug, Default)]
struct Open {
    of_people: HashMap<PersonId, usize>,
    of_tenants: HashMap<TenantId, usize>,
    all: usize,
}

/// Held while a live view is open.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Streams,
    tenant_id: TenantId,
    person_id: PersonId,
}

impl Streams {
    pub(crate) fn new(limits: Limits) -> Streams {
        Streams { limits, open: Arc::default(), stop: Arc::default() }
    }

    /// Returns `None` if the person, the organisation or all have as many as they may have.
    pub(crate) fn enter(&self, tenant_id: TenantId, person_id: PersonId) -> Option<StreamPlace> {
        let mut open = self.lock();
        let of_person = open.of_people.get(&person_id).copied().unwrap_or(0);
        let of_tenant = open.of_tenants.get(&tenant_id).copied().unwrap_or(0);
        if of_person >= self.limits.of_person || open.all >= self.limits.all {
            return None;
        }
        let left = self.limits.shared.saturating_sub(open.all + 1);
        if of_tenant > 0 && of_tenant + 1 > left {
            return None;
        }
        open.of_people.insert(person_id, of_person + 1);
        open.of_tenants.insert(tenant_id, of_tenant + 1);
        open.all += 1;
        Some(StreamPlace { streams: self.clone(), tenant_id, person_id })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        open.all -= 1;
        leave(&mut open.of_people, &self.person_id);
        leave(&mut open.of_tenants, &self.tenant_id);
    }
}

fn leave<K: std::hash::Hash + Eq>(open: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = open.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            open.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    fn uuid(n: usize) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Uuid(bytes)
    }

    /// As many places as an organisation gets, each for another person.
    fn all_of(streams: &Streams, tenant: usize) -> Vec<StreamPlace> {
        let enter = |n| streams.enter(TenantId(uuid(tenant)), PersonId(uuid(1000 * tenant + n)));
        (0..1000).map_while(enter).collect()
    }

    #[test]
    fn a_person_has_four_streams_and_whoever_leaves_makes_room() {
        let streams = Streams::new(LIVE_VIEWS);
        let enter = || streams.enter(TenantId(uuid(1)), PersonId(uuid(1)));
        let mut held: Vec<_> = (0..4).map(|_| enter().unwrap()).collect();
        assert!(enter().is_none());
        held.remove(0);
        assert!(enter().is_some());
        drop(held);
        let open = streams.lock();
        assert!(
            open.of_people.is_empty() && open.of_tenants.is_empty() && open.all == 0,
            "none is remembered"
        );
    }

    #[test]
    fn an_organisation_takes_half_of_the_places_and_every_other_one_gets_its_first() {
        for (limits, half) in [(DOWNLOADS, 16), (LIVE_VIEWS, 100)] {
            let streams = Streams::new(limits);
            let first = all_of(&streams, 1);
            assert_eq!(first.len(), half);
            let second = all_of(&streams, 2);
            assert_eq!(second.len(), half / 2);
            let mut held: Vec<StreamPlace> = first.into_iter().chain(second).collect();
            for tenant in 3.. {
                let places = all_of(&streams, tenant);
                if places.is_empty() {
                    break;
                }
                held.extend(places);
            }
            assert_eq!(held.len(), limits.all, "the reserve is one place for each");
            let tenants = streams.lock().of_tenants.len();
            assert!(tenants > limits.all - limits.shared, "{tenants}");
        }
    }
}
