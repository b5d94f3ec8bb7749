//! How an operator begins: a link from the host sets the password, and an authenticator follows before
//! anything else.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::ops::EnrolError;
use sealog_service::people::sign_in::{CodeError, Offer};

use super::console::{Console, OpsAsked};
use crate::front::Front;
use crate::gate::Gate;
use crate::layout::Plain;
use crate::pages::claim::{GONE, token_in};
use crate::problem::Problem;
use crate::request::{html, html_with, see_other, with_cookie};
use crate::sign_in::arrive;

#[derive(Template)]
#[template(path = "ops/enrol.html")]
struct Page<'a> {
    plain: Plain<'a>,
    is_safe: bool,
    url: &'a str,
    token: &'a str,
    token_error: Option<&'a str>,
    password_error: Option<String>,
}

impl<'a> Page<'a> {
    fn new(console: &'a Console, asked: &'a OpsAsked) -> Page<'a> {
        Page {
            plain: Plain::of(console, asked),
            is_safe: console.site().cookies.are_safe(&asked.headers),
            url: &console.site().url,
            token: asked.field("token"),
            token_error: None,
            password_error: None,
        }
    }
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&console, &asked)))
}

pub(super) async fn submit(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let page = Page::new(&console, &asked);
    if !page.is_safe {
        return Ok(html_with(StatusCode::FORBIDDEN, &page));
    }
    let (password, visitor) = (asked.secret("password"), asked.visitor());
    let enrolled = match token_in(page.token) {
        Some(link) => console.service.operators.enrol(&link, password, &visitor).await,
        None => Err(EnrolError::Gone),
    };
    let page = match enrolled {
        Ok(token) => {
            let cookie = console.site().cookies.set_session(&token);
            return Ok(with_cookie(see_other("/ops/enrol/authenticator"), &cookie));
        }
        Err(EnrolError::Gone) => Page { token_error: Some(GONE), ..page },
        Err(EnrolError::Password(problem)) => Page { password_error: Some(problem.to_string()), ..page },
        Err(EnrolError::TooMany) => return Err(Console::too_many()),
        Err(EnrolError::Failed(failed)) => return Err(failed.into()),
    };
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

#[derive(Template)]
#[template(path = "ops/enrol_authenticator.html")]
struct AuthenticatorPage<'a> {
    plain: Plain<'a>,
    offer: Offer,
    error: Option<&'a str>,
}

/// Whoever has one already is led on, to the code or to the console.
fn offered(console: &Console, asked: &OpsAsked) -> Result<Offer, Problem> {
    let who = asked.operator();
    if who.user.is_enrolled() {
        return Err(see_other(Console::next_step(who).unwrap_or(Console::BASE)).into());
    }
    console.service.operators.offered(who).ok_or_else(Problem::not_found)
}

pub(super) async fn show_authenticator(
    console: Arc<Console>,
    asked: Arc<OpsAsked>,
) -> Result<Response, Problem> {
    let offer = offered(&console, &asked)?;
    Ok(html(&AuthenticatorPage { plain: Plain::of(&*console, &asked), offer, error: None }))
}

pub(super) async fn confirm_authenticator(
    console: Arc<Console>,
    asked: Arc<OpsAsked>,
) -> Result<Response, Problem> {
    let offer = offered(&console, &asked)?;
    let (code, browser) = (asked.field("code"), asked.browser(&console));
    match console.service.operators.check_code(asked.operator(), code, &browser).await {
        Ok(kept) => Ok(arrive(&*console, "", &kept)),
        Err(CodeError::Wrong | CodeError::NotNow) => {
            let page = AuthenticatorPage {
                plain: Plain::of(&*console, &asked),
                offer,
                error: Some(Console::WRONG_CODE),
            };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(CodeError::TooMany) => Err(Console::too_many()),
        Err(CodeError::Failed(failed)) => Err(failed.into()),
    }
}
