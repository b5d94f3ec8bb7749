//! A framework of a project: its clauses, what was seen for each, and what enabling or disabling it does.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::Project;
use sealog_core::catalog::{Catalog, Framework};
use sealog_core::id::Mode;
use sealog_service::people::admin::projects::ProjectUpdate;
use sealog_service::people::admin::{Actor, AdminError};
use sealog_service::people::sign_in::Failed;

use super::frameworks::{DAYS, seen};
use crate::app::Dashboard;
use crate::capability::Capability;
use crate::figures;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, see_other};
use crate::text::{number, short_day, visible};

#[derive(Template)]
#[template(path = "pages/framework.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    framework: &'static Framework,
    here: String,
    all: String,
    is_enabled: bool,
    in_plan: bool,
    may_change: bool,
    behind: Option<String>,
    days: u32,
    is_limited: bool,
    seen: usize,
    required: usize,
    clauses: Vec<Clause>,
}

struct Clause {
    name: &'static str,
    rows: Vec<Row>,
}

struct Row {
    action: &'static str,
    description: &'static str,
    is_required: bool,
    /// How often, and when last; nothing where it was not there.
    seen: Option<(String, String)>,
    href: String,
    /// What to do about it.
    advice: Option<String>,
}

/// The framework of the path, by its place in the catalog.
fn named(asked: &Asked) -> Result<(usize, &'static Framework, &Project), Problem> {
    let catalog = Catalog::builtin();
    let index = catalog.framework_index(asked.parameter("framework")).ok_or(Problem::not_found())?;
    let (project, _) = asked.place().chain.as_ref().ok_or(Problem::not_found())?;
    Ok((index, &catalog.frameworks[index], project))
}

fn path(project: &Project, framework: &Framework) -> String {
    format!("/app/p/{}/live/frameworks/{}", project.id, framework.framework)
}

fn in_plan(app: &Dashboard, asked: &Asked, index: usize) -> bool {
    app.service.admin.plan(&asked.place().tenant.plan).is_some_and(|plan| plan.frameworks.contains(index))
}

fn is_test(asked: &Asked) -> bool {
    asked.place().chain.as_ref().is_some_and(|(_, mode)| *mode == Mode::Test)
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (index, framework, project) = named(&asked)?;
    let here = path(project, framework);
    if is_test(&asked) {
        return Ok(see_other(&here));
    }
    let (figures, days) = seen(&app, &asked).await?;
    figures::seal_view(&app, &asked, &format!("frameworks/{}", framework.framework), &days).await?;
    let is_enabled = project.frameworks.contains(index);
    let mut clauses: Vec<Clause> = Vec::new();
    for (entry, is_required) in figures::entries_of(&framework.framework) {
        let name = entry.clauses.get(&framework.framework).map_or("No clause", String::as_str);
        let last = figures.last_days.get(&entry.action);
        let row = Row {
            action: &entry.action,
            description: &entry.description,
            is_required,
            seen: last.map(|day| (number(figures.of_action(&entry.action)), short_day(*day))),
            href: format!("/app/p/{}/live/events?q=action:{}", project.id, encoded(&entry.action)),
            advice: (last.is_none() && is_required).then(|| {
                if entry.gated && !is_enabled {
                    "Enable the framework, then log this action when it happens.".to_owned()
                } else if entry.required_fields.is_empty() {
                    "Log this action when it happens.".to_owned()
                } else {
                    format!("Log this action when it happens, with {}.", entry.required_fields.join(", "))
                }
            }),
        };
        match clauses.iter_mut().find(|clause| clause.name == name) {
            Some(clause) => clause.rows.push(row),
            None => clauses.push(Clause { name, rows: vec![row] }),
        }
    }
    clauses.sort_by(|a, b| a.name.cmp(b.name));
    let (seen, required) = figures::coverage(&framework.framework, &figures);
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Frameworks)),
        project: visible(&project.name),
        framework,
        here,
        all: format!("/app/p/{}/live/frameworks", project.id),
        is_enabled,
        in_plan: in_plan(&app, &asked, index),
        may_change: place.may(Capability::ManageFrameworks),
        behind: figures.behind(&place.membership.grants),
        days: days.end - days.start,
        is_limited: days.end - days.start < DAYS,
        seen,
        required,
        clauses,
    };
    Ok(html(&page))
}

