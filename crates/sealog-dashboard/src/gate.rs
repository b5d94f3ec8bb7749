//! Before any page is asked: where the request comes from, who asks, and whether they may.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{HeaderName, HeaderValue, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use sealog_control::{ListPage, Project};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::reject::Code;
use sealog_service::people::account::SignedInPerson;
use sealog_service::people::sign_in::{Failed, Kind, Token};
use sealog_service::{Secret, Visit};
use sealog_store::BoxFuture;

use crate::app::Dashboard;
use crate::capability::{Capability, may};
use crate::front::Front;
use crate::headers;
use crate::layout::Shell;
use crate::place::is_window;
use crate::problem::{Framed, Framing, Problem, Shown};
use crate::request::{Asked, Place, encoded, html, is_form, see_other};
use crate::strip;

/// Of an address: links on a page repeat its query, some of them for each row.
const QUERY_BYTES_MAX: usize = 8 << 10;
/// Most that is read of a form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// Of a member, whose texts may be long in any script: a form writes a character as up to twelve bytes.
const MEMBERS_FORM_BYTES_MAX: usize = 256 << 10;
/// Projects that the rail offers.
pub(crate) const PROJECTS_MAX: usize = 200;
/// Verifications that the count beside Verification is told from.
const RUNS_OF_COUNT: usize = 20;

/// Where somebody is led who needs an authenticator before anything else, and what is open there.
pub(crate) const ENROL: &str = "/app/account?needed=authenticator";
const ENROLMENT: [&str; 4] = [
    "/app/account",
    "/app/account/authenticator",
    "/app/account/authenticator/confirm",
    "/app/account/password",
];
const UNSUBSCRIBE: &str = "/app/unsubscribe";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

pub(crate) type Answer = BoxFuture<'static, Result<Response, Problem>>;
pub(crate) type Handler<F> = fn(Arc<F>, Arc<Asked<F>>) -> Answer;

/// What the gate asks for before a page is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing. The page learns which account asks, if it is signed in.
    Nothing,
    /// A right password, with or without the code that has to follow it.
    Password,
    /// An account that is signed in, with its code.
    SignedIn,
    /// A member of the path's `{organisation}`, or of that of its `{project}`, whose role includes this.
    Member(Capability),
}

/// What a site asks of those who sign in, and where it sends them.
pub trait Gate: Framing {
    const WRONG_CODE: &'static str;

    /// Where a session continues that a password alone has begun. None for a whole one.
    fn next_step(who: &<Self::Kind as Kind>::Who) -> Option<&'static str>;

    /// Where a browser goes that has signed in and wants this page, if any.
    fn arrival(next: &str) -> String;

    /// Too many passwords, codes or links. The message does not reveal whether there is such an account.
    fn too_many() -> Problem;

    /// What the sign-in page says after this has happened elsewhere.
    fn notice_after(_: &str) -> Option<&'static str> {
        None
    }

    /// What a page needs beside a session: the last question before its form is read.
    fn enter(&self, _: Needs, _: &mut Asked<Self>) -> impl Future<Output = Result<(), Problem>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Answers a request with the page of its route, or with why not.
pub(crate) async fn pass<F: Gate>(
    front: &Arc<F>,
    needs: Needs,
    handler: Option<Handler<F>>,
    parameters: &RawPathParams,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let mut asked = begin(&parts, parameters, front.site().cookies.session(&parts.headers));
    let checked = async {
        check_request(front.site().cookies.origin(), &parts.method, &asked)?;
        admit(&**front, needs, &mut asked).await?;
        if parts.method == Method::POST {
            asked.form = match asked.path == UNSUBSCRIBE && !is_form(&asked.headers) {
                // RFC 8058 lets a mail program write it as another kind of form, of which nothing is needed.
                true => Vec::new(),
                false => read_form(needs, &asked.headers, body).await?,
            };
        }
        handler.ok_or_else(Problem::not_found)
    };
    let handler = match checked.await {
        Ok(handler) => handler,
        Err(problem) => return problem.render(&**front, &asked),
    };
    let asked = Arc::new(asked);
    match handler(Arc::clone(front), Arc::clone(&asked)).await {
        Ok(response) => response,
        Err(problem) => problem.render(&**front, &asked),
    }
}

