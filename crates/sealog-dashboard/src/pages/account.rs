//! A person's own account: password, authenticator, sessions.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{Authenticator, Person};
use sealog_core::id::{Hash, TenantId};
use sealog_service::people::notify::Kind;
use sealog_service::people::sign_in::{CodeError, Offer, SignInError};
use sealog_service::{Secret, zone};

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::Shell;
use crate::pages::notice_list::{self, NoticeRow};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, own_path, see_other};
use crate::text::{moment, visible};

/// Of the last days, on the page.
const NOTICES: usize = 20;
const WRONG_PASSWORD: &str = "Wrong password. Enter your current password.";

#[derive(Template)]
#[template(path = "pages/account.html")]
struct Page<'a> {
    shell: Shell<'a>,
    notice: Option<&'static str>,
    error: Option<String>,
    old_error: Option<&'static str>,
    password_error: Option<String>,
    code_error: Option<&'static str>,
    is_confirmed: bool,
    /// A secret waits for its first code.
    is_offered: bool,
    /// That secret, shown to whoever has just given the password.
    offer: Option<Offer>,
    codes_left: u64,
    /// Shown once.
    codes: Vec<Secret>,
    /// The page that asked for an authenticator.
    next: String,
    sessions: Vec<Row>,
    /// Of each organisation, the notices that can be chosen.
    choices: Vec<Choices>,
    notices: Vec<NoticeRow>,
}

struct Choices {
    id: String,
    organisation: String,
    kinds: Vec<(&'static Kind, bool)>,
}

struct Row {
    id: String,
    is_this: bool,
    address: String,
    browser: String,
    began: String,
    seen: String,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let who = asked.person();
        let people = &app.service.control;
        let authenticator = people.authenticator(who.person.id).await.map_err(of_control)?;
        let sessions =
            people.sessions::<Person>(who.person.id, app.service.world.now_ms()).await.map_err(of_control)?;
        let row = |session: &sealog_control::Session<Person>| Row {
            id: session.token_digest.to_string(),
            is_this: session.token_digest == who.session.token_digest,
            address: session.address.clone().unwrap_or_default(),
            browser: visible(session.user_agent.as_deref().unwrap_or("unknown")),
            began: moment(session.created_at_ms),
            seen: moment(session.last_seen_at_ms),
        };
        Ok(Page {
            shell: Shell::new(app, asked, None),
            notice: None,
            error: None,
            old_error: None,
            password_error: None,
            code_error: None,
            is_confirmed: authenticator.as_ref().is_some_and(Authenticator::is_confirmed),
            is_offered: authenticator.is_some_and(|authenticator| !authenticator.is_confirmed()),
            offer: None,
            codes_left: people.recovery_codes_left(who.person.id).await.map_err(of_control)?,
            codes: Vec::new(),
            next: next(asked),
            sessions: sessions.iter().filter(|session| !session.needs_code).map(row).collect(),
            choices: choices(app, asked).await?,
            notices: notice_list::read(app, asked, None, zone::UTC, NOTICES).await?,
        })
    }
}

fn next(asked: &Asked) -> String {
    let given = asked.query_value("next").unwrap_or_else(|| asked.field("next").to_owned());
    own_path(&given).unwrap_or_default().to_owned()
}

async fn choices(app: &Dashboard, asked: &Asked) -> Result<Vec<Choices>, Problem> {
    let mut choices = Vec::new();
    for membership in &asked.person().memberships {
        let kinds = app.service.notifier.choices(membership).await.map_err(of_control)?;
        let tenant = app.service.control.tenant(membership.tenant_id).await.map_err(of_control)?;
        if let Some(tenant) = tenant.filter(|_| !kinds.is_empty()) {
            choices.push(Choices { id: tenant.id.to_string(), organisation: visible(&tenant.name), kinds });
        }
    }
    Ok(choices)
}

/// The organisation that needs an authenticator, by its name.
async fn name_of(app: &Dashboard, tenant_id: TenantId) -> Result<String, Problem> {
    let tenant = app.service.control.tenant(tenant_id).await.map_err(of_control)?;
    Ok(tenant.map_or_else(|| "An organisation".into(), |tenant| visible(&tenant.name)))
}

/// Which optional notices the person gets of one organisation.
pub(crate) async fn choose_notices(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let id = asked.field("organisation");
    let memberships = &asked.person().memberships;
    let membership = memberships.iter().find(|membership| membership.tenant_id.to_string() == id);
    let membership = membership.ok_or(Problem::not_found())?;
    let wanted: Vec<&str> =
        asked.form.iter().filter(|(name, _)| name == "notice").map(|(_, value)| &*value.0).collect();
    app.service.notifier.choose(membership, &wanted).await.map_err(of_control)?;
    app.service.admin.wake().wake();
    Ok(see_other("/app/account?done=notifications#notifications"))
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked).await?;
    let notice = match asked.query_value("done").as_deref() {
        Some("password") => Some("Password changed. All other sessions were signed out."),
        Some("authenticator") => Some("Authenticator removed."),
        Some("sessions") => Some("Signed out there."),
        Some("notifications") => Some("Notifications saved."),
        Some("shortcuts") => Some("Saved for this browser."),
        _ => None,
    };
    let needed = asked.query_value("needed").is_some() && !page.is_confirmed;
    let error = match asked.person().must_enrol {
        Some(tenant_id) => Some(format!(
            "{} requires an authenticator. Set one up to continue.",
            name_of(&app, tenant_id).await?
        )),
        None => needed.then(|| "Auditors need an authenticator. Set one up to continue.".to_owned()),
    };
    Ok(html(&Page { notice, error, ..page }))
}

