//! `sealog admin tenant`.

use clap::{ArgMatches, Command};
use serde_json::Value;

use super::super::exit::Failure;
use super::session::{Column, Session, flag, group, id, positional, rate, texts};

const COLUMNS: [Column; 6] = [
    ("tenant_id", 36),
    ("name", 32),
    ("plan", 12),
    ("billing_active", 14),
    ("trial_ends_at", 24),
    ("created_at", 24),
];
const TEXTS: [&str; 4] = ["name", "plan", "contact_email", "trial_ends_at"];

pub(super) fn command() -> Command {
    let with_fields = |command: Command| {
        command
            .arg(flag("plan", "PLAN", "Plan, such as entry, middle or top"))
            .arg(flag("contact_email", "ADDRESS", "E-mail address for notices"))
            .arg(flag("trial_ends_at", "TIME", "End of the trial in ISO 8601"))
            .arg(
                flag(
                    "billing_active",
                    "BOOL",
                    "Billing is active; without it, events are rejected after the trial",
                )
                .value_parser(["true", "false"]),
            )
    };
    let tenant_id = || positional("tenant_id", "TENANT_ID", "The tenant");
    group(
        "tenant",
        "Organisations",
        [
            Command::new("list").about("List all tenants"),
            Command::new("show").about("Show one tenant").arg(tenant_id()),
            with_fields(Command::new("create").about("Create a tenant").arg(positional(
                "name",
                "NAME",
                "Name of the tenant",
            ))),
            with_fields(
                Command::new("change")
                    .about("Change a tenant")
                    .arg(tenant_id())
                    .arg(flag("name", "NAME", "New name")),
            )
            .arg(flag(
                "rate_limit_rps",
                "N",
                "Requests per second of all its live keys together, or plan for the plan's rate",
            )),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let body = || {
        let mut body = texts(matches, &TEXTS);
        let billing = matches.get_one::<String>("billing_active").map(|text| Value::from(text == "true"));
        body.extend(billing.map(|billing| ("billing_active".to_owned(), billing)));
        body
    };
    let path = || Ok::<_, Failure>(format!("/operator/v1/tenants/{}", id(matches, "tenant_id")?));
    match verb {
        "list" => session.list("/operator/v1/tenants", "tenants", &COLUMNS).await,
        "show" => session.put(&session.get(&path()?).await?),
        "create" => session.create("/operator/v1/tenants", body()).await,
        _ => {
            let mut body = body();
            body.extend(rate(matches)?.map(|rate| ("rate_limit_rps".to_owned(), rate)));
            session.change(&path()?, body).await
        }
    }
}
