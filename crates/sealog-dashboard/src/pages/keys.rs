//! API keys of an organisation: what they are for and what state they are in, never the keys themselves.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{ApiKey, KeyId, ListPage, PersonId, Project};
use sealog_core::id::{Mode, ProjectId, Uuid};
use sealog_core::time::{Date, iso_ms};
use sealog_service::people::admin::key_policy::KeyPolicy;
use sealog_service::people::admin::keys::{CreatedKey, FORM, KeyInput, RollInput};
use sealog_service::people::admin::{Actor, AdminError, FieldError};
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, Place, html, html_with, see_other};
use crate::text::{day, minute, number, visible};
use crate::views;

/// Keys stay listed for ever: a page has so many, and older ones are on the next.
const KEYS_ON_PAGE: usize = 100;

const HOUR_MS: u64 = 60 * 60 * 1000;
/// How long a key can work beside the one in its place: hours, and how they are called.
const OVERLAPS: [(u64, &str); 5] = [
    (24, "24 hours"),
    (1, "1 hour"),
    (7 * 24, "7 days"),
    (30 * 24, "30 days"),
    (0, "no time (revoke it now)"),
];

const SENT: &str =
    "This form has already created its key, which was shown once. If you lost the key, roll it.";
const INCOMPLETE: &str = "The form was incomplete. Reload the page and try again.";
const GONE: &str = "This key no longer works or is already being replaced.";

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
    error: Option<&'static str>,
    /// A key that is about to be revoked or rolled.
    sheet: Option<Sheet>,
    /// A key is about to be created.
    is_new: bool,
    /// Names the forms of this page: each makes one key, however often it is sent.
    form: Uuid,
    /// Shown this once.
    created: Option<CreatedKey>,
    may_create: bool,
    /// Where monitor tokens are, for those who may have them.
    monitor_tokens: Option<String>,
    may_create_live: bool,
    projects: Vec<(String, String)>,
    name: &'a str,
    project: String,
    mode: &'a str,
    expires: &'a str,
    /// What the organisation has set for its keys.
    policy: KeyPolicy,
    /// Where the policy is set, for those who may.
    settings: Option<String>,
    name_error: Option<String>,
    mode_error: Option<String>,
    expires_error: Option<String>,
}

struct Row {
    name: String,
    prefix: String,
    project: String,
    mode: &'static str,
    created: String,
    created_by: String,
    last_used: String,
    requests: String,
    expires: String,
    state: State,
    /// Where it is revoked and rolled, for those who may.
    revoke: Option<String>,
    roll: Option<String>,
}

/// What is to be done to a key, with what follows from it.
struct Sheet {
    is_roll: bool,
    id: String,
    name: String,
    prefix: String,
    last_used: String,
    requests: String,
    expires: String,
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    /// Also of a monitor token.
    pub(crate) fn of(revoked_at_ms: Option<u64>, expires_at_ms: Option<u64>, now_ms: u64) -> State {
        match (revoked_at_ms, expires_at_ms) {
            (Some(_), _) => State::Revoked,
            (None, Some(end)) if end <= now_ms => State::Expired,
            _ => State::Active,
        }
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, now_ms) = (asked.place(), app.service.world.now_ms());
        let here = format!("/app/o/{}/keys", place.tenant.id);
        // Behind the key of another organisation there is nothing.
        let before = asked.query_value("before").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let before = before.transpose()?;
        let at = before.map(|before| format!("before={before}&")).unwrap_or_default();
        // One more than is shown tells whether there are older ones.
        let page = ListPage { after: before, limit: KEYS_ON_PAGE + 1 };
        let granted = place.membership.grants.projects.clone();
        let keys = app.service.control.keys_of_tenant(place.tenant.id, granted, page).await;
        let mut keys = keys.map_err(of_control)?;
        let are_more = keys.len() > KEYS_ON_PAGE;
        keys.truncate(KEYS_ON_PAGE);
        let last = keys.last().filter(|_| are_more);
        let older = last.map(|(key, _)| format!("{here}?before={}", key.id.0));
        let (ids, makers) =
            keys.iter().map(|(key, _)| (key.id, key.created_by)).unzip::<_, _, Vec<_>, Vec<_>>();
        let makers = makers.into_iter().flatten().collect();
        let makers =
            app.service.control.member_addresses(place.tenant.id, makers).await.map_err(of_control)?;
        let requests = app.service.control.key_requests(ids, now_ms).await.map_err(of_control)?;
        let row = |(key, project): &(ApiKey, String)| {
            let state = State::of(key.revoked_at_ms, key.expires_at_ms, now_ms);
            let may_change = state == State::Active && place.may(needed(key.mode));
            let change = |what: &str| format!("{here}?{at}{what}={}", key.id.0);
            Row {
                name: shown_name(key, state),
                prefix: key.prefix.clone(),
                project: visible(project),
                mode: key.mode.as_str(),
                created: day(key.created_at_ms),
                created_by: key
                    .created_by
                    .map_or_else(|| "Operator".into(), |id| name_of_person(&makers, id)),
                last_used: key.last_used_at_ms.map_or("Never".into(), minute),
                requests: number(
                    requests.iter().find(|(id, _)| *id == key.id).map_or(0, |(_, count)| *count),
                ),
                expires: key.expires_at_ms.map_or("Never".into(), day),
                state,
                revoke: may_change.then(|| change("revoke")),
                roll: (may_change && key.replaced_by.is_none()).then(|| change("roll")),
            }
        };
        let rows = keys.iter().map(row).collect();
        let name_of = |project: &Project| (project.id.to_string(), visible(&project.name));
        let mut projects: Vec<(String, String)> = place.projects.iter().map(name_of).collect();
        // The list has the first ones; a link from the projects page may lead to one behind them.
        let asked_for = asked.query_value("project").unwrap_or_default();
        let wanted = if asked.form.is_empty() { asked_for } else { asked.field("project").to_owned() };
        if !projects.iter().any(|(id, _)| *id == wanted)
            && let Some(project) = find_project(app, place, &wanted).await?
        {
            projects.push(name_of(&project));
        }
        let policy = app.service.admin.key_policy(&place.tenant).await.map_err(of_admin)?;
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Keys)),
            here,
            base_url: &app.config.base_url,
            rows,
            older,
            notice: None,
            error: None,
            sheet: None,
            is_new: false,
            form: new_form(app),
            created: None,
            may_create: place.may(Capability::TestKeys),
            monitor_tokens: place
                .may(Capability::MonitorTokens)
                .then(|| format!("/app/o/{}/monitor-tokens", place.tenant.id)),
            may_create_live: place.may(Capability::LiveKeys),
            projects,
            name: asked.field("name"),
            project: wanted,
            mode: asked.field("mode"),
            expires: asked.field("expires"),
            policy,
            settings: place
                .may(Capability::ManageSettings)
                .then(|| format!("/app/o/{}/settings#security", place.tenant.id)),
            name_error: None,
            mode_error: None,
            expires_error: None,
        })
    }
}

