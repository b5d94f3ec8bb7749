//! Subjects that have made too many attempts, known in memory: refusing them again costs no write.
//!
//! Attempts are counted in the store, where each is a change that waits for the disk. A crowd that goes on after it
//! was refused would keep that busy, and everybody else waiting.

use std::collections::HashMap;
use std::sync::Mutex;

use sealog_core::id::Hash;

/// Most subjects that are known. What does not fit is counted in the store again.
const SUBJECTS_MAX: usize = 4096;
/// The store is asked again after so long: another node may have forgotten the attempts, as after a new password.
const KEPT_MS: u64 = 60 * 1000;

/// When each is let through to the store again.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<Hash, u64>>);

impl Refused {
    pub(super) fn has(&self, subject: Hash, now_ms: u64) -> bool {
        self.0.lock().expect("nothing panics").get(&subject).is_some_and(|end_ms| now_ms < *end_ms)
    }

    /// It has made too many, which count until then.
    pub(super) fn add(&self, subject: Hash, now_ms: u64, ends_at_ms: u64) {
        let mut known = self.0.lock().expect("nothing panics");
        if known.len() >= SUBJECTS_MAX {
            known.retain(|_, end_ms| now_ms < *end_ms);
        }
        if known.len() < SUBJECTS_MAX {
            known.insert(subject, ends_at_ms.min(now_ms.saturating_add(KEPT_MS)));
        }
    }

    pub(super) fn forget(&self, subject: Hash) {
        self.0.lock().expect("nothing panics").remove(&subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(n: usize) -> Hash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Hash(bytes)
    }

    #[test]
    fn a_subject_is_refused_until_its_window_ends_or_the_store_is_asked_again() {
        let refused = Refused::default();
        refused.add(subject(1), 1000, 1500);
        refused.add(subject(2), 1000, u64::MAX);
        let has = |n, now_ms| refused.has(subject(n), now_ms);
        assert_eq!((has(1, 1499), has(1, 1500)), (true, false));
        assert_eq!((has(2, 999 + KEPT_MS), has(2, 1000 + KEPT_MS)), (true, false));
        assert!(!has(3, 1000));
        refused.forget(subject(1));
        assert!(!has(1, 1000));
    }

    #[test]
    fn no_more_subjects_are_known_than_there_is_room_for_and_those_that_are_over_make_room() {
        let refused = Refused::default();
        for n in 0..SUBJECTS_MAX + 5 {
            refused.add(subject(n), 1000, 2000);
        }
        assert_eq!(refused.0.lock().unwrap().len(), SUBJECTS_MAX);
        assert!(!refused.has(subject(SUBJECTS_MAX), 1000));
        refused.add(subject(SUBJECTS_MAX), 2000, 3000);
        assert!(refused.has(subject(SUBJECTS_MAX), 2000));
        assert_eq!(refused.0.lock().unwrap().len(), 1);
    }
}
