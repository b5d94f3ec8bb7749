//! Members of an organisation, and invitations.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{Grants, Invitation, Invited, Link, ListPage, Member, Purpose, Role};
use sealog_core::id::{ProjectId, Uuid};
use sealog_core::time::{DAY_MS, Date};
use sealog_service::people::LinkError;

use crate::app::Dashboard;
use crate::capability::may_give;
use crate::gate::of_control;
use crate::layout::{Current, Shell, role_name};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{day, visible};

const MEMBERS_MAX: usize = 500;
const HELD: &str = "This address is invited for a role that you may not give.";
/// How long an auditor stays a member, unless the invitation says otherwise.
const AUDITOR_DAYS: u64 = 90;

#[derive(Template)]
#[template(path = "pages/members.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    has_mail: bool,
    rows: Vec<Row>,
    invited: Vec<InvitedRow>,
    roles: Vec<Choice>,
    projects: Vec<Choice>,
    email: &'a str,
    from: &'a str,
    until: &'a str,
    ends: String,
    email_error: Option<&'static str>,
    role_error: Option<&'static str>,
    dates_error: Option<&'static str>,
    notice: Option<&'static str>,
}

struct Row {
    email: String,
    role: &'static str,
    since: String,
    limits: String,
    has_ended: bool,
    is_confirmed: bool,
}

struct InvitedRow {
    may_withdraw: bool,
    id: String,
    email: String,
    role: &'static str,
    until: String,
}

struct Choice {
    value: String,
    label: String,
    is_chosen: bool,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, now_ms, people) = (asked.place(), app.world.now_ms(), &app.control.people);
        let page = ListPage { after: None, limit: MEMBERS_MAX };
        let members = people.members(place.tenant.id, page).await.map_err(of_control)?;
        let mut rows = Vec::with_capacity(members.len());
        for member in &members {
            let authenticator = people.authenticator(member.person.id).await.map_err(of_control)?;
            let is_confirmed = authenticator.is_some_and(|authenticator| authenticator.is_confirmed());
            rows.push(row(member, is_confirmed, now_ms));
        }
        let invited = people.invitations(place.tenant.id, now_ms).await.map_err(of_control)?;
        let wanted = asked.field("role");
        let roles = given_by(place.role()).into_iter().map(|role| Choice {
            value: role.as_str().into(),
            label: role_name(role).into(),
            is_chosen: if wanted.is_empty() { role == Role::Developer } else { wanted == role.as_str() },
        });
        let chosen: Vec<&str> = fields(asked, "project");
        let projects = place.projects.iter().map(|project| Choice {
            value: project.id.to_string(),
            label: visible(&project.name),
            is_chosen: chosen.contains(&project.id.to_string().as_str()),
        });
        let ends = asked.field("ends");
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Members)),
            here: format!("/app/o/{}/members", place.tenant.id),
            has_mail: app.config.has_mail,
            rows,
            invited: invited.iter().filter_map(|link| invited_row(link, place.role())).collect(),
            roles: roles.collect(),
            projects: projects.collect(),
            email: asked.field("email"),
            from: asked.field("from"),
            until: asked.field("until"),
            ends: ends.to_owned(),
            email_error: None,
            role_error: None,
            dates_error: None,
            notice: None,
        })
    }
}

fn fields<'a>(asked: &'a Asked, name: &str) -> Vec<&'a str> {
    let named = asked.form.iter().filter(|(known, _)| known == name);
    named.map(|(_, value)| value.0.as_str()).filter(|value| !value.is_empty()).collect()
}

fn row(member: &Member, is_confirmed: bool, now_ms: u64) -> Row {
    let membership = &member.membership;
    let Grants { projects, from_ms, until_ms } = &membership.grants;
    let limits = [
        projects.as_ref().map(|projects| match projects.len() {
            1 => "1 project".to_owned(),
            count => format!("{count} projects"),
        }),
        from_ms.map(|from| format!("events from {}", day(from))),
        until_ms.map(|until| format!("events until {}", day(until.saturating_sub(1)))),
        membership.ends_at_ms.map(|end| format!("member until {}", day(end.saturating_sub(1)))),
    ];
    Row {
        email: visible(&member.person.email),
        role: role_name(membership.role),
        since: day(membership.created_at_ms),
        limits: limits.into_iter().flatten().collect::<Vec<_>>().join(", "),
        has_ended: membership.has_ended(now_ms),
        is_confirmed,
    }
}

