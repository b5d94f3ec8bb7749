//! Lists of events: the filters that all commands share, and pages as the service sends them.

use clap::{Arg, ArgMatches, Command};
use sealog_client::http::{Answer, Client};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::exit::Failure;

/// The API's longest page.
pub(super) const PAGE_MAX: usize = 100;

/// The API's filters, by the names of its parameters.
const FILTERS: [(&str, &str, &str); 5] = [
    ("action", "ACTION", "Only this action"),
    ("actor_id", "ID", "Only events of this actor"),
    ("resource", "RESOURCE", "Only events on this resource"),
    ("date_from", "YYYY-MM-DD", "Only events since the start of this day (UTC)"),
    ("date_to", "YYYY-MM-DD", "Only events until the end of this day (UTC)"),
];

pub(super) fn with_filters(command: Command) -> Command {
    FILTERS.iter().fold(command, |command, (name, value, help)| {
        command.arg(Arg::new(*name).long(name.replace('_', "-")).value_name(*value).help(*help))
    })
}

/// A page as the service sends it. Events stay the text that they are: what is hashed is this text.
#[derive(Deserialize)]
pub(super) struct Page {
    pub events: Vec<Box<RawValue>>,
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Filters(Vec<(&'static str, String)>);

impl Filters {
    pub(super) fn of(matches: &ArgMatches) -> Filters {
        let given =
            FILTERS.iter().filter_map(|(name, ..)| Some((*name, matches.get_one::<String>(name)?.clone())));
        Filters(given.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pairs(&self) -> &[(&'static str, String)] {
        &self.0
    }

    pub(super) async fn page(
        &self,
        client: &Client,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, Failure> {
        Ok(self.ask(client, limit, cursor).await?.json()?)
    }

    /// A page as it has come: for whoever reads many, and copies none of them.
    pub(super) async fn ask(
        &self,
        client: &Client,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Answer, Failure> {
        let limit = limit.to_string();
        let mut query: Vec<(&str, &str)> =
            self.0.iter().map(|(name, value)| (*name, value.as_str())).collect();
        query.push(("limit", &limit));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        Ok(client.get("/v1/events", &query).await?)
    }
}
