//! Somebody has lost a password. What the page says does not tell whether there is such an account.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_service::people::account::Reset;

use crate::app::Dashboard;
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{Asked, html};

#[derive(Template)]
#[template(path = "pages/forgot.html")]
struct Page<'a> {
    plain: Plain<'a>,
    has_mail: bool,
    email: &'a str,
    sent: bool,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        let (plain, has_mail) = (Plain::new(app, asked), app.has_mail());
        Page { plain, has_mail, email: asked.field("email"), sent: false }
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked)))
}

pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    if !page.has_mail {
        return Ok(html(&page));
    }
    match app.service.accounts.request_reset(page.email, &asked.visitor()).await? {
        Reset::Accepted => Ok(html(&Page { sent: true, ..page })),
        Reset::TooMany => Err(Problem::too_many()),
    }
}
