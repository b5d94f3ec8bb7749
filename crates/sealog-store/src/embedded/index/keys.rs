//! Idempotency keys: which are in flight, and which were used in the last 24 hours.
//!
//! No live key is ever evicted. Keys of segments that are still in memory stand in a map; keys of sealed
//! segments stay on disk behind a filter.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, RwLock};

use super::sidecar::{KeyEntry, Sidecar, Slot, SlotProbe};
use crate::append::IDEMPOTENCY_RETENTION_MS;
use crate::sync::{lock, read, write};

#[derive(Debug, Default)]
pub(crate) struct Keys {
    used: RwLock<Used>,
    in_flight: Arc<Mutex<HashSet<Slot>>>,
}

#[derive(Debug, Default)]
struct Used {
    /// By segment, newest last.
    memory: Vec<(u64, HashMap<Slot, KeyEntry>)>,
    /// Index files with keys, newest last, and the receipt time of their newest key.
    files: Vec<(Arc<Sidecar>, u64)>,
}

/// Where the frame of a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub segment: u64,
    pub entry: KeyEntry,
}

/// How long after its last key has expired a file is still looked at: a clock that was ahead and is set back
/// must not free keys early.
const CLOCK_STEP_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Whether a key that was received then still counts now.
pub(crate) fn is_live(received_ms: u64, now_ms: u64) -> bool {
    now_ms < received_ms.saturating_add(IDEMPOTENCY_RETENTION_MS)
}

impl Keys {
    /// Takes the slot, unless it is taken. The returned function frees it.
    pub(crate) fn take(&self, slot: Slot) -> Option<impl FnOnce() + Send + 'static> {
        if !lock(&self.in_flight).insert(slot) {
            return None;
        }
        let in_flight = Arc::clone(&self.in_flight);
        Some(move || {
            lock(&in_flight).remove(&slot);
        })
    }

    pub(crate) fn insert(&self, segment: u64, entry: KeyEntry) {
        let mut used = write(&self.used);
        match used.memory.last_mut() {
            Some((number, map)) if *number == segment => {
                map.insert(entry.slot, entry);
            }
            _ => used.memory.push((segment, HashMap::from([(entry.slot, entry)]))),
        }
    }

    /// Whether it is certain, without reading anything, that this slot was not used.
    pub(crate) fn is_unused(&self, probe: &SlotProbe) -> bool {
        let used = read(&self.used);
        !used.memory.iter().any(|(_, map)| map.contains_key(&probe.slot))
            && !used.files.iter().any(|(file, _)| file.may_have_key(probe))
    }

    /// The places where this slot was used, newest first, that have not expired.
    pub(crate) fn find(&self, probe: &SlotProbe, now_ms: u64) -> io::Result<Vec<KeyPlace>> {
        let files: Vec<Arc<Sidecar>>;
        {
            let used = read(&self.used);
            for (segment, map) in used.memory.iter().rev() {
                // One that has expired says nothing: a segment in memory can be older than one whose keys are
                // in a file.
                if let Some(entry) = map.get(&probe.slot).filter(|entry| is_live(entry.received_ms, now_ms)) {
                    return Ok(vec![KeyPlace { segment: *segment, entry: *entry }]);
                }
            }
            files = used
                .files
                .iter()
                .rev()
                .filter(|(_, newest)| is_live(*newest, now_ms))
                .map(|(file, _)| Arc::clone(file))
                .collect();
        }
        let mut places = Vec::new();
        for file in files {
            for entry in file.find_key(probe)? {
                if is_live(entry.received_ms, now_ms) {
                    places.push(KeyPlace { segment: file.segment(), entry });
                }
            }
        }
        Ok(places)
    }

    /// Whether a key of these segments may still count.
    pub(crate) fn may_count(&self, through: u64, now_ms: u64) -> bool {
        let used = read(&self.used);
        let in_files = used.files.iter().filter(|(file, _)| file.segment() <= through);
        let in_memory = used.memory.iter().filter(|(number, _)| *number <= through);
        let mut received = in_files
            .map(|(_, newest)| *newest)
            .chain(in_memory.flat_map(|(_, map)| map.values().map(|entry| entry.received_ms)));
        received.any(|received_ms| is_live(received_ms, now_ms))
    }

    /// These segments were dropped, and no key in them counted any more.
    pub(crate) fn forget(&self, through: u64) {
        let mut used = write(&self.used);
        used.files.retain(|(file, _)| file.segment() > through);
        used.memory.retain(|(number, _)| *number > through);
    }

    /// All keys of a segment that is in memory.
    pub(crate) fn of_segment(&self, segment: u64) -> Vec<KeyEntry> {
        let used = read(&self.used);
        used.memory
            .iter()
            .filter(|(number, _)| *number == segment)
            .flat_map(|(_, map)| map.values().copied())
            .collect()
    }

    /// A segment's keys are in memory from now on, in place of its index file.
    pub(crate) fn move_to_memory(&self, segment: u64, keys: &[KeyEntry]) {
        let mut used = write(&self.used);
        used.files.retain(|(file, _)| file.segment() != segment);
        used.memory.retain(|(number, _)| *number != segment);
        if !keys.is_empty() {
            used.memory.push((segment, keys.iter().map(|key| (key.slot, *key)).collect()));
            used.memory.sort_by_key(|(number, _)| *number);
        }
    }

    /// A segment's keys are in this file from now on. Files whose keys have all expired are forgotten.
    pub(crate) fn move_to_file(&self, sidecar: &Arc<Sidecar>, newest_ms: Option<u64>, now_ms: u64) {
        let mut used = write(&self.used);
        used.memory.retain(|(number, _)| *number != sidecar.segment());
        used.files.retain(|(file, newest)| {
            file.segment() != sidecar.segment() && is_live(newest.saturating_add(CLOCK_STEP_MS), now_ms)
        });
        if let Some(newest_ms) = newest_ms {
            used.files.push((Arc::clone(sidecar), newest_ms));
            used.files.sort_by_key(|(file, _)| file.segment());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::salt::IndexSalt;
    use super::*;

    #[test]
    fn a_slot_is_taken_once_until_it_is_freed() {
        let keys = Keys::default();
        let free = keys.take([1; 16]).unwrap();
        assert!(keys.take([1; 16]).is_none());
        assert!(keys.take([2; 16]).is_some());
        free();
        assert!(keys.take([1; 16]).is_some());
    }

    #[test]
    fn a_key_counts_for_24_hours_to_the_millisecond() {
        let keys = Keys::default();
        let entry = KeyEntry { slot: [1; 16], received_ms: 1000, position: 7 };
        keys.insert(3, entry);
        let probe = SlotProbe::new([1; 16], &IndexSalt::new(&[0; 16]));
        let found = |now_ms| keys.find(&probe, now_ms).unwrap();
        assert_eq!(found(1000 + IDEMPOTENCY_RETENTION_MS - 1), [KeyPlace { segment: 3, entry }]);
        assert_eq!(found(1000 + IDEMPOTENCY_RETENTION_MS), []);
        // A clock that steps back does not free a key.
        assert_eq!(found(0).len(), 1);
    }
}
