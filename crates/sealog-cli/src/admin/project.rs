//! `sealog admin project`.

use clap::{ArgAction, ArgMatches, Command};
use serde_json::{Map, Value};

use super::super::exit::Failure;
use super::session::{Column, Session, flag, group, id, of_tenant, positional, rate, texts};

const COLUMNS: [Column; 5] =
    [("project_id", 36), ("name", 32), ("frameworks", 40), ("rate_limit_rps", 14), ("created_at", 24)];

pub(super) fn command() -> Command {
    let project_id = || positional("project_id", "PROJECT_ID", "The project");
    let frameworks = || {
        flag("framework", "ID", "Enable this framework, such as soc2; repeatable").action(ArgAction::Append)
    };
    group(
        "project",
        "Manage the projects of a tenant",
        [
            Command::new("list").about("List the projects of a tenant").arg(of_tenant()),
            Command::new("show").about("Show one project").arg(project_id()),
            Command::new("create")
                .about("Create a project")
                .arg(of_tenant())
                .arg(positional("name", "NAME", "Name of the project"))
                .arg(frameworks()),
            Command::new("change")
                .about("Change a project; `sealog admin framework` enables and disables single frameworks")
                .arg(project_id())
                .arg(flag("name", "NAME", "New name"))
                .arg(frameworks())
                .arg(flag(
                    "rate_limit_rps",
                    "N",
                    "Requests per second of its live keys, or plan for the plan's rate",
                )),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let body = || -> Map<String, Value> {
        let mut body = texts(matches, &["name"]);
        if let Some(ids) = matches.get_many::<String>("framework") {
            body.insert("frameworks".into(), ids.map(|id| Value::from(id.as_str())).collect());
        }
        body
    };
    let of_tenant = || Ok::<_, Failure>(format!("/operator/v1/tenants/{}/projects", id(matches, "tenant")?));
    let path = || Ok::<_, Failure>(format!("/operator/v1/projects/{}", id(matches, "project_id")?));
    match verb {
        "list" => session.list(&of_tenant()?, "projects", &COLUMNS).await,
        "show" => session.put(&session.get(&path()?).await?),
        "create" => session.create(&of_tenant()?, body()).await,
        _ => {
            let mut body = body();
            body.extend(rate(matches)?.map(|rate| ("rate_limit_rps".to_owned(), rate)));
            session.change(&path()?, body).await
        }
    }
}
