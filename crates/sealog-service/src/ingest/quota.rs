//! Quota notices: at 80 % and at 100 % of a plan's events of a month, one mail each. The quota itself rejects
//! nothing. Spec 6.
//!
//! No request waits for any of this. t0: events are appended, and the store counts them. t1: the tenant is
//! noted as changed, in memory. t2: within about a second the count is compared with the plan, and a mail is
//! put into the outbox under a key that it can have only once: tenant, month and threshold. A crash before t2
//! forgets the note and not the count, so every start looks at all tenants again; one after t2 finds the key
//! taken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::{Control, KeyAccess, ListPage, NewNotice, Tenant};
use sealog_core::id::TenantId;
use sealog_core::plan::{Plan, QuotaNotice};
use sealog_core::time::Month;
use sealog_store::sync::lock;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};

use crate::people::contact::Text;
use crate::people::contact::address_of;

/// For how long after the end of a month its last events are still looked at.
const LATE_MS: u64 = 60 * 60 * 1000;
const PAGE: usize = 100;

/// Tenants that may have more events than when they were last looked at.
#[derive(Debug, Default)]
pub struct Changed(Mutex<HashSet<TenantId>>);

impl Changed {
    /// Notes the tenant when it is dropped, which is when the append has ended: answered, failed with an
    /// unknown outcome, or left alone by a client that has gone.
    pub fn after(&self, tenant_id: TenantId) -> Note<'_> {
        Note { changed: self, tenant_id }
    }

    fn add(&self, tenant_id: TenantId) {
        lock(&self.0).insert(tenant_id);
    }

    fn take(&self) -> HashSet<TenantId> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// See [`Changed::after`].
#[derive(Debug)]
pub struct Note<'a> {
    changed: &'a Changed,
    tenant_id: TenantId,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        self.changed.add(self.tenant_id);
    }
}

/// What the comparison of usage with quotas goes by.
pub struct Quotas {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    pub plans: Vec<Plan>,
    /// Tenants that the write path has noted.
    pub changed: Arc<Changed>,
    pub every: Duration,
}

