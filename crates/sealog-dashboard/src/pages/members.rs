//! Members of an organisation, and invitations.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{Invitation, Invited, Link, ListPage, Member, PersonId, Purpose, Role};
use sealog_core::id::Uuid;
use sealog_service::Secret;
use sealog_service::people::account::{INVITATIONS_MAX, LinkError, invitation_url};

use crate::app::Dashboard;
use crate::capability::may_give;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::grants::{self, Choice, Fields, given_by};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other, with_cookie};
use crate::text::{day, visible};

/// Members of one page; those who came later are on the next.
const MEMBERS_ON_PAGE: usize = 100;
const HELD: &str = "This address is already invited with a role you cannot assign.";
const DOMAIN: &str = "Your organisation's settings do not allow this e-mail domain.";
const TOO_MANY_OPEN: &str =
    "There are 100 open invitations, the maximum. Withdraw one, or wait until one is accepted or expires.";
const TOO_MANY_MAILS: &str =
    "Too many invitations in an hour for this address or organisation. Try again later.";

const LINK_MADE: &str =
    "Invitation created. Its link was shown once; invite the same address again for a new link.";

#[derive(Template)]
#[template(path = "pages/members.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    has_mail: bool,
    rows: Vec<Row>,
    /// The page with those who became members after these.
    next: Option<String>,
    is_first: bool,
    invited: Vec<InvitedRow>,
    roles: Vec<Choice>,
    grants: Fields,
    email: &'a str,
    email_error: Option<&'static str>,
    role_error: Option<&'static str>,
    notice: Option<&'static str>,
    /// Of the invitation that was just made on a server without mail. Shown this once.
    link: Option<Secret>,
}

struct Row {
    href: String,
    email: String,
    role: &'static str,
    since: String,
    limits: String,
    has_ended: bool,
    is_confirmed: bool,
    /// Whether the person has shown to have the address.
    is_verified: bool,
}

struct InvitedRow {
    may_withdraw: bool,
    id: String,
    email: String,
    role: &'static str,
    until: String,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, now_ms, people) = (asked.place(), app.service.world.now_ms(), &app.service.control);
        let here = format!("/app/o/{}/members", place.tenant.id);
        // Behind somebody who is no member there is nobody.
        let after = asked.query_value("after").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let after = after.transpose()?;
        // One more than is shown tells whether there are others.
        let page = ListPage { after, limit: MEMBERS_ON_PAGE + 1 };
        let mut members = people.members(place.tenant.id, page).await.map_err(of_control)?;
        let are_more = members.len() > MEMBERS_ON_PAGE;
        members.truncate(MEMBERS_ON_PAGE);
        let last = members.last().filter(|_| are_more);
        let next = last.map(|member| format!("{here}?after={}", member.person.id.0));
        let ids = members.iter().map(|member| member.person.id).collect();
        let confirmed: Vec<PersonId> = people.with_authenticator(ids).await.map_err(of_control)?;
        let open_max = usize::try_from(INVITATIONS_MAX).unwrap_or(usize::MAX);
        let invited = people.invitations(place.tenant.id, now_ms, open_max).await.map_err(of_control)?;
        let wanted = Role::ALL.into_iter().find(|role| role.as_str() == asked.field("role"));
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Members)),
            has_mail: app.has_mail(),
            rows: members.iter().map(|member| row(&here, member, &confirmed, now_ms)).collect(),
            next,
            is_first: after.is_none(),
            invited: invited.iter().filter_map(|link| invited_row(link, place.role())).collect(),
            roles: grants::roles(place.role(), wanted.or(Some(Role::Developer))),
            grants: Fields::typed(asked),
            email: asked.field("email"),
            email_error: None,
            role_error: None,
            notice: None,
            link: None,
            here,
        })
    }
}

fn row(here: &str, member: &Member, confirmed: &[PersonId], now_ms: u64) -> Row {
    let membership = &member.membership;
    Row {
        href: format!("{here}/{}", member.person.id.0),
        email: visible(&member.person.email),
        role: membership.role.rules().label,
        since: day(membership.created_at_ms),
        limits: grants::described(&membership.grants, membership.ends_at_ms),
        has_ended: membership.has_ended(now_ms),
        is_confirmed: confirmed.contains(&member.person.id),
        is_verified: member.person.verified,
    }
}

