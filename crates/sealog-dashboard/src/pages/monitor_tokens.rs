//! Monitor tokens of an organisation: for those outside who watch one of its chains. For owners alone.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{ListPage, MonitorToken, MonitorTokenId, PersonId};
use sealog_core::id::{ProjectId, Uuid};
use sealog_service::people::admin::keys::FORM;
use sealog_service::people::admin::monitor_tokens::{CreatedMonitorToken, MonitorTokenInput, Watched};
use sealog_service::people::admin::{Actor, AdminError, FieldError};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::keys::{State, last_day, name_of_person, new_form};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, minute, visible};

/// Tokens stay listed for ever: a page has so many, and older ones are on the next.
const TOKENS_ON_PAGE: usize = 100;
/// In place of a project's id, in the form.
const SYSTEM: &str = "system";
const SYSTEM_CHAIN: &str = "System chain";

const SENT: &str = "This form has already created its token, which was shown once. If you lost the token, revoke it and create another.";
const INCOMPLETE: &str = "The form was incomplete. Reload the page and try again.";

#[derive(Template)]
#[template(path = "pages/monitor_tokens.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    rows: Vec<Row>,
    /// The page with those that were made before.
    older: Option<String>,
    notice: Option<&'static str>,
    error: Option<&'static str>,
    /// A token that is about to be revoked.
    sheet: Option<Sheet>,
    /// A token is about to be created.
    is_new: bool,
    /// Names the form of this page: it makes one token, however often it is sent.
    form: Uuid,
    /// Shown this once.
    created: Option<CreatedMonitorToken>,
    /// Value and name.
    chains: Vec<(String, String)>,
    name: &'a str,
    chain: &'a str,
    expires: &'a str,
    name_error: Option<String>,
    expires_error: Option<String>,
}

struct Row {
    name: String,
    prefix: String,
    chain: String,
    created: String,
    created_by: String,
    last_used: String,
    expires: String,
    state: State,
    revoke: Option<String>,
}

struct Sheet {
    id: String,
    name: String,
    prefix: String,
    last_used: String,
    error: Option<String>,
}

impl Sheet {
    fn of(token: &MonitorToken, error: Option<String>) -> Sheet {
        Sheet {
            id: token.id.0.to_string(),
            name: visible(&token.name),
            prefix: token.prefix.clone(),
            last_used: last_used(token),
            error,
        }
    }
}

fn last_used(token: &MonitorToken) -> String {
    token.last_used_at_ms.map_or("Never".into(), minute)
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, now_ms) = (asked.place(), app.service.world.now_ms());
        let control = &app.service.control;
        let here = format!("/app/o/{}/monitor-tokens", place.tenant.id);
        // Behind the token of another organisation there is nothing.
        let before = asked.query_value("before").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let before = before.transpose()?;
        let at = before.map(|before| format!("before={before}&")).unwrap_or_default();
        // One more than is shown tells whether there are older ones.
        let page = ListPage { after: before, limit: TOKENS_ON_PAGE + 1 };
        let mut tokens = control.monitor_tokens_of_tenant(place.tenant.id, page).await.map_err(of_control)?;
        let are_more = tokens.len() > TOKENS_ON_PAGE;
        tokens.truncate(TOKENS_ON_PAGE);
        let last = tokens.last().filter(|_| are_more);
        let older = last.map(|(token, _)| format!("{here}?before={}", token.id.0));
        let makers: Vec<PersonId> = tokens.iter().filter_map(|(token, _)| token.created_by).collect();
        let makers = control.member_addresses(place.tenant.id, makers).await.map_err(of_control)?;
        let row = |(token, project): &(MonitorToken, Option<String>)| {
            let state = State::of(token.revoked_at_ms, token.expires_at_ms, now_ms);
            let by = token.created_by;
            Row {
                name: visible(&token.name),
                prefix: token.prefix.clone(),
                chain: project.as_deref().map_or(SYSTEM_CHAIN.into(), visible),
                created: day(token.created_at_ms),
                created_by: by.map_or_else(|| "Operator".into(), |id| name_of_person(&makers, id)),
                last_used: last_used(token),
                expires: token.expires_at_ms.map_or("Never".into(), day),
                state,
                revoke: (state == State::Active).then(|| format!("{here}?{at}revoke={}", token.id.0)),
            }
        };
        let rows = tokens.iter().map(row).collect();
        let projects = place.projects.iter().map(|project| (project.id.to_string(), visible(&project.name)));
        let chains = projects.chain([(SYSTEM.to_owned(), SYSTEM_CHAIN.to_owned())]).collect();
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Keys)),
            here,
            rows,
            older,
            notice: None,
            error: None,
            sheet: None,
            is_new: false,
            form: new_form(app),
            created: None,
            chains,
            name: asked.field("name"),
            chain: asked.field("chain"),
            expires: asked.field("expires"),
            name_error: None,
            expires_error: None,
        })
    }
}

