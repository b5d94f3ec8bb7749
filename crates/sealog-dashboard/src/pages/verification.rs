//! Verification of a chain: which windows are known to be sound, a new verification, and those that there
//! were.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::Grants;
use sealog_core::id::{ChainId, Mode, Uuid};
use sealog_core::query::SeqRange;
use sealog_core::reject::Code;
use sealog_service::evidence::seqs::{first_at, last_before};
use sealog_service::evidence::verification::{Run, RunEnd, Seen, StartError, UNENDED_MAX, WHOLE_MAX};
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::published::{self, Newest};
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::strip::{self, State};
use crate::text::{day, moment, number, visible};
use crate::views;

/// Verifications on a page.
const RUNS_ON_PAGE: usize = 20;
/// Verifications from which the strip is made.
const RUNS_OF_STRIP: usize = 200;
/// Events before one, and as many behind it, that a link to it asks for.
const AROUND: u64 = 500;
/// Of a window of the strip, in units of the picture.
const CELL_WIDTH: usize = 24;

#[derive(Template)]
#[template(path = "pages/verification.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    mode: &'static str,
    here: String,
    base_url: &'a str,
    /// The ends of what the person may see; nothing if there are no events.
    range: Option<(String, String)>,
    /// Nothing where no schedule can be: in test mode.
    schedule: Option<String>,
    is_window: bool,
    /// What an auditor may see, in words.
    window: String,
    /// Events of a full window of the strip.
    cell_events: String,
    cells: Vec<CellShown>,
    width: usize,
    counts: [(&'static str, &'static str, usize); 4],
    /// What the signed log has of the chain, and the key of that log.
    log: Option<(String, String)>,
    runs: Vec<Row>,
    older: Option<String>,
    chosen: &'static str,
    from: String,
    to: String,
    from_error: Option<String>,
    to_error: Option<String>,
    error: Option<String>,
}

struct CellShown {
    href: String,
    x: usize,
    /// One letter for the style sheet.
    class: &'static str,
    label: String,
}

pub(crate) struct Row {
    pub href: String,
    pub started: String,
    pub is_scheduled: bool,
    pub range: String,
    pub checked: String,
    pub result: ResultShown,
}

/// A verification in a list; `here` is the page of its chain.
pub(crate) fn row(here: &str, run: &Run) -> Row {
    Row {
        href: format!("{here}/{}", run.id),
        started: moment(run.created_at_ms),
        is_scheduled: run.person_id.is_none(),
        range: format!("#{} to #{}", number(run.from), number(run.to)),
        checked: number(run.progress.checked),
        result: ResultShown::of(run),
    }
}

pub(crate) enum ResultShown {
    Waiting,
    Running(u64),
    Valid,
    Broken(String),
    Failed,
    Cancelled,
}

impl ResultShown {
    pub(crate) fn of(run: &Run) -> ResultShown {
        match &run.end {
            None if run.is_begun => ResultShown::Running(run.percent()),
            None => ResultShown::Waiting,
            Some(RunEnd::Valid) => ResultShown::Valid,
            Some(RunEnd::Broken(broken)) => ResultShown::Broken(number(broken.at)),
            Some(RunEnd::Failed(_)) => ResultShown::Failed,
            Some(RunEnd::Cancelled) => ResultShown::Cancelled,
        }
    }
}

/// The events of a chain that somebody may see; empty where the end is below the beginning.
pub(crate) async fn seen(app: &Dashboard, chain: ChainId, grants: &Grants) -> Result<Seen, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let head = app.service.store.head(chain).await?;
    let end = head.end().chain_seq;
    let first = match grants.from_ms {
        Some(from_ms) => first_at(&*app.service.store, chain, from_ms).await?,
        None => head.first_seq(),
    };
    let last = match grants.until_ms {
        Some(until_ms) => end.min(last_before(&*app.service.store, chain, until_ms).await?),
        None => end,
    };
    Ok(Seen { first, last, goes_on: last < end, from_ms: grants.from_ms, until_ms: grants.until_ms })
}

/// Of the pages about a chain.
pub(crate) fn chain(asked: &Asked) -> Result<ChainId, Problem> {
    asked.place().chain_id().ok_or(Problem::not_found())
}

