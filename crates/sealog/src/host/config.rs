//! `sealog config`: the settings that a server started here would have.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::Failure;
use sealog_cli::output::{self, Form};
use serde_json::{Map, Value, json};

use crate::config::{self, Effective};

pub(super) fn command() -> Command {
    let print = Command::new("print")
        .about("Print the effective settings and the source of each")
        .long_about(
            "Print the settings that a server would use if started here and now, in the format of \
             sealog.toml, each with its source.\n\n\
             Secrets are hidden; --redacted is the default. With --show-secrets the output is a working \
             settings file: keep it secret.",
        )
        .arg(
            Arg::new("redacted")
                .long("redacted")
                .action(ArgAction::SetTrue)
                .help("Hide secrets (the default)"),
        )
        .arg(
            Arg::new("show_secrets")
                .long("show-secrets")
                .action(ArgAction::SetTrue)
                .conflicts_with("redacted")
                .help("Show secrets"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object with key, value and source of each setting"),
        );
    Command::new("config")
        .about("Show the settings of a server")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(print))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, matches) = matches.subcommand().expect("clap asks for one");
    let settings = config::effective(matches, std::env::vars(), matches.get_flag("show_secrets"))?;
    let text = match Form::of(matches) {
        Form::Json => format!("{}\n", as_json(&settings)),
        _ => as_toml(&settings),
    };
    output::put(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn as_json(settings: &[Effective]) -> Value {
    let row =
        |Effective { key, value, place }: &Effective| (key.clone(), json!({ "value": value, "from": place }));
    Value::Object(settings.iter().map(row).collect::<Map<_, _>>())
}

/// Keys without a section first, as TOML wants it.
pub(super) fn as_toml(settings: &[Effective]) -> String {
    let mut text = String::new();
    let mut section = "";
    let mut sorted: Vec<(&str, &str, &Effective)> = settings
        .iter()
        .map(|setting| {
            let (section, name) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
            (section, name, setting)
        })
        .collect();
    sorted.sort_by_key(|(section, name, _)| (*section, *name));
    for (of, name, Effective { value, place, .. }) in sorted {
        if of != section {
            text.push_str(&format!("\n[{of}]\n"));
            section = of;
        }
        // Every setting may be given as text; numbers and truths look better without quotes.
        let is_bare = value.parse::<u64>().is_ok() || value == "true" || value == "false";
        let value = if is_bare { value.clone() } else { toml::Value::from(value.as_str()).to_string() };
        text.push_str(&format!("{name} = {value}  # {place}\n"));
    }
    text
}
