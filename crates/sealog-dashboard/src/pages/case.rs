//! A case: what came in, and its steps.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::disclosure::SearchRun;
use sealog_cases::words::Named;
use sealog_cases::{CaseError, Move};
use sealog_control::{Case, CaseState, Grants};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find, lines, seen};
use crate::pages::case_intake::{intake_fields, intake_input};
use crate::pages::form::{Field, Kind, adopt, put_error};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};

#[derive(Template)]
#[template(path = "pages/case.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    /// For those who may not change it.
    facts: Vec<(&'static str, String)>,
    fields: Vec<Field>,
    note: Vec<Field>,
    /// Receipt can be confirmed.
    may_confirm: bool,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let frame = Frame::new(app, asked, case, Tab::Intake).await?;
        // A step has a note of its own.
        let is_form = !asked.field("regime").is_empty();
        let note = if is_form { asked.field("note") } else { "" };
        let fields = if frame.may_manage { intake_fields(app, asked, Some(case)).await? } else { Vec::new() };
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            may_confirm: frame.may_manage && case.confirmed_at_ms.is_none() && case.answer.is_none(),
            frame,
            facts: facts(case),
            fields,
            note: vec![Field::new("note", "Note", Kind::Text, note).required().in_form("intake")],
        })
    }
}

fn facts(case: &Case) -> Vec<(&'static str, String)> {
    let intake = &case.intake;
    vec![
        ("Type", intake.request_type.name().to_owned()),
        ("Received", crate::text::day(intake.received_at_ms)),
        ("Channel", intake.channel.name().to_owned()),
        ("Requester", crate::text::visible(&intake.requester)),
        ("Contact", crate::text::visible(&intake.contact)),
        ("Request text", lines(&intake.wrote)),
    ]
}

const DONE: &[(&str, &str)] = &[
    ("opened", "Case opened. The clock is running."),
    ("saved", "Saved."),
    ("confirmed", "Confirmation of receipt recorded."),
];

/// What an action has come to, from the address that it led to.
pub(crate) fn notice(asked: &Asked, case: &Case) -> Option<String> {
    let done = asked.query_value("done")?;
    if done == "moved" {
        return Some(format!("Case moved to {}.", case.state.name()));
    }
    DONE.iter().find(|(name, _)| *name == done).map(|(_, text)| (*text).to_owned())
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "intake").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    page.frame.notice = notice(&asked, &case);
    Ok(html(&page))
}

/// The page with what is wrong, for a form that was refused; and what belongs beside a field.
async fn refused<'a>(
    app: &'a Dashboard,
    asked: &'a Asked,
    error: CaseError,
) -> Result<(StatusCode, Page<'a>, Option<(String, String)>), Problem> {
    let is_stale = matches!(error, CaseError::Stale { .. });
    // As it is now: a form that is sent again is made from this revision.
    let case = find(app, asked, "intake").await?;
    let mut page = Page::new(app, asked, &case).await?;
    let wrong = page.frame.refuse(app, error).await?;
    for (field, from, to) in &page.frame.changed {
        adopt(&mut page.fields, field, from, to);
    }
    let status = if is_stale { StatusCode::CONFLICT } else { StatusCode::UNPROCESSABLE_ENTITY };
    Ok((status, page, wrong))
}

pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "intake").await?;
    let saved =
        app.service.cases.set_intake(seen(&asked, &case), &intake_input(&asked), asked.field("note")).await;
    let error = match saved {
        Ok(_) => {
            return Ok(see_other(&format!("{}?done=saved", asked.path.trim_end_matches("/intake"))));
        }
        Err(error) => error,
    };
    let (status, mut page, wrong) = refused(&app, &asked, error).await?;
    if let Some((field, problem)) = wrong
        && !put_error(&mut page.fields, &field, &problem)
        && !put_error(&mut page.note, &field, &problem)
    {
        page.frame.error = Some(format!("{field} {problem}."));
    }
    Ok(html_with(status, &page))
}

/// Why what was found cannot be approved. Approval is a decision about all of it, and names the search that
/// was seen.
async fn not_ready(app: &Dashboard, asked: &Asked, case: &Case) -> Result<Option<String>, Problem> {
    if app.service.disclosures.searches(case).await?.iter().any(SearchRun::is_running) {
        let why = "A search is running. Wait until it finishes or stop it, then review the results.";
        return Ok(Some(why.to_owned()));
    }
    let Some(search) = app.service.disclosures.current_search(case).await? else { return Ok(None) };
    let review = app
        .service
        .disclosures
        .control
        .review_of(search.new.id, Grants::default())
        .await
        .map_err(of_control)?;
    if review.open > 0 {
        return Ok(Some(format!("{} events still need a decision before approval.", review.open)));
    }
    let is_seen = asked.field("search") == search.new.id.0.to_string();
    Ok((!is_seen).then(|| {
        "A newer search has finished since you opened this page. Review its results, then approve again."
            .to_owned()
    }))
}

pub(crate) async fn step(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "intake").await?;
    let text = |name: &str| asked.field(name).to_owned();
    let step = Move {
        to: text("to"),
        note: text("note"),
        extension_reason: text("extension_reason"),
        announced: text("announced"),
        ground: text("ground"),
        how: text("how"),
    };
    let not_ready = match step.to == CaseState::Approved.as_str() {
        true => not_ready(&app, &asked, &case).await?,
        false => None,
    };
    let taken = match not_ready {
        Some(why) => Err(CaseError::Refused(why)),
        None => app.service.cases.step(seen(&asked, &case), &step).await,
    };
    let error = match taken {
        Ok(_) => return Ok(see_other(&format!("{}?done=moved", asked.path.trim_end_matches("/move")))),
        Err(error) => error,
    };
    let (status, mut page, wrong) = refused(&app, &asked, error).await?;
    if let Some((field, problem)) = wrong {
        page.frame.put_move_error(&step.to, &field, &problem);
    }
    Ok(html_with(status, &page))
}

pub(crate) async fn confirm(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "intake").await?;
    let note = "Receipt was confirmed to the requester.";
    let error = match app.service.cases.confirm_receipt(seen(&asked, &case), note).await {
        Ok(_) => {
            return Ok(see_other(&format!("{}?done=confirmed", asked.path.trim_end_matches("/confirm"))));
        }
        Err(error) => error,
    };
    let (status, mut page, wrong) = refused(&app, &asked, error).await?;
    page.frame.error =
        page.frame.error.or_else(|| wrong.map(|(field, problem)| format!("{field} {problem}.")));
    Ok(html_with(status, &page))
}
