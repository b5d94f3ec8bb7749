//! What people do to a case. Who may is decided by those who ask.

use std::sync::Arc;

use sealog_control::{
    Case, CaseEntry, CaseEvent, CaseEvents, CaseId, CaseSaved, CaseScope, CaseState, CaseWrite, Identifier,
    IdentityCheck, IdentityMethod, IdentityOutcome, NewNotice, PersonId, Project,
};
use sealog_core::id::TenantId;
use sealog_store::StoreError;
use sealog_store::world::World;
use serde_json::json;

use super::clock::Calendar;
use super::dates::{self, CaseDates, dates_of};
use super::fields::{self, IdentifierInput, IntakeInput, ScopeInput, unknown, word};
use super::reminders;
use super::steps::{CaseError, Move, advance};
use super::told::{self, Told};
use sealog_control::Control;
use sealog_service::people::admin::FieldError;
use sealog_service::people::organisation;
use sealog_service::records::system_chain::{Actor, Recorder, Wake, actions};

/// Of the history, most that one answer has.
pub const ENTRIES_MAX: usize = 1000;
const EVENTS_MAX: usize = 1000;

/// Cases, for those who ask on behalf of people.
#[derive(Clone)]
pub struct CaseDesk {
    control: Arc<Control>,
    world: Arc<dyn World>,
    /// Of the drain of this process.
    records: Wake,
    /// Of whoever brings events into the projects of a case.
    forward: Wake,
}

/// A case as somebody has seen it, and who that is.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub tenant_id: TenantId,
    pub id: CaseId,
    pub revision: u64,
    pub person_id: PersonId,
}

impl CaseDesk {
    pub fn new(control: &Arc<Control>, world: Arc<dyn World>, records: Wake, forward: Wake) -> CaseDesk {
        CaseDesk { control: Arc::clone(control), world, records, forward }
    }

    pub async fn calendar(&self, tenant_id: TenantId) -> Result<Calendar, StoreError> {
        dates::calendar(&self.control, tenant_id).await
    }

    pub async fn dates(&self, case: &Case) -> Result<CaseDates, StoreError> {
        Ok(dates_of(case, &self.calendar(case.tenant_id).await?, self.world.now_ms()))
    }

    pub async fn entries(&self, case: &Case) -> Result<Vec<CaseEntry>, StoreError> {
        self.control.case_entries(case.tenant_id, case.id, 0, ENTRIES_MAX).await
    }

    /// Those that the case leaves in its projects.
    pub async fn events(&self, case: &Case) -> Result<Vec<CaseEvent>, StoreError> {
        self.control.events_of_case(case.tenant_id, case.id, EVENTS_MAX).await
    }

    pub async fn open(
        &self,
        person_id: PersonId,
        tenant_id: TenantId,
        intake: &IntakeInput,
        scope: &ScopeInput,
        note: &str,
    ) -> Result<Case, CaseError> {
        let recorder = self.recorder(person_id);
        let now_ms = recorder.now_ms();
        let today = self.calendar(tenant_id).await?.day_at(now_ms);
        let (intake, assignee) = intake.read(today)?;
        let scope = scope.read()?;
        let projects = self.projects(tenant_id, &scope).await?;
        let note = fields::note(note)?;
        let case = Case {
            id: CaseId(recorder.random_id()),
            tenant_id,
            number: 0,
            revision: 1,
            state: CaseState::Received,
            state_before_pause: None,
            intake,
            assignee,
            scope,
            identifiers: Vec::new(),
            identity: None,
            pauses: Vec::new(),
            extension: None,
            confirmed_at_ms: None,
            answer: None,
            due_day: 0,
            created_by: person_id,
            created_at_ms: now_ms,
            changed_at_ms: now_ms,
            closed_at_ms: None,
        };
        let told = Told { recorder: &recorder, person_id, note, what: told::OPENED };
        let (case, with) = self.written(told, None, case, &projects).await?;
        let case = self.control.create_case(case, with).await;
        self.wake();
        Ok(case?)
    }

