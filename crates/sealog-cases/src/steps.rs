//! A step of a case: what it needs, and what it does to the case.

use sealog_control::{
    Case, CaseAnswer, CaseChannel, CaseEntry, CaseExtension, CaseOutcome, CasePause, CaseState,
    ExtensionReason, RefusalGround,
};
use sealog_store::StoreError;

use super::clock::{Calendar, days_left};
use super::dates::{dates_of, day_of, long_day, start_ms};
use super::fields::{self, word};
use super::states::{self, Needs};
use sealog_service::people::admin::FieldError;

/// Why nothing was written.
#[derive(Clone, Debug)]
pub enum CaseError {
    /// A form can show it beside the field.
    Field(FieldError),
    /// Not in the state in which the case is, or not with what it has.
    Refused(String),
    /// Somebody else has written meanwhile: the case as it is now, and what was done after the revision that
    /// was seen.
    Stale {
        case: Box<Case>,
        others: Vec<CaseEntry>,
    },
    Missing,
    Store(StoreError),
}

impl From<FieldError> for CaseError {
    fn from(error: FieldError) -> CaseError {
        CaseError::Field(error)
    }
}

impl From<StoreError> for CaseError {
    fn from(error: StoreError) -> CaseError {
        match error {
            StoreError::Refused(why) => CaseError::Refused(why),
            error @ StoreError::TenantFull { .. } => CaseError::Refused(format!("Not saved: {error}.")),
            error => CaseError::Store(error),
        }
    }
}

/// A step, as a form sends it.
#[derive(Clone, Debug, Default)]
pub struct Move {
    pub to: String,
    pub note: String,
    /// Of an extension: why, and the day on which the requester was told.
    pub extension_reason: String,
    pub announced: String,
    /// Of a refusal.
    pub ground: String,
    /// Of a delivery or a refusal.
    pub how: String,
}

pub(super) fn advance(
    case: &mut Case,
    to: CaseState,
    step: &Move,
    calendar: &Calendar,
    now_ms: u64,
) -> Result<(), CaseError> {
    let refused = |problem: &str| Err(CaseError::Refused(problem.to_owned()));
    let Some(transition) = states::find(case.state, to) else {
        return refused("The case cannot move there from its current state.");
    };
    match transition.needs {
        Needs::Nothing => {}
        Needs::Identity | Needs::Delivery if !case.is_identity_confirmed() => {
            return refused("Confirm the requester's identity first.");
        }
        Needs::Identity => {}
        Needs::Delivery => {
            let how = Some(word("how", &step.how, CaseChannel::parse)?);
            let outcome = CaseOutcome::Fulfilled;
            case.answer = Some(CaseAnswer { outcome, at_ms: now_ms, how, ground: None });
        }
        Needs::Ground => {
            let ground = Some(word("ground", &step.ground, RefusalGround::parse)?);
            let how = Some(word("how", &step.how, CaseChannel::parse)?);
            let outcome = CaseOutcome::Refused;
            case.answer = Some(CaseAnswer { outcome, at_ms: now_ms, how, ground });
        }
        Needs::Extension => case.extension = Some(extension(case, step, calendar, now_ms)?),
        Needs::SameState => {
            if case.state_before_pause != Some(to) {
                return refused("A paused case returns only to the state it was paused in.");
            }
        }
    }
    if case.state == CaseState::Paused {
        if let Some(pause) = case.pauses.last_mut() {
            pause.until_ms = Some(now_ms);
        }
        case.state_before_pause = None;
    }
    match to {
        CaseState::Paused => {
            case.state_before_pause = Some(case.state);
            let reason = fields::note(&step.note)?;
            case.pauses.push(CasePause { from_ms: now_ms, until_ms: None, reason });
        }
        CaseState::Withdrawn => {
            let outcome = CaseOutcome::Withdrawn;
            case.answer = Some(CaseAnswer { outcome, at_ms: now_ms, how: None, ground: None });
        }
        CaseState::Closed => case.closed_at_ms = Some(now_ms),
        _ => {}
    }
    case.state = to;
    Ok(())
}

/// The requester must have been told within the first period.
fn extension(case: &Case, step: &Move, calendar: &Calendar, now_ms: u64) -> Result<CaseExtension, CaseError> {
    if case.extension.is_some() {
        return Err(CaseError::Refused("The deadline was already extended.".into()));
    }
    let reason = word("extension_reason", &step.extension_reason, ExtensionReason::parse)?;
    let announced = fields::day("announced", &step.announced)?;
    let today = calendar.day_at(now_ms);
    let announced = announced.map_or(today, |day| day_of(day.start_ms()));
    if announced > today || announced < day_of(case.intake.received_at_ms) {
        let problem = "must be the day you informed the requester, from receipt to today";
        return Err(FieldError::new("announced", problem).into());
    }
    let until = dates_of(case, calendar, now_ms).extension_until;
    let Some(until) = until else {
        return Err(CaseError::Refused("This regime allows no extension.".into()));
    };
    if days_left(until, announced) < 0 {
        let problem = format!("must be within the first period, which ended {}", long_day(until));
        return Err(FieldError::new("announced", problem).into());
    }
    Ok(CaseExtension { reason, announced_at_ms: start_ms(announced) })
}
