//! Every chain that a person may see with its last verification, and a form that verifies them all.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::id::{ChainId, Mode};
use sealog_core::query::SeqRange;
use sealog_service::evidence::verification::{ALL_MAX, Run, Seen};
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::layout::{Current, Shell};
use crate::pages::system_log;
use crate::pages::verification::{ResultShown, Row, chain, path, row, seen};
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::visible;
use crate::views;

/// Chains that the page shows and the form verifies.
const CHAINS_MAX: usize = 200;
/// Verifications of a chain among which the last one is that a person may see.
const RUNS_READ: usize = 20;
const TOO_MANY_CHAINS: &str = " Not every chain was started. Repeat this when these have finished.";

#[derive(Template)]
#[template(path = "pages/verification_all.html")]
struct Page<'a> {
    shell: Shell<'a>,
    list: String,
    here: String,
    notice: Option<String>,
    error: Option<&'static str>,
    /// Project, mode and the first broken number of each chain that its last verification found broken.
    broken: Vec<(String, &'static str, String)>,
    /// Project, mode, the chain's own page, its last verification.
    rows: Vec<(String, &'static str, String, Option<Row>)>,
    is_cut: bool,
}

/// With the names of their projects, and whether there are more.
async fn chains(app: &Dashboard, asked: &Asked) -> Result<(Vec<(ChainId, String)>, bool), Problem> {
    let (place, tenant_id) = (asked.place(), asked.place().tenant.id);
    let mut chains = Vec::new();
    for project in &place.projects {
        let of = |mode| (ChainId { tenant_id, project_id: project.id, mode }, visible(&project.name));
        chains.extend(Mode::ALL.map(of));
    }
    if place.may(Capability::SystemLog) && place.membership.grants.projects.is_none() {
        let project_id = system_log::project(app, tenant_id).await?;
        chains.push((ChainId { tenant_id, project_id, mode: Mode::Live }, "System log".into()));
    }
    let is_cut = chains.len() > CHAINS_MAX;
    chains.truncate(CHAINS_MAX);
    Ok((chains, is_cut))
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let list = path(chain(asked)?);
        let grants = &asked.place().membership.grants;
        let (chains, is_cut) = chains(app, asked).await?;
        let (mut rows, mut broken) = (Vec::new(), Vec::new());
        for (chain, project) in chains {
            let mut last = app.service.verifications.runs(chain, None, RUNS_READ).await?.into_iter();
            // Runs that reach beyond what a person sees are like none, as their pages are.
            let last = if is_window(grants) {
                let seen = seen(app, chain, grants).await?;
                last.find(|run: &Run| seen.first <= run.from && run.to <= seen.last)
                    .map(|run| run.within(&seen))
            } else {
                last.next()
            };
            let (here, mode) = (path(chain), chain.mode.as_str());
            let last = last.map(|run| row(&here, &run));
            if let Some(Row { result: ResultShown::Broken(at), .. }) = &last {
                broken.push((project.clone(), mode, at.clone()));
            }
            rows.push((project, mode, here, last));
        }
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Verification)),
            here: format!("{list}/all"),
            list,
            notice: None,
            error: None,
            broken,
            rows,
            is_cut,
        })
    }
}

async fn seal(app: &Dashboard, asked: &Asked) -> Result<(), Problem> {
    let resource = format!("tenant/{}", asked.place().tenant.id);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "verification_all" })).await
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let started = asked.query_value("started").and_then(|count| count.parse::<usize>().ok());
    let rest = if asked.query_value("rest").is_some() { TOO_MANY_CHAINS } else { "" };
    let notice = started.filter(|count| *count <= ALL_MAX).map(|count| {
        let chains = if count == 1 { "1 chain".into() } else { format!("{count} chains") };
        format!("Verification of {chains} started. Owners and admins are notified if one is broken.{rest}")
    });
    let page = Page { notice, ..Page::new(&app, &asked).await? };
    seal(&app, &asked).await?;
    Ok(html(&page))
}

/// Every chain that the person may see, each as far as they may see it.
pub(crate) async fn start(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let here = format!("{}/all", path(chain(&asked)?));
    let (chains, is_cut) = chains(&app, &asked).await?;
    let mut ranges = Vec::new();
    for (chain, _) in chains {
        let Seen { first, last, .. } = seen(&app, chain, &asked.place().membership.grants).await?;
        ranges.push((chain, SeqRange { from: first, to: last }));
    }
    let person_id = asked.person().person.id;
    let (started, is_all) = app.service.verifications.start_all(person_id, ranges).await?;
    if started == 0 && is_all {
        seal(&app, &asked).await?;
        let page = Page { error: Some("There are no events to verify."), ..Page::new(&app, &asked).await? };
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let rest = if is_all && !is_cut { "" } else { "&rest=1" };
    Ok(see_other(&format!("{here}?started={started}{rest}")))
}
