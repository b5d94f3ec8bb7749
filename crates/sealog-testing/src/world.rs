//! Clocks that stand still, or are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use sealog_store::world::{SystemWorld, World};

/// 2026-11-15T00:00:00.000Z, when most tests begin.
pub const MORNING_MS: u64 = 1_794_700_800_000;

/// A clock that moves when it is told to. Its randomness is always the same, unless a test asks for real one.
#[derive(Debug)]
pub struct StillWorld {
    now_ms: AtomicU64,
    /// By how much the wall clock was set, without any time going by.
    leapt_ms: AtomicI64,
    is_random: bool,
}

impl StillWorld {
    pub fn new() -> Arc<StillWorld> {
        StillWorld::begin(MORNING_MS, false)
    }

    /// One whose clock stands at this time, and whose randomness is real.
    pub fn random_at(now_ms: u64) -> Arc<StillWorld> {
        StillWorld::begin(now_ms, true)
    }

    /// Another one whose clock stands where this one's does.
    pub fn new_at(world: &StillWorld) -> Arc<StillWorld> {
        StillWorld::begin(world.now_ms(), false)
    }

    fn begin(now_ms: u64, is_random: bool) -> Arc<StillWorld> {
        let (now_ms, leapt_ms) = (AtomicU64::new(now_ms), AtomicI64::new(0));
        Arc::new(StillWorld { now_ms, leapt_ms, is_random })
    }

    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    pub fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock; the boot clock goes on as before.
    pub fn leap(&self, ms: i64) {
        self.leapt_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl World for StillWorld {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst).saturating_add_signed(self.leapt_ms.load(Ordering::SeqCst))
    }

    fn boot_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        if self.is_random { SystemWorld.fill_random(bytes) } else { bytes.fill(7) }
    }
}

/// A machine whose clock is wrong by some milliseconds.
#[derive(Debug)]
pub struct Skewed(pub i64);

impl World for Skewed {
    fn now_ms(&self) -> u64 {
        SystemWorld.now_ms().saturating_add_signed(self.0)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemWorld.fill_random(bytes);
    }
}

/// A machine with a slow database: whenever it looks at its boot clock, another half a second has gone by, so
/// that no answer says what the database's clock shows now.
#[derive(Debug)]
pub struct SlowWorld {
    world: Arc<StillWorld>,
    looks: AtomicU64,
}

impl SlowWorld {
    pub fn of(world: &Arc<StillWorld>) -> Arc<SlowWorld> {
        Arc::new(SlowWorld { world: Arc::clone(world), looks: AtomicU64::new(0) })
    }
}

impl World for SlowWorld {
    fn now_ms(&self) -> u64 {
        self.world.now_ms()
    }

    fn boot_ms(&self) -> u64 {
        self.world.boot_ms() + 500 * self.looks.fetch_add(1, Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.world.fill_random(bytes);
    }
}
