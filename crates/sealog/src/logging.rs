//! Where log lines go, and in which form.

use std::ffi::OsStr;
use std::io::{IsTerminal, stderr};

use tracing_subscriber::fmt::writer::MakeWriterExt;

/// `log_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for people on a terminal, JSON for machines.
    Auto,
    Json,
    Text,
}

impl Format {
    pub(crate) fn parse(text: &str) -> Option<Format> {
        match text {
            "auto" => Some(Format::Auto),
            "json" => Some(Format::Json),
            "text" => Some(Format::Text),
            _ => None,
        }
    }

    fn is_json(self, on_terminal: bool) -> bool {
        match self {
            Format::Auto => !on_terminal,
            Format::Json => true,
            Format::Text => false,
        }
    }
}

/// All lines of a level and above, to stderr: stdout is for data.
pub(crate) fn to_stderr(level: tracing::Level, format: Format) {
    let on_terminal = stderr().is_terminal();
    // HTTP/2 tells of every frame; that is for those who work on it.
    let ours = stderr.with_filter(|line| !line.target().starts_with("h2"));
    // A line that cannot be written, as on a full disk, is lost. To say so on stderr would panic.
    let lines = tracing_subscriber::fmt().with_writer(ours).log_internal_errors(false);
    let lines = lines.with_target(false).with_max_level(level);
    if format.is_json(on_terminal) {
        lines.json().with_current_span(false).with_span_list(false).init();
    } else {
        lines.with_ansi(has_colours(on_terminal, std::env::var_os("NO_COLOR").as_deref())).init();
    }
}

/// Colours are for eyes, not for files, and not for people who turn them off (no-color.org).
fn has_colours(on_terminal: bool, no_color: Option<&OsStr>) -> bool {
    on_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_turns_colours_off_and_an_empty_one_does_not() {
        let shown = [None, Some(""), Some("1")].map(|no_color| has_colours(true, no_color.map(OsStr::new)));
        assert_eq!(shown, [true, true, false]);
        assert!(!has_colours(false, None));
    }

    #[test]
    fn lines_are_json_where_nobody_watches_unless_said_otherwise() {
        let is_json =
            |text: &str| [true, false].map(|on_terminal| Format::parse(text).unwrap().is_json(on_terminal));
        assert_eq!(is_json("auto"), [false, true]);
        assert_eq!(is_json("json"), [true, true]);
        assert_eq!(is_json("text"), [false, false]);
        assert_eq!(Format::parse("xml"), None);
    }
}
