//! How often somebody may try, whoever it is that signs in: counted in the store, so that all nodes count together.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sealog_control::{Attempts, PersonId};
use sealog_core::id::Hash;
use sealog_store::StoreError;

use super::accounts::Failed;
use super::counts::SignInCounts;
use super::refused::Refused;
use super::token::digest;
use crate::password::Unchecked;

/// How long attempts count.
pub(super) const WINDOW_MS: u64 = 15 * 60 * 1000;
/// Wrong attempts for one account in this time.
pub(super) const PER_ACCOUNT: u64 = 10;
/// Wrong attempts from one address in this time: several people may share it.
pub(super) const PER_ADDRESS: u64 = 100;

#[derive(Debug)]
pub enum SignInError {
    /// Of whatever it was that was wrong.
    Wrong,
    TooMany,
    /// As many passwords wait to be checked as may wait. Nothing is counted for it.
    Busy,
    Failed(Failed),
}

impl SignInError {
    pub(crate) fn unchecked(why: Unchecked) -> SignInError {
        match why {
            Unchecked::Busy => SignInError::Busy,
            Unchecked::Failed(cause) => SignInError::Failed(Failed(cause)),
        }
    }
}

impl<E: Into<Failed>> From<E> for SignInError {
    fn from(error: E) -> SignInError {
        SignInError::Failed(error.into())
    }
}

/// Where attempts are counted, and those that are known to be too many.
pub(crate) struct Throttle<'a> {
    pub attempts: &'a dyn Attempts,
    pub refused: &'a Refused,
    pub counts: &'a SignInCounts,
}

impl Throttle<'_> {
    /// Counts an attempt, and refuses one too many, without a write while that is known. The first subject is an account, the
    /// second an address.
    pub(crate) async fn admit<const N: usize>(
        &self,
        subjects: [Hash; N],
        now_ms: u64,
    ) -> Result<(), SignInError> {
        if subjects.iter().any(|subject| self.refused.has(*subject, now_ms)) {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            return Err(SignInError::TooMany);
        }
        let counted = match self.attempts.count_attempt(subjects.into(), now_ms, WINDOW_MS).await {
            // A full disk must not keep people from signing in, and strangers must not fill what is left.
            Err(StoreError::NoRoom) => self.refused.count(&subjects, now_ms, WINDOW_MS),
            counted => counted?,
        };
        let mut too_many = false;
        for ((subject, counted), most) in subjects.iter().zip(&counted).zip([PER_ACCOUNT, PER_ADDRESS]) {
            if counted.attempts > most {
                self.refused.add(*subject, now_ms, counted.ends_at_ms);
                too_many = true;
            }
        }
        if too_many {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            return Err(SignInError::TooMany);
        }
        Ok(())
    }

    /// Takes an attempt from an address back: it was right. Those who share the address are not kept out by it.
    pub(crate) async fn take_back(&self, address: Hash) -> Result<(), Failed> {
        Ok(self.attempts.take_back_attempt(address).await?)
    }

    /// Forgets the attempts of a subject: one was right.
    pub(crate) async fn forget(&self, subject: Hash) -> Result<(), Failed> {
        self.attempts.forget_attempts(subject).await?;
        self.refused.forget(subject);
        Ok(())
    }
}

/// What attempts are counted by. A digest, so that no address of anybody stays in the store.
pub(crate) fn subject(kind: &str, whose: &[u8]) -> Hash {
    digest(&[b"sealog attempts ", kind.as_bytes(), b" ", whose].concat())
}

pub(crate) fn of_person(kind: &str, id: PersonId) -> Hash {
    subject(kind, &id.0.0)
}

/// Somebody with IPv6 has a /64 at least.
pub(crate) fn address(kind: &str, address: IpAddr) -> Hash {
    match address.to_canonical() {
        IpAddr::V4(v4) => subject(kind, &v4.octets()),
        IpAddr::V6(v6) => subject(kind, &v6.octets()[..8]),
    }
}
