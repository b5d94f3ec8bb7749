//! `/app`: where a person goes from here.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{ListPage, Membership};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId};
use sealog_core::reject::Code;

use crate::app::Dashboard;
use crate::gate::{ENROL, of_control};
use crate::layout::{Plain, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, own_path, see_other};
use crate::text::visible;

pub(crate) async fn to_app(_: Arc<Dashboard>, _: Arc<Asked>) -> Result<Response, Problem> {
    Ok(see_other("/app"))
}

/// Nothing is there to be kept from anybody, and an operator learns what to do.
pub(crate) async fn console_is_off(_: Arc<Dashboard>, _: Arc<Asked>) -> Result<Response, Problem> {
    let message = "The operator console is off. To turn it on, set ops.enabled to true, or ops.listen to an address of its own, and restart the server. Then run sealog ops-user on the host to create an account.";
    Err(Problem::new(Code::RequestNotFound, message))
}

#[derive(Template)]
#[template(path = "pages/start.html")]
struct Page<'a> {
    shell: Shell<'a>,
    organisations: Vec<Organisation>,
}

struct Organisation {
    name: String,
    role: &'static str,
    href: Option<String>,
}

/// With one organisation straight to its first project; with several, or none, a list.
pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let Some(who) = &asked.who else { return Ok(see_other("/app/sign-in")) };
    if who.must_enrol.is_some() {
        return Ok(see_other(ENROL));
    }
    let mut organisations = Vec::new();
    for membership in &who.memberships {
        organisations.extend(organisation(&app, membership).await?);
    }
    if asked.query_value("choose").is_none()
        && let [Organisation { href: Some(href), .. }] = organisations.as_slice()
    {
        return Ok(see_other(href));
    }
    Ok(html(&Page { shell: Shell::new(&app, &asked, None), organisations }))
}

async fn organisation(app: &Dashboard, membership: &Membership) -> Result<Option<Organisation>, Problem> {
    let administration = &app.service.control;
    let tenant = administration.tenant(membership.tenant_id).await.map_err(of_control)?;
    let Some(tenant) = tenant else { return Ok(None) };
    let first = match &membership.grants.projects {
        Some(granted) => granted.first().copied(),
        None => {
            let page = ListPage { after: None, limit: 1 };
            let projects = administration.projects(tenant.id, page).await.map_err(of_control)?;
            projects.first().map(|project| project.id)
        }
    };
    let href = match first {
        Some(project_id) => Some(first_page(app, tenant.id, project_id).await?),
        None => None,
    };
    Ok(Some(Organisation { name: visible(&tenant.name), role: membership.role.rules().label, href }))
}

/// Figures; without an event there are none, and the list of events says how to send the first.
async fn first_page(app: &Dashboard, tenant_id: TenantId, project_id: ProjectId) -> Result<String, Problem> {
    let mode = Mode::Live;
    let head = app.service.store.head(ChainId { tenant_id, project_id, mode }).await?;
    let page = if head.end().chain_seq == 0 { "/events" } else { "" };
    Ok(format!("/app/p/{project_id}/{}{page}", mode.as_str()))
}

#[derive(Template)]
#[template(path = "pages/signed_in.html")]
struct NotKept<'a> {
    plain: Plain<'a>,
    app_url: &'a str,
}

/// Where signing in leads first. A browser that comes here without the cookie has not kept it: it is told so,
/// and not sent in a circle.
pub(crate) async fn signed_in(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if asked.who.is_some() {
        let next = asked.query_value("next");
        return Ok(see_other(next.as_deref().and_then(own_path).unwrap_or("/app")));
    }
    Ok(html(&NotKept { plain: Plain::new(&app, &asked), app_url: &app.service.settings.app_url }))
}
