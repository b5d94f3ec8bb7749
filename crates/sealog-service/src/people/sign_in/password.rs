//! The first step: a password.

use sealog_control::{Account, Shown, Wrong};

use super::accounts::{Accounts, Browser, Failed, Kept, Kind};
use super::throttle::{Limit, SignInError};
use super::token::Token;
use crate::Secret;
use crate::people::password::{self, Asks, Unchecked};

/// A right password.
#[derive(Debug)]
pub enum SignedIn {
    Whole(Kept),
    /// A code has to follow. The token opens nothing else.
    NeedsCode(Token),
}

impl<K: Kind> Accounts<K> {
    pub async fn sign_in(
        &self,
        email: &str,
        password: Secret,
        browser: &Browser,
    ) -> Result<SignedIn, SignInError> {
        let (email, visitor) = (email.trim(), &browser.visitor);
        // A browser without anything to show is a stranger, and refused without a look-up.
        let strangers = self.strangers_limits(email, visitor);
        if browser.device.is_none() && !self.admits(&strangers).await? {
            return Err(SignInError::TooMany);
        }
        let known = self.control.account_by_email::<K::Account>(email.to_owned()).await?;
        let (account, hash) = known.map_or((None, None), |(account, hash)| (Some(account), hash));
        let (asks, limits) = match &browser.device {
            Some(device) if self.knows_device(account.as_ref(), device).await? => {
                (Asks::Known, vec![Limit::of_one(self.subject("browser", &device.digest().0))])
            }
            _ => (K::STRANGER, strangers),
        };
        if browser.device.is_some() && !self.admits(&limits).await? {
            return Err(SignInError::TooMany);
        }
        // Whatever is known of the account, before anything is said of it.
        let checked = password::verify(hash.clone(), password, asks).await;
        if checked == Err(Unchecked::Busy) {
            self.take_back(&limits).await?;
        }
        let is_right = checked.map_err(SignInError::unchecked)?;
        let (Some(account), Some(hash)) = (&account, hash.filter(|_| is_right)) else {
            K::failed(self, account.as_ref(), Wrong::Password, visitor);
            return Err(SignInError::Wrong);
        };
        self.was_right(&limits).await?;
        let factor = self.control.second_factor::<K::Account>(account.id()).await?;
        let needs_code = K::Account::ALWAYS_NEEDS_CODE || factor.is_some_and(|factor| factor.is_confirmed);
        let shown = Shown::Password { hash, replaces: browser.session.as_ref().map(Token::digest) };
        let token = self.begin_session(account.id(), visitor, needs_code, shown).await?;
        // The password was changed, or the account removed, while it was being checked.
        let token = token.ok_or(SignInError::Wrong)?;
        if needs_code {
            return Ok(SignedIn::NeedsCode(token));
        }
        Ok(SignedIn::Whole(self.whole(account, false, token, browser).await?))
    }

    /// A whole session has begun: it is recorded, and a browser that is new to the account is told of, before
    /// the browser has the token.
    pub(super) async fn whole(
        &self,
        account: &K::Account,
        with_code: bool,
        session: Token,
        browser: &Browser,
    ) -> Result<Kept, Failed> {
        K::signed_in(self, account, with_code, &browser.visitor).await?;
        let device = self.note_device(account, browser).await?;
        Ok(Kept { session, device })
    }
}
