//! One event: what is sealed, what is not, and its place in the chain.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, VARY};
use axum::response::{Html, IntoResponse, Response};
use sealog_core::canonical;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Ulid};
use sealog_core::query::Filter;
use sealog_core::reject::Reject;
use sealog_core::time::iso_ms;
use sealog_core::verify::Item;
use sealog_service::records::system_chain::actions;
use sealog_store::pool::Lane;
use sealog_store::{Range, StoreError};
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::layout::{Current, Shell};
use crate::pages::context::Context;
use crate::pages::found::within;
use crate::pages::published::{self, Newest};
use crate::pages::{copy_as, query_bar};
use crate::problem::Problem;
use crate::request::{Asked, query_encoded, rendered};
use crate::text::{beginning, clock_ms, indented, moment, number, of_json, visible};
use crate::views;
use sealog_service::evidence::hidden::is_hidden;

/// Most of `metadata`, and of the hashed text, that stands in the page. The whole text is a file.
const SHOWN_BYTES_MAX: usize = 16 << 10;
/// A command line that every shell takes.
const LINE_BYTES_MAX: usize = 4 << 10;
/// For three neighbours, of which each may be as large as a body.
const AROUND_BYTES_MAX: usize = 1 << 20;

#[derive(Template)]
#[template(path = "pages/event.html", blocks = ["event"])]
struct Page<'a> {
    shell: Shell<'a>,
    /// Beside the list, which has a heading of its own.
    is_part: bool,
    events: String,
    log_id: String,
    permalink: String,
    seq: String,
    title: String,
    moment: String,
    iso: String,
    timestamp_ms: u64,
    tenant_id: String,
    schema_version: u32,
    action: Value,
    description: &'static str,
    actor: Option<Value>,
    resource: Option<Value>,
    metadata: Option<Shown>,
    enriched: Vec<(&'static str, String)>,
    chain: Vec<Link>,
    is_linked: bool,
    hash: String,
    recomputes: bool,
    /// Characters that nobody sees are written out: a mark can turn the order of a whole line around.
    hashed: Shown,
    has_hidden: bool,
    hashed_bytes: String,
    hashed_href: String,
    shell_line: String,
    /// Whether the signed log has it: in words, and where the proof is.
    published: Option<(String, Option<String>)>,
    context: Context,
    /// A verification of the events around it, for those who may.
    verify: Option<String>,
    /// What can be taken along, each by its name.
    copies: Vec<(&'static str, String)>,
    has_json: bool,
}

/// A value, and the lists of the events that have it and of those that do not.
struct Value {
    text: String,
    only: String,
    without: String,
}

struct Shown {
    text: String,
    is_whole: bool,
}

/// An event of the chain: this one or a neighbour.
struct Link {
    seq: String,
    href: Option<String>,
    time: String,
    action: String,
    hash: String,
    prev_hash: String,
    is_here: bool,
    /// Whether its `prev_hash` is the hash of the one before it, where that one is shown.
    follows: Option<bool>,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let reading = app.reads.acquire(asked.place().tenant.id).await;
    let (chain, event) = find(&app, &asked).await?;
    let around = around(&app, &asked, chain, &event).await?;
    let context = Context::read(&app, &asked, chain, &event).await?;
    let published = published(&app, &asked, chain, &event).await;
    let neighbours = around.iter().map(|event| event.sealed.chain_seq);
    // What waits for a record must not keep others from reading.
    drop(reading);
    seal(&app, &asked, chain, &event, context.seqs.iter().copied().chain(neighbours).collect()).await?;
    let bytes = event.text.as_str().len();
    // An event can have two megabytes, and this looks at each of them several times.
    let page = {
        let (app, asked) = (Arc::clone(&app), Arc::clone(&asked));
        move || {
            let page = Page { published, ..page(&app, &asked, &event, &around, context) };
            if page.is_part { rendered(&page.as_event()) } else { rendered(&page) }
        }
    };
    let text = app.service.store.pool().run(Lane::Compute, chain, bytes, page).await;
    match text.map_err(|_| StoreError::Closing)? {
        Ok(text) => Ok(([(VARY, "HX-Request")], Html(text)).into_response()),
        Err(error) => Err(sealog_service::people::sign_in::Failed::from(error.to_string()).into()),
    }
}

/// The exact text whose SHA-256 is the event's hash, as a file.
pub(crate) async fn hashed(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let reading = app.reads.acquire(asked.place().tenant.id).await;
    let (chain, event) = find(&app, &asked).await?;
    // What waits for a record must not keep others from reading.
    drop(reading);
    seal(&app, &asked, chain, &event, BTreeSet::new()).await?;
    Ok(file(event.sealed.log_id, "txt", preimage(&event)))
}

/// That the event is in the signed log, in the format of C2SP, as a file.
pub(crate) async fn proof(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let reading = app.reads.acquire(asked.place().tenant.id).await;
    let (chain, event) = find(&app, &asked).await?;
    let trust = published::log_of(&app, &asked, chain).ok_or(Problem::not_found())?;
    let proven = trust.prove(chain.into(), chain, &event).await.and_then(|proven| proven.file(true));
    drop(reading);
    let text = proven.map_err(published::problem)?;
    seal(&app, &asked, chain, &event, BTreeSet::new()).await?;
    Ok(file(event.sealed.log_id, "tlog-proof", text))
}

fn file(log_id: Ulid, ending: &str, text: String) -> Response {
    let name = format!("attachment; filename=\"{log_id}.{ending}\"");
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::try_from(name).expect("letters and digits"));
    response
}

