//! `GET /v1/actions`. Spec 4.6.

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::catalog::{Catalog, CustomAction, Entry};
use sealog_core::id::RequestId;
use serde_json::{Value, json};

use crate::App;
use crate::auth::{self, Caller};
use crate::respond::{self, Body, Failure};

pub(crate) async fn get(
    app: &App,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let actions = if headers.contains_key(AUTHORIZATION) {
        let caller = auth::authenticate(app, headers, request_id).await?;
        for_caller(&caller)
    } else {
        Catalog::builtin().entries.iter().map(|entry| entry_json(entry, None)).collect()
    };
    let total = actions.len();
    let body = json!({ "actions": actions, "total": total }).to_string();
    Ok(respond::json(StatusCode::OK, body))
}

/// Core actions, those of frameworks that any of the tenant's projects has enabled, and the tenant's own.
fn for_caller(caller: &Caller) -> Vec<Value> {
    let catalog = Catalog::builtin();
    let in_plan = caller.scope().in_plan;
    let mut actions = Vec::new();
    for entry in &catalog.entries {
        let frameworks = catalog.frameworks_of(entry);
        if !entry.gated || frameworks.intersects(caller.tenant_enabled) {
            actions.push(entry_json(entry, Some(!entry.gated || frameworks.intersects(in_plan))));
        }
    }
    let mut custom: Vec<_> = caller.custom.values().collect();
    custom.sort_by_key(|action| &action.action);
    actions.extend(custom.into_iter().map(custom_json));
    actions
}

fn entry_json(entry: &Entry, subscribed: Option<bool>) -> Value {
    let mut value = json!({
        "action": entry.action,
        "category": entry.category,
        "description": entry.description,
        "frameworks": entry.frameworks,
        "required_fields": entry.required_fields,
        "optional_fields": entry.optional_fields,
    });
    if let Some(subscribed) = subscribed {
        value["subscribed"] = subscribed.into();
    }
    value
}

fn custom_json(action: &CustomAction) -> Value {
    let mut value = json!({
        "action": action.action,
        "description": action.description.as_deref().unwrap_or(""),
        "frameworks": [],
        "required_fields": action.required_fields,
        "optional_fields": action.optional_fields,
        "subscribed": true,
    });
    if let Some(category) = &action.category {
        value["category"] = category.as_str().into();
    }
    value
}
