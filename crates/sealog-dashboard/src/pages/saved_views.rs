//! Saved views of a person in an organisation: a name for a query of the events page.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::SavedView;
use sealog_core::id::Uuid;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, query_text, see_other};
use crate::text::visible;

/// Of one person in one organisation: all of them are on the events page.
const VIEWS_MAX: u64 = 30;
const NAME_CHARACTERS_MAX: usize = 100;
const QUERY_BYTES_MAX: usize = 2000;

#[derive(Template)]
#[template(path = "pages/saved_views.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    events: String,
    rows: Vec<Row>,
    name: &'a str,
    query: String,
    name_error: Option<&'static str>,
    notice: Option<&'static str>,
}

/// A view, as a link.
pub(crate) struct Row {
    pub id: String,
    pub name: String,
    pub query: String,
    pub href: String,
}

/// Those of the person who asks, for this project and mode.
pub(crate) async fn of(app: &Dashboard, asked: &Asked) -> Result<Vec<Row>, Problem> {
    let (place, person_id) = (asked.place(), asked.person().person.id);
    let views = app.control.people.saved_views(place.tenant.id, person_id).await.map_err(of_control)?;
    let events = place.events_path();
    let row = |view: SavedView| Row {
        id: view.id.to_string(),
        name: visible(&view.name),
        href: if view.query.is_empty() { events.clone() } else { format!("{events}?{}", view.query) },
        query: readable(&view.query),
    };
    Ok(views.into_iter().map(row).collect())
}

/// As people read it.
fn readable(query: &str) -> String {
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(name, value)| format!("{name}: {value}"));
    visible(&pairs.collect::<Vec<_>>().join(", "))
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, query: String) -> Result<Page<'a>, Problem> {
        let events = asked.place().events_path();
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Events)),
            here: views_path(asked),
            rows: of(app, asked).await?,
            name: asked.field("name"),
            query,
            name_error: None,
            notice: None,
            events,
        })
    }
}

fn views_path(asked: &Asked) -> String {
    format!("{}/views", asked.place().project_path())
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
        Some("remove") => Some("The view is removed."),
        _ => None,
    };
    Ok(html(&Page { notice, ..Page::new(&app, &asked, query).await? }))
}

/// In place of a view of the same name.
pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let query = kept(asked.field("query"));
    let page = Page::new(&app, &asked, query.clone().unwrap_or_default()).await?;
    let name = page.name.trim();
    let problem = match (name.chars().count(), query) {
        (0, _) => Err("Give it a name."),
        (NAME_CHARACTERS_MAX.., _) if name.chars().count() > NAME_CHARACTERS_MAX => {
            Err("Use at most 100 characters.")
        }
        _ if name.contains('\0') => Err("Leave out the NUL character."),
        (_, None) => Err("The query is too long to be saved."),
        (_, Some(query)) => Ok(query),
    };
    let saved = match problem {
        Err(problem) => Err(problem),
        Ok(query) => {
            let mut bytes = [0; 16];
            app.world.fill_random(&mut bytes);
            let view = SavedView {
                id: Uuid::from_random(bytes),
                tenant_id: asked.place().tenant.id,
                person_id: asked.person().person.id,
                name: name.to_owned(),
                query,
                created_at_ms: app.world.now_ms(),
            };
            let is_room = app.control.people.save_view(view, VIEWS_MAX).await.map_err(of_control)?;
            if is_room { Ok(()) } else { Err("You have 30 views here. Remove one first.") }
        }
    };
    match saved {
        Ok(()) if page.query.is_empty() => Ok(see_other(&page.events)),
        Ok(()) => Ok(see_other(&format!("{}?{}", page.events, page.query))),
        Err(problem) => {
            let page = Page { name_error: Some(problem), ..page };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
    }
}

/// One of the person's own; that of somebody else is like one that does not exist.
pub(crate) async fn remove(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let id = Uuid::parse(asked.field("view")).ok_or(Problem::not_found())?;
    let (tenant_id, person_id) = (asked.place().tenant.id, asked.person().person.id);
    if !app.control.people.remove_view(tenant_id, person_id, id).await.map_err(of_control)? {
        return Err(Problem::not_found());
    }
    Ok(see_other(&format!("{}?done=remove", views_path(&asked))))
}
