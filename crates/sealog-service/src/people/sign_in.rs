//! Signing in with a password, and changing it.
//!
//! Whoever tries learns nothing but whether it was right: an address that nobody has costs the same work and
//! gets the same answer. Attempts are counted in the store before they are made, so that all nodes count
//! together: for the account that was named, whether it exists or not, at the address that they come from;
//! for that address; and for the account by all strangers of a day. A browser that has signed in to the
//! account before, and whoever is signed in, are counted apart: no stranger keeps them out.

use std::sync::atomic::Ordering;

use sealog_control::{Person, Shown, Wrong};
use sealog_core::id::Hash;
use serde_json::json;

use super::accounts::{Accounts, Failed, Visitor};
use super::throttle::{Limit, SignInError, Throttle, of_person, subject};
use super::token::Token;
use crate::Secret;
use crate::guessable::is_guessable;
use crate::password::{self, Asks, LENGTH_MAX, LENGTH_MIN, Unchecked};
use crate::system_chain::actions;

/// A right password.
#[derive(Debug)]
pub enum SignedIn {
    Whole(Token, Person),
    /// A code has to follow. The token opens nothing else.
    NeedsCode(Token),
}

/// What is wrong with a password that somebody chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordError {
    TooShort,
    TooLong,
    Guessable,
}

impl std::fmt::Display for PasswordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PasswordError::TooShort => write!(f, "Use at least {LENGTH_MIN} characters."),
            PasswordError::TooLong => write!(f, "Use at most {LENGTH_MAX} characters."),
            PasswordError::Guessable => f.write_str("Too easy to guess. Use a few unrelated words."),
        }
    }
}

/// By its length, and by whether it is one that is tried first: rules about kinds of characters make
/// passwords worse. `email` is the account's, as far as it is known.
pub(crate) fn check_chosen(password: &Secret, email: &str) -> Result<(), PasswordError> {
    match password.0.chars().count() {
        length if length < LENGTH_MIN => Err(PasswordError::TooShort),
        length if length > LENGTH_MAX => Err(PasswordError::TooLong),
        _ if is_guessable(&password.0, email) => Err(PasswordError::Guessable),
        _ => Ok(()),
    }
}

impl Accounts {
    /// `replaces` is the session that the browser had before, and `device` what it has kept of earlier
    /// sign-ins.
    pub async fn sign_in(
        &self,
        email: &str,
        password: Secret,
        visitor: &Visitor,
        replaces: Option<&Token>,
        device: Option<&Token>,
    ) -> Result<SignedIn, SignInError> {
        let email = email.trim();
        // A browser without anything to show is a stranger, and refused without a look.
        let strangers = strangers_limits(email, visitor);
        if device.is_none() {
            self.admit(&strangers).await?;
        }
        let known = self.control.person_by_email(email.to_owned()).await?;
        let (person, hash) = known.map_or((None, None), |(person, hash)| (Some(person), hash));
        // Whatever is known of the account, before anything is said of it.
        let asks = self.who_asks(person.as_ref(), device).await?;
        let limits = match (asks, device) {
            (Asks::Known, Some(device)) => {
                vec![Limit::of_one(subject("browser", device.digest().0.as_slice()))]
            }
            _ => strangers,
        };
        if device.is_some() {
            self.admit(&limits).await?;
        }
        let checked = password::verify(hash.clone(), password, asks).await;
        if checked == Err(Unchecked::Busy) {
            self.throttle().take_back(&limits).await?;
        }
        let is_right = checked.map_err(SignInError::unchecked)?;
        let Some(person) = person else {
            self.counts.unknown_accounts.fetch_add(1, Ordering::Relaxed);
            // Where from, and not which address was typed: that may be a password, or somebody's elsewhere.
            tracing::info!(address = %visitor.address, "sign-in to an account that does not exist");
            return Err(SignInError::Wrong);
        };
        let Some(hash) = hash.filter(|_| is_right) else {
            self.note_failure(person.id, Wrong::Password);
            return Err(SignInError::Wrong);
        };
        self.throttle().was_right(&limits).await?;
        let authenticator = self.control.authenticator(person.id).await?;
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
        if let Err(problem) = check_chosen(&new, &person.email) {
            return Ok(Err(problem));
        }
        let from = self.right_hash(person, old).await?;
        let to = password::hash(&*self.world, new).await.map_err(Failed::from)?;
        let records = self.records(person.id, &actions::PASSWORD_CHANGED, json!({ "by": "old_password" }));
        let changed = self.control.change_password(person.id, from, to, keep, records).await?;
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
        // Apart from those who are not signed in: they keep nobody out here.
        let limits = [Limit::of_one(of_person("signed in", person.id))];
        self.admit(&limits).await?;
        let known = self.control.person_by_email(person.email.clone()).await?;
        let hash = known.and_then(|(_, hash)| hash);
        let checked = password::verify(hash.clone(), password, Asks::Known).await;
        let is_right = checked.map_err(SignInError::unchecked)?;
        let hash = hash.filter(|_| is_right).ok_or(SignInError::Wrong)?;
        self.throttle().was_right(&limits).await?;
        Ok(hash)
    }

    /// Counts an attempt, and refuses one too many.
    pub(super) async fn admit(&self, limits: &[Limit]) -> Result<(), SignInError> {
        self.throttle().admit(limits, self.world.now_ms()).await
    }

    pub(super) fn throttle(&self) -> Throttle<'_> {
        Throttle { control: &self.control, refused: &self.refused, counts: &self.counts }
    }

    /// Counts something for each of these subjects. Whether none has had more than it may in this time.
    pub(super) async fn is_within<const N: usize>(
        &self,
        limits: [(Hash, u64); N],
        window_ms: u64,
    ) -> Result<bool, Failed> {
        let subjects = limits.iter().map(|(subject, _)| *subject).collect();
        let counted = self.control.count_attempt(subjects, self.world.now_ms(), window_ms).await?;
        Ok(counted.iter().zip(limits).all(|(counted, (_, most))| counted.attempts <= most))
    }
}

/// Of somebody whose browser has never signed in to the account.
pub(super) fn strangers_limits(email: &str, visitor: &Visitor) -> Vec<Limit> {
    vec![
        Limit::of_account_at("account", email, visitor.address),
        Limit::of_address("address", visitor.address),
        Limit::of_day(subject("account", email.to_lowercase().as_bytes())),
    ]
}
