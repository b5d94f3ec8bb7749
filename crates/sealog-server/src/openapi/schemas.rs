//! The shapes of bodies. What a client sends is as strict as the parser; what it receives may grow, so
//! objects in answers are open.

use sealog_control::Role;
use sealog_core::catalog::Catalog;
use sealog_core::event::{BATCH_EVENTS_MAX, FIELD_SCALARS_MAX, FIELDS, INPUTS, SCHEMA_VERSION};
use sealog_core::id::{Hash, Mode, Ulid};
use sealog_core::plan::Plan;
use sealog_core::reject::CODES;
use sealog_formats::input::ITEMS_MAX;
use sealog_service::ingest::adapters::ERRORS_MAX;
use sealog_service::people::admin::fields::{TEXT_CHARACTERS_MAX, TEXTS_MAX};
use sealog_service::people::password;
use serde_json::{Map, Value, json};

use crate::ready::REASONS;

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn all(plans: &[Plan]) -> Value {
    let plan: Value = plans.iter().map(|plan| plan.name.as_str()).collect();
    let frameworks: Value =
        Catalog::builtin().frameworks.iter().map(|framework| framework.framework.as_str()).collect();
    let frameworks = json!({ "type": "array", "items": { "type": "string", "enum": frameworks } });
    let mode = json!({ "type": "string", "enum": Mode::ALL.map(Mode::as_str) });
    let role = json!({ "type": "string", "enum": Role::ALL.map(Role::as_str) });
    let texts = json!({ "type": "array", "items": text() });
    let tenant_input = json!({
        "name": name(),
        "plan": { "type": "string", "enum": plan },
        "contact_email": nullable(email()),
        "trial_ends_at": nullable(time()),
        "billing_active": nullable(json!({ "type": "boolean" })),
    });
    let mut tenant_change = tenant_input.clone();
    tenant_change["rate_limit_rps"] = rate();
    let mut new_tenant = tenant_input;
    new_tenant["plan"] = json!({ "type": ["string", "null"], "enum": with_null(&plan) });
    let key = json!({
        "key_id": uuid(),
        "project_id": uuid(),
        "name": name(),
        "mode": mode,
        "prefix": { "type": "string", "description": "The key's first characters, to tell keys apart." },
        "expires_at": nullable(time()),
        "revoked_at": nullable(time()),
        "last_used_at": nullable(time()),
        "created_at": time(),
    });
    let mut created_key = key.clone();
    created_key["key"] = json!({ "type": "string", "description": "The key itself. It is not shown again." });
    let promoted = "How often a copy of this store was promoted.";
    let epoch = json!({ "epoch": { "type": "integer", "minimum": 0, "description": promoted } });
    let custom_action = json!({
        "action": name(),
        "description": nullable(text()),
        "category": nullable(text()),
        "severity": nullable(text()),
        "required_fields": texts,
        "optional_fields": texts,
    });
    let mut new_action = custom_action.clone();
    let few_texts = json!({ "type": "array", "maxItems": TEXTS_MAX, "items": text() });
    new_action["required_fields"] = nullable(few_texts.clone());
    new_action["optional_fields"] = nullable(few_texts);
    let mut all = json!({
        "Event": event(),
        "Batch": {
            "type": "object",
            "required": ["events"],
            "properties": { "events": { "type": "array", "minItems": 1, "maxItems": BATCH_EVENTS_MAX, "items": reference("Event") } },
        },
        "EventAccepted": answer(&json!({ "log_id": ulid(), "request_id": request_id() }), &[]),
        "BatchAccepted": answer(
            &json!({ "log_ids": { "type": "array", "minItems": 1, "maxItems": BATCH_EVENTS_MAX, "items": ulid() }, "request_id": request_id() }),
            &[],
        ),
        "Events": { "type": "array", "minItems": 1, "maxItems": ITEMS_MAX, "items": reference("Event") },
        "CloudEvents": { "type": "array", "minItems": 1, "maxItems": ITEMS_MAX, "items": {
            "type": "object",
            "required": ["specversion", "id", "source", "type"],
            "properties": {
                "specversion": { "type": "string", "const": "1.0" },
                "id": not_empty(),
                "source": not_empty(),
                "type": { "type": "string", "minLength": 1, "description": "The action, with or without `dev.sealog.` before it." },
                "subject": { "type": "string", "maxLength": FIELD_SCALARS_MAX, "description": "The resource." },
                "authid": { "type": "string", "maxLength": FIELD_SCALARS_MAX, "description": "The actor." },
                "data": { "type": "object", "description": "The metadata." },
            },
        } },
        "Logs": {
            "type": "object",
            "required": ["resourceLogs"],
            "properties": { "resourceLogs": { "type": "array", "items": { "type": "object" } } },
        },
        "ItemError": item_error(),
        "ItemsTaken": answer(&items_taken(), &[]),
        "LogsTaken": answer(&logs_taken(), &["partialSuccess"]),
        "StoredEvent": stored_event(),
        "EventPage": page("events", "StoredEvent"),
        "Verification": answer(
            &json!({
                "valid": { "type": "boolean", "description": "Whether the whole range passed." },
                "checked": { "type": "integer", "minimum": 0, "description": "Events that were examined." },
                "first_seq": { "type": "integer", "minimum": 1 },
                "last_seq": { "type": "integer", "minimum": 0, "description": "The effective end, or `broken_at`." },
                "broken_at": { "type": "integer", "minimum": 1, "description": "The first break; only if `valid` is false." },
                "broken_hash": hash(),
            }),
            &["broken_at", "broken_hash"],
        ),
        "CatalogEntry": answer(
            &json!({
                "action": { "type": "string" },
                "category": { "type": "string" },
                "description": { "type": "string" },
                "frameworks": { "type": "array", "items": answer(
                    &json!({ "framework": { "type": "string" }, "label": { "type": "string" }, "is_required": { "type": "boolean" } }),
                    &[],
                ) },
                "required_fields": { "type": "array", "items": { "type": "string" } },
                "optional_fields": { "type": "array", "items": { "type": "string" } },
                "subscribed": { "type": "boolean", "description": "Whether the plan includes it; only with a key." },
            }),
            &["category", "subscribed"],
        ),
        "Catalog": answer(
            &json!({ "actions": { "type": "array", "items": reference("CatalogEntry") }, "total": { "type": "integer", "minimum": 0 } }),
            &[],
        ),
        "Error": answer(
            &json!({ "error": answer(
                &json!({
                    "code": { "type": "string", "enum": CODES.iter().map(|row| row.text).collect::<Value>(), "description": "Stable; use it for logic." },
                    "message": { "type": "string", "description": "For people; may change." },
                    "request_id": request_id(),
                    "doc_url": { "type": "string", "description": "The page about the code." },
                    "suggestion": { "type": "string", "description": "The closest known name; with `action/invalid` only." },
                    "valid_actions_url": { "type": "string", "description": "Where the actions are listed; with `action/invalid` only." },
                    "items": { "type": "array", "items": reference("ItemError"), "description": "The errors of the first 100 rejected items; for `/ingest` only." },
                    "log_ids": { "type": "array", "items": nullable(ulid()), "description": "For a request to `/ingest` that stored some items before it failed: `log_ids[i]` belongs to item i and is null if the item is not stored." },
                    "retry_from": { "type": "integer", "minimum": 1, "description": "With `log_ids`: the first item that is neither stored nor rejected." },
                    "untried_from": { "type": "integer", "minimum": 1, "description": "With `log_ids`: no item from this one on is stored. The items from `retry_from` to this one are in the failed batch; to find out whether it is stored, repeat the request with the same Idempotency-Key." },
                }),
                &["suggestion", "valid_actions_url", "items", "log_ids", "retry_from", "untried_from"],
            ) }),
            &[],
        ),
        "Ready": answer(
            &json!({
                "ready": { "type": "boolean" },
                "reason": { "type": "string", "examples": REASONS, "description": "Why events are rejected, in one word." },
                "detail": { "type": "string", "description": "The reason in full, or faults that do not stop events; for callers on the same machine or with the operator token." },
                "notices": texts,
            }),
            &["reason", "detail", "notices"],
        ),
        "OpenApi": { "type": "object", "required": ["openapi", "info", "paths"] },
        "NewTenant": input(&new_tenant, &["name"]),
        "TenantChange": input(&tenant_change, &[]),
        "Tenant": answer(
            &json!({
                "tenant_id": uuid(),
                "name": name(),
                "plan": { "type": "string" },
                "contact_email": nullable(email()),
                "trial_ends_at": nullable(time()),
                "billing_active": { "type": "boolean" },
                "rate_limit_rps": rate(),
                "created_at": time(),
            }),
            &[],
        ),
        "TenantPage": page("tenants", "Tenant"),
        "NewProject": input(&json!({ "name": name(), "frameworks": nullable(frameworks.clone()) }), &["name"]),
        "ProjectChange": input(
            &json!({ "name": name(), "frameworks": nullable(frameworks.clone()), "rate_limit_rps": rate() }),
            &[],
        ),
        "Project": answer(
            &json!({
                "project_id": uuid(),
                "tenant_id": uuid(),
                "name": name(),
                "frameworks": frameworks,
                "rate_limit_rps": rate(),
                "created_at": time(),
            }),
            &[],
        ),
        "ProjectPage": page("projects", "Project"),
        "NewKey": input(&json!({ "name": name(), "mode": mode, "expires_at": nullable(time()) }), &["name", "mode"]),
        "Key": answer(&key, &[]),
        "CreatedKey": answer(&created_key, &[]),
        "KeyPage": page("keys", "Key"),
        "NewAction": input(&new_action, &["action"]),
        "CustomAction": answer(&custom_action, &[]),
        "CustomActionPage": page("actions", "CustomAction"),
        "NewUser": input(
            &json!({
                "email": email(),
                "password": { "type": "string", "minLength": password::LENGTH_MIN, "maxLength": TEXT_CHARACTERS_MAX, "pattern": NO_NUL },
                "role": role,
            }),
            &["email", "password", "role"],
        ),
        "User": answer(
            &json!({ "user_id": uuid(), "tenant_id": uuid(), "email": email(), "role": role, "created_at": time() }),
            &[],
        ),
        "UserPage": page("users", "User"),
        "Epoch": answer(&epoch, &[]),
    });
    add_monitor_tokens(&mut all);
    super::tlog_schemas::add(&mut all, answer);
    all
}

