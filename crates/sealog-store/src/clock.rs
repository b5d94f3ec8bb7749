//! A guard between the wall clock and sealing.
//!
//! Time never goes back inside a chain, so a wall clock that leaps forward by two years freezes the time of
//! every chain that gets an event, until then. The guard compares the wall clock with the boot clock, which
//! nobody sets and which goes on while the machine is suspended.
//!
//! t0: the wall clock leaps forward by more than [`LEAP_MS`] relative to the boot clock. t1: events are
//! sealed with the time that the boot clock implies, and everybody is told. t2: the wall clock is set right
//! within [`HOLD_MS`]: the leap has left no trace. Or it is not: then it is believed, or, with
//! `clock.strict`, nothing is sealed any more.
//!
//! A step back is let through: sealing has its own rule for it (time stands still). So is a correction by a
//! fraction of a second a second, which NTP makes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sealog_core::id::Random80;

pub use crate::reading::{ClockState, HELD_NOTICE, Reading};
use crate::world::World;

/// A head further ahead of the clock than this means that the clock was wrong, or is.
pub const HEAD_AHEAD_MS: u64 = 5 * 60 * 1000;

/// A wall clock that is further ahead of the boot clock than it was, by more than this, has leapt.
pub const LEAP_MS: u64 = 60 * 60 * 1000;

/// How long a leap is held back.
pub const HOLD_MS: u64 = 10 * 60 * 1000;

/// The two clocks drift apart by parts in a million; what they had in common is noted again when it has
/// changed by this much.
const FOLLOW_MS: u64 = 1000;

/// How often the log says that a leap is held back or refused.
const SAY_MS: u64 = 60 * 1000;

/// The state machine, over pairs of times that both clocks show at one moment.
#[derive(Clone, Debug)]
pub struct LeapGuard {
    strict: bool,
    believed: Option<Believed>,
    /// By the boot clock.
    held_since_ms: Option<u64>,
    leaps: u64,
}

/// By how much the wall clock is ahead of the boot clock.
#[derive(Clone, Copy, Debug)]
struct Believed {
    /// As it was believed last.
    offset_ms: i64,
    /// The most that was believed without being a leap. A clock that is set back and then right again has not
    /// leapt.
    highest_ms: i64,
    /// Whether it is a leap that was believed in the end. Once it is taken back after all, it counts for
    /// nothing.
    by_leap: bool,
}

/// What has just become of a leap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Held,
    TakenBack,
    Believed,
    Refused,
}

impl LeapGuard {
    /// Believes the first reading: a machine may have been off for any time. `strict` says what becomes of a
    /// leap that is not taken back.
    pub fn new(strict: bool) -> LeapGuard {
        LeapGuard { strict, believed: None, held_since_ms: None, leaps: 0 }
    }

    pub fn read(&mut self, wall_ms: u64, boot_ms: u64) -> (Reading, Option<Change>) {
        let offset_ms = offset(wall_ms, boot_ms);
        let Some(believed) = self.believed else {
            self.believed = Some(Believed { offset_ms, highest_ms: offset_ms, by_leap: false });
            return (self.reading(wall_ms, ClockState::Sane), None);
        };
        if offset_ms <= believed.highest_ms.saturating_add_unsigned(LEAP_MS) {
            let taken_back = self.held_since_ms.take().is_some();
            if taken_back || offset_ms.abs_diff(believed.offset_ms) >= FOLLOW_MS {
                let back = offset_ms < believed.offset_ms.saturating_sub_unsigned(LEAP_MS);
                self.believed = Some(match believed.by_leap && back {
                    true => Believed { offset_ms, highest_ms: offset_ms, by_leap: false },
                    false => {
                        Believed { offset_ms, highest_ms: believed.highest_ms.max(offset_ms), ..believed }
                    }
                });
            }
            return (self.reading(wall_ms, ClockState::Sane), taken_back.then_some(Change::TakenBack));
        }
        let implied_ms = u64::try_from(offset_ms_at(believed.offset_ms, boot_ms)).unwrap_or(0);
        let Some(since_ms) = self.held_since_ms else {
            self.held_since_ms = Some(boot_ms);
            self.leaps += 1;
            return (self.reading(implied_ms, ClockState::Held), Some(Change::Held));
        };
        if boot_ms.saturating_sub(since_ms) < HOLD_MS {
            return (self.reading(implied_ms, ClockState::Held), None);
        }
        if self.strict {
            return (self.reading(implied_ms, ClockState::Refused), Some(Change::Refused));
        }
        self.held_since_ms = None;
        self.believed = Some(Believed { offset_ms, highest_ms: offset_ms, by_leap: true });
        (self.reading(wall_ms, ClockState::Sane), Some(Change::Believed))
    }

