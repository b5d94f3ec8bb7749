//! The link of the first run: the owner sets an address and a password.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::account::LinkError;
use sealog_service::people::sign_in::Token;

use crate::app::Dashboard;
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};

pub(crate) const GONE: &str =
    "This link is used, expired or incomplete. Copy the whole link, or ask for a new one.";

#[derive(Template)]
#[template(path = "pages/claim.html")]
struct Page<'a> {
    plain: Plain<'a>,
    token: &'a str,
    email: &'a str,
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
    let claimed = match token_in(page.token) {
        Some(token) => app.service.accounts.claim(&token, page.email, asked.secret("password")).await,
        None => Err(LinkError::Gone),
    };
    let page = match claimed {
        Ok(_) => {
            (app.on_claimed)();
            return Ok(see_other("/app/sign-in?after=claim"));
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
