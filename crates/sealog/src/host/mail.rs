//! `sealog mail`: whether mails leave.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::connect;
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output;
use serde_json::json;

use crate::config;

/// For the whole exchange with the mail server.
const ATTEMPT_MAX: Duration = Duration::from_secs(20);

pub(super) fn command() -> Command {
    let test = Command::new("test")
        .about("Sends a test mail by the settings smtp.url and smtp.from")
        .long_about(
            "Sends a test mail by the settings smtp.url and smtp.from of a server that would be started here and now, and says what the mail server answers. The server need not run.\n\n\
             That it was taken does not mean that it arrives: look into the mailbox, and into its spam.",
        )
        .arg(Arg::new("address").value_name("ADDRESS").required(true).help("Whom to send it to"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object"));
    Command::new("mail")
        .about("Tries the mail settings")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(test))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, matches) = matches.subcommand().expect("clap asks for one");
    let address = matches.get_one::<String>("address").expect("clap asks for it");
    let settings = config::load(matches, std::env::vars())?;
    let Some(smtp) = &settings.service.smtp else {
        return Err(Failure::usage("there is no mail server: set smtp.url and smtp.from (docs/settings.md)"));
    };
    let sent = connect::block_on(async { Ok(smtp.send_test(address, ATTEMPT_MAX).await) })?;
    let told = match &sent {
        Ok(()) => json!({ "to": address, "sent": true }),
        Err(why) => json!({ "to": address, "sent": false, "reason": why }),
    };
    if matches.get_flag("json") {
        output::put(&format!("{told}\n"))?;
    }
    match sent {
        Ok(()) => {
            eprintln!("sealog: the mail server has taken a mail for {address}");
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => Err(Failure::new(
            Exit::Failure,
            format!(
                "the mail was not taken: {}\n  are smtp.url and smtp.from right, and may this machine reach the server?",
                output::plain(&why)
            ),
        )),
    }
}
