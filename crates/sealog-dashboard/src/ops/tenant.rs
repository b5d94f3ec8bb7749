//! One tenant: its plan, what it uses of it, and its projects. Plan, trial, billing and rates are changed
//! here, and a tenant is closed here at the end of its contract.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{ListPage, Project, Tenant};
use sealog_core::id::{ProjectId, TenantId, Uuid};
use sealog_core::time::{Month, iso_ms};
use sealog_service::people::admin::close::{CloseInput, OPEN_CASES};
use sealog_service::people::admin::fields::rate;
use sealog_service::people::admin::projects::ProjectUpdate;
use sealog_service::people::admin::tenants::TenantUpdate;
use sealog_service::people::admin::{Actor, AdminError, FieldError};

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use super::tenants::Billing;
use crate::gate::of_control;
use crate::problem::{Problem, of_admin};
use crate::request::{html, html_with, see_other};
use crate::text::{day, number, visible};

/// Projects of one page. Newer ones are on the next.
const PROJECTS_ON_PAGE: usize = 50;
/// More are not counted.
const PROJECTS_COUNTED_MAX: usize = 1000;

#[derive(Template)]
#[template(path = "ops/tenant.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    id: String,
    name: String,
    created: String,
    billing: Billing,
    month: String,
    used: String,
    quota: Option<Quota>,
    rate: String,
    projects_count: String,
    plans: Vec<Plan>,
    /// The plan that it has is not in the configuration.
    unknown_plan: Option<String>,
    is_billed: bool,
    trial: String,
    own_rate: String,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
    notice: Option<&'static str>,
    plan_error: Option<String>,
    trial_error: Option<String>,
    rate_error: Option<String>,
    project_error: Option<String>,
    /// The day, if it was.
    closed: Option<String>,
    reason: String,
    close_error: Option<String>,
    /// Whether the form asks to close it in spite of open cases.
    has_open_cases: bool,
}

struct Quota {
    most: u64,
    value: u64,
    high: u64,
    most_text: String,
}

struct Plan {
    name: String,
    is_chosen: bool,
}

struct Row {
    id: String,
    name: String,
    rate: String,
    created: String,
}

impl<'a> Page<'a> {
    async fn new(console: &'a Console, asked: &'a OpsAsked) -> Result<Page<'a>, Problem> {
        let tenant = find(console, asked).await?;
        let here = format!("/ops/tenants/{}", tenant.id);
        let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let after = after.transpose()?;
        let administration = &console.service.control;
        let list = async |after, limit| {
            administration.projects(tenant.id, ListPage { after, limit }).await.map_err(of_control)
        };
        let count = list(None, PROJECTS_COUNTED_MAX + 1).await?.len();
        // One more than is shown tells whether there are others.
        let projects = list(after, PROJECTS_ON_PAGE + 1).await?;
        let shown = &projects[..projects.len().min(PROJECTS_ON_PAGE)];
        let last = shown.last().filter(|_| projects.len() > PROJECTS_ON_PAGE);
        let month = Month::of(console.service.world.now_ms());
        let used = console.service.store.usage(tenant.id, month).await?;
        let plan = console.service.admin.plan(&tenant.plan);
        let most = plan.and_then(|plan| plan.events_per_month);
        let rate = tenant.rate_limit_rps.or(plan.map(|plan| plan.requests_per_s));
        let known = console.service.admin.plans().iter();
        let closed_at_ms = administration.closed_at_ms(tenant.id).await.map_err(of_control)?;
        Ok(Page {
            shell: Shell::new(console, asked, Current::Tenants),
            id: tenant.id.to_string(),
            name: visible(&tenant.name),
            created: day(tenant.created_at_ms),
            billing: Billing::of(&tenant, console.service.world.now_ms()),
            month: month.to_string(),
            used: number(used),
            quota: most.map(|most| Quota {
                most,
                value: used.min(most),
                high: most / 5 * 4,
                most_text: number(most),
            }),
            rate: match rate {
                None | Some(0) => "not limited".into(),
                Some(rate) => format!("{} requests per second", number(u64::from(rate))),
            },
            projects_count: match count {
                more if more > PROJECTS_COUNTED_MAX => {
                    format!("more than {}", number(PROJECTS_COUNTED_MAX as u64))
                }
                count => number(count as u64),
            },
            // One that is not in the configuration stays until another one is chosen.
            plans: (plan.is_none().then_some(&tenant.plan))
                .into_iter()
                .chain(known.map(|plan| &plan.name))
                .map(|name| Plan { name: name.clone(), is_chosen: *name == tenant.plan })
                .collect(),
            unknown_plan: plan.is_none().then(|| visible(&tenant.plan)),
            is_billed: tenant.billing.billing_active,
            trial: trial_day(&tenant),
            own_rate: tenant.rate_limit_rps.map(|rate| rate.to_string()).unwrap_or_default(),
            rows: shown.iter().map(row).collect(),
            next: last.map(|project| format!("{here}?after={}", project.id)),
            first: after.map(|_| here.clone()),
            here,
            notice: None,
            plan_error: None,
            trial_error: None,
            rate_error: None,
            project_error: None,
            closed: closed_at_ms.map(day),
            reason: String::new(),
            close_error: None,
            has_open_cases: false,
        })
    }
}

