//! How far a case has got, and the steps that lead on.

use std::collections::HashMap;

use sealog_cases::disclosure::SearchRun;
use sealog_cases::states::{self, MAIN_WAY, Needs};
use sealog_cases::words::Named;
use sealog_control::{
    Case, CaseChannel, CaseEntry, CaseSearch, CaseState, ExtensionReason, Grants, PersonId, RefusalGround,
    Review,
};

use crate::app::Dashboard;
use crate::pages::form::{Field, Kind, choices};
use crate::problem::Problem;
use crate::request::Asked;
use crate::text::{day, number};

/// The tabs, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Intake,
    Identity,
    Identifiers,
    Search,
    Review,
    Package,
    Response,
    History,
}

pub(crate) struct Step {
    pub name: &'static str,
    pub note: String,
    pub is_done: bool,
    pub is_current: bool,
}

/// A step that leads on, and its form.
pub(crate) struct MoveForm {
    pub to: CaseState,
    pub label: String,
    pub fields: Vec<Field>,
    /// It was sent, and something is wrong with it.
    pub is_open: bool,
    pub is_danger: bool,
    /// It is the next thing to do.
    pub is_primary: bool,
}

/// How far the work inside a state has got.
#[derive(Default)]
pub(crate) struct Work {
    pub is_searching: bool,
    pub has_search: bool,
    pub review: Review,
    /// Events that the person who looks has decided about, where two people are needed.
    pub own_decisions: u64,
    pub has_package: bool,
}

impl Work {
    pub(crate) async fn of(
        app: &Dashboard,
        asked: &Asked,
        case: &Case,
        search: Option<&CaseSearch>,
    ) -> Result<Work, Problem> {
        let desk = &app.service.disclosures;
        let review = match search {
            Some(search) => desk.control.review_of(search.new.id, Grants::default()).await?,
            None => Review::default(),
        };
        let has_package = match case.state {
            CaseState::Approved => desk.ready_package(case).await?.is_some(),
            _ => false,
        };
        Ok(Work {
            is_searching: desk.searches(case).await?.iter().any(SearchRun::is_running),
            has_search: search.is_some(),
            review,
            own_decisions: app.service.cases.barred_by(case, asked.person().person.id).await?,
            has_package,
        })
    }
}

/// Where the next thing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Tab(Tab, &'static str),
    Step(CaseState),
    /// Someone else, or a job, has to finish first.
    Wait,
}

/// The one thing that a case waits for, in a sentence, and where it is done.
pub(crate) fn next_of(case: &Case, work: &Work) -> (String, On) {
    let say = |text: &str, on: On| (text.to_owned(), on);
    match case.state {
        CaseState::Received | CaseState::IdentityCheck if !case.is_identity_confirmed() => say(
            "Check that the requester is the person they say they are.",
            On::Tab(Tab::Identity, "Check identity"),
        ),
        CaseState::Received | CaseState::IdentityCheck => {
            say("The identity is confirmed. Start to collect the data.", On::Step(CaseState::InProgress))
        }
        CaseState::InProgress | CaseState::Extended | CaseState::Review => in_work(case, work),
        CaseState::Approved if !work.has_package => {
            say("Build the package for the requester.", On::Tab(Tab::Package, "Build package"))
        }
        CaseState::Approved => say(
            "Send the package to the requester, then record how you sent it.",
            On::Step(CaseState::Delivered),
        ),
        CaseState::Paused => {
            let to = case.state_before_pause.unwrap_or(CaseState::Received);
            say("The clock is stopped. End the pause when you have what you waited for.", On::Step(to))
        }
        CaseState::Delivered | CaseState::Refused | CaseState::Withdrawn => {
            say("The request is answered. Close the case.", On::Step(CaseState::Closed))
        }
        CaseState::Closed => say("The case is closed.", On::Wait),
    }
}

fn in_work(case: &Case, work: &Work) -> (String, On) {
    let say = |text: &str, on: On| (text.to_owned(), on);
    if case.identifiers.is_empty() {
        return say("Add the IDs that refer to this person.", On::Tab(Tab::Identifiers, "Add identifiers"));
    }
    if case.scope.projects.is_empty() {
        return say("Choose the projects to search.", On::Tab(Tab::Identifiers, "Choose projects"));
    }
    if work.is_searching {
        return say(
            "A search is running. Review its events when it has finished.",
            On::Tab(Tab::Search, "View search"),
        );
    }
    if !work.has_search {
        return say("Search for the events of this person.", On::Tab(Tab::Search, "Search"));
    }
    match work.review.open {
        0 => {}
        1 => return say("1 event still needs a decision.", On::Tab(Tab::Review, "Review events")),
        open => {
            let text = format!("{} events still need a decision.", number(open));
            return (text, On::Tab(Tab::Review, "Review events"));
        }
    }
    if case.state != CaseState::Review {
        return say("Every event is decided. Send the case to review.", On::Step(CaseState::Review));
    }
    if !case.is_identity_confirmed() {
        return say(
            "Confirm the requester's identity before you approve.",
            On::Tab(Tab::Identity, "Check identity"),
        );
    }
    if work.own_decisions > 0 {
        return say("You decided about events of this case, so another person must approve it.", On::Wait);
    }
    say("Every event is decided. Approve what will be disclosed.", On::Step(CaseState::Approved))
}

