//! The system log: what operators and people have done, each in a sentence with the person's address. The
//! chain has ids alone; addresses are looked up when a page is shown, among those of the organisation.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{ListPage, PersonId, Project};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::json;
use sealog_service::evidence::search::{Plan, Query};
use sealog_service::records::system_chain::actions;
use serde_json::{Value, json};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::found;
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::{moment, visible};
use crate::views;

/// Members that the filter offers; others are filtered by a link in their row.
const MEMBERS_OFFERED: usize = 100;
/// Actors that are no member, as events name them and as people read them.
const OTHERS: [(&str, &str); 3] =
    [("operator", "Operator (API)"), ("host", "Command on the server"), ("system", "Sealog")];

#[derive(Template)]
#[template(path = "pages/system_log.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    /// The same chain with its search, and its verification.
    events: String,
    verify: String,
    rows: Vec<Row>,
    older: Option<String>,
    person: String,
    /// Value and name.
    people: Vec<(String, String)>,
}

struct Row {
    href: String,
    seq: u64,
    when: String,
    who: String,
    only: String,
    sentence: String,
    about: String,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (place, tenant_id) = (asked.place(), asked.place().tenant.id);
    // Who is limited to projects sees nothing of the organisation as a whole.
    if place.membership.grants.projects.is_some() {
        return Err(Problem::not_found());
    }
    let project_id = project(&app, tenant_id).await?;
    let here = format!("/app/o/{tenant_id}/system-log");
    let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
    let person = asked.query_value("person").unwrap_or_default();
    if !person.is_empty() && !is_actor(&app, tenant_id, &person).await? {
        return Err(Problem::not_found());
    }
    let text = if person.is_empty() { String::new() } else { format!("actor:{person}") };
    let query = Query::parse(&text).map_err(|_| Problem::not_found())?;
    let before = asked.query_value("before").map(|seq| seq.parse::<u64>().map_err(|_| Problem::not_found()));
    let before = before.transpose()?;
    let plan = Plan::new(&query, app.service.world.now_ms());
    let found = found::find(&app, chain, plan, before, &place.membership.grants).await?;
    let known = addresses(&app, tenant_id, &found.events).await?;
    let events = format!("/app/p/{project_id}/live/events");
    let row = |event: &StoredEvent| row(&here, &events, event, &known, &place.projects);
    let rows: Vec<Row> = found.events.iter().map(row).collect();
    let members = app.service.control.members(tenant_id, ListPage { after: None, limit: MEMBERS_OFFERED });
    let mut people: Vec<(String, String)> = members
        .await
        .map_err(of_control)?
        .into_iter()
        .map(|member| (member.person.id.0.to_string(), visible(&member.person.email)))
        .collect();
    people.extend(OTHERS.map(|(value, name)| (value.to_owned(), name.to_owned())));
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::SystemLog)),
        older: found.resume.map(|seq| format!("{here}?person={person}&before={seq}")),
        verify: events.replace("/events", "/verify"),
        events: events.clone(),
        rows,
        people,
        person,
        here: here.clone(),
    };
    let metadata = json!({ "page": "system_log", "before": before });
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &format!("project/{project_id}"), metadata).await?;
    Ok(html(&page))
}

/// A member of the organisation, or one of the others.
async fn is_actor(app: &Dashboard, tenant_id: TenantId, person: &str) -> Result<bool, Problem> {
    if OTHERS.iter().any(|(value, _)| *value == person) {
        return Ok(true);
    }
    let Some(id) = Uuid::parse(person).filter(|id| id.to_string() == person).map(PersonId) else {
        return Ok(false);
    };
    Ok(app.service.control.member(tenant_id, id).await.map_err(of_control)?.is_some())
}

/// Of the people whom a page of events names.
async fn addresses(
    app: &Dashboard,
    tenant_id: TenantId,
    events: &[StoredEvent],
) -> Result<HashMap<PersonId, String>, Problem> {
    let named = events.iter().flat_map(|event| {
        let fields = event.text.fields();
        let member = fields.resource.and_then(json::decode).and_then(|text| member_of(&text));
        [fields.actor_id.and_then(json::decode).and_then(|text| Uuid::parse(&text)).map(PersonId), member]
    });
    let mut ids: Vec<PersonId> = named.flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    let known = app.service.control.member_addresses(tenant_id, ids).await.map_err(of_control)?;
    Ok(known.into_iter().map(|(id, email)| (id, visible(&email))).collect())
}

fn member_of(resource: &str) -> Option<PersonId> {
    resource.strip_prefix("member/").and_then(Uuid::parse).map(PersonId)
}

fn row(
    here: &str,
    events: &str,
    event: &StoredEvent,
    known: &HashMap<PersonId, String>,
    projects: &[Project],
) -> Row {
    let fields = event.text.fields();
    let text = |field: Option<&str>| field.and_then(json::decode).unwrap_or_default();
    let (action, actor, resource) = (text(Some(fields.action)), text(fields.actor_id), text(fields.resource));
    let person = Uuid::parse(&actor).map(PersonId);
    let other = OTHERS.iter().find(|(value, _)| *value == actor);
    let who = match (person.and_then(|id| known.get(&id)), other) {
        (Some(email), _) => email.clone(),
        (None, Some((_, name))) => (*name).to_owned(),
        // Operators of the console have ids as well, and no address that an organisation sees.
        (None, None) if person.is_some() => "Operator".to_owned(),
        (None, None) => visible(&actor),
    };
    let metadata: Value =
        fields.metadata.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let named = metadata["name"].as_str().map(visible);
    let member = member_of(&resource).and_then(|id| known.get(&id).cloned());
    let is_self = member_of(&resource).is_some_and(|id| Some(id) == person);
    let project = projects.iter().find(|project| metadata["project_id"] == project.id.to_string());
    let chain = project.map(|project| match metadata["mode"].as_str() {
        Some(mode) => format!("{} ({})", visible(&project.name), visible(mode)),
        None => visible(&project.name),
    });
    let subject = named.or(member.filter(|_| !is_self));
    let about = [subject, chain].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let is_known = other.is_some() || person.is_some_and(|id| known.contains_key(&id));
    Row {
        href: format!("{events}/{}", event.sealed.log_id),
        seq: event.sealed.chain_seq,
        when: moment(event.sealed.timestamp_ms()),
        who,
        only: if is_known { format!("{here}?person={actor}") } else { String::new() },
        sentence: actions::find(&action)
            .map_or_else(|| visible(&action), |known| known.description.to_owned()),
        about,
    }
}

/// The project of the chain. One that has none yet gets one: its first event may be that somebody looks.
pub(crate) async fn project(app: &Dashboard, tenant_id: TenantId) -> Result<ProjectId, Problem> {
    let mut random = [0; 16];
    app.service.world.fill_random(&mut random);
    let reserved = app.service.control.system_project(tenant_id, ProjectId::system_from_random(random));
    reserved.await.map_err(of_control)?.ok_or(Problem::not_found())
}
