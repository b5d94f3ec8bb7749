//! Events of a project and mode, newest first, with the filters that the API has.

use std::borrow::Cow;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, VARY};
use axum::response::Response;
use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode};
use sealog_core::query::{Filter, ListQuery, encode_cursor};
use sealog_core::reject::Reject;
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::layout::{Current, Shell};
use crate::pages::columns::{self, Columns};
use crate::pages::copy_as;
use crate::pages::event_row::{Row, with};
use crate::pages::found::{Found, ROWS, ends, find};
use crate::pages::query_bar::{self, QueryBar};
use crate::pages::saved_views;
use crate::pages::trail::{self, Trail};
use crate::problem::Problem;
use crate::request::{Asked, Place, encoded, html, html_with, query_text};
use crate::text::{day, number, visible};
use crate::views;

/// The filters of the API, in the order of the form.
const FIELDS: [(&str, &str, &str); 5] = [
    ("action", "Action", "text"),
    ("actor_id", "Actor", "text"),
    ("resource", "Resource", "text"),
    ("date_from", "From", "date"),
    ("date_to", "To", "date"),
];

#[derive(Template)]
#[template(path = "pages/events.html", blocks = ["list"])]
struct Page<'a> {
    shell: Shell<'a>,
    project: &'a str,
    here: String,
    bar: QueryBar,
    fields: Vec<Field>,
    chips: Vec<Chip>,
    rows: Vec<Line>,
    older: Option<String>,
    newer: Option<String>,
    is_first: bool,
    columns: Columns,
    /// What the form of columns sends along.
    kept: Vec<(String, String)>,
    views: Vec<saved_views::Row>,
    save_view: String,
    /// The form of exports with the same filters, for those who may export.
    export: Option<String>,
    /// The stream of what comes behind this page, on the page that begins with the newest event.
    tail: Option<String>,
    /// How far back was looked without finding a whole page.
    looked_to: Option<String>,
    window: Option<String>,
    curl: String,
    /// The same for the command line, where a terminal takes the filters.
    cli: Option<String>,
    send: String,
    mode: &'static str,
    is_empty_chain: bool,
    /// A filter is wrong: nothing was looked for.
    has_error: bool,
    error: Option<String>,
}

struct Field {
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    value: String,
    error: Option<String>,
}

/// A filter, and the page without it.
struct Chip {
    name: &'static str,
    value: String,
    without: String,
}

