//! What means the person in events, and where to look for it.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::words::Named;
use sealog_cases::{CaseError, IdentifierInput};
use sealog_control::{Case, IdentifierKind};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case::notice;
use crate::pages::case_frame::{Frame, Tab, find, seen};
use crate::pages::case_intake::{scope_fields, scope_input};
use crate::pages::form::{Field, Kind, choices, put_error};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::visible;

#[derive(Template)]
#[template(path = "pages/case_identifiers.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    rows: Vec<Row>,
    fields: Vec<Field>,
    scope: Vec<Field>,
}

struct Row {
    at: usize,
    kind: &'static str,
    value: String,
    source: String,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let kinds = choices(IdentifierKind::ALL, IdentifierKind::as_str, Named::name, asked.field("kind"));
        let fields = vec![
            Field::new("kind", "Field", Kind::One(kinds), ""),
            Field::new("path", "Path", Kind::Line, asked.field("path"))
                .hint("Only for a metadata path, such as customer.email"),
            Field::new("value", "Value", Kind::Line, asked.field("value")).required(),
            Field::new("source", "Source", Kind::Line, asked.field("source"))
                .required()
                .hint("Where you know from that it is this person."),
        ];
        let is_scope = asked.path.ends_with("/scope");
        let mut scope = scope_fields(asked, Some(&case.scope), is_scope);
        let note = if is_scope { asked.field("note") } else { "" };
        scope.push(Field::new("note", "Note", Kind::Text, note).required().in_form("scope"));
        let row = |(at, known): (usize, &sealog_control::Identifier)| {
            let path = known.path.as_ref().map_or(String::new(), |path| format!("{} = ", visible(path)));
            Row {
                at,
                kind: known.kind.name(),
                value: format!("{path}{}", visible(&known.value)),
                source: visible(&known.source),
            }
        };
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            frame: Frame::new(app, asked, case, Tab::Identifiers).await?,
            rows: case.identifiers.iter().enumerate().map(row).collect(),
            fields,
            scope,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identifiers").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    page.frame.notice = notice(&asked, &case);
    Ok(html(&page))
}

async fn answer(app: &Dashboard, asked: &Asked, done: Result<Case, CaseError>) -> Result<Response, Problem> {
    let error = match done {
        Ok(case) => {
            let here = format!("/app/o/{}/cases/{}/identifiers", case.tenant_id, case.id.0);
            return Ok(see_other(&format!("{here}?done=saved")));
        }
        Err(error) => error,
    };
    let is_stale = matches!(error, CaseError::Stale { .. });
    let case = find(app, asked, "identifiers").await?;
    let mut page = Page::new(app, asked, &case).await?;
    if let Some((field, problem)) = page.frame.refuse(app, error).await? {
        let is_put =
            put_error(&mut page.fields, &field, &problem) || put_error(&mut page.scope, &field, &problem);
        if !is_put {
            page.frame.error = Some(format!("{field} {problem}."));
        }
    }
    let status = if is_stale { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
    Ok(html_with(status, &page))
}

pub(crate) async fn add(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identifiers").await?;
    let text = |name: &str| asked.field(name).to_owned();
    let input = IdentifierInput {
        kind: text("kind"),
        path: text("path"),
        value: text("value"),
        source: text("source"),
    };
    answer(&app, &asked, app.service.cases.add_identifier(seen(&asked, &case), &input).await).await
}

pub(crate) async fn remove(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identifiers").await?;
    let at = asked.field("identifier").parse().unwrap_or(usize::MAX);
    answer(&app, &asked, app.service.cases.remove_identifier(seen(&asked, &case), at).await).await
}

pub(crate) async fn set_scope(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "identifiers").await?;
    let done =
        app.service.cases.set_scope(seen(&asked, &case), &scope_input(&asked), asked.field("note")).await;
    answer(&app, &asked, done).await
}