pub(crate) fn path(chain: ChainId) -> String {
    format!("/app/p/{}/{}/verify", chain.project_id, chain.mode.as_str())
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, chain, now_ms) = (asked.place(), chain(asked)?, app.service.world.now_ms());
        let seen = seen(app, chain, &place.membership.grants).await?;
        let Seen { first, last, .. } = seen;
        let here = path(chain);
        let before = asked.query_value("before").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let mut listed = app.service.verifications.runs(chain, before.transpose()?, RUNS_ON_PAGE + 1).await?;
        let are_more = listed.len() > RUNS_ON_PAGE;
        listed.truncate(RUNS_ON_PAGE);
        let older = listed.last().filter(|_| are_more).map(|run| format!("{here}?before={}", run.id));
        let mut newest = app.service.verifications.runs(chain, None, RUNS_OF_STRIP).await?;
        let is_window = is_window(&place.membership.grants);
        // Runs that reach beyond what a person sees are like none, as their pages are.
        let is_seen = |run: &Run| !is_window || (first <= run.from && run.to <= last);
        listed.retain(is_seen);
        newest.retain(is_seen);
        let cells = strip::cells(first, last, &newest, now_ms);
        let count = |wanted: fn(&State) -> bool| cells.iter().filter(|cell| wanted(&cell.state)).count();
        let counts = [
            ("v", "Verified", count(|state| matches!(state, State::Verified(_)))),
            ("s", "Verified more than 7 days ago", count(|state| matches!(state, State::Stale(_)))),
            ("u", "Not fully checked", count(|state| matches!(state, State::Unknown))),
            ("b", "Broken", count(|state| matches!(state, State::Broken(_)))),
        ];
        let row = |run: Run| row(&here, &if is_window { run.within(&seen) } else { run });
        let given = |name: &str| {
            let typed = asked.field(name).to_owned();
            if typed.is_empty() { asked.query_value(name).unwrap_or_default() } else { typed }
        };
        // A link to an event asks for those around it, as far as they may be seen.
        let around = asked.query_value("around").and_then(|seq| seq.parse::<u64>().ok());
        let around = around.filter(|_| first <= last && asked.form.is_empty()).map(|seq| {
            let within = |seq: u64| seq.clamp(first, last).to_string();
            (within(seq.saturating_sub(AROUND)), within(seq.saturating_add(AROUND)))
        });
        let (from, to) = around.unwrap_or_else(|| (given("from"), given("to")));
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Verification)),
            project: place.chain.as_ref().map_or(String::new(), |(project, _)| visible(&project.name)),
            mode: chain.mode.as_str(),
            base_url: &app.config.base_url,
            range: (first <= last).then(|| (number(first), number(last))),
            schedule: (chain.mode == Mode::Live).then(|| schedule(app, last)),
            is_window,
            window: window(&place.membership.grants),
            cell_events: number(cells.iter().map(|cell| cell.to - cell.from + 1).max().unwrap_or(0)),
            width: cells.len() * CELL_WIDTH,
            cells: cells.iter().enumerate().map(|(at, cell)| shown(&here, at, cell)).collect(),
            counts,
            log: log(app, asked, chain).await,
            runs: listed.into_iter().map(row).collect(),
            older,
            chosen: if asked.field("range") == "window" || !from.is_empty() { "window" } else { "all" },
            from,
            to,
            from_error: None,
            to_error: None,
            error: None,
            here,
        })
    }
}

/// Nothing before the log has begun.
async fn log(app: &Dashboard, asked: &Asked, chain: ChainId) -> Option<(String, String)> {
    let trust = published::log_of(app, asked, chain)?;
    let vkey = trust.vkey().await.ok().flatten()?;
    let state = match Newest::of(trust, chain).await {
        Newest::Has(last, when) => {
            format!(
                "The signed log has #1 to #{}, as of the snapshot of {when}. The page of an event has its proof.",
                number(last)
            )
        }
        Newest::Nothing => "The signed log has nothing of this chain yet.".into(),
        Newest::Unreadable => "The signed log cannot be read at the moment.".into(),
    };
    Some((state, vkey))
}

