//! Passwords that people choose, and that they show while they are signed in.

use sealog_control::Person;
use sealog_core::id::Hash;
use serde_json::json;

use super::kind::People;
use crate::Secret;
use crate::people::guessable::is_guessable;
use crate::people::password::{self, Asks, LENGTH_MAX, LENGTH_MIN};
use crate::people::sign_in::{Accounts, Failed, Limit, SignInError};
use crate::records::system_chain::actions;

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

impl Accounts<People> {
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
        self.kind.wake.wake();
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
        let limits = [Limit::of_one(self.subject("signed in", &person.id.0.0))];
        if !self.admits(&limits).await? {
            return Err(SignInError::TooMany);
        }
        let known = self.control.person_by_email(person.email.clone()).await?;
        let hash = known.and_then(|(_, hash)| hash);
        let checked = password::verify(hash.clone(), password, Asks::Known).await;
        let is_right = checked.map_err(SignInError::unchecked)?;
        let hash = hash.filter(|_| is_right).ok_or(SignInError::Wrong)?;
        self.was_right(&limits).await?;
        Ok(hash)
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
