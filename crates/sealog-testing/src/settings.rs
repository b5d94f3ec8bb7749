//! Settings of stores that most tests open.

use std::sync::Arc;
use std::time::Duration;

use sealog_store::embedded::Options;
use sealog_store::postgres::Time;
use sealog_store::world::World;

use crate::world::StillWorld;

/// Small segments, so that a few hundred events cross many of them.
pub fn small(world: &Arc<StillWorld>) -> Options {
    Options {
        segment_bytes_first: 64 << 10,
        segment_bytes_max: 64 << 10,
        segment_bytes_min: 32 << 10,
        reserve_bytes: 32 << 10,
        group_bytes_max: 16 << 10,
        large_bytes: 4 << 10,
        cache_bytes: 256 << 10,
        world: Arc::clone(world) as Arc<dyn World>,
        ..Options::default()
    }
}

/// A PostgreSQL store whose clock is the test's.
pub fn on_postgres(world: &Arc<StillWorld>) -> sealog_store::postgres::Options {
    sealog_store::postgres::Options {
        connections: 8,
        // On a busy machine a test can be kept waiting between two statements, and it is no node that has
        // stopped.
        idle_in_transaction_timeout: Duration::from_secs(60),
        time: Time::OfWorld,
        world: Arc::clone(world) as Arc<dyn World>,
        ..sealog_store::postgres::Options::default()
    }
}
