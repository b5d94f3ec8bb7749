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
        "Manage the dashboard users of a tenant",
        [
            Command::new("list").about("List the dashboard users of a tenant").arg(of_tenant()),
            Command::new("create")
                .about("Create an account, or add an existing account to the tenant")
                .long_about(
                    "Create an account, or add an existing account to the tenant. An existing account keeps \
                     its password.\n\n\
                     The command prompts for the password, or reads it from standard input with \
                     --password-stdin. It is never an argument, because other users can see arguments.",
                )
                .arg(of_tenant())
                .arg(positional("email", "ADDRESS", "E-mail address of the account"))
                .arg(
                    flag("role", "ROLE", "Role: owner, admin, developer, privacy_officer or auditor")
                        .required(true)
                        .value_parser(["owner", "admin", "developer", "privacy_officer", "auditor"]),
                )
                .arg(
                    Arg::new("password_stdin")
                        .long("password-stdin")
                        .action(ArgAction::SetTrue)
                        .help("Read the password from standard input, one line"),
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
            "the password is missing: run this on a terminal, or give --password-stdin and pipe one line in",
        )
    })?;
    let mut body = texts(matches, &["email", "role"]);
    body.insert("password".into(), Value::from(password.as_str()));
    session.create(&path, body).await
}
