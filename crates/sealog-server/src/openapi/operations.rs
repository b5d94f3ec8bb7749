//! Each operation in words, with its parameters, answers and codes. The matches have no `_` arm: a new
//! operation does not compile until it is described.

use sealog_core::key::IDEMPOTENCY_KEY_BYTES_MAX;
use sealog_core::plan::Plan;
use sealog_core::query::{ListParameter, PageLimit, PageParameter, SEQ_MAX, SeqParameter, VERIFY_EVENTS_MAX};
use sealog_core::reject::Code;
use sealog_service::ingest::Endpoint;
use serde_json::{Value, json};

use super::headers::header;
use super::schemas;
use crate::operator_routes;
use crate::routes::{self, Operation};

pub(super) const TAGS: [(&str, &str); 6] = [
    ("events", "Log, read and verify events."),
    (
        "ingest",
        "Adapters for log shippers: the same validation, keys and limits, but each item is accepted or rejected on its own.",
    ),
    ("actions", "The action catalog."),
    ("operator", "Create and change tenants, projects, keys, custom actions and dashboard users."),
    (
        "tlog",
        "The store log and the trees of chains, for those who check them without trusting the server: checkpoints, tiles and proofs in the formats of C2SP. With `trust.enabled = false` these paths return 404.",
    ),
    ("server", "The server itself."),
];

pub(super) struct Description {
    pub id: &'static str,
    pub summary: &'static str,
    pub about: String,
    pub tag: &'static str,
    pub access: Access,
    pub parameters: Vec<Value>,
    pub body: Option<Body>,
    /// Status and answer of everything that is no error of the table.
    pub success: Vec<(u16, Value)>,
    pub codes: Vec<Code>,
    /// What an answer is good for next.
    pub links: Value,
}

pub(super) enum Access {
    Anyone,
    ApiKey,
    ApiKeyOrMonitorToken,
    AnyoneOrApiKey,
    Operator,
    AnyoneOrOperator,
}

pub(super) struct Body {
    pub schema: Value,
    pub bytes_max: usize,
    pub examples: Value,
}

/// Codes that every path can answer with.
const ALWAYS: [Code; 4] = [
    Code::RequestMethodNotAllowed,
    Code::RequestMalformed,
    Code::RequestHeadersTooLarge,
    Code::ServerInternal,
];
pub(super) const KEY: [Code; 8] = [
    Code::AuthMissingHeader,
    Code::AuthInvalidFormat,
    Code::AuthKeyNotFound,
    Code::AuthKeyRevoked,
    Code::AuthKeyExpired,
    Code::RateLimitExceeded,
    Code::RateTestLimitExceeded,
    Code::ServerControlUnavailable,
];
const ADAPTER: [Code; 3] =
    [Code::ValidationBatchEmpty, Code::ValidationBatchTooLarge, Code::RequestUnsupportedEncoding];
const INGEST: [Code; 13] = [
    Code::SubscriptionTrialExpired,
    Code::ValidationInvalidField,
    Code::ValidationBodyTooLarge,
    Code::ValidationInvalidJson,
    Code::EventIdempotencyKeyConflict,
    Code::EventIdempotencyKeyInFlight,
    Code::ValidationMissingAction,
    Code::ActionInvalid,
    Code::ActionRequiresFramework,
    Code::FrameworkDisabled,
    Code::ActionMissingRequiredFields,
    Code::EventWriteFailed,
    Code::EventSuperseded,
];
/// A wrong token, or an id or a whole interface that does not exist.
const OPERATOR: [Code; 5] = [
    Code::AuthMissingHeader,
    Code::AuthInvalidFormat,
    Code::AuthKeyNotFound,
    Code::RequestNotFound,
    Code::ServerControlUnavailable,
];
const OPERATOR_BODY: [Code; 4] = [
    Code::ValidationInvalidJson,
    Code::ValidationInvalidField,
    Code::ValidationBodyTooLarge,
    Code::TenantDiskUsedUp,
];

