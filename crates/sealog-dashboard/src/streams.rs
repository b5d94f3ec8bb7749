//! Live views and downloads that are open: so many of one person, and so many in all. Each holds a connection, and
//! asks control data now and then whether it may go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealog_control::PersonId;
use sealog_service::Stop;

/// Of one person, and of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits(usize, usize);

pub(crate) const LIVE_VIEWS: Limits = Limits(4, 100);
/// Each holds a piece of some megabytes at most.
pub(crate) const DOWNLOADS: Limits = Limits(2, 16);

#[derive(Clone, Debug)]
pub(crate) struct Streams {
    limits: Limits,
    open: Arc<Mutex<HashMap<PersonId, usize>>>,
    /// When the server stops, they end.
    pub(crate) stop: Arc<Stop>,
}

/// Held while a live view is open.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Streams,
    person_id: PersonId,
}

impl Streams {
    pub(crate) fn new(limits: Limits) -> Streams {
        Streams { limits, open: Arc::default(), stop: Arc::default() }
    }

    /// Nothing, if there are as many as there may be.
    pub(crate) fn enter(&self, person_id: PersonId) -> Option<StreamPlace> {
        let mut open = self.lock();
        let of_person = open.get(&person_id).copied().unwrap_or(0);
        let Limits(of_person_max, all_max) = self.limits;
        if of_person >= of_person_max || open.values().sum::<usize>() >= all_max {
            return None;
        }
        open.insert(person_id, of_person + 1);
        Some(StreamPlace { streams: self.clone(), person_id })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PersonId, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.person_id) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.person_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    #[test]
    fn a_person_has_four_streams_and_all_have_a_hundred() {
        let streams = Streams::new(LIVE_VIEWS);
        let person = |n: usize| PersonId(Uuid([u8::try_from(n).unwrap(); 16]));
        let mut held: Vec<_> = (0..4).map(|_| streams.enter(person(0)).unwrap()).collect();
        assert!(streams.enter(person(0)).is_none());
        for n in 1..25 {
            held.extend((0..4).map(|_| streams.enter(person(n)).unwrap()));
        }
        assert_eq!(held.len(), 100);
        assert!(streams.enter(person(99)).is_none());
        held.remove(0);
        assert!(streams.enter(person(99)).is_some(), "whoever leaves makes room");
        drop(held);
        assert!(streams.lock().is_empty(), "nobody is remembered");
    }
}
