//! `sealog actions`: what may be logged, and what it needs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action_types::{Action, LANGUAGES, difference, emitted};
use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::file_flags;
use super::output::{self, Form};

pub(super) fn command() -> Command {
    let list = Command::new("list")
        .about("List the actions that the key's organisation may use; without a key, the whole catalog")
        .arg(
            Arg::new("framework")
                .long("framework")
                .value_name("ID")
                .help("Only actions of this framework, such as gdpr"),
        )
        .arg(Arg::new("category").long("category").value_name("NAME").help("Only actions of this category"));
    let show = Command::new("show").about("Show one action with its fields and frameworks").arg(
        Arg::new("action").value_name("ACTION").required(true).help("Name of the action, such as user.login"),
    );
    let actions = Command::new("actions")
        .about("Show the actions that you can log, or write types for them")
        .arg(
            Arg::new("emit")
                .long("emit")
                .value_name("LANGUAGE")
                .value_parser(LANGUAGES.map(|(name, _)| name))
                .help("Write the actions with their required fields as source code"),
        )
        .arg(file_flags::output("Write to this file instead of standard output").requires("emit"))
        .arg(
            Arg::new("check")
                .long("check")
                .value_name("FILE")
                .requires("emit")
                .conflicts_with("output")
                .help("Write nothing; exit with 1 if the file is not what --emit would write"),
        )
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .arg_required_else_help(true);
    connect::with_flags(actions.subcommand(list).subcommand(show))
}

#[derive(Deserialize)]
struct Catalog {
    actions: Vec<Value>,
}

#[derive(Deserialize, Serialize)]
struct Entry {
    action: String,
    #[serde(default)]
    category: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    frameworks: Vec<Framework>,
    #[serde(default)]
    required_fields: Vec<String>,
    #[serde(default)]
    optional_fields: Vec<String>,
    subscribed: Option<bool>,
}