async fn published(
    app: &Dashboard,
    asked: &Asked,
    chain: ChainId,
    event: &StoredEvent,
) -> Option<(String, Option<String>)> {
    let trust = published::log_of(app, asked, chain)?;
    Some(match Newest::of(trust, chain).await {
        Newest::Has(last, when) if event.sealed.chain_seq <= last => {
            let proof = format!("{}/proof.txt", asked.path);
            (format!("In the signed log, as of the snapshot of {when}."), Some(proof))
        }
        Newest::Has(..) | Newest::Nothing => {
            ("Not in the signed log yet. The next snapshot has it.".into(), None)
        }
        Newest::Unreadable => ("The signed log cannot be read at the moment.".into(), None),
    })
}

/// Missing, malformed, of another project, or outside of what the membership shows: one answer.
async fn find(app: &Dashboard, asked: &Asked) -> Result<(ChainId, StoredEvent), Problem> {
    let place = asked.place();
    let chain = place.chain_id().ok_or(Problem::not_found())?;
    let log_id = Ulid::parse(asked.parameter("log_id")).unwrap_or(Ulid(0));
    let event = app.service.store.get(chain, log_id).await?;
    let seen = within(Filter::default(), &place.membership.grants);
    let event = event.filter(|event| seen.matches(event)).ok_or(Reject::EventNotFound)?;
    Ok((chain, event))
}

/// That an auditor sees it, and which other events beside it.
async fn seal(
    app: &Dashboard,
    asked: &Asked,
    chain: ChainId,
    event: &StoredEvent,
    mut beside: BTreeSet<u64>,
) -> Result<(), Problem> {
    beside.remove(&event.sealed.chain_seq);
    let metadata = json!({
        "project_id": chain.project_id.to_string(),
        "mode": chain.mode.as_str(),
        "seqs_beside": beside,
    });
    let resource = format!("event/{}", event.sealed.log_id);
    views::seal(app, asked, &actions::EVENT_VIEWED, &resource, metadata).await
}

