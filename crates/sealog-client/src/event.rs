//! An event, and what is checked before it is sent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::value;

/// The longest text of an event, in bytes.
const EVENT_BYTES_MAX: usize = 262_144;
/// The longest text of a field other than the metadata, in characters.
const TEXT_MAX: usize = 255;

/// What an application logs: docs/spec.md, section 2.1. Empty texts count as absent.
///
/// ```
/// use sealog_client::Event;
/// let event = Event::new("document.updated").actor_id("u-17").resource("document/42").with("version", 12);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Required, for example `user.login`.
    pub action: String,
    #[serde(skip_serializing_if = "is_absent")]
    pub actor_id: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub actor_type: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub resource: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub resource_type: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub severity: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "is_absent")]
    pub ts_client: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The first value that JSON cannot carry. Logging the event fails with it.
    #[serde(skip)]
    problem: Option<Error>,
}

fn is_absent(text: &Option<String>) -> bool {
    text.as_ref().is_none_or(String::is_empty)
}

macro_rules! setters {
    ($($name:ident),*) => { $(
        #[must_use]
        pub fn $name(mut self, $name: impl Into<String>) -> Event {
            self.$name = Some($name.into());
            self
        }
    )* };
}

impl Event {
    pub fn new(action: impl Into<String>) -> Event {
        Event { action: action.into(), ..Event::default() }
    }

    setters!(actor_id, actor_type, resource, resource_type, severity, session_id, ts_client);

    /// Sets a member of the metadata. A value that JSON cannot carry (NaN, bytes, a time) is an error when
    /// the event is logged, and names its place.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Serialize) -> Event {
        let name = name.into();
        match value::checked(&format!("metadata.{name}"), &value) {
            Ok(value) => {
                self.metadata.insert(name, value);
            }
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self
    }

    fn texts(&self) -> [(&'static str, &Option<String>); 7] {
        [
            ("actor_id", &self.actor_id),
            ("actor_type", &self.actor_type),
            ("resource", &self.resource),
            ("resource_type", &self.resource_type),
            ("severity", &self.severity),
            ("session_id", &self.session_id),
            ("ts_client", &self.ts_client),
        ]
    }

    /// Adds what the event lacks.
    pub(crate) fn fill(&mut self, known: &Event) {
        let filled = |own: &mut Option<String>, known: &Option<String>| {
            if is_absent(own) {
                own.clone_from(known);
            }
        };
        if self.action.is_empty() {
            self.action.clone_from(&known.action);
        }
        filled(&mut self.actor_id, &known.actor_id);
        filled(&mut self.actor_type, &known.actor_type);
        filled(&mut self.resource, &known.resource);
        filled(&mut self.resource_type, &known.resource_type);
        filled(&mut self.severity, &known.severity);
        filled(&mut self.session_id, &known.session_id);
        filled(&mut self.ts_client, &known.ts_client);
        for (name, value) in &known.metadata {
            if !self.metadata.contains_key(name) {
                self.metadata.insert(name.clone(), value.clone());
            }
        }
        self.problem = self.problem.take().or_else(|| known.problem.clone());
    }

    /// The body that is sent, or which field is wrong and what to do.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        if self.action.is_empty() {
            return Err(Error::event("action", "is required, for example \"user.login\""));
        }
        check("action", &self.action)?;
        for (name, text) in self.texts() {
            if let Some(text) = text {
                check(name, text)?;
            }
        }
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::event("metadata", &format!("cannot be written as JSON: {error}")))?;
        if text.len() > EVENT_BYTES_MAX {
            return Err(self.too_large(text.len()));
        }
        Ok(text)
    }

    fn too_large(&self, size: usize) -> Error {
        let bytes = |value: &Value| value.to_string().len();
        let largest = self.metadata.iter().max_by_key(|(_, value)| bytes(value));
        let part = largest.map_or("action".to_owned(), |(name, _)| format!("metadata.{name}"));
        let problem = format!(
            "has {size} bytes; at most 262,144 are allowed. The largest part is {part}: shorten it, or store it elsewhere and log its hash"
        );
        Error::event("event", &problem)
    }

    /// Reads an event that any of the libraries has written. One that is nested too deeply for this one keeps
    /// its texts.
    pub(crate) fn decode(text: &[u8]) -> Event {
        #[derive(Deserialize)]
        struct Texts {
            action: String,
            actor_id: Option<String>,
            resource: Option<String>,
        }
        serde_json::from_slice(text).unwrap_or_else(|_| match serde_json::from_slice(text) {
            Ok(Texts { action, actor_id, resource }) => {
                Event { action, actor_id, resource, ..Event::default() }
            }
            Err(_) => Event::default(),
        })
    }
}

