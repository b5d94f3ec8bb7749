//! Events that a person has selected become part of a case, whatever they say.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::disclosure::search::WORKING;
use sealog_cases::words::case_name;
use sealog_control::{Case, CaseId, ListPage};
use sealog_core::id::{ProjectId, Uuid};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_search::{here, not_started};
use crate::pages::grants::Choice;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{number, visible};

/// Events of one form: more than a list shows.
const SELECTED_MAX: usize = 200;
/// Open cases among which one is chosen.
const CASES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "pages/case_add.html")]
struct Page<'a> {
    shell: Shell<'a>,
    list: String,
    project: String,
    project_name: String,
    ranges: Vec<String>,
    events: String,
    cases: Vec<Choice>,
    error: Option<String>,
}

/// The events that the address or the form names: `seq=7`, `seq=9..12`, of one project of the organisation.
fn selected(asked: &Asked) -> Result<(ProjectId, Vec<u64>), Problem> {
    let values = |name: &str| -> Vec<String> {
        let typed = asked.form.iter().filter(|(known, _)| known == name).map(|(_, value)| value.0.clone());
        let queried =
            asked.query_pairs().into_iter().filter(|(known, _)| known == name).map(|(_, value)| value);
        typed.chain(queried).collect()
    };
    let project = values("project").first().and_then(|id| Uuid::parse(id)).map(ProjectId);
    let is_own = |id: &ProjectId| asked.place().projects.iter().any(|project| project.id == *id);
    let project = project.filter(is_own).ok_or(Problem::not_found())?;
    let mut seqs = Vec::new();
    for range in values("seq") {
        let (from, to) = range.split_once("..").unwrap_or((&range, &range));
        let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>()) else {
            return Err(Problem::not_found());
        };
        let count =
            to.checked_sub(from).map_or(usize::MAX, |more| usize::try_from(more).unwrap_or(usize::MAX));
        if count.saturating_add(seqs.len()) >= SELECTED_MAX {
            return Err(Problem::not_found());
        }
        seqs.extend(from..=to);
    }
    if seqs.is_empty() { Err(Problem::not_found()) } else { Ok((project, seqs)) }
}

impl<'a> Page<'a> {
    async fn new(
        app: &'a Dashboard,
        asked: &'a Asked,
        project: ProjectId,
        seqs: &[u64],
    ) -> Result<Page<'a>, Problem> {
        let place = asked.place();
        let page = ListPage { after: None, limit: CASES_MAX };
        let cases = app.service.control.open_cases(place.tenant.id, page).await.map_err(of_control)?;
        let takes = |case: &&Case| WORKING.contains(&case.state) && case.scope.projects.contains(&project);
        let choice = |case: &Case| Choice {
            value: case.id.0.to_string(),
            label: format!("{}, {}", case_name(case), visible(&case.intake.requester)),
            is_chosen: asked.field("case") == case.id.0.to_string(),
        };
        let name = place.projects.iter().find(|known| known.id == project).map(|known| visible(&known.name));
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            list: format!("/app/o/{}/cases", place.tenant.id),
            project: project.to_string(),
            project_name: name.unwrap_or_default(),
            ranges: seqs.iter().map(ToString::to_string).collect(),
            events: if seqs.len() == 1 {
                "1 event".to_owned()
            } else {
                format!("{} events", number(seqs.len() as u64))
            },
            cases: cases.iter().filter(takes).map(choice).collect(),
            error: None,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    // Without a selection there is nothing to choose a case for.
    if asked.query.is_empty() {
        return Ok(see_other(&format!("/app/o/{}/cases", asked.place().tenant.id)));
    }
    let (project, seqs) = selected(&asked)?;
    Ok(html(&Page::new(&app, &asked, project, &seqs).await?))
}

pub(crate) async fn add(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (project, seqs) = selected(&asked)?;
    let tenant_id = asked.place().tenant.id;
    let id = Uuid::parse(asked.field("case")).map(CaseId).ok_or(Problem::not_found())?;
    let case = app.service.control.case(tenant_id, id).await.map_err(of_control)?;
    let case = case.ok_or(Problem::not_found())?;
    let events: Vec<(ProjectId, u64)> = seqs.iter().map(|seq| (project, *seq)).collect();
    let started = {
        let _place = app.reads.acquire(tenant_id).await;
        app.service.disclosures.search_with(asked.person().person.id, &case, &events).await
    };
    match started {
        Ok(_) => Ok(see_other(&format!("{}?done=added", here(&case)))),
        Err(error) => {
            let mut page = Page::new(&app, &asked, project, &seqs).await?;
            page.error = Some(not_started(error)?);
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
    }
}