pub(super) fn describe(operation: Operation, path: &str) -> Description {
    let (id, summary, about, tag, access) = match operation {
        Operation::LogEvent => (
            "logEvent",
            "Log one event",
            "A 202 means that the event is sealed and on stable storage. Fields that are not listed are ignored.",
            "events",
            Access::ApiKey,
        ),
        Operation::LogBatch => (
            "logBatch",
            "Log up to 100 events",
            "All events are written or none. `log_ids[i]` belongs to `events[i]`.",
            "events",
            Access::ApiKey,
        ),
        Operation::IngestJson => (
            "ingestJson",
            "Log events from a shipper",
            "An array of events, or one per line (NDJSON). Each is stored or rejected on its own: `log_ids[i]` belongs to item i and is null if the item was rejected. More than 100 are stored in batches of 100, each of which counts as a request.",
            "ingest",
            Access::ApiKey,
        ),
        Operation::IngestCloudEvents => (
            "ingestCloudEvents",
            "Log CloudEvents",
            "One CloudEvent 1.0 in structured mode, or an array of them. Each is stored or rejected on its own, as with `/ingest/json`.",
            "ingest",
            Access::ApiKey,
        ),
        Operation::IngestLogs => (
            "ingestLogs",
            "Log records of OpenTelemetry",
            "OTLP/HTTP: an `ExportLogsServiceRequest` as JSON or, with `Content-Type: application/x-protobuf`, as Protocol Buffers; the answer has the same encoding. Attributes `audit.action`, `audit.actor` and `audit.resource` become the fields of the event. A rejected record makes the response a partial success. Compressed bodies are rejected.",
            "ingest",
            Access::ApiKey,
        ),
        Operation::ListEvents => {
            ("listEvents", "List events, newest first", "All filters must match.", "events", Access::ApiKey)
        }
        Operation::VerifyChain => (
            "verifyChain",
            "Verify a part of the hash chain",
            "A broken chain is also a 200: the response has the first break.",
            "events",
            Access::ApiKey,
        ),
        Operation::ReadEvent => (
            "readEvent",
            "Read one event",
            "An event of another project is a 404 for this key.",
            "events",
            Access::ApiKey,
        ),
        Operation::ListActions => (
            "listActions",
            "The action catalog",
            "With a key: the actions of its tenant, and whether the plan includes them.",
            "actions",
            Access::AnyoneOrApiKey,
        ),
        Operation::Health => ("health", "Whether the process is up", "", "server", Access::Anyone),
        Operation::Ready => (
            "ready",
            "Whether the store accepts events",
            "`reason` is public; `detail` is for direct requests from the same machine, or with the operator token.",
            "server",
            Access::AnyoneOrOperator,
        ),
        Operation::Metrics => (
            "metrics",
            "Counters and histograms, as Prometheus text",
            "For direct requests from the same machine, or with the operator token. With `metrics_listen` it has its own address, and is a 404 here.",
            "server",
            Access::AnyoneOrOperator,
        ),
        Operation::OpenApi => ("openapi", "This document", "", "server", Access::Anyone),
        Operation::Docs if path.contains('{') => (
            "docsPage",
            "A page of the documentation",
            "`quickstart`, `errors` and a page for each code, such as `errors/auth/key_not_found`; the slashes are not encoded. `search?q=` finds words. Stylesheets are here, too.",
            "server",
            Access::Anyone,
        ),
        Operation::Docs => ("docs", "The documentation's first page", "", "server", Access::Anyone),
    };
    let success = match operation {
        Operation::LogEvent => (202, receipt("EventAccepted")),
        Operation::LogBatch => (202, receipt("BatchAccepted")),
        Operation::IngestJson | Operation::IngestCloudEvents => {
            let mut answer = json_answer(
                "At least one item is stored. `errors` has the faults of the others.",
                "ItemsTaken",
            );
            answer["headers"] = json!({ "Idempotency-Replayed": header("Idempotency-Replayed", false) });
            (202, answer)
        }
        Operation::IngestLogs => {
            let mut answer = json_answer("The accepted records are stored.", "LogsTaken");
            answer["content"]["application/x-protobuf"] = json!({ "schema": { "type": "string" } });
            answer["headers"] = json!({ "Idempotency-Replayed": header("Idempotency-Replayed", false) });
            (200, answer)
        }
        Operation::ListEvents => (200, json_answer("A page of events.", "EventPage")),
        Operation::VerifyChain => (200, json_answer("The result.", "Verification")),
        Operation::ReadEvent => (200, json_answer("The event.", "StoredEvent")),
        Operation::ListActions => (200, json_answer("The actions.", "Catalog")),
        Operation::Health => (200, text_answer("The process is up.", "text/plain; charset=utf-8")),
        Operation::Ready => (200, json_answer("The store accepts events.", "Ready")),
        Operation::Metrics => (200, text_answer("The figures.", "text/plain; version=0.0.4; charset=utf-8")),
        Operation::OpenApi => {
            let mut answer = json_answer("The document.", "OpenApi");
            answer["headers"] = json!({ "ETag": header("ETag", true) });
            (200, answer)
        }
        Operation::Docs => {
            let mut answer = text_answer("The page.", "text/html; charset=utf-8");
            for content_type in ["text/css; charset=utf-8", "image/svg+xml"] {
                answer["content"][content_type] = json!({ "schema": { "type": "string" } });
            }
            answer["headers"] = json!({ "ETag": header("ETag", false) });
            (200, answer)
        }
    };
    let mut success = vec![success];
    match operation {
        Operation::Ready => success.push((503, json_answer("The store rejects events.", "Ready"))),
        Operation::IngestLogs => success.push((503, json_answer("The records could not be made durable (`event/write_failed`; a 503, because exporters try again at a 503 and give up at a 500), or another server is the primary now (`event/superseded`).", "Error"))),
        Operation::OpenApi | Operation::Docs => success.push((
            304,
            json!({ "description": "The document has not changed since the one in If-None-Match.", "headers": { "ETag": header("ETag", true) } }),
        )),
        _ => {}
    }
    let (body, mut parameters) = match operation {
        Operation::LogEvent => (Some(event_body()), vec![idempotency_key()]),
        Operation::LogBatch => (Some(batch_body()), vec![idempotency_key()]),
        Operation::ListEvents => {
            (None, ListParameter::ALL.iter().map(|known| list_parameter(*known)).collect())
        }
        Operation::VerifyChain => {
            (None, SeqParameter::ALL.iter().map(|known| seq_parameter(*known)).collect())
        }
        Operation::IngestJson => (
            Some(ingest_body(
                "Events",
                &json!([{ "action": "user.login", "actor_id": "u-17" }, { "action": "user.logout", "actor_id": "u-17" }]),
            )),
            vec![idempotency_key()],
        ),
        Operation::IngestCloudEvents => (
            Some(ingest_body(
                "CloudEvents",
                &json!([{ "specversion": "1.0", "id": "1", "source": "/shop", "type": "user.login", "authid": "u-17" }]),
            )),
            vec![idempotency_key()],
        ),
        Operation::IngestLogs => (Some(ingest_body("Logs", &logs_example())), vec![idempotency_key()]),
        Operation::ReadEvent
        | Operation::ListActions
        | Operation::Health
        | Operation::Ready
        | Operation::Metrics
        | Operation::OpenApi
        | Operation::Docs => (None, Vec::new()),
    };
    parameters.extend(path_parameter(path));
    let own: &[&[Code]] = match operation {
        Operation::LogEvent => &[&KEY, &INGEST],
        Operation::LogBatch => &[&KEY, &INGEST, &[Code::ValidationBatchEmpty, Code::ValidationBatchTooLarge]],
        Operation::IngestCloudEvents => &[&KEY, &INGEST, &ADAPTER, &[Code::RequestUnsupportedMediaType]],
        Operation::IngestJson | Operation::IngestLogs => &[&KEY, &INGEST, &ADAPTER],
        Operation::ListEvents | Operation::VerifyChain => {
            &[&KEY, &[Code::ReadInvalidParams, Code::ReadQueryFailed]]
        }
        Operation::ReadEvent => &[&KEY, &[Code::ReadNotFound, Code::ReadQueryFailed]],
        // A request without a key is no failure here.
        Operation::ListActions => &[&KEY[1..]],
        Operation::Metrics => &[&OPERATOR],
        Operation::Docs => &[&[Code::RequestNotFound]],
        Operation::Health | Operation::Ready | Operation::OpenApi => &[],
    };
    let mut codes = ALWAYS.to_vec();
    codes.extend(own.iter().copied().flatten());
    if !routes::NOT_COUNTED.contains(&path) {
        codes.push(Code::RateIpLimitExceeded);
    }
    let links = match operation {
        Operation::LogEvent => link("readEvent", "log_id", "$response.body#/log_id"),
        Operation::LogBatch => link("readEvent", "log_id", "$response.body#/log_ids/0"),
        _ => Value::Null,
    };
    Description { id, summary, about: about.into(), tag, access, parameters, body, success, codes, links }
}

