//! How often somebody may try, whoever it is that signs in: counted in the store, so that all nodes count
//! together.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sealog_core::id::Hash;
use sealog_store::StoreError;

use super::accounts::{Accounts, Failed, Kind, Visitor};
use super::token::digest;
use crate::people::password::Unchecked;

/// How long attempts count.
const WINDOW_MS: u64 = 15 * 60 * 1000;
/// Wrong attempts for one account from one place in this time.
const PER_ACCOUNT: u64 = 10;
/// Wrong attempts from one address in this time: several people may share it.
const PER_ADDRESS: u64 = 100;
/// Wrong attempts for one account in a day, from all browsers together that have never signed in to it.
const PER_DAY: u64 = 100;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What attempts are counted by, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    subject: Hash,
    most: u64,
    window_ms: u64,
    /// A right attempt proves that those before it were its owner's. Otherwise it takes back itself alone.
    is_cleared_by_a_right_one: bool,
}

impl Limit {
    /// Of one account in one place, or of something else that one person tries.
    pub(crate) fn of_one(subject: Hash) -> Limit {
        Limit { subject, most: PER_ACCOUNT, window_ms: WINDOW_MS, is_cleared_by_a_right_one: true }
    }

    pub(crate) fn of_address(kind: &str, visitor: IpAddr) -> Limit {
        let subject = address(kind, visitor);
        Limit { subject, most: PER_ADDRESS, window_ms: WINDOW_MS, is_cleared_by_a_right_one: false }
    }

    pub(super) fn of_day(subject: Hash) -> Limit {
        Limit { subject, most: PER_DAY, window_ms: DAY_MS, is_cleared_by_a_right_one: false }
    }

    /// Of an account, where it is tried from: whoever guesses elsewhere keeps nobody out here.
    pub(crate) fn of_account_at(kind: &str, email: &str, visitor: IpAddr) -> Limit {
        let from = address(kind, visitor);
        Limit::of_one(subject(kind, &[&from.0[..], email.to_lowercase().as_bytes()].concat()))
    }
}

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
            Unchecked::Failed(cause) => SignInError::Failed(cause.into()),
        }
    }
}

impl<E: Into<Failed>> From<E> for SignInError {
    fn from(error: E) -> SignInError {
        SignInError::Failed(error.into())
    }
}

impl<K: Kind> Accounts<K> {
    /// What attempts of a browser are counted by that has never signed in to the account.
    pub(crate) fn strangers_limits(&self, email: &str, visitor: &Visitor) -> Vec<Limit> {
        let [account, address] = ["account", "address"].map(|what| format!("{}{what}", K::ATTEMPTS));
        vec![
            Limit::of_account_at(&account, email, visitor.address),
            Limit::of_address(&address, visitor.address),
            Limit::of_day(self.subject("account", email.to_lowercase().as_bytes())),
        ]
    }

    /// What attempts of this kind of account are counted by.
    pub(crate) fn subject(&self, what: &str, whose: &[u8]) -> Hash {
        subject(&format!("{}{what}", K::ATTEMPTS), whose)
    }

    /// Counts an attempt. Returns false for one too many, without a write while that is known.
    pub(crate) async fn admits(&self, limits: &[Limit]) -> Result<bool, Failed> {
        let now_ms = self.world.now_ms();
        let is_known = limits.iter().any(|limit| self.refused.has(limit.subject, now_ms));
        let mut too_many = is_known;
        for window_ms in [WINDOW_MS, DAY_MS].into_iter().filter(|_| !is_known) {
            let limits: Vec<Limit> =
                limits.iter().filter(|limit| limit.window_ms == window_ms).copied().collect();
            let subjects: Vec<Hash> = limits.iter().map(|limit| limit.subject).collect();
            if subjects.is_empty() {
                continue;
            }
            let counted = match self.control.count_attempt(subjects.clone(), now_ms, window_ms).await {
                // A full disk must not keep people from signing in, and strangers must not fill what is left.
                Err(StoreError::NoRoom) => self.refused.count(&subjects, now_ms, window_ms),
                counted => counted?,
            };
            for (limit, counted) in limits.iter().zip(counted) {
                if counted.attempts > limit.most {
                    self.refused.add(limit.subject, now_ms, counted.ends_at_ms);
                    too_many = true;
                }
            }
        }
        if too_many {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
        }
        Ok(!too_many)
    }

    /// The attempt was right. Those who share an address are not kept out by it.
    pub(crate) async fn was_right(&self, limits: &[Limit]) -> Result<(), Failed> {
        for limit in limits {
            match limit.is_cleared_by_a_right_one {
                true => self.forget(*limit).await?,
                false => self.control.take_back_attempt(limit.subject).await?,
            }
        }
        Ok(())
    }

    /// It was no attempt: nothing was compared.
    pub(crate) async fn take_back(&self, limits: &[Limit]) -> Result<(), Failed> {
        for limit in limits {
            self.control.take_back_attempt(limit.subject).await?;
        }
        Ok(())
    }

    pub(crate) async fn forget(&self, limit: Limit) -> Result<(), Failed> {
        self.control.forget_attempts(limit.subject).await?;
        self.refused.forget(limit.subject);
        Ok(())
    }
}

/// What attempts are counted by. A digest, so that no address of anybody stays in the store.
pub(crate) fn subject(kind: &str, whose: &[u8]) -> Hash {
    digest(&[b"sealog attempts ", kind.as_bytes(), b" ", whose].concat())
}

/// Somebody with IPv6 has a /64 at least.
fn address(kind: &str, address: IpAddr) -> Hash {
    match address.to_canonical() {
        IpAddr::V4(v4) => subject(kind, &v4.octets()),
        IpAddr::V6(v6) => subject(kind, &v6.octets()[..8]),
    }
}