/// Those who are limited to projects see nothing of the organisation as a whole.
fn sees_all(asked: &Asked) -> Result<(), Problem> {
    if asked.place().membership.grants.projects.is_some() { Err(Problem::not_found()) } else { Ok(()) }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    sees_all(&asked)?;
    let notice = match asked.query_value("done").as_deref() {
        Some("revoke") => Some("Token revoked. Requests with it are rejected from now on."),
        _ => None,
    };
    let sheet = match asked.query_value("revoke") {
        Some(id) => Some(Sheet::of(&find(&app, &asked, &id).await?, None)),
        None => None,
    };
    let is_new = sheet.is_none() && asked.query_value("new").is_some();
    Ok(html(&Page { notice, sheet, is_new, ..Page::new(&app, &asked).await? }))
}

/// The answer shows the token, which is kept nowhere: there is no page to lead to.
pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    sees_all(&asked)?;
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let page = Page { is_new: true, ..Page::new(&app, &asked).await? };
    let watched = watched(&app, &asked, page.chain).await?;
    let expires_at = match last_day(page.expires) {
        Ok(expires_at) => expires_at,
        Err(problem) => return wrong(Page { expires_error: Some(problem.into()), ..page }),
    };
    let Some(form) = Uuid::parse(asked.field("form")) else {
        return wrong(Page { error: Some(INCOMPLETE), ..page });
    };
    let input = MonitorTokenInput { name: page.name.trim().into(), expires_at, form: Some(form) };
    let actor = Actor::Person(asked.person().person.id);
    match app.service.admin.create_monitor_token(actor, watched, input).await {
        Ok(created) => Ok(html(&Page { created: Some(created), ..Page::new(&app, &asked).await? })),
        Err(AdminError::Field(FieldError { field, .. })) if field == FORM => {
            wrong(Page { error: Some(SENT), is_new: false, ..page })
        }
        Err(AdminError::Field(FieldError { field, problem })) => {
            let problem = Some(format!("It {problem}."));
            wrong(match field.as_str() {
                "expires_at" => Page { expires_error: problem, ..page },
                _ => Page { name_error: problem, ..page },
            })
        }
        Err(error) => Err(of_admin(error)),
    }
}

/// A project of another organisation is like one that does not exist.
async fn watched(app: &Dashboard, asked: &Asked, chain: &str) -> Result<Watched, Problem> {
    let tenant_id = asked.place().tenant.id;
    if chain == SYSTEM {
        return Ok(Watched::SystemChain(tenant_id));
    }
    let id = Uuid::parse(chain).map(ProjectId).ok_or(Problem::not_found())?;
    let project = app.service.control.project(id).await.map_err(of_control)?;
    let project = project.filter(|project| project.tenant_id == tenant_id).ok_or(Problem::not_found())?;
    Ok(Watched::Project(project.id))
}

/// A token of another organisation is like one that does not exist.
async fn find(app: &Dashboard, asked: &Asked, id: &str) -> Result<MonitorToken, Problem> {
    let id = MonitorTokenId(Uuid::parse(id).ok_or(Problem::not_found())?);
    let token = app.service.control.monitor_token(id).await.map_err(of_control)?;
    token.filter(|token| token.tenant_id == asked.place().tenant.id).ok_or(Problem::not_found())
}

/// The owner types the name: it cannot be taken back.
pub(crate) async fn revoke(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    sees_all(&asked)?;
    let token = find(&app, &asked, asked.field("token")).await?;
    if asked.field("name").trim() != token.name.trim() {
        let error = format!("To revoke the token, type its name: {}", visible(&token.name));
        let sheet = Some(Sheet::of(&token, Some(error)));
        let page = Page { sheet, ..Page::new(&app, &asked).await? };
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let actor = Actor::Person(asked.person().person.id);
    app.service.admin.revoke_monitor_token(actor, token.id).await.map_err(of_admin)?;
    Ok(see_other(&format!("/app/o/{}/monitor-tokens?done=revoke", asked.place().tenant.id)))
}