    fn reading(&self, now_ms: u64, state: ClockState) -> Reading {
        Reading { now_ms, state, leaps: self.leaps }
    }
}

fn offset(wall_ms: u64, boot_ms: u64) -> i64 {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    signed(wall_ms).saturating_sub(signed(boot_ms))
}

fn offset_ms_at(offset_ms: i64, boot_ms: u64) -> i64 {
    offset_ms.saturating_add_unsigned(boot_ms)
}

/// A guard that many threads ask, and that says in the log what becomes of a leap.
#[derive(Debug)]
pub struct ClockGuard {
    /// What is believed while the clock is sane, so that a look takes no lock; otherwise [`UNSURE`].
    believed_ms: AtomicI64,
    leaps: AtomicU64,
    guard: Mutex<Loud>,
}

/// No clock is so far from another.
const UNSURE: i64 = i64::MIN;

#[derive(Debug)]
struct Loud {
    guard: LeapGuard,
    /// When the log was last told of a leap, by the boot clock.
    said_ms: Option<u64>,
}

impl ClockGuard {
    pub fn new(strict: bool) -> ClockGuard {
        ClockGuard {
            believed_ms: AtomicI64::new(UNSURE),
            leaps: AtomicU64::new(0),
            guard: Mutex::new(Loud { guard: LeapGuard::new(strict), said_ms: None }),
        }
    }

    /// What to make of the time that a clock shows while the boot clock shows the other.
    pub fn read(&self, wall_ms: u64, boot_ms: u64) -> Reading {
        let offset_ms = offset(wall_ms, boot_ms);
        if offset_ms.abs_diff(self.believed_ms.load(Ordering::Relaxed)) < FOLLOW_MS {
            let leaps = self.leaps.load(Ordering::Relaxed);
            return Reading { now_ms: wall_ms, state: ClockState::Sane, leaps };
        }
        let mut loud = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        let (reading, change) = loud.guard.read(wall_ms, boot_ms);
        let sane = reading.state == ClockState::Sane;
        let believed_ms = loud.guard.believed.filter(|_| sane).map_or(UNSURE, |believed| believed.offset_ms);
        self.believed_ms.store(believed_ms, Ordering::Relaxed);
        self.leaps.store(reading.leaps, Ordering::Relaxed);
        loud.say(&reading, change, wall_ms, boot_ms);
        reading
    }
}

impl Loud {
    fn say(&mut self, reading: &Reading, change: Option<Change>, clock_ms: u64, boot_ms: u64) {
        let due = self.said_ms.is_none_or(|said_ms| boot_ms.saturating_sub(said_ms) >= SAY_MS);
        let sealed_with_ms = reading.now_ms;
        match (change, reading.state) {
            (Some(Change::TakenBack), _) => {
                tracing::warn!(clock_ms, "the clock is correct again; the jump did not affect any chain");
            }
            (Some(Change::Believed), _) => tracing::error!(
                clock_ms,
                "accepting the new time after ten minutes; if the clock is wrong, the time of chains does not advance until the real time reaches it"
            ),
            (_, ClockState::Held) if due => tracing::error!(
                clock_ms,
                sealed_with_ms,
                "the clock jumped forward by more than an hour; sealing with the time of the boot clock for at most ten minutes. Correct the clock"
            ),
            (_, ClockState::Refused) if due => tracing::error!(
                clock_ms,
                "the clock jumped forward by more than an hour and clock.strict is set; rejecting events. Correct the clock, or restart the server if the clock is right"
            ),
            _ => return,
        }
        let over = matches!(change, Some(Change::TakenBack | Change::Believed));
        self.said_ms = (!over).then_some(boot_ms);
    }
}

