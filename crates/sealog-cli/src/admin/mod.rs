//! `sealog admin`: tenants, projects, keys, users, actions and frameworks, through the operator's interface.
//! One file for each of them; [`session`] asks and shows.

mod action;
mod framework;
mod key;
mod project;
mod session;
mod tenant;
mod user;

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::output::Form;
use session::Session;

pub(super) fn command() -> Command {
    connect::with_flags(
        Command::new("admin")
            .about("Manages tenants, projects, keys, users, actions and frameworks of a service")
            .long_about(
                "Manages tenants, projects, keys, users, actions and frameworks of a service, through the operator's interface.\n\n\
                 It needs the operator token that the service was configured with (its setting operator_token): from SEALOG_OPERATOR_TOKEN, from a profile (`sealog login --operator`), or asked for.\n\n\
                 Every change is sealed into the system chain of its tenant.",
            )
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands([
                tenant::command(),
                project::command(),
                key::command(),
                user::command(),
                action::command(),
                framework::command(),
            ]),
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (kind, matches) = matches.subcommand().expect("clap asks for one");
    let (verb, matches) = matches.subcommand().expect("clap asks for one");
    // The catalog is open to all.
    let is_open = kind == "framework" && verb == "list" && !matches.contains_id("project");
    let key = if is_open { Key::Without } else { Key::Operator };
    let session = Session { client: connect::client(matches, key)?, form: Form::of(matches) };
    let done = connect::block_on(async {
        match kind {
            "tenant" => tenant::run(&session, verb, matches).await,
            "project" => project::run(&session, verb, matches).await,
            "key" => key::run(&session, verb, matches).await,
            "user" => user::run(&session, verb, matches).await,
            "action" => action::run(&session, verb, matches).await,
            _ => framework::run(&session, verb, matches).await,
        }
    });
    done.map_err(|mut failure| {
        if failure.exit == Exit::NotFound {
            failure
                .message
                .push_str("\n  is the id right, and does the service have an operator token (its setting operator_token)?");
        }
        failure
    })?;
    Ok(ExitCode::SUCCESS)
}
