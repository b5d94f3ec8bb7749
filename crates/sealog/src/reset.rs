//! `sealog reset`: makes a link with which somebody sets a new password.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};

use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::admin::reset::{self, Made, Opens};
use crate::config;

pub(crate) fn command() -> Command {
    config::with_flags(
        Command::new("reset").about("Makes a link with which somebody sets a new password").long_about(
            "Makes a link with which somebody sets a new password.\n\n\
             The link works once, within an hour. Hand it to the person over a channel that you trust: whoever opens it first has the account. A link that was made or mailed earlier for the \
             same person works no more. The password stays as it is until the link is used; then the new one counts, and all sessions of the person end. An authenticator stays as it is.\n\n\
             While nobody has claimed the account of the first owner (owner@localhost), the link claims it, within 24 hours.\n\n\
             The system chain of every organisation that the person is a member of tells of it: sealog.reset_link_made, by the actor host.\n\n\
             The server may run or be stopped: the command goes to the server that runs on the data directory, and opens the store itself where none does. The link leads to the app_url \
             of that server; where none runs, to that of the command's own settings. Run it as the user of the server, or as root.\n\n\
             The command asks nothing. Standard output is the link alone; standard error says until when it works. It ends with 0 when the link was made, with 4 when \
             nobody has the address, and with 1 when the store cannot be opened, read or written.",
        ),
    )
    .after_help(EXIT_CODES)
    .arg(
        Arg::new("email")
            .long("email")
            .value_name("ADDRESS")
            .required(true)
            .help("The address with which the person signs in, in any case"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines"))
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
        Opens::NewPassword => eprintln!("This link sets a new password, once, until {expires_at}:"),
        Opens::Claim => eprintln!(
            "Nobody has claimed this account yet. This link does, once, until {expires_at}; one that is in first-run.txt works no more:"
        ),
    }
    println!("{}", link.0);
    Ok(ExitCode::SUCCESS)
}