fn row(project: &Project) -> Row {
    Row {
        id: project.id.to_string(),
        name: visible(&project.name),
        rate: project.rate_limit_rps.map(|rate| rate.to_string()).unwrap_or_default(),
        created: day(project.created_at_ms),
    }
}

async fn find(console: &Console, asked: &OpsAsked) -> Result<Tenant, Problem> {
    let id = Uuid::parse(asked.parameter("tenant")).map(TenantId).ok_or(Problem::not_found())?;
    let tenant = console.service.control.tenant(id).await.map_err(of_control)?;
    tenant.ok_or(Problem::not_found())
}

/// `2026-11-30`, as a field for a day has it.
fn trial_day(tenant: &Tenant) -> String {
    tenant.billing.trial_ends_at_ms.map(|ends| iso_ms(ends)[..10].to_owned()).unwrap_or_default()
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("plan") => Some("Saved, and recorded in the tenant's system log."),
        Some("closed") => Some("Closed, and recorded in the tenant's system log."),
        Some("closing") => Some("Closed. Some keys or members are left: close it again to end them, too."),
        Some("rate") => Some("Rate saved, and recorded in the tenant's system log."),
        _ => None,
    };
    Ok(html(&Page { notice, ..Page::new(&console, &asked).await? }))
}

pub(super) async fn change_plan(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let tenant = find(&console, &asked).await?;
    let (plan, trial) = (asked.field("plan"), asked.field("trial").trim());
    let trial_ends_at = match trial {
        // The time of a day that was left as it is stays.
        same if same == trial_day(&tenant) => None,
        "" => Some(None),
        day => Some(Some(format!("{day}T00:00:00Z"))),
    };
    let update = TenantUpdate {
        // One that is not in the configuration any more stays until another one is chosen.
        plan: (plan != tenant.plan).then(|| plan.to_owned()),
        billing_active: Some(asked.field("billing") == "active"),
        trial_ends_at,
        ..TenantUpdate::default()
    };
    let error = match console.service.admin.update_tenant(Actor::Console(asked.id()), tenant.id, update).await
    {
        Ok(_) => return Ok(see_other(&format!("/ops/tenants/{}?done=plan", tenant.id))),
        Err(AdminError::Field(error)) => error,
        Err(error) => return Err(of_admin(error)),
    };
    let page = Page::new(&console, &asked).await?;
    let FieldError { field, problem } = error;
    let plans =
        page.plans.iter().map(|known| Plan { name: known.name.clone(), is_chosen: known.name == plan });
    let mut page = Page {
        plans: plans.collect(),
        is_billed: asked.field("billing") == "active",
        trial: trial.to_owned(),
        ..page
    };
    match &*field {
        "plan" => page.plan_error = Some(format!("It {problem}.")),
        _ => page.trial_error = Some("Enter a date, such as 2026-01-31.".into()),
    }
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

/// Nothing goes back to the rate of the plan, or of the tenant.
fn given_rate(asked: &OpsAsked) -> Result<Option<u32>, FieldError> {
    match asked.field("rate").trim() {
        "" => Ok(None),
        text => rate("rate", text.parse().ok()).map(Some),
    }
}

const NO_RATE: &str =
    "Enter a whole number of requests per second, 0 for no limit, or leave it empty for the plan's rate.";

pub(super) async fn change_rate(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let tenant = find(&console, &asked).await?;
    let Ok(rate_limit_rps) = given_rate(&asked) else {
        let page = Page::new(&console, &asked).await?;
        let own_rate = asked.field("rate").to_owned();
        let page = Page { rate_error: Some(NO_RATE.into()), own_rate, ..page };
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    };
    let update = TenantUpdate { rate_limit_rps: Some(rate_limit_rps), ..TenantUpdate::default() };
    let changed = console.service.admin.update_tenant(Actor::Console(asked.id()), tenant.id, update).await;
    changed.map_err(of_admin)?;
    Ok(see_other(&format!("/ops/tenants/{}?done=rate", tenant.id)))
}

pub(super) async fn change_project_rate(
    console: Arc<Console>,
    asked: Arc<OpsAsked>,
) -> Result<Response, Problem> {
    let tenant = find(&console, &asked).await?;
    let id = Uuid::parse(asked.field("project")).map(ProjectId).ok_or(Problem::not_found())?;
    let project = console.service.control.project(id).await.map_err(of_control)?;
    let project = project.filter(|project| project.tenant_id == tenant.id).ok_or(Problem::not_found())?;
    let Ok(rate_limit_rps) = given_rate(&asked) else {
        let mut page = Page::new(&console, &asked).await?;
        page.project_error = Some(format!("Rate of {}: {NO_RATE}", visible(&project.name)));
        for row in page.rows.iter_mut().filter(|row| row.id == id.to_string()) {
            row.rate = asked.field("rate").to_owned();
        }
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    };
    let update = ProjectUpdate { rate_limit_rps: Some(rate_limit_rps), ..ProjectUpdate::default() };
    console.service.admin.update_project(Actor::Console(asked.id()), id, update).await.map_err(of_admin)?;
    Ok(see_other(&format!("/ops/tenants/{}?done=rate", tenant.id)))
}

/// The name is asked for, so that no click closes a tenant. Open cases are a second question, which only a
/// tenant with some is asked.
pub(super) async fn close(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let tenant = find(&console, &asked).await?;
    let input = CloseInput {
        name: asked.field("name").to_owned(),
        reason: asked.field("reason").to_owned(),
        even_with_open_cases: asked.field("open_cases") == "close",
    };
    let error = match console.service.admin.close_tenant(Actor::Console(asked.id()), tenant.id, input).await {
        Ok(closed) => {
            let done = if closed.is_done { "closed" } else { "closing" };
            return Ok(see_other(&format!("/ops/tenants/{}?done={done}", tenant.id)));
        }
        Err(AdminError::Field(error)) => error,
        Err(error) => return Err(of_admin(error)),
    };
    let FieldError { field, problem } = error;
    let close_error = match &*field {
        "name" => "Enter the name of this tenant.".to_owned(),
        OPEN_CASES => format!("Open cases {problem}."),
        _ => "Enter a reason of at most 255 characters.".to_owned(),
    };
    let page = Page {
        close_error: Some(close_error),
        reason: asked.field("reason").to_owned(),
        has_open_cases: field == OPEN_CASES,
        ..Page::new(&console, &asked).await?
    };
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}
