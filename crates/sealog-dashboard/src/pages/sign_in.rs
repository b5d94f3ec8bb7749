//! Signing in and out.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::Person;
use sealog_service::people::{CodeError, SignInError, SignedIn, Token};

use crate::app::Dashboard;
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, own_path, see_other, with_cookie};

/// One text for whatever was wrong.
const WRONG: &str = "Wrong e-mail or password.";
const WRONG_CODE: &str = "Wrong code, or already used. Enter a new one.";

#[derive(Template)]
#[template(path = "pages/sign_in.html")]
struct Page<'a> {
    plain: Plain<'a>,
    is_safe: bool,
    app_url: &'a str,
    next: &'a str,
    email: &'a str,
    error: Option<&'a str>,
    notice: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        Page {
            plain: Plain::new(app, asked),
            is_safe: app.cookies.are_safe(&asked.headers),
            app_url: &app.service.settings.app_url,
            next: own_path(asked.field("next")).unwrap_or(""),
            email: asked.field("email"),
            error: None,
            notice: None,
        }
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if asked.who.is_some() {
        return Ok(see_other("/app"));
    }
    let next = asked.query_value("next").unwrap_or_default();
    // Of a link that knows who follows it: only the password is missing.
    let email = asked.query_value("email").unwrap_or_default();
    let notice = match asked.query_value("after").as_deref() {
        Some("claim") => Some("Owner account created. Sign in with your new password."),
        Some("reset") => Some("Password set. All sessions were signed out. Sign in with your new password."),
        Some("invitation") => Some("Account created. Sign in with your new password."),
        _ => None,
    };
    let next = own_path(&next).unwrap_or("");
    Ok(html(&Page { next, email: &email, notice, ..Page::new(&app, &asked) }))
}

pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    if !page.is_safe {
        // The password is on the wire already; at least no session follows it.
        return Ok(html_with(StatusCode::FORBIDDEN, &page));
    }
    let (email, password) = (asked.field("email"), asked.secret("password"));
    let (visitor, device) = (asked.visitor(), app.cookies.device(&asked.headers));
    let signed_in =
        app.service.accounts.sign_in(email, password, &visitor, asked.token.as_ref(), device.as_ref()).await;
    let (token, path) = match signed_in {
        Ok(SignedIn::Whole(token, person)) => {
            return whole(&app, &asked, &person, &token, page.next).await;
        }
        Ok(SignedIn::NeedsCode(token)) => (token, format!("/app/sign-in/code?next={}", encoded(page.next))),
        Err(SignInError::Wrong) => {
            return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error: Some(WRONG), ..page }));
        }
        Err(SignInError::TooMany) => return Err(Problem::too_many()),
        Err(SignInError::Busy) => return Err(Problem::busy()),
        Err(SignInError::Failed(failed)) => return Err(failed.into()),
    };
    Ok(with_cookie(see_other(&path), &app.cookies.set_session(&token)))
}

/// Somebody is signed in. A browser that is new to the person is told of, before it has the session.
async fn whole(
    app: &Dashboard,
    asked: &Asked,
    person: &Person,
    token: &Token,
    next: &str,
) -> Result<Response, Problem> {
    let has = app.cookies.device(&asked.headers);
    let device = app.service.accounts.note_device(person, has.as_ref(), &asked.visitor()).await?;
    let response = see_other(&format!("/app/signed-in?next={}", encoded(next)));
    let response = with_cookie(response, &app.cookies.set_session(token));
    Ok(with_cookie(response, &app.cookies.set_device(&device)))
}

#[derive(Template)]
#[template(path = "pages/sign_in_code.html")]
struct CodePage<'a> {
    plain: Plain<'a>,
    next: &'a str,
    error: Option<&'a str>,
}

pub(crate) async fn show_code(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if !asked.person().session.needs_code {
        return Ok(see_other("/app"));
    }
    let next = asked.query_value("next").unwrap_or_default();
    let next = own_path(&next).unwrap_or("");
    Ok(html(&CodePage { plain: Plain::new(&app, &asked), next, error: None }))
}

pub(crate) async fn submit_code(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let who = asked.person();
    if !who.session.needs_code {
        return Ok(see_other("/app"));
    }
    let next = own_path(asked.field("next")).unwrap_or("");
    let (status, error) =
        match app.service.accounts.check_code(who, asked.field("code"), &asked.visitor()).await {
            Ok(token) => return whole(&app, &asked, &who.person, &token, next).await,
            Err(CodeError::Wrong | CodeError::NotNow) => (StatusCode::UNPROCESSABLE_ENTITY, WRONG_CODE),
            Err(CodeError::TooMany) => return Err(Problem::too_many()),
            Err(CodeError::Failed(failed)) => return Err(failed.into()),
        };
    Ok(html_with(status, &CodePage { plain: Plain::new(&app, &asked), next, error: Some(error) }))
}

pub(crate) async fn sign_out(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if let Some(token) = &asked.token {
        app.service.accounts.sign_out(token).await?;
    }
    Ok(with_cookie(see_other("/app/sign-in"), &app.cookies.clear_session()))
}