#[derive(Template)]
#[template(path = "pages/framework_change.html")]
struct Question<'a> {
    shell: Shell<'a>,
    project: String,
    framework: &'static Framework,
    here: String,
    is_enabled: bool,
    in_plan: bool,
    plan: &'a str,
    /// Actions that begin or cease to be accepted.
    changing: Vec<Changing>,
    /// Its own actions that another enabled framework keeps open.
    unchanged: usize,
    error: Option<&'static str>,
}

struct Changing {
    action: &'static str,
    description: &'static str,
    /// Seen within a year.
    events: String,
    is_used: bool,
}

/// What a change would do, before it is made.
pub(crate) async fn ask(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&question(&app, &asked, None).await?))
}

async fn question<'a>(
    app: &'a Dashboard,
    asked: &'a Asked,
    error: Option<&'static str>,
) -> Result<Question<'a>, Problem> {
    let (index, framework, project) = named(asked)?;
    let (figures, _) = seen(app, asked).await?;
    let catalog = Catalog::builtin();
    let plan = app.service.admin.plan(&asked.place().tenant.plan);
    // What counts for an action besides this framework: enabled, and in the plan.
    let open = |entry| {
        catalog.frameworks_of(entry).intersects(plan.map_or(project.frameworks, |plan| {
            let others = (0..catalog.frameworks.len()).filter(|other| *other != index);
            others
                .filter(|other| project.frameworks.contains(*other) && plan.frameworks.contains(*other))
                .fold(sealog_core::catalog::FrameworkSet::NONE, sealog_core::catalog::FrameworkSet::with)
        }))
    };
    let gated = figures::entries_of(&framework.framework).filter(|(entry, _)| entry.gated);
    let (unchanged, changing): (Vec<_>, Vec<_>) = gated.partition(|(entry, _)| open(entry));
    let mut changing: Vec<(u64, Changing)> = changing
        .into_iter()
        .map(|(entry, _)| {
            let events = figures.of_action(&entry.action);
            let changing = Changing {
                action: &entry.action,
                description: &entry.description,
                events: number(events),
                is_used: events > 0,
            };
            (events, changing)
        })
        .collect();
    changing.sort_by_key(|(events, _)| std::cmp::Reverse(*events));
    Ok(Question {
        shell: Shell::new(app, asked, Some(Current::Frameworks)),
        project: visible(&project.name),
        framework,
        here: path(project, framework),
        is_enabled: project.frameworks.contains(index),
        in_plan: in_plan(app, asked, index),
        plan: &asked.place().tenant.plan,
        changing: changing.into_iter().map(|(_, changing)| changing).collect(),
        unchanged: unchanged.len(),
        error,
    })
}

pub(crate) async fn change(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (index, framework, project) = named(&asked)?;
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let to = asked.field("to");
    if !matches!(to, "enable" | "disable") || asked.field("understood") != "yes" {
        let error = "Confirm that you have read the changes.";
        return wrong(question(&app, &asked, Some(error)).await?);
    }
    if to == "enable" && !in_plan(&app, &asked, index) {
        let error = "Your plan does not include this framework.";
        return wrong(question(&app, &asked, Some(error)).await?);
    }
    let all = format!("/app/p/{}/live/frameworks", project.id);
    // This one alone: whatever others have changed since the page was made stays. Where somebody was faster,
    // it is as it was wanted, and nothing is recorded.
    let id = vec![framework.framework.clone()];
    let update = match to {
        "enable" => ProjectUpdate { enable: id, ..ProjectUpdate::default() },
        _ => ProjectUpdate { disable: id, ..ProjectUpdate::default() },
    };
    let actor = Actor::Person(asked.person().person.id);
    app.service.admin.update_project(actor, project.id, update).await.map_err(of_admin)?;
    Ok(see_other(&format!("{all}?done={to}")))
}

fn of_admin(error: AdminError) -> Problem {
    match error {
        AdminError::NotFound => Problem::not_found(),
        AdminError::Store(error) => of_control(error),
        AdminError::Internal(cause) => Failed::from(cause).into(),
        AdminError::Field(error) => {
            Problem::new(sealog_core::reject::Code::ValidationInvalidField, error.to_string())
        }
    }
}
