//! `sealog tenant`: what an operator does when a tenant leaves.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_backup::tenant_argument;
use sealog_cli::exit::{EXIT_CODES, Failure};
use sealog_store::world::{SystemWorld, World};

use crate::admin::client::{OTHER_ANSWER, Session};
use crate::admin::operations::{Answer, Request};
use crate::admin::tenant::{Close, Done, Read};
use crate::config;

pub(crate) fn command() -> Command {
    Command::new("tenant")
        .about("Export and close a tenant at the end of its contract")
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(sealog_backup::tenant_export_command()))
        .subcommand(sealog_backup::tenant_verify_command())
        .subcommand(config::with_flags(close_command()))
}

fn close_command() -> Command {
    Command::new("close")
        .about("Close a tenant: revoke its keys, end its memberships, keep its events")
        .long_about(
            "Close a tenant: revoke its keys, end its memberships, keep its events.\n\n\
             From the first moment no key of the tenant works (401 auth/key_revoked), and it gets no new keys \
             and members. Then the command revokes its keys and ends its memberships one by one; members of \
             no other organisation are signed out. Its system chain records all of it. Its events stay, and \
             other tenants are not affected. You cannot undo it; `sealog tenant export` still works \
             afterwards.\n\n\
             If the command is interrupted, run it again: it continues. Closing a closed tenant changes \
             nothing.\n\n\
             The server may run or be stopped: the command connects to the server of the data directory, or \
             opens the store itself if none runs. The command never prompts: --name confirms which tenant \
             you mean. It exits with 2 and changes nothing if the name is not the tenant's, or if cases are \
             open.",
        )
        .after_help(EXIT_CODES)
        .arg(tenant_argument())
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .required(true)
                .help("The name of the tenant, as a confirmation"),
        )
        .arg(
            Arg::new("reason")
                .long("reason")
                .value_name("TEXT")
                .required(true)
                .help("Why; recorded in its system chain"),
        )
        .arg(
            Arg::new("even-with-open-cases")
                .long("even-with-open-cases")
                .action(ArgAction::SetTrue)
                .help("Close it although requests of data subjects are open"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match matches.subcommand().expect("clap asks for one") {
        ("export", matches) => export(matches),
        ("verify", matches) => sealog_backup::verify_tenant(matches),
        (_, matches) => close(matches),
    }
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).expect("clap asks for it").clone()
}

fn export(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    let mut session = Session::new(&settings);
    let tenant_id = text(matches, "tenant_id");
    sealog_backup::export_tenant(matches, SystemWorld.now_ms(), &mut |part| {
        let request = Request::ReadTenant(Read { tenant_id: tenant_id.clone(), part });
        match session.run(&request)? {
            Answer::ReadTenant(page) => Ok(page),
            _ => Err(OTHER_ANSWER.to_owned().into()),
        }
    })
}

fn close(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = config::load(matches, std::env::vars())?;
    let request = Request::CloseTenant(Close {
        tenant_id: text(matches, "tenant_id"),
        name: text(matches, "name"),
        reason: text(matches, "reason"),
        even_with_open_cases: matches.get_flag("even-with-open-cases"),
    });
    let (mut session, mut keys, mut members) = (Session::new(&settings), 0, 0);
    let closed_at = loop {
        let Answer::CloseTenant(Done { closed_at, keys_revoked, members_ended, is_done }) =
            session.run(&request)?
        else {
            return Err(OTHER_ANSWER.to_owned().into());
        };
        (keys, members) = (keys + keys_revoked, members + members_ended);
        if is_done {
            break closed_at;
        }
    };
    if matches.get_flag("json") {
        let done = serde_json::json!({
            "tenant_id": text(matches, "tenant_id"), "closed_at": closed_at, "keys_revoked": keys,
            "members_ended": members,
        });
        println!("{done}");
    } else {
        println!("closed at {closed_at}: revoked {keys} keys and ended {members} memberships; events stay");
    }
    Ok(ExitCode::SUCCESS)
}
