//! OTLP/HTTP with JSON: names in lower camel case, 64-bit numbers as strings, ids in hexadecimal.

use sealog_core::json::{self, Items, Members};
use sealog_core::reject::Reject;

use super::item::{Item, Written};
use super::members::member;
use super::otlp::{ATTRIBUTES_MAX, DEPTH_MAX, Record, object, too_deep, too_many_attributes};

pub(super) fn items<'b>(body: &str) -> Result<Vec<Item<'b>>, Reject> {
    let canonical = json::canonical(body)?;
    if !canonical.starts_with('{') {
        let detail = "the body must be an ExportLogsServiceRequest: an object with `resourceLogs`".into();
        return Err(Reject::InvalidJson { detail });
    }
    let mut items = Written::default();
    for of_resource in array(&canonical, "resourceLogs") {
        let resource = member(of_resource, "resource").filter(|value| value.starts_with('{'));
        let resource = resource.map(attributes).transpose()?.and_then(|found| object(&found));
        for of_scope in array(of_resource, "scopeLogs") {
            for record in array(of_scope, "logRecords") {
                items.add(|| Ok(read(record)?.event(resource.as_deref())))?;
            }
        }
    }
    Ok(items.into_items())
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
        attributes: attributes(record)?,
        event_name: text("eventName"),
        time_unix_nano: nanos(member(record, "timeUnixNano")),
        observed_time_unix_nano: nanos(member(record, "observedTimeUnixNano")),
        severity_text: text("severityText"),
        body: member(record, "body").map(json_of).transpose()?,
        trace_id: text("traceId"),
        span_id: text("spanId"),
    })
}

/// A 64-bit number is a string, and some senders write a number all the same.
fn nanos(value: Option<&str>) -> u64 {
    value.and_then(|value| value.trim_matches('"').parse().ok()).unwrap_or(0)
}

fn attributes(of: &str) -> Result<Vec<(String, String)>, Reject> {
    let mut found = Vec::new();
    for (name, value) in array(of, "attributes").filter_map(key_value) {
        if found.len() == ATTRIBUTES_MAX {
            return Err(too_many_attributes());
        }
        found.push((name, value.map_or_else(|| Ok("null".into()), json_of)?));
    }
    Ok(found)
}

/// A `KeyValue`, if it is one.
fn key_value(pair: &str) -> Option<(String, Option<&str>)> {
    let is_object = pair.starts_with('{');
    let name = is_object.then(|| member(pair, "key")).flatten().and_then(json::decode)?;
    Some((name, member(pair, "value")))
}

fn json_of(value: &str) -> Result<String, Reject> {
    let mut out = Vec::new();
    put_any_value(value, 0, &mut out)?;
    Ok(String::from_utf8(out).unwrap_or_default())
}

/// Writes the JSON of an `AnyValue`: `{"stringValue":"x"}` is `"x"`.
fn put_any_value(value: &str, depth: usize, out: &mut Vec<u8>) -> Result<(), Reject> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    let first = if value.starts_with('{') { Members::of(value).next() } else { None };
    let (kind, content) = first.unwrap_or(("", ""));
    match kind {
        "\"stringValue\"" | "\"bytesValue\"" if content.starts_with('"') => out.extend(content.as_bytes()),
        "\"boolValue\"" if matches!(content, "true" | "false") => out.extend(content.as_bytes()),
        "\"intValue\"" => match content.trim_matches('"').parse::<i64>() {
            Ok(number) => out.extend(number.to_string().as_bytes()),
            Err(_) => out.extend(b"null"),
        },
        // Numbers stay as they were written; those that JSON has no word for are strings.
        "\"doubleValue\"" if !content.starts_with(['{', '[']) => out.extend(content.as_bytes()),
        "\"arrayValue\"" => {
            out.push(b'[');
            for (number, item) in array(content, "values").enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                put_any_value(item, depth + 1, out)?;
            }
            out.push(b']');
        }
        "\"kvlistValue\"" => {
            out.push(b'{');
            for (number, (name, value)) in array(content, "values").filter_map(key_value).enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                json::put_string(&name, out);
                out.push(b':');
                put_any_value(value.unwrap_or("null"), depth + 1, out)?;
            }
            out.push(b'}');
        }
        _ => out.extend(b"null"),
    }
    Ok(())
}
