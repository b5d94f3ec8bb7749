//! The clock that events are stamped by: the database's, of which there is one however many nodes there are,
//! held against the boot clock of this node, which nobody sets.
//!
//! A node that has a chain to itself does not ask before it seals; it estimates that clock from its last
//! sample and the boot clock. The statement that stores the events compares the estimate with the database's
//! clock.
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
use crate::clock::{ClockGuard, ClockState, HEAD_AHEAD_MS, Reading};
use crate::world::World;

/// What every statement that reads the clock asks for, as `now_ms`.
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";

/// An answer that took longer is no sample of the clock: by so much an estimate may be late.
const SAMPLE_MS_MAX: u64 = 250;
/// For so long a sample is good for estimates.
const SAMPLE_AGE_MS_MAX: u64 = 5000;

#[derive(Debug)]
pub(super) struct EventClock {
    time: Time,
    world: Arc<dyn World>,
    guard: ClockGuard,
    /// The last reading: `/readyz` must not ask the database.
    seen: Mutex<Option<Reading>>,
    sample: Mutex<Option<Sample>>,
}

/// What the database's clock showed when the boot clock showed the other.
#[derive(Clone, Copy, Debug)]
struct Sample {
    database_ms: u64,
    boot_ms: u64,
}

/// What the database's clock shows now, as far as this node can tell, and the time to seal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) database_ms: u64,
    pub(super) sealing_ms: u64,
}

impl EventClock {
    pub(super) fn new(options: &Options) -> EventClock {
        EventClock {
            time: options.time,
            world: Arc::clone(&options.world),
            guard: ClockGuard::new(options.clock_strict),
            seen: Mutex::default(),
            sample: Mutex::default(),
        }
    }

    /// This node's boot clock.
    pub(super) fn boot_ms(&self) -> u64 {
        self.world.boot_ms()
    }

    /// The database has shown its time in an answer to what was sent when the boot clock showed the other.
    pub(super) fn sample(&self, database_ms: u64, sent_boot_ms: u64) {
        let boot_ms = self.boot_ms();
        if boot_ms.saturating_sub(sent_boot_ms) <= SAMPLE_MS_MAX {
            let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
            *sample = Some(Sample { database_ms, boot_ms });
        }
    }

    /// Nothing without a sample that is young enough, and while the clock is not believed.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let sample = (*self.sample.lock().unwrap_or_else(PoisonError::into_inner))?;
        let age_ms = self.boot_ms().checked_sub(sample.boot_ms).filter(|age| *age <= SAMPLE_AGE_MS_MAX)?;
        let database_ms = sample.database_ms.saturating_add(age_ms);
        // The sample may be older than a leap that was seen since. Only the database takes a leap back.
        if self.seen().state != ClockState::Sane {
            return None;
        }
        let reading = self.read(database_ms);
        let sealing_ms = reading.sealing_ms().ok().filter(|_| reading.state == ClockState::Sane)?;
        Some(Estimate { database_ms, sealing_ms })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use sealog_core::id::Random80;

    use super::*;
    use crate::clock::LEAP_MS;

    #[derive(Debug)]
    struct Boot(AtomicU64);

    impl World for Boot {
        fn now_ms(&self) -> u64 {
            unreachable!("the wall clock of a node never enters")
        }

        fn boot_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        fn fill_random(&self, _: &mut [u8]) {
            unreachable!("no randomness is asked for")
        }

        fn random80(&self) -> Random80 {
            unreachable!("no randomness is asked for")
        }
    }

    const DATABASE_MS: u64 = 1_794_700_800_000;

    fn clock() -> (EventClock, Arc<Boot>) {
        let boot = Arc::new(Boot(AtomicU64::new(1000)));
        let world = Arc::clone(&boot) as Arc<dyn World>;
        (EventClock::new(&Options { world, ..Options::default() }), boot)
    }

    fn estimated(clock: &EventClock) -> Option<u64> {
        clock.estimate().map(|estimate| {
            assert_eq!(estimate.sealing_ms, estimate.database_ms);
            estimate.database_ms - DATABASE_MS
        })
    }

    #[test]
    fn the_clock_is_estimated_by_the_boot_clock_for_five_seconds() {
        let (clock, boot) = clock();
        assert_eq!(estimated(&clock), None);
        clock.sample(DATABASE_MS, 1000);
        for (boot_ms, expected) in [(1000, Some(0)), (6000, Some(5000)), (6001, None), (999, None)] {
            boot.0.store(boot_ms, Ordering::SeqCst);
            assert_eq!(estimated(&clock), expected, "at {boot_ms}");
        }
    }

    #[test]
    fn an_answer_that_was_long_in_coming_is_no_sample() {
        let (clock, boot) = clock();
        for (took_ms, expected) in [(SAMPLE_MS_MAX, Some(0)), (SAMPLE_MS_MAX + 1, None)] {
            *clock.sample.lock().unwrap() = None;
            let sent_boot_ms = boot.boot_ms();
            boot.0.fetch_add(took_ms, Ordering::SeqCst);
            clock.sample(DATABASE_MS, sent_boot_ms);
            assert_eq!(estimated(&clock), expected, "after {took_ms}");
        }
    }

    #[test]
    fn while_a_leap_is_held_back_there_is_no_estimate() {
        let (clock, _) = clock();
        clock.read(DATABASE_MS);
        clock.sample(DATABASE_MS, 1000);
        assert_eq!(estimated(&clock), Some(0));
        clock.sample(DATABASE_MS + 2 * LEAP_MS, 1000);
        assert_eq!(clock.estimate(), None);
    }

    #[test]
    fn a_sample_from_before_a_leap_does_not_take_the_leap_back() {
        let (clock, _) = clock();
        clock.read(DATABASE_MS);
        clock.sample(DATABASE_MS, 1000);
        // Shown by an answer that was too slow to be a sample.
        clock.read(DATABASE_MS + 2 * LEAP_MS);
        assert_eq!((clock.estimate(), clock.seen().state), (None, ClockState::Held));
        clock.read(DATABASE_MS);
        assert_eq!(estimated(&clock), Some(0));
        assert_eq!(clock.seen().leaps, 1);
    }
}
