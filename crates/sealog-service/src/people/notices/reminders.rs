//! Looks for what people have to be told because time has passed: keys, trials and auditors' access that end.
//!
//! Any number of nodes may look at once: each notice has a key that the outbox takes once, so nobody is told
//! twice. What a crash has forgotten is found again, since everything is looked for from [`LATE_MS`] before
//! now on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealog_control::{ApiKey, EndPage, EndPlace, Member, Tenant};
use sealog_core::id::TenantId;
use sealog_core::time::DAY_MS;
use sealog_store::StoreError;
use sealog_store::sync::lock;
use sealog_store::world::World;
use serde_json::{Value, json};

use crate::jobs::supervise::{caught, of_one_row};
use crate::people::notify::{
    AUDITOR_ENDING, KEY_EXPIRED, KEY_EXPIRING, Kind, MANAGERS, Notifier, TRIAL_ENDED, TRIAL_ENDING,
};
use sealog_control::Control;

/// For how long after it has happened something is still told.
const LATE_MS: u64 = 7 * DAY_MS;
/// Rows of one question, and questions of each kind in one pass. A pass goes on where the one before it
/// stopped.
const PAGE: usize = 100;
const PAGES_MAX: usize = 10;
/// What is known to have been told, so that it costs no look into the outbox.
const TOLD_MAX: usize = 10_000;

const KEY_DAYS: &[u64] = &[14, 7, 1];
const TRIAL_DAYS: &[u64] = &[7, 1];
const AUDITOR_DAYS: &[u64] = &[7, 1];

/// See the module.
pub struct Reminders {
    notifier: Notifier,
    control: Arc<Control>,
    world: Arc<dyn World>,
    every: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    told: HashSet<String>,
    /// Where the last pass stopped, for each kind.
    keys: Option<EndPlace>,
    trials: Option<EndPlace>,
    auditors: Option<EndPlace>,
}

/// What was found: whom to tell of what.
struct Due {
    kind: &'static Kind,
    tenant_id: TenantId,
    key: String,
    parameters: Value,
    /// Somebody who is told beside owners and admins.
    also: Option<Member>,
}

impl Reminders {
    pub fn new(control: &Arc<Control>, world: Arc<dyn World>, every: Duration) -> Reminders {
        let notifier = Notifier::new(control, Arc::clone(&world));
        Reminders { notifier, control: Arc::clone(control), world, every, state: Mutex::default() }
    }

