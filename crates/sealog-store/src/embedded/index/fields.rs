//! The members of `metadata` in the index: for each event a few hashes, and for each run a filter that says
//! which of its blocks may have one.
//!
//! Every scalar member is taken, whoever names it: which members an action names is control data, which an
//! index that is built again from its segment does not have, and which changes. An event with more members
//! than [`INDEXED_MAX`](sealog_core::metadata::INDEXED_MAX) may have any.

use sealog_core::metadata::{self, FieldIs};

use super::salt::IndexSalt;
use crate::bytes::Take;

/// Stands for all members of an event that has too many of them.
pub(crate) const ANY: u32 = 0;

/// The hashes of consecutive events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldColumn {
    /// Where those of each event end: 1,024 events have less than 2^16.
    ends: Vec<u16>,
    hashes: Vec<u32>,
}

impl FieldColumn {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Those of one event.
    pub(crate) fn of(&self, at: usize) -> &[u32] {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.hashes[usize::from(from)..usize::from(self.ends[at])]
    }

    pub(crate) fn push(&mut self, hashes: &[u32]) {
        self.hashes.extend_from_slice(hashes);
        self.end_event();
    }

    pub(crate) fn push_event(&mut self, metadata: Option<&str>, salt: &IndexSalt) {
        let from = self.hashes.len();
        // Each once, however often a list repeats it: room in the index and in memory is for what tells
        // events apart. There are at most 32 to look at.
        let all = metadata::index(metadata, |name, text| {
            let hash = hash(name, text, salt);
            if !self.hashes[from..].contains(&hash) {
                self.hashes.push(hash);
            }
        });
        if !all {
            self.hashes.truncate(from);
            self.hashes.push(ANY);
        }
        self.end_event();
    }

    fn end_event(&mut self) {
        self.ends.push(u16::try_from(self.hashes.len()).expect("a block has at most 32,768 hashes"));
    }

    /// Whether an event can have all that is wanted: the record decides.
    pub(crate) fn may_have(&self, at: usize, wanted: &[u32]) -> bool {
        let has = self.of(at);
        has == [ANY] || wanted.iter().all(|wanted| has.contains(wanted))
    }

    /// Whether any event can have all that is wanted: false for most blocks that a filter names by mistake.
    pub(crate) fn may_have_anywhere(&self, wanted: &[u32]) -> bool {
        self.hashes.contains(&ANY) || wanted.iter().all(|wanted| self.hashes.contains(wanted))
    }

    /// Of all events, each as often as it is there.
    pub(crate) fn hashes(&self) -> &[u32] {
        &self.hashes
    }

    /// How many hashes each event has, then all of them.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for at in 0..self.len() {
            out.push(u8::try_from(self.of(at).len()).expect("an event has at most 32"));
        }
        for hash in &self.hashes {
            out.extend_from_slice(&hash.to_le_bytes());
        }
    }

    pub(crate) fn decode(bytes: &[u8], count: usize) -> Option<FieldColumn> {
        let mut take = Take(bytes);
        let mut column = FieldColumn::default();
        let mut end = 0u16;
        for events in take.bytes(count)? {
            end = end.checked_add(u16::from(*events))?;
            column.ends.push(end);
        }
        let hashes = take.bytes(usize::from(end) * 4)?.chunks_exact(4);
        column.hashes = hashes.filter_map(|bytes| bytes.try_into().ok().map(u32::from_le_bytes)).collect();
        take.0.is_empty().then_some(column)
    }
}

/// What is wanted, as the index has it.
pub(crate) fn wanted(fields: &[FieldIs], salt: &IndexSalt) -> Vec<u32> {
    fields.iter().map(|field| hash(field.name(), field.text(), salt)).collect()
}

/// The name has its quotes, so no other name and text look the same one behind the other.
fn hash(name: &str, text: &str, salt: &IndexSalt) -> u32 {
    salt.hash_both(name.as_bytes(), text.as_bytes()).max(ANY + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(salt: &IndexSalt) -> FieldColumn {
        let many: Vec<String> = (0..40).map(|n| format!("\"k{n}\":1")).collect();
        let mut column = FieldColumn::default();
        column.push_event(Some(r#"{"id":"OPS-1","n":42,"tags":["a","b"]}"#), salt);
        column.push_event(None, salt);
        column.push_event(Some(&format!("{{{}}}", many.join(","))), salt);
        column.push_event(Some(r#"{"id":"OPS-2"}"#), salt);
        column
    }

    #[test]
    fn an_event_may_have_what_it_has_and_one_with_too_many_members_may_have_anything() {
        let salt = IndexSalt::new(&[7; 16]);
        let column = column(&salt);
        let found = |fields: &[(&str, &str)]| {
            let fields: Vec<FieldIs> = fields.iter().map(|(name, text)| FieldIs::new(name, text)).collect();
            let wanted = wanted(&fields, &salt);
            (0..column.len()).filter(|at| column.may_have(*at, &wanted)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[("id", "OPS-1")]), [0, 2]);
        assert_eq!(found(&[("id", "OPS-1"), ("tags", "b"), ("n", "42")]), [0, 2]);
        assert_eq!(found(&[("id", "OPS-1"), ("tags", "c")]), [2]);
        assert_eq!(found(&[("id", "OPS-2")]), [2, 3]);
        assert_eq!(found(&[("idO", "PS-2")]), [2]);
    }

    #[test]
    fn events_together_may_have_what_any_of_them_may_have() {
        let salt = IndexSalt::new(&[7; 16]);
        let mut column = FieldColumn::default();
        column.push_event(Some(r#"{"id":"OPS-1","n":42}"#), &salt);
        column.push_event(None, &salt);
        let may = |column: &FieldColumn, id: &str, n: &str| {
            column.may_have_anywhere(&wanted(&[FieldIs::new("id", id), FieldIs::new("n", n)], &salt))
        };
        assert!(may(&column, "OPS-1", "42"));
        assert!(!may(&column, "OPS-1", "43"));
        assert!(!may(&column, "OPS-2", "42"));
        column.push(&[ANY]);
        assert!(may(&column, "OPS-2", "43"));
    }

    #[test]
    fn a_value_that_a_list_repeats_costs_one_hash() {
        let salt = IndexSalt::new(&[7; 16]);
        let mut column = FieldColumn::default();
        column.push_event(Some(r#"{"tags":["a","a","b","a"]}"#), &salt);
        // The same as the event before has.
        column.push_event(Some(r#"{"tags":["b","a"]}"#), &salt);
        let wanted = wanted(&[FieldIs::new("tags", "a"), FieldIs::new("tags", "b")], &salt);
        assert_eq!(column.of(0), wanted);
        assert_eq!(column.of(1), [wanted[1], wanted[0]]);
        assert_eq!(column.hashes().len(), 4);
    }

    #[test]
    fn a_column_reads_back_as_it_was_written_and_not_if_it_is_cut() {
        let column = column(&IndexSalt::new(&[7; 16]));
        let mut bytes = Vec::new();
        column.encode(&mut bytes);
        assert_eq!(FieldColumn::decode(&bytes, column.len()), Some(column.clone()));
        for length in 0..bytes.len() {
            assert_eq!(FieldColumn::decode(&bytes[..length], column.len()), None, "{length}");
        }
    }
}