/// What the codes of an operation are beside its own.
pub(super) fn always() -> Vec<Code> {
    [&ALWAYS[..], &[Code::RateIpLimitExceeded]].concat()
}

pub(super) fn describe_operator(
    operation: operator_routes::Operation,
    path: &str,
    plans: &[Plan],
) -> Description {
    use operator_routes::Operation::*;
    let (id, summary, about) = match operation {
        CreateTenant => {
            ("createTenant", "Create a tenant", "The default is the plan `top` with active billing.")
        }
        ListTenants => ("listTenants", "List tenants", ""),
        UpdateTenant => (
            "updateTenant",
            "Change a tenant",
            "Omitted fields keep their values. A `rate_limit_rps` of null restores the plan's rate.",
        ),
        ReadTenant => ("readTenant", "Read a tenant", ""),
        CreateProject => ("createProject", "Create a project", ""),
        ListProjects => ("listProjects", "List a tenant's projects", ""),
        UpdateProject => (
            "updateProject",
            "Change a project",
            "Omitted fields keep their values. A `rate_limit_rps` of null restores the plan's rate.",
        ),
        ReadProject => ("readProject", "Read a project", ""),
        CreateKey => {
            ("createKey", "Create an API key", "The response contains the key; it is not shown again.")
        }
        ListKeys => ("listKeys", "List a project's keys", ""),
        RevokeKey => (
            "revokeKey",
            "Revoke a key",
            "Takes effect immediately and cannot be undone. Revoking twice is not an error.",
        ),
        CreateMonitorToken => (
            "createMonitorToken",
            "Create a monitor token",
            "It is for the project's live chain, and reads no events. The response contains the token; it is not shown again. At most 20 of a chain are active at a time.",
        ),
        ListMonitorTokens => ("listMonitorTokens", "List a project's monitor tokens", ""),
        RevokeMonitorToken => (
            "revokeMonitorToken",
            "Revoke a monitor token",
            "Takes effect immediately and cannot be undone. Revoking twice is not an error.",
        ),
        CreateAction => {
            ("createAction", "Register a custom action", "Usable at once in all of the tenant's projects.")
        }
        ListActions => ("listCustomActions", "List a tenant's custom actions", ""),
        CreateUser => ("createUser", "Create a dashboard user", ""),
        ListUsers => ("listUsers", "List a tenant's dashboard users", ""),
        ReadEpoch => (
            "readEpoch",
            "Read how often the store was promoted",
            "For the server whose `replication.peer` this is: it rejects events if this epoch is higher than its own.",
        ),
    };
    let (status, schema) = match operation {
        CreateTenant => (201, "Tenant"),
        UpdateTenant | ReadTenant => (200, "Tenant"),
        ListTenants => (200, "TenantPage"),
        CreateProject => (201, "Project"),
        UpdateProject | ReadProject => (200, "Project"),
        ListProjects => (200, "ProjectPage"),
        CreateKey => (201, "CreatedKey"),
        RevokeKey => (200, "Key"),
        ListKeys => (200, "KeyPage"),
        CreateMonitorToken => (201, "CreatedMonitorToken"),
        RevokeMonitorToken => (200, "MonitorToken"),
        ListMonitorTokens => (200, "MonitorTokenPage"),
        CreateAction => (201, "CustomAction"),
        ListActions => (200, "CustomActionPage"),
        CreateUser => (201, "User"),
        ListUsers => (200, "UserPage"),
        ReadEpoch => (200, "Epoch"),
    };
    let body = match operation {
        CreateTenant => Some((
            "NewTenant",
            json!({ "name": "Acme", "plan": plans[0].name, "contact_email": "it@example.org" }),
        )),
        UpdateTenant => Some(("TenantChange", json!({ "billing_active": true, "rate_limit_rps": null }))),
        CreateProject => Some(("NewProject", json!({ "name": "production", "frameworks": ["soc2"] }))),
        UpdateProject => {
            Some(("ProjectChange", json!({ "frameworks": ["soc2", "gdpr"], "rate_limit_rps": 500 })))
        }
        CreateKey => Some(("NewKey", json!({ "name": "web", "mode": "live" }))),
        CreateMonitorToken => Some(("NewMonitorToken", json!({ "name": "auditor" }))),
        CreateAction => Some((
            "NewAction",
            json!({ "action": "invoice.approved", "category": "billing", "required_fields": ["amount"] }),
        )),
        CreateUser => Some((
            "NewUser",
            json!({ "email": "ann@example.org", "password": "correct horse battery", "role": "auditor" }),
        )),
        ListTenants | ReadTenant | ListProjects | ReadProject | ListKeys | RevokeKey | ListMonitorTokens
        | RevokeMonitorToken | ListActions | ListUsers | ReadEpoch => None,
    };
    let is_list = matches!(
        operation,
        ListTenants | ListProjects | ListKeys | ListMonitorTokens | ListActions | ListUsers
    );
    let mut parameters: Vec<Value> = path_parameter(path).into_iter().collect();
    let mut codes = ALWAYS.to_vec();
    codes.push(Code::RateIpLimitExceeded);
    codes.extend(OPERATOR);
    if is_list {
        parameters.extend(PageParameter::ALL.iter().map(|known| page_parameter(*known)));
        codes.push(Code::ReadInvalidParams);
    }
    if body.is_some() {
        codes.extend(OPERATOR_BODY);
    }
    let links = match operation {
        CreateTenant => links(
            &[
                "readTenant",
                "updateTenant",
                "createProject",
                "listProjects",
                "createAction",
                "listCustomActions",
                "createUser",
                "listUsers",
            ],
            "tenant_id",
        ),
        CreateProject => links(
            &[
                "readProject",
                "updateProject",
                "createKey",
                "listKeys",
                "createMonitorToken",
                "listMonitorTokens",
            ],
            "project_id",
        ),
        CreateKey => links(&["revokeKey"], "key_id"),
        CreateMonitorToken => links(&["revokeMonitorToken"], "token_id"),
        _ => Value::Null,
    };
    Description {
        id,
        summary,
        about: about.into(),
        tag: "operator",
        access: Access::Operator,
        parameters,
        body: body.map(|(schema, example)| Body {
            schema: schemas::reference(schema),
            bytes_max: operator_routes::BODY_BYTES_MAX,
            examples: json!({ "usual": { "value": example } }),
        }),
        success: vec![(status, json_answer(summary, schema))],
        codes,
        links,
    }
}