enum Line {
    Event(Box<Row>),
    /// Numbers that should be there and are not.
    Gap(String),
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (Some(chain), Some((project, mode))) = (place.chain_id(), &place.chain) else {
        return Err(Problem::not_found());
    };
    // A form sends empty fields; the API takes none.
    let given = asked.query_pairs().into_iter().filter(|(name, value)| !value.is_empty() && name != "after");
    let given = Columns::in_place(given.collect());
    let exact: Vec<_> = asked_for(&given).into_iter().filter(|(name, _)| name != query_bar::NAME).collect();
    let (parsed, error) = match ListQuery::parse(&query_text(&exact), chain) {
        Ok(query) => (query, None),
        Err(reject) => (ListQuery::default(), Some(reject)),
    };
    let here = place.events_path();
    let trail = Trail::of(&given);
    let mut bar = QueryBar::read(&app, place, &given, |q| with(&here, &given, query_bar::NAME, q)).await?;
    let has_error = error.is_some() || bar.error.is_some();
    let plan = bar.plan(app.service.world.now_ms());
    let is_unfiltered = parsed.filter == Filter::default() && plan.is_none();
    let (fields, error) = fields(&given, error);
    let found = if has_error {
        Found { events: Vec::new(), resume: None, cut: false, looked_ms: None, head_seq: None, first_seq: 1 }
    } else if let Some(plan) = plan {
        let (head_seq, first_seq) = ends(&app, chain, &parsed).await?;
        let found = query_bar::find(&app, chain, plan, &parsed, &place.membership.grants, ROWS).await?;
        Found { head_seq, first_seq, ..found.into() }
    } else {
        find(&app, chain, &parsed, &place.membership.grants).await?
    };
    if place.role().rules().seals_views && !has_error {
        let names: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
        let seqs: Vec<u64> = found.events.iter().map(|event| event.sealed.chain_seq).collect();
        let metadata = json!({
            "project_id": project.id.to_string(),
            "mode": mode.as_str(),
            // Not the values: they are about those whom the events are about.
            "filters": names,
            "first_seq": seqs.last(),
            "last_seq": seqs.first(),
        });
        let resource = format!("project/{}", project.id);
        views::seal(&app, &asked, &actions::EVENTS_VIEWED, &resource, metadata).await?;
    }
    bar.hint_at(&recent(&app, &asked, chain, &found, is_unfiltered && parsed.before_seq.is_none()).await?);
    let kept: Vec<_> = given.iter().filter(|(name, _)| !is_of_view(name)).cloned().collect();
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Events)),
        project: &project.name,
        chips: chips(&here, &given),
        older: found.resume.map(|seq| at(&here, &given, chain, Some(seq), &trail.older(parsed.before_seq))),
        newer: trail.newer().map(|(before_seq, trail)| at(&here, &given, chain, before_seq, &trail)),
        columns: Columns::of(&given),
        views: saved_views::of(&app, &asked).await?,
        save_view: format!("{}/views?query={}", place.project_path(), encoded(&asked.query)),
        export: export(place, &given),
        tail: tail(place, &given, &found).filter(|_| !has_error),
        looked_to: found.looked_to(),
        is_first: parsed.before_seq.is_none(),
        window: window(&place.membership.grants),
        is_empty_chain: found.events.is_empty() && found.head_seq == Some(0) && !has_error,
        rows: rows(&given, &parsed, is_unfiltered, &place.membership.grants, &found),
        curl: copy_as::curl_of_list(&app.config.base_url, &kept),
        cli: copy_as::cli_of_list(&app.config.base_url, &kept),
        kept,
        send: send(&app, *mode),
        mode: mode.as_str(),
        fields,
        bar,
        here,
        has_error,
        error,
    };
    let mut response = if asked.wants_part() {
        let part = page.as_list();
        html(&part)
    } else if has_error {
        html_with(StatusCode::BAD_REQUEST, &page)
    } else {
        html(&page)
    };
    response.headers_mut().append(VARY, HeaderValue::from_static("HX-Request"));
    Ok(response)
}

/// Parameters that say how a list is shown, and not what is on it.
fn is_of_view(name: &str) -> bool {
    matches!(name, columns::PARAMETER | trail::PARAMETER | "cursor" | "after")
}

/// What the API has, too.
fn asked_for(given: &[(String, String)]) -> Vec<(String, String)> {
    given.iter().filter(|(name, _)| name == "cursor" || !is_of_view(name)).cloned().collect()
}

/// The filter of a request, for what follows a list.
pub(crate) fn filter_of(asked: &Asked, chain: ChainId) -> Result<Filter, Problem> {
    let is_filter = |name: &str| !is_of_view(name) && name != query_bar::NAME;
    let given = asked.query_pairs().into_iter().filter(|(name, value)| !value.is_empty() && is_filter(name));
    Ok(ListQuery::parse(&query_text(&given.collect::<Vec<_>>()), chain)?.filter)
}

/// The page that begins here, with the way back to it.
fn at(
    here: &str,
    given: &[(String, String)],
    chain: ChainId,
    before_seq: Option<u64>,
    trail: &str,
) -> String {
    let cursor = before_seq.map_or(String::new(), |seq| encode_cursor(seq, chain));
    let page = with(here, given, "cursor", &cursor);
    let separator = if page.contains('?') { '&' } else { '?' };
    if trail.is_empty() { page } else { format!("{page}{separator}{}={trail}", trail::PARAMETER) }
}

/// An export of what is on the list.
fn export(place: &Place, given: &[(String, String)]) -> Option<String> {
    let filters: Vec<(String, String)> =
        given.iter().filter(|(name, _)| !is_of_view(name)).cloned().collect();
    let path = format!("{}/exports", place.project_path());
    place.may(Capability::Export).then(|| with(&path, &filters, "", ""))
}

/// The newest events, whose values can be typed next. An auditor is told of those alone that are on the page,
/// which are recorded as seen.
async fn recent<'f>(
    app: &Dashboard,
    asked: &Asked,
    chain: ChainId,
    found: &'f Found,
    is_newest: bool,
) -> Result<Cow<'f, [StoredEvent]>, Problem> {
    let place = asked.place();
    if is_newest || place.role().rules().seals_views {
        return Ok(Cow::Borrowed(&found.events));
    }
    query_bar::recent(app, chain, &place.membership.grants).await.map(Cow::Owned)
}

