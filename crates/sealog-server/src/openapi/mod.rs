//! `GET /openapi.json`: the interface as OpenAPI 3.1, made from what answers requests. Paths come from the
//! tables that requests are matched against, codes from the table of codes, limits and names from the
//! constants and sets that the parsers use.

mod headers;
mod operations;
mod schemas;
mod tlog;
mod tlog_schemas;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, Method, Response, StatusCode};
use sealog_core::id::Hash;
use sealog_core::plan::Plan;
use sealog_core::reject::{CODES, Code};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::operator_routes;
use crate::respond::{self, Body, full};
use crate::routes::{self, Path};
use crate::tlog_routes;
use headers::header;
use operations::{Access, Description};

/// The document as it is served. It is made when it is first asked for, or before ([`OpenApi::prepare`]), and
/// does not change while the server runs.
#[derive(Debug, Default)]
pub(crate) struct OpenApi(OnceLock<Served>);

#[derive(Debug)]
struct Served {
    content: Bytes,
    etag: HeaderValue,
}

impl OpenApi {
    pub(crate) fn prepare(&self, config: &Config, plans: &[Plan]) {
        self.served(config, plans);
    }

    fn served(&self, config: &Config, plans: &[Plan]) -> &Served {
        self.0.get_or_init(|| {
            let content = Bytes::from(document(config, plans).to_string());
            let digest = Hash(Sha256::digest(&content).into()).to_string();
            let etag = format!("\"{}\"", &digest[..16]);
            Served { content, etag: HeaderValue::try_from(etag).expect("hex digits in quotes") }
        })
    }

    pub(crate) fn answer(&self, headers: &HeaderMap, (config, plans): (&Config, &[Plan])) -> Response<Body> {
        let Served { content, etag } = self.served(config, plans);
        let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| value == etag);
        let mut response = if known {
            let mut response = Response::new(full(""));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            respond::json(StatusCode::OK, content.clone())
        };
        response.headers_mut().insert(ETAG, etag.clone());
        // Kept by whoever wants to, but asked about each time: the next version may have another.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if known {
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response
    }
}

/// The description of this server's interface.
pub fn document(config: &Config, plans: &[Plan]) -> Value {
    let mut paths = Map::new();
    add_paths(&mut paths, "", &routes::PATHS, operations::describe);
    add_paths(&mut paths, "", &tlog_routes::PATHS, tlog::describe);
    add_paths(&mut paths, operator_routes::BEGINNING, &operator_routes::PATHS, |operation, path| {
        operations::describe_operator(operation, path, plans)
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sealog",
            "summary": "A tamper-evident audit event log.",
            "description": "Events are sealed into a SHA-256 hash chain when they are accepted. Use `error.code` for logic, never `error.message`. `HEAD` works wherever `GET` does, without a body.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache License 2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": config.base_url }],
        "externalDocs": { "description": "Error codes", "url": format!("{}/errors", config.docs_url) },
        "tags": operations::TAGS.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect::<Value>(),
        "paths": paths,
        "components": {
            "schemas": schemas::all(plans),
            "headers": headers::all(),
            "examples": CODES.iter().map(|row| (example_name(row.code), error_example(row.code, config))).collect::<Map<_, _>>(),
            "securitySchemes": {
                "api_key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key: `at_live_` or `at_test_` and a secret.",
                },
                "monitor_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A monitor token: `sm_live_` and a secret. It reads proofs of one chain, and no event.",
                },
                "operator_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token from the server's configuration. Without one the operator paths return 404.",
                },
            },
        },
    })
}

/// Adds the rows of a table. `{*name}` is written as `{name}`: OpenAPI has no word for the rest of a path.
fn add_paths<O: Copy>(
    paths: &mut Map<String, Value>,
    beginning: &str,
    table: &[Path<O>],
    describe: impl Fn(O, &str) -> Description,
) {
    for path in table {
        let pattern = format!("{beginning}{}", path.pattern).replace("{*", "{");
        let operations = path.operations.iter().map(|(method, operation)| {
            (method.as_str().to_ascii_lowercase(), operation_json(method, describe(*operation, &pattern)))
        });
        let operations: Map<String, Value> = operations.collect();
        paths.insert(pattern, operations.into());
    }
}

fn operation_json(method: &Method, description: Description) -> Value {
    let Description { id, summary, about, tag, access, parameters, body, success, codes, links } =
        description;
    let mut operation = json!({ "operationId": id, "summary": summary, "tags": [tag] });
    if !about.is_empty() {
        operation["description"] = about.into();
    }
    operation["security"] = match access {
        Access::Anyone => json!([]),
        Access::ApiKey => json!([{ "api_key": [] }]),
        Access::ApiKeyOrMonitorToken => json!([{ "api_key": [] }, { "monitor_token": [] }]),
        Access::AnyoneOrApiKey => json!([{}, { "api_key": [] }]),
        Access::Operator => json!([{ "operator_token": [] }]),
        Access::AnyoneOrOperator => json!([{}, { "operator_token": [] }]),
    };
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = body {
        assert_ne!(method, Method::GET, "a GET has no body");
        let description = format!("At most {} bytes.", body.bytes_max);
        operation["requestBody"] = json!({
            "required": true,
            "description": description,
            "content": { "application/json": { "schema": body.schema, "examples": body.examples } },
        });
    }
    let mut responses = Map::new();
    for (status, mut response) in success {
        let headers = response["headers"].as_object_mut().map(std::mem::take).unwrap_or_default();
        response["headers"] = with_request_id(headers);
        if !links.is_null() {
            response["links"] = links.clone();
        }
        responses.insert(status.to_string(), response);
    }
    let mut by_status = BTreeMap::<u16, Vec<Code>>::new();
    for code in codes {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        // What an operation says of a status itself has more than these codes.
        responses.entry(status.to_string()).or_insert_with(|| error_response(status, &codes));
    }
    operation["responses"] = responses.into();
    operation
}

fn error_response(status: u16, codes: &[Code]) -> Value {
    let lines: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.row().meaning)).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let examples: Map<String, Value> = codes
        .iter()
        .map(|code| {
            let name = example_name(*code);
            let reference = json!({ "$ref": format!("#/components/examples/{name}") });
            (name, reference)
        })
        .collect();
    let mut headers = Map::new();
    match status {
        405 => drop(headers.insert("Allow".into(), header("Allow", true))),
        404 if codes.contains(&Code::TlogNotYet) => {
            drop(headers.insert("Retry-After".into(), header("Retry-After", false)));
        }
        429 => drop(headers.insert("Retry-After".into(), header("Retry-After", true))),
        _ => {}
    }
    json!({
        "description": lines.join("\n"),
        "headers": with_request_id(headers),
        "content": { "application/json": {
            "schema": {
                "$ref": "#/components/schemas/Error",
                "properties": { "error": { "properties": { "code": { "enum": names } } } },
            },
            "examples": examples,
        } },
    })
}

fn error_example(code: Code, config: &Config) -> Value {
    let row = code.row();
    json!({
        "summary": row.meaning,
        "description": format!("{} Retry? {}", row.advice, row.retry_words()),
        "value": { "error": {
            "code": row.text,
            "message": row.meaning,
            "request_id": "req_01KA2N3Q4R5S6T7V8W9X0Y1Z2A",
            "doc_url": config.doc_url(row.text),
        } },
    })
}

/// A component's name has no room for a slash.
fn example_name(code: Code) -> String {
    code.as_str().replace('/', ".")
}

fn with_request_id(mut headers: Map<String, Value>) -> Value {
    headers.insert("X-Request-Id".into(), header("X-Request-Id", true));
    headers.into()
}
