//! `sealog admin framework`.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};
use sealog_client::http::Method;
use sealog_core::catalog::{Catalog, Entry, Framework};
use serde_json::{Map, Value, json};

use super::super::exit::Failure;
use super::session::{Column, Session, group, id, of_project, positional};

const COLUMNS: [Column; 3] = [("framework", 20), ("label", 40), ("actions", 8)];

pub(super) fn command() -> Command {
    let framework = || positional("framework", "FRAMEWORK", "Id of the framework, such as gdpr");
    group(
        "framework",
        "List, enable and disable frameworks",
        [
            Command::new("list")
                .about("List all frameworks, or those of a project")
                .arg(of_project().required(false)),
            Command::new("enable")
                .about("Enable a framework for a project")
                .arg(of_project())
                .arg(framework()),
            Command::new("disable")
                .about("Disable a framework for a project; events with its own actions are then rejected")
                .arg(of_project())
                .arg(framework()),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let mut known = catalog();
    if verb == "list" && !matches.contains_id("project") {
        return session.put_list(&known.into_values().collect::<Vec<_>>(), &COLUMNS);
    }
    let name = (verb != "list").then(|| matches.get_one::<String>("framework").expect("clap asks for it"));
    if let Some(name) = name.filter(|name| !known.contains_key(*name)) {
        let all: Vec<&str> = known.keys().map(String::as_str).collect();
        return Err(Failure::usage(format!(
            "there is no framework {name:?}; choose from {}",
            all.join(", ")
        )));
    }
    let path = format!("/operator/v1/projects/{}", id(matches, "project")?);
    let project = session.get(&path).await?;
    let enabled = project["frameworks"].as_array().cloned().unwrap_or_default();
    let Some(name) = name else {
        let of_project = enabled.iter().filter_map(|id| known.remove(id.as_str()?));
        return session.put_list(&of_project.collect::<Vec<_>>(), &COLUMNS);
    };
    let mut wanted: Vec<Value> = enabled.into_iter().filter(|id| id.as_str() != Some(name)).collect();
    if verb == "enable" {
        wanted.push(Value::from(name.as_str()));
    }
    let body = Map::from_iter([("frameworks".to_owned(), Value::from(wanted))]);
    let changed = session.send(Method::PATCH, &path, body).await?;
    session.put(&changed)
}

/// All that there are, by their ids, with how many actions of the catalog serve each.
fn catalog() -> BTreeMap<String, Value> {
    let catalog = Catalog::builtin();
    let row = |framework: &Framework| {
        let serves = |entry: &&Entry| entry.frameworks.iter().any(|of| of.framework == framework.framework);
        let actions = catalog.entries.iter().filter(serves).count();
        let row = json!({ "framework": framework.framework, "label": framework.label, "actions": actions });
        (framework.framework.clone(), row)
    };
    catalog.frameworks.iter().map(row).collect()
}
