//! Projects of an organisation, with the heads of their chains: created and renamed here.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{ListPage, Project};
use sealog_core::catalog::Catalog;
use sealog_core::id::{ChainId, Mode, ProjectId, Uuid};
use sealog_service::people::admin::projects::{ProjectInput, ProjectUpdate};
use sealog_service::people::admin::{Actor, AdminError, FieldError};

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, number, visible};

/// Projects of one page: each costs two look-ups. Newer ones are on the next.
const PROJECTS_ON_PAGE: usize = 50;

#[derive(Template)]
#[template(path = "pages/projects.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    keys: String,
    rows: Vec<Row>,
    next: Option<String>,
    is_first: bool,
    may_manage: bool,
    may_create_keys: bool,
    notice: Option<&'static str>,
    name: &'a str,
    name_error: Option<String>,
    rename_error: Option<String>,
}

struct Row {
    name: String,
    raw_name: String,
    id: String,
    created: String,
    frameworks: String,
    chains: Vec<Chain>,
}

struct Chain {
    mode: &'static str,
    href: String,
    seq: String,
    hash: Option<String>,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let place = asked.place();
        let here = format!("/app/o/{}/projects", place.tenant.id);
        // Behind a project of another organisation there is nothing.
        let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let after = after.transpose()?;
        // One more than is shown tells whether there are others.
        let page = ListPage { after, limit: PROJECTS_ON_PAGE + 1 };
        let listed = match place.membership.grants.projects {
            Some(_) => place.projects.clone(),
            None => app.service.control.projects(place.tenant.id, page).await.map_err(of_control)?,
        };
        let are_more = listed.len() > PROJECTS_ON_PAGE && place.membership.grants.projects.is_none();
        let shown = if are_more { &listed[..PROJECTS_ON_PAGE] } else { &listed[..] };
        let mut rows = Vec::with_capacity(shown.len());
        for project in shown {
            rows.push(row(app, project).await?);
        }
        let last = shown.last().filter(|_| are_more);
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Projects)),
            keys: format!("/app/o/{}/keys", place.tenant.id),
            rows,
            next: last.map(|project| format!("{here}?after={}", project.id)),
            is_first: after.is_none(),
            may_manage: place.may(Capability::ManageProjects),
            may_create_keys: place.may(Capability::TestKeys),
            notice: None,
            name: asked.field("name"),
            name_error: None,
            rename_error: None,
            here,
        })
    }
}

async fn row(app: &Dashboard, project: &Project) -> Result<Row, Problem> {
    let mut chains = Vec::new();
    for mode in Mode::ALL {
        let chain = ChainId { tenant_id: project.tenant_id, project_id: project.id, mode };
        let head = app.service.store.head(chain).await?.durable;
        chains.push(Chain {
            mode: mode.as_str(),
            href: format!("/app/p/{}/{}/events", project.id, mode.as_str()),
            seq: number(head.chain_seq),
            hash: (head.chain_seq > 0).then(|| head.hash.to_string()),
        });
    }
    let known = Catalog::builtin().frameworks.iter().enumerate();
    let enabled = known.filter(|(index, _)| project.frameworks.contains(*index));
    Ok(Row {
        name: visible(&project.name),
        raw_name: project.name.clone(),
        id: project.id.to_string(),
        created: day(project.created_at_ms),
        frameworks: enabled.map(|(_, framework)| framework.label.as_str()).collect::<Vec<_>>().join(", "),
        chains,
    })
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("create") => Some("Project created. Create a key for it to send the first event."),
        Some("rename") => Some("Project renamed. Its ID, chains and keys stay the same."),
        _ => None,
    };
    Ok(html(&Page { notice, ..Page::new(&app, &asked).await? }))
}

pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let actor = Actor::Person(asked.person().person.id);
    let input = ProjectInput { name: asked.field("name").trim().into(), frameworks: Vec::new() };
    let here = format!("/app/o/{}/projects", place.tenant.id);
    match app.service.admin.create_project(actor, place.tenant.id, input).await {
        Ok(_) => Ok(see_other(&format!("{here}?done=create"))),
        Err(AdminError::Field(FieldError { problem, .. })) => {
            let page = Page::new(&app, &asked).await?;
            let page = Page { name_error: Some(format!("It {problem}.")), ..page };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(of_admin(error)),
    }
}

pub(crate) async fn rename(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let id = Uuid::parse(asked.field("project")).map(ProjectId).ok_or(Problem::not_found())?;
    // Of another organisation, or not granted, it is like one that does not exist.
    let is_granted = place.membership.grants.projects.as_ref().is_none_or(|granted| granted.contains(&id));
    let found = app.service.control.project(id).await.map_err(of_control)?;
    let project = found.filter(|project| is_granted && project.tenant_id == place.tenant.id);
    let project = project.ok_or(Problem::not_found())?;
    let actor = Actor::Person(asked.person().person.id);
    let name = asked.field("name").trim().to_owned();
    let update = ProjectUpdate { name: Some(name), ..ProjectUpdate::default() };
    match app.service.admin.update_project(actor, id, update).await {
        Ok(_) => Ok(see_other(&format!("/app/o/{}/projects?done=rename", place.tenant.id))),
        Err(AdminError::Field(FieldError { problem, .. })) => {
            let page = Page::new(&app, &asked).await?;
            let error = Some(format!("The name of {} {problem}.", visible(&project.name)));
            let page = Page { rename_error: error, name: "", ..page };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(of_admin(error)),
    }
}
