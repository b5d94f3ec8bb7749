//! One verification: how far it is, what it has found, and a report of it.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, VARY};
use axum::response::Response;
use sealog_core::id::{ChainId, Uuid};
use sealog_core::query::Filter;
use sealog_service::evidence::verification::{Found, Neighbour, Run, RunEnd, report};
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::found::within;
use crate::pages::verification::{ResultShown, chain, path, seen};
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::{Asked, html, see_other};
use crate::text::{moment, number, of_json, visible};
use crate::views;

#[derive(Template)]
#[template(path = "pages/verification_run.html", blocks = ["state"])]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    mode: &'static str,
    list: String,
    here: String,
    range: String,
    started: String,
    is_scheduled: bool,
    total: String,
    checked: String,
    percent: u64,
    /// Events a second, and how long it will take, once that can be told.
    pace: Option<(String, String)>,
    took: Option<String>,
    is_running: bool,
    result: ResultShown,
    first_hash: Option<String>,
    last_hash: Option<String>,
    found: Option<FoundShown>,
}

struct FoundShown {
    at: String,
    hash: Option<String>,
    explanation: String,
    expected: Option<String>,
    found: Option<String>,
    field: &'static str,
    before: Option<Side>,
    failing: Option<Side>,
    before_is_withheld: bool,
    failing_is_withheld: bool,
}

/// An event beside the break.
struct Side {
    seq: String,
    href: Option<String>,
    time: String,
    action: Option<String>,
    actor: Option<String>,
    prev_hash: String,
    hash: String,
    recomputed: String,
    recomputes: bool,
    /// Its `prev_hash` is not the hash of the other one.
    is_unlinked: bool,
}

/// Of this chain, and of nothing that the person may not see; anything else is like one that does not exist.
/// What lies beside it and is not for the person is withheld here, from the page and from both reports.
async fn find(app: &Dashboard, asked: &Asked) -> Result<(ChainId, Run), Problem> {
    let chain = chain(asked)?;
    let id = Uuid::parse(asked.parameter("run")).ok_or(Problem::not_found())?;
    let run = app.service.verifications.run(chain, id).await?.ok_or(Problem::not_found())?;
    let grants = &asked.place().membership.grants;
    if !is_window(grants) {
        return Ok((chain, run));
    }
    let seen = seen(app, chain, grants).await?;
    if run.from < seen.first || run.to > seen.last {
        return Err(Problem::not_found());
    }
    Ok((chain, run.within(&seen)))
}

async fn seal(app: &Dashboard, asked: &Asked, run: &Run) -> Result<(), Problem> {
    let metadata = json!({
        "page": "verification",
        "project_id": run.chain.project_id.to_string(),
        "mode": run.chain.mode.as_str(),
    });
    let resource = format!("verification/{}", run.id);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, metadata).await
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (chain, run) = find(&app, &asked).await?;
    // The page asks how far it is every second, and was recorded when it was opened; what was found is
    // another view.
    if !asked.wants_part() || run.end.is_some() {
        seal(&app, &asked, &run).await?;
    }
    let found = match &run.end {
        Some(RunEnd::Broken(found)) => Some(explain(&app, &asked, chain, found).await?),
        _ => None,
    };
    let list = path(chain);
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Verification)),
        project: asked.place().chain.as_ref().map(|(project, _)| visible(&project.name)).unwrap_or_default(),
        mode: chain.mode.as_str(),
        here: format!("{list}/{}", run.id),
        list,
        range: format!("#{} to #{}", number(run.from), number(run.to)),
        started: moment(run.created_at_ms),
        is_scheduled: run.person_id.is_none(),
        total: number(run.total()),
        checked: number(run.progress.checked),
        percent: run.percent(),
        pace: pace(&run, app.service.world.now_ms()),
        took: run
            .progress
            .begun_at_ms
            .zip(run.ended_at_ms)
            .map(|(begun, ended)| duration(ended.saturating_sub(begun))),
        is_running: run.end.is_none(),
        result: ResultShown::of(&run),
        first_hash: run.progress.first.map(|event| event.hash.to_string()),
        last_hash: run.progress.last.map(|event| event.hash.to_string()),
        found,
    };
    let mut response = if asked.wants_part() { html(&page.as_state()) } else { html(&page) };
    response.headers_mut().append(VARY, HeaderValue::from_static("HX-Request"));
    Ok(response)
}

