//! What a look at the clocks gives: the time, and whether it may be sealed with.

use crate::error::StoreError;
use crate::stats::ClockStats;

/// The notice in `/readyz` while a clock jump is held back.
pub const HELD_NOTICE: &str = "the clock jumped forward by more than an hour; events get the time of the boot clock for at most ten minutes";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    Sane,
    /// The wall clock has leapt, and is not believed yet.
    Held,
    /// The wall clock has leapt, and is not going to be believed.
    Refused,
}

/// A reading of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock's time, or while a leap is held or refused the time that the boot clock implies.
    pub now_ms: u64,
    pub state: ClockState,
    /// Leaps so far.
    pub leaps: u64,
}

impl Reading {
    /// A reading of an unguarded clock.
    pub fn sane(now_ms: u64) -> Reading {
        Reading { now_ms, state: ClockState::Sane, leaps: 0 }
    }

    /// The time to seal with, or why nothing may be sealed.
    pub fn sealing_ms(&self) -> Result<u64, StoreError> {
        match self.state {
            ClockState::Sane | ClockState::Held => Ok(self.now_ms),
            ClockState::Refused => Err(StoreError::ClockLeapt),
        }
    }

    pub fn stats(&self) -> ClockStats {
        ClockStats { leapt: self.state != ClockState::Sane, leaps: self.leaps }
    }

    pub fn notice(&self) -> Option<&'static str> {
        (self.state == ClockState::Held).then_some(HELD_NOTICE)
    }
}
