//! The code beside the password: an authenticator, and recovery codes for the day that it is lost.

use sealog_control::{Authenticator, Code, Person, PersonId, Shown, Wrong};
use sealog_core::id::Hash;
use serde_json::json;

use super::accounts::{Accounts, Failed, Visitor};
use super::session::SignedInPerson;
use super::throttle::{Limit, SignInError, of_person};
use super::token::{Token, digest};
use super::totp::{self, SECRET_BYTES};
use crate::Secret;
use crate::system_chain::actions;

pub const RECOVERY_CODES: usize = 10;
/// 16 letters of 32: 80 bits.
const RECOVERY_BYTES: usize = 10;

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

impl Accounts {
    /// The second step of signing in: a code of the authenticator, or a recovery code. With the session that
    /// takes the place of the one that asked for it.
    pub async fn check_code(
        &self,
        asked: &SignedInPerson,
        code: &str,
        visitor: &Visitor,
    ) -> Result<Token, CodeError> {
        let person_id = asked.person.id;
        self.admit_code(person_id).await?;
        let authenticator = self.control.authenticator(person_id).await?.ok_or(CodeError::NotNow)?;
        let step = totp::step_of(&authenticator.secret, code, self.world.now_ms());
        let code = match step {
            Some(step) => Code::Step { secret: authenticator.secret, step },
            None => Code::Recovery(recovery_digest(person_id, code)),
        };
        let shown = Shown::Code { asked_by: asked.session.token_digest, code };
        // The code may be right, and the session that asked for it have ended since, as with a new password.
        let Some(token) = self.begin_session(person_id, visitor, false, shown).await? else {
            self.note_failure(person_id, Wrong::Code);
            return Err(CodeError::Wrong);
        };
        self.throttle().forget(code_limit(person_id)).await?;
        // Nobody has the token before the record is durable.
        self.record_sign_in(person_id, true).await?;
        Ok(token)
    }

    /// A new secret, which counts once a code of it was shown.
    pub async fn offer_authenticator(&self, person: &Person) -> Result<Offer, CodeError> {
        let mut secret = vec![0; SECRET_BYTES];
        self.world.fill_random(&mut secret);
        let offered = Authenticator {
            person_id: person.id,
            secret: secret.clone(),
            last_step: None,
            created_at_ms: self.world.now_ms(),
        };
        if !self.control.offer_authenticator(offered).await? {
            return Err(CodeError::NotNow);
        }
        Ok(offer(&person.email, &secret))
    }

    /// The secret that was offered and is not confirmed yet.
    pub async fn offered(&self, person: &Person) -> Result<Option<Offer>, Failed> {
        let authenticator = self.control.authenticator(person.id).await?;
        let offered = authenticator.filter(|authenticator| !authenticator.is_confirmed());
        Ok(offered.map(|offered| offer(&person.email, &offered.secret)))
    }

    /// The first code of a secret that was offered. With the recovery codes, which are shown once. All other
    /// sessions end.
    pub async fn confirm_authenticator(
        &self,
        person_id: PersonId,
        code: &str,
        keep: Hash,
    ) -> Result<Vec<Secret>, CodeError> {
        self.admit_code(person_id).await?;
        let offered = self.control.authenticator(person_id).await?;
        let offered = offered.filter(|offered| !offered.is_confirmed()).ok_or(CodeError::NotNow)?;
        let step = totp::step_of(&offered.secret, code, self.world.now_ms()).ok_or(CodeError::Wrong)?;
        let (codes, digests) = self.recovery_codes(person_id);
        let records = self.records(person_id, &actions::AUTHENTICATOR_CHANGED, json!({ "change": "set_up" }));
        let (secret, keep) = (offered.secret, Some(keep));
        if !self.control.confirm_authenticator(person_id, secret, step, digests, keep, records).await? {
            return Err(CodeError::NotNow);
        }
        self.wake.wake();
        self.throttle().forget(code_limit(person_id)).await?;
        Ok(codes)
    }

    /// In place of those that are left.
    pub async fn new_recovery_codes(&self, person_id: PersonId) -> Result<Vec<Secret>, CodeError> {
        let (codes, digests) = self.recovery_codes(person_id);
        let change = json!({ "change": "new_recovery_codes" });
        let records = self.records(person_id, &actions::AUTHENTICATOR_CHANGED, change);
        let replaced = self.control.replace_recovery_codes(person_id, digests, records).await?;
        self.wake.wake();
        if replaced { Ok(codes) } else { Err(CodeError::NotNow) }
    }

    pub async fn remove_authenticator(&self, person_id: PersonId) -> Result<bool, Failed> {
        let records =
            self.records(person_id, &actions::AUTHENTICATOR_CHANGED, json!({ "change": "removed" }));
        let was_there = self.control.remove_authenticator(person_id, records).await?;
        self.wake.wake();
        Ok(was_there)
    }

    fn recovery_codes(&self, person_id: PersonId) -> (Vec<Secret>, Vec<Hash>) {
        let new = |_| {
            let mut bytes = [0; RECOVERY_BYTES];
            self.world.fill_random(&mut bytes);
            Secret(in_groups(&totp::base32(&bytes).to_lowercase(), "-"))
        };
        let codes: Vec<Secret> = (0..RECOVERY_CODES).map(new).collect();
        let digests = codes.iter().map(|code| recovery_digest(person_id, &code.0)).collect();
        (codes, digests)
    }

    async fn admit_code(&self, person_id: PersonId) -> Result<(), CodeError> {
        self.admit(&[code_limit(person_id)]).await.map_err(|error| match error {
            SignInError::Failed(failed) => CodeError::Failed(failed),
            SignInError::TooMany | SignInError::Wrong | SignInError::Busy => CodeError::TooMany,
        })
    }
}

fn code_limit(person_id: PersonId) -> Limit {
    Limit::of_one(of_person("code", person_id))
}

/// Of whoever has this address.
pub(crate) fn offer(email: &str, secret: &[u8]) -> Offer {
    let text = totp::base32(secret);
    let account: String = email.bytes().map(percent_encoded).collect();
    let url = format!("otpauth://totp/Sealog:{account}?secret={text}&issuer=Sealog");
    Offer { secret: Secret(in_groups(&text, " ")), url: Secret(url) }
}

fn percent_encoded(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'@' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

fn in_groups(text: &str, between: &str) -> String {
    let groups: Vec<&str> = (0..text.len()).step_by(4).map(|at| &text[at..text.len().min(at + 4)]).collect();
    groups.join(between)
}

/// However it was typed.
fn recovery_digest(person_id: PersonId, code: &str) -> Hash {
    let letters: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    digest(&[&person_id.0.0, letters.to_ascii_lowercase().as_bytes()].concat())
}
