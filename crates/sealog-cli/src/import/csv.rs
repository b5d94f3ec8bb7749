//! Rows of a CSV file as events.

use std::collections::BTreeSet;
use std::io;

use indicatif::ProgressBar;
use sealog_core::event::{FIELDS, INPUTS};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::super::exit::Failure;
use super::super::lines::{self, AHEAD, Line};

/// What a column is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Field(&'static str),
    /// A JSON object.
    Metadata,
    Member(String),
    /// `ts_client`, in rows that have none.
    Time,
    LeftOut,
}

impl Target {
    fn parse(text: &str) -> Option<Target> {
        match text {
            "-" => Some(Target::LeftOut),
            "metadata" => Some(Target::Metadata),
            text => match text.strip_prefix("metadata.") {
                Some(name) if !name.is_empty() => Some(Target::Member(name.to_owned())),
                _ => INPUTS.into_iter().find(|input| *input == text).map(Target::Field),
            },
        }
    }

    /// By the name of a column alone.
    fn of(column: &str) -> Target {
        match column {
            "timestamp" => Target::Time,
            // What the service makes itself: columns of an export.
            name if FIELDS.iter().any(|field| !field.is_input && field.name == name) => Target::LeftOut,
            name => Target::parse(name).unwrap_or_else(|| Target::Member(name.to_owned())),
        }
    }
}

/// Ends when the file does; an error is the last item. `bar` counts the bytes that were read.
pub(super) fn rows(
    path: &str,
    delimiter: &str,
    map: &[String],
    set: &[String],
    bar: &ProgressBar,
) -> Result<mpsc::Receiver<io::Result<Line>>, Failure> {
    let delimiter = match delimiter.as_bytes() {
        _ if delimiter == "tab" => b'\t',
        [byte] => *byte,
        _ => return Err(Failure::usage("--delimiter must be one character, such as ;, or the word tab")),
    };
    let mut builder = csv::ReaderBuilder::new();
    builder.delimiter(delimiter).flexible(true).buffer_capacity(256 << 10);
    let mut reader = builder.from_reader(bar.wrap_read(lines::open(path)?));
    let header = reader.headers().map_err(|error| {
        let name = lines::name(path);
        Failure::usage(format!("{name} has no CSV header: {error}; give the format with --from"))
    })?;
    let header: Vec<String> =
        header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
    if header.is_empty() {
        return Err(Failure::usage(format!(
            "{} is empty: the first row of a CSV file names the columns",
            lines::name(path)
        )));
    }
    let table = Table::new(&header, map, set)?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut record = csv::StringRecord::new();
        loop {
            let item = match reader.read_record(&mut record) {
                Ok(false) => return,
                Ok(true) => {
                    let number = record.position().map_or(0, csv::Position::line);
                    Ok(Line { number, event: table.event(&record) })
                }
                Err(error) => match error.position().map(csv::Position::line) {
                    // One row that is no text is that row's fault.
                    Some(number) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                        Ok(Line { number, event: Err("it is not UTF-8".into()) })
                    }
                    _ => Err(io::Error::other(error)),
                },
            };
            let is_last = item.is_err();
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    });
    Ok(receiver)
}

/// What each column is, and what all events have in common.
#[derive(Debug)]
struct Table {
    columns: Vec<Target>,
    set: Vec<(Target, String)>,
}

