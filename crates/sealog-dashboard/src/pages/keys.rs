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
use sealog_service::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, moment, visible};
use crate::views;

/// Keys stay listed for ever: a page has so many, and older ones are on the next.
const KEYS_ON_PAGE: usize = 100;

#[derive(Template)]
#[template(path = "pages/keys.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    base_url: &'a str,
    rows: Vec<Row>,
    /// The page with those that were made before.
    older: Option<String>,
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
        let here = format!("/app/o/{}/keys", place.tenant.id);
        // Behind the key of another organisation there is nothing.
        let before = asked.query_value("before").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        // One more than is shown tells whether there are older ones.
        let page = ListPage { after: before.transpose()?, limit: KEYS_ON_PAGE + 1 };
        let granted = place.membership.grants.projects.clone();
        let keys = app.control.administration.keys_of_tenant(place.tenant.id, granted, page).await;
        let mut keys = keys.map_err(of_control)?;
        let are_more = keys.len() > KEYS_ON_PAGE;
        keys.truncate(KEYS_ON_PAGE);
        let last = keys.last().filter(|_| are_more);
        let older = last.map(|(key, _)| format!("{here}?before={}", key.id.0));
        let row = |(key, project): &(ApiKey, String)| {
            let state = State::of(key, now_ms);
            Row {
                id: key.id.0.to_string(),
                name: visible(&key.name),
                prefix: key.prefix.clone(),
                project: visible(project),
                mode: key.mode.as_str(),
                created: day(key.created_at_ms),
                last_used: key.last_used_at_ms.map_or("Never".into(), moment),
                expires: key.expires_at_ms.map_or("Never".into(), day),
                state,
                may_revoke: state == State::Active && place.may(needed(key.mode)),
            }
        };
        let rows = keys.iter().map(row).collect();
        let name_of = |project: &Project| (project.id.to_string(), visible(&project.name));
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Keys)),
            here,
            base_url: &app.config.base_url,
            rows,
            older,
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
    let page = Page { notice, ..Page::new(&app, &asked).await? };
    let resource = format!("organisation/{}", asked.place().tenant.id);
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "keys" })).await?;
    Ok(html(&page))
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
    let found = app.control.administration.key(id).await.map_err(of_control)?;
    // Of another organisation, or of a project that is not granted, it is like one that does not exist.
    let is_seen = |key: &ApiKey| {
        place.membership.grants.projects.as_ref().is_none_or(|granted| granted.contains(&key.project_id))
    };
    let key = found.filter(|(tenant_id, key)| *tenant_id == place.tenant.id && is_seen(key));
    let (_, key) = key.ok_or(Problem::not_found())?;
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
