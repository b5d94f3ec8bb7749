//! A clock that shows the time that it is told: with it the store seals events of the past.

use std::sync::atomic::{AtomicU64, Ordering};

use sealog_store::world::{SystemWorld, World};

#[derive(Debug)]
pub(super) struct ToldClock(AtomicU64);

impl ToldClock {
    pub(super) fn at(now_ms: u64) -> ToldClock {
        ToldClock(AtomicU64::new(now_ms))
    }

    /// Only forward: what is sealed later is not earlier.
    pub(super) fn set(&self, now_ms: u64) {
        self.0.fetch_max(now_ms, Ordering::Relaxed);
    }
}

impl World for ToldClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemWorld.fill_random(bytes);
    }
}
