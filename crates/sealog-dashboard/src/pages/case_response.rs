//! Letters of a case: answer, refusal, extension, and the one in the package; from templates, edited,
//! printed.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::disclosure::letters::{LETTER_CHARS_MAX, Letter, NotSaved, Picked, case_name};
use sealog_cases::words::Named;
use sealog_control::{Case, CaseState, ExtensionReason, LetterKind, RefusalGround};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find, lines, name_of};
use crate::pages::case_search::names_with;
use crate::pages::form::choices;
use crate::pages::grants::Choice;
use crate::pages::verification_run::file;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, moment};

#[derive(Template)]
#[template(path = "pages/case_response.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    answer: Option<String>,
    forms: Vec<Form>,
    most: usize,
}

struct Form {
    kind: &'static str,
    label: &'static str,
    body: String,
    revision: u64,
    changed: Option<String>,
    error: Option<String>,
    is_open: bool,
    pick: Option<Pick>,
    /// What was picked, for the links of the letter.
    query: String,
}

struct Pick {
    name: &'static str,
    label: &'static str,
    options: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "pages/case_letter.html")]
struct Printed<'a> {
    shell: Shell<'a>,
    case: String,
    here: String,
    label: &'static str,
    kind: &'static str,
    body: String,
}

fn label(kind: LetterKind) -> &'static str {
    match kind {
        LetterKind::Cover => "Letter in the package",
        LetterKind::Response => "Answer",
        LetterKind::Refusal => "Refusal",
        LetterKind::Extension => "Extension",
    }
}

async fn letters(app: &Dashboard, asked: &Asked, case: &Case) -> Result<Vec<Letter>, Problem> {
    let organisation = &asked.place().tenant.name;
    let letters = app.service.disclosures.letters(case, &case_name(case), organisation, picked(asked)).await;
    letters.map_err(of_control)
}

/// What the letter of a step says before the step is recorded.
fn picked(asked: &Asked) -> Picked {
    let value = |name: &str| asked.query_value(name).unwrap_or_default();
    Picked {
        ground: RefusalGround::parse(&value("ground")),
        reason: ExtensionReason::parse(&value("reason")),
    }
}

/// The choice that a template leaves open until its step is recorded.
fn pick(asked: &Asked, case: &Case, letter: &Letter) -> Option<Pick> {
    if letter.revision > 0 {
        return None;
    }
    let picked = picked(asked);
    match letter.kind {
        LetterKind::Refusal if case.answer.is_none() => Some(Pick {
            name: "ground",
            label: "Ground",
            options: choices(
                RefusalGround::ALL,
                RefusalGround::as_str,
                Named::name,
                picked.ground.map_or("", RefusalGround::as_str),
            ),
        }),
        LetterKind::Extension if case.extension.is_none() => Some(Pick {
            name: "reason",
            label: "Reason",
            options: choices(
                ExtensionReason::ALL,
                ExtensionReason::as_str,
                Named::name,
                picked.reason.map_or("", ExtensionReason::as_str),
            ),
        }),
        _ => None,
    }
}