/// Whether what this person sees of the chain is recorded in the chain itself.
pub(crate) fn is_own_echo(place: &Place) -> bool {
    place.role().rules().seals_views
        && place.chain.as_ref().is_some_and(|(project, _)| project.id.is_system())
}

/// Where what comes behind the newest page is told.
fn tail(place: &Place, given: &[(String, String)], found: &Found) -> Option<String> {
    // Of the system log an auditor's live view would show its own records, each of which makes another; and
    // the end of a chain is not told to those who see it until a date.
    if is_own_echo(place) || place.membership.grants.until_ms.is_some() {
        return None;
    }
    // What came while the list was read may be on it already.
    let newest = found.events.first().map_or(0, |event| event.sealed.chain_seq);
    let head_seq = found.head_seq?.max(newest);
    let filters: Vec<(String, String)> =
        given.iter().filter(|(name, _)| name == columns::PARAMETER || !is_of_view(name)).cloned().collect();
    Some(with(&format!("{}/tail", place.project_path()), &filters, "after", &head_seq.to_string()))
}

fn window(grants: &Grants) -> Option<String> {
    let from = grants.from_ms.map(|from| format!("from {}", day(from)));
    let until = grants.until_ms.map(|until| format!("until {}", day(until.saturating_sub(1))));
    match (from, until) {
        (None, None) => None,
        (from, until) => Some([from, until].into_iter().flatten().collect::<Vec<_>>().join(" ")),
    }
}

fn rows(
    given: &[(String, String)],
    query: &ListQuery,
    is_unfiltered: bool,
    grants: &Grants,
    found: &Found,
) -> Vec<Line> {
    let mut lines = Vec::new();
    // Numbers have no gaps where nothing is left out. The window of an auditor leaves out the end, which may
    // begin below the cursor.
    let newest = query.before_seq.or(found.head_seq.map(|seq| seq + 1));
    let mut next = newest.filter(|_| is_unfiltered && grants.until_ms.is_none());
    for event in &found.events {
        let seq = event.sealed.chain_seq;
        if let Some(next) = next.filter(|next| seq + 1 < *next) {
            lines.push(Line::Gap(gap(seq + 1, next - 1)));
        }
        next = is_unfiltered.then_some(seq);
        lines.push(Line::Event(Box::new(Row::new(given, event))));
    }
    let is_end = found.resume.is_none() && grants.from_ms.is_none();
    if let Some(next) = next.filter(|next| is_end && *next > found.first_seq) {
        lines.push(Line::Gap(gap(found.first_seq, next - 1)));
    }
    lines
}

fn gap(from: u64, to: u64) -> String {
    if from == to { format!("#{}", number(from)) } else { format!("#{} to #{}", number(from), number(to)) }
}

/// What was typed stays, with what is wrong beside it.
fn fields(given: &[(String, String)], error: Option<Reject>) -> (Vec<Field>, Option<String>) {
    let wrong = error.as_ref().and_then(|reject| match reject {
        Reject::InvalidParam { name, problem } => Some((name.as_str(), *problem)),
        _ => None,
    });
    let field = |(name, label, kind): (&'static str, &'static str, &'static str)| {
        let value = given.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let error = wrong.filter(|(known, _)| *known == name).map(|(_, problem)| format!("It {problem}."));
        Field { name, label, kind, value: value.unwrap_or_default(), error }
    };
    let fields: Vec<Field> = FIELDS.into_iter().map(field).collect();
    let is_shown = fields.iter().any(|field| field.error.is_some());
    (fields, error.filter(|_| !is_shown).map(|reject| reject.to_string()))
}

fn chips(here: &str, given: &[(String, String)]) -> Vec<Chip> {
    let chip = |(name, _, _): (&'static str, &str, &str)| {
        let (_, value) = given.iter().find(|(known, _)| known == name)?;
        Some(Chip { name, value: visible(value), without: with(here, given, name, "") })
    };
    FIELDS.into_iter().filter_map(chip).collect()
}

/// The first event of an empty chain.
fn send(app: &Dashboard, mode: Mode) -> String {
    format!(
        "curl -sS -i {}/v1/events \\\n  -H 'Authorization: Bearer at_{}_…' \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"action\":\"user.login\",\"actor_id\":\"usr_42\"}}'",
        app.config.base_url,
        mode.as_str()
    )
}
