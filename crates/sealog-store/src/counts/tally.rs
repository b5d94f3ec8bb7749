//! Values and how often each was there, at most so many apart.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::bytes::{Take, u16_len};

/// Longer than any value that ingest lets in; only an import can bring one.
const VALUE_BYTES_MAX: usize = 1024;

/// How often each value was there. The first `MAX` values are counted apart, those that come later together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally<const MAX: usize> {
    /// Whoever chooses values that collide slows down a table of `MAX` entries, and no more.
    counts: HashMap<Box<str>, u64, RandomState>,
    other: u64,
}

impl<const MAX: usize> Tally<MAX> {
    pub fn add(&mut self, value: &str, events: u64) {
        // Looked up before anything is made of it: nearly every event has a value that was there before.
        if let Some(count) = self.counts.get_mut(value) {
            *count += events;
        } else if self.counts.len() < MAX && value.len() <= VALUE_BYTES_MAX {
            self.counts.insert(value.into(), events);
        } else {
            self.other += events;
        }
    }

    pub fn get(&self, value: &str) -> u64 {
        self.counts.get(value).copied().unwrap_or(0)
    }

    /// Events whose values are not counted apart.
    pub fn other(&self) -> u64 {
        self.other
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(value, count)| (&**value, *count))
    }

    /// The most frequent first, values of the same count in their order.
    pub fn ranked(&self) -> Vec<(&str, u64)> {
        let mut ranked: Vec<_> = self.iter().collect();
        ranked.sort_unstable_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then(a.cmp(b)));
        ranked
    }

    /// The most frequent of the other one first, so that it is the rare ones that have no place.
    pub fn merge(&mut self, other: &Tally<MAX>) {
        for (value, count) in other.ranked() {
            self.add(value, count);
        }
        self.other += other.other;
    }

    /// Whether both may have counted the same values, in whatever order.
    pub(super) fn agrees(&self, others: &Tally<MAX>) -> bool {
        if self.other == 0 || others.other == 0 {
            return self == others;
        }
        let total = |tally: &Tally<MAX>| tally.counts.values().sum::<u64>() + tally.other;
        total(self) == total(others)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.other.to_le_bytes());
        out.extend_from_slice(&u16_len(self.counts.len()).to_le_bytes());
        for (value, count) in self.ranked() {
            out.extend_from_slice(&u16_len(value.len()).to_le_bytes());
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    pub(super) fn decode(take: &mut Take<'_>) -> Option<Tally<MAX>> {
        let other = take.u64()?;
        let length = usize::from(take.u16()?);
        if length > MAX {
            return None;
        }
        let mut counts = HashMap::with_capacity_and_hasher(length, RandomState::default());
        for _ in 0..length {
            let bytes = usize::from(take.u16()?);
            let value = std::str::from_utf8(take.bytes(bytes)?).ok()?;
            counts.insert(value.into(), take.u64()?);
        }
        Some(Tally { counts, other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_past_the_limit_are_counted_together() {
        let mut tally = Tally::<2>::default();
        for value in ["a", "b", "c", "a", "d", "c"] {
            tally.add(value, 1);
        }
        assert_eq!((tally.ranked(), tally.other()), (vec![("a", 2), ("b", 1)], 3));
        let mut more = Tally::<2>::default();
        more.add("d", 1);
        more.merge(&tally);
        assert_eq!((more.get("d"), more.get("a"), more.other()), (1, 2, 4), "the frequent one has the place");
    }

    #[test]
    fn tallies_of_the_same_values_agree_in_any_order_and_others_do_not() {
        let of = |values: &[&str]| {
            let mut tally = Tally::<2>::default();
            values.iter().for_each(|value| tally.add(value, 1));
            tally
        };
        assert!(of(&["a", "b", "a"]).agrees(&of(&["b", "a", "a"])));
        assert!(!of(&["a", "b", "a"]).agrees(&of(&["a", "b", "b"])));
        assert!(of(&["a", "b", "c"]).agrees(&of(&["c", "b", "a"])), "which one is left over is chance");
        assert!(!of(&["a", "b", "c"]).agrees(&of(&["c", "b", "a", "a"])));
        assert!(!of(&["a", "b"]).agrees(&of(&["a", "b", "c"])));
    }

    #[test]
    fn a_tally_reads_back_and_one_with_too_many_values_does_not() {
        let mut tally = Tally::<3>::default();
        for value in ["a", "é", "", "d"] {
            tally.add(value, 7);
        }
        let mut bytes = Vec::new();
        tally.encode(&mut bytes);
        assert_eq!(Tally::decode(&mut Take(&bytes)), Some(tally));
        assert_eq!(Tally::<2>::decode(&mut Take(&bytes)), None);
        assert_eq!(Tally::<3>::decode(&mut Take(&bytes[..bytes.len() - 1])), None);
    }
}
