//! An event as a row of the list, on the page and in the live tail; each value leads to the part of the list
//! that has it. `list.js` leaves a value out by the last term of that link.

use askama::Template;
use sealog_core::event::StoredEvent;
use sealog_core::json;
use sealog_core::time::iso_ms;

use crate::pages::columns::Columns;
use crate::pages::query_bar;
use crate::pages::trail;
use crate::request::{Asked, query_encoded, query_text};
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
    /// For its colour, where the value is one that is known.
    pub class: &'static str,
}

impl Value {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Makes the links of rows. They are relative to the list and say nothing twice: a page of fifty rows has 300
/// of them.
pub(crate) struct Links(Vec<(&'static str, String)>);

impl Links {
    /// `given` is the query that the list has by now, and its columns.
    pub(crate) fn new(given: &[(String, String)]) -> Links {
        let query = given.iter().find(|(name, _)| name == query_bar::NAME).map_or("", |(_, value)| value);
        let page = with("", given, query_bar::NAME, "");
        let page = if page.is_empty() { "?".to_owned() } else { format!("{page}&") };
        let before = |field: &'static str| {
            let rest = query_encoded(&query_bar::rest_of(query, field));
            let space = if rest.is_empty() { "" } else { "+" };
            (field, format!("{page}{}={rest}{space}", query_bar::NAME))
        };
        Links(["action", "category", "actor", "resource", "country", "severity"].map(before).into())
    }

    fn to(&self, field: &str, value: &str) -> String {
        let before = self.0.iter().find(|(known, _)| *known == field).map_or("", |(_, before)| before);
        format!("{before}{}", query_encoded(&query_bar::term(field, value)))
    }

    fn canonical(&self, field: &str, canonical: Option<&str>) -> Value {
        let Some(canonical) = canonical else { return Value::default() };
        let raw = json::decode(canonical).unwrap_or_default();
        Value { text: of_json(canonical), href: self.to(field, &raw), class: "" }
    }

    fn plain(&self, field: &str, value: Option<&str>, class: fn(&str) -> &'static str) -> Value {
        let Some(value) = value else { return Value::default() };
        Value { text: visible(value), href: self.to(field, value), class: class(value) }
    }
}

impl Row {
    pub(crate) fn new(links: &Links, event: &StoredEvent) -> Row {
        let fields = event.text.fields();
        let annotations = &event.annotations;
        Row {
            href: format!("events/{}", event.sealed.log_id),
            seq: number(event.sealed.chain_seq),
            iso: iso_ms(event.timestamp_ms),
            day: day(event.timestamp_ms),
            time: clock_ms(event.timestamp_ms)[..8].to_owned(),
            action: links.canonical("action", Some(fields.action)),
            category: links.plain("category", annotations.category.as_deref(), category),
            actor: links.canonical("actor", fields.actor_id),
            resource: links.canonical("resource", fields.resource),
            place: place(links, event),
            severity: links.plain("severity", annotations.severity.as_deref(), severity),
            hash: event.sealed.hash.to_string()[..8].to_owned(),
        }
    }
}

fn category(name: &str) -> &'static str {
    match name {
        "auth" => " auth",
        "hipaa" | "gdpr" | "ccpa" => " privacy",
        "access_control" | "configuration" | "api_key" => " control",
        _ => "",
    }
}

fn severity(level: &str) -> &'static str {
    match level {
        "warning" | "warn" => " warning",
        "critical" => " critical",
        "info" => " info",
        _ => "",
    }
}

/// The city with its country, which is what the filter asks for.
fn place(links: &Links, event: &StoredEvent) -> Value {
    let (city, country) = (event.annotations.city.as_deref(), event.annotations.country.as_deref());
    let text = visible(&[country, city].into_iter().flatten().collect::<Vec<_>>().join(" · "));
    // The search knows countries by two letters alone.
    let is_code = |code: &&str| code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    Value { text, ..links.plain("country", country.filter(is_code), |_| "") }
}

/// A row as the list has it.
pub(crate) fn rendered(asked: &Asked, event: &StoredEvent) -> String {
    let given = asked.query_pairs().into_iter().filter(|(name, value)| !value.is_empty() && name != "after");
    let given = Columns::in_place(given.collect());
    let row = Row::new(&Links::new(&given), event);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_have_colours_by_kind_and_a_hostile_one_has_none() {
        let names = ["auth", "hipaa", "gdpr", "access_control", "content", "auth\" onclick=\"x"];
        assert_eq!(names.map(category), [" auth", " privacy", " privacy", " control", "", ""]);
    }
}
