//! The query bar: what was typed, term by term, and what could be typed next. It is a field of the form
//! around it.

use std::sync::Arc;

use sealog_control::Grants;
use sealog_core::catalog::Catalog;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::json;
use sealog_core::query::{Filter, ListQuery};
use sealog_core::reject::Reject;
use sealog_service::evidence::search::parse::fields;
use sealog_service::evidence::search::term::Condition;
use sealog_service::evidence::search::{self, Budget, Found, Plan, Query};
use sealog_store::List;

use crate::app::Dashboard;
use crate::problem::Problem;
use crate::request::{Asked, Place};
use crate::text::visible;

/// The parameter that holds a search.
pub(crate) const NAME: &str = "q";

/// Custom actions among the hints. The list of all of them is a page of its own.
const CUSTOM_HINTS_MAX: usize = 50;
/// Each hint repeats what was typed before it; behind a longer text there are none.
const HINTED_BYTES_MAX: usize = 100;

/// Values of each field among the hints, and how long one may be.
const RECENT_HINTS_MAX: usize = 12;
const RECENT_BYTES_MAX: usize = 80;
/// Events that are looked at for them, and their bytes; the last may be as large as a body.
const RECENT_EVENTS: usize = 50;
const RECENT_EVENTS_BYTES: usize = 128 << 10;

const PERIODS: [(&str, &str); 3] = [("24 hours", "24h"), ("7 days", "7d"), ("30 days", "30d")];

pub(crate) struct QueryBar {
    pub text: String,
    pub error: Option<String>,
    pub chips: Vec<Chip>,
    pub periods: Vec<Period>,
    /// What stands before each hint.
    pub before: String,
    pub hints: Vec<String>,
    query: Query,
}

/// A term, and the page without it.
pub(crate) struct Chip {
    pub text: String,
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
        given: &[(String, String)],
        page: impl Fn(&str) -> String,
    ) -> Result<QueryBar, Problem> {
        let text = given.iter().find(|(name, _)| name == NAME).map_or("", |(_, value)| value.trim());
        let (query, error) = match Query::parse(text) {
            Ok(query) => (query, None),
            Err(error) => (Query::default(), Some(error.explain(text))),
        };
        let without = |left_out: &dyn Fn(usize) -> bool| {
            let terms = query.terms.iter().enumerate().filter(|(at, _)| !left_out(*at));
            terms.map(|(_, term)| &text[term.at.clone()]).collect::<Vec<_>>().join(" ")
        };
        let chip = |(at, term): (usize, &search::term::Term)| Chip {
            text: visible(&text[term.at.clone()]),
            without: page(&without(&|other| other == at)),
        };
        let is_time = |condition: &Condition| {
            matches!(condition, Condition::From(_) | Condition::Until(_) | Condition::Last(_))
        };
        let timeless = without(&|at| is_time(&query.terms[at].condition));
        let period = |(label, last): (&'static str, &str)| {
            let last = format!("last:{last}");
            let is_current = query.terms.iter().any(|term| text[term.at.clone()] == last);
            Period { label, href: page(format!("{timeless} {last}").trim()), is_current }
        };
        let before = if text.is_empty() { String::new() } else { format!("{text} ") };
        Ok(QueryBar {
            chips: query.terms.iter().enumerate().map(chip).collect(),
            // A link would lose what was typed and could not be understood.
            periods: PERIODS.into_iter().filter(|_| error.is_none()).map(period).collect(),
            hints: hints(app, place, &before).await?,
            before,
            text: text.to_owned(),
            error,
            query,
        })
    }

    /// Values of these events can be typed next: each once, those of the newest first.
    pub(crate) fn hint_at(&mut self, events: &[StoredEvent]) {
        if self.before.len() > HINTED_BYTES_MAX {
            return;
        }
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
            let hints: Vec<String> =
                values.iter().map(|value| format!("{}{}", self.before, term(field, value))).collect();
            self.hints
                .extend(hints.into_iter().filter(|hint| !self.hints.contains(hint)).collect::<Vec<_>>());
        }
    }

    pub(crate) fn fields(&self) -> Vec<(&'static str, &'static str)> {
        fields().collect()
    }

    /// Nothing, where nothing was typed.
    pub(crate) fn plan(&self, now_ms: u64) -> Option<Plan> {
        Some(Plan::new(&self.query, now_ms)).filter(|plan| !plan.is_empty())
    }
}

/// The search of a request, for what follows a list. Nothing, where nothing was typed.
pub(crate) fn plan_of(asked: &Asked, now_ms: u64) -> Result<Option<Plan>, Problem> {
    let text = asked.query_value(NAME).unwrap_or_default();
    let wrong = |_| Reject::InvalidParam { name: NAME.into(), problem: "is not a search" };
    let query = Query::parse(text.trim()).map_err(wrong)?;
    Ok(Some(Plan::new(&query, now_ms)).filter(|plan| !plan.is_empty()))
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

/// What can follow, as whole texts: browsers compare a hint with all that was typed.
async fn hints(app: &Dashboard, place: &Place, before: &str) -> Result<Vec<String>, Problem> {
    if before.len() > HINTED_BYTES_MAX {
        return Ok(Vec::new());
    }
    let custom = app.service.control.actions(place.tenant.id).await?;
    let catalog = Catalog::builtin();
    let core = catalog.entries.iter().filter(|entry| !entry.gated).map(|entry| entry.action.as_str());
    let custom = custom.iter().map(|action| action.action.as_str()).take(CUSTOM_HINTS_MAX);
    let fields = fields().map(|(field, _)| format!("{before}{field}"));
    let actions = core.chain(custom).map(|action| format!("{before}{}", term("action", action)));
    Ok(fields.chain(actions).collect())
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

/// Events that a search finds, with the filters of the form beside it, in what the membership grants.
pub(crate) async fn find(
    app: &Dashboard,
    chain: ChainId,
    plan: Plan,
    form: &ListQuery,
    grants: &Grants,
    rows: usize,
) -> Result<Found, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let plan = Arc::new(plan.and(&form.filter).within(grants));
    Ok(search::run(&*app.service.store, chain, &plan, form.before_seq, Budget::of_page(rows)).await?)
}
