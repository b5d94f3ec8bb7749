//! How many events a chain has, by day and by what they say. Derived from the log, never the truth: whoever
//! loses counts counts again.
//!
//! Counting goes behind the events and never before them, so that no append waits for it. What one day of a
//! chain keeps is bounded, whatever is sent: values past a limit are counted together, and of actors only a
//! sketch is kept, from which nobody can be named.

mod day;
mod distinct;
pub(crate) mod event;
pub(crate) mod noted;
mod tally;

use std::collections::BTreeMap;
use std::ops::Range;

use sealog_core::time::DAY_MS;

pub use day::{ACTIONS_MAX, COUNTRIES_MAX, Counted, DayCounts, SEVERITIES_MAX, day_of};
pub use distinct::{Distinct, STANDARD_ERROR_PERCENT};
pub use tally::Tally;

/// Days that one question may be about. Of a longer period the last ones are answered.
pub const DAYS_MAX: u32 = 366;

/// The days of a question, as days since 1970-01-01 in UTC; the end is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    from: u32,
    until: u32,
}

impl Days {
    /// At most [`DAYS_MAX`], the last ones.
    pub fn new(from: u32, until: u32) -> Days {
        Days { from: from.max(until.saturating_sub(DAYS_MAX)).min(until), until }
    }

    pub fn range(self) -> Range<u32> {
        self.from..self.until
    }

    pub fn start_ms(self) -> u64 {
        u64::from(self.from) * DAY_MS
    }

    /// The first millisecond after the last day.
    pub fn end_ms(self) -> u64 {
        u64::from(self.until) * DAY_MS
    }
}

/// What was counted of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Days without events are not there.
    pub days: BTreeMap<u32, DayCounts>,
    /// Events of the chain that are durable and not counted yet.
    /// Some of them may lie outside of the days.
    pub uncounted: u64,
}

impl Counts {
    pub fn events(&self) -> u64 {
        self.days.values().map(|day| day.events).sum()
    }

    /// All days as one.
    pub fn total(&self) -> DayCounts {
        self.days.values().fold(DayCounts::default(), |mut total, day| {
            total.merge(day);
            total
        })
    }
}
