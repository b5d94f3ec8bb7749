//! The clock that events are stamped by: the database's, of which there is one however many nodes there are,
//! held against the boot clock of this node, which nobody sets.
//!
//! Each node judges for itself. t0: the database's clock leaps by two years. t1: every node that runs holds
//! the leap back. t2: a node that is started now has seen no leap and believes the clock; from its first
//! event on, the time of that chain stands where it was put, as with any event from the future. So a leap is
//! best taken back before anything is restarted. A failover to a server whose clock is more than an hour
//! ahead is a leap like any other.

use std::sync::{Arc, Mutex, PoisonError};

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use tokio_postgres::{Error, Row};

use super::options::{Options, Time};
use super::pool::Session;
use super::reader;
use super::rows::unsigned;
use crate::clock::{ClockGuard, HEAD_AHEAD_MS, Reading};
use crate::world::World;

/// What every statement that reads the clock asks for, as `now_ms`.
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";

#[derive(Debug)]
pub(super) struct EventClock {
    time: Time,
    world: Arc<dyn World>,
    guard: ClockGuard,
    /// The last reading: `/readyz` must not ask the database.
    seen: Mutex<Option<Reading>>,
}

impl EventClock {
    pub(super) fn new(options: &Options) -> EventClock {
        EventClock {
            time: options.time,
            world: Arc::clone(&options.world),
            guard: ClockGuard::new(options.clock_strict),
            seen: Mutex::default(),
        }
    }

    /// What to make of the time that the database has just shown.
    pub(super) fn read(&self, database_ms: u64) -> Reading {
        let wall_ms = match self.time {
            Time::OfDatabase => database_ms,
            Time::OfWorld => self.world.now_ms(),
        };
        let reading = self.guard.read(wall_ms, self.world.boot_ms());
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        reading
    }

    pub(super) fn read_row(&self, row: &Row) -> Reading {
        self.read(unsigned(row.get("now_ms")))
    }

    pub(super) async fn ask(&self, session: &Session) -> Result<Reading, Error> {
        let rows = session.query(NOW, &[], &[]).await?;
        Ok(self.read_row(&rows[0]))
    }

    /// The last reading. Before the first there is nothing to say.
    pub(super) fn seen(&self) -> Reading {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.unwrap_or(Reading::sane(0))
    }
}

/// At start the clock was behind the last events of chains. Their time stands still until it has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockBehind {
    pub chains: usize,
    pub furthest: ChainId,
    pub by_ms: u64,
}

impl ClockBehind {
    pub(super) async fn look_for(session: &Session, now_ms: u64) -> Result<Option<ClockBehind>, Error> {
        let Some(heads) = reader::heads(session).await? else { return Ok(None) };
        let ahead_ms = |(chain, head): &(ChainId, Head)| {
            let head_ms = head.log_id.timestamp_ms();
            (head_ms > now_ms.saturating_add(HEAD_AHEAD_MS)).then(|| (head_ms - now_ms, *chain))
        };
        let ahead: Vec<(u64, ChainId)> = heads.iter().filter_map(ahead_ms).collect();
        let Some((by_ms, furthest)) = ahead.iter().copied().max() else { return Ok(None) };
        tracing::error!(
            chains = ahead.len(),
            %furthest,
            by_ms,
            "the database clock is behind the last event of some chains; their time does not advance until it catches up. Correct the clock"
        );
        Ok(Some(ClockBehind { chains: ahead.len(), furthest, by_ms }))
    }
}
