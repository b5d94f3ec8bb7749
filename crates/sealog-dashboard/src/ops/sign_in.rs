//! Signing in to the console, and out.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::reject::Code;
use sealog_service::people::{CodeError, SignInError};

use super::console::Console;
use super::gate::next_step;
use super::layout::plain;
use super::request::{BASE, OpsAsked};
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{encoded, html, html_with, own_path_beneath, see_other, with_cookie};

/// One text for whatever was wrong.
const WRONG: &str = "Wrong e-mail or password.";
pub(super) const WRONG_CODE: &str =
    "Wrong code, or already used. Check the clock of your device and try again.";

#[derive(Template)]
#[template(path = "ops/sign_in.html")]
struct Page<'a> {
    plain: Plain<'a>,
    is_safe: bool,
    url: &'a str,
    next: &'a str,
    email: &'a str,
    error: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new(console: &'a Console, asked: &'a OpsAsked) -> Page<'a> {
        Page {
            plain: plain(console, asked),
            is_safe: console.cookies.are_safe(&asked.request.headers),
            url: &console.instance.url,
            next: own_path_beneath(BASE, asked.request.field("next")).unwrap_or(""),
            email: asked.request.field("email"),
            error: None,
        }
    }
}

/// Of passwords, codes or links. It does not tell whether there is such an account.
pub(super) fn too_many() -> Problem {
    let message = "Too many attempts for this account or from this address. Wait 15 minutes.";
    Problem::new(Code::AuthTooManyAttempts, message)
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    if asked.operator.is_some() {
        return Ok(see_other(BASE));
    }
    let next = asked.request.query_value("next").unwrap_or_default();
    let next = own_path_beneath(BASE, &next).unwrap_or("");
    Ok(html(&Page { next, ..Page::new(&console, &asked) }))
}

pub(super) async fn submit(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let page = Page::new(&console, &asked);
    if !page.is_safe {
        // The password is on the wire already; at least no session follows it.
        return Ok(html_with(StatusCode::FORBIDDEN, &page));
    }
    let (request, visitor) = (&asked.request, asked.request.visitor());
    let password = request.secret("password");
    let token =
        match console.service.operators.sign_in(page.email, password, &visitor, request.token.as_ref()).await
        {
            Ok(token) => token,
            Err(SignInError::Wrong) => {
                return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error: Some(WRONG), ..page }));
            }
            Err(SignInError::TooMany) => return Err(too_many()),
            Err(SignInError::Busy) => return Err(Problem::busy()),
            Err(SignInError::Failed(failed)) => return Err(failed.into()),
        };
    // Whoever has no authenticator yet is led on from there.
    let path = format!("{BASE}/sign-in/code?next={}", encoded(page.next));
    Ok(with_cookie(see_other(&path), &console.cookies.set_session(&token)))
}

#[derive(Template)]
#[template(path = "ops/sign_in_code.html")]
struct CodePage<'a> {
    plain: Plain<'a>,
    next: &'a str,
    error: Option<&'a str>,
}

/// Somebody whose session asks for no code here.
fn elsewhere(asked: &OpsAsked) -> Option<Response> {
    let who = asked.operator();
    if who.is_whole() {
        return Some(see_other(BASE));
    }
    (!who.user.is_enrolled()).then(|| see_other(next_step(who)))
}

pub(super) async fn show_code(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    if let Some(elsewhere) = elsewhere(&asked) {
        return Ok(elsewhere);
    }
    let next = asked.request.query_value("next").unwrap_or_default();
    let next = own_path_beneath(BASE, &next).unwrap_or("");
    Ok(html(&CodePage { plain: plain(&console, &asked), next, error: None }))
}

pub(super) async fn submit_code(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    if let Some(elsewhere) = elsewhere(&asked) {
        return Ok(elsewhere);
    }
    let next = own_path_beneath(BASE, asked.request.field("next")).unwrap_or("");
    let (code, visitor) = (asked.request.field("code"), asked.request.visitor());
    match console.service.operators.check_code(asked.operator(), code, &visitor).await {
        Ok(token) => {
            let path = if next.is_empty() { BASE } else { next };
            Ok(with_cookie(see_other(path), &console.cookies.set_session(&token)))
        }
        Err(CodeError::Wrong | CodeError::NotNow) => {
            let page = CodePage { plain: plain(&console, &asked), next, error: Some(WRONG_CODE) };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(CodeError::TooMany) => Err(too_many()),
        Err(CodeError::Failed(failed)) => Err(failed.into()),
    }
}

pub(super) async fn sign_out(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    if let Some(token) = &asked.request.token {
        console.service.operators.sign_out(token).await?;
    }
    Ok(with_cookie(see_other("/ops/sign-in"), &console.cookies.clear_session()))
}