fn invited_row(link: &Link, role: Role) -> Option<InvitedRow> {
    let Purpose::Invitation(invitation) = &link.purpose else { return None };
    Some(InvitedRow {
        may_withdraw: may_give(role, invitation.role),
        id: link.id.to_string(),
        email: visible(&invitation.email),
        role: role_name(invitation.role),
        until: day(link.expires_at_ms),
    })
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("invite") => Some("The invitation is on its way. It works once, within seven days."),
        Some("withdraw") => Some("The invitation is withdrawn."),
        _ => None,
    };
    Ok(html(&Page { notice, ..Page::new(&app, &asked).await? }))
}

pub(crate) async fn invite(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let page = Page::new(&app, &asked).await?;
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let role = Role::ALL.into_iter().find(|role| role.as_str() == asked.field("role"));
    let Some(role) = role.filter(|role| may_give(place.role(), *role)) else {
        return wrong(Page { role_error: Some("Choose a role that you may give."), ..page });
    };
    let (grants, ends_at_ms) = match limits(&asked, role, app.world.now_ms()) {
        Ok(limits) => limits,
        Err(problem) => return wrong(Page { dates_error: Some(problem), ..page }),
    };
    let known = app.control.people.person_by_email(page.email.trim().to_owned()).await.map_err(of_control)?;
    if let Some((person, _)) = known
        && app.control.people.member(place.tenant.id, person.id).await.map_err(of_control)?.is_some()
    {
        return wrong(Page { email_error: Some("This person is a member already."), ..page });
    }
    let email = page.email.trim().to_owned();
    let invitation = Invitation { tenant_id: place.tenant.id, email, role, grants, ends_at_ms };
    let by = asked.person().person.id;
    match app.accounts.invite(by, given_by(place.role()), invitation, &place.tenant.name).await {
        Ok(Invited::Done) => Ok(see_other(&format!("{}?done=invite", page.here))),
        Ok(Invited::Missing) => Err(Problem::not_found()),
        Ok(Invited::Refused) => wrong(Page { email_error: Some(HELD), ..page }),
        Err(LinkError::Failed(failed)) => Err(failed.into()),
        Err(_) => wrong(Page { email_error: Some("This is no address that mail can be sent to."), ..page }),
    }
}

/// Of an auditor alone: others see everything, for as long as they are members.
fn limits(asked: &Asked, role: Role, now_ms: u64) -> Result<(Grants, Option<u64>), &'static str> {
    if role != Role::Auditor {
        return Ok((Grants::default(), None));
    }
    let date = |name: &str| match asked.field(name) {
        "" => Ok(None),
        text => Date::parse(text).map(Some).ok_or("Write dates as YYYY-MM-DD."),
    };
    let (from, until, ends) = (date("from")?, date("until")?, date("ends")?);
    let own = &asked.place().projects;
    let is_own = |id: &ProjectId| own.iter().any(|project| project.id == *id);
    let chosen = fields(asked, "project").into_iter().map(|id| Uuid::parse(id).map(ProjectId).filter(is_own));
    let chosen: Vec<ProjectId> =
        chosen.collect::<Option<_>>().ok_or("Choose projects of this organisation.")?;
    if chosen.is_empty() {
        return Err("Choose the projects that the auditor may see.");
    }
    let grants = Grants {
        projects: Some(chosen),
        from_ms: from.map(Date::start_ms),
        until_ms: until.map(Date::end_ms),
    };
    if grants.from_ms.zip(grants.until_ms).is_some_and(|(from, until)| from >= until) {
        return Err("The first day of the window comes after its last.");
    }
    let ends_at_ms = ends.map_or(now_ms.saturating_add(AUDITOR_DAYS * DAY_MS), Date::end_ms);
    if ends_at_ms <= now_ms {
        return Err("The last day of the membership is over.");
    }
    Ok((grants, Some(ends_at_ms)))
}

pub(crate) async fn withdraw(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (place, by) = (asked.place(), asked.person().person.id);
    let (tenant_id, may_give) = (place.tenant.id, given_by(place.role()));
    let id = Uuid::parse(asked.field("invitation")).ok_or(Problem::not_found())?;
    match app.accounts.withdraw(by, may_give, tenant_id, id).await? {
        Invited::Done => Ok(see_other(&format!("/app/o/{tenant_id}/members?done=withdraw"))),
        Invited::Missing => Err(Problem::not_found()),
        Invited::Refused => Err(Problem::not_allowed()),
    }
}

fn given_by(role: Role) -> Vec<Role> {
    Role::ALL.into_iter().filter(|given| may_give(role, *given)).collect()
}