/// A request of which is not known yet who makes it.
fn begin<F: Front>(parts: &Parts, parameters: &RawPathParams, token: Option<Token>) -> Asked<F> {
    let visit: Visit = *parts.extensions.get().expect("the server says where a request comes from");
    Asked {
        visit,
        token,
        headers: parts.headers.clone(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or("").to_owned(),
        parameters: parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        form: Vec::new(),
        who: None,
        place: F::Place::default(),
    }
}

/// What holds for every request, whoever makes it.
fn check_request<F: Front>(origin: &str, method: &Method, asked: &Asked<F>) -> Result<(), Problem> {
    check_site(origin, method, asked)?;
    if asked.query.len() > QUERY_BYTES_MAX {
        return Err(Problem::new(
            Code::ValidationInvalidField,
            "The URL is too long. Use a shorter search or fewer filters.",
        ));
    }
    Ok(())
}

/// Another site can make a browser send a form with its cookies. The browser says which site it was, or at
/// least which origin; a program that is no browser says neither, and has no cookies that are not its own.
/// From a page that lets no address leave ([`headers::hides_origin`]), an old browser that does not name the
/// site says `null` for the origin: its forms are accepted where what was typed is the proof, and no session
/// is.
fn check_site<F: Front>(own_origin: &str, method: &Method, asked: &Asked<F>) -> Result<(), Problem> {
    let value = |name: HeaderName| asked.headers.get(name).map(HeaderValue::as_bytes);
    let is_ours = match (value(SEC_FETCH_SITE), value(ORIGIN)) {
        (Some(site), _) if *method == Method::GET => {
            // A link from elsewhere is what links are for; a page of ours inside another is not.
            matches!(site, b"same-origin" | b"none") || value(SEC_FETCH_MODE) == Some(b"navigate")
        }
        (None, _) if *method == Method::GET => true,
        (Some(site), _) => matches!(site, b"same-origin" | b"none"),
        (None, Some(b"null")) if headers::hides_origin(&asked.path) => true,
        (None, Some(origin)) => origin.eq_ignore_ascii_case(own_origin.as_bytes()),
        (None, None) => true,
    };
    let message = "The request came from another site. Open this page directly and try again.";
    if is_ours { Ok(()) } else { Err(Problem::new(Code::RequestCrossSite, message)) }
}

async fn admit<F: Gate>(front: &F, needs: Needs, asked: &mut Asked<F>) -> Result<(), Problem> {
    if let Some(token) = &asked.token {
        asked.who = front.accounts().find(token).await?;
    }
    let step = asked.who.as_ref().map(F::next_step);
    match (needs, step) {
        (Needs::Nothing, _) | (_, Some(None)) | (Needs::Password, Some(_)) => {}
        (_, Some(Some(next_step))) => return Err(see_other(next_step).into()),
        (_, None) => return Err(sign_in_first(asked).into()),
    }
    if needs != Needs::Password {
        // A session without its code counts as none.
        asked.who = asked.who.take().filter(|who| F::next_step(who).is_none());
    }
    front.enter(needs, asked).await
}

/// And come back to a page; to a form there is no way back.
fn sign_in_first<F: Front>(asked: &Asked<F>) -> Response {
    let query = if asked.query.is_empty() { String::new() } else { format!("?{}", asked.query) };
    let next = encoded(&format!("{}{query}", asked.path));
    see_other(&format!("{}/sign-in?next={next}", F::BASE))
}

impl Framing for Dashboard {
    fn framed(&self, asked: &Asked, shown: Shown) -> Result<Response, Shown> {
        match &asked.who {
            Some(who) if Dashboard::next_step(who).is_none() => {
                Ok(html(&Framed { shell: Shell::new(self, asked, None), shown }))
            }
            _ => Err(shown),
        }
    }
}

impl Gate for Dashboard {
    const WRONG_CODE: &'static str = "Wrong code, or already used. Enter a new one.";

    fn next_step(who: &SignedInPerson) -> Option<&'static str> {
        who.session.needs_code.then_some("/app/sign-in/code")
    }

    fn arrival(next: &str) -> String {
        format!("/app/signed-in?next={}", encoded(next))
    }

    fn too_many() -> Problem {
        Problem::too_many()
    }

    fn notice_after(what: &str) -> Option<&'static str> {
        match what {
            "claim" => Some("Owner account created. Sign in with your new password."),
            "reset" => Some("Password set. All sessions were signed out. Sign in with your new password."),
            "invitation" => Some("Account created. Sign in with your new password."),
            _ => None,
        }
    }

    async fn enter(&self, needs: Needs, asked: &mut Asked) -> Result<(), Problem> {
        let Some(who) = &asked.who else { return Ok(()) };
        if matches!(needs, Needs::SignedIn | Needs::Member(_))
            && who.must_enrol.is_some()
            && !ENROLMENT.contains(&&*asked.path)
        {
            return Err(enrol(asked).into());
        }
        if let Needs::Member(capability) = needs {
            let (place, is_allowed) = find_place(self, asked, who, capability).await?;
            // Also for the page that says no, which keeps the way back.
            asked.place = Some(place);
            return if is_allowed { Ok(()) } else { Err(Problem::not_allowed()) };
        }
        Ok(())
    }
}

/// To the authenticator, and from there back to the page that was asked for.
fn enrol(asked: &Asked) -> Response {
    if is_form(&asked.headers) {
        return see_other(ENROL);
    }
    let asked_for =
        if asked.query.is_empty() { asked.path.clone() } else { format!("{}?{}", asked.path, asked.query) };
    see_other(&format!("{ENROL}&next={}", encoded(&asked_for)))
}