/// A world whose wall clock is guarded. Everything in a process that goes by the time of day goes by one of
/// these, so that no part of it acts on a leap that another holds back.
#[derive(Debug)]
pub struct GuardedWorld {
    world: Arc<dyn World>,
    guard: ClockGuard,
}

impl GuardedWorld {
    pub fn new(world: Arc<dyn World>, strict: bool) -> GuardedWorld {
        GuardedWorld { world, guard: ClockGuard::new(strict) }
    }
}

impl World for GuardedWorld {
    fn now_ms(&self) -> u64 {
        self.clock().now_ms
    }

    fn boot_ms(&self) -> u64 {
        self.world.boot_ms()
    }

    fn clock(&self) -> Reading {
        self.guard.read(self.world.now_ms(), self.world.boot_ms())
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.world.fill_random(bytes);
    }

    fn random80(&self) -> Random80 {
        self.world.random80()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreError;

    const SECOND: i64 = 1000;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;
    const YEAR: i64 = 365 * 24 * HOUR;
    /// What the clocks show first.
    const WALL_MS: u64 = 1_794_700_800_000;
    const BOOT_MS: u64 = 5_000_000;

    use ClockState::{Held, Refused, Sane};

    /// How far the boot clock and the wall clock have gone since the first look, and what is then made of it:
    /// the time since, and the state.
    type Row = (i64, i64, i64, ClockState);

    #[track_caller]
    fn check(strict: bool, rows: &[Row]) {
        let mut guard = LeapGuard::new(strict);
        let shared = ClockGuard::new(strict);
        assert_eq!(guard.read(WALL_MS, BOOT_MS).0, Reading::sane(WALL_MS));
        shared.read(WALL_MS, BOOT_MS);
        for (at, (boot, wall, expected, state)) in rows.iter().enumerate() {
            let (wall_ms, boot_ms) =
                (WALL_MS.saturating_add_signed(*wall), BOOT_MS.saturating_add_signed(*boot));
            let (reading, _) = guard.read(wall_ms, boot_ms);
            let expected_ms = WALL_MS.saturating_add_signed(*expected);
            assert_eq!((reading.now_ms, reading.state), (expected_ms, *state), "row {at}");
            assert_eq!(shared.read(wall_ms, boot_ms), reading, "row {at}, shared");
        }
    }

    #[test]
    fn a_leap_of_more_than_an_hour_is_held_back_for_ten_minutes_and_then_believed() {
        check(
            false,
            &[
                (SECOND, SECOND, SECOND, Sane),
                (2 * SECOND, 2 * YEAR, 2 * SECOND, Held),
                (10 * MINUTE, 2 * YEAR + 10 * MINUTE, 10 * MINUTE, Held),
                (10 * MINUTE + 2 * SECOND - 1, 2 * YEAR, 10 * MINUTE + 2 * SECOND - 1, Held),
                (10 * MINUTE + 2 * SECOND, 2 * YEAR + 11 * MINUTE, 2 * YEAR + 11 * MINUTE, Sane),
                (11 * MINUTE, 2 * YEAR + 12 * MINUTE, 2 * YEAR + 12 * MINUTE, Sane),
            ],
        );
    }

    #[test]
    fn strictly_a_leap_is_refused_in_the_end_until_the_clock_is_sane_again() {
        check(
            true,
            &[
                (0, 2 * YEAR, 0, Held),
                (10 * MINUTE - 1, 2 * YEAR, 10 * MINUTE - 1, Held),
                (10 * MINUTE, 2 * YEAR, 10 * MINUTE, Refused),
                (30 * MINUTE, 2 * YEAR, 30 * MINUTE, Refused),
                (31 * MINUTE, 31 * MINUTE + 5, 31 * MINUTE + 5, Sane),
                (32 * MINUTE, 3 * YEAR, 32 * MINUTE + 5, Held),
            ],
        );
    }

    #[test]
    fn a_leap_that_is_taken_back_in_time_leaves_no_trace() {
        check(
            false,
            &[
                (0, 2 * YEAR, 0, Held),
                (9 * MINUTE, 9 * MINUTE, 9 * MINUTE, Sane),
                // Another one has its own ten minutes.
                (12 * MINUTE, 2 * YEAR, 12 * MINUTE, Held),
                (21 * MINUTE, 2 * YEAR, 21 * MINUTE, Held),
                (22 * MINUTE, 2 * YEAR, 2 * YEAR, Sane),
            ],
        );
    }

    #[test]
    fn an_hour_is_no_leap_and_a_millisecond_more_is() {
        check(false, &[(0, HOUR, HOUR, Sane)]);
        check(false, &[(0, HOUR + 1, 0, Held)]);
        // From where the clock was, not from where it was once.
        check(
            false,
            &[(0, HOUR, HOUR, Sane), (0, 2 * HOUR, 2 * HOUR, Sane), (0, 3 * HOUR + 1, 2 * HOUR, Held)],
        );
    }

    #[test]
    fn a_suspended_machine_is_no_leap() {
        check(false, &[(30 * 24 * HOUR, 30 * 24 * HOUR + 20, 30 * 24 * HOUR + 20, Sane)]);
    }

    #[test]
    fn slewing_is_no_leap_however_much_it_comes_to() {
        // A hundred days at 500 parts in a million, looked at every hour.
        let rows: Vec<Row> = (1..=2400)
            .map(|n| {
                let wall = n * (HOUR + HOUR / 2000);
                (n * HOUR, wall, wall, Sane)
            })
            .collect();
        check(false, &rows);
        check(true, &rows);
    }

    #[test]
    fn steps_back_are_let_through_and_so_is_the_way_back_from_them() {
        check(
            true,
            &[
                (0, -3 * HOUR, -3 * HOUR, Sane),
                (MINUTE, -3 * HOUR + MINUTE, -3 * HOUR + MINUTE, Sane),
                (2 * MINUTE, 2 * MINUTE, 2 * MINUTE, Sane),
                (3 * MINUTE, -3 * HOUR, -3 * HOUR, Sane),
                // Beyond where it was, it is a leap from where it is.
                (4 * MINUTE, 2 * HOUR, -3 * HOUR + MINUTE, Held),
            ],
        );
    }

    #[test]
    fn a_leap_that_was_believed_and_then_taken_back_does_not_excuse_the_next_one() {
        check(
            false,
            &[
                (0, 2 * YEAR, 0, Held),
                (10 * MINUTE, 2 * YEAR, 2 * YEAR, Sane),
                (11 * MINUTE, 11 * MINUTE, 11 * MINUTE, Sane),
                (12 * MINUTE, YEAR, 12 * MINUTE, Held),
            ],
        );
    }

    #[test]
    fn a_clock_that_leaps_further_while_it_is_held_has_no_longer() {
        check(
            false,
            &[
                (0, 2 * HOUR, 0, Held),
                (5 * MINUTE, 2 * YEAR, 5 * MINUTE, Held),
                (10 * MINUTE, 3 * YEAR, 3 * YEAR, Sane),
            ],
        );
    }

    #[test]
    fn every_leap_is_counted_once() {
        let guard = ClockGuard::new(false);
        let leaps: Vec<u64> = [0, 2 * YEAR, 2 * YEAR, 0, 0, 2 * YEAR]
            .map(|wall| guard.read(WALL_MS.saturating_add_signed(wall), BOOT_MS).leaps)
            .into();
        assert_eq!(leaps, [0, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn what_is_read_while_a_leap_is_refused_seals_nothing() {
        let refused = Reading { now_ms: 5, state: Refused, leaps: 1 };
        assert_eq!(refused.sealing_ms(), Err(StoreError::ClockLeapt));
        assert_eq!(refused.notice(), None);
        let held = Reading { state: Held, ..refused };
        assert_eq!((held.sealing_ms(), held.notice()), (Ok(5), Some(HELD_NOTICE)));
        assert_eq!(Reading::sane(5).notice(), None);
    }
}
