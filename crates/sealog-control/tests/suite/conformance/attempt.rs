//! Counts of attempts to sign in.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn attempts_are_counted_by_subject_until_their_window_is_over(control: &Control) {
    let count = |subjects: &[u8], after| {
        let subjects = subjects.iter().map(|n| digest(*n)).collect();
        let counted = wait(control.count_attempt(subjects, MORNING_MS + after, 100)).unwrap();
        counted.into_iter().map(|subject| subject.attempts).collect::<Vec<_>>()
    };
    assert_eq!(count(&[1, 2], 0), [1, 1]);
    assert_eq!(count(&[2, 1], 50), [2, 2]);
    assert_eq!(count(&[3, 1], 99), [1, 3]);
    // The window began with the first one.
    assert_eq!(count(&[1, 3], 100), [1, 2]);
    wait(control.forget_attempts(digest(1))).unwrap();
    assert_eq!(count(&[1, 3], 101), [1, 3]);
    assert_eq!(count(&[], 102), Vec::<u64>::new());
    let counted = wait(control.count_attempt(vec![digest(1)], MORNING_MS + 103, 100)).unwrap();
    assert_eq!(counted, [Counted { attempts: 2, ends_at_ms: MORNING_MS + 201 }]);
    // One that was right is taken back; what was never counted is not.
    for n in [1, 9] {
        wait(control.take_back_attempt(digest(n))).unwrap();
    }
    assert_eq!(count(&[1, 9], 104), [2, 1]);
}

pub fn attempts_at_the_same_time_are_all_counted(control: &Control) {
    let counts: Vec<_> = (0..20u8)
        .map(|n| control.count_attempt(vec![digest(n % 2), digest(2), digest(3)], MORNING_MS, 100))
        .collect();
    let mut all: Vec<u64> = counts.into_iter().map(|count| wait(count).unwrap()[1].attempts).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=20).collect::<Vec<_>>());
}

pub fn attempts_that_are_over_are_cleaned_up_by_many_at_once_and_none_fails(control: &Control) {
    // Each window is over when the next attempt comes, so that each attempt cleans up those of others.
    let attempts: Vec<_> = (0..400u16)
        .map(|n| {
            let subjects = [n * 7 % 11, n * 5 % 13].map(|n| digest(n.to_le_bytes()[0])).into();
            control.count_attempt(subjects, MORNING_MS + u64::from(n) * 10, 1)
        })
        .collect();
    for attempt in attempts {
        assert!(wait(attempt).unwrap().iter().all(|count| count.attempts >= 1));
    }
}
