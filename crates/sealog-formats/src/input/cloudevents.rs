//! CloudEvents 1.0 in structured mode.

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
