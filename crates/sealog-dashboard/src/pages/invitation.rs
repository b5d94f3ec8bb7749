//! An invitation: whoever has no account gets one, and whoever has one accepts signed in.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::Invitation;
use sealog_service::people::account::InvitationError;
use sealog_service::people::sign_in::Token;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::Plain;
use crate::pages::claim::{GONE, token_in};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::sign_in;
use crate::text::visible;

const DOMAIN: &str =
    "This organisation does not allow your e-mail domain. Contact the person who invited you.";
const UNCONFIRMED: &str = "This account's address is not confirmed. Reset your password by e-mail first.";

#[derive(Template)]
#[template(path = "pages/invitation.html")]
struct Page<'a> {
    plain: Plain<'a>,
    token: &'a str,
    token_error: Option<&'a str>,
    password_error: Option<String>,
    error: Option<&'a str>,
    offer: Option<Offer>,
}

/// What the invitation is to, and what the one who looks at it can do.
struct Offer {
    organisation: String,
    role: &'static str,
    email: String,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nobody has an account with the address.
    SetPassword,
    /// Somebody has, and nobody is signed in.
    SignIn,
    Accept,
    /// Somebody else is signed in.
    NotYours,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        Page {
            plain: Plain::new(app, asked),
            token: asked.field("token"),
            token_error: None,
            password_error: None,
            error: None,
            offer: None,
        }
    }

    fn is_step(&self, step: &str) -> bool {
        let step = match step {
            "password" => Step::SetPassword,
            "sign in" => Step::SignIn,
            "accept" => Step::Accept,
            _ => Step::NotYours,
        };
        self.offer.as_ref().is_some_and(|offer| offer.step == step)
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked)))
}

/// First a look at it, then the acceptance.
pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    let gone = |page| html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { token_error: Some(GONE), ..page });
    let Some(token) = token_in(page.token) else { return Ok(gone(page)) };
    let Some((invitation, known)) = app.service.accounts.invitation(&token).await? else {
        return Ok(gone(page));
    };
    let offer = Some(offer(&app, &asked, &invitation, known).await?);
    let page = Page { offer, ..page };
    if asked.field("accept").is_empty() {
        return Ok(html(&page));
    }
    let page = match accept(&app, &asked, &token).await {
        Ok(response) => return Ok(response),
        Err(InvitationError::Gone) => return Ok(gone(Page { offer: None, ..page })),
        Err(InvitationError::Password(problem)) => Page { password_error: Some(problem.to_string()), ..page },
        Err(InvitationError::AlreadyMember) => Page { error: Some("You are already a member."), ..page },
        // The page says what is needed.
        Err(InvitationError::NeedsSignIn) => page,
        Err(InvitationError::Domain) => Page { error: Some(DOMAIN), ..page },
        Err(InvitationError::NotYours) => Page { error: Some(UNCONFIRMED), ..page },
        Err(InvitationError::Failed(failed)) => return Err(failed.into()),
    };
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

async fn accept(app: &Dashboard, asked: &Asked, token: &Token) -> Result<Response, InvitationError> {
    let accounts = &app.service.accounts;
    if let Some(who) = &asked.who {
        return accounts.accept_as(token, &who.person).await.map(|_| see_other("/app?choose=1"));
    }
    let member = accounts.accept_as_new(token, asked.secret("password")).await?;
    Ok(sign_in::after(app, asked, &member.person.email, "/app/sign-in?after=invitation").await)
}

async fn offer(
    app: &Dashboard,
    asked: &Asked,
    invitation: &Invitation,
    known: bool,
) -> Result<Offer, Problem> {
    let tenant = app.service.control.tenant(invitation.tenant_id).await.map_err(of_control)?;
    let tenant = tenant.ok_or(Problem::not_found())?;
    let step = match &asked.who {
        Some(who) if who.person.email.to_lowercase() == invitation.email.to_lowercase() => Step::Accept,
        Some(_) => Step::NotYours,
        None if known => Step::SignIn,
        None => Step::SetPassword,
    };
    Ok(Offer {
        organisation: visible(&tenant.name),
        role: invitation.role.rules().label,
        email: invitation.email.clone(),
        step,
    })
}
