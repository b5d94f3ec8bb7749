//! Signing in with a password, and changing it.
//!
//! Whoever tries learns nothing but whether it was right: an address that nobody has costs the same work and
//! gets the same answer. Attempts are counted in the store before they are made, for the account that was named
//! (whether it exists or not) and for the address that they come from, so that all nodes count together.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sealog_control::{Person, PersonId, Shown, Wrong};
use sealog_core::id::Hash;
use serde_json::json;

use super::accounts::{Accounts, Failed, Visitor};
use super::token::{Token, digest};
use crate::Secret;
use crate::password::{self, LENGTH_MAX, LENGTH_MIN};
use crate::system_chain::actions;

/// How long attempts count.
pub(super) const WINDOW_MS: u64 = 15 * 60 * 1000;
/// Wrong attempts for one account in this time.
pub(super) const PER_ACCOUNT: u64 = 10;
/// Attempts from one address in this time: several people may share it.
pub(super) const PER_ADDRESS: u64 = 100;

/// A right password.
#[derive(Debug)]
pub enum SignedIn {
    Whole(Token, Person),
    /// A code has to follow. The token opens nothing else.
    NeedsCode(Token),
}

#[derive(Debug)]
pub enum SignInError {
    /// Of whatever it was that was wrong.
    Wrong,
    TooMany,
    Failed(Failed),
}

/// What is wrong with a password that somebody chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordError {
    TooShort,
    TooLong,
}

impl std::fmt::Display for PasswordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PasswordError::TooShort => write!(f, "Use at least {LENGTH_MIN} characters."),
            PasswordError::TooLong => write!(f, "Use at most {LENGTH_MAX} characters."),
        }
    }
}

impl<E: Into<Failed>> From<E> for SignInError {
    fn from(error: E) -> SignInError {
        SignInError::Failed(error.into())
    }
}

/// Of length alone: rules about kinds of characters make passwords worse.
pub(super) fn check_chosen(password: &Secret) -> Result<(), PasswordError> {
    match password.0.chars().count() {
        length if length < LENGTH_MIN => Err(PasswordError::TooShort),
        length if length > LENGTH_MAX => Err(PasswordError::TooLong),
        _ => Ok(()),
    }
}

impl Accounts {
    /// `replaces` is the session that the browser had before.
    pub async fn sign_in(
        &self,
        email: &str,
        password: Secret,
        visitor: &Visitor,
        replaces: Option<&Token>,
    ) -> Result<SignedIn, SignInError> {
        let email = email.trim();
        let account = subject("account", email.to_lowercase().as_bytes());
        self.admit([account, address(visitor.address)]).await?;
        let known = self.people.person_by_email(email.to_owned()).await?;
        let (person, hash) = known.map_or((None, None), |(person, hash)| (Some(person), hash));
        // Whatever is known of the account, before anything is said of it.
        let is_right = password::verify(hash.clone(), password).await.map_err(Failed)?;
        let Some(person) = person else {
            self.counts.unknown_accounts.fetch_add(1, Ordering::Relaxed);
            // Where from, and not which address was typed: that may be a password, or somebody's elsewhere.
            tracing::info!(address = %visitor.address, "somebody tried to sign in to an account that does not exist");
            return Err(SignInError::Wrong);
        };
        let Some(hash) = hash.filter(|_| is_right) else {
            self.note_failure(person.id, Wrong::Password);
            return Err(SignInError::Wrong);
        };
        self.forget_attempts(account).await?;
        let authenticator = self.people.authenticator(person.id).await?;
        let needs_code = authenticator.is_some_and(|authenticator| authenticator.is_confirmed());
        let shown = Shown::Password { hash, replaces: replaces.map(Token::digest) };
        let token = self.begin_session(person.id, visitor, needs_code, shown).await?;
        // The password was changed while it was being checked.
        let token = token.ok_or(SignInError::Wrong)?;
        if !needs_code {
            // Nobody has the token before the record is durable.
            self.record_sign_in(person.id, false).await?;
        }
        Ok(if needs_code { SignedIn::NeedsCode(token) } else { SignedIn::Whole(token, person) })
    }

