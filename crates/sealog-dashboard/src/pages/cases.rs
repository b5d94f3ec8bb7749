//! The cases of an organisation: those that are open by the day on which they are due, those that are closed
//! newest first.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_cases::clock::Calendar;
use sealog_cases::dates::dates_of;
use sealog_cases::words::{Named, case_name};
use sealog_control::{Case, CaseState, ListPage};
use sealog_core::id::Uuid;
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::may_see;
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::{day, visible};
use crate::views;

const CASES_ON_PAGE: usize = 50;
/// On the overview.
const DUE_SHOWN: usize = 5;

#[derive(Template)]
#[template(path = "pages/cases.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    may_manage: bool,
    /// Auditors have no other list.
    may_see_open: bool,
    is_closed: bool,
    rows: Vec<Row>,
    next: Option<String>,
    is_first: bool,
}

pub(crate) struct Row {
    pub href: String,
    pub name: String,
    pub requester: String,
    pub request: String,
    pub received: String,
    pub state: &'static str,
    pub due: String,
    pub left: String,
    pub is_late: bool,
    pub is_soon: bool,
}

pub(crate) fn row(list: &str, case: &Case, calendar: &Calendar, now_ms: u64) -> Row {
    let dates = dates_of(case, calendar, now_ms);
    let days = |days: i64| if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
    let left = match (case.answer, dates.days_left) {
        (Some(answer), left) if left < 0 => format!("{}, {} late", answer.outcome.name(), days(-left)),
        (Some(answer), _) => answer.outcome.name().to_owned(),
        (None, _) if dates.due.is_paused => "Paused".to_owned(),
        (None, left) if left < 0 => format!("{} overdue", days(-left)),
        (None, 0) => "Today".to_owned(),
        (None, left) => days(left),
    };
    let is_open = case.answer.is_none() && !dates.due.is_paused;
    Row {
        href: format!("{list}/{}", case.id.0),
        name: case_name(case),
        requester: visible(&case.intake.requester),
        request: format!("{}, {}", case.intake.request_type.name(), case.intake.regime.name()),
        received: day(case.intake.received_at_ms),
        state: case.state.name(),
        due: dates.due.date.strftime("%-d %b %Y").to_string(),
        left,
        is_late: dates.days_left < 0 && case.state != CaseState::Withdrawn,
        is_soon: is_open && (0..=7).contains(&dates.days_left),
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (tenant_id, sees_closed) = (place.tenant.id, place.role().rules().has_window);
    let here = format!("/app/o/{tenant_id}/cases");
    let is_closed = sees_closed || asked.query_value("closed").is_some();
    let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
    let after = after.transpose()?;
    let page = ListPage { after, limit: CASES_ON_PAGE + 1 };
    let cases = if is_closed {
        app.service.control.closed_cases(tenant_id, page)
    } else {
        app.service.control.open_cases(tenant_id, page)
    };
    let mut cases = cases.await.map_err(of_control)?;
    let are_more = cases.len() > CASES_ON_PAGE;
    cases.truncate(CASES_ON_PAGE);
    let closed = if is_closed { "closed=1&" } else { "" };
    let last = cases.last().filter(|_| are_more);
    let next = last.map(|case| format!("{here}?{closed}after={}", case.id.0));
    cases.retain(|case| may_see(place, case));
    let calendar = app.service.cases.calendar(tenant_id).await?;
    let now_ms = app.service.world.now_ms();
    let rows: Vec<Row> = cases.iter().map(|case| row(&here, case, &calendar, now_ms)).collect();
    let resource = format!("tenant/{tenant_id}");
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &resource, json!({ "page": "cases" })).await?;
    Ok(html(&Page {
        shell: Shell::new(&app, &asked, Some(Current::Cases)),
        may_manage: place.may(Capability::ManageCases),
        may_see_open: !sees_closed,
        is_closed,
        rows,
        next,
        is_first: after.is_none(),
        here,
    }))
}

/// What is due next, for the overview of those who may see it.
pub(crate) async fn due_next(app: &Dashboard, asked: &Asked) -> Result<Option<(String, Vec<Row>)>, Problem> {
    let place = asked.place();
    if !place.may(Capability::ViewCases) || place.role().rules().has_window {
        return Ok(None);
    }
    let (tenant_id, now_ms) = (place.tenant.id, app.service.world.now_ms());
    let list = format!("/app/o/{tenant_id}/cases");
    let page = ListPage { after: None, limit: DUE_SHOWN };
    let cases = app.service.control.open_cases(tenant_id, page).await.map_err(of_control)?;
    let calendar = app.service.cases.calendar(tenant_id).await?;
    let open = cases.iter().filter(|case| case.answer.is_none());
    let rows: Vec<Row> = open.map(|case| row(&list, case, &calendar, now_ms)).collect();
    Ok((!rows.is_empty()).then_some((list, rows)))
}
