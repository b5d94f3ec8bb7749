//! Whether another attempt is worth it, and when.

use std::time::Duration;

use crate::http::error::ClientError;

/// How often, and how long in between.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// After the first attempt.
    pub most: u32,
    /// The longest wait before the first of them; it doubles each time.
    pub first: Duration,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { most: 5, first: Duration::from_secs(1) }
    }
}

/// The longest of the waits.
const LONGEST: Duration = Duration::from_secs(8);
/// A service, or whatever stands in front of it, that asks for a longer wait than this is not waited for.
const ASKED_MAX: Duration = Duration::from_secs(600);

/// As long as a request was told to come back later for less than this, in sum, that does not count as an
/// attempt: a service with a limit of requests is as it should be, and whoever sends more than it takes has
/// to wait, however often.
const PATIENCE: Duration = Duration::from_secs(120);

/// What has become of a request so far.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    attempts: u32,
    limited: Duration,
}

impl Retries {
    /// How long to wait before the next attempt; nothing if there is no sense in it. `dice` is any number.
    pub(crate) fn wait(&self, error: &ClientError, tried: &mut Tried, dice: u32) -> Option<Duration> {
        let mut is_limited = false;
        let at_least = match error {
            ClientError::Refused(problem) => {
                is_limited = problem.status == 429;
                let is_in_flight = problem.code == "event/idempotency_key_in_flight";
                if !(problem.status == 429 || problem.status >= 500 || is_in_flight) {
                    return None;
                }
                problem.retry_after.unwrap_or_default()
            }
            ClientError::Unreachable { .. } | ClientError::TimedOut { .. } => Duration::ZERO,
            // A proxy whose service is away.
            ClientError::Foreign { status, .. } if (502..=504).contains(status) => Duration::ZERO,
            ClientError::Foreign { .. } => return None,
        };
        if self.most == 0 || at_least > ASKED_MAX {
            return None;
        }
        // Anything up to the longest wait, so that many who were refused together do not come back together.
        let after = |longest: Duration| at_least + longest.mul_f64(f64::from(dice) / f64::from(u32::MAX));
        if is_limited && tried.limited < PATIENCE {
            let wait = after(self.first);
            tried.limited += wait;
            return Some(wait);
        }
        tried.attempts += 1;
        if tried.attempts > self.most {
            return None;
        }
        Some(after(self.first.saturating_mul(1 << (tried.attempts - 1).min(16)).min(LONGEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::Problem;

    fn refused(status: u16, code: &str, retry_after: Option<u64>) -> ClientError {
        let retry_after = retry_after.map(Duration::from_secs);
        ClientError::Refused(Box::new(Problem {
            status,
            code: code.into(),
            retry_after,
            ..Problem::default()
        }))
    }

    #[test]
    fn a_request_that_will_be_refused_again_is_not_sent_again() {
        let retries = Retries::default();
        for (status, code) in
            [(401, "auth/key_revoked"), (422, "action/invalid"), (409, "event/idempotency_key_conflict")]
        {
            let error = refused(status, code, None);
            assert_eq!(retries.wait(&error, &mut Tried::default(), 0), None, "{code}");
        }
        let foreign = ClientError::Foreign { status: 200, why: String::new() };
        assert_eq!(retries.wait(&foreign, &mut Tried::default(), 0), None);
    }

    #[test]
    fn a_wait_is_never_shorter_than_the_service_asks_for() {
        for (status, code) in [(429, "rate/limit_exceeded"), (503, "service/unavailable")] {
            let (error, mut tried) = (refused(status, code, Some(3)), Tried::default());
            for _ in 0..5 {
                assert!(Retries::default().wait(&error, &mut tried, 0).unwrap() >= Duration::from_secs(3));
            }
        }
    }

    #[test]
    fn a_limit_is_waited_for_two_minutes_before_it_counts_as_an_attempt() {
        let (error, mut tried) = (refused(429, "rate/ip_limit_exceeded", Some(1)), Tried::default());
        let retries = Retries { most: 2, ..Retries::default() };
        let waits: Vec<_> = std::iter::from_fn(|| retries.wait(&error, &mut tried, u32::MAX))
            .map(|wait| wait.as_secs())
            .collect();
        assert_eq!(waits, [[2; 60].as_slice(), &[2, 3]].concat());
        // What fails between them is counted on its own.
        let (away, mut tried) = (refused(500, "event/write_failed", None), Tried::default());
        for _ in 0..2 {
            assert!(retries.wait(&away, &mut tried, 0).is_some());
            assert!(retries.wait(&error, &mut tried, 0).is_some());
        }
        assert_eq!(retries.wait(&away, &mut tried, 0), None);
        assert_eq!(Retries { most: 0, ..retries }.wait(&error, &mut Tried::default(), 0), None);
    }

    #[test]
    fn a_service_that_asks_for_a_wait_without_an_end_is_not_waited_for() {
        for (asked_s, is_waited_for) in [(600, true), (601, false), (u64::MAX, false)] {
            let error = refused(429, "rate/limit_exceeded", Some(asked_s));
            let wait = Retries::default().wait(&error, &mut Tried::default(), u32::MAX);
            assert_eq!(wait.is_some(), is_waited_for, "{asked_s} s");
        }
    }

    #[test]
    fn waits_grow_up_to_eight_seconds_and_end_after_five_retries() {
        let error = refused(500, "event/write_failed", None);
        let mut tried = Tried::default();
        let waits: Vec<_> = (1..=6).map(|_| Retries::default().wait(&error, &mut tried, u32::MAX)).collect();
        let seconds = |wait: u64| Some(Duration::from_secs(wait));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), seconds(8), None]);
        assert_eq!(Retries::default().wait(&error, &mut Tried::default(), 0), Some(Duration::ZERO));
    }
}
