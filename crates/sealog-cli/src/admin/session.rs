//! Asks the operator's interface, and shows what it answers.

use bytes::Bytes;
use clap::{Arg, ArgMatches, Command};
use sealog_client::http::{Client, Method};
use serde_json::{Map, Value};

use super::super::exit::{Exit, Failure};
use super::super::output::{self, Form};

pub(super) struct Session {
    pub client: Client,
    pub form: Form,
}

/// A member that a list shows, and how wide it may be.
pub(super) type Column = (&'static str, usize);

impl Session {
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client.get(path, &[]).await?.json()?)
    }

    /// Everything of a list, page by page.
    pub(super) async fn all(&self, path: &str, name: &str) -> Result<Vec<Value>, Failure> {
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("limit", "100")];
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let mut page: Value = self.client.get(path, &query).await?.json()?;
            match page.get_mut(name).map(Value::take) {
                Some(Value::Array(items)) => all.extend(items),
                _ => return Err(Failure::new(Exit::Failure, format!("the response has no {name}"))),
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn list(&self, path: &str, name: &str, columns: &[Column]) -> Result<(), Failure> {
        let items = self.all(path, name).await?;
        self.put_list(&items, columns)
    }

    pub(super) fn put_list(&self, items: &[Value], columns: &[Column]) -> Result<(), Failure> {
        let row = |item: &Value| columns.iter().map(|(name, _)| shown(&item[*name])).collect::<Vec<_>>();
        let text = match self.form {
            Form::Json => items.iter().map(|item| format!("{item}\n")).collect(),
            Form::Lines => items.iter().map(|item| row(item).join("\t") + "\n").collect(),
            Form::Table => {
                let headings: Vec<String> = columns.iter().map(|(name, _)| name.replace('_', " ")).collect();
                let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
                let widths: Vec<usize> = columns.iter().map(|(_, width)| *width).collect();
                output::table(&headings, &widths, &items.iter().map(row).collect::<Vec<_>>())
            }
        };
        output::put(&text)?;
        Ok(())
    }

    /// One thing, a member on each line.
    pub(super) fn put(&self, item: &Value) -> Result<(), Failure> {
        let members = || item.as_object().into_iter().flatten();
        let text: String = match self.form {
            Form::Json => format!("{item}\n"),
            Form::Lines => members().map(|(name, value)| format!("{name}\t{}\n", shown(value))).collect(),
            Form::Table => members()
                .map(|(name, value)| {
                    format!("{:<16}{}", name.replace('_', " "), shown(value)).trim_end().to_owned() + "\n"
                })
                .collect(),
        };
        output::put(&text)?;
        Ok(())
    }

    pub(super) async fn create(&self, path: &str, body: Map<String, Value>) -> Result<(), Failure> {
        let made = self.send(Method::POST, path, body).await?;
        self.put(&made)
    }

    pub(super) async fn change(&self, path: &str, body: Map<String, Value>) -> Result<(), Failure> {
        if body.is_empty() {
            return Err(Failure::usage("give at least one change; --help lists the flags"));
        }
        let changed = self.send(Method::PATCH, path, body).await?;
        self.put(&changed)
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Map<String, Value>,
    ) -> Result<Value, Failure> {
        let body = Bytes::from(Value::Object(body).to_string());
        Ok(self.client.change(method, path, body).await?.json()?)
    }
}

/// On one line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => output::plain(text),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => output::plain(&other.to_string()),
    }
}

/// An id as part of a path.
pub(super) fn id<'m>(matches: &'m ArgMatches, name: &str) -> Result<&'m str, Failure> {
    let text = matches.get_one::<String>(name).expect("clap asks for it").as_str();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(Failure::usage(format!(
            "{:?} is not an id; ids look like 7d444840-9dc0-41d1-b245-5ffdce74fad2, and the list commands show them",
            output::plain(text)
        )));
    }
    Ok(text)
}

/// What was given of these flags, as members of a body.
pub(super) fn texts(matches: &ArgMatches, names: &[&str]) -> Map<String, Value> {
    let given = |name: &&str| {
        let value = matches.get_one::<String>(name)?;
        Some(((*name).to_owned(), Value::from(value.as_str())))
    };
    names.iter().filter_map(given).collect()
}

/// A flag for a member of a body, by its name.
pub(super) fn flag(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name.replace('_', "-")).value_name(value).help(help)
}

pub(super) fn positional(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).required(true).help(help)
}

pub(super) fn of_tenant() -> Arg {
    flag("tenant", "TENANT_ID", "Id of the tenant; `sealog admin tenant list` shows the ids").required(true)
}

pub(super) fn of_project() -> Arg {
    flag("project", "PROJECT_ID", "Id of the project; `sealog admin project list` shows the ids")
        .required(true)
}

pub(super) fn group(
    name: &'static str,
    about: &'static str,
    verbs: impl IntoIterator<Item = Command>,
) -> Command {
    Command::new(name).about(about).subcommand_required(true).arg_required_else_help(true).subcommands(verbs)
}

/// A rate, or `plan` for the plan's.
pub(super) fn rate(matches: &ArgMatches) -> Result<Option<Value>, Failure> {
    match matches.get_one::<String>("rate_limit_rps").map(String::as_str) {
        None => Ok(None),
        Some("plan") => Ok(Some(Value::Null)),
        Some(text) => match text.parse::<u32>() {
            Ok(rate) => Ok(Some(Value::from(rate))),
            Err(_) => {
                Err(Failure::usage("--rate-limit-rps must be a whole number, or plan for the plan's rate"))
            }
        },
    }
}