pub(super) fn json_answer(description: &str, schema: &str) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schemas::reference(schema) } } })
}

pub(super) fn text_answer(description: &str, content_type: &str) -> Value {
    json!({ "description": description, "content": { content_type: { "schema": { "type": "string" } } } })
}

fn receipt(schema: &str) -> Value {
    let mut answer = json_answer(
        "Sealed and on stable storage. The headers are a receipt: keep it to prove a later rewrite.",
        schema,
    );
    answer["headers"] = json!({
        "Sealog-Chain-Seq": header("Sealog-Chain-Seq", true),
        "Sealog-Hash": header("Sealog-Hash", true),
        "Idempotency-Replayed": header("Idempotency-Replayed", false),
    });
    answer
}

fn event_body() -> Body {
    Body {
        schema: schemas::reference("Event"),
        bytes_max: Endpoint::Single.body_bytes_max(),
        examples: json!({
            "smallest": { "value": { "action": "user.login" } },
            "usual": { "value": {
                "action": "document.shared", "actor_id": "u-17", "resource": "document/42", "metadata": { "with": "u-23" },
            } },
        }),
    }
}

fn batch_body() -> Body {
    Body {
        schema: schemas::reference("Batch"),
        bytes_max: Endpoint::Batch.body_bytes_max(),
        examples: json!({ "usual": { "value": { "events": [
            { "action": "user.login", "actor_id": "u-17" },
            { "action": "document.deleted", "actor_id": "u-17", "resource": "document/42" },
        ] } } }),
    }
}

