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
            .about("Manage tenants, projects, keys, users, actions and frameworks of a service")
            .long_about(
                "Manage tenants, projects, keys, users, actions and frameworks of a service, through the \
                 operator API.\n\n\
                 The command needs the operator token of the service (its setting operator_token): from \
                 SEALOG_OPERATOR_TOKEN, from a profile (`sealog login --operator`), or from a prompt.\n\n\
                 The system chain of the tenant records every change.",
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
            failure.message.push_str(
                "\n  check the id, and that the service has an operator token (its setting operator_token)",
            );
        }
        failure
    })?;
    Ok(ExitCode::SUCCESS)
}
