//! Events of a project and mode, newest first, with one query.

use std::borrow::Cow;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::query::{Filter, ListQuery, encode_cursor};
use sealog_service::evidence::search::Plan;
use sealog_service::evidence::search::term::{Condition, Named, Term};
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::layout::{Current, Shell};
use crate::pages::columns::{self, Columns};
use crate::pages::copy_as;
use crate::pages::event_row::{Links, Row, with};
use crate::pages::found::{Found, find, within};
use crate::pages::query_bar::{self, QueryBar};
use crate::pages::saved_views;
use crate::pages::trail::{self, Trail};
use crate::problem::Problem;
use crate::request::{Asked, Place, encoded, html_with, query_text, see_other};
use crate::text::{day, number, visible};
use crate::views;

#[derive(Template)]
#[template(path = "pages/events.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    here: String,
    bar: QueryBar,
    rows: Vec<Line>,
    older: Option<String>,
    newer: Option<String>,
    is_first: bool,
    columns: Columns,
    /// What forms send along.
    kept: Vec<(String, String)>,
    views: Vec<saved_views::Row>,
    save_view: String,
    /// The form of exports with the same query, for those who may export.
    export: Option<String>,
    /// Where selected events become part of a case, for those who work on cases.
    add_to_case: Option<String>,
    /// The stream of what comes behind this page, on the page that begins with the newest event.
    tail: Option<String>,
    /// How far back was looked without finding a whole page.
    looked_to: Option<String>,
    window: Option<String>,
    curl: String,
    /// The same for the command line, where a terminal takes the filters.
    cli: Option<String>,
    /// The API can ask for all of it.
    is_exact: bool,
    send: String,
    mode: &'static str,
    is_empty_chain: bool,
    error: Option<String>,
}

impl Page<'_> {
    fn form(&self) -> [(&'static str, &'static str, &'static str, &'static str); 5] {
        query_bar::FORM
    }

    fn is_filtered(&self) -> bool {
        !self.bar.chips.is_empty()
    }
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
    let here = place.events_path();
    let (given, is_one) = query_bar::one_query(&asked.query_pairs());
    if !is_one {
        // The address has one query, whatever a form or a link has sent.
        let page = if given.is_empty() { here } else { format!("{here}?{}", query_text(&given)) };
        return Ok(see_other(&page));
    }
    let given: Vec<_> = Columns::in_place(given).into_iter().filter(|(name, _)| name != "after").collect();
    let others: Vec<_> =
        given.iter().filter(|(name, _)| name == "cursor" || !is_known(name)).cloned().collect();
    let (before_seq, error) = match ListQuery::parse(&query_text(&others), chain) {
        Ok(query) => (query.before_seq, None),
        Err(reject) => (None, Some(reject.to_string())),
    };
    let text = given.iter().find(|(name, _)| name == query_bar::NAME).map_or("", |(_, value)| value);
    let mut bar = QueryBar::read(&app, place, text, |q| with(&here, &given, query_bar::NAME, q)).await?;
    let grants = &place.membership.grants;
    if let Some(log_id) = named(&bar)
        && let Some(event) = app.service.store.get(chain, log_id).await?
        && within(Filter::default(), grants).matches(&event)
    {
        return Ok(see_other(&format!("{here}/{log_id}")));
    }
    let trail = Trail::of(&given);
    let plan = Plan::new(&bar.query, app.service.world.now_ms());
    let is_unfiltered = plan.is_empty();
    let found = find(&app, chain, plan, before_seq, grants).await?;
    if let Some(event) = found.events.iter().find(|event| is_named(&bar, text, event)) {
        return Ok(see_other(&format!("{here}/{}", event.sealed.log_id)));
    }
    if place.role().rules().seals_views {
        let seqs: Vec<u64> = found.events.iter().map(|event| event.sealed.chain_seq).collect();
        let metadata = json!({
            "project_id": project.id.to_string(),
            "mode": mode.as_str(),
            // Not the values: they are about those whom the events are about.
            "filters": bar.asked_for(),
            "first_seq": seqs.last(),
            "last_seq": seqs.first(),
        });
        let resource = format!("project/{}", project.id);
        views::seal(&app, &asked, &actions::EVENTS_VIEWED, &resource, metadata).await?;
    }
    bar.hint_at(&recent(&app, &asked, chain, &found, is_unfiltered && before_seq.is_none()).await?);
    let has_error = error.is_some() || !bar.wrong.is_empty();
    let (filters, is_exact) = bar.exact();
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Events)),
        project: visible(&project.name),
        older: found.resume.map(|seq| at(&here, &given, chain, Some(seq), &trail.older(before_seq))),
        newer: trail.newer().map(|(before_seq, trail)| at(&here, &given, chain, before_seq, &trail)),
        columns: Columns::of(&given),
        views: saved_views::of(&app, &asked).await?,
        save_view: format!("{}/views?query={}", place.project_path(), encoded(&asked.query)),
        export: export(place, &bar.kept),
        add_to_case: (chain.mode == Mode::Live && place.may(Capability::ManageCases))
            .then(|| format!("/app/o/{}/cases/add?project={}", place.tenant.id, project.id)),
        tail: tail(place, &given, &found).filter(|_| !has_error),
        looked_to: found.looked_to(),
        is_first: before_seq.is_none(),
        window: window(grants),
        is_empty_chain: found.events.is_empty() && found.head_seq == Some(0) && !has_error,
        rows: rows(&given, before_seq, is_unfiltered, grants, &found),
        curl: copy_as::curl_of_list(&app.config.base_url, &filters),
        cli: copy_as::cli_of_list(&app.config.base_url, &filters),
        is_exact,
        kept: given.iter().filter(|(name, _)| name == columns::PARAMETER).cloned().collect(),
        send: send(&app, *mode),
        mode: mode.as_str(),
        bar,
        here,
        error,
    };
    Ok(html_with(if has_error { StatusCode::BAD_REQUEST } else { StatusCode::OK }, &page))
}