/// The organisation and the project of the path, and whether the role includes the page. Unknown, foreign and
/// not granted are one answer.
async fn find_place(
    app: &Dashboard,
    asked: &Asked,
    who: &SignedInPerson,
    capability: Capability,
) -> Result<(Place, bool), Problem> {
    let named = |name| Uuid::parse(asked.parameter(name));
    let (tenant_id, chain) = match (named("organisation"), named("project")) {
        (Some(id), _) => (TenantId(id), None),
        (None, Some(id)) => {
            let project = find_project(app, ProjectId(id)).await?.ok_or(Problem::not_found())?;
            let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == asked.parameter("mode"));
            let mode = mode.filter(|mode| !project.id.is_system() || *mode == Mode::Live);
            (project.tenant_id, Some((project, mode.ok_or(Problem::not_found())?)))
        }
        (None, None) => return Err(Problem::not_found()),
    };
    let membership = who.memberships.iter().find(|membership| membership.tenant_id == tenant_id);
    let membership = membership.ok_or(Problem::not_found())?.clone();
    let is_granted = |project: &Project| {
        membership.grants.projects.as_ref().is_none_or(|granted| granted.contains(&project.id))
    };
    if chain.as_ref().is_some_and(|(project, _)| !is_granted(project)) {
        return Err(Problem::not_found());
    }
    let is_system = chain.as_ref().is_some_and(|(project, _)| project.id.is_system());
    let is_allowed =
        may(membership.role, capability) && (!is_system || may(membership.role, Capability::SystemLog));
    if membership.role.rules().needs_second_factor {
        let authenticator = app.service.control.authenticator(who.person.id).await.map_err(of_control)?;
        if !authenticator.is_some_and(|authenticator| authenticator.is_confirmed()) {
            return Err(enrol(asked).into());
        }
    }
    let tenant = app.service.control.tenant(tenant_id).await.map_err(of_control)?;
    let tenant = tenant.ok_or(Problem::not_found())?;
    let administration = &app.service.control;
    let projects = match membership.grants.projects.clone() {
        // Those alone: they may be behind the first ones that a list would have.
        Some(granted) => administration.projects_named(tenant_id, granted).await,
        None => administration.projects(tenant_id, ListPage { after: None, limit: PROJECTS_MAX }).await,
    };
    let projects = projects.map_err(of_control)?;
    let mut place = Place { tenant, membership, projects, chain, broken: 0 };
    if is_allowed {
        place.broken = broken(app, &place).await?;
    }
    Ok((place, is_allowed))
}

/// Of the chain that the rail leads to. Of a chain that somebody sees a part of, its own page says what is
/// known of that part.
async fn broken(app: &Dashboard, place: &Place) -> Result<usize, Problem> {
    let own = place.chain.clone().filter(|(project, _)| !project.id.is_system());
    let shown = own.or_else(|| Some((place.projects.first()?.clone(), Mode::Live)));
    let (Some((project, mode)), true) = (shown, place.may(Capability::Verify)) else { return Ok(0) };
    if is_window(&place.membership.grants) {
        return Ok(0);
    }
    let chain = ChainId { tenant_id: place.tenant.id, project_id: project.id, mode };
    Ok(strip::broken(&app.service.verifications.runs(chain, None, RUNS_OF_COUNT).await?))
}

/// Also the one that is reserved for a system chain, which is no project otherwise.
async fn find_project(app: &Dashboard, id: ProjectId) -> Result<Option<Project>, Problem> {
    if !id.is_system() {
        return app.service.control.project(id).await.map_err(of_control);
    }
    let tenant_id = app.service.control.tenant_of_system_project(id).await.map_err(of_control)?;
    Ok(tenant_id.map(|tenant_id| Project {
        id,
        tenant_id,
        name: "System log".into(),
        frameworks: FrameworkSet::NONE,
        frameworks_ever: FrameworkSet::NONE,
        rate_limit_rps: None,
        created_at_ms: 0,
    }))
}

pub(crate) fn of_control(error: sealog_store::StoreError) -> Problem {
    Failed::from(error).into()
}

async fn read_form(
    needs: Needs,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Vec<(String, Secret)>, Problem> {
    if !is_form(headers) {
        return Err(Problem::new(
            Code::RequestMalformed,
            "This is not a valid form. Reload the page and try again.",
        ));
    }
    let is_members = matches!(needs, Needs::Member(_));
    let bytes_max = if is_members { MEMBERS_FORM_BYTES_MAX } else { FORM_BYTES_MAX };
    let body = to_bytes(body, bytes_max).await;
    let body = body.map_err(|_| {
        Problem::new(
            Code::ValidationBodyTooLarge,
            "The form is too large or arrived too late. Shorten it, or try again.",
        )
    })?;
    Ok(form_urlencoded::parse(&body)
        .map(|(name, value)| (name.into_owned(), Secret(value.into_owned())))
        .collect())
}
