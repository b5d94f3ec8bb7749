//! `GET /v1/actions`. Spec 4.6.

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::catalog::{Catalog, CustomAction, Entry};
use sealog_core::id::RequestId;
use sealog_store::pool::Lane;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::respond::{self, Body, Failure};

/// What a value costs in memory while an answer is put together, beside its text.
const VALUE_BYTES: usize = 128;

pub(crate) async fn get(
    app: &App,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    if !headers.contains_key(AUTHORIZATION) {
        return Ok(respond::json(StatusCode::OK, everyones()));
    }
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    let bytes = everyones().len() + caller.producer.custom.values().map(custom_bytes).sum::<usize>();
    let tenant_id = caller.chain().tenant_id;
    // Values and text are there at the same time.
    let share = app.reads.take(tenant_id, 2 * bytes).await;
    let share = share.map_err(|exhausted| Failure::internal(&exhausted, request_id))?;
    let answer =
        app.service.store.pool().run(Lane::Compute, tenant_id, bytes, move || answer(&for_caller(&caller)));
    let answer = answer.await.map_err(|_| Failure::internal(&"the store is shutting down", request_id))?;
    Ok(respond::large_json(StatusCode::OK, answer, share))
}

/// The whole catalog, for those without a key. It never changes, so it is made once.
fn everyones() -> Bytes {
    static ANSWER: OnceLock<Bytes> = OnceLock::new();
    let entries = Catalog::builtin().entries.iter().map(|entry| entry_json(entry, None));
    let make = || answer(&entries.collect::<Vec<_>>());
    ANSWER.get_or_init(|| Bytes::from(make())).clone()
}

fn answer(actions: &[Value]) -> Vec<u8> {
    let total = actions.len();
    json!({ "actions": actions, "total": total }).to_string().into_bytes()
}

fn custom_bytes(action: &CustomAction) -> usize {
    let texts = [&action.action].into_iter().chain(&action.required_fields).chain(&action.optional_fields);
    let optional = [&action.description, &action.category].into_iter().flatten();
    texts.chain(optional).map(|text| VALUE_BYTES + text.len()).sum::<usize>() + 8 * VALUE_BYTES
}

/// Core actions, those of frameworks that any of the tenant's projects has enabled, and the tenant's own.
fn for_caller(caller: &Caller) -> Vec<Value> {
    let catalog = Catalog::builtin();
    let in_plan = caller.producer.in_plan;
    let mut actions = Vec::new();
    for entry in &catalog.entries {
        let frameworks = catalog.frameworks_of(entry);
        if !entry.gated || frameworks.intersects(caller.tenant_enabled) {
            actions.push(entry_json(entry, Some(!entry.gated || frameworks.intersects(in_plan))));
        }
    }
    let mut custom: Vec<_> = caller.producer.custom.values().collect();
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
