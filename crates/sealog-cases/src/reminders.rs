//! Mails about cases: to whoever was given one, and 7, 3 and 1 days before the date and when it is over. Each
//! is sent once: its key in the outbox has the case, the date and the person. A mail has the number of a case
//! and its dates, and nothing about the data subject.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use sealog_control::{Case, Control, ListPage, NewNotice, Person, Role, Tenant};
use sealog_core::id::{TenantId, Uuid};
use sealog_store::StoreError;
use sealog_store::world::World;
use serde_json::{Value, json};

use super::clock::Calendar;
use super::dates::{self, CaseDates, dates_of, long_day};
use super::words::{Named, case_name};
use sealog_service::jobs::supervise::{caught, of_one_row};
use sealog_service::people::contact::is_address;
use sealog_service::people::notices::CASE_ASSIGNED;
use sealog_service::people::notify::{self, Notifier};

/// Cases of one pass; the next goes on behind them.
pub const PASS_MAX: usize = 500;
const PAGE: usize = 100;
/// Of a case that is nobody's: as many privacy officers, or owners.
const RECIPIENTS_MAX: usize = 10;
/// Members that are looked at for them.
const MEMBERS_MAX: usize = 1000;

pub struct CaseReminders {
    pub control: Arc<Control>,
    pub notifier: Notifier,
    pub world: Arc<dyn World>,
    pub every: Duration,
}

/// What is read once for all cases of a tenant, in one pass.
struct Office {
    tenant: Tenant,
    calendar: Calendar,
    /// For cases that are nobody's.
    officers: Vec<Person>,
}

impl CaseReminders {
    /// Goes on until it is dropped. What was not reminded of is found again after a restart.
    pub async fn watch(&self) {
        let mut after = None;
        loop {
            match self.pass(after).await {
                Ok(Some(next)) => {
                    after = Some(next);
                    continue;
                }
                Ok(None) => after = None,
                Err(error) => {
                    tracing::warn!(%error, retry_in_s = self.every.as_secs(), "failed to find due cases; retrying");
                }
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Looks at cases behind one, at most [`PASS_MAX`], and puts the reminders that are due into the outbox.
    /// The case to go on behind, if there are more.
    pub async fn pass(&self, mut after: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let mut offices: HashMap<TenantId, Office> = HashMap::new();
        for _ in 0..PASS_MAX / PAGE {
            let cases = self.control.unanswered_cases(ListPage { after, limit: PAGE }).await?;
            for case in &cases {
                // A case that cannot be looked at keeps no other tenant from its reminders: the dates are
                // those of laws.
                let looked = caught(self.look_at(case, &mut offices)).await;
                if let Some(cause) = of_one_row(looked)? {
                    tracing::error!(case = %case.id.0, tenant = %case.tenant_id, cause, "failed to check a case for reminders; it gets none, other cases continue");
                }
            }
            // Rows that cannot be read are left out, so a short page is not the last one.
            match cases.last() {
                Some(last) => after = Some(last.id.0),
                None => return Ok(None),
            }
        }
        Ok(after)
    }

    async fn look_at(&self, case: &Case, offices: &mut HashMap<TenantId, Office>) -> Result<(), StoreError> {
        let office = match offices.entry(case.tenant_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match self.office(case.tenant_id).await? {
                Some(office) => place.insert(office),
                None => return Ok(()),
            },
        };
        let now_ms = self.world.now_ms();
        let dates = dates_of(case, &office.calendar, now_ms);
        let due_day = dates::to_number(dates.due.date);
        if due_day != case.due_day {
            // It moves while the clock stands still, and with the calendar.
            self.control.note_case_due(case.id, case.revision, due_day).await?;
        }
        let Some(mark) = mark(&dates) else { return Ok(()) };
        // Another date is another reminder: one that was extended is due again.
        let key = format!("{}/{}/{mark}", case.id.0, dates.due.date);
        let recipients = self.recipients(case, office).await?;
        let parameters = parameters(&office.tenant, case, &dates);
        self.notifier.tell(&notify::CASE_DUE, case.tenant_id, &recipients, &key, parameters).await.map(drop)
    }

    async fn office(&self, tenant_id: TenantId) -> Result<Option<Office>, StoreError> {
        let Some(tenant) = self.control.tenant(tenant_id).await? else { return Ok(None) };
        let calendar = dates::calendar(&self.control, tenant_id).await?;
        let page = ListPage { after: None, limit: MEMBERS_MAX };
        let members = match self.control.members(tenant_id, page).await {
            Ok(members) => members,
            // Whoever has a case of their own is reminded of it all the same.
            Err(error) => {
                if let Some(cause) = of_one_row(Ok(Err(error)))? {
                    tracing::error!(tenant = %tenant_id, cause, "failed to read the members of an organisation; its unassigned cases get no reminders");
                }
                Vec::new()
            }
        };
        let now_ms = self.world.now_ms();
        let of_role = |role: Role| {
            let known = members
                .iter()
                .filter(move |member| member.membership.role == role && !member.membership.has_ended(now_ms));
            known.map(|member| member.person.clone()).take(RECIPIENTS_MAX).collect::<Vec<_>>()
        };
        let officers = of_role(Role::PrivacyOfficer);
        let officers = if officers.is_empty() { of_role(Role::Owner) } else { officers };
        Ok(Some(Office { tenant, calendar, officers }))
    }

    /// Whoever works on it; if that is nobody any more, those whose work it would be.
    async fn recipients(&self, case: &Case, office: &Office) -> Result<Vec<Person>, StoreError> {
        let now_ms = self.world.now_ms();
        let assignee = match case.assignee {
            Some(id) => self.control.member(case.tenant_id, id).await?,
            None => None,
        };
        let assignee = assignee.filter(|member| !member.membership.has_ended(now_ms));
        Ok(assignee.map_or_else(|| office.officers.clone(), |member| vec![member.person]))
    }
}

/// The reminder that a case is due for, as it stands in keys: days before the date, or that it is over. None
/// while the clock stands still.
fn mark(dates: &CaseDates) -> Option<&'static str> {
    if dates.due.is_paused {
        return None;
    }
    match dates.days_left {
        ..0 => Some("over"),
        0..=1 => Some("1"),
        2..=3 => Some("3"),
        4..=7 => Some("7"),
        _ => None,
    }
}

fn parameters(tenant: &Tenant, case: &Case, dates: &CaseDates) -> Value {
    json!({
        "organisation": tenant.name,
        "tenant_id": tenant.id.to_string(),
        "case_id": case.id.0.to_string(),
        // Given when a case is written for the first time.
        "case": if case.number == 0 { String::new() } else { case_name(case) },
        "regime": case.intake.regime.name(),
        "type": case.intake.request_type.name(),
        "state": case.state.name(),
        "due": long_day(dates.due.date),
        "days_left": dates.days_left,
    })
}

/// To whoever was given a case. Kept with the step that did it.
pub(super) fn assigned(
    tenant: &Tenant,
    to: &Person,
    case: &Case,
    dates: &CaseDates,
    now_ms: u64,
) -> Option<NewNotice> {
    is_address(&to.email).then(|| NewNotice {
        key: format!("{CASE_ASSIGNED}/{}/{}/{}", case.id.0, case.revision, to.id.0),
        tenant_id: Some(tenant.id),
        person_id: Some(to.id),
        to: to.email.clone(),
        template: CASE_ASSIGNED.into(),
        parameters: parameters(tenant, case, dates).to_string(),
        created_at_ms: now_ms,
    })
}