/// A key that another takes the place of is told apart from it: both have the name.
fn shown_name(key: &ApiKey, state: State) -> String {
    let name = visible(&key.name);
    match key.expires_at_ms.filter(|_| state == State::Active && key.replaced_by.is_some()) {
        Some(end) => format!("{name} (old, until {})", day(end)),
        None => name,
    }
}

pub(crate) fn name_of_person(known: &[(PersonId, String)], id: PersonId) -> String {
    let found = known.iter().find(|(known, _)| *known == id);
    found.map_or_else(|| "Former member".into(), |(_, email)| visible(email))
}

pub(crate) fn new_form(app: &Dashboard) -> Uuid {
    let mut bytes = [0; 16];
    app.service.world.fill_random(&mut bytes);
    Uuid::from_random(bytes)
}

async fn sheet(app: &Dashboard, key: &ApiKey, is_roll: bool) -> Result<Sheet, Problem> {
    let now_ms = app.service.world.now_ms();
    let requests = app.service.control.key_requests(vec![key.id], now_ms).await.map_err(of_control)?;
    Ok(Sheet {
        is_roll,
        id: key.id.0.to_string(),
        name: visible(&key.name),
        prefix: key.prefix.clone(),
        last_used: key.last_used_at_ms.map_or("Never".into(), minute),
        requests: number(requests.first().map_or(0, |(_, count)| *count)),
        expires: String::new(),
        error: None,
    })
}

/// One that the person may see. Of another organisation, or not granted, it is like one that does not exist.
async fn find_project(app: &Dashboard, place: &Place, id: &str) -> Result<Option<Project>, Problem> {
    let Some(id) = Uuid::parse(id).map(ProjectId) else { return Ok(None) };
    if place.membership.grants.projects.as_ref().is_some_and(|granted| !granted.contains(&id)) {
        return Ok(None);
    }
    let found = app.service.control.project(id).await.map_err(of_control)?;
    Ok(found.filter(|project| project.tenant_id == place.tenant.id))
}

fn needed(mode: Mode) -> Capability {
    match mode {
        Mode::Live => Capability::LiveKeys,
        Mode::Test => Capability::TestKeys,
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("revoke") => Some("Key revoked. Requests with it are rejected from now on."),
        _ => None,
    };
    let wanted = ["roll", "revoke"].map(|what| asked.query_value(what));
    let sheet = match &wanted {
        [Some(id), _] => Some(sheet(&app, &find_key(&app, &asked, id).await?, true).await?),
        [None, Some(id)] => Some(sheet(&app, &find_key(&app, &asked, id).await?, false).await?),
        [None, None] => None,
    };
    let page = Page::new(&app, &asked).await?;
    let is_new = page.may_create && sheet.is_none() && asked.query_value("new").is_some();
    let page = Page { notice, sheet, is_new, ..page };
    let resource = format!("organisation/{}", asked.place().tenant.id);
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "keys" })).await?;
    Ok(html(&page))
}

