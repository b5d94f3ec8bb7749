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
        .about("Send a test mail with the settings smtp.url and smtp.from")
        .long_about(
            "Send a test mail with the settings smtp.url and smtp.from of a server started here and now, and \
             print the reply of the mail server. The Sealog server need not run.\n\n\
             An accepted mail may still not arrive: check the mailbox and its spam folder.",
        )
        .arg(Arg::new("address").value_name("ADDRESS").required(true).help("Recipient"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"));
    Command::new("mail")
        .about("Test the mail settings")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(test))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, matches) = matches.subcommand().expect("clap asks for one");
    let address = matches.get_one::<String>("address").expect("clap asks for it");
    let settings = config::load(matches, std::env::vars())?;
    let Some(smtp) = &settings.service.smtp else {
        return Err(Failure::usage(
            "no mail server is configured: set smtp.url and smtp.from (docs/settings.md)",
        ));
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
            eprintln!("sealog: the mail server accepted a mail for {address}");
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => Err(Failure::new(
            Exit::Failure,
            format!(
                "the mail server rejected the mail: {}\n  check smtp.url and smtp.from, and that this machine can reach the mail server",
                output::plain(&why)
            ),
        )),
    }
}