/// Apart from the others: the macro has a limit.
fn add_monitor_tokens(all: &mut Value) {
    let token = json!({
        "token_id": uuid(),
        "project_id": uuid(),
        "name": name(),
        "prefix": { "type": "string", "description": "The token's first characters, to tell tokens apart." },
        "expires_at": nullable(time()),
        "revoked_at": nullable(time()),
        "last_used_at": nullable(time()),
        "created_at": time(),
    });
    let mut created = token.clone();
    created["token"] = json!({ "type": "string", "description": "The token itself. It is not shown again." });
    all["NewMonitorToken"] = input(&json!({ "name": name(), "expires_at": nullable(time()) }), &["name"]);
    all["MonitorToken"] = answer(&token, &[]);
    all["CreatedMonitorToken"] = answer(&created, &[]);
    all["MonitorTokenPage"] = page("monitor_tokens", "MonitorToken");
}

fn item_error() -> Value {
    answer(
        &json!({
            "index": { "type": "integer", "minimum": 0, "description": "The item's place in the request, from 0." },
            "code": { "type": "string", "enum": CODES.iter().map(|row| row.text).collect::<Value>() },
            "message": { "type": "string" },
            "doc_url": { "type": "string" },
            "suggestion": { "type": "string", "description": "The closest known action; for the first unknown one." },
        }),
        &["suggestion"],
    )
}