/// The answer shows the key, which nothing keeps: there is no page to lead to.
pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let page = Page { is_new: true, ..Page::new(&app, &asked).await? };
    let Some(mode) = Mode::ALL.into_iter().find(|mode| mode.as_str() == page.mode) else {
        return wrong(Page { mode_error: Some("Choose a mode.".into()), ..page });
    };
    if !place.may(needed(mode)) {
        return Err(Problem::not_allowed());
    }
    let project = find_project(&app, place, &page.project).await?;
    let project_id = project.ok_or(Problem::not_found())?.id;
    let expires_at = match last_day(page.expires) {
        Ok(expires_at) => expires_at,
        Err(problem) => return wrong(Page { expires_error: Some(problem.into()), ..page }),
    };
    let Some(form) = Uuid::parse(asked.field("form")) else {
        return wrong(Page { error: Some(INCOMPLETE), ..page });
    };
    let (name, mode) = (page.name.trim().into(), mode.as_str().into());
    let input = KeyInput { name, mode, expires_at, form: Some(form) };
    let actor = Actor::Person(asked.person().person.id);
    match app.service.admin.create_key(actor, project_id, input).await {
        Ok(created) => Ok(html(&Page { created: Some(created), ..Page::new(&app, &asked).await? })),
        Err(AdminError::Field(FieldError { field, .. })) if field == FORM => {
            wrong(Page { error: Some(SENT), is_new: false, ..page })
        }
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

/// The end of a day as an input of the service, nothing for no end.
pub(crate) fn last_day(text: &str) -> Result<Option<String>, &'static str> {
    if text.is_empty() {
        return Ok(None);
    }
    let date = Date::parse(text).ok_or("Use the format YYYY-MM-DD.")?;
    Ok(Some(iso_ms(date.end_ms())))
}

/// A key that the person may see and change. Of another organisation, or of a project that is not granted, it
/// is like one that does not exist.
async fn find_key(app: &Dashboard, asked: &Asked, id: &str) -> Result<ApiKey, Problem> {
    let place = asked.place();
    let id = KeyId(Uuid::parse(id).ok_or(Problem::not_found())?);
    let found = app.service.control.key(id).await.map_err(of_control)?;
    let is_seen = |key: &ApiKey| {
        place.membership.grants.projects.as_ref().is_none_or(|granted| granted.contains(&key.project_id))
    };
    let key = found.filter(|(tenant_id, key)| *tenant_id == place.tenant.id && is_seen(key));
    let (_, key) = key.ok_or(Problem::not_found())?;
    if place.may(needed(key.mode)) { Ok(key) } else { Err(Problem::not_allowed()) }
}

/// A new key in place of one that works, which works on for as long as was chosen. The answer shows the new
/// key.
pub(crate) async fn roll(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let key = find_key(&app, &asked, asked.field("key")).await?;
    let page = Page::new(&app, &asked).await?;
    let sheet = sheet(&app, &key, true).await?;
    let wrong = |error: String, page| {
        let sheet = Some(Sheet { error: Some(error), expires: asked.field("expires").to_owned(), ..sheet });
        Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { sheet, ..page }))
    };
    let Some(form) = Uuid::parse(asked.field("form")) else { return wrong(INCOMPLETE.into(), page) };
    let overlap = OVERLAPS.into_iter().find(|(hours, _)| hours.to_string() == asked.field("overlap"));
    let Some((hours, _)) = overlap else {
        return wrong("Choose how long the old key keeps working.".into(), page);
    };
    let expires_at = match last_day(page.expires) {
        Ok(expires_at) => expires_at,
        Err(problem) => return wrong(format!("Expiry of the new key: {problem}"), page),
    };
    let actor = Actor::Person(asked.person().person.id);
    let input = RollInput { overlap_ms: hours * HOUR_MS, expires_at, form: Some(form) };
    match app.service.admin.roll_key(actor, key.id, input).await {
        Ok(created) => Ok(html(&Page { created: Some(created), ..Page::new(&app, &asked).await? })),
        Err(AdminError::Field(FieldError { field, .. })) if field == FORM => {
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error: Some(SENT), ..page }))
        }
        Err(AdminError::Field(error)) => wrong(format!("The new key: {error}."), page),
        Err(AdminError::NotFound) => wrong(GONE.into(), page),
        Err(error) => Err(of_admin(error)),
    }
}

/// Whoever revokes types the name: it cannot be taken back.
pub(crate) async fn revoke(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let key = find_key(&app, &asked, asked.field("key")).await?;
    if asked.field("name").trim() != key.name.trim() {
        let error = Some(format!("To revoke the key, type its name: {}", visible(&key.name)));
        let sheet = Some(Sheet { error, ..sheet(&app, &key, false).await? });
        let page = Page { sheet, ..Page::new(&app, &asked).await? };
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let actor = Actor::Person(asked.person().person.id);
    app.service.admin.revoke_key(actor, key.id).await.map_err(of_admin)?;
    Ok(see_other(&format!("/app/o/{}/keys?done=revoke", asked.place().tenant.id)))
}
