//! Chains that have lost their last events, and the form that lets one go on. It cannot be taken back, so it
//! is typed.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_service::people::admin::{Actor, AdminError};
use sealog_service::people::ops::LostChain;
use sealog_store::StoreError;
use sealog_store::loss::{Loss, REASON_SCALARS_MAX};

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{html, html_with, see_other};
use crate::text::{number, visible};

#[derive(Template)]
#[template(path = "ops/losses.html")]
struct Page<'a> {
    shell: Shell<'a>,
    rows: Vec<Row>,
    /// Losses that have no row.
    left_out: usize,
    notice: Option<String>,
}

struct Row {
    href: String,
    tenant: String,
    tenant_href: String,
    project: String,
    mode: &'static str,
    last: String,
    lost: String,
    recorded_hash: String,
    project_id: String,
}

impl Row {
    fn new(lost: &LostChain) -> Row {
        let ChainId { tenant_id, project_id, mode } = lost.chain;
        Row {
            href: format!("/ops/losses/{tenant_id}/{project_id}/{}", mode.as_str()),
            tenant: visible(&lost.tenant.name),
            tenant_href: format!("/ops/tenants/{tenant_id}"),
            project: visible(name(lost)),
            mode: mode.as_str(),
            last: number(lost.head.durable.chain_seq),
            lost: what(&lost.loss),
            recorded_hash: lost.loss.recorded_hash.to_string(),
            project_id: project_id.to_string(),
        }
    }
}

/// What has to be typed.
fn name(lost: &LostChain) -> &str {
    lost.project.as_deref().unwrap_or("System log")
}

fn what(loss: &Loss) -> String {
    let first = number(loss.lost_from);
    match loss.lost_to {
        Some(last) if last == loss.lost_from => format!("event {first}"),
        Some(last) => {
            format!("events {first} to {} ({} events)", number(last), number(last - loss.lost_from + 1))
        }
        None => format!("possibly events from {first} on; the number is unknown"),
    }
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let (lost, all) = console.service.ops_desk.losses().await.map_err(of_admin)?;
    let seq = asked.query_value("accepted").and_then(|seq| seq.parse().ok());
    let notice = seq.map(|seq| {
        format!("Loss accepted as event {} of the chain. The chain accepts events again.", number(seq))
    });
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::Losses),
        rows: lost.iter().map(Row::new).collect(),
        left_out: all - lost.len(),
        notice,
    }))
}

#[derive(Template)]
#[template(path = "ops/loss.html")]
struct OnePage<'a> {
    shell: Shell<'a>,
    lost: Row,
    reason: &'a str,
    confirmed: &'a str,
    reason_max: usize,
    error: Option<&'static str>,
    reason_error: Option<&'static str>,
    confirm_error: Option<&'static str>,
}

fn chain(asked: &OpsAsked) -> Result<ChainId, Problem> {
    let id = |name| Uuid::parse(asked.parameter(name)).ok_or(Problem::not_found());
    let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == asked.parameter("mode"));
    Ok(ChainId {
        tenant_id: TenantId(id("tenant")?),
        project_id: ProjectId(id("project")?),
        mode: mode.ok_or(Problem::not_found())?,
    })
}

/// One that was accepted is like one that never was.
async fn find(console: &Console, asked: &OpsAsked) -> Result<LostChain, Problem> {
    console.service.ops_desk.loss(chain(asked)?).await.map_err(of_admin)?.ok_or(Problem::not_found())
}

impl<'a> OnePage<'a> {
    fn new(console: &'a Console, asked: &'a OpsAsked, lost: &LostChain) -> OnePage<'a> {
        OnePage {
            shell: Shell::new(console, asked, Current::Losses),
            lost: Row::new(lost),
            reason: asked.field("reason"),
            confirmed: asked.field("name"),
            reason_max: REASON_SCALARS_MAX,
            error: None,
            reason_error: None,
            confirm_error: None,
        }
    }
}

pub(super) async fn show_one(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let lost = find(&console, &asked).await?;
    Ok(html(&OnePage::new(&console, &asked, &lost)))
}

pub(super) async fn accept(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let lost = find(&console, &asked).await?;
    let page = OnePage::new(&console, &asked, &lost);
    let wrong = |page: OnePage<'_>| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    // A browser sends line breaks as two characters.
    let reason = page.reason.replace("\r\n", "\n");
    if reason.trim().is_empty() || reason.trim().chars().count() > REASON_SCALARS_MAX {
        let problem = "Enter why the events are lost and why you accept it, in at most 1,000 characters.";
        return wrong(OnePage { reason_error: Some(problem), ..page });
    }
    if page.confirmed.trim() != name(&lost).trim() {
        let problem = "The name does not match. The loss was not accepted.";
        return wrong(OnePage { confirm_error: Some(problem), ..page });
    }
    match console.service.ops_desk.accept_loss(Actor::Console(asked.id()), lost.chain, &reason).await {
        Ok((receipt, _)) => Ok(see_other(&format!("/ops/losses?accepted={}", receipt.first_seq))),
        Err(AdminError::Store(StoreError::Refused(_))) => {
            let problem = "The store rejected it: this chain no longer has a proven loss. The system log still records your request.";
            wrong(OnePage { error: Some(problem), ..page })
        }
        Err(error) => Err(of_admin(error)),
    }
}
