//! Saved views: a name for a query of the events page, for oneself or for all who may see the project.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{SavedView, ViewChange, ViewKept, WhoseView};
use sealog_core::id::{ProjectId, Uuid};
use sealog_service::people::admin::views::ViewInput;
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with, query_text, see_other};
use crate::text::visible;
use crate::views;

const NAME_CHARACTERS_MAX: usize = 100;
const QUERY_BYTES_MAX: usize = 2000;

const SHARED_FULL: &str = "This project has 30 shared views, the maximum. Remove one first.";

#[derive(Template)]
#[template(path = "pages/saved_views.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    events: String,
    project: String,
    own: Vec<Row>,
    /// Of others.
    shared: Vec<Row>,
    may_share: bool,
    name: &'a str,
    query: String,
    is_shared: bool,
    is_pinned: bool,
    name_error: Option<&'static str>,
    notice: Option<&'static str>,
    error: Option<&'static str>,
}

/// A view, as a link.
pub(crate) struct Row {
    pub id: String,
    pub name: String,
    pub query: String,
    pub href: String,
    pub is_own: bool,
    /// With those who see this project.
    pub is_shared: bool,
    /// With those who see another one.
    pub is_shared_elsewhere: bool,
    pub is_pinned: bool,
    pub may_remove: bool,
}

/// Those of the person who asks and those that others share in the project, for this project and mode.
pub(crate) async fn of(app: &Dashboard, asked: &Asked) -> Result<Vec<Row>, Problem> {
    let (place, person_id, project_id) = (asked.place(), asked.person().person.id, project_id(asked)?);
    let views = app.service.control.saved_views(place.tenant.id, person_id, project_id).await;
    let events = place.events_path();
    let row = |view: SavedView| Row {
        id: view.id.to_string(),
        name: visible(&view.name),
        href: if view.query.is_empty() { events.clone() } else { format!("{events}?{}", view.query) },
        query: readable(&view.query),
        is_own: view.person_id == person_id,
        is_shared: view.shared_in == Some(project_id),
        is_shared_elsewhere: view.shared_in.is_some_and(|other| other != project_id),
        is_pinned: view.is_pinned,
        may_remove: view.person_id == person_id || place.may(Capability::ManageViews),
    };
    Ok(views.map_err(of_control)?.into_iter().map(row).collect())
}

fn project_id(asked: &Asked) -> Result<ProjectId, Problem> {
    Ok(asked.place().chain_id().ok_or(Problem::not_found())?.project_id)
}

/// As people read it.
fn readable(query: &str) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(name, value)| format!("{name}: {value}"));
    visible(&pairs.collect::<Vec<_>>().join(", "))
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, query: String) -> Result<Page<'a>, Problem> {
        let place = asked.place();
        let (own, shared) = of(app, asked).await?.into_iter().partition(|row: &Row| row.is_own);
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Events)),
            here: views_path(asked),
            events: place.events_path(),
            project: place.chain.as_ref().map_or(String::new(), |(project, _)| visible(&project.name)),
            own,
            shared,
            may_share: place.may(Capability::ShareViews),
            name: asked.field("name"),
            query,
            is_shared: asked.field("for") == "project",
            is_pinned: !asked.field("pinned").is_empty(),
            name_error: None,
            notice: None,
            error: None,
        })
    }
}

fn views_path(asked: &Asked) -> String {
    format!("{}/views", asked.place().project_path())
}

fn done(asked: &Asked, what: &str) -> Response {
    see_other(&format!("{}?done={what}", views_path(asked)))
}

/// What a view keeps of a query: where a list was is no part of it. Nothing if it is too long.
fn kept(query: &str) -> Option<String> {
    let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
    let pairs =
        pairs.filter(|(name, value)| !value.is_empty() && !matches!(name.as_str(), "cursor" | "trail"));
    let kept = query_text(&pairs.collect::<Vec<_>>());
    (kept.len() <= QUERY_BYTES_MAX).then_some(kept)
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let query = asked.query_value("query").and_then(|query| kept(&query)).unwrap_or_default();
    let notice = match asked.query_value("done").as_deref() {
        Some("remove") => Some("View removed."),
        Some("shared") => Some("View shared."),
        Some("private") => Some("View no longer shared."),
        Some("pinned") => Some("View pinned to Overview."),
        Some("unpinned") => Some("View unpinned from Overview."),
        _ => None,
    };
    let page = Page { notice, ..Page::new(&app, &asked, query).await? };
    seal(&app, &asked).await?;
    Ok(html(&page))
}

