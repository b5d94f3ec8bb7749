//! What the file of an export looks like.

use sealog_core::event::StoredEvent;

use super::csv;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As it is: each value byte for byte, so that a row can be checked.
    Csv,
    /// For a spreadsheet, in which no cell is a formula. Not for verification.
    SpreadsheetCsv,
    /// An event in a line, as the API returns it: what the verifiers read.
    Ndjson,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Csv, Format::SpreadsheetCsv, Format::Ndjson];

    pub fn as_str(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::SpreadsheetCsv => "csv-spreadsheet",
            Format::Ndjson => "ndjson",
        }
    }

    pub fn parse(text: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == text)
    }

    /// Whether its rows can be recomputed.
    pub fn is_faithful(self) -> bool {
        self != Format::SpreadsheetCsv
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::Csv | Format::SpreadsheetCsv => "text/csv; charset=utf-8; header=present",
            Format::Ndjson => "application/x-ndjson",
        }
    }

    /// How the name of a file ends.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::SpreadsheetCsv => "spreadsheet-not-for-verification.csv",
            Format::Ndjson => "ndjson",
        }
    }

    /// What stands before the first event.
    pub(super) fn put_header(self, out: &mut Vec<u8>) {
        match self {
            Format::Csv => csv::put_header(out),
            Format::SpreadsheetCsv => csv::put_safe_header(out),
            Format::Ndjson => {}
        }
    }

    pub(super) fn put_event(self, event: &StoredEvent, out: &mut Vec<u8>) {
        match self {
            Format::Csv => csv::put_event(event, out),
            Format::SpreadsheetCsv => csv::put_safe_event(event, out),
            Format::Ndjson => {
                event.put_json(out);
                out.push(b'\n');
            }
        }
    }
}
