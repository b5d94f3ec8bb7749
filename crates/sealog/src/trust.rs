//! `sealog trust`: the signed log of a store, for those who run it.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Exit, Failure};

use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::admin::trust::{self, Log};
use crate::config;

pub(crate) fn command() -> Command {
    Command::new("trust")
        .about("Show and manage the signed log")
        .long_about(
            "Show and manage the signed log, by which an outsider finds out that events were changed or \
             removed.\n\n\
             The server may run or be stopped: a command connects to the server of the data directory, or \
             opens the store itself if none runs. Run it as the user of the server, or as root.",
        )
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(below(Command::new("status").about("Show whether the log is signed, and why not").long_about(
            "Show whether the log is signed, and why not: its name, size, newest publication and keys, and \
             the chains that do not continue what was published.\n\n\
             It exits with 0, or with 10 if the log is lost, was rolled back, or a chain does not continue \
             what was published.",
        )))
        .subcommand(below(
            Command::new("vkey").about("Print the line that verifies every signature of this store").long_about(
                "Print the line that verifies every signature of this store, the vkey. It is no secret.\n\n\
                 Give it to auditors by another way than this server: in a contract, or on a page of \
                 somebody else. Whoever gets it from the server that they check has checked nothing.",
            ),
        ))
        .subcommand(below(
            Command::new("init").about("Begin the signed log, once, where keys are given").long_about(
                "Begin the signed log, once, where keys are given: with PostgreSQL, or with \
                 trust.log_key_file.\n\n\
                 The command makes the key files that do not exist, for their owner alone, and prints the \
                 vkey. Copy the file of the log key to the servers that may sign, and that of the service \
                 key to all. On the embedded store without key settings the first start of the server does \
                 all of it.\n\n\
                 It exits with 1 and changes nothing if this store has a log, or had one.",
            ),
        ))
}

/// With the settings of the server, and what all of them have.
fn below(command: Command) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object");
    config::with_flags(command).after_help(EXIT_CODES).arg(json)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches.subcommand().expect("clap asks for one");
    let settings = config::load(matches, std::env::vars())?;
    let request = match name {
        "init" => trust::Request::Init,
        _ => trust::Request::Status,
    };
    let Answer::Trust(log) = client::run(&settings, &Request::Trust(request))? else {
        return Err(client::OTHER_ANSWER.to_owned().into());
    };
    let json = matches.get_flag("json").then(|| serde_json::to_string(&log).expect("texts and numbers"));
    match (name, json) {
        ("status", json) => {
            println!("{}", json.unwrap_or_else(|| log.to_string().trim_end().to_owned()));
            return Ok(if log.is_trouble { Exit::Broken.into() } else { ExitCode::SUCCESS });
        }
        (_, Some(_)) => {
            vkey(&log)?;
            println!("{}", serde_json::json!({ "vkey": log.vkey, "origin": log.origin }));
        }
        (name, None) => {
            if name == "init" {
                eprintln!(
                    "The log has begun. Give this line to your auditor, by another way than this server:"
                );
            }
            println!("{}", vkey(&log)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn vkey(log: &Log) -> Result<&str, Failure> {
    log.vkey.as_deref().ok_or_else(|| Failure::new(Exit::NotFound, log.detail.clone()))
}