pub(crate) async fn cancel(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (chain, run) = find(&app, &asked).await?;
    app.service.verifications.cancel(asked.person().person.id, &run).await?;
    Ok(see_other(&format!("{}/{}", path(chain), run.id)))
}

pub(crate) async fn report_json(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (_, run) = find(&app, &asked).await?;
    seal(&app, &asked, &run).await?;
    let text = format!("{:#}\n", report::to_json(&run));
    Ok(file(text, "application/json", &format!("sealog-verification-{}.json", run.id)))
}

pub(crate) async fn report_text(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (_, run) = find(&app, &asked).await?;
    seal(&app, &asked, &run).await?;
    Ok(file(
        report::to_text(&run),
        "text/plain; charset=utf-8",
        &format!("sealog-verification-{}.txt", run.id),
    ))
}

/// `name` has nothing but letters, digits, dots and hyphens.
pub(crate) fn file(content: impl Into<Body>, content_type: &'static str, name: &str) -> Response {
    let mut response = Response::new(content.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    headers.insert(CONTENT_DISPOSITION, disposition.expect("letters, digits, dots and hyphens"));
    response
}

async fn explain(
    app: &Dashboard,
    asked: &Asked,
    chain: ChainId,
    found: &Found,
) -> Result<FoundShown, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let before_hash = found.before.map(|event| event.hash);
    let before = match found.before {
        Some(event) => Some(side(app, asked, chain, event).await?),
        None => None,
    };
    let failing = match found.failing {
        Some(event) => {
            let is_unlinked = before_hash.is_some_and(|hash| hash != event.prev_hash);
            Some(Side { is_unlinked, ..side(app, asked, chain, event).await? })
        }
        None => None,
    };
    Ok(FoundShown {
        at: number(found.at),
        hash: found.hash.map(|hash| hash.to_string()),
        explanation: sentence(found),
        expected: found.expected.map(|hash| hash.to_string()),
        found: found.found.map(|hash| hash.to_string()),
        field: match found.reason.as_str() {
            "link" | "gap" => "prev_hash",
            _ => "hash",
        },
        before,
        failing,
        before_is_withheld: found.before_is_withheld,
        failing_is_withheld: found.failing_is_withheld,
    })
}

/// The most frequent reasons as one sentence about the event; the others behind its number.
fn sentence(found: &Found) -> String {
    let at = number(found.at);
    match found.reason.as_str() {
        "hash" => {
            format!("Event #{at} was changed after it was sealed: its content no longer matches its hash.")
        }
        "link" => format!(
            "Event #{at} does not link to the previous event: an event was removed, inserted or replaced here."
        ),
        _ => format!("Event #{at}: {}.", found.explain()),
    }
}

/// With its contents, if it can still be read and the person may see it.
async fn side(app: &Dashboard, asked: &Asked, chain: ChainId, event: Neighbour) -> Result<Side, Problem> {
    let seen = within(Filter::default(), &asked.place().membership.grants);
    // One that the store finds damaged has nothing to show.
    let stored = app.service.store.get(chain, event.log_id).await.unwrap_or_default();
    let stored = stored.filter(|stored| seen.matches(stored));
    let fields = stored.as_ref().map(|stored| stored.text.fields());
    let events = format!("/app/p/{}/{}/events", chain.project_id, chain.mode.as_str());
    Ok(Side {
        seq: number(event.chain_seq),
        href: stored.as_ref().map(|_| format!("{events}/{}", event.log_id)),
        time: moment(event.timestamp_ms),
        action: fields.map(|fields| of_json(fields.action)),
        actor: fields.and_then(|fields| fields.actor_id).map(of_json),
        prev_hash: event.prev_hash.to_string(),
        hash: event.hash.to_string(),
        recomputed: event.recomputed.to_string(),
        recomputes: event.recomputed == event.hash,
        is_unlinked: false,
    })
}

fn pace(run: &Run, now_ms: u64) -> Option<(String, String)> {
    let busy_ms = now_ms.saturating_sub(run.progress.begun_at_ms?);
    let per_s = run.progress.checked.checked_mul(1000)?.checked_div(busy_ms).filter(|per_s| *per_s > 0)?;
    let left = run.to.saturating_sub(run.progress.next).saturating_add(1);
    Some((number(per_s), duration(left / per_s * 1000)))
}

fn duration(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}
