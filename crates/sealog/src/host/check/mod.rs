//! `sealog check`: what would keep a server from starting here, or from working well, and why. [`probes`] has
//! what is looked at.

pub(super) mod probes;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output::{self, Form};
use serde_json::{Value, json};

use crate::config;
use probes::{Found, State};

pub(super) fn command() -> Command {
    config::with_flags(
        Command::new("check")
            .about("Check whether a server can start here")
            .long_about(
                "Check whether a server can start here: the settings, the data directory with its file \
                 system, permissions and free space, the clock, the database, the listen addresses, the \
                 certificate, open files, the mail server and the GeoIP database. The command changes \
                 nothing, and a server may run at the same time. Run it as the user of the server, in its \
                 environment.\n\n\
                 It exits with 0 if a server would start and work, also with warnings, and with 1 if it \
                 would not start or clients could not use it.",
            )
            .arg(
                Arg::new("json")
                    .long("json")
                    .action(ArgAction::SetTrue)
                    .help("Print one JSON object with all findings"),
            )
            .arg(
                Arg::new("offline")
                    .long("offline")
                    .action(ArgAction::SetTrue)
                    .help("Do not connect to the database or the mail server"),
            ),
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let found = probes::all(matches, matches.get_flag("offline"));
    let is_well = is_well(&found);
    let text = match Form::of(matches) {
        Form::Json => format!("{}\n", as_json(&found)),
        form => {
            let is_coloured =
                form == Form::Table && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            found.iter().map(|found| line(found, is_coloured)).collect()
        }
    };
    output::put(&text)?;
    if !is_well && std::io::stderr().is_terminal() {
        eprintln!("sealog: a server would not start here, or clients could not use it");
    }
    Ok(if is_well { ExitCode::SUCCESS } else { Exit::Failure.into() })
}

pub(super) fn as_json(found: &[Found]) -> Value {
    let row = |found: &Found| json!({ "check": found.name, "state": found.state.word(), "detail": found.detail, "todo": found.advice });
    let would_start = found.iter().all(|found| found.state != State::Fails);
    let rows: Vec<Value> = found.iter().map(row).collect();
    json!({ "ok": is_well(found), "would_start": would_start, "checks": rows })
}

fn is_well(found: &[Found]) -> bool {
    !found.iter().any(|found| matches!(found.state, State::Fails | State::Unusable))
}

fn line(found: &Found, is_coloured: bool) -> String {
    let (colour, plain) = match found.state {
        State::Fine => ("\x1b[32m", "\x1b[0m"),
        State::Off => ("\x1b[2m", "\x1b[0m"),
        State::Warns => ("\x1b[33m", "\x1b[0m"),
        State::Unusable | State::Fails => ("\x1b[31m", "\x1b[0m"),
    };
    let (colour, plain) = if is_coloured { (colour, plain) } else { ("", "") };
    let mut text = format!(
        "{colour}{:<8}{plain}{:<16}{}\n",
        found.state.word(),
        found.name,
        output::plain(&found.detail)
    );
    if let Some(advice) = &found.advice {
        text.push_str(&format!("{:24}{}\n", "", output::plain(advice)));
    }
    text
}