fn items_taken() -> Value {
    json!({
        "accepted": { "type": "integer", "minimum": 0, "description": "Items that are stored." },
        "rejected": { "type": "integer", "minimum": 0 },
        "log_ids": { "type": "array", "maxItems": ITEMS_MAX, "items": { "type": ["string", "null"] }, "description": "For each item its `log_id`, or null if it was rejected." },
        "errors": { "type": "array", "maxItems": ERRORS_MAX, "items": reference("ItemError"), "description": "The errors of the first rejected items." },
        "request_id": request_id(),
    })
}

fn logs_taken() -> Value {
    let mut taken = items_taken();
    taken["partialSuccess"] = answer(
        &json!({ "rejectedLogRecords": { "type": "string" }, "errorMessage": { "type": "string" } }),
        &[],
    );
    taken
}

/// What a client sends of an event; what is not listed is ignored.
fn event() -> Value {
    let field = |name: &str| match name {
        "action" => json!({
            "type": "string",
            "minLength": 1,
            "maxLength": FIELD_SCALARS_MAX,
            "description": "An action of the catalog or a custom one. `resource.verb` is recommended.",
            "examples": ["user.login"],
        }),
        "metadata" => json!({
            "type": ["object", "null"],
            "description": "Any members. Stored and returned as sent, without insignificant white space.",
        }),
        "ts_client" => json!({
            "type": ["string", "null"],
            "maxLength": FIELD_SCALARS_MAX,
            "pattern": NO_NUL,
            "description": "The client's own time. Omitted from the event if it is not an RFC 3339 time.",
        }),
        _ => json!({ "type": ["string", "null"], "maxLength": FIELD_SCALARS_MAX, "pattern": NO_NUL }),
    };
    let properties: Map<String, Value> =
        INPUTS.iter().map(|name| ((*name).to_owned(), field(name))).collect();
    json!({ "type": "object", "required": ["action"], "properties": properties })
}

