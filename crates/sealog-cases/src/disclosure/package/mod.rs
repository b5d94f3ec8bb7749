//! What a person gets: a ZIP with their data in words, as JSON and as CSV, an explanation of their rights, a
//! letter, and a manifest. The names of its files are fixed; nothing of an event is in them.

pub mod archive;
pub mod documents;
pub mod encrypted;
pub mod manifest;
mod markup;

/// First in every list of files.
pub const START: &str = "1-start-here.html";
pub const LETTER: &str = "letter.html";
pub const YOUR_DATA: &str = "your-data.html";
pub const EVENTS_JSON: &str = "events.json";
pub const EVENTS_CSV: &str = "events.csv";
pub const EXPLANATION: &str = "explanation.html";
