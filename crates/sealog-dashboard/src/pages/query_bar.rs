//! The query bar: the one query of a list, term by term, and what could be typed next. Whatever filters the
//! list, a click or a field of a form, writes this query.

use std::sync::Arc;

use sealog_control::Grants;
use sealog_core::catalog::Catalog;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::json;
use sealog_core::query::Filter;
use sealog_core::reject::Reject;
use sealog_core::time::{DAY_MS, iso_ms};
use sealog_service::evidence::search::parse::{ParseError, fields};
use sealog_service::evidence::search::term::{Condition, Pattern, Term};
use sealog_service::evidence::search::{self, Budget, Found, Plan, Query};
use sealog_store::List;

use crate::app::Dashboard;
use crate::problem::Problem;
use crate::request::{Asked, Place};
use crate::text::visible;

/// The parameter that holds a search.
pub(crate) const NAME: &str = "q";

/// Parameters of a form, or of an address from elsewhere, with the fields of the search that they stand for.
pub(crate) const FORM: [(&str, &str, &str, &str); 5] = [
    ("action", "action", "Action", "text"),
    ("actor_id", "actor", "Actor", "text"),
    ("resource", "resource", "Resource", "text"),
    ("date_from", "from", "From", "date"),
    ("date_to", "to", "To", "date"),
];

/// Custom actions among the hints. The list of all of them is a page of its own.
const CUSTOM_HINTS_MAX: usize = 50;
/// Values of each field among the hints, and how long one may be.
const RECENT_HINTS_MAX: usize = 12;
const RECENT_BYTES_MAX: usize = 80;
/// Events that are looked at for them, and their bytes; the last may be as large as a body.
const RECENT_EVENTS: usize = 50;
const RECENT_EVENTS_BYTES: usize = 128 << 10;
/// Bytes of events on a page.
const PAGE_BYTES: usize = 1 << 20;

const PERIODS: [(&str, &str); 3] = [("24 h", "24h"), ("7 days", "7d"), ("30 days", "30d")];

pub(crate) struct QueryBar {
    /// The terms that hold, each once.
    pub kept: String,
    /// What is in the field: terms that are wrong stay, to be corrected.
    pub typed: String,
    pub wrong: Vec<Wrong>,
    pub chips: Vec<Chip>,
    pub periods: Vec<Period>,
    pub hints: Vec<String>,
    pub query: Query,
}

/// A term that is not applied, why, and what it may mean.
pub(crate) struct Wrong {
    pub term: String,
    pub problem: String,
    pub meanings: Vec<(String, String)>,
}

/// A term, and the page without it.
pub(crate) struct Chip {
    pub text: String,
    pub is_excluded: bool,
    pub without: String,
}

/// The same search over the last so many hours or days.
pub(crate) struct Period {
    pub label: &'static str,
    pub href: String,
    pub is_current: bool,
}

impl QueryBar {
    /// `page` gives the address of the page with another search.
    pub(crate) async fn read(
        app: &Dashboard,
        place: &Place,
        text: &str,
        page: impl Fn(&str) -> String,
    ) -> Result<QueryBar, Problem> {
        let (query, wrong) = Query::read(text);
        let joined = |terms: Vec<&str>| terms.join(" ");
        let kept = joined(query.terms.iter().map(|term| &text[term.at.clone()]).collect());
        let typed = joined(wrong.iter().map(|error| &text[error.term.clone()]).collect());
        let chip = |term: &Term| Chip {
            text: visible(&text[term.at.clone()]),
            is_excluded: term.is_excluded,
            without: page(&without(text, |at| *at == term.at)),
        };
        let period = |(label, last): (&'static str, &str)| {
            let last = format!("last:{last}");
            let is_current = query.terms.iter().any(|term| text[term.at.clone()] == last);
            Period { label, href: page(&narrowed(&kept, "last", &last)), is_current }
        };
        let correct = |error: ParseError| {
            let replaced = |term: &str| {
                let others = without(text, |at| *at == error.term);
                page(format!("{others} {term}").trim())
            };
            let meanings = error.meanings.iter().map(|term| (visible(term), replaced(term)));
            Wrong {
                term: visible(&text[error.term.clone()]),
                meanings: meanings.collect(),
                problem: visible(&error.problem),
            }
        };
        Ok(QueryBar {
            chips: query.terms.iter().map(chip).collect(),
            // A link would lose what was typed and could not be understood.
            periods: PERIODS.into_iter().filter(|_| wrong.is_empty()).map(period).collect(),
            hints: hints(app, place).await?,
            wrong: wrong.into_iter().map(correct).collect(),
            kept,
            typed,
            query,
        })
    }

