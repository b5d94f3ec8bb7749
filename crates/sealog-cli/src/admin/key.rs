//! `sealog admin key`.

use clap::{ArgMatches, Command};
use sealog_client::http::Method;
use serde_json::Map;

use super::super::exit::Failure;
use super::session::{Column, Session, flag, group, id, of_project, positional, texts};

const COLUMNS: [Column; 7] = [
    ("key_id", 36),
    ("name", 24),
    ("mode", 4),
    ("prefix", 12),
    ("expires_at", 24),
    ("revoked_at", 24),
    ("last_used_at", 24),
];

pub(super) fn command() -> Command {
    group(
        "key",
        "Manage the API keys of a project",
        [
            Command::new("list").about("List the keys of a project").arg(of_project()),
            Command::new("create")
                .about("Create a key and show it once")
                .arg(of_project())
                .arg(positional("name", "NAME", "Name of the key"))
                .arg(flag("mode", "MODE", "Mode: live or test").required(true).value_parser(["live", "test"]))
                .arg(flag("expires_at", "TIME", "Expiry time in ISO 8601")),
            Command::new("revoke").about("Revoke a key immediately").arg(positional(
                "key_id",
                "KEY_ID",
                "Id of the key, not the key itself",
            )),
        ],
    )
}

pub(super) async fn run(session: &Session, verb: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let of_project = || Ok::<_, Failure>(format!("/operator/v1/projects/{}/keys", id(matches, "project")?));
    match verb {
        "list" => session.list(&of_project()?, "keys", &COLUMNS).await,
        "create" => session.create(&of_project()?, texts(matches, &["name", "mode", "expires_at"])).await,
        _ => {
            let path = format!("/operator/v1/keys/{}/revoke", id(matches, "key_id")?);
            let revoked = session.send(Method::POST, &path, Map::new()).await?;
            session.put(&revoked)
        }
    }
}
