//! CloudEvents 1.0 in structured and in binary mode.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sealog_core::json::{self, quoted};
use sealog_core::reject::{FieldProblem, Reject};

use super::members::{Object, member};
use super::table::{CLOUD_EVENTS, Place, TYPE_PREFIX};

/// Attributes that every event has.
const REQUIRED: [&str; 3] = ["id", "source", "type"];

/// Actions of types of CloudEvents, where these are not called what their type is. What an event says itself
/// (`auditaction`) wins.
#[derive(Clone, Debug, Default)]
pub struct ActionNames(BTreeMap<String, String>);

impl FromIterator<(String, String)> for ActionNames {
    /// Pairs of a type and an action.
    fn from_iter<T: IntoIterator<Item = (String, String)>>(pairs: T) -> ActionNames {
        // As canonical text, which is what an event is compared and written with.
        ActionNames(pairs.into_iter().map(|(kind, action)| (quoted(&kind), quoted(&action))).collect())
    }
}

/// The body of `POST /v1/events` for a CloudEvent.
pub fn event(item: &str, names: &ActionNames) -> Result<String, Reject> {
    let canonical = json::canonical(item)?;
    if !canonical.starts_with('{') {
        return Err(Reject::InvalidField { field: "event", problem: FieldProblem::NotAnObject });
    }
    if member(&canonical, "specversion") != Some("\"1.0\"") {
        return Err(Reject::InvalidField { field: "specversion", problem: FieldProblem::NotThis("1.0") });
    }
    for field in REQUIRED {
        let value = member(&canonical, field).filter(|value| value.starts_with('"') && *value != "\"\"");
        if value.is_none() {
            return Err(Reject::InvalidField {
                field,
                problem: FieldProblem::NotThis("a string that is not empty"),
            });
        }
    }
    let mut event = Object::new();
    for row in CLOUD_EVENTS {
        if let Some(value) = row.from.iter().find_map(|place| value(&canonical, *place, names)) {
            event.put(row.to, &value);
        }
    }
    Ok(event.end())
}

/// The attributes of an event in binary mode, as the first line of its body for
/// [`super::Adapter::CloudEventBinary`]. Takes the names of the headers without `ce-`, and their values as
/// they came.
pub fn attributes<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<String, Reject> {
    let mut seen = BTreeMap::new();
    for (name, value) in headers {
        let value = header_value(value).ok_or(Reject::InvalidField {
            field: "a header ce-*",
            problem: FieldProblem::NotThis("UTF-8, percent-encoded where it is not printable ASCII"),
        })?;
        if name == "data" || name == "data_base64" || seen.insert(name, quoted(&value)).is_some() {
            return Err(Reject::InvalidField {
                field: "a header ce-*",
                problem: FieldProblem::NotThis("an attribute, given once"),
            });
        }
    }
    let mut line = Object::new();
    for (name, value) in seen {
        line.put(name, &value);
    }
    Ok(line.end() + "\n")
}

/// What a header says: without its quotes, then percent-decoded once, as the HTTP binding of CloudEvents
/// wants it.
fn header_value(value: &[u8]) -> Option<String> {
    let mut plain = Vec::with_capacity(value.len());
    match value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) {
        None => plain.extend_from_slice(value),
        Some(inner) => {
            let mut bytes = inner.iter();
            while let Some(byte) = bytes.next() {
                plain.push(if *byte == b'\\' { *bytes.next()? } else { *byte });
            }
        }
    }
    percent_encoding::percent_decode(&plain).decode_utf8().ok().map(Cow::into_owned)
}

/// An event in binary mode: the line of its attributes, then its data.
pub(super) fn binary(body: &str) -> Result<String, Reject> {
    let (line, data) = body.split_once('\n').unwrap_or((body, ""));
    let line = json::canonical(line)?;
    if !line.starts_with('{') {
        return Err(Reject::InvalidField { field: "event", problem: FieldProblem::NotAnObject });
    }
    let mut whole = Object::with(&line);
    if !data.trim().is_empty() {
        // By itself: what is no JSON here must not become members of the event.
        whole.put("data", &json::canonical(data)?);
    }
    event(&whole.end(), &ActionNames::default())
}

fn value(event: &str, place: Place, ActionNames(names): &ActionNames) -> Option<String> {
    match place {
        Place::Named(name) => member(event, name).map(str::to_owned),
        Place::CloudType => {
            let kind = member(event, "type")?;
            if let Some(action) = names.get(kind) {
                return Some(action.clone());
            }
            Some(match kind.strip_prefix(&format!("\"{TYPE_PREFIX}")) {
                Some(action) => format!("\"{action}"),
                None => kind.to_owned(),
            })
        }
        Place::CloudData => Some(metadata(event)),
        // Of log records.
        Place::EventName | Place::LogTime | Place::LogRest => None,
    }
}

fn metadata(event: &str) -> String {
    let mut metadata = match member(event, "data") {
        Some(data) if data.starts_with('{') => Object::with(data),
        data => {
            let mut object = Object::new();
            if let Some(data) = data {
                object.put("data", data);
            }
            if let Some(encoded) = member(event, "data_base64") {
                object.put("data_base64", encoded);
            }
            object
        }
    };
    let mut about = Object::new();
    for name in REQUIRED {
        if let Some(value) = member(event, name) {
            about.put(name, value);
        }
    }
    metadata.put("cloudevent", &about.end());
    metadata.end()
}

#[cfg(test)]
mod tests {
    use super::header_value;

    #[test]
    fn a_header_is_decoded_once_and_a_percent_sign_that_escapes_nothing_stays() {
        for (written, read) in [
            ("J%C3%bcrgen", Some("Jürgen")),
            ("\"a \\\"b\\\" 100%25\"", Some("a \"b\" 100%")),
            ("%2541", Some("%41")),
            ("a+b 100%", Some("a+b 100%")),
            ("%4", Some("%4")),
            ("%zz%41", Some("%zzA")),
            ("%ff", None),
            ("\"a\\\"", None),
        ] {
            assert_eq!(header_value(written.as_bytes()).as_deref(), read, "{written}");
        }
    }
}