    /// Values of these events can be typed next: each once, those of the newest first.
    pub(crate) fn hint_at(&mut self, events: &[StoredEvent]) {
        let values = |of: fn(&StoredEvent) -> Option<&str>| {
            let mut found: Vec<String> = Vec::new();
            for value in events.iter().filter_map(of).filter_map(json::decode) {
                let can_be_typed =
                    !value.is_empty() && value.len() <= RECENT_BYTES_MAX && visible(&value) == value;
                if can_be_typed && found.len() < RECENT_HINTS_MAX && !found.contains(&value) {
                    found.push(value);
                }
            }
            found
        };
        let recent = [
            ("actor", values(|event| event.text.fields().actor_id)),
            ("resource", values(|event| event.text.fields().resource)),
            ("action", values(|event| Some(event.text.fields().action))),
        ];
        for (field, values) in recent {
            for hint in values.iter().map(|value| term(field, value)) {
                if !self.hints.contains(&hint) {
                    self.hints.push(hint);
                }
            }
        }
    }

    pub(crate) fn fields(&self) -> Vec<(&'static str, &'static str)> {
        fields().collect()
    }

    /// What the search asks for, without what it asks for it: for records of what was looked at.
    pub(crate) fn asked_for(&self) -> Vec<String> {
        let mut names: Vec<String> = self.query.terms.iter().map(|term| term.condition.field()).collect();
        names.iter_mut().filter(|name| name.starts_with("meta.")).for_each(|name| name.truncate(4));
        names.sort();
        names.dedup();
        names
    }

    /// The filters of the API that ask for the same, and whether that is all of it.
    pub(crate) fn exact(&self) -> (Vec<(String, String)>, bool) {
        let mut filters: Vec<(String, String)> = Vec::new();
        for term in self.query.terms.iter().filter(|term| !term.is_excluded) {
            let day = |ms: u64| ms.is_multiple_of(DAY_MS).then(|| iso_ms(ms)[..10].to_owned());
            let value = match &term.condition {
                Condition::Field(_, Pattern::Is(value)) => Some(value.clone()),
                Condition::From(ms) => day(*ms),
                Condition::Until(ms) => ms.checked_sub(DAY_MS).and_then(day),
                _ => None,
            };
            let name = FORM.iter().find(|(_, field, ..)| *field == term.condition.field());
            if let (Some((name, ..)), Some(value)) = (name, value) {
                filters.push(((*name).to_owned(), value));
            }
        }
        // Alternatives of one field are none of the API's.
        let is_alone = |name: &str| filters.iter().filter(|(known, _)| known == name).count() == 1;
        let filters: Vec<_> = filters.iter().filter(|(name, _)| is_alone(name)).cloned().collect();
        let is_all = filters.len() == self.query.terms.len();
        (filters, is_all)
    }
}

/// The search of a request, for what follows a list.
pub(crate) fn plan_of(asked: &Asked, now_ms: u64) -> Result<Plan, Problem> {
    let text = asked.query_value(NAME).unwrap_or_default();
    let wrong = |_| Reject::InvalidParam { name: NAME.into(), problem: "is not a search" };
    // What is not part of the query must not be taken for one that filters nothing.
    if let Some((name, ..)) = FORM.iter().find(|(name, ..)| asked.query_value(name).is_some()) {
        return Err(Reject::InvalidParam { name: (*name).into(), problem: "must be a term of q" }.into());
    }
    Ok(Plan::new(&Query::parse(&text).map_err(wrong)?, now_ms))
}

/// The terms of a text but for these, also those that are wrong.
fn without(text: &str, left_out: impl Fn(&std::ops::Range<usize>) -> bool) -> String {
    let (query, wrong) = Query::read(text);
    let mut all: Vec<_> = query.terms.into_iter().map(|term| term.at).collect();
    all.extend(wrong.into_iter().map(|error| error.term));
    all.sort_by_key(|at| at.start);
    all.into_iter().filter(|at| !left_out(at)).map(|at| text[at].to_owned()).collect::<Vec<_>>().join(" ")
}

/// The search with this term in place of those about the same field: a list by a value is a part of the list.
pub(crate) fn narrowed(text: &str, field: &str, term: &str) -> String {
    let rest = rest_of(text, field);
    if rest.is_empty() { term.to_owned() } else { format!("{rest} {term}") }
}

/// What a term about this field is added to.
pub(crate) fn rest_of(text: &str, field: &str) -> String {
    let is_replaced = |known: &str| match field {
        "last" => matches!(known, "last" | "from" | "to"),
        "from" | "to" => known == field || known == "last",
        _ => known == field,
    };
    let terms = Query::read(text).0.terms.into_iter();
    let replaced: Vec<_> = terms
        .filter(|term| !term.is_excluded && is_replaced(&term.condition.field()))
        .map(|term| term.at)
        .collect();
    without(text, |at| replaced.contains(at))
}

