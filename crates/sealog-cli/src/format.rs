//! What events look like to those who take them over. A format is a row of [`FORMATS`]: its name and what it
//! is. How it is written is in `sealog-formats`, beside the table that says which field becomes which.

use sealog_formats::output;

use super::exit::{Exit, Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The text of the service, byte for byte.
    Json,
    /// That of another program.
    Other(output::Format),
}

const FORMATS: [(Format, &str, &str); 5] = [
    (Format::Json, "json", "the event as the service has it, byte for byte"),
    (Format::Other(output::Format::Ocsf), "ocsf", "Open Cybersecurity Schema Framework"),
    (Format::Other(output::Format::Ecs), "ecs", "Elastic Common Schema"),
    (Format::Other(output::Format::Cef), "cef", "Common Event Format"),
    (Format::Other(output::Format::CloudEvents), "cloudevents", "CloudEvents 1.0"),
];

impl Format {
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(_, name, _)| *name)
    }

    /// For the help of a command.
    pub(super) fn explained() -> String {
        let rows = FORMATS.iter().map(|(_, name, what)| format!("{name} ({what})"));
        rows.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn parse(text: &str) -> Option<Format> {
        FORMATS.iter().find(|(_, name, _)| *name == text).map(|(format, ..)| *format)
    }

    pub(super) fn name(self) -> &'static str {
        let row = FORMATS.iter().find(|(format, ..)| *format == self);
        row.map(|(_, name, _)| *name).expect("every format has a row")
    }

    /// Writes one event, without the end of its line.
    pub(super) fn put(self, event: &str, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self {
            Format::Json => out.extend_from_slice(event.as_bytes()),
            Format::Other(format) => {
                let line = output::render(format, event)
                    .map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
                out.extend_from_slice(line.as_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_of_the_table_of_mappings_has_a_row_under_its_name() {
        let names: Vec<&str> = output::Format::ALL.iter().map(|format| format.as_str()).collect();
        assert_eq!(Format::names().collect::<Vec<_>>(), names);
        for name in names {
            let format = Format::parse(name).unwrap();
            assert_eq!(format.name(), name);
            let mapped = match format {
                Format::Json => output::Format::Json,
                Format::Other(format) => format,
            };
            assert_eq!(mapped.as_str(), name);
        }
    }
}
