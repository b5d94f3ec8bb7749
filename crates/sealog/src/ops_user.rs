//! `sealog ops-user`: accounts of those who run the instance, for the console at `/ops`. Nothing else makes
//! one.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};
use sealog_cli::output::{self, Form};

use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::admin::ops_user::{self, Added, Done, LISTED_MAX, Listed};
use crate::config;

pub(crate) fn command() -> Command {
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object");
    let email = || {
        Arg::new("email")
            .long("email")
            .value_name("ADDRESS")
            .required(true)
            .help("E-mail address of the operator; upper and lower case are equal")
    };
    Command::new("ops-user")
        .about("Manage operator accounts")
        .long_about(
            "Manage operator accounts, for the operator console (/ops).\n\n\
             An operator belongs to no organisation, and members of organisations cannot sign in to the \
             console. You create operator accounts here, on the host; the network interface cannot. The \
             server may run or be stopped: the command connects to the server of the data directory, or \
             opens the store itself if none runs. Run it as the user of the server, or as root.",
        )
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            config::with_flags(
                Command::new("add").about("Create an account and a link that sets its password").long_about(
                    "Create an account and a link that sets its password.\n\n\
                     The link works once and expires after 24 hours. Send it over a channel that you trust: \
                     the first person to open it gets the account. It sets the password, then sets up an \
                     authenticator (TOTP), which every page of the console requires. If the authenticator of \
                     an address was never set up, the new link replaces the previous one. If an operator \
                     loses the password or authenticator, remove the account and add it again.\n\n\
                     The link uses the URL of the running server's console, or of the command's own settings \
                     if none runs (ops.url, ops.listen, app_url). The command creates no link while the \
                     console is off.\n\n\
                     The command never prompts. It prints only the link to standard output, and its expiry \
                     to standard error. It exits with 0 when the link is created, with 2 if the address is \
                     invalid or the console is off, and with 1 if an enrolled operator has the address.",
                ),
            )
            .arg(email())
            .arg(json()),
        )
        .subcommand(config::with_flags(Command::new("list").about("List operators")).arg(json()))
        .subcommand(
            config::with_flags(
                Command::new("remove").about("Remove an account and end its sessions").long_about(
                    "Remove an account and end its sessions.\n\n\
                     The system chains keep the operator's actions under the account's id. The command exits \
                     with 0 when the account is removed, and with 4 if it does not exist.",
                ),
            )
            .arg(email())
            .arg(json()),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches.subcommand().expect("clap asks for one");
    let email = || matches.get_one::<String>("email").expect("clap asks for it").clone();
    let request = match name {
        "add" => ops_user::Request::Add { email: email() },
        "list" => ops_user::Request::List {},
        _ => ops_user::Request::Remove { email: email() },
    };
    let settings = config::load(matches, std::env::vars())?;
    let Answer::OpsUser(done) = client::run(&settings, &Request::OpsUser(request))? else {
        return Err(client::OTHER_ANSWER.to_owned().into());
    };
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string(&done).expect("texts"));
        return Ok(ExitCode::SUCCESS);
    }
    match done {
        Done::Added(Added { link, expires_at, .. }) => {
            // Before the link: a terminal shows them in this order, and a script takes standard output.
            eprintln!("This link sets the password and an authenticator. It works once, until {expires_at}:");
            println!("{}", link.0);
        }
        Done::Listed { operators } => {
            let row = |operator: &Listed| {
                let state = if operator.enrolled { "enrolled" } else { "not enrolled" };
                [&*operator.operator_id, &operator.email, state, &operator.created_at]
                    .map(output::plain)
                    .to_vec()
            };
            let rows: Vec<Vec<String>> = operators.iter().map(row).collect();
            output::put(&match Form::of(matches) {
                Form::Table => {
                    output::table(&["operator_id", "email", "state", "since"], &[36, 60, 12, 24], &rows)
                }
                _ => rows.iter().map(|row| row.join("\t") + "\n").collect(),
            })?;
            if operators.len() == LISTED_MAX {
                eprintln!("Only the first {LISTED_MAX} are shown; there may be more.");
            }
        }
        Done::Removed { .. } => eprintln!("Account removed and its sessions ended."),
    }
    Ok(ExitCode::SUCCESS)
}
