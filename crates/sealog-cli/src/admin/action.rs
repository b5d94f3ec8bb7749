//! `sealog admin action`.

use clap::{ArgAction, ArgMatches, Command};
use serde_json::Value;

use super::super::exit::Failure;
use super::session::{Column, Session, flag, group, id, of_tenant, positional, texts};

const COLUMNS: [Column; 5] =
    [("action", 40), ("category", 20), ("severity", 8), ("required_fields", 40), ("description", 60)];
const LISTS: [&str; 2] = ["required_fields", "optional_fields"];

pub(super) fn command() -> Command {
    let names = |name: &'static str, help: &'static str| {
        flag(name, "NAME", help).long(name.trim_end_matches('s').replace('_', "-")).action(ArgAction::Append)
    };
    group(
        "action",
        "Custom actions of a tenant; `sealog actions` shows all that may be logged",
        [
            Command::new("list").about("Lists the custom actions of a tenant").arg(of_tenant()),
            Command::new("create")
                .about("Registers an action, for all projects of the tenant")
                .arg(of_tenant())
                .arg(positional("action", "ACTION", "Its name, such as invoice.paid"))
                .arg(flag("description", "TEXT", "What it means"))
                .arg(flag("category", "NAME", "Its category"))
                .arg(flag("severity", "SEVERITY", "info, warning or critical"))
                .arg(names("required_fields", "A member that metadata must have; may be repeated"))
                .arg(names("optional_fields", "A member that metadata may have; may be repeated")),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let path = format!("/operator/v1/tenants/{}/actions", id(matches, "tenant")?);
    if verb == "list" {
        return session.list(&path, "actions", &COLUMNS).await;
    }
    let mut body = texts(matches, &["action", "description", "category", "severity"]);
    for list in LISTS {
        if let Some(names) = matches.get_many::<String>(list) {
            body.insert(list.into(), names.map(|name| Value::from(name.as_str())).collect());
        }
    }
    session.create(&path, body).await
}