    pub async fn watch(&self) {
        loop {
            if let Err(error) = self.pass().await {
                let retry_in_s = self.every.as_secs();
                tracing::warn!(%error, retry_in_s, "failed to poll for due notices; retrying");
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Looks once, at no more than a thousand of each kind.
    pub async fn pass(&self) -> Result<(), StoreError> {
        let now_ms = self.world.now_ms();
        self.look_at_keys(now_ms).await?;
        self.look_at_trials(now_ms).await?;
        self.look_at_auditors(now_ms).await
    }

    async fn look_at_keys(&self, now_ms: u64) -> Result<(), StoreError> {
        let mut after = lock(&self.state).keys.take().unwrap_or(begin(now_ms));
        for _ in 0..PAGES_MAX {
            let page = EndPage { after, until_ms: until(now_ms, KEY_DAYS), limit: PAGE };
            let keys = self.control.keys_ending(page).await?;
            for (tenant_id, key, project) in &keys {
                self.tell_or_log(of_key(*tenant_id, key, project, now_ms)).await?;
            }
            // Rows that cannot be read are left out, so a short page is not the last one.
            let Some((_, last, _)) = keys.last() else { return Ok(()) };
            after = EndPlace { at_ms: last.expires_at_ms.unwrap_or(0), id: last.id.0 };
        }
        lock(&self.state).keys = Some(after);
        Ok(())
    }

    async fn look_at_trials(&self, now_ms: u64) -> Result<(), StoreError> {
        let mut after = lock(&self.state).trials.take().unwrap_or(begin(now_ms));
        for _ in 0..PAGES_MAX {
            let page = EndPage { after, until_ms: until(now_ms, TRIAL_DAYS), limit: PAGE };
            let tenants = self.control.trials_ending(page).await?;
            for tenant in &tenants {
                self.tell_or_log(of_trial(tenant, now_ms)).await?;
            }
            let Some(last) = tenants.last() else { return Ok(()) };
            after = EndPlace { at_ms: last.billing.trial_ends_at_ms.unwrap_or(0), id: last.id.0 };
        }
        lock(&self.state).trials = Some(after);
        Ok(())
    }

    async fn look_at_auditors(&self, now_ms: u64) -> Result<(), StoreError> {
        let start = EndPlace::before(now_ms.saturating_add(1));
        let mut after =
            lock(&self.state).auditors.take().filter(|after| after.at_ms > now_ms).unwrap_or(start);
        for _ in 0..PAGES_MAX {
            let page = EndPage { after, until_ms: until(now_ms, AUDITOR_DAYS), limit: PAGE };
            let auditors = self.control.auditors_ending(page).await?;
            for auditor in &auditors {
                self.tell_or_log(of_auditor(auditor, now_ms)).await?;
            }
            let Some(last) = auditors.last() else { return Ok(()) };
            let place = EndPlace { at_ms: last.membership.ends_at_ms.unwrap_or(0), id: last.person.id.0 };
            // Those at the place itself come again.
            if place == after && auditors.len() < PAGE {
                return Ok(());
            }
            after = place;
        }
        lock(&self.state).auditors = Some(after);
        Ok(())
    }

    /// One that cannot be told keeps nobody else from being told.
    async fn tell_or_log(&self, due: Option<Due>) -> Result<(), StoreError> {
        let about = due.as_ref().map(|due| (due.tenant_id, due.key.clone()));
        let told = caught(self.tell(due)).await;
        if let (Some(cause), Some((tenant, key))) = (of_one_row(told)?, about) {
            tracing::error!(%tenant, key, cause, "failed to queue a due notice; continuing with the others");
        }
        Ok(())
    }

    async fn tell(&self, due: Option<Due>) -> Result<(), StoreError> {
        let Some(Due { kind, tenant_id, key, parameters, also }) = due else { return Ok(()) };
        let known = format!("{}/{key}", kind.name);
        if lock(&self.state).told.contains(&known) {
            return Ok(());
        }
        if let Some(member) = also {
            self.notifier.tell(kind, tenant_id, &[member.person], &key, parameters.clone()).await?;
        }
        self.notifier.tell_roles(kind, MANAGERS, tenant_id, &key, parameters).await?;
        let told = &mut lock(&self.state).told;
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        told.insert(known);
        Ok(())
    }
}

fn begin(now_ms: u64) -> EndPlace {
    EndPlace::before(now_ms.saturating_sub(LATE_MS))
}

fn until(now_ms: u64, days: &[u64]) -> u64 {
    now_ms.saturating_add(days.iter().max().unwrap_or(&0) * DAY_MS)
}

/// Which reminder is due of something that began and ends: the fewest days that what is left fits into; 0
/// once it has ended. One that would have been due before the beginning is none.
fn due(days: &[u64], began_ms: u64, end_ms: u64, now_ms: u64) -> Option<u64> {
    let Some(left_ms) = end_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0) else { return Some(0) };
    let fits = days.iter().copied().filter(|days| left_ms <= days * DAY_MS).min()?;
    (end_ms.saturating_sub(began_ms) >= fits * DAY_MS).then_some(fits)
}

fn of_key(tenant_id: TenantId, key: &ApiKey, project: &str, now_ms: u64) -> Option<Due> {
    let end_ms = key.expires_at_ms?;
    let days = due(KEY_DAYS, key.created_at_ms, end_ms, now_ms)?;
    let kind = if days == 0 { &KEY_EXPIRED } else { &KEY_EXPIRING };
    let parameters = json!({
        "tenant_id": tenant_id.to_string(),
        "name": key.name,
        "prefix": key.prefix,
        "project": project,
        "mode": key.mode.as_str(),
        "end_ms": end_ms,
        "days": days,
    });
    // With the end: a key that was given another one is told of anew.
    Some(Due { kind, tenant_id, key: format!("{}/{end_ms}/{days}", key.id.0), parameters, also: None })
}

fn of_trial(tenant: &Tenant, now_ms: u64) -> Option<Due> {
    let end_ms = tenant.billing.trial_ends_at_ms?;
    let days = due(TRIAL_DAYS, tenant.created_at_ms, end_ms, now_ms)?;
    let kind = if days == 0 { &TRIAL_ENDED } else { &TRIAL_ENDING };
    let parameters = json!({ "tenant_id": tenant.id.to_string(), "end_ms": end_ms, "days": days });
    let key = format!("{}/{end_ms}/{days}", tenant.id);
    Some(Due { kind, tenant_id: tenant.id, key, parameters, also: None })
}

fn of_auditor(auditor: &Member, now_ms: u64) -> Option<Due> {
    let (membership, person) = (&auditor.membership, &auditor.person);
    let end_ms = membership.ends_at_ms?;
    let days = due(AUDITOR_DAYS, membership.created_at_ms, end_ms, now_ms).filter(|days| *days > 0)?;
    let parameters = json!({ "email": person.email, "end_ms": end_ms, "days": days });
    let key = format!("{}/{}/{end_ms}/{days}", membership.tenant_id, person.id.0);
    let (kind, tenant_id) = (&AUDITOR_ENDING, membership.tenant_id);
    Some(Due { kind, tenant_id, key, parameters, also: Some(auditor.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_is_due_when_what_is_left_fits_into_its_days() {
        let end = 100 * DAY_MS;
        let at = |left_ms: u64| due(KEY_DAYS, 0, end, end - left_ms);
        assert_eq!((at(14 * DAY_MS + 1), at(14 * DAY_MS), at(7 * DAY_MS + 1)), (None, Some(14), Some(14)));
        assert_eq!((at(7 * DAY_MS), at(DAY_MS + 1), at(DAY_MS), at(1)), (Some(7), Some(7), Some(1), Some(1)));
        assert_eq!((at(0), due(KEY_DAYS, 0, end, end + 5)), (Some(0), Some(0)));
    }

    #[test]
    fn what_was_made_for_a_few_days_has_no_reminder_that_is_older_than_it() {
        let end = 10 * DAY_MS;
        let at = |now_ms| due(KEY_DAYS, 0, end, now_ms);
        assert_eq!((at(0), at(3 * DAY_MS - 1), at(3 * DAY_MS)), (None, None, Some(7)));
        assert_eq!(due(KEY_DAYS, end - DAY_MS, end, end - DAY_MS), Some(1));
        assert_eq!(due(KEY_DAYS, end - DAY_MS + 1, end, end - 1), None);
        assert_eq!(due(KEY_DAYS, end - 5, end, end), Some(0));
    }
}
