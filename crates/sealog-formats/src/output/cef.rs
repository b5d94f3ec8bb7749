//! The Common Event Format: a header between bars, then names and values.

use super::event::Event;
use super::made::Value;
use super::table::{Mapping, Row};

/// Fields of the header. The first one begins with the format's name.
const HEADER: usize = 7;

pub(super) fn line(mapping: &Mapping, event: &Event) -> String {
    let text = |row: &Row| row.from.value(event).map(Value::into_text);
    let mut line = "CEF:".to_owned();
    for row in &mapping.rows[..HEADER] {
        line.push_str(&in_header(&text(row).unwrap_or_default()));
        line.push('|');
    }
    let mut first = true;
    let mut rows = mapping.rows[HEADER..].iter().peekable();
    while let Some(row) = rows.next() {
        // A label stands behind its value, and not without it.
        let is_labelled = rows.peek().is_some_and(|next| next.to.strip_suffix("Label") == Some(row.to));
        let label = if is_labelled { rows.next() } else { None };
        let Some(value) = text(row) else { continue };
        for (to, value) in
            [(row.to, Some(value))].into_iter().chain(label.map(|label| (label.to, text(label))))
        {
            if !std::mem::replace(&mut first, false) {
                line.push(' ');
            }
            line.push_str(&format!("{to}={}", in_extension(&value.unwrap_or_default())));
        }
    }
    line
}

/// A header has no line ends, whatever an action is called.
fn in_header(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn in_extension(text: &str) -> String {
    text.replace('\\', "\\\\").replace('=', "\\=").replace('\n', "\\n").replace('\r', "\\r")
}
