//! Before any page of the console is asked: where the request comes from, and which operator makes it.

use std::sync::Arc;

use axum::extract::{RawPathParams, Request};
use axum::http::Method;
use axum::response::Response;
use sealog_service::ops::SignedInOperator;

use super::console::Console;
use super::layout::plain;
use super::request::{BASE, OpsAsked};
use crate::gate::{Answer, begin, check_request, read_form};
use crate::problem::Problem;
use crate::request::{Asked, encoded, see_other};

pub(super) type Handler = fn(Arc<Console>, Arc<OpsAsked>) -> Answer;

/// What the gate asks for before a page is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpsNeeds {
    /// Nothing.
    Nothing,
    /// A right password, with or without the code that has to follow it: what signing in and setting up an
    /// authenticator need.
    Password,
    /// An operator who has shown a code.
    Operator,
}

/// Answers a request with the page of its route, or with why not.
pub(super) async fn pass(
    console: &Arc<Console>,
    needs: OpsNeeds,
    handler: Option<Handler>,
    parameters: &RawPathParams,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let request = begin(&parts, parameters, console.cookies.session(&parts.headers));
    let mut asked = OpsAsked { request, operator: None };
    let checked = async {
        check_request(console.cookies.origin(), &parts.method, &asked.request)?;
        admit(console, needs, &mut asked).await?;
        if parts.method == Method::POST {
            asked.request.form = read_form(&asked.request.headers, body).await?;
        }
        handler.ok_or_else(Problem::not_found)
    };
    let handler = match checked.await {
        Ok(handler) => handler,
        Err(problem) => return problem.render(plain(console, &asked), &asked.request),
    };
    let asked = Arc::new(asked);
    match handler(Arc::clone(console), Arc::clone(&asked)).await {
        Ok(response) => response,
        Err(problem) => problem.render(plain(console, &asked), &asked.request),
    }
}

async fn admit(console: &Console, needs: OpsNeeds, asked: &mut OpsAsked) -> Result<(), Problem> {
    let found = match &asked.request.token {
        Some(token) => console.service.operators.find(token).await?,
        None => None,
    };
    match (&found, needs) {
        (None, OpsNeeds::Password | OpsNeeds::Operator) => return Err(sign_in_first(asked).into()),
        (Some(who), OpsNeeds::Operator) if !who.is_whole() => return Err(see_other(next_step(who)).into()),
        _ => {}
    }
    // Half a session is nobody, but for what makes it whole.
    asked.operator = found.filter(|who| who.is_whole() || needs == OpsNeeds::Password);
    Ok(())
}

/// Where somebody goes who has shown a password alone.
pub(super) fn next_step(who: &SignedInOperator) -> &'static str {
    if who.user.is_enrolled() { "/ops/sign-in/code" } else { "/ops/enrol/authenticator" }
}

/// And come back to a page; to a form there is no way back.
fn sign_in_first(asked: &OpsAsked) -> Response {
    let Asked { path, query, .. } = &asked.request;
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    see_other(&format!("{BASE}/sign-in?next={}", encoded(&format!("{path}{query}"))))
}