impl Table {
    fn new(header: &[String], map: &[String], set: &[String]) -> Result<Table, Failure> {
        let pair = |flag: &str, what: &str, text: &str| match text.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                Ok((name.to_owned(), value.to_owned()))
            }
            _ => Err(Failure::usage(format!("--{flag} must be {what}, not {text:?}"))),
        };
        let target = |flag: &str, text: &str| {
            Target::parse(text).ok_or_else(|| {
                let fields = INPUTS.join(", ");
                Failure::usage(format!(
                    "--{flag}: {text:?} is not a field; use {fields}, metadata.NAME, or - to skip a column"
                ))
            })
        };
        let names: BTreeSet<&str> = header.iter().map(String::as_str).collect();
        if names.len() != header.len() {
            return Err(Failure::usage(format!("the header has duplicate columns: {}", header.join(", "))));
        }
        let mut mapped = Vec::new();
        for text in map {
            let (column, field) = pair("map", "COLUMN=FIELD", text)?;
            if !names.contains(column.as_str()) {
                return Err(Failure::usage(format!(
                    "--map: there is no column {column:?}; the header has {}",
                    header.join(", ")
                )));
            }
            mapped.push((column, target("map", &field)?));
        }
        let of = |column: &String| {
            let asked = mapped.iter().find(|(name, _)| name == column).map(|(_, target)| target.clone());
            asked.unwrap_or_else(|| Target::of(column))
        };
        let columns: Vec<Target> = header.iter().map(of).collect();
        let mut constants = Vec::new();
        for text in set {
            let (field, value) = pair("set", "FIELD=TEXT", text)?;
            constants.push((target("set", &field)?, value));
        }
        let all = || columns.iter().chain(constants.iter().map(|(target, _)| target));
        for (at, one) in all().enumerate() {
            if *one != Target::LeftOut && all().skip(at + 1).any(|other| other == one) {
                let name = match one {
                    Target::Field(name) => (*name).to_owned(),
                    Target::Member(name) => format!("metadata.{name}"),
                    _ => "metadata".into(),
                };
                return Err(Failure::usage(format!("two columns map to {name}: choose one with --map")));
            }
        }
        if !all().any(|target| *target == Target::Field("action")) {
            return Err(Failure::usage(format!(
                "no column is the action; the header has {}; choose one with --map COLUMN=action, or give --set action=NAME for all rows",
                header.join(", ")
            )));
        }
        Ok(Table { columns, set: constants })
    }

    /// A cell that is empty is a value that is absent.
    fn event(&self, record: &csv::StringRecord) -> Result<Box<RawValue>, String> {
        if record.len() != self.columns.len() {
            return Err(format!("it has {} values, but the header has {}", record.len(), self.columns.len()));
        }
        let constants = self.set.iter().map(|(target, value)| (target, value.as_str()));
        let cells = self.columns.iter().zip(record.iter()).chain(constants);
        let (mut fields, mut members, mut object, mut time) = (Vec::new(), Vec::new(), None, None);
        for (target, value) in cells.filter(|(_, value)| !value.is_empty()) {
            match target {
                Target::LeftOut => {}
                Target::Time => time = Some(value),
                Target::Field(name) => fields.push(format!("\"{name}\":{}", Value::from(value))),
                Target::Member(name) => {
                    members.push(format!("{}:{}", Value::from(name.as_str()), Value::from(value)))
                }
                Target::Metadata => {
                    let is_object = value.trim_start().starts_with('{')
                        && serde_json::from_str::<&RawValue>(value.trim()).is_ok();
                    if !is_object {
                        return Err("metadata is not a JSON object".into());
                    }
                    object = Some(value.trim());
                }
            }
        }
        if let Some(time) = time.filter(|_| !fields.iter().any(|field| field.starts_with("\"ts_client\":"))) {
            fields.push(format!("\"ts_client\":{}", Value::from(time)));
        }
        if object.is_some() || !members.is_empty() {
            // As text: numbers and the order of members stay as they were written.
            let open = object.map_or("{", |object| object[..object.len() - 1].trim_end());
            let comma = if open.ends_with('{') || members.is_empty() { "" } else { "," };
            fields.push(format!("\"metadata\":{open}{comma}{}}}", members.join(",")));
        }
        RawValue::from_string(format!("{{{}}}", fields.join(","))).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &[&str], map: &[&str], set: &[&str]) -> Result<Table, Failure> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Table::new(&texts(header), &texts(map), &texts(set))
    }

    fn table_of_times() -> Table {
        table(&["action", "timestamp", "ts_client"], &[], &[]).unwrap()
    }

    #[test]
    fn columns_are_fields_members_or_left_out() {
        let table = table(
            &["when", "what", "actor_id", "team", "metadata", "hash", "internal"],
            &["when=ts_client", "what=action", "internal=-"],
            &["severity=info"],
        )
        .unwrap();
        let event = |cells: &[&str]| table.event(&csv::StringRecord::from(cells.to_vec()));
        let made = event(&["T", "user.login", "u \"1\"", "blue", r#"{"n": 1.0}"#, "h", "secret"]).unwrap();
        assert_eq!(
            made.get(),
            r#"{"ts_client":"T","action":"user.login","actor_id":"u \"1\"","severity":"info","metadata":{"n": 1.0,"team":"blue"}}"#
        );
        let made = event(&["", "user.login", "", "", "{}", "", ""]).unwrap();
        assert_eq!(made.get(), r#"{"action":"user.login","severity":"info","metadata":{}}"#);
        let timed = table_of_times();
        let made = timed.event(&csv::StringRecord::from(vec!["a", "T", ""])).unwrap();
        assert_eq!(made.get(), r#"{"action":"a","ts_client":"T"}"#);
        let made = timed.event(&csv::StringRecord::from(vec!["a", "T", "U"])).unwrap();
        assert_eq!(made.get(), r#"{"action":"a","ts_client":"U"}"#);
        assert!(event(&["T", "user.login"]).unwrap_err().contains("2 values, but the header has 7"));
        assert!(event(&["", "a", "", "", "[1]", "", ""]).unwrap_err().contains("not a JSON object"));
    }

    #[test]
    fn a_header_or_a_flag_that_does_not_fit_is_an_error_that_says_what_does() {
        let refused = |header: &[&str], map: &[&str], set: &[&str]| {
            let failure = table(header, map, set).unwrap_err();
            failure.message
        };
        assert!(refused(&["a", "b"], &[], &[]).contains("--map COLUMN=action"));
        assert!(refused(&["action", "b"], &["c=action"], &[]).contains("the header has action, b"));
        assert!(refused(&["action", "b"], &["b=user"], &[]).contains("actor_id"));
        assert!(refused(&["action", "b"], &["b=action"], &[]).contains("two columns map to action"));
        assert!(refused(&["action", "action"], &[], &[]).contains("duplicate columns"));
        assert!(refused(&["action"], &["action"], &[]).contains("COLUMN=FIELD"));
        assert!(table(&["timestamp", "x"], &[], &["action=user.login"]).is_ok());
    }
}
