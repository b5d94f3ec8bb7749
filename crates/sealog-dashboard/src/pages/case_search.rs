//! The searches of a case: started, stopped, gone on with, and what each has come to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use askama::Template;
use axum::http::{HeaderValue, StatusCode, header::VARY};
use axum::response::Response;
use sealog_cases::disclosure::search::{
    ADDED_MAX, ChainRange, Parameters, RESULTS_MAX, UNENDED_MAX, WORKING,
};
use sealog_cases::disclosure::{NotStarted, SearchRun};
use sealog_control::{Case, JobState, PersonId, SearchOutcome};
use sealog_core::id::ProjectId;
use sealog_store::StoreError;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find, name_of, names};
use crate::problem::Problem;
use crate::request::{Asked, Place, html, html_with, see_other};
use crate::text::{day, moment, number, visible};

#[derive(Template)]
#[template(path = "pages/case_search.html", blocks = ["state"])]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    identifiers: usize,
    projects: String,
    dates: String,
    /// Why none can be started now.
    why_not: Option<&'static str>,
    may_start: bool,
    running: Option<Running>,
    stopped: Option<Stopped>,
    runs: Vec<Row>,
    most: String,
}

struct Running {
    percent: u64,
    looked: String,
    total: String,
    found: String,
}

struct Stopped {
    looked: String,
    cause: Option<String>,
}

struct Row {
    started: String,
    who: String,
    looked: String,
    events: String,
    by_person: String,
    on_person: String,
    mentions: String,
    outcome: &'static str,
    ranges: Vec<String>,
}

fn dates_of(from_ms: Option<u64>, until_ms: Option<u64>) -> String {
    match (from_ms, until_ms) {
        (None, None) => "All dates".into(),
        (Some(from), None) => format!("From {}", day(from)),
        (None, Some(until)) => format!("Until {}", day(until.saturating_sub(1))),
        (Some(from), Some(until)) => format!("{} to {}", day(from), day(until.saturating_sub(1))),
    }
}

fn project_name(place: &Place, id: ProjectId) -> String {
    let known = place.projects.iter().find(|project| project.id == id);
    known.map_or_else(|| id.to_string(), |project| visible(&project.name))
}

fn row(place: &Place, run: &SearchRun, who: String) -> Row {
    let counts = run.search.counts;
    let range = |range: &ChainRange| {
        let name = project_name(place, range.project_id);
        match range.events() {
            0 => format!("{name}: no events"),
            _ => format!("{name}: #{} to #{}", number(range.first_seq), number(range.last_seq)),
        }
    };
    let state = run.job.as_ref().map(|(state, _)| *state);
    Row {
        started: moment(run.search.new.created_at_ms),
        who,
        looked: number(run.search.looked),
        events: number(counts.events),
        by_person: number(counts.by_person),
        on_person: number(counts.on_person),
        mentions: number(counts.mentions),
        outcome: match (run.search.outcome, state) {
            (Some(SearchOutcome::Done), _) => "Done",
            (Some(SearchOutcome::TooMany), _) => "Too many events",
            (None, Some(JobState::Waiting)) => "Waiting",
            (None, Some(JobState::Running)) => "Running",
            (None, Some(JobState::Cancelled)) => "Stopped",
            (None, _) => "Failed",
        },
        ranges: run.parameters.iter().flat_map(|parameters| parameters.chains.iter().map(range)).collect(),
    }
}

/// Addresses of the people of a case, and of these.
pub(crate) async fn names_with(
    app: &Dashboard,
    case: &Case,
    people: impl Iterator<Item = PersonId>,
) -> Result<HashMap<PersonId, String>, Problem> {
    let mut known = names(app, case, &[]).await?;
    for id in people {
        if let Entry::Vacant(place) = known.entry(id) {
            let member = app.service.control.member(case.tenant_id, id).await.map_err(of_control)?;
            place.insert(member.map_or_else(|| id.0.to_string(), |member| visible(&member.person.email)));
        }
    }
    Ok(known)
}

