//! Settings of an organisation: its name, security, keys, time zone and privacy texts; and mails that were
//! given up.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::KeptNotice;
use sealog_service::people::admin::key_policy::KeyPolicy;
use sealog_service::people::admin::settings::{
    ABSOLUTE_HOURS, DOMAINS_MAX, IDLE_MINUTES, PRIVACY_CHARACTERS_MAX,
};
use sealog_service::people::admin::tenants::TenantUpdate;
use sealog_service::people::admin::{Actor, AdminError, FieldError};
use sealog_service::people::notices;
use sealog_service::people::organisation::{OrganisationSettings, PRIVACY};
use sealog_service::zone;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, html, html_with, see_other};
use crate::text::visible;

/// Mails that were given up, the last ones.
const GIVEN_UP_ON_PAGE: usize = 50;

/// The texts of [`PRIVACY`], as people know them, and what to write there.
const PRIVACY_LABELS: [(&str, &str); 5] = [
    ("Purposes", "Why you process the personal data in events."),
    ("Categories of data", "Kinds of personal data in events."),
    ("Recipients", "Who else receives the data."),
    ("Retention", "How long you keep events, or how you decide it."),
    ("Contact", "Where people send questions, such as your data protection officer."),
];

#[derive(Template)]
#[template(path = "pages/settings.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    keys_href: String,
    has_mail: bool,
    notice: Option<&'static str>,
    name: String,
    is_totp_required: bool,
    idle_minutes: String,
    absolute_hours: String,
    email_domains: String,
    policy: KeyPolicy,
    days: String,
    time_zone: String,
    needs_two_people: bool,
    regions: Vec<Region>,
    /// The time now, there.
    now: String,
    privacy: Vec<Text>,
    given_up: Vec<GivenUp>,
    error: Option<FieldError>,
}

struct Text {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    value: String,
}

/// Time zones of one part of the world, each as the database and as people write it.
struct Region {
    name: String,
    zones: Vec<(String, String)>,
}

/// In their order: UTC, then regions.
fn regions() -> Vec<Region> {
    let mut regions =
        vec![Region { name: zone::UTC.into(), zones: vec![(zone::UTC.into(), zone::UTC.into())] }];
    for name in zone::names() {
        let Some((region, place)) = name.split_once('/') else { continue };
        let zone = (name.clone(), place.replace('_', " ").replace('/', ", "));
        match regions.last_mut().filter(|last| last.name == region) {
            Some(last) => last.zones.push(zone),
            None => regions.push(Region { name: region.to_owned(), zones: vec![zone] }),
        }
    }
    regions
}

struct GivenUp {
    when: String,
    to: String,
    subject: String,
    failure: String,
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let tenant = &asked.place().tenant;
        let settings = app.service.admin.organisation_settings(tenant.id).await.map_err(of_admin)?;
        let OrganisationSettings {
            is_totp_required,
            session,
            email_domains,
            time_zone,
            needs_two_people,
            privacy,
        } = settings;
        let policy = app.service.admin.key_policy(tenant).await.map_err(of_admin)?;
        let given_up = app.service.control.given_up_notices(tenant.id, GIVEN_UP_ON_PAGE).await;
        let given_up = given_up.map_err(of_control)?;
        let time_zone = time_zone.unwrap_or_else(|| zone::UTC.into());
        let number = |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
        let texts = PRIVACY.into_iter().zip(PRIVACY_LABELS).zip(privacy);
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Settings)),
            here: format!("/app/o/{}/settings", tenant.id),
            keys_href: format!("/app/o/{}/keys", tenant.id),
            has_mail: app.has_mail(),
            notice: None,
            name: tenant.name.clone(),
            is_totp_required,
            idle_minutes: number(session.idle_minutes),
            absolute_hours: number(session.absolute_hours),
            email_domains: email_domains.join("\n"),
            policy,
            days: number(policy.days_max),
            needs_two_people,
            regions: regions(),
            now: zone::moment(app.service.world.now_ms(), &time_zone),
            privacy: texts
                .map(|((name, (label, hint)), value)| Text {
                    name,
                    label,
                    hint,
                    value: value.unwrap_or_default(),
                })
                .collect(),
            given_up: given_up.iter().map(|notice| given_up_row(notice, &time_zone)).collect(),
            time_zone,
            error: None,
        })
    }

    /// What is wrong with a field, as a sentence.
    fn error(&self, field: &str) -> Option<String> {
        let error = self.error.as_ref().filter(|error| error.field == field)?;
        Some(format!("It {}.", error.problem))
    }

    fn has_error(&self, field: &str) -> bool {
        self.error(field).is_some()
    }
}

