//! API keys of an organisation: what they are for and what state they are in, never the keys themselves.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{ApiKey, KeyId, ListPage, Project};
use sealog_core::id::{Mode, Uuid};
use sealog_core::reject::Code;
use sealog_core::time::{Date, iso_ms};
use sealog_service::admin::keys::{CreatedKey, KeyInput};
use sealog_service::admin::{Actor, AdminError, FieldError};
use sealog_service::people::Failed;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, moment, visible};

/// Of one project. Keys stay listed for ever, and nobody reads more of them.
const KEYS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "pages/keys.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    base_url: &'a str,
    rows: Vec<Row>,
    is_cut: bool,
    notice: Option<&'static str>,
    error: Option<String>,
    /// Shown this once.
    created: Option<CreatedKey>,
    may_create: bool,
    may_create_live: bool,
    projects: Vec<(String, String)>,
    name: &'a str,
    project: &'a str,
    mode: &'a str,
    expires: &'a str,
    name_error: Option<String>,
    mode_error: Option<String>,
    expires_error: Option<String>,
}

struct Row {
    id: String,
    name: String,
    prefix: String,
    project: String,
    mode: &'static str,
    created: String,
    last_used: String,
    expires: String,
    state: State,
    may_revoke: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    fn of(key: &ApiKey, now_ms: u64) -> State {
        match (key.revoked_at_ms, key.expires_at_ms) {
            (Some(_), _) => State::Revoked,
            (None, Some(end)) if end <= now_ms => State::Expired,
            _ => State::Active,
        }
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, now_ms) = (asked.place(), app.world.now_ms());
        let (mut rows, mut is_cut) = (Vec::new(), false);
        for project in &place.projects {
            let page = ListPage { after: None, limit: KEYS_MAX };
            let keys = app.control.administration.keys(project.id, page).await.map_err(of_control)?;
            is_cut |= keys.len() == KEYS_MAX;
            rows.extend(keys.iter().map(|key| {
                let state = State::of(key, now_ms);
                Row {
                    id: key.id.0.to_string(),
                    name: visible(&key.name),
                    prefix: key.prefix.clone(),
                    project: visible(&project.name),
                    mode: key.mode.as_str(),
                    created: day(key.created_at_ms),
                    last_used: key.last_used_at_ms.map_or("Never".into(), moment),
                    expires: key.expires_at_ms.map_or("Never".into(), day),
                    state,
                    may_revoke: state == State::Active && place.may(needed(key.mode)),
                }
            }));
        }
        let name_of = |project: &Project| (project.id.to_string(), visible(&project.name));
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Keys)),
            here: format!("/app/o/{}/keys", place.tenant.id),
            base_url: &app.config.base_url,
            rows,
            is_cut,
            notice: None,
            error: None,
            created: None,
            may_create: place.may(Capability::TestKeys),
            may_create_live: place.may(Capability::LiveKeys),
            projects: place.projects.iter().map(name_of).collect(),
            name: asked.field("name"),
            project: asked.field("project"),
            mode: asked.field("mode"),
            expires: asked.field("expires"),
            name_error: None,
            mode_error: None,
            expires_error: None,
        })
    }
}

fn needed(mode: Mode) -> Capability {
    match mode {
        Mode::Live => Capability::LiveKeys,
        Mode::Test => Capability::TestKeys,
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let revoked = asked.query_value("done").is_some();
    let notice = revoked.then_some("The key is revoked. Requests with it are refused from now on.");
    Ok(html(&Page { notice, ..Page::new(&app, &asked).await? }))
}

/// The answer shows the key, which nothing keeps: there is no page to lead to.
pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let page = Page::new(&app, &asked).await?;
    let Some(mode) = Mode::ALL.into_iter().find(|mode| mode.as_str() == page.mode) else {
        return wrong(Page { mode_error: Some("Choose a mode.".into()), ..page });
    };
    if !place.may(needed(mode)) {
        return Err(Problem::not_allowed());
    }
    // Of another organisation it is like one that does not exist.
    let project = place.projects.iter().find(|project| project.id.to_string() == page.project);
    let project_id = project.ok_or(Problem::not_found())?.id;
    let expires_at = match page.expires {
        "" => None,
        text => match Date::parse(text) {
            Some(date) => Some(iso_ms(date.end_ms())),
            None => return wrong(Page { expires_error: Some("Write it as YYYY-MM-DD.".into()), ..page }),
        },
    };
    let input = KeyInput { name: page.name.trim().into(), mode: mode.as_str().into(), expires_at };
    let actor = Actor::Person(asked.person().person.id);
    match app.admin.create_key(actor, project_id, input).await {
        Ok(created) => Ok(html(&Page { created: Some(created), ..Page::new(&app, &asked).await? })),
        Err(AdminError::Field(FieldError { field, problem })) => {
            let problem = Some(format!("It {problem}."));
            wrong(match field.as_str() {
                "expires_at" => Page { expires_error: problem, ..page },
                "mode" => Page { mode_error: problem, ..page },
                _ => Page { name_error: problem, ..page },
            })
        }
        Err(error) => Err(of_admin(error)),
    }
}

/// Whoever revokes types the name: it cannot be taken back.
pub(crate) async fn revoke(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let id = KeyId(Uuid::parse(asked.field("key")).ok_or(Problem::not_found())?);
    let mut found = None;
    for project in &place.projects {
        let page = ListPage { after: None, limit: KEYS_MAX };
        let keys = app.control.administration.keys(project.id, page).await.map_err(of_control)?;
        found = found.or(keys.into_iter().find(|key| key.id == id));
    }
    let key = found.ok_or(Problem::not_found())?;
    if !place.may(needed(key.mode)) {
        return Err(Problem::not_allowed());
    }
    if asked.field("name").trim() != key.name.trim() {
        let error = Some(format!("To revoke the key, type its name: {}", visible(&key.name)));
        let page = Page::new(&app, &asked).await?;
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error, name: "", ..page }));
    }
    let actor = Actor::Person(asked.person().person.id);
    app.admin.revoke_key(actor, id).await.map_err(of_admin)?;
    Ok(see_other(&format!("/app/o/{}/keys?done=revoke", place.tenant.id)))
}

fn of_admin(error: AdminError) -> Problem {
    match error {
        AdminError::NotFound => Problem::not_found(),
        AdminError::Store(error) => of_control(error),
        AdminError::Internal(cause) => Failed(cause).into(),
        AdminError::Field(error) => Problem::new(Code::ValidationInvalidField, error.to_string()),
    }
}