fn stored_event() -> Value {
    let field = |name: &str| match name {
        "log_id" => ulid(),
        "tenant_id" | "project_id" => uuid(),
        "schema_version" => json!({ "type": "integer", "const": SCHEMA_VERSION }),
        "metadata" => json!({ "type": "object" }),
        "timestamp" => json!({
            "type": "string",
            "format": "date-time",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
            "description": "Time when the server received the event.",
        }),
        "chain_seq" => {
            json!({ "type": "integer", "minimum": 1, "description": "The position in the chain, without gaps." })
        }
        "prev_hash" | "hash" => hash(),
        "country" => json!({ "type": "string", "description": "ISO 3166-1, two letters." }),
        _ => json!({ "type": "string" }),
    };
    let properties: Map<String, Value> =
        FIELDS.iter().map(|known| (known.name.to_owned(), field(known.name))).collect();
    let always: Value =
        FIELDS.iter().filter(|field| field.is_always_there()).map(|field| field.name).collect();
    json!({ "type": "object", "required": always, "properties": properties })
}

/// An object that a client sends: what is not listed is refused.
fn input(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// An object that a client receives: everything but these is always there.
fn answer(properties: &Value, not_always: &[&str]) -> Value {
    let names = properties.as_object().into_iter().flat_map(Map::keys);
    let required: Value =
        names.filter(|name| !not_always.contains(&name.as_str())).map(String::as_str).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn page(name: &str, item: &str) -> Value {
    let properties = json!({
        name: { "type": "array", "items": reference(item) },
        "has_more": { "type": "boolean", "description": "Whether there is another page. The work behind one page is bounded, so a page may have fewer items than `limit`, even none, while this is true." },
        "next_cursor": { "type": "string", "description": "For the next page; only if `has_more` is true." },
    });
    answer(&properties, &["next_cursor"])
}

const NO_NUL: &str = r"^[^\u0000]*$";

fn text() -> Value {
    json!({ "type": "string", "maxLength": TEXT_CHARACTERS_MAX, "pattern": NO_NUL })
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": TEXT_CHARACTERS_MAX, "pattern": NO_NUL })
}

fn email() -> Value {
    // White space and control characters of Unicode; there is more of both than `\s` knows.
    let rest = r"\s\u0000-\u001f\u007f-\u009f";
    json!({ "type": "string", "maxLength": TEXT_CHARACTERS_MAX, "pattern": format!("^[^@{rest}]+@[^{rest}]+$") })
}

fn rate() -> Value {
    json!({
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": u32::MAX,
        "description": "Requests a second; 0 is no limit, null the plan's.",
    })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time", "description": "ISO 8601, from 1970 to 9999." })
}

pub(super) fn date() -> Value {
    json!({ "type": "string", "format": "date", "examples": ["2026-01-31"] })
}

pub(super) fn not_empty() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

pub(super) fn uuid() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn ulid() -> Value {
    json!({ "type": "string", "pattern": format!("^[0-7][0-9A-HJKMNP-TV-Z]{{{}}}$", Ulid::TEXT_LEN - 1) })
}

pub(super) fn ulid_in_either_case() -> Value {
    json!({ "type": "string", "pattern": format!("^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{}}}$", Ulid::TEXT_LEN - 1) })
}

pub(super) fn hash() -> Value {
    json!({ "type": "string", "pattern": format!("^[0-9a-f]{{{}}}$", Hash::TEXT_LEN) })
}

pub(super) fn request_id() -> Value {
    json!({ "type": "string", "pattern": format!("^req_[0-7][0-9A-HJKMNP-TV-Z]{{{}}}$", Ulid::TEXT_LEN - 1) })
}

fn nullable(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    if let Some(values) = schema.get("enum") {
        schema["enum"] = with_null(values);
    }
    schema
}

fn with_null(values: &Value) -> Value {
    let mut values = values.as_array().cloned().unwrap_or_default();
    values.push(Value::Null);
    values.into()
}