impl Quotas {
    /// Looks at all tenants once, then at those that have changed.
    pub async fn watch(&self) {
        let mut watch = Watch::default();
        let mut all = Err(StoreError::Closing);
        loop {
            if all.is_err() {
                all = self.note_all().await;
            }
            let mut failed = all.clone().err();
            for tenant_id in self.changed.take() {
                if let Err(error) = watch.look(self, tenant_id).await {
                    self.changed.add(tenant_id);
                    failed = Some(error);
                }
            }
            let pause = match failed {
                None => self.every,
                Some(error) => {
                    let pause = self.every.saturating_mul(60);
                    tracing::warn!(%error, retry_in_s = pause.as_secs(), "quota check failed; retrying");
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn note_all(&self) -> Result<(), StoreError> {
        let mut after = None;
        let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            let page = self.control.tenants(ListPage { after, limit: PAGE }).await?;
            for tenant in &page {
                self.changed.add(tenant.id);
                if !self.plans.iter().any(|plan| plan.name == tenant.plan) {
                    *unknown.entry(tenant.plan.clone()).or_default() += 1;
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.id.0),
                _ => break,
            }
        }
        for (plan, tenants) in unknown {
            tracing::error!(
                plan,
                tenants,
                "tenants have a plan that is not in the settings; they get no quota, the default rate and their enabled frameworks. Add the plan to [plans], or give them another"
            );
        }
        Ok(())
    }
}

/// What is remembered between looks, so that a busy tenant costs a look at its count and no more.
#[derive(Default)]
struct Watch {
    known: HashMap<(TenantId, Month), Known>,
    /// Those without an address, of whom the log knows.
    unaddressed: HashSet<(TenantId, Month)>,
}

struct Known {
    /// Of the tenant's data: its plan may have been changed since.
    version: u64,
    plan: Option<Plan>,
    /// Up to which count notices are in the outbox.
    used: u64,
}

impl Watch {
    async fn look(&mut self, quotas: &Quotas, tenant_id: TenantId) -> Result<(), StoreError> {
        let now_ms = quotas.world.now_ms();
        // The event that reaches a threshold may be the last of its month.
        let (month, before) = (Month::of(now_ms), Month::of(now_ms.saturating_sub(LATE_MS)));
        self.known.retain(|(_, known), _| *known >= before);
        self.unaddressed.retain(|(_, known)| *known >= before);
        if before != month {
            self.look_at_month(quotas, tenant_id, before).await?;
        }
        self.look_at_month(quotas, tenant_id, month).await
    }

    async fn look_at_month(
        &mut self,
        quotas: &Quotas,
        tenant_id: TenantId,
        month: Month,
    ) -> Result<(), StoreError> {
        let used = quotas.store.usage(tenant_id, month).await?;
        if used == 0 {
            return Ok(());
        }
        // Read before the plan is: what is remembered under it is at least as new.
        let version = quotas.control.version_of(tenant_id);
        if let Some(known) = self.known.get_mut(&(tenant_id, month))
            && known.version == version
            && known.plan.as_ref().is_none_or(|plan| plan.notices_due(known.used, used).is_empty())
        {
            known.used = used;
            return Ok(());
        }
        let Some(tenant) = quotas.control.tenant(tenant_id).await? else { return Ok(()) };
        let plan = quotas.plans.iter().find(|plan| plan.name == tenant.plan).cloned();
        // From nothing on: the outbox knows which of them it has had.
        let due = plan.as_ref().map_or_else(Vec::new, |plan| plan.notices_due(0, used));
        if let Some(events_per_month) = plan.as_ref().and_then(|plan| plan.events_per_month)
            && !due.is_empty()
        {
            let Some((to, person_id)) = address_of(&quotas.control, &tenant, quotas.world.now_ms()).await?
            else {
                if self.unaddressed.insert((tenant_id, month)) {
                    tracing::warn!(tenant_id = %tenant_id.0, %month, "cannot send a quota notice; the tenant has neither a contact_email nor an owner");
                }
                return Ok(());
            };
            for notice in due {
                let percent = notice.percent();
                let quota = Quota { tenant: &tenant, month, used, events_per_month, percent };
                let notice = NewNotice {
                    key: notice_key(tenant_id, month, percent),
                    person_id,
                    tenant_id: Some(tenant_id),
                    to: to.clone(),
                    template: TEMPLATE.into(),
                    parameters: quota.parameters().to_string(),
                    created_at_ms: quotas.world.now_ms(),
                };
                if quotas.control.enqueue_notice(notice).await? {
                    tracing::info!(tenant_id = %tenant_id.0, %month, percent, "queued a quota notice in the outbox");
                }
            }
        }
        self.known.insert((tenant_id, month), Known { version, plan, used });
        Ok(())
    }
}

/// What a notice is about.
struct Quota<'a> {
    tenant: &'a Tenant,
    month: Month,
    used: u64,
    events_per_month: u64,
    percent: u8,
}

/// The key of a notice in the outbox: there is one for each.
pub fn notice_key(tenant_id: TenantId, month: Month, percent: u8) -> String {
    format!("quota/{tenant_id}/{month}/{percent}")
}

pub(crate) const TEMPLATE: &str = "quota";

impl Quota<'_> {
    fn parameters(&self) -> Value {
        let Quota { tenant, month, used, events_per_month, percent } = self;
        json!({
            "name": tenant.name,
            "plan": tenant.plan,
            "month": month.0,
            "used": used,
            "events_per_month": events_per_month,
            "percent": percent,
        })
    }
}

/// The notice as it is mailed, from the parameters that it was put into the outbox with.
pub(crate) fn text(parameters: &Value, app_url: &str) -> Option<Text> {
    let (name, plan) = (parameters["name"].as_str()?, parameters["plan"].as_str()?);
    let month = Month(parameters["month"].as_u64()?.try_into().ok()?);
    let (used, events_per_month) = (parameters["used"].as_u64()?, parameters["events_per_month"].as_u64()?);
    let percent = parameters["percent"].as_u64()?;
    let notice = [QuotaNotice::Percent80, QuotaNotice::Percent100]
        .into_iter()
        .find(|notice| u64::from(notice.percent()) == percent)?;
    // A name is one line, whatever was put into it.
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let percent = u128::from(used) * 100 / u128::from(events_per_month.max(1));
    let (subject, next) = match notice {
        QuotaNotice::Percent80 => (
            format!("{name}: 80 % of the audit events of {month} are used"),
            "You get one more notice this month, at 100 %.",
        ),
        QuotaNotice::Percent100 => {
            (format!("{name}: all audit events of {month} are used"), "This is the last notice this month.")
        }
    };
    let body = format!(
        "The audit event log of {name} has used {percent} % of its monthly events.

    Organisation  {name}
    Plan          {plan}
    Month         {month} (UTC)
    Live events   {used} of {quota} ({percent} %)

Events are never rejected for exceeding the quota. They are accepted and sealed as before.
{next} The count restarts on {following}-01 at 00:00 UTC.

Dashboard: {app_url}
",
        used = grouped(used),
        quota = grouped(events_per_month),
        following = Month(month.0 + 1),
    );
    Some(Text { subject, body })
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
