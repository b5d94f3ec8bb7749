//! An event as a row of the list, on the page and in the live view; each value leads to the list with that
//! value as a filter. `keys.js` leaves a value out by the term that stands with it.

use askama::Template;
use sealog_core::event::StoredEvent;
use sealog_core::json;
use sealog_core::time::iso_ms;

use crate::pages::columns::Columns;
use crate::pages::query_bar;
use crate::pages::trail;
use crate::request::{Asked, query_text};
use crate::text::{clock_ms, day, number, of_json, visible};

pub(crate) struct Row {
    /// Relative to the list, as all links of a row.
    pub href: String,
    pub seq: String,
    pub iso: String,
    pub day: String,
    pub time: String,
    pub action: Value,
    pub category: Value,
    pub actor: Value,
    pub resource: Value,
    pub place: Value,
    pub severity: Value,
    /// Its first characters.
    pub hash: String,
}

/// What an event has in a column.
#[derive(Default)]
pub(crate) struct Value {
    pub text: String,
    /// The list with this value as a filter. Nothing where no filter can ask for it.
    pub href: String,
    /// The term that asks for it: with a minus it is left out. Where a parameter asks for it, only the field
    /// of such a term: `exclude.js` knows the rest from the link.
    pub term: String,
}

impl Value {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Makes the links of rows. They are relative to the list and say nothing twice: a page of fifty rows has 300
/// of them.
struct Links<'a> {
    given: &'a [(String, String)],
    /// The search that the list has by now.
    query: &'a str,
}

impl Links<'_> {
    /// By a parameter of the list, which looks for exactly this.
    fn exact(&self, name: &str, field: &str, canonical: Option<&str>) -> Value {
        let Some(canonical) = canonical else { return Value::default() };
        let raw = json::decode(canonical).unwrap_or_default();
        Value { text: of_json(canonical), href: with("", self.given, name, &raw), term: field.to_owned() }
    }

    /// By a term of the search.
    fn searched(&self, field: &str, value: Option<&str>) -> Value {
        let Some(value) = value else { return Value::default() };
        let term = query_bar::term(field, value);
        let has_term = self.query.split(' ').any(|known| known == term);
        let query = if has_term { self.query.to_owned() } else { format!("{} {term}", self.query) };
        Value { text: visible(value), href: with("", self.given, query_bar::NAME, query.trim()), term }
    }
}

impl Row {
    /// `given` are the filters that the list has by now.
    pub(crate) fn new(given: &[(String, String)], event: &StoredEvent) -> Row {
        let fields = event.text.fields();
        let annotations = &event.annotations;
        let query = given.iter().find(|(name, _)| name == query_bar::NAME).map_or("", |(_, value)| value);
        let links = Links { given, query };
        Row {
            href: format!("events/{}", event.sealed.log_id),
            seq: number(event.sealed.chain_seq),
            iso: iso_ms(event.timestamp_ms),
            day: day(event.timestamp_ms),
            time: clock_ms(event.timestamp_ms),
            action: links.exact("action", "action", Some(fields.action)),
            category: links.searched("category", annotations.category.as_deref()),
            actor: links.exact("actor_id", "actor", fields.actor_id),
            resource: links.exact("resource", "resource", fields.resource),
            place: place(&links, event),
            severity: links.searched("severity", annotations.severity.as_deref()),
            hash: event.sealed.hash.to_string()[..8].to_owned(),
        }
    }
}

/// The city with its country, which is what the filter asks for.
fn place(links: &Links<'_>, event: &StoredEvent) -> Value {
    let (city, country) = (event.annotations.city.as_deref(), event.annotations.country.as_deref());
    let text = visible(&[city, country].into_iter().flatten().collect::<Vec<_>>().join(", "));
    // The search knows countries by two letters alone.
    let is_code = |code: &&str| code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    Value { text, ..links.searched("country", country.filter(is_code)) }
}

/// A row as the list has it.
pub(crate) fn rendered(asked: &Asked, event: &StoredEvent) -> String {
    let given = asked.query_pairs().into_iter().filter(|(name, value)| !value.is_empty() && name != "after");
    let given = Columns::in_place(given.collect());
    let row = Row::new(&given, event);
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
