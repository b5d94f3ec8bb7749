//! Jobs of all tenants: what is under way, and what has come of it. An operator can stop one.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{Job, JobId, JobState, ListPage};
use sealog_core::id::{TenantId, Uuid};

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use crate::gate::of_control;
use crate::problem::{Problem, of_admin};
use crate::request::{html, see_other};
use crate::text::{moment, number, visible};

const JOBS_ON_PAGE: usize = 50;

#[derive(Template)]
#[template(path = "ops/jobs.html")]
struct Page<'a> {
    shell: Shell<'a>,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<&'static str>,
    shows_all: bool,
    notice: Option<&'static str>,
}

struct Row {
    id: String,
    kind: String,
    tenant: Option<(String, String)>,
    state: JobState,
    position: String,
    claims: String,
    created: String,
    ended: Option<String>,
    cause: Option<String>,
    is_over: bool,
}

fn row(job: &Job, names: &HashMap<TenantId, String>) -> Row {
    let tenant = job.tenant_id.map(|id| {
        let name = names.get(&id).map_or_else(|| id.to_string(), |name| visible(name));
        (format!("/ops/tenants/{id}"), name)
    });
    Row {
        id: job.id.0.to_string(),
        kind: visible(&job.kind),
        tenant,
        state: job.state,
        position: position(job.position.as_deref()),
        claims: number(job.claim),
        created: moment(job.created_at_ms),
        ended: job.ended_at_ms.map(moment),
        cause: job.cause.as_deref().map(visible),
        is_over: job.ended_at_ms.is_some(),
    }
}

/// How far it has got, where its kind says so with a number; what else a position holds may be from events.
fn position(kept: Option<&[u8]>) -> String {
    let Some(kept) = kept else { return "not started".into() };
    let number_of = |name: &str| {
        let value: serde_json::Value = serde_json::from_slice(kept).ok()?;
        value.get(name)?.as_u64()
    };
    ["next", "checked", "done", "seq", "events"]
        .into_iter()
        .find_map(|name| Some((name, number_of(name)?)))
        .map_or_else(
            || format!("kept ({} bytes)", number(kept.len() as u64)),
            |(name, at)| format!("{name} {}", number(at)),
        )
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let shows_all = asked.query_value("all").is_some();
    let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
    let after = after.transpose()?;
    let here = if shows_all { "/ops/jobs?all=1" } else { "/ops/jobs" };
    // One more than is shown tells whether there are others.
    let page = ListPage { after, limit: JOBS_ON_PAGE + 1 };
    let jobs = console.service.control.all_jobs(!shows_all, page).await.map_err(of_control)?;
    let shown = &jobs[..jobs.len().min(JOBS_ON_PAGE)];
    let last = shown.last().filter(|_| jobs.len() > JOBS_ON_PAGE);
    let mut names = HashMap::new();
    for id in shown.iter().filter_map(|job| job.tenant_id) {
        if !names.contains_key(&id) {
            let tenant = console.service.control.tenant(id).await.map_err(of_control)?;
            names.extend(tenant.map(|tenant| (id, tenant.name)));
        }
    }
    let notice = match asked.query_value("done").as_deref() {
        Some("cancel") => Some("Job cancelled. It stops at its next step."),
        Some("ended") => Some("The job had already finished."),
        _ => None,
    };
    let joint = if shows_all { '&' } else { '?' };
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::Jobs),
        rows: shown.iter().map(|job| row(job, &names)).collect(),
        next: last.map(|job| format!("{here}{joint}after={}", job.id.0)),
        first: after.map(|_| here),
        shows_all,
        notice,
    }))
}

pub(super) async fn cancel(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let id = Uuid::parse(asked.field("job")).map(JobId).ok_or(Problem::not_found())?;
    let cancelled = console.service.ops_desk.cancel_job(asked.id(), id).await.map_err(of_admin)?;
    Ok(see_other(if cancelled { "/ops/jobs?done=cancel" } else { "/ops/jobs?done=ended" }))
}