/// What others share is the organisation's.
async fn seal(app: &Dashboard, asked: &Asked) -> Result<(), Problem> {
    let resource = format!("project/{}", project_id(asked)?);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "views" })).await
}

/// In place of a view of the same name.
pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let query = kept(asked.field("query"));
    let page = Page::new(&app, &asked, query.clone().unwrap_or_default()).await?;
    if page.is_shared && !page.may_share {
        return Err(Problem::not_allowed());
    }
    let name = page.name.trim();
    let problem = match (name.chars().count(), query) {
        (0, _) => Err("Enter a name."),
        (NAME_CHARACTERS_MAX.., _) if name.chars().count() > NAME_CHARACTERS_MAX => {
            Err("Use at most 100 characters.")
        }
        _ if name.contains('\0') => Err("Remove the NUL character."),
        (_, None) => Err("These filters are too long to save. Remove some."),
        (_, Some(query)) => Ok(query),
    };
    let saved = match problem {
        Err(problem) => Err(problem),
        Ok(query) => {
            let shared_in = page.is_shared.then_some(project_id(&asked)?);
            let input = ViewInput { name: name.to_owned(), query, shared_in, is_pinned: page.is_pinned };
            let (person_id, tenant_id) = (asked.person().person.id, asked.place().tenant.id);
            match app.service.admin.save_view(person_id, tenant_id, input).await.map_err(of_admin)? {
                ViewKept::Kept => Ok(()),
                ViewKept::Full => Err("You have 30 views, the maximum. Remove one first."),
                ViewKept::SharedFull => Err(SHARED_FULL),
                ViewKept::NameShared => {
                    Err("You already share a view with this name. Remove it first, or choose another name.")
                }
                ViewKept::NotFound => return Err(Problem::not_found()),
            }
        }
    };
    match saved {
        Ok(()) if page.query.is_empty() => Ok(see_other(&page.events)),
        Ok(()) => Ok(see_other(&format!("{}?{}", page.events, page.query))),
        Err(problem) => {
            seal(&app, &asked).await?;
            let page = Page { name_error: Some(problem), ..page };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
    }
}

/// One of the person's own; that of somebody else is like one that does not exist.
async fn change(app: &Dashboard, asked: &Asked, change: ViewChange) -> Result<ViewKept, Problem> {
    let id = Uuid::parse(asked.field("view")).ok_or(Problem::not_found())?;
    let (person_id, tenant_id) = (asked.person().person.id, asked.place().tenant.id);
    match app.service.admin.change_view(person_id, tenant_id, id, change).await.map_err(of_admin)? {
        ViewKept::NotFound => Err(Problem::not_found()),
        kept => Ok(kept),
    }
}

/// With those who may see the project, or with nobody any more.
pub(crate) async fn share(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let is_shared = asked.field("to") == "project";
    let shared_in = if is_shared { Some(project_id(&asked)?) } else { None };
    match change(&app, &asked, ViewChange { shared_in: Some(shared_in), is_pinned: None }).await? {
        ViewKept::Kept => Ok(done(&asked, if is_shared { "shared" } else { "private" })),
        _ => {
            let page = Page { error: Some(SHARED_FULL), ..Page::new(&app, &asked, String::new()).await? };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
    }
}

/// To Overview. One that is shared stands there for all with whom it is.
pub(crate) async fn pin(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let is_pinned = asked.field("to") == "overview";
    change(&app, &asked, ViewChange { shared_in: None, is_pinned: Some(is_pinned) }).await?;
    Ok(done(&asked, if is_pinned { "pinned" } else { "unpinned" }))
}

/// One of the person's own, or one that is shared here, for those who may. Any other is like one that does
/// not exist.
pub(crate) async fn remove(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let id = Uuid::parse(asked.field("view")).ok_or(Problem::not_found())?;
    let (tenant_id, person_id) = (asked.place().tenant.id, asked.person().person.id);
    let own = app.service.admin.remove_view(person_id, tenant_id, id, WhoseView::Of(person_id)).await;
    let removed = match own {
        Err(sealog_service::people::admin::AdminError::NotFound)
            if asked.place().may(Capability::ManageViews) =>
        {
            let shared = WhoseView::SharedIn(project_id(&asked)?);
            app.service.admin.remove_view(person_id, tenant_id, id, shared).await
        }
        own => own,
    };
    removed.map_err(of_admin)?;
    Ok(done(&asked, "remove"))
}