    /// What came in, and who works on it.
    pub async fn set_intake(&self, seen: Seen, input: &IntakeInput, note: &str) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        let today = self.calendar(seen.tenant_id).await?.day_at(self.world.now_ms());
        let (intake, assignee) = input.read(today)?;
        let case = Case { intake, assignee, ..before.clone() };
        self.save(seen, &before, case, note, told::CHANGED).await
    }

    /// Where to look.
    pub async fn set_scope(&self, seen: Seen, input: &ScopeInput, note: &str) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        let case = Case { scope: input.read()?, ..before.clone() };
        self.save(seen, &before, case, note, told::CHANGED).await
    }

    pub async fn add_identifier(&self, seen: Seen, input: &IdentifierInput) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        let identifier = input.read()?;
        let is_known = |known: &Identifier| {
            (known.kind, &known.path, &known.value) == (identifier.kind, &identifier.path, &identifier.value)
        };
        if before.identifiers.iter().any(is_known) {
            return Err(FieldError::new("value", "is already an identifier of this case").into());
        }
        if before.identifiers.len() >= fields::IDENTIFIERS_MAX {
            let problem = format!("exceeds the limit of {} identifiers", fields::IDENTIFIERS_MAX);
            return Err(FieldError::new("value", problem).into());
        }
        let mut case = before.clone();
        case.identifiers.push(identifier);
        self.save(seen, &before, case, "An identifier was added.", told::CHANGED).await
    }

    /// By its place in the list.
    pub async fn remove_identifier(&self, seen: Seen, at: usize) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        let mut case = before.clone();
        if at >= case.identifiers.len() {
            return Err(unknown("identifier").into());
        }
        case.identifiers.remove(at);
        self.save(seen, &before, case, "An identifier was removed.", told::CHANGED).await
    }

    /// How somebody showed who they are, and whether that was enough.
    pub async fn check_identity(
        &self,
        seen: Seen,
        method: &str,
        outcome: &str,
        note: &str,
    ) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        if before.answer.is_some() || before.state == CaseState::Approved {
            let problem =
                "The answer is approved with the current identity check. Move the case back to review first.";
            return Err(CaseError::Refused(problem.into()));
        }
        let identity = IdentityCheck {
            method: word("method", method, IdentityMethod::parse)?,
            outcome: word("outcome", outcome, IdentityOutcome::parse)?,
            person_id: seen.person_id,
            at_ms: self.world.now_ms(),
        };
        let case = Case { identity: Some(identity), ..before.clone() };
        self.save(seen, &before, case, note, told::IDENTITY).await
    }

    /// The requester was told that the request has arrived.
    pub async fn confirm_receipt(&self, seen: Seen, note: &str) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        if before.confirmed_at_ms.is_some() {
            return Err(CaseError::Refused("Receipt is already confirmed.".into()));
        }
        let case = Case { confirmed_at_ms: Some(self.world.now_ms()), ..before.clone() };
        self.save(seen, &before, case, note, told::CHANGED).await
    }

    /// From one state to another, if the table has that and the case has what it needs.
    pub async fn step(&self, seen: Seen, step: &Move) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        let calendar = self.calendar(seen.tenant_id).await?;
        let to = word("to", &step.to, CaseState::parse)?;
        let mut case = before.clone();
        advance(&mut case, to, step, &calendar, self.world.now_ms())?;
        self.save(seen, &before, case, &step.note, told::MOVED).await
    }

    /// How many decisions keep a person from approving the case: their own, where the organisation asks for
    /// two people.
    pub async fn barred_by(&self, case: &Case, person_id: PersonId) -> Result<u64, StoreError> {
        match self.needs_two(case.tenant_id).await? {
            true => self.control.decisions_of(case.id, person_id).await,
            false => Ok(0),
        }
    }

    async fn needs_two(&self, tenant_id: TenantId) -> Result<bool, StoreError> {
        let setting = self.control.setting(tenant_id, organisation::TWO_PEOPLE.into()).await?;
        Ok(setting.as_deref() == Some("true"))
    }

    /// Something else was done to the case by other parts: it gets a new revision, an entry and a record.
    pub async fn note(&self, seen: Seen, note: &str) -> Result<Case, CaseError> {
        let before = self.find(seen).await?;
        self.save(seen, &before, before.clone(), note, told::CHANGED).await
    }

    /// One in each line; the days on which nobody works besides Saturdays and Sundays.
    pub async fn set_holidays(
        &self,
        person_id: PersonId,
        tenant_id: TenantId,
        text: &str,
    ) -> Result<(), CaseError> {
        let holidays = dates::parse_holidays(text)?;
        let recorder = self.recorder(person_id);
        let metadata = json!({ "days": holidays.len() });
        let resource = format!("tenant/{tenant_id}");
        let record = recorder.record(&actions::CASE_HOLIDAYS_CHANGED, &resource, metadata);
        let days: Vec<String> = holidays.iter().map(ToString::to_string).collect();
        let value = (!days.is_empty()).then(|| json!(days).to_string());
        let set = self.control.set_setting(tenant_id, dates::HOLIDAYS.into(), value, vec![record]).await;
        self.wake();
        if set? { Ok(()) } else { Err(CaseError::Missing) }
    }

    fn recorder(&self, person_id: PersonId) -> Recorder {
        Recorder::new(Actor::Person(person_id), Arc::clone(&self.world))
    }

    fn wake(&self) {
        self.records.wake();
        self.forward.wake();
    }

    /// The case, if it is as it was seen and can be changed.
    async fn find(&self, seen: Seen) -> Result<Case, CaseError> {
        let case = self.control.case(seen.tenant_id, seen.id).await?.ok_or(CaseError::Missing)?;
        if case.revision != seen.revision {
            return Err(self.stale(case, seen.revision).await?);
        }
        if case.state == CaseState::Closed {
            return Err(CaseError::Refused("The case is closed and cannot be changed.".into()));
        }
        Ok(case)
    }

    /// A write over the revision that was seen, or nothing at all.
    async fn save(
        &self,
        seen: Seen,
        before: &Case,
        mut case: Case,
        note: &str,
        what: &'static str,
    ) -> Result<Case, CaseError> {
        let Seen { tenant_id, revision, person_id, .. } = seen;
        let note = fields::note(note)?;
        let projects = self.projects(tenant_id, &case.scope).await?;
        let recorder = self.recorder(person_id);
        case.changed_at_ms = recorder.now_ms();
        let told = Told { recorder: &recorder, person_id, note, what };
        // As it will be: whoever writes it finds the revision that was seen.
        case.revision = revision + 1;
        let (mut case, mut with) = self.written(told, Some(before), case, &projects).await?;
        case.revision = revision;
        let is_approval = case.state == CaseState::Approved && before.state != CaseState::Approved;
        if is_approval && self.needs_two(tenant_id).await? {
            with.not_decided_by = Some(person_id);
        }
        let saved = self.control.save_case(case, with).await;
        self.wake();
        match saved? {
            CaseSaved::Done(case) => Ok(*case),
            CaseSaved::Stale(case) => Err(self.stale(*case, revision).await?),
            CaseSaved::Reviewed(decisions) => Err(CaseError::Refused(format!(
                "Your organisation requires two people: you decided about {decisions} of the events, so another person must approve the case."
            ))),
            CaseSaved::Missing => Err(CaseError::Missing),
        }
    }

    async fn stale(&self, case: Case, seen: u64) -> Result<CaseError, CaseError> {
        let others = self.control.case_entries(case.tenant_id, case.id, seen, ENTRIES_MAX).await?;
        Ok(CaseError::Stale { case: Box::new(case), others })
    }

    /// All that goes with a write.
    async fn written(
        &self,
        told: Told<'_>,
        before: Option<&Case>,
        mut case: Case,
        projects: &[Project],
    ) -> Result<(Case, CaseWrite), CaseError> {
        let (recorder, person_id) = (told.recorder.clone(), told.person_id);
        let dates = self.dates(&case).await?;
        case.due_day = dates::to_number(dates.due.date);
        let events = told::events(&recorder, person_id, before, &case, &dates, projects);
        let notices = self.assigned(person_id, before, &case, &dates).await?;
        let (entry, record) = told.entry(before, &case);
        Ok((case, CaseWrite { entry, records: vec![record], events, notices, not_decided_by: None }))
    }

    /// Somebody who was given a case by somebody else is told.
    async fn assigned(
        &self,
        person_id: PersonId,
        before: Option<&Case>,
        case: &Case,
        dates: &CaseDates,
    ) -> Result<Vec<NewNotice>, CaseError> {
        let Some(assignee) =
            case.assignee.filter(|_| before.and_then(|before| before.assignee) != case.assignee)
        else {
            return Ok(Vec::new());
        };
        let member = self.control.member(case.tenant_id, assignee).await?;
        let now_ms = self.world.now_ms();
        let member = member.filter(|member| {
            !member.membership.has_ended(now_ms) && member.membership.role.rules().takes_cases
        });
        let Some(member) = member else { return Err(unknown("assignee").into()) };
        let muted = self
            .control
            .muted_by(case.tenant_id, sealog_service::people::notices::CASE_ASSIGNED.into())
            .await?;
        if assignee == person_id || muted.contains(&assignee) {
            return Ok(Vec::new());
        }
        let tenant = self.control.tenant(case.tenant_id).await?.ok_or(CaseError::Missing)?;
        Ok(reminders::assigned(&tenant, &member.person, case, dates, now_ms).into_iter().collect())
    }

    /// Those of the scope, which are all of this tenant.
    async fn projects(&self, tenant_id: TenantId, scope: &CaseScope) -> Result<Vec<Project>, CaseError> {
        let own = self.control.projects_named(tenant_id, scope.projects.clone()).await?;
        if own.len() == scope.projects.len() { Ok(own) } else { Err(unknown("project").into()) }
    }
}
