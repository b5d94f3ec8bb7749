//! Operators as a kind of account: a password, and always a code.

use std::sync::atomic::Ordering;

use sealog_control::{OpsUser, OpsUserId, Room, Session, Shown, Wrong};

use crate::Secret;
use crate::people::account::{PasswordError, check_chosen};
use crate::people::password::{self, Asks};
use crate::people::sign_in::{
    Accounts, Failed, Kind, Limit, Offer, Terms, Token, Visitor, new_secret, offer,
};

const MINUTE_MS: u64 = 60 * 1000;
/// Shorter than those of people: what is open here is open for all tenants.
const IDLE_MS: u64 = 30 * MINUTE_MS;
const ABSOLUTE_MS: u64 = 8 * 60 * MINUTE_MS;

#[derive(Clone)]
pub struct Operators;

/// An operator who is signed in, with a code or still without one.
#[derive(Clone, Debug)]
pub struct SignedInOperator {
    pub session: Session<OpsUser>,
    pub user: OpsUser,
}

impl SignedInOperator {
    /// Whether a code was shown: nothing is open before.
    pub fn is_whole(&self) -> bool {
        !self.session.needs_code && self.user.is_enrolled()
    }
}

impl Kind for Operators {
    type Account = OpsUser;
    type Who = SignedInOperator;
    const ATTEMPTS: &'static str = "ops ";
    /// The console has a listener of its own, and operators do not wait behind those who sign in to the
    /// dashboard.
    const STRANGER: Asks = Asks::Known;

    fn session(who: &SignedInOperator) -> &Session<OpsUser> {
        &who.session
    }

    fn account(who: &SignedInOperator) -> &OpsUser {
        &who.user
    }

    async fn terms(_: &Accounts<Operators>, _: OpsUserId) -> Result<Terms, Failed> {
        Ok(Terms { idle_ms: IDLE_MS, lasts_ms: ABSOLUTE_MS, room: Room::Reserve })
    }

    async fn who(
        _: &Accounts<Operators>,
        session: Session<OpsUser>,
        user: OpsUser,
    ) -> Result<Option<SignedInOperator>, Failed> {
        Ok(Some(SignedInOperator { session, user }))
    }

    fn failed(accounts: &Accounts<Operators>, user: Option<&OpsUser>, what: Wrong, visitor: &Visitor) {
        match (user, what) {
            (Some(user), Wrong::Code) => {
                accounts.counts.wrong_codes.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(operator = %user.id.0, address = %visitor.address, "a wrong code for an operator's account");
            }
            _ => {
                accounts.counts.wrong_passwords.fetch_add(1, Ordering::Relaxed);
                // Where from, and not what was typed: that may be a password.
                tracing::warn!(address = %visitor.address, "failed operator sign-in");
            }
        }
    }

    async fn signed_in(
        _: &Accounts<Operators>,
        user: &OpsUser,
        _: bool,
        visitor: &Visitor,
    ) -> Result<(), Failed> {
        let enrolled = !user.is_enrolled();
        tracing::info!(operator = %user.id.0, address = %visitor.address, enrolled, "an operator signed in");
        Ok(())
    }
}

/// Why a link has not set a password.
#[derive(Debug)]
pub enum EnrolError {
    /// Unknown, used or over.
    Gone,
    TooMany,
    Password(PasswordError),
    Failed(Failed),
}

impl<E: Into<Failed>> From<E> for EnrolError {
    fn from(error: E) -> EnrolError {
        EnrolError::Failed(error.into())
    }
}

impl Accounts<Operators> {
    /// Sets the password by a link that the host has made. The session that it begins asks for the
    /// authenticator, and opens nothing else.
    pub async fn enrol(
        &self,
        link: &Token,
        password: Secret,
        visitor: &Visitor,
    ) -> Result<Token, EnrolError> {
        check_chosen(&password, "").map_err(EnrolError::Password)?;
        let limit = Limit::of_account_at("ops link", "", visitor.address);
        if !self.admits(&[limit]).await? {
            return Err(EnrolError::TooMany);
        }
        let hash = password::hash(&*self.world, password).await?;
        let (now_ms, secret) = (self.world.now_ms(), new_secret(&*self.world));
        let enrolled = self.control.enrol_ops_user(link.digest(), now_ms, hash.clone(), secret).await?;
        let user = enrolled.ok_or(EnrolError::Gone)?;
        tracing::info!(operator = %user.id.0, address = %visitor.address, "an operator set a password with a link");
        // Guesses at the old password do not keep its owner out.
        for limit in self.strangers_limits(&user.email, visitor) {
            self.forget(limit).await?;
        }
        let shown = Shown::Password { hash, replaces: None };
        self.begin_session(user.id, visitor, true, shown).await?.ok_or(EnrolError::Gone)
    }

    /// What the authenticator of an operator who has none yet has to be told.
    pub fn offered(&self, who: &SignedInOperator) -> Option<Offer> {
        let secret = who.user.secret.as_ref().filter(|_| !who.user.is_enrolled())?;
        Some(offer(&who.user.email, secret))
    }
}
