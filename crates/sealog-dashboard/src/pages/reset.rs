//! The link to a new password.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::account::LinkError;

use crate::app::Dashboard;
use crate::layout::Plain;
use crate::pages::claim::{GONE, token_in};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};

#[derive(Template)]
#[template(path = "pages/reset.html")]
struct Page<'a> {
    plain: Plain<'a>,
    token: &'a str,
    token_error: Option<&'a str>,
    password_error: Option<String>,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        let token = asked.field("token");
        Page { plain: Plain::new(app, asked), token, token_error: None, password_error: None }
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked)))
}

pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    let reset = match token_in(page.token) {
        Some(token) => {
            app.service.accounts.reset_password(&token, asked.secret("password"), &asked.visitor()).await
        }
        None => Err(LinkError::Gone),
    };
    let page = match reset {
        Ok(_) => return Ok(see_other("/app/sign-in?after=reset")),
        Err(LinkError::Gone | LinkError::Email | LinkError::Taken | LinkError::Domain) => {
            Page { token_error: Some(GONE), ..page }
        }
        Err(LinkError::Password(problem)) => Page { password_error: Some(problem.to_string()), ..page },
        Err(LinkError::TooManyMails) => return Err(Problem::too_many()),
        Err(LinkError::Failed(failed)) => return Err(failed.into()),
    };
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}
