//! The second step: a code of the authenticator, or one that stands in for it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sealog_control::{Account, Code, Shown, Wrong};
use sealog_core::id::{Hash, Uuid};
use sealog_store::world::World;

use super::accounts::{Accounts, Browser, Failed, Kept, Kind};
use super::throttle::Limit;
use super::token::digest;
use super::totp::{self, SECRET_BYTES};
use crate::Secret;

/// Escaped in the label of an `otpauth:` URL.
const IN_A_LABEL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'@');

/// What an authenticator has to be told.
#[derive(Clone, Debug)]
pub struct Offer {
    /// In base32, in groups of four.
    pub secret: Secret,
    /// An `otpauth:` URL, which apps open.
    pub url: Secret,
}

#[derive(Debug)]
pub enum CodeError {
    Wrong,
    TooMany,
    /// There is none, or there is one already.
    NotNow,
    Failed(Failed),
}

impl<E: Into<Failed>> From<E> for CodeError {
    fn from(error: E) -> CodeError {
        CodeError::Failed(error.into())
    }
}

impl<K: Kind> Accounts<K> {
    /// The second step of signing in. With the session that takes the place of the one that asked for it.
    pub async fn check_code(&self, asked: &K::Who, code: &str, browser: &Browser) -> Result<Kept, CodeError> {
        let (account, asked_by) = (K::account(asked), K::session(asked).token_digest);
        self.admit_code(account.id()).await?;
        let factor = self.control.second_factor::<K::Account>(account.id()).await?;
        let factor = factor.ok_or(CodeError::NotNow)?;
        let code = match totp::step_of(&factor.secret, code, self.world.now_ms()) {
            Some(step) => Code::Step { secret: factor.secret, step },
            None => Code::Recovery(recovery_digest(account.id().into(), code)),
        };
        let shown = Shown::Code { asked_by, code };
        // The code may be right, and the session that asked for it have ended since, as with a new password.
        let Some(token) = self.begin_session(account.id(), &browser.visitor, false, shown).await? else {
            K::failed(self, Some(account), Wrong::Code, &browser.visitor);
            return Err(CodeError::Wrong);
        };
        self.forget(self.code_limit(account.id())).await?;
        Ok(self.whole(account, true, token, browser).await?)
    }

    pub(crate) async fn admit_code(&self, id: <K::Account as Account>::Id) -> Result<(), CodeError> {
        if self.admits(&[self.code_limit(id)]).await? { Ok(()) } else { Err(CodeError::TooMany) }
    }

    pub(crate) fn code_limit(&self, id: <K::Account as Account>::Id) -> Limit {
        let id: Uuid = id.into();
        Limit::of_one(self.subject("code", &id.0))
    }
}

pub(crate) fn new_secret(world: &dyn World) -> Vec<u8> {
    let mut secret = vec![0; SECRET_BYTES];
    world.fill_random(&mut secret);
    secret
}

/// For the account with this address.
pub(crate) fn offer(email: &str, secret: &[u8]) -> Offer {
    let text = totp::base32(secret);
    let account = utf8_percent_encode(email, IN_A_LABEL);
    let url = format!("otpauth://totp/Sealog:{account}?secret={text}&issuer=Sealog");
    Offer { secret: Secret(in_groups(&text, " ")), url: Secret(url) }
}

pub(crate) fn in_groups(text: &str, between: &str) -> String {
    let groups: Vec<&str> = (0..text.len()).step_by(4).map(|at| &text[at..text.len().min(at + 4)]).collect();
    groups.join(between)
}

/// However it was typed.
pub(crate) fn recovery_digest(id: Uuid, code: &str) -> Hash {
    let letters: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    digest(&[&id.0, letters.to_ascii_lowercase().as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_end_the_label_of_its_url() {
        let offer = offer("a.b-c_d+é?&#%/:@x.example", &[0; 5]);
        let label = "a.b-c_d%2B%C3%A9%3F%26%23%25%2F%3A@x.example";
        assert_eq!(offer.url.0, format!("otpauth://totp/Sealog:{label}?secret=AAAAAAAA&issuer=Sealog"));
    }
}