fn ingest_body(schema: &str, example: &Value) -> Body {
    Body {
        schema: schemas::reference(schema),
        bytes_max: Endpoint::Batch.body_bytes_max(),
        examples: json!({ "usual": { "value": example } }),
    }
}

fn logs_example() -> Value {
    let text = |text: &str| json!({ "stringValue": text });
    let attributes = [
        ("audit.action", text("user.login")),
        ("audit.actor", text("u-17")),
        ("mfa", json!({ "boolValue": true })),
    ];
    let attributes: Value =
        attributes.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    let record = json!({ "timeUnixNano": "1794657601250000000", "attributes": attributes });
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] })
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Makes the request safe to retry for 24 hours: the same key with the same body gets the first response again.",
        "schema": { "type": "string", "pattern": format!("^[!-~]{{1,{IDEMPOTENCY_KEY_BYTES_MAX}}}$") },
        "examples": { "uuid": { "value": "6f1c1d3e-0b52-4a43-9a3e-7b1f0a9d2c55" } },
    })
}

pub(super) fn path_parameter(path: &str) -> Option<Value> {
    let name = path.split_once('{')?.1.split_once('}')?.0;
    let (schema, description) = match name {
        "log_id" => (schemas::ulid_in_either_case(), "The event's id, in upper or lower case."),
        "page" => (json!({ "type": "string" }), "What follows `/docs/`."),
        "tile" => (
            json!({ "type": "string" }),
            "`L/N`, and behind it `.p/W` for a partial tile; for entries without `L/`.",
        ),
        _ => (schemas::uuid(), "A UUID."),
    };
    Some(
        json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema }),
    )
}

