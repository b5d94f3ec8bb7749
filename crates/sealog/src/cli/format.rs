//! What events look like to those who take them over. A format is a row of [`FORMATS`]: its name, what it is, and the function that writes an event in it.

use serde_json::value::RawValue;

use super::exit::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The text of the service, byte for byte.
    Json,
}

/// Writes one event, without the end of its line.
type Write = fn(&RawValue, &mut Vec<u8>) -> Result<(), Failure>;

const FORMATS: [(Format, &str, &str, Write); 1] =
    [(Format::Json, "json", "the event as the service has it, byte for byte", |event, out| {
        out.extend_from_slice(event.get().as_bytes());
        Ok(())
    })];

impl Format {
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(_, name, ..)| *name)
    }

    /// For the help of a command.
    pub(super) fn explained() -> String {
        let rows = FORMATS.iter().map(|(_, name, what, _)| format!("{name} ({what})"));
        rows.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn parse(text: &str) -> Option<Format> {
        FORMATS.iter().find(|(_, name, ..)| *name == text).map(|(format, ..)| *format)
    }

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    pub(super) fn put(self, event: &RawValue, out: &mut Vec<u8>) -> Result<(), Failure> {
        (self.row().3)(event, out)
    }

    fn row(self) -> &'static (Format, &'static str, &'static str, Write) {
        FORMATS.iter().find(|(format, ..)| *format == self).expect("every format has a row")
    }
}
