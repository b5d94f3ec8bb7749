//! Stored events for what reads them: SIEMs, data lakes, other programs.

mod cef;
mod ecs;
mod event;
mod made;
mod meaning;
mod ocsf;
mod table;
mod tree;

use event::Event;
pub use event::NotAnEvent;
pub use made::Made;
pub use table::{Mapping, Origin, Row};

/// What an event is written as: always one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Ocsf,
    Ecs,
    Cef,
    CloudEvents,
}

impl Format {
    pub const ALL: [Format; 5] = [Format::Json, Format::Ocsf, Format::Ecs, Format::Cef, Format::CloudEvents];

    /// As `--format` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Ocsf => "ocsf",
            Format::Ecs => "ecs",
            Format::Cef => "cef",
            Format::CloudEvents => "cloudevents",
        }
    }

    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// What becomes of each field; nothing for JSON, where an event is the text that the service has sent.
    pub fn mapping(self) -> Option<&'static Mapping> {
        match self {
            Format::Json => None,
            Format::Ocsf => Some(&table::OCSF),
            Format::Ecs => Some(&table::ECS),
            Format::Cef => Some(&table::CEF),
            Format::CloudEvents => Some(&table::CLOUD_EVENTS),
        }
    }
}

/// Writes a stored event, as `GET /v1/events` returns it. The result has no line end.
pub fn render(format: Format, event_json: &str) -> Result<String, NotAnEvent> {
    let Some(mapping) = format.mapping() else { return Ok(event_json.to_owned()) };
    let event = Event::parse(event_json)?;
    Ok(match format {
        Format::Cef => cef::line(mapping, &event),
        Format::Ocsf => tree::object(mapping, &event, |path| ocsf::has_room(&event, path)),
        _ => tree::object(mapping, &event, |_| true),
    })
}
