//! The report: ratios first, since they survive a change of machine; the absolute numbers behind them.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::stats::Spread;

/// A bound that `design.md` section 6 or an issue sets.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtMost(f64, &'static str),
    AtLeast(f64, &'static str),
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Target::AtMost(limit, _) => value <= limit,
            Target::AtLeast(limit, _) => value >= limit,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtMost(limit, unit) => format!("≤ {}{unit}", number(limit)),
            Target::AtLeast(limit, unit) => format!("≥ {}{unit}", number(limit)),
        }
    }
}

/// One line.
#[derive(Debug)]
pub struct Row {
    pub what: String,
    /// Sealog over what stands beside it.
    pub ratio: Option<Spread>,
    /// The bound, and the value that it is held against.
    pub target: Option<(Target, f64)>,
    /// Why the numbers must not be judged, if so.
    pub doubt: Option<String>,
    pub sealog: String,
    pub beside: String,
    pub json: Value,
}

#[derive(Debug)]
pub struct Section {
    pub name: &'static str,
    /// What the ratio is of.
    pub ratio_of: &'static str,
    pub rows: Vec<Row>,
}

#[derive(Debug)]
pub struct Report {
    pub title: &'static str,
    pub header: Vec<(&'static str, String)>,
    pub header_json: Value,
    pub sections: Vec<Section>,
}

impl Report {
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.title);
        for (name, value) in &self.header {
            let _ = writeln!(out, "- {name}: {value}");
        }
        for section in &self.sections {
            let _ = write!(out, "\n## {}\n\nRatio: {}.\n\n", section.name, section.ratio_of);
            out.push_str(
                "| what | ratio (of all repeats) | target | Sealog | beside it |\n|---|---|---|---|---|\n",
            );
            for row in &section.rows {
                let ratio = row.ratio.map_or("-".to_owned(), |ratio| {
                    format!("**{}** ({}–{})", number(ratio.median), number(ratio.min), number(ratio.max))
                });
                let target = row.target.map_or(String::new(), |(target, value)| {
                    let verdict = match (&row.doubt, target.met(value)) {
                        (Some(_), _) => "not judged",
                        (None, true) => "met",
                        (None, false) => "**missed**",
                    };
                    format!("{} {verdict}", target.text())
                });
                let doubt = row.doubt.as_ref().map_or(String::new(), |doubt| format!(" (in doubt: {doubt})"));
                let _ = writeln!(
                    out,
                    "| {}{doubt} | {ratio} | {target} | {} | {} |",
                    row.what, row.sealog, row.beside
                );
            }
        }
        out
    }

    pub fn json(&self) -> Value {
        let sections: Vec<Value> = self
            .sections
            .iter()
            .map(|section| {
                let rows: Vec<Value> = section.rows.iter().map(row_json).collect();
                json!({ "name": section.name, "ratio_of": section.ratio_of, "rows": rows })
            })
            .collect();
        json!({ "title": self.title, "run": self.header_json, "sections": sections })
    }

    pub fn write_json(&self, path: &Path) -> Outcome<()> {
        let text = serde_json::to_string_pretty(&self.json())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()).into())
    }
}

fn row_json(row: &Row) -> Value {
    json!({
        "what": row.what,
        "ratio": row.ratio.map(|ratio| json!({ "median": ratio.median, "min": ratio.min, "max": ratio.max })),
        "target": row.target.map(|(target, value)| json!({ "bound": target.text(), "value": value, "met": row.doubt.is_none().then(|| target.met(value)) })),
        "doubt": row.doubt,
        "values": row.json,
    })
}

/// A number with about three digits that matter, thousands apart.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((&text[..], None), |(w, f)| (w, Some(f)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    match fraction.map(|fraction| fraction.trim_end_matches('0')) {
        None | Some("") => out,
        Some(fraction) => out + "." + fraction,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        for (value, text) in [
            (0.0, "0"),
            (0.456, "0.46"),
            (2.2, "2.2"),
            (99.94, "99.9"),
            (1234.6, "1,235"),
            (-1_000_000.0, "-1,000,000"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
