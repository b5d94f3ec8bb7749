//! The days off that statutory dates go by.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::CaseError;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};

#[derive(Template)]
#[template(path = "pages/case_holidays.html")]
struct Page<'a> {
    shell: Shell<'a>,
    list: String,
    holidays: String,
    error: Option<String>,
    is_saved: bool,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let tenant_id = asked.place().tenant.id;
    let calendar = app.service.cases.calendar(tenant_id).await?;
    let holidays: Vec<String> = calendar.holidays.iter().map(ToString::to_string).collect();
    Ok(html(&Page {
        shell: Shell::new(&app, &asked, Some(Current::Cases)),
        list: format!("/app/o/{tenant_id}/cases"),
        holidays: holidays.join("\n"),
        error: None,
        is_saved: asked.query_value("done").is_some(),
    }))
}

pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let tenant_id = asked.place().tenant.id;
    let text = asked.field("holidays");
    match app.service.cases.set_holidays(asked.person().person.id, tenant_id, text).await {
        Ok(()) => Ok(see_other(&format!("{}?done=1", asked.path))),
        Err(CaseError::Field(wrong)) => Ok(html_with(
            StatusCode::UNPROCESSABLE_ENTITY,
            &Page {
                shell: Shell::new(&app, &asked, Some(Current::Cases)),
                list: format!("/app/o/{tenant_id}/cases"),
                holidays: text.to_owned(),
                error: Some(format!("{}.", wrong.problem)),
                is_saved: false,
            },
        )),
        Err(CaseError::Store(error)) => Err(of_control(error)),
        Err(_) => Err(Problem::not_found()),
    }
}
