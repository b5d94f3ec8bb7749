//! `sealog config`: the settings that a server started here would have.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::Failure;
use sealog_cli::output::{self, Form};
use serde_json::{Map, Value, json};

use crate::config::{self, Effective};

pub(super) fn command() -> Command {
    let print = Command::new("print")
        .about("Prints the settings as they count, and where each was given")
        .long_about(
            "Prints the settings that a server started here and now would have, in the form of sealog.toml, each with the place where it was given.\n\n\
             Secrets are not shown, which --redacted says as well; with --show-secrets the output is a settings file that works, and as secret as one.",
        )
        .arg(Arg::new("redacted").long("redacted").action(ArgAction::SetTrue).help("Without secrets, which is also what happens without flags"))
        .arg(
            Arg::new("show_secrets")
                .long("show-secrets")
                .action(ArgAction::SetTrue)
                .conflicts_with("redacted")
                .help("With secrets"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object: key, value and place of each setting"));
    Command::new("config")
        .about("Shows the settings of a server")
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
