//! `sealog reset`: makes a link with which somebody sets a new password.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};

use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::admin::reset::{self, Made, Opens};
use crate::config;

pub(crate) fn command() -> Command {
    config::with_flags(Command::new("reset").about("Create a link that sets a new password").long_about(
        "Create a link that sets a new password.\n\n\
             The link works once and expires after an hour. Send it over a channel that you trust: the first \
             person to open it gets the account. It replaces earlier links for the same person. The old \
             password works until the link is used; then all sessions of the person end. The authenticator \
             does not change.\n\n\
             If the account of the first owner (owner@localhost) is not claimed yet, the link claims it and \
             expires after 24 hours.\n\n\
             The system chain of each of the person's organisations records it: sealog.reset_link_made, by \
             the actor host.\n\n\
             The server may run or be stopped: the command connects to the server of the data directory, or \
             opens the store itself if none runs. The link uses the app_url of that server, or of the \
             command's own settings if none runs. Run it as the user of the server, or as root.\n\n\
             The command never prompts. It prints only the link to standard output, and its expiry to \
             standard error. It exits with 0 when the link is created, with 4 if no account has the address, \
             and with 1 if the store cannot be opened, read or written.",
    ))
    .after_help(EXIT_CODES)
    .arg(
        Arg::new("email")
            .long("email")
            .value_name("ADDRESS")
            .required(true)
            .help("E-mail address of the account; upper and lower case are equal"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let email = matches.get_one::<String>("email").expect("clap asks for it").clone();
    let settings = config::load(matches, std::env::vars())?;
    let request = Request::Reset(reset::Request { email });
    let Answer::Reset(made) = client::run(&settings, &request)? else {
        return Err(client::OTHER_ANSWER.to_owned().into());
    };
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string(&made).expect("texts"));
        return Ok(ExitCode::SUCCESS);
    }
    let Made { link, opens, expires_at } = made;
    // Before the link: a terminal shows them in this order, and a script takes standard output.
    match opens {
        Opens::NewPassword => eprintln!("This link sets a new password. It works once, until {expires_at}:"),
        Opens::Claim => eprintln!(
            "This account is not claimed yet. This link claims it. It works once, until {expires_at}, and replaces the link in first-run.txt:"
        ),
    }
    println!("{}", link.0);
    Ok(ExitCode::SUCCESS)
}
