//! The link of the first run: the owner names the organisation and its project, and sets an address and a
//! password.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::account::LinkError;
use sealog_service::people::admin::FieldError;
use sealog_service::people::admin::first::FirstNames;
use sealog_service::people::sign_in::Token;

use crate::app::Dashboard;
use crate::layout::Plain;
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with};
use crate::sign_in;

pub(crate) const GONE: &str =
    "This link is used, expired or incomplete. Copy the whole link, or ask for a new one.";

#[derive(Template)]
#[template(path = "pages/claim.html")]
struct Page<'a> {
    plain: Plain<'a>,
    token: &'a str,
    email: &'a str,
    organisation: &'a str,
    project: &'a str,
    organisation_error: Option<String>,
    project_error: Option<String>,
    token_error: Option<&'a str>,
    email_error: Option<&'a str>,
    password_error: Option<String>,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        Page {
            plain: Plain::new(app, asked),
            token: asked.field("token"),
            email: asked.field("email"),
            organisation: asked.field("organisation"),
            project: asked.field("project"),
            organisation_error: None,
            project_error: None,
            token_error: None,
            email_error: None,
            password_error: None,
        }
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked)))
}

pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    // Before the link is used up.
    let names = match FirstNames::new(page.organisation, page.project) {
        Ok(names) => names,
        Err(FieldError { field, problem }) => {
            let problem = Some(format!("It {problem}."));
            let page = match field.as_str() {
                "organisation" => Page { organisation_error: problem, ..page },
                _ => Page { project_error: problem, ..page },
            };
            return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
        }
    };
    let claimed = match token_in(page.token) {
        Some(token) => app.service.accounts.claim(&token, page.email, asked.secret("password")).await,
        None => Err(LinkError::Gone),
    };
    let page = match claimed {
        Ok(owner) => {
            (app.on_claimed)();
            app.service.admin.name_first(owner.id, names).await.map_err(of_admin)?;
            return Ok(sign_in::after(&app, &asked, &owner.email, "/app/sign-in?after=claim").await);
        }
        Err(LinkError::Gone | LinkError::Domain) => Page { token_error: Some(GONE), ..page },
        Err(LinkError::Email) => Page { email_error: Some("Enter a valid e-mail address."), ..page },
        Err(LinkError::Taken) => {
            Page { email_error: Some("This address already has an account. Use another one."), ..page }
        }
        Err(LinkError::Password(problem)) => Page { password_error: Some(problem.to_string()), ..page },
        Err(LinkError::TooManyMails) => return Err(Problem::too_many()),
        Err(LinkError::Failed(failed)) => return Err(failed.into()),
    };
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

/// Whoever pastes may paste the whole link.
pub(crate) fn token_in(text: &str) -> Option<Token> {
    Token::parse(text.rsplit('#').next().unwrap_or(text))
}
