//! Pages that are written from tables of the program.

mod api;
mod errors;
mod formats;
mod frameworks;
pub(crate) mod program;
mod source;

use program::Program;
use serde_json::Value;
pub(crate) use source::Source;

use crate::contents::PARTS;
use crate::layout::Entry;

/// What the program knows of itself.
#[derive(Debug)]
pub struct Given<'a> {
    /// `/openapi.json`
    pub openapi: &'a Value,
    pub program: &'a Program,
    /// Where clients reach this server.
    pub base_url: &'a str,
    pub version: &'a str,
}

pub(crate) fn all(given: &Given<'_>) -> Vec<Source> {
    let mut sources = api::pages(given.openapi);
    sources.extend(program::pages(given.program));
    sources.extend(formats::pages());
    sources.extend(frameworks::pages());
    sources.extend(errors::pages());
    sources
}

/// The first page: the contents.
pub(crate) fn home(entries: &[Entry]) -> Source {
    let mut markdown = "# Sealog documentation\n\n\
                        The documentation of this server's version and settings. It needs no network. New \
                        here? The [quickstart](/docs/quickstart) takes five minutes.\n"
        .to_owned();
    for part in PARTS {
        markdown.push_str(&format!("\n## {part}\n\n"));
        for entry in entries.iter().filter(|entry| entry.part == part) {
            markdown.push_str(&format!("- [{}](/docs/{})\n", entry.label, entry.path));
        }
    }
    Source::new("", "Contents", markdown)
}
