//! A stored event, as texts.

use sealog_core::json::{self, Members};
use sealog_core::time;

/// The text is no stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAnEvent(String);

impl std::fmt::Display for NotAnEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not a stored event: {}", self.0)
    }
}

impl std::error::Error for NotAnEvent {}

/// The fields of an event in canonical text.
#[derive(Debug)]
pub(super) struct Event {
    canonical: String,
}

/// Without these there is nothing to say.
const NEEDED: [&str; 4] = ["log_id", "action", "timestamp", "chain_seq"];

impl Event {
    pub(super) fn parse(text: &str) -> Result<Event, NotAnEvent> {
        let canonical = json::canonical(text).map_err(|error| NotAnEvent(error.to_string()))?;
        if !canonical.starts_with('{') {
            return Err(NotAnEvent("it is not a JSON object".into()));
        }
        let event = Event { canonical };
        match NEEDED.iter().find(|name| event.json(name).is_none()) {
            Some(name) => Err(NotAnEvent(format!("it has no {name}"))),
            None => Ok(event),
        }
    }

    /// All of it.
    pub(super) fn whole(&self) -> &str {
        &self.canonical
    }

    /// A field as JSON. `null` is nothing.
    pub(super) fn json(&self, name: &str) -> Option<&str> {
        let mut members = Members::of(&self.canonical);
        let (_, value) = members.find(|(key, _)| key.trim_matches('"') == name)?;
        (value != "null").then_some(value)
    }

    /// A field as text ([`plain`]).
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.json(name).map(plain)
    }

    pub(super) fn timestamp_ms(&self) -> Option<u64> {
        time::parse_iso_ms(&self.text("timestamp")?)
    }
}

/// A string without its quotes; anything else, and a string that is no text, as it stands.
pub(super) fn plain(json: &str) -> String {
    let text = json.starts_with('"').then(|| json::decode(json)).flatten();
    text.unwrap_or_else(|| json.to_owned())
}
