//! One member of an organisation: role, what the person may see, and until when.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{Member, PersonId};
use sealog_core::id::Uuid;
use sealog_core::time::iso_ms;
use sealog_service::people::admin::people::MemberUpdate;
use sealog_service::people::admin::{Actor, AdminError, FieldError};

use crate::app::Dashboard;
use crate::capability::may_give;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::grants::{self, Choice, Fields, given_by};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{moment, visible};

#[derive(Template)]
#[template(path = "pages/member.html")]
struct Page<'a> {
    shell: Shell<'a>,
    members: String,
    here: String,
    email: String,
    role: &'static str,
    since: String,
    /// When it ended, if it has.
    ended: Option<String>,
    has_authenticator: bool,
    may_change: bool,
    is_self: bool,
    roles: Vec<Choice>,
    grants: Fields,
    role_error: Option<String>,
    error: Option<String>,
}

impl<'a> Page<'a> {
    /// As it is now, or as it was typed.
    async fn new(app: &'a Dashboard, asked: &'a Asked, member: &Member) -> Result<Page<'a>, Problem> {
        let (place, membership) = (asked.place(), &member.membership);
        let members = format!("/app/o/{}/members", place.tenant.id);
        let is_form = !asked.field("role").is_empty();
        let role = if is_form { grants::chosen_role(asked) } else { Some(membership.role) };
        let confirmed = app.service.control.with_authenticator(vec![member.person.id]).await;
        let ended = membership.ends_at_ms.filter(|_| membership.has_ended(app.service.world.now_ms()));
        // The day of an end that is over would be typed again and refused.
        let ends_at_ms = membership.ends_at_ms.filter(|_| ended.is_none());
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Members)),
            here: format!("{members}/{}", member.person.id.0),
            members,
            email: visible(&member.person.email),
            role: membership.role.rules().label,
            since: moment(membership.created_at_ms),
            ended: ended.map(moment),
            has_authenticator: !confirmed.map_err(of_control)?.is_empty(),
            may_change: may_give(place.role(), membership.role),
            is_self: asked.person().person.id == member.person.id,
            roles: grants::roles(place.role(), role),
            grants: if is_form {
                Fields::typed(asked)
            } else {
                Fields::of(place, &membership.grants, ends_at_ms)
            },
            role_error: None,
            error: None,
        })
    }
}

/// Somebody who is no member is like somebody who does not exist.
async fn find(app: &Dashboard, asked: &Asked) -> Result<Member, Problem> {
    let id = Uuid::parse(asked.parameter("person")).map(PersonId).ok_or(Problem::not_found())?;
    let member = app.service.control.member(asked.place().tenant.id, id).await.map_err(of_control)?;
    member.ok_or(Problem::not_found())
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let member = find(&app, &asked).await?;
    Ok(html(&Page::new(&app, &asked, &member).await?))
}

/// Changes the role and what the person may see. A membership that has ended begins again by it.
pub(crate) async fn change(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let member = find(&app, &asked).await?;
    let page = Page::new(&app, &asked, &member).await?;
    let Some(role) = grants::chosen_role(&asked) else {
        let role_error = Some("Choose a role you can assign.".into());
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { role_error, ..page }));
    };
    let (granted, ends_at_ms) = match grants::limits(&app, &asked, role).await? {
        Ok(limits) => limits,
        Err(problem) => {
            let grants = Fields { error: Some(problem), ..page.grants };
            return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { grants, ..page }));
        }
    };
    let update = MemberUpdate {
        role: Some(role.as_str().into()),
        grants: Some(granted),
        ends_at: Some(ends_at_ms.map(iso_ms)),
        may_give: None,
    };
    make(&app, &asked, &member, page, update, "change").await
}

pub(crate) async fn end(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let member = find(&app, &asked).await?;
    let page = Page::new(&app, &asked, &member).await?;
    let ends_at = Some(Some(iso_ms(app.service.world.now_ms())));
    make(&app, &asked, &member, page, MemberUpdate { ends_at, ..MemberUpdate::default() }, "end").await
}

async fn make(
    app: &Dashboard,
    asked: &Asked,
    member: &Member,
    page: Page<'_>,
    update: MemberUpdate,
    done: &str,
) -> Result<Response, Problem> {
    let place = asked.place();
    let update = MemberUpdate { may_give: Some(given_by(place.role())), ..update };
    let actor = Actor::Person(asked.person().person.id);
    match app.service.admin.update_member(actor, place.tenant.id, member.person.id, update).await {
        Ok(_) => Ok(see_other(&format!("{}?done={done}", page.members))),
        Err(AdminError::Field(FieldError { field, problem })) => {
            let page = match field.as_str() {
                "role" => Page { role_error: Some(format!("It {problem}.")), ..page },
                _ => Page { error: Some(format!("{} {problem}.", page.email)), ..page },
            };
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(of_admin(error)),
    }
}
