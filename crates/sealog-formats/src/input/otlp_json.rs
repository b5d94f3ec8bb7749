//! OTLP/HTTP with JSON: names in lower camel case, 64-bit numbers as strings, ids in hexadecimal.

use std::borrow::Cow;

use sealog_core::json::{self, Items, Members};
use sealog_core::reject::Reject;

use super::item::{Item, Made, check_count};
use super::members::{Object, member};
use super::otlp::{DEPTH_MAX, Record};

pub(super) fn items<'b>(body: &str) -> Result<Vec<Item<'b>>, Reject> {
    let canonical = json::canonical(body)?;
    if !canonical.starts_with('{') {
        let detail = "the body must be an ExportLogsServiceRequest: an object with `resourceLogs`".into();
        return Err(Reject::InvalidJson { detail });
    }
    let (mut items, mut made): (Vec<Item<'b>>, _) = (Vec::new(), Made::default());
    for of_resource in array(&canonical, "resourceLogs") {
        let resource = member(of_resource, "resource").filter(|value| value.starts_with('{'));
        let resource = resource.map(attributes_object).transpose()?.flatten();
        for of_scope in array(of_resource, "scopeLogs") {
            for record in array(of_scope, "logRecords") {
                check_count(items.len() + 1)?;
                made.add(record.len() + resource.as_ref().map_or(0, String::len))?;
                items.push(read(record).map(|record| Cow::Owned(record.event(resource.as_deref()))));
            }
        }
    }
    Ok(items)
}

/// Items of a member that is an array.
fn array<'a>(canonical_object: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let is_object = canonical_object.starts_with('{');
    let array = is_object.then(|| member(canonical_object, name)).flatten();
    array.filter(|array| array.starts_with('[')).into_iter().flat_map(Items::of)
}

fn read(record: &str) -> Result<Record, Reject> {
    if !record.starts_with('{') {
        return Err(Reject::InvalidJson { detail: "a log record must be an object".into() });
    }
    let text = |name: &str| member(record, name).and_then(json::decode);
    Ok(Record {
        attributes: attributes(record, 0)?,
        event_name: text("eventName"),
        time_unix_nano: nanos(member(record, "timeUnixNano")),
        observed_time_unix_nano: nanos(member(record, "observedTimeUnixNano")),
        severity_text: text("severityText"),
        body: member(record, "body").map(|body| any_value(body, 0)).transpose()?,
        trace_id: text("traceId"),
        span_id: text("spanId"),
    })
}

/// A 64-bit number is a string, and some senders write a number all the same.
fn nanos(value: Option<&str>) -> u64 {
    value.and_then(|value| value.trim_matches('"').parse().ok()).unwrap_or(0)
}

fn attributes(of: &str, depth: usize) -> Result<Vec<(String, String)>, Reject> {
    key_values(array(of, "attributes"), depth)
}

fn attributes_object(of: &str) -> Result<Option<String>, Reject> {
    let found = attributes(of, 0)?;
    Ok((!found.is_empty()).then(|| object(&found)))
}

fn object(pairs: &[(String, String)]) -> String {
    let mut object = Object::new();
    for (name, value) in pairs {
        object.put(name, value);
    }
    object.end()
}

fn key_values<'a>(
    pairs: impl Iterator<Item = &'a str>,
    depth: usize,
) -> Result<Vec<(String, String)>, Reject> {
    let mut found = Vec::new();
    for pair in pairs.filter(|pair| pair.starts_with('{')) {
        let Some(name) = member(pair, "key").and_then(json::decode) else { continue };
        let value = member(pair, "value").map(|value| any_value(value, depth)).transpose()?;
        found.push((name, value.unwrap_or_else(|| "null".into())));
    }
    Ok(found)
}

/// The JSON of an `AnyValue`: `{"stringValue":"x"}` is `"x"`.
fn any_value(value: &str, depth: usize) -> Result<String, Reject> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    if !value.starts_with('{') {
        return Ok("null".into());
    }
    let Some((kind, content)) = Members::of(value).next() else { return Ok("null".into()) };
    Ok(match kind {
        "\"stringValue\"" | "\"bytesValue\"" if content.starts_with('"') => content.to_owned(),
        "\"boolValue\"" if matches!(content, "true" | "false") => content.to_owned(),
        "\"intValue\"" => match content.trim_matches('"').parse::<i64>() {
            Ok(number) => number.to_string(),
            Err(_) => "null".into(),
        },
        // Numbers stay as they were written; those that JSON has no word for are strings.
        "\"doubleValue\"" if !content.starts_with(['{', '[']) => content.to_owned(),
        "\"arrayValue\"" => {
            let values: Result<Vec<String>, Reject> =
                array(content, "values").map(|item| any_value(item, depth + 1)).collect();
            format!("[{}]", values?.join(","))
        }
        "\"kvlistValue\"" => object(&key_values(array(content, "values"), depth + 1)?),
        _ => "null".into(),
    })
}

pub(super) fn too_deep() -> Reject {
    Reject::InvalidJson {
        detail: format!("a log record has values that are nested more than {DEPTH_MAX} deep"),
    }
}
