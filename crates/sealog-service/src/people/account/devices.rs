//! The mail that tells a person of a sign-in with a browser that is new to the account.

use sealog_control::{NewNotice, Person};
use sealog_core::id::Hash;
use serde_json::{Value, json};

use crate::evidence::hidden::written_out;
use crate::people::contact::Text;
use crate::people::sign_in::Visitor;
use crate::zone;

/// The name of the template in the outbox.
pub const NEW_DEVICE: &str = "new_device";
/// Most that a notice has of what a browser says of itself.
const BROWSER_SCALARS_MAX: usize = 200;

pub(super) fn new_device_notice(person: &Person, device: Hash, now_ms: u64, visitor: &Visitor) -> NewNotice {
    let browser = visitor.user_agent.as_deref().unwrap_or("unknown");
    let browser: String = browser.chars().take(BROWSER_SCALARS_MAX).collect();
    let parameters = json!({
        "at_ms": now_ms,
        "address": visitor.address.to_string(),
        "browser": written_out(&browser),
    });
    NewNotice {
        key: format!("{NEW_DEVICE}/{}/{device}/{now_ms}", person.id.0),
        tenant_id: None,
        person_id: Some(person.id),
        to: person.email.clone(),
        template: NEW_DEVICE.into(),
        parameters: parameters.to_string(),
        created_at_ms: now_ms,
    }
}

pub(crate) fn new_device_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let line = |name: &str| {
        let text = parameters[name].as_str()?;
        Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>())
    };
    let body = format!(
        "A new browser signed in to your Sealog account.

    Time      {}
    Address   {}
    Browser   {}

If this was you, ignore this e-mail. If not, change your password and end the session in your account.

Account: {app_url}/account
",
        zone::moment(parameters["at_ms"].as_u64()?, zone::UTC),
        line("address")?,
        line("browser")?,
    );
    Some(Text { subject: "A new browser signed in to your account".into(), body })
}
