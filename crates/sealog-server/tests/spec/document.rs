//! Holds answers against `/openapi.json`. Every request that a test makes goes through here, so the document
//! is tested by all tests.

use sealog_core::plan::Plan;
use std::sync::LazyLock;

use sealog_server::config::Config;
use serde_json::{Map, Value};

use crate::harness::{BASE_URL, Response};

pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| sealog_server::openapi::document(&Config::at(BASE_URL), &Plan::defaults()));

/// Every operation as path, method and description.
pub fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let of = |path: &'static String, item: &'static Value| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path.clone(), method.to_ascii_uppercase(), operation))
    };
    paths.iter().flat_map(|(path, item)| of(path, item)).collect()
}

/// Fails if the document does not have this answer: its status, its headers, its code, every field of its
/// body.
#[track_caller]
pub fn check(method: &str, target: &str, response: &Response) {
    let path = target.split('?').next().unwrap();
    let Some(item) = item(path) else { return };
    let Some(operation) = item.get(method.to_ascii_lowercase()) else {
        assert!([401, 404, 405, 429].contains(&response.status), "{method} {path} is not documented");
        return;
    };
    let answer = &operation["responses"][response.status.to_string()];
    assert!(
        answer.is_object(),
        "{method} {path}: a {} is not documented: {}",
        response.status,
        response.body
    );
    for (name, header) in answer["headers"].as_object().unwrap() {
        let missing = response.header(&name.to_ascii_lowercase()).is_none();
        assert!(!(missing && resolve(header)["required"] == true), "{method} {path}: no {name}");
    }
    let Some(content) = answer["content"].as_object() else {
        assert_eq!(response.body, "", "{method} {path}");
        return;
    };
    let content_type = response.header("content-type").unwrap();
    let media = content.get(content_type).unwrap_or_else(|| panic!("{method} {path}: a {content_type}"));
    if response.json.is_null() {
        // What serde_json cannot hold, such as metadata of a great depth, is JSON all the same.
        let is_json = sealog_core::json::canonical(&response.body).is_ok();
        assert_eq!(is_json, content_type == "application/json", "{method} {path}");
    } else {
        validate(&media["schema"], &response.json, &format!("{method} {path} {}", response.status));
    }
}

/// What the document has for a path. A literal path wins over one with a parameter.
fn item(path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    // The longer pattern of two is the more special one.
    let fitting =
        || paths.iter().filter(|(pattern, _)| fits(pattern, path)).max_by_key(|(pattern, _)| pattern.len());
    paths.get(path).or_else(|| fitting().map(|(_, item)| item))
}

fn fits(pattern: &str, path: &str) -> bool {
    // The rest of a path, which may have slashes.
    if let Some(before) = pattern.strip_suffix("{page}").or(pattern.strip_suffix("{tile}")) {
        return path.starts_with(before);
    }
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let same =
        |(wanted, given): (&&str, &&str)| wanted == given || wanted.starts_with('{') && !given.is_empty();
    pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
}

fn resolve(value: &Value) -> &Value {
    match value.get("$ref") {
        Some(reference) => {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            DOCUMENT.pointer(pointer).unwrap_or_else(|| panic!("nothing is at {reference}"))
        }
        None => value,
    }
}

/// As much of JSON Schema as the document uses. Stricter in one thing: an answer's object has no field that
/// is not documented.
fn validate(schema: &Value, value: &Value, at: &str) {
    if schema.get("$ref").is_some() {
        validate(resolve(schema), value, at);
    }
    let schema = schema.as_object().unwrap();
    for (keyword, rule) in schema {
        let fine = match keyword.as_str() {
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "required" => {
                let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                names.into_iter().all(|name| value.get(name).is_some())
            }
            "properties" => {
                let (known, none) = (rule.as_object().unwrap(), Map::new());
                let given = value.as_object().unwrap_or(&none);
                for (name, schema) in known {
                    if let Some(value) = given.get(name) {
                        validate(schema, value, &format!("{at}.{name}"));
                    }
                }
                !schema.contains_key("required") || given.keys().all(|name| known.contains_key(name))
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    validate(rule, item, &format!("{at}[{index}]"));
                }
                true
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
            "minLength" => length(value).is_none_or(|length| length >= rule.as_u64().unwrap()),
            "maxLength" => length(value).is_none_or(|length| length <= rule.as_u64().unwrap()),
            "minimum" => value.as_i64().is_none_or(|value| value >= rule.as_i64().unwrap()),
            "maximum" => value.as_u64().is_none_or(|value| value <= rule.as_u64().unwrap()),
            "pattern" | "format" | "description" | "examples" | "default" | "$ref" => true,
            other => panic!("this test does not know the keyword {other}"),
        };
        assert!(fine, "{at}: {keyword} {rule} does not hold for {value}");
    }
}

fn length(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.chars().count() as u64)
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("this test does not know the type {other}"),
    }
}
