//! How values are shown. What events hold is hostile until it has passed here and through the templates'
//! escaping.

use sealog_core::json;
use sealog_core::time::{DAY_MS, iso_ms};
use sealog_service::evidence::hidden::{is_hidden, written_out};

/// Characters that change what surrounds them, or that nobody sees, are written out: a name must not read as
/// another one.
pub(crate) fn visible(text: &str) -> String {
    written_out(text)
}

/// The value of a canonical JSON string.
pub(crate) fn of_json(text: &str) -> String {
    json::decode(text).map_or_else(|| visible(text), |text| visible(&text))
}

/// `15 Nov 2026 09:37:38.208 UTC`
pub(crate) fn moment(timestamp_ms: u64) -> String {
    format!("{} {} UTC", day(timestamp_ms), clock_ms(timestamp_ms))
}

/// `15 Nov 2026 09:37 UTC`, where nobody compares seconds.
pub(crate) fn minute(timestamp_ms: u64) -> String {
    format!("{} {} UTC", day(timestamp_ms), &iso_ms(timestamp_ms)[11..16])
}

/// `15 Nov 2026`
pub(crate) fn day(timestamp_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let iso = iso_ms(timestamp_ms);
    let month: usize = iso[5..7].parse().unwrap_or(1);
    format!("{} {} {}", iso[8..10].trim_start_matches('0'), MONTHS[month - 1], &iso[..4])
}

/// `Sun 15 Nov 2026`, of a count of days since 1970-01-01.
pub(crate) fn short_day(days: u32) -> String {
    // The first one was a Thursday.
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    format!("{} {}", WEEKDAYS[days as usize % 7], day(u64::from(days) * DAY_MS))
}

/// `2026-11-15`, of a count of days since 1970-01-01.
pub(crate) fn iso_day(days: u32) -> String {
    iso_ms(u64::from(days) * DAY_MS)[..10].to_owned()
}

/// `12 s`, `6 min`, `3 h`, `9 days`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", number(seconds / 86_400)),
    }
}

/// `09:37:38.208`
pub(crate) fn clock_ms(timestamp_ms: u64) -> String {
    iso_ms(timestamp_ms)[11..23].to_owned()
}

/// `48,292`
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

/// JSON with one member in a line. Canonical text in, so that a character outside of a string is never white
/// space. Numbers and strings stay as they are, but for characters that nobody sees: those become escapes,
/// which mean the same.
pub(crate) fn indented(canonical: &str) -> String {
    let mut out = String::with_capacity(canonical.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        // Deeper than anybody reads; the text would grow with the square of the depth otherwise.
        out.extend(std::iter::repeat_n("  ", depth.min(20)));
    };
    let mut before = ' ';
    for character in canonical.chars() {
        if in_string {
            if is_hidden(character) {
                let units = character.encode_utf16(&mut [0; 2]).to_vec();
                out.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            } else {
                out.push(character);
            }
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            before = character;
            continue;
        }
        match character {
            '{' | '[' => {
                if matches!(before, '{' | '[' | ',') {
                    line(&mut out, depth);
                }
                out.push(character);
                depth += 1;
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !matches!(before, '{' | '[') {
                    line(&mut out, depth);
                }
                out.push(character);
            }
            ',' => out.push(','),
            ':' => out.push_str(": "),
            other => {
                if matches!(before, '{' | '[' | ',') {
                    line(&mut out, depth);
                }
                out.push(other);
                in_string = other == '"';
            }
        }
        before = character;
    }
    out
}

/// The beginning of a text, and whether that is all of it.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> (&str, bool) {
    if text.len() <= bytes_max {
        return (text, true);
    }
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    (&text[..end], false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_written_out() {
        assert_eq!(visible("usr_42 é 漢"), "usr_42 é 漢");
        assert_eq!(visible("a\u{202e}b\0\n\u{200b}\u{2066}"), "a\\u{202e}b\\u{0}\\u{a}\\u{200b}\\u{2066}");
    }

    #[test]
    fn times_and_numbers_read_as_people_write_them() {
        assert_eq!(moment(1794735458208), "15 Nov 2026 09:37:38.208 UTC");
        assert_eq!(minute(1794735458208), "15 Nov 2026 09:37 UTC");
        assert_eq!((day(0), clock_ms(86_399_999)), ("1 Jan 1970".into(), "23:59:59.999".into()));
        assert_eq!([0, 999, 1000, 1234567].map(number), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn days_and_spans_read_as_people_write_them() {
        assert_eq!((short_day(0), short_day(20_772)), ("Thu 1 Jan 1970".into(), "Sun 15 Nov 2026".into()));
        assert_eq!(iso_day(20_772), "2026-11-15");
        assert_eq!(
            [0, 119_999, 120_000, 7_200_000, 172_800_000].map(span),
            ["0 s", "119 s", "2 min", "2 h", "2 days"]
        );
    }

    #[test]
    fn indented_json_is_the_same_json() {
        let canonical = r#"{"a":[1,{"b":"x,{}[]: \" y\\"},[]],"c":{},"d":1.0}"#;
        let shown = indented(canonical);
        assert_eq!(
            shown,
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,{}[]: \\\" y\\\\\"\n    },\n    []\n  ],\n  \"c\": {},\n  \"d\": 1.0\n}"
        );
        assert_eq!(json::canonical(&shown).unwrap(), canonical);
        assert_eq!(indented("null"), "null");
        let hidden = "{\"\u{202e}a\":\"\u{200b}\u{e0001}\\\\\u{feff}\"}";
        let shown = indented(hidden);
        assert_eq!(shown, "{\n  \"\\u202ea\": \"\\u200b\\udb40\\udc01\\\\\\ufeff\"\n}");
        assert_eq!(json::canonical(&shown).unwrap(), hidden);
        // As deep as a body can be.
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(indented(&deep).len() < 100 * deep.len());
    }

    #[test]
    fn a_beginning_ends_between_characters() {
        assert_eq!(beginning("abc", 3), ("abc", true));
        assert_eq!(beginning("aé", 2), ("a", false));
    }
}