/// `from 1 Nov 2026 until 30 Nov 2026`
fn window(grants: &Grants) -> String {
    let from = grants.from_ms.map(|from_ms| format!("from {}", day(from_ms)));
    // Until the last millisecond of the day before.
    let until = grants.until_ms.map(|until_ms| format!("until {}", day(until_ms.saturating_sub(1))));
    [from, until].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// In words.
fn schedule(app: &Dashboard, last: u64) -> String {
    match &app.verified_at() {
        None => "The operator has turned off scheduled verification.".into(),
        Some(at) if last <= WHOLE_MAX => format!("The whole chain is verified every night at {at} UTC."),
        Some(at) => {
            format!("Part of the chain is verified every night at {at} UTC, all of it every week.")
        }
    }
}

fn shown(here: &str, at: usize, cell: &strip::Cell) -> CellShown {
    let (class, state) = match cell.state {
        State::Verified(at_ms) => ("v", format!("verified {}", moment(at_ms))),
        State::Stale(at_ms) => ("s", format!("verified {}, more than 7 days ago", day(at_ms))),
        State::Unknown => ("u", "not fully checked".into()),
        State::Broken(seq) => ("b", format!("broken at #{}", number(seq))),
    };
    CellShown {
        href: format!("{here}?from={}&to={}#new", cell.from, cell.to),
        x: at * CELL_WIDTH + 1,
        class,
        label: format!("#{} to #{}: {state}", number(cell.from), number(cell.to)),
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked).await?;
    seal(&app, &asked).await?;
    Ok(html(&page))
}

/// Windows and runs are seen, also under a form that has something wrong in it.
async fn seal(app: &Dashboard, asked: &Asked) -> Result<(), Problem> {
    let chain = chain(asked)?;
    let metadata = json!({ "page": "verification", "mode": chain.mode.as_str() });
    let resource = format!("project/{}", chain.project_id);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, metadata).await
}

pub(crate) async fn start(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let chain = chain(&asked)?;
    let wrong = async |page| {
        seal(&app, &asked).await?;
        Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
    };
    let Seen { first, last, .. } = seen(&app, chain, &asked.place().membership.grants).await?;
    let range = match asked.field("range") {
        "window" => {
            let parse =
                |name| asked.field(name).trim().trim_start_matches('#').replace(',', "").parse::<u64>();
            match (parse("from"), parse("to")) {
                (Ok(from), Ok(to)) if first <= from && from <= to && from <= last => {
                    SeqRange { from, to: to.min(last) }
                }
                (from, to) => {
                    let bounds = format!("from {first} to {last}");
                    let page = Page::new(&app, &asked).await?;
                    let from_ok = from.as_ref().is_ok_and(|from| (first..=last).contains(from));
                    let from_error = (!from_ok).then(|| format!("Enter a number {bounds}."));
                    let to_ok =
                        matches!((&from, &to), (Ok(from), Ok(to)) if from <= to) || (!from_ok && to.is_ok());
                    let to_error = (!to_ok).then(|| "Enter a number that is not below the first.".to_owned());
                    return wrong(Page { from_error, to_error, ..page }).await;
                }
            }
        }
        _ => SeqRange { from: first, to: last },
    };
    match app.service.verifications.start(asked.person().person.id, chain, range).await {
        Ok(run) => Ok(see_other(&format!("{}/{}", path(chain), run.id))),
        Err(StartError::Nothing) => {
            let error = Some("There are no events to verify.".to_owned());
            wrong(Page { error, ..Page::new(&app, &asked).await? }).await
        }
        Err(StartError::TooMany) => {
            let error = Some(format!(
                "Your organisation already runs {UNENDED_MAX} verifications. Wait for one to finish, or cancel one."
            ));
            wrong(Page { error, ..Page::new(&app, &asked).await? }).await
        }
        Err(StartError::Store(error)) => {
            tracing::error!(%error, "a verification could not be started");
            Err(Problem::new(
                Code::ServerInternal,
                "Could not start the verification. Try again in a moment.",
            ))
        }
    }
}
