//! One action: its fields, what it serves, and an event that has it.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::KnownAction;
use sealog_core::catalog::{Catalog, Entry};
use sealog_service::people::admin::Actor;
use sealog_service::records::system_chain::actions::PAGE_VIEWED;
use serde_json::{Map, Value, json};

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, see_other};
use crate::text::{moment, visible};
use crate::views;

#[derive(Template)]
#[template(path = "pages/action.html")]
struct Page<'a> {
    shell: Shell<'a>,
    actions: String,
    /// As it is sent.
    name: String,
    action: String,
    description: String,
    category: String,
    severity: String,
    required: Vec<String>,
    optional: Vec<String>,
    /// Label, whether it requires the action, and the clause.
    frameworks: Vec<(String, bool, String)>,
    is_gated: bool,
    is_custom: bool,
    retired: Option<String>,
    may_retire: bool,
    sample: String,
    curl: String,
    notice: Option<&'static str>,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let actions = format!("/app/o/{}/actions", place.tenant.id);
    let Some(name) = asked.query_value("action") else { return Ok(see_other(&actions)) };
    let page = match Catalog::builtin().entry(&name) {
        Some(entry) => of_entry(&app, &asked, actions, entry),
        None => {
            let known = app.service.control.known_actions(place.tenant.id).await.map_err(of_control)?;
            let known = known.into_iter().find(|known| known.action.action == name);
            of_custom(&app, &asked, actions, known.ok_or(Problem::not_found())?)
        }
    };
    let resource = format!("organisation/{}", place.tenant.id);
    let metadata = json!({ "page": "actions/entry", "action": name });
    views::seal(&app, &asked, &PAGE_VIEWED, &resource, metadata).await?;
    let created = asked.query_value("done").is_some();
    let notice = created.then_some("Action registered. All projects can use it now.");
    Ok(html(&Page { notice, ..page }))
}

fn of_entry<'a>(app: &'a Dashboard, asked: &'a Asked, actions: String, entry: &Entry) -> Page<'a> {
    let framework = |of: &sealog_core::catalog::EntryFramework| {
        let clause = entry.clauses.get(&of.framework).cloned().unwrap_or_default();
        (of.label.clone(), of.is_required, clause)
    };
    let sample = sample(&entry.action, &entry.required_fields);
    Page {
        shell: Shell::new(app, asked, Some(Current::Actions)),
        actions,
        name: entry.action.clone(),
        action: visible(&entry.action),
        description: entry.description.clone(),
        category: entry.category.clone(),
        severity: entry.severity.clone(),
        required: entry.required_fields.clone(),
        optional: entry.optional_fields.clone(),
        frameworks: entry.frameworks.iter().map(framework).collect(),
        is_gated: entry.gated,
        is_custom: false,
        retired: None,
        may_retire: false,
        curl: curl(app, &sample),
        sample: pretty(&sample),
        notice: None,
    }
}

fn of_custom<'a>(app: &'a Dashboard, asked: &'a Asked, actions: String, known: KnownAction) -> Page<'a> {
    let KnownAction { action, retired_at_ms } = known;
    let sample = sample(&action.action, &action.required_fields);
    let shown = |texts: &[String]| texts.iter().map(|text| visible(text)).collect();
    Page {
        shell: Shell::new(app, asked, Some(Current::Actions)),
        actions,
        action: visible(&action.action),
        description: visible(action.description.as_deref().unwrap_or("")),
        category: visible(action.category.as_deref().unwrap_or("")),
        severity: visible(action.severity.as_deref().unwrap_or("")),
        required: shown(&action.required_fields),
        optional: shown(&action.optional_fields),
        frameworks: Vec::new(),
        is_gated: false,
        is_custom: true,
        retired: retired_at_ms.map(moment),
        may_retire: retired_at_ms.is_none() && asked.place().may(Capability::ManageActions),
        curl: curl(app, &sample),
        sample: pretty(&sample),
        notice: None,
        name: action.action,
    }
}

/// An event that has the action and what it requires.
fn sample(action: &str, required: &[String]) -> Value {
    let mut event = json!({ "action": action, "actor_id": "usr_42", "resource": "document/9" });
    if !required.is_empty() {
        let fields = required.iter().map(|field| (field.clone(), Value::from("example")));
        event["metadata"] = Value::Object(fields.collect::<Map<_, _>>());
    }
    event
}

fn pretty(sample: &Value) -> String {
    serde_json::to_string_pretty(sample).unwrap_or_default()
}

/// A command that any shell takes as it stands.
fn curl(app: &Dashboard, sample: &Value) -> String {
    let body = sample.to_string().replace('\'', "'\\''");
    format!(
        "curl -sS -i {}/v1/events \\\n  -H \"Authorization: Bearer $SEALOG_API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'",
        app.config.base_url
    )
}

/// From now on events with it are refused. Those that exist keep its name.
pub(crate) async fn retire(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let tenant_id = asked.place().tenant.id;
    let actor = Actor::Person(asked.person().person.id);
    let action = asked.field("action").to_owned();
    app.service.admin.retire_action(actor, tenant_id, action).await.map_err(of_admin)?;
    Ok(see_other(&format!("/app/o/{tenant_id}/actions?kind=custom&done=retire")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use sealog_core::catalog::{FrameworkSet, Scope};

    use super::*;

    #[test]
    fn the_sample_of_every_action_is_an_event_that_is_accepted() {
        let (all, custom) = (FrameworkSet::ALL, HashMap::new());
        let scope = Scope { enabled: all, ever_enabled: all, in_plan: all, custom: &custom };
        for entry in &Catalog::builtin().entries {
            let sample = sample(&entry.action, &entry.required_fields);
            assert!(matches!(sealog_core::event::parse_single(sample.to_string().as_bytes()), Ok(Ok(_))));
            let metadata = sample.get("metadata").map(Value::to_string);
            let admitted = Catalog::builtin().admit(&entry.action, metadata.as_deref(), scope);
            assert!(admitted.is_ok(), "{}: {admitted:?}", entry.action);
        }
    }
}
