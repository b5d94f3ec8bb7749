//! What is counted of a day.

use sealog_core::time::DAY_MS;

use super::distinct::Distinct;
use super::tally::Tally;
use crate::bytes::Take;

/// Values of a day that are counted apart. The catalog has fewer actions, and the world fewer countries.
pub const ACTIONS_MAX: usize = 256;
pub const SEVERITIES_MAX: usize = 16;
pub const COUNTRIES_MAX: usize = 256;

/// The day of a time. Past the end of four-digit years there is none, and such a time counts for the last.
pub fn day_of(timestamp_ms: u64) -> u32 {
    u32::try_from(timestamp_ms / DAY_MS).unwrap_or(u32::MAX)
}

/// What is counted of an event.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub action: &'a str,
    pub actor_id: Option<&'a str>,
    pub severity: Option<&'a str>,
    pub country: Option<&'a str>,
}

/// The events of a day, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayCounts {
    pub events: u64,
    pub actions: Tally<ACTIONS_MAX>,
    /// Of the events that have one.
    pub severities: Tally<SEVERITIES_MAX>,
    pub countries: Tally<COUNTRIES_MAX>,
    pub actors: Distinct,
}

impl DayCounts {
    pub fn add(&mut self, event: &Counted<'_>) {
        self.events += 1;
        self.actions.add(event.action, 1);
        if let Some(severity) = event.severity {
            self.severities.add(severity, 1);
        }
        if let Some(country) = event.country {
            self.countries.add(country, 1);
        }
        if let Some(actor_id) = event.actor_id {
            self.actors.add(actor_id);
        }
    }

    pub fn merge(&mut self, other: &DayCounts) {
        self.events += other.events;
        self.actions.merge(&other.actions);
        self.severities.merge(&other.severities);
        self.countries.merge(&other.countries);
        self.actors.merge(&other.actors);
    }

    /// Whether both were counted of the same events, as far as that can be told: values past a limit are
    /// counted together, and which ones those are depends on the order in which they came.
    pub(crate) fn agrees(&self, other: &DayCounts) -> bool {
        self.events == other.events
            && self.actions.agrees(&other.actions)
            && self.severities.agrees(&other.severities)
            && self.countries.agrees(&other.countries)
            && self.actors == other.actors
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.events.to_le_bytes());
        self.actions.encode(out);
        self.severities.encode(out);
        self.countries.encode(out);
        self.actors.encode(out);
    }

    pub(crate) fn decode(take: &mut Take<'_>) -> Option<DayCounts> {
        Some(DayCounts {
            events: take.u64()?,
            actions: Tally::decode(take)?,
            severities: Tally::decode(take)?,
            countries: Tally::decode(take)?,
            actors: Distinct::decode(take)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_reads_back_whatever_was_counted_and_takes_a_bounded_number_of_bytes() {
        let mut day = DayCounts::default();
        for n in 0..3000 {
            let long = format!("{n}{}", "x".repeat(250));
            let event =
                Counted { action: &long, actor_id: Some(&long), severity: Some(&long), country: Some(&long) };
            day.add(&event);
        }
        assert_eq!((day.events, day.actions.other()), (3000, 3000 - ACTIONS_MAX as u64));
        let mut bytes = Vec::new();
        day.encode(&mut bytes);
        assert!(bytes.len() < 160 << 10, "{}", bytes.len());
        assert_eq!(DayCounts::decode(&mut Take(&bytes)), Some(day));
    }
}