fn why_not(case: &Case, runs: &[SearchRun]) -> Option<&'static str> {
    if !WORKING.contains(&case.state) {
        return Some("You can search while the case is in progress, in review or extended.");
    }
    if case.identifiers.is_empty() {
        return Some("Add an identifier first.");
    }
    if case.scope.projects.is_empty() {
        return Some("Choose projects first.");
    }
    let is_open = |run: &SearchRun| run.search.outcome.is_none();
    runs.iter().any(is_open).then_some("A search is running, or stopped and ready to resume.")
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let place = asked.place();
        let runs = app.service.disclosures.searches(case).await?;
        let names = names_with(app, case, runs.iter().map(|run| run.search.new.person_id)).await?;
        let why_not = why_not(case, &runs);
        let frame = Frame::new(app, asked, case, Tab::Search).await?;
        let running = runs.iter().find(|run| run.is_running()).map(|run| Running {
            percent: run.percent(),
            looked: number(run.search.looked),
            total: number(run.parameters.as_ref().map_or(0, Parameters::events)),
            found: number(run.search.counts.events),
        });
        let stopped = runs.iter().find(|run| run.is_stopped()).map(|run| Stopped {
            looked: number(run.search.looked),
            cause: run.job.as_ref().and_then(|(_, cause)| cause.clone()),
        });
        let projects: Vec<String> = case.scope.projects.iter().map(|id| project_name(place, *id)).collect();
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            identifiers: case.identifiers.len(),
            projects: if projects.is_empty() { "None".into() } else { projects.join(", ") },
            dates: dates_of(case.scope.from_ms, case.scope.until_ms),
            may_start: frame.may_manage && why_not.is_none(),
            why_not,
            running,
            stopped,
            runs: runs
                .iter()
                .map(|run| row(place, run, name_of(&names, Some(run.search.new.person_id))))
                .collect(),
            most: number(RESULTS_MAX),
            frame,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "search").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    let is_added = asked.query_value("done").as_deref() == Some("added");
    page.frame.notice =
        is_added.then(|| "Events added. Review them when the search has finished.".to_owned());
    let mut response = if asked.wants_part() { html(&page.as_state()) } else { html(&page) };
    response.headers_mut().append(VARY, HeaderValue::from_static("HX-Request"));
    Ok(response)
}

async fn refused(app: &Dashboard, asked: &Asked, case: &Case, why: &str) -> Result<Response, Problem> {
    let mut page = Page::new(app, asked, case).await?;
    page.frame.error = Some(why.to_owned());
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

pub(crate) fn here(case: &Case) -> String {
    format!("/app/o/{}/cases/{}/search", case.tenant_id, case.id.0)
}

pub(crate) async fn start(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "search").await?;
    let _place = app.reads.acquire(case.tenant_id).await;
    match app.service.disclosures.start_search(asked.person().person.id, &case).await {
        Ok(_) => Ok(see_other(&here(&case))),
        Err(error) => refused(&app, &asked, &case, &not_started(error)?).await,
    }
}

/// Why no search was started, for people.
pub(crate) fn not_started(error: NotStarted) -> Result<String, Problem> {
    Ok(match error {
        NotStarted::Store(StoreError::Refused(why)) => why,
        NotStarted::Store(error @ StoreError::TenantFull { .. }) => format!("Not started: {error}."),
        NotStarted::Store(error) => return Err(error.into()),
        NotStarted::State(_) => {
            "You can search while the case is in progress, in review or extended.".to_owned()
        }
        NotStarted::NoIdentifiers => "Add an identifier first.".to_owned(),
        NotStarted::NoProjects => "Choose projects first.".to_owned(),
        NotStarted::TooManyProjects => {
            "The case has too many projects for one search. Split it into several cases.".to_owned()
        }
        NotStarted::TooMany => {
            format!("Your organisation already runs {UNENDED_MAX} searches. Wait until one has finished.")
        }
        NotStarted::UnderWay => "A search is running, or stopped and ready to resume.".to_owned(),
        NotStarted::NotOfCase => {
            "The case does not cover these events. Choose their project in the case first.".to_owned()
        }
        NotStarted::TooManyAdded => format!("You can add at most {ADDED_MAX} events to a case."),
    })
}

pub(crate) async fn stop(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "search").await?;
    app.service.disclosures.stop_search(asked.person().person.id, &case).await?;
    Ok(see_other(&here(&case)))
}

pub(crate) async fn resume(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "search").await?;
    if !WORKING.contains(&case.state) {
        let why = "You can resume a search while the case is in progress, in review or extended.";
        return refused(&app, &asked, &case, why).await;
    }
    match app.service.disclosures.resume_search(asked.person().person.id, &case).await? {
        true => Ok(see_other(&here(&case))),
        false => refused(&app, &asked, &case, "There is no search to resume, or too many are running.").await,
    }
}
