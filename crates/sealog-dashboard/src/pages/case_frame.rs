//! What all tabs of a case share: whose it is to see, the date with its reasons, how far it has got, the
//! steps that lead on.

use std::collections::HashMap;

use sealog_cases::CaseError;
use sealog_cases::dates::{self, described, long_day};
use sealog_cases::desk::Seen;
use sealog_cases::words::{Named, case_name};
use sealog_control::{Case, CaseEntry, CaseId, CaseState, ListPage, PersonId};
use sealog_core::id::Uuid;
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
pub(crate) use crate::pages::case_steps::Tab;
use crate::pages::case_steps::{MoveForm, On, Step, Work, moves, next_of, steps};
use crate::pages::form::put_error;
use crate::pages::grants::Choice;
use crate::problem::Problem;
use crate::request::{Asked, Place};
use crate::text::{day, moment, visible};
use crate::views;

/// People whose addresses one page looks up.
const NAMES_MAX: usize = 50;
/// Members among whom those are who take cases.
const MEMBERS_MAX: usize = 1000;

/// Behind the path of the case.
const TABS: &[(Tab, &str, &str)] = &[
    (Tab::Intake, "", "Intake"),
    (Tab::Identity, "/identity", "Identity"),
    (Tab::Identifiers, "/identifiers", "Identifiers"),
    (Tab::Search, "/search", "Search"),
    (Tab::Review, "/review", "Review"),
    (Tab::Package, "/package", "Package"),
    (Tab::Response, "/response", "Response"),
    (Tab::History, "/history", "History"),
];

pub(crate) struct Frame {
    pub list: String,
    pub here: String,
    pub name: String,
    pub title: String,
    pub state: &'static str,
    pub revision: u64,
    /// The search whose events are disclosed if the case is approved now.
    pub search: Option<String>,
    pub may_manage: bool,
    /// The tab needs the whole width: what stands beside others stands below it.
    pub is_wide: bool,
    pub tabs: Vec<TabLink>,
    pub due: DueCard,
    pub steps: Vec<Step>,
    pub facts: Vec<(&'static str, String)>,
    /// What the case waits for; nothing for those who only read it.
    pub next: Option<Next>,
    /// The step that leads on, if it is the next thing to do.
    pub primary: Option<MoveForm>,
    /// Every other step.
    pub moves: Vec<MoveForm>,
    /// Steps that wait for the identity check.
    pub locked: Vec<&'static str>,
    pub notice: Option<String>,
    pub error: Option<String>,
    pub stale: Vec<Other>,
    /// Fields that others have changed meanwhile: which, from and to, as they are kept.
    pub changed: Vec<(String, String, String)>,
}

pub(crate) struct TabLink {
    pub href: String,
    pub label: &'static str,
    pub count: Option<usize>,
    pub is_current: bool,
}

/// What is to be done next: a page to go to, or a step to take.
pub(crate) struct Next {
    pub text: String,
    pub link: Option<(&'static str, String)>,
    /// The page of the link is this one.
    pub is_here: bool,
}

pub(crate) struct DueCard {
    pub heading: &'static str,
    pub big: String,
    pub date: String,
    pub is_late: bool,
    /// The date as if there had been no pause, where that is another one.
    pub without_pauses: Option<String>,
    pub reasons: Vec<String>,
    pub source: &'static str,
    /// Where the days begin and end.
    pub zone: String,
    /// The last day for the confirmation of receipt, and whether that is over.
    pub confirm: Option<(String, bool)>,
    pub confirmed: Option<String>,
    pub extension_until: Option<String>,
    pub days_used: i64,
    pub days_all: i64,
}

/// What somebody else has done meanwhile.
pub(crate) struct Other {
    pub who: String,
    pub when: String,
    pub what: String,
    pub note: String,
    pub differences: Vec<(String, String, String)>,
}

/// Of another organisation, or not for this person to see: like one that does not exist. What an auditor sees
/// is sealed first.
pub(crate) async fn find(app: &Dashboard, asked: &Asked, tab: &str) -> Result<Case, Problem> {
    let place = asked.place();
    let id = Uuid::parse(asked.parameter("case")).map(CaseId).ok_or(Problem::not_found())?;
    let case = app.service.control.case(place.tenant.id, id).await.map_err(of_control)?;
    let case = case.filter(|case| may_see(place, case)).ok_or(Problem::not_found())?;
    let resource = format!("case/{}", case.id.0);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "case", "tab": tab })).await?;
    Ok(case)
}

