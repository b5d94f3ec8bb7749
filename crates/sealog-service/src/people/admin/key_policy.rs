//! How long keys of an organisation may live, where its plan includes such a policy. Enforced when a key is
//! made.

use sealog_control::Tenant;
use sealog_core::id::TenantId;
use sealog_core::time::DAY_MS;
use serde_json::{Map, Value};

use super::{Actor, Admin, AdminError, FieldError};
use crate::records::system_chain::{actions, change};

/// The setting's name in control data.
const SETTING: &str = "key_lifetime_days";
/// Ten years.
pub const DAYS_MAX: u32 = 3660;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Whether the plan includes it: a policy that was set on another plan is kept, and not enforced.
    pub is_in_plan: bool,
    pub days_max: Option<u32>,
}

impl KeyPolicy {
    /// The latest end of a key that is made now.
    pub fn latest_end_ms(&self, now_ms: u64) -> Option<u64> {
        let days = self.days_max.filter(|_| self.is_in_plan)?;
        Some(now_ms.saturating_add(u64::from(days) * DAY_MS))
    }

    /// The end of a key that is made now. One without an end lives as long as it may.
    pub(super) fn end_of(&self, wanted_ms: Option<u64>, now_ms: u64) -> Result<Option<u64>, FieldError> {
        match (wanted_ms, self.latest_end_ms(now_ms)) {
            (Some(wanted), Some(latest)) if wanted > latest => {
                let days = self.days_max.unwrap_or(0);
                Err(FieldError::new(
                    "expires_at",
                    format!("must be at most {days} days from now, the limit of the organisation"),
                ))
            }
            (wanted, latest) => Ok(wanted.or(latest)),
        }
    }
}

impl Admin {
    pub async fn key_policy(&self, tenant: &Tenant) -> Result<KeyPolicy, AdminError> {
        let days = self.administration().setting(tenant.id, SETTING.into()).await?;
        let days = days.and_then(|text| serde_json::from_str::<u32>(&text).ok());
        let plan = self.plans.iter().find(|plan| plan.name == tenant.plan);
        // What an organisation has set holds on where the configuration has lost its plan.
        Ok(KeyPolicy { is_in_plan: plan.is_none_or(|plan| plan.key_expiry_policy), days_max: days })
    }

    pub(super) async fn key_policy_of(&self, tenant_id: TenantId) -> Result<KeyPolicy, AdminError> {
        let tenant = self.administration().tenant(tenant_id).await?.ok_or(AdminError::NotFound)?;
        self.key_policy(&tenant).await
    }

    /// Nothing for no policy. Keys that exist stay as they are.
    pub async fn set_key_policy(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        days_max: Option<u32>,
    ) -> Result<(), AdminError> {
        let before = self.key_policy_of(tenant_id).await?;
        if !before.is_in_plan {
            return Err(FieldError::new("days", "is not part of the plan").into());
        }
        if days_max.is_some_and(|days| !(1..=DAYS_MAX).contains(&days)) {
            return Err(
                FieldError::new("days", format!("must be a whole number from 1 to {DAYS_MAX}")).into()
            );
        }
        let mut metadata = Map::new();
        change(&mut metadata, "days_max", before.days_max, days_max);
        if metadata.is_empty() {
            return Ok(());
        }
        let recorder = self.recorder(actor);
        let resource = format!("tenant/{tenant_id}");
        let records = vec![recorder.record(&actions::KEY_POLICY_CHANGED, &resource, Value::Object(metadata))];
        let value = days_max.map(|days| days.to_string());
        let set =
            self.made(self.administration().set_setting(tenant_id, SETTING.into(), value, records)).await?;
        if set { Ok(()) } else { Err(AdminError::NotFound) }
    }
}
