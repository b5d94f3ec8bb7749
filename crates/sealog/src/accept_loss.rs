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
        Command::new("accept-loss").about("Lets a chain go on whose last events are proven lost").long_about(
            "Lets a chain go on whose last events are proven lost.\n\n\
             A chain that is known to have had more events than are there accepts no more: an event that is sealed on top would hide the loss. After you have looked for the \
             events (another copy of the data directory, a backup, a standby) and cannot bring them back, this command accepts the loss. The acceptance is the next event of the \
             chain, with the action sealog.loss_accepted; its metadata says which events are lost, the hash that the last of them had, and your reason. From then on the chain \
             verifies again and accepts events. Nothing that exists is removed, and the acceptance cannot be taken back.\n\n\
             The server may run or be stopped: the command goes to the server that runs on the data directory, and opens the store itself where none does. With PostgreSQL give the data \
             directory of the server that reported the loss. Run it as the user of the server, or as root.\n\n\
             The command asks nothing. It prints what is lost, then what was sealed. It ends with 0 when the loss was accepted. With any other code nothing was changed: \
             1 when the chain has lost nothing, or the store cannot be opened, read or written.",
        ),
    )
    .after_help(EXIT_CODES)
    .arg(
        Arg::new("chain")
            .long("chain")
            .value_name("PROJECT_ID:MODE")
            .required(true)
            .help("The chain, such as 7d444840-9dc0-41d1-b245-5ffdce74fad2:live; or as the log names it, TENANT_ID/PROJECT_ID/MODE"),
    )
    .arg(
        Arg::new("reason")
            .long("reason")
            .value_name("TEXT")
            .required(true)
            .help("Why the events are lost and why that is accepted; it is sealed into the chain and cannot be changed"),
    )
    .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).expect("clap asks for it").as_str();
    let wrong = || Failure::usage(format!("--chain: {}", no_chain(text("chain"))));
    let chain = Named::parse(text("chain")).ok_or_else(wrong)?;
    let reason = text("reason").to_owned();
    if reason.trim().is_empty() {
        let empty = "--reason: say why the loss is accepted; it is sealed into the chain";
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
