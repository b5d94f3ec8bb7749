//! What counts keep of events that are sealed together, noted while their texts are at hand: nothing has to
//! be read again to count them.

use std::collections::BTreeMap;
use std::ops::Range;

use sealog_core::canonical::Fields;

use super::day::{DayCounts, day_of};
use super::distinct::Register;
use super::event::plain;

/// Kinds that an event is compared with. One that is found in none of them is noted as another kind, which
/// costs room and changes no count.
const COMPARED_MAX: usize = 32;

/// Events that are the same to counts stand together, so that a batch of a hundred is a few additions.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    kinds: Vec<Kind>,
    actors: Vec<(u32, Register)>,
    /// Of all kinds, one behind the other.
    texts: String,
}

#[derive(Debug)]
struct Kind {
    day: u32,
    /// Of the action, so that most comparisons are of one number.
    hash: u32,
    action: Range<usize>,
    severity: Option<Range<usize>>,
    country: Option<Range<usize>>,
    events: u64,
}

impl Noted {
    /// `severity` and `country` are values, the fields are canonical JSON. The hash is of the action.
    pub(crate) fn add(
        &mut self,
        timestamp_ms: u64,
        fields: &Fields<'_>,
        hash: u32,
        severity: Option<&str>,
        country: Option<&str>,
    ) {
        let (day, action) = (day_of(timestamp_ms), plain(fields.action));
        if let Some(actor_id) = fields.actor_id {
            self.actors.push((day, Register::of(&plain(actor_id))));
        }
        let texts = &self.texts;
        let is_same = |kind: &&mut Kind| {
            kind.hash == hash
                && kind.day == day
                && texts[kind.action.clone()] == *action
                && kind.severity.clone().map(|range| &texts[range]) == severity
                && kind.country.clone().map(|range| &texts[range]) == country
        };
        if let Some(kind) = self.kinds.iter_mut().rev().take(COMPARED_MAX).find(is_same) {
            kind.events += 1;
            return;
        }
        let mut keep = |text: &str| {
            let from = self.texts.len();
            self.texts.push_str(text);
            from..self.texts.len()
        };
        let (action, severity, country) = (keep(&action), severity.map(&mut keep), country.map(&mut keep));
        self.kinds.push(Kind { day, hash, action, severity, country, events: 1 });
    }

    /// Counts them; how many there are.
    pub(crate) fn count(&self, days: &mut BTreeMap<u32, DayCounts>) -> u64 {
        let mut events = 0;
        for kind in &self.kinds {
            let day = days.entry(kind.day).or_default();
            day.events += kind.events;
            day.actions.add(&self.texts[kind.action.clone()], kind.events);
            if let Some(severity) = kind.severity.clone() {
                day.severities.add(&self.texts[severity], kind.events);
            }
            if let Some(country) = kind.country.clone() {
                day.countries.add(&self.texts[country], kind.events);
            }
            events += kind.events;
        }
        for (day, register) in &self.actors {
            days.entry(*day).or_default().actors.raise(*register);
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::count;
    use super::*;

    #[test]
    fn what_was_noted_counts_as_the_events_one_by_one_do() {
        let texts: Vec<(String, String)> =
            (0..90).map(|n| (format!("\"a.{}\"", n % 41), format!("\"\\u00e9{}\"", n % 7))).collect();
        let (mut noted, mut one_by_one) = (Noted::default(), BTreeMap::new());
        for (n, (action, actor)) in (0u32..).zip(texts.iter().cycle().take(500)) {
            let actor_id = (n % 3 != 0).then_some(actor.as_str());
            let fields = Fields { action, actor_id, resource: None, metadata: None };
            let severity = (n % 2 == 0).then_some(if n % 4 == 0 { "info" } else { "" });
            let country = (n % 5 == 0).then_some("CH");
            // A hash that tells nothing only costs time.
            let (time, hash) = (u64::from(n / 200) * 86_400_000, n % 2);
            noted.add(time, &fields, hash, severity, country);
            count(&mut one_by_one, time, &fields, severity, country);
        }
        let mut together = BTreeMap::new();
        assert_eq!(noted.count(&mut together), 500);
        assert_eq!(together, one_by_one);
        assert!(noted.kinds.len() < 500, "{}", noted.kinds.len());
    }
}