/// The one before and the one after, as far as they exist and the person may see them.
async fn around(
    app: &Dashboard,
    asked: &Asked,
    chain: ChainId,
    event: &StoredEvent,
) -> Result<Vec<StoredEvent>, Problem> {
    let seq = event.sealed.chain_seq;
    let seen = within(Filter::default(), &asked.place().membership.grants);
    let mut found = Vec::new();
    for at in [seq.checked_sub(1).filter(|at| *at > 0), seq.checked_add(1)].into_iter().flatten() {
        let range = Range { from: at, to: at, bytes_max: AROUND_BYTES_MAX };
        let items = app.service.store.range(chain, range).await?.items;
        found.extend(items.into_iter().filter_map(|item| match item {
            Item::Event(event) => Some(*event).filter(|event| seen.matches(event)),
            Item::Damaged { .. } => None,
        }));
    }
    Ok(found)
}

fn preimage(event: &StoredEvent) -> String {
    let sealed = &event.sealed;
    format!(
        "{}{{\"log_id\":\"{}\",\"tenant_id\":\"{}\",{}{}",
        sealed.prev_hash,
        sealed.log_id,
        event.tenant_id,
        event.text.as_str(),
        event.timestamp_ms
    )
}

fn page<'a>(
    app: &'a Dashboard,
    asked: &'a Asked,
    event: &StoredEvent,
    around: &[StoredEvent],
    context: Context,
) -> Page<'a> {
    let fields = event.text.fields();
    let sealed = &event.sealed;
    let hashed = preimage(event);
    let events = asked.path.rsplit_once('/').map_or(String::new(), |(list, _)| list.to_owned());
    let value = |field: &str, canonical: &str| {
        let term = query_bar::term(field, &sealog_core::json::decode(canonical).unwrap_or_default());
        let list = |query: &str| format!("{events}?{}={}", query_bar::NAME, query_encoded(query));
        Value { text: of_json(canonical), only: list(&term), without: list(&format!("-{term}")) }
    };
    let action = value("action", fields.action);
    let actor = fields.actor_id.map(|actor| value("actor", actor));
    let described = sealog_core::json::decode(fields.action).and_then(|name| describe(&name));
    let recomputed = canonical::hash(
        sealed.prev_hash,
        sealed.log_id,
        event.tenant_id,
        event.text.as_str(),
        event.timestamp_ms,
    );
    let chain = chain(&events, event, around);
    let title = match &actor {
        Some(actor) => format!("{} by {}", action.text, actor.text),
        None => action.text.clone(),
    };
    let permalink = permalink(asked, sealed.log_id);
    let json = json_of(event);
    Page {
        shell: Shell::new(app, asked, Some(Current::Events)),
        is_part: asked.wants_part(),
        log_id: sealed.log_id.to_string(),
        verify: asked
            .place()
            .may(Capability::Verify)
            .then(|| format!("{}/verify?around={}#new", asked.place().project_path(), sealed.chain_seq)),
        has_json: json.is_some(),
        copies: copies(app, asked, sealed.log_id, &title, &permalink, json),
        permalink,
        seq: number(sealed.chain_seq),
        title,
        moment: moment(event.timestamp_ms),
        iso: iso_ms(event.timestamp_ms),
        timestamp_ms: event.timestamp_ms,
        tenant_id: event.tenant_id.to_string(),
        schema_version: event.schema_version,
        description: described.unwrap_or(""),
        resource: fields.resource.map(|resource| value("resource", resource)),
        metadata: fields.metadata.map(metadata),
        enriched: enriched(event),
        is_linked: chain.iter().all(|link| link.follows != Some(false)),
        chain,
        hash: sealed.hash.to_string(),
        recomputes: recomputed == sealed.hash,
        hashed_bytes: number(hashed.len() as u64),
        hashed_href: format!("{}/hashed.txt", asked.path),
        shell_line: shell_line(&hashed, sealed.log_id),
        published: None,
        hashed: shown(&visible(beginning(&hashed, SHOWN_BYTES_MAX).0), hashed.len() <= SHOWN_BYTES_MAX),
        has_hidden: beginning(&hashed, SHOWN_BYTES_MAX).0.chars().any(is_hidden),
        action,
        actor,
        events,
        context,
    }
}