/// Parameters with one query in place of everything that filters, and whether they were so already.
pub(crate) fn one_query(given: &[(String, String)]) -> (Vec<(String, String)>, bool) {
    let texts = given.iter().filter(|(name, _)| name == NAME).map(|(_, value)| value.trim());
    let mut text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    for (name, field, ..) in FORM {
        for (_, value) in given.iter().filter(|(known, value)| known == name && !value.is_empty()) {
            text = narrowed(&text, field, &term(field, value));
        }
    }
    let is_filter = |name: &str| name == NAME || FORM.iter().any(|(known, ..)| *known == name);
    let kept = given.iter().filter(|(name, value)| !value.is_empty() && !is_filter(name)).cloned();
    let query = (!text.is_empty()).then(|| (NAME.to_owned(), text));
    let one: Vec<_> = kept.chain(query).collect();
    let is_one = one.len() == given.len() && given.iter().all(|pair| one.contains(pair));
    (one, is_one)
}

/// A term that asks for exactly this value, as it would be typed.
pub(crate) fn term(field: &str, value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "\"\\*<>".contains(c));
    if is_plain {
        format!("{field}:{value}")
    } else {
        format!("{field}:\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Actions, and what can be missing.
async fn hints(app: &Dashboard, place: &Place) -> Result<Vec<String>, Problem> {
    let custom = app.service.control.actions(place.tenant.id).await?;
    let catalog = Catalog::builtin();
    let core = catalog.entries.iter().filter(|entry| !entry.gated).map(|entry| entry.action.as_str());
    let custom = custom.iter().map(|action| action.action.as_str()).take(CUSTOM_HINTS_MAX);
    let actions = core.chain(custom).map(|action| term("action", action));
    let missing = ["actor", "resource", "severity", "ip"].map(|field| term("missing", field));
    Ok(missing.into_iter().chain(actions).collect())
}

/// The newest events that the membership shows, for hints.
pub(crate) async fn recent(
    app: &Dashboard,
    chain: ChainId,
    grants: &Grants,
) -> Result<Vec<StoredEvent>, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let filter = Filter { from_ms: grants.from_ms, until_ms: grants.until_ms, ..Filter::default() };
    let list = List { filter, before_seq: None, limit: RECENT_EVENTS, bytes_max: RECENT_EVENTS_BYTES };
    Ok(app.service.store.list(chain, list).await?.items)
}

/// Events that a search finds, in what the membership grants.
pub(crate) async fn find(
    app: &Dashboard,
    chain: ChainId,
    plan: Plan,
    before_seq: Option<u64>,
    grants: &Grants,
    rows: usize,
) -> Result<Found, Problem> {
    // One of an organisation has its second of a core at a time; others of it wait.
    let _turn = if plan.is_empty() { None } else { Some(app.searches.acquire(chain.tenant_id).await) };
    let _place = app.reads.acquire(chain.tenant_id).await;
    let budget = Budget { rows, bytes: PAGE_BYTES, work: app.config.search };
    let plan = Arc::new(plan.within(grants));
    Ok(search::run(&*app.service.store, chain, &plan, before_seq, budget).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_field_of_a_form_becomes_a_term_of_one_query_and_empty_ones_leave() {
        let given = pairs(&[
            ("q", "action:a.* -actor:x last:7d"),
            ("q", ""),
            ("action", "user.login"),
            ("actor_id", "a \"b\""),
            ("resource", ""),
            ("date_from", "2026-11-01"),
            ("date_to", ""),
            ("columns", "time"),
        ]);
        let (one, is_one) = one_query(&given);
        let query = r#"-actor:x action:user.login actor:"a \"b\"" from:2026-11-01"#;
        assert_eq!((one.clone(), is_one), (pairs(&[("columns", "time"), ("q", query)]), false));
        assert_eq!(one_query(&one), (one.clone(), true), "once is enough");
        let two = pairs(&[("q", "actor:a"), ("q", " login ")]);
        assert_eq!(one_query(&two).0, pairs(&[("q", "actor:a login")]));
        assert_eq!(one_query(&pairs(&[("q", "x"), ("foo", "1")])).0, pairs(&[("foo", "1"), ("q", "x")]));
    }

    #[test]
    fn a_value_narrows_the_list_and_what_is_wrong_stays_to_be_corrected() {
        assert_eq!(narrowed("actor:a actor:b login", "actor", "actor:b"), "login actor:b");
        assert_eq!(
            narrowed("severity:>=warning -severity:x", "severity", "severity:info"),
            "-severity:x severity:info"
        );
        assert_eq!(narrowed("from:2026-01-01 to:2026-02-01 a", "last", "last:7d"), "a last:7d");
        assert_eq!(
            narrowed("last:7d to:2026-02-01", "from", "from:2026-01-01"),
            "to:2026-02-01 from:2026-01-01"
        );
        assert_eq!(narrowed("actr:x actor:a", "actor", "actor:b"), "actr:x actor:b");
    }
}
