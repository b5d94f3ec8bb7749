//! Subjects that have made too many attempts, known in memory: refusing them again costs no write.
//!
//! Attempts are counted in the store, where each is a change that waits for the disk. A crowd that goes on
//! after it was refused would keep that busy, and everybody else waiting.

use std::collections::HashMap;
use std::sync::Mutex;

use sealog_control::Counted;
use sealog_core::id::Hash;

/// Most subjects that are known. What does not fit is counted in the store again.
const SUBJECTS_MAX: usize = 4096;
/// The store is asked again after so long: another node may have forgotten the attempts, as after a new
/// password.
const KEPT_MS: u64 = 60 * 1000;

/// When each is let through to the store again; and what is counted while the store has no room for it.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<Hash, u64>>, Mutex<HashMap<Hash, Counted>>);

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
        self.1.lock().expect("nothing panics").remove(&subject);
    }

    /// Counts an attempt of each of these here. When there are too many subjects, those whose window ends
    /// first are forgotten: rather that than nobody gets in.
    pub(super) fn count(&self, subjects: &[Hash], now_ms: u64, window_ms: u64) -> Vec<Counted> {
        let mut known = self.1.lock().expect("nothing panics");
        known.retain(|_, counted| now_ms < counted.ends_at_ms);
        while known.len() + subjects.len() > SUBJECTS_MAX {
            let first =
                known.iter().min_by_key(|(_, counted)| counted.ends_at_ms).map(|(subject, _)| *subject);
            first.map(|first| known.remove(&first));
        }
        let ends_at_ms = now_ms.saturating_add(window_ms);
        subjects
            .iter()
            .map(|subject| {
                let counted = known.entry(*subject).or_insert(Counted { attempts: 0, ends_at_ms });
                counted.attempts += 1;
                *counted
            })
            .collect()
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

    #[test]
    fn attempts_are_counted_here_within_a_bound_while_the_store_has_no_room() {
        let refused = Refused::default();
        let count = |n: usize, now_ms| refused.count(&[subject(n)], now_ms, 1000)[0].attempts;
        assert_eq!((count(1, 0), count(1, 999), count(2, 999)), (1, 2, 1));
        assert_eq!(count(1, 1000), 1, "the window is over");
        refused.forget(subject(1));
        assert_eq!(count(1, 1000), 1);
        for n in 10..10 + 2 * SUBJECTS_MAX {
            count(n, 1500 + n as u64 / 100);
        }
        assert!(refused.1.lock().unwrap().len() <= SUBJECTS_MAX);
        assert_eq!(count(1, 1600), 1, "those whose windows end first are forgotten");
    }
}