/// Auditors see closed cases that lie within what they were granted; everybody else who may see cases sees
/// all.
pub(crate) fn may_see(place: &Place, case: &Case) -> bool {
    if !place.role().rules().has_window {
        return true;
    }
    let grants = &place.membership.grants;
    let is_granted = grants.projects.as_ref().is_none_or(|granted| {
        !case.scope.projects.is_empty() && case.scope.projects.iter().all(|id| granted.contains(id))
    });
    let received = case.intake.received_at_ms;
    let is_in_time = grants.from_ms.is_none_or(|from| received >= from)
        && grants.until_ms.is_none_or(|until| received < until);
    case.state == CaseState::Closed && is_granted && is_in_time
}

/// The revision that the form was made from.
pub(crate) fn seen(asked: &Asked, case: &Case) -> Seen {
    Seen {
        tenant_id: case.tenant_id,
        id: case.id,
        // Without one, nothing was seen.
        revision: asked.field("revision").parse().unwrap_or(0),
        person_id: asked.person().person.id,
    }
}

impl Frame {
    pub(crate) async fn new(app: &Dashboard, asked: &Asked, case: &Case, tab: Tab) -> Result<Frame, Problem> {
        let place = asked.place();
        let list = format!("/app/o/{}/cases", place.tenant.id);
        let here = format!("{list}/{}", case.id.0);
        let entries = app.service.cases.entries(case).await?;
        let dates = app.service.cases.dates(case).await?;
        let names = names(app, case, &entries).await?;
        let name = case_name(case);
        let may_manage = place.may(Capability::ManageCases) && case.state != CaseState::Closed;
        let link = |(which, path, label): &(Tab, &str, &'static str)| TabLink {
            href: format!("{here}{path}"),
            label,
            count: (*which == Tab::Identifiers).then_some(case.identifiers.len()),
            is_current: *which == tab,
        };
        let search = app.service.disclosures.current_search(case).await?;
        let (mut moves, locked) = if may_manage { moves(asked, case) } else { (Vec::new(), Vec::new()) };
        let (mut next, mut primary) = (None, None);
        if may_manage {
            let work = Work::of(app, asked, case, search.as_ref()).await?;
            let (text, on) = next_of(case, &work);
            let at = moves.iter().position(|form| on == On::Step(form.to));
            primary = at.map(|at| MoveForm { is_primary: true, ..moves.remove(at) });
            let link = match on {
                On::Tab(to, label) => TABS
                    .iter()
                    .find(|(known, _, _)| *known == to)
                    .map(|(_, path, _)| (label, format!("{here}{path}"))),
                On::Step(_) | On::Wait => None,
            };
            next = Some(Next { text, link, is_here: matches!(on, On::Tab(to, _) if to == tab) });
        }
        Ok(Frame {
            tabs: TABS.iter().map(link).collect(),
            title: format!("{} {name}", request_name(case)),
            state: case.state.name(),
            revision: case.revision,
            search: search.map(|search| search.new.id.0.to_string()),
            due: due_card(case, &dates),
            steps: steps(case, &entries, &names),
            facts: facts(place, case, &names),
            next,
            primary,
            moves,
            locked,
            is_wide: false,
            notice: None,
            error: None,
            stale: Vec::new(),
            changed: Vec::new(),
            may_manage,
            list,
            here,
            name,
        })
    }

