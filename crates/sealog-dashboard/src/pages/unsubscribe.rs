//! Where the link of an optional notice leads: it turns that kind of notice off, in one organisation, without
//! signing in. A mail program may send the form by itself (RFC 8058).

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_service::people::notices::Unsubscription;
use sealog_service::people::sign_in::Token;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::Plain;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with};
use crate::text::visible;

#[derive(Template)]
#[template(path = "pages/unsubscribe.html")]
struct Page<'a> {
    plain: Plain<'a>,
    token: String,
    /// Which notice of which organisation; nothing if the link does not work.
    offer: Option<(&'static str, String)>,
    is_done: bool,
}

/// The token of the link, or of the form.
fn token(asked: &Asked) -> String {
    let typed = asked.field("token");
    if typed.is_empty() { asked.query_value("token").unwrap_or_default() } else { typed.to_owned() }
}

async fn find(app: &Dashboard, asked: &Asked) -> Result<Option<Unsubscription>, Problem> {
    let Some(token) = Token::parse(&token(asked)) else { return Ok(None) };
    Unsubscription::find(&app.service.control, &token).await.map_err(of_control)
}

async fn page<'a>(
    app: &'a Dashboard,
    asked: &Asked,
    found: Option<&Unsubscription>,
) -> Result<Page<'a>, Problem> {
    let offer = match found {
        Some(found) => {
            let tenant = app.service.control.tenant(found.tenant_id).await.map_err(of_control)?;
            tenant.map(|tenant| (found.kind.label, visible(&tenant.name)))
        }
        None => None,
    };
    Ok(Page { plain: Plain::new(app, asked), token: token(asked), offer, is_done: false })
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let found = find(&app, &asked).await?;
    Ok(html(&page(&app, &asked, found.as_ref()).await?))
}

pub(crate) async fn submit(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let Some(found) = find(&app, &asked).await? else {
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page(&app, &asked, None).await?));
    };
    found.make(&app.service.control, &app.service.world).await.map_err(of_control)?;
    app.service.admin.wake().wake();
    Ok(html(&Page { is_done: true, ..page(&app, &asked, Some(&found)).await? }))
}