fn check(name: &str, text: &str) -> Result<(), Error> {
    if text.len() > TEXT_MAX && text.chars().count() > TEXT_MAX {
        let count = text.chars().count();
        let problem =
            format!("has {count} characters; at most 255 are allowed. Put long texts into metadata");
        return Err(Error::event(name, &problem));
    }
    if text.contains('\0') {
        return Err(Error::event(name, "contains NUL; remove it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: &Event) -> String {
        String::from_utf8(event.encode().unwrap()).unwrap()
    }

    fn field(event: &Event) -> String {
        event.encode().unwrap_err().field.clone().unwrap()
    }

    #[test]
    fn an_event_has_what_was_set_and_nothing_else() {
        assert_eq!(text(&Event::new("user.login")), r#"{"action":"user.login"}"#);
        let event =
            Event::new("user.login").actor_id("u-17").resource("").with("price", 1.5).with("note", "é");
        let written = r#"{"action":"user.login","actor_id":"u-17","metadata":{"note":"é","price":1.5}}"#;
        assert_eq!(text(&event), written);
        assert_eq!(Event::decode(written.as_bytes()).metadata["price"], 1.5);
    }

    #[test]
    fn a_text_has_at_most_255_characters_and_no_nul() {
        assert!(Event::new("a").resource("é".repeat(255)).encode().is_ok());
        assert_eq!(field(&Event::new("a").resource("é".repeat(256))), "resource");
        assert_eq!(field(&Event::new("a".repeat(256))), "action");
        assert_eq!(field(&Event::new("a").session_id("a\0b")), "session_id");
        assert_eq!(field(&Event::new("")), "action");
    }

    #[test]
    fn an_event_has_at_most_262_144_bytes_and_the_error_names_its_largest_part() {
        let sized = |bytes: usize| Event::new("a").with("n", 1).with("text", "x".repeat(bytes));
        let around = sized(0).encode().unwrap().len();
        assert!(sized(EVENT_BYTES_MAX - around).encode().is_ok());
        let error = sized(EVENT_BYTES_MAX - around + 1).encode().unwrap_err();
        assert_eq!(error.field.as_deref(), Some("event"));
        assert!(error.message.contains("262,145") || error.message.contains("262145"), "{error}");
        assert!(error.message.contains("metadata.text"), "{error}");
    }

    #[test]
    fn an_event_that_is_nested_too_deeply_to_be_read_keeps_its_texts() {
        let nested = format!(
            r#"{{"action":"a","resource":"r","metadata":{{"n":{0}1{1}}}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        let event = Event::decode(nested.as_bytes());
        assert_eq!((event.action.as_str(), event.resource.as_deref()), ("a", Some("r")));
    }

    #[test]
    fn fields_of_the_event_win_over_what_is_known() {
        let known = Event::default().actor_id("u-1").session_id("s-1").with("a", 1).with("b", 2);
        let mut event = Event::new("x").actor_id("u-2").session_id("").with("b", 3);
        event.fill(&known);
        assert_eq!(event, Event::new("x").actor_id("u-2").session_id("s-1").with("a", 1).with("b", 3));
    }
}