    /// Says why nothing was written. What belongs to a field of another form is given back.
    pub(crate) async fn refuse(
        &mut self,
        app: &Dashboard,
        error: CaseError,
    ) -> Result<Option<(String, String)>, Problem> {
        match error {
            CaseError::Field(wrong) => return Ok(Some((wrong.field, wrong.problem))),
            CaseError::Refused(problem) => self.error = Some(problem),
            CaseError::Missing => return Err(Problem::not_found()),
            CaseError::Store(error) => return Err(of_control(error)),
            CaseError::Stale { case, others } => {
                let names = names(app, &case, &others).await?;
                let changed = others.iter().flat_map(|entry| &entry.entry.differences);
                let changed =
                    changed.map(|known| (known.field.clone(), known.from.clone(), known.to.clone()));
                self.changed = changed.collect();
                self.stale = others.iter().map(|entry| other(entry, &names)).collect();
                if self.stale.is_empty() {
                    self.error = Some("The form has no case revision. Reload the page and try again.".into());
                }
            }
        }
        Ok(None)
    }

    /// Beside its field, in the form of a step.
    pub(crate) fn put_move_error(&mut self, to: &str, field: &str, problem: &str) {
        let form = self.moves.iter_mut().chain(&mut self.primary).find(|form| form.to.as_str() == to);
        let is_put = form.is_some_and(|form| {
            form.is_open = true;
            put_error(&mut form.fields, field, problem)
        });
        if !is_put {
            self.error = Some(format!("{field} {problem}."));
        }
    }
}

fn request_name(case: &Case) -> String {
    let name = case.intake.request_type.name();
    if name.ends_with("request") { name.to_owned() } else { format!("{name} request") }
}

fn due_card(case: &Case, dates: &dates::CaseDates) -> DueCard {
    let date = long_day(dates.due.date);
    let days = |days: i64| if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
    let (heading, big) = match (case.answer, dates.days_left) {
        (Some(answer), left) if left < 0 => (answer.outcome.name(), format!("{} late", days(-left))),
        (Some(answer), _) => (answer.outcome.name(), "on time".to_owned()),
        (None, left) if left < 0 => ("Answer overdue by", days(-left)),
        (None, 0) => ("Answer due", "today".to_owned()),
        (None, left) => ("Answer due in", days(left)),
    };
    let today = dates.today;
    let without = dates.due.without_pauses;
    let is_open = case.answer.is_none();
    DueCard {
        heading,
        big,
        is_late: dates.days_left < 0,
        without_pauses: (without != dates.due.date).then(|| long_day(without)),
        reasons: dates.due.reasons.iter().map(described).collect(),
        source: dates::regime_of(&case.intake).source(),
        zone: dates.zone.clone(),
        confirm: dates
            .confirm_until
            .map(|until| (long_day(until), case.confirmed_at_ms.is_none() && until < today)),
        confirmed: dates.confirmed_on.map(|on| day(dates::start_ms(on))),
        extension_until: dates
            .extension_until
            .filter(|until| is_open && case.extension.is_none() && *until >= today)
            .map(long_day),
        days_used: dates.days_used.max(0),
        days_all: (dates.days_used + dates.days_left).max(1),
        date,
    }
}

fn facts(place: &Place, case: &Case, names: &HashMap<PersonId, String>) -> Vec<(&'static str, String)> {
    let assignee = case.assignee.map_or("Unassigned".to_owned(), |id| name_of(names, Some(id)));
    let identity = match case.identity {
        None => "Not checked: disclosure is locked".to_owned(),
        Some(check) if case.is_identity_confirmed() => format!("Confirmed {}", day(check.at_ms)),
        Some(_) => "Not confirmed: disclosure is locked".to_owned(),
    };
    let projects: Vec<String> = case
        .scope
        .projects
        .iter()
        .map(|id| {
            let known = place.projects.iter().find(|project| project.id == *id);
            known.map_or_else(|| id.to_string(), |project| visible(&project.name))
        })
        .collect();
    vec![
        ("Regime", case.intake.regime.name().to_owned()),
        ("Requester", visible(&case.intake.requester)),
        ("Identity", identity),
        ("Assignee", assignee),
        ("Projects", if projects.is_empty() { "None selected".to_owned() } else { projects.join(", ") }),
    ]
}