/// As the API gives it, with one member in a line; nothing where that is too long for a page.
fn json_of(event: &StoredEvent) -> Option<String> {
    if event.text.as_str().len() > SHOWN_BYTES_MAX {
        return None;
    }
    let mut text = Vec::new();
    event.put_json(&mut text);
    let indented = indented(&String::from_utf8(text).ok()?);
    (indented.len() <= SHOWN_BYTES_MAX).then_some(indented)
}

/// No key reads the system chain.
fn copies(
    app: &Dashboard,
    asked: &Asked,
    log_id: Ulid,
    title: &str,
    permalink: &str,
    json: Option<String>,
) -> Vec<(&'static str, String)> {
    let base_url = &app.config.base_url;
    let of_api = [
        Some(("curl", copy_as::curl_of_event(base_url, log_id))),
        copy_as::cli_of_event(base_url, log_id).map(|line| ("Command line", line)),
    ];
    let is_system = asked.place().chain.as_ref().is_some_and(|(project, _)| project.id.is_system());
    let address = format!("{}{permalink}", app.site.cookies.origin());
    let link = ("Markdown link", copy_as::markdown(title, &address));
    let of_api = of_api.into_iter().flatten().filter(|_| !is_system);
    of_api.chain([link]).chain(json.map(|json| ("JSON", json))).collect()
}

/// By the id alone; with the project, so that nobody has to look for it.
fn permalink(asked: &Asked, log_id: Ulid) -> String {
    let project = asked.place().chain.as_ref().map(|(project, _)| format!("?p={}", project.id));
    format!("/app/e/{log_id}{}", project.unwrap_or_default())
}

/// Indenting what is nested deeply makes it many times longer, so it is cut before and behind it.
fn metadata(text: &str) -> Shown {
    let (text, is_whole) = beginning(text, SHOWN_BYTES_MAX);
    let indented = indented(text);
    let (text, is_all_shown) = beginning(&indented, SHOWN_BYTES_MAX);
    shown(text, is_whole && is_all_shown)
}

fn shown(text: &str, is_whole: bool) -> Shown {
    Shown { text: text.to_owned(), is_whole }
}

fn describe(action: &str) -> Option<&'static str> {
    sealog_core::catalog::Catalog::builtin().entry(action).map(|entry| entry.description.as_str())
}

fn enriched(event: &StoredEvent) -> Vec<(&'static str, String)> {
    let values = event.annotations.values();
    let named = sealog_core::event::Annotations::NAMES.into_iter().zip(values);
    named.filter_map(|(name, value)| Some((name, visible(value?)))).collect()
}

fn chain(events: &str, event: &StoredEvent, around: &[StoredEvent]) -> Vec<Link> {
    let mut all: Vec<&StoredEvent> = around.iter().chain([event]).collect();
    all.sort_by_key(|event| event.sealed.chain_seq);
    let mut before: Option<(u64, Hash)> = Some((0, Hash::ZERO));
    let mut links = Vec::new();
    for other in all {
        let sealed = &other.sealed;
        let follows =
            before.filter(|(seq, _)| seq + 1 == sealed.chain_seq).map(|(_, hash)| hash == sealed.prev_hash);
        before = Some((sealed.chain_seq, sealed.hash));
        let is_here = sealed.chain_seq == event.sealed.chain_seq;
        links.push(Link {
            seq: number(sealed.chain_seq),
            href: (!is_here).then(|| format!("{events}/{}", sealed.log_id)),
            time: clock_ms(other.timestamp_ms),
            action: of_json(other.text.fields().action),
            hash: sealed.hash.to_string(),
            prev_hash: sealed.prev_hash.to_string(),
            is_here,
            follows,
        });
    }
    links
}

/// What gives the same hash in any shell, without Sealog.
fn shell_line(hashed: &str, log_id: Ulid) -> String {
    // A shell that is told of a quote by a quote; and text that a terminal would take for commands goes by
    // the file.
    let is_plain = hashed.len() <= LINE_BYTES_MAX && visible(hashed) == hashed;
    if is_plain {
        format!("printf '%s' {} | sha256sum", copy_as::quoted(hashed))
    } else {
        format!("sha256sum {log_id}.txt")
    }
}