fn given_up_row(notice: &KeptNotice, zone: &str) -> GivenUp {
    let subject = notices::subject(notice).unwrap_or_else(|| notice.template.clone());
    GivenUp {
        when: notice.given_up_at_ms.map_or(String::new(), |at_ms| zone::moment(at_ms, zone)),
        to: visible(notice.to.as_deref().unwrap_or_default()),
        subject: visible(&subject),
        failure: visible(notice.last_failure.as_deref().unwrap_or_default()),
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let notice = match asked.query_value("done").as_deref() {
        Some("name") => Some("Organisation renamed."),
        Some("authenticators") => Some("Saved. Takes effect on each member's next page load."),
        Some("sessions") => Some("Saved. Takes effect immediately, also for current sessions."),
        Some("domains") => Some("Saved. Applies to new and open invitations."),
        Some("key-lifetime") => Some("Saved. Applies to new keys."),
        Some("time-zone") => Some("Time zone saved."),
        Some("cases") => Some("Saved. Applies to the next approval."),
        Some("privacy") => Some("Privacy texts saved. New packages include them."),
        _ => None,
    };
    Ok(html(&Page { notice, ..Page::new(&app, &asked).await? }))
}

fn actor(asked: &Asked) -> Actor {
    Actor::Person(asked.person().person.id)
}

/// Back to the page, which says so; or the page with what is wrong, and with what was typed, which `keep`
/// puts there.
async fn answer(
    app: &Dashboard,
    asked: &Asked,
    done: &str,
    made: Result<(), AdminError>,
    keep: impl FnOnce(&mut Page<'_>),
) -> Result<Response, Problem> {
    match made {
        Ok(()) => Ok(see_other(&format!("/app/o/{}/settings?done={done}", asked.place().tenant.id))),
        Err(AdminError::Field(error)) => {
            let mut page = Page { error: Some(error), ..Page::new(app, asked).await? };
            keep(&mut page);
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(of_admin(error)),
    }
}

pub(crate) async fn rename(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let name = asked.field("name").trim().to_owned();
    let update = TenantUpdate { name: Some(name.clone()), ..TenantUpdate::default() };
    let made =
        app.service.admin.update_tenant(actor(&asked), asked.place().tenant.id, update).await.map(drop);
    answer(&app, &asked, "name", made, |page| page.name = name).await
}

pub(crate) async fn require_authenticators(
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
) -> Result<Response, Problem> {
    let is_required = asked.field("totp_required") == "yes";
    let made =
        app.service.admin.require_authenticators(actor(&asked), asked.place().tenant.id, is_required).await;
    answer(&app, &asked, "authenticators", made, |page| page.is_totp_required = is_required).await
}

pub(crate) async fn limit_sessions(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (idle, absolute) = (asked.field("idle_minutes"), asked.field("absolute_hours"));
    let made =
        app.service.admin.set_session_limits(actor(&asked), asked.place().tenant.id, idle, absolute).await;
    answer(&app, &asked, "sessions", made, |page| {
        page.idle_minutes = idle.to_owned();
        page.absolute_hours = absolute.to_owned();
    })
    .await
}

pub(crate) async fn limit_domains(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let typed = asked.field("email_domains");
    let made = app.service.admin.set_email_domains(actor(&asked), asked.place().tenant.id, typed).await;
    answer(&app, &asked, "domains", made, |page| page.email_domains = typed.to_owned()).await
}

/// The longest lifetime of keys that are made from now on.
pub(crate) async fn limit_keys(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let typed = asked.field("days").trim();
    let made = match (typed, typed.parse::<u32>()) {
        ("", _) => app.service.admin.set_key_policy(actor(&asked), asked.place().tenant.id, None).await,
        (_, Ok(days)) => {
            app.service.admin.set_key_policy(actor(&asked), asked.place().tenant.id, Some(days)).await
        }
        (_, Err(_)) => Err(FieldError::new("days", "must be a whole number of days").into()),
    };
    answer(&app, &asked, "key-lifetime", made, |page| page.days = typed.to_owned()).await
}

pub(crate) async fn set_time_zone(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let typed = asked.field("time_zone");
    let made = app.service.admin.set_time_zone(actor(&asked), asked.place().tenant.id, typed).await;
    // What is no zone is not in the list: it shows the one that is kept.
    answer(&app, &asked, "time-zone", made, |_| {}).await
}

/// Who reviewed a case does not approve it.
pub(crate) async fn require_two_people(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let is_required = asked.field("two_people") == "yes";
    let tenant_id = asked.place().tenant.id;
    let made = app.service.admin.require_two_people(actor(&asked), tenant_id, is_required).await;
    answer(&app, &asked, "cases", made, |page| page.needs_two_people = is_required).await
}

pub(crate) async fn set_privacy(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let texts = PRIVACY.map(|name| asked.field(name));
    let made = app.service.admin.set_privacy(actor(&asked), asked.place().tenant.id, texts).await;
    answer(&app, &asked, "privacy", made, |page| {
        for (kept, typed) in page.privacy.iter_mut().zip(texts) {
            kept.value = typed.to_owned();
        }
    })
    .await
}