/// Addresses of members by their ids, for the people of a case.
pub(crate) async fn names(
    app: &Dashboard,
    case: &Case,
    entries: &[CaseEntry],
) -> Result<HashMap<PersonId, String>, Problem> {
    let own = [case.assignee, Some(case.created_by), case.identity.map(|check| check.person_id)];
    let ids: Vec<PersonId> =
        own.into_iter().chain(entries.iter().map(|entry| entry.entry.person_id)).flatten().collect();
    let mut names = HashMap::new();
    for id in ids {
        if names.contains_key(&id) || names.len() >= NAMES_MAX {
            continue;
        }
        let member = app.service.control.member(case.tenant_id, id).await.map_err(of_control)?;
        names.insert(id, member.map_or_else(|| id.0.to_string(), |member| visible(&member.person.email)));
    }
    Ok(names)
}

pub(crate) fn name_of(names: &HashMap<PersonId, String>, id: Option<PersonId>) -> String {
    let named = |id: PersonId| names.get(&id).cloned().unwrap_or_else(|| id.0.to_string());
    id.map_or("Sealog".to_owned(), named)
}

/// An entry of the history, in words.
pub(crate) fn other(entry: &CaseEntry, names: &HashMap<PersonId, String>) -> Other {
    let told = &entry.entry;
    let what = match (told.from, told.to) {
        (Some(from), Some(to)) => format!("{} → {}", from.name(), to.name()),
        (None, Some(to)) => format!("Opened, {}", to.name()),
        _ if told.what == "identity" => "Identity check".to_owned(),
        _ => "Changed".to_owned(),
    };
    let shown = |field: &str, text: &str| match field {
        // Ids of people are addresses to those who read it.
        "assignee" => {
            let id = Uuid::parse(text).map(PersonId);
            id.map_or_else(String::new, |id| names.get(&id).cloned().unwrap_or_else(|| text.to_owned()))
        }
        _ => lines(text),
    };
    let differences = told.differences.iter().filter(|known| known.field != "state").map(|known| {
        (
            field_name(&known.field).to_owned(),
            shown(&known.field, &known.from),
            shown(&known.field, &known.to),
        )
    });
    Other {
        who: name_of(names, told.person_id),
        when: moment(told.at_ms),
        what,
        note: lines(&told.note),
        differences: differences.collect(),
    }
}

/// A text of several lines, each as it is shown; the stylesheet keeps their ends.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn field_name(field: &str) -> &str {
    match field {
        "request_type" => "type",
        "wrote" => "request text",
        "custom_days" => "days",
        "from" => "events from",
        "until" => "events until",
        other => other,
    }
}

/// Members who take cases, for a choice among them; and whoever was chosen, also where they take none any
/// more: a form that does not show them would take the case from them.
pub(crate) async fn assignees(app: &Dashboard, asked: &Asked, chosen: &str) -> Result<Vec<Choice>, Problem> {
    let page = ListPage { after: None, limit: MEMBERS_MAX };
    let now_ms = app.service.world.now_ms();
    let members = app.service.control.members(asked.place().tenant.id, page).await.map_err(of_control)?;
    let takes = members
        .iter()
        .filter(|member| member.membership.role.rules().takes_cases && !member.membership.has_ended(now_ms));
    let unassigned =
        Choice { value: String::new(), label: "Unassigned".into(), is_chosen: chosen.is_empty() };
    let choice =
        |id: String, email: &str| Choice { is_chosen: id == chosen, value: id, label: visible(email) };
    let all = takes.map(|member| choice(member.person.id.0.to_string(), &member.person.email));
    let mut all: Vec<Choice> = std::iter::once(unassigned).chain(all).collect();
    if !all.iter().any(|choice| choice.is_chosen)
        && let Some(id) = Uuid::parse(chosen).map(PersonId)
    {
        let member = app.service.control.member(asked.place().tenant.id, id).await.map_err(of_control)?;
        let who = member.map_or_else(|| visible(chosen), |member| visible(&member.person.email));
        let label = format!("{who} (no longer takes cases)");
        all.push(Choice { value: chosen.to_owned(), label, is_chosen: true });
    }
    Ok(all)
}
