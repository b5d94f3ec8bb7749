//! Closing a tenant at the end of its contract: its keys are revoked, its people are out, its events stay.
//! `docs/adr/0037-what-closing-a-tenant-means.md` has the reasons.
//!
//! ```text
//! t0  the tenant is closed, with its record: no key of it opens anything, nothing gives it a key or a member
//! t1  its keys and monitor tokens are revoked and its memberships end, each with its own record
//! ```
//! A call that ends between them is made again, and goes on.

use sealog_control::{Role, Tenant, TenantClosed};
use sealog_core::id::TenantId;
use sealog_core::time::iso_ms;
use serde_json::json;

use super::people::MemberUpdate;
use super::{Actor, Admin, AdminError, FieldError, fields};
use crate::records::system_chain::actions;

/// Keys and monitor tokens that one call revokes, and memberships that it ends: each is a change of its own
/// on the disk.
pub const CHANGES_MAX: usize = 100;
/// Open cases that a refusal names.
const CASES_NAMED_MAX: usize = 10;

/// Field of the error for a tenant that has open cases.
pub const OPEN_CASES: &str = "open_cases";

#[derive(Clone, Debug, Default)]
pub struct CloseInput {
    /// The tenant's name as it is now: an id that was mistyped closes nothing.
    pub name: String,
    /// Why; for the system chain.
    pub reason: String,
    pub even_with_open_cases: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub closed_at_ms: u64,
    /// Monitor tokens included.
    pub keys_revoked: usize,
    pub members_ended: usize,
    /// Nothing is left to end. Otherwise the same call goes on.
    pub is_done: bool,
}

impl Admin {
    /// Not found where there is no such tenant. Of a tenant that is closed already, ends what is left.
    pub async fn close_tenant(
        &self,
        actor: Actor,
        id: TenantId,
        input: CloseInput,
    ) -> Result<Closed, AdminError> {
        let tenant = self.administration().tenant(id).await?.ok_or(AdminError::NotFound)?;
        if input.name.trim() != tenant.name.trim() {
            return Err(FieldError::new("name", "must be the name of the organisation that you close").into());
        }
        let reason = fields::some_text("reason", input.reason.trim().to_owned())?;
        let closed_at_ms = self.mark_closed(actor, &tenant, &reason, input.even_with_open_cases).await?;
        let (keys_revoked, members_ended) =
            (self.revoke_keys(actor, id).await?, self.end_members(actor, id).await?);
        let is_done = keys_revoked < CHANGES_MAX && members_ended < CHANGES_MAX;
        Ok(Closed { closed_at_ms, keys_revoked, members_ended, is_done })
    }

    /// Of a tenant that was closed, the reason why it gets nothing new.
    pub(super) async fn refuse_closed(&self, field: &str, tenant_id: TenantId) -> Result<(), AdminError> {
        match self.administration().closed_at_ms(tenant_id).await? {
            None => Ok(()),
            Some(at_ms) => {
                let problem = format!("belongs to an organisation that was closed on {}", day(at_ms));
                Err(FieldError::new(field, problem).into())
            }
        }
    }

    async fn mark_closed(
        &self,
        actor: Actor,
        tenant: &Tenant,
        reason: &str,
        even_with_open_cases: bool,
    ) -> Result<u64, AdminError> {
        let recorder = self.recorder(actor);
        let now_ms = recorder.now_ms();
        let metadata =
            json!({ "name": tenant.name, "reason": reason, "even_with_open_cases": even_with_open_cases });
        let record = recorder.record(&actions::TENANT_CLOSED, &format!("tenant/{}", tenant.id), metadata);
        // One more than is named tells whether there are others.
        let named = (!even_with_open_cases).then_some(CASES_NAMED_MAX + 1);
        let closing = self.administration().close_tenant(tenant.id, now_ms, named, vec![record]);
        match self.made(closing).await?.ok_or(AdminError::NotFound)? {
            TenantClosed::Done => Ok(now_ms),
            TenantClosed::Before(at_ms) => Ok(at_ms),
            TenantClosed::OpenCases(open) => Err(FieldError::new(OPEN_CASES, open_cases(&open)).into()),
        }
    }

    async fn revoke_keys(&self, actor: Actor, id: TenantId) -> Result<usize, AdminError> {
        let keys = self.administration().keys_not_revoked(id, CHANGES_MAX).await?;
        for key in &keys {
            self.revoke_key(actor, *key).await?;
        }
        let left = CHANGES_MAX - keys.len();
        let tokens = self.administration().monitor_tokens_not_revoked(id, left).await?;
        for token in &tokens {
            self.revoke_monitor_token(actor, *token).await?;
        }
        Ok(keys.len() + tokens.len())
    }

    async fn end_members(&self, actor: Actor, id: TenantId) -> Result<usize, AdminError> {
        let now_ms = self.recorder(actor).now_ms();
        let members = self.people().members_with_roles(id, Role::ALL.to_vec(), now_ms, CHANGES_MAX).await?;
        for member in &members {
            let ends_at = Some(Some(iso_ms(now_ms)));
            let update = MemberUpdate { ends_at, ..MemberUpdate::default() };
            self.update_member(actor, id, member.person.id, update).await?;
        }
        Ok(members.len())
    }
}

fn day(at_ms: u64) -> String {
    iso_ms(at_ms)[..10].to_owned()
}

fn open_cases(open: &[u64]) -> String {
    let named: Vec<String> = open.iter().take(CASES_NAMED_MAX).map(|number| format!("#{number}")).collect();
    let more = if open.len() > CASES_NAMED_MAX { " and more" } else { "" };
    format!("must be closed first: {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_ten_open_cases_and_says_that_there_are_more() {
        let numbers: Vec<u64> = (1..=11).collect();
        assert_eq!(open_cases(&numbers[..2]), "must be closed first: #1, #2");
        assert!(open_cases(&numbers[..10]).ends_with("#10"));
        assert!(open_cases(&numbers).ends_with("#10 and more"));
    }
}
