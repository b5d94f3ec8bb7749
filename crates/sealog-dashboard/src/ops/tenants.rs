//! All tenants of the instance.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{ListPage, Tenant};
use sealog_core::id::{TenantId, Uuid};

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use crate::gate::of_control;
use crate::problem::Problem;
use crate::request::{encoded, html};
use crate::text::{day, visible};

/// Tenants of one page. Newer ones are on the next.
const TENANTS_ON_PAGE: usize = 50;
/// More than any name has.
const SEARCH_CHARACTERS_MAX: usize = 255;

#[derive(Template)]
#[template(path = "ops/tenants.html")]
struct Page<'a> {
    shell: Shell<'a>,
    search: String,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
}

struct Row {
    id: String,
    name: String,
    plan: String,
    billing: Billing,
    rate: Option<u32>,
    created: String,
}

/// What a tenant pays, or how long it does not have to.
pub(super) enum Billing {
    Active,
    None,
    Trial { ends: String },
    Ended { ended: String },
}

impl Billing {
    pub(super) fn of(tenant: &Tenant, now_ms: u64) -> Billing {
        match (tenant.billing.billing_active, tenant.billing.trial_ends_at_ms) {
            (true, _) => Billing::Active,
            (false, None) => Billing::None,
            (false, Some(ends)) if now_ms < ends => Billing::Trial { ends: day(ends) },
            (false, Some(ended)) => Billing::Ended { ended: day(ended) },
        }
    }
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let search = asked.query_value("search").unwrap_or_default();
    let search: String = search.trim().chars().take(SEARCH_CHARACTERS_MAX).collect();
    let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
    let after = after.transpose()?;
    let administration = &console.service.control;
    // One more than is shown tells whether there are others.
    let page = ListPage { after, limit: TENANTS_ON_PAGE + 1 };
    let found = match Uuid::parse(&search) {
        // Whoever has the id from a log line or an event.
        Some(id) => administration.tenant(TenantId(id)).await.map(|tenant| tenant.into_iter().collect()),
        None if search.is_empty() => administration.tenants(page).await,
        None => administration.tenants_like(search.clone(), page).await,
    };
    let found: Vec<Tenant> = found.map_err(of_control)?;
    let query = if search.is_empty() { String::new() } else { format!("search={}", encoded(&search)) };
    let shown = &found[..found.len().min(TENANTS_ON_PAGE)];
    let last = shown.last().filter(|_| found.len() > TENANTS_ON_PAGE);
    let now_ms = console.service.world.now_ms();
    let row = |tenant: &Tenant| Row {
        id: tenant.id.to_string(),
        name: visible(&tenant.name),
        plan: visible(&tenant.plan),
        billing: Billing::of(tenant, now_ms),
        rate: tenant.rate_limit_rps,
        created: day(tenant.created_at_ms),
    };
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::Tenants),
        rows: shown.iter().map(row).collect(),
        next: last.map(|tenant| format!("/ops/tenants?{query}&after={}", tenant.id)),
        first: after.map(|_| format!("/ops/tenants?{query}")),
        search,
    }))
}