#[derive(Deserialize, Serialize)]
struct Framework {
    framework: String,
    #[serde(default)]
    label: String,
    #[serde(default)]
    is_required: bool,
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches.subcommand().unwrap_or(("emit", matches));
    if name == "emit" && !matches.contains_id("emit") {
        return Err(Failure::usage("give --emit LANGUAGE, or one of the commands list and show"));
    }
    let client = connect::client(matches, Key::Optional)?;
    let catalog: Catalog = connect::block_on(async { Ok(client.get("/v1/actions", &[]).await?.json()?) })?;
    let mut entries = Vec::with_capacity(catalog.actions.len());
    for value in catalog.actions {
        let entry = serde_json::from_value::<Entry>(value.clone()).map_err(|error| {
            Failure::new(Exit::Failure, format!("the service sent an invalid action: {error}"))
        })?;
        entries.push((entry, value));
    }
    let form = Form::of(matches);
    match name {
        "emit" => emit(&entries, matches)?,
        "list" => list(&entries, matches, form)?,
        _ => show(&entries, matches.get_one::<String>("action").expect("clap asks for it"), form)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(entries: &[(Entry, Value)], matches: &ArgMatches, form: Form) -> Result<(), Failure> {
    let framework = matches.get_one::<String>("framework");
    let category = matches.get_one::<String>("category");
    let is_asked_for = |entry: &Entry| {
        framework.is_none_or(|id| entry.frameworks.iter().any(|served| served.framework == *id))
            && category.is_none_or(|name| entry.category == *name)
    };
    let served = entries.iter().flat_map(|(entry, _)| &entry.frameworks);
    must_be_one("framework", framework, served.map(|served| &served.framework))?;
    must_be_one("category", category, entries.iter().map(|(entry, _)| &entry.category))?;
    let chosen = entries.iter().filter(|(entry, _)| is_asked_for(entry));
    let row = |entry: &Entry| {
        let frameworks: Vec<&str> = entry.frameworks.iter().map(|served| served.framework.as_str()).collect();
        [&entry.action, &entry.category, &entry.required_fields.join(","), &frameworks.join(",")]
            .map(|text| output::plain(text))
            .to_vec()
    };
    let mut text = String::new();
    match form {
        Form::Json => chosen.for_each(|(_, value)| text.push_str(&format!("{value}\n"))),
        Form::Lines => chosen.for_each(|(entry, _)| text.push_str(&(row(entry).join("\t") + "\n"))),
        Form::Table => {
            let rows: Vec<Vec<String>> = chosen.map(|(entry, _)| row(entry)).collect();
            text = output::table(
                &["action", "category", "required fields", "frameworks"],
                &[40, 16, 40, 60],
                &rows,
            );
        }
    }
    output::put(&text)?;
    Ok(())
}

/// The types of an application, written or compared.
fn emit(entries: &[(Entry, Value)], matches: &ArgMatches) -> Result<(), Failure> {
    let language = matches.get_one::<String>("emit").expect("it was looked for");
    let actions = entries.iter().map(|(entry, _)| Action {
        name: &entry.action,
        description: &entry.description,
        required: &entry.required_fields,
    });
    let text = emitted(language, actions.collect()).expect("clap knows the languages");
    if let Some(path) = file_flags::path(matches, "check") {
        let file = std::fs::read_to_string(&path).map_err(|error| Failure::of_path(&path, &error))?;
        return match difference(&file, &text) {
            None => Ok(()),
            Some(what) => Err(Failure::new(
                Exit::Failure,
                format!(
                    "the actions have changed ({what}); run `sealog actions --emit {language} -o {}`",
                    path.display()
                ),
            )),
        };
    }
    match file_flags::path(matches, "output") {
        Some(path) => {
            std::fs::write(&path, text).map_err(|error| file_flags::unwritable(&path, &error))?;
        }
        None => {
            output::put(&text)?;
        }
    }
    Ok(())
}

/// A name that is misspelt must not look like one without actions.
fn must_be_one<'a>(
    what: &str,
    asked: Option<&String>,
    known: impl Iterator<Item = &'a String>,
) -> Result<(), Failure> {
    let Some(asked) = asked else { return Ok(()) };
    let known: BTreeSet<&str> = known.map(String::as_str).collect();
    if known.contains(asked.as_str()) {
        return Ok(());
    }
    let known: Vec<&str> = known.into_iter().collect();
    let (asked, known) = (output::plain(asked), output::plain(&known.join(", ")));
    Err(Failure::new(Exit::NotFound, format!("no action has the {what} {asked:?}; choose from {known}")))
}

fn show(entries: &[(Entry, Value)], name: &str, form: Form) -> Result<(), Failure> {
    let Some((entry, value)) = entries.iter().find(|(entry, _)| entry.action == name) else {
        let domain = name.split('.').next().unwrap_or(name);
        let near: Vec<&str> = entries
            .iter()
            .map(|(entry, _)| entry.action.as_str())
            .filter(|known| known.split('.').next() == Some(domain))
            .take(8)
            .collect();
        let hint = if near.is_empty() {
            "`sealog actions list` shows all".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no action {:?}; {hint}", output::plain(name)),
        ));
    };
    if form == Form::Json {
        output::put(&format!("{value}\n"))?;
        return Ok(());
    }
    let mut text = format!("{}\n", output::plain(&entry.action));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<16}{}\n", output::plain(value)));
        }
    };
    line("description", &entry.description);
    line("category", &entry.category);
    line("required fields", &entry.required_fields.join(", "));
    line("optional fields", &entry.optional_fields.join(", "));
    line("in the plan", entry.subscribed.map_or("", |is_in| if is_in { "yes" } else { "no" }));
    for served in &entry.frameworks {
        let label = if served.label.is_empty() { &served.framework } else { &served.label };
        line(
            "framework",
            &format!("{label} ({})", if served.is_required { "required" } else { "recommended" }),
        );
    }
    output::put(&text)?;
    Ok(())
}
