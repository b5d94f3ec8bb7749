//! Tenants.

use sealog_control::{NewTenant, Records, Tenant, TenantChange};
use sealog_core::id::TenantId;
use sealog_core::plan::Billing;
use sealog_core::time::iso_ms;
use serde_json::{Map, Value, json};

use super::{Actor, Admin, AdminError, fields};
use crate::records::system_chain::{Recorder, actions, change};

/// A tenant whose plan nobody has named.
const PLAN_DEFAULT: &str = "top";

#[derive(Clone, Debug, Default)]
pub struct TenantInput {
    pub name: String,
    pub plan: Option<String>,
    pub contact_email: Option<String>,
    pub trial_ends_at: Option<String>,
    pub billing_active: Option<bool>,
}

/// Each field is left alone unless it is given; an inner nothing clears it.
#[derive(Clone, Debug, Default)]
pub struct TenantUpdate {
    pub name: Option<String>,
    pub plan: Option<String>,
    pub contact_email: Option<Option<String>>,
    pub trial_ends_at: Option<Option<String>>,
    pub billing_active: Option<bool>,
    pub rate_limit_rps: Option<Option<u32>>,
}

impl Admin {
    pub async fn create_tenant(&self, actor: Actor, input: TenantInput) -> Result<Tenant, AdminError> {
        let recorder = self.recorder(actor);
        let trial_ends_at = input.trial_ends_at.map(|given| fields::time_ms("trial_ends_at", given));
        let new = NewTenant {
            id: TenantId(recorder.random_id()),
            name: fields::some_text("name", input.name)?,
            contact_email: input
                .contact_email
                .map(|given| fields::email("contact_email", given))
                .transpose()?,
            billing: Billing {
                trial_ends_at_ms: trial_ends_at.transpose()?,
                billing_active: input.billing_active.unwrap_or(true),
            },
            plan: fields::plan("plan", input.plan.unwrap_or_else(|| PLAN_DEFAULT.into()), &self.plans)?,
            created_at_ms: recorder.now_ms(),
        };
        let records = vec![created(&recorder, &new)];
        Ok(self.made(self.administration().create_tenant(new, records)).await?)
    }

    pub async fn update_tenant(
        &self,
        actor: Actor,
        id: TenantId,
        update: TenantUpdate,
    ) -> Result<Tenant, AdminError> {
        let change = TenantChange {
            name: update.name.map(|given| fields::some_text("name", given)).transpose()?,
            contact_email: fields::optional(update.contact_email, |given| {
                fields::email("contact_email", given)
            })?,
            trial_ends_at_ms: fields::optional(update.trial_ends_at, |given| {
                fields::time_ms("trial_ends_at", given)
            })?,
            billing_active: update.billing_active,
            rate_limit_rps: update.rate_limit_rps,
            plan: update.plan.map(|given| fields::plan("plan", given, &self.plans)).transpose()?,
        };
        let recorder = self.recorder(actor);
        let records = Records::told_by(move |before: Option<&Tenant>, after: &Tenant| {
            before.and_then(|before| changed(&recorder, before, after)).into_iter().collect()
        });
        let tenant = self.made(self.administration().update_tenant(id, change, records)).await?;
        tenant.ok_or(AdminError::NotFound)
    }
}

pub(super) fn created(recorder: &Recorder, new: &NewTenant) -> sealog_control::NewRecord {
    let metadata = json!({
        "name": new.name,
        "plan": new.plan,
        "billing_active": new.billing.billing_active,
        "trial_ends_at": new.billing.trial_ends_at_ms.map(iso_ms),
    });
    recorder.record(&actions::TENANT_CREATED, &resource(new.id), metadata)
}

fn changed(recorder: &Recorder, before: &Tenant, after: &Tenant) -> Option<sealog_control::NewRecord> {
    let mut metadata = Map::new();
    change(&mut metadata, "name", before.name.as_str(), after.name.as_str());
    change(&mut metadata, "plan", before.plan.as_str(), after.plan.as_str());
    let (old, new) = (before.billing, after.billing);
    let trial = |billing: Billing| billing.trial_ends_at_ms.map(iso_ms);
    change(&mut metadata, "trial_ends_at", trial(old), trial(new));
    change(&mut metadata, "billing_active", old.billing_active, new.billing_active);
    change(&mut metadata, "rate_limit_rps", before.rate_limit_rps, after.rate_limit_rps);
    // That it was changed, and not the address itself: events are kept for years and cannot be corrected.
    if before.contact_email != after.contact_email {
        let what = match (&before.contact_email, &after.contact_email) {
            (None, _) => "set",
            (_, None) => "removed",
            _ => "changed",
        };
        metadata.insert("contact_email".into(), what.into());
    }
    let metadata = (!metadata.is_empty()).then_some(Value::Object(metadata))?;
    Some(recorder.record(&actions::TENANT_CHANGED, &resource(after.id), metadata))
}

fn resource(id: TenantId) -> String {
    format!("tenant/{id}")
}
