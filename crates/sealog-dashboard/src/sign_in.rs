//! Signing in and out, on either site.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::sign_in::{CodeError, Kept, Kind, SignInError, SignedIn};

use crate::app::Dashboard;
use crate::front::Front;
use crate::gate::Gate;
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, own_path_beneath, see_other, with_cookie};

/// One text for whatever was wrong.
const WRONG: &str = "Wrong e-mail or password.";

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page<'a> {
    plain: Plain<'a>,
    is_safe: bool,
    url: &'a str,
    next: &'a str,
    email: &'a str,
    error: Option<&'a str>,
    notice: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new<F: Front>(front: &'a F, asked: &'a Asked<F>) -> Page<'a> {
        Page {
            plain: Plain::of(front, asked),
            is_safe: front.site().cookies.are_safe(&asked.headers),
            url: &front.site().url,
            next: own_path_beneath(F::BASE, asked.field("next")).unwrap_or(""),
            email: asked.field("email"),
            error: None,
            notice: None,
        }
    }
}

pub(crate) async fn show<F: Gate>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    if asked.who.is_some() {
        return Ok(see_other(F::BASE));
    }
    let [next, email, after] =
        ["next", "email", "after"].map(|name| asked.query_value(name).unwrap_or_default());
    let next = own_path_beneath(F::BASE, &next).unwrap_or("");
    // A link that knows who follows it names the address: only the password is missing.
    Ok(html(&Page { next, email: &email, notice: F::notice_after(&after), ..Page::new(&*front, &asked) }))
}

pub(crate) async fn submit<F: Gate>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    let page = Page::new(&*front, &asked);
    if !page.is_safe {
        // The password is on the wire already; at least no session follows it.
        return Ok(html_with(StatusCode::FORBIDDEN, &page));
    }
    let (password, browser) = (asked.secret("password"), asked.browser(&front));
    match front.accounts().sign_in(page.email, password, &browser).await {
        Ok(SignedIn::Whole(kept)) => Ok(arrive(&*front, page.next, &kept)),
        Ok(SignedIn::NeedsCode(token)) => {
            // An operator without an authenticator is redirected from there.
            let path = format!("{}/sign-in/code?next={}", F::BASE, encoded(page.next));
            Ok(with_cookie(see_other(&path), &front.site().cookies.set_session(&token)))
        }
        Err(SignInError::Wrong) => {
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error: Some(WRONG), ..page }))
        }
        Err(SignInError::TooMany) => Err(F::too_many()),
        Err(SignInError::Busy) => Err(Problem::busy()),
        Err(SignInError::Failed(failed)) => Err(failed.into()),
    }
}

/// Signs in whoever has just set a password on a page that a link led to. Where a session would not be safe,
/// where the browser does not say that the form was ours, or where more is needed than the password: the page
/// `otherwise`, to sign in by hand.
pub(crate) async fn after(app: &Dashboard, asked: &Asked, email: &str, otherwise: &str) -> Response {
    let is_ours = asked.headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
    if !is_ours || !app.site().cookies.are_safe(&asked.headers) {
        return see_other(otherwise);
    }
    match app.accounts().sign_in(email, asked.secret("password"), &asked.browser(app)).await {
        Ok(SignedIn::Whole(kept)) => arrive(app, "", &kept),
        _ => see_other(otherwise),
    }
}

/// To the page that was asked for, with a whole session.
pub(crate) fn arrive<F: Gate>(front: &F, next: &str, kept: &Kept) -> Response {
    let response =
        with_cookie(see_other(&F::arrival(next)), &front.site().cookies.set_session(&kept.session));
    with_cookie(response, &front.site().cookies.set_device(&kept.device))
}

#[derive(Template)]
#[template(path = "sign_in_code.html")]
struct CodePage<'a> {
    plain: Plain<'a>,
    next: &'a str,
    error: Option<&'a str>,
}

/// Who is asked for a code here. A whole session is not, nor one that has no authenticator to show it from.
fn asked_for_code<F: Gate>(asked: &Asked<F>) -> Result<&<F::Kind as Kind>::Who, Problem> {
    let who = asked.who.as_ref().expect("the route needs a password");
    match F::next_step(who) {
        Some(step) if step == asked.path => Ok(who),
        elsewhere => Err(see_other(elsewhere.unwrap_or(F::BASE)).into()),
    }
}

pub(crate) async fn show_code<F: Gate>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    asked_for_code(&asked)?;
    let next = asked.query_value("next").unwrap_or_default();
    let next = own_path_beneath(F::BASE, &next).unwrap_or("");
    Ok(html(&CodePage { plain: Plain::of(&*front, &asked), next, error: None }))
}

pub(crate) async fn submit_code<F: Gate>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    let who = asked_for_code(&asked)?;
    let next = own_path_beneath(F::BASE, asked.field("next")).unwrap_or("");
    match front.accounts().check_code(who, asked.field("code"), &asked.browser(&front)).await {
        Ok(kept) => Ok(arrive(&*front, next, &kept)),
        Err(CodeError::Wrong | CodeError::NotNow) => {
            let page = CodePage { plain: Plain::of(&*front, &asked), next, error: Some(F::WRONG_CODE) };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(CodeError::TooMany) => Err(F::too_many()),
        Err(CodeError::Failed(failed)) => Err(failed.into()),
    }
}

pub(crate) async fn sign_out<F: Gate>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    if let Some(token) = &asked.token {
        front.accounts().sign_out(token).await?;
    }
    let response = see_other(&format!("{}/sign-in", F::BASE));
    Ok(with_cookie(response, &front.site().cookies.clear_session()))
}
