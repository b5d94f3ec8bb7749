//! Events as rows: RFC 4180, UTF-8, one order of columns.
//!
//! The faithful form has every value as it is. A value that is absent is an empty cell, and one that is an
//! empty text is a pair of quotes; so the six hashed values can be told from each row, and its hash
//! recomputed.
//!
//! A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, whatever quotes surround
//! it. In the form for spreadsheets such a cell begins with an apostrophe, characters that nobody sees are
//! written out, and a cell that is longer than a spreadsheet holds is cut. That changes values, so nothing of
//! it can be recomputed.

use sealog_core::event::{CSV_COLUMNS, StoredEvent, Value, csv_header};

use crate::evidence::hidden::written_out;

/// Of a cell for spreadsheets, which hold 32,767.
const CELL_CHARS_MAX: usize = 32_000;
/// By it spreadsheets know UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub(super) fn put_header(out: &mut Vec<u8>) {
    out.extend_from_slice(csv_header().as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn put_event(event: &StoredEvent, out: &mut Vec<u8>) {
    put_row(event, out, |text, out| {
        let is_plain = |byte: u8| !matches!(byte, b'"' | b',' | b'\r' | b'\n' | b' ' | b'\t');
        if !text.is_empty() && text.bytes().all(is_plain) {
            out.extend_from_slice(text.as_bytes());
        } else {
            put_quoted(text, out);
        }
    });
}

pub(super) fn put_safe_header(out: &mut Vec<u8>) {
    out.extend_from_slice(BYTE_ORDER_MARK);
    put_header(out);
}

pub(super) fn put_safe_event(event: &StoredEvent, out: &mut Vec<u8>) {
    put_row(event, out, put_safe_cell);
}

fn put_row(event: &StoredEvent, out: &mut Vec<u8>, put_text: impl Fn(&str, &mut Vec<u8>)) {
    for (at, field) in CSV_COLUMNS.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match event.value(field.id) {
            None => {}
            Some(Value::Number(number)) => out.extend_from_slice(number.to_string().as_bytes()),
            // Of `metadata` the stored text itself: it is what was hashed.
            Some(value) => put_text(&value.to_text(), out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn put_quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'"');
}

/// A cell for spreadsheets, of other files that people open with them.
pub fn put_safe_cell(text: &str, out: &mut Vec<u8>) {
    put_quoted(&safe(text), out);
}

fn safe(text: &str) -> String {
    // Before it is written out, which makes it longer.
    let end = text.char_indices().nth(CELL_CHARS_MAX).map(|(end, _)| end);
    let mut shown = written_out(&text[..end.unwrap_or(text.len())]);
    let too_long = shown.char_indices().nth(CELL_CHARS_MAX).map(|(end, _)| end);
    if let Some(end) = too_long {
        shown.truncate(end);
    }
    if end.is_some() || too_long.is_some() {
        shown.push_str("… [cut]");
    }
    defused(&shown)
}

/// With a quotation mark before whatever a spreadsheet may take for a formula: at the beginning, and behind
/// each semicolon, which separates cells where a comma separates decimals.
fn defused(text: &str) -> String {
    let begins_formula = |character| matches!(character, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠');
    let mut safe = String::with_capacity(text.len() + 1);
    for (at, part) in text.split(';').enumerate() {
        if at > 0 {
            safe.push(';');
        }
        if part.trim_start().starts_with(begins_formula) {
            safe.push('\'');
        }
        safe.push_str(part);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::chain::Head;
    use sealog_core::event::parse_single;
    use sealog_core::id::{ChainId, Mode, ProjectId, Random80, TenantId, Uuid};

    fn event(body: &str) -> StoredEvent {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let draft = parse_single(body.as_bytes()).unwrap().unwrap();
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_700_000_000_123, Random80([0; 10]));
        StoredEvent::new(chain, sealed, draft)
    }

    fn row(put: fn(&StoredEvent, &mut Vec<u8>), body: &str) -> String {
        let mut out = Vec::new();
        put(&event(body), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// As RFC 4180 has them; absent and empty are told apart.
    fn parse(text: &str) -> Vec<Option<String>> {
        let (mut cells, mut rest) = (Vec::new(), text.strip_suffix("\r\n").unwrap());
        loop {
            let cell;
            if let Some(mut quoted) = rest.strip_prefix('"') {
                let mut value = String::new();
                loop {
                    let (part, behind) = quoted.split_once('"').unwrap();
                    value.push_str(part);
                    quoted = behind;
                    match quoted.strip_prefix('"') {
                        Some(more) => {
                            value.push('"');
                            quoted = more;
                        }
                        None => break,
                    }
                }
                (cell, rest) = (Some(value), quoted);
            } else {
                let end = rest.find(',').unwrap_or(rest.len());
                (cell, rest) = ((end > 0).then(|| rest[..end].to_owned()), &rest[end..]);
            }
            cells.push(cell);
            match rest.strip_prefix(',') {
                Some(behind) => rest = behind,
                None => return cells,
            }
        }
    }

    const HOSTILE: [&str; 11] = [
        "=HYPERLINK(\\\"http://evil.example\\\",\\\"x\\\")",
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\\t=1",
        "a\\r\\nb,\\\"c\\\"",
        "\\u202egnp.exe\\u200b\\ufeff",
        "＝1",
        "  =1",
        "x;=cmd|' /C calc'!A0;",
        "a; +1;;@b",
    ];

    #[test]
    fn a_faithful_row_has_every_value_as_it_is_whatever_it_holds() {
        for value in HOSTILE {
            let body = format!(
                r#"{{"action":"{value}","actor_id":"{value}","resource":"{value}","session_id":"{value}","metadata":{{"k":"{value}"}}}}"#
            );
            let text = row(put_event, &body);
            let cells = parse(&text);
            assert_eq!(cells.len(), CSV_COLUMNS.len(), "{text}");
            let (expected, event) =
                (sealog_core::json::decode(&format!("\"{value}\"")).unwrap(), event(&body));
            for at in [3, 4, 6, 10] {
                assert_eq!(cells[at].as_deref(), Some(expected.as_str()), "{}", CSV_COLUMNS[at].name);
            }
            assert_eq!(cells[15].as_deref(), event.text.fields().metadata, "the stored text itself");
            assert_eq!(cells[20], Some(event.sealed.hash.to_string()));
        }
    }

    #[test]
    fn absent_and_empty_are_told_apart() {
        let cells = parse(&row(put_event, r#"{"action":"a.b","actor_id":"","metadata":{}}"#));
        assert_eq!(
            (cells[4].as_deref(), cells[6].as_deref(), cells[15].as_deref()),
            (Some(""), None, Some("{}"))
        );
        let cells = parse(&row(put_event, r#"{"action":"a.b"}"#));
        assert_eq!((cells[4].as_deref(), cells[15].as_deref()), (None, None));
    }

    #[test]
    fn no_cell_for_a_spreadsheet_is_a_formula_or_hides_anything() {
        for value in HOSTILE {
            let body = format!(
                r#"{{"action":"{value}","actor_id":"{value}","resource":"{value}","session_id":"{value}"}}"#
            );
            let text = row(put_safe_event, &body);
            assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
            assert!(!text.trim_end().chars().any(crate::evidence::hidden::is_hidden), "{text}");
            for cell in parse(&text).into_iter().flatten() {
                for part in cell.split(';') {
                    let first = part.trim_start().chars().next().unwrap_or(' ');
                    assert!(!"=+-@＝＋－＠\t\r".contains(first), "{cell}");
                }
            }
        }
        assert!(row(put_safe_event, r#"{"action":"=1"}"#).contains("\"'=1\""));
    }

    #[test]
    fn a_cell_for_a_spreadsheet_is_cut_at_32_000_characters_and_a_faithful_one_is_not() {
        for (length, is_cut) in [(CELL_CHARS_MAX - 8, false), (CELL_CHARS_MAX - 7, true), (1_000_000, true)] {
            let body = format!(r#"{{"action":"a.b","metadata":{{"k":"{}"}}}}"#, "é".repeat(length));
            let safe = parse(&row(put_safe_event, &body))[15].clone().unwrap();
            assert_eq!(safe.ends_with("… [cut]"), is_cut, "{length}");
            assert!(safe.chars().count() <= CELL_CHARS_MAX + 8);
            let faithful = parse(&row(put_event, &body))[15].clone().unwrap();
            assert_eq!(faithful.chars().count(), length + 8);
        }
    }
}