/// The one that is written next.
fn current(case: &Case) -> LetterKind {
    match case.state {
        CaseState::Refused => LetterKind::Refusal,
        CaseState::Extended => LetterKind::Extension,
        CaseState::Approved | CaseState::Delivered | CaseState::Closed => LetterKind::Response,
        _ => LetterKind::Cover,
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let letters = letters(app, asked, case).await?;
        let editors = letters.iter().filter_map(|letter| letter.changed.map(|(who, _)| who));
        let names = names_with(app, case, editors).await?;
        let chosen = LetterKind::parse(asked.query_value("letter").as_deref().unwrap_or_default());
        let chosen = chosen.unwrap_or_else(|| current(case));
        let form = |letter: Letter| Form {
            pick: pick(asked, case, &letter),
            query: match (letter.kind, picked(asked)) {
                (LetterKind::Refusal, Picked { ground: Some(ground), .. }) => {
                    format!("?ground={}", ground.as_str())
                }
                (LetterKind::Extension, Picked { reason: Some(reason), .. }) => {
                    format!("?reason={}", reason.as_str())
                }
                _ => String::new(),
            },
            kind: letter.kind.as_str(),
            label: label(letter.kind),
            is_open: letter.kind == chosen,
            body: letter.body,
            revision: letter.revision,
            changed: letter
                .changed
                .map(|(who, at_ms)| format!("Edited by {}, {}", name_of(&names, Some(who)), moment(at_ms))),
            error: None,
        };
        let answer = case.answer.map(|answer| {
            let how = answer.how.map_or(String::new(), |how| format!(", {}", how.name()));
            let ground = answer.ground.map_or(String::new(), |ground| format!(": {}", ground.name()));
            format!("{} on {}{how}{ground}", answer.outcome.name(), day(answer.at_ms))
        });
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            frame: Frame::new(app, asked, case, Tab::Response).await?,
            answer,
            forms: letters.into_iter().map(form).collect(),
            most: LETTER_CHARS_MAX,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "response").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    page.frame.notice = asked.query_value("done").map(|_| "Letter saved.".to_owned());
    Ok(html(&page))
}

pub(crate) async fn save(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "response").await?;
    let kind = LetterKind::parse(asked.parameter("letter")).ok_or(Problem::not_found())?;
    let (body, revision) = (asked.field("body"), asked.field("revision").parse().unwrap_or(u64::MAX));
    let saved =
        app.service.disclosures.save_letter(asked.person().person.id, &case, kind, body, revision).await;
    let (status, why) = match saved {
        Ok(()) => {
            let here = format!("/app/o/{}/cases/{}/response", case.tenant_id, case.id.0);
            return Ok(see_other(&format!("{here}?letter={}&done=saved", kind.as_str())));
        }
        Err(NotSaved::Missing) => return Err(Problem::not_found()),
        Err(NotSaved::Store(error)) => return Err(of_control(error)),
        Err(NotSaved::Empty) => (StatusCode::UNPROCESSABLE_ENTITY, "Enter the text of the letter.".to_owned()),
        Err(NotSaved::TooLong) => {
            (StatusCode::UNPROCESSABLE_ENTITY, format!("Use at most {LETTER_CHARS_MAX} characters."))
        }
        Err(NotSaved::Closed) => (StatusCode::CONFLICT, "The case is closed.".to_owned()),
        Err(NotSaved::Stale) => (
            StatusCode::CONFLICT,
            "Someone else edited this letter. Your text is below; “Print” shows the saved text. Save again to replace it.".to_owned(),
        ),
    };
    let mut page = Page::new(&app, &asked, &case).await?;
    for form in &mut page.forms {
        form.is_open = form.kind == kind.as_str();
        if form.is_open {
            form.body = body.to_owned();
            form.error = Some(why.clone());
        }
    }
    Ok(html_with(status, &page))
}

async fn letter(app: &Dashboard, asked: &Asked, case: &Case) -> Result<Letter, Problem> {
    let kind = LetterKind::parse(asked.parameter("letter")).ok_or(Problem::not_found())?;
    let letters = letters(app, asked, case).await?;
    letters.into_iter().find(|letter| letter.kind == kind).ok_or(Problem::not_found())
}

/// To be printed.
pub(crate) async fn print(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "letter").await?;
    let letter = letter(&app, &asked, &case).await?;
    let page = Printed {
        shell: Shell::new(&app, &asked, Some(Current::Cases)),
        case: case_name(&case),
        here: format!("/app/o/{}/cases/{}", case.tenant_id, case.id.0),
        label: label(letter.kind),
        kind: letter.kind.as_str(),
        body: lines(&letter.body),
    };
    Ok(html(&page))
}

pub(crate) async fn text(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "letter").await?;
    let letter = letter(&app, &asked, &case).await?;
    let name = format!("{}-{}.txt", case_name(&case), letter.kind.as_str());
    Ok(file(letter.body, "text/plain; charset=utf-8", &name))
}
