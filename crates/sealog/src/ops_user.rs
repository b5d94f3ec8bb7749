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
    let json = || {
        Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines")
    };
    let email = || {
        Arg::new("email")
            .long("email")
            .value_name("ADDRESS")
            .required(true)
            .help("The address with which the operator signs in, in any case")
    };
    Command::new("ops-user")
        .about("Accounts of those who run the instance, for the operator's console")
        .long_about(
            "Accounts of those who run the instance, for the operator's console (/ops).\n\n\
             An operator belongs to no organisation, and no account of an organisation works in the console. Accounts are made here, on the host, and never over the network. \
             The server may run or be stopped: the command goes to the server that runs on the data directory, and opens the store itself where none does. Run it as the user of \
             the server, or as root.",
        )
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            config::with_flags(
                Command::new("add").about("Makes an account, and a link that sets its password").long_about(
                    "Makes an account, and a link that sets its password.\n\n\
                     The link works once, within 24 hours. Hand it over a channel that you trust: whoever opens it first has the account. It sets the password, and then asks for an \
                     authenticator (TOTP): no page of the console opens without one. For an address whose authenticator was never set up, another link takes the place of the one \
                     before. A lost password or authenticator: remove the account and add it again.\n\n\
                     The link leads to the console of the running server; where none runs, to that of the command's own settings (ops.url, ops.listen, app_url). Where the console is \
                     off, no link is made.\n\n\
                     The command asks nothing. Standard output is the link alone; standard error says until when it works. It ends with 0 when the link was made, with 2 when the address is none or the console is off, and with 1 when \
                     somebody has the address and is signed up.",
                ),
            )
            .arg(email())
            .arg(json()),
        )
        .subcommand(
            config::with_flags(Command::new("list").about("Lists the operators"))
                .arg(json()),
        )
        .subcommand(
            config::with_flags(
                Command::new("remove").about("Removes an account, and ends its sessions").long_about(
                    "Removes an account, and ends its sessions.\n\n\
                     What the operator has done stays in the system chains under the account's id. It ends with 0 when the account was removed, and with 4 when there is none.",
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
            eprintln!("This link sets the password, once, until {expires_at}; an authenticator follows:");
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
                eprintln!("There may be more than these {LISTED_MAX}.");
            }
        }
        Done::Removed { .. } => eprintln!("The account is removed, and its sessions have ended."),
    }
    Ok(ExitCode::SUCCESS)
}
