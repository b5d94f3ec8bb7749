//! A log record of OpenTelemetry, in whichever encoding it came.

use sealog_core::json::quoted;
use sealog_core::reject::Reject;
use sealog_core::time;

use super::members::Object;
use super::table::{LOGS, Place, is_mapped};

/// Values inside values, at most: what is deeper is refused.
pub const DEPTH_MAX: usize = 32;

/// Most attributes of a record or a resource. SDKs stop at 128 unless they are told otherwise.
pub const ATTRIBUTES_MAX: usize = 1024;

pub(super) fn too_deep() -> Reject {
    Reject::InvalidJson {
        detail: format!("a log record has values that are nested more than {DEPTH_MAX} deep"),
    }
}

pub(super) fn too_many_attributes() -> Reject {
    Reject::InvalidJson {
        detail: format!("a log record or a resource has more than {ATTRIBUTES_MAX} attributes"),
    }
}

/// Attributes as a JSON object, if there are any. Values are JSON.
pub(super) fn object(attributes: &[(String, String)]) -> Option<String> {
    let mut object = Object::new();
    for (name, value) in attributes {
        object.put(name, value);
    }
    (!object.is_empty()).then(|| object.end())
}

/// What is used of a record. Values are JSON.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub attributes: Vec<(String, String)>,
    pub event_name: Option<String>,
    pub time_unix_nano: u64,
    pub observed_time_unix_nano: u64,
    pub severity_text: Option<String>,
    pub body: Option<String>,
    pub trace_id: Option<String>,
    pub span_id: Option<String>,
}

impl Record {
    /// The body of `POST /v1/events`. `resource` has the attributes of what wrote the record, as an object.
    pub(super) fn event(&self, resource: Option<&str>) -> String {
        let mut event = Object::new();
        for row in LOGS {
            if let Some(value) = row.from.iter().find_map(|place| self.value(*place, resource)) {
                event.put(row.to, &value);
            }
        }
        event.end()
    }

    fn value(&self, place: Place, resource: Option<&str>) -> Option<String> {
        match place {
            Place::Named(name) => {
                let found = self.attributes.iter().rev().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone()).filter(|value| value != "null" && value != "\"\"")
            }
            Place::EventName => self.event_name.as_deref().filter(|name| !name.is_empty()).map(quoted),
            Place::LogTime => {
                let nanos = [self.time_unix_nano, self.observed_time_unix_nano];
                let nanos = nanos.into_iter().find(|nanos| *nanos > 0)?;
                Some(quoted(&time::iso_ms(nanos / 1_000_000)))
            }
            Place::LogRest => self.rest(resource),
            // Of CloudEvents.
            Place::CloudType | Place::CloudData => None,
        }
    }

    fn rest(&self, resource: Option<&str>) -> Option<String> {
        let mut rest = Object::new();
        let texts =
            [("severityText", &self.severity_text), ("traceId", &self.trace_id), ("spanId", &self.span_id)];
        if let Some(body) = &self.body {
            rest.put("body", body);
        }
        for (name, text) in texts {
            if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
                rest.put_text(name, text);
            }
        }
        for (name, value) in self.attributes.iter().filter(|(name, _)| !is_mapped(name)) {
            rest.put(name, value);
        }
        if let Some(resource) = resource {
            rest.put("resource_attributes", resource);
        }
        (!rest.is_empty()).then(|| rest.end())
    }
}
