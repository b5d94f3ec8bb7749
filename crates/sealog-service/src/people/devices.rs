//! Browsers that a person has signed in with. Each keeps a random cookie; a sign-in without it, or with one
//! that is not the person's, is from a new browser, and the person is told.

use sealog_control::{Device, DeviceSeen, NewNotice, Person, PersonId};
use sealog_core::id::{Hash, Uuid};
use sealog_store::StoreError;
use serde_json::{Value, json};

use super::accounts::{Accounts, Failed, Visitor};
use super::token::{Token, digest};
use crate::hidden::written_out;
use crate::password::Asks;
use crate::text::Text;
use crate::zone;

/// The name of the template in the outbox.
pub const NEW_DEVICE: &str = "new_device";
/// Browsers that are known of one person.
pub const DEVICES_MAX: u64 = 20;
/// Most that a notice has of what a browser says of itself.
const BROWSER_SCALARS_MAX: usize = 200;

/// One browser may be several people's: what is kept does not show that.
fn digest_of(person_id: PersonId, token: &Token) -> Hash {
    digest(&[&person_id.0.0[..], token.0.0.as_bytes()].concat())
}

impl Accounts {
    /// Whose password is to be checked. An address that nobody has costs the same look-up.
    pub(super) async fn who_asks(
        &self,
        person: Option<&Person>,
        device: Option<&Token>,
    ) -> Result<Asks, Failed> {
        let Some(device) = device else { return Ok(Asks::Stranger) };
        let person_id = person.map_or(PersonId(Uuid([0; 16])), |person| person.id);
        let is_known = self.control.knows_device::<Person>(person_id, digest_of(person_id, device)).await?;
        Ok(if is_known { Asks::Known } else { Asks::Stranger })
    }

    /// Notes that somebody has signed in whole. `has` is what the browser has kept; what it is to keep is
    /// returned. There is no notice of the very first browser: there is nothing to tell it from.
    pub async fn note_device(
        &self,
        person: &Person,
        has: Option<&Token>,
        visitor: &Visitor,
    ) -> Result<Token, Failed> {
        let now_ms = self.world.now_ms();
        let token = has.cloned().unwrap_or_else(|| Token::new(&*self.world));
        let digest = digest_of(person.id, &token);
        let device = Device::<Person> {
            account_id: person.id,
            digest,
            created_at_ms: now_ms,
            last_seen_at_ms: now_ms,
        };
        let browser = visitor.user_agent.as_deref().unwrap_or("unknown");
        let browser: String = browser.chars().take(BROWSER_SCALARS_MAX).collect();
        let parameters = json!({
            "at_ms": now_ms,
            "address": visitor.address.to_string(),
            "browser": written_out(&browser),
        });
        let notice = NewNotice {
            key: format!("{NEW_DEVICE}/{}/{digest}/{now_ms}", person.id.0),
            tenant_id: None,
            person_id: Some(person.id),
            to: person.email.clone(),
            template: NEW_DEVICE.into(),
            parameters: parameters.to_string(),
            created_at_ms: now_ms,
        };
        let seen = match self.control.signed_in_with(device, DEVICES_MAX, Some(notice)).await {
            // On a full disk somebody has to get in and make room; the next sign-in tells of the browser.
            Err(StoreError::NoRoom) => return Ok(token),
            seen => seen?,
        };
        if seen == DeviceSeen::New {
            tracing::info!(person_id = %person.id.0, "somebody signed in with a new browser; a notice is in the outbox");
        }
        Ok(token)
    }
}

pub(crate) fn new_device_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let line = |name: &str| {
        let text = parameters[name].as_str()?;
        Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>())
    };
    let body = format!(
        "Somebody signed in to your account of Sealog with a browser that was not used for it before.

    Time      {}
    Address   {}
    Browser   {}

If it was you, there is nothing to do. If it was not, change your password and end the session in your account.

Account: {app_url}/account
",
        zone::moment(parameters["at_ms"].as_u64()?, zone::UTC),
        line("address")?,
        line("browser")?,
    );
    Some(Text { subject: "A new browser signed in to your account".into(), body })
}
