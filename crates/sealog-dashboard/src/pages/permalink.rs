//! `/app/e/{log_id}`: an event by its id alone, wherever it is. An event that the person may not see is like
//! one that does not exist.

use std::sync::Arc;

use axum::response::Response;
use sealog_control::{ListPage, Membership};
use sealog_core::id::{ChainId, Mode, ProjectId, Ulid, Uuid};
use sealog_core::query::Filter;
use sealog_core::reject::Reject;

use crate::app::Dashboard;
use crate::capability::{Capability, may};
use crate::gate::of_control;
use crate::pages::found::within;
use crate::pages::system_log;
use crate::problem::Problem;
use crate::request::{Asked, see_other};

/// Projects that are looked into. A link that was copied here names its project, and needs one.
const PROJECTS_MAX: usize = 50;

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let log_id = Ulid::parse(asked.parameter("log_id")).ok_or(Reject::EventNotFound)?;
    let hint = asked.query_value("p").and_then(|id| Uuid::parse(&id)).map(ProjectId);
    let mut left = PROJECTS_MAX;
    for membership in &asked.person().memberships {
        if !may(membership.role, Capability::ReadEvents) || !is_open(&app, &asked, membership).await? {
            continue;
        }
        let mut projects = projects(&app, membership, left).await?;
        left -= projects.len();
        if let Some(hint) = hint {
            projects = named(&app, membership, hint).await?.into_iter().chain(projects).collect();
        }
        if let Some(path) = find(&app, membership, &projects, log_id).await? {
            return Ok(see_other(&path));
        }
    }
    Err(Reject::EventNotFound.into())
}

/// To an auditor without an authenticator nothing is shown, not even whether an event exists.
async fn is_open(app: &Dashboard, asked: &Asked, membership: &Membership) -> Result<bool, Problem> {
    if !membership.role.rules().needs_second_factor {
        return Ok(true);
    }
    let authenticator = app.service.control.authenticator(asked.person().person.id).await;
    Ok(authenticator.map_err(of_control)?.is_some_and(|authenticator| authenticator.is_confirmed()))
}

async fn projects(app: &Dashboard, membership: &Membership, limit: usize) -> Result<Vec<ProjectId>, Problem> {
    if let Some(granted) = &membership.grants.projects {
        return Ok(granted.iter().copied().take(limit).collect());
    }
    let page = ListPage { after: None, limit };
    let projects = app.service.control.projects(membership.tenant_id, page).await;
    Ok(projects.map_err(of_control)?.into_iter().map(|project| project.id).collect())
}

/// The project that the link names, if it is one of these.
async fn named(
    app: &Dashboard,
    membership: &Membership,
    id: ProjectId,
) -> Result<Option<ProjectId>, Problem> {
    if membership.grants.projects.as_ref().is_some_and(|granted| !granted.contains(&id)) {
        return Ok(None);
    }
    if id.is_system() {
        // Who is limited to projects sees nothing of the organisation as a whole.
        let may_see = membership.grants.projects.is_none() && may(membership.role, Capability::SystemLog);
        let own = may_see && system_log::project(app, membership.tenant_id).await? == id;
        return Ok(own.then_some(id));
    }
    let known = app.service.control.projects_named(membership.tenant_id, vec![id]).await;
    Ok(known.map_err(of_control)?.first().map(|project| project.id))
}

async fn find(
    app: &Dashboard,
    membership: &Membership,
    projects: &[ProjectId],
    log_id: Ulid,
) -> Result<Option<String>, Problem> {
    let _place = app.reads.acquire(membership.tenant_id).await;
    let seen = within(Filter::default(), &membership.grants);
    for project_id in projects {
        for mode in Mode::ALL {
            let chain = ChainId { tenant_id: membership.tenant_id, project_id: *project_id, mode };
            let event = app.service.store.get(chain, log_id).await?;
            if event.is_some_and(|event| seen.matches(&event)) {
                return Ok(Some(format!("/app/p/{project_id}/{}/events/{log_id}", mode.as_str())));
            }
        }
    }
    Ok(None)
}
