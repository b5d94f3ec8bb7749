//! Whom a mail can reach, and what it says.

use std::sync::Arc;

use lettre::Address;
use sealog_control::{Control, ListPage, PersonId, Role, Tenant};
use sealog_store::StoreError;

const PAGE: usize = 100;

/// A mail before it has a sender and a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub subject: String,
    pub body: String,
}

/// Whether a mail can be sent to a text.
pub fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

/// The tenant's contact, or else its first owner, who is named then: a notice is one mail.
pub(crate) async fn address_of(
    control: &Arc<Control>,
    tenant: &Tenant,
    now_ms: u64,
) -> Result<Option<(String, Option<PersonId>)>, StoreError> {
    if let Some(contact) = tenant.contact_email.as_ref().filter(|contact| is_address(contact)) {
        return Ok(Some((contact.clone(), None)));
    }
    let mut after = None;
    loop {
        let page = control.members(tenant.id, ListPage { after, limit: PAGE }).await?;
        let owner = page.iter().find(|member| {
            member.membership.role == Role::Owner
                && !member.membership.has_ended(now_ms)
                && is_address(&member.person.email)
        });
        match (owner, page.last()) {
            (Some(owner), _) => return Ok(Some((owner.person.email.clone(), Some(owner.person.id)))),
            (None, Some(last)) if page.len() == PAGE => after = Some(last.person.id.0),
            (None, _) => return Ok(None),
        }
    }
}
