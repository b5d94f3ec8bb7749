//! How things look: tables for people, lines with tabs for programs, JSON for those who ask for it.

use std::io::{IsTerminal, Write};

use clap::{Arg, ArgAction, ArgMatches};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On a terminal.
    Table,
    /// A line for each row, and tabs between its values.
    Lines,
    Json,
}

impl Form {
    pub fn of(matches: &ArgMatches) -> Form {
        if matches.get_flag("json") {
            Form::Json
        } else if std::io::stdout().is_terminal() {
            Form::Table
        } else {
            Form::Lines
        }
    }
}

pub fn quiet_flag() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .short('q')
        .action(ArgAction::SetTrue)
        .help("Print only errors to standard error")
}

/// Text of an event on one line: what could move the cursor, colour the screen or turn the direction of
/// writing is shown as an escape.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{061c}');
        if c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}') {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// As much of it as fits.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Rows under headings, each as wide as its widest value but no wider than `most` says.
pub fn table(headings: &[&str], most: &[usize], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], at: usize| cut(&row[at], most[at]);
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            let widest = rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or(0);
            widest.max(heading.chars().count())
        })
        .collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut out = line(headings.iter().map(|heading| (*heading).to_owned()).collect());
    for row in rows {
        out.push_str(&line((0..headings.len()).map(|at| cell(row, at)).collect()));
    }
    out
}

/// To standard output. Whether there is anybody left to read it: a pipe that was closed is no error.
pub fn put(text: &str) -> std::io::Result<bool> {
    put_bytes(text.as_bytes())
}

pub fn put_bytes(bytes: &[u8]) -> std::io::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_an_event_cannot_command_the_terminal() {
        let shown = plain("a\x1b[31mred\r\nnext\u{202e}rtl\u{9b}0m");
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        assert_eq!(plain("Zoë · 北京"), "Zoë · 北京");
    }

    #[test]
    fn columns_are_as_wide_as_they_need_and_no_wider_than_they_may() {
        let rows =
            [vec!["1".to_owned(), "short".to_owned()], vec!["1000".to_owned(), "much too long".to_owned()]];
        let table = table(&["seq", "action"], &[10, 8], &rows);
        assert_eq!(table, "seq   action\n1     short\n1000  much to…\n");
    }
}