pub(crate) async fn change_password(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let who = asked.person();
    let (old, new) = (asked.secret("old"), asked.secret("password"));
    let changed = app.service.accounts.change_password(&who.person, old, new, who.session.token_digest).await;
    let page = Page::new(&app, &asked).await?;
    let (status, page) = match changed {
        Ok(Ok(())) => return Ok(see_other("/app/account?done=password")),
        Ok(Err(problem)) => {
            (StatusCode::UNPROCESSABLE_ENTITY, Page { password_error: Some(problem.to_string()), ..page })
        }
        Err(error) => {
            let (status, text) = wrong_password(error)?;
            (status, Page { old_error: Some(text), ..page })
        }
    };
    Ok(html_with(status, &page))
}

fn wrong_password(error: SignInError) -> Result<(StatusCode, &'static str), Problem> {
    match error {
        SignInError::Wrong => Ok((StatusCode::UNPROCESSABLE_ENTITY, WRONG_PASSWORD)),
        SignInError::TooMany => Err(Problem::too_many()),
        SignInError::Busy => Err(Problem::busy()),
        SignInError::Failed(failed) => Err(failed.into()),
    }
}

/// What changes how one signs in needs the password again: a browser that was left open is not enough.
async fn check_password(app: &Dashboard, asked: &Asked) -> Result<Option<Response>, Problem> {
    let Err(error) = app.service.accounts.check_password(&asked.person().person, asked.secret("old")).await
    else {
        return Ok(None);
    };
    let (status, text) = wrong_password(error)?;
    Ok(Some(html_with(status, &Page { error: Some(text.to_owned()), ..Page::new(app, asked).await? })))
}

pub(crate) async fn offer_authenticator(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if let Some(refused) = check_password(&app, &asked).await? {
        return Ok(refused);
    }
    match app.service.accounts.offer_authenticator(&asked.person().person).await {
        Ok(offer) => Ok(html(&Page { offer: Some(offer), ..Page::new(&app, &asked).await? })),
        Err(CodeError::NotNow) => Ok(see_other("/app/account#authenticator")),
        Err(CodeError::Failed(failed)) => Err(failed.into()),
        Err(CodeError::Wrong | CodeError::TooMany) => Err(Problem::not_found()),
    }
}

/// Without the password: it was asked for before the secret was shown, and only the secret gives a code.
pub(crate) async fn confirm_authenticator(
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
) -> Result<Response, Problem> {
    let (who, code) = (asked.person(), asked.field("code"));
    let keep = who.session.token_digest;
    let confirmed = app.service.accounts.confirm_authenticator(who.person.id, code, keep).await;
    let page = Page::new(&app, &asked).await?;
    let (status, error) = match confirmed {
        Ok(codes) => {
            let notice = Some("Authenticator turned on. All other sessions were signed out.");
            return Ok(html(&Page { codes, notice, ..page }));
        }
        Err(CodeError::Wrong) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "Wrong code. Check the clock of your device and try again.")
        }
        Err(CodeError::TooMany) => return Err(Problem::too_many()),
        Err(CodeError::NotNow) => return Ok(see_other("/app/account#authenticator")),
        Err(CodeError::Failed(failed)) => return Err(failed.into()),
    };
    // Shown again to a page that has it. A session alone learns no secret.
    let offer = app.service.accounts.offered(&who.person).await?;
    let offer = offer.filter(|offer| offer.secret.0 == asked.field("secret"));
    Ok(html_with(status, &Page { code_error: Some(error), offer, ..page }))
}

pub(crate) async fn remove_authenticator(
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
) -> Result<Response, Problem> {
    if let Some(refused) = check_password(&app, &asked).await? {
        return Ok(refused);
    }
    if let Some(tenant_id) = app.service.accounts.authenticator_required_by(asked.person()).await? {
        let error =
            format!("{} requires every member to have an authenticator.", name_of(&app, tenant_id).await?);
        let page = Page { error: Some(error), ..Page::new(&app, &asked).await? };
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    app.service.accounts.remove_authenticator(asked.person().person.id).await?;
    Ok(see_other("/app/account?done=authenticator"))
}

pub(crate) async fn new_recovery_codes(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    if let Some(refused) = check_password(&app, &asked).await? {
        return Ok(refused);
    }
    match app.service.accounts.new_recovery_codes(asked.person().person.id).await {
        Ok(codes) => {
            let notice = Some("Recovery codes created. Your earlier codes no longer work.");
            Ok(html(&Page { codes, notice, ..Page::new(&app, &asked).await? }))
        }
        Err(CodeError::Failed(failed)) => Err(failed.into()),
        Err(_) => Ok(see_other("/app/account#authenticator")),
    }
}

/// One by its id, or all others.
pub(crate) async fn end_sessions(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (who, people) = (asked.person(), &app.service.control);
    match Hash::parse(asked.field("session")) {
        Some(id) => {
            if !people.end_session_of::<Person>(who.person.id, id).await.map_err(of_control)? {
                return Err(Problem::not_found());
            }
        }
        None if asked.field("session") == "others" => {
            people
                .end_sessions::<Person>(who.person.id, Some(who.session.token_digest))
                .await
                .map_err(of_control)?;
        }
        None => return Err(Problem::not_found()),
    }
    Ok(see_other("/app/account?done=sessions"))
}