/// The main way, with when each state was reached and by whom; side states are shown where they are.
///
/// A tick says that something happened: a state that the case was in, and of the identity that it is
/// confirmed. Neither follows from where the case is now: steps can be skipped.
pub(crate) fn steps(case: &Case, entries: &[CaseEntry], names: &HashMap<PersonId, String>) -> Vec<Step> {
    let reached = |state: CaseState| entries.iter().rev().find(|entry| entry.entry.to == Some(state));
    let note = |entry: &CaseEntry| {
        let who = entry.entry.person_id.and_then(|id| names.get(&id)).map_or("", String::as_str);
        format!("{}, {who}", day(entry.entry.at_ms))
    };
    let is_side = !MAIN_WAY.contains(&case.state);
    // Where a side state stands on the main way.
    let base = match case.state {
        CaseState::Paused => case.state_before_pause.unwrap_or(CaseState::Received),
        state => state,
    };
    let base = match base {
        CaseState::Extended => CaseState::InProgress,
        CaseState::Refused | CaseState::Withdrawn => CaseState::Delivered,
        state => state,
    };
    let at = MAIN_WAY.iter().position(|state| *state == base).unwrap_or(0);
    let has_answer_of_its_own = |state: CaseState| {
        [CaseState::Refused, CaseState::Withdrawn].contains(&state) && reached(state).is_some()
    };
    let mut steps = Vec::new();
    for (index, state) in MAIN_WAY.iter().copied().enumerate() {
        let mut name = state.name();
        let mut entry = reached(state);
        if state == CaseState::Delivered {
            let other = [CaseState::Refused, CaseState::Withdrawn]
                .into_iter()
                .find(|state| has_answer_of_its_own(*state));
            if let Some(other) = other {
                (name, entry) = (other.name(), reached(other));
            }
        }
        let is_current = index == at;
        let is_behind = index < at || case.state == CaseState::Closed;
        let (happened, mut said) = match entry {
            Some(entry) => (true, note(entry)),
            None => (false, if is_behind { "Skipped".into() } else { String::new() }),
        };
        let happened =
            if state == CaseState::IdentityCheck { case.is_identity_confirmed() } else { happened };
        if state == CaseState::IdentityCheck && is_behind {
            said = match case.identity {
                Some(check) => {
                    let who = names.get(&check.person_id).map_or("", String::as_str);
                    let outcome = if happened { "Confirmed" } else { "Not confirmed" };
                    format!("{outcome}, {}, {who}", day(check.at_ms))
                }
                None => "Not confirmed".into(),
            };
        }
        steps.push(Step {
            name,
            note: said,
            is_done: is_behind && happened,
            is_current: is_current && !is_side && case.state != CaseState::Closed,
        });
        if is_current && is_side && matches!(case.state, CaseState::Paused | CaseState::Extended) {
            let note = reached(case.state).map_or(String::new(), note);
            steps.push(Step { name: case.state.name(), note, is_done: false, is_current: true });
        }
        if is_current
            && matches!(case.state, CaseState::Refused | CaseState::Withdrawn)
            && let Some(last) = steps.last_mut()
        {
            last.is_current = true;
        }
    }
    steps
}

/// The forms of the steps that lead on, and those that are locked.
pub(crate) fn moves(asked: &Asked, case: &Case) -> (Vec<MoveForm>, Vec<&'static str>) {
    let (mut forms, mut locked) = (Vec::new(), Vec::new());
    for known in states::from(case) {
        let needs_identity = matches!(known.needs, Needs::Identity | Needs::Delivery);
        if needs_identity && !case.is_identity_confirmed() {
            locked.push(known.to.name());
            continue;
        }
        let is_sent = asked.field("to") == known.to.as_str();
        let value = |name: &str| if is_sent { asked.field(name).to_owned() } else { String::new() };
        let form = known.to.as_str();
        let mut fields = Vec::new();
        if known.needs == Needs::Extension {
            let reasons = choices(
                ExtensionReason::ALL,
                ExtensionReason::as_str,
                Named::name,
                &value("extension_reason"),
            );
            fields.push(Field::new("extension_reason", "Extension reason", Kind::One(reasons), ""));
            fields.push(
                Field::new("announced", "Requester informed on", Kind::Day, value("announced"))
                    .hint("Leave empty for today. Must be within the first period."),
            );
        }
        if known.needs == Needs::Ground {
            let grounds = choices(RefusalGround::ALL, RefusalGround::as_str, Named::name, &value("ground"));
            fields.push(Field::new("ground", "Ground", Kind::One(grounds), ""));
        }
        if matches!(known.needs, Needs::Ground | Needs::Delivery) {
            let ways = choices(CaseChannel::ALL, CaseChannel::as_str, Named::name, &value("how"));
            fields.push(Field::new("how", "Sent by", Kind::One(ways), ""));
        }
        fields.push(Field::new("note", "Note", Kind::Text, value("note")).required());
        let fields = fields.into_iter().map(|field| field.in_form(form)).collect();
        let is_danger = matches!(known.to, CaseState::Refused | CaseState::Withdrawn | CaseState::Closed);
        let label = move_label(known);
        forms.push(MoveForm { to: known.to, label, fields, is_open: is_sent, is_danger, is_primary: false });
    }
    (forms, locked)
}

fn move_label(step: states::Transition) -> String {
    if step.needs == Needs::SameState {
        return format!("End pause: {}", step.to.name());
    }
    let label = match step.to {
        CaseState::Received => "Received",
        CaseState::IdentityCheck => "Check identity",
        CaseState::InProgress => "Start work",
        CaseState::Review => "Send to review",
        CaseState::Approved => "Approve",
        CaseState::Delivered => "Mark as delivered",
        CaseState::Closed => "Close case",
        CaseState::Paused => "Pause clock",
        CaseState::Extended => "Extend deadline",
        CaseState::Refused => "Refuse request",
        CaseState::Withdrawn => "Mark as withdrawn",
    };
    label.to_owned()
}