    /// For somebody who is signed in and shows the old one. All other sessions end.
    pub async fn change_password(
        &self,
        person: &Person,
        old: Secret,
        new: Secret,
        keep: Hash,
    ) -> Result<Result<(), PasswordError>, SignInError> {
        if let Err(problem) = check_chosen(&new) {
            return Ok(Err(problem));
        }
        let from = self.right_hash(person, old).await?;
        let to = password::hash(&*self.world, new).await.map_err(Failed)?;
        let records = self.records(person.id, &actions::PASSWORD_CHANGED, json!({ "by": "old_password" }));
        let changed = self.people.change_password(person.id, from, to, keep, records).await?;
        self.wake.wake();
        // Somebody else has changed it since: the old one is wrong by now.
        if changed { Ok(Ok(())) } else { Err(SignInError::Wrong) }
    }

    /// Asked for again before something that outlives the session.
    pub async fn check_password(&self, person: &Person, password: Secret) -> Result<(), SignInError> {
        self.right_hash(person, password).await.map(drop)
    }

    /// The hash of which this is the password.
    async fn right_hash(&self, person: &Person, password: Secret) -> Result<String, SignInError> {
        let account = subject("account", person.email.to_lowercase().as_bytes());
        self.admit([account]).await?;
        let known = self.people.person_by_email(person.email.clone()).await?;
        let hash = known.and_then(|(_, hash)| hash);
        let is_right = password::verify(hash.clone(), password).await.map_err(Failed)?;
        let hash = hash.filter(|_| is_right).ok_or(SignInError::Wrong)?;
        self.forget_attempts(account).await?;
        Ok(hash)
    }

    /// Counts an attempt, and refuses one too many, without a write while that is known. The first subject is an account, the
    /// second an address.
    pub(super) async fn admit<const N: usize>(&self, subjects: [Hash; N]) -> Result<(), SignInError> {
        let now_ms = self.world.now_ms();
        if subjects.iter().any(|subject| self.refused.has(*subject, now_ms)) {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            return Err(SignInError::TooMany);
        }
        let counted = self.people.count_attempt(subjects.into(), now_ms, WINDOW_MS).await?;
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

    /// Counts something for each of these subjects. Whether none has had more than it may in this time.
    pub(super) async fn is_within<const N: usize>(
        &self,
        limits: [(Hash, u64); N],
        window_ms: u64,
    ) -> Result<bool, Failed> {
        let subjects = limits.iter().map(|(subject, _)| *subject).collect();
        let counted = self.people.count_attempt(subjects, self.world.now_ms(), window_ms).await?;
        Ok(counted.iter().zip(limits).all(|(counted, (_, most))| counted.attempts <= most))
    }

    /// Forgets the attempts of a subject: one was right.
    pub(super) async fn forget_attempts(&self, subject: Hash) -> Result<(), Failed> {
        self.people.forget_attempts(subject).await?;
        self.refused.forget(subject);
        Ok(())
    }
}

/// What attempts are counted by. A digest, so that no address of anybody stays in the store.
pub(super) fn subject(kind: &str, whose: &[u8]) -> Hash {
    digest(&[b"sealog attempts ", kind.as_bytes(), b" ", whose].concat())
}

pub(super) fn of_person(kind: &str, id: PersonId) -> Hash {
    subject(kind, &id.0.0)
}

/// Somebody with IPv6 has a /64 at least.
pub(super) fn address(address: IpAddr) -> Hash {
    match address.to_canonical() {
        IpAddr::V4(v4) => subject("address", &v4.octets()),
        IpAddr::V6(v6) => subject("address", &v6.octets()[..8]),
    }
}
