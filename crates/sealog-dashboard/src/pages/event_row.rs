//! An event as a row of the list, on the page and in the live view; each value leads to the list with that value as a filter.

use askama::Template;
use sealog_core::event::StoredEvent;
use sealog_core::time::iso_ms;

use crate::pages::columns::Columns;
use crate::pages::trail;
use crate::request::{Asked, query_text};
use crate::text::{clock_ms, day, number, of_json, visible};

pub(crate) struct Row {
    pub href: String,
    pub seq: String,
    pub iso: String,
    pub day: String,
    pub time: String,
    pub action: String,
    pub category: String,
    pub actor: String,
    pub resource: String,
    pub place: String,
    pub severity: String,
    pub hash: String,
    pub short_hash: String,
    /// The page with this value as a filter.
    pub by_action: String,
    pub by_actor: String,
    pub by_resource: String,
}

impl Row {
    /// `given` are the filters that the list has by now.
    pub(crate) fn new(here: &str, given: &[(String, String)], event: &StoredEvent) -> Row {
        let fields = event.text.fields();
        let annotations = &event.annotations;
        let raw = |text: &str| sealog_core::json::decode(text).unwrap_or_default();
        let by = |name: &str, text: Option<&str>| {
            text.map_or(String::new(), |text| with(here, given, name, &raw(text)))
        };
        let place = [annotations.city.as_deref(), annotations.country.as_deref()];
        let hash = event.sealed.hash.to_string();
        Row {
            href: format!("{here}/{}", event.sealed.log_id),
            seq: number(event.sealed.chain_seq),
            iso: iso_ms(event.timestamp_ms),
            day: day(event.timestamp_ms),
            time: clock_ms(event.timestamp_ms),
            action: of_json(fields.action),
            category: visible(annotations.category.as_deref().unwrap_or("")),
            actor: fields.actor_id.map(of_json).unwrap_or_default(),
            resource: fields.resource.map(of_json).unwrap_or_default(),
            place: visible(&place.into_iter().flatten().collect::<Vec<_>>().join(", ")),
            severity: visible(annotations.severity.as_deref().unwrap_or("")),
            by_action: by("action", Some(fields.action)),
            by_actor: by("actor_id", fields.actor_id),
            by_resource: by("resource", fields.resource),
            short_hash: hash[..8].to_owned(),
            hash,
        }
    }
}

/// A row as the list has it.
pub(crate) fn rendered(asked: &Asked, event: &StoredEvent) -> String {
    let given = asked.query_pairs().into_iter().filter(|(name, value)| !value.is_empty() && name != "after");
    let given = Columns::in_place(given.collect());
    let row = Row::new(&asked.place().events_path(), &given, event);
    let part = RowPart { row: &row, columns: &Columns::of(&given) };
    part.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "pages/event_row.html")]
struct RowPart<'a> {
    row: &'a Row,
    columns: &'a Columns,
}

/// The page with another value of a parameter, from its beginning unless that is what changes.
pub(crate) fn with(here: &str, given: &[(String, String)], name: &str, value: &str) -> String {
    let kept = given
        .iter()
        .filter(|(known, _)| known != name && known != "cursor" && known != trail::PARAMETER)
        .cloned();
    let new = (!value.is_empty()).then(|| (name.to_owned(), value.to_owned()));
    let pairs: Vec<(String, String)> = kept.chain(new).collect();
    if pairs.is_empty() { here.to_owned() } else { format!("{here}?{}", query_text(&pairs)) }
}
