//! `sealog accept-loss`: lets a chain go on whose last events are lost.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};

use crate::admin::client;
use crate::admin::loss::{self, Named, no_chain};
use crate::admin::operations::{Answer, Request};
use crate::config;

pub(crate) fn command() -> Command {
    config::with_flags(
        Command::new("accept-loss").about("Accept a proven loss so that the chain takes events again").long_about(
            "Accept a proven loss so that the chain takes events again.\n\n\
             A chain that is missing events known to exist rejects new ones, because a new event would hide \
             the loss. First search for the events: in another copy of the data directory, a backup or a \
             standby. If you cannot restore them, accept the loss with this command. The acceptance is the \
             next event of the chain, with the action sealog.loss_accepted; its metadata has the range of \
             the lost events, the hash of the last of them and your reason. The chain then verifies again \
             and accepts events. The command removes nothing, and you cannot undo it.\n\n\
             The server may run or be stopped: the command connects to the server of the data directory, or \
             opens the store itself if none runs. With PostgreSQL give the data directory of the server that \
             reported the loss. Run it as the user of the server, or as root.\n\n\
             The command never prompts. It prints the loss, then the sealed event. It exits with 0 when the \
             loss is accepted. Any other code means that it changed nothing: 1 if the chain has lost \
             nothing, or the store cannot be opened, read or written.",
        ),
    )
    .after_help(EXIT_CODES)
    .arg(
        Arg::new("chain")
            .long("chain")
            .value_name("PROJECT_ID:MODE")
            .required(true)
            .help("The chain, such as 7d444840-9dc0-41d1-b245-5ffdce74fad2:live, or TENANT_ID/PROJECT_ID/MODE as in the log"),
    )
    .arg(
        Arg::new("reason")
            .long("reason")
            .value_name("TEXT")
            .required(true)
            .help("Why the events are lost and why you accept it; sealed into the chain for good"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).expect("clap asks for it").as_str();
    let wrong = || Failure::usage(format!("--chain: {}", no_chain(text("chain"))));
    let chain = Named::parse(text("chain")).ok_or_else(wrong)?;
    let reason = text("reason").to_owned();
    if reason.trim().is_empty() {
        let empty = "--reason: give the reason why you accept the loss; it is sealed into the chain";
        return Err(Failure::usage(empty));
    }
    let settings = config::load(matches, std::env::vars())?;
    let request = Request::AcceptLoss(loss::Request { chain, reason });
    let Answer::AcceptLoss(accepted) = client::run(&settings, &request)? else {
        return Err(client::OTHER_ANSWER.to_owned().into());
    };
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string(&accepted).expect("texts and numbers"));
    } else {
        println!("{accepted}");
    }
    Ok(ExitCode::SUCCESS)
}
