//! Whether another attempt is worth it, and when.

use std::time::Duration;

use crate::error::ClientError;

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

impl Retries {
    /// How long to wait before attempt number `done` + 1; nothing if there is no sense in it. `dice` is any number.
    pub(crate) fn wait(&self, error: &ClientError, done: u32, dice: u32) -> Option<Duration> {
        let at_least = match error {
            ClientError::Refused(problem) => {
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
        if done > self.most || at_least > ASKED_MAX {
            return None;
        }
        let longest = self.first.saturating_mul(1 << (done - 1).min(16)).min(LONGEST);
        // Anything up to it, so that many who were refused together do not come back together.
        Some(at_least + longest.mul_f64(f64::from(dice) / f64::from(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Problem;

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
            assert_eq!(retries.wait(&refused(status, code, None), 1, 0), None, "{code}");
        }
        assert_eq!(retries.wait(&ClientError::Foreign { status: 200, why: String::new() }, 1, 0), None);
    }

    #[test]
    fn a_wait_is_never_shorter_than_the_service_asks_for() {
        let error = refused(429, "rate/limit_exceeded", Some(3));
        for done in 1..=5 {
            assert!(Retries::default().wait(&error, done, 0).unwrap() >= Duration::from_secs(3));
        }
    }

    #[test]
    fn a_service_that_asks_for_a_wait_without_an_end_is_not_waited_for() {
        for (asked_s, is_waited_for) in [(600, true), (601, false), (u64::MAX, false)] {
            let error = refused(429, "rate/limit_exceeded", Some(asked_s));
            let wait = Retries::default().wait(&error, 1, u32::MAX);
            assert_eq!(wait.is_some(), is_waited_for, "{asked_s} s");
        }
    }

    #[test]
    fn waits_grow_up_to_eight_seconds_and_end_after_five_retries() {
        let error = refused(500, "event/write_failed", None);
        let waits: Vec<_> = (1..=6).map(|done| Retries::default().wait(&error, done, u32::MAX)).collect();
        let seconds = |wait: u64| Some(Duration::from_secs(wait));
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(8), seconds(8), None]);
        assert_eq!(Retries::default().wait(&error, 3, 0), Some(Duration::ZERO));
    }
}
