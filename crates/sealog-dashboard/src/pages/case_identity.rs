//! Who asks: how that was shown, and whether it was enough. Disclosure is locked until it is.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::CaseError;
use sealog_cases::words::Named;
use sealog_control::{Case, IdentityMethod, IdentityOutcome};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case::notice;
use crate::pages::case_frame::{Frame, Tab, find, name_of, names, seen};
use crate::pages::form::{Field, Kind, choices, put_error};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::moment;

#[derive(Template)]
#[template(path = "pages/case_identity.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    is_confirmed: bool,
    facts: Vec<(&'static str, String)>,
    fields: Vec<Field>,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let frame = Frame::new(app, asked, case, Tab::Identity).await?;
        let names = names(app, case, &[]).await?;
        let facts = case.identity.map_or_else(Vec::new, |check| {
            vec![
                ("Outcome", check.outcome.name().to_owned()),
                ("Method", check.method.name().to_owned()),
                ("Checked by", name_of(&names, Some(check.person_id))),
                ("When", moment(check.at_ms)),
            ]
        });
        let methods =
            choices(IdentityMethod::ALL, IdentityMethod::as_str, Named::name, asked.field("method"));
        let outcomes =
            choices(IdentityOutcome::ALL, IdentityOutcome::as_str, Named::name, asked.field("outcome"));
        let fields = vec![
            Field::new("method", "Method", Kind::One(methods), "")
                .hint("Look at a document, but do not keep it."),
            Field::new("outcome", "Outcome", Kind::One(outcomes), ""),
            Field::new("note", "Note", Kind::Text, asked.field("note")).required().in_form("identity"),
        ];
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            frame,
            is_confirmed: case.is_identity_confirmed(),
            facts,
            fields,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identity").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    page.frame.notice = notice(&asked, &case);
    Ok(html(&page))
}

pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identity").await?;
    let (method, outcome, note) = (asked.field("method"), asked.field("outcome"), asked.field("note"));
    let error = match app.service.cases.check_identity(seen(&asked, &case), method, outcome, note).await {
        Ok(_) => return Ok(see_other(&format!("{}?done=saved", asked.path))),
        Err(error) => error,
    };
    let is_stale = matches!(error, CaseError::Stale { .. });
    let case = find(&app, &asked, "identity").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    if let Some((field, problem)) = page.frame.refuse(&app, error).await?
        && !put_error(&mut page.fields, &field, &problem)
    {
        page.frame.error = Some(format!("{field} {problem}."));
    }
    let status = if is_stale { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
    Ok(html_with(status, &page))
}
