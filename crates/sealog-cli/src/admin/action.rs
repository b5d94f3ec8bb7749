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
        "Manage the custom actions of a tenant; `sealog actions` shows all actions",
        [
            Command::new("list").about("List the custom actions of a tenant").arg(of_tenant()),
            Command::new("create")
                .about("Register an action for all projects of the tenant")
                .arg(of_tenant())
                .arg(positional("action", "ACTION", "Name of the action, such as invoice.paid"))
                .arg(flag("description", "TEXT", "Description"))
                .arg(flag("category", "NAME", "Category"))
                .arg(flag("severity", "SEVERITY", "Severity: info, warning or critical"))
                .arg(names("required_fields", "Required field of metadata; repeatable"))
                .arg(names("optional_fields", "Optional field of metadata; repeatable")),
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