/// The event that the whole search names by its id.
fn named(bar: &QueryBar) -> Option<Ulid> {
    match bar.query.terms.as_slice() {
        [Term { is_excluded: false, condition: Condition::Named(Named::LogId(log_id), _), .. }]
            if bar.wrong.is_empty() =>
        {
            Some(*log_id)
        }
        _ => None,
    }
}

/// Whether it is the one event that the whole search names by its hash or its number.
fn is_named(bar: &QueryBar, text: &str, event: &StoredEvent) -> bool {
    match bar.query.terms.as_slice() {
        [Term { is_excluded: false, condition, .. }] if bar.wrong.is_empty() => match condition {
            Condition::Named(Named::Hash(hash), _) => event.sealed.hash == *hash,
            Condition::Seq(from, to) => from == to && text.starts_with('#'),
            _ => false,
        },
        _ => false,
    }
}

/// Parameters that say how a list is shown, and not what is on it.
fn is_of_view(name: &str) -> bool {
    matches!(name, columns::PARAMETER | trail::PARAMETER | "cursor" | "after")
}

fn is_known(name: &str) -> bool {
    name == query_bar::NAME || is_of_view(name)
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
fn export(place: &Place, query: &str) -> Option<String> {
    let path = format!("{}/exports", place.project_path());
    place.may(Capability::Export).then(|| with(&path, &[], query_bar::NAME, query))
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
    before_seq: Option<u64>,
    is_unfiltered: bool,
    grants: &Grants,
    found: &Found,
) -> Vec<Line> {
    let mut lines = Vec::new();
    // Numbers have no gaps where nothing is left out. The window of an auditor leaves out the end, which may
    // begin below the cursor.
    let links = Links::new(given);
    let newest = before_seq.or(found.head_seq.map(|seq| seq + 1));
    let mut next = newest.filter(|_| is_unfiltered && grants.until_ms.is_none());
    for event in &found.events {
        let seq = event.sealed.chain_seq;
        if let Some(next) = next.filter(|next| seq + 1 < *next) {
            lines.push(Line::Gap(gap(seq + 1, next - 1)));
        }
        next = is_unfiltered.then_some(seq);
        lines.push(Line::Event(Box::new(Row::new(&links, event))));
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

/// The first event of an empty chain.
fn send(app: &Dashboard, mode: Mode) -> String {
    format!(
        "curl -sS -i {}/v1/events \\\n  -H 'Authorization: Bearer at_{}_…' \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"action\":\"user.login\",\"actor_id\":\"usr_42\"}}'",
        app.config.base_url,
        mode.as_str()
    )
}