fn invited_row(link: &Link, role: Role) -> Option<InvitedRow> {
    let Purpose::Invitation(invitation) = &link.purpose else { return None };
    Some(InvitedRow {
        may_withdraw: may_give(role, invitation.role),
        id: link.id.to_string(),
        email: visible(&invitation.email),
        role: invitation.role.rules().label,
        until: day(link.expires_at_ms),
    })
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("invite") => Some("Invitation sent. The link works once and expires in 7 days."),
        Some("link") => Some(LINK_MADE),
        Some("withdraw") => Some("Invitation withdrawn."),
        Some("change") => Some("Membership updated."),
        Some("end") => Some("Membership ended."),
        _ => None,
    };
    let page = Page { notice, ..Page::new(&app, &asked).await? };
    let Some(token) = app.site.cookies.once(&asked.headers) else { return Ok(html(&page)) };
    // Whatever the browser brings, the link is of an invitation that this person has made here.
    let made = app.service.accounts.invitation(&token).await?.filter(|(invitation, _)| {
        let by = asked.person().person.id;
        invitation.tenant_id == asked.place().tenant.id && invitation.invited_by == Some(by)
    });
    let link = made.map(|_| invitation_url(&app.site.url, &token));
    let notice = if link.is_some() { None } else { page.notice };
    Ok(with_cookie(html(&Page { notice, link, ..page }), &app.site.cookies.clear_once()))
}

pub(crate) async fn invite(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let page = Page::new(&app, &asked).await?;
    let wrong = |page| Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    let wrong_email = |page, text| wrong(Page { email_error: Some(text), ..page });
    let Some(role) = grants::chosen_role(&asked) else {
        return wrong(Page { role_error: Some("Choose a role you can assign."), ..page });
    };
    let (grants, ends_at_ms) = match grants::limits(&app, &asked, role).await? {
        Ok(limits) => limits,
        Err(problem) => {
            let grants = Fields { error: Some(problem), ..page.grants };
            return wrong(Page { grants, ..page });
        }
    };
    let known =
        app.service.control.person_by_email(page.email.trim().to_owned()).await.map_err(of_control)?;
    if let Some((person, _)) = known
        && app.service.control.member(place.tenant.id, person.id).await.map_err(of_control)?.is_some()
    {
        return wrong_email(
            page,
            "This person is already a member. Open their entry in the list to change or renew it.",
        );
    }
    let email = page.email.trim().to_owned();
    let by = asked.person().person.id;
    let invitation =
        Invitation { tenant_id: place.tenant.id, email, role, grants, ends_at_ms, invited_by: Some(by) };
    let may_give = given_by(place.role());
    let invited =
        app.service.accounts.invite(by, may_give, invitation, &place.tenant.name, !page.has_mail).await;
    match invited {
        Ok((Invited::Done, None)) => Ok(see_other(&format!("{}?done=invite", page.here))),
        Ok((Invited::Done, Some(token))) => {
            let led = see_other(&format!("{}?done=link", page.here));
            Ok(with_cookie(led, &app.site.cookies.set_once(&token)))
        }
        Ok((Invited::Missing, _)) => Err(Problem::not_found()),
        Ok((Invited::Refused, _)) => wrong_email(page, HELD),
        Ok((Invited::TooMany, _)) => wrong_email(page, TOO_MANY_OPEN),
        Err(LinkError::Domain) => wrong_email(page, DOMAIN),
        Err(LinkError::TooManyMails) => wrong_email(page, TOO_MANY_MAILS),
        Err(LinkError::Failed(failed)) => Err(failed.into()),
        Err(_) => wrong_email(page, "Enter a valid e-mail address."),
    }
}

pub(crate) async fn withdraw(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (place, by) = (asked.place(), asked.person().person.id);
    let (tenant_id, may_give) = (place.tenant.id, given_by(place.role()));
    let id = Uuid::parse(asked.field("invitation")).ok_or(Problem::not_found())?;
    match app.service.accounts.withdraw(by, may_give, tenant_id, id).await? {
        Invited::Done => Ok(see_other(&format!("/app/o/{tenant_id}/members?done=withdraw"))),
        Invited::Missing => Err(Problem::not_found()),
        Invited::Refused | Invited::TooMany => Err(Problem::not_allowed()),
    }
}
