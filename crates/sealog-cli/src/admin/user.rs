//! `sealog admin user`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use super::super::ask;
use super::super::exit::Failure;
use super::session::{Column, Session, flag, group, id, of_tenant, positional, texts};

const COLUMNS: [Column; 4] = [("user_id", 36), ("email", 40), ("role", 16), ("created_at", 24)];

pub(super) fn command() -> Command {
    group(
        "user",
        "People of a tenant, for the dashboard",
        [
            Command::new("list").about("Lists the people of a tenant").arg(of_tenant()),
            Command::new("create")
                .about("Makes an account, or adds somebody who has one to the tenant")
                .long_about(
                    "Makes an account, or adds somebody who has one to the tenant (whose password stays as it is then).\n\n\
                     The password is asked for, or read from standard input with --password-stdin; never an argument, because arguments are seen by others.",
                )
                .arg(of_tenant())
                .arg(positional("email", "ADDRESS", "The address with which the person signs in"))
                .arg(
                    flag("role", "ROLE", "owner, admin, developer, privacy_officer or auditor")
                        .required(true)
                        .value_parser(["owner", "admin", "developer", "privacy_officer", "auditor"]),
                )
                .arg(
                    Arg::new("password_stdin")
                        .long("password-stdin")
                        .action(ArgAction::SetTrue)
                        .help("Reads the password from standard input, one line"),
                ),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let path = format!("/operator/v1/tenants/{}/users", id(matches, "tenant")?);
    if verb == "list" {
        return session.list(&path, "users", &COLUMNS).await;
    }
    let password = match matches.get_flag("password_stdin") {
        true => ask::piped(),
        false if matches.get_flag("no-input") => None,
        false => ask::hidden("Password of the new account: "),
    };
    let password = password.ok_or_else(|| {
        Failure::usage(
            "a password is needed: run it on a terminal, or give --password-stdin and pipe one line in",
        )
    })?;
    let mut body = texts(matches, &["email", "role"]);
    body.insert("password".into(), Value::from(password.as_str()));
    session.create(&path, body).await
}
