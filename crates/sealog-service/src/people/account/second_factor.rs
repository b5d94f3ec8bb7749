//! The code beside the password: an authenticator, and recovery codes for the day that it is lost.

use sealog_control::{Authenticator, Person, PersonId};
use sealog_core::id::Hash;
use serde_json::json;

use super::kind::People;
use crate::Secret;
use crate::people::sign_in::{
    Accounts, CodeError, Failed, Offer, in_groups, new_secret, offer, recovery_digest, totp,
};
use crate::records::system_chain::actions;

pub const RECOVERY_CODES: usize = 10;
/// 16 letters of 32: 80 bits.
const RECOVERY_BYTES: usize = 10;

impl Accounts<People> {
    /// A new secret, which counts once a code of it was shown.
    pub async fn offer_authenticator(&self, person: &Person) -> Result<Offer, CodeError> {
        let secret = new_secret(&*self.world);
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
        self.kind.wake.wake();
        self.forget(self.code_limit(person_id)).await?;
        Ok(codes)
    }

    /// In place of those that are left.
    pub async fn new_recovery_codes(&self, person_id: PersonId) -> Result<Vec<Secret>, CodeError> {
        let (codes, digests) = self.recovery_codes(person_id);
        let change = json!({ "change": "new_recovery_codes" });
        let records = self.records(person_id, &actions::AUTHENTICATOR_CHANGED, change);
        let replaced = self.control.replace_recovery_codes(person_id, digests, records).await?;
        self.kind.wake.wake();
        if replaced { Ok(codes) } else { Err(CodeError::NotNow) }
    }

    pub async fn remove_authenticator(&self, person_id: PersonId) -> Result<bool, Failed> {
        let records =
            self.records(person_id, &actions::AUTHENTICATOR_CHANGED, json!({ "change": "removed" }));
        let was_there = self.control.remove_authenticator(person_id, records).await?;
        self.kind.wake.wake();
        Ok(was_there)
    }

    fn recovery_codes(&self, person_id: PersonId) -> (Vec<Secret>, Vec<Hash>) {
        let new = |_| {
            let mut bytes = [0; RECOVERY_BYTES];
            self.world.fill_random(&mut bytes);
            Secret(in_groups(&totp::base32(&bytes).to_lowercase(), "-"))
        };
        let codes: Vec<Secret> = (0..RECOVERY_CODES).map(new).collect();
        let digests = codes.iter().map(|code| recovery_digest(person_id.0, &code.0)).collect();
        (codes, digests)
    }
}