pub(super) fn query_parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

fn list_parameter(parameter: ListParameter) -> Value {
    let (description, schema) = match parameter {
        ListParameter::Action => ("Exact match.", schemas::not_empty()),
        ListParameter::ActorId => ("Exact match.", schemas::not_empty()),
        ListParameter::Resource => ("Exact match.", schemas::not_empty()),
        ListParameter::DateFrom => ("Events of this UTC day and later ones.", schemas::date()),
        ListParameter::DateTo => ("Events of this UTC day and earlier ones.", schemas::date()),
        ListParameter::Cursor => return page_parameter(PageParameter::Cursor),
        ListParameter::Limit => return page_parameter(PageParameter::Limit),
    };
    query_parameter(parameter.as_str(), description, &schema)
}

fn page_parameter(parameter: PageParameter) -> Value {
    match parameter {
        PageParameter::Cursor => {
            query_parameter(parameter.as_str(), "`next_cursor` of the previous page.", &schemas::not_empty())
        }
        PageParameter::Limit => {
            let default = PageLimit::default().get();
            let about = format!(
                "Items on the page, 1 to {}. Any other integer means {default}, without an error.",
                PageLimit::MAX
            );
            query_parameter(parameter.as_str(), &about, &json!({ "type": "integer", "default": default }))
        }
    }
}

pub(super) fn seq_parameter(parameter: SeqParameter) -> Value {
    match parameter {
        SeqParameter::FromSeq => query_parameter(
            parameter.as_str(),
            "The first `chain_seq` to verify.",
            &json!({ "type": "integer", "minimum": 1, "maximum": u64::try_from(SEQ_MAX).unwrap_or(u64::MAX), "default": 1 }),
        ),
        SeqParameter::ToSeq => query_parameter(
            parameter.as_str(),
            &format!(
                "The last `chain_seq` to verify, not below `from_seq`; {} past it by default. A range of more than {VERIFY_EVENTS_MAX} events is cut, and so is one past the chain's end.",
                VERIFY_EVENTS_MAX - 1
            ),
            &json!({ "type": "integer", "minimum": 1 }),
        ),
    }
}

fn link(operation: &str, parameter: &str, expression: &str) -> Value {
    json!({ operation: { "operationId": operation, "parameters": { parameter: expression } } })
}

/// Links to operations that take an id from the answer's body.
fn links(operations: &[&str], id: &str) -> Value {
    let expression = format!("$response.body#/{id}");
    let mut links = json!({});
    for operation in operations {
        links[*operation] = link(operation, id, &expression)[*operation].take();
    }
    links
}
