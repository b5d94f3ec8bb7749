//! What forms about members share: roles, and what an auditor may see.

use sealog_control::{Grants, Role};
use sealog_core::id::{ProjectId, Uuid};
use sealog_core::time::{DAY_MS, Date, iso_ms};

use crate::app::Dashboard;
use crate::capability::may_give;
use crate::gate::of_control;
use crate::problem::Problem;
use crate::request::{Asked, Place};
use crate::text::{day, visible};

/// Projects that are granted one by one.
const GRANTED_MAX: usize = 200;

const ONLY_AUDITORS: &str =
    "Only auditors can be limited to projects and dates. Clear them, or choose the role Auditor.";

pub(crate) struct Choice {
    pub value: String,
    pub label: String,
    pub is_chosen: bool,
}

/// Fields of the form, as they were typed or as they are.
pub(crate) struct Fields {
    pub projects: Vec<Choice>,
    /// Not all projects are on the list.
    pub is_cut: bool,
    pub from: String,
    pub until: String,
    pub ends: String,
    pub error: Option<&'static str>,
}

impl Fields {
    pub(crate) fn typed(asked: &Asked) -> Fields {
        let text = |name| asked.field(name).to_owned();
        let chosen = values(asked, "project").into_iter().take(GRANTED_MAX + 1);
        let chosen: Vec<String> = chosen.map(str::to_owned).collect();
        Fields {
            projects: projects(asked.place(), &chosen),
            is_cut: is_cut(asked.place()),
            from: text("from"),
            until: text("until"),
            ends: text("ends"),
            error: None,
        }
    }

    pub(crate) fn of(place: &Place, grants: &Grants, ends_at_ms: Option<u64>) -> Fields {
        let date = |ms: Option<u64>| ms.map_or(String::new(), |ms| iso_ms(ms)[..10].to_owned());
        let before = |ms: Option<u64>| date(ms.map(|ms| ms.saturating_sub(1)));
        let granted = grants.projects.iter().flatten();
        let chosen: Vec<String> = granted.map(ProjectId::to_string).collect();
        Fields {
            projects: projects(place, &chosen),
            is_cut: is_cut(place),
            from: date(grants.from_ms),
            until: before(grants.until_ms),
            ends: before(ends_at_ms),
            error: None,
        }
    }
}

fn is_cut(place: &Place) -> bool {
    place.projects.len() >= crate::gate::PROJECTS_MAX
}

/// Those of the list, and those that were chosen beyond it.
fn projects(place: &Place, chosen: &[String]) -> Vec<Choice> {
    let listed = place.projects.iter().map(|project| (project.id.to_string(), visible(&project.name)));
    let mut all: Vec<(String, String)> = listed.collect();
    for id in chosen {
        if !all.iter().any(|(known, _)| known == id) {
            all.push((id.clone(), visible(id)));
        }
    }
    let choice = |(value, label): (String, String)| {
        let is_chosen = chosen.contains(&value);
        Choice { value, label, is_chosen }
    };
    all.into_iter().map(choice).collect()
}

pub(crate) fn roles(by: Role, chosen: Option<Role>) -> Vec<Choice> {
    let choice = |role: Role| Choice {
        value: role.as_str().into(),
        label: role.rules().label.into(),
        is_chosen: chosen == Some(role),
    };
    given_by(by).into_iter().map(choice).collect()
}

pub(crate) fn given_by(role: Role) -> Vec<Role> {
    Role::ALL.into_iter().filter(|given| may_give(role, *given)).collect()
}

/// The role that was chosen, if whoever asks may give it.
pub(crate) fn chosen_role(asked: &Asked) -> Option<Role> {
    given_by(asked.place().role()).into_iter().find(|role| role.as_str() == asked.field("role"))
}

pub(crate) fn values<'a>(asked: &'a Asked, name: &str) -> Vec<&'a str> {
    let named = asked.form.iter().filter(|(known, _)| known == name);
    named.map(|(_, value)| value.0.trim()).filter(|value| !value.is_empty()).collect()
}

/// What was typed, or what is wrong with it. Of auditors alone anything but the end is limited: others see
/// everything.
pub(crate) async fn limits(
    app: &Dashboard,
    asked: &Asked,
    role: Role,
) -> Result<Result<(Grants, Option<u64>), &'static str>, Problem> {
    let dates = match dates(asked, role, app.service.world.now_ms()) {
        Ok(dates) => dates,
        Err(problem) => return Ok(Err(problem)),
    };
    if !role.rules().has_window {
        // Whoever typed them believes that they limit what the member sees.
        if !values(asked, "project").is_empty() || dates.from_ms.is_some() || dates.until_ms.is_some() {
            return Ok(Err(ONLY_AUDITORS));
        }
        return Ok(Ok((Grants::default(), dates.ends_at_ms)));
    }
    let chosen: Vec<Option<ProjectId>> =
        values(asked, "project").into_iter().map(|id| Uuid::parse(id).map(ProjectId)).collect();
    let known: Vec<ProjectId> = chosen.iter().flatten().copied().take(GRANTED_MAX + 1).collect();
    if known.len() > GRANTED_MAX {
        return Ok(Err("Choose at most 200 projects."));
    }
    let own = app.service.control.projects_named(asked.place().tenant.id, known).await;
    let own: Vec<ProjectId> = own.map_err(of_control)?.iter().map(|project| project.id).collect();
    if chosen.is_empty() {
        return Ok(Err("Choose the projects the auditor can see."));
    }
    if !chosen.iter().all(|id| id.is_some_and(|id| own.contains(&id))) {
        return Ok(Err("Choose projects of this organisation."));
    }
    let grants = Grants { projects: Some(own), from_ms: dates.from_ms, until_ms: dates.until_ms };
    Ok(Ok((grants, dates.ends_at_ms)))
}

struct Dates {
    from_ms: Option<u64>,
    until_ms: Option<u64>,
    ends_at_ms: Option<u64>,
}

fn dates(asked: &Asked, role: Role, now_ms: u64) -> Result<Dates, &'static str> {
    let date = |name: &str| match asked.field(name) {
        "" => Ok(None),
        text => Date::parse(text).map(Some).ok_or("Use the date format YYYY-MM-DD."),
    };
    let (from, until, ends) = (date("from")?, date("until")?, date("ends")?);
    let (from_ms, until_ms) = (from.map(Date::start_ms), until.map(Date::end_ms));
    if from_ms.zip(until_ms).is_some_and(|(from, until)| from >= until) {
        return Err("“Events from” must not be after “Events until”.");
    }
    let default = role.rules().grant_days.map(|days| now_ms.saturating_add(days * DAY_MS));
    let ends_at_ms = ends.map(Date::end_ms).or(default);
    if ends_at_ms.is_some_and(|end| end <= now_ms) {
        return Err("“Member until” must not be in the past.");
    }
    Ok(Dates { from_ms, until_ms, ends_at_ms })
}

/// In words, for a list.
pub(crate) fn described(grants: &Grants, ends_at_ms: Option<u64>) -> String {
    let Grants { projects, from_ms, until_ms } = grants;
    let limits = [
        projects.as_ref().map(|projects| match projects.len() {
            1 => "1 project".to_owned(),
            count => format!("{count} projects"),
        }),
        from_ms.map(|from| format!("events from {}", day(from))),
        until_ms.map(|until| format!("events until {}", day(until.saturating_sub(1)))),
        ends_at_ms.map(|end| format!("member until {}", day(end.saturating_sub(1)))),
    ];
    limits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
