//! Intake: a request comes in, and the clock begins.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::CaseError;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_intake::{intake_fields, intake_input, scope_fields, scope_input};
use crate::pages::form::{Field, Kind, put_error};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};

#[derive(Template)]
#[template(path = "pages/new_case.html")]
struct Page<'a> {
    shell: Shell<'a>,
    list: String,
    intake: Vec<Field>,
    scope: Vec<Field>,
    note: Vec<Field>,
    error: Option<String>,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let is_form = !asked.field("regime").is_empty();
        let note = if is_form { asked.field("note") } else { "Request entered." };
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            list: format!("/app/o/{}/cases", asked.place().tenant.id),
            intake: intake_fields(app, asked, None).await?,
            scope: scope_fields(asked, None, is_form),
            note: vec![
                Field::new("note", "Note", Kind::Text, note)
                    .required()
                    .hint("Required for every step. Stays in the case; the system log records its digest."),
            ],
            error: None,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked).await?))
}

pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (intake, scope) = (intake_input(&asked), scope_input(&asked));
    let person_id = asked.person().person.id;
    let opened =
        app.service.cases.open(person_id, place.tenant.id, &intake, &scope, asked.field("note")).await;
    let problem = match opened {
        Ok(case) => {
            let list = format!("/app/o/{}/cases", place.tenant.id);
            return Ok(see_other(&format!("{list}/{}?done=opened", case.id.0)));
        }
        Err(CaseError::Field(wrong)) => wrong,
        Err(CaseError::Store(error)) => return Err(of_control(error)),
        Err(CaseError::Refused(_) | CaseError::Stale { .. } | CaseError::Missing) => {
            return Err(Problem::not_found());
        }
    };
    let mut page = Page::new(&app, &asked).await?;
    let fields = page.intake.iter_mut().chain(&mut page.scope).chain(&mut page.note);
    let mut is_put = false;
    for field in fields {
        is_put |= put_error(std::slice::from_mut(field), &problem.field, &problem.problem);
    }
    page.error = Some(if is_put { "Not saved. Fix the fields below.".into() } else { problem.to_string() });
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}
