//! A log record of OpenTelemetry, in whichever encoding it came.

use sealog_core::time;

use super::members::{Object, quoted};
use super::table::{LOGS, Place, is_mapped};

/// Values inside values, at most: what is deeper is refused.
pub(super) const DEPTH_MAX: usize = 32;

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
